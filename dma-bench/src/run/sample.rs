//! [`Sample`]: one measurement of a cell between two samples of the baseline, so that drift cancels out.
//! [`keep`] chooses the samples that count.

/// One measurement of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Operations a second.
    pub rate: f64,
    /// CPU time of each operation, in nanoseconds.
    pub cpu_ns: f64,
    /// Fraction of the time during which threads waited for a CPU: the maximum over this sample and the
    /// samples of the baseline that it is compared with.
    pub run_delay: f64,
    /// Ratio of operations a second to the baseline's.
    pub ratio: Option<f64>,
    pub pass: u32,
}

/// Maximum run delay of an undisturbed sample, as a fraction of the time. It is too small to change the
/// shown figures.
const MAX_UNDISTURBED_DELAY: f64 = 0.01;

impl Sample {
    /// Creates a sample that is not compared with the baseline.
    pub(crate) fn new(rate: f64, cpu_ns: f64, run_delay: f64) -> Self {
        Self { rate, cpu_ns, run_delay, ratio: None, pass: 0 }
    }

    /// Compares a sample with the samples of the baseline before and after it. If only one of these two is
    /// disturbed, it is left out.
    pub(crate) fn between(self, before: Option<Self>, after: Option<Self>) -> Self {
        let both = [before, after].into_iter().flatten();
        let undisturbed: Vec<Self> = both.clone().filter(Self::is_undisturbed).collect();
        let around = if undisturbed.is_empty() { both.collect() } else { undisturbed };
        let run_delay = around.iter().map(|b| b.run_delay).fold(self.run_delay, f64::max);
        // The geometric mean treats a ratio and its reciprocal alike.
        let mean = around.iter().map(|b| b.rate.ln()).sum::<f64>() / around.len() as f64;
        let ratio = (!around.is_empty()).then(|| self.rate / mean.exp()).filter(|r| r.is_finite());
        Self { run_delay, ratio, ..self }
    }

    /// Returns true if threads hardly waited for a CPU during the sample.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.run_delay <= MAX_UNDISTURBED_DELAY
    }
}

/// With at least this number of undisturbed samples, disturbed samples do not count.
const ENOUGH_UNDISTURBED: usize = 8;

/// Returns the undisturbed samples. If these are too few for a verdict, adds disturbed samples up to the
/// number `wanted`. Measured figures do not influence the choice.
pub(crate) fn keep(samples: &[Sample], wanted: usize) -> Vec<Sample> {
    let undisturbed: Vec<Sample> = samples.iter().filter(|s| s.is_undisturbed()).copied().collect();
    if undisturbed.len() >= ENOUGH_UNDISTURBED {
        return undisturbed;
    }
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by_key(|at| !samples[*at].is_undisturbed());
    order.truncate(wanted);
    order.sort_unstable();
    order.into_iter().map(|at| samples[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, run_delay: f64) -> Sample {
        Sample::new(rate, 1.0, run_delay)
    }

    #[test]
    fn drift_cancels_out() {
        // Each sample takes a fifth longer than the one before.
        let between = sample(160.0, 0.0).between(Some(sample(100.0, 0.0)), Some(sample(64.0, 0.0)));
        assert!((between.ratio.unwrap() - 2.0).abs() < 1e-12, "{between:?}");
        assert!(between.is_undisturbed());
    }

    #[test]
    fn a_disturbed_baseline_does_not_count_beside_one_that_was_not() {
        let (good, disturbed) = (Some(sample(100.0, 0.0)), Some(sample(10.0, 0.9)));
        for (before, after) in [(good, disturbed), (disturbed, good), (good, None), (None, good)] {
            let between = sample(200.0, 0.001).between(before, after);
            assert!((between.ratio.unwrap() - 2.0).abs() < 1e-12 && between.is_undisturbed(), "{between:?}");
        }
        assert!(!sample(200.0, 0.0).between(disturbed, disturbed).is_undisturbed());
        assert!(!sample(200.0, 0.5).between(good, good).is_undisturbed());
        assert_eq!(sample(200.0, 0.0).between(None, None).ratio, None);
    }

    #[test]
    fn undisturbed_samples_alone_are_kept_if_there_are_enough() {
        let of = |undisturbed, others| {
            keep(&[vec![sample(1.0, 0.2); others], vec![sample(1.0, 0.009); undisturbed]].concat(), 10).len()
        };
        assert_eq!([of(7, 4), of(8, 8), of(8, 90), of(0, 90), of(0, 0)], [10, 8, 8, 10, 0]);
    }
}
