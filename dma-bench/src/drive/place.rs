//! Where an operation reads and writes.

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
        let at = layout.at(index);
        // A list of one is a list, too.
        let listed = cell.op == Op::Sg;
        let lists = if listed {
            layout.parts(index).map(|(at, len)| (memory.src(at.src, len), memory.dst(at.dst, len))).unzip()
        } else {
            (Vec::new(), Vec::new())
        };
        let len = if listed { 1 } else { layout.size() };
        Self { src: memory.src(at.src, len), dst: memory.dst(at.dst, len), index, left: 0, lists }
    }

    /// Goes on to the place's next buffer.
    #[inline]
    pub(super) fn advance(&mut self, memory: &Memory, layout: &Layout, depth: usize) {
        self.index = layout.next(self.index, depth);
        let at = layout.at(self.index);
        if self.lists.0.is_empty() {
            (self.src, self.dst) = (memory.src(at.src, self.src.len), memory.dst(at.dst, self.dst.len));
        } else {
            for (i, (at, len)) in layout.parts(self.index).enumerate() {
                (self.lists.0[i], self.lists.1[i]) = (memory.src(at.src, len), memory.dst(at.dst, len));
            }
        }
    }
}
