//! Tables of conclusions: verdicts, knees, set-up costs, time series, and models compared with published
//! figures.

use super::grid::{Entry, Grid, Look};
use super::words::{curve, labelled};
use super::{Style, latency};
use crate::results::{Cost, Knee, Measured, Published};
use crate::units::{bytes, digits, gigabytes, nanos, per_second, printable};
use crate::verdict::{Verdict, class};

/// Maximum number of rows of a time series in a table.
const MAX_SERIES_ROWS: usize = 20;

/// Lists the verdicts in words, one item for each curve.
pub(super) fn verdicts(all: &[Verdict], style: Style) -> String {
    let mut text = String::new();
    for v in all {
        let against = if v.is_here() { String::new() } else { format!(", against {}", v.against) };
        let line = format!("{}{against}: {}", labelled(&curve(&v.curve), v.model), v.text);
        text += &style.wrap(&format!("{}{}", style.bullet(), style.text(&line)));
    }
    text
}

pub(crate) fn intervals(all: &[&Verdict]) -> Grid {
    let of = |v: &Verdict| -> Vec<Vec<Entry>> {
        let c = curve(&v.curve);
        let name = if v.is_here() { c } else { format!("{c}, {}", v.against) };
        let row = |p: &crate::verdict::Point| {
            vec![
                Entry::text(&name),
                Entry::number(bytes(p.size), Some(p.size as f64)),
                Entry::known(Some(p.ratio), digits),
                Entry::known(p.low, digits),
                Entry::known(p.high, digits),
                Entry::text(class(p.class)),
            ]
        };
        v.points.iter().map(row).collect()
    };
    Grid::with(&["engine", "size", "median", "from", "to", "verdict"], all.iter().flat_map(|v| of(v)))
}

pub(crate) fn costs(all: &[Cost]) -> Grid {
    let row = |c: &Cost| {
        let size = if c.size == 0 { "-".to_owned() } else { bytes(c.size) };
        let [p50, _, p99, _, max] = latency(Some(&c.time));
        vec![
            Entry::engine(&c.engine, c.model),
            Entry::text(&c.what),
            Entry::number(size, Some(c.size as f64)),
            Entry::number(p50, Some(c.time.p50 as f64)),
            Entry::number(p99, Some(c.time.p99 as f64)),
            Entry::number(max, Some(c.time.max as f64)),
        ]
    };
    Grid::with(&["engine", "step", "size", "p50", "p99", "max"], all.iter().map(row))
}

/// Returns a table of a time series. A long series is split into [`MAX_SERIES_ROWS`] parts, each represented
/// by its slowest interval.
pub(super) fn series(m: &Measured, style: Style) -> String {
    let each = m.series.len().div_ceil(MAX_SERIES_ROWS).max(1);
    let slowest = m.series.chunks(each).filter_map(crate::results::slowest);
    let time = |ns: Option<u64>| Entry::known(ns.map(|ns| ns as f64), nanos);
    let row = |s: &crate::results::Moment| {
        let rate = Some(s.ops_per_second);
        vec![
            Entry::known(Some(s.at), digits),
            Entry::known(rate, per_second),
            Entry::known(rate.map(|rate| rate * m.cell.size as f64), gigabytes),
            time(s.p50),
            time(s.p99),
            time(s.max),
            Entry::known(Some(s.run_delay), |delay| format!("{:.0} %", delay * 100.0)),
        ]
    };
    let header = ["seconds", "ops/s", "GB/s", "p50", "p99", "max", "waited"];
    Grid::with(&header, slowest.map(row)).print(style, Look::Bare)
}

/// Returns a table of the smallest depths with 95 % of the best throughput.
pub(crate) fn knees(all: &[Knee]) -> Grid {
    let row = |k: &Knee| {
        vec![
            Entry::engine(&k.engine, k.model),
            Entry::number(bytes(k.size), Some(k.size as f64)),
            Entry::text(k.footprint.to_string()),
            Entry::text(k.direction.to_string()),
            Entry::number(k.queues.to_string(), Some(f64::from(k.queues))),
            Entry::number(k.depth.to_string(), Some(f64::from(k.depth))),
            Entry::known(Some(k.bytes_per_second), gigabytes),
            Entry::known(Some(k.best), gigabytes),
        ]
    };
    let header = ["engine", "size", "memory", "way", "queues", "depth", "GB/s there", "best GB/s"];
    Grid::with(&header, all.iter().map(row))
}

/// Returns a table of published figures beside the figures of the models.
pub(crate) fn published(rows: &[Published]) -> Grid {
    let mut grid = Grid::new(&[
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
    for p in rows {
        let off = (p.simulated / p.published - 1.0) * 100.0;
        let row = vec![
            Entry::text(&p.profile),
            Entry::text(&p.load),
            Entry::text(&p.direction),
            Entry::number(bytes(p.size), Some(p.size as f64)),
            Entry::text(&p.quantity),
            Entry::known(Some(p.published), digits),
            Entry::known(Some(p.simulated), digits),
            Entry::known(Some(off), |off| format!("{off:+.1} %")),
            Entry::known(Some(p.tolerance), |part| format!("{:.0} %", part * 100.0)),
            Entry::text(if p.holds { "within" } else { "MISSED" }),
        ];
        grid.rows.push((if p.holds { "" } else { "bad" }, row));
    }
    grid
}

/// Returns the source of each profile's published figures, one line for each profile.
pub(crate) fn sources(rows: &[Published]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for row in rows {
        let line = printable(&format!("{}: published in {}", row.profile, row.source));
        if !all.contains(&line) {
            all.push(line);
        }
    }
    all
}

/// Returns the table of published figures, and their sources.
pub(crate) fn published_text(rows: &[Published], style: Style) -> String {
    let table = published(rows).print(style, Look::Bare);
    sources(rows).into_iter().fold(table, |text, line| text + &style.wrap(&line))
}
