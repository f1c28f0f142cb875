//! Copies of rows: see [`Inline::copy_rows`].

use super::{Executed, Inline, MAX_TOTAL};
use crate::memory::operand::RowList;
use crate::memory::operand::sealed::Operand;
use crate::memory::range::Range;
use crate::planner::check::overlap;
use crate::racy_copy;

/// Number of rows that are prefetched, because the CPU cannot predict their addresses.
const PREFETCHED_ROWS: usize = 16;
/// Number of cache lines that are prefetched of a row that is read. The CPU itself overlaps the reads of
/// later lines.
const READ_LINES: usize = 2;
/// Number of cache lines that are prefetched of a row that is written. The number is greater than for reads,
/// because a write waits for its line.
const WRITTEN_LINES: usize = 8;

impl Inline {
    /// Copies rows to one range, or one range to rows. Returns `None` for other operands, and for rows that
    /// might write a byte twice.
    #[inline]
    pub(crate) fn copy_rows<S: Operand, D: Operand>(&self, src: &S, dst: &D) -> Option<Executed> {
        match (src.rows(), dst.rows()) {
            (Some((view, list)), None) if D::SINGLE => {
                let flat = dst.single();
                let granted = self.reads(view) & self.writes(flat);
                if !(granted && self.takes_rows(view, list, flat, D::UNIQUE)) {
                    return None;
                }
                self.each_row::<READ_LINES>(view, list, |row, at, len| {
                    // SAFETY: `takes_rows` has checked the operands as `copy` does. The rows lie inside the
                    // view, and the sum of their lengths is the length of the other range.
                    unsafe { self.copy_checked(view.addr.offset(row), flat.addr.offset(at), len) };
                })
            }
            (None, Some((view, list))) if S::SINGLE => {
                let flat = src.single();
                let granted = self.reads(flat) & self.writes(view);
                if !(granted && self.takes_rows(view, list, flat, D::UNIQUE) && list.is_disjoint()) {
                    return None;
                }
                self.each_row::<WRITTEN_LINES>(view, list, |row, at, len| {
                    // SAFETY: `takes_rows` has checked the operands as `copy` does. The rows lie inside the
                    // view and do not overlap, and the sum of their lengths is the length of the other range.
                    unsafe { self.copy_checked(flat.addr.offset(at), view.addr.offset(row), len) };
                })
            }
            _ => None,
        }
    }

    /// Returns whether a copy between the rows of `view` and `flat` is valid and short enough. The rights are
    /// already checked. `unique` is true if the types exclude that the views overlap.
    fn takes_rows(&self, view: &Range, list: &RowList, flat: &Range, unique: bool) -> bool {
        let fits = list.longest <= self.limit
            && list.len.wrapping_sub(1) < self.limit.saturating_mul(MAX_TOTAL)
            && list.len == flat.len;
        fits && (unique || !overlap(view, flat))
    }

    /// Calls `copy` for every row that is not empty. The arguments are the offset of the row, the sum of the
    /// lengths of the rows before it, and its length.
    #[inline]
    fn each_row<const LINES: usize>(
        &self,
        view: &Range,
        list: &RowList,
        copy: impl Fn(usize, usize, usize),
    ) -> Option<Executed> {
        if !(self.exists() && self.admits(1, list.len)) {
            return None;
        }
        let prefetch =
            |&(row, len): &(usize, usize)| racy_copy::prefetch::<LINES>(view.addr.offset(row).as_ptr(), len);
        list.rows.iter().take(PREFETCHED_ROWS).for_each(prefetch);
        let mut at = 0;
        for (index, &(row, len)) in list.rows.iter().enumerate() {
            list.rows.get(index + PREFETCHED_ROWS).iter().copied().for_each(prefetch);
            if len > 0 {
                copy(row, at, len);
                at += len;
            }
        }
        Some(Executed::one(0, list.len))
    }
}
