//! Progress of a run: a live view on a terminal; otherwise one line for each cell.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use apps_shared::hold;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::files::say;
use crate::interrupt;
use crate::output::cell_line;
use crate::plan::Cell;
use crate::results::Measured;
use crate::run::Observer;
use crate::units;

#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    quiet: bool,
    /// The start of the run.
    begun: Instant,
    /// The time of the last line of progress.
    last: Instant,
    done: u64,
    of: u64,
    /// Reasons, so far, why cells have no figures.
    reasons: Vec<String>,
    /// Estimated duration of the run, in seconds.
    expected: f64,
}

/// Minimum time between two lines of progress, so that short runs print none.
const MIN_LINE_INTERVAL: Duration = Duration::from_secs(1);

impl Progress {
    /// Creates a live view if standard error is a terminal, and otherwise prints lines. Prints nothing
    /// if `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        let live = !quiet && std::io::stderr().is_terminal();
        let (bar, now) = (live.then(ProgressBar::hidden), Instant::now());
        let (lines, reasons) = (!quiet && !live, Vec::new());
        Self { bar, lines, quiet, begun: now, last: now, done: 0, of: 0, reasons, expected: 0.0 }
    }
}

/// Length of the bar in characters. The rest of the line shows the current figure.
const BAR_WIDTH: usize = 20;

/// Returns the completed fraction of the run: the greater of its fractions by samples and by time. It
/// stays below 1 until the end.
fn over(done: u64, of: u64, elapsed: Duration, expected: f64) -> f64 {
    let by_count = if of == 0 { 0.0 } else { done as f64 / of as f64 };
    let by_time = elapsed.as_secs_f64() / expected.max(0.1);
    if by_count >= 1.0 { 1.0 } else { by_count.max(by_time.min(0.99)).clamp(0.0, 1.0) }
}

/// Returns the remaining time: at first from the estimate, later from the measured speed.
fn left(done: u64, of: u64, elapsed: Duration, expected: f64) -> Duration {
    let elapsed = elapsed.as_secs_f64();
    let by_time = (expected - elapsed).max(0.0);
    let part = if of == 0 { 0.0 } else { (done as f64 / of as f64).min(1.0) };
    let left = if part > 0.05 { (elapsed * (1.0 - part) / part).min(by_time.max(1.0)) } else { by_time };
    Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)
}

fn duration(left: Duration) -> String {
    format!("{:#}", HumanDuration(left))
}

impl Observer for Progress {
    fn begin(&mut self, samples: u64, expected: f64) {
        (self.of, self.expected, self.begun) = (samples, expected, Instant::now());
        let Some(bar) = &self.bar else {
            if self.lines {
                let time = duration(Duration::try_from_secs_f64(expected).unwrap_or(Duration::MAX));
                say(format_args!("this takes about {time}; Ctrl-C stops it and keeps the figures so far"));
            }
            return;
        };
        bar.set_length(samples);
        bar.set_message("warming up");
        let part = move |state: &ProgressState| {
            over(state.pos(), state.len().unwrap_or(0), state.elapsed(), expected)
        };
        // With an invalid template, the bar has its default look.
        if let Ok(style) = ProgressStyle::with_template("{done:.cyan/blue} {part} {left:>4} left  {wide_msg}")
        {
            let style = style
                .with_key("done", move |state: &ProgressState, out: &mut dyn Write| {
                    let full = (part(state) * BAR_WIDTH as f64) as usize;
                    let _ = write!(out, "{}{}", "█".repeat(full), "░".repeat(BAR_WIDTH - full));
                })
                .with_key("part", move |state: &ProgressState, out: &mut dyn Write| {
                    let _ = write!(out, "{:>3.0} %", part(state) * 100.0);
                })
                .with_key("left", move |state: &ProgressState, out: &mut dyn Write| {
                    let left = left(state.pos(), state.len().unwrap_or(0), state.elapsed(), expected);
                    let _ = write!(out, "{}", duration(left));
                });
            bar.set_style(style);
        }
        bar.reset_elapsed();
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar.println("Ctrl-C stops the run and keeps the figures so far.");
        bar.enable_steady_tick(Duration::from_millis(200));
    }

    fn fewer(&mut self, samples: u64) {
        self.of = self.of.saturating_sub(samples);
        if let Some(bar) = &self.bar {
            bar.dec_length(samples);
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            // Before the run begins the bar is hidden, and a hidden bar prints nothing.
            Some(bar) if !bar.is_hidden() => bar.println(format!("note: {text}")),
            _ if !self.quiet => say(format_args!("note: {text}")),
            _ => {}
        }
    }

    fn sample(&mut self, cell: &Cell, model: bool, bytes_per_second: f64) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(live(cell, model, bytes_per_second));
        } else if self.lines && self.last.elapsed() >= MIN_LINE_INTERVAL {
            self.last = Instant::now();
            let elapsed = self.begun.elapsed();
            let part = over(self.done, self.of, elapsed, self.expected) * 100.0;
            let left = duration(left(self.done, self.of, elapsed, self.expected));
            say(format_args!("{part:.0} %, {left} left; {}", live(cell, model, bytes_per_second)));
        }
    }

    fn cell(&mut self, measured: &Measured) {
        // Each reason for missing figures is printed once. The table at the end lists all cells.
        let reason = measured.message.as_ref().filter(|_| measured.ops_per_second.is_none());
        if reason.is_none_or(|reason| !self.reasons.contains(reason)) {
            self.reasons.extend(reason.cloned());
            if self.lines {
                say(cell_line(measured));
            }
        }
        hold::reached("cell", interrupt::stopped);
    }

    fn end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Describes a sample in a few words, with a label if it is a model's.
fn live(cell: &Cell, model: bool, bytes_per_second: f64) -> String {
    let label = if model { " [model]" } else { "" };
    format!("{cell}{label}: {} GB/s", units::gigabytes(bytes_per_second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn progress_is_known_from_the_start() {
        let after = |seconds| Duration::from_secs_f64(seconds);
        assert_eq!(over(10, 40, after(5.0), 100.0), 0.25);
        assert_eq!(over(10, 1000, after(14.0), 28.0), 0.5, "by time");
        assert_eq!(over(0, 1, after(30.0), 28.0), 0.99, "the fraction is below 1 before the end");
        assert_eq!((over(7, 7, after(1.0), 28.0), over(0, 0, after(0.0), 28.0)), (1.0, 0.0));
        assert_eq!(left(0, 100, after(0.0), 28.0), after(28.0), "before the first sample");
        assert_eq!(left(50, 100, after(5.0), 28.0), after(5.0), "faster than expected");
        assert_eq!(left(50, 100, after(27.5), 28.0), after(1.0), "a run by time ends when the time is over");
    }

    #[test]
    fn the_live_view_labels_models() {
        for m in sample().cells {
            assert_eq!(live(&m.cell, m.model, 1e9).contains("[model]: 1.00 GB/s"), m.model, "{}", m.cell);
        }
    }
}
