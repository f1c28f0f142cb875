//! [`Latency`]: the percentiles of a distribution of latencies.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The distribution of latencies, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Number of operations that were timed.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Longest latency.
    pub max: u64,
}

impl Latency {
    /// Summarises a histogram; `None` if it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        })
    }

    /// Returns the `value` of a `percentile`, such as 0.999, if enough operations were timed that at least
    /// one lies beyond it. With fewer operations, the value would be the longest latency.
    pub fn known(&self, percentile: f64, value: u64) -> Option<u64> {
        (self.count as f64 * (1.0 - percentile) >= 1.0 - 1e-6).then_some(value)
    }
}
