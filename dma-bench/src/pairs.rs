//! [`Pair`]: a slice of an engine between two slices of the baseline, so that drift cancels out; and the
//! choice of the pairs that count.

/// Distance of a helping thread's core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Round trip of a cache line in nanoseconds; infinite if the core does not answer.
    pub trip: f64,
    /// The core seemed to be the other hardware thread of this core, because each slowed the other down.
    /// Another process can look the same.
    pub same_core: bool,
}

impl Seen {
    /// The core does not answer.
    pub const AWAY: Self = Self { trip: f64::INFINITY, same_core: false };
}

/// A slice of time in which one cell was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Operations a second.
    pub rate: f64,
    /// CPU time of each operation, in nanoseconds.
    pub cpu_ns: f64,
    /// Fraction of the time during which threads waited for a CPU.
    pub waited: f64,
    /// Distance of the helping thread's core, if one helps.
    pub beside: Option<Seen>,
}

/// A slice of an engine, and its ratio to the baseline around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The engine's slice.
    pub slot: Slot,
    /// Ratio of operations a second to the baseline's.
    pub ratio: Option<f64>,
    /// Fraction of the time spent waiting for a CPU: the greatest of the slices that count.
    pub waited: f64,
    /// The helping core was not at its usual distance.
    pub moved: bool,
    /// The number of the cell's visit.
    pub visit: u32,
}

/// Waiting up to this fraction of the time changes no figure that is shown.
const CLEAN: f64 = 0.01;

impl Slot {
    /// Returns true if threads hardly waited for a CPU.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.waited <= CLEAN
    }
}

impl Pair {
    /// Pairs a slice with the baseline before and after it. A disturbed baseline is left out if the other one
    /// was undisturbed.
    #[must_use]
    pub fn new(before: Option<Slot>, slot: Slot, after: Option<Slot>) -> Self {
        let both = [before, after].into_iter().flatten();
        let clean: Vec<Slot> = both.clone().filter(Slot::is_clean).collect();
        let around = if clean.is_empty() { both.collect() } else { clean };
        let waited = around.iter().map(|b| b.waited).fold(slot.waited, f64::max);
        // The geometric mean treats a ratio and its inverse alike.
        let mean = around.iter().map(|b| b.rate.ln()).sum::<f64>() / around.len() as f64;
        let ratio = (!around.is_empty()).then(|| slot.rate / mean.exp()).filter(|r| r.is_finite());
        Self { slot, ratio, waited, moved: false, visit: 0 }
    }

    /// Returns true if nothing disturbed the pair.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.waited <= CLEAN && !self.moved
    }

    /// Returns the degree of disturbance. Waiting weighs more than a core that moved.
    fn disturbed(&self) -> f64 {
        if self.waited > CLEAN { 2.0 + self.waited } else { f64::from(u8::from(self.moved)) }
    }
}

/// With at least this many undisturbed pairs, which also are this fraction of the wanted ones, disturbed
/// pairs are dropped. With fewer, the least disturbed fill up.
const ENOUGH: (usize, f64) = (8, 0.5);

/// Returns up to `wanted` of the pairs in their order, undisturbed ones first. Measured figures do not
/// influence the choice.
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
        // Each slice takes a fifth longer than the one before.
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
        // A core that moved disturbs less than waiting.
        let moved = Pair { moved: true, ..pair(6.0, 0.0) };
        assert!(!moved.is_clean());
        assert_eq!(rates(&[pair(1.0, 0.5), moved], 1), [6.0]);
        // The undisturbed pairs alone are kept if there are eight of them, and half of the wanted.
        let of = |clean: usize, others: usize, wanted| {
            keep(&[vec![pair(1.0, 0.0); clean], vec![moved; others]].concat(), wanted).len()
        };
        assert_eq!([of(7, 4, 48), of(8, 8, 48), of(8, 9, 48), of(9, 6, 5)], [11, 8, 17, 5]);
        assert!(keep(&[], 3).is_empty());
    }
}
