//! One slice of an engine, or all of a run at a rate.

use super::opening::TIMELESS;
use crate::drive::{COMPARE_LITTLE, Extent, Pace, Trouble};
use crate::pairs::Slot;
use crate::plan::Campaign;
use crate::record::Record;
use crate::slices::Sliced;

/// Runs one slice of an engine. Returns `None` if the cell has failed or the user stopped the slice at once.
pub(super) fn slot(record: &mut Record) -> Option<Slot> {
    if record.trouble.is_none()
        && let Some(slot) = record.again()
    {
        return Some(slot);
    }
    let sliced = record.slice(record.extent, None)?;
    record.extent.compare = COMPARE_LITTLE;
    let (ops, ns) = sliced.ops_and_ns();
    if record.virtual_clock && ns == 0 {
        record.trouble = Some(Trouble::Unsupported(TIMELESS.to_owned()));
        return None;
    }
    if sliced.cut() && (ops == 0 || ns == 0) {
        return None;
    }
    let waited = if record.virtual_clock { 0.0 } else { sliced.waited };
    Some(Slot { waited, ..sliced.slot() })
}

/// Runs all repetitions of a cell at the campaign's rate. A run that the user stopped before its first whole
/// repetition counts as one.
pub(super) fn paced(record: &mut Record, campaign: &Campaign) -> Vec<Slot> {
    let Some(rate) = campaign.rate else { return Vec::new() };
    let each = record.extent.ops;
    let extent = Extent { ops: each * u64::from(record.wanted), ..record.extent };
    record.slice(extent, Some(Pace { rate, each })).as_ref().map_or_else(Vec::new, slots)
}

/// Returns the repetitions of a run at a rate.
fn slots(sliced: &Sliced) -> Vec<Slot> {
    let slot = |ops: u64, ns: u64, cpu_ns: f64| Slot {
        rate: ops as f64 / (ns.max(1) as f64 / 1e9),
        cpu_ns: cpu_ns / ops.max(1) as f64,
        waited: sliced.waited,
    };
    let (ops, ns) = sliced.ops_and_ns();
    if sliced.parts.is_empty() && ops > 0 && ns > 0 {
        return vec![slot(ops, ns, sliced.cpu_ns)];
    }
    sliced.parts.iter().map(|p| slot(p.ops, p.ns, p.cpu_ns)).collect()
}
