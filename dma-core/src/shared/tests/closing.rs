//! Tests of the close of a shared queue, and of its last moments.

use super::*;

#[test]
fn a_closer_drains_for_a_dead_thread() {
    let rig = Rig::with(|_| panic!("this test makes the lane's thread panic"));
    let (done, receiver) = signal();
    drop(rig.copy(done));
    let held = rig.copy(|| ());
    assert_eq!(rig.queue.close(HANGS).completed, 2);
    receiver.try_recv().expect("it was drained");
    assert!(held.wait().is_ok());
}

/// The engine panics on the lane's thread, or on a waiting thread.
#[test]
fn memory_that_a_silent_device_has_is_never_given_back_after_a_panic() {
    for still in [false, true] {
        let rig = if still { Rig::still() } else { Rig::new() };
        rig.mute(true);
        let freed = Arc::new(AtomicBool::new(false));
        let of_owner = Arc::clone(&freed);
        let parked = rig.copy(move || of_owner.store(true, SeqCst));
        let held = rig.copy(|| ());
        assert!(!parked.is_done());
        drop(parked);
        rig.script.panics.store(true, SeqCst);
        if still {
            catch_unwind(AssertUnwindSafe(|| held.is_done())).expect_err("the engine panics");
        } else {
            refuses(rig.lane());
        }
        let error = held.wait().expect_err("the device never reports the copy");
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        assert!(error.into_operands().is_none());
        let (src, dst) = (rig.memory(|| ()), rig.memory(|| ()));
        assert_eq!(rig.queue.copy(src, dst).expect_err("the engine is abandoned").kind(), ErrorKind::Closed);
        assert_eq!(rig.queue.close(HANGS).abandoned, 2);
        drop(rig);
        assert!(!freed.load(SeqCst), "the memory was freed while the device may write to it");
    }
}

#[test]
fn memory_that_a_silent_device_has_is_never_given_back_by_a_lane() {
    let engine = ReferenceEngine::new(ReferenceOptions::default());
    let script = Arc::<Script>::default();
    script.mute.store(true, SeqCst);
    let lane = lane_of(&engine, &script);
    let freed = Arc::new(AtomicBool::new(false));
    let of_owner = Arc::clone(&freed);
    let segment = engine.allocate(8).expect("memory");
    let target = engine.allocate(8).expect("memory");
    let slot = lane.submit_flat(0, segment.0.segment(), target.0.segment());
    lane.drive(Caller::Closer);
    let owner = Owner(Vec::new(), Some(move || of_owner.store(true, SeqCst)));
    // SAFETY: this test holds the operation, because no transfer was made for it.
    let parked = unsafe { lane.slots[slot.expect("room") as usize].park(Box::new((owner, segment, target))) };
    assert!(parked.is_ok(), "the operation is in flight, because the device reports nothing");
    drop(lane);
    assert!(!freed.load(SeqCst));
}

#[test]
fn the_last_clone_may_go_on_its_lanes_thread() {
    let rig = Rig::new();
    rig.mute(true);
    let (done, receiver) = signal();
    let (script, last) = (Arc::clone(&rig.script), rig.queue.clone());
    drop(rig.copy(move || {
        drop(last);
        assert!(script.dropped.load(SeqCst), "dropping the last clone closes the device");
        done();
    }));
    let (also_done, other) = signal();
    drop(rig.copy(also_done));
    let Rig { queue, script, engine: _engine } = rig;
    drop(queue);
    script.mute.store(false, SeqCst);
    heard(&receiver);
    heard(&other);
}

#[test]
fn a_destructor_may_close_while_another_thread_does() {
    let rig = Rig::new();
    rig.mute(true);
    let (done, receiver) = signal();
    let queue = rig.queue.clone();
    drop(rig.copy(move || {
        assert_eq!(queue.close(Duration::ZERO).completed, 1);
        assert_eq!(queue.counters().completed, 1);
        done();
    }));
    let queue = rig.queue.clone();
    let closer = std::thread::spawn(move || queue.close(HANGS));
    refuses(rig.lane());
    rig.mute(false);
    heard(&receiver);
    assert_eq!(closer.join().expect("it closes").completed, 1);
}

#[test]
fn a_request_after_the_last_look_of_the_lane_is_ended_by_its_submitter() {
    let rig = Rig::new();
    rig.queue.close(HANGS);
    // Submits like a thread that has checked the lane before the lane was closed.
    let late = |memory| {
        let slot = rig.lane().submit(0, nothing).expect("room").expect("memory");
        let flags = TransferFlags::new(TransferKind::Copy);
        let ticket = Ticket::new(Arc::clone(&rig.queue.handle), slot, flags);
        let transfer = SharedTransfer::<_>::new(ticket, memory);
        rig.lane().notice();
        transfer
    };
    let (done, receiver) = signal();
    let dropped = late(rig.memory(done));
    assert_eq!(
        rig.lane().slots[0].look(),
        Seen::Reported,
        "the submitter ends its request, because the lane's thread has exited"
    );
    drop(dropped);
    receiver.try_recv().expect("the operands are dropped");
    let mut awaited = late(rig.memory(|| ()));
    match poll(&mut awaited, Waker::noop()) {
        Poll::Ready(Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::Closed);
            assert!(error.into_operands().is_some());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_at_the_end_of_the_lane_is_refused_rather_than_abandoned() {
    let rig = Rig::still();
    let memory = (rig.engine.allocate(8).expect("memory"), rig.engine.allocate(8).expect("memory"));
    let (src, dst) = (memory.0.0.segment(), memory.1.0.segment());
    let (script, queue) = (Arc::clone(&rig.script), rig.queue.clone());
    let (sender, receiver) = channel();
    drop(rig.copy(move || {
        // Submits like a thread that has checked the lane before the lane was closed, and then drives the
        // lane.
        script.mute.store(true, SeqCst);
        let lane = queue.handle.lane(0);
        let late = lane.submit_flat(0, src, dst);
        lane.drive(Caller::Closer);
        sender.send(late.expect("room")).expect("it is heard");
    }));
    let lane = rig.lane();
    lane.drain(lane.close(deadline(HANGS)));
    let late = receiver.try_recv().expect("it ran");
    assert_eq!(lane.slots[late as usize].look(), Seen::Reported);
    assert_eq!((rig.queue.counters().completed, rig.queue.counters().abandoned), (1, 0));
}

#[test]
fn close_waits_no_longer_than_its_limit() {
    let rig = Rig::new();
    rig.mute(true);
    drop(rig.copy(|| ()));
    let queue = rig.queue.clone();
    let patient = std::thread::spawn(move || queue.close(HANGS));
    refuses(rig.lane());
    let started = Instant::now();
    assert_eq!(rig.queue.close(Duration::ZERO).abandoned, 1);
    assert!(started.elapsed() < HANGS / 2, "a close with a short timeout does not wait for another close");
    assert_eq!(patient.join().expect("it closes").abandoned, 1);
}

#[test]
fn operations_ended_by_close_say_so_and_are_not_to_be_tried_again() {
    let rig = Rig::new();
    rig.script.stops.store(true, SeqCst);
    rig.mute(true);
    let one = rig.copy(|| ());
    let pair = || (rig.engine.allocate(32).expect("memory"), rig.engine.allocate(32).expect("memory"));
    let batch = rig.queue.submit((0..2).map(|_| pair()).collect::<Batch<_, _>>()).expect("room");
    assert!(!one.is_done() && !batch.is_done());
    assert_eq!(rig.queue.close(Duration::ZERO).aborted, 3);
    let says = |error: &Error| {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Closed, crate::Retry::Never), "{error}");
        assert_eq!(error.hint(), "open another queue", "{error}");
    };
    let error = one.wait().expect_err("the close aborted the operation");
    says(error.error());
    assert!(error.into_operands().is_some(), "the operands are returned");
    says(batch.wait().expect_err("the close aborted the operation").error());
    says(rig.try_copy().expect_err("it is closed").error());
}
