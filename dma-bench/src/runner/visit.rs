//! One visit to the cells that share a baseline: their share of repetitions, each between two slices of
//! `memcpy`.

use super::Observer;
use super::Runner;
use super::passes::{passes, tell, upto};
use super::slot::{paced, slot};
use crate::drive::{COMPARE_LITTLE, COMPARE_MUCH, Trouble};
use crate::interrupt;
use crate::layout::Layout;
use crate::pairs::{Pair, Slot};
use crate::record::Record;

/// Every so many passes, the first repetition of each visit is compared thoroughly.
const COMPARE_EVERY: u32 = 4;

/// Repetitions are added until half of the requested ones are undisturbed, up to this many times the share of
/// a visit.
const TRIES: usize = 6;

impl Runner<'_> {
    /// Measures cells that share a baseline, unless the user has stopped the run. Reports them to the
    /// observer, if this was their last pass.
    pub(super) fn visit(&mut self, records: &mut [Record], observer: &mut dyn Observer) {
        if !interrupt::stopped() {
            self.turn_to(records, observer);
        }
        if self.pass + 1 == passes(self.campaign) || interrupt::stopped() {
            tell(records, observer);
        }
    }

    /// Runs one pass over `records`, of which the first is the baseline.
    pub(super) fn turn_to(&mut self, records: &mut [Record], observer: &mut dyn Observer) {
        let Some((base, records)) = records.split_first_mut() else { return };
        if records.is_empty() {
            return;
        }
        self.at = 0;
        self.visit = self.visit.wrapping_add(1);
        let free =
            self.engines.baseline_needs(&base.cell) - Layout::bytes(&base.cell, self.engines.footprint);
        let layout = Layout::new(&base.cell, 0, self.engines.footprint)
            .in_pass(&base.cell, self.pass, self.visit, free);
        if base.trouble.is_none()
            && let Err(trouble) = self.baseline_extent(base, &layout)
            && !interrupt::stopped()
        {
            base.trouble = Some(trouble);
        }
        for mut together in apart(records.iter_mut().collect()) {
            let mut lost: Vec<String> = Vec::new();
            for record in &mut together {
                self.open(record);
                let fewer = self.campaign.repetitions.saturating_sub(record.wanted);
                if self.pass == 0 && record.trouble.is_none() && fewer > 0 {
                    observer.fewer(u64::from(fewer));
                }
            }
            if self.campaign.rate.is_some() {
                self.at_rate(base, &layout, &mut together, observer);
            } else {
                self.turns(base, &layout, &mut together, observer);
            }
            for record in together {
                base.wanted = base.wanted.max(record.wanted);
                record.end_visit(self.stays(record));
                if record.trouble.is_some() && !record.given_up {
                    record.given_up = true;
                    let all = if record.wanted == 0 { self.campaign.repetitions } else { record.wanted };
                    observer.fewer(u64::from(all).saturating_sub(record.made() as u64));
                }
                if matches!(record.trouble, Some(Trouble::Failed(_))) && !lost.contains(&record.cell.engine) {
                    lost.push(record.cell.engine.clone());
                }
            }
            lost.iter().for_each(|name| self.engines.reopen(name));
        }
        base.end_visit(false);
    }

    /// Measures cells of different engines in turns, with the baseline between them, until each has its share
    /// of repetitions. Disturbed ones are repeated, so that a busy machine does not decide.
    fn turns(
        &mut self,
        base: &mut Record,
        layout: &Layout,
        records: &mut [&mut Record],
        observer: &mut dyn Observer,
    ) {
        let (pass, passes) = (self.pass, passes(self.campaign));
        // Repetitions of each cell after this visit; the most of them; and the undisturbed ones to reach.
        let goals: Vec<(usize, usize, usize)> = (records.iter())
            .map(|r| {
                let all = upto(r.wanted, pass + 1, passes);
                let share = all - upto(r.wanted, pass, passes);
                (r.made() + share, r.made() + TRIES * share, all / 2)
            })
            .collect();
        let (mut before, mut compare) = (None, self.compare());
        for turn in 0.. {
            let (modelled, real): (Vec<usize>, Vec<usize>) = (0..records.len())
                .filter(|&who| {
                    let (r, (due, most, clean)) = (&records[who], goals[who]);
                    let again = !r.virtual_clock && r.made() < most && r.clean() < clean;
                    r.trouble.is_none() && (r.made() < due || again)
                })
                .partition(|who| records[*who].virtual_clock);
            if modelled.is_empty() && real.is_empty() {
                return;
            }
            // The baseline, an engine, the baseline, and so on. A simulated device takes no time of this
            // machine, so its slice shares the first pair of baselines. The order of engines rotates.
            let gaps = real.len().max(1);
            if before.is_none() {
                before = self.baseline_slot(base, layout, compare);
                compare = COMPARE_LITTLE;
            }
            for gap in 0..gaps {
                if interrupt::stopped() {
                    return;
                }
                let who = (!real.is_empty()).then(|| real[(gap + turn) % gaps]);
                let modelled = if gap == 0 { modelled.as_slice() } else { &[] };
                let who = modelled.iter().copied().chain(who);
                let slots: Vec<(usize, Slot)> =
                    who.filter_map(|who| Some((who, slot(records[who])?))).collect();
                // After an interrupt no further slice of memcpy delays the end.
                let after = (!interrupt::stopped())
                    .then(|| self.baseline_slot(base, layout, COMPARE_LITTLE))
                    .flatten();
                for (who, slot) in slots {
                    records[who].add(Pair::new(self.pass, before, slot, after));
                    if records[who].made() <= goals[who].0 {
                        told(records[who], slot, observer);
                    }
                }
                before = after;
            }
        }
    }

    /// Measures each cell at the rate, in one run without breaks, because a delay has to reach all later
    /// operations of the schedule. The baseline runs before and after it.
    fn at_rate(
        &mut self,
        base: &mut Record,
        layout: &Layout,
        records: &mut [&mut Record],
        observer: &mut dyn Observer,
    ) {
        for record in records {
            let before = self.beside(base, layout, COMPARE_MUCH);
            let slots = if record.trouble.is_none() && !interrupt::stopped() {
                paced(record, self.campaign)
            } else {
                Vec::new()
            };
            let after = self.beside(base, layout, COMPARE_LITTLE);
            for slot in slots {
                // At a fixed rate, the ratio to memcpy means nothing.
                record.add(Pair { ratio: None, ..Pair::new(self.pass, before, slot, after) });
                told(record, slot, observer);
            }
        }
    }

    /// Returns the bytes to compare in the first repetition of a visit.
    pub(super) fn compare(&self) -> usize {
        if self.pass.is_multiple_of(COMPARE_EVERY) { COMPARE_MUCH } else { COMPARE_LITTLE }
    }
}

/// Tells the observer of a repetition.
fn told(record: &Record, slot: Slot, observer: &mut dyn Observer) {
    observer.repetition(&record.cell, record.model, slot.rate * record.cell.size as f64);
}

/// Splits cells into rounds with at most one cell of each engine, because a device may have only one queue.
pub(super) fn apart(records: Vec<&mut Record>) -> Vec<Vec<&mut Record>> {
    let mut turns: Vec<Vec<&mut Record>> = Vec::new();
    for record in records {
        let free = |turn: &Vec<&mut Record>| turn.iter().all(|r| r.cell.engine != record.cell.engine);
        match turns.iter().position(free) {
            Some(turn) => turns[turn].push(record),
            None => turns.push(vec![record]),
        }
    }
    turns
}
