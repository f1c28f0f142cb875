//! Checks that the system has enough memory for an allocation.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

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
        let hint =
            "free some memory, raise the limit of the address space, or open fewer or shallower queues";
        LimitError::new(Limit::Memory, message, hint)
    };
    // The probe maps memory directly, because large requests change the behaviour of allocators.
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let probe = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags) }.map_err(out_of_memory)?;
    // SAFETY: this function has just made the mapping, and no pointer to it exists elsewhere.
    unsafe { munmap(probe, len) }.map_err(out_of_memory)
}
