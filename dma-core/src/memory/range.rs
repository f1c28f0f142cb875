//! [`Range`]: a part of a region, and the methods that all views of a region share.

use std::fmt;
use std::mem::MaybeUninit;

use super::region::Region;
use crate::{DeviceAddr, Segment};

/// Defines the methods that views of a region share.
macro_rules! view_methods {
    ($view:ident: $($more:ident)*) => {
        impl $view {
            /// Returns the length in bytes.
            #[must_use]
            pub fn len(&self) -> usize {
                self.0.len
            }

            /// Returns whether the length is 0.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.len == 0
            }

            /// Returns the region of this view.
            #[must_use]
            pub fn region(&self) -> &Region {
                &self.0.region
            }

            /// Returns the offset of the view's first byte in its region, in bytes.
            #[must_use]
            pub fn offset(&self) -> usize {
                self.0.offset()
            }
        }
        impl std::fmt::Debug for $view {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($view)).field(&self.0).finish()
            }
        }
        $(crate::memory::range::view_methods!(@$more $view);)*
    };
    (@slice $view:ident) => {
        impl $view {
            /// Returns a view of the bytes in `range`. Does not copy.
            ///
            /// # Panics
            ///
            /// If the range is not inside this view.
            #[must_use]
            pub fn slice(&self, range: impl std::ops::RangeBounds<usize>) -> Self {
                Self(self.0.slice(range))
            }
        }
    };
    (@split $view:ident) => {
        impl $view {
            /// Splits off and returns the first `at` bytes; `self` keeps the rest. Does not copy.
            ///
            /// # Panics
            ///
            /// If the view has fewer than `at` bytes.
            #[must_use = "dropping the result gives up the bytes that were split off"]
            pub fn split_to(&mut self, at: usize) -> Self {
                Self(self.0.split_to(at))
            }

            /// Splits off and returns the bytes after the first `at`; `self` keeps the first `at` bytes. Does
            /// not copy.
            ///
            /// # Panics
            ///
            /// If the view has fewer than `at` bytes.
            #[must_use = "dropping the result gives up the bytes that were split off"]
            pub fn split_off(&mut self, at: usize) -> Self {
                Self(self.0.split_off(at))
            }
        }
    };
}
pub(crate) use view_methods;

/// A range of a region. Every view is a range.
///
/// With this alignment, the compiler always moves a range as the same two halves. Otherwise a load could span
/// two recent stores, which costs a dozen cycles, and operands are moved several times per operation. In this
/// order, the address and the length are one of the halves: the compiler also moves them without the region.
#[derive(Clone)]
#[repr(C, align(16))]
pub(crate) struct Range {
    pub(crate) addr: DeviceAddr,
    pub(crate) len: usize,
    /// Not used. It precedes the region, because the compiler moves the region alone, and the other three
    /// words then in aligned parts.
    pad: MaybeUninit<usize>,
    pub(crate) region: Region,
}

impl Range {
    /// Makes a range of a region that contains it.
    #[inline]
    pub(crate) const fn of(region: Region, addr: DeviceAddr, len: usize) -> Self {
        Self { addr, len, pad: MaybeUninit::uninit(), region }
    }

    /// Returns the range of the whole region.
    pub(crate) fn whole(region: Region) -> Self {
        let (addr, len) = (region.0.info.addr, region.0.info.len);
        Self::of(region, addr, len)
    }

    /// Returns the offset of the range in its region, in bytes.
    pub(crate) fn offset(&self) -> usize {
        (self.addr.0 - self.region.0.info.addr.0) as usize
    }

    /// Returns the address of byte `at`. The caller has checked `at`.
    fn after(&self, at: usize) -> DeviceAddr {
        debug_assert!(at <= self.len);
        self.addr.offset(at)
    }

    /// Splits off and returns the first `at` bytes.
    pub(crate) fn split_to(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split_to out of bounds: {at} of {} bytes", self.len);
        let front = Self::of(self.region.clone(), self.addr, at);
        self.addr = self.after(at);
        self.len -= at;
        front
    }

    /// Splits off and returns the bytes after the first `at`.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split_off out of bounds: {at} of {} bytes", self.len);
        let back = Self::of(self.region.clone(), self.after(at), self.len - at);
        self.len = at;
        back
    }

    /// Returns whether `next` begins at the end of this range.
    pub(crate) fn touches(&self, next: &Self) -> bool {
        self.region.is_same(&next.region) && self.after(self.len) == next.addr
    }

    /// Returns the address space of the bytes, and the first byte's address in that space: see [`Location`].
    #[inline]
    pub(crate) fn located(&self) -> (u64, u64) {
        self.located_at(0)
    }

    /// Returns the address space and the address of byte `at`, like [`located`](Self::located).
    #[inline]
    pub(crate) fn located_at(&self, at: usize) -> (u64, u64) {
        self.region.0.location.of(self.after(at))
    }

    pub(crate) fn segment(&self) -> Segment {
        Segment { key: self.region.0.info.key, addr: self.addr, len: self.len }
    }

    /// Returns the sub-range `bounds`.
    pub(crate) fn slice(&self, bounds: impl std::ops::RangeBounds<usize>) -> Self {
        use std::ops::Bound;
        let begin = match bounds.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n.checked_add(1).expect("slice start overflows"),
            Bound::Unbounded => 0,
        };
        let end = match bounds.end_bound() {
            Bound::Included(&n) => n.checked_add(1).expect("slice end overflows"),
            Bound::Excluded(&n) => n,
            Bound::Unbounded => self.len,
        };
        assert!(begin <= end && end <= self.len, "slice {begin}..{end} out of bounds of {} bytes", self.len);
        Self::of(self.region.clone(), self.after(begin), end - begin)
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range")
            .field("backend", &self.region.0.backend)
            .field("offset", &self.offset())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
