//! The short path of a copy that is the only open operation of a queue on a device.
#![expect(unsafe_code, reason = "submits a checked descriptor to the raw queue")]

use crate::planner::Planner;
use crate::planner::backlog::Backlog;
use crate::planner::device::Progress;
use crate::planner::outcomes::token;
use crate::{Error, Outcome};

/// The value of [`Planner::alone`] while no operation is open. No queue is deep enough to have a slot with
/// this number.
pub(super) const IDLE: u32 = u32::MAX - 2;
/// The value of [`Planner::alone`] while the general path is needed. No queue is deep enough to have a slot
/// with this number.
pub(super) const BUSY: u32 = u32::MAX - 3;

impl Planner {
    /// Submits a copy that is the only open operation, rings the doorbell and polls once. Returns whether the
    /// copy is done and no other code waits for it. If not, [`drive`](Self::drive) continues.
    #[inline]
    pub(crate) fn drive_alone(&mut self, slot: u32) -> bool {
        if self.alone != slot || self.is_poisoned() {
            return false;
        }
        let Backlog { pending, submitted, deferred, queries, .. } = &self.backlog;
        debug_assert!(pending.len() == 1 && *submitted == 0 && deferred.is_empty() && queries.is_empty());
        debug_assert!(self.open_operations() == 1 && self.device.in_flight == 0);
        debug_assert!(!self.backlog.fence && self.delayed_since.is_none());
        // SAFETY: the pending descriptor was checked, and its operands are kept, as in `submit_while_room`.
        match unsafe { self.device.run_one(pending, &mut self.outcomes.log_events) } {
            Ok(Progress::Reported) => {}
            Ok(progress) => return self.continue_alone(progress == Progress::Accepted),
            Err(error) => return self.refuse_alone(error),
        }
        self.backlog.pending.clear();
        let report = &self.device.reports[0];
        if report.token != token(slot, 0) || report.outcome != Outcome::Done {
            return self.report_alone();
        }
        self.outcomes.complete_plain(slot);
        self.alone = IDLE;
        true
    }

    /// Prepares [`drive`](Self::drive) for an operation that [`drive_alone`](Self::drive_alone) has not
    /// completed. Returns false.
    #[cold]
    fn continue_alone(&mut self, is_accepted: bool) -> bool {
        self.alone = BUSY;
        if is_accepted {
            self.backlog.pending.clear();
        }
        false
    }

    /// Ends an operation that the engine has refused. Returns false.
    #[cold]
    fn refuse_alone(&mut self, error: Error) -> bool {
        self.alone = BUSY;
        // Without a waiter, the slot is not appended to the list.
        self.refuse_first(error, &mut Vec::new());
        self.backlog.pending.clear();
        self.backlog.submitted = 0;
        false
    }

    /// Processes a report of a failure. Returns false.
    #[cold]
    fn report_alone(&mut self) -> bool {
        self.alone = BUSY;
        // Without a waiter, the slot is not appended to the list.
        self.take_reports(1, &mut Vec::new());
        self.resume_if_idle();
        false
    }
}
