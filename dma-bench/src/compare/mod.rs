//! The subcommand `compare`: changes between two results, with the chance that they are noise.

mod differs;
mod exact;
mod export;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use differs::Circumstance;
pub(crate) use export::Ended;

use crate::plan::Cell;
use crate::results::conclusions::part_of_rate;
use crate::results::{Measured, Results, Status};
use crate::units::printable;
use crate::verdict::stats::{Figures, attainable, blocks, mann_whitney};

/// The figures that `compare` compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Metric {
    /// Throughput divided by the throughput of memcpy right before and after, so that the machine's load
    /// cancels out. Models are compared by throughput.
    #[default]
    Ratio,
    /// Throughput.
    Throughput,
}

/// The quantity that a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Ratio,
    Throughput,
    /// Median latency of a run at a rate.
    P50,
    /// 99th percentile of the latency of a run at a rate.
    P99,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Significance {
    /// A change: noise does not explain the difference.
    Changed,
    /// The difference may be noise.
    Noise,
    /// Undecidable: with this number of samples, even the greatest difference could be noise.
    Undecidable,
    /// Not tested, because there is only one figure on each side.
    Untested,
    /// Equal, on a device with a virtual clock.
    Same,
    /// A device with a virtual clock was measured under other conditions, which explain the difference.
    OtherConditions,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub cell: Cell,
    pub model: bool,
    pub quantity: Quantity,
    pub before: f64,
    pub after: f64,
    /// Chance that samples of one and the same source show this difference or a greater one, corrected for
    /// the number of cells (Holm). `None` if no statistical test judged the row.
    pub chance: Option<f64>,
    pub verdict: Significance,
    /// Number of independent samples, before and after.
    samples: (usize, usize),
    /// True if the ranges of the two sides' samples do not overlap.
    apart: bool,
}

/// A cell that ended differently in the two results: with another status, or without figures or a ratio.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub cell: Cell,
    pub model: bool,
    pub text: String,
    /// True if the cell ended better before.
    pub worse: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// Figures of the cells that both results have.
    pub rows: Vec<Row>,
    /// Cells that ended differently, or that are missing in the second results.
    pub changes: Vec<Change>,
    pub differences: Vec<Circumstance>,
    pub notes: Vec<String>,
    /// Every cell of the two results, with its status in both.
    pub cells: Vec<Ended>,
    pub models: Vec<String>,
    noise: f64,
    metric: Metric,
    sides: [export::RunInfo; 2],
    /// True if at least one of the two runs was at a given rate.
    rate: bool,
}

impl Row {
    /// Returns the change as a fraction of the figure before; `None` if the figure before was 0.
    pub(crate) fn change(&self) -> Option<f64> {
        if self.before == self.after {
            return Some(0.0);
        }
        Some(self.after / self.before - 1.0).filter(|c| c.is_finite())
    }

    fn is_latency(&self) -> bool {
        matches!(self.quantity, Quantity::P50 | Quantity::P99)
    }

    /// Returns true if the cell is slower by more than this fraction of the figure before.
    pub(crate) fn is_slower_by(&self, limit: f64) -> bool {
        let change = self.change().unwrap_or(f64::INFINITY);
        if self.is_latency() { change > limit } else { change < -limit }
    }

    /// Returns the smallest chance that this number of samples allows.
    fn attainable(&self) -> f64 {
        attainable(self.samples.0, self.samples.1)
    }

    fn name(&self) -> String {
        let quantity = match self.quantity {
            Quantity::P50 => ", p50",
            Quantity::P99 => ", p99",
            _ => "",
        };
        printable(&format!("{}{quantity}{}", self.cell, marked(self.model)))
    }
}

/// Returns the figures of a cell that the metric compares.
fn figures(m: &Measured, metric: Metric) -> Option<(Quantity, &Figures)> {
    match metric {
        // The baseline's ratio is 1 by definition.
        Metric::Ratio if m.cell.is_baseline() => None,
        // A model's figures do not depend on the machine, but those of memcpy beside it do. Copies of device
        // memory have no memcpy beside them.
        Metric::Ratio if !m.model && m.cell.baseline().is_some() => {
            Some((Quantity::Ratio, m.ratio.as_ref()?))
        }
        _ => Some((Quantity::Throughput, m.bytes_per_second.as_ref()?)),
    }
}

/// Maximum number of blocks that a run is split into. Blocks are used because passes may be so short that two
/// consecutive passes are not independent.
const MAX_BLOCKS: usize = 12;

/// Compares two results. A difference is a change if the chance that it is noise is at most `noise`, over all
/// cells together.
pub(crate) fn compare(before: &Results, after: &Results, metric: Metric, noise: f64) -> Comparison {
    let rate = before.campaign.rate.is_some() || after.campaign.rate.is_some();
    let mut rows = Vec::new();
    let mut changes = Vec::new();
    for old in &before.cells {
        let new = after.cells.iter().find(|m| m.cell == old.cell);
        changes.extend(change(before, after, old, new));
        match new {
            Some(new) if rate => rows.extend(latencies(old, new)),
            Some(new) => rows.extend(row(before, after, old, new, metric)),
            None => {}
        }
    }
    judge(&mut rows, noise);
    let mut notes = Vec::new();
    if before.interrupted || after.interrupted {
        notes.push("at least one of the runs was interrupted".to_owned());
    }
    let modelled =
        |e: &&crate::results::Engine| before.cells.iter().any(|m| m.model && m.cell.engine == e.name);
    let models = before.engines.iter().filter(modelled);
    let models =
        models.filter_map(|e| Some(format!("{} is a model: {}", e.name, e.model.as_ref()?))).collect();
    let busy = |results: &Results| results.busy().is_some();
    if rows.iter().any(|r| !r.model) && (busy(before) || busy(after)) {
        notes.push("the machine was busy during the runs, which may explain differences".to_owned());
    }
    notes.extend(too_few(&rows, noise));
    notes.extend(exact::note(&rows));
    Comparison {
        rows,
        changes,
        differences: differs::differences(before, after),
        notes,
        cells: export::ended(before, after),
        models,
        noise,
        metric,
        rate,
        sides: [export::RunInfo::of(before), export::RunInfo::of(after)],
    }
}

/// Compares a cell by the metric.
fn row(before: &Results, after: &Results, old: &Measured, new: &Measured, metric: Metric) -> Option<Row> {
    let ((quantity, a), (_, b)) = (figures(old, metric)?, figures(new, metric)?);
    let virtual_clock =
        |results: &Results| results.engine(&old.cell.engine).is_some_and(|e| e.clock == "virtual");
    let row = |chance, verdict, samples, apart| Row {
        cell: old.cell.clone(),
        model: old.model,
        quantity,
        before: a.median,
        after: b.median,
        chance,
        verdict,
        samples,
        apart,
    };
    if virtual_clock(before) && virtual_clock(after) {
        let verdict = exact::verdict((before, old, a), (after, new, b));
        return Some(row(None, verdict, (1, 1), false));
    }
    // Samples of one pass are not independent.
    let parts = |f: &Figures, m: &Measured| blocks(&f.samples, MAX_BLOCKS.min(m.passes.max(1) as usize));
    let (x, y) = (parts(a, old), parts(b, new));
    let (chance, least) = (mann_whitney(&x, &y), attainable(x.len(), y.len()));
    Some(row(Some(chance), Significance::Noise, (x.len(), y.len()), chance <= least * (1.0 + 1e-9)))
}

/// Compares the latencies of a cell that ran at a rate. Its throughput is not compared, because the rate sets
/// it.
fn latencies(old: &Measured, new: &Measured) -> Vec<Row> {
    let (Some(a), Some(b), false) = (&old.latency, &new.latency, old.cell.is_baseline()) else {
        return Vec::new();
    };
    let row = |quantity, before: u64, after: u64| Row {
        cell: old.cell.clone(),
        model: old.model,
        quantity,
        before: before as f64,
        after: after as f64,
        chance: None,
        verdict: Significance::Untested,
        samples: (1, 1),
        apart: false,
    };
    vec![row(Quantity::P50, a.p50, b.p50), row(Quantity::P99, a.p99, b.p99)]
}

/// Returns the mark after a model's name.
fn marked(model: bool) -> &'static str {
    if model { " [model]" } else { "" }
}

/// Returns a rank of a status, greater if worse.
fn badness(status: Status) -> u8 {
    match status {
        Status::Ok => 0,
        Status::Interrupted => 1,
        Status::Unsupported => 2,
        Status::Failed => 3,
        Status::Wrong => 4,
    }
}

/// Describes the change of a cell that ended differently, is missing, or newly misses or reaches its rate.
fn change(before: &Results, after: &Results, old: &Measured, new: Option<&Measured>) -> Option<Change> {
    let found =
        |text: String, worse: bool| Some(Change { cell: old.cell.clone(), model: old.model, text, worse });
    let had_figures = old.bytes_per_second.is_some();
    let Some(new) = new else {
        let why = after.engine(&old.cell.engine).and_then(|e| e.error.as_deref());
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        return if had_figures { found(format!("is missing in the second{why}"), true) } else { None };
    };
    let lost = if had_figures && new.bytes_per_second.is_none() { ", without figures" } else { "" };
    if new.status != old.status {
        let why = new.message.as_deref().map_or(String::new(), |why| format!(": {why}"));
        let text = format!("was {} and is {}{lost}{why}", old.status, new.status);
        return found(text, badness(new.status) > badness(old.status));
    }
    let lost_ratio =
        old.ratio.is_some() && new.ratio.is_none() && before.campaign.rate == after.campaign.rate;
    if !lost.is_empty() || lost_ratio {
        return found(format!("has no {} any more", if lost_ratio { "ratio" } else { "figures" }), true);
    }
    let (was, is) = (part_of_rate(&before.campaign, old), part_of_rate(&after.campaign, new));
    (was.is_some() != is.is_some() && after.campaign.rate.is_some() && before.campaign.rate.is_some()).then(
        || {
            let part = |part: Option<f64>| part.map_or("all".to_owned(), |p| format!("{:.1} %", p * 100.0));
            let text = format!("reached {} of the rate before and reaches {} now", part(was), part(is));
            Change { cell: old.cell.clone(), model: old.model, text, worse: is.is_some() }
        },
    )
}

/// Corrects chances for the number of cells (Holm): without the correction, of a hundred cells one is below 1
/// % by chance alone. Then judges each row that has a chance.
fn judge(rows: &mut [Row], noise: f64) {
    let mut order: Vec<(usize, f64)> =
        rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.chance?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (tested, mut least) = (order.len(), 0.0_f64);
    for (rank, (at, chance)) in order.into_iter().enumerate() {
        let row = &mut rows[at];
        least = least.max((chance * (tested - rank) as f64).min(1.0));
        row.chance = Some(least);
        row.verdict = match row.attainable() * tested as f64 {
            _ if least <= noise => Significance::Changed,
            best if best > noise => Significance::Undecidable,
            _ => Significance::Noise,
        };
    }
}

/// Returns the number of samples that each side needs to tell a change from noise, if this number of cells is
/// compared.
fn needed(cells: usize, noise: f64) -> Option<usize> {
    (1..=MAX_BLOCKS).find(|n| attainable(*n, *n) * cells as f64 <= noise)
}

/// Suggests a remedy for cells whose difference cannot be told from noise.
fn remedy(rows: &[Row], noise: f64) -> String {
    let tested = rows.iter().filter(|r| r.chance.is_some()).count();
    match needed(tested, noise) {
        Some(n) => format!("measure both with --samples {n} or more"),
        None => "compare fewer cells, or give a greater --noise".to_owned(),
    }
}

fn too_few(rows: &[Row], noise: f64) -> Option<String> {
    let untold: Vec<&Row> = rows.iter().filter(|r| r.verdict == Significance::Undecidable).collect();
    let (a, b) = untold.iter().map(|r| r.samples).min_by_key(|s| s.0.min(s.1))?;
    Some(format!(
        "{} of {} cells cannot be told from noise with so few samples (have {a} before and {b} after): {}",
        untold.len(),
        rows.len(),
        remedy(rows, noise)
    ))
}

impl Comparison {
    /// Returns the rows with this verdict that are slower by more than `limit`.
    pub(crate) fn slower(&self, limit: f64, verdict: Significance) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |r| r.verdict == verdict && r.is_slower_by(limit))
    }

    /// Returns the reasons why the later results fail if no cell may be slower by more than `limit`. The list
    /// is empty if they pass.
    pub(crate) fn failures(&self, limit: f64) -> Vec<String> {
        let mut failures = Vec::new();
        let percent = limit * 100.0;
        let mut add = |names: Vec<String>, what: String| {
            if let Some(first) = names.first() {
                failures.push(format!("{} {what}; the first: {first}", names.len()));
            }
        };
        let worse = self.changes.iter().filter(|c| c.worse);
        add(
            worse.map(|c| printable(&format!("{} {}", c.cell, c.text))).collect(),
            "cells ended worse than before, or are gone".to_owned(),
        );
        let of = |verdict| self.slower(limit, verdict).map(Row::name).collect::<Vec<_>>();
        add(of(Significance::Changed), format!("cells are slower by more than {percent} %"));
        let remedy = remedy(&self.rows, self.noise);
        add(
            of(Significance::Undecidable),
            format!(
                "cells look slower by more than {percent} %, which may be noise with so few samples; {remedy}"
            ),
        );
        add(
            of(Significance::Untested),
            format!(
                "latencies at the rate are longer by more than {percent} %; a run has only one value of each, so choose a limit that allows for noise"
            ),
        );
        failures
    }
}
