//! [`guarded`] and [`guarded_log`](crate::guarded_log): run code of the program, and catch its panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::deferred_log::report_panic;

/// Runs code of the program, such as a waker, the destructor of an owner of memory, or a log subscriber.
/// Catches and logs its panic, because the thread also serves other operations. Returns `None` if it
/// panicked. `what` is the subject of the log message.
///
/// Engines and their threads call this wherever the caller is not the code's own task.
pub fn guarded<R>(what: &str, f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => Some(result),
        Err(panic) => {
            report_panic(what, panic);
            None
        }
    }
}

/// Logs an event with `tracing`, and catches a panic of the program's log subscriber. The arguments after
/// `warn` in `guarded_log!(warn, ...)` are those of `tracing::warn!`.
///
/// The crates of this library log with this macro, because a panic would end a thread or a queue that other
/// operations use. The queues of engines log with [`deferred_log`](crate::deferred_log).
#[macro_export]
macro_rules! guarded_log {
    ($level:ident, $($event:tt)+) => {{
        $crate::guarded("the log", || tracing::$level!($($event)+));
    }};
}

/// Wakes a task, and catches a panic of its waker.
pub(crate) fn wake(waker: Waker) {
    guarded("a task's waker", || waker.wake());
}

/// Drops a task's waker, which may run code of the program, and catches its panic.
pub(crate) fn drop_waker(waker: Option<Waker>) {
    if let Some(waker) = waker {
        guarded("the drop of a task's waker", || drop(waker));
    }
}

/// Drops the operands of a transfer that was dropped before its operation ended, and catches the panic of a
/// destructor.
pub(crate) fn drop_operands<T: ?Sized>(operands: Box<T>) {
    guarded("the drop of a transfer's operands", || drop(operands));
}

/// Moves the operands of a transfer that was dropped early to the heap. Without memory for that, leaks them,
/// because the device may still write to them, and returns a box in their place.
pub(crate) fn box_or_leak<T: 'static>(operands: T) -> Result<Box<[T; 1]>, Box<()>> {
    // A box is made from a list, because only a list can be allocated without an abort.
    let mut list = Vec::new();
    if list.try_reserve_exact(1).is_err() {
        std::mem::forget(operands);
        return Err(Box::new(()));
    }
    list.push(operands);
    list.try_into().map_err(|_| unreachable!("the list has one item"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use test_support::log::with_log;

    use super::*;

    /// A panic's payload, or a value, whose drop panics.
    struct PanickingDrop;

    impl Drop for PanickingDrop {
        fn drop(&mut self) {
            panic!("a drop panics");
        }
    }

    #[test]
    fn no_panic_gets_through() {
        assert_eq!(guarded("this", || 7), Some(7));
        assert_eq!(guarded("this", || drop(PanickingDrop)), None);
        assert_eq!(guarded("this", || std::panic::panic_any(PanickingDrop)), None::<()>);
        let log = |_: &tracing::Event<'_>| panic!("this log subscriber panics");
        with_log(log, || {
            crate::guarded_log!(warn, number = 7, "an event");
            assert_eq!(guarded("this", || std::panic::panic_any(PanickingDrop)), None::<()>);
        });
    }
}
