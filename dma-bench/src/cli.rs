//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::files::{input, remedy};
use crate::output::Shown;
use crate::placement;
use crate::plan::{
    Campaign, Direction, Footprint, LONGEST, OpSpec, Peer, RATE_SLICE, SHORTEST, Values, Verify,
};
use crate::presets::Preset;
use crate::units;

const EXAMPLES: &str = "\
Examples:
  dma-bench list                                   engines of this machine
  dma-bench doctor                                 what stands between you and each backend
  dma-bench run --preset quick --report out.html   the picture in half a minute
  dma-bench run -e cpu -o 64..2M -q 1,32 -t 1      one engine by size and depth
  dma-bench compare before.json after.json         what changed, and whether it is noise

Exit codes: 0 fine, 1 something failed, 2 the command line makes no sense, 3 bytes did not arrive,
4 `compare` found a slowdown, 130 interrupted.";

/// Benchmarks DMA engines side by side: which engine, at what size, and is it worth it.
#[derive(Debug, Parser)]
#[command(name = "dma-bench", version, about, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Arguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists the engines of this machine, with limits and capabilities, and why others cannot be used.
    #[command(
        after_help = "Examples:\n  dma-bench list\n  dma-bench list --options    what can follow a name\n  dma-bench list --format json | jq '.[] | select(.usable) | .name'"
    )]
    List {
        /// Output options.
        #[command(flatten)]
        printed: Printed,
        /// List names instead, with the options that they take.
        #[arg(long, conflicts_with_all = ["format", "json"])]
        options: bool,
    },
    /// Checks everything that stands between you and each backend, and says how to mend it.
    #[command(
        after_help = "Examples:\n  dma-bench doctor            all backends; succeeds if a hardware backend can be used\n  dma-bench doctor doca       one backend; succeeds if it can be used\n  dma-bench doctor --format markdown"
    )]
    Doctor {
        /// The backends to check, such as cpu, sim, doca, ioat. All, if none is named.
        backends: Vec<String>,
        /// Output options.
        #[command(flatten)]
        printed: Printed,
    },
    /// Measures engines side by side, memcpy always among them.
    Run(Box<RunArguments>),
    /// Makes an HTML page, SVGs and PNGs of results.
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
        /// Output options.
        #[command(flatten)]
        printed: Printed,
        /// Extent of the output.
        #[command(flatten)]
        shown: Shown,
    },
    /// Says what changed between two results, with the chance that it is noise.
    #[command(
        after_help = "Examples:\n  dma-bench compare before.json after.json\n  dma-bench compare before.json after.json --fail-if-slower 5%\n  dma-bench compare before.json after.json --format json | jq '.cells[] | select(.worse)'\n\n\
                      The chance of noise is about noise within the two runs: it is the Mann-Whitney test over the medians of\n\
                      each run's passes. What differs from one run to the next (where memory lies, neighbours on the machine)\n\
                      is not in it. To judge that, compare two runs of the same program first: what they differ by is noise."
    )]
    Compare(CompareArguments),
    /// Compares the simulated profiles with the figures that were published for their devices.
    #[command(
        after_help = "Examples:\n  dma-bench profiles\n  dma-bench profiles bluefield3 dsa --format markdown"
    )]
    Profiles {
        /// The profiles: bluefield2, bluefield3, ioat, dsa. All, if none is named.
        names: Vec<String>,
        /// Output options.
        #[command(flatten)]
        printed: Printed,
    },
    /// Prints the JSON Schema of results files.
    #[command(after_help = "Example:\n  dma-bench schema > results.schema.json")]
    Schema,
    /// Holds memory for another dma-bench, which reaches it as a peer's.
    #[command(hide = true)]
    Peer {
        /// The engine whose memory it is.
        engine: String,
    },
    /// Prints a campaign, to be changed and given to `run --campaign`.
    #[command(
        after_help = "Example:\n  dma-bench campaign knee > mine.toml; edit mine.toml; dma-bench run --campaign mine.toml"
    )]
    Campaign {
        /// The preset to print.
        #[arg(value_enum)]
        preset: Preset,
    },
    /// Prints a completion script.
    #[command(
        after_help = "Example:\n  dma-bench completions bash > ~/.local/share/bash-completion/completions/dma-bench"
    )]
    Completions {
        /// For which shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Prints the manual page, or writes that of every subcommand into a folder.
    #[command(
        after_help = "Examples:\n  dma-bench man | man -l -\n  dma-bench man --output ~/.local/share/man/man1"
    )]
    Man {
        /// The folder for one page for each subcommand.
        #[arg(short = 'o', long = "output", value_name = "FOLDER")]
        output: Option<PathBuf>,
    },
}

/// Output options, alike in all subcommands.
#[derive(Debug, Default, Args)]
pub struct Printed {
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
    /// Comma-separated values, one line for each cell.
    Csv,
    /// JSON, of the schema in `RESULTS.md`.
    Json,
}

/// Options of `compare`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct CompareArguments {
    /// The results before.
    pub before: PathBuf,
    /// The results after.
    pub after: PathBuf,
    /// Exit with 4 if a cell is slower by more than this and it is no noise, or cannot be told from noise
    /// with so few repetitions; and if a cell fails, delivers wrong bytes or is missing that did not before.
    /// Of runs with a rate, if latencies are longer by more.
    // With its sign, `-5%` is no number to clap, which would take it for an option: what is wrong with it is
    // said by its parser.
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = units::percent)]
    pub fail_if_slower: Option<f64>,
    /// Limit for noise: the chance, at most, that a difference as large comes from noise
    /// within the runs, all cells taken together.
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, default_value = "1%", value_parser = units::chance)]
    pub noise: f64,
    /// Figure to compare; of runs with a rate it is the latency, whatever is given here.
    #[arg(long, value_enum, default_value_t)]
    pub metric: Metric,
    /// All cells, not only those that changed; in CSV and JSON they always are.
    #[arg(long)]
    pub all: bool,
    /// Output options.
    #[command(flatten)]
    pub printed: Printed,
    /// Write a self-contained HTML page to this file.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Figures that `compare` compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// Throughput as a multiple of memcpy's in the same repetition: what the machine did else cancels out.
    /// Models: throughput.
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
  dma-bench run -e cpu -w fill,gather:64,scatter:64 -o 64K
  dma-bench run -e cpu -w compare,crc32c,copy-crc32c,copy-to-both -o 64K -a hot
  dma-bench run --campaign mine.toml --json mine.json

Figures are medians over the repetitions. memcpy is the C library's, on one core. In its place stand memset
for fills, memcmp for comparisons, the crate crc32c for CRC-32C, after memcpy for a copy with it, and memcpy
twice for a copy to two destinations. An engine that has no such operation of its own is not measured. Each
repetition of an engine lies between two of memcpy, and its ratio is to these. Verdicts are by confidence
intervals of these ratios. Repetitions in which threads waited for a CPU are repeated as time allows.
Percentiles beyond which nothing was timed are not shown. Models are simulations, in tables of their own.";

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
#[command(allow_negative_numbers = true)]
pub struct RunArguments {
    /// A campaign that is at hand; other options change it.
    #[arg(long, value_enum, conflicts_with = "campaign")]
    pub preset: Option<Preset>,
    /// A campaign of your own, as a TOML file, - for standard input; see `dma-bench campaign`.
    #[arg(long, value_name = "FILE")]
    pub campaign: Option<PathBuf>,
    /// An engine by name, such as cpu, cpu:threads=2, sim:profile=dsa, doca:03:00.0; `real` for all usable
    /// ones. May be given again.
    #[arg(short = 'e', long = "engine", value_name = "NAME")]
    pub engines: Vec<String>,
    /// Bytes of each operation: 4K, 64,4K, 64..2M, 64..2M*4.
    #[arg(short = 'o', long = "size", value_name = "SIZES")]
    pub sizes: Option<Values>,
    /// Operations in flight on each queue: 1,32 or 1..256.
    #[arg(short = 'q', long = "depth", value_name = "DEPTHS")]
    pub depths: Option<Values>,
    /// Operations for each doorbell; half the depth unless given, at most the depth, and 1 with --rate.
    #[arg(short = 'b', long = "batch", value_name = "COUNTS")]
    pub batches: Option<Values>,
    /// Queues, each driven by a thread of its own.
    #[arg(short = 'T', long = "queues", visible_alias = "threads", value_name = "COUNTS")]
    pub queues: Option<Values>,
    /// Operations: copy, fill, compare, crc32c, copy-crc32c, copy-to-both, sg, gather, scatter; with a number
    /// of segments, gather:64 (many into one), scatter:64.
    #[arg(short = 'w', long = "op", value_delimiter = ',', value_name = "OPS")]
    pub ops: Vec<OpSpec>,
    /// Segments of operations that have several and do not say how many.
    #[arg(short = 's', long = "segments", value_name = "COUNTS")]
    pub segments: Option<Values>,
    /// Which memory is touched: hot, cold, random.
    #[arg(short = 'a', long = "access", value_enum, value_delimiter = ',', value_name = "KINDS")]
    pub footprints: Vec<Footprint>,
    /// Bytes of source, and as many of destination, that cold and random operations go through.
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    pub footprint: Option<u64>,
    /// Which way: local, push (to a peer), pull (from a peer).
    #[arg(short = 'd', long = "direction", value_enum, value_delimiter = ',', value_name = "WAYS")]
    pub directions: Vec<Direction>,
    /// Whose memory push and pull reach: thread (another engine in this process) or process (another
    /// process).
    #[arg(long, value_enum, value_name = "WHOSE")]
    pub peer: Option<Peer>,
    /// CPUs that drive the queues in turn, such as 0,2-3 or node0; memcpy runs on the first.
    #[arg(long, value_name = "CPUS")]
    pub cpus: Option<String>,
    /// NUMA node that memory is allocated on.
    #[arg(long, value_name = "NUMBER")]
    pub node: Option<u32>,
    /// Run each cell so many seconds without a break, compare every byte, and keep a time series.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["time", "count"], value_parser = units::seconds)]
    pub duration: Option<f64>,
    /// Keep a time series of throughput and latency, with a point every so many seconds (0.1 if none are
    /// given): each cell runs without a break for --time, or 10 seconds.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "0.1", value_parser = units::seconds)]
    pub series: Option<f64>,
    /// Seconds for which each cell of an engine is measured, over all repetitions. With memcpy beside it, the
    /// warm-up and what is made up for, a run takes some four times as long; see --limit.
    #[arg(short = 't', long = "time", value_name = "SECONDS", conflicts_with = "count", value_parser = units::seconds)]
    pub time: Option<f64>,
    /// Operations of each repetition, instead of a time; some go before, as at a time. memcpy beside them
    /// keeps its short slices.
    #[arg(short = 'n', long = "count", value_name = "OPS", value_parser = units::count)]
    pub count: Option<u64>,
    /// The number of times that each cell is measured.
    #[arg(short = 'r', long = "repetitions", value_name = "COUNT")]
    pub repetitions: Option<u32>,
    /// The number of times that it is gone through all cells, each time for a share of the repetitions: 24
    /// times unless given, and at most as often as these.
    #[arg(long, value_name = "COUNT", conflicts_with = "rate")]
    pub passes: Option<u32>,
    /// Begin no pass over the cells after so many seconds: fewer repetitions then, and a run that takes no
    /// longer.
    #[arg(long, value_name = "SECONDS", conflicts_with = "rate", value_parser = units::seconds)]
    pub limit: Option<f64>,
    /// Seconds that each cell warms up, over all passes. It is in no figure.
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub warm_up: Option<f64>,
    /// Operations a second on each queue, such as 20k, each with a doorbell of its own. Latency then counts
    /// from when an operation was due, and all repetitions of a cell are one schedule, so that one that is
    /// late makes those behind it late, as it would for those who wait. -t says for how long.
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub rate: Option<f64>,
    /// Verify the bytes of every operation, within the measured time. Some are always verified, outside of
    /// it.
    #[arg(short = 'y', long = "verify")]
    pub verify: bool,
    /// Seconds that an engine may complete nothing before its cell is given up.
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub stall: Option<f64>,
    /// Compare the profiles of simulated engines with their published figures.
    #[arg(long)]
    pub published: bool,
    /// Extent of the output.
    #[command(flatten)]
    pub shown: Shown,
    /// Output options.
    #[command(flatten)]
    pub printed: Printed,
    /// Write one line for each cell to this file.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the tables to this file.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write a self-contained HTML page to this file.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write an SVG and a PNG of each plot to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub plots: Option<PathBuf>,
    /// Go before everything else on this machine (SCHED_FIFO): for sure figures on one that others use too,
    /// and slow for them meanwhile. Takes root, CAP_SYS_NICE, or `ulimit -r 10`.
    #[arg(long)]
    pub realtime: bool,
    /// Neither progress nor lines about it.
    #[arg(long)]
    pub quiet: bool,
}

impl RunArguments {
    /// The campaign that the options come to.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or options that make no sense.
    pub fn plan(&self) -> Result<Campaign, String> {
        let mut campaign = match (&self.campaign, self.preset) {
            (Some(path), _) => {
                let name = path.display();
                let text =
                    std::fs::read_to_string(input(path)).map_err(|e| format!("{name}: {e}{}", remedy(&e)))?;
                Campaign::from_toml(&text).map_err(|e| format!("{name}: {e}"))?
            }
            (None, Some(preset)) => preset.campaign()?,
            (None, None) => Campaign::default(),
        };
        if !self.engines.is_empty() {
            campaign.engines.clone_from(&self.engines);
            // Sweeps no longer differ by engine.
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
        set(&mut campaign.peer, self.peer.as_ref());
        campaign.duration = self.duration.or(campaign.duration);
        campaign.series = self.series.or(campaign.series);
        campaign.node = self.node.or(campaign.node);
        if let Some(cpus) = &self.cpus {
            campaign.cpus = placement::cpus(cpus)?;
        }
        set(&mut campaign.warm_up, self.warm_up.as_ref());
        set(&mut campaign.stall, self.stall.as_ref());
        // Said of the numbers themselves, before anything is said of what follows from them.
        campaign.check_numbers()?;
        if let Some(time) = self.time {
            if time <= 0.0 {
                return Err(format!("--time {}: it takes seconds, more than 0", units::plain(time)));
            }
            // Unless told how often: as often as goes, since short slices between those of memcpy are surer
            // than long ones.
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
        // On the command line the two exclude each other.
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

/// Duration of a cell that runs without a break if no time is given, in seconds.
const CONTINUOUS: f64 = 10.0;

/// Returns the duration of each of so many repetitions, if all take `time`.
fn share(time: f64, repetitions: u32) -> Result<f64, String> {
    let (given, times) = (units::plain(time), f64::from(repetitions.max(1)));
    let each = time / times;
    // The quotient of what is exactly enough can be a little less.
    if each < SHORTEST * (1.0 - 1e-9) {
        return Err(format!(
            "--time {given} is too short for {repetitions} repetitions, of which each takes at least {SHORTEST} seconds; give --time {} or \
             more, or fewer --repetitions",
            units::plain(times / SHORTEST.recip().round())
        ));
    }
    if each > LONGEST {
        return Err(format!(
            "--time {given} is too long for {repetitions} repetitions, of which each takes at most {LONGEST} seconds; give --time {} or less",
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
            (&["-t", "-1"], "--time -1: it takes seconds, more than 0"),
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
