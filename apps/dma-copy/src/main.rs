//! Copies a file between host and DPU by DMA, or through a channel. Each side runs one command:
//! `dma-copy --role dpu -f COPY` and `dma-copy --role host -f FILE`.
//!
//! | file | contents |
//! |---|---|
//! | `options.rs` | the command line and the JSON file |
//! | `protocol/` | the messages and their encoding |
//! | `channel/` | the carriers of messages: a Unix socket, TCP, DOCA's comm channel |
//! | `session.rs` | messages with deadlines, heartbeats |
//! | `negotiate.rs` | agreement on the copy: direction, block size, first byte |
//! | `checks.rs` | checks of the other side's messages |
//! | `host.rs` | the host's role, and with `--engine stream` both roles: reads or writes the file |
//! | `exported.rs` | the memory that the host exports |
//! | `dpu.rs` | the DPU's role: imports the memory, copies bytes by DMA, reads or writes its file |
//! | `probe.rs` | a first copy of a few bytes, which tests the connection between two hosts |
//! | `mover.rs` | DMA copies in flight, in the order of the file |
//! | `files.rs`, `disk.rs` | the file that is sent, and the copy |
//! | `deadline.rs` | deadlines of waits, and checks for an interrupt |
//! | `digest.rs` | checksums |

mod block;
mod channel;
mod checks;
mod deadline;
mod digest;
mod direction;
mod dpu;
mod exported;
mod failure;
mod files;
mod host;
mod mover;
mod negotiate;
mod options;
mod probe;
mod protocol;
mod session;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;

use crate::deadline::hold_at;
use crate::failure::{Failure, failure};
use crate::files::{Source, Target};
use crate::negotiate::Plan;
use crate::options::Options;
use crate::protocol::Role;
use crate::session::Session;
use apps_shared::command::{self, Failed, progress_bar};
use dma::process::count;

fn main() -> ExitCode {
    let options = Options::from_command_line();
    command::exit(&format!("dma-copy: {}", options.role()), options.quiet, run(&options))
}

fn run(options: &Options) -> Result<String, Failed<Failure>> {
    copy(options).map_err(|failure| match failure {
        Failure::Argument(_) => Failed::Argument(failure),
        _ if options.is_rdma() => Failed::Copy(failure.or_stream()),
        _ => Failed::Copy(failure),
    })
}

/// Copies all files. Returns the summary of the last copy, and prints the summaries of the earlier copies.
fn copy(options: &Options) -> Result<String, Failure> {
    command::handle_signals().map_err(|message| failure!(Starting, "{message}"))?;
    log(options);
    // Check the engine's name, the file and the directory of the copy before waiting for the other side.
    let engine = match options.is_stream() {
        true => None,
        false => Some(dma::open(&options.engine()).map_err(|e| match command::is_bad_name(&e) {
            true => Failure::Argument(e.to_string()),
            false => failure!(Starting, "{e}"),
        })?),
    };
    let (mut sources, mut received) = (Vec::new(), BTreeSet::new());
    for file in &options.files {
        let source = Source::open(file, "").map_err(|message| failure!(Starting, "{message}"))?;
        let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        if source.is_none() && !received.insert(path) {
            return Err(Failure::Argument(format!(
                "--file {} is given twice, and the second copy would replace the first; give each file a name of its own",
                file.display()
            )));
        }
        if source.is_none() {
            Target::check_place(file)?;
        }
        sources.push(source);
    }
    let session = Session::start(channel::open(options)?, options);
    hold_at("connected");
    let mut following = sources.len() as u32;
    let mut last = String::new();
    for (file, source) in options.files.iter().zip(sources) {
        if !last.is_empty() && options.quiet < 2 {
            // Continue with the other files. The last summary reports that standard output fails.
            let _ = command::print(&last);
        }
        following -= 1;
        last = match copy_file(options, engine.as_deref(), (file, following), source, &session) {
            Ok(summary) => summary,
            Err(failure) => {
                session.abort(&failure);
                return Err(failure);
            }
        };
    }
    Ok(last)
}

/// Copies one file, after which `following` files remain. Returns the summary.
fn copy_file(
    options: &Options,
    engine: Option<&dyn dma::DmaEngine>,
    (file, following): (&Path, u32),
    source: Option<Source>,
    session: &Session,
) -> Result<String, Failure> {
    let started = Instant::now();
    let (plan, file) = negotiate::negotiate(options, (file, following), source, session)?;
    hold_at("agreed");
    let message = if plan.sender == options.role() { "sending" } else { "receiving" };
    let bar = progress_bar(plan.size, message, options.quiet > 0);
    bar.set_position(plan.from);
    let copied = match (options.role(), engine) {
        (Role::Dpu, Some(engine)) => dpu::copy(engine, &plan, &file, session, &bar, options),
        (_, engine) => host::copy(engine, &plan, &file, session, &bar),
    };
    bar.finish_and_clear();
    if copied.is_err() {
        file.give_up();
    }
    Ok(summary(&plan, copied?, started.elapsed(), engine.map(dma::DmaEngine::info)))
}

/// Starts logging. The levels are DOCA's log levels.
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

/// Returns the summary of a copy in one line.
fn summary(plan: &Plan, retries: u64, took: Duration, info: Option<&dma::EngineInfo>) -> String {
    let seconds = took.as_secs_f64();
    let moved = plan.size - plan.from;
    let mut summary = format!(
        "copied {} from {} to {} in {seconds:.3} s, {:.3} GB/s, engine {}",
        count(plan.size, "byte", "bytes"),
        plan.sender,
        plan.sender.other(),
        moved as f64 / seconds / 1e9,
        info.map_or("stream", |info| info.backend),
    );
    if info.is_some_and(|info| info.model.is_some()) {
        summary += " (a model: its speed is not the device's)";
    }
    summary += &format!(", {}", count(retries, "retry", "retries"));
    if plan.from > 0 {
        summary += &format!(", {} already copied earlier", count(plan.from, "byte was", "bytes were"));
    }
    summary
}
