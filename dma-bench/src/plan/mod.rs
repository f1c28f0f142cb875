//! Campaigns, and the groups of cells that they consist of.

mod cell;
mod check;
mod sweep;
#[cfg(test)]
mod tests;

use clap::ValueEnum;
use dma::ErrorKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::cell::{Address, Cell, Direction, Footprint, Op, OpSpec, Peer, Verify};
pub use self::sweep::{Sweep, Values};

/// A whole measurement, as a TOML file or a preset describes it. The results contain the campaign with all
/// defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Campaign {
    /// Its name.
    pub name: String,
    /// The engines, by name. `real` stands for every usable engine except models.
    pub engines: Vec<String>,
    /// Samples of each cell. Engines and the baseline take turns.
    pub samples: u32,
    /// Passes over all cells, each with a share of the samples, so that a disturbance affects all cells
    /// alike. At most the number of samples; 1 at a rate.
    pub passes: u32,
    /// Time limit in seconds, after which no pass begins. At least one pass is made. Cells may then have
    /// fewer samples.
    pub limit: Option<f64>,
    /// Duration of each sample, in seconds.
    pub seconds: f64,
    /// Warm-up of each cell over all passes, in seconds. Each pass has an equal part. Later passes use 1 ms,
    /// or 4 ms with hot buffers of more than 1 MiB, unless the queue was closed and must tune itself again.
    pub warm_up: f64,
    /// Operations of each sample, instead of a duration.
    pub count: Option<u64>,
    /// Operations a second on each queue. Default: as fast as possible.
    pub rate: Option<f64>,
    /// Extent of verification.
    pub verify: Verify,
    /// Bytes of source that cold operations use; the destination has the same size. Default: twice the
    /// last-level cache, but between 64 and 512 MiB.
    pub footprint: Option<u64>,
    /// Time limit in seconds for an engine that completes nothing. Its cell then fails.
    pub stall: f64,
    /// Duration in seconds of a soak test: each cell runs without a break, every byte is compared, and a time
    /// series is kept.
    pub duration: Option<f64>,
    /// Interval in seconds of a time series. Each cell then runs without a break.
    pub series: Option<f64>,
    /// Each cell ends as soon as its throughput is steady within this fraction. Needs a time series.
    pub steady: Option<f64>,
    /// The CPUs for the threads that drive queues, used in turn; empty for any CPU.
    pub cpus: Vec<usize>,
    /// The NUMA node of all memory. Default: any node.
    pub node: Option<u32>,
    /// The NUMA node of destinations, if it differs from `node`, which is then the node of sources.
    pub dst_node: Option<u32>,
    /// Owner of the memory that `push` and `pull` reach.
    pub peer: Peer,
    /// The `dma-bench serve` of [`Peer::Host`].
    #[serde(skip)]
    pub address: Option<Address>,
    /// Compare the profiles of simulated engines with the published figures of their devices.
    pub published: bool,
    /// The combinations to measure.
    pub sweeps: Vec<Sweep>,
}

impl Default for Campaign {
    fn default() -> Self {
        Self {
            name: "custom".to_owned(),
            engines: vec!["real".to_owned()],
            samples: 60,
            passes: DEFAULT_PASSES,
            limit: None,
            seconds: SAMPLE_SECONDS,
            warm_up: 0.24,
            count: None,
            rate: None,
            verify: Verify::Sample,
            footprint: None,
            stall: 5.0,
            duration: None,
            series: None,
            steady: None,
            cpus: Vec::new(),
            node: None,
            dst_node: None,
            peer: Peer::Thread,
            address: None,
            published: false,
            sweeps: vec![Sweep::default()],
        }
    }
}

/// Default duration of a sample, in seconds. It is shorter than the time slice of the scheduler on a busy
/// machine (1.4 ms on two CPUs), so that most samples are not interrupted there.
pub const SAMPLE_SECONDS: f64 = 0.0008;

/// Default number of passes. If other tenants use the machine's memory, ratios differ more between seconds
/// than within a second. Therefore, many passes with few samples each are more accurate than few passes with
/// many samples.
pub const DEFAULT_PASSES: u32 = 24;

/// Shortest duration of a sample, in seconds.
pub const MIN_SAMPLE_SECONDS: f64 = 0.000_1;
/// Longest duration of a sample, in seconds.
pub const MAX_SAMPLE_SECONDS: f64 = 86_400.0;
/// Default duration of a sample at a rate, in seconds. It is longer than most disturbances, because no sample
/// is repeated, and the run catches up with delayed operations.
pub const RATE_SAMPLE_SECONDS: f64 = 0.02;

/// The reason why nothing was measured or served. The text contains the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The campaign, an option, or a file that an option names is invalid, in general or on this machine.
    #[error("{0}")]
    Invalid(String),
    /// No engine can be used, or the peer cannot be reached.
    #[error("{0}")]
    Unusable(String),
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self::Invalid(reason)
    }
}

impl From<dma::Error> for Refused {
    /// Invalid arguments are errors of the command line. All other errors are errors of the machine.
    fn from(error: dma::Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::OutOfRange => Self::Invalid(error.to_string()),
            _ => Self::Unusable(error.to_string()),
        }
    }
}

/// Cells that share a baseline.
#[derive(Clone, Debug)]
pub struct Group {
    /// The baseline; `None` if the CPU cannot access the bytes of the cells.
    pub baseline: Option<Cell>,
    /// The cells that are compared with the baseline.
    pub cells: Vec<Cell>,
}

impl Campaign {
    /// Reads a TOML file.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let campaign: Self = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        campaign.check()?;
        Ok(campaign)
    }

    /// Returns the number of passes over all cells. Runs at a rate have one pass, because a delay also delays
    /// all later operations of the schedule.
    pub fn planned_passes(&self) -> u32 {
        if self.rate.is_some() { 1 } else { self.passes.min(self.samples) }
    }

    /// Returns the NUMA nodes of sources and destinations, if they differ. Otherwise all memory is on one
    /// node, or on any node.
    pub(crate) fn nodes(&self) -> Option<(u32, u32)> {
        self.node.zip(self.dst_node).filter(|(src, dst)| src != dst)
    }

    /// Returns true if each cell runs without a break. Then the run has neither passes nor ratios.
    pub fn is_continuous(&self) -> bool {
        self.duration.is_some() || self.series.is_some()
    }

    /// Returns every cell once, grouped by baseline.
    pub fn groups(&self, engines: &[String]) -> Vec<Group> {
        let mut cells: Vec<Cell> = Vec::new();
        for mut cell in self.sweeps.iter().flat_map(|sweep| sweep.cells(engines)) {
            if self.rate.is_some() {
                cell.batch = 1;
            }
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        let groups = grouped(cells.into_iter().map(|cell| (cell.baseline(), cell)));
        groups.into_iter().map(|(baseline, cells)| Group { baseline, cells }).collect()
    }
}

/// Groups items by their keys. The groups are in the order of their first items.
pub(crate) fn grouped<K: PartialEq, T>(items: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, item) in items {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, of)) => of.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// A built-in campaign for a frequent question. It is a TOML file that users can print and change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Copies by size, alone and 32 deep, hot and cold, and two models. Takes half a minute.
    Quick,
    /// All operations, sizes, depths and footprints, and every model. Takes many minutes.
    Full,
    /// One copy at a time: its latency.
    Latency,
    /// The smallest queue depth with 95 % of the best throughput.
    Knee,
    /// The sizes at which each engine is faster than memcpy, hot and cold, one at a time and batched.
    Crossover,
}

impl Preset {
    /// Returns the campaign as a TOML file with comments.
    pub(crate) fn toml(self) -> &'static str {
        match self {
            Self::Quick => include_str!("../../presets/quick.toml"),
            Self::Full => include_str!("../../presets/full.toml"),
            Self::Latency => include_str!("../../presets/latency.toml"),
            Self::Knee => include_str!("../../presets/knee.toml"),
            Self::Crossover => include_str!("../../presets/crossover.toml"),
        }
    }

    pub(crate) fn campaign(self) -> Result<Campaign, String> {
        Campaign::from_toml(self.toml())
    }
}
