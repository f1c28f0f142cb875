//! Tests of tasks that share doorbells.

use super::*;

const FOR_EVER: Duration = Duration::from_secs(3600);

type Pair = (BufferMut, BufferMut);

/// Makes a queue whose operations wait up to `gather` to share a doorbell, and a thread that runs `work`.
fn rig(gather: Duration, work: impl FnOnce(&Lane) + Send + 'static) -> Rig {
    let device = ReferenceOptions { per_poll: 64, ..ReferenceOptions::default() };
    let options = QueueOptions::new().with_depth(64).with_doorbell_delay(gather);
    Rig::of(ReferenceEngine::new(device), &options, work)
}

/// Submits `n` copies and polls each once. Returns the transfers, their waker, and the receiver of the
/// waker's wake-ups.
fn polled_once(rig: &Rig, n: usize) -> (Vec<SharedTransfer<Pair>>, Waker, Receiver<()>) {
    let (woken, receiver) = signal();
    let mut transfers: Vec<_> = (0..n).map(|_| rig.copy(|| ())).collect();
    let waker = waker(woken);
    assert!(transfers.iter_mut().all(|transfer| poll(transfer, &waker).is_pending()));
    (transfers, waker, receiver)
}

#[test]
fn tasks_share_a_doorbell() {
    let rig = rig(FOR_EVER, |_| ());
    let (mut transfers, waker, receiver) = polled_once(&rig, 8);
    assert_eq!(rig.queue.counters().doorbells, 0, "other tasks may still submit");
    assert_eq!(receiver.try_iter().count(), 8, "each transfer wakes its task");
    assert!(transfers.iter_mut().all(|transfer| poll(transfer, &waker).is_ready()));
    assert_eq!(rig.queue.counters().doorbells, 1);
}

#[test]
fn a_lone_copy_rings_at_once() {
    let rig = rig(FOR_EVER, |_| ());
    for rings in 1..4 {
        assert!(poll(&mut rig.copy(|| ()), Waker::noop()).is_ready());
        assert_eq!(rig.queue.counters().doorbells, rings);
    }
}

#[test]
fn nobody_waits_for_others_if_told_so() {
    let rig = rig(Duration::ZERO, |_| ());
    let others = [rig.copy(|| ()), rig.copy(|| ())];
    assert!(poll(&mut rig.copy(|| ()), Waker::noop()).is_ready());
    drop(others);
}

#[test]
fn a_busy_device_is_rung_for_as_many_as_it_has() {
    let rig = rig(FOR_EVER, |_| ());
    rig.mute(true);
    let (mut first, waker, _receiver) = polled_once(&rig, 4);
    assert!(first.iter_mut().all(|transfer| poll(transfer, &waker).is_pending()));
    assert_eq!(rig.queue.counters().doorbells, 1);
    let (mut next, ..) = polled_once(&rig, 3);
    assert!(next.iter_mut().all(|transfer| poll(transfer, &waker).is_pending()));
    assert_eq!(rig.queue.counters().doorbells, 1, "4 copies are in flight, and only 3 wait");
    let (mut last, ..) = polled_once(&rig, 1);
    assert!(poll(&mut last[0], &waker).is_pending());
    assert_eq!(rig.queue.counters().doorbells, 2);
    rig.mute(false);
    for mut transfer in first.into_iter().chain(next).chain(last) {
        assert!(poll(&mut transfer, &waker).is_ready());
    }
    assert_eq!(rig.queue.counters().doorbells, 2);
}

#[test]
fn a_full_hand_waits_for_nobody() {
    let rig = rig(FOR_EVER, |_| ());
    rig.mute(true);
    let (mut first, waker, _receiver) = polled_once(&rig, 31);
    assert!(poll(&mut first[0], &waker).is_pending());
    let (mut next, ..) = polled_once(&rig, 33);
    assert!(poll(&mut next[0], &waker).is_pending());
    assert_eq!(rig.queue.counters().doorbells, 2);
    rig.mute(false);
}

#[test]
fn a_thread_that_waits_rings_for_all() {
    let rig = rig(FOR_EVER, |_| ());
    let (transfers, ..) = polled_once(&rig, 3);
    rig.copy(|| ()).wait().expect("it is done");
    assert_eq!(rig.queue.counters().doorbells, 1);
    assert_eq!(rig.queue.counters().completed, 4);
    drop(transfers);
}

/// Waits until `n` operations are completed, without a poll.
fn completes(rig: &Rig, n: u64) {
    let deadline = Instant::now() + HANGS;
    while rig.queue.counters().completed < n {
        assert!(Instant::now() < deadline, "it hangs");
        std::thread::yield_now();
    }
}

/// A task may find the lane locked by the lane's thread, which has accepted the task's request without
/// ringing. In this case the thread must ring.
#[test]
fn the_lanes_thread_rings_for_a_lone_copy_at_once() {
    let rig = rig(FOR_EVER, Lane::serve);
    drop(rig.copy(|| ()));
    completes(&rig, 1);
}

/// The lane's thread rings the doorbell even if no task is polled again.
#[test]
fn the_lanes_thread_rings_in_time() {
    let rig = rig(Duration::from_millis(1), Lane::serve);
    let mut transfers: Vec<_> = (0..3).map(|_| rig.copy(|| ())).collect();
    // If these polls come after the delay, the lane's thread has already rung.
    transfers.retain_mut(|transfer| poll(transfer, Waker::noop()).is_pending());
    completes(&rig, 3);
}

#[test]
fn a_waiter_for_room_copies_then() {
    let device = ReferenceOptions { per_poll: 1, ..ReferenceOptions::default() };
    let options = QueueOptions::new().with_depth(1);
    let rig = Rig::of(ReferenceEngine::new(device), &options, Lane::serve);
    let held = rig.copy(|| ());
    let memory = |byte| {
        let mut memory = rig.engine.allocate(8).expect("memory");
        memory.fill(byte);
        memory
    };
    let (woken, receiver) = signal();
    let waker = waker(woken);
    let mut copy = Box::pin(rig.queue.copy_when_ready(memory(7), memory(0)));
    assert!(poll(&mut copy, &waker).is_pending());
    drop(held);
    let (src, dst) = loop {
        heard(&receiver);
        if let Poll::Ready(done) = poll(&mut copy, &waker) {
            break done.expect("it is copied");
        }
    };
    assert_eq!((&src[..], &dst[..]), (&[7; 8][..], &[7; 8][..]));
    drop((src, dst));
    // A closed queue returns the operands.
    let mut copy = Box::pin(rig.queue.copy_when_ready(memory(7), memory(0)));
    rig.queue.close(HANGS);
    let Poll::Ready(Err(e)) = poll(&mut copy, &waker) else { panic!("it is closed") };
    assert_eq!(e.kind(), ErrorKind::Closed);
    assert_eq!(e.into_operands().expect("they come back").0[..], [7; 8]);
}

/// Tasks of one thread also share a doorbell.
#[test]
fn a_queue_rings_once_for_the_tasks_of_its_thread() {
    let engine = ReferenceEngine::new(ReferenceOptions { per_poll: 1, ..ReferenceOptions::default() });
    let memory = || engine.allocate(32).expect("memory");
    for (gather, doorbells) in [(FOR_EVER, 1), (Duration::ZERO, 8)] {
        let queue = engine.open_queue(&QueueOptions::new().with_doorbell_delay(gather)).expect("a queue");
        // The device reports only one copy in each poll, so these copies stay in flight.
        let others: Vec<_> = (0..16).map(|_| queue.copy(memory(), memory()).expect("room")).collect();
        queue.flush();
        assert_eq!(queue.counters().doorbells, 1);
        let mut transfers = Vec::new();
        for _ in 0..8 {
            let mut transfer = queue.copy(memory(), memory()).expect("room");
            assert!(poll(&mut transfer, Waker::noop()).is_pending());
            transfers.push(transfer);
        }
        while !transfers.is_empty() {
            transfers.retain_mut(|transfer| poll(transfer, Waker::noop()).is_pending());
        }
        assert_eq!(queue.counters().doorbells, 1 + doorbells, "{gather:?}");
        others.into_iter().for_each(|other| drop(other.wait().expect("it is done")));
    }
}
