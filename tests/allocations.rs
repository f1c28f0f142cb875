//! After warm-up, no operation allocates, on both queue types: copies, fills, lists and batches, and split,
//! fenced and awaited operations.

use std::task::{Context, Poll, Waker};

use dma::prelude::*;
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Asserts that `work` eventually runs 200 rounds without an allocation. Earlier rounds may allocate, because
/// lists grow at times that depend on thread timing. Code that allocates per operation never passes.
fn warm(what: &str, mut work: impl FnMut()) {
    let mut allocated = 0;
    for _ in 0..20 {
        let before = counting::of_process();
        (0..200).for_each(|_| work());
        allocated = counting::of_process() - before;
        if allocated == 0 {
            return;
        }
    }
    panic!("{what} still allocates: {allocated} times in 200 rounds");
}

/// Calls `with`, and keeps the operands that it returns for the next call.
fn cycle<T>(operands: &mut Option<T>, with: impl FnOnce(T) -> T) {
    let taken = operands.take().expect("they came back");
    *operands = Some(with(taken));
}

/// Polls a future until it is ready, without a runtime.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = std::pin::Pin::new(&mut future).poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}

// This is the only test in the file, because allocations of the whole process are counted.
#[test]
fn nothing_is_allocated_per_copy_once_warm() {
    for name in [
        "cpu",
        "cpu:threads=0",
        "cpu:threads=1,inline=0",
        "sim",
        "sim:profile=bluefield3,max_transfer=1000,depth=4",
    ] {
        let engine = dma::open(name).expect("it opens");
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let buffer = |len| engine.allocate(len).expect("memory");
        let lists = || (vec![buffer(100), buffer(5000)], vec![buffer(2550), buffer(2550)]);

        for len in [64, 4096, 200_000] {
            let mut pair = Some((buffer(len), buffer(len)));
            warm(&format!("{name}: copy of {len}"), || {
                cycle(&mut pair, |(src, dst)| queue.copy(src, dst).expect("accepted").wait().expect("done"));
            });
            warm(&format!("{name}: awaited copy of {len}"), || {
                cycle(&mut pair, |(src, dst)| {
                    block_on(queue.copy(src, dst).expect("accepted")).expect("done")
                });
            });
        }
        let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(4096, 4)).expect("a pool");
        warm(&format!("{name}: a pool"), || {
            let (src, dst) = (pool.try_get(100).expect("a buffer"), pool.try_get(100).expect("another"));
            queue.copy(src, dst).expect("accepted").wait().expect("done");
        });
        let mut dst = Some(buffer(3000));
        warm(&format!("{name}: fill"), || {
            cycle(&mut dst, |dst| queue.fill(dst, [1; 8]).expect("accepted").wait().expect("done"));
        });
        let mut list = Some(lists());
        warm(&format!("{name}: gather and scatter, fenced"), || {
            queue.fence();
            cycle(&mut list, |(src, dst)| queue.copy(src, dst).expect("accepted").wait().expect("done"));
        });
        let mut batch: Option<Batch<_, _>> = Some((0..40).map(|_| (buffer(64), buffer(64))).collect());
        warm(&format!("{name}: batch"), || {
            cycle(&mut batch, |batch| queue.submit(batch).expect("accepted").wait().expect("done"));
        });
        // The buffers are too long for inline execution by the CPU engine, so the operations fill the queue.
        let long = || (buffer(150_000), buffer(150_000));
        let few = engine.open_queue(&QueueOptions::new().with_depth(4)).expect("a queue");
        let submit = |(src, dst)| few.copy(src, dst).expect("room");
        let full: Vec<_> = (0..few.depth()).map(|_| submit(long())).collect();
        let (mut pair, mut refused) = (Some((buffer(8), buffer(8))), Some(long()));
        warm(&format!("{name}: refusal of a full queue"), || {
            cycle(&mut refused, |(src, dst)| {
                let refused = few.copy(src, dst).expect_err("it is full");
                assert_eq!(refused.kind(), ErrorKind::QueueFull);
                refused.into_operands().expect("they come back")
            });
        });
        drop(full);
        drop((few, queue));

        let shared = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a shared queue");
        warm(&format!("{name}: shared copy"), || {
            cycle(&mut pair, |(src, dst)| shared.copy(src, dst).expect("accepted").wait().expect("done"));
        });
        warm(&format!("{name}: shared, awaited copy"), || {
            cycle(&mut pair, |(src, dst)| block_on(shared.copy(src, dst).expect("accepted")).expect("done"));
        });
        let one = QueueOptions::new().with_depth(1);
        let small =
            engine.open_shared_queue(&SharedQueueOptions::new().with_queue(one)).expect("a shared queue");
        let depth = small.depth();
        let mut pairs: Vec<_> = (0..depth).map(|_| long()).collect();
        let mut transfers = Vec::with_capacity(depth);
        warm(&format!("{name}: waiting for room"), || {
            transfers.extend(pairs.drain(..).map(|(src, dst)| small.copy(src, dst).expect("accepted")));
            let mut ready = small.ready();
            let mut context = Context::from_waker(Waker::noop());
            assert!(
                std::pin::Pin::new(&mut ready).poll(&mut context).is_pending(),
                "the transfers hold all slots"
            );
            pairs.extend(transfers.drain(..).map(|transfer| transfer.wait().expect("done")));
            block_on(ready).expect("there is room");
        });
        drop(small);
        warm(&format!("{name}: shared gather and scatter"), || {
            cycle(&mut list, |(src, dst)| shared.copy(src, dst).expect("accepted").wait().expect("done"));
        });
        warm(&format!("{name}: shared batch"), || {
            cycle(&mut batch, |batch| shared.submit(batch).expect("accepted").wait().expect("done"));
        });
    }
}
