//! Memory that the engine allocates for this process only.

use dma_core::{HostMemory, MemoryRequest, PageMemory, Result};

/// Memory of at least this length is mapped. Shorter memory comes from the heap.
const MAP_MIN: usize = 64 << 10;

/// Allocates zeroed memory for `request`, which has been validated. The memory is resident, so copies cause
/// no page faults.
pub(super) fn allocate(request: &MemoryRequest) -> Result<HostMemory> {
    let &MemoryRequest { len, align, huge_pages, .. } = request;
    debug_assert!(len > 0 && align.is_power_of_two());
    if len < MAP_MIN && !huge_pages {
        return HostMemory::allocate_requested(request);
    }
    Ok(HostMemory::from_owner(PageMemory::new(request)?))
}

#[cfg(test)]
#[expect(unsafe_code, reason = "reads and writes bytes at raw addresses")]
mod tests {
    use dma_core::ErrorKind;

    use super::*;

    #[test]
    fn is_zeroed_aligned_and_writable_to_the_last_byte() {
        for len in [1, 100, MAP_MIN - 1, MAP_MIN, MAP_MIN + 1, (6 << 20) + 5] {
            for (align, huge) in [(1, false), (64, false), (4096, true), (1 << 16, false), (1 << 22, true)] {
                let request = MemoryRequest::new(len).with_align(align).with_huge_pages(huge);
                let memory = allocate(&request).unwrap();
                assert_eq!(memory.as_ptr().addr().get() % align, 0, "{len} bytes aligned to {align}");
                assert_eq!(memory.len(), len, "aligned to {align}");
                let byte = |at: usize| memory.as_ptr().as_ptr().wrapping_add(at);
                // SAFETY: the byte lies within the memory, which is initialized.
                assert!((0..len).all(|at| unsafe { byte(at).read() } == 0));
                for at in [0, len / 2, len - 1] {
                    // SAFETY: the byte lies within the memory, which only this test accesses.
                    unsafe { byte(at).write(1) };
                }
            }
        }
    }

    #[test]
    fn too_much_is_an_error() {
        for len in [1 << 46, 1 << 60, isize::MAX as usize - (1 << 20)] {
            let error = allocate(&MemoryRequest::new(len)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
            assert!(error.hint().contains("less"), "{error}");
        }
        let error = allocate(&MemoryRequest::new(10).with_align(1 << 40)).unwrap_err();
        assert!(error.to_string().contains("10 bytes aligned to 1099511627776"), "{error}");
        assert!(error.hint().contains("smaller alignment"), "{error}");
    }
}
