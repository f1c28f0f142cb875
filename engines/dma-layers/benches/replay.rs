//! Compares the time and doorbells of a replayed trace with those of the recorded run, on the engine that
//! recorded it.
//!
//! `cargo bench -p dma-layers --bench replay` records mixed runs on the CPU and on simulated devices in real
//! time, replays each, and prints the median ratio of times, because runs of a busy machine differ. If this
//! ratio, or the doorbells of any run, differ by more than 10 %, the bench exits with 1, unless run with
//! `--test`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{DmaEngine, DmaEngineExt, MemoryRequest, QueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::record::{RecordEngine, RecordOptions, Trace};
use dma_layers::replay::{CopyTimes, ReplayOptions, replay};
use dma_sim::sim::{SimEngine, SimOptions};

const ENGINES: [&str; 4] =
    ["cpu", "cpu:threads=0", "sim:profile=dsa,clock=real", "sim:profile=bluefield3,clock=real"];
/// Bytes of memory for the sources, and for the destinations.
const MEMORY: usize = 16 << 20;
/// Number of runs of each engine.
const RUNS: usize = 15;

fn open(name: &str) -> Arc<dyn DmaEngine> {
    let parsed = name.parse().expect("a name");
    if name.starts_with("cpu") {
        Arc::new(CpuEngine::open(&CpuOptions::from_name(&parsed).expect("options")).expect("it opens"))
    } else {
        Arc::new(SimEngine::open(&SimOptions::from_name(&parsed).expect("options")).expect("it opens"))
    }
}

/// Submits batches of 1 to 32 copies of similar lengths, from 64 B to 4 MiB, each at its own offset. Up to
/// two batches are in flight, with some microseconds of work between them.
fn mixed(engine: &dyn DmaEngine, time: Duration) {
    let queue = engine.open_queue(&QueueOptions::new().with_depth(64)).expect("a queue");
    let memory = || engine.allocate_window(&MemoryRequest::new(MEMORY)).expect("memory");
    let (src, dst) = (memory(), memory());
    // Pages that nobody has written are one page of zeros, which is always in the cache.
    src.write_at(0, &vec![7; MEMORY]).expect("the CPU reaches it");
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let begin = Instant::now();
    let (mut at, mut before) = (0, Vec::new());
    while begin.elapsed() < time {
        let len = 64 << random(17);
        // The memory has room for two batches.
        let count = (1 + random(32)).min(MEMORY / 2 / len.max(1)).max(1);
        if at + len * count > MEMORY {
            before.drain(..).for_each(|copy: dma_core::Transfer<_>| drop(copy.wait().expect("done")));
            at = 0;
        }
        let copies: Vec<_> = (0..count)
            .map(|_| {
                let range = at..at + len;
                at += len;
                queue.copy(src.slice(range.clone()), dst.slice(range)).expect("accepted")
            })
            .collect();
        queue.flush();
        for copy in before {
            copy.wait().expect("done");
        }
        before = copies;
        let busy = Instant::now() + Duration::from_micros(random(20) as u64);
        while Instant::now() < busy {
            std::hint::spin_loop();
        }
    }
    for copy in before {
        copy.wait().expect("done");
    }
}

fn main() {
    let test = std::env::args().any(|arg| arg == "--test");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mixed.trace");
    let mut apart = false;
    for name in ENGINES {
        let (mut times, mut cpu, mut copies, mut doorbells) = (Vec::new(), Vec::new(), 0, [0; 2]);
        for _ in 0..if test { 1 } else { RUNS } {
            let engine = RecordEngine::new(open(name), &RecordOptions::new(&file)).expect("a file");
            mixed(&engine, Duration::from_millis(if test { 20 } else { 300 }));
            engine.finish().expect("a trace");
            let trace = Trace::load(&file).expect("a trace");
            let (queue, recorded) = (trace.queues()[0], trace.recorded());
            let options = ReplayOptions::new().with_repetitions(1);
            let replayed = replay(&trace, &open(name), &options).expect("it runs");
            assert_eq!((replayed.mismatch, replayed.failed), (None, 0));
            let ratio = |new: Duration, old: Duration| new.as_secs_f64() / old.as_secs_f64();
            times.push(ratio(replayed.time, recorded.time));
            cpu.push(ratio(replayed.cpu, CopyTimes::of(&trace).cpu));
            copies += queue.operations;
            doorbells = [doorbells[0] + replayed.doorbells, doorbells[1] + queue.doorbells];
            apart |= replayed.doorbells != queue.doorbells;
        }
        let median = |ratios: &mut Vec<f64>| {
            ratios.sort_by(f64::total_cmp);
            ratios[ratios.len() / 2]
        };
        let (time, cpu) = (median(&mut times), median(&mut cpu));
        println!(
            "{name}: {copies} copies; time {time:.3} of the recorded, CPU time of copies {cpu:.3}, doorbells {} of {}",
            doorbells[0], doorbells[1]
        );
        apart |= !(0.9..=1.1).contains(&time);
    }
    // The bench does not check the figures when it runs as a test, because other programs may use the
    // machine.
    if apart && !test {
        eprintln!("a replay differs by more than 10 % in time or doorbells");
        std::process::exit(1);
    }
}
