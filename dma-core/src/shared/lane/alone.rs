//! A wait for the only open operation of a lane.
#![expect(unsafe_code, reason = "reads the request of a slot, and ends its operation")]

use super::{Lane, RefuseOnPanic};
use crate::planner::RanAlone;

impl Lane {
    /// Completes the operation in `slot` for its holder, if it is a copy of one range to another range and no
    /// other operation of the lane is open: takes the request, submits it, rings the doorbell and polls once.
    /// Returns whether the copy is done. The caller must then [release](Self::release) the slot. If not,
    /// [`help`](Self::help) continues. The caller must hold the operation, which was submitted with
    /// `submitter_id`. A spent transfer's slot number is allowed.
    pub(in crate::shared) fn complete_alone(&self, submitter_id: usize, slot: u32) -> bool {
        let Some(cell) = self.slots.get(slot as usize) else { return false };
        let Ok(mut guard) = self.core.try_lock() else { return false };
        let core = &mut *guard;
        // A lane that is over refuses what is in its inboxes.
        if core.over || !cell.has_no_waiter() {
            return false;
        }
        debug_assert!(core.taken.is_empty() && core.ended.is_empty());
        let runs = core.runs.wrapping_add(1);
        if runs.is_multiple_of(Self::SERVE_ALL_EVERY) && self.has_other_requests() {
            return false;
        }
        // SAFETY: the lane is locked and has not completed the slot. The caller holds the operation, so it
        // sees the request, and no other thread changes it.
        let Some((src, dst)) = (unsafe { cell.flat() }) else { return false };
        let inbox = &self.submitted[submitter_id % Self::INBOXES];
        if !core.planner.may_run_alone(dst.len) || !inbox.take_only(&self.links, slot) {
            return false;
        }
        core.runs = runs;
        let panics = RefuseOnPanic(&self.refuses);
        let ran = core.planner.run_alone(slot, src, dst, &mut core.ended);
        self.count_driven();
        if ran != RanAlone::Unreported {
            self.count_report();
        }
        let is_done = ran == RanAlone::Done;
        if is_done {
            // SAFETY: the planner has completed the copy and does not report its end. The caller is the
            // holder, and the slot has no waiter.
            unsafe { cell.end() };
        }
        if !is_done || !core.planner.outcomes.log_events.is_empty() {
            self.complete(core);
        }
        std::mem::forget(panics);
        self.leave(guard);
        is_done
    }

    /// Returns whether requests wait in more than one inbox.
    #[cold]
    fn has_other_requests(&self) -> bool {
        self.submitted.iter().filter(|inbox| !inbox.is_empty()).count() > 1
    }
}
