//! Tables of the stand-in SDK's functions, which are linked into the test.
#![allow(dead_code, reason = "each test uses only a part of this module")]
#![allow(unreachable_pub, reason = "shared by several tests")]
#![expect(unsafe_code, reason = "takes the addresses of C functions")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use dma_doca::{DocaEngine, DocaOptions};
use doca_emu as _;
use doca_sys::{Comch, Common, Dma, Library, bindings};

macro_rules! calls {
    ($($name:ident)*) => {
        /// Returns the address of the stand-in's function of this name.
        pub fn address(name: &CStr) -> Option<NonNull<c_void>> {
            match name.to_str().ok()? {
                $(stringify!($name) => NonNull::new((bindings::$name as *const ()).cast_mut().cast()),)*
                _ => None,
            }
        }
    };
}

/// Returns the stand-in's calls without those named in `absent`.
pub fn library_without(absent: &[&str]) -> Library {
    library_with(absent, |_, _| {})
}

/// Returns the stand-in's calls without those named in `absent`, and with the replacements that `change`
/// makes.
pub fn library_with(absent: &[&str], change: impl FnOnce(&mut Common, &mut Dma)) -> Library {
    let get = |name: &'static CStr| {
        if absent.iter().any(|absent| *absent == name.to_str().unwrap()) { None } else { address(name) }
    };
    // SAFETY: the program is linked with the stand-in's functions of these names, which have the
    // declared signatures.
    let mut common = unsafe { Common::load(get) }.unwrap();
    // SAFETY: the stand-in's functions have the declared signatures, and are linked into the program.
    let mut dma = unsafe { Dma::load(get) }.unwrap();
    change(&mut common, &mut dma);
    // SAFETY: the stand-in's functions have the declared signatures, and are linked into the program.
    let comch = unsafe { Comch::load(get) }.ok();
    // SAFETY: the stand-in's functions behave as the SDK's. A test that replaces one makes the same promise,
    // or checks that the engine refuses the answer.
    unsafe { Library::from_tables(common, dma, comch, "stand-in") }
}

/// Returns all of the stand-in's calls.
pub fn library() -> Library {
    library_without(&[])
}

/// Makes a card that `config` describes, and opens its first device.
pub fn engine(config: &str) -> DocaEngine {
    try_engine(config, DocaOptions::new()).unwrap()
}

/// Makes a card that `config` describes, and opens the device that `options` name.
pub fn try_engine(config: &str, options: DocaOptions) -> dma_core::Result<DocaEngine> {
    doca_emu::use_config(Some(config)).unwrap();
    DocaEngine::open(&options.with_library(library()))
}

calls! {
    doca_buf_chain_list
    doca_buf_dec_refcount
    doca_buf_inventory_buf_get_by_args
    doca_buf_inventory_create
    doca_buf_inventory_destroy
    doca_buf_inventory_expand
    doca_buf_inventory_start
    doca_buf_set_data
    doca_comch_cap_client_is_supported
    doca_comch_cap_get_max_msg_size
    doca_comch_cap_get_max_name_len
    doca_comch_cap_get_max_send_tasks
    doca_comch_cap_server_is_supported
    doca_comch_client_as_ctx
    doca_comch_client_create
    doca_comch_client_destroy
    doca_comch_client_event_msg_recv_register
    doca_comch_client_get_connection
    doca_comch_client_set_max_msg_size
    doca_comch_client_task_send_alloc_init
    doca_comch_client_task_send_set_conf
    doca_comch_server_as_ctx
    doca_comch_server_create
    doca_comch_server_destroy
    doca_comch_server_disconnect
    doca_comch_server_event_connection_status_changed_register
    doca_comch_server_event_msg_recv_register
    doca_comch_server_set_max_msg_size
    doca_comch_server_task_send_alloc_init
    doca_comch_server_task_send_set_conf
    doca_comch_task_send_as_task
    doca_ctx_flush_tasks
    doca_ctx_get_state
    doca_ctx_set_user_data
    doca_ctx_start
    doca_ctx_stop
    doca_dev_as_devinfo
    doca_dev_close
    doca_dev_open
    doca_dev_rep_close
    doca_dev_rep_open
    doca_devinfo_create_list
    doca_devinfo_destroy_list
    doca_devinfo_get_ibdev_name
    doca_devinfo_get_iface_name
    doca_devinfo_get_pci_addr_str
    doca_devinfo_get_pci_func_type
    doca_devinfo_rep_create_list
    doca_devinfo_rep_destroy_list
    doca_devinfo_rep_get_iface_name
    doca_devinfo_rep_get_pci_addr_str
    doca_devinfo_rep_get_pci_func_type
    doca_devinfo_rep_get_vuid
    doca_dma_as_ctx
    doca_dma_cap_get_max_num_tasks
    doca_dma_cap_task_memcpy_get_max_buf_list_len
    doca_dma_cap_task_memcpy_get_max_buf_size
    doca_dma_cap_task_memcpy_is_supported
    doca_dma_create
    doca_dma_destroy
    doca_dma_task_memcpy_alloc_init
    doca_dma_task_memcpy_as_task
    doca_dma_task_memcpy_set_conf
    doca_dma_task_memcpy_set_dst
    doca_dma_task_memcpy_set_src
    doca_error_get_descr
    doca_error_get_name
    doca_log_backend_create_with_fd_sdk
    doca_log_backend_set_sdk_level
    doca_mmap_add_dev
    doca_mmap_cap_is_create_from_export_pci_supported
    doca_mmap_cap_is_export_pci_supported
    doca_mmap_create
    doca_mmap_create_from_export
    doca_mmap_destroy
    doca_mmap_export_pci
    doca_mmap_export_rdma
    doca_mmap_get_memrange
    doca_mmap_set_dmabuf_memrange
    doca_mmap_set_memrange
    doca_mmap_set_permissions
    doca_mmap_start
    doca_pe_clear_notification
    doca_pe_connect_ctx
    doca_pe_create
    doca_pe_destroy
    doca_pe_get_notification_handle
    doca_pe_progress
    doca_pe_request_notification
    doca_task_free
    doca_task_get_status
    doca_task_submit
    doca_task_submit_ex
    doca_version_runtime
}
