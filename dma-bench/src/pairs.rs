//! [`Pair`]: a slice of an engine between two slices of the baseline, so that what drifts cancels out; and which pairs are kept.

/// What was seen of the core of another thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Nanoseconds that a cache line takes there and back; infinite if nobody answers.
    pub trip: f64,
    /// It seemed to be the other hardware thread of this core: while one kept all units busy, the other had fewer of them. That may have been
    /// somebody else.
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
    /// The part of the time in which threads waited for a CPU.
    pub waited: f64,
    /// The core's other hardware thread was busy before it or after it.
    pub shared: bool,
    /// Where the core was on which another thread took part, or was to.
    pub beside: Option<Seen>,
}

/// A slice of an engine, and its ratio to the baseline around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The engine's.
    pub slot: Slot,
    /// Operations a second over the baseline's.
    pub ratio: Option<f64>,
    /// The part of the time that was waited for a CPU, in the worst of the slices that count.
    pub waited: f64,
    /// The core's other hardware thread was busy around one of the slices that count.
    pub shared: bool,
    /// The other core that took part was nearer than usual, or farther, or away.
    pub moved: bool,
}

/// Up to here a slice counts as undisturbed: a wait this short moves no figure that is shown.
const CLEAN: f64 = 0.01;

impl Slot {
    /// Whether it had its CPU nearly all the time, and the core for itself.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.waited <= CLEAN && !self.shared
    }
}

impl Pair {
    /// Pairs a slice with the baseline before and after it. If one of these was disturbed and the other was not, the other counts alone.
    #[must_use]
    pub fn new(before: Option<Slot>, slot: Slot, after: Option<Slot>) -> Self {
        let both = [before, after].into_iter().flatten();
        let clean: Vec<Slot> = both.clone().filter(Slot::is_clean).collect();
        let around = if clean.is_empty() { both.collect() } else { clean };
        let waited = around.iter().map(|b| b.waited).fold(slot.waited, f64::max);
        let shared = around.iter().fold(slot.shared, |shared, b| shared | b.shared);
        // The geometric mean: a ratio and its inverse are treated alike.
        let mean = around.iter().map(|b| b.rate.ln()).sum::<f64>() / around.len() as f64;
        let ratio = (!around.is_empty()).then(|| slot.rate / mean.exp()).filter(|r| r.is_finite());
        Self { slot, ratio, waited, shared, moved: false }
    }

    /// Whether no slice of it was disturbed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_whole() && !self.shared
    }

    /// Whether it had its CPUs nearly all the time, and where they usually are. That others used a core meanwhile makes both sides slower.
    fn is_whole(&self) -> bool {
        self.waited <= CLEAN && !self.moved
    }

    /// How much it was disturbed: least by a shared core.
    fn disturbed(&self) -> f64 {
        let (shared, moved) = (f64::from(u8::from(self.shared)), f64::from(u8::from(self.moved)));
        if self.waited > CLEAN { 4.0 + self.waited } else { shared + 2.0 * moved }
    }
}

/// So many pairs that were less disturbed than the others are enough to do without those,
pub(crate) const ENOUGH: usize = 8;
/// but where the core was shared, only if this part of the pairs is left. Where others use it most of the time, so few would be left that chance
/// decides: of eight runs on a machine where others used it in 60 to 80 % of the repetitions, one and the next had 20.7 of 24 median ratios
/// within 5 % of each other with all pairs, and 17.3 without those.
const MOST: f64 = 0.6;

/// Keeps up to `wanted` of the pairs, in their order: those that nothing disturbed, and of these the first. If they are too few, the least disturbed
/// beside them. What they measured has no say in it.
#[must_use]
pub fn keep(pairs: &[Pair], wanted: usize) -> Vec<Pair> {
    let whole = pairs.iter().filter(|p| p.is_whole()).count();
    let clean = pairs.iter().filter(|p| p.is_clean()).count();
    let enough = if clean >= ENOUGH && clean as f64 >= MOST * whole as f64 {
        clean
    } else if whole >= ENOUGH {
        whole
    } else {
        pairs.len()
    };
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by(|a, b| pairs[*a].disturbed().total_cmp(&pairs[*b].disturbed()));
    order.truncate(wanted.min(enough));
    order.sort_unstable();
    order.into_iter().map(|at| pairs[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(rate: f64, waited: f64) -> Slot {
        Slot { rate, cpu_ns: 1.0, waited, shared: false, beside: None }
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
        // On a core that others use too, as if it had waited.
        let shared = Some(Slot { shared: true, ..slot(10.0, 0.0) });
        let pair = Pair::new(shared, slot(200.0, 0.0), clean);
        assert!((pair.ratio.unwrap() - 2.0).abs() < 1e-12 && pair.is_clean(), "{pair:?}");
        let pair = Pair::new(shared, slot(200.0, 0.0), shared);
        assert!(pair.shared && !pair.is_clean() && (pair.ratio.unwrap() - 20.0).abs() < 1e-9, "{pair:?}");
        assert!(!Pair::new(clean, Slot { shared: true, ..slot(200.0, 0.0) }, clean).is_clean());
    }

    #[test]
    fn the_least_disturbed_are_kept_whatever_they_measured() {
        let pair = |rate: f64, waited: f64| Pair {
            slot: slot(rate, waited),
            ratio: Some(rate),
            waited,
            shared: false,
            moved: false,
        };
        let pairs = vec![pair(1.0, 0.5), pair(2.0, 0.0), pair(9.0, 0.2), pair(3.0, 0.009), pair(4.0, 0.0)];
        let rates =
            |pairs: &[Pair], wanted| keep(pairs, wanted).iter().map(|p| p.slot.rate).collect::<Vec<_>>();
        let kept = |wanted| rates(&pairs, wanted);
        assert_eq!(kept(2), [2.0, 3.0], "of the undisturbed the first");
        assert_eq!(kept(4), [2.0, 9.0, 3.0, 4.0], "in their order");
        assert_eq!(kept(9).len(), 5);
        // A shared core disturbs less than waiting does.
        let shared = Pair { shared: true, ..pair(5.0, 0.0) };
        assert_eq!(rates(&[pair(1.0, 0.5), shared, pair(2.0, 0.0)], 2), [5.0, 2.0]);
        // A core that is elsewhere than usual is in between.
        let moved = Pair { moved: true, ..pair(6.0, 0.0) };
        assert!(!moved.is_clean());
        let both = Pair { shared: true, ..moved };
        assert_eq!(rates(&[pair(1.0, 0.5), both, moved, shared], 1), [5.0]);
        assert_eq!(rates(&[pair(1.0, 0.5), both, moved, shared], 2), [6.0, 5.0]);
        assert_eq!(rates(&[pair(1.0, 0.5), both, moved, shared], 3), [6.0, 6.0, 5.0]);
        // The undisturbed alone are kept if they are eight, and most of those that have nothing but a shared core.
        let of = |clean: usize, others: &[(usize, Pair)], wanted| {
            let mut all = vec![pair(1.0, 0.0); clean];
            others.iter().for_each(|(times, other)| all.extend(vec![*other; *times]));
            keep(&all, wanted).len()
        };
        let waited = pair(7.0, 0.2);
        assert_eq!(
            [of(7, &[(4, shared)], 48), of(8, &[(5, shared)], 48), of(9, &[(6, shared)], 5)],
            [11, 8, 5]
        );
        assert_eq!([of(59, &[(41, shared)], 240), of(60, &[(40, shared)], 240)], [100, 60]);
        assert_eq!(
            [of(59, &[(41, shared), (99, moved)], 80), of(8, &[(9, moved), (9, waited)], 99)],
            [80, 8]
        );
        assert_eq!([of(3, &[(5, shared), (9, moved)], 99), of(3, &[(4, shared), (9, waited)], 99)], [8, 16]);
    }
}
