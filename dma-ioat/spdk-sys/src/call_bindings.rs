//! The types of the functions of the headers in `include/`, by the names that they have there.
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

pub type spdk_env_opts_init = unsafe extern "C" fn(opts: *mut spdk_env_opts);
pub type spdk_env_init = unsafe extern "C" fn(opts: *const spdk_env_opts) -> ::core::ffi::c_int;
pub type spdk_env_fini = unsafe extern "C" fn();
pub type spdk_process_is_primary = unsafe extern "C" fn() -> bool;
pub type spdk_malloc = unsafe extern "C" fn(size: usize, align: usize, unused: *mut u64, numa_id: ::core::ffi::c_int, flags: u32) -> *mut ::core::ffi::c_void;
pub type spdk_zmalloc = unsafe extern "C" fn(size: usize, align: usize, unused: *mut u64, numa_id: ::core::ffi::c_int, flags: u32) -> *mut ::core::ffi::c_void;
pub type spdk_realloc = unsafe extern "C" fn(buf: *mut ::core::ffi::c_void, size: usize, align: usize) -> *mut ::core::ffi::c_void;
pub type spdk_free = unsafe extern "C" fn(buf: *mut ::core::ffi::c_void);
pub type spdk_dma_malloc = unsafe extern "C" fn(size: usize, align: usize, unused: *mut u64) -> *mut ::core::ffi::c_void;
pub type spdk_dma_malloc_socket = unsafe extern "C" fn(size: usize, align: usize, unused: *mut u64, numa_id: ::core::ffi::c_int) -> *mut ::core::ffi::c_void;
pub type spdk_dma_zmalloc = unsafe extern "C" fn(size: usize, align: usize, unused: *mut u64) -> *mut ::core::ffi::c_void;
pub type spdk_dma_zmalloc_socket = unsafe extern "C" fn(size: usize, align: usize, unused: *mut u64, numa_id: ::core::ffi::c_int) -> *mut ::core::ffi::c_void;
pub type spdk_dma_free = unsafe extern "C" fn(buf: *mut ::core::ffi::c_void);
pub type spdk_vtophys = unsafe extern "C" fn(buf: *const ::core::ffi::c_void, size: *mut u64) -> u64;
pub type spdk_iommu_is_enabled = unsafe extern "C" fn() -> bool;
pub type spdk_mem_register = unsafe extern "C" fn(vaddr: *mut ::core::ffi::c_void, len: usize) -> ::core::ffi::c_int;
pub type spdk_mem_unregister = unsafe extern "C" fn(vaddr: *mut ::core::ffi::c_void, len: usize) -> ::core::ffi::c_int;
pub type spdk_mem_reserve = unsafe extern "C" fn(vaddr: *mut ::core::ffi::c_void, len: usize) -> ::core::ffi::c_int;
pub type spdk_mem_get_numa_id = unsafe extern "C" fn(buf: *const ::core::ffi::c_void, size: *mut u64) -> i32;
pub type spdk_mem_get_fd_and_offset = unsafe extern "C" fn(vaddr: *mut ::core::ffi::c_void, offset: *mut u64) -> ::core::ffi::c_int;
pub type spdk_mem_map_alloc = unsafe extern "C" fn(default_translation: u64, ops: *const spdk_mem_map_ops, cb_ctx: *mut ::core::ffi::c_void) -> *mut spdk_mem_map;
pub type spdk_mem_map_free = unsafe extern "C" fn(pmap: *mut *mut spdk_mem_map);
pub type spdk_mem_map_set_translation = unsafe extern "C" fn(map: *mut spdk_mem_map, vaddr: u64, size: u64, translation: u64) -> ::core::ffi::c_int;
pub type spdk_mem_map_clear_translation = unsafe extern "C" fn(map: *mut spdk_mem_map, vaddr: u64, size: u64) -> ::core::ffi::c_int;
pub type spdk_mem_map_translate = unsafe extern "C" fn(map: *const spdk_mem_map, vaddr: u64, size: *mut u64) -> u64;
pub type spdk_memzone_reserve = unsafe extern "C" fn(name: *const ::core::ffi::c_char, len: usize, numa_id: ::core::ffi::c_int, flags: ::core::ffi::c_uint) -> *mut ::core::ffi::c_void;
pub type spdk_memzone_reserve_aligned = unsafe extern "C" fn(name: *const ::core::ffi::c_char, len: usize, numa_id: ::core::ffi::c_int, flags: ::core::ffi::c_uint, align: ::core::ffi::c_uint) -> *mut ::core::ffi::c_void;
pub type spdk_memzone_lookup = unsafe extern "C" fn(name: *const ::core::ffi::c_char) -> *mut ::core::ffi::c_void;
pub type spdk_memzone_free = unsafe extern "C" fn(name: *const ::core::ffi::c_char) -> ::core::ffi::c_int;
pub type spdk_memzone_dump = unsafe extern "C" fn(f: *mut FILE);
pub type spdk_mempool_create = unsafe extern "C" fn(name: *const ::core::ffi::c_char, count: usize, ele_size: usize, cache_size: usize, numa_id: ::core::ffi::c_int) -> *mut spdk_mempool;
pub type spdk_mempool_create_ctor = unsafe extern "C" fn(name: *const ::core::ffi::c_char, count: usize, ele_size: usize, cache_size: usize, numa_id: ::core::ffi::c_int, obj_init: spdk_mempool_obj_cb_t, obj_init_arg: *mut ::core::ffi::c_void) -> *mut spdk_mempool;
pub type spdk_mempool_lookup = unsafe extern "C" fn(name: *const ::core::ffi::c_char) -> *mut spdk_mempool;
pub type spdk_mempool_get_name = unsafe extern "C" fn(mp: *mut spdk_mempool) -> *mut ::core::ffi::c_char;
pub type spdk_mempool_free = unsafe extern "C" fn(mp: *mut spdk_mempool);
pub type spdk_mempool_get = unsafe extern "C" fn(mp: *mut spdk_mempool) -> *mut ::core::ffi::c_void;
pub type spdk_mempool_get_bulk = unsafe extern "C" fn(mp: *mut spdk_mempool, ele_arr: *mut *mut ::core::ffi::c_void, count: usize) -> ::core::ffi::c_int;
pub type spdk_mempool_put = unsafe extern "C" fn(mp: *mut spdk_mempool, ele: *mut ::core::ffi::c_void);
pub type spdk_mempool_put_bulk = unsafe extern "C" fn(mp: *mut spdk_mempool, ele_arr: *mut *mut ::core::ffi::c_void, count: usize);
pub type spdk_mempool_count = unsafe extern "C" fn(pool: *const spdk_mempool) -> usize;
pub type spdk_mempool_obj_iter = unsafe extern "C" fn(mp: *mut spdk_mempool, obj_cb: spdk_mempool_obj_cb_t, obj_cb_arg: *mut ::core::ffi::c_void) -> u32;
pub type spdk_mempool_mem_iter = unsafe extern "C" fn(mp: *mut spdk_mempool, mem_cb: spdk_mempool_mem_cb_t, mem_cb_arg: *mut ::core::ffi::c_void) -> u32;
pub type spdk_ring_create = unsafe extern "C" fn(type_: spdk_ring_type, count: usize, numa_id: ::core::ffi::c_int) -> *mut spdk_ring;
pub type spdk_ring_free = unsafe extern "C" fn(ring: *mut spdk_ring);
pub type spdk_ring_count = unsafe extern "C" fn(ring: *mut spdk_ring) -> usize;
pub type spdk_ring_enqueue = unsafe extern "C" fn(ring: *mut spdk_ring, objs: *mut *mut ::core::ffi::c_void, count: usize, free_space: *mut usize) -> usize;
pub type spdk_ring_dequeue = unsafe extern "C" fn(ring: *mut spdk_ring, objs: *mut *mut ::core::ffi::c_void, count: usize) -> usize;
pub type spdk_env_get_core_count = unsafe extern "C" fn() -> u32;
pub type spdk_env_get_current_core = unsafe extern "C" fn() -> u32;
pub type spdk_env_get_main_core = unsafe extern "C" fn() -> u32;
pub type spdk_env_get_first_core = unsafe extern "C" fn() -> u32;
pub type spdk_env_get_last_core = unsafe extern "C" fn() -> u32;
pub type spdk_env_get_next_core = unsafe extern "C" fn(prev_core: u32) -> u32;
pub type spdk_env_get_numa_id = unsafe extern "C" fn(core: u32) -> i32;
pub type spdk_env_get_first_numa_id = unsafe extern "C" fn() -> i32;
pub type spdk_env_get_last_numa_id = unsafe extern "C" fn() -> i32;
pub type spdk_env_get_next_numa_id = unsafe extern "C" fn(prev_numa_id: i32) -> i32;
pub type spdk_env_get_cpuset = unsafe extern "C" fn(cpuset: *mut spdk_cpuset);
pub type spdk_env_core_get_smt_cpuset = unsafe extern "C" fn(cpuset: *mut spdk_cpuset, core: u32) -> bool;
pub type spdk_env_thread_launch_pinned = unsafe extern "C" fn(core: u32, fn_: thread_start_fn, arg: *mut ::core::ffi::c_void) -> ::core::ffi::c_int;
pub type spdk_env_thread_wait_all = unsafe extern "C" fn();
pub type spdk_unaffinitize_thread = unsafe extern "C" fn();
pub type spdk_call_unaffinitized = unsafe extern "C" fn(cb: ::core::option::Option< unsafe extern "C" fn(arg: *mut ::core::ffi::c_void) -> *mut ::core::ffi::c_void, >, arg: *mut ::core::ffi::c_void) -> *mut ::core::ffi::c_void;
pub type spdk_get_tid = unsafe extern "C" fn() -> ::core::ffi::c_int;
pub type spdk_get_ticks = unsafe extern "C" fn() -> u64;
pub type spdk_get_ticks_hz = unsafe extern "C" fn() -> u64;
pub type spdk_delay_us = unsafe extern "C" fn(us: ::core::ffi::c_uint);
pub type spdk_pci_driver_register = unsafe extern "C" fn(name: *const ::core::ffi::c_char, id_table: *mut spdk_pci_id, flags: u32);
pub type spdk_pci_get_driver = unsafe extern "C" fn(name: *const ::core::ffi::c_char) -> *mut spdk_pci_driver;
pub type spdk_pci_ioat_get_driver = unsafe extern "C" fn() -> *mut spdk_pci_driver;
pub type spdk_pci_enumerate = unsafe extern "C" fn(driver: *mut spdk_pci_driver, enum_cb: spdk_pci_enum_cb, enum_ctx: *mut ::core::ffi::c_void) -> ::core::ffi::c_int;
pub type spdk_pci_for_each_device = unsafe extern "C" fn(ctx: *mut ::core::ffi::c_void, fn_: ::core::option::Option< unsafe extern "C" fn(ctx: *mut ::core::ffi::c_void, dev: *mut spdk_pci_device), >);
pub type spdk_pci_device_attach = unsafe extern "C" fn(driver: *mut spdk_pci_driver, enum_cb: spdk_pci_enum_cb, enum_ctx: *mut ::core::ffi::c_void, pci_address: *mut spdk_pci_addr) -> ::core::ffi::c_int;
pub type spdk_pci_device_detach = unsafe extern "C" fn(device: *mut spdk_pci_device);
pub type spdk_pci_device_allow = unsafe extern "C" fn(pci_addr: *mut spdk_pci_addr) -> ::core::ffi::c_int;
pub type spdk_pci_device_claim = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
pub type spdk_pci_device_unclaim = unsafe extern "C" fn(dev: *mut spdk_pci_device);
pub type spdk_pci_device_is_removed = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> bool;
pub type spdk_pci_device_map_bar = unsafe extern "C" fn(dev: *mut spdk_pci_device, bar: u32, mapped_addr: *mut *mut ::core::ffi::c_void, phys_addr: *mut u64, size: *mut u64) -> ::core::ffi::c_int;
pub type spdk_pci_device_unmap_bar = unsafe extern "C" fn(dev: *mut spdk_pci_device, bar: u32, mapped_addr: *mut ::core::ffi::c_void) -> ::core::ffi::c_int;
pub type spdk_pci_device_cfg_read = unsafe extern "C" fn(dev: *mut spdk_pci_device, buf: *mut ::core::ffi::c_void, len: u32, offset: u32) -> ::core::ffi::c_int;
pub type spdk_pci_device_cfg_write = unsafe extern "C" fn(dev: *mut spdk_pci_device, buf: *mut ::core::ffi::c_void, len: u32, offset: u32) -> ::core::ffi::c_int;
pub type spdk_pci_device_cfg_read8 = unsafe extern "C" fn(dev: *mut spdk_pci_device, value: *mut u8, offset: u32) -> ::core::ffi::c_int;
pub type spdk_pci_device_cfg_write8 = unsafe extern "C" fn(dev: *mut spdk_pci_device, value: u8, offset: u32) -> ::core::ffi::c_int;
pub type spdk_pci_device_cfg_read16 = unsafe extern "C" fn(dev: *mut spdk_pci_device, value: *mut u16, offset: u32) -> ::core::ffi::c_int;
pub type spdk_pci_device_cfg_write16 = unsafe extern "C" fn(dev: *mut spdk_pci_device, value: u16, offset: u32) -> ::core::ffi::c_int;
pub type spdk_pci_device_cfg_read32 = unsafe extern "C" fn(dev: *mut spdk_pci_device, value: *mut u32, offset: u32) -> ::core::ffi::c_int;
pub type spdk_pci_device_cfg_write32 = unsafe extern "C" fn(dev: *mut spdk_pci_device, value: u32, offset: u32) -> ::core::ffi::c_int;
pub type spdk_pci_device_get_domain = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u32;
pub type spdk_pci_device_get_bus = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u8;
pub type spdk_pci_device_get_dev = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u8;
pub type spdk_pci_device_get_func = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u8;
pub type spdk_pci_device_get_addr = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> spdk_pci_addr;
pub type spdk_pci_device_get_vendor_id = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u16;
pub type spdk_pci_device_get_device_id = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u16;
pub type spdk_pci_device_get_subvendor_id = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u16;
pub type spdk_pci_device_get_subdevice_id = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> u16;
pub type spdk_pci_device_get_id = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> spdk_pci_id;
pub type spdk_pci_device_get_numa_id = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
pub type spdk_pci_device_get_serial_number = unsafe extern "C" fn(dev: *mut spdk_pci_device, sn: *mut ::core::ffi::c_char, len: usize) -> ::core::ffi::c_int;
pub type spdk_pci_device_get_type = unsafe extern "C" fn(dev: *const spdk_pci_device) -> *const ::core::ffi::c_char;
pub type spdk_pci_addr_compare = unsafe extern "C" fn(a1: *const spdk_pci_addr, a2: *const spdk_pci_addr) -> ::core::ffi::c_int;
pub type spdk_pci_addr_parse = unsafe extern "C" fn(addr: *mut spdk_pci_addr, bdf: *const ::core::ffi::c_char) -> ::core::ffi::c_int;
pub type spdk_pci_addr_fmt = unsafe extern "C" fn(bdf: *mut ::core::ffi::c_char, sz: usize, addr: *const spdk_pci_addr) -> ::core::ffi::c_int;
pub type spdk_pci_device_enable_interrupt = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
pub type spdk_pci_device_disable_interrupt = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
pub type spdk_pci_device_get_interrupt_efd = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
pub type spdk_env_get_socket_id = unsafe extern "C" fn(core: u32) -> u32;
pub type spdk_pci_device_get_socket_id = unsafe extern "C" fn(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
pub type spdk_ioat_probe = unsafe extern "C" fn(cb_ctx: *mut ::core::ffi::c_void, probe_cb: spdk_ioat_probe_cb, attach_cb: spdk_ioat_attach_cb) -> ::core::ffi::c_int;
pub type spdk_ioat_detach = unsafe extern "C" fn(ioat: *mut spdk_ioat_chan);
pub type spdk_ioat_get_max_descriptors = unsafe extern "C" fn(chan: *mut spdk_ioat_chan) -> u32;
pub type spdk_ioat_get_dma_capabilities = unsafe extern "C" fn(chan: *mut spdk_ioat_chan) -> u32;
pub type spdk_ioat_build_copy = unsafe extern "C" fn(chan: *mut spdk_ioat_chan, cb_arg: *mut ::core::ffi::c_void, cb_fn: spdk_ioat_req_cb, dst: *mut ::core::ffi::c_void, src: *const ::core::ffi::c_void, nbytes: u64) -> ::core::ffi::c_int;
pub type spdk_ioat_submit_copy = unsafe extern "C" fn(chan: *mut spdk_ioat_chan, cb_arg: *mut ::core::ffi::c_void, cb_fn: spdk_ioat_req_cb, dst: *mut ::core::ffi::c_void, src: *const ::core::ffi::c_void, nbytes: u64) -> ::core::ffi::c_int;
pub type spdk_ioat_build_fill = unsafe extern "C" fn(chan: *mut spdk_ioat_chan, cb_arg: *mut ::core::ffi::c_void, cb_fn: spdk_ioat_req_cb, dst: *mut ::core::ffi::c_void, fill_pattern: u64, nbytes: u64) -> ::core::ffi::c_int;
pub type spdk_ioat_submit_fill = unsafe extern "C" fn(chan: *mut spdk_ioat_chan, cb_arg: *mut ::core::ffi::c_void, cb_fn: spdk_ioat_req_cb, dst: *mut ::core::ffi::c_void, fill_pattern: u64, nbytes: u64) -> ::core::ffi::c_int;
pub type spdk_ioat_flush = unsafe extern "C" fn(chan: *mut spdk_ioat_chan);
pub type spdk_ioat_process_events = unsafe extern "C" fn(chan: *mut spdk_ioat_chan) -> ::core::ffi::c_int;
pub type spdk_log_open = unsafe extern "C" fn(log: spdk_log_cb);
pub type spdk_log_open_ext = unsafe extern "C" fn(opts: *mut spdk_log_opts);
pub type spdk_log_enable_timestamps = unsafe extern "C" fn(value: bool);
pub type spdk_log_set_level = unsafe extern "C" fn(level: spdk_log_level);
pub type spdk_log_get_level = unsafe extern "C" fn() -> spdk_log_level;
pub type spdk_log_set_print_level = unsafe extern "C" fn(level: spdk_log_level);
pub type spdk_log_get_print_level = unsafe extern "C" fn() -> spdk_log_level;
pub type spdk_log_to_syslog_level = unsafe extern "C" fn(level: spdk_log_level) -> ::core::ffi::c_int;
pub type spdk_log = unsafe extern "C" fn(level: spdk_log_level, file: *const ::core::ffi::c_char, line: ::core::ffi::c_int, func: *const ::core::ffi::c_char, format: *const ::core::ffi::c_char, ... );
pub type spdk_log_register_flag = unsafe extern "C" fn(name: *const ::core::ffi::c_char, flag: *mut spdk_log_flag);
pub type spdk_log_get_first_flag = unsafe extern "C" fn() -> *mut spdk_log_flag;
pub type spdk_log_get_next_flag = unsafe extern "C" fn(flag: *mut spdk_log_flag) -> *mut spdk_log_flag;
pub type spdk_log_get_flag = unsafe extern "C" fn(flag: *const ::core::ffi::c_char) -> bool;
pub type spdk_log_set_flag = unsafe extern "C" fn(flag: *const ::core::ffi::c_char) -> ::core::ffi::c_int;
pub type spdk_log_clear_flag = unsafe extern "C" fn(flag: *const ::core::ffi::c_char) -> ::core::ffi::c_int;
pub type spdk_cpuset_alloc = unsafe extern "C" fn() -> *mut spdk_cpuset;
pub type spdk_cpuset_free = unsafe extern "C" fn(set: *mut spdk_cpuset);
pub type spdk_cpuset_equal = unsafe extern "C" fn(set1: *const spdk_cpuset, set2: *const spdk_cpuset) -> bool;
pub type spdk_cpuset_and = unsafe extern "C" fn(dst: *mut spdk_cpuset, src: *const spdk_cpuset);
pub type spdk_cpuset_xor = unsafe extern "C" fn(dst: *mut spdk_cpuset, src: *const spdk_cpuset);
pub type spdk_cpuset_negate = unsafe extern "C" fn(set: *mut spdk_cpuset);
pub type spdk_cpuset_set_cpu = unsafe extern "C" fn(set: *mut spdk_cpuset, cpu: u32, state: bool);
pub type spdk_cpuset_get_cpu = unsafe extern "C" fn(set: *const spdk_cpuset, cpu: u32) -> bool;
pub type spdk_cpuset_count = unsafe extern "C" fn(set: *const spdk_cpuset) -> u32;
pub type spdk_cpuset_fmt = unsafe extern "C" fn(set: *mut spdk_cpuset) -> *const ::core::ffi::c_char;
pub type spdk_cpuset_parse = unsafe extern "C" fn(set: *mut spdk_cpuset, mask: *const ::core::ffi::c_char) -> ::core::ffi::c_int;
