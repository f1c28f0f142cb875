//! What cells, their curves and their figures are called and how they are written, alike in tables, pages and plots.

use std::fmt::Write as _;

use super::printable;
use crate::derive::part_of_rate;
use crate::plan::{Campaign, Cell, Direction, Footprint, Op};
use crate::results::{Crossover, Latency, Measured};
use crate::units::{bytes, digits, gigabytes, nanos, per_second};

/// A cell in one line.
#[must_use]
pub fn cell_line(m: &Measured) -> String {
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

/// The latencies of a cell, as tables have them: p50, p90, p99, p99.9 and the longest.
pub(crate) fn latencies(m: &Measured) -> [String; 5] {
    let known = |l: &Latency| {
        [Some(l.p50), l.known(0.9, l.p90), l.known(0.99, l.p99), l.known(0.999, l.p999), Some(l.max)]
    };
    let text = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| nanos(ns as f64));
    m.latency.as_ref().map_or([None; 5], known).map(text)
}

/// A name, with a mark if it is a model's.
pub(super) fn labelled(name: &str, model: bool) -> String {
    if model { format!("{name} [model]") } else { name.to_owned() }
}

/// What tells a curve over the size apart from others.
#[must_use]
pub fn curve(cell: &Cell) -> String {
    let mut name = format!("{} q{}", cell.engine, cell.depth);
    if cell.batch > 1 {
        let _ = write!(name, " by {}", cell.batch);
    }
    if cell.queues > 1 {
        let _ = write!(name, " on {} queues", cell.queues);
    }
    name
}

/// What a cell does: the operation, the memory, which way, and how many segments.
#[must_use]
pub fn what(c: &Cell) -> String {
    let mut what = format!("{} {}", c.op, c.footprint);
    if c.direction != Direction::Local {
        let _ = write!(what, " {}", c.direction);
    }
    if c.op == Op::Sg {
        let _ = write!(what, " {}", c.segments);
    }
    what
}

/// How deep a cell's queues are, how many operations go with a doorbell, and how many queues there are; of the baseline, through how many
/// buffers it goes.
#[must_use]
pub fn depth(c: &Cell) -> String {
    match c.depth {
        1 if c.is_baseline() => "-".to_owned(),
        n if c.is_baseline() => format!("{n} buffers"),
        n => queue(n, c.batch, c.queues, c.batch > 1),
    }
}

/// A depth, the operations of a doorbell if these are to be named, and the queues if there are several.
fn queue(depth: u32, batch: u32, queues: u32, batches: bool) -> String {
    let mut text = depth.to_string();
    if batches {
        let _ = write!(text, " by {batch}");
    }
    if queues > 1 {
        let _ = write!(text, " on {queues}");
    }
    text
}

/// The curve of a crossover, as [`depth`] has it.
#[must_use]
pub fn crossover_depth(c: &Crossover) -> String {
    queue(c.depth, c.batch, c.queues, true)
}

/// Operations a second, and which part of the rate that is if it was missed.
#[must_use]
pub fn speed(campaign: &Campaign, m: &Measured) -> String {
    let speed = m.ops_per_second.as_ref().map_or("-".to_owned(), |f| per_second(f.median));
    match part_of_rate(campaign, m) {
        Some(part) => format!("{speed}, {} % of the rate", digits(part * 100.0)),
        None => speed,
    }
}

/// The baseline of a curve, by the number of buffers that it goes through.
#[must_use]
pub fn baseline(buffers: u32, footprint: Footprint) -> String {
    match (footprint, buffers) {
        (Footprint::Hot, 1) => "memcpy, 1 buffer".to_owned(),
        (Footprint::Hot, n) => format!("memcpy, {n} buffers"),
        _ => "memcpy, one core".to_owned(),
    }
}

/// What a crossover is against, in words: hot, memcpy goes through as many buffers as the engine.
#[must_use]
pub fn against(c: &Crossover) -> String {
    if c.footprint == Footprint::Hot && c.against == crate::derive::HERE {
        return format!("{} here", baseline(c.depth * c.queues, c.footprint));
    }
    c.against.clone()
}

/// Where an engine overtakes, in words.
#[must_use]
pub fn crossover_at(crossover: &Crossover) -> String {
    match crossover.bytes {
        Some(at) if crossover.always => format!("always (from {})", bytes(at as u64)),
        Some(at) if at >= 10_240.0 => format!("{} KiB", digits(at / 1024.0)),
        Some(at) => format!("{at:.0} B"),
        None => "never".to_owned(),
    }
}
