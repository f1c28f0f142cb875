//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dma::layers::replay::ReplayOptions;

use crate::files::{input, refused};
use crate::output::Shown;
use crate::peer::Address;
use crate::placement;
use crate::plan::{
    Campaign, Direction, Footprint, LONGEST, OpSpec, Peer, RATE_SLICE, SHORTEST, Values, Verify,
};
use crate::presets::Preset;
use crate::serve::ServeArguments;
use crate::{machine, units};

const EXAMPLES: &str = "\
Examples:
  dma-bench list                                   engines of this machine
  dma-bench doctor                                 obstacles to each backend, and their remedies
  dma-bench run --preset quick --report out.html   the overview in half a minute
  dma-bench run -e cpu -o 64..2M -q 1,32 -t 1      one engine by size and depth
  dma-bench compare before.json after.json         changes, and whether they are noise
  dma-bench replay copies.trace -e sim:profile=dsa
                                                   a recorded program on another engine

Exit codes: 0 success, 1 something failed, 2 the command line or a file that it reads is invalid,
3 wrong bytes or results, 4 `compare` found a slowdown or cannot rule one out, 130 interrupted.";

/// Benchmarks DMA engines side by side: which engine, at what size, and whether it is worth it.
#[derive(Debug, Parser)]
#[command(name = "dma-bench", version, about, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the engines of this machine, with limits and capabilities, and why others cannot be used.
    #[command(
        after_help = "Examples:\n  dma-bench list\n  dma-bench list --options    what engine names can contain\n  dma-bench list --format json | jq '.[] | select(.usable) | .name'"
    )]
    List {
        #[command(flatten)]
        printed: Printed,
        /// List the backends instead, with their devices and options.
        #[arg(long, conflicts_with_all = ["format", "json"])]
        options: bool,
    },
    /// Checks each backend, and names obstacles and their remedies.
    #[command(
        after_help = "Examples:\n  dma-bench doctor            all backends; succeeds if a hardware backend can be used\n  dma-bench doctor doca       one backend; succeeds if it can be used\n  dma-bench doctor --format markdown"
    )]
    Doctor {
        /// The backends to check, such as cpu, sim, doca, ioat. All, if none is named.
        backends: Vec<String>,
        #[command(flatten)]
        printed: Printed,
    },
    /// Measures engines, each beside memcpy.
    Run(Box<RunArguments>),
    /// Makes an HTML page, or SVG and PNG plots, of results.
    #[command(
        after_help = "Examples:\n  dma-bench report results.json -o out.html\n  dma-bench report results.json --plots slides/"
    )]
    Report {
        /// A results file; - for standard input.
        results: PathBuf,
        /// The page to write.
        #[arg(short = 'o', long = "output", value_name = "FILE")]
        output: Option<PathBuf>,
        /// The folder for an SVG and a PNG of each plot.
        #[arg(long, value_name = "FOLDER")]
        plots: Option<PathBuf>,
    },
    /// Prints results as a table, Markdown, CSV or JSON.
    #[command(after_help = "Examples:\n  dma-bench show results.json --format markdown >> NOTES.md")]
    Show {
        /// A results file; - for standard input.
        results: PathBuf,
        #[command(flatten)]
        printed: Printed,
        #[command(flatten)]
        shown: Shown,
    },
    /// Compares two results, and tells changes from noise.
    #[command(
        after_help = "Examples:\n  dma-bench compare before.json after.json\n  dma-bench compare before.json after.json --fail-if-slower 5%\n  dma-bench compare before.json after.json --format json | jq '.cells[] | select(.worse)'\n\n\
                      The chance of noise is about noise within the two runs: it is the Mann-Whitney test over the medians of\n\
                      each run's passes. Differences from run to run (position of memory, other tenants of the machine)\n\
                      are not in it. To see them, compare two runs of the same program first."
    )]
    Compare(CompareArguments),
    /// Runs a recorded trace on engines, and compares time, CPU time and doorbells.
    #[command(
        after_help = "Examples:\n  dma-bench replay copies.trace                    on the recorded engine\n  dma-bench replay copies.trace -e cpu -e sim:profile=bluefield3 -e sim:profile=dsa\n\n\
                      A program records a trace when it opens its engine as record+NAME:file=copies.trace. The replay makes the same\n\
                      calls: queues, operations, lengths and batches, with the program's own times between them, and waits for the\n\
                      same operations. CPU time is that of the copies: submitting, doorbells, the engine's threads, and waits where\n\
                      the CPU moves the bytes. A thread that waits for a device counts as free. Before anything is timed, the trace\n\
                      runs once to compare all bytes. Simulated devices run on the computer's clock."
    )]
    Replay(ReplayArguments),
    /// Compares simulated profiles with the published figures of their devices.
    #[command(
        after_help = "Examples:\n  dma-bench profiles\n  dma-bench profiles bluefield3 dsa --format markdown"
    )]
    Profiles {
        /// The profiles: bluefield2, bluefield3, ioat, dsa. All, if none is named.
        names: Vec<String>,
        #[command(flatten)]
        printed: Printed,
    },
    /// Exports memory for `run --peer` of another machine, until Ctrl-C.
    Serve(ServeArguments),
    /// Prints the JSON Schema of results files.
    #[command(after_help = "Example:\n  dma-bench schema > results.schema.json")]
    Schema,
    /// Holds memory for another dma-bench, which reaches it as a peer's.
    #[command(hide = true)]
    Peer {
        /// The engine whose memory it is.
        engine: String,
    },
    /// Prints a preset as a campaign file, to be changed and given to `run --campaign`.
    #[command(
        after_help = "Example:\n  dma-bench campaign knee > mine.toml; edit mine.toml; dma-bench run --campaign mine.toml"
    )]
    Campaign {
        /// The preset to print.
        #[arg(value_enum)]
        preset: Preset,
    },
    /// Prints a completion script for a shell.
    #[command(
        after_help = "Example:\n  dma-bench completions bash > ~/.local/share/bash-completion/completions/dma-bench"
    )]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Prints the manual page, or writes those of all subcommands into a folder.
    #[command(
        after_help = "Examples:\n  dma-bench man | man -l -\n  dma-bench man --output ~/.local/share/man/man1"
    )]
    Man {
        /// The folder for the pages of all subcommands.
        #[arg(short = 'o', long = "output", value_name = "FOLDER")]
        output: Option<PathBuf>,
    },
}

/// Output options that several subcommands share.
#[derive(Debug, Default, Args)]
pub(crate) struct Printed {
    /// Format of standard output.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Also write JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Output formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// An aligned table.
    #[default]
    Table,
    /// Markdown.
    Markdown,
    /// Comma-separated values.
    Csv,
    /// JSON. `RESULTS.md` describes that of results and comparisons.
    Json,
}

/// Options of `compare`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct CompareArguments {
    /// The results before.
    pub before: PathBuf,
    /// The results after.
    pub after: PathBuf,
    /// Exit with 4 if a cell is slower by more than this, unless that is noise. The same if so few
    /// repetitions do not decide that, and if a cell that was fine before fails, is wrong or is missing. For
    /// runs at a rate, the limit applies to latencies.
    // Hyphens are allowed so that `-5%` reaches the parser, which explains the error. clap would take it for
    // an option.
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = units::percent)]
    pub fail_if_slower: Option<f64>,
    /// Greatest chance that a difference is noise and yet counts as a change, over all cells together.
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, default_value = "1%", value_parser = units::chance)]
    pub noise: f64,
    /// Figure to compare. Runs at a rate are always compared by latency.
    #[arg(long, value_enum, default_value_t)]
    pub metric: Metric,
    /// Show all cells, not only those that changed. CSV and JSON always have all.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub printed: Printed,
    /// Write a self-contained HTML page to this file.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Options of `replay`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct ReplayArguments {
    /// The trace.
    pub trace: PathBuf,
    /// An engine by name, such as cpu, sim:profile=dsa or doca:03:00.0. May be repeated. The recorded engine
    /// if not given.
    #[arg(short = 'e', long = "engine", value_name = "NAME")]
    pub engines: Vec<String>,
    /// Timed runs on each engine. The one with the median time is shown.
    #[arg(short = 'r', long = "repetitions", value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// The most memory to use. Three quarters of the available memory if not given.
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    pub memory: Option<u64>,
    /// Time limit in seconds for an engine that completes nothing. Its replay then fails.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = units::seconds)]
    pub stall: f64,
    /// Print no progress.
    #[arg(long)]
    pub quiet: bool,
    #[command(flatten)]
    pub printed: Printed,
}

impl ReplayArguments {
    /// Returns the options of each replay.
    pub(crate) fn options(&self) -> Result<ReplayOptions, String> {
        let stall = Duration::try_from_secs_f64(self.stall).ok().filter(|stall| !stall.is_zero());
        let stall = stall
            .ok_or_else(|| format!("--stall {}: give seconds, more than 0", units::plain(self.stall)))?;
        Ok(ReplayOptions::new()
            .with_repetitions(self.repetitions)
            .with_memory(self.memory.unwrap_or_else(machine::available_memory))
            .with_stall(stall))
    }
}

/// Figures that `compare` compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Metric {
    /// Throughput divided by that of memcpy right before and after, so that load of the machine cancels out.
    /// Models are compared by throughput.
    #[default]
    Ratio,
    /// Throughput.
    Throughput,
}

const RUN_EXAMPLES: &str = "\
Examples:
  dma-bench run --preset quick --report out.html
  dma-bench run -e cpu -e sim:profile=bluefield3 -o 64..2M -q 1,32 -t 1
  dma-bench run -e cpu -o 4K -q 32 -b 1,4,16,32 -a hot --json out.json
  dma-bench run -e cpu -o 64K --rate 20k              latency under a fixed load
  dma-bench run -e cpu -o 64K -q 32 --series -t 60    throughput and latency over time
  dma-bench run -e cpu -o 1M --duration 3600          soak test, every byte compared
  dma-bench run -e cpu -d push,pull -o 64K --peer process   memory of another process
  dma-bench run -e rdma:mlx5_0 --peer 10.0.0.2:4712 --secret-file key   of another machine; see serve
  dma-bench run -e cpu -w fill,gather:64,scatter:64 -o 64K
  dma-bench run -e cpu -w compare,crc32c,copy-crc32c,copy-to-both -o 64K -a hot
  dma-bench run --campaign mine.toml --json mine.json

Figures are medians over the repetitions. The baseline is the C library's memcpy on one core; memset for
fills, memcmp for comparisons, the crate crc32c for CRC-32C, memcpy and then crc32c for a copy with CRC-32C,
and memcpy twice for a copy to two destinations. Operations that an engine lacks are not measured. Each
repetition of an engine lies between two of the baseline, and its ratio is to these two. Verdicts follow from
confidence intervals of these ratios. Repetitions in which threads waited for a CPU are left out where enough
others remain. Percentiles with too few samples are not shown. Models are simulated devices, in tables of their own.";

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
#[command(allow_negative_numbers = true)]
pub(crate) struct RunArguments {
    /// A built-in campaign. Other options change it.
    #[arg(long, value_enum, conflicts_with = "campaign")]
    pub preset: Option<Preset>,
    /// A campaign file, - for standard input. `dma-bench campaign` prints examples. Other options change it.
    #[arg(long, value_name = "FILE")]
    pub campaign: Option<PathBuf>,
    /// An engine by name, such as cpu, cpu:threads=2, sim:profile=dsa or doca:03:00.0. `real` stands for all
    /// usable ones that are no models. May be repeated.
    #[arg(short = 'e', long = "engine", value_name = "NAME")]
    pub engines: Vec<String>,
    /// Bytes of each operation: 4K, or 64,4K, or 64..2M (factor 2), or 64..2M*4 (factor 4).
    #[arg(short = 'o', long = "size", value_name = "SIZES")]
    pub sizes: Option<Values>,
    /// Operations in flight on each queue, such as 1,32 or 1..256.
    #[arg(short = 'q', long = "depth", value_name = "DEPTHS")]
    pub depths: Option<Values>,
    /// Operations for each doorbell, at most the depth. Half the depth if not given; 1 with --rate.
    #[arg(short = 'b', long = "batch", value_name = "COUNTS")]
    pub batches: Option<Values>,
    /// Queues, each driven by a thread of its own.
    #[arg(short = 'T', long = "queues", visible_alias = "threads", value_name = "COUNTS")]
    pub queues: Option<Values>,
    /// Operations: copy, fill, compare, crc32c, copy-crc32c, copy-to-both, sg, gather (many segments into
    /// one) and scatter (one into many). A number says how many segments: gather:64.
    #[arg(short = 'w', long = "op", value_delimiter = ',', value_name = "OPS")]
    pub ops: Vec<OpSpec>,
    /// Segments of sg, gather and scatter, if these have no number.
    #[arg(short = 's', long = "segments", value_name = "COUNTS")]
    pub segments: Option<Values>,
    /// Memory that operations use.
    #[arg(short = 'a', long = "access", value_enum, value_delimiter = ',', value_name = "KINDS")]
    pub footprints: Vec<Footprint>,
    /// Bytes of source that cold and random operations use, and as many of destination.
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    pub footprint: Option<u64>,
    /// Direction of the bytes.
    #[arg(short = 'd', long = "direction", value_enum, value_delimiter = ',', value_name = "WAYS")]
    pub directions: Vec<Direction>,
    /// Owner of the memory that push and pull reach: thread (another engine in this process), process
    /// (another process), or HOST:PORT of a `dma-bench serve`, which implies push and pull.
    #[arg(long, value_name = "WHOSE")]
    pub peer: Option<String>,
    /// The file with the secret of `dma-bench serve`.
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// CPUs that drive queues in turn, such as 0,2-3 or node0. memcpy runs on the first.
    #[arg(long, value_name = "CPUS")]
    pub cpus: Option<String>,
    /// NUMA node of all memory. ioat keeps to that of its device.
    #[arg(long = "numa", alias = "node", value_name = "NODE")]
    pub node: Option<u32>,
    /// Soak test: run each cell so many seconds without a break, compare every byte, keep a time series.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["time", "count"], value_parser = units::seconds)]
    pub duration: Option<f64>,
    /// Keep a time series of throughput and latency, with a point every so many seconds (0.1 without a
    /// number). Each cell runs without a break for --time, or 10 seconds.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "0.1", value_parser = units::seconds)]
    pub series: Option<f64>,
    /// Seconds of measuring for each cell, over all repetitions. With memcpy and the warm-up, a run takes
    /// about four times as long; --limit bounds it.
    #[arg(short = 't', long = "time", value_name = "SECONDS", conflicts_with = "count", value_parser = units::seconds)]
    pub time: Option<f64>,
    /// Operations of each repetition, instead of a time. Some more run before them, untimed. Repetitions of
    /// memcpy stay short.
    #[arg(short = 'n', long = "count", value_name = "OPS", value_parser = units::count)]
    pub count: Option<u64>,
    /// Repetitions of each cell.
    #[arg(short = 'r', long = "repetitions", value_name = "COUNT")]
    pub repetitions: Option<u32>,
    /// Passes over all cells, each with a share of the repetitions: 24 if not given, and at most as many as
    /// repetitions.
    #[arg(long, value_name = "COUNT", conflicts_with = "rate")]
    pub passes: Option<u32>,
    /// Time limit in seconds, after which no pass begins. There may be fewer repetitions then.
    #[arg(long, value_name = "SECONDS", conflicts_with = "rate", value_parser = units::seconds)]
    pub limit: Option<f64>,
    /// Warm-up of each cell in seconds, over all passes. It is in no figure.
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub warm_up: Option<f64>,
    /// Operations a second on each queue, such as 20k, each with a doorbell of its own. Latency counts from
    /// when an operation was due. All repetitions of a cell are one schedule, so that a delay also delays
    /// later operations. --time sets its length.
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub rate: Option<f64>,
    /// Verify every operation, within the measured time. Without this, some are verified, outside of the
    /// measured time.
    #[arg(short = 'y', long = "verify")]
    pub verify: bool,
    /// Time limit in seconds for an engine that completes nothing. Its cell then fails.
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub stall: Option<f64>,
    /// Compare the profiles of simulated engines with their published figures.
    #[arg(long)]
    pub published: bool,
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub printed: Printed,
    /// Write CSV to this file, with one line for each cell.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write a self-contained HTML page to this file.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write an SVG and a PNG of each plot to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub plots: Option<PathBuf>,
    /// Run with realtime priority (SCHED_FIFO): more accurate figures on a busy machine, whose other programs
    /// are slow meanwhile. Needs root, CAP_SYS_NICE, or `ulimit -r 10`.
    #[arg(long)]
    pub realtime: bool,
    /// Print no progress.
    #[arg(long)]
    pub quiet: bool,
}

impl RunArguments {
    fn plan_peer(&self, campaign: &mut Campaign) -> Result<(), String> {
        let is_address = |at: &str| {
            let port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
            at.rsplit_once(':').is_some_and(|(host, number)| !host.is_empty() && port(number))
        };
        match (self.peer.as_deref(), &self.secret_file) {
            (None, None) => {}
            (Some("thread"), None) => campaign.peer = Peer::Thread,
            (Some("process"), None) => campaign.peer = Peer::Process,
            (Some(at), secret) if is_address(at) => {
                let secret_file = secret.clone().ok_or_else(|| {
                    format!(
                        "--peer {at} needs --secret-file, the same as `dma-bench serve` there has; make one with: \
                         head -c 32 /dev/urandom > key; chmod 600 key"
                    )
                })?;
                campaign.peer = Peer::Host;
                campaign.address = Some(Address { at: at.to_owned(), secret_file });
                if self.directions.is_empty() && self.campaign.is_none() {
                    let both = vec![Direction::Push, Direction::Pull];
                    campaign.sweeps.iter_mut().for_each(|sweep| sweep.directions.clone_from(&both));
                }
            }
            (Some(other), None) => {
                return Err(format!("--peer {other}: there are thread, process and HOST:PORT"));
            }
            (_, Some(_)) => return Err("--secret-file is for --peer HOST:PORT; leave it out".to_owned()),
        }
        Ok(())
    }

    /// Returns the campaign that the options describe.
    pub(crate) fn plan(&self) -> Result<Campaign, String> {
        let mut campaign = match (&self.campaign, self.preset) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(input(path)).map_err(|e| refused(path, &e))?;
                Campaign::from_toml(&text).map_err(|e| format!("{}: {e}", path.display()))?
            }
            (None, Some(preset)) => preset.campaign()?,
            (None, None) => Campaign::default(),
        };
        if !self.engines.is_empty() {
            campaign.engines.clone_from(&self.engines);
            // The engines of the command line apply to all sweeps.
            campaign.sweeps.iter_mut().for_each(|s| s.engines.clear());
        }
        for sweep in &mut campaign.sweeps {
            set(&mut sweep.sizes, self.sizes.as_ref());
            set(&mut sweep.depths, self.depths.as_ref());
            set(&mut sweep.queues, self.queues.as_ref());
            set(&mut sweep.segments, self.segments.as_ref());
            if self.batches.is_some() {
                sweep.batches.clone_from(&self.batches);
            }
            if !self.ops.is_empty() {
                sweep.ops.clone_from(&self.ops);
            }
            if !self.footprints.is_empty() {
                sweep.footprints.clone_from(&self.footprints);
            }
            if !self.directions.is_empty() {
                sweep.directions.clone_from(&self.directions);
            }
        }
        set(&mut campaign.repetitions, self.repetitions.as_ref());
        set(&mut campaign.passes, self.passes.as_ref());
        campaign.limit = self.limit.or(campaign.limit);
        self.plan_peer(&mut campaign)?;
        campaign.duration = self.duration.or(campaign.duration);
        campaign.series = self.series.or(campaign.series);
        campaign.node = self.node.or(campaign.node);
        if let Some(cpus) = &self.cpus {
            campaign.cpus = placement::cpus(&dma::NumaNodes::of_system(), cpus)?;
        }
        set(&mut campaign.warm_up, self.warm_up.as_ref());
        set(&mut campaign.stall, self.stall.as_ref());
        // Numbers are checked first, so that errors name them and not what is computed from them.
        campaign.check_numbers()?;
        if let Some(time) = self.time {
            if time <= 0.0 {
                return Err(format!("--time {}: give seconds, more than 0", units::plain(time)));
            }
            // As many repetitions as fit, unless their number is given: short slices between those of memcpy
            // are more accurate than long ones.
            if campaign.is_continuous() {
                campaign.repetitions = 1;
            } else if self.repetitions.is_none() && campaign.rate.or(self.rate).is_none() {
                campaign.repetitions = (time / campaign.seconds).clamp(3.0, 500.0) as u32;
            }
            campaign.seconds = share(time, campaign.repetitions)?;
        }
        if campaign.is_continuous() && self.time.is_none() {
            (campaign.seconds, campaign.repetitions) = (campaign.duration.unwrap_or(CONTINUOUS), 1);
        }
        // A time on the command line replaces the count of the campaign file.
        campaign.count = self.count.or(campaign.count.filter(|_| self.time.is_none()));
        campaign.rate = self.rate.or(campaign.rate);
        if campaign.rate.is_some()
            && self.time.is_none()
            && self.campaign.is_none()
            && !campaign.is_continuous()
        {
            campaign.seconds = campaign.seconds.max(RATE_SLICE);
        }
        campaign.footprint = self.footprint.or(campaign.footprint);
        campaign.published |= self.published;
        if self.verify || campaign.duration.is_some() {
            campaign.verify = Verify::All;
        }
        campaign.check()?;
        Ok(campaign)
    }
}

/// Default duration of a cell that runs without a break, in seconds.
const CONTINUOUS: f64 = 10.0;

/// Returns the duration of each repetition, in seconds, if all together take `time` seconds.
fn share(time: f64, repetitions: u32) -> Result<f64, String> {
    let (given, times) = (units::plain(time), f64::from(repetitions.max(1)));
    let each = time / times;
    // Rounding may make the quotient a little less than the exact limit.
    if each < SHORTEST * (1.0 - 1e-9) {
        return Err(format!(
            "--time {given} is too short for {repetitions} repetitions of at least {SHORTEST} seconds each; give --time {} or \
             more, or fewer --repetitions",
            units::plain(times / SHORTEST.recip().round())
        ));
    }
    if each > LONGEST {
        return Err(format!(
            "--time {given} is too long for {repetitions} repetitions of at most {LONGEST} seconds each; give --time {} or less",
            units::plain(times * LONGEST)
        ));
    }
    Ok(each.max(SHORTEST))
}

fn set<T: Clone>(value: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        value.clone_from(given);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn plan(words: &[&str]) -> Result<Campaign, String> {
        let words = ["dma-bench", "run"].iter().chain(words);
        match Arguments::try_parse_from(words).map_err(|e| e.to_string())?.command {
            Command::Run(arguments) => arguments.plan(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn less_than_nothing_is_refused_by_what_it_is() {
        let compare = ["compare", "a.json", "b.json"];
        let cases = [(&compare[..], "--fail-if-slower"), (&compare, "--noise")];
        for (command, option) in cases {
            for less in ["-5", "-5%", "-0.5%", "-inf%"] {
                let words = ["dma-bench"].iter().chain(command).chain([&option, &less]);
                let error = Arguments::try_parse_from(words).unwrap_err();
                assert_eq!(error.exit_code(), 2);
                let (error, says) =
                    (error.to_string(), format!("`{less}` is less than 0; write a percentage of"));
                assert!(
                    error.contains(&says) && error.contains(option) && !error.contains("tip:"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn a_missing_percentage_does_not_take_the_next_argument() {
        let words = ["dma-bench", "compare", "a.json", "b.json", "--fail-if-slower", "--all"];
        let error = Arguments::try_parse_from(words).unwrap_err().to_string();
        assert!(error.contains("`--all` is no percentage; write 5%"), "{error}");
    }

    #[test]
    fn options_change_a_preset() {
        let campaign =
            plan(&["--preset", "quick", "-e", "cpu", "-o", "4K", "-q", "2,4", "-t", "1", "-y"]).unwrap();
        assert_eq!(campaign.engines, ["cpu"]);
        assert!(campaign.sweeps.iter().all(|s| s.sizes.0 == [4096] && s.depths.0 == [2, 4]));
        assert!((campaign.seconds * f64::from(campaign.repetitions) - 1.0).abs() < 1e-9);
        assert_eq!(campaign.verify, Verify::All);
    }

    #[test]
    fn the_least_values_are_taken() {
        for words in [
            &["-t", "0.0003"][..],
            &["-t", "1", "-r", "10000"],
            &["-t", "0.0001", "-r", "1"],
            &["--rate", "0.5"],
        ] {
            plan(words).unwrap();
        }
        assert_eq!(plan(&["--rate", "0.01"]).unwrap().rate, Some(0.01));
    }

    #[test]
    fn senseless_values_are_refused() {
        for (words, says) in [
            (&["-o", "4Q"][..], "4Q"),
            (&["-q", "0"], "contains 0"),
            (&["-t", "-1"], "--time -1: give seconds, more than 0"),
            (&["-t=-1"], "more than 0"),
            (&["-t", "nan"], "`nan` is no number of seconds"),
            (&["-t", "5s"], "`5s` is no number of seconds; write 5, 0.5 or 1e-3"),
            (&["--warm-up", "NaN"], "'--warm-up"),
            (&["-n", "1e5"], "`1e5` is no count; write 1000, 100k or 2M"),
            (&["-n", "1000000000000000"], "count is 1000000000000000; allowed are"),
            (&["-o", "-1"], "'--size"),
            (&["-r", "-1"], "'--repetitions"),
            (&["-s", "-1"], "'--segments"),
            (&["--rate", "-1"], "'--rate"),
            (&["-o", "99999999999999999999"], "too great"),
            (&["-q", ""], "nothing is given"),
            (&["-r", "1000000000", "-t", "0.02"], "repetitions is 1000000000; allowed are 1 to 10000"),
            (&["-w", "gather:0"], "segments are a number from 1 to 4096"),
            (&["-w", "copy:4"], "a copy has no segments"),
            (&["--cpus", "999999"], "no CPU 999999"),
            (&["--cpus", "x"], "write 0,2-3 or node0"),
            (&["--cpus", "node999"], "there is no NUMA node 999"),
            (&["--numa", "x"], "invalid value 'x' for '--numa <NODE>'"),
            (&["--duration", "5", "-t", "1"], "cannot be used with"),
            (&["-t", "1", "-n", "5"], "cannot be used with"),
            (&["-w", "move"], "move"),
            (&["--rate", "fast"], "fast"),
            (&["-t", "0.0001"], "--time 0.0001 is too short for 3 repetitions"),
            (&["-t", "0.0001"], "give --time 0.0003 or more"),
            (&["-t", "0.01", "-r", "10000"], "give --time 1 or more, or fewer --repetitions"),
            (&["-t", "1e300"], "--time 1e300 is too long"),
            (&["-t", "1e300"], "give --time 43200000 or less"),
            (&["-t=-1e300"], "--time -1e300:"),
            (&["--warm-up", "1e300"], "warm-up is 1e300;"),
            (&["--rate", "0.001"], "rate is 0.001; allowed are 0.01 to"),
            (&["-r", "0"], "repetitions is 0"),
            (&["--campaign", "/nowhere.toml"], "/nowhere.toml"),
            (&["--preset", "quick", "--campaign", "x"], "cannot be used with"),
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }
}
