//! [`ThreadCaches`]: free blocks that threads keep for themselves, in front of the words of a free set.
//!
//! A cache belongs to the thread with its number. The owner uses it without any atomic read-modify-write
//! operation: it sets `busy`, checks that the cache is open, moves a block, and clears `busy`. A thread that
//! finds no free block elsewhere *recalls* the caches under the lock of the set: it closes all of them, makes
//! every running thread of the process execute a memory barrier, waits until no owner is busy, and moves the
//! blocks to the words. Therefore no request fails, and no task waits, while another thread's cache has a
//! block. A closed cache is opened again by its owner, after so many uses that the barrier is cheap in
//! comparison.

use std::cell::Cell;

use crossbeam_utils::CachePadded;

use crate::memory::sync::{AtomicU32, Ordering};

/// Maximum number of blocks in a cache. With this number, a cache has the size of two cache lines.
pub(super) const CAPACITY: usize = if cfg!(loom) { 1 } else { 28 };
/// The number of caches: threads with higher numbers have no cache.
const THREADS: usize = u64::BITS as usize;
/// The owner opens a closed cache again after this number of uses.
const REOPEN_AFTER: u32 = if cfg!(loom) {
    1
} else if cfg!(test) {
    16
} else {
    4096
};

/// State of a cache: its owner may take blocks and put blocks back.
const OPEN: u32 = 0;
/// State of a cache: it is empty, and its owner must not use it.
const CLOSED: u32 = 1;
/// State of a cache: its owner may only take blocks. The process could not execute the barrier of a recall,
/// so only the owner may use the cache.
const TAKE_ONLY: u32 = 2;

/// The caches of the threads, by the numbers of the threads.
pub(super) struct ThreadCaches {
    /// Empty if the system lacks the barrier.
    caches: Box<[CachePadded<ThreadCache>]>,
    /// The number of open caches. Changed under the lock of the set.
    open: AtomicU32,
}

/// The cache of one thread. The owner writes all fields except `state`.
pub(super) struct ThreadCache {
    /// 1 while the owner uses the cache.
    busy: AtomicU32,
    /// Changed under the lock of the set.
    state: AtomicU32,
    /// Number of uses since the cache was closed.
    skipped: AtomicU32,
    /// The number of blocks. Also written by a recall, while the cache is closed and its owner is not busy.
    len: AtomicU32,
    blocks: [AtomicU32; CAPACITY],
}

impl ThreadCaches {
    /// Makes closed caches, which their owners open at the first use.
    pub(super) fn new() -> Self {
        let threads = if barrier::is_available() { THREADS } else { 0 };
        Self::with_threads(threads)
    }

    pub(super) fn with_threads(threads: usize) -> Self {
        let cache = || ThreadCache {
            busy: AtomicU32::new(0),
            state: AtomicU32::new(CLOSED),
            skipped: AtomicU32::new(REOPEN_AFTER),
            len: AtomicU32::new(0),
            blocks: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        let caches = (0..threads).map(|_| CachePadded::new(cache())).collect();
        Self { caches, open: AtomicU32::new(0) }
    }

    /// Returns the cache of the thread with this number.
    #[inline]
    pub(super) fn of(&self, thread: usize) -> Option<&ThreadCache> {
        self.caches.get(thread).map(|cache| &**cache)
    }

    /// Returns whether a recall may find blocks.
    pub(super) fn may_have_blocks(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Returns the blocks in all caches. Blocks that other threads move at the same time may be missing.
    pub(super) fn blocks(&self) -> Vec<u32> {
        let mut blocks = Vec::new();
        for cache in &self.caches {
            let len = cache.len.load(Ordering::Relaxed) as usize;
            blocks.extend(cache.blocks.iter().take(len).map(|block| block.load(Ordering::Relaxed)));
        }
        blocks
    }

    /// Returns the number of blocks in all caches.
    pub(super) fn len(&self) -> usize {
        self.caches.iter().map(|cache| cache.len.load(Ordering::Relaxed) as usize).sum()
    }

    /// Opens the calling thread's cache. The caller holds the lock of the set, and no task waits.
    pub(super) fn open(&self, cache: &ThreadCache) {
        if cache.state.load(Ordering::Relaxed) == CLOSED {
            cache.state.store(OPEN, Ordering::Relaxed);
            cache.skipped.store(0, Ordering::Relaxed);
            self.open.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Closes all caches, and passes their blocks to `free`. The caller holds the lock of the set.
    pub(super) fn recall(&self, free: impl FnMut(u32)) {
        self.recall_with(barrier::of_all_threads, free);
    }

    /// Recalls the blocks with this `barrier`, which returns whether all threads have executed it.
    fn recall_with(&self, barrier: impl FnOnce() -> bool, mut free: impl FnMut(u32)) {
        if !self.may_have_blocks() {
            return;
        }
        let was_open = |cache: &&CachePadded<ThreadCache>| cache.state.load(Ordering::Relaxed) == OPEN;
        let open: Vec<_> = self.caches.iter().filter(was_open).collect();
        open.iter().for_each(|cache| cache.state.store(CLOSED, Ordering::Relaxed));
        self.open.store(0, Ordering::Relaxed);
        if !barrier() {
            open.iter().for_each(|cache| cache.state.store(TAKE_ONLY, Ordering::Relaxed));
            return;
        }
        for cache in open {
            cache.wait_for_owner();
            let len = cache.len.load(Ordering::Relaxed) as usize;
            cache.len.store(0, Ordering::Relaxed);
            cache.blocks.iter().take(len).for_each(|block| free(block.load(Ordering::Relaxed)));
        }
    }
}

impl ThreadCache {
    /// Takes a block, unless the cache is closed or empty. Only the owner may call this.
    #[inline]
    pub(super) fn take(&self) -> Option<u32> {
        self.busy.store(1, Ordering::Relaxed);
        barrier::of_owner();
        let mut taken = None;
        if self.state.load(Ordering::Relaxed) != CLOSED {
            // The owner is busy and the cache is not closed, so no recall changes the length.
            let len = self.len.load(Ordering::Relaxed).wrapping_sub(1);
            if let Some(block) = self.blocks.get(len as usize) {
                self.len.store(len, Ordering::Relaxed);
                taken = Some(block.load(Ordering::Relaxed));
            }
        }
        self.busy.store(0, Ordering::Release);
        taken
    }

    /// Puts a block back, if the cache is open and not full. Only the owner may call this. If the result is
    /// true, the block, its class and this cache may be freed at any time.
    #[inline]
    pub(super) fn put(&self, block: u32) -> bool {
        self.busy.store(1, Ordering::Relaxed);
        barrier::of_owner();
        let is_open = self.state.load(Ordering::Relaxed) == OPEN;
        let len = self.len.load(Ordering::Relaxed);
        let put = match self.blocks.get(len as usize) {
            Some(place) if is_open => {
                place.store(block, Ordering::Relaxed);
                self.len.store(len + 1, Ordering::Relaxed);
                true
            }
            _ => false,
        };
        // A recall that sees this store also sees the block, and all uses of the block happened before.
        self.busy.store(0, Ordering::Release);
        put
    }

    /// Counts a use of the cache if it is closed. Returns whether it is closed and the owner may open it.
    /// Only the owner may call this.
    pub(super) fn may_open(&self) -> bool {
        if self.state.load(Ordering::Relaxed) != CLOSED {
            return false;
        }
        let skipped = self.skipped.load(Ordering::Relaxed);
        self.skipped.store(skipped.saturating_add(1), Ordering::Relaxed);
        skipped >= REOPEN_AFTER
    }

    /// Waits until the owner has ended a use that may have begun before the cache was closed. A use takes
    /// nanoseconds, unless the system stops the owner in the middle of it.
    fn wait_for_owner(&self) {
        let mut polls = 0_u32;
        while self.busy.load(Ordering::Acquire) != 0 {
            polls += 1;
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(not(loom))]
            match polls {
                0..100 => std::hint::spin_loop(),
                100..200 => std::thread::yield_now(),
                // An owner with a lower priority runs only while this thread sleeps.
                _ => std::thread::sleep(std::time::Duration::from_micros(50)),
            }
        }
    }
}

/// Returns the number of the calling thread, which no other running thread has. Numbers below [`THREADS`] are
/// reused when their threads have ended. A later thread with the number owns the caches with this number.
pub(super) fn thread_number() -> usize {
    let number = known_thread_number();
    if number == usize::MAX { assign_number() } else { number }
}

/// Returns the number of the calling thread, or `usize::MAX` if it has no number yet.
#[inline]
pub(super) fn known_thread_number() -> usize {
    NUMBER.get()
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    static LEASE: Lease = const { Lease(Cell::new(0)) };
}

/// The bits of the numbers that running threads have.
static TAKEN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Gives the thread's number back when the thread ends.
struct Lease(Cell<u64>);

impl Drop for Lease {
    fn drop(&mut self) {
        // Later destructors of this thread use no cache.
        NUMBER.set(THREADS);
        TAKEN.fetch_and(!self.0.get(), std::sync::atomic::Ordering::Release);
    }
}

#[cold]
fn assign_number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The next number of a thread without a cache. Such numbers need not be unique.
    static NEXT: AtomicUsize = AtomicUsize::new(0);

    // Loom's threads are one thread of the system.
    let taken = (!cfg!(loom)).then(|| {
        // The acquire ordering pairs with the release ordering in `Lease::drop`: the former owner's last use
        // of the caches has ended.
        let take = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let taken = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).ok()?;
        let bit = !taken & (taken + 1);
        match LEASE.try_with(|lease| lease.0.set(bit)) {
            Ok(()) => Some(bit.trailing_zeros() as usize),
            // The thread is ending.
            Err(_) => {
                TAKEN.fetch_and(!bit, Ordering::Release);
                None
            }
        }
    });
    let without_cache = || THREADS + NEXT.fetch_add(1, Ordering::Relaxed) % THREADS;
    let number = taken.flatten().unwrap_or_else(without_cache);
    NUMBER.set(number);
    number
}

/// The two sides of an asymmetric barrier.
mod barrier {
    /// The owner's side: orders the store of `busy` before the load of `state`. It costs nothing, because the
    /// other side makes the processor of the owner execute a barrier.
    #[inline]
    pub(super) fn of_owner() {
        #[cfg(loom)]
        loom::sync::atomic::fence(crate::memory::sync::Ordering::SeqCst);
        #[cfg(miri)]
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        #[cfg(not(any(loom, miri)))]
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Returns whether the process can call [`of_all_threads`].
    #[cfg(any(loom, miri))]
    pub(super) const fn is_available() -> bool {
        // Loom's tests make the caches that they need.
        cfg!(miri)
    }

    /// Executes a barrier in all running threads of the process. Returns whether it was executed.
    #[cfg(any(loom, miri))]
    pub(super) fn of_all_threads() -> bool {
        of_owner();
        true
    }

    /// Returns whether the process can call [`of_all_threads`]. A sandbox may forbid it.
    #[cfg(not(any(loom, miri)))]
    pub(super) fn is_available() -> bool {
        static AVAILABLE: once_cell::race::OnceBool = once_cell::race::OnceBool::new();
        AVAILABLE.get_or_init(|| register() && of_all_threads())
    }

    #[cfg(not(any(loom, miri)))]
    fn register() -> bool {
        use rustix::thread::{MembarrierCommand, membarrier};

        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    /// Executes a barrier in all running threads of the process. Returns whether it was executed.
    #[cfg(not(any(loom, miri)))]
    pub(super) fn of_all_threads() -> bool {
        use rustix::thread::{MembarrierCommand, membarrier};

        let execute = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // A forked child may have to register again.
        execute() || (register() && execute())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A sandbox may forbid the barrier after the caches were made.
    #[test]
    fn without_a_barrier_only_the_owner_takes_its_blocks() {
        let caches = ThreadCaches::with_threads(2);
        let cache = caches.of(0).expect("a cache");
        assert!(!cache.put(7), "the cache is closed");
        assert!(cache.may_open());
        caches.open(cache);
        assert!(cache.put(7));
        caches.recall_with(|| false, |block| panic!("block {block} may be in use by the owner"));
        assert!(!cache.put(8) && !cache.may_open(), "the owner may only take blocks");
        assert_eq!((caches.len(), caches.blocks()), (1, vec![7]));
        assert_eq!((cache.take(), cache.take()), (Some(7), None));
    }

    #[test]
    fn running_threads_have_different_numbers_and_ended_threads_leave_theirs() {
        let mut numbers = vec![thread_number()];
        assert_eq!(thread_number(), numbers[0]);
        let all_started = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let number = thread_number();
                        all_started.wait();
                        number
                    })
                })
                .collect();
            numbers.extend(started.into_iter().map(|thread| thread.join().expect("no panic")));
        });
        // The tests' other threads may have the lower numbers.
        numbers.retain(|number| *number < THREADS);
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
        for _ in 0..10 * THREADS {
            // For a moment, the tests' other threads may have all numbers.
            let has_number = || {
                let number = std::thread::spawn(thread_number).join().expect("no panic");
                number < THREADS || TAKEN.load(std::sync::atomic::Ordering::Relaxed) == u64::MAX
            };
            assert!((0..100).any(|_| has_number()));
        }
    }
}
