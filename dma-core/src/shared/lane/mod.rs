//! [`Lane`]: one device queue, its operations, and the thread that polls it when no submitter does.
#![expect(unsafe_code, reason = "follows the slots' protocol")]

mod alone;
mod drain;
mod drive;
mod submit;
mod thread;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
pub(in crate::shared) use drive::Caller;
#[cfg(all(test, not(loom)))]
pub(in crate::shared) use thread::nap_for;
pub(in crate::shared) use thread::on_lane;

use super::deferred_callbacks::DeferredCallback;
use super::inbox::{FreeSlots, Inbox, Links};
use super::slot::Slot;
use super::wait_queue::WaitQueue;
use crate::planner::check::Lists;
use crate::planner::inline::{Executed, Inline};
use crate::planner::plan::QueueCaps;
use crate::planner::{LogEvent, Planner, error};
use crate::{Counters, EngineId, Error, InlineExecutor, QueueOptions};
use dma_process::{ForkMark, lock};

/// The lane's thread runs and checks the inboxes.
const AWAKE: u8 = 0;
/// The lane's thread sleeps, and submitters must wake it.
const ASLEEP: u8 = 1;
/// The lane's thread has exited, and submitters fail their own requests.
const GONE: u8 = 2;

pub(in crate::shared) struct Lane {
    /// This field is declared before the slots, so that the device is dropped before memory that it may use.
    core: CachePadded<Mutex<Core>>,
    pub(in crate::shared) engine: EngineId,
    pub(in crate::shared) backend: &'static str,
    inline: Inline,
    pub(in crate::shared) caps: QueueCaps,
    pub(in crate::shared) stall_timeout: Duration,
    /// Maximum time that operations of tasks wait to share a doorbell; 0 if they do not wait.
    doorbell_delay: Duration,
    pub(in crate::shared) slots: Box<[Slot]>,
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
    /// The stall detector's steps of the lane's thread.
    stall_steps: AtomicU32,
    thread: OnceLock<Thread>,
    /// The state of the lane's thread: `AWAKE`, `ASLEEP` or `GONE`.
    presence: AtomicU8,
    /// The deadline for draining; `None` until the lane is closed.
    closing: Mutex<Option<Instant>>,
    refuses: AtomicBool,
    /// The error of a lost device.
    lost: OnceLock<Error>,
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

/// If a panic drops this value, the lane refuses operations.
struct RefuseOnPanic<'a>(&'a AtomicBool);

impl Drop for RefuseOnPanic<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Lane {
    const INBOXES: usize = 4;

    pub(in crate::shared) fn new(
        mut planner: Planner,
        options: &QueueOptions,
        wait_queue: Arc<WaitQueue>,
    ) -> Self {
        let depth = planner.outcomes.ops.len();
        // The lists have room for all operations, because an allocation that fails ends the program. A
        // dropped transfer has two callbacks: its operands are dropped, and a task that waits for room is
        // woken.
        let callbacks = || Vec::with_capacity(2 * depth);
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
                callbacks: callbacks(),
                runs: 0,
            })),
            spare: Mutex::new(vec![callbacks()]),
            lists: Mutex::new(Lists::with_memory()),
            full: AtomicU64::new(0),
            driven: CachePadded::new(AtomicU64::new(0)),
            reports: CachePadded::new(AtomicU64::new(0)),
            stalled_at: Mutex::default(),
            stall_steps: AtomicU32::new(0),
            thread: OnceLock::new(),
            presence: AtomicU8::new(AWAKE),
            closing: Mutex::new(None),
            refuses: AtomicBool::new(false),
            lost: OnceLock::new(),
            process: ForkMark::new(),
        }
    }

    /// Returns whether the lane refuses new operations, because it is closed, its engine has panicked, its
    /// device is lost, or it is the parent's.
    #[inline]
    pub(in crate::shared) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed) || self.is_parents()
    }

    /// Returns whether the lane belongs to the parent of this forked process. If so, a thread that does not
    /// exist in this process may hold the lane's locks.
    #[inline]
    pub(in crate::shared) fn is_parents(&self) -> bool {
        self.process.is_child()
    }

    /// Returns the error for a submission if the lane refuses it.
    pub(in crate::shared) fn refusal(&self) -> Option<Error> {
        self.refuses().then(|| self.why_abandoned().unwrap_or_else(error::closed))
    }

    /// Returns the error of a forked process or of a lost device.
    pub(in crate::shared) fn why_abandoned(&self) -> Option<Error> {
        if self.is_parents() { Some(error::forked()) } else { self.lost() }
    }

    /// Returns the error of a lost device.
    pub(in crate::shared) fn lost(&self) -> Option<Error> {
        self.lost.get().map(error::lost)
    }

    /// Returns whether the lane's executor selects the copies that it executes.
    #[inline]
    pub(in crate::shared) const fn selects_copies(&self) -> bool {
        self.inline.selects_copies()
    }

    /// Executes an operation in this call, if the lane allows this and `run` finds the operation valid and
    /// short enough. Lock-free.
    #[inline]
    pub(in crate::shared) fn execute_inline(
        &self,
        run: impl FnOnce(&Inline) -> Option<Executed>,
    ) -> Option<Executed> {
        if !self.inline.is_allowed() || self.refuses() {
            return None;
        }
        let panics = RefuseOnPanic(&self.refuses);
        let executed = run(&self.inline);
        std::mem::forget(panics);
        executed
    }

    /// Returns the executor, if the engine has one and the lane is open.
    pub(in crate::shared) fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        self.inline.executor()
    }

    pub(in crate::shared) fn lists(&self) -> MutexGuard<'_, Lists> {
        lock(&self.lists)
    }

    pub(in crate::shared) fn count_full(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees the slot of an operation whose operands were returned, and wakes the next waiting task.
    #[inline]
    pub(in crate::shared) fn release(&self, slot: u32) {
        self.free.give(slot);
        if !self.is_parents()
            && let Some(waker) = self.wait_queue.next()
        {
            DeferredCallback::Wake(waker).run();
        }
    }

    /// Returns whether the lane accepts an operation: it does not refuse operations, and a slot is free.
    pub(in crate::shared) fn has_room(&self) -> bool {
        !self.refuses() && self.free.any()
    }

    /// Returns the number of operations that the lane accepts.
    pub(in crate::shared) fn available(&self) -> usize {
        if self.refuses() { 0 } else { self.free.count() }
    }

    /// Locks the core for reading, even if the engine has panicked under the lock.
    fn lock(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
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
        // The engine may have logged why it panics.
        self.emit(&mut core);
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
        let empty = lock(&self.spare).pop().unwrap_or_default();
        let mut callbacks = std::mem::replace(&mut core.callbacks, empty);
        drop(core);
        callbacks.drain(..).for_each(DeferredCallback::run);
        lock(&self.spare).push(callbacks);
    }

    /// Returns the counters. Requests that have not been passed to the planner count as in flight.
    pub(in crate::shared) fn counters(&self) -> Counters {
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
    pub(in crate::shared) fn reports(&self) -> u64 {
        self.reports.load(Ordering::Relaxed)
    }

    pub(in crate::shared) fn depth(&self) -> usize {
        self.slots.len()
    }

    #[cfg(all(test, not(loom)))]
    pub(in crate::shared) fn wait_queue(&self) -> Arc<WaitQueue> {
        Arc::clone(&self.wait_queue)
    }

    #[cfg(all(test, not(loom)))]
    pub(in crate::shared) fn sleeps(&self) -> bool {
        self.presence.load(Ordering::Relaxed) == ASLEEP
    }

    /// Returns whether all inboxes are empty.
    fn is_empty(&self) -> bool {
        self.submitted.iter().all(|inbox| inbox.is_empty())
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
