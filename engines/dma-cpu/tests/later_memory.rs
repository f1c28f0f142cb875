//! Memory that ends after a queue was opened: an operation is done, or is refused with an error that names
//! the remedy and returns the operands. The queue then works as before.

mod refusing_allocator;

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dma_core::{
    Batch, BufferMut, DmaEngineExt, ErrorKind, OpError, Queue, QueueOptions, SharedQueue, SharedQueueOptions,
    SharedTransfer, Transfer,
};
use dma_cpu::{CpuEngine, CpuOptions};
use refusing_allocator::with_allocations;

/// Numbers of allocations after which memory ends.
const ALLOCATIONS: Range<usize> = 0..12;

/// The engine, with new queues for each number of allocations.
fn each_limit(depth: usize, mut check: impl FnMut(&CpuEngine, usize, &Queue, &SharedQueue)) {
    let engine = CpuEngine::open(&CpuOptions::new()).expect("in range");
    for number in ALLOCATIONS {
        let options = QueueOptions::new().with_depth(depth);
        let queue = engine.open_queue(&options).expect("a queue");
        let shared = SharedQueueOptions::new().with_queue(options);
        check(&engine, number, &queue, &engine.open_shared_queue(&shared).expect("a queue"));
    }
}

/// Returns `number` separate ranges of `len` bytes.
fn pieces(engine: &CpuEngine, number: usize, len: usize) -> Vec<BufferMut> {
    let mut left = engine.allocate(number * len).expect("memory");
    (0..number).map(|_| left.split_to(len)).collect()
}

/// Returns the operands of an operation that is done, or that was refused because memory has ended. Counts
/// refusals.
#[track_caller]
fn done_or_refused<T>(result: Result<T, OpError<T>>, refused: &mut usize) -> T {
    result.unwrap_or_else(|e| {
        assert_eq!(e.kind(), ErrorKind::OutOfMemory);
        assert!(e.error().hint().contains("free some memory"), "{}", e.error().hint());
        *refused += 1;
        e.into_operands().expect("a refused operation returns its operands")
    })
}

#[test]
fn operations_with_many_segments() {
    let mut refused = [0; 4];
    // The inline executor takes the short pieces, and refuses the long ones.
    for len in [100, 40_000] {
        each_limit(64, |engine, number, queue, shared| {
            let [src, dst, also] = [(); 3].map(|()| pieces(engine, 80, len));
            let (src, dst) = with_allocations(number, || {
                let copied = queue.copy(src, dst).and_then(Transfer::wait);
                let (src, dst) = done_or_refused(copied, &mut refused[0]);
                let copied = queue.copy_to_both(src, dst, also).and_then(Transfer::wait);
                let (src, dst, _also) = done_or_refused(copied, &mut refused[1]);
                let copied = shared.copy(src, dst).and_then(SharedTransfer::wait);
                let (src, dst) = done_or_refused(copied, &mut refused[2]);
                let filled = shared.fill(dst, [3; 8]).and_then(SharedTransfer::wait);
                (src, done_or_refused(filled, &mut refused[3]))
            });
            let (src, dst) = queue.copy(src, dst).expect("accepted").wait().expect("done");
            _ = shared.copy(src, dst).expect("accepted").wait().expect("done");
        });
    }
    assert!(refused.iter().all(|&times| times > 0), "each operation was refused at some limit: {refused:?}");
}

#[test]
fn long_batches() {
    let mut refused = [0; 4];
    each_limit(64, |engine, number, queue, shared| {
        let pairs = || pieces(engine, 200, 20_000).into_iter().zip(pieces(engine, 200, 20_000));
        let plain: Batch<_, _> = pairs().collect();
        let lists: Batch<_, _> = pairs().map(|(src, dst)| ([src], [dst])).collect();
        let (plain, lists) = with_allocations(number, || {
            let plain = done_or_refused(queue.submit(plain).and_then(Transfer::wait), &mut refused[0]);
            let lists = done_or_refused(queue.submit(lists).and_then(Transfer::wait), &mut refused[1]);
            let plain = done_or_refused(shared.submit(plain).and_then(SharedTransfer::wait), &mut refused[2]);
            let lists = done_or_refused(shared.submit(lists).and_then(SharedTransfer::wait), &mut refused[3]);
            (plain, lists)
        });
        _ = queue.submit(plain).expect("accepted").wait().expect("done");
        _ = shared.submit(lists).expect("accepted").wait().expect("done");
    });
    assert!(refused.iter().all(|&times| times > 0), "each batch was refused at some limit: {refused:?}");
}

/// Many operations in flight that wait for each other: the planner defers some, and the engine others.
#[test]
fn full_queues() {
    const DEPTH: usize = 32;
    let mut refused = 0;
    each_limit(DEPTH, |engine, number, queue, shared| {
        let mut pairs = pieces(engine, DEPTH, 300_000).into_iter().zip(pieces(engine, DEPTH, 300_000));
        let (mut transfers, mut done) = (Vec::with_capacity(DEPTH), Vec::with_capacity(DEPTH));
        with_allocations(number, || {
            for (src, dst) in pairs.by_ref() {
                queue.fence();
                match queue.copy(src, dst) {
                    Ok(transfer) => transfers.push(transfer),
                    Err(e) => done.push(done_or_refused(Err(e), &mut refused)),
                }
            }
            done.extend(transfers.drain(..).map(|transfer| transfer.wait().expect("done")));
        });
        assert_eq!(done.len(), DEPTH, "memory ends after {number} allocations");
        let mut transfers = Vec::with_capacity(DEPTH);
        with_allocations(number, || {
            for (src, dst) in done.drain(..) {
                match shared.compare(src, dst) {
                    Ok(transfer) => transfers.push(transfer),
                    Err(e) => _ = done_or_refused(Err(e), &mut refused),
                }
            }
            for transfer in transfers.drain(..) {
                match transfer.wait() {
                    Ok((_, differ)) => assert_eq!(differ, None),
                    Err(e) => _ = done_or_refused(Err(e), &mut refused),
                }
            }
        });
    });
    assert!(refused > 0, "some operation was refused");
}

/// Transfers that are dropped in flight drop their operands later, or leak them. Their room is free again,
/// and the tasks of other transfers are woken.
#[test]
fn dropped_transfers() {
    const DEPTH: usize = 16;
    // Polls execute the copies, so all are in flight when they are dropped.
    let engine = CpuEngine::open(&CpuOptions::new().with_threads(0).with_inline_limit(0)).expect("in range");
    let pairs = || pieces(&engine, DEPTH, 5000).into_iter().zip(pieces(&engine, DEPTH, 5000));
    let options = QueueOptions::new().with_depth(DEPTH);
    for number in ALLOCATIONS {
        let queue = engine.open_queue(&options).expect("a queue");
        let submit = || pairs().map(|(src, dst)| queue.copy(src, dst).expect("room")).collect::<Vec<_>>();
        let mut dropped = submit();
        let (mut awaited, told) = (dropped.split_off(DEPTH / 2), dropped.split_off(DEPTH / 4));
        let mut tokens = Vec::with_capacity(DEPTH);
        with_allocations(number, || {
            told.iter().zip(0..).for_each(|(transfer, token)| queue.set_token(transfer, token));
            // A poll executes copies, so some are done.
            awaited.retain_mut(|transfer| poll(transfer).is_pending());
            dropped.clear();
            while queue.counters().in_flight > 0 {
                queue.poll_tokens(&mut tokens);
            }
            queue.take_tokens(&mut tokens);
        });
        assert_eq!(tokens.len(), told.len(), "memory ends after {number} allocations");
        told.into_iter().for_each(|transfer| drop(transfer.wait().expect("done")));
        assert!(awaited.iter_mut().all(|transfer| poll(transfer).is_ready()));
        submit().into_iter().for_each(|transfer| drop(transfer.wait().expect("done")));

        let shared = SharedQueueOptions::new().with_queue(options.clone());
        let shared = engine.open_shared_queue(&shared).expect("a queue");
        let submit = || pairs().map(|(src, dst)| shared.copy(src, dst).expect("room")).collect::<Vec<_>>();
        let mut dropped = submit();
        let last = dropped.pop().expect("a transfer");
        with_allocations(number, || {
            dropped.clear();
            drop(last.wait().expect("done"));
        });
        while shared.counters().in_flight > 0 {
            std::thread::yield_now();
        }
        submit().into_iter().for_each(|transfer| drop(transfer.wait().expect("done")));
    }
}

fn poll<T: Future + Unpin>(future: &mut T) -> Poll<T::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}
