//! Regions: memory of this process, and imported memory.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{
    Access, DeviceAddr, DeviceMemory, Error, ErrorKind, ExportDescriptor, HostMemory, MemoryRequest,
    RawExport, RawRegion, RegionInfo, Result,
};
use dma_process::count;
use doca_sys::bindings::*;

use crate::buffers::BufferSource;
use crate::engine_state::EngineState;
use crate::error::{NAME, error};
use crate::memory::Mapping;
use crate::mmap::{MapMemory, Mmap, permissions};
use crate::options::Fabric;

/// Memory registered with a device until dropped.
#[derive(Debug)]
pub(crate) struct DocaRegion {
    engine: Arc<EngineState>,
    info: RegionInfo,
    /// The maximum rights of exports. `None` for imported memory, which cannot be exported.
    export: Option<Access>,
    #[expect(dead_code, reason = "registered for as long as the region")]
    map: Mmap,
}

impl DocaRegion {
    pub(crate) fn allocate(engine: &Arc<EngineState>, request: &MemoryRequest) -> Result<Self> {
        check_export(engine, request)?;
        let mapping = Mapping::new(request)?;
        let base = mapping.base();
        let map =
            Mmap::register(&engine.device, MapMemory::Own(mapping, request.len), local(request.access))?;
        Ok(Self::new(engine, map, base.as_ptr(), request.len, request.access, Some(request.export), None))
    }

    /// Registers the caller's host memory. The caller of `register_raw` promises that the memory outlives the
    /// region.
    pub(crate) fn register(
        engine: &Arc<EngineState>,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Self> {
        check_export(engine, request)?;
        let (base, len) = (memory.as_ptr(), memory.len());
        // SAFETY: only the device accesses the file, as submitted descriptors require.
        let over = match unsafe { memory.fd() } {
            Some((fd, offset)) => MapMemory::File(base, len, fd, offset),
            None => MapMemory::Borrowed(base, len),
        };
        let map = Mmap::register(&engine.device, over, local(request.access))?;
        Ok(Self::new(engine, map, base.as_ptr(), len, request.access, Some(request.export), None))
    }

    /// Registers memory of another device. The caller of `register_device_raw` promises that it outlives the
    /// region.
    pub(crate) fn register_device(
        engine: &Arc<EngineState>,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Self> {
        if !request.export.is_empty() {
            return Err(error(ErrorKind::Unsupported, "memory of another device cannot be exported")
                .with_hint("export host memory, and copy to or from it"));
        }
        // SAFETY: only the device accesses the dma-buf, as submitted descriptors require.
        let Some((fd, offset)) = (unsafe { memory.dmabuf() }) else {
            return Err(error(ErrorKind::Unsupported, "device memory without a dma-buf").with_hint(
                "take the memory from `Window::dmabuf`, or pass a dma-buf to `DeviceMemory::with_dmabuf`",
            ));
        };
        let Some(base) = NonNull::new(memory.addr().as_ptr()) else {
            return Err(error(ErrorKind::InvalidArgument, "device memory at address 0"));
        };
        let len = memory.len();
        let over = MapMemory::DmaBuf(base, len, fd, offset);
        let map = Mmap::register(&engine.device, over, local(request.access))?;
        let mut region =
            Self::new(engine, map, base.as_ptr(), len, request.access, Some(Access::empty()), None);
        region.info.cpu = None;
        Ok(region)
    }

    pub(crate) fn import(engine: &Arc<EngineState>, descriptor: &ExportDescriptor) -> Result<Self> {
        if descriptor.backend() != NAME {
            let message = format!("a descriptor of the backend {:?}", descriptor.backend());
            return Err(error(ErrorKind::Unsupported, message)
                .with_hint(format!("this engine imports descriptors of the backend {NAME:?}")));
        }
        let (asked, blob) = split_native(descriptor.native())?;
        let map = Mmap::import(&engine.device, blob).map_err(not_imported)?;
        let base = granted(&map, asked, descriptor.len())?;
        let len = usize::try_from(descriptor.len()).map_err(|_| ErrorKind::OutOfRange)?;
        Ok(Self::new(engine, map, base, len, descriptor.rights(), None, Some(blob.into())))
    }

    fn new(
        engine: &Arc<EngineState>,
        map: Mmap,
        base: *mut u8,
        len: usize,
        access: Access,
        export: Option<Access>,
        imported: Option<Arc<[u8]>>,
    ) -> Self {
        let addr = DeviceAddr(base.expose_provenance() as u64);
        let cpu = if imported.is_none() { NonNull::new(base) } else { None };
        let key = engine.table.add(BufferSource { map: map.raw(), base, len, imported });
        let info = RegionInfo { engine: engine.id, key, addr, len, access, cpu };
        Self { engine: Arc::clone(engine), info, export, map }
    }
}

impl Drop for DocaRegion {
    fn drop(&mut self) {
        self.engine.table.remove(self.info.key);
    }
}

/// Builds the [`native`](ExportDescriptor::native) part of this backend's descriptor: the address of the
/// first byte in the exporter's process (8 bytes, little-endian), then the bytes that `doca_mmap_export_*`
/// returned.
#[must_use]
pub fn join_native(address: u64, blob: &[u8]) -> Vec<u8> {
    [&address.to_le_bytes(), blob].concat()
}

/// Splits the [`native`](ExportDescriptor::native) part of this backend's descriptor into the address of the
/// first byte in the exporter's process and the bytes that `doca_mmap_export_*` returned. Programs of the
/// SDK write these to two files.
///
/// # Errors
///
/// `Malformed` if `native` has fewer than 8 bytes.
pub fn split_native(native: &[u8]) -> Result<(u64, &[u8])> {
    let (address, blob) = native.split_first_chunk().ok_or_else(|| {
        error(
            ErrorKind::Malformed,
            format!("{}, but the address alone needs 8", count(native.len(), "byte", "bytes")),
        )
        .with_hint("give the importer the bytes of the export descriptor without changes")
    })?;
    Ok((u64::from_le_bytes(*address), blob))
}

/// Returns the address of the first byte if the map grants all `len` bytes at `addr`. Otherwise returns an
/// error, because the descriptor claims too much.
fn granted(map: &Mmap, addr: u64, len: u64) -> Result<*mut u8> {
    let too_much = |grants: String| {
        let message = format!("the descriptor states {} at {addr:#x}, {grants}", count(len, "byte", "bytes"));
        error(ErrorKind::Malformed, message)
            .with_hint("have the peer export the memory again, and pass its descriptor on unchanged")
    };
    let Some((base, granted)) = map.range()? else {
        let base = std::ptr::null_mut::<u8>().with_addr(addr as usize);
        let len = usize::try_from(len).map_err(|_| ErrorKind::OutOfRange)?;
        return if map.has(base, len)? {
            Ok(base)
        } else {
            Err(too_much("which is more than it grants".to_owned()))
        };
    };
    let (first, granted) = (base.addr() as u64, granted as u64);
    let inside =
        addr >= first && addr.checked_add(len).is_some_and(|end| end <= first.saturating_add(granted));
    if !inside {
        return Err(too_much(format!("but grants {} at {first:#x}", count(granted, "byte", "bytes")))
            .with_numbers(len, granted));
    }
    Ok(base.with_addr(addr as usize))
}

/// Returns the SDK's rights for a map of local memory. Exports have maps of their own.
fn local(access: Access) -> u32 {
    permissions(access, Access::empty(), Fabric::Pci).unwrap_or(DOCA_ACCESS_FLAG_LOCAL_READ_WRITE)
}

fn check_export(engine: &EngineState, request: &MemoryRequest) -> Result<()> {
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

/// Adds the likely cause to an error of `doca_mmap_create_from_export`. The descriptor's checksum was
/// correct. But libraries return the same code, INVALID_VALUE, if the export was revoked, if the descriptor
/// is of another card, and if it is invalid.
fn not_imported(e: Error) -> Error {
    if e.kind() == ErrorKind::OutOfResources {
        return e;
    }
    let code = e.native().map_or(DOCA_ERROR_UNKNOWN, |native| native.code.cast_unsigned());
    let (kind, hint) = match code {
        DOCA_ERROR_NOT_PERMITTED => (
            ErrorKind::PermissionDenied,
            "run both sides as the same user, or as root; import on the card's other side",
        ),
        DOCA_ERROR_NO_MEMORY => (ErrorKind::OutOfMemory, "drop unused imports"),
        DOCA_ERROR_NOT_SUPPORTED => (ErrorKind::Unsupported, "import on the DPU's side of the card"),
        _ => (
            ErrorKind::Revoked,
            "the exporter revoked it or has ended: have it export again; or it exported over another card: open that card; or these bytes are not a descriptor of the SDK",
        ),
    };
    let error = Error::new(kind, e.message().to_owned()).with_backend(NAME).with_hint(hint);
    match e.native() {
        Some(native) => error.with_native(native.clone()),
        None => error,
    }
}

// SAFETY: the description never changes. Local memory stays mapped until the drop, because the map owns it
// or the caller of `register` promised that. The device accesses the memory only for tasks, which are made of
// descriptors, and the drop deregisters it.
unsafe impl RawRegion for DocaRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        let Some(allowed) = self.export else {
            return Err(error(ErrorKind::Unsupported, "imported memory cannot be exported")
                .with_hint("pass on the descriptor that it was imported with"));
        };
        let Some(base) = self.info.cpu else {
            return Err(error(ErrorKind::Unsupported, "memory of another device cannot be exported")
                .with_hint("export host memory, and copy to or from it"));
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
        if offset.checked_add(len).is_none_or(|end| end > self.info.len) {
            return Err(error(
                ErrorKind::OutOfRange,
                format!("{} at {offset} of {}", count(len, "byte", "bytes"), self.info.len),
            ));
        }
        let fabric = self.engine.fabric;
        let Some(rights) = permissions(Access::all(), rights, fabric) else {
            return Err(error(ErrorKind::Unsupported, "over PCI, the right to write includes reading")
                .with_hint("export with READ and WRITE, or with READ alone"));
        };
        // SAFETY: the range is within the region, so `base + offset` is at most its end.
        let base = unsafe { base.add(offset) };
        // The export has its own map, which grants only this range and these rights. It is destroyed
        // independently of the region's map.
        let map = Mmap::register(&self.engine.device, MapMemory::Borrowed(base, len), rights)?;
        let native = join_native(base.as_ptr().addr() as u64, &map.export(fabric)?);
        Ok(Box::new(DocaExport { map, native }))
    }
}

/// Memory exported to a peer. Dropping it revokes the export, which may block for up to a second.
#[derive(Debug)]
struct DocaExport {
    map: Mmap,
    native: Vec<u8>,
}

// SAFETY: `revoke` returns `Ok` after the SDK has destroyed the exported map. From then on, the device
// refuses peers.
unsafe impl RawExport for DocaExport {
    fn native(&self) -> &[u8] {
        &self.native
    }

    fn revoke(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now().checked_add(timeout);
        while let Err(e) = self.map.destroy() {
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
            dma_core::guarded_log!(error, target: "doca", "an export could not be revoked");
        }
    }
}
