//! [`Cell`]: one combination to measure, and its parts: operation, direction, memory, verification.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use dma::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units;

/// An operation on memory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// A copy of one range.
    Copy,
    /// A fill of one range with a pattern.
    Fill,
    /// A copy of several segments to the same number of segments, in one descriptor.
    Sg,
    /// A copy of several segments into one, in one descriptor.
    Gather,
    /// A copy of one segment into several, in one descriptor.
    Scatter,
    /// A comparison of two equal ranges.
    Compare,
    /// The CRC-32C of one range.
    Crc32c,
    /// A copy of one range, with its CRC-32C.
    CopyCrc32c,
    /// A copy of one range to two destinations.
    CopyToBoth,
}

impl Op {
    /// Returns true if the operation has several segments.
    pub fn has_segments(self) -> bool {
        matches!(self, Self::Sg | Self::Gather | Self::Scatter)
    }

    /// Returns true if the descriptor contains lists of ranges.
    pub(crate) fn has_lists(self) -> bool {
        self.has_segments() || matches!(self, Self::Fill | Self::CopyToBoth)
    }

    /// Returns true if the completion carries a result.
    pub fn has_result(self) -> bool {
        matches!(self, Self::Compare | Self::Crc32c | Self::CopyCrc32c)
    }

    /// Returns true if the operation writes to a destination.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, Self::Compare | Self::Crc32c)
    }

    /// Returns the name of the baseline, which executes the same operation on one core.
    pub fn baseline(self) -> &'static str {
        match self {
            Self::Copy | Self::Sg | Self::Gather | Self::Scatter => "memcpy",
            Self::Fill => "memset",
            Self::Compare => "memcmp",
            Self::Crc32c => "crc32c crate",
            Self::CopyCrc32c => "memcpy and crc32c crate",
            Self::CopyToBoth => "memcpy twice",
        }
    }
}

/// An operation as a campaign names it: `copy`, `sg`, or `gather:64` with the number of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpSpec {
    /// The operation.
    pub op: Op,
    /// Segments of each operation. If not given, the sweep's number applies.
    pub segments: Option<u32>,
}

impl From<Op> for OpSpec {
    fn from(op: Op) -> Self {
        Self { op, segments: None }
    }
}

impl FromStr for OpSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, segments) = text.split_once(':').map_or((text, None), |(name, n)| (name, Some(n)));
        let op = Op::from_str(name, true).map_err(|_| {
            format!(
                "`{name}` is not an operation; write copy, fill, compare, crc32c, copy-crc32c, copy-to-both, sg, \
                 gather or scatter, the last three with :SEGMENTS"
            )
        })?;
        let segments = match segments {
            None => None,
            Some(_) if !op.has_segments() => return Err(format!("`{text}`: a {op} has no segments")),
            Some(n) => {
                let n = n.parse().ok().filter(|n| (1..=4096).contains(n));
                Some(n.ok_or_else(|| format!("`{text}`: segments are a number from 1 to 4096"))?)
            }
        };
        Ok(Self { op, segments })
    }
}

impl fmt::Display for OpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.segments {
            Some(n) => write!(f, "{}:{n}", self.op),
            None => write!(f, "{}", self.op),
        }
    }
}

impl Serialize for OpSpec {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OpSpec {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for OpSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OpSpec".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let pattern = "^(copy|fill|compare|crc32c|copy-crc32c|copy-to-both|(sg|gather|scatter)(:[0-9]+)?)$";
        schemars::json_schema!({ "type": "string", "pattern": pattern })
    }
}

/// Direction of the bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Within this side's memory.
    Local,
    /// From this side's memory to a peer's.
    Push,
    /// From a peer's memory to this side's.
    Pull,
    /// From host memory to the device's own, such as a GPU's.
    ToDevice,
    /// From the device's own memory to host memory.
    FromDevice,
    /// Within the device's own memory.
    OnDevice,
    /// Within this side's memory, in two directions at once. With two NUMA nodes, from each node to the
    /// other.
    #[serde(rename = "local+back")]
    #[value(name = "local+back")]
    LocalAndBack,
    /// To a peer's memory and from it at once.
    #[serde(rename = "push+pull")]
    #[value(name = "push+pull")]
    PushAndPull,
    /// To the device's own memory and from it at once.
    #[serde(rename = "to+from-device")]
    #[value(name = "to+from-device")]
    ToAndFromDevice,
}

impl Direction {
    /// Returns the directions that are measured at once, each with queues and memory of its own. In this
    /// list, `LocalAndBack` is the way back: its sources are on the NUMA node of `Local`'s destinations, and
    /// its destinations on the node of `Local`'s sources.
    pub(crate) fn parts(self) -> &'static [Self] {
        match self {
            Self::Local => &[Self::Local],
            Self::Push => &[Self::Push],
            Self::Pull => &[Self::Pull],
            Self::ToDevice => &[Self::ToDevice],
            Self::FromDevice => &[Self::FromDevice],
            Self::OnDevice => &[Self::OnDevice],
            Self::LocalAndBack => &[Self::Local, Self::LocalAndBack],
            Self::PushAndPull => &[Self::Push, Self::Pull],
            Self::ToAndFromDevice => &[Self::ToDevice, Self::FromDevice],
        }
    }

    /// Returns the places of the source and of the destination on this side. For two directions, returns the
    /// places of the first. A peer's memory counts as host memory.
    pub(crate) fn places(self) -> (Place, Place) {
        match self {
            Self::Local | Self::LocalAndBack | Self::Push | Self::Pull | Self::PushAndPull => {
                (Place::Host, Place::Host)
            }
            Self::ToDevice | Self::ToAndFromDevice => (Place::Host, Place::Device),
            Self::FromDevice => (Place::Device, Place::Host),
            Self::OnDevice => (Place::Device, Place::Device),
        }
    }

    /// Returns true if the source or the destination is in a device's own memory, which the CPU cannot
    /// access.
    pub(crate) fn has_device_memory(self) -> bool {
        self.places() != (Place::Host, Place::Host)
    }
}

/// The memory that operations use.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Footprint {
    /// One buffer for each operation in flight, used repeatedly. The buffers stay in the caches if these are
    /// large enough.
    Hot,
    /// Consecutive buffers through a large range of memory, which are not in the caches.
    Cold,
    /// Like cold, but in random order.
    Random,
}

/// Displays a value as the command line writes it.
macro_rules! as_written {
    ($($name:ty),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
            }
        }
    )+};
}
as_written!(Op, Direction, Footprint);

/// Extent of verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Some buffers in every sample, outside of the measured time.
    #[default]
    Sample,
    /// Every operation, within the measured time, which lowers the throughput.
    All,
}

/// The owner of the memory that `push` and `pull` reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// Another engine in this process.
    #[default]
    Thread,
    /// Another process.
    Process,
    /// A `dma-bench serve`, here or on another machine.
    Host,
}

/// A `dma-bench serve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub at: String,
    pub secret_file: PathBuf,
}

/// One combination to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The engine's name; `memcpy` for the baseline.
    pub engine: String,
    /// The operation.
    pub op: Op,
    /// Bytes of each operation.
    pub size: u64,
    /// Operations in flight on each queue.
    pub depth: u32,
    /// Operations for each doorbell.
    pub batch: u32,
    /// Queues, each driven by a thread. With two directions at once, the number for each direction.
    pub queues: u32,
    /// Segments on each side of an operation.
    pub segments: u32,
    /// Memory that the operations use.
    pub footprint: Footprint,
    /// Direction of the bytes.
    pub direction: Direction,
}

impl Cell {
    /// Engine name of the baseline.
    pub const BASELINE: &'static str = "memcpy";

    /// Returns the cell of the baseline: [`Op::baseline`] on the same bytes, on one core, one operation at a
    /// time, through the same number of buffers. `None` if the CPU cannot access the bytes.
    pub fn baseline(&self) -> Option<Self> {
        (!self.direction.has_device_memory()).then(|| Self {
            engine: Self::BASELINE.to_owned(),
            depth: if self.footprint == Footprint::Hot { self.depth * self.all_queues() } else { 1 },
            batch: 1,
            queues: 1,
            direction: Direction::Local,
            ..self.clone()
        })
    }

    /// Returns the number of queues of all directions.
    pub(crate) fn all_queues(&self) -> u32 {
        self.queues * self.direction.parts().len() as u32
    }

    /// Returns true if this is the baseline.
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
