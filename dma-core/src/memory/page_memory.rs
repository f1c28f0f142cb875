//! [`PageMemory`]: zeroed memory of whole pages, optionally on a NUMA node.
#![expect(unsafe_code, reason = "maps memory")]

use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::numa::{self, NumaNodes};
use crate::contract::HUGE_PAGE;
use crate::{Error, MemoryRequest, Result};

/// Zeroed, private memory of whole pages. The pages are resident, so copies cause no page faults.
///
/// To register it, pass it to [`HostMemory::from_owner`](crate::HostMemory::from_owner).
#[derive(Debug)]
pub struct PageMemory {
    base: NonNull<u8>,
    len: usize,
    /// The mapping, which may begin before `base`.
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: this value owns the mapping, and any thread may access and unmap it.
unsafe impl Send for PageMemory {}
// SAFETY: a shared reference returns only read-only slices and a pointer. Access through the pointer is
// unsafe.
unsafe impl Sync for PageMemory {}

impl PageMemory {
    /// Maps memory with the length, alignment, page size and NUMA node of `request`. Ignores the rights of
    /// `request`. Blocks while the system clears the pages.
    ///
    /// # Errors
    ///
    /// The errors of [`MemoryRequest::validate_for_host`]; `InvalidArgument` for a node whose memory the
    /// process may not use; `NotFound` for a node that does not exist; `OutOfMemory`, also if the limit of a
    /// control group leaves too little (see [`available_memory`](dma_process::available_memory));
    /// `PermissionDenied` if a sandbox forbids memory policies.
    pub fn new(request: &MemoryRequest) -> Result<Self> {
        request.validate_for_host()?;
        match request.node {
            None => Self::map(request, |_| Ok(())),
            Some(_) => Self::on_node_of(&NumaNodes::of_system(), request),
        }
    }

    /// Maps memory as [`new`](Self::new) does, but `nodes` describes the machine.
    pub(crate) fn on_node_of(nodes: &NumaNodes, request: &MemoryRequest) -> Result<Self> {
        let Some(node) = request.node else { return Self::map(request, |_| Ok(())) };
        nodes.check_room(node, request.len)?;
        Self::map(request, |memory| numa::bind(nodes, node, memory.start, memory.size))
    }

    /// Maps memory, lets `place` set its memory policy, and populates the pages.
    fn map(request: &MemoryRequest, place: impl FnOnce(&Self) -> Result<()>) -> Result<Self> {
        let failed = |errno| match errno {
            Errno::NOMEM => request.out_of_memory(),
            errno => Error::from(std::io::Error::from(errno)),
        };
        let page = rustix::param::page_size();
        let align = if request.huge_pages { request.align.max(HUGE_PAGE) } else { request.align };
        let slack = if align > page { align } else { 0 };
        let size = request.len.checked_next_multiple_of(page).and_then(|size| size.checked_add(slack));
        let size = size.ok_or_else(|| request.out_of_memory())?;
        request.check_available()?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses unused addresses for the new mapping.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), size, access, MapFlags::PRIVATE) }.map_err(failed)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| request.out_of_memory())?;
        let ahead = start.addr().get().next_multiple_of(align) - start.addr().get();
        let base = start.map_addr(|addr| addr.saturating_add(ahead));
        let memory = Self { base, len: request.len, start, size };
        place(&memory)?;
        memory.populate(request.huge_pages).map_err(failed)?;
        Ok(memory)
    }

    /// Populates the pages.
    fn populate(&self, huge: bool) -> Result<(), Errno> {
        let page = rustix::param::page_size();
        // With an alignment below a page, `base` is the start of the mapping.
        let len = self.len.next_multiple_of(page);
        if huge {
            // SAFETY: the advice covers only this mapping, which starts at a page. The advice does not change
            // the content.
            let _ = unsafe { madvise(self.base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        // SAFETY: the advice covers only this mapping, to which no other pointer exists yet.
        match unsafe { madvise(self.base.as_ptr().cast(), len, Advice::LinuxPopulateWrite) } {
            Ok(()) => return Ok(()),
            Err(Errno::NOMEM) => return Err(Errno::NOMEM),
            // Linux before 5.14 does not have `MADV_POPULATE_WRITE`, so write to each page.
            Err(_) => {}
        }
        for at in (0..self.len).step_by(page) {
            // SAFETY: the byte lies in the mapping, to which no other pointer exists yet. The write is
            // volatile, because the compiler might remove a write that does not change the value.
            unsafe { self.base.as_ptr().wrapping_add(at).write_volatile(0) };
        }
        Ok(())
    }

    /// Returns a pointer to the first byte, with the requested alignment. The pointer is valid until this
    /// value is dropped. Use the pointer in an owner that keeps this value and makes no reference to its
    /// bytes.
    #[must_use]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }
}

impl AsRef<[u8]> for PageMemory {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the memory is mapped with this length until `self` is dropped, and the system has zeroed
        // it. It is written only through `&mut`, or through `as_ptr` by an owner that makes no reference to
        // the bytes.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl AsMut<[u8]> for PageMemory {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is mapped with this length until `self` is dropped, and the system has zeroed
        // it. `&mut self` borrows it exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this start and size, and only `drop` unmaps it. No reference
        // into it outlives this value.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok(), "the mapping of this value cannot be unmapped: {unmapped:?}");
    }
}
