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
/// The last parameter is a `va_list`: on the common processors, the address of one.
pub type doca_argp_logger_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        level: doca_log_level,
        format: *const ::core::ffi::c_char,
        args: *mut ::core::ffi::c_void,
    ) -> doca_error_t,
>;

pub const DOCA_VERSION_MAJOR: u32 = 3;
pub const DOCA_VERSION_MINOR: u32 = 0;
pub const DOCA_VERSION_PATCH: u32 = 58;
pub const DOCA_VERSION_STRING: &[u8; 9] = b"3.0.0058\0";
pub const DOCA_VER_STRING: &[u8; 9] = b"3.0.0058\0";
pub const DOCA_GID_BYTE_LENGTH: u32 = 16;
pub const DOCA_DEVINFO_VUID_SIZE: u32 = 128;
pub const DOCA_DEVINFO_IPV4_ADDR_SIZE: u32 = 4;
pub const DOCA_DEVINFO_IPV6_ADDR_SIZE: u32 = 16;
pub const DOCA_DEVINFO_MAC_ADDR_SIZE: u32 = 6;
pub const DOCA_DEVINFO_IFACE_NAME_SIZE: u32 = 256;
pub const DOCA_DEVINFO_IBDEV_NAME_SIZE: u32 = 64;
pub const DOCA_DEVINFO_PCI_ADDR_SIZE: u32 = 13;
pub const DOCA_DEVINFO_PCI_BDF_SIZE: u32 = 8;
pub const DOCA_DEVINFO_REP_VUID_SIZE: u32 = 128;
pub const DOCA_DEVINFO_REP_PCI_ADDR_SIZE: u32 = 13;
pub const DOCA_DEVINFO_REP_PCI_BDF_SIZE: u32 = 8;
pub const DOCA_SUCCESS: doca_error = 0;
pub const DOCA_ERROR_UNKNOWN: doca_error = 1;
pub const DOCA_ERROR_NOT_PERMITTED: doca_error = 2;
pub const DOCA_ERROR_IN_USE: doca_error = 3;
pub const DOCA_ERROR_NOT_SUPPORTED: doca_error = 4;
pub const DOCA_ERROR_AGAIN: doca_error = 5;
pub const DOCA_ERROR_INVALID_VALUE: doca_error = 6;
pub const DOCA_ERROR_NO_MEMORY: doca_error = 7;
pub const DOCA_ERROR_INITIALIZATION: doca_error = 8;
pub const DOCA_ERROR_TIME_OUT: doca_error = 9;
pub const DOCA_ERROR_SHUTDOWN: doca_error = 10;
pub const DOCA_ERROR_CONNECTION_RESET: doca_error = 11;
pub const DOCA_ERROR_CONNECTION_ABORTED: doca_error = 12;
pub const DOCA_ERROR_CONNECTION_INPROGRESS: doca_error = 13;
pub const DOCA_ERROR_NOT_CONNECTED: doca_error = 14;
pub const DOCA_ERROR_NO_LOCK: doca_error = 15;
pub const DOCA_ERROR_NOT_FOUND: doca_error = 16;
pub const DOCA_ERROR_IO_FAILED: doca_error = 17;
pub const DOCA_ERROR_BAD_STATE: doca_error = 18;
pub const DOCA_ERROR_UNSUPPORTED_VERSION: doca_error = 19;
pub const DOCA_ERROR_OPERATING_SYSTEM: doca_error = 20;
pub const DOCA_ERROR_DRIVER: doca_error = 21;
pub const DOCA_ERROR_UNEXPECTED: doca_error = 22;
pub const DOCA_ERROR_ALREADY_EXIST: doca_error = 23;
pub const DOCA_ERROR_FULL: doca_error = 24;
pub const DOCA_ERROR_EMPTY: doca_error = 25;
pub const DOCA_ERROR_IN_PROGRESS: doca_error = 26;
pub const DOCA_ERROR_TOO_BIG: doca_error = 27;
pub const DOCA_ERROR_AUTHENTICATION: doca_error = 28;
pub const DOCA_ERROR_BAD_CONFIG: doca_error = 29;
pub const DOCA_ERROR_SKIPPED: doca_error = 30;
pub type doca_error = ::core::ffi::c_uint;
pub use self::doca_error as doca_error_t;
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
pub type __u16 = ::core::ffi::c_ushort;
pub type __u32 = ::core::ffi::c_uint;
pub type __u64 = ::core::ffi::c_ulonglong;
pub type __be16 = __u16;
pub type __be32 = __u32;
pub type __be64 = __u64;
pub type doca_be16_t = __be16;
pub type doca_be32_t = __be32;
pub type doca_be64_t = __be64;
#[repr(C)]
#[derive(Copy, Clone)]
pub union doca_data {
    pub ptr: *mut ::core::ffi::c_void,
    pub u64_: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of doca_data"][::core::mem::size_of::<doca_data>() - 8usize];
    ["Alignment of doca_data"][::core::mem::align_of::<doca_data>() - 8usize];
    ["Offset of field: doca_data::ptr"][::core::mem::offset_of!(doca_data, ptr) - 0usize];
    ["Offset of field: doca_data::u64_"][::core::mem::offset_of!(doca_data, u64_) - 0usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct doca_gather_list {
    pub addr: *mut ::core::ffi::c_void,
    pub len: u64,
    pub next: *mut doca_gather_list,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of doca_gather_list"][::core::mem::size_of::<doca_gather_list>() - 24usize];
    ["Alignment of doca_gather_list"][::core::mem::align_of::<doca_gather_list>() - 8usize];
    ["Offset of field: doca_gather_list::addr"][::core::mem::offset_of!(doca_gather_list, addr) - 0usize];
    ["Offset of field: doca_gather_list::len"][::core::mem::offset_of!(doca_gather_list, len) - 8usize];
    ["Offset of field: doca_gather_list::next"][::core::mem::offset_of!(doca_gather_list, next) - 16usize];
};
pub type doca_event_handle_t = ::core::ffi::c_int;
pub type doca_notification_handle_t = doca_event_handle_t;
pub const DOCA_ACCESS_FLAG_LOCAL_READ_ONLY: doca_access_flag = 0;
pub const DOCA_ACCESS_FLAG_LOCAL_READ_WRITE: doca_access_flag = 1;
pub const DOCA_ACCESS_FLAG_RDMA_READ: doca_access_flag = 2;
pub const DOCA_ACCESS_FLAG_RDMA_WRITE: doca_access_flag = 4;
pub const DOCA_ACCESS_FLAG_RDMA_ATOMIC: doca_access_flag = 8;
pub const DOCA_ACCESS_FLAG_PCI_READ_ONLY: doca_access_flag = 16;
pub const DOCA_ACCESS_FLAG_PCI_READ_WRITE: doca_access_flag = 32;
pub const DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING: doca_access_flag = 64;
pub type doca_access_flag = ::core::ffi::c_uint;
pub const DOCA_PCI_FUNC_TYPE_PF: doca_pci_func_type = 0;
pub const DOCA_PCI_FUNC_TYPE_VF: doca_pci_func_type = 1;
pub const DOCA_PCI_FUNC_TYPE_SF: doca_pci_func_type = 2;
pub type doca_pci_func_type = ::core::ffi::c_uint;
pub const DOCA_GPU_MEM_TYPE_GPU: doca_gpu_mem_type = 0;
pub const DOCA_GPU_MEM_TYPE_GPU_CPU: doca_gpu_mem_type = 1;
pub const DOCA_GPU_MEM_TYPE_CPU_GPU: doca_gpu_mem_type = 2;
pub type doca_gpu_mem_type = ::core::ffi::c_uint;
pub const DOCA_ETH_WAIT_ON_TIME_TYPE_NONE: doca_eth_wait_on_time_type = 0;
pub const DOCA_ETH_WAIT_ON_TIME_TYPE_NATIVE: doca_eth_wait_on_time_type = 1;
pub const DOCA_ETH_WAIT_ON_TIME_TYPE_DPDK: doca_eth_wait_on_time_type = 2;
pub type doca_eth_wait_on_time_type = ::core::ffi::c_uint;
pub const DOCA_MTU_SIZE_256_BYTES: doca_mtu_size = 0;
pub const DOCA_MTU_SIZE_512_BYTES: doca_mtu_size = 1;
pub const DOCA_MTU_SIZE_1K_BYTES: doca_mtu_size = 2;
pub const DOCA_MTU_SIZE_2K_BYTES: doca_mtu_size = 3;
pub const DOCA_MTU_SIZE_4K_BYTES: doca_mtu_size = 4;
pub const DOCA_MTU_SIZE_RAW_ETHERNET: doca_mtu_size = 5;
pub type doca_mtu_size = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug)]
pub struct doca_log_backend {
    _unused: [u8; 0],
}
pub const DOCA_LOG_LEVEL_DISABLE: doca_log_level = 10;
pub const DOCA_LOG_LEVEL_CRIT: doca_log_level = 20;
pub const DOCA_LOG_LEVEL_ERROR: doca_log_level = 30;
pub const DOCA_LOG_LEVEL_WARNING: doca_log_level = 40;
pub const DOCA_LOG_LEVEL_INFO: doca_log_level = 50;
pub const DOCA_LOG_LEVEL_DEBUG: doca_log_level = 60;
pub const DOCA_LOG_LEVEL_TRACE: doca_log_level = 70;
pub type doca_log_level = ::core::ffi::c_uint;
pub type log_flush_callback = ::core::option::Option<unsafe extern "C" fn(buf: *mut ::core::ffi::c_char)>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_argp_cmd {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_argp_param {
    _unused: [u8; 0],
}
pub const DOCA_ARGP_TYPE_UNKNOWN: doca_argp_type = 0;
pub const DOCA_ARGP_TYPE_STRING: doca_argp_type = 1;
pub const DOCA_ARGP_TYPE_INT: doca_argp_type = 2;
pub const DOCA_ARGP_TYPE_BOOLEAN: doca_argp_type = 3;
pub const DOCA_ARGP_TYPE_JSON_OBJ: doca_argp_type = 4;
pub type doca_argp_type = ::core::ffi::c_uint;
pub type doca_argp_param_cb_t = ::core::option::Option<
    unsafe extern "C" fn(arg1: *mut ::core::ffi::c_void, arg2: *mut ::core::ffi::c_void) -> doca_error_t,
>;
pub type doca_argp_cmd_cb_t =
    ::core::option::Option<unsafe extern "C" fn(arg1: *mut ::core::ffi::c_void) -> doca_error_t>;
pub type doca_argp_dpdk_cb_t = ::core::option::Option<
    unsafe extern "C" fn(argc: ::core::ffi::c_int, argv: *mut *mut ::core::ffi::c_char) -> doca_error_t,
>;
pub type doca_argp_validation_cb_t =
    ::core::option::Option<unsafe extern "C" fn(arg1: *mut ::core::ffi::c_void) -> doca_error_t>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_buf {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_dev {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_dev_rep {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_devinfo {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_devinfo_rep {
    _unused: [u8; 0],
}
pub const DOCA_DEVINFO_REP_FILTER_ALL: doca_devinfo_rep_filter = 0;
pub const DOCA_DEVINFO_REP_FILTER_NET: doca_devinfo_rep_filter = 2;
pub const DOCA_DEVINFO_REP_FILTER_EMULATED: doca_devinfo_rep_filter = 4;
pub type doca_devinfo_rep_filter = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug)]
pub struct doca_dpa {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_mmap {
    _unused: [u8; 0],
}
pub type doca_dpa_dev_mmap_t = u32;
pub type doca_mmap_memrange_free_cb_t = ::core::option::Option<
    unsafe extern "C" fn(addr: *mut ::core::ffi::c_void, len: usize, cookie: *mut ::core::ffi::c_void),
>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_buf_inventory {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_buf_pool {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_ctx {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_gpu {
    _unused: [u8; 0],
}
pub const DOCA_CTX_STATE_IDLE: doca_ctx_states = 0;
pub const DOCA_CTX_STATE_STARTING: doca_ctx_states = 1;
pub const DOCA_CTX_STATE_RUNNING: doca_ctx_states = 2;
pub const DOCA_CTX_STATE_STOPPING: doca_ctx_states = 3;
pub type doca_ctx_states = ::core::ffi::c_uint;
pub type doca_ctx_state_changed_callback_t = ::core::option::Option<
    unsafe extern "C" fn(
        user_data: doca_data,
        ctx: *mut doca_ctx,
        prev_state: doca_ctx_states,
        next_state: doca_ctx_states,
    ),
>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_pe {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_task {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_task_batch {
    _unused: [u8; 0],
}
pub const DOCA_TASK_BATCH_MAX_TASKS_NUMBER_16: doca_task_batch_max_tasks_number = 0;
pub const DOCA_TASK_BATCH_MAX_TASKS_NUMBER_32: doca_task_batch_max_tasks_number = 1;
pub const DOCA_TASK_BATCH_MAX_TASKS_NUMBER_64: doca_task_batch_max_tasks_number = 2;
pub const DOCA_TASK_BATCH_MAX_TASKS_NUMBER_128: doca_task_batch_max_tasks_number = 3;
pub type doca_task_batch_max_tasks_number = ::core::ffi::c_uint;
pub const DOCA_EVENT_BATCH_EVENTS_NUMBER_1: doca_event_batch_events_number = 0;
pub const DOCA_EVENT_BATCH_EVENTS_NUMBER_2: doca_event_batch_events_number = 1;
pub const DOCA_EVENT_BATCH_EVENTS_NUMBER_4: doca_event_batch_events_number = 2;
pub const DOCA_EVENT_BATCH_EVENTS_NUMBER_8: doca_event_batch_events_number = 3;
pub const DOCA_EVENT_BATCH_EVENTS_NUMBER_16: doca_event_batch_events_number = 4;
pub const DOCA_EVENT_BATCH_EVENTS_NUMBER_32: doca_event_batch_events_number = 5;
pub const DOCA_EVENT_BATCH_EVENTS_NUMBER_64: doca_event_batch_events_number = 6;
pub const DOCA_EVENT_BATCH_EVENTS_NUMBER_128: doca_event_batch_events_number = 7;
pub type doca_event_batch_events_number = ::core::ffi::c_uint;
pub const DOCA_TASK_SUBMIT_FLAG_NONE: doca_task_submit_flag = 0;
pub const DOCA_TASK_SUBMIT_FLAG_FLUSH: doca_task_submit_flag = 1;
pub const DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS: doca_task_submit_flag = 2;
pub type doca_task_submit_flag = ::core::ffi::c_uint;
pub const DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE: doca_pe_event_mode = 0;
pub const DOCA_PE_EVENT_MODE_PROGRESS_ALL: doca_pe_event_mode = 1;
pub type doca_pe_event_mode = ::core::ffi::c_uint;
pub type doca_task_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(task: *mut doca_task, task_user_data: doca_data, ctx_user_data: doca_data),
>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_client {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_connection {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_event_connection_status_changed {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_event_consumer {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_event_msg_recv {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_server {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_task_send {
    _unused: [u8; 0],
}
pub const DOCA_COMCH_COUNTER_SENT_MESSAGES: doca_comch_counter = 1;
pub const DOCA_COMCH_COUNTER_SENT_BYTES: doca_comch_counter = 2;
pub const DOCA_COMCH_COUNTER_RECV_MESSAGES: doca_comch_counter = 3;
pub const DOCA_COMCH_COUNTER_RECV_BYTES: doca_comch_counter = 4;
pub type doca_comch_counter = ::core::ffi::c_uint;
pub type doca_comch_task_send_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_comch_task_send,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
pub type doca_comch_event_msg_recv_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        event: *mut doca_comch_event_msg_recv,
        recv_buffer: *mut u8,
        msg_len: u32,
        comch_connection: *mut doca_comch_connection,
    ),
>;
pub type doca_comch_event_connection_status_changed_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        event: *mut doca_comch_event_connection_status_changed,
        comch_connection: *mut doca_comch_connection,
        change_successful: u8,
    ),
>;
pub type doca_comch_event_consumer_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        event: *mut doca_comch_event_consumer,
        comch_connection: *mut doca_comch_connection,
        id: u32,
    ),
>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_consumer {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_consumer_completion {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_consumer_task_post_recv {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_dpa_thread {
    _unused: [u8; 0],
}
pub type doca_dpa_dev_comch_consumer_completion_t = u64;
pub type doca_dpa_dev_comch_consumer_t = u64;
pub type doca_comch_consumer_task_post_recv_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_comch_consumer_task_post_recv,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_producer {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_comch_producer_task_send {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_dpa_completion {
    _unused: [u8; 0],
}
pub type doca_dpa_dev_comch_producer_t = u64;
pub type doca_comch_producer_task_send_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_comch_producer_task_send,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_dma {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_dma_task_memcpy {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_gpu_dma {
    _unused: [u8; 0],
}
pub type doca_dma_task_memcpy_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_dma_task_memcpy,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_graph {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_graph_instance {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_graph_node {
    _unused: [u8; 0],
}
pub type doca_graph_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        instance: *mut doca_graph_instance,
        instance_user_data: doca_data,
        graph_user_data: doca_data,
    ),
>;
pub type doca_graph_user_node_cb_t =
    ::core::option::Option<unsafe extern "C" fn(cookie: *mut ::core::ffi::c_void) -> doca_error_t>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_mmap_advise {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_mmap_advise_task_invalidate_cache {
    _unused: [u8; 0],
}
pub type doca_mmap_advise_task_invalidate_cache_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_mmap_advise_task_invalidate_cache,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
#[repr(C)]
#[derive(Debug)]
pub struct doca_dpa_sync_event {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_gpu_sync_event {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_sync_event {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_sync_event_remote_net {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_sync_event_task_get {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_sync_event_task_notify_add {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_sync_event_task_notify_set {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_sync_event_task_wait_eq {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct doca_sync_event_task_wait_neq {
    _unused: [u8; 0],
}
pub type doca_dpa_dev_sync_event_t = u64;
pub type doca_dpa_dev_sync_event_remote_net_t = u64;
pub type doca_gpu_dev_sync_event_t = u64;
pub type doca_gpu_dev_sync_event_remote_net_t = u64;
pub type doca_sync_event_task_get_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_sync_event_task_get,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
pub type doca_sync_event_task_notify_set_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_sync_event_task_notify_set,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
pub type doca_sync_event_task_notify_add_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_sync_event_task_notify_add,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
pub type doca_sync_event_task_wait_eq_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_sync_event_task_wait_eq,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
pub type doca_sync_event_task_wait_neq_completion_cb_t = ::core::option::Option<
    unsafe extern "C" fn(
        task: *mut doca_sync_event_task_wait_neq,
        task_user_data: doca_data,
        ctx_user_data: doca_data,
    ),
>;
unsafe extern "C" {
    pub fn doca_version_runtime() -> *const ::core::ffi::c_char;
    pub fn doca_error_get_name(error: doca_error_t) -> *const ::core::ffi::c_char;
    pub fn doca_error_get_descr(error: doca_error_t) -> *const ::core::ffi::c_char;
    pub fn doca_log_backend_set_level_lower_limit(backend: *mut doca_log_backend, level: u32)
    -> doca_error_t;
    pub fn doca_log_backend_set_level_upper_limit(
        backend: *mut doca_log_backend,
        upper_limit: u32,
    ) -> doca_error_t;
    pub fn doca_log_backend_set_level_lower_limit_strict(backend: *mut doca_log_backend) -> doca_error_t;
    pub fn doca_log_backend_set_level_upper_limit_strict(backend: *mut doca_log_backend) -> doca_error_t;
    pub fn doca_log_level_set_global_lower_limit(level: u32) -> doca_error_t;
    pub fn doca_log_level_set_global_upper_limit(upper_limit: u32) -> doca_error_t;
    pub fn doca_log_level_get_global_lower_limit() -> u32;
    pub fn doca_log_level_get_global_upper_limit() -> u32;
    pub fn doca_log_register_source(
        source_name: *const ::core::ffi::c_char,
        source: *mut ::core::ffi::c_int,
    ) -> doca_error_t;
    pub fn doca_log_unregister_source(source: ::core::ffi::c_int) -> doca_error_t;
    pub fn doca_log_backend_create_with_file(
        fptr: *mut FILE,
        backend: *mut *mut doca_log_backend,
    ) -> doca_error_t;
    pub fn doca_log_backend_create_with_fd(
        fd: ::core::ffi::c_int,
        backend: *mut *mut doca_log_backend,
    ) -> doca_error_t;
    pub fn doca_log_backend_create_with_buf(
        buf: *mut ::core::ffi::c_char,
        capacity: usize,
        handler: log_flush_callback,
        backend: *mut *mut doca_log_backend,
    ) -> doca_error_t;
    pub fn doca_log_backend_create_with_syslog(
        name: *const ::core::ffi::c_char,
        backend: *mut *mut doca_log_backend,
    ) -> doca_error_t;
    pub fn doca_log_backend_set_sdk_level(backend: *mut doca_log_backend, level: u32) -> doca_error_t;
    pub fn doca_log_backend_create_with_file_sdk(
        fptr: *mut FILE,
        backend: *mut *mut doca_log_backend,
    ) -> doca_error_t;
    pub fn doca_log_backend_create_with_fd_sdk(
        fd: ::core::ffi::c_int,
        backend: *mut *mut doca_log_backend,
    ) -> doca_error_t;
    pub fn doca_log_backend_create_with_buf_sdk(
        buf: *mut ::core::ffi::c_char,
        capacity: usize,
        handler: log_flush_callback,
        backend: *mut *mut doca_log_backend,
    ) -> doca_error_t;
    pub fn doca_log_backend_create_with_syslog_sdk(
        name: *const ::core::ffi::c_char,
        backend: *mut *mut doca_log_backend,
    ) -> doca_error_t;
    pub fn doca_log_level_set_global_sdk_limit(level: u32) -> doca_error_t;
    pub fn doca_log_level_get_global_sdk_limit() -> u32;
    pub fn doca_log_backend_create_standard() -> doca_error_t;
    pub fn doca_log(
        level: u32,
        source: ::core::ffi::c_int,
        fname: *const ::core::ffi::c_char,
        line: ::core::ffi::c_int,
        func: *const ::core::ffi::c_char,
        format: *const ::core::ffi::c_char,
        ...
    ) -> doca_error_t;
    pub fn doca_argp_usage();
    pub fn doca_argp_init(
        program_name: *const ::core::ffi::c_char,
        program_config: *mut ::core::ffi::c_void,
    ) -> doca_error_t;
    pub fn doca_argp_register_param(input_param: *mut doca_argp_param) -> doca_error_t;
    pub fn doca_argp_register_cmd(input_cmd: *mut doca_argp_cmd) -> doca_error_t;
    pub fn doca_argp_register_version_callback(callback: doca_argp_param_cb_t) -> doca_error_t;
    pub fn doca_argp_register_validation_callback(callback: doca_argp_validation_cb_t) -> doca_error_t;
    pub fn doca_argp_register_logger_callback(callback: doca_argp_logger_cb_t) -> doca_error_t;
    pub fn doca_argp_disable_logger_callback() -> doca_error_t;
    pub fn doca_argp_start(argc: ::core::ffi::c_int, argv: *mut *mut ::core::ffi::c_char) -> doca_error_t;
    pub fn doca_argp_destroy() -> doca_error_t;
    pub fn doca_argp_set_dpdk_program(callback: doca_argp_dpdk_cb_t);
    pub fn doca_argp_param_create(param: *mut *mut doca_argp_param) -> doca_error_t;
    pub fn doca_argp_param_set_short_name(param: *mut doca_argp_param, name: *const ::core::ffi::c_char);
    pub fn doca_argp_param_set_long_name(param: *mut doca_argp_param, name: *const ::core::ffi::c_char);
    pub fn doca_argp_param_set_arguments(param: *mut doca_argp_param, arguments: *const ::core::ffi::c_char);
    pub fn doca_argp_param_set_description(
        param: *mut doca_argp_param,
        description: *const ::core::ffi::c_char,
    );
    pub fn doca_argp_param_set_callback(param: *mut doca_argp_param, callback: doca_argp_param_cb_t);
    pub fn doca_argp_param_set_type(param: *mut doca_argp_param, type_: doca_argp_type);
    pub fn doca_argp_param_set_mandatory(param: *mut doca_argp_param);
    pub fn doca_argp_param_set_cli_only(param: *mut doca_argp_param);
    pub fn doca_argp_param_set_multiplicity(param: *mut doca_argp_param);
    pub fn doca_argp_param_set_singular(param: *mut doca_argp_param);
    pub fn doca_argp_param_set_inherited(param: *mut doca_argp_param);
    pub fn doca_argp_param_set_hidden(param: *mut doca_argp_param);
    pub fn doca_argp_param_destroy(param: *mut doca_argp_param) -> doca_error_t;
    pub fn doca_argp_cmd_create(cmd: *mut *mut doca_argp_cmd) -> doca_error_t;
    pub fn doca_argp_cmd_set_name(cmd: *mut doca_argp_cmd, name: *const ::core::ffi::c_char);
    pub fn doca_argp_cmd_set_description(cmd: *mut doca_argp_cmd, description: *const ::core::ffi::c_char);
    pub fn doca_argp_cmd_set_callback(cmd: *mut doca_argp_cmd, callback: doca_argp_cmd_cb_t);
    pub fn doca_argp_cmd_set_hidden(cmd: *mut doca_argp_cmd);
    pub fn doca_argp_cmd_register_param(
        cmd: *mut doca_argp_cmd,
        input_param: *mut doca_argp_param,
    ) -> doca_error_t;
    pub fn doca_argp_cmd_register_cmd(cmd: *mut doca_argp_cmd, input_cmd: *mut doca_argp_cmd)
    -> doca_error_t;
    pub fn doca_argp_cmd_destroy(cmd: *mut doca_argp_cmd) -> doca_error_t;
    pub fn doca_argp_get_log_level(log_level: *mut ::core::ffi::c_int) -> doca_error_t;
    pub fn doca_argp_get_sdk_log_level(log_level: *mut ::core::ffi::c_int) -> doca_error_t;
    pub fn doca_buf_inc_refcount(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t;
    pub fn doca_buf_dec_refcount(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t;
    pub fn doca_buf_get_refcount(buf: *const doca_buf, refcount: *mut u16) -> doca_error_t;
    pub fn doca_buf_get_len(buf: *const doca_buf, len: *mut usize) -> doca_error_t;
    pub fn doca_buf_get_head(buf: *const doca_buf, head: *mut *mut ::core::ffi::c_void) -> doca_error_t;
    pub fn doca_buf_get_data_len(buf: *const doca_buf, data_len: *mut usize) -> doca_error_t;
    pub fn doca_buf_get_data(buf: *const doca_buf, data: *mut *mut ::core::ffi::c_void) -> doca_error_t;
    pub fn doca_buf_set_data(
        buf: *mut doca_buf,
        data: *mut ::core::ffi::c_void,
        data_len: usize,
    ) -> doca_error_t;
    pub fn doca_buf_set_data_len(buf: *mut doca_buf, data_len: usize) -> doca_error_t;
    pub fn doca_buf_reset_data_len(buf: *mut doca_buf) -> doca_error_t;
    pub fn doca_buf_get_next_in_list(buf: *mut doca_buf, next_buf: *mut *mut doca_buf) -> doca_error_t;
    pub fn doca_buf_get_last_in_list(buf: *mut doca_buf, last_buf: *mut *mut doca_buf) -> doca_error_t;
    pub fn doca_buf_is_last_in_list(buf: *const doca_buf, is_last: *mut u8) -> doca_error_t;
    pub fn doca_buf_is_first_in_list(buf: *const doca_buf, is_first: *mut u8) -> doca_error_t;
    pub fn doca_buf_is_in_list(buf: *const doca_buf, is_in_list: *mut u8) -> doca_error_t;
    pub fn doca_buf_get_list_len(buf: *const doca_buf, num_elements: *mut u32) -> doca_error_t;
    pub fn doca_buf_chain_list(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t;
    pub fn doca_buf_chain_list_tail(
        list1_head: *mut doca_buf,
        list1_tail: *mut doca_buf,
        list2: *mut doca_buf,
    ) -> doca_error_t;
    pub fn doca_buf_unchain_list(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t;
    pub fn doca_devinfo_create_list(dev_list: *mut *mut *mut doca_devinfo, nb_devs: *mut u32)
    -> doca_error_t;
    pub fn doca_devinfo_destroy_list(dev_list: *mut *mut doca_devinfo) -> doca_error_t;
    pub fn doca_devinfo_rep_create_list(
        dev: *mut doca_dev,
        filter: ::core::ffi::c_int,
        dev_list_rep: *mut *mut *mut doca_devinfo_rep,
        nb_devs_rep: *mut u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_destroy_list(dev_list_rep: *mut *mut doca_devinfo_rep) -> doca_error_t;
    pub fn doca_dev_open(devinfo: *mut doca_devinfo, dev: *mut *mut doca_dev) -> doca_error_t;
    pub fn doca_dev_close(dev: *mut doca_dev) -> doca_error_t;
    pub fn doca_dev_accelerate_resource_reclaim(dev: *mut doca_dev) -> doca_error_t;
    pub fn doca_dev_rep_open(devinfo: *mut doca_devinfo_rep, dev_rep: *mut *mut doca_dev_rep)
    -> doca_error_t;
    pub fn doca_dev_rep_close(dev: *mut doca_dev_rep) -> doca_error_t;
    pub fn doca_dev_as_devinfo(dev: *const doca_dev) -> *mut doca_devinfo;
    pub fn doca_dev_rep_as_devinfo(dev_rep: *mut doca_dev_rep) -> *mut doca_devinfo_rep;
    pub fn doca_devinfo_get_pci_addr_str(
        devinfo: *const doca_devinfo,
        pci_addr_str: *mut ::core::ffi::c_char,
    ) -> doca_error_t;
    pub fn doca_devinfo_is_equal_pci_addr(
        devinfo: *const doca_devinfo,
        pci_addr_str: *const ::core::ffi::c_char,
        is_equal: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_ipv4_addr(
        devinfo: *const doca_devinfo,
        ipv4_addr: *mut u8,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_ipv6_addr(
        devinfo: *const doca_devinfo,
        ipv6_addr: *mut u8,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_mac_addr(
        devinfo: *const doca_devinfo,
        mac_addr: *mut u8,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_iface_name(
        devinfo: *const doca_devinfo,
        iface_name: *mut ::core::ffi::c_char,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_ibdev_name(
        devinfo: *const doca_devinfo,
        ibdev_name: *mut ::core::ffi::c_char,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_lid(devinfo: *const doca_devinfo, lid: *mut u16) -> doca_error_t;
    pub fn doca_devinfo_get_active_rate(devinfo: *const doca_devinfo, active_rate: *mut u64) -> doca_error_t;
    pub fn doca_devinfo_get_vhca_id(devinfo: *const doca_devinfo, vhca_id: *mut u16) -> doca_error_t;
    pub fn doca_devinfo_cap_is_hotplug_manager_supported(
        devinfo: *const doca_devinfo,
        is_hotplug_manager: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_cap_is_notification_moderation_supported(
        devinfo: *const doca_devinfo,
        is_notification_moderation_supported: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_cap_is_filter_all_supported(
        devinfo: *const doca_devinfo,
        filter_all_supported: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_cap_is_filter_net_supported(
        devinfo: *const doca_devinfo,
        filter_net_supported: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_cap_is_filter_emulated_supported(
        devinfo: *const doca_devinfo,
        filter_emulated_supported: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_cap_is_accelerate_resource_reclaim_supported(
        devinfo: *const doca_devinfo,
        is_accelerate_resource_reclaim: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_vuid(
        devinfo_rep: *const doca_devinfo_rep,
        rep_vuid: *mut ::core::ffi::c_char,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_pci_addr_str(
        devinfo_rep: *const doca_devinfo_rep,
        pci_addr_str: *mut ::core::ffi::c_char,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_pci_func_type(
        devinfo_rep: *const doca_devinfo_rep,
        pci_func_type: *mut doca_pci_func_type,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_is_hotplug(
        devinfo_rep: *const doca_devinfo_rep,
        is_hotplug: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_iface_name(
        devinfo_rep: *const doca_devinfo_rep,
        iface_name: *mut ::core::ffi::c_char,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_get_vhca_id(
        devinfo_rep: *const doca_devinfo_rep,
        vhca_id: *mut u16,
    ) -> doca_error_t;
    pub fn doca_devinfo_rep_is_equal_pci_addr(
        devinfo_rep: *const doca_devinfo_rep,
        pci_addr_str: *const ::core::ffi::c_char,
        is_equal: *mut u8,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_pci_func_type(
        devinfo: *const doca_devinfo,
        pci_func_type: *mut doca_pci_func_type,
    ) -> doca_error_t;
    pub fn doca_devinfo_get_sf_index(devinfo: *const doca_devinfo, sf_index: *mut u32) -> doca_error_t;
    pub fn doca_mmap_create(mmap: *mut *mut doca_mmap) -> doca_error_t;
    pub fn doca_mmap_destroy(mmap: *mut doca_mmap) -> doca_error_t;
    pub fn doca_mmap_start(mmap: *mut doca_mmap) -> doca_error_t;
    pub fn doca_mmap_stop(mmap: *mut doca_mmap) -> doca_error_t;
    pub fn doca_mmap_add_dev(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t;
    pub fn doca_mmap_rm_dev(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t;
    pub fn doca_mmap_export_pci(
        mmap: *mut doca_mmap,
        dev: *const doca_dev,
        export_desc: *mut *const ::core::ffi::c_void,
        export_desc_len: *mut usize,
    ) -> doca_error_t;
    pub fn doca_mmap_export_rdma(
        mmap: *mut doca_mmap,
        dev: *const doca_dev,
        export_desc: *mut *const ::core::ffi::c_void,
        export_desc_len: *mut usize,
    ) -> doca_error_t;
    pub fn doca_mmap_dev_get_dpa_handle(
        mmap: *mut doca_mmap,
        dev: *const doca_dev,
        dpa_mmap_handle: *mut doca_dpa_dev_mmap_t,
    ) -> doca_error_t;
    pub fn doca_mmap_get_mkey(mmap: *mut doca_mmap, dev: *const doca_dev, mkey: *mut u32) -> doca_error_t;
    pub fn doca_mmap_create_from_export(
        user_data: *const doca_data,
        export_desc: *const ::core::ffi::c_void,
        export_desc_len: usize,
        dev: *mut doca_dev,
        mmap: *mut *mut doca_mmap,
    ) -> doca_error_t;
    pub fn doca_mmap_set_memrange(
        mmap: *mut doca_mmap,
        addr: *mut ::core::ffi::c_void,
        len: usize,
    ) -> doca_error_t;
    pub fn doca_mmap_set_dmabuf_memrange(
        mmap: *mut doca_mmap,
        dmabuf_fd: ::core::ffi::c_int,
        addr: *mut ::core::ffi::c_void,
        dmabuf_offset: usize,
        len: usize,
    ) -> doca_error_t;
    pub fn doca_mmap_set_dpa_memrange(
        mmap: *mut doca_mmap,
        dpa: *mut doca_dpa,
        dpa_addr: u64,
        len: usize,
    ) -> doca_error_t;
    pub fn doca_mmap_get_memrange(
        mmap: *const doca_mmap,
        addr: *mut *mut ::core::ffi::c_void,
        len: *mut usize,
    ) -> doca_error_t;
    pub fn doca_mmap_set_free_cb(
        mmap: *mut doca_mmap,
        free_cb: doca_mmap_memrange_free_cb_t,
        opaque: *mut ::core::ffi::c_void,
    ) -> doca_error_t;
    pub fn doca_mmap_get_user_data(mmap: *const doca_mmap, user_data: *mut doca_data) -> doca_error_t;
    pub fn doca_mmap_get_max_num_devices(mmap: *const doca_mmap, max_num_devices: *mut u32) -> doca_error_t;
    pub fn doca_mmap_get_num_bufs(mmap: *const doca_mmap, num_bufs: *mut u32) -> doca_error_t;
    pub fn doca_mmap_get_exported(mmap: *const doca_mmap, exported: *mut u8) -> doca_error_t;
    pub fn doca_mmap_get_from_export(mmap: *const doca_mmap, from_export: *mut u8) -> doca_error_t;
    pub fn doca_mmap_set_max_num_devices(mmap: *mut doca_mmap, max_num_devices: u32) -> doca_error_t;
    pub fn doca_mmap_set_permissions(mmap: *mut doca_mmap, access_mask: u32) -> doca_error_t;
    pub fn doca_mmap_set_user_data(mmap: *mut doca_mmap, user_data: doca_data) -> doca_error_t;
    pub fn doca_mmap_cap_is_export_pci_supported(
        devinfo: *const doca_devinfo,
        mmap_export: *mut u8,
    ) -> doca_error_t;
    pub fn doca_mmap_cap_is_create_from_export_pci_supported(
        devinfo: *const doca_devinfo,
        from_export: *mut u8,
    ) -> doca_error_t;
    pub fn doca_mmap_enable_thread_safety(mmap: *mut doca_mmap) -> doca_error_t;
    pub fn doca_buf_inventory_create(
        num_elements: usize,
        inventory: *mut *mut doca_buf_inventory,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_destroy(inventory: *mut doca_buf_inventory) -> doca_error_t;
    pub fn doca_buf_inventory_start(inventory: *mut doca_buf_inventory) -> doca_error_t;
    pub fn doca_buf_inventory_stop(inventory: *mut doca_buf_inventory) -> doca_error_t;
    pub fn doca_buf_inventory_buf_get_by_args(
        inventory: *mut doca_buf_inventory,
        mmap: *mut doca_mmap,
        addr: *mut ::core::ffi::c_void,
        len: usize,
        data: *mut ::core::ffi::c_void,
        data_len: usize,
        buf: *mut *mut doca_buf,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_buf_reuse_by_args(
        buf: *mut doca_buf,
        addr: *mut ::core::ffi::c_void,
        len: usize,
        data: *mut ::core::ffi::c_void,
        data_len: usize,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_buf_dup(
        inventory: *mut doca_buf_inventory,
        src_buf: *const doca_buf,
        dst_buf: *mut *mut doca_buf,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_set_user_data(
        inventory: *mut doca_buf_inventory,
        user_data: doca_data,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_get_num_elements(
        inventory: *const doca_buf_inventory,
        num_of_elements: *mut u32,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_get_num_free_elements(
        inventory: *const doca_buf_inventory,
        num_of_free_elements: *mut u32,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_get_user_data(
        inventory: *const doca_buf_inventory,
        user_data: *mut doca_data,
    ) -> doca_error_t;
    pub fn doca_buf_inventory_expand(inventory: *mut doca_buf_inventory, num_elements: u32) -> doca_error_t;
    pub fn doca_buf_pool_create(
        num_elements: usize,
        element_size: usize,
        mmap: *const doca_mmap,
        buf_pool: *mut *mut doca_buf_pool,
    ) -> doca_error_t;
    pub fn doca_buf_pool_destroy(buf_pool: *mut doca_buf_pool) -> doca_error_t;
    pub fn doca_buf_pool_start(buf_pool: *mut doca_buf_pool) -> doca_error_t;
    pub fn doca_buf_pool_stop(buf_pool: *mut doca_buf_pool) -> doca_error_t;
    pub fn doca_buf_pool_buf_alloc(buf_pool: *mut doca_buf_pool, buf: *mut *mut doca_buf) -> doca_error_t;
    pub fn doca_buf_pool_set_user_data(buf_pool: *mut doca_buf_pool, user_data: doca_data) -> doca_error_t;
    pub fn doca_buf_pool_set_element_alignment(
        buf_pool: *mut doca_buf_pool,
        element_alignment: usize,
    ) -> doca_error_t;
    pub fn doca_buf_pool_get_num_elements(
        buf_pool: *const doca_buf_pool,
        num_of_elements: *mut u32,
    ) -> doca_error_t;
    pub fn doca_buf_pool_get_num_free_elements(
        buf_pool: *const doca_buf_pool,
        num_of_free_elements: *mut u32,
    ) -> doca_error_t;
    pub fn doca_buf_pool_get_user_data(
        buf_pool: *const doca_buf_pool,
        user_data: *mut doca_data,
    ) -> doca_error_t;
    pub fn doca_buf_pool_get_element_alignment(
        buf_pool: *const doca_buf_pool,
        element_alignment: *mut usize,
    ) -> doca_error_t;
    pub fn doca_ctx_start(ctx: *mut doca_ctx) -> doca_error_t;
    pub fn doca_ctx_stop(ctx: *mut doca_ctx) -> doca_error_t;
    pub fn doca_ctx_get_num_inflight_tasks(
        ctx: *const doca_ctx,
        num_inflight_tasks: *mut usize,
    ) -> doca_error_t;
    pub fn doca_ctx_set_datapath_on_gpu(ctx: *mut doca_ctx, gpu_dev: *mut doca_gpu) -> doca_error_t;
    pub fn doca_ctx_set_user_data(ctx: *mut doca_ctx, user_data: doca_data) -> doca_error_t;
    pub fn doca_ctx_get_user_data(ctx: *const doca_ctx, user_data: *mut doca_data) -> doca_error_t;
    pub fn doca_ctx_set_state_changed_cb(
        ctx: *mut doca_ctx,
        cb: doca_ctx_state_changed_callback_t,
    ) -> doca_error_t;
    pub fn doca_ctx_get_state(ctx: *const doca_ctx, state: *mut doca_ctx_states) -> doca_error_t;
    pub fn doca_ctx_flush_tasks(ctx: *mut doca_ctx);
    pub fn doca_ctx_set_datapath_on_dpa(ctx: *mut doca_ctx, dpa_dev: *mut doca_dpa) -> doca_error_t;
    pub fn doca_ctx_set_completion_vector(ctx: *mut doca_ctx, comp_vector: u32) -> doca_error_t;
    pub fn doca_ctx_cap_get_num_completion_vectors(
        devinfo: *const doca_devinfo,
        num_comp_vectors: *mut u32,
    ) -> doca_error_t;
    pub fn doca_pe_create(pe: *mut *mut doca_pe) -> doca_error_t;
    pub fn doca_pe_destroy(pe: *mut doca_pe) -> doca_error_t;
    pub fn doca_pe_progress(pe: *mut doca_pe) -> u8;
    pub fn doca_pe_get_notification_handle(
        pe: *const doca_pe,
        handle: *mut doca_notification_handle_t,
    ) -> doca_error_t;
    pub fn doca_pe_set_notification_handle(
        pe: *mut doca_pe,
        handle: doca_notification_handle_t,
        completion_key: doca_data,
    ) -> doca_error_t;
    pub fn doca_pe_clear_notification(pe: *mut doca_pe, handle: doca_notification_handle_t) -> doca_error_t;
    pub fn doca_pe_request_notification(pe: *mut doca_pe) -> doca_error_t;
    pub fn doca_pe_get_num_inflight_tasks(pe: *const doca_pe, num_inflight_tasks: *mut usize)
    -> doca_error_t;
    pub fn doca_task_submit(task: *mut doca_task) -> doca_error_t;
    pub fn doca_task_submit_ex(task: *mut doca_task, flags: u32) -> doca_error_t;
    pub fn doca_task_batch_submit(task_batch: *mut doca_task_batch) -> doca_error_t;
    pub fn doca_task_try_submit(task: *mut doca_task) -> doca_error_t;
    pub fn doca_task_batch_try_submit(task_batch: *mut doca_task_batch) -> doca_error_t;
    pub fn doca_task_free(task: *mut doca_task);
    pub fn doca_task_batch_free(task_batch: *mut doca_task_batch);
    pub fn doca_task_get_status(task: *const doca_task) -> doca_error_t;
    pub fn doca_task_batch_get_status(task_batch: *const doca_task_batch) -> doca_error_t;
    pub fn doca_task_set_user_data(task: *mut doca_task, user_data: doca_data);
    pub fn doca_task_batch_set_user_data(task_batch: *mut doca_task_batch, user_data: doca_data);
    pub fn doca_task_get_user_data(task: *const doca_task) -> doca_data;
    pub fn doca_task_batch_get_user_data(task_batch: *const doca_task_batch) -> doca_data;
    pub fn doca_task_get_ctx(task: *const doca_task) -> *mut doca_ctx;
    pub fn doca_task_batch_get_ctx(task_batch: *const doca_task_batch) -> *mut doca_ctx;
    pub fn doca_task_batch_get_ctx_user_data(task_batch: *const doca_task_batch) -> doca_data;
    pub fn doca_task_batch_get_tasks_num(task_batch: *mut doca_task_batch) -> u16;
    pub fn doca_pe_connect_ctx(pe: *mut doca_pe, ctx: *mut doca_ctx) -> doca_error_t;
    pub fn doca_pe_set_event_mode(pe: *mut doca_pe, event_mode: doca_pe_event_mode) -> doca_error_t;
    pub fn doca_comch_connection_set_user_data(
        connection: *mut doca_comch_connection,
        user_data: doca_data,
    ) -> doca_error_t;
    pub fn doca_comch_connection_get_user_data(connection: *const doca_comch_connection) -> doca_data;
    pub fn doca_comch_server_get_server_ctx(
        connection: *const doca_comch_connection,
    ) -> *mut doca_comch_server;
    pub fn doca_comch_client_get_client_ctx(
        connection: *const doca_comch_connection,
    ) -> *mut doca_comch_client;
    pub fn doca_comch_cap_get_max_name_len(
        devinfo: *const doca_devinfo,
        max_name_len: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comch_cap_get_max_msg_size(devinfo: *const doca_devinfo, size: *mut u32) -> doca_error_t;
    pub fn doca_comch_cap_get_max_recv_queue_size(
        devinfo: *const doca_devinfo,
        size: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comch_cap_get_max_clients(
        devinfo: *const doca_devinfo,
        num_clients: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comch_server_create(
        dev: *mut doca_dev,
        repr: *mut doca_dev_rep,
        name: *const ::core::ffi::c_char,
        comch_server: *mut *mut doca_comch_server,
    ) -> doca_error_t;
    pub fn doca_comch_server_destroy(comch_server: *mut doca_comch_server) -> doca_error_t;
    pub fn doca_comch_cap_server_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_comch_server_set_max_msg_size(
        comch_server: *mut doca_comch_server,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_comch_server_get_max_msg_size(
        comch_server: *const doca_comch_server,
        size: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comch_server_set_recv_queue_size(
        comch_server: *mut doca_comch_server,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_comch_server_get_recv_queue_size(
        comch_server: *const doca_comch_server,
        size: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comch_server_get_device(
        comch_server: *const doca_comch_server,
        dev: *mut *mut doca_dev,
    ) -> doca_error_t;
    pub fn doca_comch_server_get_device_rep(
        comch_server: *const doca_comch_server,
        rep: *mut *mut doca_dev_rep,
    ) -> doca_error_t;
    pub fn doca_comch_server_as_ctx(comch_server: *mut doca_comch_server) -> *mut doca_ctx;
    pub fn doca_comch_server_disconnect(
        comch_server: *mut doca_comch_server,
        connection: *mut doca_comch_connection,
    ) -> doca_error_t;
    pub fn doca_comch_client_create(
        dev: *mut doca_dev,
        name: *const ::core::ffi::c_char,
        comch_client: *mut *mut doca_comch_client,
    ) -> doca_error_t;
    pub fn doca_comch_client_destroy(comch_client: *mut doca_comch_client) -> doca_error_t;
    pub fn doca_comch_cap_client_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_comch_client_set_max_msg_size(
        comch_client: *mut doca_comch_client,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_comch_client_get_max_msg_size(
        comch_client: *const doca_comch_client,
        size: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comch_client_set_recv_queue_size(
        comch_client: *mut doca_comch_client,
        size: u32,
    ) -> doca_error_t;
    pub fn doca_comch_client_get_recv_queue_size(
        comch_client: *const doca_comch_client,
        size: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comch_client_get_device(
        comch_client: *const doca_comch_client,
        dev: *mut *mut doca_dev,
    ) -> doca_error_t;
    pub fn doca_comch_client_as_ctx(comch_client: *mut doca_comch_client) -> *mut doca_ctx;
    pub fn doca_comch_client_get_connection(
        comch_client: *const doca_comch_client,
        connection: *mut *mut doca_comch_connection,
    ) -> doca_error_t;
    pub fn doca_comch_cap_get_max_send_tasks(
        devinfo: *const doca_devinfo,
        max_send_tasks: *mut u32,
    ) -> doca_error_t;
    pub fn doca_comch_server_task_send_set_conf(
        comch_server: *mut doca_comch_server,
        task_completion_cb: doca_comch_task_send_completion_cb_t,
        task_error_cb: doca_comch_task_send_completion_cb_t,
        num_send_tasks: u32,
    ) -> doca_error_t;
    pub fn doca_comch_client_task_send_set_conf(
        comch_client: *mut doca_comch_client,
        task_completion_cb: doca_comch_task_send_completion_cb_t,
        task_error_cb: doca_comch_task_send_completion_cb_t,
        num_send_tasks: u32,
    ) -> doca_error_t;
    pub fn doca_comch_server_task_send_alloc_init(
        comch_server: *mut doca_comch_server,
        peer: *mut doca_comch_connection,
        msg: *const ::core::ffi::c_void,
        len: u32,
        task: *mut *mut doca_comch_task_send,
    ) -> doca_error_t;
    pub fn doca_comch_client_task_send_alloc_init(
        comch_client: *mut doca_comch_client,
        peer: *mut doca_comch_connection,
        msg: *const ::core::ffi::c_void,
        len: u32,
        task: *mut *mut doca_comch_task_send,
    ) -> doca_error_t;
    pub fn doca_comch_task_send_as_task(task: *mut doca_comch_task_send) -> *mut doca_task;
    pub fn doca_comch_server_event_msg_recv_register(
        comch_server: *mut doca_comch_server,
        recv_event_cb: doca_comch_event_msg_recv_cb_t,
    ) -> doca_error_t;
    pub fn doca_comch_client_event_msg_recv_register(
        comch_client: *mut doca_comch_client,
        recv_event_cb: doca_comch_event_msg_recv_cb_t,
    ) -> doca_error_t;
    pub fn doca_comch_server_event_connection_status_changed_register(
        comch_server: *mut doca_comch_server,
        connect_event_cb: doca_comch_event_connection_status_changed_cb_t,
        disconnect_event_cb: doca_comch_event_connection_status_changed_cb_t,
    ) -> doca_error_t;
    pub fn doca_comch_server_event_connection_register(
        comch_server: *mut doca_comch_server,
        connect_event_cb: doca_comch_event_connection_status_changed_cb_t,
        disconnect_event_cb: doca_comch_event_connection_status_changed_cb_t,
    ) -> doca_error_t;
    pub fn doca_comch_connection_update_info(comch_connection: *mut doca_comch_connection) -> doca_error_t;
    pub fn doca_comch_connection_get_counter(
        comch_connection: *const doca_comch_connection,
        counter_type: doca_comch_counter,
        counter_value: *mut u64,
    ) -> doca_error_t;
    pub fn doca_comch_server_event_consumer_register(
        comch_server: *mut doca_comch_server,
        new_consumer_event_cb: doca_comch_event_consumer_cb_t,
        expired_consumer_event_cb: doca_comch_event_consumer_cb_t,
    ) -> doca_error_t;
    pub fn doca_comch_client_event_consumer_register(
        comch_client: *mut doca_comch_client,
        new_consumer_event_cb: doca_comch_event_consumer_cb_t,
        expired_consumer_event_cb: doca_comch_event_consumer_cb_t,
    ) -> doca_error_t;
    pub fn doca_dma_create(dev: *mut doca_dev, dma: *mut *mut doca_dma) -> doca_error_t;
    pub fn doca_dma_destroy(dma: *mut doca_dma) -> doca_error_t;
    pub fn doca_dma_cap_task_memcpy_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_dma_as_ctx(dma: *mut doca_dma) -> *mut doca_ctx;
    pub fn doca_dma_cap_get_max_num_tasks(dma: *mut doca_dma, max_num_tasks: *mut u32) -> doca_error_t;
    pub fn doca_dma_cap_task_memcpy_get_max_buf_list_len(
        devinfo: *const doca_devinfo,
        max_buf_list_len: *mut u32,
    ) -> doca_error_t;
    pub fn doca_dma_cap_task_memcpy_get_max_buf_size(
        devinfo: *const doca_devinfo,
        buf_size: *mut u64,
    ) -> doca_error_t;
    pub fn doca_dma_task_memcpy_set_conf(
        dma: *mut doca_dma,
        task_completion_cb: doca_dma_task_memcpy_completion_cb_t,
        task_error_cb: doca_dma_task_memcpy_completion_cb_t,
        num_memcpy_tasks: u32,
    ) -> doca_error_t;
    pub fn doca_dma_task_memcpy_alloc_init(
        dma: *mut doca_dma,
        src: *const doca_buf,
        dst: *mut doca_buf,
        user_data: doca_data,
        task: *mut *mut doca_dma_task_memcpy,
    ) -> doca_error_t;
    pub fn doca_dma_task_memcpy_as_task(task: *mut doca_dma_task_memcpy) -> *mut doca_task;
    pub fn doca_dma_task_memcpy_set_src(task: *mut doca_dma_task_memcpy, src: *const doca_buf);
    pub fn doca_dma_task_memcpy_get_src(task: *const doca_dma_task_memcpy) -> *const doca_buf;
    pub fn doca_dma_task_memcpy_set_dst(task: *mut doca_dma_task_memcpy, dst: *mut doca_buf);
    pub fn doca_dma_task_memcpy_get_dst(task: *const doca_dma_task_memcpy) -> *mut doca_buf;
    pub fn doca_dma_get_gpu_handle(dma: *mut doca_dma, gpu_dma: *mut *mut doca_gpu_dma) -> doca_error_t;
    pub fn doca_dma_set_ordered_completions(dma: *mut doca_dma, enable: u8) -> doca_error_t;
    pub fn doca_sync_event_create(event: *mut *mut doca_sync_event) -> doca_error_t;
    pub fn doca_sync_event_create_from_export(
        dev: *mut doca_dev,
        data: *const u8,
        sz: usize,
        event: *mut *mut doca_sync_event,
    ) -> doca_error_t;
    pub fn doca_sync_event_cap_is_create_from_export_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_sync_event_remote_net_create_from_export(
        dev: *mut doca_dev,
        data: *const u8,
        sz: usize,
        event: *mut *mut doca_sync_event_remote_net,
    ) -> doca_error_t;
    pub fn doca_sync_event_cap_remote_net_is_create_from_export_supported(
        devinfo: *const doca_devinfo,
    ) -> doca_error_t;
    pub fn doca_sync_event_destroy(event: *mut doca_sync_event) -> doca_error_t;
    pub fn doca_sync_event_remote_net_destroy(event: *mut doca_sync_event_remote_net) -> doca_error_t;
    pub fn doca_sync_event_add_publisher_location_cpu(
        event: *mut doca_sync_event,
        dev: *mut doca_dev,
    ) -> doca_error_t;
    pub fn doca_sync_event_add_publisher_location_dpa(
        event: *mut doca_sync_event,
        dpa: *mut doca_dpa,
    ) -> doca_error_t;
    pub fn doca_sync_event_add_publisher_location_gpu(
        event: *mut doca_sync_event,
        gpu: *mut doca_gpu,
    ) -> doca_error_t;
    pub fn doca_sync_event_add_publisher_location_remote_pci(event: *mut doca_sync_event) -> doca_error_t;
    pub fn doca_sync_event_add_publisher_location_remote_net(event: *mut doca_sync_event) -> doca_error_t;
    pub fn doca_sync_event_add_subscriber_location_cpu(
        event: *mut doca_sync_event,
        dev: *mut doca_dev,
    ) -> doca_error_t;
    pub fn doca_sync_event_add_subscriber_location_dpa(
        event: *mut doca_sync_event,
        dpa: *mut doca_dpa,
    ) -> doca_error_t;
    pub fn doca_sync_event_add_subscriber_location_gpu(
        event: *mut doca_sync_event,
        gpu: *mut doca_gpu,
    ) -> doca_error_t;
    pub fn doca_sync_event_add_subscriber_location_remote_pci(event: *mut doca_sync_event) -> doca_error_t;
    pub fn doca_sync_event_set_addr(event: *mut doca_sync_event, addr: *mut u64) -> doca_error_t;
    pub fn doca_sync_event_set_doca_buf(event: *mut doca_sync_event, buf: *mut doca_buf) -> doca_error_t;
    pub fn doca_sync_event_start(event: *mut doca_sync_event) -> doca_error_t;
    pub fn doca_sync_event_stop(event: *mut doca_sync_event) -> doca_error_t;
    pub fn doca_sync_event_as_ctx(event: *mut doca_sync_event) -> *mut doca_ctx;
    pub fn doca_sync_event_cap_task_get_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_sync_event_task_get_set_conf(
        event: *mut doca_sync_event,
        completion_cb: doca_sync_event_task_get_completion_cb_t,
        error_cb: doca_sync_event_task_get_completion_cb_t,
        num_tasks: u32,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_get_alloc_init(
        event: *mut doca_sync_event,
        ret_val_ptr: *mut u64,
        user_data: doca_data,
        task: *mut *mut doca_sync_event_task_get,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_get_as_doca_task(task: *mut doca_sync_event_task_get) -> *mut doca_task;
    pub fn doca_sync_event_task_get_set_ret_val_ptr(
        task: *mut doca_sync_event_task_get,
        ret_val_ptr: *mut u64,
    );
    pub fn doca_sync_event_task_get_get_ret_val_ptr(task: *const doca_sync_event_task_get) -> *mut u64;
    pub fn doca_sync_event_cap_task_notify_set_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_sync_event_task_notify_set_set_conf(
        event: *mut doca_sync_event,
        completion_cb: doca_sync_event_task_notify_set_completion_cb_t,
        error_cb: doca_sync_event_task_notify_set_completion_cb_t,
        num_tasks: u32,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_notify_set_alloc_init(
        event: *mut doca_sync_event,
        set_val: u64,
        user_data: doca_data,
        task: *mut *mut doca_sync_event_task_notify_set,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_notify_set_as_doca_task(
        task: *mut doca_sync_event_task_notify_set,
    ) -> *mut doca_task;
    pub fn doca_sync_event_task_notify_set_set_set_val(
        task: *mut doca_sync_event_task_notify_set,
        set_val: u64,
    );
    pub fn doca_sync_event_task_notify_set_get_set_val(task: *const doca_sync_event_task_notify_set) -> u64;
    pub fn doca_sync_event_cap_task_notify_add_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_sync_event_task_notify_add_set_conf(
        event: *mut doca_sync_event,
        completion_cb: doca_sync_event_task_notify_add_completion_cb_t,
        error_cb: doca_sync_event_task_notify_add_completion_cb_t,
        num_tasks: u32,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_notify_add_alloc_init(
        event: *mut doca_sync_event,
        inc_val: u64,
        fetched_val_ptr: *mut u64,
        user_data: doca_data,
        task: *mut *mut doca_sync_event_task_notify_add,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_notify_add_as_doca_task(
        task: *mut doca_sync_event_task_notify_add,
    ) -> *mut doca_task;
    pub fn doca_sync_event_task_notify_add_set_inc_val(
        task: *mut doca_sync_event_task_notify_add,
        inc_val: u64,
    );
    pub fn doca_sync_event_task_notify_add_get_inc_val(task: *const doca_sync_event_task_notify_add) -> u64;
    pub fn doca_sync_event_task_notify_add_set_fetched_val_ptr(
        task: *mut doca_sync_event_task_notify_add,
        fetched_val_ptr: *mut u64,
    );
    pub fn doca_sync_event_task_notify_add_get_fetched_val_ptr(
        task: *const doca_sync_event_task_notify_add,
    ) -> *mut u64;
    pub fn doca_sync_event_cap_task_wait_eq_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_sync_event_task_wait_eq_set_conf(
        event: *mut doca_sync_event,
        completion_cb: doca_sync_event_task_wait_eq_completion_cb_t,
        error_cb: doca_sync_event_task_wait_eq_completion_cb_t,
        num_tasks: u32,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_wait_eq_alloc_init(
        event: *mut doca_sync_event,
        wait_val: u64,
        mask: u64,
        user_data: doca_data,
        task: *mut *mut doca_sync_event_task_wait_eq,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_wait_eq_as_doca_task(
        task: *mut doca_sync_event_task_wait_eq,
    ) -> *mut doca_task;
    pub fn doca_sync_event_task_wait_eq_set_wait_val(task: *mut doca_sync_event_task_wait_eq, wait_val: u64);
    pub fn doca_sync_event_task_wait_eq_get_wait_val(task: *const doca_sync_event_task_wait_eq) -> u64;
    pub fn doca_sync_event_task_wait_eq_set_mask(task: *mut doca_sync_event_task_wait_eq, mask: u64);
    pub fn doca_sync_event_task_wait_eq_get_mask(task: *const doca_sync_event_task_wait_eq) -> u64;
    pub fn doca_sync_event_cap_task_wait_neq_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_sync_event_task_wait_neq_set_conf(
        event: *mut doca_sync_event,
        completion_cb: doca_sync_event_task_wait_neq_completion_cb_t,
        error_cb: doca_sync_event_task_wait_neq_completion_cb_t,
        num_tasks: u32,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_wait_neq_alloc_init(
        event: *mut doca_sync_event,
        wait_val: u64,
        mask: u64,
        user_data: doca_data,
        task: *mut *mut doca_sync_event_task_wait_neq,
    ) -> doca_error_t;
    pub fn doca_sync_event_task_wait_neq_as_doca_task(
        task: *mut doca_sync_event_task_wait_neq,
    ) -> *mut doca_task;
    pub fn doca_sync_event_task_wait_neq_set_wait_val(
        task: *mut doca_sync_event_task_wait_neq,
        wait_val: u64,
    );
    pub fn doca_sync_event_task_wait_neq_get_wait_val(task: *const doca_sync_event_task_wait_neq) -> u64;
    pub fn doca_sync_event_task_wait_neq_set_mask(task: *mut doca_sync_event_task_wait_neq, mask: u64);
    pub fn doca_sync_event_task_wait_neq_get_mask(task: *const doca_sync_event_task_wait_neq) -> u64;
    pub fn doca_sync_event_export_to_remote_pci(
        event: *mut doca_sync_event,
        dev: *mut doca_dev,
        data: *mut *const u8,
        sz: *mut usize,
    ) -> doca_error_t;
    pub fn doca_sync_event_cap_is_export_to_remote_pci_supported(
        devinfo: *const doca_devinfo,
    ) -> doca_error_t;
    pub fn doca_sync_event_get_dpa_handle(
        event: *mut doca_sync_event,
        dpa: *mut doca_dpa,
        dpa_dev_se_handle: *mut doca_dpa_dev_sync_event_t,
    ) -> doca_error_t;
    pub fn doca_sync_event_cap_is_export_to_dpa_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_sync_event_get_gpu_handle(
        event: *mut doca_sync_event,
        gpu: *mut doca_gpu,
        gpu_dev_se: *mut *mut doca_gpu_dev_sync_event_t,
    ) -> doca_error_t;
    pub fn doca_sync_event_cap_is_export_to_gpu_supported(devinfo: *const doca_devinfo) -> doca_error_t;
    pub fn doca_sync_event_export_to_remote_net(
        event: *mut doca_sync_event,
        data: *mut *const u8,
        sz: *mut usize,
    ) -> doca_error_t;
    pub fn doca_sync_event_cap_is_export_to_remote_net_supported(
        devinfo: *const doca_devinfo,
    ) -> doca_error_t;
    pub fn doca_sync_event_remote_net_get_dpa_handle(
        event: *mut doca_sync_event_remote_net,
        dpa: *mut doca_dpa,
        dpa_remote_event: *mut doca_dpa_dev_sync_event_remote_net_t,
    ) -> doca_error_t;
    pub fn doca_sync_event_cap_remote_net_is_export_to_dpa_supported(
        devinfo: *const doca_devinfo,
    ) -> doca_error_t;
    pub fn doca_sync_event_remote_net_get_gpu_handle(
        event: *mut doca_sync_event_remote_net,
        gpu: *mut doca_gpu,
        gpu_remote_event: *mut doca_gpu_dev_sync_event_remote_net_t,
    ) -> doca_error_t;
    pub fn doca_sync_event_cap_remote_net_is_export_to_gpu_supported(
        devinfo: *const doca_devinfo,
    ) -> doca_error_t;
    pub fn doca_sync_event_get(event: *mut doca_sync_event, value: *mut u64) -> doca_error_t;
    pub fn doca_sync_event_update_add(
        event: *mut doca_sync_event,
        value: u64,
        fetched: *mut u64,
    ) -> doca_error_t;
    pub fn doca_sync_event_update_set(event: *mut doca_sync_event, value: u64) -> doca_error_t;
    pub fn doca_sync_event_wait_gt(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;
    pub fn doca_sync_event_wait_gt_yield(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;
    pub fn doca_sync_event_wait_eq(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;
    pub fn doca_sync_event_wait_eq_yield(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;
    pub fn doca_sync_event_wait_neq(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;
    pub fn doca_sync_event_wait_neq_yield(event: *mut doca_sync_event, value: u64, mask: u64)
    -> doca_error_t;
}
