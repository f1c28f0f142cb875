//! What a run found, as its results file has it: one versioned schema, described field by field in `RESULTS.md`.

mod file;
mod notes;
#[cfg(test)]
pub(crate) mod tests;

use serde::{Deserialize, Serialize};

pub use self::file::FileError;
pub use crate::files::write_file;
use crate::machine::Machine;
use crate::plan::{Campaign, Cell, Footprint};
use crate::stats::Figures;

/// What a results file calls itself.
pub const SCHEMA: &str = "dma-bench/results";

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// All that one run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// The version of this program.
    pub tool: String,
    /// When the run began, in UTC.
    pub created: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The command line.
    pub command: Vec<String>,
    /// The user stopped it: cells are missing.
    pub interrupted: bool,
    /// How many cells there were to be, those of the baseline included; none in files of before it was counted.
    #[serde(default)]
    pub planned: Option<u64>,
    /// Where.
    pub machine: Machine,
    /// What was asked for.
    pub campaign: Campaign,
    /// Who took part.
    pub engines: Vec<Engine>,
    /// What was measured.
    pub cells: Vec<Measured>,
    /// From which size on an engine is faster than `memcpy`.
    pub crossovers: Vec<Crossover>,
    /// The smallest depth with 95 % of the best throughput.
    pub knees: Vec<Knee>,
    /// Simulated profiles against the figures that they are made from.
    pub published: Vec<Published>,
}

/// An engine that took part, or was to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// The name that it was opened by.
    pub name: String,
    /// The backend's short name.
    pub backend: String,
    /// The device.
    pub device: String,
    /// The version of what is behind it.
    pub version: String,
    /// For a modelled device: the profile's name and source. Its figures are no measurements.
    pub model: Option<String>,
    /// What its figures are read off: `real` or `virtual`.
    pub clock: String,
    /// Why it took no part.
    pub error: Option<String>,
}

/// How a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All repetitions are there.
    Ok,
    /// The engine failed; the figures are of the repetitions before, if any.
    Failed,
    /// Bytes did not arrive.
    Wrong,
    /// The engine cannot do that.
    Unsupported,
    /// The user stopped it; the figures are of the repetitions before, if any.
    Interrupted,
}

/// One cell and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was measured.
    #[serde(flatten)]
    pub cell: Cell,
    /// The figures are a model's.
    pub model: bool,
    /// How it ended.
    pub status: Status,
    /// Why it did not end well.
    pub message: Option<String>,
    /// Operations a second.
    pub ops_per_second: Option<Figures>,
    /// Bytes a second.
    pub bytes_per_second: Option<Figures>,
    /// Operations a second over those of `memcpy` in the same repetition.
    pub ratio: Option<Figures>,
    /// From submission to completion.
    pub latency: Option<Latency>,
    /// CPU time of the whole process for each operation, in nanoseconds. None for a device on a clock of its own.
    pub cpu_ns_per_op: Option<Figures>,
    /// CPU time of the whole process for 10^9 bytes, in seconds.
    pub cpu_s_per_gb: Option<Figures>,
    /// Doorbells for each operation.
    pub doorbells_per_op: Option<f64>,
    /// Polls for each operation.
    pub polls_per_op: Option<f64>,
    /// Repetitions that were disturbed and are not among the figures: threads waited for a CPU, the core's other hardware thread was busy, or the
    /// other core that took part was elsewhere than usual. Their latencies count.
    #[serde(default)]
    pub left_out: u64,
    /// The part of the time for which threads waited for a CPU even in the repetitions that were kept.
    #[serde(default)]
    pub waited: f64,
    /// The part of the repetitions, kept or not, in which the core's other hardware thread was busy, and which are not among `moved`.
    #[serde(default)]
    pub shared: f64,
    /// The part of the repetitions, kept or not, in which the other core that took part was nearer than usual, or farther.
    #[serde(default)]
    pub moved: f64,
    /// Operations done, all in all.
    pub ops: u64,
    /// Operations whose bytes were compared.
    pub verified: u64,
    /// In how many passes over all cells it had repetitions: those of one pass lie close together. None in files of before it was counted.
    #[serde(default)]
    pub visits: Option<u32>,
}

/// The distribution of latencies, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many were timed.
    pub samples: u64,
    /// The mean.
    pub mean: f64,
    /// Half are below.
    pub p50: u64,
    /// 90 % are below.
    pub p90: u64,
    /// 99 % are below.
    pub p99: u64,
    /// 99.9 % are below.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    /// A `percentile`, such as 0.999, if as many were timed as it takes for one beyond it: of fewer it is the longest, by another name.
    #[must_use]
    pub fn known(&self, percentile: f64, value: u64) -> Option<u64> {
        (self.samples as f64 * (1.0 - percentile) >= 1.0 - 1e-6).then_some(value)
    }
}

/// From which size on an engine is faster than `memcpy` on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crossover {
    /// The engine.
    pub engine: String,
    /// The figures are a model's.
    pub model: bool,
    /// Operations in flight.
    pub depth: u32,
    /// Operations for each doorbell.
    pub batch: u32,
    /// Queues.
    pub queues: u32,
    /// Which memory.
    pub footprint: Footprint,
    /// What it is compared with: `memcpy here`, or the CPU that was published with the model's device.
    pub against: String,
    /// The size in bytes from which on it stays faster; none if it is never so within the sizes measured.
    pub bytes: Option<f64>,
    /// It is faster at every size that was measured.
    pub always: bool,
}

/// The smallest depth with 95 % of the best throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// The engine.
    pub engine: String,
    /// The figures are a model's.
    pub model: bool,
    /// Bytes of each operation.
    pub size: u64,
    /// Which memory.
    pub footprint: Footprint,
    /// Which way.
    pub direction: crate::plan::Direction,
    /// Queues.
    pub queues: u32,
    /// The depth of each.
    pub depth: u32,
    /// Bytes a second there.
    pub bytes_per_second: f64,
    /// The most bytes a second at any depth.
    pub best: f64,
}

/// A published figure beside the model's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The profile.
    pub profile: String,
    /// The load.
    pub load: String,
    /// Which way.
    pub direction: String,
    /// Bytes of each task.
    pub size: u64,
    /// What the figure is, with its unit.
    pub quantity: String,
    /// As measured on the device by its source.
    pub published: f64,
    /// As the model has it.
    pub simulated: f64,
    /// How far the model may be off, as a fraction.
    pub tolerance: f64,
    /// Whether it is within that.
    pub holds: bool,
    /// Where the figure was published.
    pub source: String,
}

impl Results {
    /// The engine of that name.
    #[must_use]
    pub fn engine(&self, name: &str) -> Option<&Engine> {
        self.engines.iter().find(|e| e.name == name)
    }

    /// Cells that did not end well, without those that have but fewer repetitions than were asked for: these are many, and alike.
    pub fn troubled(&self) -> impl Iterator<Item = &Measured> {
        self.cells.iter().filter(|m| !matches!(m.status, Status::Ok | Status::Interrupted))
    }

    /// What an engine of this name is a model of, if it is one.
    #[must_use]
    pub fn model_of(&self, name: &str) -> Option<&str> {
        self.engine(name)?.model.as_deref()
    }

    /// What the models are made from, each once.
    #[must_use]
    pub fn models(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for model in self.engines.iter().filter_map(|e| e.model.as_deref()) {
            if !all.contains(&model) {
                all.push(model);
            }
        }
        all
    }

    /// Cells with figures: measured ones, or those of `models`.
    pub fn with_figures(&self, models: bool) -> impl Iterator<Item = &Measured> {
        self.cells.iter().filter(move |c| c.model == models && c.ops_per_second.is_some())
    }
}
