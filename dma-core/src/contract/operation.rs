//! [`Operation`]: the work of a descriptor on [`Segment`]s of regions. [`Completion`]: its end.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ErrorKind;

/// The address that the device uses for a byte. For memory of this process, this is the CPU's address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceAddr(pub u64);

impl DeviceAddr {
    /// Returns the device address of memory that the CPU can reach.
    #[inline]
    #[must_use]
    pub fn of(ptr: NonNull<u8>) -> Self {
        Self(ptr.as_ptr().expose_provenance() as u64)
    }

    /// Returns the CPU's pointer to the byte, for engines that copy by CPU. Use the pointer only as the
    /// descriptor allows, and only if the CPU can reach the region.
    #[inline]
    #[must_use]
    pub fn as_ptr(self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.0 as usize)
    }

    /// Returns the address that is `bytes` after this one, in the same region.
    #[inline]
    #[must_use]
    pub const fn offset(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes as u64))
    }
}

impl fmt::LowerHex for DeviceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl fmt::Debug for DeviceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The key that identifies a region in an engine's descriptors. The key has no meaning outside the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey(pub usize);

impl RegionKey {
    /// Returns a key that no other call in this process has returned. The key is odd, so it never equals the
    /// address of an aligned object.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self(NEXT.fetch_add(2, Ordering::Relaxed))
    }
}

/// A contiguous range of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The region.
    pub key: RegionKey,
    /// The address of the first byte: the region's [`addr`](crate::RegionInfo::addr) plus the offset.
    pub addr: DeviceAddr,
    /// The length in bytes.
    pub len: usize,
}

/// The operation of a [`Descriptor`](crate::Descriptor).
///
/// An operation reads `src` (or `a` and `b`) and writes `dst`. Without lists, all segments have the same
/// length. Two lists have the same total length, and their segments are used in order. `seed` is the CRC-32C
/// of the preceding bytes, or 0. The [`Completion`] contains the result.
///
/// No list and no segment is empty. Lists, except the pair of `CopyToBoth`, have at most
/// [`Limits::max_segments`](crate::Limits::max_segments) segments. Each side has at most
/// [`Limits::max_transfer`](crate::Limits::max_transfer) bytes. `CopyLists` is submitted only to an engine
/// whose `max_segments` is above 1. The variants after it are submitted only to an engine that declares their
/// [capability](crate::Capabilities).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text above describes the fields")]
pub enum Operation<'a> {
    /// Copies one segment.
    Copy { src: Segment, dst: Segment },
    /// Copies lists of segments.
    CopyLists { src: &'a [Segment], dst: &'a [Segment] },
    /// Fills `dst` with repetitions of the 8 bytes of `pattern`. The last repetition is cut off at the end of
    /// `dst`.
    Fill { pattern: [u8; 8], dst: &'a [Segment] },
    /// Compares two segments, which may overlap. The result is the offset of the first byte that differs, or
    /// [`Completion::EQUAL`].
    Compare { a: Segment, b: Segment },
    /// Computes the CRC-32C of `src`. The result is the CRC.
    Crc32c { src: Segment, seed: u32 },
    /// Copies one segment. The result is the CRC-32C of the copied bytes.
    CopyCrc32c { src: Segment, dst: Segment, seed: u32 },
    /// Copies one segment to two others.
    CopyToBoth { src: Segment, dst: &'a [Segment; 2] },
}

/// The way in which a descriptor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// All bytes are in place and visible to the CPU.
    Done,
    /// The device or its memory protection refused or aborted the descriptor. The destination is undefined.
    Failed(ErrorKind),
    /// The device was reset before it reported this descriptor. Submitting the descriptor again is safe.
    Aborted,
}

/// The report that a descriptor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The descriptor's token.
    pub token: u64,
    /// The result of the [`Operation`] if the outcome is `Done` and the operation has a result; otherwise 0.
    pub result: u64,
    /// The failure code of the device or library, for [`RawQueue::explain`](crate::RawQueue::explain); 0
    /// without a failure code.
    pub native: i32,
    /// The outcome.
    pub outcome: Outcome,
}

impl Completion {
    /// The result of a comparison that found no difference.
    pub const EQUAL: u64 = u64::MAX;

    /// Makes the completion of a descriptor that succeeded.
    #[must_use]
    #[inline]
    pub const fn done(token: u64) -> Self {
        Self { token, result: 0, native: 0, outcome: Outcome::Done }
    }

    /// Makes a completion with an outcome and the device's failure code `native`, or 0.
    #[must_use]
    #[inline]
    pub const fn ended(token: u64, outcome: Outcome, native: i32) -> Self {
        Self { token, result: 0, native, outcome }
    }

    /// Sets the result.
    #[must_use]
    #[inline]
    pub const fn with_result(mut self, result: u64) -> Self {
        self.result = result;
        self
    }
}
