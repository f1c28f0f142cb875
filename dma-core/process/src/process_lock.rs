//! [`ProcessLock`]: the lock of an object, which a forked child cannot take.
#![expect(unsafe_code, reason = "keeps a forked child from dropping a value that is half changed")]

use crate::lock;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::ForkMark;

/// A mutex that belongs to the process that made it. In a forked child, [`lock`](Self::lock) returns `None`.
///
/// At a fork, another thread of the parent may hold the lock. That thread does not exist in the child, so
/// nothing would ever release the child's copy of the lock, and the copy of the value may be half changed.
/// If a child drops such a lock, it leaks the value.
///
/// ```
/// use dma_process::ProcessLock;
///
/// let names = ProcessLock::new(Vec::new());
/// names.lock().expect("the process was not forked").push("first");
/// assert_eq!(names.lock().map(|names| names.len()), Some(1));
/// ```
#[derive(Debug)]
pub struct ProcessLock<T> {
    process: ForkMark,
    value: ManuallyDrop<Mutex<T>>,
}

impl<T> ProcessLock<T> {
    /// Makes a lock of this process.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { process: ForkMark::new(), value: ManuallyDrop::new(Mutex::new(value)) }
    }

    /// Locks the value. Blocks while another thread has the lock. Panics of earlier holders are ignored.
    /// Returns `None` in a forked child of the process that made the lock.
    #[inline]
    pub fn lock(&self) -> Option<MutexGuard<'_, T>> {
        (!self.process.is_child()).then(|| lock(&self.value))
    }
}

impl<T: Default> Default for ProcessLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Drop for ProcessLock<T> {
    fn drop(&mut self) {
        // No thread of this process has the lock while it is dropped, so a thread of the parent had it.
        if self.process.is_child() && matches!(self.value.try_lock(), Err(TryLockError::WouldBlock)) {
            return;
        }
        // SAFETY: the value is dropped once, because the lock is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.value) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fork::in_child;

    fn fork() -> libc::pid_t {
        // SAFETY: the child calls only functions that are permitted in a child of a process with threads, and
        // the allocator, which the C library keeps usable in a child.
        unsafe { libc::fork() }
    }

    /// The child is forked while the lock is held, and nothing releases the child's copy of it.
    #[test]
    fn a_child_of_a_fork_within_the_lock_neither_waits_for_it_nor_drops_the_value() {
        let value = Arc::new(());
        let lock = ProcessLock::new(Arc::clone(&value));
        std::mem::forget(lock.lock());
        assert!(in_child(fork, || {
            // SAFETY: the call sets a timer, whose signal ends this process if it waits for the lock.
            unsafe { libc::alarm(60) };
            let refused = lock.lock().is_none();
            drop(lock);
            refused && Arc::strong_count(&value) == 2
        }));
    }

    #[test]
    fn a_value_that_was_not_locked_at_the_fork_is_dropped() {
        let value = Arc::new(());
        let lock = ProcessLock::new(Arc::clone(&value));
        assert!(in_child(fork, || {
            let refused = lock.lock().is_none();
            drop(lock);
            refused && Arc::strong_count(&value) == 1
        }));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
