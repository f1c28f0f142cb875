//! Tests of program code that panics or uses the queue.

use super::*;

#[test]
fn a_destructor_may_use_the_queue() {
    let rig = Rig::new();
    let (done, receiver) = signal();
    let queue = rig.queue.clone();
    let engine = ReferenceEngine::new(ReferenceOptions::default());
    drop(rig.copy(move || {
        assert_eq!(queue.counters().completed, 1);
        let foreign = (engine.allocate(8).expect("memory"), engine.allocate(8).expect("memory"));
        assert!(queue.copy(foreign.0, foreign.1).is_err(), "of another engine");
        done();
    }));
    heard(&receiver);
}

#[test]
fn a_waker_may_use_the_queue() {
    let rig = Rig::new();
    rig.mute(true);
    let (done, receiver) = signal();
    let mut transfer = rig.copy(|| ());
    let queue = rig.queue.clone();
    let waker = waker(move || {
        assert_eq!(queue.counters().completed, 1);
        done();
    });
    assert!(poll(&mut transfer, &waker).is_pending());
    rig.mute(false);
    heard(&receiver);
    assert!(matches!(poll(&mut transfer, &waker), Poll::Ready(Ok(_))));
}

#[test]
fn a_panicking_destructor_costs_no_other_operation() {
    let rig = Rig::new();
    for _ in 0..3 {
        let (done, receiver) = signal();
        // The device reports nothing, so that the lane runs the destructor, and not this thread.
        rig.mute(true);
        drop(rig.copy(|| panic!("this test makes a destructor panic")));
        drop(rig.copy(done));
        rig.mute(false);
        heard(&receiver);
    }
    assert_eq!(rig.queue.close(HANGS).completed, 6);
}

#[test]
fn a_panicking_waker_costs_no_other_operation() {
    let rig = Rig::new();
    rig.mute(true);
    let mut unlucky = rig.copy(|| ());
    assert!(poll(&mut unlucky, &waker(|| panic!("this test makes a waker panic"))).is_pending());
    let (done, receiver) = signal();
    drop(rig.copy(done));
    rig.mute(false);
    heard(&receiver);
    assert!(unlucky.wait().is_ok());
}

#[test]
fn the_log_may_use_the_queue() {
    let rig = Rig::still();
    rig.script.fails.store(true, SeqCst);
    let (done, receiver) = signal();
    let queue = rig.queue.clone();
    let transfer = rig.copy(|| ());
    let uses = move |_: &tracing::Event<'_>| {
        assert_eq!(queue.counters().failed, 1);
        done();
    };
    std::thread::spawn(move || with_log(uses, || transfer.wait().expect_err("it failed")));
    heard(&receiver);
}

#[test]
fn a_panicking_log_costs_no_operation() {
    let rig = Rig::still();
    let full = |_: &tracing::Event<'_>| panic!("this log subscriber panics");
    rig.script.fails.store(true, SeqCst);
    let failed = rig.copy(|| ());
    assert_eq!(with_log(full, || failed.wait()).expect_err("it failed").kind(), ErrorKind::DeviceFault);
    rig.script.fails.store(false, SeqCst);
    assert!(rig.copy(|| ()).wait().is_ok(), "no engine panicked");
}

#[test]
fn a_panicking_destructor_spares_who_drives() {
    let rig = Rig::still();
    drop(rig.copy(|| panic!("this test makes a destructor panic")));
    let (done, receiver) = signal();
    drop(rig.copy(done));
    assert!(rig.copy(|| ()).wait().is_ok());
    heard(&receiver);
}

#[test]
fn a_wait_that_a_panic_unwinds_does_not_keep_the_queue() {
    let rig = Rig::still();
    let waited = rig.copy(|| ());
    rig.script.panics.store(true, SeqCst);
    catch_unwind(AssertUnwindSafe(|| drop(waited.wait()))).expect_err("the engine panics");
    let hub = rig.queue.downgrade();
    drop(rig.queue);
    assert!(hub.upgrade().is_none());
}

#[test]
fn a_waker_that_panics_as_it_is_let_go_costs_nobody_the_wake() {
    let rig = Rig::still();
    rig.mute(true);
    let mut transfer = rig.copy(|| ());
    let bad = Arc::new(LetGo(|| panic!("this test makes a waker panic"))).into();
    assert!(poll(&mut transfer, &bad).is_pending());
    drop(bad);
    let (done, receiver) = signal();
    let waker = waker(done);
    let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut transfer, &waker).is_pending()));
    assert!(polled.expect("the panic of another task's waker does not reach this task"));
    rig.mute(false);
    rig.lane().drive(Caller::Closer);
    receiver.try_recv().expect("the task is woken, otherwise it would sleep forever");
}

#[test]
fn wakers_that_nobody_will_wake_are_let_go() {
    let rig = Rig::still();
    rig.mute(true);
    let mut transfer = rig.copy(|| ());
    let (done, receiver) = signal();
    let waker = Arc::new(LetGo(done)).into();
    assert!(poll(&mut transfer, &waker).is_pending());
    drop(transfer);
    drop(waker);
    receiver.try_recv().expect("dropping the transfer drops its waker, which may keep the queue alive");
    rig.mute(false);
    rig.lane().drive(Caller::Closer);
}
