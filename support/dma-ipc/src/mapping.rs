//! Maps shared memory, and dereferences pointers into it. No other module does this.

#![expect(unsafe_code, reason = "maps files, and copies from and to the mapped memory")]

use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use dma_core::racy_copy;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Pages of a file that cannot shrink, mapped shared until the value is dropped.
///
/// No reference to the bytes exists, because another process may change them at any time. They are only
/// copied in and out. Only the atomic word at the start is accessed by reference.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    /// Address and length to unmap. They cover more than the pages if an alignment needed a reservation.
    whole: (NonNull<u8>, usize),
}

// SAFETY: the mapping belongs to the process, not to a thread, so any thread may use and drop it.
unsafe impl Send for Mapping {}
// SAFETY: the methods that take `&self` copy the bytes with `racy_copy`, which allows concurrent changes of
// the bytes, or return pointers, or return a reference to the word, which is atomic.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on at a multiple of `align`, and populates the page tables,
    /// so that copies cause no page faults. Use this only for this process's own files: populating a peer's
    /// file could allocate as much memory as the peer states.
    ///
    /// `offset` and `len` must be multiples of the file's page size, and `align` a power of two. The caller
    /// must have checked that the file is long enough and sealed against shrinking; otherwise an access to
    /// the mapping could raise a signal.
    pub(super) fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
        align: usize,
    ) -> Result<Self, Errno> {
        Self::map(file, offset, len, writable, align, MapFlags::POPULATE)
    }

    /// Maps a file that a peer sent, at any page-aligned address. The page tables are not populated: the
    /// first access to each page causes a page fault.
    pub(super) fn of_peer(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
    ) -> Result<Self, Errno> {
        Self::map(file, offset, len, writable, 1, MapFlags::empty())
    }

    /// Maps `len` bytes of `file` from `offset` on at a multiple of `align`.
    fn map(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
        align: usize,
        populate: MapFlags,
    ) -> Result<Self, Errno> {
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let flags = MapFlags::SHARED | populate;
        // SAFETY: the kernel chooses the address, so that no existing mapping is replaced.
        let base = unsafe { mmap(ptr::null_mut(), len, access, flags, file, offset) }?;
        let start = NonNull::new(base.cast::<u8>()).ok_or(Errno::FAULT)?;
        let mapping = Self { base: start, len, writable, whole: (start, len) };
        if start.addr().get().is_multiple_of(align) {
            return Ok(mapping);
        }
        drop(mapping);

        // Reserve an address range that contains an aligned address, and map the file into it.
        let room = len.checked_add(align).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel chooses the address, so that no existing mapping is replaced.
        let reserved =
            unsafe { mmap_anonymous(ptr::null_mut(), room, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        let start = NonNull::new(reserved.cast::<u8>()).ok_or(Errno::FAULT)?;
        let skip = start.addr().get().next_multiple_of(align) - start.addr().get();
        let base = start.map_addr(|addr| addr.saturating_add(skip));
        let mapping = Self { base, len, writable, whole: (start, room) };
        // SAFETY: the `len` bytes lie within the reservation, because `skip` is less than `align`. No other
        // code uses the reservation, so the call replaces only reserved pages.
        unsafe { mmap(base.as_ptr().cast(), len, access, flags | MapFlags::FIXED, file, offset) }?;
        Ok(mapping)
    }

    pub(super) fn ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns a pointer to the byte at `offset`, which is within the mapping or at its end.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "the caller's offset is within the mapping");
        // SAFETY: the assertion above checks that the offset lies within the mapping or at its end.
        unsafe { self.base.add(offset) }
    }

    /// Returns a pointer to the byte at `offset`, if `len` bytes from there on are mapped.
    fn span(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| self.ptr().wrapping_add(offset))
    }

    /// Copies the bytes from `offset` on to `to`. If they are not mapped, copies no bytes and returns `None`.
    #[must_use]
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        let from = self.span(offset, to.len())?;
        // SAFETY: `span` has checked that the source is mapped. `to` is an exclusive reference, so it is
        // writable, and no references into the mapping exist, so `to` does not overlap the source. The copy
        // may race with other processes, which `racy_copy` allows.
        unsafe { racy_copy::copy(to.as_mut_ptr(), from, to.len()) };
        Some(())
    }

    /// Copies `from` to the bytes from `offset` on. If they are not mapped for writing, copies no bytes and
    /// returns `None`.
    #[must_use]
    pub(super) fn write(&self, offset: usize, from: &[u8]) -> Option<()> {
        let to = self.span(offset, from.len()).filter(|_| self.writable)?;
        // SAFETY: `span` has checked that the destination is mapped, and the filter that it is writable.
        // `from` is a reference, so it is readable, and no references into the mapping exist, so `from` does
        // not overlap the destination. The copy may race with other processes, which `racy_copy` allows.
        unsafe { racy_copy::copy(to, from.as_ptr(), from.len()) };
        Some(())
    }

    /// Returns the atomic word at the start of the mapping.
    #[inline]
    pub(super) fn word(&self) -> &AtomicU32 {
        debug_assert!(self.writable, "the lease word lies in a page that both sides write");
        // SAFETY: whole pages are mapped, so the word is mapped and aligned, and it stays mapped as long as
        // `self` lives. The other side accesses it only atomically.
        unsafe { self.base.cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` created this mapping, only this value unmaps it, and all references into it borrow
        // `self`.
        if let Err(errno) = unsafe { munmap(self.whole.0.as_ptr().cast(), self.whole.1) } {
            let len = self.len;
            dma_core::deferred_log!(warn, %errno, len, "cannot unmap shared memory, so it stays mapped");
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, len, writable, .. } = self;
        f.debug_struct("Mapping").field("base", base).field("len", len).field("writable", writable).finish()
    }
}
