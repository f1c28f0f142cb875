//! [`Slot`]: an operation that the thread that submits it and the lane that completes it share.
//!
//! One operation at a time uses a slot. A submitter takes a slot off the free list, fills the request, and
//! passes the slot's number to the lane through an inbox. The states of a slot are:
//!
//! | state | owner of the cells | next |
//! |---|---|---|
//! | `FREE` | none; off the list, the submitter | `IN_FLIGHT` by [`Slot::submit`] |
//! | `IN_FLIGHT` | the lane (request, report), the holder (operands) | `HAS_WAITER`, `PARKED` or an end |
//! | `HAS_WAITER` | as `IN_FLIGHT`, and the holder has registered a waker | `PARKED` or an end |
//! | `PARKED` | the lane, which drops the operands | `FREE`, or `ABANDONED` |
//! | `DONE` | the holder | the holder frees the slot |
//! | `REPORTED` | the holder, who takes the report | the holder frees the slot |
//! | `ABANDONED` | none: the operands are leaked | the lane is closed |
//!
//! The ends are `DONE` and `REPORTED` by [`Slot::complete`], `DONE` by [`Slot::end`], and `ABANDONED` by
//! [`Slot::abandon`]. A slot
//! that its holder has freed keeps the state of its end until the next submission.
#![expect(unsafe_code, reason = "accesses cells whose owner depends on the slot's state")]

use std::any::Any;
use std::task::Waker;

use super::deferred_callbacks::DeferredCallback;
use crate::guarded::drop_waker;
use crate::memory::sync::{AtomicU8, Ordering, UnsafeCell, WakerCell};
use crate::planner::error::{Failure, no_memory};
use crate::planner::plan::Plan;
use crate::{Result, Segment};

const FREE: u8 = 0;
const IN_FLIGHT: u8 = 1;
const DONE: u8 = 2;
const PARKED: u8 = 3;
const ABANDONED: u8 = 4;
/// State: in flight, and a task waits.
const HAS_WAITER: u8 = 5;
/// State: ended with a report, which is a result or a failure.
const REPORTED: u8 = 6;

/// A submitter's request. The slot keeps the memory of `plans` for reuse.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Request {
    /// The common case: a copy of one range of at least 1 byte to another range. If it is set, the other
    /// fields are unused.
    flat: Option<(Segment, Segment)>,
    pub(super) operations: u32,
    pub(super) bytes: u64,
    /// The plan of the operation, or of each copy of a batch.
    pub(super) plans: Vec<Plan>,
}

impl Request {
    /// Reserves memory for `count` plans. Fails without memory.
    pub(super) fn reserve(&mut self, count: usize) -> Result<()> {
        self.plans.try_reserve(count).map_err(|_| no_memory())
    }
}

/// The outcome of an operation that has failed or has a result.
#[derive(Debug)]
pub(super) enum Report {
    /// The operation has succeeded with this result.
    Answered(u64),
    /// These operations have failed.
    Failed(Vec<Failure>),
    /// The queue was closed before the operation reached the device.
    Closed,
    /// The lane had no memory to pass the operation to the device.
    NoMemory,
}

/// One operation or batch, shared by the thread that submitted it and the lane.
///
/// The common case uses only one cache line, with the state and [`Request::flat`]. The size is a power of
/// two, so that indexing takes one shift.
#[repr(C, align(128))]
pub(super) struct Slot {
    state: AtomicU8,
    request: UnsafeCell<Request>,
    report: UnsafeCell<Option<Report>>,
    parked: UnsafeCell<Option<Box<dyn Any + Send>>>,
    waker: WakerCell,
}

// SAFETY: the state determines the owner of the cells, as the module's table shows, and only the owner
// accesses them. The content of the cells is Send.
unsafe impl Sync for Slot {}
// SAFETY: segments in the request are only addresses, and every other field is Send.
unsafe impl Send for Slot {}

/// The state of an operation, as seen by its holder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    InFlight,
    /// The operation is done. All bytes are in place, and there is no report.
    Done,
    /// The operation has ended, and its slot contains the report.
    Reported,
    /// The device never completed the operation, so the operands must be leaked.
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

    /// Fills the request and marks the slot as in flight, unless `fill` fails. The slot's number must reach
    /// the lane through an inbox, which orders the memory accesses.
    ///
    /// # Safety
    ///
    /// The caller has taken this slot from the free list, and has not submitted it yet.
    pub(super) unsafe fn submit(&self, fill: impl FnOnce(&mut Request) -> Result<()>) -> Result<()> {
        self.request.with_mut(|request| {
            // SAFETY: the free list returns a slot to only one caller, so no other thread accesses the
            // request.
            let request = unsafe { &mut *request };
            request.flat = None;
            // Clear the request, because an earlier panic or error may have left plans in it.
            request.plans.clear();
            fill(request)
        })?;
        self.state.store(IN_FLIGHT, Ordering::Relaxed);
        Ok(())
    }

    /// Submits a request as [`submit`](Self::submit) does, for a copy of one range of at least 1 byte to
    /// another range.
    ///
    /// # Safety
    ///
    /// See [`submit`](Self::submit).
    #[inline]
    pub(super) unsafe fn submit_flat(&self, src: Segment, dst: Segment) {
        // SAFETY: the free list returns a slot to only one caller, so no other thread accesses the request.
        self.request.with_mut(|request| unsafe { (*request).flat = Some((src, dst)) });
        self.state.store(IN_FLIGHT, Ordering::Relaxed);
    }

    /// Returns the source and destination if the request is a copy of one range to another range.
    ///
    /// # Safety
    ///
    /// See [`request`](Self::request).
    #[inline]
    pub(super) unsafe fn flat(&self) -> Option<(Segment, Segment)> {
        // SAFETY: after `submit`, only the lane accesses the request, and the caller is the lane.
        self.request.with_mut(|request| unsafe { (*request).flat })
    }

    /// Passes the request to `take`.
    ///
    /// # Safety
    ///
    /// The caller got this slot's number from an inbox, and has not completed the operation.
    pub(super) unsafe fn request<R>(&self, take: impl FnOnce(&mut Request) -> R) -> R {
        // SAFETY: after `submit`, only the lane accesses the request, and the caller is the lane.
        self.request.with_mut(|request| take(unsafe { &mut *request }))
    }

    /// Returns the number of operations of the request.
    ///
    /// # Safety
    ///
    /// See [`request`](Self::request).
    pub(super) unsafe fn operations(&self) -> u64 {
        self.request.with_mut(|request| {
            // SAFETY: after `submit`, only the lane accesses the request, and the caller is the lane.
            let request = unsafe { &*request };
            if request.flat.is_some() { 1 } else { request.operations.into() }
        })
    }

    /// Ends the operation, with a report if the operation has failed or has a result. If this returns
    /// [`DeferredCallback::Drop`], the slot is free.
    ///
    /// # Safety
    ///
    /// The caller is the lane, which completes every submitted slot once.
    #[inline]
    pub(super) unsafe fn complete(&self, report: Option<Report>) -> Option<DeferredCallback> {
        let mut end = DONE;
        if report.is_some() {
            end = REPORTED;
            // SAFETY: only the lane writes the report, and the holder reads it only after `state` is
            // REPORTED, which is set below.
            self.report.with_mut(|cell| unsafe { *cell = report });
        }
        // The release ordering publishes the report and the copied bytes. The acquire ordering makes parked
        // operands visible.
        let before = self.state.swap(end, Ordering::AcqRel);
        if before == IN_FLIGHT {
            return None;
        }
        // SAFETY: the caller is the lane, which completes every slot once. `before` is the state that the
        // swap returned.
        unsafe { self.completed(before) }
    }

    /// Returns whether the operation is in flight, and neither a task waits for it nor were its operands
    /// parked. Only the holder changes this while the lane is locked.
    #[inline]
    pub(super) fn has_no_waiter(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IN_FLIGHT
    }

    /// Ends an operation that is done, for its holder, which then frees the slot.
    ///
    /// # Safety
    ///
    /// The requirements of [`complete`](Self::complete). The caller is also the holder, and
    /// [`has_no_waiter`](Self::has_no_waiter) has returned true.
    #[inline]
    pub(super) unsafe fn end(&self) {
        self.state.store(DONE, Ordering::Relaxed);
    }

    /// Returns the callback of an operation whose state was `before` when it ended.
    ///
    /// # Safety
    ///
    /// Only [`complete`](Self::complete) may call this, and its requirements apply.
    unsafe fn completed(&self, before: u8) -> Option<DeferredCallback> {
        match before {
            PARKED => {
                // SAFETY: the state is PARKED, so the holder has left the operands to the lane.
                let parked = self.parked.with_mut(|parked| unsafe { (*parked).take() });
                // SAFETY: the state is PARKED, so no holder reads the report.
                drop(self.report.with_mut(|report| unsafe { (*report).take() }));
                self.state.store(FREE, Ordering::Relaxed);
                parked.map(DeferredCallback::Drop)
            }
            // If the holder has already seen DONE, the slot may belong to another operation, whose task is
            // then woken spuriously.
            HAS_WAITER => self.waker.replace(None).map(DeferredCallback::Wake),
            _ => None,
        }
    }

    /// Abandons an operation that the device never completed, and leaks its parked operands.
    ///
    /// # Safety
    ///
    /// The requirements of [`complete`](Self::complete), which must not be called for the same operation.
    pub(super) unsafe fn abandon(&self) -> Option<DeferredCallback> {
        if self.state.swap(ABANDONED, Ordering::AcqRel) == PARKED {
            // SAFETY: the state is PARKED, so the holder has left the operands to the lane. The operands are
            // leaked, because the device may still write to them.
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

    /// Registers `waker`, which is woken when the operation ends. Returns false if the operation has already
    /// ended.
    pub(super) fn register_waker(&self, waker: &Waker) -> bool {
        if !self.waker.will_wake(waker) {
            let old = self.waker.replace(Some(waker.clone()));
            drop_waker(old);
        }
        // The release ordering makes the waker visible to the lane when it sees HAS_WAITER.
        match self.state.compare_exchange(IN_FLIGHT, HAS_WAITER, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(HAS_WAITER) => true,
            Err(_) => {
                // The operation has ended, so this waker is not needed.
                drop_waker(self.waker.replace(None));
                false
            }
        }
    }

    /// Returns the waker of the task that awaits the operation, so that the task is polled again before the
    /// operation ends. The task then registers its waker again.
    pub(super) fn take_waker(&self) -> Option<Waker> {
        if self.state.load(Ordering::Acquire) == HAS_WAITER { self.waker.replace(None) } else { None }
    }

    /// Takes the report of an operation that has ended with [`Seen::Reported`].
    ///
    /// # Safety
    ///
    /// The caller holds the operation and has seen [`Seen::Reported`].
    pub(super) unsafe fn take_report(&self) -> Option<Report> {
        // SAFETY: the lane wrote the report before it set REPORTED, and no longer accesses it.
        self.report.with_mut(|report| unsafe { (*report).take() })
    }

    /// Leaves the operands to the lane while the operation is in flight. If the operation has already ended,
    /// returns the operands, and the caller still holds the operation.
    ///
    /// # Safety
    ///
    /// The caller holds the operation, and does not use the slot after `Ok`.
    pub(super) unsafe fn park(&self, operands: Box<dyn Any + Send>) -> Result<(), Box<dyn Any + Send>> {
        // Drop the waker, because the task no longer waits, and a waker may keep other values alive, even the
        // queue.
        drop_waker(self.waker.replace(None));
        // SAFETY: the caller is the only holder, and the lane accesses the cell only after `state` is PARKED.
        self.parked.with_mut(|parked| unsafe { *parked = Some(operands) });
        for from in [IN_FLIGHT, HAS_WAITER] {
            if self.state.compare_exchange(from, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(());
            }
        }
        // SAFETY: the exchange has failed, so the lane never sees PARKED and does not access the cell.
        Err(self.parked.with_mut(|parked| unsafe { (*parked).take() }).expect("parked above"))
    }
}
