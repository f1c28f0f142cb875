//! An allocator that counts allocations.
#![expect(unsafe_code, reason = "a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, with counts. A test makes it the global allocator.
#[derive(Debug)]
pub struct Counting;

static OF_PROCESS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of allocations of all threads, for tests that have a process of their own.
pub fn of_process() -> u64 {
    OF_PROCESS.load(Ordering::SeqCst)
}

/// Returns the number of allocations of this thread.
pub fn of_thread() -> u64 {
    OF_THREAD.get()
}

fn count() {
    OF_PROCESS.fetch_add(1, Ordering::Relaxed);
    OF_THREAD.set(OF_THREAD.get() + 1);
}

// SAFETY: every call goes to the system's allocator, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller meets the requirements of `alloc`, which are the same for `System`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` is from `System` with this layout, because `alloc` and `realloc` forward every call
        // to it.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        count();
        // SAFETY: `ptr` is from `System` with this layout, and the caller gives a valid new size.
        unsafe { System.realloc(ptr, layout, new) }
    }
}
