//! Measures the read bandwidth, to compare with `ib_read_bw -s 65536 -t 32`.
#![expect(unsafe_code, reason = "uses a raw queue, because `ib_read_bw` uses the verbs directly")]

use std::time::Instant;

use dma_core::{
    Access, Completion, Descriptor, DmaEngine, DmaEngineExt, MemoryRequest, Outcome, QueueOptions,
};

use super::{Control, PATIENCE, bytes_of, open, pattern};

const LEN: usize = 64 << 10;
const DEPTH: usize = 32;

#[test]
#[ignore = "needs a second host: see the top of the file"]
fn bandwidth() {
    let copies = std::env::var("DMA_RDMA_COPIES").map_or(300, |n| n.parse().expect("a number of copies"));
    let (engine, mut control) = (open(), Control::open());
    let remote = engine.import(&control.export(LEN, Access::READ)).expect("an import");
    control.tell("fill 0 5");
    let local = engine.allocate_window(&MemoryRequest::new(LEN)).expect("memory");
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(DEPTH)).expect("a queue");
    let (from, to) = (*remote.region().as_raw().info(), *local.region().as_raw().info());
    let mut read = |copies: usize| {
        let (mut sent, mut ended) = (0, 0);
        let mut completions = [Completion::done(0); DEPTH];
        let begun = Instant::now();
        while ended < copies {
            // The last copies are complete before the time is taken, because a read's completion guarantees
            // it.
            while sent < copies && sent - ended < DEPTH {
                let copy = Descriptor::copy(sent as u64, from.segment(0, LEN), to.segment(0, LEN));
                // SAFETY: both windows outlive the queue, and all reads write the same bytes to the same
                // range.
                match unsafe { queue.submit(&[copy]) }.expect("it is taken") {
                    0 => break,
                    _ => sent += 1,
                }
            }
            queue.flush();
            let n = queue.poll(&mut completions);
            assert!(completions[..n].iter().all(|c| c.outcome == Outcome::Done), "{completions:?}");
            ended += n;
            assert!(begun.elapsed() < PATIENCE, "{ended} of {copies} reads");
        }
        begun.elapsed()
    };
    read(DEPTH);
    let time = read(copies);
    assert!(bytes_of(&local) == pattern(LEN, 5), "wrong bytes");
    let mib = (copies * LEN) as f64 / (1 << 20) as f64;
    println!("\nread bandwidth: {:.2} MiB/s ({copies} of 64 KiB, depth {DEPTH})", mib / time.as_secs_f64());
}
