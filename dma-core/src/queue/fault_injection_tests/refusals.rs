//! Tests of descriptors that the device refuses or fails, and of invalid operations.

use super::*;

/// An end that was reported already does not end the next operation of the same slot.
#[test]
fn an_end_that_was_seen_already_is_not_the_end_of_what_has_the_slot_next() {
    let rig = Rig::new();
    lock(&rig.script).full = true;
    let mut refused = rig.copy(33);
    assert!(poll(&mut refused, Waker::noop()).is_pending());
    lock(&rig.script).full = false;
    lock(&rig.script).mute = true;
    rig.refuse(33);
    // The last copy submits the 32 copies before it. The first of them is refused.
    let others: Vec<_> = (0..32).map(|_| rig.copy(10)).collect();
    assert_eq!(poll(&mut refused, Waker::noop()), Poll::Ready(Err(ErrorKind::OutOfRange)));
    let (transfer, given_back) = rig.copy_to_owned(44);
    drop(transfer);
    rig.queue.flush();
    assert!(rig.took(44));
    assert_eq!(count(&given_back), 0, "the memory was freed while the device may access it");
    lock(&rig.script).mute = false;
    others.into_iter().for_each(|other| drop(other.wait().expect("done")));
    while count(&given_back) == 0 {
        rig.queue.poll();
    }
    assert_eq!(rig.queue.available(), 64, "every slot is free, and no slot is free twice");
}

/// If a submission ends an operation, its task is woken without waiting for the next poll.
#[test]
fn a_refusal_while_submitting_wakes_who_awaits() {
    let rig = Rig::new();
    rig.queue.shared.borrow_mut().cooperative = false;
    lock(&rig.script).full = true;
    let woken = Arc::<Flag>::default();
    let mut refused = rig.copy(33);
    assert!(poll(&mut refused, &Arc::clone(&woken).into()).is_pending());
    lock(&rig.script).full = false;
    rig.refuse(33);
    let others: Vec<_> = (0..32).map(|_| rig.copy(10)).collect();
    assert!(woken.0.load(Ordering::Relaxed));
    drop(others);
}

#[test]
fn a_batch_that_is_refused_whole_says_so_of_every_copy() {
    const COPIES: usize = 50_000;
    let rig = Rig::new();
    lock(&rig.script).refuse_all = true;
    let (src, dst) = (rig.pair(8).0.freeze(), rig.engine.allocate(COPIES).expect("memory").share());
    let batch: Batch<_, _> = (0..COPIES).map(|at| (src.slice(at % 8..=at % 8), dst.slice(at..=at))).collect();
    let e = rig.queue.submit(batch).expect("room").wait().expect_err("refused");
    assert!(e.failures().iter().map(|failure| failure.index).eq(0..COPIES));
}

/// Undefined bits in the rights do not make another engine's memory acceptable.
#[test]
fn unknown_rights_are_none() {
    let engines: Vec<_> = (0..4).map(|_| ReferenceEngine::new(ReferenceOptions::default())).collect();
    let request = MemoryRequest::new(64).with_access(Access::from_bits_retain(0xffff_fff3));
    for from in &engines {
        for to in engines.iter().filter(|to| !std::ptr::eq(*to, from)) {
            let queue = to.open_queue(&QueueOptions::new()).expect("it opens");
            let src = from.allocate_with(&request).expect("memory");
            let batch: Batch<_, _> = [(src, to.allocate(64).expect("memory"))].into_iter().collect();
            let refused = queue.submit(batch).expect_err("another's");
            assert_eq!(refused.kind(), ErrorKind::WrongEngine);
            // Two engines of one name look the same in the message.
            let hint = refused.error().hint();
            assert!(hint.contains("each `open` makes an engine of its own"), "{hint}");
        }
    }
    assert_eq!(engines[0].allocate_with(&request).expect("memory").region().access(), Access::all());
}

#[test]
fn a_refused_descriptor_fails_its_own_operation_and_no_other() {
    let rig = Rig::new();
    let refused = Some(ErrorKind::OutOfRange);
    for (at, len) in [11, 12, 13].into_iter().enumerate() {
        rig.refuse(len);
        let mut expected = [None; 3];
        expected[at] = refused;
        assert_eq!(rig.run(&[11, 12, 13]).0, expected);
    }
    // Refuse the first chunk of a split operation, then the last chunk.
    rig.refuse(64);
    assert_eq!(rig.run(&[11, 100, 13]).0, [None, refused, None]);
    rig.refuse(36);
    assert_eq!(rig.run(&[11, 100, 13]).0, [None, refused, None]);
    assert_eq!(rig.run(&[11, 100, 13]).0, [None; 3]);
    let counters = rig.queue.counters();
    assert_eq!((counters.submitted, counters.completed, counters.failed, counters.in_flight), (18, 13, 5, 0));
}

#[test]
fn a_refusal_says_what_the_engine_said() {
    let rig = Rig::new();
    rig.refuse(11);
    let e = rig.copy(11).wait().expect_err("it was refused");
    assert_eq!((e.error().message(), e.error().operation()), ("told to", "copy"));
}

#[test]
fn a_fence_outlives_the_refusal_of_what_carries_it() {
    let refused = Some(ErrorKind::OutOfRange);
    // The fence passes to the next waiting operation.
    let rig = Rig::new();
    rig.refuse(12);
    let (ends, taken) = rig.run(&[11, -12, 13]);
    assert_eq!((&ends[..], &taken[..]), (&[None, refused, None][..], &[(11, false), (13, true)][..]));
    // The fence passes to the first chunk of a split operation.
    rig.refuse(12);
    let (ends, taken) = rig.run(&[11, -12, 100]);
    assert_eq!(ends, [None, refused, None]);
    assert_eq!(taken, [(11, false), (64, true), (36, false)]);
    // The fence of a split operation passes to the next operation.
    rig.refuse(64);
    let (ends, taken) = rig.run(&[11, -100, 13]);
    assert_eq!((&ends[..], &taken[..]), (&[None, refused, None][..], &[(11, false), (13, true)][..]));
    // If no operation waits, the fence passes to the next submitted operation.
    for len in [12, 100] {
        rig.refuse(if len == 12 { 12 } else { 64 });
        assert_eq!(rig.run(&[-len]), (vec![refused], vec![]));
        assert_eq!(rig.run(&[14]), (vec![None], vec![(14, true)]));
    }
    // The fence of an operation with a result passes to the next operation, whether it has one descriptor or
    // several.
    for (len, behind) in [(12, 13), (100, 13), (12, 100), (100, 100)] {
        rig.refuse(if len == 12 { 12 } else { 64 });
        lock(&rig.script).taken.clear();
        let first = rig.copy(11);
        rig.queue.fence();
        let crc = rig.queue.crc32c(rig.pair(len).0, 0).expect("room");
        rig.queue.flush();
        let last = rig.copy(behind);
        crc.wait().expect_err("the CRC is refused");
        first.wait().expect("done");
        last.wait().expect("done");
        let taken = lock(&rig.script).taken.clone();
        assert_eq!(taken[..2], [(11, false), (behind.min(64), true)]);
    }
}

#[test]
fn nothing_overtakes_a_fence_that_waits() {
    let rig = Rig::new();
    lock(&rig.script).full = true;
    rig.queue.fence();
    let first = rig.copy(100);
    let flat = rig.copy(13);
    let batch: Batch<_, _> = [15, 16].map(|len| rig.pair(len)).into_iter().collect();
    let batch = rig.queue.submit(batch).expect("room");
    rig.queue.flush();
    lock(&rig.script).full = false;
    first.wait().expect("done");
    flat.wait().expect("done");
    batch.wait().expect("done");
    let taken = lock(&rig.script).taken.clone();
    assert_eq!(taken[..2], [(64, true), (36, false)], "{taken:?}");
    assert_eq!(taken.len(), 5);
    // The first submitted copy of a batch carries the fence.
    lock(&rig.script).taken.clear();
    rig.queue.fence();
    let batch: Batch<_, _> = [15, 16].map(|len| rig.pair(len)).into_iter().collect();
    rig.queue.submit(batch).expect("room").wait().expect("done");
    assert_eq!(lock(&rig.script).taken[..], [(15, true), (16, false)]);
}

#[test]
fn every_failure_of_a_batch_is_told_with_its_place() {
    let rig = Rig::new();
    let fault = Outcome::Failed(ErrorKind::DeviceFault);
    lock(&rig.script).fail = HashMap::from([(22, (Outcome::Aborted, 5)), (24, (fault, 7)), (26, (fault, 9))]);
    let batch: Batch<_, _> = (20..28).map(|len| rig.pair(len)).collect();
    let e = rig.queue.submit(batch).expect("room").wait().expect_err("three copies of the batch failed");
    let told: Vec<_> = e
        .failures()
        .iter()
        .map(|f| (f.index, f.error.kind(), f.error.native().map_or(0, |native| native.code)))
        .collect();
    let (aborted, fault) = (ErrorKind::Aborted, ErrorKind::DeviceFault);
    assert_eq!(told, [(2, aborted, 5), (4, fault, 7), (6, fault, 9)]);
    assert_eq!(e.kind(), fault, "a failure has priority over an abort");
    let counters = rig.queue.counters();
    assert_eq!((counters.completed, counters.failed, counters.aborted), (5, 2, 1));
    for (src, dst) in e.into_operands().expect("the operands are returned").drain() {
        assert!(dst[..] == src[..]);
    }
}

#[test]
fn the_worst_of_a_copys_pieces_is_what_became_of_it() {
    let fault = Outcome::Failed(ErrorKind::DeviceFault);
    for ends in [[(fault, 7), (Outcome::Aborted, 5)], [(Outcome::Aborted, 5), (fault, 7)]] {
        let rig = Rig::new();
        lock(&rig.script).fail = HashMap::from([(64, ends[0]), (36, ends[1])]);
        let e = rig.copy(100).wait().expect_err("both pieces failed");
        let native = e.error().native().map(|native| native.code);
        assert_eq!((e.kind(), native), (ErrorKind::DeviceFault, Some(7)));
    }
}

/// A comparison has no destination.
#[test]
fn a_comparison_of_different_lengths_names_its_operands() {
    let rig = Rig::new();
    let (a, b) = rig.pair(20);
    let e =
        rig.queue.compare(a.freeze().slice(..1), b.freeze()).map(drop).expect_err("they differ in length");
    let text = "the first operand has 1 byte, and the second operand has 20 bytes";
    assert_eq!((e.kind(), e.error().message()), (ErrorKind::LengthMismatch, text));
}

/// All copies of a batch are checked before any is submitted, like a single copy.
#[test]
fn a_batch_with_one_bad_copy_is_refused_whole() {
    let rig = Rig::new();
    let read_only = || {
        let request = MemoryRequest::new(32).with_access(Access::READ);
        rig.engine.allocate_window(&request).expect("memory")
    };
    let write_only = || {
        let request = MemoryRequest::new(32).with_access(Access::WRITE);
        rig.engine.allocate_window(&request).expect("memory")
    };
    let both = || rig.engine.allocate_window(&MemoryRequest::new(32)).expect("memory");
    let elsewhere = Rig::new().engine.allocate_window(&MemoryRequest::new(32)).expect("memory");
    let whole = both();
    for (bad, kind) in [
        ((write_only(), both()), ErrorKind::AccessDenied),
        ((both(), read_only()), ErrorKind::AccessDenied),
        ((elsewhere.clone(), both()), ErrorKind::WrongEngine),
        ((both(), elsewhere.clone()), ErrorKind::WrongEngine),
        ((both().slice(1..), both()), ErrorKind::LengthMismatch),
        ((whole.slice(..20), whole.slice(12..)), ErrorKind::Overlap),
        ((whole.slice(12..), whole.slice(..20)), ErrorKind::Overlap),
    ] {
        let batch: Batch<_, _> = [(both(), both()), bad, (both(), both())].into_iter().collect();
        let e = rig.queue.submit(batch).expect_err("one copy of the batch is invalid");
        assert_eq!(e.kind(), kind);
        assert_eq!(e.into_operands().expect("the operands are returned").len(), 3);
    }
    rig.queue.flush();
    assert_eq!(lock(&rig.script).taken, [], "no copy of a refused batch was submitted");
    // Adjacent ranges do not overlap.
    let batch: Batch<_, _> = [(whole.slice(..16), whole.slice(16..)), (both(), both())].into_iter().collect();
    rig.queue.submit(batch).expect("room").wait().expect("done");
}

#[test]
fn copies_of_a_batch_are_cut_and_left_out_like_others() {
    let rig = Rig::new();
    let mut empty = rig.pair(20);
    let rest = (empty.0.split_off(20), empty.1.split_off(20));
    for (pairs, expected) in
        [(vec![rig.pair(64), rig.pair(65)], &[1, 64, 64][..]), (vec![empty, rest], &[20])]
    {
        lock(&rig.script).taken.clear();
        let batch: Batch<_, _> = pairs.into_iter().collect();
        let mut batch = rig.queue.submit(batch).expect("room").wait().expect("done");
        assert!(batch.drain().all(|(src, dst)| src[..] == dst[..]));
        let mut taken: Vec<_> = lock(&rig.script).taken.iter().map(|(len, _)| *len).collect();
        taken.sort_unstable();
        assert_eq!(taken, expected);
    }
}

#[test]
fn a_retry_follows_the_advice_of_the_error() {
    let policy = crate::RetryPolicy::new();
    let rig = Rig::with(QueueOptions::new().with_depth(2));
    let retry = |len| rig.queue.retry(&policy, rig.pair(len), |(src, dst)| rig.queue.copy(src, dst));
    // The first outcomes of a copy of this length are reported in this order.
    lock(&rig.script).fail.insert(20, (Outcome::Aborted, 0));
    let attempts = std::cell::Cell::new(0);
    let done = rig.queue.retry(&policy, rig.pair(20), |(src, dst)| {
        attempts.set(attempts.get() + 1);
        if attempts.get() == 5 {
            lock(&rig.script).fail.clear();
        }
        rig.queue.copy(src, dst)
    });
    let (src, dst) = done.expect("the fifth attempt succeeds");
    assert!(src[..] == dst[..] && attempts.get() == 5);
    lock(&rig.script).fail.insert(21, (Outcome::Failed(ErrorKind::DeviceFault), 0));
    let error = retry(21).expect_err("all attempts fail");
    assert_eq!(error.kind(), ErrorKind::DeviceFault);
    assert!(error.into_operands().is_some(), "the operands are returned");
    assert_eq!(lock(&rig.script).taken.iter().filter(|taken| taken.0 == 21).count(), 4);
    // The queue is full of operations whose transfers were dropped, so it makes room itself.
    (0..2).for_each(|_| drop(rig.copy(10)));
    retry(22).expect("the device completes the other operations");
    // Only the owner of the transfers can make room.
    let held = [rig.copy(10), rig.copy(10)];
    let error = retry(23).expect_err("the queue stays full");
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    assert!(error.into_operands().is_some(), "the operands are returned");
    held.into_iter().for_each(|held| _ = held.wait().expect("done"));
}
