//! [`SharedReady`]: waits for room on a shared queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::lane::{Caller, Lane};
use super::{QueueHandle, SharedResult, SharedTransfer};
use crate::guarded::drop_waker;
use crate::planner::wait::Backoff;
use crate::planner::{Answer, error};
use crate::{Error, ErrorKind, OpError, Result};

/// A future that waits for room on a [`SharedQueue`](crate::SharedQueue), made by
/// [`SharedQueue::ready`](crate::SharedQueue::ready).
///
/// Dropping the future leaves the wait list. The future keeps the queue open, as a clone does.
#[must_use = "this does nothing unless it is awaited or waited for"]
pub struct SharedReady {
    handle: Arc<QueueHandle>,
    /// This task's number in the wait list; `None` before the task has joined the list.
    number: Option<u64>,
}

impl SharedReady {
    pub(super) const fn new(handle: Arc<QueueHandle>) -> Self {
        Self { handle, number: None }
    }

    /// Waits until there is room. During the wait, the calling thread polls the device.
    ///
    /// # Errors
    ///
    /// The errors of the future: see [`SharedQueue::ready`](crate::SharedQueue::ready).
    pub fn wait(self) -> Result<()> {
        self.block(None)
    }

    /// Waits until there is room or `deadline` has passed. During the wait, the calling thread polls the
    /// device.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait), and `TimedOut` without a message if `deadline` has passed.
    pub fn wait_until(self, deadline: Instant) -> Result<()> {
        self.block(Some(deadline))
    }

    /// Drives the lanes until there is room, the queue fails, or `until` has passed.
    fn block(&self, until: Option<Instant>) -> Result<()> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(answer) = self.answer() {
                return answer;
            }
            let help = |lane: &Arc<Lane>| lane.help(self.handle.submitter_id);
            let progress = self.handle.hub.lanes.iter().map(help).sum();
            // A wait without a deadline does not read the clock, because the lane's thread detects stalls.
            let Some(until) = until else {
                backoff.pause();
                continue;
            };
            if backoff.idle(progress, || until) {
                return self.answer().unwrap_or_else(|| Err(Error::bare(ErrorKind::TimedOut)));
            }
        }
    }

    /// Returns the result, or `None` if the task must still wait.
    fn answer(&self) -> Option<Result<()>> {
        let hub = &self.handle.hub;
        let first = self.handle.lane(self.handle.first_lane);
        let fail = |e: Error| Some(Err(e.with_operation("wait for room").with_backend(first.backend)));
        if let Some(refusal) = first.refusal() {
            return fail(refusal);
        }
        if hub.lanes.iter().any(|lane| lane.has_room()) {
            return Some(Ok(()));
        }
        hub.hangs().and_then(|stalled_for| fail(error::stalled(stalled_for)))
    }

    /// Leaves the wait list. `seen` is true if this task has seen room. In that case the next task is woken,
    /// because there may be more room.
    fn leave(&mut self, seen: bool) {
        let Some(number) = self.number.take() else { return };
        if self.handle.hub.process.is_child() {
            return;
        }
        let waker = self.handle.hub.wait_queue.leave(number);
        // Without a waker, this task was woken. It may leave without using the slot, so wake the next task.
        let next = seen || waker.is_none();
        drop_waker(waker);
        if next {
            self.handle.hub.wake_next();
        }
    }
}

impl Future for SharedReady {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = self.answer();
        if answer.is_none() {
            // A fast device may already have freed a slot.
            self.handle.hub.lanes.iter().for_each(|lane| _ = lane.drive(Caller::Task));
            answer = self.answer();
        }
        if answer.is_none() {
            let (number, old) = self.handle.hub.wait_queue.join(self.number, context.waker().clone());
            self.number = Some(number);
            drop_waker(old);
            // A slot that is freed after `join` wakes this task. A slot that was freed before `join` is
            // visible here.
            answer = self.answer();
        }
        match answer {
            None => Poll::Pending,
            Some(answer) => {
                self.leave(answer.is_ok());
                Poll::Ready(answer)
            }
        }
    }
}

impl Drop for SharedReady {
    fn drop(&mut self) {
        self.leave(false);
    }
}

/// The future of [`SharedQueue::when_ready`](crate::SharedQueue::when_ready).
///
/// An `async fn` would move the operands through its own state and that of the transfer's future, which takes
/// longer than a copy of a short range.
pub(super) struct WhenReady<'a, T: Send + 'static, R: Answer, F> {
    handle: &'a Arc<QueueHandle>,
    submit: F,
    /// The operands before they are submitted.
    operands: Option<T>,
    ready: Option<SharedReady>,
    transfer: Option<SharedTransfer<T, R>>,
}

impl<'a, T: Send + 'static, R: Answer, F> WhenReady<'a, T, R, F> {
    #[inline]
    pub(super) const fn new(handle: &'a Arc<QueueHandle>, operands: T, submit: F) -> Self {
        Self { handle, submit, operands: Some(operands), ready: None, transfer: None }
    }
}

/// No field is ever pinned.
impl<T: Send + 'static, R: Answer, F> Unpin for WhenReady<'_, T, R, F> {}

impl<T, R, F> Future for WhenReady<'_, T, R, F>
where
    T: Send + 'static,
    R: Answer,
    F: Fn(T) -> SharedResult<T, R>,
{
    type Output = Result<R::With<T>, OpError<T>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if let Some(transfer) = &mut self.transfer {
                return Pin::new(transfer).poll(context);
            }
            let ready = match &mut self.ready {
                Some(ready) => {
                    let result = std::task::ready!(Pin::new(ready).poll(context));
                    self.ready = None;
                    result
                }
                None => Ok(()),
            };
            let operands = self.operands.take().expect("a future is not polled again once it was ready");
            if let Err(e) = ready {
                return Poll::Ready(Err(OpError::new(e, Some(operands))));
            }
            match (self.submit)(operands) {
                Ok(transfer) => match transfer.take_at_once() {
                    Ok(done) => return Poll::Ready(Ok(done)),
                    Err(transfer) => self.transfer = Some(transfer),
                },
                Err(e) if e.kind() == ErrorKind::QueueFull => {
                    self.operands = Some(e.into_operands().expect("`QueueFull` returns the operands"));
                    self.ready = Some(SharedReady::new(Arc::clone(self.handle)));
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl fmt::Debug for SharedReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReady").field("in_line", &self.number.is_some()).finish_non_exhaustive()
    }
}
