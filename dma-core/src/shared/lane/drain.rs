//! The close of a lane: operations in flight are completed until a deadline, then aborted or abandoned.
#![expect(unsafe_code, reason = "follows the slots' protocol")]
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use dma_process::lock;

use super::{Caller, Core, GONE, Lane};
use crate::guarded;
use crate::planner::wait::{rest, until_stopped};

impl Lane {
    /// Refuses new operations, and makes the lane's thread drain until `deadline` and exit. If there are
    /// several callers, the earliest of their deadlines applies. Returns this deadline.
    pub(in crate::shared) fn close(&self, deadline: Instant) -> Instant {
        let mut closing = lock(&self.closing);
        let deadline = closing.map_or(deadline, |other| deadline.min(other));
        *closing = Some(deadline);
        self.refuses.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        deadline
    }

    /// Returns the deadline for draining; `None` until the lane is closed.
    pub(super) fn closing(&self) -> Option<Instant> {
        if !self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        *lock(&self.closing)
    }

    /// Completes operations in flight until `deadline`, and closes the device queue. Any thread may call
    /// this, even repeatedly.
    pub(in crate::shared) fn drain(&self, deadline: Instant) {
        // Another thread may have set an earlier deadline.
        let earliest = || self.closing().map_or(deadline, |other| deadline.min(other));
        if !self.poll_until(earliest) {
            guarded("the engine", || self.stop());
            until_stopped(|| self.poll_guarded());
        }
        self.end();
    }

    /// Polls until nothing is in flight, and returns true; or until `until` has passed, and returns false.
    fn poll_until(&self, until: impl Fn() -> Instant) -> bool {
        let mut polls = 0;
        loop {
            let (progress, over) = self.poll_guarded();
            if over {
                return true;
            }
            if Instant::now() >= until() {
                return false;
            }
            if progress == 0 {
                rest(&mut polls);
            }
        }
    }

    /// Polls as [`poll_to_drain`](Self::poll_to_drain) does. A panic of the engine counts as no progress.
    fn poll_guarded(&self) -> (usize, bool) {
        guarded("the engine", || self.poll_to_drain()).unwrap_or((0, false))
    }

    /// Polls once, and closes the device if nothing is in flight. Returns the progress, and whether the
    /// device is closed.
    fn poll_to_drain(&self) -> (usize, bool) {
        let mut core = self.enter();
        let progress = self.run(&mut core, Caller::Closer);
        let over = (core.over || core.planner.open_operations() == 0) && self.is_empty();
        if over {
            // Close under the same lock. Otherwise a late request could be accepted and then abandoned.
            self.give_up(&mut core);
        }
        self.leave(core);
        (progress, over)
    }

    fn stop(&self) {
        let mut core = self.enter();
        let inner = &mut *core;
        if !inner.over {
            inner.planner.stop(&mut inner.ended);
        }
        self.complete(inner);
        self.leave(core);
        crate::guarded_log!(
            warn,
            backend = self.backend,
            "operations did not end within the timeout; the shared queue has stopped the device"
        );
    }

    /// Closes the device and fails late requests.
    fn end(&self) {
        let mut core = self.enter();
        self.give_up(&mut core);
        self.presence.store(GONE, Ordering::SeqCst);
        // Requests before GONE are ended here, and later requests by their submitters. The fence orders the
        // store of GONE before the reads of the inboxes.
        fence(Ordering::SeqCst);
        self.run(&mut core, Caller::Closer);
        self.leave(core);
    }

    /// Abandons the device. Operations that it has not completed leak their parked operands, and are counted
    /// as abandoned.
    pub(super) fn give_up(&self, core: &mut Core) {
        if std::mem::replace(&mut core.over, true) {
            return;
        }
        core.planner.abandon_guarded();
        for (op, slot) in core.planner.outcomes.ops.iter().zip(&self.slots) {
            if !op.has_ended() {
                // SAFETY: the operation has not ended. The planner has abandoned the device and never ends
                // the operation, and `over` ensures that no second call abandons it.
                core.callbacks.extend(unsafe { slot.abandon() });
            }
        }
    }
}

impl Drop for Lane {
    /// If the lane was not drained, abandons the device, so that memory that the device may use is not freed.
    fn drop(&mut self) {
        if !self.is_parents() {
            self.end();
        }
    }
}
