//! [`ForkLock`]: a lock of the whole process, which a forked child does not inherit.
#![expect(unsafe_code, reason = "reads a value that is never freed, through a pointer")]

use std::fmt;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::ProcessLock;

/// A mutex for a `static`. A forked child gets a new mutex with a new value.
///
/// At a fork, another thread of the parent may hold the lock. That thread does not exist in the child, so
/// nothing would ever release the child's copy of the lock, and the copy of the value may be half changed.
/// The child leaks both.
///
/// ```
/// use dma_process::ForkLock;
///
/// static NAMES: ForkLock<Vec<String>> = ForkLock::new(Vec::new);
///
/// NAMES.lock().push("first".to_owned());
/// assert_eq!(NAMES.lock().len(), 1);
/// ```
pub struct ForkLock<T> {
    /// The lock of the process that used this value last. Null before the first use.
    current: AtomicPtr<ProcessLock<T>>,
    init: fn() -> T,
}

impl<T> ForkLock<T> {
    /// Makes a lock whose value is made by `init` at the first use in each process. `init` must not take this
    /// lock.
    #[must_use]
    pub const fn new(init: fn() -> T) -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()), init }
    }
}

impl<T: Send> ForkLock<T> {
    /// Locks the value of this process. Blocks while another thread has the lock. Panics of earlier holders
    /// are ignored.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        let mut seen = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null, or comes from `Box::into_raw` below. It was published by this
            // atomic, and a published lock is never freed.
            let known = unsafe { seen.as_ref() };
            if let Some(locked) = known.and_then(ProcessLock::lock) {
                return locked;
            }
            let new = Box::into_raw(Box::new(ProcessLock::new((self.init)())));
            match self.current.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => seen = new,
                Err(other) => {
                    // Another thread of this process was faster.
                    // SAFETY: the pointer was made above, and was not published.
                    drop(unsafe { Box::from_raw(new) });
                    seen = other;
                }
            }
        }
    }
}

impl<T> fmt::Debug for ForkLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkLock").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::in_child;

    /// The child is forked while the lock is held, and nothing releases the child's copy of it.
    #[test]
    fn a_child_of_a_fork_within_the_lock_has_a_lock_and_a_value_of_its_own() {
        static LOCK: ForkLock<u32> = ForkLock::new(|| 1);
        *LOCK.lock() = 2;
        let mut held = LOCK.lock();
        *held = 3;
        // SAFETY: the child calls only functions that are permitted in a child of a process with threads, and
        // the allocator, which the C library keeps usable in a child.
        let fork = || unsafe { libc::fork() };
        assert!(in_child(fork, || {
            // SAFETY: the call sets a timer, whose signal ends this process if the lock is never released.
            unsafe { libc::alarm(60) };
            let new = *LOCK.lock() == 1;
            *LOCK.lock() = 7;
            new && *LOCK.lock() == 7
        }));
        drop(held);
        assert_eq!(*LOCK.lock(), 3);
    }

    #[test]
    fn threads_that_begin_together_share_one_value() {
        static LOCK: ForkLock<u32> = ForkLock::new(|| 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| *LOCK.lock() += 1);
            }
        });
        assert_eq!(*LOCK.lock(), 4);
    }
}
