//! [`Runner`]: measures all groups in several passes. Each sample of an engine lies between two samples of
//! the baseline.

use std::sync::Arc;
use std::time::Instant;

use dma::DmaEngine;

use super::active_cell::ActiveCell;
use super::baseline::Baseline;
use super::calibration::{Calibration, compared_bytes};
use super::drive::{COMPARE_LITTLE, COMPARE_MUCH, CellError};
use super::engines::Engines;
use super::layout::Position;
use super::sample::Sample;
use crate::interrupt;
use crate::plan::{Campaign, Cell, Group};
use crate::results::{Measured, Status};

/// Samples are added until half of the requested number is undisturbed, but a pass takes at most this
/// multiple of its share of samples.
const MAX_ATTEMPTS: usize = 6;

/// An observer, which receives the progress of a run.
pub trait Observer {
    /// The run begins. It takes `samples` samples in about `expected` seconds.
    fn begin(&mut self, samples: u64, expected: f64);
    /// The run will take `samples` samples fewer.
    fn fewer(&mut self, _samples: u64) {}
    /// A note on the campaign, given before the campaign is measured.
    fn note(&mut self, _text: &str) {}
    /// A sample of this cell was taken, with this throughput in bytes a second. With `model`, the
    /// throughput is a simulated device's.
    fn sample(&mut self, cell: &Cell, model: bool, bytes_per_second: f64);
    /// `done` of `of` passes over all cells have ended.
    fn pass(&mut self, _done: u32, _of: u32) {}
    /// A cell is complete.
    fn cell(&mut self, measured: &Measured);
    /// The run has ended.
    fn end(&mut self);
}

/// A run: its engines, the baseline, and the current pass.
pub(crate) struct Runner<'a> {
    campaign: &'a Campaign,
    pub(super) engines: Engines<'a>,
    baseline: Baseline,
    calibration: Calibration<'a>,
    pub(super) position: Position,
    begun: Instant,
}

/// The goal of a cell in one pass. All numbers count the cell's samples since the first pass.
struct Goal {
    /// Number of samples to take, if all are undisturbed.
    due: usize,
    /// Maximum number of samples to take.
    most: usize,
    /// Number of undisturbed samples that is sufficient.
    undisturbed: usize,
}

impl Goal {
    fn of(cell: &ActiveCell, pass: u32, passes: u32) -> Self {
        let all = due_after(cell.wanted, pass + 1, passes);
        let share = all - due_after(cell.wanted, pass, passes);
        Self { due: cell.taken() + share, most: cell.taken() + MAX_ATTEMPTS * share, undisturbed: all / 2 }
    }

    fn is_reached(&self, cell: &ActiveCell) -> bool {
        let again = !cell.virtual_clock && cell.taken() < self.most && cell.undisturbed() < self.undisturbed;
        cell.error.is_some() || (cell.taken() >= self.due && !again)
    }
}

/// The cells of a group that is being measured.
pub(crate) struct ActiveGroup {
    /// The baseline; `None` if the CPU cannot access the bytes.
    pub(super) base: Option<ActiveCell>,
    pub(super) cells: Vec<ActiveCell>,
}

impl ActiveGroup {
    pub(super) fn new(group: &Group) -> Self {
        let base = group.baseline.clone().map(ActiveCell::new);
        Self { base, cells: group.cells.iter().cloned().map(ActiveCell::new).collect() }
    }

    /// Returns the results of all cells that have begun, beginning with the baseline.
    fn measured(&self) -> impl Iterator<Item = Measured> {
        self.base.iter().chain(&self.cells).map(ActiveCell::measured).filter(has_begun)
    }
}

impl<'a> Runner<'a> {
    pub(crate) fn contenders(&self) -> &[super::contender::Contender] {
        self.engines.contenders()
    }

    /// Creates a runner for `engines`. The engine `cpu` allocates the memory of the baseline.
    pub(crate) fn new(campaign: &'a Campaign, engines: Engines<'a>, cpu: Arc<dyn DmaEngine>) -> Self {
        Self {
            campaign,
            engines,
            baseline: Baseline::new(cpu, campaign.nodes()),
            calibration: Calibration::new(campaign),
            position: Position::default(),
            begun: Instant::now(),
        }
    }

    /// Measures every group. Returns the results, and true if the user stopped the run.
    pub(crate) fn run_passes(&mut self, observer: &mut dyn Observer) -> (Vec<Measured>, bool) {
        let cells = self.engines.groups.iter().map(|g| g.cells.len() as u64).sum::<u64>();
        observer.begin(cells * u64::from(self.campaign.samples), self.expected_seconds());
        let mut all: Vec<ActiveGroup> = self.engines.groups.iter().map(ActiveGroup::new).collect();
        let passes = self.campaign.planned_passes();
        for pass in 0..passes {
            let is_over = |limit: f64| self.begun.elapsed().as_secs_f64() >= limit;
            if pass > 0 && self.campaign.limit.is_some_and(is_over) {
                for group in &mut all {
                    for cell in group.cells.iter_mut().filter(|c| c.error.is_none()) {
                        let due = due_after(cell.wanted, pass, passes) as u32;
                        observer.fewer(u64::from(cell.wanted - due));
                        cell.wanted = due;
                    }
                    report_cells(group, observer);
                }
                break;
            }
            self.position.pass = pass;
            for group in &mut all {
                if !interrupt::stopped() {
                    self.run_pass(group, observer);
                }
                if pass + 1 == passes || interrupt::stopped() {
                    report_cells(group, observer);
                }
            }
            if interrupt::stopped() {
                break;
            }
            observer.pass(pass + 1, passes);
        }
        let mut cells: Vec<Measured> = Vec::new();
        for measured in all.iter().flat_map(ActiveGroup::measured) {
            if !cells.iter().any(|c| c.cell == measured.cell) {
                cells.push(measured);
            }
        }
        (cells, interrupt::stopped())
    }

    /// Returns an estimate of the run's duration in seconds. Runs seldom take much longer.
    fn expected_seconds(&self) -> f64 {
        let c = self.campaign;
        if let Some(limit) = c.limit {
            return limit;
        }
        let real = |cell: &&Cell| self.engines.contender(cell).is_none_or(|e| !e.clock.is_virtual());
        let cells = self.engines.groups.iter().flat_map(|g| &g.cells).filter(real).count() as f64;
        let samples = cells * f64::from(c.samples) * c.seconds;
        if c.rate.is_some() {
            return samples + cells * c.warm_up;
        }
        // Each sample is accompanied by a sample of memcpy, and both are warmed up. Preparing and comparing
        // takes about the same time again.
        2.0 * (cells * c.warm_up + 2.0 * samples)
    }

    /// Runs one pass over a group.
    pub(super) fn run_pass(&mut self, group: &mut ActiveGroup, observer: &mut dyn Observer) {
        let ActiveGroup { base, cells } = group;
        if cells.is_empty() {
            return;
        }
        self.position.group_pass = self.position.group_pass.wrapping_add(1);
        if let Some(base) = base.as_mut().filter(|base| base.error.is_none())
            && let Err(error) = self.begin_baseline(base)
            && !interrupt::stopped()
        {
            base.error = Some(error);
        }
        for mut together in split_by_engine(cells.iter_mut().collect()) {
            for cell in &mut together {
                self.open(cell);
                let fewer = self.campaign.samples.saturating_sub(cell.wanted);
                if self.position.pass == 0 && cell.error.is_none() && fewer > 0 {
                    observer.fewer(u64::from(fewer));
                }
            }
            if self.campaign.rate.is_some() {
                self.take_samples_at_rate(base, &mut together, observer);
            } else {
                self.take_samples(base, &mut together, observer);
            }
            let mut failed: Vec<String> = Vec::new();
            for cell in together {
                if let Some(base) = base {
                    base.wanted = base.wanted.max(cell.wanted);
                }
                cell.end_pass(self.engines.keeps_queues_open(&cell.cell, self.position.pass));
                if cell.error.is_some() && !cell.given_up {
                    cell.given_up = true;
                    let all = if cell.wanted == 0 { self.campaign.samples } else { cell.wanted };
                    observer.fewer(u64::from(all).saturating_sub(cell.taken() as u64));
                }
                if matches!(cell.error, Some(CellError::Failed(_))) && !failed.contains(&cell.cell.engine) {
                    failed.push(cell.cell.engine.clone());
                }
            }
            failed.iter().for_each(|name| self.engines.reopen(name));
        }
        if let Some(base) = base {
            base.end_pass(false);
        }
    }

    fn begin_baseline(&mut self, base: &mut ActiveCell) -> Result<(), CellError> {
        let layout = self.engines.baseline_layout(&base.cell, self.position);
        let bytes = self.engines.baseline_needs(&base.cell);
        self.baseline.begin_pass(base, layout, bytes, &self.calibration, self.position.pass > 0)
    }

    /// Opens the queues of a cell and warms it up, unless it has failed before.
    pub(super) fn open(&mut self, cell: &mut ActiveCell) {
        if cell.error.is_some() || cell.repeated().is_some() {
            return;
        }
        let settled = self.engines.open_queues(cell, self.position);
        let warm = settled.and_then(|settled| self.calibration.warm_up(cell, self.position.pass, settled));
        if let Err(error) = warm {
            // Latencies before the failure belong to no sample.
            cell.clear_latency();
            if !interrupt::stopped() {
                cell.error = Some(error);
            }
        }
    }

    fn sample_baseline(&mut self, base: &mut Option<ActiveCell>, compare: usize) -> Option<Sample> {
        self.baseline.sample(base.as_mut()?, self.position.pass, &self.campaign.cpus, compare)
    }

    /// Takes the samples of a pass: cells of different engines in turn, with the baseline between them.
    /// Disturbed samples are repeated, so that other load on the machine does not determine the result.
    fn take_samples(
        &mut self,
        base: &mut Option<ActiveCell>,
        cells: &mut [&mut ActiveCell],
        observer: &mut dyn Observer,
    ) {
        let (pass, passes) = (self.position.pass, self.campaign.planned_passes());
        let goals: Vec<Goal> = cells.iter().map(|cell| Goal::of(cell, pass, passes)).collect();
        let mut before = None;
        for rotation in 0.. {
            let (models, real): (Vec<usize>, Vec<usize>) = (0..cells.len())
                .filter(|&at| !goals[at].is_reached(cells[at]))
                .partition(|&at| cells[at].virtual_clock);
            if models.is_empty() && real.is_empty() {
                return;
            }
            if before.is_none() {
                let compare = if rotation == 0 { compared_bytes(pass) } else { COMPARE_LITTLE };
                before = self.sample_baseline(base, compare);
            }
            // Samples of the baseline and of engines alternate. Simulated devices share the first two
            // samples of the baseline, because their figures do not depend on this machine. The order of
            // engines rotates.
            let turns = real.len().max(1);
            for turn in 0..turns {
                if interrupt::stopped() {
                    return;
                }
                let one = (!real.is_empty()).then(|| real[(turn + rotation) % turns]);
                let models = if turn == 0 { models.as_slice() } else { &[] };
                let samples: Vec<(usize, Sample)> = models
                    .iter()
                    .copied()
                    .chain(one)
                    .filter_map(|at| Some((at, cells[at].take_sample()?)))
                    .collect();
                // After an interrupt, no further sample of memcpy runs, so that the end is not delayed.
                let after =
                    (!interrupt::stopped()).then(|| self.sample_baseline(base, COMPARE_LITTLE)).flatten();
                for (at, sample) in samples {
                    cells[at].add(Sample { pass, ..sample.between(before, after) });
                    if cells[at].taken() <= goals[at].due {
                        report_sample(cells[at], sample, observer);
                    }
                }
                before = after;
            }
        }
    }

    /// Measures each cell at the rate, in one run without breaks, because a delay must also delay all later
    /// operations of the schedule. The baseline runs before and after each cell.
    fn take_samples_at_rate(
        &mut self,
        base: &mut Option<ActiveCell>,
        cells: &mut [&mut ActiveCell],
        observer: &mut dyn Observer,
    ) {
        let cpus = &self.campaign.cpus;
        for cell in cells {
            let mut beside = |compare| self.baseline.samples_beside_rate(base.as_mut()?, cpus, compare);
            let before = beside(COMPARE_MUCH);
            let samples = if cell.error.is_none() && !interrupt::stopped() {
                cell.take_samples_at_rate(self.campaign)
            } else {
                Vec::new()
            };
            let after = beside(COMPARE_LITTLE);
            for sample in samples {
                // At a fixed rate, the ratio to memcpy has no meaning.
                cell.add(Sample { ratio: None, ..sample.between(before, after) });
                report_sample(cell, sample, observer);
            }
        }
    }
}

/// Returns the number of samples that must be taken after `passes` of `of` passes.
fn due_after(samples: u32, passes: u32, of: u32) -> usize {
    (u64::from(samples) * u64::from(passes) / u64::from(of)) as usize
}

/// Returns true unless the run was stopped before any sample of the cell was taken.
pub(super) fn has_begun(measured: &Measured) -> bool {
    measured.status != Status::Interrupted || measured.ops_per_second.is_some()
}

/// Reports the cells with results to the observer.
fn report_cells(group: &ActiveGroup, observer: &mut dyn Observer) {
    group.measured().for_each(|m| observer.cell(&m));
}

/// Reports a sample to the observer.
pub(super) fn report_sample(cell: &ActiveCell, sample: Sample, observer: &mut dyn Observer) {
    observer.sample(&cell.cell, cell.model, sample.rate * cell.cell.size as f64);
}

/// Splits cells into lists with at most one cell of each engine, because a device may have only one queue.
pub(super) fn split_by_engine(cells: Vec<&mut ActiveCell>) -> Vec<Vec<&mut ActiveCell>> {
    let mut lists: Vec<Vec<&mut ActiveCell>> = Vec::new();
    for cell in cells {
        let free = |list: &Vec<&mut ActiveCell>| list.iter().all(|c| c.cell.engine != cell.cell.engine);
        match lists.iter().position(free) {
            Some(at) => lists[at].push(cell),
            None => lists.push(vec![cell]),
        }
    }
    lists
}
