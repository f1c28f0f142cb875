//! Copies a file between host and DPU, its bytes moved by DMA: one command on each side,
//! `dma_copy --role dpu -f COPY` and `dma_copy --role host -f FILE`.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | the command line and the JSON file |
//! | `protocol.rs` | the messages, and their encoding |
//! | `channel/` | what carries them: a Unix socket, TCP, DOCA's comm channel |
//! | `talk.rs` | messages said and heard, with deadlines; signs of life |
//! | `agree.rs` | who sends what to whom, and from where on |
//! | `host.rs` | the host's role: exports memory, reads or writes its file |
//! | `dpu.rs` | the DPU's role: imports the memory, moves bytes by DMA, reads or writes its file |
//! | `mover.rs` | DMA copies in flight, in the order of the file |
//! | `files.rs` | the file that is sent, and the one that appears when it is whole |
//! | `digest.rs` | checksums |

mod agree;
mod channel;
#[path = "../common/command.rs"]
mod command;
mod digest;
mod dpu;
mod failure;
mod files;
mod host;
mod mover;
mod options;
mod protocol;
mod talk;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;

use crate::agree::Plan;
use crate::command::progress_bar;
use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::Role;
use crate::talk::Talk;

/// Set by SIGINT, SIGTERM and SIGHUP.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whoever works or waits for long asks this now and then.
pub(crate) fn check_interrupt() -> Result<(), Failure> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
}

/// When a wait is over, and how long it is in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    whole: Duration,
}

impl Deadline {
    pub(crate) fn after(whole: Duration) -> Self {
        Self { at: Instant::now() + whole, whole }
    }

    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// The whole wait, for messages.
    pub(crate) fn shown(&self) -> String {
        seconds(self.whole)
    }
}

/// A time as the user gave it.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn main() -> ExitCode {
    let options = Options::from_command_line();
    match run(&options) {
        Ok(summary) => {
            if options.quiet < 2 {
                // The copy is made, whether or not somebody reads this.
                let _ = writeln!(std::io::stdout(), "{summary}");
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("dma_copy: {}: {failure}", options.role());
            // 128 + SIGINT, as shells say it.
            if matches!(failure, Failure::Interrupted) { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

/// Copies, and returns the summary.
fn run(options: &Options) -> Result<String, Failure> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))
        .map_err(|e| failure!(Starting, "cannot handle signals: {e}"))?;
    log(options);
    // What is wrong with the engine or the file alone is said before anybody waits.
    let engine = dma::open(&options.engine()).map_err(|e| failure!(Starting, "{e}"))?;
    let source = files::Source::open(&options.file)?;
    let talk = Talk::start(channel::open(options)?, options);
    let started = Instant::now();
    let copied = agree::agree(options, source, &talk).and_then(|(plan, end)| {
        let message = if plan.sender == options.role() { "sending" } else { "receiving" };
        let bar = progress_bar(plan.size, message, options.quiet > 0);
        bar.set_position(plan.from);
        let copied = match options.role() {
            Role::Host => host::copy(&*engine, &plan, &end, &talk, &bar),
            Role::Dpu => dpu::copy(&*engine, &plan, &end, &talk, &bar, options),
        };
        bar.finish_and_clear();
        if copied.is_err() {
            end.give_up();
        }
        copied.map(|retries| (plan, retries))
    });
    match copied {
        Ok((plan, retries)) => Ok(summary(&plan, retries, started.elapsed(), engine.info())),
        Err(failure) => {
            talk.abort(&failure);
            Err(failure)
        }
    }
}

/// The levels of DOCA's log, as this program's.
fn log(options: &Options) {
    let level = |doca: u8| match doca {
        0..20 => "off",
        20..40 => "error",
        40..50 => "warn",
        50..60 => "info",
        60..70 => "debug",
        _ => "trace",
    };
    let sdk = level(options.sdk_log_level);
    let filter = format!("{},doca={sdk},spdk={sdk}", level(options.log_level));
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

fn summary(plan: &Plan, retries: u64, took: Duration, info: &dma::EngineInfo) -> String {
    let seconds = took.as_secs_f64();
    let moved = plan.size - plan.from;
    let mut summary = format!(
        "copied {} bytes from {} to {} in {seconds:.3} s, {:.3} GB/s, engine {}",
        plan.size,
        plan.sender,
        plan.sender.other(),
        moved as f64 / seconds / 1e9,
        info.backend,
    );
    if info.model.is_some() {
        summary += " (a model: its speed is not the device's)";
    }
    summary += &format!(", {retries} retries");
    if plan.from > 0 {
        summary += &format!(", {} bytes were there already", plan.from);
    }
    summary
}
