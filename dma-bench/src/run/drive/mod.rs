//! The measuring loop: keeps a queue full, and counts, times and verifies operations.
//!
//! The loop drives the raw queue, so that the engine is measured without the safe API. Each of the `depth`
//! places has its own buffers, so operations in flight never overlap.

mod buffers;
mod channel;
mod checks;
mod free;
mod places;
mod progress;
#[cfg(test)]
mod tests;
mod timer;
mod worker;

use dma::ErrorKind;
use hdrhistogram::Histogram;

pub(crate) use self::checks::MAX_COMPARED_OPS;
pub use self::checks::{COMPARE_LITTLE, COMPARE_MUCH};
pub use self::worker::Worker;
use crate::run::memory::Difference;

/// Maximum number of bytes that are moved between two checks for an interrupt.
pub(crate) const BYTES_PER_CHECK: u64 = 64 << 20;

/// Extent of one sample.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Operations before the clock starts.
    pub warm: u64,
    /// Operations that are timed.
    pub ops: u64,
    /// Number of doorbells per timed doorbell.
    pub timed_every: u64,
    /// Bytes to compare after the sample, rounded down to whole buffers. From [`COMPARE_MUCH`] on, at least
    /// one buffer is compared.
    pub compare: usize,
    /// Compare every operation when it completes, before its buffer is used again. Only for untimed samples.
    pub compare_each: bool,
}

impl Extent {
    /// Returns the extent of an untimed sample of `ops` operations.
    pub fn untimed(ops: u64) -> Self {
        Self { warm: 0, ops, timed_every: 1 << 10, compare: COMPARE_LITTLE, compare_each: false }
    }
}

/// A fixed rate, instead of running as fast as possible.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub ops_per_second: f64,
    /// Operations of each sample. A cell at a rate has one schedule, which is divided into samples
    /// afterwards.
    pub ops_per_sample: u64,
}

/// The end of a sample at a rate.
#[derive(Clone, Copy, Debug)]
pub struct SampleEnd {
    /// Time on the contender's clock, in nanoseconds.
    pub time: u64,
    /// CPU time of the process up to this time, in nanoseconds.
    pub cpu: f64,
}

/// Counts of one queue in one sample.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Timed operations.
    pub ops: u64,
    /// Start of the first timed operation and end of the last, in nanoseconds on the contender's clock.
    pub span: (u64, u64),
    /// Completed operations, timed or not.
    pub all_ops: u64,
    /// Polls, including those for operations that are not timed.
    pub polls: u64,
    /// Doorbells, including those for operations that are not timed.
    pub doorbells: u64,
    /// Operations that were verified.
    pub verified: u64,
    /// True if the user stopped the sample before its end.
    pub interrupted: bool,
}

impl Counts {
    /// Returns the length of `span` in seconds.
    pub fn seconds(&self) -> f64 {
        self.span.1.saturating_sub(self.span.0).max(1) as f64 / 1e9
    }
}

/// Returns an empty histogram for latencies in nanoseconds, with three significant digits. The histogram
/// grows with the longest latency, so that it occupies little cache while latencies are short.
pub fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits")
}

/// The reason why a cell has no figures, or fewer than requested.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CellError {
    /// The engine lacks the operation, or its limits exclude the cell.
    #[error("not possible: {0}")]
    Unsupported(String),
    /// The engine refused or failed an operation.
    #[error("{0}")]
    Failed(String),
    /// A destination has a wrong byte.
    #[error("WRONG BYTES: operation of {size} B at {at:#x}: first difference at offset {}: {:#04x} instead of {:#04x}", .difference.offset, .difference.found, .difference.expected)]
    WrongBytes {
        /// Position of the operation in the destination's memory, in bytes.
        at: usize,
        size: usize,
        /// The first difference. Its offset counts from the start of the operation.
        difference: Difference,
    },
    /// A completion has a wrong result.
    #[error("WRONG RESULT: operation of {size} B at {at:#x}: {found:#x} instead of {expected:#x}")]
    WrongResult {
        /// Position of the operation in the source's memory, in bytes.
        at: usize,
        size: usize,
        expected: u64,
        found: u64,
    },
}

impl From<dma::Error> for CellError {
    fn from(error: dma::Error) -> Self {
        if error.kind() == ErrorKind::Unsupported {
            Self::Unsupported(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }
}
