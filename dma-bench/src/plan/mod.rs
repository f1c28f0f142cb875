//! What is to be measured: a campaign, and the groups of cells that it comes to.

mod cell;
mod check;
mod sweep;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::cell::{Cell, Direction, Footprint, Op, Verify};
pub use self::sweep::{Sweep, Values};

/// A whole measurement, as a TOML file or a preset describes it. Written back in full into the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Campaign {
    /// Its name.
    pub name: String,
    /// The engines, by name; `real` for every usable engine that is no model.
    pub engines: Vec<String>,
    /// How often each cell is measured, the engines and the baseline in turns.
    pub repetitions: u32,
    /// How often it is gone through all cells, each time for a share of the repetitions: what the machine does meanwhile hits all cells, not
    /// a few, and each of them at so many times that lie apart. No more than the repetitions; once at a rate.
    pub passes: u32,
    /// How well the ratio to memcpy is to be known, as a part of it: a cell whose median is known that well (half as well below 4 KiB), with a chance of
    /// 95 %, is left out of five passes in six from then on, and its time is the others'; and cells in which another core takes part are left out of passes in
    /// which that is never where it usually is, though never of two running. 0 for all repetitions in every case.
    pub precision: f64,
    /// After so many seconds no pass begins, however many there were to be: the repetitions are fewer then. At least one is made.
    pub limit: Option<f64>,
    /// How long each repetition is, in seconds.
    pub seconds: f64,
    /// How long each cell warms up, in seconds: a part of it before each visit, or less, but half a millisecond, where 4096 operations take less,
    /// and a millisecond, or four with hot buffers of more than 1 MiB, where queues stayed open since the visit before. The first visit has its whole part.
    pub warm_up: f64,
    /// Operations of each repetition, instead of a duration.
    pub count: Option<u64>,
    /// Operations a second on each queue, instead of as many as go.
    pub rate: Option<f64>,
    /// What is verified.
    pub verify: Verify,
    /// Bytes of source, and as many of destination, that cold operations go through; none for twice the last cache, within bounds.
    pub footprint: Option<u64>,
    /// How long an engine may complete nothing before its cell is given up, in seconds.
    pub stall: f64,
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
            precision: 0.0,
            limit: None,
            seconds: SLICE,
            warm_up: 0.24,
            count: None,
            rate: None,
            verify: Verify::Sample,
            footprint: None,
            stall: 5.0,
            published: false,
            sweeps: vec![Sweep::default()],
        }
    }
}

/// How long a repetition is, in seconds, unless told otherwise: shorter than what the scheduler of a busy machine gives a thread at a time
/// (1.4 ms on two CPUs), so that most repetitions are whole there too.
pub const SLICE: f64 = 0.0008;

/// How often it is gone through all cells, unless told otherwise. Where others use the memory of the machine, ratios differ more from one second
/// to the next than within one: more visits, and fewer repetitions in each, are surer than the reverse.
pub const PASSES: u32 = 24;

/// The shortest that a repetition may be, in seconds.
pub const SHORTEST: f64 = 0.000_1;
/// The longest, in seconds.
pub const LONGEST: f64 = 86_400.0;
/// The same at a rate, where nothing is measured again and what comes late is made up for later: longer than most of what comes between.
pub const RATE_SLICE: f64 = 0.02;

/// Cells that share a baseline.
#[derive(Clone, Debug)]
pub struct Group {
    /// The baseline.
    pub baseline: Cell,
    /// What is compared with it.
    pub cells: Vec<Cell>,
}

impl Campaign {
    /// Reads a TOML file.
    ///
    /// # Errors
    ///
    /// What is wrong in it, and where.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let campaign: Self = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        campaign.check()?;
        Ok(campaign)
    }

    /// How long a repetition is.
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
