//! [`Pool`]: the threads that copy for all queues of an engine.

use std::fmt;
use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dma_core::{Error, Result};

use super::lane::Lane;

/// How long a thread looks in vain before it goes to sleep, however many queues there are.
const SPIN: Duration = Duration::from_micros(20);

/// The threads, and the right to end them: they go with it.
pub(super) struct Pool {
    helpers: Arc<Helpers>,
    size: usize,
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

/// What a thread does.
type Thread = Box<dyn FnOnce() + Send>;

/// What the threads share with the queues.
#[derive(Debug, Default)]
pub(super) struct Helpers {
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// Counts the changes of `lanes`.
    changes: AtomicUsize,
    sleepers: AtomicUsize,
    /// Counts the calls that wake.
    calls: Mutex<usize>,
    wake: Condvar,
    quit: AtomicBool,
}

impl Pool {
    /// `size` threads, which start with the first queue.
    pub(super) fn new(size: usize) -> Self {
        Self { helpers: Arc::default(), size, threads: Mutex::default() }
    }

    /// How many threads there are.
    pub(super) fn size(&self) -> usize {
        self.size
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
        while threads.handles.len() < self.size {
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
    /// Wakes one thread, if any sleeps, for chunks that can be claimed already. See [`Lane::work`] for the next.
    #[inline]
    pub(super) fn wake_one(&self) {
        // Either this sees the sleeper, or the sleeper sees the chunk.
        fence(Ordering::SeqCst);
        if self.any_asleep() {
            self.call_one();
        }
    }

    fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.any_asleep() {
            self.call(true);
        }
    }

    /// Whether any thread sleeps, or is about to. To be asked behind a fence, see [`Self::wake_one`].
    #[inline]
    pub(super) fn any_asleep(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Wakes one thread that sleeps.
    pub(super) fn call_one(&self) {
        self.call(false);
    }

    #[cold]
    fn call(&self, all: bool) {
        *lock(&self.calls) += 1;
        if all {
            self.wake.notify_all();
        } else {
            self.wake.notify_one();
        }
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
        let mut idle = None;
        let mut turn = first;
        while !self.quit.load(Ordering::Relaxed) {
            let now = self.changes.load(Ordering::Acquire);
            if now != changes {
                changes = now;
                lanes.clone_from(&lock(&self.lanes));
            }
            if self.round(&lanes, turn) {
                idle = None;
                turn = turn.wrapping_add(1);
            } else if idle.get_or_insert_with(Instant::now).elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                self.sleep(|| {
                    self.quit.load(Ordering::Relaxed)
                        || self.changes.load(Ordering::Acquire) != changes
                        || lanes.iter().any(|lane| lane.ring.has_work())
                });
                idle = None;
            }
        }
    }

    /// One chunk of each lane, beginning with another one each time. Returns whether there was any.
    fn round(&self, lanes: &[Arc<Lane>], turn: usize) -> bool {
        let mut worked = false;
        for at in 0..lanes.len() {
            let lane = &lanes[at.wrapping_add(turn) % lanes.len()];
            worked |= lane.work(self).is_some();
        }
        worked
    }

    /// Sleeps until called, unless `stay`.
    fn sleep(&self, stay: impl Fn() -> bool) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let before = *lock(&self.calls);
        // See `wake_one`.
        fence(Ordering::SeqCst);
        if !stay() {
            let mut calls = lock(&self.calls);
            while *calls == before {
                calls = self.wake.wait(calls).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("size", &self.size)
            .field("helpers", &self.helpers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
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
}
