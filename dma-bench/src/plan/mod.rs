//! Campaigns, and the groups of cells that they consist of.

mod cell;
mod check;
mod sweep;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::cell::{Cell, Direction, Footprint, Op, OpSpec, Peer, Verify};
pub use self::sweep::{Sweep, Values};
use crate::peer::Address;

/// A whole measurement, as a TOML file or a preset describes it. The results contain it with all defaults
/// filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Campaign {
    /// Its name.
    pub name: String,
    /// The engines, by name. `real` stands for every usable engine that is no model.
    pub engines: Vec<String>,
    /// Repetitions of each cell. Engines and the baseline take turns.
    pub repetitions: u32,
    /// Passes over all cells, each with a share of the repetitions. A disturbance then hits all cells alike,
    /// at many times that lie apart. At most the repetitions; 1 at a rate.
    pub passes: u32,
    /// Time limit in seconds, after which no pass begins. At least one pass is made, and repetitions may be
    /// fewer.
    pub limit: Option<f64>,
    /// Duration of each repetition, in seconds.
    pub seconds: f64,
    /// Warm-up of each cell over all passes, in seconds. Each pass has an equal part. Later passes need 1 ms
    /// at most, or 4 ms with hot buffers of more than 1 MiB, except for queues that learn and were closed.
    pub warm_up: f64,
    /// Operations of each repetition, instead of a duration.
    pub count: Option<u64>,
    /// Operations a second on each queue. As fast as possible if not given.
    pub rate: Option<f64>,
    /// Extent of verification.
    pub verify: Verify,
    /// Bytes of source that cold operations use, and as many of destination. Twice the last-level cache if
    /// not given, between 64 and 512 MiB.
    pub footprint: Option<u64>,
    /// Time limit in seconds for an engine that completes nothing. Its cell then fails.
    pub stall: f64,
    /// Duration in seconds of a soak test: each cell runs without a break, every byte is compared, and a time
    /// series is kept.
    pub duration: Option<f64>,
    /// Interval in seconds of a time series. Each cell then runs without a break.
    pub series: Option<f64>,
    /// The CPUs that drive queues, in turn; empty for any.
    pub cpus: Vec<usize>,
    /// The NUMA node of all memory; any if not given.
    pub node: Option<u32>,
    /// Owner of the memory that `push` and `pull` reach.
    pub peer: Peer,
    /// The `dma-bench serve` of [`Peer::Host`].
    #[serde(skip)]
    pub address: Option<Address>,
    /// Compare the profiles of simulated engines with their published figures.
    pub published: bool,
    /// The combinations to measure.
    pub sweeps: Vec<Sweep>,
}

impl Default for Campaign {
    fn default() -> Self {
        Self {
            name: "custom".to_owned(),
            engines: vec!["real".to_owned()],
            repetitions: 60,
            passes: PASSES,
            limit: None,
            seconds: SLICE,
            warm_up: 0.24,
            count: None,
            rate: None,
            verify: Verify::Sample,
            footprint: None,
            stall: 5.0,
            duration: None,
            series: None,
            cpus: Vec::new(),
            node: None,
            peer: Peer::Thread,
            address: None,
            published: false,
            sweeps: vec![Sweep::default()],
        }
    }
}

/// Default duration of a repetition, in seconds. It is shorter than the time slice of the scheduler on a busy
/// machine (1.4 ms on two CPUs), so that most repetitions are not interrupted there.
pub const SLICE: f64 = 0.0008;

/// Default number of passes. If others use the machine's memory, ratios differ more from one second to the
/// next than within a second. So many visits with few repetitions each are more accurate than the reverse.
pub const PASSES: u32 = 24;

/// Shortest duration of a repetition, in seconds.
pub const SHORTEST: f64 = 0.000_1;
/// Longest duration of a repetition, in seconds.
pub const LONGEST: f64 = 86_400.0;
/// Default duration of a repetition at a rate, in seconds. It is longer than most disturbances, because
/// nothing is repeated and delayed operations are made up for.
pub const RATE_SLICE: f64 = 0.02;

/// Cells that share a baseline.
#[derive(Clone, Debug)]
pub struct Group {
    /// The baseline.
    pub baseline: Cell,
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

    /// Returns true if each cell runs without a break, so that there are no passes and no ratios.
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

/// Groups items by their keys, both in the order of the first item of a key.
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
