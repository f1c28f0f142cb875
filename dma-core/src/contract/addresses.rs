//! [`Addresses`]: a part of the address space without memory.
#![expect(unsafe_code, reason = "maps addresses")]

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::{MemoryRequest, Result};

/// Addresses of this process at which nothing is mapped, and nothing will be while this value exists.
#[derive(Debug)]
pub(crate) struct Addresses {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: this value owns the addresses and nothing is mapped there, so another thread may own them instead.
unsafe impl Send for Addresses {}
// SAFETY: a shared reference gives out addresses only, and any access to them faults.
unsafe impl Sync for Addresses {}

impl Addresses {
    /// Reserves `len` addresses, beginning at the start of a page.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for more than the address space has, `OutOfMemory`.
    pub(crate) fn reserve(len: usize) -> Result<Self> {
        let request = MemoryRequest::new(len.max(1));
        request.validate()?;
        let size = request.len.checked_next_multiple_of(rustix::param::page_size());
        let size = size.ok_or_else(|| request.out_of_memory())?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses an unused place for the new mapping, and the mapping grants no access.
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
        // SAFETY: mapped with this size, unmapped once, and nothing refers to it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}
