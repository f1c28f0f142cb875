//! [`Lane`]: what a queue shares with the threads that help it.
#![expect(unsafe_code, reason = "does the copies that were promised to be sound")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use dma_core::Segment;

use super::Kernel;
use super::chooser::{Pick, ticks, ticks_in};
use super::event::Event;
use super::pool::Helpers;
use super::ring::{Claim, Ring};
use super::transfer::{Failure, Moves};

/// An owner that polls all the time sees the end of a job so late at most. In tests that is however late it is: time decides none of them.
const NOTICE: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_nanos(200) };

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
    /// [`Lane::published`] with this one.
    pub(super) upto: u64,
    /// The first [`Failure`], or 0.
    failure: AtomicU8,
    /// What all chunks took, for the chooser.
    ticks: AtomicU64,
    /// When it was taken on, and when its last chunk was over, if the chooser wants to know.
    taken: u64,
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
            upto: 0,
            failure: AtomicU8::new(0),
            ticks: AtomicU64::new(0),
            taken: 0,
            ended: AtomicU64::new(0),
        }
    }
}

impl Job {
    /// Forgets how the last one went; this one was `taken` on then.
    pub(super) fn reset(&mut self, taken: u64) {
        *self.failure.get_mut() = 0;
        *self.ticks.get_mut() = 0;
        *self.ended.get_mut() = 0;
        self.taken = taken;
    }

    pub(super) fn failure(&mut self) -> Option<Failure> {
        Failure::from_code(*self.failure.get_mut())
    }

    pub(super) fn ticks(&mut self) -> u64 {
        *self.ticks.get_mut()
    }

    /// How long it kept its queue busy, `before` being when that was last so because of another one; and until when. Without another one behind it, that is
    /// when its end was `seen`: the owner, who could have been told at once, finds out late by the way from one core to another.
    pub(super) fn busy(&mut self, before: u64, seen: Option<u64>) -> (u64, u64) {
        let ended = *self.ended.get_mut();
        let over = seen.map_or(ended, |seen| seen.clamp(ended, ended + ticks_in(NOTICE)));
        (over.saturating_sub(before.max(self.taken)), over.max(before))
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

/// What one core has done since it was idle, or woke a thread, while threads slept: the longer, the likelier it goes on. Once this, and what is known to
/// be left, are worth waking a thread, one is woken: so whatever comes next, not much more is lost than if it had been known.
#[derive(Debug, Default)]
pub(super) struct Spell {
    /// In ticks.
    worked: u64,
    /// When it last did something.
    until: u64,
    /// All that it has done since it woke, in ticks,
    done: u64,
    /// and in chunks.
    chunks: u32,
}

/// Of chunks, every so many is timed, besides those while threads sleep.
const TIMED: u32 = 8;

impl Spell {
    /// Something is to be done: whatever there was is over if the core has been idle for so long that threads go to sleep.
    pub(super) fn begin(&mut self, helpers: &Helpers) {
        if self.worked > 0 && ticks().saturating_sub(self.until) > helpers.patience() {
            self.worked = 0;
        }
    }

    /// Whether to wake a thread now, with so many ticks of work left for whoever takes it. If so, another spell begins.
    pub(super) fn wakes(&mut self, helpers: &Helpers, left: u64) -> bool {
        let wakes = helpers.is_worth_waking(self.worked.saturating_add(left));
        if wakes {
            self.worked = 0;
        }
        wakes
    }

    /// How many ticks of work it has done since it woke, about.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    fn add(&mut self, start: u64, end: u64) {
        (self.worked, self.until) = (self.worked + end.saturating_sub(start), end);
    }
}

/// What a queue shares with the threads that help it.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) ring: Arc<Ring<Job>>,
    pub(super) event: Event,
    /// Chunks that were not begun are not to be.
    stopped: AtomicBool,
    /// Bytes of all jobs published so far, by the owner.
    published: CachePadded<AtomicU64>,
    /// What a byte takes one core, smoothed, in ticks, as bits of an `f32`.
    cost: CachePadded<AtomicU32>,
}

impl Lane {
    /// `cost`: what a byte takes one core, in ticks, until it is known.
    pub(super) fn new(ring: Arc<Ring<Job>>, event: Event, cost: f32) -> Self {
        let (stopped, published) = (AtomicBool::new(false), CachePadded::default());
        Self { ring, event, stopped, published, cost: CachePadded::new(AtomicU32::new(cost.to_bits())) }
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The owner is about to publish a job of `len` bytes: what goes into [`Job::upto`].
    pub(super) fn publish(&self, len: usize) -> u64 {
        let upto = self.published.load(Ordering::Relaxed) + len as u64;
        self.published.store(upto, Ordering::Relaxed);
        upto
    }

    /// How many ticks so many bytes take one core, about.
    pub(super) fn takes(&self, len: u64) -> u64 {
        (f32::from_bits(self.cost.load(Ordering::Relaxed)) * len as f32) as u64
    }

    /// Bytes of what nobody has begun when `chunk` of `job` is the last that somebody has.
    fn left(&self, job: &Job, chunk: u32) -> u64 {
        let rest = job.len.saturating_sub((chunk as usize + 1) * job.chunk) as u64;
        rest + self.published.load(Ordering::Relaxed).saturating_sub(job.upto)
    }

    /// Does the next chunk, if there is one: how many bytes it took on.
    pub(super) fn work(&self, helpers: &Helpers, spell: &mut Spell) -> Option<usize> {
        let claim = self.ring.claim()?;
        let chunk = claim.chunk();
        let asleep = helpers.any_asleep();
        let left = if asleep { claim.with(|job| self.left(job, chunk)) } else { 0 };
        if left > 0 && self.ring.has_work() {
            let trial = claim.with(|job| job.pick.is_shared_trial());
            // Each wakes the next, so that whoever submits wakes one at most.
            if trial || spell.wakes(helpers, self.takes(left)) {
                helpers.call_one();
            }
        }
        spell.chunks = spell.chunks.wrapping_add(1);
        let timed = asleep || spell.chunks.is_multiple_of(TIMED);
        let start = if timed { ticks() } else { 0 };
        let len = claim.with(|job| {
            if self.stopped.load(Ordering::Relaxed) {
                job.fail(Failure::Stopped);
            }
            job.run(chunk)
        });
        if timed {
            let end = ticks();
            self.learn(end.saturating_sub(start), len);
            if asleep {
                spell.add(start, end);
            }
        }
        spell.done += self.takes(len as u64);
        self.finish(claim, helpers, spell, left);
        Some(len)
    }

    /// So many bytes have taken so many ticks.
    fn learn(&self, ticks: u64, len: usize) {
        if len > 0 {
            let (old, new) = (f32::from_bits(self.cost.load(Ordering::Relaxed)), ticks as f32 / len as f32);
            // One preempted chunk must not outweigh the rest. If two learn at once, one of them does not count.
            let cost = if old > 0.0 { old + (new.min(4.0 * old) - old) / 4.0 } else { new };
            // Others read it: what is about the same need not leave their caches.
            if (cost - old).abs() > old / 16.0 {
                self.cost.store(cost.to_bits(), Ordering::Relaxed);
            }
        }
    }

    fn finish(&self, claim: Claim<'_, Job>, helpers: &Helpers, spell: &mut Spell, left: u64) {
        let finished = claim.finish();
        if finished.signal {
            self.event.signal();
        }
        if finished.job
            && left > 0
            && helpers.any_asleep()
            && self.ring.has_work()
            && spell.wakes(helpers, self.takes(left))
        {
            // A fence may have opened over which they went to sleep. Who finishes this is awake, and takes what is next, or polls, or is told to.
            helpers.call_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_wakes_once_it_is_worth_it() {
        let helpers = Helpers::asleep(1, 1000);
        let mut spell = Spell::default();
        assert!(!spell.wakes(&helpers, 999) && spell.wakes(&helpers, 1000), "by what is left");
        spell.add(5000, 5600);
        assert!(!spell.wakes(&helpers, 399) && spell.wakes(&helpers, 400), "and by what was done");
        assert!(!spell.wakes(&helpers, 999), "that was another spell");
        spell.add(7000, 6900);
        spell.add(8000, 8500);
        assert!(!spell.wakes(&helpers, 499), "a clock that is behind counts for nothing");
    }

    #[test]
    fn a_pause_ends_a_spell() {
        let helpers = Helpers::asleep(1, 1000);
        let spell = |until| Spell { worked: 600, until, ..Spell::default() };
        let mut busy = spell(ticks() + 100_000 * helpers.patience());
        busy.begin(&helpers);
        assert!(busy.wakes(&helpers, 400), "no pause");
        let mut idle = spell(ticks().saturating_sub(2 * helpers.patience()));
        idle.begin(&helpers);
        assert!(!idle.wakes(&helpers, 400));
    }

    #[test]
    fn what_is_left_is_what_nobody_has_begun() {
        let jobs = super::super::ring::Owner::new(4);
        let lane = Lane::new(Arc::clone(jobs.ring()), Event::new().unwrap(), 0.5);
        let job = |upto| Job { len: 1000, chunk: 300, upto, ..Job::default() };
        let first = job(lane.publish(1000));
        assert_eq!([0, 2, 3].map(|chunk| lane.left(&first, chunk)), [700, 100, 0]);
        let second = job(lane.publish(1000));
        assert_eq!([0, 3].map(|chunk| lane.left(&first, chunk)), [1700, 1000]);
        assert_eq!([0, 3].map(|chunk| lane.left(&second, chunk)), [700, 0]);
        assert_eq!(lane.takes(1000), 500);
    }

    #[test]
    fn what_a_byte_takes_is_learned() {
        let jobs = super::super::ring::Owner::new(1);
        let lane = Lane::new(Arc::clone(jobs.ring()), Event::new().unwrap(), 1.0);
        lane.learn(1_000_000, 100);
        assert_eq!(lane.takes(100), 175, "one that was preempted");
        lane.learn(5, 0);
        for _ in 0..50 {
            lane.learn(400, 100);
        }
        assert!((320..=400).contains(&lane.takes(100)), "{}", lane.takes(100));
    }

    /// However jobs overlap, and in whatever order they end, what is counted is the time in which there was any.
    #[test]
    fn a_queue_is_busy_once_at_a_time() {
        let mut until = 0;
        let mut total = 0;
        let notice = ticks_in(NOTICE);
        let (soon, far) = (notice / 2, 10 * notice);
        for (taken, ended, seen, busy) in [
            (100, 110, None, 10),
            (105, 130, None, 20), // behind the first
            (106, 120, None, 0),  // over before the one before it
            (107, 131, None, 1),
            (200, 205, None, 5), // after a pause, which does not count
            (300, 0, None, 0),   // stopped before it was begun
            (300, 299, None, 0), // by a clock that is behind
            (301, 311, None, 10),
            (400, 410, Some(410 + soon), 10 + soon), // the last one: the owner has seen it now
            (far, far + 10, Some(5 * far), 10 + notice), // and here had not looked
            (10 * far, 0, Some(10 * far + 1), 0),
            (10 * far + 100, 10 * far + 110, Some(10 * far + 105), 10), // by a clock that is behind
        ] {
            let mut job = Job { taken, ended: AtomicU64::new(ended), ..Job::default() };
            let took;
            (took, until) = job.busy(until, seen);
            assert_eq!(took, busy, "{taken} to {ended}");
            total += took;
        }
        assert_eq!((total, until), (76 + soon + notice, 10 * far + 110));
    }
}
