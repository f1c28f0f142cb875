//! Submission of operations to a [`Queue`].

use std::cell::RefMut;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use super::state::{QueueState, run};
use super::{Queue, SubmitResult, Transfer};
use crate::planner::check::{self, Lists};
use crate::planner::error::{self, TransferKind};
use crate::planner::handle::{Ticket, TransferFlags};
use crate::planner::inline::{Executed, Inline};
use crate::planner::operations::operations;
use crate::planner::plan::{Plan, QueueCaps};
use crate::planner::{Answer, Batch, OpError, Planner};
use crate::slow_path::slow_path;
use crate::{Destination, Error, Result, Source};

impl Queue {
    /// Copies `src` to `dst`. Both must have the same length and must not overlap.
    ///
    /// Does not block. The copy may not start before a [`flush`](Self::flush). A copy of 0 bytes is done
    /// immediately.
    ///
    /// # Errors
    ///
    /// All errors are detected before the copy reaches the device, and return the operands: `QueueFull`;
    /// `TimedOut` if the queue is full and the device has completed nothing in
    /// [`QueueOptions::stall_timeout`] of polling; `LengthMismatch`; `Overlap`; `AccessDenied` if a region
    /// lacks the right; `WrongEngine` for memory of another engine; `OutOfMemory`, without a message, if
    /// there is no memory for the lists of a longer operation; `Closed`; `Unsupported` in a forked child.
    ///
    /// [`QueueOptions::stall_timeout`]: crate::QueueOptions::stall_timeout
    // Always inline, because a call takes about the same time as the copy of a short range. The compiler
    // would not inline this function in a program that calls it in several places.
    #[inline(always)]
    pub fn copy<S: Source, D: Destination>(&self, src: S, dst: D) -> SubmitResult<(S, D)> {
        if !(S::SINGLE && D::SINGLE) {
            return self.submit_checked(
                TransferKind::Copy,
                (src, dst),
                |inline, (src, dst)| inline.copy_rows(src, dst),
                |caps, (src, dst), lists| check::copy(caps.engine, src, dst, lists),
            );
        }
        // With `ManuallyDrop`, the operands are not dropped if a panic unwinds, so the compiler moves them
        // only once.
        let operands = ManuallyDrop::new((src, dst));
        if let Ok(mut guard) = self.shared.try_borrow_mut() {
            let state = &mut *guard;
            let (from, to) = (operands.0.single(), operands.1.single());
            if state.planner.execute_copy::<D>(from, to) {
                drop(guard);
                let operands = ManuallyDrop::into_inner(operands);
                return Ok(Transfer::new(Ticket::done(0, TransferKind::Copy), operands));
            }
            if state.planner.selects_copies()
                && let Some(result) =
                    state.planner.execute_inline(|inline, _| inline.copy_selected(&operands.0, &operands.1))
            {
                drop(guard);
                let operands = ManuallyDrop::into_inner(operands);
                return Ok(Transfer::new(Ticket::done(result, TransferKind::Copy), operands));
            }
            if let Some(slot) = state.free.pop() {
                if state.planner.begin_plain::<D>(slot, from, to) {
                    drop(guard);
                    // No other code runs after this, so the compiler can build the transfer in place.
                    let operands = ManuallyDrop::into_inner(operands);
                    let flags = TransferFlags::new(TransferKind::Copy);
                    let ticket = Ticket::new(Rc::clone(&self.shared), slot, flags);
                    return Ok(Transfer::new(ticket, operands));
                }
                state.free.push(slot);
            }
        }
        slow_path(ManuallyDrop::into_inner(operands), |operands| {
            let guard = self.shared.borrow_mut();
            if guard.planner.has_full_batch() {
                self.submit_pending(guard);
            } else {
                drop(guard);
            }
            self.submit_planned(TransferKind::Copy, operands, |caps, (src, dst), lists| {
                check::copy(caps.engine, src, dst, lists)
            })
        })
    }

    /// Executes an operation within this call, if inline execution is allowed now and `run` finds the
    /// operation valid and short enough. Returns its result.
    #[inline]
    pub(crate) fn execute_now(&self, run: impl FnOnce(&Inline) -> Option<Executed>) -> Option<u64> {
        let mut state = self.shared.try_borrow_mut().ok()?;
        state.planner.execute_inline(|inline, _| run(inline))
    }

    /// Submits the pending descriptors.
    #[cold]
    fn submit_pending(&self, mut state: RefMut<'_, QueueState>) {
        let QueueState { planner, ended, .. } = &mut *state;
        planner.submit_pending(ended);
        let callbacks = state.drain();
        drop(state);
        run(callbacks, &self.shared);
    }

    /// Checks an operation, and executes it with `inline` or submits its plan.
    #[inline(always)]
    pub(crate) fn submit_checked<T: 'static, R: Answer>(
        &self,
        operation: TransferKind,
        operands: T,
        inline: impl FnOnce(&Inline, &T) -> Option<Executed>,
        check: impl FnOnce(QueueCaps, &T, &mut Lists) -> Result<Plan>,
    ) -> SubmitResult<T, R> {
        // With `ManuallyDrop`, the operands are not dropped if a panic unwinds, so the compiler moves them
        // only once.
        let operands = ManuallyDrop::new(operands);
        if let Ok(mut state) = self.shared.try_borrow_mut()
            && let Some(result) = state.planner.execute_inline(|executor, _| inline(executor, &operands))
        {
            drop(state);
            let operands = ManuallyDrop::into_inner(operands);
            return Ok(Transfer::new(Ticket::done(result, operation), operands));
        }
        slow_path(ManuallyDrop::into_inner(operands), |operands| {
            self.submit_planned(operation, operands, check)
        })
    }

    /// Checks an operation. Executes it inline if it has lists and is short enough; otherwise submits its
    /// plan.
    fn submit_planned<T: 'static, R: Answer>(
        &self,
        operation: TransferKind,
        operands: T,
        check: impl FnOnce(QueueCaps, &T, &mut Lists) -> Result<Plan>,
    ) -> SubmitResult<T, R> {
        let mut guard = self.shared.borrow_mut();
        let state = &mut *guard;
        let plan = match check(state.planner.caps(), &operands, &mut state.planner.lists) {
            Ok(plan) => plan,
            Err(e) => return Err(Self::refuse(state, operation, e, operands)),
        };
        let executed =
            state.planner.execute_inline(|inline, lists| inline.lists(&plan, lists.is_cpu_visible()));
        if let Some(result) = executed {
            plan.discard(|list| state.planner.lists.keep(list));
            return Ok(Transfer::new(Ticket::done(result, operation), operands));
        }
        let admitted = match state.free_slot() {
            Some(slot) => state.planner.admit_plan(slot, plan).map(|()| slot).map_err(Err),
            None => Err(Ok(plan)),
        };
        match admitted {
            Ok(slot) => Ok(self.pushed(guard, slot, operation, operands)),
            Err(refused) => Err(self.full(guard, operation, refused, operands)),
        }
    }

    /// Submits all copies of `batch` and flushes. The batch counts as one operation of the queue's depth, and
    /// completes when all its copies have completed.
    ///
    /// All copies are checked before the first one is submitted. Copies of one batch are executed in any
    /// order. The destination of a copy must not overlap the operands of the other copies of the batch.
    /// Buffers cannot overlap. If windows overlap, the resulting bytes are undefined.
    ///
    /// # Errors
    ///
    /// The errors of [`copy`](Self::copy), with the batch. The message names the first copy that is refused.
    pub fn submit<S: Source, D: Destination>(&self, mut batch: Batch<S, D>) -> SubmitResult<Batch<S, D>> {
        let mut guard = self.shared.borrow_mut();
        let state = &mut *guard;
        if let Some(result) = state.planner.execute_inline(|inline, _| inline.copy_all(&mut batch)) {
            return Ok(Transfer::new(Ticket::done(result, TransferKind::Batch), batch));
        }
        let operations = match check::batch_len(batch.len()) {
            Ok(operations) => operations,
            Err(e) => return Err(Self::refuse(state, TransferKind::Batch, e, batch)),
        };
        // One loop checks a batch of plain copies and passes them to the planner.
        let mut admitted = None;
        if S::SINGLE
            && D::SINGLE
            && let Some(slot) = state.free_slot()
        {
            let mut admission = state.planner.admit(slot, operations, 0, false);
            if admission.push_all_flat(&batch.pairs) {
                admission.commit();
                admitted = Some(slot);
            }
        }
        let slot = match admitted {
            Some(slot) => slot,
            None => {
                let Planner { engine, lists, .. } = &mut state.planner;
                let bytes = match check::batch(*engine, &batch.pairs, lists) {
                    Ok(bytes) => bytes,
                    Err(e) => return Err(Self::refuse(state, TransferKind::Batch, e, batch)),
                };
                let Some(slot) = state.free_slot() else {
                    return Err(self.full(guard, TransferKind::Batch, Ok(Plan::Empty), batch));
                };
                let mut admission = state.planner.admit(slot, operations, bytes, false);
                let mut pairs = batch.pairs.iter().zip(0_u32..);
                if let Err(e) = pairs.try_for_each(|((src, dst), i)| admission.push_checked(i, src, dst)) {
                    drop(admission);
                    return Err(Self::refuse(state, TransferKind::Batch, e, batch));
                }
                admission.commit();
                slot
            }
        };
        let transfer = self.pushed(guard, slot, TransferKind::Batch, batch);
        self.flush();
        Ok(transfer)
    }

    /// Makes the transfer of a committed operation. No code between the commit and this call may panic,
    /// because only the transfer keeps the operands alive while the device uses them.
    #[inline]
    fn pushed<T: 'static, R: Answer>(
        &self,
        mut state: RefMut<'_, QueueState>,
        slot: u32,
        operation: TransferKind,
        operands: T,
    ) -> Transfer<T, R> {
        let ticket = Ticket::new(Rc::clone(&self.shared), slot, TransferFlags::new(operation));
        let transfer = Transfer::new(ticket, operands);
        let QueueState { planner, free, ended, .. } = &mut *state;
        let taken = free.pop();
        debug_assert_eq!(taken, Some(slot), "the slot of the admitted operation");
        planner.pushed(slot, ended);
        let callbacks = state.drain();
        drop(state);
        run(callbacks, &self.shared);
        transfer
    }

    /// Refuses an operation, because no slot is free for its plan, or with an error. A full queue is flushed,
    /// so that polls make room even if the transfers of all collected operations were dropped.
    #[cold]
    fn full<T>(
        &self,
        mut guard: RefMut<'_, QueueState>,
        operation: TransferKind,
        plan: Result<Plan>,
        operands: T,
    ) -> OpError<T> {
        let state = &mut *guard;
        let plan = match plan {
            Ok(plan) => plan,
            Err(e) => return Self::refuse(state, operation, e, operands),
        };
        plan.discard(|list| state.planner.lists.keep(list));
        if let Some(refusal) = state.planner.refusal() {
            return Self::refuse(state, operation, refusal, operands);
        }
        state.planner.count_full();
        if let Some(stalled_for) = state.stalled() {
            return Self::refuse(state, operation, error::stalled(stalled_for), operands);
        }
        let callbacks = state.flush();
        drop(guard);
        run(callbacks, &self.shared);
        OpError::full(operands)
    }

    #[cold]
    fn refuse<T>(state: &QueueState, operation: TransferKind, error: Error, operands: T) -> OpError<T> {
        OpError::new(error::refused(operation, state.planner.backend, error), Some(operands))
    }
}

operations!(Queue, SubmitResult);
