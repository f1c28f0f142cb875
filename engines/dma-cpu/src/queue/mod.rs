//! [`CpuQueue`]: executes short operations during submission. Helper threads and polls execute long ones.
#![expect(unsafe_code, reason = "implements `RawQueue`")]

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use dma_core::{
    CacheHint, Completion, Descriptor, EngineId, Error, ErrorKind, InlineCopy, InlineExecutor, NativeError,
    Operation, Outcome, QueueEvents, QueueOptions, QueueStats, RawQueue, Result,
};

use super::clock::ticks;
use super::copy_tuner::{CopyTuner, Pick, STREAM_MIN};
use super::event::Event;
use super::execute::{Failure, Work, WorkKind, is_local};
use super::inline::ShortOperations;
use super::job_queue::{BusyPeriod, Job, JobQueue};
use super::kernel::hot_cost;
use super::long_copy::LongCopies;
use super::pool::Pool;
use super::ring::Owner;
use super::spare::Spares;
use super::tokens::Tokens;

/// Chunk length of long copies: 20 us of work from memory. With this length, polls are short, and chunks are
/// long enough for the streaming kernels.
const CHUNK: usize = 256 << 10;
/// Minimum chunk length while other jobs are waiting.
const CHUNK_MIN: usize = 64 << 10;
/// Minimum chunk length while other cores are idle. Copying such a chunk takes longer than the communication
/// between cores, which takes less than 1 us.
const CHUNK_MIN_IDLE: usize = 16 << 10;
/// Minimum cost of a chunk, as a number of bytes: claiming and finishing it takes about 100 ns, even if
/// nothing is moved.
const CHUNK_COST: usize = 1 << 10;
/// Every `JOBS_TURN`th poll serves jobs before short copies. So jobs make progress, but most batches of short
/// copies, which take far less time than a chunk, are not delayed.
const JOBS_TURN: u32 = 8;
/// Chunk lengths are multiples of this.
const PAGE: usize = 4096;
/// Number of consecutive copies that are executed together, if each has [`STREAM_MIN`] bytes or more.
const TOGETHER: std::ops::RangeInclusive<usize> = 8..=32;

/// A queue of the [`CpuEngine`](super::CpuEngine).
#[derive(Debug)]
pub(super) struct CpuQueue {
    engine: EngineId,
    depth: usize,
    inline_limit: usize,
    hint: CacheHint,
    copies: Box<CopyTuner>,
    fills: Box<CopyTuner>,
    /// The tuner of [`copy_together`](CpuQueue::copy_together), by total length.
    batches: Box<CopyTuner>,
    /// End of the queue's busy time in trials, as [`Job::busy`] returned it.
    busy_until: u64,
    /// Descriptors that are done without a result and have not been reported.
    done: Tokens,
    /// Descriptors that ended during submission with a result or a failure.
    ended: VecDeque<Completion>,
    jobs: Owner<Job>,
    /// Reused lists of segments for jobs.
    spares: Spares,
    job_queue: Arc<JobQueue>,
    pool: Arc<Pool>,
    /// Recent work of the owner on jobs.
    busy_period: BusyPeriod,
    /// Total length of unreported jobs.
    unreported: u64,
    /// True if a job since the last doorbell belongs to a trial.
    trial: bool,
    /// Number of the last fenced job. While jobs before this one are unfinished, new operations wait.
    fence: u64,
    /// Counts polls while there are jobs.
    polls: u32,
    /// True if something was submitted since the last doorbell.
    doorbell_pending: bool,
    doorbells: u64,
    stopped: bool,
    /// True if the owner sleeps on the event.
    armed: bool,
}

/// Makes a tuner for a queue. A tuner has 3 KB, and the stack of a thread that opens a queue may be small.
#[inline(never)]
fn new_tuner(depth: usize, cores: usize) -> Box<CopyTuner> {
    Box::new(CopyTuner::new().for_depth(depth).for_cores(cores))
}

impl CpuQueue {
    pub(super) fn open(
        engine: EngineId,
        options: &QueueOptions,
        inline_limit: usize,
        hint: CacheHint,
        pool: &Arc<Pool>,
    ) -> Result<Self> {
        // The ring's entries are allocated with the first job.
        dma_process::check_headroom(options.depth.next_power_of_two().saturating_mul(size_of::<u64>()))?;
        let jobs = Owner::new(options.depth);
        let job_queue = Arc::new(JobQueue::new(Arc::clone(jobs.ring()), Event::new(), hot_cost()));
        pool.add(&job_queue)?;
        // Trials are useless if no operation may be executed during submission.
        let cores = if inline_limit > 0 { pool.size() + 1 } else { 1 };
        Ok(Self {
            engine,
            depth: options.depth,
            inline_limit,
            hint,
            copies: new_tuner(options.depth, cores),
            fills: new_tuner(options.depth, cores),
            batches: new_tuner(1, 1),
            busy_until: 0,
            done: Tokens::new(options.depth),
            // The first results need no memory.
            ended: VecDeque::with_capacity(4),
            jobs,
            spares: Spares::default(),
            job_queue,
            pool: Arc::clone(pool),
            busy_period: BusyPeriod::default(),
            unreported: 0,
            trial: false,
            fence: 0,
            polls: 0,
            doorbell_pending: false,
            doorbells: 0,
            stopped: false,
            armed: false,
        })
    }

    /// Makes the executor of copies of borrowed bytes, which opens a queue of its own for them.
    pub(super) fn long_copies(
        engine: EngineId,
        inline_limit: usize,
        hint: CacheHint,
        pool: Arc<Pool>,
    ) -> LongCopies {
        LongCopies::new(Box::new(move || {
            let options = QueueOptions::new().with_depth(1);
            Ok(Box::new(Self::open(engine, &options, inline_limit, hint, &pool)?))
        }))
    }

    /// Returns true if a submission must wait for earlier jobs. `fence`: the submission has a fence.
    #[inline]
    fn must_wait(&self, fence: bool) -> bool {
        self.jobs.outstanding() > 0
            && !(self.jobs.finished_before(self.fence) && (!fence || self.jobs.all_finished()))
    }

    /// Executes the first descriptors together, if they are copies of local memory within the inline limit
    /// and long enough to profit from it. Returns the number of executed descriptors, which is in
    /// [`TOGETHER`].
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    #[inline]
    unsafe fn copy_together(&mut self, batch: &[Descriptor<'_>]) -> Option<usize> {
        let is_candidate = batch.len() >= *TOGETHER.start() && batch[0].len() >= STREAM_MIN;
        if !is_candidate || self.jobs.outstanding() > 0 {
            return None;
        }
        // SAFETY: the caller meets the requirements of `RawQueue::submit` for the batch.
        unsafe { self.copy_candidates(batch) }
    }

    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    #[inline(never)]
    unsafe fn copy_candidates(&mut self, batch: &[Descriptor<'_>]) -> Option<usize> {
        let mut copies = [InlineCopy::default(); *TOGETHER.end()];
        let mut count = 0;
        for (copy, descriptor) in copies.iter_mut().zip(batch) {
            let Operation::Copy { src, dst } = descriptor.operation() else { break };
            let fits = (STREAM_MIN..=self.inline_limit).contains(&src.len);
            if !(fits && is_local(src.key) && is_local(dst.key)) || descriptor.fence() {
                break;
            }
            *copy = InlineCopy { src: src.addr, dst: dst.addr, len: src.len };
            count += 1;
        }
        if !TOGETHER.contains(&count) {
            return None;
        }
        // SAFETY: the caller ensures access to all ranges, and that those of one copy do not overlap. No copy
        // waits for another, so their order does not matter.
        unsafe { self.batches.copy_all(&copies[..count], self.hint) };
        batch[..count].iter().for_each(|descriptor| self.done.push(descriptor.token()));
        Some(count)
    }

    /// Executes or publishes an operation other than a short copy of local memory. Returns false without
    /// memory for it, if earlier operations have not been reported: they will free some.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn take(&mut self, descriptor: &Descriptor<'_>) -> bool {
        // The list has memory for some results at first, so it is not empty if there is no memory.
        if self.ended.try_reserve(1).is_err() {
            return false;
        }
        let (kind, src, dst) = match descriptor.operation() {
            Operation::Copy { src, dst } => (WorkKind::Copy, &[src][..], &[dst][..]),
            Operation::CopyLists { src, dst } => (WorkKind::Copy, src, dst),
            Operation::Fill { pattern, dst } => (WorkKind::Fill { pattern }, &[][..], dst),
            Operation::CopyToBoth { src, dst } => (WorkKind::CopyToBoth, &[src][..], &dst[..]),
            Operation::Compare { a, b } => (WorkKind::Compare, &[a][..], &[b][..]),
            Operation::Crc32c { src, seed } => (WorkKind::Crc32c { seed }, &[src][..], &[][..]),
            Operation::CopyCrc32c { src, dst, seed } => {
                (WorkKind::CopyCrc32c { seed }, &[src][..], &[dst][..])
            }
            // The engine does not declare this capability.
            _ => {
                let outcome = Outcome::Failed(ErrorKind::Unsupported);
                self.ended.push_back(Completion::ended(descriptor.token(), outcome, 0));
                return true;
            }
        };
        // SAFETY: the caller meets the requirements of `RawQueue::submit` for this descriptor.
        unsafe { self.take_work(descriptor, Work { kind, src, dst }) }
    }

    /// Does the work of [`take`](Self::take) for an operation of a known type.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn take_work(&mut self, descriptor: &Descriptor<'_>, work: Work<'_>) -> bool {
        let (token, len) = (descriptor.token(), descriptor.len());
        let must_wait = self.must_wait(descriptor.fence());
        let at_once = self.inline_limit > 0 && !must_wait;
        // The limit is higher for results, because a comparison or a CRC of 64 KiB takes only 1.5 to 4 us, of
        // which a job would cost 0.2 us.
        let inline_limit = if work.kind.has_result() { 2 * self.inline_limit } else { self.inline_limit };
        let tuner = match work.kind {
            WorkKind::Fill { .. } => &mut self.fills,
            _ => &mut self.copies,
        };
        let pick = match work.kind {
            WorkKind::Copy | WorkKind::Fill { .. } => tuner.pick(len, self.hint),
            // These operations are not timed, because their times differ from those of plain copies.
            _ => tuner.untimed(len, self.hint),
        };
        // If the queue has no memory for jobs, it has no earlier job, so the operation is executed at once.
        // An operation without memory for its list is executed at once, too, unless it must wait for earlier
        // ones.
        let mut is_job = (!at_once || (len > inline_limit && !pick.alone)) && self.jobs.prepare();
        if is_job && !self.spares.prepare(work.src.len() + work.dst.len()) {
            if must_wait {
                return false;
            }
            is_job = false;
        }
        if is_job {
            let pick = pick.shared();
            let helpers = self.pool.helpers();
            let no_helper = pick.is_shared_trial() && !helpers.any_awake();
            let pick =
                if no_helper { tuner.postpone_trial(pick, !self.trial, helpers.any_asleep()) } else { pick };
            self.publish(descriptor, work, pick);
            return true;
        }
        // SAFETY: the caller meets the requirements of `RawQueue::submit` for this descriptor.
        match tuner.run(pick, len, |kernel| unsafe { work.run(0, len, kernel) }) {
            Ok(result) if work.kind.has_result() => {
                self.ended.push_back(Completion::done(token).with_result(result));
            }
            Ok(_) => self.done.push(token),
            Err(failure) => self.ended.push_back(completion(token, Some(failure))),
        }
        true
    }

    /// Publishes the operation as a job.
    fn publish(&mut self, descriptor: &Descriptor<'_>, work: Work<'_>, pick: Pick) {
        let (token, len) = (descriptor.token(), descriptor.len());
        let taken = if pick.is_shared_trial() { ticks() } else { 0 };
        let idle = self.jobs.all_finished();
        if idle {
            self.busy_period.begin(self.pool.helpers());
        }
        let fence = descriptor.fence() && !idle;
        let kernel = self.copies.kernel(pick);
        let chunk = chunk(len, self.pool.size() + 1, if idle { CHUNK_MIN_IDLE } else { CHUNK_MIN });
        let Work { kind, src, dst } = work;
        let mut segments = self.spares.take(src.len() + dst.len());
        segments.extend_from_slice(src);
        segments.extend_from_slice(dst);
        let upto = self.job_queue.publish(len);
        self.unreported += len as u64;
        self.trial |= pick.is_shared_trial();
        let number = self.jobs.publish(len.div_ceil(chunk) as u32, fence, |job| {
            (job.token, job.len, job.chunk, job.pick, job.kernel) = (token, len, chunk, pick, kernel);
            (job.segments, job.sources, job.kind) = (segments, src.len(), kind);
            job.upto = upto;
            job.reset(taken);
        });
        if fence {
            self.fence = number;
        }
    }

    /// Ends a submission that has accepted this number of descriptors. Returns the number.
    #[inline]
    fn accepted(&mut self, descriptors: usize) -> usize {
        self.doorbell_pending |= descriptors > 0;
        if self.armed && !(self.done.is_empty() && self.ended.is_empty()) {
            self.wake_owner();
        }
        descriptors
    }

    /// Reports operations that ended during submission.
    #[inline]
    fn report(&mut self, completions: &mut [Completion]) -> usize {
        let mut n = self.done.pop_into(completions);
        while let Some(report) = completions.get_mut(n)
            && let Some(ended) = self.ended.pop_front()
        {
            *report = ended;
            n += 1;
        }
        n
    }

    /// Polls while jobs exist. If all helpers sleep, only polls execute jobs.
    ///
    /// Reports short copies first, but each [`JOBS_TURN`]th poll serves jobs first, and copies a chunk if all
    /// helpers sleep. So an endless stream of short copies, which may fill `completions` every time, cannot
    /// starve jobs.
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
                let tuner =
                    if matches!(job.kind, WorkKind::Fill { .. }) { &mut *fills } else { &mut *copies };
                if job.pick.is_shared_trial() {
                    let busy;
                    let seen = (*unreported == 0).then(ticks);
                    (busy, *busy_until) = job.busy(*busy_until, seen);
                    if failure.is_none() {
                        tuner.record_shared(job.pick, busy, job.ticks(), job.len);
                    }
                } else if failure.is_none() {
                    tuner.record(job.pick, job.ticks(), job.len);
                }
                spares.give(std::mem::take(&mut job.segments));
                let result = if job.kind.has_result() && failure.is_none() { job.result() } else { 0 };
                completion(job.token, failure).with_result(result)
            })
        {
            *report = completion;
            n += 1;
        }
        n
    }

    /// Executes a bounded amount of work, or less if something can be reported.
    fn help(&mut self) {
        let mut left = CHUNK;
        while !self.jobs.can_retire()
            && let Some(done) = self.job_queue.work(self.pool.helpers(), &mut self.busy_period)
        {
            left = left.saturating_sub(done.max(CHUNK_COST));
            if left == 0 {
                break;
            }
        }
    }

    /// Returns true if there is work and all helpers sleep. The caller must have made a memory fence before:
    /// see [`Helpers::any_asleep`](super::helpers::Helpers::any_asleep).
    fn is_left_to_owner(&self) -> bool {
        self.jobs.outstanding() > 0 && self.pool.helpers().all_asleep() && self.jobs.ring().has_work()
    }

    /// Wakes the owner, which sleeps on the event, so that it polls.
    fn wake_owner(&mut self) {
        self.armed = false;
        self.jobs.disarm();
        self.job_queue.event.signal();
    }
}

/// Returns the chunk length of a copy. All `cores` get the same number of chunks, unless that makes the
/// chunks shorter than `least`.
fn chunk(len: usize, cores: usize, least: usize) -> usize {
    let each = len.div_ceil(CHUNK * cores);
    len.div_ceil(each * cores).next_multiple_of(PAGE).clamp(least, CHUNK)
}

fn completion(token: u64, failure: Option<Failure>) -> Completion {
    match failure {
        None => Completion::done(token),
        Some(Failure::Stopped) => Completion::ended(token, Outcome::Aborted, 0),
        Some(failure) => {
            let (kind, ..) = failure.describe();
            Completion::ended(token, Outcome::Failed(kind), failure as i32)
        }
    }
}

// SAFETY: every accepted descriptor is in exactly one of `done`, `ended` and `jobs`, and `poll` removes it
// when it reports it. A job is removed only when no thread has a claim on it. Kernels order their writes
// before later stores, and the ring makes them visible to the owner. Dropping waits for claims.
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
        let room = self.depth - self.done.len() - self.ended.len() - self.jobs.outstanding();
        let batch = &batch[..batch.len().min(room)];
        let mut left = batch;
        // SAFETY: the caller meets the requirements of this function for the batch.
        while let Some(taken) = unsafe { self.copy_together(left) } {
            left = &left[taken..];
        }
        for descriptor in left {
            match descriptor.operation() {
                Operation::Copy { src, dst }
                    if is_local(src.key)
                        && is_local(dst.key)
                        && src.len <= self.inline_limit
                        && !self.must_wait(descriptor.fence()) =>
                {
                    // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
                    unsafe { self.copies.copy(dst.addr.as_ptr(), src.addr.as_ptr(), src.len, self.hint) };
                    self.done.push(descriptor.token());
                }
                _ => {
                    // SAFETY: the caller meets the requirements of `RawQueue::submit` for this descriptor.
                    if !unsafe { self.take(descriptor) } {
                        let accepted = batch.iter().take_while(|&taken| !std::ptr::eq(taken, descriptor));
                        let accepted = accepted.count();
                        return Ok(self.accepted(accepted));
                    }
                }
            }
        }
        Ok(self.accepted(batch.len()))
    }

    fn flush(&mut self) {
        if !std::mem::take(&mut self.doorbell_pending) {
            return;
        }
        self.doorbells += 1;
        let trial = std::mem::take(&mut self.trial);
        if self.jobs.outstanding() > 0 {
            let (helpers, busy_period) = (self.pool.helpers(), &mut self.busy_period);
            // The number is an upper bound, because some descriptors may already be done.
            let left = self.job_queue.estimated_ticks(self.unreported);
            let wake = |busy_period: &mut BusyPeriod| {
                trial || busy_period.wakes(helpers, left) || helpers.explores()
            };
            if self.jobs.needs_waking(|| helpers.any_asleep()) && wake(busy_period) {
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
        NativeError { code: native, name: name.into(), description: description.into() }
    }

    fn stop(&mut self) {
        self.stopped = true;
        self.job_queue.stop();
        if self.armed && self.jobs.outstanding() > 0 {
            // The next poll aborts chunks that were not started.
            self.wake_owner();
        }
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, 0)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        Some(self)
    }

    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        let long = Self::long_copies(self.engine, self.inline_limit, self.hint, Arc::clone(&self.pool));
        let executor = ShortOperations::new(self.inline_limit, self.pool.size() > 0, self.hint, long)?;
        Some(Arc::new(executor))
    }
}

impl QueueEvents for CpuQueue {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.job_queue.event.fd()
    }

    fn arm(&mut self) -> Result<bool> {
        self.job_queue.event.fd()?;
        if !self.done.is_empty() || !self.ended.is_empty() || !self.jobs.arm() {
            return Ok(false);
        }
        self.armed = true;
        if self.is_left_to_owner() {
            // Returning here lets the caller's event loop run between chunks.
            self.wake_owner();
        }
        Ok(true)
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.jobs.disarm();
        self.job_queue.event.clear();
    }
}

impl Drop for CpuQueue {
    fn drop(&mut self) {
        // No further chunk starts, and running chunks end soon.
        self.job_queue.stop();
        while self.jobs.outstanding() > 0 {
            if self.jobs.retire(|_| ()).is_none()
                && self.job_queue.work(self.pool.helpers(), &mut self.busy_period).is_none()
            {
                std::thread::yield_now();
            }
        }
        self.pool.remove(&self.job_queue);
    }
}
