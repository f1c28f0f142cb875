//! [`RecordQueue`]: encodes the events of one queue.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dma_core::{
    Completion, Descriptor, DeviceAddr, InlineCopy, InlineExecutor, Operation, Outcome, QueueStats, RawQueue,
    Result, Segment,
};

use arrayvec::ArrayVec;

use super::content::QueueTrace;
use super::format::{
    BOTH, COMPARE, COPY, COPY_CRC, COUNT, CRC, DONE, ENDED, Encoder, FENCE, FILL, FLUSH, LISTS, POLL, Place,
    REPEAT, ROOM, SAME_DST, SAME_LEN, SAME_SRC, STRIDE, SUBMIT, TIME, zigzag,
};
use super::regions::{Known, Placed, TracedSide};
use super::state::Record;
use crate::in_flight::InFlight;
use crate::os_clock;
use crate::wrapper::{QueueHook, copy_all, descriptor_of};

/// Maximum number of writes between two checks for room.
const WRITES: usize = 4;

/// Returns the current time, in the unit of traces.
#[inline]
fn now() -> u64 {
    os_clock::nanoseconds() >> TIME
}

/// Time after the last write at which the next submission writes the buffer: 1 s.
const WRITE_EVERY: u64 = 1_000_000_000 >> TIME;

/// Number of descriptors that one unrolled step compares.
const STEP: usize = 4;

/// The recorder of a queue.
#[derive(Debug)]
pub(super) struct RecordQueue {
    /// Shared with the queue's executor. The queue has no other holder if it offers no executor.
    recorder: Arc<Mutex<Recorder>>,
}

impl RecordQueue {
    pub(super) fn new(number: u32, trace: QueueTrace, record: Arc<Record>) -> Self {
        Self { recorder: Arc::new(Mutex::new(Recorder::new(number, trace, record))) }
    }
}

/// Encodes the events of a queue.
#[derive(Debug)]
struct Recorder {
    number: u32,
    trace: QueueTrace,
    in_flight: InFlight<()>,
    out: Encoder,
    known: Known,
    src: TracedSide,
    dst: TracedSide,
    /// The length of the last operation, and true if it was a copy.
    len: u64,
    copied: bool,
    /// The end of the last event, and the time of the first poll since then.
    time: u64,
    polled: Option<u64>,
    /// The time of the last write of the buffer.
    written: u64,
    /// True after the queue was closed. A call of the executor in another thread may end later.
    closed: bool,
    record: Arc<Record>,
}

/// Locks a recorder. No code that can panic runs while a recorder is locked, except that of a defect.
#[inline]
fn locked(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    fn new(number: u32, trace: QueueTrace, record: Arc<Record>) -> Self {
        Self {
            number,
            trace,
            in_flight: InFlight::new(trace.depth),
            out: Encoder::new(record.buffer),
            known: Known::default(),
            src: TracedSide::default(),
            dst: TracedSide::default(),
            len: 0,
            copied: false,
            time: now(),
            polled: None,
            written: now(),
            closed: false,
            record,
        }
    }

    #[inline]
    fn make_room(&mut self) {
        if self.out.room() < WRITES * ROOM {
            self.write();
        }
    }

    #[cold]
    fn write(&mut self) {
        self.record.write(self.number, &self.trace, self.out.written());
        self.out.clear();
        self.written = now();
    }

    /// Returns the time since the last event, and makes `now` the end of this one.
    #[inline]
    fn pass(&mut self, now: u64) -> u64 {
        now.saturating_sub(std::mem::replace(&mut self.time, now))
    }

    /// Encodes polls that reported nothing.
    #[inline]
    fn end_polls(&mut self) {
        if let Some(polled) = self.polled.take() {
            self.make_room();
            let time = self.pass(polled);
            self.out.event(FLUSH, POLL.into(), &[time]);
        }
    }

    #[inline]
    fn operation(&mut self, descriptor: &Descriptor<'_>) {
        let len = descriptor.len() as u64;
        let fence = if descriptor.fence() { FENCE } else { 0 };
        let Operation::Copy { src, dst } = descriptor.operation() else {
            return self.other(descriptor.operation(), len, fence);
        };
        self.make_room();
        self.copied = true;
        let same_len = self.same_len(len);
        let (src, dst) = (self.src.place(&self.known, &src), self.dst.place(&self.known, &dst));
        self.out.write(|out| copy_operation(out, fence | same_len, len, &src, &dst));
    }

    /// Updates the known regions.
    #[inline]
    fn update_regions(&mut self) {
        if self.known.update(&self.record.regions) {
            self.src.forget();
            self.dst.forget();
        }
    }

    /// Encodes the operations of a call, and counts them.
    #[inline]
    fn operations(&mut self, mut rest: &[Descriptor<'_>]) {
        self.trace.operations += rest.len() as u64;
        while let Some((first, others)) = rest.split_first() {
            self.operation(first);
            let repeats = self.repeats(others);
            self.trace.bytes += self.len * (1 + repeats as u64);
            rest = &others[repeats..];
        }
    }

    /// Encodes operations that the CPU executed from `begin` to `end`, as if they had been submitted, rung
    /// and reported then.
    fn executed(&mut self, begin: u64, end: u64, mut rest: &[Descriptor<'_>]) {
        self.end_polls();
        let in_flight = self.in_flight.len();
        let mut times = (self.pass(begin), self.pass(end));
        while !rest.is_empty() {
            // A reader of the trace expects that no more than the depth are in flight.
            if in_flight == self.trace.depth {
                self.trace.depth += 1;
            }
            let (batch, later) = rest.split_at(rest.len().min(self.trace.depth - in_flight));
            self.make_room();
            let (before, call) = std::mem::take(&mut times);
            self.out.event(SUBMIT, batch.len() as u64, &[before, call]);
            self.operations(batch);
            self.make_room();
            self.out.event(FLUSH, 0, &[0; 2]);
            self.trace.doorbells += 1;
            if in_flight == 0 {
                self.out.event(DONE, batch.len() as u64, &[0; 2]);
            } else {
                for _ in batch {
                    self.make_room();
                    self.out.event(ENDED, in_flight as u64, &[0; 2]);
                    self.out.byte(0);
                }
            }
            rest = later;
        }
        if self.closed {
            self.write();
            self.record.update_queue(self.number, &self.trace);
        } else if end.saturating_sub(self.written) > WRITE_EVERY {
            self.write();
        }
    }

    /// Encodes a copy that the CPU executed from `begin` to `end`.
    #[inline]
    fn executed_copy(&mut self, begin: u64, end: u64, copy: InlineCopy) {
        let is_alone = self.in_flight.len() == 0 && self.polled.is_none() && !self.closed;
        if !is_alone || end.saturating_sub(self.written) > WRITE_EVERY {
            return self.executed_copies(begin, end, &[copy]);
        }
        self.update_regions();
        self.make_room();
        let (before, call) = (self.pass(begin), self.pass(end));
        let InlineCopy { src, dst, len } = copy;
        self.copied = true;
        let same_len = self.same_len(len as u64);
        let src = self.src.place_local(&self.known, src, len);
        let dst = self.dst.place_local(&self.known, dst, len);
        self.out.write(|out| {
            out.byte(SUBMIT | 1 << COUNT);
            out.number(before);
            out.number(call);
            copy_operation(out, same_len, len as u64, &src, &dst);
            out.bytes([FLUSH, 0, 0, DONE | 1 << COUNT, 0, 0]);
        });
        self.trace.operations += 1;
        self.trace.bytes += len as u64;
        self.trace.doorbells += 1;
    }

    /// Encodes copies that the CPU executed from `begin` to `end`: at most [`EXECUTED`] copies.
    fn executed_copies(&mut self, begin: u64, end: u64, copies: &[InlineCopy]) {
        self.update_regions();
        let Self { src, dst, known, .. } = self;
        let descriptors = copies.iter().map(|&InlineCopy { src: from, dst: to, len }| {
            Descriptor::copy(0, src.local(known, from, len), dst.local(known, to, len))
        });
        let descriptors: ArrayVec<_, EXECUTED> = descriptors.collect();
        self.executed(begin, end, &descriptors);
    }

    /// Encodes copies that are as long as the last operation and lie at equal distances. Returns their
    /// number.
    #[inline]
    fn repeats(&mut self, rest: &[Descriptor<'_>]) -> usize {
        let Some(Operation::Copy { src, dst }) = rest.first().map(Descriptor::operation) else { return 0 };
        if !self.copied || dst.len as u64 != self.len {
            return 0;
        }
        let (steps, strides) =
            ([self.src.step(&src), self.dst.step(&dst)], [self.src.stride(&src), self.dst.stride(&dst)]);
        let alike = Expected { src, dst, strides }.row(rest);
        let behind = steps == [0; 2];
        // For one copy, a repetition is longer in the trace than an operation, unless the copy begins where
        // the last one ends.
        if alike < if behind { 1 } else { 2 } {
            return 0;
        }
        // No copy may leave the region, because another region may begin at its end.
        let count = alike.min(self.src.room(&src, strides[0])).min(self.dst.room(&dst, strides[1]));
        if count > 0 {
            self.src.advance(&src, strides[0], count);
            self.dst.advance(&dst, strides[1], count);
            self.make_room();
            self.out.write(|out| {
                out.byte(if behind { REPEAT } else { REPEAT | STRIDE });
                out.number(count as u64);
                if !behind {
                    steps.into_iter().for_each(|step| out.number(zigzag(0, step)));
                }
            });
        }
        count
    }

    #[inline]
    fn same_len(&mut self, len: u64) -> u8 {
        if std::mem::replace(&mut self.len, len) == len { SAME_LEN } else { 0 }
    }

    /// Encodes any operation except a plain copy.
    #[cold]
    fn other(&mut self, operation: Operation<'_>, len: u64, fence: u8) {
        let one = std::slice::from_ref::<Segment>;
        let (kind, src, dst): (u8, &[Segment], &[Segment]) = match &operation {
            Operation::CopyLists { src, dst } => (LISTS, src, dst),
            Operation::Fill { dst, .. } => (FILL, &[], dst),
            Operation::Compare { a, b } => (COMPARE, one(a), one(b)),
            Operation::Crc32c { src, .. } => (CRC, one(src), &[]),
            Operation::CopyCrc32c { src, dst, .. } => (COPY_CRC, one(src), one(dst)),
            Operation::CopyToBoth { src, dst } => (BOTH, one(src), dst.as_slice()),
            Operation::Copy { src, dst } => (COPY, one(src), one(dst)),
            // The format has no kind for this operation, so it is recorded as an empty fill.
            _ => (FILL, &[], &[]),
        };
        self.copied = false;
        self.make_room();
        let first = kind | fence | self.same_len(len);
        self.out.byte(first);
        if first & SAME_LEN == 0 {
            self.out.number(len);
        }
        for (segments, is_src, is_list) in
            [(src, true, kind == LISTS), (dst, false, matches!(kind, LISTS | FILL))]
        {
            if is_list {
                self.out.number(segments.len() as u64);
            }
            for each in segments {
                self.make_room();
                let side = if is_src { &mut self.src } else { &mut self.dst };
                let placed = side.place(&self.known, each);
                self.out.write(|out| {
                    if is_list {
                        out.number(each.len as u64);
                    }
                    segment(out, &placed, false);
                });
            }
        }
    }
}

/// The copy that is expected next in a row of copies at equal distances.
#[derive(Clone, Copy)]
struct Expected {
    src: Segment,
    dst: Segment,
    strides: [u64; 2],
}

impl Expected {
    /// Returns true if a descriptor is the expected copy, without a fence. Then expects the next copy.
    #[inline]
    fn is(&mut self, descriptor: &Descriptor<'_>) -> bool {
        let Self { src: from, dst: to, .. } = *self;
        let same = !descriptor.fence()
            && matches!(descriptor.operation(), Operation::Copy { src, dst } if src == from && dst == to);
        self.src.addr.0 = self.src.addr.0.wrapping_add(self.strides[0]);
        self.dst.addr.0 = self.dst.addr.0.wrapping_add(self.strides[1]);
        same
    }

    /// Returns the length of the row at the beginning of a batch.
    // Not inlined, because it needs almost all registers.
    #[inline(never)]
    fn row(mut self, batch: &[Descriptor<'_>]) -> usize {
        let mut count = 0;
        for step in batch.as_chunks::<STEP>().0 {
            let mut next = self;
            if !step.iter().all(|descriptor| next.is(descriptor)) {
                break;
            }
            (self, count) = (next, count + STEP);
        }
        count + batch[count..].iter().take_while(|descriptor| self.is(descriptor)).count()
    }
}

/// Encodes a copy of one segment to another one. `flags` are [`FENCE`] and [`SAME_LEN`].
// Always inline, because the executor encodes each copy alone.
#[inline(always)]
fn copy_operation(out: &mut Place<'_>, flags: u8, len: u64, src: &Placed, dst: &Placed) {
    let same = |placed: &Placed, bit| if placed.same { bit } else { 0 };
    out.byte(COPY | flags | same(src, SAME_SRC) | same(dst, SAME_DST));
    if flags & SAME_LEN == 0 {
        out.number(len);
    }
    segment(out, src, src.same);
    segment(out, dst, dst.same);
}

/// Encodes the location of a segment.
#[inline]
fn segment(out: &mut Place<'_>, placed: &Placed, same: bool) {
    if !same {
        out.number(u64::from(placed.number));
    }
    out.number(zigzag(placed.end, placed.offset));
}

// SAFETY: all calls go to the inner queue unchanged, so its promises hold.
unsafe impl QueueHook for RecordQueue {
    unsafe fn submit(&mut self, inner: &mut dyn RawQueue, batch: &[Descriptor<'_>]) -> Result<usize> {
        let begin = now();
        // SAFETY: `batch` is unchanged, and the caller meets the requirements of `inner` for it.
        let n = unsafe { inner.submit(batch) }?;
        if n == 0 {
            return Ok(0);
        }
        let end = now();
        let this = &mut *locked(&self.recorder);
        this.end_polls();
        let batch = &batch[..n];
        this.in_flight.push(batch, |_| ());
        this.update_regions();
        this.make_room();
        let (before, call) = (this.pass(begin), this.pass(end));
        this.out.event(SUBMIT, n as u64, &[before, call]);
        this.operations(batch);
        if end.saturating_sub(this.written) > WRITE_EVERY {
            this.write();
        }
        Ok(n)
    }

    fn flush(&mut self, inner: &mut dyn RawQueue) {
        let begin = now();
        inner.flush();
        let end = now();
        let this = &mut *locked(&self.recorder);
        this.end_polls();
        let (before, call) = (this.pass(begin), this.pass(end));
        this.make_room();
        this.out.event(FLUSH, 0, &[before, call]);
    }

    fn poll(&mut self, inner: &mut dyn RawQueue, completions: &mut [Completion]) -> usize {
        let polled = *locked(&self.recorder).polled.get_or_insert_with(now);
        let n = inner.poll(completions);
        if n == 0 {
            return 0;
        }
        let this = &mut *locked(&self.recorder);
        this.polled = None;
        let mut times = [this.pass(polled), this.pass(now())];
        let Recorder { in_flight, out, record, number, trace, .. } = this;
        in_flight.take(&completions[..n], |ended| {
            if out.room() < WRITES * ROOM {
                record.write(*number, trace, out.written());
                out.clear();
            }
            let outcome = match ended.outcome {
                Outcome::Done => 0,
                Outcome::Failed(_) => 1,
                Outcome::Aborted => 2,
            };
            let in_order = outcome == 0 && ended.before == 0;
            let (kind, count) = if in_order { (DONE, ended.count) } else { (ENDED, ended.before) };
            out.event(kind, count, &std::mem::take(&mut times));
            if !in_order {
                out.byte(outcome);
            }
        });
        n
    }

    fn inline_executor(&self, inner: Arc<dyn InlineExecutor>) -> Option<Arc<dyn InlineExecutor>> {
        Some(Arc::new(RecordedExecutor { inner, recorder: Arc::clone(&self.recorder) }))
    }

    fn closing(&mut self, stats: QueueStats) {
        let this = &mut *locked(&self.recorder);
        this.end_polls();
        this.write();
        this.trace.doorbells += stats.doorbells;
        this.record.close_queue(this.number, this.trace);
        this.closed = true;
    }
}

/// Maximum number of copies that are recorded as one call.
const EXECUTED: usize = 32;

/// Records operations that the CPU executes within the call that submits them.
#[derive(Debug)]
struct RecordedExecutor {
    inner: Arc<dyn InlineExecutor>,
    recorder: Arc<Mutex<Recorder>>,
}

// SAFETY: all calls go to the inner executor unchanged, so its promises hold. The recorder does not depend on
// the queue: it outlives the queue, and records calls that end after the close.
unsafe impl InlineExecutor for RecordedExecutor {
    fn max_len(&self) -> usize {
        self.inner.max_len()
    }

    fn selects_copies(&self) -> bool {
        self.inner.selects_copies()
    }

    fn admits_copies(&self, count: u64, bytes: usize) -> bool {
        self.inner.admits_copies(count, bytes)
    }

    unsafe fn execute(&self, operation: &Operation<'_>) -> u64 {
        let begin = now();
        // SAFETY: the inner method has the same requirements, which the caller meets.
        let result = unsafe { self.inner.execute(operation) };
        let end = now();
        let mut recorder = locked(&self.recorder);
        recorder.update_regions();
        recorder.executed(begin, end, &[descriptor_of(operation)]);
        result
    }

    unsafe fn copy(&self, src: DeviceAddr, dst: DeviceAddr, len: usize) {
        let begin = now();
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { self.inner.copy(src, dst, len) };
        let end = now();
        locked(&self.recorder).executed_copy(begin, end, InlineCopy { src, dst, len });
    }

    fn batches_short_copies(&self) -> bool {
        // The clock is read once for all copies.
        true
    }

    unsafe fn copy_all(&self, copies: &[InlineCopy]) {
        for copies in copies.chunks(EXECUTED) {
            let begin = now();
            // SAFETY: the inner methods have the same requirements, which the caller meets.
            unsafe { copy_all(&*self.inner, copies) };
            let end = now();
            locked(&self.recorder).executed_copies(begin, end, copies);
        }
    }
}
