//! Memory maps, which register memory with a device.
//!
//! Two features of the SDK are not used. A map may have several devices, but a region belongs to one engine,
//! which has one device. With `doca_mmap_set_free_cb`, the library would free the memory. Here, [`Mmap`]
//! frees it after the map was destroyed, so memory of a map that cannot be destroyed is never freed.
#![expect(unsafe_code, reason = "calls the SDK with handles that it gave out")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::{Access, Error, ErrorKind, Result};
use dma_process::{MEMLOCK_REMEDY, count, exceeded_memlock, lock};
use doca_sys::bindings::*;

use crate::device::Device;
use crate::error::{check, error};
use crate::ffi::out;
use crate::memory::Mapping;
use crate::options::Fabric;

/// A started memory map, destroyed when dropped.
#[derive(Debug)]
pub(crate) struct Mmap {
    device: Arc<Device>,
    /// Null after the map was destroyed.
    raw: *mut doca_mmap,
    /// Memory that this crate allocated. It is freed after the map.
    memory: Option<Mapping>,
}

// SAFETY: a map has no thread-local state, and no two calls on it run at the same time: queues hold the lock
// `Device::maps`, and its creator makes all other calls before queues can use it.
unsafe impl Send for Mmap {}
// SAFETY: no two calls on a map run at the same time: its creator makes its calls before queues can use the
// map, and all later calls hold the lock `Device::maps`.
unsafe impl Sync for Mmap {}

/// The memory of a map.
#[derive(Debug)]
pub(crate) enum MapMemory<'a> {
    /// Memory that this crate allocated; the map takes ownership.
    Own(Mapping, usize),
    /// Memory of the caller, which outlives the map.
    Borrowed(NonNull<u8>, usize),
    /// Memory of the caller, which outlives the map. It is a mapping of this file from this offset on.
    File(NonNull<u8>, usize, BorrowedFd<'a>, u64),
    /// Memory of another device, which outlives the map and is not mapped in the process. The fields are
    /// an address that only identifies the memory, its length, a dma-buf, and the offset in the dma-buf.
    DmaBuf(NonNull<u8>, usize, BorrowedFd<'a>, u64),
}

impl MapMemory<'_> {
    fn range(&self) -> (NonNull<u8>, usize) {
        match self {
            Self::Own(mapping, len) => (mapping.base(), *len),
            Self::Borrowed(base, len) | Self::File(base, len, ..) | Self::DmaBuf(base, len, ..) => {
                (*base, *len)
            }
        }
    }
}

/// Returns the SDK's rights for memory that the device may access as `access` says, and peers over `fabric`
/// as `peer` says. `None` if the SDK has no such rights.
pub(crate) fn permissions(access: Access, peer: Access, fabric: Fabric) -> Option<u32> {
    let local = if access.contains(Access::WRITE) {
        DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
    } else {
        DOCA_ACCESS_FLAG_LOCAL_READ_ONLY
    };
    let (read, write) = (peer.contains(Access::READ), peer.contains(Access::WRITE));
    let remote = match (fabric, read, write) {
        (_, false, false) => 0,
        (Fabric::Pci, true, false) => DOCA_ACCESS_FLAG_PCI_READ_ONLY,
        (Fabric::Pci, true, true) => DOCA_ACCESS_FLAG_PCI_READ_WRITE,
        // Over PCI, the right to write includes reading.
        (Fabric::Pci, false, true) => return None,
        (Fabric::Rdma, read, write) => {
            (if read { DOCA_ACCESS_FLAG_RDMA_READ } else { 0 })
                | (if write { DOCA_ACCESS_FLAG_RDMA_WRITE } else { 0 })
        }
    };
    Some(local | remote)
}

impl Mmap {
    /// Registers memory with `device`. Blocks while the system pins it.
    pub(crate) fn register(device: &Arc<Device>, memory: MapMemory<'_>, permissions: u32) -> Result<Self> {
        let (base, len) = memory.range();
        if let MapMemory::DmaBuf(_, _, fd, offset) = &memory {
            return Self::over_file(device, base, len, *fd, *offset, permissions);
        }
        if let MapMemory::File(_, _, fd, offset) = &memory {
            match Self::over_file(device, base, len, *fd, *offset, permissions) {
                Ok(map) => return Ok(map),
                // Not every driver accepts a memfd as a dma-buf. The memory is mapped, so its address can be
                // registered.
                Err(e) => {
                    dma_core::deferred_log!(debug, target: "doca", error = %e, "registering by address instead of by dma-buf")
                }
            }
        }
        let mut map = Self::create(device)?;
        let sdk = &device.sdk;
        // SAFETY: the map is not started, and its memory of `len` bytes at `base` outlives it.
        let code = unsafe { (sdk.common.doca_mmap_set_memrange)(map.raw(), base.as_ptr().cast(), len) };
        check(sdk, "doca_mmap_set_memrange", code)?;
        if let MapMemory::Own(mapping, _) = memory {
            map.memory = Some(mapping);
        }
        map.start(permissions, len)?;
        Ok(map)
    }

    fn over_file(
        device: &Arc<Device>,
        base: NonNull<u8>,
        len: usize,
        fd: BorrowedFd<'_>,
        offset: u64,
        permissions: u32,
    ) -> Result<Self> {
        let sdk = &device.sdk;
        let Some(set) = sdk.common.doca_mmap_set_dmabuf_memrange else {
            return Err(error(ErrorKind::Unsupported, "the library has no doca_mmap_set_dmabuf_memrange"));
        };
        let offset = usize::try_from(offset).map_err(|_| ErrorKind::OutOfRange)?;
        let map = Self::create(device)?;
        // SAFETY: the map is not started. The file is open during the call, and the caller of `register`
        // keeps the memory until the map is dropped.
        let code = unsafe { set(map.raw(), fd.as_raw_fd(), base.as_ptr().cast(), offset, len) };
        check(sdk, "doca_mmap_set_dmabuf_memrange", code)?;
        map.start(permissions, len)?;
        Ok(map)
    }

    fn create(device: &Arc<Device>) -> Result<Self> {
        let sdk = &device.sdk;
        let call = sdk.common.doca_mmap_create;
        // SAFETY: `out` passes a pointer that can be written.
        let raw = out(sdk, "doca_mmap_create", std::ptr::null_mut(), |p| unsafe { call(p) })?;
        Self::of(device, raw, "doca_mmap_create")
    }

    fn of(device: &Arc<Device>, raw: *mut doca_mmap, call: &'static str) -> Result<Self> {
        if raw.is_null() {
            return Err(error(ErrorKind::DeviceFault, call));
        }
        Ok(Self { device: Arc::clone(device), raw, memory: None })
    }

    fn start(&self, permissions: u32, len: usize) -> Result<()> {
        let sdk = &self.device.sdk;
        // SAFETY: the map was created by `create`, and is not started.
        let code = unsafe { (sdk.common.doca_mmap_set_permissions)(self.raw(), permissions) };
        check(sdk, "doca_mmap_set_permissions", code).map_err(|e| both_rights(e, permissions))?;
        // SAFETY: the map is not started. The device is open, and this value keeps it open.
        let code = unsafe { (sdk.common.doca_mmap_add_dev)(self.raw(), self.device.raw()) };
        check(sdk, "doca_mmap_add_dev", code).map_err(|e| pinning(e, len))?;
        // SAFETY: the map has memory and a device, and is not started yet.
        let code = unsafe { (sdk.common.doca_mmap_start)(self.raw()) };
        check(sdk, "doca_mmap_start", code).map_err(|e| pinning(e, len))
    }

    /// Creates a map of a peer's memory.
    pub(crate) fn import(device: &Arc<Device>, blob: &[u8]) -> Result<Self> {
        let sdk = &device.sdk;
        let Some(call) = sdk.common.doca_mmap_create_from_export else {
            return Err(error(ErrorKind::Unsupported, "the library has no doca_mmap_create_from_export"));
        };
        let name = "doca_mmap_create_from_export";
        // SAFETY: the descriptor has `blob.len()` bytes, the device is open, the user data may be NULL, and
        // `out` passes a pointer that can be written.
        let raw = out(sdk, name, std::ptr::null_mut(), |p| unsafe {
            call(std::ptr::null(), blob.as_ptr().cast(), blob.len(), device.raw(), p)
        })?;
        Self::of(device, raw, name)
    }

    /// Returns the address and length of the map's memory in the process that registered it. `None` if the
    /// library lacks the call.
    pub(crate) fn range(&self) -> Result<Option<(*mut u8, usize)>> {
        let sdk = &self.device.sdk;
        let Some(call) = sdk.common.doca_mmap_get_memrange else { return Ok(None) };
        let (mut base, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: the map is started, and both pointers can be written.
        let code = unsafe { call(self.raw(), &raw mut base, &raw mut len) };
        check(sdk, "doca_mmap_get_memrange", code)?;
        Ok(Some((base.cast(), len)))
    }

    /// Returns true if all of the `len` bytes at `addr` belong to the map. Tests that by making a buffer,
    /// because a library refuses buffers outside of the map.
    pub(crate) fn has(&self, addr: *mut u8, len: usize) -> Result<bool> {
        let (sdk, common) = (&self.device.sdk, &self.device.sdk.common);
        let name = "doca_buf_inventory_create";
        // SAFETY: `out` passes a pointer that can be written.
        let inventory =
            out(sdk, name, std::ptr::null_mut(), |p| unsafe { (common.doca_buf_inventory_create)(1, p) })?;
        // SAFETY: the inventory was created above, and is not started.
        let mut code = unsafe { (common.doca_buf_inventory_start)(inventory) };
        let mut buf = std::ptr::null_mut();
        if code == DOCA_SUCCESS {
            let _serial = lock(&self.device.maps);
            let get = common.doca_buf_inventory_buf_get_by_args;
            // SAFETY: the inventory and the map are started, and `buf` can be written. The library checks the
            // range.
            code = unsafe { get(inventory, self.raw(), addr.cast(), len, addr.cast(), 0, &raw mut buf) };
            if code == DOCA_SUCCESS {
                // SAFETY: the buffer was made above, no task uses it, and it is not used again. The pointer
                // for the count may be NULL.
                unsafe { (common.doca_buf_dec_refcount)(buf, std::ptr::null_mut()) };
            }
        }
        // SAFETY: the inventory was created above, its only buffer was released, and it is not used again.
        let destroyed = unsafe { (common.doca_buf_inventory_destroy)(inventory) };
        check(sdk, "doca_buf_inventory_destroy", destroyed)?;
        match code {
            DOCA_ERROR_INVALID_VALUE => Ok(false),
            code => check(sdk, "doca_buf_inventory_buf_get_by_args", code).map(|()| true),
        }
    }

    /// Makes a descriptor from which a peer creates a map.
    pub(crate) fn export(&self, fabric: Fabric) -> Result<Box<[u8]>> {
        let sdk = &self.device.sdk;
        let (name, call) = match fabric {
            Fabric::Pci => ("doca_mmap_export_pci", sdk.common.doca_mmap_export_pci),
            Fabric::Rdma => ("doca_mmap_export_rdma", sdk.common.doca_mmap_export_rdma),
        };
        let Some(call) = call else {
            return Err(error(ErrorKind::Unsupported, format!("the library has no {name}")));
        };
        let (mut blob, mut len) = (std::ptr::null(), 0);
        // SAFETY: the map is started, the device was added to it, and both pointers can be written.
        let code = unsafe { call(self.raw(), self.device.raw(), &raw mut blob, &raw mut len) };
        check(sdk, name, code)?;
        if blob.is_null() {
            return Err(error(ErrorKind::DeviceFault, format!("{name} returned no descriptor")));
        }
        // SAFETY: the descriptor has `len` bytes, and is valid until the map is stopped. It is copied here.
        Ok(unsafe { std::slice::from_raw_parts(blob.cast::<u8>(), len) }.into())
    }

    /// Returns the map's handle, which is valid until the map is destroyed.
    pub(crate) const fn raw(&self) -> *mut doca_mmap {
        self.raw
    }

    /// Stops and destroys the map. Afterwards, no peer can access its memory. Does nothing if the map was
    /// already destroyed.
    pub(crate) fn destroy(&mut self) -> Result<()> {
        if self.raw.is_null() {
            return Ok(());
        }
        let sdk = &self.device.sdk;
        let _serial = lock(&self.device.maps);
        // SAFETY: the map is not destroyed yet. The library counts the map's buffers, and refuses to destroy
        // a map that has buffers.
        let code = unsafe { (sdk.common.doca_mmap_destroy)(self.raw) };
        check(sdk, "doca_mmap_destroy", code)?;
        self.raw = std::ptr::null_mut();
        Ok(())
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        if let Err(e) = self.destroy() {
            // Leak the memory before the log line, because a log subscriber may panic.
            std::mem::forget(self.memory.take());
            std::mem::forget(Arc::clone(&self.device));
            dma_core::deferred_log!(error, target: "doca", error = %e, "memory stays registered, and is leaked");
        }
    }
}

/// Names the right that DOCA 1.5 cannot grant, and the remedy.
fn both_rights(error: Error, permissions: u32) -> Error {
    if error.kind() != ErrorKind::Unsupported || permissions & DOCA_ACCESS_FLAG_PCI_READ_ONLY == 0 {
        return error;
    }
    let message = "this version of DOCA can only grant the DPU both reading and writing, not reading alone";
    error.with_message(message).with_hint("export with READ and WRITE")
}

/// Names the limit behind a refused registration: the process's limit of locked memory, or a limit of the
/// device if the process's limit allows the registration.
fn pinning(error: Error, len: usize) -> Error {
    if !matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::OutOfMemory) {
        return error;
    }
    let error = error.with_message(format!("registering and pinning {}", count(len, "byte", "bytes")));
    match exceeded_memlock(len as u64) {
        Some(limit) => error.with_numbers(len as u64, limit).with_hint(MEMLOCK_REMEDY),
        None => error.with_hint(
            "the memlock limit (`ulimit -l`) allows this, so the device or its driver refused: register less at \
             a time, drop regions, and see whether the memory is writable",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_do_not_exceed_the_request() {
        let (none, all) = (Access::empty(), Access::all());
        let (ro, rw) = (DOCA_ACCESS_FLAG_LOCAL_READ_ONLY, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
        let (pci_ro, pci_rw) = (DOCA_ACCESS_FLAG_PCI_READ_ONLY, DOCA_ACCESS_FLAG_PCI_READ_WRITE);
        let (rdma_r, rdma_w) = (DOCA_ACCESS_FLAG_RDMA_READ, DOCA_ACCESS_FLAG_RDMA_WRITE);
        for (access, peer, pci, rdma) in [
            (Access::READ, none, Some(ro), Some(ro)),
            (Access::WRITE, none, Some(rw), Some(rw)),
            (all, none, Some(rw), Some(rw)),
            (all, Access::READ, Some(rw | pci_ro), Some(rw | rdma_r)),
            (all, Access::WRITE, None, Some(rw | rdma_w)),
            (all, all, Some(rw | pci_rw), Some(rw | rdma_r | rdma_w)),
            (Access::READ, Access::READ, Some(ro | pci_ro), Some(ro | rdma_r)),
        ] {
            let found = [Fabric::Pci, Fabric::Rdma].map(|fabric| permissions(access, peer, fabric));
            assert_eq!(found, [pci, rdma], "{access:?} {peer:?}");
        }
    }
}
