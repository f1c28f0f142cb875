//! [`Pair`]: a slice of an engine between two slices of the baseline, so that drift cancels out; and which
//! pairs count.

/// Distance of a helping thread's core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Nanoseconds that a cache line takes there and back; infinite if nobody answers.
    pub trip: f64,
    /// It seemed to be the other hardware thread of this core: each of the two slowed the other down. A third
    /// party can look the same.
    pub same_core: bool,
}

impl Seen {
    /// Nobody answers there.
    pub const AWAY: Self = Self { trip: f64::INFINITY, same_core: false };
}

/// A slice of time in which one cell was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Operations a second.
    pub rate: f64,
    /// CPU time of each operation, in nanoseconds.
    pub cpu_ns: f64,
    /// Part of the time in which threads waited for a CPU.
    pub waited: f64,
    /// Distance of the helping thread's core, if one helps.
    pub beside: Option<Seen>,
}

/// A slice of an engine, and its ratio to the baseline around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The engine's slice.
    pub slot: Slot,
    /// Operations a second over the baseline's.
    pub ratio: Option<f64>,
    /// Part of the time that was waited for a CPU, in the worst of the slices that count.
    pub waited: f64,
    /// The helping core was not where it usually is.
    pub moved: bool,
    /// The visit to the cell that the slice belongs to.
    pub visit: u32,
}

/// Up to this part of the time, waiting moves no figure that is shown.
const CLEAN: f64 = 0.01;

impl Slot {
    /// Returns whether it had its CPU nearly all the time.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.waited <= CLEAN
    }
}

impl Pair {
    /// Pairs a slice with the baseline before and after it. If one of these was disturbed, the other counts
    /// alone.
    #[must_use]
    pub fn new(before: Option<Slot>, slot: Slot, after: Option<Slot>) -> Self {
        let both = [before, after].into_iter().flatten();
        let clean: Vec<Slot> = both.clone().filter(Slot::is_clean).collect();
        let around = if clean.is_empty() { both.collect() } else { clean };
        let waited = around.iter().map(|b| b.waited).fold(slot.waited, f64::max);
        // The geometric mean: a ratio and its inverse are treated alike.
        let mean = around.iter().map(|b| b.rate.ln()).sum::<f64>() / around.len() as f64;
        let ratio = (!around.is_empty()).then(|| slot.rate / mean.exp()).filter(|r| r.is_finite());
        Self { slot, ratio, waited, moved: false, visit: 0 }
    }

    /// Returns whether nothing disturbed it.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.waited <= CLEAN && !self.moved
    }

    /// The amount of it was disturbed: waiting weighs more than a core that moved.
    fn disturbed(&self) -> f64 {
        if self.waited > CLEAN { 2.0 + self.waited } else { f64::from(u8::from(self.moved)) }
    }
}

/// With so many undisturbed pairs, and this part of the wanted ones, the disturbed ones are left out. With
/// fewer, the least disturbed make up for them.
const ENOUGH: (usize, f64) = (8, 0.5);

/// Returns up to `wanted` of the pairs in their order, the undisturbed ones first. Measured figures have no
/// say in it.
#[must_use]
pub fn keep(pairs: &[Pair], wanted: usize) -> Vec<Pair> {
    let clean = pairs.iter().filter(|p| p.is_clean()).count();
    let enough = clean >= ENOUGH.0 && clean as f64 >= ENOUGH.1 * wanted.min(pairs.len()) as f64;
    let most = if enough { clean } else { pairs.len() };
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by(|a, b| pairs[*a].disturbed().total_cmp(&pairs[*b].disturbed()));
    order.truncate(wanted.min(most));
    order.sort_unstable();
    order.into_iter().map(|at| pairs[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(rate: f64, waited: f64) -> Slot {
        Slot { rate, cpu_ns: 1.0, waited, beside: None }
    }

    #[test]
    fn drift_cancels_out() {
        // Everything becomes slower by a fifth from slice to slice.
        let pair = Pair::new(Some(slot(100.0, 0.0)), slot(160.0, 0.0), Some(slot(64.0, 0.0)));
        assert!((pair.ratio.unwrap() - 2.0).abs() < 1e-12, "{pair:?}");
        assert!(pair.is_clean());
    }

    #[test]
    fn a_disturbed_baseline_does_not_count_beside_one_that_was_not() {
        let (clean, disturbed) = (Some(slot(100.0, 0.0)), Some(slot(10.0, 0.9)));
        for (before, after) in [(clean, disturbed), (disturbed, clean), (clean, None), (None, clean)] {
            let pair = Pair::new(before, slot(200.0, 0.001), after);
            assert!((pair.ratio.unwrap() - 2.0).abs() < 1e-12 && pair.is_clean(), "{pair:?}");
        }
        assert!(!Pair::new(disturbed, slot(200.0, 0.0), disturbed).is_clean());
        assert!(!Pair::new(clean, slot(200.0, 0.5), clean).is_clean());
        assert_eq!(Pair::new(None, slot(200.0, 0.0), None).ratio, None);
    }

    #[test]
    fn the_least_disturbed_are_kept_whatever_they_measured() {
        let pair = |rate: f64, waited: f64| Pair {
            slot: slot(rate, waited),
            ratio: Some(rate),
            waited,
            moved: false,
            visit: 0,
        };
        let pairs = vec![pair(1.0, 0.5), pair(2.0, 0.0), pair(9.0, 0.2), pair(3.0, 0.009), pair(4.0, 0.0)];
        let rates =
            |pairs: &[Pair], wanted| keep(pairs, wanted).iter().map(|p| p.slot.rate).collect::<Vec<_>>();
        assert_eq!(rates(&pairs, 2), [2.0, 3.0], "the first of the undisturbed");
        assert_eq!(rates(&pairs, 4), [2.0, 9.0, 3.0, 4.0], "in their order, and the least disturbed");
        assert_eq!(rates(&pairs, 9).len(), 5);
        // A core that moved disturbs less than waiting does.
        let moved = Pair { moved: true, ..pair(6.0, 0.0) };
        assert!(!moved.is_clean());
        assert_eq!(rates(&[pair(1.0, 0.5), moved], 1), [6.0]);
        // The undisturbed alone are kept if they are eight, and half of what is wanted.
        let of = |clean: usize, others: usize, wanted| {
            keep(&[vec![pair(1.0, 0.0); clean], vec![moved; others]].concat(), wanted).len()
        };
        assert_eq!([of(7, 4, 48), of(8, 8, 48), of(8, 9, 48), of(9, 6, 5)], [11, 8, 17, 5]);
        assert!(keep(&[], 3).is_empty());
    }
}
