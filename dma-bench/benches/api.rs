//! The cost of the safe API in addition to the raw queue: 64-byte copies in the cache, on one core, in
//! batches of 32, on the CPU engine.
//!
//! `cargo bench -p dma-bench --bench api` prints Criterion's figures and then a table of its own; `--
//! --table` prints only the table. For the table, all contenders run in turns, and a ratio is the median
//! over the rounds, so that other load affects all contenders alike. Every run ends by comparing the
//! destinations with the sources. Allocations are counted by a global allocator.

#![expect(unsafe_code, reason = "drives the raw queue for comparison, and counts allocations")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use dma::contract::{Completion, Descriptor, DeviceAddr, Outcome, RawQueue, Segment};
use dma::prelude::*;
use dma::{Queue, SharedQueue};

const LEN: usize = 64;
const BATCH: usize = 32;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is forwarded to the system's allocator, which fulfils the trait's contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller passes a layout that `alloc` allows, by the contract of this method.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `ptr` came from `System` with this layout, and the caller passes a size that `realloc`
        // allows.
        unsafe { System.realloc(ptr, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Pair = (BufferMut, BufferMut);

/// `BATCH` pairs of buffers. The sources are filled.
fn pairs(engine: &dyn DmaEngine) -> Vec<Pair> {
    let (mut src, mut dst) = (engine.allocate(BATCH * LEN).unwrap(), engine.allocate(BATCH * LEN).unwrap());
    src.iter_mut().zip(0..).for_each(|(byte, i): (_, usize)| *byte = (i % 251) as u8);
    (0..BATCH).map(|_| (src.split_to(LEN), dst.split_to(LEN))).collect()
}

fn check<'a>(pairs: impl IntoIterator<Item = &'a Pair>) {
    assert!(
        pairs.into_iter().all(|(src, dst)| src[..] == dst[..] && src.iter().any(|b| *b != 0)),
        "the bytes arrived"
    );
}

/// One way to do `BATCH` copies.
trait Contender {
    fn name(&self) -> &'static str;
    fn run(&mut self, batches: usize);
    fn check(&self);
}

/// `memcpy` by hand: the cost of the copies themselves.
struct Memcpy(Vec<Pair>);

impl Contender for Memcpy {
    fn name(&self) -> &'static str {
        "memcpy in a loop"
    }
    fn run(&mut self, batches: usize) {
        for _ in 0..batches {
            for (src, dst) in &mut self.0 {
                black_box(&mut **dst).copy_from_slice(black_box(src));
            }
        }
    }
    fn check(&self) {
        check(&self.0);
    }
}

/// The raw queue through a trait object: builds and submits descriptors, rings the doorbell, and reads
/// completions.
struct Raw {
    name: &'static str,
    queue: Box<dyn RawQueue>,
    pairs: Vec<Pair>,
    segments: Vec<(Segment, Segment)>,
}

impl Raw {
    fn new(engine: &dyn DmaEngine) -> Self {
        let pairs = pairs(engine);
        let segment = |buffer: &BufferMut| Segment {
            key: buffer.region().as_raw().info().key,
            addr: DeviceAddr::of(NonNull::from(&buffer[0])),
            len: LEN,
        };
        let segments = pairs.iter().map(|(src, dst)| (segment(src), segment(dst))).collect();
        let queue = engine.open_queue_raw(&QueueOptions::new().with_depth(256)).unwrap();
        Self { name: "raw queue, Box<dyn RawQueue>", queue, pairs, segments }
    }
}

impl Contender for Raw {
    fn name(&self) -> &'static str {
        self.name
    }
    fn run(&mut self, batches: usize) {
        let mut completions = [Completion::done(0); BATCH];
        for _ in 0..batches {
            let batch: [_; BATCH] = std::array::from_fn(|i| {
                let (src, dst) = self.segments[i];
                Descriptor::copy(i as u64, src, dst)
            });
            // SAFETY: each pair belongs to one descriptor, is memory of the queue's engine, and stays in
            // `self`. No other code accesses it until all copies of the batch have completed below. The
            // copies are within the limits of the CPU engine, and the batch is shorter than the queue.
            assert_eq!(unsafe { self.queue.submit(&batch) }.unwrap(), BATCH);
            self.queue.flush();
            let mut done = 0;
            while done < BATCH {
                let n = self.queue.poll(&mut completions);
                assert!(completions[..n].iter().all(|c| c.outcome == Outcome::Done));
                done += n;
            }
        }
    }
    fn check(&self) {
        check(&self.pairs);
    }
}

/// A `Batch`: submits all copies and waits for them as a whole.
struct Batched(Queue, Option<Batch<BufferMut, BufferMut>>);

impl Contender for Batched {
    fn name(&self) -> &'static str {
        "Queue::submit(Batch)"
    }
    fn run(&mut self, batches: usize) {
        let mut batch = self.1.take().unwrap();
        for _ in 0..batches {
            batch = self.0.submit(batch).unwrap().wait().unwrap();
        }
        self.1 = Some(batch);
    }
    fn check(&self) {
        check(self.1.iter().flat_map(|batch| batch.iter()));
    }
}

/// One transfer per copy: waits for each of them.
struct Transfers(Queue, Vec<Pair>, Vec<dma::Transfer<Pair>>);

impl Contender for Transfers {
    fn name(&self) -> &'static str {
        "Queue::copy, 32 transfers"
    }
    fn run(&mut self, batches: usize) {
        for _ in 0..batches {
            for (src, dst) in self.1.drain(..) {
                self.2.push(self.0.copy(src, dst).unwrap());
            }
            self.0.flush();
            for transfer in self.2.drain(..) {
                self.1.push(transfer.wait().unwrap());
            }
        }
    }
    fn check(&self) {
        check(&self.1);
    }
}

/// A `SharedQueue`, used by `threads` threads with 32 copies in flight each.
struct Shared {
    name: &'static str,
    queue: SharedQueue,
    threads: Vec<(Vec<Pair>, Vec<dma::SharedTransfer<Pair>>)>,
}

impl Shared {
    fn new(name: &'static str, engine: &dyn DmaEngine, threads: usize, lanes: usize) -> Self {
        let options =
            SharedQueueOptions::new().with_lanes(lanes).with_queue(QueueOptions::new().with_depth(256));
        let queue = engine.open_shared_queue(&options).unwrap();
        let threads = (0..threads).map(|_| (pairs(engine), Vec::with_capacity(BATCH))).collect();
        Self { name, queue, threads }
    }
}

impl Contender for Shared {
    fn name(&self) -> &'static str {
        self.name
    }
    fn run(&mut self, batches: usize) {
        let batches = batches / self.threads.len();
        std::thread::scope(|scope| {
            for (pairs, transfers) in &mut self.threads {
                let queue = self.queue.clone();
                scope.spawn(move || {
                    for _ in 0..batches {
                        for (src, dst) in pairs.drain(..) {
                            transfers.push(queue.copy(src, dst).unwrap());
                        }
                        for transfer in transfers.drain(..) {
                            pairs.push(transfer.wait().unwrap());
                        }
                    }
                });
            }
        });
    }
    fn check(&self) {
        self.threads.iter().for_each(|(pairs, _)| check(pairs));
    }
}

fn contenders(engine: &dyn DmaEngine) -> Vec<Box<dyn Contender>> {
    let queue = || engine.open_queue(&QueueOptions::new().with_depth(256)).unwrap();
    vec![
        Box::new(Raw::new(engine)),
        Box::new(Memcpy(pairs(engine))),
        Box::new(Batched(queue(), Some(pairs(engine).into_iter().collect()))),
        Box::new(Transfers(queue(), pairs(engine), Vec::with_capacity(BATCH))),
        Box::new(Shared::new("SharedQueue, 1 thread", engine, 1, 1)),
        Box::new(Shared::new("SharedQueue, 2 threads, 1 lane", engine, 2, 1)),
        Box::new(Shared::new("SharedQueue, 2 threads, 2 lanes", engine, 2, 2)),
    ]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn table(engine: &dyn DmaEngine) {
    const ROUNDS: usize = 31;
    const BATCHES: usize = 20_000;
    let mut contenders = contenders(engine);
    let mut times = vec![Vec::new(); contenders.len()];
    let mut allocations = vec![0; contenders.len()];
    for round in 0..ROUNDS + 2 {
        for turn in 0..contenders.len() {
            let i = (round + turn) % contenders.len();
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            let start = Instant::now();
            contenders[i].run(BATCHES);
            let elapsed = start.elapsed().as_secs_f64();
            // The first rounds warm up.
            if round >= 2 {
                times[i].push(elapsed * 1e9 / (BATCHES * BATCH) as f64);
                allocations[i] += ALLOCATIONS.load(Ordering::Relaxed) - before;
            }
        }
    }
    println!(
        "\n{LEN} B copies, hot, batches of {BATCH}; {}; median of {ROUNDS} rounds in turns",
        engine.info().device
    );
    println!("{:<34}{:>9}{:>9}{:>9}{:>12}{:>16}", "", "ns/copy", "min", "M/s", "times raw", "allocs/copy");
    for (i, contender) in contenders.iter().enumerate() {
        contender.check();
        let ratio = median(times[i].iter().zip(&times[0]).map(|(a, b)| a / b).collect());
        let ns = median(times[i].clone());
        let min = times[i].iter().copied().fold(f64::MAX, f64::min);
        // Threads are started within the measured time, and each start allocates a few times.
        let allocated = allocations[i] as f64 / (ROUNDS * BATCHES * BATCH) as f64;
        println!(
            "{:<34}{ns:>9.2}{min:>9.2}{:>9.1}{ratio:>12.2}{allocated:>16.6}",
            contender.name(),
            1e3 / ns
        );
    }
}

/// Prints the cost of a copy at several depths: with this number of copies in flight, one copy is
/// submitted and one is completed.
fn in_flight_table(engine: &dyn DmaEngine) {
    const ROUNDS: usize = 15;
    const COPIES: usize = 1 << 18;
    let depths = [1, 8, 32, 256, 2048, 16_384, 65_536];
    let mut times = vec![Vec::new(); depths.len()];
    let max = engine.info().limits.max_queue_depth;
    let mut queues: Vec<_> = depths
        .iter()
        .map(|&depth| {
            let queue = engine.open_queue(&QueueOptions::new().with_depth(depth.min(max))).unwrap();
            // One hot source and destination for all depths, so that only the queue's own memory grows.
            let src = engine.allocate(LEN).unwrap().freeze();
            let dst = engine.allocate(LEN).unwrap().share();
            (queue, src, dst, std::collections::VecDeque::with_capacity(depth))
        })
        .collect();
    for round in 0..ROUNDS + 1 {
        for turn in 0..depths.len() {
            let i = (round + turn) % depths.len();
            let (queue, src, dst, transfers) = &mut queues[i];
            let start = Instant::now();
            for n in 0..COPIES {
                if transfers.len() == depths[i] {
                    let transfer: dma::Transfer<(Buffer, Window)> = transfers.pop_front().unwrap();
                    transfer.wait().unwrap();
                }
                transfers.push_back(queue.copy(src.clone(), dst.clone()).unwrap());
                if n % BATCH == 0 {
                    queue.flush();
                }
            }
            if round > 0 {
                times[i].push(start.elapsed().as_secs_f64() * 1e9 / COPIES as f64);
            }
        }
    }
    println!(
        "\nin flight through the safe API, one hot pair of windows, each copy waited for in turn; median of {ROUNDS}"
    );
    println!("{:>9}{:>10}{:>12}", "depth", "ns/copy", "times 32");
    let at_32 = depths.iter().position(|d| *d == 32).unwrap();
    for (i, depth) in depths.iter().enumerate() {
        let ratio = median(times[i].iter().zip(&times[at_32]).map(|(a, b)| a / b).collect());
        println!("{depth:>9}{:>10.1}{ratio:>12.2}", median(times[i].clone()));
    }
}

fn criterion(engine: &dyn DmaEngine) {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots() // Criterion's plots need fonts, which are not linked in
        .configure_from_args();
    let mut group = criterion.benchmark_group("64 B, batch of 32");
    group.throughput(Throughput::Elements(BATCH as u64));
    for mut contender in contenders(engine) {
        if contender.name().contains("thread") {
            continue; // this contender would start its threads for every batch; the table has it
        }
        group.bench_function(contender.name(), |bencher| bencher.iter(|| contender.run(1)));
        contender.check();
    }
    group.finish();
    criterion.final_summary();
}

fn main() {
    let engine = dma::open("cpu:threads=0").expect("the CPU is always there");
    if !std::env::args().any(|arg| arg == "--table") {
        criterion(&*engine);
    }
    if std::env::args().any(|arg| arg == "--test") {
        return; // `cargo test` only asks whether the bench runs
    }
    table(&*engine);
    in_flight_table(&*engine);
}
