//! [`CudaQueue`]: descriptors as copies and fills of one stream.
//!
//! Copies are collected until the doorbell, and go out as one call if the driver has that. An event behind
//! them says when they have ended. A stream keeps order between calls, but not within a batch: so a fence
//! begins a new call.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents,
    QueueStats, RawQueue, Result, Segment,
};

use crate::device::Device;
use crate::driver::{Address, CUmemcpyAttributes, Driver, Handle, ORDER_STREAM};
use crate::error;
use crate::event::Signal;
use crate::fill::fill;
use crate::stream::{self, Stream};

/// Copies of one driver call at most. On an H200 with driver 580.159, 4,096 copies of 8 KiB from host to
/// device go at 17.2 GB/s in calls of 256, and at 3.5 to 5.7 GB/s in one call (`tests/hardware.rs` measures
/// it).
const CALL_LEN: usize = 256;

/// Descriptors of one fate, in the order of submission.
#[derive(Clone, Copy, Debug)]
struct Group {
    number: usize,
    /// Recorded behind them.
    event: Handle,
    /// The driver's result if it refused them; 0 if it took them.
    code: c_int,
    /// A function behind the event is queued, which has not run before the event.
    signals: bool,
}

/// A queue of a CUDA device.
#[derive(Debug)]
pub(crate) struct CudaQueue {
    engine: EngineId,
    stream: Arc<Stream>,
    depth: usize,
    /// Tokens of descriptors that are not reported: those of the groups, of `given`, and the pending ones.
    tokens: VecDeque<u64>,
    groups: VecDeque<Group>,
    /// Descriptors that the driver has, without an event behind them yet.
    given: usize,
    /// Copies for the next call.
    dsts: Vec<Address>,
    srcs: Vec<Address>,
    lens: Vec<usize>,
    /// Events that are free.
    events: Vec<Handle>,
    signal: Option<Signal>,
    /// The next completion signals, and what it takes is not queued yet.
    armed: bool,
    /// The result that ended the context.
    lost: Option<c_int>,
    stopped: bool,
    doorbells: u64,
}

impl CudaQueue {
    pub(crate) fn open(device: &Arc<Device>, engine: EngineId, depth: usize) -> Result<Self> {
        Ok(Self {
            engine,
            stream: Arc::new(Stream::new(device)?),
            depth,
            tokens: VecDeque::with_capacity(depth),
            groups: VecDeque::with_capacity(depth),
            given: 0,
            dsts: Vec::with_capacity(depth),
            srcs: Vec::with_capacity(depth),
            lens: Vec::with_capacity(depth),
            events: Vec::with_capacity(depth),
            signal: None,
            armed: false,
            lost: None,
            stopped: false,
            doorbells: 0,
        })
    }

    pub(crate) const fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Adds a copy to the next call.
    #[inline]
    fn push(&mut self, token: u64, src: Segment, dst: Segment) {
        self.dsts.push(dst.addr.0);
        self.srcs.push(src.addr.0);
        self.lens.push(dst.len);
        self.tokens.push_back(token);
    }

    /// Hands pending copies to the driver.
    fn issue(&mut self) {
        let number = self.dsts.len();
        if number == 0 {
            return;
        }
        let (dsts, srcs, lens, stream) = (&mut self.dsts, &mut self.srcs, &mut self.lens, self.stream.handle);
        // The call may fail before it copies: then nothing was taken.
        let mut taken = 0;
        // SAFETY: the arrays have one length, and name memory by the promise of the caller of `submit`.
        let issued =
            self.stream.device.call(|driver| unsafe { copy(driver, dsts, srcs, lens, stream, &mut taken) });
        self.dsts.clear();
        self.srcs.clear();
        self.lens.clear();
        self.given += taken;
        if let Err(code) = issued {
            self.refused(number - taken, code);
        }
    }

    /// Ends `number` descriptors that the driver did not take.
    ///
    /// A batch that was refused may have begun, so it is reported once an event behind it has happened.
    #[cold]
    fn refused(&mut self, number: usize, code: c_int) {
        self.close_group(0);
        self.given += number;
        self.close_group(code);
    }

    /// Records an event behind what the driver has.
    fn close_group(&mut self, code: c_int) {
        if self.given == 0 || self.lost.is_some() {
            return;
        }
        let recorded = match self.events.pop() {
            Some(event) => Ok(event),
            None => stream::event(&self.stream.device),
        }
        .and_then(|event| {
            // SAFETY: an event and a stream of this device.
            let record = |driver: &Driver| unsafe { (driver.cuEventRecord)(event, self.stream.handle) };
            self.stream.device.call(record).map(|()| event)
        });
        match recorded {
            Ok(event) => {
                self.groups.push_back(Group { number: self.given, event, code, signals: false });
                self.given = 0;
                if self.armed {
                    self.signal_first();
                }
            }
            // Without an event nothing says when they end.
            Err(code) => self.lose(code),
        }
    }

    /// Gives up everything that the driver has: the device may still access its memory.
    #[cold]
    fn lose(&mut self, code: c_int) {
        if self.lost.is_none() {
            let device = &self.stream.device;
            let why = crate::device::explain(&device.driver, code);
            tracing::error!(device = device.name, %why, in_flight = self.tokens.len(), "a CUDA context is lost");
            self.lost = Some(code);
            if let Some(signal) = &self.signal {
                signal.set();
            }
        }
    }

    /// Fills one list.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn fill(&self, pattern: [u8; 8], list: &[Segment]) -> Result<(), c_int> {
        let mut answer = Ok(());
        let called = self.stream.device.call(|driver| {
            let mut phase = 0;
            for segment in list {
                // SAFETY: `call` makes the context current, and the caller of `submit` leaves the segment to
                // the queue until the completion.
                answer =
                    unsafe { fill(driver, segment.addr.0, segment.len, pattern, phase, self.stream.handle) };
                if answer.is_err() {
                    break;
                }
                phase = (phase + segment.len) % 8;
            }
            0
        });
        called.and(answer)
    }

    /// Writes ended descriptors to the front of `completions`.
    fn report(&mut self, completions: &mut [Completion]) -> usize {
        let mut reported = 0;
        while reported < completions.len() && self.lost.is_none() {
            let Some(Group { number, event, code, .. }) = self.groups.front_mut() else { break };
            // SAFETY: an event of this device.
            match self.stream.device.call(|driver| unsafe { (driver.cuEventQuery)(*event) }) {
                Ok(()) => {}
                Err(error::NOT_READY) => break,
                Err(code) => {
                    self.lose(code);
                    break;
                }
            }
            let most = (*number).min(completions.len() - reported);
            let code = *code;
            for (completion, token) in completions[reported..].iter_mut().zip(self.tokens.drain(..most)) {
                *completion = match code {
                    0 => Completion::done(token),
                    code => Completion::ended(token, Outcome::Failed(error::kind(code)), code),
                };
            }
            reported += most;
            *number -= most;
            if *number == 0 {
                self.events.push(*event);
                self.groups.pop_front();
            }
        }
        reported
    }

    /// Reports what the driver never had, if nothing before it is left to report.
    #[cold]
    fn report_unissued(&mut self, completions: &mut [Completion]) -> usize {
        let had: usize = self.groups.iter().map(|group| group.number).sum::<usize>() + self.given;
        if had > 0 && self.lost.is_none() {
            return 0;
        }
        let most = (self.tokens.len() - had).min(completions.len());
        for (completion, token) in completions.iter_mut().zip(self.tokens.drain(had..had + most)) {
            *completion = Completion::ended(token, Outcome::Aborted, 0);
        }
        most
    }

    /// Queues the signal of the first transfers in flight.
    fn signal_first(&mut self) {
        let (Some(signal), Some(group)) = (&self.signal, self.groups.front_mut()) else { return };
        self.armed = false;
        if group.signals {
            return;
        }
        match signal.signal_after(group.event) {
            Ok(()) => group.signals = true,
            Err(code) => {
                // The owner polls, and sees what is wrong.
                tracing::debug!(code, "the driver queues no function");
                signal.set();
            }
        }
    }

    fn lost_error(&self, code: c_int) -> Error {
        self.stream.device.failed("the device's context is lost", code)
    }
}

/// Copies all entries of the arrays, by calls of [`CALL_LEN`] entries if the driver has them. Adds the number
/// that it took to `taken`.
///
/// # Safety
///
/// The arrays have one length, at least 1, and name memory that both sides reach. The context is current, and
/// the stream is one of it.
unsafe fn copy(
    driver: &Driver,
    dsts: &mut [Address],
    srcs: &mut [Address],
    lens: &mut [usize],
    stream: Handle,
    taken: &mut usize,
) -> c_int {
    let calls = dsts.chunks_mut(CALL_LEN).zip(srcs.chunks_mut(CALL_LEN)).zip(lens.chunks_mut(CALL_LEN));
    for ((dsts, srcs), lens) in calls {
        let number = dsts.len();
        // Earlier transfers of the stream may write what these read.
        let mut attributes = CUmemcpyAttributes { order: ORDER_STREAM, src: [0; 2], dst: [0; 2], flags: 0 };
        let attributes = &raw mut attributes;
        let mut first = 0_usize;
        let first = &raw mut first;
        let (dst, src, len) = (dsts.as_mut_ptr(), srcs.as_mut_ptr(), lens.as_mut_ptr());
        let code = match (driver.cuMemcpyBatchAsync_v2, driver.cuMemcpyBatchAsync) {
            (Some(batch), _) if number > 1 => {
                // SAFETY: the chunks have `number` entries each, of memory that both sides reach, and there
                // is one kind of attributes.
                unsafe { batch(dst, src, len, number, attributes, first, 1, stream) }
            }
            (None, Some(batch)) if number > 1 => {
                let mut failed = 0;
                // SAFETY: the chunks have `number` entries each, of memory that both sides reach; `failed`
                // takes the number of the entry that failed.
                unsafe { batch(dst, src, len, number, attributes, first, 1, &raw mut failed, stream) }
            }
            _ => {
                let mut entries = dsts.iter().zip(&*srcs).zip(&*lens);
                let copied = entries.try_for_each(|((dst, src), len)| {
                    // SAFETY: the entry names memory that both sides reach.
                    let code = unsafe { (driver.cuMemcpyAsync)(*dst, *src, *len, stream) };
                    *taken += usize::from(code == 0);
                    if code == 0 { Ok(()) } else { Err(code) }
                });
                match copied {
                    Ok(()) => continue,
                    Err(code) => code,
                }
            }
        };
        if code != 0 {
            return code;
        }
        *taken += number;
    }
    0
}

// SAFETY: descriptors are reported in order, each once: after an event behind them, or if the driver never
// had them. After such an event the device accesses their memory no more, and its writes are visible.
// Descriptors in flight when the context is lost are never reported.
unsafe impl RawQueue for CudaQueue {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if let Some(code) = self.lost {
            return Err(self.lost_error(code));
        }
        let room = self.depth - self.tokens.len();
        for (at, descriptor) in batch.iter().take(room).enumerate() {
            if let Some((src, dst)) = descriptor.as_unfenced_copy() {
                self.push(descriptor.token(), src, dst);
                continue;
            }
            // Calls keep order; copies of one call do not.
            self.issue();
            match descriptor.operation() {
                Operation::Copy { src, dst } => self.push(descriptor.token(), src, dst),
                Operation::Fill { pattern, dst } => {
                    self.tokens.push_back(descriptor.token());
                    // SAFETY: the caller of `submit` leaves the destination to the queue until the
                    // completion.
                    match unsafe { self.fill(pattern, dst) } {
                        Ok(()) => self.given += 1,
                        Err(code) => self.refused(1, code),
                    }
                }
                _ if at == 0 => {
                    return Err(error::error(
                        ErrorKind::Unsupported,
                        "an operation that the engine does not declare",
                    ));
                }
                _ => return Ok(at),
            }
        }
        Ok(room.min(batch.len()))
    }

    fn flush(&mut self) {
        if self.stopped || self.lost.is_some() || (self.dsts.is_empty() && self.given == 0) {
            return;
        }
        self.doorbells += 1;
        self.issue();
        self.close_group(0);
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let reported = self.report(completions);
        if self.stopped || self.lost.is_some() {
            return reported + self.report_unissued(&mut completions[reported..]);
        }
        reported
    }

    fn explain(&self, native: i32) -> NativeError {
        crate::device::explain(&self.stream.device.driver, native)
    }

    fn stop(&mut self) {
        if !self.stopped {
            // The driver takes nothing back: what it has ends by itself.
            self.close_group(0);
            self.dsts.clear();
            self.stopped = true;
            if let Some(signal) = &self.signal {
                signal.set();
            }
        }
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, 0)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        if self.signal.is_none() {
            self.stream.device.driver.cuLaunchHostFunc?;
            let signal = Stream::new(&self.stream.device).and_then(Signal::new);
            self.signal =
                signal.inspect_err(|error| tracing::warn!(%error, "a queue cannot be slept on")).ok();
        }
        self.signal.is_some().then_some(self as &mut dyn QueueEvents)
    }
}

impl QueueEvents for CudaQueue {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.signal.as_ref().map(Signal::fd).expect("`events` made it"))
    }

    fn arm(&mut self) -> Result<bool> {
        if self.stopped || self.lost.is_some() {
            return Ok(false);
        }
        self.armed = true;
        let Some(group) = self.groups.front() else { return Ok(true) };
        // SAFETY: an event of this device.
        match self.stream.device.call(|driver| unsafe { (driver.cuEventQuery)(group.event) }) {
            Err(error::NOT_READY) => {
                self.signal_first();
                Ok(true)
            }
            // It has ended, or polling finds out why it never will.
            _ => {
                self.armed = false;
                Ok(false)
            }
        }
    }

    fn disarm(&mut self) {
        self.armed = false;
        if let Some(signal) = &self.signal {
            signal.clear();
        }
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        if !self.groups.is_empty() || self.given > 0 {
            // Leaks the stream and the events, because transfers in flight continue.
            let stream = Arc::clone(&self.stream);
            std::mem::forget(stream);
            return;
        }
        for event in self.events.drain(..) {
            stream::destroy(&self.stream.device, event);
        }
    }
}
