//! The calls of each library, as function pointers.
//!
//! Written by the program in ci/bindings: change that, not this.
#![expect(unsafe_code, reason = "addresses found by name are taken for functions")]
#![allow(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block, reason = "written by a program")]

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use crate::bindings::*;
/// # Safety
///
/// `F` is a function pointer, and what it says of the function at `address` is true.
unsafe fn function<F: Copy>(address: NonNull<c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) }
    unsafe { core::mem::transmute_copy(&address) }
}
/// The calls of `libspdk_env_dpdk.so`. Each field has the name of its call, and is an option where a version may
/// lack it.
#[derive(Clone, Copy, Debug)]
pub struct Env {
    /// `spdk_call_unaffinitized`.
    pub spdk_call_unaffinitized: Option<
        unsafe extern "C" fn(
            cb: ::core::option::Option<
                unsafe extern "C" fn(
                    arg: *mut ::core::ffi::c_void,
                ) -> *mut ::core::ffi::c_void,
            >,
            arg: *mut ::core::ffi::c_void,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_delay_us`.
    pub spdk_delay_us: Option<unsafe extern "C" fn(us: ::core::ffi::c_uint)>,
    /// `spdk_dma_free`.
    pub spdk_dma_free: Option<unsafe extern "C" fn(buf: *mut ::core::ffi::c_void)>,
    /// `spdk_dma_malloc`.
    pub spdk_dma_malloc: Option<
        unsafe extern "C" fn(
            size: usize,
            align: usize,
            unused: *mut u64,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_dma_malloc_socket`.
    pub spdk_dma_malloc_socket: Option<
        unsafe extern "C" fn(
            size: usize,
            align: usize,
            unused: *mut u64,
            numa_id: ::core::ffi::c_int,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_dma_realloc`.
    pub spdk_dma_realloc: Option<
        unsafe extern "C" fn(
            buf: *mut ::core::ffi::c_void,
            size: usize,
            align: usize,
            unused: *mut u64,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_dma_zmalloc`.
    pub spdk_dma_zmalloc: Option<
        unsafe extern "C" fn(
            size: usize,
            align: usize,
            unused: *mut u64,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_dma_zmalloc_socket`.
    pub spdk_dma_zmalloc_socket: Option<
        unsafe extern "C" fn(
            size: usize,
            align: usize,
            unused: *mut u64,
            numa_id: ::core::ffi::c_int,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_env_core_get_smt_cpuset`.
    pub spdk_env_core_get_smt_cpuset: Option<
        unsafe extern "C" fn(cpuset: *mut spdk_cpuset, core: u32) -> bool,
    >,
    /// `spdk_env_fini`.
    pub spdk_env_fini: Option<unsafe extern "C" fn()>,
    /// `spdk_env_get_core_count`.
    pub spdk_env_get_core_count: Option<unsafe extern "C" fn() -> u32>,
    /// `spdk_env_get_cpuset`.
    pub spdk_env_get_cpuset: Option<unsafe extern "C" fn(cpuset: *mut spdk_cpuset)>,
    /// `spdk_env_get_current_core`.
    pub spdk_env_get_current_core: Option<unsafe extern "C" fn() -> u32>,
    /// `spdk_env_get_first_core`.
    pub spdk_env_get_first_core: Option<unsafe extern "C" fn() -> u32>,
    /// `spdk_env_get_first_numa_id`.
    pub spdk_env_get_first_numa_id: Option<unsafe extern "C" fn() -> i32>,
    /// `spdk_env_get_last_core`.
    pub spdk_env_get_last_core: Option<unsafe extern "C" fn() -> u32>,
    /// `spdk_env_get_last_numa_id`.
    pub spdk_env_get_last_numa_id: Option<unsafe extern "C" fn() -> i32>,
    /// `spdk_env_get_main_core`.
    pub spdk_env_get_main_core: Option<unsafe extern "C" fn() -> u32>,
    /// `spdk_env_get_next_core`.
    pub spdk_env_get_next_core: Option<unsafe extern "C" fn(prev_core: u32) -> u32>,
    /// `spdk_env_get_next_numa_id`.
    pub spdk_env_get_next_numa_id: Option<
        unsafe extern "C" fn(prev_numa_id: i32) -> i32,
    >,
    /// `spdk_env_get_numa_id`.
    pub spdk_env_get_numa_id: Option<unsafe extern "C" fn(core: u32) -> i32>,
    /// `spdk_env_get_socket_id`.
    pub spdk_env_get_socket_id: Option<unsafe extern "C" fn(core: u32) -> u32>,
    /// `spdk_env_init`.
    pub spdk_env_init: unsafe extern "C" fn(
        opts: *const spdk_env_opts,
    ) -> ::core::ffi::c_int,
    /// `spdk_env_opts_init`.
    pub spdk_env_opts_init: unsafe extern "C" fn(opts: *mut spdk_env_opts),
    /// `spdk_env_thread_launch_pinned`.
    pub spdk_env_thread_launch_pinned: Option<
        unsafe extern "C" fn(
            core: u32,
            fn_: thread_start_fn,
            arg: *mut ::core::ffi::c_void,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_env_thread_wait_all`.
    pub spdk_env_thread_wait_all: Option<unsafe extern "C" fn()>,
    /// `spdk_free`.
    pub spdk_free: unsafe extern "C" fn(buf: *mut ::core::ffi::c_void),
    /// `spdk_get_ticks`.
    pub spdk_get_ticks: Option<unsafe extern "C" fn() -> u64>,
    /// `spdk_get_ticks_hz`.
    pub spdk_get_ticks_hz: Option<unsafe extern "C" fn() -> u64>,
    /// `spdk_get_tid`.
    pub spdk_get_tid: Option<unsafe extern "C" fn() -> ::core::ffi::c_int>,
    /// `spdk_iommu_is_enabled`.
    pub spdk_iommu_is_enabled: Option<unsafe extern "C" fn() -> bool>,
    /// `spdk_malloc`.
    pub spdk_malloc: Option<
        unsafe extern "C" fn(
            size: usize,
            align: usize,
            unused: *mut u64,
            numa_id: ::core::ffi::c_int,
            flags: u32,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_mem_get_fd_and_offset`.
    pub spdk_mem_get_fd_and_offset: Option<
        unsafe extern "C" fn(
            vaddr: *mut ::core::ffi::c_void,
            offset: *mut u64,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_mem_get_numa_id`.
    pub spdk_mem_get_numa_id: Option<
        unsafe extern "C" fn(buf: *const ::core::ffi::c_void, size: *mut u64) -> i32,
    >,
    /// `spdk_mem_map_alloc`.
    pub spdk_mem_map_alloc: Option<
        unsafe extern "C" fn(
            default_translation: u64,
            ops: *const spdk_mem_map_ops,
            cb_ctx: *mut ::core::ffi::c_void,
        ) -> *mut spdk_mem_map,
    >,
    /// `spdk_mem_map_clear_translation`.
    pub spdk_mem_map_clear_translation: Option<
        unsafe extern "C" fn(
            map: *mut spdk_mem_map,
            vaddr: u64,
            size: u64,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_mem_map_free`.
    pub spdk_mem_map_free: Option<unsafe extern "C" fn(pmap: *mut *mut spdk_mem_map)>,
    /// `spdk_mem_map_set_translation`.
    pub spdk_mem_map_set_translation: Option<
        unsafe extern "C" fn(
            map: *mut spdk_mem_map,
            vaddr: u64,
            size: u64,
            translation: u64,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_mem_map_translate`.
    pub spdk_mem_map_translate: Option<
        unsafe extern "C" fn(map: *const spdk_mem_map, vaddr: u64, size: *mut u64) -> u64,
    >,
    /// `spdk_mem_register`.
    pub spdk_mem_register: unsafe extern "C" fn(
        vaddr: *mut ::core::ffi::c_void,
        len: usize,
    ) -> ::core::ffi::c_int,
    /// `spdk_mem_reserve`.
    pub spdk_mem_reserve: Option<
        unsafe extern "C" fn(
            vaddr: *mut ::core::ffi::c_void,
            len: usize,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_mem_unregister`.
    pub spdk_mem_unregister: unsafe extern "C" fn(
        vaddr: *mut ::core::ffi::c_void,
        len: usize,
    ) -> ::core::ffi::c_int,
    /// `spdk_mempool_count`.
    pub spdk_mempool_count: Option<
        unsafe extern "C" fn(pool: *const spdk_mempool) -> usize,
    >,
    /// `spdk_mempool_create`.
    pub spdk_mempool_create: Option<
        unsafe extern "C" fn(
            name: *const ::core::ffi::c_char,
            count: usize,
            ele_size: usize,
            cache_size: usize,
            numa_id: ::core::ffi::c_int,
        ) -> *mut spdk_mempool,
    >,
    /// `spdk_mempool_create_ctor`.
    pub spdk_mempool_create_ctor: Option<
        unsafe extern "C" fn(
            name: *const ::core::ffi::c_char,
            count: usize,
            ele_size: usize,
            cache_size: usize,
            numa_id: ::core::ffi::c_int,
            obj_init: spdk_mempool_obj_cb_t,
            obj_init_arg: *mut ::core::ffi::c_void,
        ) -> *mut spdk_mempool,
    >,
    /// `spdk_mempool_free`.
    pub spdk_mempool_free: Option<unsafe extern "C" fn(mp: *mut spdk_mempool)>,
    /// `spdk_mempool_get`.
    pub spdk_mempool_get: Option<
        unsafe extern "C" fn(mp: *mut spdk_mempool) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_mempool_get_bulk`.
    pub spdk_mempool_get_bulk: Option<
        unsafe extern "C" fn(
            mp: *mut spdk_mempool,
            ele_arr: *mut *mut ::core::ffi::c_void,
            count: usize,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_mempool_get_name`.
    pub spdk_mempool_get_name: Option<
        unsafe extern "C" fn(mp: *mut spdk_mempool) -> *mut ::core::ffi::c_char,
    >,
    /// `spdk_mempool_lookup`.
    pub spdk_mempool_lookup: Option<
        unsafe extern "C" fn(name: *const ::core::ffi::c_char) -> *mut spdk_mempool,
    >,
    /// `spdk_mempool_mem_iter`.
    pub spdk_mempool_mem_iter: Option<
        unsafe extern "C" fn(
            mp: *mut spdk_mempool,
            mem_cb: spdk_mempool_mem_cb_t,
            mem_cb_arg: *mut ::core::ffi::c_void,
        ) -> u32,
    >,
    /// `spdk_mempool_obj_iter`.
    pub spdk_mempool_obj_iter: Option<
        unsafe extern "C" fn(
            mp: *mut spdk_mempool,
            obj_cb: spdk_mempool_obj_cb_t,
            obj_cb_arg: *mut ::core::ffi::c_void,
        ) -> u32,
    >,
    /// `spdk_mempool_put`.
    pub spdk_mempool_put: Option<
        unsafe extern "C" fn(mp: *mut spdk_mempool, ele: *mut ::core::ffi::c_void),
    >,
    /// `spdk_mempool_put_bulk`.
    pub spdk_mempool_put_bulk: Option<
        unsafe extern "C" fn(
            mp: *mut spdk_mempool,
            ele_arr: *mut *mut ::core::ffi::c_void,
            count: usize,
        ),
    >,
    /// `spdk_memzone_dump`.
    pub spdk_memzone_dump: Option<unsafe extern "C" fn(f: *mut FILE)>,
    /// `spdk_memzone_free`.
    pub spdk_memzone_free: Option<
        unsafe extern "C" fn(name: *const ::core::ffi::c_char) -> ::core::ffi::c_int,
    >,
    /// `spdk_memzone_lookup`.
    pub spdk_memzone_lookup: Option<
        unsafe extern "C" fn(
            name: *const ::core::ffi::c_char,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_memzone_reserve`.
    pub spdk_memzone_reserve: Option<
        unsafe extern "C" fn(
            name: *const ::core::ffi::c_char,
            len: usize,
            numa_id: ::core::ffi::c_int,
            flags: ::core::ffi::c_uint,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_memzone_reserve_aligned`.
    pub spdk_memzone_reserve_aligned: Option<
        unsafe extern "C" fn(
            name: *const ::core::ffi::c_char,
            len: usize,
            numa_id: ::core::ffi::c_int,
            flags: ::core::ffi::c_uint,
            align: ::core::ffi::c_uint,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_pause`.
    pub spdk_pause: Option<unsafe extern "C" fn()>,
    /// `spdk_pci_addr_compare`.
    pub spdk_pci_addr_compare: Option<
        unsafe extern "C" fn(
            a1: *const spdk_pci_addr,
            a2: *const spdk_pci_addr,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_addr_fmt`.
    pub spdk_pci_addr_fmt: unsafe extern "C" fn(
        bdf: *mut ::core::ffi::c_char,
        sz: usize,
        addr: *const spdk_pci_addr,
    ) -> ::core::ffi::c_int,
    /// `spdk_pci_addr_parse`.
    pub spdk_pci_addr_parse: Option<
        unsafe extern "C" fn(
            addr: *mut spdk_pci_addr,
            bdf: *const ::core::ffi::c_char,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_allow`.
    pub spdk_pci_device_allow: Option<
        unsafe extern "C" fn(pci_addr: *mut spdk_pci_addr) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_attach`.
    pub spdk_pci_device_attach: Option<
        unsafe extern "C" fn(
            driver: *mut spdk_pci_driver,
            enum_cb: spdk_pci_enum_cb,
            enum_ctx: *mut ::core::ffi::c_void,
            pci_address: *mut spdk_pci_addr,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_cfg_read`.
    pub spdk_pci_device_cfg_read: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            buf: *mut ::core::ffi::c_void,
            len: u32,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_cfg_read16`.
    pub spdk_pci_device_cfg_read16: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            value: *mut u16,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_cfg_read32`.
    pub spdk_pci_device_cfg_read32: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            value: *mut u32,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_cfg_read8`.
    pub spdk_pci_device_cfg_read8: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            value: *mut u8,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_cfg_write`.
    pub spdk_pci_device_cfg_write: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            buf: *mut ::core::ffi::c_void,
            len: u32,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_cfg_write16`.
    pub spdk_pci_device_cfg_write16: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            value: u16,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_cfg_write32`.
    pub spdk_pci_device_cfg_write32: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            value: u32,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_cfg_write8`.
    pub spdk_pci_device_cfg_write8: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            value: u8,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_claim`.
    pub spdk_pci_device_claim: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_detach`.
    pub spdk_pci_device_detach: Option<
        unsafe extern "C" fn(device: *mut spdk_pci_device),
    >,
    /// `spdk_pci_device_disable_interrupt`.
    pub spdk_pci_device_disable_interrupt: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_enable_interrupt`.
    pub spdk_pci_device_enable_interrupt: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_get_addr`.
    pub spdk_pci_device_get_addr: unsafe extern "C" fn(
        dev: *mut spdk_pci_device,
    ) -> spdk_pci_addr,
    /// `spdk_pci_device_get_bus`.
    pub spdk_pci_device_get_bus: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u8,
    >,
    /// `spdk_pci_device_get_dev`.
    pub spdk_pci_device_get_dev: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u8,
    >,
    /// `spdk_pci_device_get_device_id`.
    pub spdk_pci_device_get_device_id: unsafe extern "C" fn(
        dev: *mut spdk_pci_device,
    ) -> u16,
    /// `spdk_pci_device_get_domain`.
    pub spdk_pci_device_get_domain: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u32,
    >,
    /// `spdk_pci_device_get_func`.
    pub spdk_pci_device_get_func: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u8,
    >,
    /// `spdk_pci_device_get_id`.
    pub spdk_pci_device_get_id: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> spdk_pci_id,
    >,
    /// `spdk_pci_device_get_interrupt_efd`.
    pub spdk_pci_device_get_interrupt_efd: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_get_numa_id`.
    pub spdk_pci_device_get_numa_id: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_get_serial_number`.
    pub spdk_pci_device_get_serial_number: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            sn: *mut ::core::ffi::c_char,
            len: usize,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_get_socket_id`.
    pub spdk_pci_device_get_socket_id: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_get_subdevice_id`.
    pub spdk_pci_device_get_subdevice_id: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u16,
    >,
    /// `spdk_pci_device_get_subvendor_id`.
    pub spdk_pci_device_get_subvendor_id: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u16,
    >,
    /// `spdk_pci_device_get_type`.
    pub spdk_pci_device_get_type: Option<
        unsafe extern "C" fn(dev: *const spdk_pci_device) -> *const ::core::ffi::c_char,
    >,
    /// `spdk_pci_device_get_vendor_id`.
    pub spdk_pci_device_get_vendor_id: unsafe extern "C" fn(
        dev: *mut spdk_pci_device,
    ) -> u16,
    /// `spdk_pci_device_is_removed`.
    pub spdk_pci_device_is_removed: Option<
        unsafe extern "C" fn(dev: *mut spdk_pci_device) -> bool,
    >,
    /// `spdk_pci_device_map_bar`.
    pub spdk_pci_device_map_bar: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            bar: u32,
            mapped_addr: *mut *mut ::core::ffi::c_void,
            phys_addr: *mut u64,
            size: *mut u64,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_device_unclaim`.
    pub spdk_pci_device_unclaim: Option<unsafe extern "C" fn(dev: *mut spdk_pci_device)>,
    /// `spdk_pci_device_unmap_bar`.
    pub spdk_pci_device_unmap_bar: Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            bar: u32,
            mapped_addr: *mut ::core::ffi::c_void,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_driver_register`.
    pub spdk_pci_driver_register: Option<
        unsafe extern "C" fn(
            name: *const ::core::ffi::c_char,
            id_table: *mut spdk_pci_id,
            flags: u32,
        ),
    >,
    /// `spdk_pci_enumerate`.
    pub spdk_pci_enumerate: Option<
        unsafe extern "C" fn(
            driver: *mut spdk_pci_driver,
            enum_cb: spdk_pci_enum_cb,
            enum_ctx: *mut ::core::ffi::c_void,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_pci_for_each_device`.
    pub spdk_pci_for_each_device: Option<
        unsafe extern "C" fn(
            ctx: *mut ::core::ffi::c_void,
            fn_: ::core::option::Option<
                unsafe extern "C" fn(
                    ctx: *mut ::core::ffi::c_void,
                    dev: *mut spdk_pci_device,
                ),
            >,
        ),
    >,
    /// `spdk_pci_get_driver`.
    pub spdk_pci_get_driver: Option<
        unsafe extern "C" fn(name: *const ::core::ffi::c_char) -> *mut spdk_pci_driver,
    >,
    /// `spdk_pci_ioat_get_driver`.
    pub spdk_pci_ioat_get_driver: Option<unsafe extern "C" fn() -> *mut spdk_pci_driver>,
    /// `spdk_process_is_primary`.
    pub spdk_process_is_primary: Option<unsafe extern "C" fn() -> bool>,
    /// `spdk_realloc`.
    pub spdk_realloc: Option<
        unsafe extern "C" fn(
            buf: *mut ::core::ffi::c_void,
            size: usize,
            align: usize,
        ) -> *mut ::core::ffi::c_void,
    >,
    /// `spdk_ring_count`.
    pub spdk_ring_count: Option<unsafe extern "C" fn(ring: *mut spdk_ring) -> usize>,
    /// `spdk_ring_create`.
    pub spdk_ring_create: Option<
        unsafe extern "C" fn(
            type_: spdk_ring_type,
            count: usize,
            numa_id: ::core::ffi::c_int,
        ) -> *mut spdk_ring,
    >,
    /// `spdk_ring_dequeue`.
    pub spdk_ring_dequeue: Option<
        unsafe extern "C" fn(
            ring: *mut spdk_ring,
            objs: *mut *mut ::core::ffi::c_void,
            count: usize,
        ) -> usize,
    >,
    /// `spdk_ring_enqueue`.
    pub spdk_ring_enqueue: Option<
        unsafe extern "C" fn(
            ring: *mut spdk_ring,
            objs: *mut *mut ::core::ffi::c_void,
            count: usize,
            free_space: *mut usize,
        ) -> usize,
    >,
    /// `spdk_ring_free`.
    pub spdk_ring_free: Option<unsafe extern "C" fn(ring: *mut spdk_ring)>,
    /// `spdk_unaffinitize_thread`.
    pub spdk_unaffinitize_thread: Option<unsafe extern "C" fn()>,
    /// `spdk_vtophys`.
    pub spdk_vtophys: unsafe extern "C" fn(
        buf: *const ::core::ffi::c_void,
        size: *mut u64,
    ) -> u64,
    /// `spdk_zmalloc`.
    pub spdk_zmalloc: unsafe extern "C" fn(
        size: usize,
        align: usize,
        unused: *mut u64,
        numa_id: ::core::ffi::c_int,
        flags: u32,
    ) -> *mut ::core::ffi::c_void,
}
impl Env {
    /// Takes from `get` the address of each call. `Err` names the required ones that it does not have.
    ///
    /// # Errors
    ///
    /// The names of all required calls for which `get` answered `None`.
    ///
    /// # Safety
    ///
    /// What `get` answers for a name is the address of the function that the headers declare by it, and stays so for as
    /// long as the table or a copy of it is used.
    pub unsafe fn load(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Result<Self, Vec<&'static CStr>> {
        let mut missing = Vec::new();
        let mut need = |name| {
            let found = get(name);
            if found.is_none() {
                missing.push(name);
            }
            found
        };
        let spdk_env_init = need(c"spdk_env_init");
        let spdk_env_opts_init = need(c"spdk_env_opts_init");
        let spdk_free = need(c"spdk_free");
        let spdk_mem_register = need(c"spdk_mem_register");
        let spdk_mem_unregister = need(c"spdk_mem_unregister");
        let spdk_pci_addr_fmt = need(c"spdk_pci_addr_fmt");
        let spdk_pci_device_get_addr = need(c"spdk_pci_device_get_addr");
        let spdk_pci_device_get_device_id = need(c"spdk_pci_device_get_device_id");
        let spdk_pci_device_get_vendor_id = need(c"spdk_pci_device_get_vendor_id");
        let spdk_vtophys = need(c"spdk_vtophys");
        let spdk_zmalloc = need(c"spdk_zmalloc");
        let mut all = || unsafe {
            Some(Self {
                spdk_call_unaffinitized: get(c"spdk_call_unaffinitized")
                    .map(|f| function(f)),
                spdk_delay_us: get(c"spdk_delay_us").map(|f| function(f)),
                spdk_dma_free: get(c"spdk_dma_free").map(|f| function(f)),
                spdk_dma_malloc: get(c"spdk_dma_malloc").map(|f| function(f)),
                spdk_dma_malloc_socket: get(c"spdk_dma_malloc_socket")
                    .map(|f| function(f)),
                spdk_dma_realloc: get(c"spdk_dma_realloc").map(|f| function(f)),
                spdk_dma_zmalloc: get(c"spdk_dma_zmalloc").map(|f| function(f)),
                spdk_dma_zmalloc_socket: get(c"spdk_dma_zmalloc_socket")
                    .map(|f| function(f)),
                spdk_env_core_get_smt_cpuset: get(c"spdk_env_core_get_smt_cpuset")
                    .map(|f| function(f)),
                spdk_env_fini: get(c"spdk_env_fini").map(|f| function(f)),
                spdk_env_get_core_count: get(c"spdk_env_get_core_count")
                    .map(|f| function(f)),
                spdk_env_get_cpuset: get(c"spdk_env_get_cpuset").map(|f| function(f)),
                spdk_env_get_current_core: get(c"spdk_env_get_current_core")
                    .map(|f| function(f)),
                spdk_env_get_first_core: get(c"spdk_env_get_first_core")
                    .map(|f| function(f)),
                spdk_env_get_first_numa_id: get(c"spdk_env_get_first_numa_id")
                    .map(|f| function(f)),
                spdk_env_get_last_core: get(c"spdk_env_get_last_core")
                    .map(|f| function(f)),
                spdk_env_get_last_numa_id: get(c"spdk_env_get_last_numa_id")
                    .map(|f| function(f)),
                spdk_env_get_main_core: get(c"spdk_env_get_main_core")
                    .map(|f| function(f)),
                spdk_env_get_next_core: get(c"spdk_env_get_next_core")
                    .map(|f| function(f)),
                spdk_env_get_next_numa_id: get(c"spdk_env_get_next_numa_id")
                    .map(|f| function(f)),
                spdk_env_get_numa_id: get(c"spdk_env_get_numa_id").map(|f| function(f)),
                spdk_env_get_socket_id: get(c"spdk_env_get_socket_id")
                    .map(|f| function(f)),
                spdk_env_init: function(spdk_env_init?),
                spdk_env_opts_init: function(spdk_env_opts_init?),
                spdk_env_thread_launch_pinned: get(c"spdk_env_thread_launch_pinned")
                    .map(|f| function(f)),
                spdk_env_thread_wait_all: get(c"spdk_env_thread_wait_all")
                    .map(|f| function(f)),
                spdk_free: function(spdk_free?),
                spdk_get_ticks: get(c"spdk_get_ticks").map(|f| function(f)),
                spdk_get_ticks_hz: get(c"spdk_get_ticks_hz").map(|f| function(f)),
                spdk_get_tid: get(c"spdk_get_tid").map(|f| function(f)),
                spdk_iommu_is_enabled: get(c"spdk_iommu_is_enabled")
                    .map(|f| function(f)),
                spdk_malloc: get(c"spdk_malloc").map(|f| function(f)),
                spdk_mem_get_fd_and_offset: get(c"spdk_mem_get_fd_and_offset")
                    .map(|f| function(f)),
                spdk_mem_get_numa_id: get(c"spdk_mem_get_numa_id").map(|f| function(f)),
                spdk_mem_map_alloc: get(c"spdk_mem_map_alloc").map(|f| function(f)),
                spdk_mem_map_clear_translation: get(c"spdk_mem_map_clear_translation")
                    .map(|f| function(f)),
                spdk_mem_map_free: get(c"spdk_mem_map_free").map(|f| function(f)),
                spdk_mem_map_set_translation: get(c"spdk_mem_map_set_translation")
                    .map(|f| function(f)),
                spdk_mem_map_translate: get(c"spdk_mem_map_translate")
                    .map(|f| function(f)),
                spdk_mem_register: function(spdk_mem_register?),
                spdk_mem_reserve: get(c"spdk_mem_reserve").map(|f| function(f)),
                spdk_mem_unregister: function(spdk_mem_unregister?),
                spdk_mempool_count: get(c"spdk_mempool_count").map(|f| function(f)),
                spdk_mempool_create: get(c"spdk_mempool_create").map(|f| function(f)),
                spdk_mempool_create_ctor: get(c"spdk_mempool_create_ctor")
                    .map(|f| function(f)),
                spdk_mempool_free: get(c"spdk_mempool_free").map(|f| function(f)),
                spdk_mempool_get: get(c"spdk_mempool_get").map(|f| function(f)),
                spdk_mempool_get_bulk: get(c"spdk_mempool_get_bulk")
                    .map(|f| function(f)),
                spdk_mempool_get_name: get(c"spdk_mempool_get_name")
                    .map(|f| function(f)),
                spdk_mempool_lookup: get(c"spdk_mempool_lookup").map(|f| function(f)),
                spdk_mempool_mem_iter: get(c"spdk_mempool_mem_iter")
                    .map(|f| function(f)),
                spdk_mempool_obj_iter: get(c"spdk_mempool_obj_iter")
                    .map(|f| function(f)),
                spdk_mempool_put: get(c"spdk_mempool_put").map(|f| function(f)),
                spdk_mempool_put_bulk: get(c"spdk_mempool_put_bulk")
                    .map(|f| function(f)),
                spdk_memzone_dump: get(c"spdk_memzone_dump").map(|f| function(f)),
                spdk_memzone_free: get(c"spdk_memzone_free").map(|f| function(f)),
                spdk_memzone_lookup: get(c"spdk_memzone_lookup").map(|f| function(f)),
                spdk_memzone_reserve: get(c"spdk_memzone_reserve").map(|f| function(f)),
                spdk_memzone_reserve_aligned: get(c"spdk_memzone_reserve_aligned")
                    .map(|f| function(f)),
                spdk_pause: get(c"spdk_pause").map(|f| function(f)),
                spdk_pci_addr_compare: get(c"spdk_pci_addr_compare")
                    .map(|f| function(f)),
                spdk_pci_addr_fmt: function(spdk_pci_addr_fmt?),
                spdk_pci_addr_parse: get(c"spdk_pci_addr_parse").map(|f| function(f)),
                spdk_pci_device_allow: get(c"spdk_pci_device_allow")
                    .map(|f| function(f)),
                spdk_pci_device_attach: get(c"spdk_pci_device_attach")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_read: get(c"spdk_pci_device_cfg_read")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_read16: get(c"spdk_pci_device_cfg_read16")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_read32: get(c"spdk_pci_device_cfg_read32")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_read8: get(c"spdk_pci_device_cfg_read8")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_write: get(c"spdk_pci_device_cfg_write")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_write16: get(c"spdk_pci_device_cfg_write16")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_write32: get(c"spdk_pci_device_cfg_write32")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_write8: get(c"spdk_pci_device_cfg_write8")
                    .map(|f| function(f)),
                spdk_pci_device_claim: get(c"spdk_pci_device_claim")
                    .map(|f| function(f)),
                spdk_pci_device_detach: get(c"spdk_pci_device_detach")
                    .map(|f| function(f)),
                spdk_pci_device_disable_interrupt: get(
                        c"spdk_pci_device_disable_interrupt",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_enable_interrupt: get(
                        c"spdk_pci_device_enable_interrupt",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_addr: function(spdk_pci_device_get_addr?),
                spdk_pci_device_get_bus: get(c"spdk_pci_device_get_bus")
                    .map(|f| function(f)),
                spdk_pci_device_get_dev: get(c"spdk_pci_device_get_dev")
                    .map(|f| function(f)),
                spdk_pci_device_get_device_id: function(spdk_pci_device_get_device_id?),
                spdk_pci_device_get_domain: get(c"spdk_pci_device_get_domain")
                    .map(|f| function(f)),
                spdk_pci_device_get_func: get(c"spdk_pci_device_get_func")
                    .map(|f| function(f)),
                spdk_pci_device_get_id: get(c"spdk_pci_device_get_id")
                    .map(|f| function(f)),
                spdk_pci_device_get_interrupt_efd: get(
                        c"spdk_pci_device_get_interrupt_efd",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_numa_id: get(c"spdk_pci_device_get_numa_id")
                    .map(|f| function(f)),
                spdk_pci_device_get_serial_number: get(
                        c"spdk_pci_device_get_serial_number",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_socket_id: get(c"spdk_pci_device_get_socket_id")
                    .map(|f| function(f)),
                spdk_pci_device_get_subdevice_id: get(
                        c"spdk_pci_device_get_subdevice_id",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_subvendor_id: get(
                        c"spdk_pci_device_get_subvendor_id",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_type: get(c"spdk_pci_device_get_type")
                    .map(|f| function(f)),
                spdk_pci_device_get_vendor_id: function(spdk_pci_device_get_vendor_id?),
                spdk_pci_device_is_removed: get(c"spdk_pci_device_is_removed")
                    .map(|f| function(f)),
                spdk_pci_device_map_bar: get(c"spdk_pci_device_map_bar")
                    .map(|f| function(f)),
                spdk_pci_device_unclaim: get(c"spdk_pci_device_unclaim")
                    .map(|f| function(f)),
                spdk_pci_device_unmap_bar: get(c"spdk_pci_device_unmap_bar")
                    .map(|f| function(f)),
                spdk_pci_driver_register: get(c"spdk_pci_driver_register")
                    .map(|f| function(f)),
                spdk_pci_enumerate: get(c"spdk_pci_enumerate").map(|f| function(f)),
                spdk_pci_for_each_device: get(c"spdk_pci_for_each_device")
                    .map(|f| function(f)),
                spdk_pci_get_driver: get(c"spdk_pci_get_driver").map(|f| function(f)),
                spdk_pci_ioat_get_driver: get(c"spdk_pci_ioat_get_driver")
                    .map(|f| function(f)),
                spdk_process_is_primary: get(c"spdk_process_is_primary")
                    .map(|f| function(f)),
                spdk_realloc: get(c"spdk_realloc").map(|f| function(f)),
                spdk_ring_count: get(c"spdk_ring_count").map(|f| function(f)),
                spdk_ring_create: get(c"spdk_ring_create").map(|f| function(f)),
                spdk_ring_dequeue: get(c"spdk_ring_dequeue").map(|f| function(f)),
                spdk_ring_enqueue: get(c"spdk_ring_enqueue").map(|f| function(f)),
                spdk_ring_free: get(c"spdk_ring_free").map(|f| function(f)),
                spdk_unaffinitize_thread: get(c"spdk_unaffinitize_thread")
                    .map(|f| function(f)),
                spdk_vtophys: function(spdk_vtophys?),
                spdk_zmalloc: function(spdk_zmalloc?),
            })
        };
        all().ok_or(missing)
    }
    /// Takes the required calls from what this program was linked with, and the others from `get`.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load).
    #[cfg(feature = "linked")]
    pub unsafe fn linked(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Self {
        unsafe {
            Self {
                spdk_call_unaffinitized: get(c"spdk_call_unaffinitized")
                    .map(|f| function(f)),
                spdk_delay_us: get(c"spdk_delay_us").map(|f| function(f)),
                spdk_dma_free: get(c"spdk_dma_free").map(|f| function(f)),
                spdk_dma_malloc: get(c"spdk_dma_malloc").map(|f| function(f)),
                spdk_dma_malloc_socket: get(c"spdk_dma_malloc_socket")
                    .map(|f| function(f)),
                spdk_dma_realloc: get(c"spdk_dma_realloc").map(|f| function(f)),
                spdk_dma_zmalloc: get(c"spdk_dma_zmalloc").map(|f| function(f)),
                spdk_dma_zmalloc_socket: get(c"spdk_dma_zmalloc_socket")
                    .map(|f| function(f)),
                spdk_env_core_get_smt_cpuset: get(c"spdk_env_core_get_smt_cpuset")
                    .map(|f| function(f)),
                spdk_env_fini: get(c"spdk_env_fini").map(|f| function(f)),
                spdk_env_get_core_count: get(c"spdk_env_get_core_count")
                    .map(|f| function(f)),
                spdk_env_get_cpuset: get(c"spdk_env_get_cpuset").map(|f| function(f)),
                spdk_env_get_current_core: get(c"spdk_env_get_current_core")
                    .map(|f| function(f)),
                spdk_env_get_first_core: get(c"spdk_env_get_first_core")
                    .map(|f| function(f)),
                spdk_env_get_first_numa_id: get(c"spdk_env_get_first_numa_id")
                    .map(|f| function(f)),
                spdk_env_get_last_core: get(c"spdk_env_get_last_core")
                    .map(|f| function(f)),
                spdk_env_get_last_numa_id: get(c"spdk_env_get_last_numa_id")
                    .map(|f| function(f)),
                spdk_env_get_main_core: get(c"spdk_env_get_main_core")
                    .map(|f| function(f)),
                spdk_env_get_next_core: get(c"spdk_env_get_next_core")
                    .map(|f| function(f)),
                spdk_env_get_next_numa_id: get(c"spdk_env_get_next_numa_id")
                    .map(|f| function(f)),
                spdk_env_get_numa_id: get(c"spdk_env_get_numa_id").map(|f| function(f)),
                spdk_env_get_socket_id: get(c"spdk_env_get_socket_id")
                    .map(|f| function(f)),
                spdk_env_init,
                spdk_env_opts_init,
                spdk_env_thread_launch_pinned: get(c"spdk_env_thread_launch_pinned")
                    .map(|f| function(f)),
                spdk_env_thread_wait_all: get(c"spdk_env_thread_wait_all")
                    .map(|f| function(f)),
                spdk_free,
                spdk_get_ticks: get(c"spdk_get_ticks").map(|f| function(f)),
                spdk_get_ticks_hz: get(c"spdk_get_ticks_hz").map(|f| function(f)),
                spdk_get_tid: get(c"spdk_get_tid").map(|f| function(f)),
                spdk_iommu_is_enabled: get(c"spdk_iommu_is_enabled")
                    .map(|f| function(f)),
                spdk_malloc: get(c"spdk_malloc").map(|f| function(f)),
                spdk_mem_get_fd_and_offset: get(c"spdk_mem_get_fd_and_offset")
                    .map(|f| function(f)),
                spdk_mem_get_numa_id: get(c"spdk_mem_get_numa_id").map(|f| function(f)),
                spdk_mem_map_alloc: get(c"spdk_mem_map_alloc").map(|f| function(f)),
                spdk_mem_map_clear_translation: get(c"spdk_mem_map_clear_translation")
                    .map(|f| function(f)),
                spdk_mem_map_free: get(c"spdk_mem_map_free").map(|f| function(f)),
                spdk_mem_map_set_translation: get(c"spdk_mem_map_set_translation")
                    .map(|f| function(f)),
                spdk_mem_map_translate: get(c"spdk_mem_map_translate")
                    .map(|f| function(f)),
                spdk_mem_register,
                spdk_mem_reserve: get(c"spdk_mem_reserve").map(|f| function(f)),
                spdk_mem_unregister,
                spdk_mempool_count: get(c"spdk_mempool_count").map(|f| function(f)),
                spdk_mempool_create: get(c"spdk_mempool_create").map(|f| function(f)),
                spdk_mempool_create_ctor: get(c"spdk_mempool_create_ctor")
                    .map(|f| function(f)),
                spdk_mempool_free: get(c"spdk_mempool_free").map(|f| function(f)),
                spdk_mempool_get: get(c"spdk_mempool_get").map(|f| function(f)),
                spdk_mempool_get_bulk: get(c"spdk_mempool_get_bulk")
                    .map(|f| function(f)),
                spdk_mempool_get_name: get(c"spdk_mempool_get_name")
                    .map(|f| function(f)),
                spdk_mempool_lookup: get(c"spdk_mempool_lookup").map(|f| function(f)),
                spdk_mempool_mem_iter: get(c"spdk_mempool_mem_iter")
                    .map(|f| function(f)),
                spdk_mempool_obj_iter: get(c"spdk_mempool_obj_iter")
                    .map(|f| function(f)),
                spdk_mempool_put: get(c"spdk_mempool_put").map(|f| function(f)),
                spdk_mempool_put_bulk: get(c"spdk_mempool_put_bulk")
                    .map(|f| function(f)),
                spdk_memzone_dump: get(c"spdk_memzone_dump").map(|f| function(f)),
                spdk_memzone_free: get(c"spdk_memzone_free").map(|f| function(f)),
                spdk_memzone_lookup: get(c"spdk_memzone_lookup").map(|f| function(f)),
                spdk_memzone_reserve: get(c"spdk_memzone_reserve").map(|f| function(f)),
                spdk_memzone_reserve_aligned: get(c"spdk_memzone_reserve_aligned")
                    .map(|f| function(f)),
                spdk_pause: get(c"spdk_pause").map(|f| function(f)),
                spdk_pci_addr_compare: get(c"spdk_pci_addr_compare")
                    .map(|f| function(f)),
                spdk_pci_addr_fmt,
                spdk_pci_addr_parse: get(c"spdk_pci_addr_parse").map(|f| function(f)),
                spdk_pci_device_allow: get(c"spdk_pci_device_allow")
                    .map(|f| function(f)),
                spdk_pci_device_attach: get(c"spdk_pci_device_attach")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_read: get(c"spdk_pci_device_cfg_read")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_read16: get(c"spdk_pci_device_cfg_read16")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_read32: get(c"spdk_pci_device_cfg_read32")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_read8: get(c"spdk_pci_device_cfg_read8")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_write: get(c"spdk_pci_device_cfg_write")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_write16: get(c"spdk_pci_device_cfg_write16")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_write32: get(c"spdk_pci_device_cfg_write32")
                    .map(|f| function(f)),
                spdk_pci_device_cfg_write8: get(c"spdk_pci_device_cfg_write8")
                    .map(|f| function(f)),
                spdk_pci_device_claim: get(c"spdk_pci_device_claim")
                    .map(|f| function(f)),
                spdk_pci_device_detach: get(c"spdk_pci_device_detach")
                    .map(|f| function(f)),
                spdk_pci_device_disable_interrupt: get(
                        c"spdk_pci_device_disable_interrupt",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_enable_interrupt: get(
                        c"spdk_pci_device_enable_interrupt",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_addr,
                spdk_pci_device_get_bus: get(c"spdk_pci_device_get_bus")
                    .map(|f| function(f)),
                spdk_pci_device_get_dev: get(c"spdk_pci_device_get_dev")
                    .map(|f| function(f)),
                spdk_pci_device_get_device_id,
                spdk_pci_device_get_domain: get(c"spdk_pci_device_get_domain")
                    .map(|f| function(f)),
                spdk_pci_device_get_func: get(c"spdk_pci_device_get_func")
                    .map(|f| function(f)),
                spdk_pci_device_get_id: get(c"spdk_pci_device_get_id")
                    .map(|f| function(f)),
                spdk_pci_device_get_interrupt_efd: get(
                        c"spdk_pci_device_get_interrupt_efd",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_numa_id: get(c"spdk_pci_device_get_numa_id")
                    .map(|f| function(f)),
                spdk_pci_device_get_serial_number: get(
                        c"spdk_pci_device_get_serial_number",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_socket_id: get(c"spdk_pci_device_get_socket_id")
                    .map(|f| function(f)),
                spdk_pci_device_get_subdevice_id: get(
                        c"spdk_pci_device_get_subdevice_id",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_subvendor_id: get(
                        c"spdk_pci_device_get_subvendor_id",
                    )
                    .map(|f| function(f)),
                spdk_pci_device_get_type: get(c"spdk_pci_device_get_type")
                    .map(|f| function(f)),
                spdk_pci_device_get_vendor_id,
                spdk_pci_device_is_removed: get(c"spdk_pci_device_is_removed")
                    .map(|f| function(f)),
                spdk_pci_device_map_bar: get(c"spdk_pci_device_map_bar")
                    .map(|f| function(f)),
                spdk_pci_device_unclaim: get(c"spdk_pci_device_unclaim")
                    .map(|f| function(f)),
                spdk_pci_device_unmap_bar: get(c"spdk_pci_device_unmap_bar")
                    .map(|f| function(f)),
                spdk_pci_driver_register: get(c"spdk_pci_driver_register")
                    .map(|f| function(f)),
                spdk_pci_enumerate: get(c"spdk_pci_enumerate").map(|f| function(f)),
                spdk_pci_for_each_device: get(c"spdk_pci_for_each_device")
                    .map(|f| function(f)),
                spdk_pci_get_driver: get(c"spdk_pci_get_driver").map(|f| function(f)),
                spdk_pci_ioat_get_driver: get(c"spdk_pci_ioat_get_driver")
                    .map(|f| function(f)),
                spdk_process_is_primary: get(c"spdk_process_is_primary")
                    .map(|f| function(f)),
                spdk_realloc: get(c"spdk_realloc").map(|f| function(f)),
                spdk_ring_count: get(c"spdk_ring_count").map(|f| function(f)),
                spdk_ring_create: get(c"spdk_ring_create").map(|f| function(f)),
                spdk_ring_dequeue: get(c"spdk_ring_dequeue").map(|f| function(f)),
                spdk_ring_enqueue: get(c"spdk_ring_enqueue").map(|f| function(f)),
                spdk_ring_free: get(c"spdk_ring_free").map(|f| function(f)),
                spdk_unaffinitize_thread: get(c"spdk_unaffinitize_thread")
                    .map(|f| function(f)),
                spdk_vtophys,
                spdk_zmalloc,
            }
        }
    }
}
/// The calls of `libspdk_ioat.so`. Each field has the name of its call, and is an option where a version may
/// lack it.
#[derive(Clone, Copy, Debug)]
pub struct Ioat {
    /// `spdk_ioat_build_copy`.
    pub spdk_ioat_build_copy: unsafe extern "C" fn(
        chan: *mut spdk_ioat_chan,
        cb_arg: *mut ::core::ffi::c_void,
        cb_fn: spdk_ioat_req_cb,
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        nbytes: u64,
    ) -> ::core::ffi::c_int,
    /// `spdk_ioat_build_fill`.
    pub spdk_ioat_build_fill: unsafe extern "C" fn(
        chan: *mut spdk_ioat_chan,
        cb_arg: *mut ::core::ffi::c_void,
        cb_fn: spdk_ioat_req_cb,
        dst: *mut ::core::ffi::c_void,
        fill_pattern: u64,
        nbytes: u64,
    ) -> ::core::ffi::c_int,
    /// `spdk_ioat_detach`.
    pub spdk_ioat_detach: unsafe extern "C" fn(ioat: *mut spdk_ioat_chan),
    /// `spdk_ioat_flush`.
    pub spdk_ioat_flush: unsafe extern "C" fn(chan: *mut spdk_ioat_chan),
    /// `spdk_ioat_get_dma_capabilities`.
    pub spdk_ioat_get_dma_capabilities: unsafe extern "C" fn(
        chan: *mut spdk_ioat_chan,
    ) -> u32,
    /// `spdk_ioat_get_max_descriptors`.
    pub spdk_ioat_get_max_descriptors: unsafe extern "C" fn(
        chan: *mut spdk_ioat_chan,
    ) -> u32,
    /// `spdk_ioat_probe`.
    pub spdk_ioat_probe: unsafe extern "C" fn(
        cb_ctx: *mut ::core::ffi::c_void,
        probe_cb: spdk_ioat_probe_cb,
        attach_cb: spdk_ioat_attach_cb,
    ) -> ::core::ffi::c_int,
    /// `spdk_ioat_process_events`.
    pub spdk_ioat_process_events: unsafe extern "C" fn(
        chan: *mut spdk_ioat_chan,
    ) -> ::core::ffi::c_int,
    /// `spdk_ioat_submit_copy`.
    pub spdk_ioat_submit_copy: Option<
        unsafe extern "C" fn(
            chan: *mut spdk_ioat_chan,
            cb_arg: *mut ::core::ffi::c_void,
            cb_fn: spdk_ioat_req_cb,
            dst: *mut ::core::ffi::c_void,
            src: *const ::core::ffi::c_void,
            nbytes: u64,
        ) -> ::core::ffi::c_int,
    >,
    /// `spdk_ioat_submit_fill`.
    pub spdk_ioat_submit_fill: Option<
        unsafe extern "C" fn(
            chan: *mut spdk_ioat_chan,
            cb_arg: *mut ::core::ffi::c_void,
            cb_fn: spdk_ioat_req_cb,
            dst: *mut ::core::ffi::c_void,
            fill_pattern: u64,
            nbytes: u64,
        ) -> ::core::ffi::c_int,
    >,
}
impl Ioat {
    /// Takes from `get` the address of each call. `Err` names the required ones that it does not have.
    ///
    /// # Errors
    ///
    /// The names of all required calls for which `get` answered `None`.
    ///
    /// # Safety
    ///
    /// What `get` answers for a name is the address of the function that the headers declare by it, and stays so for as
    /// long as the table or a copy of it is used.
    pub unsafe fn load(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Result<Self, Vec<&'static CStr>> {
        let mut missing = Vec::new();
        let mut need = |name| {
            let found = get(name);
            if found.is_none() {
                missing.push(name);
            }
            found
        };
        let spdk_ioat_build_copy = need(c"spdk_ioat_build_copy");
        let spdk_ioat_build_fill = need(c"spdk_ioat_build_fill");
        let spdk_ioat_detach = need(c"spdk_ioat_detach");
        let spdk_ioat_flush = need(c"spdk_ioat_flush");
        let spdk_ioat_get_dma_capabilities = need(c"spdk_ioat_get_dma_capabilities");
        let spdk_ioat_get_max_descriptors = need(c"spdk_ioat_get_max_descriptors");
        let spdk_ioat_probe = need(c"spdk_ioat_probe");
        let spdk_ioat_process_events = need(c"spdk_ioat_process_events");
        let mut all = || unsafe {
            Some(Self {
                spdk_ioat_build_copy: function(spdk_ioat_build_copy?),
                spdk_ioat_build_fill: function(spdk_ioat_build_fill?),
                spdk_ioat_detach: function(spdk_ioat_detach?),
                spdk_ioat_flush: function(spdk_ioat_flush?),
                spdk_ioat_get_dma_capabilities: function(
                    spdk_ioat_get_dma_capabilities?,
                ),
                spdk_ioat_get_max_descriptors: function(spdk_ioat_get_max_descriptors?),
                spdk_ioat_probe: function(spdk_ioat_probe?),
                spdk_ioat_process_events: function(spdk_ioat_process_events?),
                spdk_ioat_submit_copy: get(c"spdk_ioat_submit_copy")
                    .map(|f| function(f)),
                spdk_ioat_submit_fill: get(c"spdk_ioat_submit_fill").map(|f| function(f)),
            })
        };
        all().ok_or(missing)
    }
    /// Takes the required calls from what this program was linked with, and the others from `get`.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load).
    #[cfg(feature = "linked")]
    pub unsafe fn linked(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Self {
        unsafe {
            Self {
                spdk_ioat_build_copy,
                spdk_ioat_build_fill,
                spdk_ioat_detach,
                spdk_ioat_flush,
                spdk_ioat_get_dma_capabilities,
                spdk_ioat_get_max_descriptors,
                spdk_ioat_probe,
                spdk_ioat_process_events,
                spdk_ioat_submit_copy: get(c"spdk_ioat_submit_copy")
                    .map(|f| function(f)),
                spdk_ioat_submit_fill: get(c"spdk_ioat_submit_fill").map(|f| function(f)),
            }
        }
    }
}
/// The calls of `libspdk_log.so`. Each field has the name of its call, and is an option where a version may
/// lack it.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// `spdk_get_ticks`.
    pub spdk_get_ticks: Option<unsafe extern "C" fn() -> u64>,
    /// `spdk_get_ticks_hz`.
    pub spdk_get_ticks_hz: Option<unsafe extern "C" fn() -> u64>,
    /// `spdk_log_clear_flag`.
    pub spdk_log_clear_flag: Option<
        unsafe extern "C" fn(flag: *const ::core::ffi::c_char) -> ::core::ffi::c_int,
    >,
    /// `spdk_log_close`.
    pub spdk_log_close: Option<unsafe extern "C" fn()>,
    /// `spdk_log_dump`.
    pub spdk_log_dump: Option<
        unsafe extern "C" fn(
            fp: *mut FILE,
            label: *const ::core::ffi::c_char,
            buf: *const ::core::ffi::c_void,
            len: usize,
        ),
    >,
    /// `spdk_log_enable_timestamps`.
    pub spdk_log_enable_timestamps: Option<unsafe extern "C" fn(value: bool)>,
    /// `spdk_log_get_first_flag`.
    pub spdk_log_get_first_flag: Option<unsafe extern "C" fn() -> *mut spdk_log_flag>,
    /// `spdk_log_get_flag`.
    pub spdk_log_get_flag: Option<
        unsafe extern "C" fn(flag: *const ::core::ffi::c_char) -> bool,
    >,
    /// `spdk_log_get_level`.
    pub spdk_log_get_level: Option<unsafe extern "C" fn() -> spdk_log_level>,
    /// `spdk_log_get_next_flag`.
    pub spdk_log_get_next_flag: Option<
        unsafe extern "C" fn(flag: *mut spdk_log_flag) -> *mut spdk_log_flag,
    >,
    /// `spdk_log_get_print_level`.
    pub spdk_log_get_print_level: Option<unsafe extern "C" fn() -> spdk_log_level>,
    /// `spdk_log_open`.
    pub spdk_log_open: unsafe extern "C" fn(log: spdk_log_cb),
    /// `spdk_log_open_ext`.
    pub spdk_log_open_ext: Option<unsafe extern "C" fn(opts: *mut spdk_log_opts)>,
    /// `spdk_log_register_flag`.
    pub spdk_log_register_flag: Option<
        unsafe extern "C" fn(name: *const ::core::ffi::c_char, flag: *mut spdk_log_flag),
    >,
    /// `spdk_log_set_flag`.
    pub spdk_log_set_flag: Option<
        unsafe extern "C" fn(flag: *const ::core::ffi::c_char) -> ::core::ffi::c_int,
    >,
    /// `spdk_log_set_level`.
    pub spdk_log_set_level: Option<unsafe extern "C" fn(level: spdk_log_level)>,
    /// `spdk_log_set_print_level`.
    pub spdk_log_set_print_level: unsafe extern "C" fn(level: spdk_log_level),
    /// `spdk_log_to_syslog_level`.
    pub spdk_log_to_syslog_level: Option<
        unsafe extern "C" fn(level: spdk_log_level) -> ::core::ffi::c_int,
    >,
    /// `spdk_log_usage`.
    pub spdk_log_usage: Option<
        unsafe extern "C" fn(f: *mut FILE, log_arg: *const ::core::ffi::c_char),
    >,
    /// `spdk_vflog`.
    pub spdk_vflog: Option<
        unsafe extern "C" fn(
            fp: *mut FILE,
            file: *const ::core::ffi::c_char,
            line: ::core::ffi::c_int,
            func: *const ::core::ffi::c_char,
            format: *const ::core::ffi::c_char,
            ap: *mut __va_list_tag,
        ),
    >,
    /// `spdk_vlog`.
    pub spdk_vlog: Option<
        unsafe extern "C" fn(
            level: spdk_log_level,
            file: *const ::core::ffi::c_char,
            line: ::core::ffi::c_int,
            func: *const ::core::ffi::c_char,
            format: *const ::core::ffi::c_char,
            ap: *mut __va_list_tag,
        ),
    >,
}
impl Log {
    /// Takes from `get` the address of each call. `Err` names the required ones that it does not have.
    ///
    /// # Errors
    ///
    /// The names of all required calls for which `get` answered `None`.
    ///
    /// # Safety
    ///
    /// What `get` answers for a name is the address of the function that the headers declare by it, and stays so for as
    /// long as the table or a copy of it is used.
    pub unsafe fn load(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Result<Self, Vec<&'static CStr>> {
        let mut missing = Vec::new();
        let mut need = |name| {
            let found = get(name);
            if found.is_none() {
                missing.push(name);
            }
            found
        };
        let spdk_log_open = need(c"spdk_log_open");
        let spdk_log_set_print_level = need(c"spdk_log_set_print_level");
        let mut all = || unsafe {
            Some(Self {
                spdk_get_ticks: get(c"spdk_get_ticks").map(|f| function(f)),
                spdk_get_ticks_hz: get(c"spdk_get_ticks_hz").map(|f| function(f)),
                spdk_log_clear_flag: get(c"spdk_log_clear_flag").map(|f| function(f)),
                spdk_log_close: get(c"spdk_log_close").map(|f| function(f)),
                spdk_log_dump: get(c"spdk_log_dump").map(|f| function(f)),
                spdk_log_enable_timestamps: get(c"spdk_log_enable_timestamps")
                    .map(|f| function(f)),
                spdk_log_get_first_flag: get(c"spdk_log_get_first_flag")
                    .map(|f| function(f)),
                spdk_log_get_flag: get(c"spdk_log_get_flag").map(|f| function(f)),
                spdk_log_get_level: get(c"spdk_log_get_level").map(|f| function(f)),
                spdk_log_get_next_flag: get(c"spdk_log_get_next_flag")
                    .map(|f| function(f)),
                spdk_log_get_print_level: get(c"spdk_log_get_print_level")
                    .map(|f| function(f)),
                spdk_log_open: function(spdk_log_open?),
                spdk_log_open_ext: get(c"spdk_log_open_ext").map(|f| function(f)),
                spdk_log_register_flag: get(c"spdk_log_register_flag")
                    .map(|f| function(f)),
                spdk_log_set_flag: get(c"spdk_log_set_flag").map(|f| function(f)),
                spdk_log_set_level: get(c"spdk_log_set_level").map(|f| function(f)),
                spdk_log_set_print_level: function(spdk_log_set_print_level?),
                spdk_log_to_syslog_level: get(c"spdk_log_to_syslog_level")
                    .map(|f| function(f)),
                spdk_log_usage: get(c"spdk_log_usage").map(|f| function(f)),
                spdk_vflog: get(c"spdk_vflog").map(|f| function(f)),
                spdk_vlog: get(c"spdk_vlog").map(|f| function(f)),
            })
        };
        all().ok_or(missing)
    }
    /// Takes the required calls from what this program was linked with, and the others from `get`.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load).
    #[cfg(feature = "linked")]
    pub unsafe fn linked(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Self {
        unsafe {
            Self {
                spdk_get_ticks: get(c"spdk_get_ticks").map(|f| function(f)),
                spdk_get_ticks_hz: get(c"spdk_get_ticks_hz").map(|f| function(f)),
                spdk_log_clear_flag: get(c"spdk_log_clear_flag").map(|f| function(f)),
                spdk_log_close: get(c"spdk_log_close").map(|f| function(f)),
                spdk_log_dump: get(c"spdk_log_dump").map(|f| function(f)),
                spdk_log_enable_timestamps: get(c"spdk_log_enable_timestamps")
                    .map(|f| function(f)),
                spdk_log_get_first_flag: get(c"spdk_log_get_first_flag")
                    .map(|f| function(f)),
                spdk_log_get_flag: get(c"spdk_log_get_flag").map(|f| function(f)),
                spdk_log_get_level: get(c"spdk_log_get_level").map(|f| function(f)),
                spdk_log_get_next_flag: get(c"spdk_log_get_next_flag")
                    .map(|f| function(f)),
                spdk_log_get_print_level: get(c"spdk_log_get_print_level")
                    .map(|f| function(f)),
                spdk_log_open,
                spdk_log_open_ext: get(c"spdk_log_open_ext").map(|f| function(f)),
                spdk_log_register_flag: get(c"spdk_log_register_flag")
                    .map(|f| function(f)),
                spdk_log_set_flag: get(c"spdk_log_set_flag").map(|f| function(f)),
                spdk_log_set_level: get(c"spdk_log_set_level").map(|f| function(f)),
                spdk_log_set_print_level,
                spdk_log_to_syslog_level: get(c"spdk_log_to_syslog_level")
                    .map(|f| function(f)),
                spdk_log_usage: get(c"spdk_log_usage").map(|f| function(f)),
                spdk_vflog: get(c"spdk_vflog").map(|f| function(f)),
                spdk_vlog: get(c"spdk_vlog").map(|f| function(f)),
            }
        }
    }
}
