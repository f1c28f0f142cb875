//! [`Pair`]: a slice of an engine between two slices of the baseline, so that drift cancels out; and the
//! choice of the pairs that count.

/// A slice of time in which one cell was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slot {
    pub rate: f64,
    /// CPU time of each operation, in nanoseconds.
    pub cpu_ns: f64,
    /// Fraction of the time during which threads waited for a CPU.
    pub waited: f64,
}

/// A slice of an engine, and its ratio to the baseline around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    pub slot: Slot,
    /// Ratio of operations a second to the baseline's.
    pub ratio: Option<f64>,
    /// Fraction of the time spent waiting for a CPU: the greatest of the slices that count.
    pub waited: f64,
    pub pass: u32,
}

/// Waiting up to this fraction of the time changes no figure that is shown.
const CLEAN: f64 = 0.01;

impl Slot {
    /// Returns true if threads hardly waited for a CPU.
    pub(crate) fn is_clean(&self) -> bool {
        self.waited <= CLEAN
    }
}

impl Pair {
    /// Pairs a slice with the baseline before and after it. A disturbed baseline is left out if the other one
    /// was undisturbed.
    pub(crate) fn new(pass: u32, before: Option<Slot>, slot: Slot, after: Option<Slot>) -> Self {
        let both = [before, after].into_iter().flatten();
        let clean: Vec<Slot> = both.clone().filter(Slot::is_clean).collect();
        let around = if clean.is_empty() { both.collect() } else { clean };
        let waited = around.iter().map(|b| b.waited).fold(slot.waited, f64::max);
        // The geometric mean treats a ratio and its inverse alike.
        let mean = around.iter().map(|b| b.rate.ln()).sum::<f64>() / around.len() as f64;
        let ratio = (!around.is_empty()).then(|| slot.rate / mean.exp()).filter(|r| r.is_finite());
        Self { slot, ratio, waited, pass }
    }

    /// Returns true if threads hardly waited for a CPU in the pair.
    pub(crate) fn is_clean(&self) -> bool {
        self.waited <= CLEAN
    }
}

/// With at least this many undisturbed pairs, the others do not count.
const ENOUGH: usize = 8;

/// Returns the pairs that count: the undisturbed ones; with too few, which decide nothing, `wanted` ones, the
/// undisturbed among them. Measured figures do not influence the choice.
pub(crate) fn keep(pairs: &[Pair], wanted: usize) -> Vec<Pair> {
    let clean: Vec<Pair> = pairs.iter().filter(|p| p.is_clean()).copied().collect();
    if clean.len() >= ENOUGH {
        return clean;
    }
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by_key(|at| !pairs[*at].is_clean());
    order.truncate(wanted);
    order.sort_unstable();
    order.into_iter().map(|at| pairs[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(rate: f64, waited: f64) -> Slot {
        Slot { rate, cpu_ns: 1.0, waited }
    }

    #[test]
    fn drift_cancels_out() {
        // Each slice takes a fifth longer than the one before.
        let pair = Pair::new(0, Some(slot(100.0, 0.0)), slot(160.0, 0.0), Some(slot(64.0, 0.0)));
        assert!((pair.ratio.unwrap() - 2.0).abs() < 1e-12, "{pair:?}");
        assert!(pair.is_clean());
    }

    #[test]
    fn a_disturbed_baseline_does_not_count_beside_one_that_was_not() {
        let (clean, disturbed) = (Some(slot(100.0, 0.0)), Some(slot(10.0, 0.9)));
        for (before, after) in [(clean, disturbed), (disturbed, clean), (clean, None), (None, clean)] {
            let pair = Pair::new(0, before, slot(200.0, 0.001), after);
            assert!((pair.ratio.unwrap() - 2.0).abs() < 1e-12 && pair.is_clean(), "{pair:?}");
        }
        assert!(!Pair::new(0, disturbed, slot(200.0, 0.0), disturbed).is_clean());
        assert!(!Pair::new(0, clean, slot(200.0, 0.5), clean).is_clean());
        assert_eq!(Pair::new(0, None, slot(200.0, 0.0), None).ratio, None);
    }

    #[test]
    fn undisturbed_pairs_alone_are_kept_if_there_are_enough() {
        let pair = |waited: f64| Pair { slot: slot(1.0, waited), ratio: Some(1.0), waited, pass: 0 };
        let of =
            |clean, others| keep(&[vec![pair(0.2); others], vec![pair(0.009); clean]].concat(), 10).len();
        assert_eq!([of(7, 4), of(8, 8), of(8, 90), of(0, 90), of(0, 0)], [10, 8, 8, 10, 0]);
    }
}
