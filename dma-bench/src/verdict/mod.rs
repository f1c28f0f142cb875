//! Verdicts: they state at which sizes an engine is faster than `memcpy`, as fast, or slower.
//!
//! A verdict follows from confidence intervals of the ratios, not only from medians. The chance that any
//! statement in all verdicts of a run is wrong is at most [`RISK`], of which each size of each curve gets an
//! equal share. A size whose interval allows no answer is "not decided".

pub(crate) mod stats;
#[cfg(test)]
mod tests;
mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::stats::{blocks, interval_in_order};
pub(crate) use self::words::text;
pub(crate) use self::words::{VARIED, class, not_decided, range};
use crate::plan::{Cell, Direction, Footprint, Op};

/// Name of the baseline that was measured on this machine.
pub(crate) const MEMCPY_HERE: &str = "memcpy here";

/// Maximum chance that any verdict of a run is wrong.
pub(crate) const RISK: f64 = 0.001;

/// An interval within this distance of 1 is "as fast", even if it does not contain 1.
pub(crate) const AS_FAST_TOLERANCE: f64 = 0.05;

/// An interval within this distance of 1 is "as fast" if it overlaps the dead zone.
pub(crate) const AS_FAST_AROUND_ONE: f64 = 0.1;

/// Half-width of the dead zone around 1. An interval that overlaps it is neither "faster" nor "slower",
/// because neighbouring samples differ by that much.
const DEAD_ZONE: f64 = 0.01;

/// Maximum number of blocks that a run's samples are grouped into. The number of blocks also does not exceed
/// the number of passes.
const MAX_BLOCKS: usize = 128;

/// Result of comparing an engine with the baseline at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Faster: the whole interval is above 1.01, and not within 5 % of 1.
    Faster,
    /// As fast: the whole interval is within 5 % of 1; or it is within 10 % of 1 and neither above 1.01 nor
    /// below 1 / 1.01.
    AsFast,
    /// Slower: the whole interval is below 1 / 1.01, and not within 5 % of 1.
    Slower,
    /// Not decided: the interval is too wide for the other classes.
    NotDecided,
}

impl Class {
    /// Classifies an interval of the ratio. Without an interval the result is
    /// [`NotDecided`](Self::NotDecided).
    pub fn of(interval: Option<(f64, f64)>) -> Self {
        let Some((low, high)) = interval else { return Self::NotDecided };
        let within = |part: f64| low >= 1.0 / (1.0 + part) && high <= 1.0 + part;
        match () {
            () if within(AS_FAST_TOLERANCE) => Self::AsFast,
            () if low > 1.0 + DEAD_ZONE => Self::Faster,
            () if high < 1.0 / (1.0 + DEAD_ZONE) => Self::Slower,
            () if within(AS_FAST_AROUND_ONE) => Self::AsFast,
            () => Self::NotDecided,
        }
    }
}

/// One size of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Bytes of each operation.
    pub size: u64,
    /// Median of the ratios to the baseline.
    pub ratio: f64,
    /// Lower end of the median's confidence interval; `null` with too few samples.
    pub low: Option<f64>,
    /// Upper end of this interval; `null` with too few samples.
    pub high: Option<f64>,
    /// The class of this interval.
    pub class: Class,
}

/// A curve over the size of operations: the properties that all of its cells share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Curve {
    /// The engine's name.
    pub engine: String,
    /// The operation.
    pub op: Op,
    /// Operations in flight on each queue.
    pub depth: u32,
    /// Operations for each doorbell.
    pub batch: u32,
    /// Queues.
    pub queues: u32,
    /// Segments of each operation.
    pub segments: u32,
    /// Memory that the operations use.
    pub footprint: Footprint,
    /// Direction of the bytes.
    pub direction: Direction,
}

impl Curve {
    /// Returns the curve that a cell belongs to.
    pub fn of(c: &Cell) -> Self {
        Self {
            engine: c.engine.clone(),
            op: c.op,
            depth: c.depth,
            batch: c.batch,
            queues: c.queues,
            segments: c.segments,
            footprint: c.footprint,
            direction: c.direction,
        }
    }
}

/// The verdict on a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The curve.
    #[serde(flatten)]
    pub curve: Curve,
    /// True if the figures are a model's.
    pub model: bool,
    /// The baseline: `memcpy here`, or the CPU that was published with a modelled device.
    pub against: String,
    /// The verdict in words, as in tables and pages.
    pub text: String,
    /// Every size with its interval, ascending.
    pub points: Vec<Point>,
}

impl Verdict {
    /// Creates a verdict from points in any order. `too_few` explains intervals that are missing because of
    /// too few samples, with the remedy.
    pub fn new(curve: Curve, model: bool, against: &str, mut points: Vec<Point>, too_few: &str) -> Self {
        points.sort_by_key(|p| p.size);
        let text = text(&points, too_few);
        Self { curve, model, against: against.to_owned(), text, points }
    }

    /// Returns the point of a size, if the size was measured.
    pub fn at(&self, size: u64) -> Option<&Point> {
        self.points.iter().find(|p| p.size == size)
    }

    /// Returns true if the baseline is this machine's `memcpy`.
    pub fn is_here(&self) -> bool {
        self.against == MEMCPY_HERE
    }
}

/// Returns the point of one size from its ratios in the order of measurement. `passes` is the number of
/// passes in which they were measured. `risk` is the maximum chance that the class is wrong. Returns `None`
/// without ratios.
pub(crate) fn point(size: u64, ratios: &[f64], passes: usize, risk: f64) -> Option<Point> {
    let ratio = crate::verdict::stats::median(ratios)?;
    let interval = interval_in_order(&blocks(ratios, passes.clamp(1, MAX_BLOCKS)), risk);
    let (low, high) = interval.unzip();
    Some(Point { size, ratio, low, high, class: Class::of(interval) })
}
