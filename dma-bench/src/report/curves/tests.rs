//! Tests of which plots there are.

use super::choose::{Candidate, chosen, spread_out};
use super::*;
use crate::plan::{Cell, Footprint, Op};
use crate::report::plot::{LIGHT, Series};
use crate::results::Measured;
use crate::results::tests::sample;
use crate::stats::Figures;
use crate::units;

#[test]
fn models_and_measurements_are_not_in_one_plot() {
    let plots = plots(&sample());
    assert!(plots.iter().any(|p| p.id == "throughput-copy-local-cold-1"));
    for plot in &plots {
        let names: Vec<_> = plot.series.iter().map(|s| s.name.as_str()).collect();
        let model = names.iter().any(|n| n.starts_with("sim:"));
        assert!(!(model && names.iter().any(|n| n.starts_with("cpu"))), "{names:?}");
        assert_eq!(model, plot.note.starts_with("MODEL"), "{}", plot.title);
        let svg = plot.svg(&LIGHT).unwrap();
        assert_eq!(model, svg.contains("Models of: dsa (a public"), "with its source: {}", plot.title);
    }
    let marked = plots.iter().find(|p| p.id == "model-throughput-copy-local-cold-1").unwrap();
    assert_eq!(marked.marks.len(), 1, "the crossover");
}

/// The height of a curve at `x`, on straight lines through the logarithms.
fn height(series: &Series, x: f64) -> f64 {
    let at = series.points.windows(2).find(|w| (w[0].0..=w[1].0).contains(&x)).expect("within the curve");
    let part = (x / at[0].0).ln() / (at[1].0 / at[0].0).ln();
    (at[0].1.middle.ln() * (1.0 - part) + at[1].1.middle.ln() * part).exp()
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
        assert!((height(&ratios.series[*curve], *x) - 1.0).abs() < 1e-9, "the ratio is 1 where it is marked");
    }
    let line: Vec<_> = ratios.series.iter().filter(|s| s.reference).collect();
    assert!(
        line.len() == 1
            && line[0].points.len() == 4
            && line[0].points.iter().all(|p| p.1 == Height::flat(1.0))
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
    let points =
        |batches: &[u32]| batches.iter().map(|b| (f64::from(*b), Height::flat(f64::from(*b)))).collect();
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
        assert!(plot.series[0].points.iter().all(|p| p.1.middle == value), "{:?}", plot.series);
        assert_eq!(plot.series[0].points.len(), 3);
    }
}

/// What a plot is over, and what is drawn: the names of curves, and where their points are.
fn drawn(plot: &Plot) -> Vec<(&str, Vec<f64>)> {
    plot.series.iter().map(|s| (s.name.as_str(), s.points.iter().map(|p| p.0).collect())).collect()
}

#[test]
fn two_numbers_of_queues_are_plotted() {
    let mut results = sample();
    let like = results.cells[5].clone();
    let model = results.cells[9].clone();
    assert!(model.model && like.cell.size == model.cell.size);
    results.cells.clear();
    for (like, depth, queues) in
        [(&like, 1_u32, [1, 2].as_slice()), (&like, 8, &[1]), (&like, 32, &[1, 2, 4]), (&model, 32, &[1, 4])]
    {
        for queues in queues {
            let mut m = like.clone();
            (m.cell.depth, m.cell.batch, m.cell.queues) = (depth, depth.div_ceil(2), *queues);
            results.cells.push(m);
        }
    }
    let mut plots = plots(&results);
    plots.retain(|p| !p.id.contains("depth"));
    let ids: Vec<_> = plots.iter().map(|p| p.id.as_str()).collect();
    assert_eq!(ids, ["queues-throughput-copy-local-cold-1", "model-queues-throughput-copy-local-cold-1"]);
    let size = units::bytes(like.cell.size);
    let (alone, deep) = (format!("cpu q1, {size}"), format!("cpu q32 by 16, {size}"));
    assert_eq!(drawn(&plots[0]), [(alone.as_str(), vec![1.0, 2.0]), (&deep, vec![1.0, 2.0, 4.0])]);
    assert_eq!(drawn(&plots[1]), [(format!("sim:profile=dsa q32 by 16, {size}").as_str(), vec![1.0, 4.0])]);
    assert_eq!(plots[0].title, "Throughput by queues: copies, cold");
    assert!(plots[1].note.starts_with("MODEL") && !plots[1].models.is_empty());
}

#[test]
fn two_numbers_of_segments_are_plotted() {
    let mut results = sample();
    let like = results.cells[5].clone();
    results.cells.clear();
    let gather = |segments, footprint| {
        let mut m = like.clone();
        m.cell = Cell { op: Op::Sg, segments, footprint, ..m.cell };
        m
    };
    results.cells.extend([8, 2].map(|segments| gather(segments, Footprint::Cold)));
    // One is no plot, nor are copies, which have one segment each.
    results.cells.push(gather(4, Footprint::Hot));
    results.cells.push(like.clone());
    for m in results.cells.clone() {
        results.cells.push(Measured { cell: m.cell.baseline(), ..m });
    }
    let plots = plots(&results);
    let ids: Vec<_> = plots.iter().map(|p| p.id.as_str()).collect();
    assert_eq!(ids, ["segments-throughput-sg-local-cold"]);
    let name = format!("cpu q1, {}", units::bytes(like.cell.size));
    assert_eq!(drawn(&plots[0]), [(name.as_str(), vec![2.0, 8.0])]);
    assert_eq!(plots[0].title, "Throughput by segments: gathers, cold");
}

#[test]
fn gathers_by_size_come_before_those_by_segments() {
    let mut results = sample();
    let engine: Vec<_> = results.cells.iter().filter(|m| m.cell.engine == "cpu").cloned().collect();
    results.cells.clear();
    for segments in [8, 2] {
        for m in &engine {
            let cell = Cell { op: Op::Sg, segments, ..m.cell.clone() };
            results.cells.push(Measured { cell, ..m.clone() });
        }
    }
    let plots = plots(&results);
    let ids: Vec<_> = plots.iter().map(|p| p.id.as_str()).filter(|id| id.contains("throughput")).collect();
    let by_size = ["throughput-sg-local-cold-2", "throughput-sg-local-cold-8"];
    assert_eq!(ids, [by_size[0], by_size[1], "segments-throughput-sg-local-cold"]);
    assert_eq!(plots.iter().filter(|p| p.title.contains("gathers of 2 segments")).count(), 4);
    let over = &plots[plots.len() - 1];
    assert!(over.series.len() == engine.len() && over.series.iter().all(|s| s.points.len() == 2));
}

/// The plots of latencies of four sizes, of which so many operations were timed each.
fn latencies(timed: [u64; 4], model: bool) -> Vec<Plot> {
    let mut results = sample();
    let engine = if model { "sim:profile=dsa" } else { "cpu" };
    results.cells.retain(|m| m.cell.engine == engine);
    for (m, timed) in results.cells.iter_mut().zip(timed) {
        m.latency.as_mut().unwrap().samples = timed;
    }
    let mut plots = plots(&results);
    plots.retain(|p| p.id.contains("latency"));
    plots
}

#[test]
fn a_band_goes_to_a_percentile_that_is_known() {
    for model in [false, true] {
        let [plot] = &latencies([5000, 100, 99, 7], model)[..] else { panic!("one plot") };
        let points = &plot.series[0].points;
        let known: Vec<bool> = points.iter().map(|p| p.1.band.is_some()).collect();
        assert_eq!(known, [true, true, false, false]);
        assert!(points[0].1.band.unwrap()[1] > points[0].1.middle * 1.2, "p99");
        assert!(plot.note.ends_with(" No band where fewer than 100 were timed."), "{}", plot.note);
        assert_eq!(plot.note.starts_with("MODEL"), model);
        let [plot] = &latencies([5000, 1000, 100, 100], model)[..] else { panic!("one plot") };
        assert!(plot.series[0].points.iter().all(|p| p.1.band.is_some()));
        assert!(!plot.note.contains("No band"), "{}", plot.note);
    }
}
