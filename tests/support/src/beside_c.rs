//! Compares the instructions per copy: `Box<dyn RawQueue>` with a C program that does the same, and
//! `queue.copy(src, dst)?.wait()?` on a `Queue` and on a `SharedQueue` with the raw queue.
#![expect(unsafe_code, reason = "submits to a raw queue")]

use std::process::Command;

use dma_core::{
    BufferMut, Completion, Descriptor, DmaEngine, DmaEngineExt, Outcome, QueueOptions, RawQueue, RegionInfo,
    Segment, SharedQueueOptions,
};

use crate::callgrind;

/// Number of copies in a batch.
pub const BATCH: usize = 32;
/// Length of a copy in bytes.
pub const LEN: usize = 64;
/// Maximum number of instructions that `queue.copy(src, dst)?.wait()?` takes more than the raw queue, one
/// copy at a time, on most engines.
pub const MORE_BOUND: f64 = 175.0;

/// Maximum number of instructions that `queue.copy(src, dst)?.wait()?` takes more on a `SharedQueue` than the
/// raw queue.
const SHARED_BOUND: f64 = 475.0;

/// Makes `BATCH` copies in each round, in one of four ways: `batch`, the loop of the C programs; `alone`,
/// one at a time through the raw queue; `safe` and `shared`, one at a time by `queue.copy(src, dst)?.wait()?`
/// on a `Queue` and on a `SharedQueue`. With `EACH`, batches check the outcome of each copy, as the C program
/// does if its completions have a status.
pub fn copy<const EACH: bool>(
    engine: &dyn DmaEngine,
    way: &str,
    depth: usize,
    (mut src, mut dst): (BufferMut, BufferMut),
    rounds: u64,
) {
    let options = QueueOptions::new().with_depth(depth);
    if way == "safe" {
        let queue = engine.open_queue(&options).expect("a queue");
        let (mut src, mut dst) = (src.split_to(LEN), dst.split_to(LEN));
        for _ in 0..rounds * BATCH as u64 {
            (src, dst) = queue.copy(src, dst).expect("it takes it").wait().expect("done");
        }
        return;
    }
    if way == "shared" {
        return shared(engine, options, &mut src, &mut dst, rounds * BATCH as u64);
    }
    let queue = engine.open_queue_raw(&options).expect("a queue");
    let info = |buffer: &BufferMut| *buffer.region().as_raw().info();
    match way {
        "batch" => batches::<EACH>(queue, info(&src), info(&dst), rounds),
        "alone" => one_at_a_time(queue, info(&src), info(&dst), rounds * BATCH as u64),
        _ => panic!("there is no method {way}"),
    }
}

/// Copies by a `SharedQueue`. This is a function of its own, so that the compiler treats the loop of a
/// `Queue` as if it were alone.
#[inline(never)]
fn shared(
    engine: &dyn DmaEngine,
    options: QueueOptions,
    src: &mut BufferMut,
    dst: &mut BufferMut,
    copies: u64,
) {
    let queue = engine.open_shared_queue(&SharedQueueOptions::new().with_queue(options)).expect("a queue");
    let (mut src, mut dst) = (src.split_to(LEN), dst.split_to(LEN));
    for _ in 0..copies {
        (src, dst) = queue.copy(src, dst).expect("it takes it").wait().expect("done");
    }
}

/// Returns a part of a region. Unlike `RegionInfo::segment` it makes no checks, because the C programs make
/// none.
fn part(region: RegionInfo, i: usize) -> Segment {
    Segment { key: region.key, addr: region.addr.offset(i * LEN), len: LEN }
}

fn one_at_a_time(mut queue: Box<dyn RawQueue>, from: RegionInfo, to: RegionInfo, copies: u64) {
    let mut completions = [Completion::done(0); 1];
    for token in 0..copies {
        let descriptor = Descriptor::copy(token, part(from, 0), part(to, 0));
        // SAFETY: the parts belong to the engine's memory, which outlives the copies and which only this loop
        // uses.
        assert_eq!(unsafe { queue.submit(&[descriptor]) }.expect("it takes it"), 1);
        queue.flush();
        while queue.poll(&mut completions) == 0 {}
        assert_eq!(completions[0].outcome, Outcome::Done);
    }
}

fn batches<const EACH: bool>(mut queue: Box<dyn RawQueue>, from: RegionInfo, to: RegionInfo, rounds: u64) {
    let mut batch: [_; BATCH] = std::array::from_fn(|_| Descriptor::copy(0, part(from, 0), part(to, 0)));
    let mut completions = [Completion::done(0); BATCH];
    for round in 0..rounds {
        for (i, descriptor) in batch.iter_mut().enumerate() {
            *descriptor = Descriptor::copy(round * BATCH as u64 + i as u64, part(from, i), part(to, i));
        }
        let mut taken = 0;
        while taken < BATCH {
            // SAFETY: the parts belong to the engine's memory, which outlives the copies and which only this
            // loop uses.
            taken += unsafe { queue.submit(&batch[taken..]) }.expect("it takes them");
        }
        queue.flush();
        let mut done = 0;
        while done < BATCH {
            done += queue.poll(&mut completions[done..]);
        }
        let is_done = |completion: &Completion| completion.outcome == Outcome::Done;
        assert!(if EACH { completions.iter().all(is_done) } else { is_done(&completions[BATCH - 1]) });
    }
}

/// Prints the instructions per copy of the C program, and of this program in each way. The arguments make the
/// commands for a number of rounds. Returns true if the ratio in batches is at most `bound`, the difference
/// between the safe API and the raw queue at most `more_bound`, and at most 475 on a `SharedQueue`.
pub fn compare(
    name: &str,
    bound: f64,
    more_bound: f64,
    rounds: [u64; 2],
    c: impl Fn(u64) -> Command,
    ours: impl Fn(&str, u64) -> Command,
) -> bool {
    let theirs = callgrind::per_copy(rounds, BATCH, c);
    let [batch, alone, safe, shared] = ["batch", "alone", "safe", "shared"]
        .map(|way| callgrind::per_copy(rounds, BATCH, |rounds| ours(way, rounds)));
    let (ratio, more, shared_more) = (batch / theirs, safe - alone, shared - alone);
    println!(
        "{name}: instructions per copy of {LEN} bytes, batch {BATCH}: C {theirs:.1}, Box<dyn RawQueue> {batch:.1}, ratio {ratio:.3} (at most {bound:.2})"
    );
    println!(
        "{name}: one at a time: Box<dyn RawQueue> {alone:.1}, queue.copy(src, dst)?.wait()? {safe:.1}, {more:.1} more (at most {more_bound})"
    );
    println!(
        "{name}: the same on a SharedQueue: {shared:.1}, {shared_more:.1} more than the raw queue (at most {SHARED_BOUND})"
    );
    ratio <= bound && more <= more_bound && shared_more <= SHARED_BOUND
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}
