//! Comparison of simulated devices on a virtual clock. Such a device repeats its figures exactly if it gets
//! the same operations. The other cells of a campaign run between the samples of a cell, and change the
//! state of the device.

use super::Significance;
use crate::plan::{Campaign, Cell, Verify};
use crate::results::{Measured, Results};
use crate::verdict::stats::Figures;

/// Figures that differ by at most this fraction are equal.
const EXACT_TOLERANCE: f64 = 1e-4;
/// Operations of other cells can explain a change up to this fraction. They also explain a greater change if
/// the samples overlap.
const CONDITIONS_TOLERANCE: f64 = 0.02;
/// The limit if the number of operations per sample differs, because the start of a sample then has another
/// share of the time.
const OPS_TOLERANCE: f64 = 0.25;

/// Judges a cell's figures on a virtual clock.
pub(super) fn verdict(
    (before, old, a): (&Results, &Measured, &Figures),
    (after, new, b): (&Results, &Measured, &Figures),
) -> Significance {
    let beyond = |part: f64| (b.median - a.median).abs() > part * a.median.abs();
    let allowed = match () {
        () if !beyond(EXACT_TOLERANCE) => return Significance::Same,
        () if before.campaign.count != after.campaign.count => OPS_TOLERANCE,
        () if circumstances(before, old, a) != circumstances(after, new, b) => CONDITIONS_TOLERANCE,
        () => return Significance::Changed,
    };
    let overlap = a.min <= b.max && b.min <= a.max;
    if overlap || !beyond(allowed) { Significance::OtherConditions } else { Significance::Changed }
}

/// Returns the conditions that determine the figures of a cell, apart from the operations per sample: the
/// pass of each sample, because untimed operations precede each pass; the verification; and the other cells
/// of the engine.
fn circumstances<'a>(
    results: &'a Results,
    m: &Measured,
    figures: &Figures,
) -> (Vec<u64>, Verify, Vec<&'a Cell>) {
    let cells = results.cells.iter().map(|m| &m.cell).filter(|c| c.engine == m.cell.engine);
    (passes_of(&results.campaign, figures.samples.len()), results.campaign.verify, cells.collect())
}

/// Returns the number of the pass, counted from 1, of each of the first `first` samples.
fn passes_of(campaign: &Campaign, first: usize) -> Vec<u64> {
    let (samples, passes) = (campaign.samples.max(1).into(), u64::from(campaign.planned_passes()));
    (1..=first as u64).map(|n| n.saturating_mul(passes).div_ceil(samples)).collect()
}

/// Returns a note on cells whose verdict is [`Significance::OtherConditions`].
pub(super) fn note(rows: &[super::Row]) -> Option<String> {
    let changes: Vec<f64> = rows
        .iter()
        .filter(|r| r.verdict == Significance::OtherConditions)
        .map(|r| r.change().map_or(f64::INFINITY, f64::abs))
        .collect();
    let most = changes.iter().copied().reduce(f64::max)?;
    Some(format!(
        "{} cells of models differ by up to {:.1} %. Other conditions (samples, operations, verification, or the engine's other cells) explain \
         differences of that size; measure both alike to see smaller changes",
        changes.len(),
        most * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_those_of_the_runner() {
        let of = |samples, passes| passes_of(&Campaign { samples, passes, ..Campaign::default() }, 3);
        assert_eq!((of(62, 24), of(250, 24), of(25, 24)), (vec![1, 1, 2], vec![1, 1, 1], vec![1, 2, 3]));
        assert_eq!((of(3, 24), of(0, 0)), (vec![1, 2, 3], vec![0, 0, 0]));
    }
}
