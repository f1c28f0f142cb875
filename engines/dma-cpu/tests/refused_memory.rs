//! Operations that the CPU executes within the call allocate nothing, not even the first ones of a process,
//! because an allocation that fails ends the program. Memory is also freed without an allocation. Longer
//! operations of a new queue need no memory either.
#![expect(unsafe_code, reason = "copies between raw addresses")]

mod refusing_allocator;

use std::hint::black_box;

use dma_core::{DmaEngineExt, QueueOptions, SharedQueueOptions};
use dma_cpu::{CpuEngine, CpuOptions, Kernel};
use refusing_allocator::with_allocations;

/// Runs `work` while this thread gets no memory.
fn without_memory<R>(work: impl FnOnce() -> R) -> R {
    with_allocations(0, work)
}

// This is the only test in the file, because the first calls of the process count.
#[test]
fn the_first_operations_and_drops_of_a_process_need_no_memory() {
    let (mut dst, src) = ([0_u8; 3000], [7_u8; 3000]);
    without_memory(|| {
        for kernel in Kernel::all() {
            // SAFETY: both arrays have the length, and do not overlap.
            unsafe { kernel.copy(dst.as_mut_ptr(), src.as_ptr(), dst.len()) };
        }
    });
    assert_eq!(black_box(dst), src);

    let engine = CpuEngine::open(&CpuOptions::new()).expect("in range");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let shared = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    let memory = |len| engine.allocate(len).expect("memory");
    for len in [64, 1000, 3000, 5000, 20_000] {
        let (mut pair, other) = ((memory(len), memory(len)), memory(len).freeze());
        let (pair, digest) = without_memory(|| {
            pair = queue.copy(pair.0, pair.1).expect("accepted").wait().expect("done");
            pair.1 = queue.fill(pair.1, [5; 8]).expect("accepted").wait().expect("done");
            pair = shared.copy(pair.1, pair.0).expect("accepted").wait().expect("done");
            pair.1 = shared.fill(pair.1, [6; 8]).expect("accepted").wait().expect("done");
            let (other, digest) = queue.crc32c(other, 0).expect("accepted").wait().expect("done");
            drop(other);
            (pair, digest)
        });
        assert_eq!((pair.0[len - 1], pair.1[len - 1]), (5, 6), "{len} bytes");
        assert_eq!(digest, crc32c::crc32c(&vec![0; len]), "{len} bytes");
    }
    // The first longer operations of a queue use memory that was allocated with the queue. Without memory for
    // jobs, they are executed by the submission.
    let long = || memory(3 << 20);
    for fenced in [false, true] {
        let queue = || {
            let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
            if fenced {
                queue.fence();
            }
            queue
        };
        let (fresh, src, dst) = (queue(), long(), long());
        let (src, dst) = without_memory(|| fresh.copy(src, dst).expect("accepted").wait().expect("done"));
        // The limit is reached at any allocation.
        let (src, dst) = (0..8).fold((src, dst), |(src, dst), number| {
            let fresh = queue();
            with_allocations(number, || fresh.copy(src, dst).expect("accepted").wait().expect("done"))
        });
        let fresh = queue();
        let dst = without_memory(|| fresh.fill(dst, [0; 8]).expect("accepted").wait().expect("done"));
        let (fresh, src, dst) = (queue(), src.freeze(), dst.freeze());
        let ((src, _), differ) =
            without_memory(|| fresh.compare(src, dst).expect("accepted").wait().expect("done"));
        assert_eq!(differ, None);
        let fresh = queue();
        let (_, digest) = without_memory(|| fresh.crc32c(src, 0).expect("accepted").wait().expect("done"));
        assert_eq!(digest, crc32c::crc32c(&vec![0; 3 << 20]));
    }
}
