//! The place where an operation reads and writes.

use dma::Segment;

use crate::layout::Layout;
use crate::memory::Memory;
use crate::plan::{Cell, Op};

/// One of the `depth` operations that can be in flight, with its buffers.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) src: Segment,
    pub(super) dst: Segment,
    pub(super) index: usize,
    /// Descriptors that have not ended.
    pub(super) left: u32,
    pub(super) lists: (Vec<Segment>, Vec<Segment>),
}

impl Place {
    pub(super) fn new(memory: &Memory, layout: &Layout, cell: &Cell, index: usize) -> Self {
        let (at, parts) = (layout.at(index), cell.segments as usize);
        let lists = match cell.op {
            Op::Copy | Op::Fill => (0, 0),
            Op::Sg => (parts, parts),
            Op::Gather => (parts, 1),
            Op::Scatter => (1, parts),
        };
        let len = if cell.op.has_segments() { 1 } else { layout.size() };
        let (src, dst) = (memory.src(at.src, len), memory.dst(at.dst, len));
        let mut place = Self { src, dst, index, left: 0, lists: (vec![src; lists.0], vec![dst; lists.1]) };
        place.list(memory, layout);
        place
    }

    /// Goes on to the place's next buffer.
    #[inline]
    pub(super) fn advance(&mut self, memory: &Memory, layout: &Layout, depth: usize) {
        self.index = layout.next(self.index, depth);
        if self.lists.0.is_empty() {
            let at = layout.at(self.index);
            (self.src, self.dst) = (memory.src(at.src, self.src.len), memory.dst(at.dst, self.dst.len));
        } else {
            self.list(memory, layout);
        }
    }

    /// Writes the segment lists anew. A list of one has the whole buffer.
    fn list(&mut self, memory: &Memory, layout: &Layout) {
        let (from, to) = &mut self.lists;
        let (one, other) = (from.len() == 1, to.len() == 1);
        for (i, (at, len)) in layout.parts(self.index).enumerate() {
            if let Some(segment) = from.get_mut(i) {
                *segment = memory.src(at.src, if one { layout.size() } else { len });
            }
            if let Some(segment) = to.get_mut(i) {
                *segment = memory.dst(at.dst, if other { layout.size() } else { len });
            }
        }
    }
}
