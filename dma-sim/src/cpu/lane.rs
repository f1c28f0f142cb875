//! [`Lane`]: what a queue shares with the threads that help it.
#![expect(unsafe_code, reason = "does the copies that were promised to be sound")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use dma_core::Segment;

use super::Kernel;
use super::chooser::{Pick, ticks};
use super::event::Event;
use super::pool::Helpers;
use super::ring::{Claim, Ring};
use super::transfer::{Failure, Moves};

/// A descriptor that is done in chunks.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) token: u64,
    pub(super) pick: Pick,
    pub(super) kernel: Kernel,
    /// The pattern of a fill.
    pub(super) pattern: Option<[u8; 8]>,
    /// What is read, then what is written.
    pub(super) segments: Vec<Segment>,
    /// How many of them are read.
    pub(super) sources: usize,
    pub(super) len: usize,
    /// The length of each chunk but the last.
    pub(super) chunk: usize,
    /// The first [`Failure`], or 0.
    failure: AtomicU8,
    /// What all chunks took, for the chooser.
    ticks: AtomicU64,
    /// When it was published, and when its last chunk was over, if the chooser wants to know.
    pub(super) published: u64,
    ended: AtomicU64,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            token: 0,
            pick: Pick::default(),
            kernel: Kernel::memcpy(),
            pattern: None,
            segments: Vec::new(),
            sources: 0,
            len: 0,
            chunk: 0,
            failure: AtomicU8::new(0),
            ticks: AtomicU64::new(0),
            published: 0,
            ended: AtomicU64::new(0),
        }
    }
}

impl Job {
    /// Forgets how the last one went.
    pub(super) fn reset(&mut self) {
        *self.failure.get_mut() = 0;
        *self.ticks.get_mut() = 0;
        *self.ended.get_mut() = 0;
        self.published = if self.pick.is_shared_trial() { ticks() } else { 0 };
    }

    pub(super) fn failure(&mut self) -> Option<Failure> {
        Failure::from_code(*self.failure.get_mut())
    }

    pub(super) fn ticks(&mut self) -> u64 {
        *self.ticks.get_mut()
    }

    /// How long it kept its queue busy, `before` being when that was last so because of another one; and when its last chunk was over.
    pub(super) fn busy(&mut self, before: u64) -> (u64, u64) {
        let ended = *self.ended.get_mut();
        (ended.saturating_sub(before.max(self.published)), ended.max(before))
    }

    fn fail(&self, failure: Failure) {
        // The first word counts.
        let _ = self.failure.compare_exchange(0, failure as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Does one chunk. Returns how many bytes it took on.
    fn run(&self, chunk: u32) -> usize {
        if self.failure.load(Ordering::Relaxed) != 0 {
            return 0;
        }
        let skip = chunk as usize * self.chunk;
        let len = self.chunk.min(self.len - skip);
        let (src, dst) = self.segments.split_at(self.sources);
        let moves = match self.pattern {
            Some(pattern) => Moves::Fill { pattern, dst },
            None => Moves::Copy { src, dst },
        };
        let start = self.pick.is_timed().then(ticks);
        // SAFETY: the segments are those of a descriptor whose submitter promised what is needed until it is reported,
        // which it is not before this chunk is finished.
        let result = unsafe { moves.run(skip, len, self.kernel) };
        if let Some(start) = start {
            self.ticks.fetch_add(ticks().wrapping_sub(start), Ordering::Relaxed);
        }
        if self.pick.is_shared_trial() {
            self.ended.fetch_max(ticks(), Ordering::Relaxed);
        }
        if let Err(failure) = result {
            self.fail(failure);
        }
        len
    }
}

/// What a queue shares with the threads that help it.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) ring: Arc<Ring<Job>>,
    pub(super) event: Event,
    /// Chunks that were not begun are not to be.
    stopped: AtomicBool,
}

impl Lane {
    pub(super) fn new(ring: Arc<Ring<Job>>, event: Event) -> Self {
        Self { ring, event, stopped: AtomicBool::new(false) }
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Does the next chunk, if there is one: how many bytes it took on.
    pub(super) fn work(&self, helpers: &Helpers) -> Option<usize> {
        let claim = self.ring.claim()?;
        if self.ring.has_work() {
            // Each wakes the next, so that whoever submits wakes one at most.
            helpers.wake_one();
        }
        let chunk = claim.chunk();
        let len = claim.with(|job| {
            if self.stopped.load(Ordering::Relaxed) {
                job.fail(Failure::Stopped);
            }
            job.run(chunk)
        });
        self.finish(claim, helpers);
        Some(len)
    }

    fn finish(&self, claim: Claim<'_, Job>, helpers: &Helpers) {
        let finished = claim.finish();
        if finished.signal {
            self.event.signal();
        }
        if finished.job && self.ring.has_work() {
            // A fence may have opened while everybody was asleep.
            helpers.wake_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However jobs overlap, and in whatever order they end, what is counted is the time in which there was any.
    #[test]
    fn a_queue_is_busy_once_at_a_time() {
        let mut until = 0;
        let mut total = 0;
        for (published, ended, busy) in [
            (100, 110, 10),
            (105, 130, 20), // behind the first
            (106, 120, 0),  // over before the one before it
            (107, 131, 1),
            (200, 205, 5), // after a pause, which does not count
            (300, 0, 0),   // stopped before it was begun
            (300, 299, 0), // by a clock that is behind
            (301, 311, 10),
        ] {
            let mut job = Job { published, ended: AtomicU64::new(ended), ..Job::default() };
            let took;
            (took, until) = job.busy(until);
            assert_eq!(took, busy, "{published} to {ended}");
            total += took;
        }
        assert_eq!((total, until), (46, 311));
    }
}
