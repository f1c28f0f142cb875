//! [`Transfer`]: an operation in flight, with its operands.
#![expect(unsafe_code, reason = "takes operands out of a value that has a destructor")]

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::wait::{Backoff, deadline};
use super::{OpError, Operation, State, flush, poll};
use crate::{Error, ErrorKind, Outcome, Result};

/// An operation in flight, and the owner of its operands until it is done.
///
/// Wait for it, poll it, await it on any executor, or drop it: the operation goes on, and its operands are freed when the device is done with
/// them. Forgetting it leaks them. Nothing a holder does lets memory be touched while the device owns it.
#[must_use = "dropping a transfer gives up its operands"]
pub struct Transfer<T: 'static> {
    shared: Rc<RefCell<State>>,
    slot: u32,
    operation: Operation,
    operands: ManuallyDrop<T>,
}

/// No field is ever pinned: the operands' memory is elsewhere.
impl<T> Unpin for Transfer<T> {}

impl<T: 'static> Transfer<T> {
    #[inline]
    pub(super) fn new(shared: Rc<RefCell<State>>, slot: u32, operation: Operation, operands: T) -> Self {
        Self { shared, slot, operation, operands: ManuallyDrop::new(operands) }
    }

    fn has_ended(state: &State, slot: u32) -> bool {
        // A spent transfer has no slot.
        state.planner.ops.get(slot as usize).is_none_or(|op| op.ended)
    }

    /// Polls the device once, without blocking, and says whether the operation has ended, or never will, since the queue was closed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let mut state = self.shared.borrow_mut();
        if Self::is_over(&state, self.slot) {
            return true;
        }
        let (_, aftermath) = state.poll();
        let over = Self::is_over(&state, self.slot);
        drop(state);
        if let Some(aftermath) = aftermath {
            aftermath.run(&self.shared);
        }
        over
    }

    /// Waits until the operation has ended and gives its operands back. Flushes first.
    ///
    /// Gives up when the device has completed nothing on this queue for [`QueueOptions::stall_timeout`](crate::QueueOptions::stall_timeout).
    ///
    /// # Errors
    ///
    /// `DeviceFault`, `Aborted`, `DeviceLost`, `Revoked` or what else the device reported, with the operands; `Closed` with them if the queue was closed
    /// before; `TimedOut` without them: the queue keeps them until the device is done.
    ///
    /// # Panics
    ///
    /// If it was polled before as a future and was ready: the operands have been given back.
    #[inline]
    pub fn wait(mut self) -> Result<T, OpError<T>> {
        let mut state = self.shared.borrow_mut();
        let op = state.planner.ops.get(self.slot as usize);
        if op.is_some_and(|op| op.ended && op.outcome == Outcome::Done) {
            state.release(self.slot);
            drop(state);
            return Ok(Self::take(&mut self.slot, &mut self.operands));
        }
        drop(state);
        self.wait_slow()
    }

    /// Takes the operands out: the transfer is spent afterwards, and its destructor leaves them alone.
    #[inline]
    fn take(slot: &mut u32, operands: &mut ManuallyDrop<T>) -> T {
        assert!(*slot != SPENT, "a transfer is not polled again once it was ready");
        *slot = SPENT;
        // SAFETY: they were not taken before, since the transfer was not spent.
        unsafe { ManuallyDrop::take(operands) }
    }

    fn wait_slow(mut self) -> Result<T, OpError<T>> {
        let stall = self.shared.borrow().stall_timeout;
        if self.block(None, stall) {
            return self.finish();
        }
        let error = Error::new(ErrorKind::TimedOut, format!("the device completed nothing for {stall:?}"))
            .with_operation(self.operation.name())
            .with_backend(self.shared.borrow().planner.backend)
            .with_hint(
                "the operands stay with the queue until the device is done; close the queue to give up on it",
            );
        Err(OpError::new(error, None))
    }

    /// Waits until the operation has ended or `deadline` has passed. Flushes first. After `Ok`, [`wait`](Self::wait) returns at once.
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

    /// Polls until the operation is over (true), `until` has passed, or nothing has completed for `stall`.
    fn block(&self, until: Option<Instant>, stall: Duration) -> bool {
        flush(&self.shared);
        let mut backoff = Backoff::new();
        let mut last_progress = None;
        loop {
            if Self::is_over(&self.shared.borrow(), self.slot) {
                return true;
            }
            let reported = poll(&self.shared);
            if reported > 0 {
                last_progress = None;
            }
            let over = backoff.idle(reported, || {
                let stalled = *last_progress.get_or_insert_with(|| deadline(stall));
                until.unwrap_or(stalled)
            });
            if over {
                // One last look: the deadline may have passed while this thread was not running.
                poll(&self.shared);
                return Self::is_over(&self.shared.borrow(), self.slot);
            }
            if backoff.may_sleep() {
                self.sleep();
            }
        }
    }

    /// Sleeps on the event fd, if there is one, for a short while: whoever waits looks at the clock again soon.
    fn sleep(&self) {
        let fd = {
            let mut state = self.shared.borrow_mut();
            if !state.cooperative {
                // The event is the driver's, who has armed it and may rely on that.
                drop(state);
                std::thread::sleep(Duration::from_micros(50));
                return;
            }
            if state.planner.event_fd().is_none() || !state.planner.arm().unwrap_or(false) {
                return;
            }
            state.planner.event_fd().and_then(|fd| fd.try_clone_to_owned().ok())
        };
        if let Some(fd) = fd {
            let nap = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            let fd = fd.as_fd();
            // Interrupted or refused, the caller polls again all the same.
            let _ = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&nap));
        }
        self.shared.borrow_mut().planner.disarm();
    }

    /// Gives the operands of an operation that has ended back.
    fn finish(&mut self) -> Result<T, OpError<T>> {
        let slot = self.slot;
        let mut state = self.shared.borrow_mut();
        let operands = Self::take(&mut self.slot, &mut self.operands);
        let op = state.planner.ops[slot as usize];
        if !op.ended {
            // Closed before the device answered: it may write to them for ever.
            std::mem::forget(operands);
            let error = Error::new(ErrorKind::DeviceLost, "the queue was closed before the device answered")
                .with_operation(self.operation.name())
                .with_backend(state.planner.backend)
                .with_hint("the operands' memory is leaked, since the device may still write to it");
            return Err(OpError::new(error, None));
        }
        if op.outcome == Outcome::Done {
            state.release(slot);
            return Ok(operands);
        }
        let failures = state.planner.take_failures(slot);
        state.release(slot);
        let backend = state.planner.backend;
        drop(state);
        Err(OpError::from_failures(failures, self.operation, backend, operands))
    }
}

impl State {
    /// Makes a slot ready for another operation.
    #[inline]
    fn release(&mut self, slot: u32) {
        // A closed queue has no slots to give out.
        if !self.planner.is_closed() {
            self.free.push(slot);
        }
    }
}

impl<T: 'static> Future for Transfer<T> {
    type Output = Result<T, OpError<T>>;

    /// As [`wait`](Transfer::wait), without giving up on a stalled device.
    ///
    /// # Panics
    ///
    /// If polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        assert!(this.slot != SPENT, "a transfer is not polled again once it was ready");
        let mut state = this.shared.borrow_mut();
        if !Self::is_over(&state, this.slot) {
            let aftermath = state.drive();
            drop(state);
            if let Some(aftermath) = aftermath {
                aftermath.run(&this.shared);
            }
            if this.attend(context.waker()) {
                return Poll::Pending;
            }
        } else {
            drop(state);
        }
        Poll::Ready(this.finish())
    }
}

impl<T: 'static> Drop for Transfer<T> {
    #[inline]
    fn drop(&mut self) {
        if self.slot != SPENT {
            self.drop_held();
        }
    }
}

impl<T: 'static> Transfer<T> {
    /// Drops a transfer that still has its operands.
    fn drop_held(&mut self) {
        let slot = self.slot;
        let Ok(mut state) = self.shared.try_borrow_mut() else {
            // The queue is at work: a panic goes through it, or code that it runs drops transfers. Whether the device has the operands
            // cannot be told, so that they are leaked.
            return;
        };
        let operands = Self::take(&mut self.slot, &mut self.operands);
        if Self::has_ended(&state, slot) {
            state.planner.take_failures(slot);
            state.release(slot);
            drop(state);
            drop(operands);
        } else if state.planner.is_closed() {
            // The device may write to them for ever.
            std::mem::forget(operands);
        } else {
            state.planner.ops[slot as usize].attended = true;
            let attendant = &mut state.attendants[slot as usize];
            let waker = attendant.waker.take();
            attendant.parked = Some(Box::new(operands));
            // A waker's destructor may be anybody's code.
            drop(state);
            drop(waker);
        }
    }

    /// Whether nothing is left to wait for.
    fn is_over(state: &State, slot: u32) -> bool {
        Self::has_ended(state, slot) || state.planner.is_closed()
    }

    /// Has `waker` woken at the end of the operation, unless it is over already (false).
    fn attend(&self, waker: &Waker) -> bool {
        let mut state = self.shared.borrow_mut();
        let mut new = None;
        if !Self::is_over(&state, self.slot)
            && !state.attendants[self.slot as usize]
                .waker
                .as_ref()
                .is_some_and(|known| known.will_wake(waker))
        {
            // Wakers are cloned and dropped when nothing is borrowed: that, too, may run anybody's code, which may drive the queue.
            drop(state);
            new = Some(waker.clone());
            state = self.shared.borrow_mut();
        }
        let over = Self::is_over(&state, self.slot);
        if !over {
            state.planner.ops[self.slot as usize].attended = true;
            if new.is_some() {
                std::mem::swap(&mut state.attendants[self.slot as usize].waker, &mut new);
            }
        }
        let again = !over && state.cooperative;
        drop(state);
        drop(new);
        if again {
            waker.wake_by_ref();
        }
        !over
    }
}

impl<T: 'static> fmt::Debug for Transfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("operation", &self.operation)
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

/// The slot of a transfer whose operands were given back. No queue is that deep.
const SPENT: u32 = u32::MAX;
