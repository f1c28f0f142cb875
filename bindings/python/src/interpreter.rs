//! [`State`]: values that threads with the interpreter access, one at a time. [`detached`]: code without the
//! interpreter, during which other threads run Python.
#![cfg_attr(
    not(Py_GIL_DISABLED),
    expect(unsafe_code, reason = "the global lock replaces a lock of each value")
)]

use std::sync::OnceLock;
use std::thread::{self, ThreadId};

use pyo3::Python;

pub(crate) use state::State;

/// Operations of more bytes than this run without Python's lock, so that other threads run. Releasing the
/// lock and taking it again costs about as much as copying this many bytes.
pub(crate) const LOCKED_MAX: usize = 8 << 10;

/// Python has a global lock, which also protects these values.
#[cfg(not(Py_GIL_DISABLED))]
mod state {
    use std::cell::{Ref, RefCell, RefMut};

    use pyo3::Python;

    /// A value that only the thread that holds Python's global lock accesses. A borrow must end before the
    /// thread calls Python or releases the lock: otherwise another borrow panics.
    pub(crate) struct State<T>(RefCell<T>);

    // SAFETY: `read` and `write` are the only accesses, and their token proves that the calling thread holds
    // the global lock. One such lock exists in the process: this module is compiled only for interpreters
    // that have it, and PyO3 refuses a second interpreter. A lock also orders the accesses of different
    // threads.
    unsafe impl<T: Send> Sync for State<T> {}

    impl<T> State<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(RefCell::new(value))
        }

        #[inline]
        pub(crate) fn read<'a>(&'a self, _python: Python<'a>) -> Ref<'a, T> {
            self.0.borrow()
        }

        #[inline]
        pub(crate) fn write<'a>(&'a self, _python: Python<'a>) -> RefMut<'a, T> {
            self.0.borrow_mut()
        }
    }
}

/// Python's threads run in parallel, so each value has a lock.
#[cfg(Py_GIL_DISABLED)]
mod state {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use pyo3::Python;

    /// A value under a lock. A guard must be dropped before the thread calls Python or detaches from it: the
    /// interpreter may then stop the thread until all other threads have stopped, and one of these may wait
    /// for the lock.
    pub(crate) struct State<T>(Mutex<T>);

    impl<T> State<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        #[inline]
        pub(crate) fn read<'a>(&'a self, python: Python<'a>) -> MutexGuard<'a, T> {
            self.write(python)
        }

        #[inline]
        pub(crate) fn write<'a>(&'a self, _python: Python<'a>) -> MutexGuard<'a, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// The thread that ends the interpreter.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Notes that the calling thread ends the interpreter. Called by `atexit`, when only daemon threads are left.
pub(crate) fn interpreter_ends() {
    let _ = ENDING.set(thread::current().id());
}

/// Calls `f` without the interpreter, and attaches to it again.
///
/// While the interpreter ends, a daemon thread does not return: up to Python 3.13, attaching would end the
/// thread by unwinding, which aborts the process in Rust's frames. Python ends such threads anyway.
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
