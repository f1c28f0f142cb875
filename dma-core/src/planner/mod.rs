//! The planner translates operations, which programs submit, into descriptors, which devices accept.
//!
//! The planner owns the raw queue. It submits descriptors in batches, defers operations that need more than
//! one descriptor, and ends operations when their completions arrive. The layers above the planner keep
//! waiters and operands. These layers are the single-threaded [`Queue`](crate::Queue) and the lanes of
//! [`SharedQueue`](crate::SharedQueue).

mod abandon;
mod admission;
mod answer;
mod backlog;
mod batch;
mod bounce;
pub(crate) mod check;
pub(crate) mod copy_bytes;
mod cursor;
mod device;
mod dispatch;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod inline;
pub(crate) mod operations;
mod outcomes;
mod plain;
pub(crate) mod plan;
pub(crate) mod query;
mod query_steps;
mod reports;
pub(crate) mod retry;
mod rows;
mod split;
pub(crate) mod stall_detector;
pub(crate) mod wait;

use std::fmt;
use std::time::Instant;

use crate::{
    BufferMut, Capabilities, Counters, Descriptor, EngineId, EngineInfo, Outcome, QueueEvents, RawQueue,
};
pub use answer::Answer;
use backlog::Backlog;
pub use batch::Batch;
use bounce::BounceBuffer;
use check::Lists;
use device::Device;
pub use error::{OpError, OpFailure};
use inline::Inline;
pub(crate) use outcomes::{LogEvent, OpState};
use outcomes::{Outcomes, slot_of};
use plain::{BUSY, IDLE};
pub(crate) use plain::{RanAlone, is_plain};
use plan::QueueCaps;
pub use retry::RetryPolicy;
pub use rows::Rows;
use split::Chunk;

/// Memory that a planner allocates for each slot, in bytes.
pub(crate) const SLOT_BYTES: usize =
    size_of::<OpState>() + backlog::PENDING_PER_SLOT * size_of::<Descriptor<'static>>();

/// A new queue has memory for this number of deferred operations, of lists, and of segments in each list, so
/// that a queue that could be opened works at a limit of memory.
pub(crate) const INITIAL_CAPACITY: usize = 4;

pub(crate) struct Planner {
    pub(crate) engine: EngineId,
    pub(crate) backend: &'static str,
    capabilities: Capabilities,
    max_transfer: usize,
    max_segments: usize,
    device: Device,
    backlog: Backlog,
    pub(crate) outcomes: Outcomes,
    /// Executes short operations. Inline execution is allowed only while no operation is open.
    inline: Inline,
    /// [`IDLE`] while no operation is open, no fence is set and there is no executor. The slot of the only
    /// open operation, while that is a copy of [`begin_plain`](Self::begin_plain) that has not been submitted
    /// and has no waiter. Otherwise [`BUSY`].
    alone: u32,
    pub(crate) lists: Lists,
    chunk: Chunk,
    bounce: Option<BounceBuffer>,
    /// Number of chunks that the CPU executed instead of the device.
    cpu_chunks: u64,
    /// True if polls submit pending and deferred work, with a doorbell, as soon as there is room.
    push: bool,
    /// The time since which operations have been waiting to share a doorbell.
    delayed_since: Option<Instant>,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner")
            .field("backend", &self.backend)
            .field("device", &self.device)
            .field("counters", &self.counters())
            .field("pending", &self.backlog.waiting())
            .field("deferred", &self.backlog.deferred.len())
            .finish_non_exhaustive()
    }
}

impl Planner {
    /// Makes a planner for `slots` operations on `raw`. `bounce` is the memory to emulate operations that the
    /// device lacks. The length of `bounce` must be a multiple of 8.
    pub(crate) fn new(
        raw: Box<dyn RawQueue>,
        info: &EngineInfo,
        slots: usize,
        bounce: Option<BufferMut>,
    ) -> Self {
        let inline = Inline::new(&*raw);
        Self {
            engine: raw.engine_id(),
            backend: info.backend,
            capabilities: info.capabilities,
            max_transfer: usize::try_from(info.limits.max_transfer).unwrap_or(usize::MAX),
            max_segments: info.limits.max_segments,
            alone: if inline.exists() { BUSY } else { IDLE },
            inline,
            device: Device::new(raw, info.backend),
            backlog: Backlog::new(slots),
            outcomes: Outcomes::new(slots),
            lists: Lists::with_memory(),
            chunk: Chunk::with_memory(),
            bounce: bounce.map(BounceBuffer::new),
            cpu_chunks: 0,
            push: false,
            delayed_since: None,
        }
    }

    pub(crate) fn caps(&self) -> QueueCaps {
        QueueCaps {
            engine: self.engine,
            capabilities: self.capabilities,
            has_bounce_buffer: self.bounce.is_some(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        if self.is_parents() {
            return Counters::default();
        }
        let mut counters = self.outcomes.counters();
        counters.in_flight = self.open_operations();
        (counters.descriptors, counters.polls) = (self.device.descriptors, self.device.polls);
        let stats = self.device.stats();
        (counters.doorbells, counters.resets) = (stats.doorbells, stats.resets);
        counters
    }

    pub(crate) fn count_full(&mut self) {
        self.outcomes.counters.full += 1;
    }

    /// Counts operations that were accepted, but ended because the queue was closed before they reached the
    /// planner.
    pub(crate) fn count_refused(&mut self, operations: u64) {
        self.outcomes.counters.submitted += operations;
        self.outcomes.counters.aborted += operations;
    }

    /// Returns the number of accepted operations that have not ended.
    pub(crate) fn open_operations(&self) -> u64 {
        self.outcomes.open_operations()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.device.is_closed()
    }

    /// Returns whether the queue belongs to the parent of this forked process.
    #[inline]
    pub(crate) fn is_parents(&self) -> bool {
        self.device.guard.is_parents()
    }

    /// Returns whether the device has work: descriptors whose doorbell has rung are in flight, or operations
    /// are open, and all of them were flushed.
    pub(crate) fn is_at_device(&self) -> bool {
        let flushed = self.push || (self.backlog.waiting() == 0 && self.backlog.deferred.is_empty());
        let is_rung = flushed && !self.device.doorbell_pending();
        self.open_operations() > 0 && (is_rung || self.device.has_work())
    }

    /// Returns the number of reported descriptors and of chunks that the CPU executed.
    pub(crate) fn reported(&self) -> u64 {
        self.device.descriptors - self.device.in_flight as u64 + self.cpu_chunks
    }

    /// Returns the number of polls of the device so far.
    pub(crate) fn polls(&self) -> u64 {
        self.device.polls
    }

    /// Delays operations that are submitted after this call until all earlier operations have completed.
    pub(crate) fn fence(&mut self) {
        // While operations may be executed inline, all earlier operations have completed, so no fence is
        // needed.
        self.backlog.fence = !self.inline.is_allowed();
        self.alone = BUSY;
    }

    /// Allows the short paths again once no operation is open.
    #[inline]
    fn resume_if_idle(&mut self) {
        if self.device.in_flight == 0 && self.alone != IDLE && self.open_operations() == 0 {
            self.resume();
        }
    }

    /// Allows the short paths again. No operation may be open.
    #[inline]
    fn resume(&mut self) {
        self.delayed_since = None;
        if self.inline.exists() {
            self.inline.allow(true);
        } else if !self.backlog.fence {
            self.alone = IDLE;
        }
    }

    /// Makes the planner report the end of the operation in `slot`, which is open, to the layer above.
    pub(crate) fn set_waiter(&mut self, slot: u32) {
        self.outcomes.ops[slot as usize].has_waiter = true;
        if self.alone == slot {
            self.alone = BUSY;
        }
    }

    /// Stops the device. Pending and deferred operations are aborted.
    pub(crate) fn stop(&mut self, ended: &mut Vec<u32>) {
        if self.is_poisoned() {
            return self.report_poisoned();
        }
        if self.is_closed() {
            return;
        }
        self.inline.end();
        self.alone = BUSY;
        self.device.stop(&mut self.outcomes.log_events);
        for descriptor in self.backlog.pending.split_off(self.backlog.submitted) {
            self.outcomes.ops[slot_of(descriptor.token()) as usize].descriptors -= 1;
            self.record_failed(descriptor.token(), Outcome::Aborted, None);
            self.end_if_over(slot_of(descriptor.token()), ended);
        }
        self.backlog.pending.clear();
        self.backlog.submitted = 0;
        while let Some(token) =
            self.backlog.deferred.front().or(self.backlog.queries.first()).map(|s| s.token)
        {
            self.record_failed(token, Outcome::Aborted, None);
            self.end_if_over(slot_of(token), ended);
        }
    }

    /// Calls `act` with the queue's events, if the engine has events and the queue is open.
    pub(crate) fn events<R>(&mut self, act: impl FnOnce(&mut dyn QueueEvents) -> R) -> Option<R> {
        self.device.events(&mut self.outcomes.log_events, act)
    }
}
