//! Once warm, no form of operation allocates, the stand-in included.
#![expect(unsafe_code, reason = "counts allocations")]

mod standin;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use dma_core::{Batch, DmaEngineExt, QueueOptions};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Asserts that `work` comes to run 200 rounds without an allocation. Until then lists grow; what allocates per operation never gets there.
fn warm<T>(what: &str, mut operands: T, mut work: impl FnMut(T) -> T) {
    let mut allocated = 0;
    for _ in 0..20 {
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        for _ in 0..200 {
            operands = work(operands);
        }
        allocated = ALLOCATIONS.load(Ordering::SeqCst) - before;
        if allocated == 0 {
            return;
        }
    }
    panic!("{what} still allocates: {allocated} times in 200 rounds");
}

// One test: the count is of the whole process.
#[test]
fn nothing_is_allocated_per_copy_once_warm() {
    let engine = standin::open();
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let buffer = |len| engine.allocate(len).expect("memory");
    for len in [64, 4096, 3 << 20] {
        warm(&format!("a copy of {len}"), (buffer(len), buffer(len)), |(src, dst)| {
            queue.copy(src, dst).expect("accepted").wait().expect("done")
        });
    }
    for len in [13, 3000] {
        warm(&format!("a fill of {len}"), buffer(len), |dst| {
            queue.fill(dst, *b"12345678").expect("accepted").wait().expect("done")
        });
    }
    let lists = (vec![buffer(100), buffer(5000)], vec![buffer(2550), buffer(2550)]);
    warm("gather and scatter, fenced", lists, |(src, dst)| {
        queue.fence();
        queue.copy(src, dst).expect("accepted").wait().expect("done")
    });
    let batch: Batch<_, _> = (0..40).map(|_| (buffer(64), buffer(64))).collect();
    warm("a batch", batch, |batch| queue.submit(batch).expect("accepted").wait().expect("done"));
}
