//! Copies a file by DMA: `cargo run --release -p copy-file -- SRC DST`.
//!
//! | file | contents |
//! |---|---|
//! | `options.rs` | the command line |
//! | `failure.rs` | the reason why a copy failed |
//! | `files.rs` | SRC and DST |
//! | `partial.rs` | the partial file, which has no name until it is complete |
//! | `pieces.rs` | divides SRC into chunks and holes |
//! | `pipeline.rs` | reads, copies by DMA and writes at the same time |
//! | `direct.rs` | `--direct`: the same by io_uring, bypassing the page cache |
//! | `share.rs` | `--share`: a copy by the file system, without an engine |
//! | `digest.rs` | `--verify` |
//!

mod copies;
mod digest;
mod direct;
mod failure;
mod files;
mod options;
mod partial;
mod pieces;
mod pipeline;
mod share;

use std::process::ExitCode;
use std::time::Instant;

use indicatif::ProgressBar;

use crate::failure::{Failure, check_interrupt, failure};
use crate::files::Target;
use crate::options::{CommandLine, Options};
use apps_shared::command::{self, Failed, progress_bar};
use apps_shared::disk::Source;
use apps_shared::hold;
use dma::process::count;

fn main() -> ExitCode {
    let options = match options::parse(std::env::args_os().skip(1)) {
        Ok(CommandLine::Copy(options)) => options,
        Ok(CommandLine::Print(text)) => return command::printed("copy-file", command::print(text)),
        Err(message) => {
            command::say("copy-file", message);
            return ExitCode::from(2);
        }
    };
    let quiet = options.quiet;
    command::exit("copy-file", quiet, run(options))
}

fn run(options: Options) -> Result<String, Failed<Failure>> {
    command::handle_signals().map_err(Failure::from)?;
    let started = Instant::now();
    let source = Source::open(&options.src, "SRC ")
        .map_err(Failure::from)?
        .ok_or_else(|| failure!("SRC {} does not exist; check its name", options.src.display()))?;
    let options = &options.for_length(source.len());
    let target = Target::create(&options.dst, &options.src, &source)?;
    if options.share {
        return Ok(share::copy(options, &source, target, started)?);
    }
    let engine = dma::open(&options.engine).map_err(|e| Failure::opening(&e))?;
    hold::reached("begun", command::interrupted);
    let bar = progress_bar(source.len(), "copying", options.quiet > 0);
    let copied = copy(options, &*engine, &source, target, &bar, started);
    bar.finish_and_clear();
    Ok(copied?)
}

fn copy(
    options: &Options,
    engine: &dyn dma::DmaEngine,
    source: &Source,
    target: Target,
    bar: &ProgressBar,
    started: Instant,
) -> Result<String, Failure> {
    let copy = if options.direct { direct::copy } else { pipeline::copy };
    let copied = copy(engine, source, &target, options, bar)?;
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
    target.publish(options.sync)?;

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
        summary += &format!(", verified in {verifying:.3} s, xxh3 {digest:032x}");
    }
    Ok(summary)
}
