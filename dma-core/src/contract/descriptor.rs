//! [`Descriptor`]: an [`Operation`] in 56 bytes.
#![expect(unsafe_code, reason = "keeps ranges and lists in the same words")]

use std::fmt;

use crate::{DeviceAddr, Operation, RegionKey, Segment};

/// One unit of work for a device: an [`Operation`], a token and a fence.
///
/// Most descriptors copy one segment. To make such descriptors cheap to write and read, the struct contains
/// no enum, and its 56 bytes are less than a cache line.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Descriptor<'a> {
    token: u64,
    /// The length of each segment, or the total length of a list.
    len: usize,
    /// Source and destination. The [`DescriptorKind`] in `word` tells which union field is valid.
    src: Side<'a>,
    dst: Side<'a>,
    /// The lowest byte is the [`DescriptorKind`], the next bit is the fence, and the upper half is the seed.
    /// The three share one word, because a load that spans several recent stores stalls.
    word: u64,
}

/// The fence bit in [`Descriptor::word`].
const FENCE: u64 = 1 << 8;

/// The source or the destination of an operation.
#[derive(Clone, Copy)]
#[repr(C)]
union Side<'a> {
    /// The address of one segment, whose length is the descriptor's length.
    one: (RegionKey, DeviceAddr),
    list: &'a [Segment],
    pair: &'a [Segment; 2],
    pattern: [u8; 8],
}

/// The type of the operation, which determines the union fields of `src` and `dst`.
#[derive(Clone, Copy)]
#[repr(u8)]
enum DescriptorKind {
    /// `one`, `one`.
    Copy,
    /// `list`, `list`.
    CopyLists,
    /// `pattern`, `list`.
    Fill,
    /// `one`, `one`.
    Compare,
    /// `one`, nothing.
    Crc32c,
    /// `one`, `one`.
    CopyCrc32c,
    /// `one`, `pair`.
    CopyToBoth,
}

impl DescriptorKind {
    #[inline]
    const fn of(word: u64) -> Self {
        match word as u8 {
            0 => Self::Copy,
            1 => Self::CopyLists,
            2 => Self::Fill,
            3 => Self::Compare,
            4 => Self::Crc32c,
            5 => Self::CopyCrc32c,
            _ => Self::CopyToBoth,
        }
    }
}

const fn one<'a>(segment: Segment) -> Side<'a> {
    Side { one: (segment.key, segment.addr) }
}

/// Returns the total length, or [`usize::MAX`] if the total is greater. No queue submits such a list.
fn total(list: &[Segment]) -> usize {
    list.iter().fold(0, |total: usize, segment| total.saturating_add(segment.len))
}

impl<'a> Descriptor<'a> {
    #[inline]
    const fn new(
        kind: DescriptorKind,
        token: u64,
        len: usize,
        src: Side<'a>,
        dst: Side<'a>,
        seed: u32,
    ) -> Self {
        Self { token, len, src, dst, word: kind as u64 | (seed as u64) << 32 }
    }

    /// Makes an [`Operation::Copy`] of `src` to `dst`, which have the same length.
    #[inline]
    #[must_use]
    pub const fn copy(token: u64, src: Segment, dst: Segment) -> Self {
        Self::new(DescriptorKind::Copy, token, dst.len, one(src), one(dst), 0)
    }

    /// Makes an [`Operation::CopyLists`] of lists of the same total length.
    #[must_use]
    pub fn copy_lists(token: u64, src: &'a [Segment], dst: &'a [Segment]) -> Self {
        Self::new(DescriptorKind::CopyLists, token, total(dst), Side { list: src }, Side { list: dst }, 0)
    }

    /// Makes an [`Operation::Fill`].
    #[must_use]
    pub fn fill(token: u64, pattern: [u8; 8], dst: &'a [Segment]) -> Self {
        Self::new(DescriptorKind::Fill, token, total(dst), Side { pattern }, Side { list: dst }, 0)
    }

    /// Makes an [`Operation::Compare`] of segments of the same length.
    #[inline]
    #[must_use]
    pub const fn compare(token: u64, a: Segment, b: Segment) -> Self {
        Self::new(DescriptorKind::Compare, token, a.len, one(a), one(b), 0)
    }

    /// Makes an [`Operation::Crc32c`].
    #[inline]
    #[must_use]
    pub const fn crc32c(token: u64, src: Segment, seed: u32) -> Self {
        Self::new(DescriptorKind::Crc32c, token, src.len, one(src), one(src), seed)
    }

    /// Makes an [`Operation::CopyCrc32c`] of `src` to `dst`, which have the same length.
    #[inline]
    #[must_use]
    pub const fn copy_crc32c(token: u64, src: Segment, dst: Segment, seed: u32) -> Self {
        Self::new(DescriptorKind::CopyCrc32c, token, dst.len, one(src), one(dst), seed)
    }

    /// Makes an [`Operation::CopyToBoth`]; all three segments have the same length.
    #[inline]
    #[must_use]
    pub const fn copy_to_both(token: u64, src: Segment, dst: &'a [Segment; 2]) -> Self {
        Self::new(DescriptorKind::CopyToBoth, token, src.len, one(src), Side { pair: dst }, 0)
    }

    /// Sets the fence: this descriptor *and all later descriptors* of the queue start only when all earlier
    /// descriptors have completed. Only with [`Capabilities::FENCE`](crate::Capabilities::FENCE).
    #[inline]
    #[must_use]
    pub const fn with_fence(mut self, fence: bool) -> Self {
        self.word = (self.word & !FENCE) | if fence { FENCE } else { 0 };
        self
    }

    /// Returns the token. The completion contains the same token. The queue does not interpret it.
    #[inline]
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// Returns the same descriptor with another token.
    #[inline]
    #[must_use]
    pub const fn with_token(mut self, token: u64) -> Self {
        self.token = token;
        self
    }

    /// Returns whether this descriptor has a fence: see [`with_fence`](Self::with_fence).
    #[inline]
    #[must_use]
    pub const fn fence(&self) -> bool {
        self.word & FENCE != 0
    }

    /// Returns the length in bytes of the source, and of each destination; at least 1 and at most
    /// [`Limits::max_transfer`](crate::Limits::max_transfer).
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a descriptor is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the operation.
    #[inline]
    #[must_use]
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "`kind` tells which union fields are valid")]
    pub const fn operation(&self) -> Operation<'a> {
        let seed = (self.word >> 32) as u32;
        // SAFETY: the constructors set the kind in `word` together with the union fields that the kind's arm
        // reads, and no method changes the kind or these fields.
        unsafe {
            match DescriptorKind::of(self.word) {
                DescriptorKind::Copy => {
                    Operation::Copy { src: self.segment(self.src), dst: self.segment(self.dst) }
                }
                DescriptorKind::CopyLists => Operation::CopyLists { src: self.src.list, dst: self.dst.list },
                DescriptorKind::Fill => Operation::Fill { pattern: self.src.pattern, dst: self.dst.list },
                DescriptorKind::Compare => {
                    Operation::Compare { a: self.segment(self.src), b: self.segment(self.dst) }
                }
                DescriptorKind::Crc32c => Operation::Crc32c { src: self.segment(self.src), seed },
                DescriptorKind::CopyCrc32c => {
                    Operation::CopyCrc32c { src: self.segment(self.src), dst: self.segment(self.dst), seed }
                }
                DescriptorKind::CopyToBoth => {
                    Operation::CopyToBoth { src: self.segment(self.src), dst: self.dst.pair }
                }
            }
        }
    }

    /// Returns the source and the destination if this is an [`Operation::Copy`] without a fence. The check is
    /// one comparison, for the fast paths of engines.
    #[must_use]
    #[inline]
    pub const fn as_unfenced_copy(&self) -> Option<(Segment, Segment)> {
        // For a copy without a fence, `word` contains only the kind, because the seed is 0.
        match self.operation() {
            Operation::Copy { src, dst } if self.word == DescriptorKind::Copy as u64 => Some((src, dst)),
            _ => None,
        }
    }

    /// # Safety
    ///
    /// `side` holds `one`.
    #[inline]
    const unsafe fn segment(&self, side: Side<'a>) -> Segment {
        // SAFETY: the caller ensures that `side` holds `one`.
        let (key, addr) = unsafe { side.one };
        Segment { key, addr, len: self.len }
    }
}

impl fmt::Debug for Descriptor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor")
            .field("token", &self.token)
            .field("fence", &self.fence())
            .field("operation", &self.operation())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Completion;

    #[test]
    fn the_hot_types_are_small() {
        assert_eq!(size_of::<Completion>(), 24);
        assert_eq!(size_of::<Segment>(), 24);
        assert_eq!(size_of::<Descriptor<'_>>(), 56);
    }

    #[test]
    fn descriptors_come_out_as_they_went_in() {
        let segment =
            |n: u64, len| Segment { key: RegionKey(n as usize + 7), addr: DeviceAddr(n << 40), len };
        let (a, b, c) = (segment(1, 100), segment(2, 100), segment(3, 50));
        let (lists, both) = ([a, c], [b, segment(4, 100)]);
        let all = [
            (Descriptor::copy(1, a, b), 100, Operation::Copy { src: a, dst: b }),
            (
                Descriptor::copy_lists(2, &lists, &lists),
                150,
                Operation::CopyLists { src: &lists, dst: &lists },
            ),
            (
                Descriptor::fill(3, *b"pattern!", &lists),
                150,
                Operation::Fill { pattern: *b"pattern!", dst: &lists },
            ),
            (Descriptor::compare(4, a, b), 100, Operation::Compare { a, b }),
            (Descriptor::crc32c(5, c, 9), 50, Operation::Crc32c { src: c, seed: 9 }),
            (Descriptor::copy_crc32c(6, b, a, 8), 100, Operation::CopyCrc32c { src: b, dst: a, seed: 8 }),
            (Descriptor::copy_to_both(7, a, &both), 100, Operation::CopyToBoth { src: a, dst: &both }),
        ];
        for ((descriptor, len, operation), token) in all.into_iter().zip(1..) {
            assert_eq!(format!("{:?}", descriptor.operation()), format!("{operation:?}"));
            assert_eq!((descriptor.token(), descriptor.len(), descriptor.fence()), (token, len, false));
            assert_eq!(descriptor.as_unfenced_copy(), (token == 1).then_some((a, b)));
            let fenced = descriptor.with_fence(true);
            assert_eq!(fenced.as_unfenced_copy(), None);
            assert!(
                fenced.fence() && format!("{fenced:?}").contains(&format!("{operation:?}")),
                "{fenced:?}"
            );
        }
    }
}
