//! Tests of a queue with a lane that refuses operations: the other lane's clones do not use its free slots.

use super::*;

/// Why the second lane refuses operations.
#[derive(Clone, Copy, Debug)]
enum Why {
    Lost,
    Panicked,
}

/// A queue with two lanes of depth 2, without threads that poll them.
struct TwoLanes {
    engine: ReferenceEngine,
    scripts: [Arc<Script>; 2],
    queue: SharedQueue,
}

impl TwoLanes {
    fn new(stall_timeout: Duration) -> Self {
        let engine = ReferenceEngine::new(ReferenceOptions::default());
        let options = QueueOptions::new().with_depth(2).with_stall_timeout(stall_timeout);
        let scripts = <[Arc<Script>; 2]>::default();
        let wait_queue = Arc::new(WaitQueue::new());
        let lane = |script| Arc::new(lane_on(&engine, script, &options, Arc::clone(&wait_queue)));
        let hub = Hub {
            lanes: scripts.iter().map(lane).collect(),
            wait_queue,
            clones: AtomicUsize::new(0),
            inline: Default::default(),
            threads: Mutex::default(),
            process: dma_process::ForkMark::new(),
            drop_timeout: Duration::ZERO,
        };
        Self { engine, scripts, queue: SharedQueue::of(Arc::new(hub)) }
    }

    fn copy(&self, queue: &SharedQueue) -> SharedResult<(BufferMut, BufferMut)> {
        let memory = || self.engine.allocate(32).expect("memory");
        queue.copy(memory(), memory())
    }

    fn lane(&self, at: usize) -> &Lane {
        &self.queue.handle.hub.lanes[at]
    }

    /// Makes the lane refuse operations, with one operation in flight.
    fn break_lane(&self, at: usize, why: Why) {
        let clones = [self.queue.clone(), self.queue.clone()];
        let own = clones.iter().find(|clone| usize::from(clone.handle.first_lane) == at);
        if self.lane(at).available() > 0 {
            drop(self.copy(own.expect("clones take turns")).expect("room"));
        }
        let script = &self.scripts[at];
        script.mute.store(true, SeqCst);
        match why {
            Why::Lost => script.is_lost.store(true, SeqCst),
            Why::Panicked => script.panics.store(true, SeqCst),
        }
        let driven = catch_unwind(AssertUnwindSafe(|| self.lane(at).drive(Caller::Closer)));
        assert_eq!(driven.is_err(), matches!(why, Why::Panicked));
        assert!(self.lane(at).refuses());
    }
}

#[test]
fn a_full_lane_does_not_pass_operations_to_a_lane_that_refuses_them() {
    for why in [Why::Lost, Why::Panicked] {
        let two = TwoLanes::new(Duration::from_secs(100 * 3600));
        two.break_lane(1, why);
        assert_eq!(two.queue.available(), 2, "{why:?}");
        two.scripts[0].mute.store(true, SeqCst);
        let held = [(); 2].map(|()| two.copy(&two.queue).expect("room"));
        assert_eq!(two.queue.available(), 0, "{why:?}");
        assert_eq!(two.copy(&two.queue).expect_err("full").kind(), ErrorKind::QueueFull, "{why:?}");
        let memory = || two.engine.allocate(32).expect("memory");
        let mut batch = Batch::new();
        batch.push(memory(), memory());
        assert_eq!(two.queue.submit(batch).expect_err("full").kind(), ErrorKind::QueueFull, "{why:?}");
        let (woken, receiver) = signal();
        let (mut ready, waker) = (two.queue.ready(), waker(woken));
        let mut copied = Box::pin(two.queue.copy_when_ready(memory(), memory()));
        assert!(poll(&mut ready, &waker).is_pending(), "{why:?}");
        assert!(poll(&mut copied, Waker::noop()).is_pending(), "{why:?}");
        two.scripts[0].mute.store(false, SeqCst);
        held.into_iter()
            .for_each(|transfer| drop(transfer.wait().expect("the healthy lane's device copies")));
        receiver.try_recv().expect("the task is woken");
        assert!(matches!(poll(&mut ready, &waker), Poll::Ready(Ok(()))), "{why:?}");
        // The other task was in line behind the first one.
        let done = (0..100).any(|_| {
            two.lane(0).drive(Caller::Closer);
            matches!(poll(&mut copied, Waker::noop()), Poll::Ready(Ok(_)))
        });
        assert!(done, "{why:?}");
    }
}

#[test]
fn a_queue_whose_lanes_all_refuse_says_why() {
    let two = TwoLanes::new(Duration::from_secs(100 * 3600));
    two.break_lane(1, Why::Panicked);
    let held = two.copy(&two.queue).expect("room");
    two.break_lane(0, Why::Lost);
    assert_eq!(two.queue.available(), 0);
    assert_eq!(two.copy(&two.queue).expect_err("lost").kind(), ErrorKind::DeviceLost);
    assert_eq!(two.queue.ready().wait().expect_err("lost").kind(), ErrorKind::DeviceLost);
    assert_eq!(held.wait().expect_err("lost").kind(), ErrorKind::DeviceLost);
}

/// The lanes that still have a device have all stalled.
#[test]
fn a_stall_is_found_beside_a_lane_that_refuses() {
    let two = TwoLanes::new(Duration::ZERO);
    two.break_lane(1, Why::Lost);
    two.scripts[0].mute.store(true, SeqCst);
    let held = [(); 2].map(|()| two.copy(&two.queue).expect("room"));
    let lane = Arc::clone(&two.queue.handle.hub.lanes[0]);
    let thread = std::thread::spawn(move || lane.serve());
    two.queue.handle.hub.threads.lock().expect("no thread panics").push(thread);
    until(|| two.lane(0).stalled().is_some());
    assert_eq!(two.copy(&two.queue).expect_err("stalled").kind(), ErrorKind::TimedOut);
    assert_eq!(two.queue.ready().wait().expect_err("stalled").kind(), ErrorKind::TimedOut);
    two.scripts[0].mute.store(false, SeqCst);
    held.into_iter().for_each(|transfer| drop(transfer.wait().expect("the device goes on")));
}
