//! Requests at the device: checks of keys and rights, execution, and completions.
#![expect(unsafe_code, reason = "copies memory by addresses, as the device does")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{iter, ptr};

use arrayvec::ArrayVec;
use dma_standin::c_abi::require;
use verbs_sys::*;

use super::{Armed, Completions, GID, MAX_SGE, Pieces, Queue, Receive, SendRequest, State, signal, wc};
use crate::network::{Job, Request};

/// `IBV_EVENT_CQ_ERR`.
const EVENT_CQ_ERR: c_int = 0;

/// `IBV_EVENT_SRQ_LIMIT_REACHED`.
const EVENT_SRQ_LIMIT_REACHED: c_int = 15;

/// Values of a completion's `opcode` for receives.
const WC_RECV: c_int = 1 << 7;

const WC_RECV_RDMA_WITH_IMM: c_int = WC_RECV + 1;

/// `IBV_WC_GRH`.
const WC_GRH: c_uint = 1 << 0;

/// `IBV_WC_WITH_IMM`.
const WC_WITH_IMM: c_uint = 1 << 1;

/// Length in bytes of the header in front of a datagram.
const GRH: usize = 40;

/// Maximum length in bytes of a datagram, the port's MTU.
const MAX_DATAGRAM: u32 = 1024;

/// Returns the header in front of a datagram from this machine to itself: version 6, and both GIDs.
fn grh() -> [u8; GRH] {
    let mut bytes = [0; GRH];
    bytes[0] = 0x60;
    bytes[8..24].copy_from_slice(&GID.raw);
    bytes[24..].copy_from_slice(&GID.raw);
    bytes
}

/// The value of `rnr_retry` for retries without end.
const RETRY_FOREVER: u8 = 7;

/// A receive that has ended, whose completion is not in the queue yet.
#[derive(Debug)]
pub(crate) struct Received {
    number: u32,
    resets: u64,
    is_solicited: bool,
    entry: ibv_wc,
}

/// The memory of one piece: its first byte and its length.
type Segment = (*mut u8, usize);
type Segments = ArrayVec<Segment, MAX_SGE>;

impl State {
    /// Returns a pointer to the byte at an address, if a region has the key, the bytes and the rights.
    fn granted(&self, pd: usize, key: u32, addr: u64, len: u64, access: c_int) -> Option<*mut u8> {
        let region = self.regions.get(&key)?;
        let offset = addr.checked_sub(region.base)?;
        let inside = offset.checked_add(len)? <= region.len;
        let granted = inside && region.pd == pd && region.rights & access == access;
        granted.then(|| region.bytes.wrapping_add(offset as usize))
    }

    /// Returns the memory of pieces, or `None` if a region is missing or lacks the rights. Empty pieces have
    /// no memory.
    fn segments(&self, pd: usize, pieces: &[ibv_sge], access: c_int) -> Option<Segments> {
        let used = pieces.iter().filter(|piece| piece.length > 0);
        let segment = |piece: &ibv_sge| {
            let bytes = self.granted(pd, piece.lkey, piece.addr, piece.length.into(), access)?;
            Some((bytes, piece.length as usize))
        };
        used.map(segment).collect()
    }

    /// Returns the memory of a request's own side, or the request's status.
    fn local(&self, pd: usize, request: &mut SendRequest) -> Result<Segments, c_int> {
        let most = if request.remote.qp_type == QPT_UD { MAX_DATAGRAM } else { self.max_msg_sz };
        require(request.remote.len <= most.into(), wc::LENGTH)?;
        if let Some(bytes) = &mut request.inline {
            return Ok(iter::once((bytes.as_mut_ptr(), bytes.len())).collect());
        }
        let rights = if request.remote.returns_bytes() { access::LOCAL_WRITE } else { 0 };
        self.segments(pd, &request.pieces, rights).ok_or(wc::PROTECTION)
    }

    /// Returns the status of the next request if the request must not be run.
    fn planned_status(&mut self) -> Option<c_int> {
        let planned = self.statuses.pop_front().filter(|status| *status != 0);
        if planned.is_some() {
            return planned;
        }
        let fails = self.port_down || (self.fail_every > 0 && self.random().is_multiple_of(self.fail_every));
        fails.then_some(wc::NO_ANSWER)
    }

    /// Runs a request to a queue pair of this device, and returns its status.
    fn run_one(&mut self, pd: usize, request: &mut SendRequest) -> c_int {
        let local = match self.local(pd, request) {
            Ok(local) => local,
            Err(status) => return status,
        };
        let (status, received) = self.execute(&request.remote, &local);
        if let Some(received) = received {
            self.deliver(received);
        }
        if request.remote.is_reliable() { status } else { 0 }
    }

    /// Runs a request at the queue pair that it names. The request's own side has the memory `payload`.
    /// Returns the request's status, and the receive that the request has used.
    fn execute(&mut self, request: &Request, payload: &[Segment]) -> (c_int, Option<Received>) {
        let connected = |queue: &&Queue| {
            let accepts = match request.qp_type {
                QPT_UD => queue.attr.qkey == request.rkey,
                _ => queue.attr.dest_qp_num == request.from,
            };
            accepts
                && queue.qp_type == request.qp_type
                && matches!(queue.attr.qp_state, qp_state::RTR | qp_state::RTS)
        };
        let Some(queue) = self.queues.get(&request.to).filter(connected) else {
            return (wc::NO_ANSWER, None);
        };
        if request.uses_receive() && self.receives(queue).is_none_or(VecDeque::is_empty) {
            return (wc::NOT_READY, None);
        }
        if request.op == WR_SEND || request.op == WR_SEND_WITH_IMM {
            return self.receive(request, payload);
        }
        let rights = request.rights();
        if queue.attr.qp_access_flags & rights == 0
            || (request.returns_bytes() && queue.attr.max_dest_rd_atomic == 0)
        {
            return (wc::REMOTE_INVALID, None);
        }
        // No key is checked for a request without bytes.
        if request.len > 0 {
            let Some(memory) = self.granted(queue.pd, request.rkey, request.addr, request.len, rights) else {
                return (wc::REMOTE_ACCESS, None);
            };
            let memory = (memory, request.len as usize);
            match request.op {
                WR_RDMA_READ => copy(&[memory], payload),
                WR_RDMA_WRITE | WR_RDMA_WRITE_WITH_IMM => copy(payload, &[memory]),
                _ => {
                    let Some(old) = request.atomic(memory.0) else { return (wc::REMOTE_INVALID, None) };
                    let mut old = old.to_ne_bytes();
                    copy(&[(old.as_mut_ptr(), old.len())], payload);
                }
            }
        }
        let received = (request.op == WR_RDMA_WRITE_WITH_IMM).then(|| self.received(request).1);
        (0, received)
    }

    /// Puts the bytes of a send into the next receive, which the caller has checked for.
    fn receive(&mut self, request: &Request, payload: &[Segment]) -> (c_int, Option<Received>) {
        let (pieces, mut received) = self.received(request);
        let queue = &self.queues[&request.to];
        let pd = queue.srq.and_then(|srq| self.shared_receives.get(&srq)).map_or(queue.pd, |srq| srq.pd);
        let mut header = grh();
        let is_datagram = request.qp_type == QPT_UD;
        let header = is_datagram.then_some((header.as_mut_ptr(), header.len()));
        let whole = header.into_iter().chain(payload.iter().copied());
        let room: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        let (status, own) = if room < received.entry.byte_len.into() {
            (wc::REMOTE_INVALID, wc::LENGTH)
        } else if let Some(memory) = self.segments(pd, &pieces, access::LOCAL_WRITE) {
            copy(&whole.collect::<ArrayVec<_, { MAX_SGE + 1 }>>(), &memory);
            (0, 0)
        } else {
            (wc::REMOTE_FAILED, wc::PROTECTION)
        };
        received.entry.status = own;
        (status, Some(received))
    }

    /// Returns the receive queue of a queue pair.
    fn receives<'a>(&'a self, queue: &'a Queue) -> Option<&'a VecDeque<Receive>> {
        match queue.srq {
            Some(srq) => self.shared_receives.get(&srq).map(|srq| &srq.receives),
            None => Some(&queue.receives),
        }
    }

    /// Takes the next receive for a request, which the caller has checked for, and makes its completion.
    fn received(&mut self, request: &Request) -> (Pieces, Received) {
        let mut reached = None;
        let queue = self.queues.get_mut(&request.to).expect("the caller has checked");
        let next = match queue.srq.and_then(|srq| self.shared_receives.get_mut(&srq)) {
            Some(srq) => {
                let next = srq.receives.pop_front();
                if srq.receives.len() < srq.limit as usize {
                    srq.limit = 0;
                    reached = Some(srq.public);
                }
                next
            }
            None => queue.receives.pop_front(),
        };
        let Receive { wr_id, pieces } = next.expect("the caller has checked");
        let writes = request.op == WR_RDMA_WRITE_WITH_IMM;
        let has_imm = writes || request.op == WR_SEND_WITH_IMM;
        let (header, grh) = if request.qp_type == QPT_UD { (GRH, WC_GRH) } else { (0, 0) };
        let entry = ibv_wc {
            wr_id,
            opcode: if writes { WC_RECV_RDMA_WITH_IMM } else { WC_RECV },
            byte_len: header as u32 + request.len as u32,
            imm_data: if has_imm { request.imm } else { 0 },
            wc_flags: if has_imm { WC_WITH_IMM | grh } else { grh },
            qp_num: request.to,
            src_qp: request.from,
            ..ibv_wc::default()
        };
        let (number, resets) = (request.to, queue.resets);
        let received = Received { number, resets, is_solicited: request.is_solicited, entry };
        if let Some(public) = reached {
            self.emit_about(EVENT_SRQ_LIMIT_REACHED, public);
        }
        (pieces, received)
    }

    /// Reports a receive that has ended.
    pub(crate) fn deliver(&mut self, received: Received) {
        let Received { number, resets, is_solicited, entry } = received;
        let Some(queue) = self.queues.get_mut(&number).filter(|queue| queue.resets == resets) else { return };
        let recv_cq = queue.recv_cq;
        if !self.loses {
            self.push(recv_cq, (entry, number, 0), is_solicited);
        }
        if entry.status != 0 {
            self.fail(number);
        }
    }

    /// Moves a queue pair to the error state, and flushes its receives. Later, [`run`](Self::run) flushes the
    /// requests of its send queue.
    pub(crate) fn fail(&mut self, number: u32) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        queue.attr.qp_state = qp_state::ERR;
        let (recv_cq, receives) = (queue.recv_cq, std::mem::take(&mut queue.receives));
        for Receive { wr_id, .. } in receives {
            let (status, opcode) = (wc::FLUSHED, WC_RECV);
            let entry = ibv_wc { wr_id, status, opcode, qp_num: number, ..ibv_wc::default() };
            self.push(recv_cq, (entry, number, 0), true);
        }
    }

    /// Answers a request of another device: copies to or from `bytes`. Returns the status, and the receive
    /// that the request has used.
    pub(crate) fn answer(&mut self, request: &Request, bytes: &mut [u8]) -> (c_int, Option<Received>) {
        if self.port_down || self.hangs {
            return (wc::NO_ANSWER, None);
        }
        let (status, received) = self.execute(request, &[(bytes.as_mut_ptr(), bytes.len())]);
        self.undelivered += usize::from(received.is_some());
        (status, received)
    }

    /// Reports a receive that [`answer`](Self::answer) has returned.
    pub(crate) fn deliver_answered(&mut self, received: Received) {
        self.undelivered -= 1;
        self.deliver(received);
        self.wake_unanswered();
    }

    /// Sends a request to another device. Returns the request and its status if the status is already known.
    fn ask(&mut self, number: u32, mut request: SendRequest) -> Option<(SendRequest, c_int)> {
        let &Queue { pd, resets, .. } = &self.queues[&number];
        let local = match self.local(pd, &mut request) {
            Ok(local) => local,
            Err(status) => return Some((request, status)),
        };
        let mut bytes = Vec::new();
        if !request.remote.returns_bytes() {
            bytes.resize(request.remote.len as usize, 0);
            copy(&local, &[(bytes.as_mut_ptr(), bytes.len())]);
        }
        let failed = if request.remote.is_reliable() { wc::NO_ANSWER } else { 0 };
        let Some(node) = self.node.as_mut() else { return Some((request, failed)) };
        let job = Job { request, bytes, resets };
        if let Some(job) = node.send(job) {
            return Some((job.request, failed));
        }
        self.queues.entry(number).and_modify(|queue| queue.is_asking = true);
        None
    }

    /// Ends a request that another device has answered. Returns the job if it must be sent again.
    pub(crate) fn finish(&mut self, mut job: Job, mut status: c_int) -> Option<Job> {
        let number = job.request.remote.from;
        let queue = self.queues.get_mut(&number).filter(|queue| queue.resets == job.resets)?;
        let retries = queue.attr.rnr_retry;
        if !job.request.remote.is_reliable() {
            status = 0;
        }
        if status == wc::NOT_READY
            && queue.attr.qp_state != qp_state::ERR
            && (retries == RETRY_FOREVER || job.request.unready < retries)
        {
            job.request.unready = job.request.unready.saturating_add(1);
            return Some(job);
        }
        if status == wc::NO_ANSWER {
            self.unanswered.push_back(job);
            self.wake_unanswered();
        } else {
            self.end(job, status);
        }
        None
    }

    /// Reports the first request of a completion queue that got no answer, if the program has taken
    /// everything that was reported before.
    ///
    /// A real device repeats a request several times before it reports that there is no answer. In that time,
    /// a program takes the completions of what its peer has done, and may end as its peer did. The stand-in
    /// does not repeat requests, so it reports the failure once the program asks for more than these.
    pub(crate) fn end_unanswered(&mut self, cq: u32) {
        let queues = &self.queues;
        self.unanswered.retain(|job| {
            queues.get(&job.request.remote.from).is_some_and(|queue| queue.resets == job.resets)
        });
        let is_empty = self.completions.get(&cq).is_some_and(|completions| completions.entries.is_empty());
        if !is_empty || self.undelivered > 0 {
            return;
        }
        let of_cq = |job: &Job| self.queues[&job.request.remote.from].send_cq == cq;
        if let Some(job) = self.unanswered.iter().position(of_cq).and_then(|at| self.unanswered.remove(at)) {
            self.end(job, wc::NO_ANSWER);
        }
    }

    /// Wakes the programs that wait for an event of a completion queue whose requests got no answer.
    fn wake_unanswered(&mut self) {
        let cqs = self.unanswered.iter().filter_map(|job| self.queues.get(&job.request.remote.from));
        for cq in cqs.map(|queue| queue.send_cq).collect::<Vec<_>>() {
            self.wake_armed(cq);
        }
    }

    /// Reports a request that got no answer to a completion queue that is armed. If the queue has other
    /// completions, signals it, so that the program takes these first.
    pub(crate) fn wake_armed(&mut self, cq: u32) {
        if self.completions.get(&cq).is_none_or(|completions| completions.armed == Armed::No) {
            return;
        }
        self.end_unanswered(cq);
        let is_waiting =
            self.unanswered.iter().any(|job| self.queues[&job.request.remote.from].send_cq == cq);
        if is_waiting
            && self.undelivered == 0
            && let Some(completions) = self.completions.get_mut(&cq)
        {
            completions.signal();
        }
    }

    /// Ends a request with this status.
    fn end(&mut self, mut job: Job, mut status: c_int) {
        let number = job.request.remote.from;
        let Some(queue) = self.queues.get_mut(&number) else { return };
        queue.is_asking = false;
        let pd = queue.pd;
        if status == 0 && job.request.remote.returns_bytes() {
            match self.local(pd, &mut job.request) {
                Ok(local) => copy(&[(job.bytes.as_mut_ptr(), job.bytes.len())], &local),
                Err(own) => status = own,
            }
        }
        self.complete(number, &job.request, status);
        self.run_queue(number, u64::MAX);
    }

    /// Runs up to `most` requests of a completion queue's pairs.
    pub(crate) fn run(&mut self, cq: u32, most: u64) {
        let of_cq = |(number, queue): (&u32, &Queue)| {
            let is_ready = queue.send_cq == cq && !queue.waiting.is_empty() && !queue.is_asking;
            is_ready.then_some(*number)
        };
        if let Some(number) = self.queues.iter().find_map(of_cq) {
            self.run_queue(number, most);
        }
    }

    /// Runs the requests of all queue pairs whose requests wait for a receive of this device.
    pub(crate) fn run_unready(&mut self) {
        let is_unready = |queue: &Queue| queue.waiting.front().is_some_and(|request| request.unready > 0);
        let unready = self.queues.iter().filter(|(_, queue)| is_unready(queue));
        for number in unready.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.run_queue(number, u64::MAX);
        }
    }

    /// Runs up to `most` requests of a queue pair.
    pub(crate) fn run_queue(&mut self, number: u32, most: u64) {
        for _ in 0..most {
            let Some(queue) = self.queues.get_mut(&number).filter(|queue| !queue.is_asking) else { return };
            let failed = queue.attr.qp_state == qp_state::ERR;
            if self.hangs && !failed {
                return;
            }
            let (pd, peer, retries) = (queue.pd, queue.attr.dest_qp_num, queue.attr.rnr_retry);
            let Some(mut request) = queue.waiting.pop_front() else { return };
            if request.remote.qp_type != QPT_UD {
                request.remote.to = peer;
            }
            let to = request.remote.to;
            let is_foreign = self.node.as_ref().is_some_and(|node| node.is_foreign(to));
            let planned = if failed { Some(wc::FLUSHED) } else { self.planned_status() };
            let status = if let Some(status) = planned {
                status
            } else if is_foreign {
                match self.ask(number, request) {
                    None => return,
                    Some((refused, status)) => {
                        request = refused;
                        status
                    }
                }
            } else {
                self.run_one(pd, &mut request)
            };
            if status == wc::NOT_READY && planned.is_none() && retries == RETRY_FOREVER {
                // The request runs again when a receive is posted.
                request.unready = 1;
                self.queues.entry(number).and_modify(|queue| queue.waiting.push_front(request));
                return;
            }
            if !self.complete(number, &request, status) {
                return;
            }
        }
    }

    /// Ends a request. Returns false if the completion queue overflows or does not exist.
    fn complete(&mut self, number: u32, request: &SendRequest, status: c_int) -> bool {
        let Some(queue) = self.queues.get(&number) else { return false };
        let (cq, is_silent) = (queue.send_cq, request.flags & SEND_SIGNALED == 0 && !queue.signals_all);
        let has_failed = queue.attr.qp_state == qp_state::ERR;
        let mut complete = true;
        if !self.loses && (status != 0 || !is_silent) {
            let entry = ibv_wc {
                wr_id: request.wr_id,
                status,
                opcode: request.remote.completion(),
                byte_len: request.remote.len as u32,
                qp_num: number,
                ..ibv_wc::default()
            };
            complete = self.push(cq, (entry, number, request.index + 1), status != 0);
        }
        if status != 0 && !has_failed {
            self.fail(number);
        }
        complete
    }

    /// Adds a completion. Returns false if the completion queue overflows or does not exist.
    fn push(&mut self, cq: u32, entry: (ibv_wc, u32, u64), is_solicited: bool) -> bool {
        let Some(completions) = self.completions.get_mut(&cq) else { return false };
        if completions.entries.len() >= completions.room {
            // Like a real device, the stand-in reports the overflow by an event, and loses the completion.
            let public = completions.public;
            self.emit_about(EVENT_CQ_ERR, public);
            return false;
        }
        completions.entries.push_back(entry);
        if completions.armed == Armed::Any || (completions.armed == Armed::Solicited && is_solicited) {
            completions.signal();
        }
        true
    }
}

impl Completions {
    /// Makes an event, if the queue has a channel. The queue is not armed afterwards.
    fn signal(&mut self) {
        self.armed = Armed::No;
        if self.signal >= 0 {
            self.pending += 1;
            signal(self.signal);
        }
    }
}

/// Copies bytes from one list of memory to another one, until one of them ends.
fn copy(from: &[Segment], to: &[Segment]) {
    let (mut from, mut to) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut dest) = ((ptr::null_mut::<u8>(), 0), (ptr::null_mut::<u8>(), 0));
    loop {
        for (segment, rest) in [(&mut source, &mut from), (&mut dest, &mut to)] {
            while segment.1 == 0 {
                let Some(next) = rest.next() else { return };
                *segment = next;
            }
        }
        let len = source.1.min(dest.1);
        // SAFETY: both ranges are within registered regions, which their owners keep mapped until they are
        // deregistered, or within a buffer of the caller.
        unsafe { ptr::copy(source.0, dest.0, len) };
        for segment in [&mut source, &mut dest] {
            *segment = (segment.0.wrapping_add(len), segment.1 - len);
        }
    }
}

impl Request {
    /// Runs an atomic operation, and returns the earlier value. Returns `None` if the address is not a
    /// multiple of 8.
    fn atomic(&self, memory: *mut u8) -> Option<u64> {
        let memory = memory.cast::<u64>();
        if !memory.is_aligned() || self.len != 8 {
            return None;
        }
        // SAFETY: the address is aligned, and its 8 bytes lie within a registered region, which its owner
        // keeps mapped until it is deregistered.
        let value = unsafe { AtomicU64::from_ptr(memory) };
        Some(if self.op == WR_ATOMIC_FETCH_AND_ADD {
            value.fetch_add(self.compare_add, Ordering::SeqCst)
        } else {
            let swapped =
                value.compare_exchange(self.compare_add, self.swap, Ordering::SeqCst, Ordering::SeqCst);
            swapped.unwrap_or_else(|old| old)
        })
    }
}
