//! Checks that the system has enough memory for an allocation.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::{Limit, LimitError};

/// Additional headroom in bytes, for smaller allocations and for the start of a thread.
const SMALL: usize = 1 << 20;

/// Checks that the system can provide `bytes` plus 1 MiB of memory. An engine calls this before it opens a
/// queue, because Rust's collections end the process when an allocation fails.
///
/// The memory is not reserved: other threads may allocate it after the check.
///
/// # Errors
///
/// [`Limit::Memory`] if the system cannot provide the memory.
pub fn check_headroom(bytes: usize) -> Result<(), LimitError> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    let len = bytes.saturating_add(SMALL);
    let out_of_memory = |_| {
        let message = format!("the system cannot provide {len} more bytes");
        let hint = "free some memory, raise the limits of the address space and of memory mappings \
                    (vm.max_map_count), or open fewer or shallower queues";
        LimitError::new(Limit::Memory, message, hint)
    };
    // The probe maps memory directly, because large requests change the behaviour of allocators.
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let probe = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags) }.map_err(out_of_memory)?;
    // SAFETY: this function has just made the mapping, and no pointer to it exists elsewhere.
    unsafe { munmap(probe, len) }.map_err(out_of_memory)
}

/// Checks that the process may have 32 more memory mappings. A thread has four: its stack and its signal
/// stack, each with a guard page. The rest is for threads that start at the same time, and for the program.
///
/// # Errors
///
/// [`Limit::Memory`] if the process has nearly as many mappings as the kernel allows.
pub(crate) fn check_mappings() -> Result<(), LimitError> {
    const MAPPINGS: usize = 32;
    // Miri has no mappings without rights, and no limit on their number.
    if cfg!(miri) {
        return Ok(());
    }
    // Pages with different rights are different mappings.
    let page = rustix::param::page_size();
    let out_of_mappings = |_| {
        let message = "the process has nearly as many memory mappings as the kernel allows".to_owned();
        LimitError::new(Limit::Memory, message, "raise vm.max_map_count, or open fewer queues")
    };
    let len = MAPPINGS * page;
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let probe = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE) }
        .map_err(out_of_mappings)?;
    let split = (1..MAPPINGS).step_by(2).try_for_each(|at| {
        let start = probe.wrapping_byte_add(at * page);
        // SAFETY: the page is part of the new mapping, which no other code uses.
        unsafe { mprotect(start, page, MprotectFlags::READ) }
    });
    // SAFETY: this function has just made the mapping, and no pointer to it exists elsewhere.
    let unmapped = unsafe { munmap(probe, len) };
    split.and(unmapped).map_err(out_of_mappings)
}
