//! [`FreeSet`]: the free blocks of one size, and the FIFO list of the tasks that wait for a block.
//!
//! Each free block is one bit. The bits are spread over words in different cache lines. Every thread takes
//! blocks first from a word of its own, and a released block returns to the word that has its bit. Every word
//! has two flags: one means that tasks wait, the other that the set is closed. If either flag is set, a
//! release takes the lock. A task sets the first flag in every word before it reads the words for the last
//! time. Therefore either the task sees a released block, or the release takes the lock and passes the block
//! to the first waiting task. Accesses to different words need no order.
//!
//! In front of the words, each thread has a cache ([`thread_cache`](super::thread_cache)). While tasks wait,
//! all caches are closed, and all of their blocks are in the words.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::thread_cache::{ThreadCache, ThreadCaches, known_thread_number, thread_number};
use crate::guarded;
use crate::memory::sync::{AtomicU64, Mutex, Ordering};

/// Flag of a word: tasks wait.
const WAITED: u64 = 1 << 62;
/// Flag of a word: the set is closed.
const CLOSED: u64 = 1 << 63;
/// The bits of a word that stand for blocks.
const BLOCKS: u64 = WAITED - 1;
/// Minimum number of words, so that threads take from different words even in a small set.
const MIN_WORDS: usize = 8;

/// Number of low bits of a block's number that are its position in the word.
const POSITION: u32 = u64::BITS.trailing_zeros();

/// The free blocks of one size, by number. Numbers are below [`numbers`](Self::numbers).
pub(super) struct FreeSet {
    /// The number of words is a power of two.
    words: Box<[CachePadded<AtomicU64>]>,
    caches: ThreadCaches,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Number of waiting tasks without a block.
    waiters_without_block: usize,
    /// The next task's number.
    next: u64,
    /// Sorted by number.
    tasks: VecDeque<WaitingTask>,
    /// The longest wait that has ended.
    longest: Duration,
}

struct WaitingTask {
    number: u64,
    since: Instant,
    state: TaskState,
}

/// The state of a wait list.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Waits {
    pub(super) tasks: usize,
    /// The number of the task that has waited longest, and the duration of its wait so far.
    pub(super) oldest: Option<(u64, Duration)>,
    /// The longest wait so far, including waits that have not ended.
    pub(super) longest: Duration,
}

enum TaskState {
    Waiting(Waker),
    Has(u32),
}

/// The result of releasing a block.
pub(super) enum Released {
    /// The block is free, or was passed to a task. The caller must wake the task.
    Kept(Option<Waker>),
    /// The set is closed, and the caller owns the block.
    Closed,
}

impl FreeSet {
    /// Makes a set for up to `count` blocks, none of which is free yet. `count` must be at least 1 and far
    /// below 2^32.
    pub(super) fn new(count: usize) -> Self {
        Self::with_caches(count, ThreadCaches::new())
    }

    fn with_caches(count: usize, caches: ThreadCaches) -> Self {
        let words =
            count.div_ceil(BLOCKS.count_ones() as usize).max(count.min(MIN_WORDS)).next_power_of_two();
        Self {
            words: (0..words).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            caches,
            waiting: Mutex::new(Waiting::default()),
        }
    }

    /// Returns the number of the block with this index. Consecutive indexes are in different words.
    pub(super) fn number(&self, index: usize) -> u32 {
        ((index % self.words.len()) as u32) << POSITION | (index / self.words.len()) as u32
    }

    /// Returns a number that exceeds the number of every block.
    pub(super) fn numbers(&self) -> usize {
        self.words.len() << POSITION
    }

    /// Returns the number of free blocks.
    pub(super) fn free(&self) -> usize {
        let in_words = |word: &CachePadded<AtomicU64>| (word.load(Ordering::Relaxed) & BLOCKS).count_ones();
        self.words.iter().map(in_words).sum::<u32>() as usize + self.caches.len()
    }

    /// Returns whether a block is in a word. It may also be in a [cache](Self::cached).
    pub(super) fn has(&self, block: u32) -> bool {
        let (word, bit) = self.place(block);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Returns the free blocks in the caches of all threads.
    pub(super) fn cached(&self) -> Vec<u32> {
        self.caches.blocks()
    }

    /// Returns the state of the wait list.
    pub(super) fn waits(&self) -> Waits {
        self.with(|waiting| {
            let oldest = waiting.tasks.iter().find(|task| matches!(task.state, TaskState::Waiting(_)));
            let oldest = oldest.map(|task| (task.number, task.since.elapsed()));
            let longest = waiting.longest.max(oldest.map_or(Duration::ZERO, |(_, wait)| wait));
            Waits { tasks: waiting.waiters_without_block, oldest, longest }
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut Waiting) -> R) -> R {
        // Loom's mutex has another type than `dma_process::lock` takes.
        f(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a free block from the calling thread's cache.
    #[inline]
    pub(super) fn take_cached(&self) -> Option<u32> {
        self.own_cache()?.take()
    }

    /// Takes a free block. If only the caches of other threads have free blocks, this takes the lock.
    pub(super) fn take(&self) -> Option<u32> {
        self.take_as(thread_number())
    }

    /// Takes a free block for the thread with this number.
    fn take_as(&self, thread: usize) -> Option<u32> {
        let cached = self.caches.of(thread).and_then(ThreadCache::take);
        cached.or_else(|| self.take_uncached(thread))
    }

    /// Takes a free block that is not in the thread's own cache.
    fn take_uncached(&self, thread: usize) -> Option<u32> {
        if let Some(cache) = self.caches.of(thread)
            && cache.may_open()
        {
            self.open(cache);
        }
        self.take_from_words(thread).or_else(|| self.take_recalled(thread))
    }

    /// Opens the calling thread's cache, unless tasks wait.
    #[cold]
    fn open(&self, cache: &ThreadCache) {
        self.with(|waiting| {
            if waiting.waiters_without_block == 0 {
                self.caches.open(cache);
            }
        });
    }

    /// Takes a free block from the caches of other threads.
    #[cold]
    fn take_recalled(&self, thread: usize) -> Option<u32> {
        if !self.caches.may_have_blocks() {
            return None;
        }
        self.with(|_| self.recall());
        self.take_from_words(thread)
    }

    /// Moves the blocks of all caches to the words, and closes the caches. The caller holds the lock.
    fn recall(&self) {
        self.caches.recall(|block| {
            let (word, bit) = self.place(block);
            word.fetch_or(bit, Ordering::Release);
        });
    }

    /// Takes a block from the words.
    #[inline]
    fn take_from_words(&self, thread: usize) -> Option<u32> {
        let (first, mask) = (thread, self.words.len() - 1);
        (0..=mask).find_map(|i| {
            let at = (first + i) & mask;
            let word = &self.words[at];
            let mut seen = word.load(Ordering::Relaxed);
            while seen & BLOCKS != 0 {
                let position = seen.trailing_zeros();
                // The acquire ordering pairs with the release ordering in `give`.
                match word.compare_exchange_weak(
                    seen,
                    seen & !(1 << position),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return Some((at as u32) << POSITION | position),
                    Err(now) => seen = now,
                }
            }
            None
        })
    }

    /// Returns the calling thread's cache, for [`give_to_cache`]. Returns `None` for a thread without a
    /// cache, and for a thread that has not taken a block yet.
    #[inline]
    pub(super) fn own_cache(&self) -> Option<&ThreadCache> {
        self.caches.of(known_thread_number())
    }

    /// Returns the word and the bit of a block, for [`give`].
    #[inline]
    pub(super) fn place(&self, block: u32) -> (&AtomicU64, u64) {
        let position = block & ((1 << POSITION) - 1);
        (&self.words[(block >> POSITION) as usize], 1 << position)
    }

    /// Releases a block that [`give`] did not accept.
    pub(super) fn give_with_lock(&self, block: u32) -> Released {
        let (word, bit) = self.place(block);
        self.with(|waiting| {
            if word.load(Ordering::Relaxed) & CLOSED != 0 {
                return Released::Closed;
            }
            let first = waiting.tasks.iter_mut().find(|task| matches!(task.state, TaskState::Waiting(_)));
            let Some(task) = first else {
                word.fetch_or(bit, Ordering::Release);
                return Released::Kept(None);
            };
            let TaskState::Waiting(waker) = std::mem::replace(&mut task.state, TaskState::Has(block)) else {
                unreachable!("it waits")
            };
            let since = task.since;
            self.one_waits_less(waiting, since);
            Released::Kept(Some(waker))
        })
    }

    /// Records that a task that began to wait at `since` got a block or left the list. The caller holds the
    /// lock.
    fn one_waits_less(&self, waiting: &mut Waiting, since: Instant) {
        waiting.longest = waiting.longest.max(since.elapsed());
        waiting.waiters_without_block -= 1;
        if waiting.waiters_without_block == 0 {
            self.set_waited(false);
        }
    }

    /// The caller holds the lock.
    fn set_waited(&self, waited: bool) {
        for word in &self.words {
            if waited {
                word.fetch_or(WAITED, Ordering::Relaxed);
            } else {
                word.fetch_and(!WAITED, Ordering::Relaxed);
            }
        }
    }

    /// Takes a free block, or joins the wait list and sets `task` to the task's number in the list. `task` is
    /// `None` in the first call. A task in the list must call this again, or call [`leave`](Self::leave).
    pub(super) fn poll_take(&self, task: &mut Option<u64>, waker: &Waker) -> Poll<u32> {
        if task.is_none()
            && let Some(block) = self.take()
        {
            return Poll::Ready(block);
        }
        // Clone and drop wakers without the lock, because cloning and dropping may run user code.
        let mut waker = Some(waker.clone());
        let mut old = None;
        let polled = self.with(|waiting| {
            if let Some(number) = *task {
                let at = waiting.tasks.binary_search_by_key(&number, |task| task.number);
                let at = at.expect("a task with a number is in the wait list");
                match &mut waiting.tasks[at].state {
                    TaskState::Has(block) => {
                        let block = *block;
                        _ = waiting.tasks.remove(at);
                        *task = None;
                        return Poll::Ready(block);
                    }
                    TaskState::Waiting(known) => {
                        old = waker.take().map(|waker| std::mem::replace(known, waker));
                        return Poll::Pending;
                    }
                }
            }
            self.set_waited(true);
            self.recall();
            // The flag is set, and the caches are closed. A later release takes the lock, and a block that
            // was released earlier is in a word.
            if let Some(block) = self.take_from_words(thread_number()) {
                if waiting.waiters_without_block == 0 {
                    self.set_waited(false);
                }
                return Poll::Ready(block);
            }
            let number = waiting.next;
            waiting.next += 1;
            waiting.waiters_without_block += 1;
            let waker = waker.take().expect("cloned above");
            let since = Instant::now();
            waiting.tasks.push_back(WaitingTask { number, since, state: TaskState::Waiting(waker) });
            *task = Some(number);
            Poll::Pending
        });
        // A panic would lose the block.
        guarded("the drop of a task's waker", || drop((waker, old)));
        polled
    }

    /// Leaves the wait list. If the task already has a block, returns the block, and the caller must release
    /// it.
    pub(super) fn leave(&self, task: u64) -> Option<u32> {
        let left = self.with(|waiting| {
            let at = waiting.tasks.binary_search_by_key(&task, |task| task.number).ok()?;
            let left = waiting.tasks.remove(at)?;
            if matches!(left.state, TaskState::Waiting(_)) {
                self.one_waits_less(waiting, left.since);
            }
            Some(left)
        });
        match left?.state {
            TaskState::Has(block) => Some(block),
            TaskState::Waiting(waker) => {
                guarded("the drop of a task's waker", || drop(waker));
                None
            }
        }
    }

    /// Closes the set and returns the free blocks. No task may be waiting.
    pub(super) fn close(&self) -> Vec<u32> {
        self.with(|_| {
            self.recall();
            let mut blocks = Vec::new();
            for (at, word) in self.words.iter().enumerate() {
                let mut free = word.swap(CLOSED, Ordering::Acquire) & BLOCKS;
                while free != 0 {
                    blocks.push((at as u32) << POSITION | free.trailing_zeros());
                    free &= free - 1;
                }
            }
            blocks
        })
    }
}

/// Releases a block to the calling thread's cache, if the cache is open and not full. Otherwise returns
/// `false`, and the caller keeps the block. This is not a method of the set, because the set may be freed as
/// soon as the block is released.
#[inline]
pub(super) fn give_to_cache(cache: Option<&ThreadCache>, block: u32) -> bool {
    cache.is_some_and(|cache| cache.put(block))
}

/// Releases a block to its word, if no task waits and the set is open. Otherwise returns `false`, and the
/// caller keeps the block. This is not a method of the set, for the same reason.
#[inline]
pub(super) fn give(word: &AtomicU64, bit: u64) -> bool {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        if seen & (WAITED | CLOSED) != 0 {
            return false;
        }
        match word.compare_exchange_weak(seen, seen | bit, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
