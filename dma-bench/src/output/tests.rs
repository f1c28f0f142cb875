//! What must be in tables and CSV, and what must not.

use super::*;
use crate::results::tests::sample;

#[test]
fn models_are_labelled_wherever_they_appear() {
    let results = sample();
    let plain = tables(&results, Style::Plain, false);
    let (measured, models) = plain.split_once("Models:").unwrap();
    assert!(!measured.contains("sim:"), "never among the measured: {measured}");
    assert!(models.contains("a model: dsa (a public <source>)"));
    assert!(models.contains("sim:profile=dsa [model]"), "in the crossovers");
    assert!(
        tables(&results, Style::Plain, true).contains("sim:profile=dsa [model]"),
        "when asked for one ranking"
    );
    let csv = String::from_utf8(csv(&results).unwrap()).unwrap();
    assert!(
        csv.lines()
            .filter(|l| l.starts_with("sim:"))
            .all(|l| l.starts_with("sim:profile=dsa,model,dsa (a public <source>),"))
    );
    assert!(csv.lines().filter(|l| l.starts_with("cpu")).all(|l| l.contains(",measured,,,")));
}

#[test]
fn what_failed_is_named() {
    let markdown = tables(&sample(), Style::Markdown, false);
    assert!(markdown.contains("- doca: no SDK"));
    assert!(markdown.contains("- doca copy 64 B q1 cold: device lost"));
    assert!(markdown.contains("| copy cold |"));
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
    results.crossovers[0].engine = odd.to_owned();
    results.published[0].load = odd.to_owned();
    for (style, name) in [(Style::Markdown, "cpu:a\\|b c [31m"), (Style::Plain, "cpu:a|b c [31m")] {
        let text = tables(&results, style, false);
        // Four cells, a crossover, a knee, a published figure, and the head of the summary.
        assert_eq!(text.matches(name).count(), 8, "{text}");
        assert!(!text.contains('\x1b'));
    }
    let markdown = tables(&results, Style::Markdown, false).replace("\\|", "");
    let bars = |line: &str| line.matches('|').count();
    let rows: Vec<&str> = markdown.lines().filter(|l| l.contains("copy cold")).collect();
    assert!(rows.len() == 12 && rows.iter().all(|l| bars(l) == bars(rows[0])), "{markdown}");
}

#[test]
fn a_rate_that_is_missed_is_marked() {
    let mut results = sample();
    assert!(tables(&results, Style::Plain, false).contains("In short"));
    results.campaign.rate = Some(1e9);
    let text = tables(&results, Style::Plain, false);
    assert!(text.contains("At a rate of 1.00 G/s on each queue"), "{text}");
    assert!(String::from_utf8(csv(&results).unwrap()).unwrap().contains(",measured,,1000000000,"));
    assert_eq!(text.matches(" % of the rate ").count(), 8, "{text}");
    assert!(text.contains("The rate was missed in 8 of 8 cells") && !text.contains("In short"), "{text}");
}

#[test]
fn csv_has_a_line_for_each_cell() {
    let results = sample();
    let bytes = csv(&results).unwrap();
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    assert_eq!(reader.records().map(Result::unwrap).count(), results.cells.len());
}
