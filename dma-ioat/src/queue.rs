//! A queue: one channel and its descriptors in flight.
#![expect(unsafe_code, reason = "implements `RawQueue` on SPDK's calls")]

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents,
    QueueOptions, QueueStats, RawQueue, Result, STOP_GRACE, Segment,
};
use spdk_sys::Ioat;
use spdk_sys::bindings::spdk_ioat_chan;

use crate::channels::{Channel, Unfinished};
use crate::env::Environment;
use crate::error::{self, error};
use crate::ffi;
use crate::fill::Fill;
use crate::recovery::Recovery;

/// A stopping channel that completes no descriptor for this time is reset. The longest descriptor takes about
/// a millisecond.
const STALL_LIMIT: Duration = Duration::from_millis(250);
/// SPDK does not split ranges that are within one page of this size.
const PAGE: u64 = 4096;

/// A channel of I/OAT as a queue.
///
/// A channel completes descriptors in order. So the tokens in flight are in a ring, and the callbacks only
/// count completed descriptors.
#[derive(Debug)]
pub(crate) struct IoatQueue {
    environment: Arc<Environment>,
    ioat: Ioat,
    engine: EngineId,
    channel: Option<Channel>,
    /// Number of completed descriptors, counted by the callbacks.
    done: Arc<AtomicU64>,
    /// Number of descriptors submitted.
    head: u64,
    /// Number of descriptors reported. Later descriptors are in flight, or done and not reported yet.
    reported: u64,
    /// Tokens by descriptor number. The length is a power of two.
    tokens: Box<[u64]>,
    depth: usize,
    /// Set if descriptors were submitted without a doorbell.
    doorbell_pending: bool,
    /// Time of the call of `stop`, or of the last completion after that call.
    stopped: Option<Instant>,
    /// The descriptors that ended when the channel last halted.
    halted: HaltedRange,
    /// Number of descriptors that still run one at a time, so that the descriptor that halts the channel is
    /// identified.
    isolate_left: u64,
    recovery: Option<Recovery>,
    /// The error of a failed recovery.
    lost: Option<Error>,
    doorbells: u64,
    resets: u64,
}

/// Descriptors that a halt ended, by number, and their outcome.
#[derive(Clone, Debug)]
struct HaltedRange {
    numbers: Range<u64>,
    outcome: Outcome,
}

// SAFETY: one thread at a time uses the queue, and so its channel and its count. SPDK runs callbacks only
// within calls that the queue makes.
unsafe impl Send for IoatQueue {}

/// Counts a completed descriptor. SPDK calls this function once per descriptor.
unsafe extern "C" fn done(count: *mut c_void) {
    // SAFETY: the pointer is to the queue's count, which is kept until SPDK has run or dropped every
    // callback. It is only accessed atomically.
    let count = unsafe { &*count.cast::<AtomicU64>() };
    // A read-modify-write instruction is not needed, because one thread at a time calls SPDK for a channel.
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl IoatQueue {
    pub(crate) fn open(
        environment: &Arc<Environment>,
        engine: EngineId,
        channel: Channel,
        options: &QueueOptions,
    ) -> Self {
        let depth = options.depth.max(1);
        Self {
            environment: Arc::clone(environment),
            ioat: environment.spdk.ioat,
            engine,
            channel: Some(channel),
            done: Arc::default(),
            head: 0,
            reported: 0,
            tokens: vec![0; depth.next_power_of_two()].into(),
            depth,
            doorbell_pending: false,
            stopped: None,
            halted: HaltedRange { numbers: 0..0, outcome: Outcome::Aborted },
            isolate_left: 0,
            recovery: None,
            lost: None,
            doorbells: 0,
            resets: 0,
        }
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the argument of the callbacks.
    fn count(&self) -> *mut c_void {
        Arc::as_ptr(&self.done).cast_mut().cast()
    }

    /// Returns the number of descriptors in flight.
    fn in_flight(&self) -> u64 {
        self.head - self.done()
    }

    /// Returns the number of descriptors that `submit` can accept.
    fn room(&self) -> usize {
        if self.isolate_left > 0 {
            return usize::from(self.head == self.reported);
        }
        self.depth - (self.head - self.reported) as usize
    }

    /// Passes a copy to SPDK.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`RawQueue::submit`]. `chan` is this queue's channel, and `count` is the
    /// result of [`count`](Self::count).
    #[inline(always)]
    unsafe fn build_copy(
        &self,
        chan: *mut spdk_ioat_chan,
        count: *mut c_void,
        src: Segment,
        dst: Segment,
    ) -> Result<(), Refused> {
        let len = dst.len;
        // SPDK translates a copy piece by piece, and keeps the pieces that it has built before a failure. So
        // copies of more than one piece are translated as a whole first.
        let furthest = (src.addr.0 % PAGE).max(dst.addr.0 % PAGE);
        if furthest + len as u64 > PAGE {
            self.check_pieces(src, dst)?;
        }
        let (to, from) = (dst.addr.as_ptr().cast(), src.addr.as_ptr().cast_const().cast());
        // SAFETY: the channel is this queue's. The caller keeps both ranges valid until the completion, and
        // the count outlives the callback.
        match unsafe { (self.ioat.spdk_ioat_build_copy)(chan, count, Some(done), to, from, len as u64) } {
            0 => Ok(()),
            code => Err(Refused::Code(code)),
        }
    }

    /// Passes a descriptor to SPDK that is not a copy of one segment.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`RawQueue::submit`]. `chan` is this queue's channel.
    #[inline(never)]
    unsafe fn build_other(
        &self,
        chan: *mut spdk_ioat_chan,
        descriptor: &Descriptor<'_>,
    ) -> Result<(), Refused> {
        match descriptor.operation() {
            // SAFETY: the caller meets the requirements.
            Operation::Fill { pattern, dst: &[dst] } => unsafe { self.build_fill(chan, pattern, dst) },
            _ => Err(Refused::Unsupported),
        }
    }

    /// Passes a fill to SPDK.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`build_other`](Self::build_other).
    unsafe fn build_fill(
        &self,
        chan: *mut spdk_ioat_chan,
        pattern: [u8; 8],
        dst: Segment,
    ) -> Result<(), Refused> {
        ffi::translate(&self.environment.spdk, dst.addr, dst.len)
            .map_err(|at| Refused::Unreachable { at, len: dst.len })?;
        let fill = Fill::new(dst.addr, dst.len, pattern);
        // SAFETY: the fill writes only within the destination, which the queue may write until the
        // completion, and no descriptor for it is submitted yet.
        unsafe { fill.begin() };
        let (to, count) = (fill.rest.as_ptr().cast(), self.count());
        let code = match fill.len as u64 {
            // SPDK refuses a fill of 0 bytes, and completes a copy of 0 bytes in order.
            // SAFETY: the channel is this queue's, the count outlives the callback, and 0 bytes are accessed.
            0 => unsafe { (self.ioat.spdk_ioat_build_copy)(chan, count, Some(done), to, to.cast_const(), 0) },
            // SAFETY: the channel is this queue's, and the count outlives the callback. The caller keeps the
            // destination valid until the completion.
            len => unsafe {
                (self.ioat.spdk_ioat_build_fill)(chan, count, Some(done), to, fill.pattern, len)
            },
        };
        if code == 0 { Ok(()) } else { Err(Refused::Code(code)) }
    }

    #[inline(never)]
    fn check_pieces(&self, src: Segment, dst: Segment) -> Result<(), Refused> {
        let spdk = &self.environment.spdk;
        ffi::translate(spdk, src.addr, src.len)
            .and_then(|()| ffi::translate(spdk, dst.addr, dst.len))
            .map_err(|at| Refused::Unreachable { at, len: dst.len })
    }

    /// Returns the result of `submit` when the first descriptor of a batch was refused.
    #[cold]
    fn refused(&self, why: Refused) -> Result<usize> {
        match why {
            // The pieces of earlier descriptors fill the ring, so wait for them.
            Refused::Code(code) if code == -error::ENOMEM && self.in_flight() > 0 => Ok(0),
            Refused::Code(code) if code == -error::ENOMEM => Err(error(
                ErrorKind::OutOfResources,
                "the channel accepts no descriptor, although none is in flight",
            )
            .with_native(error::native(code))
            .with_hint("if it persists, close the queue and open another")),
            Refused::Code(code) if code == -error::EINVAL => Err(error(
                ErrorKind::OutOfRange,
                "SPDK has no translation for the first page of the source or the destination",
            )
            .with_native(error::native(code))
            .with_hint(OUTSIDE)),
            Refused::Code(code) => Err(error::failed("SPDK does not accept the descriptor", code)),
            Refused::Unreachable { at, len } => Err(error(
                ErrorKind::OutOfRange,
                format!("SPDK has no translation for byte {at} of {len} of the source or the destination"),
            )
            .with_hint(OUTSIDE)),
            Refused::Unsupported => {
                Err(error(ErrorKind::Unsupported, "I/OAT copies and fills, without lists")
                    .with_hint("give one segment on either side"))
            }
        }
    }

    /// Records the submitted descriptors.
    #[inline]
    fn record_submitted(&mut self, batch: &[Descriptor<'_>]) {
        let (first, rest) = ring_mut(&mut self.tokens, self.head, batch.len());
        let (to_first, to_rest) = batch.split_at(first.len());
        for (tokens, batch) in [(first, to_first), (rest, to_rest)] {
            tokens.iter_mut().zip(batch).for_each(|(token, descriptor)| *token = descriptor.token());
        }
        self.head += batch.len() as u64;
        self.doorbell_pending |= !batch.is_empty();
    }

    /// Writes the ended descriptors to the front of `completions`.
    fn report(&mut self, completions: &mut [Completion]) -> usize {
        let ready = (self.done() - self.reported).min(completions.len() as u64) as usize;
        let (first, rest) = ring_mut(&mut self.tokens, self.reported, ready);
        let (to_first, to_rest) = completions[..ready].split_at_mut(first.len());
        for (tokens, completions) in [(first, to_first), (rest, to_rest)] {
            let each = completions.iter_mut().zip(tokens);
            each.for_each(|(completion, token)| *completion = Completion::done(*token));
        }
        if self.reported < self.halted.numbers.end && ready > 0 {
            for (n, completion) in (self.reported..).zip(&mut completions[..ready]) {
                if self.halted.numbers.contains(&n) {
                    completion.outcome = self.halted.outcome;
                    completion.native = error::HALTED;
                }
            }
        }
        self.reported += ready as u64;
        self.isolate_left = self.isolate_left.saturating_sub(ready as u64);
        ready
    }

    /// Ends all descriptors in flight on a halted channel, whose callbacks never run.
    #[cold]
    fn halt(&mut self) {
        let Some(channel) = self.channel.take() else { return };
        let (from, to) = (self.done(), self.head);
        // SPDK does not report which descriptor was faulty. The next descriptors run one at a time, so that a
        // retry identifies the faulty one.
        let outcome = if to - from == 1 { Outcome::Failed(ErrorKind::DeviceFault) } else { Outcome::Aborted };
        let (address, in_flight) = (channel.address, to - from);
        dma_core::deferred_log!(warn, %address, in_flight, "an I/OAT channel halted");
        self.halted = HaltedRange { numbers: from..to, outcome };
        // The number is twice that of the aborted descriptors, because their reports are counted too.
        self.isolate_left = if outcome == Outcome::Aborted { 2 * (to - from) } else { 0 };
        self.done.store(to, Ordering::Relaxed);
        self.doorbell_pending = false;
        // SAFETY: the channel has halted, and this queue does not use it any more.
        self.recovery = Some(unsafe { Recovery::start(&self.environment, channel, None) });
    }

    /// Starts the recovery of a channel that hangs, which begins with a reset.
    #[cold]
    fn reset(&mut self) {
        let Some(channel) = self.channel.take() else { return };
        let left = Unfinished { done: Arc::clone(&self.done), submitted: self.head };
        // SAFETY: the channel is attached, and this queue does not use it any more. Its callbacks write to
        // the count in `left`, which the recovery keeps.
        self.recovery = Some(unsafe { Recovery::start(&self.environment, channel, Some(left)) });
    }

    /// Ends all descriptors in flight, if the channel that hung was reset.
    fn end_if_stopped(&mut self) {
        let (from, to) = (self.done(), self.head);
        if from < to && self.recovery.as_ref().is_some_and(Recovery::is_stopped) {
            self.halted = HaltedRange { numbers: from..to, outcome: Outcome::Aborted };
            self.done.store(to, Ordering::Relaxed);
            self.doorbell_pending = false;
            self.resets += 1;
        }
    }

    /// Takes the channel back if it is attached again. Returns true if the queue has a channel.
    fn recovered(&mut self) -> Result<bool> {
        if let Some(over) = self.recovery.as_mut().and_then(Recovery::take) {
            self.recovery = None;
            match over {
                Ok(channel) => {
                    self.resets += 1;
                    let (address, resets) = (channel.address, self.resets);
                    dma_core::deferred_log!(warn, %address, resets, "the I/OAT channel runs again");
                    self.channel = Some(channel);
                }
                Err(why) => {
                    let message =
                        format!("the channel halted and could not be attached again: {}", why.message());
                    self.lost =
                        Some(error(ErrorKind::DeviceLost, message.clone()).with_hint(why.hint().to_owned()));
                    dma_core::deferred_log!(error, message);
                }
            }
        }
        match &self.lost {
            Some(why) => Err(error::repeat(why)),
            None => Ok(self.channel.is_some()),
        }
    }

    fn ring(&mut self) {
        if let Some(channel) = self.channel.as_ref().filter(|_| self.doorbell_pending) {
            // SAFETY: the channel is this queue's, attached, and not used by other code.
            unsafe { (self.ioat.spdk_ioat_flush)(channel.raw.0.as_ptr()) };
            self.doorbells += 1;
            self.doorbell_pending = false;
        }
    }

    /// Polls SPDK, which runs the callbacks.
    fn process(&mut self) {
        let Some(channel) = &self.channel else { return };
        // SAFETY: the attached channel and the callbacks' count are this queue's, and no other code uses the
        // channel.
        let code = unsafe { (self.ioat.spdk_ioat_process_events)(channel.raw.0.as_ptr()) };
        if code < 0 {
            self.halt();
        }
    }
}

/// Returns `len` elements of a ring, beginning with number `from`, in two parts: those up to the end of the
/// ring, and those from its start. The ring's length must be a power of two and at least `len`.
#[inline]
fn ring_mut(ring: &mut [u64], from: u64, len: usize) -> (&mut [u64], &mut [u64]) {
    let at = from as usize & (ring.len() - 1);
    let (before, behind) = ring.split_at_mut(at);
    let first = len.min(behind.len());
    (&mut behind[..first], &mut before[..len - first])
}

const OUTSIDE: &str =
    "the memory is in no region: allocate it from the engine, or register it and keep the region";

/// Reason for refusing a descriptor.
#[derive(Clone, Copy, Debug)]
enum Refused {
    Code(i32),
    Unreachable { at: usize, len: usize },
    Unsupported,
}

// SAFETY: SPDK runs the callback of every descriptor once, in order, when the device has reported this
// descriptor or a later one. On a halted channel, SPDK runs no callbacks. The device has then stopped, and
// the queue reports all descriptors. Only the destinations of descriptors are written. Submitted descriptors
// start with the next doorbell. A drop with descriptors in flight waits for them. If they do not end, it
// resets the channel. If that fails, the channel and the callbacks' count are leaked.
unsafe impl RawQueue for IoatQueue {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped.is_some() {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if self.channel.is_none() && !self.recovered()? {
            return Ok(0);
        }
        let Some(channel) = &self.channel else { return Ok(0) };
        let chan = channel.raw.0.as_ptr();
        let batch = &batch[..self.room().min(batch.len())];
        let count = self.count();
        let (mut left, mut refused) = (batch.iter(), None);
        for descriptor in left.by_ref() {
            // The engine has no fences, so this is every copy of one segment.
            let result = match descriptor.as_unfenced_copy() {
                // SAFETY: the caller guarantees that both ranges stay valid until the completion. `chan` and
                // `count` are this queue's.
                Some((src, dst)) => unsafe { self.build_copy(chan, count, src, dst) },
                // SAFETY: the caller guarantees that the destination stays valid until the completion, and
                // `chan` is this queue's channel.
                None => unsafe { self.build_other(chan, descriptor) },
            };
            if let Err(why) = result {
                refused = Some(why);
                break;
            }
        }
        let built = batch.len() - left.len() - usize::from(refused.is_some());
        self.record_submitted(&batch[..built]);
        match refused {
            Some(why) if built == 0 => self.refused(why),
            _ => Ok(built),
        }
    }

    fn flush(&mut self) {
        self.ring();
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let n = self.report(completions);
        if n == completions.len() {
            return n;
        }
        if self.channel.is_none() {
            self.end_if_stopped();
            if self.stopped.is_none() {
                // The next submission returns the error.
                let _ = self.recovered();
            }
            return n + self.report(&mut completions[n..]);
        }
        if self.head == self.reported {
            return n;
        }
        self.process();
        let n = n + self.report(&mut completions[n..]);
        if let Some(since) = &mut self.stopped {
            match n {
                0 if since.elapsed() >= STALL_LIMIT => self.reset(),
                0 => {}
                _ => *since = Instant::now(),
            }
        }
        n
    }

    fn explain(&self, native: i32) -> NativeError {
        error::completion(native)
    }

    fn stop(&mut self) {
        // Descriptors in flight complete, and later polls report them. A channel that hangs is reset.
        self.stopped.get_or_insert_with(Instant::now);
        self.ring();
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, self.resets)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
}

impl Drop for IoatQueue {
    fn drop(&mut self) {
        let until = Instant::now() + STOP_GRACE;
        self.ring();
        while self.in_flight() > 0 && Instant::now() < until {
            self.process();
            std::thread::yield_now();
        }
        if self.in_flight() > 0 {
            // Leak the count, because callbacks that write it may still run.
            self.reset();
            std::mem::forget(Arc::clone(&self.done));
            return;
        }
        if let Some(channel) = &self.channel {
            self.environment.pool().give_back(channel);
        }
    }
}
