//! Tasks after submission: their operations, errors and reports.

use std::fmt;

use dma_core::{Completion, RegionKey};
use dma_process::count;

use super::region::{KeyName, PeerError, Rights};
use super::rng;
use super::time::Time;

/// An [`Operation`](dma_core::Operation) without its segments. A task stores the segments in translated form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TaskKind {
    #[default]
    Copy,
    /// A fill with the pattern, repeated from the first destination byte on, lowest byte first.
    Fill(u64),
    CopyToBoth,
    Compare,
    /// Continues a CRC-32C of preceding bytes.
    Crc32c(u32),
    /// Does the same as `Crc32c`, for the sources of a copy.
    CopyCrc32c(u32),
}

impl TaskKind {
    /// Returns true if the task writes its destinations.
    #[inline]
    pub(super) const fn writes(self) -> bool {
        !matches!(self, Self::Compare | Self::Crc32c(_))
    }

    #[inline]
    pub(super) const fn has_result(self) -> bool {
        matches!(self, Self::Compare | Self::Crc32c(_) | Self::CopyCrc32c(_))
    }

    /// Returns the result for 0 bytes; 0 for operations without a result.
    #[inline]
    pub(super) const fn initial(self) -> u64 {
        match self {
            Self::Copy | Self::Fill(_) | Self::CopyToBoth => 0,
            Self::Compare => Completion::EQUAL,
            Self::Crc32c(seed) | Self::CopyCrc32c(seed) => seed as u64,
        }
    }

    /// Returns a wrong result, selected by `chance`, for a task of `len` bytes.
    pub(super) fn corrupted_result(self, result: u64, len: u64, chance: u64) -> u64 {
        match (self, result) {
            (Self::Compare, Completion::EQUAL) => rng::scale(rng::mix(!chance), len),
            (Self::Compare, _) => Completion::EQUAL,
            _ => result ^ 1 << (chance >> 8 & 31),
        }
    }

    /// Returns the operation's name in a trace.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Fill(_) => "fill",
            Self::CopyToBoth => "copy-to-both",
            Self::Compare => "compare",
            Self::Crc32c(_) => "crc32c",
            Self::CopyCrc32c(_) => "copy-crc32c",
        }
    }
}

/// Error of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// A segment's region is not registered.
    #[error("region {} is not registered", KeyName(*.key))]
    UnknownRegion {
        /// The key in the segment.
        key: RegionKey,
    },
    /// A segment exceeds its region.
    #[error("beyond region {}, which has {} at {base:#x}: {} at {addr:#x}", KeyName(*.key), count(*size, "byte", "bytes"), count(*len, "byte", "bytes"))]
    OutOfRange {
        /// The key in the segment.
        key: RegionKey,
        /// The segment's first address.
        addr: u64,
        /// The segment's length.
        len: u64,
        /// The region's first address.
        base: u64,
        /// The region's length.
        size: u64,
    },
    /// The region was not registered for this use.
    #[error("region {} is registered for {granted}; the task needs {needed}", KeyName(*.key))]
    Denied {
        /// The key in the segment.
        key: RegionKey,
        /// The right that is missing.
        needed: Rights,
        /// The rights of the region.
        granted: Rights,
    },
    /// The task is longer than the device's limit.
    #[error("a task of {len} bytes exceeds the device's maximum of {max}; split it")]
    TooLong {
        /// The task's length.
        len: u64,
        /// The device's limit.
        max: u64,
    },
    /// The task has no segments on one side, or more than the device's limit.
    #[error("{} on one side of a task; the device supports 1 to {max}", count(*segments as u64, "segment", "segments"))]
    Segments {
        /// Number of segments on the offending side.
        segments: usize,
        /// The device's limit.
        max: usize,
    },
    /// Sources and destinations differ in length.
    #[error("sources of {} for destinations of {}", count(*src, "byte", "bytes"), count(*dst, "byte", "bytes"))]
    LengthMismatch {
        /// Bytes to read.
        src: u64,
        /// Bytes to write.
        dst: u64,
    },
    /// The task has 0 bytes, which is an error on this device.
    #[error("the device does not support tasks of 0 bytes")]
    ZeroLength,
    /// The device has no such operation.
    #[error("the device has no such operation")]
    Unsupported,
    /// The peer revoked the memory. Some of the bytes may have moved.
    #[error("the peer revoked its memory")]
    Revoked,
    /// The peer that owns the memory has ended. Some of the bytes may have moved.
    #[error("the peer is gone")]
    PeerGone,
    /// The engine failed. Some of the bytes may have moved.
    #[error("the engine failed")]
    Engine,
}

impl TaskError {
    /// Returns the error's code, counted from 1, and its name in a trace.
    pub(crate) const fn code(self) -> (i32, &'static str) {
        match self {
            Self::UnknownRegion { .. } => (1, "unknown-region"),
            Self::OutOfRange { .. } => (2, "out-of-range"),
            Self::Denied { .. } => (3, "denied"),
            Self::TooLong { .. } => (4, "too-long"),
            Self::Segments { .. } => (5, "segments"),
            Self::LengthMismatch { .. } => (6, "length-mismatch"),
            Self::ZeroLength => (7, "zero-length"),
            Self::Unsupported => (8, "unsupported"),
            Self::Revoked => (9, "revoked"),
            Self::PeerGone => (10, "peer-gone"),
            Self::Engine => (11, "engine"),
        }
    }
}

impl From<PeerError> for TaskError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Revoked => Self::Revoked,
            PeerError::Gone => Self::PeerGone,
        }
    }
}

/// Reason why a channel is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HaltCause {
    /// The channel was [stopped](super::Device::stop).
    Stopped,
    /// A task failed, and on this device a failure takes the channel down.
    TaskFailed,
    /// The device reset the channel because of a fault plan.
    Reset,
    /// The device is gone: the channel will not run again.
    DeviceGone,
}

impl fmt::Display for HaltCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "stopped",
            Self::TaskFailed => "task-failed",
            Self::Reset => "reset",
            Self::DeviceGone => "device-gone",
        })
    }
}

/// Result of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// The task is done, and every byte is in place.
    #[default]
    Done,
    /// The task itself failed. The destinations are undefined.
    Failed(TaskError),
    /// The channel was taken down before the task ended, so the task may be retried. The destinations are
    /// undefined if [`TaskReport::touched`] is true.
    Aborted(HaltCause),
}

/// The report of an ended task. Unlike a [`Completion`], it contains the cause and the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskReport {
    /// Token of the [`Descriptor`](dma_core::Descriptor).
    pub token: u64,
    /// Status of the task.
    pub status: Status,
    /// Length of the task in bytes.
    pub len: u64,
    /// Result of the [operation](dma_core::Operation), if it has a result and is [`Done`](Status::Done);
    /// otherwise not meaningful.
    pub result: u64,
    /// True if some or all bytes were written.
    pub touched: bool,
    /// Time of the task's doorbell; [`Time::ZERO`] if no doorbell released the task.
    pub rung: Time,
    /// Time of the task's end.
    pub ended: Time,
}

/// Reason why a task was not accepted. Except for its counters, the channel is then unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The queue is full: poll completions, then try again.
    #[error("all {depth} slots of the channel's queue are occupied; poll completions, then try again")]
    Full {
        /// Number of slots in the queue.
        depth: u32,
    },
    /// The device refused the task because of a fault plan. A retry may succeed.
    #[error("the device refused the task")]
    Rejected,
    /// The channel does not run.
    #[error("the channel is down ({0}); restart it")]
    Halted(HaltCause),
    /// The device is gone.
    #[error("the device is gone")]
    DeviceGone,
    /// The task is invalid, and can never be accepted.
    #[error("invalid task: {0}")]
    Invalid(#[source] TaskError),
    /// No open channel has this identifier.
    #[error("no such channel; it may have been closed")]
    NoSuchChannel,
}
