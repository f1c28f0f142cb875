//! Length and result of one repetition.

use hdrhistogram::Histogram;

#[derive(Clone, Debug)]
pub struct Slice {
    /// Operations that were timed.
    pub ops: u64,
    /// Start of the first timed operation and end of the last, in nanoseconds on the contender's clock.
    pub span: (u64, u64),
    /// Completed operations, timed or not.
    pub all_ops: u64,
    /// Polls, those for operations that are not timed included.
    pub polls: u64,
    /// Doorbells, those for operations that are not timed included.
    pub doorbells: u64,
    pub verified: u64,
    pub cut: bool,
}

impl Slice {
    /// Returns the length of `span` in seconds.
    pub fn seconds(&self) -> f64 {
        self.span.1.saturating_sub(self.span.0).max(1) as f64 / 1e9
    }
}

/// Returns an empty histogram for latencies in nanoseconds, with three significant digits. It grows with the
/// longest latency, so that it takes little room in the caches while latencies are short.
pub fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits")
}

/// Length of one repetition.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Operations before the clock starts.
    pub warm: u64,
    pub ops: u64,
    /// Of this many doorbells, one is timed.
    pub sample_every: u64,
    /// Bytes to compare after the repetition. Rounded down to whole buffers; at least one buffer from
    /// [`COMPARE_MUCH`] on.
    pub compare: usize,
    /// Compare every operation when it completes, before its buffer is used again. For repetitions whose time
    /// does not count.
    pub each: bool,
}

impl Extent {
    /// Returns the extent of `ops` operations whose time does not count.
    pub fn untimed(ops: u64) -> Self {
        Self { warm: 0, ops, sample_every: 1 << 10, compare: COMPARE_LITTLE, each: false }
    }
}

/// A fixed rate, instead of the greatest possible one.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub rate: f64,
    /// Operations of each repetition. A run at a rate is one schedule, which is cut into repetitions
    /// afterwards.
    pub each: u64,
}

/// The end of a repetition within a run at a rate.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Time on the contender's clock, in nanoseconds.
    pub time: u64,
    /// CPU time of the process up to then, in nanoseconds.
    pub cpu: f64,
}

/// Bytes to compare in the repetitions that are compared thoroughly.
pub const COMPARE_MUCH: usize = 1 << 20;
/// Bytes to compare in all other repetitions, so that comparing takes little of the run's time.
pub const COMPARE_LITTLE: usize = 16 << 10;
/// The most buffers that are compared in a repetition.
pub(crate) const COMPARE_OPS: usize = 16;
