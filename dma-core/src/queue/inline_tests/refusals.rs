//! Operations that the executor must not get.

use super::*;

#[test]
fn an_invalid_operation_reaches_no_executor() {
    on_both(|engine, queue| {
        let other = spy();
        let refuse = |op: Op, operands: [&Window; 3], expected: ErrorKind| {
            let executed = engine.script.executed();
            assert_eq!(queue.run(op, operands), Err(expected), "{op:?} of {operands:?}");
            assert_eq!(engine.script.executed(), executed, "{op:?} of {operands:?}");
        };
        for op in OPS {
            let good = [(); 3].map(|()| engine.window(LIMIT));
            for (at, uses) in op.uses().into_iter().enumerate() {
                let Some(uses) = uses else { continue };
                let with = |bad: &Window, expected| {
                    let mut operands = [&good[0], &good[1], &good[2]];
                    operands[at] = bad;
                    refuse(op, operands, expected);
                };
                with(&other.window(LIMIT), ErrorKind::WrongEngine);
                let lacking = if uses == Access::READ { Access::WRITE } else { Access::READ };
                with(&engine.window_with(lacking), ErrorKind::AccessDenied);
                if op.uses().iter().flatten().count() > 1 {
                    with(&engine.window(LIMIT - 1), ErrorKind::LengthMismatch);
                }
            }
            // Each written operand overlaps with each other operand.
            let whole = engine.window(2 * LIMIT);
            // A batch has one copy of 1 byte and one of the remaining bytes, and each copy is checked
            // separately.
            let distance = if op == Op::Batch { LIMIT - 2 } else { LIMIT - 1 };
            let (low, high) = (whole.slice(..LIMIT), whole.slice(distance..distance + LIMIT));
            let uses = op.uses();
            for (first, second) in [(0, 1), (0, 2), (1, 2)] {
                let used = [uses[first], uses[second]];
                if used.contains(&Some(Access::WRITE)) && !used.contains(&None) {
                    for (low, high) in [(&low, &high), (&high, &low)] {
                        let mut operands = [&good[0], &good[1], &good[2]];
                        (operands[first], operands[second]) = (low, high);
                        refuse(op, operands, ErrorKind::Overlap);
                    }
                }
            }
        }
    });
}

#[test]
fn other_operations_go_to_the_queue() {
    on_both(|engine, queue| {
        let executed = || engine.script.executed();
        for op in OPS {
            let [a, b, c] = [(); 3].map(|()| engine.window(LIMIT));
            for (at, _) in op.uses().iter().enumerate().filter(|(_, uses)| uses.is_some()) {
                let hidden = engine.hidden(LIMIT);
                let mut operands = [&a, &b, &c];
                operands[at] = &hidden;
                let before = executed();
                queue.run(op, operands).expect("the device can reach the memory");
                assert_eq!(executed(), before, "{op:?} of memory that the CPU cannot reach");
            }
            // One part of each operation is longer than the limit.
            let factor = if matches!(op, Op::Batch | Op::Lists | Op::FillOfList) { 3 } else { 1 };
            let [a, b, c] = [(); 3].map(|()| engine.window(factor * LIMIT + 1));
            let before = executed();
            queue.run(op, [&a, &b, &c]).expect("the queue accepts the operation");
            assert_eq!(executed(), before, "{op:?} beyond the limit");
        }
        let before = executed();
        for op in [Op::Copy, Op::Fill, Op::Compare, Op::Crc, Op::CopyCrc, Op::Both, Op::Batch] {
            let none = engine.window(0);
            queue.run(op, [&none, &none, &none]).expect("valid");
        }
        assert_eq!(executed(), before, "operations of zero bytes are not passed to the executor");
    });
}

#[test]
fn nothing_is_executed_while_operations_of_the_queue_are_in_flight() {
    let engine = spy();
    let queue = engine.queue();
    let (src, dst) = engine.pair(LIMIT + 1);
    let long = queue.copy(src, dst).expect("room");
    let (src, dst) = engine.pair(10);
    let short = queue.copy(src, dst).expect("room");
    assert_eq!((engine.script.executed(), queue.counters().in_flight), (0, 2));
    let (other_src, mut other_dst) = engine.pair(10);
    assert!(!queue.copy_now(&other_src, &mut other_dst) && other_dst[..] == [0; 10]);
    assert!(!queue.fill_now(&mut other_dst, [1; 8]) && queue.crc32c_now(&other_dst, 0).is_none());
    assert_eq!(engine.script.executed(), 0);
    let (src, dst) = short.wait().expect("done");
    drop(long);
    while queue.counters().in_flight > 0 {
        queue.poll();
    }
    let short = queue.copy(src, dst).expect("room");
    assert_eq!(
        engine.script.executed(),
        1,
        "when nothing is in flight, operations are executed inline again"
    );
    drop(short);
    let long = queue.fill(engine.allocate(LIMIT + 1).expect("memory"), [1; 8]).expect("room");
    let (src, dst) = engine.pair(10);
    queue.copy(src, dst).expect("room").wait().expect("done");
    assert_eq!(engine.script.executed(), 1, "nothing is executed inline while the fill is in flight");
    long.wait().expect("done");
    // A refused operation and an operation of zero bytes are not in flight.
    queue
        .copy(engine.allocate(1).expect("memory"), engine.allocate(2).expect("memory"))
        .expect_err("invalid");
    let empty = queue.copy(engine.allocate(0).expect("memory"), engine.allocate(0).expect("memory"));
    let (src, dst) = engine.pair(10);
    queue.copy(src, dst).expect("room").wait().expect("done");
    assert_eq!(engine.script.executed(), 2);
    empty.expect("valid").wait().expect("done");
}

#[test]
fn a_closed_queue_executes_nothing() {
    on_both(|engine, queue| {
        let window = engine.window(LIMIT);
        queue.run(Op::Crc, [&window; 3]).expect("valid");
    });
    let engine = spy();
    let shared = engine.shared();
    let held = shared.copy(engine.pair(10).0, engine.pair(10).1).expect("room");
    assert_eq!(shared.close(SOON).completed, 1);
    for op in OPS {
        let [a, b, c] = [(); 3].map(|()| engine.window(LIMIT));
        assert_eq!(shared.run(op, [&a, &b, &c]), Err(ErrorKind::Closed), "{op:?}");
    }
    let shared = Now(shared);
    for op in OPS {
        let [a, b, c] = [(); 3].map(|()| engine.window(LIMIT));
        assert_eq!(shared.run(op, [&a, &b, &c]), Err(ErrorKind::Closed), "{op:?}");
    }
    assert_eq!(engine.script.executed(), 1);
    held.wait().expect("the transfer was done before the close");
}
