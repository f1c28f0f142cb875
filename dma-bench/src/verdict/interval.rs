//! Confidence intervals of a median from order statistics, which assume nothing about the distribution.
//! Autocorrelated samples get wider ones.

/// Returns the interval that contains the median of the distribution with a chance of at least 1 - `risk`:
/// from the k-th smallest to the k-th greatest of independent samples, by the binomial distribution. Returns
/// `None` if there are too few samples.
pub(crate) fn interval(samples: &[f64], risk: f64) -> Option<(f64, f64)> {
    let n = samples.len();
    // Chance that at most `k` of n samples lie below the median. Doubled for both sides.
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

/// Returns the interval for samples in the order of measurement, which may be correlated. It is [`interval`],
/// widened in logarithms by the factor by which the mean of an AR(1) process spreads more than that of
/// independent samples.
pub(crate) fn interval_in_order(samples: &[f64], risk: f64) -> Option<(f64, f64)> {
    let (low, high) = interval(samples, risk)?;
    let middle = crate::stats::median(samples)?;
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
