//! The calls of each library that the backend uses.

use std::ffi::{c_int, c_void};

#[cfg(any(feature = "linked", not(feature = "bindgen")))]
use crate::bindings;
use crate::bindings::*;

dma_loader::calls! {
    /// The calls of `libspdk_env_dpdk.so`.
    pub struct Env of bindings;

    required:
    fn spdk_env_init(opts: *const spdk_env_opts) -> c_int;
    fn spdk_env_opts_init(opts: *mut spdk_env_opts);
    fn spdk_free(buf: *mut c_void);
    fn spdk_mem_register(vaddr: *mut c_void, len: usize) -> c_int;
    fn spdk_mem_unregister(vaddr: *mut c_void, len: usize) -> c_int;
    fn spdk_pci_device_get_addr(dev: *mut spdk_pci_device) -> spdk_pci_addr;
    fn spdk_vtophys(buf: *const c_void, size: *mut u64) -> u64;
    fn spdk_zmalloc(size: usize, align: usize, unused: *mut u64, numa_id: c_int, flags: u32) -> *mut c_void;

    optional:
    fn spdk_env_get_core_count() -> u32;
    fn spdk_pci_device_claim(dev: *mut spdk_pci_device) -> c_int;
    fn spdk_pci_device_detach(device: *mut spdk_pci_device);
    fn spdk_pci_device_get_numa_id(dev: *mut spdk_pci_device) -> c_int;
    fn spdk_pci_device_map_bar(
        dev: *mut spdk_pci_device, bar: u32, mapped_addr: *mut *mut c_void, phys_addr: *mut u64, size: *mut u64
    ) -> c_int;
    fn spdk_pci_device_unmap_bar(dev: *mut spdk_pci_device, bar: u32, mapped_addr: *mut c_void) -> c_int;
}

dma_loader::calls! {
    /// The calls of `libspdk_ioat.so`.
    pub struct Ioat of bindings;

    required:
    fn spdk_ioat_build_copy(
        chan: *mut spdk_ioat_chan, cb_arg: *mut c_void, cb_fn: spdk_ioat_req_cb, dst: *mut c_void,
        src: *const c_void, nbytes: u64
    ) -> c_int;
    fn spdk_ioat_build_fill(
        chan: *mut spdk_ioat_chan, cb_arg: *mut c_void, cb_fn: spdk_ioat_req_cb, dst: *mut c_void,
        fill_pattern: u64, nbytes: u64
    ) -> c_int;
    fn spdk_ioat_detach(ioat: *mut spdk_ioat_chan);
    fn spdk_ioat_flush(chan: *mut spdk_ioat_chan);
    fn spdk_ioat_get_dma_capabilities(chan: *mut spdk_ioat_chan) -> u32;
    fn spdk_ioat_get_max_descriptors(chan: *mut spdk_ioat_chan) -> u32;
    fn spdk_ioat_probe(
        cb_ctx: *mut c_void, probe_cb: spdk_ioat_probe_cb, attach_cb: spdk_ioat_attach_cb
    ) -> c_int;
    fn spdk_ioat_process_events(chan: *mut spdk_ioat_chan) -> c_int;

    optional:
}

dma_loader::calls! {
    /// The calls of `libspdk_log.so`.
    pub struct Log of bindings;

    required:
    fn spdk_log_open(log: spdk_log_cb);

    optional:
    fn spdk_log_get_print_level() -> spdk_log_level;
}
