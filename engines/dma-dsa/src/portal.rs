//! Submission of descriptors to a work queue: MOVDIR64B, ENQCMD, or `write()`.
#![expect(unsafe_code, reason = "maps the work queue, and passes descriptors with addresses to it")]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use dsa_sys::HwDescriptor;

/// Size of a work queue's portal in bytes.
const PAGE: usize = 4096;
/// Maximum number of ENQCMD tries in one call. A refusal costs a round trip to the device, about 0.5 us.
#[cfg(target_arch = "x86_64")]
const TRIES: u32 = 16;

/// A way to submit descriptors.
pub(crate) trait Portal: fmt::Debug + Send + Sync {
    /// Submits descriptors in order, and returns the number that the work queue accepted. If it accepted
    /// fewer than all, the work queue is full.
    ///
    /// # Safety
    ///
    /// The descriptors, and the records, lists and memory that they name, stay valid until the records are
    /// written. Until then the memory is accessed only as `RawQueue::submit` allows.
    unsafe fn submit(&self, descriptors: &[HwDescriptor]) -> Result<usize, Errno>;

    /// Returns true if the portal accepts batch descriptors.
    fn takes_batches(&self) -> bool;

    /// Returns the file of the work queue, if there is one.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the name of the submission method, for the engine's description.
    fn name(&self) -> &'static str;
}

/// The portal of a work queue that the kernel provides.
#[derive(Debug)]
pub(crate) struct Kernel {
    file: OwnedFd,
    /// The mapped portal. `None` if the kernel does not map it for this process; then descriptors are
    /// submitted by `write()`.
    page: Option<NonNull<u8>>,
    shared: bool,
}

// SAFETY: any thread may store to the page.
unsafe impl Send for Kernel {}
// SAFETY: several threads may store 64 bytes to the page at a time, and `write` is a system call.
unsafe impl Sync for Kernel {}

impl Kernel {
    pub(crate) fn new(file: OwnedFd, shared: bool) -> Result<Self, Errno> {
        // SAFETY: the kernel chooses unused addresses for the new mapping.
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
            // SAFETY: `new` made the mapping, which is no longer in use.
            let _ = unsafe { munmap(page.as_ptr().cast(), PAGE) };
        }
    }
}

/// Stores descriptors to the page of a work queue, and returns the number that the work queue accepted.
///
/// # Safety
///
/// The page is the portal of a work queue, which is shared if `shared` is true. All requirements of
/// [`Portal::submit`] apply.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn store(page: *mut u8, shared: bool, descriptors: &[HwDescriptor]) -> usize {
    // The device reads the list and the source after it receives the descriptor, so earlier stores must be
    // visible first.
    // SAFETY: x86-64 has SSE.
    unsafe { std::arch::x86_64::_mm_sfence() };
    for (n, descriptor) in descriptors.iter().enumerate() {
        if !shared {
            // SAFETY: this stores the 64 bytes of an aligned descriptor to the portal. The caller passes a
            // portal and valid descriptors.
            unsafe {
                std::arch::asm!("movdir64b rax, [rdx]", in("rax") page, in("rdx") descriptor, options(nostack));
            }
            continue;
        }
        let mut refused = 1_u8;
        for _ in 0..TRIES {
            // SAFETY: this stores the 64 bytes of an aligned descriptor to the portal that the caller passes.
            // The zero flag is set if the work queue refused the descriptor.
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

/// Counter of a dedicated work queue's free entries, which all its queues share. The engine must count,
/// because the device does not report a store that it drops.
#[derive(Debug)]
pub(crate) struct Entries(AtomicU32);

impl Entries {
    pub(crate) const fn new(size: u32) -> Self {
        Self(AtomicU32::new(size))
    }

    /// Reserves an entry. Returns `false` if no entry is free.
    #[inline]
    pub(crate) fn acquire(&self) -> bool {
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok()
    }

    /// Releases entries.
    #[inline]
    pub(crate) fn release(&self, entries: u32) {
        self.0.fetch_add(entries, Ordering::Release);
    }

    /// Returns the number of free entries.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes the pages of `len` bytes at `addr` present, for reading or for writing. Returns `EFAULT` or `ENOMEM`
/// if a page is not mapped or the system has no memory for it.
///
/// # Safety
///
/// The bytes are memory of this process, whose pages may be made present.
pub(crate) unsafe fn populate(addr: u64, len: u64, write: bool) -> Result<(), Errno> {
    let page = rustix::param::page_size() as u64;
    let start = addr & !(page - 1);
    let len = (addr - start).saturating_add(len);
    let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    // SAFETY: the caller guarantees that this is memory of the process. The advice changes no byte.
    unsafe { madvise(std::ptr::with_exposed_provenance_mut(start as usize), len as usize, advice) }
}

#[cfg(test)]
mod tests {
    use rustix::mm::{mmap_anonymous, munmap};

    use super::*;

    #[test]
    fn pages_that_there_are_not_are_refused() {
        let page = rustix::param::page_size();
        let read = ProtFlags::READ;
        // SAFETY: the kernel chooses unused addresses for the new mapping.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), page, read, MapFlags::PRIVATE) }.unwrap();
        let addr = start.expose_provenance() as u64;
        // SAFETY: the range is the mapping above.
        unsafe { populate(addr + 5, 9, false) }.unwrap();
        // SAFETY: the page belongs to the mapping above, and is not writable.
        unsafe { populate(addr, 1, true) }.unwrap_err();
        // SAFETY: the range was mapped above, and is not in use.
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
