//! [`Queue`]: one thread's path to a device.

mod batch;
pub(crate) mod check;
mod cut;
pub(crate) mod error;
#[cfg(all(test, not(loom)))]
pub(crate) mod odd_device;
pub(crate) mod patience;
pub(crate) mod planner;
mod transfer;
pub(crate) mod wait;

use std::any::Any;
use std::cell::{RefCell, RefMut};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

pub use batch::Batch;
pub(crate) use error::Operation;
pub use error::{OpError, OpFailure};
use patience::Patience;
use planner::{News, Plan, Planner};
pub use transfer::Transfer;

use crate::{
    BufferMut, Counters, Destination, EngineInfo, Error, ErrorKind, QueueOptions, RawQueue, Result, Source,
};

/// How long a device has to stop, whatever time its queue had to drain. It takes none to speak of; but what works for a software device may be kept from
/// running for a while by a busy machine, and memory that it is taken to be dead over is lost.
const STOP: Duration = Duration::from_secs(1);

/// A transfer, or the operands handed back with the reason.
pub type SubmitResult<T> = Result<Transfer<T>, OpError<T>>;

/// One thread's submission and completion path to a device.
///
/// Operations take their operands by value and give them back when they are done:
///
/// ```
/// # fn demo(queue: &dma_core::Queue, src: dma_core::Buffer, dst: dma_core::BufferMut) -> dma_core::Result<()> {
/// let (src, dst) = queue.copy(src, dst)?.wait()?;
/// assert_eq!(&src[..], &dst[..]);
/// # Ok(()) }
/// ```
///
/// - Submitting never blocks: a full queue hands the operands back ([`ErrorKind::QueueFull`], or [`ErrorKind::TimedOut`] if the device hangs). An operation counts against the depth until its
///   [`Transfer`] is taken or dropped.
/// - Operations gather until [`flush`](Self::flush), a wait, or an await: one doorbell for all of them.
/// - Order between operations is not promised, except across a [`fence`](Self::fence).
/// - What is longer, or has more segments, than the device takes is cut up inside.
/// - A queue belongs to the thread that opened it. For many threads, or futures that move between them, there is
///   [`SharedQueue`](crate::SharedQueue).
/// - Dropping it waits for what is in flight, at most [`QueueOptions::drop_timeout`] and what it takes to [`close`](Self::close) then, which also
///   says how that went.
pub struct Queue {
    shared: Rc<RefCell<State>>,
    drop_timeout: Duration,
}

/// What a queue and its transfers share.
struct State {
    planner: Planner,
    free: Vec<u32>,
    attendants: Vec<Attendant>,
    /// Slots whose operations ended and are attended: scratch, as is what follows from it.
    ended: Vec<u32>,
    spare: Aftermath,
    stall_timeout: Duration,
    /// Asked where the queue is full.
    patience: Patience,
    /// Whether an awaiting transfer asks to be polled again by itself, because nobody drives the queue.
    cooperative: bool,
}

/// Who waits for an operation, or what a transfer dropped early left behind.
#[derive(Default)]
struct Attendant {
    waker: Option<Waker>,
    parked: Option<Box<dyn Any>>,
}

/// What must be done once the state is no longer borrowed: all of it may run anybody's code.
#[derive(Default)]
struct Aftermath {
    news: Vec<News>,
    backend: &'static str,
    wake: Vec<Waker>,
    drop: Vec<Box<dyn Any>>,
}

impl Aftermath {
    /// Does all of it, and keeps the emptied lists for the next time. A panic goes on once everybody else has had their turn.
    fn run(mut self, shared: &RefCell<State>) {
        let mut others = Others::default();
        self.news.drain(..).for_each(|news| others.run(|| news.tell(self.backend)));
        self.drop.drain(..).for_each(|operands| others.run(|| drop(operands)));
        self.wake.drain(..).for_each(|waker| others.run(|| waker.wake()));
        shared.borrow_mut().spare = self;
        others.go_on();
    }
}

/// Code of others, of which a panic keeps none from running.
#[derive(Default)]
struct Others {
    /// The last one.
    panic: Option<Box<dyn Any + Send>>,
}

impl Others {
    fn run(&mut self, f: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
            // What was thrown may panic, too, as it is dropped.
            std::mem::forget(self.panic.replace(panic));
        }
    }

    fn go_on(self) {
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
    }
}

impl State {
    /// Flushes, and polls the device; what that leads to is for the caller to run.
    fn drive(&mut self) -> Option<Aftermath> {
        self.planner.flush(&mut self.ended);
        self.planner.poll(&mut self.ended);
        self.attend()
    }

    /// Polls the device; what that leads to is for the caller to run.
    fn poll(&mut self) -> (usize, Option<Aftermath>) {
        let reported = self.planner.poll(&mut self.ended);
        (reported, self.attend())
    }

    #[inline]
    fn attend(&mut self) -> Option<Aftermath> {
        if self.ended.is_empty() && self.planner.news.is_empty() { None } else { Some(self.attend_ended()) }
    }

    /// What there is to tell the log, and room for more.
    fn aftermath(&mut self) -> Aftermath {
        let mut aftermath = std::mem::take(&mut self.spare);
        aftermath.backend = self.planner.backend;
        aftermath.news.append(&mut self.planner.news);
        aftermath
    }

    #[cold]
    fn attend_ended(&mut self) -> Aftermath {
        let mut aftermath = if self.planner.is_wrecked() {
            self.abandon();
            self.wake_all()
        } else {
            self.aftermath()
        };
        for slot in self.ended.drain(..) {
            let op = &mut self.planner.ops[slot as usize];
            // Its holder may have seen the end by itself and left; what has the slot now ends when it ends.
            if !op.ended || !op.attended {
                continue;
            }
            op.attended = false;
            let attendant = &mut self.attendants[slot as usize];
            aftermath.wake.extend(attendant.waker.take());
            if let Some(operands) = attendant.parked.take() {
                aftermath.drop.push(operands);
                self.planner.take_failures(slot);
                self.free.push(slot);
            }
        }
        aftermath
    }

    fn flush(&mut self) -> Option<Aftermath> {
        self.planner.flush(&mut self.ended);
        self.attend()
    }

    /// For how long a device that has work has completed none of it, if that is too long.
    fn stalled(&mut self) -> Option<Duration> {
        if !self.planner.is_at_device() {
            self.patience.rest();
            return None;
        }
        self.patience.ask(self.planner.reported(), self.planner.looks(), Instant::now())
    }

    /// Has every task that waits look for itself.
    fn wake_all(&mut self) -> Aftermath {
        let mut aftermath = self.aftermath();
        aftermath.wake.extend(self.attendants.iter_mut().filter_map(|a| a.waker.take()));
        aftermath
    }

    /// Gives up the device, and the memory that it may write to for ever.
    fn abandon(&mut self) {
        // First, since the engine may panic.
        self.attendants.iter_mut().for_each(|a| std::mem::forget(a.parked.take()));
        self.planner.abandon();
        // No slot to give out: submitting answers that the queue is closed.
        self.free.clear();
    }
}

/// A queue that somebody's waker or destructor kept from being closed, by a panic, may have descriptors in flight.
impl Drop for State {
    fn drop(&mut self) {
        if !self.planner.is_closed() {
            self.abandon();
            let (mut others, backend) = (Others::default(), self.planner.backend);
            self.planner.news.drain(..).for_each(|news| others.run(|| news.tell(backend)));
            // A panic ends here: there may be one under way.
            std::mem::forget(others);
        }
    }
}

/// Polls the device once. Returns how many descriptors were reported.
fn poll(shared: &RefCell<State>) -> usize {
    let (reported, aftermath) = shared.borrow_mut().poll();
    if let Some(aftermath) = aftermath {
        aftermath.run(shared);
    }
    reported
}

fn flush(shared: &RefCell<State>) {
    let aftermath = shared.borrow_mut().flush();
    if let Some(aftermath) = aftermath {
        aftermath.run(shared);
    }
}

impl Queue {
    pub(crate) fn new(
        raw: Box<dyn RawQueue>,
        info: &EngineInfo,
        options: &QueueOptions,
        fill_block: Option<BufferMut>,
    ) -> Self {
        let depth = raw.depth();
        let slots = u32::try_from(depth).unwrap_or(u32::MAX);
        Self {
            shared: Rc::new(RefCell::new(State {
                planner: Planner::new(raw, info, depth, fill_block),
                // Taken from the end: low slots first.
                free: (0..slots).rev().collect(),
                attendants: std::iter::repeat_with(Attendant::default).take(depth).collect(),
                ended: Vec::new(),
                spare: Aftermath::default(),
                stall_timeout: options.stall_timeout,
                patience: Patience::new(options.stall_timeout),
                cooperative: true,
            })),
            drop_timeout: options.drop_timeout,
        }
    }

    /// Copies `src` to `dst`, which have the same length and do not overlap.
    ///
    /// Does not block, and need not start before [`flush`](Self::flush). A copy of no bytes is done at once.
    ///
    /// # Errors
    ///
    /// With the operands: `QueueFull`, or `TimedOut` if besides the device hangs: it has been polled, and has completed nothing, for
    /// [`QueueOptions::stall_timeout`]; `LengthMismatch`; `Overlap`; `AccessDenied` if a region lacks the right; `WrongEngine` for memory of
    /// another engine; `Closed`. Nothing has reached the device then.
    #[inline]
    pub fn copy<S: Source, D: Destination>(&self, src: S, dst: D) -> SubmitResult<(S, D)> {
        let mut guard = self.shared.borrow_mut();
        let state = &mut *guard;
        if S::SINGLE && D::SINGLE {
            let (from, to) = (src.single(), dst.single());
            return match check::flat::<D>(state.planner.engine, from, to) {
                Ok(len) => {
                    let Some(slot) = Self::begin(state, 1, len) else {
                        return Err(Self::full(state, Operation::Copy, Plan::Empty, (src, dst)));
                    };
                    if len > 0 {
                        state.planner.push_flat(slot, 0, from.segment(), to.segment());
                    }
                    Ok(self.pushed(guard, slot, Operation::Copy, (src, dst)))
                }
                Err(e) => Err(Self::refuse(state, Operation::Copy, e, (src, dst))),
            };
        }
        match check::copy(state.planner.engine, &src, &dst, &mut state.planner.lists) {
            Ok(plan) => {
                let Some(slot) = Self::begin(state, 1, plan.len()) else {
                    return Err(Self::full(state, Operation::Copy, plan, (src, dst)));
                };
                state.planner.push(slot, 0, plan);
                Ok(self.pushed(guard, slot, Operation::Copy, (src, dst)))
            }
            Err(e) => Err(Self::refuse(state, Operation::Copy, e, (src, dst))),
        }
    }

    /// Fills `dst` with the bytes of `pattern` over and over, beginning at its first byte. `[x; 8]` sets every byte to `x`. Where the device has
    /// no fill, it copies from memory that holds the pattern.
    ///
    /// Does not block, and need not start before [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// With the operand: as [`copy`](Self::copy), and `Unsupported` if the engine can neither fill nor allocate memory to copy from.
    pub fn fill<D: Destination>(&self, dst: D, pattern: [u8; 8]) -> SubmitResult<D> {
        let mut guard = self.shared.borrow_mut();
        let state = &mut *guard;
        if !state.planner.can_fill() {
            let error =
                Error::new(ErrorKind::Unsupported, "the device has no fill, and no memory to copy one from");
            return Err(Self::refuse(state, Operation::Fill, error, dst));
        }
        match check::fill(state.planner.engine, &dst, pattern, &mut state.planner.lists) {
            Ok(plan) => {
                let Some(slot) = Self::begin(state, 1, plan.len()) else {
                    return Err(Self::full(state, Operation::Fill, plan, dst));
                };
                state.planner.push(slot, 0, plan);
                Ok(self.pushed(guard, slot, Operation::Fill, dst))
            }
            Err(e) => Err(Self::refuse(state, Operation::Fill, e, dst)),
        }
    }

    /// Submits every copy of `batch` and flushes. The batch takes one place of the queue's depth and completes as a whole.
    ///
    /// All copies are checked before any is handed to the device. Copies of one batch are in no order, and the destination of one may not
    /// be named by another: buffers cannot, windows must not (the bytes are undefined if they do).
    ///
    /// # Errors
    ///
    /// With the batch: as [`copy`](Self::copy), naming the first copy that is refused; none was submitted then.
    pub fn submit<S: Source, D: Destination>(&self, batch: Batch<S, D>) -> SubmitResult<Batch<S, D>> {
        let mut guard = self.shared.borrow_mut();
        let state = &mut *guard;
        let engine = state.planner.engine;
        let operations = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        // The usual batch is checked and handed to the planner in one go.
        let mut flat = None;
        if S::SINGLE
            && D::SINGLE
            && let Some(&slot) = state.free.last()
        {
            flat = state.planner.push_all_flat(slot, batch.pairs.iter());
        }
        let bytes = match flat {
            Some(bytes) => bytes,
            None => {
                let mut bytes = 0;
                for (index, (src, dst)) in batch.pairs.iter().enumerate() {
                    match check::copy(engine, src, dst, &mut state.planner.lists) {
                        Ok(plan) => {
                            bytes += plan.len();
                            plan.discard(|list| state.planner.lists.keep(list));
                        }
                        Err(e) => return Err(Self::refuse_in_batch(state, index, e, batch)),
                    }
                }
                bytes
            }
        };
        let Some(slot) = Self::begin(state, operations, bytes) else {
            return Err(Self::full(state, Operation::Batch, Plan::Empty, batch));
        };
        if flat.is_some() {
            state.planner.pushed_all(slot, operations);
        } else {
            for (index, (src, dst)) in (0_u32..).zip(&batch.pairs) {
                // Checked above.
                if let Ok(plan) = check::copy(engine, src, dst, &mut state.planner.lists) {
                    state.planner.push(slot, index, plan);
                }
            }
        }
        let transfer = self.pushed(guard, slot, Operation::Batch, batch);
        self.flush();
        Ok(transfer)
    }

    #[cold]
    fn refuse_in_batch<T>(state: &State, index: usize, error: Error, batch: T) -> OpError<T> {
        let message = format!("copy {index} of the batch: {}", error.message());
        Self::refuse(state, Operation::Batch, error.with_message(message), batch)
    }

    #[inline]
    fn begin(state: &mut State, operations: u32, bytes: usize) -> Option<u32> {
        let slot = state.free.pop()?;
        state.planner.begin(slot, operations, bytes as u64, false);
        Some(slot)
    }

    /// Makes the transfer of an operation that has been pushed, before anything else: whatever happens from here on, its operands are
    /// where the device's completion finds them.
    #[inline]
    fn pushed<T: 'static>(
        &self,
        mut state: RefMut<'_, State>,
        slot: u32,
        operation: Operation,
        operands: T,
    ) -> Transfer<T> {
        let transfer = Transfer::new(Rc::clone(&self.shared), slot, operation, operands);
        let State { planner, ended, .. } = &mut *state;
        planner.pushed(slot, ended);
        let aftermath = state.attend();
        drop(state);
        if let Some(aftermath) = aftermath {
            aftermath.run(&self.shared);
        }
        transfer
    }

    #[cold]
    fn full<T>(state: &mut State, operation: Operation, plan: Plan, operands: T) -> OpError<T> {
        plan.discard(|list| state.planner.lists.keep(list));
        if state.planner.is_closed() {
            return Self::refuse(state, operation, error::closed(), operands);
        }
        state.planner.count_full();
        match state.stalled() {
            Some(silence) => Self::refuse(state, operation, error::stalled(silence), operands),
            None => OpError::full(operands),
        }
    }

    #[cold]
    fn refuse<T>(state: &State, operation: Operation, error: Error, operands: T) -> OpError<T> {
        OpError::new(
            error.with_operation(operation.name()).with_backend(state.planner.backend),
            Some(operands),
        )
    }

    /// What is submitted from here on starts only when everything submitted before has completed.
    pub fn fence(&self) {
        self.shared.borrow_mut().planner.fence();
    }

    /// Hands everything submitted so far to the device and rings its doorbell, once. Does not block.
    pub fn flush(&self) {
        flush(&self.shared);
    }

    /// Makes progress without blocking and wakes the tasks of transfers that ended. Returns how many descriptors the device reported.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect")]
    pub fn poll(&self) -> usize {
        poll(&self.shared)
    }

    /// What the queue has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.borrow().planner.counters()
    }

    /// The most operations in flight.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.shared.borrow().planner.ops.len()
    }

    /// Operations that can be submitted now without finding the queue full.
    #[must_use]
    pub fn room(&self) -> usize {
        self.shared.borrow().free.len()
    }

    /// Takes over waking: from here on, awaiting transfers are woken only by [`poll`](Self::poll), which the caller runs when the
    /// returned [`Driver`]'s file descriptor is readable. Without it, awaiting transfers poll the device whenever their task runs,
    /// and ask to be run again at once.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine has no event fd.
    pub fn driver(&self) -> Result<Driver> {
        let mut state = self.shared.borrow_mut();
        let Some(fd) = state.planner.event_fd() else {
            return Err(Error::new(ErrorKind::Unsupported, "the queue has no file descriptor to sleep on")
                .with_operation("drive queue")
                .with_backend(state.planner.backend)
                .with_hint("await transfers without a driver: they poll the device by themselves"));
        };
        let fd = fd.try_clone_to_owned()?;
        state.cooperative = false;
        drop(state);
        Ok(Driver { shared: Rc::clone(&self.shared), fd })
    }

    /// Flushes, waits up to `timeout` for everything in flight, and closes. What has not completed by then is aborted; what the device does not
    /// give back even so, within a second, is abandoned, its memory never reused.
    ///
    /// Transfers still held learn their outcome as usual. Returns the final counters.
    #[must_use = "the counters tell whether every operation completed"]
    pub fn close(self, timeout: Duration) -> Counters {
        let counters = self.close_by(timeout);
        // Its work is done: closing again would find nothing in flight.
        drop(self);
        counters
    }

    fn close_by(&self, timeout: Duration) -> Counters {
        let deadline = wait::deadline(timeout);
        flush(&self.shared);
        let open = || self.shared.borrow().planner.open_operations() > 0;
        let mut backoff = wait::Backoff::new();
        while open() && !backoff.idle(poll(&self.shared), || deadline) {}
        if open() {
            tracing::warn!(timeout = ?timeout, "queue did not drain in time; stopping the device");
            let aftermath = {
                let mut state = self.shared.borrow_mut();
                let state = &mut *state;
                state.planner.stop(&mut state.ended);
                state.attend()
            };
            if let Some(aftermath) = aftermath {
                aftermath.run(&self.shared);
            }
            // One that is dead must not hold the caller for long.
            let grace = Instant::now() + STOP;
            let mut backoff = wait::Backoff::new();
            // One that still answers is not dead, and has no more than it had.
            let mut is_dead = || {
                let reported = poll(&self.shared);
                backoff.idle(reported, || grace) && reported == 0
            };
            while open() && !is_dead() {}
        }
        let mut state = self.shared.borrow_mut();
        state.abandon();
        let aftermath = state.wake_all();
        let counters = state.planner.counters();
        drop(state);
        aftermath.run(&self.shared);
        counters
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.shared.borrow().planner.is_closed() {
            self.close_by(self.drop_timeout);
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("planner", &self.shared.borrow().planner).finish_non_exhaustive()
    }
}

/// Wakes a queue's awaiting transfers from a file descriptor, for event loops: wait until it is readable, call
/// [`run`](Self::run), and again. Made by [`Queue::driver`].
///
/// Dropping it gives waking back to the transfers.
pub struct Driver {
    shared: Rc<RefCell<State>>,
    fd: std::os::fd::OwnedFd,
}

impl Driver {
    /// Polls the device until nothing is left to report and asks for the descriptor to be readable once there is something to poll for. Call it once before the
    /// first sleep, and after every wake. Does not block.
    ///
    /// # Errors
    ///
    /// What arming the event answers, `Os` mostly; `Closed` once the queue is.
    pub fn run(&self) -> Result<()> {
        loop {
            self.shared.borrow_mut().planner.disarm();
            flush(&self.shared);
            while poll(&self.shared) > 0 {}
            if self.shared.borrow_mut().planner.arm()? {
                return Ok(());
            }
        }
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::os::fd::AsRawFd for Driver {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.shared.borrow_mut();
        state.cooperative = true;
        let aftermath = state.wake_all();
        drop(state);
        aftermath.run(&self.shared);
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("fd", &self.fd).finish_non_exhaustive()
    }
}
