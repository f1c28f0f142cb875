//! What is to be said of results beside their figures: that they are not whole, and what disturbed them.

use super::{Measured, Results, Status};
use crate::plan::Footprint;
use crate::units::{bytes, digits, per_second};

/// From which part of the time on waiting for a CPU is worth a word.
const BUSY: f64 = 0.05;
/// From which part of the repetitions on a shared core, or with a core that moved, is worth a word.
const OFTEN: f64 = 0.25;

impl Results {
    /// How many cells were never begun, if any.
    #[must_use]
    pub fn not_begun(&self) -> Option<String> {
        let (planned, begun) = (self.planned?, self.cells.len() as u64);
        (planned > begun).then(|| format!("{} of {planned}", planned - begun))
    }

    /// What to say if the user stopped it.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        let fewer = self.cells.iter().filter(|m| m.status == Status::Interrupted).count();
        let not_begun = self.not_begun().map(|n| format!("; {n} cells were not begun")).unwrap_or_default();
        self.interrupted.then(|| {
            format!(
                "This is what had been measured by then: {fewer} of {} cells have fewer repetitions{not_begun}.",
                self.cells.len()
            )
        })
    }

    /// What to say if a limit of time ended the passes.
    #[must_use]
    pub fn limited(&self) -> Option<String> {
        let of = crate::runner::passes(&self.campaign);
        let limit = self.campaign.limit.filter(|limit| !self.interrupted && self.seconds >= *limit)?;
        let visits = self.cells.iter().filter_map(|m| m.visits).max().filter(|n| *n < of)?;
        let seconds = digits(limit);
        Some(format!(
            "The limit of {seconds} s ended it after {visits} of {of} passes over all cells; figures are surer with a greater --limit."
        ))
    }

    /// What to say if memory that is to be cold fits into a cache.
    #[must_use]
    pub fn cached(&self) -> Option<String> {
        let footprint = self.campaign.footprint?;
        let cold = |m: &Measured| m.cell.footprint != Footprint::Hot && !m.model;
        let cache = self.machine.last_cache();
        // Sources, and as many destinations.
        let fits =
            2 * footprint.max(self.cells.iter().filter(|m| cold(m)).map(|m| m.cell.size).max()?) <= cache;
        fits.then(|| {
            let (footprint, cache, least) = (bytes(footprint), bytes(cache), cache.div_ceil(1 << 20) * 2);
            format!(
                "Not cold: what cold and random operations go through, {footprint} of source and as much of destination, fits into the last cache, {cache}. \
                 --footprint {least}M does not."
            )
        })
    }

    /// What to say of throughputs that were asked for.
    #[must_use]
    pub fn at_rate(&self) -> Option<String> {
        let rate = self.campaign.rate?;
        Some(format!(
            "At a rate of {} on each queue: throughputs are what was asked for, not what an engine can do; CPU times have the waiting in them, and latencies count from when \
             an operation was due.",
            per_second(rate)
        ))
    }

    /// What to say if the machine was busy with something else: in how many cells threads waited for a CPU, and for which part of the time at
    /// most; in how many others used the core's other hardware thread, and in which part of the repetitions at most; and the same of cores that moved.
    #[must_use]
    pub fn busy(&self) -> Vec<String> {
        let beyond = |part: fn(&Measured) -> f64, limit: f64| {
            let measured = self.cells.iter().filter(|m| m.ops_per_second.is_some());
            let beyond: Vec<f64> = measured.map(part).filter(|part| *part > limit).collect();
            let most = beyond.iter().copied().fold(0.0, f64::max);
            (!beyond.is_empty())
                .then(|| (format!("in {} of {} cells", beyond.len(), self.cells.len()), most * 100.0))
        };
        let waited = beyond(|m| m.waited, BUSY).map(|(cells, most)| {
            format!(
                "The machine was busy: {cells} threads waited for a CPU, for up to {most:.0} % of the time. Those figures are less sure, and those of engines \
                 with several threads too low; a quieter machine or --realtime mends that."
            )
        });
        let shared = beyond(|m| m.shared, OFTEN).map(|(cells, most)| {
            format!(
                "The core was shared: {cells} its other hardware thread was busy with something else, in up to {most:.0} % of the repetitions. These \
                 are left out where they are not too many; but whoever is that busy uses the memory too, and memcpy loses more by that than other ways to copy. A quieter machine mends it."
            )
        });
        let moved = beyond(|m| m.moved, OFTEN).map(|(cells, most)| {
            format!(
                "The second core moved, as virtual CPUs do: {cells} it was elsewhere than usual in up to {most:.0} % of the repetitions, on the core of the first or not \
                 behind the same cache, or busy with something else. These are left out where there are enough others."
            )
        });
        let left_out = shared.is_some() || moved.is_some();
        let mut notes: Vec<String> = waited.into_iter().chain(shared).chain(moved).collect();
        if let Some(last) = notes.last_mut().filter(|_| left_out) {
            last.push_str(
                " What is left out counts for latencies all the same: these are of all repetitions.",
            );
        }
        notes
    }
}
