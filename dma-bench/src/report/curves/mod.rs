//! Which plots there are to draw from results, and in which order.

mod choose;
mod figures;
mod key;
mod marks;
mod over;
#[cfg(test)]
mod tests;

use figures::{Pick, axis, cpu, latency, number, ratio, speed, time, without_bands};
use key::Key;
use marks::mark;
use over::{Across, BATCHES, QUEUES, SEGMENTS, add, over, over_depth, over_size, sorted};

use super::plot::{Axis, Height, Plot};
use crate::plan::Op;
use crate::results::Results;

/// What most bands are.
const SPREAD: &str = "Line: median of the repetitions; band: the middle half of them.";

/// Every plot that the results have figures for.
#[must_use]
pub(super) fn plots(results: &Results) -> Vec<Plot> {
    let mut keys: Vec<Key> = Vec::new();
    for m in results.cells.iter().filter(|m| !m.cell.is_baseline() && m.ops_per_second.is_some()) {
        let key = Key::of(m);
        // What is plotted over the segments has any number of them.
        for key in [key, Key { segments: None, ..key }] {
            if !keys.contains(&key) && (key.segments.is_some() || key.op == Op::Sg) {
                keys.push(key);
            }
        }
    }
    keys.sort_by_key(|k| (k.model, k.op, k.direction, k.footprint, k.segments.unwrap_or(u32::MAX)));
    let mut plots = Vec::new();
    for key in keys {
        if key.segments.is_none() {
            plots.extend(by(&SEGMENTS, results, key));
            continue;
        }
        let tail = "Line: median; band: up to the 99th percentile. Timed from submission to completion.";
        let mut by_size = |what: &str, title: &str, y: Axis, pick: Pick, band: &str| {
            if let Some(mut plot) = over_size(results, key, pick) {
                plot.id = key.id(what);
                plot.title = format!("{title} by size: {}", key.words());
                plot.note = key.note(band) + without_bands(&plot);
                plot.y = y;
                if what == "ratio" {
                    plot.left_out.retain(|name| !name.starts_with("memcpy, "));
                    // One line for all baselines.
                    let at_one: Vec<_> = plot
                        .series
                        .iter()
                        .filter(|s| !s.reference)
                        .flat_map(|s| &s.points)
                        .map(|p| p.0)
                        .collect();
                    plot.series.retain(|s| !s.reference);
                    for x in at_one {
                        add(&mut plot.series, "memcpy".to_owned(), x, Height::flat(1.0), true);
                    }
                    plot.series = std::mem::take(&mut plot.series).into_iter().map(sorted).collect();
                }
                if what == "throughput" || what == "ratio" {
                    mark(&mut plot, results, key);
                }
                plots.push(plot);
            }
        };
        by_size("throughput", "Throughput", axis("GB/s", number, 10.0), speed, SPREAD);
        by_size("ratio", "Times memcpy", axis("times memcpy's throughput", number, 10.0), ratio, SPREAD);
        by_size("latency", "Latency", axis("", time, 10.0), latency, tail);
        if !key.model {
            let y = axis("CPU seconds for 10\u{2079} bytes", number, 10.0);
            by_size(
                "cpu",
                "CPU time",
                y,
                cpu,
                "CPU time of the whole process, polling included; band: the middle half.",
            );
        }
        let mut by_depth = |what: &str, title: &str, y: Axis, pick: Pick, band: &str| {
            if let Some(mut plot) = over_depth(results, key, pick) {
                plot.id = key.id(what);
                plot.title = format!("{title} by depth: {}", key.words());
                plot.note = key.note(band).replace(" memcpy was measured on this machine.", "");
                plot.note += without_bands(&plot);
                plot.y = y;
                plots.push(plot);
            }
        };
        by_depth("depth-throughput", "Throughput", axis("GB/s", number, 10.0), speed, SPREAD);
        by_depth("depth-latency", "Latency", axis("", time, 10.0), latency, tail);
        for across in [BATCHES, QUEUES] {
            plots.extend(by(&across, results, key));
        }
    }
    for plot in plots.iter_mut().filter(|p| p.id.starts_with("model-")) {
        plot.models = results.models().into_iter().map(str::to_owned).collect();
    }
    plots
}

/// Throughput over what is neither size nor depth.
fn by(across: &Across, results: &Results, key: Key) -> Option<Plot> {
    let mut plot = over(results, key, across, speed)?;
    plot.id = key.id(across.id);
    plot.title = format!("Throughput by {}: {}", across.name, key.words());
    plot.note = key.note(SPREAD).replace(" memcpy was measured on this machine.", "");
    plot.y = axis("GB/s", number, 10.0);
    Some(plot)
}
