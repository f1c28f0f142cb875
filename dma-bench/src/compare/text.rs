//! Comparisons as text: tables, and the notes with them.

use std::fmt::Write as _;

use super::{Comparison, MAX_BLOCKS, Quantity, Row, Significance, marked};
use crate::output::{Entry, Grid, Look, Style};
use crate::units::{digits, nanos, printable};

/// Maximum number of changes that are named without `--all`.
const MAX_NAMED_CHANGES: usize = 10;

/// The kinds of figures. Each kind has a table.
const TABLES: [&str; 3] = ["x memcpy", "GB/s", "latency"];

impl Row {
    /// Returns the entry of [`TABLES`] that the row belongs to.
    fn what(&self) -> &'static str {
        TABLES[match self.quantity {
            Quantity::Ratio => 0,
            Quantity::Throughput => 1,
            Quantity::P50 | Quantity::P99 => 2,
        }]
    }

    fn figure(&self, value: f64) -> String {
        match self.quantity {
            Quantity::Ratio => digits(value),
            Quantity::Throughput => digits(value * 1e-9),
            Quantity::P50 | Quantity::P99 => nanos(value),
        }
    }

    /// Returns the row of a table, with its class.
    fn entries(&self) -> (&'static str, Vec<Entry>) {
        let verdict = match self.verdict {
            Significance::Noise => "noise",
            Significance::Undecidable => "cannot be told",
            Significance::Untested => "not tested",
            Significance::Same => "the same",
            Significance::OtherConditions => "other conditions",
            Significance::Changed if self.is_slower_by(0.0) => "slower",
            Significance::Changed => "faster",
        };
        let chance = |chance: f64| match chance {
            chance if chance < 1e-4 => "< 0.01 %".to_owned(),
            chance => format!("{:.2} %", chance * 100.0),
        };
        let row = vec![
            Entry::text(self.name()),
            Entry::known(Some(self.before), |value| self.figure(value)),
            Entry::known(Some(self.after), |value| self.figure(value)),
            Entry::known(self.change(), |change| format!("{:+.1} %", change * 100.0)),
            Entry::known(self.chance, chance),
            Entry::text(verdict),
        ];
        (if verdict == "slower" { "bad" } else { "" }, row)
    }

    /// Returns true if the row is shown without `--all`.
    fn is_worth_showing(&self) -> bool {
        match self.verdict {
            Significance::Changed | Significance::Untested => true,
            // These samples do not overlap at all.
            Significance::Undecidable => self.apart && self.before != self.after,
            Significance::Noise | Significance::Same | Significance::OtherConditions => false,
        }
    }
}

impl Comparison {
    /// Returns a table for each kind of figures, with the rows that `shown` selects.
    pub(crate) fn tables(&self, shown: impl Fn(&Row) -> bool) -> Vec<Grid> {
        let table = |what| {
            let header = [format!("{what} before"), format!("{what} after")];
            let mut grid = Grid::new(&["cell", &header[0], &header[1], "change", "chance of noise", ""]);
            grid.rows = self.rows.iter().filter(|r| r.what() == what && shown(r)).map(Row::entries).collect();
            grid
        };
        TABLES.into_iter().map(table).filter(|grid| !grid.rows.is_empty()).collect()
    }

    fn print(&self, all: bool, style: Style) -> impl Iterator<Item = String> {
        let tables = self.tables(|row| all || row.is_worth_showing());
        tables.into_iter().map(move |grid| grid.print(style, Look::Wrapped))
    }

    pub(crate) fn text(&self, all: bool, style: Style) -> String {
        let mut text = String::new();
        self.print(all, style).for_each(|table| text += &table);
        self.lines(all).iter().for_each(|line| text += &style.wrap(line));
        text
    }

    /// Returns the comparison as Markdown, for example for a comment on a pull request. With a
    /// limit, it begins with the outcome of `--fail-if-slower`.
    pub(crate) fn markdown(&self, all: bool, limit: Option<f64>) -> String {
        let mut text = String::new();
        self.print(all, Style::Markdown).for_each(|table| text += &(table + "\n"));
        let mut lines = self.lines(all);
        if let Some(limit) = limit {
            let failures = self.failures(limit);
            let what = format!("--fail-if-slower {} %", limit * 100.0);
            if failures.is_empty() {
                lines.insert(0, format!("passes {what}"));
            } else {
                lines.splice(0..0, failures.into_iter().map(|why| format!("does not pass {what}: {why}")));
            }
        }
        for line in lines {
            let _ = writeln!(text, "- {}", Style::Markdown.text(&line));
        }
        text
    }

    pub(crate) fn lines(&self, all: bool) -> Vec<String> {
        let mut lines = self.summary();
        let named = if all { self.changes.len() } else { MAX_NAMED_CHANGES };
        for change in self.changes.iter().take(named) {
            lines.push(printable(&format!("{}{}: {}", change.cell, marked(change.model), change.text)));
        }
        if self.changes.len() > named {
            lines.push(format!(
                "and {} more that ended differently; --all names them",
                self.changes.len() - named
            ));
        }
        lines.extend(self.models.iter().map(|model| printable(model)));
        lines.extend(self.differences.iter().map(|differs| printable(&format!("note: {differs}"))));
        lines.extend(self.notes.iter().map(|note| printable(&format!("note: {note}"))));
        lines
    }

    fn summary(&self) -> Vec<String> {
        if self.rate {
            return vec![format!(
                "{} latencies compared. The rate is given, so throughput is not compared. A run has one figure of each, so nothing tells \
                 changes from noise",
                self.rows.len()
            )];
        }
        let of = |what| match self.rows.iter().filter(|r| r.what() == what).count() {
            0 => None,
            n => Some(format!("{n} by {what}")),
        };
        let kinds: Vec<String> = TABLES.into_iter().filter_map(of).collect();
        let by = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        let changed = self.rows.iter().filter(|r| r.verdict == Significance::Changed).count();
        let mut lines = vec![format!("{} cells compared{by}, {changed} changed", self.rows.len())];
        if self.rows.iter().any(|r| r.chance.is_some()) {
            lines[0] += &format!(
                " (Mann-Whitney over the medians of up to {MAX_BLOCKS} blocks of each run, corrected for the number of cells, at {} %)",
                self.noise * 100.0
            );
            lines.push(
                "The chance is about noise within these two runs. Differences from run to run (position of memory, other tenants of the machine) \
                 are not in it: compare two runs of the same program to see them."
                    .to_owned(),
            );
        }
        lines
    }
}
