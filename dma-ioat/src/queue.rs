//! A queue: one channel, with what is in flight on it.
#![expect(unsafe_code, reason = "implements `RawQueue` on SPDK's calls")]

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, Listed, NativeError, Outcome, QueueOptions, RawQueue,
    RawStats, Result, Segment, Work,
};
use spdk_sys::Ioat;
use spdk_sys::bindings::spdk_ioat_chan;

use crate::env::Environment;
use crate::error::{self, error};
use crate::ffi;
use crate::fill::Fill;
use crate::pool::Channel;
use crate::recovery::Recovery;

/// How long dropping a queue waits for what is in flight.
const DRAIN: Duration = Duration::from_secs(1);
/// A range that does not cross a multiple of this lies in one page, and is one piece to SPDK.
const PAGE: usize = 4096;

/// A channel of I/OAT as a queue.
///
/// A channel completes in order, so that the tokens of what is in flight are a ring: what the callbacks count is how far it has come.
#[derive(Debug)]
pub(crate) struct IoatQueue {
    environment: Arc<Environment>,
    ioat: Ioat,
    engine: EngineId,
    channel: Option<Channel>,
    /// How many descriptors have completed: the callbacks count here. A pointer, since SPDK has it, too.
    done: NonNull<u64>,
    /// Descriptors submitted and reported. What lies between is in flight, or done and not reported.
    head: u64,
    reported: u64,
    /// Tokens, by descriptor number; a power of two of them.
    tokens: Box<[u64]>,
    depth: usize,
    /// Descriptors that no doorbell was rung for.
    unrung: bool,
    stopped: bool,
    /// Descriptors up to this number, beginning with the one that was the first not to be done then, ended when the channel halted.
    halted: Halted,
    /// How many descriptors go alone from here on, so that the one that halts the channel is known.
    alone: u64,
    recovery: Option<Recovery>,
    /// Why it did not come back.
    lost: Option<Error>,
    doorbells: u64,
    resets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Halted {
    from: u64,
    to: u64,
    outcome: Outcome,
}

// SAFETY: the channel and the count are used by whoever has the queue, one thread at a time; SPDK runs callbacks only within its calls.
unsafe impl Send for IoatQueue {}

/// A descriptor is done.
unsafe extern "C" fn done(count: *mut c_void) {
    // SAFETY: the queue's count, which lives until SPDK has run or forgotten every callback; one thread at a time is in SPDK's calls.
    unsafe { *count.cast::<u64>() += 1 };
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
            done: NonNull::from(Box::leak(Box::new(0))),
            head: 0,
            reported: 0,
            tokens: vec![0; depth.next_power_of_two()].into(),
            depth,
            unrung: false,
            stopped: false,
            halted: Halted { from: 0, to: 0, outcome: Outcome::Aborted },
            alone: 0,
            recovery: None,
            lost: None,
            doorbells: 0,
            resets: 0,
        }
    }

    fn done(&self) -> u64 {
        // SAFETY: only callbacks write it, within SPDK's calls, which are not running now.
        unsafe { self.done.read() }
    }

    /// Descriptors that the device has.
    fn in_flight(&self) -> u64 {
        self.head - self.done()
    }

    /// How many more descriptors there is room for.
    fn room(&self) -> usize {
        if self.alone > 0 {
            return usize::from(self.head == self.reported);
        }
        self.depth - (self.head - self.reported) as usize
    }

    /// Hands a copy to SPDK.
    ///
    /// # Safety
    ///
    /// As [`RawQueue::submit`]; `chan` is this queue's.
    #[inline(always)]
    unsafe fn build_copy(
        &self,
        chan: *mut spdk_ioat_chan,
        src: Segment,
        dst: Segment,
    ) -> Result<(), Refused> {
        let len = dst.len;
        // SPDK finds out piece by piece whether it can translate a copy, and what it has built until then stays. So what may be more than one
        // piece is looked at as a whole before.
        let furthest = (src.addr.addr().get() % PAGE).max(dst.addr.addr().get() % PAGE);
        if furthest + len > PAGE {
            self.check_pieces(src, dst)?;
        }
        let (to, from) = (dst.addr.as_ptr().cast(), src.addr.as_ptr().cast_const().cast());
        let count = self.done.as_ptr().cast();
        // SAFETY: the channel is this queue's; the memory is the caller's promise; the count outlives the callback.
        match unsafe { (self.ioat.spdk_ioat_build_copy)(chan, count, Some(done), to, from, len as u64) } {
            0 => Ok(()),
            code => Err(Refused::Code(code)),
        }
    }

    /// Hands anything else to SPDK.
    ///
    /// # Safety
    ///
    /// As [`build_copy`](Self::build_copy).
    #[inline(never)]
    unsafe fn build_listed(&self, chan: *mut spdk_ioat_chan, listed: &Listed<'_>) -> Result<(), Refused> {
        let (pattern, dst) = match *listed {
            // SAFETY: the caller's promise.
            Listed::Copy { src: &[src], dst: &[dst] } => return unsafe { self.build_copy(chan, src, dst) },
            Listed::Fill { pattern, dst: &[dst] } => (pattern, dst),
            _ => return Err(Refused::Unsupported),
        };
        ffi::translate(&self.environment.spdk, dst.addr, dst.len)
            .map_err(|at| Refused::Unreachable { at, len: dst.len })?;
        let fill = Fill::new(dst.addr, dst.len, pattern);
        // SAFETY: within the destination, which is the caller's to give until the completion.
        unsafe { fill.begin() };
        let (to, count) = (fill.rest.as_ptr().cast(), self.done.as_ptr().cast());
        let code = match fill.len as u64 {
            // SPDK never takes a fill of nothing; a copy of nothing completes, in its turn.
            // SAFETY: no memory; else as for a copy.
            0 => unsafe { (self.ioat.spdk_ioat_build_copy)(chan, count, Some(done), to, to.cast_const(), 0) },
            // SAFETY: as for a copy.
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

    /// What the refusal of the first descriptor of a batch comes to.
    #[cold]
    fn refused(&self, why: Refused) -> Result<usize> {
        match why {
            // The ring is full of pieces: there is room once some have completed.
            Refused::Code(code) if code == -error::ENOMEM && self.in_flight() > 0 => Ok(0),
            Refused::Code(code) if code == -error::ENOMEM => Err(error(
                ErrorKind::OutOfResources,
                "the channel takes no descriptor although nothing is in flight",
            )
            .with_native(error::native(code))
            .with_hint("if it goes on, close the queue and open another")),
            Refused::Code(code) if code == -error::EINVAL => Err(error(
                ErrorKind::OutOfRange,
                "SPDK has no translation for the first page of the source or the destination",
            )
            .with_native(error::native(code))
            .with_hint(OUTSIDE)),
            Refused::Code(code) => Err(error::failed("SPDK does not take the descriptor", code)),
            Refused::Unreachable { at, len } => Err(error(
                ErrorKind::OutOfRange,
                format!("SPDK has no translation for byte {at} of {len} of the source or the destination"),
            )
            .with_hint(OUTSIDE)),
            Refused::Unsupported => Err(error(ErrorKind::Unsupported, "I/OAT has no lists")
                .with_hint("give one segment on either side")),
        }
    }

    /// Notes what SPDK has taken.
    #[inline]
    fn took(&mut self, batch: &[Descriptor<'_>]) {
        let (first, rest) = ring_mut(&mut self.tokens, self.head, batch.len());
        let (to_first, to_rest) = batch.split_at(first.len());
        for (tokens, batch) in [(first, to_first), (rest, to_rest)] {
            tokens.iter_mut().zip(batch).for_each(|(token, descriptor)| *token = descriptor.token());
        }
        self.head += batch.len() as u64;
        self.unrung |= !batch.is_empty();
    }

    /// Moves what has ended to the front of `completions`.
    fn report(&mut self, completions: &mut [Completion]) -> usize {
        let ready = (self.done() - self.reported).min(completions.len() as u64) as usize;
        let (first, rest) = ring_mut(&mut self.tokens, self.reported, ready);
        let (to_first, to_rest) = completions[..ready].split_at_mut(first.len());
        for (tokens, completions) in [(first, to_first), (rest, to_rest)] {
            let each = completions.iter_mut().zip(tokens);
            each.for_each(|(completion, token)| *completion = Completion::done(*token));
        }
        if self.reported < self.halted.to && ready > 0 {
            for (n, completion) in (self.reported..).zip(&mut completions[..ready]) {
                if (self.halted.from..self.halted.to).contains(&n) {
                    completion.outcome = self.halted.outcome;
                    completion.native = error::HALTED;
                }
            }
        }
        self.reported += ready as u64;
        self.alone = self.alone.saturating_sub(ready as u64);
        ready
    }

    /// The channel has halted: what is in flight has ended, and its callbacks never run.
    #[cold]
    fn halt(&mut self) {
        let Some(channel) = self.channel.take() else { return };
        let (from, to) = (self.done(), self.head);
        // Which one it was nobody tells, unless it was alone. So those that come next go one by one: if it is among them, it is found out.
        let outcome = if to - from == 1 { Outcome::Failed(ErrorKind::DeviceFault) } else { Outcome::Aborted };
        tracing::warn!(address = %channel.address, in_flight = to - from, "an I/OAT channel halted");
        self.halted = Halted { from, to, outcome };
        // Twice: the reports of these are counted, too.
        self.alone = if outcome == Outcome::Aborted { 2 * (to - from) } else { 0 };
        // SAFETY: no callback is running.
        unsafe { self.done.write(to) };
        self.unrung = false;
        // SAFETY: it has halted, and this queue, which had it, has it no more.
        self.recovery = Some(unsafe { Recovery::start(&self.environment, channel) });
    }

    /// Takes the channel back once it is attached again. Whether there is one.
    fn recovered(&mut self) -> Result<bool> {
        if let Some(over) = self.recovery.as_mut().and_then(Recovery::take) {
            self.recovery = None;
            match over {
                Ok(channel) => {
                    self.resets += 1;
                    tracing::warn!(address = %channel.address, resets = self.resets, "the I/OAT channel runs again");
                    self.channel = Some(channel);
                }
                Err(why) => {
                    let message = format!("the channel halted and did not come back: {}", why.message());
                    tracing::error!(message);
                    self.lost = Some(error(ErrorKind::DeviceLost, message).with_hint(why.hint().to_owned()));
                }
            }
        }
        match &self.lost {
            Some(why) => Err(error::repeat(why)),
            None => Ok(self.channel.is_some()),
        }
    }

    fn ring(&mut self) {
        if let Some(channel) = self.channel.as_ref().filter(|_| self.unrung) {
            // SAFETY: the channel is this queue's.
            unsafe { (self.ioat.spdk_ioat_flush)(channel.raw.0.as_ptr()) };
            self.doorbells += 1;
            self.unrung = false;
        }
    }

    /// Asks SPDK what has completed; it runs the callbacks.
    fn process(&mut self) {
        let Some(channel) = &self.channel else { return };
        // SAFETY: the channel is this queue's; the callbacks' count is this queue's, and nobody reads it meanwhile.
        let code = unsafe { (self.ioat.spdk_ioat_process_events)(channel.raw.0.as_ptr()) };
        if code < 0 {
            self.halt();
        }
    }
}

/// `len` places of a ring, a power of two long and not shorter than `len`, from number `from` on: up to its end, and from its beginning on.
#[inline]
fn ring_mut(ring: &mut [u64], from: u64, len: usize) -> (&mut [u64], &mut [u64]) {
    let at = from as usize & (ring.len() - 1);
    let (before, behind) = ring.split_at_mut(at);
    let first = len.min(behind.len());
    (&mut behind[..first], &mut before[..len - first])
}

const OUTSIDE: &str =
    "the memory is in no region: allocate it from the engine, or register it and keep the region";

/// Why a descriptor was not taken.
#[derive(Clone, Copy, Debug)]
enum Refused {
    Code(i32),
    Unreachable { at: usize, len: usize },
    Unsupported,
}

// SAFETY: SPDK runs the callback of every descriptor once, when the device has reported it or one behind it, and in order; on a channel that
// halted it runs none, and all of them are reported then: the device has stopped. Nothing is written but what descriptors say, and the first bytes
// of a fill, which are its destination's. What `submit` takes starts with the next doorbell. A drop with descriptors in flight waits for them,
// or leaks the channel and what the callbacks write.
unsafe impl RawQueue for IoatQueue {
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
        if self.channel.is_none() && !self.recovered()? {
            return Ok(0);
        }
        let Some(channel) = &self.channel else { return Ok(0) };
        let chan = channel.raw.0.as_ptr();
        let batch = &batch[..self.room().min(batch.len())];
        let mut built = 0;
        let mut refused = None;
        while let Some(descriptor) = batch.get(built) {
            let result = match descriptor.work() {
                // SAFETY: the caller's promise.
                Work::Copy { src, dst } => unsafe { self.build_copy(chan, src, dst) },
                // SAFETY: as above.
                Work::Listed(listed) => unsafe { self.build_listed(chan, listed) },
            };
            if let Err(why) = result {
                refused = Some(why);
                break;
            }
            built += 1;
        }
        self.took(&batch[..built]);
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
            if !self.stopped {
                // What is wrong, the next submission says.
                let _ = self.recovered();
            }
            return n;
        }
        if self.head == self.reported {
            return n;
        }
        self.process();
        n + self.report(&mut completions[n..])
    }

    fn explain(&self, native: i32) -> NativeError {
        error::completion(native)
    }

    fn stop(&mut self) {
        // The device cannot be made to forget: what it has completes, and later polls report it.
        self.stopped = true;
        self.ring();
    }

    fn stats(&self) -> RawStats {
        RawStats::new(self.doorbells, self.resets)
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self) -> Result<bool> {
        Err(error(ErrorKind::Unsupported, "I/OAT through SPDK does not wake: poll it"))
    }

    fn disarm(&mut self) {}
}

impl Drop for IoatQueue {
    fn drop(&mut self) {
        let until = Instant::now() + DRAIN;
        self.ring();
        while self.in_flight() > 0 && Instant::now() < until {
            self.process();
            std::thread::yield_now();
        }
        if self.in_flight() > 0 {
            if let Some(channel) = &self.channel {
                self.environment.pool().lose(channel);
                tracing::error!(
                    address = %channel.address,
                    descriptors = self.in_flight(),
                    "an I/OAT channel does not answer; it is given up"
                );
            }
            // The device, and SPDK's ring, still have the callbacks' count.
            return;
        }
        if let Some(channel) = &self.channel {
            self.environment.pool().give_back(channel);
        }
        // SAFETY: leaked in `open`; every callback has run or been forgotten with its ring.
        drop(unsafe { Box::from_raw(self.done.as_ptr()) });
    }
}
