//! Regions: memory that is registered with the device.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use dma_core::{
    Access, DeviceAddr, DeviceMemory, ErrorKind, HostMemory, MemoryRequest, PageMemory, RawExport, RawRegion,
    RegionInfo, RegionKey, Result,
};
use dma_process::count;

use crate::engine_state::EngineState;
use crate::error::error;
use crate::export::RdmaExport;
use crate::registration::{Bytes, Registered, rights};
use crate::verbs::{access, ibv_mr};

/// Memory that the device reaches.
#[derive(Debug)]
pub(crate) struct RdmaRegion {
    inner: Arc<EngineState>,
    _registered: Registered,
    info: RegionInfo,
    /// The dma-buf of memory that is not mapped, and the offset of the first byte in it.
    dmabuf: Option<(OwnedFd, u64)>,
    /// The maximum rights of an export.
    export: Access,
}

/// Returns the two keys of a region from one number: the lower half is the local key, the upper half the key
/// for peers.
pub(crate) const fn keys(key: RegionKey) -> (u32, u32) {
    (key.0 as u32, (key.0 as u64 >> 32) as u32)
}

impl RdmaRegion {
    /// Allocates zeroed memory in whole pages, because only whole pages can be pinned.
    pub(crate) fn allocate(inner: &Arc<EngineState>, request: &MemoryRequest) -> Result<Self> {
        let memory = PageMemory::new(request)?;
        // SAFETY: the bytes are all of the memory that is passed as the last argument.
        unsafe { Self::on(inner, Bytes::Mapped(memory.as_ptr()), request.len, request, Some(memory)) }
    }

    /// Registers memory of the caller.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until the region is dropped.
    pub(crate) unsafe fn register(
        inner: &Arc<EngineState>,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Self> {
        if memory.is_empty() {
            return Err(error(ErrorKind::InvalidArgument, "0 bytes to register")
                .with_hint("register at least 1 byte"));
        }
        // SAFETY: this function's caller promises that the memory stays mapped.
        unsafe { Self::on(inner, Bytes::Mapped(memory.as_ptr()), memory.len(), request, None) }
    }

    /// Registers memory of another device by its dma-buf.
    ///
    /// # Safety
    ///
    /// The memory stays allocated until the region is dropped.
    pub(crate) unsafe fn register_device(
        inner: &Arc<EngineState>,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Self> {
        // SAFETY: only the device accesses the dma-buf, as submitted descriptors require.
        let Some((fd, offset)) = (unsafe { memory.dmabuf() }) else {
            return Err(error(ErrorKind::Unsupported, "device memory without a dma-buf").with_hint(
                "take the memory from `Window::dmabuf`, or name one by `DeviceMemory::with_dmabuf`",
            ));
        };
        let bytes = Bytes::DmaBuf { fd: fd.try_clone_to_owned()?, offset, addr: memory.addr().0 };
        // SAFETY: this function's caller promises that the memory stays allocated.
        unsafe { Self::on(inner, bytes, memory.len(), request, None) }
    }

    /// # Safety
    ///
    /// The bytes stay valid until the region is dropped, unless they belong to `memory`.
    unsafe fn on(
        inner: &Arc<EngineState>,
        bytes: Bytes,
        len: usize,
        request: &MemoryRequest,
        memory: Option<PageMemory>,
    ) -> Result<Self> {
        let device = &inner.device;
        let most = device.attr.max_mr_size;
        if len as u64 > most {
            return Err(error(ErrorKind::OutOfRange, format!("a region of {len} bytes"))
                .with_numbers(len as u64, most)
                .with_hint("the device cannot register more in one piece: use several regions"));
        }
        let &MemoryRequest { access, export, .. } = request;
        // Remote rights are safe here, because queue pairs of this domain are connected to themselves, or
        // grant their peer no rights.
        let flags = rights(access, access::LOCAL_WRITE);
        // SAFETY: this function's caller promises that the bytes stay valid, and the device keeps its domain.
        let registered = unsafe { Registered::new(device, device.pd, (&bytes, len), flags, memory) }?;
        // SAFETY: the library made the region, whose keys never change.
        let &ibv_mr { lkey, rkey, .. } = unsafe { &*registered.handle.as_ptr() };
        if lkey == 0 {
            // The key 0 marks imported memory. No known device uses it.
            return Err(error(ErrorKind::Unsupported, "the device gave memory the key 0"));
        }
        let key = RegionKey((u64::from(rkey) << 32 | u64::from(lkey)) as usize);
        let (info, dmabuf) = match bytes {
            Bytes::Mapped(base) => (RegionInfo::local(inner.id, key, base, len, access), None),
            Bytes::DmaBuf { fd, offset, addr } => {
                let info = RegionInfo::remote(inner.id, key, DeviceAddr(addr), len, access);
                (info, Some((fd, offset)))
            }
        };
        Ok(Self { inner: Arc::clone(inner), _registered: registered, info, dmabuf, export })
    }
}

// SAFETY: the description never changes. The memory was allocated here, or the caller of `register_raw`
// guarantees that it is valid. Only descriptors write to it.
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
        if !offset.checked_add(len).is_some_and(|end| len > 0 && end <= info.len) {
            let message = format!("{} at {offset} of a region of {}", count(len, "byte", "bytes"), info.len);
            return Err(error(ErrorKind::OutOfRange, message));
        }
        let bytes = match (info.cpu, &self.dmabuf) {
            // SAFETY: the exported range lies within the region.
            (Some(base), _) => Bytes::Mapped(unsafe { base.add(offset) }),
            (None, Some((fd, first))) => {
                let (fd, addr) = (fd.try_clone()?, info.addr.offset(offset).0);
                Bytes::DmaBuf { fd, offset: first + offset as u64, addr }
            }
            (None, None) => {
                return Err(error(ErrorKind::Unsupported, "memory without a mapping or a dma-buf"));
            }
        };
        let service = self.inner.service()?;
        // SAFETY: this function's caller promises that the region outlives its exports.
        let export = unsafe { RdmaExport::new(&self.inner.device, service, &bytes, len, rights) }?;
        Ok(Box::new(export))
    }
}
