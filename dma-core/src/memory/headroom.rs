//! Checks that the system has the memory for an allocation.
#![expect(unsafe_code, reason = "maps memory, and unmaps it")]

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::{Error, ErrorKind, Result};

/// Additional headroom in bytes, for smaller allocations and to start a thread.
const SMALL: usize = 1 << 20;
/// Stack size, in bytes, of a thread that the standard library starts.
const STACK: usize = 2 << 20;

/// Fails if the system cannot provide `bytes` of memory and 1 MiB more. An engine calls it before it opens a
/// queue, because Rust's collections end the process when memory is short.
///
/// Reserves nothing: other threads may allocate the memory in the meantime.
///
/// # Errors
///
/// `OutOfMemory`.
pub fn check_headroom(bytes: usize) -> Result<()> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    let len = bytes.saturating_add(SMALL);
    let out_of_memory = |_| {
        Error::new(ErrorKind::OutOfMemory, format!("the system has no {len} bytes more")).with_hint(
            "free some memory, raise the limit of the address space, or open fewer or shallower queues",
        )
    };
    // The probe bypasses the allocator, because allocators adapt to the sizes of requests.
    // SAFETY: the kernel chooses an unused place for the new mapping.
    let probe = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags) }.map_err(out_of_memory)?;
    // SAFETY: this function has just made the mapping, and nothing else refers to it.
    unsafe { munmap(probe, len) }.map_err(out_of_memory)
}

/// Starts a thread, or fails if the system lacks the resources.
///
/// # Errors
///
/// `OutOfMemory`; `OutOfResources` if the system starts no more threads.
pub fn spawn_thread(
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>> {
    // If a thread runs out of memory while it starts, the process aborts, so check first.
    check_headroom(STACK)?;
    std::thread::Builder::new().name(name).spawn(body).map_err(|e| {
        Error::new(ErrorKind::OutOfResources, format!("the system starts no thread: {e}"))
            .with_hint("raise the limits of threads and of the address space")
    })
}
