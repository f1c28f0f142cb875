//! Tables of conclusions: verdicts, knees, set-up costs, time series, and models against published figures.

use std::fmt::Write as _;

use super::words::{curve, labelled};
use super::{Style, latency, printable, right};
use crate::results::{Cost, Measured, Published, Results};
use crate::units::{bytes, digits, gigabytes, nanos, per_second};
use crate::verdict::Verdict;

/// The most rows of a time series in a table.
const ROWS: usize = 20;

/// Lists the sizes at which engines are faster.
pub(super) fn verdicts(all: &[Verdict], style: Style) -> String {
    let mut text = String::new();
    for v in all {
        let against = if v.is_here() { String::new() } else { format!(", against {}", v.against) };
        let line = format!("{}{against}: {}", labelled(&curve(&v.curve), v.model), v.text);
        let _ = writeln!(text, "{}{}", style.bullet(), style.text(&line));
    }
    text
}

/// Returns a table of set-up costs.
pub(super) fn costs(all: &[Cost], style: Style) -> String {
    let mut table = style.rigid_table(&["engine", "step", "size", "p50", "p99", "max"], false);
    for c in all {
        let size = if c.size == 0 { "-".to_owned() } else { bytes(c.size) };
        let [p50, _, p99, _, max] = latency(Some(&c.time));
        table.add_row([style.text(&labelled(&c.engine, c.model)), c.what.clone(), size, p50, p99, max]);
    }
    right(&mut table, &[2, 3, 4, 5]);
    format!("{}\n", table.trim_fmt())
}

/// Returns a table of a time series. Long ones are split into [`ROWS`] parts, each represented by its slowest
/// interval.
pub(super) fn series(m: &Measured, style: Style) -> String {
    let mut table = style.rigid_table(&["seconds", "ops/s", "GB/s", "p50", "p99", "max", "waited"], false);
    let each = m.series.len().div_ceil(ROWS).max(1);
    for part in m.series.chunks(each) {
        let slowest = part.iter().min_by(|a, b| a.ops_per_second.total_cmp(&b.ops_per_second));
        let Some(s) = slowest else { continue };
        let time = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| nanos(ns as f64));
        table.add_row([
            digits(s.at),
            per_second(s.ops_per_second),
            gigabytes(s.ops_per_second * m.cell.size as f64),
            time(s.p50),
            time(s.p99),
            time(s.max),
            format!("{:.0} %", s.waited * 100.0),
        ]);
    }
    right(&mut table, &[0, 1, 2, 3, 4, 5, 6]);
    format!("{}\n", table.trim_fmt())
}

/// Returns a table of the smallest depths with 95 % of the best throughput.
pub(super) fn knees(results: &Results, style: Style) -> String {
    let mut table =
        style.table(&["engine", "size", "memory", "way", "queues", "depth", "GB/s there", "best GB/s"]);
    for k in &results.knees {
        table.add_row([
            style.text(&labelled(&k.engine, k.model)),
            bytes(k.size),
            k.footprint.to_string(),
            k.direction.to_string(),
            k.queues.to_string(),
            k.depth.to_string(),
            gigabytes(k.bytes_per_second),
            gigabytes(k.best),
        ]);
    }
    right(&mut table, &[1, 4, 5, 6, 7]);
    format!("{table}\n")
}

/// Returns a table of published figures beside the models'.
#[must_use]
pub fn published(rows: &[Published], style: Style) -> String {
    let mut table = style.table(&[
        "profile",
        "load",
        "way",
        "size",
        "figure",
        "published",
        "simulated",
        "off",
        "tolerance",
        "",
    ]);
    let mut sources: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !sources.contains(&(&row.profile, &row.source)) {
            sources.push((&row.profile, &row.source));
        }
        table.add_row([
            style.text(&row.profile),
            style.text(&row.load),
            style.text(&row.direction),
            bytes(row.size),
            style.text(&row.quantity),
            digits(row.published),
            digits(row.simulated),
            format!("{:+.1} %", (row.simulated / row.published - 1.0) * 100.0),
            format!("{:.0} %", row.tolerance * 100.0),
            if row.holds { "within" } else { "MISSED" }.to_owned(),
        ]);
    }
    right(&mut table, &[3, 5, 6, 7, 8]);
    let mut text = format!("{table}\n");
    for (profile, source) in sources {
        let _ = writeln!(text, "{}", printable(&format!("{profile}: published in {source}")));
    }
    text
}
