//! Which plots there are to draw from results.

use std::fmt::Write as _;

use super::plot::{Axis, CURVES, Plot, REFERENCES, Series};
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
        if let Some(mut plot) = over_batch(results, key, speed) {
            plot.id = key.id("batch-throughput");
            plot.title = format!("Throughput by operations for each doorbell: {}", key.words());
            plot.note = key.note(spread).replace(" memcpy was measured on this machine.", "");
            plot.y = axis("GB/s", number, 10.0);
            plots.push(plot);
        }
    }
    for plot in plots.iter_mut().filter(|p| p.id.starts_with("model-")) {
        plot.models = results.models().into_iter().map(str::to_owned).collect();
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
        models: Vec::new(),
        x,
        y,
        series: Vec::new(),
        marks: Vec::new(),
        left_out: Vec::new(),
    }
}

/// What tells curves of a plot apart, but for what is chosen from.
type Family = (String, u32);

/// A curve that could be drawn: those of one family differ in what goes from the least to the greatest.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    name: String,
    family: Family,
    /// Where it lies within its family.
    at: u64,
}

/// Of so many, in their order, those at both ends and between them, as evenly as it goes.
fn spread_out(len: usize, most: usize) -> Vec<usize> {
    match most {
        _ if len <= most => (0..len).collect(),
        0 => Vec::new(),
        1 => vec![len - 1],
        _ => (0..most).map(|i| (i * (len - 1) + (most - 1) / 2) / (most - 1)).collect(),
    }
}

/// The names of those that are drawn: all if they are few enough; otherwise of every family as many as there is room for, the least, the greatest
/// and what lies between.
fn chosen(candidates: &[Candidate], most: usize) -> Vec<String> {
    let mut families: Vec<(&Family, Vec<&Candidate>)> = Vec::new();
    for candidate in candidates {
        match families.iter_mut().find(|f| *f.0 == candidate.family) {
            Some((_, of)) if of.iter().any(|c| c.name == candidate.name) => {}
            Some((_, of)) => of.push(candidate),
            None => families.push((&candidate.family, vec![candidate])),
        }
    }
    for (_, of) in &mut families {
        of.sort_by_key(|c| c.at);
    }
    // One more for each in turn, for as long as there is room.
    let mut share = vec![0; families.len()];
    let mut room = most;
    while room > 0 {
        let before = room;
        for (share, (_, of)) in share.iter_mut().zip(&families) {
            if room > 0 && *share < of.len() {
                (*share, room) = (*share + 1, room - 1);
            }
        }
        if room == before {
            break;
        }
    }
    let of = |(share, (_, of)): (usize, &(&Family, Vec<&Candidate>))| -> Vec<String> {
        spread_out(of.len(), share).into_iter().map(|i| of[i].name.clone()).collect()
    };
    share.into_iter().zip(&families).flat_map(of).collect()
}

/// Leaves out of a plot what cannot be told apart for number, and says so.
fn thin(plot: &mut Plot, candidates: &[Candidate], baselines: &[Candidate]) {
    let drawn = |c: &&Candidate| plot.series.iter().any(|s| s.name == c.name);
    let of = |all: &[Candidate], most| chosen(&all.iter().filter(drawn).cloned().collect::<Vec<_>>(), most);
    let mut keep = of(candidates, CURVES);
    keep.extend(of(baselines, REFERENCES));
    let (kept, left): (Vec<_>, Vec<_>) = plot.series.drain(..).partition(|s| keep.contains(&s.name));
    plot.series = kept;
    plot.left_out = left.into_iter().map(|s| s.name).collect();
}

fn over_size(results: &Results, key: Key, pick: Pick) -> Option<Plot> {
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

fn over_depth(results: &Results, key: Key, pick: Pick) -> Option<Plot> {
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

fn over_batch(results: &Results, key: Key, pick: Pick) -> Option<Plot> {
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
fn is_best_batch(results: &Results, m: &Measured) -> bool {
    let speed = |m: &Measured| m.bytes_per_second.as_ref().map_or(0.0, |f| f.median);
    let alike =
        results.cells.iter().filter(|other| Cell { batch: m.cell.batch, ..other.cell.clone() } == m.cell);
    let best = alike.reduce(|best, other| if speed(other) > speed(best) { other } else { best });
    best.is_none_or(|best| best.cell == m.cell)
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
        series.points.dedup_by_key(|p| p.0.to_bits());
    }
    let many =
        |s: &Series| s.points.iter().map(|p| p.0.to_bits()).collect::<std::collections::HashSet<_>>().len();
    plot.series.retain(|s| s.reference || many(s) >= least);
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
            let svg = plot.svg(&super::super::plot::LIGHT).unwrap();
            assert_eq!(model, svg.contains("Models of: dsa (a public"), "with its source: {}", plot.title);
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

    /// Copies by the CPU engine, hot, at so many depths, and their baselines.
    fn at_depths(footprint: Footprint) -> Results {
        let mut results = sample();
        let like = results.cells[4].clone();
        results.cells.clear();
        for depth in (0..9).map(|n| 1 << n) {
            for size in [64_u64, 4096] {
                for engine in ["memcpy", "cpu"] {
                    let mut m = like.clone();
                    let batch = (depth / 2).max(1);
                    m.cell = Cell { engine: engine.to_owned(), size, depth, batch, footprint, ..m.cell };
                    m.cell = if engine == "memcpy" { m.cell.baseline() } else { m.cell };
                    m.cpu_s_per_gb = Figures::of(vec![0.1]);
                    if !results.cells.iter().any(|other| other.cell == m.cell) {
                        results.cells.push(m);
                    }
                }
            }
        }
        results
    }

    #[test]
    fn many_baselines_leave_room_for_the_engines() {
        for (footprint, baselines) in [(Footprint::Hot, 9), (Footprint::Cold, 1)] {
            let plots = plots(&at_depths(footprint));
            for what in ["throughput", "ratio", "latency", "cpu"] {
                let id = format!("{what}-copy-local-{footprint}-1");
                let plot = plots.iter().find(|p| p.id == id).unwrap_or_else(|| panic!("{id} is missing"));
                let engines: Vec<_> =
                    plot.series.iter().filter(|s| !s.reference).map(|s| s.name.as_str()).collect();
                assert!(engines.len() == 8, "{engines:?}");
                assert!(engines.contains(&"cpu q1") && engines.contains(&"cpu q256 by 128"), "{engines:?}");
                let drawn = plot.series.iter().filter(|s| s.reference).count();
                let left: Vec<_> = plot.left_out.iter().filter(|n| n.starts_with("cpu")).collect();
                assert!(left.len() == 1 && !engines.contains(&left[0].as_str()), "{:?}", plot.left_out);
                match what {
                    "ratio" => assert_eq!((drawn, plot.left_out.len()), (1, 1)),
                    _ => {
                        assert_eq!((drawn, plot.left_out.len()), (baselines.min(3), 1 + baselines.max(3) - 3))
                    }
                }
            }
        }
    }

    #[test]
    fn every_engine_is_drawn_with_its_least_and_greatest_depth() {
        let candidate = |engine: &str, at: u64| Candidate {
            name: format!("{engine}{at}"),
            family: (engine.to_owned(), 1),
            at,
        };
        let all: Vec<_> = ["a", "b"].iter().flat_map(|e| (1..9).map(|at| candidate(e, at))).collect();
        assert_eq!(chosen(&all, 6), ["a1", "a5", "a8", "b1", "b5", "b8"]);
        assert_eq!(chosen(&all[..5], 9), ["a1", "a2", "a3", "a4", "a5"]);
        assert_eq!(chosen(&all[5..9], 3), ["a6", "a8", "b1"]);
        assert_eq!((spread_out(5, 0), spread_out(5, 1)), (vec![], vec![4]));
    }

    #[test]
    fn three_batches_at_one_size_and_depth_are_plotted() {
        let mut results = sample();
        let like = results.cells[5].clone();
        results.cells.clear();
        for (depth, batches) in [(32, [1, 4, 16].as_slice()), (8, &[1, 4]), (64, &[1, 8, 16, 64])] {
            for batch in batches {
                let mut m = like.clone();
                (m.cell.depth, m.cell.batch) = (depth, *batch);
                m.bytes_per_second = Figures::of(vec![f64::from(*batch) * 1e9]);
                results.cells.push(m);
            }
        }
        let mut plots = plots(&results);
        plots.retain(|p| p.id.contains("batch"));
        assert_eq!(plots.len(), 1);
        assert_eq!(plots[0].id, "batch-throughput-copy-local-cold-1");
        let size = units::bytes(like.cell.size);
        let drawn: Vec<_> = plots[0].series.iter().map(|s| (s.name.clone(), s.points.clone())).collect();
        let points = |batches: &[u32]| batches.iter().map(|b| (f64::from(*b), [f64::from(*b); 3])).collect();
        let expected = [
            (format!("cpu q32, {size}"), points(&[1, 4, 16])),
            (format!("cpu q64, {size}"), points(&[1, 8, 16, 64])),
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn both_plots_by_depth_show_the_same_batch() {
        let mut results = sample();
        let like = results.cells[5].clone();
        results.cells.clear();
        for depth in [1, 2, 4] {
            // The faster way to ring answers sooner as well.
            for (batch, speed, ns) in [(1, 2e9, 100), (2, 1e9, 900)] {
                let mut m = like.clone();
                (m.cell.depth, m.cell.batch) = (depth, batch);
                m.bytes_per_second = Figures::of(vec![speed]);
                let latency = m.latency.as_mut().unwrap();
                (latency.p50, latency.p99) = (ns, ns);
                results.cells.push(m);
            }
        }
        let plots = plots(&results);
        for (what, value) in [("throughput", 2.0), ("latency", 100.0)] {
            let id = format!("depth-{what}-copy-local-cold-1");
            let plot = plots.iter().find(|p| p.id == id).unwrap();
            assert_eq!(plot.series.len(), 1);
            assert!(plot.series[0].points.iter().all(|p| p.1[1] == value), "{:?}", plot.series);
            assert_eq!(plot.series[0].points.len(), 3);
        }
    }
}
