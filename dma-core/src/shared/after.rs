//! [`After`]: what the end of an operation leaves to be run, and how code that is not ours is run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::queue::planner::News;

/// What the end of an operation leaves to be run: users' code, which may take its time, panic, and call the queue. So it waits until no lock
/// is held.
pub(super) enum After {
    /// The task that waits is to be woken.
    Wake(Waker),
    /// The holder has gone: its operands are to be dropped. The slot is free.
    Drop(Box<dyn Any + Send>),
    /// The log is to be told, of this backend.
    Tell(News, &'static str),
}

impl After {
    /// Runs it. A panic ends here: the thread happens to be at the device, and other operations need it.
    pub(super) fn run(self) {
        match self {
            Self::Wake(waker) => guarded("a task's waker", || waker.wake()),
            Self::Drop(operands) => guarded("the drop of a transfer's operands", || drop(operands)),
            Self::Tell(news, backend) => guarded("the log", || news.tell(backend)),
        };
    }
}

/// Runs `f`, which is not ours, and returns `None` if it panicked.
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
    // Who listens to the log may panic too, and so may what was thrown, as it is dropped.
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
