//! Results of tests, as lines of text.

use std::fmt;
use std::time::Instant;

use crate::Error;
use crate::channel::Channel;

/// A test that did not pass.
pub(crate) enum Unpassed {
    /// The device declares that it does not support the operation.
    Unsupported(String),
    Failed(String),
}

impl<E: fmt::Display> From<E> for Unpassed {
    fn from(e: E) -> Self {
        Self::Failed(e.to_string())
    }
}

pub(crate) struct Report {
    side: String,
    failed: u64,
    lines: Vec<String>,
}

impl Report {
    pub(crate) fn new(side: &str) -> Self {
        Self { side: side.to_owned(), failed: 0, lines: Vec::new() }
    }

    pub(crate) const fn passed(&self) -> bool {
        self.failed == 0
    }

    /// Adds a line, and prints it.
    pub(crate) fn note(&mut self, text: impl fmt::Display) {
        let line = format!("{}: {text}", self.side);
        println!("{line}");
        self.lines.push(line);
    }

    /// Runs a test, and adds its result.
    pub(crate) fn test(&mut self, name: &str, run: impl FnOnce() -> Result<(), Unpassed>) {
        let begun = Instant::now();
        let result = run();
        let ms = begun.elapsed().as_millis();
        match result {
            Ok(()) => self.note(format!("passed       {name} ({ms} ms)")),
            Err(Unpassed::Unsupported(why)) => self.note(format!("unsupported  {name}: {why}")),
            Err(Unpassed::Failed(why)) => {
                self.failed += 1;
                self.note(format!("FAILED       {name} ({ms} ms): {why}"));
            }
        }
    }

    /// Sends the report to the other side.
    pub(crate) fn send(&self, channel: &mut Channel) -> Result<(), Error> {
        channel.send(format!("{} {}", self.failed, self.lines.len()).as_bytes())?;
        for line in &self.lines {
            // The lowest known limit of a comm channel is 4,080 bytes.
            channel.send(&line.as_bytes()[..line.len().min(4000)])?;
        }
        // Wait for an answer, because the comm channel may lose messages of a program that ends.
        channel.receive().map(drop)
    }

    /// Receives the report of the other side.
    pub(crate) fn receive(channel: &mut Channel) -> Result<Self, Error> {
        let head = String::from_utf8(channel.receive()?)?;
        let (failed, count) = head.split_once(' ').ok_or("the other side sent no report")?;
        let mut report = Self { failed: failed.parse()?, ..Self::new("") };
        for _ in 0..count.parse::<u32>()? {
            report.lines.push(String::from_utf8_lossy(&channel.receive()?).into_owned());
        }
        channel.send(b"received")?;
        Ok(report)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
