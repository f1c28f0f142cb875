//! The page of a comparison.

use maud::{Markup, html};

use super::page::{answer, whole};
use super::tables::{Entry, table, tag};
use crate::compare::{Comparison, Row, Verdict};
use crate::units::digits;

/// Returns an HTML page with everything that a comparison has.
#[must_use]
pub fn page(comparison: &Comparison, limit: Option<f64>) -> String {
    let failures = limit.map_or_else(Vec::new, |limit| comparison.failures(limit));
    let changed: Vec<&Row> = comparison.rows.iter().filter(|r| r.verdict == Verdict::Changed).collect();
    let body = html! {
        h1 { "dma-bench: before and after" }
        (answer(&comparison.lines(false)))
        @for failure in &failures { div.note { b { "Does not pass. " } (failure) } }
        @if !changed.is_empty() { h2 { "Changed" } (rows(&changed)) }
        @if !comparison.changes.is_empty() {
            h2 { "Ended differently" }
            ul { @for c in &comparison.changes {
                li.bad[c.worse] { b { (c.cell.to_string()) } (tag(c.model)) ": " (c.text) }
            } }
        }
        details open[changed.is_empty()] {
            summary { "All cells" }
            (rows(&comparison.rows.iter().collect::<Vec<_>>()))
        }
        @if !comparison.differences.is_empty() {
            h2 { "Other differences" }
            ul { @for d in &comparison.differences { li { (d.to_string()) } } }
        }
    };
    whole("dma-bench: before and after", body)
}

fn rows(all: &[&Row]) -> Markup {
    let columns = [
        ("cell", false),
        ("figure", false),
        ("before", true),
        ("after", true),
        ("change", true),
        ("chance of noise", true),
        ("verdict", false),
    ];
    let row = |r: &&Row| {
        let [name, before, after, change, chance, verdict] = r.cells();
        let number = |text: String, key: Option<f64>| Entry::number(text, key);
        let class = if r.verdict == Verdict::Changed && r.is_slower_by(0.0) { "bad" } else { "" };
        let row = vec![
            Entry::text(name),
            Entry::text(r.what()),
            number(before, Some(r.before)),
            number(after, Some(r.after)),
            number(change, r.change()),
            number(chance, r.chance),
            Entry::text(verdict),
        ];
        (class, row)
    };
    html! {
        (table(&columns, all.iter().map(row).collect()))
        p.explain {
            b { "x memcpy" } ": operations a second over those of memcpy beside it. " b { "GB/s" } ": 10" sup { "9" } " bytes a second. "
            b { "chance of noise" } ": the chance that samples of one source differ as much, corrected for the number of cells ("
            (digits(all.len() as f64)) " here)."
        }
    }
}
