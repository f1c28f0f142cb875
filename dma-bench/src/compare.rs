//! `compare`: what changed between two results, with the chance that it is noise.

mod differs;

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::cli::Metric;
use crate::derive::part_of_rate;
use crate::output::printable;
use crate::plan::Cell;
use crate::results::{Measured, Results, Status};
use crate::runner::passes;
use crate::stats::{Figures, attainable, blocks, mann_whitney};
use crate::units::{digits, nanos};

/// What a row compares.
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

/// What is to be thought of a difference.
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
}

/// A cell that both results have.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub cell: Cell,
    /// Its figures are a model's.
    pub model: bool,
    /// What is compared.
    pub quantity: Quantity,
    /// The median before.
    pub before: f64,
    /// The median after.
    pub after: f64,
    /// The chance that samples as far apart come from the same source, corrected for the number of cells (Holm).
    pub chance: f64,
    /// What that means.
    pub verdict: Verdict,
    /// How many independent samples there are of each.
    samples: (usize, usize),
    /// No sample of the one side lies among those of the other.
    apart: bool,
    /// How the chance is found.
    test: Test,
}

/// How the chance of a row is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    /// A clock of its own: any difference is a change.
    Exact,
    /// By the ranks of the samples.
    Ranks,
    /// Not at all.
    Untested,
}

/// How a cell ended otherwise than before.
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

/// What changed.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Cells that both have figures of.
    pub rows: Vec<Row>,
    /// Cells that ended otherwise than before, or are gone.
    pub changes: Vec<Change>,
    /// What else is to be said.
    pub notes: Vec<String>,
    /// What is a model, and of what.
    pub models: Vec<String>,
    metric: Metric,
    noise: f64,
    /// They were measured at a given rate.
    rate: bool,
}

/// How many changes are named without being asked for all.
const NAMED: usize = 10;

impl Row {
    /// How much greater it is after, as a fraction of before; `None` if it was nothing before.
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

    /// Whether it is slower by more than this fraction of before.
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

    fn figure(&self, value: f64, metric: Metric) -> String {
        match self.quantity {
            Quantity::Ratio => digits(value),
            Quantity::P50 | Quantity::P99 => nanos(value),
            // Beside ratios a throughput says what it is.
            Quantity::Throughput if metric == Metric::Ratio => format!("{} GB/s", digits(value * 1e-9)),
            Quantity::Throughput => digits(value * 1e-9),
        }
    }

    fn cells(&self, metric: Metric) -> [String; 6] {
        let verdict = match self.verdict {
            Verdict::Noise => "noise",
            Verdict::Untold => "cannot be told",
            Verdict::Untested => "not tested",
            Verdict::Changed if self.is_slower_by(0.0) => "slower",
            Verdict::Changed => "faster",
        };
        let chance = match self.chance {
            _ if self.verdict == Verdict::Untested => "-".to_owned(),
            chance if chance < 1e-4 => "< 0.01 %".to_owned(),
            chance => format!("{:.2} %", chance * 100.0),
        };
        [
            self.name(),
            self.figure(self.before, metric),
            self.figure(self.after, metric),
            self.change().map_or("-".to_owned(), |c| format!("{:+.1} %", c * 100.0)),
            chance,
            verdict.to_owned(),
        ]
    }
}

/// What a metric compares of a cell.
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

/// Compares two results. What is less likely than `noise` to come from nothing, all cells taken together, is called a change.
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
    let mut notes = differs::notes(before, after);
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
    Comparison { rows, changes, notes, models, metric, noise, rate }
}

/// A cell by what the metric compares.
fn row(before: &Results, after: &Results, old: &Measured, new: &Measured, metric: Metric) -> Option<Row> {
    let ((quantity, a), (_, b)) = (figures(old, metric)?, figures(new, metric)?);
    let virtual_clock =
        |results: &Results| results.engine(&old.cell.engine).is_some_and(|e| e.clock == "virtual");
    // A device on a clock of its own does the same every time: what differs has changed.
    let exact = virtual_clock(before) && virtual_clock(after);
    let differs = (b.median - a.median).abs() > 1e-4 * a.median.abs();
    // Repetitions of one visit are not independent.
    let parts = |f: &Figures, m: &Measured, results: &Results| {
        let visits = m.visits.unwrap_or_else(|| passes(&results.campaign)).max(1);
        blocks(&f.samples, PARTS.min(visits as usize))
    };
    let (x, y) = (parts(a, old, before), parts(b, new, after));
    let chance = if exact { f64::from(u8::from(!differs)) } else { mann_whitney(&x, &y) };
    Some(Row {
        cell: old.cell.clone(),
        model: old.model,
        quantity,
        before: a.median,
        after: b.median,
        chance,
        verdict: Verdict::Noise,
        samples: (x.len(), y.len()),
        apart: chance <= attainable(x.len(), y.len()) * (1.0 + 1e-9),
        test: if exact { Test::Exact } else { Test::Ranks },
    })
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
        chance: 1.0,
        verdict: Verdict::Untested,
        samples: (1, 1),
        apart: false,
        test: Test::Untested,
    };
    vec![row(Quantity::P50, a.p50, b.p50), row(Quantity::P99, a.p99, b.p99)]
}

/// What follows the name of a cell.
fn marked(model: bool) -> &'static str {
    if model { " [model]" } else { "" }
}

/// How bad an end is.
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

/// How a cell ended otherwise than before.
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

/// Corrects for the number of cells (Holm: of a hundred cells one is below 1 % by chance alone), and says what is to be thought of each. What is
/// exact takes no part in that.
fn judge(rows: &mut [Row], noise: f64) {
    let mut order: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].test == Test::Ranks).collect();
    order.sort_by(|a, b| rows[*a].chance.total_cmp(&rows[*b].chance));
    let (tested, mut least) = (order.len(), 0.0_f64);
    for (rank, at) in order.into_iter().enumerate() {
        let row = &mut rows[at];
        least = least.max((row.chance * (tested - rank) as f64).min(1.0));
        row.chance = least;
        row.verdict = match row.attainable() * tested as f64 {
            _ if least <= noise => Verdict::Changed,
            best if best > noise => Verdict::Untold,
            _ => Verdict::Noise,
        };
    }
    for row in rows.iter_mut().filter(|r| r.test == Test::Exact && r.chance == 0.0) {
        row.verdict = Verdict::Changed;
    }
}

/// How many repetitions on each side suffice to tell a change from noise in so many cells.
fn needed(cells: usize, noise: f64) -> Option<usize> {
    (1..=PARTS).find(|n| attainable(*n, *n) * cells as f64 <= noise)
}

/// What would have told those that cannot be told.
fn remedy(rows: &[Row], noise: f64) -> String {
    let tested = rows.iter().filter(|r| r.test == Test::Ranks).count();
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

    /// Whether a row is worth showing to somebody who did not ask for all.
    fn is_worth_showing(row: &Row) -> bool {
        match row.verdict {
            Verdict::Changed | Verdict::Untested => true,
            // They could not be further apart.
            Verdict::Untold => row.apart && row.before != row.after,
            Verdict::Noise => false,
        }
    }

    fn table(&self, all: bool) -> Option<Table> {
        let mut table = Table::new();
        let before = format!("{} before", self.what());
        table
            .load_style(UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(["cell", &before, "after", "change", "chance of noise", ""]);
        for row in self.rows.iter().filter(|r| all || Self::is_worth_showing(r)) {
            table.add_row(row.cells(self.metric));
        }
        for column in 1..5 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        (table.row_count() > 0).then_some(table)
    }

    fn what(&self) -> &'static str {
        match self.metric {
            _ if self.rate => "latency",
            Metric::Ratio => "x memcpy",
            Metric::Throughput => "GB/s",
        }
    }

    /// As a table, and what is to be said with it.
    #[must_use]
    pub fn text(&self, all: bool) -> String {
        let mut text = String::new();
        if let Some(table) = self.table(all) {
            let _ = writeln!(text, "{table}");
        }
        let _ = writeln!(text, "{}", self.summary());
        let named = if all { self.changes.len() } else { NAMED };
        for change in self.changes.iter().take(named) {
            let _ = writeln!(
                text,
                "{}",
                printable(&format!("{}{}: {}", change.cell, marked(change.model), change.text))
            );
        }
        if self.changes.len() > named {
            let _ = writeln!(
                text,
                "and {} more that ended otherwise: --all names them",
                self.changes.len() - named
            );
        }
        for model in &self.models {
            let _ = writeln!(text, "{}", printable(model));
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", printable(note));
        }
        text
    }

    fn summary(&self) -> String {
        if self.rate {
            return format!(
                "{} latencies compared: the rate is given, so throughput says nothing; there is one of each in a run, so nothing says which \
                 difference is noise",
                self.rows.len()
            );
        }
        let changed = self.rows.iter().filter(|r| r.verdict == Verdict::Changed).count();
        let mut text = format!(
            "{} cells compared by {}, {changed} changed (Mann-Whitney over the medians of up to {PARTS} parts of each run, corrected for the number of cells, at {} %)",
            self.rows.len(),
            self.what(),
            self.noise * 100.0
        );
        if self.rows.iter().any(|r| r.test == Test::Ranks) {
            text += "\nThe chance is about noise within these two runs. What differs from one run to the next (where memory lies, neighbours on the\n\
                     machine) is not in it: compare two runs of the same program to see how much that is here.";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Verify;
    use crate::results::tests::sample;

    fn scaled(results: &Results, engine: &str, by: f64) -> Results {
        let mut results = results.clone();
        for m in results.cells.iter_mut().filter(|m| m.cell.engine == engine) {
            m.ratio = m.ratio.as_ref().map(|f| f.times(by));
        }
        results
    }

    /// With so many repetitions, all in their places.
    fn repeated(mut results: Results, repetitions: u32) -> Results {
        results.campaign.repetitions = repetitions;
        for m in &mut results.cells {
            for figures in
                [&mut m.ratio, &mut m.bytes_per_second, &mut m.ops_per_second].into_iter().flatten()
            {
                let samples = figures.samples.iter().copied().cycle().take(repetitions as usize);
                *figures = Figures::of(samples.collect()).unwrap();
            }
        }
        results
    }

    fn changed(comparison: &Comparison) -> usize {
        comparison.rows.iter().filter(|r| r.verdict == Verdict::Changed).count()
    }

    fn slower(comparison: &Comparison, limit: f64) -> usize {
        comparison.slower(limit, Verdict::Changed).count()
    }

    #[test]
    fn the_same_results_have_not_changed() {
        let comparison = compare(&sample(), &sample(), Metric::Ratio, 0.01);
        // Four sizes of an engine and of a model: the baseline is not compared with itself, and what failed has no figures.
        assert_eq!(comparison.rows.len(), 8);
        assert!(comparison.rows.iter().all(|r| r.verdict == Verdict::Noise));
        assert_eq!((comparison.changes.len(), comparison.failures(0.0)), (0, vec![]));
        assert_eq!(comparison.notes, Vec::<String>::new());
        assert!(comparison.text(false).contains("sim:profile=dsa is a model: dsa (a public <source>)"));
        assert!(comparison.text(false).contains("noise within these two runs"));
        let throughput = compare(&sample(), &sample(), Metric::Throughput, 0.01);
        assert_eq!(throughput.rows.len(), 12, "here the baseline is");
    }

    /// The notes of a comparison after `change` to the later results.
    fn notes(change: impl FnOnce(&mut Results)) -> Vec<String> {
        let mut after = sample();
        change(&mut after);
        let there = compare(&sample(), &after, Metric::Throughput, 0.01).notes;
        let back = compare(&after, &sample(), Metric::Throughput, 0.01).notes;
        assert_eq!(there.len(), back.len(), "{there:?} {back:?}");
        there
    }

    #[test]
    fn what_else_differs_is_said() {
        type Change = fn(&mut Results);
        let changes: [(Change, &str); 28] = [
            (|r| "another".clone_into(&mut r.machine.cpu), "differs: processor "),
            (|r| r.machine.cpus = 6400, "/ 6400"),
            (|r| r.machine.flags = vec!["mops".to_owned()], "/ mops"),
            (|r| r.machine.caches = vec!["L9 1K".to_owned()], "/ L9 1K"),
            (|r| r.machine.memory *= 2, "differs: memory "),
            (|r| r.machine.virtual_machine ^= true, "differs: virtual machine "),
            (|r| "BeOS".clone_into(&mut r.machine.os), "/ BeOS"),
            (|r| "7.1".clone_into(&mut r.machine.kernel), "/ 7.1"),
            (|r| "3.0".clone_into(&mut r.machine.libc), "differs: C library "),
            (|r| "vax".clone_into(&mut r.machine.arch), "/ vax"),
            (|r| r.machine.governor = Some("odd".to_owned()), "differs: governor "),
            (|r| r.machine.huge_pages = Some("odd".to_owned()), "differs: huge pages "),
            (|r| "9.9".clone_into(&mut r.tool), "differs: version of dma-bench 0.1.0 / 9.9"),
            (|r| r.command.push("--realtime".to_owned()), "differs: --realtime no / yes"),
            (|r| "2".clone_into(&mut r.engines[1].version), "differs: version of cpu: 1 / 2"),
            (|r| "b".clone_into(&mut r.engines[1].device), "differs: device of cpu: a device / b"),
            (|r| r.engines[2].model = Some("b".to_owned()), "differs: model of sim:profile=dsa: "),
            (
                |r| "real".clone_into(&mut r.engines[2].clock),
                "differs: clock of sim:profile=dsa: virtual / real",
            ),
            (|r| r.campaign.footprint = Some(1 << 30), "differs: footprint none / 1 GiB"),
            (|r| r.campaign.seconds = 1.0, "differs: time of a repetition 800 us / 1.00 s"),
            (|r| r.campaign.passes = 12, "differs: passes 24 / 12"),
            (|r| r.campaign.warm_up = 1.0, "differs: warm-up 240 ms / 1.00 s"),
            (|r| r.campaign.verify = Verify::All, "differs: verification sample / all"),
            (|r| r.campaign.rate = Some(1e3), "differs: rate none / 1.00 k/s"),
            (|r| r.interrupted = true, "was interrupted"),
            (|r| r.cells.iter_mut().for_each(|m| m.waited = 0.5), "was busy meanwhile"),
            (|r| r.cells.iter_mut().for_each(|m| m.shared = 0.5), "was busy meanwhile"),
            (|r| r.cells.iter_mut().for_each(|m| m.moved = 0.5), "was busy meanwhile"),
        ];
        for (change, says) in changes {
            let notes = notes(change);
            assert!(matches!(&notes[..], [note] if note.contains(says)), "{says}: {notes:?}");
        }
        let count = notes(|r| r.campaign.count = Some(17));
        assert!(count.contains(&"differs: operations of a repetition none / 17".to_owned()), "{count:?}");
    }

    #[test]
    fn a_slowdown_that_cannot_be_told_does_not_pass() {
        let five = repeated(sample(), 5);
        let comparison = compare(&five, &scaled(&five, "cpu", 0.1), Metric::Ratio, 0.01);
        assert!(comparison.rows.iter().filter(|r| !r.model).all(|r| r.verdict == Verdict::Untold));
        assert!(
            comparison.rows.iter().filter(|r| r.model).all(|r| r.verdict == Verdict::Noise),
            "these are exact"
        );
        let text = comparison.text(false);
        assert!(text.contains("4 of 8 cells cannot be told from noise with so few repetitions"), "{text}");
        assert!(text.contains("(have 5 before and 5 after): measure both with -r 6 or more"), "{text}");
        assert!(text.contains("-90.0 %"), "they could not be further apart: {text}");
        let failures = comparison.failures(0.05);
        assert!(
            matches!(&failures[..], [why] if why.contains("4 cells look slower") && why.contains("-r 6")),
            "{failures:?}"
        );
        // What is not slower passes, told or not.
        assert_eq!(compare(&five, &scaled(&five, "cpu", 2.0), Metric::Ratio, 0.01).failures(0.05), [""; 0]);
        assert_eq!(compare(&five, &five, Metric::Ratio, 0.01).failures(0.0), [""; 0]);
        // With as many as it asks for the slowdown is found.
        let six = repeated(sample(), 6);
        let comparison = compare(&six, &scaled(&six, "cpu", 0.1), Metric::Ratio, 0.01);
        assert_eq!(slower(&comparison, 0.05), 4, "{}", comparison.text(true));
        // Nothing is as sure as that.
        let sure = compare(&six, &scaled(&six, "cpu", 0.1), Metric::Ratio, 0.0).text(false);
        assert!(sure.contains("greater --noise"), "{sure}");
    }

    /// Slices of one part lie close together, and differ less than parts do.
    #[test]
    fn drift_within_a_run_is_noise() {
        let drifting = |from: f64| {
            let mut results = sample();
            results.campaign.repetitions = 60;
            for m in results.cells.iter_mut().filter(|m| m.cell.engine == "cpu") {
                // In every part another speed, and within it hardly a difference.
                let sample = |i: usize| (from + 0.1 * ((i / 5 * 5) % 12) as f64) * (1.0 + 1e-6 * i as f64);
                m.ratio = Figures::of((0..60).map(sample).collect());
            }
            results
        };
        let (before, after) = (drifting(1.0), drifting(1.45));
        let (a, b) = (&before.cells[5].ratio, &after.cells[5].ratio);
        let (a, b) = (&a.as_ref().unwrap().samples, &b.as_ref().unwrap().samples);
        assert!(mann_whitney(a, b) < 1e-4, "slice by slice it would seem sure");
        let comparison = compare(&before, &after, Metric::Ratio, 0.01);
        assert_eq!(changed(&comparison), 0, "{}", comparison.text(true));
        let comparison = compare(&before, &drifting(4.0), Metric::Ratio, 0.01);
        assert_eq!(changed(&comparison), 4, "{}", comparison.text(true));
    }

    /// Few repetitions of a model say as much as many, and so do those on a busy machine.
    #[test]
    fn models_need_no_excuse() {
        let only_model = |mut results: Results| {
            results.cells.retain(|m| m.model);
            results.cells.iter_mut().for_each(|m| m.waited = 0.5);
            repeated(results, 1)
        };
        let comparison = compare(&only_model(sample()), &only_model(sample()), Metric::Ratio, 0.01);
        assert_eq!((comparison.rows.len(), &comparison.notes[..]), (4, &[][..]));
        assert!(!comparison.text(true).contains("noise within"));
    }

    #[test]
    fn cells_that_are_gone_are_named() {
        let mut after = sample();
        after.cells.retain(|m| m.cell.engine != "cpu" || m.cell.size > 4096);
        let comparison = compare(&sample(), &after, Metric::Ratio, 0.01);
        assert_eq!(comparison.rows.len(), 6);
        let text = comparison.text(false);
        assert!(text.contains("cpu copy 64 B q1 cold: is in the first only\n"), "{text}");
        assert!(text.contains("cpu copy 4 KiB q1 cold: is in the first only\n"), "{text}");
        let failures = comparison.failures(0.5);
        assert!(matches!(&failures[..], [why] if why.starts_with("2 cells ended worse")), "{failures:?}");
        // What the later results have beyond that is nothing to compare with.
        let back = compare(&after, &sample(), Metric::Ratio, 0.01);
        assert_eq!((back.notes.len(), back.changes.len()), (0, 0));
        // An engine that was not there says why.
        after.engines[1].error = Some("no such\x1b device".to_owned());
        let text = compare(&sample(), &after, Metric::Ratio, 0.01).text(false);
        assert!(text.contains("is in the first only: no such  device"), "{text}");
    }

    #[test]
    fn what_fails_now_does_not_pass() {
        let ended = |status: Status, figures: bool| {
            let mut after = sample();
            for m in after.cells.iter_mut().filter(|m| m.cell.engine == "cpu") {
                (m.status, m.message) = (status, Some("offset 7".to_owned()));
                if !figures {
                    (m.ratio, m.bytes_per_second, m.ops_per_second) = (None, None, None);
                }
            }
            after
        };
        let wrong = compare(&sample(), &ended(Status::Wrong, false), Metric::Ratio, 0.01);
        let text = wrong.text(false);
        let says = "cpu copy 4 KiB q1 cold: was ok and is wrong, without figures: offset 7";
        assert!(text.contains(says) && !text.contains("first only"), "{text}");
        let failures = wrong.failures(0.5);
        assert!(matches!(&failures[..], [why] if why.starts_with("4 cells ended worse")), "{failures:?}");
        let failed = compare(&sample(), &ended(Status::Failed, true), Metric::Ratio, 0.01);
        assert_eq!((failed.rows.len(), failed.failures(0.5).len()), (8, 1));
        assert!(failed.text(false).contains("was ok and is failed: offset 7"));
        // The other way it is no failure, and worth a word all the same.
        let mended = compare(&ended(Status::Failed, true), &sample(), Metric::Ratio, 0.01);
        assert!(mended.failures(0.0).is_empty() && mended.text(false).contains("was failed and is ok"));
        // Many are named on demand.
        let mut many = (sample(), ended(Status::Wrong, false));
        for results in [&mut many.0, &mut many.1] {
            let like: Vec<Measured> =
                results.cells.iter().filter(|m| m.cell.engine == "cpu").cloned().collect();
            for depth in 2..6 {
                results.cells.extend(like.iter().cloned().map(|mut m| {
                    m.cell.depth = depth;
                    m
                }));
            }
        }
        let many = compare(&many.0, &many.1, Metric::Ratio, 0.01);
        let named = |all: bool| many.text(all).matches("was ok and is wrong").count();
        assert_eq!((named(false), named(true)), (10, 20));
        assert!(many.text(false).contains("and 10 more"));
    }

    #[test]
    fn under_a_rate_latencies_are_compared() {
        let at_rate = |longer: u64| {
            let mut results = sample();
            results.campaign.rate = Some(1e3);
            for m in &mut results.cells {
                m.ratio = None;
                if let Some(latency) = &mut m.latency {
                    (latency.p50, latency.p99) = (latency.p50 * longer, latency.p99 * longer);
                }
            }
            results
        };
        let comparison = compare(&at_rate(1), &at_rate(3), Metric::Ratio, 0.01);
        assert_eq!(comparison.rows.len(), 16, "p50 and p99 of each that is no baseline");
        let text = comparison.text(false);
        assert!(text.contains("cpu copy 4 KiB q1 cold, p99") && text.contains("+200.0 %"), "{text}");
        assert!(!text.contains("GB/s") && text.contains("not tested"), "{text}");
        let failures = comparison.failures(0.5);
        assert!(matches!(&failures[..], [why] if why.starts_with("16 latencies")), "{failures:?}");
        assert_eq!(comparison.failures(2.0), [""; 0]);
        assert_eq!(compare(&at_rate(3), &at_rate(1), Metric::Ratio, 0.01).failures(0.0), [""; 0]);
        // A rate that is missed now.
        let mut slow = at_rate(1);
        let m = &mut slow.cells[5];
        m.ops_per_second = Figures::of(vec![500.0]);
        m.latency.as_mut().unwrap().p50 = 0;
        let mut fast = slow.clone();
        fast.cells[5].ops_per_second = Figures::of(vec![1000.0]);
        slow.campaign.seconds = 1.0;
        fast.campaign.seconds = 1.0;
        let missed = compare(&fast, &slow, Metric::Ratio, 0.01);
        assert!(
            missed.text(false).contains("reached all of the rate and reaches 50.0 %"),
            "{}",
            missed.text(false)
        );
        assert_eq!(
            (missed.failures(1.0).len(), compare(&slow, &fast, Metric::Ratio, 0.01).failures(1.0).len()),
            (1, 0)
        );
    }

    #[test]
    fn only_a_clock_of_its_own_on_both_sides_makes_figures_exact() {
        let slower = |clock: &str| {
            let mut results = sample();
            results
                .engines
                .iter_mut()
                .filter(|e| e.model.is_some())
                .for_each(|e| clock.clone_into(&mut e.clock));
            for m in results.cells.iter_mut().filter(|m| m.model) {
                m.bytes_per_second = m.bytes_per_second.as_ref().map(|f| f.times(0.99));
            }
            results
        };
        let significant = |after: &Results| changed(&compare(&sample(), after, Metric::Ratio, 0.01));
        assert_eq!(significant(&slower("virtual")), 4);
        assert_eq!(significant(&slower("real")), 0, "a hundredth is within its spread");
        // The same figures, each only once: nothing to tell by, but equal.
        let mut once = sample();
        for m in &mut once.cells {
            m.bytes_per_second = m.bytes_per_second.as_ref().and_then(|f| Figures::of(vec![f.median]));
        }
        let comparison = compare(&sample(), &once, Metric::Ratio, 0.01);
        assert!(comparison.rows.iter().filter(|r| r.model).all(|r| r.chance == 1.0));
    }

    #[test]
    fn a_limit_is_not_yet_beyond_it() {
        let half = scaled(&sample(), "cpu", 0.5);
        let comparison = compare(&sample(), &half, Metric::Ratio, 0.02);
        assert_eq!((slower(&comparison, 0.5), slower(&comparison, 0.499)), (0, 4));
    }

    #[test]
    fn what_was_nothing_has_no_percentage() {
        let nothing = scaled(&sample(), "cpu", 0.0);
        let there = compare(&nothing, &sample(), Metric::Ratio, 0.01);
        let back = compare(&sample(), &nothing, Metric::Ratio, 0.01);
        let same = compare(&nothing, &nothing, Metric::Ratio, 0.01);
        for comparison in [&there, &back, &same] {
            let text = comparison.text(true);
            assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
        }
        assert_eq!((slower(&there, 0.0), slower(&back, 0.5), slower(&same, 0.0)), (0, 4, 0));
        assert!(there.text(false).contains("faster"));
    }

    #[test]
    fn a_slowdown_is_found_and_a_small_one_tolerated() {
        // The samples lie within 12 % of each other.
        let comparison = compare(&sample(), &scaled(&sample(), "cpu", 0.7), Metric::Ratio, 0.02);
        assert_eq!(slower(&comparison, 0.05), 4, "{}", comparison.text(true));
        assert_eq!(slower(&comparison, 0.5), 0);
        let comparison = compare(&sample(), &scaled(&sample(), "cpu", 0.99), Metric::Ratio, 0.02);
        assert_eq!(slower(&comparison, 0.0), 0, "that is noise");
        let faster = compare(&sample(), &scaled(&sample(), "cpu", 2.0), Metric::Ratio, 0.02);
        assert_eq!(faster.failures(0.0), [""; 0]);
        assert!(faster.text(false).contains("faster"));
    }

    #[test]
    fn a_model_that_differs_has_changed_whatever_memcpy_did() {
        let mut after = scaled(&sample(), "sim:profile=dsa", 0.5);
        assert_eq!(slower(&compare(&sample(), &after, Metric::Ratio, 0.01), 0.0), 0, "that was memcpy");
        for m in after.cells.iter_mut().filter(|m| m.model) {
            m.bytes_per_second = m.bytes_per_second.as_ref().map(|f| f.times(0.98));
        }
        assert_eq!(slower(&compare(&sample(), &after, Metric::Ratio, 0.01), 0.01), 4);
    }

    #[test]
    fn the_correction_is_holms() {
        let row = |chance, test| Row {
            cell: sample().cells[0].cell.clone(),
            model: false,
            quantity: Quantity::Ratio,
            before: 1.0,
            after: 1.0,
            chance,
            verdict: Verdict::Noise,
            samples: (12, 12),
            apart: false,
            test,
        };
        // What is exact is not counted.
        let mut rows = vec![
            row(0.01, Test::Ranks),
            row(0.0, Test::Exact),
            row(0.04, Test::Ranks),
            row(0.03, Test::Ranks),
            row(1.0, Test::Exact),
        ];
        judge(&mut rows, 0.05);
        let expected = [0.03, 0.0, 0.06, 0.06, 1.0];
        assert!(rows.iter().zip(expected).all(|(r, e)| (r.chance - e).abs() < 1e-12), "{rows:?}");
        let changed: Vec<bool> = rows.iter().map(|r| r.verdict == Verdict::Changed).collect();
        assert_eq!(changed, [true, true, false, false, false]);
    }
}
