//! The content of a trace: the recorded engine, its queues, and their events.

use std::time::Duration;

use dma_core::{CacheHint, Outcome, Place};

/// The recorded engine, and the duration of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// The engine's name.
    pub engine: String,
    /// Time from opening the first queue to closing the last one.
    pub time: Duration,
    /// CPU time of the whole process in that time; 0 in a partial trace, where it is unknown.
    pub cpu: Duration,
    /// True if the program ended before the trace was complete. Then each queue ends with its last complete
    /// event in the file.
    pub partial: bool,
    /// True if the CPU moved the bytes: the engine has [`CPU_COPIES`](dma_core::Capabilities::CPU_COPIES).
    pub cpu_copies: bool,
    /// Lengths of the regions in bytes, by number. Regions that did not exist at the same time may share a
    /// number; then this is the maximum of their lengths.
    pub regions: Vec<u64>,
    /// Places of the regions, by number. Imported memory counts as host memory, and so does all memory of
    /// traces before version 4.
    pub places: Vec<Place>,
}

/// A recorded queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueTrace {
    /// Maximum number of descriptors in flight.
    pub depth: usize,
    /// Cache hint.
    pub hint: CacheHint,
    /// Descriptors accepted.
    pub operations: u64,
    /// Bytes of these descriptors. Each descriptor counts its length once.
    pub bytes: u64,
    /// Doorbells rung, as the engine counted them.
    pub doorbells: u64,
    /// Time from opening the first queue until this queue was open.
    pub opened: Duration,
    /// Time from opening the first queue until this queue was closed.
    pub closed: Duration,
}

/// The kind of an [`Operation`](dma_core::Operation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "those of `Operation`")]
pub enum Kind {
    #[default]
    Copy,
    CopyLists,
    Fill,
    Compare,
    Crc32c,
    CopyCrc32c,
    CopyToBoth,
}

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The region's number.
    pub region: usize,
    /// The offset of the first byte.
    pub offset: usize,
    /// The length in bytes, at least 1.
    pub len: usize,
}

/// An event of a queue. Times are exact to 8 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// Descriptors were submitted in one call. A [`TraceEvent::Operation`] for each of them follows.
    Submit {
        /// Time that the program spent between the previous event and the call.
        before: Duration,
        /// Time that the engine spent in the call.
        call: Duration,
        /// Number of descriptors, at least 1.
        count: u64,
    },
    /// A descriptor. [`Events::src`](super::Events::src) and [`Events::dst`](super::Events::dst) return its
    /// segments.
    Operation {
        /// The kind of operation.
        kind: Kind,
        /// True if the descriptor carries a fence.
        fence: bool,
        /// Number of bytes of each side.
        len: usize,
    },
    /// The doorbell was rung.
    Flush {
        /// Time that the program spent between the previous event and the call.
        before: Duration,
        /// Time that the engine spent in the call.
        call: Duration,
    },
    /// One or more polls in a row that reported nothing. The next event is another call.
    Poll {
        /// Time from the end of the previous event to the first of these polls.
        time: Duration,
    },
    /// Descriptors were reported by a poll.
    Ended {
        /// Time from the end of the previous event to the first poll: the program's own time.
        before: Duration,
        /// Time from this poll to the report: the program waited for the engine.
        wait: Duration,
        /// Number of descriptors, at least 1.
        count: u64,
        /// Number of older descriptors that are still in flight.
        older: u64,
        /// The outcome. The kind of a failure is not recorded: each failure reads as `DeviceFault`.
        outcome: Outcome,
    },
}
