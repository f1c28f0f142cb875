//! [`RdmaQueue`]: executes descriptors as RDMA reads of a queue pair, or as writes to another host.
//!
//! Requests have increasing numbers, and places in a ring. Each counter is the number of the first request
//! that has not reached a state: `reported` to the caller, `done` (ended), `posted` to the device, `head`
//! (submitted). `reported <= done <= posted <= head`.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents,
    QueueStats, RawQueue, Result, Segment,
};

use crate::engine_state::EngineState;
use crate::error::{self, FLUSHED, error, repeat};
use crate::import::{Connecting, id_of};
use crate::queue_pairs::QueuePairs;
use crate::region::{RdmaRegion, keys};
use crate::ring::RequestRing;
use crate::route::{Relay, Route, Target};
use crate::verbs::{SEND_FENCE, SEND_SIGNALED, WR_RDMA_READ, ibv_send_wr, ibv_sge, ibv_wc};

/// Interval of requests that make a completion, a power of two. The last request of each doorbell also makes
/// one.
const SIGNAL_EVERY: u64 = 32;
/// Maximum number of completions per call of the library.
const TAKE: usize = 16;

/// State of a queue.
#[derive(Debug)]
pub(crate) enum PairState {
    Runs,
    /// A request failed. The queue pair flushes the requests in flight, and is then connected again.
    Failed,
    /// The queue pair cannot be connected, because the port is down. Submissions try again.
    Down(Error),
    /// The queue pair in use is a link that is not connected. Submissions begin to connect it.
    Unconnected,
    /// A connection to an exporter is being made.
    Connecting(Connecting),
    /// The device is gone.
    Lost(Error),
    Stopped,
}

/// A queue of an RDMA device.
#[derive(Debug)]
pub(crate) struct RdmaQueue {
    pub(crate) inner: Arc<EngineState>,
    pub(crate) pair: QueuePairs,
    /// The import whose link is in use.
    pub(crate) link: Option<Target>,
    pub(crate) relay: Option<Relay>,
    /// The read request that follows writes and proves that they arrived.
    pub(crate) proof: RequestRing,
    /// The memory to which `proof` reads, and through which relays copy.
    pub(crate) bounce: Option<RdmaRegion>,
    pub(crate) ring: RequestRing,
    pub(crate) depth: usize,
    pub(crate) tokens: Box<[u64]>,
    /// The codes of requests with numbers below `failed_to`: an error code for failed requests, otherwise 0.
    pub(crate) codes: Box<[i32]>,
    pub(crate) failed_to: u64,
    pub(crate) taken: Box<[ibv_wc; TAKE]>,
    pub(crate) head: u64,
    pub(crate) posted: u64,
    pub(crate) done: u64,
    pub(crate) reported: u64,
    pub(crate) state: PairState,
    pub(crate) doorbells: u64,
    pub(crate) resets: u64,
}

impl RdmaQueue {
    pub(crate) fn open(inner: &Arc<EngineState>, depth: usize) -> Result<Self> {
        let len = depth.next_power_of_two();
        Ok(Self {
            inner: Arc::clone(inner),
            pair: QueuePairs::open(&inner.device, depth)?,
            link: None,
            relay: None,
            proof: RequestRing::new(1),
            bounce: None,
            ring: RequestRing::new(len),
            depth,
            tokens: vec![0; len].into(),
            codes: vec![0; len].into(),
            failed_to: 0,
            taken: Box::new([ibv_wc::default(); TAKE]),
            head: 0,
            posted: 0,
            done: 0,
            reported: 0,
            state: PairState::Runs,
            doorbells: 0,
            resets: 0,
        })
    }

    #[inline]
    pub(crate) fn place(&self, number: u64) -> usize {
        number as usize & (self.ring.len - 1)
    }

    /// Writes the request of a copy.
    #[inline]
    fn write(&mut self, descriptor: &Descriptor<'_>, src: Segment, dst: Segment) {
        let number = self.head;
        self.write_at(number, src, dst, if descriptor.fence() { SEND_FENCE } else { 0 });
        let place = self.place(number);
        self.tokens[place] = descriptor.token();
        self.head += 1;
    }

    /// Writes a request to its place, which no request in flight occupies.
    #[inline]
    pub(crate) fn write_at(&mut self, number: u64, src: Segment, dst: Segment, fence: u32) {
        let (opcode, local, remote, rkey) = match &self.link {
            None => (WR_RDMA_READ, dst, src.addr.0, keys(src.key).1),
            Some(link) => link.request(src, dst),
        };
        // Only reads make completions, because only a read's completion guarantees that its bytes, and those
        // of earlier writes, are in place.
        let signalled = number % SIGNAL_EVERY == SIGNAL_EVERY - 1 && opcode == WR_RDMA_READ;
        // SAFETY: the request is within the ring and not in flight, because at most `depth` requests are.
        let request = unsafe { &mut *self.ring.at(number) };
        request.wr.wr_id = number;
        request.wr.opcode = opcode;
        request.wr.send_flags = if signalled { SEND_SIGNALED } else { 0 } | fence;
        request.wr.remote_addr = remote;
        request.wr.rkey = rkey;
        request.sge = ibv_sge { addr: local.addr.0, length: local.len as u32, lkey: keys(local.key).0 };
    }

    /// Writes requests for the copies at the start of `batch`, all within this process, up to the next
    /// request that makes a completion. Returns their number.
    #[inline]
    fn write_own(&mut self, batch: &[Descriptor<'_>]) -> usize {
        let first = self.head;
        let to_signal = SIGNAL_EVERY - first % SIGNAL_EVERY;
        let at = self.place(first);
        // SAFETY: the requests follow those in flight, of which there are at most `depth`.
        let requests = unsafe { self.ring.side_by_side(first, batch.len().min(to_signal as usize)) };
        for ((request, token), descriptor) in requests.iter_mut().zip(&mut self.tokens[at..]).zip(batch) {
            let Operation::Copy { src, dst } = descriptor.operation() else { break };
            let ((_, rkey), (lkey, _)) = (keys(src.key), keys(dst.key));
            if keys(src.key).0 == 0 || lkey == 0 {
                break;
            }
            *token = descriptor.token();
            request.wr.wr_id = self.head;
            request.wr.opcode = WR_RDMA_READ;
            request.wr.send_flags = if descriptor.fence() { SEND_FENCE } else { 0 };
            request.wr.remote_addr = src.addr.0;
            request.wr.rkey = rkey;
            request.sge = ibv_sge { addr: dst.addr.0, length: dst.len as u32, lkey };
            self.head += 1;
        }
        let written = self.head - first;
        if written == to_signal {
            // SAFETY: the request of the ring was just written, and is not posted yet.
            unsafe { (*self.ring.at(self.head - 1)).wr.send_flags |= SEND_SIGNALED };
        }
        written as usize
    }

    /// Posts all submitted requests as one chain.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if self.posted == self.head || !matches!(self.state, PairState::Runs) {
            return;
        }
        let (first, last) = (self.ring.at(self.posted), self.ring.at(self.head - 1));
        // SAFETY: the request is within the ring, and not in flight yet.
        let end = unsafe { &mut (*last).wr };
        let next = std::mem::replace(&mut end.next, ptr::null_mut());
        // The completion or the failure of the last request ends the whole chain.
        if end.opcode == WR_RDMA_READ {
            end.send_flags |= SEND_SIGNALED;
        } else {
            let proof = self.proof.at(0);
            // SAFETY: this is the only request of its ring, and providers copied it when it was posted.
            unsafe { (*proof).wr.wr_id = self.head - 1 };
            end.next = proof.cast();
        }
        // SAFETY: the requests belong to the ring, and the caller of `submit` ensures that their memory is
        // valid.
        let posted = unsafe { self.pair.post(first.cast()) };
        // SAFETY: the request is within the ring, and providers copied it when it was posted.
        unsafe { (*last).wr.next = next };
        self.doorbells += 1;
        match posted {
            Ok(()) => self.posted = self.head,
            Err((errno, bad)) => self.refused(errno, bad),
        }
    }

    /// Ends all requests after the device refused the request `bad`, because the earlier ones may never make
    /// a completion.
    #[cold]
    fn refused(&mut self, errno: rustix::io::Errno, bad: *mut ibv_send_wr) {
        let at = (self.posted..self.head).find(|n| ptr::eq(self.ring.at(*n).cast(), bad));
        let at = at.unwrap_or(self.posted);
        let device = self.pair.device().name.clone();
        dma_core::deferred_log!(warn, device, %errno, "an RDMA device refused a request");
        self.posted = at;
        if self.abort() {
            let place = self.place(at);
            self.codes[place] = -errno.raw_os_error();
            self.recover();
        }
    }

    /// Makes the device drop all requests, and ends them. Returns false if the device does not respond: then
    /// requests in flight never end.
    #[cold]
    pub(crate) fn abort(&mut self) -> bool {
        self.take();
        if !self.pair.quiesce() {
            self.state = PairState::Lost(crate::error::failed(
                "the device can neither reset nor destroy a queue pair",
                rustix::io::Errno::IO,
            ));
            return false;
        }
        // Takes completions that arrived before the reset, because the next requests need their room.
        self.take();
        self.end_all(FLUSHED);
        true
    }

    /// Ends all requests, which the device has dropped.
    #[cold]
    pub(crate) fn end_all(&mut self, code: i32) {
        for number in self.done..self.head {
            let place = self.place(number);
            self.codes[place] = code;
        }
        if self.done < self.head {
            self.failed_to = self.head;
        }
        (self.done, self.posted) = (self.head, self.head);
        self.relay = None;
    }

    /// Takes completions from the device.
    #[inline]
    fn take(&mut self) {
        loop {
            let number = self.pair.poll(self.taken.as_mut_slice());
            let Ok(number) = usize::try_from(number) else {
                let lost = error(ErrorKind::DeviceLost, "the completion queue has failed")
                    .with_hint("see `dmesg`, then open the engine again");
                self.state = PairState::Lost(lost);
                return;
            };
            for at in 0..number.min(TAKE) {
                let ibv_wc { wr_id, status, .. } = self.taken[at];
                // A completion of a request that a reset has already ended is ignored.
                if !(self.done..self.posted).contains(&wr_id) {
                    continue;
                }
                if status == 0 && self.relay.as_mut().is_some_and(Relay::advance) {
                    self.posted = wr_id;
                    continue;
                }
                if status != 0 {
                    let place = self.place(wr_id);
                    self.codes[place] = self.reported_code(status, wr_id);
                    self.failed_to = wr_id + 1;
                    if matches!(self.state, PairState::Runs) {
                        self.state = PairState::Failed;
                    }
                }
                self.done = wr_id + 1;
            }
            if number < TAKE {
                return;
            }
        }
    }

    /// Takes completions, and connects again once all requests in flight have been flushed. Also ends
    /// requests to a lost device, if the device no longer uses their memory.
    #[inline]
    fn process(&mut self) {
        self.take();
        if !matches!(self.state, PairState::Runs) {
            self.after_failure();
        }
        if self.relay.is_some() {
            self.relay();
        }
    }

    #[cold]
    fn after_failure(&mut self) {
        match self.state {
            PairState::Failed if self.done == self.posted => {
                self.recover();
                // The doorbell of the remaining requests may have been rung already, so they are posted now.
                self.ring();
            }
            PairState::Lost(_) if self.done < self.posted => _ = self.abort(),
            PairState::Connecting(_) => self.connected(),
            _ => {}
        }
    }

    /// Connects again. No request is in flight.
    #[cold]
    fn recover(&mut self) {
        if self.link.is_some() {
            return self.disconnect();
        }
        match self.pair.reconnect() {
            Ok(()) => {
                self.resets += 1;
                self.state = PairState::Runs;
                let device = self.pair.device().name.clone();
                dma_core::deferred_log!(warn, device, "a queue pair was connected again");
            }
            Err(why) => {
                let (device, error) = (self.pair.device().name.clone(), why.to_string());
                dma_core::deferred_log!(error, device, why = error, "a queue pair cannot be connected");
                // Waiting descriptors are ended, because otherwise they would wait for the port.
                if self.abort() {
                    self.state = match why.kind() {
                        ErrorKind::DeviceFault => PairState::Down(why),
                        _ => PairState::Lost(why),
                    };
                }
            }
        }
    }

    /// Returns true if the queue accepts descriptors now, and false if it accepts them later. Fails if it
    /// accepts none.
    #[cold]
    pub(crate) fn obstacle(&mut self) -> Result<bool> {
        match self.state {
            PairState::Down(_) => self.recover(),
            PairState::Unconnected => self.connect()?,
            _ => {}
        }
        match &self.state {
            PairState::Runs | PairState::Connecting(_) | PairState::Unconnected => Ok(true),
            PairState::Failed => Ok(false),
            PairState::Down(why) | PairState::Lost(why) => Err(repeat(why)),
            PairState::Stopped => Err(Error::bare(ErrorKind::Closed)),
        }
    }

    /// Writes the ended descriptors to the front of `completions`.
    #[inline]
    fn report(&mut self, completions: &mut [Completion]) -> usize {
        let ready = (self.done - self.reported).min(completions.len() as u64);
        if self.failed_to <= self.reported {
            let (at, len) = (self.place(self.reported), ready as usize);
            // The range has two parts if it continues at the start of the ring.
            let (behind, front) = self.tokens.split_at(at);
            let (first, second) = completions[..len].split_at_mut(len.min(front.len()));
            let fill = |completions: &mut [Completion], tokens: &[u64]| {
                completions.iter_mut().zip(tokens).for_each(|(to, token)| *to = Completion::done(*token));
            };
            fill(first, front);
            fill(second, behind);
            self.reported += ready;
            return len;
        }
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

// SAFETY: requests end in order, each once. A completion also ends the requests before it, which succeeded,
// because a reliable queue pair completes in order and its failures always make completions. A read's
// completion arrives after its bytes, and after the bytes of earlier writes. Requests end without a
// completion only after their queue pair was reset or destroyed, and then it accesses no memory. Only the
// destinations of reads, and of writes to another host, are written. Submitted descriptors start with the
// doorbell. The drop destroys the queue pair, or leaks everything that the device may use.
unsafe impl RawQueue for RdmaQueue {
    fn engine_id(&self) -> EngineId {
        self.inner.id
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if !matches!(self.state, PairState::Runs) && !self.obstacle()? {
            return Ok(0);
        }
        let room = self.depth - (self.head - self.reported) as usize;
        let batch = &batch[..room.min(batch.len())];
        let mut own = 0;
        while self.link.is_none() && own < batch.len() {
            match self.write_own(&batch[own..]) {
                0 => break,
                written => own += written,
            }
        }
        for (taken, descriptor) in batch.iter().enumerate().skip(own) {
            let Operation::Copy { src, dst } = descriptor.operation() else {
                if taken > 0 {
                    return Ok(taken);
                }
                return Err(error(ErrorKind::Unsupported, "RDMA supports only copies without lists")
                    .with_hint("give one segment on either side"));
            };
            let ids = (id_of(src.key), id_of(dst.key));
            if ids != (0, 0) || self.link.is_some() {
                match self.route(ids) {
                    Ok(Route::Ready) => {}
                    Ok(Route::Relay) => {
                        self.begin_relay(descriptor.token(), src, dst);
                        return Ok(taken + 1);
                    }
                    Err(error) if taken == 0 => return Err(error),
                    Ok(Route::Later) | Err(_) => return Ok(taken),
                }
            }
            self.write(descriptor, src, dst);
        }
        Ok(batch.len())
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
        if self.done < self.posted || matches!(self.state, PairState::Connecting(_)) {
            self.process();
        }
        n + self.report(&mut completions[n..])
    }

    fn explain(&self, native: i32) -> NativeError {
        error::native(native)
    }

    fn stop(&mut self) {
        if matches!(self.state, PairState::Stopped) {
            return;
        }
        if self.abort() {
            self.state = PairState::Stopped;
        }
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, self.resets)
    }

    fn lost(&self) -> Option<Error> {
        match &self.state {
            // The last poll has tried in vain to make the device drop the requests.
            PairState::Lost(why) if self.done < self.head => Some(repeat(why)),
            _ => None,
        }
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        Some(self)
    }
}

impl QueueEvents for RdmaQueue {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.pair.fd())
    }

    fn arm(&mut self) -> Result<bool> {
        self.pair.notify()?;
        if self.done < self.posted || matches!(self.state, PairState::Connecting(_)) {
            self.process();
        }
        // A new connection makes no completion, so the queue must be polled while it is connecting, which
        // takes a bounded time.
        Ok(self.done == self.reported && !matches!(self.state, PairState::Connecting(_)))
    }

    fn disarm(&mut self) {
        self.pair.clear();
    }
}

impl Drop for RdmaQueue {
    fn drop(&mut self) {
        // The safe API drops a queue only when nothing is in flight. The queue pairs are then destroyed or
        // leaked.
        self.pair.clear();
        if !self.pair.close() {
            std::mem::forget(self.bounce.take());
        }
    }
}
