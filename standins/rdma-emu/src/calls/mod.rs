//! The library's calls, under their C names.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

mod completions;
pub(crate) mod devices;
pub(crate) mod memory;
pub(crate) mod queue_pairs;
pub(crate) mod shared_receives;

use std::ffi::{c_char, c_int};
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) use completions::cq_of;
use completions::{
    ibv_ack_cq_events, ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq,
    ibv_get_cq_event,
};
use devices::{
    ibv_ack_async_event, ibv_close_device, ibv_free_device_list, ibv_get_async_event, ibv_get_device_list,
    ibv_get_device_name, ibv_open_device, ibv_query_device, ibv_query_gid, ibv_query_port,
};
use memory::{ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_reg_dmabuf_mr, ibv_reg_mr};
pub(crate) use queue_pairs::qp_of;
use queue_pairs::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp};
use rustix::event::{EventfdFlags, eventfd};
pub(crate) use shared_receives::srq_of;
use verbs_sys::*;

use crate::device::{Shared, State, set_errno};
use crate::requests::Built;
use crate::{abi, device};

/// Identifies the stand-in. Returns its name.
#[unsafe(no_mangle)]
extern "C" fn rdma_emu_model() -> *const c_char {
    c"rdma-emu".as_ptr()
}

/// Creates an eventfd for events. If the system refuses it, sets the thread's error number.
fn new_eventfd(flags: EventfdFlags) -> Option<OwnedFd> {
    eventfd(0, flags).map_err(|errno| set_errno(errno.raw_os_error())).ok()
}

#[repr(C)]
struct EmuContext {
    public: abi::verbs_context,
    device: Arc<EmuDevice>,
    events: OwnedFd,
}

#[repr(C)]
struct EmuChannel {
    public: ibv_comp_channel,
    /// The field of C's structure that only rdma-core uses.
    _references: c_int,
    state: Shared,
    signal: OwnedFd,
}

#[repr(C)]
struct EmuDevice {
    public: abi::ibv_device,
    number: u8,
    state: Shared,
}

/// A completion queue, with the fields of C's structure that only rdma-core uses.
#[repr(C)]
struct EmuCq {
    public: ibv_cq,
    waiters: abi::Waiters,
    events_completed: [u32; 2],
}

#[repr(C)]
pub(crate) struct EmuQp {
    pub(crate) public: abi::ibv_qp_ex,
    /// True if the program may use the calls that build requests in place.
    builds: bool,
    /// True from `wr_start` to `wr_complete` or `wr_abort`.
    pub(crate) is_building: AtomicBool,
    pub(crate) built: Vec<Built>,
}

/// Limits of a queue pair and of a shared receive queue.
const MAX_SGE: u32 = device::MAX_SGE as u32;

pub(crate) const MAX_INLINE: u32 = 1024;

const MAX_SRQ_WR: u32 = 1 << 15;

const MAX_CQE: c_int = 1 << 16;

/// Returns the context that a device's structure belongs to.
const fn emu_context(context: *mut ibv_context) -> *mut EmuContext {
    context.wrapping_byte_sub(offset_of!(abi::verbs_context, context)).cast()
}

/// Returns the device of a context.
unsafe fn device_of<'a>(context: *mut ibv_context) -> &'a EmuDevice {
    // SAFETY: the caller passes a context that `ibv_open_device` made, and that keeps the device.
    unsafe { &(*emu_context(context)).device }
}

/// Returns the state of a context.
pub(crate) fn state_of(context: *mut ibv_context) -> Shared {
    // SAFETY: `ibv_open_device` made the context.
    unsafe { Arc::clone(&device_of(context).state) }
}

/// Copies text to a field of C's, with a NUL at its end.
fn set_text<const N: usize>(field: &mut [c_char; N], text: &str) {
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
fn give<T>(state: &mut State, object: T) -> *mut T {
    state.objects += 1;
    Box::into_raw(Box::new(object))
}

/// Takes the ownership of an object back from C, and drops it.
unsafe fn take<T>(state: &mut State, object: *mut T) {
    state.objects -= 1;
    // SAFETY: the object was made by `give`.
    drop(unsafe { Box::from_raw(object) });
}

/// The table of the calls.
pub(crate) const TABLE: Verbs = Verbs {
    ibv_get_device_list,
    ibv_free_device_list,
    ibv_get_device_name,
    ibv_open_device,
    ibv_close_device,
    ibv_query_device,
    ibv_query_port,
    ibv_query_gid,
    ibv_get_async_event,
    ibv_ack_async_event,
    ibv_alloc_pd,
    ibv_dealloc_pd,
    ibv_reg_mr,
    ibv_dereg_mr,
    ibv_create_comp_channel,
    ibv_destroy_comp_channel,
    ibv_create_cq,
    ibv_destroy_cq,
    ibv_get_cq_event,
    ibv_ack_cq_events,
    ibv_create_qp,
    ibv_modify_qp,
    ibv_destroy_qp,
    ibv_is_fork_initialized: None,
    rdma_emu_model: Some(rdma_emu_model),
    ibv_reg_dmabuf_mr: Some(ibv_reg_dmabuf_mr),
};
