//! Registers bytes with the device.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::{Access, Error, ErrorKind, PageMemory, Result};
use dma_process::{MEMLOCK_REMEDY, count, exceeded_memlock};
use rustix::io::Errno;

use crate::device::Device;
use crate::error::{error, failed};
use crate::handle::{Handle, checked};
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
            std::mem::forget(self.memory.take());
            let device = self.device.name.clone();
            dma_core::deferred_log!(error, device, "memory cannot be deregistered");
        }
    }
}

impl Device {
    /// Registers memory in a domain, with the rights `access`. This pins the memory.
    ///
    /// # Safety
    ///
    /// The domain belongs to this device. The memory stays mapped, or the dma-buf's memory allocated, until
    /// the handle is passed to [`deregister`](Self::deregister).
    pub(crate) unsafe fn register(
        &self,
        pd: Handle<ibv_pd>,
        bytes: &Bytes,
        len: usize,
        flags: i32,
    ) -> Result<Handle<ibv_mr>, Errno> {
        Handle::new(match bytes {
            // SAFETY: the domain belongs to this device, and the caller promises that the memory is mapped.
            Bytes::Mapped(base) => unsafe {
                (self.verbs.ibv_reg_mr)(pd.as_ptr(), base.as_ptr().cast(), len, flags)
            },
            Bytes::DmaBuf { fd, offset, addr } => {
                let call = self.verbs.ibv_reg_dmabuf_mr.ok_or(Errno::OPNOTSUPP)?;
                // SAFETY: the domain belongs to this device, the descriptor is open, and the caller promises
                // that its memory stays allocated.
                unsafe { call(pd.as_ptr(), *offset, len, *addr, fd.as_raw_fd(), flags) }
            }
        })
    }

    /// Returns true if the device registers dma-bufs. The function tries to register an invalid descriptor:
    /// without support, the call fails with "unsupported" before it checks the descriptor. NCCL does the same
    /// (`ncclIbDmaBufSupport` in its `net_ib.cc`).
    pub(crate) fn takes_dmabufs(&self) -> bool {
        let Some(call) = self.verbs.ibv_reg_dmabuf_mr else { return false };
        // SAFETY: the domain belongs to this device. The descriptor is invalid, so it names no memory.
        match Handle::new(unsafe { call(self.pd.as_ptr(), 0, 0, 0, -1, 0) }) {
            Ok(region) => self.deregister(region),
            Err(errno) => !matches!(errno, Errno::OPNOTSUPP | Errno::PROTONOSUPPORT | Errno::NOSYS),
        }
    }

    /// Deregisters memory. Returns true if the device no longer reaches it.
    pub(crate) fn deregister(&self, region: Handle<ibv_mr>) -> bool {
        // SAFETY: the memory was registered on this device, and its handle is passed here once.
        let code = unsafe { (self.verbs.ibv_dereg_mr)(region.as_ptr()) };
        checked(code).is_ok()
    }
}

/// Returns the library's rights for `access`: peers may read, and `write` is used for the right to write.
pub(crate) fn rights(access: Access, write: i32) -> i32 {
    let right = |of, flag| if access.contains(of) { flag } else { 0 };
    right(Access::READ, access::REMOTE_READ) | right(Access::WRITE, write)
}

/// Returns the error for memory that the device does not register.
pub(crate) fn refused(len: usize, errno: Errno) -> Error {
    let what = format!("{} cannot be registered", count(len, "byte", "bytes"));
    match errno {
        Errno::NOMEM => match exceeded_memlock(len as u64) {
            Some(limit) => {
                let message = format!("{what}: this process may pin {} KiB in all", limit >> 10);
                error(ErrorKind::PermissionDenied, message)
                    .with_numbers(len as u64, limit)
                    .with_source(std::io::Error::from(errno))
                    .with_hint(MEMLOCK_REMEDY)
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
    let what = format!("{} of a dma-buf cannot be registered", count(len, "byte", "bytes"));
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
