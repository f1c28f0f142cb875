//! Calibration: warms a cell up, and sets how many operations a slice has, how many run before its clock
//! starts, and how many slices there are.

use std::time::Instant;

use super::{Runner, passes};
use crate::drive::{COMPARE_MUCH, COMPARE_OPS, Extent, Pace, Trouble, Worker};
use crate::plan::{Campaign, Cell, Footprint, Verify};
use crate::record::Record;
use crate::{interrupt, slices};

/// The most time that reading the clock may take, as a fraction.
const CLOCK_SHARE: f64 = 0.005;
/// Operations of a slice that run before its clock starts, as a fraction. They evict what the slice before
/// has left in the caches.
const WARM_SHARE: f64 = 0.2;
/// The most time of these operations, in seconds.
const WARM_LONGEST: f64 = 0.01;
/// Up to this many bytes, all hot buffers are used once before the clock starts: they fit into a core's own
/// caches.
const WARM_BYTES: u64 = 4 << 20;
/// Hot buffers of more bytes than this, sources and destinations together, exceed a core's own caches.
const OWN_CACHE: u64 = 1 << 20;
/// The most of a warm-up slice that counts as waiting for a CPU, so that the warm-up ends.
const WAITED: f64 = 0.99;
/// Least warm-up of a cell in each pass, in seconds, unless the campaign's whole warm-up is shorter.
const WARM_LEAST: f64 = 0.000_5;
/// Warm-up of what has settled in an earlier pass, in seconds: `memcpy`, devices, and queues that stayed
/// open. Only caches have to be warm.
const WARM_AGAIN: f64 = 0.001;
/// The same for hot buffers in a shared cache, which has not taken them in before. Source: `memcpy` of 4 MiB
/// on a Zen 3 had 20 to 23 GB/s after 0.5 ms, 25 to 26 after 2 ms, 24 to 27 after 4 ms and 27 to 29 after
/// 8 ms.
const WARM_SHARED: f64 = 0.004;

impl Runner<'_> {
    /// Warms a cell up, and sets the operations of a slice and the number of slices.
    pub(super) fn warm_up(&self, record: &mut Record, settled: bool) -> Result<(), Trouble> {
        let (depth, batch) = (u64::from(record.cell.depth), u64::from(record.cell.batch));
        let compare = self.compare();
        let fresh = record.wanted == 0;
        if fresh {
            record.wanted = self.campaign.repetitions;
        }
        // A simulated device whose slices are repeated from memory does not run, so there is nothing to
        // compare.
        let much = compare == COMPARE_MUCH;
        if much && self.campaign.verify == Verify::Sample && record.again().is_none() {
            check_some(record)?;
        }
        if record.virtual_clock {
            let least = (2 * depth).max(few(record.cell.size)).next_multiple_of(batch);
            let ops = self.campaign.count.unwrap_or(least);
            record.extent = Extent { warm: 2 * depth, ops, sample_every: 1, compare, each: false };
            record.workers.iter_mut().for_each(Worker::forget);
            return Ok(());
        }
        let per_op = match self.campaign.rate {
            Some(rate) => self.warm_at_rate(record, rate)?,
            None => self.warm_at_will(record, settled)?,
        };
        // Latencies of the warm-up do not count.
        record.workers.iter_mut().for_each(Worker::forget);
        let sample_every = self.sampling(per_op * 1e9 * batch as f64);
        let seconds = self.campaign.seconds;
        let ops = self.campaign.count.unwrap_or_else(|| match self.campaign.rate {
            Some(rate) => ((seconds * rate) as u64).max(1),
            None => ((seconds / per_op.max(1e-9)) as u64).max(depth).next_multiple_of(batch),
        });
        // As for memcpy beside it. A schedule begins with its first operation.
        let warm = match self.campaign.rate {
            Some(_) => 0,
            None => warm(&record.cell, ops, per_op, depth).next_multiple_of(batch),
        };
        record.extent = Extent { warm, ops, sample_every, compare, each: false };
        let slice = record.extent.ops as f64 * per_op;
        if fresh && self.campaign.count.is_none() && self.campaign.rate.is_none() && slice > 2.0 * seconds {
            let fewer = (f64::from(record.wanted) * seconds / slice) as u32;
            record.wanted = fewer.max(passes(self.campaign));
        }
        Ok(())
    }

    /// Returns the warm-up of a cell in this pass, in seconds. `settled`: it was warmed up in an earlier one.
    pub(super) fn warm_up_now(&self, cell: &Cell, settled: bool) -> f64 {
        let again = if is_shared(cell) { WARM_SHARED } else { WARM_AGAIN };
        let whole = warm_up_of_pass(self.campaign);
        if settled { whole.min(again) } else { whole }
    }

    /// Runs a cell as fast as possible until it is warm. Returns the seconds of one operation.
    fn warm_at_will(&self, record: &mut Record, settled: bool) -> Result<f64, Trouble> {
        let (least, depth) = (self.warm_up_now(&record.cell, settled), u64::from(record.cell.depth));
        let (mut ops, mut spent, mut per_op) = (depth, 0.0, f64::INFINITY);
        while spent < least.max(1e-9) && !interrupt::stopped() {
            let sliced = slices::run(&mut record.workers, Extent::untimed(ops), None)?;
            // Without the time that other threads got: on a busy machine it is most of it.
            let seconds = sliced.ops_and_ns().1 as f64 * 1e-9;
            spent += seconds * (1.0 - sliced.waited.min(WAITED));
            // The fastest counts: other load can only make it slower.
            per_op = per_op.min(seconds / ops as f64);
            let left = ((least - spent).max(0.0) / per_op.max(1e-9)) as u64;
            ops = (ops * 2).min(left.max(depth));
        }
        Ok(per_op)
    }

    /// Runs a cell at its rate until it is warm. Returns the seconds of one operation.
    fn warm_at_rate(&self, record: &mut Record, rate: f64) -> Result<f64, Trouble> {
        let least = warm_up_of_pass(self.campaign);
        let ops = (rate * least) as u64;
        if least > 0.0 {
            // If no operation is due in that time, one runs at once.
            slices::run(
                &mut record.workers,
                Extent::untimed(ops.max(1)),
                (ops > 0).then_some(Pace { rate, each: ops }),
            )?;
        }
        Ok(1.0 / rate)
    }

    /// Returns n, so that timing one in n doorbells of `ns` nanoseconds each keeps to [`CLOCK_SHARE`].
    pub(super) fn sampling(&self, ns: f64) -> u64 {
        ((2.0 * self.clock_ns / (CLOCK_SHARE * ns.max(1.0))).ceil() as u64).max(1)
    }
}

/// Returns the warm-up of a cell in each pass, in seconds.
pub(super) fn warm_up_of_pass(campaign: &Campaign) -> f64 {
    let all = campaign.warm_up;
    (all / f64::from(passes(campaign))).max(WARM_LEAST.min(all))
}

/// Runs a short slice in which every operation is compared before its buffer is used again. In timed slices
/// only the last one of each buffer can be compared.
fn check_some(record: &mut Record) -> Result<(), Trouble> {
    let ops = (COMPARE_MUCH as u64 / record.cell.size.max(1)).clamp(1, COMPARE_OPS as u64);
    let extent = Extent { compare: 0, each: true, ..Extent::untimed(ops) };
    let sliced = slices::run(&mut record.workers, extent, None)?;
    record.count_verified(&sliced.slices);
    Ok(())
}

/// Returns the operations of a simulated device in a slice: fewer for long ones, whose simulation takes this
/// machine long.
pub(super) fn few(size: u64) -> u64 {
    const OPS: u64 = 128;
    const BYTES: u64 = 64 << 20;
    (BYTES / size.max(1)).clamp(OPS / 4, OPS)
}

/// Returns true if the buffers of a cell belong in a cache that cores share.
pub(super) fn is_shared(cell: &Cell) -> bool {
    let bytes = 2 * u64::from(cell.depth) * u64::from(cell.queues) * cell.size;
    cell.footprint == Footprint::Hot && bytes > OWN_CACHE
}

/// Returns the operations of a slice that run before its clock starts. `per_op` is in seconds.
pub(super) fn warm(cell: &Cell, ops: u64, per_op: f64, buffers: u64) -> u64 {
    let part = (ops as f64 * WARM_SHARE).min(WARM_LONGEST / per_op.max(1e-9)) as u64;
    let small = 2 * buffers * cell.size <= WARM_BYTES;
    if cell.footprint == Footprint::Hot && small { part.max(buffers) } else { part.max(1) }
}

/// Measures the cost of one reading of the clock, in nanoseconds.
pub(super) fn clock_cost() -> f64 {
    let once = || {
        let begun = Instant::now();
        for _ in 0..100 {
            std::hint::black_box(begun.elapsed().as_nanos() as u64);
        }
        begun.elapsed().as_nanos() as f64 / 100.0
    };
    // The least counts: other load can only make it longer.
    (0..20).map(|_| once()).fold(f64::INFINITY, f64::min)
}
