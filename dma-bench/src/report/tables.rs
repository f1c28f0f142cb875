//! The tables of a page.

use maud::{Markup, html};

use crate::output::{baseline, curve, depth, latencies, latency, sort, speed, what};
use crate::results::{Measured, Results};
use crate::stats::Figures;
use crate::units::{bytes, digits, gigabytes, nanos};
use crate::verdict::{Verdict, class};

/// A column: its heading, and true if it has numbers.
pub(super) type Column = (&'static str, bool);

/// An entry of a table: the text, and the key for sorting.
pub(super) struct Entry {
    shown: Markup,
    key: Option<f64>,
}

impl Entry {
    pub(super) fn text(text: impl AsRef<str>) -> Self {
        Self { shown: html! { (text.as_ref()) }, key: None }
    }

    pub(super) fn number(text: impl AsRef<str>, key: Option<f64>) -> Self {
        // Unknown values come last.
        Self { shown: html! { (text.as_ref()) }, key: Some(key.unwrap_or(f64::MAX)) }
    }
}

/// Renders a table that scrolls by itself and can be sorted by each column.
pub(super) fn table(columns: &[Column], rows: Vec<(&'static str, Vec<Entry>)>) -> Markup {
    html! {
        div.wide tabindex="0" {
            table.sortable {
                thead { tr { @for (name, number) in columns { th.n[*number] scope="col" { (name) } } } }
                tbody {
                    @for (class, row) in rows {
                        tr class=[(!class.is_empty()).then_some(class)] {
                            @for (entry, (_, number)) in row.iter().zip(columns) {
                                td.n[*number] .text[!*number] data-key=[entry.key] { (entry.shown) }
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

/// Renders the figures of all cells: measured ones, or those of models.
pub(super) fn figures(results: &Results, models: bool) -> Markup {
    let mut cells: Vec<&Measured> = results.with_figures(models).collect();
    sort(&mut cells, false);
    let columns = [
        ("what", false),
        ("size", true),
        ("engine", false),
        ("depth", true),
        ("GB/s", true),
        ("ops/s", true),
        ("\u{d7} memcpy", true),
        ("p50", true),
        ("p90", true),
        ("p99", true),
        ("p99.9", true),
        ("max", true),
        ("CPU/op", true),
        ("CPU s/GB", true),
        ("bells/op", true),
        ("polls/op", true),
    ];
    let median = |f: &Option<Figures>| f.as_ref().map(|f| f.median);
    let rows = cells.into_iter().map(|m| {
        let c = &m.cell;
        let times = latencies(m).into_iter().zip(
            m.latency
                .as_ref()
                .map_or([None; 5], |l| [l.p50, l.p90, l.p99, l.p999, l.max].map(|ns| Some(ns as f64))),
        );
        let ratio = m.ratio.as_ref().filter(|_| !c.is_baseline());
        let engine = Entry { shown: html! { (c.engine) (tag(m.model)) }, key: None };
        let mut row = vec![
            Entry::text(what(c)),
            Entry::number(bytes(c.size), Some(c.size as f64)),
            engine,
            Entry::number(depth(c), Some(f64::from(c.depth))),
            spread(m.bytes_per_second.as_ref(), 1e-9),
            Entry::number(speed(&results.campaign, m), median(&m.ops_per_second)),
            spread(ratio, 1.0),
        ];
        row.extend(times.map(|(text, key)| Entry::number(text, key)));
        let plain = |v: Option<f64>| Entry::number(v.map_or("-".to_owned(), digits), v);
        let cpu = median(&m.cpu_ns_per_op);
        row.extend([
            Entry::number(cpu.map_or("-".to_owned(), nanos), cpu),
            plain(median(&m.cpu_s_per_gb)),
            plain(m.doorbells_per_op),
            plain(m.polls_per_op),
        ]);
        (if c.is_baseline() { "base" } else { "" }, row)
    });
    html! {
        (table(&columns, rows.collect()))
        p.explain {
            "Medians of the repetitions, the least and the greatest beside them. "
            b { "depth" } ": operations in flight, by operations for each doorbell; of memcpy, buffers in turn. "
            b { "GB/s" } ": 10" sup { "9" } " bytes a second, each byte counted once. "
            b { "\u{d7} memcpy" } ": operations a second over those of memcpy just before and after. "
            b { "p50 to p99.9" } ": that part of the latencies, from submission to completion, is shorter (ns, us, ms: 10"
            sup { "-9" } ", 10" sup { "-6" } ", 10" sup { "-3" } " seconds). "
            b { "CPU/op, CPU s/GB" } ": CPU time of the whole process for an operation and for 10" sup { "9" } " bytes. "
            b { "bells/op, polls/op" } ": doorbells and polls for each operation. KiB, MiB: 1024 and 1024 x 1024 bytes."
        }
    }
}

fn spread(figures: Option<&Figures>, scale: f64) -> Entry {
    let of = |v: f64| digits(v * scale);
    let shown = html! {
        @match figures {
            Some(f) => { (of(f.median)) " " small { (of(f.min)) "\u{2013}" (of(f.max)) } }
            None => "-"
        }
    };
    Entry { shown, key: Some(figures.map_or(f64::MAX, |f| f.median)) }
}

/// Renders the verdicts, with their intervals behind a fold.
pub(super) fn verdicts(results: &Results, models: bool) -> Markup {
    let all: Vec<&Verdict> = results.verdicts.iter().filter(|v| v.model == models).collect();
    html! {
        @if !all.is_empty() {
            ul { @for v in &all {
                li { b { (curve(&v.curve)) } (tag(v.model)) @if !v.is_here() { ", against " (v.against) } ": " (v.text) }
            } }
            details {
                summary { "The confidence intervals" }
                (intervals(&all))
                p.explain {
                    "Faster: the whole interval is above 1.01. Slower: it is below 0.99. As fast: it is within 5 % of 1, or within 10 % and on both sides of it. Otherwise the size is not decided. "
                    "The chance that any of these verdicts is wrong is below 0.1 %."
                }
            }
        }
    }
}

fn intervals(all: &[&Verdict]) -> Markup {
    let rows = all.iter().flat_map(|v| {
        v.points.iter().map(|p| {
            let number = |v: Option<f64>| Entry::number(v.map_or("-".to_owned(), digits), v);
            let c = &v.curve;
            let name = if v.is_here() { curve(c) } else { format!("{}, {}", curve(c), v.against) };
            let row = vec![
                Entry::text(name),
                Entry::number(bytes(p.size), Some(p.size as f64)),
                number(Some(p.ratio)),
                number(p.low),
                number(p.high),
                Entry::text(class(p.class)),
            ];
            ("", row)
        })
    });
    let columns = [
        ("engine", false),
        ("size", true),
        ("median", true),
        ("from", true),
        ("to", true),
        ("verdict", false),
    ];
    table(&columns, rows.collect())
}

/// Renders the set-up costs.
pub(super) fn costs(results: &Results) -> Markup {
    let rows = results.costs.iter().map(|c| {
        let [p50, _, p99, _, max] = latency(Some(&c.time));
        let number = |text: String, ns: u64| Entry::number(text, Some(ns as f64));
        let size = if c.size == 0 { "-".to_owned() } else { bytes(c.size) };
        let row = vec![
            Entry { shown: html! { (c.engine) (tag(c.model)) }, key: None },
            Entry::text(&c.what),
            Entry::number(size, Some(c.size as f64)),
            number(p50, c.time.p50),
            number(p99, c.time.p99),
            number(max, c.time.max),
        ];
        ("", row)
    });
    let columns =
        [("engine", false), ("what", false), ("size", true), ("p50", true), ("p99", true), ("max", true)];
    html! { @if !results.costs.is_empty() {
        h2 { "Set-up costs" }
        (table(&columns, rows.collect()))
        p.explain { "Opening a queue; registering memory, allocation included; deregistering it." }
    } }
}

/// Renders the smallest depths with 95 % of the best throughput.
pub(super) fn knees(results: &Results) -> Markup {
    let rows = results.knees.iter().map(|k| {
        let row = vec![
            Entry { shown: html! { (k.engine) (tag(k.model)) }, key: None },
            Entry::number(bytes(k.size), Some(k.size as f64)),
            Entry::text(format!("{} {}", k.footprint, k.direction)),
            Entry::number(k.queues.to_string(), Some(f64::from(k.queues))),
            Entry::number(k.depth.to_string(), Some(f64::from(k.depth))),
            Entry::number(gigabytes(k.bytes_per_second), Some(k.bytes_per_second)),
            Entry::number(gigabytes(k.best), Some(k.best)),
        ];
        ("", row)
    });
    let columns = [
        ("engine", false),
        ("size", true),
        ("memory", false),
        ("queues", true),
        ("depth", true),
        ("GB/s there", true),
        ("best GB/s", true),
    ];
    html! { @if !results.knees.is_empty() {
        h2 { "The knee: the smallest depth with 95 % of the best throughput" }
        (table(&columns, rows.collect()))
    } }
}

/// Renders the comparison of models with published figures.
pub(super) fn published(results: &Results) -> Markup {
    let all = &results.published;
    let missed = all.iter().filter(|p| !p.holds).count();
    let rows = all.iter().map(|p| {
        let off = (p.simulated / p.published - 1.0) * 100.0;
        let row = vec![
            Entry::text(&p.profile),
            Entry::text(format!("{}, {}", p.load, p.direction)),
            Entry::number(bytes(p.size), Some(p.size as f64)),
            Entry::text(&p.quantity),
            Entry::number(digits(p.published), Some(p.published)),
            Entry::number(digits(p.simulated), Some(p.simulated)),
            Entry::number(format!("{off:+.1} %"), Some(off)),
            Entry::number(format!("{:.0} %", p.tolerance * 100.0), Some(p.tolerance)),
            Entry::text(&p.source),
        ];
        (if p.holds { "" } else { "bad" }, row)
    });
    let columns = [
        ("profile", false),
        ("load", false),
        ("size", true),
        ("figure", false),
        ("published", true),
        ("simulated", true),
        ("off", true),
        ("tolerance", true),
        ("source", false),
    ];
    html! { @if !all.is_empty() {
        h2 { "Models against published figures" }
        p.dim { (all.len()) " figures, " (missed) " outside of the tolerance of the profile." }
        (table(&columns, rows.collect()))
    } }
}

/// Describes the buffers of memcpy beside hot engines.
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
