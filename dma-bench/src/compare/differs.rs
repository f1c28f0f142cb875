//! Differences between the circumstances of two runs: their settings, and their machines.

use std::fmt;

use serde::Serialize;

use crate::plan::Campaign;
use crate::results::machine::Machine;
use crate::results::{Engine, Results};
use crate::units::{bytes, digits, nanos, per_second};

/// A circumstance and its value, in words.
type Named = (&'static str, String);

/// A circumstance that influences figures and differs between the two runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Circumstance {
    pub what: &'static str,
    /// The engine that the circumstance belongs to, if any.
    pub engine: Option<String>,
    /// The value in the earlier run, in words.
    pub before: String,
    /// The value in the later run, in words.
    pub after: String,
}

impl fmt::Display for Circumstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = self.engine.as_ref().map_or(String::new(), |name| format!(" of {name}:"));
        write!(f, "differs: {}{whose} {} / {}", self.what, self.before, self.after)
    }
}

/// Returns all circumstances that influence figures and differ.
pub(super) fn differences(before: &Results, after: &Results) -> Vec<Circumstance> {
    let mut differences = Vec::new();
    let mut add = |engine: Option<&str>, a: Vec<Named>, b: Vec<Named>| {
        for ((what, before), (_, after)) in a.into_iter().zip(b) {
            if before != after {
                differences.push(Circumstance { what, engine: engine.map(str::to_owned), before, after });
            }
        }
    };
    add(None, campaign(&before.campaign), campaign(&after.campaign));
    add(None, run(before), run(after));
    add(None, machine(&before.machine), machine(&after.machine));
    for old in &before.engines {
        if let Some(new) = after.engine(&old.name) {
            add(Some(&old.name), engine(old), engine(new));
        }
    }
    differences
}

fn known<T>(value: Option<T>, words: impl FnOnce(T) -> String) -> String {
    value.map_or("none".to_owned(), words)
}

fn list(words: &[String]) -> String {
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// Returns the conditions of measurement. The number of samples is left out, because the statistical test
/// takes it into account. The properties of cells are left out, because only equal cells are compared.
fn campaign(c: &Campaign) -> Vec<Named> {
    // If a sample has a fixed number of operations, its time is not fixed.
    let seconds = if c.count.is_none() { nanos(c.seconds * 1e9) } else { "as long as it takes".to_owned() };
    vec![
        ("footprint", known(c.footprint, bytes)),
        ("time of a sample", seconds),
        ("operations of a sample", known(c.count, |n| n.to_string())),
        ("passes", c.passes.to_string()),
        ("NUMA node of sources", known(c.node, |node| node.to_string())),
        ("NUMA node of destinations", known(c.dst_node.or(c.node), |node| node.to_string())),
        ("warm-up", nanos(c.warm_up * 1e9)),
        ("rate", known(c.rate, per_second)),
        ("verification", format!("{:?}", c.verify).to_lowercase()),
    ]
}

fn run(results: &Results) -> Vec<Named> {
    let realtime = results.command.iter().any(|word| word == "--realtime");
    vec![
        ("version of dma-bench", results.tool.clone()),
        ("--realtime", if realtime { "yes" } else { "no" }.to_owned()),
    ]
}

/// Returns the properties of the machine. The load is left out, because the run delay in the figures is more
/// accurate.
fn machine(m: &Machine) -> Vec<Named> {
    vec![
        ("processor", m.cpu.clone()),
        ("CPUs", m.cpus.to_string()),
        ("instructions", list(&m.flags)),
        ("caches", list(&m.caches)),
        // The size is rounded, because kernels reserve different amounts of memory.
        ("memory", format!("{} GiB", digits(m.memory as f64 / f64::from(1 << 30)))),
        ("virtual machine", if m.virtual_machine { "yes" } else { "no" }.to_owned()),
        ("operating system", m.os.clone()),
        ("kernel", m.kernel.clone()),
        ("C library", m.libc.clone()),
        ("architecture", m.arch.clone()),
        ("governor", m.governor.clone().unwrap_or_else(|| "not known".to_owned())),
        ("huge pages", m.huge_pages.clone().unwrap_or_else(|| "not known".to_owned())),
    ]
}

fn engine(e: &Engine) -> Vec<Named> {
    vec![
        ("device", e.device.clone()),
        ("version", e.version.clone()),
        ("model", e.model.clone().unwrap_or_else(|| "none".to_owned())),
        ("clock", e.clock.clone()),
    ]
}
