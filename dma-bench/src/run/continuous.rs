//! Cells that run without a break: soak tests and time series.

use std::collections::VecDeque;
use std::time::Instant;

use hdrhistogram::Histogram;

use super::active_cell::ActiveCell;
use super::drive::{Extent, Rate, histogram};
use super::runner::{Observer, Runner, report_sample};
use crate::interrupt;
use crate::plan::{Campaign, Cell};
use crate::results::{Measured, Moment};
use crate::verdict::stats::median;

/// Default interval of a soak test's time series, in seconds.
const DEFAULT_INTERVAL: f64 = 1.0;

/// Number of consecutive groups of intervals that must agree in a steady state.
const STEADY_GROUPS: usize = 4;
/// Number of intervals in a group. The median represents the group, so single slow intervals do not
/// count.
const STEADY_GROUP: usize = 5;

/// Runs each cell once without a break. Returns the results, and true if the user stopped the run.
pub(crate) fn run(
    runner: &mut Runner<'_>,
    campaign: &Campaign,
    observer: &mut dyn Observer,
) -> (Vec<Measured>, bool) {
    let interval = campaign.series.unwrap_or(DEFAULT_INTERVAL);
    let duration = campaign.duration.unwrap_or(campaign.seconds);
    let cells: Vec<Cell> = runner.engines.groups.iter().flat_map(|g| g.cells.clone()).collect();
    let intervals = (duration / interval).ceil().max(1.0);
    observer.begin((intervals * cells.len() as f64) as u64, duration * cells.len() as f64);
    let mut all = Vec::new();
    for cell in cells {
        let mut cell = ActiveCell::new(cell);
        cell.wanted = 1;
        runner.open(&mut cell);
        if cell.error.is_none() && !interrupt::stopped() {
            take_series(&mut cell, campaign, duration, interval, observer);
            observer.fewer((intervals as u64).saturating_sub(cell.series.len() as u64));
        }
        cell.wanted = cell.taken() as u32;
        cell.interrupted |= interrupt::stopped();
        cell.end_pass(false);
        let measured = cell.measured();
        if !interrupt::stopped() || measured.ops_per_second.is_some() {
            observer.cell(&measured);
            all.push(measured);
        }
    }
    (all, interrupt::stopped())
}

/// Takes samples of `interval` seconds each, on the engine's clock, for `duration` seconds.
fn take_series(
    cell: &mut ActiveCell,
    campaign: &Campaign,
    duration: f64,
    interval: f64,
    observer: &mut dyn Observer,
) {
    let (begun, mut at) = (Instant::now(), 0.0);
    let mut recent = VecDeque::new();
    let (batch, depth) = (u64::from(cell.cell.batch), u64::from(cell.cell.depth));
    let whole = |ops: f64| (ops as u64).max(depth).next_multiple_of(batch);
    let rate = campaign.rate.map(|ops_per_second| Rate {
        ops_per_second,
        ops_per_sample: ((ops_per_second * interval) as u64).max(1),
    });
    // Number of operations in an interval. The first value is an estimate from the warm-up.
    let mut ops = match rate {
        Some(rate) => rate.ops_per_sample,
        None if cell.virtual_clock => cell.extent.ops,
        None => whole(cell.extent.ops as f64 * (interval / campaign.seconds).min(1.0)),
    };
    while at < duration && !interrupt::stopped() && begun.elapsed().as_secs_f64() < 2.0 * duration + 1.0 {
        let extent = Extent { warm: 0, ops, compare: 0, compare_each: false, ..cell.extent };
        let sample_begun = Instant::now();
        let Some(run) = cell.run_queues(extent, rate) else { return };
        let (done, ns) = run.ops_and_ns();
        if done == 0 || ns == 0 {
            return;
        }
        let seconds = ns as f64 * 1e-9;
        at += seconds;
        let latency = take_latency(cell);
        if campaign.steady.is_some() {
            recent.push_back(latency.clone());
            recent.drain(..recent.len().saturating_sub(STEADY_GROUPS * STEADY_GROUP));
        }
        let percentile =
            |part: f64, least: u64| (latency.len() >= least).then(|| latency.value_at_quantile(part));
        let sample = run.sample();
        cell.series.push(Moment {
            at,
            ops_per_second: done as f64 / seconds,
            p50: percentile(0.5, 1),
            p99: percentile(0.99, 100),
            max: percentile(1.0, 1),
            run_delay: run.run_delay.min(1.0),
        });
        cell.add(sample);
        report_sample(cell, sample, observer);
        if campaign.steady.is_some_and(|within| is_steady(&cell.series, within)) {
            cell.keep_last(recent.iter());
            cell.steady_after = Some(at);
            return;
        }
        if rate.is_none() {
            // The real time of an interval is limited as well, because simulating it may take much
            // longer than the simulated time.
            let here = interval / sample_begun.elapsed().as_secs_f64().max(1e-6);
            ops = whole(ops as f64 * (interval / seconds).min(here).min(100.0));
        }
    }
}

/// Returns true if the medians of the last groups of intervals are within this fraction of their mean.
fn is_steady(series: &[Moment], within: f64) -> bool {
    let Some(from) = series.len().checked_sub(STEADY_GROUPS * STEADY_GROUP) else { return false };
    let rates: Vec<f64> = series[from..].iter().map(|moment| moment.ops_per_second).collect();
    let medians: Vec<f64> = rates.chunks(STEADY_GROUP).filter_map(median).collect();
    let mean = medians.iter().sum::<f64>() / medians.len() as f64;
    medians.iter().all(|median| (median - mean).abs() <= within * mean)
}

/// Returns the latencies of the last sample, and adds them to those of the cell.
fn take_latency(cell: &mut ActiveCell) -> Histogram<u64> {
    let mut latency = histogram();
    for worker in &cell.workers {
        // This cannot fail, because the histogram has no bounds.
        let _ = latency.add(worker.latency());
    }
    cell.clear_latency();
    let _ = cell.latency.add(&latency);
    latency
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rates: impl IntoIterator<Item = f64>) -> Vec<Moment> {
        let moment = |ops_per_second| Moment {
            at: 0.0,
            ops_per_second,
            p50: None,
            p99: None,
            max: None,
            run_delay: 0.0,
        };
        rates.into_iter().map(moment).collect()
    }

    #[test]
    fn a_throughput_is_steady_if_it_neither_drifts_nor_jumps() {
        let flat = |n: usize| (0..n).map(|i| 100.0 + (i % 3) as f64);
        assert!(!is_steady(&series(flat(19)), 0.02), "too few intervals");
        assert!(is_steady(&series(flat(20)), 0.02));
        // With a drift of 0.5 % in each interval, the first and the last group differ by 7.5 %.
        assert!(!is_steady(&series((0..40).map(|i| 100.0 * 1.005_f64.powi(i))), 0.02));
        assert!(!is_steady(&series(flat(15).chain([120.0; 5])), 0.02), "a jump");
        let slow_once = flat(20).enumerate().map(|(i, rate)| if i == 7 { 1.0 } else { rate });
        assert!(is_steady(&series(slow_once), 0.02), "a single slow interval");
        assert!(
            is_steady(&series([1.0; 30].into_iter().chain(flat(20))), 0.02),
            "earlier intervals do not count"
        );
    }
}
