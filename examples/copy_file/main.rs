//! Copies a file, its bytes moved by a DMA engine: `cargo run --release --example copy_file -- SRC DST`.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | the command line |
//! | `files.rs` | SRC and DST: what can be wrong with them, and DST under its name only when it is whole |
//! | `pieces.rs` | SRC cut into chunks and holes |
//! | `pipeline.rs` | read, move by DMA, write: all three at once |
//! | `digest.rs` | `--verify` |

#[path = "../common/command.rs"]
mod command;
mod digest;
mod files;
mod options;
mod pieces;
mod pipeline;

use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Parser;
use indicatif::ProgressBar;

use crate::command::progress_bar;
use crate::files::{Source, Target};
use crate::options::Options;

/// Why a copy did not come about. Nothing is left behind then, and an existing DST is as it was.
#[derive(Debug)]
pub(crate) enum Failure {
    /// By a signal.
    Interrupted,
    /// One line that names the input and says what to do.
    Message(String),
}

impl From<dma::Error> for Failure {
    fn from(e: dma::Error) -> Self {
        Self::Message(e.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted; nothing was left behind"),
            Self::Message(message) => f.write_str(message),
        }
    }
}

/// Makes a [`Failure`] of a formatted message.
macro_rules! failure {
    ($($message:tt)+) => { $crate::Failure::Message(format!($($message)+)) };
}
pub(crate) use failure;

/// Set by SIGINT, SIGTERM and SIGHUP.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whoever works for long asks this now and then.
pub(crate) fn check_interrupt() -> Result<(), Failure> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(summary) => {
            if options.quiet < 2 {
                // The copy is made, whether or not somebody reads this.
                let _ = writeln!(std::io::stdout(), "{summary}");
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("copy_file: {failure}");
            // 128 + SIGINT, as shells say it.
            if matches!(failure, Failure::Interrupted) { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

/// Copies, and returns the summary.
fn run(options: &Options) -> Result<String, Failure> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))
        .map_err(|e| failure!("cannot handle signals: {e}"))?;
    let started = Instant::now();
    let engine = dma::open(&options.engine)?;
    let source = Source::open(&options.src)?;
    let target = Target::create(&options.dst, &source)?;
    let bar = progress_bar(source.len(), "copying", options.quiet > 0);
    let copied = copy(options, &*engine, &source, target, &bar, started);
    bar.finish_and_clear();
    copied
}

fn copy(
    options: &Options,
    engine: &dyn dma::DmaEngine,
    source: &Source,
    target: Target,
    bar: &ProgressBar,
    started: Instant,
) -> Result<String, Failure> {
    let copied = pipeline::copy(engine, source, &target, options, bar)?;
    if options.sync {
        target.sync()?;
    }
    let seconds = started.elapsed().as_secs_f64();
    if let Some(read) = copied.digest {
        bar.reset();
        bar.set_message("verifying");
        digest::verify(&target, source, read, options.chunk, bar)?;
    }
    source.check_unchanged()?;
    check_interrupt()?;
    target.publish()?;

    let info = engine.info();
    let mut summary = format!(
        "copied {} in {seconds:.3} s, {:.3} GB/s, engine {}",
        count(source.len(), "byte", "bytes"),
        copied.data as f64 / seconds / 1e9,
        info.backend,
    );
    if info.model.is_some() {
        summary += " (a model: its speed is not the device's)";
    }
    if copied.data < source.len() {
        summary += &format!(", {} of holes kept", count(source.len() - copied.data, "byte", "bytes"));
    }
    if copied.retries > 0 {
        summary += &format!(", {} retried", count(copied.retries, "copy", "copies"));
    }
    if let Some(digest) = copied.digest {
        let verifying = started.elapsed().as_secs_f64() - seconds;
        summary += &format!(", verified in {verifying:.3} s, blake3 {digest}");
    }
    Ok(summary)
}

fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
