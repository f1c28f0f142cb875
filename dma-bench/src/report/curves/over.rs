//! What goes to the right: curves over the size, the depth and the operations for each doorbell.

use super::choose::{Candidate, thin};
use super::figures::{Pick, axis, bytes, number};
use super::key::Key;
use crate::output::{baseline, curve};
use crate::plan::Cell;
use crate::report::plot::{Axis, Plot, Series};
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
    for m in results.cells.iter().filter(|m| !m.cell.is_baseline() && Key::of(m) == key) {
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
    let of_key = |m: &&Measured| !m.cell.is_baseline() && Key::of(m) == key && m.cell.queues == 1;
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

pub(super) fn over_batch(results: &Results, key: Key, pick: Pick) -> Option<Plot> {
    let mut plot = empty(axis("operations for each doorbell", number, 2.0));
    let mut candidates = Vec::new();
    for m in results.cells.iter().filter(|m| !m.cell.is_baseline() && Key::of(m) == key) {
        if let Some(figures) = pick(m) {
            let c = &m.cell;
            // All of its name but the batch.
            let whole = curve(&Cell { batch: 1, ..c.clone() });
            let name = format!("{whole}, {}", units::bytes(c.size));
            let family = (c.engine.clone(), c.queues);
            let at = c.size << 32 | u64::from(c.depth);
            candidates.push(Candidate { name: name.clone(), family, at });
            add(&mut plot.series, name, f64::from(c.batch), figures, false);
        }
    }
    let mut plot = finish(plot, 3)?;
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

pub(super) fn add(series: &mut Vec<Series>, name: String, x: f64, figures: [f64; 3], reference: bool) {
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
