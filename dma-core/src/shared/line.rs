//! [`Line`]: the tasks that wait for room on a shared queue.
//!
//! A place that becomes free wakes one task, the first that has not been woken. One that finds room wakes the next as it goes, since there may be
//! room for that one, too; it may also go without using what it was woken for. One that finds none stays where it was in the line. So
//! no task sleeps while there is room, and a place that is used at once wakes two.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::task::Waker;

use super::sync::{AtomicU32, Mutex, Ordering};

/// On cache lines of its own: whoever frees a place reads it.
#[repr(align(128))]
pub(super) struct Line {
    /// Tasks in it that have not been woken: all that whoever frees a place looks at, mostly.
    sleeping: AtomicU32,
    tasks: Mutex<Tasks>,
}

struct Tasks {
    sleeping: u32,
    /// The number that the next one gets.
    next: u64,
    /// By their numbers.
    line: VecDeque<Task>,
}

struct Task {
    number: u64,
    /// `None` once woken.
    waker: Option<Waker>,
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            sleeping: AtomicU32::new(0),
            tasks: Mutex::new(Tasks { sleeping: 0, next: 0, line: VecDeque::new() }),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Tasks) -> R) -> R {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut tasks);
        self.sleeping.store(tasks.sleeping, Ordering::SeqCst);
        result
    }

    /// Has `waker` woken once there may be room, at the place `number` in the line, or at its end. Whoever calls this looks for room once more
    /// afterwards. Returns the number, and a waker to be dropped.
    pub(super) fn join(&self, number: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        self.with(|tasks| {
            if let Some(number) = number
                && let Ok(at) = tasks.line.binary_search_by_key(&number, |task| task.number)
            {
                let old = tasks.line[at].waker.replace(waker);
                tasks.sleeping += u32::from(old.is_none());
                return (number, old);
            }
            let number = tasks.next;
            tasks.next += 1;
            tasks.sleeping += 1;
            tasks.line.push_back(Task { number, waker: Some(waker) });
            (number, None)
        })
    }

    /// Takes a task out of the line. Returns its waker, to be dropped, unless it was woken: then the next one must be, unless there is no room.
    pub(super) fn leave(&self, number: u64) -> Option<Waker> {
        self.with(|tasks| {
            let at = tasks.line.binary_search_by_key(&number, |task| task.number).ok()?;
            let waker = tasks.line.remove(at)?.waker;
            tasks.sleeping -= u32::from(waker.is_some());
            waker
        })
    }

    /// The waker of the first task that has not been woken, to be woken. To be called after a place was given back.
    #[inline]
    pub(super) fn next(&self) -> Option<Waker> {
        if self.sleeping.load(Ordering::SeqCst) == 0 { None } else { self.wake_one() }
    }

    #[cold]
    fn wake_one(&self) -> Option<Waker> {
        self.with(|tasks| {
            let waker = tasks.line.iter_mut().find_map(|task| task.waker.take());
            tasks.sleeping -= u32::from(waker.is_some());
            waker
        })
    }

    /// The wakers of all: there is something that each of them must know.
    pub(super) fn all(&self) -> Vec<Waker> {
        self.with(|tasks| {
            tasks.sleeping = 0;
            tasks.line.iter_mut().filter_map(|task| task.waker.take()).collect()
        })
    }
}
