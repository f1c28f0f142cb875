//! The passes over all cells, and their end.

use super::Observer;
use super::Runner;
use crate::interrupt;
use crate::plan::{Campaign, Cell};
use crate::record::Record;
use crate::results::{Measured, Status};

impl Runner<'_> {
    /// Measures every group. Returns the results, and true if the user stopped the run.
    pub(crate) fn all(&mut self, observer: &mut dyn Observer) -> (Vec<Measured>, bool) {
        let reps = u64::from(self.campaign.repetitions);
        let cells = self.engines.groups.iter().map(|g| g.cells.len() as u64).sum::<u64>();
        observer.begin(cells * reps, self.expected());
        let mut all: Vec<Vec<Record>> = self
            .engines
            .groups
            .iter()
            .map(|g| std::iter::once(&g.baseline).chain(&g.cells).map(|c| Record::new(c.clone())).collect())
            .collect();
        let passes = passes(self.campaign);
        for pass in 0..passes {
            let over = |most: f64| self.begun.elapsed().as_secs_f64() >= most;
            if pass > 0 && self.campaign.limit.is_some_and(over) {
                for records in &mut all {
                    for record in records.iter_mut().skip(1).filter(|r| r.trouble.is_none()) {
                        let made = upto(record.wanted, pass, passes) as u32;
                        observer.fewer(u64::from(record.wanted - made));
                        record.wanted = made;
                    }
                    tell(records, observer);
                }
                break;
            }
            self.pass = pass;
            all.iter_mut().for_each(|records| self.visit(records, observer));
            if interrupt::stopped() {
                break;
            }
            observer.pass(pass + 1, passes);
        }
        let mut cells: Vec<Measured> = Vec::new();
        for record in all.iter().flatten() {
            let measured = record.measured();
            let nothing = measured.status == Status::Interrupted && measured.ops_per_second.is_none();
            if !nothing && !cells.iter().any(|c| c.cell == measured.cell) {
                cells.push(measured);
            }
        }
        (cells, interrupt::stopped())
    }

    /// Returns an estimate of the run's duration in seconds. Runs are seldom longer by much.
    fn expected(&self) -> f64 {
        let c = self.campaign;
        if let Some(limit) = c.limit {
            return limit;
        }
        let real = |cell: &Cell| self.engines.contender(cell).is_none_or(|e| !e.clock.is_virtual());
        let cells =
            self.engines.groups.iter().flat_map(|g| &g.cells).filter(|cell| real(cell)).count() as f64;
        if c.rate.is_some() {
            return cells * (f64::from(c.repetitions) * c.seconds + c.warm_up);
        }
        // A slice of memcpy goes with each slice. Both are warmed up. Preparing and comparing takes about as
        // long again.
        2.0 * (cells * c.warm_up + cells * f64::from(c.repetitions) * 2.0 * c.seconds)
    }
}

/// Returns the number of passes over all cells. Runs at a rate have one, because a delay moves all later
/// operations of the schedule.
pub(crate) fn passes(campaign: &Campaign) -> u32 {
    if campaign.rate.is_some() { 1 } else { campaign.passes.min(campaign.repetitions) }
}

/// Returns the repetitions due after `passes` of `of` passes.
pub(super) fn upto(repetitions: u32, passes: u32, of: u32) -> usize {
    (u64::from(repetitions) * u64::from(passes) / u64::from(of)) as usize
}

/// Reports the cells with results to the observer.
pub(super) fn tell(records: &[Record], observer: &mut dyn Observer) {
    let worth = |m: &Measured| m.status != Status::Interrupted || m.ops_per_second.is_some();
    records.iter().map(Record::measured).filter(worth).for_each(|m| observer.cell(&m));
}
