//! [`ShortOperations`]: executes short operations in the thread that submits them, without the queue.
#![expect(unsafe_code, reason = "implements `InlineExecutor`")]

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::LocalKey;

use dma_core::{CacheHint, Completion, DeviceAddr, InlineCopy, InlineExecutor, Operation, racy_copy};
use dma_process::lock;

use super::Kernel;
use super::clock::ticks;
use super::copy_tuner::{CopyTuner, LEARN_MIN, STREAM_MIN, class_of};
use super::execute::{Work, WorkKind};
use super::kernel::SHORT;
use super::long_copy::LongCopies;

/// Maximum length of an operation. It bounds the time of a submission, and is reached only without helper
/// threads.
const MAX_LEN: usize = 128 << 10;
/// The number of classes of lengths that are timed.
const CLASSES: usize = (MAX_LEN / LEARN_MIN).ilog2() as usize + 1;

/// For each class of lengths, the number of operations that a thread still executes without a call of the
/// tuner, so that most of them take no lock.
type Untimed = [Cell<u32>; CLASSES];

thread_local! {
    // Each thread has its own counts, because threads would contend for the cache line of shared ones.
    static UNTIMED_COPIES: Untimed = const { [const { Cell::new(0) }; CLASSES] };
    static UNTIMED_FILLS: Untimed = const { [const { Cell::new(0) }; CLASSES] };
    static UNTIMED_COPIES_TO_BOTH: Untimed = const { [const { Cell::new(0) }; CLASSES] };
}

/// Executes short operations: through the cache, or past it if the hint or measurements select that.
#[derive(Debug)]
pub(super) struct ShortOperations {
    max_len: usize,
    hint: CacheHint,
    /// Minimum length of operations that may be streamed.
    may_stream_from: usize,
    streaming: Option<Kernel>,
    copies: Tuned,
    fills: Tuned,
    copies_to_both: Tuned,
    /// Learns from batches, by their total length.
    batches: Mutex<Box<CopyTuner>>,
    long: LongCopies,
}

/// The tuner of one kind of operation, and what it has learned.
#[derive(Debug)]
struct Tuned {
    tuner: Mutex<Box<CopyTuner>>,
    /// True for the classes of lengths that are streamed.
    streams: [AtomicBool; CLASSES],
    untimed: &'static LocalKey<Untimed>,
}

impl Tuned {
    fn new(hint: CacheHint, untimed: &'static LocalKey<Untimed>) -> Self {
        let streams = [(); CLASSES].map(|()| AtomicBool::new(hint == CacheHint::Cold));
        Self { tuner: new_tuner(), streams, untimed }
    }
}

/// Makes a tuner. A tuner has 3 KB, so that several of them on the stack could exceed the stack of a thread
/// that opens a queue.
#[inline(never)]
fn new_tuner() -> Mutex<Box<CopyTuner>> {
    Mutex::new(Box::new(CopyTuner::new()))
}

impl ShortOperations {
    /// Makes the executor of operations of up to `inline_limit` bytes, at most [`MAX_LEN`]. Without helper
    /// threads, the limit is [`MAX_LEN`], because no other thread could execute a part of an operation.
    /// Returns `None` if `inline_limit` is 0.
    pub(super) fn new(
        inline_limit: usize,
        has_helpers: bool,
        hint: CacheHint,
        long: LongCopies,
    ) -> Option<Self> {
        let streaming = Kernel::streaming();
        let may_stream_from = match hint {
            _ if streaming.is_none() => usize::MAX,
            CacheHint::Hot => usize::MAX,
            CacheHint::Cold => STREAM_MIN,
            CacheHint::Auto => LEARN_MIN,
        };
        (inline_limit > 0).then(|| Self {
            max_len: if has_helpers { inline_limit.min(MAX_LEN) } else { MAX_LEN },
            hint,
            may_stream_from,
            streaming,
            copies: Tuned::new(hint, &UNTIMED_COPIES),
            fills: Tuned::new(hint, &UNTIMED_FILLS),
            copies_to_both: Tuned::new(hint, &UNTIMED_COPIES_TO_BOTH),
            batches: new_tuner(),
            long,
        })
    }

    /// Returns the kernel of operations of `len` bytes, at least [`Self::may_stream_from`].
    fn kernel(&self, of: &Tuned, len: usize) -> Kernel {
        match self.streaming {
            Some(streaming) if of.streams[class(len)].load(Ordering::Relaxed) => streaming,
            _ => Kernel::memcpy(),
        }
    }

    /// Returns the kernel of lists, which are not timed.
    fn hinted_kernel(&self) -> Kernel {
        match self.streaming {
            Some(streaming) if self.hint == CacheHint::Cold => streaming,
            _ => Kernel::memcpy(),
        }
    }

    /// Runs `work` on `len` bytes, at least [`Self::may_stream_from`], with the kernel that the hint or
    /// measurements select.
    fn run_tuned(&self, of: &Tuned, len: usize, work: impl FnOnce(Kernel)) {
        let class = class(len);
        if self.hint == CacheHint::Auto {
            let untimed = of.untimed.with(|untimed| untimed[class].get());
            if untimed == 0
                && let Ok(mut tuner) = of.tuner.try_lock()
            {
                let pick = tuner.pick(len, CacheHint::Auto);
                let Ok(()) = tuner.run(pick, len, |kernel| {
                    work(kernel);
                    Ok::<_, Infallible>(())
                });
                let (untimed, streams) = tuner.skip_untimed(len);
                of.untimed.with(|cells| cells[class].set(untimed));
                of.streams[class].store(streams, Ordering::Relaxed);
                return;
            }
            of.untimed.with(|cells| cells[class].set(untimed.saturating_sub(1)));
        }
        work(self.kernel(of, len));
    }

    /// Executes a copy of at least [`Self::may_stream_from`] bytes.
    ///
    /// # Safety
    ///
    /// See [`Kernel::copy`].
    // Not inline, so that short copies save no registers for it.
    #[inline(never)]
    unsafe fn copy_tuned(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller meets the requirements of the kernel for these ranges.
        self.run_tuned(&self.copies, len, move |kernel| unsafe { kernel.copy(dst, src, len) });
    }

    /// Executes a copy to two destinations.
    ///
    /// # Safety
    ///
    /// See [`Kernel::copy_to_both`].
    #[inline(never)]
    unsafe fn copy_to_both(&self, dst: [*mut u8; 2], src: *const u8, len: usize) {
        // SAFETY: the caller meets the requirements of the kernel for these ranges.
        let copy = move |kernel: Kernel| unsafe { kernel.copy_to_both(dst, src, len) };
        if len < self.may_stream_from {
            copy(Kernel::memcpy());
        } else {
            self.run_tuned(&self.copies_to_both, len, copy);
        }
    }

    /// Executes a fill of at least [`Self::may_stream_from`] bytes.
    ///
    /// # Safety
    ///
    /// See [`Kernel::fill`].
    #[inline(never)]
    unsafe fn fill_tuned(&self, dst: *mut u8, pattern: [u8; 8], len: usize) {
        // SAFETY: the caller meets the requirements of the kernel for this range.
        self.run_tuned(&self.fills, len, move |kernel| unsafe { kernel.fill(dst, pattern, len) });
    }
}

/// Returns the index of the class of a length up to [`MAX_LEN`].
fn class(len: usize) -> usize {
    class_of(len).min(CLASSES - 1)
}

// SAFETY: the calling thread executes every operation before the call returns, within its segments. Memory
// that the CPU can reach needs no lease.
unsafe impl InlineExecutor for ShortOperations {
    fn max_len(&self) -> usize {
        self.max_len
    }

    fn plain_copy_len(&self) -> usize {
        SHORT
    }

    fn plain_read_len(&self) -> usize {
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
            let mut tuner = lock(&self.batches);
            let pick = tuner.pick(len, self.hint);
            (pick, tuner.kernel(pick))
        };
        let start = if pick.is_timed() { ticks() } else { 0 };
        // SAFETY: the caller ensures access to all ranges, and that those of one copy do not overlap.
        unsafe { kernel.copy_all(copies) };
        if pick.is_timed() {
            let took = ticks().wrapping_sub(start);
            lock(&self.batches).record(pick, took, len);
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
                let past_cache =
                    src.len >= self.may_stream_from && self.kernel(&self.copies, src.len).is_streaming();
                let copy =
                    if past_cache { racy_copy::copy_crc32c_past_cache } else { racy_copy::copy_crc32c };
                // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
                return unsafe { copy(seed, to, from, src.len) }.into();
            }
            Operation::CopyToBoth { src, dst } => {
                if src.len >= LEARN_MIN {
                    let (to, from) = (dst.map(|to| to.addr.as_ptr()), src.addr.as_ptr().cast_const());
                    // SAFETY: the caller ensures access to all ranges, and that the destinations do not
                    // overlap any other range.
                    unsafe { self.copy_to_both(to, from, src.len) };
                    return 0;
                }
                for to in dst {
                    // SAFETY: the caller ensures access to all ranges, and that the destinations do not
                    // overlap any other range.
                    unsafe { self.copy(src.addr, to.addr, src.len) };
                }
                return 0;
            }
            Operation::Fill { pattern, dst: &[dst] } => {
                let (to, len) = (dst.addr.as_ptr(), dst.len);
                if len < self.may_stream_from {
                    // SAFETY: the caller ensures access to the range.
                    unsafe { Kernel::memcpy().fill(to, pattern, len) };
                } else {
                    // SAFETY: the caller ensures access to the range.
                    unsafe { self.fill_tuned(to, pattern, len) };
                }
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

    use dma_core::{Error, ErrorKind, RegionKey, Segment};

    use super::*;

    fn addr(start: *const u8) -> DeviceAddr {
        DeviceAddr::of(NonNull::new(start.cast_mut()).expect("memory"))
    }

    fn executor(inline_limit: usize, hint: CacheHint) -> Option<ShortOperations> {
        let no_queue = || Err(Error::new(ErrorKind::Unsupported, "these tests make no long copies"));
        ShortOperations::new(inline_limit, true, hint, LongCopies::new(Box::new(no_queue)))
    }

    #[test]
    fn operations_are_as_long_as_helper_threads_leave_to_the_caller() {
        let max_len = |inline_limit, has_helpers| {
            let no_queue = || Err(Error::new(ErrorKind::Unsupported, "this test makes no long copies"));
            let long = LongCopies::new(Box::new(no_queue));
            ShortOperations::new(inline_limit, has_helpers, CacheHint::Auto, long).map(|it| it.max_len())
        };
        assert_eq!((max_len(0, true), max_len(0, false)), (None, None));
        assert_eq!((max_len(32 << 10, true), max_len(32 << 10, false)), (Some(32 << 10), Some(MAX_LEN)));
        assert_eq!((max_len(1 << 20, true), max_len(1 << 20, false)), (Some(MAX_LEN), Some(MAX_LEN)));
        assert_eq!((class(LEARN_MIN - 1), class(MAX_LEN)), (0, CLASSES - 1));
    }

    /// Makes copies and fills of 16 KiB, enough for the tuner to try both kernels, and copies of batches.
    #[test]
    fn every_kernel_moves_all_bytes() {
        for hint in [CacheHint::Auto, CacheHint::Hot, CacheHint::Cold] {
            let executor = executor(32 << 10, hint).expect("it has a limit");
            // Miri takes a millisecond for each byte.
            let (len, piece, rounds) = if cfg!(miri) { (64, 16, 1) } else { (LEARN_MIN, STREAM_MIN, 2_000) };
            let mut timed = [0; 2];
            for n in 0..rounds {
                let src = vec![n as u8 | 1; 2 * len];
                let mut dst = vec![0; 2 * len + 1];
                // SAFETY: the vectors are longer than the copy, and no other code accesses them during the
                // copy.
                unsafe { executor.copy(addr(src.as_ptr()), addr(dst.as_mut_ptr()), len) };
                assert!(dst[..len] == src[..len] && dst[len] == 0, "{hint:?}");
                let to = Segment { key: RegionKey::unique(), addr: addr(dst.as_ptr()), len };
                // SAFETY: the vector is longer than the fill, and no other code accesses it during the fill.
                unsafe { executor.execute(&Operation::Fill { pattern: [n as u8; 8], dst: &[to] }) };
                assert!(dst[..len].iter().all(|byte| *byte == n as u8) && dst[len] == 0, "{hint:?}");
                for (timed, untimed) in timed.iter_mut().zip([&UNTIMED_COPIES, &UNTIMED_FILLS]) {
                    *timed += usize::from(untimed.with(|untimed| untimed[class(len)].get()) == 0);
                }
                let mut also = vec![0; 2 * len + 1];
                let segment = |start: *const u8| Segment { key: RegionKey::unique(), addr: addr(start), len };
                let (from, to) =
                    (segment(src.as_ptr()), [segment(dst.as_mut_ptr()), segment(also.as_mut_ptr())]);
                // SAFETY: the vectors are longer than the copy, and no other code accesses them during the
                // copy.
                unsafe { executor.execute(&Operation::CopyToBoth { src: from, dst: &to }) };
                let is_copied = |dst: &[u8]| dst[..len] == src[..len] && dst[len] == 0;
                assert!(is_copied(&dst) && is_copied(&also), "{hint:?}");
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
            assert!(!asks || timed.iter().all(|n| *n < 1_000), "of 2000, {timed:?} call the tuner");
        }
    }

    /// Each class of lengths has its own kernel, whose choice is checked by its bytes.
    #[test]
    #[cfg_attr(miri, ignore = "copies many bytes")]
    fn operations_of_each_class_of_lengths_move_all_bytes() {
        let executor = executor(MAX_LEN, CacheHint::Auto).expect("it has a limit");
        let src: Vec<u8> = (0..MAX_LEN).map(|n| (n % 251) as u8).collect();
        for round in 0..300 {
            for len in [LEARN_MIN, 2 * LEARN_MIN + 1, 4 * LEARN_MIN - 1, 4 * LEARN_MIN, MAX_LEN] {
                let mut dst = vec![0; len + 1];
                // SAFETY: both vectors are at least as long as the copy, and no other code accesses them.
                unsafe { executor.copy(addr(src.as_ptr()), addr(dst.as_mut_ptr()), len) };
                assert!(dst[..len] == src[..len] && dst[len] == 0, "{len} bytes, round {round}");
            }
        }
    }

    #[test]
    fn a_hint_selects_the_kernel_of_every_operation() {
        let is_streamed = |hint, len| {
            let executor = executor(32 << 10, hint).expect("it has a limit");
            len >= executor.may_stream_from && executor.kernel(&executor.copies, len).is_streaming()
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
