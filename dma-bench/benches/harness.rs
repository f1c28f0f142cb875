//! The cost of measuring: the measuring loop of `dma-bench` against a bare loop over the same queue, with
//! copies of 64 B in the cache, 32 in flight and 32 for each doorbell.
//!
//! `cargo bench -p dma-bench --bench harness` prints Criterion's figures and then a table, for which both
//! loops run in turns. Its ratio is the median over the rounds.

#![expect(unsafe_code, reason = "drives the raw queue for comparison")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use dma::QueueOptions;
use dma::contract::{Completion, Descriptor, Outcome, RawQueue};
use dma_bench::plan::{Cell, Direction, Footprint, Op, Verify};
use dma_bench::run::contender::Contender;
use dma_bench::run::drive::{COMPARE_MUCH, Extent, Worker};
use dma_bench::run::layout::Layout;
use dma_bench::run::memory::Memory;

const LEN: usize = 64;
const BATCH: usize = 32;

/// The shortest loop over the queue.
struct Bare {
    queue: Box<dyn RawQueue>,
    batch: Vec<Descriptor<'static>>,
    completions: Vec<Completion>,
    _memory: Memory,
}

impl Bare {
    fn new(contender: &Contender) -> Self {
        let memory = Memory::new(&contender.engine, None, LEN * BATCH, Direction::Local, false).unwrap();
        let batch = (0..BATCH)
            .map(|i| Descriptor::copy(i as u64, memory.src(i * LEN, LEN), memory.dst(i * LEN, LEN)))
            .collect();
        let queue = contender.engine.open_queue_raw(&QueueOptions::new().with_depth(BATCH)).unwrap();
        Self { queue, batch, completions: vec![Completion::done(0); BATCH], _memory: memory }
    }

    fn batch(&mut self) {
        // SAFETY: the segments are within memory of the queue's engine, which stays in `self`, and do not
        // overlap. No other code accesses them until all copies have completed below.
        assert_eq!(unsafe { self.queue.submit(&self.batch) }.unwrap(), BATCH);
        self.queue.flush();
        let mut done = 0;
        while done < BATCH {
            let n = self.queue.poll(&mut self.completions);
            // One branch checks all completions, because one branch for each would cost more.
            assert!(!self.completions[..n].iter().fold(false, |bad, c| bad | (c.outcome != Outcome::Done)));
            done += n;
        }
    }
}

fn worker(contender: &Contender) -> Worker {
    let cell = Cell {
        engine: contender.name.clone(),
        op: Op::Copy,
        size: LEN as u64,
        depth: BATCH as u32,
        batch: BATCH as u32,
        queues: 1,
        segments: 1,
        footprint: Footprint::Hot,
        direction: Direction::Local,
    };
    let memory =
        Memory::new(&contender.engine, None, Layout::bytes(&cell, 0), Direction::Local, false).unwrap();
    let layout = Layout::new(&cell, 0, 0);
    Worker::new(contender, &cell, memory, layout, Verify::Sample, Duration::from_secs(5)).unwrap()
}

/// Number of doorbells per timed doorbell, as in a run of `dma-bench`.
const TIMED_EVERY: u64 = 64;

/// Runs the contender and its baseline alternately. Each round uses other addresses, because the cache sets
/// of a buffer change the time of either loop by 5 %.
fn table(contender: &Contender, rounds: usize, batches: usize) {
    let extent = Extent {
        warm: 0,
        ops: (batches * BATCH) as u64,
        timed_every: TIMED_EVERY,
        compare: COMPARE_MUCH,
        compare_each: false,
    };
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let padding = |part: usize| vec![0_u8; 64 + (round * 1000 + part * 3000) % 4096];
        let first = padding(0);
        let mut bare = Bare::new(contender);
        let second = padding(1);
        let mut worker = worker(contender);
        black_box((first, second));
        for turn in 0..4 {
            let who = (round + turn) % 2;
            let seconds = if who == 0 {
                let begun = Instant::now();
                (0..batches).for_each(|_| bare.batch());
                begun.elapsed().as_secs_f64()
            } else {
                worker.run(extent).unwrap().seconds()
            };
            if turn >= 2 {
                times[who].push(seconds * 1e9 / (batches * BATCH) as f64);
            }
        }
    }
    let median = |mut v: Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    let ratio = median(times[1].iter().zip(&times[0]).map(|(a, b)| a / b).collect());
    let [bare, worker] = times.map(median);
    println!(
        "\n{LEN} B copies, hot, {BATCH} for each doorbell, {}; median of {rounds} rounds in turns",
        contender.name
    );
    println!("bare loop {bare:.2} ns, dma-bench {worker:.2} ns: {ratio:.3} times");
}

fn main() {
    let contender = Contender::open("cpu:threads=0").expect("the CPU is always there");
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots() // Criterion's plots need fonts, which are not linked in
        .configure_from_args();
    let mut group = criterion.benchmark_group("64 B, batch of 32");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut bare = Bare::new(&contender);
    group.bench_function("bare loop", |bencher| bencher.iter(|| bare.batch()));
    let mut worker = worker(&contender);
    group.bench_function("dma-bench", |bencher| {
        bencher.iter_custom(|batches| {
            let extent = Extent {
                warm: 0,
                ops: batches * BATCH as u64,
                timed_every: TIMED_EVERY,
                compare: COMPARE_MUCH,
                compare_each: false,
            };
            Duration::from_secs_f64(worker.run(extent).unwrap().seconds())
        });
    });
    group.finish();
    criterion.final_summary();
    if std::env::args().any(|arg| arg == "--test") {
        table(&contender, 1, 10);
    } else {
        table(&contender, 301, 5_000);
    }
}
