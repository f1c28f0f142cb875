//! Medians, spreads, and the chance that a difference is noise.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The repetitions of one figure, in the order in which they were measured.
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

/// Returns the median; `None` if there are no samples.
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

/// Splits samples into `parts` consecutive blocks, and returns the median of each. Samples come pass by pass.
/// Those of one pass lie close together in time, so for slow drift they count as one independent sample.
pub(crate) fn blocks(samples: &[f64], parts: usize) -> Vec<f64> {
    let parts = parts.max(1);
    let upto = |part: usize| samples.len() * part / parts;
    (0..parts).filter_map(|part| median(&samples[upto(part)..upto(part + 1)])).collect()
}

/// Returns the chance that samples of the same source differ in rank as much as these: the two-sided, exact
/// Mann-Whitney test, with ties. Returns 1 if either side is empty. The time grows with the fourth power of
/// the number of samples, so it is meant for dozens.
pub(crate) fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if few.is_empty() {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> =
        few.iter().map(|v| (*v, true)).chain(many.iter().map(|v| (*v, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    // Ranks are doubled so that those of ties, which share theirs, are whole numbers.
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

/// Returns, for each sum, the number of ways to choose `n` of the ranks that add up to it.
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

/// Returns the smallest chance that [`mann_whitney`] can return for `n` and `m` samples: every sample of one
/// side is greater than all of the other.
pub(crate) fn attainable(n: usize, m: usize) -> f64 {
    let ways: f64 = (1..=n).map(|i| (m + i) as f64 / i as f64).product();
    (2.0 / ways).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let figures = Figures::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((figures.min, figures.median, figures.max), (1.0, 2.0, 3.0));
        let figures = Figures::of((1..=9).rev().map(f64::from).collect()).unwrap();
        assert_eq!(figures.quartiles(), (3.0, 7.0));
        let twice = Figures::of(vec![3.0, 1.0, 2.0]).unwrap().times(2.0);
        assert_eq!(twice, Figures { min: 2.0, median: 4.0, max: 6.0, samples: vec![6.0, 2.0, 4.0] });
    }

    /// Brute force: every way to choose the ranks of the first side.
    fn oracle(a: &[f64], b: &[f64]) -> f64 {
        let all: Vec<f64> = a.iter().chain(b).copied().collect();
        let u_of = |chosen: u32| {
            let mut u = 0.0;
            for (i, x) in all.iter().enumerate() {
                for (j, y) in all.iter().enumerate() {
                    if chosen >> i & 1 == 1 && chosen >> j & 1 == 0 {
                        u += if x == y { 0.5 } else { f64::from(x > y) };
                    }
                }
            }
            u
        };
        let middle = (a.len() * b.len()) as f64 / 2.0;
        let seen = (u_of((1 << a.len()) - 1) - middle).abs();
        let ways = (0..1_u32 << all.len()).filter(|w| w.count_ones() as usize == a.len());
        let (mut far, mut total) = (0.0, 0.0);
        for way in ways {
            total += 1.0;
            far += f64::from((u_of(way) - middle).abs() >= seen);
        }
        far / total
    }

    #[test]
    fn the_exact_test_counts_right() {
        for (a, b) in [
            (vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]),
            (vec![1.0, 5.0, 3.0, 9.0], vec![4.0, 2.0, 6.0]),
            (vec![1.0, 2.0, 8.0, 9.0, 3.0], vec![4.0, 5.0, 6.0, 7.0, 10.0]),
            (vec![7.0], vec![1.0, 2.0]),
            // Ties, within the sides and between them.
            (vec![1.0, 1.0, 2.0, 2.0, 3.0, 4.0], vec![3.0, 3.0, 4.0, 5.0, 5.0]),
            (vec![0.0, 0.0, 0.0, 1.0], vec![0.0, 1.0, 1.0, 1.0, 1.0]),
            (vec![5.0; 3], vec![1.0; 4]),
        ] {
            assert!((mann_whitney(&a, &b) - oracle(&a, &b)).abs() < 1e-12, "{a:?} {b:?}");
            assert!((mann_whitney(&b, &a) - oracle(&a, &b)).abs() < 1e-12, "{b:?} {a:?}");
        }
    }

    #[test]
    fn far_apart_is_not_noise_and_equal_is() {
        let low: Vec<f64> = (0..30).map(f64::from).collect();
        let high: Vec<f64> = (100..130).map(f64::from).collect();
        assert!(mann_whitney(&low, &high) < 1e-9);
        assert!(mann_whitney(&low, &low) > 0.9);
        assert_eq!(mann_whitney(&[1.0; 5], &[1.0; 5]), 1.0);
        assert_eq!(mann_whitney(&[], &[1.0]), 1.0);
    }

    #[test]
    fn the_smallest_chance_is_that_of_samples_that_do_not_overlap() {
        for (n, m) in [(1, 1), (3, 3), (5, 5), (2, 9), (12, 12)] {
            let low: Vec<f64> = (0..n).map(f64::from).collect();
            let high: Vec<f64> = (0..m).map(|i| f64::from(i) + 100.0).collect();
            let least = attainable(low.len(), high.len());
            assert!((mann_whitney(&low, &high) / least - 1.0).abs() < 1e-9, "{n} {m}: {least}");
        }
        assert!((attainable(5, 5) - 0.0079).abs() < 1e-4);
        assert_eq!((attainable(0, 5), attainable(1, 1)), (1.0, 1.0));
    }

    #[test]
    fn samples_of_one_pass_are_one() {
        assert_eq!(blocks(&[1.0, 2.0, 3.0, 10.0, 20.0, 30.0], 2), [2.0, 20.0]);
        assert_eq!(blocks(&[1.0, 2.0, 3.0, 4.0, 5.0], 2), [1.5, 4.0], "as the parts share them out");
        assert_eq!(blocks(&[1.0, 2.0], 12), [1.0, 2.0], "parts without a sample do not count");
        assert_eq!(blocks(&[], 12), Vec::<f64>::new());
    }
}
