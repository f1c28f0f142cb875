//! [`Pool`]: the threads that copy for all queues of an engine.

use std::fmt;
use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use dma_core::{Error, Result};

use super::chooser::{ticks, ticks_in};
use super::lane::{Lane, Spell};

/// How long a thread looks in vain before it goes to sleep, however many queues there are: so long at least, and as long as waking one takes.
const SPIN: Duration = Duration::from_micros(20);
/// More is not believed of either part of what waking takes: the thread, or who woke it, had to wait for a CPU.
const LATE: Duration = Duration::from_micros(100);

/// The threads, and the right to end them: they go with it.
pub(super) struct Pool {
    helpers: Arc<Helpers>,
    threads: Mutex<Threads>,
}

/// The threads that were started.
#[derive(Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// The process whose threads they are: a forked child has the handles, too.
    process: u32,
}

impl Threads {
    /// False in a forked child, where none of them runs.
    fn are_ours(&self) -> bool {
        self.process == process::id()
    }
}

/// Work is to take so many times as long as waking somebody for it: two cores are not twice as fast, least of all from memory, and work that shares the
/// machine with others is not to be spent for nothing.
const WORTH: u64 = 2;
/// Of the doorbells at which nobody was woken, one in so many wakes one.
const EXPLORE: u32 = 1024;
/// As many calls are made in vain at most where what had been going on has stopped.
const CREDIT_MAX: u64 = 4;

/// What a thread does.
type Thread = Box<dyn FnOnce() + Send>;

/// What the threads share with the queues.
#[derive(Debug, Default)]
pub(super) struct Helpers {
    /// How many there are.
    size: usize,
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// Counts the changes of `lanes`.
    changes: AtomicUsize,
    /// Threads that sleep, or are about to, and were not called.
    sleepers: AtomicUsize,
    /// Calls that no thread has answered. They change under the lock of `last_call` only.
    called: AtomicUsize,
    /// When the last call was made, in ticks, if it was of one thread.
    last_call: Mutex<Option<u64>>,
    wake: Condvar,
    quit: AtomicBool,
    /// What a call takes of the caller's time, smoothed, in ticks,
    stall: AtomicU64,
    /// and until the thread is awake.
    delay: AtomicU64,
    /// How much more the threads have done since they were woken than that was to be worth, in ticks, up to some calls' worth: as long as there is any,
    /// work goes on after pauses, and they are woken at once.
    credit: AtomicU64,
    /// Doorbells at which nobody was woken.
    refused: AtomicU32,
}

impl Pool {
    /// `size` threads, which start with the first queue.
    pub(super) fn new(size: usize) -> Self {
        let helpers = Helpers { size, ..Helpers::default() };
        Self { helpers: Arc::new(helpers), threads: Mutex::default() }
    }

    /// How many threads there are.
    pub(super) fn size(&self) -> usize {
        self.helpers.size
    }

    pub(super) fn helpers(&self) -> &Helpers {
        &self.helpers
    }

    /// Has the threads look after `lane`.
    ///
    /// # Errors
    ///
    /// If the threads cannot be started; then none are.
    pub(super) fn add(&self, lane: &Arc<Lane>) -> Result<()> {
        self.start(spawn)?;
        // Not when a thread is to be woken.
        ticks_in(LATE);
        lock(&self.helpers.lanes).push(Arc::clone(lane));
        self.helpers.lanes_changed();
        Ok(())
    }

    /// Has them look after it no more. They may hold on to it for a moment, but take no chunk that it does not have.
    pub(super) fn remove(&self, lane: &Arc<Lane>) {
        lock(&self.helpers.lanes).retain(|other| !Arc::ptr_eq(other, lane));
        self.helpers.lanes_changed();
    }

    /// Starts all threads, unless they were before.
    fn start(&self, spawn: impl Fn(String, Thread) -> io::Result<JoinHandle<()>>) -> Result<()> {
        let mut threads = lock(&self.threads);
        if threads.handles.is_empty() {
            threads.process = process::id();
        }
        while threads.handles.len() < self.size() {
            let (helpers, first) = (Arc::clone(&self.helpers), threads.handles.len());
            match spawn(format!("dma-cpu-{first}"), Box::new(move || helpers.serve(first))) {
                Ok(thread) => threads.handles.push(thread),
                Err(e) => {
                    self.end(&mut threads.handles);
                    return Err(Error::from(e)
                        .with_hint("raise the limit of threads, or open the engine with fewer `threads`"));
                }
            }
        }
        Ok(())
    }

    /// Ends the threads and waits until they are gone. Others can be started afterwards.
    fn end(&self, threads: &mut Vec<JoinHandle<()>>) {
        self.helpers.quit.store(true, Ordering::SeqCst);
        self.helpers.wake_all();
        for thread in threads.drain(..) {
            // It does not panic; if it did, it is gone all the same.
            let _ = thread.join();
        }
        self.helpers.quit.store(false, Ordering::SeqCst);
    }
}

fn spawn(name: String, thread: Thread) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(thread)
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut threads = std::mem::take(&mut *lock(&self.threads));
        if threads.are_ours() {
            self.end(&mut threads.handles);
        } else {
            // In a forked child there are no such threads, and joining them panics.
            std::mem::forget(threads.handles);
        }
    }
}

impl Helpers {
    fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.any_asleep() {
            self.call(true);
        }
    }

    /// Whether any thread sleeps, or is about to, and was not called. Behind a fence: either this sees the sleeper, or the sleeper
    /// sees what was published before.
    #[inline]
    pub(super) fn any_asleep(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Whether all do, or there are none: nobody works but who polls.
    pub(super) fn all_asleep(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) >= self.size
    }

    /// Whether any thread is awake, and not merely called.
    pub(super) fn are_there(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) + self.called.load(Ordering::Relaxed) < self.size
    }

    /// Whether work that takes one core so many ticks is over sooner if one more is woken to share it with those that are awake: who wakes it
    /// loses time, and it comes late. Both are known from earlier calls, and what came of these.
    pub(super) fn is_worth_waking(&self, work: u64) -> bool {
        let awake = 1 + self.size.saturating_sub(self.sleepers.load(Ordering::Relaxed)) as u64;
        work / awake + self.credit.load(Ordering::Relaxed) >= self.worth()
    }

    /// What waking one takes, in ticks.
    fn cost(&self) -> u64 {
        self.stall.load(Ordering::Relaxed) + self.delay.load(Ordering::Relaxed)
    }

    /// How much work is worth a call, in ticks.
    fn worth(&self) -> u64 {
        WORTH * self.cost()
    }

    /// For how many ticks there has to be nothing to do until threads sleep.
    pub(super) fn patience(&self) -> u64 {
        self.cost().max(ticks_in(SPIN))
    }

    /// Work was not worth waking a thread, as far as is known. Returns whether to wake one all the same, to see what that takes now.
    pub(super) fn explores(&self) -> bool {
        let refused = self.refused.load(Ordering::Relaxed).wrapping_add(1);
        self.refused.store(refused, Ordering::Relaxed);
        refused.is_multiple_of(EXPLORE)
    }

    /// Wakes one thread that sleeps, if there is one.
    pub(super) fn call_one(&self) {
        let start = ticks();
        if self.call(false) {
            smooth(&self.stall, ticks().saturating_sub(start));
            self.spend();
        }
    }

    /// A thread was woken.
    fn spend(&self) {
        let credit = self.credit.load(Ordering::Relaxed).saturating_sub(self.worth());
        self.credit.store(credit, Ordering::Relaxed);
    }

    /// A thread goes to sleep after so many ticks of work.
    fn earn(&self, work: u64) {
        // If two do this at once, one of them does not count.
        let credit = (self.credit.load(Ordering::Relaxed) + work).min(CREDIT_MAX * self.worth());
        self.credit.store(credit, Ordering::Relaxed);
    }

    /// False if none sleeps.
    #[cold]
    fn call(&self, all: bool) -> bool {
        let mut last_call = lock(&self.last_call);
        // Taken off here, so that nobody calls a thread twice that takes its time. They get fewer only under the lock.
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

    fn lanes_changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        // Sleepers hold on to lanes that are gone.
        self.wake_all();
    }

    /// A thread's life.
    fn serve(&self, first: usize) {
        let mut lanes = Vec::new();
        let mut changes = 0;
        let mut spell = Spell::default();
        let mut idle = None;
        let mut turn = first;
        while !self.quit.load(Ordering::Relaxed) {
            let now = self.changes.load(Ordering::Acquire);
            if now != changes {
                changes = now;
                lanes.clone_from(&lock(&self.lanes));
            }
            if self.round(&lanes, turn, &mut spell) {
                idle = None;
                turn = turn.wrapping_add(1);
            } else if !self.is_idle_for_long(&mut idle) {
                std::hint::spin_loop();
            } else {
                self.earn(spell.done());
                self.sleep(|| {
                    self.quit.load(Ordering::Relaxed)
                        || self.changes.load(Ordering::Acquire) != changes
                        || lanes.iter().any(|lane| lane.ring.has_work())
                });
                (idle, spell) = (None, Spell::default());
            }
        }
    }

    /// Whether a thread that finds nothing to do has found nothing for long enough to sleep, `since` it first did.
    fn is_idle_for_long(&self, since: &mut Option<u64>) -> bool {
        let now = ticks();
        now.saturating_sub(*since.get_or_insert(now)) >= self.patience()
    }

    /// One chunk of each lane, beginning with another one each time. Returns whether there was any.
    fn round(&self, lanes: &[Arc<Lane>], turn: usize, spell: &mut Spell) -> bool {
        let mut worked = false;
        for at in 0..lanes.len() {
            let lane = &lanes[at.wrapping_add(turn) % lanes.len()];
            worked |= lane.work(self, spell).is_some();
        }
        worked
    }

    /// Sleeps until called, unless or until `stay`.
    fn sleep(&self, stay: impl Fn() -> bool) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // See `any_asleep`.
        fence(Ordering::SeqCst);
        let mut last_call = lock(&self.last_call);
        let mut slept = false;
        // Under the lock, the threads in here are as many as `sleepers` and the calls together.
        loop {
            if self.called.load(Ordering::Relaxed) > 0 {
                self.called.fetch_sub(1, Ordering::Relaxed);
                if let Some(at) = last_call.take().filter(|_| slept) {
                    smooth(&self.delay, ticks().saturating_sub(at));
                }
                return;
            }
            // Asked again after each wake: another thread, which was about to sleep, may have answered the call that was for this one.
            if stay() {
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                return;
            }
            slept = true;
            last_call = self.wake.wait(last_call).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Follows what calls take: what is less soon, so that what was once too much does not stay, and what is more slowly.
fn smooth(smoothed: &AtomicU64, ticks: u64) {
    let (old, new) = (smoothed.load(Ordering::Relaxed), ticks.min(ticks_in(LATE)));
    let next = match old {
        0 => new,
        _ if new < old => old - (old - new) / 2,
        _ => old + (new - old) / 8,
    };
    // If two do this at once, one of them does not count.
    smoothed.store(next, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("helpers", &self.helpers).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Helpers {
    /// So many threads that sleep, though there are none, which work of so many ticks or more is worth waking.
    pub(super) fn asleep(size: usize, worth: u64) -> Self {
        let helpers = Self { size, ..Self::default() };
        helpers.sleepers.store(size, Ordering::Relaxed);
        helpers.wake_for(worth);
        helpers
    }

    /// Nothing is worth waking one.
    pub(super) fn never_wake(&self) {
        self.wake_for(u64::MAX / 16);
    }

    /// So many ticks of work are.
    pub(super) fn wake_for(&self, worth: u64) {
        self.delay.store(worth / WORTH, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A thread may hold an `Arc` of the helpers as long as it lives, so they tell how many there are.
    fn running(pool: &Pool) -> usize {
        Arc::strong_count(&pool.helpers) - 1
    }

    #[test]
    fn a_thread_that_cannot_be_started_ends_the_others() {
        let pool = Pool::new(5);
        for able in [3, 0, 4] {
            let refuse = |name: String, thread: Thread| match name.strip_prefix("dma-cpu-") {
                Some(number) if number.parse::<usize>().unwrap() < able => spawn(name, thread),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            };
            assert!(pool.start(refuse).unwrap_err().hint().contains("fewer `threads`"));
            assert_eq!(running(&pool), 0, "of {able} that were started");
        }
        pool.start(spawn).unwrap();
        assert_eq!(running(&pool), 5, "and they stay");
        pool.start(|_, _| panic!("all are there")).unwrap();
    }

    fn wait_until(what: &str, done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
            std::thread::yield_now();
        }
    }

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
        assert!(!third.is_worth_waking(2999) && third.is_worth_waking(3000), "shared by three already");
        assert!(Helpers::asleep(1, 0).is_worth_waking(0), "until it is known, always");
    }

    #[test]
    fn who_was_called_is_not_there_yet() {
        let helpers = Helpers::asleep(2, 1000);
        assert!(!helpers.are_there(), "both sleep");
        helpers.call_one();
        assert!(!helpers.all_asleep() && !helpers.are_there());
        helpers.called.store(0, Ordering::Relaxed);
        assert!(helpers.are_there(), "one is enough");
        helpers.call_one();
        assert!(helpers.are_there(), "while the other one is being woken");
        assert!(!Helpers::default().are_there(), "there are none");
    }

    #[test]
    fn what_threads_have_done_is_worth_some_calls() {
        let helpers = Helpers::asleep(1, 1000);
        helpers.earn(400);
        assert!(!helpers.is_worth_waking(599) && helpers.is_worth_waking(600));
        helpers.earn(1_000_000);
        let calls = (1..).find(|_| {
            helpers.spend();
            !helpers.is_worth_waking(0)
        });
        assert_eq!(calls, Some(CREDIT_MAX as i32), "and then it has to be earned again");
        helpers.spend();
        assert!(!helpers.is_worth_waking(999) && helpers.is_worth_waking(1000), "no debts");
    }

    #[test]
    fn what_a_call_takes_is_smoothed_and_not_believed_if_late() {
        let (smoothed, late) = (AtomicU64::new(0), ticks_in(LATE));
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

    /// However many call at once: who was called is awake once for it, and all of them sleep in the end.
    #[test]
    fn calls_are_answered() {
        let pool = Pool::new(3);
        pool.start(spawn).unwrap();
        let helpers = pool.helpers();
        let rest = || {
            wait_until("all asleep", || helpers.all_asleep() && helpers.called.load(Ordering::Relaxed) == 0)
        };
        rest();
        assert!(helpers.any_asleep());
        std::thread::scope(|scope| {
            for caller in 0..3 {
                scope.spawn(move || {
                    for turn in 0..2000 {
                        if turn % 50 == caller {
                            helpers.wake_all()
                        } else {
                            helpers.call_one()
                        }
                        if turn % 7 == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        rest();
        assert_eq!(helpers.sleepers.load(Ordering::Relaxed), 3, "none is counted twice");
        helpers.call_one();
        helpers.call_one();
        rest();
        assert!(helpers.stall.load(Ordering::Relaxed) > 0 && helpers.delay.load(Ordering::Relaxed) > 0);
    }

    /// One thread sleeps and is called; before it is awake, another one, on its way to sleep, answers. Whoever called for all of them meant this one, too.
    #[test]
    fn a_call_for_all_reaches_all() {
        let helpers = Arc::new(Helpers { size: 2, ..Helpers::default() });
        let sleep = || {
            let helpers = Arc::clone(&helpers);
            std::thread::spawn(move || helpers.sleep(|| helpers.quit.load(Ordering::SeqCst)))
        };
        let sleeper = sleep();
        wait_until("asleep", || helpers.any_asleep());
        // As `call(true)` does, but the lock is held until the other one is at it.
        let last_call = lock(&helpers.last_call);
        helpers.quit.store(true, Ordering::SeqCst);
        helpers.called.fetch_add(helpers.sleepers.swap(0, Ordering::SeqCst), Ordering::Relaxed);
        let thief = sleep();
        wait_until("about to sleep", || helpers.any_asleep());
        drop(last_call);
        wait_until("one answers", || sleeper.is_finished() || thief.is_finished());
        helpers.wake.notify_all();
        wait_until("both are awake", || sleeper.is_finished() && thief.is_finished());
        assert!(!helpers.any_asleep() && helpers.called.load(Ordering::Relaxed) == 0);
    }

    /// Also those that are about to sleep, or that were just woken for a queue that is gone.
    #[test]
    fn threads_end_at_any_moment() {
        let test = std::thread::spawn(|| {
            for turn in 0..500_u64 {
                let pool = Pool::new(3);
                pool.start(spawn).unwrap();
                let (begun, pause) = (Instant::now(), Duration::from_nanos(20_000 + turn * 7919 % 120_000));
                while begun.elapsed() < pause {
                    std::thread::yield_now();
                }
                pool.helpers().lanes_changed();
            }
        });
        wait_until("they end", || test.is_finished());
        test.join().unwrap();
    }

    #[test]
    fn what_is_known_of_calls_is_looked_at_again() {
        let helpers = Helpers::asleep(1, 1000);
        assert_eq!((1..=2 * EXPLORE).filter(|_| helpers.explores()).count(), 2);
    }
}
