//! [`JobQueue`]: the state that a queue shares with helper threads.
#![expect(unsafe_code, reason = "executes copies that their submitters promised to be valid")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use dma_core::Segment;

use super::Kernel;
use super::clock::{ticks, ticks_in};
use super::copy_tuner::Pick;
use super::event::Event;
use super::execute::{Failure, Work, WorkKind};
use super::helpers::Helpers;
use super::ring::{Claim, JobRing};

/// Maximum time until an owner that polls continuously notices a job's end. The time is long in tests,
/// because time must not decide their outcome.
const NOTICE: Duration = if cfg!(test) { Duration::from_secs(60) } else { Duration::from_nanos(200) };

/// A descriptor that is copied in chunks.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) token: u64,
    pub(super) pick: Pick,
    pub(super) kernel: Kernel,
    pub(super) kind: WorkKind,
    /// The sources, followed by the destinations.
    pub(super) segments: Vec<Segment>,
    /// Number of sources.
    pub(super) sources: usize,
    pub(super) len: usize,
    /// The length of each chunk except the last.
    pub(super) chunk: usize,
    /// The value of [`JobQueue::published`] after this job.
    pub(super) upto: u64,
    /// The first [`Failure`], or 0.
    failure: AtomicU8,
    /// The merged results of chunks.
    result: AtomicU64,
    /// Sum of the ticks of all chunks, for the tuner.
    ticks: AtomicU64,
    /// Time of submission (`taken`) and of the last chunk's end (`ended`) in ticks, for trials.
    taken: u64,
    ended: AtomicU64,
}

impl Job {
    /// Prepares the entry for a new job, whose `kind` is already set. `taken` is the time of its submission
    /// in ticks.
    pub(super) fn reset(&mut self, taken: u64) {
        *self.failure.get_mut() = 0;
        *self.result.get_mut() = self.kind.initial();
        *self.ticks.get_mut() = 0;
        *self.ended.get_mut() = 0;
        self.taken = taken;
    }

    pub(super) fn failure(&mut self) -> Option<Failure> {
        Failure::from_code(*self.failure.get_mut())
    }

    pub(super) fn result(&mut self) -> u64 {
        *self.result.get_mut()
    }

    pub(super) fn ticks(&mut self) -> u64 {
        *self.ticks.get_mut()
    }

    /// Returns the time that this job added to the queue's busy time, and the new end of the busy time.
    /// `before` is the end so far. If no other job follows, the new end is `seen`, the time at which the
    /// owner noticed the job's end, but at most [`NOTICE`] after the real end.
    pub(super) fn busy(&mut self, before: u64, seen: Option<u64>) -> (u64, u64) {
        let ended = *self.ended.get_mut();
        let over = seen.map_or(ended, |seen| seen.clamp(ended, ended + ticks_in(NOTICE)));
        (over.saturating_sub(before.max(self.taken)), over.max(before))
    }

    fn fail(&self, failure: Failure) {
        // Only the first failure is stored.
        let _ = self.failure.compare_exchange(0, failure as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Copies one chunk. Returns its length in bytes.
    fn run(&self, chunk: u32) -> usize {
        if self.failure.load(Ordering::Relaxed) != 0 {
            return 0;
        }
        let skip = chunk as usize * self.chunk;
        let len = self.chunk.min(self.len - skip);
        let (src, dst) = self.segments.split_at(self.sources);
        let work = Work { kind: self.kind, src, dst };
        let start = self.pick.is_timed().then(ticks);
        // SAFETY: the segments belong to a descriptor, whose submitter promised access until it is reported.
        // The descriptor is reported only after this chunk has finished.
        let result = unsafe { work.run(skip, len, self.kernel) };
        if let Some(start) = start {
            self.ticks.fetch_add(ticks().wrapping_sub(start), Ordering::Relaxed);
        }
        if self.pick.is_shared_trial() {
            self.ended.fetch_max(ticks(), Ordering::Relaxed);
        }
        match result {
            Ok(part) => self.kind.merge(&self.result, part),
            Err(failure) => self.fail(failure),
        }
        len
    }
}

/// Work of one core, while helpers sleep, since it was idle or woke a helper. The longer a core has been
/// busy, the more likely it stays busy. A helper is woken once this work and the known remainder justify the
/// wake-up.
#[derive(Debug, Default)]
pub(super) struct BusyPeriod {
    /// Work of this period, in ticks.
    worked: u64,
    /// End of the last work.
    until: u64,
    /// Work since the thread woke, in ticks.
    done: u64,
    /// Number of chunks since the thread woke.
    chunks: u32,
}

/// One in `TIMED` chunks is timed. While helpers sleep, all chunks are timed.
const TIMED: u32 = 8;

impl BusyPeriod {
    /// Ends the busy period if the core was idle for longer than helpers stay awake.
    pub(super) fn begin(&mut self, helpers: &Helpers) {
        if self.worked > 0 && ticks().saturating_sub(self.until) > helpers.idle_limit() {
            self.worked = 0;
        }
    }

    /// Returns true if `left` ticks of remaining work justify a wake-up now. Then a new busy period begins.
    pub(super) fn wakes(&mut self, helpers: &Helpers, left: u64) -> bool {
        let wakes = helpers.is_worth_waking(self.worked.saturating_add(left));
        if wakes {
            self.worked = 0;
        }
        wakes
    }

    /// Returns the approximate work since the thread woke, in ticks.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    fn add(&mut self, start: u64, end: u64) {
        (self.worked, self.until) = (self.worked + end.saturating_sub(start), end);
    }
}

/// State that a queue shares with its helpers.
#[derive(Debug)]
pub(super) struct JobQueue {
    pub(super) ring: Arc<JobRing<Job>>,
    pub(super) event: Event,
    /// The index in the pool's list of queues, which the pool changes under the list's lock.
    pub(super) index: AtomicUsize,
    /// True if no further chunk may be started.
    stopped: AtomicBool,
    /// Total length of all jobs that the owner has published so far.
    published: CachePadded<AtomicU64>,
    /// Smoothed ticks per byte on one core, as bits of an `f32`.
    cost: CachePadded<AtomicU32>,
}

impl JobQueue {
    /// Makes the state. `cost` is the initial estimate of ticks per byte on one core.
    pub(super) fn new(ring: Arc<JobRing<Job>>, event: Event, cost: f32) -> Self {
        let (stopped, published) = (AtomicBool::new(false), CachePadded::default());
        Self {
            ring,
            event,
            index: AtomicUsize::new(0),
            stopped,
            published,
            cost: CachePadded::new(AtomicU32::new(cost.to_bits())),
        }
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Announces a job of `len` bytes. Returns the value for its [`Job::upto`].
    pub(super) fn publish(&self, len: usize) -> u64 {
        let upto = self.published.load(Ordering::Relaxed) + len as u64;
        self.published.store(upto, Ordering::Relaxed);
        upto
    }

    /// Returns the approximate ticks that one core takes for `len` bytes.
    pub(super) fn estimated_ticks(&self, len: u64) -> u64 {
        (f32::from_bits(self.cost.load(Ordering::Relaxed)) * len as f32) as u64
    }

    /// Returns the number of bytes that are not started. The last started chunk is `chunk` of `job`.
    fn left(&self, job: &Job, chunk: u32) -> u64 {
        let rest = job.len.saturating_sub((chunk as usize + 1) * job.chunk) as u64;
        rest + self.published.load(Ordering::Relaxed).saturating_sub(job.upto)
    }

    /// Copies the next chunk, if there is one. Returns its length in bytes.
    pub(super) fn work(&self, helpers: &Helpers, busy_period: &mut BusyPeriod) -> Option<usize> {
        let claim = self.ring.claim()?;
        let chunk = claim.chunk();
        let asleep = helpers.any_asleep();
        let left = if asleep { claim.with(|job| self.left(job, chunk)) } else { 0 };
        if left > 0 && self.ring.has_work() {
            let trial = claim.with(|job| job.pick.is_shared_trial());
            // Each helper wakes the next one, so that a submitter wakes at most one helper.
            if trial || busy_period.wakes(helpers, self.estimated_ticks(left)) {
                helpers.call_one();
            }
        }
        busy_period.chunks = busy_period.chunks.wrapping_add(1);
        let timed = asleep || busy_period.chunks.is_multiple_of(TIMED);
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
                busy_period.add(start, end);
            }
        }
        busy_period.done += self.estimated_ticks(len as u64);
        self.finish(claim, helpers, busy_period, left);
        Some(len)
    }

    /// Records that `len` bytes took `ticks`.
    fn learn(&self, ticks: u64, len: usize) {
        if len > 0 {
            let (old, new) = (f32::from_bits(self.cost.load(Ordering::Relaxed)), ticks as f32 / len as f32);
            // One preempted chunk must not outweigh the rest. A lost concurrent update does no harm.
            let cost = if old > 0.0 { old + (new.min(4.0 * old) - old) / 4.0 } else { new };
            // Small changes are not stored, because they would only invalidate the cache line of other cores.
            if (cost - old).abs() > old / 16.0 {
                self.cost.store(cost.to_bits(), Ordering::Relaxed);
            }
        }
    }

    fn finish(&self, claim: Claim<'_, Job>, helpers: &Helpers, busy_period: &mut BusyPeriod, left: u64) {
        let finished = claim.finish();
        if finished.signal {
            self.event.signal();
        }
        if finished.job
            && left > 0
            && helpers.any_asleep()
            && self.ring.has_work()
            && busy_period.wakes(helpers, self.estimated_ticks(left))
        {
            // The end of this job may have opened a fence while helpers slept. A helper is woken for the
            // chunks after the next one, which this thread takes itself.
            helpers.call_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_period_wakes_once_it_is_worth_it() {
        let helpers = Helpers::asleep(1, 1000);
        let mut busy_period = BusyPeriod::default();
        assert!(
            !busy_period.wakes(&helpers, 999) && busy_period.wakes(&helpers, 1000),
            "the remaining work justifies the wake-up"
        );
        busy_period.add(5000, 5600);
        assert!(
            !busy_period.wakes(&helpers, 399) && busy_period.wakes(&helpers, 400),
            "earlier and remaining work together justify the wake-up"
        );
        assert!(!busy_period.wakes(&helpers, 999), "the wake-up has begun a new busy period");
        busy_period.add(7000, 6900);
        busy_period.add(8000, 8500);
        assert!(!busy_period.wakes(&helpers, 499), "work with a negative duration does not count");
    }

    #[test]
    fn a_pause_ends_a_busy_period() {
        let helpers = Helpers::asleep(1, 1000);
        let busy_period = |until| BusyPeriod { worked: 600, until, ..BusyPeriod::default() };
        let mut busy = busy_period(ticks() + 100_000 * helpers.idle_limit());
        busy.begin(&helpers);
        assert!(busy.wakes(&helpers, 400), "no pause");
        let mut idle = busy_period(ticks().saturating_sub(2 * helpers.idle_limit()));
        idle.begin(&helpers);
        assert!(!idle.wakes(&helpers, 400));
    }

    #[test]
    fn the_rest_is_the_part_not_begun() {
        let jobs = super::super::ring::Owner::new(4);
        let job_queue = JobQueue::new(Arc::clone(jobs.ring()), Event::new(), 0.5);
        let job = |upto| Job { len: 1000, chunk: 300, upto, ..Job::default() };
        let first = job(job_queue.publish(1000));
        assert_eq!([0, 2, 3].map(|chunk| job_queue.left(&first, chunk)), [700, 100, 0]);
        let second = job(job_queue.publish(1000));
        assert_eq!([0, 3].map(|chunk| job_queue.left(&first, chunk)), [1700, 1000]);
        assert_eq!([0, 3].map(|chunk| job_queue.left(&second, chunk)), [700, 0]);
        assert_eq!(job_queue.estimated_ticks(1000), 500);
    }

    #[test]
    fn the_time_per_byte_is_learned() {
        let jobs = super::super::ring::Owner::new(1);
        let job_queue = JobQueue::new(Arc::clone(jobs.ring()), Event::new(), 1.0);
        job_queue.learn(1_000_000, 100);
        assert_eq!(job_queue.estimated_ticks(100), 175, "a preempted chunk has limited weight");
        job_queue.learn(5, 0);
        for _ in 0..50 {
            job_queue.learn(400, 100);
        }
        assert!((320..=400).contains(&job_queue.estimated_ticks(100)), "{}", job_queue.estimated_ticks(100));
    }

    /// Time during which several jobs run counts once, whatever the order of their ends.
    #[test]
    fn a_queue_is_busy_once_at_a_time() {
        let mut until = 0;
        let mut total = 0;
        let notice = ticks_in(NOTICE);
        let (soon, far) = (notice / 2, 10 * notice);
        for (taken, ended, seen, busy) in [
            (100, 110, None, 10),
            (105, 130, None, 20), // while the first job ran
            (106, 120, None, 0),  // ended before an earlier job
            (107, 131, None, 1),
            (200, 205, None, 5), // after a pause, which does not count
            (300, 0, None, 0),   // stopped before it began
            (300, 299, None, 0), // by a clock that is late
            (301, 311, None, 10),
            (400, 410, Some(410 + soon), 10 + soon), // the last job, whose end the owner notices soon
            (far, far + 10, Some(5 * far), 10 + notice), // the last job, whose end the owner notices late
            (10 * far, 0, Some(10 * far + 1), 0),
            (10 * far + 100, 10 * far + 110, Some(10 * far + 105), 10), // by a clock that is late
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
