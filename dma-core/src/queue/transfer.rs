//! [`Transfer`]: an operation in flight, with its operands.
#![expect(unsafe_code, reason = "moves operands out of a value that has a destructor")]

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::ptr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::OneThread;
use super::state::{QueueState, flush, poll, run};
use crate::guarded::{box_or_leak, drop_waker};
use crate::planner::handle::{Ticket, read_in_words, transfer};
use crate::planner::wait::{Backoff, deadline};
use crate::planner::{Answer, OpError, OpState, error};
use crate::slow_path::slow_path;
use crate::{Error, ErrorKind, Outcome, Result};

transfer! {
    /// The handle of an operation. A transfer owns the operands (`T`) until the operation is done. Then the
    /// transfer returns the operands, and the result ([`R`](Answer)) if the operation has one.
    ///
    /// Wait for a transfer, poll it, or await it on any async executor. A wait flushes first. If a transfer
    /// is dropped, the operation continues, and the operands are dropped when the operation has ended. This
    /// takes a small allocation; if it fails, the operands are leaked. If a transfer is forgotten, the
    /// operands are leaked, and it counts against the queue's depth until the queue is closed. In every case,
    /// the program cannot access the memory while the device uses it.
    Transfer<T>, Rc<RefCell<QueueState>>, OneThread
}

impl<T: 'static, R: Answer> Transfer<T, R> {
    /// Returns whether the operation in `slot` has ended; true for an invalid slot number.
    fn has_ended(state: &QueueState, slot: u32) -> bool {
        // A spent transfer has an invalid slot number.
        state.planner.outcomes.ops.get(slot as usize).is_none_or(OpState::has_ended)
    }

    /// Polls the device once, without blocking. Returns whether the operation has ended or the queue is
    /// closed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let Some(queue) = self.ticket.queue() else { return true };
        let mut state = queue.borrow_mut();
        if Self::is_over(&state, self.ticket.slot()) {
            return true;
        }
        let (_, callbacks) = state.poll();
        let over = Self::is_over(&state, self.ticket.slot());
        drop(state);
        run(callbacks, queue);
        over
    }

    /// Polls a few times for an operation that was not done when it was submitted, because most devices
    /// complete a short operation soon after the doorbell. If it is done, drops the ticket, which must not be
    /// used afterwards, and returns the result. If the engine panics in these polls, the operands are leaked,
    /// because the device may still write to them, and so is the queue.
    // The ticket is passed by value, so that no pointer to `this` is passed to other code. The compiler then
    // keeps the operands where they are.
    #[inline(always)]
    fn wait_for_device(this: &ManuallyDrop<Self>) -> Option<u64> {
        // SAFETY: if there is a result, only this copy is used and dropped, otherwise only the other one.
        complete(unsafe { ptr::read(&this.ticket) })
    }

    fn stall_timeout(&self) -> Duration {
        self.ticket.queue().map_or(Duration::ZERO, |queue| queue.borrow().stall_timeout)
    }

    fn backend(&self) -> &'static str {
        self.ticket.queue().map_or("", |queue| queue.borrow().planner.backend)
    }

    /// Waits as the function [`block`] does, until this operation is over.
    fn block(&self, until: Option<Instant>, stall: Duration) -> bool {
        let Some(queue) = self.ticket.queue() else { return true };
        block(queue, |state| Self::is_over(state, self.ticket.slot()), until, stall)
    }

    /// Sets the token for [`Queue::set_token`](super::Queue::set_token). If the operation was done when it
    /// was submitted, `queue` reports the token; otherwise the transfer's own queue does.
    pub(super) fn set_token(&self, queue: &RefCell<QueueState>, token: u64) {
        let (queue, slot) = (self.ticket.queue().map_or(queue, |own| own), self.ticket.slot());
        let state = &mut *queue.borrow_mut();
        // A transfer without a slot has an invalid slot number, and counts as over.
        if Self::is_over(state, slot) {
            state.tokens.push(token);
        } else {
            state.planner.set_waiter(slot);
            let before = state.waiters[slot as usize].token.replace(token);
            state.awaited_tokens += usize::from(before.is_none());
        }
    }

    /// Returns the operands of an ended operation.
    fn finish(&mut self) -> Result<R::With<T>, OpError<T>> {
        if let Some(done) = self.take_done() {
            return Ok(done);
        }
        let (slot, operands) = Self::take(&mut self.ticket, &mut self.operands);
        let queue =
            self.ticket.queue().expect("an operation that was not done when it was submitted has a queue");
        let mut state = queue.borrow_mut();
        let op = state.planner.outcomes.ops[slot as usize];
        if !op.has_ended() {
            // Leak the operands, because the device may still write to them.
            std::mem::forget(operands);
            let planner = &state.planner;
            return Err(error::never_answered(
                self.ticket.flags().operation(),
                planner.backend,
                planner.why_abandoned(),
            ));
        }
        if op.outcome == Outcome::Done {
            state.release(slot);
            return Ok(R::with(operands, op.result));
        }
        let failures = state.planner.outcomes.take_failures(slot);
        state.release(slot);
        let backend = state.planner.backend;
        drop(state);
        Err(OpError::from_failures(failures, self.ticket.flags().operation(), backend, operands))
    }
}

/// Flushes, and polls the device a few times. If the operation is done and no callbacks are to run, frees its
/// slot, drops the ticket and returns the result. This function is not generic and not inlined, so all
/// operand types share it.
#[inline(never)]
fn complete(ticket: ManuallyDrop<Ticket<Rc<RefCell<QueueState>>>>) -> Option<u64> {
    let slot = ticket.slot();
    let queue = ManuallyDrop::new(ManuallyDrop::into_inner(ticket).into_queue()?);
    let result = if drive_alone(&queue, slot) { 0 } else { complete_slow(&queue, slot)? };
    drop(ManuallyDrop::into_inner(queue));
    Some(result)
}

/// Does the work of [`complete`] for a copy that is the only open operation. Returns false if there are
/// others, or if the copy is not done.
#[inline]
fn drive_alone(queue: &RefCell<QueueState>, slot: u32) -> bool {
    let Ok(mut state) = queue.try_borrow_mut() else { return false };
    let done = state.planner.drive_alone(slot);
    if done {
        state.free.push(slot);
    }
    done
}

/// Does the work of [`complete`] for an operation that is not alone and has not ended.
#[inline(never)]
fn complete_slow(queue: &RefCell<QueueState>, slot: u32) -> Option<u64> {
    /// Number of polls before the wait backs off and reads the clock.
    const POLLS: u32 = 8;
    let mut guard = queue.try_borrow_mut().ok()?;
    let state = &mut *guard;
    // A spent transfer has an invalid slot number.
    let op = state.planner.outcomes.ops.get(slot as usize)?;
    if op.has_ended() && op.outcome == Outcome::Done {
        return state.release_if_done(slot);
    }
    state.planner.drive(slot, POLLS, &mut state.ended);
    if let Some(callbacks) = state.drain() {
        drop(guard);
        callbacks.run(queue);
        return None;
    }
    state.release_if_done(slot)
}

/// Polls until `is_over` returns true, and returns true then. Returns false if `until` has passed, or without
/// `until`, if nothing has completed for `stall`.
pub(super) fn block(
    queue: &RefCell<QueueState>,
    is_over: impl Fn(&QueueState) -> bool,
    until: Option<Instant>,
    stall: Duration,
) -> bool {
    flush(queue);
    if is_over(&queue.borrow()) {
        return true;
    }
    let mut backoff = Backoff::new();
    let mut last_progress = None;
    loop {
        let reported = poll(queue);
        if is_over(&queue.borrow()) {
            return true;
        }
        if reported > 0 {
            last_progress = None;
        }
        let over = backoff.idle(reported, || {
            let stalled = *last_progress.get_or_insert_with(|| deadline(stall));
            until.unwrap_or(stalled)
        });
        if over {
            // Poll once more: the deadline may have passed while this thread was not running, and the device
            // may have completed the operation during that time.
            if poll(queue) > 0 && until.is_none() {
                last_progress = None;
                continue;
            }
            return is_over(&queue.borrow());
        }
        if backoff.may_sleep() {
            // Let the stall detector count the time of this wait.
            queue.borrow_mut().stalled();
            sleep(queue);
        }
    }
}

/// Sleeps briefly on the event fd, if the queue has an event. The caller reads the clock afterwards.
fn sleep(queue: &RefCell<QueueState>) {
    let fd = {
        let mut state = queue.borrow_mut();
        if !state.cooperative {
            // The driver has armed the event, so do not change its state.
            drop(state);
            std::thread::sleep(Duration::from_micros(50));
            return;
        }
        let armed = state.planner.events(|events| {
            events.arm().is_ok_and(|armed| armed).then(|| events.fd().ok()?.try_clone_to_owned().ok())
        });
        let Some(Some(fd)) = armed else { return };
        fd
    };
    if let Some(fd) = fd {
        let nap = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let fd = fd.as_fd();
        // Ignore errors, because the caller polls again in any case.
        let _ = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&nap));
    }
    queue.borrow_mut().planner.events(|events| events.disarm());
}

impl QueueState {
    /// If the operation in `slot` is done, frees the slot and returns the result.
    #[inline]
    fn release_if_done(&mut self, slot: u32) -> Option<u64> {
        // A spent transfer has an invalid slot number.
        let op = self.planner.outcomes.ops.get(slot as usize)?;
        if !op.has_ended() || op.outcome != Outcome::Done {
            return None;
        }
        let result = op.result;
        self.release(slot);
        Some(result)
    }

    /// Frees a slot.
    #[inline]
    fn release(&mut self, slot: u32) {
        // A closed queue must have no free slots.
        if !self.planner.is_closed() {
            self.free.push(slot);
        }
    }
}

impl<T: 'static, R: Answer> Transfer<T, R> {
    /// Polls the device for a task. Returns false if the operation is over.
    fn is_pending(&mut self, waker: &Waker) -> bool {
        let Some(queue) = self.ticket.queue() else { return false };
        let slot = self.ticket.slot();
        let mut state = queue.borrow_mut();
        if Self::is_over(&state, slot) {
            return false;
        }
        let yields = !self.ticket.flags().has_yielded() && state.delays_doorbell();
        if yields {
            // `register_waker` below wakes the task again, after the other tasks have run.
            drop(state);
        } else {
            let callbacks = state.drive();
            drop(state);
            run(callbacks, queue);
        }
        let pending = Self::register_waker(queue, slot, waker);
        if yields {
            self.ticket.set_yielded();
        }
        pending
    }

    /// Returns whether the device has stalled, and this transfer was awaited for the stall timeout.
    fn has_stalled(&mut self) -> bool {
        let Some(queue) = self.ticket.queue() else { return false };
        let steps = queue.borrow().stall_detector.steps();
        self.ticket.is_overdue(steps)
            && self.ticket.queue().is_some_and(|queue| queue.borrow_mut().stalled().is_some())
    }

    /// Drops the operands of a transfer that is not spent and that was not done when it was submitted.
    fn drop_held(&mut self) {
        let Some(queue) = self.ticket.queue() else { return };
        let queue = Rc::clone(queue);
        let Ok(mut state) = queue.try_borrow_mut() else {
            // The queue is borrowed, because a panic unwinds through the queue or one of its callbacks drops
            // transfers. Leak the operands, because the device may be using them.
            return;
        };
        let (slot, operands) = Self::take(&mut self.ticket, &mut self.operands);
        if Self::has_ended(&state, slot) {
            state.planner.outcomes.take_failures(slot);
            state.release(slot);
            drop(state);
            drop(operands);
        } else if state.planner.is_closed() {
            // Leak the operands, because the device may still write to them.
            std::mem::forget(operands);
        } else {
            state.planner.set_waiter(slot);
            let waiter = &mut state.waiters[slot as usize];
            let had_token = waiter.token.take().is_some();
            let waker = waiter.waker.take();
            waiter.parked = Some(match box_or_leak(operands) {
                Ok(operands) => operands,
                Err(leaked) => leaked,
            });
            state.awaited_tokens -= usize::from(had_token);
            drop(state);
            drop_waker(waker);
        }
    }

    /// Returns whether the operation has ended, or will never end because the queue is closed.
    fn is_over(state: &QueueState, slot: u32) -> bool {
        Self::has_ended(state, slot) || state.planner.is_closed()
    }

    /// Registers `waker` for the end of the operation. Returns false if the operation has ended.
    fn register_waker(queue: &RefCell<QueueState>, slot: u32, waker: &Waker) -> bool {
        let mut state = queue.borrow_mut();
        let mut new = None;
        if !Self::is_over(&state, slot)
            && !state.waiters[slot as usize].waker.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            // Release the borrow, because cloning and dropping wakers may run user code that uses the queue.
            drop(state);
            new = Some(waker.clone());
            state = queue.borrow_mut();
        }
        let over = Self::is_over(&state, slot);
        if !over {
            state.planner.set_waiter(slot);
            if new.is_some() {
                std::mem::swap(&mut state.waiters[slot as usize].waker, &mut new);
            }
        }
        let again = !over && state.cooperative;
        drop(state);
        drop_waker(new);
        if again {
            waker.wake_by_ref();
        }
        !over
    }
}
