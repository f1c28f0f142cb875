//! The calls of DOCA 1.5 to 2.2 that the backend uses.

use std::ffi::{c_char, c_int, c_void};

#[cfg(not(feature = "bindgen"))]
use super::bindings;
use super::bindings::*;
use crate::bindings::{
    doca_buf, doca_buf_inventory, doca_ctx, doca_data, doca_dev, doca_dev_rep, doca_devinfo,
    doca_devinfo_rep, doca_dma, doca_error_t, doca_event_handle_t, doca_mmap, doca_pci_func_type,
};

dma_loader::calls! {
    /// The calls of `libdoca_common.so` in DOCA 1.5 to 2.2.
    pub struct WorkqCommon of bindings, loaded only;

    required:
    fn doca_buf_inventory_buf_by_args(
        inventory: *mut doca_buf_inventory, mmap: *mut doca_mmap, addr: *mut c_void, len: usize,
        data: *mut c_void, data_len: usize, buf: *mut *mut doca_buf
    ) -> doca_error_t;
    fn doca_buf_inventory_create(
        user_data: *const doca_data, num_elements: usize, extensions: u32,
        inventory: *mut *mut doca_buf_inventory
    ) -> doca_error_t;
    fn doca_buf_inventory_destroy(inventory: *mut doca_buf_inventory) -> doca_error_t;
    fn doca_buf_inventory_start(inventory: *mut doca_buf_inventory) -> doca_error_t;
    fn doca_buf_refcount_rm(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t;
    fn doca_buf_set_data(buf: *mut doca_buf, data: *mut c_void, data_len: usize) -> doca_error_t;
    fn doca_ctx_dev_add(ctx: *mut doca_ctx, dev: *mut doca_dev) -> doca_error_t;
    fn doca_ctx_dev_rm(ctx: *mut doca_ctx, dev: *mut doca_dev) -> doca_error_t;
    fn doca_ctx_start(ctx: *mut doca_ctx) -> doca_error_t;
    fn doca_ctx_stop(ctx: *mut doca_ctx) -> doca_error_t;
    fn doca_ctx_workq_add(ctx: *mut doca_ctx, workq: *mut doca_workq) -> doca_error_t;
    fn doca_ctx_workq_rm(ctx: *mut doca_ctx, workq: *mut doca_workq) -> doca_error_t;
    fn doca_dev_as_devinfo(dev: *const doca_dev) -> *mut doca_devinfo;
    fn doca_dev_close(dev: *mut doca_dev) -> doca_error_t;
    fn doca_dev_open(devinfo: *mut doca_devinfo, dev: *mut *mut doca_dev) -> doca_error_t;
    fn doca_devinfo_list_create(dev_list: *mut *mut *mut doca_devinfo, nb_devs: *mut u32) -> doca_error_t;
    fn doca_devinfo_list_destroy(dev_list: *mut *mut doca_devinfo) -> doca_error_t;
    fn doca_get_error_name(error: doca_error_t) -> *const c_char;
    fn doca_get_error_string(error: doca_error_t) -> *const c_char;
    fn doca_mmap_create(user_data: *const doca_data, mmap: *mut *mut doca_mmap) -> doca_error_t;
    fn doca_mmap_destroy(mmap: *mut doca_mmap) -> doca_error_t;
    fn doca_mmap_dev_add(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t;
    fn doca_mmap_start(mmap: *mut doca_mmap) -> doca_error_t;
    fn doca_workq_create(depth: u32, workq: *mut *mut doca_workq) -> doca_error_t;
    fn doca_workq_destroy(workq: *mut doca_workq) -> doca_error_t;
    fn doca_workq_progress_retrieve(
        workq: *mut doca_workq, ev: *mut doca_event, flags: c_int
    ) -> doca_error_t;
    fn doca_workq_submit(workq: *mut doca_workq, job: *const doca_job) -> doca_error_t;

    optional:
    fn doca_buf_list_chain(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t;
    fn doca_ctx_get_event_driven_supported(ctx: *mut doca_ctx, event_supported: *mut u8) -> doca_error_t;
    fn doca_dev_rep_close(dev: *mut doca_dev_rep) -> doca_error_t;
    fn doca_dev_rep_open(devinfo: *mut doca_devinfo_rep, dev_rep: *mut *mut doca_dev_rep) -> doca_error_t;
    fn doca_devinfo_get_ibdev_name(
        devinfo: *const doca_devinfo, ibdev_name: *mut c_char, size: u32
    ) -> doca_error_t;
    fn doca_devinfo_get_iface_name(
        devinfo: *const doca_devinfo, iface_name: *mut c_char, size: u32
    ) -> doca_error_t;
    fn doca_devinfo_get_is_mmap_export_dpu_supported(
        devinfo: *const doca_devinfo, mmap_export: *mut u8
    ) -> doca_error_t;
    fn doca_devinfo_get_is_mmap_export_supported(
        devinfo: *const doca_devinfo, mmap_export: *mut u8
    ) -> doca_error_t;
    fn doca_devinfo_get_is_mmap_from_export_dpu_supported(
        devinfo: *const doca_devinfo, from_export: *mut u8
    ) -> doca_error_t;
    fn doca_devinfo_get_is_mmap_from_export_supported(
        devinfo: *const doca_devinfo, from_export: *mut u8
    ) -> doca_error_t;
    fn doca_devinfo_get_pci_addr(devinfo: *const doca_devinfo, pci_addr: *mut doca_pci_bdf) -> doca_error_t;
    fn doca_devinfo_get_pci_addr_str(devinfo: *const doca_devinfo, pci_addr_str: *mut c_char) -> doca_error_t;
    fn doca_devinfo_rep_get_pci_addr(
        devinfo_rep: *const doca_devinfo_rep, pci_addr: *mut doca_pci_bdf
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
    fn doca_devinfo_rep_list_create(
        dev: *mut doca_dev, filter: c_int, dev_list_rep: *mut *mut *mut doca_devinfo_rep,
        nb_devs_rep: *mut u32
    ) -> doca_error_t;
    fn doca_devinfo_rep_list_destroy(dev_list_rep: *mut *mut doca_devinfo_rep) -> doca_error_t;
    fn doca_mmap_create_from_export(
        user_data: *const doca_data, export_desc: *const c_void, export_desc_len: usize, dev: *mut doca_dev,
        mmap: *mut *mut doca_mmap
    ) -> doca_error_t;
    fn doca_mmap_export(
        mmap: *mut doca_mmap, dev: *const doca_dev, export_desc: *mut *mut c_void,
        export_desc_len: *mut usize
    ) -> doca_error_t;
    fn doca_mmap_export_dpu(
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
    fn doca_mmap_populate(
        mmap: *mut doca_mmap, addr: *mut c_void, len: usize, pg_sz: usize,
        free_cb: doca_mmap_memrange_free_cb_t, opaque: *mut c_void
    ) -> doca_error_t;
    fn doca_mmap_set_free_cb(
        mmap: *mut doca_mmap, free_cb: doca_mmap_memrange_free_cb_t, opaque: *mut c_void
    ) -> doca_error_t;
    fn doca_mmap_set_max_num_chunks(mmap: *mut doca_mmap, max_num_chunks: u32) -> doca_error_t;
    fn doca_mmap_set_memrange(mmap: *mut doca_mmap, addr: *mut c_void, len: usize) -> doca_error_t;
    fn doca_mmap_set_permissions(mmap: *mut doca_mmap, access_mask: u32) -> doca_error_t;
    fn doca_version_runtime() -> *const c_char;
    fn doca_workq_event_handle_arm(workq: *mut doca_workq) -> doca_error_t;
    fn doca_workq_event_handle_clear(workq: *mut doca_workq, handle: doca_event_handle_t) -> doca_error_t;
    fn doca_workq_get_event_handle(workq: *mut doca_workq, handle: *mut doca_event_handle_t) -> doca_error_t;
    fn doca_workq_set_event_driven_enable(workq: *mut doca_workq, enable: u8) -> doca_error_t;
}

dma_loader::calls! {
    /// The calls of `libdoca_dma.so` in DOCA 1.5 to 2.2.
    pub struct WorkqDma of bindings, loaded only;

    required:
    fn doca_dma_as_ctx(dma: *mut doca_dma) -> *mut doca_ctx;
    fn doca_dma_create(dma: *mut *mut doca_dma) -> doca_error_t;
    fn doca_dma_destroy(dma: *mut doca_dma) -> doca_error_t;
    fn doca_dma_get_max_buf_size(devinfo: *const doca_devinfo, buf_size: *mut u64) -> doca_error_t;
    fn doca_dma_job_get_supported(devinfo: *mut doca_devinfo, job_type: doca_dma_job_types) -> doca_error_t;

    optional:
    fn doca_dma_get_max_list_buf_num_elem(
        devinfo: *const doca_devinfo, max_list_num_elem: *mut u32
    ) -> doca_error_t;
}
