//! What is to be measured: a campaign, and the cells that it comes to.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units;

/// What is done to memory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// One range to one range.
    Copy,
    /// A pattern over one range.
    Fill,
    /// Several segments to several segments, in one descriptor.
    Sg,
}

/// Where the bytes go.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Within this side's memory.
    Local,
    /// From this side's memory to a peer's.
    Push,
    /// From a peer's memory to this side's.
    Pull,
}

/// Which memory is touched in turn.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Footprint {
    /// One buffer for each operation in flight, over and over: in the caches, if they are large enough.
    Hot,
    /// Buffer after buffer through much memory: not in the caches.
    Cold,
    /// As cold, in random order.
    Random,
}

macro_rules! lowercase {
    ($($name:ty),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!("{self:?}").to_lowercase())
            }
        }
    )+};
}
lowercase!(Op, Direction, Footprint);

/// What is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Some buffers, again and again, outside of the measured time.
    #[default]
    Sample,
    /// Every operation, within the measured time: figures are lower for it.
    All,
}

/// One thing to measure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The engine's name; `memcpy` for the baseline.
    pub engine: String,
    /// What is done.
    pub op: Op,
    /// Bytes of each operation.
    pub size: u64,
    /// Operations in flight on each queue.
    pub depth: u32,
    /// Operations for each doorbell.
    pub batch: u32,
    /// Queues, each driven by a thread.
    pub queues: u32,
    /// Segments on each side of an operation.
    pub segments: u32,
    /// Which memory.
    pub footprint: Footprint,
    /// Which way.
    pub direction: Direction,
}

impl Cell {
    /// The name of the baseline.
    pub const BASELINE: &'static str = "memcpy";

    /// What the cell is compared with: `memcpy` (or `memset`) of the same bytes on one core, one after the other, going through as many
    /// buffers.
    #[must_use]
    pub fn baseline(&self) -> Self {
        Self {
            engine: Self::BASELINE.to_owned(),
            depth: if self.footprint == Footprint::Hot { self.depth * self.queues } else { 1 },
            batch: 1,
            queues: 1,
            direction: Direction::Local,
            ..self.clone()
        }
    }

    /// Whether it is the baseline's.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.engine == Self::BASELINE
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.engine, self.op, units::bytes(self.size))?;
        if self.is_baseline() {
            if self.depth > 1 {
                write!(f, " {} buffers", self.depth)?;
            }
        } else {
            write!(f, " q{}", self.depth)?;
            if self.batch > 1 {
                write!(f, " b{}", self.batch)?;
            }
            if self.queues > 1 {
                write!(f, " x{}", self.queues)?;
            }
        }
        if self.segments > 1 {
            write!(f, " {} segments", self.segments)?;
        }
        if self.direction != Direction::Local {
            write!(f, " {}", self.direction)?;
        }
        write!(f, " {}", self.footprint)
    }
}

/// Values to go through: written as a list or a range, `64..2M`, or as a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Values(pub Vec<u64>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number, a list, or a text such as \"64..2M\"")]
        enum Written {
            Number(u64),
            Text(String),
            List(Vec<Self>),
        }
        fn read(written: &Written) -> Result<Vec<u64>, String> {
            match written {
                Written::Number(n) => units::list(&n.to_string()),
                Written::Text(text) => units::list(text),
                Written::List(list) => {
                    let mut all = Vec::new();
                    for item in list {
                        all.extend(read(item)?);
                    }
                    all.sort_unstable();
                    all.dedup();
                    if all.is_empty() { Err("an empty list".to_owned()) } else { Ok(all) }
                }
            }
        }
        read(&Written::deserialize(from)?).map(Self).map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for Values {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        units::list(text).map(Self)
    }
}

/// What goes with what: every combination is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sweep {
    /// Which engines; empty for all of the campaign.
    pub engines: Vec<String>,
    /// What is done.
    pub ops: Vec<Op>,
    /// Bytes of each operation.
    pub sizes: Values,
    /// Operations in flight on each queue.
    pub depths: Values,
    /// Operations for each doorbell; none for half the depth.
    pub batches: Option<Values>,
    /// Queues, each driven by a thread.
    pub queues: Values,
    /// Segments on each side of scatter-gather operations.
    pub segments: Values,
    /// Which memory.
    pub footprints: Vec<Footprint>,
    /// Which way.
    pub directions: Vec<Direction>,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            engines: Vec::new(),
            ops: vec![Op::Copy],
            sizes: Values(vec![4096]),
            depths: Values(vec![32]),
            batches: None,
            queues: Values(vec![1]),
            segments: Values(vec![4]),
            footprints: vec![Footprint::Cold],
            directions: vec![Direction::Local],
        }
    }
}

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

/// Repetitions of more seconds than this are hardly paired with memcpy any more.
const PAIRED: f64 = 0.5;

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

    /// Whether its numbers make sense.
    ///
    /// # Errors
    ///
    /// Which does not, and what would.
    pub fn check(&self) -> Result<(), String> {
        self.check_numbers()?;
        self.check_sweeps()
    }

    /// Whether the numbers that are no lists are within their ranges.
    pub(crate) fn check_numbers(&self) -> Result<(), String> {
        let within = |what: &str, value: f64, low: f64, high: f64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(format!("{what} is {}; allowed are {low} to {high}", units::plain(value)))
            }
        };
        within("repetitions", f64::from(self.repetitions), 1.0, 10_000.0)?;
        within("passes", f64::from(self.passes), 1.0, 10_000.0)?;
        if !(0.0..=1.0).contains(&self.precision) {
            let percent = units::plain(self.precision * 100.0);
            return Err(format!("precision is {percent} %; allowed are 0 to 100 %"));
        }
        if let Some(limit) = self.limit {
            within("limit", limit, 0.0, LONGEST)?;
        }
        within("seconds", self.seconds, SHORTEST, LONGEST)?;
        within("warm-up", self.warm_up, 0.0, 3600.0)?;
        within("stall", self.stall, 0.01, 86_400.0)?;
        if let Some(count) = self.count {
            within("count", count as f64, 1.0, 1e12)?;
        }
        if let Some(rate) = self.rate {
            within("rate", rate, 0.01, 1e9)?;
        }
        if let Some(bytes) = self.footprint {
            within("footprint", bytes as f64, 4096.0, 1e13)?;
        }
        Ok(())
    }

    fn check_sweeps(&self) -> Result<(), String> {
        if self.engines.is_empty() {
            return Err("there is no engine; name one, or `real` for all usable ones".to_owned());
        }
        if self.sweeps.is_empty() {
            return Err("there is nothing to measure: no sweeps".to_owned());
        }
        for sweep in &self.sweeps {
            let most = |what: &str, values: &Values, high: u64| match values.0.iter().find(|v| **v > high) {
                Some(v) => Err(format!("{what} {v} is too much; allowed are 1 to {high}")),
                None if values.0.is_empty() => Err(format!("{what}: an empty list")),
                None => Ok(()),
            };
            most("size", &sweep.sizes, 16 << 30)?;
            most("depth", &sweep.depths, 65_536)?;
            most("queues", &sweep.queues, 1024)?;
            most("segments", &sweep.segments, 4096)?;
            if let Some(batches) = &sweep.batches {
                most("batch", batches, 65_536)?;
                if self.rate.is_some() && batches.0 != [1] {
                    return Err("at a rate, each operation has a doorbell of its own when it is due; \
                        leave the batch out, or give 1"
                        .to_owned());
                }
            }
            if sweep.ops.is_empty() || sweep.footprints.is_empty() || sweep.directions.is_empty() {
                return Err("a sweep needs at least one of ops, footprints and directions".to_owned());
            }
        }
        Ok(())
    }

    /// What is measured otherwise than asked for.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let deepest = |s: &Sweep| s.depths.0.iter().copied().max().unwrap_or(1);
        let batches = |s: &Sweep| s.batches.as_ref().map_or(Vec::new(), |b| b.0.clone());
        let mut notes: Vec<String> = Vec::new();
        for sweep in &self.sweeps {
            let deepest = deepest(sweep);
            for batch in batches(sweep).into_iter().filter(|b| *b > deepest) {
                let note = format!(
                    "{batch} operations for each doorbell do not fit into a depth of {deepest}: {deepest} are measured"
                );
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        if self.count.is_none() && self.rate.is_none() && self.seconds > PAIRED {
            notes.push(format!(
                "in repetitions of {}, an engine and memcpy are measured so far apart that what drifts meanwhile does not cancel out; more of them (-r) are shorter",
                units::nanos(self.seconds * 1e9)
            ));
        }
        notes
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

impl Sweep {
    fn cells(&self, engines: &[String]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &op in &self.ops {
            let segments = if op == Op::Sg { self.segments.0.clone() } else { vec![1] };
            for &footprint in &self.footprints {
                for &direction in &self.directions {
                    for &segments in &segments {
                        for &size in &self.sizes.0 {
                            let like = Cell {
                                engine: String::new(),
                                op,
                                size,
                                depth: 1,
                                batch: 1,
                                queues: 1,
                                segments: segments.min(size) as u32,
                                footprint,
                                direction,
                            };
                            self.of_size(&like, engines, &mut cells);
                        }
                    }
                }
            }
        }
        cells
    }

    fn of_size(&self, like: &Cell, engines: &[String], cells: &mut Vec<Cell>) {
        for &queues in &self.queues.0 {
            for &depth in &self.depths.0 {
                let batches = match &self.batches {
                    Some(batches) => batches.0.clone(),
                    None => vec![(depth / 2).max(1)],
                };
                for batch in batches {
                    for engine in engines {
                        if !self.engines.is_empty() && !self.engines.contains(engine) {
                            continue;
                        }
                        cells.push(Cell {
                            engine: engine.clone(),
                            depth: depth as u32,
                            batch: batch.min(depth) as u32,
                            queues: queues as u32,
                            ..like.clone()
                        });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_file_is_read() {
        let campaign = Campaign::from_toml(
            r#"
            name = "mine"
            engines = ["cpu", "sim:profile=dsa"]
            repetitions = 3
            [[sweeps]]
            sizes = "64..256"
            depths = [1, "8..32*4"]
            ops = ["copy", "sg"]
            footprints = ["hot"]
            "#,
        )
        .unwrap();
        assert_eq!(campaign.sweeps[0].depths.0, [1, 8, 32]);
        let groups = campaign.groups(&campaign.engines);
        assert_eq!(groups.len(), 2 * 3 * 3, "a baseline for each operation, size, and number of hot buffers");
        assert!(groups.iter().all(|g| g.cells.len() == 2));
        let text = toml::to_string(&campaign).unwrap();
        assert_eq!(Campaign::from_toml(&text).unwrap(), campaign, "it is kept in the results");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, says) in [
            ("nmae = 'x'", "nmae"),
            ("repetitions = 0", "repetitions is 0"),
            ("engines = []", "no engine"),
            ("sweeps = []", "no sweeps"),
            ("[[sweeps]]\nsizes = '2M..64'", "smaller end first"),
            ("[[sweeps]]\nsizes = []", "empty list"),
            ("[[sweeps]]\ndepths = 70000", "70000"),
            ("[[sweeps]]\nops = ['move']", "move"),
            ("rate = -1.0", "rate is -1"),
            ("seconds = nan", "seconds is NaN"),
            ("not toml", "expected"),
        ] {
            let error = Campaign::from_toml(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn batches_are_never_deeper_than_the_queue_and_no_cell_comes_twice() {
        let sweep =
            Sweep { depths: Values(vec![1, 4]), batches: Some(Values(vec![1, 2, 32])), ..Sweep::default() };
        let campaign = Campaign { sweeps: vec![sweep.clone(), sweep], ..Campaign::default() };
        let groups = campaign.groups(&["cpu".to_owned()]);
        let cells: Vec<_> = groups.iter().flat_map(|g| &g.cells).map(|c| (c.depth, c.batch)).collect();
        assert_eq!(cells, [(1, 1), (4, 1), (4, 2), (4, 4)]);
    }
}
