//! [`ShortOperations`]: executes short operations in the thread that submits them, without the queue.
#![expect(unsafe_code, reason = "implements `InlineExecutor`")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dma_core::{CacheHint, Completion, DeviceAddr, InlineCopy, InlineExecutor, Operation, racy_copy};

use super::Kernel;
use super::clock::ticks;
use super::copy_tuner::{CopyTuner, LEARN_MIN, STREAM_MIN};
use super::execute::{Work, WorkKind};
use super::kernel::SHORT;
use super::long_copy::LongCopies;

thread_local! {
    /// Number of copies of [`LEARN_MIN`] bytes that this thread still executes without a call of the tuner,
    /// so that most of them take no lock. Each thread has its own count, because threads would contend for
    /// the cache line of a shared one.
    static UNTIMED: Cell<u32> = const { Cell::new(0) };
}

/// Executes short operations: through the cache, or past it if the hint or measurements select that.
#[derive(Debug)]
pub(super) struct ShortOperations {
    max_len: usize,
    hint: CacheHint,
    /// Minimum length of copies that may be streamed.
    may_stream_from: usize,
    streaming: Option<Kernel>,
    /// True if copies of [`LEARN_MIN`] bytes are streamed.
    streams: AtomicBool,
    /// Learns from copies of [`LEARN_MIN`] bytes.
    copies: Mutex<CopyTuner>,
    /// Learns from batches, by their total length.
    batches: Mutex<CopyTuner>,
    long: LongCopies,
}

impl ShortOperations {
    /// Makes the executor of operations of up to `inline_limit` bytes, and at most [`LEARN_MIN`] bytes.
    /// Returns `None` if `inline_limit` is 0.
    pub(super) fn new(inline_limit: usize, hint: CacheHint, long: LongCopies) -> Option<Self> {
        let streaming = Kernel::streaming();
        let may_stream_from = match hint {
            _ if streaming.is_none() => usize::MAX,
            CacheHint::Hot => usize::MAX,
            CacheHint::Cold => STREAM_MIN,
            CacheHint::Auto => LEARN_MIN,
        };
        (inline_limit > 0).then(|| Self {
            max_len: inline_limit.min(LEARN_MIN),
            hint,
            may_stream_from,
            streaming,
            streams: AtomicBool::new(hint == CacheHint::Cold),
            copies: Mutex::new(CopyTuner::new()),
            batches: Mutex::new(CopyTuner::new()),
            long,
        })
    }

    /// Returns the kernel of copies of at least [`Self::may_stream_from`] bytes.
    fn kernel(&self) -> Kernel {
        match self.streaming {
            Some(streaming) if self.streams.load(Ordering::Relaxed) => streaming,
            _ => Kernel::memcpy(),
        }
    }

    /// Returns the kernel of fills and lists, which are not timed.
    fn hinted_kernel(&self) -> Kernel {
        if self.hint == CacheHint::Cold { self.kernel() } else { Kernel::memcpy() }
    }

    /// Executes a copy of at least [`Self::may_stream_from`] bytes.
    ///
    /// # Safety
    ///
    /// See [`Kernel::copy`].
    unsafe fn copy_tuned(&self, dst: *mut u8, src: *const u8, len: usize) {
        let untimed = UNTIMED.get();
        if self.hint == CacheHint::Auto {
            if untimed == 0
                && let Ok(mut tuner) = self.copies.try_lock()
            {
                // SAFETY: the caller meets the requirements of the kernel for these ranges.
                unsafe { tuner.copy(dst, src, len, CacheHint::Auto) };
                let (untimed, streams) = tuner.skip_untimed(len);
                UNTIMED.set(untimed);
                self.streams.store(streams, Ordering::Relaxed);
                return;
            }
            UNTIMED.set(untimed.saturating_sub(1));
        }
        // SAFETY: the caller meets the requirements of the kernel for these ranges.
        unsafe { self.kernel().copy(dst, src, len) }
    }

    fn batch_tuner(&self) -> MutexGuard<'_, CopyTuner> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: the calling thread executes every operation before the call returns, within its segments. Memory
// that the CPU can reach needs no lease.
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
        } else if len < self.may_stream_from {
            // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
            unsafe { Kernel::memcpy().copy(dst, src, len) }
        } else {
            // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
            unsafe { self.copy_tuned(dst, src, len) }
        }
    }

    unsafe fn copy_all(&self, copies: &[InlineCopy]) {
        let len = copies.iter().map(|copy| copy.len).sum();
        let (pick, kernel) = {
            let mut tuner = self.batch_tuner();
            let pick = tuner.pick(len, self.hint);
            (pick, tuner.kernel(pick))
        };
        let start = if pick.is_timed() { ticks() } else { 0 };
        // SAFETY: the caller ensures access to all ranges, and that those of one copy do not overlap.
        unsafe { kernel.copy_all(copies) };
        if pick.is_timed() {
            let took = ticks().wrapping_sub(start);
            self.batch_tuner().record(pick, took, len);
        }
    }

    fn copy_slice(&self, src: &[u8], dst: &mut [u8]) {
        if !self.long.copy(src, dst) {
            dst.copy_from_slice(src);
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
            Operation::CopyCrc32c { src, dst, seed } => {
                let (to, from) = (dst.addr.as_ptr(), src.addr.as_ptr().cast_const());
                let past_cache = src.len >= self.may_stream_from && self.kernel().is_streaming();
                let copy =
                    if past_cache { racy_copy::copy_crc32c_past_cache } else { racy_copy::copy_crc32c };
                // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
                return unsafe { copy(seed, to, from, src.len) }.into();
            }
            Operation::CopyToBoth { src, dst } => {
                for to in dst {
                    // SAFETY: the caller ensures access to all ranges, and that the destinations do not
                    // overlap any other range.
                    unsafe { self.copy(src.addr, to.addr, src.len) };
                }
                return 0;
            }
            Operation::Fill { pattern, dst: &[dst] } => {
                let kernel =
                    if dst.len < self.may_stream_from { Kernel::memcpy() } else { self.hinted_kernel() };
                // SAFETY: the caller ensures access to the range.
                unsafe { kernel.fill(dst.addr.as_ptr(), pattern, dst.len) };
                return 0;
            }
            Operation::Fill { pattern, dst } => (WorkKind::Fill { pattern }, &[][..], dst),
            Operation::CopyLists { src, dst } => (WorkKind::Copy, src, dst),
            _ => unreachable!("dma-core has no other operations"),
        };
        let len = dst.iter().map(|segment| segment.len).sum();
        // SAFETY: the caller meets the requirements of `RawQueue::submit` for these segments.
        let done = unsafe { Work { kind, src, dst }.run(0, len, self.hinted_kernel()) };
        done.expect("only copies of imported memory can fail, and this memory is local")
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use dma_core::{Error, ErrorKind};

    use super::*;

    fn addr(start: *const u8) -> DeviceAddr {
        DeviceAddr::of(NonNull::new(start.cast_mut()).expect("memory"))
    }

    fn executor(inline_limit: usize, hint: CacheHint) -> Option<ShortOperations> {
        let no_queue = || Err(Error::new(ErrorKind::Unsupported, "these tests make no long copies"));
        ShortOperations::new(inline_limit, hint, LongCopies::new(Box::new(no_queue)))
    }

    /// Makes copies of the maximum length, enough for the tuner to try both kernels, and copies of batches.
    #[test]
    fn every_kernel_moves_all_bytes() {
        for hint in [CacheHint::Auto, CacheHint::Hot, CacheHint::Cold] {
            let executor = executor(32 << 10, hint).expect("it has a limit");
            assert_eq!(executor.max_len(), LEARN_MIN);
            // Miri takes a millisecond for each byte.
            let (len, piece) = if cfg!(miri) { (64, 16) } else { (LEARN_MIN, STREAM_MIN) };
            let mut timed = 0;
            for n in 0..if cfg!(miri) { 1 } else { 2_000 } {
                let src = vec![n as u8 | 1; 2 * len];
                let mut dst = vec![0; 2 * len + 1];
                // SAFETY: the vectors are longer than the copy, and no other code accesses them during the
                // copy.
                unsafe { executor.copy(addr(src.as_ptr()), addr(dst.as_mut_ptr()), len) };
                assert!(dst[..len] == src[..len] && dst[len] == 0, "{hint:?}");
                timed += usize::from(UNTIMED.get() == 0);
                dst.fill(0);
                let copies: Vec<_> = src
                    .chunks(piece)
                    .zip(dst.chunks_mut(piece))
                    .map(|(src, dst)| InlineCopy {
                        src: addr(src.as_ptr()),
                        dst: addr(dst.as_mut_ptr()),
                        len: src.len(),
                    })
                    .collect();
                // SAFETY: the vectors have eight times this length, and no other code accesses them during
                // the copies.
                unsafe { executor.copy_all(&copies) };
                assert!(dst[..2 * len] == src[..] && dst[2 * len] == 0, "{hint:?}");
            }
            let asks = hint == CacheHint::Auto && Kernel::streaming().is_some();
            assert!(!asks || timed < 1_000, "{timed} of 2000 copies call the tuner");
        }
    }

    #[test]
    fn a_hint_selects_the_kernel_of_every_operation() {
        let is_streamed = |hint, len| {
            let executor = executor(32 << 10, hint).expect("it has a limit");
            len >= executor.may_stream_from && executor.kernel().is_streaming()
        };
        let streams = Kernel::streaming().is_some();
        for (hint, len, expected) in [
            (CacheHint::Cold, STREAM_MIN, streams),
            (CacheHint::Cold, STREAM_MIN - 1, false),
            (CacheHint::Hot, LEARN_MIN, false),
            (CacheHint::Auto, LEARN_MIN, false),
        ] {
            assert_eq!(
                is_streamed(hint, len),
                expected,
                "{hint:?}, {len} bytes, before the tuner has learned"
            );
        }
        assert!(executor(0, CacheHint::Auto).is_none());
    }
}
