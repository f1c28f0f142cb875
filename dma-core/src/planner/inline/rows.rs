//! Copies of rows: see [`Inline::copy_rows`].

use super::{Executed, Inline, MAX_TOTAL};
use crate::memory::operand::RowList;
use crate::memory::operand::sealed::Operand;
use crate::memory::range::Range;
use crate::planner::check::overlap;
use crate::{DeviceAddr, racy_copy};

/// Number of rows that are prefetched, because the CPU cannot predict their addresses.
const PREFETCHED_ROWS: usize = 16;
/// Number of cache lines that are prefetched of a row. The CPU itself overlaps the accesses to later lines,
/// and prefetches of more lines would delay rows that are in the cache.
const LINES: usize = 2;

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
                // SAFETY: `takes_rows` has checked the operands as `copy` does. The rows lie inside the view,
                // and the sum of their lengths is the length of the other range.
                unsafe { self.copy_each::<true>(view.addr, list, flat.addr) }
            }
            (None, Some((view, list))) if S::SINGLE => {
                let flat = src.single();
                let granted = self.reads(flat) & self.writes(view);
                if !(granted && self.takes_rows(view, list, flat, D::UNIQUE) && list.is_disjoint()) {
                    return None;
                }
                // SAFETY: `takes_rows` has checked the operands as `copy` does. The rows lie inside the view
                // and do not overlap, and the sum of their lengths is the length of the other range.
                unsafe { self.copy_each::<false>(view.addr, list, flat.addr) }
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

    /// Copies the rows of `view` to `flat` if `GATHERS`, else `flat` to the rows of `view`.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`InlineExecutor::copy`](crate::InlineExecutor::copy) for each row.
    unsafe fn copy_each<const GATHERS: bool>(
        &self,
        view: DeviceAddr,
        list: &RowList,
        flat: DeviceAddr,
    ) -> Option<Executed> {
        if !(self.exists() && self.admits(1, list.len)) {
            return None;
        }
        if list.longest <= self.plain_copy_len {
            each_row(view, &list.rows, flat, |row, flat, len| {
                let (src, dst) = if GATHERS { (row, flat) } else { (flat, row) };
                // SAFETY: the caller meets the requirements of the executor, which would only make this call.
                unsafe { racy_copy::copy(dst.as_ptr(), src.as_ptr(), len) };
            });
        } else {
            each_row(view, &list.rows, flat, |row, flat, len| {
                let (src, dst) = if GATHERS { (row, flat) } else { (flat, row) };
                if len > 0 {
                    // SAFETY: the caller meets the requirements.
                    unsafe { self.copy_checked(src, dst, len) };
                }
            });
        }
        Some(Executed::one(0, list.len))
    }
}

/// Calls `copy` for every row. The arguments are the addresses of the row and of its bytes on the other side,
/// and its length.
#[inline(always)]
fn each_row(
    view: DeviceAddr,
    rows: &[(usize, usize)],
    mut flat: DeviceAddr,
    copy: impl Fn(DeviceAddr, DeviceAddr, usize),
) {
    let prefetch =
        |&(row, len): &(usize, usize)| racy_copy::prefetch::<LINES>(view.offset(row).as_ptr(), len);
    let (first, later) = rows.split_at(rows.len().min(PREFETCHED_ROWS));
    first.iter().for_each(prefetch);
    let mut copy = |&(row, len): &(usize, usize)| {
        copy(view.offset(row), flat, len);
        flat = flat.offset(len);
    };
    for (row, later) in rows.iter().zip(later) {
        prefetch(later);
        copy(row);
    }
    rows[later.len()..].iter().for_each(copy);
}
