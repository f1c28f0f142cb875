//! The plots of results: one or more plots for each question, with at most six curves each.

use super::axis::Axis;
use super::draw::{Plot, Point, Series};
use super::theme::MAX_SERIES;
use crate::output::{baseline, in_flight, what};
use crate::plan::{Cell, Direction, Footprint, Op, grouped};
use crate::results::conclusions::is_best_batch;
use crate::results::{Measured, Results, slowest};
use crate::units;
use crate::verdict::Curve;
use crate::verdict::stats::Figures;

/// The plots of one question. A page shows the first plot, and the others in a collapsed section.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) title: &'static str,
    /// The plots, the most important first.
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

    /// Returns a sort key. Cold memory comes first, because most programs copy cold memory.
    fn rank(self) -> (bool, Self) {
        (self.footprint != Footprint::Cold, self)
    }

    /// Returns true if a baseline belongs to the plot, regardless of the plot's direction. No baseline
    /// belongs to plots of memory that the CPU cannot access.
    fn has_baseline(self, c: &Cell) -> bool {
        c.is_baseline()
            && !self.direction.has_device_memory()
            && Self { direction: c.direction, ..self } == Self::of(c)
    }
}

/// A value and its band.
type Value = (f64, Option<(f64, f64)>);

type Pick = fn(&Results, &Measured) -> Option<Value>;

/// The reference for the curves of engines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A line at 1, for ratios.
    One,
    /// The baseline's own figures.
    Baseline,
}

/// A question with plots over a property of cells.
struct Asked {
    title: &'static str,
    id: &'static str,
    x: (&'static str, fn(&Cell) -> f64),
    y: (&'static str, fn(f64) -> String, Pick),
    note: &'static str,
    /// The name of a cell's curve.
    name: fn(&Cell) -> String,
    beside: Beside,
    /// Minimum number of points of a curve.
    least: usize,
}

const THROUGHPUT: &str = "GB/s (10\u{2079} bytes a second)";

/// Returns a question on throughput by the size of operations.
const fn by_size(title: &'static str, id: &'static str) -> Asked {
    Asked {
        title,
        id,
        x: ("bytes of each operation", |c| c.size as f64),
        y: (THROUGHPUT, number, throughput),
        note: "Line: median of the samples; band: the middle half of them.",
        name: |c| format!("{}, {}", c.engine, in_flight(&Curve::of(c))),
        beside: Beside::Baseline,
        least: 2,
    }
}

/// Returns a question on throughput over another property.
const fn across(
    title: &'static str,
    id: &'static str,
    x: (&'static str, fn(&Cell) -> f64),
    name: fn(&Cell) -> String,
    least: usize,
) -> Asked {
    Asked { x, name, beside: Beside::Nothing, least, ..by_size(title, id) }
}

const ASKED: [Asked; 8] = [
    by_size("How fast is it, by size?", "throughput"),
    Asked {
        y: ("times memcpy's throughput", number, confidence),
        note: "Line: median ratio to memcpy beside it; band: its confidence interval. Above 1 the engine is faster.",
        beside: Beside::One,
        ..by_size("From which size on is it worth it?", "ratio")
    },
    Asked {
        y: ("latency", time, |_, m| latency(m)),
        note: "From submission to completion. Line: median; band: up to the 99th percentile.",
        ..by_size("How long does an operation take?", "latency")
    },
    Asked {
        y: ("CPU seconds for 10\u{2079} bytes", number, cpu_time),
        note: "CPU time of the whole process, polling included. Line: median; band: the middle half.",
        ..by_size("What CPU time does it take?", "cpu")
    },
    across(
        "How deep must a queue be?",
        "depth",
        ("operations in flight", |c| c.depth.into()),
        |c| format!("{}, {}", c.engine, units::bytes(c.size)),
        3,
    ),
    across(
        "How many operations for each doorbell?",
        "batch",
        ("operations for each doorbell", |c| c.batch.into()),
        |c| sized(&Cell { batch: 1, ..c.clone() }),
        3,
    ),
    across(
        "How many queues?",
        "queues",
        ("queues, each with a thread", |c| c.queues.into()),
        |c| sized(&Cell { queues: 1, ..c.clone() }),
        2,
    ),
    across("How many segments?", SEGMENTS, ("segments of an operation", |c| c.segments.into()), sized, 2),
];

const SEGMENTS: &str = "segments";

/// Returns the name of a curve of one size.
fn sized(c: &Cell) -> String {
    format!("{}, {}, {}", c.engine, units::bytes(c.size), in_flight(&Curve::of(c)))
}

/// Returns the questions for which the results have figures, with their plots: with `models`, questions on
/// models, and otherwise questions on measured engines.
pub(super) fn questions(results: &Results, models: bool) -> Vec<Question> {
    let cells: Vec<&Measured> = results.with_figures(models).filter(|m| !m.cell.is_baseline()).collect();
    let mut all: Vec<Question> = ASKED
        .iter()
        .map(|asked| Question { title: asked.title, plots: plots(results, &cells, asked, models) })
        .collect();
    let series = cells.iter().filter(|m| m.series.len() > 1).flat_map(|m| over_time(m)).collect();
    all.push(Question { title: "Does it stay as fast over time?", plots: series });
    all.retain(|q| !q.plots.is_empty());
    all
}

fn plots(results: &Results, cells: &[&Measured], asked: &Asked, model: bool) -> Vec<Plot> {
    let key = |c: &Cell| match Key::of(c) {
        key if asked.id == SEGMENTS => Key { segments: 1, ..key },
        key => key,
    };
    let mut kinds = grouped(cells.iter().map(|m| (key(&m.cell), *m)));
    kinds.sort_by_key(|(key, _)| key.rank());
    let pick = asked.y.2;
    let plots = |(key, of): (Key, Vec<&Measured>)| {
        let mut series = Vec::new();
        for m in &of {
            if asked.id != "depth" || is_best_batch(&results.cells, m) {
                add(&mut series, (asked.name)(&m.cell), (asked.x.1)(&m.cell), pick(results, m), false);
            }
        }
        let mut references = Vec::new();
        match asked.beside {
            Beside::Nothing => {}
            Beside::One => of.iter().for_each(|m| {
                add(&mut references, "memcpy".to_owned(), m.cell.size as f64, Some((1.0, None)), true);
            }),
            Beside::Baseline => {
                for m in results.cells.iter().filter(|m| key.has_baseline(&m.cell)) {
                    let name = baseline(m.cell.depth, key.footprint);
                    add(&mut references, name, m.cell.size as f64, pick(results, m), true);
                }
            }
        }
        // Hot baselines differ by the number of buffers. The plot shows the first, with which most cells are
        // compared.
        references.truncate(1);
        let example = match &of[0].cell {
            c if asked.beside == Beside::Nothing => format!("{} {}", c.op, c.footprint),
            c => what(c),
        };
        let like = Plot {
            id: format!(
                "{}{}-{}",
                if model { "model-" } else { "" },
                asked.id,
                example.replace([' ', ','], "-")
            ),
            title: format!("{} {example}", asked.title),
            note: noted(asked.note, model),
            model,
            x: Axis {
                label: asked.x.0.to_owned(),
                format: if asked.beside == Beside::Nothing { number } else { bytes },
                base: 2.0,
            },
            y: Axis { label: asked.y.0.to_owned(), format: asked.y.1, base: 10.0 },
            series: Vec::new(),
        };
        split(&like, series, &references, asked.least)
    };
    kinds.into_iter().flat_map(plots).collect()
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
                note: noted("Each point is an interval, or the slowest of several intervals.", m.model),
                model: m.model,
                x: Axis { label: "seconds since it began".to_owned(), format: number, base: 0.0 },
                y: Axis { label: label.to_owned(), format, base: 10.0 },
                series: vec![Series { name: name.to_owned(), points, reference: false }],
            }
        };
    vec![
        plot("throughput", "Throughput over time:", THROUGHPUT, number, "GB/s", speed),
        plot("longest", "Longest latency over time:", "latency", time, "longest latency", longest),
    ]
}

/// Splits curves into plots of at most six, references included. Curves with fewer than `least` points are
/// left out.
fn split(like: &Plot, mut series: Vec<Series>, references: &[Series], least: usize) -> Vec<Plot> {
    series.retain(|s| s.points.len() >= least);
    let room = MAX_SERIES - references.len();
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

fn add(series: &mut Vec<Series>, name: String, x: f64, y: Option<Value>, reference: bool) {
    let Some((y, band)) = y else { return };
    let at = series.iter().position(|s| s.name == name).unwrap_or_else(|| {
        series.push(Series { name, points: Vec::new(), reference });
        series.len() - 1
    });
    let points = &mut series[at].points;
    match points.binary_search_by(|p| p.x.total_cmp(&x)) {
        // Two sweeps may contain the same cell.
        Ok(_) => {}
        Err(to) => points.insert(to, Point { x, y, band }),
    }
}

/// Returns the explanation below a plot. For a model's figures, it begins with a label.
fn noted(note: &str, model: bool) -> String {
    if model { format!("MODEL: a simulated device, not a measurement. {note}") } else { note.to_owned() }
}

/// Returns the median, and the middle half of the samples as the band.
fn spread(figures: Option<&Figures>, scale: f64) -> Option<Value> {
    let figures = figures?;
    let (low, high) = figures.quartiles();
    Some((figures.median * scale, Some((low * scale, high * scale)).filter(|(low, _)| *low > 0.0)))
}

fn throughput(_: &Results, m: &Measured) -> Option<Value> {
    spread(m.bytes_per_second.as_ref(), 1e-9)
}

fn cpu_time(_: &Results, m: &Measured) -> Option<Value> {
    spread(m.cpu_s_per_gb.as_ref().filter(|f| f.min > 0.0), 1.0)
}

/// Returns the median ratio, and the verdict's confidence interval as the band.
fn confidence(results: &Results, m: &Measured) -> Option<Value> {
    let point = results.point(&m.cell)?;
    Some((point.ratio, point.low.zip(point.high).filter(|(low, _)| *low > 0.0)))
}

/// Returns the median, and a band up to the 99th percentile if this percentile is known.
fn latency(m: &Measured) -> Option<Value> {
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
