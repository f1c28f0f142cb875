//! The calls of each library that the backend uses.

use std::ffi::{c_char, c_int, c_void};

#[cfg(any(feature = "linked", not(feature = "bindgen")))]
use crate::bindings;
use crate::bindings::*;

dma_loader::calls! {
    /// The calls of `libdoca_common.so`.
    pub struct Common of bindings;

    required:
    fn doca_buf_dec_refcount(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t;
    fn doca_buf_inventory_buf_get_by_args(
        inventory: *mut doca_buf_inventory, mmap: *mut doca_mmap, addr: *mut c_void, len: usize,
        data: *mut c_void, data_len: usize, buf: *mut *mut doca_buf
    ) -> doca_error_t;
    fn doca_buf_inventory_create(
        num_elements: usize, inventory: *mut *mut doca_buf_inventory
    ) -> doca_error_t;
    fn doca_buf_inventory_destroy(inventory: *mut doca_buf_inventory) -> doca_error_t;
    fn doca_buf_inventory_start(inventory: *mut doca_buf_inventory) -> doca_error_t;
    fn doca_buf_set_data(buf: *mut doca_buf, data: *mut c_void, data_len: usize) -> doca_error_t;
    fn doca_ctx_get_state(ctx: *const doca_ctx, state: *mut doca_ctx_states) -> doca_error_t;
    fn doca_ctx_set_user_data(ctx: *mut doca_ctx, user_data: doca_data) -> doca_error_t;
    fn doca_ctx_start(ctx: *mut doca_ctx) -> doca_error_t;
    fn doca_ctx_stop(ctx: *mut doca_ctx) -> doca_error_t;
    fn doca_dev_as_devinfo(dev: *const doca_dev) -> *mut doca_devinfo;
    fn doca_dev_close(dev: *mut doca_dev) -> doca_error_t;
    fn doca_dev_open(devinfo: *mut doca_devinfo, dev: *mut *mut doca_dev) -> doca_error_t;
    fn doca_devinfo_create_list(dev_list: *mut *mut *mut doca_devinfo, nb_devs: *mut u32) -> doca_error_t;
    fn doca_devinfo_destroy_list(dev_list: *mut *mut doca_devinfo) -> doca_error_t;
    fn doca_devinfo_get_pci_addr_str(devinfo: *const doca_devinfo, pci_addr_str: *mut c_char) -> doca_error_t;
    fn doca_error_get_descr(error: doca_error_t) -> *const c_char;
    fn doca_error_get_name(error: doca_error_t) -> *const c_char;
    fn doca_mmap_add_dev(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t;
    fn doca_mmap_create(mmap: *mut *mut doca_mmap) -> doca_error_t;
    fn doca_mmap_destroy(mmap: *mut doca_mmap) -> doca_error_t;
    fn doca_mmap_set_memrange(mmap: *mut doca_mmap, addr: *mut c_void, len: usize) -> doca_error_t;
    fn doca_mmap_set_permissions(mmap: *mut doca_mmap, access_mask: u32) -> doca_error_t;
    fn doca_mmap_start(mmap: *mut doca_mmap) -> doca_error_t;
    fn doca_pe_connect_ctx(pe: *mut doca_pe, ctx: *mut doca_ctx) -> doca_error_t;
    fn doca_pe_create(pe: *mut *mut doca_pe) -> doca_error_t;
    fn doca_pe_destroy(pe: *mut doca_pe) -> doca_error_t;
    fn doca_pe_progress(pe: *mut doca_pe) -> u8;
    fn doca_task_free(task: *mut doca_task);
    fn doca_task_get_status(task: *const doca_task) -> doca_error_t;
    fn doca_task_submit(task: *mut doca_task) -> doca_error_t;

    optional:
    fn doca_buf_chain_list(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t;
    fn doca_buf_inventory_expand(inventory: *mut doca_buf_inventory, num_elements: u32) -> doca_error_t;
    fn doca_ctx_flush_tasks(ctx: *mut doca_ctx);
    fn doca_dev_rep_close(dev: *mut doca_dev_rep) -> doca_error_t;
    fn doca_dev_rep_open(devinfo: *mut doca_devinfo_rep, dev_rep: *mut *mut doca_dev_rep) -> doca_error_t;
    fn doca_devinfo_get_ibdev_name(
        devinfo: *const doca_devinfo, ibdev_name: *mut c_char, size: u32
    ) -> doca_error_t;
    fn doca_devinfo_get_iface_name(
        devinfo: *const doca_devinfo, iface_name: *mut c_char, size: u32
    ) -> doca_error_t;
    fn doca_devinfo_get_pci_func_type(
        devinfo: *const doca_devinfo, pci_func_type: *mut doca_pci_func_type
    ) -> doca_error_t;
    fn doca_devinfo_rep_create_list(
        dev: *mut doca_dev, filter: c_int, dev_list_rep: *mut *mut *mut doca_devinfo_rep,
        nb_devs_rep: *mut u32
    ) -> doca_error_t;
    fn doca_devinfo_rep_destroy_list(dev_list_rep: *mut *mut doca_devinfo_rep) -> doca_error_t;
    fn doca_devinfo_rep_get_iface_name(
        devinfo_rep: *const doca_devinfo_rep, iface_name: *mut c_char, size: u32
    ) -> doca_error_t;
    fn doca_devinfo_rep_get_pci_addr_str(
        devinfo_rep: *const doca_devinfo_rep, pci_addr_str: *mut c_char
    ) -> doca_error_t;
    fn doca_devinfo_rep_get_pci_func_type(
        devinfo_rep: *const doca_devinfo_rep, pci_func_type: *mut doca_pci_func_type
    ) -> doca_error_t;
    fn doca_devinfo_rep_get_vuid(
        devinfo_rep: *const doca_devinfo_rep, rep_vuid: *mut c_char, size: u32
    ) -> doca_error_t;
    fn doca_log_backend_create_with_fd_sdk(fd: c_int, backend: *mut *mut doca_log_backend) -> doca_error_t;
    fn doca_log_backend_set_sdk_level(backend: *mut doca_log_backend, level: u32) -> doca_error_t;
    fn doca_mmap_cap_is_create_from_export_pci_supported(
        devinfo: *const doca_devinfo, from_export: *mut u8
    ) -> doca_error_t;
    fn doca_mmap_cap_is_export_pci_supported(
        devinfo: *const doca_devinfo, mmap_export: *mut u8
    ) -> doca_error_t;
    fn doca_mmap_create_from_export(
        user_data: *const doca_data, export_desc: *const c_void, export_desc_len: usize, dev: *mut doca_dev,
        mmap: *mut *mut doca_mmap
    ) -> doca_error_t;
    fn doca_mmap_export_pci(
        mmap: *mut doca_mmap, dev: *const doca_dev, export_desc: *mut *const c_void,
        export_desc_len: *mut usize
    ) -> doca_error_t;
    fn doca_mmap_export_rdma(
        mmap: *mut doca_mmap, dev: *const doca_dev, export_desc: *mut *const c_void,
        export_desc_len: *mut usize
    ) -> doca_error_t;
    fn doca_mmap_get_memrange(
        mmap: *const doca_mmap, addr: *mut *mut c_void, len: *mut usize
    ) -> doca_error_t;
    fn doca_mmap_set_dmabuf_memrange(
        mmap: *mut doca_mmap, dmabuf_fd: c_int, addr: *mut c_void, dmabuf_offset: usize, len: usize
    ) -> doca_error_t;
    fn doca_mmap_set_free_cb(
        mmap: *mut doca_mmap, free_cb: doca_mmap_memrange_free_cb_t, opaque: *mut c_void
    ) -> doca_error_t;
    fn doca_pe_clear_notification(pe: *mut doca_pe, handle: doca_notification_handle_t) -> doca_error_t;
    fn doca_pe_get_notification_handle(
        pe: *const doca_pe, handle: *mut doca_notification_handle_t
    ) -> doca_error_t;
    fn doca_pe_request_notification(pe: *mut doca_pe) -> doca_error_t;
    fn doca_task_submit_ex(task: *mut doca_task, flags: u32) -> doca_error_t;
    fn doca_version_runtime() -> *const c_char;
}

dma_loader::calls! {
    /// The calls of `libdoca_dma.so`.
    pub struct Dma of bindings;

    required:
    fn doca_dma_as_ctx(dma: *mut doca_dma) -> *mut doca_ctx;
    fn doca_dma_cap_task_memcpy_get_max_buf_size(
        devinfo: *const doca_devinfo, buf_size: *mut u64
    ) -> doca_error_t;
    fn doca_dma_cap_task_memcpy_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    fn doca_dma_create(dev: *mut doca_dev, dma: *mut *mut doca_dma) -> doca_error_t;
    fn doca_dma_destroy(dma: *mut doca_dma) -> doca_error_t;
    fn doca_dma_task_memcpy_alloc_init(
        dma: *mut doca_dma, src: *const doca_buf, dst: *mut doca_buf, user_data: doca_data,
        task: *mut *mut doca_dma_task_memcpy
    ) -> doca_error_t;
    fn doca_dma_task_memcpy_as_task(task: *mut doca_dma_task_memcpy) -> *mut doca_task;
    fn doca_dma_task_memcpy_set_conf(
        dma: *mut doca_dma, task_completion_cb: doca_dma_task_memcpy_completion_cb_t,
        task_error_cb: doca_dma_task_memcpy_completion_cb_t, num_memcpy_tasks: u32
    ) -> doca_error_t;
    fn doca_dma_task_memcpy_set_dst(task: *mut doca_dma_task_memcpy, dst: *mut doca_buf);
    fn doca_dma_task_memcpy_set_src(task: *mut doca_dma_task_memcpy, src: *const doca_buf);

    optional:
    fn doca_dma_cap_get_max_num_tasks(dma: *mut doca_dma, max_num_tasks: *mut u32) -> doca_error_t;
    fn doca_dma_cap_task_memcpy_get_max_buf_list_len(
        devinfo: *const doca_devinfo, max_buf_list_len: *mut u32
    ) -> doca_error_t;
}

dma_loader::calls! {
    /// The calls of `libdoca_comch.so`.
    pub struct Comch of bindings;

    required:
    fn doca_comch_client_as_ctx(comch_client: *mut doca_comch_client) -> *mut doca_ctx;
    fn doca_comch_client_create(
        dev: *mut doca_dev, name: *const c_char, comch_client: *mut *mut doca_comch_client
    ) -> doca_error_t;
    fn doca_comch_client_destroy(comch_client: *mut doca_comch_client) -> doca_error_t;
    fn doca_comch_client_event_msg_recv_register(
        comch_client: *mut doca_comch_client, recv_event_cb: doca_comch_event_msg_recv_cb_t
    ) -> doca_error_t;
    fn doca_comch_client_get_connection(
        comch_client: *const doca_comch_client, connection: *mut *mut doca_comch_connection
    ) -> doca_error_t;
    fn doca_comch_client_set_max_msg_size(comch_client: *mut doca_comch_client, size: u32) -> doca_error_t;
    fn doca_comch_client_task_send_alloc_init(
        comch_client: *mut doca_comch_client, peer: *mut doca_comch_connection, msg: *const c_void, len: u32,
        task: *mut *mut doca_comch_task_send
    ) -> doca_error_t;
    fn doca_comch_client_task_send_set_conf(
        comch_client: *mut doca_comch_client, task_completion_cb: doca_comch_task_send_completion_cb_t,
        task_error_cb: doca_comch_task_send_completion_cb_t, num_send_tasks: u32
    ) -> doca_error_t;
    fn doca_comch_server_as_ctx(comch_server: *mut doca_comch_server) -> *mut doca_ctx;
    fn doca_comch_server_create(
        dev: *mut doca_dev, repr: *mut doca_dev_rep, name: *const c_char,
        comch_server: *mut *mut doca_comch_server
    ) -> doca_error_t;
    fn doca_comch_server_destroy(comch_server: *mut doca_comch_server) -> doca_error_t;
    fn doca_comch_server_event_connection_status_changed_register(
        comch_server: *mut doca_comch_server,
        connect_event_cb: doca_comch_event_connection_status_changed_cb_t,
        disconnect_event_cb: doca_comch_event_connection_status_changed_cb_t
    ) -> doca_error_t;
    fn doca_comch_server_event_msg_recv_register(
        comch_server: *mut doca_comch_server, recv_event_cb: doca_comch_event_msg_recv_cb_t
    ) -> doca_error_t;
    fn doca_comch_server_set_max_msg_size(comch_server: *mut doca_comch_server, size: u32) -> doca_error_t;
    fn doca_comch_server_task_send_alloc_init(
        comch_server: *mut doca_comch_server, peer: *mut doca_comch_connection, msg: *const c_void, len: u32,
        task: *mut *mut doca_comch_task_send
    ) -> doca_error_t;
    fn doca_comch_server_task_send_set_conf(
        comch_server: *mut doca_comch_server, task_completion_cb: doca_comch_task_send_completion_cb_t,
        task_error_cb: doca_comch_task_send_completion_cb_t, num_send_tasks: u32
    ) -> doca_error_t;
    fn doca_comch_task_send_as_task(task: *mut doca_comch_task_send) -> *mut doca_task;

    optional:
    fn doca_comch_cap_client_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    fn doca_comch_cap_get_max_msg_size(devinfo: *const doca_devinfo, size: *mut u32) -> doca_error_t;
    fn doca_comch_cap_get_max_name_len(devinfo: *const doca_devinfo, max_name_len: *mut u32) -> doca_error_t;
    fn doca_comch_cap_get_max_send_tasks(
        devinfo: *const doca_devinfo, max_send_tasks: *mut u32
    ) -> doca_error_t;
    fn doca_comch_cap_server_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    fn doca_comch_server_disconnect(
        comch_server: *mut doca_comch_server, connection: *mut doca_comch_connection
    ) -> doca_error_t;
}
