//! [`DeviceQueue`]: the queue of the device, its copies in flight, and its health.
#![expect(unsafe_code, reason = "submits to the device")]

mod events;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use dma_core::{
    Completion, Descriptor, Error, ErrorKind, NativeError, Operation, Outcome, QueueEvents, QueueOptions,
    QueueStats, RawQueue, Result, Segment,
};

use super::event::Events;
use super::learner::{Class, Engine, Learner};
use super::options::FAILURES;
use super::region::RecentKeys;
use super::report::Counts;
use super::shared::AutoShared;

/// Maximum number of descriptors in a submission, and of completions in a poll.
const BATCH: usize = 32;
/// Backoff after the first failure: the time in which the device is not used.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// Maximum backoff of a device that fails repeatedly.
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Number of copies after which a device that is used again counts as healthy.
const HEALTHY_AFTER: u32 = 1000;
/// While the device is not used, the clock is read once in this many submissions.
const PROBE_EVERY: u32 = 64;
/// One poll adds at most the stall timeout divided by this number to the polled time. Otherwise the time in
/// which the thread did not run could count as a stall of the device.
const STALL_CHECKS: u32 = 8;
/// Maximum number of the device's failure codes that a queue keeps to explain.
const CODES: usize = 16;
/// Fixed cost of a copy, as the number of bytes that could be copied in the same time.
const COPY_OVERHEAD: usize = 512;

/// Returns the weight of a copy of `len` bytes. Copies that end together share the measured time by their
/// weights.
pub(super) const fn weight(len: usize) -> usize {
    len + COPY_OVERHEAD
}

/// A copy that the CPU has to repeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    pub(super) token: u64,
    pub(super) src: Segment,
    pub(super) dst: Segment,
}

/// A descriptor in flight on the device.
#[derive(Clone, Copy, Debug)]
struct DeviceWork {
    token: u64,
    /// The copy and its class. `None` if the CPU cannot repeat it, because an operand is in the device's
    /// memory.
    copy: Option<(Repeat, Class)>,
    at: Instant,
    /// The queue's `polled` and `completed` when this descriptor was submitted.
    polled: Duration,
    completed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceState {
    Used,
    /// The device gets no copies before this time.
    BackedOff(Instant),
}

#[derive(Debug)]
pub(super) struct DeviceQueue {
    shared: Arc<AutoShared>,
    options: QueueOptions,
    queue: Option<Box<dyn RawQueue>>,
    state: DeviceState,
    /// True if the queue was stopped or its device was lost. Then only a new queue can use the device.
    is_over: bool,
    slots: Box<[Option<DeviceWork>]>,
    free: Vec<usize>,
    pending: ArrayVec<Descriptor<'static>, BATCH>,
    doorbell_pending: bool,
    recent: RecentKeys,
    events: Option<Events>,
    timer_set: bool,
    backoff: Duration,
    submissions: u32,
    failures: u32,
    /// Number of copies that the device has completed since the queue uses it again.
    done_since_return: u32,
    last_poll: Instant,
    last_done: Instant,
    /// Total time in which the device had work and was polled.
    polled: Duration,
    /// `polled` at the last completion.
    progress: Duration,
    next_scan: Duration,
    completed: u64,
    /// The latest codes of failed work in the device's memory.
    codes: ArrayVec<i32, CODES>,
    /// Sum of the counters of the device's replaced queues.
    past: QueueStats,
}

impl DeviceQueue {
    /// Opens a queue of the device, or none if the device has no queue left. `cpu` provides the CPU queue's
    /// events.
    pub(super) fn open(
        shared: &Arc<AutoShared>,
        options: &QueueOptions,
        cpu: Option<&dyn QueueEvents>,
    ) -> Result<Self> {
        let depth = options.depth.min(shared.device.info().limits.max_queue_depth);
        let options = options.clone().with_depth(depth);
        dma_process::check_headroom(
            depth.saturating_mul(size_of::<Option<DeviceWork>>() + size_of::<Repeat>()),
        )?;
        let now = Instant::now();
        let mut opened = Self {
            shared: Arc::clone(shared),
            options,
            queue: None,
            state: DeviceState::Used,
            is_over: false,
            slots: vec![None; depth].into_boxed_slice(),
            free: (0..depth).rev().collect(),
            pending: ArrayVec::new(),
            doorbell_pending: false,
            recent: RecentKeys::default(),
            events: None,
            timer_set: false,
            backoff: MIN_BACKOFF,
            submissions: 0,
            failures: 0,
            done_since_return: 0,
            last_poll: now,
            last_done: now,
            polled: Duration::ZERO,
            progress: Duration::ZERO,
            next_scan: Duration::ZERO,
            completed: 0,
            codes: ArrayVec::new(),
            past: QueueStats::default(),
        };
        match shared.device.open_queue_raw(&opened.options) {
            Ok(mut queue) => {
                if let (Some(cpu), Some(own)) = (cpu, queue.events()) {
                    opened.events = Some(Events::new([cpu.fd(), own.fd()]));
                }
                opened.queue = Some(queue);
            }
            Err(error) => {
                let why = error.to_string();
                shared.ledger.note_reason(why.clone());
                dma_core::deferred_log!(
                    warn,
                    error = why,
                    "the device cannot open a queue, so the CPU copies"
                );
                opened.state = DeviceState::BackedOff(now + MIN_BACKOFF);
                opened.is_over = true;
                opened.events = cpu.map(|cpu| Events::new([cpu.fd()]));
            }
        }
        Ok(opened)
    }

    /// Returns the maximum number of copies in flight on the device.
    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if the device gets copies.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.state == DeviceState::Used
    }

    /// Uses the device again if its backoff is over. The caller calls this for each submission
    /// while the device is not used. This function reads the clock only at every [`PROBE_EVERY`]th call.
    pub(super) fn probe_device(&mut self, counts: &Counts) {
        self.submissions += 1;
        if self.submissions.is_multiple_of(PROBE_EVERY) {
            self.resume_if_due(counts);
        }
    }

    fn resume_if_due(&mut self, counts: &Counts) {
        if let DeviceState::BackedOff(until) = self.state
            && Instant::now() >= until
            && (!self.is_over || self.in_flight() == 0)
        {
            self.resume(counts);
        }
    }

    fn resume(&mut self, counts: &Counts) {
        if self.is_over {
            if let Some(old) = self.queue.take() {
                let stats = old.stats();
                self.past = QueueStats::new(
                    self.past.doorbells + stats.doorbells,
                    self.past.resets + stats.resets + 1,
                );
            }
            match self.reopen() {
                Ok(queue) => self.queue = Some(queue),
                Err(error) => return self.back_off(&error.to_string()),
            }
            (self.is_over, self.doorbell_pending) = (false, false);
            if self.timer_set || self.events.is_some() {
                // This wakes a sleeping owner, so that it arms the events of the new queue.
                self.set_timer(Duration::from_nanos(1));
            }
        }
        (self.state, self.failures, self.done_since_return) = (DeviceState::Used, 0, 0);
        counts.returned.add(1);
        dma_core::deferred_log!(info, "copies go to the device again");
    }

    fn reopen(&mut self) -> Result<Box<dyn RawQueue>> {
        let mut queue = self.shared.device.open_queue_raw(&self.options)?;
        if let Some(events) = &self.events {
            let own = queue.events().ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, "the device's new queue has no wake-ups")
            })?;
            events.add(own.fd())?;
        }
        Ok(queue)
    }

    fn back_off(&mut self, why: &str) {
        self.state = DeviceState::BackedOff(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        self.shared.ledger.note_reason(why.to_owned());
    }

    /// Stops using the device for its backoff time.
    fn leave(&mut self, why: &str, learner: &mut Learner, counts: &Counts) {
        if self.state == DeviceState::Used {
            let (reason, backoff) = (why.to_owned(), self.backoff);
            dma_core::deferred_log!(
                warn,
                why = reason,
                ?backoff,
                "copies go to the CPU instead of the device"
            );
            self.back_off(why);
            learner.forget_device();
            counts.left.add(1);
        }
    }

    /// Accepts a copy for the next [`submit`](Self::submit). Returns false if the device cannot reach the
    /// memory or its queue is full.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`]: both segments are of regions of the `AutoEngine`, and stay valid until the
    /// completion.
    pub(super) unsafe fn take(&mut self, copy: Repeat, class: Class, now: Instant) -> bool {
        if self.pending.is_full() || self.free.is_empty() {
            return false;
        }
        let keys = &self.shared.keys;
        let (Some(src), Some(dst)) =
            (self.recent.translate(keys, copy.src), self.recent.translate(keys, copy.dst))
        else {
            return false;
        };
        let Some(slot) = self.occupy(copy.token, Some((copy, class)), now) else { return false };
        self.pending.push(Descriptor::copy(slot, src, dst));
        true
    }

    /// Stores work in a free slot, and returns the slot number, which is the token for the device.
    fn occupy(&mut self, token: u64, copy: Option<(Repeat, Class)>, now: Instant) -> Option<u64> {
        let slot = self.free.pop()?;
        if self.in_flight() == 1 {
            (self.last_poll, self.progress) = (now, self.polled);
        }
        let (polled, completed) = (self.polled, self.completed);
        self.slots[slot] = Some(DeviceWork { token, copy, at: now, polled, completed });
        Some(slot as u64)
    }

    /// Returns true if the operation has an operand that the CPU cannot copy.
    pub(super) fn is_device_only(&mut self, operation: Operation<'_>) -> bool {
        let keys = &self.shared.keys;
        let mut is = |segment| self.recent.is_device_only(keys, segment);
        match operation {
            Operation::Copy { src, dst } => is(src) || is(dst),
            Operation::Fill { dst, .. } => dst.iter().any(|segment| is(*segment)),
            // If the device has memory, the engine declares neither lists nor other operations, so none
            // arrives here.
            _ => false,
        }
    }

    /// Submits work with operands in the device's memory. Returns false if the device's queue is full.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device cannot reach the other operand; `DeviceLost` while the queue does not use
    /// the device; the error of a refusal by the device.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    pub(super) unsafe fn submit_device_only(
        &mut self,
        descriptor: &Descriptor<'_>,
        learner: &mut Learner,
        counts: &Counts,
    ) -> Result<bool> {
        self.resume_if_due(counts);
        if self.is_over {
            let why = "the queue's device has failed, and only the device copies its memory";
            return Err(Error::new(ErrorKind::DeviceLost, why).with_hint(
                "wait for all operations, and try again in some seconds; `explain` has the reason",
            ));
        }
        let keys = &self.shared.keys;
        let mut translate = |segment| {
            self.recent.translate(keys, segment).ok_or_else(|| {
                let message = "one operand is in device memory, and the device cannot reach the other one";
                Error::new(ErrorKind::Unsupported, message)
                    .with_hint("copy through memory that this engine allocates")
            })
        };
        let filled;
        let translated = match descriptor.operation() {
            Operation::Copy { src, dst } => Descriptor::copy(0, translate(src)?, translate(dst)?),
            Operation::Fill { pattern, dst: &[dst] } => {
                filled = [translate(dst)?];
                Descriptor::fill(0, pattern, &filled)
            }
            other => return Err(Error::new(ErrorKind::Unsupported, format!("{other:?} in device memory"))),
        };
        let Some(slot) = self.occupy(descriptor.token(), None, Instant::now()) else { return Ok(false) };
        let submitted = match &mut self.queue {
            // SAFETY: the caller promises that the segments are valid until the completion. Their keys are
            // those of the device's own regions, which live as long as the regions of the `AutoEngine`.
            Some(queue) => unsafe { queue.submit(&[translated.with_token(slot)]) },
            None => Err(Error::bare(ErrorKind::DeviceLost)),
        };
        if matches!(submitted, Ok(1)) {
            counts.took(Engine::Device, 1);
            self.doorbell_pending = true;
            return Ok(true);
        }
        self.release(slot);
        if let Err(error) = &submitted {
            self.note_refusal(error, learner, counts);
        }
        submitted.map(|_| false)
    }

    /// Explains the code of failed work in the device's memory.
    pub(super) fn explain(&self, native: i32) -> Option<NativeError> {
        let queue = self.queue.as_ref().filter(|_| self.codes.contains(&native))?;
        Some(queue.explain(native))
    }

    /// Returns true if [`submit`](Self::submit) has to be called before another copy is accepted.
    pub(super) fn is_pending_full(&self) -> bool {
        self.pending.is_full()
    }

    /// Submits the accepted copies. Adds the copies that the device refuses to `repeats`.
    pub(super) fn submit(&mut self, repeats: &mut VecDeque<Repeat>, learner: &mut Learner, counts: &Counts) {
        if self.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let submitted = match &mut self.queue {
            // SAFETY: the caller of `take` promised that the segments are valid until the completion. Their
            // keys are those of the device's own regions, which live as long as the regions of the
            // `AutoEngine`.
            Some(queue) => unsafe { queue.submit(&pending) },
            None => Ok(0),
        };
        let taken = submitted.as_ref().map_or(0, |taken| *taken);
        counts.took(Engine::Device, taken);
        self.doorbell_pending |= taken > 0;
        for descriptor in &pending[taken..] {
            if let Some((copy, _)) = self.release(descriptor.token()).and_then(|work| work.copy) {
                repeats.push_back(copy);
            }
        }
        if let Err(error) = submitted {
            self.note_refusal(&error, learner, counts);
        }
    }

    fn note_refusal(&mut self, error: &Error, learner: &mut Learner, counts: &Counts) {
        self.failures += 1;
        self.is_over |= matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Closed);
        if self.is_over || self.failures >= FAILURES {
            self.leave(&error.to_string(), learner, counts);
        }
    }

    fn release(&mut self, token: u64) -> Option<DeviceWork> {
        let slot = usize::try_from(token).ok()?;
        let released = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(released)
    }

    #[inline]
    pub(super) fn flush(&mut self, armed: bool) {
        if self.doorbell_pending {
            self.ring(armed);
        }
    }

    #[inline(never)]
    fn ring(&mut self, armed: bool) {
        self.doorbell_pending = false;
        if let Some(queue) = &mut self.queue {
            queue.flush();
        }
        if armed && !self.timer_set {
            self.set_timer(self.shared.options.stall_timeout / STALL_CHECKS);
        }
    }

    /// Polls the device. If `stopped`, copies that the device aborted are reported instead of repeated.
    pub(super) fn poll(
        &mut self,
        completions: &mut [Completion],
        stopped: bool,
        repeats: &mut VecDeque<Repeat>,
        learner: &mut Learner,
        counts: &Counts,
    ) -> usize {
        let most = completions.len().min(BATCH);
        let Some(queue) = self.queue.as_mut().filter(|_| most > 0) else { return 0 };
        let mut polled = [Completion::done(0); BATCH];
        let got = queue.poll(&mut polled[..most]);
        let now = Instant::now();
        let part = self.shared.options.stall_timeout / STALL_CHECKS;
        self.polled += now.duration_since(self.last_poll).min(part);
        self.last_poll = now;
        if got == 0 {
            self.check_stall(learner, counts);
            return 0;
        }
        self.progress = self.polled;
        let (mut n, mut total, mut since) = (0, 0, now);
        let mut timed = ArrayVec::<(Class, usize), BATCH>::new();
        let (mut failure, mut done) = (None, 0);
        for completion in &polled[..got] {
            // The slot is empty if the device reports a copy twice.
            let Some(DeviceWork { token, copy, at, .. }) = self.release(completion.token) else { continue };
            self.completed += 1;
            let is_done = completion.outcome == Outcome::Done;
            done += u32::from(is_done);
            failure = failure.or(Some(*completion).filter(|_| !is_done && !stopped));
            completions[n] = match copy {
                None => {
                    self.keep_code(completion.native);
                    Completion { token, ..*completion }
                }
                Some((copy, class)) if is_done => {
                    timed.push((class, weight(copy.src.len)));
                    total += weight(copy.src.len);
                    since = since.min(at);
                    Completion::done(token)
                }
                Some(_) if stopped => Completion::ended(token, Outcome::Aborted, 0),
                Some((copy, _)) => {
                    repeats.push_back(copy);
                    counts.repeated.add(1);
                    continue;
                }
            };
            n += 1;
        }
        let took = now.duration_since(self.last_done.max(since)).as_nanos() as f32;
        self.last_done = now;
        for &(class, own) in &timed {
            if let Some(cost) = learner.record(class, Engine::Device, took * own as f32 / total as f32) {
                self.shared.ledger.note_cost(class, cost);
            }
        }
        if done > 0 {
            self.failures = 0;
            self.done_since_return = self.done_since_return.saturating_add(done);
            if self.done_since_return >= HEALTHY_AFTER {
                self.backoff = MIN_BACKOFF;
            }
        } else if let Some(failed) = failure.filter(|_| !self.is_over) {
            self.failures += 1;
            if self.failures >= FAILURES {
                self.leave_failed(failed, learner, counts);
            }
        }
        n
    }

    /// Stores a code for [`explain`](Self::explain).
    fn keep_code(&mut self, native: i32) {
        if native != 0 && !self.codes.contains(&native) {
            if self.codes.is_full() {
                self.codes.remove(0);
            }
            self.codes.push(native);
        }
    }

    fn leave_failed(&mut self, failed: Completion, learner: &mut Learner, counts: &Counts) {
        let native = self.queue.as_ref().map(|queue| queue.explain(failed.native));
        let why = format!("{FAILURES} consecutive failures, the last one {:?}, {native:?}", failed.outcome);
        self.leave(&why, learner, counts);
    }

    /// Stops the device's queue if its device is lost, or if it hangs or has lost a completion. A queue that
    /// can still report its copies then reports them as aborted, and the CPU repeats them.
    fn check_stall(&mut self, learner: &mut Learner, counts: &Counts) {
        let limit = self.shared.options.stall_timeout;
        if self.is_over {
            return;
        }
        if let Some(error) = self.queue.as_ref().and_then(|queue| queue.lost()) {
            self.is_over = true;
            self.leave(error.message(), learner, counts);
            self.stop();
            return;
        }
        if self.polled < self.next_scan {
            return;
        }
        self.next_scan = self.polled + limit / STALL_CHECKS;
        let stalled = self.polled.saturating_sub(self.progress) > limit;
        // A copy counts as lost if more later copies have completed than reordering can explain.
        let overtakes = 4 * self.slots.len() as u64;
        let lost = |slot: &DeviceWork| {
            self.polled.saturating_sub(slot.polled) > limit && self.completed - slot.completed > overtakes
        };
        if self.in_flight() > 0 && (stalled || self.slots.iter().flatten().any(lost)) {
            self.is_over = true;
            self.leave(&format!("a copy did not complete for {limit:?}"), learner, counts);
            self.stop();
        }
    }

    pub(super) fn stop(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.stop();
        }
    }

    pub(super) fn abandoned(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.abandoned();
        }
    }

    pub(super) fn stats(&self) -> QueueStats {
        let stats = self.queue.as_ref().map(|queue| queue.stats()).unwrap_or_default();
        QueueStats::new(self.past.doorbells + stats.doorbells, self.past.resets + stats.resets)
    }
}
