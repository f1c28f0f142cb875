//! Tests of transfers that are done when they are submitted.

use super::*;

#[test]
fn a_done_transfer_outlives_its_queue_and_does_not_keep_it() {
    let engine = spy();
    let queue = engine.queue();
    let (src, dst) = engine.pair(10);
    let mut held = queue.copy(src, dst).expect("room");
    assert_eq!(queue.close(SOON).completed, 1);
    assert!(held.is_done());
    held.wait_for(Duration::ZERO).expect("done");
    let (src, dst) = held.wait().expect("done");
    assert_eq!(src[..], dst[..]);
    let shared = engine.shared();
    let held = shared.copy(src, dst).expect("room");
    let hub = shared.downgrade();
    drop(shared);
    assert!(hub.upgrade().is_none(), "a transfer that is done does not keep the queue open");
    let (src, dst) = held.wait().expect("done");
    assert_eq!(src[..], dst[..]);
}

#[test]
fn a_dropped_transfer_frees_its_operands_at_once_and_once() {
    struct Owner(Vec<u8>, Arc<AtomicUsize>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl AsMut<[u8]> for Owner {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let engine = spy();
    let (queue, shared, freed) = (engine.queue(), engine.shared(), Arc::<AtomicUsize>::default());
    let owned = || {
        let owner = Owner(vec![0; 10], Arc::clone(&freed));
        engine.register(HostMemory::from_owner(owner)).expect("it registers")
    };
    drop(queue.copy(engine.pair(10).0, owned()).expect("room"));
    assert_eq!(freed.load(Ordering::Relaxed), 1);
    drop(shared.copy(engine.pair(10).0, owned()).expect("room"));
    assert_eq!(freed.load(Ordering::Relaxed), 2);
    let (_, dst) = queue.copy(engine.pair(10).0, owned()).expect("room").wait().expect("done");
    drop(queue);
    assert_eq!(freed.load(Ordering::Relaxed), 2, "a returned operand is not freed");
    drop(dst);
    assert_eq!(freed.load(Ordering::Relaxed), 3);
}

/// Copies up to the executor's `plain_copy_len` do not call it, because it would only copy the bytes. They
/// are checked and counted as all others. An executor that selects copies sees all of them.
#[test]
fn plain_copies_do_not_call_the_executor() {
    let plain = LIMIT / 2;
    for selects in [false, true] {
        let engine = spy();
        engine.script.plain_copy_len.store(plain, Ordering::Relaxed);
        engine.script.selects_copies.store(selects, Ordering::Relaxed);
        engine.script.admits.store(true, Ordering::Relaxed);
        let (queue, shared) = (engine.queue(), engine.shared());
        let whole = engine.window(LIMIT);
        for len in [1, plain, plain + 1] {
            let by_executor = usize::from(selects || len > plain);
            let src = engine.window(len);
            src.write_at(0, &vec![7; len]).expect("the CPU can reach it");
            let batch = |dst: &Window| -> Batch<_, _> { [(src.clone(), dst.clone())].into_iter().collect() };
            let rows = || Rows::new(src.clone(), vec![(0, len)]).expect("inside");
            let copies: [&dyn Fn(&Window); 5] = [
                &|dst| _ = queue.run(Op::Copy, [&src, dst, dst]).expect("done"),
                &|dst| _ = shared.run(Op::Copy, [&src, dst, dst]).expect("done"),
                &|_| assert!(queue.copy_at_once((&src, 0), (&whole, 1), len)),
                &|dst| _ = queue.submit(batch(dst)).expect("room").wait().expect("done"),
                &|dst| _ = queue.copy(rows(), dst.clone()).expect("room").wait().expect("done"),
            ];
            for copy in copies {
                let (before, dst) = (engine.script.executed(), whole.slice(1..=len));
                whole.write_at(0, &[0; LIMIT]).expect("the CPU can reach it");
                copy(&dst);
                assert_eq!(engine.script.executed() - before, by_executor, "{len} bytes");
                let mut bytes = [1; LIMIT];
                whole.read_at(0, &mut bytes).expect("the CPU can reach it");
                assert!(
                    bytes
                        .iter()
                        .enumerate()
                        .all(|(at, byte)| *byte == if (1..=len).contains(&at) { 7 } else { 0 })
                );
            }
        }
        assert_eq!((queue.counters().completed, shared.counters().completed), (12, 3));
        assert_eq!(queue.counters().bytes, 4 * (1 + plain + plain + 1) as u64);
        for len in [1, plain] {
            let operands = [&whole.slice(..=len), &whole.slice(1..len + 2), &whole];
            let refused = queue.run(Op::Copy, operands).expect_err("they overlap");
            assert_eq!(refused, ErrorKind::Overlap);
        }
    }
}

/// Comparisons and CRCs up to the executor's `plain_read_len`, and fills with one byte value and copies with
/// a CRC up to its `plain_copy_len`, do not call it. They have the same results and are counted as all
/// others.
#[test]
fn plain_operations_with_results_and_fills_do_not_call_the_executor() {
    for (plain_copy, plain_read, selects) in [(4, 8, false), (8, 4, false), (8, 8, true)] {
        let engine = spy();
        engine.script.plain_copy_len.store(plain_copy, Ordering::Relaxed);
        engine.script.plain_read_len.store(plain_read, Ordering::Relaxed);
        engine.script.selects_copies.store(selects, Ordering::Relaxed);
        engine.script.admits.store(true, Ordering::Relaxed);
        let queues: [&dyn Run; 2] = [&engine.queue(), &Now(engine.shared())];
        for (queue, len) in queues.into_iter().flat_map(|queue| [1, 4, 5, 8, 9].map(|len| (queue, len))) {
            let [a, whole] = [engine.window(len), engine.window(len + 2)];
            write(&a, 3);
            let b = whole.slice(1..=len);
            let crc = u64::from(crc32c::crc32c_append(5, &bytes(&a)));
            let last = len as u64 - 1;
            for (op, plain, expected) in [
                (Op::Fill, plain_copy, 0),
                (Op::Crc, plain_read, crc),
                (Op::CopyCrc, plain_copy, crc),
                (Op::Compare, plain_read, Completion::EQUAL),
                (Op::Compare, plain_read, last),
            ] {
                if expected == last && op == Op::Compare {
                    a.write_at(len - 1, &[!bytes(&a)[len - 1]]).expect("the CPU can reach it");
                }
                let (before, counters) = (engine.script.executed(), queue.counters());
                assert_eq!(queue.run(op, [&a, &b, &b]), Ok(expected), "{op:?} of {len} bytes");
                let calls =
                    usize::from(len > if selects && op != Op::Crc && op != Op::Compare { 0 } else { plain });
                assert_eq!(engine.script.executed() - before, calls, "{op:?} of {len} bytes");
                let after = queue.counters();
                assert_eq!(
                    (after.completed - counters.completed, after.bytes - counters.bytes),
                    (1, len as u64),
                    "{op:?}"
                );
                match op {
                    Op::Fill => assert_eq!(bytes(&b), vec![7; len]),
                    Op::CopyCrc => assert_eq!(bytes(&b), bytes(&a)),
                    _ => {}
                }
            }
            assert_eq!((bytes(&whole)[0], bytes(&whole)[len + 1]), (0, 0), "bytes beside the destination");
        }
        let (queue, before) = (engine.queue(), engine.script.executed());
        let pattern = [1, 2, 3, 4, 5, 6, 7, 8];
        let filled = queue.fill(engine.window(4), pattern).expect("room").wait().expect("done");
        assert_eq!(bytes(&filled), pattern[..4]);
        assert_eq!(engine.script.executed() - before, 1, "the executor repeats longer patterns");
    }
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_task_yields_once_in_64_transfers_that_are_done() {
    let engine = spy();
    let (queue, shared, woken) = (engine.queue(), engine.shared(), Arc::<Woken>::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut pending = Vec::new();
    for n in 1..=640 {
        let (src, dst) = engine.pair(10);
        let mut copy: Pin<Box<dyn Future<Output = Result<_, _>> + '_>> = match n % 3 {
            0 => Box::pin(queue.copy(src, dst).expect("room")),
            1 => Box::pin(shared.copy(src, dst).expect("room")),
            _ => Box::pin(shared.copy_when_ready(src, dst)),
        };
        let mut poll = || match copy.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(copied) => copied.is_ok_and(|(src, dst)| src[..] == dst[..]),
            Poll::Pending => false,
        };
        if !poll() {
            pending.push(n);
            assert_eq!(
                woken.0.load(Ordering::Relaxed),
                pending.len(),
                "a transfer that yields wakes its task"
            );
            assert!(poll(), "a transfer yields only once");
        }
    }
    assert_eq!(pending.len(), 10);
    assert!(pending.windows(2).all(|two| two[1] - two[0] == 64), "{pending:?}");
}

#[test]
fn a_done_transfer_is_polled_to_its_end_once() {
    let engine = spy();
    let (src, dst) = engine.pair(10);
    let mut transfer = engine.queue().copy(src, dst).expect("room");
    let mut context = Context::from_waker(Waker::noop());
    while Pin::new(&mut transfer).poll(&mut context).is_pending() {}
    assert!(transfer.is_done());
    let again = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut transfer).poll(&mut context).is_ready()));
    again.expect_err("the operands have been returned already");
    catch_unwind(AssertUnwindSafe(|| transfer.wait().map(drop).map_err(drop)))
        .expect_err("a wait panics too");
}

#[test]
fn clones_and_threads_share_the_counts() {
    let engine = spy();
    let shared = engine.shared();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (queue, engine) = (shared.clone(), &engine);
            scope.spawn(move || {
                for _ in 0..100 {
                    let (src, dst) = engine.pair(10);
                    let (src, dst) = queue.copy(src, dst).expect("room").wait().expect("done");
                    assert_eq!(src[..], dst[..]);
                }
            });
        }
    });
    let counters = shared.counters();
    assert_eq!((counters.submitted, counters.completed, counters.bytes), (400, 400, 4000));
    assert_eq!(shared.available(), shared.depth());
}

#[test]
fn long_copies_of_plain_bytes_are_passed_to_the_executor() {
    let engine = spy().with_cpu_copies();
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(64, 1)).expect("a pool");
    let (queue, shared) = (engine.queue(), engine.shared());
    for (len, calls) in [(0, 0), (1, 0), ((256 << 10) - 1, 0), (256 << 10, 1), ((256 << 10) + 1, 1)] {
        let src: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        for copy in
            [&|dst: &mut [u8]| queue.copy_bytes(&pool, &src, dst) as Result<()>, &|dst: &mut [u8]| {
                shared.copy_bytes(&pool, &src, dst)
            }] as [&dyn Fn(&mut [u8]) -> Result<()>; 2]
        {
            let (before, mut dst) = (engine.script.executed(), vec![0; len]);
            copy(&mut dst).expect("it is copied");
            assert!(dst == src, "{len} bytes");
            assert_eq!(engine.script.executed() - before, calls, "{len} bytes");
        }
    }
}
