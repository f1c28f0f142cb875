//! Tests of batches, lists, rows and parts of windows.

use super::*;

#[test]
fn a_batch_is_executed_as_a_whole_or_not_at_all() {
    let engine = spy();
    let queue = engine.queue();
    let mut batch: Batch<_, _> = (0..16).map(|_| engine.pair(LIMIT)).collect();
    batch = queue.submit(batch).expect("valid").wait().expect("done");
    assert_eq!(engine.script.executed(), 16, "a batch of 16 times the limit is executed inline");
    assert!(batch.iter().all(|(src, dst)| src[..] == dst[..]));
    batch.push(engine.allocate(1).expect("memory"), engine.allocate(1).expect("memory"));
    batch = queue.submit(batch).expect("valid").wait().expect("done");
    assert_eq!(
        engine.script.executed(),
        16,
        "a batch of one byte more than 16 times the limit is not executed inline"
    );
    let pieces = |n: usize| (0..n).map(|_| engine.allocate(LIMIT).expect("memory")).collect::<Vec<_>>();
    for (n, executed) in [(16, [17, 18]), (17, [18, 18])] {
        let long = engine.allocate(n * LIMIT).expect("memory");
        let (_, long) = queue.copy(pieces(n), long).expect("valid").wait().expect("done");
        assert_eq!(engine.script.executed(), executed[0], "a list of {n} times the limit");
        queue.copy(long, pieces(n)).expect("valid").wait().expect("done");
        assert_eq!(engine.script.executed(), executed[1], "a copy to a list of {n} times the limit");
    }
    batch.drain().for_each(drop);
    batch.push(engine.allocate(8).expect("memory"), engine.allocate(8).expect("memory"));
    batch.push(engine.allocate(8).expect("memory"), engine.allocate(9).expect("memory"));
    let refused = queue.submit(batch).expect_err("the second copy is invalid");
    assert!(refused.to_string().contains("copy 1"), "{refused}");
    assert_eq!(engine.script.executed(), 18, "the first copy is not executed either");
}

/// A batch that was executed is not checked again, unless it has changed or another engine executes it.
#[test]
fn a_batch_that_has_changed_is_checked_again() {
    type Change = fn(&mut Batch<Window, Window>, (Window, Window));
    let (engine, other) = (spy(), spy());
    let (queue, shared) = (engine.queue(), engine.shared());
    let [a, b, foreign] = [&engine, &engine, &other].map(|engine| engine.window(2 * LIMIT));
    let valid = || (a.slice(..8), b.slice(..8));
    let changes: [Change; 5] = [
        |batch, (src, dst)| batch.push(src, dst),
        |batch, pair| batch.extend([pair]),
        |batch, pair| *batch.iter_mut().next().expect("a pair") = pair,
        |batch, pair| *(&mut *batch).into_iter().next().expect("a pair") = pair,
        |batch, (src, dst)| {
            batch.drain().for_each(drop);
            batch.push(src, dst);
        },
    ];
    for change in changes {
        for invalid in [
            (a.slice(..8), b.slice(..9)),
            (a.slice(..8), foreign.slice(..8)),
            (a.slice(..8), a.slice(7..15)),
            (a.slice(..0), b.slice(..0)),
            (a.slice(..LIMIT + 1), b.slice(..LIMIT + 1)),
        ] {
            let mut batch = Batch::from_iter([valid()]);
            let executed = engine.script.executed();
            assert!(queue.submit_at_once(&mut batch) && shared.submit_at_once(&mut batch));
            assert!(queue.submit_at_once(&mut batch));
            assert!(!other.queue().submit_at_once(&mut batch), "memory of another engine");
            assert!(queue.submit_at_once(&mut batch));
            change(&mut batch, invalid);
            assert!(!queue.submit_at_once(&mut batch) && !shared.submit_at_once(&mut batch));
            assert!(!queue.submit_at_once(&mut batch));
            assert_eq!(engine.script.executed() - executed, 4);
        }
    }
    assert_eq!(other.script.executed(), 0);
}

#[test]
fn pieces_of_windows_are_copied_at_once_or_not_at_all() {
    let (engine, other) = (spy(), spy());
    let queue = engine.queue();
    let [a, b] = [(); 2].map(|()| engine.window(2 * LIMIT));
    write(&a, 1);
    write(&b, 2);
    let mut expected = bytes(&b);
    for (from, to, len) in [(3, 5, 9), (0, 2 * LIMIT - 1, 1), (LIMIT, LIMIT / 2, LIMIT)] {
        assert!(queue.copy_at_once((&a, from), (&b, to), len));
        expected[to..to + len].copy_from_slice(&bytes(&a)[from..from + len]);
        assert_eq!(bytes(&b), expected);
    }
    // Both ranges may be in one window if they do not overlap.
    assert!(queue.copy_at_once((&b, 0), (&b, 9), 9) && queue.copy_at_once((&b, 9), (&b, 0), 9));
    expected.copy_within(0..9, 9);
    let counters = queue.counters();
    let bytes_copied = (9 + 1 + LIMIT + 9 + 9) as u64;
    assert_eq!((counters.submitted, counters.completed, counters.bytes), (5, 5, bytes_copied));

    let end = 2 * LIMIT;
    let [to_read, to_write] = [Access::READ, Access::WRITE].map(|access| engine.window_with(access));
    let (hidden, foreign) = (engine.hidden(LIMIT), other.window(LIMIT));
    for ((src, from), (dst, to), len) in [
        ((&a, 0), (&b, 0), 0),
        ((&a, 0), (&b, 0), LIMIT + 1),
        ((&a, end - 8), (&b, 0), 9),
        ((&a, 0), (&b, end - 8), 9),
        ((&a, end + 1), (&b, 0), 1),
        ((&a, usize::MAX), (&b, 0), 2),
        ((&a, 0), (&b, usize::MAX), 2),
        ((&b, 0), (&b, 8), 9),
        ((&b, 8), (&b, 0), 9),
        ((&a, 0), (&to_read, 0), 1),
        ((&to_write, 0), (&b, 0), 1),
        ((&hidden, 0), (&b, 0), 1),
        ((&a, 0), (&hidden, 0), 1),
        ((&foreign, 0), (&b, 0), 1),
        ((&a, 0), (&foreign, 0), 1),
    ] {
        assert!(!queue.copy_at_once((src, from), (dst, to), len), "{src:?} {from}, {dst:?} {to}, {len}");
    }
    assert!(!queue.submit_at_once(&mut Batch::<Window, Window>::new()), "an empty batch has nothing to copy");
    let mut batch: Batch<_, _> = [(a.slice(..9), b.slice(..9))].into_iter().collect();
    assert!(queue.submit_at_once(&mut batch));
    expected[..9].copy_from_slice(&bytes(&a)[..9]);
    batch.push(a.slice(..9), b.slice(..8));
    assert!(!queue.submit_at_once(&mut batch));
    assert_eq!((bytes(&b), engine.script.executed()), (expected, 6));

    // While an operation is in flight, no copy is executed at once, because the copy would overtake that
    // operation.
    let (src, dst) = engine.pair(LIMIT + 1);
    let long = queue.copy(src, dst).expect("room");
    assert!(!queue.copy_at_once((&a, 0), (&b, 0), 9));
    drop(long.wait().expect("done"));
    assert!(queue.copy_at_once((&a, 0), (&b, 0), 9));
}

#[test]
fn a_shared_queue_copies_pieces_of_windows_at_once_or_not_at_all() {
    let (engine, other) = (spy(), spy());
    let queue = engine.shared();
    let [a, b] = [(); 2].map(|()| engine.window(2 * LIMIT));
    write(&a, 1);
    write(&b, 2);
    let mut expected = bytes(&b);
    for (from, to, len) in [(3, 5, 9), (LIMIT, LIMIT / 2, LIMIT)] {
        assert!(queue.copy_at_once((&a, from), (&b, to), len));
        expected[to..to + len].copy_from_slice(&bytes(&a)[from..from + len]);
    }
    let mut batch: Batch<_, _> = [(a.slice(..9), b.slice(..9))].into_iter().collect();
    assert!(queue.submit_at_once(&mut batch));
    expected[..9].copy_from_slice(&bytes(&a)[..9]);
    let foreign = other.window(LIMIT);
    let end = 2 * LIMIT;
    for ((src, from), (dst, to), len) in [
        ((&a, 0), (&b, 0), LIMIT + 1),
        ((&a, end - 8), (&b, 0), 9),
        ((&a, 0), (&b, usize::MAX), 2),
        ((&b, 0), (&b, 8), 9),
        ((&foreign, 0), (&b, 0), 1),
    ] {
        assert!(!queue.copy_at_once((src, from), (dst, to), len), "{src:?} {from}, {dst:?} {to}, {len}");
    }
    batch.push(a.slice(..9), b.slice(..8));
    assert!(!queue.submit_at_once(&mut batch));
    assert_eq!((bytes(&b), engine.script.executed()), (expected, 3));
    let counters = queue.counters();
    assert_eq!((counters.submitted, counters.completed, counters.bytes), (3, 3, (18 + LIMIT) as u64));
    let _ = queue.close(SOON);
    assert!(!queue.copy_at_once((&a, 0), (&b, 0), 9), "the queue is closed");
}

#[test]
fn long_copies_of_a_batch_are_executed_by_few_calls() {
    let mut options = ReferenceOptions::default();
    (options.native, options.inline_limit, options.depth) = (true, 16 << 10, 8);
    let engine = Spy::of(ReferenceEngine::new(options));
    let (queue, shared) = (engine.queue(), engine.shared());
    for (lens, calls) in [
        (vec![4 << 10; 33], 2),
        (vec![4 << 10; 32], 1),
        (vec![8 << 10, 1, 4 << 10], 1),
        (vec![8 << 10, 1], 1),
        (vec![4 << 10, (4 << 10) - 1], 0),
        (vec![1; 100], 0),
    ] {
        let pairs = || lens.iter().map(|len| engine.pair(*len)).collect::<Batch<_, _>>();
        let calls_so_far = || engine.script.calls_with_several.load(Ordering::Relaxed);
        for is_shared in [false, true] {
            let (before, executed) = (calls_so_far(), engine.script.executed());
            let batch = if is_shared {
                shared.submit(pairs()).expect("valid").wait().expect("done")
            } else {
                queue.submit(pairs()).expect("valid").wait().expect("done")
            };
            assert_eq!(calls_so_far() - before, calls, "{lens:?}");
            assert_eq!(engine.script.executed() - executed, lens.len());
            assert!(batch.iter().all(|(src, dst)| src[..] == dst[..] && dst[0] & 1 == 1));
        }
    }
}

/// Copies rows to the other side if `gathers`, else the other side to rows, on the shared queue if
/// `is_shared`.
fn copy_rows(
    (queue, shared): (&Queue, &SharedQueue),
    gathers: bool,
    is_shared: bool,
    rows: Rows<Window>,
    flat: Window,
) -> Result<(), ErrorKind> {
    macro_rules! end {
        ($submitted:expr) => {
            $submitted.map_err(|e| e.kind()).map(|transfer| drop(transfer.wait().expect("done")))
        };
    }
    match (gathers, is_shared) {
        (true, false) => end!(queue.copy(rows, flat)),
        (true, true) => end!(shared.copy(rows, flat)),
        (false, false) => end!(queue.copy(flat, rows)),
        (false, true) => end!(shared.copy(flat, rows)),
    }
}

#[test]
fn rows_are_executed_if_each_and_all_are_short_and_the_lengths_agree() {
    let engine = spy();
    let (queue, shared) = (engine.queue(), engine.shared());
    let table = engine.window(17 * LIMIT);
    let full = |count: usize| (0..count).map(|row| (row * LIMIT, LIMIT)).collect::<Vec<_>>();
    for (list, flat, expected) in [
        (full(1), LIMIT, Ok(1)),
        (full(16), 16 * LIMIT, Ok(16)),
        (full(17), 17 * LIMIT, Ok(0)),
        (vec![(3, LIMIT + 1)], LIMIT + 1, Ok(0)),
        // The executor copies no row of zero bytes.
        (vec![(3, 9), (20, 0), (50, 9), (0, 0)], 18, Ok(2)),
        (vec![(3, 9), (50, 9)], 17, Err(ErrorKind::LengthMismatch)),
        (vec![(3, 9), (50, 9)], 19, Err(ErrorKind::LengthMismatch)),
    ] {
        for (gathers, is_shared) in [(true, false), (true, true), (false, false), (false, true)] {
            let (flat, before) = (engine.window(flat), engine.script.executed());
            let rows = Rows::new(table.clone(), list.clone()).expect("within the table");
            let result = copy_rows((&queue, &shared), gathers, is_shared, rows, flat);
            let executed = engine.script.executed() - before;
            assert_eq!(result.map(|()| executed), expected, "{list:?} {gathers} {is_shared}");
            assert_eq!(executed, expected.unwrap_or(0), "{list:?}");
        }
    }
}

#[test]
fn invalid_rows_reach_no_executor() {
    let (engine, other) = (spy(), spy());
    let (queue, shared) = (engine.queue(), engine.shared());
    let apart = [(3, 9), (50, 9)];
    let (table, flat) = (engine.window(LIMIT), engine.window(18));
    let (foreign, hidden) = (other.window(LIMIT), engine.hidden(LIMIT));
    let [to_read, to_write] = [Access::READ, Access::WRITE].map(|access| engine.window_with(access));
    let first = |window: &Window| window.slice(..18);
    let (wrong_engine, denied) = (Err(ErrorKind::WrongEngine), Err(ErrorKind::AccessDenied));
    for (gathers, table, rows, flat, expected) in [
        (true, &foreign, apart, flat.clone(), wrong_engine),
        (true, &table, apart, first(&foreign), wrong_engine),
        (true, &to_write, apart, flat.clone(), denied),
        (true, &table, apart, first(&to_read), denied),
        (true, &table, apart, table.slice(11..29), Err(ErrorKind::Overlap)),
        (true, &hidden, apart, flat.clone(), Ok(())),
        (true, &table, apart, first(&hidden), Ok(())),
        (false, &foreign, apart, flat.clone(), wrong_engine),
        (false, &table, apart, first(&foreign), wrong_engine),
        (false, &to_read, apart, flat.clone(), denied),
        (false, &table, apart, first(&to_write), denied),
        (false, &table, apart, table.slice(11..29), Err(ErrorKind::Overlap)),
        (false, &table, [(3, 9), (11, 9)], flat.clone(), Err(ErrorKind::Overlap)),
        (false, &hidden, apart, flat.clone(), Ok(())),
        (false, &table, apart, first(&hidden), Ok(())),
    ] {
        for is_shared in [false, true] {
            let list = Rows::new(table.clone(), rows.to_vec()).expect("within the table");
            let result = copy_rows((&queue, &shared), gathers, is_shared, list, flat.clone());
            assert_eq!(result, expected, "{gathers} {is_shared} {rows:?} of {table:?}, {flat:?}");
            assert_eq!(engine.script.executed(), 0, "{gathers} {is_shared} {rows:?} of {table:?}, {flat:?}");
        }
    }
}

/// The rows' view and the range on the other side are parts of one window. If they overlap, each row is
/// checked, and valid rows are executed as a list, by one call.
#[test]
fn rows_are_executed_if_their_view_is_apart_from_the_other_side() {
    let engine = spy();
    let (queue, shared) = (engine.queue(), engine.shared());
    let table = engine.window(LIMIT);
    let overlap = Err(ErrorKind::Overlap);
    for (gathers, view, rows, flat, expected) in [
        (true, 0..50, [(3, 9), (41, 9)], 50..68, Ok(2)),
        (true, 0..50, [(3, 9), (41, 9)], 49..67, overlap),
        (true, 0..50, [(3, 9), (40, 9)], 49..67, Ok(1)),
        (true, 18..68, [(0, 9), (41, 9)], 0..18, Ok(2)),
        (true, 17..67, [(0, 9), (41, 9)], 0..18, overlap),
        (true, 17..67, [(1, 9), (41, 9)], 0..18, Ok(1)),
        // Rows that are read may overlap, so the view can be shorter than the other side.
        (true, 18..30, [(0, 9), (3, 9)], 0..18, Ok(2)),
        (true, 15..27, [(0, 9), (3, 9)], 0..18, overlap),
        (false, 0..50, [(3, 9), (41, 9)], 50..68, Ok(2)),
        (false, 0..50, [(3, 9), (41, 9)], 49..67, overlap),
        (false, 18..68, [(0, 9), (41, 9)], 0..18, Ok(2)),
        (false, 17..67, [(0, 9), (41, 9)], 0..18, overlap),
    ] {
        for is_shared in [false, true] {
            let executed = engine.script.executed();
            let list = Rows::new(table.slice(view.clone()), rows.to_vec()).expect("within the view");
            let other = table.slice(flat.clone());
            let result = copy_rows((&queue, &shared), gathers, is_shared, list, other);
            let executed = engine.script.executed() - executed;
            let case = format!("{gathers} {is_shared} {rows:?} of {view:?}, {flat:?}");
            assert_eq!(result.map(|()| executed), expected, "{case}");
            assert_eq!(executed, expected.unwrap_or(0), "{case}");
        }
    }
}

#[test]
fn operations_of_lists_other_than_copies_and_fills_go_to_the_queue() {
    let engine = spy();
    let (queue, shared) = (engine.queue(), engine.shared());
    let [a, b, c] = [(); 3].map(|()| engine.window(LIMIT));
    let halves = |of: &Window| [of.slice(..LIMIT / 2), of.slice(LIMIT / 2..)];
    macro_rules! run {
        ($queue:expr) => {
            write(&a, 1);
            let crc = crc32c::crc32c_append(5, &bytes(&a));
            let batch = [(halves(&a), halves(&b))].into_iter().collect::<Batch<_, _>>();
            $queue.submit(batch).expect("valid").wait().expect("done");
            assert_eq!(bytes(&b), bytes(&a));
            write(&b, 2);
            let copy = $queue.copy_to_both(halves(&a), halves(&b), halves(&c));
            copy.expect("valid").wait().expect("done");
            assert_eq!([bytes(&b), bytes(&c)], [bytes(&a), bytes(&a)]);
            let compared = $queue.compare(halves(&a), halves(&b)).expect("valid").wait().expect("done");
            assert_eq!(compared.1, None);
            let summed = $queue.crc32c(halves(&a), 5).expect("valid").wait().expect("done");
            assert_eq!(summed.1, crc);
            write(&b, 2);
            let copied = $queue.copy_crc32c(halves(&a), halves(&b), 5).expect("valid").wait().expect("done");
            assert_eq!((copied.1, bytes(&b)), (crc, bytes(&a)));
        };
    }
    run!(queue);
    run!(shared);
    assert_eq!(engine.script.executed(), 0);
}
