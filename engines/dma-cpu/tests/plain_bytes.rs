//! Tests of plain bytes on the CPU engine, which are not copied through the queue.

use dma_core::{BufferPool, DmaEngineExt, ErrorKind, PoolOptions, QueueOptions, SharedQueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};

#[test]
fn plain_bytes_take_neither_buffers_nor_places() {
    let engine = CpuEngine::open(&CpuOptions::new()).expect("it opens");
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(64, 1)).expect("a pool");
    let held = pool.try_get(64).expect("a buffer");
    let src: Vec<u8> = (0..100_000_u32).map(|i| (i >> 3) as u8).collect();
    let mut dst = vec![0; src.len()];
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    queue.copy_bytes(&pool, &src, &mut dst).expect("it is copied");
    assert_eq!((&dst, queue.counters().submitted), (&src, 0));
    dst.fill(0);
    let queue = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    queue.copy_bytes(&pool, &src, &mut dst).expect("it is copied");
    assert_eq!((dst, queue.counters().submitted), (src, 0));
    drop(held);
    // This engine refuses the same operands as other engines.
    let other = CpuEngine::open(&CpuOptions::new()).expect("it opens");
    let pool = BufferPool::new(&other, &PoolOptions::new().with_class(64, 1)).expect("a pool");
    let e = queue.copy_bytes(&pool, &[1; 5], &mut [0; 5]).expect_err("a pool of another engine");
    assert_eq!(e.kind(), ErrorKind::WrongEngine);
}

/// One thread copies through the helper threads; the others do not wait for them.
#[test]
fn threads_copy_long_slices_at_the_same_time() {
    let engine = CpuEngine::open(&CpuOptions::new()).expect("it opens");
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(64, 1)).expect("a pool");
    let queue = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (queue, pool) = (queue.clone(), &pool);
            scope.spawn(move || {
                for round in 0..4 {
                    let len = (1 << 20) + 1000 * usize::from(thread) + round;
                    let src: Vec<u8> = (0..len).map(|n| (n >> 3) as u8 ^ thread).collect();
                    let mut dst = vec![0; len];
                    queue.copy_bytes(pool, &src, &mut dst).expect("it is copied");
                    assert!(src == dst, "thread {thread}, round {round}");
                }
            });
        }
    });
    assert_eq!(queue.counters().submitted, 0);
}
