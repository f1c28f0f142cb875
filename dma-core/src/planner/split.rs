//! Splits operations into descriptors that the device accepts.

use super::INITIAL_CAPACITY;
use super::cursor::Cursor;
use super::query::QueryProgress;
use crate::{Descriptor, Segment};

/// An operation that is submitted in chunks, because it is too long, has too many segments, or waits for a
/// fence or for earlier deferred operations.
#[derive(Debug)]
pub(crate) struct DeferredOp {
    /// The token of the operation's descriptors: the slot, and the index in a batch.
    pub(crate) token: u64,
    /// The fence before the first chunk.
    pub(crate) fence: Fence,
    kind: OpKind,
    dst: Cursor,
    left: usize,
}

/// The state of an operation's fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// No fence, or a fence that was submitted.
    Clear,
    /// The first descriptor gets the fence.
    Device,
    /// The device has no fences, so the planner holds the operation back until nothing is in flight.
    Drain,
}

/// The type of operation, with its sources. No segment is empty.
#[derive(Debug)]
pub(crate) enum OpKind {
    Copy(Cursor),
    /// A copy to two destinations, with the source and the second destination.
    CopyToBoth(Cursor, Cursor),
    /// An operation with a result. A query splits itself into chunks, and owns all its lists.
    Query(QueryProgress),
    Fill([u8; 8]),
    /// A fill by copies from a block of memory. The block's length is a multiple of 8. Before the first
    /// chunk, the planner fills the block with the pattern.
    FillFrom {
        pattern: [u8; 8],
        block: Segment,
        phase: usize,
    },
}

/// The segments of one chunk. The value is reused, so that splitting does not allocate.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    src: Vec<Segment>,
    dst: Vec<Segment>,
    pattern: Option<[u8; 8]>,
    /// Both destinations of a copy to two destinations.
    both: Option<[Segment; 2]>,
    len: usize,
}

impl Chunk {
    /// Makes a chunk with memory for some segments, so that the first operations of a queue need none.
    pub(crate) fn with_memory() -> Self {
        let list = || Vec::with_capacity(INITIAL_CAPACITY);
        Self { src: list(), dst: list(), ..Self::default() }
    }

    /// Reserves memory for the chunks of an operation, which have at most `max_segments` segments on each
    /// side. Returns false if there is none.
    pub(crate) fn reserve(&mut self, kind: &OpKind, dst: &[Segment], max_segments: usize) -> bool {
        let sources = match kind {
            OpKind::Copy(src) => src.segments(),
            OpKind::CopyToBoth(..) | OpKind::FillFrom { .. } => 1,
            OpKind::Query(_) | OpKind::Fill(_) => 0,
        };
        self.src.clear();
        self.dst.clear();
        self.src.try_reserve(sources.min(max_segments)).is_ok()
            && self.dst.try_reserve(dst.len().min(max_segments)).is_ok()
    }

    /// Makes the descriptor of this chunk.
    pub(crate) fn descriptor(&self, token: u64) -> Descriptor<'_> {
        if let (Some(both), [src]) = (&self.both, &self.src[..]) {
            return Descriptor::copy_to_both(token, *src, both);
        }
        match (self.pattern, &self.src[..], &self.dst[..]) {
            (Some(pattern), _, dst) => Descriptor::fill(token, pattern, dst),
            (None, &[src], &[dst]) => Descriptor::copy(token, src, dst),
            (None, src, dst) => Descriptor::copy_lists(token, src, dst),
        }
    }
}

impl DeferredOp {
    /// Makes a deferred operation of `kind` with the destination `dst`, whose segments are not empty.
    pub(crate) fn new(token: u64, fence: Fence, kind: OpKind, dst: Vec<Segment>) -> Self {
        let left = dst.iter().map(|s| s.len).sum();
        Self { token, fence, kind, dst: Cursor::new(dst), left }
    }

    /// Returns the query if this is an operation with a result.
    pub(crate) const fn as_query(&mut self) -> Option<&mut QueryProgress> {
        match &mut self.kind {
            OpKind::Query(running) => Some(running),
            _ => None,
        }
    }

    /// Returns whether this is a query that copies to the bounce buffer.
    pub(crate) const fn needs_bounce(&mut self) -> bool {
        match self.as_query() {
            Some(query) => query.needs_bounce(),
            None => false,
        }
    }

    /// For a fill by copies, returns the pattern that the block must contain.
    pub(crate) const fn block_pattern(&self) -> Option<[u8; 8]> {
        match self.kind {
            OpKind::FillFrom { pattern, .. } => Some(pattern),
            _ => None,
        }
    }

    /// Returns whether all bytes have been submitted.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// Writes the next chunk to `chunk`. The chunk is as long as the limits and the segments of both sides
    /// permit. Only [`advance`](Self::advance) changes the position.
    pub(crate) fn next_chunk(&self, max_transfer: usize, max_segments: usize, chunk: &mut Chunk) {
        chunk.src.clear();
        chunk.dst.clear();
        (chunk.pattern, chunk.both) = (None, None);
        let mut len = self.dst.reach(max_segments, self.left.min(max_transfer));
        match &self.kind {
            OpKind::Copy(src) => {
                len = src.reach(max_segments, len);
                src.peek(len, &mut chunk.src);
            }
            OpKind::CopyToBoth(src, also) => {
                len = also.reach(1, src.reach(1, self.dst.reach(1, len)));
                chunk.src.push(src.segment(len));
                chunk.both = Some([self.dst.segment(len), also.segment(len)]);
            }
            OpKind::Query(_) => unreachable!("queries split themselves"),
            OpKind::Fill(pattern) => {
                // If possible, a chunk that is not the last one ends with a complete pattern. Otherwise
                // `advance` rotates the pattern.
                if len < self.left && len > 8 {
                    len -= len % 8;
                }
                chunk.pattern = Some(*pattern);
            }
            OpKind::FillFrom { block, phase, .. } => {
                len = len.min(block.len - phase);
                chunk.src.push(Segment { key: block.key, addr: block.addr.offset(*phase), len });
            }
        }
        self.dst.peek(len, &mut chunk.dst);
        chunk.len = len;
    }

    /// Moves the position past `chunk`, which the device has accepted.
    pub(crate) fn advance(&mut self, chunk: &Chunk) {
        match &mut self.kind {
            OpKind::Copy(src) => src.advance(chunk.len),
            OpKind::CopyToBoth(src, also) => {
                src.advance(chunk.len);
                also.advance(chunk.len);
            }
            OpKind::Query(_) => {}
            OpKind::Fill(pattern) => pattern.rotate_left(chunk.len % 8),
            OpKind::FillFrom { phase, .. } => *phase = (*phase + chunk.len) % 8,
        }
        self.dst.advance(chunk.len);
        self.left -= chunk.len;
        self.fence = Fence::Clear;
    }

    /// Returns the lists for reuse.
    pub(crate) fn into_lists(self) -> [Vec<Segment>; 3] {
        let [src, also] = match self.kind {
            OpKind::Copy(src) => [src.into_list(), Vec::new()],
            OpKind::CopyToBoth(src, also) => [src.into_list(), also.into_list()],
            OpKind::Query(running) => running.into_lists(),
            OpKind::Fill(_) | OpKind::FillFrom { .. } => [Vec::new(), Vec::new()],
        };
        [src, also, self.dst.into_list()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DeviceAddr, Operation, RegionKey};

    /// Makes segments of these lengths in one region. The segments are not adjacent.
    fn segments(key: usize, lens: &[usize]) -> Vec<Segment> {
        let mut at = 1 << 20;
        lens.iter()
            .map(|&len| {
                let addr = DeviceAddr(at);
                at += len as u64 + 100;
                Segment { key: RegionKey(key), addr, len }
            })
            .collect()
    }

    fn addresses(list: &[Segment]) -> Vec<u64> {
        list.iter().flat_map(|s| (0..s.len).map(|i| s.addr.offset(i).0)).collect()
    }

    /// Splits `len` bytes at random places.
    fn split(len: usize, cuts: &[prop::sample::Index]) -> Vec<usize> {
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(len + 1)).collect();
        at.extend([0, len]);
        at.sort_unstable();
        at.dedup();
        at.windows(2).map(|w| w[1] - w[0]).collect()
    }

    proptest! {
        #[test]
        fn pieces_are_the_whole_copy_within_limits(
            len in 1_usize..500,
            src_cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            dst_cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            max_transfer in 1_usize..200,
            max_segments in 1_usize..5,
        ) {
            let src = segments(1, &split(len, &src_cuts));
            let dst = segments(2, &split(len, &dst_cuts));
            let expected: Vec<_> = addresses(&src).into_iter().zip(addresses(&dst)).collect();
            let mut deferred = DeferredOp::new(0, Fence::Clear, OpKind::Copy(Cursor::new(src)), dst);
            let (mut chunk, mut moved) = (Chunk::default(), Vec::new());
            while !deferred.is_exhausted() {
                deferred.next_chunk(max_transfer, max_segments, &mut chunk);
                let (src, dst) = (&chunk.src, &chunk.dst);
                prop_assert_eq!(addresses(src).len(), addresses(dst).len());
                prop_assert!((1..=max_transfer).contains(&addresses(src).len()));
                prop_assert!(src.len() <= max_segments && dst.len() <= max_segments);
                moved.extend(addresses(src).into_iter().zip(addresses(dst)));
                deferred.advance(&chunk);
            }
            prop_assert_eq!(moved, expected);
        }

        #[test]
        fn pieces_of_a_fill_keep_the_pattern_in_step(
            len in 1_usize..300,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            max_transfer in 1_usize..100,
            max_segments in 1_usize..4,
            by_copy in any::<bool>(),
        ) {
            let pattern = *b"01234567";
            let dst = segments(2, &split(len, &cuts));
            let expected: Vec<_> = addresses(&dst).into_iter().zip(pattern.into_iter().cycle()).collect();
            let block = segments(1, &[32])[0];
            let kind =
                if by_copy { OpKind::FillFrom { pattern, block, phase: 0 } } else { OpKind::Fill(pattern) };
            let mut deferred = DeferredOp::new(0, Fence::Clear, kind, dst);
            let (mut chunk, mut written) = (Chunk::default(), Vec::new());
            while !deferred.is_exhausted() {
                deferred.next_chunk(max_transfer, max_segments, &mut chunk);
                match chunk.descriptor(0).operation() {
                    Operation::Fill { pattern, dst } => {
                        prop_assert!(!by_copy && addresses(dst).len() <= max_transfer);
                        written.extend(addresses(dst).into_iter().zip(pattern.into_iter().cycle()));
                    }
                    _ => {
                        let (src, dst) = (&chunk.src, &chunk.dst);
                        prop_assert!(by_copy && addresses(dst).len() <= max_transfer);
                        let start = block.addr.0;
                        let bytes = addresses(src).into_iter().map(|a| {
                            assert!((start..start + block.len as u64).contains(&a), "a chunk of a fill reads only bytes inside the block");
                            pattern[(a - start) as usize % 8]
                        });
                        written.extend(addresses(dst).into_iter().zip(bytes));
                    }
                }
                deferred.advance(&chunk);
            }
            prop_assert_eq!(written, expected);
        }
    }
}
