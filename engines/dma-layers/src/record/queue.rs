//! [`RecordQueue`]: encodes the events of one queue.

use std::sync::Arc;

use dma_core::{Completion, Descriptor, Operation, Outcome, QueueStats, RawQueue, Result, Segment};

use super::content::QueueTrace;
use super::format::{
    BOTH, COMPARE, COPY, COPY_CRC, CRC, DONE, ENDED, Encoder, FENCE, FILL, FLUSH, LISTS, POLL, Place, REPEAT,
    ROOM, SAME_DST, SAME_LEN, SAME_SRC, STRIDE, SUBMIT, TIME, zigzag,
};
use super::regions::{Known, Placed, TracedSide};
use super::state::Record;
use crate::in_flight::InFlight;
use crate::os_clock;
use crate::wrapper::QueueHook;

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

/// Encodes the events of a queue.
#[derive(Debug)]
pub(super) struct RecordQueue {
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
    record: Arc<Record>,
}

impl RecordQueue {
    pub(super) fn new(number: u32, trace: QueueTrace, record: Arc<Record>) -> Self {
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
        self.record.write(self.number, self.out.written());
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
        let same = |placed: &Placed, bit| if placed.same { bit } else { 0 };
        self.out.write(|out| {
            out.byte(COPY | fence | same_len | same(&src, SAME_SRC) | same(&dst, SAME_DST));
            if same_len == 0 {
                out.number(len);
            }
            segment(out, &src, src.same);
            segment(out, &dst, dst.same);
        });
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
        self.end_polls();
        let batch = &batch[..n];
        self.in_flight.push(batch, |_| ());
        if self.known.update(&self.record.regions) {
            self.src.forget();
            self.dst.forget();
        }
        self.make_room();
        let (before, call) = (self.pass(begin), self.pass(end));
        self.out.event(SUBMIT, n as u64, &[before, call]);
        self.trace.operations += n as u64;
        let mut rest = batch;
        while let Some((first, others)) = rest.split_first() {
            self.operation(first);
            let repeats = self.repeats(others);
            self.trace.bytes += self.len * (1 + repeats as u64);
            rest = &others[repeats..];
        }
        if end.saturating_sub(self.written) > WRITE_EVERY {
            self.write();
        }
        Ok(n)
    }

    fn flush(&mut self, inner: &mut dyn RawQueue) {
        let begin = now();
        inner.flush();
        let end = now();
        self.end_polls();
        let (before, call) = (self.pass(begin), self.pass(end));
        self.make_room();
        self.out.event(FLUSH, 0, &[before, call]);
    }

    fn poll(&mut self, inner: &mut dyn RawQueue, completions: &mut [Completion]) -> usize {
        let polled = *self.polled.get_or_insert_with(now);
        let n = inner.poll(completions);
        if n == 0 {
            return 0;
        }
        self.polled = None;
        let mut times = [self.pass(polled), self.pass(now())];
        let Self { in_flight, out, record, number, .. } = self;
        in_flight.take(&completions[..n], |ended| {
            if out.room() < WRITES * ROOM {
                record.write(*number, out.written());
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

    fn closing(&mut self, stats: QueueStats) {
        self.end_polls();
        self.write();
        self.trace.doorbells = stats.doorbells;
        self.record.close_queue(self.number, self.trace);
    }
}
