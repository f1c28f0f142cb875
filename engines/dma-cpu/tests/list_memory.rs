//! Tests that the memory for lists of segments is proportional to the jobs in flight, not to the longest job
//! ever.
#![expect(unsafe_code, reason = "implements a global allocator; uses the raw queue")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use dma_core::{Completion, Descriptor, DmaEngine, MemoryRequest, QueueOptions, RawQueue};
use dma_cpu::{CpuEngine, CpuOptions};

struct Sizing;

#[global_allocator]
static ALLOCATOR: Sizing = Sizing;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator, and counting does not allocate.
unsafe impl GlobalAlloc for Sizing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::SeqCst);
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { System.dealloc(ptr, layout) }
    }
}

const DEPTH: usize = 2048;

fn drain(queue: &mut dyn RawQueue, count: usize) {
    let mut completions = [Completion::done(0); 64];
    let mut done = 0;
    while done < count {
        done += queue.poll(&mut completions);
    }
}

#[test]
fn one_long_list_does_not_make_all_lists_long() {
    // All copies are jobs that polls execute, so that the number in flight is deterministic.
    let engine = CpuEngine::open(&CpuOptions::new().with_threads(0).with_inline_limit(0)).expect("in range");
    let memory = || engine.allocate_raw(&MemoryRequest::new(64 * DEPTH)).expect("memory");
    let (src, dst) = (memory(), memory());
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(DEPTH)).expect("a queue");
    let lists =
        [&src, &dst].map(|region| (0..1024).map(|n| region.info().segment(64 * n, 64)).collect::<Vec<_>>());
    let flat = Descriptor::copy(1, lists[0][0], lists[1][0]);
    let mut round = |descriptor: Descriptor<'_>, count: usize| {
        for _ in 0..count {
            // SAFETY: the ranges lie within regions that outlive the queue, and the copies write the same
            // bytes one after the other.
            assert_eq!(unsafe { queue.submit(&[descriptor]) }.expect("open"), 1);
        }
        queue.flush();
        let live = LIVE.load(Ordering::SeqCst);
        drain(&mut *queue, count);
        live
    };
    let before = round(Descriptor::copy_lists(0, &lists[0], &lists[1]), 1);
    // The harness's own thread may free memory in the meantime.
    let each = round(flat, DEPTH).saturating_sub(before) / DEPTH;
    assert!(each < 1024, "{each} bytes for each copy of one piece");
}
