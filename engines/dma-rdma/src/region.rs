//! Regions: memory of this process that is registered with the device.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::{
    Access, Error, ErrorKind, HostMemory, MemoryRequest, PageMemory, RawExport, RawRegion, RegionInfo,
    RegionKey, Result,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::device::{Device, Handle};
use crate::error::{error, failed};
use crate::export::RdmaExport;
use crate::shared::Inner;
use crate::verbs::{access, ibv_mr, ibv_pd};

/// Memory that is registered with the device, until this is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) handle: Handle<ibv_mr>,
    device: Arc<Device>,
    /// Allocated memory, which is leaked if the device does not let it go.
    memory: Option<PageMemory>,
}

impl Registered {
    /// Registers memory in a domain of the device, with rights of `access`, which pins it.
    ///
    /// # Safety
    ///
    /// The domain outlives this value, and so does the memory, unless it is `memory`.
    pub(crate) unsafe fn new(
        device: &Arc<Device>,
        pd: Handle<ibv_pd>,
        (base, len): (NonNull<u8>, usize),
        flags: i32,
        memory: Option<PageMemory>,
    ) -> Result<Self> {
        // SAFETY: by the caller's promise.
        let handle = unsafe { device.register(pd, base, len, flags) }.map_err(|errno| refused(len, errno))?;
        Ok(Self { handle, device: Arc::clone(device), memory })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.device.deregister(self.handle) {
            tracing::error!(device = self.device.name, "memory cannot be deregistered");
            std::mem::forget(self.memory.take());
        }
    }
}

/// Memory that the device reaches.
#[derive(Debug)]
pub(crate) struct RdmaRegion {
    inner: Arc<Inner>,
    _registered: Registered,
    info: RegionInfo,
    /// The most rights of an export.
    export: Access,
}

/// The keys of a region, as one number: the lower half is for the device itself, the upper half for a peer.
pub(crate) const fn keys(key: RegionKey) -> (u32, u32) {
    (key.0 as u32, (key.0 as u64 >> 32) as u32)
}

impl RdmaRegion {
    /// Allocates zeroed memory, in whole pages, because a page is pinned as a whole.
    pub(crate) fn allocate(inner: &Arc<Inner>, request: &MemoryRequest) -> Result<Self> {
        let memory = PageMemory::new(request)?;
        // SAFETY: all of the memory that is handed over.
        unsafe { Self::on(inner, memory.as_ptr(), request.len, request, Some(memory)) }
    }

    /// Registers memory of the caller.
    ///
    /// # Safety
    ///
    /// It stays mapped until the region is dropped.
    pub(crate) unsafe fn register(
        inner: &Arc<Inner>,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Self> {
        if memory.is_empty() {
            return Err(error(ErrorKind::InvalidArgument, "0 bytes to register")
                .with_hint("register at least 1 byte"));
        }
        // SAFETY: the caller's promise.
        unsafe { Self::on(inner, memory.as_ptr(), memory.len(), request, None) }
    }

    unsafe fn on(
        inner: &Arc<Inner>,
        base: NonNull<u8>,
        len: usize,
        request: &MemoryRequest,
        memory: Option<PageMemory>,
    ) -> Result<Self> {
        let device = &inner.device;
        let most = device.attr.max_mr_size;
        if len as u64 > most {
            return Err(error(ErrorKind::OutOfRange, format!("a region of {len} bytes"))
                .with_numbers(len as u64, most)
                .with_hint("the device registers no more in one piece: use several regions"));
        }
        let &MemoryRequest { access, export, .. } = request;
        // Queue pairs of this domain are connected to themselves, or grant their peer nothing.
        let flags = rights(access, access::LOCAL_WRITE);
        // SAFETY: the caller's promise, and the domain of the device.
        let registered = unsafe { Registered::new(device, device.pd, (base, len), flags, memory) }?;
        // SAFETY: a region of the library, whose keys are constant.
        let &ibv_mr { lkey, rkey, .. } = unsafe { &*registered.handle.as_ptr() };
        if lkey == 0 {
            // Marks imported memory, and no device was seen to give it.
            return Err(error(ErrorKind::Unsupported, "the device gave memory the key 0"));
        }
        let key = RegionKey((u64::from(rkey) << 32 | u64::from(lkey)) as usize);
        let info = RegionInfo::local(inner.id, key, base, len, access);
        Ok(Self { inner: Arc::clone(inner), _registered: registered, info, export })
    }
}

/// The library's rights for `access`: peers may read, and `write` is the right to write.
pub(crate) fn rights(access: Access, write: i32) -> i32 {
    let right = |of, flag| if access.contains(of) { flag } else { 0 };
    right(Access::READ, access::REMOTE_READ) | right(Access::WRITE, write)
}

/// The error if the device does not register memory.
pub(crate) fn refused(len: usize, errno: Errno) -> Error {
    let what = format!("{len} bytes cannot be registered");
    let limit = getrlimit(Resource::Memlock).current;
    match errno {
        Errno::NOMEM if limit.is_some_and(|limit| limit < 1 << 30) => {
            let limit = limit.unwrap_or(0);
            error(ErrorKind::PermissionDenied, format!("{what}: this process may pin {} KiB in all", limit >> 10))
                .with_source(std::io::Error::from(errno))
                .with_hint("raise the limit: `ulimit -l unlimited`, or a line `* - memlock unlimited` in /etc/security/limits.d/dma.conf")
        }
        Errno::NOMEM => error(ErrorKind::OutOfMemory, what)
            .with_source(std::io::Error::from(errno))
            .with_hint("registering pins memory: free some, or some regions"),
        Errno::FAULT | Errno::INVAL => error(ErrorKind::InvalidArgument, what)
            .with_source(std::io::Error::from(errno))
            .with_hint("check that all of it is mapped, writable if the device is to write it, and no file of a disk"),
        other => failed(what, other),
    }
}

// SAFETY: the description never changes. The memory is allocated here, or valid by the promise of the caller
// of `register_raw`. Only descriptors write to it.
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
        let base = info.cpu.filter(|_| offset.checked_add(len).is_some_and(|end| len > 0 && end <= info.len));
        let Some(base) = base else {
            let message = format!("{len} bytes at {offset} of a region of {}", info.len);
            return Err(error(ErrorKind::OutOfRange, message));
        };
        // SAFETY: inside of the region.
        let base = unsafe { base.add(offset) };
        let service = self.inner.service()?;
        // SAFETY: the region outlives its exports, which is the caller's promise.
        let export = unsafe { RdmaExport::new(&self.inner.device, service, base, len, rights) }?;
        Ok(Box::new(export))
    }
}
