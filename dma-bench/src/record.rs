//! [`Record`]: what has been measured of one cell so far.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::core_distance::CoreDistance;
use crate::drive::{Extent, Slice, Trouble, Worker, histogram};
use crate::interrupt;
use crate::pairs::{Pair, Slot, keep};
use crate::plan::Cell;
use crate::results::{Latency, Measured, Moment, Status};
use crate::stats::{Figures, median};

/// A model hardly differs from one slice to the next.
const MODEL_SLICES: usize = 3;

/// Measurements of one cell so far.
pub(crate) struct Record {
    pub(crate) cell: Cell,
    pub(crate) model: bool,
    /// Its time is a simulated device's own.
    pub(crate) virtual_clock: bool,
    /// Its queues: in a visit, or from the first one on.
    pub(crate) workers: Vec<Worker>,
    /// They are of the engine that was opened anew so many times.
    pub(crate) reopened: u32,
    pub(crate) extent: Extent,
    /// Duration of a slice.
    pub(crate) slice: Duration,
    /// The number of repetitions there are to be.
    pub(crate) wanted: u32,
    pub(crate) trouble: Option<Trouble>,
    /// All repetitions so far,
    pairs: Vec<Pair>,
    /// of which so many were of visits before.
    before: usize,
    /// Visits that had repetitions.
    visits: u32,
    pub(crate) latency: Histogram<u64>,
    /// The time series, if one was asked for.
    pub(crate) series: Vec<Moment>,
    ops: u64,
    polls: u64,
    doorbells: u64,
    verified: u64,
    /// The user stopped it in the middle of a repetition.
    pub(crate) cut: bool,
    /// Repetitions that were shown to whoever watches.
    pub(crate) shown: u64,
    /// The observer knows that no more will come.
    pub(crate) given_up: bool,
}

impl Record {
    pub(crate) fn new(cell: Cell) -> Self {
        Self {
            cell,
            model: false,
            virtual_clock: false,
            workers: Vec::new(),
            reopened: 0,
            extent: Extent { warm: 0, ops: 1, sample_every: 1, compare: 0, each: false },
            slice: Duration::ZERO,
            wanted: 0,
            trouble: None,
            pairs: Vec::new(),
            before: 0,
            visits: 0,
            latency: histogram(),
            series: Vec::new(),
            ops: 0,
            polls: 0,
            doorbells: 0,
            verified: 0,
            cut: false,
            shown: 0,
            given_up: false,
        }
    }

    /// Adds what was compared in slices that are not the cell's own.
    pub(crate) fn count_verified(&mut self, slices: &[Slice]) {
        self.verified += slices.iter().map(|s| s.verified).sum::<u64>();
    }

    /// Adds what slices counted.
    pub(crate) fn count(&mut self, slices: &[Slice]) {
        for slice in slices {
            self.ops += slice.all_ops;
            self.polls += slice.polls;
            self.doorbells += slice.doorbells;
            self.cut |= slice.cut;
        }
        self.count_verified(slices);
    }

    /// Adds a repetition of this visit.
    pub(crate) fn add(&mut self, pair: Pair, distance: &CoreDistance) {
        self.pairs.push(Pair { visit: self.visits, ..pair });
        self.judge(self.pairs.len() - 1, distance);
    }

    /// Judges the repetitions from this one on by what is known of the cores by now.
    pub(crate) fn judge(&mut self, from: usize, distance: &CoreDistance) {
        for pair in &mut self.pairs[from..] {
            pair.moved = pair.slot.beside.is_some_and(|seen| distance.is_unusual(seen));
        }
    }

    /// Repetitions of this visit.
    pub(crate) fn visited(&self) -> usize {
        self.pairs.len() - self.before
    }

    /// Returns whether another core has mostly taken part in it.
    pub(crate) fn in_company(&self) -> bool {
        2 * self.pairs.iter().filter(|p| p.slot.beside.is_some()).count() > self.pairs.len()
    }

    /// Returns whether that was elsewhere than usual the last time.
    pub(crate) fn moved(&self) -> bool {
        self.pairs.last().is_some_and(|p| p.moved)
    }

    /// Those repetitions that count.
    fn kept(&self) -> Vec<Pair> {
        // The baseline keeps all that were not disturbed.
        let most = if self.cell.is_baseline() { self.clean() } else { 0 };
        keep(&self.pairs, most.max(self.wanted as usize))
    }

    /// Repetitions so far that nothing disturbed.
    pub(crate) fn clean(&self) -> usize {
        self.pairs.iter().filter(|p| p.is_clean()).count()
    }

    /// The last slice of a simulated device after the first few: it does the same again.
    pub(crate) fn again(&self) -> Option<Slot> {
        self.pairs.get(MODEL_SLICES - 1).filter(|_| self.virtual_clock).map(|p| p.slot)
    }

    /// Ends a visit. Its queues stay open for the next one if that is allowed and none failed.
    pub(crate) fn end_visit(&mut self, stay: bool) {
        self.visits += u32::from(self.visited() > 0);
        self.before = self.pairs.len();
        for worker in &mut self.workers {
            // Without bounds, it fits.
            let _ = self.latency.add(worker.latency());
            worker.forget();
        }
        if !stay || self.trouble.is_some() {
            self.workers.clear();
        }
    }

    /// Returns whether all repetitions are there.
    pub(crate) fn is_complete(&self) -> bool {
        // The baseline is measured as often as there are engines to compare it with, which may fail.
        let all =
            self.pairs.len() >= self.wanted as usize || (self.cell.is_baseline() && !interrupt::stopped());
        !self.pairs.is_empty() && all && !self.cut
    }

    /// Returns its result.
    pub(crate) fn measured(&self) -> Measured {
        let size = self.cell.size as f64;
        let (status, message) = match &self.trouble {
            Some(trouble) => {
                let status = match trouble {
                    Trouble::Unsupported(_) => Status::Unsupported,
                    Trouble::Verification { .. } | Trouble::Answer { .. } => Status::Wrong,
                    _ => Status::Failed,
                };
                (status, Some(trouble.to_string()))
            }
            None if !self.is_complete() => (Status::Interrupted, None),
            None => (Status::Ok, None),
        };
        let kept = self.kept();
        // Figures of copies that went wrong are not worth having.
        let pairs: &[Pair] = if status == Status::Wrong { &[] } else { &kept };
        // Stand-ins for slices that a simulated device would do again are no samples.
        let run = if self.virtual_clock { MODEL_SLICES } else { usize::MAX };
        // Nothing disturbs it: whichever are kept for the sake of memcpy's, it is the first that were run.
        let ran: &[Pair] = if self.virtual_clock && status != Status::Wrong { &self.pairs } else { pairs };
        let ops = Figures::of(ran.iter().take(run).map(|p| p.slot.rate).collect());
        let cpu = Figures::of(pairs.iter().map(|p| p.slot.cpu_ns).collect()).filter(|_| !self.virtual_clock);
        let histogram = &self.latency;
        let latency = ops.as_ref().and_then(|_| Latency::of(histogram));
        let part = |of: fn(&Pair) -> bool| {
            self.pairs.iter().filter(|p| of(p)).count() as f64 / self.pairs.len().max(1) as f64
        };
        let per_op = |n: u64| (self.ops > 0 && !self.cell.is_baseline()).then(|| n as f64 / self.ops as f64);
        Measured {
            cell: self.cell.clone(),
            model: self.model,
            status,
            message,
            bytes_per_second: ops.as_ref().map(|f| f.times(size)),
            ratio: Figures::of(pairs.iter().filter_map(|p| p.ratio).collect()),
            latency,
            cpu_s_per_gb: cpu.as_ref().map(|f| f.times(1.0 / size)),
            cpu_ns_per_op: cpu,
            doorbells_per_op: per_op(self.doorbells),
            polls_per_op: per_op(self.polls),
            left_out: (self.pairs.len() - kept.len()) as u64,
            waited: median(&pairs.iter().map(|p| p.waited.min(1.0)).collect::<Vec<_>>()).unwrap_or(0.0),
            moved: part(|p| p.moved),
            ops: self.ops,
            verified: self.verified,
            visits: distinct_visits(&kept),
            series: self.series.clone(),
            ops_per_second: ops,
        }
    }
}

/// The number of visits the pairs are of.
fn distinct_visits(pairs: &[Pair]) -> u32 {
    pairs.chunk_by(|a, b| a.visit == b.visit).count() as u32
}
