//! A bounded queue of descriptors from signal handlers of any thread to one worker. The queue takes no lock
//! and does not allocate.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;
use rustix::thread::futex;

use crate::descriptor::Descriptor;

/// The queue. Any number of threads push, and one thread pops.
#[derive(Debug)]
pub(crate) struct Ring {
    descriptors: ArrayQueue<Descriptor>,
    /// Number of descriptors that were appended so far, or are being appended.
    pushed: AtomicUsize,
    /// The futex word on which the worker sleeps. Each push and each wake-up increments it.
    signals: AtomicU32,
    /// True while the worker sleeps or is about to sleep. Only the worker changes this flag: if wakers
    /// cleared it, a late waker could clear it during the next sleep.
    asleep: AtomicBool,
}

impl Ring {
    /// Makes a queue for at most `most` descriptors.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            descriptors: ArrayQueue::new(most),
            pushed: AtomicUsize::new(0),
            signals: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
        }
    }

    /// Appends a descriptor. Returns false if the queue is full.
    pub(crate) fn push(&self, descriptor: &Descriptor) -> bool {
        self.pushed.fetch_add(1, Ordering::AcqRel);
        let has_room = self.descriptors.push(*descriptor).is_ok();
        if has_room {
            self.wake();
        } else {
            self.pushed.fetch_sub(1, Ordering::AcqRel);
        }
        has_room
    }

    /// Wakes the worker, which then checks its condition again.
    pub(crate) fn wake(&self) {
        self.signals.fetch_add(1, Ordering::SeqCst);
        self.rouse();
    }

    fn rouse(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            // The call fails only for a bad address, and this address is valid.
            let _ = futex::wake(&self.signals, futex::Flags::PRIVATE, 1);
        }
    }

    /// Returns the number of descriptors that were appended so far.
    pub(crate) fn pushed(&self) -> usize {
        self.pushed.load(Ordering::Acquire)
    }

    /// Removes and returns the oldest descriptor. Only the worker may call this.
    pub(crate) fn pop(&self) -> Option<Descriptor> {
        self.descriptors.pop()
    }

    /// Sleeps until there is a descriptor, and returns the oldest one. Returns `None` once `over` returns
    /// true. Only the worker may call this.
    pub(crate) fn wait(&self, over: impl Fn() -> bool) -> Option<Descriptor> {
        for _ in 0..200 {
            if let Some(descriptor) = self.pop() {
                return Some(descriptor);
            }
            std::hint::spin_loop();
        }
        let mut popped = None;
        self.sleep_until(|| {
            popped = self.pop();
            popped.is_some() || over()
        });
        popped
    }

    /// Sleeps until `over` returns true. Calls `over` after each push and each wake-up. Only the worker may
    /// call this.
    pub(crate) fn sleep_until(&self, mut over: impl FnMut() -> bool) {
        loop {
            let seen = self.signals.load(Ordering::SeqCst);
            self.asleep.store(true, Ordering::SeqCst);
            if over() {
                self.asleep.store(false, Ordering::SeqCst);
                return;
            }
            // Returns at once if a push or wake-up has happened since `signals` was read.
            let _ = futex::wait(&self.signals, futex::Flags::PRIVATE, seen, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_descriptor_arrives_once_and_in_the_order_of_its_thread() {
        const EACH: u64 = 20_000;
        let ring = Ring::new(5);
        let mut last = [0; 3];
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let ring = &ring;
                scope.spawn(move || {
                    for n in 1..=EACH {
                        let descriptor = Descriptor([thread, n, 0, 0, 0, 0, 0, n]);
                        while !ring.push(&descriptor) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            for _ in 0..3 * EACH {
                let Descriptor([thread, n, .., same]) = ring.wait(|| false).unwrap();
                assert_eq!((n, same), (last[thread as usize] + 1, n), "thread {thread}");
                last[thread as usize] = n;
            }
        });
        assert_eq!(last, [EACH; 3]);
        assert_eq!(ring.wait(|| true).map(|_| ()), None);
    }

    #[test]
    fn no_wake_up_is_lost_when_another_is_late() {
        for _ in 0..5000 {
            let (ring, over) = (Ring::new(4), AtomicBool::new(false));
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| ring.wait(|| over.load(Ordering::SeqCst)).is_none());
                // `rouse` alone is a late waker: it wakes the worker without a new signal. The worker must
                // still notice the `wake` after it.
                while !ring.asleep.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                ring.rouse();
                over.store(true, Ordering::SeqCst);
                ring.wake();
                let begun = std::time::Instant::now();
                while !worker.is_finished() {
                    if begun.elapsed().as_secs() >= 60 {
                        eprintln!("the worker does not wake up");
                        std::process::abort();
                    }
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn it_takes_as_many_as_it_says() {
        let ring = Ring::new(3);
        let one = Descriptor::default();
        for _ in 0..10 {
            assert!(ring.push(&one) && ring.push(&one) && ring.push(&one) && !ring.push(&one));
            assert!(ring.pop().is_some() && ring.push(&one) && !ring.push(&one));
            assert!(ring.pop().is_some() && ring.pop().is_some() && ring.pop().is_some());
            assert!(ring.pop().is_none());
        }
    }
}
