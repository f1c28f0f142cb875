//! [`Calibration`]: warms a cell up, and sets three numbers: samples of the cell, operations in a sample, and
//! operations before the clock of a sample starts.

use std::time::Instant;

use super::active_cell::ActiveCell;
use super::drive::{COMPARE_LITTLE, COMPARE_MUCH, CellError, Extent, MAX_COMPARED_OPS, Rate};
use super::queues;
use crate::interrupt;
use crate::plan::{Campaign, Cell, Footprint, Verify};

/// Maximum fraction of the time that reading the clock may take.
const MAX_CLOCK_SHARE: f64 = 0.005;
/// Operations that run before a sample's clock starts, as a fraction of its operations. They evict the
/// previous sample's data from the caches.
const WARM_OPS_SHARE: f64 = 0.2;
/// Maximum time of the operations that run before a sample's clock starts, in seconds.
const MAX_WARM_OPS_SECONDS: f64 = 0.01;
/// If the hot buffers have at most this number of bytes, all are used once before the clock starts.
const MAX_WARM_BYTES: u64 = 4 << 20;
/// Hot buffers with more bytes than this, counting sources and destinations, exceed a core's private caches.
const CORE_CACHE_BYTES: u64 = 1 << 20;
/// Maximum share of a warm-up that counts as waiting for a CPU. The limit ensures that the warm-up ends.
const MAX_RUN_DELAY: f64 = 0.99;
/// Minimum warm-up of a cell in each pass, in seconds, unless the campaign's whole warm-up is shorter.
const MIN_WARM_UP: f64 = 0.000_5;
/// Warm-up in seconds of a cell that has settled in an earlier pass: `memcpy`, devices, and queues that
/// stayed open. Only the caches have to be warmed again.
const SETTLED_WARM_UP: f64 = 0.001;
/// Warm-up in seconds of hot buffers in a shared cache, which takes longer to fill. Source: `memcpy` of 4 MiB
/// on a Zen 3 had 20 to 23 GB/s after 0.5 ms, 25 to 26 after 2 ms, 24 to 27 after 4 ms and 27 to 29 after 8
/// ms.
const SHARED_CACHE_WARM_UP: f64 = 0.004;
/// In one of this number of passes, the first sample of a cell is compared thoroughly.
const COMPARE_EVERY: u32 = 4;

/// Sets the extent of samples.
#[derive(Debug)]
pub(super) struct Calibration<'a> {
    campaign: &'a Campaign,
    /// Cost of one reading of the clock, in nanoseconds.
    clock_ns: f64,
}

impl<'a> Calibration<'a> {
    pub(super) fn new(campaign: &'a Campaign) -> Self {
        Self { campaign, clock_ns: clock_cost() }
    }

    /// Warms a cell up, and sets the operations of a sample and the number of samples. `settled` is true if
    /// the cell was warmed up in an earlier pass.
    pub(super) fn warm_up(&self, cell: &mut ActiveCell, pass: u32, settled: bool) -> Result<(), CellError> {
        let (depth, batch) = (u64::from(cell.cell.depth), u64::from(cell.cell.batch));
        let compare = compared_bytes(pass);
        let fresh = cell.wanted == 0;
        if fresh {
            cell.wanted = self.campaign.samples;
        }
        // A simulated device whose samples are copies of earlier ones does not run, so no bytes can be
        // compared.
        let much = compare == COMPARE_MUCH;
        if much && self.campaign.verify == Verify::Sample && cell.repeated().is_none() {
            check_some(cell)?;
        }
        if cell.virtual_clock {
            let least = (2 * depth).max(model_ops(cell.cell.size)).next_multiple_of(batch);
            let ops = self.campaign.count.unwrap_or(least);
            cell.extent = Extent { warm: 2 * depth, ops, timed_every: 1, compare, compare_each: false };
            cell.clear_latency();
            return Ok(());
        }
        let per_op = match self.campaign.rate {
            Some(rate) => self.warm_up_at_rate(cell, rate)?,
            None => self.warm_up_at_full_speed(cell, settled)?,
        };
        // Latencies of the warm-up do not count.
        cell.clear_latency();
        let timed_every = self.timed_every(per_op * 1e9 * batch as f64);
        let seconds = self.campaign.seconds;
        let ops = self.campaign.count.unwrap_or_else(|| match self.campaign.rate {
            Some(rate) => ((seconds * rate) as u64).max(1),
            None => ((seconds / per_op.max(1e-9)) as u64).max(depth).next_multiple_of(batch),
        });
        // Like the baseline, a cell runs operations before its clock starts. A run at a rate has no such
        // operations, because its schedule begins with the first operation.
        let warm = match self.campaign.rate {
            Some(_) => 0,
            None => warm_ops(&cell.cell, ops, per_op, depth).next_multiple_of(batch),
        };
        cell.extent = Extent { warm, ops, timed_every, compare, compare_each: false };
        let sample = ops as f64 * per_op;
        if fresh && self.campaign.count.is_none() && self.campaign.rate.is_none() && sample > 2.0 * seconds {
            let fewer = (f64::from(cell.wanted) * seconds / sample) as u32;
            cell.wanted = fewer.max(self.campaign.planned_passes());
        }
        Ok(())
    }

    /// Returns the warm-up of a cell in this pass, in seconds. `settled` is true if the cell was warmed up in
    /// an earlier pass.
    pub(super) fn seconds(&self, cell: &Cell, settled: bool) -> f64 {
        let again = if is_in_shared_cache(cell) { SHARED_CACHE_WARM_UP } else { SETTLED_WARM_UP };
        let whole = warm_up_of_pass(self.campaign);
        if settled { whole.min(again) } else { whole }
    }

    /// Returns the extent of a sample of the baseline, if one operation takes `per_op` seconds.
    pub(super) fn baseline_extent(&self, cell: &Cell, per_op: f64) -> Extent {
        // A count or a rate sets the length of the engine's samples. The baseline's samples stay short.
        let own = self.campaign.count.is_some() || self.campaign.rate.is_some();
        let longest = if own { crate::plan::SAMPLE_SECONDS } else { f64::INFINITY };
        let ops = ((self.campaign.seconds.min(longest) / per_op.max(1e-9)) as u64).max(1);
        let warm = warm_ops(cell, ops, per_op, u64::from(cell.depth));
        let timed_every = self.timed_every(per_op * 1e9);
        Extent { warm, ops, timed_every, compare: 0, compare_each: false }
    }

    /// Runs a cell as fast as possible until it is warm. Returns the seconds of one operation.
    fn warm_up_at_full_speed(&self, cell: &mut ActiveCell, settled: bool) -> Result<f64, CellError> {
        let (least, depth) = (self.seconds(&cell.cell, settled), u64::from(cell.cell.depth));
        let (mut ops, mut spent, mut per_op) = (depth, 0.0, f64::INFINITY);
        while spent < least.max(1e-9) && !interrupt::stopped() {
            let run = queues::run(&mut cell.workers, Extent::untimed(ops), None)?;
            // The time that other threads ran is subtracted, because on a busy machine it is most of the
            // elapsed time.
            let seconds = run.ops_and_ns().1 as f64 * 1e-9;
            spent += seconds * (1.0 - run.run_delay.min(MAX_RUN_DELAY));
            // The shortest time is used, because other load can only add to it.
            per_op = per_op.min(seconds / ops as f64);
            let left = ((least - spent).max(0.0) / per_op.max(1e-9)) as u64;
            ops = (ops * 2).min(left.max(depth));
        }
        Ok(per_op)
    }

    /// Runs a cell at its rate until it is warm. Returns the seconds of one operation.
    fn warm_up_at_rate(&self, cell: &mut ActiveCell, rate: f64) -> Result<f64, CellError> {
        let least = warm_up_of_pass(self.campaign);
        let ops = (rate * least) as u64;
        if least > 0.0 {
            // If no operation is scheduled in that time, one runs at once.
            let rate = (ops > 0).then_some(Rate { ops_per_second: rate, ops_per_sample: ops });
            queues::run(&mut cell.workers, Extent::untimed(ops.max(1)), rate)?;
        }
        Ok(1.0 / rate)
    }

    /// Returns n, so that timing one of n doorbells, each of which takes `ns` nanoseconds, stays within
    /// [`MAX_CLOCK_SHARE`].
    fn timed_every(&self, ns: f64) -> u64 {
        ((2.0 * self.clock_ns / (MAX_CLOCK_SHARE * ns.max(1.0))).ceil() as u64).max(1)
    }
}

/// Returns the bytes to compare in the first sample of a pass.
pub(super) fn compared_bytes(pass: u32) -> usize {
    if pass.is_multiple_of(COMPARE_EVERY) { COMPARE_MUCH } else { COMPARE_LITTLE }
}

/// Returns the warm-up of a cell in each pass, in seconds.
pub(super) fn warm_up_of_pass(campaign: &Campaign) -> f64 {
    let all = campaign.warm_up;
    (all / f64::from(campaign.planned_passes())).max(MIN_WARM_UP.min(all))
}

/// Runs a short sample in which every operation is compared before its buffer is used again. In timed
/// samples, only the last operation on each buffer can be compared.
fn check_some(cell: &mut ActiveCell) -> Result<(), CellError> {
    let ops = (COMPARE_MUCH as u64 / cell.cell.size.max(1)).clamp(1, MAX_COMPARED_OPS as u64);
    let extent = Extent { compare: 0, compare_each: true, ..Extent::untimed(ops) };
    let run = queues::run(&mut cell.workers, extent, None)?;
    cell.count_verified(&run.counts);
    Ok(())
}

/// Returns the number of operations in a simulated device's sample. Long operations get fewer, because their
/// simulation takes long.
pub(super) fn model_ops(size: u64) -> u64 {
    const MAX_OPS: u64 = 128;
    const MAX_BYTES: u64 = 64 << 20;
    (MAX_BYTES / size.max(1)).clamp(MAX_OPS / 4, MAX_OPS)
}

/// Returns true if a cell's hot buffers exceed a core's private caches, so that they are in a cache that
/// cores share.
pub(super) fn is_in_shared_cache(cell: &Cell) -> bool {
    let bytes = 2 * u64::from(cell.depth) * u64::from(cell.queues) * cell.size;
    cell.footprint == Footprint::Hot && bytes > CORE_CACHE_BYTES
}

/// Returns the number of operations that run before a sample's clock starts. `per_op` is in seconds.
pub(super) fn warm_ops(cell: &Cell, ops: u64, per_op: f64, buffers: u64) -> u64 {
    let some = (ops as f64 * WARM_OPS_SHARE).min(MAX_WARM_OPS_SECONDS / per_op.max(1e-9)) as u64;
    let small = 2 * buffers * cell.size <= MAX_WARM_BYTES;
    if cell.footprint == Footprint::Hot && small { some.max(buffers) } else { some.max(1) }
}

/// Measures the cost of one reading of the clock, in nanoseconds.
fn clock_cost() -> f64 {
    let once = || {
        let begun = Instant::now();
        for _ in 0..100 {
            std::hint::black_box(begun.elapsed().as_nanos() as u64);
        }
        begun.elapsed().as_nanos() as f64 / 100.0
    };
    // The shortest time is used, because other load can only add to it.
    (0..20).map(|_| once()).fold(f64::INFINITY, f64::min)
}
