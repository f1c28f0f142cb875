//! Tests of panics of the program's code and of the engine.

use super::*;

thread_local! {
    /// The transfers that [`Dropper`]'s wakers drop.
    static HELD: RefCell<Vec<Pair>> = const { RefCell::new(Vec::new()) };
}

/// A waker that drops a transfer whenever it is woken, cloned or dropped.
struct Dropper;

impl Dropper {
    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            Self::act();
            RawWaker::new(std::ptr::null(), &Self::TABLE)
        },
        |_| Self::act(),
        |_| Self::act(),
        |_| Self::act(),
    );

    fn waker() -> Waker {
        // SAFETY: the functions of the table do not use the data pointer and are thread-safe.
        unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &Self::TABLE)) }
    }

    fn act() {
        let held = HELD.with(|held| held.borrow_mut().pop());
        drop(held);
    }
}

#[test]
fn wakers_may_use_the_queue_whenever_they_run() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let mut counts = Vec::new();
    for _ in 0..20 {
        let (held, given_back) = rig.copy_to_owned(44);
        HELD.with(|all| all.borrow_mut().push(held));
        counts.push(given_back);
    }
    let mut awaited = rig.copy(11);
    let waker = Dropper::waker();
    assert!(!panics(|| assert!(poll(&mut awaited, &waker).is_pending())));
    assert!(
        !panics(|| assert!(poll(&mut awaited, Waker::noop()).is_pending())),
        "replacing a waker drops the old waker"
    );
    assert!(!panics(|| assert!(poll(&mut awaited, &waker).is_pending())));
    assert!(!panics(|| drop(awaited)));
    rig.queue.flush();
    let dropped = 20 - HELD.with(|all| all.borrow().len());
    assert!(dropped >= 6, "every waker function ran: {dropped} transfers were dropped");
    assert!(
        rig.took(44) && counts.iter().all(|given_back| count(given_back) == 0),
        "the memory was freed while the device may access it"
    );
    lock(&rig.script).mute = false;
    HELD.with(|all| all.borrow_mut().clear());
    while counts.iter().any(|given_back| count(given_back) == 0) {
        rig.queue.poll();
    }
    drop(waker);
}

#[test]
fn a_panic_of_the_log_frees_nothing_that_a_silent_device_has() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let (transfer, given_back) = rig.copy_to_owned(44);
    drop(transfer);
    let Rig { queue, script, .. } = rig;
    let panicked = Arc::new(AtomicBool::new(false));
    let of_log = Arc::clone(&panicked);
    // The leak is logged as an error.
    let full = move |event: &tracing::Event<'_>| {
        if *event.metadata().level() == tracing::Level::ERROR {
            of_log.store(true, Ordering::Relaxed);
            panic!("this log subscriber panics");
        }
    };
    with_log(full, || drop(queue));
    assert!(panicked.load(Ordering::Relaxed));
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
    assert!(!lock(&script).dropped, "the device's queue is not dropped");
}

#[test]
fn a_panic_of_the_log_loses_no_completion() {
    let rig = Rig::new();
    let fault = ErrorKind::DeviceFault;
    lock(&rig.script).fail = HashMap::from([(22, (Outcome::Failed(fault), 7))]);
    let transfers = [21, 22, 23, 24].map(|len| rig.copy(len));
    rig.queue.flush();
    assert_eq!(with_log(|_| panic!("this log subscriber panics"), || rig.queue.poll()), 4);
    let ends = transfers.map(|transfer| transfer.wait().err().map(|e| e.kind()));
    assert_eq!(ends, [None, Some(fault), None, None]);
}

#[test]
fn a_panic_of_the_log_hides_no_failure_of_a_batch() {
    let rig = Rig::new();
    lock(&rig.script).full = true;
    let batch: Batch<_, _> = [33, 34].map(|len| rig.pair(len)).into_iter().collect();
    let batch = rig.queue.submit(batch).expect("room");
    lock(&rig.script).full = false;
    rig.refuse(33);
    with_log(|_| panic!("this log subscriber panics"), || rig.queue.flush());
    let e = batch.wait().expect_err("the batch's first copy was refused");
    assert_eq!(e.failures().len(), 1);
}

thread_local! {
    /// The queue that the log subscriber uses.
    static LOGGED: RefCell<Option<Queue>> = const { RefCell::new(None) };
}

#[test]
fn the_log_may_use_the_queue() {
    let Rig { engine, queue, script } = Rig::new();
    lock(&script).fail = HashMap::from([(22, (Outcome::Failed(ErrorKind::DeviceFault), 7))]);
    let memory = |len| engine.allocate(len).expect("memory");
    let transfers = [21, 22, 23].map(|len| queue.copy(memory(len), memory(len)).expect("room"));
    LOGGED.set(Some(queue));
    let events = Arc::<Mutex<u32>>::default();
    let of_log = Arc::clone(&events);
    let uses = move |_: &tracing::Event<'_>| {
        LOGGED.with_borrow(|queue| queue.as_ref().map(|queue| (queue.poll(), queue.counters())));
        *of_log.lock().expect("no thread panics while it holds the lock") += 1;
    };
    let ends = with_log(uses, || transfers.map(|transfer| transfer.wait().is_ok()));
    assert_eq!((ends, count(&events)), ([true, false, true], 1));
    drop(LOGGED.take());
}

#[test]
fn the_log_may_use_the_queue_of_an_engine_that_logs() {
    let rig = Rig::new();
    lock(&rig.script).logs = true;
    let transfer = rig.copy(21);
    let Rig { queue, script, .. } = rig;
    let driver = queue.driver().expect("the queue has an event");
    LOGGED.set(Some(queue));
    let events = Arc::<Mutex<Vec<tracing::Level>>>::default();
    let of_log = Arc::clone(&events);
    let uses = move |event: &tracing::Event<'_>| {
        LOGGED.with_borrow(|queue| queue.as_ref().map(|queue| (queue.poll(), queue.counters())));
        of_log.lock().expect("no thread panics while it holds the lock").push(*event.metadata().level());
    };
    with_log(uses, || {
        driver.run().expect("it is armed");
        transfer.wait().expect("it is copied");
        // The event of the last arm is emitted by this poll.
        LOGGED.with_borrow(|queue| queue.as_ref().map(Queue::poll));
    });
    lock(&script).logs = false;
    drop((driver, LOGGED.take()));
    let events = events.lock().expect("no thread panics while it holds the lock");
    assert!(events.len() >= 3 && events.iter().all(|level| *level == tracing::Level::INFO), "{events:?}");
}

/// After a panic of the engine, it is unknown which descriptors the engine has accepted. If they were
/// submitted again, the device could write to memory that was returned.
#[test]
fn an_engine_that_panics_is_given_up() {
    let rig = Rig::new();
    let (parked, given_back) = rig.copy_to_owned(44);
    drop(parked);
    let held = rig.copy(11);
    lock(&rig.script).panics = true;
    assert!(panics(|| rig.queue.flush()));
    lock(&rig.script).panics = false;
    rig.queue.flush();
    rig.queue.poll();
    let taken: Vec<_> = lock(&rig.script).taken.iter().map(|(len, _)| *len).collect();
    assert_eq!(taken, [44, 11], "each descriptor is submitted once");
    assert_eq!(held.wait().expect_err("the device never reports the copy").kind(), ErrorKind::DeviceLost);
    let (src, dst) = rig.pair(12);
    assert_eq!(rig.queue.copy(src, dst).expect_err("the engine is abandoned").kind(), ErrorKind::Closed);
    let Rig { queue, script, .. } = rig;
    assert_eq!(queue.close(Duration::ZERO).abandoned, 2);
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
    assert!(!lock(&script).dropped);
}

#[test]
fn an_engine_that_reports_twice_is_given_up() {
    for again in [Again::Beside, Again::Instead] {
        let rig = Rig::new();
        let (parked, given_back) = rig.copy_to_owned(44);
        drop(parked);
        let held = rig.copy(11);
        lock(&rig.script).again = Some(again);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rig.queue.flush();
            rig.queue.poll();
        }));
        let said = panicked
            .expect_err("the planner panics, because the engine broke the contract")
            .downcast::<String>()
            .expect("a message");
        assert!(
            said.contains("breaks the contract of `RawQueue`, to report every descriptor once"),
            "{said}"
        );
        lock(&rig.script).again = None;
        rig.queue.poll();
        let end = held.wait().map_err(|e| e.kind()).err();
        assert!(matches!(end, None | Some(ErrorKind::DeviceLost)), "{end:?}");
        let (src, dst) = rig.pair(12);
        assert_eq!(rig.queue.copy(src, dst).expect_err("the engine is abandoned").kind(), ErrorKind::Closed);
        let Rig { queue, script, .. } = rig;
        drop(queue);
        assert!(count(&given_back) <= 1);
        assert!(!lock(&script).dropped, "the device's queue is not dropped, because its state is unknown");
    }
}

#[test]
fn a_panic_of_the_log_while_submitting_gives_nothing_back_that_the_device_will_have() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    rig.refuse(33);
    let refused = rig.copy(33);
    let others: Vec<_> = (0..31).map(|_| rig.copy(10)).collect();
    let given_back = Arc::<Mutex<u32>>::default();
    // The lists of this copy reach the planner before the pending copies are submitted, whose refusal is
    // logged.
    with_log(
        |_| panic!("this log subscriber panics"),
        || {
            let owner = Owner(vec![0; 44], Arc::clone(&given_back));
            let dst = rig.engine.register(HostMemory::from_owner(owner)).expect("registered");
            drop(rig.queue.copy(vec![rig.pair(44).0], vec![dst]).expect("room"));
        },
    );
    rig.queue.flush();
    assert!(rig.took(44));
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
    lock(&rig.script).mute = false;
    drop((refused, others));
}

/// A waker that panics. A second panic while it is dropped would abort the process.
struct Bad;

impl Wake for Bad {
    fn wake(self: Arc<Self>) {
        panic!("a waker's own");
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the drop of a waker");
        }
    }
}

/// A waker panics during the close, which goes on; or the engine panics, so that the queue is not closed.
#[test]
fn a_panic_while_closing_gives_nothing_back_that_the_device_has() {
    for engine_panics in [false, true] {
        let rig = Rig::new();
        rig.queue.shared.borrow_mut().cooperative = false;
        lock(&rig.script).full = true;
        let mut refused = rig.copy(33);
        assert!(poll(&mut refused, &Arc::new(Bad).into()).is_pending());
        let (transfer, given_back) = rig.copy_to_owned(44);
        drop(transfer);
        let mut script = lock(&rig.script);
        (script.full, script.mute, script.panics) = (false, true, engine_panics);
        drop(script);
        rig.refuse(33);
        let Rig { queue, script, .. } = rig;
        assert_eq!(panics(|| drop(queue)), engine_panics);
        drop(refused);
        assert!(lock(&script).taken.iter().any(|taken| taken.0 == 44));
        assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
        assert!(!lock(&script).dropped, "the device's queue is not dropped");
    }
}

#[test]
fn a_panicking_destructor_or_waker_costs_nobody_else_the_wake() {
    struct Bomb(Vec<u8>);
    impl AsMut<[u8]> for Bomb {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a destructor's own");
        }
    }
    for (waker, close) in [(false, false), (true, false), (true, true)] {
        let rig = Rig::new();
        rig.queue.shared.borrow_mut().cooperative = false;
        lock(&rig.script).mute = true;
        let mut unlucky = waker.then(|| rig.copy(11));
        match &mut unlucky {
            Some(unlucky) => assert!(poll(unlucky, &Arc::new(Bad).into()).is_pending()),
            None => {
                let dst = rig.engine.register(HostMemory::from_owner(Bomb(vec![0; 11]))).expect("registered");
                drop(rig.queue.copy(rig.pair(11).0, dst).expect("room"));
            }
        }
        let woken = Arc::<Flag>::default();
        let mut awaited = rig.copy(12);
        assert!(poll(&mut awaited, &Arc::clone(&woken).into()).is_pending());
        lock(&rig.script).mute = close;
        if close {
            drop(rig.queue);
        } else {
            assert_eq!(rig.queue.poll(), 2);
            let counters = rig.queue.counters();
            assert_eq!((counters.completed, counters.in_flight), (2, 0));
            rig.copy(13).wait().expect("the queue goes on");
        }
        assert!(woken.0.load(Ordering::Relaxed), "the task is woken, otherwise it would sleep forever");
    }
}

/// The task of another transfer has a waker that panics. The wait polls the device for it.
#[test]
fn a_wait_returns_its_operands_though_a_waker_of_another_task_panics() {
    let rig = Rig::new();
    rig.queue.shared.borrow_mut().cooperative = false;
    lock(&rig.script).mute = true;
    let mut unlucky = rig.copy(11);
    assert!(poll(&mut unlucky, &Arc::new(Bad).into()).is_pending());
    let (waited, given_back) = rig.copy_to_owned(44);
    lock(&rig.script).mute = false;
    let (src, dst) = waited.wait().expect("done");
    assert_eq!((&src[..], count(&given_back)), (&dst[..], 0));
    // The task that has the waker finds its own copy done.
    assert_eq!(poll(&mut unlucky, Waker::noop()), Poll::Ready(Ok(())));
    let counters = rig.queue.counters();
    assert_eq!((counters.submitted, counters.completed, counters.in_flight), (2, 2, 0));
    assert_eq!(rig.queue.available(), rig.queue.depth());
    rig.copy(12).wait().expect("the queue goes on");
}

/// A transfer may move to another task, which replaces the waker of the first one.
#[test]
fn a_waker_that_panics_as_it_is_dropped_reaches_no_other_task() {
    let rig = Rig::new();
    rig.queue.shared.borrow_mut().cooperative = false;
    lock(&rig.script).mute = true;
    let (mut moved, mut dropped) = (rig.copy(11), rig.copy(12));
    assert!(poll(&mut moved, &Arc::new(Bad).into()).is_pending());
    assert!(poll(&mut dropped, &Arc::new(Bad).into()).is_pending());
    assert!(poll(&mut moved, Waker::noop()).is_pending());
    drop(dropped);
    lock(&rig.script).mute = false;
    moved.wait().expect("done");
    assert_eq!(rig.queue.available(), rig.queue.depth());
}

/// A panic of the engine unwinds through a wait. The queue keeps the operands, because it is unknown whether
/// the device uses them.
#[test]
fn a_wait_that_a_panic_of_the_engine_unwinds_keeps_its_operands() {
    let rig = Rig::new();
    let (waited, given_back) = rig.copy_to_owned(44);
    lock(&rig.script).panics = true;
    assert!(panics(|| _ = waited.wait()));
    lock(&rig.script).panics = false;
    rig.queue.poll();
    assert_eq!(rig.queue.close(Duration::ZERO).abandoned, 1);
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
}
