//! The page of a comparison.

use maud::{Markup, html};

use super::page::{answer, whole};
use super::tables::{table, tag};
use crate::compare::{Comparison, Verdict};

/// Returns an HTML page with everything that a comparison has.
pub(crate) fn page(comparison: &Comparison, limit: Option<f64>) -> String {
    let failures = limit.map_or_else(Vec::new, |limit| comparison.failures(limit));
    let changed = comparison.rows.iter().any(|r| r.verdict == Verdict::Changed);
    let body = html! {
        h1 { "dma-bench: before and after" }
        (answer(&comparison.lines(false)))
        @for failure in &failures { div.note { b { "Does not pass. " } (failure) } }
        @if changed { h2 { "Changed" } (rows(comparison, false)) }
        @if !comparison.changes.is_empty() {
            h2 { "Ended differently" }
            ul { @for c in &comparison.changes {
                li.bad[c.worse] { b { (c.cell.to_string()) } (tag(c.model)) ": " (c.text) }
            } }
        }
        details open[!changed] {
            summary { "All cells" }
            (rows(comparison, true))
        }
        @if !comparison.differences.is_empty() {
            h2 { "Other differences" }
            ul { @for d in &comparison.differences { li { (d.to_string()) } } }
        }
    };
    whole("dma-bench: before and after", body)
}

fn rows(comparison: &Comparison, all: bool) -> Markup {
    html! {
        @for grid in comparison.tables(|r| all || r.verdict == Verdict::Changed) { (table(&grid)) }
        p.explain {
            b { "x memcpy" } ": operations a second over those of memcpy beside it. " b { "GB/s" } ": 10" sup { "9" } " bytes a second. "
            b { "chance of noise" } ": the chance that samples of one source differ as much, corrected for the number of cells."
        }
    }
}
