//! Verdicts of whole runs on synthetic engines with a known curve, in real time and with this machine's
//! noise. At slow sizes, an engine copies four times. At fast sizes, it skips a copy whose first byte is
//! already right.
#![expect(unsafe_code, reason = "stands in for a queue")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use dma::contract::{Completion, Descriptor, Operation, QueueEvents, QueueStats, RawQueue};
use dma::{EngineId, NativeError};
use test_support::with_queues::WithQueues;

use super::*;
use crate::plan::{Cell, Footprint, Sweep};
use crate::results::Measured;
use crate::results::conclusions::verdicts;
use crate::run::contender::Clock;
use crate::verdict::{Class, Verdict};

const SIZES: [u64; 6] = [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10];

/// A queue that is fast at these sizes and slow at all others.
#[derive(Debug)]
struct SyntheticQueue {
    queue: Box<dyn RawQueue>,
    fast: Vec<u64>,
    done: VecDeque<Completion>,
}

// SAFETY: copies end before `submit` returns, and access only the caller's ranges. Each accepted descriptor
// has one entry in `done`, which `poll` removes and reports.
unsafe impl RawQueue for SyntheticQueue {
    fn engine_id(&self) -> EngineId {
        self.queue.engine_id()
    }

    fn depth(&self) -> usize {
        self.queue.depth()
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> dma::Result<usize> {
        for descriptor in batch {
            let Operation::Copy { src, dst, .. } = descriptor.operation() else {
                unreachable!("only copies are measured")
            };
            let (from, to) = (src.addr.as_ptr().cast_const(), dst.addr.as_ptr());
            // In a destination that will be compared, every byte is wrong before the copy, so this copy is
            // not skipped.
            // SAFETY: the caller promises that the source is valid. It has at least one byte, and is memory
            // of this process, allocated by the CPU engine.
            let source = unsafe { from.read_volatile() };
            // SAFETY: the caller promises that the destination is valid. It has at least one byte, and is
            // memory of this process, allocated by the CPU engine.
            let arrived = source == unsafe { to.read_volatile() };
            let times = match self.fast.contains(&(src.len as u64)) {
                true if arrived => 0,
                true => 1,
                false => 4,
            };
            for _ in 0..times {
                // SAFETY: the caller promises that both ranges are valid and do not overlap.
                unsafe { std::hint::black_box(from).copy_to_nonoverlapping(to, src.len) };
            }
            self.done.push_back(Completion::done(descriptor.token()));
        }
        Ok(batch.len())
    }

    fn flush(&mut self) {}

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let n = completions.len().min(self.done.len());
        completions.iter_mut().zip(self.done.drain(..n)).for_each(|(to, done)| *to = done);
        n
    }

    fn explain(&self, native: i32) -> NativeError {
        self.queue.explain(native)
    }

    fn stop(&mut self) {
        self.queue.stop();
    }

    fn stats(&self) -> QueueStats {
        self.queue.stats()
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }
}

struct Silent;

impl Observer for Silent {
    fn begin(&mut self, _: u64, _: f64) {}
    fn sample(&mut self, _: &Cell, _: bool, _: f64) {}
    fn cell(&mut self, _: &Measured) {}
    fn end(&mut self) {}
}

/// Runs a campaign over an engine that is fast at these sizes.
fn run(fast: &[u64]) -> Verdict {
    let sweep = Sweep {
        sizes: crate::plan::Values(SIZES.to_vec()),
        depths: "1".parse().expect("a depth"),
        footprints: vec![Footprint::Hot],
        ..Sweep::default()
    };
    let campaign = Campaign {
        samples: 30,
        passes: 30,
        seconds: 0.0003,
        warm_up: 0.001,
        footprint: Some(1 << 20),
        sweeps: vec![sweep],
        ..Campaign::default()
    };
    let cpu = dma::open("cpu:threads=0").expect("the CPU is always there");
    let name = "synthetic".to_owned();
    let fast = fast.to_vec();
    let engine = Arc::new(WithQueues::new(Arc::clone(&cpu), move |queue| {
        Box::new(SyntheticQueue { queue, fast: fast.clone(), done: VecDeque::new() })
    }));
    let contender =
        Contender { name: name.clone(), engine, clock: Clock::Real(Instant::now()), timeless: false };
    let engines = Engines::new(vec![contender], campaign.groups(&[name]), &campaign);
    let (cells, _) = Runner::new(&campaign, engines, cpu).run_passes(&mut Silent);
    verdicts(&campaign, &cells, false).pop().expect("one curve")
}

/// The outcome of runs over known curves.
#[derive(Debug, Default)]
struct Outcome {
    runs: u32,
    /// Runs that left a size undecided.
    open: u32,
    /// Descriptions of wrong verdicts.
    wrong: Vec<String>,
}

/// Runs engines that are fast at these sizes, each `times` times.
fn known_curves(curves: &[&[u64]], times: u32) -> Outcome {
    let mut outcome = Outcome::default();
    for fast in curves {
        for _ in 0..times {
            let verdict = run(fast);
            let sizes: Vec<_> = verdict.points.iter().map(|p| p.size).collect();
            assert_eq!(sizes, SIZES, "{verdict:?}");
            for p in &verdict.points {
                let right = if fast.contains(&p.size) { Class::Faster } else { Class::Slower };
                if ![right, Class::NotDecided].contains(&p.class) {
                    outcome.wrong.push(format!("{fast:?}: {p:?}: {}", verdict.text));
                }
            }
            outcome.runs += 1;
            outcome.open += u32::from(verdict.points.iter().any(|p| p.class == Class::NotDecided));
        }
    }
    outcome
}

/// Each size gets a verdict. The noise of the machine can make the verdict wrong, so only the next test
/// checks that. `crate::verdict` has tests of verdicts on given samples.
#[test]
fn a_run_over_a_known_curve_judges_each_size() {
    println!("{:?}", known_curves(&[&SIZES[3..]], 1));
}

/// No run may be wrong, and at most 5 of 100 runs may leave a size undecided. This needs a machine that is
/// not too busy: `cargo test -p dma-bench --lib hundreds -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes, and needs an idle machine"]
fn hundreds_of_runs_over_known_curves() {
    let without_one = [&SIZES[..2], &SIZES[3..]].concat();
    let curves: [&[u64]; 5] = [&[], &SIZES, &SIZES[2..3], &without_one, &SIZES[3..]];
    let Outcome { runs, open, wrong } = known_curves(&curves, 60);
    println!("{open} of {runs} runs left something open");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(100 * open <= 5 * runs, "{open} of {runs}");
}
