//! The polls of a lane: requests are taken from the inboxes and passed to the planner, the doorbell rings now
//! or waits for other tasks, the device is polled, and ended operations are reported.
#![expect(unsafe_code, reason = "follows the slots' protocol")]

use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use super::{Core, Lane, RefuseOnPanic};
use crate::Outcome;
use crate::planner::Planner;
use crate::shared::deferred_callbacks::DeferredCallback;
use crate::shared::slot::Report;

/// The caller on whose behalf the device is polled, which decides when the doorbell rings.
#[derive(Clone, Copy, Debug)]
pub(in crate::shared) enum Caller {
    /// A waiting thread with this submitter id. The thread rings immediately, and serves its own requests
    /// first.
    Waiter(usize),
    /// A task, after other tasks had the opportunity to submit. The task rings when enough requests wait.
    Task,
    /// The lane's thread. The thread rings under the same conditions as a task. While tasks are still
    /// submitting, the thread does not ring, even if the device is idle.
    Lane,
    /// A thread that closes the queue. The thread rings immediately.
    Closer,
}

impl Lane {
    /// A polling thread serves its own requests first, and the requests of all threads in one of
    /// `SERVE_ALL_EVERY` polls, because the lane's thread does not poll while other threads do.
    pub(super) const SERVE_ALL_EVERY: u32 = 16;

    /// Submits waiting requests and polls the device, unless another thread is doing so. Does not block.
    /// Returns the sum of reported descriptors and accepted requests.
    pub(in crate::shared) fn drive(&self, caller: Caller) -> usize {
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::WouldBlock) => return 0,
            Err(TryLockError::Poisoned(e)) => self.report_poisoned(e.into_inner()),
        };
        let progress = self.run(&mut core, caller);
        self.leave(core);
        progress
    }

    /// Drives the lane as [`drive`](Self::drive) does, for a thread that waits for an operation. The lane's
    /// thread does not poll during such a wait.
    pub(in crate::shared) fn help(&self, submitter_id: usize) -> usize {
        let progress = self.drive(Caller::Waiter(submitter_id));
        if progress > 0 {
            self.count_driven();
        }
        progress
    }

    /// Takes requests from the inboxes, passes them to the planner, and polls the device once. Returns the
    /// sum of requests that were taken and of descriptors that were reported.
    pub(super) fn run(&self, core: &mut Core, caller: Caller) -> usize {
        let panics = RefuseOnPanic(&self.refuses);
        core.runs = core.runs.wrapping_add(1);
        if let Caller::Waiter(submitter_id) = caller
            && !core.runs.is_multiple_of(Self::SERVE_ALL_EVERY)
        {
            self.submitted[submitter_id % Self::INBOXES].take(&self.links, &mut core.taken);
        }
        if core.taken.is_empty() {
            self.submitted.iter().for_each(|inbox| inbox.take(&self.links, &mut core.taken));
        }
        let mut progress = core.taken.len();
        if core.over {
            self.refuse(core);
        } else {
            if progress > 0 {
                self.accept(core);
            }
            match caller {
                Caller::Waiter(_) | Caller::Closer => core.planner.flush(&mut core.ended),
                Caller::Task => core.planner.flush_delayed(|| true, self.doorbell_delay, &mut core.ended),
                Caller::Lane => {
                    core.planner.flush_delayed(
                        || !self.delays_doorbell(),
                        self.doorbell_delay,
                        &mut core.ended,
                    );
                }
            }
            if core.planner.open_operations() > 0 {
                let reported = core.planner.poll(&mut core.ended);
                if reported > 0 {
                    self.count_report();
                } else if core.planner.is_lost() {
                    self.lose(core);
                }
                progress += reported;
            }
        }
        self.complete(core);
        std::mem::forget(panics);
        progress
    }

    /// Passes the accepted requests to the planner.
    pub(super) fn accept(&self, core: &mut Core) {
        // The index is a field, so that no request is lost if this panics. A panic before the commit leaves
        // nothing in the planner.
        while let Some(&slot) = core.taken.get(core.accepted) {
            let cell = &self.slots[slot as usize];
            // SAFETY: the slot came from an inbox and has not been completed.
            if let Some((src, dst)) = unsafe { cell.flat() } {
                if core.planner.takes_checked(dst.len) {
                    core.planner.push_plain(slot, src, dst);
                } else {
                    let mut admission = core.planner.admit(slot, 1, dst.len as u64, true);
                    if admission.push_flat(0, src, dst).is_err() {
                        drop(admission);
                        core.accepted += 1;
                        let Core { planner, callbacks, .. } = core;
                        self.end_unaccepted(planner, callbacks, slot, Report::NoMemory);
                        continue;
                    }
                    admission.commit();
                }
                core.accepted += 1;
                if core.planner.has_full_batch() {
                    core.planner.submit_pending(&mut core.ended);
                }
                continue;
            }
            // SAFETY: the slot came from an inbox and has not been completed.
            let accepted = unsafe {
                cell.request(|request| {
                    let mut admission = core.planner.admit(slot, request.operations, request.bytes, true);
                    let mut plans = request.plans.drain(..).zip(0..);
                    let pushed = plans.try_for_each(|(plan, index)| admission.push(index, plan));
                    // On an error, the admission is dropped.
                    pushed.map(|()| admission.commit())
                })
            };
            core.accepted += 1;
            match accepted {
                Ok(()) => core.planner.pushed(slot, &mut core.ended),
                Err(_) => {
                    let Core { planner, callbacks, .. } = core;
                    self.end_unaccepted(planner, callbacks, slot, Report::NoMemory);
                }
            }
        }
        core.taken.clear();
        core.accepted = 0;
    }

    /// Reports ended operations, and collects log events.
    pub(super) fn complete(&self, core: &mut Core) {
        // Return the lists first, so that they are available to a submitter that sees its operation ended.
        if core.planner.lists.has_spare() {
            self.lists().absorb(&mut core.planner.lists);
        }
        if !core.planner.outcomes.log_events.is_empty() {
            self.emit(core);
        }
        for slot in core.ended.drain(..) {
            let (op, cell) = (&core.planner.outcomes.ops[slot as usize], &self.slots[slot as usize]);
            let callback = if op.outcome == Outcome::Done && !op.answers {
                // SAFETY: the planner reports the end of every operation once, and no other call completes
                // the slot.
                unsafe { cell.complete(None) }
            } else {
                let report = match op.outcome {
                    Outcome::Done => Report::Answered(op.result),
                    _ => Report::Failed(core.planner.outcomes.take_failures(slot)),
                };
                // SAFETY: the planner reports the end of every operation once, and no other call completes
                // the slot.
                unsafe { cell.complete(Some(report)) }
            };
            if let Some(callback) = callback {
                self.ended(&mut core.callbacks, slot, callback);
            }
        }
    }

    /// Queues the callbacks of an ended operation.
    pub(super) fn ended(&self, list: &mut Vec<DeferredCallback>, slot: u32, callback: DeferredCallback) {
        let is_over = matches!(callback, DeferredCallback::Drop(_));
        list.push(callback);
        if is_over {
            self.free.give(slot);
            list.extend(self.wait_queue.next().map(DeferredCallback::Wake));
        }
    }

    /// Ends the requests in `taken` that have not been passed to the planner.
    #[cold]
    pub(super) fn refuse(&self, core: &mut Core) {
        let Core { planner, taken, accepted, callbacks, .. } = core;
        for slot in taken.drain(..).skip(std::mem::take(accepted)) {
            self.end_unaccepted(planner, callbacks, slot, Report::Closed);
        }
    }

    /// Ends a request that was taken from an inbox and has not been passed to the planner.
    #[cold]
    fn end_unaccepted(
        &self,
        planner: &mut Planner,
        callbacks: &mut Vec<DeferredCallback>,
        slot: u32,
        report: Report,
    ) {
        let cell = &self.slots[slot as usize];
        // SAFETY: the slot came from an inbox and has not been completed.
        planner.count_refused(unsafe { cell.operations() });
        // SAFETY: the slot came from an inbox, so it is in flight. Only this call ends it, because its
        // request was not passed to the planner.
        if let Some(callback) = unsafe { cell.complete(Some(report)) } {
            self.ended(callbacks, slot, callback);
        }
    }

    /// Returns whether an awaited operation should first let other tasks submit their operations, because
    /// several operations share the device.
    pub(in crate::shared) fn delays_doorbell(&self) -> bool {
        !self.doorbell_delay.is_zero() && self.free.are_shared(self.slots.len())
    }

    /// Abandons the engine of a lost device.
    #[cold]
    pub(super) fn lose(&self, core: &mut Core) {
        if let Some(error) = core.planner.lost() {
            _ = self.lost.set(error);
        }
        self.refuses.store(true, Ordering::SeqCst);
        self.give_up(core);
        core.callbacks.extend(self.wait_queue.all().into_iter().map(DeferredCallback::Wake));
    }

    /// Moves the planner's log events to the callbacks.
    #[cold]
    pub(super) fn emit(&self, core: &mut Core) {
        core.callbacks.extend(
            core.planner
                .outcomes
                .log_events
                .drain(..)
                .map(|event| DeferredCallback::Emit(event, self.backend)),
        );
    }

    /// Counts a poll with progress by a thread other than the lane's thread.
    #[inline]
    pub(super) fn count_driven(&self) {
        self.driven.store(self.driven.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts a poll in which the device reported a descriptor, or the CPU executed a chunk. The lane must be
    /// locked.
    #[inline]
    pub(super) fn count_report(&self) {
        self.reports.store(self.reports.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}
