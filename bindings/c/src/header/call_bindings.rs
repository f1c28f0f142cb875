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

pub type dma_last_error = unsafe extern "C" fn(error: *mut dma_error) -> dma_status;
pub type dma_last_failures = unsafe extern "C" fn(failures: *mut dma_failure, capacity: usize, count: *mut usize) -> dma_status;
pub type dma_status_text = unsafe extern "C" fn(status: dma_status) -> *const ::core::ffi::c_char;
pub type dma_status_retry = unsafe extern "C" fn(status: dma_status) -> dma_retry;
pub type dma_abi_version = unsafe extern "C" fn() -> u32;
pub type dma_version = unsafe extern "C" fn() -> *const ::core::ffi::c_char;
pub type dma_open_abi = unsafe extern "C" fn(abi_version: u32, name: *const ::core::ffi::c_char, flags: u32, engine: *mut dma_engine) -> dma_status;
pub type dma_close = unsafe extern "C" fn(engine: dma_engine) -> dma_status;
pub type dma_engine_describe = unsafe extern "C" fn(engine: dma_engine, info: *mut dma_engine_info) -> dma_status;
pub type dma_engine_explain = unsafe extern "C" fn(engine: dma_engine, text: *mut ::core::ffi::c_char, capacity: usize, len: *mut usize) -> dma_status;
pub type dma_discover = unsafe extern "C" fn(report: *mut dma_report) -> dma_status;
pub type dma_doctor = unsafe extern "C" fn(backend: *const ::core::ffi::c_char, report: *mut dma_report) -> dma_status;
pub type dma_report_count = unsafe extern "C" fn(report: dma_report, count: *mut usize) -> dma_status;
pub type dma_report_read = unsafe extern "C" fn(report: dma_report, index: usize, entry: *mut dma_report_entry) -> dma_status;
pub type dma_report_close = unsafe extern "C" fn(report: dma_report) -> dma_status;
pub type dma_region_allocate = unsafe extern "C" fn(engine: dma_engine, len: usize, options: *const dma_memory_options, region: *mut dma_region) -> dma_status;
pub type dma_region_register = unsafe extern "C" fn(engine: dma_engine, memory: *mut ::core::ffi::c_void, len: usize, rights: u32, region: *mut dma_region) -> dma_status;
pub type dma_region_register_owned = unsafe extern "C" fn(engine: dma_engine, memory: *mut ::core::ffi::c_void, len: usize, rights: u32, release: dma_release, context: *mut ::core::ffi::c_void, region: *mut dma_region) -> dma_status;
pub type dma_region_register_device = unsafe extern "C" fn(engine: dma_engine, address: u64, len: usize, rights: u32, region: *mut dma_region) -> dma_status;
pub type dma_region_register_dmabuf = unsafe extern "C" fn(engine: dma_engine, fd: ::core::ffi::c_int, offset: u64, len: usize, rights: u32, region: *mut dma_region) -> dma_status;
pub type dma_region_dmabuf = unsafe extern "C" fn(region: dma_region, fd: *mut ::core::ffi::c_int, offset: *mut u64) -> dma_status;
pub type dma_region_describe = unsafe extern "C" fn(region: dma_region, info: *mut dma_region_info) -> dma_status;
pub type dma_region_close = unsafe extern "C" fn(region: dma_region) -> dma_status;
pub type dma_region_export = unsafe extern "C" fn(region: dma_region, offset: usize, len: usize, rights: u32, exported: *mut dma_export) -> dma_status;
pub type dma_export_descriptor = unsafe extern "C" fn(exported: dma_export, bytes: *mut ::core::ffi::c_void, capacity: usize, len: *mut usize) -> dma_status;
pub type dma_export_revoke = unsafe extern "C" fn(exported: dma_export, timeout_ms: u32) -> dma_status;
pub type dma_region_import = unsafe extern "C" fn(engine: dma_engine, bytes: *const ::core::ffi::c_void, len: usize, region: *mut dma_region) -> dma_status;
pub type dma_queue_open = unsafe extern "C" fn(engine: dma_engine, options: *const dma_queue_options, queue: *mut dma_queue) -> dma_status;
pub type dma_queue_stop = unsafe extern "C" fn(queue: dma_queue, timeout_ms: u32) -> dma_status;
pub type dma_queue_close = unsafe extern "C" fn(queue: dma_queue, timeout_ms: u32) -> dma_status;
pub type dma_queue_copy = unsafe extern "C" fn(queue: dma_queue, copies: *const dma_copy, count: usize, accepted: *mut usize) -> dma_status;
pub type dma_queue_copy_list = unsafe extern "C" fn(queue: dma_queue, src: *const dma_range, src_count: usize, dst: *const dma_range, dst_count: usize, token: u64) -> dma_status;
pub type dma_queue_copy_to_both = unsafe extern "C" fn(queue: dma_queue, src: *const dma_range, dst: *const dma_range, also: *const dma_range, token: u64) -> dma_status;
pub type dma_queue_fill = unsafe extern "C" fn(queue: dma_queue, dst: *const dma_range, dst_count: usize, pattern: *const u8, token: u64) -> dma_status;
pub type dma_queue_compare = unsafe extern "C" fn(queue: dma_queue, a: *const dma_range, b: *const dma_range, token: u64) -> dma_status;
pub type dma_queue_crc32c = unsafe extern "C" fn(queue: dma_queue, src: *const dma_range, seed: u32, token: u64) -> dma_status;
pub type dma_queue_copy_crc32c = unsafe extern "C" fn(queue: dma_queue, src: *const dma_range, dst: *const dma_range, seed: u32, token: u64) -> dma_status;
pub type dma_queue_fence = unsafe extern "C" fn(queue: dma_queue) -> dma_status;
pub type dma_queue_flush = unsafe extern "C" fn(queue: dma_queue) -> dma_status;
pub type dma_queue_cancel = unsafe extern "C" fn(queue: dma_queue, token: u64) -> dma_status;
pub type dma_queue_poll = unsafe extern "C" fn(queue: dma_queue, completions: *mut dma_completion, capacity: usize, count: *mut usize) -> dma_status;
pub type dma_queue_wait = unsafe extern "C" fn(queue: dma_queue, completions: *mut dma_completion, capacity: usize, timeout_ms: u32, count: *mut usize) -> dma_status;
pub type dma_queue_wait_for = unsafe extern "C" fn(queue: dma_queue, token: u64, timeout_ms: u32, completion: *mut dma_completion) -> dma_status;
pub type dma_queue_wait_for_room = unsafe extern "C" fn(queue: dma_queue, completions: *mut dma_completion, capacity: usize, timeout_ms: u32, count: *mut usize) -> dma_status;
pub type dma_queue_descriptor = unsafe extern "C" fn(queue: dma_queue, fd: *mut ::core::ffi::c_int) -> dma_status;
pub type dma_queue_arm = unsafe extern "C" fn(queue: dma_queue, ready: *mut usize) -> dma_status;
pub type dma_queue_counters = unsafe extern "C" fn(queue: dma_queue, counters: *mut dma_counters) -> dma_status;
pub type dma_queue_depth = unsafe extern "C" fn(queue: dma_queue, depth: *mut usize, available: *mut usize) -> dma_status;
pub type dma_queue_stalled = unsafe extern "C" fn(queue: dma_queue, milliseconds: *mut u64) -> dma_status;
pub type dma_batch_create = unsafe extern "C" fn(copies: *const dma_copy, count: usize, batch: *mut dma_batch) -> dma_status;
pub type dma_queue_submit = unsafe extern "C" fn(queue: dma_queue, batch: dma_batch, token: u64) -> dma_status;
pub type dma_batch_close = unsafe extern "C" fn(batch: dma_batch) -> dma_status;
pub type dma_region_read = unsafe extern "C" fn(region: dma_region, offset: usize, to: *mut ::core::ffi::c_void, len: usize) -> dma_status;
pub type dma_region_write = unsafe extern "C" fn(region: dma_region, offset: usize, from: *const ::core::ffi::c_void, len: usize) -> dma_status;
