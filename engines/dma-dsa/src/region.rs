//! Regions: memory of this process, which the device reaches by its addresses.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use dma_core::{
    Access, EngineId, ErrorKind, HostMemory, MemoryRequest, PageMemory, RawExport, RawRegion, RegionInfo,
    RegionKey, Result,
};

use crate::error::error;

/// Memory that the device reaches.
#[derive(Debug)]
pub(crate) struct DsaRegion {
    info: RegionInfo,
    /// Allocated memory; `None` for registered memory.
    _memory: Option<PageMemory>,
}

impl DsaRegion {
    /// Allocates zeroed memory. The pages are made present at once, because a page fault of the device costs
    /// tens of microseconds.
    pub(crate) fn allocate(engine: EngineId, request: &MemoryRequest) -> Result<Self> {
        let memory = PageMemory::new(request)?;
        let info =
            RegionInfo::local(engine, RegionKey::unique(), memory.as_ptr(), request.len, request.access);
        Ok(Self { info, _memory: Some(memory) })
    }

    /// Registers memory of the caller, which stays mapped until the region is dropped.
    pub(crate) fn register(engine: EngineId, memory: &HostMemory, access: Access) -> Result<Self> {
        let (base, len) = (memory.as_ptr(), memory.len());
        if len == 0 {
            return Err(error(ErrorKind::InvalidArgument, "0 bytes to register")
                .with_hint("register at least 1 byte"));
        }
        let info = RegionInfo::local(engine, RegionKey::unique(), base, len, access);
        Ok(Self { info, _memory: None })
    }
}

// SAFETY: the description never changes. The memory was allocated here, or the caller of `register_raw`
// guarantees that it is valid. Only descriptors write to it.
unsafe impl RawRegion for DsaRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(error(ErrorKind::Unsupported, "DSA copies within one process, so it cannot export memory")
            .with_hint("export memory of the CPU engine or of a BlueField engine"))
    }
}
