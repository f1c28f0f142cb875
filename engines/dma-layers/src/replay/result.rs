//! [`Replayed`]: the result of a replay.

use std::time::Duration;

/// The result of a replay on an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// Time from opening the first queue to closing the last one.
    pub time: Duration,
    /// CPU time of the copies (see [`CopyTimes::cpu`](super::CopyTimes::cpu)) and of the engine's threads.
    /// The threads of a model do not count, because they represent the device.
    pub cpu: Duration,
    /// Total time that the queues' threads waited for the engine.
    pub wait: Duration,
    /// Doorbells rung, as the engine counts them.
    pub doorbells: u64,
    /// Number of submitted descriptors. It exceeds the number of the trace's operations if some were split.
    pub descriptors: u64,
    /// Descriptors of the timed run that failed or were aborted.
    pub failed: u64,
    /// Descriptors whose bytes and results were checked and correct.
    pub verified: u64,
    /// The first wrong byte or result. If there is one, there were no timed runs.
    pub mismatch: Option<Mismatch>,
}

/// The first wrong byte or result of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The index of the queue in [`Trace::queues`](crate::record::Trace::queues).
    pub queue: usize,
    /// The number of the operation, counted from 0.
    pub operation: u64,
    /// The offset of the byte from the start of the destination. `None` if all bytes are right, but the
    /// result is wrong.
    pub offset: Option<usize>,
}
