//! [`Queue`]: one thread's submission and completion path to a device.

#[cfg(all(test, not(loom)))]
mod admission_tests;
mod driver;
#[cfg(all(test, not(loom)))]
pub(crate) mod fault_injection_tests;
#[cfg(all(test, not(loom)))]
mod fence_tests;
#[cfg(all(test, not(loom)))]
mod inline_tests;
mod stall_timer;
mod state;
mod submit;
mod transfer;

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use driver::Driver;
use stall_timer::StallTimer;
use state::{QueueState, Waiter, flush, poll, run};
pub use transfer::Transfer;

use crate::planner::copy_bytes::{Copier, Pair};
use crate::planner::plan::QueueCaps;
use crate::planner::retry::{RetryAfter, RetryPolicy};
use crate::planner::wait;
use crate::planner::{self, Answer, OpError, Planner, error};
use crate::{
    BufferMut, Counters, EngineInfo, Error, ErrorKind, InlineExecutor, QueueOptions, RawQueue, Result,
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
///   for all collected operations. A full queue does the same when it refuses an operation.
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

impl Queue {
    pub(crate) fn new(
        raw: Box<dyn RawQueue>,
        info: &EngineInfo,
        options: &QueueOptions,
        fill_block: Option<BufferMut>,
    ) -> Self {
        let depth = raw.depth();
        let planner = Planner::new(raw, info, depth, fill_block);
        Self {
            threads: PhantomData,
            shared: Rc::new(RefCell::new(QueueState::new(planner, options))),
            drop_timeout: options.drop_timeout,
        }
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
                RetryAfter::Room => match self.wait_for_room() {
                    Err(e) if e.kind() == ErrorKind::QueueFull => return Err(OpError::full(operands)),
                    // If the device has stalled or is lost, the next attempt fails.
                    _ => {}
                },
            }
        }
    }

    /// Waits until the queue has room for an operation: flushes, and polls the device. Returns at once if
    /// there is room.
    ///
    /// A transfer that the program holds keeps its slot after its operation has ended. To make room, wait for
    /// the transfer or drop it.
    ///
    /// # Errors
    ///
    /// `QueueFull` if all operations have ended, and the program holds their transfers; `TimedOut` if the
    /// device is stalled, as [`QueueOptions::stall_timeout`] says; `DeviceLost`; `Closed` if the
    /// engine has panicked; `Unsupported` in a forked child.
    pub fn wait_for_room(&self) -> Result<()> {
        let mut backoff = wait::Backoff::new();
        loop {
            let refusal = || self.shared.borrow().planner.refusal();
            let error = match refusal() {
                None if self.available() > 0 => return Ok(()),
                None => match self.make_room() {
                    Some(0) => self.stalled().map(error::stalled),
                    Some(_) => continue,
                    None => Some(refusal().unwrap_or_else(error::held)),
                },
                refusal => refusal,
            };
            if let Some(error) = error {
                let backend = self.shared.borrow().planner.backend;
                return Err(error.with_operation("wait for room").with_backend(backend));
            }
            backoff.pause();
        }
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

    /// Returns the error of a lost device (`DeviceLost`) that reports nothing any more, or `None` if no such
    /// loss is known. It is known after a poll, a wait or a submission has met it. A device that reports its
    /// loss fails each operation with `DeviceLost` instead. Does not poll.
    #[must_use]
    pub fn lost(&self) -> Option<Error> {
        let state = self.shared.borrow();
        state.planner.lost().map(|e| e.with_operation("use queue").with_backend(state.planner.backend))
    }

    /// Makes a driver. With a driver, only [`poll`](Self::poll) and [`Driver::run`] wake the tasks of awaited
    /// transfers. The caller must call `run` when the [`Driver`]'s file descriptor is readable. Without a
    /// driver, an awaited transfer polls the device whenever its task runs, and wakes the task again
    /// immediately.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine has no event fd, and in a forked child; `OutOfResources`,
    /// `PermissionDenied` or `Os` if the system refuses a file descriptor.
    pub fn driver(&self) -> Result<Driver> {
        let mut state = self.shared.borrow_mut();
        let interval = state.stall_detector.poll_interval();
        let timer = state.events(|events| StallTimer::new(interval, events.fd()?))?;
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
        let (mut backoff, mut polls) = (wait::Backoff::new(), 0);
        while open() && !backoff.idle(poll(&self.shared), || deadline) {
            if backoff.may_sleep() {
                wait::rest(&mut polls);
            }
        }
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

    fn facts(&self) -> Result<(QueueCaps, Duration)> {
        let state = self.shared.borrow();
        let planner = &state.planner;
        planner.refusal().map_or_else(|| Ok((planner.caps(), state.stall_timeout)), Err)
    }

    fn backend(&self) -> &'static str {
        self.shared.borrow().planner.backend
    }

    fn hangs(&self) -> Option<Duration> {
        self.stalled()
    }

    fn counts(&self) -> Counters {
        self.counters()
    }

    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        self.shared.borrow().planner.inline_executor()
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
