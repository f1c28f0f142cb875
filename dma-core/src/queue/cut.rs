//! Cutting operations into descriptors that the device takes.

use crate::{Listed, Segment};

/// An operation that is handed to the device piece by piece: too long, too many segments, or waiting for its turn.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The operation's slot and its index in a batch, as in its descriptors' tokens.
    pub(crate) token: u64,
    /// Nothing of it may start before all earlier descriptors have completed.
    pub(crate) fence: Fence,
    work: Work,
    dst: Cursor,
    left: usize,
}

/// How far an operation's fence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// None, or taken care of.
    Clear,
    /// The device keeps it: the first descriptor carries it.
    Device,
    /// The device cannot: hold the operation back until nothing is in flight.
    Drain,
}

/// What is done to the destination.
#[derive(Debug)]
enum Work {
    Copy(Cursor),
    Fill([u8; 8]),
    /// Fill by copying out of a block that is to hold the pattern over and over; its length is a multiple of 8.
    FillFrom {
        pattern: [u8; 8],
        block: Segment,
        phase: usize,
    },
}

/// A position in a list of segments.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    list: Vec<Segment>,
    at: usize,
    /// Bytes of `list[at]` that are done.
    done: usize,
}

impl Cursor {
    fn new(list: Vec<Segment>) -> Self {
        Self { list, at: 0, done: 0 }
    }

    /// The bytes that the next `max` segments hold, or `limit` if they hold more.
    fn reach(&self, max: usize, limit: usize) -> usize {
        let mut bytes = 0;
        for (i, segment) in self.list[self.at..].iter().take(max).enumerate() {
            bytes += segment.len - if i == 0 { self.done } else { 0 };
            if bytes >= limit {
                return limit;
            }
        }
        bytes
    }

    /// Appends the next `bytes` to `out` as segments, without moving on.
    fn peek(&self, mut bytes: usize, out: &mut Vec<Segment>) {
        let (mut at, mut done) = (self.at, self.done);
        while bytes > 0 {
            let segment = self.list[at];
            let n = bytes.min(segment.len - done);
            out.push(Segment {
                key: segment.key,
                // Not `add`: the address may be a device's, which Rust knows nothing of.
                addr: segment.addr.map_addr(|addr| addr.saturating_add(done)),
                len: n,
            });
            bytes -= n;
            at += 1;
            done = 0;
        }
    }

    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let n = bytes.min(self.list[self.at].len - self.done);
            self.done += n;
            bytes -= n;
            if self.done == self.list[self.at].len {
                self.at += 1;
                self.done = 0;
            }
        }
    }
}

/// The segments of one piece, kept from piece to piece so that cutting allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    src: Vec<Segment>,
    dst: Vec<Segment>,
    pattern: Option<[u8; 8]>,
    len: usize,
}

impl Piece {
    /// What the descriptor for this piece asks.
    pub(crate) fn listed(&self) -> Listed<'_> {
        match self.pattern {
            Some(pattern) => Listed::Fill { pattern, dst: &self.dst },
            None => Listed::Copy { src: &self.src, dst: &self.dst },
        }
    }
}

impl Staged {
    /// A copy of `left` bytes, which both lists hold; segments may be of any length, even 0.
    pub(crate) fn copy(token: u64, fence: Fence, mut src: Vec<Segment>, mut dst: Vec<Segment>) -> Self {
        src.retain(|s| s.len > 0);
        dst.retain(|s| s.len > 0);
        let left = dst.iter().map(|s| s.len).sum();
        Self { token, fence, work: Work::Copy(Cursor::new(src)), dst: Cursor::new(dst), left }
    }

    /// A fill that the device does.
    pub(crate) fn fill(token: u64, fence: Fence, pattern: [u8; 8], mut dst: Vec<Segment>) -> Self {
        dst.retain(|s| s.len > 0);
        let left = dst.iter().map(|s| s.len).sum();
        Self { token, fence, work: Work::Fill(pattern), dst: Cursor::new(dst), left }
    }

    /// A fill by copies out of `block`, which the planner makes hold the pattern before the first piece goes out.
    pub(crate) fn fill_from(
        token: u64,
        fence: Fence,
        pattern: [u8; 8],
        block: Segment,
        mut dst: Vec<Segment>,
    ) -> Self {
        dst.retain(|s| s.len > 0);
        let left = dst.iter().map(|s| s.len).sum();
        Self { token, fence, work: Work::FillFrom { pattern, block, phase: 0 }, dst: Cursor::new(dst), left }
    }

    /// What the block that it copies from must hold, if it is a fill by copies.
    pub(crate) const fn block_pattern(&self) -> Option<[u8; 8]> {
        match self.work {
            Work::FillFrom { pattern, .. } => Some(pattern),
            _ => None,
        }
    }

    /// Whether every byte has been handed over.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// Describes the next piece: as long as the limits and both sides allow. Moves on only by [`advance`](Self::advance).
    pub(crate) fn next_piece(&self, max_transfer: usize, max_segments: usize, piece: &mut Piece) {
        piece.src.clear();
        piece.dst.clear();
        piece.pattern = None;
        let mut len = self.dst.reach(max_segments, self.left.min(max_transfer));
        match &self.work {
            Work::Copy(src) => {
                len = src.reach(max_segments, len);
                src.peek(len, &mut piece.src);
            }
            Work::Fill(pattern) => {
                // Repetitions stay in step: a piece that others follow ends on a whole pattern of the fill where it can,
                // and the pattern is turned where it cannot.
                if len < self.left && len > 8 {
                    len -= len % 8;
                }
                piece.pattern = Some(*pattern);
            }
            Work::FillFrom { block, phase, .. } => {
                len = len.min(block.len - phase);
                piece.src.push(Segment {
                    key: block.key,
                    addr: block.addr.map_addr(|addr| addr.saturating_add(*phase)),
                    len,
                });
            }
        }
        self.dst.peek(len, &mut piece.dst);
        piece.len = len;
    }

    /// The device took `piece`.
    pub(crate) fn advance(&mut self, piece: &Piece) {
        match &mut self.work {
            Work::Copy(src) => src.advance(piece.len),
            Work::Fill(pattern) => pattern.rotate_left(piece.len % 8),
            Work::FillFrom { phase, .. } => *phase = (*phase + piece.len) % 8,
        }
        self.dst.advance(piece.len);
        self.left -= piece.len;
        self.fence = Fence::Clear;
    }

    /// Gives the lists back for reuse.
    pub(crate) fn into_lists(self) -> [Vec<Segment>; 2] {
        let src = match self.work {
            Work::Copy(src) => src.list,
            Work::Fill(_) | Work::FillFrom { .. } => Vec::new(),
        };
        [src, self.dst.list]
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use proptest::prelude::*;

    use super::*;
    use crate::RegionKey;

    /// Segments of these lengths, far enough apart not to touch, in a region of their own.
    fn segments(key: usize, lens: &[usize]) -> Vec<Segment> {
        let mut at = 1 << 20;
        lens.iter()
            .map(|&len| {
                let addr = NonNull::without_provenance(std::num::NonZero::new(at).unwrap());
                at += len + 100;
                Segment { key: RegionKey(key), addr, len }
            })
            .collect()
    }

    fn addresses(list: &[Segment]) -> Vec<usize> {
        list.iter().flat_map(|s| (0..s.len).map(|i| s.addr.as_ptr().addr() + i)).collect()
    }

    /// Cuts `len` bytes at random places.
    fn split(len: usize, cuts: &[prop::sample::Index]) -> Vec<usize> {
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(len + 1)).collect();
        at.extend([0, len]);
        at.sort_unstable();
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
            let mut staged = Staged::copy(0, Fence::Clear, src, dst);
            let (mut piece, mut moved) = (Piece::default(), Vec::new());
            while !staged.is_exhausted() {
                staged.next_piece(max_transfer, max_segments, &mut piece);
                let Listed::Copy { src, dst } = piece.listed() else { panic!("a copy") };
                prop_assert_eq!(addresses(src).len(), addresses(dst).len());
                prop_assert!((1..=max_transfer).contains(&addresses(src).len()));
                prop_assert!(src.len() <= max_segments && dst.len() <= max_segments);
                moved.extend(addresses(src).into_iter().zip(addresses(dst)));
                staged.advance(&piece);
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
            let mut staged = if by_copy {
                Staged::fill_from(0, Fence::Clear, pattern, block, dst)
            } else {
                Staged::fill(0, Fence::Clear, pattern, dst)
            };
            let (mut piece, mut written) = (Piece::default(), Vec::new());
            while !staged.is_exhausted() {
                staged.next_piece(max_transfer, max_segments, &mut piece);
                match piece.listed() {
                    Listed::Fill { pattern, dst } => {
                        prop_assert!(!by_copy && addresses(dst).len() <= max_transfer);
                        written.extend(addresses(dst).into_iter().zip(pattern.into_iter().cycle()));
                    }
                    Listed::Copy { src, dst } => {
                        prop_assert!(by_copy && addresses(dst).len() <= max_transfer);
                        let start = block.addr.as_ptr().addr();
                        let bytes = addresses(src).into_iter().map(|a| {
                            assert!((start..start + block.len).contains(&a), "inside of the block");
                            pattern[(a - start) % 8]
                        });
                        written.extend(addresses(dst).into_iter().zip(bytes));
                    }
                }
                staged.advance(&piece);
            }
            prop_assert_eq!(written, expected);
        }
    }
}
