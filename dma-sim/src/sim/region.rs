//! Memory that a simulated device can reach.
#![expect(unsafe_code, reason = "implements the contract's memory, and registers it with the model")]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use dma_core::{
    Access, DeviceAddr, Error, ErrorKind, ExportDescriptor, HostMemory, MemoryRequest, RawExport, RawRegion,
    RegionInfo, Result,
};
use dma_process::{count, lock};

use super::NAME;
use super::device_memory::{Allocation, DeviceMemory};
use super::shared_device::SharedDevice;
use crate::model::{PeerAccess, PeerError, RegionError, RegionMemory, RegionSpec, Rights};
use dma_ipc::{Import, OwnedLease, SharedMemory, Unexportable};

/// Memory that the device of a [`SimEngine`](super::SimEngine) can reach.
#[derive(Debug)]
pub(super) struct SimRegion {
    shared: Arc<SharedDevice>,
    info: RegionInfo,
    backing: Backing,
}

/// The owner of the memory, which keeps it mapped.
#[derive(Debug)]
enum Backing {
    Heap(#[expect(dead_code, reason = "kept until the region is dropped")] HostMemory),
    /// The caller owns the memory and keeps it allocated.
    Registered,
    /// An allocation in the device's own memory.
    Device(Allocation),
    /// Device memory that the caller has allocated and keeps allocated.
    RegisteredDevice(#[expect(dead_code, reason = "kept until the region is dropped")] Arc<DeviceMemory>),
    Exportable(SharedMemory),
    /// Memory of a peer. The device keeps the import.
    Imported,
}

/// Returns the subset of the rights `all` that `access` includes.
fn rights(access: Access, all: Rights) -> Rights {
    let mut rights = Rights::empty();
    rights.set(Rights::LOCAL_READ | Rights::REMOTE_READ, access.contains(Access::READ));
    rights.set(Rights::LOCAL_WRITE | Rights::REMOTE_WRITE, access.contains(Access::WRITE));
    rights & all
}

const LOCAL: Rights = Rights::LOCAL_READ.union(Rights::LOCAL_WRITE);
const REMOTE: Rights = Rights::REMOTE_READ.union(Rights::REMOTE_WRITE);

impl SimRegion {
    pub(super) fn allocate(shared: &Arc<SharedDevice>, request: &MemoryRequest) -> Result<Self> {
        let (base, backing) = if request.export.is_empty() {
            let heap = HostMemory::allocate_requested(request)?;
            (heap.as_ptr(), Backing::Heap(heap))
        } else {
            let memory = SharedMemory::allocate_requested(request)?;
            (memory.ptr(), Backing::Exportable(memory))
        };
        let rights = rights(request.access, LOCAL) | rights(request.export, REMOTE);
        let spec = RegionSpec::local(base, request.len as u64, rights);
        // SAFETY: the region owns the memory, and unregisters it before it frees it. The safe API holds no
        // reference to the bytes while a descriptor names them.
        unsafe { Self::register_spec(shared, spec, base, request.access, backing) }
    }

    /// # Safety
    ///
    /// See [`DmaEngine::register_raw`](dma_core::DmaEngine::register_raw).
    pub(super) unsafe fn register(
        shared: &Arc<SharedDevice>,
        memory: &HostMemory,
        access: Access,
    ) -> Result<Self> {
        let spec = RegionSpec::local(memory.as_ptr(), memory.len() as u64, rights(access, LOCAL));
        // SAFETY: the caller promises that the memory stays mapped, and is accessed only through the region's
        // views, until the region is dropped, which unregisters it.
        unsafe { Self::register_spec(shared, spec, memory.as_ptr(), access, Backing::Registered) }
    }

    pub(super) fn allocate_device(
        shared: &Arc<SharedDevice>,
        memory: &Arc<DeviceMemory>,
        request: &MemoryRequest,
    ) -> Result<Self> {
        let own = memory.allocate(request)?;
        let rights = rights(request.access, LOCAL);
        let bytes = RegionMemory::Local(own.bytes());
        let spec = RegionSpec { addr: own.addr(), len: request.len as u64, rights, memory: bytes };
        let base = own.bytes();
        // SAFETY: the region owns the memory, and unregisters it before it frees it. The CPU cannot access
        // the memory in any other way.
        unsafe { Self::register_spec(shared, spec, base, request.access, Backing::Device(own)) }
    }

    /// # Safety
    ///
    /// See [`DmaEngine::register_device_raw`](dma_core::DmaEngine::register_device_raw).
    pub(super) unsafe fn register_device(
        shared: &Arc<SharedDevice>,
        own: &Arc<DeviceMemory>,
        memory: &dma_core::DeviceMemory,
        access: Access,
    ) -> Result<Self> {
        let (addr, len) = (memory.addr().0, memory.len());
        let Some(base) = own.find(addr, len) else {
            let message = format!(
                "not within one allocation of this device: {} at {addr:#x}",
                count(len, "byte", "bytes")
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("register device memory on the engine of its device, before it is freed"));
        };
        let bytes = RegionMemory::Local(base);
        let spec = RegionSpec { addr, len: len as u64, rights: rights(access, LOCAL), memory: bytes };
        let backing = Backing::RegisteredDevice(Arc::clone(own));
        // SAFETY: the caller promises that the memory stays allocated until the region is dropped, which
        // unregisters it. The CPU cannot access the memory in any other way.
        unsafe { Self::register_spec(shared, spec, base, access, backing) }
    }

    pub(super) fn import(shared: &Arc<SharedDevice>, descriptor: &ExportDescriptor) -> Result<Self> {
        let import = Arc::new(Import::of(descriptor, NAME)?);
        // The exporter states the granted rights, because the descriptor is not trusted.
        let access = import.grant().rights;
        let len = import.len();
        let base = import.span(0, len as u64, Access::empty())?;
        let peer = Arc::new(MemoryExporter { import, leases: Mutex::new(Vec::new()) });
        let addr = base.addr().get() as u64;
        let spec = RegionSpec::remote(addr, base, len as u64, rights(access, REMOTE), peer);
        // SAFETY: the device keeps the import, and so the mapping, until the region is unregistered. While a
        // lease is held, the granted accesses are allowed. This process has no references to imported memory.
        unsafe { Self::register_spec(shared, spec, base, access, Backing::Imported) }
    }

    /// # Safety
    ///
    /// See [`Device::register`](crate::model::Device::register). The memory stays valid until the region is
    /// dropped.
    unsafe fn register_spec(
        shared: &Arc<SharedDevice>,
        spec: RegionSpec,
        base: NonNull<u8>,
        access: Access,
        backing: Backing,
    ) -> Result<Self> {
        let (addr, len) = (DeviceAddr(spec.addr), spec.len as usize);
        // SAFETY: the device's method has the same requirements as this function, which the caller meets.
        let registered = unsafe { shared.lock().device.register(spec) };
        let key = registered.map_err(|error| {
            let kind = match error {
                RegionError::OutOfKeys { .. } => ErrorKind::OutOfResources,
                _ => ErrorKind::InvalidArgument,
            };
            Error::new(kind, error.to_string())
        })?;
        let id = shared.id;
        let info = match backing {
            Backing::Device(_) | Backing::RegisteredDevice(_) | Backing::Imported => {
                RegionInfo::remote(id, key, addr, len, access)
            }
            _ => RegionInfo::local(id, key, base, len, access),
        };
        Ok(Self { shared: Arc::clone(shared), info, backing })
    }
}

impl Drop for SimRegion {
    fn drop(&mut self) {
        let unregistered = self.shared.lock().device.unregister(self.info.key);
        if let Err(error) = unregistered {
            // The caller has broken the contract, because a descriptor in flight still names the region. The
            // memory is leaked, because the device may still write it. It is leaked before the message is
            // logged, because a log subscriber may panic.
            std::mem::forget(std::mem::replace(&mut self.backing, Backing::Registered));
            dma_core::deferred_log!(error, %error, "a region was dropped while the device uses it; its memory is leaked");
        }
    }
}

// SAFETY: the region's information never changes, and the model never reuses its key. The memory at `cpu`
// stays mapped until the region is dropped: either `backing` owns it, or the caller that registered it has
// promised this. The model accesses it only as descriptors request.
unsafe impl RawRegion for SimRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        match &self.backing {
            Backing::Exportable(memory) => memory.export(offset, len, rights),
            Backing::Heap(_) | Backing::Device(_) => Err(Unexportable::Private.into()),
            Backing::Registered | Backing::RegisteredDevice(_) => Err(Unexportable::Registered.into()),
            Backing::Imported => Err(Unexportable::Imported.into()),
        }
    }

    unsafe fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        match &self.backing {
            Backing::Device(own) => own.dmabuf(),
            _ => {
                Err(Error::new(ErrorKind::Unsupported, "only memory that the device allocated has a dma-buf")
                    .with_hint("allocate it with `Place::Device`"))
            }
        }
    }
}

/// The exporter of imported memory. The model acquires access from it before each move.
#[derive(Debug)]
struct MemoryExporter {
    import: Arc<Import>,
    /// The leases that the model holds: one for each piece of this memory that it has acquired.
    leases: Mutex<Vec<OwnedLease>>,
}

impl PeerAccess for MemoryExporter {
    fn acquire(&self) -> Result<(), PeerError> {
        let lease = self.import.lease_owned()?;
        lock(&self.leases).push(lease);
        Ok(())
    }

    fn release(&self) {
        lock(&self.leases).pop();
    }
}
