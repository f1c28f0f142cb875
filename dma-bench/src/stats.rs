//! Medians, spreads, and the chance that a difference is noise.

use serde::{Deserialize, Serialize};

/// The repetitions of one figure, in the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The least.
    pub min: f64,
    /// The one in the middle.
    pub median: f64,
    /// The greatest.
    pub max: f64,
    /// All of them.
    pub samples: Vec<f64>,
}

impl Figures {
    /// Of the samples; `None` without any.
    #[must_use]
    pub fn of(samples: Vec<f64>) -> Option<Self> {
        let median = median(&samples)?;
        let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let max = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { min, median, max, samples })
    }

    /// What a quarter of the samples is below, and what a quarter is above.
    #[must_use]
    pub fn quartiles(&self) -> (f64, f64) {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(self.median);
        (at(last / 4), at(last - last / 4))
    }

    /// Each multiplied.
    #[must_use]
    pub fn times(&self, by: f64) -> Self {
        Self {
            min: self.min * by,
            median: self.median * by,
            max: self.max * by,
            samples: self.samples.iter().map(|s| s * by).collect(),
        }
    }
}

/// The median; `None` of nothing.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The chance that samples as far apart as these, by their ranks, come from the same source: the two-sided Mann-Whitney test. Exact
/// for small samples without ties, by the normal approximation with correction for ties otherwise. 1 if either is empty.
#[must_use]
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let (n, m) = (a.len(), b.len());
    if n == 0 || m == 0 {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> =
        a.iter().map(|v| (*v, true)).chain(b.iter().map(|v| (*v, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (mut rank_sum, mut ties, mut from) = (0.0, 0.0, 0);
    while from < all.len() {
        let to = from + all[from..].iter().take_while(|v| v.0 == all[from].0).count();
        let rank = (from + to + 1) as f64 / 2.0;
        rank_sum += rank * all[from..to].iter().filter(|v| v.1).count() as f64;
        let tied = (to - from) as f64;
        ties += tied * tied * tied - tied;
        from = to;
    }
    let u = rank_sum - (n * (n + 1)) as f64 / 2.0;
    let (nf, mf) = (n as f64, m as f64);
    if ties == 0.0 && n.max(m) <= 20 {
        return exact(u, n, m);
    }
    let total = nf + mf;
    let variance = nf * mf / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - nf * mf / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * normal_tail(z)).min(1.0)
}

/// Counts the arrangements of `n` and `m` samples by their U.
fn exact(u: f64, n: usize, m: usize) -> f64 {
    // counts[i][u]: arrangements of i of the first with all of the second so far.
    let most = n * m;
    let mut counts = vec![vec![0.0_f64; most + 1]; n + 1];
    for row in &mut counts {
        row[0] = 1.0;
    }
    for j in 1..=m {
        for i in 1..=n {
            // The largest is either of the first (beats all j of the second) or of the second.
            let (before, row) = counts.split_at_mut(i);
            for at in (0..=most).rev() {
                // `row[0]` still holds the count for j - 1.
                let first = if at >= j { before[i - 1][at - j] } else { 0.0 };
                row[0][at] += first;
            }
        }
    }
    let row = &counts[n];
    let total: f64 = row.iter().sum();
    let low = (u.min(most as f64 - u)).floor() as usize;
    let tail: f64 = row[..=low].iter().sum();
    (2.0 * tail / total).min(1.0)
}

/// The chance that a normal variable exceeds `z`, which is not negative. Abramowitz and Stegun, 26.2.17: within 7.5e-8.
fn normal_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let poly = t
        * (0.319_381_530
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * poly
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

    /// The normal approximation with its corrections for continuity and ties, worked out by the textbook's formula elsewhere.
    #[test]
    fn ties_are_corrected_for() {
        let many = |counts: &[(f64, usize)]| -> Vec<f64> {
            counts.iter().flat_map(|(value, count)| std::iter::repeat_n(*value, *count)).collect()
        };
        for (a, b, chance) in [
            (many(&[(0.0, 6), (1.0, 2)]), many(&[(0.0, 2), (1.0, 6)]), 0.0607),
            (many(&[(0.0, 5), (1.0, 2)]), many(&[(0.0, 3), (1.0, 4)]), 0.3338),
            (vec![1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0], vec![3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0], 0.0133),
            (many(&[(1.0, 3), (2.0, 3), (3.0, 1)]), many(&[(2.0, 2), (3.0, 4), (4.0, 1)]), 0.0223),
        ] {
            assert!((mann_whitney(&a, &b) - chance).abs() < 1e-4, "{a:?} {b:?}: {}", mann_whitney(&a, &b));
            assert!((mann_whitney(&b, &a) - chance).abs() < 1e-4, "{a:?} {b:?}");
        }
    }

    /// By brute force: every way to choose which of the ranks are the first's.
    fn oracle(a: &[f64], b: &[f64]) -> f64 {
        let all: Vec<f64> = a.iter().chain(b).copied().collect();
        let u_of = |chosen: u32| {
            let mut u = 0.0;
            for (i, x) in all.iter().enumerate() {
                for (j, y) in all.iter().enumerate() {
                    if chosen >> i & 1 == 1 && chosen >> j & 1 == 0 && x > y {
                        u += 1.0;
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
        assert!((normal_tail(1.959_964) - 0.025).abs() < 1e-6);
    }
}
