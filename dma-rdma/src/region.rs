//! Regions: memory of this process that is registered with the device.
#![expect(unsafe_code, reason = "implements `RawRegion`, and allocates")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::{
    Access, Error, ErrorKind, HostMemory, MemoryRequest, RawExport, RawRegion, RegionInfo, RegionKey, Result,
};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use rustix::process::{Resource, getrlimit};

use crate::device::Handle;
use crate::error::{error, failed};
use crate::export::RdmaExport;
use crate::shared::Inner;
use crate::verbs::ibv_mr;

/// Memory that the device reaches.
#[derive(Debug)]
pub(crate) struct RdmaRegion {
    inner: Arc<Inner>,
    handle: Handle<ibv_mr>,
    info: RegionInfo,
    /// The most rights of an export.
    export: Access,
    /// The layout of allocated memory; `None` for registered memory.
    allocated: Option<Layout>,
}

/// The keys of a region, as one number: the lower half is for the device itself, the upper half for a peer.
pub(crate) const fn keys(key: RegionKey) -> (u32, u32) {
    (key.0 as u32, (key.0 as u64 >> 32) as u32)
}

impl RdmaRegion {
    /// Allocates zeroed memory, in whole pages, because a page is pinned as a whole.
    pub(crate) fn allocate(inner: &Arc<Inner>, request: &MemoryRequest) -> Result<Self> {
        let &MemoryRequest { len, align, access, export, huge_pages, .. } = request;
        let lacking = || request.out_of_memory();
        let page = rustix::param::page_size();
        let layout = Layout::from_size_align(len, align.max(page)).map_err(|_| lacking())?;
        let layout = Layout::from_size_align(layout.size().next_multiple_of(page), layout.align())
            .map_err(|_| lacking())?;
        // SAFETY: the length is not 0: `MemoryRequest::validate`.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(lacking)?;
        if huge_pages {
            // SAFETY: memory of this region; a hint that changes no byte.
            let _ = unsafe { madvise(base.as_ptr().cast(), layout.size(), Advice::LinuxHugepage) };
        }
        // SAFETY: allocated above, and freed after it is deregistered.
        let region = unsafe { Self::on(inner, base, len, access, export, Some(layout)) };
        region.inspect_err(|_| {
            // SAFETY: allocated above with this layout, and not registered.
            unsafe { dealloc(base.as_ptr(), layout) };
        })
    }

    /// Registers memory of the caller.
    ///
    /// # Safety
    ///
    /// It stays mapped until the region is dropped.
    pub(crate) unsafe fn register(
        inner: &Arc<Inner>,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Self> {
        if memory.is_empty() {
            return Err(error(ErrorKind::InvalidArgument, "0 bytes to register")
                .with_hint("register at least 1 byte"));
        }
        // SAFETY: the caller's promise.
        unsafe { Self::on(inner, memory.as_ptr(), memory.len(), request.access, request.export, None) }
    }

    unsafe fn on(
        inner: &Arc<Inner>,
        base: NonNull<u8>,
        len: usize,
        access: Access,
        export: Access,
        allocated: Option<Layout>,
    ) -> Result<Self> {
        let device = &inner.device;
        let most = device.attr.max_mr_size;
        if len as u64 > most {
            return Err(error(ErrorKind::OutOfRange, format!("a region of {len} bytes"))
                .with_numbers(len as u64, most)
                .with_hint("the device registers no more in one piece: use several regions"));
        }
        // SAFETY: the caller's promise.
        let handle = unsafe { device.register(base, len, access) }.map_err(|errno| refused(len, errno))?;
        // SAFETY: a region of the library, which only this value uses.
        let region = unsafe { &*handle.as_ptr() };
        if region.lkey == 0 {
            // Marks imported memory, and no device was seen to give it.
            device.deregister(handle);
            return Err(error(ErrorKind::Unsupported, "the device gave memory the key 0"));
        }
        let key = RegionKey((u64::from(region.rkey) << 32 | u64::from(region.lkey)) as usize);
        let info = RegionInfo::local(inner.id, key, base, len, access);
        Ok(Self { inner: Arc::clone(inner), handle, info, export, allocated })
    }
}

/// The error if the device does not register memory.
pub(crate) fn refused(len: usize, errno: Errno) -> Error {
    let what = format!("{len} bytes cannot be registered");
    let limit = getrlimit(Resource::Memlock).current;
    match errno {
        Errno::NOMEM if limit.is_some_and(|limit| limit < 1 << 30) => {
            let limit = limit.unwrap_or(0);
            error(ErrorKind::PermissionDenied, format!("{what}: this process may pin {} KiB in all", limit >> 10))
                .with_source(std::io::Error::from(errno))
                .with_hint("raise the limit: `ulimit -l unlimited`, or a line `* - memlock unlimited` in /etc/security/limits.d/dma.conf")
        }
        Errno::NOMEM => error(ErrorKind::OutOfMemory, what)
            .with_source(std::io::Error::from(errno))
            .with_hint("registering pins memory: free some, or some regions"),
        Errno::FAULT | Errno::INVAL => error(ErrorKind::InvalidArgument, what)
            .with_source(std::io::Error::from(errno))
            .with_hint("check that all of it is mapped, writable if the device is to write it, and no file of a disk"),
        other => failed(what, other),
    }
}

// SAFETY: the description never changes. The memory is allocated here, or valid by the promise of the caller
// of `register_raw`. Only descriptors write to it.
unsafe impl RawRegion for RdmaRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        let (allowed, info) = (self.export, &self.info);
        if !allowed.contains(rights) || rights.is_empty() {
            let message = format!("an export to {rights} of memory that is exportable to {allowed}");
            return Err(error(ErrorKind::AccessDenied, message)
                .with_hint("allocate or register it with `MemoryRequest::exportable` and these rights"));
        }
        let base = info.cpu.filter(|_| offset.checked_add(len).is_some_and(|end| len > 0 && end <= info.len));
        let Some(base) = base else {
            let message = format!("{len} bytes at {offset} of a region of {}", info.len);
            return Err(error(ErrorKind::OutOfRange, message));
        };
        // SAFETY: inside of the region.
        let base = unsafe { base.add(offset) };
        let service = self.inner.service()?;
        // SAFETY: the region outlives its exports, which is the caller's promise.
        let export = unsafe { RdmaExport::new(&self.inner.device, service, base, len, rights) }?;
        Ok(Box::new(export))
    }
}

impl Drop for RdmaRegion {
    fn drop(&mut self) {
        if !self.inner.device.deregister(self.handle) {
            // The device may still reach it, so allocated memory is leaked.
            tracing::error!(device = self.inner.device.name, "memory cannot be deregistered");
            return;
        }
        if let (Some(layout), Some(base)) = (self.allocated, self.info.cpu) {
            // SAFETY: allocated with this layout; a region is dropped only when no descriptor names it.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}
