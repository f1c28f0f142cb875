//! Measures the time to get and drop a buffer of a `BufferPool`, on one thread and on two threads at once.
//! Also counts allocations; the expected number is 0.
//!
//! Run with `cargo bench -p dma-core --bench pool`; with `-- --test`, the rounds are
//! few and short.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use dma_conformance::{ReferenceEngine, ReferenceOptions};
use dma_core::{BufferPool, PoolOptions};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() {
    // `cargo bench` passes `--bench`.
    let is_short = !std::env::args().any(|arg| arg == "--bench");
    let (rounds, gets) = if is_short { (3, 1000) } else { (31, 1_000_000) };
    let engine = ReferenceEngine::new(ReferenceOptions::default());
    let options = PoolOptions::new().with_class(4096, 64).with_class(65_536, 64);
    let pool = BufferPool::new(&engine, &options).expect("a pool");
    println!("get and drop of 4096 bytes, {rounds} rounds of {gets} on each thread:");
    for threads in [1, 2] {
        let mut times: Vec<_> = (0..rounds).map(|_| round(&pool, threads, gets)).collect();
        times.sort_by_key(|(time, _)| *time);
        let ns = |at: usize| times[at].0.as_secs_f64() * 1e9 / f64::from(gets);
        let allocations: u64 = times.iter().map(|(_, allocations)| allocations).sum();
        let (median, low, high) = (ns(rounds / 2), ns(0), ns(rounds - 1));
        println!(
            "{threads} threads: median {median:.1} ns ({low:.1} to {high:.1}), {allocations} allocations"
        );
        assert_eq!(allocations, 0, "getting a buffer allocates");
    }
}

/// Returns the time of the slowest thread, and the number of allocations of all threads.
fn round(pool: &BufferPool, threads: usize, gets: u32) -> (Duration, u64) {
    let start = Barrier::new(threads);
    let work = || {
        // This call assigns the thread its number, so it is not measured.
        drop(pool.try_get(4096).expect("a buffer"));
        start.wait();
        let (before, begin) = (counting::of_thread(), Instant::now());
        for _ in 0..gets {
            drop(black_box(pool.try_get(black_box(4096)).expect("a buffer")));
        }
        (begin.elapsed(), counting::of_thread() - before)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .fold((Duration::ZERO, 0), |(time, allocations), (own_time, own)| {
                (time.max(own_time), allocations + own)
            })
    })
}
