//! Tests of shared queues whose device completes nothing, or stops late.

use super::*;

/// Polls a future whenever its waker is called, until it is ready.
#[track_caller]
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let (wake, woken) = signal();
    let waker = waker(wake);
    loop {
        if let Poll::Ready(end) = poll(&mut future, &waker) {
            return end;
        }
        heard(&woken);
    }
}

/// An await fails as a wait does, and the queue keeps the operands until the device reports the operation.
#[test]
fn an_awaited_transfer_fails_if_the_device_stalls() {
    let rig = Rig::impatient(8);
    for _ in 0..2 {
        rig.mute(true);
        let (freed, receiver) = signal();
        let mut outlasts = rig.copy(|| ()).outlast_stalls();
        assert!(poll(&mut outlasts, Waker::noop()).is_pending());
        let error = block_on(rig.copy(freed)).expect_err("the device reports nothing");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(error.error().message().contains("completed nothing for"), "{error}");
        assert!(error.into_operands().is_none(), "the device may still write to the operands");
        assert!(poll(&mut outlasts, Waker::noop()).is_pending());
        receiver.try_recv().expect_err("the queue keeps the operands");
        assert_eq!(rig.queue.available(), 6);
        // Another task may begin to wait after the stall was detected.
        let error = block_on(rig.copy(|| ())).expect_err("the device reports nothing");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        rig.mute(false);
        heard(&receiver);
        block_on(outlasts).expect("the device has recovered");
        block_on(rig.copy(|| ())).expect("the device has recovered");
    }
    assert_eq!(rig.queue.close(HANGS).abandoned, 0);
}

/// A device that needs 0.7 s to stop is not abandoned, even if the thread that polls it does not run during
/// the grace period.
#[test]
fn a_device_that_stops_within_the_grace_period_keeps_its_memory() {
    for late in [Duration::from_millis(700), crate::STOP_GRACE + Duration::from_millis(50)] {
        let rig = Rig::new();
        rig.script.stops.store(true, SeqCst);
        *rig.script.stop_takes.lock().expect("no thread panics") = late;
        rig.mute(true);
        let copy = rig.copy(|| ());
        assert!(!copy.is_done());
        let counters = rig.queue.close(Duration::ZERO);
        assert_eq!((counters.aborted + counters.completed, counters.abandoned), (1, 0), "{late:?}");
        drop(copy);
    }
}

/// Requests that the lane has not taken from the inboxes are in flight.
#[test]
fn every_accepted_operation_is_counted() {
    let rig = Rig::still();
    let counts = || {
        let Counters { submitted, completed, in_flight, aborted, .. } = rig.queue.counters();
        (submitted, completed, in_flight, aborted)
    };
    rig.mute(true);
    let copies = [(); 3].map(|()| rig.copy(|| ()));
    assert_eq!(counts(), (3, 0, 3, 0), "the lane has not taken the requests");
    let pair = || (rig.engine.allocate(32).expect("memory"), rig.engine.allocate(32).expect("memory"));
    let batch = rig.queue.submit((0..4).map(|_| pair()).collect::<Batch<_, _>>()).expect("room");
    assert_eq!(counts(), (7, 0, 7, 0));
    assert!(!batch.is_done());
    assert_eq!(counts(), (7, 0, 7, 0), "the planner has the requests");
    rig.mute(false);
    copies.into_iter().for_each(|copy| _ = copy.wait().expect("done"));
    batch.wait().expect("done");
    assert_eq!(counts(), (7, 7, 0, 0));
    // A request that reaches the inbox after the close is aborted.
    let lane = rig.lane();
    lane.drain(lane.close(Instant::now()));
    let slot = lane.submit(0, |request| request.operations = 2).expect("room");
    assert_eq!(counts(), (9, 7, 2, 0));
    lane.notice();
    assert_eq!(lane.slots[slot as usize].look(), Seen::Reported);
    assert_eq!(counts(), (9, 7, 0, 2));
}

#[test]
fn a_retry_follows_the_advice_of_the_error() {
    let rig = Rig::new();
    let policy = crate::RetryPolicy::new();
    let pair = || (rig.engine.allocate(32).expect("memory"), rig.engine.allocate(32).expect("memory"));
    let attempts = AtomicUsize::new(0);
    let copy = |(src, dst)| {
        // Every third attempt succeeds.
        rig.script.fails.store(attempts.fetch_add(1, SeqCst) % 3 < 2, SeqCst);
        rig.queue.copy(src, dst)
    };
    rig.queue.retry(&policy, pair(), copy).expect("the third attempt succeeds");
    let sleep = |_| std::future::ready(());
    block_on(Box::pin(rig.queue.retry_async(&policy, pair(), copy, sleep)))
        .expect("the third attempt succeeds");
    assert_eq!(attempts.load(SeqCst), 6);
    rig.script.fails.store(true, SeqCst);
    let always = |(src, dst)| rig.queue.copy(src, dst);
    let error = block_on(Box::pin(rig.queue.retry_async(&policy, pair(), always, sleep)));
    assert_eq!(error.expect_err("all attempts fail").kind(), ErrorKind::DeviceFault);
}
