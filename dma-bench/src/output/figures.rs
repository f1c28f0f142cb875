//! The table of figures: a row for each cell.

use std::cmp::Reverse;

use comfy_table::ColumnConstraint;

use super::words::labelled;
use super::{Style, depth, latencies, right, speed, what};
use crate::plan::Campaign;
use crate::results::Measured;
use crate::stats::Figures;
use crate::units::{bytes, digits, nanos};

const HEADER: [&str; 16] = [
    "what", "size", "engine", "depth", "GB/s", "ops/s", "x memcpy", "p50", "p90", "p99", "p99.9", "max",
    "CPU/op", "CPU s/GB", "bells/op", "polls/op",
];

/// What is left out where there is no room, one after the other: whole columns, and with "(...)" the spread of figures.
const LEAST_FIRST: [&str; 13] = [
    "polls/op",
    "bells/op",
    "max",
    "CPU/op",
    "p99.9",
    "p90",
    "ops/s",
    "GB/s (...)",
    "x memcpy (...)",
    "CPU s/GB",
    "p99",
    "p50",
    "depth",
];

/// A row for each cell; where models are among the measured ones, `marked`, and the fastest of each size first.
pub(super) fn table(campaign: &Campaign, cells: &mut [&Measured], style: Style, marked: bool) -> String {
    cells.sort_by_key(|m| {
        let c = &m.cell;
        let speed = m.ops_per_second.as_ref().filter(|_| marked).map(|f| Reverse(f.median.to_bits()));
        (c.op, c.direction, c.footprint, c.segments, c.size, speed, c.depth, !c.is_baseline())
    });
    let Style::Terminal(width) = style else {
        return draw(campaign, cells, style, marked, &[]);
    };
    let fits = |text: &String| text.lines().all(|line| line.chars().count() <= usize::from(width));
    let drawn = |without| draw(campaign, cells, style, marked, &LEAST_FIRST[..without]);
    // Too narrow for the rest, too: no use in leaving anything out.
    let without = (0..=LEAST_FIRST.len()).find(|n| fits(&drawn(*n))).unwrap_or(0);
    let mut text = drawn(without);
    if without > 0 {
        let names = LEAST_FIRST[..without].join(", ");
        text += &format!(
            "No room in {width} columns for {names}: --format csv has everything, and so has a pipe.\n"
        );
    }
    text
}

fn draw(campaign: &Campaign, cells: &[&Measured], style: Style, marked: bool, without: &[&str]) -> String {
    let mut table = style.rigid_table(&HEADER);
    let spread = |name: &str, figures: &Figures, scale: f64| {
        let of = |v: f64| digits(v * scale);
        if without.iter().any(|w| w.strip_suffix(" (...)") == Some(name)) {
            of(figures.median)
        } else {
            format!("{} ({} to {})", of(figures.median), of(figures.min), of(figures.max))
        }
    };
    for m in cells {
        let c = &m.cell;
        let [p50, p90, p99, p999, max] = latencies(m);
        let per_op = |v: Option<f64>| v.map_or("-".to_owned(), digits);
        table.add_row([
            what(c),
            bytes(c.size),
            style.text(&labelled(&c.engine, marked && m.model)),
            depth(c),
            m.bytes_per_second.as_ref().map_or("-".to_owned(), |f| spread("GB/s", f, 1e-9)),
            speed(campaign, m),
            m.ratio
                .as_ref()
                .filter(|_| !c.is_baseline())
                .map_or("-".to_owned(), |f| spread("x memcpy", f, 1.0)),
            p50,
            p90,
            p99,
            p999,
            max,
            m.cpu_ns_per_op.as_ref().map_or("-".to_owned(), |f| nanos(f.median)),
            m.cpu_s_per_gb.as_ref().map_or("-".to_owned(), |f| digits(f.median)),
            per_op(m.doorbells_per_op),
            per_op(m.polls_per_op),
        ]);
    }
    right(&mut table, &[1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    for (name, column) in HEADER.iter().zip(table.column_iter_mut()) {
        if without.contains(name) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tables;
    use crate::results::tests::sample;

    /// The first line of the first table of figures, the longest line of it, and what it lacks.
    fn in_columns(width: u16) -> (String, usize, Vec<String>) {
        let text = tables(&sample(), Style::Terminal(width), false);
        let (text, _) = text.split_once("Models:").unwrap();
        let table: Vec<&str> = text
            .lines()
            .skip_while(|l| !l.starts_with('┌'))
            .take_while(|l| l.starts_with(['┌', '│', '╞', '└']))
            .collect();
        let longest = table.iter().map(|l| l.chars().count()).max().unwrap();
        let said = text.lines().find_map(|l| l.strip_prefix("No room in ")?.split_once(" columns for "));
        let lacks = said.map_or(Vec::new(), |(columns, rest)| {
            assert_eq!(columns, width.to_string());
            rest.split(':').next().unwrap().split(", ").map(str::to_owned).collect()
        });
        (table[1].to_owned(), longest, lacks)
    }

    #[test]
    fn where_models_are_ranked_the_fastest_is_first() {
        let text = tables(&sample(), Style::Markdown, true);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|l| l.starts_with("| copy"))
            .map(|l| l.split('|').map(str::trim).collect())
            .collect();
        let speed = |row: &Vec<&str>| row[5].split(' ').next().unwrap().parse::<f64>().unwrap();
        assert_eq!(rows.len(), 12);
        for of_a_size in rows.chunks(3) {
            assert!(of_a_size.iter().all(|row| row[2] == of_a_size[0][2]), "{of_a_size:?}");
            assert!(of_a_size.is_sorted_by(|a, b| speed(a) >= speed(b)), "{of_a_size:?}");
        }
        assert!(rows.iter().any(|row| row[3] == "sim:profile=dsa [model]"));
        let (_, short) = text.split_once("In short").unwrap();
        assert!(short.contains("sim:profile=dsa q1 [model]"), "{short}");
    }

    #[test]
    fn what_matters_least_is_left_out_where_there_is_no_room() {
        let plain = tables(&sample(), Style::Plain, false);
        assert_eq!(tables(&sample(), Style::Terminal(400), false), plain, "room for everything");
        let mut most = HEADER.len();
        for width in (60..=220).rev().step_by(10) {
            let (header, longest, lacks) = in_columns(width);
            assert!(longest <= usize::from(width), "{longest} in {width}");
            let hidden = lacks.iter().filter(|name| !name.ends_with("(...)")).count();
            let columns = header.matches('┆').count() + 1;
            assert_eq!(columns, HEADER.len() - hidden, "{width}: {header} {lacks:?}");
            assert!(columns <= most, "{width}");
            most = columns;
            for kept in ["what", "size", "engine", "GB/s", "x memcpy"] {
                assert!(header.contains(kept), "{kept} in {width}: {header}");
            }
        }
        assert!(most < 8, "{most} columns of 60");
        // Less than anybody has.
        assert_eq!(in_columns(20).2, Vec::<String>::new());
    }
}
