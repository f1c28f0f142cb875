//! The summary: at most 12 statements, the same on a terminal, in Markdown, in JSON and on the page.

use std::cmp::Reverse;

use super::words::labelled;
use crate::plan::{Direction, Footprint, Op, grouped};
use crate::results::{Measured, Results, Status, slowest};
use crate::units::{bytes, digits, gigabytes};
use crate::verdict::{Class, Verdict, not_decided, range};

/// A way to use an engine: operation, memory, queues and operations in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    op: Op,
    footprint: Footprint,
    queues: u32,
    depth: u32,
}

impl Use {
    fn of(v: &Verdict) -> Self {
        Self { op: v.curve.op, footprint: v.curve.footprint, queues: v.curve.queues, depth: v.curve.depth }
    }

    fn words(self) -> String {
        let depth =
            if self.depth == 1 { "one at a time".to_owned() } else { format!("{} in flight", self.depth) };
        let queues = if self.queues == 1 { String::new() } else { format!(" x {} queues", self.queues) };
        let op = if self.op == Op::Copy { String::new() } else { format!("{} ", self.op) };
        format!("{op}{}, {depth}{queues}", self.footprint)
    }
}

/// Maximum number of statements.
const MAX_LINES: usize = 12;

/// Returns the statements of the summary. An indented statement belongs to the last unindented one before
/// it.
pub(crate) fn summary(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    let advice = advice(results);
    let models = models(results);
    if !advice.is_empty() {
        let copies = results.verdicts.iter().any(|v| is_plain(v) && v.curve.op == Op::Copy);
        lines.push(if copies {
            "The engine to use, by bytes of a copy (memcpy: the C library's, on one core):".to_owned()
        } else {
            "The engine to use, by bytes of an operation (baseline: one core):".to_owned()
        });
        let most = if models.is_empty() { 5 } else { 4 };
        lines.extend(limited(advice, most, "more ways of use: see the verdicts"));
        lines.push(cpu_time(results));
    }
    if !models.is_empty() {
        lines.push("Models (simulated, not measured) against memcpy of this machine:".to_owned());
        lines.extend(limited(models, 2, "more: see the verdicts"));
    }
    // Leave room for the two statements on trust and disturbances.
    lines.extend(device_memory(results, MAX_LINES.saturating_sub(lines.len() + 2)));
    lines.extend(at_rate(results));
    lines.extend(soak(results));
    lines.push(trust(results));
    lines.push(disturbed(results));
    lines
}

fn limited(mut lines: Vec<String>, most: usize, rest: &str) -> Vec<String> {
    if lines.len() > most {
        let left = lines.len() - (most - 1);
        lines.truncate(most - 1);
        lines.push(format!("  {left} {rest}"));
    }
    lines
}

/// Recommends an engine by size for each way of use: the fastest engine among those that are certainly
/// faster than the baseline. Without such an engine, the text is "not decided", "either" or the baseline.
fn advice(results: &Results) -> Vec<String> {
    let verdicts: Vec<&Verdict> = results.verdicts.iter().filter(|v| !v.model && is_plain(v)).collect();
    let mut uses: Vec<Use> = verdicts.iter().map(|v| Use::of(v)).collect();
    // Cold memory comes first, because most programs copy cold memory.
    uses.sort_unstable_by_key(|at| (at.op, at.footprint != Footprint::Cold, *at));
    uses.dedup();
    let of = |at: &Use| verdicts.iter().copied().filter(|v| Use::of(v) == *at).collect::<Vec<_>>();
    uses.iter().map(|at| format!("  {}: {}", at.words(), choice(&of(at)))).collect()
}

/// Returns true if the recommendation covers the verdict: it covers copies within local memory, and
/// operations that do more than a copy.
fn is_plain(v: &Verdict) -> bool {
    let of_its_own = v.curve.op.has_result() || matches!(v.curve.op, Op::Copy | Op::CopyToBoth);
    v.is_here() && of_its_own && v.curve.direction == Direction::Local
}

fn choice(verdicts: &[&Verdict]) -> String {
    let mut sizes: Vec<u64> = verdicts.iter().flat_map(|v| v.points.iter().map(|p| p.size)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let best = |size: u64| -> String {
        let points = || verdicts.iter().filter_map(|v| Some((v, v.at(size)?)));
        let faster = points().filter(|(_, p)| p.class == Class::Faster);
        match faster.max_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio)) {
            Some((v, _)) => v.curve.engine.clone(),
            None if points().any(|(_, p)| p.class == Class::NotDecided) => NOT_DECIDED.to_owned(),
            None if points().any(|(_, p)| p.class == Class::AsFast) => "either".to_owned(),
            None => verdicts.first().map_or("memcpy", |v| v.curve.op.baseline()).to_owned(),
        }
    };
    let (Some(first), Some(last)) = (sizes.first().copied(), sizes.last().copied()) else {
        return String::new();
    };
    let choices: Vec<(u64, String)> = sizes.iter().map(|size| (*size, best(*size))).collect();
    let open: Vec<_> = choices.iter().map(|(size, choice)| (*size, choice == NOT_DECIDED)).collect();
    let decided: Vec<_> = choices.into_iter().filter(|c| c.1 != NOT_DECIDED).collect();
    if decided.is_empty() {
        return format!("{NOT_DECIDED}, the figures varied too much or the run was too short");
    }
    let parts: Vec<String> = decided
        .chunk_by(|a, b| a.1 == b.1)
        .map(|run| format!("{} {}", run[0].1, range(run[0].0, run[run.len() - 1].0, first, last)))
        .collect();
    match not_decided(&open).as_str() {
        "" => parts.join(", "),
        open => format!("{}; {NOT_DECIDED}: {open}", parts.join(", ")),
    }
}

/// Marks sizes at which the verdict is "not decided".
const NOT_DECIDED: &str = "not decided";

/// Returns a line for each model: one of its verdicts, at the greatest number of operations in flight.
fn models(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    for engine in results.engines.iter().filter(|e| e.model.is_some()) {
        let of_it = results.verdicts.iter().filter(|v| v.curve.engine == engine.name && v.is_here());
        if let Some(v) = of_it.max_by_key(|v| (is_plain(v), Reverse(v.curve.op), v.curve.depth)) {
            let depth = Use::of(v).words();
            let depth = depth.split_once(", ").map_or(depth.as_str(), |(_, depth)| depth);
            lines.push(format!("  {} [model], {depth}: {}", engine.name, v.text));
        }
    }
    lines
}

/// Compares the CPU time of measured engines with memcpy's, at the largest size at which both copied cold
/// memory, or else other memory.
fn cpu_time(results: &Results) -> String {
    let seconds = |m: &Measured| Some(m.cpu_s_per_gb.as_ref()?.median).filter(|s| *s > 0.0);
    let mut parts = Vec::new();
    for engine in results.engines.iter().filter(|e| e.model.is_none()) {
        let cells = results.cells.iter().filter(|m| m.cell.engine == engine.name && !m.cell.is_baseline());
        let plain = cells.filter(|m| {
            m.cell.op == Op::Copy && m.cell.direction == Direction::Local && seconds(m).is_some()
        });
        let shares = plain.filter_map(|m| {
            let baseline = m.cell.baseline()?;
            let base = results.cells.iter().find(|b| b.cell == baseline)?;
            Some((m, seconds(m)? / seconds(base)?))
        });
        if let Some((m, part)) =
            shares.max_by_key(|(m, _)| (m.cell.footprint == Footprint::Cold, m.cell.size))
        {
            let freed = (1.0 - part) * 100.0;
            let words = if freed >= 1.0 {
                format!("frees {freed:.0} %")
            } else {
                format!("frees none, takes {} times memcpy's", digits(part))
            };
            parts.push(format!("{} {words} ({}, {})", engine.name, bytes(m.cell.size), m.cell.footprint));
        }
    }
    if parts.is_empty() {
        "CPU time: not measured".to_owned()
    } else {
        format!("CPU time: {}", parts.join("; "))
    }
}

/// Returns the throughput of copies to, from and within each device's own memory: for each direction the
/// greatest throughput, with its size. Returns at most `most` lines.
fn device_memory(results: &Results, most: usize) -> Vec<String> {
    let speed = |m: &Measured| m.bytes_per_second.as_ref().map(|f| f.median);
    let cells = results
        .cells
        .iter()
        .filter(|m| m.cell.op == Op::Copy && m.cell.direction.has_device_memory() && speed(m).is_some());
    let mut lines = Vec::new();
    for ((engine, direction), of) in grouped(cells.map(|m| ((&m.cell.engine, m.cell.direction), m))) {
        let best = of.iter().filter_map(|m| Some((speed(m)?, *m))).max_by(|a, b| a.0.total_cmp(&b.0));
        lines.extend(best.map(|(speed, m)| {
            let (size, name) = (bytes(m.cell.size), labelled(engine, m.model));
            format!(
                "  {name} {direction}: up to {} GB/s ({size}, {} in flight)",
                gigabytes(speed),
                m.cell.depth
            )
        }));
    }
    // For runs at a rate, the throughput is not shown, because the rate sets it.
    if most < 2 || results.campaign.rate.is_some() {
        return Vec::new();
    }
    if !lines.is_empty() {
        lines = limited(lines, most - 1, "more: see the table");
        lines.insert(0, "Copies of memory on a device, without memcpy beside them:".to_owned());
    }
    lines
}

fn at_rate(results: &Results) -> Vec<String> {
    let Some(rate) = results.campaign.rate else { return Vec::new() };
    let mut lines = vec![format!("Latency at {} on each queue:", crate::units::per_second(rate))];
    for m in results.cells.iter().filter(|m| !m.cell.is_baseline() && m.latency.is_some()) {
        let [p50, _, p99, ..] = super::latencies(m);
        lines.push(format!("  {}: p50 {p50}, p99 {p99}", m.cell));
    }
    limited(lines, 6, "more: see the table")
}

fn soak(results: &Results) -> Vec<String> {
    if !results.campaign.is_continuous() {
        return Vec::new();
    }
    let mut lines = vec!["Time series, slowest interval against the median:".to_owned()];
    for m in results.cells.iter().filter(|m| !m.series.is_empty()) {
        let rates: Vec<f64> = m.series.iter().map(|s| s.ops_per_second).collect();
        if let (Some(slowest), Some(median)) = (slowest(&m.series), crate::verdict::stats::median(&rates)) {
            let part = 100.0 * slowest.ops_per_second / median;
            let (at, many) = (digits(slowest.at), m.series.len());
            let steady = m.steady_after.map(|at| format!("; steady at {} s", digits(at))).unwrap_or_default();
            lines.push(format!("  {}: {part:.0} % at {at} s, of {many} intervals{steady}", m.cell));
        }
    }
    limited(lines, 5, "more: see the table")
}

/// Returns the reasons for or against trusting the figures.
fn trust(results: &Results) -> String {
    let wrong = results.cells.iter().filter(|m| m.status == Status::Wrong).count();
    let verified: u64 = results.cells.iter().map(|m| m.verified).sum();
    if wrong > 0 {
        return format!("Do NOT trust: {} wrong bytes", cells_have(wrong));
    }
    let risk = if results.verdicts.is_empty() { "" } else { "; risk of a wrong verdict < 0.1 %" };
    format!("Trust: {verified} operations compared, no wrong byte{risk}")
}

/// Returns the number of cells as the beginning of a sentence.
fn cells_have(number: usize) -> String {
    if number == 1 { "1 cell has".to_owned() } else { format!("{number} cells have") }
}

fn disturbed(results: &Results) -> String {
    let run_delay = results.cells.iter().map(|m| m.run_delay).fold(0.0, f64::max) * 100.0;
    let mut parts = Vec::new();
    if results.interrupted {
        parts.push("interrupted".to_owned());
    }
    if run_delay >= 1.0 {
        parts.push(format!("threads waited for a CPU up to {run_delay:.0} % of the time"));
    }
    if results.cached().is_some() {
        parts.push("cold memory fits the cache".to_owned());
    }
    let failed = results.troubled().count();
    if failed > 0 {
        parts.push(format!("{} no figures", cells_have(failed)));
    }
    if parts.is_empty() {
        "Disturbed by: nothing seen".to_owned()
    } else {
        format!("Disturbed by: {}", parts.join("; "))
    }
}
