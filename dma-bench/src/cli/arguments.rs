//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use dma::layers::replay::ReplayOptions;

use super::printed::Printed;
use super::run_arguments::RunArguments;
use crate::compare::Metric;
use crate::output::Shown;
use crate::peer::serve::ServeArguments;
use crate::plan::Preset;
use crate::results::machine;
use crate::units;

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

/// Benchmarks DMA engines side by side: which engine is faster than memcpy, and at which sizes.
#[derive(Debug, Parser)]
#[command(name = "dma-bench", version, about, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the engines of this machine, with limits and capabilities, and the reasons why other engines
    /// cannot be used.
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
    /// Checks each backend, and names what prevents its use, with remedies.
    #[command(
        after_help = "Examples:\n  dma-bench doctor            all backends; always exit code 0\n  dma-bench doctor doca       one backend; exit code 1 if it cannot be used\n  dma-bench doctor --format markdown"
    )]
    Doctor {
        /// The backends to check, such as cpu, sim, doca, ioat. Without a name, all backends are checked.
        backends: Vec<String>,
        #[command(flatten)]
        printed: Printed,
    },
    /// Measures engines, each beside memcpy.
    Run(Box<RunArguments>),
    /// Creates an HTML page, or SVG and PNG plots, from results.
    #[command(
        after_help = "Examples:\n  dma-bench report results.json -o out.html\n  dma-bench report results.json --plots slides/\n  dma-bench report host1.json host2.json host3.json -o fleet.html"
    )]
    Report {
        /// A results file, or the name of saved results; - for standard input. With several files, of one
        /// campaign on several machines, the page shows the summaries of all machines side by side.
        #[arg(required = true)]
        results: Vec<PathBuf>,
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
        /// A results file, or the name of saved results; - for standard input.
        results: PathBuf,
        #[command(flatten)]
        printed: Printed,
        #[command(flatten)]
        shown: Shown,
    },
    /// Compares two results, and distinguishes changes from noise.
    #[command(
        after_help = "Examples:\n  dma-bench compare before.json after.json\n  dma-bench run --campaign mine.toml --save main; edit; dma-bench run --campaign mine.toml --save new\n  dma-bench compare main new --fail-if-slower 5%\n  dma-bench compare before.json after.json --format json | jq '.cells[] | select(.worse)'\n\n\
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
        /// The profiles: bluefield2, bluefield3, ioat, dsa. Without a name, all profiles are compared.
        names: Vec<String>,
        #[command(flatten)]
        printed: Printed,
    },
    /// Exports memory to `run --peer` on another machine, until Ctrl-C.
    Serve(ServeArguments),
    /// Prints the JSON Schema of results files.
    #[command(after_help = "Example:\n  dma-bench schema > results.schema.json")]
    Schema,
    /// Exports memory to another dma-bench, which copies to and from it.
    #[command(hide = true)]
    Peer {
        /// The engine that allocates the memory.
        engine: String,
        /// The NUMA node of the memory.
        #[arg(long = "numa")]
        node: Option<u32>,
    },
    /// Prints a preset as a campaign file, which you can edit and pass to `run --campaign`.
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
    /// Prints the manual page, or writes the pages of all subcommands into a folder.
    #[command(
        after_help = "Examples:\n  dma-bench man | man -l -\n  dma-bench man --output ~/.local/share/man/man1"
    )]
    Man {
        /// The folder for the pages of all subcommands.
        #[arg(short = 'o', long = "output", value_name = "FOLDER")]
        output: Option<PathBuf>,
    },
}

/// Options of `compare`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct CompareArguments {
    /// The earlier results: a file, or the name of saved results.
    pub before: PathBuf,
    /// The later results: a file, or the name of saved results.
    pub after: PathBuf,
    /// Exit with 4 if a cell is slower by more than this, unless the difference is noise. Also exit with 4
    /// if there are too few samples to tell, or if a cell that was fine before fails, is wrong or is
    /// missing. For runs at a rate, the limit applies to latencies.
    // Hyphens are allowed so that `-5%` reaches our parser, which explains the error. Otherwise clap would
    // parse `-5%` as an option.
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = units::percent)]
    pub fail_if_slower: Option<f64>,
    /// Maximum chance of reporting noise as a change, over all cells together.
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, default_value = "1%", value_parser = units::chance)]
    pub noise: f64,
    /// The figure to compare. Runs at a rate are always compared by latency.
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
    /// An engine by name, such as cpu, sim:profile=dsa or doca:03:00.0. May be repeated. Default: the
    /// recorded engine.
    #[arg(short = 'e', long = "engine", value_name = "NAME")]
    pub engines: Vec<String>,
    /// Timed runs on each engine. The run with the median time is shown.
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Maximum memory to use. Default: three quarters of the available memory.
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
            .with_repetitions(self.runs)
            .with_memory(self.memory.unwrap_or_else(machine::available_memory))
            .with_stall(stall))
    }
}
