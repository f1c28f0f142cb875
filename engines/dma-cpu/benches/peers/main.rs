//! Compares users' calls on the CPU engine with alternatives in one run: slices of the standard library, the
//! crate crc-fast, and tokio tasks that copy inline.
//!
//! `cargo bench -p dma-cpu --bench peers [-- hot|single|cold|threads|slices]`. Contenders run in turns. A
//! ratio is the speed in a round divided by the speed of the first contender, which is the alternative; the
//! median over the rounds is printed. With one thread, CPU time is measured, and with several threads elapsed
//! time.
//! All bytes and results are checked. Cold operations cycle over 512 MiB on each side. With `--test` each
//! contender runs a few times.
#![expect(unsafe_code, reason = "drives a raw queue")]

mod results;
#[expect(dead_code, reason = "is shared with other benches")]
#[path = "../support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Instant;

use dma_core::{
    Batch, BufferMut, BufferPool, Completion, Descriptor, DeviceAddr, DmaEngine, DmaEngineExt, OpError,
    PoolOptions, Queue, QueueOptions, RawQueue, Segment, SharedQueue, SharedQueueOptions,
};
use dma_cpu::{CpuEngine, CpuOptions};
use results::{cold_results, extend, push, results, single};
use support::{cpu_time, median};

type Pair = (BufferMut, BufferMut);

const IN_FLIGHT: usize = 32;
const COLD: usize = 512 << 20;
const ROUNDS: usize = 15;
const TASKS: usize = 64;
/// Tasks yield at least once in this many awaited copies, even if each copy was already done when it was
/// submitted.
const YIELD_EVERY: usize = 64;

/// The extent of a run.
#[derive(Clone, Copy)]
struct Extent {
    rounds: usize,
    /// Number of bytes on each side of cold operations.
    cold: usize,
    /// Divisor of the number of operations in a round.
    fewer: usize,
}

/// A contender: its name, and a function that executes the operations of a round.
type Contender<'a> = (&'a str, Box<dyn FnMut() + 'a>);

fn elapsed_time() -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as f64
}

/// Runs the contenders in turns, with `operations` operations in a round. Prints each contender's nanoseconds
/// per operation, and its speed as a multiple of the first contender's.
fn compare(extent: Extent, clock: fn() -> f64, name: &str, operations: usize, mut of: Vec<Contender<'_>>) {
    let count = of.len();
    let mut times = vec![Vec::new(); count];
    // The first rounds warm up.
    for round in 0..extent.rounds + 2 {
        for turn in 0..count {
            let at = (round + turn) % count;
            let start = clock();
            of[at].1();
            let time = (clock() - start) / operations as f64;
            if round >= 2 {
                times[at].push(time);
            }
        }
    }
    print!("{name:<38}");
    let peer = times[0].clone();
    for ((name, _), times) in of.iter().zip(&mut times) {
        let mut ratios: Vec<_> = times.iter().zip(&peer).map(|(time, peer)| peer / time).collect();
        print!("  {name} {:.1} ns ({:.2})", median(times), median(&mut ratios));
    }
    println!();
}

/// Makes adjacent pairs of `len` bytes. No two sources have the same bytes.
fn pairs(engine: &dyn DmaEngine, len: usize, count: usize) -> Vec<Pair> {
    let memory = || engine.allocate(len * count).expect("memory");
    let (mut src, mut dst) = (memory(), memory());
    let mut state = 1_u64;
    for chunk in src.chunks_exact_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    dst.fill(1);
    (0..count).map(|_| (src.split_to(len), dst.split_to(len))).collect()
}

fn are_copied(pairs: &[Pair]) -> bool {
    pairs.iter().all(|(src, dst)| src[..] == dst[..])
}

fn memcpy(pairs: &mut [Pair], times: usize) {
    for _ in 0..times {
        for (src, dst) in pairs.iter_mut() {
            black_box(&mut **dst).copy_from_slice(black_box(src));
        }
    }
}

/// Operands that a call takes by value and returns again.
struct Taken<T>(Option<T>);

impl<T> Taken<T> {
    fn with(&mut self, call: impl FnOnce(T) -> T) {
        let value = self.0.take().expect("returned");
        self.0 = Some(call(value));
    }
}

fn done<T, E>(result: Result<T, OpError<E>>) -> T {
    result.unwrap_or_else(|e| panic!("{e}"))
}

/// Runs `operate` on each of the pairs in turn, one at a time.
fn one_at_a_time(pairs: &mut Vec<Pair>, times: usize, operate: impl Fn(Pair) -> Pair) {
    if pairs.len() == 1 {
        let mut pair = pairs.remove(0);
        for _ in 0..times {
            pair = operate(pair);
        }
        return pairs.push(pair);
    }
    let mut taken: Vec<_> = pairs.drain(..).map(Some).collect();
    for _ in 0..times {
        for pair in &mut taken {
            *pair = pair.take().map(&operate);
        }
    }
    pairs.extend(taken.into_iter().flatten());
}

/// Copies the pairs `times` times through a raw queue, each time in one batch.
fn by_raw_queue(queue: &mut dyn RawQueue, pairs: &[Pair], times: usize) {
    let segment = |buffer: &BufferMut| Segment {
        key: buffer.region().as_raw().info().key,
        addr: DeviceAddr::of(NonNull::from(&buffer[0])),
        len: buffer.len(),
    };
    let segments: Vec<_> = pairs.iter().map(|(src, dst)| (segment(src), segment(dst))).collect();
    let (mut batch, mut completions) = (Vec::with_capacity(pairs.len()), [Completion::done(0); IN_FLIGHT]);
    for _ in 0..times {
        batch.clear();
        batch.extend(segments.iter().zip(0..).map(|(&(src, dst), token)| Descriptor::copy(token, src, dst)));
        // SAFETY: the pairs are borrowed while the copies are in flight, and nothing else accesses them.
        assert_eq!(unsafe { queue.submit(&batch) }.expect("accepted"), batch.len());
        queue.flush();
        let mut reported = 0;
        while reported < batch.len() {
            reported += queue.poll(&mut completions);
        }
    }
}

fn hot(engine: &dyn DmaEngine, queue: &Queue, extent: Extent) {
    println!("\nhot, one thread: ns for each operation, and times the speed of the first");
    let cells =
        [(64, 1), (4 << 10, 1), (8 << 10, 1), (12 << 10, 1), (16 << 10, 1), (4 << 10, 32), (16 << 10, 32)];
    for (len, count) in cells {
        let times = ((64 << 20) / (len + 512) / count / extent.fewer).max(1);
        let (mut plain, mut ours) = (pairs(engine, len, count), pairs(engine, len, count));
        let name = format!("copy, {len} B, one at a time, {count} pairs");
        let call = |(src, dst)| done(done(queue.copy(src, dst)).wait());
        let of: Vec<Contender<'_>> = vec![
            ("memcpy", Box::new(|| memcpy(&mut plain, times))),
            ("copy().wait()", Box::new(|| one_at_a_time(&mut ours, times, call))),
        ];
        compare(extent, cpu_time, &name, times * count, of);
        assert!(are_copied(&plain) && are_copied(&ours), "{name}");
    }
    for len in [64, 4 << 10] {
        let times = ((64 << 20) / (len + 512) / IN_FLIGHT / extent.fewer).max(1);
        let make = || pairs(engine, len, IN_FLIGHT);
        let (mut plain, mut batch, raw) =
            (make(), Taken(Some(make().into_iter().collect::<Batch<_, _>>())), make());
        let mut raw_queue = engine.open_queue_raw(&QueueOptions::new()).expect("a queue");
        let (mut in_flight, mut pushed) = (make(), make());
        let name = format!("copy, {len} B, {IN_FLIGHT} at a time");
        let of: Vec<Contender<'_>> = vec![
            ("memcpy", Box::new(|| memcpy(&mut plain, times))),
            ("raw queue", Box::new(|| by_raw_queue(&mut *raw_queue, &raw, times))),
            (
                "Batch",
                Box::new(|| (0..times).for_each(|_| batch.with(|b| done(done(queue.submit(b)).wait())))),
            ),
            (
                "in flight",
                extend!(in_flight, times, |(src, dst)| done(queue.copy(src, dst)), |transfer| done(
                    transfer.wait()
                )),
            ),
            (
                "pushed",
                push!(pushed, times, |(src, dst)| done(queue.copy(src, dst)), |transfer| done(
                    transfer.wait()
                )),
            ),
        ];
        compare(extent, cpu_time, &name, times * IN_FLIGHT, of);
        assert!([&plain, &raw, &in_flight, &pushed].iter().all(|pairs| are_copied(pairs)), "{name}");
        let batch = batch.0.expect("returned");
        assert!(batch.iter().all(|(src, dst)| src[..] == dst[..]), "{name}");
    }
    for len in [64, 4 << 10] {
        results(engine, queue, extent, len);
    }
}

fn cold(engine: &dyn DmaEngine, queue: &Queue, extent: Extent) {
    println!("\ncold, one thread: ns for each operation, and times the speed of the first");
    let count = extent.cold / (4 << 10);
    let all = pairs(engine, 4 << 10, count);
    let batches = all.into_iter().collect::<Vec<_>>();
    let mut batches: VecDeque<Batch<_, _>> = {
        let mut all = batches.into_iter();
        (0..count / IN_FLIGHT).map(|_| all.by_ref().take(IN_FLIGHT).collect()).collect()
    };
    // A round is a quarter of the memory.
    let times = (batches.len() / 4).max(1);
    let shared = RefCell::new(&mut batches);
    let next = || {
        let mut batches = shared.borrow_mut();
        batches.pop_front().expect("a batch")
    };
    let of: Vec<Contender<'_>> = vec![
        (
            "memcpy",
            Box::new(|| {
                for _ in 0..times {
                    let mut batch = next();
                    let mut pairs: Vec<Pair> = batch.drain().collect();
                    memcpy(&mut pairs, 1);
                    batch.extend(pairs);
                    shared.borrow_mut().push_back(batch);
                }
            }),
        ),
        (
            "Batch",
            Box::new(|| {
                for _ in 0..times {
                    let batch = done(done(queue.submit(next())).wait());
                    shared.borrow_mut().push_back(batch);
                }
            }),
        ),
    ];
    compare(extent, cpu_time, "copy, 4096 B, batches of 32", times * IN_FLIGHT, of);
    assert!(batches.iter().flat_map(Batch::iter).all(|(src, dst)| src[..] == dst[..]), "batches");
    drop(batches);
    for len in [4 << 10, 16 << 10, 64 << 10, 1 << 20] {
        cold_results(engine, queue, extent, len);
    }
}

fn threads(engine: &dyn DmaEngine, extent: Extent) {
    println!("\nseveral threads, elapsed time: ns for each operation, and times the speed of the first");
    let shared = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    let each = 2_000_000 / extent.fewer;
    let run = |threads: usize| {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let queue = shared.clone();
                let mut pair = pairs(engine, 64, 1).remove(0);
                scope.spawn(move || {
                    for _ in 0..each / threads {
                        let (src, dst) = pair;
                        pair = done(done(queue.copy(src, dst)).wait());
                    }
                    assert_eq!(pair.0[..], pair.1[..]);
                });
            }
        });
    };
    let of: Vec<Contender<'_>> =
        vec![("one thread", Box::new(|| run(1))), ("two threads", Box::new(|| run(2)))];
    compare(extent, elapsed_time, "SharedQueue, copy().wait(), 64 B", each, of);
    for workers in [2, 1] {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build().expect("a runtime");
        for len in [64, 4 << 10] {
            let each = (1 << 30) / (len + 1024) / TASKS / extent.fewer;
            // `yield_every` applies to the tasks that copy inline.
            let run = |queue: Option<&SharedQueue>, yield_every: usize| {
                let tasks: Vec<_> = pairs(engine, len, TASKS)
                    .into_iter()
                    .map(|pair| match queue {
                        Some(queue) => runtime.spawn(await_copies(queue.clone(), pair, each)),
                        None => runtime.spawn(copy_inline(pair, each, yield_every)),
                    })
                    .collect();
                runtime.block_on(async {
                    for task in tasks {
                        task.await.expect("a task does not panic");
                    }
                });
            };
            let name = format!("{TASKS} tasks, {len} B, {workers} threads");
            let of: Vec<Contender<'_>> = vec![
                ("inline, yielding after each", Box::new(|| run(None, 1))),
                ("inline, yielding after 64", Box::new(|| run(None, YIELD_EVERY))),
                ("awaited", Box::new(|| run(Some(&shared), 1))),
            ];
            compare(extent, elapsed_time, &name, each * TASKS, of);
        }
    }
}

async fn copy_inline((src, mut dst): Pair, times: usize, yield_every: usize) {
    for n in 1..=times {
        black_box(&mut *dst).copy_from_slice(black_box(&src));
        if n % yield_every == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(src[..], dst[..]);
}

async fn await_copies(queue: SharedQueue, mut pair: Pair, times: usize) {
    for _ in 0..times {
        pair = done(queue.copy_when_ready(pair.0, pair.1).await);
    }
    assert_eq!(pair.0[..], pair.1[..]);
}

/// Copies plain slices by an engine with helper threads.
fn slices(extent: Extent) {
    println!("\nplain slices, elapsed time: ns for each copy, and times the speed of the first");
    let engine = CpuEngine::open(&CpuOptions::new()).expect("options in range");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(64, 1)).expect("a pool");
    for (name, lens) in [("hot", &[256 << 10, 512 << 10][..]), ("cold", &[256 << 10, 1 << 20, 16 << 20])] {
        for &len in lens {
            let total = if name == "hot" { len } else { extent.cold.max(len) };
            let times = ((256 << 20) / total / extent.fewer).max(1);
            let src: Vec<u8> = (0..total).map(|n| (n >> 9) as u8 | 1).collect();
            let (mut plain, mut ours) = (vec![0; total], vec![0; total]);
            let each = |dst: &mut [u8], copy: &dyn Fn(&[u8], &mut [u8])| {
                for _ in 0..times {
                    src.chunks(len).zip(dst.chunks_mut(len)).for_each(|(src, dst)| copy(src, dst));
                }
            };
            let memcpy = |src: &[u8], dst: &mut [u8]| black_box(dst).copy_from_slice(black_box(src));
            let by_queue = |src: &[u8], dst: &mut [u8]| {
                queue.copy_bytes(&pool, src, dst).expect("it is copied");
            };
            let of: Vec<Contender<'_>> = vec![
                ("copy_from_slice", Box::new(|| each(&mut plain, &memcpy))),
                ("copy_bytes", Box::new(|| each(&mut ours, &by_queue))),
            ];
            compare(extent, elapsed_time, &format!("{name}, {len} B"), times * total / len, of);
            assert!(plain == src && ours == src, "{name}, {len} bytes");
        }
    }
}

/// Returns the processor's name and model, if the system reports them.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        line.and_then(|line| line.split(':').nth(1)).unwrap_or(" unknown").trim().to_owned()
    };
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, model {}, {cpus} CPUs", field("model name"), field("model"))
}

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let extent = if args.iter().any(|arg| arg == "--test") {
        Extent { rounds: 1, cold: 8 << 20, fewer: 1000 }
    } else {
        Extent { rounds: ROUNDS, cold: COLD, fewer: 1 }
    };
    let sections: Vec<_> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let has = |name: &str| sections.is_empty() || sections.iter().any(|section| *section == name);
    let engine = CpuEngine::open(&CpuOptions::new().with_threads(0)).expect("options in range");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    println!("{}; {}; median of {} rounds in turns", processor(), engine.info().device, extent.rounds);
    if has("hot") {
        hot(&engine, &queue, extent);
    }
    if has("single") {
        println!(
            "\nhot, one thread, one operation at a time on the same buffers: ns, and times the speed of the first"
        );
        for len in [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10] {
            single(&engine, &queue, extent, len);
        }
    }
    if has("cold") {
        cold(&engine, &queue, extent);
    }
    if has("threads") {
        threads(&engine, extent);
    }
    if has("slices") {
        slices(extent);
    }
}
