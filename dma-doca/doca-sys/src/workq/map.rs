//! Memory maps of DOCA 1.5, which adds devices and memory to a started map, and whose exports always grant
//! reading and writing. The calls of 2.0 to 2.2 differ from later ones only in their names.
#![expect(unsafe_code, reason = "calls C with handles that it gave out")]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use super::calls;
use crate::bindings::*;

/// The smallest page size of supported machines. DOCA 1.5 requires a page size.
const PAGE: usize = 4096;

unsafe extern "C" {
    fn free(block: *mut c_void);
}

/// A memory map, to which the caller's handle `doca_mmap` points.
struct Map {
    raw: *mut doca_mmap,
    /// The device, which the library accepts only after the start.
    dev: Cell<*mut doca_dev>,
    /// The address and length of the memory, which the library accepts only after the start.
    range: Cell<(*mut c_void, usize)>,
    /// The descriptor of the last export. The library allocated it, and this module must free it.
    descriptor: Cell<*mut c_void>,
}

/// If `code` is success, makes a [`Map`] of the library's map `raw`, and writes its handle to `mmap`.
///
/// # Safety
///
/// `mmap` can be written.
unsafe fn give(code: doca_error_t, raw: *mut doca_mmap, mmap: *mut *mut doca_mmap) -> doca_error_t {
    if code == DOCA_SUCCESS {
        let map = Map {
            raw,
            dev: Cell::new(ptr::null_mut()),
            range: Cell::new((ptr::null_mut(), 0)),
            descriptor: Cell::new(ptr::null_mut()),
        };
        // SAFETY: the caller passes a pointer that can be written.
        unsafe { mmap.write(Box::into_raw(Box::new(map)).cast()) };
    }
    code
}

/// Returns the [`Map`] behind a handle.
///
/// # Safety
///
/// `create` or `import` returned the handle, and the map was not destroyed.
unsafe fn of<'a>(mmap: *const doca_mmap) -> &'a Map {
    // SAFETY: the caller passes a handle that `create` or `import` returned and that was not destroyed. Only
    // shared references to the object exist.
    unsafe { &*mmap.cast::<Map>() }
}

pub(super) unsafe extern "C" fn create(mmap: *mut *mut doca_mmap) -> doca_error_t {
    let mut raw = ptr::null_mut();
    // SAFETY: `raw` is a local variable, to which the handle can be written.
    let code = unsafe { super::mmap_create(&raw mut raw) };
    // SAFETY: the caller passes a pointer that can be written.
    unsafe { give(code, raw, mmap) }
}

pub(super) unsafe extern "C" fn destroy(mmap: *mut doca_mmap) -> doca_error_t {
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let map = unsafe { of(mmap) };
    // SAFETY: the map is the library's, and the caller does not use it after a success.
    let code = unsafe { (calls().common.doca_mmap_destroy)(map.raw) };
    if code == DOCA_SUCCESS {
        // SAFETY: the descriptor is NULL, or was allocated by the library for its caller to free, and is not
        // used again.
        unsafe { free(map.descriptor.get()) };
        // SAFETY: `give` made the object, and neither the handle nor `map` is used again.
        drop(unsafe { Box::from_raw(mmap.cast::<Map>()) });
    }
    code
}

pub(super) unsafe extern "C" fn set_memrange(
    mmap: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
) -> doca_error_t {
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    unsafe { of(mmap) }.range.set((addr, len));
    DOCA_SUCCESS
}

/// Refuses read-only exports, because DOCA 1.5 gives peers either all rights or none.
pub(super) unsafe extern "C" fn set_permissions(_: *mut doca_mmap, access_mask: u32) -> doca_error_t {
    if access_mask & DOCA_ACCESS_FLAG_PCI_READ_ONLY != 0 { DOCA_ERROR_NOT_SUPPORTED } else { DOCA_SUCCESS }
}

pub(super) unsafe extern "C" fn add_dev(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t {
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    unsafe { of(mmap) }.dev.set(dev);
    DOCA_SUCCESS
}

pub(super) unsafe extern "C" fn start(mmap: *mut doca_mmap) -> doca_error_t {
    let common = &calls().common;
    let Some(populate) = common.doca_mmap_populate else { return DOCA_ERROR_NOT_SUPPORTED };
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let map = unsafe { of(mmap) };
    if let Some(set) = common.doca_mmap_set_max_num_chunks {
        // A map needs only one chunk, and the library may refuse other limits.
        // SAFETY: the map is the library's, and is not started yet.
        unsafe { set(map.raw, 1) };
    }
    // SAFETY: the map is the library's, and this handle owns it.
    let mut code = unsafe { (common.doca_mmap_start)(map.raw) };
    if code == DOCA_SUCCESS {
        // SAFETY: the map is the library's and was started above, and the caller passed an open device to
        // `add_dev`.
        code = unsafe { (common.doca_mmap_dev_add)(map.raw, map.dev.get()) };
    }
    if code == DOCA_SUCCESS {
        let (addr, len) = map.range.get();
        // SAFETY: the map is the library's and was started above. The caller's memory outlives it, and no
        // callback frees the memory.
        code = unsafe { populate(map.raw, addr, len, PAGE, None, ptr::null_mut()) };
    }
    code
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
    // SAFETY: the caller passes a valid descriptor, its length and an open device, and `raw` can be written.
    let code = unsafe { create(user_data, export_desc, export_desc_len, dev, &raw mut raw) };
    // SAFETY: the caller passes a pointer that can be written.
    unsafe { give(code, raw, mmap) }
}

pub(super) unsafe extern "C" fn export(
    mmap: *mut doca_mmap,
    dev: *const doca_dev,
    export_desc: *mut *const c_void,
    export_desc_len: *mut usize,
) -> doca_error_t {
    let Some(export) = calls().common.doca_mmap_export else { return DOCA_ERROR_NOT_SUPPORTED };
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let map = unsafe { of(mmap) };
    let mut descriptor = ptr::null_mut();
    // SAFETY: the handle is from the library, the device is the caller's, and both pointers can be written.
    let code = unsafe { export(map.raw, dev, &raw mut descriptor, export_desc_len) };
    if code == DOCA_SUCCESS {
        // SAFETY: the previous descriptor is NULL, or was allocated by the library for its caller to free.
        // The new one replaces it.
        unsafe { free(map.descriptor.replace(descriptor)) };
        // SAFETY: the caller passes a pointer that can be written.
        unsafe { export_desc.write(descriptor) };
    }
    code
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
    // SAFETY: the caller passes a handle of this module that was not destroyed.
    let map = unsafe { of(mmap) };
    let get = calls().common.doca_buf_inventory_buf_by_args;
    // SAFETY: the caller passes a valid inventory, a range of the map's memory and a pointer that can be
    // written. The map is the library's.
    unsafe { get(inventory, map.raw, addr, len, data, data_len, buf) }
}
