//! Regions: memory of this process, and a peer's.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{
    Access, EngineId, Error, ErrorKind, ExportDescriptor, HostMemory, MemoryRequest, RawExport, RawRegion,
    RegionKey, Result,
};
use doca_sys::bindings::*;

use crate::buffers::Entry;
use crate::engine::Inner;
use crate::error::{BACKEND, error};
use crate::memory::Mapping;
use crate::mmap::{Memory, Mmap, permissions};
use crate::options::Fabric;

/// Memory that a device reaches: registered until dropped.
#[derive(Debug)]
pub(crate) struct DocaRegion {
    engine: Arc<Inner>,
    key: RegionKey,
    base: NonNull<u8>,
    len: usize,
    access: Access,
    /// What peers may be granted at most; `None` for a peer's own memory.
    export: Option<Access>,
    map: Option<Mmap>,
}

// SAFETY: addresses and handles; the handles are used under locks.
unsafe impl Send for DocaRegion {}
// SAFETY: as above.
unsafe impl Sync for DocaRegion {}

impl DocaRegion {
    pub(crate) fn allocate(engine: &Arc<Inner>, request: &MemoryRequest) -> Result<Self> {
        check_export(engine, request)?;
        let mapping = Mapping::new(request)?;
        let base = mapping.base();
        let map = Mmap::register(&engine.device, Memory::Own(mapping, request.len), local(request.access))?;
        Ok(Self::new(engine, map, base, request.len, request.access, Some(request.export), None))
    }

    /// The memory stays for as long as the region, as the caller of `register_raw` promises.
    pub(crate) fn register(
        engine: &Arc<Inner>,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Self> {
        check_export(engine, request)?;
        let (base, len) = (memory.as_ptr(), memory.len());
        let over = match memory.fd() {
            Some((fd, offset)) => Memory::File(base, len, fd, offset),
            None => Memory::Borrowed(base, len),
        };
        let map = Mmap::register(&engine.device, over, local(request.access))?;
        Ok(Self::new(engine, map, base, len, request.access, Some(request.export), None))
    }

    pub(crate) fn import(engine: &Arc<Inner>, descriptor: &ExportDescriptor) -> Result<Self> {
        if descriptor.backend() != BACKEND {
            let message = format!("a descriptor of the backend {:?}", descriptor.backend());
            return Err(error(ErrorKind::Unsupported, message)
                .with_hint(format!("this engine imports what was exported by the backend {BACKEND:?}")));
        }
        let map = Mmap::import(&engine.device, descriptor.native()).map_err(not_imported)?;
        let (base, len) = map.range()?;
        // What was granted is what the exporter registered, not what the descriptor says.
        let asked = (descriptor.address(), descriptor.len());
        let granted = (base.addr() as u64, len as u64);
        let inside = asked.0 >= granted.0
            && asked.0.checked_add(asked.1).is_some_and(|end| end <= granted.0.saturating_add(granted.1));
        if !inside {
            let message = format!(
                "the descriptor says {} bytes at {:#x}, but grants {} bytes at {:#x}",
                asked.1, asked.0, granted.1, granted.0
            );
            return Err(error(ErrorKind::Malformed, message)
                .with_numbers(asked.1, granted.1)
                .with_hint("have the peer export the memory again, and pass its descriptor on unchanged"));
        }
        let base = NonNull::new(base.with_addr(asked.0 as usize))
            .ok_or_else(|| error(ErrorKind::Malformed, "the descriptor's address is 0"))?;
        let len = usize::try_from(asked.1).map_err(|_| ErrorKind::OutOfRange)?;
        Ok(Self::new(engine, map, base, len, descriptor.rights(), None, Some(descriptor.native().into())))
    }

    fn new(
        engine: &Arc<Inner>,
        map: Mmap,
        base: NonNull<u8>,
        len: usize,
        access: Access,
        export: Option<Access>,
        imported: Option<Arc<[u8]>>,
    ) -> Self {
        let key = engine.table.add(Entry { map: map.raw(), base: base.as_ptr(), len, imported });
        Self { engine: Arc::clone(engine), key, base, len, access, export, map: Some(map) }
    }
}

impl Drop for DocaRegion {
    fn drop(&mut self) {
        self.engine.table.remove(self.key);
        // Deregisters.
        self.map = None;
    }
}

/// The SDK's rights for memory that stays here. Exports get maps of their own.
fn local(access: Access) -> u32 {
    permissions(access, Access::empty(), Fabric::Pci).unwrap_or(DOCA_ACCESS_FLAG_LOCAL_READ_WRITE)
}

fn check_export(engine: &Inner, request: &MemoryRequest) -> Result<()> {
    if request.export.is_empty() {
        return Ok(());
    }
    if !engine.exports() {
        let message = format!("device {} does not export memory", engine.device.address);
        return Err(error(ErrorKind::Unsupported, message)
            .with_hint("export from the host's side of the card, or update its firmware"));
    }
    Ok(())
}

/// The error of `doca_mmap_create_from_export`. The descriptor has come whole, as its checksum says; but libraries have one word, an invalid value,
/// for a descriptor that was taken back, that is of another card, or that was made up.
fn not_imported(e: Error) -> Error {
    let code = e.native().map_or(DOCA_ERROR_UNKNOWN, |native| native.code as doca_error_t);
    let (kind, hint) = match code {
        DOCA_ERROR_NOT_PERMITTED => (
            ErrorKind::PermissionDenied,
            "run both sides as the same user, or as root; import on the card's other side",
        ),
        DOCA_ERROR_NO_MEMORY => (ErrorKind::OutOfMemory, "drop imports that are not used any more"),
        DOCA_ERROR_NOT_SUPPORTED => (ErrorKind::Unsupported, "import on the DPU's side of the card"),
        _ => (
            ErrorKind::Revoked,
            "the exporter took it back or is gone: have it export again; or it exported over another card: open that one; or these bytes are no descriptor of the SDK's",
        ),
    };
    let error = Error::new(kind, e.message().to_owned()).with_backend(BACKEND).with_hint(hint);
    match e.native() {
        Some(native) => error.with_native(native.clone()),
        None => error,
    }
}

// SAFETY: nothing changes. Local memory is mapped until the drop: by the map's own mapping, or by whoever registered it, as promised. The
// device touches it as tasks say, which are made of descriptors alone. The drop deregisters.
unsafe impl RawRegion for DocaRegion {
    fn engine_id(&self) -> EngineId {
        self.engine.id
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
        self.export.is_some()
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        let Some(allowed) = self.export else {
            return Err(error(ErrorKind::Unsupported, "a peer's memory cannot be passed on")
                .with_hint("pass on the descriptor that it was imported with"));
        };
        if allowed.is_empty() {
            return Err(error(ErrorKind::AccessDenied, "the memory was not made to be exported")
                .with_hint("allocate or register it with `MemoryRequest::exportable`"));
        }
        if !allowed.contains(rights) {
            let message = format!("rights {rights:?} of memory that is exportable with {allowed:?}");
            return Err(error(ErrorKind::AccessDenied, message)
                .with_hint("allocate it with `MemoryRequest::exportable` and these rights"));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(error(ErrorKind::OutOfRange, format!("{len} bytes at {offset} of {}", self.len)));
        }
        let fabric = self.engine.fabric;
        let Some(rights) = permissions(Access::all(), rights, fabric) else {
            return Err(error(ErrorKind::Unsupported, "over PCI, who may write may read")
                .with_hint("export with READ and WRITE, or with READ alone"));
        };
        // SAFETY: inside of the region.
        let base = unsafe { self.base.add(offset) };
        // A map of its own: the export grants this range and these rights, and ends without the region's end.
        let map = Mmap::register(&self.engine.device, Memory::Borrowed(base, len), rights)?;
        let blob = map.export(fabric)?;
        Ok(Box::new(DocaExport { map: Some(map), blob, address: base.as_ptr().addr() as u64 }))
    }
}

/// Memory granted to a peer. Dropping takes it back, for as long as a second.
#[derive(Debug)]
struct DocaExport {
    map: Option<Mmap>,
    blob: Box<[u8]>,
    address: u64,
}

impl RawExport for DocaExport {
    fn native(&self) -> &[u8] {
        &self.blob
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn revoke(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now().checked_add(timeout);
        while let Some(map) = self.map.take() {
            let Err((map, e)) = map.destroy() else { return Ok(()) };
            self.map = Some(map);
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let mut late = error(ErrorKind::TimedOut, "the device still serves a peer")
                    .with_hint("do not reuse the memory");
                if let Some(native) = e.native() {
                    late = late.with_native(native.clone());
                }
                return Err(late);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for DocaExport {
    fn drop(&mut self) {
        if self.revoke(Duration::from_secs(1)).is_err() {
            tracing::error!(target: "doca", "an export could not be taken back");
        }
    }
}
