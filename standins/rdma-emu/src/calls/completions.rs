//! Completion queues, and channels of their events.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

use rustix::event::EventfdFlags;
use verbs_sys::*;

use super::objects::{EmuChannel, EmuCq, MAX_CQE, cq_of, give, new_eventfd, refused, state_of, take};
use crate::abi;
use crate::device::{Armed, Completions, lock, set_errno};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let state = state_of(context);
    let mut locked = lock(&state);
    if locked.error("create_comp_channel").is_some() {
        return ptr::null_mut();
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
    let Some(signal) = new_eventfd(flags) else { return ptr::null_mut() };
    let public = ibv_comp_channel { context, fd: signal.as_raw_fd() };
    let state = Arc::clone(&state);
    give(&mut locked, EmuChannel { public, _references: 0, state, signal }).cast()
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let channel = channel.cast::<EmuChannel>();
    // SAFETY: the object was made by `ibv_create_comp_channel`.
    let EmuChannel { public, state, .. } = unsafe { &*channel };
    let (fd, state) = (public.fd, Arc::clone(state));
    let mut state = lock(&state);
    if state.completions.values().any(|completions| completions.signal == fd) {
        return libc::EBUSY;
    }
    // SAFETY: the object was made by `ibv_create_comp_channel`, and is destroyed once.
    unsafe { take(&mut state, channel) };
    0
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    let state = state_of(context);
    let mut state = lock(&state);
    if state.error("create_cq").is_some() {
        return ptr::null_mut();
    }
    if !(1..=MAX_CQE).contains(&cqe) {
        return refused(libc::EINVAL);
    }
    state.keys += 2;
    let handle = state.keys;
    // SAFETY: the pointer is NULL, or `ibv_create_comp_channel` made the object.
    let signal = unsafe { channel.as_ref() }.map_or(-1, |channel| channel.fd);
    let public = ibv_cq { context, channel, cq_context, handle, cqe };
    let cq = give(&mut state, EmuCq { public, waiters: abi::Waiters::UNUSED, events_completed: [0; 2] });
    let completions = Completions {
        public: cq.expose_provenance(),
        room: cqe as usize,
        armed: Armed::No,
        pending: 0,
        events: 0,
        signal,
        entries: VecDeque::with_capacity(cqe as usize),
    };
    state.completions.insert(handle, completions);
    cq.cast()
}

/// Changes the number of places for completions.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    let Some(completions) = state.completions.get_mut(&handle) else { return libc::EINVAL };
    if !(1..=MAX_CQE).contains(&cqe) || completions.entries.len() > cqe as usize {
        return libc::EINVAL;
    }
    completions.room = cqe as usize;
    // SAFETY: the object was made by `ibv_create_cq`.
    unsafe { (*cq).cqe = cqe };
    0
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    // rdma-core waits for acknowledgements, possibly forever. Here, missing acknowledgements are an error.
    let unacknowledged = state.completions.get(&handle).is_none_or(|completions| completions.events != 0);
    if unacknowledged || state.queues.values().any(|queue| queue.send_cq == handle || queue.recv_cq == handle)
    {
        return libc::EBUSY;
    }
    state.completions.remove(&handle);
    // SAFETY: the object was made by `ibv_create_cq`.
    unsafe { take(&mut state, cq.cast::<EmuCq>()) };
    0
}

/// Takes the next event. Blocks until there is one, unless the channel's file has O_NONBLOCK.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the object was made by `ibv_create_comp_channel`.
    let channel = unsafe { &*channel.cast::<EmuChannel>() };
    let fd = channel.public.fd;
    // The loop continues if the completion queue of the event was destroyed.
    loop {
        if let Err(errno) = rustix::io::read(&channel.signal, &mut [0; 8]) {
            set_errno(errno.raw_os_error());
            return -1;
        }
        let mut state = lock(&channel.state);
        let mut of_channel = state.completions.values_mut().filter(|cq| cq.signal == fd && cq.pending > 0);
        if let Some(completions) = of_channel.next() {
            completions.pending -= 1;
            completions.events += 1;
            let found = ptr::with_exposed_provenance_mut::<ibv_cq>(completions.public);
            // SAFETY: the object was made by `ibv_create_cq`, and exists as long as the entry in the table.
            let found_context = unsafe { (*found).cq_context };
            // SAFETY: the caller passes a pointer to which the completion queue can be written.
            unsafe { *cq = found };
            // SAFETY: the caller passes a pointer to which its own pointer can be written.
            unsafe { *context = found_context };
            return 0;
        }
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, number: c_uint) {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    if let Some(completions) = state.completions.get_mut(&handle) {
        completions.events = completions.events.saturating_sub(number);
    }
}
