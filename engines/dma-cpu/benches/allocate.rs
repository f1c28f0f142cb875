//! Compares allocations of the engine with zeroed vectors, and programs that allocate each result with plain
//! code.
//!
//! Run with `cargo bench -p dma-cpu --bench allocate`; with `-- --test`, each case runs once.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dma_core::{BufferMut, DmaEngine, DmaEngineExt, Queue, QueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The time for which each case is measured.
fn target() -> Duration {
    // `cargo bench` passes `--bench`.
    if std::env::args().any(|arg| arg == "--bench") { Duration::from_millis(400) } else { Duration::ZERO }
}

/// Returns the lowest and the median time of one call of `f` in nanoseconds. `per_reading` calls are timed
/// together.
fn time(per_reading: u32, mut f: impl FnMut()) -> (f64, f64) {
    f();
    let (begin, mut readings) = (Instant::now(), Vec::new());
    while readings.len() < 3 || begin.elapsed() < target() {
        let begin = Instant::now();
        (0..per_reading).for_each(|_| f());
        readings.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(per_reading));
    }
    readings.sort_by(f64::total_cmp);
    (readings[0], readings[readings.len() / 2])
}

fn print(what: &str, len: usize, (low, median): (f64, f64), (plain_low, plain_median): (f64, f64)) {
    println!(
        "{what:34} {:>6} KiB: {low:>11.0} ns (median {median:>11.0}); plain {plain_low:>11.0} ns (median \
         {plain_median:>11.0}); ratio {:.2} (of the medians {:.2})",
        len / KIB,
        plain_low / low,
        plain_median / median
    );
}

/// Writes one byte of each page, as a program does sooner or later.
fn touch(bytes: &mut [u8]) {
    bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    black_box(bytes);
}

fn allocations(engine: &CpuEngine) {
    let idle = engine.idle_memory().expect("the engine recycles memory");
    for len in [4 * KIB, 2 * MIB, 64 * MIB] {
        let calls = if len == 4 * KIB { 1000 } else { 1 };
        let vec = time(calls, || touch(&mut vec![0_u8; black_box(len)]));
        let first = time(calls, || {
            touch(&mut engine.allocate(black_box(len)).expect("memory"));
            idle.release();
        });
        print("allocate, first use", len, first, vec);
        let again = time(calls, || touch(&mut engine.allocate(black_box(len)).expect("memory")));
        print("allocate, again", len, again, vec);
        let overwritten = time(calls, || {
            touch(&mut engine.allocate_for_overwrite(black_box(len)).expect("memory"));
        });
        print("allocate_for_overwrite, again", len, overwritten, vec);
        idle.release();
    }
}

/// Copies the parts into memory that `allocate` allocates.
fn concatenate(
    queue: &Queue,
    parts: Vec<BufferMut>,
    allocate: impl Fn(usize) -> dma_core::Result<BufferMut>,
) -> Vec<BufferMut> {
    let mut rest = allocate(parts.iter().map(|part| part.len()).sum()).expect("memory");
    let transfers: Vec<_> = parts
        .into_iter()
        .map(|part| {
            let dst = rest.split_to(part.len());
            queue.copy(part, dst).expect("the queue has room")
        })
        .collect();
    transfers.into_iter().map(|transfer| transfer.wait().expect("it is copied").0).collect()
}

/// Concatenates four parts into a new result, as a kernel of Arrow does, and drops the result.
fn results(engine: &CpuEngine) {
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    for len in [256 * KIB, 4 * MIB, 16 * MIB, 64 * MIB] {
        let plain_parts = vec![vec![7_u8; len / 4]; 4];
        let plain = time(1, || {
            let mut result = Vec::with_capacity(len);
            plain_parts.iter().for_each(|part| result.extend_from_slice(part));
            black_box(result);
        });
        let mut parts: Vec<_> = (0..4)
            .map(|_| {
                let mut part = engine.allocate(len / 4).expect("memory");
                part.fill(7);
                part
            })
            .collect();
        let mut case = |what, allocate: &dyn Fn(usize) -> dma_core::Result<BufferMut>| {
            let own = time(1, || parts = concatenate(&queue, std::mem::take(&mut parts), allocate));
            print(what, len, own, plain);
        };
        case("4 parts into allocate", &|len| engine.allocate(len));
        case("4 parts into allocate_for_overwrite", &|len| engine.allocate_for_overwrite(len));
    }
}

fn main() {
    let engine = CpuEngine::open(&CpuOptions::new()).expect("the CPU");
    allocations(&engine);
    results(&engine);
}
