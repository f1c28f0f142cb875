//! [`Plan`]: a checked operation. [`QueueCaps`]: the capabilities of a queue.

use super::query::Query;
use crate::{Capabilities, EngineId, Segment};

/// A checked operation.
#[derive(Debug)]
pub(crate) enum Plan {
    /// An operation of 0 bytes, which completes immediately.
    Empty,
    /// A copy with one segment on each side.
    Flat(Segment, Segment),
    /// A copy with lists of segments.
    Lists(Vec<Segment>, Vec<Segment>),
    /// A fill.
    Fill([u8; 8], Vec<Segment>),
    /// A copy to two destinations.
    CopyToBoth(Vec<Segment>, [Vec<Segment>; 2]),
    /// An operation with a result, of any length.
    Query(Query),
}

impl Plan {
    /// Returns the number of bytes that the operation writes, or reads if it writes none. The sum does not
    /// overflow, because [`check`](super::check) refuses lists that are too long.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Flat(_, dst) => dst.len,
            Self::Lists(_, dst) | Self::Fill(_, dst) => dst.iter().map(|s| s.len).sum(),
            Self::CopyToBoth(src, _) => 2 * src.iter().map(|s| s.len).sum::<usize>(),
            Self::Query(query) => query.len(),
        }
    }

    /// Passes the plan's lists to `keep`, for reuse.
    pub(crate) fn discard(self, mut keep: impl FnMut(Vec<Segment>)) {
        match self {
            Self::Empty | Self::Flat(..) => {}
            Self::Lists(src, dst) => {
                keep(src);
                keep(dst);
            }
            Self::Fill(_, dst) => keep(dst),
            Self::CopyToBoth(src, dst) => {
                keep(src);
                dst.into_iter().for_each(keep);
            }
            Self::Query(query) => {
                keep(query.a);
                keep(query.b);
            }
        }
    }
}

/// The capabilities of a queue: the device's capabilities, and whether the queue has a bounce buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueCaps {
    pub(crate) engine: EngineId,
    pub(crate) capabilities: Capabilities,
    /// True if the queue has a bounce buffer.
    pub(crate) has_bounce_buffer: bool,
}

impl QueueCaps {
    /// Returns whether the queue can fill, natively or by copies.
    pub(crate) const fn can_fill(self) -> bool {
        self.capabilities.contains(Capabilities::FILL) || self.has_bounce_buffer
    }

    /// Returns whether the queue can execute an operation with a result, natively or by the CPU.
    pub(crate) const fn can_answer(self, query: &Query) -> bool {
        self.capabilities.contains(query.kind.capability()) || query.is_reachable() || self.has_bounce_buffer
    }
}
