//! Tests of the CPU engine's raw queue, against an oracle in ordinary memory, and of the rules of the
//! contract.
#![expect(unsafe_code, reason = "drives the raw queue")]

mod ending;
mod programs;
mod progress;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use dma_core::{
    Access, CacheHint, Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, Outcome,
    QueueOptions, RawQueue, RawRegion, Segment,
};
use dma_cpu::{CpuEngine, CpuOptions};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec};
use test_support::patience::Patience;

/// Number of slots of a region. Each slot can be the source or destination of operations.
const SLOTS: usize = 6;
const SLOT: usize = 700_000;

fn open(options: &CpuOptions) -> CpuEngine {
    CpuEngine::open(options).expect("options in range")
}

fn region(engine: &CpuEngine, len: usize) -> Box<dyn RawRegion> {
    engine.allocate_raw(&MemoryRequest::new(len)).expect("memory")
}

fn queue(engine: &CpuEngine, depth: usize) -> Box<dyn RawQueue> {
    engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).expect("a queue")
}

fn segment(region: &dyn RawRegion, offset: usize, len: usize) -> Segment {
    region.info().segment(offset, len)
}

/// Returns the region's bytes. No operation may be in flight.
fn bytes(region: &dyn RawRegion) -> Vec<u8> {
    assert!(region.info().cpu.is_some());
    // SAFETY: the region is mapped and initialized, and no operation is in flight.
    unsafe { std::slice::from_raw_parts(region.info().addr.as_ptr(), region.info().len) }.to_vec()
}

fn store(region: &dyn RawRegion, bytes: &[u8]) {
    assert!(region.info().cpu.is_some() && bytes.len() <= region.info().len);
    // SAFETY: the region is mapped, and no operation is in flight.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), region.info().addr.as_ptr(), bytes.len()) };
}

fn submit(queue: &mut dyn RawQueue, descriptor: Descriptor<'_>) -> bool {
    // SAFETY: tests name memory of regions that outlive the queue, and access it only when no operation is in
    // flight.
    unsafe { queue.submit(&[descriptor]) }.expect("the queue is open") == 1
}

fn drain(queue: &mut dyn RawQueue, count: usize) -> Vec<Completion> {
    let mut all = Vec::new();
    let mut completions = [Completion::done(0); 7];
    let mut patience = Patience::new();
    while all.len() < count {
        let n = queue.poll(&mut completions);
        all.extend_from_slice(&completions[..n]);
        if n == 0 {
            std::thread::yield_now();
        }
        patience.check(format_args!("{count} operations complete, but {} have", all.len()));
    }
    assert_eq!(queue.poll(&mut completions), 0, "no completion beyond the submitted operations");
    all
}

#[test]
fn a_full_queue_takes_what_fits() {
    for limit in [0, 1 << 20] {
        let engine = open(&CpuOptions::new().with_inline_limit(limit));
        let memory = region(&engine, 1000);
        let mut queue = queue(&engine, 5);
        let descriptors: Vec<_> = (0..8_u64)
            .map(|token| {
                let at = token as usize * 100;
                Descriptor::copy(token, segment(&*memory, at, 50), segment(&*memory, at + 50, 50))
            })
            .collect();
        // SAFETY: the ranges are disjoint and lie in a region that outlives the queue.
        assert_eq!(unsafe { queue.submit(&descriptors) }.expect("open"), 5);
        // SAFETY: the ranges are disjoint and lie in a region that outlives the queue.
        assert_eq!(unsafe { queue.submit(&descriptors[5..]) }.expect("a full queue is not an error"), 0);
        queue.flush();
        let first = drain(&mut *queue, 5);
        // SAFETY: the ranges are disjoint and lie in a region that outlives the queue.
        assert_eq!(unsafe { queue.submit(&descriptors[5..]) }.expect("open"), 3);
        queue.flush();
        let tokens: HashSet<_> = first.iter().chain(&drain(&mut *queue, 3)).map(|c| c.token).collect();
        assert_eq!(tokens.len(), 8);
        assert_eq!(queue.stats().doorbells, 2);
        queue.flush();
        assert_eq!(queue.stats().doorbells, 2, "nothing was submitted");
    }
}

#[test]
fn options_out_of_range_are_refused() {
    for (options, asked, allowed) in [
        (CpuOptions::new().with_threads(5000), 5000, CpuOptions::THREADS_MAX),
        (CpuOptions::new().with_inline_limit(2 << 20), 2 << 20, CpuOptions::INLINE_MAX),
    ] {
        let error = CpuEngine::open(&options).expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert_eq!((error.requested(), error.limit()), (Some(asked), Some(allowed as u64)));
        assert!(!error.hint().is_empty() && error.to_string().contains(&asked.to_string()), "{error}");
    }
}
