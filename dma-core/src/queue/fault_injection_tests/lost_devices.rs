//! Tests that operations in flight on a lost device end at once. The stall timeout is longer than any test.

use super::*;

/// Makes a queue whose device reports nothing.
fn mute(depth: usize) -> Rig {
    let hours = Duration::from_secs(100 * 3600);
    let rig = Rig::with(QueueOptions::new().with_depth(depth).with_stall_timeout(hours));
    lock(&rig.script).mute = true;
    rig
}

fn die(rig: &Rig) {
    lock(&rig.script).dies_of = Some("it fell off the bus");
}

/// Checks that the error is that of the lost device, without the operands, which the device may still write.
fn check(end: std::result::Result<(BufferMut, BufferMut), crate::OpError<(BufferMut, BufferMut)>>) {
    let error = end.expect_err("the device reports nothing");
    let said = "copy on reference: device lost: it fell off the bus [CODE (7)]; a hint";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::DeviceLost, said));
    assert!(error.into_operands().is_none(), "the device may still write to the operands");
}

#[test]
fn every_wait_ends_when_the_device_is_lost() {
    let rig = mute(64);
    let mut transfers: Vec<_> = (1..=64).map(|len| rig.copy(len)).collect();
    rig.queue.poll();
    die(&rig);
    let first = &mut transfers[0];
    first.wait_for(HANGS).expect("a wait with a deadline does not last until the deadline");
    assert!(transfers.iter().all(Pair::is_done));
    transfers.into_iter().for_each(|transfer| check(transfer.wait()));
    let (src, dst) = rig.pair(65);
    let refusal = rig.queue.copy(src, dst).expect_err("the device is lost");
    assert_eq!((refusal.kind(), refusal.error().message()), (ErrorKind::DeviceLost, "it fell off the bus"));
    assert!(refusal.into_operands().is_some(), "the engine never had these operands");
    let counters = rig.queue.close(HANGS);
    assert_eq!((counters.in_flight, counters.abandoned), (0, 64), "{counters:?}");
    assert!(!lock(&rig.script).dropped, "the device may still use memory of the queue");
}

#[test]
fn awaits_tokens_and_drivers_end_when_the_device_is_lost() {
    for has_driver in [false, true] {
        let rig = mute(8);
        let driver = has_driver.then(|| rig.queue.driver().expect("the device has an event"));
        let (mut awaited, named) = (rig.copy(11), rig.copy(12));
        rig.queue.set_token(&named, 5);
        let flag = Arc::<Flag>::default();
        let waker = Waker::from(Arc::clone(&flag));
        assert!(poll(&mut awaited, &waker).is_pending());
        if let Some(driver) = &driver {
            driver.run().expect("armed");
        }
        flag.0.store(false, Ordering::Relaxed);
        die(&rig);
        let mut tokens = Vec::new();
        match &driver {
            Some(driver) => assert_eq!(driver.run().expect_err("lost").kind(), ErrorKind::DeviceLost),
            None => assert_eq!(rig.queue.wait_tokens(&mut tokens, Instant::now() + HANGS).ok(), Some(1)),
        }
        rig.queue.take_tokens(&mut tokens);
        assert_eq!(tokens, [5]);
        assert!(flag.0.load(Ordering::Relaxed), "the task is woken");
        assert_eq!(poll(&mut awaited, &waker), Poll::Ready(Err(ErrorKind::DeviceLost)));
        check(named.wait());
    }
}

/// The queue keeps the operands of a dropped transfer, which the device may still write.
#[test]
fn operands_of_dropped_transfers_are_leaked() {
    let rig = mute(8);
    let (dropped, given_back) = rig.copy_to_owned(11);
    drop(dropped);
    die(&rig);
    rig.queue.flush();
    rig.queue.poll();
    let _ = rig.queue.close(HANGS);
    assert_eq!(count(&given_back), 0);
}

/// A retry waits for room in a full queue.
#[test]
fn a_retry_ends_when_the_device_is_lost() {
    let rig = mute(1);
    let held = rig.copy(11);
    die(&rig);
    let retried =
        rig.queue.retry(&crate::RetryPolicy::new(), rig.pair(12), |(src, dst)| rig.queue.copy(src, dst));
    assert_eq!(retried.expect_err("lost").kind(), ErrorKind::DeviceLost);
    assert_eq!(rig.queue.wait_for_room().expect_err("lost").kind(), ErrorKind::DeviceLost);
    check(held.wait());
}

/// Copies that the device reports are done, although the device is lost before it reports the others.
#[test]
fn reported_copies_are_not_lost() {
    let rig = Rig::with(QueueOptions::new().with_depth(8).with_stall_timeout(Duration::MAX));
    lock(&rig.script).lose.push(12);
    die(&rig);
    let copies = [11, 12, 13].map(|len| rig.copy(len));
    let [first, second, third] = copies.map(|copy| copy.wait().map(drop).map_err(|e| e.kind()));
    assert_eq!((first, second, third), (Ok(()), Err(ErrorKind::DeviceLost), Ok(())));
}

/// An idle queue has nothing in flight whose wait would meet the loss.
#[test]
fn a_driver_meets_the_loss_of_an_idle_device() {
    let rig = mute(8);
    let driver = rig.queue.driver().expect("the device has an event");
    lock(&rig.script).unarmed = true;
    driver.run().expect("the device is not lost");
    die(&rig);
    assert_eq!(driver.run().expect_err("lost").kind(), ErrorKind::DeviceLost);
    assert_eq!(rig.queue.lost().map(|e| e.kind()), Some(ErrorKind::DeviceLost));
    assert_eq!(driver.run().expect_err("lost").kind(), ErrorKind::DeviceLost);
    let (src, dst) = rig.pair(11);
    assert_eq!(rig.queue.copy(src, dst).expect_err("lost").kind(), ErrorKind::DeviceLost);
    assert_eq!(rig.queue.close(HANGS).abandoned, 0);
}
