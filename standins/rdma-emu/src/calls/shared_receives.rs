//! Shared receive queues.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr;

use verbs_sys::*;

use super::objects::{MAX_SGE, MAX_SRQ_WR, context_of, give, refused, srq_of, state_of, take};
use crate::abi;
use crate::device::{SharedReceives, lock};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut abi::ibv_srq_init_attr,
) -> *mut abi::ibv_srq {
    let context = context_of(pd);
    let state = state_of(context);
    let mut state = lock(&state);
    if state.error("create_srq").is_some() {
        return ptr::null_mut();
    }
    // SAFETY: the caller passes valid attributes, which can be written.
    let init = unsafe { &mut *init };
    let abi::ibv_srq_attr { max_wr, max_sge, .. } = init.attr;
    if !(1..=MAX_SRQ_WR).contains(&max_wr) || max_sge > MAX_SGE {
        return refused(libc::EINVAL);
    }
    let max_sge = max_sge.max(1);
    (init.attr.max_sge, init.attr.srq_limit) = (max_sge, 0);
    state.keys += 2;
    let handle = state.keys;
    let (srq_context, waiters) = (init.srq_context, abi::Waiters::UNUSED);
    let srq = abi::ibv_srq { context, srq_context, pd, handle, waiters, events_completed: 0 };
    let srq = give(&mut state, srq);
    let (public, receives) = (srq.expose_provenance(), VecDeque::new());
    let shared = SharedReceives { public, pd: pd.addr(), max_wr, max_sge, limit: 0, receives };
    state.shared_receives.insert(handle, shared);
    srq
}

/// Sets the limit below which an event is reported (bit 1 of `mask`). Changing the length (bit 0) is refused.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut abi::ibv_srq,
    attr: *mut abi::ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let (state, handle) = srq_of(srq);
    let mut state = lock(&state);
    let Some(shared) = state.shared_receives.get_mut(&handle) else { return libc::EINVAL };
    // SAFETY: the caller passes valid attributes.
    let limit = unsafe { (*attr).srq_limit };
    if mask != 1 << 1 || limit > shared.max_wr {
        return libc::EINVAL;
    }
    shared.limit = limit;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut abi::ibv_srq, attr: *mut abi::ibv_srq_attr) -> c_int {
    let (state, handle) = srq_of(srq);
    let state = lock(&state);
    let Some(shared) = state.shared_receives.get(&handle) else { return libc::EINVAL };
    let &SharedReceives { max_wr, max_sge, limit: srq_limit, .. } = shared;
    // SAFETY: the caller passes a pointer to which the attributes can be written.
    unsafe { *attr = abi::ibv_srq_attr { max_wr, max_sge, srq_limit } };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut abi::ibv_srq) -> c_int {
    let (state, handle) = srq_of(srq);
    let mut state = lock(&state);
    if state.queues.values().any(|queue| queue.srq == Some(handle)) {
        return libc::EBUSY;
    }
    state.shared_receives.remove(&handle);
    // SAFETY: the object was made by `ibv_create_srq`, and is destroyed once.
    unsafe { take(&mut state, srq) };
    0
}
