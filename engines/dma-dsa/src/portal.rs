//! Submission of descriptors to a work queue: MOVDIR64B, ENQCMD, or `write()`.
#![expect(unsafe_code, reason = "maps the work queue, and passes descriptors with addresses to it")]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::hardware::HwDescriptor;

/// Size of a work queue's portal in bytes.
const PAGE: usize = 4096;
/// Tries of ENQCMD in one call. A refusal costs the round trip to the device, about 0.5 us.
#[cfg(target_arch = "x86_64")]
const TRIES: u32 = 16;

/// A way to submit descriptors.
pub(crate) trait Portal: fmt::Debug + Send + Sync {
    /// Submits descriptors in order, and returns the number taken. Fewer than all: the work queue is full.
    ///
    /// # Safety
    ///
    /// The descriptors and what they name (records, lists, memory) stay valid until their records are
    /// written, and other accesses to that memory are those that `RawQueue::submit` allows.
    unsafe fn submit(&self, descriptors: &[HwDescriptor]) -> Result<usize, Errno>;

    /// Returns whether batch descriptors are taken.
    fn takes_batches(&self) -> bool;

    /// The file of the work queue, if there is one.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the name of this way to submit, for the engine's description.
    fn name(&self) -> &'static str;
}

/// A work queue of the kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    file: OwnedFd,
    /// `None`: the kernel does not map it for this process, and it submits by `write()`.
    page: Option<NonNull<u8>>,
    shared: bool,
}

// SAFETY: the page takes stores of 64 bytes from any thread at any time.
unsafe impl Send for Kernel {}
// SAFETY: the page takes stores of 64 bytes from several threads at a time, and `write` is a system call.
unsafe impl Sync for Kernel {}

impl Kernel {
    pub(crate) fn new(file: OwnedFd, shared: bool) -> Result<Self, Errno> {
        // SAFETY: the kernel chooses an unused place for the new mapping.
        let page = unsafe { mmap(std::ptr::null_mut(), PAGE, ProtFlags::WRITE, MapFlags::SHARED, &file, 0) };
        let page = match page {
            Ok(page) => NonNull::new(page.cast::<u8>()),
            Err(Errno::PERM) => None,
            Err(errno) => return Err(errno),
        };
        Ok(Self { file, page, shared })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // SAFETY: mapped by `new`, and no longer in use.
            let _ = unsafe { munmap(page.as_ptr().cast(), PAGE) };
        }
    }
}

/// Stores descriptors to the page of a work queue, and returns the number that it took.
///
/// # Safety
///
/// The page belongs to a work queue of the kind that `shared` states. All requirements of [`Portal::submit`]
/// apply.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn store(page: *mut u8, shared: bool, descriptors: &[HwDescriptor]) -> usize {
    // The device reads the list and the source behind the descriptor: earlier stores come first.
    // SAFETY: x86-64 has SSE.
    unsafe { std::arch::x86_64::_mm_sfence() };
    for (n, descriptor) in descriptors.iter().enumerate() {
        if !shared {
            // SAFETY: stores 64 bytes of an aligned descriptor to the portal. The caller passes a portal and
            // valid descriptors.
            unsafe {
                std::arch::asm!("movdir64b rax, [rdx]", in("rax") page, in("rdx") descriptor, options(nostack));
            }
            continue;
        }
        let mut refused = 1_u8;
        for _ in 0..TRIES {
            // SAFETY: stores 64 bytes of an aligned descriptor to the portal, which the caller passes. The
            // zero flag says that the work queue refused.
            unsafe {
                std::arch::asm!(
                    "enqcmd rax, [rdx]",
                    "setz {refused}",
                    in("rax") page,
                    in("rdx") descriptor,
                    refused = out(reg_byte) refused,
                    options(nostack)
                );
            }
            if refused == 0 {
                break;
            }
        }
        if refused != 0 {
            return n;
        }
    }
    descriptors.len()
}

/// Only x86-64 has these instructions, and the engine opens on no other processor.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn store(_: *mut u8, _: bool, _: &[HwDescriptor]) -> usize {
    0
}

impl Portal for Kernel {
    #[inline]
    unsafe fn submit(&self, descriptors: &[HwDescriptor]) -> Result<usize, Errno> {
        if let Some(page) = self.page {
            // SAFETY: the page is the portal of this work queue, and the caller passes valid descriptors.
            return Ok(unsafe { store(page.as_ptr(), self.shared, descriptors) });
        }
        let len = size_of_val(descriptors);
        // SAFETY: descriptors are plain bytes without padding.
        let bytes = unsafe { std::slice::from_raw_parts(descriptors.as_ptr().cast::<u8>(), len) };
        match rustix::io::write(&self.file, bytes) {
            Ok(written) => Ok(written / size_of::<HwDescriptor>()),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    fn takes_batches(&self) -> bool {
        self.page.is_some()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn name(&self) -> &'static str {
        match self.page {
            Some(_) if self.shared => "ENQCMD",
            Some(_) => "MOVDIR64B",
            None => "write()",
        }
    }
}

/// Tells the process that opened a work queue from its children: a page that is zero after a fork.
#[derive(Debug)]
pub(crate) struct ForkMark(NonNull<u8>);

// SAFETY: the page is only read, atomically.
unsafe impl Send for ForkMark {}
// SAFETY: threads only read the page, atomically.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    pub(crate) fn new() -> Result<Self, Errno> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused place for the new mapping.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE, rights, MapFlags::PRIVATE) }?;
        let mark = Self(NonNull::new(page.cast()).ok_or(Errno::NOMEM)?);
        // SAFETY: this page alone; a child finds zeroes in it.
        unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) }?;
        mark.byte().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    /// Returns whether this process is a child of the one that made the mark.
    #[inline]
    pub(crate) fn is_child(&self) -> bool {
        self.byte().load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn byte(&self) -> &AtomicU8 {
        // SAFETY: mapped until the drop.
        unsafe { AtomicU8::from_ptr(self.0.as_ptr()) }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no longer in use.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), PAGE) };
    }
}

/// Free entries of a dedicated work queue, which gives no answer to a store: shared by all its queues.
#[derive(Debug)]
pub(crate) struct Entries(AtomicU32);

impl Entries {
    pub(crate) const fn new(size: u32) -> Self {
        Self(AtomicU32::new(size))
    }

    /// Takes an entry. Returns `false` if none is free.
    #[inline]
    pub(crate) fn acquire(&self) -> bool {
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok()
    }

    /// Returns entries.
    #[inline]
    pub(crate) fn release(&self, entries: u32) {
        self.0.fetch_add(entries, Ordering::Release);
    }

    /// The number of free entries.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Maps the pages of `len` bytes at `addr` to be read, or written. The system does not take a page from the
/// process for that, and returns `EFAULT` or `ENOMEM` if there is none.
///
/// # Safety
///
/// The bytes are memory of this process, whose pages may be mapped.
pub(crate) unsafe fn populate(addr: u64, len: u64, write: bool) -> Result<(), Errno> {
    let page = rustix::param::page_size() as u64;
    let start = addr & !(page - 1);
    let len = (addr - start).saturating_add(len);
    let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    // SAFETY: memory of this process, as the caller says. The advice changes no byte.
    unsafe { madvise(std::ptr::with_exposed_provenance_mut(start as usize), len as usize, advice) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_there_are_not_are_refused() {
        let page = rustix::param::page_size();
        let read = ProtFlags::READ;
        // SAFETY: the kernel chooses an unused place for the new mapping.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), page, read, MapFlags::PRIVATE) }.unwrap();
        let addr = start.expose_provenance() as u64;
        // SAFETY: the mapping above.
        unsafe { populate(addr + 5, 9, false) }.unwrap();
        // SAFETY: the page of that mapping, which may not be written.
        unsafe { populate(addr, 1, true) }.unwrap_err();
        // SAFETY: mapped above, and not in use.
        unsafe { munmap(start, page) }.unwrap();
    }

    #[test]
    fn entries_run_out() {
        let entries = Entries::new(2);
        assert!(entries.acquire() && entries.acquire() && !entries.acquire());
        entries.release(1);
        assert!(entries.acquire() && entries.free() == 0);
    }
}
