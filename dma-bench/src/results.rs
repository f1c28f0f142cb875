//! The results file: one versioned schema, described field by field in `RESULTS.md`.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use crate::files::write_file;
use crate::files::{input, remedy};
use crate::machine::Machine;
use crate::output::printable;
use crate::plan::{Campaign, Cell, Footprint};
use crate::stats::Figures;
use crate::units::{bytes, digits, per_second};

/// What a results file calls itself.
pub const SCHEMA: &str = "dma-bench/results";
/// From which part of the time on waiting for a CPU is worth a word.
const BUSY: f64 = 0.05;
/// From which part of the repetitions on a shared core, or with a core that moved, is worth a word.
const OFTEN: f64 = 0.25;
/// Fields whose text stands in tables.
const IN_TABLES: [&str; 8] =
    ["engine", "name", "profile", "load", "direction", "quantity", "against", "source"];
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

/// A file that cannot be read, written, or understood.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system says no.
    #[error("{path}: {error}{}", remedy(.error))]
    Io {
        /// Which file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is not a whole results file.
    #[error("{path}: no results of dma-bench: {reason}")]
    Malformed {
        /// Which file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is of another version.
    #[error(
        "{path}: results of version {found}; this dma-bench reads version {VERSION}: use the one that wrote it ({tool})"
    )]
    Version {
        /// Which file.
        path: String,
        /// The version found.
        found: u64,
        /// The program that wrote it.
        tool: String,
    },
}

/// Makes all text from a file such that a terminal, a table and a page show it as it is: here, where it enters, once for all of them.
fn clean(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = printable(text),
        serde_json::Value::Array(all) => all.iter_mut().for_each(clean),
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                clean(value);
                // What stands in a table must not end its column. No engine has such a name: only what was written by hand changes.
                if let (true, serde_json::Value::String(text)) = (IN_TABLES.contains(&name.as_str()), value) {
                    *text = text.replace('|', "\u{a6}");
                }
            }
        }
        _ => {}
    }
}

impl Results {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Nothing in it can fail: no maps with odd keys, and no number that is not finite gets in.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Writes a results file.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        write_file(path, self.to_json().as_bytes())
    }

    /// Reads a results file.
    ///
    /// # Errors
    ///
    /// It cannot be read, is cut off or something else, or is of another version.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let bytes = fs::read(input(path)).map_err(|error| FileError::Io { path: name.clone(), error })?;
        Self::parse(&name, &bytes)
    }

    fn parse(name: &str, bytes: &[u8]) -> Result<Self, FileError> {
        let malformed = |reason: String| FileError::Malformed { path: name.to_owned(), reason };
        let mut value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| {
            malformed(if e.is_eof() { format!("the file is cut off ({e})") } else { e.to_string() })
        })?;
        clean(&mut value);
        if value.get("schema").and_then(|s| s.as_str()) != Some(SCHEMA) {
            return Err(malformed(format!("it has no \"schema\": \"{SCHEMA}\"")));
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(found) => {
                let tool = value.get("tool").and_then(|t| t.as_str()).unwrap_or("unknown").to_owned();
                return Err(FileError::Version { path: name.to_owned(), found, tool });
            }
            None => return Err(malformed("it has no \"version\"".to_owned())),
        }
        serde_json::from_value(value).map_err(|e| malformed(e.to_string()))
    }

    /// The engine of that name.
    #[must_use]
    pub fn engine(&self, name: &str) -> Option<&Engine> {
        self.engines.iter().find(|e| e.name == name)
    }

    /// Cells that did not end well, without those that have but fewer repetitions than were asked for: these are many, and alike.
    pub fn troubled(&self) -> impl Iterator<Item = &Measured> {
        self.cells.iter().filter(|m| !matches!(m.status, Status::Ok | Status::Interrupted))
    }

    /// How many cells were never begun, if any.
    #[must_use]
    pub fn not_begun(&self) -> Option<String> {
        let (planned, begun) = (self.planned?, self.cells.len() as u64);
        (planned > begun).then(|| format!("{} of {planned}", planned - begun))
    }

    /// What to say if the user stopped it.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        let fewer = self.cells.iter().filter(|m| m.status == Status::Interrupted).count();
        let not_begun = self.not_begun().map(|n| format!("; {n} cells were not begun")).unwrap_or_default();
        self.interrupted.then(|| {
            format!(
                "This is what had been measured by then: {fewer} of {} cells have fewer repetitions{not_begun}.",
                self.cells.len()
            )
        })
    }

    /// What to say if a limit of time ended the passes.
    #[must_use]
    pub fn limited(&self) -> Option<String> {
        let of = self.campaign.passes.min(self.campaign.repetitions);
        let limit = self.campaign.limit.filter(|limit| !self.interrupted && self.seconds >= *limit)?;
        let visits = self.cells.iter().filter_map(|m| m.visits).max().filter(|n| *n < of)?;
        let seconds = digits(limit);
        Some(format!(
            "The limit of {seconds} s ended it after {visits} of {of} passes over all cells; figures are surer with a greater --limit."
        ))
    }

    /// What to say if memory that is to be cold fits into a cache.
    #[must_use]
    pub fn cached(&self) -> Option<String> {
        let footprint = self.campaign.footprint?;
        let cold = |m: &Measured| m.cell.footprint != Footprint::Hot && !m.model;
        let cache = self.machine.last_cache();
        // Sources, and as many destinations.
        let fits =
            2 * footprint.max(self.cells.iter().filter(|m| cold(m)).map(|m| m.cell.size).max()?) <= cache;
        fits.then(|| {
            let (footprint, cache, least) = (bytes(footprint), bytes(cache), cache.div_ceil(1 << 20) * 2);
            format!(
                "Not cold: what cold and random operations go through, {footprint} of source and as much of destination, fits into the last cache, {cache}. \
                 --footprint {least}M does not."
            )
        })
    }

    /// What an engine of this name is a model of, if it is one.
    #[must_use]
    pub fn model_of(&self, name: &str) -> Option<&str> {
        self.engines.iter().find(|e| e.name == name)?.model.as_deref()
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

    /// What to say of throughputs that were asked for.
    #[must_use]
    pub fn at_rate(&self) -> Option<String> {
        let rate = self.campaign.rate?;
        Some(format!(
            "At a rate of {} on each queue: throughputs are what was asked for, not what an engine can do; CPU times have the waiting in them, and latencies count from when \
             an operation was due.",
            per_second(rate)
        ))
    }

    /// What to say if the machine was busy with something else: in how many cells threads waited for a CPU, and for which part of the time at
    /// most; in how many others used the core's other hardware thread, and in which part of the repetitions at most; and the same of cores that moved.
    #[must_use]
    pub fn busy(&self) -> Vec<String> {
        let beyond = |part: fn(&Measured) -> f64, limit: f64| {
            let measured = self.cells.iter().filter(|m| m.ops_per_second.is_some());
            let beyond: Vec<f64> = measured.map(part).filter(|part| *part > limit).collect();
            let most = beyond.iter().copied().fold(0.0, f64::max);
            (!beyond.is_empty())
                .then(|| (format!("in {} of {} cells", beyond.len(), self.cells.len()), most * 100.0))
        };
        let waited = beyond(|m| m.waited, BUSY).map(|(cells, most)| {
            format!(
                "The machine was busy: {cells} threads waited for a CPU, for up to {most:.0} % of the time. Those figures are less sure, and those of engines \
                 with several threads too low; a quieter machine or --realtime mends that."
            )
        });
        let shared = beyond(|m| m.shared, OFTEN).map(|(cells, most)| {
            format!(
                "The core was shared: {cells} its other hardware thread was busy with something else, in up to {most:.0} % of the repetitions. These \
                 are left out where they are not too many; but whoever is that busy uses the memory too, and memcpy loses more by that than other ways to copy. A quieter machine mends it."
            )
        });
        let moved = beyond(|m| m.moved, OFTEN).map(|(cells, most)| {
            format!(
                "The second core moved, as virtual CPUs do: {cells} it was elsewhere than usual in up to {most:.0} % of the repetitions, on the core of the first or not \
                 behind the same cache, or busy with something else. These are left out where there are enough others."
            )
        });
        let left_out = shared.is_some() || moved.is_some();
        let mut notes: Vec<String> = waited.into_iter().chain(shared).chain(moved).collect();
        if let Some(last) = notes.last_mut().filter(|_| left_out) {
            last.push_str(
                " What is left out counts for latencies all the same: these are of all repetitions.",
            );
        }
        notes
    }

    /// Cells with figures, measured ones first if `models` are asked for too.
    pub fn with_figures(&self, models: bool) -> impl Iterator<Item = &Measured> {
        self.cells.iter().filter(move |c| c.model == models && c.ops_per_second.is_some())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::{Direction, Op};

    /// Results with a cell of each kind.
    pub(crate) fn sample() -> Results {
        let mut cells = Vec::new();
        for (engine, model, speed, status) in [
            ("memcpy", false, 1.0, Status::Ok),
            ("cpu", false, 0.5, Status::Ok),
            ("sim:profile=dsa", true, 0.4, Status::Ok),
            ("doca", false, 0.0, Status::Failed),
        ] {
            for size in [64_u64, 4096, 65_536, 1 << 20] {
                let cell = Cell {
                    engine: engine.to_owned(),
                    op: Op::Copy,
                    size,
                    depth: 1,
                    batch: 1,
                    queues: 1,
                    segments: 1,
                    footprint: Footprint::Cold,
                    direction: Direction::Local,
                };
                let grows = if engine == "memcpy" { 1.0 } else { (size as f64 / 4096.0).sqrt() };
                let rate = |n: f64| 1e10 / size as f64 * speed * grows.min(6.0) * (1.0 + n / 50.0);
                let ops = (status == Status::Ok)
                    .then(|| Figures::of((0..7).map(|n| rate(f64::from(n))).collect()))
                    .flatten();
                cells.push(Measured {
                    cell,
                    model,
                    status,
                    message: (status != Status::Ok).then(|| "device lost".to_owned()),
                    bytes_per_second: ops.as_ref().map(|f| f.times(size as f64)),
                    ratio: ops.as_ref().map(|f| f.times(size as f64 / 1e10)),
                    latency: ops.as_ref().map(|f| Latency {
                        samples: 1000,
                        mean: 1e9 / f.median,
                        p50: (1e9 / f.median) as u64,
                        p90: (1.1e9 / f.median) as u64,
                        p99: (1.3e9 / f.median) as u64,
                        p999: (3e9 / f.median) as u64,
                        max: (9e9 / f.median) as u64,
                    }),
                    cpu_ns_per_op: ops.as_ref().filter(|_| !model).map(|f| f.times(0.0)),
                    cpu_s_per_gb: Figures::of(vec![0.1, 0.11, 0.12]).filter(|_| !model && ops.is_some()),
                    doorbells_per_op: Some(1.0),
                    polls_per_op: Some(1.5),
                    left_out: 0,
                    waited: 0.0,
                    shared: 0.0,
                    moved: 0.0,
                    ops: 10_000,
                    verified: 16,
                    visits: Some(24),
                    ops_per_second: ops,
                });
            }
        }
        let engine = |name: &str, model: Option<&str>, error: Option<&str>| Engine {
            name: name.to_owned(),
            backend: name.split(':').next().unwrap_or_default().to_owned(),
            device: "a device".to_owned(),
            version: "1".to_owned(),
            model: model.map(str::to_owned),
            clock: if model.is_some() { "virtual" } else { "real" }.to_owned(),
            error: error.map(str::to_owned),
        };
        Results {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            tool: "0.1.0".to_owned(),
            created: "2026-01-02T03:04:05Z".to_owned(),
            seconds: 1.5,
            command: vec!["dma-bench".to_owned(), "run".to_owned()],
            interrupted: false,
            planned: Some(16),
            machine: Machine::here(),
            campaign: Campaign::default(),
            engines: vec![
                engine("memcpy", None, None),
                engine("cpu", None, None),
                engine("sim:profile=dsa", Some("dsa (a public <source>)"), None),
                engine("doca", None, Some("no SDK")),
            ],
            cells,
            crossovers: vec![Crossover {
                engine: "sim:profile=dsa".to_owned(),
                model: true,
                depth: 1,
                batch: 1,
                queues: 1,
                footprint: Footprint::Cold,
                against: "memcpy here".to_owned(),
                bytes: Some(17_000.0),
                always: false,
            }],
            knees: vec![Knee {
                engine: "cpu".to_owned(),
                model: false,
                size: 4096,
                footprint: Footprint::Cold,
                direction: Direction::Local,
                queues: 1,
                depth: 4,
                bytes_per_second: 1e10,
                best: 1.01e10,
            }],
            published: vec![Published {
                profile: "dsa".to_owned(),
                load: "alone".to_owned(),
                direction: "local".to_owned(),
                size: 64,
                quantity: "us".to_owned(),
                published: 0.75,
                simulated: 0.76,
                tolerance: 0.1,
                holds: true,
                source: "somewhere".to_owned(),
            }],
        }
    }

    #[test]
    fn a_limit_that_ended_it_is_named() {
        let mut results = sample();
        assert_eq!(results.limited(), None);
        (results.campaign.limit, results.campaign.passes, results.campaign.repetitions) =
            (Some(28.0), 160, 480);
        results.seconds = 27.0;
        assert_eq!(results.limited(), None, "it was over before");
        results.seconds = 28.3;
        assert!(results.limited().unwrap().contains("The limit of 28.0 s ended it after 24 of 160 passes"));
        results.campaign.passes = 24;
        assert_eq!(results.limited(), None, "all of them");
        (results.campaign.passes, results.interrupted) = (160, true);
        assert_eq!(results.limited(), None, "that is said elsewhere");
    }

    #[test]
    fn what_is_not_cold_is_named() {
        let mut results = sample();
        results.machine.caches = vec!["L3 Unified 32768K".to_owned()];
        for (footprint, fits) in
            [(None, false), (Some(4096), true), (Some(16 << 20), true), (Some(64 << 20), false)]
        {
            results.campaign.footprint = footprint;
            assert_eq!(results.cached().is_some(), fits, "{footprint:?}");
        }
        results.campaign.footprint = Some(4096);
        assert!(results.cached().unwrap().contains("4 KiB of source"));
        assert!(results.cached().unwrap().ends_with("32 MiB. --footprint 64M does not."));
        results.cells.iter_mut().for_each(|m| m.cell.footprint = Footprint::Hot);
        assert_eq!(results.cached(), None, "hot it is to be");
    }

    #[test]
    fn percentiles_need_enough_samples() {
        let of = |samples| Latency { samples, mean: 0.0, p50: 0, p90: 0, p99: 0, p999: 7, max: 9 };
        assert_eq!((of(999).known(0.999, 7), of(1000).known(0.999, 7)), (None, Some(7)));
        assert_eq!((of(99).known(0.99, 5), of(100).known(0.99, 5)), (None, Some(5)));
        assert_eq!((of(9).known(0.9, 5), of(10).known(0.9, 5)), (None, Some(5)));
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let results = sample();
        results.save(&path).unwrap();
        assert_eq!(Results::load(&path).unwrap(), results);
    }

    #[test]
    fn every_field_is_documented() {
        let value: serde_json::Value = serde_json::from_str(&sample().to_json()).unwrap();
        let text = include_str!("../RESULTS.md");
        fn fields(value: &serde_json::Value, text: &str) {
            match value {
                serde_json::Value::Object(map) => map.iter().for_each(|(name, value)| {
                    assert!(text.contains(&format!("`{name}`")), "RESULTS.md says nothing of `{name}`");
                    fields(value, text);
                }),
                serde_json::Value::Array(all) => all.iter().for_each(|value| fields(value, text)),
                _ => {}
            }
        }
        fields(&value, text);
    }

    #[test]
    fn what_is_no_results_file_says_so() {
        let whole = sample().to_json();
        let says = |bytes: &[u8]| Results::parse("x.json", bytes).unwrap_err().to_string();
        for cut in [0, 1, 100, whole.len() / 2, whole.len() - 3] {
            assert!(says(&whole.as_bytes()[..cut]).contains("cut off"), "{cut}");
        }
        assert!(says(b"{}").contains("schema"));
        assert!(says(b"\xff\xfe").contains("x.json: no results"));
        assert!(says(whole.replace("\"version\": 1,", "\"version\": 7,").as_bytes()).contains("version 7"));
        assert!(says(whole.replace("\"ops\":", "\"sop\":").as_bytes()).contains("ops"));
        let error = Results::load(Path::new("/nowhere/x.json")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/x.json"), "{error}");
    }

    #[test]
    fn files_of_before_cells_were_counted_are_read() {
        let older = sample().to_json().replace("\"planned\": 16,", "");
        let older = Results::parse("x.json", older.as_bytes()).unwrap();
        assert_eq!((older.planned, older.not_begun()), (None, None));
    }

    #[test]
    fn cells_that_were_never_begun_are_counted() {
        let mut results = Results { planned: Some(33), interrupted: true, ..sample() };
        results.cells.truncate(15);
        let said = results.stopped().unwrap();
        assert!(said.contains("of 15 cells") && said.contains("18 of 33 cells were not begun"), "{said}");
        assert_eq!(sample().not_begun(), None);
    }

    #[test]
    fn text_from_a_file_is_clean() {
        let mut dirty = sample();
        let engine = "cpu\u{1b}[31m|\n\u{9b}\u{ffff}x";
        dirty.machine.cpu = engine.to_owned();
        dirty.engines[1].name = engine.to_owned();
        for m in dirty.cells.iter_mut().filter(|m| m.cell.engine == "cpu") {
            m.cell.engine = engine.to_owned();
            m.message = Some("a | b\nc".to_owned());
        }
        let read = Results::parse("x.json", dirty.to_json().as_bytes()).unwrap();
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{ffff}';
        let name = "cpu [31m\u{a6}   x";
        assert_eq!(read.machine.cpu, "cpu [31m|   x");
        assert!(
            read.engine(name).is_some() && read.cells.iter().filter(|m| m.cell.engine == name).count() == 4
        );
        assert!(read.cells.iter().any(|m| m.message.as_deref() == Some("a | b c")));
        assert!(!read.to_json().contains(bad));
        let other =
            dirty.to_json().replace("\"version\": 1,", "\"version\": 7,").replace("0.1.0", "\\u001b[31m");
        let error = Results::parse("x.json", other.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("version 7") && !error.contains(bad), "{error}");
    }

    #[test]
    fn what_disturbed_is_said_and_what_it_means_for_latencies() {
        let mut results = sample();
        assert_eq!(results.busy(), [""; 0]);
        let of_all = "latencies all the same: these are of all repetitions.";
        results.cells[4].waited = 0.5;
        let [waited] = &results.busy()[..] else { panic!("{:?}", results.busy()) };
        assert!(waited.contains("in 1 of 16 cells") && waited.contains("50 %") && !waited.contains(of_all));
        results.cells[5].moved = 0.3;
        let [_, moved] = &results.busy()[..] else { panic!("{:?}", results.busy()) };
        assert!(moved.contains("30 %") && moved.ends_with(of_all), "{moved}");
        results.cells[5].shared = 0.4;
        let [_, shared, moved] = &results.busy()[..] else { panic!("{:?}", results.busy()) };
        assert!(shared.contains("40 %") && !shared.contains(of_all) && moved.ends_with(of_all));
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_behind() {
        let error = sample().save(Path::new("/nowhere/x.json")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/x.json"), "{error}");
        let error = sample().save(Path::new("/dev/full")).unwrap_err().to_string();
        assert!(error.contains("free some space"), "{error}");
    }
}
