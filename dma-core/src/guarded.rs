//! [`guarded`]: runs code of the program, and catches its panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the program, such as a waker, the destructor of an owner of memory, or a log subscriber.
/// Catches and logs its panic, because the thread also serves other operations. Returns `None` if it
/// panicked. `what` is the subject of the log message.
///
/// Engines and their threads call this wherever the caller is not the code's own task.
pub fn guarded<R>(what: &str, f: impl FnOnce() -> R) -> Option<R> {
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
