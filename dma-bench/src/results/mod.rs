//! Results of a run, as the results file has them. The JSON Schema of the file is made from these
//! types.

mod file;
mod notes;
#[cfg(test)]
pub(crate) mod tests;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::file::{FileError, schema};
pub use crate::files::write_file;
use crate::machine::Machine;
use crate::plan::{Campaign, Cell, Footprint};
use crate::stats::Figures;
use crate::verdict::Verdict;

/// Name of the format of results files.
pub const SCHEMA: &str = "dma-bench/results";

/// The version that this program writes and reads.
pub const VERSION: u32 = 2;

/// All that one run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// The version of this program.
    pub tool: String,
    /// When the run began, in UTC.
    pub created: String,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// The command line.
    pub command: Vec<String>,
    /// The user stopped it: cells are missing.
    pub interrupted: bool,
    /// The number of cells there were to be, those of the baseline included.
    pub planned: u64,
    /// The answer in words: at most 12 lines of at most 80 columns.
    pub summary: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// The campaign.
    pub campaign: Campaign,
    /// The engines that took part, or were to.
    pub engines: Vec<Engine>,
    /// The cell that was measured, or the figures of all cells.
    pub cells: Vec<Measured>,
    /// At which sizes engines are faster than `memcpy`, as fast, or slower.
    pub verdicts: Vec<Verdict>,
    /// Costs of opening queues and registering memory.
    pub costs: Vec<Cost>,
    /// The smallest depth with 95 % of the best throughput.
    pub knees: Vec<Knee>,
    /// Simulated profiles against the figures that they are made from.
    pub published: Vec<Published>,
}

/// An engine that took part, or was to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Clock of its figures: `real` or `virtual`.
    pub clock: String,
    /// Why it took no part.
    pub error: Option<String>,
}

/// Status of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All repetitions are there.
    Ok,
    /// The engine failed; the figures are of the repetitions before, if any.
    Failed,
    /// Bytes did not arrive, or a result is wrong.
    Wrong,
    /// The engine cannot do that.
    Unsupported,
    /// The user stopped it; the figures are of the repetitions before, if any.
    Interrupted,
}

/// One cell and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// The cell that was measured, or the figures of all cells.
    #[serde(flatten)]
    pub cell: Cell,
    /// The figures are a model's.
    pub model: bool,
    /// The end of the cell.
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
    /// CPU time of the whole process for each operation, in nanoseconds. None for a device on a clock of its
    /// own.
    pub cpu_ns_per_op: Option<Figures>,
    /// CPU time of the whole process for 10^9 bytes, in seconds.
    pub cpu_s_per_gb: Option<Figures>,
    /// Doorbells for each operation.
    pub doorbells_per_op: Option<f64>,
    /// Polls for each operation.
    pub polls_per_op: Option<f64>,
    /// Repetitions that were disturbed and are not among the figures: threads waited for a CPU, or the
    /// helping core was not where it usually is. Their latencies count.
    pub left_out: u64,
    /// The part of the time for which threads waited for a CPU even in the repetitions that were kept.
    pub waited: f64,
    /// The part of the repetitions, kept or not, in which the helping core was not where it usually is.
    pub moved: f64,
    /// Operations done, all in all.
    pub ops: u64,
    /// Operations whose bytes were compared.
    pub verified: u64,
    /// In how many passes over all cells the kept repetitions were made. Those of one pass are not
    /// independent.
    pub visits: u32,
    /// The time series, if one was asked for.
    pub series: Vec<Moment>,
}

/// The distribution of latencies, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// The number of were timed.
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
    /// Summarises a histogram; `None` if it is empty.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            samples: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        })
    }

    /// A `percentile`, such as 0.999, if as many were timed as it takes for one beyond it: of fewer it is the
    /// longest, by another name.
    #[must_use]
    pub fn known(&self, percentile: f64, value: u64) -> Option<u64> {
        (self.samples as f64 * (1.0 - percentile) >= 1.0 - 1e-6).then_some(value)
    }
}

/// Cost of setting something up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// The engine.
    pub engine: String,
    /// The figures are those of a simulation on this machine.
    pub model: bool,
    /// The step: `open-queue`, `register`, or `deregister`.
    pub what: String,
    /// Bytes that are registered; 0 for a queue.
    pub size: u64,
    /// Its durations, in nanoseconds.
    pub time: Latency,
}

/// One point of a time series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// Seconds from the beginning of the cell to the end of this interval.
    pub at: f64,
    /// Operations a second in it.
    pub ops_per_second: f64,
    /// Half of the latencies in it are below, in nanoseconds; `null` if none was timed.
    pub p50: Option<u64>,
    /// 99 % are below; `null` if fewer than 100 were timed.
    pub p99: Option<u64>,
    /// The longest.
    pub max: Option<u64>,
    /// The part of it for which threads waited for a CPU.
    pub waited: f64,
}

/// The smallest depth with 95 % of the best throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// The profile.
    pub profile: String,
    /// The load.
    pub load: String,
    /// Which way.
    pub direction: String,
    /// Bytes of each task.
    pub size: u64,
    /// Name of the figure, with its unit.
    pub quantity: String,
    /// As measured on the device by its source.
    pub published: f64,
    /// As the model has it.
    pub simulated: f64,
    /// Tolerance of the model, as a fraction.
    pub tolerance: f64,
    /// True if it is within that.
    pub holds: bool,
    /// Source of the figure.
    pub source: String,
}

impl Results {
    /// The engine of that name.
    #[must_use]
    pub fn engine(&self, name: &str) -> Option<&Engine> {
        self.engines.iter().find(|e| e.name == name)
    }

    /// Cells that did not end well, without those that have but fewer repetitions than were asked for: these
    /// are many, and alike.
    pub fn troubled(&self) -> impl Iterator<Item = &Measured> {
        self.cells.iter().filter(|m| !matches!(m.status, Status::Ok | Status::Interrupted))
    }

    /// Returns the source of the model of this name, if it is one.
    #[must_use]
    pub fn model_of(&self, name: &str) -> Option<&str> {
        self.engine(name)?.model.as_deref()
    }

    /// Returns the sources of all models, each once.
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
