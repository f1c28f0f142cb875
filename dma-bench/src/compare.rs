//! `compare`: what changed between two results, with the chance that it is noise.

mod differs;
mod exact;
mod export;
#[cfg(test)]
mod tests;
mod text;

pub use differs::Difference;
pub use export::{Ended, SCHEMA, VERSION};

use crate::cli::Metric;
use crate::derive::part_of_rate;
use crate::output::printable;
use crate::plan::Cell;
use crate::results::{Measured, Results, Status};
use crate::stats::{Figures, attainable, blocks, mann_whitney};

/// Quantity that a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Throughput over that of memcpy.
    Ratio,
    /// Bytes a second.
    Throughput,
    /// The median latency, under a rate.
    P50,
    /// The 99th percentile of the latency, under a rate.
    P99,
}

/// Verdict on a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is no noise.
    Changed,
    /// It may well be noise.
    Noise,
    /// With so few repetitions even the greatest difference could be noise.
    Untold,
    /// There is but one figure on each side.
    Untested,
    /// A device on a clock of its own did the same.
    Same,
    /// A device on a clock of its own was measured otherwise, which explains as much.
    Otherwise,
}

/// A cell that both results have.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub cell: Cell,
    /// Its figures are a model's.
    pub model: bool,
    /// The quantity.
    pub quantity: Quantity,
    /// The median before.
    pub before: f64,
    /// The median after.
    pub after: f64,
    /// The chance that samples as far apart come from the same source, corrected for the number of cells
    /// (Holm); none where that is not how it is judged.
    pub chance: Option<f64>,
    /// The class of this interval.
    pub verdict: Verdict,
    /// The number of independent samples there are of each.
    samples: (usize, usize),
    /// No sample of the one side lies among those of the other.
    apart: bool,
}

/// Describes how a cell ended otherwise than before.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which.
    pub cell: Cell,
    /// Its figures are a model's.
    pub model: bool,
    /// In words.
    pub text: String,
    /// It was better before.
    pub worse: bool,
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Cells that both have figures of.
    pub rows: Vec<Row>,
    /// Cells that ended otherwise than before, or are gone.
    pub changes: Vec<Change>,
    /// Other differences between the two.
    pub differences: Vec<Difference>,
    /// Notes.
    pub notes: Vec<String>,
    /// Every cell of either, and how it ended.
    pub cells: Vec<Ended>,
    /// Models, and their sources.
    pub models: Vec<String>,
    noise: f64,
    metric: Metric,
    sides: [export::Side; 2],
    /// They were measured at a given rate.
    rate: bool,
}

impl Row {
    /// The amount of greater it is after, as a fraction of before; `None` if it was nothing before.
    #[must_use]
    pub fn change(&self) -> Option<f64> {
        if self.before == self.after {
            return Some(0.0);
        }
        Some(self.after / self.before - 1.0).filter(|c| c.is_finite())
    }

    fn is_latency(&self) -> bool {
        matches!(self.quantity, Quantity::P50 | Quantity::P99)
    }

    /// Returns whether it is slower by more than this fraction of before.
    #[must_use]
    pub fn is_slower_by(&self, limit: f64) -> bool {
        let change = self.change().unwrap_or(f64::INFINITY);
        if self.is_latency() { change > limit } else { change < -limit }
    }

    /// The chance if nothing of the one side overlapped with the other.
    fn attainable(&self) -> f64 {
        attainable(self.samples.0, self.samples.1)
    }

    /// With its name, and what the name leaves open.
    fn name(&self) -> String {
        let quantity = match self.quantity {
            Quantity::P50 => ", p50",
            Quantity::P99 => ", p99",
            _ => "",
        };
        printable(&format!("{}{quantity}{}", self.cell, marked(self.model)))
    }
}

/// Returns the figures of a cell that a metric compares.
fn figures(m: &Measured, metric: Metric) -> Option<(Quantity, &Figures)> {
    match metric {
        // The baseline's ratio is 1 by definition.
        Metric::Ratio if m.cell.is_baseline() => None,
        // A model does not depend on the machine, but the memcpy beside it does.
        Metric::Ratio if !m.model => Some((Quantity::Ratio, m.ratio.as_ref()?)),
        _ => Some((Quantity::Throughput, m.bytes_per_second.as_ref()?)),
    }
}

/// Into so many parts a run is cut at most: passes may be so short that two of them meet the same
/// weather.
const PARTS: usize = 12;

/// Compares two results. A difference that is less likely than `noise` to come from nothing, all cells taken
/// together, is a change.
#[must_use]
pub fn compare(before: &Results, after: &Results, metric: Metric, noise: f64) -> Comparison {
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
        notes.push("one of them was interrupted".to_owned());
    }
    let modelled =
        |e: &&crate::results::Engine| before.cells.iter().any(|m| m.model && m.cell.engine == e.name);
    let models = before.engines.iter().filter(modelled);
    let models =
        models.filter_map(|e| Some(format!("{} is a model: {}", e.name, e.model.as_ref()?))).collect();
    let busy = |results: &Results| !results.busy().is_empty();
    if rows.iter().any(|r| !r.model) && (busy(before) || busy(after)) {
        notes.push("the machine was busy meanwhile: what differs may be due to that".to_owned());
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
        sides: [export::Side::of(before), export::Side::of(after)],
    }
}

/// A cell by what the metric compares.
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
    // Repetitions of one visit are not independent.
    let parts = |f: &Figures, m: &Measured| blocks(&f.samples, PARTS.min(m.visits.max(1) as usize));
    let (x, y) = (parts(a, old), parts(b, new));
    let (chance, least) = (mann_whitney(&x, &y), attainable(x.len(), y.len()));
    Some(row(Some(chance), Verdict::Noise, (x.len(), y.len()), chance <= least * (1.0 + 1e-9)))
}

/// The latencies of a cell. Under a rate they are what says something: the throughput is given.
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
        verdict: Verdict::Untested,
        samples: (1, 1),
        apart: false,
    };
    vec![row(Quantity::P50, a.p50, b.p50), row(Quantity::P99, a.p99, b.p99)]
}

/// Returns the mark behind a cell's name.
fn marked(model: bool) -> &'static str {
    if model { " [model]" } else { "" }
}

/// Describes how bad an end is.
fn badness(status: Status) -> u8 {
    match status {
        Status::Ok => 0,
        Status::Interrupted => 1,
        Status::Unsupported => 2,
        Status::Failed => 3,
        Status::Wrong => 4,
    }
}

fn word(status: Status) -> String {
    format!("{status:?}").to_lowercase()
}

/// Describes how a cell ended otherwise than before.
fn change(before: &Results, after: &Results, old: &Measured, new: Option<&Measured>) -> Option<Change> {
    let found =
        |text: String, worse: bool| Some(Change { cell: old.cell.clone(), model: old.model, text, worse });
    let had_figures = old.bytes_per_second.is_some();
    let Some(new) = new else {
        let why = after.engine(&old.cell.engine).and_then(|e| e.error.as_deref());
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        return if had_figures { found(format!("is in the first only{why}"), true) } else { None };
    };
    let lost = if had_figures && new.bytes_per_second.is_none() { ", without figures" } else { "" };
    if new.status != old.status {
        let why = new.message.as_deref().map_or(String::new(), |why| format!(": {why}"));
        let text = format!("was {} and is {}{lost}{why}", word(old.status), word(new.status));
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
            let text = format!("reached {} of the rate and reaches {}", part(was), part(is));
            Change { cell: old.cell.clone(), model: old.model, text, worse: is.is_some() }
        },
    )
}

/// Corrects for the number of cells (Holm: of a hundred cells one is below 1 % by chance alone), and says
/// what is to be thought of each. Rows without a chance take no part in that.
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
            _ if least <= noise => Verdict::Changed,
            best if best > noise => Verdict::Untold,
            _ => Verdict::Noise,
        };
    }
}

/// The number of repetitions on each side suffice to tell a change from noise in so many cells.
fn needed(cells: usize, noise: f64) -> Option<usize> {
    (1..=PARTS).find(|n| attainable(*n, *n) * cells as f64 <= noise)
}

/// Suggests a remedy for cells that cannot be told from noise.
fn remedy(rows: &[Row], noise: f64) -> String {
    let tested = rows.iter().filter(|r| r.chance.is_some()).count();
    match needed(tested, noise) {
        Some(n) => format!("measure both with -r {n} or more"),
        None => "compare fewer cells, or give a greater --noise".to_owned(),
    }
}

fn too_few(rows: &[Row], noise: f64) -> Option<String> {
    let untold: Vec<&Row> = rows.iter().filter(|r| r.verdict == Verdict::Untold).collect();
    let (a, b) = untold.iter().map(|r| r.samples).min_by_key(|s| s.0.min(s.1))?;
    Some(format!(
        "{} of {} cells cannot be told from noise with so few repetitions (have {a} before and {b} after): {}",
        untold.len(),
        rows.len(),
        remedy(rows, noise)
    ))
}

impl Comparison {
    /// Rows that are slower by more than `limit`, and of which this is thought.
    pub fn slower(&self, limit: f64, verdict: Verdict) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |r| r.verdict == verdict && r.is_slower_by(limit))
    }

    /// Why the later results do not pass if nothing may be slower by more than `limit`: nothing if they do.
    #[must_use]
    pub fn failures(&self, limit: f64) -> Vec<String> {
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
        add(of(Verdict::Changed), format!("cells are slower by more than {percent} %"));
        let remedy = remedy(&self.rows, self.noise);
        add(
            of(Verdict::Untold),
            format!(
                "cells look slower by more than {percent} %, and with so few repetitions nobody can tell whether that is noise: {remedy}"
            ),
        );
        add(
            of(Verdict::Untested),
            format!(
                "latencies under the rate are longer by more than {percent} %; a run has one of each, so the limit has to allow for noise"
            ),
        );
        failures
    }
}
