//! Tables of figures: a row for each cell, a table for each kind of operation and memory.

use std::cmp::Reverse;

use super::grid::{Entry, Grid, Look};
use super::{Style, depth, latencies, speed, what};
use crate::plan::{Campaign, Cell};
use crate::results::{Measured, Results};
use crate::units::{bytes, digits, gigabytes, nanos};
use crate::verdict::stats::Figures;

const HEADER: [&str; 16] = [
    "what", "size", "engine", "depth", "GB/s", "ops/s", "x memcpy", "p50", "p90", "p99", "p99.9", "max",
    "CPU/op", "CPU s/GB", "bells/op", "polls/op",
];

/// The columns of wide tables. The first column is left out, because the title of the table contains it.
const WIDE: [usize; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// The columns of narrow tables, which fit 80 characters.
const NARROW: [usize; 7] = [1, 2, 3, 4, 6, 7, 9];

/// Sorts the rows of tables. With `ranked`, models and measurements share a table, and the fastest engine
/// for each size comes first.
fn sort(cells: &mut [&Measured], ranked: bool) {
    cells.sort_by_key(|m| {
        let c = &m.cell;
        let speed = m.ops_per_second.as_ref().filter(|_| ranked).map(|f| Reverse(f.median.to_bits()));
        (c.op, c.direction, c.footprint, c.segments, c.size, speed, c.depth, !c.is_baseline())
    });
}

/// Returns a table for each kind of operation and memory. Narrow tables have medians only.
pub(super) fn tables(
    campaign: &Campaign,
    cells: &mut [&Measured],
    style: Style,
    wide: bool,
    ranked: bool,
) -> String {
    sort(cells, ranked);
    let mut text = String::new();
    let (columns, look) = if wide { (&WIDE[..], Look::Ranges) } else { (&NARROW[..], Look::Bare) };
    for alike in cells.chunk_by(|a, b| what(&a.cell) == what(&b.cell)) {
        text += &style.title(&title(&alike[0].cell));
        text += &table(campaign, alike, ranked).columns(columns).print(style, look);
    }
    text
}

/// Names the kind of cells, and the baseline if it is not plain `memcpy`.
fn title(c: &Cell) -> String {
    match c.op.baseline() {
        "memcpy" => what(c),
        baseline => format!("{} (memcpy: {baseline})", what(c)),
    }
}

/// Returns the figures of all cells in one table, in which models are marked.
pub(crate) fn figures(campaign: &Campaign, mut cells: Vec<&Measured>) -> Grid {
    sort(&mut cells, false);
    table(campaign, &cells, true)
}

/// Returns the throughput in GB/s of the cells that several machines have measured, with one column for
/// each machine.
pub(crate) fn side_by_side(machines: &[(String, Results)]) -> Grid {
    let of = |results: &'_ Results, cell: &Cell| {
        let m = results.cells.iter().find(|m| m.cell == *cell)?;
        m.bytes_per_second.as_ref().map(|f| f.median)
    };
    let mut grid = Grid::new(&["what", "size", "engine", "depth"]);
    grid.header.extend(machines.iter().map(|(name, _)| name.clone()));
    let mut cells: Vec<&Measured> = Vec::new();
    for m in machines.iter().flat_map(|(_, results)| &results.cells) {
        if !cells.iter().any(|known| known.cell == m.cell) {
            cells.push(m);
        }
    }
    sort(&mut cells, false);
    for m in cells {
        let c = &m.cell;
        let figures: Vec<_> = machines.iter().map(|(_, results)| of(results, c)).collect();
        if figures.iter().flatten().count() < 2 {
            continue;
        }
        let mut row = vec![
            Entry::text(what(c)),
            Entry::number(bytes(c.size), Some(c.size as f64)),
            Entry::engine(&c.engine, m.model),
            Entry::number(depth(c), Some(f64::from(c.depth))),
        ];
        row.extend(figures.into_iter().map(|figure| Entry::known(figure, gigabytes)));
        grid.rows.push((if c.is_baseline() { "base" } else { "" }, row));
    }
    grid
}

fn table(campaign: &Campaign, cells: &[&Measured], marked: bool) -> Grid {
    let mut grid = Grid::new(&HEADER);
    let median = |f: &Option<Figures>| f.as_ref().map(|f| f.median);
    for m in cells {
        let c = &m.cell;
        let times = m.latency.as_ref().map(|l| [l.p50, l.p90, l.p99, l.p999, l.max]);
        let mut row = vec![
            Entry::text(what(c)),
            Entry::number(bytes(c.size), Some(c.size as f64)),
            Entry::engine(&c.engine, marked && m.model),
            Entry::number(depth(c), Some(f64::from(c.depth))),
            Entry::figures(m.bytes_per_second.as_ref(), 1e-9),
            Entry::number(speed(campaign, m), median(&m.ops_per_second)),
            Entry::figures(m.ratio.as_ref().filter(|_| !c.is_baseline()), 1.0),
        ];
        let latency = |(at, text)| Entry::number(text, times.map(|times| times[at] as f64));
        row.extend(latencies(m).into_iter().enumerate().map(latency));
        row.extend([
            Entry::known(median(&m.cpu_ns_per_op), nanos),
            Entry::known(median(&m.cpu_s_per_gb), digits),
            Entry::known(m.doorbells_per_op, digits),
            Entry::known(m.polls_per_op, digits),
        ]);
        grid.rows.push((if c.is_baseline() { "base" } else { "" }, row));
    }
    grid
}
