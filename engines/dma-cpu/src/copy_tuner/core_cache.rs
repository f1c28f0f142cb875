//! A core's own cache: the speed of `memcpy` in it, and the lengths that fit it.

#![expect(unsafe_code, reason = "copies between raw addresses")]

use std::sync::OnceLock;

use crate::Kernel;
use crate::clock::ticks;

/// Maximum length of a copy that one core executes alone if the data is in its own cache, because other cores
/// would have to fetch the data from this cache. Trials may override it. See [`alone_max`].
pub(super) const ALONE_MAX: usize = 1 << 20;
/// Maximum length of a copy that one core executes alone if the data may be in its own cache. Even if the
/// data comes from memory, such a copy takes little time.
pub(super) const MAYBE_ALONE_MAX: usize = 256 << 10;
/// Maximum cost of a cached copy, relative to the cost in the core's own cache.
const HOT: f32 = 1.5;

/// Returns the cost of `memcpy` within a core's second level cache, in ticks per byte. The cost is measured
/// once, which takes some 20 us.
pub(crate) fn hot_cost() -> f32 {
    static COST: OnceLock<f32> = OnceLock::new();
    *COST.get_or_init(|| {
        /// Larger than any first level cache, and small enough for two of them to fit any second level cache.
        /// Miri has no caches, and copies each byte.
        const LEN: usize = if cfg!(miri) { 64 } else { 64 << 10 };
        /// Source and destination are half a page apart. At a distance of few bytes within a page, CPUs
        /// mistake loads and stores for aliases.
        const GAP: usize = 2 << 10;
        let mut bytes = vec![1_u8; LEN + GAP + LEN];
        let (src, rest) = bytes.split_at_mut(LEN);
        let dst = &mut rest[GAP..];
        let times = (0..10).map(|_| {
            let start = ticks();
            // SAFETY: both vectors have `LEN` bytes and do not overlap.
            unsafe { Kernel::memcpy().copy(dst.as_mut_ptr(), src.as_ptr(), LEN) };
            let ticks = ticks().wrapping_sub(start);
            // Prevents the compiler from removing the copy.
            std::hint::black_box(&mut *dst);
            ticks
        });
        times.min().unwrap_or(0) as f32 / LEN as f32
    })
}

/// Returns true if this cost, in ticks per byte, is about that of a core's own cache.
pub(super) fn is_hot(cost: f32, hot_cost: f32) -> bool {
    cost < HOT * hot_cost
}

/// Returns the maximum length of a copy whose source and destination fit a core's own cache of this size.
/// Longer copies at the same speed are in a shared cache, which is almost as fast on some CPUs (a Zen 3
/// copies 1 MiB at 36 GB/s and 64 KiB at 50 GB/s).
pub(super) fn alone_max(cache: Option<usize>) -> usize {
    cache.map_or(ALONE_MAX, |bytes| (bytes / 2).min(ALONE_MAX))
}
