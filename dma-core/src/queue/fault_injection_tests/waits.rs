//! Tests of waits and awaits on a device that is silent or stalled.

use super::*;

/// A wait ends at its deadline, even if the device continues to report descriptors.
#[test]
fn deadlines_hold_while_the_device_makes_progress() {
    const LONG: usize = 1 << 20;
    let rig = Rig::new();
    let mut long = rig.copy(LONG);
    long.wait_for(Duration::ZERO).expect_err("the copy needs thousands of descriptors");
    let counters = rig.queue.close(Duration::ZERO);
    assert_eq!((counters.aborted, counters.in_flight), (1, 0));
    assert_eq!(long.wait().expect_err("the close stopped the device").kind(), ErrorKind::Closed);
}

/// The device may complete an operation while the waiting thread does not run. Therefore the wait polls once
/// more after the timeout.
#[test]
fn a_wait_does_not_time_out_at_a_poll_that_reports() {
    let wait = |silent: Option<u64>| {
        let rig = Rig::with(QueueOptions::new().with_depth(8).with_stall_timeout(Duration::ZERO));
        lock(&rig.script).silent = silent;
        let (_first, second) = (rig.copy(11), rig.copy(12));
        let done = second.wait().is_ok();
        let polls = lock(&rig.script).polls;
        lock(&rig.script).silent = None;
        (done, polls)
    };
    let (done, polls) = wait(Some(u64::MAX));
    assert!(!done, "the device reports nothing");
    // The last poll before the timeout reports the first copy.
    assert!(wait(Some(polls - 1)).0, "a completion at the last poll restarts the timeout");
    assert!(!wait(Some(polls)).0, "the wait makes exactly this number of polls");
}

/// A wait reads the clock after each sleep on the event, because a sleep takes some milliseconds.
#[test]
fn a_wait_that_sleeps_looks_at_the_clock_after_each_nap() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let mut transfer = rig.copy(11);
    transfer.wait_for(Duration::from_millis(10)).expect_err("the device reports nothing");
    let naps = lock(&rig.script).arms;
    assert!(naps <= 6, "a wait of 10 ms made {naps} sleeps of 2 ms");
    lock(&rig.script).mute = false;
}

#[test]
fn nothing_is_left_to_wait_for_once_the_queue_was_closed() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let mut transfer = rig.copy(11);
    let _ = rig.queue.close(Duration::ZERO);
    assert!(transfer.is_done(), "otherwise a caller that loops until this is true would never end");
    transfer.wait_for(Duration::ZERO).expect("a wait for a transfer of a closed queue returns at once");
    assert_eq!(transfer.wait().expect_err("the device never reports the copy").kind(), ErrorKind::DeviceLost);
}

#[test]
fn nothing_is_left_to_wait_for_once_a_transfer_was_ready() {
    let rig = Rig::new();
    let mut spent = rig.copy(11);
    rig.queue.flush();
    let mut context = Context::from_waker(Waker::noop());
    while Pin::new(&mut spent).poll(&mut context).is_pending() {}
    // The slot now belongs to another operation, which does not end.
    lock(&rig.script).mute = true;
    let _other = rig.copy(12);
    assert!(spent.is_done());
    spent.wait_for(Duration::ZERO).expect("a spent transfer has ended");
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| spent.wait()))
        .expect_err("the operands have been returned already");
    assert!(again.downcast_ref::<&str>().is_some_and(|said| said.contains("after it was ready")));
    lock(&rig.script).mute = false;
}

#[test]
fn a_time_longer_than_the_clock_counts_is_for_ever() {
    let rig = Rig::new();
    let mut transfer = rig.copy(11);
    transfer.wait_for(Duration::MAX).expect("done");
    transfer.wait().expect("done");
    let options = QueueOptions::new().with_drop_timeout(Duration::MAX).with_stall_timeout(Duration::MAX);
    let queue = rig.engine.open_queue(&options).expect("it opens");
    let (src, dst) = rig.pair(11);
    queue.copy(src, dst).expect("room").wait().expect("done");
    assert_eq!(rig.queue.close(Duration::MAX).completed, 1);
}

/// If a driver's owner waits for one transfer long enough to sleep, the event stays armed for the other
/// transfers.
#[test]
fn waiting_leaves_the_event_to_the_driver() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let mut transfer = rig.copy(11);
    transfer.wait_for(Duration::from_millis(50)).expect_err("the device reports nothing");
    assert!(!lock(&rig.script).armed, "without a driver, a wait leaves the event unarmed");
    let driver = rig.queue.driver().expect("the device has an event");
    driver.run().expect("armed");
    transfer.wait_for(Duration::from_millis(50)).expect_err("the device reports nothing");
    assert!(lock(&rig.script).armed);
    lock(&rig.script).mute = false;
    transfer.wait().expect("done");
    assert!(lock(&rig.script).armed);
}

/// Makes a queue of depth 8 whose stall timeout is zero, on a device that reports nothing, with 7 copies
/// whose transfers were dropped.
fn hung() -> (Rig, crate::Transfer<(BufferMut, BufferMut)>) {
    let rig = Rig::with(QueueOptions::new().with_depth(8).with_stall_timeout(Duration::ZERO));
    lock(&rig.script).mute = true;
    (1..8).for_each(|len| drop(rig.copy(len)));
    let last = rig.copy(8);
    (rig, last)
}

fn refusal(rig: &Rig) -> crate::OpError<(BufferMut, BufferMut)> {
    let (src, dst) = rig.pair(9);
    rig.queue.copy(src, dst).expect_err("the queue is full")
}

#[test]
fn a_full_queue_says_that_its_device_hangs_and_no_longer_than_it_does() {
    let (rig, last) = hung();
    rig.queue.flush();
    for round in 0..64 {
        assert_eq!(refusal(&rig).kind(), ErrorKind::QueueFull, "{round} polls are not enough for a stall");
        rig.queue.poll();
    }
    for refusal in [refusal(&rig), refusal(&rig)] {
        assert_eq!(refusal.kind(), ErrorKind::TimedOut);
        assert!(refusal.error().hint().contains("open another"), "{refusal}");
        assert!(refusal.into_operands().is_some(), "the operands are returned");
    }
    assert_eq!(rig.queue.counters().full, 66);
    lock(&rig.script).mute = false;
    rig.queue.poll();
    lock(&rig.script).mute = true;
    (0..7).for_each(|len| drop(rig.copy(20 + len)));
    rig.queue.flush();
    assert_eq!(
        refusal(&rig).kind(),
        ErrorKind::QueueFull,
        "the device has completed operations since the stall"
    );
    assert!(last.wait().is_ok());
}

#[test]
fn a_full_queue_does_not_blame_a_device_that_nobody_polls_or_flushes() {
    let (rig, last) = hung();
    for _ in 0..200 {
        rig.queue.poll();
    }
    for _ in 0..200 {
        assert_eq!(refusal(&rig).kind(), ErrorKind::QueueFull, "the device was not polled after the flush");
    }
    lock(&rig.script).mute = false;
    rig.queue.poll();
    assert!(last.is_done());
    // Seven slots are free, and a transfer still holds the last slot.
    let held: Vec<_> = (0..7).map(|len| rig.copy(30 + len)).collect();
    rig.queue.flush();
    while rig.queue.poll() > 0 {}
    for _ in 0..200 {
        rig.queue.poll();
        assert_eq!(refusal(&rig).kind(), ErrorKind::QueueFull, "the device has completed all operations");
    }
    held.into_iter().chain([last]).for_each(|transfer| _ = transfer.wait().expect("done"));
}

/// Operations that were not flushed yet change nothing for the operation that the device has.
#[test]
fn a_full_queue_says_that_its_device_hangs_though_later_operations_are_not_flushed() {
    let rig = impatient();
    lock(&rig.script).mute = true;
    drop(rig.copy(1));
    rig.queue.flush();
    let mut polls = 0;
    while rig.queue.stalled().is_none() {
        rig.queue.poll();
        polls += 1;
        assert!(polls < 1_000, "the device reports nothing");
    }
    (2..9).for_each(|len| drop(rig.copy(len)));
    assert!(rig.queue.stalled().is_some());
    assert_eq!(refusal(&rig).kind(), ErrorKind::TimedOut);
}

#[test]
fn polls_make_room_in_a_full_queue_after_a_refusal() {
    let rig = Rig::with(QueueOptions::new().with_depth(2));
    (1..3).for_each(|len| drop(rig.copy(len)));
    assert_eq!(rig.queue.poll(), 0, "a poll does not flush");
    assert_eq!(refusal(&rig).kind(), ErrorKind::QueueFull);
    assert_eq!(rig.queue.poll(), 2, "the refusal has flushed");
    rig.copy(3).wait().expect("done");
}

#[test]
fn a_program_waits_for_room() {
    let rig = Rig::with(QueueOptions::new().with_depth(2));
    for len in 1..20 {
        rig.queue.wait_for_room().expect("the device completes the copies that were dropped");
        drop(rig.copy(len));
    }
    rig.queue.flush();
    while rig.queue.available() < 2 {
        rig.queue.poll();
    }
    rig.queue.wait_for_room().expect("there is room");
    let held = [rig.copy(1), rig.copy(2)];
    let full = rig.queue.wait_for_room().expect_err("the program holds both slots");
    assert_eq!((full.kind(), full.hint().is_empty()), (ErrorKind::QueueFull, false));
    held.into_iter().for_each(|held| _ = held.wait().expect("done"));
    rig.queue.wait_for_room().expect("there is room");
    assert_eq!(rig.queue.counters().full, 0);
    let (rig, _last) = hung();
    for _ in 0..2 {
        assert_eq!(rig.queue.wait_for_room().expect_err("a stall").kind(), ErrorKind::TimedOut);
    }
    lock(&rig.script).mute = false;
    rig.queue.wait_for_room().expect("the device goes on");
}

#[test]
fn a_lost_result_delays_nothing_else() {
    // The lost operation has one descriptor, then several descriptors.
    for len in [30, 200] {
        let rig = Rig::new();
        lock(&rig.script).lose.push(len.min(64));
        let (lost, _) = rig.pair(len);
        let mut lost = rig.queue.crc32c(lost, 0).expect("room");
        let (src, expected) = (rig.pair(20).0, crc32c::crc32c(&[20; 20]));
        let (_, crc) = rig
            .queue
            .crc32c(src, 0)
            .expect("room")
            .wait()
            .expect("a CRC does not wait for the lost operation");
        assert_eq!(crc, expected);
        let ((a, b), difference) =
            rig.queue.compare(rig.pair(150).0, rig.pair(150).0).expect("room").wait().expect("done");
        assert_eq!((a.len(), b.len(), difference), (150, 150, None));
        rig.copy(10).wait().expect("done");
        assert!(!lost.is_done(), "the completion of the first CRC is lost");
        lost.wait_for(Duration::from_millis(1)).expect_err("the completion of the first CRC is lost");
        // A fence waits for the lost operation.
        rig.queue.fence();
        let mut behind = rig.copy(11);
        if behind.wait_for(Duration::from_millis(1)).is_ok() {
            assert_eq!(len, 30, "with one descriptor, the device itself executes the fence");
        }
    }
}

fn impatient() -> Rig {
    Rig::with(QueueOptions::new().with_depth(8).with_stall_timeout(Duration::ZERO))
}

/// An await fails as a wait does, and the queue keeps the operands until the device reports the operation.
#[test]
fn an_awaited_transfer_fails_if_the_device_stalls() {
    let rig = impatient();
    lock(&rig.script).mute = true;
    let (mut awaited, given_back) = rig.copy_to_owned(10);
    let mut outlasts = rig.copy(11).outlast_stalls();
    let begun = Instant::now();
    let error = loop {
        assert!(poll(&mut outlasts, Waker::noop()).is_pending());
        if let Poll::Ready(end) = Pin::new(&mut awaited).poll(&mut Context::from_waker(Waker::noop())) {
            break end.expect_err("the device reports nothing");
        }
        assert!(begun.elapsed() < HANGS, "the await does not end");
    };
    assert!(lock(&rig.script).polls >= 64, "a few polls are not enough for a stall");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.error().message().contains("completed nothing for"), "{error}");
    assert!(error.into_operands().is_none(), "the device may still write to the operands");
    assert_eq!((count(&given_back), rig.queue.available()), (0, 6));
    assert!(rig.queue.stalled().is_some());
    drop(awaited);
    lock(&rig.script).mute = false;
    while count(&given_back) == 0 {
        rig.queue.poll();
    }
    assert_eq!(rig.queue.stalled(), None);
    assert_eq!(poll(&mut outlasts, Waker::noop()), Poll::Ready(Ok(())));
    assert_eq!(poll(&mut rig.copy(12), Waker::noop()), Poll::Ready(Ok(())));
}

/// The event loop sleeps on the driver's file descriptor, and the device's event never becomes readable.
#[test]
fn a_driver_wakes_the_tasks_of_a_device_that_stalls() {
    let rig = impatient();
    let driver = rig.queue.driver().expect("the device has an event");
    driver.run().expect("the event is armed");
    assert!(!driver.timer.is_set());
    let readable = |timeout: rustix::event::Timespec| {
        let mut fds = [rustix::event::PollFd::new(&driver, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&timeout)).expect("polled") > 0
    };
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    assert!(!readable(at_once), "no operation is in flight, so there is nothing to look for");
    lock(&rig.script).mute = true;
    let mut awaited = rig.copy(10);
    let flag = Arc::<Flag>::default();
    let waker = Waker::from(Arc::clone(&flag));
    assert!(poll(&mut awaited, &waker).is_pending());
    let end = loop {
        driver.run().expect("the event is armed");
        if flag.0.swap(false, Ordering::Relaxed)
            && let Poll::Ready(end) = poll(&mut awaited, &waker)
        {
            break end;
        }
        let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert!(readable(minute), "the driver's timer expires");
    };
    assert_eq!(end, Err(ErrorKind::TimedOut));
    lock(&rig.script).mute = false;
    while rig.queue.counters().in_flight > 0 {
        driver.run().expect("the event is armed");
    }
    let begun = Instant::now();
    while driver.timer.is_set() {
        driver.run().expect("the event is armed");
        assert!(begun.elapsed() < HANGS, "the timer is not stopped");
    }
    assert!(!readable(at_once), "an idle queue has no timer");
}

/// The event of a device that restarts or connects cannot be armed. The event loop goes on, and meets the
/// completions.
#[test]
fn a_driver_does_not_wait_for_an_event_that_cannot_be_armed() {
    let rig = Rig::with(QueueOptions::new().with_stall_timeout(Duration::MAX));
    let driver = rig.queue.driver().expect("the device has an event");
    lock(&rig.script).unarmed = true;
    // Nothing is in flight, so the driver does not look for a stall. Only this run sets its timer.
    driver.run().expect("it returns");
    assert!(driver.timer.is_set(), "the driver is to be run again");
    let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    let readable = || {
        let mut fds = [rustix::event::PollFd::new(&driver, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&minute)).expect("polled") > 0
    };
    assert!(readable(), "the driver's timer expires");
    lock(&rig.script).mute = true;
    let mut awaited = rig.copy(10);
    let flag = Arc::<Flag>::default();
    let waker = Waker::from(Arc::clone(&flag));
    assert!(poll(&mut awaited, &waker).is_pending());
    driver.run().expect("it returns");
    assert!(readable() && !flag.0.load(Ordering::Relaxed));
    lock(&rig.script).mute = false;
    driver.run().expect("it returns");
    assert!(flag.0.load(Ordering::Relaxed), "the task is woken");
    assert_eq!(poll(&mut awaited, &waker), Poll::Ready(Ok(())));
    assert!(readable(), "the event is still not armed");
    lock(&rig.script).unarmed = false;
    driver.run().expect("armed");
    assert!(lock(&rig.script).armed && !driver.timer.is_set());
}

/// A device whose event cannot be armed may hang.
#[test]
fn a_driver_finds_a_stall_without_an_armed_event() {
    let rig = Rig::with(QueueOptions::new().with_stall_timeout(Duration::ZERO));
    let driver = rig.queue.driver().expect("the device has an event");
    lock(&rig.script).unarmed = true;
    lock(&rig.script).mute = true;
    let mut awaited = rig.copy(10);
    let flag = Arc::<Flag>::default();
    let waker = Waker::from(Arc::clone(&flag));
    assert!(poll(&mut awaited, &waker).is_pending());
    let end = (0..1000).find_map(|_| {
        driver.run().expect("it returns");
        let woken = flag.0.swap(false, Ordering::Relaxed);
        match woken.then(|| poll(&mut awaited, &waker)) {
            Some(Poll::Ready(end)) => Some(end),
            _ => None,
        }
    });
    assert_eq!(end, Some(Err(ErrorKind::TimedOut)));
    lock(&rig.script).unarmed = false;
    lock(&rig.script).mute = false;
}

/// The event loop runs between the polls of a device that reports for a long time.
#[test]
fn a_driver_limits_its_polls() {
    let rig = Rig::new();
    let driver = rig.queue.driver().expect("the device has an event");
    lock(&rig.script).silent = Some(0);
    let copies: Vec<_> = (1..=64).map(|len| rig.copy(len)).collect();
    driver.run().expect("it returns");
    let done = copies.iter().filter(|copy| copy.is_done()).count();
    assert!((1..64).contains(&done), "{done}");
    let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    for _ in 0..64 {
        if copies.iter().all(Pair::is_done) {
            break;
        }
        let mut fds = [rustix::event::PollFd::new(&driver, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut fds, Some(&minute)).expect("polled"), 1, "the timer expires");
        driver.run().expect("it returns");
    }
    copies.into_iter().for_each(|copy| drop(copy.wait().expect("done")));
}
