//! The declarations of the headers in `include-workq/`, by the names that they have there.
//!
//! Written by the program in ci/bindings: change the headers, not this.
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    unsafe_code,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::use_self,
    reason = "written by a program, with the names of C"
)]

pub(super) use crate::bindings::{
    doca_buf, doca_buf_inventory, doca_ctx, doca_data, doca_dev, doca_dev_rep, doca_devinfo,
    doca_devinfo_rep, doca_dma, doca_error_t, doca_event_handle_t, doca_mmap, doca_pci_func_type,
};
/// The function in the upper 3 bits, the device in 5 below, the bus in the lowest 8.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct doca_pci_bdf {
    pub raw: u16,
}

pub const DOCA_BUF_EXTENSION_NONE: doca_buf_extension = 0;
pub const DOCA_BUF_EXTENSION_LINKED_LIST: doca_buf_extension = 1;
pub type doca_buf_extension = ::core::ffi::c_uint;
pub const DOCA_DEV_REP_FILTER_ALL: doca_dev_rep_filter = 0;
pub const DOCA_DEV_REP_FILTER_NET: doca_dev_rep_filter = 2;
pub type doca_dev_rep_filter = ::core::ffi::c_uint;
pub type doca_mmap_memrange_free_cb_t = ::core::option::Option<
    unsafe extern "C" fn(addr: *mut ::core::ffi::c_void, len: usize, opaque: *mut ::core::ffi::c_void),
>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_comm_channel_ep_t {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comm_channel_addr_t {
    _unused: [u8; 0],
}
pub type doca_event_channel_t = doca_event_handle_t;
pub const DOCA_CC_MSG_FLAG_NONE: doca_comm_channel_msg_flags = 0;
pub type doca_comm_channel_msg_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug)]
pub struct doca_workq {
    _unused: [u8; 0],
}
pub const DOCA_ACTION_NONE: doca_action_type = 0;
pub const DOCA_ACTION_DMA_FIRST: doca_action_type = 65536;
pub const DOCA_ACTION_SYNC_EVENT_FIRST: doca_action_type = 983040;
pub type doca_action_type = ::core::ffi::c_uint;
pub const DOCA_JOB_FLAGS_NONE: doca_job_flags = 0;
pub type doca_job_flags = ::core::ffi::c_uint;
pub const DOCA_WORKQ_RETRIEVE_FLAGS_NONE: doca_workq_retrieve_flags = 0;
pub type doca_workq_retrieve_flags = ::core::ffi::c_uint;
#[repr(C)]
pub struct doca_job {
    pub type_: ::core::ffi::c_int,
    pub flags: ::core::ffi::c_int,
    pub ctx: *mut doca_ctx,
    pub user_data: doca_data,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of doca_job"][::core::mem::size_of::<doca_job>() - 24usize];
    ["Alignment of doca_job"][::core::mem::align_of::<doca_job>() - 8usize];
    ["Offset of field: doca_job::type_"][::core::mem::offset_of!(doca_job, type_) - 0usize];
    ["Offset of field: doca_job::flags"][::core::mem::offset_of!(doca_job, flags) - 4usize];
    ["Offset of field: doca_job::ctx"][::core::mem::offset_of!(doca_job, ctx) - 8usize];
    ["Offset of field: doca_job::user_data"][::core::mem::offset_of!(doca_job, user_data) - 16usize];
};
#[repr(C)]
pub struct doca_event {
    pub type_: ::core::ffi::c_int,
    pub user_data: doca_data,
    pub result: doca_data,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of doca_event"][::core::mem::size_of::<doca_event>() - 24usize];
    ["Alignment of doca_event"][::core::mem::align_of::<doca_event>() - 8usize];
    ["Offset of field: doca_event::type_"][::core::mem::offset_of!(doca_event, type_) - 0usize];
    ["Offset of field: doca_event::user_data"][::core::mem::offset_of!(doca_event, user_data) - 8usize];
    ["Offset of field: doca_event::result"][::core::mem::offset_of!(doca_event, result) - 16usize];
};
pub const DOCA_DMA_JOB_MEMCPY: doca_dma_job_types = 65537;
pub type doca_dma_job_types = ::core::ffi::c_uint;
#[repr(C)]
pub struct doca_dma_job_memcpy {
    pub base: doca_job,
    pub dst_buff: *mut doca_buf,
    pub src_buff: *const doca_buf,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of doca_dma_job_memcpy"][::core::mem::size_of::<doca_dma_job_memcpy>() - 40usize];
    ["Alignment of doca_dma_job_memcpy"][::core::mem::align_of::<doca_dma_job_memcpy>() - 8usize];
    ["Offset of field: doca_dma_job_memcpy::base"]
        [::core::mem::offset_of!(doca_dma_job_memcpy, base) - 0usize];
    ["Offset of field: doca_dma_job_memcpy::dst_buff"]
        [::core::mem::offset_of!(doca_dma_job_memcpy, dst_buff) - 24usize];
    ["Offset of field: doca_dma_job_memcpy::src_buff"]
        [::core::mem::offset_of!(doca_dma_job_memcpy, src_buff) - 32usize];
};
#[repr(C)]
pub struct doca_dma_memcpy_result {
    pub result: doca_error_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of doca_dma_memcpy_result"][::core::mem::size_of::<doca_dma_memcpy_result>() - 4usize];
    ["Alignment of doca_dma_memcpy_result"][::core::mem::align_of::<doca_dma_memcpy_result>() - 4usize];
    ["Offset of field: doca_dma_memcpy_result::result"]
        [::core::mem::offset_of!(doca_dma_memcpy_result, result) - 0usize];
};
unsafe extern "C" {
    pub fn doca_get_error_name(error: doca_error_t) -> *const ::core::ffi::c_char;
    pub fn doca_get_error_string(error: doca_error_t) -> *const ::core::ffi::c_char;
    pub fn doca_buf_refcount_rm(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t;
    pub fn doca_buf_set_data(
        buf: *mut doca_buf,
        data: *mut ::core::ffi::c_void,
        data_len: usize,
    ) -> doca_error_t;
    pub fn doca_buf_list_chain(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t;
    pub fn doca_devinfo_list_create(dev_list: *mut *mut *mut doca_devinfo, nb_devs: *mut u32)
    -> doca_error_t;
    pub fn doca_devinfo_list_destroy(dev_list: *mut *mut doca_devinfo) -> doca_error_t;
    pub fn doca_devinfo_rep_list_create(
        dev: *mut doca_dev,
        filter: ::core::ffi::c_int,
        dev_list_rep: *mut *mut *mut doca_devinfo_rep,
        nb_devs_rep: *mut u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_list_destroy(dev_list_rep: *mut *mut doca_devinfo_rep) -> doca_error_t;
    pub fn doca_dev_open(devinfo: *mut doca_devinfo, dev: *mut *mut doca_dev) -> doca_error_t;
    pub fn doca_dev_close(dev: *mut doca_dev) -> doca_error_t;
    pub fn doca_dev_rep_open(devinfo: *mut doca_devinfo_rep, dev_rep: *mut *mut doca_dev_rep)
    -> doca_error_t;
    pub fn doca_dev_rep_close(dev: *mut doca_dev_rep) -> doca_error_t;
    pub fn doca_dev_as_devinfo(dev: *const doca_dev) -> *mut doca_devinfo;
    pub fn doca_devinfo_get_iface_name(
        devinfo: *const doca_devinfo,
        iface_name: *mut ::core::ffi::c_char,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_ibdev_name(
        devinfo: *const doca_devinfo,
        ibdev_name: *mut ::core::ffi::c_char,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_vuid(
        devinfo_rep: *const doca_devinfo_rep,
        rep_vuid: *mut ::core::ffi::c_char,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_pci_func_type(
        devinfo_rep: *const doca_devinfo_rep,
        pci_func_type: *mut doca_pci_func_type,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_pci_addr(
        devinfo: *const doca_devinfo,
        pci_addr: *mut doca_pci_bdf,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_pci_addr(
        devinfo_rep: *const doca_devinfo_rep,
        pci_addr: *mut doca_pci_bdf,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_is_mmap_export_supported(
        devinfo: *const doca_devinfo,
        mmap_export: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_is_mmap_from_export_supported(
        devinfo: *const doca_devinfo,
        from_export: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_pci_addr_str(
        devinfo: *const doca_devinfo,
        pci_addr_str: *mut ::core::ffi::c_char,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_pci_addr_str(
        devinfo_rep: *const doca_devinfo_rep,
        pci_addr_str: *mut ::core::ffi::c_char,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_is_mmap_export_dpu_supported(
        devinfo: *const doca_devinfo,
        mmap_export: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_is_mmap_from_export_dpu_supported(
        devinfo: *const doca_devinfo,
        from_export: *mut u8,
    ) -> doca_error_t;
    pub fn doca_mmap_create(user_data: *const doca_data, mmap: *mut *mut doca_mmap) -> doca_error_t;
    pub fn doca_mmap_destroy(mmap: *mut doca_mmap) -> doca_error_t;
    pub fn doca_mmap_start(mmap: *mut doca_mmap) -> doca_error_t;
    pub fn doca_mmap_dev_add(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t;
    pub fn doca_mmap_create_from_export(
        user_data: *const doca_data,
        export_desc: *const ::core::ffi::c_void,
        export_desc_len: usize,
        dev: *mut doca_dev,
        mmap: *mut *mut doca_mmap,
    ) -> doca_error_t;
    pub fn doca_mmap_populate(
        mmap: *mut doca_mmap,
        addr: *mut ::core::ffi::c_void,
        len: usize,
        pg_sz: usize,
        free_cb: doca_mmap_memrange_free_cb_t,
        opaque: *mut ::core::ffi::c_void,
    ) -> doca_error_t;
    pub fn doca_mmap_export(
        mmap: *mut doca_mmap,
        dev: *const doca_dev,
        export_desc: *mut *mut ::core::ffi::c_void,
        export_desc_len: *mut usize,
    ) -> doca_error_t;
    pub fn doca_mmap_set_max_num_chunks(mmap: *mut doca_mmap, max_num_chunks: u32) -> doca_error_t;
    pub fn doca_mmap_set_memrange(
        mmap: *mut doca_mmap,
        addr: *mut ::core::ffi::c_void,
        len: usize,
    ) -> doca_error_t;
    pub fn doca_mmap_get_memrange(
        mmap: *const doca_mmap,
        addr: *mut *mut ::core::ffi::c_void,
        len: *mut usize,
    ) -> doca_error_t;
    pub fn doca_mmap_set_free_cb(
        mmap: *mut doca_mmap,
        free_cb: doca_mmap_memrange_free_cb_t,
        opaque: *mut ::core::ffi::c_void,
    ) -> doca_error_t;
    pub fn doca_mmap_set_permissions(mmap: *mut doca_mmap, access_mask: u32) -> doca_error_t;
    pub fn doca_mmap_export_dpu(
        mmap: *mut doca_mmap,
        dev: *const doca_dev,
        export_desc: *mut *const ::core::ffi::c_void,
        export_desc_len: *mut usize,
    ) -> doca_error_t;
    pub fn doca_mmap_export_rdma(
        mmap: *mut doca_mmap,
        dev: *const doca_dev,
        export_desc: *mut *const ::core::ffi::c_void,
        export_desc_len: *mut usize,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_create(
        user_data: *const doca_data,
        num_elements: usize,
        extensions: u32,
        buf_inventory: *mut *mut doca_buf_inventory,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_destroy(inventory: *mut doca_buf_inventory) -> doca_error_t;
    pub fn doca_buf_inventory_start(inventory: *mut doca_buf_inventory) -> doca_error_t;
    pub fn doca_buf_inventory_buf_by_args(
        inventory: *mut doca_buf_inventory,
        mmap: *mut doca_mmap,
        addr: *mut ::core::ffi::c_void,
        len: usize,
        data: *mut ::core::ffi::c_void,
        data_len: usize,
        buf: *mut *mut doca_buf,
    ) -> doca_error_t;
    pub fn doca_comm_channel_get_max_service_name_len(max_service_name_len: *mut u32) -> doca_error_t;
    pub fn doca_comm_channel_get_max_message_size(
        devinfo: *mut doca_devinfo,
        max_message_size: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comm_channel_get_max_send_queue_size(
        devinfo: *mut doca_devinfo,
        max_send_queue_size: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comm_channel_get_max_recv_queue_size(
        devinfo: *mut doca_devinfo,
        max_recv_queue_size: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comm_channel_get_service_max_num_connections(
        devinfo: *mut doca_devinfo,
        max_num_connections: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_create(ep: *mut *mut doca_comm_channel_ep_t) -> doca_error_t;
    pub fn doca_comm_channel_ep_get_device(
        ep: *mut doca_comm_channel_ep_t,
        device: *mut *mut doca_dev,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_get_device_rep(
        ep: *mut doca_comm_channel_ep_t,
        device_rep: *mut *mut doca_dev_rep,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_get_max_msg_size(
        ep: *mut doca_comm_channel_ep_t,
        max_msg_size: *mut u16,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_get_send_queue_size(
        ep: *mut doca_comm_channel_ep_t,
        send_queue_size: *mut u16,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_get_recv_queue_size(
        ep: *mut doca_comm_channel_ep_t,
        recv_queue_size: *mut u16,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_set_device(
        ep: *mut doca_comm_channel_ep_t,
        device: *mut doca_dev,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_set_device_rep(
        ep: *mut doca_comm_channel_ep_t,
        device_rep: *mut doca_dev_rep,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_set_max_msg_size(
        ep: *mut doca_comm_channel_ep_t,
        max_msg_size: u16,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_set_send_queue_size(
        ep: *mut doca_comm_channel_ep_t,
        send_queue_size: u16,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_set_recv_queue_size(
        ep: *mut doca_comm_channel_ep_t,
        recv_queue_size: u16,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_get_event_channel(
        local_ep: *mut doca_comm_channel_ep_t,
        send_event_channel: *mut doca_event_channel_t,
        recv_event_channel: *mut doca_event_channel_t,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_get_service_event_channel(
        local_ep: *mut doca_comm_channel_ep_t,
        service_event_channel: *mut doca_event_channel_t,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_event_handle_arm_send(local_ep: *mut doca_comm_channel_ep_t) -> doca_error_t;
    pub fn doca_comm_channel_ep_event_handle_arm_recv(local_ep: *mut doca_comm_channel_ep_t) -> doca_error_t;
    pub fn doca_comm_channel_ep_listen(
        local_ep: *mut doca_comm_channel_ep_t,
        name: *const ::core::ffi::c_char,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_connect(
        local_ep: *mut doca_comm_channel_ep_t,
        name: *const ::core::ffi::c_char,
        peer_addr: *mut *mut doca_comm_channel_addr_t,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_sendto(
        local_ep: *mut doca_comm_channel_ep_t,
        msg: *const ::core::ffi::c_void,
        len: usize,
        flags: ::core::ffi::c_int,
        peer_addr: *mut doca_comm_channel_addr_t,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_recvfrom(
        local_ep: *mut doca_comm_channel_ep_t,
        msg: *mut ::core::ffi::c_void,
        len: *mut usize,
        flags: ::core::ffi::c_int,
        peer_addr: *mut *mut doca_comm_channel_addr_t,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_disconnect(
        local_ep: *mut doca_comm_channel_ep_t,
        peer_addr: *mut doca_comm_channel_addr_t,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_destroy(local_ep: *mut doca_comm_channel_ep_t) -> doca_error_t;
    pub fn doca_comm_channel_peer_addr_get_user_data(
        peer_addr: *mut doca_comm_channel_addr_t,
        user_data: *mut u64,
    ) -> doca_error_t;
    pub fn doca_comm_channel_peer_addr_set_user_data(
        peer_addr: *mut doca_comm_channel_addr_t,
        user_context: u64,
    ) -> doca_error_t;
    pub fn doca_comm_channel_peer_addr_update_info(peer_addr: *mut doca_comm_channel_addr_t) -> doca_error_t;
    pub fn doca_comm_channel_peer_addr_get_send_messages(
        peer_addr: *const doca_comm_channel_addr_t,
        send_messages: *mut u64,
    ) -> doca_error_t;
    pub fn doca_comm_channel_peer_addr_get_send_bytes(
        peer_addr: *const doca_comm_channel_addr_t,
        send_bytes: *mut u64,
    ) -> doca_error_t;
    pub fn doca_comm_channel_peer_addr_get_recv_messages(
        peer_addr: *const doca_comm_channel_addr_t,
        recv_messages: *mut u64,
    ) -> doca_error_t;
    pub fn doca_comm_channel_peer_addr_get_recv_bytes(
        peer_addr: *const doca_comm_channel_addr_t,
        recv_bytes: *mut u64,
    ) -> doca_error_t;
    pub fn doca_comm_channel_peer_addr_get_send_in_flight_messages(
        peer_addr: *const doca_comm_channel_addr_t,
        send_in_flight_messages: *mut u64,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_update_service_state_info(
        local_ep: *mut doca_comm_channel_ep_t,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_get_peer_addr_list(
        local_ep: *const doca_comm_channel_ep_t,
        peer_addr_array: *mut *mut *mut doca_comm_channel_addr_t,
        peer_addr_array_len: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comm_channel_ep_get_pending_connections(
        local_ep: *const doca_comm_channel_ep_t,
        pending_connections: *mut u32,
    ) -> doca_error_t;
    pub fn doca_workq_create(depth: u32, workq: *mut *mut doca_workq) -> doca_error_t;
    pub fn doca_workq_destroy(workq: *mut doca_workq) -> doca_error_t;
    pub fn doca_workq_submit(workq: *mut doca_workq, job: *const doca_job) -> doca_error_t;
    pub fn doca_workq_progress_retrieve(
        workq: *mut doca_workq,
        ev: *mut doca_event,
        flags: ::core::ffi::c_int,
    ) -> doca_error_t;
    pub fn doca_workq_event_handle_arm(workq: *mut doca_workq) -> doca_error_t;
    pub fn doca_workq_event_handle_clear(workq: *mut doca_workq, handle: doca_event_handle_t)
    -> doca_error_t;
    pub fn doca_workq_get_event_handle(
        workq: *mut doca_workq,
        handle: *mut doca_event_handle_t,
    ) -> doca_error_t;
    pub fn doca_workq_set_event_driven_enable(workq: *mut doca_workq, enable: u8) -> doca_error_t;
    pub fn doca_ctx_dev_add(ctx: *mut doca_ctx, dev: *mut doca_dev) -> doca_error_t;
    pub fn doca_ctx_dev_rm(ctx: *mut doca_ctx, dev: *mut doca_dev) -> doca_error_t;
    pub fn doca_ctx_start(ctx: *mut doca_ctx) -> doca_error_t;
    pub fn doca_ctx_stop(ctx: *mut doca_ctx) -> doca_error_t;
    pub fn doca_ctx_workq_add(ctx: *mut doca_ctx, workq: *mut doca_workq) -> doca_error_t;
    pub fn doca_ctx_workq_rm(ctx: *mut doca_ctx, workq: *mut doca_workq) -> doca_error_t;
    pub fn doca_ctx_get_event_driven_supported(ctx: *mut doca_ctx, event_supported: *mut u8) -> doca_error_t;
    pub fn doca_dma_create(dma: *mut *mut doca_dma) -> doca_error_t;
    pub fn doca_dma_destroy(dma: *mut doca_dma) -> doca_error_t;
    pub fn doca_dma_as_ctx(dma: *mut doca_dma) -> *mut doca_ctx;
    pub fn doca_dma_job_get_supported(
        devinfo: *mut doca_devinfo,
        job_type: doca_dma_job_types,
    ) -> doca_error_t;
    pub fn doca_dma_get_max_list_buf_num_elem(
        devinfo: *const doca_devinfo,
        max_list_num_elem: *mut u32,
    ) -> doca_error_t;
    pub fn doca_dma_get_max_buf_size(devinfo: *const doca_devinfo, buf_size: *mut u64) -> doca_error_t;
    pub fn doca_version_runtime() -> *const ::core::ffi::c_char;
}
