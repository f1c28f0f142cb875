//! Tests that a queue does not allocate once it is warm. The driver of this test executes each call at once,
//! and does not allocate.
#![expect(unsafe_code, reason = "implements a driver, and uses the raw queue")]

mod support;

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use dma_core::{Completion, Descriptor, DmaEngine, MemoryRequest, Place, QueueOptions, RawRegion};
use dma_cuda::{CUmemcpyAttributes, Pieces};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

unsafe extern "C" fn batch(
    _: *const u64,
    _: *const u64,
    _: *const usize,
    _: usize,
    _: *mut CUmemcpyAttributes,
    _: *mut usize,
    _: usize,
    _: usize,
) -> c_int {
    0
}

unsafe extern "C" fn copy(_: u64, _: u64, _: usize, _: usize) -> c_int {
    0
}

unsafe extern "C" fn record(_: usize, _: usize) -> c_int {
    0
}

unsafe extern "C" fn query(_: usize) -> c_int {
    0
}

unsafe extern "C" fn bytes(_: u64, _: u8, _: usize, _: usize) -> c_int {
    0
}

unsafe extern "C" fn rows(_: u64, _: usize, _: u32, _: usize, _: usize, _: usize) -> c_int {
    0
}

/// Returns a time that depends on the number of calls, so that `auto` tries all ways again and again.
unsafe extern "C" fn elapsed(milliseconds: *mut f32, _: usize, _: usize) -> c_int {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller passes a pointer that is valid for the write.
    unsafe { *milliseconds = 0.01 * (1 + calls % 7) as f32 };
    0
}

unsafe extern "C" fn launch(
    _: usize,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: usize,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    0
}

#[test]
fn nothing_is_allocated_once_warm() {
    for pieces in [Pieces::Auto, Pieces::Batch, Pieces::Kernel, Pieces::Loop] {
        stays_warm(pieces);
    }
}

fn stays_warm(pieces: Pieces) {
    let mut driver = support::driver(support::HEALTHY);
    driver.cuMemcpyBatchAsync_v2 = Some(batch);
    driver.cuMemcpyAsync = copy;
    driver.cuEventRecord = record;
    driver.cuEventQuery = query;
    driver.cuLaunchKernel = Some(launch);
    driver.cuEventElapsedTime = Some(elapsed);
    let options = support::options(0).with_pieces(pieces);
    let engine = support::open_with(&driver, &options).expect("it opens");
    let memory = |place| engine.allocate_raw(&MemoryRequest::new(4096).with_place(place)).expect("memory");
    let (host, device) = (memory(Place::Host), memory(Place::Device));
    driver.cuMemsetD8Async = bytes;
    driver.cuMemsetD2D32Async = rows;
    let engine = support::open_with(&driver, &options).expect("it opens");
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(64)).expect("a queue");
    let (src, dst) = (host.info().segment(0, 64), device.info().segment(0, 64));
    let list = [dst];
    let (srcs, dsts) = ([src; 6], [host.info().segment(64, 100), host.info().segment(200, 284)]);
    let descriptors = [
        Descriptor::copy_lists(5, &srcs, &dsts),
        Descriptor::copy(0, src, dst),
        Descriptor::copy(1, dst, src),
        Descriptor::copy(2, src, dst).with_fence(true),
        Descriptor::fill(3, *b"pattern!", &list),
        Descriptor::copy(4, src, dst),
    ];
    let mut completions = [Completion::done(0); 8];
    let mut round = || {
        // SAFETY: the ranges are within regions that outlive the queue. This driver touches no memory.
        assert_eq!(unsafe { queue.submit(&descriptors) }.expect("open"), descriptors.len());
        queue.flush();
        assert_eq!(queue.poll(&mut completions), descriptors.len());
    };
    (0..100).for_each(|_| round());
    let before = counting::of_thread();
    (0..1000).for_each(|_| round());
    assert_eq!(counting::of_thread(), before, "{pieces:?}");
}
