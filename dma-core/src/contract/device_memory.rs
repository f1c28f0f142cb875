//! [`DeviceMemory`]: memory on a device that another library has allocated.

use std::any::Any;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::addresses::Addresses;
use super::host_memory::Owner;
use crate::{DeviceAddr, Result};

/// Device memory to register, with its owner: a GPU array that another library has allocated, or the memory
/// behind a dma-buf.
///
/// [`DmaEngineExt::register_device`](crate::DmaEngineExt::register_device) makes a [`Window`](crate::Window)
/// from this value. The window's region keeps the owner alive until no operation uses the memory and the last
/// view is dropped.
pub struct DeviceMemory {
    addr: DeviceAddr,
    len: usize,
    dmabuf: Option<(OwnedFd, u64)>,
    owner: Owner,
}

impl DeviceMemory {
    /// Describes the `len` bytes at the device's address `addr`. `owner` keeps them allocated; use `()` for
    /// memory that is never freed. An engine with
    /// [`Capabilities::REGISTER_DEVICE`](crate::Capabilities::REGISTER_DEVICE) registers them, and asks its
    /// driver whether the range is valid.
    ///
    /// # Safety
    ///
    /// The bytes stay allocated while `owner` lives. No reference to them exists in this process while this
    /// value or a region made from it exists. If other work on the device accesses the bytes at the same
    /// time, both it and the operations read undefined bytes.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller guarantees that the address is valid")]
    pub unsafe fn from_raw(addr: DeviceAddr, len: usize, owner: impl Send + Sync + 'static) -> Self {
        Self { addr, len, dmabuf: None, owner: Owner::new(owner) }
    }

    /// Describes the `len` bytes of the dma-buf `fd` that begin at byte `offset`. `owner` keeps them
    /// allocated; use `()` if `fd` does. An engine with
    /// [`Capabilities::REGISTER_DMABUF`](crate::Capabilities::REGISTER_DMABUF) registers them.
    ///
    /// The bytes get an address that is used in descriptors only; the process maps nothing there. The address
    /// stays reserved while this value or a region made from it exists.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `len` is too long for the address space; `OutOfMemory` if no addresses are left.
    ///
    /// # Safety
    ///
    /// The requirements of [`from_raw`](Self::from_raw), and those of [`with_dmabuf`](Self::with_dmabuf) on
    /// the file.
    #[expect(unsafe_code, reason = "the caller guarantees that the bytes are valid")]
    pub unsafe fn from_dmabuf(
        fd: OwnedFd,
        offset: u64,
        len: usize,
        owner: impl Send + Sync + 'static,
    ) -> Result<Self> {
        // The address has the same offset within a page as the bytes, because devices map whole pages.
        let skip = offset as usize % rustix::param::page_size();
        let addresses = Addresses::reserve(len.saturating_add(skip))?;
        let addr = DeviceAddr((addresses.start() + skip) as u64);
        Ok(Self { addr, len, dmabuf: Some((fd, offset)), owner: Owner::new((addresses, owner)) })
    }

    /// Adds the dma-buf `fd`, for engines that register memory of other devices. The engine's device accesses
    /// the bytes through the dma-buf, not by address.
    ///
    /// # Safety
    ///
    /// The memory of this value is the dma-buf's memory, beginning at byte `offset` of the dma-buf. The file
    /// is sealed against becoming shorter, or all processes that have it are trusted not to make it shorter.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller guarantees that a device may access the bytes")]
    pub unsafe fn with_dmabuf(mut self, fd: OwnedFd, offset: u64) -> Self {
        self.dmabuf = Some((fd, offset));
        self
    }

    /// Returns the address of the first byte. No other memory of the process uses the addresses of this
    /// value.
    #[must_use]
    pub const fn addr(&self) -> DeviceAddr {
        self.addr
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether this value has a dma-buf.
    #[must_use]
    pub const fn has_dmabuf(&self) -> bool {
        self.dmabuf.is_some()
    }

    /// Returns the dma-buf and the offset of the first byte in it, if this value has a dma-buf.
    ///
    /// # Safety
    ///
    /// The caller passes the dma-buf, or a copy of its descriptor, only to devices, which access it as
    /// [`DmaEngine::register_device_raw`](crate::DmaEngine::register_device_raw) permits. It does not make
    /// the file shorter.
    #[must_use]
    #[expect(unsafe_code, reason = "an access to the file is an access to the bytes")]
    pub unsafe fn dmabuf(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.dmabuf.as_ref().map(|(fd, offset)| (fd.as_fd(), *offset))
    }

    /// Returns whether the owner's type is `M`.
    pub(crate) fn is_owned_by<M: Any>(&self) -> bool {
        self.owner.is::<M>()
    }

    /// Returns the owner if its type is `M`. The owner of memory from [`from_dmabuf`](Self::from_dmabuf)
    /// cannot be returned.
    ///
    /// # Errors
    ///
    /// This value, unchanged, if the owner is of another type or the memory is from `from_dmabuf`.
    pub fn into_owner<M: Any>(self) -> Result<M, Self> {
        if !self.is_owned_by::<M>() {
            return Err(self);
        }
        self.owner.into_box().downcast().map(|owner| *owner).map_err(|_| unreachable!("it is an `M`"))
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("addr", &self.addr)
            .field("len", &self.len)
            .field("dmabuf", &self.dmabuf)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_device_gives_its_owner_back() {
        #[expect(unsafe_code, reason = "an address that is never accessed")]
        // SAFETY: the test makes no reference to the address and submits no operation with it.
        let memory = unsafe { DeviceMemory::from_raw(DeviceAddr(64), 3, "owner".to_owned()) };
        assert_eq!((memory.addr(), memory.len(), memory.has_dmabuf()), (DeviceAddr(64), 3, false));
        let memory = memory.into_owner::<u8>().unwrap_err();
        assert_eq!(memory.into_owner::<String>().unwrap(), "owner");
    }

    #[test]
    fn dmabufs_have_addresses_of_their_own() {
        let dmabuf = |len| {
            let file = std::fs::File::open("/dev/null").unwrap();
            #[expect(unsafe_code, reason = "a file that is never accessed")]
            // SAFETY: the test submits no operation on the file, which is empty.
            unsafe {
                DeviceMemory::from_dmabuf(file.into(), 4100, len, ())
            }
        };
        let (a, b) = (dmabuf(5000).unwrap(), dmabuf(5000).unwrap());
        assert!(a.addr().0.abs_diff(b.addr().0) >= 5000, "{a:?} {b:?}");
        assert_eq!(a.dmabuf.as_ref().unwrap().1, 4100);
        assert_eq!(a.addr().0 % 4096, 4, "the address has the same offset within a page");
        assert!(dmabuf(usize::MAX).is_err() && dmabuf(1 << 60).is_err());
    }
}
