//! [`DeviceQueue`]: the device's side of a queue, its copies in flight, and its health.
#![expect(unsafe_code, reason = "submits to the device")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use dma_core::{
    Completion, Descriptor, ErrorKind, Outcome, QueueEvents, QueueOptions, QueueStats, RawQueue, Result,
    Segment,
};

use super::event::Events;
use super::learner::{Class, Learner, Member};
use super::memory::RecentKeys;
use super::report::Counts;
use super::{FAILURES, Shared};

/// Descriptors in one submission, and completions of one poll.
const BATCH: usize = 32;
/// Time away from a device that failed, at first and at most.
const AWAY: Duration = Duration::from_millis(100);
const AWAY_MOST: Duration = Duration::from_secs(10);
/// Copies after which a device that came back counts as sound.
const SOUND: u32 = 1000;
/// Submissions between two looks at the clock while the queue is away from its device.
const LOOK: u32 = 64;
/// A poll counts for no more than this part of the stall timeout, so that a thread that did not run blames no
/// device.
const PARTS: u32 = 8;
/// Cost of a copy besides its bytes, in bytes. Shares a time among copies that ended together.
const BASE: usize = 512;

/// Returns the part of a copy of so many bytes in the time of copies that ended together.
pub(super) const fn weight(len: usize) -> usize {
    len + BASE
}

/// A copy that the CPU takes over from the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    pub(super) token: u64,
    pub(super) src: Segment,
    pub(super) dst: Segment,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    copy: Repeat,
    class: Class,
    at: Instant,
    /// The polled time, and the completions, when it was submitted.
    polled: Duration,
    completed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Used,
    /// No copies go to it before that time.
    Away(Instant),
}

#[derive(Debug)]
pub(super) struct DeviceQueue {
    shared: Arc<Shared>,
    options: QueueOptions,
    queue: Option<Box<dyn RawQueue>>,
    state: State,
    /// The queue was stopped or lost its device: another one is needed.
    ended: bool,
    slots: Box<[Option<Slot>]>,
    free: Vec<usize>,
    pending: ArrayVec<Descriptor<'static>, BATCH>,
    unrung: bool,
    recent: RecentKeys,
    events: Option<Events>,
    timer_set: bool,
    away: Duration,
    looks: u32,
    failures: u32,
    /// Copies that it has done since it came back.
    good: u32,
    last_poll: Instant,
    last_done: Instant,
    /// Time in which the device had work and was polled.
    polled: Duration,
    /// The same, at its last sign of life.
    progress: Duration,
    next_scan: Duration,
    completed: u64,
    /// Of queues before this one.
    past: QueueStats,
}

impl DeviceQueue {
    /// Opens a queue of the device, or none if the device has no queue left. `cpu` has the CPU queue's events.
    pub(super) fn open(
        shared: &Arc<Shared>,
        options: &QueueOptions,
        cpu: Option<&dyn QueueEvents>,
    ) -> Result<Self> {
        let depth = options.depth.min(shared.device.info().limits.max_queue_depth);
        let options = options.clone().with_depth(depth);
        dma_core::check_headroom(depth.saturating_mul(size_of::<Option<Slot>>() + size_of::<Repeat>()))?;
        let now = Instant::now();
        let mut opened = Self {
            shared: Arc::clone(shared),
            options,
            queue: None,
            state: State::Used,
            ended: false,
            slots: vec![None; depth].into_boxed_slice(),
            free: (0..depth).rev().collect(),
            pending: ArrayVec::new(),
            unrung: false,
            recent: RecentKeys::default(),
            events: None,
            timer_set: false,
            away: AWAY,
            looks: 0,
            failures: 0,
            good: 0,
            last_poll: now,
            last_done: now,
            polled: Duration::ZERO,
            progress: Duration::ZERO,
            next_scan: Duration::ZERO,
            completed: 0,
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
                tracing::warn!(%error, "the device opens no queue: the CPU copies");
                shared.ledger.note_reason(error.to_string());
                opened.state = State::Away(now + AWAY);
                opened.ended = true;
                opened.events = cpu.map(|cpu| Events::new([cpu.fd()]));
            }
        }
        Ok(opened)
    }

    /// The most copies in flight on it.
    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if copies may go to it.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.state == State::Used
    }

    /// Goes back to the device when the time has come. Called for submissions while it is not used. Looks at
    /// the clock at every [`LOOK`]th call only.
    pub(super) fn look_again(&mut self, counts: &Counts) {
        self.looks += 1;
        if let State::Away(until) = self.state
            && self.looks.is_multiple_of(LOOK)
            && Instant::now() >= until
            && (!self.ended || self.in_flight() == 0)
        {
            self.return_to_it(counts);
        }
    }

    fn return_to_it(&mut self, counts: &Counts) {
        if self.ended {
            if let Some(old) = self.queue.take() {
                let stats = old.stats();
                self.past = QueueStats::new(
                    self.past.doorbells + stats.doorbells,
                    self.past.resets + stats.resets + 1,
                );
            }
            match self.reopen() {
                Ok(queue) => self.queue = Some(queue),
                Err(error) => return self.stay_away(&error.to_string()),
            }
            (self.ended, self.unrung) = (false, false);
            if self.timer_set || self.events.is_some() {
                // An owner that sleeps arms the new queue's events, too.
                self.set_timer(Duration::from_nanos(1));
            }
        }
        (self.state, self.failures, self.good) = (State::Used, 0, 0);
        counts.returned.add(1);
        tracing::info!("copies go to the device again");
    }

    fn reopen(&mut self) -> Result<Box<dyn RawQueue>> {
        let mut queue = self.shared.device.open_queue_raw(&self.options)?;
        if let Some(events) = &self.events {
            let own = queue.events().ok_or_else(|| {
                dma_core::Error::new(ErrorKind::Unsupported, "the device's new queue wakes nobody")
            })?;
            events.add(own.fd())?;
        }
        Ok(queue)
    }

    fn stay_away(&mut self, why: &str) {
        self.state = State::Away(Instant::now() + self.away);
        self.away = (self.away * 2).min(AWAY_MOST);
        self.shared.ledger.note_reason(why.to_owned());
    }

    /// Leaves the device for a time.
    fn leave(&mut self, why: &str, learner: &mut Learner, counts: &Counts) {
        if self.state == State::Used {
            tracing::warn!(why, away = ?self.away, "copies go to the CPU instead of the device");
            self.stay_away(why);
            learner.forget_device();
            counts.left.add(1);
        }
    }

    /// Takes a copy for the next [`submit`](Self::submit). Returns false if the device cannot reach the
    /// memory or has no room.
    ///
    /// # Safety
    ///
    /// As [`RawQueue::submit`], of regions of the engine.
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
        let Some(slot) = self.free.pop() else { return false };
        if self.in_flight() == 1 {
            (self.last_poll, self.progress) = (now, self.polled);
        }
        let (polled, completed) = (self.polled, self.completed);
        self.slots[slot] = Some(Slot { copy, class, at: now, polled, completed });
        self.pending.push(Descriptor::copy(slot as u64, src, dst));
        true
    }

    /// Returns true if another copy needs a [`submit`](Self::submit) first.
    pub(super) fn is_pending_full(&self) -> bool {
        self.pending.is_full()
    }

    /// Submits what was taken. The CPU repeats what the device refuses.
    pub(super) fn submit(&mut self, repeats: &mut VecDeque<Repeat>, learner: &mut Learner, counts: &Counts) {
        if self.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let submitted = match &mut self.queue {
            // SAFETY: the caller of `take` promised it, for regions that are registered with the device, too.
            Some(queue) => unsafe { queue.submit(&pending) },
            None => Ok(0),
        };
        let taken = submitted.as_ref().map_or(0, |taken| *taken);
        counts.took(Member::Device, taken);
        self.unrung |= taken > 0;
        for descriptor in &pending[taken..] {
            if let Some(slot) = self.release(descriptor.token()) {
                repeats.push_back(slot.copy);
            }
        }
        if let Err(error) = submitted {
            self.failures += 1;
            self.ended |= matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Closed);
            if self.ended || self.failures >= FAILURES {
                self.leave(&error.to_string(), learner, counts);
            }
        }
    }

    fn release(&mut self, token: u64) -> Option<Slot> {
        let slot = usize::try_from(token).ok()?;
        let released = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(released)
    }

    #[inline]
    pub(super) fn flush(&mut self, armed: bool) {
        if self.unrung {
            self.ring(armed);
        }
    }

    #[inline(never)]
    fn ring(&mut self, armed: bool) {
        self.unrung = false;
        if let Some(queue) = &mut self.queue {
            queue.flush();
        }
        if armed && !self.timer_set {
            self.set_timer(self.shared.options.stall_timeout / PARTS);
        }
    }

    /// Polls while copies are in flight on it. `stopped`: nothing is repeated any more.
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
        let part = self.shared.options.stall_timeout / PARTS;
        self.polled += now.duration_since(self.last_poll).min(part);
        self.last_poll = now;
        if got == 0 {
            self.look_after(learner, counts);
            return 0;
        }
        self.progress = self.polled;
        let (mut n, mut total, mut since) = (0, 0, now);
        let mut timed = ArrayVec::<(Class, usize), BATCH>::new();
        let mut failure = None;
        for completion in &polled[..got] {
            // None: the device reports it twice.
            let Some(Slot { copy, class, at, .. }) = self.release(completion.token) else { continue };
            self.completed += 1;
            if completion.outcome == Outcome::Done {
                timed.push((class, weight(copy.src.len)));
                total += weight(copy.src.len);
                since = since.min(at);
                completions[n] = Completion::done(copy.token);
                n += 1;
            } else if stopped {
                completions[n] = Completion::ended(copy.token, Outcome::Aborted, 0);
                n += 1;
            } else {
                failure = Some(*completion);
                repeats.push_back(copy);
                counts.repeated.add(1);
            }
        }
        let took = now.duration_since(self.last_done.max(since)).as_nanos() as f32;
        self.last_done = now;
        for &(class, own) in &timed {
            if let Some(cost) = learner.record(class, Member::Device, took * own as f32 / total as f32) {
                self.shared.ledger.note_cost(class, cost);
            }
        }
        if !timed.is_empty() {
            self.failures = 0;
            self.good = self.good.saturating_add(timed.len() as u32);
            if self.good >= SOUND {
                self.away = AWAY;
            }
        } else if let Some(failed) = failure.filter(|_| !self.ended) {
            self.failures += 1;
            if self.failures >= FAILURES {
                self.leave_failed(failed, learner, counts);
            }
        }
        n
    }

    fn leave_failed(&mut self, failed: Completion, learner: &mut Learner, counts: &Counts) {
        let native = self.queue.as_ref().map(|queue| queue.explain(failed.native));
        let why = format!("{FAILURES} failures in a row, at last {:?}, {native:?}", failed.outcome);
        self.leave(&why, learner, counts);
    }

    /// Stops a device that hangs, or that lost a completion.
    fn look_after(&mut self, learner: &mut Learner, counts: &Counts) {
        let limit = self.shared.options.stall_timeout;
        if self.ended || self.polled < self.next_scan {
            return;
        }
        self.next_scan = self.polled + limit / PARTS;
        let stalled = self.polled.saturating_sub(self.progress) > limit;
        // Overtaken by more than can have been submitted before it.
        let overtakes = 4 * self.slots.len() as u64;
        let lost = |slot: &Slot| {
            self.polled.saturating_sub(slot.polled) > limit && self.completed - slot.completed > overtakes
        };
        if self.in_flight() > 0 && (stalled || self.slots.iter().flatten().any(lost)) {
            self.ended = true;
            self.leave(&format!("a copy did not complete for {limit:?}"), learner, counts);
            self.stop();
        }
    }

    pub(super) fn stop(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.stop();
        }
    }

    pub(super) fn stats(&self) -> QueueStats {
        let stats = self.queue.as_ref().map(|queue| queue.stats()).unwrap_or_default();
        QueueStats::new(self.past.doorbells + stats.doorbells, self.past.resets + stats.resets)
    }

    pub(super) const fn events(&self) -> Option<&Events> {
        self.events.as_ref()
    }

    fn own_events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.queue.as_mut().and_then(|queue| queue.events())
    }

    fn set_timer(&mut self, after: Duration) {
        if let Some(events) = &self.events {
            events.set_timer(after);
            self.timer_set = !after.is_zero();
        }
    }

    /// Arms the device's events and the time to look after it.
    pub(super) fn arm(&mut self) -> Result<bool> {
        if let Some(own) = self.own_events()
            && !own.arm()?
        {
            return Ok(false);
        }
        if self.in_flight() > 0 {
            self.set_timer(self.shared.options.stall_timeout / PARTS);
        }
        Ok(true)
    }

    pub(super) fn disarm(&mut self) {
        if let Some(own) = self.own_events() {
            own.disarm();
        }
        if self.timer_set {
            self.set_timer(Duration::ZERO);
        }
    }
}
