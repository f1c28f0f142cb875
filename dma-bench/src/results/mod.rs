//! The results of a run. The results file is their JSON form, and its JSON Schema is generated from these
//! types.

pub(crate) mod conclusions;
#[cfg(test)]
mod conclusions_tests;
mod file;
mod latency;
pub(crate) mod machine;
pub(crate) mod notes;
pub(crate) mod published;
pub(crate) mod saved;
#[cfg(test)]
pub(crate) mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::file::schema;
pub use self::latency::Latency;
use self::machine::Machine;
use crate::plan::{Campaign, Cell, Footprint};
use crate::verdict::stats::Figures;
use crate::verdict::{Curve, Point, Verdict};

/// Name of the format of results files.
pub const SCHEMA: &str = "dma-bench/results";

/// The version of the format that this program writes and reads.
pub const VERSION: u32 = 3;

/// The results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// The version of this program.
    pub tool: String,
    /// Start of the run, in UTC.
    pub created: String,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// The command line.
    pub command: Vec<String>,
    /// True if the user stopped the run. Cells may be missing.
    pub interrupted: bool,
    /// Number of cells that were planned, baselines included.
    pub planned: u64,
    /// The summary: at most 12 statements. An indented statement belongs to the last unindented one before
    /// it.
    pub summary: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// The campaign, with all defaults filled in.
    pub campaign: Campaign,
    /// The engines of the run, including engines that could not be used.
    pub engines: Vec<Engine>,
    /// All cells that were measured.
    pub cells: Vec<Measured>,
    /// For each curve, the sizes at which the engine is faster than `memcpy`, as fast, or slower.
    pub verdicts: Vec<Verdict>,
    /// Costs of opening queues and of registering memory.
    pub costs: Vec<Cost>,
    /// For each series, the smallest depth with 95 % of the best throughput.
    pub knees: Vec<Knee>,
    /// Simulated profiles against the published figures of their devices.
    pub published: Vec<Published>,
}

/// An engine of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Engine {
    /// The name that it was opened by.
    pub name: String,
    /// The backend's short name.
    pub backend: String,
    /// The device.
    pub device: String,
    /// Version of the device, the driver or the library.
    pub version: String,
    /// Name and source of the profile, if the device is simulated. Its figures are simulated, not measured.
    pub model: Option<String>,
    /// Clock of the engine's figures: `real` or `virtual`.
    pub clock: String,
    /// Reason why the engine could not be used.
    pub error: Option<String>,
}

impl Engine {
    /// Returns an engine without a device, on the computer's clock.
    pub(crate) fn named(name: &str) -> Self {
        let backend = name.split(':').next().unwrap_or(name);
        let (name, backend, clock) = (name.to_owned(), backend.to_owned(), "real".to_owned());
        Self { name, backend, device: String::new(), version: String::new(), model: None, clock, error: None }
    }
}

/// Status of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All samples were taken.
    Ok,
    /// The engine failed. Figures are computed from the samples before the failure, if any.
    Failed,
    /// A byte or a result was wrong.
    Wrong,
    /// The engine cannot do the operation.
    Unsupported,
    /// The user stopped the run. Figures are computed from the samples before that, if any.
    Interrupted,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// A cell and its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// True if the figures are a model's.
    pub model: bool,
    /// Status of the cell.
    pub status: Status,
    /// Reason, if the status is not `ok`.
    pub message: Option<String>,
    /// Operations a second.
    pub ops_per_second: Option<Figures>,
    /// Bytes a second.
    pub bytes_per_second: Option<Figures>,
    /// Ratio of operations a second to `memcpy`'s operations a second right before and after.
    pub ratio: Option<Figures>,
    /// Latency from submission to completion. At a rate, it counts from the operation's scheduled time.
    pub latency: Option<Latency>,
    /// CPU time of the whole process for each operation, in nanoseconds. `null` for a device on a virtual
    /// clock.
    pub cpu_ns_per_op: Option<Figures>,
    /// CPU time of the whole process for 10^9 bytes, in seconds.
    pub cpu_s_per_gb: Option<Figures>,
    /// Doorbells for each operation.
    pub doorbells_per_op: Option<f64>,
    /// Polls for each operation.
    pub polls_per_op: Option<f64>,
    /// Number of samples that are left out of the figures, because threads waited for a CPU. Latencies
    /// include them.
    pub left_out: u64,
    /// Fraction of the time that threads waited for a CPU, in the samples that were kept.
    pub run_delay: f64,
    /// Number of operations that completed.
    pub ops: u64,
    /// Number of operations that were verified.
    pub verified: u64,
    /// Number of passes with undisturbed samples. Samples of one pass are not independent.
    pub passes: u32,
    /// The time series, if one was recorded.
    pub series: Vec<Moment>,
    /// Seconds after which the throughput was steady, if the campaign ends cells at that point; `null` if
    /// it never became steady.
    pub steady_after: Option<f64>,
}

/// Set-up cost of an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// The engine.
    pub engine: String,
    /// True if the figures are of a simulation that runs on this machine.
    pub model: bool,
    /// The step: `open-queue`, `register`, or `deregister`.
    pub what: String,
    /// Number of registered bytes; 0 for a queue.
    pub size: u64,
    /// The durations of the step, in nanoseconds.
    pub time: Latency,
}

/// One point of a time series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// Seconds from the start of the cell to the end of this interval.
    pub at: f64,
    /// Operations a second in the interval.
    pub ops_per_second: f64,
    /// Median of the latencies in the interval, in nanoseconds; `null` if no operation was timed.
    pub p50: Option<u64>,
    /// 99th percentile, in nanoseconds; `null` if fewer than 100 operations were timed.
    pub p99: Option<u64>,
    /// Longest latency, in nanoseconds; `null` if no operation was timed.
    pub max: Option<u64>,
    /// Fraction of the interval that threads waited for a CPU.
    pub run_delay: f64,
}

/// Returns the slowest of these consecutive points.
pub(crate) fn slowest(part: &[Moment]) -> Option<&Moment> {
    part.iter().min_by(|a, b| a.ops_per_second.total_cmp(&b.ops_per_second))
}

/// The smallest depth with 95 % of the best throughput, for one series of cells that differ in the depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// The engine.
    pub engine: String,
    /// True if the figures are a model's.
    pub model: bool,
    /// Bytes of each operation.
    pub size: u64,
    /// Memory that the operations use.
    pub footprint: Footprint,
    /// Direction of the bytes.
    pub direction: crate::plan::Direction,
    /// Queues.
    pub queues: u32,
    /// Smallest depth of each queue with 95 % of the best throughput.
    pub depth: u32,
    /// Bytes a second at that depth.
    pub bytes_per_second: f64,
    /// Greatest bytes a second at any depth.
    pub best: f64,
}

/// A published figure, and the corresponding figure of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// The profile.
    pub profile: String,
    /// The workload of the measurement.
    pub load: String,
    /// Direction of the bytes.
    pub direction: String,
    /// Bytes of each operation.
    pub size: u64,
    /// Name of the figure, with its unit.
    pub quantity: String,
    /// Figure that the source measured on the device.
    pub published: f64,
    /// Figure of the model.
    pub simulated: f64,
    /// Tolerance of the profile, as a fraction.
    pub tolerance: f64,
    /// True if the model is within the tolerance.
    pub holds: bool,
    /// Source of the published figure.
    pub source: String,
}

impl Results {
    /// Returns the engine with this name.
    pub fn engine(&self, name: &str) -> Option<&Engine> {
        self.engines.iter().find(|e| e.name == name)
    }

    /// Returns the cells that failed, are wrong or are unsupported. Interrupted cells are left out, because
    /// there are many of them.
    pub fn troubled(&self) -> impl Iterator<Item = &Measured> {
        self.cells.iter().filter(|m| !matches!(m.status, Status::Ok | Status::Interrupted))
    }

    /// Returns the source of the model of this name; `None` for an engine that is not a model.
    pub fn model_of(&self, name: &str) -> Option<&str> {
        self.engine(name)?.model.as_deref()
    }

    /// Returns the sources of all models, without duplicates.
    pub fn models(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for model in self.engines.iter().filter_map(|e| e.model.as_deref()) {
            if !all.contains(&model) {
                all.push(model);
            }
        }
        all
    }

    /// Returns the point of a cell in its engine's verdict against this machine's `memcpy`.
    pub fn point(&self, cell: &Cell) -> Option<&Point> {
        let curve = Curve::of(cell);
        self.verdicts.iter().find(|v| v.is_here() && v.curve == curve)?.at(cell.size)
    }

    /// Returns the cells with figures: either the measured ones or, with `models`, the cells of models.
    pub fn with_figures(&self, models: bool) -> impl Iterator<Item = &Measured> {
        self.cells.iter().filter(move |c| c.model == models && c.ops_per_second.is_some())
    }
}
