//! [`deferred_log`](crate::deferred_log): log events of engines' queues, which are emitted after the call of
//! the engine, when the program may use the queue again.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::{ManuallyDrop, take};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Logs an event with `tracing`, and catches a panic of the program's log subscriber, as
/// [`guarded_log`](crate::guarded_log) does. Within a call of a [`RawQueue`](crate::RawQueue), the event is
/// emitted after the caller of the queue has released its lock. The log subscriber may then use the queue,
/// and the engine holds no lock of its own. The events of a queue keep their order. Elsewhere, the event is
/// emitted at once.
///
/// A queue logs with this macro in its methods that take `&mut self` and in its drop. So does all code that
/// they call. The event owns the variables that its fields name, which must be `Send` and `'static`:
///
/// ```
/// # struct Channel { address: String }
/// # let (channel, in_flight) = (Channel { address: "00:04.0".to_owned() }, 3);
/// let address = channel.address.clone();
/// dma_core::deferred_log!(warn, %address, in_flight, "a channel halted");
/// ```
#[macro_export]
macro_rules! deferred_log {
    (@level error) => { tracing::Level::ERROR };
    (@level warn) => { tracing::Level::WARN };
    (@level info) => { tracing::Level::INFO };
    (@level debug) => { tracing::Level::DEBUG };
    (@level trace) => { tracing::Level::TRACE };
    ($level:ident, $($event:tt)+) => {{
        // An event that no subscriber wants allocates nothing.
        if $crate::deferred_log!(@level $level) <= tracing::level_filters::LevelFilter::current() {
            $crate::log_event(move || tracing::$level!($($event)+));
        }
    }};
}

/// A log event that is emitted later.
pub(crate) struct DeferredEvent(Box<dyn FnOnce() + Send>);

impl fmt::Debug for DeferredEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredEvent").finish_non_exhaustive()
    }
}

/// The state of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InCall {
    /// Outside of calls of engines' queues.
    No,
    /// In a call, which has deferred no event.
    Yes,
    /// In a call, which has deferred events.
    HasLogged,
}

thread_local! {
    static IN_CALL: Cell<InCall> = const { Cell::new(InCall::No) };
    /// The events of this thread's calls. The list is empty outside of calls, so it needs no destructor, and
    /// the destructors of other thread-locals may call engines.
    static EVENTS: ManuallyDrop<RefCell<Vec<DeferredEvent>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// A call of an engine's queue by this thread, which may be within a call of another queue. Pass the value to
/// [`end`].
pub(crate) struct OuterCall(InCall);

/// Returns whether events of this thread are deferred now, because a caller holds a lock. Then no log
/// subscriber may be called.
#[doc(hidden)]
#[must_use]
pub fn defers_log() -> bool {
    IN_CALL.get() != InCall::No
}

/// Begins a call, in which events are deferred.
#[inline]
pub(crate) fn begin() -> OuterCall {
    OuterCall(IN_CALL.replace(InCall::Yes))
}

/// Ends a call. Returns whether there are events to [`take_events`].
#[inline]
pub(crate) fn end(outer: &OuterCall) -> bool {
    IN_CALL.replace(outer.0) == InCall::HasLogged
}

/// Removes and returns the deferred events of this thread, in their order.
#[cold]
pub(crate) fn take_events() -> Vec<DeferredEvent> {
    EVENTS.with(|events| take(&mut *events.borrow_mut()))
}

impl DeferredEvent {
    /// Emits the event, and catches a panic of the program's log subscriber. In a call of another queue,
    /// whose engine uses this queue, the event is deferred again.
    pub(crate) fn emit(self) {
        if defers_log() {
            self.defer();
        } else {
            emit_now(self.0);
        }
    }

    fn defer(self) {
        EVENTS.with(|events| events.borrow_mut().push(self));
        IN_CALL.set(InCall::HasLogged);
    }
}

/// Runs `f`. The events that `f` logs with [`deferred_log`](crate::deferred_log) are emitted when `f` has
/// returned or panicked. Within a call of a [`RawQueue`](crate::RawQueue), they are emitted after this call.
/// An engine uses this function for code that holds a lock of the engine, logs, and also runs outside of the
/// calls of queues.
pub fn with_deferred_log<R>(f: impl FnOnce() -> R) -> R {
    /// Emits the events when it is dropped.
    struct Emits(OuterCall);

    impl Drop for Emits {
        fn drop(&mut self) {
            if end(&self.0) {
                take_events().into_iter().for_each(DeferredEvent::emit);
            }
        }
    }

    let emits = Emits(begin());
    let result = f();
    drop(emits);
    result
}

/// Emits a log event after the current call of an engine's queue, or at once outside of such calls. For
/// [`deferred_log`](crate::deferred_log).
#[doc(hidden)]
pub fn log_event(event: impl FnOnce() + Send + 'static) {
    if defers_log() {
        DeferredEvent(Box::new(event)).defer();
    } else {
        emit_now(event);
    }
}

/// Emits a log event, and catches a panic of the program's log subscriber.
fn emit_now(event: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(event)) {
        report_panic("the log", panic);
    }
}

/// Logs the panic of a part of the program, of which `what` is the name.
#[cold]
pub(crate) fn report_panic(what: &str, panic: Box<dyn Any + Send>) {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let text = format!("{what} panicked: {message}");
    // The log subscriber may also panic, and then the drop of the payload. Two panics at once would abort.
    if defers_log() {
        log_event(move || tracing::error!("{text}"));
    } else {
        ignore_panic(|| tracing::error!("{text}"));
    }
    ignore_panic(|| drop(panic));
}

fn ignore_panic(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(panic);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::{Arc, Mutex};

    use test_support::log::with_log;

    use super::*;

    /// Runs `act` with a function that appends to a list. The log subscriber also appends to the list, once
    /// for each event. Returns the list.
    fn list(act: impl FnOnce(&dyn Fn(&'static str))) -> Vec<&'static str> {
        let list = Arc::<Mutex<Vec<&'static str>>>::default();
        let of_log = Arc::clone(&list);
        let push = |list: &Mutex<Vec<_>>, text| list.lock().expect("no thread panics").push(text);
        with_log(
            move |event| push(&of_log, event.metadata().level().as_str()),
            || act(&|text| push(&list, text)),
        );
        let list = list.lock().expect("no thread panics");
        list.clone()
    }

    #[test]
    fn events_are_emitted_in_order_after_the_call() {
        let outside = list(|push| {
            crate::deferred_log!(warn, "an event");
            push("then");
        });
        assert_eq!(outside, ["WARN", "then"]);
        let nested = list(|push| {
            with_deferred_log(|| {
                crate::deferred_log!(error, "an event");
                with_deferred_log(|| crate::deferred_log!(warn, number = 7, "an event"));
                push("inner");
                crate::deferred_log!(info, "an event");
                push("outer");
            });
            push("after");
        });
        assert_eq!(nested, ["inner", "outer", "ERROR", "WARN", "INFO", "after"]);
    }

    #[test]
    fn a_panic_loses_no_event() {
        let events = list(|push| {
            let unwound = catch_unwind(|| {
                with_deferred_log(|| {
                    crate::deferred_log!(warn, "an event");
                    panic!("this test panics");
                });
            });
            unwound.expect_err("it panics");
            push("after");
            crate::deferred_log!(info, "an event");
        });
        assert_eq!(events, ["WARN", "after", "INFO"]);
    }
}
