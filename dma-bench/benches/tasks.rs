//! The effect of shared doorbells: 64 tokio tasks on two threads, each of which awaits its own copies of 4
//! KiB through one `SharedQueue`, and a single task. A queue that rings the doorbell for each copy runs in
//! turns with it.
//!
//! `cargo bench -p dma-bench --bench tasks [-- NAME...]` measures the default engines or the named ones. A
//! figure is the median over the rounds. The bytes of every copy are compared.

use std::time::{Duration, Instant};

use dma::prelude::*;
use dma::{SharedQueue, SharedQueueOptions};

const LEN: usize = 4096;
const TASKS: usize = 64;
const ROUNDS: usize = 7;
/// Duration of a round, which sets the number of copies.
const ROUND: Duration = Duration::from_millis(200);
const ENGINES: [&str; 4] =
    ["cpu", "sim:profile=bluefield3,clock=real", "sim:profile=ioat,clock=real", "sim:profile=dsa,clock=real"];

/// The figures of one kind of queue.
#[derive(Default)]
struct Way {
    /// Copies a second of all tasks.
    rate: Vec<f64>,
    copies_per_doorbell: Vec<f64>,
    /// Seconds of a single copy.
    lone: Vec<f64>,
}

fn queue(engine: &dyn DmaEngine, shares_doorbells: bool) -> SharedQueue {
    let mut options = QueueOptions::new();
    if !shares_doorbells {
        options = options.with_doorbell_delay(Duration::ZERO);
    }
    engine.open_shared_queue(&SharedQueueOptions::new().with_queue(options)).expect("a queue")
}

async fn copies(queue: SharedQueue, (mut src, mut dst): (BufferMut, BufferMut), n: usize) {
    src.iter_mut().zip(0_u8..=255).for_each(|(byte, i)| *byte = i | 1);
    for _ in 0..n {
        dst[LEN / 2] = 0;
        (src, dst) = queue.copy_when_ready(src, dst).await.expect("it is copied");
        assert_eq!(dst[LEN / 2], src[LEN / 2], "the byte arrived");
    }
    assert_eq!(src[..], dst[..], "all bytes arrived");
}

/// Runs `tasks` tasks of `n` copies and returns the time.
fn run(
    runtime: &tokio::runtime::Runtime,
    engine: &dyn DmaEngine,
    queue: &SharedQueue,
    tasks: usize,
    n: usize,
) -> f64 {
    let buffer = || engine.allocate(LEN).expect("memory");
    let pairs: Vec<_> = (0..tasks).map(|_| (buffer(), buffer())).collect();
    let begin = Instant::now();
    let tasks: Vec<_> = pairs.into_iter().map(|pair| runtime.spawn(copies(queue.clone(), pair, n))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no task panics");
        }
    });
    begin.elapsed().as_secs_f64()
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn measure(runtime: &tokio::runtime::Runtime, name: &str) {
    let engine = match dma::open(name) {
        Ok(engine) => engine,
        Err(e) => return println!("{name}: {e}"),
    };
    let queues = [queue(&engine, false), queue(&engine, true)];
    let mut ways = [Way::default(), Way::default()];
    // The first run warms up, and determines the number of copies of a round.
    let [n, lone] = [TASKS, 1].map(|tasks| {
        let time = run(runtime, &engine, &queues[0], tasks, 50);
        ((50.0 * ROUND.as_secs_f64() / time) as usize).clamp(10, 100_000)
    });
    for _ in 0..ROUNDS {
        for (queue, way) in queues.iter().zip(&mut ways) {
            let before = queue.counters().doorbells;
            let time = run(runtime, &engine, queue, TASKS, n);
            let copies = (TASKS * n) as f64;
            way.rate.push(copies / time);
            way.copies_per_doorbell.push(copies / (queue.counters().doorbells - before) as f64);
            way.lone.push(run(runtime, &engine, queue, 1, lone) / lone as f64);
        }
    }
    let mut figures = ways
        .map(|mut way| [median(&mut way.copies_per_doorbell), median(&mut way.rate), median(&mut way.lone)]);
    let [each, shared] = &mut figures;
    println!(
        "{name:36} {:8.1} {:8.1}   {:8.0} {:8.0} {:6.2}   {:8.2} {:8.2} {:6.2}",
        each[0],
        shared[0],
        each[1] / 1e3,
        shared[1] / 1e3,
        shared[1] / each[1],
        each[2] * 1e6,
        shared[2] * 1e6,
        shared[2] / each[2],
    );
}

fn main() {
    let names: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    println!("{TASKS} tasks on 2 threads, copies of {LEN} bytes; one doorbell each, shared, and their ratio");
    println!(
        "{:36} {:>17}   {:>24}   {:>24}",
        "engine", "copies/doorbell", "thousand copies/s", "lone copy, us"
    );
    if names.is_empty() {
        ENGINES.iter().for_each(|name| measure(&runtime, name));
    }
    names.iter().for_each(|name| measure(&runtime, name));
}
