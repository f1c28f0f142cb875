//! The calls of each library that the backend uses.

#[cfg(feature = "linked")]
use crate::bindings;
use crate::call_bindings;

dma_vendor::calls! {
    /// The calls of `libspdk_env_dpdk.so`.
    pub struct Env of call_bindings, linked bindings;

    required:
    spdk_env_init, spdk_env_opts_init, spdk_free, spdk_mem_register, spdk_mem_unregister,
    spdk_pci_device_get_addr, spdk_vtophys, spdk_zmalloc;

    optional:
    spdk_env_get_core_count, spdk_pci_device_claim, spdk_pci_device_detach, spdk_pci_device_get_numa_id,
    spdk_pci_device_map_bar, spdk_pci_device_unmap_bar;
}

dma_vendor::calls! {
    /// The calls of `libspdk_ioat.so`.
    pub struct Ioat of call_bindings, linked bindings;

    required:
    spdk_ioat_build_copy, spdk_ioat_build_fill, spdk_ioat_detach, spdk_ioat_flush,
    spdk_ioat_get_dma_capabilities, spdk_ioat_get_max_descriptors, spdk_ioat_probe, spdk_ioat_process_events;

    optional:;
}

dma_vendor::calls! {
    /// The calls of `libspdk_log.so`.
    pub struct Log of call_bindings, linked bindings;

    required:
    spdk_log_open;

    optional:
    spdk_log_get_print_level;
}
