//! [`CudaQueue`]: executes descriptors as copies and fills of one stream.
//!
//! Copies are collected until the doorbell, and then submitted as one call if the driver has batches. An
//! event that is recorded after the copies shows when they have ended. A stream keeps order between calls,
//! but not within a batch, so a fence begins a new call.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use crate::device::Device;
use crate::driver::{Address, CUmemcpyAttributes, Driver, Handle, ORDER_STREAM};
use crate::error;
use crate::event::Signal;
use crate::fill::fill;
use crate::stream::{self, Stream};
use crate::tokens::Tokens;
use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents,
    QueueStats, RawQueue, Result, Segment,
};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Maximum number of copies in one call of the driver. On an H200 with driver 580.159, 4,096 copies of 8 KiB
/// from host to device reach 17.2 GB/s in calls of 256, and 3.5 to 5.7 GB/s in one call (`tests/hardware.rs`
/// measures these rates).
const CALL_LEN: usize = 256;

/// Consecutive descriptors that end together, with the same result.
#[derive(Clone, Copy, Debug)]
struct Group {
    number: usize,
    /// The event that was recorded after these descriptors.
    event: Handle,
    /// The driver's error code if it refused these descriptors; 0 if it accepted them.
    code: c_int,
    /// True if a function was queued after the event. This function runs only after the event has happened.
    signals: bool,
}

/// Copies that are not submitted to the driver yet, in the arrays that its call takes. Each array has the
/// queue's depth, so that none grows.
#[derive(Debug)]
struct Pending {
    number: usize,
    dsts: Box<[Address]>,
    srcs: Box<[Address]>,
    lens: Box<[usize]>,
}

impl Pending {
    fn new(depth: usize) -> Self {
        let zeros = || vec![0; depth].into_boxed_slice();
        Self { number: 0, dsts: zeros(), srcs: zeros(), lens: vec![0; depth].into_boxed_slice() }
    }

    /// Returns the free entries: destination, source, length.
    #[inline]
    fn free(&mut self) -> impl Iterator<Item = ((&mut Address, &mut Address), &mut usize)> {
        let Self { number, dsts, srcs, lens } = self;
        dsts[*number..].iter_mut().zip(&mut srcs[*number..]).zip(&mut lens[*number..])
    }
}

/// A queue of a CUDA device.
#[derive(Debug)]
pub(crate) struct CudaQueue {
    engine: EngineId,
    stream: Arc<Stream>,
    depth: usize,
    /// Tokens of unreported descriptors: first those of the groups, then the `submitted` ones, then the
    /// pending ones.
    tokens: Tokens,
    groups: VecDeque<Group>,
    /// Number of descriptors that were submitted to the driver since the last recorded event.
    submitted: usize,
    /// Copies for the next call.
    pending: Pending,
    /// Unused events.
    events: Vec<Handle>,
    signal: Option<Signal>,
    /// True if the next completion must signal the owner, and the signal is not queued yet.
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
            tokens: Tokens::new(depth),
            groups: VecDeque::with_capacity(depth),
            submitted: 0,
            pending: Pending::new(depth),
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

    /// Adds the unfenced copies at the start of `batch` to the next call, at most up to the end of the token
    /// array. Returns the number of copies added.
    #[inline]
    fn push_copies(&mut self, batch: &[Descriptor<'_>]) -> usize {
        let places = self.tokens.free().iter_mut().zip(self.pending.free());
        let mut pushed = 0;
        for (descriptor, (token, ((to, from), len))) in batch.iter().zip(places) {
            let Some((src, dst)) = descriptor.as_unfenced_copy() else { break };
            *token = descriptor.token();
            (*to, *from, *len) = (dst.addr.0, src.addr.0, dst.len);
            pushed += 1;
        }
        self.tokens.number += pushed;
        self.pending.number += pushed;
        pushed
    }

    /// Submits pending copies to the driver.
    fn issue(&mut self) {
        let Pending { number, dsts, srcs, lens } = &mut self.pending;
        let number = std::mem::take(number);
        if number == 0 {
            return;
        }
        let (dsts, srcs, lens) = (&mut dsts[..number], &mut srcs[..number], &mut lens[..number]);
        let stream = self.stream.handle;
        // If the call fails before the first copy, `taken` stays 0: the driver has accepted no copy.
        let mut taken = 0;
        // SAFETY: the arrays have the same length, which is not 0. The caller of `submit` ensures that both
        // sides of each copy are memory that the device reaches. `call` makes the context of the stream
        // current.
        let issued =
            self.stream.device.call(|driver| unsafe { copy(driver, dsts, srcs, lens, stream, &mut taken) });
        self.submitted += taken;
        if let Err(code) = issued {
            self.refused(number - taken, code);
        }
    }

    /// Ends `number` descriptors that the driver refused.
    ///
    /// A refused call may have executed some of its copies. Therefore its descriptors are reported only after
    /// an event that is recorded now has happened.
    #[cold]
    fn refused(&mut self, number: usize, code: c_int) {
        self.close_group(0);
        self.submitted += number;
        self.close_group(code);
    }

    /// Records an event after all descriptors that were submitted to the driver. They end with the result
    /// `code`.
    fn close_group(&mut self, code: c_int) {
        if self.submitted == 0 || self.lost.is_some() {
            return;
        }
        let recorded = match self.events.pop() {
            Some(event) => Ok(event),
            None => stream::event(&self.stream.device),
        }
        .and_then(|event| {
            // SAFETY: the event and the stream belong to this device and exist.
            let record = |driver: &Driver| unsafe { (driver.cuEventRecord)(event, self.stream.handle) };
            self.stream.device.call(record).map(|()| event)
        });
        match recorded {
            Ok(event) => {
                self.groups.push_back(Group { number: self.submitted, event, code, signals: false });
                self.submitted = 0;
                if self.armed {
                    self.signal_first();
                }
            }
            // Without an event, the end of these descriptors cannot be observed.
            Err(code) => self.lose(code),
        }
    }

    /// Marks the context as lost. Descriptors in flight are never reported, because the device may still
    /// access their memory.
    #[cold]
    fn lose(&mut self, code: c_int) {
        if self.lost.is_none() {
            let device = &self.stream.device;
            let why = crate::device::explain(&device.driver, code);
            dma_core::guarded_log!(error, device = device.name, %why, in_flight = self.tokens.number, "a CUDA context is lost");
            self.lost = Some(code);
            if let Some(signal) = &self.signal {
                signal.set();
            }
        }
    }

    /// Submits fills of all segments of a list.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn fill(&self, pattern: [u8; 8], list: &[Segment]) -> Result<(), c_int> {
        let mut answer = Ok(());
        let called = self.stream.device.call(|driver| {
            let mut phase = 0;
            for segment in list {
                // SAFETY: `call` makes the context of the stream current. The caller of `submit` ensures that
                // the device reaches the segment, and that no other code accesses it until the completion.
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
            // SAFETY: the event belongs to this device and exists.
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
            let outcome = if code == 0 { Outcome::Done } else { Outcome::Failed(error::kind(code)) };
            let mut left = &mut completions[reported..reported + most];
            while !left.is_empty() {
                // The loop runs twice if the range passes the end of the array.
                let tokens = self.tokens.first(left.len());
                let (now, later) = left.split_at_mut(tokens.len());
                for (completion, token) in now.iter_mut().zip(tokens) {
                    *completion = Completion::ended(*token, outcome, code);
                }
                self.tokens.remove_first(now.len());
                left = later;
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

    /// Reports the descriptors that were never passed to the driver as aborted, once all earlier ones are
    /// reported or the context is lost.
    #[cold]
    fn report_unissued(&mut self, completions: &mut [Completion]) -> usize {
        let had: usize = self.groups.iter().map(|group| group.number).sum::<usize>() + self.submitted;
        if had > 0 && self.lost.is_none() {
            return 0;
        }
        let most = (self.tokens.number - had).min(completions.len());
        for (at, completion) in (had..).zip(&mut completions[..most]) {
            let token = self.tokens.get(at);
            *completion = Completion::ended(token, Outcome::Aborted, 0);
        }
        self.tokens.remove(had, most);
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
                // The signal wakes the owner, whose poll finds the failure.
                dma_core::guarded_log!(debug, code, "the driver refuses to queue a host function");
                signal.set();
            }
        }
    }

    fn lost_error(&self, code: c_int) -> Error {
        self.stream.device.failed("the device's context is lost", code)
    }
}

/// Copies all entries of the arrays, by calls of [`CALL_LEN`] entries if the driver has batches. Adds the
/// number of accepted copies to `taken`.
///
/// # Safety
///
/// The arrays have the same length, at least 1, and name memory that the device reaches. The context is
/// current, and the stream belongs to it.
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
        // Stream order, because earlier transfers of the stream may write the sources of these copies.
        let mut attributes = CUmemcpyAttributes { order: ORDER_STREAM, src: [0; 2], dst: [0; 2], flags: 0 };
        let attributes = &raw mut attributes;
        let mut first = 0_usize;
        let first = &raw mut first;
        let (dst, src, len) = (dsts.as_mut_ptr(), srcs.as_mut_ptr(), lens.as_mut_ptr());
        let code = match (driver.cuMemcpyBatchAsync_v2, driver.cuMemcpyBatchAsync) {
            (Some(batch), _) if number > 1 => {
                // SAFETY: the chunks have `number` entries each, of memory that the device reaches;
                // `attributes` and `first` have one entry. The caller made the context of the stream current.
                unsafe { batch(dst, src, len, number, attributes, first, 1, stream) }
            }
            (None, Some(batch)) if number > 1 => {
                let mut failed = 0;
                // SAFETY: the chunks have `number` entries each, of memory that the device reaches;
                // `attributes` and `first` have one entry, and `failed` is valid for the write. The caller
                // made the context of the stream current.
                unsafe { batch(dst, src, len, number, attributes, first, 1, &raw mut failed, stream) }
            }
            _ => {
                let mut entries = dsts.iter().zip(&*srcs).zip(&*lens);
                let copied = entries.try_for_each(|((dst, src), len)| {
                    // SAFETY: the entry names memory that the device reaches, and the caller made the context
                    // of the stream current.
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

// SAFETY: descriptors are reported in order, each once: after an event that was recorded after them has
// happened, or if the driver never had them. After such an event the device no longer accesses their memory,
// and its writes are visible. Descriptors in flight when the context is lost are never reported.
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
        let batch = &batch[..batch.len().min(self.depth - self.tokens.number)];
        let mut at = 0;
        loop {
            at += self.push_copies(&batch[at..]);
            let Some(descriptor) = batch.get(at) else { return Ok(at) };
            if descriptor.as_unfenced_copy().is_some() {
                // The token ring wraps at the end of its array.
                continue;
            }
            // Calls are executed in order, but copies of one call are not.
            self.issue();
            match descriptor.operation() {
                Operation::Copy { .. } => _ = self.push_copies(&[descriptor.with_fence(false)]),
                Operation::Fill { pattern, dst } => {
                    self.tokens.push(descriptor.token());
                    // SAFETY: the caller meets the requirements of this function for the descriptor.
                    match unsafe { self.fill(pattern, dst) } {
                        Ok(()) => self.submitted += 1,
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
            at += 1;
        }
    }

    fn flush(&mut self) {
        if self.stopped || self.lost.is_some() || (self.pending.number == 0 && self.submitted == 0) {
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
            // The driver cannot cancel work: descriptors in flight end by themselves.
            self.close_group(0);
            self.pending.number = 0;
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
                signal.inspect_err(|error| dma_core::guarded_log!(warn, %error, "a queue cannot signal its completions, so its users have to poll")).ok();
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
        // SAFETY: the event belongs to this device and exists.
        match self.stream.device.call(|driver| unsafe { (driver.cuEventQuery)(group.event) }) {
            Err(error::NOT_READY) => {
                self.signal_first();
                Ok(true)
            }
            // The work has ended, or the next poll reports the failure.
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
        if !self.groups.is_empty() || self.submitted > 0 {
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
