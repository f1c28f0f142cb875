//! [`ActiveCell`]: a cell that is being measured, with its open queues and its samples so far.

use apps_shared::hold;
use hdrhistogram::Histogram;

use super::drive::{COMPARE_LITTLE, CellError, Counts, Extent, Rate, Worker, histogram};
use super::queues::{self, QueuesRun};
use super::sample::{Sample, keep};
use crate::interrupt;
use crate::plan::{Campaign, Cell};
use crate::results::{Latency, Measured, Moment, Status};
use crate::verdict::stats::{Figures, median};

/// Reason why a device that takes no time is not measured.
pub(super) const TIMELESS: &str = "the profile `ideal` models no device and takes no time, so it has no speed; name a device, as in \
    sim:profile=dsa, or its times, as in sim:latency=1us,bandwidth=10GiB";

/// Number of samples that a simulated device runs. Later samples copy the last one, because they would
/// hardly differ.
const MODEL_SAMPLES: usize = 3;

/// The state of a cell that is being measured.
pub(crate) struct ActiveCell {
    pub(crate) cell: Cell,
    pub(crate) model: bool,
    /// True if the cell's time is that of a simulated device's virtual clock.
    pub(crate) virtual_clock: bool,
    /// The cell's open queues. They stay open between passes only for engines that tune themselves.
    pub(crate) workers: Vec<Worker>,
    /// Value of `Engines::reopened` when the queues were opened.
    pub(crate) reopened: u32,
    pub(crate) extent: Extent,
    /// Samples to take, over all passes.
    pub(crate) wanted: u32,
    pub(crate) error: Option<CellError>,
    samples: Vec<Sample>,
    pub(crate) latency: Histogram<u64>,
    pub(crate) series: Vec<Moment>,
    /// Seconds after which the throughput was steady, if the campaign asks for it.
    pub(crate) steady_after: Option<f64>,
    ops: u64,
    polls: u64,
    doorbells: u64,
    verified: u64,
    /// True if the user stopped the cell in the middle of a sample.
    pub(crate) interrupted: bool,
    /// True if the observer has been told that no more samples follow.
    pub(crate) given_up: bool,
}

impl ActiveCell {
    pub(crate) fn new(cell: Cell) -> Self {
        Self {
            cell,
            model: false,
            virtual_clock: false,
            workers: Vec::new(),
            reopened: 0,
            extent: Extent::untimed(1),
            wanted: 0,
            error: None,
            samples: Vec::new(),
            latency: histogram(),
            series: Vec::new(),
            steady_after: None,
            ops: 0,
            polls: 0,
            doorbells: 0,
            verified: 0,
            interrupted: false,
            given_up: false,
        }
    }

    /// Runs all queues for one sample, and counts its operations. Returns `None` if the cell has failed, in
    /// this sample or earlier.
    pub(crate) fn run_queues(&mut self, extent: Extent, rate: Option<Rate>) -> Option<QueuesRun> {
        if self.error.is_some() {
            return None;
        }
        hold::reached("sample", interrupt::stopped);
        match queues::run(&mut self.workers, extent, rate) {
            Ok(run) => {
                self.count(&run.counts);
                Some(run)
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    /// Takes a sample. Returns `None` if the cell has failed or the user stopped the sample at once.
    pub(crate) fn take_sample(&mut self) -> Option<Sample> {
        if self.error.is_none()
            && let Some(sample) = self.repeated()
        {
            return Some(sample);
        }
        let run = self.run_queues(self.extent, None)?;
        self.extent.compare = COMPARE_LITTLE;
        let (ops, ns) = run.ops_and_ns();
        if self.virtual_clock && ns == 0 {
            self.error = Some(CellError::Unsupported(TIMELESS.to_owned()));
            return None;
        }
        if run.is_interrupted() && (ops == 0 || ns == 0) {
            return None;
        }
        let sample = run.sample();
        Some(Sample { run_delay: if self.virtual_clock { 0.0 } else { sample.run_delay }, ..sample })
    }

    /// Takes all samples at the campaign's rate. A run that the user stopped before the end of its first
    /// sample counts as one sample.
    pub(crate) fn take_samples_at_rate(&mut self, campaign: &Campaign) -> Vec<Sample> {
        let Some(ops_per_second) = campaign.rate else { return Vec::new() };
        let ops_per_sample = self.extent.ops;
        let extent = Extent { ops: ops_per_sample * u64::from(self.wanted), ..self.extent };
        let Some(run) = self.run_queues(extent, Some(Rate { ops_per_second, ops_per_sample })) else {
            return Vec::new();
        };
        let (ops, ns) = run.ops_and_ns();
        if run.samples_at_rate.is_empty() && ops > 0 && ns > 0 {
            return vec![run.sample()];
        }
        run.samples_at_rate
    }

    /// Adds the number of verified operations of untimed samples.
    pub(crate) fn count_verified(&mut self, counts: &[Counts]) {
        self.verified += counts.iter().map(|c| c.verified).sum::<u64>();
    }

    pub(crate) fn count(&mut self, counts: &[Counts]) {
        for queue in counts {
            self.ops += queue.all_ops;
            self.polls += queue.polls;
            self.doorbells += queue.doorbells;
            self.interrupted |= queue.interrupted;
        }
        self.count_verified(counts);
    }

    pub(crate) fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Keeps only the last samples, one for each of `latencies`, and replaces the cell's latencies by
    /// these.
    pub(crate) fn keep_last<'a>(&mut self, latencies: impl ExactSizeIterator<Item = &'a Histogram<u64>>) {
        self.samples.drain(..self.samples.len().saturating_sub(latencies.len()));
        self.latency.reset();
        for latency in latencies {
            // This cannot fail, because the histogram has no bounds.
            let _ = self.latency.add(latency);
        }
    }

    /// Returns the number of samples taken.
    pub(crate) fn taken(&self) -> usize {
        self.samples.len()
    }

    /// Returns the number of undisturbed samples.
    pub(crate) fn undisturbed(&self) -> usize {
        self.samples.iter().filter(|s| s.is_undisturbed()).count()
    }

    /// Returns the sample of a simulated device that stands for all later samples, once the device has run
    /// [`MODEL_SAMPLES`].
    pub(crate) fn repeated(&self) -> Option<Sample> {
        let last = self.samples.get(MODEL_SAMPLES - 1).filter(|_| self.virtual_clock)?;
        Some(Sample { run_delay: 0.0, ..*last })
    }

    /// Ends a pass. With `stay`, the queues stay open for the next pass, unless the cell has failed.
    pub(crate) fn end_pass(&mut self, stay: bool) {
        for worker in &mut self.workers {
            // This cannot fail, because the histogram has no bounds.
            let _ = self.latency.add(worker.latency());
            worker.clear_latency();
        }
        if !stay || self.error.is_some() {
            self.workers.clear();
        }
    }

    /// Clears the latencies of open queues.
    pub(crate) fn clear_latency(&mut self) {
        self.workers.iter_mut().for_each(Worker::clear_latency);
    }

    pub(crate) fn is_complete(&self) -> bool {
        // The number of the baseline's samples depends on the number of the engines' samples, and some
        // engines may fail.
        let all =
            self.samples.len() >= self.wanted as usize || (self.cell.is_baseline() && !interrupt::stopped());
        !self.samples.is_empty() && all && !self.interrupted
    }

    fn status(&self) -> Status {
        match &self.error {
            Some(CellError::Unsupported(_)) => Status::Unsupported,
            Some(CellError::WrongBytes { .. } | CellError::WrongResult { .. }) => Status::Wrong,
            Some(CellError::Failed(_)) => Status::Failed,
            None if self.is_complete() => Status::Ok,
            None => Status::Interrupted,
        }
    }

    /// Returns the results of the cell.
    pub(crate) fn measured(&self) -> Measured {
        let (size, status) = (self.cell.size as f64, self.status());
        let wanted = if self.cell.is_baseline() { usize::MAX } else { self.wanted as usize };
        let kept = keep(&self.samples, wanted);
        let undisturbed: Vec<&Sample> = self.samples.iter().filter(|s| s.is_undisturbed()).collect();
        // A cell with wrong copies has no figures.
        let samples: &[Sample] = if status == Status::Wrong { &[] } else { &kept };
        // A simulated device cannot be disturbed. Only its first samples count, because the later ones are
        // copies.
        let rates: Vec<f64> = match self.virtual_clock && status != Status::Wrong {
            true => self.samples.iter().take(MODEL_SAMPLES).map(|s| s.rate).collect(),
            false => samples.iter().map(|s| s.rate).collect(),
        };
        let ops = Figures::of(rates);
        let cpu = Figures::of(samples.iter().map(|s| s.cpu_ns).collect()).filter(|_| !self.virtual_clock);
        let per_op = |n: u64| (self.ops > 0 && !self.cell.is_baseline()).then(|| n as f64 / self.ops as f64);
        let run_delays: Vec<f64> = samples.iter().map(|s| s.run_delay.min(1.0)).collect();
        Measured {
            cell: self.cell.clone(),
            model: self.model,
            status,
            message: self.error.as_ref().map(CellError::to_string),
            bytes_per_second: ops.as_ref().map(|f| f.times(size)),
            ratio: Figures::of(samples.iter().filter_map(|s| s.ratio).collect()),
            latency: ops.as_ref().and_then(|_| Latency::of(&self.latency)),
            cpu_s_per_gb: cpu.as_ref().map(|f| f.times(1.0 / size)),
            cpu_ns_per_op: cpu,
            doorbells_per_op: per_op(self.doorbells),
            polls_per_op: per_op(self.polls),
            left_out: (self.samples.len() - kept.len()) as u64,
            run_delay: median(&run_delays).unwrap_or(0.0),
            ops: self.ops,
            verified: self.verified,
            passes: undisturbed.chunk_by(|a, b| a.pass == b.pass).count() as u32,
            series: self.series.clone(),
            steady_after: self.steady_after,
            ops_per_second: ops,
        }
    }
}
