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
#[derive(Debug)]
pub(crate) struct RowList {
    /// Offsets in the view and lengths, in bytes.
    pub(crate) rows: Vec<(usize, usize)>,
    /// Sum of the lengths. The sum saturates, because repeated rows may exceed the size of the address space.
    pub(crate) len: usize,
    /// Length of the longest row.
    pub(crate) longest: usize,
    /// True if no row begins before the end of an earlier row.
    pub(crate) is_ascending: bool,
}

impl RowList {
    /// Returns true if it is certain that no two rows share a byte. Returns false if it is uncertain: with
    /// more than 512 rows that are not ascending, or with empty rows inside other rows.
    pub(crate) fn is_disjoint(&self) -> bool {
        self.is_ascending || self.is_disjoint_when_sorted()
    }

    fn is_disjoint_when_sorted(&self) -> bool {
        const INDEX_BITS: u32 = 9;
        // An array on the stack, because rows are checked at each submission, and submissions do not
        // allocate.
        let mut keys = [0_u64; 1 << INDEX_BITS];
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
