//! What is shown while a run goes on: a live view on a terminal, a line for each cell in a pipe.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

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
        Self { bar: live.then(|| ProgressBar::new(0)), lines: !quiet && !live, quiet, last: Instant::now() }
    }
}

impl Observer for Progress {
    fn begin(&mut self, repetitions: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(repetitions);
            // The template is a literal; without it the bar is plainer.
            if let Ok(style) = ProgressStyle::with_template(
                "{bar:30.cyan/blue} {percent:>3} %  {eta:>4} left  {wide_msg}  (Ctrl-C keeps what there is)",
            ) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
        }
    }

    fn fewer(&mut self, repetitions: u64) {
        if let Some(bar) = &self.bar {
            bar.dec_length(repetitions);
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("note: {text}")),
            None if !self.quiet => say(format_args!("note: {text}")),
            None => {}
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
    fn the_live_view_labels_models() {
        for m in sample().cells {
            assert_eq!(live(&m.cell, m.model, 1e9).contains("[model]: 1.00 GB/s"), m.model, "{}", m.cell);
        }
    }
}
