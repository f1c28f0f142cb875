//! The tables of a page.

use maud::{Markup, html};

use crate::output::{self, Grid, baseline, curve};
use crate::results::Results;
use crate::verdict::Verdict;

/// Renders a table that scrolls separately from the page and can be sorted by each column.
pub(super) fn table(grid: &Grid) -> Markup {
    let number = |at: usize| grid.has_numbers(at);
    html! {
        div.wide tabindex="0" {
            table.sortable {
                thead { tr { @for (at, name) in grid.header.iter().enumerate() { th.n[number(at)] scope="col" { (name) } } } }
                tbody {
                    @for (class, row) in &grid.rows {
                        tr class=[(!class.is_empty()).then_some(class)] {
                            @for (at, entry) in row.iter().enumerate() {
                                td.n[number(at)] .text[!number(at)] data-key=[entry.key] {
                                    (entry.text) (tag(entry.model))
                                    @if let Some((least, most)) = &entry.range { " " small { (least) "\u{2013}" (most) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders a mark beside a model's name.
pub(super) fn tag(model: bool) -> Markup {
    html! { @if model { " " span.tag { "model" } } }
}

/// Renders the figures of all measured cells or, with `models`, of all cells of models.
pub(super) fn figures(results: &Results, models: bool) -> Markup {
    html! {
        (table(&output::figures(&results.campaign, results.with_figures(models).collect())))
        p.explain {
            "Medians of the samples, with the smallest and the largest sample. "
            b { "depth" } ": operations in flight, by operations for each doorbell; of memcpy, buffers in turn. "
            b { "GB/s" } ": 10" sup { "9" } " bytes a second, each byte counted once. "
            b { "x memcpy" } ": operations a second over those of memcpy just before and after. "
            b { "p50 to p99.9" } ": that part of the latencies, from submission to completion, is shorter (ns, us, ms: 10"
            sup { "-9" } ", 10" sup { "-6" } ", 10" sup { "-3" } " seconds). "
            b { "CPU/op, CPU s/GB" } ": CPU time of the whole process for an operation and for 10" sup { "9" } " bytes. "
            b { "bells/op, polls/op" } ": doorbells and polls for each operation. KiB, MiB: 1024 and 1024 x 1024 bytes."
        }
    }
}

/// Renders the verdicts, with their intervals in a collapsed section.
pub(super) fn verdicts(results: &Results, models: bool) -> Markup {
    let all: Vec<&Verdict> = results.verdicts.iter().filter(|v| v.model == models).collect();
    html! {
        @if !all.is_empty() {
            ul { @for v in &all {
                li { b { (curve(&v.curve)) } (tag(v.model)) @if !v.is_here() { ", against " (v.against) } ": " (v.text) }
            } }
            details {
                summary { "The confidence intervals" }
                (table(&output::intervals(&all)))
                p.explain {
                    "The first rule that applies counts. As fast: the whole interval is within 5 % of 1. Faster: it is above 1.01. Slower: it is below 0.99. As fast: it is within 10 % of 1. Otherwise the size is not decided. "
                    "The chance that any of these verdicts is wrong is below 0.1 %."
                }
            }
        }
    }
}

pub(super) fn costs(results: &Results) -> Markup {
    html! { @if !results.costs.is_empty() {
        h2 { "Set-up costs" }
        (table(&output::costs(&results.costs)))
        p.explain { "Opening a queue; registering memory, allocation included; deregistering it." }
    } }
}

pub(super) fn knees(results: &Results) -> Markup {
    html! { @if !results.knees.is_empty() {
        h2 { "The knee: the smallest depth with 95 % of the best throughput" }
        (table(&output::knees(&results.knees)))
    } }
}

pub(super) fn published(results: &Results) -> Markup {
    let all = &results.published;
    let missed = all.iter().filter(|p| !p.holds).count();
    html! { @if !all.is_empty() {
        h2 { "Models against published figures" }
        p.dim { (all.len()) " figures, " (missed) " outside of the tolerance of the profile." }
        (table(&output::published(all)))
        ul { @for line in output::sources(all) { li { (line) } } }
    } }
}

/// Describes the buffers that memcpy uses beside engines with hot buffers.
pub(super) fn baselines(results: &Results) -> String {
    let mut names: Vec<String> = results
        .cells
        .iter()
        .filter(|m| m.cell.is_baseline())
        .map(|m| match (baseline(m.cell.depth, m.cell.footprint), m.cell.op.baseline()) {
            (name, "memcpy") => name,
            (name, other) => format!("{name} ({}: {other})", m.cell.op),
        })
        .collect();
    names.sort();
    names.dedup();
    names.join("; ")
}
