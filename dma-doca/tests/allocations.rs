//! After warm-up, copies do not allocate memory, neither in this crate nor in the stand-in, which is linked
//! into the test.

#[path = "support/calls.rs"]
mod calls;

use dma_core::{BufferMut, DmaEngineExt, Queue, QueueOptions};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Returns the number of allocations in 1,000 rounds, after 1,000 rounds of warm-up.
fn counted(mut round: impl FnMut()) -> u64 {
    (0..1000).for_each(|_| round());
    let before = counting::of_thread();
    (0..1000).for_each(|_| round());
    counting::of_thread() - before
}

fn rig(config: &str) -> (Queue, BufferMut, BufferMut) {
    let engine = calls::engine(config);
    let queue = engine.open_queue(&QueueOptions::new().with_depth(32)).unwrap();
    (queue, engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap())
}

#[test]
fn copies_allocate_nothing() {
    let (queue, src, dst) = rig("");
    let mut pair = Some((src, dst));
    let allocated = counted(|| {
        let (src, dst) = pair.take().unwrap();
        pair = Some(queue.copy(src, dst).unwrap().wait().unwrap());
    });
    assert_eq!(allocated, 0);
}

#[test]
fn copies_between_changing_regions_allocate_nothing() {
    let engine = calls::engine("");
    let queue = engine.open_queue(&QueueOptions::new().with_depth(4)).unwrap();
    let mut buffers: Vec<_> = (0..6).map(|_| Some(engine.allocate(100).unwrap())).collect();
    let mut n = 0;
    let allocated = counted(|| {
        let (i, j) = (n % 6, (n * 5 + 1) % 6);
        n += 1;
        if i == j {
            return;
        }
        let (src, dst) = (buffers[i].take().unwrap(), buffers[j].take().unwrap());
        let (src, dst) = queue.copy(src, dst).unwrap().wait().unwrap();
        (buffers[i], buffers[j]) = (Some(src), Some(dst));
    });
    assert_eq!(allocated, 0);
}

#[test]
fn lists_allocate_nothing() {
    let (queue, src, mut dst) = rig("max_list_len = 4\n");
    let tail = dst.split_off(1000);
    let mut lists = Some((vec![src], vec![dst, tail]));
    let allocated = counted(|| {
        let (src, dst) = lists.take().unwrap();
        lists = Some(queue.copy(src, dst).unwrap().wait().unwrap());
    });
    assert_eq!(allocated, 0);
}
