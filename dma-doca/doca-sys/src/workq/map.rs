//! Memory maps.
//!
//! From 2.0 on they differ from later ones in names. 1.5 adds devices and memory to a started map, and its
//! exports grant reading and writing.
#![expect(unsafe_code, reason = "calls C with handles that it gave out")]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use super::calls;
use crate::bindings::*;

/// The smallest page of supported machines, which 1.5 asks for.
const PAGE: usize = 4096;

unsafe extern "C" {
    /// Of the C library.
    fn free(block: *mut c_void);
}

/// A map: the caller's `doca_mmap`.
struct Map {
    raw: *mut doca_mmap,
    /// Settings that DOCA 1.5 takes after the start.
    dev: Cell<*mut doca_dev>,
    range: Cell<(*mut c_void, usize)>,
    free: Cell<(doca_mmap_memrange_free_cb_t, *mut c_void)>,
    /// The descriptor that 1.5 leaves to the caller.
    descriptor: Cell<*mut c_void>,
}

impl Map {
    fn give(raw: *mut doca_mmap) -> *mut doca_mmap {
        let map = Self {
            raw,
            dev: Cell::new(ptr::null_mut()),
            range: Cell::new((ptr::null_mut(), 0)),
            free: Cell::new((None, ptr::null_mut())),
            descriptor: Cell::new(ptr::null_mut()),
        };
        Box::into_raw(Box::new(map)).cast()
    }
}

/// The map behind a handle.
///
/// # Safety
///
/// The handle is one that `create` or `import` gave out, and was not destroyed.
unsafe fn of<'a>(mmap: *const doca_mmap) -> &'a Map {
    // SAFETY: the caller's promise; only shared references exist.
    unsafe { &*mmap.cast::<Map>() }
}

pub(super) unsafe extern "C" fn create(mmap: *mut *mut doca_mmap) -> doca_error_t {
    let mut raw = ptr::null_mut();
    // SAFETY: no user data, and a place for the handle.
    let code = unsafe { (calls().common.doca_mmap_create)(ptr::null(), &raw mut raw) };
    if code == DOCA_SUCCESS {
        // SAFETY: the caller's place for the handle.
        unsafe { mmap.write(Map::give(raw)) };
    }
    code
}

pub(super) unsafe extern "C" fn destroy(mmap: *mut doca_mmap) -> doca_error_t {
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    // SAFETY: the library's handle.
    let code = unsafe { (calls().common.doca_mmap_destroy)(map.raw) };
    if code == DOCA_SUCCESS {
        // SAFETY: NULL, or what the library allocated and left to its caller.
        unsafe { free(map.descriptor.get()) };
        // SAFETY: made by `give`, and not used again.
        drop(unsafe { Box::from_raw(mmap.cast::<Map>()) });
    }
    code
}

pub(super) unsafe extern "C" fn set_memrange(
    mmap: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
) -> doca_error_t {
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    map.range.set((addr, len));
    match calls().common.doca_mmap_set_memrange {
        // SAFETY: the library's handle, and the caller's memory.
        Some(set) => unsafe { set(map.raw, addr, len) },
        None => DOCA_SUCCESS,
    }
}

/// The flags have the numbers of later versions. 1.5 has none, and grants peers all or nothing.
pub(super) unsafe extern "C" fn set_permissions(mmap: *mut doca_mmap, access_mask: u32) -> doca_error_t {
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    match calls().common.doca_mmap_set_permissions {
        // SAFETY: the library's handle.
        Some(set) => unsafe { set(map.raw, access_mask) },
        None if access_mask & DOCA_ACCESS_FLAG_PCI_READ_ONLY != 0 => DOCA_ERROR_NOT_SUPPORTED,
        None => DOCA_SUCCESS,
    }
}

pub(super) unsafe extern "C" fn set_free_cb(
    mmap: *mut doca_mmap,
    free_cb: doca_mmap_memrange_free_cb_t,
    opaque: *mut c_void,
) -> doca_error_t {
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    map.free.set((free_cb, opaque));
    match calls().common.doca_mmap_set_free_cb {
        // SAFETY: the library's handle, and the caller's function.
        Some(set) => unsafe { set(map.raw, free_cb, opaque) },
        None => DOCA_SUCCESS,
    }
}

pub(super) unsafe extern "C" fn add_dev(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t {
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    if calls().common.doca_mmap_populate.is_some() {
        map.dev.set(dev);
        return DOCA_SUCCESS;
    }
    // SAFETY: the library's handle, and the caller's device.
    unsafe { (calls().common.doca_mmap_dev_add)(map.raw, dev) }
}

pub(super) unsafe extern "C" fn start(mmap: *mut doca_mmap) -> doca_error_t {
    let common = &calls().common;
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    let Some(populate) = common.doca_mmap_populate else {
        // SAFETY: the library's handle.
        return unsafe { (common.doca_mmap_start)(map.raw) };
    };
    if let Some(set) = common.doca_mmap_set_max_num_chunks {
        // One is enough, and others may not be allowed. SAFETY: the library's handle.
        unsafe { set(map.raw, 1) };
    }
    // SAFETY: as above.
    let code = unsafe { (common.doca_mmap_start)(map.raw) };
    if code != DOCA_SUCCESS {
        return code;
    }
    // SAFETY: as above, and the caller's device.
    let code = unsafe { (common.doca_mmap_dev_add)(map.raw, map.dev.get()) };
    if code != DOCA_SUCCESS {
        return code;
    }
    let ((addr, len), (free_cb, opaque)) = (map.range.get(), map.free.get());
    // SAFETY: the caller's memory, and its function.
    unsafe { populate(map.raw, addr, len, PAGE, free_cb, opaque) }
}

pub(super) unsafe extern "C" fn import(
    user_data: *const doca_data,
    export_desc: *const c_void,
    export_desc_len: usize,
    dev: *mut doca_dev,
    mmap: *mut *mut doca_mmap,
) -> doca_error_t {
    let Some(create) = calls().common.doca_mmap_create_from_export else { return DOCA_ERROR_NOT_SUPPORTED };
    let mut raw = ptr::null_mut();
    // SAFETY: the caller's descriptor and device, and a place for the handle.
    let code = unsafe { create(user_data, export_desc, export_desc_len, dev, &raw mut raw) };
    if code == DOCA_SUCCESS {
        // SAFETY: the caller's place for the handle.
        unsafe { mmap.write(Map::give(raw)) };
    }
    code
}

pub(super) unsafe extern "C" fn export_pci(
    mmap: *mut doca_mmap,
    dev: *const doca_dev,
    export_desc: *mut *const c_void,
    export_desc_len: *mut usize,
) -> doca_error_t {
    let common = &calls().common;
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    if let Some(export) = common.doca_mmap_export_dpu {
        // SAFETY: the library's handle, the caller's device and places.
        return unsafe { export(map.raw, dev, export_desc, export_desc_len) };
    }
    let Some(export) = common.doca_mmap_export else { return DOCA_ERROR_NOT_SUPPORTED };
    let mut descriptor = ptr::null_mut();
    // SAFETY: as above.
    let code = unsafe { export(map.raw, dev, &raw mut descriptor, export_desc_len) };
    if code == DOCA_SUCCESS {
        // SAFETY: NULL, or the descriptor of an earlier call, which this one replaces.
        unsafe { free(map.descriptor.replace(descriptor)) };
        // SAFETY: the caller's place.
        unsafe { export_desc.write(descriptor) };
    }
    code
}

pub(super) unsafe extern "C" fn export_rdma(
    mmap: *mut doca_mmap,
    dev: *const doca_dev,
    export_desc: *mut *const c_void,
    export_desc_len: *mut usize,
) -> doca_error_t {
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    match calls().common.doca_mmap_export_rdma {
        // SAFETY: the library's handle, the caller's device and places.
        Some(export) => unsafe { export(map.raw, dev, export_desc, export_desc_len) },
        None => DOCA_ERROR_NOT_SUPPORTED,
    }
}

pub(super) unsafe extern "C" fn get_memrange(
    mmap: *const doca_mmap,
    addr: *mut *mut c_void,
    len: *mut usize,
) -> doca_error_t {
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    match calls().common.doca_mmap_get_memrange {
        // SAFETY: the library's handle, and the caller's places.
        Some(get) => unsafe { get(map.raw, addr, len) },
        None => DOCA_ERROR_NOT_SUPPORTED,
    }
}

pub(super) unsafe extern "C" fn buf_get_by_args(
    inventory: *mut doca_buf_inventory,
    mmap: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
    data: *mut c_void,
    data_len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    // SAFETY: the caller's handle.
    let map = unsafe { of(mmap) };
    let get = calls().common.doca_buf_inventory_buf_by_args;
    // SAFETY: the caller's inventory and place, the library's map.
    unsafe { get(inventory, map.raw, addr, len, data, data_len, buf) }
}
