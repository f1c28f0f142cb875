//! Cases: full queues, batches, fences, and the ways to wait for the end of an operation.

use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::expect::repeats;
use super::{
    ACCEPTS, COMPLETES, allocate, expect_all_completed, expect_arrived, expect_kind, filled, inline_limit,
    patience, queue, queue_of, queued_len, sample,
};
use dma_core::{Batch, DmaEngine, ErrorKind, QueueOptions};

/// A full queue returns the operands, and accepts them when there is room again.
pub fn full_queues_hand_back(engine: &dyn DmaEngine) {
    let (q, len) = (queue_of(engine, 4), queued_len(engine, 64));
    let mut transfers = Vec::new();
    let depth = q.depth();
    for _ in 0..depth {
        transfers.push(q.copy(allocate(engine, len), allocate(engine, len)).expect(ACCEPTS));
    }
    assert_eq!(q.available(), 0, "a queue of depth {depth} with {depth} operations in flight has no room");
    let mut src = allocate(engine, len);
    src.fill(9);
    let refused = q.copy(src, allocate(engine, len)).expect_err("a full queue refuses");
    expect_kind(&refused, ErrorKind::QueueFull, "a full queue refuses operations with `QueueFull`");
    let (src, dst) = refused.into_operands().expect("a refusal returns the operands");
    assert_eq!(q.counters().full, 1, "`full` counts the operations that were handed back");
    transfers.pop().expect("there is one").wait().expect(COMPLETES);
    let (_, dst) = q.copy(src, dst).expect(ACCEPTS).wait().expect(COMPLETES);
    expect_arrived(&vec![9; len], &dst, "a copy that was refused at first");
}

/// Operations that are short enough for the [inline executor](dma_core::InlineExecutor) are done when they
/// have been submitted. Such operations are counted, take no place in the queue, and obey fences. Longer
/// operations are in flight. The case is skipped on an engine without an executor, and if the executor
/// selects the copies that it executes.
pub fn short_operations_take_no_place(engine: &dyn DmaEngine) {
    let limit = inline_limit(engine);
    let raw = engine.open_queue_raw(&crate::queue_options(0)).expect("an engine opens a queue");
    if raw.inline_executor().is_none_or(|executor| executor.selects_copies()) {
        return;
    }
    drop(raw);
    let q = queue_of(engine, 4);
    let hold = |len: usize, seed| {
        let src = filled(engine, seed, len);
        q.copy(src, allocate(engine, len)).expect(ACCEPTS)
    };
    let room = q.available();
    let held: Vec<_> = (0..2 * q.depth() as u64).map(|seed| hold(limit, seed)).collect();
    let counters = q.counters();
    assert_eq!(
        (q.available(), counters.in_flight),
        (room, 0),
        "an operation that is done takes no place in the queue"
    );
    let n = held.len() as u64;
    assert_eq!(
        (counters.completed, counters.descriptors),
        (n, 0),
        "`completed` counts every short operation, and `descriptors` none"
    );
    assert_eq!(counters.bytes, n * limit as u64, "`bytes` counts the bytes of short operations");
    for transfer in held {
        assert!(transfer.is_done(), "a short operation is done when it has been submitted");
        let (src, dst) = transfer.wait().expect(COMPLETES);
        expect_arrived(&src, &dst, "a short copy");
    }
    // While an operation is in flight, a short operation behind a fence waits for it.
    let window = allocate(engine, limit + 1).share();
    let src = filled(engine, 7, limit + 1);
    let long = q.copy(src, window.clone()).expect(ACCEPTS);
    assert_eq!(q.counters().in_flight, 1, "a longer operation is in flight until a poll reports it");
    q.fence();
    let short = q.copy(window.slice(..limit), allocate(engine, limit)).expect(ACCEPTS);
    let (_, dst) = short.wait().expect(COMPLETES);
    expect_arrived(&sample(7, limit + 1)[..limit], &dst, "a short copy behind a fence");
    long.wait().expect(COMPLETES);
    let again = hold(limit, 3);
    assert_eq!(q.counters().in_flight, 0, "nothing is in flight, so the short operation is done immediately");
    expect_all_completed(q.close(patience()), n + 3, "after the close");
    assert!(again.is_done(), "a transfer that is done stays done after its queue is closed");
    again.wait().expect(COMPLETES);
}

/// A batch completes when all its copies have completed. The batch returns its operands in order, and can be
/// reused.
pub fn batches_complete_as_a_whole(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let mut batch: Batch<_, _> = (0..50_u8)
        .map(|i| {
            let mut src = allocate(engine, 100);
            src.fill(i);
            (src, allocate(engine, 100))
        })
        .collect();
    for round in 0..3 {
        for (src, _) in batch.iter_mut() {
            src[0] = round;
        }
        let before = q.counters();
        batch = q.submit(batch).expect(ACCEPTS).wait().expect(COMPLETES);
        let after = q.counters();
        assert_eq!(after.completed - before.completed, 50, "`completed` counts every copy of a batch");
        for (i, (src, dst)) in (0_u8..).zip(batch.iter()) {
            assert!(src[..] == dst[..] && dst[0] == round && dst[99] == i, "copy {i} of round {round}");
        }
    }
    // If one copy of a batch is invalid, no copy of the batch is submitted.
    batch.push(allocate(engine, 1), allocate(engine, 2));
    let refused = q.submit(batch).expect_err("lengths differ");
    expect_kind(&refused, ErrorKind::LengthMismatch, "source and destination must have the same length");
    assert!(refused.to_string().contains("copy 50"), "{refused}");
    assert_eq!(refused.into_operands().expect("a refusal returns the batch").len(), 51);
    assert_eq!(q.counters().submitted, 150, "no copy of a refused batch is submitted");
}

/// An operation behind a fence sees the bytes that were written by operations before the fence.
pub fn fences_keep_order(engine: &dyn DmaEngine) {
    let q = queue(engine);
    // Each copy reads the destination of the previous copy. Each destination is a window of its own, so only
    // the fences prevent the copies from running at the same time.
    let window = |byte: u8| {
        let mut buffer = allocate(engine, 70_000);
        buffer.fill(byte);
        buffer.share()
    };
    for _ in 0..5 {
        let links: Vec<_> = (0..=q.depth().min(7) as u8).map(window).collect();
        let mut transfers = Vec::new();
        for pair in links.windows(2) {
            q.fence();
            transfers.push(q.copy(pair[0].clone(), pair[1].clone()).expect(ACCEPTS));
        }
        q.flush();
        for transfer in transfers {
            let (_, dst) = transfer.wait().expect(COMPLETES);
            let mut bytes = vec![1; dst.len()];
            dst.read_at(0, &mut bytes).expect("local memory can be read");
            assert!(repeats(&bytes, &[0]), "a copy behind a fence saw old bytes");
        }
    }
}

/// A wait with a deadline returns at the deadline, and the transfer can be waited for again.
pub fn waits_have_deadlines(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let mut transfer = q.copy(allocate(engine, 1 << 20), allocate(engine, 1 << 20)).expect(ACCEPTS);
    // The operation may or may not have ended by then; both are correct.
    if let Err(e) = transfer.wait_until(Instant::now()) {
        expect_kind(&e, ErrorKind::TimedOut, "a wait that reaches its deadline fails with `TimedOut`");
    }
    transfer.wait_for(patience()).expect(COMPLETES);
    assert!(transfer.is_done(), "a transfer is done after a wait for it");
    transfer.wait().expect(COMPLETES);
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Count(std::sync::atomic::AtomicUsize);

impl Wake for Count {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Transfers are futures. A transfer that is polled completes without a runtime. If the queue has no driver,
/// a pending transfer wakes its task, so that the task polls the transfer again.
pub fn futures_resolve_anywhere(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let count = std::sync::Arc::new(Count::default());
    let waker = Waker::from(std::sync::Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut transfers: Vec<_> = (0..10.min(q.depth()))
        .map(|i| {
            let mut src = allocate(engine, 10_000);
            src.fill(i as u8 + 1);
            q.copy(src, allocate(engine, 10_000)).expect(ACCEPTS)
        })
        .collect();
    let started = Instant::now();
    while !transfers.is_empty() {
        transfers.retain_mut(|transfer| {
            let woken = count.0.load(std::sync::atomic::Ordering::SeqCst);
            match Pin::new(transfer).poll(&mut context) {
                Poll::Ready(result) => {
                    let (src, dst) = result.expect(COMPLETES);
                    expect_arrived(&src, &dst, "a copy that was awaited");
                    false
                }
                Poll::Pending => {
                    assert!(
                        count.0.load(std::sync::atomic::Ordering::SeqCst) > woken,
                        "without a driver, a pending transfer wakes its task"
                    );
                    true
                }
            }
        });
        let left = transfers.len();
        assert!(
            started.elapsed() < patience(),
            "{COMPLETES}: {left} copies are not done after the time limit"
        );
    }
}

/// With a driver, waiting tasks are woken when the file descriptor is readable. A thread that sleeps on the
/// descriptor misses no completion.
pub fn drivers_wake_from_a_file_descriptor(engine: &dyn DmaEngine) {
    use rustix::event::{PollFd, PollFlags, Timespec};

    let mut raw = engine.open_queue_raw(&QueueOptions::new()).expect("an engine opens a queue");
    let has_events = raw.events().is_some();
    drop(raw);
    let q = queue(engine);
    let driver = match q.driver() {
        Ok(driver) => driver,
        Err(e) => {
            assert!(!has_events, "a queue with events has a driver: {e}");
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
            return;
        }
    };
    let count = std::sync::Arc::new(Count::default());
    let waker = Waker::from(std::sync::Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    for round in 0..20 {
        let len = [64, 4096, 1 << 20][round % 3];
        let mut transfer = q.copy(allocate(engine, len), allocate(engine, len)).expect(ACCEPTS);
        let started = Instant::now();
        while Pin::new(&mut transfer).poll(&mut context).is_pending() {
            let woken = count.0.load(std::sync::atomic::Ordering::SeqCst);
            driver.run().expect("a driver can arm its file descriptor");
            if count.0.load(std::sync::atomic::Ordering::SeqCst) == woken {
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                // The task was not woken, so the descriptor must become readable.
                rustix::event::poll(&mut [PollFd::new(&driver, PollFlags::IN)], Some(&second))
                    .expect("`poll` on a driver's file descriptor works");
            }
            assert!(
                started.elapsed() < patience(),
                "a completion makes the event fd of an armed queue readable, but within the time limit the fd was not readable or the copy was not reported"
            );
        }
        std::mem::forget(transfer);
    }
    let _ = q.close(Duration::from_secs(5));
}

/// Every token is reported once, after its operation has ended. Tokens of dropped transfers are not reported.
pub fn tokens_are_reported_once(engine: &dyn DmaEngine) {
    let (q, len) = (queue(engine), queued_len(engine, 3000));
    let mut tokens = Vec::new();
    assert_eq!(
        q.wait_tokens(&mut tokens, Instant::now())
            .expect("waiting for tokens returns at once if no token is in flight"),
        0
    );
    let count = 10.min(q.depth());
    let mut first = 0;
    for wait in [true, false] {
        let mut transfers: Vec<_> = (0..count)
            .map(|i| {
                let mut src = allocate(engine, len);
                src.fill(i as u8 + 1);
                let transfer = q.copy(src, allocate(engine, len)).expect(ACCEPTS);
                q.set_token(&transfer, u64::MAX);
                q.set_token(&transfer, (first + i) as u64);
                Some(transfer)
            })
            .collect();
        // The operation completes, but the token of a dropped transfer is not reported.
        drop(transfers[0].take());
        q.flush();
        let begun = Instant::now();
        while transfers.iter().any(Option::is_some) {
            if wait {
                let reported = q.wait_tokens(&mut tokens, begun + patience()).expect(COMPLETES);
                assert!(reported > 0, "a wait for tokens in flight reports at least one");
            } else {
                q.poll_tokens(&mut tokens);
            }
            for token in tokens.drain(..) {
                let transfer = transfers.get_mut((token as usize).wrapping_sub(first)).and_then(Option::take);
                let transfer =
                    transfer.unwrap_or_else(|| panic!("token {token} is reported, but is not in flight"));
                assert!(transfer.is_done(), "a token is reported when its operation has ended");
                let (src, dst) = transfer.wait().expect(COMPLETES);
                expect_arrived(&src, &dst, format_args!("the copy with token {token}"));
            }
            assert!(begun.elapsed() < patience(), "{COMPLETES}: some tokens were not reported in time");
        }
        first += count;
    }
    let transfer = q.copy(allocate(engine, len), allocate(engine, len)).expect(ACCEPTS);
    q.flush();
    let begun = Instant::now();
    while !transfer.is_done() {
        assert!(begun.elapsed() < patience(), "{COMPLETES}");
    }
    q.set_token(&transfer, 7);
    assert_eq!(
        (q.poll_tokens(&mut tokens), &tokens[..]),
        (1, &[7][..]),
        "a token that is set after its operation has ended is reported"
    );
    transfer.wait().expect(COMPLETES);
    assert_eq!(q.poll_tokens(&mut tokens), 0, "each token is reported once");
}
