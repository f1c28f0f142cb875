//! Memory of a file descriptor: a DMA buffer of the kernel, or a memfd in its place.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::fs::{SealFlags, SeekFrom, fcntl_add_seals, seek};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::c_abi::{INVALID, Outcome, c, require};

/// A stretch of it, mapped here for the device.
pub(super) struct DmaBuf {
    base: NonNull<u8>,
    mapped: usize,
    skip: usize,
}

// SAFETY: the address is not dereferenced by this value; the device checks each access to it.
unsafe impl Send for DmaBuf {}

impl DmaBuf {
    /// Maps `len` bytes from `offset` of `fd` on.
    /// Errors: The descriptor cannot be mapped, or has fewer bytes.
    pub(super) fn new(fd: i32, offset: usize, len: usize) -> Outcome<Self> {
        require(fd >= 0 && len > 0, INVALID)?;
        // SAFETY: the descriptor is not negative; if it is not open, the calls below say so.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // DMA buffers cannot shrink, and seeking to the end tells their size. A memfd is sealed so that it
        // cannot shrink. A descriptor that cannot be sealed is not a memfd.
        let _ = fcntl_add_seals(fd, SealFlags::SHRINK);
        let size = seek(fd, SeekFrom::End(0)).map_err(|_| INVALID)?;
        let end = offset.checked_add(len).ok_or(INVALID)?;
        require(end as u64 <= size, INVALID)?;
        let skip = offset % rustix::param::page_size();
        let mapped = len.checked_add(skip).ok_or(INVALID)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel chooses.
        let base = unsafe {
            mmap(std::ptr::null_mut(), mapped, protection, MapFlags::SHARED, fd, (offset - skip) as u64)
        };
        let base = base.map_err(|_| c::DOCA_ERROR_DRIVER)?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(c::DOCA_ERROR_DRIVER)?, mapped, skip })
    }

    pub(super) fn first(&self) -> NonNull<u8> {
        // SAFETY: within the mapping, which begins on a page and has a byte at least behind `skip`.
        unsafe { self.base.add(self.skip) }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no device has it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
