//! [`Baseline`]: runs `memcpy` before, between and after samples of engines. It is warmed up and timed like
//! an engine.

use std::sync::Arc;
use std::time::Instant;

use apps_shared::hold;
use dma::DmaEngine;

use super::active_cell::ActiveCell;
use super::calibration::Calibration;
use super::drive::{CellError, Extent, histogram};
use super::layout::Layout;
use super::memcpy::Memcpy;
use super::placement::Pinned;
use super::sample::Sample;
use super::{cpu_time, queues};
use crate::interrupt;
use crate::plan::Op;

/// Number of samples of the baseline before, and again after, each run at a rate.
const SAMPLES_BESIDE_RATE: u32 = 5;
/// Minimum number of runs by which a pass finds out how long an operation takes. During one run, another
/// thread may take the CPU for much longer than an operation takes.
const MIN_RUNS: u32 = 3;

/// The baseline, which serves one group after another.
pub(super) struct Baseline {
    /// The engine that allocates the memory.
    engine: Arc<dyn DmaEngine>,
    /// The NUMA nodes of sources and of destinations, if they differ.
    nodes: Option<(u32, u32)>,
    /// The memory: for comparisons at index 1, for all other operations at 0.
    memory: [Option<Memcpy>; 2],
    /// Positions of the buffers in this pass; `None` before the first pass.
    layout: Option<Layout>,
    /// The next buffer.
    next: usize,
}

impl Baseline {
    pub(super) fn new(engine: Arc<dyn DmaEngine>, nodes: Option<(u32, u32)>) -> Self {
        Self { engine, nodes, memory: [None, None], layout: None, next: 0 }
    }

    /// Begins a pass over a group: moves the buffers to `layout` within `bytes` of memory on each side, warms
    /// `base` up, and sets how many operations a sample takes. `settled` is true if `base` was warmed up in
    /// an earlier pass.
    pub(super) fn begin_pass(
        &mut self,
        base: &mut ActiveCell,
        layout: Layout,
        bytes: usize,
        calibration: &Calibration<'_>,
        settled: bool,
    ) -> Result<(), CellError> {
        let layout = self.layout.insert(layout);
        self.next = 0;
        let compares = base.cell.op == Op::Compare;
        let memory = &mut self.memory[usize::from(compares)];
        let memcpy = match memory {
            Some(memcpy) => memcpy,
            None => memory.insert(Memcpy::new(&self.engine, self.nodes, bytes, compares)?),
        };
        let least = calibration.seconds(&base.cell, settled);
        let (mut ops, mut spent, mut per_op) = (1, 0.0, f64::INFINITY);
        while (spent < least || ops < 1 << MIN_RUNS) && !interrupt::stopped() {
            let extent = Extent { timed_every: u64::MAX, compare: 0, ..Extent::untimed(ops) };
            let run = memcpy.run(&base.cell, layout, extent, &mut self.next, &mut histogram())?;
            let seconds = run.0.seconds();
            spent += seconds;
            per_op = per_op.min(seconds / ops as f64);
            ops *= 2;
        }
        base.extent = calibration.baseline_extent(&base.cell, per_op);
        Ok(())
    }

    /// Takes a sample of the baseline on the first of `cpus`. Compares the bytes of its first buffer if these
    /// are at most `compare` bytes, or if `compare` is at least `COMPARE_MUCH`. Returns `None` if the sample
    /// failed or was stopped before an operation ended.
    pub(super) fn sample(
        &mut self,
        base: &mut ActiveCell,
        pass: u32,
        cpus: &[usize],
        compare: usize,
    ) -> Option<Sample> {
        let memcpy = self.memory[usize::from(base.cell.op == Op::Compare)].as_mut();
        let memcpy = memcpy.filter(|_| base.error.is_none())?;
        let layout = self.layout.as_ref()?;
        let _pinned = Pinned::to(cpus, 0);
        // Let threads that wait for this CPU run now, so that they do not run during the sample.
        std::thread::yield_now();
        let (before, begun) = (cpu_time::run_delay(), Instant::now());
        let extent = Extent { compare, ..base.extent };
        hold::reached("baseline's sample", interrupt::stopped);
        match memcpy.run(&base.cell, layout, extent, &mut self.next, &mut base.latency) {
            Ok((counts, _)) if counts.ops == 0 => {
                base.interrupted |= counts.interrupted;
                None
            }
            Ok((counts, cpu)) => {
                let run_delay = queues::run_delay_since(before, cpu_time::run_delay(), begun);
                let (ops, seconds) = (counts.ops as f64, counts.seconds());
                let sample = Sample { pass, ..Sample::new(ops / seconds, cpu / ops, run_delay) };
                base.count(&[counts]);
                base.add(Sample { ratio: Some(1.0), ..sample });
                Some(sample)
            }
            Err(error) => {
                base.error = Some(error);
                None
            }
        }
    }

    /// Takes [`SAMPLES_BESIDE_RATE`] samples of the baseline. Returns the last of them.
    pub(super) fn samples_beside_rate(
        &mut self,
        base: &mut ActiveCell,
        cpus: &[usize],
        compare: usize,
    ) -> Option<Sample> {
        let mut last = None;
        for _ in 0..SAMPLES_BESIDE_RATE {
            if interrupt::stopped() {
                break;
            }
            last = self.sample(base, 0, cpus, compare).or(last);
        }
        last
    }
}
