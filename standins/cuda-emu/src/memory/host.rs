//! Host memory: pinned, managed, and registered memory of the program.
#![expect(unsafe_code, reason = "maps memory")]

use std::ptr;

use rustix::mm::{MapFlags, ProtFlags};

use super::{AllocationKind, DriverMemory, GRANULE, PAGE, STALE, STALE_LEN, at};
use crate::codes::{Code, Outcome, require};

/// Pinned allocations of fewer bytes do not begin at a page boundary.
const PINNED_SHARE_PAGES: u64 = 1 << 20;

impl DriverMemory {
    /// Allocates host memory in whole pages.
    pub(crate) fn allocate_host(&mut self, device: usize, context: u64, len: u64) -> Outcome<u64> {
        let addr = self.map_host(device, context, len, AllocationKind::Pinned)?;
        // SAFETY: these bytes were mapped just now, and nothing else uses them.
        unsafe { at(addr).cast::<u8>().write_bytes(STALE, STALE_LEN.min(len as usize)) };
        Ok(addr)
    }

    /// Allocates memory that the CPU and the devices access at the same address.
    pub(crate) fn allocate_managed(&mut self, device: usize, context: u64, len: u64) -> Outcome<u64> {
        self.map_host(device, context, len, AllocationKind::Managed)
    }

    fn map_host(&mut self, device: usize, context: u64, len: u64, kind: AllocationKind) -> Outcome<u64> {
        if len == 0 || len > isize::MAX as u64 - PAGE {
            return Err(if len == 0 { Code::INVALID_VALUE } else { Code::OUT_OF_MEMORY });
        }
        // Small allocations do not begin at a page boundary; neither do those of the real driver.
        let before = if len < PINNED_SHARE_PAGES { GRANULE } else { 0 };
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let size = (before + len) as usize;
        // SAFETY: the new mapping does not replace another one.
        let mapped = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), size, rights, MapFlags::PRIVATE) };
        let addr = mapped.map_err(|_| Code::OUT_OF_MEMORY)?.expose_provenance() as u64 + before;
        self.add(addr, len, device, context, kind);
        Ok(addr)
    }

    /// Frees host memory of `cuMemHostAlloc`.
    pub(crate) fn free_host(&mut self, addr: u64) -> Outcome {
        let known = self.known.get(&addr).filter(|known| known.pool == 0);
        known.ok_or(Code::INVALID_VALUE)?;
        let allocation =
            self.take(addr, |known| known == AllocationKind::Pinned).ok_or(Code::INVALID_VALUE)?;
        unmap(addr, allocation.len);
        Ok(())
    }

    /// Makes host memory of the program known to the devices. Two registrations may share a page, but no
    /// byte.
    pub(crate) fn register(
        &mut self,
        device: usize,
        context: u64,
        addr: u64,
        len: u64,
        read_only: bool,
    ) -> Outcome {
        let end = addr.checked_add(len).filter(|_| addr > 0 && len > 0).ok_or(Code::INVALID_VALUE)?;
        let (first, behind) =
            (addr / PAGE * PAGE, end.checked_next_multiple_of(PAGE).ok_or(Code::INVALID_VALUE)?);
        let before = self.known.range(..end).next_back();
        require(before.is_none_or(|(_, known)| known.end() <= addr), Code::HOST_MEMORY_ALREADY_REGISTERED)?;
        let rights = rights_of(first, behind).ok_or(Code::INVALID_VALUE)?;
        require(rights.writable || read_only, Code::INVALID_VALUE)?;
        self.add(addr, len, device, context, AllocationKind::Registered { read_only });
        Ok(())
    }

    pub(crate) fn unregister(&mut self, addr: u64) -> Outcome {
        let registered = |kind| matches!(kind, AllocationKind::Registered { .. });
        self.take(addr, registered).map(|_| ()).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)
    }
}

/// Unmaps host memory of the driver, which no other code uses any more.
pub(super) fn unmap(addr: u64, len: u64) {
    let start = addr / PAGE * PAGE;
    // SAFETY: `map_host` or `map_pool_file` made this mapping, and the program has promised not to use it any
    // more.
    let _ = unsafe { rustix::mm::munmap(at(start), (addr - start + len) as usize) };
}

/// Access rights of pages.
struct PageRights {
    writable: bool,
}

/// Returns the rights that all pages from `first` up to `behind` have. `None` if some of them are not mapped
/// or cannot be read.
fn rights_of(first: u64, behind: u64) -> Option<PageRights> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut reached = first;
    let mut writable = true;
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        if end <= reached {
            continue;
        }
        if start > reached || reached >= behind || !rest.starts_with('r') {
            break;
        }
        writable &= rest.as_bytes().get(1) == Some(&b'w');
        reached = end;
    }
    (reached >= behind).then_some(PageRights { writable })
}
