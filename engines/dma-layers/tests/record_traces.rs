//! Tests that a trace contains the submitted operations, is small, is recorded without allocations, and is
//! refused if it is damaged.
#![expect(unsafe_code, reason = "submits descriptors to see which calls are recorded")]

mod engines;

use dma_core::{
    Batch, CacheHint, Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, Outcome, QueueOptions,
};
use dma_layers::record::{Kind, RecordEngine, RecordOptions, Trace, TraceError, TraceEvent};
use dma_layers::replay::{ReplayOptions, replay};
use engines::{cpu, record, sim};
use proptest::prelude::*;
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Records copies within two regions, given by source, destination and length, in batches.
fn recorded(device: &str, batches: &[Vec<(usize, usize, usize)>]) -> (Vec<u8>, Trace, u64) {
    let folder = tempfile::tempdir().unwrap();
    let engine = record(if device.starts_with("cpu") { cpu(device) } else { sim(device) }, folder.path());
    let queue = engine.open_queue(&QueueOptions::new().with_depth(64).with_hint(CacheHint::Cold)).unwrap();
    let src = engine.allocate_window(&dma_core::MemoryRequest::new(1 << 20)).unwrap();
    let dst = engine.allocate_window(&dma_core::MemoryRequest::new(1 << 20)).unwrap();
    for batch in batches {
        let mut waiting = Vec::new();
        for &(from, to, len) in batch {
            let operands = (src.slice(from..from + len), dst.slice(to..to + len));
            waiting.push(queue.copy(operands.0, operands.1).unwrap());
        }
        for transfer in waiting {
            let _ = transfer.wait();
        }
    }
    let doorbells = queue.counters().doorbells;
    drop(queue);
    engine.finish().unwrap();
    let path = folder.path().join("a.trace");
    (std::fs::read(&path).unwrap(), Trace::load(&path).unwrap(), doorbells)
}

/// Returns true if the bytes are refused, or are read as a partial trace with the first events of `whole`.
fn is_part(bytes: &[u8], whole: &Trace) -> bool {
    let Ok(part) = Trace::parse(bytes) else { return true };
    let is_prefix = |queue| part.events(queue).zip(whole.events(queue)).all(|(one, other)| one == other);
    let is_shorter = |queue| part.events(queue).count() <= whole.events(queue).count();
    part.recorded().partial
        && part.queues().len() <= whole.queues().len()
        && (0..part.queues().len()).all(|queue| is_shorter(queue) && is_prefix(queue))
}

fn batches() -> impl Strategy<Value = Vec<Vec<(usize, usize, usize)>>> {
    let copy = (0_usize..1 << 19, 0_usize..1 << 19, 1_usize..5000);
    let scattered = proptest::collection::vec(copy, 1..40);
    // Copies at equal distances, which may be negative, or 0 for the sources.
    let spread = (1_usize..2000, 1_usize..40, 0_usize..9000, any::<[bool; 2]>());
    // Two copies are swapped on one side.
    let swap = any::<(bool, [prop::sample::Index; 2])>();
    let strided = (spread, swap).prop_map(|((len, count, stride, back), (src, swap))| {
        let place = |i: usize, stride: usize, back: bool| if back { count - i } else { i } * stride;
        let [a, b] = swap.map(|index| index.index(count));
        let mut others: Vec<_> = (0..count).collect();
        others.swap(a, b);
        let sides =
            others.into_iter().enumerate().map(|(i, other)| if src { (other, i) } else { (i, other) });
        let copy = |(from, to)| (place(from, stride, back[0]), place(to, stride.max(len), back[1]), len);
        sides.map(copy).collect()
    });
    proptest::collection::vec(prop_oneof![scattered, strided], 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_trace_has_what_was_submitted(
        device in prop_oneof![
            Just("cpu:threads=0"),
            Just("sim:profile=dsa"),
            Just("sim:profile=bluefield3"),
            Just("sim:faults=fail@every=7"),
        ],
        batches in batches(),
        damage in any::<(prop::sample::Index, u8)>(),
    ) {
        let (bytes, trace, doorbells) = recorded(device, &batches);
        let queue = trace.queues()[0];
        let copies: Vec<_> = batches.concat();
        prop_assert_eq!(queue.operations, copies.len() as u64);
        prop_assert_eq!(queue.bytes, copies.iter().map(|(.., len)| *len as u64).sum::<u64>());
        prop_assert_eq!((queue.doorbells, queue.hint), (doorbells, CacheHint::Cold));
        // The planner may have its own region, for operations that the device lacks. The test's regions are
        // the last two.
        let regions = &trace.recorded().regions;
        let first = regions.len() - 2;
        prop_assert_eq!(&regions[first..], [1 << 20; 2]);
        let (mut found, mut ended) = (Vec::new(), 0);
        let mut events = trace.events(0);
        while let Some(event) = events.next() {
            match event {
                TraceEvent::Operation { kind, len, fence } => {
                    prop_assert_eq!((kind, fence), (Kind::Copy, false));
                    let (src, dst) = (events.src()[0], events.dst()[0]);
                    prop_assert_eq!((src.region, dst.region, src.len, dst.len), (first, first + 1, len, len));
                    found.push((src.offset, dst.offset, len));
                }
                TraceEvent::Ended { count, .. } => ended += count,
                _ => {}
            }
        }
        prop_assert_eq!(&found, &copies);
        prop_assert_eq!(ended, copies.len() as u64);

        let (at, change) = (damage.0.index(bytes.len()), damage.1);
        prop_assert!(is_part(&bytes[..at], &trace));
        let mut other = bytes.clone();
        other[at] ^= change;
        // If the length of a block is changed, the end is also missing.
        prop_assert!(change == 0 || is_part(&other, &trace));
        prop_assert_eq!(Trace::parse(&bytes), Ok(trace));
        other.clone_from(&bytes);
        other.push(0);
        prop_assert!(Trace::parse(&other).is_err());
    }
}

/// Returns the allocations of a warm round, and the bytes of the trace per operation.
fn cost(batched: bool) -> (u64, f64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let engine =
        RecordEngine::new(cpu("cpu:threads=0"), &RecordOptions::new(&path).with_buffer(4096)).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut operands = Some((engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap()));
    let pair = |_| (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    let mut batch = Some((0..32).map(pair).collect::<Batch<_, _>>());
    let mut before = 0;
    for round in 0..1000 {
        if round == 500 {
            before = counting::of_thread();
        }
        if batched {
            batch = batch.take().map(|batch| queue.submit(batch).unwrap().wait().unwrap());
        } else {
            operands = operands.take().map(|(src, dst)| queue.copy(src, dst).unwrap().wait().unwrap());
        }
    }
    let allocated = counting::of_thread() - before;
    drop(queue);
    engine.finish().unwrap();
    let operations = if batched { 32_000 } else { 1000 };
    assert_eq!(Trace::load(&path).unwrap().queues()[0].operations, operations);
    (allocated, std::fs::metadata(&path).unwrap().len() as f64 / operations as f64)
}

#[test]
fn a_trace_is_small_and_what_is_warm_allocates_nothing() {
    for batched in [true, false] {
        let (allocated, bytes) = cost(batched);
        println!("batched: {batched}, {bytes:.1} bytes an operation");
        assert_eq!(allocated, 0, "batched: {batched}");
        // The times of an operation have some 3 bytes more on a machine that is 100 times as slow.
        assert!(bytes <= 20.0, "batched: {batched}, {bytes} bytes");
    }
}

#[test]
fn a_trace_has_the_order_of_calls() {
    let folder = tempfile::tempdir().unwrap();
    let engine = record(sim("sim:clock=manual"), folder.path());
    let memory = engine.allocate_raw(&dma_core::MemoryRequest::new(256)).unwrap();
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(4)).unwrap();
    let copy = |token| Descriptor::copy(token, memory.info().segment(0, 64), memory.info().segment(128, 64));
    let mut reports = [Completion::done(0); 4];
    for token in 0..2 {
        // SAFETY: the access lies within the region, and only this queue uses it until it is stopped.
        assert_eq!(unsafe { queue.submit(&[copy(token)]) }.unwrap(), 1);
        assert_eq!((queue.poll(&mut reports), queue.poll(&mut reports)), (0, 0));
    }
    queue.flush();
    queue.stop();
    assert_eq!(queue.poll(&mut reports), 2);
    drop(queue);
    engine.finish().unwrap();
    let trace = Trace::load(&folder.path().join("a.trace")).unwrap();
    let calls = trace.events(0).map(|event| match event {
        TraceEvent::Submit { count: 1, .. } => "submit",
        TraceEvent::Operation { kind: Kind::Copy, len: 64, .. } => "copy",
        TraceEvent::Poll { .. } => "polls",
        TraceEvent::Flush { .. } => "flush",
        TraceEvent::Ended { count: 1, older: 0, outcome: Outcome::Aborted, .. } => "aborted",
        other => panic!("{other:?}"),
    });
    let expected = ["submit", "copy", "polls", "submit", "copy", "polls", "flush", "aborted", "aborted"];
    assert_eq!(calls.collect::<Vec<_>>(), expected);
    let (queue, recorded) = (trace.queues()[0], trace.recorded());
    assert!(queue.opened <= queue.closed && queue.closed == recorded.time, "{queue:?}, {recorded:?}");
    assert!(!recorded.cpu_copies);
}

#[test]
fn foreign_files_are_refused() {
    assert_eq!(Trace::parse(b""), Err(TraceError::NotATrace));
    assert_eq!(Trace::parse(b"DMATRACF\x01\0"), Err(TraceError::NotATrace));
    assert_eq!(Trace::parse(b"DMATRACE\x01\0"), Err(TraceError::Version { found: 1 }));
    assert_eq!(Trace::parse(b"DMATRACE\x02\0"), Err(TraceError::CutOff { len: 10 }));
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    // A sparse file of 8 TiB, which does not fit into memory.
    let long = written("long.trace", b"");
    std::fs::File::options().write(true).open(&long).unwrap().set_len(1 << 43).unwrap();
    for (path, kind) in [
        (written("a.trace", b"[]").as_path(), ErrorKind::Malformed),
        (&written("cut.trace", b"DMATRACE\x02\0"), ErrorKind::Malformed),
        (&written("newer.trace", b"DMATRACE\x09\0"), ErrorKind::VersionMismatch),
        (&long, ErrorKind::OutOfMemory),
        (folder.path(), ErrorKind::InvalidArgument),
        (&folder.path().join("none"), ErrorKind::NotFound),
    ] {
        let error = Trace::load(path).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(&*path.to_string_lossy()) && !error.hint().is_empty(), "{error}");
    }
}

#[test]
fn a_trace_is_complete_when_all_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let engine = record(sim("sim:seed=1"), folder.path());
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    assert_eq!(engine.finish().unwrap_err().kind(), ErrorKind::InUse);
    drop(engine);
    assert!(!path.exists());
    drop(queue);
    assert!(Trace::load(&path).is_ok());
    let engine = record(sim("sim:seed=1"), folder.path());
    engine.finish().unwrap();
    assert_eq!(engine.open_queue(&QueueOptions::new()).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(engine.finish().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn explain_tells_the_state_of_the_trace() {
    let explained = |engine: &RecordEngine| engine.explain().expect("it has a trace");
    let folder = tempfile::tempdir().unwrap();
    let engine = record(cpu("cpu:threads=0"), folder.path());
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    assert!(explained(&engine).contains("1 queues so far, 1 open"), "{}", explained(&engine));
    drop(queue);
    engine.finish().unwrap();
    assert!(explained(&engine).contains("finished"), "{}", explained(&engine));
    let engine = record(cpu("cpu:threads=0"), folder.path());
    folder.close().unwrap();
    let error = engine.finish().expect_err("the folder is gone");
    assert!(explained(&engine).contains(&format!("lost: {error}")), "{}", explained(&engine));
}

/// Records until the process ends in the way that END names: see
/// [`a_trace_of_a_program_that_ends_early_is_read`].
#[test]
#[ignore = "is the program that another test starts"]
fn records_until_it_ends() {
    let path = std::path::PathBuf::from(std::env::var_os("TRACE").expect("the other test sets it"));
    let options = RecordOptions::new(&path).with_buffer(4096).with_engine("cpu:threads=0");
    let engine = RecordEngine::new(cpu("cpu:threads=0"), &options).unwrap();
    let first = engine.open_queue(&QueueOptions::new().with_depth(8).with_hint(CacheHint::Hot)).unwrap();
    let written = || std::fs::metadata(path.with_extension("trace.partial")).unwrap().len();
    for round in 0_usize.. {
        // Opens queues and regions that the first checkpoint does not contain.
        let len = 64 + round;
        let later = (round % 50 == 49).then(|| engine.open_queue(&QueueOptions::new()).unwrap());
        let queue = later.as_ref().unwrap_or(&first);
        let window = engine.allocate_window(&dma_core::MemoryRequest::new(2 * len)).unwrap();
        queue.copy(window.slice(..len), window.slice(len..)).unwrap().wait().unwrap();
        if written() < 20_000 {
            continue;
        }
        match std::env::var("END").as_deref() {
            Ok("exit") => std::process::exit(0),
            Ok("abort") => std::process::abort(),
            _ => {
                println!("recorded");
                std::thread::sleep(std::time::Duration::from_secs(600));
            }
        }
    }
}

#[test]
fn a_trace_of_a_program_that_ends_early_is_read() {
    use std::io::BufRead;
    use std::process::{Command, Stdio};

    for end in ["exit", "abort", "SIGTERM", "SIGKILL"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.trace");
        std::fs::write(&path, b"an earlier file").unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["records_until_it_ends", "--exact", "--ignored", "--nocapture"])
            .env("TRACE", &path)
            .env("END", end)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        if let Some(signal) = match end {
            "SIGTERM" => Some(rustix::process::Signal::TERM),
            "SIGKILL" => Some(rustix::process::Signal::KILL),
            _ => None,
        } {
            let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().contains("recorded")), "{end}");
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, signal).unwrap();
        }
        child.wait().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"an earlier file");
        let trace = Trace::load(&folder.path().join("a.trace.partial")).unwrap();
        let (recorded, queues) = (trace.recorded(), trace.queues());
        assert!(
            recorded.partial && recorded.engine == "cpu:threads=0" && recorded.cpu_copies,
            "{recorded:?}"
        );
        assert_eq!((queues[0].depth, queues[0].hint), (8, CacheHint::Hot), "{end}");
        assert!(queues.len() > 3 && recorded.time >= queues[0].closed, "{end}: {queues:?}");
        // The trace has at least 20,000 bytes by then, and an operation with its events takes at most 30.
        assert!(queues[0].operations > 500 && queues[0].doorbells > 500, "{end}: {queues:?}");
        let replayed =
            replay(&trace, &cpu("cpu:threads=0"), &ReplayOptions::new().with_repetitions(1)).unwrap();
        let operations: u64 = queues.iter().map(|queue| queue.operations).sum();
        assert_eq!(
            (replayed.mismatch, replayed.failed, replayed.descriptors),
            (None, 0, operations),
            "{end}"
        );
    }
}

#[test]
fn a_partial_trace_ends_with_a_complete_call() {
    let folder = tempfile::tempdir().unwrap();
    let partial = folder.path().join("a.trace.partial");
    let engine = record(sim("sim:clock=manual"), folder.path());
    let memory = engine.allocate_raw(&dma_core::MemoryRequest::new(1 << 20)).unwrap();
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(4096)).unwrap();
    // The distances are irregular, so that copies are not encoded as repetitions.
    let copy = |token: u64| {
        let at = (token * token * 7919 % 1000 * 512) as usize;
        Descriptor::copy(token, memory.info().segment(at, 64), memory.info().segment((1 << 19) + at, 64))
    };
    let mut reports = [Completion::done(0); 16];
    // One call is longer than the buffer; the earlier calls are not.
    for tokens in [0..4_u64, 4..8, 8..2008] {
        let batch: Vec<_> = tokens.map(copy).collect();
        // SAFETY: the access lies within the region, and only this queue uses it until it is stopped.
        let submitted = unsafe { queue.submit(&batch) }.unwrap();
        assert_eq!(submitted, batch.len());
    }
    let trace = Trace::load(&partial).unwrap();
    assert!(trace.recorded().partial);
    assert_eq!((trace.queues()[0].operations, trace.queues()[0].bytes), (8, 512));
    assert_eq!(trace.events(0).count(), 2 + 8);
    queue.stop();
    while queue.poll(&mut reports) > 0 {}
    drop(queue);
    engine.finish().unwrap();
    assert_eq!(Trace::load(&folder.path().join("a.trace")).unwrap().queues()[0].operations, 2008);
    assert!(!partial.exists());
}

#[test]
fn a_slow_program_writes_its_buffer_each_second() {
    let folder = tempfile::tempdir().unwrap();
    let engine = record(cpu("cpu:threads=0"), folder.path());
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut operands = (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    for _ in 0..2 {
        operands = queue.copy(operands.0, operands.1).unwrap().wait().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    let trace = Trace::load(&folder.path().join("a.trace.partial")).unwrap();
    assert_eq!(trace.queues()[0].operations, 2);
}
