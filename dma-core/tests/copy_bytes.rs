//! Tests of `copy_bytes`: plain slices, copied through the buffers of a pool.

#[path = "../conformance/tests/faulty/engine/mod.rs"]
#[expect(dead_code, reason = "these tests need two of the faults")]
mod engine;

use std::time::Duration;

use dma_conformance::{ReferenceEngine, ReferenceOptions, doc_engine};
use dma_core::{
    BufferPool, DmaEngine, DmaEngineExt, ErrorKind, PoolOptions, QueueOptions, Result, SharedQueueOptions,
};
use engine::{Fault, Faulty};

fn pool(engine: &dyn DmaEngine, len: usize, count: usize) -> BufferPool {
    BufferPool::new(engine, &PoolOptions::new().with_class(len, count)).expect("a pool")
}

fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + (i >> 8)) as u8).collect()
}

/// Runs a copy on a `Queue` and on a `SharedQueue`.
fn on_both(
    engine: &dyn DmaEngine,
    options: &QueueOptions,
    check: impl Fn(&dyn Fn(&BufferPool, &[u8], &mut [u8]) -> Result<()>),
) {
    let queue = engine.open_queue(options).expect("a queue");
    check(&|pool, src, dst| queue.copy_bytes(pool, src, dst));
    let options = SharedQueueOptions::new().with_queue(options.clone());
    let shared = engine.open_shared_queue(&options).expect("a queue");
    check(&|pool, src, dst| shared.copy_bytes(pool, src, dst));
}

#[test]
fn bytes_arrive_in_pieces_of_the_pools_buffers() {
    let mut options = ReferenceOptions::default();
    options.depth = 3;
    let engine = ReferenceEngine::new(options);
    let classes = PoolOptions::new().with_class(100, 2).with_class(1000, 5);
    let pools =
        [pool(&engine, 2, 1), pool(&engine, 65, 30), BufferPool::new(&engine, &classes).expect("a pool")];
    on_both(&engine, &QueueOptions::new(), |copy| {
        for (pool, len) in pools.iter().flat_map(|pool| [0, 1, 2, 499, 500, 501, 7777].map(|len| (pool, len)))
        {
            let (src, mut dst) = (sample(len), vec![0xee; len + 2]);
            copy(pool, &src, &mut dst[1..=len]).expect("it is copied");
            assert_eq!(dst[1..=len], src, "{len} bytes");
            assert_eq!((dst[0], dst[len + 1]), (0xee, 0xee), "nothing beside it");
            assert!(pool.classes().all(|class| class.in_use == 0), "all buffers have returned to the pool");
        }
    });
}

#[test]
fn an_impossible_copy_is_refused_before_a_byte_is_written() {
    let engine = doc_engine();
    let own = pool(&engine, 64, 2);
    let mut dst = [7; 10];
    on_both(&engine, &QueueOptions::new(), |copy| {
        let kind = |pool: &BufferPool, dst: &mut [u8]| copy(pool, &[1; 9], dst).expect_err("refused").kind();
        assert_eq!(kind(&own, &mut [7; 10]), ErrorKind::LengthMismatch);
        assert_eq!(kind(&pool(&doc_engine(), 64, 2), &mut [7; 9]), ErrorKind::WrongEngine);
        assert_eq!(kind(&pool(&engine, 1, 2), &mut [7; 9]), ErrorKind::InvalidArgument);
    });
    let shared = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    shared.close(Duration::ZERO);
    let e = shared.copy_bytes(&own, &[1; 10], &mut dst).expect_err("it is closed");
    assert_eq!((e.kind(), dst), (ErrorKind::Closed, [7; 10]));
}

#[test]
fn a_device_that_does_not_answer_keeps_the_pools_buffers_and_not_the_slices() {
    let stall = Duration::from_millis(20);
    let (src, mut dst) = (sample(1000), vec![0; 1000]);
    let engine = Faulty::new(doc_engine(), Fault::ThirdIsLost);
    let pool = pool(&engine, 200, 20);
    let queue = engine.open_queue(&QueueOptions::new().with_stall_timeout(stall)).expect("a queue");
    let e = queue.copy_bytes(&pool, &src, &mut dst).expect_err("the third chunk is lost");
    assert_eq!(e.kind(), ErrorKind::TimedOut, "{e}");
    assert_eq!(dst[..200], src[..200], "the first two chunks have arrived");
    dst.fill(1);
    let in_use = || pool.classes().next().expect("a size").in_use;
    assert!(in_use() >= 1, "the device may still write to the buffer");
    // The other buffers have returned to the pool, and the queue still works.
    queue.copy_bytes(&pool, &src, &mut dst).expect("no other operation is lost");
    assert_eq!((dst, in_use()), (src, 1));
    let _ = queue.close(Duration::ZERO);
}

#[test]
fn a_failure_of_the_device_is_the_copys() {
    let engine = Faulty::new(doc_engine(), Fault::ThirdFails);
    let pool = pool(&engine, 200, 20);
    on_both(&engine, &QueueOptions::new(), |copy| {
        let e = copy(&pool, &sample(1000), &mut [0; 1000]).expect_err("the third chunk fails");
        assert_eq!(e.kind(), ErrorKind::DeviceFault, "{e}");
    });
}

/// The caller cannot drop its buffers before the copy returns.
#[test]
fn a_caller_that_holds_all_buffers_copies_through_memory_of_the_pool() {
    let engine = doc_engine();
    let options = QueueOptions::new().with_stall_timeout(Duration::from_secs(60));
    // 65 is odd, and 100,000 is longer than the memory that the pool keeps.
    for len in [2, 65, 100_000] {
        let pool = pool(&engine, len, 1);
        let held = pool.try_get(len).expect("a buffer");
        on_both(&engine, &options, |copy| {
            let (src, mut dst) = (sample(len + 200), vec![0; len + 200]);
            copy(&pool, &src, &mut dst).expect("it is copied");
            assert_eq!(dst, src);
            assert_eq!(pool.try_get(len).expect_err("all are in use").kind(), ErrorKind::OutOfResources);
        });
        drop(held);
        assert_eq!(pool.classes().next().expect("a size").in_use, 0);
    }
}

#[test]
fn copies_that_find_all_buffers_in_use_wait_for_each_other() {
    let engine = doc_engine();
    let pool = pool(&engine, 64, 1);
    let _held = pool.try_get(64).expect("a buffer");
    let (engine, pool) = (&engine, &pool);
    std::thread::scope(|scope| {
        let copy = move || {
            let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
            let (src, mut dst) = (sample(10_000), vec![0; 10_000]);
            queue.copy_bytes(pool, &src, &mut dst).expect("it is copied");
            assert_eq!(dst, src);
        };
        let threads = [scope.spawn(copy), scope.spawn(copy), scope.spawn(copy)];
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn memory_that_the_device_keeps_is_waited_for() {
    let engine = Faulty::new(doc_engine(), Fault::ThirdIsLost);
    let pool = pool(&engine, 64, 1);
    let held = pool.try_get(64).expect("a buffer");
    let options = QueueOptions::new().with_stall_timeout(Duration::from_millis(20));
    let queue = engine.open_queue(&options).expect("a queue");
    let mut dst = [0; 96];
    let e = queue.copy_bytes(&pool, &[1; 96], &mut dst).expect_err("the third chunk is lost");
    assert_eq!(e.kind(), ErrorKind::TimedOut, "{e}");
    let e = queue.copy_bytes(&pool, &[1; 96], &mut dst).expect_err("the device has the memory");
    assert_eq!(e.kind(), ErrorKind::TimedOut, "{e}");
    assert!(e.message().contains("holds the memory"), "{e}");
    drop(held);
    queue.copy_bytes(&pool, &[1; 96], &mut dst).expect("a buffer is free");
    let _ = queue.close(Duration::ZERO);
}

#[test]
fn slots_that_others_have_are_waited_for() {
    let engine = doc_engine();
    let pool = &pool(&engine, 64, 1);
    // The caller's own transfer never ends, because the caller does not poll during this call.
    let queue = engine.open_queue(&QueueOptions::new().with_depth(1)).expect("a queue");
    let other = || engine.allocate(10).expect("memory");
    let mut ended = queue.copy(other(), other()).expect("accepted");
    ended.wait_for(Duration::from_secs(60)).expect("done");
    let e = queue.copy_bytes(pool, &[1; 10], &mut [0; 10]).expect_err("no place");
    assert_eq!(e.kind(), ErrorKind::QueueFull, "{e}");
    // The slot of a dropped transfer becomes free.
    drop(ended);
    drop(queue.copy(other(), other()).expect("accepted"));
    queue.copy_bytes(pool, &[1; 10], &mut [0; 10]).expect("it is copied");
}
