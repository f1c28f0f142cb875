//! Tests of a copy that is waited for while no other operation of the lane is open.

use super::*;
use crate::memory::operand::sealed::Operand;

/// Memory for copies that are submitted to the lane directly.
struct Memory(BufferMut, BufferMut);

impl Memory {
    fn new(rig: &Rig) -> Self {
        let memory = || rig.engine.allocate(32).expect("memory");
        let (mut src, dst) = (memory(), memory());
        src.fill(7);
        Self(src, dst)
    }

    /// Submits a copy as the clone of the queue with this id. Returns its slot.
    fn submit(&self, lane: &Lane, submitter_id: usize) -> u32 {
        let (src, dst) = (self.0.single().segment(), self.1.single().segment());
        lane.submit_flat(submitter_id, src, dst).expect("room")
    }
}

/// Returns the counters without the number of polls.
fn counts(rig: &Rig) -> [u64; 8] {
    let c = rig.queue.counters();
    [c.submitted, c.completed, c.failed, c.aborted, c.in_flight, c.bytes, c.descriptors, c.doorbells]
}

#[test]
fn a_copy_alone_completes_in_one_poll() {
    let rig = Rig::still();
    let (lane, memory) = (rig.lane(), Memory::new(&rig));
    for copies in 1..40 {
        let slot = memory.submit(lane, 0);
        assert!(lane.complete_alone(0, slot));
        assert_eq!(lane.slots[slot as usize].look(), Seen::Done);
        lane.release(slot);
        assert_eq!(counts(&rig), [copies, copies, 0, 0, 0, 32 * copies, copies, copies]);
        assert_eq!(rig.queue.counters().polls, copies);
        assert_eq!(lane.reports(), copies, "otherwise the device would count as stalled");
    }
    assert_eq!(memory.1[..], [7; 32]);
    assert_eq!(rig.queue.available(), 64);
}

#[test]
fn a_copy_alone_ends_as_any_other() {
    let rig = Rig::still();
    let wait = || rig.copy(|| ()).wait().err().map(|e| (e.kind(), e.into_operands().is_some()));
    assert_eq!(wait(), None);
    rig.script.fails.store(true, SeqCst);
    assert_eq!(wait(), Some((ErrorKind::DeviceFault, true)));
    assert_eq!(counts(&rig), [2, 1, 1, 0, 0, 32, 2, 2]);
    rig.script.fails.store(false, SeqCst);
    assert_eq!(wait(), None);
    rig.script.refuses.store(true, SeqCst);
    assert_eq!(wait(), Some((ErrorKind::OutOfRange, true)));
    assert_eq!(counts(&rig), [4, 2, 2, 0, 0, 64, 3, 3], "a refused copy needs no doorbell");
    rig.script.refuses.store(false, SeqCst);
    assert_eq!(wait(), None);
    assert_eq!((counts(&rig), rig.queue.available()), ([5, 3, 2, 0, 0, 96, 4, 4], 64));
}

/// A copy that a full device has not accepted, or that the device has not reported, continues.
#[test]
fn a_copy_alone_that_is_not_done_continues() {
    for is_full in [true, false] {
        let rig = Rig::still();
        let (lane, memory) = (rig.lane(), Memory::new(&rig));
        let fault = if is_full { &rig.script.is_full } else { &rig.script.mute };
        for copies in 1..4 {
            fault.store(true, SeqCst);
            let slot = memory.submit(lane, 0);
            assert!(!lane.complete_alone(0, slot));
            assert_eq!(rig.queue.counters().in_flight, 1);
            assert!(!lane.complete_alone(0, slot), "the request was taken already");
            let next = memory.submit(lane, 0);
            assert!(!lane.complete_alone(0, next), "another operation is open");
            fault.store(false, SeqCst);
            lane.drive(Caller::Waiter(0));
            for slot in [slot, next] {
                assert_eq!(lane.slots[slot as usize].look(), Seen::Done);
                lane.release(slot);
            }
            assert!(rig.copy(|| ()).wait().is_ok());
            assert_eq!(counts(&rig)[..6], [3 * copies, 3 * copies, 0, 0, 0, 96 * copies]);
        }
        assert_eq!(rig.queue.available(), 64);
    }
}

/// An operation with a request before it, with a waiter, or of another kind is left to the other path.
#[test]
fn only_a_copy_alone_takes_the_short_path() {
    let rig = Rig::still();
    let (lane, memory) = (rig.lane(), Memory::new(&rig));
    let [first, second] = [memory.submit(lane, 0), memory.submit(lane, 0)];
    assert!(!lane.complete_alone(0, second) && !lane.complete_alone(0, first));
    lane.drive(Caller::Waiter(0));
    for slot in [first, second] {
        assert_eq!(lane.slots[slot as usize].look(), Seen::Done);
        lane.release(slot);
    }
    let other = lane.submit(0, nothing).expect("room").expect("memory");
    assert!(!lane.complete_alone(0, other), "it is not a copy");
    lane.drive(Caller::Waiter(0));
    lane.release(other);
    let (woken, receiver) = signal();
    let awaited = memory.submit(lane, 0);
    assert!(lane.slots[awaited as usize].register_waker(&waker(woken)));
    assert!(!lane.complete_alone(0, awaited), "a task waits");
    lane.drive(Caller::Waiter(0));
    receiver.try_recv().expect("the task is woken");
    lane.release(awaited);
    assert!(!lane.complete_alone(0, u32::MAX), "the slot number of a spent transfer");
    assert_eq!((rig.queue.counters().completed, rig.queue.available()), (4, 64));
}

#[test]
fn a_copy_longer_than_a_descriptor_is_split() {
    let options = ReferenceOptions { max_transfer: 8, per_poll: 64, ..ReferenceOptions::default() };
    let rig = Rig::on(ReferenceEngine::new(options), |_| ());
    let memory = Memory::new(&rig);
    let slot = memory.submit(rig.lane(), 0);
    assert!(!rig.lane().complete_alone(0, slot));
    rig.lane().drive(Caller::Waiter(0));
    assert_eq!(rig.lane().slots[slot as usize].look(), Seen::Done);
    assert_eq!((rig.queue.counters().descriptors, &memory.1[..]), (4, &[7; 32][..]));
}

/// A thread that always waits for its own copies also serves the requests of other threads.
#[test]
fn copies_alone_leave_time_for_others() {
    let rig = Rig::still();
    let (lane, memory) = (rig.lane(), Memory::new(&rig));
    let theirs = memory.submit(lane, 1);
    let mut alone = 0;
    for _ in 0..100 {
        let own = memory.submit(lane, 0);
        if lane.complete_alone(0, own) {
            alone += 1;
        } else {
            lane.drive(Caller::Waiter(0));
        }
        assert_eq!(lane.slots[own as usize].look(), Seen::Done);
        lane.release(own);
    }
    assert_eq!(lane.slots[theirs as usize].look(), Seen::Done);
    assert_eq!(alone, 99, "one call serves all requests");
}

#[test]
fn a_panic_of_the_engine_abandons_a_copy_alone() {
    let rig = Rig::still();
    let (freed, receiver) = signal();
    let waited = rig.copy(freed);
    rig.script.panics.store(true, SeqCst);
    catch_unwind(AssertUnwindSafe(|| drop(waited.wait()))).expect_err("the engine panics");
    assert!(rig.lane().refuses());
    assert_eq!(rig.try_copy().expect_err("the lane refuses it").kind(), ErrorKind::Closed);
    rig.lane().drive(Caller::Closer);
    assert_eq!(rig.queue.close(HANGS).abandoned, 1);
    drop(rig);
    receiver.try_recv().expect_err("the device may still write to the memory");
}

/// Threads that wait for their own copies take them alone or for each other.
#[test]
fn threads_that_wait_complete_all_copies() {
    const COPIES: u64 = 500;
    let rig = Rig::new();
    std::thread::scope(|threads| {
        for byte in 0..3 {
            let (queue, engine) = (rig.queue.clone(), &rig.engine);
            threads.spawn(move || {
                let mut src = engine.allocate(32).expect("memory");
                let mut dst = engine.allocate(32).expect("memory");
                for _ in 0..COPIES {
                    src.fill(byte);
                    dst.fill(!byte);
                    (src, dst) = queue.copy(src, dst).expect("room").wait().expect("done");
                    assert_eq!(src[..], dst[..]);
                }
            });
        }
    });
    let counters = rig.queue.close(HANGS);
    assert_eq!((counters.completed, counters.in_flight, counters.full), (3 * COPIES, 0, 0));
}
