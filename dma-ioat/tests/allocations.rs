//! After warm-up, no form of operation allocates memory, neither in this crate nor in the stand-in.

mod standin;

use dma_core::{Batch, DmaEngineExt, QueueOptions};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Asserts that `work` reaches 200 rounds in a row without an allocation. Earlier rounds may allocate,
/// because vectors may grow. If every operation allocates, the test fails.
fn warm<T>(what: &str, mut operands: T, mut work: impl FnMut(T) -> T) {
    let mut allocated = 0;
    for _ in 0..20 {
        let before = counting::of_process();
        for _ in 0..200 {
            operands = work(operands);
        }
        allocated = counting::of_process() - before;
        if allocated == 0 {
            return;
        }
    }
    panic!("{what} still allocates: {allocated} times in 200 rounds");
}

// All cases are in one test, because allocations are counted for the whole process.
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
