//! The planner: between operations, which users count, and descriptors, which devices take.
//!
//! It owns the raw queue. It stages what does not go out as one descriptor at once, submits in batches, and turns completions of
//! descriptors into the end of operations. Who waits for an operation, and where its operands are, is for the layers above: the
//! single-threaded [`Queue`](crate::Queue) and the lanes of [`SharedQueue`](crate::SharedQueue).
#![expect(unsafe_code, reason = "hands checked descriptors to the raw queue")]

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

use super::check::{self, Lists};
use super::cut::{Fence, Piece, Staged};
use super::error::REOPEN;
use crate::operand::sealed::Operand;
use crate::{
    BufferMut, Capabilities, Completion, Counters, Descriptor, EngineId, EngineInfo, Error, ErrorKind,
    Listed, NativeError, Outcome, RawQueue, Result, Segment,
};

/// How many descriptors gather before they are handed to the device without being asked for.
const HAND_OVER: usize = 32;
/// How many completions are taken from the device at a time, and how many times in one poll at most.
const REPORTS: usize = 128;
const ROUNDS: usize = 8;

/// One operation or batch, by slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpState {
    /// Descriptors handed over, or about to be, that have not been reported.
    descriptors: u32,
    /// Operations of it that are not all cut yet.
    staged: u32,
    /// Operations in it: more than 1 for a batch.
    operations: u32,
    /// Whether it has ended; `outcome` is its result then.
    pub(crate) ended: bool,
    /// Whether the layer above wants to be told when it ends.
    pub(crate) attended: bool,
    /// The worst outcome of its descriptors so far.
    pub(crate) outcome: Outcome,
    bytes: u64,
}

impl OpState {
    const IDLE: Self = Self {
        descriptors: 0,
        staged: 0,
        operations: 0,
        ended: true,
        attended: false,
        outcome: Outcome::Done,
        bytes: 0,
    };
}

/// An operation that did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Its index in the batch; 0 if it is none.
    pub(crate) index: u32,
    pub(crate) outcome: Outcome,
    native: Option<NativeError>,
    /// What the engine said, if it did not take it.
    refusal: Option<Error>,
    /// The queue was being closed: what was aborted is so because of that.
    closing: bool,
}

/// What the log is to be told once nothing is borrowed or locked: who listens may panic, or use the queue.
#[derive(Debug)]
pub(crate) enum News {
    /// A descriptor was refused, or did not succeed.
    Failed { slot: u32, outcome: Outcome, native: Option<NativeError> },
    /// The device was given up with this many descriptors.
    Silent { descriptors: usize },
    /// The engine panicked.
    Wrecked,
}

impl News {
    pub(crate) fn tell(self, backend: &'static str) {
        match self {
            Self::Failed { slot, outcome, native } => {
                tracing::warn!(backend, slot, ?outcome, ?native, "operation failed");
            }
            Self::Silent { descriptors } => tracing::error!(
                backend,
                descriptors,
                "device did not answer; its queue and the memory it may write are leaked"
            ),
            Self::Wrecked => tracing::error!(backend, "an engine panicked; its queue is given up"),
        }
    }
}

const fn token(slot: u32, index: u32) -> u64 {
    (slot as u64) | ((index as u64) << 32)
}

const fn slot_of(token: u64) -> u32 {
    (token & 0xffff_ffff) as u32
}

const fn index_of(token: u64) -> u32 {
    (token >> 32) as u32
}

/// The failures of a slot.
const fn of_slot(slot: u32) -> RangeInclusive<(u32, u32)> {
    (slot, 0)..=(slot, u32::MAX)
}

/// An operation's memory, checked.
#[derive(Debug)]
pub(crate) enum Plan {
    /// No bytes: it completes at once.
    Empty,
    /// One segment on each side.
    Flat(Segment, Segment),
    /// Lists of segments.
    Lists(Vec<Segment>, Vec<Segment>),
    /// A fill.
    Fill([u8; 8], Vec<Segment>),
}

impl Plan {
    /// The bytes that it writes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Flat(_, dst) => dst.len,
            Self::Lists(_, dst) | Self::Fill(_, dst) => dst.iter().map(|s| s.len).sum(),
        }
    }

    /// Gives its lists to `keep`.
    pub(crate) fn discard(self, mut keep: impl FnMut(Vec<Segment>)) {
        match self {
            Self::Empty | Self::Flat(..) => {}
            Self::Lists(src, dst) => {
                keep(src);
                keep(dst);
            }
            Self::Fill(_, dst) => keep(dst),
        }
    }
}

/// What fills are copied from where the device has no fill.
struct FillBlock {
    buffer: BufferMut,
    pattern: [u8; 8],
}

pub(crate) struct Planner {
    /// `None` once closed.
    raw: Option<Box<dyn RawQueue>>,
    pub(crate) engine: EngineId,
    pub(crate) backend: &'static str,
    capabilities: Capabilities,
    max_transfer: usize,
    max_segments: usize,
    pub(crate) ops: Box<[OpState]>,
    /// What did not succeed, by slot and index in the batch.
    failures: BTreeMap<(u32, u32), Failure>,
    /// Descriptors that go out as they are; those before `handed` have gone.
    pending: Vec<Descriptor<'static>>,
    handed: usize,
    /// Operations that go out piece by piece, after all that is pending.
    staged: VecDeque<Staged>,
    piece: Piece,
    pub(crate) lists: Lists,
    /// Descriptors that the device has.
    in_flight: usize,
    /// The next operation carries a fence.
    fence: bool,
    /// The device has descriptors that no doorbell was rung for.
    unrung: bool,
    /// What is pending or staged goes out, with a doorbell, as soon as there is room.
    push: bool,
    /// The engine is running. Found so, it has panicked: what it took is not known, and it is not asked again.
    asked: bool,
    /// The device was asked to give up, since the queue is closed.
    stopped: bool,
    fill_block: Option<FillBlock>,
    counters: Counters,
    /// For the layer above to tell.
    pub(crate) news: Vec<News>,
    reports: Box<[Completion; REPORTS]>,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner")
            .field("backend", &self.backend)
            .field("raw", &self.raw)
            .field("counters", &self.counters())
            .field("pending", &(self.pending.len() - self.handed))
            .field("staged", &self.staged.len())
            .finish_non_exhaustive()
    }
}

impl Planner {
    /// Room for `slots` operations on `raw`. `fill_block` is what fills are copied from if the engine has no fill of its own;
    /// its length is a multiple of 8.
    pub(crate) fn new(
        raw: Box<dyn RawQueue>,
        info: &EngineInfo,
        slots: usize,
        fill_block: Option<BufferMut>,
    ) -> Self {
        Self {
            engine: raw.engine_id(),
            raw: Some(raw),
            backend: info.backend,
            capabilities: info.capabilities,
            max_transfer: usize::try_from(info.limits.max_transfer).unwrap_or(usize::MAX),
            max_segments: info.limits.max_segments,
            ops: vec![OpState::IDLE; slots].into(),
            failures: BTreeMap::new(),
            pending: Vec::with_capacity(slots.clamp(HAND_OVER, 1024)),
            handed: 0,
            staged: VecDeque::new(),
            piece: Piece::default(),
            lists: Lists::default(),
            in_flight: 0,
            fence: false,
            unrung: false,
            push: false,
            asked: false,
            stopped: false,
            fill_block: fill_block.map(|mut buffer| {
                buffer.fill(0);
                FillBlock { buffer, pattern: [0; 8] }
            }),
            counters: Counters::default(),
            news: Vec::new(),
            reports: Box::new([Completion::done(0); REPORTS]),
        }
    }

    /// Whether a fill can be done, natively or by copies.
    pub(crate) fn can_fill(&self) -> bool {
        self.capabilities.contains(Capabilities::FILL) || self.fill_block.is_some()
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.counters;
        counters.in_flight = self.open_operations();
        if let Some(raw) = &self.raw {
            let stats = raw.stats();
            counters.doorbells = stats.doorbells;
            counters.resets = stats.resets;
        }
        counters
    }

    /// Counts an operation that was handed back.
    pub(crate) fn count_full(&mut self) {
        self.counters.full += 1;
    }

    /// Operations accepted that have not ended.
    pub(crate) fn open_operations(&self) -> u64 {
        let Counters { submitted, completed, failed, aborted, abandoned, .. } = self.counters;
        submitted - completed - failed - aborted - abandoned
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.raw.is_none()
    }

    /// Whether the device is to make the next move: operations are open, and nothing of them waits for a flush.
    pub(crate) fn is_at_device(&self) -> bool {
        let flushed = self.push || (self.handed == self.pending.len() && self.staged.is_empty());
        self.open_operations() > 0 && flushed && !self.unrung
    }

    /// Descriptors that the device has reported so far.
    pub(crate) fn reported(&self) -> u64 {
        self.counters.descriptors - self.in_flight as u64
    }

    /// Looks at the device so far.
    pub(crate) fn looks(&self) -> u64 {
        self.counters.polls
    }

    /// What is submitted from here on starts only when all before has completed.
    pub(crate) fn fence(&mut self) {
        self.fence = true;
    }

    /// Begins `operations` operations of `bytes` in all under `slot`, which was idle.
    #[inline]
    pub(crate) fn begin(&mut self, slot: u32, operations: u32, bytes: u64, attended: bool) {
        self.ops[slot as usize] = OpState { operations, bytes, ended: false, attended, ..OpState::IDLE };
        self.counters.submitted += u64::from(operations);
    }

    /// Adds the operation `index` of what was begun under `slot`.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32, index: u32, plan: Plan) {
        match plan {
            Plan::Flat(src, dst) => self.push_flat(slot, index, src, dst),
            Plan::Empty => {}
            Plan::Lists(src, dst) => {
                let fence = self.next_fence();
                self.stage(Staged::copy(token(slot, index), fence, src, dst));
            }
            Plan::Fill(pattern, dst) => {
                let fence = self.next_fence();
                let token = token(slot, index);
                if self.capabilities.contains(Capabilities::FILL) {
                    self.stage(Staged::fill(token, fence, pattern, dst));
                } else if let Some(block) = &self.fill_block {
                    let segment = block.buffer.0.segment();
                    self.stage(Staged::fill_from(token, fence, pattern, segment, dst));
                } else {
                    debug_assert!(false, "`can_fill` was not asked");
                }
            }
        }
    }

    #[inline]
    pub(crate) fn push_flat(&mut self, slot: u32, index: u32, src: Segment, dst: Segment) {
        if self.staged.is_empty()
            && dst.len <= self.max_transfer
            && (!self.fence || self.capabilities.contains(Capabilities::FENCE))
        {
            let fence = std::mem::take(&mut self.fence);
            self.pending.push(Descriptor::copy(token(slot, index), src, dst).with_fence(fence));
            self.ops[slot as usize].descriptors += 1;
        } else {
            let (mut from, mut to) = (self.lists.take(), self.lists.take());
            from.push(src);
            to.push(dst);
            let fence = self.next_fence();
            self.stage(Staged::copy(token(slot, index), fence, from, to));
        }
    }

    /// Adds copies of one range to another, from index 0 on, if all of them are plain ([`check::is_plain`]) and nothing is staged before
    /// them. Returns the bytes in all, or `None` if not, and then nothing was added.
    #[inline]
    pub(crate) fn push_all_flat<'a, S: Operand, D: Operand>(
        &mut self,
        slot: u32,
        copies: impl ExactSizeIterator<Item = &'a (S, D)>,
    ) -> Option<usize> {
        if self.fence || !self.staged.is_empty() {
            return None;
        }
        let before = self.pending.len();
        let (engine, max) = (self.engine, self.max_transfer);
        let (mut bytes, mut plain) = (0, true);
        self.pending.extend(copies.enumerate().map(|(index, (src, dst))| {
            let (src, dst) = (src.single(), dst.single());
            plain &= check::is_plain::<D>(engine, src, dst, max);
            bytes += dst.len;
            Descriptor::copy(token(slot, index as u32), src.segment(), dst.segment())
        }));
        if !plain {
            self.pending.truncate(before);
            return None;
        }
        Some(bytes)
    }

    /// Notes that all of a batch is pending.
    pub(crate) fn pushed_all(&mut self, slot: u32, operations: u32) {
        self.ops[slot as usize].descriptors = operations;
    }

    /// All of what was begun under `slot` has been pushed.
    #[inline]
    pub(crate) fn pushed(&mut self, slot: u32, attended: &mut Vec<u32>) {
        self.end_if_over(slot, attended);
        if self.pending.len() - self.handed >= HAND_OVER {
            self.hand_over(attended);
        }
    }

    fn next_fence(&mut self) -> Fence {
        if !std::mem::take(&mut self.fence) {
            Fence::Clear
        } else if self.capabilities.contains(Capabilities::FENCE) {
            Fence::Device
        } else {
            Fence::Drain
        }
    }

    fn stage(&mut self, staged: Staged) {
        self.ops[slot_of(staged.token) as usize].staged += 1;
        self.staged.push_back(staged);
    }

    /// Hands over what is pending, as far as the device has room.
    fn hand_over(&mut self, attended: &mut Vec<u32>) {
        if self.asked {
            return self.wrecked();
        }
        while self.handed < self.pending.len() {
            let Some(raw) = &mut self.raw else { return };
            self.asked = true;
            // SAFETY: every pending descriptor was checked against this engine, its regions' bounds and rights, and for overlap; its
            // operands are with a transfer, which keeps them untouched and registered until the completion, or for ever.
            let taken = unsafe { raw.submit(&self.pending[self.handed..]) };
            self.asked = false;
            match taken {
                Ok(0) => {
                    // The queue may stay full for long: what has gone out must not pile up.
                    if self.handed >= self.pending.len() / 2 {
                        self.pending.drain(..self.handed);
                        self.handed = 0;
                    }
                    return;
                }
                Ok(n) => {
                    self.handed += n;
                    self.in_flight += n;
                    self.counters.descriptors += n as u64;
                    self.unrung = true;
                }
                Err(error) => {
                    let (token, fence) =
                        (self.pending[self.handed].token(), self.pending[self.handed].fence());
                    self.handed += 1;
                    self.pass_on_fence(fence);
                    self.ops[slot_of(token) as usize].descriptors -= 1;
                    self.refused(token, error);
                    self.end_if_over(slot_of(token), attended);
                }
            }
        }
        self.pending.clear();
        self.handed = 0;
    }

    /// Hands over what is pending and staged, as far as the device has room and fences allow.
    fn pump(&mut self, attended: &mut Vec<u32>) {
        self.hand_over(attended);
        while self.pending.is_empty() {
            let Some(front) = self.staged.front_mut() else { break };
            let Some(raw) = &mut self.raw else { break };
            if front.fence == Fence::Drain && self.in_flight > 0 {
                break;
            }
            if let (Some(pattern), Some(block)) = (front.block_pattern(), &mut self.fill_block)
                && block.pattern != pattern
            {
                if self.in_flight > 0 {
                    // A fill with another pattern may still be read from the block.
                    break;
                }
                block.buffer.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&pattern));
                block.pattern = pattern;
            }
            front.next_piece(self.max_transfer, self.max_segments, &mut self.piece);
            let token = front.token;
            let listed = self.piece.listed();
            let descriptor = match listed {
                Listed::Copy { src: &[src], dst: &[dst] } => Descriptor::copy(token, src, dst),
                _ => Descriptor::listed(token, &listed),
            };
            let descriptor = descriptor.with_fence(front.fence == Fence::Device);
            self.asked = true;
            // SAFETY: the piece lies within an operation that was checked as in `hand_over`, and within the limits; the block that
            // fills are read from is this planner's, and is written only while nothing is in flight.
            let taken = unsafe { raw.submit(&[descriptor]) };
            self.asked = false;
            match taken {
                Ok(0) => break,
                Ok(_) => {
                    self.in_flight += 1;
                    self.counters.descriptors += 1;
                    self.unrung = true;
                    let op = &mut self.ops[slot_of(token) as usize];
                    op.descriptors += 1;
                    front.advance(&self.piece);
                    if front.is_exhausted() {
                        op.staged -= 1;
                        self.drop_staged(0);
                    }
                }
                Err(error) => {
                    self.refused(token, error);
                    self.end_if_over(slot_of(token), attended);
                }
            }
        }
        if self.pending.is_empty() && self.staged.is_empty() {
            self.push = false;
        }
    }

    fn drop_staged(&mut self, at: usize) {
        if let Some(staged) = self.staged.remove(at) {
            if staged.fence != Fence::Clear {
                match self.staged.get_mut(at) {
                    Some(next) => next.fence = staged.fence,
                    None => self.fence = true,
                }
            }
            staged.into_lists().into_iter().for_each(|list| self.lists.keep(list));
        }
    }

    /// The descriptor just passed over was refused, but its fence holds for what follows.
    fn pass_on_fence(&mut self, fence: bool) {
        if !fence {
        } else if let Some(next) = self.pending.get_mut(self.handed) {
            *next = next.with_fence(true);
        } else if let Some(next) = self.staged.front_mut() {
            next.fence = Fence::Device;
        } else {
            self.fence = true;
        }
    }

    fn ring(&mut self) {
        if self.unrung
            && let Some(raw) = &mut self.raw
        {
            self.asked = true;
            raw.flush();
            self.asked = false;
            self.unrung = false;
        }
    }

    /// Hands over all that was accepted and rings the doorbell; what the device has no room for follows during later polls.
    #[inline]
    pub(crate) fn flush(&mut self, attended: &mut Vec<u32>) {
        if self.asked {
            return self.wrecked();
        }
        if self.pending.len() > self.handed || !self.staged.is_empty() {
            self.push = true;
            self.pump(attended);
        }
        self.ring();
    }

    /// Makes progress. Returns how many descriptors were reported; the slots that ended and are attended are added to
    /// `attended`.
    pub(crate) fn poll(&mut self, attended: &mut Vec<u32>) -> usize {
        if self.asked {
            self.wrecked();
            return 0;
        }
        if self.push {
            self.pump(attended);
            self.ring();
        }
        let mut total = 0;
        for _ in 0..ROUNDS {
            let Some(raw) = &mut self.raw else { break };
            self.asked = true;
            let n = raw.poll(&mut self.reports[..]);
            self.asked = false;
            self.counters.polls += 1;
            if n > self.in_flight.min(REPORTS) {
                let has = self.in_flight;
                self.miscounted(format_args!("{n} completions of {has} descriptors"));
            }
            self.in_flight -= n;
            let mut at = 0;
            while at < n {
                let Completion { token, native, outcome } = self.reports[at];
                let slot = slot_of(token);
                at += 1;
                let mut run = 1;
                if outcome == Outcome::Done {
                    // A batch's completions come one behind the other: count them before touching its state.
                    while at < n
                        && slot_of(self.reports[at].token) == slot
                        && self.reports[at].outcome == Outcome::Done
                    {
                        at += 1;
                        run += 1;
                    }
                }
                if self.ops.get(slot as usize).is_none_or(|op| op.descriptors < run) {
                    self.miscounted(format_args!("token {token:#x}, which is not in flight"));
                }
                if outcome != Outcome::Done {
                    let native = (native != 0).then(|| self.explain(native));
                    self.bad(token, outcome, native);
                }
                let op = &mut self.ops[slot as usize];
                op.descriptors -= run;
                if op.descriptors == 0 {
                    self.end_if_over(slot, attended);
                }
            }
            total += n;
            if n < REPORTS {
                break;
            }
        }
        if total > 0 && self.push {
            self.pump(attended);
            self.ring();
        }
        total
    }

    fn explain(&self, native: i32) -> NativeError {
        match &self.raw {
            Some(raw) => raw.explain(native),
            None => NativeError { code: native.into(), name: "".into(), description: "".into() },
        }
    }

    #[cold]
    fn refused(&mut self, token: u64, error: Error) {
        let (outcome, native) = (Outcome::Failed(error.kind()), error.native().cloned());
        let (index, closing) = (index_of(token), self.stopped);
        self.note(token, Failure { index, outcome, native, refusal: Some(error), closing });
    }

    #[cold]
    fn bad(&mut self, token: u64, outcome: Outcome, native: Option<NativeError>) {
        let (index, closing) = (index_of(token), self.stopped);
        self.note(token, Failure { index, outcome, native, refusal: None, closing });
    }

    /// Notes that a piece of an operation failed, and gives up the pieces that have not gone out.
    fn note(&mut self, token: u64, failure: Failure) {
        let slot = slot_of(token);
        let Failure { index, outcome, .. } = failure;
        self.news.push(News::Failed { slot, outcome, native: failure.native.clone() });
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
        if op.staged > 0
            && let Some(at) = self.staged.iter().position(|s| s.token == token)
        {
            op.staged -= 1;
            self.drop_staged(at);
        }
    }

    #[inline]
    fn end_if_over(&mut self, slot: u32, attended: &mut Vec<u32>) {
        let op = &mut self.ops[slot as usize];
        if op.descriptors > 0 || op.staged > 0 || op.ended {
            return;
        }
        op.ended = true;
        let operations = u64::from(op.operations);
        if op.outcome == Outcome::Done {
            self.counters.completed += operations;
            self.counters.bytes += op.bytes;
        } else {
            let mut bad = 0;
            for failure in self.failures.range(of_slot(slot)).map(|(_, failure)| failure) {
                bad += 1;
                match failure.outcome {
                    Outcome::Aborted => self.counters.aborted += 1,
                    _ => self.counters.failed += 1,
                }
            }
            self.counters.completed += operations - bad;
        }
        if op.attended {
            attended.push(slot);
        }
    }

    /// The failures of an operation that has ended, in the order of their indices; they are forgotten here.
    pub(crate) fn take_failures(&mut self, slot: u32) -> Vec<Failure> {
        let mut failures = Vec::new();
        while let Some((&key, _)) = self.failures.range(of_slot(slot)).next() {
            failures.extend(self.failures.remove(&key));
        }
        failures
    }

    /// Asks the device to give up; nothing that is pending or staged goes out any more.
    pub(crate) fn stop(&mut self, attended: &mut Vec<u32>) {
        if self.asked {
            return self.wrecked();
        }
        let Some(raw) = &mut self.raw else { return };
        self.stopped = true;
        self.asked = true;
        raw.stop();
        self.asked = false;
        for descriptor in self.pending.split_off(self.handed) {
            self.ops[slot_of(descriptor.token()) as usize].descriptors -= 1;
            self.bad(descriptor.token(), Outcome::Aborted, None);
            self.end_if_over(slot_of(descriptor.token()), attended);
        }
        self.pending.clear();
        self.handed = 0;
        while let Some(token) = self.staged.front().map(|s| s.token) {
            self.bad(token, Outcome::Aborted, None);
            self.end_if_over(slot_of(token), attended);
        }
    }

    /// Whether the engine has panicked: it is not asked again, and the layer above must [`abandon`](Self::abandon) it.
    pub(crate) fn is_wrecked(&self) -> bool {
        self.asked
    }

    /// Has the layer above look.
    #[cold]
    fn wrecked(&mut self) {
        if !self.news.iter().any(|news| matches!(news, News::Wrecked)) {
            self.news.push(News::Wrecked);
        }
    }

    /// The engine reported what it does not have: a descriptor twice, or none of ours. What else it said cannot be relied on, so it is given up like one that
    /// panics. Not every such report is seen: the slot may have another operation by then. That is what `RawQueue` is unsafe for.
    #[cold]
    fn miscounted(&mut self, what: fmt::Arguments<'_>) -> ! {
        self.asked = true;
        panic!(
            "engine `{}` breaks the contract of `RawQueue`, to report every descriptor once: it reports {what}; its queue is given up",
            self.backend
        );
    }

    /// Gives up the device. What has not ended never will: whoever holds its operands must leak them.
    pub(crate) fn abandon(&mut self) {
        self.counters.abandoned += self.open_operations();
        let Some(raw) = self.raw.take() else { return };
        // Kept from being dropped before the engine runs, which may panic.
        let raw = ManuallyDrop::new(raw);
        let idle = self.in_flight == 0 && !std::mem::take(&mut self.asked);
        if !idle {
            std::mem::forget(self.fill_block.take());
            self.news.push(News::Silent { descriptors: self.in_flight });
        }
        let stats = raw.stats();
        self.counters.doorbells = stats.doorbells;
        self.counters.resets = stats.resets;
        if idle {
            drop(ManuallyDrop::into_inner(raw));
        }
    }

    pub(crate) fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.raw.as_ref()?.event_fd()
    }

    pub(crate) fn arm(&mut self) -> Result<bool> {
        match &mut self.raw {
            Some(raw) => raw.arm(),
            None => Err(Error::bare(ErrorKind::Closed)),
        }
    }

    pub(crate) fn disarm(&mut self) {
        if let Some(raw) = &mut self.raw {
            raw.disarm();
        }
    }
}

impl Failure {
    /// The error that says what happened.
    pub(crate) fn into_error(self, operation: &'static str, backend: &'static str) -> Error {
        let error = match self.outcome {
            Outcome::Failed(kind) => {
                let told = || Error::new(kind, "the device reported a failure");
                let error = self.refusal.unwrap_or_else(told);
                match kind {
                    _ if !error.hint().is_empty() => error,
                    ErrorKind::DeviceFault => error.with_hint(
                        "what the destination holds is undefined; submit it again, a few times; if it goes on, the log of the device's driver (dmesg) may say why",
                    ),
                    ErrorKind::Revoked => error.with_hint("have the peer export its memory again"),
                    _ => error,
                }
            }
            _ if self.closing => Error::new(
                ErrorKind::Closed,
                "the queue was closed before the device had done this operation",
            )
            .with_hint(REOPEN),
            _ => Error::new(
                ErrorKind::Aborted,
                "the device was reset or stopped before it reported this operation",
            )
            .with_hint("submit it again"),
        };
        let error = error.with_operation(operation).with_backend(backend);
        match self.native {
            Some(native) => error.with_native(native),
            None => error,
        }
    }
}

/// A failure says more than an abort, which says more than success.
fn worse(a: Outcome, b: Outcome) -> Outcome {
    let rank = |o| match o {
        Outcome::Done => 0,
        Outcome::Aborted => 1,
        Outcome::Failed(_) => 2,
    };
    if rank(b) > rank(a) { b } else { a }
}
