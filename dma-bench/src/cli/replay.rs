//! The subcommand `replay`: replays a recorded trace on engines, and compares the replays with the recorded
//! run.

use dma::layers::record::{QueueTrace, Trace};
use dma::layers::replay::{CopyTimes, Mismatch, ReplayOptions, Replayed, replay};
use dma::process::count;
use dma::{EngineName, Error, ErrorKind, Result};
use serde::Serialize;

use crate::output::Format;
use crate::output::{Entry, Grid, Look, Style, fields};
use crate::units;

const HEADER: [&str; 9] = [
    "engine",
    "time",
    "of recorded",
    "CPU time",
    "of recorded",
    "waits",
    "doorbells",
    "of recorded",
    "failed",
];

/// The recorded run, and its replays on engines.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ReplayReport {
    recorded: ReplayRow,
    /// CPU time of the recorded program in seconds, for copies and for all other work. `None` in a partial
    /// trace.
    program_cpu_seconds: Option<f64>,
    queues: usize,
    bytes: u64,
    engines: Vec<ReplayRow>,
    /// True if a byte or a result was wrong.
    #[serde(skip)]
    pub(crate) wrong: bool,
    /// True if an engine's name is invalid.
    #[serde(skip)]
    pub(crate) refused: bool,
}

#[derive(Debug, Default, Serialize)]
struct ReplayRow {
    engine: String,
    /// Source of the model, if the engine is simulated.
    model: Option<String>,
    /// Reason for missing figures.
    error: Option<String>,
    #[serde(flatten)]
    figures: Option<ReplayFigures>,
}

#[derive(Debug, Default, Serialize)]
struct ReplayFigures {
    seconds: f64,
    cpu_seconds: f64,
    /// Time that threads waited for the engine.
    wait_seconds: f64,
    doorbells: u64,
    /// Number of descriptors. A recorded descriptor may have been split into several.
    descriptors: u64,
    failed: u64,
    /// Number of descriptors whose bytes were compared.
    verified: u64,
}

impl ReplayFigures {
    fn of(replayed: &Replayed) -> Self {
        Self {
            seconds: replayed.time.as_secs_f64(),
            cpu_seconds: replayed.cpu.as_secs_f64(),
            wait_seconds: replayed.wait.as_secs_f64(),
            doorbells: replayed.doorbells,
            descriptors: replayed.descriptors,
            failed: replayed.failed,
            verified: replayed.verified,
        }
    }
}

/// Opens an engine. A simulated device uses the computer's clock, because the recorded pauses are in real
/// time.
fn open(name: &EngineName) -> Result<std::sync::Arc<dyn dma::DmaEngine>> {
    let simulated = name.backend().rsplit('+').next() == Some("sim");
    match name.option("clock") {
        None if simulated => dma::open_name(&name.clone().with_option("clock", "real")?),
        Some(clock) if simulated && clock != "real" => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a replay needs the computer's clock, not clock={clock}"),
        )
        .with_hint("leave clock out")),
        _ => dma::open_name(name),
    }
}

fn wrong(Mismatch { queue, operation, offset, .. }: Mismatch) -> String {
    let place = offset.map_or("its result".to_owned(), |offset| format!("byte {offset}"));
    format!("operation {operation} of queue {queue} is wrong at {place}: do not trust this engine")
}

/// Replays a trace on the named engines, or on the recorded engine if `engines` is empty. `before` is called
/// with each name.
pub(crate) fn run(
    trace: &Trace,
    names: &[String],
    options: &ReplayOptions,
    mut before: impl FnMut(&str),
) -> ReplayReport {
    let (recorded, times) = (trace.recorded(), CopyTimes::of(trace));
    let sum = |of: fn(&QueueTrace) -> u64| trace.queues().iter().map(of).sum::<u64>();
    let figures = ReplayFigures {
        seconds: recorded.time.as_secs_f64(),
        cpu_seconds: times.cpu.as_secs_f64(),
        wait_seconds: times.wait.as_secs_f64(),
        doorbells: sum(|queue| queue.doorbells),
        descriptors: sum(|queue| queue.operations),
        ..Default::default()
    };
    let mut report = ReplayReport {
        recorded: ReplayRow { engine: recorded.engine.clone(), figures: Some(figures), ..Default::default() },
        program_cpu_seconds: (!recorded.partial).then_some(recorded.cpu.as_secs_f64()),
        queues: trace.queues().len(),
        bytes: sum(|queue| queue.bytes),
        ..Default::default()
    };
    // The file may come from an untrusted source.
    let own = if names.is_empty() { vec![dma::parse_untrusted(&recorded.engine)] } else { Vec::new() };
    for name in names.iter().map(|name| name.parse()).chain(own) {
        let mut row = ReplayRow::default();
        let one = || -> Result<()> {
            let name: EngineName = name?;
            row.engine = name.to_string();
            before(&row.engine);
            let engine = open(&name)?;
            row.model.clone_from(&engine.info().model);
            let replayed = replay(trace, &engine, options)?;
            if let Some(mismatch) = replayed.mismatch {
                report.wrong = true;
                row.error = Some(wrong(mismatch));
            } else {
                row.figures = Some(ReplayFigures::of(&replayed));
            }
            Ok(())
        };
        if let Err(e) = one() {
            report.refused |= e.kind() == ErrorKind::InvalidArgument;
            row.error = Some(e.to_string());
        }
        report.engines.push(row);
    }
    report
}

impl ReplayReport {
    /// Returns the report in a format other than JSON.
    pub(crate) fn shown(&self, format: Format) -> String {
        if format == Format::Csv {
            return self.csv();
        }
        let style = Style::of(format);
        let rows = self.engines.iter().filter_map(|row| self.row(row, false));
        let grid = Grid::with(&HEADER, self.row(&self.recorded, true).into_iter().chain(rows));
        let program = match self.program_cpu_seconds {
            Some(seconds) => format!("the program took {} of CPU time in all", time(seconds)),
            None => "the program ended before the trace was complete".to_owned(),
        };
        let mut text = format!(
            "{} operations, {}, {} queues; {program}\n{}",
            self.recorded.figures.as_ref().map_or(0, |figures| figures.descriptors),
            units::bytes(self.bytes),
            self.queues,
            grid.print(style, Look::Wrapped),
        );
        for row in &self.engines {
            if let Some(model) = &row.model {
                text += &style.wrap(&style.text(&format!(
                    "{} is a model; its time outside of the calls is the simulated device's: {model}",
                    row.engine
                )));
            }
        }
        text
    }

    /// Returns the errors of engines, one line each.
    pub(crate) fn errors(&self) -> Vec<String> {
        let failed = |figures: &ReplayFigures| {
            (figures.failed > 0).then(|| {
                format!(
                    "{} of {} failed",
                    figures.failed,
                    count(figures.descriptors, "operation", "operations")
                )
            })
        };
        let error = |row: &ReplayRow| row.error.clone().or_else(|| failed(row.figures.as_ref()?));
        self.engines.iter().filter_map(|row| Some(format!("{}: {}", row.engine, error(row)?))).collect()
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    fn csv(&self) -> String {
        let line = |row: &ReplayRow, recorded: bool| {
            let figures = row.figures.as_ref();
            let number = |of: fn(&ReplayFigures) -> String| figures.map(of).unwrap_or_default();
            vec![
                ("engine", row.engine.clone()),
                ("recorded", recorded.to_string()),
                ("seconds", number(|f| f.seconds.to_string())),
                ("cpu_seconds", number(|f| f.cpu_seconds.to_string())),
                ("wait_seconds", number(|f| f.wait_seconds.to_string())),
                ("doorbells", number(|f| f.doorbells.to_string())),
                ("descriptors", number(|f| f.descriptors.to_string())),
                ("failed", number(|f| f.failed.to_string())),
                ("error", row.error.clone().unwrap_or_default()),
            ]
        };
        let engines = self.engines.iter().map(|row| line(row, false));
        fields(&std::iter::once(line(&self.recorded, true)).chain(engines).collect::<Vec<_>>())
    }

    /// Returns the row of a table; `None` without figures.
    fn row(&self, row: &ReplayRow, recorded: bool) -> Option<Vec<Entry>> {
        let figures = row.figures.as_ref()?;
        let of = |value: f64, of: fn(&ReplayFigures) -> f64| match self.recorded.figures.as_ref().map(of) {
            Some(before) if !recorded && before > 0.0 => format!("{:.2}", value / before),
            _ => String::new(),
        };
        let numbers = [
            time(figures.seconds),
            of(figures.seconds, |f| f.seconds),
            time(figures.cpu_seconds),
            of(figures.cpu_seconds, |f| f.cpu_seconds),
            time(figures.wait_seconds),
            figures.doorbells.to_string(),
            of(figures.doorbells as f64, |f| f.doorbells as f64),
            if recorded { String::new() } else { figures.failed.to_string() },
        ];
        let name = if recorded { format!("recorded: {}", row.engine) } else { row.engine.clone() };
        Some(std::iter::once(Entry::text(name)).chain(numbers.map(|n| Entry::number(n, None))).collect())
    }
}

fn time(seconds: f64) -> String {
    units::nanos(seconds * 1e9)
}
