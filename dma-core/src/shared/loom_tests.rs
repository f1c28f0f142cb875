//! Tests of all interleavings of two threads: a lane that completes an operation, and a holder that waits
//! for, drops or awaits the transfer.
//!
//! Run the tests with `RUSTFLAGS="--cfg loom" cargo test -p dma-core --release --lib loom`.
#![expect(unsafe_code, reason = "follows the slots' protocol")]

use loom::sync::Arc;
use loom::thread;

use super::deferred_callbacks::DeferredCallback;
use super::inbox::{FreeSlots, Inbox, Links};
use super::slot::{Report, Seen, Slot};
use super::wait_queue::WaitQueue;

/// Operands that count their drops.
struct Operands(Drops);

/// Use an atomic of the standard library, because loom would report operands that are leaked on purpose.
type Drops = std::sync::Arc<std::sync::atomic::AtomicUsize>;

impl Drop for Operands {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

/// A slot, and the memory that the "device" writes. The write must end before the operands are freed or read.
struct Shared {
    slot: Slot,
    memory: loom::cell::UnsafeCell<u32>,
}

// SAFETY: loom checks that accesses to the cell do not conflict.
unsafe impl Sync for Shared {}
// SAFETY: loom checks that accesses to the cell do not conflict.
unsafe impl Send for Shared {}

fn start(complete: impl FnOnce(&Slot) -> bool + Send + 'static) -> (Arc<Shared>, thread::JoinHandle<bool>) {
    let shared = Arc::new(Shared { slot: Slot::new(), memory: loom::cell::UnsafeCell::new(0) });
    // SAFETY: no other thread has the slot yet.
    unsafe {
        shared.slot.submit(|request| {
            request.operations = 1;
            Ok(())
        })
    }
    .unwrap();
    let lane = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        // SAFETY: the thread was started after `submit`, so the lane owns the request.
        let operations = unsafe { lane.slot.request(|request| request.operations) };
        assert_eq!(operations, 1);
        // SAFETY: the operation has not completed, so only the device accesses the memory.
        lane.memory.with_mut(|memory| unsafe { *memory = 7 });
        complete(&lane.slot)
    });
    (shared, thread)
}

fn done(slot: &Slot) -> bool {
    // SAFETY: only the lane completes the slot, and it does so once.
    run(unsafe { slot.complete(None) })
}

/// Runs the callback, as the lane does after it has released the lock. Returns whether operands were dropped.
fn run(after: Option<DeferredCallback>) -> bool {
    match after {
        Some(DeferredCallback::Wake(waker)) => waker.wake(),
        Some(DeferredCallback::Drop(operands)) => {
            drop(operands);
            return true;
        }
        Some(DeferredCallback::Emit(..)) | None => {}
    }
    false
}

#[test]
fn a_holder_that_sees_done_sees_the_bytes() {
    loom::model(|| {
        let (shared, lane) = start(done);
        while shared.slot.look() == Seen::InFlight {
            thread::yield_now();
        }
        assert_eq!(shared.slot.look(), Seen::Done);
        // SAFETY: the operation has completed, so the device no longer accesses the memory.
        shared.memory.with(|memory| assert_eq!(unsafe { *memory }, 7));
        assert!(!lane.join().unwrap(), "the lane dropped operands, but none are parked");
    });
}

#[test]
fn a_report_arrives_whole() {
    loom::model(|| {
        let (shared, lane) = start(|slot| {
            // SAFETY: only the lane completes the slot, and it does so once.
            run(unsafe { slot.complete(Some(Report::Closed)) })
        });
        while shared.slot.look() == Seen::InFlight {
            thread::yield_now();
        }
        assert_eq!(shared.slot.look(), Seen::Reported);
        // SAFETY: this thread holds the operation and has seen `Reported`.
        assert!(matches!(unsafe { shared.slot.take_report() }, Some(Report::Closed)));
        lane.join().unwrap();
    });
}

#[test]
fn a_holder_that_drops_has_its_operands_freed_once_and_not_before() {
    loom::model(|| {
        let (shared, lane) = start(done);
        let drops = Drops::default();
        let operands = Box::new(Operands(Drops::clone(&drops)));
        // SAFETY: this thread is the holder of the operation in flight.
        let parked = unsafe { shared.slot.park(operands) };
        let came_back = parked.is_err();
        if let Err(operands) = parked {
            assert_eq!(shared.slot.look(), Seen::Done, "parking failed, so the operation is done");
            // SAFETY: the operation has completed, so the device no longer accesses the memory.
            shared.memory.with(|memory| assert_eq!(unsafe { *memory }, 7));
            drop(operands);
        }
        let freed_by_lane = lane.join().unwrap();
        assert_ne!(came_back, freed_by_lane, "either the holder or the lane frees the operands");
        assert_eq!(drops.load(std::sync::atomic::Ordering::SeqCst), 1);
    });
}

#[test]
fn abandoned_operands_are_never_freed() {
    loom::model(|| {
        let (shared, lane) = start(|slot| {
            // SAFETY: the lane abandons the slot once, and never completes it.
            run(unsafe { slot.abandon() })
        });
        let drops = Drops::default();
        // SAFETY: this thread is the holder of the operation in flight.
        let parked = unsafe { shared.slot.park(Box::new(Operands(Drops::clone(&drops)))) };
        if let Err(operands) = parked {
            assert_eq!(shared.slot.look(), Seen::Abandoned);
            std::mem::forget(operands);
        }
        lane.join().unwrap();
        assert_eq!(drops.load(std::sync::atomic::Ordering::SeqCst), 0);
    });
}

#[test]
fn an_awaiting_holder_is_woken() {
    loom::model(|| {
        let (shared, lane) = start(done);
        loom::future::block_on(std::future::poll_fn(|context| {
            if shared.slot.look() == Seen::InFlight && shared.slot.register_waker(context.waker()) {
                return std::task::Poll::Pending;
            }
            assert_eq!(shared.slot.look(), Seen::Done);
            std::task::Poll::Ready(())
        }));
        lane.join().unwrap();
    });
}

#[test]
fn an_awaiting_holder_may_drop() {
    loom::model(|| {
        let (shared, lane) = start(done);
        let drops = Drops::default();
        let attending = shared.slot.register_waker(std::task::Waker::noop());
        // SAFETY: this thread is the holder of the operation in flight.
        let parked = unsafe { shared.slot.park(Box::new(Operands(Drops::clone(&drops)))) };
        if let Err(operands) = parked {
            assert_eq!(shared.slot.look(), Seen::Done, "parking failed, so the operation is done");
            drop(operands);
        } else {
            assert!(attending);
        }
        lane.join().unwrap();
        assert_eq!(drops.load(std::sync::atomic::Ordering::SeqCst), 1);
    });
}

#[test]
fn pushed_slots_are_taken_once_with_what_was_written() {
    loom::model(|| {
        let inbox = Arc::new((
            Inbox::new(),
            Links::new(2),
            [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)],
        ));
        let pushers: Vec<_> = (0..2_u32)
            .map(|slot| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    // SAFETY: a slot's cell belongs to the pushing thread until the lane takes the slot.
                    inbox.2[slot as usize].with_mut(|cell| unsafe { *cell = slot + 10 });
                    inbox.0.push(&inbox.1, slot);
                })
            })
            .collect();
        let mut taken = Vec::new();
        while taken.len() < 2 {
            let before = taken.len();
            inbox.0.take(&inbox.1, &mut taken);
            for slot in &taken[before..] {
                // SAFETY: the slot was taken from the inbox, so its cell belongs to this thread.
                inbox.2[*slot as usize].with(|cell| assert_eq!(unsafe { *cell }, slot + 10));
            }
            thread::yield_now();
        }
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

/// A thread takes its own slot, while another thread pushes one.
#[test]
fn a_slot_that_is_taken_alone_is_taken_once() {
    loom::model(|| {
        let inbox = Arc::new((Inbox::new(), Links::new(2), loom::cell::UnsafeCell::new(0)));
        let other = Arc::clone(&inbox);
        inbox.0.push(&inbox.1, 0);
        let pusher = thread::spawn(move || {
            // SAFETY: the cell belongs to the pushing thread until the lane takes slot 1.
            other.2.with_mut(|cell| unsafe { *cell = 7 });
            other.0.push(&other.1, 1);
        });
        let is_alone = inbox.0.take_only(&inbox.1, 0);
        assert!(!inbox.0.take_only(&inbox.1, 0) || !is_alone, "the slot was taken twice");
        let mut taken = Vec::new();
        while !taken.contains(&1) {
            inbox.0.take(&inbox.1, &mut taken);
            thread::yield_now();
        }
        // SAFETY: slot 1 was taken from the inbox, so the cell belongs to this thread.
        inbox.2.with(|cell| assert_eq!(unsafe { *cell }, 7));
        pusher.join().unwrap();
        assert_eq!(taken, if is_alone { vec![1] } else { vec![0, 1] });
    });
}

#[test]
fn a_free_slot_has_one_owner() {
    loom::model(|| {
        let free = Arc::new((FreeSlots::new(1), loom::cell::UnsafeCell::new(0)));
        let other = Arc::clone(&free);
        let use_once = |free: &(FreeSlots, loom::cell::UnsafeCell<u32>)| {
            if let Some(slot) = free.0.take(0) {
                // SAFETY: `take` returned the slot only to this thread.
                free.1.with_mut(|cell| unsafe { *cell += 1 });
                free.0.give(slot);
            }
        };
        let thread = thread::spawn(move || use_once(&other));
        use_once(&free);
        thread.join().unwrap();
        assert_eq!(free.0.take(0), Some(0));
    });
}

/// Free slots, and tasks that wait for a slot.
type Places = Arc<(FreeSlots, WaitQueue)>;

/// Makes a set with one slot, which is taken.
fn full() -> Places {
    let places = Arc::new((FreeSlots::new(1), WaitQueue::new()));
    assert_eq!(places.0.take(0), Some(0));
    places
}

/// Returns the slot, as a lane does.
fn give(places: &Places) {
    places.0.give(0);
    if let Some(waker) = places.1.next() {
        waker.wake();
    }
}

/// Waits for a slot, as `SharedReady` does.
fn wait(places: &Places) {
    let mut number = None;
    loom::future::block_on(std::future::poll_fn(|context| {
        if !places.0.any() {
            number = Some(places.1.join(number, context.waker().clone()).0);
            if !places.0.any() {
                return std::task::Poll::Pending;
            }
        }
        leave(places, number.take(), true);
        std::task::Poll::Ready(())
    }));
}

fn leave(places: &Places, number: Option<u64>, seen: bool) {
    let Some(number) = number else { return };
    if (places.1.leave(number).is_none() || seen)
        && let Some(waker) = places.1.next()
    {
        waker.wake();
    }
}

#[test]
fn a_waiter_for_a_slot_sees_it_or_is_woken() {
    loom::model(|| {
        let places = full();
        let other = Arc::clone(&places);
        let thread = thread::spawn(move || give(&other));
        wait(&places);
        assert_eq!(places.0.take(0), Some(0));
        thread.join().unwrap();
    });
}

#[test]
fn a_slot_that_one_was_woken_for_and_gives_up_wakes_the_next() {
    loom::model(|| {
        let places = full();
        let (number, _) = places.1.join(None, std::task::Waker::noop().clone());
        let [of_giver, of_waiter] = [Arc::clone(&places), Arc::clone(&places)];
        let giver = thread::spawn(move || give(&of_giver));
        let waiter = thread::spawn(move || wait(&of_waiter));
        leave(&places, Some(number), false);
        giver.join().unwrap();
        waiter.join().unwrap();
    });
}
