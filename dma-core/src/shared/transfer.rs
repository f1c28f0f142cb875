//! [`SharedTransfer`]: an operation in flight on a shared queue.
#![expect(unsafe_code, reason = "keeps the slots' protocol")]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::Handle;
use super::lane::{Driven, Lane};
use super::slot::{Report, Seen};
use crate::queue::Operation;
use crate::queue::error::REOPEN;
use crate::queue::wait::{Backoff, deadline};
use crate::{Error, ErrorKind, OpError, Result};

/// An operation in flight on a [`SharedQueue`](crate::SharedQueue), and the owner of its operands until it is done.
///
/// Wait for it, await it on any executor and any thread, or drop it: the operation goes on, and its operands are freed when the device is done with
/// them. Forgetting it leaks them.
#[must_use = "dropping a transfer gives up its operands"]
pub struct SharedTransfer<T: Send + 'static> {
    handle: Arc<Handle>,
    lane: u32,
    slot: u32,
    operation: Operation,
    /// `None` once given back.
    operands: Option<T>,
}

/// No field is ever pinned: the operands' memory is elsewhere.
impl<T: Send> Unpin for SharedTransfer<T> {}

impl<T: Send + 'static> SharedTransfer<T> {
    #[inline]
    pub(super) fn new(
        handle: Arc<Handle>,
        lane: usize,
        slot: u32,
        operation: Operation,
        operands: T,
    ) -> Self {
        Self { handle, lane: lane as u32, slot, operation, operands: Some(operands) }
    }

    fn lane(&self) -> &Lane {
        self.handle.lane(self.lane as usize)
    }

    fn look(&self) -> Seen {
        if self.operands.is_none() {
            // The slot may serve another operation by now.
            return Seen::Done;
        }
        self.lane().slots[self.slot as usize].look()
    }

    /// Looks at the device once, without blocking, and says whether the operation has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.look() != Seen::InFlight || {
            self.lane().help(self.handle.number);
            self.look() != Seen::InFlight
        }
    }

    /// Waits until the operation has ended and gives its operands back. Meanwhile the calling thread drives the device.
    ///
    /// Gives up when the device has completed nothing on this lane for [`QueueOptions::stall_timeout`](crate::QueueOptions::stall_timeout).
    ///
    /// # Errors
    ///
    /// `DeviceFault`, `Aborted`, `DeviceLost`, `Revoked` or what else became of it, with the operands; `Closed` with them if the queue was closed
    /// before; `TimedOut` without them: the queue keeps them until the device is done.
    ///
    /// # Panics
    ///
    /// If it was polled before as a future and was ready: the operands have been given back.
    #[inline]
    pub fn wait(mut self) -> Result<T, OpError<T>> {
        if self.look() != Seen::InFlight {
            return self.finish();
        }
        self.wait_slow()
    }

    fn wait_slow(mut self) -> Result<T, OpError<T>> {
        let stall = self.lane().stall_timeout;
        if self.block(None, stall) {
            return self.finish();
        }
        let error = Error::new(ErrorKind::TimedOut, format!("the device completed nothing for {stall:?}"))
            .with_operation(self.operation.name())
            .with_backend(self.lane().backend)
            .with_hint(
                "the operands stay with the queue until the device is done; close the queue to give up on it",
            );
        Err(OpError::new(error, None))
    }

    /// Waits until the operation has ended or `deadline` has passed. After `Ok`, [`wait`](Self::wait) returns at once.
    ///
    /// # Errors
    ///
    /// `TimedOut`: the transfer is still in flight, and can be waited for again.
    pub fn wait_until(&mut self, deadline: Instant) -> Result<()> {
        if self.block(Some(deadline), Duration::MAX) { Ok(()) } else { Err(Error::bare(ErrorKind::TimedOut)) }
    }

    /// As [`wait_until`](Self::wait_until), `timeout` from now.
    ///
    /// # Errors
    ///
    /// `TimedOut`: the transfer is still in flight, and can be waited for again.
    pub fn wait_for(&mut self, timeout: Duration) -> Result<()> {
        self.wait_until(deadline(timeout))
    }

    pub(super) fn block(&self, until: Option<Instant>, stall: Duration) -> bool {
        let mut backoff = Backoff::new();
        let (mut last_progress, mut reports) = (None, self.lane().reports());
        loop {
            if self.look() != Seen::InFlight {
                return true;
            }
            let progress = match self.lane().help(self.handle.number) {
                Driven::Progress(n) => n,
                // Whoever is at it makes progress for this thread too; but it may have gone to sleep on a stuck device.
                Driven::Busy => 0,
            };
            let reports_now = self.lane().reports();
            if std::mem::replace(&mut reports, reports_now) != reports_now {
                last_progress = None;
            }
            let over = backoff.idle(progress, || {
                let stalled = *last_progress.get_or_insert_with(|| deadline(stall));
                until.unwrap_or(stalled)
            });
            if over {
                return self.look() != Seen::InFlight;
            }
        }
    }

    /// Gives the operands of an operation that has ended back.
    #[inline]
    fn finish(&mut self) -> Result<T, OpError<T>> {
        let seen = self.look();
        let operands = self.operands.take().expect("a transfer is not polled again once it was ready");
        if seen == Seen::Done {
            self.lane().release(self.slot);
            return Ok(operands);
        }
        Err(self.explain(&seen, operands))
    }

    /// What became of an operation that has ended, but not well.
    #[cold]
    fn explain(&self, seen: &Seen, operands: T) -> OpError<T> {
        let (operation, backend) = (self.operation, self.lane().backend);
        if *seen == Seen::Abandoned {
            // The device may write to them for ever.
            std::mem::forget(operands);
            let error = Error::new(ErrorKind::DeviceLost, "the queue was closed before the device answered")
                .with_operation(operation.name())
                .with_backend(backend)
                .with_hint("the operands' memory is leaked, since the device may still write to it");
            return OpError::new(error, None);
        }
        // SAFETY: this transfer holds the operation, and saw it reported.
        let report = unsafe { self.lane().slots[self.slot as usize].take_report() };
        self.lane().release(self.slot);
        match report {
            Some(Report::Failed(failures)) => OpError::from_failures(failures, operation, backend, operands),
            Some(Report::Closed) | None => {
                let error = Error::new(
                    ErrorKind::Closed,
                    "the queue was closed before the operation reached the device",
                )
                .with_hint(REOPEN);
                OpError::new(error.with_operation(operation.name()).with_backend(backend), Some(operands))
            }
        }
    }
}

impl<T: Send + 'static> Future for SharedTransfer<T> {
    type Output = Result<T, OpError<T>>;

    /// As [`wait`](SharedTransfer::wait), without giving up on a stalled device.
    ///
    /// # Panics
    ///
    /// If polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The slot may serve another operation by now, whose task is not to be unseated.
        assert!(self.operands.is_some(), "a transfer is not polled again once it was ready");
        if self.look() == Seen::InFlight {
            // A fast device is done by the time it is looked at: no need to sleep for it.
            self.lane().drive(Some(self.handle.number));
            if self.look() == Seen::InFlight && self.lane().slots[self.slot as usize].attend(context.waker())
            {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.finish())
    }
}

impl<T: Send + 'static> Drop for SharedTransfer<T> {
    #[inline]
    fn drop(&mut self) {
        if self.operands.is_some() {
            self.drop_held();
        }
    }
}

impl<T: Send + 'static> SharedTransfer<T> {
    /// Drops a transfer that still has its operands.
    fn drop_held(&mut self) {
        let Some(operands) = self.operands.take() else { return };
        let slot = &self.lane().slots[self.slot as usize];
        match slot.look() {
            Seen::InFlight => {
                // SAFETY: this transfer holds the operation, and is going.
                let parked = unsafe { slot.park(Box::new(operands)) };
                if let Err(operands) = parked {
                    self.end(operands);
                }
            }
            _ => self.end(operands),
        }
    }

    /// Drops the operands of an operation that has ended.
    fn end<O>(&self, operands: O) {
        match self.look() {
            // The device may write to them for ever.
            Seen::Abandoned => std::mem::forget(operands),
            seen => {
                if seen == Seen::Reported {
                    // SAFETY: this transfer holds the operation, and saw it reported.
                    drop(unsafe { self.lane().slots[self.slot as usize].take_report() });
                }
                self.lane().release(self.slot);
                drop(operands);
            }
        }
    }
}

impl<T: Send + 'static> fmt::Debug for SharedTransfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTransfer")
            .field("operation", &self.operation)
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}
