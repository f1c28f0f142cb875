//! [`Pool`]: the threads that copy for all queues of an engine.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use dma_core::Result;
use dma_process::{ForkMark, lock, spawn_thread};

use super::clock::ticks_in;
use super::helpers::{Helpers, MAX_WAKE_UP_PART};
use super::job_queue::{BusyPeriod, JobQueue};

/// The helper threads. Dropping this value ends them.
pub(super) struct Pool {
    shared: Arc<PoolState>,
    threads: Mutex<Threads>,
}

/// The started threads.
#[derive(Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// The process that started the threads. A forked child also has the handles, but not the threads.
    process: Option<ForkMark>,
}

impl Threads {
    /// Returns true in the process that started these threads, and false in a forked child, where they do not
    /// run.
    fn are_ours(&self) -> bool {
        self.process.is_some_and(|process| !process.is_child())
    }
}

/// Main function of a thread.
type Thread = Box<dyn FnOnce() + Send>;

/// State that the threads share.
#[derive(Debug, Default)]
struct PoolState {
    helpers: Helpers,
    queues: Mutex<Vec<Arc<JobQueue>>>,
    /// Number of changes of `queues`.
    changes: AtomicUsize,
    quit: AtomicBool,
}

/// Starts a thread with the signals blocked.
fn spawn(name: String, thread: Thread) -> Result<JoinHandle<()>> {
    Ok(spawn_thread(name, thread)?)
}

impl Pool {
    /// Prepares `size` threads, which start with the first queue.
    pub(super) fn new(size: usize) -> Self {
        let helpers = Helpers::new(size);
        Self { shared: Arc::new(PoolState { helpers, ..PoolState::default() }), threads: Mutex::default() }
    }

    /// Returns the number of threads.
    pub(super) fn size(&self) -> usize {
        self.shared.helpers.size
    }

    pub(super) fn helpers(&self) -> &Helpers {
        &self.shared.helpers
    }

    /// Adds a queue that the threads help.
    ///
    /// # Errors
    ///
    /// The threads cannot be started. After this error, no thread runs.
    pub(super) fn add(&self, queue: &Arc<JobQueue>) -> Result<()> {
        self.start(spawn)?;
        // This measures the clock's rate now, so that the first wake-up does not have to.
        ticks_in(MAX_WAKE_UP_PART);
        let mut queues = lock(&self.shared.queues);
        queue.index.store(queues.len(), Ordering::Relaxed);
        queues.push(Arc::clone(queue));
        drop(queues);
        self.shared.queues_changed();
        Ok(())
    }

    /// Removes a queue. Threads may keep a reference briefly, but the queue has no more chunks for them.
    pub(super) fn remove(&self, queue: &Arc<JobQueue>) {
        let mut queues = lock(&self.shared.queues);
        let index = queue.index.load(Ordering::Relaxed);
        // The last queue takes the place, because a search would take long if there are many queues.
        if queues.get(index).is_some_and(|other| Arc::ptr_eq(other, queue)) {
            queues.swap_remove(index);
            if let Some(moved) = queues.get(index) {
                moved.index.store(index, Ordering::Relaxed);
            }
        }
        drop(queues);
        self.shared.queues_changed();
    }

    /// Starts all threads, unless they are running.
    fn start(&self, spawn: impl Fn(String, Thread) -> Result<JoinHandle<()>>) -> Result<()> {
        let mut threads = lock(&self.threads);
        if threads.handles.is_empty() {
            threads.process = Some(ForkMark::new());
        }
        while threads.handles.len() < self.size() {
            let (shared, first) = (Arc::clone(&self.shared), threads.handles.len());
            match spawn(format!("dma-cpu-{first}"), Box::new(move || shared.serve(first))) {
                Ok(thread) => threads.handles.push(thread),
                Err(e) => {
                    self.end(&mut threads.handles);
                    return Err(e.with_hint(
                        "raise the limits of threads and of the address space, or open the engine with fewer `threads`",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Ends the threads and waits until they have exited. The threads can be started again.
    fn end(&self, threads: &mut Vec<JoinHandle<()>>) {
        self.shared.quit.store(true, Ordering::SeqCst);
        self.shared.helpers.wake_all();
        for thread in threads.drain(..) {
            // `join` fails if the thread panicked, but then it has also exited.
            let _ = thread.join();
        }
        self.shared.quit.store(false, Ordering::SeqCst);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut threads = std::mem::take(&mut *lock(&self.threads));
        if threads.are_ours() {
            self.end(&mut threads.handles);
        } else {
            // A forked child does not have these threads, and joining them would panic.
            std::mem::forget(threads.handles);
        }
    }
}

impl PoolState {
    fn queues_changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        // Sleeping threads are woken, because they still have references to removed queues.
        self.helpers.wake_all();
    }

    /// Main loop of a thread.
    fn serve(&self, first: usize) {
        let mut queues = Vec::new();
        let mut changes = 0;
        let mut busy_period = BusyPeriod::default();
        let mut idle = None;
        let mut turn = first;
        while !self.quit.load(Ordering::Relaxed) {
            let now = self.changes.load(Ordering::Acquire);
            if now != changes {
                changes = now;
                queues.clone_from(&lock(&self.queues));
            }
            if self.round(&queues, turn, &mut busy_period) {
                idle = None;
                turn = turn.wrapping_add(1);
            } else if !self.helpers.is_idle_for_long(&mut idle) {
                std::hint::spin_loop();
            } else {
                self.helpers.earn(busy_period.done());
                self.helpers.sleep(|| {
                    self.quit.load(Ordering::Relaxed)
                        || self.changes.load(Ordering::Acquire) != changes
                        || queues.iter().any(|queue| queue.ring.has_work())
                });
                (idle, busy_period) = (None, BusyPeriod::default());
            }
        }
    }

    /// Copies one chunk of each queue, starting with another queue each time. Returns false if no queue had a
    /// chunk.
    fn round(&self, queues: &[Arc<JobQueue>], turn: usize, busy_period: &mut BusyPeriod) -> bool {
        let mut worked = false;
        for at in 0..queues.len() {
            let queue = &queues[at.wrapping_add(turn) % queues.len()];
            worked |= queue.work(&self.helpers, busy_period).is_some();
        }
        worked
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("shared", &self.shared).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::helpers::wait_until;
    use super::*;

    /// Each running thread holds an `Arc` of the shared state.
    fn running(pool: &Pool) -> usize {
        Arc::strong_count(&pool.shared) - 1
    }

    #[test]
    fn a_thread_that_cannot_be_started_ends_the_others() {
        let pool = Pool::new(5);
        for able in [3, 0, 4] {
            let refuse = |name: String, thread: Thread| match name.strip_prefix("dma-cpu-") {
                Some(number) if number.parse::<usize>().unwrap() < able => spawn(name, thread),
                _ => Err(dma_core::Error::bare(dma_core::ErrorKind::OutOfResources)),
            };
            assert!(pool.start(refuse).unwrap_err().hint().contains("fewer `threads`"));
            assert_eq!(running(&pool), 0, "all of the {able} started threads have ended");
        }
        pool.start(spawn).unwrap();
        assert_eq!(running(&pool), 5, "and they stay");
        pool.start(|_, _| panic!("all are there")).unwrap();
    }

    /// A called thread wakes once per call, and in the end all threads sleep.
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
        assert_eq!(helpers.sleepers.load(Ordering::Relaxed), 3, "no thread is counted twice");
        helpers.call_one();
        helpers.call_one();
        rest();
        assert!(helpers.stall.load(Ordering::Relaxed) > 0 && helpers.delay.load(Ordering::Relaxed) > 0);
    }

    /// Threads also end while they are about to sleep, or after they were woken for a removed queue.
    #[test]
    fn threads_end_at_any_moment() {
        const TURNS: u64 = 500;
        let (ended, ends) = std::sync::mpsc::channel();
        let test = std::thread::spawn(move || {
            for turn in 0..TURNS {
                let pool = Pool::new(3);
                pool.start(spawn).unwrap();
                let (begun, pause) = (Instant::now(), Duration::from_nanos(20_000 + turn * 7919 % 120_000));
                while begun.elapsed() < pause {
                    std::thread::yield_now();
                }
                pool.shared.queues_changed();
                drop(pool);
                ended.send(()).unwrap();
            }
        });
        (0..TURNS).for_each(|_| ends.recv_timeout(Duration::from_secs(60)).expect("they end"));
        test.join().unwrap();
    }
}
