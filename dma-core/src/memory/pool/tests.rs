use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::slab::LINE;
use super::*;
use crate::reference::doc_engine;
use crate::{DmaEngineExt, QueueOptions, Retry};

fn pool(len: usize, count: usize) -> BufferPool {
    BufferPool::new(&doc_engine(), &PoolOptions::new().with_class(len, count)).expect("a pool")
}

fn in_use(pool: &BufferPool) -> usize {
    pool.classes().map(|class| class.in_use).sum()
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll(get: &mut PoolGet, count: &Arc<Count>) -> Poll<Result<BufferMut>> {
    Pin::new(get).poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
}

#[test]
fn buffers_are_copied_and_come_back() {
    let engine = doc_engine();
    let options = PoolOptions::new().with_class(5000, 3).with_class(100, 2).with_class(5000, 1);
    let pool = BufferPool::new(&engine, &options).expect("a pool");
    assert_eq!(
        pool.classes().map(|class| (class.len, class.count)).collect::<Vec<_>>(),
        [(100, 2), (5000, 4)]
    );
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    for round in 0..10 {
        let mut src = pool.try_get(101).expect("a buffer");
        assert_eq!((src.len(), src.offset(), in_use(&pool)), (101, 0, 1));
        src.fill(round);
        let (src, mut dst) =
            queue.copy(src, pool.try_get(101).expect("a buffer")).expect("accepted").wait().expect("done");
        assert_eq!(src[..], dst[..]);
        // Every view keeps the block in use.
        let tail = dst.split_off(50).freeze();
        let bytes: bytes::Bytes = tail.clone().into();
        drop((src, dst, tail));
        assert_eq!(in_use(&pool), 1);
        assert_eq!(bytes[..], [round; 51]);
        std::thread::spawn(move || drop(bytes)).join().expect("no panic");
        assert_eq!(in_use(&pool), 0);
    }
}

#[test]
fn views_of_a_block_know_whether_they_are_the_last() {
    let pool = pool(64, 1);
    let shared = pool.try_get(64).expect("a buffer").freeze();
    let other = shared.clone();
    let shared = shared.try_into_mut().expect_err("another view exists");
    drop(other);
    let (region, e) = shared.region().clone().deregister().expect_err("a view of the region exists");
    assert_eq!(e.kind(), ErrorKind::InUse);
    drop(region);
    let buffer = shared.try_into_mut().expect("the last");
    let region = buffer.region().clone();
    drop(buffer);
    assert_eq!(in_use(&pool), 1);
    assert!(region.deregister().expect("the region has no views").is_none());
    assert_eq!(in_use(&pool), 0);
}

#[test]
fn blocks_share_no_bytes() {
    let pool = pool(100, 200);
    let mut buffers: Vec<_> = (0..200).map(|_| pool.try_get(100).expect("a buffer")).collect();
    buffers.iter_mut().enumerate().for_each(|(i, buffer)| {
        assert!(buffer.iter().all(|byte| *byte == 0), "new buffers are zeroed");
        buffer.fill(i as u8);
    });
    for (i, buffer) in buffers.iter().enumerate() {
        assert!(buffer.iter().all(|byte| *byte == i as u8), "buffer {i}");
        assert!(buffer.as_ptr().addr().is_multiple_of(LINE));
    }
    let second = buffers.pop().expect("some");
    assert!(buffers.iter_mut().all(|first| first.0.region.0.info.addr != second.0.addr));
}

#[test]
fn requests_that_cannot_be_served_are_refused_with_a_remedy() {
    let engine = doc_engine();
    for options in [
        PoolOptions::new(),
        PoolOptions::new().with_class(0, 1),
        PoolOptions::new().with_class(1, 0),
        PoolOptions::new().with_class(usize::MAX, 1),
        PoolOptions::new().with_class(usize::MAX / 2, 3),
        PoolOptions::new().with_class(1, usize::MAX),
        PoolOptions::new().with_class(1, usize::MAX).with_class(1, 1),
    ] {
        let e = BufferPool::new(&engine, &options).expect_err("makes no sense");
        assert!(e.kind() == ErrorKind::InvalidArgument && !e.hint().is_empty(), "{options:?}: {e}");
    }
    let pool = pool(100, 2);
    let held = (pool.try_get(1).expect("one"), pool.try_get(100).expect("two"));
    let e = pool.try_get(100).expect_err("no third");
    assert_eq!(
        e.to_string(),
        "pool on reference: out of resources: all 2 buffers of 100 bytes are in use; drop buffers, await \
         `get`, or give the pool more buffers of this size"
    );
    assert_eq!(e.retry(), Retry::Later);
    assert_eq!(pool.classes().next().expect("a size").exhausted, 1);
    drop(held);
    assert_eq!(pool.try_get(101).expect_err("too long").kind(), ErrorKind::OutOfRange);
    assert!(pool.try_get(0).expect("a buffer of 0 bytes needs no block").is_empty());
}

#[test]
fn tasks_are_served_in_order() {
    let pool = pool(64, 1);
    let buffer = pool.try_get(64).expect("a buffer");
    let counts: [Arc<Count>; 3] = Default::default();
    let mut gets: Vec<_> = (0..3).map(|_| pool.get(64)).collect();
    for _ in 0..2 {
        for (get, count) in gets.iter_mut().zip(&counts) {
            assert!(poll(get, count).is_pending());
        }
    }
    assert_eq!(pool.classes().next().expect("a size").waiting, 3);
    drop(buffer);
    let woken = || counts.iter().map(|count| count.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
    assert_eq!(woken(), [1, 0, 0]);
    assert!(pool.try_get(64).is_err(), "the buffer belongs to the first task in the list");
    assert!(poll(&mut gets[1], &counts[1]).is_pending());
    // A task that is dropped passes its block to the next task.
    drop(gets.remove(0));
    assert_eq!(woken(), [1, 1, 0]);
    let Poll::Ready(Ok(buffer)) = poll(&mut gets[0], &counts[1]) else {
        panic!("the buffer was passed to the second task")
    };
    // A waiting task that is dropped leaves the list.
    drop(gets.remove(1));
    drop(buffer);
    assert_eq!((in_use(&pool), woken()), (0, vec![1, 1, 0]));
    assert!(
        matches!(poll(&mut pool.get(65), &counts[0]), Poll::Ready(Err(e)) if e.kind() == ErrorKind::OutOfRange)
    );
}

/// A waker that panics when it wakes its task, or when it is dropped.
struct Panics {
    on_wake: bool,
    on_drop: bool,
}

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        assert!(!self.on_wake, "a waker panics");
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        assert!(!self.on_drop, "the drop of a waker panics");
    }
}

/// Polls with a waker of which the wait list has the last clone.
fn poll_with(get: &mut PoolGet, panics: Panics) -> Poll<Result<BufferMut>> {
    let waker = Waker::from(Arc::new(panics));
    let polled = Pin::new(get).poll(&mut Context::from_waker(&waker));
    if polled.is_pending() {
        drop(waker);
    } else {
        std::mem::forget(waker);
    }
    polled
}

#[test]
fn panics_of_wakers_lose_no_buffer_and_reach_no_other_task() {
    let pool = pool(64, 1);
    let count = Arc::new(Count::default());
    // The drop of the waker of an earlier poll panics in the next poll, in the drop of the future, and where
    // the buffer already belongs to the task.
    let buffer = pool.try_get(64).expect("a buffer");
    let (mut first, mut second) = (pool.get(64), pool.get(64));
    assert!(poll_with(&mut first, Panics { on_wake: false, on_drop: true }).is_pending());
    assert!(poll(&mut first, &count).is_pending());
    assert!(poll_with(&mut second, Panics { on_wake: false, on_drop: true }).is_pending());
    drop(second);
    assert_eq!(pool.classes().next().expect("a size").waiting, 1);
    drop(buffer);
    let Poll::Ready(Ok(buffer)) = poll(&mut first, &count) else { panic!("the task has the buffer") };
    // The waker of a task panics when the buffer of another task is dropped.
    let mut third = pool.get(64);
    assert!(poll_with(&mut third, Panics { on_wake: true, on_drop: false }).is_pending());
    drop(buffer);
    let Poll::Ready(Ok(buffer)) = poll(&mut third, &count) else { panic!("the task has the buffer") };
    drop(buffer);
    assert_eq!((in_use(&pool), pool.classes().next().expect("a size").waiting), (0, 0));
}

#[test]
fn a_panic_of_a_waker_s_clone_keeps_the_task_in_the_list() {
    fn table() -> &'static std::task::RawWakerVTable {
        const fn nothing(_: *const ()) {}
        static TABLE: std::task::RawWakerVTable =
            std::task::RawWakerVTable::new(|_| panic!("a clone panics"), nothing, nothing, nothing);
        &TABLE
    }
    let pool = pool(64, 1);
    let buffer = pool.try_get(64).expect("a buffer");
    let mut get = pool.get(64);
    let count = Arc::new(Count::default());
    assert!(poll(&mut get, &count).is_pending());
    // SAFETY: the functions of the table do not use the data.
    let unclonable = unsafe { Waker::new(std::ptr::null(), table()) };
    let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Pin::new(&mut get).poll(&mut Context::from_waker(&unclonable)).is_pending()
    }));
    polled.expect_err("the clone panics");
    drop(buffer);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(matches!(poll(&mut get, &count), Poll::Ready(Ok(_))));
    assert_eq!((in_use(&pool), pool.classes().next().expect("a size").waiting), (0, 0));
}

#[test]
fn a_thread_waits_for_a_buffer_up_to_its_time_limit() {
    let pool = pool(64, 1);
    let held = pool.get_timeout(64, Duration::ZERO).expect("one is free");
    let e = pool.get_timeout(64, Duration::from_millis(1)).expect_err("none comes back");
    assert_eq!(
        e.to_string(),
        "pool on reference: timed out: the only buffer of 64 bytes was in use for 1ms; drop buffers, poll the \
         queues that use buffers, or give the pool more buffers of this size; a device that has stalled keeps \
         the buffers of its operations, so look at `stalled` of the queues"
    );
    assert_eq!(pool.get_timeout(65, Duration::MAX).expect_err("too long").kind(), ErrorKind::OutOfRange);
    assert_eq!(pool.classes().next().expect("a size").waiting, 0, "a waiter that gave up is not counted");
    let waiter = {
        let pool = pool.clone();
        std::thread::spawn(move || pool.get_timeout(64, Duration::MAX).expect("it comes back").len())
    };
    while pool.classes().next().expect("a size").waiting == 0 {
        std::thread::yield_now();
    }
    drop(held);
    assert_eq!(waiter.join().expect("no panic"), 64);
    assert_eq!(in_use(&pool), 0);
}

#[test]
fn a_pool_grows_to_its_maximum_and_no_further() {
    let engine = std::sync::Arc::new(doc_engine());
    let options = PoolOptions::new().with_growing_class(64, 2, 5).with_class(128, 1);
    let e = BufferPool::new(&engine, &options).expect_err("it cannot grow");
    assert!(e.kind() == ErrorKind::InvalidArgument && e.hint().contains("`growing`"), "{e}");
    let shrinks = PoolOptions::new().with_growing_class(64, 2, 1);
    let e = BufferPool::growing(Arc::clone(&engine), &shrinks).expect_err("1 is below 2");
    assert!(e.kind() == ErrorKind::InvalidArgument && !e.hint().is_empty(), "{e}");

    let pool = BufferPool::growing(engine, &options).expect("a pool");
    let state = |pool: &BufferPool| pool.classes().next().expect("a size");
    assert_eq!((state(&pool).count, state(&pool).max, state(&pool).grown), (2, 5, 0));
    let mut held: Vec<_> = (0..5).map(|_| pool.try_get(64).expect("a buffer")).collect();
    assert_eq!((state(&pool).count, state(&pool).grown, state(&pool).exhausted), (5, 3, 2));
    for (i, buffer) in held.iter_mut().enumerate() {
        assert_eq!(buffer[..], [0; 64]);
        buffer.fill(i as u8 + 1);
    }
    assert!(
        held.iter().enumerate().all(|(i, buffer)| buffer[..] == [i as u8 + 1; 64]),
        "the buffers do not overlap"
    );
    assert_eq!(pool.try_get(64).expect_err("the maximum").kind(), ErrorKind::OutOfResources);
    let count = Arc::new(Count::default());
    let mut get = pool.get(64);
    assert!(poll(&mut get, &count).is_pending());
    assert_eq!((state(&pool).in_use, state(&pool).waiting, state(&pool).exhausted), (5, 1, 4));
    held.truncate(3);
    assert!(matches!(poll(&mut get, &count), Poll::Ready(Ok(_))));
    drop(held);
    assert_eq!(state(&pool).in_use, 0);
    let mut get = pool.get(128);
    let first = poll(&mut get, &count);
    assert!(matches!(first, Poll::Ready(Ok(_))));
    assert!(pool.try_get(128).is_err(), "this size does not grow");
}

#[test]
fn a_task_that_waits_is_served_by_growth_of_another_request() {
    let options = PoolOptions::new().with_growing_class(64, 1, 3);
    let pool = BufferPool::growing(doc_engine(), &options).expect("a pool");
    let counts: [Arc<Count>; 4] = Default::default();
    let mut gets: Vec<_> = (0..4).map(|_| pool.get(64)).collect();
    let ready: Vec<_> = gets
        .iter_mut()
        .zip(&counts)
        .filter_map(|(get, count)| match poll(get, count) {
            Poll::Ready(buffer) => Some(buffer.expect("a buffer")),
            Poll::Pending => None,
        })
        .collect();
    assert_eq!(ready.len(), 3);
    drop(ready);
    assert!(matches!(poll(&mut gets[3], &counts[3]), Poll::Ready(Ok(_))));
}

#[test]
fn an_exhausted_pool_says_who_holds_what() {
    let label = "explained";
    let options = PoolOptions::new().with_class(64, 3).with_class(128, 1).with_label(label);
    let pool = BufferPool::new(&doc_engine(), &options).expect("a pool");
    let plain = pool.try_get(64).expect("a buffer");
    assert_eq!(
        pool.explain(),
        "pool explained on reference\n  64 bytes: 1 of 3 in use, 0 wait\n    held by no name (see `held_by`): 1\n  128 bytes: 0 of 1 in use, 0 wait"
    );
    let (reader, writer) = (pool.held_by("reader"), pool.held_by("writer"));
    let held = (reader.try_get(64).expect("a buffer"), writer.try_get(64).expect("a buffer"));
    let mut get = pool.held_by("reader").get(64);
    assert!(poll(&mut get, &Arc::default()).is_pending());
    let text = pool.explain();
    for part in ["64 bytes: 3 of 3 in use, 1 waits, the first for ", "held by reader: 1", "held by writer: 1"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("1 request found no free buffer"), "{text}");
    drop(held);
    let Poll::Ready(Ok(buffer)) = poll(&mut get, &Arc::default()) else { panic!("one is free") };
    let text = pool.explain();
    assert!(text.contains("held by reader: 1") && !text.contains("writer"), "{text}");
    drop((buffer, plain));
    // A buffer that is taken again without a name no longer has a holder.
    let all: Vec<_> = (0..3).map(|_| pool.try_get(64).expect("a buffer")).collect();
    assert!(!pool.explain().contains("reader"), "{}", pool.explain());
    drop(all);
}

/// Locked while a test lists all pools, which keeps them alive for a moment.
static LISTING: Mutex<()> = Mutex::new(());

#[test]
fn a_long_wait_is_seen_and_warned_of() {
    let _listing = LISTING.lock();
    let label = "watched";
    let options =
        PoolOptions::new().with_class(64, 1).with_label(label).with_wait_warning(Duration::from_millis(1));
    let pool = BufferPool::new(&doc_engine(), &options).expect("a pool");
    let report = || pools().into_iter().find(|pool| pool.label == label).expect("it is listed");
    let held = pool.try_get(64).expect("a buffer");
    assert_eq!(report().warnings, 0);
    let mut get = pool.get(64);
    assert!(poll(&mut get, &Arc::default()).is_pending());
    while report().warnings == 0 {
        std::thread::yield_now();
    }
    let class = report().classes[0];
    assert!(class.current_wait >= Duration::from_millis(1), "{class:?}");
    assert_eq!((class.waiting, class.in_use, class.exhausted), (1, 1, 1));
    drop(held);
    assert!(matches!(poll(&mut get, &Arc::default()), Poll::Ready(Ok(_))));
    let class = report().classes[0];
    assert_eq!((class.waiting, class.current_wait), (0, Duration::ZERO));
    assert!(class.longest_wait >= Duration::from_millis(1), "{class:?}");
    drop((pool, get));
    // Wait, because the watch thread may keep the pool alive for a moment.
    while pools().iter().any(|pool| pool.label == label) {
        std::thread::yield_now();
    }
}

#[test]
fn a_pool_may_go_before_its_buffers() {
    let _listing = LISTING.lock();
    let pool = pool(64, 70);
    let class = Arc::clone(&pool.inner.classes[0]);
    let mut held: Vec<_> = (0..3).map(|_| pool.try_get(64).expect("a buffer")).collect();
    drop(pool);
    // Each block that has not been freed keeps a reference to its class.
    assert_eq!(Arc::strong_count(&class), 1 + 3);
    let last = held.pop();
    drop(held);
    assert_eq!(Arc::strong_count(&class), 1 + 1);
    let mut last = last.expect("held");
    last.fill(3);
    assert_eq!(last[..], [3; 64]);
    drop(last);
    assert_eq!(Arc::strong_count(&class), 1);
}

/// Several threads take and return buffers, with and without waiting. Two threads never have the same buffer.
#[test]
fn threads_share_a_pool() {
    share(&pool(64, 5));
    let options = PoolOptions::new().with_growing_class(64, 1, 5);
    share(&BufferPool::growing(doc_engine(), &options).expect("a pool"));
}

fn share(pool: &BufferPool) {
    std::thread::scope(|scope| {
        for thread in 1..=4_u8 {
            let pool = pool.clone();
            scope.spawn(move || {
                let mut held = std::collections::VecDeque::new();
                for i in 0..2000_u32 {
                    if let Ok(mut buffer) = pool.try_get(64) {
                        buffer.fill(thread);
                        held.push_back(buffer);
                    }
                    if held.is_empty() {
                        let mut get = pool.get(64);
                        let parked = Waker::from(Arc::new(Unpark(std::thread::current())));
                        let mut buffer = loop {
                            match Pin::new(&mut get).poll(&mut Context::from_waker(&parked)) {
                                Poll::Ready(buffer) => break buffer.expect("a buffer"),
                                Poll::Pending => std::thread::park(),
                            }
                        };
                        buffer.fill(thread);
                        held.push_back(buffer);
                    }
                    if held.len() > 1 + (i % 3) as usize || i % 7 == u32::from(thread) {
                        let buffer = held.pop_front().expect("at least one");
                        assert_eq!(buffer[..], [thread; 64], "another user has written to the buffer");
                    }
                }
            });
        }
    });
    let class = pool.classes().next().expect("a size");
    assert_eq!((class.in_use, class.waiting), (0, 0));
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_forked_process_gets_no_buffers() {
    let pool = pool(64, 2);
    let held = pool.try_get(64).expect("a buffer");
    // SAFETY: the child calls only pool methods that are permitted in a forked process, and exits without
    // running destructors.
    match unsafe { libc::fork() } {
        -1 => panic!("no fork: {}", std::io::Error::last_os_error()),
        0 => {
            let refused = matches!(pool.try_get(64), Err(e) if e.kind() == ErrorKind::Unsupported);
            drop(held);
            let kept = in_use(&pool) == 1;
            // SAFETY: `_exit` only ends the process.
            unsafe { libc::_exit(if refused && kept { 0 } else { 1 }) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the status is a local variable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child took a buffer, returned a buffer, or was killed");
        }
    }
    drop(held);
    assert_eq!(in_use(&pool), 0);
    assert!(pool.try_get(64).is_ok());
}
