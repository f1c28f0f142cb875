//! Tests of the set in all orders of the steps of its threads.

use super::*;
use loom::sync::Arc;

/// Releases a block in the same way as the pool.
fn give_back(set: &FreeSet, block: u32) -> bool {
    let (word, bit) = set.place(block);
    if give(word, bit) {
        return true;
    }
    match set.give_with_lock(block) {
        Released::Kept(waker) => {
            waker.into_iter().for_each(Waker::wake);
            true
        }
        Released::Closed => false,
    }
}

async fn get(set: &FreeSet) -> u32 {
    let mut task = None;
    std::future::poll_fn(|context| set.poll_take(&mut task, context.waker())).await
}

/// Several threads use one block. No thread waits forever.
#[test]
fn loom_no_wake_up_is_lost() {
    loom::model(|| {
        let set = FreeSet::new(1);
        assert!(give_back(&set, set.number(0)));
        let set = Arc::new(set);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let set = Arc::clone(&set);
                loom::thread::spawn(move || {
                    let block = loom::future::block_on(get(&set));
                    assert_eq!(set.take(), None, "two threads have the same block");
                    assert!(give_back(&set, block));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!((set.free(), set.waits().tasks), (1, 0));
    });
}

/// A task that leaves passes its block to the next task.
#[test]
fn loom_a_task_that_leaves_keeps_no_block() {
    loom::model(|| {
        let set = FreeSet::new(1);
        let block = set.number(0);
        let set = Arc::new(set);
        let mut task = None;
        assert!(set.poll_take(&mut task, Waker::noop()).is_pending());
        let giver = {
            let set = Arc::clone(&set);
            loom::thread::spawn(move || assert!(give_back(&set, block)))
        };
        if let Some(block) = set.leave(task.expect("it waits")) {
            assert!(give_back(&set, block));
        }
        giver.join().expect("no panic");
        assert_eq!((set.free(), set.waits().tasks), (1, 0));
    });
}

/// Makes a set with one free block, whose first two threads have caches. The first thread's cache is open
/// and has the block.
fn set_with_a_cached_block() -> Arc<FreeSet> {
    let set = FreeSet::with_caches(1, ThreadCaches::with_threads(2));
    let block = set.number(0);
    assert!(give_back(&set, block));
    assert_eq!(set.take_as(0), Some(block));
    assert!(give_to_cache(set.caches.of(0), block), "the cache is open");
    Arc::new(set)
}

/// Takes the block and releases it, as the thread with this number. Returns whether the block was free.
fn use_once(set: &FreeSet, thread: usize) -> bool {
    let Some(block) = set.take_as(thread) else { return false };
    assert_eq!(set.free(), 0, "two threads have the same block");
    if !give_to_cache(set.caches.of(thread), block) {
        assert!(give_back(set, block));
    }
    true
}

/// A recall and the owner of a cache neither lose nor duplicate a block.
#[test]
fn loom_a_recall_takes_each_block_once() {
    loom::model(|| {
        let set = set_with_a_cached_block();
        let owner = {
            let set = Arc::clone(&set);
            loom::thread::spawn(move || use_once(&set, 0))
        };
        let used = use_once(&set, 1);
        assert!(owner.join().expect("no panic") || used, "the block was free for one of them");
        assert_eq!(set.free(), 1);
    });
}

/// A task is woken by a block that is released to a cache.
#[test]
fn loom_a_waiting_task_gets_a_cached_block() {
    loom::model(|| {
        let set = set_with_a_cached_block();
        let owner = {
            let set = Arc::clone(&set);
            loom::thread::spawn(move || use_once(&set, 0))
        };
        let block = loom::future::block_on(get(&set));
        assert!(give_back(&set, block));
        owner.join().expect("no panic");
        assert_eq!((set.free(), set.waits().tasks), (1, 0));
    });
}

/// Closing the set returns a block that its owner is using or has in its cache.
#[test]
fn loom_closing_finds_a_cached_block() {
    loom::model(|| {
        let set = set_with_a_cached_block();
        let block = set.take_as(0).expect("it is in the cache");
        let owner = {
            let set = Arc::clone(&set);
            loom::thread::spawn(move || give_to_cache(set.caches.of(0), block) || give_back(&set, block))
        };
        let closed = set.close().len();
        assert_eq!(closed, usize::from(owner.join().expect("no panic")));
    });
}

/// A block that is released while the set closes is returned by either the release or the close, and not
/// by both.
#[test]
fn loom_closing_loses_no_block() {
    loom::model(|| {
        let set = FreeSet::new(1);
        let block = set.number(0);
        let set = Arc::new(set);
        let giver = {
            let set = Arc::clone(&set);
            loom::thread::spawn(move || give_back(&set, block))
        };
        let closed = set.close().len();
        let kept = giver.join().expect("no panic");
        assert_eq!(closed, usize::from(kept));
    });
}
