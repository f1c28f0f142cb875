//! Descriptors, completions and errors of tasks.

use std::fmt;

use super::region::{PeerError, RegionKey, Rights, Segment};
use super::rng;
use super::time::Time;

/// Operation of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Copies the sources to the destinations, in the order given.
    #[default]
    Copy,
    /// Fills the destinations with a pattern.
    Fill {
        /// Repeated from the first destination byte on, lowest byte first.
        pattern: u64,
    },
    /// Copies the source to two destinations of its length. Each is one segment.
    CopyToBoth,
    /// Compares the sources with the destinations, which are read only. The result is the offset of the first
    /// difference, or [`Completion::EQUAL`].
    Compare,
    /// Computes the CRC-32C of the sources, which is the result. The task has no destinations.
    Crc32c {
        /// The CRC-32C of the bytes before, or 0.
        seed: u32,
    },
    /// Copies as [`Operation::Copy`]. The result is the CRC-32C of the sources. If they overlap the
    /// destinations, it is that of unspecified bytes.
    CopyCrc32c {
        /// The CRC-32C of the bytes before, or 0.
        seed: u32,
    },
}

impl Operation {
    /// Returns true if it writes its destinations.
    #[inline]
    pub(super) const fn writes(self) -> bool {
        !matches!(self, Self::Compare | Self::Crc32c { .. })
    }

    #[inline]
    pub(super) const fn has_result(self) -> bool {
        matches!(self, Self::Compare | Self::Crc32c { .. } | Self::CopyCrc32c { .. })
    }

    /// Returns the result for no bytes; 0 without a result.
    #[inline]
    pub(super) const fn initial(self) -> u64 {
        match self {
            Self::Copy | Self::Fill { .. } | Self::CopyToBoth => 0,
            Self::Compare => Completion::EQUAL,
            Self::Crc32c { seed } | Self::CopyCrc32c { seed } => seed as u64,
        }
    }

    /// Returns a wrong result of a task of `len` bytes, as `chance` says.
    pub(super) fn spoiled(self, result: u64, len: u64, chance: u64) -> u64 {
        match (self, result) {
            (Self::Compare, Completion::EQUAL) => rng::scale(rng::mix(!chance), len),
            (Self::Compare, _) => Completion::EQUAL,
            _ => result ^ 1 << (chance >> 8 & 31),
        }
    }

    /// Returns the name in a trace.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Fill { .. } => "fill",
            Self::CopyToBoth => "copy-to-both",
            Self::Compare => "compare",
            Self::Crc32c { .. } => "crc32c",
            Self::CopyCrc32c { .. } => "copy-crc32c",
        }
    }
}

/// A task, as it is submitted.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// Returned with the completion. The model does not use it.
    pub token: u64,
    /// The operation.
    pub operation: Operation,
    /// Sources; empty for a fill.
    pub src: &'a [Segment],
    /// Destinations; the other side of a comparison; empty for a CRC without a copy.
    pub dst: &'a [Segment],
    /// Ordering mark: the task starts only after all earlier ones of its channel ended, and no later one
    /// starts before it.
    pub fence: bool,
    /// The completion need not be reported individually. It becomes visible once a later task of the channel
    /// ends without this mark, or fails. Without one it never does, as on real devices. A failure is reported
    /// at once.
    pub coalesce: bool,
}

impl<'a> Descriptor<'a> {
    /// Describes a copy, without marks.
    #[must_use]
    pub const fn copy(token: u64, src: &'a [Segment], dst: &'a [Segment]) -> Self {
        Self::new(token, Operation::Copy, src, dst)
    }

    /// Describes a fill, without marks.
    #[must_use]
    pub const fn fill(token: u64, pattern: u64, dst: &'a [Segment]) -> Self {
        Self::new(token, Operation::Fill { pattern }, &[], dst)
    }

    /// Describes any operation, without marks.
    #[must_use]
    pub const fn new(token: u64, operation: Operation, src: &'a [Segment], dst: &'a [Segment]) -> Self {
        Self { token, operation, src, dst, fence: false, coalesce: false }
    }

    /// Sets the ordering mark.
    #[must_use]
    pub const fn fenced(self) -> Self {
        Self { fence: true, ..self }
    }

    /// Coalesces the report.
    #[must_use]
    pub const fn coalesced(self) -> Self {
        Self { coalesce: true, ..self }
    }
}

/// Error of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// A segment names no registered region.
    #[error("region {key} is not registered")]
    UnknownRegion {
        /// The key in the segment.
        key: RegionKey,
    },
    /// A segment leaves its region.
    #[error("{len} bytes at {addr:#x} leave region {key}, which is {size} bytes at {base:#x}")]
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
    #[error("region {key} is registered for {granted}; the task needs {needed}")]
    Denied {
        /// The key in the segment.
        key: RegionKey,
        /// The right that is missing.
        needed: Rights,
        /// The rights that there are.
        granted: Rights,
    },
    /// Longer than the device takes.
    #[error("{len} bytes in one task, the device takes {max}; split it")]
    TooLong {
        /// The task's length.
        len: u64,
        /// The device's limit.
        max: u64,
    },
    /// More segments than the operation takes on this device, or too few.
    #[error("{segments} segments on one side of a task, the device takes {min} to {max}")]
    Segments {
        /// Segments on the offending side.
        segments: usize,
        /// The fewest that the operation takes.
        min: usize,
        /// The most that it takes.
        max: usize,
    },
    /// Sources and destinations differ in length, or a fill has sources, or a CRC destinations.
    #[error("{src} bytes of sources for {dst} bytes of destinations")]
    LengthMismatch {
        /// Bytes to read.
        src: u64,
        /// Bytes to write.
        dst: u64,
    },
    /// The task has 0 bytes, which is an error on this device.
    #[error("a task of 0 bytes, which the device does not take")]
    ZeroLength,
    /// The device has no such operation.
    #[error("the device has no such operation")]
    Unsupported,
    /// The peer took the memory back. Some of the bytes may have moved.
    #[error("the peer revoked its memory")]
    Revoked,
    /// The peer that the memory belongs to ended. Some of the bytes may have moved.
    #[error("the peer is gone")]
    PeerGone,
    /// The engine failed. Some of the bytes may have moved.
    #[error("the engine failed")]
    Engine,
}

impl TaskError {
    /// Returns the code, counted from 1, and the name in a trace.
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
    /// It was [stopped](super::Device::stop).
    Stopped,
    /// A task failed, and the device takes the channel down for it.
    TaskFailed,
    /// The device reset the channel, as a fault plan said.
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
    /// Every byte is in place.
    #[default]
    Done,
    /// The task itself failed. The destinations are undefined.
    Failed(TaskError),
    /// The channel was taken down before the task ended, so it may be retried. The destinations are undefined
    /// if [`Completion::touched`].
    Aborted(HaltCause),
}

/// The end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// From the [`Descriptor`].
    pub token: u64,
    /// Result.
    pub status: Status,
    /// Length of the task in bytes.
    pub len: u64,
    /// Result of an [operation](Operation) that has one and is [`Done`](Status::Done); otherwise not
    /// meaningful.
    pub result: u64,
    /// Bytes were written, all or some.
    pub touched: bool,
    /// Time of its doorbell; [`Time::ZERO`] without one.
    pub rung: Time,
    /// Time of its end.
    pub ended: Time,
}

impl Completion {
    /// The result of a comparison that found no difference.
    pub const EQUAL: u64 = u64::MAX;
}

/// Reason why a task was not accepted. Nothing of it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The queue is full: poll completions, then try again.
    #[error("all {depth} places of the channel's queue are taken; poll completions, then try again")]
    Full {
        /// Places in the queue.
        depth: u32,
    },
    /// The device would not take it now, as a fault plan said; trying again may help.
    #[error("the device refused the task; try again")]
    Rejected,
    /// The channel does not run.
    #[error("the channel is down ({0}); restart it")]
    Halted(HaltCause),
    /// The device is gone.
    #[error("the device is gone; open another")]
    DeviceGone,
    /// The task can never work.
    #[error("invalid task: {0}")]
    Invalid(#[source] TaskError),
    /// No open channel has this name.
    #[error("no such channel; it may have been closed")]
    NoSuchChannel,
}
