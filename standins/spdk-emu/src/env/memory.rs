//! The environment's heap: memory that devices can access.
#![expect(unsafe_code, reason = "the names are C's; maps memory")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Mutex;

use super::map;
use super::translation::PAGE;
use crate::c_abi::{Addr, Ptr, c, c_calls};
use crate::lock;

/// Minimum alignment of allocations: a cache line.
const LINE: u64 = 64;
/// Minimum growth of the heap in bytes, if the limit allows it.
const STEP: u64 = 64 << 20;

struct Heap {
    /// Lengths of free ranges by their first address.
    free: BTreeMap<u64, u64>,
    /// Lengths of allocations by their first address.
    used: BTreeMap<u64, u64>,
    total: u64,
    limit: u64,
}

static HEAP: Mutex<Heap> =
    Mutex::new(Heap { free: BTreeMap::new(), used: BTreeMap::new(), total: 0, limit: 0 });

/// Sets the maximum size of the heap.
pub(crate) fn set_limit(bytes: u64) {
    lock(&HEAP).limit = bytes;
}

impl Heap {
    /// Allocates `len` bytes from the first free range that is large enough.
    fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let fits = |(first, room): (&u64, &u64)| {
            let start = first.next_multiple_of(align);
            (start.checked_add(len)? <= first + room).then_some((*first, *room, start))
        };
        let (first, room, start) = self.free.iter().find_map(fits)?;
        self.free.remove(&first);
        if start > first {
            self.free.insert(first, start - first);
        }
        if start + len < first + room {
            self.free.insert(start + len, first + room - start - len);
        }
        self.used.insert(start, len);
        Some(start)
    }

    fn allocate(&mut self, size: u64, align: u64) -> Option<u64> {
        if size == 0 || !align.is_power_of_two() || size > self.limit {
            return None;
        }
        let len = size.next_multiple_of(LINE);
        self.take(len, align).or_else(|| {
            self.grow(len.checked_add(if align > PAGE { align } else { 0 })?)?;
            self.take(len, align)
        })
    }

    /// Maps and registers more memory.
    fn grow(&mut self, len: u64) -> Option<()> {
        let len = len.checked_next_multiple_of(PAGE)?;
        let left = self.limit.saturating_sub(self.total) / PAGE * PAGE;
        if len > left {
            return None;
        }
        let len = len.max(STEP.min(left));
        let addr = map_pages(len)?;
        map::register(addr, len, true).ok()?;
        self.total += len;
        self.give(addr, len);
        Some(())
    }

    /// Adds free memory, and merges it with its neighbours.
    fn give(&mut self, mut addr: u64, mut len: u64) {
        if let Some(behind) = self.free.remove(&(addr + len)) {
            len += behind;
        }
        if let Some((&first, &before)) = self.free.range(..addr).next_back()
            && first + before == addr
        {
            (addr, len) = (first, before + len);
        }
        self.free.insert(addr, len);
    }
}

/// Maps memory aligned to 2 MiB.
fn map_pages(len: u64) -> Option<u64> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    let all = usize::try_from(len.checked_add(PAGE)?).ok()?;
    // SAFETY: the kernel chooses a free address, so no existing mapping changes.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), all, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let first = Addr::new(mapped).addr();
    let start = first.next_multiple_of(PAGE);
    unmap(first, start - first);
    unmap(start + len, first + PAGE - start);
    Some(start)
}

/// Unmaps the unaligned excess of [`map_pages`].
fn unmap(addr: u64, len: u64) {
    if len > 0 {
        // SAFETY: the caller has mapped these bytes and does not use them.
        unsafe { libc::munmap(Addr::at(addr).raw(), len as usize) };
    }
}

/// Allocates memory. Returns `None` if memory is short, if the size is 0, or if the alignment is not a
/// power of two.
pub(crate) fn allocate(size: usize, align: usize) -> Option<Addr> {
    lock(&HEAP).allocate(size as u64, (align as u64).max(LINE)).map(Addr::at)
}

/// Allocates zeroed memory.
pub(crate) fn allocate_zeroed(size: usize, align: usize) -> Option<Addr> {
    let memory = allocate(size, align)?;
    // SAFETY: the memory was allocated above with at least this size, and no other code has its address yet.
    unsafe { memory.zero(size) };
    Some(memory)
}

/// Frees an allocation. An invalid address is reported on stderr.
pub(crate) fn free(memory: Addr) {
    if memory.is_null() {
        return;
    }
    let mut heap = lock(&HEAP);
    match heap.used.remove(&memory.addr()) {
        Some(len) => heap.give(memory.addr(), len),
        None => eprintln!("spdk-emu: {:#x} was not allocated here, or was freed before", memory.addr()),
    }
}

fn or_null(memory: Option<Addr>) -> Addr {
    memory.unwrap_or(Addr::NULL)
}

c_calls! {
    fn spdk_malloc(size: usize, align: usize, unused: Ptr<u64>, _numa_id: c_int, flags: u32) -> Addr {
        if flags == 0 || !unused.is_null() {
            return Addr::NULL;
        }
        or_null(allocate(size, align))
    }

    fn spdk_zmalloc(size: usize, align: usize, unused: Ptr<u64>, _numa_id: c_int, flags: u32) -> Addr {
        if flags == 0 || !unused.is_null() {
            return Addr::NULL;
        }
        or_null(allocate_zeroed(size, align))
    }

    fn spdk_realloc(buf: Addr, size: usize, align: usize) -> Addr {
        if buf.is_null() {
            return or_null(allocate(size, align));
        }
        let old = lock(&HEAP).used.get(&buf.addr()).copied();
        if size == 0 {
            free(buf);
            return Addr::NULL;
        }
        let (Some(old), Some(new)) = (old, allocate(size, align)) else { return Addr::NULL };
        // SAFETY: both allocations have at least this size, and the program does not use `buf` during the
        // call.
        unsafe { buf.copy_to(new, size.min(old as usize)) };
        free(buf);
        new
    }

    fn spdk_free(buf: Addr) { free(buf); }

    fn spdk_dma_malloc(size: usize, align: usize, unused: Ptr<u64>) -> Addr {
        // SAFETY: both functions have the same requirements, and this function's caller meets them.
        unsafe { spdk_malloc(size, align, unused, -1, c::SPDK_MALLOC_DMA) }
    }

    fn spdk_dma_malloc_socket(size: usize, align: usize, unused: Ptr<u64>, numa_id: c_int) -> Addr {
        // SAFETY: both functions have the same requirements, and this function's caller meets them.
        unsafe { spdk_malloc(size, align, unused, numa_id, c::SPDK_MALLOC_DMA) }
    }

    fn spdk_dma_zmalloc(size: usize, align: usize, unused: Ptr<u64>) -> Addr {
        // SAFETY: both functions have the same requirements, and this function's caller meets them.
        unsafe { spdk_zmalloc(size, align, unused, -1, c::SPDK_MALLOC_DMA) }
    }

    fn spdk_dma_zmalloc_socket(size: usize, align: usize, unused: Ptr<u64>, numa_id: c_int) -> Addr {
        // SAFETY: both functions have the same requirements, and this function's caller meets them.
        unsafe { spdk_zmalloc(size, align, unused, numa_id, c::SPDK_MALLOC_DMA) }
    }

    fn spdk_dma_realloc(buf: Addr, size: usize, align: usize, unused: Ptr<u64>) -> Addr {
        if !unused.is_null() {
            return Addr::NULL;
        }
        // SAFETY: `buf` is NULL or memory of this library, as both calls require.
        unsafe { spdk_realloc(buf, size, align) }
    }

    fn spdk_dma_free(buf: Addr) { free(buf); }

    fn spdk_env_dpdk_external_init() -> bool { false }
}
