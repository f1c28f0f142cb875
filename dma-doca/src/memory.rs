//! Allocation of memory for devices.

use std::ptr::NonNull;

use dma_core::{Error, MemoryRequest, PageMemory, Result};
use dma_ipc::{Pages, SharedMemory};

use crate::error::NAME;

/// Zeroed memory, whose pages all exist. It is unmapped when dropped.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// Private to this process.
    Private(PageMemory),
    /// Shareable with other processes.
    Shared(SharedMemory),
}

impl Mapping {
    /// Allocates memory. Exportable memory is a memfd.
    pub(crate) fn new(request: &MemoryRequest) -> Result<Self> {
        if request.export.is_empty() {
            return PageMemory::new(request).map(Self::Private).map_err(|e| e.with_backend(NAME));
        }
        let pages = if request.huge_pages { Pages::PreferHuge } else { Pages::Normal };
        SharedMemory::allocate_for(request.export, request.len, request.align, pages)
            .map(Self::Shared)
            .map_err(|e| Error::from(e).with_backend(NAME))
    }

    /// Returns the address of the first byte, aligned as requested.
    pub(crate) fn base(&self) -> NonNull<u8> {
        match self {
            Self::Private(private) => private.as_ptr(),
            Self::Shared(shared) => shared.ptr(),
        }
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "reads bytes at raw addresses")]
mod tests {
    use dma_core::ErrorKind;
    use rustix::param::page_size;

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
                // SAFETY: the bytes are mapped as long as `mapping` exists, and nothing writes to them.
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
