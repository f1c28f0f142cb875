//! [`Record`]: the measurements of one cell so far.

use hdrhistogram::Histogram;

use crate::drive::{Extent, Pace, Slice, Trouble, Worker, histogram};
use crate::interrupt;
use crate::pairs::{Pair, Slot, keep};
use crate::plan::Cell;
use crate::results::{Latency, Measured, Moment, Status};
use crate::slices::{self, Sliced};
use crate::stats::{Figures, median};

/// Slices that a simulated device runs. Later ones repeat the last, because they hardly differ.
const MODEL_SLICES: usize = 3;

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
    pub(crate) wanted: u32,
    pub(crate) trouble: Option<Trouble>,
    pairs: Vec<Pair>,
    pub(crate) latency: Histogram<u64>,
    pub(crate) series: Vec<Moment>,
    ops: u64,
    polls: u64,
    doorbells: u64,
    verified: u64,
    /// The user stopped the cell in the middle of a repetition.
    pub(crate) cut: bool,
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
            wanted: 0,
            trouble: None,
            pairs: Vec::new(),
            latency: histogram(),
            series: Vec::new(),
            ops: 0,
            polls: 0,
            doorbells: 0,
            verified: 0,
            cut: false,
            given_up: false,
        }
    }

    /// Runs a slice, and counts its operations. Returns `None` if the cell has failed, now or before.
    pub(crate) fn slice(&mut self, extent: Extent, pace: Option<Pace>) -> Option<Sliced> {
        if self.trouble.is_some() {
            return None;
        }
        match slices::run(&mut self.workers, extent, pace) {
            Ok(sliced) => {
                self.count(&sliced.slices);
                Some(sliced)
            }
            Err(trouble) => {
                self.trouble = Some(trouble);
                None
            }
        }
    }

    /// Adds the verified operations of slices whose time does not count.
    pub(crate) fn count_verified(&mut self, slices: &[Slice]) {
        self.verified += slices.iter().map(|s| s.verified).sum::<u64>();
    }

    pub(crate) fn count(&mut self, slices: &[Slice]) {
        for slice in slices {
            self.ops += slice.all_ops;
            self.polls += slice.polls;
            self.doorbells += slice.doorbells;
            self.cut |= slice.cut;
        }
        self.count_verified(slices);
    }

    pub(crate) fn add(&mut self, pair: Pair) {
        self.pairs.push(pair);
    }

    pub(crate) fn made(&self) -> usize {
        self.pairs.len()
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
        for worker in &mut self.workers {
            // A histogram without bounds takes every value.
            let _ = self.latency.add(worker.latency());
            worker.forget();
        }
        if !stay || self.trouble.is_some() {
            self.workers.clear();
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        // The baseline has as many slices as there are engines beside it, some of which may fail.
        let all =
            self.pairs.len() >= self.wanted as usize || (self.cell.is_baseline() && !interrupt::stopped());
        !self.pairs.is_empty() && all && !self.cut
    }

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
        let kept = keep(&self.pairs, if self.cell.is_baseline() { usize::MAX } else { self.wanted as usize });
        let undisturbed: Vec<&Pair> = self.pairs.iter().filter(|p| p.is_clean()).collect();
        // Figures of wrong copies are dropped.
        let pairs: &[Pair] = if status == Status::Wrong { &[] } else { &kept };
        // Repeated slices of a simulated device are no samples.
        let run = if self.virtual_clock { MODEL_SLICES } else { usize::MAX };
        // Nothing disturbs a simulated device, so its samples are the first slices that ran.
        let ran: &[Pair] = if self.virtual_clock && status != Status::Wrong { &self.pairs } else { pairs };
        let ops = Figures::of(ran.iter().take(run).map(|p| p.slot.rate).collect());
        let cpu = Figures::of(pairs.iter().map(|p| p.slot.cpu_ns).collect()).filter(|_| !self.virtual_clock);
        let histogram = &self.latency;
        let latency = ops.as_ref().and_then(|_| Latency::of(histogram));
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
            ops: self.ops,
            verified: self.verified,
            visits: undisturbed.chunk_by(|a, b| a.pass == b.pass).count() as u32,
            series: self.series.clone(),
            ops_per_second: ops,
        }
    }
}
