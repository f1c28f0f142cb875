//! Tests of shared queues whose device completes nothing, or stops late.

use super::*;
use crate::planner::wait::GRACE;

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

/// A device that needs most of the grace period to stop is not abandoned, even if the thread that polls it
/// does not run during the grace period.
#[test]
fn a_device_that_stops_within_the_grace_period_keeps_its_memory() {
    for late in [GRACE * 7 / 10, GRACE + Duration::from_millis(50)] {
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
    let fill = |request: &mut Request| {
        request.operations = 2;
        Ok(())
    };
    let slot = lane.submit(0, fill).expect("room").expect("memory");
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

/// Because the transfers are dropped, only a refusal tells that the device has stalled.
#[test]
fn a_full_queue_says_that_its_device_hangs_and_no_longer_than_it_does() {
    let rig = Rig::impatient(4);
    for _ in 0..2 {
        rig.mute(true);
        // Each dropped transfer keeps its slot.
        let refusal = rig.copy_until(Some(ErrorKind::TimedOut)).expect("it is refused");
        assert!(refusal.error().message().contains("has completed nothing for"), "{refusal}");
        assert!(refusal.error().hint().contains("open another"), "{refusal}");
        assert!(refusal.into_operands().is_some(), "they come back");
        assert!(rig.queue.stalled().is_some());
        rig.mute(false);
        rig.copy_until(None);
        let deadline = Instant::now() + HANGS;
        while rig.queue.stalled().is_some() {
            assert!(Instant::now() < deadline, "it completes everything");
        }
    }
    assert_eq!(rig.queue.close(HANGS).abandoned, 0);
}

#[test]
fn an_idle_queue_is_not_stalled_and_a_stalled_one_says_so_before_it_is_full() {
    let rig = Rig::impatient(4);
    rig.try_copy().expect("room");
    // The lane's thread sleeps when nothing is in flight.
    until(|| rig.queue.counters().completed > 0 && rig.lane().sleeps());
    assert_eq!(rig.queue.stalled(), None);
    rig.mute(true);
    rig.try_copy().expect("room");
    until(|| rig.queue.stalled().is_some());
    rig.try_copy().expect("room");
    rig.queue.close(Duration::ZERO);
    assert_eq!(rig.queue.stalled(), None, "a closed queue has no device that could stall");
}

/// Even with a stall timeout of zero, no stall is reported if the lane's thread does not run.
#[test]
fn a_queue_whose_thread_does_not_run_does_not_blame_the_device() {
    let options = QueueOptions::new().with_depth(4).with_stall_timeout(Duration::ZERO);
    let rig = Rig::of(ReferenceEngine::new(ReferenceOptions::default()), &options, |_| ());
    rig.mute(true);
    for _ in 0..1_000 {
        if let Err(refusal) = rig.try_copy() {
            assert_eq!(refusal.kind(), ErrorKind::QueueFull);
        }
    }
}

/// The naps of the lane's thread become longer, but stay short compared to the whole wait.
#[test]
fn the_thread_of_a_device_that_hangs_sleeps_longer() {
    let rig = Rig::new();
    rig.mute(true);
    rig.try_copy().expect("room");
    let deadline = Instant::now() + HANGS;
    while !rig.lane().sleeps() {
        assert!(
            Instant::now() < deadline,
            "the thread does not sleep, although the device completes nothing"
        );
        std::thread::yield_now();
    }
    rig.queue.close(Duration::ZERO);
    let naps = |count: u32| (0..count).map(nap_for).map(u64::from).sum::<u64>();
    for vain in 1..2_000 {
        assert!(nap_for(vain) <= 20 && u64::from(nap_for(vain)) <= 1 + naps(vain) / 60, "{vain} naps");
    }
    assert_eq!(nap_for(u32::MAX), 20);
}

/// Makes a queue whose stall timeout is longer than any test, on a device that reports nothing.
fn patient(depth: usize) -> Rig {
    let options = QueueOptions::new().with_depth(depth).with_stall_timeout(HANGS * 1000);
    let rig = Rig::of(ReferenceEngine::new(ReferenceOptions::default()), &options, Lane::serve);
    rig.mute(true);
    rig
}

#[test]
fn waits_and_awaits_end_when_the_device_is_lost() {
    let rig = patient(4);
    let (freed, receiver) = signal();
    let [mut waits, awaits, by_thread, dropped] = [(); 4].map(|()| {
        let freed = freed.clone();
        rig.copy(freed)
    });
    assert!(!waits.is_done());
    drop(dropped);
    let lost = |end: Result<_, OpError<(BufferMut, BufferMut)>>| {
        let error = end.map(drop).expect_err("the device reports nothing");
        assert_eq!((error.kind(), error.error().message()), (ErrorKind::DeviceLost, "it fell off the bus"));
        assert!(error.into_operands().is_none(), "the device may still write to the operands");
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| by_thread.wait());
        let awaiting = scope.spawn(|| block_on(awaits));
        let room = scope.spawn(|| rig.queue.ready().wait());
        rig.script.is_lost.store(true, SeqCst);
        lost(waiting.join().expect("no panic"));
        lost(awaiting.join().expect("no panic"));
        assert_eq!(room.join().expect("no panic").expect_err("lost").kind(), ErrorKind::DeviceLost);
    });
    waits.wait_for(HANGS).expect("a wait with a deadline does not last until the deadline");
    lost(waits.wait());
    let refusal = rig.try_copy().expect_err("the device is lost");
    assert_eq!((refusal.kind(), refusal.error().message()), (ErrorKind::DeviceLost, "it fell off the bus"));
    let counters = rig.queue.close(HANGS);
    assert_eq!((counters.in_flight, counters.abandoned), (0, 4), "{counters:?}");
    receiver.try_recv().expect_err("the device may still write to the memory");
    assert!(!rig.script.dropped.load(SeqCst));
}
