//! [`Record`]: the measurements of one cell so far.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::core_distance::CoreDistance;
use crate::drive::{Extent, Slice, Trouble, Worker, histogram};
use crate::interrupt;
use crate::pairs::{Pair, Slot, keep};
use crate::plan::Cell;
use crate::results::{Latency, Measured, Moment, Status};
use crate::stats::{Figures, median};

/// Slices that a simulated device runs. Later ones repeat the last, because they hardly differ.
const MODEL_SLICES: usize = 3;

/// Measurements of one cell so far.
pub(crate) struct Record {
    pub(crate) cell: Cell,
    pub(crate) model: bool,
    /// True if its time is a simulated device's own.
    pub(crate) virtual_clock: bool,
    /// Its open queues. They stay open between visits only for engines that learn.
    pub(crate) workers: Vec<Worker>,
    /// Value of `Engines::reopened` when the queues were opened.
    pub(crate) reopened: u32,
    pub(crate) extent: Extent,
    /// Duration of a slice.
    pub(crate) slice: Duration,
    /// Repetitions to make.
    pub(crate) wanted: u32,
    pub(crate) trouble: Option<Trouble>,
    /// All repetitions so far.
    pairs: Vec<Pair>,
    /// The number of them that were made in earlier visits.
    before: usize,
    /// Visits with at least one repetition.
    visits: u32,
    pub(crate) latency: Histogram<u64>,
    /// The time series, if one is recorded.
    pub(crate) series: Vec<Moment>,
    ops: u64,
    polls: u64,
    doorbells: u64,
    verified: u64,
    /// The user stopped the cell in the middle of a repetition.
    pub(crate) cut: bool,
    /// Repetitions that were reported to the observer.
    pub(crate) shown: u64,
    /// The observer was told that no more repetitions follow.
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

    /// Adds the verified operations of slices whose time does not count.
    pub(crate) fn count_verified(&mut self, slices: &[Slice]) {
        self.verified += slices.iter().map(|s| s.verified).sum::<u64>();
    }

    /// Adds the counts of slices.
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

    /// Judges the helping cores of repetitions again, from number `from` on, by all distances measured so
    /// far.
    pub(crate) fn judge(&mut self, from: usize, distance: &CoreDistance) {
        for pair in &mut self.pairs[from..] {
            pair.moved = pair.slot.beside.is_some_and(|seen| distance.is_unusual(seen));
        }
    }

    /// Returns the repetitions of this visit.
    pub(crate) fn visited(&self) -> usize {
        self.pairs.len() - self.before
    }

    /// Returns true if a helping core took part in most repetitions.
    pub(crate) fn in_company(&self) -> bool {
        2 * self.pairs.iter().filter(|p| p.slot.beside.is_some()).count() > self.pairs.len()
    }

    /// Returns true if the helping core was not at its usual distance in the last repetition.
    pub(crate) fn moved(&self) -> bool {
        self.pairs.last().is_some_and(|p| p.moved)
    }

    /// Returns the repetitions that count.
    fn kept(&self) -> Vec<Pair> {
        // The baseline keeps all undisturbed ones.
        let most = if self.cell.is_baseline() { self.clean() } else { 0 };
        keep(&self.pairs, most.max(self.wanted as usize))
    }

    /// Returns the number of undisturbed repetitions.
    pub(crate) fn clean(&self) -> usize {
        self.pairs.iter().filter(|p| p.is_clean()).count()
    }

    /// Returns the slice of a simulated device that stands for all later ones, once it has run
    /// [`MODEL_SLICES`].
    pub(crate) fn again(&self) -> Option<Slot> {
        self.pairs.get(MODEL_SLICES - 1).filter(|_| self.virtual_clock).map(|p| p.slot)
    }

    /// Ends a visit. With `stay` the queues stay open for the next one, unless the cell has failed.
    pub(crate) fn end_visit(&mut self, stay: bool) {
        self.visits += u32::from(self.visited() > 0);
        self.before = self.pairs.len();
        for worker in &mut self.workers {
            // A histogram without bounds takes every value.
            let _ = self.latency.add(worker.latency());
            worker.forget();
        }
        if !stay || self.trouble.is_some() {
            self.workers.clear();
        }
    }

    /// Returns true if all repetitions were made.
    pub(crate) fn is_complete(&self) -> bool {
        // The baseline has as many slices as there are engines beside it, some of which may fail.
        let all =
            self.pairs.len() >= self.wanted as usize || (self.cell.is_baseline() && !interrupt::stopped());
        !self.pairs.is_empty() && all && !self.cut
    }

    /// Returns the result of the cell.
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
        // Figures of wrong copies are dropped.
        let pairs: &[Pair] = if status == Status::Wrong { &[] } else { &kept };
        // Repeated slices of a simulated device are no samples.
        let run = if self.virtual_clock { MODEL_SLICES } else { usize::MAX };
        // Nothing disturbs a simulated device, so its samples are the first slices that ran. The kept pairs
        // are chosen for memcpy's sake.
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

/// Returns the number of visits that the pairs come from.
fn distinct_visits(pairs: &[Pair]) -> u32 {
    pairs.chunk_by(|a, b| a.visit == b.visit).count() as u32
}
