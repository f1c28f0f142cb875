//! [`ShortOperations`]: executes short operations in the thread that submits them, without the queue.
#![expect(unsafe_code, reason = "implements `InlineExecutor`")]

use dma_core::{CacheHint, Completion, DeviceAddr, InlineExecutor, Operation, racy_copy};

use super::Kernel;
use super::copy_tuner::{LEARN_MIN, STREAM_MIN};
use super::execute::{Work, WorkKind};
use super::kernel::SHORT;

/// Executes short operations, through the cache.
#[derive(Debug)]
pub(super) struct ShortOperations {
    max_len: usize,
}

impl ShortOperations {
    /// Executes operations that are shorter than those whose kernel the hint or measurements select, up to
    /// `inline_limit`. Returns `None` if that is 0.
    pub(super) fn new(inline_limit: usize, hint: CacheHint) -> Option<Self> {
        let max_len = match hint {
            CacheHint::Cold => STREAM_MIN - 1,
            CacheHint::Auto | CacheHint::Hot => LEARN_MIN,
        };
        (inline_limit > 0).then_some(Self { max_len: inline_limit.min(max_len) })
    }
}

// SAFETY: every operation is executed by the calling thread before the call returns, within its segments. The
// memory that the CPU can reach needs no lease.
unsafe impl InlineExecutor for ShortOperations {
    fn max_len(&self) -> usize {
        self.max_len
    }

    #[inline]
    unsafe fn copy(&self, src: DeviceAddr, dst: DeviceAddr, len: usize) {
        let (src, dst) = (src.as_ptr().cast_const(), dst.as_ptr());
        if len <= SHORT {
            // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
            unsafe { racy_copy::copy(dst, src, len) }
        } else {
            // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
            unsafe { Kernel::memcpy().copy(dst, src, len) }
        }
    }

    unsafe fn execute(&self, operation: &Operation<'_>) -> u64 {
        let (kind, src, dst) = match *operation {
            // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
            Operation::Copy { src, dst } => unsafe {
                self.copy(src.addr, dst.addr, src.len);
                return 0;
            },
            Operation::Compare { a, b } => {
                let [left, right] = [a, b].map(|side| side.addr.as_ptr().cast_const());
                // SAFETY: the caller ensures access to both ranges.
                let differs = unsafe { racy_copy::first_difference(left, right, a.len) };
                return differs.map_or(Completion::EQUAL, |at| at as u64);
            }
            // SAFETY: the caller ensures access to the range.
            Operation::Crc32c { src, seed } => unsafe {
                return racy_copy::crc32c(seed, src.addr.as_ptr(), src.len).into();
            },
            // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
            Operation::CopyCrc32c { src, dst, seed } => unsafe {
                return racy_copy::copy_crc32c(seed, dst.addr.as_ptr(), src.addr.as_ptr(), src.len).into();
            },
            Operation::CopyToBoth { src, dst } => {
                for to in dst {
                    // SAFETY: the caller ensures access to all ranges, and that the destinations overlap
                    // nothing.
                    unsafe { self.copy(src.addr, to.addr, src.len) };
                }
                return 0;
            }
            Operation::Fill { pattern, dst: &[dst] } => {
                // SAFETY: the caller ensures access to the range.
                unsafe { Kernel::memcpy().fill(dst.addr.as_ptr(), pattern, dst.len) };
                return 0;
            }
            Operation::Fill { pattern, dst } => (WorkKind::Fill { pattern }, &[][..], dst),
            Operation::CopyLists { src, dst } => (WorkKind::Copy, src, dst),
            _ => unreachable!("dma-core has no other operations"),
        };
        let len = dst.iter().map(|segment| segment.len).sum();
        // SAFETY: the caller meets the requirements of `RawQueue::submit` for these segments.
        let done = unsafe { Work { kind, src, dst }.run(0, len, Kernel::memcpy()) };
        done.expect("only imported memory can fail, which the CPU cannot reach")
    }
}
