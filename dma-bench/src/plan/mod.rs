//! Campaigns, and the groups of cells that they come to.

mod cell;
mod check;
mod sweep;
#[cfg(test)]
mod tests;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::cell::{Cell, Direction, Footprint, Op, OpSpec, Peer, Verify};
pub use self::sweep::{Sweep, Values};

/// A whole measurement, as a TOML file or a preset describes it. Written back in full into the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Campaign {
    /// Its name.
    pub name: String,
    /// The engines, by name; `real` for every usable engine that is no model.
    pub engines: Vec<String>,
    /// The number of times that each cell is measured, the engines and the baseline in turns.
    pub repetitions: u32,
    /// The number of times that it is gone through all cells, each time for a share of the repetitions: what
    /// the machine does meanwhile hits all cells, not a few, and each of them at so many times that lie
    /// apart. No more than the repetitions; once at a rate.
    pub passes: u32,
    /// After so many seconds no pass begins, however many there were to be: the repetitions are fewer then.
    /// At least one is made.
    pub limit: Option<f64>,
    /// Duration of each repetition, in seconds.
    pub seconds: f64,
    /// Warm-up of each cell, in seconds: a part of it before each visit, or
    /// less, but half a millisecond, where 4096 operations take less, and a millisecond, or four with hot
    /// buffers of more than 1 MiB, where queues stayed open since the visit before. The first visit has its
    /// whole part.
    pub warm_up: f64,
    /// Operations of each repetition, instead of a duration.
    pub count: Option<u64>,
    /// Operations a second on each queue, instead of as many as go.
    pub rate: Option<f64>,
    /// Extent of verification.
    pub verify: Verify,
    /// Bytes of source, and as many of destination, that cold operations go through; none for twice the last
    /// cache, within bounds.
    pub footprint: Option<u64>,
    /// Time limit for an engine that completes nothing before its cell is given up, in
    /// seconds.
    pub stall: f64,
    /// Run each cell without a break for so many seconds, compare every byte, and keep a time series.
    pub duration: Option<f64>,
    /// Keep a time series with a point every so many seconds, over a run without breaks.
    pub series: Option<f64>,
    /// The CPUs that drive queues, one after the other; empty for any.
    pub cpus: Vec<usize>,
    /// The NUMA node that memory is allocated on; none for any.
    pub node: Option<u32>,
    /// Whose memory `push` and `pull` reach.
    pub peer: Peer,
    /// Compare the profiles of simulated engines with their published figures.
    pub published: bool,
    /// The combinations.
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
            published: false,
            sweeps: vec![Sweep::default()],
        }
    }
}

/// Duration of a repetition, in seconds, unless told otherwise: shorter than what
/// the scheduler of a busy machine gives a thread at a time (1.4 ms on two CPUs), so that most repetitions
/// are whole there too.
pub const SLICE: f64 = 0.0008;

/// The number of times that it is gone through all cells, unless told otherwise. If others use the memory of
/// the machine, ratios differ more from one second to the next than within one: more visits, and fewer
/// repetitions in each, are surer than the reverse.
pub const PASSES: u32 = 24;

/// The shortest that a repetition may be, in seconds.
pub const SHORTEST: f64 = 0.000_1;
/// The longest, in seconds.
pub const LONGEST: f64 = 86_400.0;
/// The same at a rate, where nothing is measured again and what comes late is made up for later: longer than
/// most of what comes between.
pub const RATE_SLICE: f64 = 0.02;

/// Cells that share a baseline.
#[derive(Clone, Debug)]
pub struct Group {
    /// The baseline.
    pub baseline: Cell,
    /// The cells that are compared with it.
    pub cells: Vec<Cell>,
}

impl Campaign {
    /// Reads a TOML file.
    ///
    /// # Errors
    ///
    /// Names what is wrong in it, and where.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let campaign: Self = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        campaign.check()?;
        Ok(campaign)
    }

    /// Returns whether each cell runs in one piece, in which passes and ratios have no place.
    #[must_use]
    pub fn is_continuous(&self) -> bool {
        self.duration.is_some() || self.series.is_some()
    }

    /// Returns the duration of a repetition.
    #[must_use]
    pub fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Every cell, once, those together that share a baseline.
    #[must_use]
    pub fn groups(&self, engines: &[String]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for sweep in &self.sweeps {
            for mut cell in sweep.cells(engines) {
                if self.rate.is_some() {
                    cell.batch = 1;
                }
                let baseline = cell.baseline();
                let at = groups.iter().position(|g| g.baseline == baseline).unwrap_or_else(|| {
                    groups.push(Group { baseline, cells: Vec::new() });
                    groups.len() - 1
                });
                if !groups[at].cells.contains(&cell) {
                    groups[at].cells.push(cell);
                }
            }
        }
        groups
    }
}
