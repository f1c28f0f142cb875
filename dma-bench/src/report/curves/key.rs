//! [`Key`]: what the cells of one plot have in common, in words and in names of files.

use std::fmt::Write as _;

use crate::plan::{Direction, Footprint, Op};
use crate::results::Measured;

/// What the cells of one plot have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) model: bool,
    pub(super) op: Op,
    pub(super) direction: Direction,
    pub(super) footprint: Footprint,
    /// Of gathers; none where the plot is over these.
    pub(super) segments: Option<u32>,
}

impl Key {
    pub(super) fn of(m: &Measured) -> Self {
        let c = &m.cell;
        Self {
            model: m.model,
            op: c.op,
            direction: c.direction,
            footprint: c.footprint,
            segments: Some(c.segments),
        }
    }

    /// Whether it is a cell of this plot.
    pub(super) fn has(&self, m: &Measured) -> bool {
        let key = Self::of(m);
        let segments = self.segments.or(key.segments);
        !m.cell.is_baseline() && key == Self { segments, ..*self }
    }

    /// Whether a baseline belongs to it, whatever its direction.
    pub(super) fn has_baseline(&self, m: &Measured) -> bool {
        let c = &m.cell;
        c.is_baseline()
            && c.op == self.op
            && c.footprint == self.footprint
            && Some(c.segments) == self.segments
    }

    pub(super) fn words(&self) -> String {
        let mut words = match self.op {
            Op::Copy => "copies".to_owned(),
            Op::Fill => "fills".to_owned(),
            Op::Sg => self
                .segments
                .map_or("gathers".to_owned(), |segments| format!("gathers of {segments} segments")),
        };
        if !self.model {
            let _ = write!(words, ", {}", self.footprint);
        }
        match self.direction {
            Direction::Local => {}
            Direction::Push => words.push_str(", to a peer"),
            Direction::Pull => words.push_str(", from a peer"),
        }
        if self.model {
            words.push_str(" (models)");
        }
        words
    }

    pub(super) fn id(&self, what: &str) -> String {
        let model = if self.model { "model-" } else { "" };
        let segments = self.segments.map_or(String::new(), |segments| format!("-{segments}"));
        format!("{model}{what}-{}-{}-{}{segments}", self.op, self.direction, self.footprint)
    }

    pub(super) fn note(&self, band: &str) -> String {
        if self.model {
            "MODEL: a simulated device, not a measurement. memcpy was measured on this machine.".to_owned()
        } else {
            band.to_owned()
        }
    }
}
