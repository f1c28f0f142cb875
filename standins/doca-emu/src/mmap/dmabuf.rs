//! Memory of a file descriptor: a dma-buf of the kernel, or a memfd.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use dma_standin::dmabuf_range;
use rustix::fs::{SealFlags, fcntl_add_seals};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::c_abi::{INVALID, Outcome, c, require};

/// A range of the file's memory, mapped into this process for the device.
pub(super) struct DmaBuf {
    base: NonNull<u8>,
    mapped: usize,
    skip: usize,
}

// SAFETY: this value owns the mapping, and does not access its bytes. Any thread may unmap it.
unsafe impl Send for DmaBuf {}

impl DmaBuf {
    /// Maps `len` bytes of `fd`, beginning at `offset`.
    /// Errors: `INVALID_VALUE` if the file is too short, `DRIVER` if it cannot be mapped.
    pub(super) fn new(fd: i32, offset: usize, len: usize) -> Outcome<Self> {
        require(fd >= 0 && len > 0, INVALID)?;
        // SAFETY: the descriptor is not negative, and the program lends it for this call. If it is not open,
        // the calls below return an error.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // A dma-buf cannot shrink. A memfd is sealed so that it cannot shrink. If it cannot be sealed, the
        // program is trusted not to make it shorter.
        let _ = fcntl_add_seals(fd, SealFlags::SHRINK);
        let (start, size) = dmabuf_range(fd).map_err(|_| INVALID)?;
        let end = offset.checked_add(len).ok_or(INVALID)?;
        require(end as u64 <= size, INVALID)?;
        let offset = offset + start as usize;
        let skip = offset % rustix::param::page_size();
        let mapped = len.checked_add(skip).ok_or(INVALID)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free address, so no existing mapping changes.
        let base = unsafe {
            mmap(std::ptr::null_mut(), mapped, protection, MapFlags::SHARED, fd, (offset - skip) as u64)
        };
        let base = base.map_err(|_| c::DOCA_ERROR_DRIVER)?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(c::DOCA_ERROR_DRIVER)?, mapped, skip })
    }

    pub(super) fn first(&self) -> NonNull<u8> {
        // SAFETY: the mapping has `skip + len` bytes, and `len` is not 0.
        unsafe { self.base.add(self.skip) }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and no device uses it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
