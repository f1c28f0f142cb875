//! The operands of one operation in flight.

use dma::{Descriptor, Segment};

use crate::layout::Layout;
use crate::memory::Memory;
use crate::plan::{Cell, Op};

/// The operands of one of the `depth` operations that can be in flight at once.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) src: Segment,
    pub(super) dst: Segment,
    pub(super) index: usize,
    /// Descriptors of the operation that have not completed.
    pub(super) left: u32,
    pub(super) lists: (Vec<Segment>, Vec<Segment>),
    /// The destinations of a copy to two.
    pub(super) both: [Segment; 2],
}

impl Place {
    pub(super) fn new(memory: &Memory, layout: &Layout, cell: &Cell, index: usize) -> Self {
        let (at, parts) = (layout.at(index), cell.segments as usize);
        let lists = match cell.op {
            Op::Sg => (parts, parts),
            Op::Gather => (parts, 1),
            Op::Scatter => (1, parts),
            _ => (0, 0),
        };
        let len = if cell.op.has_segments() { 1 } else { layout.size() };
        let (src, dst) = (memory.src(at.src, len), memory.dst(at.dst, len));
        let lists = (vec![src; lists.0], vec![dst; lists.1]);
        let mut place = Self { src, dst, index, left: 0, lists, both: [dst; 2] };
        place.list(memory, layout);
        place.both(layout);
        place
    }

    /// Updates the pair of destinations, if the operation has two.
    #[inline]
    fn both(&mut self, layout: &Layout) {
        if let Some(also) = layout.also() {
            self.both = [self.dst, Segment { addr: self.dst.addr.offset(also), ..self.dst }];
        }
    }

    /// Returns the descriptor of an operation that has no segment lists.
    #[inline]
    pub(super) fn descriptor(&self, op: Op, token: u64) -> Descriptor<'static> {
        match op {
            Op::Compare => Descriptor::compare(token, self.src, self.dst),
            Op::Crc32c => Descriptor::crc32c(token, self.src, 0),
            Op::CopyCrc32c => Descriptor::copy_crc32c(token, self.src, self.dst, 0),
            _ => Descriptor::copy(token, self.src, self.dst),
        }
    }

    /// Moves on to the next buffer of this place.
    #[inline]
    pub(super) fn advance(&mut self, memory: &Memory, layout: &Layout, depth: usize) {
        self.index = layout.next(self.index, depth);
        if self.lists.0.is_empty() {
            let at = layout.at(self.index);
            (self.src, self.dst) = (memory.src(at.src, self.src.len), memory.dst(at.dst, self.dst.len));
            self.both(layout);
        } else {
            self.list(memory, layout);
        }
    }

    /// Updates the segment lists. A list of one segment has the whole buffer.
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
