//! Tests that a warm queue of the CPU engine does not allocate, for any copy and on any thread.
#![expect(unsafe_code, reason = "drives the raw queue")]

use dma_core::{Completion, Descriptor, DmaEngine, MemoryRequest, QueueOptions, RawRegion, Segment};
use dma_cpu::{CpuEngine, CpuOptions};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

#[test]
fn nothing_is_allocated_once_warm() {
    const LEN: usize = 1 << 20;
    for (threads, depth) in [(0, 8), (2, 8), (1, 4096)] {
        let engine = CpuEngine::open(&CpuOptions::new().with_threads(threads)).expect("in range");
        let memory = || engine.allocate_raw(&MemoryRequest::new(LEN)).expect("memory");
        let (src, dst) = (memory(), memory());
        let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).expect("a queue");
        let lists: Vec<Vec<Segment>> = [&src, &dst]
            .map(|region| (0..16).map(|at| region.info().segment(at * (LEN / 16), LEN / 16)).collect())
            .into();
        let long = [&src, &dst]
            .map(|region| (0..1000).map(|at| region.info().segment(at * 64, 64)).collect::<Vec<_>>());
        let batch = [
            Descriptor::copy(0, src.info().segment(0, 64), dst.info().segment(0, 64)),
            Descriptor::copy(1, src.info().segment(0, 20_000), dst.info().segment(0, 20_000))
                .with_fence(true),
            Descriptor::copy(2, src.info().segment(0, LEN), dst.info().segment(0, LEN)).with_fence(true),
            Descriptor::copy(3, src.info().segment(0, 64), dst.info().segment(0, 64)).with_fence(true),
            Descriptor::copy_lists(4, &lists[0], &lists[1]).with_fence(true),
            Descriptor::fill(5, *b"8 bytes.", &lists[1]).with_fence(true),
            Descriptor::copy_lists(6, &long[0], &long[1]).with_fence(true),
        ];
        let mut completions = [Completion::done(0); 8];
        let mut round = || {
            // SAFETY: the ranges lie within regions that outlive the queue. Fences order the operations, and
            // no other code accesses the ranges.
            assert_eq!(unsafe { queue.submit(&batch) }.expect("open"), batch.len());
            queue.flush();
            let mut done = 0;
            while done < batch.len() {
                done += queue.poll(&mut completions);
            }
        };
        // The ring is used twice, because each entry has its own lists.
        (0..2 * depth.max(50)).for_each(|_| round());
        // The maximum number of jobs in flight may be reached late, when the tuner changes its choice or a
        // helper is slow.
        let is_warm = (0..20).any(|_| {
            let before = counting::of_process();
            (0..100).for_each(|_| round());
            counting::of_process() == before
        });
        assert!(is_warm, "{threads} threads");
    }
}
