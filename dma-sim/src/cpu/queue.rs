//! [`CpuQueue`]: short operations are done when they are submitted, long ones by the pool's threads and by polling.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use dma_core::{
    CacheHint, Completion, Descriptor, EngineId, Error, ErrorKind, Listed, NativeError, Outcome,
    QueueOptions, RawQueue, RawStats, Result, Work,
};

use super::chooser::{Chooser, Pick, hot_cost, ticks};
use super::event::Event;
use super::lane::{Job, Lane, Spell};
use super::pool::Pool;
use super::ring::Owner;
use super::spare::Spares;
use super::tokens::Tokens;
use super::transfer::{Failure, LOCAL, Moves};

/// The length of the chunks of long copies: 20 us of work from memory, so that no poll takes long, and long enough for the streaming kernels.
const CHUNK: usize = 256 << 10;
/// Shorter chunks are not worth the way to another core, which has other jobs to do,
const CHUNK_MIN: usize = 64 << 10;
/// or has not: then sharing a copy saves time as long as its parts take longer than the way, less than 1 us.
const CHUNK_MIN_IDLE: usize = 16 << 10;
/// What a chunk costs at least, in bytes copied meanwhile: taking it and giving it back, some 100 ns, even if nothing is moved.
const CHUNK_COST: usize = 1 << 10;
/// While there are jobs, every so many polls one is theirs before all else: often enough for them to get on, and not so often that batches
/// of short copies, which take far less time than a chunk, are slowed down each.
const JOBS_TURN: u32 = 8;
/// What chunks are a multiple of.
const PAGE: usize = 4096;
/// The longest descriptor. Nothing is told of one before its end, however far it has got: it is to be over long before a caller takes the engine
/// for stalled, and within fewer polls, each of which may do a chunk, than whoever waits takes for a reason to sleep.
pub(super) const MAX_TRANSFER: usize = 16 << 20;

/// A queue of the [`CpuEngine`](super::CpuEngine).
#[derive(Debug)]
pub(super) struct CpuQueue {
    engine: EngineId,
    depth: usize,
    inline_limit: usize,
    hint: CacheHint,
    copies: Chooser,
    fills: Chooser,
    /// Until when jobs whose time is taken have kept the queue busy, as [`Job::busy`] tells.
    busy_until: u64,
    /// Descriptors that were done and are not reported.
    done: Tokens,
    /// Descriptors that ended otherwise, when they were submitted.
    failed: VecDeque<Completion>,
    jobs: Owner<Job>,
    /// Lists of segments for jobs to come.
    spares: Spares,
    lane: Arc<Lane>,
    pool: Arc<Pool>,
    /// What the owner has done of the jobs lately.
    spell: Spell,
    /// The length of all jobs that are not reported.
    unreported: u64,
    /// One of the jobs that no doorbell was rung for is to show how fast cores are that share it.
    trial: bool,
    /// The number of the last job with a fence: nothing starts before all jobs before it are finished.
    fence: u64,
    /// Counts polls while there are jobs.
    polls: u32,
    /// Something was submitted since the last doorbell.
    unrung: bool,
    doorbells: u64,
    stopped: bool,
    /// The owner sleeps on the event.
    armed: bool,
}

impl CpuQueue {
    pub(super) fn open(
        engine: EngineId,
        options: &QueueOptions,
        inline_limit: usize,
        hint: CacheHint,
        pool: &Arc<Pool>,
    ) -> Result<Self> {
        let jobs = Owner::new(options.depth);
        let lane = Arc::new(Lane::new(Arc::clone(jobs.ring()), Event::new()?, hot_cost()));
        pool.add(&lane)?;
        // Where nothing may be done at once, it does not matter what had better be.
        let cores = if inline_limit > 0 { pool.size() + 1 } else { 1 };
        let chooser = || Chooser::new().for_depth(options.depth).for_cores(cores);
        Ok(Self {
            engine,
            depth: options.depth,
            inline_limit,
            hint,
            copies: chooser(),
            fills: chooser(),
            busy_until: 0,
            done: Tokens::new(options.depth),
            failed: VecDeque::new(),
            jobs,
            spares: Spares::default(),
            lane,
            pool: Arc::clone(pool),
            spell: Spell::default(),
            unreported: 0,
            trial: false,
            fence: 0,
            polls: 0,
            unrung: false,
            doorbells: 0,
            stopped: false,
            armed: false,
        })
    }

    /// Whether what is submitted now has to wait for jobs before it; `fence` if it says so itself.
    #[inline]
    fn must_wait(&self, fence: bool) -> bool {
        self.jobs.outstanding() > 0
            && !(self.jobs.finished_before(self.fence) && (!fence || self.jobs.all_finished()))
    }

    /// Does or publishes what is not a short copy of local memory that may be done at once.
    ///
    /// # Safety
    ///
    /// As for [`RawQueue::submit`].
    unsafe fn take(&mut self, descriptor: &Descriptor<'_>) {
        match descriptor.work() {
            Work::Copy { src, dst } => {
                let moves = Moves::Copy { src: &[src], dst: &[dst] };
                // SAFETY: the caller's promise.
                unsafe { self.take_moves(descriptor, moves) };
            }
            Work::Listed(Listed::Copy { src, dst }) => {
                // SAFETY: as above.
                unsafe { self.take_moves(descriptor, Moves::Copy { src, dst }) };
            }
            Work::Listed(Listed::Fill { pattern, dst }) => {
                // SAFETY: as above.
                unsafe { self.take_moves(descriptor, Moves::Fill { pattern: *pattern, dst }) };
            }
        }
    }

    /// # Safety
    ///
    /// As for [`RawQueue::submit`].
    unsafe fn take_moves(&mut self, descriptor: &Descriptor<'_>, moves: Moves<'_>) {
        let (token, len) = (descriptor.token(), descriptor.len());
        let at_once = self.inline_limit > 0 && !self.must_wait(descriptor.fence());
        let chooser = match moves {
            Moves::Copy { .. } => &mut self.copies,
            Moves::Fill { .. } => &mut self.fills,
        };
        let pick = chooser.pick(len, self.hint);
        if !at_once || (len > self.inline_limit && !pick.alone) {
            let pick = pick.shared();
            let helpers = self.pool.helpers();
            let nobody = pick.is_shared_trial() && !helpers.are_there();
            let pick = if nobody { chooser.put_off(pick, !self.trial, helpers.any_asleep()) } else { pick };
            return self.publish(descriptor, moves, pick);
        }
        // SAFETY: the caller's promise.
        match chooser.run(pick, len, |kernel| unsafe { moves.run(0, len, kernel) }) {
            Ok(()) => self.done.push(token),
            Err(failure) => self.failed.push_back(completion(token, Some(failure))),
        }
    }

    /// Makes a job of it.
    fn publish(&mut self, descriptor: &Descriptor<'_>, moves: Moves<'_>, pick: Pick) {
        let (token, len) = (descriptor.token(), descriptor.len());
        let taken = if pick.is_shared_trial() { ticks() } else { 0 };
        let idle = self.jobs.all_finished();
        if idle {
            self.spell.begin(self.pool.helpers());
        }
        let fence = descriptor.fence() && !idle;
        let kernel = self.copies.kernel(pick);
        let chunk = chunk(len, self.pool.size() + 1, if idle { CHUNK_MIN_IDLE } else { CHUNK_MIN });
        let (pattern, src, dst) = match moves {
            Moves::Copy { src, dst } => (None, src, dst),
            Moves::Fill { pattern, dst } => (Some(pattern), &[][..], dst),
        };
        let mut segments = self.spares.take(src.len() + dst.len());
        segments.extend_from_slice(src);
        segments.extend_from_slice(dst);
        let upto = self.lane.publish(len);
        self.unreported += len as u64;
        self.trial |= pick.is_shared_trial();
        let number = self.jobs.publish(len.div_ceil(chunk) as u32, fence, |job| {
            (job.token, job.len, job.chunk, job.pick, job.kernel) = (token, len, chunk, pick, kernel);
            (job.segments, job.sources, job.pattern) = (segments, src.len(), pattern);
            job.upto = upto;
            job.reset(taken);
        });
        if fence {
            self.fence = number;
        }
    }

    /// Reports what was done or failed when it was submitted.
    #[inline]
    fn report(&mut self, completions: &mut [Completion]) -> usize {
        let mut n = self.done.pop_into(completions);
        while let Some(report) = completions.get_mut(n)
            && let Some(failed) = self.failed.pop_front()
        {
            *report = failed;
            n += 1;
        }
        n
    }

    /// Polls while there are jobs: without a thread that is awake, they are done here and nowhere else.
    ///
    /// Short copies come first: as long as there are any to report, no time is spent on jobs. But each [`JOBS_TURN`]th poll, or an endless
    /// stream of short copies would hold them up for ever, a chunk is done if no thread is awake for that, and jobs are reported
    /// first, since the short copies may fill `completions` every time.
    fn poll_jobs(&mut self, completions: &mut [Completion]) -> usize {
        self.polls = self.polls.wrapping_add(1);
        let turn = self.polls.is_multiple_of(JOBS_TURN);
        let mut n = if turn { self.retire(completions) } else { 0 };
        n += self.report(&mut completions[n..]);
        n += self.retire(&mut completions[n..]);
        if n == 0 || (turn && self.pool.helpers().all_asleep()) {
            self.help();
            n += self.retire(&mut completions[n..]);
        }
        n
    }

    /// Reports finished jobs.
    fn retire(&mut self, completions: &mut [Completion]) -> usize {
        let mut n = 0;
        let (copies, fills, spares) = (&mut self.copies, &mut self.fills, &mut self.spares);
        let (busy_until, unreported) = (&mut self.busy_until, &mut self.unreported);
        while let Some(report) = completions.get_mut(n)
            && let Some(completion) = self.jobs.retire(|job| {
                let failure = job.failure();
                *unreported -= job.len as u64;
                let chooser = if job.pattern.is_some() { &mut *fills } else { &mut *copies };
                if job.pick.is_shared_trial() {
                    let busy;
                    let seen = (*unreported == 0).then(ticks);
                    (busy, *busy_until) = job.busy(*busy_until, seen);
                    if failure.is_none() {
                        chooser.record_shared(job.pick, busy, job.ticks(), job.len);
                    }
                } else if failure.is_none() {
                    chooser.record(job.pick, job.ticks(), job.len);
                }
                spares.give(std::mem::take(&mut job.segments));
                completion(job.token, failure)
            })
        {
            *report = completion;
            n += 1;
        }
        n
    }

    /// Does a bounded piece of work, unless something can be reported before.
    fn help(&mut self) {
        let mut left = CHUNK;
        while !self.jobs.can_retire()
            && let Some(done) = self.lane.work(self.pool.helpers(), &mut self.spell)
        {
            left = left.saturating_sub(done.max(CHUNK_COST));
            if left == 0 {
                break;
            }
        }
    }

    /// Whether there is something to do, and nobody works but who polls: threads that sleep are not woken for what is done sooner without them.
    /// To be asked behind a fence, see [`Helpers::any_asleep`](super::pool::Helpers::any_asleep).
    fn is_left_to_owner(&self) -> bool {
        self.jobs.outstanding() > 0 && self.pool.helpers().all_asleep() && self.jobs.ring().has_work()
    }

    /// Tells whoever sleeps on the event that there is something to poll for.
    fn wake_owner(&mut self) {
        self.armed = false;
        self.jobs.disarm();
        self.lane.event.signal();
    }
}

/// The length of the chunks of a copy: all of `cores` can do as many of them, unless that makes them shorter than `least`.
fn chunk(len: usize, cores: usize, least: usize) -> usize {
    let each = len.div_ceil(CHUNK * cores);
    len.div_ceil(each * cores).next_multiple_of(PAGE).clamp(least, CHUNK)
}

fn completion(token: u64, failure: Option<Failure>) -> Completion {
    match failure {
        None => Completion::done(token),
        Some(Failure::Stopped) => Completion { token, native: 0, outcome: Outcome::Aborted },
        Some(failure) => {
            let (kind, ..) = failure.describe();
            Completion { token, native: failure as i32, outcome: Outcome::Failed(kind) }
        }
    }
}

// SAFETY: every accepted descriptor is in exactly one of `done`, `failed` and `jobs`, from which `poll` takes it, in the
// latter case when no thread has a claim on it any more. Kernels order what they wrote before what follows, and `Ring`
// passes that on to the owner. Dropping waits for claims.
unsafe impl RawQueue for CpuQueue {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let room = self.depth - self.done.len() - self.failed.len() - self.jobs.outstanding();
        let batch = &batch[..batch.len().min(room)];
        for descriptor in batch {
            match descriptor.work() {
                Work::Copy { src, dst }
                    if src.key == LOCAL
                        && dst.key == LOCAL
                        && src.len <= self.inline_limit
                        && !self.must_wait(descriptor.fence()) =>
                {
                    // SAFETY: the caller promises access to both, and that they do not overlap.
                    unsafe { self.copies.copy(dst.addr.as_ptr(), src.addr.as_ptr(), src.len, self.hint) };
                    self.done.push(descriptor.token());
                }
                // SAFETY: the caller's promise.
                _ => unsafe { self.take(descriptor) },
            }
        }
        self.unrung |= !batch.is_empty();
        if self.armed && !(self.done.is_empty() && self.failed.is_empty()) {
            self.wake_owner();
        }
        Ok(batch.len())
    }

    fn flush(&mut self) {
        if !std::mem::take(&mut self.unrung) {
            return;
        }
        self.doorbells += 1;
        let trial = std::mem::take(&mut self.trial);
        if self.jobs.outstanding() > 0 {
            let (helpers, spell) = (self.pool.helpers(), &mut self.spell);
            // At most: some of it may be done already.
            let left = self.lane.takes(self.unreported);
            let wake = |spell: &mut Spell| trial || spell.wakes(helpers, left) || helpers.explores();
            if self.jobs.needs_waking(|| helpers.any_asleep()) && wake(spell) {
                helpers.call_one();
            } else if self.armed && self.is_left_to_owner() {
                self.wake_owner();
            }
        }
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        if self.jobs.outstanding() > 0 { self.poll_jobs(completions) } else { self.report(completions) }
    }

    fn explain(&self, native: i32) -> NativeError {
        let failure = u8::try_from(native).ok().and_then(Failure::from_code);
        let (name, description) = failure.map_or(("", ""), |failure| {
            let (_, name, description) = failure.describe();
            (name, description)
        });
        NativeError { code: native.into(), name: name.into(), description: description.into() }
    }

    fn stop(&mut self) {
        self.stopped = true;
        self.lane.stop();
        if self.armed && self.jobs.outstanding() > 0 {
            // What nobody began is aborted by the next poll.
            self.wake_owner();
        }
    }

    fn stats(&self) -> RawStats {
        RawStats::new(self.doorbells, 0)
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.lane.event.as_fd())
    }

    fn arm(&mut self) -> Result<bool> {
        if !self.done.is_empty() || !self.failed.is_empty() || !self.jobs.arm() {
            return Ok(false);
        }
        self.armed = true;
        if self.is_left_to_owner() {
            // Let the caller's event loop have a turn between chunks.
            self.wake_owner();
        }
        Ok(true)
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.jobs.disarm();
        self.lane.event.clear();
    }
}

impl Drop for CpuQueue {
    fn drop(&mut self) {
        // Nothing more is begun; what threads have begun is over within a chunk.
        self.lane.stop();
        while self.jobs.outstanding() > 0 {
            if self.jobs.retire(|_| ()).is_none()
                && self.lane.work(self.pool.helpers(), &mut self.spell).is_none()
            {
                std::thread::yield_now();
            }
        }
        self.pool.remove(&self.lane);
    }
}
