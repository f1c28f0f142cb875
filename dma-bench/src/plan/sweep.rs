//! [`Sweep`]: all combinations of its values are measured. [`Values`]: numbers as command lines and files
//! contain them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cell, Direction, Footprint, Op, OpSpec};
use crate::units;

/// Values to measure: a number, a list, or a range such as `64..2M`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Values(pub Vec<u64>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number, a list, or a text such as \"64..2M\"")]
        enum Written {
            Number(u64),
            Text(String),
            List(Vec<Self>),
        }
        fn read(written: &Written) -> Result<Vec<u64>, String> {
            match written {
                Written::Number(n) => units::list(&n.to_string()),
                Written::Text(text) => units::list(text),
                Written::List(list) => {
                    let mut all = Vec::new();
                    for item in list {
                        all.extend(read(item)?);
                    }
                    all.sort_unstable();
                    all.dedup();
                    if all.is_empty() { Err("an empty list".to_owned()) } else { Ok(all) }
                }
            }
        }
        read(&Written::deserialize(from)?).map(Self).map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for Values {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        units::list(text).map(Self)
    }
}

/// A sweep: every combination of its values is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sweep {
    /// The engines, by name; empty for all engines of the campaign.
    pub engines: Vec<String>,
    /// The operations.
    pub ops: Vec<OpSpec>,
    /// Bytes of each operation.
    pub sizes: Values,
    /// Operations in flight on each queue.
    pub depths: Values,
    /// Operations for each doorbell. Default: half the depth.
    pub batches: Option<Values>,
    /// Queues, each driven by a thread. With two directions at once, the number for each direction.
    pub queues: Values,
    /// Segments of operations with several segments, if the operation does not set the number.
    pub segments: Values,
    /// Memory that the operations use.
    pub footprints: Vec<Footprint>,
    /// Directions of the bytes.
    pub directions: Vec<Direction>,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            engines: Vec::new(),
            ops: vec![Op::Copy.into()],
            sizes: Values(vec![4096]),
            depths: Values(vec![32]),
            batches: None,
            queues: Values(vec![1]),
            segments: Values(vec![4]),
            footprints: vec![Footprint::Cold],
            directions: vec![Direction::Local],
        }
    }
}

impl Sweep {
    /// Returns every combination. Some may occur twice, because a batch is limited to the depth.
    pub(super) fn cells(&self, engines: &[String]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &OpSpec { op, segments } in &self.ops {
            let segments = match segments {
                Some(n) => vec![u64::from(n)],
                None if op.has_segments() => self.segments.0.clone(),
                None => vec![1],
            };
            for &footprint in &self.footprints {
                for &direction in &self.directions {
                    for &segments in &segments {
                        for &size in &self.sizes.0 {
                            let like = Cell {
                                engine: String::new(),
                                op,
                                size,
                                depth: 1,
                                batch: 1,
                                queues: 1,
                                segments: segments.min(size) as u32,
                                footprint,
                                direction,
                            };
                            self.of_size(&like, engines, &mut cells);
                        }
                    }
                }
            }
        }
        cells
    }

    fn of_size(&self, like: &Cell, engines: &[String], cells: &mut Vec<Cell>) {
        for &queues in &self.queues.0 {
            for &depth in &self.depths.0 {
                let batches = match &self.batches {
                    Some(batches) => batches.0.clone(),
                    None => vec![(depth / 2).max(1)],
                };
                for batch in batches {
                    for engine in engines {
                        if !self.engines.is_empty() && !self.engines.contains(engine) {
                            continue;
                        }
                        cells.push(Cell {
                            engine: engine.clone(),
                            depth: depth as u32,
                            batch: batch.min(depth) as u32,
                            queues: queues as u32,
                            ..like.clone()
                        });
                    }
                }
            }
        }
    }
}
