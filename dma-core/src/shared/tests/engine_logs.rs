//! Tests of engines that log in the calls of their queues.

use std::sync::{MutexGuard, PoisonError};

use super::*;

/// The messages of log events.
#[derive(Clone, Debug, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl Messages {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.lock().push(message.0);
    }

    /// Returns the messages, without repetitions of the messages of polls.
    fn take(&self) -> Vec<String> {
        let mut all = std::mem::take(&mut *self.lock());
        let mut known = Vec::new();
        all.retain(|message| {
            let is_new = !message.ends_with("polls") || !known.contains(message);
            known.push(message.clone());
            is_new
        });
        all
    }
}

/// Runs `act` on another thread, and fails if it hangs.
#[track_caller]
fn within_limit(act: impl FnOnce() + Send + 'static) {
    let (done, receiver) = signal();
    std::thread::spawn(move || {
        act();
        done();
    });
    heard(&receiver);
}

/// Returns a log subscriber that calls the methods of the rig's queue at the first event, copies and waits.
/// Then it calls `done`.
fn uses_queue(rig: &Rig, done: impl Fn() + Send + Sync + 'static) -> impl Fn() + Send + Sync + 'static {
    let memory = || rig.engine.allocate(32).expect("memory");
    let first = Mutex::new(Some((rig.queue.clone(), memory(), memory())));
    move || {
        let first = first.lock().expect("no thread panics while it holds the lock").take();
        let Some((queue, src, dst)) = first else { return };
        assert!(queue.counters().submitted > 0);
        assert_eq!(queue.stalled(), None);
        assert!(queue.available() > 0);
        queue.copy(src, dst).expect("room").wait().expect("it is copied");
        done();
    }
}

#[test]
fn the_log_may_use_the_queue_of_an_engine_that_logs() {
    let rig = Rig::still();
    rig.script.logs.store(true, SeqCst);
    let (done, receiver) = signal();
    let uses = uses_queue(&rig, done);
    let transfer = rig.copy(|| ());
    std::thread::spawn(move || with_log(move |_| uses(), || transfer.wait().expect("it is copied")));
    heard(&receiver);
}

#[test]
fn the_log_may_use_the_queue_on_the_lanes_thread() {
    let (log, logs) = channel::<Box<dyn Fn() + Send + Sync>>();
    let rig = Rig::with(move |lane| {
        let uses = logs.recv().expect("the test sends the subscriber");
        with_log(move |_| uses(), || lane.serve());
    });
    rig.script.logs.store(true, SeqCst);
    let (done, receiver) = signal();
    log.send(Box::new(uses_queue(&rig, done))).expect("the lane's thread waits");
    drop(rig.copy(|| ()));
    heard(&receiver);
}

#[test]
fn events_of_engines_keep_their_order() {
    let rig = Rig::still();
    rig.script.logs.store(true, SeqCst);
    rig.script.fails.store(true, SeqCst);
    let messages = Messages::default();
    let of_log = messages.clone();
    let transfer = rig.copy(|| ());
    with_log(move |event| of_log.add(event), || transfer.wait().expect_err("it failed"));
    assert_eq!(messages.take(), ["the engine polls", "the engine still polls", "operation failed"]);
}

#[test]
fn a_panicking_log_costs_no_operation_of_an_engine_that_logs() {
    let rig = Rig::still();
    rig.script.logs.store(true, SeqCst);
    let messages = Messages::default();
    let of_log = messages.clone();
    let full = move |event: &tracing::Event<'_>| {
        of_log.add(event);
        panic!("this log subscriber panics");
    };
    let transfer = rig.copy(|| ());
    with_log(full, || transfer.wait().expect("it is copied"));
    let messages = messages.lock().clone();
    let panics = messages.iter().filter(|message| message.starts_with("the log panicked")).count();
    assert_eq!((messages.len(), panics), (4, 2), "{messages:?}");
}

#[test]
fn an_engine_that_panics_loses_no_event() {
    let rig = Rig::still();
    rig.script.logs.store(true, SeqCst);
    rig.script.panics.store(true, SeqCst);
    let messages = Messages::default();
    let (of_log, queue) = (messages.clone(), rig.queue.clone());
    let transfer = rig.copy(|| ());
    let uses = move |event: &tracing::Event<'_>| {
        of_log.add(event);
        _ = queue.counters();
    };
    within_limit(move || {
        with_log(uses, || {
            catch_unwind(AssertUnwindSafe(|| drop(transfer.wait()))).expect_err("the engine panics");
            rig.lane().drive(Caller::Closer);
        });
    });
    let messages = messages.take();
    let expected = ["the engine polls", "the engine still polls"];
    let ends = |at: usize, with: &str| messages.get(at).is_some_and(|message| message.starts_with(with));
    assert!(messages.starts_with(&expected.map(String::from)), "{messages:?}");
    assert!(ends(2, "an engine panicked") || ends(3, "an engine panicked"), "{messages:?}");
}

#[test]
fn the_log_may_use_a_queue_whose_engine_panics_as_it_is_dropped() {
    let rig = Rig::still();
    rig.script.logs.store(true, SeqCst);
    rig.script.drop_panics.store(true, SeqCst);
    let messages = Messages::default();
    let (of_log, queue) = (messages.clone(), rig.queue.clone());
    let uses = move |event: &tracing::Event<'_>| {
        of_log.add(event);
        _ = queue.counters();
    };
    within_limit(move || with_log(uses, || rig.lane().drain(rig.lane().close(Instant::now()))));
    let expected =
        ["the engine drops its queue", "the engine panicked: this test makes the engine's drop panic"];
    assert_eq!(messages.take(), expected);
}

#[test]
fn a_queue_that_is_closed_loses_no_event() {
    let rig = Rig::still();
    rig.mute(true);
    rig.script.stops.store(true, SeqCst);
    let transfer = rig.copy(|| ());
    rig.script.logs.store(true, SeqCst);
    let messages = Messages::default();
    let (of_log, queue) = (messages.clone(), rig.queue.clone());
    let uses = move |event: &tracing::Event<'_>| {
        of_log.add(event);
        _ = queue.counters();
    };
    within_limit(move || {
        with_log(uses, || rig.lane().drain(rig.lane().close(Instant::now())));
        drop(transfer);
    });
    let messages = messages.take();
    let at = |text| messages.iter().position(|message| message == text);
    let (polls, stops) = (at("the engine polls"), at("the engine stops"));
    assert!(polls.is_some() && polls < stops, "{messages:?}");
    assert_eq!(at("the engine drops its queue"), Some(messages.len() - 1), "{messages:?}");
}
