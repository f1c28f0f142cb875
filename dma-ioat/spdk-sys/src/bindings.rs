//! The declarations of the headers in `include/`, by the names that they have there.
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

pub type FILE = ::core::ffi::c_void;
/// A `va_list`, as parameter: on the common processors, the address of one.
pub type __va_list_tag = ::core::ffi::c_void;

pub const SPDK_PCI_ANY_ID: u32 = 65535;
pub const SPDK_PCI_CLASS_ANY_ID: u32 = 16777215;
pub const SPDK_PCI_VID_INTEL: u32 = 32902;
pub const SPDK_PCI_VID_AMD: u32 = 4130;
pub const SPDK_PCI_VID_MEMBLAZE: u32 = 7263;
pub const SPDK_PCI_VID_SAMSUNG: u32 = 5197;
pub const SPDK_PCI_VID_VIRTUALBOX: u32 = 33006;
pub const SPDK_PCI_VID_VIRTIO: u32 = 6900;
pub const SPDK_PCI_VID_CNEXLABS: u32 = 7453;
pub const SPDK_PCI_VID_VMWARE: u32 = 5549;
pub const SPDK_PCI_VID_REDHAT: u32 = 6966;
pub const SPDK_PCI_VID_NUTANIX: u32 = 20056;
pub const SPDK_PCI_VID_HUAWEI: u32 = 6629;
pub const SPDK_PCI_VID_MICROSOFT: u32 = 5140;
pub const SPDK_PCI_VID_MICRON: u32 = 4932;
pub const SPDK_PCI_CLASS_NVME: u32 = 67586;
pub const SPDK_ENV_NUMA_ID_ANY: i32 = -1;
pub const SPDK_ENV_SOCKET_ID_ANY: i32 = -1;
pub const SPDK_ENV_LCORE_ID_ANY: u32 = 4294967295;
pub const SPDK_MALLOC_DMA: u32 = 1;
pub const SPDK_MALLOC_SHARE: u32 = 2;
pub const SPDK_VTOPHYS_ERROR: i32 = -1;
pub const SPDK_MAX_MEMZONE_NAME_LEN: u32 = 32;
pub const SPDK_MEMZONE_NO_IOVA_CONTIG: u32 = 1048576;
pub const SPDK_MAX_MEMPOOL_NAME_LEN: u32 = 29;
pub const SPDK_MEMPOOL_DEFAULT_CACHE_SIZE: i32 = -1;
pub const SPDK_PCI_DRIVER_NEED_MAPPING: u32 = 1;
pub const SPDK_PCI_DRIVER_WC_ACTIVATE: u32 = 2;
pub const SPDK_CPUSET_SIZE: u32 = 1024;
pub const SPDK_VERSION_MAJOR: u32 = 26;
pub const SPDK_VERSION_MINOR: u32 = 9;
pub const SPDK_VERSION_PATCH: u32 = 0;
pub const SPDK_VERSION_SUFFIX: &[u8; 5] = b"-emu\0";
pub const SPDK_VERSION_MAJOR_STRING: &[u8; 3] = b"26\0";
pub const SPDK_VERSION_MINOR_STRING: &[u8; 4] = b".09\0";
pub const SPDK_VERSION_PATCH_STRING: &[u8; 1] = b"\0";
pub const SPDK_VERSION_STRING: &[u8; 16] = b"SPDK v26.09-emu\0";
#[repr(C)]
#[derive(Debug)]
pub struct _IO_marker {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct _IO_codecvt {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct _IO_wide_data {
    _unused: [u8; 0],
}
pub type _IO_lock_t = ::core::ffi::c_void;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_pci_addr {
    pub domain: u32,
    pub bus: u8,
    pub dev: u8,
    pub func: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_pci_addr"][::core::mem::size_of::<spdk_pci_addr>() - 8usize];
    ["Alignment of spdk_pci_addr"][::core::mem::align_of::<spdk_pci_addr>() - 4usize];
    ["Offset of field: spdk_pci_addr::domain"][::core::mem::offset_of!(spdk_pci_addr, domain) - 0usize];
    ["Offset of field: spdk_pci_addr::bus"][::core::mem::offset_of!(spdk_pci_addr, bus) - 4usize];
    ["Offset of field: spdk_pci_addr::dev"][::core::mem::offset_of!(spdk_pci_addr, dev) - 5usize];
    ["Offset of field: spdk_pci_addr::func"][::core::mem::offset_of!(spdk_pci_addr, func) - 6usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_env_opts {
    pub name: *const ::core::ffi::c_char,
    pub core_mask: *const ::core::ffi::c_char,
    pub lcore_map: *const ::core::ffi::c_char,
    pub shm_id: ::core::ffi::c_int,
    pub mem_channel: ::core::ffi::c_int,
    pub main_core: ::core::ffi::c_int,
    pub mem_size: ::core::ffi::c_int,
    pub no_pci: bool,
    pub hugepage_single_segments: bool,
    pub unlink_hugepage: bool,
    pub no_huge: bool,
    pub reserved: u32,
    pub num_pci_addr: usize,
    pub hugedir: *const ::core::ffi::c_char,
    pub pci_blocked: *mut spdk_pci_addr,
    pub pci_allowed: *mut spdk_pci_addr,
    pub iova_mode: *const ::core::ffi::c_char,
    pub base_virtaddr: u64,
    pub env_context: *mut ::core::ffi::c_void,
    pub vf_token: *const ::core::ffi::c_char,
    pub opts_size: usize,
    pub enforce_numa: bool,
    pub reserved2: [u8; 7usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_env_opts"][::core::mem::size_of::<spdk_env_opts>() - 128usize];
    ["Alignment of spdk_env_opts"][::core::mem::align_of::<spdk_env_opts>() - 8usize];
    ["Offset of field: spdk_env_opts::name"][::core::mem::offset_of!(spdk_env_opts, name) - 0usize];
    ["Offset of field: spdk_env_opts::core_mask"][::core::mem::offset_of!(spdk_env_opts, core_mask) - 8usize];
    ["Offset of field: spdk_env_opts::lcore_map"]
        [::core::mem::offset_of!(spdk_env_opts, lcore_map) - 16usize];
    ["Offset of field: spdk_env_opts::shm_id"][::core::mem::offset_of!(spdk_env_opts, shm_id) - 24usize];
    ["Offset of field: spdk_env_opts::mem_channel"]
        [::core::mem::offset_of!(spdk_env_opts, mem_channel) - 28usize];
    ["Offset of field: spdk_env_opts::main_core"]
        [::core::mem::offset_of!(spdk_env_opts, main_core) - 32usize];
    ["Offset of field: spdk_env_opts::mem_size"][::core::mem::offset_of!(spdk_env_opts, mem_size) - 36usize];
    ["Offset of field: spdk_env_opts::no_pci"][::core::mem::offset_of!(spdk_env_opts, no_pci) - 40usize];
    ["Offset of field: spdk_env_opts::hugepage_single_segments"]
        [::core::mem::offset_of!(spdk_env_opts, hugepage_single_segments) - 41usize];
    ["Offset of field: spdk_env_opts::unlink_hugepage"]
        [::core::mem::offset_of!(spdk_env_opts, unlink_hugepage) - 42usize];
    ["Offset of field: spdk_env_opts::no_huge"][::core::mem::offset_of!(spdk_env_opts, no_huge) - 43usize];
    ["Offset of field: spdk_env_opts::reserved"][::core::mem::offset_of!(spdk_env_opts, reserved) - 44usize];
    ["Offset of field: spdk_env_opts::num_pci_addr"]
        [::core::mem::offset_of!(spdk_env_opts, num_pci_addr) - 48usize];
    ["Offset of field: spdk_env_opts::hugedir"][::core::mem::offset_of!(spdk_env_opts, hugedir) - 56usize];
    ["Offset of field: spdk_env_opts::pci_blocked"]
        [::core::mem::offset_of!(spdk_env_opts, pci_blocked) - 64usize];
    ["Offset of field: spdk_env_opts::pci_allowed"]
        [::core::mem::offset_of!(spdk_env_opts, pci_allowed) - 72usize];
    ["Offset of field: spdk_env_opts::iova_mode"]
        [::core::mem::offset_of!(spdk_env_opts, iova_mode) - 80usize];
    ["Offset of field: spdk_env_opts::base_virtaddr"]
        [::core::mem::offset_of!(spdk_env_opts, base_virtaddr) - 88usize];
    ["Offset of field: spdk_env_opts::env_context"]
        [::core::mem::offset_of!(spdk_env_opts, env_context) - 96usize];
    ["Offset of field: spdk_env_opts::vf_token"][::core::mem::offset_of!(spdk_env_opts, vf_token) - 104usize];
    ["Offset of field: spdk_env_opts::opts_size"]
        [::core::mem::offset_of!(spdk_env_opts, opts_size) - 112usize];
    ["Offset of field: spdk_env_opts::enforce_numa"]
        [::core::mem::offset_of!(spdk_env_opts, enforce_numa) - 120usize];
    ["Offset of field: spdk_env_opts::reserved2"]
        [::core::mem::offset_of!(spdk_env_opts, reserved2) - 121usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct spdk_mem_map {
    _unused: [u8; 0],
}
pub const SPDK_MEM_MAP_NOTIFY_REGISTER: spdk_mem_map_notify_action = 0;
pub const SPDK_MEM_MAP_NOTIFY_UNREGISTER: spdk_mem_map_notify_action = 1;
pub type spdk_mem_map_notify_action = ::core::ffi::c_uint;
pub type spdk_mem_map_notify_cb = ::core::option::Option<
    unsafe extern "C" fn(
        cb_ctx: *mut ::core::ffi::c_void,
        map: *mut spdk_mem_map,
        action: spdk_mem_map_notify_action,
        vaddr: *mut ::core::ffi::c_void,
        size: usize,
    ) -> ::core::ffi::c_int,
>;
pub type spdk_mem_map_contiguous_translations =
    ::core::option::Option<unsafe extern "C" fn(addr_1: u64, addr_2: u64) -> ::core::ffi::c_int>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_mem_map_ops {
    pub notify_cb: spdk_mem_map_notify_cb,
    pub are_contiguous: spdk_mem_map_contiguous_translations,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_mem_map_ops"][::core::mem::size_of::<spdk_mem_map_ops>() - 16usize];
    ["Alignment of spdk_mem_map_ops"][::core::mem::align_of::<spdk_mem_map_ops>() - 8usize];
    ["Offset of field: spdk_mem_map_ops::notify_cb"]
        [::core::mem::offset_of!(spdk_mem_map_ops, notify_cb) - 0usize];
    ["Offset of field: spdk_mem_map_ops::are_contiguous"]
        [::core::mem::offset_of!(spdk_mem_map_ops, are_contiguous) - 8usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct spdk_mempool {
    _unused: [u8; 0],
}
pub type spdk_mempool_obj_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        mp: *mut spdk_mempool,
        opaque: *mut ::core::ffi::c_void,
        obj: *mut ::core::ffi::c_void,
        obj_idx: ::core::ffi::c_uint,
    ),
>;
pub type spdk_mempool_mem_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        mp: *mut spdk_mempool,
        opaque: *mut ::core::ffi::c_void,
        addr: *mut ::core::ffi::c_void,
        iova: u64,
        len: usize,
        mem_idx: ::core::ffi::c_uint,
    ),
>;
#[repr(C)]
#[derive(Debug)]
pub struct spdk_ring {
    _unused: [u8; 0],
}
pub const SPDK_RING_TYPE_SP_SC: spdk_ring_type = 0;
pub const SPDK_RING_TYPE_MP_SC: spdk_ring_type = 1;
pub const SPDK_RING_TYPE_MP_MC: spdk_ring_type = 2;
pub type spdk_ring_type = ::core::ffi::c_uint;
pub type thread_start_fn =
    ::core::option::Option<unsafe extern "C" fn(arg1: *mut ::core::ffi::c_void) -> ::core::ffi::c_int>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_pci_id {
    pub class_id: u32,
    pub vendor_id: u16,
    pub device_id: u16,
    pub subvendor_id: u16,
    pub subdevice_id: u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_pci_id"][::core::mem::size_of::<spdk_pci_id>() - 12usize];
    ["Alignment of spdk_pci_id"][::core::mem::align_of::<spdk_pci_id>() - 4usize];
    ["Offset of field: spdk_pci_id::class_id"][::core::mem::offset_of!(spdk_pci_id, class_id) - 0usize];
    ["Offset of field: spdk_pci_id::vendor_id"][::core::mem::offset_of!(spdk_pci_id, vendor_id) - 4usize];
    ["Offset of field: spdk_pci_id::device_id"][::core::mem::offset_of!(spdk_pci_id, device_id) - 6usize];
    ["Offset of field: spdk_pci_id::subvendor_id"]
        [::core::mem::offset_of!(spdk_pci_id, subvendor_id) - 8usize];
    ["Offset of field: spdk_pci_id::subdevice_id"]
        [::core::mem::offset_of!(spdk_pci_id, subdevice_id) - 10usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct spdk_pci_driver {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct spdk_pci_device {
    pub parent: *mut spdk_pci_device,
    pub dev_handle: *mut ::core::ffi::c_void,
    pub addr: spdk_pci_addr,
    pub id: spdk_pci_id,
    pub __bindgen_anon_1: spdk_pci_device__bindgen_ty_1,
    pub type_: *const ::core::ffi::c_char,
    pub map_bar: ::core::option::Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            bar: u32,
            mapped_addr: *mut *mut ::core::ffi::c_void,
            phys_addr: *mut u64,
            size: *mut u64,
        ) -> ::core::ffi::c_int,
    >,
    pub unmap_bar: ::core::option::Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            bar: u32,
            addr: *mut ::core::ffi::c_void,
        ) -> ::core::ffi::c_int,
    >,
    pub cfg_read: ::core::option::Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            value: *mut ::core::ffi::c_void,
            len: u32,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    pub cfg_write: ::core::option::Option<
        unsafe extern "C" fn(
            dev: *mut spdk_pci_device,
            value: *mut ::core::ffi::c_void,
            len: u32,
            offset: u32,
        ) -> ::core::ffi::c_int,
    >,
    pub internal: spdk_pci_device__spdk_pci_device_internal,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union spdk_pci_device__bindgen_ty_1 {
    pub numa_id: ::core::ffi::c_int,
    pub socket_id: ::core::ffi::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_pci_device__bindgen_ty_1"]
        [::core::mem::size_of::<spdk_pci_device__bindgen_ty_1>() - 4usize];
    ["Alignment of spdk_pci_device__bindgen_ty_1"]
        [::core::mem::align_of::<spdk_pci_device__bindgen_ty_1>() - 4usize];
    ["Offset of field: spdk_pci_device__bindgen_ty_1::numa_id"]
        [::core::mem::offset_of!(spdk_pci_device__bindgen_ty_1, numa_id) - 0usize];
    ["Offset of field: spdk_pci_device__bindgen_ty_1::socket_id"]
        [::core::mem::offset_of!(spdk_pci_device__bindgen_ty_1, socket_id) - 0usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_pci_device__spdk_pci_device_internal {
    pub driver: *mut spdk_pci_driver,
    pub attached: bool,
    pub claim_fd: ::core::ffi::c_int,
    pub pending_removal: bool,
    pub removed: bool,
    pub tailq: spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1 {
    pub tqe_next: *mut spdk_pci_device,
    pub tqe_prev: *mut *mut spdk_pci_device,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1"]
        [::core::mem::size_of::<spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1>() - 16usize];
    ["Alignment of spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1"]
        [::core::mem::align_of::<spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1>() - 8usize];
    ["Offset of field: spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1::tqe_next"]
        [::core::mem::offset_of!(spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1, tqe_next) - 0usize];
    ["Offset of field: spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1::tqe_prev"]
        [::core::mem::offset_of!(spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1, tqe_prev) - 8usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_pci_device__spdk_pci_device_internal"]
        [::core::mem::size_of::<spdk_pci_device__spdk_pci_device_internal>() - 40usize];
    ["Alignment of spdk_pci_device__spdk_pci_device_internal"]
        [::core::mem::align_of::<spdk_pci_device__spdk_pci_device_internal>() - 8usize];
    ["Offset of field: spdk_pci_device__spdk_pci_device_internal::driver"]
        [::core::mem::offset_of!(spdk_pci_device__spdk_pci_device_internal, driver) - 0usize];
    ["Offset of field: spdk_pci_device__spdk_pci_device_internal::attached"]
        [::core::mem::offset_of!(spdk_pci_device__spdk_pci_device_internal, attached) - 8usize];
    ["Offset of field: spdk_pci_device__spdk_pci_device_internal::claim_fd"]
        [::core::mem::offset_of!(spdk_pci_device__spdk_pci_device_internal, claim_fd) - 12usize];
    ["Offset of field: spdk_pci_device__spdk_pci_device_internal::pending_removal"]
        [::core::mem::offset_of!(spdk_pci_device__spdk_pci_device_internal, pending_removal) - 16usize];
    ["Offset of field: spdk_pci_device__spdk_pci_device_internal::removed"]
        [::core::mem::offset_of!(spdk_pci_device__spdk_pci_device_internal, removed) - 17usize];
    ["Offset of field: spdk_pci_device__spdk_pci_device_internal::tailq"]
        [::core::mem::offset_of!(spdk_pci_device__spdk_pci_device_internal, tailq) - 24usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_pci_device"][::core::mem::size_of::<spdk_pci_device>() - 120usize];
    ["Alignment of spdk_pci_device"][::core::mem::align_of::<spdk_pci_device>() - 8usize];
    ["Offset of field: spdk_pci_device::parent"][::core::mem::offset_of!(spdk_pci_device, parent) - 0usize];
    ["Offset of field: spdk_pci_device::dev_handle"]
        [::core::mem::offset_of!(spdk_pci_device, dev_handle) - 8usize];
    ["Offset of field: spdk_pci_device::addr"][::core::mem::offset_of!(spdk_pci_device, addr) - 16usize];
    ["Offset of field: spdk_pci_device::id"][::core::mem::offset_of!(spdk_pci_device, id) - 24usize];
    ["Offset of field: spdk_pci_device::type_"][::core::mem::offset_of!(spdk_pci_device, type_) - 40usize];
    ["Offset of field: spdk_pci_device::map_bar"]
        [::core::mem::offset_of!(spdk_pci_device, map_bar) - 48usize];
    ["Offset of field: spdk_pci_device::unmap_bar"]
        [::core::mem::offset_of!(spdk_pci_device, unmap_bar) - 56usize];
    ["Offset of field: spdk_pci_device::cfg_read"]
        [::core::mem::offset_of!(spdk_pci_device, cfg_read) - 64usize];
    ["Offset of field: spdk_pci_device::cfg_write"]
        [::core::mem::offset_of!(spdk_pci_device, cfg_write) - 72usize];
    ["Offset of field: spdk_pci_device::internal"]
        [::core::mem::offset_of!(spdk_pci_device, internal) - 80usize];
};
pub type spdk_pci_enum_cb = ::core::option::Option<
    unsafe extern "C" fn(enum_ctx: *mut ::core::ffi::c_void, dev: *mut spdk_pci_device) -> ::core::ffi::c_int,
>;
#[repr(C)]
#[derive(Debug)]
pub struct spdk_ioat_chan {
    _unused: [u8; 0],
}
pub const SPDK_IOAT_ENGINE_COPY_SUPPORTED: spdk_ioat_dma_capability_flags = 1;
pub const SPDK_IOAT_ENGINE_FILL_SUPPORTED: spdk_ioat_dma_capability_flags = 2;
pub type spdk_ioat_dma_capability_flags = ::core::ffi::c_uint;
pub type spdk_ioat_req_cb = ::core::option::Option<unsafe extern "C" fn(arg: *mut ::core::ffi::c_void)>;
pub type spdk_ioat_probe_cb = ::core::option::Option<
    unsafe extern "C" fn(cb_ctx: *mut ::core::ffi::c_void, pci_dev: *mut spdk_pci_device) -> bool,
>;
pub type spdk_ioat_attach_cb = ::core::option::Option<
    unsafe extern "C" fn(
        cb_ctx: *mut ::core::ffi::c_void,
        pci_dev: *mut spdk_pci_device,
        ioat: *mut spdk_ioat_chan,
    ),
>;
pub const SPDK_LOG_DISABLED: spdk_log_level = -1;
pub const SPDK_LOG_ERROR: spdk_log_level = 0;
pub const SPDK_LOG_WARN: spdk_log_level = 1;
pub const SPDK_LOG_NOTICE: spdk_log_level = 2;
pub const SPDK_LOG_INFO: spdk_log_level = 3;
pub const SPDK_LOG_DEBUG: spdk_log_level = 4;
pub type spdk_log_level = ::core::ffi::c_int;
pub type spdk_log_cb = ::core::option::Option<
    unsafe extern "C" fn(
        level: ::core::ffi::c_int,
        file: *const ::core::ffi::c_char,
        line: ::core::ffi::c_int,
        func: *const ::core::ffi::c_char,
        format: *const ::core::ffi::c_char,
        args: *mut __va_list_tag,
    ),
>;
pub type spdk_log_open_cb = ::core::option::Option<unsafe extern "C" fn(ctx: *mut ::core::ffi::c_void)>;
pub type spdk_log_close_cb = ::core::option::Option<unsafe extern "C" fn(ctx: *mut ::core::ffi::c_void)>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_log_opts {
    pub size: usize,
    pub log: spdk_log_cb,
    pub open: spdk_log_open_cb,
    pub close: spdk_log_close_cb,
    pub user_ctx: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_log_opts"][::core::mem::size_of::<spdk_log_opts>() - 40usize];
    ["Alignment of spdk_log_opts"][::core::mem::align_of::<spdk_log_opts>() - 8usize];
    ["Offset of field: spdk_log_opts::size"][::core::mem::offset_of!(spdk_log_opts, size) - 0usize];
    ["Offset of field: spdk_log_opts::log"][::core::mem::offset_of!(spdk_log_opts, log) - 8usize];
    ["Offset of field: spdk_log_opts::open"][::core::mem::offset_of!(spdk_log_opts, open) - 16usize];
    ["Offset of field: spdk_log_opts::close"][::core::mem::offset_of!(spdk_log_opts, close) - 24usize];
    ["Offset of field: spdk_log_opts::user_ctx"][::core::mem::offset_of!(spdk_log_opts, user_ctx) - 32usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_log_flag {
    pub tailq: spdk_log_flag__bindgen_ty_1,
    pub name: *const ::core::ffi::c_char,
    pub enabled: bool,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_log_flag__bindgen_ty_1 {
    pub tqe_next: *mut spdk_log_flag,
    pub tqe_prev: *mut *mut spdk_log_flag,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_log_flag__bindgen_ty_1"][::core::mem::size_of::<spdk_log_flag__bindgen_ty_1>() - 16usize];
    ["Alignment of spdk_log_flag__bindgen_ty_1"]
        [::core::mem::align_of::<spdk_log_flag__bindgen_ty_1>() - 8usize];
    ["Offset of field: spdk_log_flag__bindgen_ty_1::tqe_next"]
        [::core::mem::offset_of!(spdk_log_flag__bindgen_ty_1, tqe_next) - 0usize];
    ["Offset of field: spdk_log_flag__bindgen_ty_1::tqe_prev"]
        [::core::mem::offset_of!(spdk_log_flag__bindgen_ty_1, tqe_prev) - 8usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_log_flag"][::core::mem::size_of::<spdk_log_flag>() - 32usize];
    ["Alignment of spdk_log_flag"][::core::mem::align_of::<spdk_log_flag>() - 8usize];
    ["Offset of field: spdk_log_flag::tailq"][::core::mem::offset_of!(spdk_log_flag, tailq) - 0usize];
    ["Offset of field: spdk_log_flag::name"][::core::mem::offset_of!(spdk_log_flag, name) - 16usize];
    ["Offset of field: spdk_log_flag::enabled"][::core::mem::offset_of!(spdk_log_flag, enabled) - 24usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spdk_cpuset {
    pub str_: [::core::ffi::c_char; 257usize],
    pub cpus: [u8; 128usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spdk_cpuset"][::core::mem::size_of::<spdk_cpuset>() - 385usize];
    ["Alignment of spdk_cpuset"][::core::mem::align_of::<spdk_cpuset>() - 1usize];
    ["Offset of field: spdk_cpuset::str_"][::core::mem::offset_of!(spdk_cpuset, str_) - 0usize];
    ["Offset of field: spdk_cpuset::cpus"][::core::mem::offset_of!(spdk_cpuset, cpus) - 257usize];
};
unsafe extern "C" {
    pub fn spdk_env_opts_init(opts: *mut spdk_env_opts);
    pub fn spdk_env_init(opts: *const spdk_env_opts) -> ::core::ffi::c_int;
    pub fn spdk_env_fini();
    pub fn spdk_process_is_primary() -> bool;
    pub fn spdk_malloc(
        size: usize,
        align: usize,
        unused: *mut u64,
        numa_id: ::core::ffi::c_int,
        flags: u32,
    ) -> *mut ::core::ffi::c_void;
    pub fn spdk_zmalloc(
        size: usize,
        align: usize,
        unused: *mut u64,
        numa_id: ::core::ffi::c_int,
        flags: u32,
    ) -> *mut ::core::ffi::c_void;
    pub fn spdk_realloc(buf: *mut ::core::ffi::c_void, size: usize, align: usize)
    -> *mut ::core::ffi::c_void;
    pub fn spdk_free(buf: *mut ::core::ffi::c_void);
    pub fn spdk_dma_malloc(size: usize, align: usize, unused: *mut u64) -> *mut ::core::ffi::c_void;
    pub fn spdk_dma_malloc_socket(
        size: usize,
        align: usize,
        unused: *mut u64,
        numa_id: ::core::ffi::c_int,
    ) -> *mut ::core::ffi::c_void;
    pub fn spdk_dma_zmalloc(size: usize, align: usize, unused: *mut u64) -> *mut ::core::ffi::c_void;
    pub fn spdk_dma_zmalloc_socket(
        size: usize,
        align: usize,
        unused: *mut u64,
        numa_id: ::core::ffi::c_int,
    ) -> *mut ::core::ffi::c_void;
    pub fn spdk_dma_free(buf: *mut ::core::ffi::c_void);
    pub fn spdk_vtophys(buf: *const ::core::ffi::c_void, size: *mut u64) -> u64;
    pub fn spdk_iommu_is_enabled() -> bool;
    pub fn spdk_mem_register(vaddr: *mut ::core::ffi::c_void, len: usize) -> ::core::ffi::c_int;
    pub fn spdk_mem_unregister(vaddr: *mut ::core::ffi::c_void, len: usize) -> ::core::ffi::c_int;
    pub fn spdk_mem_reserve(vaddr: *mut ::core::ffi::c_void, len: usize) -> ::core::ffi::c_int;
    pub fn spdk_mem_get_numa_id(buf: *const ::core::ffi::c_void, size: *mut u64) -> i32;
    pub fn spdk_mem_get_fd_and_offset(
        vaddr: *mut ::core::ffi::c_void,
        offset: *mut u64,
    ) -> ::core::ffi::c_int;
    pub fn spdk_mem_map_alloc(
        default_translation: u64,
        ops: *const spdk_mem_map_ops,
        cb_ctx: *mut ::core::ffi::c_void,
    ) -> *mut spdk_mem_map;
    pub fn spdk_mem_map_free(pmap: *mut *mut spdk_mem_map);
    pub fn spdk_mem_map_set_translation(
        map: *mut spdk_mem_map,
        vaddr: u64,
        size: u64,
        translation: u64,
    ) -> ::core::ffi::c_int;
    pub fn spdk_mem_map_clear_translation(
        map: *mut spdk_mem_map,
        vaddr: u64,
        size: u64,
    ) -> ::core::ffi::c_int;
    pub fn spdk_mem_map_translate(map: *const spdk_mem_map, vaddr: u64, size: *mut u64) -> u64;
    pub fn spdk_memzone_reserve(
        name: *const ::core::ffi::c_char,
        len: usize,
        numa_id: ::core::ffi::c_int,
        flags: ::core::ffi::c_uint,
    ) -> *mut ::core::ffi::c_void;
    pub fn spdk_memzone_reserve_aligned(
        name: *const ::core::ffi::c_char,
        len: usize,
        numa_id: ::core::ffi::c_int,
        flags: ::core::ffi::c_uint,
        align: ::core::ffi::c_uint,
    ) -> *mut ::core::ffi::c_void;
    pub fn spdk_memzone_lookup(name: *const ::core::ffi::c_char) -> *mut ::core::ffi::c_void;
    pub fn spdk_memzone_free(name: *const ::core::ffi::c_char) -> ::core::ffi::c_int;
    pub fn spdk_memzone_dump(f: *mut FILE);
    pub fn spdk_mempool_create(
        name: *const ::core::ffi::c_char,
        count: usize,
        ele_size: usize,
        cache_size: usize,
        numa_id: ::core::ffi::c_int,
    ) -> *mut spdk_mempool;
    pub fn spdk_mempool_create_ctor(
        name: *const ::core::ffi::c_char,
        count: usize,
        ele_size: usize,
        cache_size: usize,
        numa_id: ::core::ffi::c_int,
        obj_init: spdk_mempool_obj_cb_t,
        obj_init_arg: *mut ::core::ffi::c_void,
    ) -> *mut spdk_mempool;
    pub fn spdk_mempool_lookup(name: *const ::core::ffi::c_char) -> *mut spdk_mempool;
    pub fn spdk_mempool_get_name(mp: *mut spdk_mempool) -> *mut ::core::ffi::c_char;
    pub fn spdk_mempool_free(mp: *mut spdk_mempool);
    pub fn spdk_mempool_get(mp: *mut spdk_mempool) -> *mut ::core::ffi::c_void;
    pub fn spdk_mempool_get_bulk(
        mp: *mut spdk_mempool,
        ele_arr: *mut *mut ::core::ffi::c_void,
        count: usize,
    ) -> ::core::ffi::c_int;
    pub fn spdk_mempool_put(mp: *mut spdk_mempool, ele: *mut ::core::ffi::c_void);
    pub fn spdk_mempool_put_bulk(mp: *mut spdk_mempool, ele_arr: *mut *mut ::core::ffi::c_void, count: usize);
    pub fn spdk_mempool_count(pool: *const spdk_mempool) -> usize;
    pub fn spdk_mempool_obj_iter(
        mp: *mut spdk_mempool,
        obj_cb: spdk_mempool_obj_cb_t,
        obj_cb_arg: *mut ::core::ffi::c_void,
    ) -> u32;
    pub fn spdk_mempool_mem_iter(
        mp: *mut spdk_mempool,
        mem_cb: spdk_mempool_mem_cb_t,
        mem_cb_arg: *mut ::core::ffi::c_void,
    ) -> u32;
    pub fn spdk_ring_create(
        type_: spdk_ring_type,
        count: usize,
        numa_id: ::core::ffi::c_int,
    ) -> *mut spdk_ring;
    pub fn spdk_ring_free(ring: *mut spdk_ring);
    pub fn spdk_ring_count(ring: *mut spdk_ring) -> usize;
    pub fn spdk_ring_enqueue(
        ring: *mut spdk_ring,
        objs: *mut *mut ::core::ffi::c_void,
        count: usize,
        free_space: *mut usize,
    ) -> usize;
    pub fn spdk_ring_dequeue(
        ring: *mut spdk_ring,
        objs: *mut *mut ::core::ffi::c_void,
        count: usize,
    ) -> usize;
    pub fn spdk_env_get_core_count() -> u32;
    pub fn spdk_env_get_current_core() -> u32;
    pub fn spdk_env_get_main_core() -> u32;
    pub fn spdk_env_get_first_core() -> u32;
    pub fn spdk_env_get_last_core() -> u32;
    pub fn spdk_env_get_next_core(prev_core: u32) -> u32;
    pub fn spdk_env_get_numa_id(core: u32) -> i32;
    pub fn spdk_env_get_first_numa_id() -> i32;
    pub fn spdk_env_get_last_numa_id() -> i32;
    pub fn spdk_env_get_next_numa_id(prev_numa_id: i32) -> i32;
    pub fn spdk_env_get_cpuset(cpuset: *mut spdk_cpuset);
    pub fn spdk_env_core_get_smt_cpuset(cpuset: *mut spdk_cpuset, core: u32) -> bool;
    pub fn spdk_env_thread_launch_pinned(
        core: u32,
        fn_: thread_start_fn,
        arg: *mut ::core::ffi::c_void,
    ) -> ::core::ffi::c_int;
    pub fn spdk_env_thread_wait_all();
    pub fn spdk_unaffinitize_thread();
    pub fn spdk_call_unaffinitized(
        cb: ::core::option::Option<
            unsafe extern "C" fn(arg: *mut ::core::ffi::c_void) -> *mut ::core::ffi::c_void,
        >,
        arg: *mut ::core::ffi::c_void,
    ) -> *mut ::core::ffi::c_void;
    pub fn spdk_get_tid() -> ::core::ffi::c_int;
    pub fn spdk_get_ticks() -> u64;
    pub fn spdk_get_ticks_hz() -> u64;
    pub fn spdk_delay_us(us: ::core::ffi::c_uint);
    pub fn spdk_pci_driver_register(name: *const ::core::ffi::c_char, id_table: *mut spdk_pci_id, flags: u32);
    pub fn spdk_pci_get_driver(name: *const ::core::ffi::c_char) -> *mut spdk_pci_driver;
    pub fn spdk_pci_ioat_get_driver() -> *mut spdk_pci_driver;
    pub fn spdk_pci_enumerate(
        driver: *mut spdk_pci_driver,
        enum_cb: spdk_pci_enum_cb,
        enum_ctx: *mut ::core::ffi::c_void,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_for_each_device(
        ctx: *mut ::core::ffi::c_void,
        fn_: ::core::option::Option<
            unsafe extern "C" fn(ctx: *mut ::core::ffi::c_void, dev: *mut spdk_pci_device),
        >,
    );
    pub fn spdk_pci_device_attach(
        driver: *mut spdk_pci_driver,
        enum_cb: spdk_pci_enum_cb,
        enum_ctx: *mut ::core::ffi::c_void,
        pci_address: *mut spdk_pci_addr,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_detach(device: *mut spdk_pci_device);
    pub fn spdk_pci_device_allow(pci_addr: *mut spdk_pci_addr) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_claim(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_unclaim(dev: *mut spdk_pci_device);
    pub fn spdk_pci_device_is_removed(dev: *mut spdk_pci_device) -> bool;
    pub fn spdk_pci_device_map_bar(
        dev: *mut spdk_pci_device,
        bar: u32,
        mapped_addr: *mut *mut ::core::ffi::c_void,
        phys_addr: *mut u64,
        size: *mut u64,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_unmap_bar(
        dev: *mut spdk_pci_device,
        bar: u32,
        mapped_addr: *mut ::core::ffi::c_void,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_cfg_read(
        dev: *mut spdk_pci_device,
        buf: *mut ::core::ffi::c_void,
        len: u32,
        offset: u32,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_cfg_write(
        dev: *mut spdk_pci_device,
        buf: *mut ::core::ffi::c_void,
        len: u32,
        offset: u32,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_cfg_read8(
        dev: *mut spdk_pci_device,
        value: *mut u8,
        offset: u32,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_cfg_write8(
        dev: *mut spdk_pci_device,
        value: u8,
        offset: u32,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_cfg_read16(
        dev: *mut spdk_pci_device,
        value: *mut u16,
        offset: u32,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_cfg_write16(
        dev: *mut spdk_pci_device,
        value: u16,
        offset: u32,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_cfg_read32(
        dev: *mut spdk_pci_device,
        value: *mut u32,
        offset: u32,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_cfg_write32(
        dev: *mut spdk_pci_device,
        value: u32,
        offset: u32,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_get_domain(dev: *mut spdk_pci_device) -> u32;
    pub fn spdk_pci_device_get_bus(dev: *mut spdk_pci_device) -> u8;
    pub fn spdk_pci_device_get_dev(dev: *mut spdk_pci_device) -> u8;
    pub fn spdk_pci_device_get_func(dev: *mut spdk_pci_device) -> u8;
    pub fn spdk_pci_device_get_addr(dev: *mut spdk_pci_device) -> spdk_pci_addr;
    pub fn spdk_pci_device_get_vendor_id(dev: *mut spdk_pci_device) -> u16;
    pub fn spdk_pci_device_get_device_id(dev: *mut spdk_pci_device) -> u16;
    pub fn spdk_pci_device_get_subvendor_id(dev: *mut spdk_pci_device) -> u16;
    pub fn spdk_pci_device_get_subdevice_id(dev: *mut spdk_pci_device) -> u16;
    pub fn spdk_pci_device_get_id(dev: *mut spdk_pci_device) -> spdk_pci_id;
    pub fn spdk_pci_device_get_numa_id(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_get_serial_number(
        dev: *mut spdk_pci_device,
        sn: *mut ::core::ffi::c_char,
        len: usize,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_get_type(dev: *const spdk_pci_device) -> *const ::core::ffi::c_char;
    pub fn spdk_pci_addr_compare(a1: *const spdk_pci_addr, a2: *const spdk_pci_addr) -> ::core::ffi::c_int;
    pub fn spdk_pci_addr_parse(
        addr: *mut spdk_pci_addr,
        bdf: *const ::core::ffi::c_char,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_addr_fmt(
        bdf: *mut ::core::ffi::c_char,
        sz: usize,
        addr: *const spdk_pci_addr,
    ) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_enable_interrupt(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_disable_interrupt(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
    pub fn spdk_pci_device_get_interrupt_efd(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
    pub fn spdk_env_get_socket_id(core: u32) -> u32;
    pub fn spdk_pci_device_get_socket_id(dev: *mut spdk_pci_device) -> ::core::ffi::c_int;
    pub fn spdk_ioat_probe(
        cb_ctx: *mut ::core::ffi::c_void,
        probe_cb: spdk_ioat_probe_cb,
        attach_cb: spdk_ioat_attach_cb,
    ) -> ::core::ffi::c_int;
    pub fn spdk_ioat_detach(ioat: *mut spdk_ioat_chan);
    pub fn spdk_ioat_get_max_descriptors(chan: *mut spdk_ioat_chan) -> u32;
    pub fn spdk_ioat_get_dma_capabilities(chan: *mut spdk_ioat_chan) -> u32;
    pub fn spdk_ioat_build_copy(
        chan: *mut spdk_ioat_chan,
        cb_arg: *mut ::core::ffi::c_void,
        cb_fn: spdk_ioat_req_cb,
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        nbytes: u64,
    ) -> ::core::ffi::c_int;
    pub fn spdk_ioat_submit_copy(
        chan: *mut spdk_ioat_chan,
        cb_arg: *mut ::core::ffi::c_void,
        cb_fn: spdk_ioat_req_cb,
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        nbytes: u64,
    ) -> ::core::ffi::c_int;
    pub fn spdk_ioat_build_fill(
        chan: *mut spdk_ioat_chan,
        cb_arg: *mut ::core::ffi::c_void,
        cb_fn: spdk_ioat_req_cb,
        dst: *mut ::core::ffi::c_void,
        fill_pattern: u64,
        nbytes: u64,
    ) -> ::core::ffi::c_int;
    pub fn spdk_ioat_submit_fill(
        chan: *mut spdk_ioat_chan,
        cb_arg: *mut ::core::ffi::c_void,
        cb_fn: spdk_ioat_req_cb,
        dst: *mut ::core::ffi::c_void,
        fill_pattern: u64,
        nbytes: u64,
    ) -> ::core::ffi::c_int;
    pub fn spdk_ioat_flush(chan: *mut spdk_ioat_chan);
    pub fn spdk_ioat_process_events(chan: *mut spdk_ioat_chan) -> ::core::ffi::c_int;
    pub fn spdk_log_open(log: spdk_log_cb);
    pub fn spdk_log_open_ext(opts: *mut spdk_log_opts);
    pub fn spdk_log_enable_timestamps(value: bool);
    pub fn spdk_log_set_level(level: spdk_log_level);
    pub fn spdk_log_get_level() -> spdk_log_level;
    pub fn spdk_log_set_print_level(level: spdk_log_level);
    pub fn spdk_log_get_print_level() -> spdk_log_level;
    pub fn spdk_log_to_syslog_level(level: spdk_log_level) -> ::core::ffi::c_int;
    pub fn spdk_log(
        level: spdk_log_level,
        file: *const ::core::ffi::c_char,
        line: ::core::ffi::c_int,
        func: *const ::core::ffi::c_char,
        format: *const ::core::ffi::c_char,
        ...
    );
    pub fn spdk_log_register_flag(name: *const ::core::ffi::c_char, flag: *mut spdk_log_flag);
    pub fn spdk_log_get_first_flag() -> *mut spdk_log_flag;
    pub fn spdk_log_get_next_flag(flag: *mut spdk_log_flag) -> *mut spdk_log_flag;
    pub fn spdk_log_get_flag(flag: *const ::core::ffi::c_char) -> bool;
    pub fn spdk_log_set_flag(flag: *const ::core::ffi::c_char) -> ::core::ffi::c_int;
    pub fn spdk_log_clear_flag(flag: *const ::core::ffi::c_char) -> ::core::ffi::c_int;
    pub fn spdk_cpuset_alloc() -> *mut spdk_cpuset;
    pub fn spdk_cpuset_free(set: *mut spdk_cpuset);
    pub fn spdk_cpuset_equal(set1: *const spdk_cpuset, set2: *const spdk_cpuset) -> bool;
    pub fn spdk_cpuset_and(dst: *mut spdk_cpuset, src: *const spdk_cpuset);
    pub fn spdk_cpuset_xor(dst: *mut spdk_cpuset, src: *const spdk_cpuset);
    pub fn spdk_cpuset_negate(set: *mut spdk_cpuset);
    pub fn spdk_cpuset_set_cpu(set: *mut spdk_cpuset, cpu: u32, state: bool);
    pub fn spdk_cpuset_get_cpu(set: *const spdk_cpuset, cpu: u32) -> bool;
    pub fn spdk_cpuset_count(set: *const spdk_cpuset) -> u32;
    pub fn spdk_cpuset_fmt(set: *mut spdk_cpuset) -> *const ::core::ffi::c_char;
    pub fn spdk_cpuset_parse(set: *mut spdk_cpuset, mask: *const ::core::ffi::c_char) -> ::core::ffi::c_int;
}
