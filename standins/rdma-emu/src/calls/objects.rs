//! The library's objects, which C gets, and their limits.
#![expect(unsafe_code, reason = "reads objects of C that callers pass by address")]

use std::ffi::{c_char, c_int, c_uint};
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{EventfdFlags, eventfd};
use verbs_sys::*;

use crate::device::{Pieces, Shared, State, set_errno};
use crate::network::Request;
use crate::{abi, device};

/// Creates an eventfd for events. If the system refuses it, sets the thread's error number.
pub(super) fn new_eventfd(flags: EventfdFlags) -> Option<OwnedFd> {
    eventfd(0, flags).map_err(|errno| set_errno(errno.raw_os_error())).ok()
}

#[repr(C)]
pub(super) struct EmuContext {
    pub(super) public: abi::verbs_context,
    pub(super) device: Arc<EmuDevice>,
    pub(super) events: OwnedFd,
}

#[repr(C)]
pub(super) struct EmuChannel {
    pub(super) public: ibv_comp_channel,
    /// The field of C's structure that only rdma-core uses.
    pub(super) _references: c_int,
    pub(super) state: Shared,
    pub(super) signal: OwnedFd,
}

#[repr(C)]
pub(super) struct EmuDevice {
    pub(super) public: abi::ibv_device,
    pub(super) number: u8,
    pub(super) state: Shared,
}

/// A completion queue, with the fields of C's structure that only rdma-core uses.
#[repr(C)]
pub(super) struct EmuCq {
    pub(super) public: ibv_cq,
    pub(super) waiters: abi::Waiters,
    pub(super) events_completed: [u32; 2],
}

#[repr(C)]
pub(crate) struct EmuQp {
    pub(crate) public: abi::ibv_qp_ex,
    /// True if the program may use the calls that build requests in place.
    pub(super) builds: bool,
    /// True from `wr_start` to `wr_complete` or `wr_abort`.
    pub(crate) is_building: AtomicBool,
    pub(crate) built: Vec<Built>,
}

/// Limits of a queue pair and of a shared receive queue.
pub(super) const MAX_SGE: u32 = device::MAX_SGE as u32;

pub(crate) const MAX_INLINE: u32 = 1024;

pub(super) const MAX_SRQ_WR: u32 = 1 << 15;

pub(super) const MAX_CQE: c_int = 1 << 16;

/// Returns the context that a device's structure belongs to.
pub(super) const fn emu_context(context: *mut ibv_context) -> *mut EmuContext {
    context.wrapping_byte_sub(offset_of!(abi::verbs_context, context)).cast()
}

/// Returns the device of a context.
pub(super) unsafe fn device_of<'a>(context: *mut ibv_context) -> &'a EmuDevice {
    // SAFETY: the caller passes a context that `ibv_open_device` made, and that keeps the device.
    unsafe { &(*emu_context(context)).device }
}

/// Returns the state of a context.
pub(crate) fn state_of(context: *mut ibv_context) -> Shared {
    // SAFETY: `ibv_open_device` made the context.
    unsafe { Arc::clone(&device_of(context).state) }
}

/// Copies text to a field of C's, with a NUL at its end.
pub(super) fn set_text<const N: usize>(field: &mut [c_char; N], text: &str) {
    for (place, byte) in field.iter_mut().zip(text.bytes().take(N - 1)) {
        *place = byte as c_char;
    }
}

/// Returns NULL, with the thread's error number set to `code`.
pub(crate) fn refused<T>(code: c_int) -> *mut T {
    set_errno(code);
    ptr::null_mut()
}

/// Passes the ownership of an object to C, and counts it.
pub(super) fn give<T>(state: &mut State, object: T) -> *mut T {
    state.objects += 1;
    Box::into_raw(Box::new(object))
}

/// Takes the ownership of an object back from C, and drops it.
pub(super) unsafe fn take<T>(state: &mut State, object: *mut T) {
    state.objects -= 1;
    // SAFETY: the object was made by `give`.
    drop(unsafe { Box::from_raw(object) });
}

/// A request that `wr_*` calls build in place.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) wr_id: u64,
    pub(crate) flags: c_uint,
    pub(crate) remote: Request,
    pub(crate) pieces: Pieces,
    pub(crate) inline: Option<Vec<u8>>,
}

pub(super) fn context_of(pd: *mut ibv_pd) -> *mut ibv_context {
    // SAFETY: the object was made by `ibv_alloc_pd`.
    unsafe { (*pd.cast::<abi::ibv_pd>()).context }
}

/// Returns the state and the number of a completion queue.
pub(crate) fn cq_of(cq: *mut ibv_cq) -> (Shared, u32) {
    // SAFETY: the object was made by `ibv_create_cq`.
    let cq = unsafe { &*cq };
    (state_of(cq.context), cq.handle)
}

/// Returns the state and the number of a queue pair.
pub(crate) fn qp_of(qp: *mut ibv_qp) -> (Shared, u32) {
    // SAFETY: the object was made by `ibv_create_qp`.
    let qp = unsafe { &*qp };
    (state_of(qp.context), qp.qp_num)
}

/// Returns the state and the number of a shared receive queue.
pub(crate) fn srq_of(srq: *mut abi::ibv_srq) -> (Shared, u32) {
    // SAFETY: the object was made by `ibv_create_srq`.
    let srq = unsafe { &*srq };
    (state_of(srq.context), srq.handle)
}
