//! What is refused before anything reaches a device.

use super::planner::Plan;
use crate::operand::sealed::Operand;
use crate::region::Range;
use crate::{Access, EngineId, Error, ErrorKind, Result, Segment};

/// Whether a copy of one range to another is right, and has 1 to `max` bytes. If not, [`flat`] or the planner says why.
#[inline]
pub(crate) fn is_plain<D: Operand>(engine: EngineId, src: &Range, dst: &Range, max: usize) -> bool {
    let granted = grants(engine, src, Access::READ) & grants(engine, dst, Access::WRITE);
    let (s, d) = (src.ptr.as_ptr().addr(), dst.ptr.as_ptr().addr());
    let disjoint = D::UNIQUE || !(s < d + dst.len && d < s + src.len);
    granted & (src.len == dst.len) & (dst.len.wrapping_sub(1) < max) & disjoint
}

/// Whether `range` belongs to `engine` and grants `access`.
#[inline]
fn grants(engine: EngineId, range: &Range, access: Access) -> bool {
    // With the other rights added, it must be the engine with all of them.
    range.region.0.tag | u64::from(access.complement().bits()) == engine.tag(Access::all())
}

/// Checks a copy of one range to another; returns its length.
#[inline]
pub(crate) fn flat<D: Operand>(engine: EngineId, src: &Range, dst: &Range) -> Result<usize> {
    check_range(engine, src, Access::READ)?;
    check_range(engine, dst, Access::WRITE)?;
    if src.len != dst.len {
        return Err(lengths_differ(src.len, dst.len));
    }
    if !D::UNIQUE {
        let (s, d) = (src.ptr.as_ptr().addr(), dst.ptr.as_ptr().addr());
        if s < d + dst.len && d < s + src.len {
            return Err(overlap(s.max(d), (s + src.len).min(d + dst.len), false));
        }
    }
    Ok(dst.len)
}

/// Checks a copy of any shape.
pub(crate) fn copy<S: Operand, D: Operand>(
    engine: EngineId,
    src: &S,
    dst: &D,
    lists: &mut Lists,
) -> Result<Plan> {
    if !(S::SINGLE && D::SINGLE) {
        return copy_lists(engine, src, dst, lists);
    }
    let (src, dst) = (src.single(), dst.single());
    Ok(match flat::<D>(engine, src, dst)? {
        0 => Plan::Empty,
        _ => Plan::Flat(src.segment(), dst.segment()),
    })
}

fn copy_lists<S: Operand, D: Operand>(engine: EngineId, src: &S, dst: &D, lists: &mut Lists) -> Result<Plan> {
    let (mut from, mut to) = (lists.take(), lists.take());
    let checked = gather(engine, src, Access::READ, &mut from).and_then(|src_len| {
        let dst_len = gather(engine, dst, Access::WRITE, &mut to)?;
        if src_len != dst_len {
            return Err(lengths_differ(src_len, dst_len));
        }
        if !D::UNIQUE {
            disjoint(&from, &to, &mut lists.ranges)?;
        }
        Ok(dst_len)
    });
    match checked {
        Ok(1..) => Ok(Plan::Lists(from, to)),
        Ok(0) => {
            lists.keep(from);
            lists.keep(to);
            Ok(Plan::Empty)
        }
        Err(e) => {
            lists.keep(from);
            lists.keep(to);
            Err(e)
        }
    }
}

/// Checks a fill.
pub(crate) fn fill<D: Operand>(
    engine: EngineId,
    dst: &D,
    pattern: [u8; 8],
    lists: &mut Lists,
) -> Result<Plan> {
    let mut to = lists.take();
    let checked = gather(engine, dst, Access::WRITE, &mut to).and_then(|len| {
        if !D::UNIQUE {
            disjoint(&[], &to, &mut lists.ranges)?;
        }
        Ok(len)
    });
    match checked {
        Ok(1..) => Ok(Plan::Fill(pattern, to)),
        Ok(0) => {
            lists.keep(to);
            Ok(Plan::Empty)
        }
        Err(e) => {
            lists.keep(to);
            Err(e)
        }
    }
}

/// Vectors for lists of segments, kept for reuse so that operations allocate nothing once warm.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    spare: Vec<Vec<Segment>>,
    ranges: Vec<(usize, usize, bool)>,
}

impl Lists {
    /// As many as are worth keeping.
    const MOST: usize = 64;

    pub(crate) fn take(&mut self) -> Vec<Segment> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Takes over the vectors of `other`.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        while self.spare.len() < Self::MOST
            && let Some(list) = other.spare.pop()
        {
            self.spare.push(list);
        }
    }

    pub(crate) fn keep(&mut self, mut list: Vec<Segment>) {
        if list.capacity() > 0 && self.spare.len() < Self::MOST {
            list.clear();
            self.spare.push(list);
        }
    }
}

/// Checks that `range` belongs to `engine` and grants `access`.
#[inline]
fn check_range(engine: EngineId, range: &Range, access: Access) -> Result<()> {
    let region = &*range.region.0;
    if region.engine == engine && region.access.contains(access) {
        Ok(())
    } else {
        Err(refuse(engine, range, access))
    }
}

#[cold]
fn refuse(engine: EngineId, range: &Range, access: Access) -> Error {
    let region = &*range.region.0;
    let error = if region.engine != engine {
        Error::new(ErrorKind::WrongEngine, "the region belongs to another engine than the queue")
            .with_hint("allocate, register or import it on the engine that opened the queue")
    } else {
        let side = if access.contains(Access::WRITE) { "destination" } else { "source" };
        Error::new(
            ErrorKind::AccessDenied,
            format!("the {side} grants {:?}, needed is {access:?}", region.access),
        )
        .with_hint("allocate, register or export it with that right")
    };
    error.with_backend(region.backend)
}

#[cold]
fn lengths_differ(src: usize, dst: usize) -> Error {
    Error::new(ErrorKind::LengthMismatch, format!("the source has {src} bytes, the destination {dst}"))
        .with_hint("split the longer one")
}

#[cold]
fn overlap(begin: usize, end: usize, in_destination: bool) -> Error {
    let bytes = end - begin;
    let message = if in_destination {
        format!("{bytes} bytes of the destination are named twice")
    } else {
        format!("source and destination share {bytes} bytes")
    };
    Error::new(ErrorKind::Overlap, message)
        .with_hint("a device copies in no particular direction: use disjoint ranges")
}

/// Checks every view of one side and appends its segments to `out`; returns the total length.
fn gather<T: Operand>(engine: EngineId, side: &T, access: Access, out: &mut Vec<Segment>) -> Result<usize> {
    let mut result = Ok(());
    let mut total = 0_usize;
    side.each(&mut |range| {
        if result.is_ok() {
            result = check_range(engine, range, access);
            total += range.len;
            out.push(range.segment());
        }
    });
    result.map(|()| total)
}

/// Checks that no byte of `dst` is named twice, by it or by `src`. `scratch` is left empty.
fn disjoint(src: &[Segment], dst: &[Segment], scratch: &mut Vec<(usize, usize, bool)>) -> Result<()> {
    scratch.clear();
    for (list, written) in [(src, false), (dst, true)] {
        for s in list.iter().filter(|s| s.len > 0) {
            let begin = s.addr.as_ptr().addr();
            scratch.push((begin, begin + s.len, written));
        }
    }
    scratch.sort_unstable();
    // The furthest ends so far, of what is written and of what is read.
    let (mut written_to, mut read_to) = (0, 0);
    let mut result = Ok(());
    for (begin, end, written) in scratch.drain(..) {
        let taken = if written { written_to.max(read_to) } else { written_to };
        if begin < taken {
            result = Err(overlap(begin, end.min(taken), written && begin < written_to));
            break;
        }
        let to = if written { &mut written_to } else { &mut read_to };
        *to = end.max(*to);
    }
    scratch.clear();
    result
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;
    use std::ptr::NonNull;

    use proptest::prelude::*;

    use super::*;
    use crate::RegionKey;

    #[test]
    fn an_overlap_says_of_what() {
        let message = |src: &[(usize, usize)], dst: &[(usize, usize)]| {
            let segments = |list: &[(usize, usize)]| list.iter().copied().map(segment).collect::<Vec<_>>();
            disjoint(&segments(src), &segments(dst), &mut Vec::new()).unwrap_err().message().to_owned()
        };
        assert_eq!(message(&[(1, 10)], &[(6, 10)]), "source and destination share 5 bytes");
        assert_eq!(message(&[(6, 10)], &[(1, 10)]), "source and destination share 5 bytes");
        assert_eq!(message(&[(100, 20)], &[(1, 10), (8, 10)]), "3 bytes of the destination are named twice");
    }

    fn segment((at, len): (usize, usize)) -> Segment {
        Segment { key: RegionKey(0), addr: NonNull::without_provenance(NonZero::new(at).unwrap()), len }
    }

    proptest! {
        #[test]
        fn lists_overlap_exactly_if_a_written_byte_is_named_twice(
            src in prop::collection::vec((1_usize..60, 0_usize..12), 0..4),
            dst in prop::collection::vec((1_usize..60, 0_usize..12), 0..4),
        ) {
            let mut named = [[0_u32; 80]; 2];
            for (side, list) in [&src, &dst].into_iter().enumerate() {
                for &(at, len) in list {
                    named[side][at..at + len].iter_mut().for_each(|n| *n += 1);
                }
            }
            let clash = (0..80).any(|i| named[1][i] > 1 || (named[1][i] > 0 && named[0][i] > 0));
            let src: Vec<_> = src.into_iter().map(segment).collect();
            let dst: Vec<_> = dst.into_iter().map(segment).collect();
            prop_assert_eq!(disjoint(&src, &dst, &mut Vec::new()).is_err(), clash);
        }
    }
}
