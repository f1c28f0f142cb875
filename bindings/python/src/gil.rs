//! [`Gil`]: values that only the thread with Python's global lock accesses.
#![expect(unsafe_code, reason = "the global lock replaces a lock of each value")]

use pyo3::Python;

/// A value that only the thread that holds Python's global lock accesses. `Cell` and `RefCell` inside it need no
/// other lock. A borrow must end before the lock is released: otherwise another thread's borrow panics.
pub(crate) struct Gil<T>(T);

// SAFETY: `get` is the only access, and its token proves that the calling thread holds the global lock. One such
// lock exists in the process: build.rs refuses interpreters without it, and PyO3 refuses a second interpreter. A
// lock also orders the accesses of different threads.
unsafe impl<T: Send> Sync for Gil<T> {}

impl<T> Gil<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    #[inline]
    pub(crate) const fn get<'a>(&'a self, _lock: Python<'a>) -> &'a T {
        &self.0
    }
}
