//! Tests of pages: their contents, and the escaping of text from results files.

use super::plots::questions;
use super::*;
use crate::plan::{Cell, Op};
use crate::results::tests::sample;
use crate::results::{Measured, Moment};

fn svgs(page: &str) -> usize {
    page.matches("<svg").count()
}

#[test]
fn the_page_is_whole_small_and_loads_nothing() {
    let page = page(&sample()).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    assert!(page.len() < 500 << 10, "{} bytes", page.len());
    for outside in ["src=", "href=\"http", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("<script").count(), 1, "the only script sorts tables");
    let plots: usize = [false, true]
        .into_iter()
        .flat_map(|models| questions(&sample(), models))
        .map(|q| q.plots.len())
        .sum();
    assert!(plots >= 7, "{plots}");
    assert_eq!(svgs(&page), plots, "every plot once");
    assert!(page.contains("<b>Not measured.</b>") && page.contains("dsa (a public &lt;source&gt;)"));
    assert!(!page.contains("#0102"), "every colour has a role in the style sheet");
}

#[test]
fn the_page_of_several_machines_has_each_of_them_once() {
    let mut other = sample();
    other.machine.cpu = "another processor".to_owned();
    other.summary = vec!["another answer".to_owned()];
    other.cells.retain(|m| m.cell.size != 64 || m.cell.is_baseline());
    let speed = other.cells.iter_mut().find(|m| m.cell.engine == "cpu").unwrap();
    speed.bytes_per_second = speed.bytes_per_second.as_ref().map(|f| f.times(77.7e9 / f.median));
    let machines = [("host<1>".to_owned(), sample()), ("host2".to_owned(), other)];
    let page = merged(&machines).unwrap();
    assert!(page.contains("host&lt;1&gt;") && !page.contains("host<1>"));
    for part in ["on 2 machines", "href=\"#machine-2\"", "another processor", "another answer"] {
        assert!(page.contains(part), "{part}");
    }
    let table = &page[page.find("The same cells").unwrap()..page.find("machine-1-measured").unwrap()];
    assert!(table.contains(">host2</th>") && table.contains(">77.7<"), "{table}");
    let cells = |of: fn(&Measured) -> bool| sample().cells.iter().filter(|m| of(m)).count();
    let both = cells(|m| m.ops_per_second.is_some() && (m.cell.size != 64 || m.cell.is_baseline()));
    assert_eq!(table.matches("<tr").count(), 1 + both, "the table has the cells of both results: {table}");
    let one = super::page(&sample()).unwrap();
    assert_eq!(svgs(&page), 2 * svgs(&one), "the page has the plots of both results");
    let mut ids: Vec<_> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert!(count > 10 && ids.len() == count, "the names of sections differ");
}

#[test]
fn texts_of_a_file_are_never_markup() {
    let mut results = sample();
    let evil = "<img onerror=alert(1)>&\"'";
    for m in &mut results.cells {
        if m.cell.engine == "cpu" {
            m.cell.engine = evil.to_owned();
        }
    }
    results.engines[1].name = evil.to_owned();
    results.machine.cpu = "</title><script>".to_owned();
    results.command.push("</pre><script>".to_owned());
    results.summary.push("</div><script>".to_owned());
    results.verdicts = crate::results::conclusions::verdicts(&results.campaign, &results.cells, false);
    let page = page(&results).unwrap();
    assert!(!page.contains("<img") && page.matches("<script").count() == 1, "escaped");
    assert!(page.contains("&lt;img"));
}

#[test]
fn a_page_without_a_plot_has_its_tables() {
    let mut one = sample();
    one.cells.retain(|m| m.cell.size == 64);
    let text = page(&one).unwrap();
    assert!(!text.contains("<figure") && text.contains("id=\"measured\""));
    assert!(files(&one, Path::new("/nowhere")).unwrap_err().contains("nothing to plot"));
    one.cells.clear();
    one.engines.retain(|e| e.model.is_none());
    assert!(page(&one).unwrap().contains("nothing to plot"));
}

#[test]
fn a_plot_has_at_most_six_curves_and_each_curve_is_in_one() {
    let mut results = sample();
    let like: Vec<Measured> = results.cells.iter().filter(|m| m.cell.engine == "cpu").cloned().collect();
    for depth in 2..=14 {
        results.cells.extend(like.iter().cloned().map(|mut m| {
            m.cell.depth = depth;
            m
        }));
    }
    results.verdicts = crate::results::conclusions::verdicts(&results.campaign, &results.cells, false);
    for q in questions(&results, false) {
        assert!(q.plots.iter().all(|p| p.series.len() <= theme::MAX_SERIES), "{}", q.title);
        let drawn = |p: &Plot| p.series.iter().filter(|s| !s.reference).count();
        let engines: usize = q.plots.iter().map(drawn).sum();
        let curves = if q.title.contains("deep") { 4 } else { 14 };
        assert_eq!(engines, curves, "{}", q.title);
        let mut ids: Vec<&str> = q.plots.iter().map(|p| p.id.as_str()).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|w| w[0] != w[1]), "{ids:?}");
    }
    let page = page(&results).unwrap();
    assert!(page.contains("More of: How fast is it, by size?"), "the other plots are in a collapsed section");
}

#[test]
fn every_question_has_its_plots() {
    let mut results = sample();
    let like = results.cells[5].clone();
    type Change = fn(&mut Cell, u32);
    let variants: [Change; 4] = [
        |c, n| c.depth = n,
        |c, n| (c.depth, c.batch) = (64, n),
        |c, n| c.queues = n,
        |c, n| (c.op, c.segments) = (Op::Gather, n),
    ];
    for change in variants {
        for n in [1, 2, 4] {
            let mut m = like.clone();
            change(&mut m.cell, n);
            if !results.cells.iter().any(|other| other.cell == m.cell) {
                results.cells.push(m);
            }
        }
    }
    results.cells[5].series = (1..50)
        .map(|n| Moment {
            at: f64::from(n),
            ops_per_second: 1e6 / f64::from(n % 5 + 1),
            p50: Some(100),
            p99: None,
            max: Some(1000),
            run_delay: 0.0,
        })
        .collect();
    let found: Vec<&str> = questions(&results, false).iter().map(|q| q.title).collect();
    assert_eq!(found.len(), 4 + 4 + 1, "{found:?}");
    let page = page(&results).unwrap();
    assert!(page.contains("How many segments?") && page.contains("Throughput over time"));
}

#[test]
fn plots_are_files_in_two_themes() {
    let folder = tempfile::tempdir().unwrap();
    files(&sample(), folder.path()).unwrap();
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in ["throughput-copy-cold.svg", "throughput-copy-cold-dark.png", "model-ratio-copy-cold.png"] {
        assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
    }
    let svg = std::fs::read_to_string(folder.path().join("throughput-copy-cold.svg")).unwrap();
    assert!(svg.contains("cpu, one at a time") && svg.contains("memcpy, one core"), "a legend");
}

#[test]
fn a_comparison_has_a_page() {
    let mut after = sample();
    after.cells.retain(|m| m.cell.size != 64 || m.cell.engine != "cpu");
    after.engines[1].version = "<2>".to_owned();
    let comparison = crate::compare::compare(&sample(), &after, crate::compare::Metric::Ratio, 0.01);
    let page = compared(&comparison, Some(0.05));
    assert!(page.contains("is missing in the second") && page.contains("Does not pass."));
    assert!(page.contains("&lt;2&gt;") && page.contains("cpu copy 4 KiB q1 cold"));
    assert!(
        comparison
            .lines(false)
            .iter()
            .all(|line| page.contains(&line.replace('<', "&lt;").replace('>', "&gt;"))),
        "{page}"
    );
}

#[test]
fn axes_have_ticks() {
    let axis = |base| axis::Axis { label: String::new(), format: |v| v.to_string(), base };
    for (base, values, least) in [
        (10.0, &[3.0, 4.0][..], 3),
        (10.0, &[1e-3, 1e6], 3),
        (2.0, &[64.0, 4096.0 * 1024.0], 5),
        (2.0, &[1.0, 3.0], 3),
        (0.0, &[0.1, 59.7], 3),
        (0.0, &[1e-4], 3),
        (2.0, &[], 2),
    ] {
        let ticks = axis(base).ticks(values.iter().copied());
        assert!(ticks.at.len() >= least && ticks.at.len() <= 14, "{base} {values:?}: {ticks:?}");
        assert!(ticks.at.iter().all(|t| (ticks.from..=ticks.to).contains(t)), "{ticks:?}");
        let within = |v: &f64| (ticks.from..=ticks.to).contains(&axis(base).place(*v));
        assert!(values.iter().all(within), "{base} {values:?}: {ticks:?}");
    }
}
