//! Memory that a simulated device can reach.
#![expect(unsafe_code, reason = "implements the contract's memory, and registers it with the model")]

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dma_core::{
    Access, EngineId, Error, ErrorKind, ExportDescriptor, HostMemory, MemoryRequest, RawExport, RawRegion,
    RegionKey, Result,
};

use super::BACKEND;
use super::shared::Shared;
use crate::model::{self, PeerAccess, PeerError, RegionSpec, Rights};
use crate::remote::{Export, Import, OwnedLease, Pages, SharedMemory};

/// Memory that the device of a [`SimEngine`](super::SimEngine) can reach.
#[derive(Debug)]
pub(super) struct SimRegion {
    shared: Arc<Shared>,
    key: model::RegionKey,
    /// The same, as the contract has it.
    name: RegionKey,
    base: NonNull<u8>,
    len: usize,
    access: Access,
    backing: Backing,
}

/// What keeps the memory.
#[derive(Debug)]
enum Backing {
    Heap(#[expect(dead_code, reason = "kept until the region goes")] Heap),
    /// The caller's, who keeps it.
    Registered,
    /// Exportable with these rights.
    Exportable {
        memory: SharedMemory,
        export: Access,
    },
    /// A peer's; the device keeps the import.
    Imported,
}

// SAFETY: an address and numbers; who may use the memory is the contract's to say.
unsafe impl Send for SimRegion {}
// SAFETY: as above.
unsafe impl Sync for SimRegion {}

fn local(access: Access) -> Rights {
    let mut rights = Rights::empty();
    rights.set(Rights::LOCAL_READ, access.contains(Access::READ));
    rights.set(Rights::LOCAL_WRITE, access.contains(Access::WRITE));
    rights
}

fn remote(access: Access) -> Rights {
    let mut rights = Rights::empty();
    rights.set(Rights::REMOTE_READ, access.contains(Access::READ));
    rights.set(Rights::REMOTE_WRITE, access.contains(Access::WRITE));
    rights
}

impl SimRegion {
    pub(super) fn allocate(shared: &Arc<Shared>, request: &MemoryRequest) -> Result<Self> {
        let (base, backing) = if request.export.is_empty() {
            let heap = Heap::allocate(request)?;
            (heap.base, Backing::Heap(heap))
        } else {
            let pages = if request.huge_pages { Pages::PreferHuge } else { Pages::Normal };
            let memory = SharedMemory::allocate_aligned(request.len, request.align, pages)?;
            (memory.ptr(), Backing::Exportable { memory, export: request.export })
        };
        let rights = local(request.access) | remote(request.export);
        let spec = RegionSpec::local(base, request.len as u64, rights);
        // SAFETY: the region owns the memory until it has unregistered it. Who has references to it is up to the
        // safe API, which has none while a descriptor names the bytes.
        unsafe { Self::register_spec(shared, spec, base, request.access, backing) }
    }

    /// # Safety
    ///
    /// As [`DmaEngine::register_raw`](dma_core::DmaEngine::register_raw).
    pub(super) unsafe fn register(shared: &Arc<Shared>, memory: &HostMemory, access: Access) -> Result<Self> {
        let spec = RegionSpec::local(memory.as_ptr(), memory.len() as u64, local(access));
        // SAFETY: the caller promises that the memory stays until the region is dropped, which unregisters it.
        unsafe { Self::register_spec(shared, spec, memory.as_ptr(), access, Backing::Registered) }
    }

    pub(super) fn import(shared: &Arc<Shared>, descriptor: &ExportDescriptor) -> Result<Self> {
        if descriptor.backend() != BACKEND {
            let message = format!("a descriptor of the backend {:?}", descriptor.backend());
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint(format!("this engine imports what was exported by the backend {BACKEND:?}")));
        }
        let import = Arc::new(Import::open(descriptor.native())?);
        // What was granted is the exporter's word, not the descriptor's.
        let access = import.grant().rights;
        let len = import.len();
        let base = import.span(0, len as u64, Access::empty())?;
        let peer = Arc::new(Peer { import, leases: Mutex::new(Vec::new()) });
        let addr = base.addr().get() as u64;
        let spec = RegionSpec::remote(addr, base, len as u64, remote(access), peer);
        // SAFETY: the device keeps the import, and so the mapping, until the region is unregistered; under a lease
        // the bytes may be touched as granted. Nobody has references to imported memory.
        unsafe { Self::register_spec(shared, spec, base, access, Backing::Imported) }
    }

    /// # Safety
    ///
    /// As [`Device::register`](model::Device::register), until the region is dropped.
    unsafe fn register_spec(
        shared: &Arc<Shared>,
        spec: RegionSpec,
        base: NonNull<u8>,
        access: Access,
        backing: Backing,
    ) -> Result<Self> {
        let len = spec.len as usize;
        // SAFETY: the caller's promise.
        let registered = unsafe { shared.lock().device.register(spec) };
        let key = registered.map_err(|e| Error::new(ErrorKind::InvalidArgument, e.to_string()))?;
        let Ok(name) = usize::try_from(key.to_raw()) else {
            // Nothing names it yet.
            let _ = shared.lock().device.unregister(key);
            return Err(Error::new(ErrorKind::OutOfResources, "no more region keys on a 32-bit machine"));
        };
        let shared = Arc::clone(shared);
        Ok(Self { shared, key, name: RegionKey(name), base, len, access, backing })
    }
}

impl Drop for SimRegion {
    fn drop(&mut self) {
        let unregistered = self.shared.lock().device.unregister(self.key);
        if let Err(error) = unregistered {
            // Against the contract: some descriptor still names it. Better to leak than to have it written later. Leaked first: who listens to
            // the log may panic.
            std::mem::forget(std::mem::replace(&mut self.backing, Backing::Registered));
            tracing::error!(%error, "a region was dropped while the device uses it; its memory is leaked");
        }
    }
}

// SAFETY: nothing changes. What `base` points to is mapped until the drop: owned by `backing`, or by the registrar, who promised. The
// model touches it only as descriptors say.
unsafe impl RawRegion for SimRegion {
    fn engine_id(&self) -> EngineId {
        self.shared.id
    }

    fn key(&self) -> RegionKey {
        self.name
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
        !matches!(self.backing, Backing::Imported)
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        let hint = "allocate it with `MemoryRequest::exportable` and these rights";
        let (memory, allowed) = match &self.backing {
            Backing::Exportable { memory, export } => (memory, *export),
            Backing::Heap(_) => {
                let message = "the memory was not allocated to be exported";
                return Err(Error::new(ErrorKind::AccessDenied, message).with_hint(hint));
            }
            Backing::Registered => {
                let message = "registered memory cannot be exported";
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("allocate memory with `MemoryRequest::exportable`"));
            }
            Backing::Imported => {
                let message = "a peer's memory cannot be passed on";
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("pass on the descriptor that it was imported with"));
            }
        };
        if !allowed.contains(rights) {
            let message = format!("rights {rights:?} of memory that is exportable with {allowed:?}");
            return Err(Error::new(ErrorKind::AccessDenied, message).with_hint(hint));
        }
        let end = offset.checked_add(len).ok_or(ErrorKind::OutOfRange)?;
        Ok(Box::new(SimExport(Export::new(memory, offset..end, rights)?)))
    }
}

/// Memory granted to peers. Dropping it revokes, waiting up to a second for copies to end.
#[derive(Debug)]
struct SimExport(Export);

impl RawExport for SimExport {
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

/// Whom the model asks before it touches imported memory.
#[derive(Debug)]
struct Peer {
    import: Arc<Import>,
    /// Those that the model has now: as many as a copy has pieces in this memory.
    leases: Mutex<Vec<OwnedLease>>,
}

impl PeerAccess for Peer {
    fn acquire(&self) -> Result<(), PeerError> {
        let lease = self.import.lease_owned()?;
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).push(lease);
        Ok(())
    }

    fn release(&self) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).pop();
    }
}

/// Zeroed memory of this process.
#[derive(Debug)]
struct Heap {
    base: NonNull<u8>,
    layout: Layout,
}

impl Heap {
    /// As `request` says; its length is not 0 and its alignment a power of two.
    fn allocate(request: &MemoryRequest) -> Result<Self> {
        let none = || request.out_of_memory();
        let layout = Layout::from_size_align(request.len, request.align).map_err(|_| none())?;
        if layout.size() == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "no bytes"));
        }
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(none)?;
        Ok(Self { base, layout })
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}
