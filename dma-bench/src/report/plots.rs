//! The plots of results: one or more for each question, with at most six curves each.

use super::axis::Axis;
use super::draw::{Plot, Point, Series};
use super::theme::SERIES;
use crate::derive::is_best_batch;
use crate::output::{baseline, in_flight, what};
use crate::plan::{Cell, Direction, Footprint, Op};
use crate::results::{Measured, Results, slowest};
use crate::stats::Figures;
use crate::units;
use crate::verdict::Curve;

/// The plots of one question. The first is shown, the others are behind a fold.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) title: &'static str,
    /// The plots, the most wanted first.
    pub(super) plots: Vec<Plot>,
}

/// The properties that all cells of one plot share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    op: Op,
    direction: Direction,
    footprint: Footprint,
    segments: u32,
}

impl Key {
    fn of(c: &Cell) -> Self {
        Self { op: c.op, direction: c.direction, footprint: c.footprint, segments: c.segments }
    }

    /// Returns a sort key. Cold memory comes first, because that is what most programs copy.
    fn rank(self) -> (bool, Self) {
        (self.footprint != Footprint::Cold, self)
    }

    /// Returns true if a baseline belongs to the plot, whatever its direction.
    fn has_baseline(self, c: &Cell) -> bool {
        c.is_baseline() && Self { direction: c.direction, ..self } == Self::of(c)
    }
}

type Pick = fn(&Results, &Measured) -> Option<(f64, Option<(f64, f64)>)>;

/// A question with a plot over the size of operations.
struct Asked {
    title: &'static str,
    id: &'static str,
    label: &'static str,
    note: &'static str,
    format: fn(f64) -> String,
    pick: Pick,
    baseline: bool,
}

const SIZES: [Asked; 4] = [
    Asked {
        title: "How fast is it, by size?",
        id: "throughput",
        label: "GB/s (10\u{2079} bytes a second)",
        note: "Line: median of the repetitions; band: the middle half of them.",
        format: number,
        pick: |_, m| spread(m.bytes_per_second.as_ref(), 1e-9),
        baseline: true,
    },
    Asked {
        title: "From which size on is it worth it?",
        id: "ratio",
        label: "times memcpy's throughput",
        note: "Line: median ratio to memcpy beside it; band: its confidence interval. Above 1 the engine is faster.",
        format: number,
        pick: confidence,
        baseline: false,
    },
    Asked {
        title: "How long does an operation take?",
        id: "latency",
        label: "latency",
        note: "From submission to completion. Line: median; band: up to the 99th percentile.",
        format: time,
        pick: |_, m| latency(m),
        baseline: true,
    },
    Asked {
        title: "What CPU time does it take?",
        id: "cpu",
        label: "CPU seconds for 10\u{2079} bytes",
        note: "CPU time of the whole process, polling included. Line: median; band: the middle half.",
        format: number,
        pick: |_, m| spread(m.cpu_s_per_gb.as_ref().filter(|f| f.min > 0.0), 1.0),
        baseline: true,
    },
];

/// A question with a plot over another property of cells.
struct Across {
    title: &'static str,
    id: &'static str,
    label: &'static str,
    of: fn(&Cell) -> u32,
    without: fn(&Cell) -> Cell,
    least: usize,
}

const OTHERS: [Across; 4] = [
    Across {
        title: "How deep must a queue be?",
        id: "depth",
        label: "operations in flight",
        of: |c| c.depth,
        without: |c| Cell { depth: 1, batch: 1, ..c.clone() },
        least: 3,
    },
    Across {
        title: "How many operations for each doorbell?",
        id: "batch",
        label: "operations for each doorbell",
        of: |c| c.batch,
        without: |c| Cell { batch: 1, ..c.clone() },
        least: 3,
    },
    Across {
        title: "How many queues?",
        id: "queues",
        label: "queues, each with a thread",
        of: |c| c.queues,
        without: |c| Cell { queues: 1, ..c.clone() },
        least: 2,
    },
    Across {
        title: "How many segments?",
        id: "segments",
        label: "segments of an operation",
        of: |c| c.segments,
        without: |c| Cell { segments: 1, ..c.clone() },
        least: 2,
    },
];

/// Returns all plots that the results have figures for: those of measurements, or of models.
pub(super) fn questions(results: &Results, models: bool) -> Vec<Question> {
    let cells: Vec<&Measured> = results.with_figures(models).filter(|m| !m.cell.is_baseline()).collect();
    let mut keys: Vec<Key> = cells.iter().map(|m| Key::of(&m.cell)).collect();
    keys.sort_by_key(|key| key.rank());
    keys.dedup();
    let mut all = Vec::new();
    for asked in &SIZES {
        let of = keys.iter().flat_map(|key| by_size(results, &cells, asked, *key, models)).collect();
        all.push(Question { title: asked.title, plots: of });
    }
    for across in &OTHERS {
        all.push(Question { title: across.title, plots: by(results, &cells, &keys, across, models) });
    }
    let series = cells.iter().filter(|m| m.series.len() > 1).flat_map(|m| over_time(m)).collect();
    all.push(Question { title: "Does it stay as fast over time?", plots: series });
    all.retain(|q| !q.plots.is_empty());
    all
}

fn by_size(results: &Results, cells: &[&Measured], asked: &Asked, key: Key, model: bool) -> Vec<Plot> {
    let mut series = Vec::new();
    let sizes = |m: &&&Measured| Key::of(&m.cell) == key;
    for m in cells.iter().filter(sizes) {
        let name = format!("{}, {}", m.cell.engine, in_flight(&Curve::of(&m.cell)));
        add(&mut series, name, m.cell.size as f64, (asked.pick)(results, m), false);
    }
    let mut references = Vec::new();
    for m in results.cells.iter().filter(|m| asked.baseline && key.has_baseline(&m.cell)) {
        let name = baseline(m.cell.depth, key.footprint);
        add(&mut references, name, m.cell.size as f64, (asked.pick)(results, m), true);
    }
    // Hot baselines differ by the number of buffers. Most cells are compared with the first.
    references.truncate(1);
    if !asked.baseline {
        let sizes: Vec<f64> = series.iter().flat_map(|s| s.points.iter().map(|p| p.x)).collect();
        sizes.iter().for_each(|x| add(&mut references, "memcpy".to_owned(), *x, Some((1.0, None)), true));
    }
    let example = cells.iter().find(|m| Key::of(&m.cell) == key).map(|m| what(&m.cell)).unwrap_or_default();
    let like = Plot {
        id: format!("{}{}-{}", if model { "model-" } else { "" }, asked.id, example.replace([' ', ','], "-")),
        title: format!("{} {example}", asked.title),
        note: noted(asked.note, model),
        model,
        x: Axis { label: "bytes of each operation".to_owned(), format: bytes, base: 2.0 },
        y: Axis { label: asked.label.to_owned(), format: asked.format, base: 10.0 },
        series: Vec::new(),
    };
    split(&like, series, &references, 2)
}

fn by(results: &Results, cells: &[&Measured], keys: &[Key], across: &Across, model: bool) -> Vec<Plot> {
    let mut plots = Vec::new();
    let mut kinds: Vec<Key> =
        keys.iter().map(|k| if across.id == "segments" { Key { segments: 0, ..*k } } else { *k }).collect();
    kinds.dedup();
    for key in kinds {
        let mut series = Vec::new();
        let mut example = String::new();
        for m in cells {
            let mut of = Key::of(&m.cell);
            if key.segments == 0 {
                of.segments = 0;
            }
            if of != key || (across.id == "depth" && !is_best_batch(&results.cells, m)) {
                continue;
            }
            let whole = (across.without)(&m.cell);
            let name =
                format!("{}, {}, {}", whole.engine, units::bytes(whole.size), in_flight(&Curve::of(&whole)));
            let name = if across.id == "depth" {
                format!("{}, {}", whole.engine, units::bytes(whole.size))
            } else {
                name
            };
            let value = spread(m.bytes_per_second.as_ref(), 1e-9);
            add(&mut series, name, f64::from((across.of)(&m.cell)), value, false);
            example = format!("{} {}", m.cell.op, m.cell.footprint);
        }
        let like = Plot {
            id: format!("{}{}-{}", if model { "model-" } else { "" }, across.id, example.replace(' ', "-")),
            title: format!("{} {example}", across.title),
            note: noted("Line: median of the repetitions; band: the middle half of them.", model),
            model,
            x: Axis { label: across.label.to_owned(), format: number, base: 2.0 },
            y: Axis { label: SIZES[0].label.to_owned(), format: number, base: 10.0 },
            series: Vec::new(),
        };
        plots.extend(split(&like, series, &[], across.least));
    }
    plots
}

/// Returns plots of a cell's throughput and longest latency over time.
fn over_time(m: &Measured) -> Vec<Plot> {
    let each = m.series.len().div_ceil(400).max(1);
    let points = |of: &dyn Fn(&crate::results::Moment) -> Option<f64>| -> Vec<Point> {
        let moments = m.series.chunks(each).filter_map(slowest);
        moments.filter_map(|s| Some(Point { x: s.at, y: of(s).filter(|y| *y > 0.0)?, band: None })).collect()
    };
    let speed = points(&|s| Some(s.ops_per_second * m.cell.size as f64 / 1e9));
    let longest = points(&|s| s.max.map(|ns| ns as f64));
    let plot =
        |id: &str, title: &str, label: &str, format: fn(f64) -> String, name: &str, points: Vec<Point>| {
            Plot {
                id: format!("series-{id}-{}", m.cell.to_string().replace([' ', ':', ',', '/'], "-")),
                title: format!("{title} {}", m.cell),
                note: noted("Each point is an interval; of many, the slowest.", m.model),
                model: m.model,
                x: Axis { label: "seconds since it began".to_owned(), format: number, base: 0.0 },
                y: Axis { label: label.to_owned(), format, base: 10.0 },
                series: vec![Series { name: name.to_owned(), points, reference: false }],
            }
        };
    vec![
        plot("throughput", "Throughput over time:", SIZES[0].label, number, "GB/s", speed),
        plot("longest", "Longest latency over time:", "latency", time, "longest latency", longest),
    ]
}

/// Splits curves into plots of at most six, references included. Curves with fewer than `least` points are
/// left out.
fn split(like: &Plot, mut series: Vec<Series>, references: &[Series], least: usize) -> Vec<Plot> {
    series.retain(|s| s.points.len() >= least);
    let room = SERIES - references.len();
    let parts = series.chunks(room);
    let many = parts.len();
    parts
        .enumerate()
        .map(|(at, part)| {
            let suffix = if many > 1 { format!(" ({} of {many})", at + 1) } else { String::new() };
            let mut plot = like.clone();
            plot.id += &if at > 0 { format!("-{}", at + 1) } else { String::new() };
            plot.title += &suffix;
            plot.series = references.iter().chain(part).cloned().collect();
            plot
        })
        .collect()
}

fn add(
    series: &mut Vec<Series>,
    name: String,
    x: f64,
    y: Option<(f64, Option<(f64, f64)>)>,
    reference: bool,
) {
    let Some((y, band)) = y else { return };
    let at = series.iter().position(|s| s.name == name).unwrap_or_else(|| {
        series.push(Series { name, points: Vec::new(), reference });
        series.len() - 1
    });
    let points = &mut series[at].points;
    match points.binary_search_by(|p| p.x.total_cmp(&x)) {
        // Another sweep has the same cell.
        Ok(_) => {}
        Err(to) => points.insert(to, Point { x, y, band }),
    }
}

/// Returns the note of a plot. A model's begins with a label.
fn noted(note: &str, model: bool) -> String {
    if model { format!("MODEL: a simulated device, not a measurement. {note}") } else { note.to_owned() }
}

/// Returns the median, and the two middle quarters of the repetitions as the band.
fn spread(figures: Option<&Figures>, scale: f64) -> Option<(f64, Option<(f64, f64)>)> {
    let figures = figures?;
    let (low, high) = figures.quartiles();
    Some((figures.median * scale, Some((low * scale, high * scale)).filter(|(low, _)| *low > 0.0)))
}

/// Returns the median ratio, and the confidence interval of the verdict as the band.
fn confidence(results: &Results, m: &Measured) -> Option<(f64, Option<(f64, f64)>)> {
    let point = results.point(&m.cell)?;
    Some((point.ratio, point.low.zip(point.high).filter(|(low, _)| *low > 0.0)))
}

/// Returns the median, and a band up to the 99th percentile if that is known.
fn latency(m: &Measured) -> Option<(f64, Option<(f64, f64)>)> {
    let l = m.latency.as_ref()?;
    let band = l.known(0.99, l.p99).map(|p99| (l.p50 as f64, p99 as f64));
    Some((l.p50 as f64, band))
}

fn bytes(v: f64) -> String {
    units::bytes(v.round() as u64).replace(' ', "\u{a0}")
}

fn number(v: f64) -> String {
    match v {
        v if v >= 0.999 => format!("{}", (v * 100.0).round() / 100.0),
        v if v >= 1e-4 => format!("{}", (v * 1e5).round() / 1e5),
        v => format!("{v:.0e}"),
    }
}

fn time(v: f64) -> String {
    units::nanos(v).replace(".00", "").replace(".0 ", " ")
}
