//! Allocation of memory for devices.
#![expect(unsafe_code, reason = "maps memory")]

use std::ptr::NonNull;

use dma_core::{Error, ErrorKind, MemoryRequest, Result};
use dma_ipc::{Pages, SharedMemory, available_memory};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::error::BACKEND;

/// A huge page, on x86-64 and BlueField's processors.
const HUGE: usize = 2 << 20;

/// Zeroed memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// Private to this process.
    Private(Private),
    /// Shareable with other processes, and fully populated.
    Shared(SharedMemory),
}

impl Mapping {
    /// Allocates memory. Exportable memory is a memfd.
    pub(crate) fn new(request: &MemoryRequest) -> Result<Self> {
        if request.export.is_empty() {
            return Private::new(request).map(Self::Private);
        }
        let pages = if request.huge_pages { Pages::PreferHuge } else { Pages::Normal };
        SharedMemory::allocate_for(request.export, request.len, request.align, pages)
            .map(Self::Shared)
            .map_err(|e| Error::from(e).with_backend(BACKEND))
    }

    /// The first byte, aligned as requested.
    pub(crate) fn base(&self) -> NonNull<u8> {
        match self {
            Self::Private(private) => private.base,
            Self::Shared(shared) => shared.ptr(),
        }
    }
}

/// An anonymous mapping.
#[derive(Debug)]
pub(crate) struct Private {
    start: NonNull<u8>,
    mapped: usize,
    base: NonNull<u8>,
}

// SAFETY: it owns the mapping, and has no thread-local state.
unsafe impl Send for Private {}
// SAFETY: a shared reference only gives access to the address.
unsafe impl Sync for Private {}

impl Private {
    fn new(request: &MemoryRequest) -> Result<Self> {
        let align = if request.huge_pages { request.align.max(HUGE) } else { request.align };
        let too_long = || request.clone().with_align(align).out_of_memory().with_backend(BACKEND);
        // 4 KiB on x86-64. DPUs boot kernels with pages of 4 or 64 KiB.
        let page = page_size();
        let round = if request.huge_pages { HUGE } else { page };
        let len = request.len.checked_next_multiple_of(round).ok_or_else(too_long)?;
        // The device pins all of it: the kernel would kill this process, or another, rather than return an
        // error.
        if let Some(available) = available_memory()
            && len as u64 > available
        {
            return Err(request.out_of_memory().with_backend(BACKEND).with_numbers(len as u64, available));
        }
        // A larger mapping contains an address of stricter alignment.
        let mapped = if align > page { len.checked_add(align).ok_or_else(too_long)? } else { len };
        if isize::try_from(mapped).is_err() {
            return Err(too_long());
        }
        let start = map(mapped).map_err(|e| {
            let kind = if e == rustix::io::Errno::NOMEM { ErrorKind::OutOfMemory } else { ErrorKind::Os };
            Error::new(kind, format!("mapping {mapped} bytes, for {} aligned to {align}", request.len))
                .with_hint(request.out_of_memory().hint().to_owned())
                .with_source(std::io::Error::from(e))
        })?;
        let offset = start.as_ptr().align_offset(align);
        debug_assert!(offset + request.len <= mapped);
        // SAFETY: the offset is within the mapping.
        let base = unsafe { start.add(offset) };
        let mapping = Self { start, mapped, base };
        if request.huge_pages {
            // Best effort: the kernel may have no huge pages.
            // SAFETY: the range is inside of the mapping, which has no content yet.
            let _ = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Ok(mapping)
    }
}

fn map(len: usize) -> rustix::io::Result<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: maps new memory.
    let address = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) }?;
    NonNull::new(address.cast()).ok_or(rustix::io::Errno::NOMEM)
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping. A valid range never fails.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_zeroed() {
        let page = page_size();
        for (align, export) in [(1, false), (4096, true), (page, true), (2 * page, false), (4 << 20, true)] {
            let mut request = MemoryRequest::new(10_000).with_align(align);
            if export {
                request = request.exportable(dma_core::Access::READ);
            }
            for request in [request.clone(), request.with_huge_pages(true)] {
                let mapping = Mapping::new(&request).unwrap();
                assert!(mapping.base().as_ptr().addr().is_multiple_of(align));
                // SAFETY: mapped, and owned by this value alone.
                let bytes = unsafe { std::slice::from_raw_parts(mapping.base().as_ptr(), 10_000) };
                assert!(bytes.iter().all(|b| *b == 0));
            }
        }
    }

    #[test]
    fn more_than_the_machine_has_is_refused_with_numbers() {
        for len in [1 << 46, 1 << 60] {
            let request = MemoryRequest::new(len);
            for request in [request.clone(), request.exportable(dma_core::Access::READ)] {
                let e = Mapping::new(&request).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::OutOfMemory, "{e}");
                assert_eq!(e.requested(), Some(len as u64), "{e}");
                assert!(e.limit().is_some_and(|available| available < 1 << 46), "{e}");
            }
        }
    }
}
