//! The tables of what was found out from figures: from where an engine is faster than `memcpy`, how deep a queue is worth it, and how near models are to
//! what was published.

use std::fmt::Write as _;

use super::words::labelled;
use super::{Style, against, crossover_at, crossover_depth, printable, right};
use crate::results::{Crossover, Published, Results};
use crate::units::{bytes, digits, gigabytes};

/// From which size on engines are faster than `memcpy`.
pub(super) fn crossovers(all: &[Crossover], style: Style) -> String {
    let mut table = style.table(&["engine", "depth", "memory", "from", "against"]);
    for c in all {
        table.add_row([
            style.text(&labelled(&c.engine, c.model)),
            crossover_depth(c),
            c.footprint.to_string(),
            crossover_at(c),
            style.text(&against(c)),
        ]);
    }
    format!("{table}\n")
}

/// The smallest depths with most of the throughput.
pub(super) fn knees(results: &Results, style: Style) -> String {
    let mut table =
        style.table(&["engine", "size", "memory", "way", "queues", "depth", "GB/s there", "best GB/s"]);
    for k in &results.knees {
        table.add_row([
            style.text(&labelled(&k.engine, k.model)),
            bytes(k.size),
            k.footprint.to_string(),
            k.direction.to_string(),
            k.queues.to_string(),
            k.depth.to_string(),
            gigabytes(k.bytes_per_second),
            gigabytes(k.best),
        ]);
    }
    right(&mut table, &[1, 4, 5, 6, 7]);
    format!("{table}\n")
}

/// Published figures beside the models'.
#[must_use]
pub fn published(rows: &[Published], style: Style) -> String {
    let mut table = style.table(&[
        "profile",
        "load",
        "way",
        "size",
        "figure",
        "published",
        "simulated",
        "off",
        "allowed",
        "",
    ]);
    let mut sources: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !sources.contains(&(&row.profile, &row.source)) {
            sources.push((&row.profile, &row.source));
        }
        table.add_row([
            style.text(&row.profile),
            style.text(&row.load),
            style.text(&row.direction),
            bytes(row.size),
            style.text(&row.quantity),
            digits(row.published),
            digits(row.simulated),
            format!("{:+.1} %", (row.simulated / row.published - 1.0) * 100.0),
            format!("{:.0} %", row.tolerance * 100.0),
            if row.holds { "within" } else { "MISSED" }.to_owned(),
        ]);
    }
    right(&mut table, &[3, 5, 6, 7, 8]);
    let mut text = format!("{table}\n");
    for (profile, source) in sources {
        let _ = writeln!(text, "{}", printable(&format!("{profile}: published in {source}")));
    }
    text
}
