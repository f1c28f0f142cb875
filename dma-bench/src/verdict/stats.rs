//! Medians, spreads, and the chance that a difference is noise.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The samples of one figure, in the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// The smallest sample.
    pub min: f64,
    /// The median of the samples.
    pub median: f64,
    /// The greatest sample.
    pub max: f64,
    /// All samples.
    pub samples: Vec<f64>,
}

impl Figures {
    /// Summarises samples; `None` if there are none.
    pub fn of(samples: Vec<f64>) -> Option<Self> {
        let median = median(&samples)?;
        let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let max = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { min, median, max, samples })
    }

    /// Returns the lower and the upper quartile.
    pub fn quartiles(&self) -> (f64, f64) {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(self.median);
        (at(last / 4), at(last - last / 4))
    }

    /// Returns the figures multiplied by `by`.
    pub fn times(&self, by: f64) -> Self {
        Self {
            min: self.min * by,
            median: self.median * by,
            max: self.max * by,
            samples: self.samples.iter().map(|s| s * by).collect(),
        }
    }
}

/// Returns the median; `None` without samples.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Splits samples into `parts` consecutive blocks, and returns the median of each. The samples are in the
/// order of passes. Samples of one pass lie close together in time, so that with slow drift they are only one
/// independent sample.
pub(crate) fn blocks(samples: &[f64], parts: usize) -> Vec<f64> {
    let parts = parts.max(1);
    let upto = |part: usize| samples.len() * part / parts;
    (0..parts).filter_map(|part| median(&samples[upto(part)..upto(part + 1)])).collect()
}

/// Returns the chance that two sets of samples from one source differ in rank by this much or more: the
/// two-sided, exact Mann-Whitney test, with ties. Returns 1 if either side is empty. The time grows with the
/// fourth power of the number of samples, so it is suitable for dozens of samples.
pub(crate) fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if few.is_empty() {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> =
        few.iter().map(|v| (*v, true)).chain(many.iter().map(|v| (*v, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    // Ranks are doubled, because tied samples share a mean rank, which may be a half.
    let mut ranks: Vec<usize> = Vec::with_capacity(all.len());
    for tied in all.chunk_by(|x, y| x.0 == y.0) {
        let from = ranks.len();
        ranks.resize(from + tied.len(), 2 * from + tied.len() + 1);
    }
    let seen: usize = ranks.iter().zip(&all).filter(|(_, v)| v.1).map(|(rank, _)| rank).sum();
    let middle = few.len() * (all.len() + 1);
    let ways = rank_sums(&ranks, few.len());
    let far = ways.iter().enumerate().filter(|(sum, _)| sum.abs_diff(middle) >= seen.abs_diff(middle));
    far.map(|(_, ways)| ways).sum::<f64>() / ways.iter().sum::<f64>()
}

/// Returns, for each sum, the number of ways to choose `n` of the ranks with this sum.
fn rank_sums(ranks: &[usize], n: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0_f64; most + 1]; n + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for chosen in (1..=n).rev() {
            let (fewer, row) = ways.split_at_mut(chosen);
            for sum in rank..=most {
                row[0][sum] += fewer[chosen - 1][sum - rank];
            }
        }
    }
    ways.swap_remove(n)
}

/// Returns the smallest chance that [`mann_whitney`] can return for `n` and `m` samples. It returns this
/// chance if every sample of one side is greater than all samples of the other.
pub(crate) fn attainable(n: usize, m: usize) -> f64 {
    let ways: f64 = (1..=n).map(|i| (m + i) as f64 / i as f64).product();
    (2.0 / ways).min(1.0)
}

/// Returns the interval that contains the median of the distribution with a chance of at least 1 - `risk`. It
/// spans from the k-th smallest to the k-th greatest of independent samples, where k follows from the
/// binomial distribution. Returns `None` if there are too few samples.
pub(crate) fn interval(samples: &[f64], risk: f64) -> Option<(f64, f64)> {
    let n = samples.len();
    // `tail` is the chance that at most `k` of n samples lie below the median. It counts twice, for both
    // sides.
    let (mut tail, mut term) = (0.0, 0.5_f64.powi(i32::try_from(n).ok()?));
    let mut outside = 0;
    for k in 0..n {
        tail += term;
        if 2.0 * tail > risk {
            break;
        }
        outside = k + 1;
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    let last = outside.checked_sub(1)?;
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some((sorted[last], sorted[n - 1 - last]))
}

/// Returns the interval for samples in the order of measurement, which may be correlated. The interval from
/// [`interval`] is widened around the median, in logarithms, by the factor by which the mean of an AR(1)
/// process spreads more than the mean of independent samples.
pub(crate) fn interval_in_order(samples: &[f64], risk: f64) -> Option<(f64, f64)> {
    let (low, high) = interval(samples, risk)?;
    let middle = median(samples)?;
    let alike = autocorrelation(samples).clamp(0.0, 0.75);
    let wider = ((1.0 + alike) / (1.0 - alike)).sqrt();
    let widened = |end: f64| middle * (end / middle).powf(wider);
    Some((widened(low), widened(high))).filter(|(low, high)| low.is_finite() && high.is_finite())
}

/// Returns the autocorrelation of ranks at lag 1, corrected for the small number of samples: 0 for
/// independent samples, 1 for equal neighbours.
fn autocorrelation(samples: &[f64]) -> f64 {
    let n = samples.len() as f64;
    let rank = |value: &f64| {
        let below = samples.iter().filter(|other| *other < value).count() as f64;
        let same = samples.iter().filter(|other| *other == value).count() as f64;
        below + (same - 1.0) / 2.0 - (n - 1.0) / 2.0
    };
    let ranks: Vec<f64> = samples.iter().map(rank).collect();
    let all: f64 = ranks.iter().map(|r| r * r).sum();
    if all == 0.0 {
        return 0.0;
    }
    let found = ranks.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / all;
    found + (1.0 + 4.0 * found).max(0.0) / n
}
