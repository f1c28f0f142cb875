//! Tests the measuring loop on queues that reorder and delay completions as the contract allows, and on
//! queues that break the contract.
#![expect(unsafe_code, reason = "stands in for a raw queue")]

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dma::contract::{
    Completion, Descriptor, DeviceAddr, Operation, Outcome, QueueEvents, QueueStats, RawQueue, Segment,
};
use dma::{EngineId, ErrorKind, NativeError};
use proptest::prelude::*;

use super::channel::MAX_COMPLETIONS;
use super::*;
use crate::plan::{Cell, Direction, Footprint, Op, Verify};
use crate::run::contender::Contender;
use crate::run::layout::{Layout, Position};
use crate::run::memory::Memory;

type Tamper = (u64, fn(Completion) -> Completion);

/// Record of the calls that the queue received.
#[derive(Debug, Default)]
struct Seen {
    submitted: u64,
    in_flight: Vec<u64>,
    most: usize,
    twice: bool,
    /// Destinations that were written.
    written: HashSet<DeviceAddr>,
}

/// A CPU queue that takes descriptors in parts and reports completions late and in another order.
#[derive(Debug)]
struct ReorderingQueue {
    queue: Box<dyn RawQueue>,
    delayed: VecDeque<Completion>,
    /// Steps that the queue repeats: descriptors to accept, completions to report, and true to report them in
    /// reverse order. If empty, the queue accepts and reports everything in order.
    steps: Vec<(u8, u8, bool)>,
    step: usize,
    /// The number of a completion to tamper with, and the change.
    tamper: Option<Tamper>,
    reported: u64,
    seen: Arc<Mutex<Seen>>,
}

impl ReorderingQueue {
    fn next(&mut self) -> Option<(u8, u8, bool)> {
        self.step += 1;
        self.steps.get(self.step % self.steps.len().max(1)).copied()
    }
}

// SAFETY: all calls are forwarded to the inner queue, which fulfils the contract. Late or changed completions
// do not free memory early, because the worker keeps its memory until it is dropped.
unsafe impl RawQueue for ReorderingQueue {
    fn engine_id(&self) -> EngineId {
        self.queue.engine_id()
    }

    fn depth(&self) -> usize {
        self.queue.depth()
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> dma::Result<usize> {
        let most = self.next().map_or(batch.len(), |(take, ..)| usize::from(take).min(batch.len()));
        // SAFETY: the inner queue has the same contract, which the caller fulfils.
        let taken = unsafe { self.queue.submit(&batch[..most]) }?;
        let mut seen = self.seen.lock().unwrap();
        for descriptor in &batch[..taken] {
            seen.twice |= seen.in_flight.contains(&descriptor.token());
            seen.in_flight.push(descriptor.token());
            if let Operation::Copy { dst, .. } = descriptor.operation() {
                seen.written.insert(dst.addr);
            }
        }
        seen.submitted += taken as u64;
        seen.most = seen.most.max(seen.in_flight.len());
        Ok(taken)
    }

    fn flush(&mut self) {
        self.queue.flush();
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let mut some = [Completion::done(0); 64];
        loop {
            let n = self.queue.poll(&mut some);
            if n == 0 {
                break;
            }
            self.delayed.extend(&some[..n]);
        }
        let step = self.next();
        let most = step.map_or(self.delayed.len(), |(_, report, _)| usize::from(report));
        let mut seen = self.seen.lock().unwrap();
        let mut n = 0;
        while n < most.min(completions.len()) {
            let next = if step.is_some_and(|step| step.2) {
                self.delayed.pop_back()
            } else {
                self.delayed.pop_front()
            };
            let Some(mut completion) = next else { break };
            seen.in_flight.retain(|&token| token != completion.token);
            self.reported += 1;
            if let Some((at, change)) = self.tamper
                && self.reported == at
            {
                completion = change(completion);
            }
            completions[n] = completion;
            n += 1;
        }
        n
    }

    fn explain(&self, native: i32) -> NativeError {
        self.queue.explain(native)
    }

    fn stop(&mut self) {
        self.queue.stop();
    }

    fn stats(&self) -> QueueStats {
        self.queue.stats()
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
}

fn cell(op: Op, depth: u32, batch: u32, footprint: Footprint) -> Cell {
    Cell {
        engine: "cpu:threads=0".to_owned(),
        op,
        size: 64,
        depth,
        batch,
        queues: 1,
        segments: if op == Op::Sg { 3 } else { 1 },
        footprint,
        direction: Direction::Local,
    }
}

/// Number of free bytes behind the buffers, within which `in_pass` moves them.
const FREE: usize = 64 << 10;

/// Returns a worker on a `ReorderingQueue`, and what that queue received.
fn worker(
    cell: &Cell,
    verify: Verify,
    steps: Vec<(u8, u8, bool)>,
    tamper: Option<Tamper>,
) -> (Worker, Arc<Mutex<Seen>>) {
    let contender = Contender::open(&cell.engine).unwrap();
    let bytes = Layout::bytes(cell, 16 << 10);
    let alike = cell.op == Op::Compare;
    let memory = Memory::new(&contender.engine, None, bytes + FREE, Direction::Local, alike).unwrap();
    // Sources and destinations get different offsets.
    let layout = Layout::new(cell, 0, 16 << 10).in_pass(cell, Position { pass: 1, group_pass: 1 }, FREE);
    assert_ne!(layout.at(0).src, layout.at(0).dst);
    let mut worker = Worker::new(&contender, cell, memory, layout, verify, Duration::from_secs(1)).unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let queue = worker.channel.queue.take().unwrap();
    let (delayed, seen_too) = (VecDeque::new(), Arc::clone(&seen));
    worker.channel.queue = Some(Box::new(ReorderingQueue {
        queue,
        delayed,
        steps,
        step: 0,
        tamper,
        reported: 0,
        seen: seen_too,
    }));
    (worker, seen)
}

/// The operations that have results.
const WITH_RESULTS: [Op; 3] = [Op::Compare, Op::Crc32c, Op::CopyCrc32c];

fn extent(warm: u64, ops: u64, timed_every: u64) -> Extent {
    Extent { warm, ops, timed_every, compare: COMPARE_LITTLE, compare_each: false }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// For any order of accepting and reporting, the requested number of operations runs, no place is used
    /// twice at once, each timed operation is counted once, and all bytes are right.
    #[test]
    fn the_loop_does_what_it_was_asked_for(
        op in prop_oneof![4 => Just((Op::Copy, 1)), 1 => Just((Op::Fill, 1)), 3 => prop::sample::select(&WITH_RESULTS).prop_map(|op| (op, 1)), 1 => Just((Op::CopyToBoth, 1)), 1 => (1_u32..5).prop_map(|segments| (Op::Sg, segments))],
        shape in prop_oneof![
            Just((1, 1)), Just((32, 32)), Just((64, 64)), (1_u32..80).prop_map(|d| (d, d)), (1_u32..80, 1_u32..80).prop_map(|(a, b)| (a.max(b), a.min(b)))
        ],
        footprint in prop_oneof![3 => Just(Footprint::Hot), 1 => Just(Footprint::Cold), 1 => Just(Footprint::Random)],
        verify in prop_oneof![4 => Just(Verify::Sample), 1 => Just(Verify::All)],
        steps in prop_oneof![Just(Vec::new()), prop::collection::vec((1_u8..70, 0_u8..70, any::<bool>()), 1..8)],
        warm in prop_oneof![2 => Just(0_u64), 1 => 0_u64..100],
        every in prop_oneof![Just(1_u64), Just(3), Just(u64::MAX)],
        lengths in prop::collection::vec(1_u64..700, 1..4),
        moves in any::<bool>(),
    ) {
        let never = !steps.is_empty() && steps.iter().all(|step| step.1 == 0);
        prop_assume!(!never);
        let plain = steps.is_empty();
        let (op, segments) = op;
        let cell = Cell { segments, ..cell(op, shape.0, shape.1, footprint) };
        let (mut worker, seen) = worker(&cell, verify, steps, None);
        for (number, ops) in (1..).zip(lengths) {
            worker.clear_latency();
            if moves {
                worker.move_to(Layout::new(&cell, 0, 16 << 10).in_pass(&cell, Position { pass: number, group_pass: number }, FREE));
                let mut seen = seen.lock().unwrap();
                seen.written.clear();
                seen.submitted = 0;
            }
            let before = seen.lock().unwrap().submitted;
            let counts = worker.run(extent(warm, ops, every)).unwrap();
            let seen = seen.lock().unwrap();
            let all = warm + ops;
            // The poll that starts the clock may complete more operations than the untimed ones, so fewer
            // operations may be timed.
            prop_assert_eq!(seen.submitted - before, all);
            prop_assert_eq!(counts.all_ops, all);
            prop_assert!(counts.ops <= ops && counts.ops + u64::from(MAX_COMPLETIONS as u32) >= ops, "{} of {ops}", counts.ops);
            prop_assert!(warm > 0 || counts.ops == ops);
            prop_assert!(!seen.twice && seen.in_flight.is_empty());
            prop_assert!(seen.most <= cell.depth as usize);
            prop_assert!(counts.polls > 0 && counts.verified > 0);
            let timed = worker.latency().len();
            match every {
                1 => prop_assert!(timed <= ops + u64::from(MAX_COMPLETIONS as u32) && timed + u64::from(MAX_COMPLETIONS as u32) >= ops, "{timed} of {ops}"),
                3 => prop_assert!(timed <= ops),
                _ => prop_assert!(timed <= u64::from(cell.batch)),
            }
            prop_assert!(warm > 0 || timed > 0);
            if warm == 0 {
                let batch = u64::from(cell.batch);
                let doorbells = (0..ops.div_ceil(batch)).filter(|bell| bell % every == 0);
                prop_assert_eq!(timed, doorbells.map(|bell| batch.min(ops - bell * batch)).sum::<u64>());
            }
            if plain && op == Op::Copy {
                let buffers = worker.places.buffers.layout.buffers().min(usize::try_from(seen.submitted).unwrap());
                prop_assert_eq!(seen.written.len(), buffers, "every buffer is used");
                let at = |index| worker.places.buffers.memory.dst(worker.places.buffers.layout.at(index).dst, 1).addr;
                let all: HashSet<DeviceAddr> = (0..worker.places.buffers.layout.buffers()).map(at).collect();
                prop_assert!(seen.written.is_subset(&all), "and nothing else");
            }
            prop_assert_eq!(worker.places.free.len(), cell.depth);
            prop_assert!(worker.timer.stamps.iter().all(|&stamp| stamp == 0) && worker.timer.in_flight == 0);
            prop_assert!(worker.places.in_flight.iter().all(|in_flight| !in_flight) && worker.channel.outstanding == 0);
        }
    }

}

proptest! {
    // Each case with a lost completion waits for the stall limit.
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Each way to break the contract, at any completion, ends in an error within the stall limit, not in a
    /// panic.
    #[test]
    fn reports_of_a_broken_queue_are_errors(
        shape in prop_oneof![Just((1, 1)), Just((32, 32)), (1_u32..80, 1_u32..80).prop_map(|(a, b)| (a.max(b), a.min(b)))],
        steps in prop_oneof![Just(Vec::new()), prop::collection::vec((1_u8..70, 1_u8..70, any::<bool>()), 1..8)],
        at in 1_u64..1000,
        which in 0_usize..4,
    ) {
        let tamper: [fn(Completion) -> Completion; 4] = [
            |c| Completion { outcome: Outcome::Failed(ErrorKind::DeviceLost), ..c },
            |c| Completion { outcome: Outcome::Aborted, ..c },
            |c| Completion { token: u64::MAX - c.token, ..c },
            // This is the token of another operation, which may be in flight.
            |c| Completion { token: c.token ^ 1, ..c },
        ];
        prop_assume!(which < 3 || (shape.0 > 1 && shape.0 % 2 == 0));
        let cell = cell(Op::Copy, shape.0, shape.1, Footprint::Hot);
        let (mut worker, _) = worker(&cell, Verify::Sample, steps, Some((at, tamper[which])));
        let error = worker.run(extent(0, 1000, 7)).unwrap_err().to_string();
        let expected = ["an operation failed", "an operation failed", "unknown token", "no operation in flight has"][which];
        prop_assert!(error.contains(expected), "{error}");
        // The queue then reports all operations in flight, so no memory is leaked.
        prop_assert!(worker.channel.drain());
        // A wrong token that belongs to another operation in flight is detected only when that operation also
        // completes.
        prop_assert!(which == 3 || (worker.progress.completed < at && worker.progress.completed + MAX_COMPLETIONS as u64 >= at), "{} before {at}", worker.progress.completed);
    }
}

/// Operations that exceed the device's maximum length are split.
#[test]
fn long_copies_and_fills_are_cut() {
    for op in [Op::Copy, Op::Fill] {
        for footprint in [Footprint::Hot, Footprint::Cold] {
            let cell = Cell { size: (40 << 20) + 8, ..cell(op, 2, 1, footprint) };
            let (mut worker, seen) = worker(&cell, Verify::All, Vec::new(), None);
            assert_eq!((worker.places.pieces, worker.places.max_piece), (3, 16 << 20));
            let counts = worker.run(extent(0, 3, 1)).unwrap();
            assert_eq!((counts.ops, counts.verified), (3, 3), "{op} {footprint}");
            assert_eq!(seen.lock().unwrap().submitted, 9);
            assert!(worker.channel.outstanding == 0 && worker.latency().len() == 3);
        }
    }
}

/// The bytes of the first operations are compared even if all completions are as usual.
#[test]
fn a_copy_that_does_not_arrive_is_found() {
    for (depth, batch) in [(1, 1), (32, 32), (32, 4)] {
        let cell = cell(Op::Copy, depth, batch, Footprint::Hot);
        let (mut worker, _) = worker(&cell, Verify::Sample, Vec::new(), None);
        let place = &worker.places.all[0];
        let late = |s: Segment, by: usize| Segment { addr: s.addr.offset(by), len: 56, ..s };
        worker.places.ready[0] = Descriptor::copy(0, late(place.src, 8), late(place.dst, 0));
        let error = worker.run(extent(0, 320, 5));
        assert!(matches!(error, Err(CellError::WrongBytes { .. })), "{depth} {batch}: {error:?}");
    }
}

/// A wrong result is detected for every operation that has results.
#[test]
fn a_wrong_result_is_found() {
    let wrong = |c: Completion| Completion { result: c.result ^ 1, ..c };
    for op in WITH_RESULTS {
        for (verify, at) in [(Verify::All, 1), (Verify::All, 33), (Verify::Sample, 36), (Verify::Sample, 33)]
        {
            let cell = cell(op, 4, 4, Footprint::Cold);
            let (mut worker, _) = worker(&cell, verify, Vec::new(), Some((at, wrong)));
            let error = worker.run(extent(0, 36, 5));
            assert!(matches!(error, Err(CellError::WrongResult { .. })), "{op} {verify:?} {at}: {error:?}");
        }
    }
}

/// Comparisons that report "equal" for different bytes are detected.
#[test]
fn a_comparison_that_sees_no_difference_is_found() {
    let blind = |c: Completion| c.with_result(Completion::EQUAL);
    let (mut worker, _) =
        worker(&cell(Op::Compare, 1, 1, Footprint::Hot), Verify::All, Vec::new(), Some((3, blind)));
    let error = worker.run(extent(0, 8, 1)).unwrap_err();
    assert!(
        matches!(error, CellError::WrongResult { size: 64, expected: 63, found: Completion::EQUAL, .. }),
        "{error}"
    );
}

/// Both destinations of a `copy-to-both` are compared.
#[test]
fn a_second_destination_that_is_missed_is_found() {
    for missed in [0, 1] {
        let (mut worker, _) =
            worker(&cell(Op::CopyToBoth, 2, 2, Footprint::Hot), Verify::Sample, Vec::new(), None);
        worker.run(extent(0, 8, 1)).unwrap();
        let both = &mut worker.places.all[1].both;
        both[missed].addr = both[missed].addr.offset(1024);
        let error = worker.run(extent(0, 8, 1));
        assert!(matches!(error, Err(CellError::WrongBytes { .. })), "{missed}: {error:?}");
    }
}
