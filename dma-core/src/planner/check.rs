//! Checks of operations, before they are submitted to a device, and the reasons for refusals. The rule for a
//! copy of one range to another range is in [`plain`](super::plain).

use dma_process::count;

use super::INITIAL_CAPACITY;
use super::error;
use super::plain::{By, grants, is_valid, shared_bytes};
use super::plan::{Plan, QueueCaps};
use super::query::{Query, QueryKind};
use crate::memory::operand::sealed::Operand;
use crate::memory::range::Range;
use crate::{Access, EngineId, Error, ErrorKind, Result, Segment};

/// Returns whether two ranges share a byte. The ranges must not be empty, and may have different lengths.
#[inline]
pub(crate) fn overlap(a: &Range, b: &Range) -> bool {
    let ((space, start), (other_space, other_start)) = (a.located(), b.located());
    let first = if start <= other_start { a } else { b };
    space == other_space && start.abs_diff(other_start) < first.len as u64
}

/// Checks a copy of one range to another range, and returns its length.
#[inline]
pub(crate) fn flat<D: Operand>(engine: EngineId, src: &Range, dst: &Range) -> Result<usize> {
    if is_valid(By::Device, engine, src, dst, D::UNIQUE) {
        Ok(dst.len)
    } else {
        Err(why_invalid(engine, src, dst))
    }
}

/// Returns the reason why a copy of one range to another range is not valid.
#[cold]
fn why_invalid(engine: EngineId, src: &Range, dst: &Range) -> Error {
    let checked = check_range(engine, src, Access::READ)
        .and_then(|()| check_range(engine, dst, Access::WRITE))
        .and_then(|()| check_lengths(src.len as u128, dst.len as u128));
    checked.err().unwrap_or_else(|| sides_overlap(shared_bytes(src, dst)))
}

/// Checks a copy of lists or rows, and returns its plan.
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
    let extents = lists.extents.restart(!dst.is_disjoint());
    let checked = collect_segments(engine, src, Access::READ, &mut from, extents).and_then(|src_len| {
        let dst_len = collect_segments(engine, dst, Access::WRITE, &mut to, extents)?;
        check_lengths(src_len, dst_len)?;
        extents.check_disjoint().map_err(|e| name_overlap(dst, e))?;
        countable(dst_len)
    });
    lists.plan(checked, Plan::Lists(from, to))
}

/// Checks a fill, and returns its plan.
pub(crate) fn fill<D: Operand>(
    caps: QueueCaps,
    dst: &D,
    pattern: [u8; 8],
    lists: &mut Lists,
) -> Result<Plan> {
    if !caps.can_fill() {
        return Err(error::no_fill());
    }
    let mut to = lists.take();
    let extents = lists.extents.restart(!dst.is_disjoint());
    let checked = collect_segments(caps.engine, dst, Access::WRITE, &mut to, extents).and_then(|len| {
        extents.check_disjoint().map_err(|e| name_overlap(dst, e)).and_then(|()| countable(len))
    });
    lists.plan(checked, Plan::Fill(pattern, to))
}

/// Checks a copy to two destinations, and returns its plan.
pub(crate) fn copy_to_both<S: Operand, D: Operand, E: Operand>(
    engine: EngineId,
    (src, dst, also): (&S, &D, &E),
    lists: &mut Lists,
) -> Result<Plan> {
    let (mut from, mut to, mut to_also) = (lists.take(), lists.take(), lists.take());
    let extents = lists.extents.restart(true);
    let checked = collect_segments(engine, src, Access::READ, &mut from, extents).and_then(|src_len| {
        let lens = [
            collect_segments(engine, dst, Access::WRITE, &mut to, extents)?,
            collect_segments(engine, also, Access::WRITE, &mut to_also, extents)?,
        ];
        lens.into_iter().try_for_each(|len| check_lengths(src_len, len))?;
        extents.check_disjoint()?;
        countable(2 * src_len)
    });
    lists.plan(checked, Plan::CopyToBoth(from, [to, to_also]))
}

/// Checks a CRC of `a`, or an operation of `kind` on `a` and `b`, and returns its plan.
pub(crate) fn query<A: Operand, B: Operand>(
    caps: QueueCaps,
    kind: QueryKind,
    (a, b): (&A, Option<&B>),
    seed: u32,
    lists: &mut Lists,
) -> Result<Plan> {
    let engine = caps.engine;
    let mut query = Query { kind, a: lists.take(), b: lists.take(), seed, cpu: [true; 2] };
    let extents = lists.extents.restart(kind == QueryKind::CopyCrc32c && b.is_some_and(|b| !b.is_disjoint()));
    let checked = collect_segments(engine, a, Access::READ, &mut query.a, extents).and_then(|len| {
        query.cpu[0] = is_reachable(a);
        if let Some(b) = b {
            let access = if kind == QueryKind::Compare { Access::READ } else { Access::WRITE };
            let other = collect_segments(engine, b, access, &mut query.b, extents)?;
            query.cpu[1] = is_reachable(b);
            if kind == QueryKind::Compare && len != other {
                return Err(operands_differ(len, other));
            }
            check_lengths(len, other)?;
            extents.check_disjoint().map_err(|e| name_overlap(b, e))?;
        }
        countable(len)
    });
    let can_answer = caps.can_answer(&query);
    let plan = Plan::Query(query);
    let error = match checked {
        Ok(_) if can_answer => return Ok(plan),
        Ok(_) => error::beyond_reach(),
        Err(e) => e,
    };
    plan.discard(|list| lists.keep(list));
    Err(error)
}

/// Returns whether the CPU can reach every range of `side`.
fn is_reachable<T: Operand>(side: &T) -> bool {
    let mut all = true;
    side.each(&mut |range| all &= range.region.is_cpu_visible());
    all
}

/// Converts the number of copies of a batch to `u32`, because each copy's index has 32 bits.
pub(crate) fn batch_len(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| {
        Error::new(ErrorKind::OutOfRange, format!("a batch of {len} copies is too large"))
            .with_numbers(len as u64, u32::MAX.into())
            .with_hint("split the batch into several batches")
    })
}

/// Checks every copy of a batch. Returns the sum of their bytes.
pub(crate) fn batch<S: Operand, D: Operand>(
    engine: EngineId,
    copies: &[(S, D)],
    lists: &mut Lists,
) -> Result<u64> {
    // The sum may exceed the size of the address space, because several copies may use the same bytes of
    // windows.
    let mut bytes = 0_u128;
    for (index, (src, dst)) in copies.iter().enumerate() {
        let plan = copy(engine, src, dst, lists).map_err(|e| {
            if error::is_no_memory(&e) {
                return e;
            }
            let message = format!("copy {index} of the batch: {}", e.message());
            e.with_message(message)
        })?;
        bytes += plan.len() as u128;
        plan.discard(|list| lists.keep(list));
    }
    u64::try_from(bytes).map_err(|_| {
        Error::new(ErrorKind::OutOfRange, format!("a batch of {bytes} bytes is too large for a 64-bit count"))
            .with_hint("split the batch into several batches")
    })
}

/// Vectors for lists of segments. The vectors are reused, so that after the first operations no operation
/// allocates.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    spare: Vec<Vec<Segment>>,
    extents: Extents,
}

impl Lists {
    /// Maximum number of vectors that are kept.
    const MAX_LISTS: usize = 64;
    /// Makes a collection with memory for the lists of a queue's first operations.
    pub(crate) fn with_memory() -> Self {
        let mut spare = Vec::with_capacity(Self::MAX_LISTS);
        spare.resize_with(INITIAL_CAPACITY, || Vec::with_capacity(INITIAL_CAPACITY));
        // An operation has up to three operands.
        let list = Vec::with_capacity(3 * INITIAL_CAPACITY);
        Self { spare, extents: Extents { list, ..Extents::default() } }
    }

    /// Returns an empty vector, which reuses kept memory if there is any.
    pub(crate) fn take(&mut self) -> Vec<Segment> {
        self.spare.pop().unwrap_or_default()
    }

    /// Returns a vector that contains only `segment`. Fails without memory.
    pub(crate) fn take_with(&mut self, segment: Segment) -> Result<Vec<Segment>> {
        let mut list = self.take();
        list.try_reserve(1).map_err(|_| error::no_memory())?;
        list.push(segment);
        Ok(list)
    }

    /// Returns whether the CPU can reach all memory of the last operation with lists that was checked.
    pub(crate) const fn is_cpu_visible(&self) -> bool {
        self.extents.is_cpu_visible
    }

    pub(crate) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Moves vectors of `other` into this collection.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        while self.spare.len() < Self::MAX_LISTS
            && let Some(list) = other.spare.pop()
        {
            self.spare.push(list);
        }
    }

    /// Returns `plan` if `checked` is a length above 0, an empty plan if the length is 0, or the error in
    /// `checked`. If `plan` is not returned, its lists are kept for reuse.
    fn plan(&mut self, checked: Result<usize>, plan: Plan) -> Result<Plan> {
        if let Ok(1..) = checked {
            return Ok(plan);
        }
        plan.discard(|list| self.keep(list));
        checked.map(|_| Plan::Empty)
    }

    /// Keeps the memory of `list` for reuse, if fewer than `MAX_LISTS` vectors are kept.
    pub(crate) fn keep(&mut self, mut list: Vec<Segment>) {
        if list.capacity() > 0 && self.spare.len() < Self::MAX_LISTS && self.spare.try_reserve(1).is_ok() {
            list.clear();
            self.spare.push(list);
        }
    }
}

/// Checks that `range` belongs to `engine` and grants `access`.
#[inline]
fn check_range(engine: EngineId, range: &Range, access: Access) -> Result<()> {
    if grants(By::Device, engine, range, access) { Ok(()) } else { Err(refuse(engine, range, access)) }
}

#[cold]
fn refuse(engine: EngineId, range: &Range, access: Access) -> Error {
    let region = &*range.region.0;
    let error = if region.info.engine != engine {
        Error::new(ErrorKind::WrongEngine, "the region and the queue belong to different engines")
            .with_hint("allocate, register or import the memory on the engine that opened the queue; each `open` makes an engine of its own, even by the same name")
    } else {
        let side = if access.contains(Access::WRITE) { "destination" } else { "source" };
        Error::new(
            ErrorKind::AccessDenied,
            format!("the {side} grants {:?}, but the operation needs {access:?}", region.info.access),
        )
        .with_hint("allocate, register or export the memory with the missing right")
    };
    error.with_backend(region.backend)
}

/// Converts the length of an operation to `usize`, which is the planner's type for lengths.
fn countable(len: u128) -> Result<usize> {
    usize::try_from(len).map_err(|_| {
        Error::new(ErrorKind::OutOfRange, format!("an operation of {len} bytes is too long"))
            .with_numbers(u64::try_from(len).unwrap_or(u64::MAX), usize::MAX as u64)
            .with_hint("split the operation into several operations")
    })
}

/// Checks that both sides of an operation have the same length.
fn check_lengths(src: u128, dst: u128) -> Result<()> {
    if src == dst { Ok(()) } else { Err(lengths_differ(src, dst)) }
}

#[cold]
pub(crate) fn lengths_differ(src: u128, dst: u128) -> Error {
    sides_differ(["source", "destination"], [src, dst])
}

/// Makes the error for a comparison of operands that differ in length.
#[cold]
fn operands_differ(a: u128, b: u128) -> Error {
    sides_differ(["first operand", "second operand"], [a, b])
}

fn sides_differ([one, other]: [&str; 2], lens: [u128; 2]) -> Error {
    let [one_len, other_len] = lens.map(|len| count(len, "byte", "bytes"));
    Error::new(ErrorKind::LengthMismatch, format!("the {one} has {one_len}, and the {other} has {other_len}"))
        .with_hint("give both the same length, for example by splitting the longer one")
}

#[cold]
fn sides_overlap(bytes: u64) -> Error {
    overlap_error(format!("source and destination share {}", count(bytes, "byte", "bytes")))
}

#[cold]
fn overlap_error(message: String) -> Error {
    Error::new(ErrorKind::Overlap, message)
        .with_hint("use ranges that do not overlap: a device may copy the bytes in any order")
}

/// Returns an error that names two ranges of a destination that share bytes, or `error` if there are none.
#[cold]
fn name_overlap<D: Operand>(dst: &D, error: Error) -> Error {
    let (mut ranges, mut number) = (Vec::new(), 0_usize);
    dst.each(&mut |range| {
        if let Some(more) = range.len.checked_sub(1) {
            let (space, first) = range.located();
            ranges.push((space, first, first.wrapping_add(more as u64), number));
        }
        number += 1;
    });
    ranges.sort_unstable();
    // If any ranges overlap, then also two that are neighbours in this order.
    let overlap = ranges.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[1].1 <= pair[0].2);
    let Some(&[(_, _, end, one), (_, first, last, other)]) = overlap else { return error };
    let bytes = count(last.min(end) - first + 1, "byte", "bytes");
    let (one, other) = (one.min(other), one.max(other));
    overlap_error(format!("ranges {one} and {other} of the destination share {bytes}"))
}

/// Checks every view of one operand. Appends the segments that are not empty to `out`, and their extents to
/// `extents`. Returns the total length, which may exceed `usize` if a window is repeated.
fn collect_segments<T: Operand>(
    engine: EngineId,
    side: &T,
    access: Access,
    out: &mut Vec<Segment>,
    extents: &mut Extents,
) -> Result<u128> {
    let mut result = Ok(());
    let mut total = 0_u128;
    side.each(&mut |range| {
        if result.is_ok() {
            result = check_range(engine, range, access);
            total += range.len as u128;
            extents.is_cpu_visible &= range.region.is_cpu_visible();
            if result.is_ok() && range.len > 0 {
                if out.try_reserve(1).is_err() || extents.list.try_reserve(1).is_err() {
                    result = Err(error::no_memory());
                    return;
                }
                out.push(range.segment());
                extents.push(range.located(), range.len, access.contains(Access::WRITE));
            }
        }
    });
    result.map(|()| total)
}

/// The ranges of an operation, to check that they do not overlap.
#[derive(Debug, Default)]
struct Extents {
    list: Vec<Extent>,
    /// True if the ranges must be checked, because the operands' types do not exclude an overlap.
    is_checked: bool,
    /// True if the CPU can reach all ranges so far.
    is_cpu_visible: bool,
}

/// A range that is not empty. Extents are sorted by their fields, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    /// The address space.
    space: u64,
    first: u64,
    /// The last byte, because the end may overflow.
    last: u64,
    is_written: bool,
}

impl Extents {
    /// Clears the list, for the ranges of another operation.
    fn restart(&mut self, is_checked: bool) -> &mut Self {
        self.list.clear();
        (self.is_checked, self.is_cpu_visible) = (is_checked, true);
        self
    }

    /// Adds a range of at least 1 byte, if the ranges must be checked.
    fn push(&mut self, (space, first): (u64, u64), len: usize, is_written: bool) {
        if self.is_checked {
            self.list.push(Extent { space, first, last: first.wrapping_add(len as u64 - 1), is_written });
        }
    }

    /// Checks that no written byte is in another range.
    fn check_disjoint(&mut self) -> Result<()> {
        self.list.sort_unstable();
        let mut space = 0;
        // The highest last byte so far of the written ranges, and of the read ranges.
        let (mut written_to, mut read_to) = (None, None);
        for extent in &self.list {
            if extent.space != space {
                (space, written_to, read_to) = (extent.space, None, None);
            }
            let taken = if extent.is_written { written_to.max(read_to) } else { written_to };
            if let Some(taken) = taken.filter(|taken| extent.first <= *taken) {
                let bytes = extent.last.min(taken) - extent.first + 1;
                let is_in_destination = extent.is_written && Some(extent.first) <= written_to;
                return Err(if is_in_destination {
                    overlap_error(format!(
                        "{} in the destination twice",
                        count(bytes, "byte is", "bytes are")
                    ))
                } else {
                    sides_overlap(bytes)
                });
            }
            let to = if extent.is_written { &mut written_to } else { &mut read_to };
            *to = (*to).max(Some(extent.last));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks lists of ranges. A range is an address space, a first byte and a length.
    fn disjoint(src: &[(u64, u64, usize)], dst: &[(u64, u64, usize)]) -> Result<()> {
        let mut extents = Extents::default();
        extents.restart(true);
        for (list, is_written) in [(src, false), (dst, true)] {
            for &(space, first, len) in list.iter().filter(|(.., len)| *len > 0) {
                extents.push((space, first), len, is_written);
            }
        }
        extents.check_disjoint()
    }

    #[test]
    fn an_overlap_says_of_what() {
        let message = |src: &[(u64, usize)], dst: &[(u64, usize)]| {
            let here = |list: &[(u64, usize)]| list.iter().map(|&(at, len)| (0, at, len)).collect::<Vec<_>>();
            disjoint(&here(src), &here(dst)).unwrap_err().message().to_owned()
        };
        assert_eq!(message(&[(1, 10)], &[(6, 10)]), "source and destination share 5 bytes");
        assert_eq!(message(&[(6, 10)], &[(1, 10)]), "source and destination share 5 bytes");
        assert_eq!(message(&[(100, 20)], &[(1, 10), (8, 10)]), "3 bytes are in the destination twice");
    }

    #[test]
    fn ranges_may_end_with_the_address_space() {
        let top = |back: u64, len| (0, u64::MAX - back, len);
        let check = |src, dst| disjoint(&[src], &[dst]).map_err(|e| e.message().to_owned());
        assert_eq!(check(top(9, 10), top(19, 10)), Ok(()));
        assert_eq!(check(top(9, 10), top(0, 1)), Err("source and destination share 1 byte".to_owned()));
        assert_eq!(check(top(12, 10), top(9, 10)), Err("source and destination share 7 bytes".to_owned()));
        assert_eq!(check(top(0, 1), (0, 1, 1)), Ok(()));
    }

    #[test]
    fn ranges_of_different_address_spaces_do_not_overlap() {
        assert!(
            disjoint(&[(7, 100, 10)], &[(0, 100, 10), (9, 100, 10)]).is_ok(),
            "one address in three address spaces"
        );
        assert!(
            disjoint(&[(7, 100, 10)], &[(0, 100, 10), (7, 109, 1)]).is_err(),
            "one byte in one address space"
        );
        assert!(
            disjoint(&[], &[(0, 100, 10), (7, 5, 200), (0, 110, 1)]).is_ok(),
            "a longer range between them"
        );
        assert!(disjoint(&[], &[(7, 100, 10), (0, 100, 10), (7, 105, 1)]).is_err());
    }

    #[test]
    fn a_length_beyond_counting_is_refused_by_its_value() {
        assert_eq!(countable(u128::from(u64::MAX)).expect("it is counted"), usize::MAX);
        let error = countable((1 << 64) + 100).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert!(error.to_string().contains("18446744073709551716 bytes"), "{error}");
        assert_eq!(batch_len(u32::MAX as usize).expect("it is counted"), u32::MAX);
        let error = batch_len(1 << 32).expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert!(error.to_string().contains("4294967296 copies"), "{error}");
    }

    proptest! {
        #[test]
        fn lists_overlap_exactly_if_a_written_byte_is_named_twice(
            src in prop::collection::vec((0_u64..2, 1_u64..60, 0_usize..12), 0..4),
            dst in prop::collection::vec((0_u64..2, 1_u64..60, 0_usize..12), 0..4),
        ) {
            // For each operand, and for each byte, the number of ranges that contain the byte. The bytes of
            // both address spaces are concatenated.
            let mut named = [[0_u32; 160]; 2];
            for (side, list) in [&src, &dst].into_iter().enumerate() {
                for &(space, at, len) in list {
                    let at = (80 * space + at) as usize;
                    named[side][at..at + len].iter_mut().for_each(|n| *n += 1);
                }
            }
            let clash = (0..160).any(|i| named[1][i] > 1 || (named[1][i] > 0 && named[0][i] > 0));
            prop_assert_eq!(disjoint(&src, &dst).is_err(), clash);
        }
    }
}
