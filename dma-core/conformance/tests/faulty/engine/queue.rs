//! The queue and the inline executor of the engine with a fault.

use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dma_core::{
    Completion, Descriptor, DeviceAddr, EngineId, Error, ErrorKind, InlineExecutor, NativeError, Operation,
    Outcome, QueueEvents, QueueStats, RawQueue, Result, Segment,
};

use super::Fault;

/// A descriptor in flight.
#[derive(Debug)]
struct InFlight {
    token: u64,
    is_third: bool,
    kind: Kind,
    dst: Vec<Segment>,
    pattern: [u8; 8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Copy,
    Lists,
    Fill,
    Compare,
    CopyCrc,
    Both,
    Other,
}

#[derive(Debug)]
pub(super) struct FaultyQueue {
    inner: Box<dyn RawQueue>,
    fault: Fault,
    /// Number of copies of one segment that were accepted.
    copies: u64,
    in_flight: Vec<InFlight>,
    /// Reports that do not come from the inner queue.
    own: VecDeque<Completion>,
    stops: u32,
    /// Destinations to write when the queue is dropped.
    late: Vec<Segment>,
    had_events: Arc<AtomicBool>,
    /// The event that `arm` does not use.
    event: Option<(PipeReader, PipeWriter)>,
}

/// Flips the bits of the byte at `at` in `list`.
fn flip(list: &[Segment], mut at: usize) {
    for segment in list {
        if at < segment.len {
            // SAFETY: the callers pass destinations of a descriptor that the inner queue has completed, and
            // that is not reported yet. So they belong to this queue.
            unsafe { *segment.addr.offset(at).as_ptr() ^= 0xff };
            return;
        }
        at -= segment.len;
    }
}

impl FaultyQueue {
    pub(super) fn new(inner: Box<dyn RawQueue>, fault: Fault, had_events: Arc<AtomicBool>) -> Self {
        Self {
            inner,
            fault,
            copies: 0,
            in_flight: Vec::new(),
            own: VecDeque::new(),
            stops: 0,
            late: Vec::new(),
            had_events,
            event: matches!(fault, Fault::ArmDoesNothing | Fault::EventStaysReadable).then(|| {
                let (reader, mut writer) = std::io::pipe().expect("a pipe");
                if fault == Fault::EventStaysReadable {
                    writer.write_all(&[0]).expect("a pipe has room");
                }
                (reader, writer)
            }),
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Submits one descriptor. Returns the number of accepted descriptors.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn submit_one(&mut self, descriptor: &Descriptor<'_>) -> Result<usize> {
        let token = descriptor.token();
        let (mut kind, mut dst, mut pattern) = (Kind::Other, Vec::new(), [0; 8]);
        let mut changed = None;
        match descriptor.operation() {
            Operation::Copy { src, dst: to } => {
                (kind, dst) = (Kind::Copy, vec![to]);
                if self.is(Fault::LongCopiesAreShort) && to.len > 1000 {
                    let less = |segment: Segment| Segment { len: segment.len - 1, ..segment };
                    changed = Some(Descriptor::copy(token, less(src), less(to)));
                }
            }
            Operation::CopyLists { dst: to, .. } => (kind, dst) = (Kind::Lists, to.to_vec()),
            Operation::Fill { pattern: bytes, dst: to } => {
                (kind, dst, pattern) = (Kind::Fill, to.to_vec(), bytes);
                if self.is(Fault::PatternIsReversed) {
                    let mut reversed = bytes;
                    reversed.reverse();
                    changed = Some(Descriptor::fill(token, reversed, to));
                }
            }
            Operation::Compare { .. } => kind = Kind::Compare,
            Operation::Crc32c { src, .. } if self.is(Fault::CrcWithoutSeed) => {
                changed = Some(Descriptor::crc32c(token, src, 0));
            }
            Operation::CopyCrc32c { dst: to, .. } => (kind, dst) = (Kind::CopyCrc, vec![to]),
            Operation::CopyToBoth { dst: to, .. } => (kind, dst) = (Kind::Both, to.to_vec()),
            _ => {}
        }
        let descriptor = changed.map_or(*descriptor, |changed| changed.with_fence(descriptor.fence()));
        let descriptor = descriptor.with_fence(descriptor.fence() && !self.is(Fault::FencesIgnored));
        let taken = if self.is(Fault::NothingIsCopied) && kind == Kind::Copy {
            self.own.push_back(Completion::done(token));
            return Ok(1);
        } else {
            // SAFETY: the caller meets the requirements for the descriptor. A fault reads and writes a part
            // of its ranges.
            unsafe { self.inner.submit(&[descriptor]) }?
        };
        if taken == 1 {
            self.copies += u64::from(kind == Kind::Copy);
            let is_third = kind == Kind::Copy && self.copies == 3;
            self.in_flight.push(InFlight { token, is_third, kind, dst, pattern });
        }
        Ok(taken)
    }

    /// Changes the completion of a descriptor that the inner queue has completed. Returns the number of
    /// reports of it.
    fn change(&mut self, completion: &mut Completion) -> usize {
        let at = self.in_flight.iter().position(|flight| flight.token == completion.token);
        let ended = self.in_flight.swap_remove(at.expect("the inner queue reports what is in flight"));
        let done = completion.outcome == Outcome::Done;
        let InFlight { is_third, kind, dst, pattern, .. } = ended;
        let len = dst.iter().map(|segment| segment.len).sum::<usize>();
        match self.fault {
            Fault::ThirdIsLost if is_third => return 0,
            Fault::ThirdFails if is_third => completion.outcome = Outcome::Failed(ErrorKind::DeviceFault),
            Fault::ThirdIsReportedTwice if is_third => return 2,
            Fault::ThirdIsWrong if is_third => flip(&dst, 0),
            Fault::TokensAreCutOff => completion.token &= 0x7f,
            Fault::ByteAfterIsWritten if kind == Kind::Copy && done => {
                let end = dst[0].addr.offset(dst[0].len);
                // SAFETY: the case that runs with this fault has more bytes of the buffer behind each
                // destination, and accesses them only between the calls of the queue.
                unsafe { end.as_ptr().write(0x77) };
            }
            Fault::LastPartOfListIsWrong if kind == Kind::Lists && done => flip(&dst, len - 1),
            Fault::PatternRestartsInLists if kind == Kind::Fill && done => {
                for segment in &dst {
                    for at in 0..segment.len {
                        // SAFETY: the destination belongs to this queue until the descriptor is reported.
                        unsafe { segment.addr.offset(at).as_ptr().write(pattern[at % 8]) };
                    }
                }
            }
            Fault::SecondDestinationIsWrong if kind == Kind::Both && done => flip(&dst[1..], 0),
            Fault::AllCompareEqual if kind == Kind::Compare => completion.result = Completion::EQUAL,
            Fault::DifferenceIsOff if kind == Kind::Compare && completion.result != Completion::EQUAL => {
                completion.result += 1;
            }
            Fault::CrcOfCopyIsWrong if kind == Kind::CopyCrc => completion.result ^= 1,
            Fault::CopyWithCrcIsWrong if kind == Kind::CopyCrc && done => flip(&dst, len / 2),
            Fault::StopFails if !done => completion.outcome = Outcome::Failed(ErrorKind::DeviceFault),
            Fault::StopIsDone if !done => completion.outcome = Outcome::Done,
            Fault::StopWritesLater if !done => self.late.extend(dst),
            Fault::StopReportsNothing if !done => return 0,
            _ => {}
        }
        1
    }
}

impl Drop for FaultyQueue {
    fn drop(&mut self) {
        for segment in &self.late {
            // SAFETY: the case that runs with this fault keeps the regions until the queue is dropped, and
            // accesses their bytes only between the calls of the queue.
            unsafe { segment.addr.as_ptr().write(0x77) };
        }
    }
}

// SAFETY: the inner queue conforms. For the faults, see `Faulty`.
unsafe impl RawQueue for FaultyQueue {
    fn engine_id(&self) -> EngineId {
        if self.is(Fault::QueueOfOtherEngine) { EngineId::unique() } else { self.inner.engine_id() }
    }

    fn depth(&self) -> usize {
        let depth = self.inner.depth();
        depth - usize::from(matches!(self.fault, Fault::ShallowQueue | Fault::AcceptsBeyondDepth))
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stops > 0 {
            match self.fault {
                Fault::StoppedAccepts => return Ok(batch.len()),
                Fault::StoppedRefusesWrongly => return Err(Error::bare(ErrorKind::DeviceLost)),
                Fault::StoppedTwiceStarts if self.stops == 2 => return Ok(0),
                _ => {}
            }
        }
        let mut taken = 0;
        for descriptor in batch {
            if self.is(Fault::AcceptsLessThanDepth) && self.in_flight.len() + 1 == self.inner.depth() {
                break;
            }
            // SAFETY: the caller meets the requirements for every descriptor of the batch.
            match unsafe { self.submit_one(descriptor) } {
                Ok(0) => break,
                Ok(n) => taken += n,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if taken == 0 && self.is(Fault::FullIsAnError) {
            return Err(Error::bare(ErrorKind::OutOfResources));
        }
        Ok(taken)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let mut n = 0;
        while n < completions.len() {
            if let Some(own) = self.own.pop_front() {
                completions[n] = own;
                n += 1;
                continue;
            }
            let mut completion = [Completion::done(0)];
            if self.inner.poll(&mut completion) == 0 {
                break;
            }
            let reports = self.change(&mut completion[0]);
            // A second report that has no room replaces the next one.
            let room = reports.min(completions.len() - n);
            completions[n..n + room].fill(completion[0]);
            n += room;
            if reports > room {
                self.own.push_back(completion[0]);
            }
        }
        match self.fault {
            Fault::ReportsWithoutDescriptor if self.in_flight.is_empty() && n == 0 => {
                completions[0] = Completion::done(1);
                1
            }
            Fault::ReportsBeyondTheArray if n == completions.len() => n + 1,
            _ => n,
        }
    }

    fn explain(&self, code: i32) -> NativeError {
        let explained = self.inner.explain(code);
        if self.is(Fault::CodeDropped) { NativeError { code: 0, ..explained } } else { explained }
    }

    fn stop(&mut self) {
        self.stops += 1;
        self.inner.stop();
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        match self.fault {
            Fault::EventsComeAndGo if self.had_events.swap(true, Ordering::Relaxed) => None,
            _ if self.event.is_some() => Some(self),
            _ => self.inner.events(),
        }
    }

    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        let inner = self.inner.inline_executor()?;
        Some(Arc::new(FaultyExecutor { inner, fault: self.fault }))
    }
}

impl QueueEvents for FaultyQueue {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.event.as_ref().expect("`events` returned it").0.as_fd())
    }

    fn arm(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn disarm(&mut self) {}
}

#[derive(Debug)]
struct FaultyExecutor {
    inner: Arc<dyn InlineExecutor>,
    fault: Fault,
}

// SAFETY: the inner executor conforms. A fault copies fewer bytes, or changes the result.
unsafe impl InlineExecutor for FaultyExecutor {
    fn max_len(&self) -> usize {
        self.inner.max_len()
    }

    unsafe fn execute(&self, operation: &Operation<'_>) -> u64 {
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        let result = unsafe { self.inner.execute(operation) };
        result ^ u64::from(self.fault == Fault::ExecutorChangesResults)
    }

    unsafe fn copy(&self, src: DeviceAddr, dst: DeviceAddr, len: usize) {
        let len = len - usize::from(self.fault == Fault::ExecutorCopiesLess && len > 1);
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them for a
        // part.
        unsafe { self.inner.copy(src, dst, len) };
    }
}
