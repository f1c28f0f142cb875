//! Memory that the engine allocates for this process alone.
#![expect(unsafe_code, reason = "allocates memory")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use dma_core::{Error, MemoryRequest, PageMemory, Result};

/// Memory of at least this length is mapped; shorter memory comes from the heap.
const MAP_MIN: usize = 64 << 10;
/// From this length, the system is asked for its available memory first.
const ASK_MIN: usize = 64 << 20;

/// Zeroed memory of this process. It is resident, so no copy meets a page fault.
#[derive(Debug)]
pub(super) struct LocalMemory {
    base: NonNull<u8>,
    from: From,
}

#[derive(Debug)]
enum From {
    Heap(Layout),
    Pages(#[expect(dead_code, reason = "kept until the region goes")] PageMemory),
}

// SAFETY: only an address and how to free it; the owner decides about access.
unsafe impl Send for LocalMemory {}
// SAFETY: as above.
unsafe impl Sync for LocalMemory {}

impl LocalMemory {
    /// Allocates as `request` says. Its length is not 0 and its alignment a power of two.
    pub(super) fn allocate(request: &MemoryRequest) -> Result<Self> {
        let &MemoryRequest { len, align, huge_pages, .. } = request;
        debug_assert!(len > 0 && align.is_power_of_two());
        let layout = Layout::from_size_align(len, align).map_err(|_| out_of_memory(request, None))?;
        if len < MAP_MIN && !huge_pages {
            // SAFETY: the length is not 0.
            let base =
                NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| out_of_memory(request, None))?;
            return Ok(Self { base, from: From::Heap(layout) });
        }
        if len >= ASK_MIN
            && let Some(available) = dma_ipc::available_memory()
            && len as u64 > available
        {
            // The system might overcommit, and kill a process once the memory is touched.
            return Err(out_of_memory(request, Some(available)));
        }
        let memory = PageMemory::new(request)?;
        Ok(Self { base: memory.as_ptr(), from: From::Pages(memory) })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for LocalMemory {
    fn drop(&mut self) {
        match self.from {
            // SAFETY: allocated with this layout.
            From::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
            From::Pages(_) => {}
        }
    }
}

fn out_of_memory(request: &MemoryRequest, available: Option<u64>) -> Error {
    let error = request.out_of_memory();
    match available {
        Some(available) => error.with_numbers(request.len as u64, available),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use dma_core::ErrorKind;

    use super::*;

    #[test]
    fn is_zeroed_aligned_and_writable_to_the_last_byte() {
        for len in [1, 100, MAP_MIN - 1, MAP_MIN, MAP_MIN + 1, (6 << 20) + 5] {
            for (align, huge) in [(1, false), (64, false), (4096, true), (1 << 16, false), (1 << 22, true)] {
                let request = MemoryRequest::new(len).with_align(align).with_huge_pages(huge);
                let memory = LocalMemory::allocate(&request).unwrap();
                assert_eq!(memory.base().addr().get() % align, 0, "{len} bytes aligned to {align}");
                let byte = |at: usize| memory.base().as_ptr().wrapping_add(at);
                // SAFETY: within the memory.
                assert!((0..len).all(|at| unsafe { byte(at).read() } == 0));
                for at in [0, len / 2, len - 1] {
                    // SAFETY: within the memory.
                    unsafe { byte(at).write(1) };
                }
            }
        }
    }

    #[test]
    fn too_much_is_an_error() {
        for len in [1 << 46, 1 << 60, isize::MAX as usize - (1 << 20)] {
            let error = LocalMemory::allocate(&MemoryRequest::new(len)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
            assert!(error.hint().contains("less"), "{error}");
        }
        let error = LocalMemory::allocate(&MemoryRequest::new(10).with_align(1 << 40)).unwrap_err();
        assert!(error.to_string().contains("10 bytes aligned to 1099511627776"), "{error}");
        assert!(error.hint().contains("smaller alignment"), "{error}");
    }
}
