//! Operands of operations: one view, or several views for scatter-gather.

use crate::memory::range::Range;
use crate::{Buffer, BufferMut, Window};

pub(crate) mod sealed {
    use super::{Range, RowList};

    /// The views that an operand consists of.
    pub trait Operand: 'static {
        /// True if there is always exactly one view.
        const SINGLE: bool;

        /// True if no other operand can overlap its bytes.
        const UNIQUE: bool;

        /// Calls `f` with every view, in order.
        #[expect(private_interfaces, reason = "the trait is sealed: no other crate can name or call this")]
        fn each(&self, f: &mut dyn FnMut(&Range));

        /// Returns the only view. Called only if [`SINGLE`](Self::SINGLE).
        #[expect(private_interfaces, reason = "the trait is sealed: no other crate can name or call this")]
        fn single(&self) -> &Range;

        /// Returns true if it is certain that no byte is in the operand twice, and that no other operand
        /// overlaps it.
        fn is_disjoint(&self) -> bool {
            Self::UNIQUE
        }

        /// Returns the view and its rows, for [`Rows`](crate::Rows).
        #[expect(private_interfaces, reason = "the trait is sealed: no other crate can name or call this")]
        #[inline]
        fn rows(&self) -> Option<(&Range, &RowList)> {
            None
        }
    }

    /// A single view.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not a view of registered memory",
        label = "not a `BufferMut`, `Buffer` or `Window`",
        note = "pass the view itself: it moves into the operation, and the completion returns it"
    )]
    pub trait View: Operand {}
}
use sealed::{Operand, View};

/// Rows that lie inside a view.
#[derive(Clone, Debug)]
pub(crate) struct RowList {
    /// Length of the view in bytes.
    pub(crate) view_len: usize,
    /// Offsets in the view and lengths, in bytes.
    pub(crate) rows: Vec<(usize, usize)>,
    /// Sum of the lengths. The sum saturates, because repeated rows may exceed the size of the address space.
    pub(crate) len: usize,
    /// Length of the longest row.
    pub(crate) longest: usize,
    /// True if no row begins before the end of an earlier row.
    pub(crate) is_ascending: bool,
}

/// Maximum number of rows that are not ascending and that an operation checks by itself.
const MAX_SORTED: usize = 512;

impl RowList {
    /// Returns true if it is certain that no two rows share a byte. Returns false if it is uncertain: with
    /// more than 512 rows that are not ascending, and for some lists with empty rows inside other rows.
    pub(crate) fn is_disjoint(&self) -> bool {
        self.is_ascending || self.is_disjoint_by_map().unwrap_or_else(|| self.is_disjoint_when_sorted())
    }

    /// Marks the blocks of all rows in a map. Two rows that share a byte share a block, so only rows with a
    /// block that is already marked are compared with all rows. Returns `None` if these are too many.
    fn is_disjoint_by_map(&self) -> Option<bool> {
        const BITS: usize = 1 << 15;
        const MAX_MARKS: usize = 32;
        const MAX_UNSURE: usize = 8;
        if self.rows.len() > MAX_SORTED {
            return None;
        }
        // A block is a cache line, or longer: then a row needs few marks, and a map of few bits is not full.
        let per_bit = (self.view_len / BITS).min(self.longest).next_power_of_two();
        let shift = per_bit.max(64).max(self.longest.next_power_of_two() / MAX_MARKS).ilog2();
        let last = (1 << shift) - 1;
        // An array on the stack, because rows are checked at each submission, and submissions do not
        // allocate.
        let mut map = [0_u8; BITS / 8 + size_of::<u64>()];
        let (mut unsure, mut count) = ([0; MAX_UNSURE], 0);
        for (index, &(at, len)) in self.rows.iter().enumerate() {
            let (first, end) = (at >> shift, (at + len + last) >> shift);
            let bit = first % BITS;
            let word: &mut [u8; size_of::<u64>()] = map[bit / 8..].first_chunk_mut().expect("ends later");
            let marked = u64::from_le_bytes(*word);
            // A row has at most `MAX_MARKS` + 1 marks.
            let marks = ((1 << (end - first)) - 1) << (bit % 8);
            *word = (marked | marks).to_le_bytes();
            // The first block after the map has the mark of the first block in the map, so a row that reaches
            // beyond the map is compared with all others.
            if marked & marks != 0 || bit + (end - first) > BITS {
                *unsure.get_mut(count)? = index;
                count += 1;
            }
        }
        let shares_bytes = |index: usize| {
            let (at, len) = self.rows[index];
            let shared = |row: &(usize, usize)| at.max(row.0) < (at + len).min(row.0 + row.1);
            // Not branches, because the row shares its bytes only with itself.
            len > 0 && self.rows.iter().map(|row| usize::from(shared(row))).sum::<usize>() > 1
        };
        Some(!unsure[..count].iter().any(|index| shares_bytes(*index)))
    }

    fn is_disjoint_when_sorted(&self) -> bool {
        const INDEX_BITS: u32 = MAX_SORTED.ilog2();
        let mut keys = [0_u64; MAX_SORTED];
        let Some(keys) = keys.get_mut(..self.rows.len()) else { return false };
        for ((key, index), row) in keys.iter_mut().zip(0_u64..).zip(&self.rows) {
            let at = row.0 as u64;
            if at >> (u64::BITS - INDEX_BITS) != 0 {
                return false;
            }
            *key = at << INDEX_BITS | index;
        }
        keys.sort_unstable();
        let mut end = 0;
        keys.iter().all(|key| {
            let (at, len) = self.rows[(key & ((1 << INDEX_BITS) - 1)) as usize];
            at >= std::mem::replace(&mut end, at + len)
        })
    }
}

/// Memory that an operation can read: a [`BufferMut`], [`Buffer`] or [`Window`]. For a gather: a `Vec`, boxed
/// slice, array or tuple of up to eight of these views, which are read in order, or [`Rows`](crate::Rows) of
/// one view.
///
/// The memory moves into the operation, and the completion returns it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory that an operation can read",
    label = "not registered memory",
    note = "allocate it with `engine.allocate(len)`, or register it: `engine.register(HostMemory::from_owner(vec))`",
    note = "a borrowed slice may be freed while the device reads it: copy slices with `queue.copy_bytes(&pool, src, dst)`, or copy the slice into a `BufferMut`"
)]
pub trait Source: Operand {}

/// Memory that an operation can write: a [`BufferMut`] or [`Window`]. For a scatter: a `Vec`, boxed slice,
/// array or tuple of up to eight of these views, which are written in order, or [`Rows`](crate::Rows) of one
/// view.
///
/// The memory moves into the operation, and the completion returns it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory that an operation can write",
    label = "not registered writable memory",
    note = "allocate it with `engine.allocate(len)`, or register it: `engine.register(HostMemory::from_owner(vec))`",
    note = "a borrowed slice may be freed while the device writes it: copy slices with `queue.copy_bytes(&pool, src, dst)`",
    note = "a `Buffer` is shared: `try_into_mut` makes it writable"
)]
pub trait Destination: Operand {}

macro_rules! view {
    ($view:ty, unique = $unique:literal, $($role:ident),+) => {
        #[expect(private_interfaces, reason = "sealed")]
        impl Operand for $view {
            const SINGLE: bool = true;
            const UNIQUE: bool = $unique;
            fn each(&self, f: &mut dyn FnMut(&Range)) {
                f(&self.0);
            }
            #[inline]
            fn single(&self) -> &Range {
                &self.0
            }
        }
        impl View for $view {}
        $(impl $role for $view {})+
    };
}
view!(BufferMut, unique = true, Source, Destination);
view!(Buffer, unique = false, Source);
view!(Window, unique = false, Source, Destination);

macro_rules! list {
    ($(($list:ty, [$($generics:tt)*])),+) => {$(
        #[expect(private_interfaces, reason = "sealed")]
        impl<T: Operand, $($generics)*> Operand for $list {
            const SINGLE: bool = false;
            const UNIQUE: bool = T::UNIQUE;
            fn each(&self, f: &mut dyn FnMut(&Range)) {
                self.iter().for_each(|part| part.each(f));
            }
            fn single(&self) -> &Range {
                unreachable!("a list is not a single view")
            }
        }
        impl<T: Source, $($generics)*> Source for $list {}
        impl<T: Destination, $($generics)*> Destination for $list {}
    )+};
}
list!((Vec<T>, []), (Box<[T]>, []), ([T; N], [const N: usize]));

macro_rules! tuple {
    ($($part:ident),+) => {
        #[expect(private_interfaces, reason = "sealed")]
        impl<$($part: Operand),+> Operand for ($($part,)+) {
            const SINGLE: bool = false;
            const UNIQUE: bool = $($part::UNIQUE &&)+ true;
            #[expect(non_snake_case, reason = "the macro uses one name for the type and its value")]
            fn each(&self, f: &mut dyn FnMut(&Range)) {
                let ($($part,)+) = self;
                $($part.each(f);)+
            }
            fn single(&self) -> &Range {
                unreachable!("a tuple is not a single view")
            }
        }
        impl<$($part: Source),+> Source for ($($part,)+) {}
        impl<$($part: Destination),+> Destination for ($($part,)+) {}
    };
}
tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);
tuple!(A, B, C, D, E);
tuple!(A, B, C, D, E, F);
tuple!(A, B, C, D, E, F, G);
tuple!(A, B, C, D, E, F, G, H);

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(view_len: usize, rows: Vec<(usize, usize)>) -> RowList {
        let (len, longest) = (rows.iter().map(|row| row.1).sum(), rows.iter().map(|row| row.1).max());
        RowList { view_len, rows, len, longest: longest.unwrap_or(0), is_ascending: false }
    }

    /// Compares each row with each other row.
    fn is_disjoint(rows: &[(usize, usize)]) -> bool {
        let shares = |a: &(usize, usize), b: &(usize, usize)| a.0.max(b.0) < (a.0 + a.1).min(b.0 + b.1);
        rows.iter().enumerate().all(|(n, a)| rows[..n].iter().all(|b| !shares(a, b)))
    }

    /// Rows of one longest length, close to each other, or to places that have the same mark.
    fn rows() -> impl Strategy<Value = Vec<(usize, usize)>> {
        let places = prop::sample::select(vec![1_usize, 2, 30]);
        let shape = (prop::sample::select(vec![8_usize, 100, 5_000, 200_000]), 1_usize..200, places);
        shape.prop_flat_map(|(longest, spread, places)| {
            let far = (0..places).prop_map(|place| place << 21);
            let row = (far, 0..longest * spread, 0..=longest);
            prop::collection::vec(row.prop_map(|(far, at, len)| (far + at, len)), 0..40)
        })
    }

    proptest! {
        #[test]
        fn a_byte_that_is_in_two_rows_is_found(mut rows in rows(), slack in prop::sample::select(vec![0, 1 << 32])) {
            let end = rows.iter().map(|row| row.0 + row.1).max().unwrap_or(0);
            let expected = is_disjoint(&rows);
            let by_map = list(end + slack, rows.clone()).is_disjoint_by_map();
            prop_assert!(by_map.is_none_or(|found| found == expected), "{:?}", by_map);
            rows.retain(|row| row.1 > 0);
            prop_assert_eq!(list(end + slack, rows).is_disjoint(), expected);
        }
    }

    #[test]
    fn rows_that_share_blocks_are_compared_or_sorted() {
        let adjacent = |rows: usize| (0..rows).rev().map(|row| (row * 100, 100)).collect::<Vec<_>>();
        for (rows, by_map) in [(2, Some(true)), (9, Some(true)), (100, None), (600, None)] {
            let list = list(60_000, adjacent(rows));
            assert_eq!(list.is_disjoint_by_map(), by_map, "{rows} rows");
            assert_eq!(list.is_disjoint(), rows <= MAX_SORTED, "{rows} rows");
        }
        // The second row begins in the block after the map.
        let last = 1 << 21;
        for (second, expected) in [(last + 2, Some(false)), (last + 4, Some(true)), (4, Some(true))] {
            assert_eq!(list(1 << 22, vec![(last - 4, 8), (second, 8)]).is_disjoint_by_map(), expected);
            assert_eq!(list(1 << 22, vec![(second, 8), (last - 4, 8)]).is_disjoint_by_map(), expected);
        }
    }
}
