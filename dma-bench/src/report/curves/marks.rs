//! Marks where engines overtake memcpy.

use super::key::Key;
use crate::derive::HERE;
use crate::output::{crossover_at, curve};
use crate::plan::{Cell, Direction, Op};
use crate::report::plot::Plot;
use crate::results::Results;

/// Marks where engines overtake memcpy.
pub(super) fn mark(plot: &mut Plot, results: &Results, key: Key) {
    if key.op != Op::Copy || key.direction != Direction::Local {
        return;
    }
    for c in &results.crossovers {
        let (Some(at), false) = (c.bytes, c.always) else { continue };
        if c.model != key.model || c.footprint != key.footprint || c.against != HERE {
            continue;
        }
        let like = Cell {
            engine: c.engine.clone(),
            op: key.op,
            size: 0,
            depth: c.depth,
            batch: c.batch,
            queues: c.queues,
            segments: 1,
            footprint: c.footprint,
            direction: key.direction,
        };
        let name = curve(&like);
        if let Some(curve) = plot.series.iter().position(|s| s.name == name) {
            plot.marks.push((at, crossover_at(c), curve));
        }
    }
    plot.marks.sort_by(|a, b| a.0.total_cmp(&b.0));
}
