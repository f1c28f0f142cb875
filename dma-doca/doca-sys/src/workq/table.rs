//! The calls of DOCA 1.5 to 2.2 that the backend uses.

use super::call_bindings;

dma_vendor::calls! {
    /// The calls of `libdoca_common.so` in DOCA 1.5 to 2.2.
    pub struct WorkqCommon of call_bindings;

    required:
    doca_buf_inventory_buf_by_args, doca_buf_inventory_create, doca_buf_inventory_destroy,
    doca_buf_inventory_start, doca_buf_refcount_rm, doca_buf_set_data, doca_ctx_dev_add, doca_ctx_dev_rm,
    doca_ctx_start, doca_ctx_stop, doca_ctx_workq_add, doca_ctx_workq_rm, doca_dev_as_devinfo,
    doca_dev_close, doca_dev_open, doca_devinfo_list_create, doca_devinfo_list_destroy, doca_get_error_name,
    doca_get_error_string, doca_mmap_create, doca_mmap_destroy, doca_mmap_dev_add, doca_mmap_start,
    doca_workq_create, doca_workq_destroy, doca_workq_progress_retrieve, doca_workq_submit;

    optional:
    doca_buf_list_chain, doca_ctx_get_event_driven_supported, doca_dev_rep_close, doca_dev_rep_open,
    doca_devinfo_get_ibdev_name, doca_devinfo_get_iface_name, doca_devinfo_get_is_mmap_export_dpu_supported,
    doca_devinfo_get_is_mmap_export_supported, doca_devinfo_get_is_mmap_from_export_dpu_supported,
    doca_devinfo_get_is_mmap_from_export_supported, doca_devinfo_get_pci_addr,
    doca_devinfo_get_pci_addr_str, doca_devinfo_rep_get_pci_addr, doca_devinfo_rep_get_pci_addr_str,
    doca_devinfo_rep_get_pci_func_type, doca_devinfo_rep_get_vuid, doca_devinfo_rep_list_create,
    doca_devinfo_rep_list_destroy, doca_mmap_create_from_export, doca_mmap_export, doca_mmap_export_dpu,
    doca_mmap_export_rdma, doca_mmap_get_memrange, doca_mmap_populate, doca_mmap_set_max_num_chunks,
    doca_mmap_set_memrange, doca_mmap_set_permissions, doca_version_runtime, doca_workq_event_handle_arm,
    doca_workq_event_handle_clear, doca_workq_get_event_handle, doca_workq_set_event_driven_enable;
}

dma_vendor::calls! {
    /// The calls of `libdoca_dma.so` in DOCA 1.5 to 2.2.
    pub struct WorkqDma of call_bindings;

    required:
    doca_dma_as_ctx, doca_dma_create, doca_dma_destroy, doca_dma_get_max_buf_size,
    doca_dma_job_get_supported;

    optional:
    doca_dma_get_max_list_buf_num_elem;
}
