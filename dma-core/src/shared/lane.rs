//! [`Lane`]: one device queue, the operations on it, and the thread that drives it when nobody else does.
#![expect(unsafe_code, reason = "keeps the slots' protocol")]

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::after::{After, guarded};
use super::inbox::{FreeSlots, Inbox, Links};
use super::line::Line;
use super::silence::Silence;
use super::slot::{Report, Request, Slot, Work};
use crate::queue::check::Lists;
use crate::queue::patience::Patience;
use crate::queue::planner::{News, Planner};
use crate::{Counters, EngineId, Outcome, QueueOptions};

/// The lane's thread looks at the inboxes by itself.
const AWAKE: u8 = 0;
/// It sleeps: who submits wakes it.
const ASLEEP: u8 = 1;
/// It has taken its last look: who submits ends what it submitted.
const GONE: u8 = 2;

thread_local! {
    /// Whether this is the thread of a lane, of whichever queue.
    static ON_LANE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is the thread of a lane. It must not wait for the end of one: of itself never, of another one that might wait for it.
pub(super) fn on_lane() -> bool {
    ON_LANE.get()
}

pub(super) struct Lane {
    /// Before the slots, whose memory the device may use, so that it is dropped before them.
    core: CachePadded<Mutex<Core>>,
    pub(super) engine: EngineId,
    pub(super) backend: &'static str,
    pub(super) can_fill: bool,
    pub(super) stall_timeout: Duration,
    pub(super) slots: Box<[Slot]>,
    /// Slots that no operation uses.
    free: FreeSlots,
    /// Tasks that wait for one, on any lane of the queue.
    line: Arc<Line>,
    /// Slots with a request for the device. Several, so that threads which submit and wait at the same time mostly meet their own.
    submitted: [CachePadded<Inbox>; Self::INBOXES],
    links: Links,
    /// Emptied lists for what is left to run.
    spare: Mutex<Vec<Vec<After>>>,
    pub(super) lists: Mutex<Lists>,
    full: AtomicU64,
    /// How often a thread other than the lane's own made progress.
    driven: CachePadded<AtomicU64>,
    /// How often the device reported something, to whomever. Written under the lock.
    reports: CachePadded<AtomicU64>,
    silence: Silence,
    thread: OnceLock<Thread>,
    /// `AWAKE`, `ASLEEP` or `GONE`.
    presence: AtomicU8,
    /// Set by whoever closes: until when to drain.
    closing: Mutex<Option<Instant>>,
    refuses: AtomicBool,
}

struct Core {
    planner: Planner,
    /// The device has been given up: nothing is asked of it any more, and requests end as closed.
    over: bool,
    /// Scratch: slots taken, how many of them have been handed to the planner, and slots that ended.
    taken: Vec<u32>,
    accepted: usize,
    ended: Vec<u32>,
    /// What is to be run once the lock is free.
    after: Vec<After>,
    /// Runs so far.
    runs: u32,
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
    /// In one of so many runs, one who drives takes everybody's requests, however many of its own there are. Others may have nobody else who does:
    /// the lane's thread stays away while somebody drives.
    const TURNS: u32 = 16;

    pub(super) fn new(planner: Planner, options: &QueueOptions, line: Arc<Line>) -> Self {
        let depth = planner.ops.len();
        Self {
            engine: planner.engine,
            backend: planner.backend,
            can_fill: planner.can_fill(),
            stall_timeout: options.stall_timeout,
            slots: std::iter::repeat_with(Slot::new).take(depth).collect(),
            free: FreeSlots::new(depth),
            line,
            submitted: std::array::from_fn(|_| CachePadded::new(Inbox::new())),
            links: Links::new(depth),
            core: CachePadded::new(Mutex::new(Core {
                planner,
                over: false,
                taken: Vec::with_capacity(depth),
                accepted: 0,
                ended: Vec::with_capacity(depth),
                after: Vec::new(),
                runs: 0,
            })),
            spare: Mutex::default(),
            lists: Mutex::new(Lists::default()),
            full: AtomicU64::new(0),
            driven: CachePadded::new(AtomicU64::new(0)),
            reports: CachePadded::new(AtomicU64::new(0)),
            silence: Silence::new(),
            thread: OnceLock::new(),
            presence: AtomicU8::new(AWAKE),
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
        // Either the thread sees the request before it sleeps or goes, or this sees it asleep or gone: all four accesses are sequentially
        // consistent.
        let presence = self.presence.load(Ordering::SeqCst);
        if presence != AWAKE {
            self.rouse(presence);
        }
        Some(slot)
    }

    /// Sees to a request that the lane's thread does not look for.
    #[cold]
    fn rouse(&self, presence: u8) {
        if presence == GONE {
            // The lane was closed while this thread was about to submit. It waits for the lock, which nobody holds for long any more: a
            // request left behind would hang for ever.
            let mut core = self.enter();
            self.run(&mut core, None);
            self.leave(core);
        } else if self.presence.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            && let Some(thread) = self.thread.get()
        {
            // Otherwise it is awake already, or somebody else wakes it.
            thread.unpark();
        }
    }

    pub(super) fn count_full(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes a slot whose operation was taken ready for another, and wakes who waits for one.
    #[inline]
    pub(super) fn release(&self, slot: u32) {
        self.free.give(slot);
        if let Some(waker) = self.line.next() {
            After::Wake(waker).run();
        }
    }

    /// Whether a slot is free.
    pub(super) fn has_room(&self) -> bool {
        self.free.any()
    }

    /// Slots that are free at the moment.
    pub(super) fn room(&self) -> usize {
        self.free.count()
    }

    /// Submits what has gathered and polls the device, unless another thread is at it. Does not block. A caller with a `home` number leaves other
    /// callers' requests to them while it has some of its own.
    pub(super) fn drive(&self, home: Option<usize>) -> Driven {
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::WouldBlock) => return Driven::Busy,
            Err(TryLockError::Poisoned(e)) => self.wrecked(e.into_inner()),
        };
        let progress = self.run(&mut core, home);
        self.leave(core);
        Driven::Progress(progress)
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

    /// The lock, for a look. No user code runs under it.
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, for [`run`](Self::run) and the like. To be given to [`leave`](Self::leave).
    fn enter(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|e| self.wrecked(e.into_inner()))
    }

    /// The engine has panicked under the lock. What it took before is not known, so it is not asked again.
    #[cold]
    fn wrecked<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        self.refuses.store(true, Ordering::SeqCst);
        self.give_up(&mut core);
        self.core.clear_poison();
        core.after.push(After::Tell(News::Wrecked, self.backend));
        core.after.extend(self.line.all().into_iter().map(After::Wake));
        core
    }

    /// Unlocks, and then runs what users left to be run.
    #[inline]
    fn leave(&self, core: MutexGuard<'_, Core>) {
        if !core.after.is_empty() {
            self.run_after(core);
        }
    }

    fn run_after(&self, mut core: MutexGuard<'_, Core>) {
        let empty = self.spares().pop().unwrap_or_default();
        let mut after = std::mem::replace(&mut core.after, empty);
        drop(core);
        after.drain(..).for_each(After::run);
        self.spares().push(after);
    }

    fn spares(&self) -> MutexGuard<'_, Vec<Vec<After>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, core: &mut Core, home: Option<usize>) -> usize {
        core.runs = core.runs.wrapping_add(1);
        if let Some(home) = home
            && !core.runs.is_multiple_of(Self::TURNS)
        {
            self.submitted[home % Self::INBOXES].take(&self.links, &mut core.taken);
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
                core.planner.flush(&mut core.ended);
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
        progress
    }

    /// Ends the requests taken, which never reached the planner.
    #[cold]
    fn refuse(&self, core: &mut Core) {
        for slot in core.taken.drain(..).skip(std::mem::take(&mut core.accepted)) {
            // SAFETY: the slot came out of an inbox; its request never reached the planner.
            let after = unsafe { self.slots[slot as usize].complete(Some(Report::Closed)) };
            self.ended(&mut core.after, slot, after);
        }
    }

    /// Notes what the end of an operation leaves to be done.
    #[inline]
    fn ended(&self, list: &mut Vec<After>, slot: u32, after: Option<After>) {
        let Some(after) = after else { return };
        let is_over = matches!(after, After::Drop(_));
        list.push(after);
        if is_over {
            self.free.give(slot);
            list.extend(self.line.next().map(After::Wake));
        }
    }

    /// Hands the requests taken to the planner.
    fn accept(&self, core: &mut Core) {
        // By index: should the engine panic, the rest must not be lost.
        while let Some(&slot) = core.taken.get(core.accepted) {
            core.accepted += 1;
            let cell = &self.slots[slot as usize];
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
        core.taken.clear();
        core.accepted = 0;
    }

    /// Reports what has ended, and what there is to tell the log.
    fn complete(&self, core: &mut Core) {
        // First, so that whoever sees its operation ended finds the lists for the next one.
        if core.planner.lists.has_spare() {
            self.lists.lock().unwrap_or_else(PoisonError::into_inner).absorb(&mut core.planner.lists);
        }
        if !core.planner.news.is_empty() {
            self.tell(core);
        }
        for slot in core.ended.drain(..) {
            let report = match core.planner.ops[slot as usize].outcome {
                Outcome::Done => None,
                _ => Some(Report::Failed(core.planner.take_failures(slot))),
            };
            // SAFETY: the planner ends every operation once.
            let after = unsafe { self.slots[slot as usize].complete(report) };
            self.ended(&mut core.after, slot, after);
        }
    }

    #[cold]
    fn tell(&self, core: &mut Core) {
        core.after.extend(core.planner.news.drain(..).map(|news| After::Tell(news, self.backend)));
    }

    pub(super) fn counters(&self) -> Counters {
        let mut counters = self.lock().planner.counters();
        counters.full += self.full.load(Ordering::Relaxed);
        counters
    }

    /// Differs from what it was before if the device has completed something meanwhile.
    pub(super) fn reports(&self) -> u64 {
        self.reports.load(Ordering::Relaxed)
    }

    /// For how long the device has had work and completed none of it, if the lane's thread has found that to be too long.
    pub(super) fn stalled(&self) -> Option<Duration> {
        self.silence.lasts(self.reports())
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Refuses new operations from here on and has the lane's thread drain until `deadline`, then stop. Returns the earliest deadline of all who
    /// closed: that one counts.
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

    fn closing(&self) -> Option<Instant> {
        if !self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane's thread. Returns once the lane is closed and drained.
    pub(super) fn serve(&self) {
        ON_LANE.set(true);
        self.thread.get_or_init(std::thread::current);
        let deadline = self.watch();
        self.silence.end();
        self.drain(deadline);
    }

    /// Drives the device while operations are in flight and nobody waits for them by driving it, and sleeps otherwise. Returns the deadline once the
    /// lane is closed.
    fn watch(&self) -> Instant {
        /// Looks without progress before other threads are let in, and before naps.
        const SPINS: u32 = 64;
        const YIELDS: u32 = 256;
        /// Naps between looks while there is nothing to do, and how many until sleeping for good.
        const NAP: Duration = Duration::from_micros(50);
        const NAPS: u32 = 100;

        let mut idle = 0_u32;
        let mut naps = 0_u32;
        let mut driven = 0;
        let mut patience = Patience::new(self.stall_timeout);
        loop {
            if let Some(deadline) = self.closing() {
                return deadline;
            }
            let now_driven = self.driven.load(Ordering::Relaxed);
            if std::mem::replace(&mut driven, now_driven) != now_driven {
                // Those who wait do the work, and sooner than this thread would.
                naps = 0;
                std::thread::park_timeout(NAP);
                continue;
            }
            // If the engine panics, the next look finds the lock poisoned.
            if let Some(Driven::Progress(1..)) = guarded("the engine", || self.drive(None)) {
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
            } else if self.watch_device(&mut patience) {
                naps = naps.saturating_add(1);
                let nap = NAP * nap_for(naps);
                if nap == NAP {
                    std::thread::park_timeout(NAP);
                } else if self.sleep(Some(nap)) {
                    // A device that was given something new may have it done soon.
                    naps = 0;
                }
            } else {
                self.sleep(None);
                idle = 0;
                naps = 0;
            }
        }
    }

    /// Whether something is in flight; if so, sees whether the device hangs.
    fn watch_device(&self, patience: &mut Patience) -> bool {
        let core = self.lock();
        let in_flight = !core.over && core.planner.open_operations() > 0;
        let (reports, looks) = (self.reports(), core.planner.looks());
        drop(core);
        if !in_flight {
            patience.rest();
            self.silence.end();
            return false;
        }
        let now = Instant::now();
        if let Some(silence) = patience.ask(reports, looks, now)
            && self.silence.begin(reports, now.checked_sub(silence))
        {
            let tell = || {
                tracing::warn!(backend = self.backend, ?silence, "the device has work and completes nothing")
            };
            guarded("the log", tell);
            // Who waits for room is to know.
            self.line.all().into_iter().map(After::Wake).for_each(After::run);
        }
        true
    }

    /// Sleeps for `nap`, or without one until there is something to do, unless there is already. Returns whether somebody woke it for a request.
    fn sleep(&self, nap: Option<Duration>) -> bool {
        // Either this sees a request that came meanwhile, or its submitter sees this thread asleep. Whoever drained the lane has the last word.
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
        // Nobody to tell if it is not ASLEEP any more.
        self.presence.compare_exchange(ASLEEP, AWAKE, order, otherwise).is_err()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line)
    }

    /// Whether the lane's thread is asleep.
    #[cfg(all(test, not(loom)))]
    pub(super) fn sleeps(&self) -> bool {
        self.presence.load(Ordering::Relaxed) == ASLEEP
    }

    /// Whether no request waits to be taken.
    fn is_empty(&self) -> bool {
        self.submitted.iter().all(|inbox| inbox.is_empty())
    }

    fn in_flight(&self) -> bool {
        let core = self.lock();
        !core.over && core.planner.open_operations() > 0
    }

    /// Finishes what is in flight until `deadline`, and closes the device queue. Any thread may; a second time, there is nothing left to do.
    pub(super) fn drain(&self, deadline: Instant) {
        // Somebody with less time may close meanwhile.
        let earliest = || self.closing().map_or(deadline, |other| deadline.min(other));
        if !self.poll_until(earliest, false) {
            guarded("the engine", || self.stop());
            // Stopping takes a device no time to speak of.
            let grace = Instant::now() + Duration::from_millis(500);
            self.poll_until(|| grace, true);
        }
        self.end();
    }

    /// Polls until nothing is in flight, or `until` has passed, and says which. Goes on after `until` while there is progress, if that is `enough`.
    fn poll_until(&self, until: impl Fn() -> Instant, enough: bool) -> bool {
        loop {
            let (progress, over) = guarded("the engine", || self.poll_to_drain()).unwrap_or((0, false));
            if over {
                return true;
            }
            if !(enough && progress > 0) && Instant::now() >= until() {
                return false;
            }
            if progress == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// One look, and whether nothing was in flight after it, and the device has been given up.
    fn poll_to_drain(&self) -> (usize, bool) {
        let mut core = self.enter();
        let progress = self.run(&mut core, None);
        let over = (core.over || core.planner.open_operations() == 0) && self.is_empty();
        if over {
            // At once: whoever gets the lock next may have a request that came late, which would be taken, and then abandoned.
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
        tracing::warn!(backend = self.backend, "shared queue did not drain in time; the device was stopped");
    }

    /// Gives the device up and ends what came too late for it.
    fn end(&self) {
        let mut core = self.enter();
        self.give_up(&mut core);
        self.presence.store(GONE, Ordering::SeqCst);
        // What came before GONE is ended here; what comes later, by who submits it. The fence is for the inboxes, which are looked at
        // without one.
        fence(Ordering::SeqCst);
        self.run(&mut core, None);
        self.leave(core);
    }

    /// Gives the device up. What it has not answered is its own for ever: what was parked is leaked, and holders are told.
    fn give_up(&self, core: &mut Core) {
        if std::mem::replace(&mut core.over, true) {
            return;
        }
        let planner = &mut core.planner;
        guarded("the engine", || planner.abandon());
        for (op, slot) in core.planner.ops.iter().zip(&self.slots) {
            if !op.ended {
                // SAFETY: the planner will not end it any more.
                core.after.extend(unsafe { slot.abandon() });
            }
        }
    }
}

/// How many times the shortest nap the one is that follows so many in vain. It is a sixtieth, at most, of the time that the device has taken by then, so
/// that what it completes at last is not noticed much later for it; and a device that hangs takes no CPU to speak of.
pub(super) fn nap_for(naps: u32) -> u32 {
    (naps / 64).clamp(1, 20)
}

impl Drop for Lane {
    /// Nearly always the lane was drained. If not, whatever the reason, memory that the device may still use is not freed.
    fn drop(&mut self) {
        self.end();
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
