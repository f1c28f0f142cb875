//! [`Places`]: the operands of all operations that can be in flight at once.

use std::ops::Range;

use dma::contract::{Descriptor, Segment};
use dma::{Capabilities, EngineInfo, Limits};

use super::CellError;
use super::buffers::Buffers;
use super::free::FreePlaces;
use crate::plan::{Cell, Op};
use crate::run::layout::Layout;
use crate::run::memory::{Memory, PATTERN};

/// The `depth` places of a queue. Each place has its own buffers and holds one operation in flight.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) buffers: Buffers,
    pub(super) all: Vec<Place>,
    /// The descriptor of each place, if an operation is one descriptor without lists.
    pub(super) ready: Vec<Descriptor<'static>>,
    pub(super) free: FreePlaces,
    /// For each place, true if an operation is in flight.
    pub(super) in_flight: Vec<bool>,
    /// Number of descriptors of one operation.
    pub(super) pieces: usize,
    /// Maximum number of bytes of one descriptor.
    pub(super) max_piece: usize,
}

impl Places {
    /// Creates the places of a cell, whose operations have `pieces` descriptors of at most `max_piece` bytes.
    pub(super) fn new(
        cell: &Cell,
        memory: Memory,
        layout: Layout,
        (pieces, max_piece): (usize, usize),
    ) -> Self {
        let (buffers, depth) = (Buffers { memory, layout, op: cell.op }, cell.depth as usize);
        let all: Vec<Place> = (0..depth).map(|index| Place::new(&buffers, cell, index)).collect();
        let ready = (0_u64..).zip(&all).map(|(token, place)| place.descriptor(cell.op, token)).collect();
        let (free, in_flight) = (FreePlaces::new(cell.depth), vec![false; depth]);
        Self { buffers, all, ready, free, in_flight, pieces, max_piece }
    }

    /// Moves the buffers to another layout. No operation may be in flight.
    pub(super) fn move_to(&mut self, cell: &Cell, layout: Layout) {
        self.buffers.layout = layout;
        self.free = FreePlaces::new(cell.depth);
        for (index, (place, ready)) in self.all.iter_mut().zip(&mut self.ready).enumerate() {
            *place = Place::new(&self.buffers, cell, index);
            *ready = place.descriptor(cell.op, ready.token());
        }
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.all.len() as u32
    }

    /// Returns the current buffer of each place.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        self.all.iter().map(|place| place.index)
    }

    /// Returns the buffers of the next operations, in the order of submission.
    pub(super) fn next_buffers(&self) -> impl Iterator<Item = usize> {
        let next = |place| self.buffers.layout.next(self.all[place as usize].index, self.all.len());
        self.free.iter().map(next)
    }

    /// Takes the `count` places that became free first, if they are consecutive, and moves them on to their
    /// next buffers.
    #[inline]
    pub(super) fn take_row(&mut self, count: u32) -> Option<Range<usize>> {
        let row = self.free.take_row(count)?;
        let row = row.start as usize..row.end as usize;
        self.occupy(row.clone());
        Some(row)
    }

    /// Takes the place that became free first, and moves it on to its next buffer.
    pub(super) fn take(&mut self) -> Option<usize> {
        let place = self.free.take()? as usize;
        self.occupy(place..place + 1);
        self.all[place].pieces_left = self.pieces as u32;
        Some(place)
    }

    #[inline]
    fn occupy(&mut self, row: Range<usize>) {
        if self.buffers.layout.rotates() {
            for (place, descriptor) in self.all[row.clone()].iter_mut().zip(&mut self.ready[row.clone()]) {
                place.advance(&self.buffers);
                *descriptor = place.descriptor(self.buffers.op, descriptor.token());
            }
        }
        self.in_flight[row].fill(true);
    }

    /// Takes all places, without moving them on to their next buffers.
    pub(super) fn take_all(&mut self) {
        self.free.take_all();
        self.in_flight.fill(true);
    }

    /// Returns true if an operation is in flight at each of these places.
    #[inline]
    pub(super) fn are_in_flight(&self, row: &Range<u32>) -> bool {
        self.in_flight[row.start as usize..row.end as usize].iter().all(|in_flight| *in_flight)
    }

    /// Frees places.
    #[inline]
    pub(super) fn put(&mut self, row: Range<u32>) {
        self.in_flight[row.start as usize..row.end as usize].fill(false);
        self.free.put(row);
    }
}

/// The operands of one of the operations that can be in flight at once.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) src: Segment,
    pub(super) dst: Segment,
    /// The current buffer.
    pub(super) index: usize,
    /// Descriptors of the operation that have not completed.
    pub(super) pieces_left: u32,
    pub(super) lists: (Vec<Segment>, Vec<Segment>),
    /// The two destinations of a `copy-to-both`.
    pub(super) both: [Segment; 2],
}

impl Place {
    fn new(buffers: &Buffers, cell: &Cell, index: usize) -> Self {
        let Buffers { memory, layout, op } = buffers;
        let (at, segments) = (layout.at(index), cell.segments as usize);
        let lists = match op {
            Op::Sg => (segments, segments),
            Op::Gather => (segments, 1),
            Op::Scatter => (1, segments),
            _ => (0, 0),
        };
        let len = if op.has_segments() { 1 } else { layout.size() };
        let (src, dst) = (memory.src(at.src, len), memory.dst(at.dst, len));
        let lists = (vec![src; lists.0], vec![dst; lists.1]);
        let mut place = Self { src, dst, index, pieces_left: 0, lists, both: [dst; 2] };
        place.update_lists(buffers);
        place.update_both(layout);
        place
    }

    /// Updates the pair of destinations, if the operation has two destinations.
    #[inline]
    fn update_both(&mut self, layout: &Layout) {
        if let Some(distance) = layout.second_dst() {
            self.both = [self.dst, Segment { addr: self.dst.addr.offset(distance), ..self.dst }];
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

    /// Moves this place on to its next buffer.
    #[inline]
    fn advance(&mut self, buffers: &Buffers) {
        let Buffers { memory, layout, .. } = buffers;
        self.index = layout.next(self.index, layout.depth());
        if self.lists.0.is_empty() {
            let at = layout.at(self.index);
            (self.src, self.dst) = (memory.src(at.src, self.src.len), memory.dst(at.dst, self.dst.len));
            self.update_both(layout);
        } else {
            self.update_lists(buffers);
        }
    }

    /// Updates the segment lists. The only segment of a list of one is the whole buffer.
    fn update_lists(&mut self, Buffers { memory, layout, .. }: &Buffers) {
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

/// Returns the number of descriptors for an operation of the cell, and the maximum number of bytes of each.
/// Fails with [`CellError::Unsupported`] if the engine cannot do the operation.
pub(super) fn pieces(info: &EngineInfo, cell: &Cell) -> Result<(usize, usize), CellError> {
    let Limits { max_transfer, max_segments, max_queue_depth, .. } = info.limits;
    let pieces = cell.size.div_ceil(max_transfer).max(1);
    let unsupported = |what: String| Err(CellError::Unsupported(what));
    let capability = match cell.op {
        Op::Compare => Capabilities::COMPARE,
        Op::Crc32c => Capabilities::CRC32C,
        Op::CopyCrc32c => Capabilities::COPY_CRC32C,
        Op::CopyToBoth => Capabilities::COPY_TO_BOTH,
        _ => Capabilities::empty(),
    };
    if !info.capabilities.contains(capability) {
        let supplied = match cell.op {
            Op::CopyToBoth => "executes it as two copies",
            _ => "executes it on one CPU core",
        };
        return unsupported(format!("this device has no {}; `dma::Queue` {supplied}", cell.op));
    }
    match cell.op {
        Op::Fill if !info.capabilities.contains(Capabilities::FILL) => {
            unsupported("this device has no fill".to_owned())
        }
        op if op.has_segments() && cell.segments as usize > max_segments => {
            unsupported(format!("{} segments; this device supports at most {max_segments}", cell.segments))
        }
        // Each piece of a fill restarts the pattern, so the length of a piece must be a multiple of the
        // pattern's length.
        Op::Fill
            if pieces > 1
                && (!max_transfer.is_multiple_of(PATTERN.len() as u64)
                    || pieces.saturating_mul(cell.depth.into()) > max_queue_depth as u64) =>
        {
            unsupported(format!(
                "an operation of {} B; this device supports at most {max_transfer}",
                cell.size
            ))
        }
        op if pieces > 1 && (op.has_segments() || !capability.is_empty()) => unsupported(format!(
            "an operation of {} B; this device supports at most {max_transfer}",
            cell.size
        )),
        _ => Ok((pieces as usize, usize::try_from(max_transfer).unwrap_or(usize::MAX))),
    }
}
