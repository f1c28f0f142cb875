//! Tests that a queue does not allocate once it is warm. The driver of this test executes each call at once,
//! and does not allocate.
#![expect(unsafe_code, reason = "implements a driver, and uses the raw queue")]

mod support;

use std::ffi::c_int;

use dma_core::{Completion, Descriptor, DmaEngine, MemoryRequest, Place, QueueOptions, RawRegion};
use dma_cuda::CUmemcpyAttributes;
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

#[test]
fn nothing_is_allocated_once_warm() {
    let mut driver = support::driver(support::HEALTHY);
    driver.cuMemcpyBatchAsync_v2 = Some(batch);
    driver.cuMemcpyAsync = copy;
    driver.cuEventRecord = record;
    driver.cuEventQuery = query;
    let engine = support::open_with(&driver, &support::options(0)).expect("it opens");
    let memory = |place| engine.allocate_raw(&MemoryRequest::new(4096).with_place(place)).expect("memory");
    let (host, device) = (memory(Place::Host), memory(Place::Device));
    driver.cuMemsetD8Async = bytes;
    driver.cuMemsetD2D32Async = rows;
    let engine = support::open_with(&driver, &support::options(0)).expect("it opens");
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(64)).expect("a queue");
    let (src, dst) = (host.info().segment(0, 64), device.info().segment(0, 64));
    let list = [dst];
    let descriptors = [
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
    assert_eq!(counting::of_thread(), before);
}
