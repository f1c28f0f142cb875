//! Names of cells, curves and figures. They are the same in tables, pages and plots.

use std::fmt::Write as _;

use crate::plan::{Campaign, Cell, Direction, Footprint, Op};
use crate::results::conclusions::part_of_rate;
use crate::results::{Latency, Measured};
use crate::units::{digits, gigabytes, nanos, per_second, printable};
use crate::verdict::Curve;

/// Describes a cell and its figures in one line.
pub(crate) fn cell_line(m: &Measured) -> String {
    let name = labelled(&m.cell.to_string(), m.model);
    let Some(speed) = &m.bytes_per_second else {
        return printable(&format!("{name}: {}", m.message.as_deref().unwrap_or("nothing measured")));
    };
    let mut line = format!("{name}: {} GB/s", gigabytes(speed.median));
    if let (Some(ratio), false) = (&m.ratio, m.cell.is_baseline()) {
        let _ = write!(line, ", {} x memcpy", digits(ratio.median));
    }
    if m.latency.is_some() {
        let [p50, _, p99, ..] = latencies(m);
        let _ = write!(line, ", p50 {p50}, p99 {p99}");
    }
    if let Some(message) = &m.message {
        let _ = write!(line, "; {message}");
    }
    printable(&line)
}

/// Returns the latencies of a cell for tables: p50, p90, p99, p99.9 and the longest.
pub(crate) fn latencies(m: &Measured) -> [String; 5] {
    latency(m.latency.as_ref())
}

/// Returns latencies for tables. Percentiles with too few samples are `-`.
pub(crate) fn latency(l: Option<&Latency>) -> [String; 5] {
    let known = |l: &Latency| {
        [Some(l.p50), l.known(0.9, l.p90), l.known(0.99, l.p99), l.known(0.999, l.p999), Some(l.max)]
    };
    let text = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| nanos(ns as f64));
    l.map_or([None; 5], known).map(text)
}

/// Returns a name, with a mark if it is a model's.
pub(super) fn labelled(name: &str, model: bool) -> String {
    if model { format!("{name} [model]") } else { name.to_owned() }
}

/// Describes a curve: engine, operations in flight, kind of operation.
pub(crate) fn curve(c: &Curve) -> String {
    let mut name = format!("{}, {}", c.engine, in_flight(c));
    let what = kind(c.op, c.footprint, c.direction, c.segments);
    let _ = write!(name, ", {}", what.strip_prefix("copy ").unwrap_or(&what));
    name
}

pub(crate) fn in_flight(c: &Curve) -> String {
    let mut text = if c.depth == 1 { "one at a time".to_owned() } else { format!("{} in flight", c.depth) };
    if c.batch > 1 {
        let _ = write!(text, ", batches of {}", c.batch);
    }
    if c.queues > 1 {
        let _ = write!(text, ", {} queues", c.queues);
    }
    text
}

/// Describes the workload of a cell: operation, memory, direction and segments.
pub(crate) fn what(c: &Cell) -> String {
    kind(c.op, c.footprint, c.direction, c.segments)
}

fn kind(op: Op, footprint: Footprint, direction: Direction, segments: u32) -> String {
    let mut what = format!("{op} {footprint}");
    if direction != Direction::Local {
        let _ = write!(what, " {direction}");
    }
    if op.has_segments() {
        let _ = write!(what, ", {segments} segments");
    }
    what
}

/// Describes the depth of a cell: operations in flight, operations for each doorbell, queues. For the
/// baseline, the number of buffers.
pub(crate) fn depth(c: &Cell) -> String {
    match c.depth {
        1 if c.is_baseline() => "-".to_owned(),
        n if c.is_baseline() => format!("{n} buffers"),
        n => {
            let mut text = n.to_string();
            if c.batch > 1 {
                let _ = write!(text, " by {}", c.batch);
            }
            if c.queues > 1 {
                let _ = write!(text, " on {}", c.queues);
            }
            text
        }
    }
}

/// Returns the operations per second. If the rate was missed, also returns the percentage that was reached.
pub(crate) fn speed(campaign: &Campaign, m: &Measured) -> String {
    let speed = m.ops_per_second.as_ref().map_or("-".to_owned(), |f| per_second(f.median));
    match part_of_rate(campaign, m) {
        Some(part) => format!("{speed}, {} % of the rate", digits(part * 100.0)),
        None => speed,
    }
}

/// Names the baseline of a curve, with its number of buffers.
pub(crate) fn baseline(buffers: u32, footprint: Footprint) -> String {
    match (footprint, buffers) {
        (Footprint::Hot, 1) => "memcpy, 1 buffer".to_owned(),
        (Footprint::Hot, n) => format!("memcpy, {n} buffers"),
        _ => "memcpy, one core".to_owned(),
    }
}
