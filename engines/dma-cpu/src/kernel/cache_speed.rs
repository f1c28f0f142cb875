//! The speed of copies in a core's own cache, and whether copies of 2 to 16 KiB are as fast.

#![expect(unsafe_code, reason = "copies between raw addresses")]

#[cfg(target_arch = "x86_64")]
use std::cell::Cell;
use std::num::NonZeroUsize;

#[cfg(target_arch = "x86_64")]
use dma_core::racy_copy;
use once_cell::race::OnceNonZeroUsize;

#[cfg(target_arch = "x86_64")]
use super::CopyFn;
use super::Kernel;
use crate::clock::ticks;

/// Returns the cost of `memcpy` within a core's second level cache, in ticks per byte. The cost is measured
/// once, which takes some 20 us. Returns 0 if there is no memory for the measurement: then no copy counts as
/// one within the cache, and the next call measures.
pub(crate) fn hot_cost() -> f32 {
    /// The bits of the cost.
    static COST: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let measure = || NonZeroUsize::new(measure_hot_cost()?.to_bits() as usize);
    let bits = COST.get_or_try_init(|| measure().ok_or(())).map_or(0, NonZeroUsize::get);
    f32::from_bits(bits as u32)
}

/// Returns `None` if there is no memory.
fn measure_hot_cost() -> Option<f32> {
    /// Larger than any first level cache, and small enough for two of them to fit any second level cache.
    /// Miri has no caches, and copies each byte.
    const LEN: usize = if cfg!(miri) { 64 } else { 64 << 10 };
    /// Source and destination are half a page apart. At a distance of few bytes within a page, CPUs mistake
    /// loads and stores for aliases.
    const GAP: usize = 2 << 10;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(LEN + GAP + LEN).ok()?;
    bytes.resize(LEN + GAP + LEN, 1_u8);
    let (src, rest) = bytes.split_at_mut(LEN);
    let dst = &mut rest[GAP..];
    let times = (0..10).map(|_| {
        let start = ticks();
        // SAFETY: both ranges have `LEN` bytes and do not overlap.
        unsafe { Kernel::memcpy().copy(dst.as_mut_ptr(), src.as_ptr(), LEN) };
        let ticks = ticks().wrapping_sub(start);
        // Prevents the compiler from removing the copy.
        std::hint::black_box(&mut *dst);
        ticks
    });
    Some(times.min().unwrap_or(0) as f32 / LEN as f32)
}

/// From this cost on, relative to [`hot_cost`], the ranges of a copy by vectors are not in the core's own
/// cache.
#[cfg(target_arch = "x86_64")]
const COLD: f32 = 2.0;
/// A thread times one in this number of copies.
#[cfg(target_arch = "x86_64")]
const ONE_IN: u8 = 64;

#[cfg(target_arch = "x86_64")]
thread_local! {
    /// Number of copies until the next one that is timed.
    static UNTIL_TIMED: Cell<u8> = const { Cell::new(0) };
    /// True if the last timed copy was slower than one in the core's own cache.
    static IS_COLD: Cell<bool> = const { Cell::new(false) };
}

/// Copies by `vectors`, or by the C library's `memcpy` if the thread's last timed copy found its ranges
/// outside the core's own cache.
///
/// For these lengths, `memcpy` uses `rep movsb`, which does not read the lines of a destination that is not
/// cached. A copy of 4 KiB from memory then takes 252 ns, and 348 ns by vectors (EPYC, Zen 4).
///
/// # Safety
///
/// See [`super::Kernel::copy`], and `vectors`.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) unsafe fn copy_by_vectors_if_hot(vectors: CopyFn, dst: *mut u8, src: *const u8, len: usize) {
    let left = UNTIL_TIMED.get();
    if left == 0 {
        UNTIL_TIMED.set(ONE_IN - 1);
        let start = ticks();
        // SAFETY: the caller meets the requirements of `vectors`.
        unsafe { vectors(dst, src, len) };
        IS_COLD.set(is_cold(ticks().wrapping_sub(start), len, hot_cost()));
        return;
    }
    UNTIL_TIMED.set(left - 1);
    if IS_COLD.get() {
        // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
        unsafe { racy_copy::copy(dst, src, len) };
    } else {
        // SAFETY: the caller meets the requirements of `vectors`.
        unsafe { vectors(dst, src, len) };
    }
}

/// Returns whether a copy of `len` bytes that took `ticks` had ranges outside the core's own cache.
#[cfg(target_arch = "x86_64")]
fn is_cold(ticks: u64, len: usize, hot_cost: f32) -> bool {
    ticks as f32 > COLD * hot_cost * len as f32
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_cold_from_twice_the_cost_in_the_cache_on() {
        assert_eq!([1990, 2010].map(|ticks| is_cold(ticks, 10_000, 0.1)), [false, true]);
    }

    #[test]
    fn a_thread_times_its_first_copy_and_then_few() {
        thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
        unsafe fn spy(_: *mut u8, _: *const u8, _: usize) {
            CALLS.set(CALLS.get() + 1);
        }
        std::thread::spawn(|| {
            let (mut dst, src) = ([0_u8; 4096], [1_u8; 4096]);
            let mut copy = || {
                // SAFETY: both arrays have the length, and do not overlap.
                unsafe { copy_by_vectors_if_hot(spy, dst.as_mut_ptr(), src.as_ptr(), dst.len()) };
                std::mem::take(&mut dst[0])
            };
            assert_eq!((copy(), CALLS.get()), (0, 1), "the first one is timed");
            for (cold, calls) in [(true, 1), (false, u32::from(ONE_IN))] {
                IS_COLD.set(cold);
                CALLS.set(0);
                let by_library = (1..=ONE_IN).map(|_| {
                    let copied = copy();
                    IS_COLD.set(cold);
                    u32::from(copied)
                });
                assert_eq!(by_library.sum::<u32>(), u32::from(ONE_IN) - calls);
                assert_eq!(CALLS.get(), calls, "of {ONE_IN}");
            }
        })
        .join()
        .expect("no panic");
    }
}
