//! The types of the functions of the headers in `include-workq/`, by the names that they have there.
//!
//! Written by the program in ci/bindings: change the headers, not this.
#![allow(
    dead_code,
    unreachable_pub,
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

use super::bindings::*;

pub type doca_get_error_name = unsafe extern "C" fn(error: doca_error_t) -> *const ::core::ffi::c_char;
pub type doca_get_error_string = unsafe extern "C" fn(error: doca_error_t) -> *const ::core::ffi::c_char;
pub type doca_buf_refcount_rm = unsafe extern "C" fn(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t;
pub type doca_buf_set_data = unsafe extern "C" fn(buf: *mut doca_buf, data: *mut ::core::ffi::c_void, data_len: usize) -> doca_error_t;
pub type doca_buf_list_chain = unsafe extern "C" fn(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t;
pub type doca_devinfo_list_create = unsafe extern "C" fn(dev_list: *mut *mut *mut doca_devinfo, nb_devs: *mut u32) -> doca_error_t;
pub type doca_devinfo_list_destroy = unsafe extern "C" fn(dev_list: *mut *mut doca_devinfo) -> doca_error_t;
pub type doca_devinfo_rep_list_create = unsafe extern "C" fn(dev: *mut doca_dev, filter: ::core::ffi::c_int, dev_list_rep: *mut *mut *mut doca_devinfo_rep, nb_devs_rep: *mut u32) -> doca_error_t;
pub type doca_devinfo_rep_list_destroy = unsafe extern "C" fn(dev_list_rep: *mut *mut doca_devinfo_rep) -> doca_error_t;
pub type doca_dev_open = unsafe extern "C" fn(devinfo: *mut doca_devinfo, dev: *mut *mut doca_dev) -> doca_error_t;
pub type doca_dev_close = unsafe extern "C" fn(dev: *mut doca_dev) -> doca_error_t;
pub type doca_dev_rep_open = unsafe extern "C" fn(devinfo: *mut doca_devinfo_rep, dev_rep: *mut *mut doca_dev_rep) -> doca_error_t;
pub type doca_dev_rep_close = unsafe extern "C" fn(dev: *mut doca_dev_rep) -> doca_error_t;
pub type doca_dev_as_devinfo = unsafe extern "C" fn(dev: *const doca_dev) -> *mut doca_devinfo;
pub type doca_devinfo_get_iface_name = unsafe extern "C" fn(devinfo: *const doca_devinfo, iface_name: *mut ::core::ffi::c_char, size: u32) -> doca_error_t;
pub type doca_devinfo_get_ibdev_name = unsafe extern "C" fn(devinfo: *const doca_devinfo, ibdev_name: *mut ::core::ffi::c_char, size: u32) -> doca_error_t;
pub type doca_devinfo_rep_get_vuid = unsafe extern "C" fn(devinfo_rep: *const doca_devinfo_rep, rep_vuid: *mut ::core::ffi::c_char, size: u32) -> doca_error_t;
pub type doca_devinfo_rep_get_pci_func_type = unsafe extern "C" fn(devinfo_rep: *const doca_devinfo_rep, pci_func_type: *mut doca_pci_func_type) -> doca_error_t;
pub type doca_devinfo_get_pci_addr = unsafe extern "C" fn(devinfo: *const doca_devinfo, pci_addr: *mut doca_pci_bdf) -> doca_error_t;
pub type doca_devinfo_rep_get_pci_addr = unsafe extern "C" fn(devinfo_rep: *const doca_devinfo_rep, pci_addr: *mut doca_pci_bdf) -> doca_error_t;
pub type doca_devinfo_get_is_mmap_export_supported = unsafe extern "C" fn(devinfo: *const doca_devinfo, mmap_export: *mut u8) -> doca_error_t;
pub type doca_devinfo_get_is_mmap_from_export_supported = unsafe extern "C" fn(devinfo: *const doca_devinfo, from_export: *mut u8) -> doca_error_t;
pub type doca_devinfo_get_pci_addr_str = unsafe extern "C" fn(devinfo: *const doca_devinfo, pci_addr_str: *mut ::core::ffi::c_char) -> doca_error_t;
pub type doca_devinfo_rep_get_pci_addr_str = unsafe extern "C" fn(devinfo_rep: *const doca_devinfo_rep, pci_addr_str: *mut ::core::ffi::c_char) -> doca_error_t;
pub type doca_devinfo_get_is_mmap_export_dpu_supported = unsafe extern "C" fn(devinfo: *const doca_devinfo, mmap_export: *mut u8) -> doca_error_t;
pub type doca_devinfo_get_is_mmap_from_export_dpu_supported = unsafe extern "C" fn(devinfo: *const doca_devinfo, from_export: *mut u8) -> doca_error_t;
pub type doca_mmap_create = unsafe extern "C" fn(user_data: *const doca_data, mmap: *mut *mut doca_mmap) -> doca_error_t;
pub type doca_mmap_destroy = unsafe extern "C" fn(mmap: *mut doca_mmap) -> doca_error_t;
pub type doca_mmap_start = unsafe extern "C" fn(mmap: *mut doca_mmap) -> doca_error_t;
pub type doca_mmap_dev_add = unsafe extern "C" fn(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t;
pub type doca_mmap_create_from_export = unsafe extern "C" fn(user_data: *const doca_data, export_desc: *const ::core::ffi::c_void, export_desc_len: usize, dev: *mut doca_dev, mmap: *mut *mut doca_mmap) -> doca_error_t;
pub type doca_mmap_populate = unsafe extern "C" fn(mmap: *mut doca_mmap, addr: *mut ::core::ffi::c_void, len: usize, pg_sz: usize, free_cb: doca_mmap_memrange_free_cb_t, opaque: *mut ::core::ffi::c_void) -> doca_error_t;
pub type doca_mmap_export = unsafe extern "C" fn(mmap: *mut doca_mmap, dev: *const doca_dev, export_desc: *mut *mut ::core::ffi::c_void, export_desc_len: *mut usize) -> doca_error_t;
pub type doca_mmap_set_max_num_chunks = unsafe extern "C" fn(mmap: *mut doca_mmap, max_num_chunks: u32) -> doca_error_t;
pub type doca_mmap_set_memrange = unsafe extern "C" fn(mmap: *mut doca_mmap, addr: *mut ::core::ffi::c_void, len: usize) -> doca_error_t;
pub type doca_mmap_get_memrange = unsafe extern "C" fn(mmap: *const doca_mmap, addr: *mut *mut ::core::ffi::c_void, len: *mut usize) -> doca_error_t;
pub type doca_mmap_set_free_cb = unsafe extern "C" fn(mmap: *mut doca_mmap, free_cb: doca_mmap_memrange_free_cb_t, opaque: *mut ::core::ffi::c_void) -> doca_error_t;
pub type doca_mmap_set_permissions = unsafe extern "C" fn(mmap: *mut doca_mmap, access_mask: u32) -> doca_error_t;
pub type doca_mmap_export_dpu = unsafe extern "C" fn(mmap: *mut doca_mmap, dev: *const doca_dev, export_desc: *mut *const ::core::ffi::c_void, export_desc_len: *mut usize) -> doca_error_t;
pub type doca_mmap_export_rdma = unsafe extern "C" fn(mmap: *mut doca_mmap, dev: *const doca_dev, export_desc: *mut *const ::core::ffi::c_void, export_desc_len: *mut usize) -> doca_error_t;
pub type doca_buf_inventory_create = unsafe extern "C" fn(user_data: *const doca_data, num_elements: usize, extensions: u32, buf_inventory: *mut *mut doca_buf_inventory) -> doca_error_t;
pub type doca_buf_inventory_destroy = unsafe extern "C" fn(inventory: *mut doca_buf_inventory) -> doca_error_t;
pub type doca_buf_inventory_start = unsafe extern "C" fn(inventory: *mut doca_buf_inventory) -> doca_error_t;
pub type doca_buf_inventory_buf_by_args = unsafe extern "C" fn(inventory: *mut doca_buf_inventory, mmap: *mut doca_mmap, addr: *mut ::core::ffi::c_void, len: usize, data: *mut ::core::ffi::c_void, data_len: usize, buf: *mut *mut doca_buf) -> doca_error_t;
pub type doca_comm_channel_get_max_service_name_len = unsafe extern "C" fn(max_service_name_len: *mut u32) -> doca_error_t;
pub type doca_comm_channel_get_max_message_size = unsafe extern "C" fn(devinfo: *mut doca_devinfo, max_message_size: *mut u32) -> doca_error_t;
pub type doca_comm_channel_get_max_send_queue_size = unsafe extern "C" fn(devinfo: *mut doca_devinfo, max_send_queue_size: *mut u32) -> doca_error_t;
pub type doca_comm_channel_get_max_recv_queue_size = unsafe extern "C" fn(devinfo: *mut doca_devinfo, max_recv_queue_size: *mut u32) -> doca_error_t;
pub type doca_comm_channel_get_service_max_num_connections = unsafe extern "C" fn(devinfo: *mut doca_devinfo, max_num_connections: *mut u32) -> doca_error_t;
pub type doca_comm_channel_ep_create = unsafe extern "C" fn(ep: *mut *mut doca_comm_channel_ep_t) -> doca_error_t;
pub type doca_comm_channel_ep_get_device = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, device: *mut *mut doca_dev) -> doca_error_t;
pub type doca_comm_channel_ep_get_device_rep = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, device_rep: *mut *mut doca_dev_rep) -> doca_error_t;
pub type doca_comm_channel_ep_get_max_msg_size = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, max_msg_size: *mut u16) -> doca_error_t;
pub type doca_comm_channel_ep_get_send_queue_size = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, send_queue_size: *mut u16) -> doca_error_t;
pub type doca_comm_channel_ep_get_recv_queue_size = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, recv_queue_size: *mut u16) -> doca_error_t;
pub type doca_comm_channel_ep_set_device = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, device: *mut doca_dev) -> doca_error_t;
pub type doca_comm_channel_ep_set_device_rep = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, device_rep: *mut doca_dev_rep) -> doca_error_t;
pub type doca_comm_channel_ep_set_max_msg_size = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, max_msg_size: u16) -> doca_error_t;
pub type doca_comm_channel_ep_set_send_queue_size = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, send_queue_size: u16) -> doca_error_t;
pub type doca_comm_channel_ep_set_recv_queue_size = unsafe extern "C" fn(ep: *mut doca_comm_channel_ep_t, recv_queue_size: u16) -> doca_error_t;
pub type doca_comm_channel_ep_get_event_channel = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t, send_event_channel: *mut doca_event_channel_t, recv_event_channel: *mut doca_event_channel_t) -> doca_error_t;
pub type doca_comm_channel_ep_get_service_event_channel = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t, service_event_channel: *mut doca_event_channel_t) -> doca_error_t;
pub type doca_comm_channel_ep_event_handle_arm_send = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t) -> doca_error_t;
pub type doca_comm_channel_ep_event_handle_arm_recv = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t) -> doca_error_t;
pub type doca_comm_channel_ep_listen = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t, name: *const ::core::ffi::c_char) -> doca_error_t;
pub type doca_comm_channel_ep_connect = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t, name: *const ::core::ffi::c_char, peer_addr: *mut *mut doca_comm_channel_addr_t) -> doca_error_t;
pub type doca_comm_channel_ep_sendto = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t, msg: *const ::core::ffi::c_void, len: usize, flags: ::core::ffi::c_int, peer_addr: *mut doca_comm_channel_addr_t) -> doca_error_t;
pub type doca_comm_channel_ep_recvfrom = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t, msg: *mut ::core::ffi::c_void, len: *mut usize, flags: ::core::ffi::c_int, peer_addr: *mut *mut doca_comm_channel_addr_t) -> doca_error_t;
pub type doca_comm_channel_ep_disconnect = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t, peer_addr: *mut doca_comm_channel_addr_t) -> doca_error_t;
pub type doca_comm_channel_ep_destroy = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t) -> doca_error_t;
pub type doca_comm_channel_peer_addr_get_user_data = unsafe extern "C" fn(peer_addr: *mut doca_comm_channel_addr_t, user_data: *mut u64) -> doca_error_t;
pub type doca_comm_channel_peer_addr_set_user_data = unsafe extern "C" fn(peer_addr: *mut doca_comm_channel_addr_t, user_context: u64) -> doca_error_t;
pub type doca_comm_channel_peer_addr_update_info = unsafe extern "C" fn(peer_addr: *mut doca_comm_channel_addr_t) -> doca_error_t;
pub type doca_comm_channel_peer_addr_get_send_messages = unsafe extern "C" fn(peer_addr: *const doca_comm_channel_addr_t, send_messages: *mut u64) -> doca_error_t;
pub type doca_comm_channel_peer_addr_get_send_bytes = unsafe extern "C" fn(peer_addr: *const doca_comm_channel_addr_t, send_bytes: *mut u64) -> doca_error_t;
pub type doca_comm_channel_peer_addr_get_recv_messages = unsafe extern "C" fn(peer_addr: *const doca_comm_channel_addr_t, recv_messages: *mut u64) -> doca_error_t;
pub type doca_comm_channel_peer_addr_get_recv_bytes = unsafe extern "C" fn(peer_addr: *const doca_comm_channel_addr_t, recv_bytes: *mut u64) -> doca_error_t;
pub type doca_comm_channel_peer_addr_get_send_in_flight_messages = unsafe extern "C" fn(peer_addr: *const doca_comm_channel_addr_t, send_in_flight_messages: *mut u64) -> doca_error_t;
pub type doca_comm_channel_ep_update_service_state_info = unsafe extern "C" fn(local_ep: *mut doca_comm_channel_ep_t) -> doca_error_t;
pub type doca_comm_channel_ep_get_peer_addr_list = unsafe extern "C" fn(local_ep: *const doca_comm_channel_ep_t, peer_addr_array: *mut *mut *mut doca_comm_channel_addr_t, peer_addr_array_len: *mut u32) -> doca_error_t;
pub type doca_comm_channel_ep_get_pending_connections = unsafe extern "C" fn(local_ep: *const doca_comm_channel_ep_t, pending_connections: *mut u32) -> doca_error_t;
pub type doca_workq_create = unsafe extern "C" fn(depth: u32, workq: *mut *mut doca_workq) -> doca_error_t;
pub type doca_workq_destroy = unsafe extern "C" fn(workq: *mut doca_workq) -> doca_error_t;
pub type doca_workq_submit = unsafe extern "C" fn(workq: *mut doca_workq, job: *const doca_job) -> doca_error_t;
pub type doca_workq_progress_retrieve = unsafe extern "C" fn(workq: *mut doca_workq, ev: *mut doca_event, flags: ::core::ffi::c_int) -> doca_error_t;
pub type doca_workq_event_handle_arm = unsafe extern "C" fn(workq: *mut doca_workq) -> doca_error_t;
pub type doca_workq_event_handle_clear = unsafe extern "C" fn(workq: *mut doca_workq, handle: doca_event_handle_t) -> doca_error_t;
pub type doca_workq_get_event_handle = unsafe extern "C" fn(workq: *mut doca_workq, handle: *mut doca_event_handle_t) -> doca_error_t;
pub type doca_workq_set_event_driven_enable = unsafe extern "C" fn(workq: *mut doca_workq, enable: u8) -> doca_error_t;
pub type doca_ctx_dev_add = unsafe extern "C" fn(ctx: *mut doca_ctx, dev: *mut doca_dev) -> doca_error_t;
pub type doca_ctx_dev_rm = unsafe extern "C" fn(ctx: *mut doca_ctx, dev: *mut doca_dev) -> doca_error_t;
pub type doca_ctx_start = unsafe extern "C" fn(ctx: *mut doca_ctx) -> doca_error_t;
pub type doca_ctx_stop = unsafe extern "C" fn(ctx: *mut doca_ctx) -> doca_error_t;
pub type doca_ctx_workq_add = unsafe extern "C" fn(ctx: *mut doca_ctx, workq: *mut doca_workq) -> doca_error_t;
pub type doca_ctx_workq_rm = unsafe extern "C" fn(ctx: *mut doca_ctx, workq: *mut doca_workq) -> doca_error_t;
pub type doca_ctx_get_event_driven_supported = unsafe extern "C" fn(ctx: *mut doca_ctx, event_supported: *mut u8) -> doca_error_t;
pub type doca_dma_create = unsafe extern "C" fn(dma: *mut *mut doca_dma) -> doca_error_t;
pub type doca_dma_destroy = unsafe extern "C" fn(dma: *mut doca_dma) -> doca_error_t;
pub type doca_dma_as_ctx = unsafe extern "C" fn(dma: *mut doca_dma) -> *mut doca_ctx;
pub type doca_dma_job_get_supported = unsafe extern "C" fn(devinfo: *mut doca_devinfo, job_type: doca_dma_job_types) -> doca_error_t;
pub type doca_dma_get_max_list_buf_num_elem = unsafe extern "C" fn(devinfo: *const doca_devinfo, max_list_num_elem: *mut u32) -> doca_error_t;
pub type doca_dma_get_max_buf_size = unsafe extern "C" fn(devinfo: *const doca_devinfo, buf_size: *mut u64) -> doca_error_t;
pub type doca_version_runtime = unsafe extern "C" fn() -> *const ::core::ffi::c_char;
