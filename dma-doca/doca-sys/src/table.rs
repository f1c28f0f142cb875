//! The calls of each library that the backend uses.

#[cfg(feature = "linked")]
use crate::bindings;
use crate::call_bindings;

dma_vendor::calls! {
    /// The calls of `libdoca_common.so`.
    pub struct Common of call_bindings, linked bindings;

    required:
    doca_buf_dec_refcount, doca_buf_inventory_buf_get_by_args, doca_buf_inventory_create,
    doca_buf_inventory_destroy, doca_buf_inventory_start, doca_buf_set_data, doca_ctx_get_state,
    doca_ctx_set_user_data, doca_ctx_start, doca_ctx_stop, doca_dev_as_devinfo, doca_dev_close,
    doca_dev_open, doca_devinfo_create_list, doca_devinfo_destroy_list, doca_devinfo_get_pci_addr_str,
    doca_error_get_descr, doca_error_get_name, doca_mmap_add_dev, doca_mmap_create, doca_mmap_destroy,
    doca_mmap_set_memrange, doca_mmap_set_permissions, doca_mmap_start, doca_pe_connect_ctx, doca_pe_create,
    doca_pe_destroy, doca_pe_progress, doca_task_free, doca_task_get_status, doca_task_submit;

    optional:
    doca_buf_chain_list, doca_buf_inventory_expand, doca_ctx_flush_tasks, doca_dev_rep_close,
    doca_dev_rep_open, doca_devinfo_get_ibdev_name, doca_devinfo_get_iface_name,
    doca_devinfo_get_pci_func_type, doca_devinfo_rep_create_list, doca_devinfo_rep_destroy_list,
    doca_devinfo_rep_get_iface_name, doca_devinfo_rep_get_pci_addr_str, doca_devinfo_rep_get_pci_func_type,
    doca_devinfo_rep_get_vuid, doca_log_backend_create_with_fd_sdk, doca_log_backend_set_sdk_level,
    doca_mmap_cap_is_create_from_export_pci_supported, doca_mmap_cap_is_export_pci_supported,
    doca_mmap_create_from_export, doca_mmap_export_pci, doca_mmap_export_rdma, doca_mmap_get_memrange,
    doca_mmap_set_dmabuf_memrange, doca_pe_clear_notification, doca_pe_get_notification_handle,
    doca_pe_request_notification, doca_task_submit_ex, doca_version_runtime;
}

dma_vendor::calls! {
    /// The calls of `libdoca_dma.so`.
    pub struct Dma of call_bindings, linked bindings;

    required:
    doca_dma_as_ctx, doca_dma_cap_task_memcpy_get_max_buf_size, doca_dma_cap_task_memcpy_is_supported,
    doca_dma_create, doca_dma_destroy, doca_dma_task_memcpy_alloc_init, doca_dma_task_memcpy_as_task,
    doca_dma_task_memcpy_set_conf, doca_dma_task_memcpy_set_dst, doca_dma_task_memcpy_set_src;

    optional:
    doca_dma_cap_get_max_num_tasks, doca_dma_cap_task_memcpy_get_max_buf_list_len;
}

dma_vendor::calls! {
    /// The calls of `libdoca_comch.so`.
    pub struct Comch of call_bindings, linked bindings;

    required:
    doca_comch_client_as_ctx, doca_comch_client_create, doca_comch_client_destroy,
    doca_comch_client_event_msg_recv_register, doca_comch_client_get_connection,
    doca_comch_client_set_max_msg_size, doca_comch_client_task_send_alloc_init,
    doca_comch_client_task_send_set_conf, doca_comch_server_as_ctx, doca_comch_server_create,
    doca_comch_server_destroy, doca_comch_server_event_connection_status_changed_register,
    doca_comch_server_event_msg_recv_register, doca_comch_server_set_max_msg_size,
    doca_comch_server_task_send_alloc_init, doca_comch_server_task_send_set_conf,
    doca_comch_task_send_as_task;

    optional:
    doca_comch_cap_client_is_supported, doca_comch_cap_get_max_msg_size, doca_comch_cap_get_max_name_len,
    doca_comch_cap_get_max_send_tasks, doca_comch_cap_server_is_supported, doca_comch_server_disconnect;
}
