//! Tests many copies on an `AutoEngine` whose device fails, resets, loses copies, hangs or disappears during
//! the run: each copy must be reported, and its bytes must arrive.

mod engines;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{Batch, BufferMut, DmaEngineExt, QueueOptions};
use dma_layers::auto::{AutoEngine, AutoOptions, Prefer};
use engines::{cpu, sim};

const BATCH: usize = 32;
const IN_FLIGHT: usize = 4;
const LENGTHS: [usize; 4] = [64, 100, 512, 3000];

/// Makes every byte of the destination wrong, and changes the source.
fn prepare(batch: &mut Batch<BufferMut, BufferMut>, round: u8) {
    for (src, dst) in batch.iter_mut() {
        src[0] = round;
        let last = src.len() - 1;
        src[last] = !round;
        dst.iter_mut().zip(&src[..]).for_each(|(to, from)| *to = !from);
    }
}

/// Makes `count` copies. Returns the longest time between two completions.
fn copies(faults: &str, count: usize) -> Duration {
    let device = sim(&format!("sim:profile=dsa,faults={faults}"));
    let options = AutoOptions::new().with_prefer(Prefer::Device);
    let engine = Arc::new(AutoEngine::new(cpu("cpu:threads=0"), device, &options).unwrap());
    let queue = engine.open_queue(&QueueOptions::new().with_depth(BATCH * IN_FLIGHT)).unwrap();
    let memory = |len: usize, first: usize| {
        let mut memory = engine.allocate(len).unwrap();
        memory.iter_mut().enumerate().for_each(|(at, byte)| *byte = (first + at * 7) as u8);
        memory
    };
    let pair = |i: usize| (memory(LENGTHS[i % 4], i), memory(LENGTHS[i % 4], 0));
    let mut idle: Vec<Batch<_, _>> = (0..IN_FLIGHT).map(|_| (0..BATCH).map(pair).collect()).collect();
    let mut in_flight = VecDeque::new();
    let (mut round, mut pause, mut last) = (0, Duration::ZERO, Instant::now());
    let rounds = count / BATCH;
    while round < rounds || !in_flight.is_empty() {
        while round < rounds
            && let Some(mut batch) = idle.pop()
        {
            prepare(&mut batch, round as u8);
            in_flight.push_back(queue.submit(batch).unwrap());
            queue.flush();
            round += 1;
        }
        let mut batch = in_flight.pop_front().unwrap().wait().unwrap();
        pause = pause.max(last.elapsed());
        for (src, dst) in batch.iter_mut() {
            assert!(
                src[..] == dst[..],
                "{faults}: wrong bytes of round {round} or of one of the {IN_FLIGHT} rounds before"
            );
        }
        idle.push(batch);
        last = Instant::now();
    }
    let counters = queue.counters();
    let all = (rounds * BATCH) as u64;
    assert_eq!((counters.submitted, counters.completed), (all, all), "{faults}: {counters:?}");
    let report = engine.report();
    assert_eq!(report.cpu + report.device - report.repeated, all, "{faults}: {report}");
    // A descriptor that the device refuses does not count as accepted or repeated.
    let had_faults = report.repeated > 0 || faults.starts_with("refuse") && report.device < all;
    assert!(report.device > 0 && had_faults, "{faults}: the device must have had faults: {report}");
    println!(
        "{faults}: {all} copies, {} by the device, {} repeated, {} times left, {} times back, longest pause {pause:?}",
        report.device, report.repeated, report.left, report.returned
    );
    pause
}

#[test]
fn no_copy_is_lost_when_the_device_fails() {
    for faults in
        ["fail@every=701", "refuse@every=301", "reset@every=900", "lose@500", "stick@500", "gone@500"]
    {
        copies(faults, 20_000);
    }
}

/// `cargo test -p dma-layers --test auto_failover -- --ignored --nocapture`
#[test]
#[ignore = "takes a minute, and depends on times"]
fn ten_million_copies_have_no_pause_of_a_second() {
    let faults = [
        "fail@every=70001",
        "refuse@every=70001",
        "reset@every=90001",
        "lose@500000",
        "stick@500000",
        "gone@500000",
    ];
    for faults in faults {
        let pause = copies(faults, 1_700_000);
        assert!(pause < Duration::from_secs(1), "{faults}: {pause:?}");
    }
}
