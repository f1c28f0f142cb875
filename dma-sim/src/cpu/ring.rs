//! [`Ring`]: the jobs of one queue, cut into chunks which its owner and any number of helpers take one by one.
//!
//! Jobs are taken in the order in which they were published, chunk after chunk, so that one word says what is next.
//! A fenced job is taken only when all before it are finished; as those behind it come after it, they wait too.
//! Jobs finish in any order and are retired by the owner in that of publication.
#![expect(unsafe_code, reason = "hands the owner's jobs to other threads")]

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use super::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, UnsafeCell, fence};

/// Bits of the word that count chunks; the others count jobs.
const CHUNK_BITS: u32 = 24;
/// The most chunks that a job can have.
pub(super) const MAX_CHUNKS: u32 = (1 << CHUNK_BITS) - 1;
const JOB_MASK: u64 = u64::MAX >> CHUNK_BITS;
/// Set in [`Slot::chunks`] for a fenced job.
const FENCED: u32 = 1 << 31;

/// What helpers see of the ring.
pub(super) struct Ring<T> {
    /// Made when the first job comes: many queues never have one.
    slots: OnceLock<Box<[Slot<T>]>>,
    capacity: usize,
    /// The next chunk to take: job number, then chunk number.
    next: CachePadded<AtomicU64>,
    /// Jobs published so far, by the owner.
    published: CachePadded<AtomicU64>,
    /// Jobs finished so far.
    finished: CachePadded<AtomicU64>,
    /// Jobs retired so far, by the owner.
    retired: AtomicU64,
    /// Whether the owner wants to be told that the oldest job is finished.
    armed: AtomicBool,
}

struct Slot<T> {
    /// How many chunks the job has, and whether it is fenced.
    chunks: AtomicU32,
    /// How many of them are not done.
    left: AtomicU32,
    job: UnsafeCell<T>,
}

// SAFETY: a job is written by the owner while nobody has a claim on it, and shared with those who have: so `T` must
// be `Sync` for them and `Send` for the owner to move.
unsafe impl<T: Send + Sync> Sync for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Ring<T> {}

/// The one side that publishes and retires.
pub(super) struct Owner<T> {
    ring: Arc<Ring<T>>,
    published: u64,
    retired: u64,
}

/// One chunk of one job, to be done by whoever took it.
#[must_use = "a chunk that is not finished holds up its queue for ever"]
pub(super) struct Claim<'a, T> {
    ring: &'a Ring<T>,
    slot: &'a Slot<T>,
    chunk: u32,
}

/// What the end of a chunk led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "somebody may be asleep"]
pub(super) struct Finished {
    /// It was the job's last: jobs behind a fence may have become free to take.
    pub(super) job: bool,
    /// The owner asked to be told.
    pub(super) signal: bool,
}

impl<T: Default> Owner<T> {
    /// Room for `capacity` jobs that are not retired.
    pub(super) fn new(capacity: usize) -> Self {
        let ring = Ring {
            slots: OnceLock::new(),
            capacity: capacity.next_power_of_two(),
            next: CachePadded::new(AtomicU64::new(0)),
            published: CachePadded::new(AtomicU64::new(0)),
            finished: CachePadded::new(AtomicU64::new(0)),
            retired: AtomicU64::new(0),
            armed: AtomicBool::new(false),
        };
        Self { ring: Arc::new(ring), published: 0, retired: 0 }
    }

    /// Publishes the job that `fill` describes, of `chunks` chunks, 1 to [`MAX_CHUNKS`]; returns its number. `fenced`: it and
    /// those that follow wait for all before it.
    ///
    /// # Panics
    ///
    /// If there is no room, or the number of chunks is out of range.
    pub(super) fn publish(&mut self, chunks: u32, fenced: bool, fill: impl FnOnce(&mut T)) -> u64 {
        let ring = &*self.ring;
        assert!(self.outstanding() < ring.capacity, "the ring of {} jobs is full", ring.capacity);
        assert!((1..=MAX_CHUNKS).contains(&chunks), "{chunks} chunks");
        let slots = ring.slots.get_or_init(|| (0..ring.capacity).map(|_| Slot::new()).collect());
        let slot = &slots[self.published as usize & (ring.capacity - 1)];
        // SAFETY: the slot's last job is retired, so nobody has a claim on it, and nobody can get one before the
        // store below.
        slot.job.with_mut(|job| fill(unsafe { &mut *job }));
        slot.left.store(chunks, Ordering::Relaxed);
        slot.chunks.store(if fenced { chunks | FENCED } else { chunks }, Ordering::Relaxed);
        let number = self.published;
        self.published += 1;
        // Release: who sees the number sees the job.
        ring.published.store(self.published, Ordering::Release);
        number
    }
}

impl<T> Owner<T> {
    /// The side for helpers.
    pub(super) fn ring(&self) -> &Arc<Ring<T>> {
        &self.ring
    }

    /// Jobs published and not retired.
    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        (self.published - self.retired) as usize
    }

    /// Whether to wake somebody for what was published. It is if anybody sleeps, as `asleep` tells, and there is work to do.
    ///
    /// If there is none because a fence holds it up, then who finishes the last job before that finds it with
    /// [`Ring::has_work`]: either this sees the job finished, or its finisher sees what was published.
    pub(super) fn needs_waking(&self, asleep: impl FnOnce() -> bool) -> bool {
        // Pairs with the one in `Ring::should_signal`, for that, and with the sleeper's: either this sees the sleeper, or the
        // sleeper sees the work.
        fence(Ordering::SeqCst);
        asleep() && self.ring.has_work()
    }

    /// Whether every job before `number` is finished, and what it wrote is visible. (May say no for a moment longer than it need.)
    pub(super) fn finished_before(&self, number: u64) -> bool {
        // Acquire: pairs with `finish`.
        self.ring.finished.load(Ordering::Acquire) >= number
    }

    /// Whether every job is finished, and what it wrote is visible. (May say no for a moment longer than it need.)
    pub(super) fn all_finished(&self) -> bool {
        self.finished_before(self.published)
    }

    /// The oldest job's slot, if it is finished.
    #[inline]
    fn oldest_finished(&self) -> Option<&Slot<T>> {
        if self.published == self.retired {
            return None;
        }
        let slot = &self.ring.slots.get()?[self.retired as usize & (self.ring.capacity - 1)];
        // Acquire: pairs with `finish`, of every chunk.
        (slot.left.load(Ordering::Acquire) == 0).then_some(slot)
    }

    /// Whether [`retire`](Self::retire) has something.
    #[inline]
    pub(super) fn can_retire(&self) -> bool {
        self.oldest_finished().is_some()
    }

    /// Takes the oldest job out, if it is finished. What it wrote is visible.
    #[inline]
    pub(super) fn retire<R>(&mut self, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        let slot = self.oldest_finished()?;
        // SAFETY: all chunks are finished, so nobody has a claim on it or can get one.
        let result = slot.job.with_mut(|job| take(unsafe { &mut *job }));
        self.retired += 1;
        self.ring.retired.store(self.retired, Ordering::Relaxed);
        Some(result)
    }

    /// Asks for [`Finished::signal`] when the oldest job finishes. False: it has, or there is no need to sleep for another reason.
    pub(super) fn arm(&mut self) -> bool {
        // Release: who sees it sees which job is the oldest.
        self.ring.armed.store(true, Ordering::Release);
        // Either this sees the job finished, or its finisher sees that this is armed.
        fence(Ordering::SeqCst);
        if self.oldest_finished().is_some() {
            self.disarm();
            return false;
        }
        true
    }

    /// Takes that back.
    pub(super) fn disarm(&mut self) {
        self.ring.armed.store(false, Ordering::Relaxed);
    }
}

impl<T> Ring<T> {
    /// Takes the next chunk, if there is one that may be started.
    pub(super) fn claim(&self) -> Option<Claim<'_, T>> {
        // Acquire: what is read of the slot below is at least as new as this.
        let mut word = self.next.load(Ordering::Acquire);
        loop {
            let (slot, chunks) = match self.look(word) {
                Look::Chunk(slot, chunks) => (slot, chunks),
                Look::Nothing => return None,
                Look::Stale(newer) => {
                    word = newer;
                    continue;
                }
            };
            let (job, chunk) = (word >> CHUNK_BITS, word as u32 & MAX_CHUNKS);
            let after = if chunk + 1 == chunks { (job + 1) << CHUNK_BITS } else { word + 1 };
            // The word only grows (until it wraps, after 2^40 jobs): if it is what it was, so is the job in the slot.
            match self.next.compare_exchange_weak(word, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Claim { ring: self, slot, chunk }),
                Err(newer) => word = newer,
            }
        }
    }

    /// Whether [`claim`](Self::claim) would take something.
    pub(super) fn has_work(&self) -> bool {
        let mut word = self.next.load(Ordering::Acquire);
        loop {
            match self.look(word) {
                Look::Chunk(..) => return true,
                Look::Nothing => return false,
                Look::Stale(newer) => word = newer,
            }
        }
    }

    /// What is at `word`.
    #[inline]
    fn look(&self, word: u64) -> Look<'_, T> {
        let (job, chunk) = (word >> CHUNK_BITS, word as u32 & MAX_CHUNKS);
        // Acquire: pairs with `publish`.
        if job == self.published.load(Ordering::Acquire) & JOB_MASK {
            return Look::Nothing;
        }
        let Some(slots) = self.slots.get() else { return Look::Nothing };
        let slot = &slots[job as usize & (self.capacity - 1)];
        let chunks = slot.chunks.load(Ordering::Relaxed);
        // Acquire: what all earlier jobs wrote is visible to the first that takes the fenced one, and by way of `next`
        // to the others.
        let blocked = || self.finished.load(Ordering::Acquire) & JOB_MASK != job;
        if chunk == 0 && chunks & FENCED != 0 && blocked() {
            // The slot may hold a later job by now, and the fence be that one's.
            let now = self.next.load(Ordering::Acquire);
            return if now == word { Look::Nothing } else { Look::Stale(now) };
        }
        Look::Chunk(slot, chunks & !FENCED)
    }
}

enum Look<'a, T> {
    Nothing,
    /// The slot, and how many chunks it has: true if the word is still the same.
    Chunk(&'a Slot<T>, u32),
    /// The word has changed to this.
    Stale(u64),
}

impl<T> Claim<'_, T> {
    /// Which chunk of the job it is, from 0 on.
    pub(super) fn chunk(&self) -> u32 {
        self.chunk
    }

    /// The job.
    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: a claim keeps the owner from touching the job; others have shared references as well.
        self.slot.job.with(|job| f(unsafe { &*job }))
    }

    /// The chunk is done: nobody touches its memory on its behalf any more.
    pub(super) fn finish(self) -> Finished {
        let Self { ring, slot, .. } = self;
        // Release: who sees the job finished sees what this chunk wrote. Acquire: so does who sees `finished`, which the last
        // one increments for all.
        if slot.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Finished::default();
        }
        // From here on the slot may hold another job.
        ring.finished.fetch_add(1, Ordering::AcqRel);
        Finished { job: true, signal: ring.should_signal() }
    }
}

impl<T> Ring<T> {
    /// Whether the owner waits for the oldest job, and it is finished. True at most once per `arm`.
    fn should_signal(&self) -> bool {
        // See `arm`, and `needs_waking` for who asks `has_work` after `finish`.
        fence(Ordering::SeqCst);
        if !self.armed.load(Ordering::Acquire) {
            return false;
        }
        let oldest = self.retired.load(Ordering::Relaxed);
        let Some(slots) = self.slots.get() else { return false };
        // Who finishes the oldest job sees that here; who finishes another need not.
        slots[oldest as usize & (self.capacity - 1)].left.load(Ordering::Relaxed) == 0
            && self.armed.swap(false, Ordering::Relaxed)
    }
}

impl<T: Default> Slot<T> {
    fn new() -> Self {
        Self { chunks: AtomicU32::new(0), left: AtomicU32::new(0), job: UnsafeCell::new(T::default()) }
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("capacity", &self.capacity)
            .field("published", &self.published)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("ring", &self.ring)
            .field("retired", &self.retired)
            .finish_non_exhaustive()
    }
}
