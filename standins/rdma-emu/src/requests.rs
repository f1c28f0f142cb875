//! The calls of the data path, which C's inline functions find in the context and in the queue pair: posting
//! requests as lists or in place, polling, and arming.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::{iter, slice};

use dma_standin::c_abi::require;
use verbs_sys::*;

use crate::abi::{self, ibv_data_buf, ibv_qp_ex};
use crate::calls::objects::{Built, EmuQp, MAX_INLINE, cq_of, qp_of, srq_of};
use crate::device::{Armed, Pieces, Receive, SendRequest, State, lock};
use crate::network::Request;

/// Returns a list of C's, which may be NULL if it is empty.
unsafe fn list<'a, T>(first: *const T, len: usize) -> &'a [T] {
    if len == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: the caller passes a list of this length.
    unsafe { slice::from_raw_parts(first, len) }
}

/// Copies the bytes of a piece of inline data.
unsafe fn append(bytes: &mut Vec<u8>, addr: *const u8, len: usize) {
    // SAFETY: the caller passes memory that can be read.
    bytes.extend_from_slice(unsafe { list(addr, len) });
}

/// Reads a request of a list. Returns `None` if the device does not know its opcode.
unsafe fn read(wr: *const ibv_send_wr, qp_type: c_int) -> Option<Built> {
    // SAFETY: the caller passes a valid request.
    let ibv_send_wr {
        wr_id, sg_list, num_sge, opcode, send_flags, imm_data, remote_addr, rkey, others, ..
    } = unsafe { *wr };
    if !(WR_RDMA_WRITE..=WR_ATOMIC_FETCH_AND_ADD).contains(&opcode) {
        return None;
    }
    let mut remote = Request { op: opcode, imm: imm_data, rkey, addr: remote_addr, ..Request::default() };
    if opcode >= WR_ATOMIC_CMP_AND_SWP {
        let compare_add = wr.wrapping_byte_add(offset_of!(ibv_send_wr, rkey)).cast::<u64>();
        // SAFETY: C's structure has the operand of an atomic operation at the place of the key.
        remote.compare_add = unsafe { *compare_add };
        (remote.swap, remote.rkey) =
            (others[0], others[1].to_ne_bytes().first_chunk().map_or(0, |key| u32::from_ne_bytes(*key)));
    }
    if qp_type == QPT_UD {
        // C's structure has the address handle at the place of the remote address, and two numbers behind it.
        let key = wr.wrapping_byte_add(offset_of!(ibv_send_wr, rkey) + 4).cast::<u32>();
        (remote.addr, remote.to) = (0, rkey);
        // SAFETY: the caller passes a valid request, whose second number is the key.
        remote.rkey = unsafe { *key };
        if remote_addr == 0 {
            return None;
        }
    }
    // SAFETY: the caller passes a valid list.
    let pieces = unsafe { list(sg_list.cast_const(), usize::try_from(num_sge).ok()?) };
    let pieces = Pieces::try_from(pieces).ok()?;
    let mut inline = None;
    if send_flags & SEND_INLINE != 0 {
        let bytes = inline.insert(Vec::new());
        for piece in &pieces {
            if bytes.len() + piece.length as usize > MAX_INLINE as usize {
                return None;
            }
            let addr = std::ptr::with_exposed_provenance(piece.addr as usize);
            // SAFETY: the caller passes memory that can be read.
            unsafe { append(bytes, addr, piece.length as usize) };
        }
    }
    Some(Built { wr_id, flags: send_flags, remote, pieces, inline })
}

impl State {
    /// Queues a request. An error is the error number of the call that posts it.
    fn post(&mut self, number: u32, built: Built) -> Result<(), c_int> {
        let Built { wr_id, flags, mut remote, pieces, inline } = built;
        let queue = self.queues.get_mut(&number).ok_or(libc::EINVAL)?;
        let cap = &queue.attr.cap;
        let fits = match &inline {
            Some(bytes) => bytes.len() <= cap.max_inline_data as usize && !remote.returns_bytes(),
            None => pieces.len() <= cap.max_send_sge.max(1) as usize,
        };
        let known = match queue.qp_type {
            QPT_RC => WR_RDMA_WRITE..=WR_ATOMIC_FETCH_AND_ADD,
            QPT_UC => WR_RDMA_WRITE..=WR_SEND_WITH_IMM,
            _ => WR_SEND..=WR_SEND_WITH_IMM,
        };
        require(fits && known.contains(&remote.op) && queue.attr.qp_state >= qp_state::RTS, libc::EINVAL)?;
        require(queue.posted - queue.retired < cap.max_send_wr.into(), libc::ENOMEM)?;
        let pieces_len = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        remote.len = inline.as_ref().map_or(pieces_len, |bytes| bytes.len() as u64);
        (remote.from, remote.is_solicited) = (number, flags & SEND_SOLICITED != 0);
        remote.qp_type = queue.qp_type;
        let index = queue.posted;
        queue.waiting.push_back(SendRequest { index, wr_id, flags, pieces, inline, remote, unready: 0 });
        queue.posted += 1;
        if self.records {
            self.flags.push(flags);
        }
        Ok(())
    }

    /// Runs requests that were just posted, if a program may wait for their effects without a poll.
    fn run_posted(&mut self, number: u32) {
        let Some(queue) = self.queues.get(&number) else { return };
        let cq = queue.send_cq;
        if self.is_networked || self.completions.get(&cq).is_some_and(|cq| cq.armed != Armed::No) {
            self.run_queue(number, u64::MAX);
        }
    }
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let (state, number) = qp_of(qp);
    let mut state = lock(&state);
    let qp_type = state.queues.get(&number).map_or(QPT_RC, |queue| queue.qp_type);
    let refuse_after = state.refuse_after.take();
    let (mut taken, mut next, mut code) = (0, first, 0);
    while !next.is_null() {
        // SAFETY: the caller passes a chain of valid requests.
        let built = unsafe { read(next, qp_type) }.filter(|_| refuse_after != Some(taken));
        if let Err(refused) = built.ok_or(libc::EINVAL).and_then(|built| state.post(number, built)) {
            // SAFETY: the caller passes a pointer to which the refused request can be written.
            unsafe { *bad = next };
            code = refused;
            break;
        }
        taken += 1;
        // SAFETY: the caller passes a chain of valid requests.
        next = unsafe { (*next).next };
    }
    if state.records {
        state.chains.push(taken);
    }
    state.run_posted(number);
    code
}

/// Adds receives to a queue with `room` places. Returns the error number of the call that posts them.
unsafe fn add_receives(
    receives: &mut VecDeque<Receive>,
    (room, max_sge): (u32, u32),
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the caller passes a chain of valid requests.
        let ibv_recv_wr { wr_id, next: following, sg_list, num_sge } = unsafe { *next };
        let len = u32::try_from(num_sge).ok().filter(|len| *len <= max_sge);
        let code = if receives.len() >= room as usize { libc::ENOMEM } else { libc::EINVAL };
        let Some(len) = len.filter(|_| code != libc::ENOMEM) else {
            // SAFETY: the caller passes a pointer to which the refused request can be written.
            unsafe { *bad = next };
            return code;
        };
        // SAFETY: the caller passes a valid list.
        let pieces = unsafe { list(sg_list.cast_const(), len as usize) };
        receives.push_back(Receive { wr_id, pieces: pieces.iter().copied().collect() });
        next = following;
    }
    0
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let (state, number) = qp_of(qp);
    let mut state = lock(&state);
    let Some(queue) = state.queues.get_mut(&number) else { return libc::EINVAL };
    let (cap, current) = (queue.attr.cap, queue.attr.qp_state);
    if queue.srq.is_some() || current == qp_state::RESET {
        // SAFETY: the caller passes a pointer to which the refused request can be written.
        unsafe { *bad = first };
        return libc::EINVAL;
    }
    let limits = (cap.max_recv_wr, cap.max_recv_sge);
    // SAFETY: the caller passes a chain of valid requests, and a pointer that can be written.
    let code = unsafe { add_receives(&mut queue.receives, limits, first, bad) };
    if current == qp_state::ERR {
        state.fail(number);
    }
    state.run_unready();
    code
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut c_void,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let (state, handle) = srq_of(srq.cast::<abi::ibv_srq>());
    let mut state = lock(&state);
    let Some(shared) = state.shared_receives.get_mut(&handle) else { return libc::EINVAL };
    let limits = (shared.max_wr, shared.max_sge);
    // SAFETY: the caller passes a chain of valid requests, and a pointer that can be written.
    let code = unsafe { add_receives(&mut shared.receives, limits, first, bad) };
    state.run_unready();
    code
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, into: *mut ibv_wc) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    if state.error("poll_cq").is_some() {
        return -1;
    }
    let work = state.random() % 40;
    state.run(handle, work);
    state.end_unanswered(handle);
    let mut number = 0;
    while number < most {
        let Some(completions) = state.completions.get_mut(&handle) else { return -1 };
        let Some((entry, qp, retires)) = completions.entries.pop_front() else { break };
        if let Some(queue) = state.queues.get_mut(&qp) {
            queue.retired = queue.retired.max(retires.min(queue.posted));
        }
        // SAFETY: the caller has room for `most` completions.
        let place = unsafe { into.add(number as usize) };
        // SAFETY: the index is within the caller's room for `most` completions.
        unsafe { *place = entry };
        number += 1;
    }
    let is_networked = state.is_networked;
    drop(state);
    if number == 0 && is_networked {
        // Programs poll without a pause, and the device's threads may need this core.
        std::thread::yield_now();
    }
    number
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    let Some(completions) = state.completions.get_mut(&handle) else { return libc::EINVAL };
    if solicited == 0 {
        completions.armed = Armed::Any;
    } else if completions.armed == Armed::No {
        completions.armed = Armed::Solicited;
    }
    state.run(handle, u64::MAX);
    state.wake_armed(handle);
    0
}

/// Returns the queue pair's structure of C's, with the calls that build requests in place.
pub(crate) const fn writers(base: ibv_qp, qp_type: c_int) -> ibv_qp_ex {
    ibv_qp_ex {
        base,
        state: qp_state::RESET,
        qp_type,
        waiters: abi::Waiters::UNUSED,
        events_completed: 0,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp,
        wr_atomic_fetch_add,
        wr_bind_mw: 0,
        wr_local_inv: 0,
        wr_rdma_read,
        wr_rdma_write,
        wr_rdma_write_imm,
        wr_send,
        wr_send_imm,
        wr_send_inv: 0,
        wr_send_tso: 0,
        wr_set_ud_addr,
        wr_set_xrc_srqn: 0,
        wr_set_inline_data,
        wr_set_inline_data_list,
        wr_set_sge,
        wr_set_sge_list,
        wr_start,
        wr_complete,
        wr_abort,
        wr_atomic_write: 0,
    }
}

/// Starts a request, with the id and the flags that the program has set in the structure.
unsafe fn build(qp: *mut ibv_qp_ex, remote: Request) {
    // SAFETY: the object was made by `new_qp`.
    let &ibv_qp_ex { wr_id, wr_flags: flags, .. } = unsafe { &*qp };
    // SAFETY: the object was made by `new_qp`. Only the thread that has called `wr_start` uses the list.
    let built = unsafe { &mut (*qp.cast::<EmuQp>()).built };
    built.push(Built { wr_id, flags, remote, pieces: Pieces::new(), inline: None });
}

/// Changes the request that was started last, if there is one.
unsafe fn change(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Built)) {
    // SAFETY: the object was made by `new_qp`. Only the thread that has called `wr_start` uses the list.
    let built = unsafe { &mut (*qp.cast::<EmuQp>()).built };
    built.last_mut().map(change);
}

macro_rules! starters {
    ($($call:ident($($arg:ident: $type:ty),*) $op:ident { $($field:ident: $value:expr),* };)*) => {$(
        unsafe extern "C" fn $call(qp: *mut ibv_qp_ex, $($arg: $type),*) {
            // SAFETY: the caller passes a queue pair with calls that build requests.
            unsafe { build(qp, Request { op: $op, $($field: $value,)* ..Request::default() }) };
        }
    )*};
}
starters! {
    wr_rdma_read(rkey: u32, addr: u64) WR_RDMA_READ { rkey: rkey, addr: addr };
    wr_rdma_write(rkey: u32, addr: u64) WR_RDMA_WRITE { rkey: rkey, addr: addr };
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) WR_RDMA_WRITE_WITH_IMM { rkey: rkey, addr: addr, imm: imm };
    wr_send() WR_SEND {};
    wr_send_imm(imm: u32) WR_SEND_WITH_IMM { imm: imm };
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) WR_ATOMIC_CMP_AND_SWP
        { rkey: rkey, addr: addr, compare_add: compare, swap: swap };
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) WR_ATOMIC_FETCH_AND_ADD
        { rkey: rkey, addr: addr, compare_add: add };
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the caller passes a queue pair with calls that build requests.
    unsafe { change(qp, |built| built.pieces = iter::once(ibv_sge { addr, length, lkey }).collect()) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, len: usize, pieces: *const ibv_sge) {
    // SAFETY: the caller passes a list of this length.
    let pieces = unsafe { list(pieces, len) };
    // A list that is too long becomes a request that `wr_complete` refuses.
    // SAFETY: the caller passes a queue pair with calls that build requests.
    unsafe {
        change(qp, |built| match Pieces::try_from(pieces) {
            Ok(pieces) => built.pieces = pieces,
            Err(_) => built.remote.op = -1,
        });
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: the caller passes memory that can be read.
    unsafe { wr_set_inline_data_list(qp, 1, &ibv_data_buf { addr, length }) };
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, _ah: *mut abi::ibv_ah, number: u32, key: u32) {
    // SAFETY: the caller passes a queue pair with calls that build requests.
    unsafe { change(qp, |built| (built.remote.to, built.remote.rkey) = (number, key)) };
}

/// Longer data than any queue pair accepts is read no further, so that `wr_complete` refuses the request.
unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, len: usize, pieces: *const ibv_data_buf) {
    let mut bytes = Vec::new();
    // SAFETY: the caller passes a list of this length.
    for piece in unsafe { list(pieces, len) } {
        let len = piece.length.min(MAX_INLINE as usize + 1);
        // SAFETY: the caller passes memory that can be read.
        unsafe { append(&mut bytes, piece.addr.cast_const().cast(), len) };
    }
    // SAFETY: the caller passes a queue pair with calls that build requests.
    unsafe { change(qp, |built| built.inline = Some(bytes)) };
}

/// Waits until no other thread builds requests of this queue pair.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller passes a queue pair with calls that build requests.
    let is_building = unsafe { &(*qp.cast::<EmuQp>()).is_building };
    while is_building.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// Takes the requests that were built, and lets other threads build.
unsafe fn built(qp: *mut ibv_qp_ex) -> Vec<Built> {
    let qp = qp.cast::<EmuQp>();
    // SAFETY: the object was made by `new_qp`. Only the thread that has called `wr_start` uses the list.
    let built = std::mem::take(unsafe { &mut (*qp).built });
    // SAFETY: the object was made by `new_qp`, and exists until `ibv_destroy_qp`.
    unsafe { (*qp).is_building.store(false, Ordering::Release) };
    built
}

/// Posts all requests, or none if one of them is refused.
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let (shared, number) = qp_of(qp.cast());
    let mut state = lock(&shared);
    // SAFETY: the caller passes a queue pair with calls that build requests.
    let built = unsafe { built(qp) };
    for (taken, request) in built.into_iter().enumerate() {
        if let Err(code) = state.post(number, request) {
            if let Some(queue) = state.queues.get_mut(&number) {
                queue.waiting.truncate(queue.waiting.len() - taken);
                queue.posted -= taken as u64;
            }
            return code;
        }
    }
    state.run_posted(number);
    0
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller passes a queue pair with calls that build requests.
    drop(unsafe { built(qp) });
}
