//! [`Queue`]: one thread's submission and completion path to a device.

#[cfg(all(test, not(loom)))]
mod admission_tests;
#[cfg(all(test, not(loom)))]
pub(crate) mod fault_injection_tests;
#[cfg(all(test, not(loom)))]
mod fence_tests;
#[cfg(all(test, not(loom)))]
mod inline_tests;
mod stall_timer;
mod transfer;

use std::any::Any;
use std::cell::{RefCell, RefMut};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use stall_timer::StallTimer;
pub use transfer::Transfer;

use crate::guarded::{drop_operands, drop_waker, wake};
use crate::planner::check::{self, Lists};
use crate::planner::copy_bytes::{Copier, Pair};
use crate::planner::error::{self, Operation};
use crate::planner::handle::{Ticket, TransferFlags};
use crate::planner::inline::{Executed, Inline};
use crate::planner::operations::operations;
use crate::planner::plan::{Plan, QueueCaps};
use crate::planner::retry::{RetryAfter, RetryPolicy};
use crate::planner::slow_path::slow_path;
use crate::planner::stall_detector::StallDetector;
use crate::planner::wait;
use crate::planner::{self, Answer, Batch, LogEvent, OpError, Planner};
use crate::{
    BufferMut, Counters, Destination, EngineInfo, Error, ErrorKind, QueueOptions, RawQueue, Result, Source,
    Window,
};

/// Memory that a queue allocates for each slot, in bytes.
pub(crate) const SLOT_BYTES: usize = planner::SLOT_BYTES + size_of::<Waiter>() + size_of::<u32>();

/// A transfer, or an error that returns the operands.
pub type SubmitResult<T, R = ()> = Result<Transfer<T, R>, OpError<T>>;

/// One thread's submission and completion path to a device.
///
/// Operations take their operands by value, and return the operands when they are done:
///
/// ```
/// # use dma_core::{Buffer, BufferMut, Queue, Result};
/// # fn demo(queue: &Queue, src: Buffer, dst: BufferMut) -> Result<()> {
/// let (src, dst) = queue.copy(src, dst)?.wait()?;
/// assert_eq!(&src[..], &dst[..]);
/// # Ok(()) }
/// ```
///
/// - Submitting never blocks: a full queue returns the operands with an error ([`ErrorKind::QueueFull`], or
///   [`ErrorKind::TimedOut`] if the device is stalled). An operation counts against the depth until its
///   [`Transfer`] has returned the operands or is dropped.
/// - While nothing is in flight, an engine that copies by CPU may execute a short operation in the call that
///   submits it ([`InlineExecutor`](crate::InlineExecutor)). Such an operation is never in flight and has no
///   descriptor. Its transfer is done and does not count against the depth.
/// - Operations are collected until a [`flush`](Self::flush), a wait or an await, which rings one doorbell
///   for all collected operations.
/// - Operations may be executed in any order. Use a [`fence`](Self::fence) to order them.
/// - Operations beyond the device's length and segment limits are split into several descriptors.
/// - A queue belongs to the thread that opened it. For several threads, and for futures that move between
///   threads, use a [`SharedQueue`](crate::SharedQueue).
/// - Dropping the queue closes it, like [`close`](Self::close) with [`QueueOptions::drop_timeout`].
/// - In a forked child, operations fail with `Unsupported`, and waits for earlier transfers also do, because
///   the device works for the parent. Dropping the queue there does not affect the parent.
///
/// A task that moves between threads cannot hold a `Queue`:
///
/// ```compile_fail
/// # fn spawn(_: impl FnOnce() + Send) {}
/// # fn demo(queue: dma_core::Queue) {
/// spawn(move || queue.flush()); // use a `SharedQueue`
/// # }
/// ```
pub struct Queue {
    threads: PhantomData<OneThread>,
    shared: Rc<RefCell<QueueState>>,
    drop_timeout: Duration,
}

/// Marks types that belong to one thread. It is their first field, so that the compiler's message for a move
/// to another thread contains the name of the remedy.
type OneThread = *const UseSharedQueueForSeveralThreads;

/// See [`OneThread`].
enum UseSharedQueueForSeveralThreads {}

/// State shared by a queue and its transfers.
struct QueueState {
    planner: Planner,
    free: Vec<u32>,
    waiters: Vec<Waiter>,
    /// Slots that have just ended and have a waiter. The list is reused between polls.
    ended: Vec<u32>,
    /// Tokens of ended transfers that the caller has not read yet.
    tokens: Vec<u64>,
    /// Number of transfers with a token that have not ended.
    awaited_tokens: usize,
    recycled: DeferredCallbacks,
    stall_timeout: Duration,
    /// Maximum time that awaited operations wait to share a doorbell; 0 if they do not wait.
    doorbell_delay: Duration,
    /// Detects whether the device has stalled, for tasks and when the queue is full.
    stall_detector: StallDetector,
    /// The number of polls at which a task next looks for a stall.
    watch_at: u64,
    /// True without a [`Driver`]. In that case an awaited transfer wakes its own task, to be polled again.
    cooperative: bool,
}

/// The waiter of an operation: a task, a token, or the operands of a transfer that was dropped early.
#[derive(Default)]
struct Waiter {
    waker: Option<Waker>,
    token: Option<u64>,
    parked: Option<Box<dyn Any>>,
}

/// User callbacks to run when the state is no longer borrowed.
#[derive(Default)]
struct DeferredCallbacks {
    log_events: Vec<LogEvent>,
    backend: &'static str,
    wake: Vec<Waker>,
    drop: Vec<Box<dyn Any>>,
}

impl DeferredCallbacks {
    /// Runs all callbacks, and keeps the emptied lists for reuse. Catches their panics, because the caller
    /// may be another task than that of the callback.
    fn run(mut self, shared: &RefCell<QueueState>) {
        self.log_events.drain(..).for_each(|event| event.emit(self.backend));
        self.drop.drain(..).for_each(drop_operands);
        self.wake.drain(..).for_each(wake);
        shared.borrow_mut().recycled = self;
    }
}

impl QueueState {
    /// A task looks for a stall once in this number of polls, because that reads the clock.
    const WATCH_EVERY: u64 = 16;

    /// Returns whether an awaited operation should first let other tasks submit their operations.
    fn delays_doorbell(&self) -> bool {
        self.cooperative && !self.doorbell_delay.is_zero() && self.planner.open_operations() > 1
    }

    /// Flushes for a task and polls the device. The caller must run the callbacks. With a driver, the
    /// doorbell is not delayed, because the device wakes the driver.
    fn drive(&mut self) -> Option<DeferredCallbacks> {
        let limit = if self.cooperative { self.doorbell_delay } else { Duration::ZERO };
        self.planner.flush_delayed(|| true, limit, &mut self.ended);
        self.planner.poll(&mut self.ended);
        if self.planner.polls() >= self.watch_at {
            self.watch_at = self.planner.polls() + Self::WATCH_EVERY;
            self.stalled();
        }
        self.drain()
    }

    /// Polls the device. The caller must run the callbacks.
    fn poll(&mut self) -> (usize, Option<DeferredCallbacks>) {
        let reported = self.planner.poll(&mut self.ended);
        (reported, self.drain())
    }

    /// Reports tokens, and returns the callbacks, or `None` if there are none.
    #[inline]
    fn drain(&mut self) -> Option<DeferredCallbacks> {
        if self.awaited_tokens > 0 && !self.ended.is_empty() {
            self.report_tokens();
        }
        if self.ended.is_empty() && self.planner.outcomes.log_events.is_empty() {
            None
        } else {
            Some(self.drain_ended())
        }
    }

    /// Reports the tokens of slots that have just ended, and removes slots that have no other waiter from the
    /// list.
    fn report_tokens(&mut self) {
        let Self { ended, waiters, planner, tokens, awaited_tokens, .. } = self;
        ended.retain(|slot| {
            let (op, waiter) = (&mut planner.outcomes.ops[*slot as usize], &mut waiters[*slot as usize]);
            let Some(token) = waiter.token.take_if(|_| op.has_ended()) else { return true };
            *awaited_tokens -= 1;
            tokens.push(token);
            op.has_waiter = waiter.waker.is_some();
            op.has_waiter
        });
    }

    /// Returns callbacks that contain the planner's log events.
    fn callbacks(&mut self) -> DeferredCallbacks {
        let mut callbacks = std::mem::take(&mut self.recycled);
        callbacks.backend = self.planner.backend;
        callbacks.log_events.append(&mut self.planner.outcomes.log_events);
        callbacks
    }

    /// Returns the callbacks of the operations in `ended`. Abandons an engine that has panicked.
    #[cold]
    fn drain_ended(&mut self) -> DeferredCallbacks {
        let mut callbacks = if self.planner.is_poisoned() {
            self.abandon();
            self.wake_all()
        } else {
            self.callbacks()
        };
        for slot in self.ended.drain(..) {
            let op = &mut self.planner.outcomes.ops[slot as usize];
            // The transfer may have returned the result already, and the slot may belong to an operation that
            // has not ended.
            if !op.has_ended() || !op.has_waiter {
                continue;
            }
            op.has_waiter = false;
            let waiter = &mut self.waiters[slot as usize];
            callbacks.wake.extend(waiter.waker.take());
            if let Some(operands) = waiter.parked.take() {
                callbacks.drop.push(operands);
                self.planner.outcomes.take_failures(slot);
                self.free.push(slot);
            }
        }
        callbacks
    }

    /// Returns the next free slot, unless the queue is closed or belongs to the parent of this process.
    fn free_slot(&self) -> Option<u32> {
        self.free.last().copied().filter(|_| self.planner.refusal().is_none())
    }

    fn flush(&mut self) -> Option<DeferredCallbacks> {
        self.planner.flush(&mut self.ended);
        self.drain()
    }

    /// Returns the time for which the device has had operations and completed none of them, if this time
    /// exceeds the stall timeout.
    fn stalled(&mut self) -> Option<Duration> {
        if !self.planner.is_at_device() {
            self.stall_detector.reset();
            return None;
        }
        self.stall_detector.observe(self.planner.reported(), self.planner.polls(), Instant::now())
    }

    /// Returns the callbacks that wake every waiting task.
    fn wake_all(&mut self) -> DeferredCallbacks {
        let mut callbacks = self.callbacks();
        callbacks.wake.extend(self.waiters.iter_mut().filter_map(|a| a.waker.take()));
        if self.planner.is_closed() {
            self.tokens.extend(self.waiters.iter_mut().filter_map(|a| a.token.take()));
            self.awaited_tokens = 0;
        }
        callbacks
    }

    /// Abandons the device, and leaks the memory that it may write.
    fn abandon(&mut self) {
        // Leak the operands first, because the engine may panic.
        self.waiters.iter_mut().for_each(|a| std::mem::forget(a.parked.take()));
        self.planner.abandon();
        // Without free slots, submissions fail with `Closed`.
        self.free.clear();
    }
}

/// Abandons a queue that could not be closed, because the engine panicked.
impl Drop for QueueState {
    fn drop(&mut self) {
        if !self.planner.is_closed() {
            self.abandon();
            let backend = self.planner.backend;
            self.planner.outcomes.log_events.drain(..).for_each(|event| event.emit(backend));
        }
        self.waiters.iter_mut().for_each(|waiter| drop_waker(waiter.waker.take()));
    }
}

/// Runs the callbacks, if there are any. The state must not be borrowed.
fn run(callbacks: Option<DeferredCallbacks>, shared: &RefCell<QueueState>) {
    if let Some(callbacks) = callbacks {
        callbacks.run(shared);
    }
}

/// Polls the device once, and runs the callbacks. Returns the result of [`Planner::poll`].
fn poll(shared: &RefCell<QueueState>) -> usize {
    let (reported, callbacks) = shared.borrow_mut().poll();
    run(callbacks, shared);
    reported
}

fn flush(shared: &RefCell<QueueState>) {
    let callbacks = shared.borrow_mut().flush();
    run(callbacks, shared);
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
        let planner = Planner::new(raw, info, depth, fill_block);
        Self {
            threads: PhantomData,
            shared: Rc::new(RefCell::new(QueueState {
                // Slots are taken from the end of the list, so slots with low numbers are used first.
                free: (0..slots).rev().collect(),
                waiters: std::iter::repeat_with(Waiter::default).take(depth).collect(),
                ended: Vec::new(),
                tokens: Vec::new(),
                awaited_tokens: 0,
                recycled: DeferredCallbacks::default(),
                stall_timeout: options.stall_timeout,
                doorbell_delay: planner.doorbell_delay(options),
                planner,
                stall_detector: StallDetector::new(options.stall_timeout),
                watch_at: 0,
                cooperative: true,
            })),
            drop_timeout: options.drop_timeout,
        }
    }

    /// Copies `src` to `dst`. Both must have the same length and must not overlap.
    ///
    /// Does not block. The copy may not start before a [`flush`](Self::flush). A copy of 0 bytes is done
    /// immediately.
    ///
    /// # Errors
    ///
    /// All errors are detected before the copy reaches the device, and return the operands: `QueueFull`;
    /// `TimedOut` if the queue is full and the device has completed nothing in
    /// [`QueueOptions::stall_timeout`] of polling; `LengthMismatch`; `Overlap`; `AccessDenied` if a region
    /// lacks the right; `WrongEngine` for memory of another engine; `Closed`; `Unsupported` in a forked
    /// child.
    // Always inline, because a call takes about the same time as the copy of a short range. The compiler
    // would not inline this function in a program that calls it in several places.
    #[inline(always)]
    pub fn copy<S: Source, D: Destination>(&self, src: S, dst: D) -> SubmitResult<(S, D)> {
        if !(S::SINGLE && D::SINGLE) {
            return self.submit_checked(
                Operation::Copy,
                (src, dst),
                |inline, (src, dst)| inline.copy_rows(src, dst),
                |caps, (src, dst), lists| check::copy(caps.engine, src, dst, lists),
            );
        }
        // With `ManuallyDrop`, the operands are not dropped if a panic unwinds, so the compiler moves them
        // only once.
        let operands = ManuallyDrop::new((src, dst));
        if let Ok(mut guard) = self.shared.try_borrow_mut() {
            let state = &mut *guard;
            if let Some(result) =
                state.planner.execute_inline(|inline, _| inline.copy(&operands.0, &operands.1))
            {
                drop(guard);
                let operands = ManuallyDrop::into_inner(operands);
                return Ok(Transfer::new(Ticket::done(result, Operation::Copy), operands));
            }
            if let Some(slot) = state.free.pop() {
                let (from, to) = (operands.0.single(), operands.1.single());
                if state.planner.takes_plain::<D>(from, to) {
                    let shared = Rc::clone(&self.shared);
                    state.planner.push_plain(slot, from.segment(), to.segment(), false);
                    drop(guard);
                    // No other code runs after this, so the compiler can build the transfer in place.
                    let operands = ManuallyDrop::into_inner(operands);
                    let ticket = Ticket::new(shared, slot, TransferFlags::new(Operation::Copy));
                    return Ok(Transfer::new(ticket, operands));
                }
                state.free.push(slot);
            }
        }
        slow_path(ManuallyDrop::into_inner(operands), |operands| {
            let guard = self.shared.borrow_mut();
            if guard.planner.has_full_batch() {
                self.submit_pending(guard);
            } else {
                drop(guard);
            }
            self.submit_planned(Operation::Copy, operands, |caps, (src, dst), lists| {
                check::copy(caps.engine, src, dst, lists)
            })
        })
    }

    /// Copies `len` bytes from byte `src_at` of `src` to byte `dst_at` of `dst` within this call, if the
    /// engine can do so now (see [`Queue`]). Otherwise, or if the copy is invalid, returns false and copies
    /// nothing. In that case call [`copy`](Self::copy), which submits the copy or returns the reason.
    ///
    /// The caller keeps the operands, and no transfer is made. Therefore this costs less than `copy` if
    /// ranges of the same windows are copied repeatedly.
    ///
    /// ```
    /// # use dma_core::{Queue, Result, Window};
    /// # fn demo(queue: &Queue, ring: &Window, to: &Window, at: usize) -> Result<()> {
    /// if !queue.copy_at_once((ring, at), (to, 0), 64) {
    ///     queue.copy(ring.slice(at..at + 64), to.slice(..64))?.wait()?;
    /// }
    /// # Ok(()) }
    /// ```
    #[inline]
    #[must_use = "if the result is false, nothing was copied"]
    pub fn copy_at_once(
        &self,
        (src, src_at): (&Window, usize),
        (dst, dst_at): (&Window, usize),
        len: usize,
    ) -> bool {
        self.execute(|inline| inline.copy_part((&src.0, src_at), (&dst.0, dst_at), len))
    }

    /// Executes the copies of `batch` within this call, if the engine can do so now (see [`Queue`]).
    /// Otherwise, or if a copy is invalid, returns false and copies nothing. In that case call
    /// [`submit`](Self::submit), which submits the batch or returns the reason.
    // The parameter is `&mut`, so that no reference to bytes of the batch's buffers exists.
    #[must_use = "if the result is false, nothing was copied"]
    pub fn submit_at_once<S: Source, D: Destination>(&self, batch: &mut Batch<S, D>) -> bool {
        self.execute(|inline| inline.copy_all(&batch.pairs))
    }

    /// Executes an operation within this call, if inline execution is allowed now and `run` finds the
    /// operation valid and short enough.
    #[inline]
    fn execute(&self, run: impl FnOnce(&Inline) -> Option<Executed>) -> bool {
        let state = self.shared.try_borrow_mut();
        state.is_ok_and(|mut state| state.planner.execute_inline(|inline, _| run(inline)).is_some())
    }

    /// Submits the pending descriptors.
    #[cold]
    fn submit_pending(&self, mut state: RefMut<'_, QueueState>) {
        let QueueState { planner, ended, .. } = &mut *state;
        planner.submit_pending(ended);
        let callbacks = state.drain();
        drop(state);
        run(callbacks, &self.shared);
    }

    /// Checks an operation, and executes it with `inline` or submits its plan.
    #[inline]
    fn submit_checked<T: 'static, R: Answer>(
        &self,
        operation: Operation,
        operands: T,
        inline: impl FnOnce(&Inline, &T) -> Option<Executed>,
        check: impl FnOnce(QueueCaps, &T, &mut Lists) -> Result<Plan>,
    ) -> SubmitResult<T, R> {
        // With `ManuallyDrop`, the operands are not dropped if a panic unwinds, so the compiler moves them
        // only once.
        let operands = ManuallyDrop::new(operands);
        if let Ok(mut state) = self.shared.try_borrow_mut()
            && let Some(result) = state.planner.execute_inline(|executor, _| inline(executor, &operands))
        {
            drop(state);
            let operands = ManuallyDrop::into_inner(operands);
            return Ok(Transfer::new(Ticket::done(result, operation), operands));
        }
        slow_path(ManuallyDrop::into_inner(operands), |operands| {
            self.submit_planned(operation, operands, check)
        })
    }

    /// Checks an operation. Executes it inline if it has lists and is short enough; otherwise submits its
    /// plan.
    fn submit_planned<T: 'static, R: Answer>(
        &self,
        operation: Operation,
        operands: T,
        check: impl FnOnce(QueueCaps, &T, &mut Lists) -> Result<Plan>,
    ) -> SubmitResult<T, R> {
        let mut guard = self.shared.borrow_mut();
        let state = &mut *guard;
        let plan = match check(state.planner.caps(), &operands, &mut state.planner.lists) {
            Ok(plan) => plan,
            Err(e) => return Err(Self::refuse(state, operation, e, operands)),
        };
        let executed =
            state.planner.execute_inline(|inline, lists| inline.lists(&plan, lists.is_cpu_visible()));
        if let Some(result) = executed {
            plan.discard(|list| state.planner.lists.keep(list));
            return Ok(Transfer::new(Ticket::done(result, operation), operands));
        }
        let Some(slot) = state.free_slot() else {
            return Err(Self::full(state, operation, plan, operands));
        };
        let mut admission = state.planner.admit(slot, 1, plan.len() as u64, false);
        admission.push(0, plan);
        admission.commit();
        Ok(self.pushed(guard, slot, operation, operands))
    }

    /// Submits an operation by `submit`, waits for it, and repeats it as its error advises, within the limits
    /// of `policy`. Blocks. While the queue is full, waits until the device has completed an operation whose
    /// transfer was dropped or is held by another task.
    ///
    /// ```
    /// # use dma_core::{BufferMut, Queue, Result, RetryPolicy};
    /// # fn demo(queue: &Queue, src: BufferMut, dst: BufferMut) -> Result<()> {
    /// let (src, dst) = queue.retry(&RetryPolicy::new(), (src, dst), |(src, dst)| queue.copy(src, dst))?;
    /// # assert_eq!(src[..], dst[..]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The last attempt's error, which is one of `submit` or of [`Transfer::wait`]; `QueueFull` if the
    /// program holds all transfers of the queue, and their operations have ended, because only their owner
    /// can make room.
    pub fn retry<T: 'static, R: Answer>(
        &self,
        policy: &RetryPolicy,
        mut operands: T,
        submit: impl Fn(T) -> SubmitResult<T, R>,
    ) -> Result<R::With<T>, OpError<T>> {
        let mut attempts = policy.attempts();
        loop {
            let error = match submit(operands).and_then(Transfer::wait) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let (again, after) = attempts.next(error)?;
            operands = again;
            match after {
                RetryAfter::Nothing => {}
                RetryAfter::Delay(delay) => std::thread::sleep(delay),
                // If the device has stalled, the next attempt fails with `TimedOut`.
                RetryAfter::Room if self.wait_for_room() => {}
                RetryAfter::Room => return Err(OpError::full(operands)),
            }
        }
    }

    /// Polls until the queue has room or the device has stalled. Returns false if only the program can make
    /// room.
    fn wait_for_room(&self) -> bool {
        let mut backoff = wait::Backoff::new();
        while self.available() == 0 && self.stalled().is_none() {
            match self.make_room() {
                None => return false,
                Some(0) => backoff.pause(),
                Some(_) => {}
            }
        }
        true
    }

    /// Submits all copies of `batch` and flushes. The batch counts as one operation of the queue's depth, and
    /// completes when all its copies have completed.
    ///
    /// All copies are checked before the first one is submitted. Copies of one batch are executed in any
    /// order. The destination of a copy must not overlap the operands of the other copies of the batch.
    /// Buffers cannot overlap. If windows overlap, the resulting bytes are undefined.
    ///
    /// # Errors
    ///
    /// The errors of [`copy`](Self::copy), with the batch. The message names the first copy that is refused.
    pub fn submit<S: Source, D: Destination>(&self, batch: Batch<S, D>) -> SubmitResult<Batch<S, D>> {
        let mut guard = self.shared.borrow_mut();
        let state = &mut *guard;
        if let Some(result) = state.planner.execute_inline(|inline, _| inline.copy_all(&batch.pairs)) {
            return Ok(Transfer::new(Ticket::done(result, Operation::Batch), batch));
        }
        let operations = match check::batch_len(batch.len()) {
            Ok(operations) => operations,
            Err(e) => return Err(Self::refuse(state, Operation::Batch, e, batch)),
        };
        // One loop checks a batch of plain copies and passes them to the planner.
        let mut admitted = None;
        if S::SINGLE
            && D::SINGLE
            && let Some(slot) = state.free_slot()
        {
            let mut admission = state.planner.admit(slot, operations, 0, false);
            if admission.push_all_flat(&batch.pairs) {
                admission.commit();
                admitted = Some(slot);
            }
        }
        let slot = match admitted {
            Some(slot) => slot,
            None => {
                let Planner { engine, lists, .. } = &mut state.planner;
                let bytes = match check::batch(*engine, &batch.pairs, lists) {
                    Ok(bytes) => bytes,
                    Err(e) => return Err(Self::refuse(state, Operation::Batch, e, batch)),
                };
                let Some(slot) = state.free_slot() else {
                    return Err(Self::full(state, Operation::Batch, Plan::Empty, batch));
                };
                let mut admission = state.planner.admit(slot, operations, bytes, false);
                for ((src, dst), index) in batch.pairs.iter().zip(0_u32..) {
                    admission.push_checked(index, src, dst);
                }
                admission.commit();
                slot
            }
        };
        let transfer = self.pushed(guard, slot, Operation::Batch, batch);
        self.flush();
        Ok(transfer)
    }

    /// Makes the transfer of a committed operation. No code between the commit and this call may panic,
    /// because only the transfer keeps the operands alive while the device uses them.
    #[inline]
    fn pushed<T: 'static, R: Answer>(
        &self,
        mut state: RefMut<'_, QueueState>,
        slot: u32,
        operation: Operation,
        operands: T,
    ) -> Transfer<T, R> {
        let ticket = Ticket::new(Rc::clone(&self.shared), slot, TransferFlags::new(operation));
        let transfer = Transfer::new(ticket, operands);
        let QueueState { planner, free, ended, .. } = &mut *state;
        let taken = free.pop();
        debug_assert_eq!(taken, Some(slot), "the slot of the admitted operation");
        planner.pushed(slot, ended);
        let callbacks = state.drain();
        drop(state);
        run(callbacks, &self.shared);
        transfer
    }

    #[cold]
    fn full<T>(state: &mut QueueState, operation: Operation, plan: Plan, operands: T) -> OpError<T> {
        plan.discard(|list| state.planner.lists.keep(list));
        if let Some(refusal) = state.planner.refusal() {
            return Self::refuse(state, operation, refusal, operands);
        }
        state.planner.count_full();
        match state.stalled() {
            Some(stalled_for) => Self::refuse(state, operation, error::stalled(stalled_for), operands),
            None => OpError::full(operands),
        }
    }

    #[cold]
    fn refuse<T>(state: &QueueState, operation: Operation, error: Error, operands: T) -> OpError<T> {
        OpError::new(
            error.with_operation(operation.name()).with_backend(state.planner.backend),
            Some(operands),
        )
    }

    /// Delays operations that are submitted after this call until all earlier operations have completed.
    pub fn fence(&self) {
        self.shared.borrow_mut().planner.fence();
    }

    /// Passes all operations to the device and rings its doorbell once. Does not block.
    pub fn flush(&self) {
        flush(&self.shared);
    }

    /// Polls the device without blocking, and wakes the tasks of transfers that have ended. Returns the
    /// number of descriptors that the device reported, plus the number of chunks that the CPU executed
    /// instead of the device.
    #[expect(clippy::must_use_candidate, reason = "callers may ignore the number")]
    pub fn poll(&self) -> usize {
        poll(&self.shared)
    }

    /// Sets the token of `transfer`. When its operation has ended, [`poll_tokens`](Self::poll_tokens) or
    /// [`wait_tokens`](Self::wait_tokens) reports the token once. The new token replaces an earlier one,
    /// unless the operation has already ended and the earlier token is to be reported. Tokens need not be
    /// unique. A transfer that is dropped before its operation has ended is not reported. The token of a
    /// transfer in flight on another queue is reported by that queue.
    pub fn set_token<T: 'static, R: Answer>(&self, transfer: &Transfer<T, R>, token: u64) {
        transfer.set_token(&self.shared, token);
    }

    /// Polls as [`poll`](Self::poll) does, and appends the tokens ([`set_token`](Self::set_token)) of
    /// transfers that have ended to `tokens`, each once. Returns the number of appended tokens. A wait for
    /// such a transfer returns immediately.
    ///
    /// ```
    /// # use dma_core::{Buffer, BufferMut, Queue, Result};
    /// # fn demo(queue: &Queue, copies: Vec<(Buffer, BufferMut)>) -> Result<()> {
    /// let mut transfers = Vec::new();
    /// for (src, dst) in copies {
    ///     let transfer = queue.copy(src, dst)?;
    ///     queue.set_token(&transfer, transfers.len() as u64);
    ///     transfers.push(Some(transfer));
    /// }
    /// let (mut tokens, mut done) = (Vec::new(), 0);
    /// while done < transfers.len() {
    ///     let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    ///     done += queue.wait_tokens(&mut tokens, deadline)?;
    ///     for token in tokens.drain(..) {
    ///         let transfer = transfers[token as usize].take().expect("each token is reported once");
    ///         let (src, dst) = transfer.wait()?;
    ///         assert_eq!(src[..], dst[..]);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn poll_tokens(&self, tokens: &mut Vec<u64>) -> usize {
        poll(&self.shared);
        self.take_tokens(tokens)
    }

    /// Appends tokens as [`poll_tokens`](Self::poll_tokens) does, but does not poll. The tokens are from
    /// operations that ended in earlier polls, such as in [`Driver::run`].
    pub fn take_tokens(&self, tokens: &mut Vec<u64>) -> usize {
        let ended = &mut self.shared.borrow_mut().tokens;
        let count = ended.len();
        tokens.append(ended);
        count
    }

    /// Flushes, and blocks until at least one transfer with a token ([`set_token`](Self::set_token)) has
    /// ended. Appends the tokens of all ended transfers to `tokens`, and returns their number. Returns 0 if
    /// no token is in flight.
    ///
    /// # Errors
    ///
    /// `TimedOut` if `deadline` has passed. The operations are still in flight, and can be waited for again.
    pub fn wait_tokens(&self, tokens: &mut Vec<u64>, deadline: Instant) -> Result<usize> {
        let is_over = |state: &QueueState| !state.tokens.is_empty() || state.awaited_tokens == 0;
        if transfer::block(&self.shared, is_over, Some(deadline), Duration::MAX) {
            Ok(self.take_tokens(tokens))
        } else {
            Err(Error::bare(ErrorKind::TimedOut))
        }
    }

    /// Returns the counters. In a forked child, all counters of the parent's queue are 0.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.borrow().planner.counters()
    }

    /// Returns the maximum number of operations in flight.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.shared.borrow().planner.outcomes.ops.len()
    }

    /// Returns the number of operations that can be submitted before the queue is full.
    #[must_use]
    pub fn available(&self) -> usize {
        self.shared.borrow().free.len()
    }

    /// Returns the time for which the device has had operations and completed none of them, if this time
    /// exceeds [`QueueOptions::stall_timeout`]. Only time in waits and awaits counts, and time between calls
    /// of this method in which the program polls the queue. Does not poll.
    #[must_use]
    pub fn stalled(&self) -> Option<Duration> {
        self.shared.borrow_mut().stalled()
    }

    /// Makes a driver. With a driver, only [`poll`](Self::poll) and [`Driver::run`] wake the tasks of awaited
    /// transfers. The caller must call `run` when the [`Driver`]'s file descriptor is readable. Without a
    /// driver, an awaited transfer polls the device whenever its task runs, and wakes the task again
    /// immediately.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine has no event fd; `OutOfResources`, `PermissionDenied` or `Os` if the
    /// system refuses a file descriptor.
    pub fn driver(&self) -> Result<Driver> {
        let mut state = self.shared.borrow_mut();
        let interval = state.stall_detector.poll_interval();
        let Some(events) = state.planner.events() else {
            return Err(Error::new(ErrorKind::Unsupported, "the queue has no file descriptor to sleep on")
                .with_operation("drive queue")
                .with_backend(state.planner.backend)
                .with_hint("await transfers without a driver: they poll the device themselves"));
        };
        let timer = StallTimer::new(interval, events.fd()?)?;
        state.cooperative = false;
        drop(state);
        Ok(Driver { threads: PhantomData, shared: Rc::clone(&self.shared), timer })
    }

    /// Flushes, waits up to `timeout` for operations in flight, aborts the remaining operations, and closes
    /// the queue. Operations that the device does not end within [`STOP_GRACE`](crate::STOP_GRACE) after the
    /// abort are abandoned, and their memory is never reused.
    ///
    /// The program's transfers return their outcomes as usual. Returns the final counters.
    #[must_use = "the counters tell whether every operation completed"]
    pub fn close(self, timeout: Duration) -> Counters {
        let counters = self.close_by(timeout);
        // Dropping a closed queue does not wait, because nothing is in flight.
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
            crate::guarded_log!(warn, timeout = ?timeout, "operations did not end within the timeout; the queue stops the device");
            let callbacks = {
                let mut guard = self.shared.borrow_mut();
                let state = &mut *guard;
                state.planner.stop(&mut state.ended);
                state.drain()
            };
            run(callbacks, &self.shared);
            wait::until_stopped(|| (poll(&self.shared), !open()));
        }
        let mut state = self.shared.borrow_mut();
        state.abandon();
        let callbacks = state.wake_all();
        let counters = state.planner.counters();
        drop(state);
        callbacks.run(&self.shared);
        counters
    }
}

impl Copier for Queue {
    type Transfer = Transfer<Pair>;

    fn facts(&self) -> Result<(QueueCaps, &'static str, Duration)> {
        let state = self.shared.borrow();
        let planner = &state.planner;
        planner.refusal().map_or_else(|| Ok((planner.caps(), planner.backend, state.stall_timeout)), Err)
    }

    fn submit_piece(&self, (src, dst): Pair) -> Result<Self::Transfer, OpError<Pair>> {
        let transfer = self.copy(src, dst)?;
        self.flush();
        Ok(transfer)
    }

    fn wait_for_piece(transfer: Self::Transfer) -> Result<Pair, OpError<Pair>> {
        transfer.wait()
    }

    fn make_room(&self) -> Option<usize> {
        self.flush();
        let reported = self.poll();
        // Ended transfers do not free their slots now, because the caller that holds them waits in this call.
        (self.available() > 0 || self.counters().in_flight > 0).then_some(reported)
    }
}

operations!(Queue, SubmitResult);

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

/// Wakes the tasks of a queue's awaited transfers from an event loop. Wait until the driver's file descriptor
/// is readable, call [`run`](Self::run), and repeat. [`Queue::driver`] makes a driver.
///
/// After the driver is dropped, awaited transfers poll the device themselves again.
pub struct Driver {
    threads: PhantomData<OneThread>,
    shared: Rc<RefCell<QueueState>>,
    timer: StallTimer,
}

impl Driver {
    /// Polls the device until it has nothing to report, and arms the file descriptor. Call this before the
    /// first sleep and after every wake-up. Does not block.
    ///
    /// While operations are in flight, the file descriptor also becomes readable from time to time (64 times
    /// in [`QueueOptions::stall_timeout`]), so that awaited transfers fail if the device has stalled.
    ///
    /// # Errors
    ///
    /// `Os` and other errors of arming the event; `Closed` if the queue is closed.
    pub fn run(&self) -> Result<()> {
        loop {
            if let Some(events) = self.shared.borrow_mut().planner.events() {
                events.disarm();
            }
            flush(&self.shared);
            while poll(&self.shared) > 0 {}
            // The engine has events, because a driver exists.
            if self.shared.borrow_mut().planner.events().ok_or(ErrorKind::Closed)?.arm()? {
                break;
            }
        }
        let mut state = self.shared.borrow_mut();
        self.timer.set(state.planner.open_operations() > 0)?;
        if state.stalled().is_some() {
            // Wake the tasks that await operations, so that those that have waited long enough fail.
            let callbacks = state.wake_all();
            drop(state);
            callbacks.run(&self.shared);
        }
        Ok(())
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.fd()
    }
}

impl std::os::fd::AsRawFd for Driver {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.timer.fd().as_raw_fd()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.shared.borrow_mut();
        state.cooperative = true;
        let callbacks = state.wake_all();
        drop(state);
        callbacks.run(&self.shared);
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("fd", &self.timer.fd()).finish_non_exhaustive()
    }
}
