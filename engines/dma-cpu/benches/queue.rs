//! Compares the CPU engine's queue, through `Box<dyn RawQueue>`, with plain `memcpy` in the same run.
//!
//! `cargo bench -p dma-cpu --bench queue` prints Criterion's figures for the small copies and then tables of
//! its own; `-- --table` prints only the tables. Small copies run on one core, with all memory in the cache.
//! Cold copies cycle over 1 GiB on each side, with several in flight, and are measured in elapsed time,
//! because two cores work. Contenders run in turns.

#![expect(unsafe_code, reason = "drives the raw queue")]

mod support;

use std::hint::black_box;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use dma_core::{Completion, Descriptor, DeviceAddr, DmaEngine, QueueOptions, RawQueue, RegionKey, Segment};
use dma_cpu::{CpuEngine, CpuOptions};
use support::{Memory, Pairs, compare, median, size_name};

const SPAN: usize = 1 << 30;
const BATCH: usize = 32;
const ROUNDS: usize = 15;

fn main() {
    let (src, dst) = (Memory::new(SPAN, 1), Memory::new(SPAN, 2));
    if !std::env::args().any(|arg| arg == "--table") {
        criterion(src, dst);
    }
    if std::env::args().any(|arg| arg == "--test") {
        return; // under `cargo test --benches` the program only has to run
    }
    small_table(src, dst);
    in_flight_table(src, dst);
    large_table("cold, 8 in flight", src, dst, usize::MAX, 8);
    large_table("hot, one pair, one at a time", src, dst, 1, 1);
    large_table("hot, 8 pairs, 8 in flight", src, dst, 8, 8);
}

fn options(threads: usize) -> CpuOptions {
    CpuOptions::new().with_threads(threads)
}

/// The key that [`CpuEngine`] gives all memory of this process.
const LOCAL: RegionKey = RegionKey(1);

fn segment(addr: *const u8, len: usize) -> Segment {
    Segment { key: LOCAL, addr: DeviceAddr::of(NonNull::new(addr.cast_mut()).expect("mapped")), len }
}

/// A queue and the state of its user.
struct Driven {
    queue: Box<dyn RawQueue>,
    batch: Vec<Descriptor<'static>>,
    completions: [Completion; BATCH],
    token: u64,
    sum: u64,
}

impl Driven {
    fn open(options: &CpuOptions, depth: usize) -> Self {
        let engine = CpuEngine::open(options).expect("options in range");
        let queue = engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).expect("a queue");
        Self { queue, batch: Vec::new(), completions: [Completion::done(0); BATCH], token: 0, sum: 0 }
    }

    /// Submits copies of the next `count` pairs and rings the doorbell.
    #[inline]
    fn submit(&mut self, pairs: &mut Pairs, count: usize) {
        self.batch.clear();
        for _ in 0..count {
            let (dst, src) = pairs.next();
            self.batch.push(Descriptor::copy(self.token, segment(src, pairs.len), segment(dst, pairs.len)));
            self.token += 1;
        }
        // SAFETY: the pairs of ranges lie in two mappings that are never freed, and no other code accesses
        // them during the copies.
        let taken = unsafe { self.queue.submit(&self.batch) }.expect("accepted");
        assert_eq!(taken, count);
        self.queue.flush();
    }

    /// Polls once. Returns the number of completed copies.
    #[inline]
    fn poll(&mut self) -> usize {
        let n = self.queue.poll(&mut self.completions);
        for completion in &self.completions[..n] {
            self.sum += completion.token + u64::from(completion.native != 0);
        }
        n
    }

    /// Submits and completes a batch, `batches` times.
    fn run_batches(&mut self, pairs: &mut Pairs, batches: usize) {
        for _ in 0..batches {
            self.submit(pairs, BATCH);
            let mut got = 0;
            while got < BATCH {
                got += self.poll();
            }
        }
        black_box(self.sum);
    }

    /// Keeps `in_flight` copies in flight until `count` are done. Returns nanoseconds of elapsed time.
    fn stream(&mut self, pairs: &mut Pairs, count: usize, in_flight: usize) -> f64 {
        let (mut submitted, mut done) = (0, 0);
        let start = Instant::now();
        while done < count {
            let room = (in_flight - (submitted - done)).min(count - submitted);
            if room > 0 {
                self.submit(pairs, room);
                submitted += room;
            }
            done += self.poll();
        }
        black_box(self.sum);
        start.elapsed().as_nanos() as f64
    }
}

fn criterion(src: Memory, dst: Memory) {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args();
    let mut group = criterion.benchmark_group("batch of 32");
    group.throughput(Throughput::Elements(BATCH as u64));
    for len in [64, 512, 4096] {
        let (mut queue, mut pairs) = (Driven::open(&options(0), 256), Pairs::new(src, dst, len, BATCH));
        group.bench_function(size_name(len), |bencher| {
            bencher.iter(|| queue.run_batches(&mut pairs, 1));
        });
    }
    group.finish();
    criterion.final_summary();
}

fn plain(pairs: &mut Pairs, count: usize) {
    let len = black_box(pairs.len);
    for _ in 0..count {
        let (dst, src) = pairs.next();
        // SAFETY: the ranges lie in two mappings that are never freed, and no other code accesses them during
        // the copy.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
    }
}

fn small_table(src: Memory, dst: Memory) {
    println!(
        "\nhot, one core, batches of 32 over 32 pairs: million copies a second, ns each, times plain memcpy"
    );
    println!("{:>12}{:>10}{:>8}   {:>10}{:>8}{:>8}", "", "memcpy", "ns", "queue", "ns", "");
    for len in [64, 256, 512, 1 << 10, 4 << 10, 16 << 10] {
        let (mut queue, mut pairs) = (Driven::open(&options(0), 256), Pairs::new(src, dst, len, BATCH));
        let batches = ((32 << 20) / len / BATCH).clamp(200, 20_000);
        queue.run_batches(&mut pairs, batches);
        let results = compare(ROUNDS, 2, batches * BATCH, |contender| {
            pairs.cpu_time(|pairs| match contender {
                0 => plain(pairs, batches * BATCH),
                _ => queue.run_batches(pairs, batches),
            })
        });
        let [(plain, _), (queue, ratio)] = results[..] else { unreachable!("two contenders") };
        let (plain, queue) = (plain * 1e3, queue * 1e3);
        println!(
            "{:>12}{plain:>10.1}{:>8.1}   {queue:>10.1}{:>8.1}{ratio:>7.2}x",
            size_name(len),
            1e3 / plain,
            1e3 / queue
        );
    }
}

/// Prints the time of a copy by the number of copies in flight. All use the same 32 pairs, so that only the
/// queue's own memory grows.
fn in_flight_table(src: Memory, dst: Memory) {
    const COUNTS: [usize; 7] = [32, 128, 512, 2048, 8192, 32_768, 65_536];
    println!("\n64 B, hot, one core, by copies in flight: ns each, relative to 32 in flight");
    let mut queues: Vec<_> = COUNTS.iter().map(|_| Driven::open(&options(0), 65_536)).collect();
    let mut pairs = Pairs::new(src, dst, 64, BATCH);
    let mut samples = vec![Vec::new(); COUNTS.len()];
    for round in 0..=ROUNDS {
        for (at, &count) in COUNTS.iter().enumerate() {
            let queue = &mut queues[at];
            let turns = (1 << 19) / count;
            let time = pairs.cpu_time(|pairs| {
                for _ in 0..turns {
                    for _ in 0..count / BATCH {
                        queue.submit(pairs, BATCH);
                    }
                    let mut got = 0;
                    while got < count {
                        got += queue.poll();
                    }
                }
            });
            if round > 0 {
                samples[at].push(time / (turns * count) as f64);
            }
        }
    }
    let base = samples[0].clone();
    for (count, samples) in COUNTS.iter().zip(&mut samples) {
        let mut ratios: Vec<_> = samples.iter().zip(&base).map(|(sample, base)| sample / base).collect();
        println!("{count:>12}{:>8.2}{:>7.2}x", median(samples), median(&mut ratios));
    }
}

fn large_table(title: &str, src: Memory, dst: Memory, slots: usize, in_flight: usize) {
    println!("\n{title}: GB/s, and speed relative to plain memcpy on one core");
    println!("{:>12}{:>16}{:>16}{:>16}{:>16}", "", "memcpy", "caller alone", "1 thread more", "by default");
    for len in [32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20] {
        let mut pairs = Pairs::new(src, dst, len, slots);
        let mut queues =
            [options(0), options(1), CpuOptions::new()].map(|options| Driven::open(&options, 64));
        let count = ((128 << 20) / len).max(in_flight).clamp(4, 2048).next_multiple_of(pairs.slots().min(8));
        for queue in &mut queues {
            // The tuners learn first.
            for _ in 0..3 {
                queue.stream(&mut pairs, count, in_flight);
            }
        }
        let results = compare(ROUNDS, 4, count * len, |contender| {
            let hot = pairs.slots() <= 8;
            let warm = if hot { pairs.slots() * 2 } else { 0 };
            if contender == 0 {
                plain(&mut pairs, warm);
                let start = Instant::now();
                plain(&mut pairs, count);
                start.elapsed().as_nanos() as f64
            } else {
                let queue = &mut queues[contender - 1];
                if hot {
                    queue.stream(&mut pairs, warm, in_flight);
                }
                queue.stream(&mut pairs, count, in_flight)
            }
        });
        print!("{:>12}", size_name(len));
        for (speed, ratio) in results {
            print!("{speed:>9.2} {ratio:>5.2}x");
        }
        println!();
    }
}
