//! A core's own cache: the speed of copies in it, and the lengths that fit it.

/// Maximum length of a copy that one core executes alone if the data is in its own cache, because other cores
/// would have to fetch the data from this cache. Trials may override it. See [`alone_max`].
pub(super) const ALONE_MAX: usize = 1 << 20;
/// Maximum length of a copy that one core executes alone if the data may be in its own cache. Even if the
/// data comes from memory, such a copy takes little time.
pub(super) const MAYBE_ALONE_MAX: usize = 256 << 10;
/// Maximum cost of a cached copy, relative to the cost in the core's own cache.
const HOT: f32 = 1.5;

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
