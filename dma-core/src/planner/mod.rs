//! The planner translates operations, which programs submit, into descriptors, which devices accept.
//!
//! The planner owns the raw queue. It submits descriptors in batches, defers operations that need more than
//! one descriptor, and ends operations when their completions arrive. The layers above the planner keep
//! waiters and operands. These layers are the single-threaded [`Queue`](crate::Queue) and the lanes of
//! [`SharedQueue`](crate::SharedQueue).
#![expect(unsafe_code, reason = "submits checked descriptors to the raw queue")]

mod admission;
mod alone;
mod answer;
mod backlog;
mod batch;
mod bounce;
pub(crate) mod check;
pub(crate) mod copy_bytes;
mod cursor;
mod device;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod inline;
pub(crate) mod operations;
mod outcomes;
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
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{
    BufferMut, Capabilities, Counters, Descriptor, EngineId, EngineInfo, Error, InlineExecutor, Outcome,
    QueueEvents, QueueOptions, RawQueue, guarded,
};
pub(crate) use admission::Begun;
pub(crate) use alone::RanAlone;
use alone::{BUSY, IDLE};
pub use answer::Answer;
use backlog::Backlog;
pub use batch::Batch;
use bounce::BounceBuffer;
use check::Lists;
use device::{CollectsLog, Device, MAX_COMPLETIONS};
pub use error::{OpError, OpFailure};
use inline::{Executed, Inline};
pub(crate) use outcomes::{LogEvent, OpState};
use outcomes::{Outcomes, slot_of};
use plan::QueueCaps;
pub use retry::RetryPolicy;
pub use rows::Rows;
use split::Chunk;

/// Memory that a planner allocates for each slot, in bytes.
pub(crate) const SLOT_BYTES: usize = size_of::<OpState>() + size_of::<Descriptor<'static>>();

/// Maximum number of engine calls of one poll.
const MAX_ROUNDS: usize = 8;

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
            lists: Lists::default(),
            chunk: Chunk::default(),
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
        let mut counters = self.outcomes.counters;
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

    /// Returns the error for a submission, if the queue is closed or belongs to the parent of this process.
    pub(crate) fn refusal(&self) -> Option<Error> {
        let refuses = self.is_parents() || self.is_closed();
        refuses.then(|| self.why_abandoned().unwrap_or_else(error::closed))
    }

    /// Returns the error of a forked process or of a lost device.
    pub(crate) fn why_abandoned(&self) -> Option<Error> {
        if self.is_parents() { Some(error::forked()) } else { self.lost() }
    }

    /// Returns whether the device is lost. The layer above must [`abandon`](Self::abandon) its engine.
    pub(crate) const fn is_lost(&self) -> bool {
        self.device.lost.is_some()
    }

    /// Returns the error of a lost device.
    pub(crate) fn lost(&self) -> Option<Error> {
        self.device.lost.as_ref().map(error::lost)
    }

    /// Returns whether operations are open, and all of them are submitted to the device.
    pub(crate) fn is_at_device(&self) -> bool {
        let flushed = self.push || (self.backlog.waiting() == 0 && self.backlog.deferred.is_empty());
        self.open_operations() > 0 && flushed && !self.device.doorbell_pending
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

    /// Returns whether operations may be executed inline now.
    #[inline]
    pub(crate) const fn allows_inline(&self) -> bool {
        self.inline.is_allowed()
    }

    /// Returns the executor of short operations, if the engine has one and the queue is open.
    pub(crate) fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        self.inline.executor()
    }

    /// Executes an operation in this call, if inline execution is allowed now and `run` finds the operation
    /// valid and short enough.
    #[inline]
    pub(crate) fn execute_inline(
        &mut self,
        run: impl FnOnce(&Inline, &Lists) -> Option<Executed>,
    ) -> Option<u64> {
        if !self.inline.is_allowed() || self.is_poisoned() {
            return None;
        }
        let Executed { result, operations, bytes } =
            self.device.guard.call_executor(|| run(&self.inline, &self.lists))?;
        self.outcomes.count_executed(operations, bytes);
        Some(result)
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

    /// Removes and returns the executor, for a layer above that calls it without this planner.
    pub(crate) fn take_inline(&mut self) -> Inline {
        let none = Inline::none(self.engine);
        std::mem::replace(&mut self.inline, none)
    }

    /// Submits pending descriptors while the device has room.
    pub(crate) fn submit_pending(&mut self, ended: &mut Vec<u32>) {
        if self.is_poisoned() {
            return self.report_poisoned();
        }
        self.submit_while_room(ended);
    }

    /// Submits pending descriptors while the device has room. Returns whether none are left. The engine must
    /// not be poisoned.
    #[inline]
    fn submit_while_room(&mut self, ended: &mut Vec<u32>) -> bool {
        while self.backlog.waiting() > 0 {
            self.alone = BUSY;
            let Self { device, backlog, outcomes, .. } = self;
            // SAFETY: every pending descriptor was checked for this engine, its limits, its regions' bounds
            // and rights, and overlap. A transfer owns the operands. Until the completion, the transfer keeps
            // the operands registered and inaccessible to the program; if the device does not respond, the
            // transfer leaks them.
            let accepted =
                unsafe { device.submit(&backlog.pending[backlog.submitted..], &mut outcomes.log_events) };
            match accepted {
                Ok(0) => {
                    self.backlog.compact();
                    return false;
                }
                Ok(n) => self.backlog.submitted += n,
                Err(error) => self.refuse_first(error, ended),
            }
        }
        self.backlog.pending.clear();
        self.backlog.submitted = 0;
        true
    }

    /// Ends the first pending descriptor that has not been submitted, which the engine has refused.
    #[cold]
    fn refuse_first(&mut self, error: Error, ended: &mut Vec<u32>) {
        let first = &self.backlog.pending[self.backlog.submitted];
        let (token, fence) = (first.token(), first.fence());
        self.backlog.submitted += 1;
        self.backlog.pass_on_fence(fence);
        self.outcomes.ops[slot_of(token) as usize].descriptors -= 1;
        self.refused(token, error);
        self.end_if_over(slot_of(token), ended);
    }

    /// Submits all accepted operations and rings the doorbell. If the device has no room for all of them,
    /// later polls submit the rest.
    #[inline]
    pub(crate) fn flush(&mut self, ended: &mut Vec<u32>) {
        if self.is_poisoned() {
            return self.report_poisoned();
        }
        self.delayed_since = None;
        if self.backlog.waiting() > 0 || !self.backlog.deferred.is_empty() {
            self.push = true;
            self.pump(ended);
        }
        self.device.ring(&mut self.outcomes.log_events);
    }

    /// Returns the longest time for which awaited operations may wait to share a doorbell.
    pub(crate) fn doorbell_delay(&self, options: &QueueOptions) -> Duration {
        if self.capabilities.contains(Capabilities::CPU_COPIES) {
            return Duration::ZERO;
        }
        // If operations waited longer for a doorbell, the device would count as stalled.
        options.doorbell_delay.min(options.stall_timeout / 2)
    }

    /// Flushes if the number of waiting descriptors and deferred operations is at least the number of
    /// descriptors in flight or [`SUBMIT_BATCH`](backlog::SUBMIT_BATCH), or if one of them has waited for
    /// `limit`. If no descriptor is in flight, `idle` decides.
    #[inline]
    pub(crate) fn flush_delayed(
        &mut self,
        idle: impl FnOnce() -> bool,
        limit: Duration,
        ended: &mut Vec<u32>,
    ) {
        let gathered = self.backlog.waiting() + self.backlog.deferred.len();
        if gathered == 0 && !self.device.doorbell_pending {
            return;
        }
        let enough = if self.device.in_flight == 0 { idle() } else { gathered >= self.device.in_flight };
        // If a doorbell is pending, a full batch was submitted already. If `push` is set, polls already
        // submit operations without waiting.
        let due = enough || self.device.doorbell_pending || self.push || limit.is_zero();
        self.alone = BUSY;
        if due || self.delayed_since.get_or_insert_with(Instant::now).elapsed() >= limit {
            self.flush(ended);
        }
    }

    /// Polls the device. Returns the number of reported descriptors and of chunks that the CPU executed.
    /// Appends the slots that have ended and have a waiter to `ended`.
    pub(crate) fn poll(&mut self, ended: &mut Vec<u32>) -> usize {
        if self.is_poisoned() {
            self.report_poisoned();
            return 0;
        }
        let cpu_chunks = self.cpu_chunks;
        if self.push {
            self.pump(ended);
            self.device.ring(&mut self.outcomes.log_events);
        }
        let mut total = 0;
        for _ in 0..MAX_ROUNDS {
            let n = self.poll_once(ended);
            total += n;
            if n < MAX_COMPLETIONS {
                break;
            }
        }
        if total > 0 && self.push {
            self.pump(ended);
            self.device.ring(&mut self.outcomes.log_events);
        }
        if total == 0 && self.device.in_flight > 0 {
            self.device.check_lost(&mut self.outcomes.log_events);
        }
        self.resume_if_idle();
        total + (self.cpu_chunks - cpu_chunks) as usize
    }

    /// Polls the device with one call, and processes its reports. Returns their number.
    #[inline]
    fn poll_once(&mut self, ended: &mut Vec<u32>) -> usize {
        let n = self.device.poll(&mut self.outcomes.log_events);
        self.take_reports(n, ended);
        n
    }

    /// Flushes, and polls until the operation in `slot` has ended, but at most `polls` times. A wait for one
    /// operation takes far fewer instructions with this method than with [`flush`](Self::flush) and
    /// [`poll`](Self::poll), which are called only if operations are deferred.
    pub(crate) fn drive(&mut self, slot: u32, polls: u32, ended: &mut Vec<u32>) {
        let Backlog { deferred, queries, .. } = &self.backlog;
        let is_plain = deferred.is_empty() && queries.is_empty() && !self.push && !self.is_poisoned();
        if !(is_plain && self.submit_while_room(ended)) {
            self.flush(ended);
            for _ in 0..polls {
                if self.outcomes.ops[slot as usize].has_ended() {
                    break;
                }
                self.poll(ended);
            }
            return;
        }
        self.delayed_since = None;
        self.device.ring(&mut self.outcomes.log_events);
        for _ in 0..polls {
            if self.outcomes.ops[slot as usize].has_ended() {
                break;
            }
            self.poll_once(ended);
        }
        self.resume_if_idle();
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

    /// Returns whether the engine has panicked, its device is lost, or it belongs to the parent of this
    /// process. If so, the layer above must [`abandon`](Self::abandon) the engine.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.device.guard.is_poisoned()
    }

    /// Adds a log event for the panic or the fork, once. The layer above logs it. For a lost device, the poll
    /// that detected it has added the event.
    #[cold]
    fn report_poisoned(&mut self) {
        if self.is_parents() {
            if !self.is_closed() {
                self.outcomes.log_events.push(LogEvent::Forked);
            }
        } else if self.device.lost.is_none()
            && !self.outcomes.log_events.iter().any(|event| matches!(event, LogEvent::Panicked))
        {
            self.outcomes.log_events.push(LogEvent::Panicked);
        }
    }

    /// Abandons the device. Operations that have not ended will never end, and their holders leak the
    /// operands.
    pub(crate) fn abandon(&mut self) {
        self.inline.end();
        self.alone = BUSY;
        self.outcomes.counters.abandoned += self.open_operations();
        if self.is_closed() {
            return;
        }
        if !self.device.is_idle() {
            // The device may still write to this memory. Leak it first, because the engine may panic.
            std::mem::forget(self.bounce.take());
            if !self.is_parents() {
                self.outcomes.log_events.push(LogEvent::Abandoned { descriptors: self.device.in_flight });
            }
        }
        self.device.abandon(&mut self.outcomes.log_events);
    }

    /// Abandons the device as [`abandon`](Self::abandon) does, and catches and logs a panic of the engine.
    pub(crate) fn abandon_guarded(&mut self) {
        let mut events = Vec::new();
        let logs = CollectsLog::begin(&mut events);
        guarded("the engine", || self.abandon());
        drop(logs);
        self.outcomes.log_events.append(&mut events);
    }

    /// Calls `act` with the queue's events, if the engine has events and the queue is open.
    pub(crate) fn events<R>(&mut self, act: impl FnOnce(&mut dyn QueueEvents) -> R) -> Option<R> {
        self.device.events(&mut self.outcomes.log_events, act)
    }
}
