//! [`DeferredCallback`]: user code that runs after an operation has ended, while no lock is held.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::planner::LogEvent;

/// A user callback that runs while no lock is held. The callback may block, panic, or use the queue.
pub(super) enum DeferredCallback {
    /// Wakes the waiting task.
    Wake(Waker),
    /// Drops the operands of a transfer that was dropped early. The slot is already free.
    Drop(Box<dyn Any + Send>),
    /// Logs an event of a queue of this backend.
    Emit(LogEvent, &'static str),
}

impl DeferredCallback {
    /// Runs the callback and catches its panic, because other operations need this thread.
    pub(super) fn run(self) {
        match self {
            Self::Wake(waker) => guarded("a task's waker", || waker.wake()),
            Self::Drop(operands) => guarded("the drop of a transfer's operands", || drop(operands)),
            Self::Emit(event, backend) => guarded("the log", || event.emit(backend)),
        };
    }
}

/// Runs a user callback. Returns `None` if it panicked.
pub(super) fn guarded<R>(what: &str, f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => Some(result),
        Err(panic) => {
            report(what, panic);
            None
        }
    }
}

#[cold]
fn report(what: &str, panic: Box<dyn Any + Send>) {
    // The log subscriber and the drop of the payload may also panic.
    let reported = catch_unwind(AssertUnwindSafe(move || {
        let message = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        tracing::error!("{what} panicked: {message}");
    }));
    if let Err(another) = reported {
        std::mem::forget(another);
    }
}
