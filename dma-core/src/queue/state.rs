//! [`QueueState`]: the state that a queue shares with its transfers, and the callbacks of ended operations.

use std::any::Any;
use std::cell::RefCell;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::guarded::{drop_operands, drop_waker, wake};
use crate::planner::stall_detector::StallDetector;
use crate::planner::{LogEvent, Planner};
use crate::{Error, ErrorKind, QueueEvents, QueueOptions, Result};

/// State shared by a queue and its transfers.
pub(super) struct QueueState {
    pub(super) planner: Planner,
    pub(super) free: FreeSlots,
    pub(super) waiters: Vec<Waiter>,
    /// Slots that have just ended and have a waiter. The list is reused between polls.
    pub(super) ended: Vec<u32>,
    /// Tokens of ended transfers that the caller has not read yet.
    pub(super) tokens: Vec<u64>,
    /// Number of transfers with a token that have not ended.
    pub(super) awaited_tokens: usize,
    pub(super) recycled: DeferredCallbacks,
    pub(super) stall_timeout: Duration,
    /// Maximum time that awaited operations wait to share a doorbell; 0 if they do not wait.
    pub(super) doorbell_delay: Duration,
    /// Detects whether the device has stalled, for tasks and when the queue is full.
    pub(super) stall_detector: StallDetector,
    /// The number of polls at which a task next looks for a stall.
    pub(super) watch_at: u64,
    /// True without a driver. In that case an awaited transfer wakes its own task, to be polled again.
    pub(super) cooperative: bool,
}

/// The numbers of free slots.
pub(super) struct FreeSlots {
    /// A free slot outside of the list, because a program that waits for each operation needs no list; or
    /// [`NONE`](Self::NONE).
    spare: u32,
    others: Vec<u32>,
}

impl FreeSlots {
    /// No queue is deep enough to have a slot with this number.
    const NONE: u32 = u32::MAX;

    /// Slots are taken from the end of the list, so slots with low numbers are used first.
    fn new(slots: u32) -> Self {
        Self { spare: Self::NONE, others: (0..slots).rev().collect() }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        if self.spare != Self::NONE {
            return Some(std::mem::replace(&mut self.spare, Self::NONE));
        }
        self.others.pop()
    }

    /// Returns the slot that [`pop`](Self::pop) will return.
    fn last(&self) -> Option<u32> {
        if self.spare == Self::NONE { self.others.last().copied() } else { Some(self.spare) }
    }

    #[inline]
    pub(super) fn push(&mut self, slot: u32) {
        if self.spare == Self::NONE {
            self.spare = slot;
        } else {
            self.others.push(slot);
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.others.len() + (self.spare != Self::NONE) as usize
    }

    fn clear(&mut self) {
        self.spare = Self::NONE;
        self.others.clear();
    }
}

/// The waiter of an operation: a task, a token, or the operands of a transfer that was dropped early.
#[derive(Default)]
pub(super) struct Waiter {
    pub(super) waker: Option<Waker>,
    pub(super) token: Option<u64>,
    pub(super) parked: Option<Box<dyn Any>>,
}

/// User callbacks to run when the state is no longer borrowed.
#[derive(Default)]
pub(super) struct DeferredCallbacks {
    log_events: Vec<LogEvent>,
    backend: &'static str,
    wake: Vec<Waker>,
    drop: Vec<Box<dyn Any>>,
}

impl DeferredCallbacks {
    /// Runs all callbacks, and keeps the emptied lists for reuse. Catches their panics, because the caller
    /// may be another task than that of the callback.
    pub(super) fn run(mut self, shared: &RefCell<QueueState>) {
        self.log_events.drain(..).for_each(|event| event.emit(self.backend));
        self.drop.drain(..).for_each(drop_operands);
        self.wake.drain(..).for_each(wake);
        shared.borrow_mut().recycled = self;
    }
}

impl QueueState {
    pub(super) fn new(planner: Planner, options: &QueueOptions) -> Self {
        let depth = planner.outcomes.ops.len();
        let slots = u32::try_from(depth).unwrap_or(u32::MAX);
        Self {
            free: FreeSlots::new(slots),
            waiters: std::iter::repeat_with(Waiter::default).take(depth).collect(),
            // The lists have room for all operations, because an allocation that fails ends the program.
            ended: Vec::with_capacity(depth),
            tokens: Vec::with_capacity(depth),
            awaited_tokens: 0,
            recycled: DeferredCallbacks {
                wake: Vec::with_capacity(depth),
                drop: Vec::with_capacity(depth),
                ..DeferredCallbacks::default()
            },
            stall_timeout: options.stall_timeout,
            doorbell_delay: planner.doorbell_delay(options),
            planner,
            stall_detector: StallDetector::new(options.stall_timeout),
            watch_at: 0,
            cooperative: true,
        }
    }

    /// A task looks for a stall once in this number of polls, because that reads the clock.
    const WATCH_EVERY: u64 = 16;

    /// Returns whether an awaited operation should first let other tasks submit their operations.
    pub(super) fn delays_doorbell(&self) -> bool {
        self.cooperative && !self.doorbell_delay.is_zero() && self.planner.open_operations() > 1
    }

    /// Flushes for a task and polls the device. The caller must run the callbacks. With a driver, the
    /// doorbell is not delayed, because the device wakes the driver.
    pub(super) fn drive(&mut self) -> Option<DeferredCallbacks> {
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
    pub(super) fn poll(&mut self) -> (usize, Option<DeferredCallbacks>) {
        let reported = self.planner.poll(&mut self.ended);
        (reported, self.drain())
    }

    /// Reports tokens, and returns the callbacks, or `None` if there are none.
    #[inline]
    pub(super) fn drain(&mut self) -> Option<DeferredCallbacks> {
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

    /// Returns the next free slot, unless the queue [refuses](Planner::refusal) operations.
    pub(super) fn free_slot(&self) -> Option<u32> {
        self.free.last().filter(|_| self.planner.refusal().is_none())
    }

    pub(super) fn flush(&mut self) -> Option<DeferredCallbacks> {
        self.planner.flush(&mut self.ended);
        self.drain()
    }

    /// Asks the engine whether its device is lost. The caller must run the callbacks.
    pub(super) fn check_lost(&mut self) -> Option<DeferredCallbacks> {
        self.planner.check_lost();
        self.drain()
    }

    /// Returns the time for which the device has had operations and completed none of them, if this time
    /// exceeds the stall timeout.
    pub(super) fn stalled(&mut self) -> Option<Duration> {
        if !self.planner.is_at_device() {
            self.stall_detector.reset();
            return None;
        }
        self.stall_detector.observe(self.planner.reported(), self.planner.polls(), Instant::now())
    }

    /// Calls `act` with the engine's events.
    pub(super) fn events<R>(&mut self, act: impl FnOnce(&mut dyn QueueEvents) -> Result<R>) -> Result<R> {
        let (refusal, backend) = (self.planner.refusal(), self.planner.backend);
        self.planner.events(act).unwrap_or_else(|| {
            let lacking = || {
                Error::new(ErrorKind::Unsupported, "the queue has no file descriptor to sleep on")
                    .with_hint("await transfers without a driver: they poll the device themselves")
            };
            Err(refusal.unwrap_or_else(lacking).with_operation("drive queue").with_backend(backend))
        })
    }

    /// Returns the callbacks that wake every waiting task.
    pub(super) fn wake_all(&mut self) -> DeferredCallbacks {
        let mut callbacks = self.callbacks();
        callbacks.wake.extend(self.waiters.iter_mut().filter_map(|a| a.waker.take()));
        if self.planner.is_closed() {
            self.tokens.extend(self.waiters.iter_mut().filter_map(|a| a.token.take()));
            self.awaited_tokens = 0;
        }
        callbacks
    }

    /// Abandons the device, and leaks the memory that it may write.
    pub(super) fn abandon(&mut self) {
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
pub(super) fn run(callbacks: Option<DeferredCallbacks>, shared: &RefCell<QueueState>) {
    if let Some(callbacks) = callbacks {
        callbacks.run(shared);
    }
}

/// Polls the device once, and runs the callbacks. Returns the result of [`Planner::poll`].
pub(super) fn poll(shared: &RefCell<QueueState>) -> usize {
    let (reported, callbacks) = shared.borrow_mut().poll();
    run(callbacks, shared);
    reported
}

pub(super) fn flush(shared: &RefCell<QueueState>) {
    let callbacks = shared.borrow_mut().flush();
    run(callbacks, shared);
}
