//! [`SharedTransfer`]: an operation in flight on a shared queue.
#![expect(unsafe_code, reason = "keeps the slots' protocol")]

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::QueueHandle;
use super::lane::{Caller, Lane};
use super::slot::{Report, Seen};
use crate::planner::handle::{QueueRef, SPENT, TransferFlags, transfer};
use crate::planner::slow_path::slow_path;
use crate::planner::wait::{Backoff, deadline};
use crate::planner::{Answer, error};
use crate::{Error, ErrorKind, OpError, Result};

transfer! {
    /// An operation in flight on a [`SharedQueue`](crate::SharedQueue). It owns the operands (`T`) until the
    /// operation is done, and then returns them, with the result ([`R`](Answer)) if the operation has one.
    ///
    /// Wait for it, or await it on any executor and any thread. If it is dropped, the operation continues,
    /// and its operands are freed when the device is done with them. If it is forgotten, they leak.
    SharedTransfer<T> where T: Send, Arc<QueueHandle>
}

impl<T: Send + 'static, R: Answer> SharedTransfer<T, R> {
    #[inline]
    fn lane(&self) -> &Lane {
        self.queue.lane(self.flags.lane())
    }

    #[inline]
    fn look(&self) -> Seen {
        if self.slot == SPENT {
            // The slot may already serve another operation.
            return Seen::Done;
        }
        self.lane().slots[self.slot as usize].look()
    }

    /// Polls the device once, without blocking. Returns whether the operation has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.look() != Seen::InFlight || {
            self.lane().help(self.queue.submitter_id);
            self.look() != Seen::InFlight
        }
    }

    /// Frees the slot of an operation that is done. Operations with a result have a report.
    #[inline]
    fn release_if_done(&self) -> Option<u64> {
        if self.slot == SPENT || self.look() != Seen::Done {
            return None;
        }
        self.lane().release(self.slot);
        Some(0)
    }

    fn stall_timeout(&self) -> Duration {
        self.lane().stall_timeout
    }

    fn backend(&self) -> &'static str {
        self.lane().backend
    }

    pub(super) fn block(&self, until: Option<Instant>, stall: Duration) -> bool {
        let mut backoff = Backoff::new();
        let (mut last_progress, mut reports) = (None, self.lane().reports());
        loop {
            if self.look() != Seen::InFlight {
                return true;
            }
            let progress = self.lane().help(self.queue.submitter_id);
            let reports_now = self.lane().reports();
            if std::mem::replace(&mut reports, reports_now) != reports_now {
                last_progress = None;
            }
            let over = backoff.idle(progress, || {
                let stalled = *last_progress.get_or_insert_with(|| deadline(stall));
                until.unwrap_or(stalled)
            });
            if over {
                // Poll once more, because the deadline may have passed while this thread was not running.
                self.lane().help(self.queue.submitter_id);
                if until.is_none() && self.lane().reports() != reports {
                    continue;
                }
                return self.look() != Seen::InFlight;
            }
        }
    }

    /// Returns the operands of an ended operation.
    #[inline]
    fn finish(&mut self) -> Result<R::With<T>, OpError<T>> {
        let seen = self.look();
        let slot = self.slot;
        let operands = Self::take(&mut self.slot, &mut self.operands);
        if seen == Seen::Done {
            self.lane().release(slot);
            // Operations with a result have a report.
            return Ok(R::with(operands, 0));
        }
        self.explain(&seen, slot, operands)
    }

    /// Returns the result or the failure of an ended operation.
    #[cold]
    fn explain(&self, seen: &Seen, slot: u32, operands: T) -> Result<R::With<T>, OpError<T>> {
        let (operation, backend) = (self.flags.operation(), self.lane().backend);
        if *seen == Seen::Abandoned {
            // The device may still write to them, so leak them.
            std::mem::forget(operands);
            return Err(error::never_answered(operation, backend));
        }
        // SAFETY: this transfer holds the operation and has seen it reported.
        let report = unsafe { self.lane().slots[slot as usize].take_report() };
        self.lane().release(slot);
        match report {
            Some(Report::Answered(result)) => Ok(R::with(operands, result)),
            Some(Report::Failed(failures)) => {
                Err(OpError::from_failures(failures, operation, backend, operands))
            }
            Some(Report::Closed) | None => {
                let error = error::never_reached().with_operation(operation.name()).with_backend(backend);
                Err(OpError::new(error, Some(operands)))
            }
        }
    }
}

impl<T: Send + 'static, R: Answer> SharedTransfer<T, R> {
    /// Polls for a task. Returns false if the operation has ended.
    fn is_pending(&mut self, waker: &Waker) -> bool {
        if self.look() != Seen::InFlight {
            return false;
        }
        if !self.flags.has_yielded() && self.lane().delays_doorbell() {
            self.flags.set_yielded();
            if self.lane().slots[self.slot as usize].register_waker(waker) {
                // The doorbell waits until all runnable tasks have submitted. If this task is not polled
                // again, the lane's thread rings.
                waker.wake_by_ref();
                return true;
            }
        }
        // A fast device may already be done.
        self.lane().drive(Caller::Task);
        self.look() == Seen::InFlight && self.lane().slots[self.slot as usize].register_waker(waker)
    }

    /// Drops the operands of a transfer that is not spent.
    fn drop_held(&mut self) {
        let number = self.slot;
        let operands = Self::take(&mut self.slot, &mut self.operands);
        let slot = &self.lane().slots[number as usize];
        match slot.look() {
            Seen::InFlight => {
                // SAFETY: this transfer holds the operation, and is not used after it is dropped.
                let parked = unsafe { slot.park(Box::new(operands)) };
                if let Err(operands) = parked {
                    self.end(number, operands);
                }
            }
            _ => self.end(number, operands),
        }
    }

    /// Drops the operands of an operation that has ended.
    fn end<O>(&self, slot: u32, operands: O) {
        match self.lane().slots[slot as usize].look() {
            // The device may still write to them, so leak them.
            Seen::Abandoned => std::mem::forget(operands),
            seen => {
                if seen == Seen::Reported {
                    // SAFETY: this transfer holds the operation and has seen it reported.
                    drop(unsafe { self.lane().slots[slot as usize].take_report() });
                }
                self.lane().release(slot);
                drop(operands);
            }
        }
    }
}
