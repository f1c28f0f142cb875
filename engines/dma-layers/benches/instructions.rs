//! Counts instructions per copy on the CPU engine alone, within wrappers and within `AutoEngine`: through the
//! safe API and on raw queues, in batches and one at a time.
//!
//! `cargo bench -p dma-layers --bench instructions` runs itself under `valgrind --tool=callgrind` with two
//! numbers of batches for each engine, and prints the cost of each additional copy and the ratio to the CPU
//! engine alone. The reference is the engine's queue without the executor of short operations, as a
//! device's. `cargo bench -p instructions --bench safe_api` counts wrappers with the executor. In
//! `AutoEngine` the device executes only the copies of its trials. If a ratio exceeds its limit, the bench
//! exits with 1, unless run with `--test`. Valgrind has no vDSO: reading the clock is a system call, whose
//! instructions in the kernel are not counted.
#![expect(unsafe_code, reason = "drives raw queues")]

use std::path::PathBuf;
use std::sync::Arc;

use dma_core::{
    Batch, BufferMut, Completion, Descriptor, DmaEngine, DmaEngineExt, EngineId, MemoryRequest, NativeError,
    QueueEvents, QueueOptions, QueueStats, RawQueue, Result,
};
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::auto::{AutoEngine, AutoOptions};
use dma_layers::meter::{MeterEngine, MeterOptions};
use dma_layers::record::{RecordEngine, RecordOptions};
use dma_sim::sim::{SimEngine, SimOptions};
use test_support::callgrind;
use test_support::with_queues::WithQueues;

const BATCH: usize = 32;
const SIZE: usize = 64;
/// Engines, and the maximum ratio of their instructions to those of the last engine before them that has a
/// ratio of 1.
const ENGINES: [(&str, f64); 9] = [
    ("cpu by its queue", 1.0),
    ("meter+cpu by its queue", 1.3),
    ("record+cpu by its queue", 1.5),
    ("record+cpu by its queue, reversed", 1.5),
    // The distances between the copies differ, so a trace has an entry for each copy.
    ("record+cpu by its queue, scattered", 4.0),
    ("raw cpu", 1.0),
    // The limit has a margin, because the length of the device's trials depends on the clock.
    ("raw auto", 1.3),
    ("raw cpu alone", 1.0),
    ("raw auto alone", 1.5),
];

/// A queue that offers no executor.
#[derive(Debug)]
struct SeenQueue(Box<dyn RawQueue>);

// SAFETY: every call goes to the inner queue.
unsafe impl RawQueue for SeenQueue {
    fn engine_id(&self) -> EngineId {
        self.0.engine_id()
    }
    fn depth(&self) -> usize {
        self.0.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        // SAFETY: the inner method has the same requirements, which the caller meets.
        unsafe { self.0.submit(batch) }
    }
    fn flush(&mut self) {
        self.0.flush();
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        self.0.poll(completions)
    }
    fn explain(&self, native: i32) -> NativeError {
        self.0.explain(native)
    }
    fn stop(&mut self) {
        self.0.stop();
    }
    fn stats(&self) -> QueueStats {
        self.0.stats()
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.0.events()
    }
}

/// Returns the engine with queues that offer no executor.
fn by_queue(cpu: CpuEngine) -> Arc<dyn DmaEngine> {
    Arc::new(WithQueues::new(Arc::new(cpu), |inner| Box::new(SeenQueue(inner))))
}

fn trace() -> PathBuf {
    std::env::temp_dir().join(format!("instructions-{}.trace", std::process::id()))
}

fn open(name: &str) -> Arc<dyn DmaEngine> {
    let options = CpuOptions::from_name(&"cpu:threads=0".parse().expect("a name")).expect("options");
    let cpu = CpuEngine::open(&options).expect("the CPU is always there");
    if name == "cpu by its queue" {
        return by_queue(cpu);
    }
    if name == "meter+cpu by its queue" {
        return Arc::new(MeterEngine::new(by_queue(cpu), &MeterOptions::new()));
    }
    if name.starts_with("record+cpu by its queue") {
        return Arc::new(RecordEngine::new(by_queue(cpu), &RecordOptions::new(trace())).expect("a file"));
    }
    let cpu = Arc::new(cpu);
    if !name.starts_with("raw auto") {
        return cpu;
    }
    let device = "sim:profile=bluefield3,clock=real".parse().expect("a name");
    let options = SimOptions::from_name(&device).expect("options");
    let device = Arc::new(SimEngine::open(&options).expect("it opens"));
    Arc::new(AutoEngine::new(cpu, device, &AutoOptions::new()).expect("both fit"))
}

/// Cuts a region into buffers of [`SIZE`] bytes.
fn pieces(engine: &dyn DmaEngine) -> Vec<BufferMut> {
    let mut rest = engine.allocate(BATCH * SIZE).expect("memory");
    let mut pieces: Vec<_> = (1..BATCH).map(|_| rest.split_to(SIZE)).collect();
    pieces.push(rest);
    pieces
}

/// Runs the measured loop on a raw queue, with `in_batch` descriptors in a batch.
fn raw_copies(engine: &dyn DmaEngine, in_batch: usize, rounds: u64) {
    let memory = || engine.allocate_raw(&MemoryRequest::new(BATCH * SIZE)).expect("memory");
    let (src, dst) = (memory(), memory());
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(BATCH)).expect("a queue");
    let segment = |of: usize| (src.info().segment(of * SIZE, SIZE), dst.info().segment(of * SIZE, SIZE));
    let copy = |of: usize| Descriptor::copy(of as u64, segment(of).0, segment(of).1);
    let all: Vec<_> = (0..BATCH).map(copy).collect();
    let mut completions = [Completion::done(0); BATCH];
    for batch in (0..rounds).flat_map(|_| all.chunks(in_batch)) {
        // SAFETY: the ranges are within this engine's regions, which outlive the queue's work, and do not
        // overlap.
        let mut left = unsafe { queue.submit(batch) }.expect("accepted");
        assert_eq!(left, batch.len(), "there is room");
        queue.flush();
        while left > 0 {
            left -= queue.poll(&mut completions);
        }
    }
}

/// Runs the measured loop.
fn copies(name: &str, rounds: u64) {
    let engine = open(name);
    if name.starts_with("raw") {
        return raw_copies(&*engine, if name.ends_with("alone") { 1 } else { BATCH }, rounds);
    }
    let queue = engine.open_queue(&QueueOptions::new().with_depth(BATCH)).expect("a queue");
    let (src, mut dst) = (pieces(&*engine), pieces(&*engine));
    if name.ends_with("reversed") {
        dst.reverse();
    } else if name.ends_with("scattered") {
        // Each distance differs from the previous one.
        (0..BATCH).for_each(|i| dst.swap(i, i * i % BATCH));
    }
    let pairs = src.into_iter().zip(dst);
    let mut batch = Some(pairs.collect::<Batch<_, _>>());
    for _ in 0..rounds {
        batch = batch.take().map(|batch| queue.submit(batch).expect("accepted").wait().expect("done"));
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, mode, name, rounds] = &args[..]
        && mode == "--copies"
    {
        copies(name, rounds.parse().expect("a number of rounds"));
        // Only recording engines write a trace.
        let _ = std::fs::remove_file(trace());
        return;
    }
    if !callgrind::is_there() {
        return;
    }
    let this = std::env::current_exe().expect("this program's path");
    let mut alone = 0.0;
    let mut above = false;
    for (name, limit) in ENGINES {
        let each = callgrind::per_copy([1_000, 3_000], BATCH, |rounds| {
            let mut command = callgrind::command(&this);
            command.args(["--copies", name, &rounds.to_string()]);
            command
        });
        alone = if limit == 1.0 { each } else { alone };
        let ratio = each / alone;
        above |= ratio > limit;
        println!("{name}: {each:.1} instructions per copy of {SIZE} bytes, ratio {ratio:.3}");
    }
    // The bench does not check the ratio when it runs as a test, because the ratio depends on the compiler.
    if above && !args.iter().any(|arg| arg == "--test") {
        eprintln!("a ratio is above its limit of {ENGINES:?}");
        std::process::exit(1);
    }
}
