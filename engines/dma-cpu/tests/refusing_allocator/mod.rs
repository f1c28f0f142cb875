//! The system's allocator, which refuses memory after a number of allocations of a thread.
#![expect(unsafe_code, reason = "implements a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which can refuse.
struct Refusing;

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

thread_local! {
    /// Number of allocations that this thread still gets.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

// SAFETY: every call goes to the system's allocator, or returns null, which is allowed.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match LEFT.get() {
            usize::MAX => {}
            0 => return std::ptr::null_mut(),
            left => LEFT.set(left - 1),
        }
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Runs `work` while this thread gets memory `number` times.
pub(crate) fn with_allocations<R>(number: usize, work: impl FnOnce() -> R) -> R {
    LEFT.set(number);
    let result = work();
    LEFT.set(usize::MAX);
    result
}
