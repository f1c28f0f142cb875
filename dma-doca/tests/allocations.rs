//! Once warm, copying allocates nothing: neither this crate nor the stand-in, which is linked into the test.
#![expect(unsafe_code, reason = "counts allocations")]

#[path = "support/calls.rs"]
mod calls;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dma_core::{BufferMut, DmaEngineExt, Queue, QueueOptions};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of 1,000 rounds, after as many to warm up.
fn counted(mut round: impl FnMut()) -> u64 {
    (0..1000).for_each(|_| round());
    let before = ALLOCATIONS.get();
    (0..1000).for_each(|_| round());
    ALLOCATIONS.get() - before
}

fn rig(config: &str) -> (Queue, BufferMut, BufferMut) {
    let engine = calls::engine(config);
    let queue = engine.open_queue(&QueueOptions::new().with_depth(32)).unwrap();
    (queue, engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap())
}

#[test]
fn copies_allocate_nothing() {
    let (queue, src, dst) = rig("");
    let mut pair = Some((src, dst));
    let allocated = counted(|| {
        let (src, dst) = pair.take().unwrap();
        pair = Some(queue.copy(src, dst).unwrap().wait().unwrap());
    });
    assert_eq!(allocated, 0);
}

#[test]
fn copies_between_changing_regions_allocate_nothing() {
    let engine = calls::engine("");
    let queue = engine.open_queue(&QueueOptions::new().with_depth(4)).unwrap();
    let mut buffers: Vec<_> = (0..6).map(|_| Some(engine.allocate(100).unwrap())).collect();
    let mut n = 0;
    let allocated = counted(|| {
        let (i, j) = (n % 6, (n * 5 + 1) % 6);
        n += 1;
        if i == j {
            return;
        }
        let (src, dst) = (buffers[i].take().unwrap(), buffers[j].take().unwrap());
        let (src, dst) = queue.copy(src, dst).unwrap().wait().unwrap();
        (buffers[i], buffers[j]) = (Some(src), Some(dst));
    });
    assert_eq!(allocated, 0);
}

#[test]
fn lists_allocate_nothing() {
    let (queue, src, mut dst) = rig("max_list_len = 4\n");
    let tail = dst.split_off(1000);
    let mut lists = Some((vec![src], vec![dst, tail]));
    let allocated = counted(|| {
        let (src, dst) = lists.take().unwrap();
        lists = Some(queue.copy(src, dst).unwrap().wait().unwrap());
    });
    assert_eq!(allocated, 0);
}
