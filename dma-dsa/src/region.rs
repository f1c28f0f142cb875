//! Regions: memory of this process, which the device reaches by its addresses.
#![expect(unsafe_code, reason = "implements `RawRegion`, and allocates")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use dma_core::{
    Access, DeviceAddr, EngineId, ErrorKind, HostMemory, MemoryRequest, RawExport, RawRegion, RegionInfo,
    RegionKey, Result,
};
use rustix::mm::{Advice, madvise};

use crate::error::error;
use crate::portal::populate;

/// Memory that the device reaches.
#[derive(Debug)]
pub(crate) struct DsaRegion {
    info: RegionInfo,
    /// The layout of allocated memory; `None` for registered memory.
    allocated: Option<Layout>,
}

impl DsaRegion {
    /// Allocates zeroed memory. Its pages are mapped at once, as far as the system grants it, because a page
    /// fault of the device costs tens of microseconds.
    pub(crate) fn allocate(engine: EngineId, request: &MemoryRequest) -> Result<Self> {
        let &MemoryRequest { len, align, access, huge_pages, .. } = request;
        let lacking = || request.out_of_memory();
        let layout = Layout::from_size_align(len, align).map_err(|_| lacking())?;
        // SAFETY: the length is not 0: `MemoryRequest::validate`.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(lacking)?;
        let addr = DeviceAddr::of(base);
        let page = rustix::param::page_size();
        if huge_pages && align.is_multiple_of(page) {
            // SAFETY: memory of this region; a hint that changes no byte.
            let _ = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        // SAFETY: memory of this region. A page that is not mapped now is mapped at its first use.
        let _ = unsafe { populate(addr.0, len as u64, true) };
        let info = RegionInfo::local(engine, RegionKey(0), base, len, access);
        Ok(Self { info, allocated: Some(layout) })
    }

    /// Registers memory of the caller, which stays mapped until the region is dropped.
    pub(crate) fn register(engine: EngineId, memory: &HostMemory, access: Access) -> Result<Self> {
        let (base, len) = (memory.as_ptr(), memory.len());
        if len == 0 {
            return Err(error(ErrorKind::InvalidArgument, "0 bytes to register")
                .with_hint("register at least 1 byte"));
        }
        let info = RegionInfo::local(engine, RegionKey(0), base, len, access);
        Ok(Self { info, allocated: None })
    }
}

// SAFETY: the description never changes. The memory is allocated here, or valid by the promise of the caller
// of `register_raw`. Only descriptors write to it.
unsafe impl RawRegion for DsaRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(error(ErrorKind::Unsupported, "DSA copies within one process: it exports nothing")
            .with_hint("export memory of the CPU engine, or of a BlueField's"))
    }
}

impl Drop for DsaRegion {
    fn drop(&mut self) {
        if let (Some(layout), Some(base)) = (self.allocated, self.info.cpu) {
            // SAFETY: allocated with this layout; a region is dropped only when no descriptor names it.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}
