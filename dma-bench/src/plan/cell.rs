//! [`Cell`]: one thing to measure, and the words for what is done in it: the operation, which way, which memory, and what is verified.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units;

/// What is done to memory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// One range to one range.
    Copy,
    /// A pattern over one range.
    Fill,
    /// Several segments to several segments, in one descriptor.
    Sg,
}

/// Where the bytes go.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Within this side's memory.
    Local,
    /// From this side's memory to a peer's.
    Push,
    /// From a peer's memory to this side's.
    Pull,
}

/// Which memory is touched in turn.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Footprint {
    /// One buffer for each operation in flight, over and over: in the caches, if they are large enough.
    Hot,
    /// Buffer after buffer through much memory: not in the caches.
    Cold,
    /// As cold, in random order.
    Random,
}

macro_rules! lowercase {
    ($($name:ty),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!("{self:?}").to_lowercase())
            }
        }
    )+};
}
lowercase!(Op, Direction, Footprint);

/// What is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Some buffers, again and again, outside of the measured time.
    #[default]
    Sample,
    /// Every operation, within the measured time: figures are lower for it.
    All,
}

/// One thing to measure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The engine's name; `memcpy` for the baseline.
    pub engine: String,
    /// What is done.
    pub op: Op,
    /// Bytes of each operation.
    pub size: u64,
    /// Operations in flight on each queue.
    pub depth: u32,
    /// Operations for each doorbell.
    pub batch: u32,
    /// Queues, each driven by a thread.
    pub queues: u32,
    /// Segments on each side of an operation.
    pub segments: u32,
    /// Which memory.
    pub footprint: Footprint,
    /// Which way.
    pub direction: Direction,
}

impl Cell {
    /// The name of the baseline.
    pub const BASELINE: &'static str = "memcpy";

    /// What the cell is compared with: `memcpy` (or `memset`) of the same bytes on one core, one after the other, going through as many
    /// buffers.
    #[must_use]
    pub fn baseline(&self) -> Self {
        Self {
            engine: Self::BASELINE.to_owned(),
            depth: if self.footprint == Footprint::Hot { self.depth * self.queues } else { 1 },
            batch: 1,
            queues: 1,
            direction: Direction::Local,
            ..self.clone()
        }
    }

    /// Whether it is the baseline's.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.engine == Self::BASELINE
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.engine, self.op, units::bytes(self.size))?;
        if self.is_baseline() {
            if self.depth > 1 {
                write!(f, " {} buffers", self.depth)?;
            }
        } else {
            write!(f, " q{}", self.depth)?;
            if self.batch > 1 {
                write!(f, " b{}", self.batch)?;
            }
            if self.queues > 1 {
                write!(f, " x{}", self.queues)?;
            }
        }
        if self.segments > 1 {
            write!(f, " {} segments", self.segments)?;
        }
        if self.direction != Direction::Local {
            write!(f, " {}", self.direction)?;
        }
        write!(f, " {}", self.footprint)
    }
}
