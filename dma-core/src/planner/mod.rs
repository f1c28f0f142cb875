//! The planner translates operations, which programs submit, into descriptors, which devices accept.
//!
//! The planner owns the raw queue. It submits descriptors in batches, defers operations that need more than
//! one descriptor, and ends operations when their completions arrive. The layers above the planner keep
//! waiters and operands. These layers are the single-threaded [`Queue`](crate::Queue) and the lanes of
//! [`SharedQueue`](crate::SharedQueue).
#![expect(unsafe_code, reason = "submits checked descriptors to the raw queue")]

mod answer;
mod batch;
pub(crate) mod check;
pub(crate) mod copy_bytes;
mod cursor;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod inline;
pub(crate) mod operations;
pub(crate) mod plan;
pub(crate) mod query;
pub(crate) mod retry;
mod rows;
pub(crate) mod slow_path;
mod split;
pub(crate) mod stall_detector;
pub(crate) mod wait;

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::memory::operand::sealed::Operand;
use crate::memory::region::Range;
use crate::{
    BufferMut, Capabilities, Completion, Counters, Descriptor, EngineId, EngineInfo, Error, NativeError,
    Outcome, QueueEvents, QueueOptions, RawQueue, Segment, guarded,
};
pub use answer::Answer;
pub use batch::Batch;
use check::Lists;
use cursor::Cursor;
use dma_process::ForkMark;
use error::Failure;
pub use error::{OpError, OpFailure};
use inline::{Executed, Inline};
use plan::{Plan, QueueCaps};
use query::{QueryProgress, Step};
pub use retry::RetryPolicy;
pub use rows::Rows;
use split::{Chunk, DeferredOp, Fence, OpKind};

/// Memory that a planner allocates for each slot, in bytes.
pub(crate) const SLOT_BYTES: usize = size_of::<OpState>() + size_of::<Descriptor<'static>>();

/// Number of pending descriptors that are submitted as a full batch, without waiting for a flush.
const SUBMIT_BATCH: usize = 32;
/// Maximum number of completions of one engine call.
const MAX_COMPLETIONS: usize = 128;
/// Maximum number of engine calls of one poll.
const MAX_ROUNDS: usize = 8;

/// The state of one operation or batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpState {
    /// Number of submitted or pending descriptors that have not been reported.
    descriptors: u32,
    /// Number of deferred operations that have not been split completely.
    deferred: u32,
    /// Number of operations: more than 1 for a batch.
    operations: u32,
    phase: Phase,
    /// True if the planner must report the end of the operation to the layer above.
    pub(crate) has_waiter: bool,
    /// The worst outcome of the descriptors so far.
    pub(crate) outcome: Outcome,
    /// True for an operation with a result.
    pub(crate) answers: bool,
    pub(crate) result: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Open, with exactly one descriptor from [`Planner::push_plain`], and without a failure.
    Plain,
    /// Ended with `outcome`.
    Ended,
}

impl OpState {
    const IDLE: Self = Self {
        descriptors: 0,
        deferred: 0,
        operations: 0,
        phase: Phase::Ended,
        has_waiter: false,
        outcome: Outcome::Done,
        answers: false,
        result: 0,
        bytes: 0,
    };

    const PLAIN: Self = Self { descriptors: 1, operations: 1, phase: Phase::Plain, ..Self::IDLE };

    /// Returns true for an operation that has ended, and for an idle slot.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }
}

/// A log event. The event is logged later, without a borrow or a lock, because a log subscriber may panic or
/// use the queue.
#[derive(Debug)]
pub(crate) enum LogEvent {
    /// A descriptor was refused or has failed.
    Failed { slot: u32, outcome: Outcome, native: Option<NativeError> },
    /// The device was abandoned with this many descriptors in flight.
    Abandoned { descriptors: usize },
    /// The engine panicked.
    Panicked,
    /// The queue belongs to the parent of this forked process.
    Forked,
}

impl LogEvent {
    /// Logs the event with `tracing`, and catches a panic of the program's log subscriber.
    pub(crate) fn emit(self, backend: &'static str) {
        guarded("the log", || match self {
            Self::Failed { slot, outcome, native } => {
                tracing::warn!(backend, slot, ?outcome, ?native, "operation failed");
            }
            Self::Abandoned { descriptors } => tracing::error!(
                backend,
                descriptors,
                "the device did not respond; its queue and the memory that it may write are leaked"
            ),
            Self::Panicked => tracing::error!(backend, "an engine panicked; its queue is abandoned"),
            Self::Forked => tracing::warn!(
                backend,
                "the queue belongs to the parent of this forked process; the copies in flight end here"
            ),
        });
    }
}

/// Returns the token of the descriptors of operation `index` in `slot`.
const fn token(slot: u32, index: u32) -> u64 {
    (slot as u64) | (index as u64 * ONE_INDEX)
}

/// The difference between the tokens of consecutive indices.
const ONE_INDEX: u64 = 1 << 32;

const fn slot_of(token: u64) -> u32 {
    (token & 0xffff_ffff) as u32
}

const fn index_of(token: u64) -> u32 {
    (token >> 32) as u32
}

/// Returns the range of keys in [`Planner::failures`] that belong to `slot`.
const fn of_slot(slot: u32) -> RangeInclusive<(u32, u32)> {
    (slot, 0)..=(slot, u32::MAX)
}

/// Memory to emulate operations that the device lacks.
struct BounceBuffer {
    buffer: BufferMut,
    used_for: ScratchUse,
}

/// The result of advancing a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advance {
    /// The query waits for its descriptors, or for the CPU to compute its result.
    Waits,
    /// The device has no room for the query's next descriptor.
    NoRoom,
    /// The query has ended, and was removed.
    Ended,
}

/// The current purpose of the bounce buffer, which changes only while nothing is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScratchUse {
    /// The buffer repeats this pattern, and fills are copied from it.
    Pattern([u8; 8]),
    /// The operands of the operation in this slot are copied to the buffer, for the CPU to read.
    Operands(u32),
}

pub(crate) struct Planner {
    /// The raw queue; `None` after the close.
    raw: Option<Box<dyn RawQueue>>,
    /// The process that opened the queue.
    process: ForkMark,
    pub(crate) engine: EngineId,
    pub(crate) backend: &'static str,
    /// Executes short operations. Inline execution is allowed only while no operation is open.
    inline: Inline,
    capabilities: Capabilities,
    max_transfer: usize,
    max_segments: usize,
    pub(crate) ops: Box<[OpState]>,
    /// Failures, by slot and by index in the batch.
    failures: BTreeMap<(u32, u32), Failure>,
    /// Descriptors that are submitted unchanged. The first `submitted` descriptors have been submitted.
    pending: Vec<Descriptor<'static>>,
    submitted: usize,
    /// Operations that are submitted in chunks, after all pending descriptors.
    deferred: VecDeque<DeferredOp>,
    /// Operations with results that have begun and have more steps. Other operations are in flight at the
    /// same time.
    queries: Vec<DeferredOp>,
    /// True if a fence was submitted, and descriptors have been in flight at all times since then.
    fence_in_flight: bool,
    chunk: Chunk,
    pub(crate) lists: Lists,
    /// Number of descriptors in flight.
    in_flight: usize,
    /// True if the next operation gets a fence.
    fence: bool,
    /// True if the device has descriptors without a doorbell.
    doorbell_pending: bool,
    /// True if polls submit pending and deferred work, with a doorbell, as soon as there is room.
    push: bool,
    /// The time since which operations have been waiting to share a doorbell.
    delayed_since: Option<Instant>,
    /// True during a call into the engine. If it is true at the start of a method, the engine has panicked.
    /// The engine's state is then unknown, so it is not called again.
    in_engine_call: bool,
    /// True after the device was stopped, because the queue is closing.
    stopped: bool,
    bounce: Option<BounceBuffer>,
    /// Number of chunks that the CPU executed instead of the device.
    cpu_chunks: u64,
    counters: Counters,
    /// Events that the layer above logs.
    pub(crate) log_events: Vec<LogEvent>,
    reports: Box<[Completion; MAX_COMPLETIONS]>,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner")
            .field("backend", &self.backend)
            .field("raw", &self.raw)
            .field("counters", &self.counters())
            .field("pending", &(self.pending.len() - self.submitted))
            .field("staged", &self.deferred.len())
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
        Self {
            engine: raw.engine_id(),
            inline: Inline::new(&*raw),
            raw: Some(raw),
            process: ForkMark::new(),
            backend: info.backend,
            capabilities: info.capabilities,
            max_transfer: usize::try_from(info.limits.max_transfer).unwrap_or(usize::MAX),
            max_segments: info.limits.max_segments,
            ops: vec![OpState::IDLE; slots].into(),
            failures: BTreeMap::new(),
            pending: Vec::with_capacity(slots.clamp(SUBMIT_BATCH, 1024)),
            submitted: 0,
            deferred: VecDeque::new(),
            queries: Vec::new(),
            fence_in_flight: false,
            chunk: Chunk::default(),
            lists: Lists::default(),
            in_flight: 0,
            fence: false,
            doorbell_pending: false,
            push: false,
            delayed_since: None,
            in_engine_call: false,
            stopped: false,
            bounce: bounce.map(|mut buffer| {
                buffer.fill(0);
                BounceBuffer { buffer, used_for: ScratchUse::Pattern([0; 8]) }
            }),
            cpu_chunks: 0,
            counters: Counters::default(),
            log_events: Vec::new(),
            reports: Box::new([Completion::done(0); MAX_COMPLETIONS]),
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
        let mut counters = self.counters;
        counters.in_flight = self.open_operations();
        if let Some(raw) = &self.raw {
            let stats = raw.stats();
            counters.doorbells = stats.doorbells;
            counters.resets = stats.resets;
        }
        counters
    }

    pub(crate) fn count_full(&mut self) {
        self.counters.full += 1;
    }

    /// Counts operations that were accepted, but ended because the queue was closed before they reached the
    /// planner.
    pub(crate) fn count_refused(&mut self, operations: u64) {
        self.counters.submitted += operations;
        self.counters.aborted += operations;
    }

    /// Returns the number of accepted operations that have not ended.
    pub(crate) fn open_operations(&self) -> u64 {
        let Counters { submitted, completed, failed, aborted, abandoned, .. } = self.counters;
        submitted - completed - failed - aborted - abandoned
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.raw.is_none()
    }

    /// Returns whether the queue belongs to the parent of this forked process.
    #[inline]
    pub(crate) fn is_parents(&self) -> bool {
        self.process.is_child()
    }

    /// Returns the error for a submission, if the queue is closed or belongs to the parent of this process.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if self.is_parents() { Some(error::forked()) } else { self.is_closed().then(error::closed) }
    }

    /// Returns whether operations are open, and all of them are submitted to the device.
    pub(crate) fn is_at_device(&self) -> bool {
        let flushed = self.push || (self.submitted == self.pending.len() && self.deferred.is_empty());
        self.open_operations() > 0 && flushed && !self.doorbell_pending
    }

    /// Returns the number of reported descriptors and of chunks that the CPU executed.
    pub(crate) fn reported(&self) -> u64 {
        self.counters.descriptors - self.in_flight as u64 + self.cpu_chunks
    }

    /// Returns the number of polls of the device so far.
    pub(crate) fn polls(&self) -> u64 {
        self.counters.polls
    }

    /// Delays operations that are submitted after this call until all earlier operations have completed.
    pub(crate) fn fence(&mut self) {
        // While operations may be executed inline, all earlier operations have completed, so no fence is
        // needed.
        self.fence = !self.inline.is_allowed();
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
        self.in_engine_call = true;
        let executed = run(&self.inline, &self.lists);
        self.in_engine_call = false;
        let Executed { result, operations, bytes } = executed?;
        self.counters.submitted += operations;
        self.counters.completed += operations;
        // The sum saturates, because repeated windows may exceed the size of the address space.
        self.counters.bytes = self.counters.bytes.saturating_add(bytes as u64);
        Some(result)
    }

    /// Allows inline operations again once no operation is open.
    #[inline]
    fn resume_inline(&mut self) {
        if self.inline.exists() && self.open_operations() == 0 {
            self.inline.allow(true);
        }
    }

    /// Removes and returns the executor, for a layer above that calls it without this planner.
    pub(crate) fn take_inline(&mut self) -> Inline {
        let none = Inline::none(self.engine);
        std::mem::replace(&mut self.inline, none)
    }

    /// Begins `operations` operations with `bytes` in total in `slot`, which must be idle. The operations are
    /// not submitted to the device before [`Admission::commit`] and [`pushed`](Self::pushed).
    #[inline]
    pub(crate) fn admit(
        &mut self,
        slot: u32,
        operations: u32,
        bytes: u64,
        has_waiter: bool,
    ) -> Admission<'_> {
        self.ops[slot as usize] =
            OpState { operations, bytes, phase: Phase::Open, has_waiter, ..OpState::IDLE };
        let (pending, deferred, fence) = (self.pending.len(), self.deferred.len(), self.fence);
        Admission { planner: self, slot, pending, deferred, fence }
    }

    /// Returns whether a copy of one range to another range can become a pending descriptor now. If not,
    /// pending descriptors must be [submitted](Self::submit_pending) first, or the copy must be deferred, or
    /// it is invalid.
    #[inline]
    pub(crate) fn takes_plain<D: Operand>(&self, src: &Range, dst: &Range) -> bool {
        check::is_plain::<D>(self.engine, src, dst, self.max_transfer)
            && !self.fence
            && self.deferred.is_empty()
            && !self.has_full_batch()
            && !self.is_parents()
    }

    /// Returns whether a copy of `len` bytes that has passed all checks can become a pending descriptor now.
    /// `len` must be at least 1.
    #[inline]
    pub(crate) fn takes_checked(&self, len: usize) -> bool {
        len <= self.max_transfer && !self.fence && self.deferred.is_empty()
    }

    /// Returns whether enough descriptors are pending for [`submit_pending`](Self::submit_pending).
    #[inline]
    pub(crate) fn has_full_batch(&self) -> bool {
        self.pending.len() - self.submitted >= SUBMIT_BATCH
    }

    /// Begins a copy that [`takes_plain`](Self::takes_plain) has accepted, in `slot`, which must be idle. The
    /// caller must put the operands into a transfer before any other code can run.
    #[inline]
    pub(crate) fn push_plain(&mut self, slot: u32, src: Segment, dst: Segment, has_waiter: bool) {
        self.ops[slot as usize] = OpState { bytes: dst.len as u64, has_waiter, ..OpState::PLAIN };
        self.pending.push(Descriptor::copy(token(slot, 0), src, dst));
        self.inline.allow(false);
        self.counters.submitted += 1;
    }

    /// Submits committed operations if a full batch is pending. The layer above must already hold their
    /// operands.
    #[inline]
    pub(crate) fn pushed(&mut self, slot: u32, ended: &mut Vec<u32>) {
        self.end_if_over(slot, ended);
        if self.has_full_batch() {
            self.submit_pending(ended);
        }
    }

    /// Returns whether an operation with one segment on each side and `len` bytes can become a pending
    /// descriptor.
    #[inline]
    fn submits_at_once(&self, len: usize) -> bool {
        // While a query has more chunks to submit, a fence after the query cannot be passed to the device.
        let fence = self.capabilities.contains(Capabilities::FENCE) && self.queries.is_empty();
        self.deferred.is_empty() && len <= self.max_transfer && (!self.fence || fence)
    }

    /// Adds a pending descriptor, with the next operation's fence.
    #[inline]
    fn push_fenced(&mut self, descriptor: Descriptor<'static>) {
        let fence = std::mem::take(&mut self.fence);
        self.fence_in_flight |= fence;
        self.pending.push(descriptor.with_fence(fence));
    }

    /// Takes the next operation's fence, and returns how the deferred operation must apply it.
    fn next_fence(&mut self) -> Fence {
        if !std::mem::take(&mut self.fence) {
            Fence::Clear
        } else if self.capabilities.contains(Capabilities::FENCE) {
            Fence::Device
        } else {
            Fence::Drain
        }
    }

    /// Adds an operation that is submitted in chunks, with the next operation's fence.
    fn defer(&mut self, token: u64, kind: OpKind, dst: Vec<Segment>) {
        let fence = self.next_fence();
        self.ops[slot_of(token) as usize].deferred += 1;
        self.deferred.push_back(DeferredOp::new(token, fence, kind, dst));
    }

    /// Submits pending descriptors while the device has room.
    pub(crate) fn submit_pending(&mut self, ended: &mut Vec<u32>) {
        if self.is_poisoned() {
            return self.report_poisoned();
        }
        while self.submitted < self.pending.len() {
            let Some(raw) = &mut self.raw else { return };
            self.in_engine_call = true;
            // SAFETY: every pending descriptor was checked for this engine, its limits, its regions' bounds
            // and rights, and overlap. A transfer owns the operands. Until the completion, the transfer keeps
            // the operands registered and inaccessible to the program; if the device does not respond, the
            // transfer leaks them.
            let taken = unsafe { raw.submit(&self.pending[self.submitted..]) };
            self.in_engine_call = false;
            match taken {
                Ok(0) => {
                    // Remove submitted descriptors, so that they do not accumulate while the queue remains
                    // full.
                    if self.submitted >= self.pending.len() / 2 {
                        self.pending.drain(..self.submitted);
                        self.submitted = 0;
                    }
                    return;
                }
                Ok(n) => {
                    self.submitted += n;
                    self.in_flight += n;
                    self.counters.descriptors += n as u64;
                    self.doorbell_pending = true;
                }
                Err(error) => self.refuse_first(error, ended),
            }
        }
        self.pending.clear();
        self.submitted = 0;
    }

    /// Ends the first pending descriptor that has not been submitted, which the engine has refused.
    #[cold]
    fn refuse_first(&mut self, error: Error, ended: &mut Vec<u32>) {
        let (token, fence) = (self.pending[self.submitted].token(), self.pending[self.submitted].fence());
        self.submitted += 1;
        self.pass_on_fence(fence);
        self.ops[slot_of(token) as usize].descriptors -= 1;
        self.refused(token, error);
        self.end_if_over(slot_of(token), ended);
    }

    /// Submits pending and deferred work while the device has room and fences allow it.
    fn pump(&mut self, ended: &mut Vec<u32>) {
        self.submit_pending(ended);
        let mut cpu_chunk = true;
        let mut at = 0;
        while at < self.queries.len() {
            if self.advance_query(at, &mut cpu_chunk, ended) != Advance::Ended {
                at += 1;
            }
        }
        while self.pending.is_empty() {
            let Some(front) = self.deferred.front_mut() else { break };
            let Some(raw) = &mut self.raw else { break };
            if front.fence != Fence::Clear && !self.queries.is_empty() {
                // Some chunks of earlier operations have not been submitted.
                break;
            }
            if front.fence == Fence::Drain && self.in_flight > 0 {
                break;
            }
            if front.as_query().is_some() {
                if self.begin_query(&mut cpu_chunk, ended) {
                    continue;
                }
                break;
            }
            if let (Some(pattern), Some(block)) = (front.block_pattern(), &mut self.bounce)
                && block.used_for != ScratchUse::Pattern(pattern)
            {
                if self.in_flight > 0 || self.queries.iter_mut().any(DeferredOp::needs_bounce) {
                    // A fill with another pattern may still be reading the bounce buffer, or a query uses the
                    // buffer.
                    break;
                }
                block.buffer.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&pattern));
                block.used_for = ScratchUse::Pattern(pattern);
            }
            front.next_chunk(self.max_transfer, self.max_segments, &mut self.chunk);
            let token = front.token;
            let descriptor = self.chunk.descriptor(token).with_fence(front.fence == Fence::Device);
            self.in_engine_call = true;
            // SAFETY: the chunk lies within a checked operation and within the device's limits, and a
            // transfer owns the operands. The bounce buffer that fills read belongs to this planner, and is
            // written only while nothing is in flight.
            let taken = unsafe { raw.submit(&[descriptor]) };
            self.in_engine_call = false;
            match taken {
                Ok(0) => break,
                Ok(_) => {
                    self.in_flight += 1;
                    self.counters.descriptors += 1;
                    self.doorbell_pending = true;
                    self.fence_in_flight |= front.fence == Fence::Device;
                    let op = &mut self.ops[slot_of(token) as usize];
                    op.descriptors += 1;
                    front.advance(&self.chunk);
                    if front.is_exhausted() {
                        op.deferred -= 1;
                        self.drop_deferred(0);
                    }
                }
                Err(error) => {
                    self.refused(token, error);
                    self.end_if_over(slot_of(token), ended);
                }
            }
        }
        if self.pending.is_empty() && self.deferred.is_empty() && self.queries.is_empty() {
            self.push = false;
        }
    }

    /// Begins the query at the front of the deferred operations. Returns false if the query must wait for its
    /// fence, for the bounce buffer, or for room in the device.
    #[cold]
    fn begin_query(&mut self, cpu_chunk: &mut bool, ended: &mut Vec<u32>) -> bool {
        let Some(front) = self.deferred.front_mut() else { return false };
        let (fence, slot, needs_bounce) = (front.fence, slot_of(front.token), front.needs_bounce());
        let Some(query) = front.as_query() else { return false };
        // A query that the CPU executes must wait for its own fence, and for an earlier fence that the device
        // has not passed yet.
        self.fence_in_flight &= self.in_flight > 0;
        if !query.is_native() && (fence == Fence::Device || self.fence_in_flight) && self.in_flight > 0 {
            return false;
        }
        if needs_bounce && let Some(bounce) = &mut self.bounce {
            if self.in_flight > 0 || self.queries.iter_mut().any(DeferredOp::needs_bounce) {
                return false;
            }
            bounce.used_for = ScratchUse::Operands(slot);
        }
        let Some(query) = self.deferred.pop_front() else { return false };
        let at = self.queries.len();
        self.queries.push(query);
        let advance = self.advance_query(at, cpu_chunk, ended);
        if advance == Advance::NoRoom
            && let Some(query) = self.queries.pop()
        {
            self.deferred.push_front(query);
        }
        advance != Advance::NoRoom
    }

    /// Advances the query with index `at`, which has begun, as far as possible. `cpu_chunk` is true if the
    /// CPU may still execute a chunk in this call. One chunk in each poll bounds the poll's time.
    #[cold]
    fn advance_query(&mut self, at: usize, cpu_chunk: &mut bool, ended: &mut Vec<u32>) -> Advance {
        loop {
            let Self { queries, raw: Some(raw), ops, bounce, .. } = self else { return Advance::NoRoom };
            let deferred = &mut queries[at];
            let (token, fence) = (deferred.token, deferred.fence);
            let slot = slot_of(token);
            let op = &mut ops[slot as usize];
            let needs_bounce = deferred.needs_bounce();
            let Some(query) = deferred.as_query() else { return Advance::Ended };
            let block = bounce.as_ref().filter(|_| needs_bounce).map(|bounce| bounce.buffer.0.segment());
            match query.next(token, self.max_transfer, block) {
                Step::Submit(descriptor) => {
                    let fenced = fence == Fence::Device && query.is_native();
                    self.in_engine_call = true;
                    // SAFETY: the chunk lies within a checked operation and within the device's limits, and a
                    // transfer owns the operands. Only this operation uses the bounce buffer.
                    let taken = unsafe { raw.submit(&[descriptor.with_fence(fenced)]) };
                    self.in_engine_call = false;
                    match taken {
                        Ok(0) => return Advance::NoRoom,
                        Ok(_) => {
                            query.record_submitted();
                            deferred.fence = Fence::Clear;
                            op.descriptors += 1;
                            self.in_flight += 1;
                            self.counters.descriptors += 1;
                            self.doorbell_pending = true;
                            self.fence_in_flight |= fenced;
                        }
                        Err(error) => {
                            // `refused` drops the query.
                            self.refused(token, error);
                            self.pass_on_fence(fenced);
                            self.end_if_over(slot, ended);
                            return Advance::Ended;
                        }
                    }
                }
                Step::Settle if op.descriptors > 0 => return Advance::Waits,
                Step::Settle => {
                    let by_cpu = !query.is_native();
                    if by_cpu && !std::mem::take(cpu_chunk) {
                        return Advance::Waits;
                    }
                    // SAFETY: no descriptor of the operation is in flight. A transfer owns the operands, so
                    // no exclusive reference to their bytes exists. `settle` reads only operands that the CPU
                    // can reach, and the bounce buffer, which no other operation uses now.
                    unsafe { query.settle(op.result, self.max_transfer, block) };
                    let over = query.is_over();
                    op.result = query.result;
                    deferred.fence = Fence::Clear;
                    self.cpu_chunks += u64::from(by_cpu);
                    if over {
                        op.deferred -= 1;
                        self.drop_query(at);
                        self.end_if_over(slot, ended);
                        return Advance::Ended;
                    }
                }
            }
        }
    }

    /// Removes the query with index `at` in [`queries`](Self::queries), and keeps its lists for reuse.
    fn drop_query(&mut self, at: usize) {
        let query = self.queries.swap_remove(at);
        query.into_lists().into_iter().for_each(|list| self.lists.keep(list));
    }

    /// Removes the deferred operation with index `at`. A fence that it has not applied passes to the next
    /// operation.
    fn drop_deferred(&mut self, at: usize) {
        if let Some(deferred) = self.deferred.remove(at) {
            if deferred.fence != Fence::Clear {
                match self.deferred.get_mut(at) {
                    Some(next) => next.fence = deferred.fence,
                    None => self.fence = true,
                }
            }
            deferred.into_lists().into_iter().for_each(|list| self.lists.keep(list));
        }
    }

    /// Passes the fence of a refused descriptor to the next descriptor.
    fn pass_on_fence(&mut self, fence: bool) {
        if !fence {
        } else if let Some(next) = self.pending.get_mut(self.submitted) {
            *next = next.with_fence(true);
        } else if let Some(next) = self.deferred.front_mut() {
            next.fence = Fence::Device;
        } else {
            self.fence = true;
        }
    }

    /// Rings the doorbell if the device has descriptors without a doorbell.
    fn ring(&mut self) {
        if self.doorbell_pending
            && let Some(raw) = &mut self.raw
        {
            self.in_engine_call = true;
            raw.flush();
            self.in_engine_call = false;
            self.doorbell_pending = false;
        }
    }

    /// Submits all accepted operations and rings the doorbell. If the device has no room for all of them,
    /// later polls submit the rest.
    #[inline]
    pub(crate) fn flush(&mut self, ended: &mut Vec<u32>) {
        if self.is_poisoned() {
            return self.report_poisoned();
        }
        self.delayed_since = None;
        if self.pending.len() > self.submitted || !self.deferred.is_empty() {
            self.push = true;
            self.pump(ended);
        }
        self.ring();
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
    /// descriptors in flight or [`SUBMIT_BATCH`], or if one of them has waited for `limit`. If no descriptor
    /// is in flight, `idle` decides.
    #[inline]
    pub(crate) fn flush_delayed(
        &mut self,
        idle: impl FnOnce() -> bool,
        limit: Duration,
        ended: &mut Vec<u32>,
    ) {
        let gathered = self.pending.len() - self.submitted + self.deferred.len();
        if gathered == 0 && !self.doorbell_pending {
            return;
        }
        let enough = if self.in_flight == 0 { idle() } else { gathered >= self.in_flight };
        // If a doorbell is pending, a full batch was submitted already. If `push` is set, polls already
        // submit operations without waiting.
        let due = enough || self.doorbell_pending || self.push || limit.is_zero();
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
            self.ring();
        }
        let mut total = 0;
        for _ in 0..MAX_ROUNDS {
            let Some(raw) = &mut self.raw else { break };
            self.in_engine_call = true;
            let n = raw.poll(&mut self.reports[..]);
            self.in_engine_call = false;
            self.counters.polls += 1;
            self.take_reports(n, ended);
            total += n;
            if n < MAX_COMPLETIONS {
                break;
            }
        }
        if total > 0 && self.push {
            self.pump(ended);
            self.ring();
        }
        self.resume_inline();
        total + (self.cpu_chunks - cpu_chunks) as usize
    }

    /// Flushes, and polls until the operation in `slot` has ended, but at most `polls` times. A wait for one
    /// operation takes far fewer instructions with this method than with [`flush`](Self::flush) and
    /// [`poll`](Self::poll), which are called only if operations are deferred.
    pub(crate) fn drive(&mut self, slot: u32, polls: u32, ended: &mut Vec<u32>) {
        let is_plain = self.deferred.is_empty() && self.queries.is_empty() && !self.push;
        if !(is_plain && !self.is_poisoned() && self.submit_at_once(ended)) {
            self.flush(ended);
            for _ in 0..polls {
                if self.ops[slot as usize].has_ended() {
                    break;
                }
                self.poll(ended);
            }
            return;
        }
        self.delayed_since = None;
        self.ring();
        for _ in 0..polls {
            if self.ops[slot as usize].has_ended() {
                break;
            }
            let Some(raw) = &mut self.raw else { break };
            self.in_engine_call = true;
            let n = raw.poll(&mut self.reports[..]);
            self.in_engine_call = false;
            self.counters.polls += 1;
            self.take_reports(n, ended);
        }
        self.resume_inline();
    }

    /// Submits all pending descriptors in one call. Returns false if some of them are left.
    #[inline]
    fn submit_at_once(&mut self, ended: &mut Vec<u32>) -> bool {
        let Some(raw) = &mut self.raw else { return false };
        let left = &self.pending[self.submitted..];
        if left.is_empty() {
            return true;
        }
        self.in_engine_call = true;
        // SAFETY: every pending descriptor was checked for this engine, its limits, its regions' bounds and
        // rights, and overlap. A transfer owns the operands. Until the completion, the transfer keeps the
        // operands registered and inaccessible to the program; if the device does not respond, the transfer
        // leaks them.
        let taken = unsafe { raw.submit(left) };
        self.in_engine_call = false;
        let n = match taken {
            Ok(n) => n,
            Err(error) => {
                self.refuse_first(error, ended);
                return false;
            }
        };
        self.in_flight += n;
        self.counters.descriptors += n as u64;
        self.doorbell_pending |= n > 0;
        self.submitted += n;
        if self.submitted < self.pending.len() {
            return false;
        }
        self.pending.clear();
        self.submitted = 0;
        true
    }

    /// Processes the first `n` reports, which the engine has just written.
    #[inline]
    fn take_reports(&mut self, n: usize, ended: &mut Vec<u32>) {
        if n > self.in_flight.min(MAX_COMPLETIONS) {
            let has = self.in_flight;
            self.miscounted(format_args!("{n} completions, but only {has} descriptors are in flight"));
        }
        self.in_flight -= n;
        let mut at = 0;
        loop {
            at += self.complete_singles(at..n, ended);
            if at >= n {
                break;
            }
            let Completion { token, result, native, outcome } = self.reports[at];
            let slot = slot_of(token);
            let mut run = 1;
            if outcome == Outcome::Done {
                // Count the consecutive completions of one batch, so that its state is updated only once.
                let same = |c: &&Completion| slot_of(c.token) == slot && c.outcome == Outcome::Done;
                run = self.reports[at..n].iter().take_while(same).count();
            }
            at += run;
            if self.ops.get(slot as usize).is_none_or(|op| (op.descriptors as usize) < run) {
                self.miscounted(format_args!("token {token:#x}, which is not in flight"));
            }
            if outcome != Outcome::Done {
                let native = (native != 0).then(|| self.explain(native));
                self.record_failed(token, outcome, native);
            }
            let op = &mut self.ops[slot as usize];
            op.descriptors -= run as u32;
            op.result = result;
            if op.descriptors == 0 {
                self.end_if_over(slot, ended);
            }
        }
    }

    /// Ends operations of one descriptor that are reported as done, up to the first report of another type.
    /// Returns the number of ended operations.
    #[inline]
    fn complete_singles(&mut self, reports: std::ops::Range<usize>, ended: &mut Vec<u32>) -> usize {
        let Self { ops, counters, .. } = self;
        let reports = &self.reports[reports];
        // Local variables stay in registers, whereas fields would be written at each step.
        let (mut at, mut bytes) = (0, counters.bytes);
        for Completion { token, outcome, .. } in reports {
            let slot = slot_of(*token);
            let Some(op) = ops.get_mut(slot as usize) else { break };
            if op.phase != Phase::Plain || *outcome != Outcome::Done {
                break;
            }
            (op.descriptors, op.phase) = (0, Phase::Ended);
            // The sum saturates, because repeated windows may exceed the size of the address space.
            bytes = bytes.saturating_add(op.bytes);
            at += 1;
            if op.has_waiter {
                ended.push(slot);
            }
        }
        counters.completed += at as u64;
        counters.bytes = bytes;
        at
    }

    fn explain(&self, native: i32) -> NativeError {
        match &self.raw {
            Some(raw) => raw.explain(native),
            None => NativeError { code: native, name: "".into(), description: "".into() },
        }
    }

    /// Records that the engine refused a descriptor with this token.
    #[cold]
    fn refused(&mut self, token: u64, error: Error) {
        let (outcome, native) = (Outcome::Failed(error.kind()), error.native().cloned());
        let (index, closing) = (index_of(token), self.stopped);
        self.record_failure(token, Failure { index, outcome, native, refusal: Some(error), closing });
    }

    /// Records that the engine reported a descriptor with this token as failed or aborted.
    #[cold]
    fn record_failed(&mut self, token: u64, outcome: Outcome, native: Option<NativeError>) {
        let (index, closing) = (index_of(token), self.stopped);
        self.record_failure(token, Failure { index, outcome, native, refusal: None, closing });
    }

    /// Records a failed part of an operation, and drops its parts that have not been submitted.
    fn record_failure(&mut self, token: u64, failure: Failure) {
        let slot = slot_of(token);
        let Failure { index, outcome, .. } = failure;
        self.log_events.push(LogEvent::Failed { slot, outcome, native: failure.native.clone() });
        let op = &mut self.ops[slot as usize];
        op.outcome = worse(op.outcome, outcome);
        match self.failures.entry((slot, index)) {
            Entry::Occupied(mut known) => {
                if worse(known.get().outcome, outcome) != known.get().outcome {
                    known.insert(failure);
                }
            }
            Entry::Vacant(place) => {
                place.insert(failure);
            }
        }
        if op.deferred > 0 {
            if let Some(at) = self.deferred.iter().position(|s| s.token == token) {
                op.deferred -= 1;
                self.drop_deferred(at);
            } else if let Some(at) = self.queries.iter().position(|s| s.token == token) {
                op.deferred -= 1;
                self.drop_query(at);
            }
        }
    }

    /// If no part of the operation in `slot` is left, ends and counts the operation, and appends the slot to
    /// `ended` if the operation has a waiter.
    #[inline]
    fn end_if_over(&mut self, slot: u32, ended: &mut Vec<u32>) {
        let op = &mut self.ops[slot as usize];
        if op.descriptors > 0 || op.deferred > 0 || op.has_ended() {
            return;
        }
        op.phase = Phase::Ended;
        let operations = u64::from(op.operations);
        if op.outcome == Outcome::Done {
            self.counters.completed += operations;
            // The sum saturates, because repeated windows may exceed the size of the address space.
            self.counters.bytes = self.counters.bytes.saturating_add(op.bytes);
        } else {
            let mut record_failed = 0;
            for failure in self.failures.range(of_slot(slot)).map(|(_, failure)| failure) {
                record_failed += 1;
                match failure.outcome {
                    Outcome::Aborted => self.counters.aborted += 1,
                    _ => self.counters.failed += 1,
                }
            }
            self.counters.completed += operations - record_failed;
        }
        if op.has_waiter {
            ended.push(slot);
        }
        self.resume_inline();
    }

    /// Removes and returns the failures of an ended operation, sorted by index.
    pub(crate) fn take_failures(&mut self, slot: u32) -> Vec<Failure> {
        let mut failures = Vec::new();
        while let Some((&key, _)) = self.failures.range(of_slot(slot)).next() {
            failures.extend(self.failures.remove(&key));
        }
        failures
    }

    /// Stops the device. Pending and deferred operations are aborted.
    pub(crate) fn stop(&mut self, ended: &mut Vec<u32>) {
        if self.is_poisoned() {
            return self.report_poisoned();
        }
        let Some(raw) = &mut self.raw else { return };
        self.inline.end();
        self.stopped = true;
        self.in_engine_call = true;
        raw.stop();
        self.in_engine_call = false;
        for descriptor in self.pending.split_off(self.submitted) {
            self.ops[slot_of(descriptor.token()) as usize].descriptors -= 1;
            self.record_failed(descriptor.token(), Outcome::Aborted, None);
            self.end_if_over(slot_of(descriptor.token()), ended);
        }
        self.pending.clear();
        self.submitted = 0;
        while let Some(token) = self.deferred.front().or(self.queries.first()).map(|s| s.token) {
            self.record_failed(token, Outcome::Aborted, None);
            self.end_if_over(slot_of(token), ended);
        }
    }

    /// Returns whether the engine has panicked, or belongs to the parent of this process. If so, the layer
    /// above must [`abandon`](Self::abandon) the engine.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.in_engine_call || self.is_parents()
    }

    /// Adds a log event for the panic or the fork, once. The layer above logs it.
    #[cold]
    fn report_poisoned(&mut self) {
        if self.is_parents() {
            if !self.is_closed() {
                self.log_events.push(LogEvent::Forked);
            }
        } else if !self.log_events.iter().any(|event| matches!(event, LogEvent::Panicked)) {
            self.log_events.push(LogEvent::Panicked);
        }
    }

    /// Panics, because the engine reported a descriptor twice or a descriptor that is not in flight. The
    /// engine is not called again. Not all such reports are detected, because the slot may already belong to
    /// another operation. Therefore `RawQueue` is unsafe to implement.
    #[cold]
    fn miscounted(&mut self, what: fmt::Arguments<'_>) -> ! {
        self.in_engine_call = true;
        panic!(
            "engine `{}` breaks the contract of `RawQueue`, to report every descriptor once: it reports {what}; its queue is abandoned",
            self.backend
        );
    }

    /// Abandons the device. Operations that have not ended will never end, and their holders leak the
    /// operands.
    pub(crate) fn abandon(&mut self) {
        self.inline.end();
        self.counters.abandoned += self.open_operations();
        let Some(raw) = self.raw.take() else { return };
        // If the engine panics below, the raw queue must not be dropped.
        let raw = ManuallyDrop::new(raw);
        if self.is_parents() {
            // The device and its memory are the parent's.
            std::mem::forget(self.bounce.take());
            return;
        }
        let idle = self.in_flight == 0 && !std::mem::take(&mut self.in_engine_call);
        if !idle {
            std::mem::forget(self.bounce.take());
            self.log_events.push(LogEvent::Abandoned { descriptors: self.in_flight });
        }
        let stats = raw.stats();
        self.counters.doorbells = stats.doorbells;
        self.counters.resets = stats.resets;
        if idle {
            drop(ManuallyDrop::into_inner(raw));
        }
    }

    /// Returns the queue's events, if the engine has events and the queue is open.
    pub(crate) fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        // A forked child shares the event with its parent, which it must not disarm.
        if self.is_parents() {
            return None;
        }
        self.raw.as_mut()?.events()
    }
}

/// An operation or batch whose descriptors are being added to a planner.
///
/// If an admission is dropped without [`commit`](Self::commit), after a refusal or a panic, it removes its
/// descriptors from the planner, because their operands may be freed.
#[derive(Debug)]
#[must_use = "dropping an admission removes its descriptors"]
pub(crate) struct Admission<'a> {
    planner: &'a mut Planner,
    slot: u32,
    /// Number of pending descriptors before this admission.
    pending: usize,
    /// Number of deferred operations before this admission.
    deferred: usize,
    /// The planner's `fence` before this admission.
    fence: bool,
}

impl Admission<'_> {
    /// Adds the operation with this index.
    #[inline]
    pub(crate) fn push(&mut self, index: u32, plan: Plan) {
        let token = token(self.slot, index);
        match plan {
            Plan::Flat(src, dst) => self.push_flat(index, src, dst),
            Plan::Empty => {}
            Plan::Lists(src, dst) => self.planner.defer(token, OpKind::Copy(Cursor::new(src)), dst),
            Plan::CopyToBoth(mut src, [mut dst, mut also]) => {
                let planner = &mut *self.planner;
                if planner.capabilities.contains(Capabilities::COPY_TO_BOTH) {
                    let kind = OpKind::CopyToBoth(Cursor::new(src), Cursor::new(also));
                    planner.defer(token, kind, dst);
                } else {
                    src.extend_from_within(..);
                    dst.append(&mut also);
                    planner.lists.keep(also);
                    planner.defer(token, OpKind::Copy(Cursor::new(src)), dst);
                }
            }
            Plan::Query(query) => {
                let planner = &mut *self.planner;
                let op = &mut planner.ops[self.slot as usize];
                (op.answers, op.result) = (true, query.initial());
                let native = planner.capabilities.contains(query.kind.capability());
                if native
                    && planner.submits_at_once(query.len())
                    && let Some(descriptor) = query.single(token)
                {
                    planner.ops[self.slot as usize].descriptors += 1;
                    planner.push_fenced(descriptor);
                    planner.lists.keep(query.a);
                    planner.lists.keep(query.b);
                } else if query.len() > 0 {
                    planner.defer(token, OpKind::Query(QueryProgress::new(query, native)), Vec::new());
                }
            }
            Plan::Fill(pattern, dst) => {
                let block = self.planner.bounce.as_ref().map(|block| block.buffer.0.segment());
                let kind = match block {
                    Some(block) if !self.planner.capabilities.contains(Capabilities::FILL) => {
                        OpKind::FillFrom { pattern, block, phase: 0 }
                    }
                    // `QueueCaps::can_fill` has checked this.
                    _ => OpKind::Fill(pattern),
                };
                self.planner.defer(token, kind, dst);
            }
        }
    }

    /// Adds the copy with this index of a batch that [`check::batch`] has checked.
    pub(crate) fn push_checked<S: Operand, D: Operand>(&mut self, index: u32, src: &S, dst: &D) {
        match check::copy(self.planner.engine, src, dst, &mut self.planner.lists) {
            Ok(plan) => self.push(index, plan),
            Err(e) => debug_assert!(false, "it passed before: {e}"),
        }
    }

    /// Adds the copy with this index. The copy must have at least 1 byte.
    #[inline]
    pub(crate) fn push_flat(&mut self, index: u32, src: Segment, dst: Segment) {
        let planner = &mut *self.planner;
        let token = token(self.slot, index);
        if planner.submits_at_once(dst.len) {
            planner.push_fenced(Descriptor::copy(token, src, dst));
            planner.ops[self.slot as usize].descriptors += 1;
        } else {
            let (mut from, mut to) = (planner.lists.take(), planner.lists.take());
            from.push(src);
            to.push(dst);
            planner.defer(token, OpKind::Copy(Cursor::new(from)), to);
        }
    }

    /// Adds all copies and their bytes, if every copy is plain ([`check::is_plain`]) and no operation is
    /// deferred before them. Otherwise adds no copy and returns false. The admission must have been made with
    /// 0 bytes and one operation for each copy.
    #[inline]
    pub(crate) fn push_all_flat<S: Operand, D: Operand>(&mut self, copies: &[(S, D)]) -> bool {
        let Planner { engine, max_transfer, pending, deferred, fence, ops, .. } = &mut *self.planner;
        if *fence || !deferred.is_empty() {
            return false;
        }
        let (engine, slot, count) = (*engine, self.slot, copies.len());
        // With this bound, the sum of the lengths cannot overflow.
        let max = (*max_transfer).min(usize::MAX / count.max(1));
        pending.reserve(count);
        let (mut bytes, mut token) = (0, token(slot, 0));
        // In a loop the sums stay in registers, whereas closures would keep them in memory.
        for ((src, dst), place) in copies.iter().zip(pending.spare_capacity_mut()) {
            let (src, dst) = (src.single(), dst.single());
            if !check::is_plain::<D>(engine, src, dst, max) {
                return false;
            }
            place.write(Descriptor::copy(token, src.segment(), dst.segment()));
            (bytes, token) = (bytes + dst.len, token + ONE_INDEX);
        }
        // SAFETY: `reserve` made room for `count` more descriptors, and the loop has written all of them.
        unsafe { pending.set_len(pending.len() + count) };
        let op = &mut ops[slot as usize];
        (op.descriptors, op.bytes) = (op.operations, bytes as u64);
        true
    }

    /// Passes the operations to the planner. The caller must put the operands into a transfer before any
    /// other code can run.
    #[inline]
    pub(crate) fn commit(self) {
        let mut admission = ManuallyDrop::new(self);
        let slot = admission.slot as usize;
        let operations = u64::from(admission.planner.ops[slot].operations);
        admission.planner.inline.allow(false);
        admission.planner.counters.submitted += operations;
    }
}

impl Drop for Admission<'_> {
    #[cold]
    fn drop(&mut self) {
        let planner = &mut *self.planner;
        planner.pending.truncate(self.pending);
        planner.deferred.truncate(self.deferred);
        planner.fence = self.fence;
        planner.ops[self.slot as usize] = OpState::IDLE;
    }
}

/// Returns the worse of two outcomes, where failed is worse than aborted, and aborted worse than done.
fn worse(a: Outcome, b: Outcome) -> Outcome {
    let rank = |o| match o {
        Outcome::Done => 0,
        Outcome::Aborted => 1,
        Outcome::Failed(_) => 2,
    };
    if rank(b) > rank(a) { b } else { a }
}
