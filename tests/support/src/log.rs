//! A log subscriber for tests of what is logged, and of subscribers that panic or use the library.

use std::sync::Once;

use tracing::{Event, Metadata, Subscriber, span, subscriber};

/// A log subscriber that calls a closure at every event.
struct Log<F>(F);

impl<F: Fn(&Event<'_>) + 'static> Subscriber for Log<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        (self.0)(event);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Makes a log subscriber that calls `event` the one of the process.
pub fn set_log(event: impl Fn(&Event<'_>) + Send + Sync + 'static) {
    subscriber::set_global_default(Log(event)).expect("the only subscriber of the process");
}

/// Runs `act` with a log subscriber that calls `event`.
pub fn with_log<R>(event: impl Fn(&Event<'_>) + Send + Sync + 'static, act: impl FnOnce() -> R) -> R {
    // Set a second subscriber. If there is only one, and another thread logs an event first, `tracing` may
    // cache that no subscriber wants the event (`tracing-core` 0.1.36, `Dispatchers::has_just_one`).
    static GLOBAL: Once = Once::new();
    GLOBAL.call_once(|| set_log(|_| ()));
    subscriber::with_default(Log(event), act)
}
