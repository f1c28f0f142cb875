//! [`JobRing`]: the jobs of one queue, split into chunks. The owner and any number of helpers claim the
//! chunks one by one.
//!
//! Jobs are claimed in order of publication, chunk by chunk, so one word identifies the next chunk. A fenced
//! job is claimed only when all earlier jobs have finished, and later jobs wait for it. Jobs finish in any
//! order. The owner retires them in order of publication.
#![expect(unsafe_code, reason = "passes the owner's jobs to other threads")]

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use super::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, UnsafeCell, fence};

/// Number of bits of the word that count chunks. The other bits count jobs.
const CHUNK_BITS: u32 = 24;
/// Maximum number of chunks of a job.
pub(super) const MAX_CHUNKS: u32 = (1 << CHUNK_BITS) - 1;
const JOB_MASK: u64 = u64::MAX >> CHUNK_BITS;
/// Set in [`JobEntry::chunks`] for a fenced job.
const FENCED: u32 = 1 << 31;

/// The part that helpers use.
pub(super) struct JobRing<T> {
    /// The entries are allocated with the first job, because many queues never have one.
    entries: OnceLock<Box<[JobEntry<T>]>>,
    capacity: usize,
    /// The next chunk to claim: the job number in the upper bits, the chunk number in the lower bits.
    next: CachePadded<AtomicU64>,
    /// Number of jobs that the owner has published so far.
    published: CachePadded<AtomicU64>,
    /// Number of jobs finished so far.
    finished: CachePadded<AtomicU64>,
    /// Number of jobs that the owner has retired so far.
    retired: AtomicU64,
    /// True if the owner has requested a signal for the end of the oldest job.
    armed: AtomicBool,
}

struct JobEntry<T> {
    /// Number of chunks, with [`FENCED`] for a fenced job.
    chunks: AtomicU32,
    /// Number of unfinished chunks.
    left: AtomicU32,
    job: UnsafeCell<T>,
}

// SAFETY: the owner writes a job only while no claim on it exists. Threads with claims share the job, so `T`
// must be `Sync`. The owner may move between threads, so `T` must be `Send`.
unsafe impl<T: Send + Sync> Sync for JobRing<T> {}
// SAFETY: moving the ring moves the jobs, which are `Send`, and shares them with threads that have claims,
// for which they are `Sync`.
unsafe impl<T: Send + Sync> Send for JobRing<T> {}

/// The part that publishes and retires jobs.
pub(super) struct Owner<T> {
    ring: Arc<JobRing<T>>,
    published: u64,
    retired: u64,
}

/// One chunk of one job, claimed by one thread.
#[must_use = "an unfinished chunk blocks its queue"]
pub(super) struct Claim<'a, T> {
    ring: &'a JobRing<T>,
    entry: &'a JobEntry<T>,
    chunk: u32,
}

/// Result of finishing a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a thread may be asleep"]
pub(super) struct Finished {
    /// True if it was the job's last chunk. Then jobs after a fence may have become available.
    pub(super) job: bool,
    /// True if the owner has requested a signal.
    pub(super) signal: bool,
}

impl<T: Default> Owner<T> {
    /// Makes a ring with room for `capacity` jobs.
    pub(super) fn new(capacity: usize) -> Self {
        let ring = JobRing {
            entries: OnceLock::new(),
            capacity: capacity.next_power_of_two(),
            next: CachePadded::new(AtomicU64::new(0)),
            published: CachePadded::new(AtomicU64::new(0)),
            finished: CachePadded::new(AtomicU64::new(0)),
            retired: AtomicU64::new(0),
            armed: AtomicBool::new(false),
        };
        Self { ring: Arc::new(ring), published: 0, retired: 0 }
    }

    /// Allocates the entries, unless they exist. Returns false if memory is exhausted.
    #[inline]
    pub(super) fn prepare(&self) -> bool {
        self.ring.entries.get().is_some() || self.make_entries()
    }

    #[cold]
    fn make_entries(&self) -> bool {
        let mut entries = Vec::new();
        if entries.try_reserve_exact(self.ring.capacity).is_err() {
            return false;
        }
        entries.resize_with(self.ring.capacity, JobEntry::new);
        self.ring.entries.set(entries.into_boxed_slice()).is_ok()
    }

    /// Publishes a job with 1 to [`MAX_CHUNKS`] `chunks`, which `fill` writes. Returns its number. With
    /// `fenced`, this job and later ones wait for all earlier ones.
    ///
    /// # Panics
    ///
    /// The ring is full, the entries cannot be allocated (see [`prepare`](Self::prepare)), or the number of
    /// chunks is out of range.
    pub(super) fn publish(&mut self, chunks: u32, fenced: bool, fill: impl FnOnce(&mut T)) -> u64 {
        let ring = &*self.ring;
        assert!(self.outstanding() < ring.capacity, "the ring of {} jobs is full", ring.capacity);
        assert!((1..=MAX_CHUNKS).contains(&chunks), "{chunks} chunks");
        assert!(self.prepare(), "no memory for {} jobs", ring.capacity);
        let entries = ring.entries.get().expect("made just now");
        let entry = &entries[self.published as usize & (ring.capacity - 1)];
        // SAFETY: the entry's last job was retired, so no claim on it exists, and none can be taken before
        // the store below.
        entry.job.with_mut(|job| fill(unsafe { &mut *job }));
        entry.left.store(chunks, Ordering::Relaxed);
        entry.chunks.store(if fenced { chunks | FENCED } else { chunks }, Ordering::Relaxed);
        let number = self.published;
        self.published += 1;
        // Release: a thread that sees the number sees the job.
        ring.published.store(self.published, Ordering::Release);
        number
    }
}

impl<T> Owner<T> {
    /// Returns the part that helpers use.
    pub(super) fn ring(&self) -> &Arc<JobRing<T>> {
        &self.ring
    }

    /// Returns the number of jobs that are not retired.
    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        (self.published - self.retired) as usize
    }

    /// Returns true if published work is available and `asleep` returns true.
    ///
    /// If a fence blocks the work, the thread that finishes the last job before the fence finds the work by
    /// [`JobRing::has_work`]: either this call sees that the job is finished, or the finishing thread sees
    /// the publication.
    pub(super) fn needs_waking(&self, asleep: impl FnOnce() -> bool) -> bool {
        // Pairs with the fence in `JobRing::should_signal`, and with the sleeper's fence: either this call
        // sees the sleeper, or the sleeper sees the work.
        fence(Ordering::SeqCst);
        asleep() && self.ring.has_work()
    }

    /// Returns true if every job before `number` has finished and its writes are visible. May still return
    /// false for a short time after the last of these jobs has finished.
    pub(super) fn finished_before(&self, number: u64) -> bool {
        // Acquire pairs with the release in `finish`.
        self.ring.finished.load(Ordering::Acquire) >= number
    }

    /// Returns true if every job has finished and its writes are visible. May still return false for a short
    /// time after the last job has finished.
    pub(super) fn all_finished(&self) -> bool {
        self.finished_before(self.published)
    }

    /// Returns the oldest job's entry, if the job is finished.
    #[inline]
    fn oldest_finished(&self) -> Option<&JobEntry<T>> {
        if self.published == self.retired {
            return None;
        }
        let entry = &self.ring.entries.get()?[self.retired as usize & (self.ring.capacity - 1)];
        // Acquire pairs with the release in `finish` of every chunk.
        (entry.left.load(Ordering::Acquire) == 0).then_some(entry)
    }

    /// Returns true if [`retire`](Self::retire) would return a job.
    #[inline]
    pub(super) fn can_retire(&self) -> bool {
        self.oldest_finished().is_some()
    }

    /// Removes the oldest job if it is finished. In this case its writes are visible.
    #[inline]
    pub(super) fn retire<R>(&mut self, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        let entry = self.oldest_finished()?;
        // SAFETY: all chunks have finished, so no claim on the job exists or can be taken.
        let result = entry.job.with_mut(|job| take(unsafe { &mut *job }));
        self.retired += 1;
        self.ring.retired.store(self.retired, Ordering::Relaxed);
        Some(result)
    }

    /// Requests [`Finished::signal`] for the end of the oldest job. Returns false if the job has already
    /// finished.
    pub(super) fn arm(&mut self) -> bool {
        // Release: a thread that sees the flag also sees the job that is the oldest now.
        self.ring.armed.store(true, Ordering::Release);
        // Either this call sees that the job is finished, or the finishing thread sees the request.
        fence(Ordering::SeqCst);
        if self.oldest_finished().is_some() {
            self.disarm();
            return false;
        }
        true
    }

    /// Withdraws the request of [`arm`](Self::arm).
    pub(super) fn disarm(&mut self) {
        self.ring.armed.store(false, Ordering::Relaxed);
    }
}

impl<T> JobRing<T> {
    /// Claims the next chunk that may be started, if any.
    pub(super) fn claim(&self) -> Option<Claim<'_, T>> {
        // Acquire: the entry is at least as new as this word.
        let mut word = self.next.load(Ordering::Acquire);
        loop {
            let (entry, chunks) = match self.look_up(word) {
                Lookup::Chunk(entry, chunks) => (entry, chunks),
                Lookup::Nothing => return None,
                Lookup::Stale(newer) => {
                    word = newer;
                    continue;
                }
            };
            let (job, chunk) = (word >> CHUNK_BITS, word as u32 & MAX_CHUNKS);
            let after = if chunk + 1 == chunks { (job + 1) << CHUNK_BITS } else { word + 1 };
            // The word only increases (it wraps after 2^40 jobs). So if it is unchanged, the entry still
            // holds the same job.
            match self.next.compare_exchange_weak(word, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Claim { ring: self, entry, chunk }),
                Err(newer) => word = newer,
            }
        }
    }

    /// Returns true if [`claim`](Self::claim) would return a chunk.
    pub(super) fn has_work(&self) -> bool {
        let mut word = self.next.load(Ordering::Acquire);
        loop {
            match self.look_up(word) {
                Lookup::Chunk(..) => return true,
                Lookup::Nothing => return false,
                Lookup::Stale(newer) => word = newer,
            }
        }
    }

    /// Reads the chunk at `word`.
    #[inline]
    fn look_up(&self, word: u64) -> Lookup<'_, T> {
        let (job, chunk) = (word >> CHUNK_BITS, word as u32 & MAX_CHUNKS);
        // Acquire pairs with the release in `publish`.
        if job == self.published.load(Ordering::Acquire) & JOB_MASK {
            return Lookup::Nothing;
        }
        let Some(entries) = self.entries.get() else { return Lookup::Nothing };
        let entry = &entries[job as usize & (self.capacity - 1)];
        let chunks = entry.chunks.load(Ordering::Relaxed);
        // Acquire: all earlier writes are visible to the first claim of the fenced job, and through `next` to
        // the others.
        let blocked = || self.finished.load(Ordering::Acquire) & JOB_MASK != job;
        if chunk == 0 && chunks & FENCED != 0 && blocked() {
            // The entry may now hold a later job that also has a fence.
            let now = self.next.load(Ordering::Acquire);
            return if now == word { Lookup::Nothing } else { Lookup::Stale(now) };
        }
        Lookup::Chunk(entry, chunks & !FENCED)
    }
}

enum Lookup<'a, T> {
    Nothing,
    /// The entry and its number of chunks. The values are valid only if the word is unchanged.
    Chunk(&'a JobEntry<T>, u32),
    /// The word has changed to this value.
    Stale(u64),
}

impl<T> Claim<'_, T> {
    /// Returns the chunk's index in the job, from 0.
    pub(super) fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Calls `f` with the job.
    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: while a claim exists, the owner does not write the job, and other claims make shared
        // references only.
        self.entry.job.with(|job| f(unsafe { &*job }))
    }

    /// Ends the claim. The chunk's memory is not accessed afterwards.
    pub(super) fn finish(self) -> Finished {
        let Self { ring, entry, .. } = self;
        // Release: a thread that sees that the job is finished also sees this chunk's writes. Acquire: so
        // does a thread that reads `finished`, which the last chunk increments.
        if entry.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Finished::default();
        }
        // The entry may hold another job from now on.
        ring.finished.fetch_add(1, Ordering::AcqRel);
        Finished { job: true, signal: ring.should_signal() }
    }
}

impl<T> JobRing<T> {
    /// Returns true if the owner waits for the oldest job, and the job is finished. Returns true at most once
    /// per `arm`.
    fn should_signal(&self) -> bool {
        // See `arm`, and `needs_waking` for callers that use `has_work` after `finish`.
        fence(Ordering::SeqCst);
        if !self.armed.load(Ordering::Acquire) {
            return false;
        }
        let oldest = self.retired.load(Ordering::Relaxed);
        let Some(entries) = self.entries.get() else { return false };
        // It suffices that the thread that finishes the oldest job sees the request.
        entries[oldest as usize & (self.capacity - 1)].left.load(Ordering::Relaxed) == 0
            && self.armed.swap(false, Ordering::Relaxed)
    }
}

impl<T: Default> JobEntry<T> {
    fn new() -> Self {
        Self { chunks: AtomicU32::new(0), left: AtomicU32::new(0), job: UnsafeCell::new(T::default()) }
    }
}

impl<T> fmt::Debug for JobRing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRing")
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
