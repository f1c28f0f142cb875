//! Tests of tables, summary and CSV.

use super::*;
use crate::results::Status;
use crate::results::conclusions::verdicts;
use crate::results::tests::sample;
use crate::verdict::stats::Figures;

#[test]
fn models_are_labelled_wherever_they_appear() {
    let results = sample();
    let plain = tables(&results, Style::Plain, Shown::default());
    let (measured, models) = plain.split_once("Models:").unwrap();
    assert!(!measured.contains("sim:"), "a model is not among the measured engines: {measured}");
    assert!(models.contains("a model: dsa (a public <source>)"));
    assert!(
        models.contains("sim:profile=dsa, one at a time, cold [model]:"),
        "the verdicts contain the model: {models}"
    );
    let ranked = tables(&results, Style::Plain, Shown { rank_models: true, ..Shown::default() });
    assert!(ranked.contains("sim:profile=dsa [model]"), "one ranking contains models");
    let csv = csv(&results);
    let of = |name: &'static str| csv.lines().filter(move |l| l.starts_with(name));
    assert!(of("sim:").all(|l| l.starts_with("sim:profile=dsa,model,dsa (a public <source>),")));
    assert!(of("cpu").all(|l| l.contains(",measured,,,")));
}

/// Returns results of 40 passes in which the CPU engine has these ratios, by size.
fn decided(ratios: [f64; 4]) -> Results {
    let mut results = sample();
    for m in &mut results.cells {
        m.passes = 24;
        let of_cpu =
            [64, 4096, 65_536, 1 << 20].into_iter().zip(ratios).find(|(size, _)| *size == m.cell.size);
        if let (Some((_, ratio)), "cpu") = (of_cpu, m.cell.engine.as_str()) {
            m.ratio = Figures::of((0..48).map(|n| ratio * (1.0 + f64::from(n % 7) / 1000.0)).collect());
        }
    }
    results.verdicts = verdicts(&results.campaign, &results.cells, false);
    results.summary = summary(&results);
    results
}

/// The summary answers the first five questions of a new user.
#[test]
fn the_summary_answers_what_is_asked_first() {
    let results = decided([0.5, 0.8, 1.3, 1.9]);
    let lines = &results.summary;
    assert!(lines.len() <= 12, "{lines:#?}");
    let has = |text: &str| assert!(lines.iter().any(|l| l.contains(text)), "{text}: {lines:#?}");
    // Which engine for 4 KiB, and from which size on?
    has("cold, one at a time: memcpy up to 4 KiB, cpu from 64 KiB");
    // How much CPU time do I save?
    has("CPU time: cpu frees none, takes 1.00 times memcpy's (1 MiB, cold)");
    // Is it a model?
    has("Models (simulated, not measured)");
    has("sim:profile=dsa [model], one at a time:");
    // Can I trust the figures?
    has("Trust: 256 operations compared, no wrong byte; risk of a wrong verdict < 0.1 %");
    has("Disturbed by: 4 cells have no figures");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for style in [Style::Plain, Style::Markdown] {
        let text = tables(&results, style, Shown::default());
        assert!(words(&text).ends_with(&words(&lines.join(" "))), "the tables end with the summary: {text}");
    }
    let page = crate::report::page(&results).unwrap();
    let (before, _) = page.split_once("<h2").unwrap();
    assert!(lines.iter().all(|l| before.contains(&l.trim_start().replace('<', "&lt;"))), "{before}");
    let mut busy = decided([1.0, 1.0, 1.0, 1.0]);
    busy.cells[4].run_delay = 0.3;
    busy.interrupted = true;
    let lines = summary(&busy);
    assert!(
        lines.iter().any(|l| l == "  cold, one at a time: either at all sizes, 64 B to 1 MiB"),
        "{lines:#?}"
    );
    let said = "Disturbed by: interrupted; threads waited for a CPU up to 30 % of the time; 4";
    assert!(lines.iter().any(|l| l.starts_with(said)), "{lines:#?}");
    busy.cells[5].status = crate::results::Status::Wrong;
    assert!(summary(&busy).iter().any(|l| l == "Do NOT trust: 1 cell has wrong bytes"));
}

#[test]
fn the_summary_never_grows() {
    let mut results = decided([0.5, 0.8, 1.3, 1.9]);
    let like: Vec<_> = results.cells.iter().filter(|m| m.cell.engine != "memcpy").cloned().collect();
    for depth in 2..40 {
        for mut m in like.clone() {
            m.cell.depth = depth;
            m.cell.engine += &format!("-with-a-long-name-{depth}");
            results.cells.push(m);
        }
    }
    results.verdicts = verdicts(&results.campaign, &results.cells, false);
    let lines = summary(&results);
    assert!(lines.len() <= 12, "{lines:#?}");
    assert!(lines.iter().any(|l| l.contains("more ways of use")), "{lines:#?}");
}

/// Text is wrapped for terminals and pipes. In pages and JSON, a statement is not wrapped.
#[test]
fn text_fits_80_columns_and_nothing_is_cut() {
    let mut results = decided([0.5, 0.8, 1.3, 1.9]);
    let long = "sim:profile=dsa,clock=virtual,queues=4,depth=128,seed=123456789";
    results.engines[2].name = long.to_owned();
    for m in results.cells.iter_mut().filter(|m| m.model) {
        long.clone_into(&mut m.cell.engine);
    }
    results.cells[12].message = Some("the device does not answer; ".repeat(10));
    (results.interrupted, results.cells[4].run_delay) = (true, 0.5);
    results.verdicts = verdicts(&results.campaign, &results.cells, false);
    results.summary = summary(&results);
    let text = tables(&results, Style::Plain, Shown::default());
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    let page = crate::report::page(&results).unwrap();
    for statement in results.summary.iter().chain(results.verdicts.iter().map(|v| &v.text)) {
        assert!(!statement.contains("..."), "{statement}");
        assert!(page.contains(&statement.trim_start().replace('<', "&lt;")), "{statement}: {page}");
    }
    assert!(results.summary.iter().any(|s| s.chars().count() > 80), "{:#?}", results.summary);
}

#[test]
fn failures_are_named() {
    let markdown = tables(&sample(), Style::Markdown, Shown::default());
    assert!(markdown.contains("- doca: no SDK"));
    let all = "- doca copy 64 B q1 cold, doca copy 4 KiB q1 cold, doca copy 64 KiB q1 cold, doca copy 1 MiB q1 cold: device lost";
    assert!(markdown.contains(all), "{markdown}");
    assert_eq!(
        markdown.matches("device lost").count(),
        1,
        "a reason is shown once for all cells: {markdown}"
    );
    let mut more = sample();
    let mut fifth = more.cells[15].clone();
    (fifth.cell.engine, fifth.status) = ("doca".to_owned(), Status::Failed);
    (fifth.cell.size, fifth.message) = (2 << 20, Some("device lost".to_owned()));
    more.cells.push(fifth);
    let markdown = tables(&more, Style::Markdown, Shown::default());
    assert!(markdown.contains("doca copy 1 MiB q1 cold and 1 more: device lost"), "{markdown}");
    assert!(markdown.contains("### copy cold"));
}

#[test]
fn names_do_not_break_tables() {
    let mut results = sample();
    let odd = "cpu:a|b\nc\x1b[31m";
    results
        .cells
        .iter_mut()
        .filter(|m| m.cell.engine == "cpu")
        .for_each(|m| odd.clone_into(&mut m.cell.engine));
    results.knees[0].engine = odd.to_owned();
    results.published[0].load = odd.to_owned();
    results.verdicts = verdicts(&results.campaign, &results.cells, false);
    for (style, name) in [(Style::Markdown, "cpu:a\\|b c [31m"), (Style::Terminal(200), "cpu:a|b c [31m")] {
        let text = tables(&results, style, Shown::default());
        // The results have four cells, a knee, a published figure and a verdict.
        assert_eq!(text.matches(name).count(), 7, "{text}");
        assert!(!text.contains('\x1b'));
    }
    let markdown = tables(&results, Style::Markdown, Shown::default()).replace("\\|", "");
    let bars = |line: &str| line.matches('|').count();
    let rows: Vec<&str> = markdown.lines().filter(|l| l.contains("cpu:a") && l.starts_with('|')).collect();
    assert!(rows.len() == 6 && rows[..4].iter().all(|l| bars(l) == bars(rows[0])), "{markdown}");
}

#[test]
fn notes_end_the_table_above() {
    let mut results = sample();
    results.cells.iter_mut().for_each(|m| m.cell.batch = 2);
    let markdown = tables(&results, Style::Markdown, Shown::default());
    let notes = "|\n\n- depth: operations in flight by operations for each doorbell\n- sim:profile=dsa: a model: dsa (a public \\<source";
    assert!(markdown.contains(notes), "{markdown}");
    let plain = tables(&sample(), Style::Plain, Shown::default());
    assert!(plain.contains("\n\nsim:profile=dsa: a model: ") && !plain.contains("depth: "), "{plain}");
}

#[test]
fn a_rate_that_is_missed_is_marked() {
    let mut results = sample();
    results.campaign.rate = Some(1e9);
    let text = tables(&results, Style::Plain, Shown::default());
    assert!(text.contains("At a rate of 1.00 G/s on each queue"), "{text}");
    assert!(csv(&results).contains(",measured,,1000000000,"));
    assert!(text.contains("The rate was missed in 8 of 8 cells"), "{text}");
    let wide = tables(&results, Style::Plain, Shown { wide: true, ..Shown::default() });
    assert_eq!(wide.matches(" % of the rate").count(), 8, "{wide}");
}

#[test]
fn a_spreadsheet_computes_no_text() {
    let texts = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "-2.5", "+1e3", "a=b", "cpu", ""];
    let line = grid::csv([texts.map(str::to_owned).to_vec()]);
    assert_eq!(line, "'=1+1,'+1+1,'-1+1,'@SUM(A1),'\t=1,-2.5,+1e3,a=b,cpu,\n");
    let mut results = sample();
    results.cells.iter_mut().for_each(|m| m.cell.engine = "=cmd()".to_owned());
    let csv = csv(&results);
    assert_eq!(csv.matches("'=cmd()").count(), csv.matches("=cmd()").count(), "{csv}");
}

#[test]
fn csv_has_a_line_for_each_cell() {
    let results = sample();
    let bytes = csv(&results).into_bytes();
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    assert_eq!(reader.records().map(Result::unwrap).count(), results.cells.len());
}
