//! [`Lane`]: one device queue, its operations, and the thread that polls it when no submitter does.
#![expect(unsafe_code, reason = "follows the slots' protocol")]

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::deferred_callbacks::DeferredCallback;
use super::inbox::{FreeSlots, Inbox, Links};
use super::slot::{Report, Request, Slot};
use super::wait_queue::WaitQueue;
use crate::planner::check::Lists;
use crate::planner::inline::{Executed, Inline};
use crate::planner::plan::QueueCaps;
use crate::planner::stall_detector::StallDetector;
use crate::planner::wait::until_stopped;
use crate::planner::{LogEvent, Planner, error};
use crate::{Counters, EngineId, Error, Outcome, QueueOptions, Segment, guarded};
use dma_process::ForkMark;

/// The lane's thread runs and checks the inboxes.
const AWAKE: u8 = 0;
/// The lane's thread sleeps, and submitters must wake it.
const ASLEEP: u8 = 1;
/// The lane's thread has exited, and submitters fail their own requests.
const GONE: u8 = 2;

thread_local! {
    /// True if this thread is a lane thread of any queue.
    static ON_LANE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this is a lane thread. Lane threads must not join lanes, because they would wait for
/// themselves or for one another.
pub(super) fn on_lane() -> bool {
    ON_LANE.get()
}

pub(super) struct Lane {
    /// This field is declared before the slots, so that the device is dropped before memory that it may use.
    core: CachePadded<Mutex<Core>>,
    pub(super) engine: EngineId,
    pub(super) backend: &'static str,
    inline: Inline,
    pub(super) caps: QueueCaps,
    pub(super) stall_timeout: Duration,
    /// Maximum time that operations of tasks wait to share a doorbell; 0 if they do not wait.
    doorbell_delay: Duration,
    pub(super) slots: Box<[Slot]>,
    /// Slots that no operation uses.
    free: FreeSlots,
    /// Tasks that wait for a slot, on any lane of the queue.
    wait_queue: Arc<WaitQueue>,
    /// Slots with a request. There are several inboxes, so that threads that submit at the same time rarely
    /// contend.
    submitted: [CachePadded<Inbox>; Self::INBOXES],
    links: Links,
    /// Empty lists of callbacks, for reuse.
    spare: Mutex<Vec<Vec<DeferredCallback>>>,
    lists: Mutex<Lists>,
    full: AtomicU64,
    /// Number of polls with progress by threads other than the lane's thread.
    driven: CachePadded<AtomicU64>,
    /// Number of polls in which the device reported a descriptor, or the CPU executed a chunk. The number is
    /// written under the lock.
    reports: CachePadded<AtomicU64>,
    /// The value of `reports` when the lane's thread detected a stall, and the time of the last completion.
    /// The next report invalidates the value.
    stalled_at: Mutex<Option<(u64, Instant)>>,
    /// The [steps](StallDetector::steps) of the lane's thread.
    stall_steps: AtomicU32,
    thread: OnceLock<Thread>,
    /// The state of the lane's thread: `AWAKE`, `ASLEEP` or `GONE`.
    presence: AtomicU8,
    /// The deadline for draining; `None` until the lane is closed.
    closing: Mutex<Option<Instant>>,
    refuses: AtomicBool,
    /// The process that opened the queue.
    process: ForkMark,
}

struct Core {
    planner: Planner,
    /// True after the device is closed or abandoned. Requests then end with `Closed`.
    over: bool,
    /// Slots taken from the inboxes. The list is reused.
    taken: Vec<u32>,
    /// Number of slots in `taken` whose requests were passed to the planner.
    accepted: usize,
    /// Slots whose operations have ended. The list is reused.
    ended: Vec<u32>,
    /// Callbacks to run after the lock is released.
    callbacks: Vec<DeferredCallback>,
    runs: u32,
}

/// The caller on whose behalf the device is polled, which decides when the doorbell rings.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    /// A waiting thread with this submitter id. The thread rings immediately, and serves its own requests
    /// first.
    Waiter(usize),
    /// A task, after other tasks had the opportunity to submit. The task rings when enough requests wait.
    Task,
    /// The lane's thread. The thread rings under the same conditions as a task. While tasks are still
    /// submitting, the thread does not ring, even if the device is idle.
    Lane,
    /// A thread that closes the queue. The thread rings immediately.
    Closer,
}

/// A slot that is being filled. If filling panics, the slot returns to the free list.
struct ClaimedSlot<'a> {
    slot: u32,
    free: &'a FreeSlots,
}

/// If a panic drops this value, the lane refuses operations.
struct RefuseOnPanic<'a>(&'a AtomicBool);

impl Drop for RefuseOnPanic<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Drop for ClaimedSlot<'_> {
    fn drop(&mut self) {
        self.free.give(self.slot);
    }
}

impl Lane {
    const INBOXES: usize = 4;
    /// A polling thread serves its own requests first, and the requests of all threads in one of
    /// `SERVE_ALL_EVERY` polls, because the lane's thread does not poll while other threads do.
    const SERVE_ALL_EVERY: u32 = 16;

    pub(super) fn new(mut planner: Planner, options: &QueueOptions, wait_queue: Arc<WaitQueue>) -> Self {
        let depth = planner.outcomes.ops.len();
        Self {
            inline: planner.take_inline(),
            engine: planner.engine,
            backend: planner.backend,
            caps: planner.caps(),
            stall_timeout: options.stall_timeout,
            doorbell_delay: planner.doorbell_delay(options),
            slots: std::iter::repeat_with(Slot::new).take(depth).collect(),
            free: FreeSlots::new(depth),
            wait_queue,
            submitted: std::array::from_fn(|_| CachePadded::new(Inbox::new())),
            links: Links::new(depth),
            core: CachePadded::new(Mutex::new(Core {
                planner,
                over: false,
                taken: Vec::with_capacity(depth),
                accepted: 0,
                ended: Vec::with_capacity(depth),
                callbacks: Vec::new(),
                runs: 0,
            })),
            spare: Mutex::default(),
            lists: Mutex::new(Lists::default()),
            full: AtomicU64::new(0),
            driven: CachePadded::new(AtomicU64::new(0)),
            reports: CachePadded::new(AtomicU64::new(0)),
            stalled_at: Mutex::default(),
            stall_steps: AtomicU32::new(0),
            thread: OnceLock::new(),
            presence: AtomicU8::new(AWAKE),
            closing: Mutex::new(None),
            refuses: AtomicBool::new(false),
            process: ForkMark::new(),
        }
    }

    /// Returns whether the lane refuses new operations, because it is closed, its engine has panicked, or it
    /// is the parent's.
    #[inline]
    pub(super) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed) || self.is_parents()
    }

    /// Returns whether the lane belongs to the parent of this forked process. If so, a thread that does not
    /// exist in this process may hold the lane's locks.
    #[inline]
    pub(super) fn is_parents(&self) -> bool {
        self.process.is_child()
    }

    /// Returns the error for a submission if the lane refuses it.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.refuses().then(|| if self.is_parents() { error::forked() } else { error::closed() })
    }

    /// Executes an operation in this call, if the lane allows this and `run` finds the operation valid and
    /// short enough. Lock-free.
    #[inline]
    pub(super) fn execute_inline(&self, run: impl FnOnce(&Inline) -> Option<Executed>) -> Option<Executed> {
        if !self.inline.is_allowed() || self.refuses() {
            return None;
        }
        let panics = RefuseOnPanic(&self.refuses);
        let executed = run(&self.inline);
        std::mem::forget(panics);
        executed
    }

    /// Submits a request, or returns `None` if every slot is taken. Lock-free. Callers with different
    /// `submitter_id`s rarely contend.
    ///
    /// After this call the device may use the memory. Therefore the caller must first put the operands into a
    /// transfer, and then call [`notice`](Self::notice), which may run the engine.
    pub(super) fn submit(&self, submitter_id: usize, fill: impl FnOnce(&mut Request)) -> Option<u32> {
        let slot = ClaimedSlot { slot: self.free.take(submitter_id)?, free: &self.free };
        // SAFETY: `free.take` returned this slot only to this thread.
        unsafe { self.slots[slot.slot as usize].submit(fill) };
        let slot = ManuallyDrop::new(slot).slot;
        self.submitted[submitter_id % Self::INBOXES].push(&self.links, slot);
        Some(slot)
    }

    /// Submits a request for a copy between two ranges of at least 1 byte, as [`submit`](Self::submit) does.
    #[inline]
    pub(super) fn submit_flat(&self, submitter_id: usize, src: Segment, dst: Segment) -> Option<u32> {
        let slot = self.free.take(submitter_id)?;
        // SAFETY: `free.take` returned this slot only to this thread.
        unsafe { self.slots[slot as usize].submit_flat(src, dst) };
        self.submitted[submitter_id % Self::INBOXES].push(&self.links, slot);
        Some(slot)
    }

    /// Wakes the lane's thread if it sleeps. If it has exited, ends the request.
    #[inline]
    pub(super) fn notice(&self) {
        let presence = self.presence();
        if presence != AWAKE {
            self.rouse(presence);
        }
    }

    /// Returns whether the lane's thread will see a submitted request without a [`notice`](Self::notice).
    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        self.presence() == AWAKE
    }

    #[inline]
    fn presence(&self) -> u8 {
        // Either the thread sees the request before it sleeps or exits, or this load sees ASLEEP or GONE. The
        // reason is that four accesses are sequentially consistent: the push of the request, this load, and
        // the thread's store of its state and its check of the inboxes.
        self.presence.load(Ordering::SeqCst)
    }

    /// Does the work of [`notice`](Self::notice) if the lane's thread is not awake.
    #[cold]
    fn rouse(&self, presence: u8) {
        if presence == GONE {
            // The lane was closed while this thread submitted. A request that stays in the inbox would never
            // end, so end it here. Wait for the lock, which is now held only briefly.
            let mut core = self.enter();
            self.run(&mut core, Caller::Closer);
            self.leave(core);
        } else if self.presence.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    pub(super) fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count_full(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees the slot of an operation whose operands were returned, and wakes the next waiting task.
    #[inline]
    pub(super) fn release(&self, slot: u32) {
        self.free.give(slot);
        if !self.is_parents()
            && let Some(waker) = self.wait_queue.next()
        {
            DeferredCallback::Wake(waker).run();
        }
    }

    /// Returns whether a slot is free.
    pub(super) fn has_room(&self) -> bool {
        self.free.any()
    }

    /// Returns the number of free slots.
    pub(super) fn available(&self) -> usize {
        self.free.count()
    }

    /// Returns whether an awaited operation should first let other tasks submit their operations, because
    /// several operations share the device.
    pub(super) fn delays_doorbell(&self) -> bool {
        !self.doorbell_delay.is_zero() && self.free.are_shared(self.slots.len())
    }

    /// Submits waiting requests and polls the device, unless another thread is doing so. Does not block.
    /// Returns the sum of reported descriptors and accepted requests.
    pub(super) fn drive(&self, caller: Caller) -> usize {
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::WouldBlock) => return 0,
            Err(TryLockError::Poisoned(e)) => self.report_poisoned(e.into_inner()),
        };
        let progress = self.run(&mut core, caller);
        self.leave(core);
        progress
    }

    /// Drives the lane as [`drive`](Self::drive) does, for a thread that waits for an operation. The lane's
    /// thread does not poll during such a wait.
    pub(super) fn help(&self, submitter_id: usize) -> usize {
        let progress = self.drive(Caller::Waiter(submitter_id));
        if progress > 0 {
            self.driven.store(self.driven.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        progress
    }

    /// Locks the core for reading, even if the engine has panicked under the lock.
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the core for [`run`](Self::run). Pass the guard to [`leave`](Self::leave) afterwards.
    fn enter(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|e| self.report_poisoned(e.into_inner()))
    }

    /// Abandons an engine that has panicked under the lock, because its state is unknown.
    #[cold]
    fn report_poisoned<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        self.refuses.store(true, Ordering::SeqCst);
        self.give_up(&mut core);
        self.core.clear_poison();
        core.callbacks.push(DeferredCallback::Emit(LogEvent::Panicked, self.backend));
        core.callbacks.extend(self.wait_queue.all().into_iter().map(DeferredCallback::Wake));
        core
    }

    /// Releases the lock, then runs user callbacks.
    #[inline]
    fn leave(&self, core: MutexGuard<'_, Core>) {
        if !core.callbacks.is_empty() {
            self.run_callbacks(core);
        }
    }

    /// Releases the lock, runs the callbacks, and keeps their list for reuse.
    fn run_callbacks(&self, mut core: MutexGuard<'_, Core>) {
        let empty = self.spares().pop().unwrap_or_default();
        let mut callbacks = std::mem::replace(&mut core.callbacks, empty);
        drop(core);
        callbacks.drain(..).for_each(DeferredCallback::run);
        self.spares().push(callbacks);
    }

    fn spares(&self) -> MutexGuard<'_, Vec<Vec<DeferredCallback>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes requests from the inboxes, passes them to the planner, and polls the device once. Returns the
    /// sum of requests that were taken and of descriptors that were reported.
    fn run(&self, core: &mut Core, caller: Caller) -> usize {
        let panics = RefuseOnPanic(&self.refuses);
        core.runs = core.runs.wrapping_add(1);
        if let Caller::Waiter(submitter_id) = caller
            && !core.runs.is_multiple_of(Self::SERVE_ALL_EVERY)
        {
            self.submitted[submitter_id % Self::INBOXES].take(&self.links, &mut core.taken);
        }
        if core.taken.is_empty() {
            self.submitted.iter().for_each(|inbox| inbox.take(&self.links, &mut core.taken));
        }
        let mut progress = core.taken.len();
        if core.over {
            self.refuse(core);
        } else {
            if progress > 0 {
                self.accept(core);
            }
            match caller {
                Caller::Waiter(_) | Caller::Closer => core.planner.flush(&mut core.ended),
                Caller::Task => core.planner.flush_delayed(|| true, self.doorbell_delay, &mut core.ended),
                Caller::Lane => {
                    core.planner.flush_delayed(
                        || !self.delays_doorbell(),
                        self.doorbell_delay,
                        &mut core.ended,
                    );
                }
            }
            if core.planner.open_operations() > 0 {
                let reported = core.planner.poll(&mut core.ended);
                if reported > 0 {
                    self.reports
                        .store(self.reports.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                }
                progress += reported;
            }
        }
        self.complete(core);
        std::mem::forget(panics);
        progress
    }

    /// Ends the requests in `taken` that have not been passed to the planner.
    #[cold]
    fn refuse(&self, core: &mut Core) {
        for slot in core.taken.drain(..).skip(std::mem::take(&mut core.accepted)) {
            // SAFETY: the slot came from an inbox and has not been completed.
            let operations = unsafe { self.slots[slot as usize].operations() };
            core.planner.count_refused(operations);
            // SAFETY: the slot came from an inbox, so it is in flight. Only this call ends it, because its
            // request was not passed to the planner.
            let callback = unsafe { self.slots[slot as usize].complete(Some(Report::Closed)) };
            if let Some(callback) = callback {
                self.ended(&mut core.callbacks, slot, callback);
            }
        }
    }

    /// Queues the callbacks of an ended operation.
    fn ended(&self, list: &mut Vec<DeferredCallback>, slot: u32, callback: DeferredCallback) {
        let is_over = matches!(callback, DeferredCallback::Drop(_));
        list.push(callback);
        if is_over {
            self.free.give(slot);
            list.extend(self.wait_queue.next().map(DeferredCallback::Wake));
        }
    }

    /// Passes the accepted requests to the planner.
    fn accept(&self, core: &mut Core) {
        // The index is a field, so that no request is lost if this panics. A panic before the commit leaves
        // nothing in the planner.
        while let Some(&slot) = core.taken.get(core.accepted) {
            let cell = &self.slots[slot as usize];
            // SAFETY: the slot came from an inbox and has not been completed.
            if let Some((src, dst)) = unsafe { cell.flat() } {
                if core.planner.takes_checked(dst.len) {
                    core.planner.push_plain(slot, src, dst, true);
                } else {
                    let mut admission = core.planner.admit(slot, 1, dst.len as u64, true);
                    admission.push_flat(0, src, dst);
                    admission.commit();
                }
                core.accepted += 1;
                if core.planner.has_full_batch() {
                    core.planner.submit_pending(&mut core.ended);
                }
                continue;
            }
            // SAFETY: the slot came from an inbox and has not been completed.
            unsafe {
                cell.request(|request| {
                    let mut admission = core.planner.admit(slot, request.operations, request.bytes, true);
                    for (plan, index) in request.plans.drain(..).zip(0..) {
                        admission.push(index, plan);
                    }
                    admission.commit();
                });
            }
            core.accepted += 1;
            core.planner.pushed(slot, &mut core.ended);
        }
        core.taken.clear();
        core.accepted = 0;
    }

    /// Reports ended operations, and collects log events.
    fn complete(&self, core: &mut Core) {
        // Return the lists first, so that they are available to a submitter that sees its operation ended.
        if core.planner.lists.has_spare() {
            self.lists().absorb(&mut core.planner.lists);
        }
        if !core.planner.outcomes.log_events.is_empty() {
            self.emit(core);
        }
        for slot in core.ended.drain(..) {
            let (op, cell) = (&core.planner.outcomes.ops[slot as usize], &self.slots[slot as usize]);
            let callback = if op.outcome == Outcome::Done && !op.answers {
                // SAFETY: the planner reports the end of every operation once, and no other call completes
                // the slot.
                unsafe { cell.complete(None) }
            } else {
                let report = match op.outcome {
                    Outcome::Done => Report::Answered(op.result),
                    _ => Report::Failed(core.planner.outcomes.take_failures(slot)),
                };
                // SAFETY: the planner reports the end of every operation once, and no other call completes
                // the slot.
                unsafe { cell.complete(Some(report)) }
            };
            if let Some(callback) = callback {
                self.ended(&mut core.callbacks, slot, callback);
            }
        }
    }

    /// Moves the planner's log events to the callbacks.
    #[cold]
    fn emit(&self, core: &mut Core) {
        core.callbacks.extend(
            core.planner
                .outcomes
                .log_events
                .drain(..)
                .map(|event| DeferredCallback::Emit(event, self.backend)),
        );
    }

    /// Returns the counters. Requests that have not been passed to the planner count as in flight.
    pub(super) fn counters(&self) -> Counters {
        let core = self.lock();
        let mut counters = core.planner.counters();
        let mut count = |slot: u32| {
            // SAFETY: the slot is in an inbox, or was taken from one, and its request was not passed on. The
            // lock is held, so no other thread takes the request.
            let operations = unsafe { self.slots[slot as usize].operations() };
            counters.submitted += operations;
            counters.in_flight += operations;
        };
        core.taken[core.accepted..].iter().copied().for_each(&mut count);
        self.submitted.iter().for_each(|inbox| inbox.for_each(&self.links, &mut count));
        counters.full += self.full.load(Ordering::Relaxed);
        counters
    }

    /// Returns a number that changes whenever the device reports a descriptor, or the CPU executes a chunk.
    pub(super) fn reports(&self) -> u64 {
        self.reports.load(Ordering::Relaxed)
    }

    /// If the lane's thread has detected a stall, returns the time without a completion.
    pub(super) fn stalled(&self) -> Option<Duration> {
        if self.is_parents() {
            return None;
        }
        let (reports, since) = (*self.stalled_at())?;
        (reports == self.reports()).then(|| since.elapsed())
    }

    /// Returns the [steps](StallDetector::steps) of the lane's thread.
    pub(super) fn stall_steps(&self) -> u32 {
        self.stall_steps.load(Ordering::Relaxed)
    }

    fn stalled_at(&self) -> MutexGuard<'_, Option<(u64, Instant)>> {
        self.stalled_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Refuses new operations, and makes the lane's thread drain until `deadline` and exit. If there are
    /// several callers, the earliest of their deadlines applies. Returns this deadline.
    pub(super) fn close(&self, deadline: Instant) -> Instant {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = closing.map_or(deadline, |other| deadline.min(other));
        *closing = Some(deadline);
        self.refuses.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        deadline
    }

    /// Returns the deadline for draining; `None` until the lane is closed.
    fn closing(&self) -> Option<Instant> {
        if !self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the lane's thread until the lane is closed and drained.
    pub(super) fn serve(&self) {
        ON_LANE.set(true);
        self.thread.get_or_init(std::thread::current);
        let deadline = self.watch();
        *self.stalled_at() = None;
        self.drain(deadline);
    }

    /// Polls while operations are in flight and no waiting thread polls; otherwise sleeps. When the lane is
    /// closed, returns the deadline.
    fn watch(&self) -> Instant {
        /// Number of polls without progress before yielding.
        const SPINS: u32 = 64;
        /// Number of polls without progress before napping.
        const YIELDS: u32 = 256;
        /// Time between polls while idle.
        const NAP: Duration = Duration::from_micros(50);
        /// Number of naps before sleeping until woken.
        const NAPS: u32 = 100;

        let mut idle = 0_u32;
        let mut naps = 0_u32;
        let mut driven = 0;
        let mut stall_detector = StallDetector::new(self.stall_timeout);
        loop {
            if let Some(deadline) = self.closing() {
                return deadline;
            }
            let now_driven = self.driven.load(Ordering::Relaxed);
            if std::mem::replace(&mut driven, now_driven) != now_driven {
                // Leave the polling to waiting threads, which poll more often than this thread would.
                naps = 0;
                std::thread::park_timeout(NAP);
                continue;
            }
            // If the engine panics, the next call handles the poisoned lock.
            if let Some(1..) = guarded("the engine", || self.drive(Caller::Lane)) {
                idle = 0;
                naps = 0;
                continue;
            }
            idle = idle.saturating_add(1);
            if idle < SPINS {
                std::hint::spin_loop();
            } else if idle < YIELDS {
                std::thread::yield_now();
            } else if naps < NAPS {
                naps += 1;
                std::thread::park_timeout(NAP);
            } else if self.watch_device(&mut stall_detector) {
                naps = naps.saturating_add(1);
                let nap = NAP * nap_for(naps);
                if nap == NAP {
                    std::thread::park_timeout(NAP);
                } else if self.sleep(Some(nap)) {
                    // There is new work, and the device may complete it soon.
                    naps = 0;
                }
            } else {
                self.sleep(None);
                idle = 0;
                naps = 0;
            }
        }
    }

    /// Returns whether operations are in flight. If so, also checks whether the device has stalled.
    fn watch_device(&self, stall_detector: &mut StallDetector) -> bool {
        let core = self.lock();
        let in_flight = !core.over && core.planner.open_operations() > 0;
        let (reports, polls) = (self.reports(), core.planner.polls());
        drop(core);
        if !in_flight {
            stall_detector.reset();
            *self.stalled_at() = None;
            return false;
        }
        let known = self.stalled_at().map(|(at, _)| at);
        let now = Instant::now();
        let stalled_for = stall_detector.observe(reports, polls, now);
        let steps = stall_detector.steps();
        let stepped = self.stall_steps.swap(steps, Ordering::Relaxed) != steps;
        let Some(stalled_for) = stalled_for else { return true };
        if known != Some(reports)
            && let Some(since) = now.checked_sub(stalled_for)
        {
            *self.stalled_at() = Some((reports, since));
            crate::guarded_log!(
                warn,
                backend = self.backend,
                ?stalled_for,
                "the device has operations in flight, but completes nothing"
            );
            // Wake the tasks that wait for room, so that the tasks fail with `TimedOut`.
            self.wait_queue.all().into_iter().map(DeferredCallback::Wake).for_each(DeferredCallback::run);
        }
        if stepped {
            // Wake the tasks that await operations, so that those that have waited long enough fail. A task
            // that has just begun to wait is woken at a later step.
            let wakers = self.slots.iter().filter_map(Slot::take_waker);
            wakers.map(DeferredCallback::Wake).for_each(DeferredCallback::run);
        }
        true
    }

    /// Sleeps for `nap`, or until woken if `nap` is `None`, unless there is work. Returns whether a submitter
    /// woke the thread.
    fn sleep(&self, nap: Option<Duration>) -> bool {
        // Either this thread sees a new request, or the submitter sees ASLEEP. GONE is never replaced.
        let (order, otherwise) = (Ordering::SeqCst, Ordering::Relaxed);
        if self.presence.compare_exchange(AWAKE, ASLEEP, order, otherwise).is_err() {
            return false;
        }
        if self.is_empty() && self.closing().is_none() {
            match nap {
                Some(nap) => std::thread::park_timeout(nap),
                None if !self.in_flight() => std::thread::park(),
                None => {}
            }
        }
        // The exchange fails if a submitter has already set AWAKE.
        self.presence.compare_exchange(ASLEEP, AWAKE, order, otherwise).is_err()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn wait_queue(&self) -> Arc<WaitQueue> {
        Arc::clone(&self.wait_queue)
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn sleeps(&self) -> bool {
        self.presence.load(Ordering::Relaxed) == ASLEEP
    }

    /// Returns whether all inboxes are empty.
    fn is_empty(&self) -> bool {
        self.submitted.iter().all(|inbox| inbox.is_empty())
    }

    fn in_flight(&self) -> bool {
        let core = self.lock();
        !core.over && core.planner.open_operations() > 0
    }

    /// Completes operations in flight until `deadline`, and closes the device queue. Any thread may call
    /// this, even repeatedly.
    pub(super) fn drain(&self, deadline: Instant) {
        // Another thread may have set an earlier deadline.
        let earliest = || self.closing().map_or(deadline, |other| deadline.min(other));
        if !self.poll_until(earliest) {
            guarded("the engine", || self.stop());
            until_stopped(|| self.poll_guarded());
        }
        self.end();
    }

    /// Polls until nothing is in flight, and returns true; or until `until` has passed, and returns false.
    fn poll_until(&self, until: impl Fn() -> Instant) -> bool {
        loop {
            let (progress, over) = self.poll_guarded();
            if over {
                return true;
            }
            if Instant::now() >= until() {
                return false;
            }
            if progress == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Polls as [`poll_to_drain`](Self::poll_to_drain) does. A panic of the engine counts as no progress.
    fn poll_guarded(&self) -> (usize, bool) {
        guarded("the engine", || self.poll_to_drain()).unwrap_or((0, false))
    }

    /// Polls once, and closes the device if nothing is in flight. Returns the progress, and whether the
    /// device is closed.
    fn poll_to_drain(&self) -> (usize, bool) {
        let mut core = self.enter();
        let progress = self.run(&mut core, Caller::Closer);
        let over = (core.over || core.planner.open_operations() == 0) && self.is_empty();
        if over {
            // Close under the same lock. Otherwise a late request could be accepted and then abandoned.
            self.give_up(&mut core);
        }
        self.leave(core);
        (progress, over)
    }

    fn stop(&self) {
        let mut core = self.enter();
        let inner = &mut *core;
        if !inner.over {
            inner.planner.stop(&mut inner.ended);
        }
        self.complete(inner);
        self.leave(core);
        crate::guarded_log!(
            warn,
            backend = self.backend,
            "operations did not end within the timeout; the shared queue has stopped the device"
        );
    }

    /// Closes the device and fails late requests.
    fn end(&self) {
        let mut core = self.enter();
        self.give_up(&mut core);
        self.presence.store(GONE, Ordering::SeqCst);
        // Requests before GONE are ended here, and later requests by their submitters. The fence orders the
        // store of GONE before the reads of the inboxes.
        fence(Ordering::SeqCst);
        self.run(&mut core, Caller::Closer);
        self.leave(core);
    }

    /// Abandons the device. Operations that it has not completed leak their parked operands, and are counted
    /// as abandoned.
    fn give_up(&self, core: &mut Core) {
        if std::mem::replace(&mut core.over, true) {
            return;
        }
        let planner = &mut core.planner;
        guarded("the engine", || planner.abandon());
        for (op, slot) in core.planner.outcomes.ops.iter().zip(&self.slots) {
            if !op.has_ended() {
                // SAFETY: the operation has not ended. The planner has abandoned the device and never ends
                // the operation, and `over` ensures that no second call abandons it.
                core.callbacks.extend(unsafe { slot.abandon() });
            }
        }
    }
}

/// Returns the length of the next nap, as a multiple of `NAP`. A nap is at most a sixtieth of the time waited
/// so far, so that a late completion is detected soon. Naps become longer, so that a stalled device costs
/// little CPU time.
pub(super) fn nap_for(naps: u32) -> u32 {
    (naps / 64).clamp(1, 20)
}

impl Drop for Lane {
    /// If the lane was not drained, abandons the device, so that memory that the device may use is not freed.
    fn drop(&mut self) {
        if !self.is_parents() {
            self.end();
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("backend", &self.backend)
            .field("depth", &self.slots.len())
            .field("refuses", &self.refuses)
            .finish_non_exhaustive()
    }
}
