//! Tests of tasks and threads that wait for room.

use std::sync::atomic::AtomicU64;

use super::*;

type Pair = (BufferMut, BufferMut);

/// Makes a queue of depth 2 on a device that needs one poll for each 64 bytes. The lane's thread runs `work`.
fn small(work: impl FnOnce(&Lane) + Send + 'static) -> Rig {
    let device = ReferenceOptions { max_transfer: 64, per_poll: 1, ..ReferenceOptions::default() };
    let rig = Rig::of(ReferenceEngine::new(device), &QueueOptions::new().with_depth(2), work);
    assert_eq!((rig.queue.depth(), rig.queue.available()), (2, 2));
    rig
}

/// Makes a full queue that only the test polls, and the transfers that fill it. The transfers are done.
fn full() -> (Rig, [SharedTransfer<Pair>; 2]) {
    let rig = small(|_| ());
    let held = [rig.copy(|| ()), rig.copy(|| ())];
    (0..2).for_each(|_| _ = rig.lane().drive(Caller::Closer));
    assert_eq!((rig.queue.counters().completed, rig.queue.available()), (2, 0));
    (rig, held)
}

/// Makes a waiting task that the test polls itself. Returns the task, its waker, and the receiver of its
/// wake-ups.
fn waiter(rig: &Rig) -> (SharedReady, Waker, Receiver<()>) {
    let (woken, receiver) = signal();
    let (mut ready, waker) = (rig.queue.ready(), waker(woken));
    assert!(super::poll(&mut ready, &waker).is_pending());
    (ready, waker, receiver)
}

/// Copies `pair` when there is room. Counts refusals.
async fn copy(queue: &SharedQueue, pair: Pair, refusals: &AtomicU64) -> Result<Pair> {
    let submit = |(src, dst)| {
        let submitted = queue.copy(src, dst);
        let is_full = submitted.as_ref().is_err_and(|e| e.kind() == ErrorKind::QueueFull);
        refusals.fetch_add(is_full.into(), SeqCst);
        submitted
    };
    Ok(queue.when_ready(pair, submit).await?)
}

/// Runs all `tasks` on this thread. A task runs only when it is woken. Panics if no task is woken for a long
/// time.
fn run(tasks: Vec<impl Future<Output = ()>>) {
    let mut tasks: Vec<_> = tasks
        .into_iter()
        .map(|task| {
            let (woken, thread) = (Arc::new(AtomicBool::new(true)), std::thread::current());
            let of_task = Arc::clone(&woken);
            let wake = move || {
                of_task.store(true, SeqCst);
                thread.unpark();
            };
            (Some(Box::pin(task)), woken, waker(wake))
        })
        .collect();
    let mut last = Instant::now();
    while tasks.iter().any(|(task, ..)| task.is_some()) {
        let mut idle = true;
        for (task, woken, waker) in &mut tasks {
            let Some(running) = task else { continue };
            if woken.swap(false, SeqCst) {
                idle = false;
                if running.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                    *task = None;
                }
            }
        }
        if idle {
            assert!(last.elapsed() < HANGS, "a wake-up was lost");
            std::thread::park_timeout(HANGS);
        } else {
            last = Instant::now();
        }
    }
}

#[test]
fn many_tasks_pass_a_small_queue_without_a_busy_loop() {
    const TASKS: usize = 16;
    const COPIES: usize = 50;
    for threads in [1, 3] {
        let rig = small(Lane::serve);
        let refusals = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (queue, engine, refusals) = (rig.queue.clone(), &rig.engine, &refusals);
                scope.spawn(move || {
                    let queue = &queue;
                    let tasks = (0..TASKS).map(|_| async move {
                        let memory = || engine.allocate(1024).expect("memory");
                        let mut pair = (memory(), memory());
                        for _ in 0..COPIES {
                            pair = copy(queue, pair, refusals).await.expect("it is done");
                        }
                    });
                    run(tasks.collect());
                });
            }
        });
        let copies = (threads * TASKS * COPIES) as u64;
        assert_eq!(rig.queue.counters().completed, copies);
        // Each task is refused at least once before it waits. A later refusal happens only if another thread
        // submits between two polls. Each submission causes at most one refusal of each other thread.
        let refusals = refusals.into_inner();
        assert!(refusals > 0, "the queue was full at times");
        assert!(refusals <= copies * threads as u64, "{refusals} refusals for {copies} copies");
        assert_eq!(rig.queue.available(), 2);
    }
}

#[test]
fn threads_may_wait_for_room_too() {
    let rig = small(Lane::serve);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (queue, engine) = (rig.queue.clone(), &rig.engine);
            scope.spawn(move || {
                for _ in 0..200 {
                    let memory = || engine.allocate(64).expect("memory");
                    let mut pair = (memory(), memory());
                    while let Err(e) = queue.copy(pair.0, pair.1) {
                        assert_eq!(e.kind(), ErrorKind::QueueFull);
                        pair = e.into_operands().expect("they come back");
                        queue.ready().wait().expect("there will be");
                    }
                }
            });
        }
    });
    assert_eq!(rig.queue.close(HANGS).completed, 600);
}

#[test]
fn waiting_for_room_has_a_deadline() {
    let (rig, held) = full();
    let error = rig.queue.ready().wait_until(Instant::now()).expect_err("the transfers hold all slots");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(held);
    rig.queue.ready().wait_until(Instant::now()).expect("whatever the deadline");
    rig.queue.ready().wait().expect("there is room");
}

#[test]
fn a_place_wakes_the_first_in_line() {
    let (rig, [one, other]) = full();
    let (mut first, of_first, first_woken) = waiter(&rig);
    let (_second, _, second_woken) = waiter(&rig);
    one.wait().expect("done");
    first_woken.try_recv().expect("there is room");
    second_woken.try_recv().expect_err("there is room for only one task");
    // Other tasks took the room first.
    let _again = rig.copy(|| ());
    assert!(super::poll(&mut first, &of_first).is_pending());
    other.wait().expect("done");
    first_woken.try_recv().expect("the task is still the first in the wait list");
    second_woken.try_recv().expect_err("there is room for only one task");
    assert!(matches!(super::poll(&mut first, &of_first), Poll::Ready(Ok(()))));
    second_woken.try_recv().expect("the second task is woken, because the first task may not use the slot");
}

#[test]
fn a_waiter_that_gives_up_passes_its_wakeup_on() {
    let (rig, [one, _other]) = full();
    let (first, of_first, first_woken) = waiter(&rig);
    let (mut second, of_second, second_woken) = waiter(&rig);
    one.wait().expect("done");
    first_woken.try_recv().expect("there is room");
    drop(first);
    drop(of_first);
    second_woken.try_recv().expect("the second task is woken, because the first task has left");
    assert!(matches!(super::poll(&mut second, &of_second), Poll::Ready(Ok(()))));
}

/// A task that finds the queue full during a submission that then fails would otherwise sleep beside a free
/// slot.
#[test]
fn a_submission_that_fails_wakes_the_next_in_line() {
    let (rig, [one, _other]) = full();
    one.wait().expect("done");
    let mut waiting = None;
    let submitted = rig.lane().submit(0, |_| {
        waiting = Some(waiter(&rig));
        Err(Error::bare(ErrorKind::OutOfMemory))
    });
    assert!(submitted.expect("room").is_err());
    let (mut ready, waker, woken) = waiting.expect("the queue was full");
    woken.try_recv().expect("there is room again");
    assert!(matches!(super::poll(&mut ready, &waker), Poll::Ready(Ok(()))));
}

#[test]
fn a_waiter_that_gives_up_leaves_nothing_behind() {
    let (rig, [one, _other]) = full();
    let (let_go, gone) = signal();
    let waker = Arc::new(LetGo(let_go)).into();
    let mut ready = rig.queue.ready();
    assert!(super::poll(&mut ready, &waker).is_pending());
    let (_second, _, second_woken) = waiter(&rig);
    drop(waker);
    gone.try_recv().expect_err("it waits");
    drop(ready);
    gone.try_recv().expect("leaving the wait list drops the waker, which may keep the queue alive");
    one.wait().expect("done");
    second_woken.try_recv().expect("the second task is now the first in the wait list");
}

#[test]
fn dropped_transfers_free_their_places_for_who_waits() {
    let rig = small(|_| ());
    rig.mute(true);
    drop([rig.copy(|| ()), rig.copy(|| ())]);
    let (mut ready, waker, woken) = waiter(&rig);
    rig.mute(false);
    rig.lane().drive(Caller::Closer);
    woken.try_recv().expect("there is room");
    assert!(matches!(super::poll(&mut ready, &waker), Poll::Ready(Ok(()))));
}

#[test]
fn a_close_ends_the_waiting_for_room() {
    let (rig, _held) = full();
    let (mut ready, waker, woken) = waiter(&rig);
    rig.queue.close(HANGS);
    woken.try_recv().expect("closing the queue wakes the waiting task");
    let error = ready_error(super::poll(&mut ready, &waker));
    assert_eq!((error.kind(), error.hint()), (ErrorKind::Closed, "open another queue"));
    assert_eq!(
        rig.queue.ready().wait().expect_err("a thread that waits gets the same error").kind(),
        ErrorKind::Closed
    );
}

/// The slots of forgotten transfers never become free.
#[test]
fn a_close_ends_the_waiting_for_the_slots_of_forgotten_transfers() {
    let (rig, held) = full();
    held.into_iter().for_each(std::mem::forget);
    let pair = (rig.memory(|| ()), rig.memory(|| ()));
    let mut copy = Box::pin(rig.queue.copy_when_ready(pair.0, pair.1));
    let (woken, receiver) = signal();
    let waker = waker(woken);
    assert!(super::poll(&mut copy, &waker).is_pending());
    (0..4).for_each(|_| _ = rig.lane().drive(Caller::Closer));
    assert!(super::poll(&mut copy, &waker).is_pending());
    rig.queue.close(HANGS);
    heard(&receiver);
    let Poll::Ready(Err(refused)) = super::poll(&mut copy, &waker) else { panic!("the queue is closed") };
    assert_eq!(refused.kind(), ErrorKind::Closed);
    refused.into_operands().expect("the copy has not begun");
}

#[test]
fn a_device_that_hangs_ends_the_waiting_for_room() {
    let rig = Rig::impatient(4);
    rig.mute(true);
    // If this thread is slow, the device has stalled before the queue is full.
    while rig.try_copy().is_ok() {}
    let waiting = || {
        let (woken, receiver) = signal();
        let (mut ready, waker) = (rig.queue.ready(), waker(woken));
        let mut result = super::poll(&mut ready, &waker);
        while result.is_pending() {
            heard(&receiver);
            result = super::poll(&mut ready, &waker);
        }
        result
    };
    let error = ready_error(waiting());
    assert_eq!((error.kind(), error.operation()), (ErrorKind::TimedOut, "wait for room"), "{error}");
    assert_eq!(
        rig.queue.ready().wait().expect_err("a thread that waits gets the same error").kind(),
        ErrorKind::TimedOut
    );
    rig.mute(false);
    // Wait until the lane's thread has seen a completion.
    let deadline = Instant::now() + HANGS;
    while !matches!(waiting(), Poll::Ready(Ok(()))) {
        assert!(Instant::now() < deadline, "a device that completes operations is no longer stalled");
    }
}

#[test]
fn an_engine_that_panics_ends_the_waiting_for_room() {
    let rig = small(Lane::serve);
    rig.mute(true);
    let _held = [rig.copy(|| ()), rig.copy(|| ())];
    let (mut ready, waker, woken) = waiter(&rig);
    rig.script.panics.store(true, SeqCst);
    heard(&woken);
    assert_eq!(ready_error(super::poll(&mut ready, &waker)).kind(), ErrorKind::Closed);
}

#[track_caller]
fn ready_error(result: Poll<Result<()>>) -> Error {
    match result {
        Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Nobody frees a slot, because the caller itself holds the transfers of all ended operations.
#[test]
fn a_retry_on_a_queue_full_of_ended_operations_returns_the_operands() {
    let device = ReferenceOptions { max_transfer: 64, per_poll: 1, ..ReferenceOptions::default() };
    let options = QueueOptions::new().with_depth(2).with_stall_timeout(Duration::from_millis(1));
    let rig = Rig::of(ReferenceEngine::new(device), &options, Lane::serve);
    let held = [rig.copy(|| ()), rig.copy(|| ())];
    let pair = (rig.engine.allocate(64).expect("memory"), rig.engine.allocate(64).expect("memory"));
    let retry =
        |pair| rig.queue.retry(&crate::RetryPolicy::new(), pair, |(src, dst)| rig.queue.copy(src, dst));
    let error = retry(pair).expect_err("the queue stays full");
    assert_eq!(error.kind(), ErrorKind::QueueFull, "{error}");
    drop(held);
    let (src, dst) = error.into_operands().expect("they come back");
    drop(rig.queue.copy(src, dst).expect("there is room now"));
}
