//! Cells that run without a break: soak tests and time series.

use std::time::Instant;

use hdrhistogram::Histogram;

use super::Observer;
use super::Runner;
use crate::drive::{Extent, Pace, Worker, histogram};
use crate::interrupt;
use crate::pairs::Pair;
use crate::plan::Cell;
use crate::record::Record;
use crate::results::{Measured, Moment};

/// Default interval of a soak test's time series, in seconds.
const EVERY: f64 = 1.0;

impl Runner<'_> {
    /// Runs each cell once without a break. Returns the results, and true if the user stopped the run.
    pub(crate) fn continuous(&mut self, observer: &mut dyn Observer) -> (Vec<Measured>, bool) {
        let every = self.campaign.series.unwrap_or(EVERY);
        let lasts = self.campaign.duration.unwrap_or(self.campaign.seconds);
        let groups = self.engines.groups.clone();
        let cells: Vec<&Cell> = groups.iter().flat_map(|g| &g.cells).collect();
        let intervals = (lasts / every).ceil().max(1.0);
        observer.begin((intervals * cells.len() as f64) as u64, lasts * cells.len() as f64);
        let mut all = Vec::new();
        for cell in cells {
            let mut record = Record::new(cell.clone());
            record.wanted = 1;
            self.open(&mut record);
            if record.trouble.is_none() && !interrupt::stopped() {
                self.series(&mut record, lasts, every, observer);
            }
            record.wanted = record.series.len() as u32;
            record.cut |= interrupt::stopped();
            record.end_visit(false);
            let measured = record.measured();
            if !interrupt::stopped() || measured.ops_per_second.is_some() {
                observer.cell(&measured);
                all.push(measured);
            }
        }
        (all, interrupt::stopped())
    }

    /// Runs slices of `every` seconds each, on the engine's clock, for `lasts` seconds.
    fn series(&mut self, record: &mut Record, lasts: f64, every: f64, observer: &mut dyn Observer) {
        let (begun, mut at) = (Instant::now(), 0.0);
        let (batch, depth) = (u64::from(record.cell.batch), u64::from(record.cell.depth));
        let whole = |ops: f64| (ops as u64).max(depth).next_multiple_of(batch);
        // Operations of an interval; at first an estimate from the warm-up.
        let mut ops = match self.campaign.rate {
            None if !record.virtual_clock => {
                whole(record.extent.ops as f64 * (every / self.campaign.seconds).min(1.0))
            }
            _ => record.extent.ops,
        };
        while at < lasts && !interrupt::stopped() && begun.elapsed().as_secs_f64() < 2.0 * lasts + 1.0 {
            let pace = self.campaign.rate.map(|rate| ((rate * every) as u64).max(1)).map(|each| {
                ops = each;
                Pace { rate: self.campaign.rate.unwrap_or(1.0), each }
            });
            let extent = Extent { warm: 0, ops, compare: 0, each: false, ..record.extent };
            let slice = Instant::now();
            let Some(sliced) = record.slice(extent, pace) else { return };
            let (done, ns) = sliced.ops_and_ns();
            if done == 0 || ns == 0 {
                return;
            }
            let seconds = ns as f64 * 1e-9;
            at += seconds;
            let latency = taken(record);
            let percentile =
                |part: f64, least: u64| (latency.len() >= least).then(|| latency.value_at_quantile(part));
            let rate = done as f64 / seconds;
            record.series.push(Moment {
                at,
                ops_per_second: rate,
                p50: percentile(0.5, 1),
                p99: percentile(0.99, 100),
                max: percentile(1.0, 1),
                waited: sliced.waited.min(1.0),
            });
            let slot = sliced.slot();
            record.add(Pair { ratio: None, ..Pair::new(0, None, slot, None) });
            observer.repetition(&record.cell, record.model, rate * record.cell.size as f64);
            // Limited by the time of this machine, too: a simulated device's clock may be much faster.
            let faster = (every / seconds).min(every / slice.elapsed().as_secs_f64().max(1e-6)).min(100.0);
            ops = whole(ops as f64 * faster);
        }
    }
}

/// Returns the latencies of the last slice, and adds them to those of the cell.
fn taken(record: &mut Record) -> Histogram<u64> {
    let mut latency = histogram();
    for worker in &mut record.workers {
        // A histogram without bounds takes every value.
        let _ = latency.add(worker.latency());
        Worker::forget(worker);
    }
    let _ = record.latency.add(&latency);
    latency
}
