//! [`WaitQueue`]: the FIFO wait list of tasks that wait for room on a shared queue.
//!
//! A freed slot wakes the first task that has not been woken. A task that finds room wakes the next task when
//! it leaves the list, because there may be more room, and because it may not use the slot. A task that finds
//! no room keeps its position. As a result, no task sleeps while there is room. The cost is that one freed
//! slot may wake two tasks.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::task::Waker;

use crate::memory::sync::{AtomicU32, Mutex, Ordering};

/// The struct has its own cache lines, because every thread that frees a slot reads `sleeping`.
#[repr(align(128))]
pub(super) struct WaitQueue {
    /// Number of tasks that have not been woken.
    sleeping: AtomicU32,
    tasks: Mutex<Tasks>,
}

struct Tasks {
    sleeping: u32,
    /// The next task's number.
    next: u64,
    /// Sorted by number.
    queue: VecDeque<Task>,
}

struct Task {
    number: u64,
    /// The waker; `None` after the task was woken.
    waker: Option<Waker>,
}

impl WaitQueue {
    pub(super) fn new() -> Self {
        Self {
            sleeping: AtomicU32::new(0),
            tasks: Mutex::new(Tasks { sleeping: 0, next: 0, queue: VecDeque::new() }),
        }
    }

    /// Locks the list for `f`, and then updates `sleeping`.
    fn with<R>(&self, f: impl FnOnce(&mut Tasks) -> R) -> R {
        // Loom's mutex has another type than `dma_process::lock` takes.
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut tasks);
        self.sleeping.store(tasks.sleeping, Ordering::SeqCst);
        result
    }

    /// Registers `waker` for task `number`, or appends a new task to the list. The caller must then check for
    /// room again. Returns the task's number, and a waker for the caller to drop.
    pub(super) fn join(&self, number: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        self.with(|tasks| {
            if let Some(number) = number
                && let Ok(at) = tasks.queue.binary_search_by_key(&number, |task| task.number)
            {
                let old = tasks.queue[at].waker.replace(waker);
                tasks.sleeping += u32::from(old.is_none());
                return (number, old);
            }
            let number = tasks.next;
            tasks.next += 1;
            tasks.sleeping += 1;
            tasks.queue.push_back(Task { number, waker: Some(waker) });
            (number, None)
        })
    }

    /// Removes a task. Returns the task's waker for the caller to drop, or `None` if the task was woken. In
    /// that case the caller must wake the next task if there is room.
    pub(super) fn leave(&self, number: u64) -> Option<Waker> {
        self.with(|tasks| {
            let at = tasks.queue.binary_search_by_key(&number, |task| task.number).ok()?;
            let waker = tasks.queue.remove(at)?.waker;
            tasks.sleeping -= u32::from(waker.is_some());
            waker
        })
    }

    /// Returns the waker of the first task that has not been woken. Call this after a slot was freed.
    #[inline]
    pub(super) fn next(&self) -> Option<Waker> {
        if self.sleeping.load(Ordering::SeqCst) == 0 { None } else { self.wake_one() }
    }

    #[cold]
    fn wake_one(&self) -> Option<Waker> {
        self.with(|tasks| {
            let waker = tasks.queue.iter_mut().find_map(|task| task.waker.take());
            tasks.sleeping -= u32::from(waker.is_some());
            waker
        })
    }

    /// Returns the wakers of all tasks that have not been woken. Call this when the queue closes or its
    /// device has stalled.
    pub(super) fn all(&self) -> Vec<Waker> {
        self.with(|tasks| {
            tasks.sleeping = 0;
            tasks.queue.iter_mut().filter_map(|task| task.waker.take()).collect()
        })
    }
}
