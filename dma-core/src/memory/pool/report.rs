//! Reports of the state of pools, for operators.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dma_process::ForkLock;

use super::{BufferPool, PoolInner, SizeClass};
use crate::Place;

/// The pools of this process.
static POOLS: ForkLock<Vec<Weak<PoolInner>>> = ForkLock::new(Vec::new);

/// Returns the number of the next pool.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Adds a pool to the list that [`pools`] returns.
pub(super) fn add(pool: &Arc<PoolInner>) {
    let mut pools = POOLS.lock();
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(Arc::downgrade(pool));
}

/// Returns the state of all pools of this process: pools of buffers and pools of windows.
#[must_use]
pub fn pools() -> Vec<PoolReport> {
    let pools = POOLS.lock().clone();
    // Upgrade the pointers without the lock, because dropping an upgraded pointer may drop its pool, which
    // runs code of an engine.
    let pools = pools.iter().filter_map(Weak::upgrade);
    pools
        .filter(|pool| pool.classes.iter().all(|class| !class.process.is_child()))
        .map(PoolReport::of)
        .collect()
}

/// The state of one pool, from [`pools`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PoolReport {
    /// The pool's number in this process. Pools are numbered from 1, and numbers are not reused.
    pub number: u64,
    /// The pool's name from [`PoolOptions::with_label`](crate::PoolOptions::with_label), or its number if it
    /// has no name.
    pub label: String,
    /// The backend of the pool's engine.
    pub backend: &'static str,
    /// The place of the memory.
    pub place: Place,
    /// Number of logged warnings about long waits: see
    /// [`PoolOptions::with_wait_warning`](crate::PoolOptions::with_wait_warning).
    pub warnings: u64,
    /// The buffers of each size, in the order of the sizes.
    pub classes: Vec<PoolClass>,
}

impl PoolReport {
    fn of(pool: Arc<PoolInner>) -> Self {
        Self {
            number: pool.number,
            label: pool.label.clone(),
            backend: pool.backend,
            place: pool.classes.first().map_or(Place::Host, |class| class.place),
            warnings: pool.watch.warnings(),
            classes: pool.classes.iter().map(|class| PoolClass::of(class)).collect(),
        }
    }
}

/// The state of the buffers of one size, from [`BufferPool::classes`]. If other threads use the pool, the
/// numbers are from slightly different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PoolClass {
    /// The length of each buffer, in bytes.
    pub len: usize,
    /// The number of buffers.
    pub count: usize,
    /// The number of buffers that the pool may grow to.
    pub max: usize,
    /// Number of buffers in use.
    pub in_use: usize,
    /// Number of tasks that wait for a buffer.
    pub waiting: usize,
    /// The longest wait so far of the tasks that are waiting; zero if no task waits.
    pub current_wait: Duration,
    /// The longest wait of any task so far, including waits that have not ended.
    pub longest_wait: Duration,
    /// Number of requests so far, by any method, that found no free buffer.
    pub exhausted: u64,
    /// Number of buffers that growth has added.
    pub grown: usize,
}

impl PoolClass {
    fn of(class: &SizeClass) -> Self {
        // Do not take locks in a forked process, because a thread that does not exist there may hold them.
        let waits = if class.process.is_child() { Default::default() } else { class.free.waits() };
        let count = class.made();
        Self {
            len: class.len,
            count,
            max: class.max,
            in_use: count.saturating_sub(class.free.free()),
            waiting: waits.tasks,
            current_wait: waits.oldest.map_or(Duration::ZERO, |(_, wait)| wait),
            longest_wait: waits.longest,
            exhausted: class.exhausted.load(Ordering::Relaxed),
            grown: count.saturating_sub(class.began_with),
        }
    }
}

impl BufferPool {
    /// Returns the state of the buffers of each size, in the order of the sizes.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = PoolClass> {
        self.inner.classes.iter().map(|class| PoolClass::of(class))
    }

    /// Returns a text that lists, for each size, the buffers in use, the waiting tasks and their waits, and
    /// the holders with the times for which they have held buffers. [`held_by`](Self::held_by) sets a
    /// holder's name. The call reads the state of each buffer, which takes microseconds for thousands of
    /// buffers.
    #[must_use]
    pub fn explain(&self) -> String {
        let pool = &self.inner;
        let mut text = format!("pool {} on {}", pool.label, pool.backend);
        for class in &pool.classes {
            let state = PoolClass::of(class);
            let PoolClass { len, count, in_use, waiting, exhausted, .. } = state;
            let waits = dma_process::count(waiting, "waits", "wait");
            _ = write!(text, "\n  {len} bytes: {in_use} of {count} in use, {waits}");
            if waiting > 0 {
                _ = write!(text, ", the first for {}", rounded(state.current_wait));
            }
            if exhausted > 0 {
                let requests = dma_process::count(exhausted, "request", "requests");
                _ = write!(text, "; {requests} found no free buffer");
            }
            if state.longest_wait > Duration::ZERO {
                _ = write!(text, "; the longest wait was {}", rounded(state.longest_wait));
            }
            for (holder, (held, longest)) in class.held() {
                let name = pool.holders.name(holder);
                let name = name.as_deref().unwrap_or("no name (see `held_by`)");
                _ = write!(text, "\n    held by {name}: {held}");
                if longest > Duration::ZERO {
                    _ = write!(text, ", the first for {}", rounded(longest));
                }
            }
        }
        text
    }
}

impl SizeClass {
    /// Returns the number of buffers that each holder has, and the longest time for which it has held a
    /// buffer.
    fn held(&self) -> BTreeMap<u32, (usize, Duration)> {
        let mut held = BTreeMap::<u32, (usize, Duration)>::new();
        let cached = self.free.cached();
        let is_free = |block: &u32| self.free.has(*block) || cached.contains(block);
        for block in (0..self.made()).map(|index| self.free.number(index)).filter(|block| !is_free(block)) {
            let (holder, time) = self.holders.of(block);
            let (count, longest) = held.entry(holder).or_default();
            *count += 1;
            *longest = time.max(*longest);
        }
        held
    }
}

/// Writes a duration in whole milliseconds. A shorter duration is in whole microseconds or nanoseconds, so
/// that only no time at all is 0.
fn rounded(time: Duration) -> String {
    let step = match time.as_nanos() {
        0..1_000 => 1,
        1_000..1_000_000 => 1_000,
        _ => 1_000_000,
    };
    format!("{:?}", Duration::new(time.as_secs(), time.subsec_nanos() / step * step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_no_time_at_all_is_written_as_zero() {
        for (nanos, text) in [
            (0, "0ns"),
            (7, "7ns"),
            (1_999, "1µs"),
            (999_999, "999µs"),
            (1_999_999, "1ms"),
            (61_234_567_890, "61.234s"),
        ] {
            assert_eq!(rounded(Duration::from_nanos(nanos)), text);
        }
        assert_eq!(rounded(Duration::MAX), "18446744073709551615.999s");
    }
}
