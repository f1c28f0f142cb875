//! Regions: memory that is registered with the device.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::{
    Access, DeviceAddr, DeviceMemory, Error, ErrorKind, HostMemory, MemoryRequest, PageMemory, RawExport,
    RawRegion, RegionInfo, RegionKey, Result,
};
use rustix::io::Errno;

use crate::device::{Device, Handle};
use crate::engine_state::EngineState;
use crate::error::{error, failed};
use crate::export::RdmaExport;
use crate::verbs::{access, ibv_mr, ibv_pd};

/// The bytes to register.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Memory of this process.
    Mapped(NonNull<u8>),
    /// Memory of another device: the bytes of a dma-buf from `offset` on. In requests, the first byte has the
    /// address `addr`.
    DmaBuf { fd: OwnedFd, offset: u64, addr: u64 },
}

impl Bytes {
    /// Returns the address of the first byte in requests.
    pub(crate) fn addr(&self) -> u64 {
        match self {
            Self::Mapped(base) => base.addr().get() as u64,
            Self::DmaBuf { addr, .. } => *addr,
        }
    }
}

/// Memory that is registered with the device until this value is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) handle: Handle<ibv_mr>,
    device: Arc<Device>,
    /// Allocated memory, which is leaked if the memory cannot be deregistered.
    memory: Option<PageMemory>,
}

impl Registered {
    /// Registers memory in a domain of the device, with the rights `access`. This pins the memory.
    ///
    /// # Safety
    ///
    /// The domain outlives this value. The bytes also outlive it, unless they belong to `memory`.
    pub(crate) unsafe fn new(
        device: &Arc<Device>,
        pd: Handle<ibv_pd>,
        (bytes, len): (&Bytes, usize),
        flags: i32,
        memory: Option<PageMemory>,
    ) -> Result<Self> {
        // SAFETY: this function's caller promises that domain and memory outlive this value.
        let handle = unsafe { device.register(pd, bytes, len, flags) }.map_err(|errno| match bytes {
            Bytes::Mapped(_) => refused(len, errno),
            Bytes::DmaBuf { .. } => refused_dmabuf(len, errno),
        })?;
        Ok(Self { handle, device: Arc::clone(device), memory })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.device.deregister(self.handle) {
            dma_core::guarded_log!(error, device = self.device.name, "memory cannot be deregistered");
            std::mem::forget(self.memory.take());
        }
    }
}

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

/// Returns the library's rights for `access`: peers may read, and `write` is used for the right to write.
pub(crate) fn rights(access: Access, write: i32) -> i32 {
    let right = |of, flag| if access.contains(of) { flag } else { 0 };
    right(Access::READ, access::REMOTE_READ) | right(Access::WRITE, write)
}

/// Returns the error for memory that the device does not register.
pub(crate) fn refused(len: usize, errno: Errno) -> Error {
    let what = format!("{len} bytes cannot be registered");
    match errno {
        Errno::NOMEM => match dma_vendor::host::exceeded_memlock(len as u64) {
            Some(limit) => {
                let message = format!("{what}: this process may pin {} KiB in all", limit >> 10);
                error(ErrorKind::PermissionDenied, message)
                    .with_numbers(len as u64, limit)
                    .with_source(std::io::Error::from(errno))
                    .with_hint("raise the limit: `ulimit -l unlimited`, or a line `* - memlock unlimited` in /etc/security/limits.d/dma.conf")
            }
            None => error(ErrorKind::OutOfMemory, what)
                .with_source(std::io::Error::from(errno))
                .with_hint("the process may pin this much, so the device or the machine lacks memory: free memory, or drop regions"),
        },
        Errno::FAULT | Errno::INVAL => error(ErrorKind::InvalidArgument, what)
            .with_source(std::io::Error::from(errno))
            .with_hint("check that all of it is mapped, writable if the device has to write it, and not mapped from a file"),
        other => failed(what, other),
    }
}

/// Returns the error for a dma-buf that the device does not register.
fn refused_dmabuf(len: usize, errno: Errno) -> Error {
    let what = format!("{len} bytes of a dma-buf cannot be registered");
    let (kind, hint) = match errno {
        Errno::INVAL | Errno::FAULT | Errno::BADF => (
            ErrorKind::InvalidArgument,
            "check that the descriptor is a dma-buf of this length, and that its device allows access by other devices",
        ),
        Errno::OPNOTSUPP | Errno::PROTONOSUPPORT | Errno::NOSYS => (
            ErrorKind::Unsupported,
            "the NIC's driver or the kernel (5.12 or later is needed) does not support dma-bufs: copy through host memory",
        ),
        other => return failed(what, other),
    };
    error(kind, what).with_source(std::io::Error::from(errno)).with_hint(hint)
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
            let message = format!("{len} bytes at {offset} of a region of {}", info.len);
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
