//! [`Lane`]: one device queue, the operations on it, and the thread that drives it when nobody else does.
#![expect(unsafe_code, reason = "keeps the slots' protocol")]

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::inbox::{FreeSlots, Inbox, Links};
use super::slot::{Report, Request, Slot, Work};
use crate::queue::check::Lists;
use crate::queue::planner::Planner;
use crate::{Counters, EngineId, Outcome, QueueOptions};

pub(super) struct Lane {
    pub(super) engine: EngineId,
    pub(super) backend: &'static str,
    pub(super) can_fill: bool,
    pub(super) stall_timeout: Duration,
    pub(super) slots: Box<[Slot]>,
    /// Slots that no operation uses.
    free: FreeSlots,
    /// Slots with a request for the device. Several, so that threads which submit and wait at the same time mostly meet their own.
    submitted: [CachePadded<Inbox>; Self::INBOXES],
    links: Links,
    core: CachePadded<Mutex<Core>>,
    pub(super) lists: Mutex<Lists>,
    full: AtomicU64,
    /// How often a thread other than the lane's own made progress.
    driven: CachePadded<AtomicU64>,
    thread: OnceLock<Thread>,
    asleep: AtomicBool,
    /// Set by whoever closes: until when to drain.
    closing: Mutex<Option<Instant>>,
    refuses: AtomicBool,
}

struct Core {
    planner: Planner,
    /// Scratch: slots taken, and slots that ended.
    taken: Vec<u32>,
    ended: Vec<u32>,
}

/// What a look at the device gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driven {
    /// Somebody else is at it.
    Busy,
    /// This many descriptors were reported, and so many requests taken.
    Progress(usize),
}

impl Lane {
    const INBOXES: usize = 4;

    pub(super) fn new(planner: Planner, options: &QueueOptions) -> Self {
        let depth = planner.ops.len();
        Self {
            engine: planner.engine,
            backend: planner.backend,
            can_fill: planner.can_fill(),
            stall_timeout: options.stall_timeout,
            slots: std::iter::repeat_with(Slot::new).take(depth).collect(),
            free: FreeSlots::new(depth),
            submitted: std::array::from_fn(|_| CachePadded::new(Inbox::new())),
            links: Links::new(depth),
            core: CachePadded::new(Mutex::new(Core {
                planner,
                taken: Vec::with_capacity(depth),
                ended: Vec::with_capacity(depth),
            })),
            lists: Mutex::new(Lists::default()),
            full: AtomicU64::new(0),
            driven: CachePadded::new(AtomicU64::new(0)),
            thread: OnceLock::new(),
            asleep: AtomicBool::new(false),
            closing: Mutex::new(None),
            refuses: AtomicBool::new(false),
        }
    }

    pub(super) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }

    /// Submits a request, or returns `None` if every slot is taken. Lock-free. `home` is the caller's number: callers with different
    /// numbers mostly keep out of each other's way.
    pub(super) fn submit(&self, home: usize, fill: impl FnOnce(&mut Request)) -> Option<u32> {
        let slot = self.free.take(home)?;
        // SAFETY: the slot was free.
        unsafe { self.slots[slot as usize].submit(fill) };
        self.submitted[home % Self::INBOXES].push(&self.links, slot);
        // Either the thread sees the request before it sleeps, or this sees it asleep: all four accesses are sequentially consistent.
        if self.asleep.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
        Some(slot)
    }

    pub(super) fn count_full(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes a slot whose operation was taken ready for another.
    pub(super) fn release(&self, slot: u32) {
        self.free.give(slot);
    }

    /// Submits what has gathered and polls the device, unless another thread is at it. Does not block. A caller with a `home` number leaves other
    /// callers' requests to them while it has some of its own.
    pub(super) fn drive(&self, home: Option<usize>) -> Driven {
        match self.core.try_lock() {
            Ok(mut core) => Driven::Progress(self.run(&mut core, home)),
            Err(TryLockError::WouldBlock) => Driven::Busy,
            Err(TryLockError::Poisoned(e)) => Driven::Progress(self.run(&mut e.into_inner(), home)),
        }
    }

    /// As [`drive`](Self::drive), by a thread that waits for an operation: while there are such, the lane's own thread stays out of their
    /// way.
    pub(super) fn help(&self, home: usize) -> Driven {
        let driven = self.drive(Some(home));
        if let Driven::Progress(1..) = driven {
            self.driven.store(self.driven.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        driven
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, core: &mut Core, home: Option<usize>) -> usize {
        if let Some(home) = home {
            self.submitted[home % Self::INBOXES].take(&self.links, &mut core.taken);
        }
        if core.taken.is_empty() {
            self.submitted.iter().for_each(|inbox| inbox.take(&self.links, &mut core.taken));
        }
        let mut progress = core.taken.len();
        if progress > 0 {
            self.accept(core);
            core.planner.flush(&mut core.ended);
        }
        if core.planner.open_operations() > 0 {
            progress += core.planner.poll(&mut core.ended);
        }
        self.complete(core);
        progress
    }

    /// Hands the requests taken to the planner.
    fn accept(&self, core: &mut Core) {
        for slot in core.taken.drain(..) {
            let cell = &self.slots[slot as usize];
            if core.planner.is_closed() {
                // SAFETY: the slot came out of an inbox; its request never reached the planner.
                if unsafe { cell.complete(Some(Report::Closed)) } {
                    self.release(slot);
                }
                continue;
            }
            // SAFETY: the slot came out of an inbox.
            unsafe {
                cell.request(|request| {
                    core.planner.begin(slot, request.operations, request.bytes, true);
                    match std::mem::replace(&mut request.work, Work::None) {
                        Work::Flat => {
                            if let Some((src, dst)) = request.flat {
                                core.planner.push_flat(slot, 0, src, dst);
                            }
                        }
                        Work::Plan(plan) => core.planner.push(slot, 0, plan),
                        Work::Batch => {
                            for (index, plan) in (0..).zip(request.batch.drain(..)) {
                                core.planner.push(slot, index, plan);
                            }
                        }
                        Work::None => {}
                    }
                });
            }
            core.planner.pushed(slot, &mut core.ended);
        }
    }

    /// Reports what has ended.
    fn complete(&self, core: &mut Core) {
        // First, so that whoever sees its operation ended finds the lists for the next one.
        if core.planner.lists.has_spare() {
            self.lists.lock().unwrap_or_else(PoisonError::into_inner).absorb(&mut core.planner.lists);
        }
        for slot in core.ended.drain(..) {
            let report = match core.planner.ops[slot as usize].outcome {
                Outcome::Done => None,
                _ => Some(Report::Failed(core.planner.take_failures(slot))),
            };
            // SAFETY: the planner ends every operation once.
            if unsafe { self.slots[slot as usize].complete(report) } {
                self.release(slot);
            }
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let mut counters = self.lock().planner.counters();
        counters.full += self.full.load(Ordering::Relaxed);
        counters
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Refuses new operations from here on and has the lane's thread drain until `deadline`, then stop.
    pub(super) fn close(&self, deadline: Instant) {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        // The first word counts.
        closing.get_or_insert(deadline);
        self.refuses.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn closing(&self) -> Option<Instant> {
        if !self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane's thread: drives the device while operations are in flight and nobody waits for them by driving it, and sleeps otherwise.
    /// Returns once the lane is closed and drained.
    pub(super) fn serve(&self) -> Counters {
        /// Looks without progress before other threads are let in, and before naps.
        const SPINS: u32 = 64;
        const YIELDS: u32 = 256;
        /// Naps between looks while there is nothing to do, and how many until sleeping for good.
        const NAP: Duration = Duration::from_micros(50);
        const NAPS: u32 = 100;

        self.thread.get_or_init(std::thread::current);
        let mut idle = 0_u32;
        let mut naps = 0_u32;
        let mut driven = 0;
        loop {
            if let Some(deadline) = self.closing() {
                return self.drain(deadline);
            }
            let now_driven = self.driven.load(Ordering::Relaxed);
            if std::mem::replace(&mut driven, now_driven) != now_driven {
                // Those who wait do the work, and sooner than this thread would.
                naps = 0;
                std::thread::park_timeout(NAP);
                continue;
            }
            if let Driven::Progress(1..) = self.drive(None) {
                idle = 0;
                naps = 0;
                continue;
            }
            idle = idle.saturating_add(1);
            if idle < SPINS {
                std::hint::spin_loop();
            } else if idle < YIELDS {
                std::thread::yield_now();
            } else if naps < NAPS || self.in_flight() {
                naps = naps.saturating_add(1);
                std::thread::park_timeout(NAP);
            } else {
                // Either this sees a request that came meanwhile, or its submitter sees this thread asleep.
                self.asleep.store(true, Ordering::SeqCst);
                if self.is_empty() && !self.in_flight() && self.closing().is_none() {
                    std::thread::park();
                }
                self.asleep.store(false, Ordering::Relaxed);
                idle = 0;
                naps = 0;
            }
        }
    }

    /// Whether no request waits to be taken.
    fn is_empty(&self) -> bool {
        self.submitted.iter().all(|inbox| inbox.is_empty())
    }

    fn in_flight(&self) -> bool {
        self.lock().planner.open_operations() > 0
    }

    /// Finishes what is in flight and closes the device queue.
    fn drain(&self, deadline: Instant) -> Counters {
        let poll_until = |until: Instant| {
            loop {
                let mut core = self.lock();
                let progress = self.run(&mut core, None);
                if core.planner.open_operations() == 0 && self.is_empty() {
                    return true;
                }
                drop(core);
                if progress == 0 {
                    if Instant::now() >= until {
                        return false;
                    }
                    std::thread::yield_now();
                }
            }
        };
        if !poll_until(deadline) {
            tracing::warn!(backend = self.backend, "shared queue did not drain in time; stopping the device");
            {
                let mut core = self.lock();
                let core = &mut *core;
                core.planner.stop(&mut core.ended);
                self.complete(core);
            }
            // Stopping takes a device no time to speak of.
            poll_until(Instant::now() + Duration::from_millis(500));
        }
        let mut core = self.lock();
        if core.planner.abandon() {
            for (op, slot) in core.planner.ops.iter().zip(&self.slots) {
                if !op.ended {
                    // SAFETY: the planner will not end it any more.
                    unsafe { slot.abandon() };
                }
            }
        }
        // What came too late is refused here; what comes later still, by whoever waits for it.
        self.run(&mut core, None);
        let mut counters = core.planner.counters();
        counters.full += self.full.load(Ordering::Relaxed);
        counters
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
