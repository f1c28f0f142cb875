//! [`Rows`]: parts of one view, as the source of a gather or the destination of a scatter.

use std::fmt;

use dma_process::count;

use super::OpError;
use crate::memory::operand::RowList;
use crate::memory::operand::sealed::{Operand, View};
use crate::memory::range::Range;
use crate::{Buffer, BufferMut, Destination, Error, ErrorKind, Source, Window};

/// Rows of one [`Buffer`], [`BufferMut`] or [`Window`]. Each row has an offset in the view and a length. The
/// rows of a source (a gather) are read in order, and the rows of a destination (a scatter) are written in
/// order. A list of views has the same effect, but needs a view, with a reference to its region, for each
/// row.
///
/// The bounds of the rows are checked once, by [`new`](Self::new). An engine that accepts lists of segments
/// gets the rows as a list. For any other engine, the queue splits the operation. Rows of a source may
/// overlap and repeat. Rows of a destination may not. `new` finds out whether the rows are ascending. If they
/// are not, each operation that writes them searches them for overlaps.
///
/// ```
/// # use dma_core::{Buffer, BufferMut, Queue, Result, Rows};
/// # fn demo(queue: &Queue, table: Buffer, batch: BufferMut) -> Result<()> {
/// // Four rows of 64 bytes. The last two are the same row.
/// let rows = [7, 3, 12, 12].map(|row| (row * 64, 64)).to_vec();
/// let rows = Rows::new(table, rows)?;
/// let (rows, batch) = queue.copy(rows, batch)?.wait()?;
/// let (table, rows) = rows.into_parts();
/// assert_eq!(batch[..64], table[7 * 64..8 * 64]);
/// # let _ = rows; Ok(()) }
/// ```
///
/// If the view is `Clone`, the rows are, too. A clone allocates a list of its own.
#[derive(Clone)]
pub struct Rows<V> {
    view: V,
    list: RowList,
}

/// A view, and the offsets and lengths of its rows in bytes.
type Parts<V> = (V, Vec<(usize, usize)>);

impl<V: View> Rows<V> {
    /// Makes an operand from the `rows` of `view`. A row is an offset in the view and a length, both in
    /// bytes. Does not allocate. [`into_parts`](Self::into_parts) returns the list for reuse.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, with the view and the rows, if a row does not lie inside the view.
    pub fn new(view: V, rows: Vec<(usize, usize)>) -> Result<Self, OpError<Parts<V>>> {
        let end = view.single().len;
        let (mut len, mut longest, mut last, mut last_end, mut bits) = (0_usize, 0, 0, 0, 0);
        let mut is_ascending = true;
        // The loop has no branches, because rows are almost always valid.
        for &(at, row) in &rows {
            is_ascending &= at >= last;
            last = at.wrapping_add(row);
            last_end = last.max(last_end);
            longest = row.max(longest);
            bits |= at | row;
            len = len.wrapping_add(row);
        }
        // No end has overflowed, if the first bit of all offsets and lengths is 0.
        if last_end <= end && bits <= usize::MAX / 2 {
            if rows.len().checked_mul(longest).is_none() {
                len = rows.iter().fold(0, |len, row| len.saturating_add(row.1));
            }
            Ok(Self { view, list: RowList { view_len: end, rows, len, longest, is_ascending } })
        } else {
            Err(OpError::new(outside(end, &rows), Some((view, rows))))
        }
    }

    /// Returns the view.
    #[must_use]
    pub const fn view(&self) -> &V {
        &self.view
    }

    /// Returns the rows. A row is an offset in the view and a length, both in bytes.
    #[must_use]
    pub fn rows(&self) -> &[(usize, usize)] {
        &self.list.rows
    }

    /// Returns the sum of the rows' lengths in bytes, but at most `usize::MAX`.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.list.len
    }

    /// Returns the view and the rows.
    #[must_use]
    pub fn into_parts(self) -> Parts<V> {
        (self.view, self.list.rows)
    }
}

/// Makes the error for the first row that does not lie inside a view of `end` bytes.
#[cold]
fn outside(end: usize, rows: &[(usize, usize)]) -> Error {
    let is_outside = |&(at, len): &(usize, usize)| at > end || len > end - at;
    let index = rows.iter().position(is_outside).expect("one row is outside the view");
    let (at, len) = rows[index];
    let needed = (at as u64).saturating_add(len as u64);
    Error::new(
        ErrorKind::OutOfRange,
        format!(
            "row {index} of {} at offset {at} is not inside the view of {}",
            count(len, "byte", "bytes"),
            count(end, "byte", "bytes")
        ),
    )
    .with_operation("rows")
    .with_numbers(needed, end as u64)
    .with_hint("give offsets and lengths in bytes; offsets begin at the start of the view")
}

#[expect(private_interfaces, reason = "sealed")]
impl<V: View> Operand for Rows<V> {
    const SINGLE: bool = false;
    // Rows may overlap each other.
    const UNIQUE: bool = false;

    fn each(&self, f: &mut dyn FnMut(&Range)) {
        let whole = self.view.single();
        let mut row = whole.clone();
        for &(at, len) in &self.list.rows {
            (row.addr, row.len) = (whole.addr.offset(at), len);
            f(&row);
        }
    }

    fn single(&self) -> &Range {
        unreachable!("rows are not a single view")
    }

    fn is_disjoint(&self) -> bool {
        V::UNIQUE && self.list.is_disjoint()
    }

    #[inline]
    fn rows(&self) -> Option<(&Range, &RowList)> {
        Some((self.view.single(), &self.list))
    }
}

impl Source for Rows<Buffer> {}
impl Source for Rows<BufferMut> {}
impl Source for Rows<Window> {}
impl Destination for Rows<BufferMut> {}
impl Destination for Rows<Window> {}

impl<V> fmt::Debug for Rows<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows")
            .field("rows", &self.list.rows.len())
            .field("bytes", &self.list.len)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::reference::{ReferenceEngine, ReferenceOptions};
    use crate::{DmaEngineExt, QueueOptions, SharedQueueOptions};

    /// Length of a table, in bytes. Both operands are parts of one table, or of one table each.
    const LEN: usize = 200;

    fn engine(inline_limit: usize, max_segments: usize) -> ReferenceEngine {
        let options = ReferenceOptions { inline_limit, max_segments, max_transfer: 64, ..Default::default() };
        ReferenceEngine::new(options)
    }

    fn table(engine: &ReferenceEngine) -> BufferMut {
        let mut table = engine.allocate(LEN).expect("memory");
        table.iter_mut().zip(0_u8..).for_each(|(byte, i)| *byte = i);
        table
    }

    /// A clone copies the same bytes, while the rows themselves are in flight.
    #[test]
    fn a_clone_of_rows_is_another_operand() {
        let engine = engine(0, 4);
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let rows = Rows::new(table(&engine).freeze(), vec![(7, 3), (20, 5)]).expect("inside");
        let first = queue.copy(rows.clone(), engine.allocate(8).expect("memory")).expect("accepted");
        let second = queue.copy(rows, engine.allocate(8).expect("memory")).expect("accepted");
        let [(one, dst), (other, same)] = [first, second].map(|transfer| transfer.wait().expect("done"));
        assert_eq!((one.rows(), one.bytes()), (other.rows(), 8));
        assert_eq!((&dst[..], &same[..]), (&[7, 8, 9, 20, 21, 22, 23, 24][..], &dst[..]));
    }

    #[test]
    fn rows_outside_of_the_view_are_refused_with_the_operands() {
        let engine = engine(0, 4);
        let last = LEN - 10;
        for (at, len) in [(0, LEN - 9), (last, 1), (last + 1, 0), (1, usize::MAX), (usize::MAX, 2)] {
            let view = table(&engine).split_to(last).freeze();
            let rows = vec![(0, 1), (last, 0), (at, len), (5, 5)];
            let error = Rows::new(view, rows.clone()).expect_err("the last row is beyond the end");
            assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
            assert!(error.to_string().contains("row 2"), "the error names the row: {error}");
            let (view, returned) = error.into_operands().expect("they are returned");
            assert_eq!((view.len(), returned), (last, rows));
        }
    }

    #[test]
    fn an_overlap_names_the_rows_of_the_destination() {
        let engine = engine(0, 4);
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let rows = |rows: &[(usize, usize)]| Rows::new(table(&engine), rows.to_vec()).expect("inside");
        let message = |dst: &[(usize, usize)]| {
            let src = rows(&[(0, dst.iter().map(|(_, len)| len).sum())]);
            queue.copy(src, rows(dst)).expect_err("they overlap").error().message().to_owned()
        };
        assert_eq!(
            message(&[(90, 10), (0, 9), (9, 0), (50, 5), (8, 3)]),
            "ranges 1 and 4 of the destination share 1 byte"
        );
        assert_eq!(message(&[(7, 20), (0, 10), (9, 1)]), "ranges 0 and 1 of the destination share 3 bytes");
        let fill = queue.fill(rows(&[(0, 5), (2, 3)]), [0; 8]).expect_err("they overlap");
        assert_eq!(fill.error().message(), "ranges 0 and 1 of the destination share 3 bytes");
        // The sides share bytes, and the destination has each byte once.
        let both = table(&engine).share();
        let rows = |rows: &[(usize, usize)]| Rows::new(both.clone(), rows.to_vec()).expect("inside");
        let error = queue.copy(rows(&[(0, 9)]), rows(&[(20, 4), (5, 5)])).expect_err("they overlap");
        assert_eq!(error.error().message(), "source and destination share 4 bytes");
    }

    #[test]
    fn rows_know_their_bytes_and_return_their_parts() {
        let engine = engine(0, 4);
        let rows = Rows::new(table(&engine), vec![(5, 10), (0, 3)]).expect("inside");
        assert_eq!((rows.bytes(), rows.rows(), rows.view().len()), (13, &[(5, 10), (0, 3)][..], LEN));
        let (view, list) = rows.into_parts();
        assert_eq!((view.len(), list), (LEN, vec![(5, 10), (0, 3)]));
    }

    #[test]
    fn rows_of_more_bytes_than_are_counted_match_no_length() {
        let engine = engine(1 << 20, 4);
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        // The sum of repeated rows can saturate. The test sets the sum directly, because such rows need
        // memory of 2^48 bytes.
        let mut rows = Rows::new(table(&engine), vec![(0, LEN)]).expect("inside");
        rows.list.len = usize::MAX;
        let dst = engine.allocate(LEN + 1).expect("memory");
        let error = queue.copy(rows, dst).expect_err("lengths differ");
        assert_eq!(error.kind(), ErrorKind::LengthMismatch, "{error}");
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Shape {
        Gather,
        Scatter,
        Both,
    }

    /// Offsets and lengths of up to 12 rows. Most of them are short. The order is ascending or arbitrary.
    fn places() -> impl Strategy<Value = Vec<(usize, usize)>> {
        let row = (any::<Index>(), prop_oneof![0_usize..8, 0_usize..60]);
        (prop::collection::vec(row, 0..12), any::<bool>()).prop_map(|(rows, is_sorted)| {
            let place = |(at, len): (Index, usize)| (at.index(LEN - len + 1), len);
            let mut places: Vec<_> = rows.into_iter().map(place).collect();
            if is_sorted {
                places.sort_unstable();
                // Remove most overlaps, but keep some.
                places.dedup_by(|next, last| next.0 < last.0 + last.1.min(50));
            }
            places
        })
    }

    /// The positions of the bytes of all rows.
    fn named(rows: &[(usize, usize)]) -> Vec<usize> {
        rows.iter().flat_map(|&(at, len)| at..at + len).collect()
    }

    proptest! {
        #[test]
        fn rows_copy_what_a_loop_copies_or_overlap(
            src_rows in places(),
            dst_rows in places(),
            flat_at in any::<Index>(),
            shape in prop::sample::select(vec![Shape::Gather, Shape::Scatter, Shape::Both]),
            in_one_table in any::<bool>(),
            is_window in any::<bool>(),
            is_shared_queue in any::<bool>(),
            inline_limit in prop::sample::select(vec![0, 20, 1000]),
            max_segments in 1_usize..5,
        ) {
            let engine = engine(inline_limit, max_segments);
            let (mut src_rows, mut dst_rows) = (src_rows, dst_rows);
            // The range on the other side has the length of the rows. If both sides have rows, the longer
            // side is cut off.
            let len = |rows: &[(usize, usize)]| rows.iter().map(|row| row.1).sum::<usize>();
            let cut = |rows: &mut Vec<(usize, usize)>, mut left: usize| {
                rows.iter_mut().for_each(|row| {
                    row.1 = row.1.min(left);
                    left -= row.1;
                });
            };
            let total = match shape {
                Shape::Gather => len(&src_rows).min(LEN),
                Shape::Scatter => len(&dst_rows).min(LEN),
                Shape::Both => len(&src_rows).min(len(&dst_rows)),
            };
            let flat = (flat_at.index(LEN.saturating_sub(total) + 1), total);
            match shape {
                Shape::Gather => dst_rows = vec![flat],
                Shape::Scatter => src_rows = vec![flat],
                Shape::Both => {}
            }
            cut(&mut src_rows, total);
            cut(&mut dst_rows, total);

            // Only windows can both be parts of one table.
            let in_one_table = in_one_table && is_window;
            let (src_table, dst_table) = (table(&engine), table(&engine));
            let (read, written) = (named(&src_rows), named(&dst_rows));
            let mut expected: Vec<u8> = dst_table.to_vec();
            for (from, to) in read.iter().zip(&written) {
                expected[*to] = src_table[*from];
            }
            let mut seen = [false; LEN];
            let is_named_twice = written.iter().any(|&at| std::mem::replace(&mut seen[at], true))
                || in_one_table && read.iter().any(|&at| seen[at]);

            // Makes the copy that `shape` selects, and returns the bytes of the destination.
            macro_rules! run {
                ($queue:expr, $src:expr, $dst:expr, $slice:expr, $bytes:expr) => {{
                    let (src, dst, slice, bytes) = ($src, $dst, $slice, $bytes);
                    let rows = |list: &[(usize, usize)]| list.to_vec();
                    let copied = match shape {
                        Shape::Gather => {
                            let from = Rows::new(src, rows(&src_rows)).expect("inside");
                            let copy = $queue.copy(from, slice(dst, flat));
                            copy.map(|copy| bytes(&copy.wait().expect("done").1)).map_err(Error::from)
                        }
                        Shape::Scatter => {
                            let to = Rows::new(dst, rows(&dst_rows)).expect("inside");
                            let copy = $queue.copy(slice(src, flat), to);
                            copy.map(|copy| bytes(copy.wait().expect("done").1.view())).map_err(Error::from)
                        }
                        Shape::Both => {
                            let from = Rows::new(src, rows(&src_rows)).expect("inside");
                            let to = Rows::new(dst, rows(&dst_rows)).expect("inside");
                            let copy = $queue.copy(from, to);
                            copy.map(|copy| bytes(copy.wait().expect("done").1.view())).map_err(Error::from)
                        }
                    };
                    copied.map_err(|e| e.kind())
                }};
            }
            macro_rules! on_a_queue {
                ($($operands:expr),+) => {
                    if is_shared_queue {
                        let queue = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
                        run!(queue, $($operands),+)
                    } else {
                        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
                        run!(queue, $($operands),+)
                    }
                };
            }
            let copied = if is_window {
                let dst = dst_table.share();
                let src = if in_one_table { dst.clone() } else { src_table.share() };
                let slice = |window: Window, (at, len): (usize, usize)| window.slice(at..at + len);
                let whole = dst.clone();
                // The returned bytes include the bytes outside the destination, so that they are compared.
                on_a_queue!(src, dst, slice, |_: &Window| {
                    let mut bytes = vec![0; LEN];
                    whole.read_at(0, &mut bytes).expect("the CPU can reach the table");
                    bytes
                })
            } else {
                if shape == Shape::Gather {
                    expected = expected[flat.0..flat.0 + flat.1].to_vec();
                }
                let slice = |mut view: BufferMut, (at, len): (usize, usize)| view.split_off(at).split_to(len);
                on_a_queue!(src_table, dst_table, slice, |view: &BufferMut| view.to_vec())
            };
            prop_assert_eq!(copied, if is_named_twice { Err(ErrorKind::Overlap) } else { Ok(expected) });
        }
    }
}
