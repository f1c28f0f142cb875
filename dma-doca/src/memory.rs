//! Memory of this process for devices.
#![expect(unsafe_code, reason = "maps memory")]

use std::ptr::NonNull;

use dma_core::{Error, ErrorKind, MemoryRequest, Result};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::error::BACKEND;

/// The smallest page that any machine has: mappings begin at a multiple of it.
const PAGE: usize = 4096;
/// A huge page, on the processors that BlueFields come with.
const HUGE: usize = 2 << 20;

/// Zeroed memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    mapped: usize,
    base: NonNull<u8>,
}

// SAFETY: it owns the mapping, and has no thread's state.
unsafe impl Send for Mapping {}
// SAFETY: shared, it gives out an address only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// As `request` says. Memory that will be exported is a memfd's, which other processes can map too.
    pub(crate) fn new(request: &MemoryRequest) -> Result<Self> {
        let shared = !request.export.is_empty();
        let align = if request.huge_pages { request.align.max(HUGE) } else { request.align };
        let too_long = || request.clone().with_align(align).out_of_memory().with_backend(BACKEND);
        let round = if request.huge_pages { HUGE } else { PAGE };
        let len = request.len.checked_next_multiple_of(round).ok_or_else(too_long)?;
        // A stricter alignment is found within a longer mapping.
        let mapped = if align > PAGE { len.checked_add(align).ok_or_else(too_long)? } else { len };
        if isize::try_from(mapped).is_err() {
            return Err(too_long());
        }
        let start = map(mapped, shared).map_err(|e| {
            let kind = if e == rustix::io::Errno::NOMEM { ErrorKind::OutOfMemory } else { ErrorKind::Os };
            Error::new(kind, format!("mapping {mapped} bytes, for {} aligned to {align}", request.len))
                .with_hint(request.out_of_memory().hint().to_owned())
                .with_source(std::io::Error::from(e))
        })?;
        let offset = start.as_ptr().align_offset(align);
        debug_assert!(offset + request.len <= mapped);
        // SAFETY: the mapping is longer than asked for by at least the offset.
        let base = unsafe { start.add(offset) };
        let mapping = Self { start, mapped, base };
        if request.huge_pages {
            // A wish: the kernel may have none, or be told to give none.
            // SAFETY: the range is inside of the mapping, which has no content yet.
            let _ = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Ok(mapping)
    }

    /// The first byte, aligned as asked for.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }
}

fn map(len: usize, shared: bool) -> rustix::io::Result<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let address = if shared {
        let file = memfd_create(c"dma-doca", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        // SAFETY: a new mapping, where the kernel finds room.
        unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, &file, 0) }?
    } else {
        // SAFETY: as above.
        unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) }?
    };
    NonNull::new(address.cast()).ok_or(rustix::io::Errno::NOMEM)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's alone. It fails for no valid range.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_zeroed() {
        for (align, export) in [(1, false), (4096, true), (1 << 16, false), (4 << 20, true)] {
            let mut request = MemoryRequest::new(10_000).with_align(align);
            if export {
                request = request.exportable(dma_core::Access::READ);
            }
            for request in [request.clone(), request.with_huge_pages(true)] {
                let mapping = Mapping::new(&request).unwrap();
                assert!(mapping.base().as_ptr().addr().is_multiple_of(align));
                // SAFETY: mapped, and nobody else's.
                let bytes = unsafe { std::slice::from_raw_parts(mapping.base().as_ptr(), 10_000) };
                assert!(bytes.iter().all(|b| *b == 0));
            }
        }
        let e = Mapping::new(&MemoryRequest::new(1 << 60)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutOfMemory);
    }
}
