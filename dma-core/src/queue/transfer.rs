//! [`Transfer`]: an operation in flight, with its operands.
#![expect(unsafe_code, reason = "takes operands out of a value that has a destructor")]

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::ptr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::planner::OpState;
use super::slow_path::slow_path;
use super::wait::{Backoff, deadline};
use super::{Answer, OpError, Operation, State, error, flush, poll, run};
use crate::{Error, ErrorKind, Outcome, Result};

/// A transfer's share of its queue.
///
/// Neither this nor [`Notes`] has bytes that are never valid: an `Option` or `Result` would keep its tag
/// there, and moving a transfer would touch parts of words. Such moves are most of the cost of a short copy.
pub(crate) struct Link<P>(MaybeUninit<P>);

impl<P> Link<P> {
    #[inline]
    pub(crate) const fn new(shared: P) -> Self {
        Self(MaybeUninit::new(shared))
    }
}

impl<P> Deref for Link<P> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        // SAFETY: it was made with a value, which only the destructor takes.
        unsafe { self.0.assume_init_ref() }
    }
}

impl<P> Drop for Link<P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { self.0.assume_init_drop() };
    }
}

/// The [`Operation`] in the low byte, [`YIELDED`](Self::YIELDED), and the lane in the upper half.
#[derive(Clone, Copy)]
pub(crate) struct Notes(u32);

impl Notes {
    /// Its task has let others submit before the doorbell.
    const YIELDED: u32 = 1 << 8;

    #[inline]
    pub(crate) const fn new(operation: Operation) -> Self {
        Self(operation as u32)
    }

    #[inline]
    pub(crate) const fn with_lane(self, lane: u16) -> Self {
        Self(self.0 | (lane as u32) << 16)
    }

    pub(crate) const fn lane(self) -> u16 {
        (self.0 >> 16) as u16
    }

    pub(crate) const fn operation(self) -> Operation {
        Operation::ALL[(self.0 & 0xff) as usize]
    }

    pub(crate) const fn has_yielded(self) -> bool {
        self.0 & Self::YIELDED != 0
    }

    pub(crate) const fn set_yielded(&mut self) {
        self.0 |= Self::YIELDED;
    }
}

/// Declares a transfer, and the methods that all have.
macro_rules! transfer {
    ($(#[$doc:meta])* $transfer:ident<T> $(where T: $send:ident)?, $queue:ty) => {
        $(#[$doc])*
        #[must_use = "dropping a transfer gives up its operands"]
        pub struct $transfer<T: $($send +)? 'static, R: Answer = ()> {
            queue: Link<$queue>,
            /// [`SPENT`] once the operands were given back.
            slot: u32,
            notes: Notes,
            operands: ManuallyDrop<T>,
            answer: PhantomData<fn() -> R>,
        }

        /// No field is ever pinned: the operands' memory is elsewhere.
        impl<T $(: $send)?, R: Answer> Unpin for $transfer<T, R> {}

        impl<T: $($send +)? 'static, R: Answer> $transfer<T, R> {
            #[inline]
            pub(super) fn new(queue: $queue, slot: u32, notes: Notes, operands: T) -> Self {
                let operands = ManuallyDrop::new(operands);
                Self { queue: Link::new(queue), slot, notes, operands, answer: PhantomData }
            }

            /// Takes the operands out. The destructor of the spent transfer leaves them alone.
            #[inline]
            fn take(slot: &mut u32, operands: &mut ManuallyDrop<T>) -> T {
                assert!(*slot != SPENT, "a transfer is not polled again once it was ready");
                *slot = SPENT;
                // SAFETY: they were not taken before, since the transfer was not spent.
                unsafe { ManuallyDrop::take(operands) }
            }

            /// Waits until the operation has ended and gives its operands back. The calling thread polls the
            /// device meanwhile. Gives up when the device has completed nothing on this queue, or lane, for
            /// [`QueueOptions::stall_timeout`](crate::QueueOptions::stall_timeout).
            ///
            /// # Errors
            ///
            /// `DeviceFault`, `Aborted`, `DeviceLost`, `Revoked` or another failure, with the operands;
            /// `Closed` with them if the queue was closed before; `TimedOut` without them: the queue keeps
            /// them until the device is done.
            ///
            /// # Panics
            ///
            /// If it was polled as a future before and was ready.
            #[inline]
            pub fn wait(self) -> Result<R::With<T>, OpError<T>> {
                // While no destructor and no call can see the operands, the compiler moves them once.
                let this = ManuallyDrop::new(self);
                if let Some(result) = this.release_if_done() {
                    // SAFETY: of a value that is not used any more.
                    drop(unsafe { ptr::read(&this.queue) });
                    // SAFETY: as above. A spent transfer is never done, so that its operands are there.
                    return Ok(R::with(unsafe { ptr::read(&*this.operands) }, result));
                }
                slow_path(ManuallyDrop::into_inner(this), Self::wait_slow)
            }

            fn wait_slow(mut self) -> Result<R::With<T>, OpError<T>> {
                let stall = self.stall_timeout();
                if self.block(None, stall) {
                    return self.finish();
                }
                Err(error::wait_timed_out(self.notes.operation(), self.backend(), stall))
            }

            /// Waits until the operation has ended or `deadline` has passed. After `Ok`, [`wait`](Self::wait)
            /// returns at once.
            ///
            /// # Errors
            ///
            /// `TimedOut`: the transfer is still in flight, and can be waited for again.
            pub fn wait_until(&mut self, deadline: Instant) -> Result<()> {
                let over = self.block(Some(deadline), Duration::MAX);
                if over { Ok(()) } else { Err(Error::bare(ErrorKind::TimedOut)) }
            }

            /// As [`wait_until`](Self::wait_until), `timeout` from now.
            ///
            /// # Errors
            ///
            /// `TimedOut`: the transfer is still in flight, and can be waited for again.
            pub fn wait_for(&mut self, timeout: Duration) -> Result<()> {
                self.wait_until(deadline(timeout))
            }
        }

        impl<T: $($send +)? 'static, R: Answer> Future for $transfer<T, R> {
            type Output = Result<R::With<T>, OpError<T>>;

            /// As `wait`, without giving up on a stalled device.
            ///
            /// # Panics
            ///
            /// If polled again after it was ready.
            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                // The slot may serve another operation by now.
                assert!(self.slot != SPENT, "a transfer is not polled again once it was ready");
                if self.is_pending(context.waker()) { Poll::Pending } else { Poll::Ready(self.finish()) }
            }
        }

        impl<T: $($send +)? 'static, R: Answer> Drop for $transfer<T, R> {
            #[inline]
            fn drop(&mut self) {
                if self.slot != SPENT {
                    self.drop_held();
                }
            }
        }

        impl<T: $($send +)? 'static, R: Answer> fmt::Debug for $transfer<T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($transfer))
                    .field("operation", &self.notes.operation())
                    .field("slot", &self.slot)
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use transfer;

transfer! {
    /// An operation in flight. It owns the operands (`T`) until the operation is done; then they come back,
    /// with the result ([`R`](Answer)) if there is one.
    ///
    /// Wait for it, poll it, await it on any executor, or drop it: the operation goes on, and its operands
    /// are freed when the device is done with them. Forgetting it leaks them. No use of it lets memory be
    /// touched while the device owns it. Waiting flushes first.
    Transfer<T>, Rc<RefCell<State>>
}

impl<T: 'static, R: Answer> Transfer<T, R> {
    fn has_ended(state: &State, slot: u32) -> bool {
        // A spent transfer has no slot.
        state.planner.ops.get(slot as usize).is_none_or(OpState::has_ended)
    }

    /// Polls the device once, without blocking. Returns whether the operation has ended, or the queue is
    /// closed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let mut state = self.queue.borrow_mut();
        if Self::is_over(&state, self.slot) {
            return true;
        }
        let (_, callbacks) = state.poll();
        let over = Self::is_over(&state, self.slot);
        drop(state);
        run(callbacks, &self.queue);
        over
    }

    /// Frees the slot of an operation that is done, and returns its result.
    #[inline]
    fn release_if_done(&self) -> Option<u64> {
        let mut state = self.queue.try_borrow_mut().ok()?;
        // A spent transfer has no slot.
        let op = state.planner.ops.get(self.slot as usize)?;
        if !op.has_ended() || op.outcome != Outcome::Done {
            return None;
        }
        let result = op.result;
        state.release(self.slot);
        Some(result)
    }

    fn stall_timeout(&self) -> Duration {
        self.queue.borrow().stall_timeout
    }

    fn backend(&self) -> &'static str {
        self.queue.borrow().planner.backend
    }

    /// Polls until the operation is over (true), `until` has passed, or nothing has completed for `stall`.
    fn block(&self, until: Option<Instant>, stall: Duration) -> bool {
        flush(&self.queue);
        let mut backoff = Backoff::new();
        let mut last_progress = None;
        loop {
            if Self::is_over(&self.queue.borrow(), self.slot) {
                return true;
            }
            let reported = poll(&self.queue);
            if reported > 0 {
                last_progress = None;
            }
            let over = backoff.idle(reported, || {
                let stalled = *last_progress.get_or_insert_with(|| deadline(stall));
                until.unwrap_or(stalled)
            });
            if over {
                // The deadline may have passed while this thread was not running.
                if poll(&self.queue) > 0 && until.is_none() {
                    last_progress = None;
                    continue;
                }
                return Self::is_over(&self.queue.borrow(), self.slot);
            }
            if backoff.may_sleep() {
                self.sleep();
            }
        }
    }

    /// Sleeps briefly on the event fd, if there is one. The caller reads the clock afterwards.
    fn sleep(&self) {
        let fd = {
            let mut state = self.queue.borrow_mut();
            if !state.cooperative {
                // The event belongs to the driver, which has armed it.
                drop(state);
                std::thread::sleep(Duration::from_micros(50));
                return;
            }
            let Some(events) = state.planner.events() else { return };
            if !events.arm().unwrap_or(false) {
                return;
            }
            events.fd().try_clone_to_owned().ok()
        };
        if let Some(fd) = fd {
            let nap = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            let fd = fd.as_fd();
            // Interrupted or refused, the caller polls again all the same.
            let _ = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&nap));
        }
        if let Some(events) = self.queue.borrow_mut().planner.events() {
            events.disarm();
        }
    }

    /// Gives the operands of an ended operation back.
    fn finish(&mut self) -> Result<R::With<T>, OpError<T>> {
        let slot = self.slot;
        let mut state = self.queue.borrow_mut();
        let operands = Self::take(&mut self.slot, &mut self.operands);
        let op = state.planner.ops[slot as usize];
        if !op.has_ended() {
            // The device may write to them for ever.
            std::mem::forget(operands);
            return Err(error::never_answered(self.notes.operation(), state.planner.backend));
        }
        if op.outcome == Outcome::Done {
            state.release(slot);
            return Ok(R::with(operands, op.result));
        }
        let failures = state.planner.take_failures(slot);
        state.release(slot);
        let backend = state.planner.backend;
        drop(state);
        Err(OpError::from_failures(failures, self.notes.operation(), backend, operands))
    }
}

impl State {
    /// Frees a slot.
    #[inline]
    fn release(&mut self, slot: u32) {
        // A closed queue has no slots to give out.
        if !self.planner.is_closed() {
            self.free.push(slot);
        }
    }
}

impl<T: 'static, R: Answer> Transfer<T, R> {
    /// Polls for a task. Returns false if the operation is over.
    fn is_pending(&mut self, waker: &Waker) -> bool {
        let mut state = self.queue.borrow_mut();
        if Self::is_over(&state, self.slot) {
            return false;
        }
        if self.notes.has_yielded() || !state.gathers() {
            let callbacks = state.drive();
            drop(state);
            run(callbacks, &self.queue);
        } else {
            // It asks to be polled again, below, after the other tasks.
            drop(state);
            self.notes.set_yielded();
        }
        self.register_waker(waker)
    }

    /// Drops a transfer that still has its operands.
    fn drop_held(&mut self) {
        let slot = self.slot;
        let Ok(mut state) = self.queue.try_borrow_mut() else {
            // The queue is at work: a panic unwinds through it, or its callback drops transfers. The device
            // may have the operands, so that they are leaked.
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
            state.planner.ops[slot as usize].has_waiter = true;
            let waiter = &mut state.waiters[slot as usize];
            let waker = waiter.waker.take();
            waiter.parked = Some(Box::new(operands));
            drop(state);
            drop(waker);
        }
    }

    /// Returns whether the operation has ended, or never will.
    fn is_over(state: &State, slot: u32) -> bool {
        Self::has_ended(state, slot) || state.planner.is_closed()
    }

    /// Registers `waker` for the end of the operation. Returns false if it is over.
    fn register_waker(&self, waker: &Waker) -> bool {
        let mut state = self.queue.borrow_mut();
        let mut new = None;
        if !Self::is_over(&state, self.slot)
            && !state.waiters[self.slot as usize].waker.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            // Cloning and dropping wakers may run user code that uses the queue, so that nothing is borrowed.
            drop(state);
            new = Some(waker.clone());
            state = self.queue.borrow_mut();
        }
        let over = Self::is_over(&state, self.slot);
        if !over {
            state.planner.ops[self.slot as usize].has_waiter = true;
            if new.is_some() {
                std::mem::swap(&mut state.waiters[self.slot as usize].waker, &mut new);
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

/// The slot of a transfer whose operands were given back. No queue is that deep.
pub(crate) const SPENT: u32 = u32::MAX;
