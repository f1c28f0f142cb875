//! The one place that maps shared memory and follows pointers into it.

#![expect(unsafe_code, reason = "maps files, and copies from and to what it mapped")]

use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use dma_core::racy_copy;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Pages of a file that cannot shrink, mapped shared, for as long as the value lives.
///
/// No reference to the bytes is handed out because another process may change them at any time. They are
/// copied in and out. Only the atomic word at the start is referenced.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    /// All that is unmapped in the end: more than the pages if an alignment needed room.
    whole: (NonNull<u8>, usize),
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: the methods that take `&self` only copy the bytes, which may change at any time, and read the word
// atomically.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` at a multiple of `align`, and fills the page tables, so that
    /// no copy waits for that. Only for this process's own memory: a peer's file would take as much memory as
    /// the peer states.
    ///
    /// `offset` and `len` are multiples of the file's page size; `align` is a power of two. The caller has
    /// checked that the file is that long and sealed against shrinking; otherwise touching the mapping would
    /// raise a signal.
    pub(super) fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
        align: usize,
    ) -> Result<Self, Errno> {
        Self::map(file, offset, len, writable, align, MapFlags::POPULATE)
    }

    /// Maps a file that a peer sent, as [`new`](Self::new) does, at any page: a page is looked up when it is
    /// first touched.
    pub(super) fn of_peer(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
    ) -> Result<Self, Errno> {
        Self::map(file, offset, len, writable, 1, MapFlags::empty())
    }

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

        // Reserves enough for an aligned place, and maps over that.
        let room = len.checked_add(align).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel chooses the address, so that no existing mapping is replaced.
        let reserved =
            unsafe { mmap_anonymous(ptr::null_mut(), room, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        let start = NonNull::new(reserved.cast::<u8>()).ok_or(Errno::FAULT)?;
        let skip = start.addr().get().next_multiple_of(align) - start.addr().get();
        let base = start.map_addr(|addr| addr.saturating_add(skip));
        let mapping = Self { base, len, writable, whole: (start, room) };
        // SAFETY: the `len` bytes lie within the reservation, whose address no other code has.
        unsafe { mmap(base.as_ptr().cast(), len, access, flags | MapFlags::FIXED, file, offset) }?;
        Ok(mapping)
    }

    pub(super) fn ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the byte at `offset`, which is within the mapping or just behind it.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "the callers know what they mapped");
        // SAFETY: the offset lies within the mapping.
        unsafe { self.base.add(offset) }
    }

    /// Returns the byte at `offset`, if `len` bytes from there are mapped.
    fn span(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| self.ptr().wrapping_add(offset))
    }

    /// Copies the bytes from `offset` to `to`. If they are not mapped, copies nothing and returns `None`.
    #[must_use]
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        let from = self.span(offset, to.len())?;
        // SAFETY: `span` checked the source, and no references to shared memory exist. `to` is exclusive.
        unsafe { racy_copy::copy(to.as_mut_ptr(), from, to.len()) };
        Some(())
    }

    /// Copies `from` to the bytes from `offset`. If they are not mapped for writing, copies nothing and
    /// returns `None`.
    #[must_use]
    pub(super) fn write(&self, offset: usize, from: &[u8]) -> Option<()> {
        let to = self.span(offset, from.len()).filter(|_| self.writable)?;
        // SAFETY: `span` checked the destination, it is writable, and no references to shared memory exist.
        unsafe { racy_copy::copy(to, from.as_ptr(), from.len()) };
        Some(())
    }

    /// Returns the atomic word at the start of the mapping.
    #[inline]
    pub(super) fn word(&self) -> &AtomicU32 {
        debug_assert!(self.writable, "the lease word lies in a page that both sides write");
        // SAFETY: whole pages are mapped, so that the word is mapped, aligned, and lives as long as `self`.
        // The other side accesses it atomically only.
        unsafe { self.base.cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` and owned by this value; all references to it borrow `self`.
        if let Err(errno) = unsafe { munmap(self.whole.0.as_ptr().cast(), self.whole.1) } {
            tracing::warn!(%errno, len = self.len, "could not unmap shared memory; it stays mapped");
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, len, writable, .. } = self;
        f.debug_struct("Mapping").field("base", base).field("len", len).field("writable", writable).finish()
    }
}
