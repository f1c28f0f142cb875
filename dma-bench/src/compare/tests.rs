//! Comparisons of two results, where the second is a changed copy of the first.

use super::export::SCHEMA;
use super::*;
use crate::output::Style;
use crate::plan::Verify;
use crate::results::tests::sample;

fn scaled(results: &Results, engine: &str, by: f64) -> Results {
    let mut results = results.clone();
    for m in results.cells.iter_mut().filter(|m| m.cell.engine == engine) {
        m.ratio = m.ratio.as_ref().map(|f| f.times(by));
    }
    results
}

/// Returns the results with `n` samples of each cell.
fn repeated(mut results: Results, samples: u32) -> Results {
    results.campaign.samples = samples;
    for m in &mut results.cells {
        for figures in [&mut m.ratio, &mut m.bytes_per_second, &mut m.ops_per_second].into_iter().flatten() {
            let samples = figures.samples.iter().copied().cycle().take(samples as usize);
            *figures = Figures::of(samples.collect()).unwrap();
        }
    }
    results
}

fn changed(comparison: &Comparison) -> usize {
    comparison.rows.iter().filter(|r| r.verdict == Significance::Changed).count()
}

fn slower(comparison: &Comparison, limit: f64) -> usize {
    comparison.slower(limit, Significance::Changed).count()
}

#[test]
fn the_same_results_have_not_changed() {
    let comparison = compare(&sample(), &sample(), Metric::Ratio, 0.01);
    // Four sizes of an engine and of a model. The baseline is not compared with itself, and cells that failed
    // have no figures.
    assert_eq!(comparison.rows.len(), 8);
    let same = |r: &Row| if r.model { (Significance::Same, None) } else { (Significance::Noise, Some(1.0)) };
    assert!(comparison.rows.iter().all(|r| (r.verdict, r.chance) == same(r)), "{comparison:?}");
    assert_eq!((comparison.changes.len(), comparison.failures(0.0)), (0, vec![]));
    assert_eq!((comparison.notes.len(), comparison.differences.len()), (0, 0));
    assert!(
        comparison.text(false, Style::Plain).contains("sim:profile=dsa is a model: dsa (a public <source>)")
    );
    assert!(comparison.text(false, Style::Plain).contains("noise within these two runs"));
    let throughput = compare(&sample(), &sample(), Metric::Throughput, 0.01);
    assert_eq!(throughput.rows.len(), 12, "here the baseline is");
}

/// Returns the notes of a comparison after `change` to the later results.
fn notes(change: impl FnOnce(&mut Results)) -> Vec<String> {
    let mut after = sample();
    change(&mut after);
    let said = |a: &Results, b: &Results| -> Vec<String> {
        let comparison = compare(a, b, Metric::Throughput, 0.01);
        comparison.differences.iter().map(ToString::to_string).chain(comparison.notes).collect()
    };
    let (there, back) = (said(&sample(), &after), said(&after, &sample()));
    assert_eq!(there.len(), back.len(), "{there:?} {back:?}");
    there
}

#[test]
fn other_differences_are_said() {
    type Change = fn(&mut Results);
    let changes: [(Change, &str); 26] = [
        (|r| "another".clone_into(&mut r.machine.cpu), "differs: processor "),
        (|r| r.machine.cpus = 6400, "/ 6400"),
        (|r| r.machine.flags = vec!["mops".to_owned()], "/ mops"),
        (|r| r.machine.caches = vec!["L9 1K".to_owned()], "/ L9 1K"),
        (|r| r.machine.memory *= 2, "differs: memory "),
        (|r| r.machine.virtual_machine ^= true, "differs: virtual machine "),
        (|r| "BeOS".clone_into(&mut r.machine.os), "/ BeOS"),
        (|r| "7.1".clone_into(&mut r.machine.kernel), "/ 7.1"),
        (|r| "3.0".clone_into(&mut r.machine.libc), "differs: C library "),
        (|r| "vax".clone_into(&mut r.machine.arch), "/ vax"),
        (|r| r.machine.governor = Some("odd".to_owned()), "differs: governor "),
        (|r| r.machine.huge_pages = Some("odd".to_owned()), "differs: huge pages "),
        (|r| "9.9".clone_into(&mut r.tool), "differs: version of dma-bench 0.1.0 / 9.9"),
        (|r| r.command.push("--realtime".to_owned()), "differs: --realtime no / yes"),
        (|r| "2".clone_into(&mut r.engines[1].version), "differs: version of cpu: 1 / 2"),
        (|r| "b".clone_into(&mut r.engines[1].device), "differs: device of cpu: a device / b"),
        (|r| r.engines[2].model = Some("b".to_owned()), "differs: model of sim:profile=dsa: "),
        (|r| "real".clone_into(&mut r.engines[2].clock), "differs: clock of sim:profile=dsa: virtual / real"),
        (|r| r.campaign.footprint = Some(1 << 30), "differs: footprint none / 1 GiB"),
        (|r| r.campaign.seconds = 1.0, "differs: time of a sample 800 us / 1.00 s"),
        (|r| r.campaign.passes = 12, "differs: passes 24 / 12"),
        (|r| r.campaign.warm_up = 1.0, "differs: warm-up 240 ms / 1.00 s"),
        (|r| r.campaign.verify = Verify::All, "differs: verification sample / all"),
        (|r| r.campaign.rate = Some(1e3), "differs: rate none / 1.00 k/s"),
        (|r| r.interrupted = true, "was interrupted"),
        (|r| r.cells.iter_mut().for_each(|m| m.run_delay = 0.5), "was busy during the runs"),
    ];
    for (change, says) in changes {
        let notes = notes(change);
        assert!(matches!(&notes[..], [note] if note.contains(says)), "{says}: {notes:?}");
    }
    let count = notes(|r| r.campaign.count = Some(17));
    assert!(count.contains(&"differs: operations of a sample none / 17".to_owned()), "{count:?}");
}

#[test]
fn a_slowdown_that_cannot_be_told_does_not_pass() {
    let five = repeated(sample(), 5);
    let comparison = compare(&five, &scaled(&five, "cpu", 0.1), Metric::Ratio, 0.01);
    assert!(comparison.rows.iter().filter(|r| !r.model).all(|r| r.verdict == Significance::Undecidable));
    assert!(
        comparison.rows.iter().filter(|r| r.model).all(|r| r.verdict == Significance::Same),
        "these are exact"
    );
    let text = comparison.text(false, Style::Terminal(200));
    assert!(text.contains("4 of 8 cells cannot be told from noise with so few samples"), "{text}");
    assert!(text.contains("(have 5 before and 5 after): measure both with --samples 6 or more"), "{text}");
    assert!(text.contains("-90.0 %"), "the samples do not overlap: {text}");
    let failures = comparison.failures(0.05);
    assert!(
        matches!(&failures[..], [why] if why.contains("4 cells look slower") && why.contains("--samples 6")),
        "{failures:?}"
    );
    // Faster cells pass, whether noise or not.
    assert_eq!(compare(&five, &scaled(&five, "cpu", 2.0), Metric::Ratio, 0.01).failures(0.05), [""; 0]);
    assert_eq!(compare(&five, &five, Metric::Ratio, 0.01).failures(0.0), [""; 0]);
    // With six samples, as suggested, the slowdown is found.
    let six = repeated(sample(), 6);
    let comparison = compare(&six, &scaled(&six, "cpu", 0.1), Metric::Ratio, 0.01);
    assert_eq!(slower(&comparison, 0.05), 4, "{}", comparison.text(true, Style::Plain));
    // No number of samples is sufficient for that certainty.
    let sure = compare(&six, &scaled(&six, "cpu", 0.1), Metric::Ratio, 0.0).text(false, Style::Plain);
    assert!(sure.contains("greater --noise"), "{sure}");
}

/// Samples of one block lie close together, and differ less than blocks do.
#[test]
fn drift_within_a_run_is_noise() {
    let drifting = |from: f64| {
        let mut results = sample();
        results.campaign.samples = 60;
        for m in results.cells.iter_mut().filter(|m| m.cell.engine == "cpu") {
            // The speed differs between the parts of a run, and hardly within a part.
            let sample = |i: usize| (from + 0.1 * ((i / 5 * 5) % 12) as f64) * (1.0 + 1e-6 * i as f64);
            m.ratio = Figures::of((0..60).map(sample).collect());
        }
        results
    };
    let (before, after) = (drifting(1.0), drifting(1.45));
    let (a, b) = (&before.cells[5].ratio, &after.cells[5].ratio);
    let (a, b) = (&a.as_ref().unwrap().samples, &b.as_ref().unwrap().samples);
    assert!(mann_whitney(a, b) < 1e-4, "a test over single samples would report a change");
    let comparison = compare(&before, &after, Metric::Ratio, 0.01);
    assert_eq!(changed(&comparison), 0, "{}", comparison.text(true, Style::Plain));
    let comparison = compare(&before, &drifting(4.0), Metric::Ratio, 0.01);
    assert_eq!(changed(&comparison), 4, "{}", comparison.text(true, Style::Plain));
}

/// Models need few samples, and load on the machine does not affect them.
#[test]
fn models_need_no_excuse() {
    let only_model = |mut results: Results| {
        results.cells.retain(|m| m.model);
        results.cells.iter_mut().for_each(|m| m.run_delay = 0.5);
        repeated(results, 1)
    };
    let comparison = compare(&only_model(sample()), &only_model(sample()), Metric::Ratio, 0.01);
    assert_eq!((comparison.rows.len(), &comparison.notes[..]), (4, &[][..]));
    assert!(!comparison.text(true, Style::Plain).contains("noise within"));
}

#[test]
fn cells_that_are_gone_are_named() {
    let mut after = sample();
    after.cells.retain(|m| m.cell.engine != "cpu" || m.cell.size > 4096);
    let comparison = compare(&sample(), &after, Metric::Ratio, 0.01);
    assert_eq!(comparison.rows.len(), 6);
    let text = comparison.text(false, Style::Plain);
    assert!(text.contains("cpu copy 64 B q1 cold: is missing in the second\n"), "{text}");
    assert!(text.contains("cpu copy 4 KiB q1 cold: is missing in the second\n"), "{text}");
    let failures = comparison.failures(0.5);
    assert!(matches!(&failures[..], [why] if why.starts_with("2 cells ended worse")), "{failures:?}");
    // New cells of the later results have no counterpart.
    let back = compare(&after, &sample(), Metric::Ratio, 0.01);
    assert_eq!((back.notes.len(), back.changes.len()), (0, 0));
    // For an engine that is missing now, the reason is shown.
    after.engines[1].error = Some("no such\x1b device".to_owned());
    let text = compare(&sample(), &after, Metric::Ratio, 0.01).text(false, Style::Plain);
    assert!(text.contains("is missing in the second: no such device"), "{text}");
}

#[test]
fn a_cell_that_fails_now_does_not_pass() {
    let ended = |status: Status, figures: bool| {
        let mut after = sample();
        for m in after.cells.iter_mut().filter(|m| m.cell.engine == "cpu") {
            (m.status, m.message) = (status, Some("offset 7".to_owned()));
            if !figures {
                (m.ratio, m.bytes_per_second, m.ops_per_second) = (None, None, None);
            }
        }
        after
    };
    let wrong = compare(&sample(), &ended(Status::Wrong, false), Metric::Ratio, 0.01);
    let text = wrong.text(false, Style::Plain);
    let says = "cpu copy 4 KiB q1 cold: was ok and is wrong, without figures: offset 7";
    assert!(text.contains(says) && !text.contains("missing in the second"), "{text}");
    let failures = wrong.failures(0.5);
    assert!(matches!(&failures[..], [why] if why.starts_with("4 cells ended worse")), "{failures:?}");
    let failed = compare(&sample(), &ended(Status::Failed, true), Metric::Ratio, 0.01);
    assert_eq!((failed.rows.len(), failed.failures(0.5).len()), (8, 1));
    assert!(failed.text(false, Style::Plain).contains("was ok and is failed: offset 7"));
    // A change from `failed` to `ok` passes, and is mentioned.
    let mended = compare(&ended(Status::Failed, true), &sample(), Metric::Ratio, 0.01);
    assert!(
        mended.failures(0.0).is_empty() && mended.text(false, Style::Plain).contains("was failed and is ok")
    );
    // If there are many changes, all of them are named only with `--all`.
    let mut many = (sample(), ended(Status::Wrong, false));
    for results in [&mut many.0, &mut many.1] {
        let like: Vec<Measured> = results.cells.iter().filter(|m| m.cell.engine == "cpu").cloned().collect();
        for depth in 2..6 {
            results.cells.extend(like.iter().cloned().map(|mut m| {
                m.cell.depth = depth;
                m
            }));
        }
    }
    let many = compare(&many.0, &many.1, Metric::Ratio, 0.01);
    let named = |all: bool| many.text(all, Style::Plain).matches("was ok and is wrong").count();
    assert_eq!((named(false), named(true)), (10, 20));
    assert!(many.text(false, Style::Plain).contains("and 10 more"));
}

#[test]
fn under_a_rate_latencies_are_compared() {
    let at_rate = |longer: u64| {
        let mut results = sample();
        results.campaign.rate = Some(1e3);
        for m in &mut results.cells {
            m.ratio = None;
            if let Some(latency) = &mut m.latency {
                (latency.p50, latency.p99) = (latency.p50 * longer, latency.p99 * longer);
            }
        }
        results
    };
    let comparison = compare(&at_rate(1), &at_rate(3), Metric::Ratio, 0.01);
    assert_eq!(comparison.rows.len(), 16, "p50 and p99 of each cell except baselines");
    let text = comparison.text(false, Style::Plain);
    assert!(text.contains("cpu copy 4 KiB q1 cold, p99") && text.contains("+200.0 %"), "{text}");
    assert!(!text.contains("GB/s") && text.contains("not tested"), "{text}");
    let failures = comparison.failures(0.5);
    assert!(matches!(&failures[..], [why] if why.starts_with("16 latencies")), "{failures:?}");
    assert_eq!(comparison.failures(2.0), [""; 0]);
    assert_eq!(compare(&at_rate(3), &at_rate(1), Metric::Ratio, 0.01).failures(0.0), [""; 0]);
    // The later run misses its rate.
    let mut slow = at_rate(1);
    let m = &mut slow.cells[5];
    m.ops_per_second = Figures::of(vec![500.0]);
    m.latency.as_mut().unwrap().p50 = 0;
    let mut fast = slow.clone();
    fast.cells[5].ops_per_second = Figures::of(vec![1000.0]);
    slow.campaign.seconds = 1.0;
    fast.campaign.seconds = 1.0;
    let missed = compare(&fast, &slow, Metric::Ratio, 0.01);
    assert!(
        missed.text(false, Style::Plain).contains("reached all of the rate before and reaches 50.0 % now"),
        "{}",
        missed.text(false, Style::Plain)
    );
    assert_eq!(
        (missed.failures(1.0).len(), compare(&slow, &fast, Metric::Ratio, 0.01).failures(1.0).len()),
        (1, 0)
    );
}

#[test]
fn only_a_clock_of_its_own_on_both_sides_makes_figures_exact() {
    let slower = |clock: &str| {
        let mut results = sample();
        results.engines.iter_mut().filter(|e| e.model.is_some()).for_each(|e| clock.clone_into(&mut e.clock));
        for m in results.cells.iter_mut().filter(|m| m.model) {
            m.bytes_per_second = m.bytes_per_second.as_ref().map(|f| f.times(0.99));
        }
        results
    };
    let significant = |after: &Results| changed(&compare(&sample(), after, Metric::Ratio, 0.01));
    assert_eq!(significant(&slower("virtual")), 4);
    assert_eq!(significant(&slower("real")), 0, "a change of 1 % is within the spread");
    // Equal figures, each measured once: not testable, but equal.
    let mut once = sample();
    for m in &mut once.cells {
        m.bytes_per_second = m.bytes_per_second.as_ref().and_then(|f| Figures::of(vec![f.median]));
    }
    let comparison = compare(&sample(), &once, Metric::Ratio, 0.01);
    assert!(comparison.rows.iter().filter(|r| r.model).all(|r| r.verdict == Significance::Same));
}

#[test]
fn a_limit_is_not_yet_beyond_it() {
    let half = scaled(&sample(), "cpu", 0.5);
    let comparison = compare(&sample(), &half, Metric::Ratio, 0.02);
    assert_eq!((slower(&comparison, 0.5), slower(&comparison, 0.499)), (0, 4));
}

#[test]
fn a_change_from_zero_has_no_percentage() {
    let nothing = scaled(&sample(), "cpu", 0.0);
    let there = compare(&nothing, &sample(), Metric::Ratio, 0.01);
    let back = compare(&sample(), &nothing, Metric::Ratio, 0.01);
    let same = compare(&nothing, &nothing, Metric::Ratio, 0.01);
    for comparison in [&there, &back, &same] {
        let text = comparison.text(true, Style::Plain);
        assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
    }
    assert_eq!((slower(&there, 0.0), slower(&back, 0.5), slower(&same, 0.0)), (0, 4, 0));
    assert!(there.text(false, Style::Plain).contains("faster"));
}

#[test]
fn a_slowdown_is_found_and_a_small_one_tolerated() {
    // The samples lie within 12 % of each other.
    let comparison = compare(&sample(), &scaled(&sample(), "cpu", 0.7), Metric::Ratio, 0.02);
    assert_eq!(slower(&comparison, 0.05), 4, "{}", comparison.text(true, Style::Plain));
    assert_eq!(slower(&comparison, 0.5), 0);
    let comparison = compare(&sample(), &scaled(&sample(), "cpu", 0.99), Metric::Ratio, 0.02);
    assert_eq!(slower(&comparison, 0.0), 0, "that is noise");
    let faster = compare(&sample(), &scaled(&sample(), "cpu", 2.0), Metric::Ratio, 0.02);
    assert_eq!(faster.failures(0.0), [""; 0]);
    assert!(faster.text(false, Style::Plain).contains("faster"));
}

#[test]
fn a_model_that_differs_has_changed_whatever_memcpy_did() {
    let mut after = scaled(&sample(), "sim:profile=dsa", 0.5);
    assert_eq!(slower(&compare(&sample(), &after, Metric::Ratio, 0.01), 0.0), 0, "that was memcpy");
    for m in after.cells.iter_mut().filter(|m| m.model) {
        m.bytes_per_second = m.bytes_per_second.as_ref().map(|f| f.times(0.98));
    }
    assert_eq!(slower(&compare(&sample(), &after, Metric::Ratio, 0.01), 0.01), 4);
}

/// A model that ran other cells before starts in another state, which may change its figures slightly.
#[test]
fn other_settings_of_a_model_explain_a_little() {
    type Change = fn(&mut Results);
    // The model's samples lie within a thousandth of their median.
    let model = |speed: f64, change: Change| {
        let mut results = repeated(sample(), 60);
        for m in results.cells.iter_mut().filter(|m| m.model) {
            m.bytes_per_second = Figures::of(vec![0.999 * speed, speed, 1.001 * speed]);
        }
        change(&mut results);
        results
    };
    let verdicts = |speed: f64, change: Change| {
        let comparison = compare(&model(1e9, |_| ()), &model(speed, change), Metric::Ratio, 0.01);
        let verdicts: Vec<Significance> =
            comparison.rows.iter().filter(|r| r.model).map(|r| r.verdict).collect();
        assert!(verdicts.iter().all(|v| *v == verdicts[0]), "{verdicts:?}");
        assert_eq!(slower(&comparison, 0.0) > 0, verdicts[0] == Significance::Changed);
        let said = comparison.text(false, Style::Plain).contains("cells of models differ by up to ");
        assert_eq!(
            said,
            verdicts[0] == Significance::OtherConditions,
            "{}",
            comparison.text(false, Style::Plain)
        );
        verdicts[0]
    };
    let samples: Change = |r| r.campaign.samples = 250;
    let operations: Change = |r| r.campaign.count = Some(50);
    let others: Change = |r| r.cells.retain(|m| m.cell.size > 64);
    let all: Change = |r| r.campaign.verify = Verify::All;
    let fewer: Change = |r| {
        for m in r.cells.iter_mut().filter(|m| m.model) {
            let samples = &m.bytes_per_second.as_ref().unwrap().samples;
            m.bytes_per_second = Figures::of(samples[..2].to_vec());
        }
    };
    // If the conditions are the same, every difference is a change.
    let nothing: [Change; 3] = [
        |_| (),
        |r| (r.campaign.seconds, r.campaign.warm_up, r.campaign.footprint) = (1.0, 1.0, Some(1 << 20)),
        |r| r.cells.retain(|m| m.cell.engine != "cpu"),
    ];
    for change in nothing {
        assert_eq!(verdicts(0.999e9, change), Significance::Changed);
        assert_eq!(verdicts(1e9, change), Significance::Same);
    }
    for change in [samples, others, all, fewer] {
        assert_eq!(verdicts(0.99e9, change), Significance::OtherConditions);
        assert_eq!(verdicts(0.95e9, change), Significance::Changed);
    }
    assert_eq!(verdicts(0.8e9, operations), Significance::OtherConditions);
    assert_eq!(verdicts(0.7e9, operations), Significance::Changed);
    // Differences among the samples of a cell are not a change either.
    let wide = |speed: f64| {
        let mut results = model(speed, |r| r.campaign.samples = 250);
        for m in results.cells.iter_mut().filter(|m| m.model) {
            m.bytes_per_second = Figures::of(vec![0.9 * speed, speed, 1.1 * speed]);
        }
        results
    };
    let comparison = compare(&model(1e9, |_| ()), &wide(0.95e9), Metric::Ratio, 0.01);
    assert!(comparison.rows.iter().filter(|r| r.model).all(|r| r.verdict == Significance::OtherConditions));
    assert_eq!(comparison.failures(0.0), [""; 0]);
}

#[test]
fn headings_say_what_the_figures_are() {
    let text = compare(&sample(), &sample(), Metric::Ratio, 0.01).text(true, Style::Plain);
    let (ratios, throughputs) = text.split_once("┌").unwrap().1.split_once("┌").unwrap();
    assert!(ratios.contains(" x memcpy before ┆ x memcpy after ") && !ratios.contains("model"), "{text}");
    assert!(throughputs.contains(" GB/s before ┆ GB/s after ") && !text.contains(" GB/s ┆"), "{text}");
    let (throughputs, rest) = throughputs.split_once("┘").unwrap();
    assert_eq!((ratios.matches("cpu copy").count(), throughputs.matches(" [model] ").count()), (4, 4));
    assert!(rest.starts_with("\n8 cells compared (4 by x memcpy, 4 by GB/s), 0 changed (Mann-W"), "{rest}");
    let text = compare(&sample(), &sample(), Metric::Throughput, 0.01).text(true, Style::Plain);
    assert!(text.contains("12 cells compared (12 by GB/s)") && !text.contains("x memcpy"), "{text}");
}

/// Returns a comparison in which one cell is slower, one fails now, one is missing, and one is new.
fn all_kinds() -> Comparison {
    let (mut before, mut after) = (sample(), scaled(&sample(), "cpu", 0.1));
    after.machine.cpu = "another".to_owned();
    let cpu: Vec<usize> =
        (0..before.cells.len()).filter(|at| before.cells[*at].cell.engine == "cpu").collect();
    let failed = &mut after.cells[cpu[1]];
    (failed.status, failed.message) = (Status::Failed, Some("a|b <c>".to_owned()));
    (failed.ratio, failed.bytes_per_second) = (None, None);
    after.cells.remove(cpu[2]);
    before.cells.remove(cpu[3]);
    compare(&before, &after, Metric::Ratio, 0.01)
}

#[test]
fn json_has_every_cell_once_and_every_field_is_documented() {
    let comparison = all_kinds();
    let value: serde_json::Value = serde_json::from_str(&comparison.json(Some(0.05))).unwrap();
    assert_eq!(
        (value["schema"].as_str(), value["version"].as_u64()),
        (Some(SCHEMA), Some(u64::from(export::VERSION)))
    );
    assert_eq!((value["metric"].as_str(), value["noise"].as_f64()), (Some("ratio"), Some(0.01)));
    assert_eq!(
        (&value["before"]["created"], &value["after"]["machine"]["cpu"]),
        (&"2026-01-02T03:04:05Z".into(), &"another".into())
    );
    assert_eq!(
        (&value["differs"][0]["what"], &value["differs"][0]["after"]),
        (&"processor".into(), &"another".into())
    );
    let cells = value["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 16);
    let of = |size: u64| cells.iter().find(|c| c["engine"] == "cpu" && c["size"] == size).unwrap();
    let figure = &of(64)["figures"][0];
    assert_eq!((&figure["quantity"], &figure["verdict"]), (&"ratio".into(), &"slower".into()));
    assert!(
        (figure["change"].as_f64().unwrap() + 0.9).abs() < 1e-9 && figure["chance"].as_f64().unwrap() < 0.01
    );
    assert!((figure["after"].as_f64().unwrap() / figure["before"].as_f64().unwrap() - 0.1).abs() < 1e-9);
    let ends = |size: u64| {
        (of(size)["status_before"].as_str(), of(size)["status_after"].as_str(), of(size)["worse"] == true)
    };
    assert_eq!((ends(64), ends(4096)), ((Some("ok"), Some("ok"), false), (Some("ok"), Some("failed"), true)));
    assert_eq!((ends(65_536), ends(1 << 20)), ((Some("ok"), None, true), (None, Some("ok"), false)));
    assert!(of(4096)["ended"].as_str().unwrap().contains("was ok and is failed"));
    let model = cells.iter().find(|c| c["model"] == true).unwrap();
    assert_eq!(
        (&model["figures"][0]["verdict"], model["figures"][0]["chance"].is_null()),
        (&"same".into(), true)
    );
    let outcome = &value["fail_if_slower"];
    assert_eq!((&outcome["passes"], outcome["limit"].as_f64()), (&false.into(), Some(0.05)));
    assert_eq!(outcome["reasons"].as_array().unwrap().len(), 2);
    let asked_nothing: serde_json::Value = serde_json::from_str(&comparison.json(None)).unwrap();
    assert!(asked_nothing["fail_if_slower"].is_null());
    fn documented(value: &serde_json::Value) {
        let text = include_str!("../../RESULTS.md").split_once("# `compare --format json`").unwrap().1;
        match value {
            serde_json::Value::Object(map) => {
                map.iter().filter(|(name, _)| *name != "machine").for_each(|(name, value)| {
                    assert!(text.contains(&format!("`{name}`")), "RESULTS.md does not describe `{name}`");
                    documented(value);
                })
            }
            serde_json::Value::Array(all) => all.iter().for_each(documented),
            _ => {}
        }
    }
    documented(&value);
}

#[test]
fn csv_has_a_line_for_each_cell() {
    let bytes = all_kinds().csv().into_bytes();
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let head: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let lines: Vec<Vec<String>> =
        reader.records().map(|r| r.unwrap().iter().map(str::to_owned).collect()).collect();
    assert_eq!(lines.len(), 16);
    let of = |size: &str, field: &str| {
        let line = lines.iter().find(|l| l[0] == "cpu" && l[3] == size).unwrap();
        line[head.iter().position(|h| h == field).unwrap()].clone()
    };
    assert_eq!((of("64", "quantity"), of("64", "verdict")), ("ratio".to_owned(), "slower".to_owned()));
    assert!(of("64", "change").starts_with("-0.9") || of("64", "change").starts_with("-0.89"));
    assert_eq!((of("4096", "status_after"), of("4096", "before")), ("failed".to_owned(), String::new()));
    assert!(of("4096", "ended").ends_with("a|b <c>"));
    assert_eq!((of("65536", "status_after"), of("1048576", "status_before")), (String::new(), String::new()));
}

#[test]
fn markdown_is_a_table_and_a_list() {
    let mut comparison = all_kinds();
    comparison.rows.iter_mut().for_each(|r| r.cell.engine.push('|'));
    let text = comparison.markdown(true, Some(0.05));
    let bars = |line: &str| line.replace("\\|", "").matches('|').count();
    assert!(text.lines().filter(|l| l.starts_with('|')).all(|l| bars(l) == 7), "{text}");
    assert!(
        text.lines()
            .all(|l| l.is_empty() || l.starts_with("| ") || l.starts_with("|-") || l.starts_with("- ")),
        "{text}"
    );
    assert!(text.contains("cpu\\| copy 64 B q1 cold") && text.contains("a\\|b \\<c>"), "{text}");
    assert!(
        text.contains("- does not pass --fail-if-slower 5 %: 1 cells are slower by more than 5 %"),
        "{text}"
    );
    assert!(
        compare(&sample(), &sample(), Metric::Ratio, 0.01)
            .markdown(false, Some(0.05))
            .starts_with("- passes --fail-if")
    );
    assert!(!comparison.markdown(false, None).contains("pass"));
}

#[test]
fn the_correction_is_holms() {
    let row = |chance| Row {
        cell: sample().cells[0].cell.clone(),
        model: false,
        quantity: Quantity::Ratio,
        before: 1.0,
        after: 1.0,
        chance,
        verdict: Significance::Same,
        samples: (12, 12),
        apart: false,
    };
    // Figures on a virtual clock do not count.
    let mut rows = vec![row(Some(0.01)), row(None), row(Some(0.04)), row(Some(0.03)), row(None)];
    judge(&mut rows, 0.05);
    let expected = [Some(0.03), None, Some(0.06), Some(0.06), None];
    let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-12,
        (a, b) => a == b,
    };
    assert!(rows.iter().zip(expected).all(|(r, e)| close(r.chance, e)), "{rows:?}");
    let verdicts: Vec<Significance> = rows.iter().map(|r| r.verdict).collect();
    let (changed, noise, same) = (Significance::Changed, Significance::Noise, Significance::Same);
    assert_eq!(verdicts, [changed, same, noise, noise, same]);
}
