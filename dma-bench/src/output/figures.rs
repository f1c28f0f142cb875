//! Tables of figures: a row for each cell, a table for each kind of operation and memory.

use std::cmp::Reverse;

use super::words::labelled;
use super::{Style, depth, latencies, right, speed, what};
use crate::plan::{Campaign, Cell};
use crate::results::Measured;
use crate::stats::Figures;
use crate::units::{bytes, digits, nanos};

const WIDE: [&str; 15] = [
    "size", "engine", "depth", "GB/s", "ops/s", "x memcpy", "p50", "p90", "p99", "p99.9", "max", "CPU/op",
    "CPU s/GB", "bells/op", "polls/op",
];

/// The columns of narrow tables, which fit 80 characters.
const NARROW: [usize; 7] = [0, 1, 2, 3, 5, 6, 8];

/// Sorts the rows of tables. With `ranked`, models and measurements share a table, and the fastest of each
/// size comes first.
pub(crate) fn sort(cells: &mut [&Measured], ranked: bool) {
    cells.sort_by_key(|m| {
        let c = &m.cell;
        let speed = m.ops_per_second.as_ref().filter(|_| ranked).map(|f| Reverse(f.median.to_bits()));
        (c.op, c.direction, c.footprint, c.segments, c.size, speed, c.depth, !c.is_baseline())
    });
}

/// Returns a table for each kind of operation and memory. Narrow tables have medians only.
pub(super) fn tables(
    campaign: &Campaign,
    cells: &mut [&Measured],
    style: Style,
    wide: bool,
    ranked: bool,
) -> String {
    sort(cells, ranked);
    let mut text = String::new();
    for alike in cells.chunk_by(|a, b| what(&a.cell) == what(&b.cell)) {
        text += &style.title(&title(&alike[0].cell));
        text += &table(campaign, alike, style, wide, ranked);
    }
    text
}

/// Names the kind of cells, and the baseline if it is not plain `memcpy`.
fn title(c: &Cell) -> String {
    match c.op.baseline() {
        "memcpy" => what(c),
        baseline => format!("{} (memcpy: {baseline})", what(c)),
    }
}

fn table(campaign: &Campaign, cells: &[&Measured], style: Style, wide: bool, marked: bool) -> String {
    let columns: Vec<usize> = if wide { (0..WIDE.len()).collect() } else { NARROW.to_vec() };
    let mut table = style.rigid_table(&columns.iter().map(|c| WIDE[*c]).collect::<Vec<_>>(), wide);
    let spread = |figures: &Figures, scale: f64| {
        let of = |v: f64| digits(v * scale);
        if wide {
            format!("{} ({} to {})", of(figures.median), of(figures.min), of(figures.max))
        } else {
            of(figures.median)
        }
    };
    for m in cells {
        let c = &m.cell;
        let [p50, p90, p99, p999, max] = latencies(m);
        let per_op = |v: Option<f64>| v.map_or("-".to_owned(), digits);
        let all = [
            bytes(c.size),
            style.text(&labelled(&c.engine, marked && m.model)),
            depth(c),
            m.bytes_per_second.as_ref().map_or("-".to_owned(), |f| spread(f, 1e-9)),
            speed(campaign, m),
            m.ratio.as_ref().filter(|_| !c.is_baseline()).map_or("-".to_owned(), |f| spread(f, 1.0)),
            p50,
            p90,
            p99,
            p999,
            max,
            m.cpu_ns_per_op.as_ref().map_or("-".to_owned(), |f| nanos(f.median)),
            m.cpu_s_per_gb.as_ref().map_or("-".to_owned(), |f| digits(f.median)),
            per_op(m.doorbells_per_op),
            per_op(m.polls_per_op),
        ];
        table.add_row(columns.iter().map(|c| all[*c].clone()));
    }
    let numbers: Vec<usize> = (0..columns.len()).filter(|at| WIDE[columns[*at]] != "engine").collect();
    right(&mut table, &numbers);
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use crate::output::{Shown, Style, tables};
    use crate::results::tests::sample;

    #[test]
    fn tables_are_narrow_unless_asked_for_all() {
        let mut results = sample();
        results.published.clear();
        let narrow = tables(&results, Style::Plain, Shown::default());
        let (figures, _) = narrow.split_once("Verdicts").unwrap();
        for line in figures.lines().skip(1) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let wide = tables(&sample(), Style::Plain, Shown { wide: true, ..Shown::default() });
        for column in super::WIDE {
            assert!(wide.contains(column), "{column}");
        }
        assert!(!narrow.contains("polls/op") && narrow.contains("x memcpy"));
    }

    #[test]
    fn the_fastest_model_is_ranked_first() {
        let text = tables(&sample(), Style::Markdown, Shown { rank_models: true, ..Shown::default() });
        let (_, table) = text.split_once("copy cold").unwrap();
        let rows: Vec<Vec<&str>> = table
            .lines()
            .skip_while(|l| !l.starts_with('|'))
            .take_while(|l| l.starts_with('|'))
            .skip(2)
            .map(|l| l.split('|').map(str::trim).collect())
            .collect();
        let speed = |row: &Vec<&str>| row[4].parse::<f64>().unwrap();
        assert_eq!(rows.len(), 12, "{text}");
        for of_a_size in rows.chunks(3) {
            assert!(of_a_size.iter().all(|row| row[1] == of_a_size[0][1]), "{of_a_size:?}");
            assert!(of_a_size.is_sorted_by(|a, b| speed(a) >= speed(b)), "{of_a_size:?}");
        }
        assert!(rows.iter().any(|row| row[2] == "sim:profile=dsa [model]"));
    }
}
