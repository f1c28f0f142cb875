//! The library's calls, under their C names.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

mod completions;
pub(crate) mod devices;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod queue_pairs;
pub(crate) mod shared_receives;

use std::ffi::c_char;

use completions::{
    ibv_ack_cq_events, ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq,
    ibv_get_cq_event,
};
use devices::{
    ibv_ack_async_event, ibv_close_device, ibv_free_device_list, ibv_get_async_event, ibv_get_device_list,
    ibv_get_device_name, ibv_open_device, ibv_query_device, ibv_query_gid, ibv_query_port,
};
use memory::{ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_reg_dmabuf_mr, ibv_reg_mr};
use queue_pairs::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp};
use verbs_sys::*;

use crate::device::{LISTED, Nic};

/// Identifies the stand-in. Returns its name.
#[unsafe(no_mangle)]
extern "C" fn rdma_emu_model() -> *const c_char {
    c"rdma-emu".as_ptr()
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

impl Nic {
    /// Returns the table of the library's calls, whose list shows this device to this thread.
    #[must_use]
    pub fn verbs(&self) -> Verbs {
        LISTED.set(Some(self.clone()));
        TABLE
    }
}
