//! [`Pieces`]: operations of a trace, split into descriptors within the limits of an engine.

use std::ops::Range;

use dma_core::{Descriptor, Limits, Segment};

use crate::record::Kind;

/// Descriptors for one call, with their lists.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    segments: Vec<Segment>,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    fence: bool,
    src: Range<usize>,
    dst: Range<usize>,
}

/// The remainder of a list.
struct Rest<'a> {
    list: &'a [Segment],
    used: usize,
}

impl Rest<'_> {
    fn next(&self) -> Option<Segment> {
        let first = self.list.first()?;
        Some(Segment { addr: first.addr.offset(self.used), len: first.len - self.used, ..*first })
    }

    fn take(&mut self, len: usize) {
        self.used += len;
        if self.list.first().is_some_and(|first| first.len == self.used) {
            (self.list, self.used) = (&self.list[1..], 0);
        }
    }
}

fn behind(last: &Segment, next: &Segment) -> bool {
    last.key == next.key && last.addr.offset(last.len) == next.addr
}

/// Adds a segment, or makes the last one longer.
fn add(list: &mut Vec<Segment>, next: Segment) {
    match list.last_mut() {
        Some(last) if behind(last, &next) => last.len += next.len,
        _ => list.push(next),
    }
}

impl Pieces {
    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.pieces.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Adds an operation, in several pieces if it exceeds the limits.
    pub(super) fn add(&mut self, kind: Kind, fence: bool, src: &[Segment], dst: &[Segment], limits: &Limits) {
        let longest = usize::try_from(limits.max_transfer).unwrap_or(usize::MAX);
        let fits = |list: &[Segment]| list.len() <= limits.max_segments;
        match kind {
            Kind::CopyLists | Kind::Fill => {
                let total = dst.iter().fold(0, |sum: usize, segment| sum.saturating_add(segment.len));
                let lists = kind == Kind::Fill || limits.max_segments > 1;
                if lists && total <= longest && fits(src) && fits(dst) {
                    return self.push(kind, fence, src.iter().copied(), dst.iter().copied());
                }
                self.cut_lists(kind, fence, src, dst, limits.max_segments, longest);
            }
            _ => {
                let len = src[0].len;
                for at in (0..len).step_by(longest) {
                    let part = |all: &Segment| Segment {
                        addr: all.addr.offset(at),
                        len: longest.min(len - at),
                        ..*all
                    };
                    self.push(kind, fence && at == 0, src.iter().map(part), dst.iter().map(part));
                }
            }
        }
    }

    fn push(
        &mut self,
        kind: Kind,
        fence: bool,
        src: impl Iterator<Item = Segment>,
        dst: impl Iterator<Item = Segment>,
    ) {
        let begin = self.segments.len();
        self.segments.extend(src);
        let middle = self.segments.len();
        self.segments.extend(dst);
        self.pieces.push(Piece { kind, fence, src: begin..middle, dst: middle..self.segments.len() });
    }

    fn cut_lists(
        &mut self,
        kind: Kind,
        mut fence: bool,
        src: &[Segment],
        dst: &[Segment],
        segments: usize,
        longest: usize,
    ) {
        let (mut from, mut to) = (Rest { list: src, used: 0 }, Rest { list: dst, used: 0 });
        while to.next().is_some() {
            let (mut src, mut dst) = (Vec::new(), Vec::new());
            let mut total = 0;
            while let Some(next) = to.next() {
                let source = from.next();
                let len = next.len.min(longest - total).min(source.map_or(usize::MAX, |source| source.len));
                let room = |list: &[Segment], next: &Segment| {
                    list.len() < segments || list.last().is_some_and(|last| behind(last, next))
                };
                if len == 0 || !room(&dst, &next) || source.is_some_and(|source| !room(&src, &source)) {
                    break;
                }
                if let Some(source) = source {
                    add(&mut src, Segment { len, ..source });
                    from.take(len);
                }
                add(&mut dst, Segment { len, ..next });
                to.take(len);
                total += len;
            }
            let plain = kind == Kind::CopyLists && src.len() == 1 && dst.len() == 1;
            let kind = if plain { Kind::Copy } else { kind };
            self.push(kind, std::mem::take(&mut fence), src.into_iter(), dst.into_iter());
        }
    }

    /// Returns the kind, source and destination of a piece.
    pub(super) fn operands(&self, piece: usize) -> (Kind, &[Segment], &[Segment]) {
        let Piece { kind, src, dst, .. } = &self.pieces[piece];
        (*kind, &self.segments[src.clone()], &self.segments[dst.clone()])
    }

    /// Makes the descriptors, with tokens from `token` on. Fills have the pattern `byte`.
    pub(super) fn descriptors<'a>(&'a self, token: u64, byte: u8, to: &mut Vec<Descriptor<'a>>) {
        to.extend((token..).zip(0..self.len()).map(|(token, at)| {
            let (kind, src, dst) = self.operands(at);
            let descriptor = match kind {
                Kind::Copy => Descriptor::copy(token, src[0], dst[0]),
                Kind::CopyLists => Descriptor::copy_lists(token, src, dst),
                Kind::Fill => Descriptor::fill(token, [byte; 8], dst),
                Kind::Compare => Descriptor::compare(token, src[0], dst[0]),
                Kind::Crc32c => Descriptor::crc32c(token, src[0], 0),
                Kind::CopyCrc32c => Descriptor::copy_crc32c(token, src[0], dst[0], 0),
                Kind::CopyToBoth => {
                    Descriptor::copy_to_both(token, src[0], dst.first_chunk().expect("it has two"))
                }
            };
            descriptor.with_fence(self.pieces[at].fence)
        }));
    }
}
