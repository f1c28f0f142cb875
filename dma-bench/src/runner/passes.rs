//! The passes over all cells: in which order these are visited, which of them wait for another core, rest, or are left out, and when it is enough.

use std::collections::VecDeque;

use super::Runner;
use crate::interrupt;
use crate::plan::Campaign;
use crate::record::Record;
use crate::results::{Measured, Status};
use crate::run::Observer;

/// A cell that is known well enough takes part in one pass of so many.
const REST: u32 = 6;
/// For copies of fewer bytes, half as well is well enough: what they take differs more from one visit to the next, and decides less.
const SHORT: u64 = 4096;

impl Runner<'_> {
    /// Measures every group; what came of it, and whether the user stopped it.
    pub(crate) fn all(&mut self, observer: &mut dyn Observer) -> (Vec<Measured>, bool) {
        let reps = u64::from(self.campaign.repetitions);
        let cells = self.engines.groups.iter().map(|g| g.cells.len() as u64).sum::<u64>();
        observer.begin(cells * reps, self.expected(cells));
        let mut all: Vec<Vec<Record>> = self
            .engines
            .groups
            .iter()
            .map(|g| std::iter::once(&g.baseline).chain(&g.cells).map(|c| Record::new(c.clone())).collect())
            .collect();
        let passes = passes(self.campaign);
        let mut order: VecDeque<usize> = (0..all.len()).collect();
        for pass in 0..passes {
            let over = |most: f64| self.begun.elapsed().as_secs_f64() >= most;
            if pass > 0 && self.campaign.limit.is_some_and(over) {
                for records in &mut all {
                    records.iter_mut().for_each(|record| record.judge(0, &self.cores.nearness));
                    for record in records.iter_mut().skip(1) {
                        let fewer = record.wanted as usize - upto(record.wanted, pass, passes);
                        let_off(record, fewer, observer);
                    }
                    tell(records, observer);
                }
                break;
            }
            self.pass = pass;
            self.one_pass(&mut all, &mut order, observer);
            if interrupt::stopped() {
                break;
            }
            observer.pass(pass + 1, passes);
        }
        all.iter_mut().flatten().for_each(|record| record.judge(0, &self.cores.nearness));
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

    /// How many seconds so many cells take, if that is known: at most, or under a rate.
    fn expected(&self, cells: u64) -> Option<f64> {
        let schedule = f64::from(self.campaign.repetitions) * self.campaign.seconds * cells as f64;
        self.campaign.limit.or(self.campaign.rate.map(|_| schedule))
    }

    /// One pass over all groups, in this order. Those that another core takes part in wait while that is elsewhere than usual; if it still is in the end, what
    /// it takes part in is left out, but not in two passes running, and is the first of the next pass.
    pub(super) fn one_pass(
        &mut self,
        all: &mut [Vec<Record>],
        order: &mut VecDeque<usize>,
        observer: &mut dyn Observer,
    ) {
        let mut waiting = VecDeque::new();
        for at in order.clone() {
            if self.waits(&all[at]) {
                waiting.push_back(at);
                continue;
            }
            self.visit(&mut all[at], observer);
            while let Some(at) = waiting.pop_front() {
                if self.waits(&all[at]) {
                    waiting.push_front(at);
                    break;
                }
                self.visit(&mut all[at], observer);
            }
        }
        for at in waiting.into_iter().rev() {
            for record in all[at].iter_mut().filter(|record| self.to_wait(record)) {
                record.skipped = Some(self.pass);
            }
            self.visit(&mut all[at], observer);
            order.retain(|other| *other != at);
            order.push_front(at);
        }
    }

    /// Whether cells that share a baseline are not to be measured now.
    fn waits(&mut self, records: &[Record]) -> bool {
        records.iter().any(|record| self.to_wait(record)) && !interrupt::stopped() && self.cores.elsewhere()
    }

    /// Whether a cell is to wait for another core to be where it usually is.
    fn to_wait(&self, record: &Record) -> bool {
        // Where so many repetitions are asked for, and not as many as it takes, there are so many.
        let may = self.campaign.precision > 0.0 && record.skipped.is_none_or(|pass| pass + 1 < self.pass);
        may && record.trouble.is_none() && record.in_company() && !self.rests(record)
    }

    /// Whether a cell is left out of this pass, since it is known well enough.
    pub(super) fn rests(&self, record: &Record) -> bool {
        let within = self.campaign.precision * if record.cell.size < SHORT { 2.0 } else { 1.0 };
        within > 0.0 && !self.pass.is_multiple_of(REST) && record.trouble.is_none() && record.is_known(within)
    }
}

/// How often it is gone through all cells: at a rate once, since what comes late makes late what follows.
pub(crate) fn passes(campaign: &Campaign) -> u32 {
    if campaign.rate.is_some() { 1 } else { campaign.passes.min(campaign.repetitions) }
}

/// How many repetitions of so many there are to be after so many passes of all.
pub(super) fn upto(repetitions: u32, passes: u32, of: u32) -> usize {
    (u64::from(repetitions) * u64::from(passes) / u64::from(of)) as usize
}

/// Lets a cell off so many repetitions that are announced.
pub(super) fn let_off(record: &mut Record, repetitions: usize, observer: &mut dyn Observer) {
    if record.trouble.is_none() {
        record.let_off(repetitions);
        observer.fewer(repetitions as u64);
    }
}

/// Tells whoever watches what the cells came to, those that came to something.
pub(super) fn tell(records: &[Record], observer: &mut dyn Observer) {
    let worth = |m: &Measured| m.status != Status::Interrupted || m.ops_per_second.is_some();
    records.iter().map(Record::measured).filter(worth).for_each(|m| observer.cell(&m));
}
