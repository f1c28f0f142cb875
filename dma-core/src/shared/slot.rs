//! [`Slot`]: an operation, shared by the thread that submits it and the lane that completes it.
//!
//! One operation at a time uses a slot, in this order:
//!
//! | state | owner of the cells | next |
//! |---|---|---|
//! | free | nobody | a submitter takes it off the free list |
//! | filling | the submitter | [`Slot::submit`], then an inbox passes its number to the lane |
//! | in flight | the lane (request) and the holder (parked operands) | [`Slot::complete`] or [`Slot::park`] |
//! | done | the holder, who takes the report if there is one | the slot goes back to the free list |
//! | parked | the lane, which takes the operands when it completes | the slot goes back to the free list |
#![expect(unsafe_code, reason = "cells whose owner depends on the slot's state")]

use std::any::Any;
use std::task::Waker;

use super::deferred_callbacks::{DeferredCallback, guarded};
use crate::Segment;
use crate::memory::sync::{AtomicU8, Ordering, UnsafeCell, WakerCell};
use crate::planner::error::Failure;
use crate::planner::plan::Plan;

const FREE: u8 = 0;
const IN_FLIGHT: u8 = 1;
const DONE: u8 = 2;
const PARKED: u8 = 3;
const ABANDONED: u8 = 4;
/// In flight, and a task waits.
const HAS_WAITER: u8 = 5;
/// Ended with a report: a result or a failure.
const REPORTED: u8 = 6;

/// A submitter's request. The memory of its plans stays with the slot.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Request {
    /// The common case: a copy of one range of at least 1 byte to another. Nothing else counts then.
    flat: Option<(Segment, Segment)>,
    pub(super) operations: u32,
    pub(super) bytes: u64,
    /// The operation, or the copies of a batch.
    pub(super) plans: Vec<Plan>,
}

/// The end of an operation other than plain success.
#[derive(Debug)]
pub(super) enum Report {
    /// Success with this result.
    Answered(u64),
    /// These operations did not succeed.
    Failed(Vec<Failure>),
    /// The queue was closed before the operation reached the device.
    Closed,
}

/// One operation or batch, between the thread that submitted it and the lane.
///
/// The common case stays within one cache line: the state and [`Request::flat`]. The size is a power of two,
/// so that a slot is found by a shift.
#[repr(C, align(128))]
pub(super) struct Slot {
    state: AtomicU8,
    request: UnsafeCell<Request>,
    report: UnsafeCell<Option<Report>>,
    parked: UnsafeCell<Option<Box<dyn Any + Send>>>,
    waker: WakerCell,
}

// SAFETY: the cells are touched only by their owner, which the state determines as in the table above; their
// contents are Send.
unsafe impl Sync for Slot {}
// SAFETY: segments in the request are names for memory; everything else is Send by itself.
unsafe impl Send for Slot {}

/// The state of an operation, as its holder sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    InFlight,
    /// It is done, and all is well.
    Done,
    /// It is done, and there is a report.
    Reported,
    /// The device never answered: the operands must be leaked.
    Abandoned,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU8::new(FREE),
            request: UnsafeCell::new(Request { flat: None, operations: 0, bytes: 0, plans: Vec::new() }),
            report: UnsafeCell::new(None),
            parked: UnsafeCell::new(None),
            waker: WakerCell::new(),
        }
    }

    /// Fills the request in and marks the slot in flight. Its number must reach the lane through an inbox,
    /// which orders memory.
    ///
    /// # Safety
    ///
    /// The caller took this slot off the free list.
    pub(super) unsafe fn submit(&self, fill: impl FnOnce(&mut Request)) {
        self.request.with_mut(|request| {
            // SAFETY: the slot is the caller's alone, since the free list gave it out once.
            let request = unsafe { &mut *request };
            request.flat = None;
            // Nothing is left in it, but by a panic.
            request.plans.clear();
            fill(request);
        });
        self.state.store(IN_FLIGHT, Ordering::Relaxed);
    }

    /// As [`submit`](Self::submit), for a copy of one range of at least 1 byte to another.
    ///
    /// # Safety
    ///
    /// As for [`submit`](Self::submit).
    #[inline]
    pub(super) unsafe fn submit_flat(&self, src: Segment, dst: Segment) {
        // SAFETY: as in `submit`.
        self.request.with_mut(|request| unsafe { (*request).flat = Some((src, dst)) });
        self.state.store(IN_FLIGHT, Ordering::Relaxed);
    }

    /// Returns the source and destination of a request that is a copy of one range to another.
    ///
    /// # Safety
    ///
    /// As for [`request`](Self::request).
    #[inline]
    pub(super) unsafe fn flat(&self) -> Option<(Segment, Segment)> {
        // SAFETY: as in `request`.
        self.request.with_mut(|request| unsafe { (*request).flat })
    }

    /// Passes the request to `take`.
    ///
    /// # Safety
    ///
    /// The caller got this slot's number from the submission ring, and has not completed it.
    pub(super) unsafe fn request<R>(&self, take: impl FnOnce(&mut Request) -> R) -> R {
        // SAFETY: after `submit` only the lane touches the request, and it got the slot's number once.
        self.request.with_mut(|request| take(unsafe { &mut *request }))
    }

    /// Ends the operation, with a report if not all is well. After [`DeferredCallback::Drop`] the slot is
    /// free.
    ///
    /// # Safety
    ///
    /// The caller is the lane, and completes every submitted slot once.
    #[inline]
    pub(super) unsafe fn complete(&self, report: Option<Report>) -> Option<DeferredCallback> {
        let mut end = DONE;
        if report.is_some() {
            end = REPORTED;
            // SAFETY: the holder reads the report only after `state` says REPORTED, below.
            self.report.with_mut(|cell| unsafe { *cell = report });
        }
        // Release: the report and the copied bytes; acquire: operands that the holder parked.
        let before = self.state.swap(end, Ordering::AcqRel);
        if before == IN_FLIGHT {
            return None;
        }
        // SAFETY: as the caller promises.
        unsafe { self.completed(before) }
    }

    /// Returns the callback of an operation that was in the state `before` when it ended.
    ///
    /// # Safety
    ///
    /// As for [`complete`](Self::complete), which called it.
    unsafe fn completed(&self, before: u8) -> Option<DeferredCallback> {
        match before {
            PARKED => {
                // SAFETY: the holder parked them and has gone.
                let parked = self.parked.with_mut(|parked| unsafe { (*parked).take() });
                // SAFETY: likewise, so that the report is nobody's.
                drop(self.report.with_mut(|report| unsafe { (*report).take() }));
                self.state.store(FREE, Ordering::Relaxed);
                parked.map(DeferredCallback::Drop)
            }
            // If the holder saw DONE already and the slot serves another operation by now, that one's task is
            // woken once too often.
            HAS_WAITER => self.waker.replace(None).map(DeferredCallback::Wake),
            _ => None,
        }
    }

    /// Gives up on an operation that the device never answered. Leaks parked operands.
    ///
    /// # Safety
    ///
    /// As [`complete`](Self::complete), instead of it.
    pub(super) unsafe fn abandon(&self) -> Option<DeferredCallback> {
        if self.state.swap(ABANDONED, Ordering::AcqRel) == PARKED {
            // SAFETY: the holder parked them and has gone. The device may write to them for ever.
            std::mem::forget(self.parked.with_mut(|parked| unsafe { (*parked).take() }));
        }
        self.waker.replace(None).map(DeferredCallback::Wake)
    }

    /// Returns the state of the operation.
    #[inline]
    pub(super) fn look(&self) -> Seen {
        match self.state.load(Ordering::Acquire) {
            DONE => Seen::Done,
            REPORTED => Seen::Reported,
            ABANDONED => Seen::Abandoned,
            _ => Seen::InFlight,
        }
    }

    /// Registers `waker` for the end of the operation. Returns false if it has ended already.
    pub(super) fn register_waker(&self, waker: &Waker) -> bool {
        if !self.waker.will_wake(waker) {
            let old = self.waker.replace(Some(waker.clone()));
            let_go(old);
        }
        // Release: the lane, which sees HAS_WAITER, sees the waker.
        match self.state.compare_exchange(IN_FLIGHT, HAS_WAITER, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(HAS_WAITER) => true,
            Err(_) => {
                // Nobody will wake it.
                let_go(self.waker.replace(None));
                false
            }
        }
    }

    /// The report of an operation, to be taken once it was seen as [`Seen::Reported`].
    ///
    /// # Safety
    ///
    /// The caller holds the operation, and saw it reported.
    pub(super) unsafe fn take_report(&self) -> Option<Report> {
        // SAFETY: the lane wrote it before it said REPORTED, and touches it no more.
        self.report.with_mut(|report| unsafe { (*report).take() })
    }

    /// Leaves operands to an operation in flight. If it has ended meanwhile, they come back, and the caller
    /// takes the operation.
    ///
    /// # Safety
    ///
    /// The caller holds the operation, and no more after `Ok`.
    pub(super) unsafe fn park(&self, operands: Box<dyn Any + Send>) -> Result<(), Box<dyn Any + Send>> {
        // The task waits no more. Its waker may keep anything alive, even the queue.
        let_go(self.waker.replace(None));
        // SAFETY: the lane looks at it only once `state` says PARKED.
        self.parked.with_mut(|parked| unsafe { *parked = Some(operands) });
        for from in [IN_FLIGHT, HAS_WAITER] {
            if self.state.compare_exchange(from, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(());
            }
        }
        // SAFETY: the lane did not see PARKED and never will.
        Err(self.parked.with_mut(|parked| unsafe { (*parked).take() }).expect("parked above"))
    }
}

/// Drops a waker, which may run user code, and catches its panic: it concerns another task.
pub(super) fn let_go(waker: Option<Waker>) {
    if let Some(waker) = waker {
        guarded("the drop of a task's waker", || drop(waker));
    }
}
