//! DOCA 1.5 to 2.2, used through the calls of later versions.
//!
//! [`tables`] makes the tables [`Common`] and [`Dma`] of a library of that generation. A call that was only
//! renamed is the library's own. All other calls are functions of this module, which take handles of this
//! module:
//!
//! | later versions | here | of that generation |
//! |---|---|---|
//! | progress engine, DMA context | `queue` | context, work queue, device |
//! | task | `queue` | job, submitted again and again |
//! | memory map | `map`, for 1.5 | memory map, to which 1.5 adds memory and devices after its start |
//!
//! Calls without an equivalent in this generation are absent, such as those for submission flags and for
//! limits of tasks.
#![expect(unsafe_code, reason = "calls C")]

#[expect(clashing_extern_declarations, reason = "later versions have calls of the same names")]
pub mod bindings;
#[rustfmt::skip]
mod call_bindings;
mod map;
mod queue;
mod table;

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bindings::{DOCA_BUF_EXTENSION_LINKED_LIST, DOCA_BUF_EXTENSION_NONE, DOCA_DMA_JOB_MEMCPY, doca_pci_bdf};
pub use table::{WorkqCommon, WorkqDma};

use crate::bindings::{
    DOCA_SUCCESS, doca_buf, doca_buf_inventory, doca_ctx, doca_devinfo, doca_devinfo_rep, doca_error_t,
    doca_mmap,
};
use crate::{Common, Dma};

/// The calls and the file of a library.
#[derive(Debug)]
struct Calls {
    common: WorkqCommon,
    dma: WorkqDma,
    path: PathBuf,
}

/// The library that the functions here call. It is stored globally, because it cannot be found from a handle:
/// many handles are the library's own.
static CALLS: OnceLock<Calls> = OnceLock::new();

fn calls() -> &'static Calls {
    CALLS.get().expect("the tables are made after it is set")
}

/// Makes the tables of a library, whose file is `path`.
///
/// # Errors
///
/// The file of another library, if the process already uses one.
///
/// # Safety
///
/// Each function must be that of the library of its name, and the library must stay loaded.
pub unsafe fn tables(common: &WorkqCommon, dma: &WorkqDma, path: &Path) -> Result<(Common, Dma), PathBuf> {
    let calls = CALLS.get_or_init(|| Calls { common: *common, dma: *dma, path: path.to_owned() });
    if calls.common.doca_workq_create as usize != common.doca_workq_create as usize {
        return Err(calls.path.clone());
    }
    Ok((common_table(common), dma_table(dma)))
}

/// Returns the required calls that the library lacks. A call that has alternatives is missing only if the
/// library has none of them.
#[must_use]
pub fn missing(common: &WorkqCommon) -> Vec<&'static str> {
    let alternatives = [
        (
            common.doca_mmap_populate.is_some() || common.doca_mmap_set_memrange.is_some(),
            "doca_mmap_populate or doca_mmap_set_memrange",
        ),
        (
            common.doca_devinfo_get_pci_addr.is_some() || common.doca_devinfo_get_pci_addr_str.is_some(),
            "doca_devinfo_get_pci_addr or doca_devinfo_get_pci_addr_str",
        ),
    ];
    alternatives.into_iter().filter(|(there, _)| !there).map(|(_, names)| names).collect()
}

fn common_table(own: &WorkqCommon) -> Common {
    let events = own.doca_workq_set_event_driven_enable.is_some()
        && own.doca_workq_get_event_handle.is_some()
        && own.doca_workq_event_handle_arm.is_some()
        && own.doca_workq_event_handle_clear.is_some();
    let later = Common {
        doca_buf_dec_refcount: buf_dec_refcount,
        doca_buf_inventory_buf_get_by_args: own.doca_buf_inventory_buf_by_args,
        doca_buf_inventory_create: inventory_create,
        doca_buf_inventory_destroy: own.doca_buf_inventory_destroy,
        doca_buf_inventory_start: own.doca_buf_inventory_start,
        doca_buf_set_data: own.doca_buf_set_data,
        doca_ctx_get_state: queue::ctx_get_state,
        doca_ctx_set_user_data: queue::ctx_set_user_data,
        doca_ctx_start: queue::ctx_start,
        doca_ctx_stop: queue::ctx_stop,
        doca_dev_as_devinfo: own.doca_dev_as_devinfo,
        doca_dev_close: own.doca_dev_close,
        doca_dev_open: own.doca_dev_open,
        doca_devinfo_create_list: own.doca_devinfo_list_create,
        doca_devinfo_destroy_list: own.doca_devinfo_list_destroy,
        doca_devinfo_get_pci_addr_str: own.doca_devinfo_get_pci_addr_str.unwrap_or(devinfo_get_pci_addr_str),
        doca_error_get_descr: own.doca_get_error_string,
        doca_error_get_name: own.doca_get_error_name,
        doca_mmap_add_dev: own.doca_mmap_dev_add,
        doca_mmap_create: mmap_create,
        doca_mmap_destroy: own.doca_mmap_destroy,
        doca_mmap_set_memrange: own.doca_mmap_set_memrange.unwrap_or(map::set_memrange),
        doca_mmap_set_permissions: own.doca_mmap_set_permissions.unwrap_or(map::set_permissions),
        doca_mmap_start: own.doca_mmap_start,
        doca_pe_connect_ctx: queue::pe_connect_ctx,
        doca_pe_create: queue::pe_create,
        doca_pe_destroy: queue::pe_destroy,
        doca_pe_progress: queue::pe_progress,
        doca_task_free: queue::task_free,
        doca_task_get_status: queue::task_get_status,
        doca_task_submit: queue::task_submit,
        doca_buf_chain_list: own.doca_buf_list_chain,
        doca_buf_inventory_expand: None,
        doca_ctx_flush_tasks: Some(ctx_flush_tasks),
        doca_dev_rep_close: own.doca_dev_rep_close,
        doca_dev_rep_open: own.doca_dev_rep_open,
        doca_devinfo_get_ibdev_name: own.doca_devinfo_get_ibdev_name,
        doca_devinfo_get_iface_name: own.doca_devinfo_get_iface_name,
        doca_devinfo_get_pci_func_type: None,
        doca_devinfo_rep_create_list: own.doca_devinfo_rep_list_create,
        doca_devinfo_rep_destroy_list: own.doca_devinfo_rep_list_destroy,
        doca_devinfo_rep_get_iface_name: None,
        doca_devinfo_rep_get_pci_addr_str: own
            .doca_devinfo_rep_get_pci_addr_str
            .or_else(|| own.doca_devinfo_rep_get_pci_addr.map(|_| rep_get_pci_addr_str as _)),
        doca_devinfo_rep_get_pci_func_type: own.doca_devinfo_rep_get_pci_func_type,
        doca_devinfo_rep_get_vuid: own.doca_devinfo_rep_get_vuid,
        doca_log_backend_create_with_fd_sdk: None,
        doca_log_backend_set_sdk_level: None,
        doca_mmap_cap_is_create_from_export_pci_supported: own
            .doca_devinfo_get_is_mmap_from_export_dpu_supported
            .or(own.doca_devinfo_get_is_mmap_from_export_supported),
        doca_mmap_cap_is_export_pci_supported: own
            .doca_devinfo_get_is_mmap_export_dpu_supported
            .or(own.doca_devinfo_get_is_mmap_export_supported),
        doca_mmap_create_from_export: own.doca_mmap_create_from_export,
        doca_mmap_export_pci: own.doca_mmap_export_dpu,
        doca_mmap_export_rdma: own.doca_mmap_export_rdma,
        doca_mmap_get_memrange: own.doca_mmap_get_memrange,
        doca_mmap_set_dmabuf_memrange: None,
        doca_pe_clear_notification: events.then_some(queue::pe_clear_notification),
        doca_pe_get_notification_handle: events.then_some(queue::pe_get_notification_handle),
        doca_pe_request_notification: events.then_some(queue::pe_request_notification),
        doca_task_submit_ex: None,
        doca_version_runtime: own.doca_version_runtime,
    };
    if own.doca_mmap_set_memrange.is_some() {
        return later;
    }
    Common {
        doca_buf_inventory_buf_get_by_args: map::buf_get_by_args,
        doca_mmap_add_dev: map::add_dev,
        doca_mmap_create: map::create,
        doca_mmap_destroy: map::destroy,
        doca_mmap_set_permissions: map::set_permissions,
        doca_mmap_start: map::start,
        doca_mmap_create_from_export: own.doca_mmap_create_from_export.map(|_| map::import as _),
        doca_mmap_export_pci: own.doca_mmap_export.map(|_| map::export as _),
        doca_mmap_export_rdma: None,
        doca_mmap_get_memrange: None,
        ..later
    }
}

fn dma_table(own: &WorkqDma) -> Dma {
    Dma {
        doca_dma_as_ctx: queue::dma_as_ctx,
        doca_dma_cap_task_memcpy_get_max_buf_size: own.doca_dma_get_max_buf_size,
        doca_dma_cap_task_memcpy_is_supported: memcpy_is_supported,
        doca_dma_create: queue::dma_create,
        doca_dma_destroy: queue::dma_destroy,
        doca_dma_task_memcpy_alloc_init: queue::task_alloc_init,
        doca_dma_task_memcpy_as_task: queue::memcpy_as_task,
        doca_dma_task_memcpy_set_conf: queue::set_conf,
        doca_dma_task_memcpy_set_dst: queue::set_dst,
        doca_dma_task_memcpy_set_src: queue::set_src,
        doca_dma_cap_get_max_num_tasks: None,
        doca_dma_cap_task_memcpy_get_max_buf_list_len: own.doca_dma_get_max_list_buf_num_elem,
    }
}

/// Releases a reference to a buffer. Always passes a pointer for the count, because 1.5 does not document
/// that NULL is allowed.
unsafe extern "C" fn buf_dec_refcount(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t {
    let mut before = 0;
    let place = if refcount.is_null() { &raw mut before } else { refcount };
    // SAFETY: the caller passes a valid buffer, and `place` can be written.
    unsafe { (calls().common.doca_buf_refcount_rm)(buf, place) }
}

/// Creates an inventory. In 1.5, lists need an extension of the inventory. If the library does not know the
/// extension, the inventory is created without it.
unsafe extern "C" fn inventory_create(count: usize, inventory: *mut *mut doca_buf_inventory) -> doca_error_t {
    let create = calls().common.doca_buf_inventory_create;
    if calls().common.doca_mmap_populate.is_some() && calls().common.doca_buf_list_chain.is_some() {
        // SAFETY: the user data may be NULL, and the caller passes a pointer that can be written.
        let code = unsafe { create(std::ptr::null(), count, DOCA_BUF_EXTENSION_LINKED_LIST, inventory) };
        if code == DOCA_SUCCESS {
            return code;
        }
    }
    // SAFETY: the user data may be NULL, and the caller passes a pointer that can be written.
    unsafe { create(std::ptr::null(), count, DOCA_BUF_EXTENSION_NONE, inventory) }
}

unsafe extern "C" fn mmap_create(mmap: *mut *mut doca_mmap) -> doca_error_t {
    // SAFETY: the user data may be NULL, and the caller passes a pointer that can be written.
    unsafe { (calls().common.doca_mmap_create)(std::ptr::null(), mmap) }
}

unsafe extern "C" fn memcpy_is_supported(devinfo: *const doca_devinfo) -> doca_error_t {
    // SAFETY: the caller passes a valid device, which the call does not change. The header lacks the `const`
    // by mistake.
    unsafe { (calls().dma.doca_dma_job_get_supported)(devinfo.cast_mut(), DOCA_DMA_JOB_MEMCPY) }
}

/// Does nothing, because every submission rings the doorbell.
unsafe extern "C" fn ctx_flush_tasks(_: *mut doca_ctx) {}

unsafe extern "C" fn devinfo_get_pci_addr_str(
    devinfo: *const doca_devinfo,
    text: *mut c_char,
) -> doca_error_t {
    // SAFETY: the caller passes a valid device, and an array with room for 13 bytes.
    unsafe { write_address(calls().common.doca_devinfo_get_pci_addr, devinfo, text) }
}

unsafe extern "C" fn rep_get_pci_addr_str(rep: *const doca_devinfo_rep, text: *mut c_char) -> doca_error_t {
    // SAFETY: the caller passes a valid representor, and an array with room for 13 bytes.
    unsafe { write_address(calls().common.doca_devinfo_rep_get_pci_addr, rep, text) }
}

/// Writes the PCI address of a function as text. The domain is 0, because 1.5 does not report the domain.
///
/// # Safety
///
/// `text` has room for 13 bytes, and `function` is valid for `get`.
unsafe fn write_address<T>(
    get: Option<unsafe extern "C" fn(*const T, *mut doca_pci_bdf) -> doca_error_t>,
    function: *const T,
    text: *mut c_char,
) -> doca_error_t {
    let Some(get) = get else { return crate::bindings::DOCA_ERROR_NOT_SUPPORTED };
    let mut bdf = doca_pci_bdf::default();
    // SAFETY: the caller promises that `function` is valid for `get`, and `bdf` can be written.
    let code = unsafe { get(function, &raw mut bdf) };
    if code == DOCA_SUCCESS {
        let (bus, device, function) = (bdf.raw & 0xff, bdf.raw >> 8 & 0x1f, bdf.raw >> 13);
        let address = format!("0000:{bus:02x}:{device:02x}.{function:x}\0");
        // SAFETY: the address has 12 characters and a NUL, and the caller promises room for 13 bytes.
        unsafe { text.cast::<u8>().copy_from_nonoverlapping(address.as_ptr(), address.len()) };
    }
    code
}

/// The value for jobs and calls without flags.
const NO_FLAGS: c_int = 0;
