//! The tables at the end, in which an engine has one column.

use std::fmt::Write as _;

use super::words::labelled;
use super::{Style, baseline, curve, right};
use crate::plan::{Direction, Op};
use crate::results::{Measured, Results};
use crate::units::{bytes, digits, gigabytes};

/// The measured copies by size, and `models`' if they are asked for: GB/s, and times memcpy. What most want to know, on one screen.
pub(super) fn summary(results: &Results, style: Style, models: bool) -> String {
    let cells: Vec<&Measured> = results
        .with_figures(false)
        .chain(results.with_figures(true).filter(|_| models))
        .filter(|m| m.cell.op == Op::Copy && m.cell.direction == Direction::Local)
        .collect();
    let name = |m: &Measured| labelled(&curve(&m.cell), m.model);
    let mut footprints: Vec<_> = cells.iter().map(|m| m.cell.footprint).collect();
    footprints.sort_unstable();
    footprints.dedup();
    let mut text = String::new();
    for footprint in footprints {
        let cells: Vec<_> = cells.iter().copied().filter(|m| m.cell.footprint == footprint).collect();
        let mut curves: Vec<String> = Vec::new();
        let mut sizes: Vec<u64> = Vec::new();
        for m in cells.iter().filter(|m| !m.cell.is_baseline()) {
            let curve = name(m);
            if !curves.contains(&curve) {
                curves.push(curve);
            }
            sizes.push(m.cell.size);
        }
        sizes.sort_unstable();
        sizes.dedup();
        // More columns than a screen has, or a single row, are no summary.
        if sizes.len() < 2 || curves.len() > 6 {
            continue;
        }
        let mut buffers: Vec<u32> =
            cells.iter().filter(|m| m.cell.is_baseline()).map(|m| m.cell.depth).collect();
        buffers.sort_unstable();
        buffers.dedup();
        let mut header = vec!["size".to_owned()];
        header.extend(buffers.iter().map(|n| baseline(*n, footprint)));
        header.extend(curves.iter().map(|c| style.text(c)));
        let mut table = style.table(&header.iter().map(String::as_str).collect::<Vec<_>>());
        for size in sizes {
            let of_size = || cells.iter().filter(|m| m.cell.size == size);
            let gb =
                |m: &Measured| m.bytes_per_second.as_ref().map_or("-".to_owned(), |f| gigabytes(f.median));
            let mut row = vec![bytes(size)];
            row.extend(buffers.iter().map(|n| {
                let of_it = of_size().find(|m| m.cell.is_baseline() && m.cell.depth == *n);
                of_it.map_or("-".to_owned(), |m| gb(m))
            }));
            row.extend(curves.iter().map(|c| {
                of_size().find(|m| !m.cell.is_baseline() && name(m) == *c).map_or("-".to_owned(), |m| {
                    let ratio = m.ratio.as_ref().map_or("-".to_owned(), |r| digits(r.median));
                    format!("{}, {ratio}x", gb(m))
                })
            }));
            table.add_row(row);
        }
        right(&mut table, &(0..header.len()).collect::<Vec<_>>());
        text += &style.title(&format!("In short: copies, {footprint} memory, GB/s and times memcpy"));
        let _ = writeln!(text, "{table}");
    }
    text
}
