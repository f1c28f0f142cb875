//! Regions: memory of this process, memory that can be exported, and memory of a peer.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::sync::Arc;

use dma_core::{
    Access, DeviceAddr, EngineId, ExportDescriptor, HostMemory, MemoryRequest, RawExport, RawRegion,
    RegionInfo, RegionKey, Result,
};

use super::NAME;
use super::execute::key_of;
use super::memory;
use dma_ipc::{Import, SharedMemory, Unexportable};

/// Memory that a [`CpuEngine`](super::CpuEngine)'s queues can reach.
#[derive(Debug)]
pub(super) struct CpuRegion {
    info: RegionInfo,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Local(#[expect(dead_code, reason = "kept until the region is dropped")] HostMemory),
    /// Existing memory, which the caller keeps alive.
    Registered,
    Exportable(SharedMemory),
    /// Imported memory. The address of this value is the key. The value is in an `Arc`, because a `Box` would
    /// assert unique access.
    Imported(#[expect(dead_code, reason = "named by `key`")] Arc<Import>),
}

impl CpuRegion {
    pub(super) fn allocate(engine: EngineId, request: &MemoryRequest) -> Result<Self> {
        let (base, backing) = if request.export.is_empty() {
            let memory = memory::allocate(request)?;
            (memory.as_ptr(), Backing::Local(memory))
        } else {
            let memory = SharedMemory::allocate_requested(request)?;
            (memory.ptr(), Backing::Exportable(memory))
        };
        Ok(Self {
            info: RegionInfo::local(engine, RegionKey::unique(), base, request.len, request.access),
            backing,
        })
    }

    pub(super) fn register(engine: EngineId, memory: &HostMemory, access: Access) -> Self {
        let info = RegionInfo::local(engine, RegionKey::unique(), memory.as_ptr(), memory.len(), access);
        Self { info, backing: Backing::Registered }
    }

    pub(super) fn import(engine: EngineId, descriptor: &ExportDescriptor) -> Result<Self> {
        let import = Arc::new(Import::of(descriptor, NAME)?);
        // The region gets the rights that the exporter reports, because the descriptor is not trusted.
        let access = import.grant().rights;
        let (key, len) = (key_of(&import), import.len());
        let base = import.span(0, len as u64, Access::empty())?;
        let info = RegionInfo::remote(engine, key, DeviceAddr::of(base), len, access);
        Ok(Self { info, backing: Backing::Imported(import) })
    }
}

// SAFETY: `info` never changes. The memory at `cpu` stays mapped until the region is dropped, because
// `backing` owns it or the caller of `register_raw` promised it. The engine accesses the memory only to
// execute descriptors.
unsafe impl RawRegion for CpuRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        match &self.backing {
            Backing::Exportable(memory) => memory.export(offset, len, rights),
            Backing::Local(_) => Err(Unexportable::Private.into()),
            Backing::Registered => Err(Unexportable::Registered.into()),
            Backing::Imported(_) => Err(Unexportable::Imported.into()),
        }
    }
}
