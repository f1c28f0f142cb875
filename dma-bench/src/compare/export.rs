//! Comparisons for programs: CSV, and JSON of a versioned schema that `RESULTS.md` describes.

use serde::Serialize;

use super::Metric;
use super::{Circumstance, Comparison, Quantity, Row, Significance};
use crate::output::{Field, fields, kind, number, shape};
use crate::plan::Cell;
use crate::results::machine::Machine;
use crate::results::{Measured, Results, Status};

pub(crate) const SCHEMA: &str = "dma-bench/comparison";
/// The version that this program writes.
pub(crate) const VERSION: u32 = 2;

/// The run that produced one of the two results.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunInfo {
    tool: String,
    created: String,
    seconds: f64,
    command: Vec<String>,
    interrupted: bool,
    machine: Machine,
}

impl RunInfo {
    pub(super) fn of(results: &Results) -> Self {
        Self {
            tool: results.tool.clone(),
            created: results.created.clone(),
            seconds: results.seconds,
            command: results.command.clone(),
            interrupted: results.interrupted,
            machine: results.machine.clone(),
        }
    }
}

/// A cell of one or both results, and its status in them.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub cell: Cell,
    pub model: bool,
    /// Status before; `None` if the cell is new.
    pub before: Option<Status>,
    /// Status after; `None` if the cell is gone.
    pub after: Option<Status>,
}

/// Returns all cells: the cells of the first results in their order, then the cells that only the second
/// results have.
pub(super) fn ended(before: &Results, after: &Results) -> Vec<Ended> {
    let of =
        |results: &Results, cell: &Cell| results.cells.iter().find(|m| m.cell == *cell).map(|m| m.status);
    let ended = |m: &Measured, before, after| Ended { cell: m.cell.clone(), model: m.model, before, after };
    let old = before.cells.iter().map(|m| ended(m, Some(m.status), of(after, &m.cell)));
    let new = after.cells.iter().filter(|m| of(before, &m.cell).is_none());
    old.chain(new.map(|m| ended(m, None, Some(m.status)))).collect()
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: u32,
    tool: &'static str,
    before: &'a RunInfo,
    after: &'a RunInfo,
    metric: &'static str,
    noise: f64,
    cells: Vec<Compared<'a>>,
    differs: &'a [Circumstance],
    notes: &'a [String],
    models: &'a [String],
    fail_if_slower: Option<Outcome>,
}

#[derive(Serialize)]
struct Compared<'a> {
    #[serde(flatten)]
    cell: &'a Cell,
    model: bool,
    status_before: Option<Status>,
    status_after: Option<Status>,
    ended: Option<&'a str>,
    worse: bool,
    figures: Vec<Figure>,
}

#[derive(Serialize)]
struct Figure {
    quantity: &'static str,
    before: f64,
    after: f64,
    change: Option<f64>,
    chance: Option<f64>,
    verdict: &'static str,
}

impl Figure {
    fn of(row: &Row) -> Self {
        Self {
            quantity: match row.quantity {
                Quantity::Ratio => "ratio",
                Quantity::Throughput => "bytes_per_second",
                Quantity::P50 => "latency_p50_ns",
                Quantity::P99 => "latency_p99_ns",
            },
            before: row.before,
            after: row.after,
            change: row.change(),
            chance: row.chance,
            verdict: match row.verdict {
                Significance::Changed if row.is_slower_by(0.0) => "slower",
                Significance::Changed => "faster",
                Significance::Noise => "noise",
                Significance::Undecidable => "undecidable",
                Significance::Untested => "untested",
                Significance::Same => "same",
                Significance::OtherConditions => "other-conditions",
            },
        }
    }
}

#[derive(Serialize)]
struct Outcome {
    limit: f64,
    passes: bool,
    reasons: Vec<String>,
}

impl Comparison {
    fn compared(&self) -> impl Iterator<Item = Compared<'_>> {
        self.cells.iter().map(|ended| {
            let change = self.changes.iter().find(|c| c.cell == ended.cell);
            Compared {
                cell: &ended.cell,
                model: ended.model,
                status_before: ended.before,
                status_after: ended.after,
                ended: change.map(|c| c.text.as_str()),
                worse: change.is_some_and(|c| c.worse),
                figures: self.rows.iter().filter(|r| r.cell == ended.cell).map(Figure::of).collect(),
            }
        })
    }

    /// Returns the comparison as JSON. With a limit, it contains the outcome of `--fail-if-slower`.
    pub(crate) fn json(&self, limit: Option<f64>) -> String {
        let outcome = |limit| {
            let reasons = self.failures(limit);
            Outcome { limit, passes: reasons.is_empty(), reasons }
        };
        let document = Document {
            schema: SCHEMA,
            version: VERSION,
            tool: env!("CARGO_PKG_VERSION"),
            before: &self.sides[0],
            after: &self.sides[1],
            metric: match self.metric {
                _ if self.rate => "latency",
                Metric::Ratio => "ratio",
                Metric::Throughput => "throughput",
            },
            noise: self.noise,
            cells: self.compared().collect(),
            differs: &self.differences,
            notes: &self.notes,
            models: &self.models,
            fail_if_slower: limit.map(outcome),
        };
        // Serialising cannot fail: all keys are strings.
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }

    /// Returns the comparison as CSV: one line for each figure of each cell, and one line for each cell
    /// without figures.
    pub(crate) fn csv(&self) -> String {
        let mut rows: Vec<Vec<Field>> = Vec::new();
        for compared in self.compared() {
            let c = compared.cell;
            let status = |s: Option<Status>| s.map_or(String::new(), |s| s.to_string());
            let figures = compared.figures.iter().map(Some);
            for f in figures.chain(compared.figures.is_empty().then_some(None)) {
                let figure = |of: fn(&Figure) -> Option<f64>| number(f.and_then(of));
                let mut row = vec![("engine", c.engine.clone()), kind(c, compared.model)];
                row.extend(shape(c));
                row.extend([
                    ("status_before", status(compared.status_before)),
                    ("status_after", status(compared.status_after)),
                    ("quantity", f.map_or(String::new(), |f| f.quantity.to_owned())),
                    ("before", figure(|f| Some(f.before))),
                    ("after", figure(|f| Some(f.after))),
                    ("change", figure(|f| f.change)),
                    ("chance", figure(|f| f.chance)),
                    ("verdict", f.map_or(String::new(), |f| f.verdict.to_owned())),
                    ("ended", compared.ended.unwrap_or_default().to_owned()),
                ]);
                rows.push(row);
            }
        }
        fields(&rows)
    }
}
