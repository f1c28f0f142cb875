//! [`Addresses`]: reserved addresses without memory.
#![expect(unsafe_code, reason = "maps addresses")]

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::{MemoryRequest, Result};

/// A range of this process's addresses that is reserved: no memory is mapped there while this value exists.
#[derive(Debug)]
pub(crate) struct Addresses {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: this value owns the addresses, and no memory is mapped there, so any thread may own or drop it.
unsafe impl Send for Addresses {}
// SAFETY: a shared reference only returns addresses, and any access to them faults.
unsafe impl Sync for Addresses {}

impl Addresses {
    /// Reserves `len` addresses. The first one is the start of a page.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `len` exceeds the address space; `OutOfMemory` if no range is free.
    pub(crate) fn reserve(len: usize) -> Result<Self> {
        let request = MemoryRequest::new(len.max(1));
        request.validate()?;
        let size = request.len.checked_next_multiple_of(rustix::param::page_size());
        let size = size.ok_or_else(|| request.out_of_memory())?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses unused addresses for the new mapping, and the mapping grants no access.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), size, ProtFlags::empty(), flags) };
        let start = start.ok().and_then(|start| NonNull::new(start.cast::<u8>()));
        Ok(Self { start: start.ok_or_else(|| request.out_of_memory())?, size })
    }

    /// Returns the first address.
    pub(crate) fn start(&self) -> usize {
        self.start.addr().get()
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: `reserve` mapped this range with this length, only `drop` unmaps it, and no reference
        // points to it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}
