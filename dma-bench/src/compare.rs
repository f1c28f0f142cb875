//! `compare`: what changed between two results, with the chance that it is noise.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::cli::Metric;
use crate::plan::Cell;
use crate::results::{Measured, Results};
use crate::stats::{Figures, mann_whitney};
use crate::units::digits;

/// A cell that both results have.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub cell: Cell,
    /// Its figures are a model's.
    pub model: bool,
    /// The median before.
    pub before: f64,
    /// The median after.
    pub after: f64,
    /// The chance that samples as far apart come from the same source, corrected for the number of cells (Holm).
    pub chance: f64,
    /// It is no noise.
    pub significant: bool,
}

impl Row {
    /// How much greater it is after, as a fraction of before.
    #[must_use]
    pub fn change(&self) -> f64 {
        self.after / self.before - 1.0
    }
}

/// What changed.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Cells that both have.
    pub rows: Vec<Row>,
    /// What else is to be said.
    pub notes: Vec<String>,
    metric: Metric,
    noise: f64,
}

/// Compares two results. What is less likely than `noise` to come from nothing, all cells taken together, is called a change.
#[must_use]
pub fn compare(before: &Results, after: &Results, metric: Metric, noise: f64) -> Comparison {
    let figures = |m: &Measured| -> Option<Figures> {
        match metric {
            // The baseline's ratio is 1 by definition.
            Metric::Ratio if m.cell.is_baseline() => None,
            // A model does not depend on the machine, but the memcpy beside it does.
            Metric::Ratio if !m.model => m.ratio.clone(),
            _ => m.bytes_per_second.clone(),
        }
    };
    let virtual_clock = |results: &Results, m: &Measured| {
        results.engine(&m.cell.engine).is_some_and(|e| e.clock == "virtual")
    };
    let mut rows = Vec::new();
    let mut lost = Vec::new();
    for old in &before.cells {
        let new = after.cells.iter().find(|m| m.cell == old.cell);
        match (figures(old), new.and_then(figures)) {
            (Some(a), Some(b)) => {
                // A device on a clock of its own does the same every time: what differs has changed.
                let exact = virtual_clock(before, old) && virtual_clock(after, old);
                let differs = (b.median / a.median - 1.0).abs() > 1e-4;
                let chance = match (exact, differs) {
                    (true, true) => 0.0,
                    (true, false) => 1.0,
                    _ => mann_whitney(&a.samples, &b.samples),
                };
                let (model, cell) = (old.model, old.cell.clone());
                rows.push(Row { cell, model, before: a.median, after: b.median, chance, significant: false });
            }
            (Some(_), None) => lost.push(old.cell.to_string()),
            _ => {}
        }
    }
    holm(&mut rows, noise);
    let mut notes = Vec::new();
    if !lost.is_empty() {
        notes.push(format!("{} cells are in the first only, the first of them {}", lost.len(), lost[0]));
    }
    let differs =
        |what: &str, a: &str, b: &str| (a != b).then(|| format!("{what} differs: {a} before, {b} after"));
    let (a, b) = (&before.machine, &after.machine);
    notes.extend(differs("the processor", &a.cpu, &b.cpu));
    notes.extend(differs("the kernel", &a.kernel, &b.kernel));
    notes.extend(differs("the C library", &a.libc, &b.libc));
    notes.extend(differs("the version of dma-bench", &before.tool, &after.tool));
    for old in &before.engines {
        if let Some(new) = after.engine(&old.name) {
            notes.extend(differs(&format!("the version of {}", old.name), &old.version, &new.version));
            notes.extend(differs(
                &format!("the model behind {}", old.name),
                old.model.as_deref().unwrap_or("none"),
                new.model.as_deref().unwrap_or("none"),
            ));
        }
    }
    if before.campaign.verify != after.campaign.verify || before.campaign.rate != after.campaign.rate {
        notes.push("they were not measured in the same way: verification or rate differ".to_owned());
    }
    if before.interrupted || after.interrupted {
        notes.push("one of them was interrupted".to_owned());
    }
    let busy = |results: &Results| results.busy().is_some();
    if rows.iter().any(|r| !r.model) && (busy(before) || busy(after)) {
        notes.push("the machine was busy meanwhile: what differs may be due to that".to_owned());
    }
    let least = before.campaign.repetitions.min(after.campaign.repetitions);
    if least < 5 && rows.iter().any(|r| !r.model) {
        notes.push(format!(
            "{least} repetitions are too few to tell a change from noise; measure with -r 11 or more"
        ));
    }
    Comparison { rows, notes, metric, noise }
}

/// Corrects for the number of cells: of a hundred cells one is below 1 % by chance alone.
fn holm(rows: &mut [Row], noise: f64) {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| rows[*a].chance.total_cmp(&rows[*b].chance));
    let mut least = 0.0_f64;
    for (rank, &at) in order.iter().enumerate() {
        least = least.max((rows[at].chance * (rows.len() - rank) as f64).min(1.0));
        rows[at].chance = least;
        rows[at].significant = least <= noise;
    }
}

impl Comparison {
    /// Cells that are slower by more than `limit`, and it is no noise.
    pub fn slower_by(&self, limit: f64) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |r| r.significant && r.change() < -limit)
    }

    /// As a table.
    #[must_use]
    pub fn text(&self, all: bool) -> String {
        let mut table = Table::new();
        let metric = match self.metric {
            Metric::Ratio => "x memcpy",
            Metric::Throughput => "GB/s",
        };
        table
            .load_style(UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(["cell", &format!("{metric} before"), "after", "change", "chance of noise", ""]);
        let mut shown = 0;
        for row in self.rows.iter().filter(|r| all || r.significant) {
            shown += 1;
            let verdict = match (row.significant, row.change() < 0.0) {
                (false, _) => "noise",
                (true, true) => "slower",
                (true, false) => "faster",
            };
            let name = if row.model { format!("{} [model]", row.cell) } else { row.cell.to_string() };
            let (scale, unit) = match (self.metric, row.model) {
                (Metric::Ratio, false) => (1.0, ""),
                (Metric::Ratio, true) => (1e-9, " GB/s"),
                _ => (1e-9, ""),
            };
            table.add_row([
                name,
                format!("{}{unit}", digits(row.before * scale)),
                format!("{}{unit}", digits(row.after * scale)),
                format!("{:+.1} %", row.change() * 100.0),
                if row.chance < 1e-4 {
                    "< 0.01 %".to_owned()
                } else {
                    format!("{:.2} %", row.chance * 100.0)
                },
                verdict.to_owned(),
            ]);
        }
        for column in 1..5 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = String::new();
        if shown > 0 {
            let _ = writeln!(text, "{table}");
        }
        let changed = self.rows.iter().filter(|r| r.significant).count();
        let _ = writeln!(
            text,
            "{} cells compared by {metric}, {changed} changed (Mann-Whitney, corrected for the number of cells, at {} %)",
            self.rows.len(),
            self.noise * 100.0
        );
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
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

    #[test]
    fn the_same_results_have_not_changed() {
        let comparison = compare(&sample(), &sample(), Metric::Ratio, 0.01);
        // Four sizes of an engine and of a model: the baseline is not compared with itself, and what failed has no figures.
        assert_eq!(comparison.rows.len(), 8);
        assert!(comparison.rows.iter().all(|r| !r.significant));
        assert_eq!(comparison.slower_by(0.0).count(), 0);
        assert_eq!(comparison.notes, Vec::<String>::new());
        let throughput = compare(&sample(), &sample(), Metric::Throughput, 0.01);
        assert_eq!(throughput.rows.len(), 12, "here the baseline is");
    }

    /// The notes of a comparison after `change` to the later results.
    fn notes(change: impl FnOnce(&mut Results)) -> Vec<String> {
        let mut after = sample();
        change(&mut after);
        let there = compare(&sample(), &after, Metric::Ratio, 0.01).notes;
        let back = compare(&after, &sample(), Metric::Ratio, 0.01).notes;
        assert_eq!(there.len(), back.len(), "{there:?} {back:?}");
        there
    }

    #[test]
    fn what_else_differs_is_said() {
        type Change = fn(&mut Results);
        let changes: [(Change, &str); 10] = [
            (|r| "another".clone_into(&mut r.machine.cpu), "the processor differs"),
            (|r| "7.1".clone_into(&mut r.machine.kernel), "the kernel differs"),
            (|r| "3.0".clone_into(&mut r.machine.libc), "the C library differs"),
            (|r| "9.9".clone_into(&mut r.tool), "the version of dma-bench differs"),
            (|r| "2".clone_into(&mut r.engines[1].version), "the version of cpu differs: 1 before, 2 after"),
            (|r| r.campaign.verify = Verify::All, "not measured in the same way"),
            (|r| r.campaign.rate = Some(1e3), "not measured in the same way"),
            (|r| r.interrupted = true, "was interrupted"),
            (|r| r.cells.iter_mut().for_each(|m| m.waited = 0.5), "was busy meanwhile"),
            (|r| r.campaign.repetitions = 4, "4 repetitions are too few"),
        ];
        for (change, says) in changes {
            let notes = notes(change);
            assert!(matches!(&notes[..], [note] if note.contains(says)), "{says}: {notes:?}");
        }
        assert_eq!(notes(|r| r.campaign.repetitions = 5), Vec::<String>::new(), "these are enough");
        let model = notes(|r| {
            let engine = r.engines.iter_mut().find(|e| e.model.is_some()).unwrap();
            engine.model = Some("another".to_owned());
        });
        assert!(
            matches!(&model[..], [note] if note.contains("the model behind sim:profile=dsa")),
            "{model:?}"
        );
    }

    /// Few repetitions of a model say as much as many, and so do those on a busy machine.
    #[test]
    fn models_need_no_excuse() {
        let only_model = |mut results: Results| {
            results.cells.retain(|m| m.model);
            results.campaign.repetitions = 1;
            results.cells.iter_mut().for_each(|m| m.waited = 0.5);
            results
        };
        let comparison = compare(&only_model(sample()), &only_model(sample()), Metric::Ratio, 0.01);
        assert_eq!((comparison.rows.len(), &comparison.notes[..]), (4, &[][..]));
    }

    #[test]
    fn cells_that_are_gone_are_counted() {
        let mut after = sample();
        after.cells.retain(|m| m.cell.engine != "cpu" || m.cell.size > 4096);
        let comparison = compare(&sample(), &after, Metric::Ratio, 0.01);
        assert_eq!(comparison.rows.len(), 6);
        assert!(comparison.notes[0].starts_with("2 cells are in the first only"), "{:?}", comparison.notes);
        // What the later results have beyond that is nothing to compare with.
        assert_eq!(compare(&after, &sample(), Metric::Ratio, 0.01).notes, Vec::<String>::new());
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
        let significant = |after: &Results| {
            compare(&sample(), after, Metric::Ratio, 0.01).rows.iter().filter(|r| r.significant).count()
        };
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
        assert_eq!((comparison.slower_by(0.5).count(), comparison.slower_by(0.499).count()), (0, 4));
    }

    #[test]
    fn a_slowdown_is_found_and_a_small_one_tolerated() {
        // The samples lie within 12 % of each other.
        let comparison = compare(&sample(), &scaled(&sample(), "cpu", 0.7), Metric::Ratio, 0.02);
        assert_eq!(comparison.slower_by(0.05).count(), 4, "{}", comparison.text(true));
        assert_eq!(comparison.slower_by(0.5).count(), 0);
        let comparison = compare(&sample(), &scaled(&sample(), "cpu", 0.99), Metric::Ratio, 0.02);
        assert_eq!(comparison.slower_by(0.0).count(), 0, "that is noise");
        let faster = compare(&sample(), &scaled(&sample(), "cpu", 2.0), Metric::Ratio, 0.02);
        assert_eq!(faster.slower_by(0.0).count(), 0);
        assert!(faster.text(false).contains("faster"));
    }

    #[test]
    fn a_model_that_differs_has_changed_whatever_memcpy_did() {
        let mut after = scaled(&sample(), "sim:profile=dsa", 0.5);
        assert_eq!(
            compare(&sample(), &after, Metric::Ratio, 0.01).slower_by(0.0).count(),
            0,
            "that was memcpy"
        );
        for m in after.cells.iter_mut().filter(|m| m.model) {
            m.bytes_per_second = m.bytes_per_second.as_ref().map(|f| f.times(0.98));
        }
        assert_eq!(compare(&sample(), &after, Metric::Ratio, 0.01).slower_by(0.01).count(), 4);
    }

    #[test]
    fn the_correction_is_holms() {
        let row = |chance| Row {
            cell: sample().cells[0].cell.clone(),
            model: false,
            before: 1.0,
            after: 1.0,
            chance,
            significant: false,
        };
        let mut rows = vec![row(0.01), row(0.04), row(0.03)];
        holm(&mut rows, 0.05);
        let chances: Vec<f64> = rows.iter().map(|r| r.chance).collect();
        assert!(
            (chances[0] - 0.03).abs() < 1e-12
                && (chances[1] - 0.06).abs() < 1e-12
                && (chances[2] - 0.06).abs() < 1e-12
        );
        assert_eq!(rows.iter().filter(|r| r.significant).count(), 1);
    }
}
