//! Plain copies: each is of one range to another range. The CPU executes a short one at once. Any other
//! becomes one descriptor, and has a short path if it is the only open operation of its queue.
#![expect(unsafe_code, reason = "copies checked ranges, and submits checked descriptors to the raw queue")]

use std::slice;

use super::Planner;
use super::backlog::Backlog;
use super::device::Progress;
use super::outcomes::{slot_of, token};
use crate::memory::operand::sealed::Operand;
use crate::memory::range::Range;
use crate::{Access, Descriptor, EngineId, Error, Outcome, Result, Segment, racy_copy};

/// The value of [`Planner::alone`] while no operation is open. No queue is deep enough to have a slot with
/// this number.
pub(super) const IDLE: u32 = u32::MAX - 2;
/// The value of [`Planner::alone`] while the general path is needed. No queue is deep enough to have a slot
/// with this number.
pub(super) const BUSY: u32 = u32::MAX - 3;

/// The result of [`Planner::run_alone`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RanAlone {
    /// The copy is done.
    Done,
    /// The device has reported the copy, which has failed.
    Reported,
    /// The device has not reported the copy. It has refused or accepted the copy, or has no room.
    Unreported,
}

/// The accessor of an operation's memory. The CPU cannot reach the memory of some regions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Device,
    Cpu,
}

/// Returns whether a copy of one range to another range is valid. `unique` is true if the types exclude that
/// the ranges overlap. This is the only statement of the rule: device, CPU and batches use it.
#[inline]
pub(crate) fn is_valid(by: By, engine: EngineId, src: &Range, dst: &Range, unique: bool) -> bool {
    let granted = grants(by, engine, src, Access::READ) & grants(by, engine, dst, Access::WRITE);
    granted & (src.len == dst.len) & (unique || shared_bytes(src, dst) == 0)
}

/// Returns whether a copy of one range to another range is valid and has 1 to `max` bytes. If not, the
/// planner or [`check`](super::check) finds the reason.
#[inline]
pub(crate) fn is_plain<D: Operand>(engine: EngineId, src: &Range, dst: &Range, max: usize) -> bool {
    is_valid(By::Device, engine, src, dst, D::UNIQUE) & (dst.len.wrapping_sub(1) < max)
}

/// Returns the number of bytes that two ranges of the length of `dst` share.
#[inline]
pub(crate) fn shared_bytes(src: &Range, dst: &Range) -> u64 {
    let ((src_space, src_start), (dst_space, dst_start)) = (src.located(), dst.located());
    // The ranges overlap if the distance between their first bytes is less than their length. The ends are
    // not computed, because they may overflow.
    let shared = (dst.len as u64).saturating_sub(src_start.abs_diff(dst_start));
    if src_space == dst_space { shared } else { 0 }
}

/// Returns whether `range` belongs to `engine`, grants `access`, and can be reached.
#[inline]
pub(crate) fn grants(by: By, engine: EngineId, range: &Range, access: Access) -> bool {
    // A tag has one bit for each right, and one for memory that the CPU can reach. Set all bits that are not
    // requested. If the range grants the rest, then all bits are set, and the result equals the engine's tag
    // with all bits.
    let reach = match by {
        By::Device => EngineId::CPU_VISIBLE,
        By::Cpu => 0,
    };
    range.region.0.tag | reach | u64::from(access.complement().bits()) == engine.full_tag()
}

impl Planner {
    /// Executes a copy of single ranges in this call, if inline execution is allowed now, and the copy is
    /// valid and short enough. Returns whether it was executed.
    // Not by `execute_inline`, because a check of the length includes that of the permission.
    #[inline(always)]
    pub(crate) fn execute_copy<D: Operand>(&mut self, src: &Range, dst: &Range) -> bool {
        let len = dst.len;
        if !self.inline.fits_plain_copy(len) || self.is_poisoned() {
            return false;
        }
        let executed = self.device.guard.call_executor(|| {
            if !is_valid(By::Cpu, self.engine, src, dst, D::UNIQUE) {
                return false;
            }
            // Views lie inside their regions and keep them registered. The caller owns the operands, so
            // others can only read a shared source, or access bytes of windows.
            if len > self.inline.plain_copy_len {
                // SAFETY: `is_valid` has checked engine, rights, lengths and overlap, and that the CPU
                // reaches both ranges. The operands stay registered and owned until the call returns.
                return unsafe { self.inline.copy_checked(src.addr, dst.addr, len) };
            }
            // SAFETY: `is_valid` has checked that the CPU may read one range and write the other, which have
            // `len` bytes. Up to `plain_copy_len`, the executor would only make this call.
            unsafe { racy_copy::copy(dst.addr.as_ptr(), src.addr.as_ptr(), len) };
            true
        });
        if executed {
            self.outcomes.count_executed(1, len);
        }
        executed
    }

    /// Begins a copy of one range to another range in `slot`, which must be idle, if it can become a pending
    /// descriptor now. If not, returns false: pending descriptors must be
    /// [submitted](Self::submit_pending) first, or the copy must be deferred, or it is invalid. The caller
    /// must put the operands into a transfer before any other code can run.
    #[inline(always)]
    pub(crate) fn begin_plain<D: Operand>(&mut self, slot: u32, src: &Range, dst: &Range) -> bool {
        if !is_plain::<D>(self.engine, src, dst, self.max_transfer) || self.is_poisoned() {
            return false;
        }
        if self.alone == IDLE {
            debug_assert!(
                self.backlog.is_clear() && self.backlog.waiting() == 0 && self.delayed_since.is_none()
            );
            self.alone = slot;
        } else if self.backlog.is_clear() && !self.has_full_batch() {
            self.alone = BUSY;
            self.inline.allow(false);
        } else {
            return false;
        }
        self.push_descriptor(slot, src.segment(), dst.segment(), false);
        true
    }

    /// Returns whether a copy of `len` bytes that has passed all checks can become a pending descriptor now.
    /// `len` must be at least 1.
    #[inline]
    pub(crate) fn takes_checked(&self, len: usize) -> bool {
        len <= self.max_transfer && self.backlog.is_clear()
    }

    /// Begins a copy that [`takes_checked`](Self::takes_checked) has accepted, in `slot`, which must be idle.
    /// The layer above must already hold the operands.
    #[inline]
    pub(crate) fn push_plain(&mut self, slot: u32, src: Segment, dst: Segment) {
        self.alone = BUSY;
        self.inline.allow(false);
        self.push_descriptor(slot, src, dst, true);
    }

    // Fields of the planner are written before the lists, because then the compiler need not load them again.
    #[inline]
    fn push_descriptor(&mut self, slot: u32, src: Segment, dst: Segment, has_waiter: bool) {
        self.outcomes.begin_plain(slot, dst.len, has_waiter);
        self.backlog.pending.push(Descriptor::copy(token(slot, 0), src, dst));
    }

    /// Returns whether [`run_alone`](Self::run_alone) may run a copy of `len` bytes now.
    #[inline]
    pub(crate) fn may_run_alone(&self, len: usize) -> bool {
        self.alone == IDLE && len <= self.max_transfer && !self.is_poisoned()
    }

    /// Submits a copy that has passed all checks, rings the doorbell and polls once. `slot` must be idle, and
    /// [`may_run_alone`](Self::may_run_alone) must have returned true. The layer above must already hold the
    /// operands. A copy that is done is not appended to `ended`. Any other copy gets a waiter, so that its
    /// slot is appended when it ends.
    #[inline]
    pub(crate) fn run_alone(
        &mut self,
        slot: u32,
        src: Segment,
        dst: Segment,
        ended: &mut Vec<u32>,
    ) -> RanAlone {
        debug_assert!(self.backlog.is_clear() && self.backlog.waiting() == 0);
        debug_assert!(self.open_operations() == 0 && self.device.in_flight == 0);
        self.alone = BUSY;
        self.outcomes.begin_plain(slot, dst.len, false);
        let descriptor = Descriptor::copy(token(slot, 0), src, dst);
        // SAFETY: the descriptor was checked, and its operands are kept, as in `submit_while_room`.
        let progress = unsafe { self.device.run_one(&[descriptor], &mut self.outcomes.log_events) };
        let report = &self.device.reports[0];
        let is_reported = matches!(progress, Ok(Progress::Reported));
        if !is_reported || report.token != token(slot, 0) || report.outcome != Outcome::Done {
            return self.leave_alone(descriptor, progress, ended);
        }
        self.outcomes.complete_plain(slot);
        self.alone = IDLE;
        RanAlone::Done
    }

    /// Does the work of [`run_alone`](Self::run_alone) for a copy that is not done.
    #[cold]
    fn leave_alone(
        &mut self,
        descriptor: Descriptor<'static>,
        progress: Result<Progress>,
        ended: &mut Vec<u32>,
    ) -> RanAlone {
        self.outcomes.ops[slot_of(descriptor.token()) as usize].has_waiter = true;
        match progress {
            Ok(Progress::Full) => self.backlog.pending.push(descriptor),
            Ok(Progress::Accepted) => {}
            Ok(Progress::Reported) => {
                self.take_reports(1, ended);
                self.resume_if_idle();
                return RanAlone::Reported;
            }
            Err(error) => {
                self.backlog.pending.push(descriptor);
                self.refuse_first(error, ended);
                self.backlog.pending.clear();
                self.backlog.submitted = 0;
            }
        }
        RanAlone::Unreported
    }

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
        let Some(descriptor) = pending.first() else { return false };
        // SAFETY: the pending descriptor was checked, and its operands are kept, as in `submit_while_room`.
        match unsafe { self.device.run_one(slice::from_ref(descriptor), &mut self.outcomes.log_events) } {
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
