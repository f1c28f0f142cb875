//! Notes on results: missing figures, and disturbances of the run.

use super::conclusions::missed;
use super::{Measured, Results, Status};
use crate::plan::{Footprint, grouped};
use crate::units::{bytes, digits, per_second};

/// A note is given if threads waited for a CPU for more than this fraction of the time.
const BUSY_RUN_DELAY: f64 = 0.05;

impl Results {
    /// Returns all notes on the run, except the note on an interrupt.
    pub fn notes(&self) -> Vec<String> {
        let all = [self.at_rate(), self.unsteady(), missed(self), self.cached(), self.limited(), self.busy()];
        all.into_iter().flatten().collect()
    }

    /// Returns each reason why engines or cells failed once, with the names of these engines or cells.
    pub fn troubles(&self) -> Vec<(&str, Vec<String>)> {
        let engines = self.engines.iter().filter_map(|e| Some((e.error.as_deref()?, e.name.clone())));
        let cells = self.troubled().map(|m| (m.message.as_deref().unwrap_or_default(), m.cell.to_string()));
        grouped(engines.chain(cells))
    }

    /// Returns a note on cells that did not become steady.
    pub fn unsteady(&self) -> Option<String> {
        let within = digits(self.campaign.steady? * 100.0);
        let names: Vec<String> = self
            .cells
            .iter()
            .filter(|m| m.status == Status::Ok && m.steady_after.is_none())
            .map(|m| m.cell.to_string())
            .collect();
        (!names.is_empty()).then(|| {
            format!(
                "Not steady within {within} % in {} s: {}. Their figures are of all intervals. A longer --time, longer intervals (--series=1) or a \
                 quieter machine helps.",
                digits(self.campaign.seconds),
                several(&names)
            )
        })
    }

    /// Returns the number of cells that were never begun, such as `18 of 33`; `None` if all were
    /// begun.
    pub fn not_begun(&self) -> Option<String> {
        let (planned, begun) = (self.planned, self.cells.len() as u64);
        (planned > begun).then(|| format!("{} of {planned}", planned - begun))
    }

    /// Returns a note if the user stopped the run.
    pub fn stopped(&self) -> Option<String> {
        let fewer = self.cells.iter().filter(|m| m.status == Status::Interrupted).count();
        let not_begun = self.not_begun().map(|n| format!("; {n} cells were not begun")).unwrap_or_default();
        self.interrupted.then(|| {
            format!(
                "The figures are incomplete: {fewer} of {} cells have fewer samples{not_begun}.",
                self.cells.len()
            )
        })
    }

    /// Returns a note if the time limit ended the run before the last pass.
    pub fn limited(&self) -> Option<String> {
        let of = self.campaign.planned_passes();
        let limit = self.campaign.limit.filter(|limit| !self.interrupted && self.seconds >= *limit)?;
        let passes = self.cells.iter().map(|m| m.passes).max().filter(|n| *n < of)?;
        let seconds = digits(limit);
        Some(format!(
            "The limit of {seconds} s ended the run after {passes} of {of} passes over all cells; a greater --limit makes figures more accurate."
        ))
    }

    /// Returns a note if memory for cold operations fits into a cache.
    pub fn cached(&self) -> Option<String> {
        let footprint = self.campaign.footprint?;
        let cold = |m: &Measured| m.cell.footprint != Footprint::Hot && !m.model;
        let cache = self.machine.last_cache();
        // Sources and destinations have the same size.
        let fits =
            2 * footprint.max(self.cells.iter().filter(|m| cold(m)).map(|m| m.cell.size).max()?) <= cache;
        fits.then(|| {
            let (footprint, cache, least) = (bytes(footprint), bytes(cache), cache.div_ceil(1 << 20) * 2);
            format!(
                "Not cold: the memory of cold and random operations, {footprint} of source and as much of destination, fits into the last-level cache \
                 of {cache}. --footprint {least}M exceeds it."
            )
        })
    }

    /// Returns a note on the meaning of the figures, if the run was at a rate.
    pub fn at_rate(&self) -> Option<String> {
        let rate = self.campaign.rate?;
        Some(format!(
            "At a rate of {} on each queue: throughput is given, not the engine's limit; CPU times include waiting; latencies count from when an \
             operation was due.",
            per_second(rate)
        ))
    }

    /// Returns a note if threads waited for a CPU, with the number of affected cells and the worst of
    /// them.
    pub fn busy(&self) -> Option<String> {
        let measured =
            self.cells.iter().filter(|m| m.ops_per_second.is_some() && m.run_delay > BUSY_RUN_DELAY);
        let (cells, most) = measured.fold((0, 0.0_f64), |(n, most), m| (n + 1, most.max(m.run_delay)));
        (cells > 0).then(|| {
            format!(
                "The machine was busy: in {cells} of {} cells, threads waited for a CPU for up to {:.0} % of the time. \
                 Engines with several threads lose most by that. A quieter machine helps, or --realtime.",
                self.cells.len(),
                most * 100.0
            )
        })
    }
}

/// Maximum number of names that a text lists.
const MAX_NAMES: usize = 4;

/// Lists names. If there are many, lists the first ones and the number of the others.
pub(crate) fn several(names: &[String]) -> String {
    match names.len().checked_sub(MAX_NAMES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MAX_NAMES].join(", ")),
    }
}
