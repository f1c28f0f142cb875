//! [`RdmaQueue`]: descriptors as RDMA reads of a queue pair.
//!
//! Requests have numbers that count up, and their places are a ring. `reported <= done <= posted <= head`:
//! reported to the caller, ended, given to the device, submitted.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents,
    QueueStats, RawQueue, Result, Segment,
};

use crate::device::Device;
use crate::error::{self, FLUSHED, error, repeat};
use crate::pair::Pair;
use crate::region::keys;
use crate::verbs::{SEND_FENCE, SEND_SIGNALED, WR_RDMA_READ, ibv_send_wr, ibv_sge, ibv_wc};

/// One of so many requests makes a completion, as the last of each doorbell does. A power of two.
const SIGNAL_EVERY: u64 = 32;
/// Completions that are taken at once.
const TAKE: usize = 16;

/// A work request and the piece of memory that it names.
#[repr(C)]
struct Request {
    wr: ibv_send_wr,
    sge: ibv_sge,
}

/// A ring of requests, each linked to the next.
#[derive(Debug)]
struct Ring {
    base: NonNull<Request>,
    /// A power of two.
    len: usize,
}

// SAFETY: memory that this value owns.
unsafe impl Send for Ring {}

impl Ring {
    fn new(len: usize) -> Self {
        let empty = || Request {
            wr: ibv_send_wr {
                wr_id: 0,
                next: ptr::null_mut(),
                sg_list: ptr::null_mut(),
                num_sge: 1,
                opcode: WR_RDMA_READ,
                send_flags: 0,
                imm_data: 0,
                remote_addr: 0,
                rkey: 0,
                others: [0; 9],
            },
            sge: ibv_sge { addr: 0, length: 0, lkey: 0 },
        };
        let requests: Box<[Request]> = (0..len).map(|_| empty()).collect();
        let base = NonNull::from(Box::leak(requests)).cast::<Request>();
        let ring = Self { base, len };
        for n in 0..len as u64 {
            let (next, request) = (ring.at(n + 1), ring.at(n));
            // SAFETY: a request of this ring.
            let sge = unsafe { &raw mut (*request).sge };
            // SAFETY: as above.
            let wr = unsafe { &mut (*request).wr };
            wr.sg_list = sge;
            wr.next = next.cast();
        }
        ring
    }

    /// The place of a request, whose first field is the work request.
    #[inline]
    fn at(&self, number: u64) -> *mut Request {
        let at = number as usize & (self.len - 1);
        // SAFETY: within the ring.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let requests = ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.len);
        // SAFETY: made of a box of this length. Providers copy requests before `post` returns.
        drop(unsafe { Box::from_raw(requests) });
    }
}

/// What a queue can do.
#[derive(Debug)]
enum State {
    Runs,
    /// A request failed: the queue pair flushes what is in flight, and is then connected again.
    Failed,
    /// It cannot be connected: the port is down. Submissions try again.
    Down(Error),
    /// The device is gone.
    Lost(Error),
    Stopped,
}

/// A queue of an RDMA device.
#[derive(Debug)]
pub(crate) struct RdmaQueue {
    pair: Pair,
    engine: EngineId,
    ring: Ring,
    depth: usize,
    tokens: Box<[u64]>,
    /// The codes of failed requests below `failed_to`; else 0.
    codes: Box<[i32]>,
    failed_to: u64,
    taken: Box<[ibv_wc; TAKE]>,
    head: u64,
    posted: u64,
    done: u64,
    reported: u64,
    state: State,
    doorbells: u64,
    resets: u64,
}

impl RdmaQueue {
    pub(crate) fn open(device: &Arc<Device>, engine: EngineId, depth: usize) -> Result<Self> {
        let len = depth.next_power_of_two();
        Ok(Self {
            pair: Pair::open(device, depth)?,
            engine,
            ring: Ring::new(len),
            depth,
            tokens: vec![0; len].into(),
            codes: vec![0; len].into(),
            failed_to: 0,
            taken: Box::new([ibv_wc::default(); TAKE]),
            head: 0,
            posted: 0,
            done: 0,
            reported: 0,
            state: State::Runs,
            doorbells: 0,
            resets: 0,
        })
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & (self.ring.len - 1)
    }

    /// Writes the request of a copy.
    #[inline]
    fn write(&mut self, descriptor: &Descriptor<'_>, src: Segment, dst: Segment) {
        let number = self.head;
        let ((lkey, _), (_, rkey)) = (keys(dst.key), keys(src.key));
        let signal = if number % SIGNAL_EVERY == SIGNAL_EVERY - 1 { SEND_SIGNALED } else { 0 };
        let fence = if descriptor.fence() { SEND_FENCE } else { 0 };
        // SAFETY: a request of the ring that is not in flight: there are at most `depth`.
        let request = unsafe { &mut *self.ring.at(number) };
        request.wr.wr_id = number;
        request.wr.send_flags = signal | fence;
        request.wr.remote_addr = src.addr.0;
        request.wr.rkey = rkey;
        request.sge = ibv_sge { addr: dst.addr.0, length: dst.len as u32, lkey };
        let place = self.place(number);
        self.tokens[place] = descriptor.token();
        self.head += 1;
    }

    /// Posts all that was submitted, as one chain.
    #[inline]
    fn ring(&mut self) {
        if self.posted == self.head || !matches!(self.state, State::Runs) {
            return;
        }
        let (first, last) = (self.ring.at(self.posted), self.ring.at(self.head - 1));
        // SAFETY: a request that is not in flight yet.
        let end = unsafe { &mut (*last).wr };
        let next = std::mem::replace(&mut end.next, ptr::null_mut());
        // The completion of the last one, or its failure, ends all of the chain.
        end.send_flags |= SEND_SIGNALED;
        // SAFETY: requests of the ring, whose memory is the promise of the caller of `submit`.
        let posted = unsafe { self.pair.post(first.cast()) };
        // SAFETY: as above.
        unsafe { (*last).wr.next = next };
        self.doorbells += 1;
        match posted {
            Ok(()) => self.posted = self.head,
            Err((errno, bad)) => self.refused(errno, bad),
        }
    }

    /// Ends everything after the device refused the request `bad`: those before it may have no completion.
    #[cold]
    fn refused(&mut self, errno: rustix::io::Errno, bad: *mut ibv_send_wr) {
        let at = (self.posted..self.head).find(|n| ptr::eq(self.ring.at(*n).cast(), bad));
        let at = at.unwrap_or(self.posted);
        tracing::warn!(device = self.pair.device().name, %errno, "an RDMA device refused a request");
        self.posted = at;
        if self.abort() {
            let place = self.place(at);
            self.codes[place] = -errno.raw_os_error();
            self.recover();
        }
    }

    /// Makes the device give up all requests, and ends them. Returns false if the device does not answer:
    /// then those in flight never end.
    #[cold]
    fn abort(&mut self) -> bool {
        self.take();
        if !self.pair.quiesce() {
            self.state = State::Lost(crate::error::failed(
                "the device neither resets nor destroys a queue pair",
                rustix::io::Errno::IO,
            ));
            return false;
        }
        // Completions that came before the device let go; the next requests need their room.
        self.take();
        for number in self.done..self.head {
            let place = self.place(number);
            self.codes[place] = FLUSHED;
        }
        if self.done < self.head {
            self.failed_to = self.head;
        }
        (self.done, self.posted) = (self.head, self.head);
        true
    }

    /// Takes completions from the device.
    #[inline]
    fn take(&mut self) {
        loop {
            let number = self.pair.poll(self.taken.as_mut_slice());
            let Ok(number) = usize::try_from(number) else {
                let lost = error(ErrorKind::DeviceLost, "the completion queue has failed")
                    .with_hint("see `dmesg`, then open the engine again");
                self.state = State::Lost(lost);
                return;
            };
            for at in 0..number.min(TAKE) {
                let ibv_wc { wr_id, status, .. } = self.taken[at];
                // Requests that a reset ended may have left completions.
                if !(self.done..self.posted).contains(&wr_id) {
                    continue;
                }
                if status != 0 {
                    let place = self.place(wr_id);
                    self.codes[place] = status;
                    self.failed_to = wr_id + 1;
                    if matches!(self.state, State::Runs) {
                        self.state = State::Failed;
                    }
                }
                self.done = wr_id + 1;
            }
            if number < TAKE {
                return;
            }
        }
    }

    /// Takes completions, and connects again once all requests in flight have been flushed. Those of a device
    /// that is lost end, too, if it lets go of their memory.
    #[inline]
    fn process(&mut self) {
        self.take();
        if !matches!(self.state, State::Runs) {
            self.after_failure();
        }
    }

    #[cold]
    fn after_failure(&mut self) {
        match self.state {
            State::Failed if self.done == self.posted => {
                self.recover();
                // A doorbell may have been rung for these.
                self.ring();
            }
            State::Lost(_) if self.done < self.posted => _ = self.abort(),
            _ => {}
        }
    }

    /// Connects again. Nothing is in flight.
    #[cold]
    fn recover(&mut self) {
        match self.pair.reconnect() {
            Ok(()) => {
                self.resets += 1;
                self.state = State::Runs;
                tracing::warn!(device = self.pair.device().name, "a queue pair was connected again");
            }
            Err(why) => {
                tracing::error!(device = self.pair.device().name, %why, "a queue pair cannot be connected");
                // What waits would wait for the port.
                if self.abort() {
                    self.state = match why.kind() {
                        ErrorKind::DeviceFault => State::Down(why),
                        _ => State::Lost(why),
                    };
                }
            }
        }
    }

    /// The error of a queue that takes no descriptors. `Ok(false)`: it takes some later.
    #[cold]
    fn obstacle(&mut self) -> Result<bool> {
        if matches!(self.state, State::Down(_)) {
            self.recover();
        }
        match &self.state {
            State::Runs => Ok(true),
            State::Failed => Ok(false),
            State::Down(why) | State::Lost(why) => Err(repeat(why)),
            State::Stopped => Err(Error::bare(ErrorKind::Closed)),
        }
    }

    /// Writes the ended descriptors to the front of `completions`.
    #[inline]
    fn report(&mut self, completions: &mut [Completion]) -> usize {
        let ready = (self.done - self.reported).min(completions.len() as u64);
        for (number, completion) in (self.reported..self.reported + ready).zip(completions) {
            let place = self.place(number);
            *completion = Completion::done(self.tokens[place]);
            if number < self.failed_to {
                let code = std::mem::take(&mut self.codes[place]);
                completion.outcome = match code {
                    0 => Outcome::Done,
                    FLUSHED => Outcome::Aborted,
                    code => Outcome::Failed(error::kind(code)),
                };
                completion.native = code;
            }
        }
        self.reported += ready;
        ready as usize
    }
}

// SAFETY: requests end in order, each once: a completion ends those before it, which succeeded, because a
// reliable queue pair completes in order and its failures always make completions. A read's completion comes
// after its bytes. A queue pair that was reset or destroyed touches no memory, and only then are requests
// ended without a completion. Only the destinations of reads are written. What was submitted starts with the
// doorbell. The drop destroys the queue pair, or leaks what the device may use.
unsafe impl RawQueue for RdmaQueue {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if !matches!(self.state, State::Runs) && !self.obstacle()? {
            return Ok(0);
        }
        let room = self.depth - (self.head - self.reported) as usize;
        for (taken, descriptor) in batch.iter().take(room).enumerate() {
            let Operation::Copy { src, dst } = descriptor.operation() else {
                if taken > 0 {
                    return Ok(taken);
                }
                return Err(error(ErrorKind::Unsupported, "RDMA copies, without lists")
                    .with_hint("give one segment on either side"));
            };
            self.write(descriptor, src, dst);
        }
        Ok(room.min(batch.len()))
    }

    #[inline]
    fn flush(&mut self) {
        self.ring();
    }

    #[inline]
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let n = self.report(completions);
        if n == completions.len() {
            return n;
        }
        if self.done < self.posted {
            self.process();
        }
        n + self.report(&mut completions[n..])
    }

    fn explain(&self, native: i32) -> NativeError {
        error::native(native)
    }

    fn stop(&mut self) {
        if matches!(self.state, State::Stopped) {
            return;
        }
        if self.abort() {
            self.state = State::Stopped;
        }
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, self.resets)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        Some(self)
    }
}

impl QueueEvents for RdmaQueue {
    fn fd(&self) -> BorrowedFd<'_> {
        self.pair.fd()
    }

    fn arm(&mut self) -> Result<bool> {
        self.pair.notify()?;
        if self.done < self.posted {
            self.process();
        }
        Ok(self.done == self.reported)
    }

    fn disarm(&mut self) {
        self.pair.clear();
    }
}

impl Drop for RdmaQueue {
    fn drop(&mut self) {
        // The safe API drops a queue with nothing in flight. The pair is destroyed, or leaked, next.
        self.pair.clear();
    }
}
