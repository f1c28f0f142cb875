//! Tests that a panic during submission leaves no part of the operation in the queue, because the panic drops
//! the operands.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::memory::operand::sealed::Operand;
use crate::memory::range::Range;
use crate::reference::{ReferenceEngine, ReferenceOptions};
use crate::{
    Batch, Destination, DmaEngineExt, MemoryRequest, Queue, QueueOptions, SharedQueue, SharedQueueOptions,
    Source, Window,
};

thread_local! {
    /// Number of accesses until an operand panics, plus 1; 0 for no panic.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

fn look() {
    LOOKS.set(LOOKS.get().saturating_sub(1));
    assert!(LOOKS.get() != 1, "this access panics");
}

/// A window that panics when it is accessed.
#[derive(Clone)]
struct Bomb<const SINGLE: bool>(Window);

impl<const SINGLE: bool> Operand for Bomb<SINGLE> {
    const SINGLE: bool = SINGLE;
    const UNIQUE: bool = false;
    fn each(&self, f: &mut dyn FnMut(&Range)) {
        look();
        f(&self.0.0);
    }
    fn single(&self) -> &Range {
        look();
        &self.0.0
    }
}
impl<const SINGLE: bool> Source for Bomb<SINGLE> {}
impl<const SINGLE: bool> Destination for Bomb<SINGLE> {}

/// Number of copies in a batch.
const COPIES: usize = 5;
const LEN: usize = 100;

/// Makes an engine, and windows for the sources and the destinations of the copies.
fn memory(max_transfer: u64) -> (ReferenceEngine, Window, Window) {
    let engine = ReferenceEngine::new(ReferenceOptions { max_transfer, ..ReferenceOptions::default() });
    let window = || engine.allocate_window(&MemoryRequest::new(COPIES * LEN)).expect("memory");
    let (src, dst) = (window(), window());
    src.write_at(0, &[1; COPIES * LEN]).expect("writable");
    (engine, src, dst)
}

fn batch<const SINGLE: bool>(src: &Window, dst: &Window) -> Batch<Bomb<SINGLE>, Bomb<SINGLE>> {
    let part = |window: &Window, i: usize| Bomb(window.slice(i * LEN..(i + 1) * LEN));
    (0..COPIES).map(|i| (part(src, i), part(dst, i))).collect()
}

/// Submits repeatedly. The first submission panics at the first access to an operand, the second one at the
/// second access, and so on, until a submission does not panic. Calls `check` after each panic. Returns the
/// number of accesses.
fn panic_at_each_look(submit: impl Fn() -> bool, check: impl Fn()) -> u32 {
    for nth in 1.. {
        LOOKS.set(nth + 1);
        let submitted = catch_unwind(AssertUnwindSafe(&submit));
        let left = LOOKS.replace(0);
        match submitted {
            Err(_) => check(),
            Ok(submitted) => {
                assert!(
                    submitted && left > 1,
                    "the submission makes fewer than {nth} accesses, so it succeeds"
                );
                return nth - 1;
            }
        }
    }
    unreachable!()
}

fn is_untouched(dst: &Window) -> bool {
    let mut bytes = [2; COPIES * LEN];
    dst.read_at(0, &mut bytes).expect("readable");
    bytes == [0; COPIES * LEN]
}

/// Checks that a batch that panics at any access is not copied, in part or as a whole.
fn leaves_nothing<const SINGLE: bool>(max_transfer: u64, fence: bool, least: u32) {
    let (engine, src, dst) = memory(max_transfer);
    let queue: Queue = engine.open_queue(&QueueOptions::new().with_depth(64)).expect("a queue");
    if fence {
        queue.fence();
    }
    let submit = || match queue.submit(batch::<SINGLE>(&src, &dst)) {
        Ok(transfer) => transfer.wait().is_ok(),
        Err(_) => false,
    };
    let room = queue.available();
    let looks = panic_at_each_look(submit, || {
        queue.flush();
        while queue.poll() > 0 {}
        assert!(is_untouched(&dst), "the device executed copies of a batch whose operands were dropped");
        let counters = queue.counters();
        assert_eq!(
            (queue.available(), counters.submitted, counters.descriptors),
            (room, 0, 0),
            "{counters:?}"
        );
    });
    assert!(looks >= least, "{looks} looks");
    assert!(!is_untouched(&dst), "the batch that did not panic was copied");
    assert_eq!(queue.counters().completed, COPIES as u64);
}

#[test]
fn a_batch_that_panics_leaves_no_descriptor() {
    // Submitting a plain batch accesses each operand once.
    leaves_nothing::<true>(1 << 20, false, 10);
    // Submitting any other batch accesses the operands twice, because the batch is checked first.
    leaves_nothing::<true>(1 << 20, true, 20);
    leaves_nothing::<true>(30, false, 22);
    leaves_nothing::<false>(1 << 20, false, 20);
    leaves_nothing::<false>(30, true, 20);
}

#[test]
fn a_shared_batch_that_panics_leaves_no_descriptor() {
    let (engine, src, dst) = memory(30);
    let options = SharedQueueOptions::new().with_queue(QueueOptions::new().with_depth(4));
    let queue: SharedQueue = engine.open_shared_queue(&options).expect("a queue");
    let submit = || match queue.submit(batch::<false>(&src, &dst)) {
        Ok(transfer) => transfer.wait().is_ok(),
        Err(_) => false,
    };
    let looks = panic_at_each_look(submit, || {
        assert!(is_untouched(&dst));
        let counters = queue.counters();
        assert_eq!((queue.available(), counters.submitted, counters.descriptors), (4, 0, 0), "{counters:?}");
    });
    assert!(looks >= 20, "{looks} looks");
    assert!(!is_untouched(&dst), "the batch that did not panic was copied");
}
