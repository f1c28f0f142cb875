//! The HTML page: the answer in words, a plot for each question, and then the figures.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::NO_PLOT;
use super::draw::Plot;
use super::plots::{Question, questions};
use super::tables::{baselines, costs, figures, knees, published, table, tag, verdicts};
use super::theme::variables;
use crate::compare::{Comparison, Significance};
use crate::output::side_by_side;
use crate::results::Results;
use crate::results::notes::several;
use crate::units::{command_line, digits, nanos};

/// Returns a whole page with this body. The page loads nothing. Its one script sorts tables.
pub(super) fn whole(title: &str, body: Markup) -> String {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy);
                title { (title) }
                style { (PreEscaped(variables())) (PreEscaped(include_str!("style.css"))) }
            }
            body {
                main { (body) }
                script { (PreEscaped(include_str!("sort.js"))) }
            }
        }
    };
    page.into_string()
}

/// Returns an HTML page with all results.
pub(crate) fn page(results: &Results) -> Result<String, String> {
    let body = html! {
        h1 { "DMA engines against memcpy" }
        (body(results, "")?)
    };
    Ok(whole(&format!("dma-bench: {}", results.campaign.name), body))
}

/// Returns one HTML page for the results of several named machines: first the summaries side by side, then
/// all results of each machine.
pub(crate) fn merged(machines: &[(String, Results)]) -> Result<String, String> {
    let id = |at: usize| format!("machine-{}", at + 1);
    let mut parts = Vec::new();
    for (at, (name, results)) in machines.iter().enumerate() {
        let body = body(results, &format!("{}-", id(at)))?;
        parts.push(html! { section id=(id(at)) { h1 { (name) } (body) } });
    }
    let together = side_by_side(machines);
    let body = html! {
        h1 { "DMA engines against memcpy, on " (machines.len()) " machines" }
        @for (at, (name, results)) in machines.iter().enumerate() {
            h2 { a href=(format!("#{}", id(at))) { (name) } ": " (results.machine.cpu) ", " (results.machine.cpus) " CPUs" }
            (answer(&results.summary))
        }
        @if !together.rows.is_empty() {
            h2 id="side-by-side" { "The same cells on all machines, in GB/s" }
            (table(&together))
            p.explain { "GB/s: 10" sup { "9" } " bytes a second, medians of the samples. Cells that only one machine measured are left out." }
        }
        @for part in parts { (part) }
    };
    Ok(whole("dma-bench: several machines", body))
}

/// Returns all results of one machine. The ids of the sections begin with `prefix`.
fn body(results: &Results, prefix: &str) -> Result<Markup, String> {
    let measured = results.with_figures(false).any(|m| !m.cell.is_baseline());
    let modelled = results.engines.iter().any(|e| e.model.is_some());
    Ok(html! {
        (answer(&results.summary))
        @for note in results.stopped().into_iter().chain(results.notes()) { div.note { (note) } }
        (machine(results))
        @if measured {
            h2 id=(format!("{prefix}measured")) { "Measured" }
            (verdicts(results, false))
            (plots(&questions(results, false), prefix)?)
            details { summary { "All figures" } (figures(results, false)) }
        } @else if !modelled {
            p.dim { (NO_PLOT) "." }
        }
        @if modelled {
            h2 id=(format!("{prefix}models")) { "Models" }
            div.note {
                b { "Not measured." } " These devices are simulated. Each models the device named beside it, with the source of its figures: "
                @for e in &results.engines { @if let Some(model) = &e.model { code { (e.name) } ": " (model) ". " } }
                "The memcpy beside them was measured on this machine."
            }
            (verdicts(results, true))
            (plots(&questions(results, true), prefix)?)
            details { summary { "All figures of models" } (figures(results, true)) }
        }
        (knees(results))
        (costs(results))
        (published(results))
        (troubles(results))
        (how(results, prefix))
    })
}

/// Renders the summary. An indented line belongs to the last unindented line before it.
pub(super) fn answer(lines: &[String]) -> Markup {
    html! { div.summary { @for line in lines {
        p.in[line.starts_with(' ')] { (line.trim_start()) }
    } } }
}

fn machine(results: &Results) -> Markup {
    let m = &results.machine;
    // Converts `2026-01-02T03:04:05Z` to `2026-01-02 03:04:05 UTC`.
    let date = results.created.replace('T', " ").replace('Z', " UTC");
    html! {
        p.dim {
            (m.cpu) " with " (m.cpus) " CPUs" @if m.virtual_machine { ", a virtual machine" } "; " (m.os) "; Linux " (m.kernel) "; "
            (m.libc) "; " span.date { (date) }
        }
        pre { (command_line(&results.command)) }
    }
}

/// Renders the first plot of each question, and the other plots in a collapsed section.
fn plots(questions: &[Question], prefix: &str) -> Result<Markup, String> {
    Ok(html! { @for q in questions {
        @if let [first, others @ ..] = q.plots.as_slice() {
            (figure(first, prefix)?)
            @if !others.is_empty() {
                details {
                    summary { "More of: " (q.title) " (" (others.len()) ")" }
                    @for plot in others { (figure(plot, prefix)?) }
                }
            }
        }
    } })
}

fn figure(plot: &Plot, prefix: &str) -> Result<Markup, String> {
    Ok(html! { figure id=(format!("{prefix}{}", plot.id)) {
        h3 { (plot.title) (tag(plot.model)) }
        p.explain { (plot.note) }
        div.plot {
            (PreEscaped(plot.inline()?))
            ul.legend { @for (at, series) in plot.series.iter().enumerate() {
                li { span style={ "background: var(" (plot.variable(at)) ")" } {} (series.name) }
            } }
        }
    } })
}

fn troubles(results: &Results) -> Markup {
    let all = results.troubles();
    html! { @if !all.is_empty() {
        h2 { "Failed or incomplete" }
        ul { @for (why, what) in all { li {
            b { (several(&what)) } ": " (why)
            @if what.len() > 1 { details { summary { "All " (what.len()) } (what.join(", ")) } }
        } } }
    } }
}

fn how(results: &Results, prefix: &str) -> Markup {
    let (m, c) = (&results.machine, &results.campaign);
    let left_out: u64 = results.cells.iter().filter(|m| !m.cell.is_baseline()).map(|m| m.left_out).sum();
    let verified: u64 = results.cells.iter().map(|m| m.verified).sum();
    let unknown = || "not known".to_owned();
    let mut rows = vec![
        ("instructions".to_owned(), m.flags.join(" ")),
        ("caches".to_owned(), m.caches.join(", ")),
        ("NUMA nodes".to_owned(), if m.nodes.is_empty() { unknown() } else { m.nodes.join("; ") }),
        ("memory".to_owned(), format!("{} MiB", m.memory >> 20)),
        ("governor".to_owned(), m.governor.clone().unwrap_or_else(unknown)),
        ("huge pages".to_owned(), m.huge_pages.clone().unwrap_or_else(unknown)),
        ("load before".to_owned(), m.load.map_or_else(unknown, digits)),
        ("baselines".to_owned(), baselines(results)),
    ];
    for e in results.engines.iter().filter(|e| e.error.is_none()) {
        rows.push((e.name.clone(), format!("{}, version {}, {} clock", e.device, e.version, e.clock)));
    }
    html! {
        h2 id=(format!("{prefix}how")) { "Conditions of the measurement" }
        p {
            "Each sample of an engine lies between two of memcpy (the C library's, on one core). Its ratio is relative to these two, so that drift of the machine cancels out. Up to "
            (c.samples) " samples of about " (nanos(c.seconds * 1e9)) " each, in up to " (c.planned_passes()) " passes over all cells"
            @if let Some(limit) = c.limit { ", none of which began after " (digits(limit)) " s" }
            ". " (left_out) " samples are left out because something disturbed them. The bytes of " (verified)
            " operations were compared. dma-bench " (results.tool) ", " (digits(results.seconds)) " s in all."
        }
        div.wide tabindex="0" { table { tbody { @for (name, value) in rows {
            tr { td { (name) } td.text { (value) } }
        } } } }
        details {
            summary { "The campaign, to be run again with " code { "dma-bench run --campaign FILE" } }
            pre tabindex="0" { (toml::to_string(c).unwrap_or_default()) }
        }
    }
}

/// Returns an HTML page with the whole comparison.
pub(crate) fn compared(comparison: &Comparison, limit: Option<f64>) -> String {
    let failures = limit.map_or_else(Vec::new, |limit| comparison.failures(limit));
    let changed = comparison.rows.iter().any(|r| r.verdict == Significance::Changed);
    let body = html! {
        h1 { "dma-bench: before and after" }
        (answer(&comparison.lines(false)))
        @for failure in &failures { div.note { b { "Does not pass. " } (failure) } }
        @if changed { h2 { "Changed" } (compared_rows(comparison, false)) }
        @if !comparison.changes.is_empty() {
            h2 { "Ended differently" }
            ul { @for c in &comparison.changes {
                li.bad[c.worse] { b { (c.cell.to_string()) } (tag(c.model)) ": " (c.text) }
            } }
        }
        details open[!changed] {
            summary { "All cells" }
            (compared_rows(comparison, true))
        }
        @if !comparison.differences.is_empty() {
            h2 { "Other differences" }
            ul { @for d in &comparison.differences { li { (d.to_string()) } } }
        }
    };
    whole("dma-bench: before and after", body)
}

fn compared_rows(comparison: &Comparison, all: bool) -> Markup {
    html! {
        @for grid in comparison.tables(|r| all || r.verdict == Significance::Changed) { (table(&grid)) }
        p.explain {
            b { "x memcpy" } ": operations a second over those of memcpy beside it. " b { "GB/s" } ": 10" sup { "9" } " bytes a second. "
            b { "chance of noise" } ": the chance that samples of one source differ as much, corrected for the number of cells."
        }
    }
}
