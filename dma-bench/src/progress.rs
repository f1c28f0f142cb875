//! What is shown while a run goes on: a live view on a terminal, a line for each cell in a pipe.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::files::say;
use crate::output::cell_line;
use crate::plan::Cell;
use crate::results::Measured;
use crate::run::Observer;
use crate::units;

/// Shows the progress on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    quiet: bool,
    /// When the last line was printed.
    last: Instant,
}

/// How often a line says how far it is, at most: short runs need none.
const LINES: Duration = Duration::from_secs(2);

impl Progress {
    /// A live view if standard error is a terminal, lines if not, nothing if `quiet`.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        let live = !quiet && std::io::stderr().is_terminal();
        Self { bar: live.then(ProgressBar::hidden), lines: !quiet && !live, quiet, last: Instant::now() }
    }
}

/// How wide the bar is: what is measured has the rest of the line.
const WIDTH: usize = 20;

/// Which part of a run is over: so many repetitions of so many, or so much of the time that it is to take, whichever is more.
fn over(done: u64, of: u64, elapsed: Duration, expected: Option<f64>) -> f64 {
    let by_count = if of == 0 { 0.0 } else { done as f64 / of as f64 };
    let by_time = expected.map_or(0.0, |seconds| elapsed.as_secs_f64() / seconds);
    by_count.max(by_time).clamp(0.0, 1.0)
}

/// How long it takes to its end, if it goes on like that.
fn left(over: f64, elapsed: Duration, expected: Option<f64>) -> Option<Duration> {
    let elapsed = elapsed.as_secs_f64();
    let by_now = (over > 0.0).then(|| elapsed * (1.0 - over) / over);
    let by_time = expected.map(|seconds| (seconds - elapsed).max(0.0));
    let left = by_now.into_iter().chain(by_time).reduce(f64::min)?;
    Duration::try_from_secs_f64(left).ok()
}

impl Observer for Progress {
    fn begin(&mut self, repetitions: u64, expected: Option<f64>) {
        let Some(bar) = &self.bar else { return };
        bar.set_length(repetitions);
        let part = move |state: &ProgressState| {
            let (of, elapsed) = (state.len().unwrap_or(0), state.elapsed());
            (over(state.pos(), of, elapsed, expected), elapsed)
        };
        // The template is a literal; without it the bar is plainer.
        if let Ok(style) = ProgressStyle::with_template("{done:.cyan/blue} {part} {left:>4} left  {wide_msg}")
        {
            let style = style
                .with_key("done", move |state: &ProgressState, out: &mut dyn Write| {
                    let full = (part(state).0 * WIDTH as f64) as usize;
                    let _ = write!(out, "{}{}", "█".repeat(full), "░".repeat(WIDTH - full));
                })
                .with_key("part", move |state: &ProgressState, out: &mut dyn Write| {
                    let _ = write!(out, "{:>3.0} %", part(state).0 * 100.0);
                })
                .with_key("left", move |state: &ProgressState, out: &mut dyn Write| {
                    let (over, elapsed) = part(state);
                    let left = left(over, elapsed, expected);
                    let _ =
                        write!(out, "{}", left.map_or("?".to_owned(), |l| format!("{:#}", HumanDuration(l))));
                });
            bar.set_style(style);
        }
        bar.reset_elapsed();
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar.println("Ctrl-C ends it and keeps what there is by then.");
        bar.enable_steady_tick(Duration::from_millis(200));
    }

    fn fewer(&mut self, repetitions: u64) {
        if let Some(bar) = &self.bar {
            bar.dec_length(repetitions);
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            // Before it begins there is no bar to be kept whole, and one that is hidden prints nothing.
            Some(bar) if !bar.is_hidden() => bar.println(format!("note: {text}")),
            _ if !self.quiet => say(format_args!("note: {text}")),
            _ => {}
        }
    }

    fn pass(&mut self, done: u32, of: u32) {
        if self.lines && self.last.elapsed() >= LINES {
            self.last = Instant::now();
            say(format_args!("pass {done} of {of} over all cells is done"));
        }
    }

    fn repetition(&mut self, cell: &Cell, model: bool, bytes_per_second: f64) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(live(cell, model, bytes_per_second));
        }
    }

    fn cell(&mut self, measured: &Measured) {
        if self.lines {
            say(cell_line(measured));
        }
    }

    fn end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A repetition in a few words: a model's figure is never without the label.
fn live(cell: &Cell, model: bool, bytes_per_second: f64) -> String {
    let label = if model { " [model]" } else { "" };
    format!("{cell}{label}: {} GB/s", units::gigabytes(bytes_per_second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn a_run_is_over_when_its_time_is() {
        let after = |seconds| Duration::from_secs_f64(seconds);
        assert_eq!(over(10, 40, after(5.0), None), 0.25);
        assert_eq!(over(10, 1000, after(14.0), Some(28.0)), 0.5, "a limit");
        assert_eq!(over(900, 1000, after(14.0), Some(28.0)), 0.9, "done before that");
        assert_eq!(over(0, 1, after(30.0), Some(28.0)), 1.0);
        assert_eq!(over(0, 0, after(1.0), None), 0.0);
        assert_eq!(left(0.0, after(1.0), None), None);
        assert_eq!(left(0.25, after(5.0), None), Some(after(15.0)));
        assert_eq!(left(0.5, after(14.0), Some(28.0)), Some(after(14.0)));
        assert_eq!(left(0.0, after(8.0), Some(28.0)), Some(after(20.0)), "nothing is done yet");
        assert_eq!(left(1.0, after(30.0), Some(28.0)), Some(Duration::ZERO));
    }

    #[test]
    fn the_live_view_labels_models() {
        for m in sample().cells {
            assert_eq!(live(&m.cell, m.model, 1e9).contains("[model]: 1.00 GB/s"), m.model, "{}", m.cell);
        }
    }
}
