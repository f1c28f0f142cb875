//! The loop of a lane's thread, which polls while operations are in flight and no other thread polls.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dma_process::lock;

use super::{ASLEEP, AWAKE, Caller, Lane};
use crate::guarded;
use crate::planner::stall_detector::StallDetector;
use crate::shared::deferred_callbacks::DeferredCallback;
use crate::shared::slot::Slot;

thread_local! {
    /// True if this thread is a lane thread of any queue.
    static ON_LANE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this is a lane thread. Lane threads must not join lanes, because they would wait for
/// themselves or for one another.
pub(in crate::shared) fn on_lane() -> bool {
    ON_LANE.get()
}

impl Lane {
    /// Runs the lane's thread until the lane is closed and drained.
    pub(in crate::shared) fn serve(&self) {
        ON_LANE.set(true);
        self.thread.get_or_init(std::thread::current);
        let deadline = self.watch();
        *lock(&self.stalled_at) = None;
        self.drain(deadline);
    }

    /// Polls while operations are in flight and no waiting thread polls; otherwise sleeps. When the lane is
    /// closed, returns the deadline.
    fn watch(&self) -> Instant {
        /// Number of polls without progress before yielding.
        const SPINS: u32 = 64;
        /// Number of polls without progress before napping.
        const YIELDS: u32 = 256;
        /// Time between polls while idle.
        const NAP: Duration = Duration::from_micros(50);
        /// Number of naps before sleeping until woken.
        const NAPS: u32 = 100;

        let mut idle = 0_u32;
        let mut naps = 0_u32;
        let mut driven = 0;
        let mut stall_detector = StallDetector::new(self.stall_timeout);
        loop {
            if let Some(deadline) = self.closing() {
                return deadline;
            }
            let now_driven = self.driven.load(Ordering::Relaxed);
            if std::mem::replace(&mut driven, now_driven) != now_driven {
                // Leave the polling to waiting threads, which poll more often than this thread would.
                naps = 0;
                std::thread::park_timeout(NAP);
                continue;
            }
            // If the engine panics, the next call handles the poisoned lock.
            if let Some(1..) = guarded("the engine", || self.drive(Caller::Lane)) {
                idle = 0;
                naps = 0;
                continue;
            }
            idle = idle.saturating_add(1);
            if idle < SPINS {
                std::hint::spin_loop();
            } else if idle < YIELDS {
                std::thread::yield_now();
            } else if naps < NAPS {
                naps += 1;
                std::thread::park_timeout(NAP);
            } else if self.watch_device(&mut stall_detector) {
                naps = naps.saturating_add(1);
                let nap = NAP * nap_for(naps);
                if nap == NAP {
                    std::thread::park_timeout(NAP);
                } else if self.sleep(Some(nap)) {
                    // There is new work, and the device may complete it soon.
                    naps = 0;
                }
            } else {
                self.sleep(None);
                idle = 0;
                naps = 0;
            }
        }
    }

    /// If the lane's thread has detected a stall, returns the time without a completion.
    pub(in crate::shared) fn stalled(&self) -> Option<Duration> {
        if self.is_parents() {
            return None;
        }
        let (reports, since) = (*lock(&self.stalled_at))?;
        (reports == self.reports()).then(|| since.elapsed())
    }

    /// Returns the [steps](StallDetector::steps) of the lane's thread.
    pub(in crate::shared) fn stall_steps(&self) -> u32 {
        self.stall_steps.load(Ordering::Relaxed)
    }

    /// Returns whether operations are in flight. If so, also checks whether the device has stalled.
    fn watch_device(&self, stall_detector: &mut StallDetector) -> bool {
        let core = self.lock();
        let in_flight = !core.over && core.planner.open_operations() > 0;
        let (reports, polls) = (self.reports(), core.planner.polls());
        drop(core);
        if !in_flight {
            stall_detector.reset();
            *lock(&self.stalled_at) = None;
            return false;
        }
        let known = lock(&self.stalled_at).map(|(at, _)| at);
        let now = Instant::now();
        let stalled_for = stall_detector.observe(reports, polls, now);
        let steps = stall_detector.steps();
        let stepped = self.stall_steps.swap(steps, Ordering::Relaxed) != steps;
        let Some(stalled_for) = stalled_for else { return true };
        if known != Some(reports)
            && let Some(since) = now.checked_sub(stalled_for)
        {
            *lock(&self.stalled_at) = Some((reports, since));
            crate::guarded_log!(
                warn,
                backend = self.backend,
                ?stalled_for,
                "the device has operations in flight, but completes nothing"
            );
            // Wake the tasks that wait for room, so that the tasks fail with `TimedOut`.
            self.wait_queue.all().into_iter().map(DeferredCallback::Wake).for_each(DeferredCallback::run);
        }
        if stepped {
            // Wake the tasks that await operations, so that those that have waited long enough fail. A task
            // that has just begun to wait is woken at a later step.
            let wakers = self.slots.iter().filter_map(Slot::take_waker);
            wakers.map(DeferredCallback::Wake).for_each(DeferredCallback::run);
        }
        true
    }

    /// Sleeps for `nap`, or until woken if `nap` is `None`, unless there is work. Returns whether a submitter
    /// woke the thread.
    fn sleep(&self, nap: Option<Duration>) -> bool {
        // Either this thread sees a new request, or the submitter sees ASLEEP. GONE is never replaced.
        let (order, otherwise) = (Ordering::SeqCst, Ordering::Relaxed);
        if self.presence.compare_exchange(AWAKE, ASLEEP, order, otherwise).is_err() {
            return false;
        }
        if self.is_empty() && self.closing().is_none() {
            match nap {
                Some(nap) => std::thread::park_timeout(nap),
                None if !self.in_flight() => std::thread::park(),
                None => {}
            }
        }
        // The exchange fails if a submitter has already set AWAKE.
        self.presence.compare_exchange(ASLEEP, AWAKE, order, otherwise).is_err()
    }

    fn in_flight(&self) -> bool {
        let core = self.lock();
        !core.over && core.planner.open_operations() > 0
    }
}

/// Returns the length of the next nap, as a multiple of `NAP`. A nap is at most a sixtieth of the time waited
/// so far, so that a late completion is detected soon. Naps become longer, so that a stalled device costs
/// little CPU time.
pub(in crate::shared) fn nap_for(naps: u32) -> u32 {
    (naps / 64).clamp(1, 20)
}
