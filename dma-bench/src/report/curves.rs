//! Which plots there are to draw from results.

use std::fmt::Write as _;

use super::plot::{Axis, Plot, Series};
use crate::derive::HERE;
use crate::output::{baseline, crossover_at, curve};
use crate::plan::{Cell, Direction, Footprint, Op};
use crate::results::{Measured, Results};
use crate::units;

/// What the cells of one plot have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    model: bool,
    op: Op,
    direction: Direction,
    footprint: Footprint,
    segments: u32,
}

impl Key {
    fn of(m: &Measured) -> Self {
        let c = &m.cell;
        Self {
            model: m.model,
            op: c.op,
            direction: c.direction,
            footprint: c.footprint,
            segments: c.segments,
        }
    }

    /// Whether a baseline belongs to it, whatever its direction.
    fn has_baseline(&self, m: &Measured) -> bool {
        let c = &m.cell;
        c.is_baseline() && c.op == self.op && c.footprint == self.footprint && c.segments == self.segments
    }

    fn words(&self) -> String {
        let mut words = match self.op {
            Op::Copy => "copies".to_owned(),
            Op::Fill => "fills".to_owned(),
            Op::Sg => format!("gathers of {} segments", self.segments),
        };
        if !self.model {
            let _ = write!(words, ", {}", self.footprint);
        }
        match self.direction {
            Direction::Local => {}
            Direction::Push => words.push_str(", to a peer"),
            Direction::Pull => words.push_str(", from a peer"),
        }
        if self.model {
            words.push_str(" (models)");
        }
        words
    }

    fn id(&self, what: &str) -> String {
        let model = if self.model { "model-" } else { "" };
        format!("{model}{what}-{}-{}-{}-{}", self.op, self.direction, self.footprint, self.segments)
    }

    fn note(&self, band: &str) -> String {
        if self.model {
            "MODEL: a simulated device, not a measurement. memcpy was measured on this machine.".to_owned()
        } else {
            band.to_owned()
        }
    }
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

fn axis(label: &str, format: fn(f64) -> String, base: f64) -> Axis {
    Axis { label: label.to_owned(), format, base }
}

/// The three figures of a cell that are drawn.
type Pick = fn(&Measured) -> Option<[f64; 3]>;

fn speed(m: &Measured) -> Option<[f64; 3]> {
    let f = m.bytes_per_second.as_ref()?;
    let (low, high) = f.quartiles();
    Some([low, f.median, high].map(|v| v / 1e9))
}

fn latency(m: &Measured) -> Option<[f64; 3]> {
    let l = m.latency.as_ref()?;
    Some([l.p50, l.p50, l.p99].map(|v| v as f64))
}

fn ratio(m: &Measured) -> Option<[f64; 3]> {
    let f = m.ratio.as_ref()?;
    let (low, high) = f.quartiles();
    (f.min > 0.0).then_some([low, f.median, high])
}

fn cpu(m: &Measured) -> Option<[f64; 3]> {
    let f = m.cpu_s_per_gb.as_ref()?;
    let (low, high) = f.quartiles();
    (f.min > 0.0).then_some([low, f.median, high])
}

/// Every plot that the results have figures for.
#[must_use]
pub(super) fn plots(results: &Results) -> Vec<Plot> {
    let mut keys: Vec<Key> = Vec::new();
    for m in results.cells.iter().filter(|m| !m.cell.is_baseline() && m.ops_per_second.is_some()) {
        let key = Key::of(m);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.sort_by_key(|k| (k.model, k.op, k.direction, k.footprint, k.segments));
    let mut plots = Vec::new();
    for key in keys {
        let spread = "Line: median of the repetitions; band: the middle half of them.";
        let tail = "Line: median; band: up to the 99th percentile. Timed from submission to completion.";
        let mut by_size = |what: &str, title: &str, y: Axis, pick: Pick, band: &str| {
            if let Some(mut plot) = over_size(results, key, pick) {
                plot.id = key.id(what);
                plot.title = format!("{title} by size: {}", key.words());
                plot.note = key.note(band);
                plot.y = y;
                if what == "ratio" {
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
                        add(&mut plot.series, "memcpy".to_owned(), x, [1.0; 3], true);
                    }
                    plot.series = std::mem::take(&mut plot.series).into_iter().map(sorted).collect();
                }
                if what == "throughput" || what == "ratio" {
                    mark(&mut plot, results, key);
                }
                plots.push(plot);
            }
        };
        by_size("throughput", "Throughput", axis("GB/s", number, 10.0), speed, spread);
        by_size("ratio", "Times memcpy", axis("times memcpy's throughput", number, 10.0), ratio, spread);
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
                plot.y = y;
                plots.push(plot);
            }
        };
        by_depth("depth-throughput", "Throughput", axis("GB/s", number, 10.0), speed, spread);
        by_depth("depth-latency", "Latency", axis("", time, 10.0), latency, tail);
    }
    plots
}

fn add(series: &mut Vec<Series>, name: String, x: f64, figures: [f64; 3], reference: bool) {
    let at = series.iter().position(|s| s.name == name).unwrap_or_else(|| {
        series.push(Series { name, points: Vec::new(), reference });
        series.len() - 1
    });
    series[at].points.push((x, figures));
}

fn empty(x: Axis) -> Plot {
    let y = axis("", number, 10.0);
    Plot {
        id: String::new(),
        title: String::new(),
        note: String::new(),
        x,
        y,
        series: Vec::new(),
        marks: Vec::new(),
    }
}

/// The most curves that can be told apart.
const MOST: usize = 9;

fn over_size(results: &Results, key: Key, pick: Pick) -> Option<Plot> {
    let mut plot = empty(axis("bytes of each operation", bytes, 2.0));
    let baselines: Vec<_> = results.cells.iter().filter(|m| key.has_baseline(m)).collect();
    // Hot, each depth has a baseline of its own, which goes through as many buffers.
    for m in baselines {
        if let Some(figures) = pick(m) {
            let name = baseline(m.cell.depth, key.footprint);
            add(&mut plot.series, name, m.cell.size as f64, figures, true);
        }
    }
    for m in results.cells.iter().filter(|m| !m.cell.is_baseline() && Key::of(m) == key) {
        if let Some(figures) = pick(m) {
            add(&mut plot.series, curve(&m.cell), m.cell.size as f64, figures, false);
        }
    }
    finish(plot, 2)
}

fn over_depth(results: &Results, key: Key, pick: Pick) -> Option<Plot> {
    let mut plot = empty(axis("operations in flight", number, 2.0));
    for m in results.cells.iter().filter(|m| !m.cell.is_baseline() && Key::of(m) == key && m.cell.queues == 1)
    {
        if let Some(figures) = pick(m) {
            let name = format!("{} {}", m.cell.engine, units::bytes(m.cell.size));
            add(&mut plot.series, name, f64::from(m.cell.depth), figures, false);
        }
    }
    finish(plot, 3)
}

/// With its points by x, each once.
fn sorted(mut series: Series) -> Series {
    series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    series.points.dedup_by_key(|p| p.0.to_bits());
    series
}

/// Sorts the points; `None` if no engine has as many as `least`.
fn finish(mut plot: Plot, least: usize) -> Option<Plot> {
    for series in &mut plot.series {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Of several numbers of operations for each doorbell, the best.
        series.points.dedup_by(|b, a| {
            let same = a.0 == b.0;
            if same && b.1[1] > a.1[1] {
                a.1 = b.1;
            }
            same
        });
    }
    let many =
        |s: &Series| s.points.iter().map(|p| p.0.to_bits()).collect::<std::collections::HashSet<_>>().len();
    plot.series.retain(|s| s.reference || many(s) >= least);
    plot.series.truncate(MOST);
    plot.series.iter().any(|s| !s.reference).then_some(plot)
}

/// Marks where engines overtake memcpy.
fn mark(plot: &mut Plot, results: &Results, key: Key) {
    if key.op != Op::Copy || key.direction != Direction::Local {
        return;
    }
    for c in &results.crossovers {
        let (Some(at), false) = (c.bytes, c.always) else { continue };
        if c.model != key.model || c.footprint != key.footprint || c.against != HERE {
            continue;
        }
        let like = Cell {
            engine: c.engine.clone(),
            op: key.op,
            size: 0,
            depth: c.depth,
            batch: c.batch,
            queues: c.queues,
            segments: 1,
            footprint: c.footprint,
            direction: key.direction,
        };
        let name = curve(&like);
        if let Some(curve) = plot.series.iter().position(|s| s.name == name) {
            plot.marks.push((at, crossover_at(c), curve));
        }
    }
    plot.marks.sort_by(|a, b| a.0.total_cmp(&b.0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;
    use crate::stats::Figures;

    #[test]
    fn models_and_measurements_are_not_in_one_plot() {
        let plots = plots(&sample());
        assert!(plots.iter().any(|p| p.id == "throughput-copy-local-cold-1"));
        for plot in &plots {
            let names: Vec<_> = plot.series.iter().map(|s| s.name.as_str()).collect();
            let model = names.iter().any(|n| n.starts_with("sim:"));
            assert!(!(model && names.iter().any(|n| n.starts_with("cpu"))), "{names:?}");
            assert_eq!(model, plot.note.starts_with("MODEL"), "{}", plot.title);
        }
        let marked = plots.iter().find(|p| p.id == "model-throughput-copy-local-cold-1").unwrap();
        assert_eq!(marked.marks.len(), 1, "the crossover");
    }

    /// The height of a curve at `x`, on straight lines through the logarithms.
    fn height(series: &Series, x: f64) -> f64 {
        let at = series.points.windows(2).find(|w| (w[0].0..=w[1].0).contains(&x)).expect("within the curve");
        let part = (x / at[0].0).ln() / (at[1].0 / at[0].0).ln();
        (at[0].1[1].ln() * (1.0 - part) + at[1].1[1].ln() * part).exp()
    }

    #[test]
    fn a_crossover_is_marked_where_the_curves_that_are_drawn_cross() {
        let mut results = sample();
        let like = results.cells[4].clone();
        results.cells.clear();
        // memcpy is faster with one hot buffer than with 32; the engine gains on both, and its curve is not straight.
        let speeds: [(&str, u32, [f64; 4]); 4] = [
            ("memcpy", 1, [9.0, 80.0, 40.0, 12.0]),
            ("memcpy", 32, [8.0, 30.0, 13.0, 9.0]),
            ("cpu", 1, [1.0, 40.0, 39.0, 30.0]),
            ("cpu", 32, [5.0, 29.0, 31.0, 27.0]),
        ];
        for (engine, depth, speed) in speeds {
            for (at, size) in [64_u64, 4096, 65_536, 1 << 20].into_iter().enumerate() {
                let mut m = like.clone();
                m.cell = Cell { engine: engine.to_owned(), depth, size, footprint: Footprint::Hot, ..m.cell };
                let base = speeds.iter().find(|s| s.0 == "memcpy" && s.1 == depth).map_or(1.0, |s| s.2[at]);
                m.bytes_per_second = Figures::of(vec![speed[at] * 1e9]);
                m.ratio = Figures::of(vec![speed[at] / base]);
                results.cells.push(m);
            }
        }
        results.crossovers = crate::derive::crossovers(&results.cells);
        let plots = plots(&results);
        let plot = plots.iter().find(|p| p.id == "throughput-copy-local-hot-1").unwrap();
        assert_eq!(plot.marks.len(), 2, "{:?}", plot.marks);
        for (x, _, curve) in &plot.marks {
            let engine = &plot.series[*curve];
            let buffers = if engine.name.contains("q32") { "memcpy, 32 buffers" } else { "memcpy, 1 buffer" };
            let base = plot.series.iter().find(|s| s.name == buffers).expect("its baseline is drawn");
            let (there, baseline) = (height(engine, *x), height(base, *x));
            assert!((there / baseline - 1.0).abs() < 1e-9, "{}: {there} and {baseline} at {x}", engine.name);
        }
        let ratios = plots.iter().find(|p| p.id == "ratio-copy-local-hot-1").unwrap();
        assert_eq!(ratios.marks.len(), 2);
        for (x, _, curve) in &ratios.marks {
            assert!(
                (height(&ratios.series[*curve], *x) - 1.0).abs() < 1e-9,
                "the ratio is 1 where it is marked"
            );
        }
        let line: Vec<_> = ratios.series.iter().filter(|s| s.reference).collect();
        assert!(
            line.len() == 1 && line[0].points.len() == 4 && line[0].points.iter().all(|p| p.1 == [1.0; 3])
        );
    }
}
