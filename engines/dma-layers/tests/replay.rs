//! Tests that a replay makes the same calls on any engine and checks all bytes, and that a trace that cannot
//! run is refused.
#![expect(unsafe_code, reason = "implements an engine that does nothing")]

mod engines;

use std::sync::Arc;
use std::time::Duration;

use dma_core::{
    Capabilities, Completion, Descriptor, DmaEngine, DmaEngineExt, EngineId, ErrorKind, MemoryRequest,
    NativeError, Operation, Place, Queue, QueueEvents, QueueOptions, QueueStats, RawQueue, Result, Window,
    racy_copy,
};
use dma_layers::record::{RecordEngine, Trace};
use dma_layers::replay::{CopyTimes, ReplayOptions, Replayed, replay};
use engines::{auto, cpu, meter, record, sim};
use proptest::prelude::*;
use test_support::with_queues::WithQueues;

/// Number of bytes of each side that belong to one operation.
const SLOT: usize = 8192;
/// Maximum number of operations between two waits.
const SLOTS: usize = 24;

fn open(name: &str) -> Arc<dyn DmaEngine> {
    match name {
        "auto" => auto(sim("sim:profile=dsa,seed=9")),
        _ if name.starts_with("cpu") => cpu(name),
        _ => sim(name),
    }
}

/// Records the calls of `run` on an engine. Returns the trace, and the doorbells of all its queues.
fn recorded(device: &str, run: impl FnOnce(&Arc<RecordEngine>) -> u64) -> (Trace, u64) {
    let folder = tempfile::tempdir().unwrap();
    let engine = record(open(device), folder.path());
    let doorbells = run(&engine);
    engine.finish().unwrap();
    (Trace::load(&folder.path().join("a.trace")).unwrap(), doorbells)
}

/// The kind and length of an operation.
type Step = (u8, usize);

fn submit(queue: &Queue, src: &Window, dst: &Window, at: usize, (kind, len): Step) {
    let part = |window: &Window, half: usize, len: usize| {
        let begin = at * SLOT + half * SLOT / 2;
        window.slice(begin..begin + len)
    };
    match kind {
        0 => drop(queue.fill(part(dst, 0, len), [1, 2, 3, 4, 5, 6, 7, 8]).unwrap()),
        1 => drop(queue.compare(part(src, 0, len), part(dst, 0, len)).unwrap()),
        2 => drop(queue.crc32c(part(src, 0, len), 5).unwrap()),
        3 => drop(queue.copy_crc32c(part(src, 0, len), part(dst, 0, len), 5).unwrap()),
        4 => {
            drop(queue.copy_to_both(part(src, 0, len), part(dst, 0, len), part(dst, 1, len)).unwrap());
        }
        5 => {
            let lists = |window, first| [part(window, 0, first), part(window, 1, 1 + len - first)];
            drop(queue.copy(lists(src, len.div_ceil(2)), lists(dst, len.div_ceil(3))).unwrap());
        }
        6 => {
            queue.fence();
            drop(queue.copy(part(dst, 0, len), part(src, 0, len)).unwrap());
        }
        _ => drop(queue.copy(part(src, 0, len), part(dst, 0, len)).unwrap()),
    }
}

/// Runs rounds of operations on a queue. Returns its doorbells.
fn rounds(engine: &RecordEngine, rounds: &[Vec<Step>]) -> u64 {
    let queue = engine.open_queue(&QueueOptions::new().with_depth(64)).unwrap();
    let memory = || engine.allocate_window(&MemoryRequest::new(SLOTS * SLOT)).unwrap();
    let (src, dst) = (memory(), memory());
    for round in rounds {
        for (at, step) in round.iter().enumerate() {
            submit(&queue, &src, &dst, at, *step);
        }
        queue.flush();
        while queue.available() < queue.depth() {
            queue.poll();
        }
    }
    queue.counters().doorbells
}

/// Makes rounds with at least one copy: the CPU executes comparisons and CRCs for a device that lacks them,
/// and a trace of nothing else is empty.
fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = (0_u8..12, prop_oneof![1_usize..200, 1..SLOT / 2]);
    let rounds = proptest::collection::vec(proptest::collection::vec(step, 1..SLOTS), 1..8);
    rounds.prop_map(|mut rounds| {
        rounds[0].push((7, 100));
        rounds
    })
}

fn options() -> ReplayOptions {
    ReplayOptions::new().with_repetitions(1)
}

fn assert_right(replayed: &Replayed) {
    assert_eq!((replayed.mismatch, replayed.failed), (None, 0), "{replayed:?}");
    assert_eq!(replayed.verified, replayed.descriptors, "{replayed:?}");
}

const DEVICES: [&str; 4] =
    ["cpu:threads=0", "sim:seed=1", "sim:profile=dsa,seed=2", "sim:profile=bluefield3,seed=3"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_same_engine_has_the_same_doorbells(device in 0..DEVICES.len(), steps in steps()) {
        let device = DEVICES[device];
        let (trace, doorbells) = recorded(device, |engine| rounds(engine, &steps));
        let replayed = replay(&trace, &open(device), &options()).unwrap();
        assert_right(&replayed);
        prop_assert_eq!(replayed.doorbells, doorbells);
        prop_assert_eq!(replayed.descriptors, trace.queues()[0].operations);
    }

    #[test]
    fn other_engines_do_the_same_copies(steps in steps()) {
        let copies: Vec<Vec<Step>> =
            steps.iter().map(|round| round.iter().map(|(kind, len)| (5 + kind % 3, *len)).collect()).collect();
        let (trace, _) = recorded("cpu:threads=0", |engine| rounds(engine, &copies));
        for device in [
            "auto",
            "sim:profile=ioat,seed=4",
            "sim:max_transfer=100,max_segments=1,depth=3,seed=5",
            "sim:max_transfer=64,max_segments=2,depth=64,seed=6",
        ] {
            assert_right(&replay(&trace, &open(device), &options()).unwrap());
        }
    }
}

/// Records copies to device memory, within it and back, and fills of device memory.
fn on_device(engine: &RecordEngine, steps: &[Vec<Step>]) -> u64 {
    let queue = engine.open_queue(&QueueOptions::new().with_depth(64)).unwrap();
    let host = engine.allocate_window(&MemoryRequest::new(SLOTS * SLOT)).unwrap();
    let device = [(); 2].map(|()| engine.allocate_device(SLOTS * SLOT).unwrap());
    for round in steps {
        for (at, step) in round.iter().enumerate() {
            let (src, dst) = [(&host, &device[0]), (&device[0], &device[1]), (&device[1], &host)][at % 3];
            submit(&queue, src, dst, at, *step);
        }
        queue.flush();
        while queue.available() < queue.depth() {
            queue.poll();
        }
    }
    queue.counters().doorbells
}

#[test]
fn device_memory_is_replayed_in_device_memory() {
    let round: Vec<Step> = (0..20).map(|at| ([0, 5, 9, 4, 3][at % 5], 100 + at * 13)).collect();
    let device = "sim:device_memory=8M,seed=1";
    let (trace, doorbells) = recorded(device, |engine| on_device(engine, &[round.clone(), round]));
    let places = &trace.recorded().places;
    assert_eq!(places.iter().filter(|place| **place == Place::Device).count(), 2, "{places:?}");
    assert_eq!(places.len(), trace.recorded().regions.len());
    let replayed = replay(&trace, &open(device), &options()).unwrap();
    assert_right(&replayed);
    assert_eq!(replayed.doorbells, doorbells);
    let wrong =
        replay(&trace, &open("sim:device_memory=8M,faults=corrupt@every=7,seed=1"), &options()).unwrap();
    assert!(wrong.mismatch.is_some(), "{wrong:?}");
    let refused = replay(&trace, &open("cpu"), &options()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("bytes of device memory"), "{refused}");
    assert!(refused.hint().contains("sim:device_memory="), "{refused}");
}

/// Records a trace of `count` copies of 64 bytes, one at a time.
fn copies(device: &str, count: usize) -> Trace {
    recorded(device, |engine| rounds(engine, &vec![vec![(9, 64)]; count])).0
}

#[test]
fn queues_run_beside_each_other_and_one_after_another() {
    let (trace, doorbells) = recorded("sim:queues=2,seed=1", |engine| {
        let side_by_side = || rounds(engine, &vec![vec![(9, 100); 8]; 20]);
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(side_by_side);
            side_by_side() + other.join().unwrap()
        });
        both + side_by_side()
    });
    assert_eq!(trace.queues().len(), 3);
    let replayed = replay(&trace, &open("sim:queues=3,seed=1"), &options()).unwrap();
    assert_right(&replayed);
    assert_eq!((replayed.doorbells, replayed.descriptors), (doorbells, 480));
    let times = CopyTimes::of(&trace);
    assert!(times.wait > Duration::ZERO && times.cpu > Duration::ZERO, "{times:?}");
}

/// A queue that makes only its first copy, and reports the other copies as done without making them.
#[derive(Debug)]
struct IdleQueue(Box<dyn RawQueue>, Vec<u64>, bool);

// SAFETY: each descriptor is reported once, and the queue accesses memory only within `submit`.
unsafe impl RawQueue for IdleQueue {
    fn engine_id(&self) -> EngineId {
        self.0.engine_id()
    }
    fn depth(&self) -> usize {
        self.0.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if let [first, ..] = batch
            && let (true, Operation::Copy { src, dst }) = (std::mem::take(&mut self.2), first.operation())
        {
            // SAFETY: the caller promises valid descriptors, and the copy has ended when this function
            // returns.
            unsafe { racy_copy::copy(dst.addr.as_ptr(), src.addr.as_ptr(), dst.len) };
        }
        self.1.extend(batch.iter().map(Descriptor::token));
        Ok(batch.len())
    }
    fn flush(&mut self) {}
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let ended = self.1.drain(..self.1.len().min(completions.len()));
        ended.zip(completions).map(|(token, to)| *to = Completion::done(token)).count()
    }
    fn explain(&self, native: i32) -> NativeError {
        self.0.explain(native)
    }
    fn stop(&mut self) {}
    fn stats(&self) -> QueueStats {
        self.0.stats()
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
}

#[test]
fn wrong_bytes_are_found_at_their_place() {
    let trace = copies("cpu:threads=0", 10);
    let replayed = replay(&trace, &open("sim:faults=corrupt@5,seed=7"), &options()).unwrap();
    let mismatch = replayed.mismatch.expect("the fifth copy is wrong");
    assert_eq!((mismatch.queue, mismatch.operation, replayed.verified), (0, 4, 4));
    assert!(mismatch.offset.is_some_and(|offset| offset < 64), "{mismatch:?}");
    // The replay detects a missing copy, even if an earlier copy left the same bytes.
    let wrong = replay(
        &trace,
        &(Arc::new(WithQueues::new(cpu("cpu:threads=0"), |inner| {
            Box::new(IdleQueue(inner, Vec::new(), true))
        })) as _),
        &options(),
    )
    .unwrap();
    assert_eq!(wrong.mismatch.map(|wrong| (wrong.operation, wrong.offset)), Some((1, Some(0))));
}

#[test]
fn failures_are_counted() {
    let trace = copies("cpu:threads=0", 10);
    let replayed = replay(&trace, &open("sim:faults=fail@every=5,seed=7"), &options()).unwrap();
    assert_eq!((replayed.failed, replayed.verified, replayed.descriptors), (2, 8, 10), "{replayed:?}");
}

#[test]
fn a_trace_that_cannot_run_is_refused_with_a_remedy() {
    let fill = recorded("cpu:threads=0", |engine| rounds(engine, &[vec![(0, 64)]])).0;
    let empty = recorded("cpu:threads=0", |engine| rounds(engine, &[])).0;
    let one = copies("cpu:threads=0", 1);
    assert!(!open("sim:profile=bluefield3").info().capabilities.contains(Capabilities::FILL));
    let short = options().with_stall(Duration::from_millis(20));
    for (trace, device, options, kind, says) in [
        (&empty, "cpu", options(), ErrorKind::InvalidArgument, "no operations"),
        (
            &fill,
            "sim:profile=bluefield3",
            options(),
            ErrorKind::Unsupported,
            "no fills, as operation 0 of queue 0",
        ),
        (&one, "cpu", options().with_memory(100), ErrorKind::OutOfMemory, "128"),
        (&one, "sim:clock=manual", short, ErrorKind::TimedOut, "none of 1 descriptors completed"),
    ] {
        let error = replay(trace, &open(device), &options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says) && !error.hint().is_empty(), "{error}");
    }
}

#[test]
fn wrapped_engines_are_replayed_on_and_see_the_calls() {
    let trace = copies("cpu:threads=0", 10);
    let folder = tempfile::tempdir().unwrap();
    let counted = meter(record(cpu("cpu:threads=0"), folder.path()));
    let engine: Arc<dyn DmaEngine> = counted.clone();
    assert_right(&replay(&trace, &engine, &options()).unwrap());
    // The replay runs the 10 copies twice: to verify them, and to time them.
    assert_eq!(counted.report().queues.iter().map(|queue| queue.done).sum::<u64>(), 20);
    drop((counted, engine));
    let again = Trace::load(&folder.path().join("a.trace")).unwrap();
    assert_eq!(again.queues().iter().map(|queue| queue.operations).collect::<Vec<_>>(), [10, 10]);
    assert_right(&replay(&again, &open("cpu"), &options()).unwrap());
}
