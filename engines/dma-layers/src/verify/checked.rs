//! [`CheckedCopy`]: a copy in flight, and its comparison.
#![expect(unsafe_code, reason = "reads the bytes of copies")]

use dma_core::{Operation, Segment, racy_copy};

use super::{Mismatch, Reach};
use crate::wrapper::for_each_pair;

/// A descriptor in flight. The index of its slot is the token of the inner descriptor.
#[derive(Debug, Default)]
pub(super) struct CheckedCopy {
    pub(super) token: u64,
    pub(super) verify: Reach,
    /// The CRC-32C of the source before the copy.
    pub(super) sum: u32,
    pub(super) src: Vec<Segment>,
    pub(super) dst: Vec<Segment>,
    /// True if each segment of `dst` is a separate destination.
    pub(super) both: bool,
}

/// Returns the CRC-32C of all bytes.
///
/// # Safety
///
/// The CPU can reach the segments, and only peers that share them may write them during the call.
unsafe fn sum(segments: &[Segment]) -> u32 {
    segments.iter().fold(0, |sum, segment| {
        // SAFETY: the caller promises that the segment can be read.
        unsafe { racy_copy::crc32c(sum, segment.addr.as_ptr(), segment.len) }
    })
}

impl CheckedCopy {
    /// Stores the operands of a copy, and computes the checksum of its source if the CPU can reach it.
    /// Returns the way to read the bytes: `Reach::None` if `operation` is not a copy or `choose` returns it.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`]. The operation has not been submitted yet. If `choose` returns
    /// [`Reach::Cpu`], the CPU can reach its memory.
    pub(super) unsafe fn fill(
        &mut self,
        operation: Operation<'_>,
        choose: impl FnOnce([&[Segment]; 2]) -> Reach,
    ) -> Reach {
        let (src, dst): (&[Segment], &[Segment]) = match &operation {
            Operation::Copy { src, dst } | Operation::CopyCrc32c { src, dst, .. } => {
                (std::slice::from_ref(src), std::slice::from_ref(dst))
            }
            Operation::CopyLists { src, dst } => (src, dst),
            Operation::CopyToBoth { src, dst } => (std::slice::from_ref(src), dst.as_slice()),
            _ => return Reach::None,
        };
        let reach = choose([src, dst]);
        if reach == Reach::None {
            return reach;
        }
        self.src.clear();
        self.src.extend_from_slice(src);
        self.dst.clear();
        self.dst.extend_from_slice(dst);
        self.both = matches!(operation, Operation::CopyToBoth { .. });
        if reach == Reach::Cpu {
            // SAFETY: the CPU can reach the source, because `choose` returned `Cpu`. The source is not
            // written from `submit` on.
            self.sum = unsafe { sum(src) };
        }
        reach
    }

    /// Compares the copy's bytes with its source.
    ///
    /// # Safety
    ///
    /// The device has reported the copy as done, but `poll` has not reported it to its caller yet.
    pub(super) unsafe fn check(&self) -> Option<Mismatch> {
        let each = if self.both { 1 } else { self.dst.len() };
        for dst in self.dst.chunks(each) {
            // SAFETY: the destination is not written before the caller gets the report, and `fill` has
            // checked that the CPU can reach it.
            if unsafe { sum(dst) } != self.sum {
                let wrong = for_each_pair(&[(&self.src, dst)], |offset, src, dst, len| {
                    // SAFETY: both parts lie in segments that the CPU can reach, and source and destination
                    // are not written before the caller gets the report.
                    let at = unsafe { racy_copy::first_difference(src?, dst, len) }?;
                    Some((offset + at, dst.addr() + at))
                });
                let len = dst.iter().map(|segment| segment.len).sum();
                return Some(Mismatch { code: 0, len, wrong });
            }
        }
        None
    }
}
