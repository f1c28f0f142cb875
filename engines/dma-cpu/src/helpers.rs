//! [`Helpers`]: the sleep of helper threads, and the decision to wake one.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use dma_process::lock;

use super::clock::{ticks, ticks_in};

/// Minimum time that an idle thread polls before it sleeps. The thread also polls at least as long as a
/// wake-up takes.
const SPIN: Duration = Duration::from_micros(20);
/// Maximum of each measured part of a wake-up. A longer time includes waiting for a CPU.
pub(super) const MAX_WAKE_UP_PART: Duration = Duration::from_micros(100);

/// Break-even of a wake-up: the work must take this multiple of the wake-up's time. The factor is more than 1
/// because two cores are less than twice as fast, especially from memory.
const BREAK_EVEN: u64 = 2;
/// After this number of doorbells without a wake-up, a thread is woken anyway, to measure the cost.
const EXPLORE_EVERY: u32 = 1024;
/// Maximum of the wake-up credit, in wake-ups.
const MAX_CREDIT: u64 = 4;

/// Sleep state of the helper threads.
#[derive(Debug, Default)]
pub(super) struct Helpers {
    /// Number of threads.
    pub(super) size: usize,
    /// Number of threads that sleep or are about to sleep, excluding called threads.
    pub(super) sleepers: AtomicUsize,
    /// Number of calls that no thread has answered. Changes under the lock of `last_call` only.
    pub(super) called: AtomicUsize,
    /// Time of the last call in ticks, if the call woke one thread.
    last_call: Mutex<Option<u64>>,
    wake: Condvar,
    /// Smoothed duration of a wake-up for its caller, in ticks.
    pub(super) stall: AtomicU64,
    /// Smoothed time from a wake-up until the thread runs, in ticks.
    pub(super) delay: AtomicU64,
    /// Wake-up credit: helper work beyond break-even, in ticks, capped. As long as there is credit, threads
    /// are woken at once.
    credit: AtomicU64,
    /// Number of doorbells without a wake-up.
    refused: AtomicU32,
    /// Number of threads that wait and do not look for work before they are woken.
    #[cfg(test)]
    waiting: AtomicUsize,
}

impl Helpers {
    pub(super) fn new(size: usize) -> Self {
        Self { size, ..Self::default() }
    }

    pub(super) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.any_asleep() {
            self.call(true);
        }
    }

    /// Returns true if any thread sleeps or is about to sleep, and was not called. The caller must have made
    /// a memory fence before: then either this call sees the sleeper, or the sleeper sees the work that was
    /// published before.
    #[inline]
    pub(super) fn any_asleep(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Returns true if all threads sleep, or there are none.
    pub(super) fn all_asleep(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) >= self.size
    }

    /// Returns true if any thread is awake. A called thread that has not woken yet does not count.
    pub(super) fn any_awake(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) + self.called.load(Ordering::Relaxed) < self.size
    }

    /// Returns true if waking another thread is worthwhile for `work` ticks of work, given the measured cost
    /// of a wake-up and the credit of earlier wake-ups.
    pub(super) fn is_worth_waking(&self, work: u64) -> bool {
        let awake = 1 + self.size.saturating_sub(self.sleepers.load(Ordering::Relaxed)) as u64;
        work / awake + self.credit.load(Ordering::Relaxed) >= self.worth()
    }

    /// Returns the cost of a wake-up in ticks.
    fn cost(&self) -> u64 {
        self.stall.load(Ordering::Relaxed) + self.delay.load(Ordering::Relaxed)
    }

    /// Returns the work that justifies a wake-up, in ticks.
    fn worth(&self) -> u64 {
        BREAK_EVEN * self.cost()
    }

    /// Returns the ticks without work after which threads sleep.
    pub(super) fn idle_limit(&self) -> u64 {
        self.cost().max(ticks_in(SPIN))
    }

    /// Counts a doorbell without a wake-up. Returns true if a thread has to be woken anyway, to measure the
    /// cost.
    pub(super) fn explores(&self) -> bool {
        let refused = self.refused.load(Ordering::Relaxed).wrapping_add(1);
        self.refused.store(refused, Ordering::Relaxed);
        refused.is_multiple_of(EXPLORE_EVERY)
    }

    /// Wakes one sleeping thread, if any.
    pub(super) fn call_one(&self) {
        let start = ticks();
        if self.call(false) {
            smooth(&self.stall, ticks().saturating_sub(start));
            self.spend();
        }
    }

    /// Charges a wake-up to the credit.
    fn spend(&self) {
        let credit = self.credit.load(Ordering::Relaxed).saturating_sub(self.worth());
        self.credit.store(credit, Ordering::Relaxed);
    }

    /// Credits `work` ticks of a thread that goes to sleep.
    pub(super) fn earn(&self, work: u64) {
        // A lost concurrent update does no harm.
        let credit = (self.credit.load(Ordering::Relaxed) + work).min(MAX_CREDIT * self.worth());
        self.credit.store(credit, Ordering::Relaxed);
    }

    /// Wakes one thread or all. Returns false if no thread sleeps.
    #[cold]
    fn call(&self, all: bool) -> bool {
        let mut last_call = lock(&self.last_call);
        // The caller removes the thread from `sleepers`, so that a slow thread is not called twice. The
        // number decreases only under the lock.
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        let called = if all { sleepers } else { sleepers.min(1) };
        if called == 0 {
            return false;
        }
        self.sleepers.fetch_sub(called, Ordering::SeqCst);
        self.called.fetch_add(called, Ordering::Relaxed);
        *last_call = (!all).then(ticks);
        drop(last_call);
        if all {
            self.wake.notify_all();
        } else {
            self.wake.notify_one();
        }
        true
    }

    /// Returns true once a thread has been idle long enough to sleep. `since`: start of its idle time.
    pub(super) fn is_idle_for_long(&self, since: &mut Option<u64>) -> bool {
        let now = ticks();
        now.saturating_sub(*since.get_or_insert(now)) >= self.idle_limit()
    }

    /// Sleeps until called, or until `stay` returns true.
    pub(super) fn sleep(&self, stay: impl Fn() -> bool) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // See `any_asleep`.
        fence(Ordering::SeqCst);
        let mut last_call = lock(&self.last_call);
        let mut slept = false;
        // While the lock is held, the number of threads in this function equals `sleepers` plus the
        // unanswered calls.
        loop {
            if self.called.load(Ordering::Relaxed) > 0 {
                self.called.fetch_sub(1, Ordering::Relaxed);
                if let Some(at) = last_call.take().filter(|_| slept) {
                    smooth(&self.delay, ticks().saturating_sub(at));
                }
                return;
            }
            // Checked after each wake, because another thread may have answered the call.
            if stay() {
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                return;
            }
            slept = true;
            #[cfg(test)]
            self.waiting.fetch_add(1, Ordering::SeqCst);
            last_call = self.wake.wait(last_call).unwrap_or_else(PoisonError::into_inner);
            #[cfg(test)]
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Smooths the cost of calls. The value falls fast and rises slowly, so that an outlier has little effect and
/// is soon forgotten.
fn smooth(smoothed: &AtomicU64, ticks: u64) {
    let (old, new) = (smoothed.load(Ordering::Relaxed), ticks.min(ticks_in(MAX_WAKE_UP_PART)));
    let next = match old {
        0 => new,
        _ if new < old => old - (old - new) / 2,
        _ => old + (new - old) / 8,
    };
    // A lost concurrent update does no harm.
    smoothed.store(next, Ordering::Relaxed);
}

#[cfg(test)]
impl Helpers {
    /// Returns `size` threads that count as asleep. `worth` ticks of work justify waking one.
    pub(super) fn asleep(size: usize, worth: u64) -> Self {
        let helpers = Self { size, ..Self::default() };
        helpers.sleepers.store(size, Ordering::Relaxed);
        helpers.wake_for(worth);
        helpers
    }

    /// Returns whether all threads wait until they are woken. A thread that [`all_asleep`](Self::all_asleep)
    /// counts may still look for work.
    pub(super) fn all_wait(&self) -> bool {
        self.all_asleep() && self.waiting.load(Ordering::SeqCst) == self.size
    }

    /// Makes wake-ups never worthwhile.
    pub(super) fn never_wake(&self) {
        self.wake_for(u64::MAX / 16);
    }

    /// Makes `worth` ticks of work justify a wake-up.
    pub(super) fn wake_for(&self, worth: u64) {
        self.delay.store(worth / BREAK_EVEN, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(super) use test_support::patience::until as wait_until;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn threads_are_woken_for_what_is_worth_it() {
        let one = Helpers::asleep(1, 1000);
        assert!(!one.is_worth_waking(999) && one.is_worth_waking(1000));
        let third = Helpers {
            size: 3,
            sleepers: AtomicUsize::new(1),
            delay: AtomicU64::new(500),
            ..Helpers::default()
        };
        assert!(
            !third.is_worth_waking(2999) && third.is_worth_waking(3000),
            "three cores already share the work"
        );
        assert!(Helpers::asleep(1, 0).is_worth_waking(0), "always worthwhile while the cost is unknown");
    }

    #[test]
    fn a_called_helper_is_not_there_yet() {
        let helpers = Helpers::asleep(2, 1000);
        assert!(!helpers.any_awake(), "both sleep");
        helpers.call_one();
        assert!(!helpers.all_asleep() && !helpers.any_awake());
        helpers.called.store(0, Ordering::Relaxed);
        assert!(helpers.any_awake(), "one is enough");
        helpers.call_one();
        assert!(helpers.any_awake(), "one thread is awake while another is being woken");
        assert!(!Helpers::default().any_awake(), "there are none");
    }

    #[test]
    fn work_done_by_threads_pays_for_some_calls() {
        let helpers = Helpers::asleep(1, 1000);
        helpers.earn(400);
        assert!(!helpers.is_worth_waking(599) && helpers.is_worth_waking(600));
        helpers.earn(1_000_000);
        let calls = (1..).find(|_| {
            helpers.spend();
            !helpers.is_worth_waking(0)
        });
        assert_eq!(calls, Some(MAX_CREDIT as i32), "the credit is limited, and is used up then");
        helpers.spend();
        assert!(!helpers.is_worth_waking(999) && helpers.is_worth_waking(1000), "no debts");
    }

    #[test]
    fn the_cost_of_a_call_is_smoothed_and_late_ones_are_ignored() {
        let (smoothed, late) = (AtomicU64::new(0), ticks_in(MAX_WAKE_UP_PART));
        assert!(late > 0);
        smooth(&smoothed, 10 * late);
        assert_eq!(smoothed.load(Ordering::Relaxed), late);
        for _ in 0..64 {
            smooth(&smoothed, late / 2);
        }
        assert!(smoothed.load(Ordering::Relaxed).abs_diff(late / 2) <= 1, "less counts soon");
        smooth(&smoothed, 10 * late);
        assert!(smoothed.load(Ordering::Relaxed) < late * 3 / 5, "more does not");
    }

    /// One thread sleeps and is called. Before it is awake, another thread that was about to sleep answers
    /// the call. A call for all threads includes the sleeping one.
    #[test]
    fn a_call_for_all_reaches_all() {
        let shared = Arc::new((Helpers { size: 2, ..Helpers::default() }, AtomicBool::new(false)));
        let (helpers, quit) = &*shared;
        let start = || {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.0.sleep(|| shared.1.load(Ordering::SeqCst)))
        };
        let sleeper = start();
        wait_until("asleep", || helpers.any_asleep());
        // Calls like `call(true)`, but holds the lock until the other thread waits for it.
        let last_call = lock(&helpers.last_call);
        quit.store(true, Ordering::SeqCst);
        helpers.called.fetch_add(helpers.sleepers.swap(0, Ordering::SeqCst), Ordering::Relaxed);
        let thief = start();
        wait_until("about to sleep", || helpers.any_asleep());
        drop(last_call);
        wait_until("one answers", || sleeper.is_finished() || thief.is_finished());
        helpers.wake.notify_all();
        wait_until("both are awake", || sleeper.is_finished() && thief.is_finished());
        assert!(!helpers.any_asleep() && helpers.called.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn costs_of_calls_are_measured_again() {
        let helpers = Helpers::asleep(1, 1000);
        assert_eq!((1..=2 * EXPLORE_EVERY).filter(|_| helpers.explores()).count(), 2);
    }
}
