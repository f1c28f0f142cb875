//! Regions: memory of this process, memory that can be exported, and a peer's.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use dma_core::{
    Access, EngineId, Error, ErrorKind, ExportDescriptor, HostMemory, MemoryRequest, RawExport, RawRegion,
    RegionKey, Result,
};

use super::BACKEND;
use super::memory::LocalMemory;
use super::transfer::{LOCAL, key_of};
use crate::remote::{Export, Import, Pages, SharedMemory};

/// Memory that a [`CpuEngine`](super::CpuEngine)'s queues can reach.
#[derive(Debug)]
pub(super) struct CpuRegion {
    engine: EngineId,
    key: RegionKey,
    base: NonNull<u8>,
    len: usize,
    access: Access,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Local(#[expect(dead_code, reason = "kept until the region goes")] LocalMemory),
    /// The caller's, who keeps it.
    Registered,
    /// Exportable with these rights.
    Shared {
        memory: SharedMemory,
        export: Access,
    },
    /// Its address is the key: not in a box, which would not suffer others to use it.
    Imported(#[expect(dead_code, reason = "named by `key`")] Arc<Import>),
}

// SAFETY: an address and numbers; who may use the memory is the contract's to say.
unsafe impl Send for CpuRegion {}
// SAFETY: as above.
unsafe impl Sync for CpuRegion {}

impl CpuRegion {
    pub(super) fn allocate(engine: EngineId, request: &MemoryRequest) -> Result<Self> {
        let (base, backing) = if request.export.is_empty() {
            let memory = LocalMemory::allocate(request)?;
            (memory.base(), Backing::Local(memory))
        } else {
            let pages = if request.huge_pages { Pages::PreferHuge } else { Pages::Normal };
            let memory = SharedMemory::allocate_aligned(request.len, request.align, pages)?;
            (memory.ptr(), Backing::Shared { memory, export: request.export })
        };
        Ok(Self { engine, key: LOCAL, base, len: request.len, access: request.access, backing })
    }

    pub(super) fn register(engine: EngineId, memory: &HostMemory, access: Access) -> Self {
        let (base, len) = (memory.as_ptr(), memory.len());
        Self { engine, key: LOCAL, base, len, access, backing: Backing::Registered }
    }

    pub(super) fn import(engine: EngineId, descriptor: &ExportDescriptor) -> Result<Self> {
        if descriptor.backend() != BACKEND {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("a descriptor of the backend {:?}", descriptor.backend()),
            )
            .with_hint(format!("this engine imports what was exported by the backend {BACKEND:?}")));
        }
        let import = Arc::new(Import::open(descriptor.native())?);
        // What was granted is the exporter's word, not the descriptor's.
        let access = import.grant().rights;
        let (key, len) = (key_of(&import), import.len());
        let base = import.span(0, len as u64, Access::empty())?;
        Ok(Self { engine, key, base, len, access, backing: Backing::Imported(import) })
    }
}

// SAFETY: nothing changes. What `base` points to is mapped until the drop: owned by `backing`, or by the registrar, who promised. The
// engine touches it only in `transfer`, as descriptors say.
unsafe impl RawRegion for CpuRegion {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn key(&self) -> RegionKey {
        self.key
    }

    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn access(&self) -> Access {
        self.access
    }

    fn cpu_visible(&self) -> bool {
        !matches!(self.backing, Backing::Imported(_))
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        let (memory, allowed) = match &self.backing {
            Backing::Shared { memory, export } => (memory, *export),
            Backing::Local(_) => {
                return Err(Error::new(
                    ErrorKind::AccessDenied,
                    "the memory was not allocated to be exported",
                )
                .with_hint("allocate it with `MemoryRequest::exportable`"));
            }
            Backing::Registered => {
                return Err(Error::new(ErrorKind::Unsupported, "registered memory cannot be exported")
                    .with_hint("allocate memory with `MemoryRequest::exportable`"));
            }
            Backing::Imported(_) => {
                return Err(Error::new(ErrorKind::Unsupported, "a peer's memory cannot be passed on")
                    .with_hint("pass on the descriptor that it was imported with"));
            }
        };
        if !allowed.contains(rights) {
            let message = format!("rights {rights:?} of memory that is exportable with {allowed:?}");
            return Err(Error::new(ErrorKind::AccessDenied, message)
                .with_hint("allocate it with `MemoryRequest::exportable` and these rights"));
        }
        let end = offset.checked_add(len).ok_or(ErrorKind::OutOfRange)?;
        let export = Export::new(memory, offset..end, rights)?;
        Ok(Box::new(CpuExport(export)))
    }
}

/// Memory granted to peers. Dropping it revokes, waiting up to a second for copies to end; memory of peers that go on is leaked.
#[derive(Debug)]
struct CpuExport(Export);

impl RawExport for CpuExport {
    fn native(&self) -> &[u8] {
        self.0.blob()
    }

    fn address(&self) -> u64 {
        self.0.grant().address
    }

    fn revoke(&mut self, timeout: Duration) -> Result<()> {
        Ok(self.0.revoke(timeout)?)
    }
}
