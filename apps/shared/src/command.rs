//! Signals, exit status, sizes, the progress bar, retries.

use std::fmt::Display;
use std::io::Write;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dma_core::{ErrorKind, Retry};
use dma_process::keep_ignored_signals;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Maximum resubmissions of one copy if its error says that a retry can help, such as after a device reset.
const TRIES: u32 = 100;
/// Maximum resubmissions of one copy that the device failed, because some devices report a reset as the
/// failure of one copy.
const FAULTS: u32 = 3;

/// Set by SIGINT, SIGTERM and SIGHUP.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Installs handlers that record signals for [`interrupted`]. Signals that are ignored stay ignored.
///
/// # Errors
///
/// The message for the user, if the system refuses a handler.
pub fn handle_signals() -> Result<(), String> {
    keep_ignored_signals(|| ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed)))
        .map_err(|e| match e {
            ctrlc::Error::System(e) => match dma_process::open_files_remedy(&e) {
                Some(remedy) => format!("cannot handle signals: {e}; {remedy}"),
                None => format!(
                    "cannot handle signals: {e}; the handler needs a thread: raise the limits on threads (ulimit -u, or pids.max of the control group) and on address space (ulimit -v)"
                ),
            },
            e => format!("cannot handle signals: {e}"),
        })
}

/// Returns whether a signal has arrived.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Writes a line by one call, so that lines of other processes on the same terminal do not divide it.
fn write_at_once(stream: &mut impl Write, line: &str) -> std::io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

/// Prints a text to standard output.
///
/// # Errors
///
/// The message for the user, for example if the disk is full, or if the reader has closed the pipe.
pub fn print(text: &str) -> Result<(), String> {
    write_at_once(&mut std::io::stdout(), text).map_err(|e| format!("cannot write to standard output: {e}"))
}

/// The reason why a program failed.
#[derive(Debug)]
pub enum Failed<T> {
    /// An argument is invalid.
    Argument(T),
    /// Everything else.
    Copy(T),
}

/// Returns whether an error of opening an engine is that of its name: an unknown engine, option or value.
#[must_use]
pub fn is_bad_name(error: &dma_core::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::OutOfRange)
}

/// Prints the summary (unless `quiet` is 2 or more), or `name` and the failure. Returns the exit status.
pub fn exit(name: &str, quiet: u8, copied: Result<String, Failed<impl Display>>) -> ExitCode {
    match copied {
        Ok(_) if quiet >= 2 => ExitCode::SUCCESS,
        Ok(summary) => printed(
            name,
            print(&summary).map_err(|e| format!("{e}; the copy is complete, and -qq hides its summary")),
        ),
        Err(Failed::Argument(failure)) => {
            say(name, failure);
            ExitCode::from(2)
        }
        Err(Failed::Copy(failure)) => {
            say(name, failure);
            // 128 + SIGINT, by the convention of shells.
            if interrupted() { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

/// Returns the exit status of a program whose work was to print. Writes `name` and an error to standard
/// error.
pub fn printed(name: &str, printed: Result<(), String>) -> ExitCode {
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say(name, message);
            ExitCode::FAILURE
        }
    }
}

/// Writes `name` and a message to standard error. Control characters, which file names may contain, become
/// `?`, because a terminal would obey them.
pub fn say(name: &str, message: impl Display) {
    let text = message.to_string().replace(char::is_control, "?");
    // The exit status says it, even if the message cannot be written.
    let _ = write_at_once(&mut std::io::stderr(), &format!("{name}: {text}"));
}

/// Maximum number of resubmissions of a copy that failed with `error`. A resubmission is harmless, because it
/// copies the same bytes to the same destination.
pub fn tries_after(error: &dma_core::Error) -> u32 {
    match error.retry() {
        Retry::Never => 0,
        Retry::FewTimes => FAULTS,
        _ => TRIES,
    }
}

/// Parses a size as [`dma_core::parse_size`] does, and checks that it is in `range`. Error messages show the
/// range as `allowed`.
///
/// # Errors
///
/// The message for the user.
pub fn parse_size(text: &str, range: RangeInclusive<u64>, allowed: &str) -> Result<u64, String> {
    match dma_core::parse_size(text) {
        Some(bytes) if range.contains(&bytes) => Ok(bytes),
        Some(_) => Err(format!("`{text}` is out of range; give {allowed}")),
        None => Err(format!(
            "`{text}` is not a valid size; give {allowed}: a whole number of bytes, or of K, M or G (1024 each), such as 256K"
        )),
    }
}

/// A progress bar on the terminal for `len` bytes; hidden without a terminal, or if `quiet`.
pub fn progress_bar(len: u64, message: &'static str, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr());
    if bar.is_hidden() {
        return bar;
    }
    let template = "{msg:9} {decimal_bytes:>9} of {decimal_total_bytes} {wide_bar} {decimal_bytes_per_sec:>11}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(message);
    // Redraw even while a device or disk hangs.
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
