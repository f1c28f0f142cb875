//! [`Gil`]: values that only the thread with Python's global lock accesses. [`detached`]: code without the
//! lock.
#![expect(unsafe_code, reason = "the global lock replaces a lock of each value")]

use std::sync::OnceLock;
use std::thread::{self, ThreadId};

use pyo3::Python;

/// A value that only the thread that holds Python's global lock accesses. `Cell` and `RefCell` inside it need
/// no other lock. A borrow must end before the lock is released: otherwise another thread's borrow panics.
pub(crate) struct Gil<T>(T);

// SAFETY: `get` is the only access, and its token proves that the calling thread holds the global lock. One
// such
// lock exists in the process: build.rs refuses interpreters without it, and PyO3 refuses a second
// interpreter. A lock also orders the accesses of different threads.
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

/// The thread that ends the interpreter.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Notes that the calling thread ends the interpreter. Called by `atexit`, when only daemon threads are left.
pub(crate) fn interpreter_ends() {
    let _ = ENDING.set(thread::current().id());
}

/// Calls `f` without Python's lock, and takes the lock again.
///
/// While the interpreter ends, a daemon thread does not return: up to Python 3.13, taking the lock would end
/// the thread by unwinding, which aborts the process in Rust's frames. Python ends such threads anyway.
pub(crate) fn detached<R: Send>(py: Python<'_>, f: impl FnOnce() -> R + Send) -> R {
    py.detach(|| {
        let result = f();
        if let Some(ending) = ENDING.get()
            && *ending != thread::current().id()
        {
            loop {
                thread::park();
            }
        }
        result
    })
}
