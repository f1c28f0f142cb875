//! [`SharedTransfer`]: an operation in flight on a shared queue.
#![expect(unsafe_code, reason = "follows the slots' protocol")]

use std::any::Any;
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
use crate::guarded::box_or_leak;
use crate::planner::error::TransferKind;
use crate::planner::handle::{DropOnUnwind, Ticket, may_go_on, read_in_words, transfer};
use crate::planner::wait::{Backoff, deadline};
use crate::planner::{Answer, error};
use crate::slow_path::slow_path;
use crate::{Error, ErrorKind, OpError, Result};

/// A transfer on a shared queue, or an error that returns the operands.
pub type SharedResult<T, R = ()> = Result<SharedTransfer<T, R>, OpError<T>>;

transfer! {
    /// The handle of an operation on a [`SharedQueue`](crate::SharedQueue). A transfer owns the operands
    /// (`T`) until the operation is done. Then the transfer returns the operands, and the result
    /// ([`R`](Answer)) if the operation has one.
    ///
    /// Wait for a transfer, or await it on any async executor and any thread. If a transfer is dropped, the
    /// operation continues, and the operands are dropped when the operation has ended. This takes a small
    /// allocation; if it fails, the operands are leaked. If a transfer is forgotten, the operands are leaked,
    /// and it counts against the queue's depth until the queue is closed.
    SharedTransfer<T> where T: Send, Arc<QueueHandle>, ()
}

impl<T: Send + 'static, R: Answer> SharedTransfer<T, R> {
    /// Returns the operation's lane, and the submitter id of the queue's clone. Returns `None` for an
    /// operation that was done when it was submitted.
    #[inline]
    fn lane(&self) -> Option<(&Lane, usize)> {
        let queue = self.ticket.queue()?;
        Some((queue.lane(self.ticket.flags().lane()), queue.submitter_id))
    }

    /// Returns the state of the operation; `Done` for a transfer without a slot or a spent transfer.
    #[inline]
    fn look(&self) -> Seen {
        match self.lane() {
            // If the transfer is spent, its slot may already belong to another operation.
            Some((lane, _)) if !self.ticket.is_spent() => {
                match lane.slots[self.ticket.slot() as usize].look() {
                    // The device completes the operation in the parent.
                    Seen::InFlight if lane.is_parents() => Seen::Abandoned,
                    seen => seen,
                }
            }
            _ => Seen::Done,
        }
    }

    /// Polls the device once, without blocking. Returns whether the operation has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.look() != Seen::InFlight || {
            if let Some((lane, submitter_id)) = self.lane() {
                lane.help(submitter_id);
            }
            self.look() != Seen::InFlight
        }
    }

    /// Returns the operands as the first poll does, if the operation was done when it was submitted and the
    /// task need not yield. The operands stay in registers.
    #[inline(always)]
    pub(super) fn take_at_once(self) -> Result<R::With<T>, Self> {
        let this = ManuallyDrop::new(self);
        match this.ticket.result() {
            // SAFETY: `this` is not used afterwards, and its destructor does not run. The ticket has a
            // result, so it is not spent, and the operands have not been taken. The ticket's destructor would
            // do nothing.
            Some(result) if may_go_on() => Ok(R::with(unsafe { ptr::read(&*this.operands) }, result)),
            _ => Err(ManuallyDrop::into_inner(this)),
        }
    }

    /// Drives the lane a few times for an operation that was not done when it was submitted, because most
    /// devices complete a short operation soon after the doorbell. If it is done, drops the ticket, which
    /// must not be used afterwards, and returns the result.
    // Only addresses within the queue are passed to other code, not a pointer to `this`. The compiler then
    // keeps the operands where they are.
    #[inline(always)]
    fn wait_for_device(this: &ManuallyDrop<Self>) -> Option<u64> {
        // SAFETY: the copy is dropped only if a panic unwinds, and `this` is not used then.
        let unwinds = DropOnUnwind::new(unsafe { ptr::read(this) });
        let (slot, flags) = (this.ticket.slot(), this.ticket.flags());
        let is_done = this.ticket.queue().is_some_and(|queue| complete(queue, flags.lane(), slot));
        std::mem::forget(unwinds);
        if !is_done {
            return None;
        }
        // SAFETY: the caller does not use the ticket after this read, and its destructor does not run.
        drop(ManuallyDrop::into_inner(unsafe { ptr::read(&this.ticket) }).into_queue());
        // Operations with a result have a report.
        Some(0)
    }

    fn stall_timeout(&self) -> Duration {
        self.lane().map_or(Duration::ZERO, |(lane, _)| lane.stall_timeout)
    }

    fn backend(&self) -> &'static str {
        self.lane().map_or("", |(lane, _)| lane.backend)
    }

    /// Drives the lane until the operation has ended, and returns true then. Returns false if `until` has
    /// passed, or without `until`, if the lane has completed nothing for `stall`.
    pub(super) fn block(&self, until: Option<Instant>, stall: Duration) -> bool {
        let Some((lane, submitter_id)) = self.lane() else { return true };
        let mut backoff = Backoff::new();
        let (mut last_progress, mut reports) = (None, lane.reports());
        loop {
            if self.look() != Seen::InFlight {
                return true;
            }
            let progress = lane.help(submitter_id);
            let reports_now = lane.reports();
            if std::mem::replace(&mut reports, reports_now) != reports_now {
                last_progress = None;
            }
            let over = backoff.idle(progress, || {
                let stalled = *last_progress.get_or_insert_with(|| deadline(stall));
                until.unwrap_or(stalled)
            });
            if over {
                // Poll once more: the deadline may have passed while this thread was not running, and the
                // device may have completed the operation during that time.
                lane.help(submitter_id);
                if until.is_none() && lane.reports() != reports {
                    continue;
                }
                return self.look() != Seen::InFlight;
            }
        }
    }

    /// Returns the operands of an ended operation.
    #[inline]
    fn finish(&mut self) -> Result<R::With<T>, OpError<T>> {
        if let Some(done) = self.take_done() {
            return Ok(done);
        }
        let seen = self.look();
        let (slot, operands) = Self::take(&mut self.ticket, &mut self.operands);
        let (lane, _) =
            self.lane().expect("an operation that was not done when it was submitted has a queue");
        if seen == Seen::Done {
            lane.release(slot);
            // Operations with a result have a report.
            return Ok(R::with(operands, 0));
        }
        Self::explain(self.ticket.flags().operation(), lane, &seen, slot, operands)
    }

    /// Returns the result or the failure of an ended operation.
    #[cold]
    fn explain(
        operation: TransferKind,
        lane: &Lane,
        seen: &Seen,
        slot: u32,
        operands: T,
    ) -> Result<R::With<T>, OpError<T>> {
        let backend = lane.backend;
        if *seen == Seen::Abandoned {
            // Leak the operands, because the device may still write to them.
            std::mem::forget(operands);
            return Err(error::never_answered(operation, backend, lane.why_abandoned()));
        }
        // SAFETY: this transfer holds the operation, and has seen `Reported`.
        let report = unsafe { lane.slots[slot as usize].take_report() };
        lane.release(slot);
        match report {
            Some(Report::Answered(result)) => Ok(R::with(operands, result)),
            Some(Report::Failed(failures)) => {
                Err(OpError::from_failures(failures, operation, backend, operands))
            }
            Some(Report::NoMemory) => Err(OpError::new(error::no_memory(), Some(operands))),
            Some(Report::Closed) | None => {
                let error = lane.lost().unwrap_or_else(error::never_reached);
                let error = error.with_operation(operation.name()).with_backend(backend);
                Err(OpError::new(error, Some(operands)))
            }
        }
    }
}

/// Drives the lane a few times. If the operation is then done without a report, frees its slot and returns
/// true. The caller holds the operation, or its transfer is spent.
fn complete(queue: &QueueHandle, lane: u16, slot: u32) -> bool {
    let (lane, submitter_id) = (queue.lane(lane), queue.submitter_id);
    let is_done = lane.complete_alone(submitter_id, slot) || complete_slow(lane, submitter_id, slot);
    if is_done {
        lane.release(slot);
    }
    is_done
}

/// Does the work of [`complete`] for an operation that is not a copy alone. Returns whether it is done
/// without a report.
#[inline(never)]
fn complete_slow(lane: &Lane, submitter_id: usize, slot: u32) -> bool {
    /// Number of attempts before the wait backs off and reads the clock.
    const TIMES: u32 = 8;
    // A spent transfer has an invalid slot number.
    let Some(cell) = lane.slots.get(slot as usize) else { return false };
    let is_done = || cell.look() == Seen::Done;
    is_done()
        || (!lane.is_parents()
            && (0..TIMES).any(|_| {
                lane.help(submitter_id);
                is_done()
            }))
}

impl<T: Send + 'static, R: Answer> SharedTransfer<T, R> {
    /// Polls for a task. Returns false if the operation has ended.
    fn is_pending(&mut self, waker: &Waker) -> bool {
        let slot = self.ticket.slot() as usize;
        let Some((lane, _)) = self.lane() else { return false };
        if self.look() != Seen::InFlight {
            return false;
        }
        if !self.ticket.flags().has_yielded() && lane.delays_doorbell() {
            let pending = lane.slots[slot].register_waker(waker);
            self.ticket.set_yielded();
            if pending {
                // Delay the doorbell until all runnable tasks have submitted. If this task is not polled
                // again, the lane's thread rings.
                waker.wake_by_ref();
                return true;
            }
        }
        let Some((lane, _)) = self.lane() else { return false };
        // A fast device may already have completed the operation.
        lane.drive(Caller::Task);
        let slot = &lane.slots[slot];
        slot.look() == Seen::InFlight && slot.register_waker(waker)
    }

    /// Returns whether the device has stalled, and this transfer was awaited for the stall timeout.
    fn has_stalled(&mut self) -> bool {
        let Some((lane, _)) = self.lane() else { return false };
        let steps = lane.stall_steps();
        self.ticket.is_overdue(steps) && self.lane().is_some_and(|(lane, _)| lane.stalled().is_some())
    }

    /// Drops the operands of a transfer that is not spent and that was not done when it was submitted.
    fn drop_held(&mut self) {
        let (number, operands) = Self::take(&mut self.ticket, &mut self.operands);
        let Some((lane, _)) = self.lane() else { return };
        let slot = &lane.slots[number as usize];
        match slot.look() {
            Seen::InFlight => {
                let boxed: Box<dyn Any + Send> = match box_or_leak(operands) {
                    Ok(operands) => operands,
                    Err(leaked) => leaked,
                };
                // SAFETY: this transfer holds the operation, and is not used after it is dropped.
                let parked = unsafe { slot.park(boxed) };
                if let Err(operands) = parked {
                    Self::end(lane, number, operands);
                }
            }
            _ => Self::end(lane, number, operands),
        }
    }

    /// Drops the operands of an operation that has ended. Leaks them if the operation was abandoned.
    fn end<O>(lane: &Lane, slot: u32, operands: O) {
        match lane.slots[slot as usize].look() {
            // Leak the operands, because the device may still write to them.
            Seen::Abandoned => std::mem::forget(operands),
            seen => {
                if seen == Seen::Reported {
                    // SAFETY: this transfer holds the operation, and has seen `Reported`.
                    drop(unsafe { lane.slots[slot as usize].take_report() });
                }
                lane.release(slot);
                drop(operands);
            }
        }
    }
}
