//! What goes to the right: curves over the size, the depth, the operations for each doorbell, the queues and the segments.

use super::choose::{Candidate, thin};
use super::figures::{Pick, axis, bytes, number};
use super::key::Key;
use crate::output::{baseline, curve};
use crate::plan::Cell;
use crate::report::plot::{Axis, Height, Plot, Series};
use crate::results::{Measured, Results};
use crate::units;

pub(super) fn over_size(results: &Results, key: Key, pick: Pick) -> Option<Plot> {
    let mut plot = empty(axis("bytes of each operation", bytes, 2.0));
    let baselines: Vec<_> = results.cells.iter().filter(|m| key.has_baseline(m)).collect();
    // Hot, each depth has a baseline of its own, which goes through as many buffers.
    let (mut candidates, mut references) = (Vec::new(), Vec::new());
    for m in baselines {
        if let Some(figures) = pick(m) {
            let name = baseline(m.cell.depth, key.footprint);
            let family = (String::new(), 0);
            references.push(Candidate { name: name.clone(), family, at: m.cell.depth.into() });
            add(&mut plot.series, name, m.cell.size as f64, figures, true);
        }
    }
    for m in results.cells.iter().filter(|m| key.has(m)) {
        if let Some(figures) = pick(m) {
            let c = &m.cell;
            let family = (c.engine.clone(), c.queues);
            let at = u64::from(c.depth) << 32 | u64::from(c.batch);
            candidates.push(Candidate { name: curve(c), family, at });
            add(&mut plot.series, curve(c), c.size as f64, figures, false);
        }
    }
    let mut plot = finish(plot, 2)?;
    thin(&mut plot, &candidates, &references);
    Some(plot)
}

pub(super) fn over_depth(results: &Results, key: Key, pick: Pick) -> Option<Plot> {
    let mut plot = empty(axis("operations in flight", number, 2.0));
    let of_key = |m: &&Measured| key.has(m) && m.cell.queues == 1;
    let mut candidates = Vec::new();
    for m in results.cells.iter().filter(of_key).filter(|m| is_best_batch(results, m)) {
        if let Some(figures) = pick(m) {
            let name = format!("{} {}", m.cell.engine, units::bytes(m.cell.size));
            let family = (m.cell.engine.clone(), 1);
            candidates.push(Candidate { name: name.clone(), family, at: m.cell.size });
            add(&mut plot.series, name, f64::from(m.cell.depth), figures, false);
        }
    }
    let mut plot = finish(plot, 3)?;
    thin(&mut plot, &candidates, &[]);
    Some(plot)
}

/// What a plot can be over besides size and depth.
pub(super) struct Across {
    /// Its name for files and anchors.
    pub(super) id: &'static str,
    /// Its name in titles.
    pub(super) name: &'static str,
    /// Its name beside the axis.
    label: &'static str,
    /// How many there are of it in a cell,
    of: fn(&Cell) -> u32,
    /// and a cell where they are not to be told apart by it.
    without: fn(&Cell) -> Cell,
    /// How many values of it make a plot.
    least: usize,
}

/// Over the operations for each doorbell.
pub(super) const BATCHES: Across = Across {
    id: "batch-throughput",
    name: "operations for each doorbell",
    label: "operations for each doorbell",
    of: |c| c.batch,
    without: |c| Cell { batch: 1, ..c.clone() },
    least: 3,
};

/// Over the queues.
pub(super) const QUEUES: Across = Across {
    id: "queues-throughput",
    name: "queues",
    label: "queues, each with a thread of its own",
    of: |c| c.queues,
    without: |c| Cell { queues: 1, ..c.clone() },
    least: 2,
};

/// Over the segments of gathers.
pub(super) const SEGMENTS: Across = Across {
    id: "segments-throughput",
    name: "segments",
    label: "segments on each side of an operation",
    of: |c| c.segments,
    without: |c| Cell { segments: 1, ..c.clone() },
    least: 2,
};

pub(super) fn over(results: &Results, key: Key, across: &Across, pick: Pick) -> Option<Plot> {
    let mut plot = empty(axis(across.label, number, 2.0));
    let mut candidates = Vec::new();
    for m in results.cells.iter().filter(|m| key.has(m)) {
        if let Some(figures) = pick(m) {
            let c = &m.cell;
            // All of its name but what the plot is over.
            let whole = (across.without)(c);
            let name = format!("{}, {}", curve(&whole), units::bytes(c.size));
            let family = (c.engine.clone(), whole.queues);
            let at = c.size << 32 | u64::from(c.depth);
            candidates.push(Candidate { name: name.clone(), family, at });
            add(&mut plot.series, name, f64::from((across.of)(c)), figures, false);
        }
    }
    let mut plot = finish(plot, across.least)?;
    thin(&mut plot, &candidates, &[]);
    Some(plot)
}

/// Whether no other number of operations for each doorbell, all else alike, has a greater throughput. Of equals the first is the best.
pub(super) fn is_best_batch(results: &Results, m: &Measured) -> bool {
    let speed = |m: &Measured| m.bytes_per_second.as_ref().map_or(0.0, |f| f.median);
    let alike =
        results.cells.iter().filter(|other| Cell { batch: m.cell.batch, ..other.cell.clone() } == m.cell);
    let best = alike.reduce(|best, other| if speed(other) > speed(best) { other } else { best });
    best.is_none_or(|best| best.cell == m.cell)
}

pub(super) fn add(series: &mut Vec<Series>, name: String, x: f64, figures: Height, reference: bool) {
    let at = series.iter().position(|s| s.name == name).unwrap_or_else(|| {
        series.push(Series { name, points: Vec::new(), reference });
        series.len() - 1
    });
    series[at].points.push((x, figures));
}

pub(super) fn empty(x: Axis) -> Plot {
    let y = axis("", number, 10.0);
    Plot {
        id: String::new(),
        title: String::new(),
        note: String::new(),
        models: Vec::new(),
        x,
        y,
        series: Vec::new(),
        marks: Vec::new(),
        left_out: Vec::new(),
    }
}

/// With its points by x, each once.
pub(super) fn sorted(mut series: Series) -> Series {
    series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    series.points.dedup_by_key(|p| p.0.to_bits());
    series
}

/// Sorts the points; `None` if no engine has as many as `least`.
pub(super) fn finish(mut plot: Plot, least: usize) -> Option<Plot> {
    for series in &mut plot.series {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        series.points.dedup_by_key(|p| p.0.to_bits());
    }
    let many =
        |s: &Series| s.points.iter().map(|p| p.0.to_bits()).collect::<std::collections::HashSet<_>>().len();
    plot.series.retain(|s| s.reference || many(s) >= least);
    plot.series.iter().any(|s| !s.reference).then_some(plot)
}
