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



pub const DMA_ABI_VERSION: u32 = 0;
pub const DMA_OPEN_UNTRUSTED: u32 = 1;
pub const DMA_READ: u32 = 1;
pub const DMA_WRITE: u32 = 2;
pub const DMA_EXPORT_READ: u32 = 4;
pub const DMA_EXPORT_WRITE: u32 = 8;
pub const DMA_HUGE_PAGES: u32 = 1;
pub const DMA_ON_NODE: u32 = 2;
pub type dma_status = i32;
pub const DMA_OK: dma_status_code = 0;
pub const DMA_INVALID_ARGUMENT: dma_status_code = 1;
pub const DMA_OUT_OF_RANGE: dma_status_code = 2;
pub const DMA_LENGTH_MISMATCH: dma_status_code = 3;
pub const DMA_OVERLAP: dma_status_code = 4;
pub const DMA_ACCESS_DENIED: dma_status_code = 5;
pub const DMA_WRONG_ENGINE: dma_status_code = 6;
pub const DMA_UNSUPPORTED: dma_status_code = 7;
pub const DMA_QUEUE_FULL: dma_status_code = 8;
pub const DMA_IN_USE: dma_status_code = 9;
pub const DMA_OUT_OF_MEMORY: dma_status_code = 10;
pub const DMA_OUT_OF_RESOURCES: dma_status_code = 11;
pub const DMA_NOT_FOUND: dma_status_code = 12;
pub const DMA_PERMISSION_DENIED: dma_status_code = 13;
pub const DMA_TIMED_OUT: dma_status_code = 14;
pub const DMA_DEVICE_FAULT: dma_status_code = 15;
pub const DMA_ABORTED: dma_status_code = 16;
pub const DMA_DEVICE_LOST: dma_status_code = 17;
pub const DMA_REVOKED: dma_status_code = 18;
pub const DMA_CLOSED: dma_status_code = 19;
pub const DMA_MALFORMED: dma_status_code = 20;
pub const DMA_VERSION_MISMATCH: dma_status_code = 21;
pub const DMA_MISSING_SDK: dma_status_code = 22;
pub const DMA_OS: dma_status_code = 23;
pub const DMA_INTERNAL: dma_status_code = 255;
pub type dma_status_code = ::core::ffi::c_uint;
pub type dma_retry = i32;
pub const DMA_RETRY_NEVER: dma_retry_code = 0;
pub const DMA_RETRY_NOW: dma_retry_code = 1;
pub const DMA_RETRY_FEW_TIMES: dma_retry_code = 2;
pub const DMA_RETRY_AFTER_PROGRESS: dma_retry_code = 3;
pub const DMA_RETRY_LATER: dma_retry_code = 4;
pub type dma_retry_code = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_error {
    pub size: usize,
    pub status: dma_status,
    pub retry: dma_retry,
    pub native: i32,
    pub reserved: u32,
    pub requested: u64,
    pub limit: u64,
    pub text: *const ::core::ffi::c_char,
    pub remedy: *const ::core::ffi::c_char,
    pub native_name: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_error"][::core::mem::size_of::<dma_error>() - 64usize];
    ["Alignment of dma_error"][::core::mem::align_of::<dma_error>() - 8usize];
    ["Offset of field: dma_error::size"][::core::mem::offset_of!(dma_error, size) - 0usize];
    ["Offset of field: dma_error::status"][::core::mem::offset_of!(dma_error, status) - 8usize];
    ["Offset of field: dma_error::retry"][::core::mem::offset_of!(dma_error, retry) - 12usize];
    ["Offset of field: dma_error::native"][::core::mem::offset_of!(dma_error, native) - 16usize];
    ["Offset of field: dma_error::reserved"][::core::mem::offset_of!(dma_error, reserved) - 20usize];
    ["Offset of field: dma_error::requested"][::core::mem::offset_of!(dma_error, requested) - 24usize];
    ["Offset of field: dma_error::limit"][::core::mem::offset_of!(dma_error, limit) - 32usize];
    ["Offset of field: dma_error::text"][::core::mem::offset_of!(dma_error, text) - 40usize];
    ["Offset of field: dma_error::remedy"][::core::mem::offset_of!(dma_error, remedy) - 48usize];
    ["Offset of field: dma_error::native_name"][::core::mem::offset_of!(dma_error, native_name) - 56usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_failure {
    pub index: u64,
    pub status: dma_status,
    pub native: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_failure"][::core::mem::size_of::<dma_failure>() - 16usize];
    ["Alignment of dma_failure"][::core::mem::align_of::<dma_failure>() - 8usize];
    ["Offset of field: dma_failure::index"][::core::mem::offset_of!(dma_failure, index) - 0usize];
    ["Offset of field: dma_failure::status"][::core::mem::offset_of!(dma_failure, status) - 8usize];
    ["Offset of field: dma_failure::native"][::core::mem::offset_of!(dma_failure, native) - 12usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_engine {
    pub id: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_engine"][::core::mem::size_of::<dma_engine>() - 8usize];
    ["Alignment of dma_engine"][::core::mem::align_of::<dma_engine>() - 8usize];
    ["Offset of field: dma_engine::id"][::core::mem::offset_of!(dma_engine, id) - 0usize];
};
pub const DMA_CAN_FILL: dma_capability = 1;
pub const DMA_CAN_FENCE: dma_capability = 2;
pub const DMA_CAN_ALLOCATE: dma_capability = 4;
pub const DMA_CAN_REGISTER: dma_capability = 8;
pub const DMA_CAN_EXPORT: dma_capability = 16;
pub const DMA_CAN_IMPORT: dma_capability = 32;
pub const DMA_CAN_CPU_COPIES: dma_capability = 64;
pub const DMA_CAN_ALLOCATE_DEVICE: dma_capability = 128;
pub const DMA_CAN_IN_ORDER: dma_capability = 256;
pub const DMA_CAN_COMPARE: dma_capability = 512;
pub const DMA_CAN_CRC32C: dma_capability = 1024;
pub const DMA_CAN_COPY_CRC32C: dma_capability = 2048;
pub const DMA_CAN_COPY_TO_BOTH: dma_capability = 4096;
pub const DMA_CAN_REGISTER_DEVICE: dma_capability = 8192;
pub const DMA_CAN_REGISTER_DMABUF: dma_capability = 16384;
pub type dma_capability = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_engine_info {
    pub size: usize,
    pub backend: *const ::core::ffi::c_char,
    pub device: *const ::core::ffi::c_char,
    pub version: *const ::core::ffi::c_char,
    pub model: *const ::core::ffi::c_char,
    pub capabilities: u32,
    pub numa_node: i32,
    pub max_transfer: u64,
    pub max_segments: usize,
    pub max_queue_depth: usize,
    pub default_queue_depth: usize,
    pub max_queues: usize,
    pub register_alignment: usize,
    pub preferred_alignment: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_engine_info"][::core::mem::size_of::<dma_engine_info>() - 104usize];
    ["Alignment of dma_engine_info"][::core::mem::align_of::<dma_engine_info>() - 8usize];
    ["Offset of field: dma_engine_info::size"][::core::mem::offset_of!(dma_engine_info, size) - 0usize];
    ["Offset of field: dma_engine_info::backend"][::core::mem::offset_of!(dma_engine_info, backend) - 8usize];
    ["Offset of field: dma_engine_info::device"][::core::mem::offset_of!(dma_engine_info, device) - 16usize];
    ["Offset of field: dma_engine_info::version"]
        [::core::mem::offset_of!(dma_engine_info, version) - 24usize];
    ["Offset of field: dma_engine_info::model"][::core::mem::offset_of!(dma_engine_info, model) - 32usize];
    ["Offset of field: dma_engine_info::capabilities"]
        [::core::mem::offset_of!(dma_engine_info, capabilities) - 40usize];
    ["Offset of field: dma_engine_info::numa_node"]
        [::core::mem::offset_of!(dma_engine_info, numa_node) - 44usize];
    ["Offset of field: dma_engine_info::max_transfer"]
        [::core::mem::offset_of!(dma_engine_info, max_transfer) - 48usize];
    ["Offset of field: dma_engine_info::max_segments"]
        [::core::mem::offset_of!(dma_engine_info, max_segments) - 56usize];
    ["Offset of field: dma_engine_info::max_queue_depth"]
        [::core::mem::offset_of!(dma_engine_info, max_queue_depth) - 64usize];
    ["Offset of field: dma_engine_info::default_queue_depth"]
        [::core::mem::offset_of!(dma_engine_info, default_queue_depth) - 72usize];
    ["Offset of field: dma_engine_info::max_queues"]
        [::core::mem::offset_of!(dma_engine_info, max_queues) - 80usize];
    ["Offset of field: dma_engine_info::register_alignment"]
        [::core::mem::offset_of!(dma_engine_info, register_alignment) - 88usize];
    ["Offset of field: dma_engine_info::preferred_alignment"]
        [::core::mem::offset_of!(dma_engine_info, preferred_alignment) - 96usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_report {
    pub id: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_report"][::core::mem::size_of::<dma_report>() - 8usize];
    ["Alignment of dma_report"][::core::mem::align_of::<dma_report>() - 8usize];
    ["Offset of field: dma_report::id"][::core::mem::offset_of!(dma_report, id) - 0usize];
};
pub const DMA_VERDICT_OK: dma_verdict = 0;
pub const DMA_VERDICT_WARNING: dma_verdict = 1;
pub const DMA_VERDICT_BAD: dma_verdict = 2;
pub type dma_verdict = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_report_entry {
    pub size: usize,
    pub name: *const ::core::ffi::c_char,
    pub subject: *const ::core::ffi::c_char,
    pub text: *const ::core::ffi::c_char,
    pub remedy: *const ::core::ffi::c_char,
    pub verdict: u32,
    pub usable: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_report_entry"][::core::mem::size_of::<dma_report_entry>() - 48usize];
    ["Alignment of dma_report_entry"][::core::mem::align_of::<dma_report_entry>() - 8usize];
    ["Offset of field: dma_report_entry::size"][::core::mem::offset_of!(dma_report_entry, size) - 0usize];
    ["Offset of field: dma_report_entry::name"][::core::mem::offset_of!(dma_report_entry, name) - 8usize];
    ["Offset of field: dma_report_entry::subject"]
        [::core::mem::offset_of!(dma_report_entry, subject) - 16usize];
    ["Offset of field: dma_report_entry::text"][::core::mem::offset_of!(dma_report_entry, text) - 24usize];
    ["Offset of field: dma_report_entry::remedy"]
        [::core::mem::offset_of!(dma_report_entry, remedy) - 32usize];
    ["Offset of field: dma_report_entry::verdict"]
        [::core::mem::offset_of!(dma_report_entry, verdict) - 40usize];
    ["Offset of field: dma_report_entry::usable"]
        [::core::mem::offset_of!(dma_report_entry, usable) - 44usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_region {
    pub id: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_region"][::core::mem::size_of::<dma_region>() - 8usize];
    ["Alignment of dma_region"][::core::mem::align_of::<dma_region>() - 8usize];
    ["Offset of field: dma_region::id"][::core::mem::offset_of!(dma_region, id) - 0usize];
};
pub const DMA_PLACE_HOST: dma_place = 0;
pub const DMA_PLACE_DEVICE: dma_place = 1;
pub type dma_place = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_memory_options {
    pub size: usize,
    pub align: usize,
    pub rights: u32,
    pub export_rights: u32,
    pub place: u32,
    pub flags: u32,
    pub node: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_memory_options"][::core::mem::size_of::<dma_memory_options>() - 40usize];
    ["Alignment of dma_memory_options"][::core::mem::align_of::<dma_memory_options>() - 8usize];
    ["Offset of field: dma_memory_options::size"][::core::mem::offset_of!(dma_memory_options, size) - 0usize];
    ["Offset of field: dma_memory_options::align"]
        [::core::mem::offset_of!(dma_memory_options, align) - 8usize];
    ["Offset of field: dma_memory_options::rights"]
        [::core::mem::offset_of!(dma_memory_options, rights) - 16usize];
    ["Offset of field: dma_memory_options::export_rights"]
        [::core::mem::offset_of!(dma_memory_options, export_rights) - 20usize];
    ["Offset of field: dma_memory_options::place"]
        [::core::mem::offset_of!(dma_memory_options, place) - 24usize];
    ["Offset of field: dma_memory_options::flags"]
        [::core::mem::offset_of!(dma_memory_options, flags) - 28usize];
    ["Offset of field: dma_memory_options::node"]
        [::core::mem::offset_of!(dma_memory_options, node) - 32usize];
    ["Offset of field: dma_memory_options::reserved"]
        [::core::mem::offset_of!(dma_memory_options, reserved) - 36usize];
};
pub type dma_release = ::core::option::Option<unsafe extern "C" fn(context: *mut ::core::ffi::c_void)>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_region_info {
    pub size: usize,
    pub len: usize,
    pub memory: *mut ::core::ffi::c_void,
    pub rights: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_region_info"][::core::mem::size_of::<dma_region_info>() - 32usize];
    ["Alignment of dma_region_info"][::core::mem::align_of::<dma_region_info>() - 8usize];
    ["Offset of field: dma_region_info::size"][::core::mem::offset_of!(dma_region_info, size) - 0usize];
    ["Offset of field: dma_region_info::len"][::core::mem::offset_of!(dma_region_info, len) - 8usize];
    ["Offset of field: dma_region_info::memory"][::core::mem::offset_of!(dma_region_info, memory) - 16usize];
    ["Offset of field: dma_region_info::rights"][::core::mem::offset_of!(dma_region_info, rights) - 24usize];
    ["Offset of field: dma_region_info::reserved"]
        [::core::mem::offset_of!(dma_region_info, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_export {
    pub id: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_export"][::core::mem::size_of::<dma_export>() - 8usize];
    ["Alignment of dma_export"][::core::mem::align_of::<dma_export>() - 8usize];
    ["Offset of field: dma_export::id"][::core::mem::offset_of!(dma_export, id) - 0usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_queue {
    pub id: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_queue"][::core::mem::size_of::<dma_queue>() - 8usize];
    ["Alignment of dma_queue"][::core::mem::align_of::<dma_queue>() - 8usize];
    ["Offset of field: dma_queue::id"][::core::mem::offset_of!(dma_queue, id) - 0usize];
};
pub const DMA_CACHE_AUTO: dma_cache_hint = 0;
pub const DMA_CACHE_HOT: dma_cache_hint = 1;
pub const DMA_CACHE_COLD: dma_cache_hint = 2;
pub type dma_cache_hint = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_queue_options {
    pub size: usize,
    pub depth: usize,
    pub hint: u32,
    pub stall_timeout_ms: u32,
    pub lanes: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_queue_options"][::core::mem::size_of::<dma_queue_options>() - 32usize];
    ["Alignment of dma_queue_options"][::core::mem::align_of::<dma_queue_options>() - 8usize];
    ["Offset of field: dma_queue_options::size"][::core::mem::offset_of!(dma_queue_options, size) - 0usize];
    ["Offset of field: dma_queue_options::depth"][::core::mem::offset_of!(dma_queue_options, depth) - 8usize];
    ["Offset of field: dma_queue_options::hint"][::core::mem::offset_of!(dma_queue_options, hint) - 16usize];
    ["Offset of field: dma_queue_options::stall_timeout_ms"]
        [::core::mem::offset_of!(dma_queue_options, stall_timeout_ms) - 20usize];
    ["Offset of field: dma_queue_options::lanes"]
        [::core::mem::offset_of!(dma_queue_options, lanes) - 24usize];
    ["Offset of field: dma_queue_options::reserved"]
        [::core::mem::offset_of!(dma_queue_options, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_range {
    pub region: dma_region,
    pub offset: usize,
    pub len: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_range"][::core::mem::size_of::<dma_range>() - 24usize];
    ["Alignment of dma_range"][::core::mem::align_of::<dma_range>() - 8usize];
    ["Offset of field: dma_range::region"][::core::mem::offset_of!(dma_range, region) - 0usize];
    ["Offset of field: dma_range::offset"][::core::mem::offset_of!(dma_range, offset) - 8usize];
    ["Offset of field: dma_range::len"][::core::mem::offset_of!(dma_range, len) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_copy {
    pub src: dma_range,
    pub dst: dma_range,
    pub token: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_copy"][::core::mem::size_of::<dma_copy>() - 56usize];
    ["Alignment of dma_copy"][::core::mem::align_of::<dma_copy>() - 8usize];
    ["Offset of field: dma_copy::src"][::core::mem::offset_of!(dma_copy, src) - 0usize];
    ["Offset of field: dma_copy::dst"][::core::mem::offset_of!(dma_copy, dst) - 24usize];
    ["Offset of field: dma_copy::token"][::core::mem::offset_of!(dma_copy, token) - 48usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_completion {
    pub token: u64,
    pub result: u64,
    pub status: dma_status,
    pub native: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_completion"][::core::mem::size_of::<dma_completion>() - 24usize];
    ["Alignment of dma_completion"][::core::mem::align_of::<dma_completion>() - 8usize];
    ["Offset of field: dma_completion::token"][::core::mem::offset_of!(dma_completion, token) - 0usize];
    ["Offset of field: dma_completion::result"][::core::mem::offset_of!(dma_completion, result) - 8usize];
    ["Offset of field: dma_completion::status"][::core::mem::offset_of!(dma_completion, status) - 16usize];
    ["Offset of field: dma_completion::native"][::core::mem::offset_of!(dma_completion, native) - 20usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_counters {
    pub size: usize,
    pub submitted: u64,
    pub completed: u64,
    pub failed: u64,
    pub aborted: u64,
    pub abandoned: u64,
    pub in_flight: u64,
    pub bytes: u64,
    pub full: u64,
    pub descriptors: u64,
    pub doorbells: u64,
    pub polls: u64,
    pub resets: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_counters"][::core::mem::size_of::<dma_counters>() - 104usize];
    ["Alignment of dma_counters"][::core::mem::align_of::<dma_counters>() - 8usize];
    ["Offset of field: dma_counters::size"][::core::mem::offset_of!(dma_counters, size) - 0usize];
    ["Offset of field: dma_counters::submitted"][::core::mem::offset_of!(dma_counters, submitted) - 8usize];
    ["Offset of field: dma_counters::completed"][::core::mem::offset_of!(dma_counters, completed) - 16usize];
    ["Offset of field: dma_counters::failed"][::core::mem::offset_of!(dma_counters, failed) - 24usize];
    ["Offset of field: dma_counters::aborted"][::core::mem::offset_of!(dma_counters, aborted) - 32usize];
    ["Offset of field: dma_counters::abandoned"][::core::mem::offset_of!(dma_counters, abandoned) - 40usize];
    ["Offset of field: dma_counters::in_flight"][::core::mem::offset_of!(dma_counters, in_flight) - 48usize];
    ["Offset of field: dma_counters::bytes"][::core::mem::offset_of!(dma_counters, bytes) - 56usize];
    ["Offset of field: dma_counters::full"][::core::mem::offset_of!(dma_counters, full) - 64usize];
    ["Offset of field: dma_counters::descriptors"]
        [::core::mem::offset_of!(dma_counters, descriptors) - 72usize];
    ["Offset of field: dma_counters::doorbells"][::core::mem::offset_of!(dma_counters, doorbells) - 80usize];
    ["Offset of field: dma_counters::polls"][::core::mem::offset_of!(dma_counters, polls) - 88usize];
    ["Offset of field: dma_counters::resets"][::core::mem::offset_of!(dma_counters, resets) - 96usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dma_batch {
    pub id: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_batch"][::core::mem::size_of::<dma_batch>() - 8usize];
    ["Alignment of dma_batch"][::core::mem::align_of::<dma_batch>() - 8usize];
    ["Offset of field: dma_batch::id"][::core::mem::offset_of!(dma_batch, id) - 0usize];
};
unsafe extern "C" {
    pub fn dma_last_error(error: *mut dma_error) -> dma_status;
    pub fn dma_last_failures(failures: *mut dma_failure, capacity: usize, count: *mut usize) -> dma_status;
    pub fn dma_status_text(status: dma_status) -> *const ::core::ffi::c_char;
    pub fn dma_status_retry(status: dma_status) -> dma_retry;
    pub fn dma_abi_version() -> u32;
    pub fn dma_version() -> *const ::core::ffi::c_char;
    pub fn dma_open_abi(
        abi_version: u32,
        name: *const ::core::ffi::c_char,
        flags: u32,
        engine: *mut dma_engine,
    ) -> dma_status;
    pub fn dma_close(engine: dma_engine) -> dma_status;
    pub fn dma_engine_describe(engine: dma_engine, info: *mut dma_engine_info) -> dma_status;
    pub fn dma_engine_explain(
        engine: dma_engine,
        text: *mut ::core::ffi::c_char,
        capacity: usize,
        len: *mut usize,
    ) -> dma_status;
    pub fn dma_discover(report: *mut dma_report) -> dma_status;
    pub fn dma_doctor(backend: *const ::core::ffi::c_char, report: *mut dma_report) -> dma_status;
    pub fn dma_report_count(report: dma_report, count: *mut usize) -> dma_status;
    pub fn dma_report_read(report: dma_report, index: usize, entry: *mut dma_report_entry) -> dma_status;
    pub fn dma_report_close(report: dma_report) -> dma_status;
    pub fn dma_region_allocate(
        engine: dma_engine,
        len: usize,
        options: *const dma_memory_options,
        region: *mut dma_region,
    ) -> dma_status;
    pub fn dma_region_register(
        engine: dma_engine,
        memory: *mut ::core::ffi::c_void,
        len: usize,
        rights: u32,
        region: *mut dma_region,
    ) -> dma_status;
    pub fn dma_region_register_owned(
        engine: dma_engine,
        memory: *mut ::core::ffi::c_void,
        len: usize,
        rights: u32,
        release: dma_release,
        context: *mut ::core::ffi::c_void,
        region: *mut dma_region,
    ) -> dma_status;
    pub fn dma_region_register_device(
        engine: dma_engine,
        address: u64,
        len: usize,
        rights: u32,
        region: *mut dma_region,
    ) -> dma_status;
    pub fn dma_region_register_dmabuf(
        engine: dma_engine,
        fd: ::core::ffi::c_int,
        offset: u64,
        len: usize,
        rights: u32,
        region: *mut dma_region,
    ) -> dma_status;
    pub fn dma_region_dmabuf(region: dma_region, fd: *mut ::core::ffi::c_int, offset: *mut u64)
    -> dma_status;
    pub fn dma_region_describe(region: dma_region, info: *mut dma_region_info) -> dma_status;
    pub fn dma_region_close(region: dma_region) -> dma_status;
    pub fn dma_region_export(
        region: dma_region,
        offset: usize,
        len: usize,
        rights: u32,
        exported: *mut dma_export,
    ) -> dma_status;
    pub fn dma_export_descriptor(
        exported: dma_export,
        bytes: *mut ::core::ffi::c_void,
        capacity: usize,
        len: *mut usize,
    ) -> dma_status;
    pub fn dma_export_revoke(exported: dma_export, timeout_ms: u32) -> dma_status;
    pub fn dma_region_import(
        engine: dma_engine,
        bytes: *const ::core::ffi::c_void,
        len: usize,
        region: *mut dma_region,
    ) -> dma_status;
    pub fn dma_queue_open(
        engine: dma_engine,
        options: *const dma_queue_options,
        queue: *mut dma_queue,
    ) -> dma_status;
    pub fn dma_queue_stop(queue: dma_queue, timeout_ms: u32) -> dma_status;
    pub fn dma_queue_close(queue: dma_queue, timeout_ms: u32) -> dma_status;
    pub fn dma_queue_copy(
        queue: dma_queue,
        copies: *const dma_copy,
        count: usize,
        accepted: *mut usize,
    ) -> dma_status;
    pub fn dma_queue_copy_list(
        queue: dma_queue,
        src: *const dma_range,
        src_count: usize,
        dst: *const dma_range,
        dst_count: usize,
        token: u64,
    ) -> dma_status;
    pub fn dma_queue_copy_to_both(
        queue: dma_queue,
        src: *const dma_range,
        dst: *const dma_range,
        also: *const dma_range,
        token: u64,
    ) -> dma_status;
    pub fn dma_queue_fill(
        queue: dma_queue,
        dst: *const dma_range,
        dst_count: usize,
        pattern: *const u8,
        token: u64,
    ) -> dma_status;
    pub fn dma_queue_compare(
        queue: dma_queue,
        a: *const dma_range,
        b: *const dma_range,
        token: u64,
    ) -> dma_status;
    pub fn dma_queue_crc32c(queue: dma_queue, src: *const dma_range, seed: u32, token: u64) -> dma_status;
    pub fn dma_queue_copy_crc32c(
        queue: dma_queue,
        src: *const dma_range,
        dst: *const dma_range,
        seed: u32,
        token: u64,
    ) -> dma_status;
    pub fn dma_queue_fence(queue: dma_queue) -> dma_status;
    pub fn dma_queue_flush(queue: dma_queue) -> dma_status;
    pub fn dma_queue_cancel(queue: dma_queue, token: u64) -> dma_status;
    pub fn dma_queue_poll(
        queue: dma_queue,
        completions: *mut dma_completion,
        capacity: usize,
        count: *mut usize,
    ) -> dma_status;
    pub fn dma_queue_wait(
        queue: dma_queue,
        completions: *mut dma_completion,
        capacity: usize,
        timeout_ms: u32,
        count: *mut usize,
    ) -> dma_status;
    pub fn dma_queue_wait_for(
        queue: dma_queue,
        token: u64,
        timeout_ms: u32,
        completion: *mut dma_completion,
    ) -> dma_status;
    pub fn dma_queue_wait_for_room(
        queue: dma_queue,
        completions: *mut dma_completion,
        capacity: usize,
        timeout_ms: u32,
        count: *mut usize,
    ) -> dma_status;
    pub fn dma_queue_descriptor(queue: dma_queue, fd: *mut ::core::ffi::c_int) -> dma_status;
    pub fn dma_queue_arm(queue: dma_queue, ready: *mut usize) -> dma_status;
    pub fn dma_queue_counters(queue: dma_queue, counters: *mut dma_counters) -> dma_status;
    pub fn dma_queue_depth(queue: dma_queue, depth: *mut usize, available: *mut usize) -> dma_status;
    pub fn dma_queue_stalled(queue: dma_queue, milliseconds: *mut u64) -> dma_status;
    pub fn dma_batch_create(copies: *const dma_copy, count: usize, batch: *mut dma_batch) -> dma_status;
    pub fn dma_queue_submit(queue: dma_queue, batch: dma_batch, token: u64) -> dma_status;
    pub fn dma_batch_close(batch: dma_batch) -> dma_status;
    pub fn dma_region_read(
        region: dma_region,
        offset: usize,
        to: *mut ::core::ffi::c_void,
        len: usize,
    ) -> dma_status;
    pub fn dma_region_write(
        region: dma_region,
        offset: usize,
        from: *const ::core::ffi::c_void,
        len: usize,
    ) -> dma_status;
}
