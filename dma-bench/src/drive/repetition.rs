//! The duration: how long a repetition is to go on, and what it came to.

use hdrhistogram::Histogram;

/// Result of one repetition on one queue.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Operations that were timed.
    pub ops: u64,
    /// When the first began and the last ended, on the contender's clock, in nanoseconds.
    pub span: (u64, u64),
    /// All operations, the warm-up of a simulated device's included.
    pub all_ops: u64,
    /// Polls, over all operations.
    pub polls: u64,
    /// Doorbells, over all operations.
    pub doorbells: u64,
    /// Comparisons of an operation's bytes.
    pub verified: u64,
    /// The user stopped it before its end.
    pub cut: bool,
}

impl Slice {
    /// The time in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.span.1.saturating_sub(self.span.0).max(1) as f64 / 1e9
    }
}

/// A histogram for latencies in nanoseconds: three digits, no bounds. It is small as long as they are short,
/// so that it does not push out of the caches what is measured.
///
/// # Panics
///
/// Never: the number of digits is a constant, and right.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits")
}

/// Length of one repetition.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Operations before the clock starts.
    pub warm: u64,
    /// Operations that are timed.
    pub ops: u64,
    /// One in so many doorbells is timed.
    pub sample_every: u64,
    /// The number of bytes are spoilt before and compared afterwards, in whole buffers: with [`COMPARE_MUCH`]
    /// one at least.
    pub compare: usize,
    /// The bytes of every operation are compared as soon as it completes, before its buffer is used again:
    /// not for what is timed.
    pub each: bool,
}

/// Operations at a rate instead of as many as go.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Operations a second.
    pub rate: f64,
    /// Operations of each repetition: a run at a rate is one schedule, and is cut into repetitions
    /// afterwards.
    pub each: u64,
}

/// When a repetition of a run at a rate was over.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// On the contender's clock, in nanoseconds.
    pub time: u64,
    /// CPU time of the process by then, in nanoseconds.
    pub cpu: f64,
}

/// Bytes that are compared now and then.
pub const COMPARE_MUCH: usize = 1 << 20;
/// Bytes that are compared in between, so that the time goes into measuring.
pub const COMPARE_LITTLE: usize = 16 << 10;
/// The number of buffers are compared at most.
pub(crate) const COMPARE_OPS: usize = 16;
