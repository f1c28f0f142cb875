//! [`Layout`]: the positions of a cell's buffers in memory.

use crate::plan::{Cell, Footprint, Op};

/// The positions of one queue's buffers, and their order.
#[derive(Clone, Debug)]
pub struct Layout {
    base: Offsets,
    stride: usize,
    /// The number of buffers; a multiple of the depth.
    buffers: usize,
    /// The first buffer to use.
    first: usize,
    size: usize,
    segments: usize,
    /// Bytes between the segments of a buffer; 0 on a side with one segment.
    gap: Offsets,
    /// The order of the buffers, if it is random.
    order: Option<Vec<u32>>,
    depth: usize,
    /// Distance from the first destination to the second, if an operation has two.
    second_dst: Option<usize>,
}

/// The point in the run at which a group of cells is measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Number of the pass over all groups.
    pub pass: u32,
    /// Number of passes over single groups so far.
    pub group_pass: u32,
}

/// An offset in the source's memory and an offset in the destination's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Bytes from the start of the source's memory.
    pub src: usize,
    /// Bytes from the start of the destination's memory.
    pub dst: usize,
}

impl Offsets {
    /// Returns both offsets plus `bytes`.
    #[inline]
    pub fn after(self, bytes: usize) -> Self {
        Self { src: self.src + bytes, dst: self.dst + bytes }
    }
}

/// Shifts of buffers are multiples of this number of bytes.
const PAGE: usize = 4096;

/// Step of the sources from pass to pass, as a fraction of the space in which they move: the fractional part
/// of the golden ratio.
const GOLDEN_STEP: f64 = 0.618_033_988_749_895;
/// Step of the destinations from pass to pass, as a fraction of the space in which they move: the fractional
/// part of the silver ratio.
const SILVER_STEP: f64 = std::f64::consts::SQRT_2 - 1.0;

/// Bytes between two segments.
const SEGMENT_GAP: usize = 64;

impl Layout {
    /// Returns the layout of queue number `queue` of a cell. For cold and random operations, each queue has
    /// `footprint` bytes, or more if the depth requires it.
    pub fn new(cell: &Cell, queue: usize, footprint: usize) -> Self {
        let (stride, depth) = (Self::stride(cell), cell.depth as usize);
        let per_place = match cell.footprint {
            Footprint::Hot => 1,
            Footprint::Cold | Footprint::Random => (footprint / stride / depth).max(1),
        };
        let buffers = per_place * depth;
        let order = (cell.footprint == Footprint::Random && per_place > 1).then(|| shuffled(buffers));
        Self {
            base: Offsets { src: 0, dst: 0 }.after(queue * Self::bytes(cell, footprint)),
            stride,
            buffers,
            first: 0,
            size: cell.size as usize,
            segments: cell.segments as usize,
            gap: Offsets {
                src: if cell.op == Op::Scatter { 0 } else { SEGMENT_GAP },
                dst: if cell.op == Op::Gather { 0 } else { SEGMENT_GAP },
            },
            order,
            depth,
            second_dst: (cell.op == Op::CopyToBoth).then(|| Self::area(cell, footprint)),
        }
    }

    /// Moves the buffers for a pass over a group, as far as `free` bytes behind them allow.
    ///
    /// Hot buffers move in each pass. Their pages decide whether they evict each other from a cache, so runs
    /// over many positions differ less than runs with a single good or bad position.
    ///
    /// Cold buffers start at another buffer each time. A pass uses only a part of them. If it were always the
    /// same part, it would stay in the last-level cache.
    ///
    /// Destinations move differently from sources, because the distance between them matters: on a Zen 3,
    /// `memcpy` of hot 4 KiB takes two to three times as long at one of 256 page distances. With a constant
    /// distance, occasionally a whole run would have this distance.
    pub fn in_pass(self, cell: &Cell, position: Position, free: usize) -> Self {
        let Position { pass, group_pass } = position;
        // Multiples of both ratios, and their differences, are spread evenly for any number of multiples.
        let part =
            |number: u32, step: f64, of: usize| ((f64::from(number) * step).fract() * of as f64) as usize;
        let shift = |number, step| part(number, step, free / PAGE + 1) * PAGE;
        let Offsets { src, dst } = self.base;
        match cell.footprint {
            Footprint::Hot => {
                let base =
                    Offsets { src: src + shift(pass, GOLDEN_STEP), dst: dst + shift(pass, SILVER_STEP) };
                Self { base, ..self }
            }
            Footprint::Cold | Footprint::Random => {
                let base = Offsets { src, dst: dst + shift(group_pass, SILVER_STEP) };
                Self { base, first: part(group_pass, GOLDEN_STEP, self.buffers), ..self }
            }
        }
    }

    /// Returns the bytes of memory that each queue of a cell needs on one side.
    pub fn bytes(cell: &Cell, footprint: usize) -> usize {
        // Second destinations lie behind all first destinations, at the same offsets in their pages, as DSA
        // requires.
        Self::area(cell, footprint) * if cell.op == Op::CopyToBoth { 2 } else { 1 }
    }

    /// Returns the number of bytes of a queue's buffers on one side, without second destinations.
    fn area(cell: &Cell, footprint: usize) -> usize {
        let least = Self::stride(cell) * cell.depth as usize;
        match cell.footprint {
            Footprint::Hot => least,
            Footprint::Cold | Footprint::Random => least.max(footprint),
        }
        .next_multiple_of(PAGE)
    }

    fn stride(cell: &Cell) -> usize {
        (cell.size as usize + (cell.segments as usize - 1) * SEGMENT_GAP).next_multiple_of(64)
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of buffers.
    pub fn buffers(&self) -> usize {
        self.buffers
    }

    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns true if a place has more than one buffer.
    #[inline]
    pub fn rotates(&self) -> bool {
        self.buffers > self.depth
    }

    /// Returns the buffer that follows `index` at the same place.
    #[inline]
    pub fn next(&self, index: usize, depth: usize) -> usize {
        let next = index + depth;
        if next < self.buffers { next } else { next - self.buffers }
    }

    /// Returns the positions of the source and the destination of buffer `index`.
    #[inline]
    pub fn at(&self, index: usize) -> Offsets {
        let index = index + self.first;
        let index = if index < self.buffers { index } else { index - self.buffers };
        let buffer = match &self.order {
            None => index,
            Some(order) => order[index] as usize,
        };
        self.base.after(buffer * self.stride)
    }

    /// Returns the distance from the first destination to the second, if an operation has two.
    #[inline]
    pub fn second_dst(&self) -> Option<usize> {
        self.second_dst
    }

    /// Returns the positions and lengths of the segments of buffer `index`.
    pub fn parts(&self, index: usize) -> impl Iterator<Item = (Offsets, usize)> {
        let (at, each, n) = (self.at(index), self.size / self.segments, self.segments);
        let (last, gap) = (self.size - each * (n - 1), self.gap);
        let part = move |i: usize| Offsets {
            src: at.src + i * (each + gap.src),
            dst: at.dst + i * (each + gap.dst),
        };
        (0..n).map(move |i| (part(i), if i + 1 == n { last } else { each }))
    }
}

/// Returns the numbers below `n` in a pseudo-random order that is always the same.
fn shuffled(n: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    for i in (1..n).rev() {
        // The generator is xorshift64*, which is random enough to spread accesses.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        order.swap(i, random as usize % (i + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Direction, Op};

    /// Returns the number of different values.
    fn different(all: impl Iterator<Item = usize>) -> usize {
        all.collect::<std::collections::HashSet<_>>().len()
    }

    #[test]
    fn buffers_lie_elsewhere_in_each_pass_and_never_outside() {
        let mut cell = Cell {
            engine: "cpu".to_owned(),
            op: Op::Copy,
            size: 5000,
            depth: 2,
            batch: 1,
            queues: 1,
            segments: 1,
            footprint: Footprint::Hot,
            direction: Direction::Local,
        };
        let bytes = Layout::bytes(&cell, 0);
        for free in [0, 4095, 4096, 1 << 20] {
            let place =
                |pass| Layout::new(&cell, 0, 0).in_pass(&cell, Position { pass, group_pass: 3 }, free).at(0);
            let places: Vec<Offsets> = (0..24).map(place).collect();
            let within = |at: usize| at.is_multiple_of(PAGE) && at + bytes <= bytes + free;
            assert!(places.iter().all(|at| within(at.src) && within(at.dst)), "{free}: {places:?}");
            let all = 24.min(free / PAGE + 1);
            for of in
                [|at: &Offsets| at.src, |at: &Offsets| at.dst, |at: &Offsets| at.dst.wrapping_sub(at.src)]
            {
                // Neighbours may have slightly more distances than there are places.
                let some = different(places.iter().map(of));
                assert!(some == all || (free == 4096 && some <= 3), "{free}: {places:?}");
            }
        }
        for footprint in [Footprint::Cold, Footprint::Random] {
            cell.footprint = footprint;
            let bytes = Layout::bytes(&cell, 1 << 20);
            let layout = |group_pass| {
                Layout::new(&cell, 0, 1 << 20).in_pass(&cell, Position { pass: 7, group_pass }, 1 << 20)
            };
            let begins: Vec<Offsets> = (0..100).map(|number| layout(number).at(0)).collect();
            assert_eq!(different(begins.iter().map(|at| at.src)), 100, "{footprint}");
            let apart = different(begins.iter().map(|at| at.dst.wrapping_sub(at.src)));
            assert!(apart > 80, "{footprint}: {apart} distances");
            for number in 0..100 {
                let layout = layout(number);
                let mut ends = (0..layout.buffers()).map(|index| layout.at(index).after(5000));
                assert!(ends.all(|end| end.src <= bytes && end.dst <= bytes + (1 << 20)));
            }
            // A pass does not begin in the same tenth of the memory as any of the five previous passes.
            let part = |number: u32| {
                let Layout { first, buffers, .. } = layout(number);
                first as f64 / buffers as f64
            };
            for (number, before) in (5..100).flat_map(|number| (1..=5).map(move |by| (number, number - by))) {
                let apart = (part(number) - part(before)).rem_euclid(1.0);
                assert!(apart > 0.085 && apart < 0.915, "{number} {before}: {apart}");
            }
        }
    }

    #[test]
    fn buffers_never_overlap_and_places_keep_to_theirs() {
        for footprint in [Footprint::Hot, Footprint::Cold, Footprint::Random] {
            for (size, depth, segments) in
                [(1, 1, 1), (100, 3, 4), (4096, 32, 1), (65_536, 5, 7), (10, 2, 10)]
            {
                let cell = Cell {
                    engine: "cpu".to_owned(),
                    op: Op::Copy,
                    size,
                    depth,
                    batch: 1,
                    queues: 2,
                    segments,
                    footprint,
                    direction: Direction::Local,
                };
                let (bytes, free) = (Layout::bytes(&cell, 300_000), 1 << 20);
                let (mut used, mut written) = (Vec::new(), Vec::new());
                for queue in 0..2 {
                    let layout = Layout::new(&cell, queue, 300_000).in_pass(
                        &cell,
                        Position { pass: 3, group_pass: 5 },
                        free,
                    );
                    for place in 0..depth as usize {
                        let mut index = place;
                        loop {
                            assert_eq!(
                                index % depth as usize,
                                place,
                                "no place uses a buffer of another place"
                            );
                            let parts: Vec<_> = layout.parts(index).collect();
                            assert_eq!(parts.iter().map(|p| p.1).sum::<usize>(), size as usize);
                            let most = bytes * (queue + 1) + free;
                            assert!(
                                parts.iter().all(|p| p.0.src.max(p.0.dst) + p.1 <= most),
                                "the buffer is within its queue's part"
                            );
                            used.extend(parts.iter().map(|p| (p.0.src, p.1)));
                            written.extend(parts.iter().map(|p| (p.0.dst, p.1)));
                            index = layout.next(index, depth as usize);
                            if index == place {
                                break;
                            }
                        }
                    }
                    assert_eq!(layout.rotates(), used.len() > (queue + 1) * (depth * segments) as usize);
                }
                for used in [&mut used, &mut written] {
                    used.sort_unstable();
                    assert!(used.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{footprint} {size} {depth}");
                }
            }
        }
    }
}
