//! [`IdleMemory`]: allocated memory that an engine keeps after its last use, for later allocations.
#![expect(unsafe_code, reason = "frees memory whose type it does not know")]

use std::collections::TryReserveError;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

#[cfg(not(test))]
use dma_process::ForkLock;
use dma_process::{ForkMark, lock};

/// Memory is kept in classes of lengths. This is the length of the shortest class, in bytes.
const MIN_LEN: usize = 4096;
/// The number of classes from one power of two to the next. A class is at most one eighth longer than the
/// lengths that it serves.
const STEPS: usize = 8;
/// Memory is released when this number of calls has neither taken it nor kept it.
const MAX_AGE: u64 = 1024;
/// After this number of calls, memory of the age [`MAX_AGE`] is released.
const SWEEP_EVERY: u64 = 64;

type Stores = Vec<Weak<IdleStore>>;

/// Runs `f` on the stores of this process.
#[cfg(not(test))]
fn with_stores<R>(f: impl FnOnce(&mut Stores) -> R) -> R {
    static STORES: ForkLock<Stores> = ForkLock::new(Vec::new);
    f(&mut STORES.lock())
}

/// Runs `f` on the stores of this thread: tests that run at the same time do not release each other's memory.
#[cfg(test)]
fn with_stores<R>(f: impl FnOnce(&mut Stores) -> R) -> R {
    thread_local! {
        static STORES: std::cell::RefCell<Stores> = const { std::cell::RefCell::new(Vec::new()) };
    }
    STORES.with_borrow_mut(f)
}

/// The idle memory of an engine: host memory that was [allocated](crate::DmaEngineExt::allocate), whose last
/// view was dropped, and that stays registered for a later allocation of about the same length.
///
/// An engine that has this value as a field and returns it from
/// [`DmaEngine::idle_memory`](crate::DmaEngine::idle_memory) recycles memory: allocations with all rights,
/// without a NUMA node and without exports take idle memory of their class of lengths, if there is any.
/// Classes are at most 12.5 % longer than the requested length, and at least 4 KiB. Memory that a device may
/// still access is never idle.
///
/// Idle memory is released, that is, deregistered and freed:
///
/// - when the engine is dropped;
/// - when 1,024 later allocations and drops of the engine's memory have not used it;
/// - the longest unused first, as soon as there is more than the [limit](Self::with_limit);
/// - when a call of any engine of the process, such as an allocation, a registration, an import, an export or
///   the opening of a queue, fails for lack of memory. The call then tries again;
/// - by [`release`](Self::release).
///
/// A forked child does not use the memory.
pub struct IdleMemory(Arc<IdleStore>);

/// The state of an [`IdleMemory`], at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdleMemoryReport {
    /// Idle memory in bytes.
    pub bytes: usize,
    /// Number of idle regions.
    pub regions: usize,
    /// Number of allocations so far that took idle memory.
    pub reused: u64,
    /// Number of allocations so far that found no idle memory of their class.
    pub missed: u64,
    /// Number of regions so far that were released while the engine was open.
    pub released: u64,
}

/// The shared part of an [`IdleMemory`]. Memory in use returns to it.
pub(crate) struct IdleStore {
    /// The limit in bytes. Set by the first allocation if the program has not set it.
    limit: OnceLock<usize>,
    /// True if the memory is pinned. The default limit then depends on the limit of locked memory.
    is_pinned: bool,
    process: ForkMark,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// Idle regions by class, in the order in which they were kept.
    classes: Vec<Vec<Idle>>,
    /// Number of calls so far that took or kept memory.
    calls: u64,
    report: IdleMemoryReport,
}

struct Idle {
    region: IdleRegion,
    /// The number of the call that kept the region.
    since: u64,
}

/// An idle region, whose type this module does not know. Dropping it frees the memory.
pub(crate) struct IdleRegion {
    ptr: NonNull<()>,
    len: usize,
    free: unsafe fn(NonNull<()>),
}

// SAFETY: `new` requires that any thread may free the region.
unsafe impl Send for IdleRegion {}

impl IdleRegion {
    /// Makes a value from the pointer of a region of `len` bytes.
    ///
    /// # Safety
    ///
    /// `free` frees the region, may be called once, by any thread.
    pub(crate) const unsafe fn new(ptr: NonNull<()>, len: usize, free: unsafe fn(NonNull<()>)) -> Self {
        Self { ptr, len, free }
    }

    /// Returns the pointer of the region, which the caller now owns.
    pub(crate) fn into_ptr(self) -> NonNull<()> {
        ManuallyDrop::new(self).ptr
    }
}

impl Drop for IdleRegion {
    fn drop(&mut self) {
        // SAFETY: this value owns the region, and is dropped once.
        unsafe { (self.free)(self.ptr) };
    }
}

/// Regions to drop when no lock is held, because this calls the engine.
type Released = Vec<IdleRegion>;

impl IdleMemory {
    /// Maximum default of [`with_limit`](Self::with_limit): 256 MiB.
    pub const DEFAULT_LIMIT: usize = 256 << 20;

    /// Makes a store with the default limit: [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT), or one eighth of the
    /// [available memory](dma_process::available_memory) at the first allocation, if that is less.
    #[must_use]
    pub fn new() -> Self {
        Self::of(OnceLock::new(), false)
    }

    /// Makes a store for an engine that pins its memory. The default limit is that of [`new`](Self::new), or
    /// one eighth of the [limit of locked memory](dma_process::memlock_limit), if that is less.
    #[must_use]
    pub fn pinned() -> Self {
        Self::of(OnceLock::new(), true)
    }

    /// Makes a store that keeps at most `limit` bytes. With 0, it keeps nothing.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self::of(limit.into(), false)
    }

    fn of(limit: OnceLock<usize>, is_pinned: bool) -> Self {
        let (process, state) = (ForkMark::new(), Mutex::default());
        let store = Arc::new(IdleStore { limit, is_pinned, process, state });
        with_stores(|stores| {
            stores.retain(|store| store.strong_count() > 0);
            stores.push(Arc::downgrade(&store));
        });
        Self(store)
    }

    /// Releases all idle memory now. Returns the number of released bytes.
    pub fn release(&self) -> usize {
        self.0.release()
    }

    /// Returns the current state. In a forked child, returns the default.
    #[must_use]
    pub fn report(&self) -> IdleMemoryReport {
        self.0.with(|state| state.report).unwrap_or_default()
    }

    /// Returns the shared part.
    pub(crate) fn store(&self) -> &Arc<IdleStore> {
        &self.0
    }
}

impl Default for IdleMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for IdleMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdleMemory").field(&self.report()).finish()
    }
}

impl Drop for IdleMemory {
    fn drop(&mut self) {
        self.0.with(|state| state.is_closed = true);
        self.0.release();
    }
}

/// Releases the idle memory of all engines. Returns whether there was any.
pub(crate) fn release_all() -> bool {
    let stores = with_stores(|stores| stores.clone());
    // Upgrade the pointers without the lock, because releasing memory calls the engine.
    let stores = stores.iter().filter_map(Weak::upgrade);
    stores.map(|store| store.release()).sum::<usize>() > 0
}

impl IdleStore {
    /// Runs `f` on the state. Returns `None` in a forked child, where a thread that does not exist may hold
    /// the lock.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> Option<R> {
        if self.process.is_child() {
            return None;
        }
        Some(f(&mut lock(&self.state)))
    }

    fn limit(&self) -> usize {
        *self.limit.get_or_init(|| {
            let available = if cfg!(miri) { None } else { dma_process::available_memory() };
            let lockable = if self.is_pinned { dma_process::memlock_limit() } else { None };
            let part = available.into_iter().chain(lockable).min().unwrap_or(u64::MAX) / 8;
            usize::try_from(part).unwrap_or(usize::MAX).min(IdleMemory::DEFAULT_LIMIT)
        })
    }

    /// Returns the length of the class for `len` bytes. Returns `None` if such memory is not kept.
    pub(crate) fn class_len(&self, len: usize) -> Option<usize> {
        let class_len = len.max(MIN_LEN).checked_next_multiple_of(step(len.max(MIN_LEN)))?;
        (class_len <= self.limit()).then_some(class_len)
    }

    /// Takes idle memory of the length `class_len`, which is the length of a class.
    pub(crate) fn take(&self, class_len: usize) -> Option<IdleRegion> {
        let (idle, released) = self.with(|state| {
            let released = state.next_call();
            let idle = state.classes.get_mut(class_of(class_len)).and_then(Vec::pop);
            match &idle {
                Some(_) => {
                    state.report.bytes -= class_len;
                    state.report.regions -= 1;
                    state.report.reused += 1;
                }
                None => state.report.missed += 1,
            }
            (idle, released)
        })?;
        drop(released);
        idle.map(|idle| idle.region)
    }

    /// Keeps memory whose length is that of a class, or releases it. Releases it if there is no memory for
    /// the lists: a drop must not end the program.
    pub(crate) fn keep(&self, region: IdleRegion) {
        let len = region.len;
        let mut region = Some(region);
        let released = self.with(|state| {
            let mut released = state.next_call();
            let (class, since) = (class_of(len), state.calls);
            if state.is_closed || state.reserve(class).is_err() {
                return released;
            }
            while state.report.bytes > self.limit().saturating_sub(len) {
                if released.try_reserve(1).is_err() {
                    return released;
                }
                released.push(state.release_oldest());
            }
            state.classes[class].extend(region.take().map(|region| Idle { region, since }));
            state.report.bytes += len;
            state.report.regions += 1;
            released
        });
        match released {
            Some(released) => drop((released, region)),
            // Leak the region: the engine is the parent's.
            None => std::mem::forget(region),
        }
    }

    /// Releases all idle memory. Returns the number of released bytes.
    fn release(&self) -> usize {
        let released = self.with(|state| {
            let bytes = std::mem::take(&mut state.report.bytes);
            state.report.released += std::mem::take(&mut state.report.regions) as u64;
            (bytes, std::mem::take(&mut state.classes))
        });
        released.map_or(0, |(bytes, _classes)| bytes)
    }
}

impl Drop for IdleStore {
    fn drop(&mut self) {
        if self.process.is_child() {
            // Leak the regions: the engine is the parent's.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(&mut state.classes));
        }
    }
}

impl State {
    /// Counts a call. From time to time, returns the regions that have not been used for long.
    #[inline]
    fn next_call(&mut self) -> Released {
        self.calls += 1;
        if self.calls.is_multiple_of(SWEEP_EVERY) { self.sweep() } else { Vec::new() }
    }

    /// Returns the regions that have not been used for long.
    #[cold]
    fn sweep(&mut self) -> Released {
        let mut released = Vec::new();
        let kept_until = self.calls.saturating_sub(MAX_AGE);
        let old = |class: &Vec<Idle>| class.partition_point(|idle| idle.since < kept_until);
        // Without memory for the list, a later call releases them.
        if released.try_reserve(self.classes.iter().map(old).sum()).is_err() {
            return released;
        }
        for class in &mut self.classes {
            released.extend(class.drain(..old(class)).map(|idle| idle.region));
        }
        for region in &released {
            self.report.bytes -= region.len;
            self.report.regions -= 1;
            self.report.released += 1;
        }
        released
    }

    /// Makes room for a region of a class.
    fn reserve(&mut self, class: usize) -> Result<(), TryReserveError> {
        if self.classes.len() <= class {
            self.classes.try_reserve(class + 1 - self.classes.len())?;
            self.classes.resize_with(class + 1, Vec::new);
        }
        self.classes[class].try_reserve(1)
    }

    /// Returns the region that has not been used for longest. There must be one.
    fn release_oldest(&mut self) -> IdleRegion {
        let oldest = self.classes.iter_mut().filter(|class| !class.is_empty());
        let class = oldest.min_by_key(|class| class[0].since).expect("a region is idle");
        let region = class.remove(0).region;
        self.report.bytes -= region.len;
        self.report.regions -= 1;
        self.report.released += 1;
        region
    }
}

/// Returns the distance between the lengths of two classes, at a length of at least [`MIN_LEN`].
fn step(len: usize) -> usize {
    (1 << len.ilog2()) / STEPS
}

/// Returns the number of the class with this length.
fn class_of(class_len: usize) -> usize {
    let doublings = (class_len.ilog2() - MIN_LEN.ilog2()) as usize;
    doublings * STEPS + (class_len - (1 << class_len.ilog2())) / step(class_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_numbered_and_hardly_longer_than_their_requests() {
        let store = IdleMemory::with_limit(usize::MAX);
        let mut numbers = Vec::new();
        let mut len = 1;
        while len < 1 << 30 {
            let class_len = store.0.class_len(len).expect("it is kept");
            assert!(class_len >= len && (class_len - len <= len / 8 || class_len == MIN_LEN), "{len}");
            assert_eq!(store.0.class_len(class_len), Some(class_len));
            assert!(len <= MIN_LEN || class_len.is_multiple_of(512));
            numbers.push(class_of(class_len));
            len = class_len + 1;
        }
        assert_eq!(numbers, (0..numbers.len()).collect::<Vec<_>>());
        assert_eq!(store.0.class_len(usize::MAX), None);
        assert_eq!(IdleMemory::with_limit(4096).0.class_len(4097), None);
        assert_eq!(IdleMemory::with_limit(0).0.class_len(1), None);
    }
}
