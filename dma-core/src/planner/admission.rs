//! [`Admission`] adds operations to the planner's [`Backlog`], which the planner submits as depth, limits and
//! fences permit.
#![expect(unsafe_code, reason = "submits checked descriptors, and fills reserved memory of a list")]

use std::mem::ManuallyDrop;

use super::backlog::{Backlog, SUBMIT_BATCH};
use super::cursor::Cursor;
use super::outcomes::{ONE_INDEX, OpState, Phase, slot_of, token};
use super::plain::{self, BUSY};
use super::plan::Plan;
use super::query::QueryProgress;
use super::split::{DeferredOp, Fence, OpKind};
use super::{Planner, check, error};
use crate::memory::operand::sealed::Operand;
use crate::{Capabilities, Descriptor, Result, Segment};

impl Planner {
    /// Begins `operations` operations with `bytes` in total in `slot`, which must be idle. The operations are
    /// not submitted to the device before [`Admission::commit`] and [`pushed`](Self::pushed).
    #[inline]
    pub(crate) fn admit(
        &mut self,
        slot: u32,
        operations: u32,
        bytes: u64,
        has_waiter: bool,
    ) -> Admission<'_> {
        self.outcomes.ops[slot as usize] =
            OpState { operations, bytes, phase: Phase::Open, has_waiter, ..OpState::IDLE };
        let Backlog { pending, deferred, fence, .. } = &self.backlog;
        let (pending, deferred, fence) = (pending.len(), deferred.len(), *fence);
        Admission { planner: self, slot, pending, deferred, fence }
    }

    /// Begins the operation of `plan` in `slot`, as [`admit`](Self::admit) does. Fails without memory.
    #[inline(never)]
    pub(crate) fn admit_plan(&mut self, slot: u32, plan: Plan) -> Result<()> {
        let mut admission = self.admit(slot, 1, plan.len() as u64, false);
        admission.push(0, plan)?;
        admission.commit();
        Ok(())
    }

    /// Returns whether enough descriptors are pending for [`submit_pending`](Self::submit_pending).
    #[inline]
    pub(crate) fn has_full_batch(&self) -> bool {
        self.backlog.waiting() >= SUBMIT_BATCH
    }

    /// Submits committed operations if a full batch is pending. The layer above must already hold their
    /// operands.
    #[inline]
    pub(crate) fn pushed(&mut self, slot: u32, ended: &mut Vec<u32>) {
        self.end_if_over(slot, ended);
        if self.has_full_batch() {
            self.submit_pending(ended);
        }
    }

    /// Returns whether an operation with one segment on each side and `len` bytes can become a pending
    /// descriptor.
    #[inline]
    fn submits_at_once(&self, len: usize) -> bool {
        // While a query has more chunks to submit, a fence after the query cannot be passed to the device.
        let fence = self.capabilities.contains(Capabilities::FENCE) && self.backlog.queries.is_empty();
        self.backlog.deferred.is_empty() && len <= self.max_transfer && (!self.backlog.fence || fence)
    }

    /// Adds a pending descriptor, with the next operation's fence.
    #[inline]
    fn push_fenced(&mut self, descriptor: Descriptor<'static>) -> Result<()> {
        if self.backlog.pending.try_reserve(1).is_err() {
            return Err(error::no_memory());
        }
        let fence = std::mem::take(&mut self.backlog.fence);
        self.device.fence_in_flight |= fence;
        self.backlog.pending.push(descriptor.with_fence(fence));
        Ok(())
    }

    /// Takes the next operation's fence, and returns how the deferred operation must apply it.
    fn next_fence(&mut self) -> Fence {
        if !std::mem::take(&mut self.backlog.fence) {
            Fence::Clear
        } else if self.capabilities.contains(Capabilities::FENCE) {
            Fence::Device
        } else {
            Fence::Drain
        }
    }

    /// Adds an operation that is submitted in chunks, with the next operation's fence.
    fn defer(&mut self, token: u64, kind: OpKind, dst: Vec<Segment>) -> Result<()> {
        if !self.backlog.reserve_deferred() || !self.chunk.reserve(&kind, &dst, self.max_segments) {
            return Err(error::no_memory());
        }
        let fence = self.next_fence();
        self.outcomes.ops[slot_of(token) as usize].deferred += 1;
        self.backlog.deferred.push_back(DeferredOp::new(token, fence, kind, dst));
        Ok(())
    }
}

/// An operation or batch whose descriptors are being added to a planner.
///
/// If an admission is dropped without [`commit`](Self::commit), after a refusal or a panic, it removes its
/// descriptors from the planner, because their operands may be freed.
#[derive(Debug)]
#[must_use = "dropping an admission removes its descriptors"]
pub(crate) struct Admission<'a> {
    planner: &'a mut Planner,
    slot: u32,
    /// Number of pending descriptors before this admission.
    pending: usize,
    /// Number of deferred operations before this admission.
    deferred: usize,
    /// The backlog's `fence` before this admission.
    fence: bool,
}

impl Admission<'_> {
    /// Adds the operation with this index. Fails without memory; the admission must then be dropped.
    #[inline]
    pub(crate) fn push(&mut self, index: u32, plan: Plan) -> Result<()> {
        let token = token(self.slot, index);
        match plan {
            Plan::Flat(src, dst) => self.push_flat(index, src, dst),
            Plan::Empty => Ok(()),
            Plan::Lists(src, dst) => self.planner.defer(token, OpKind::Copy(Cursor::new(src)), dst),
            Plan::CopyToBoth(mut src, [mut dst, mut also]) => {
                let planner = &mut *self.planner;
                if planner.capabilities.contains(Capabilities::COPY_TO_BOTH) {
                    let kind = OpKind::CopyToBoth(Cursor::new(src), Cursor::new(also));
                    planner.defer(token, kind, dst)
                } else {
                    if src.try_reserve(src.len()).is_err() || dst.try_reserve(also.len()).is_err() {
                        return Err(error::no_memory());
                    }
                    src.extend_from_within(..);
                    dst.append(&mut also);
                    planner.lists.keep(also);
                    planner.defer(token, OpKind::Copy(Cursor::new(src)), dst)
                }
            }
            Plan::Query(query) => {
                let planner = &mut *self.planner;
                let op = &mut planner.outcomes.ops[self.slot as usize];
                (op.answers, op.result) = (true, query.initial());
                let native = planner.capabilities.contains(query.kind.capability());
                if native
                    && planner.submits_at_once(query.len())
                    && let Some(descriptor) = query.single(token)
                {
                    planner.outcomes.ops[self.slot as usize].descriptors += 1;
                    planner.lists.keep(query.a);
                    planner.lists.keep(query.b);
                    planner.push_fenced(descriptor)
                } else if query.len() > 0 {
                    planner.defer(token, OpKind::Query(QueryProgress::new(query, native)), Vec::new())
                } else {
                    Ok(())
                }
            }
            Plan::Fill(pattern, dst) => {
                let block = self.planner.bounce.as_ref().map(|block| block.buffer.0.segment());
                let kind = match block {
                    Some(block) if !self.planner.capabilities.contains(Capabilities::FILL) => {
                        OpKind::FillFrom { pattern, block, phase: 0 }
                    }
                    // `QueueCaps::can_fill` has checked this.
                    _ => OpKind::Fill(pattern),
                };
                self.planner.defer(token, kind, dst)
            }
        }
    }

    /// Adds the copy with this index of a batch that [`check::batch`] has checked. Fails as
    /// [`push`](Self::push) does.
    pub(crate) fn push_checked<S: Operand, D: Operand>(
        &mut self,
        index: u32,
        src: &S,
        dst: &D,
    ) -> Result<()> {
        let plan = check::copy(self.planner.engine, src, dst, &mut self.planner.lists)?;
        self.push(index, plan)
    }

    /// Adds the copy with this index. The copy must have at least 1 byte. Fails as [`push`](Self::push) does.
    #[inline]
    pub(crate) fn push_flat(&mut self, index: u32, src: Segment, dst: Segment) -> Result<()> {
        let planner = &mut *self.planner;
        let token = token(self.slot, index);
        if planner.submits_at_once(dst.len) {
            planner.outcomes.ops[self.slot as usize].descriptors += 1;
            planner.push_fenced(Descriptor::copy(token, src, dst))
        } else {
            let (from, to) = (planner.lists.take_with(src)?, planner.lists.take_with(dst)?);
            planner.defer(token, OpKind::Copy(Cursor::new(from)), to)
        }
    }

    /// Adds all copies and their bytes, if every copy is plain ([`plain::is_plain`]) and no operation is
    /// deferred before them, and if there is memory. Otherwise adds no copy and returns false. The admission
    /// must have been made with 0 bytes and one operation for each copy.
    #[inline]
    pub(crate) fn push_all_flat<S: Operand, D: Operand>(&mut self, copies: &[(S, D)]) -> bool {
        let Planner { engine, max_transfer, backlog, outcomes, .. } = &mut *self.planner;
        if !backlog.is_clear() {
            return false;
        }
        let pending = &mut backlog.pending;
        let (engine, slot, count) = (*engine, self.slot, copies.len());
        // With this bound, the sum of the lengths cannot overflow.
        let max = (*max_transfer).min(usize::MAX / count.max(1));
        if pending.try_reserve(count).is_err() {
            return false;
        }
        let (mut bytes, mut token) = (0, token(slot, 0));
        // In a loop the sums stay in registers, whereas closures would keep them in memory.
        for ((src, dst), place) in copies.iter().zip(pending.spare_capacity_mut()) {
            let (src, dst) = (src.single(), dst.single());
            if !plain::is_plain::<D>(engine, src, dst, max) {
                return false;
            }
            place.write(Descriptor::copy(token, src.segment(), dst.segment()));
            (bytes, token) = (bytes + dst.len, token + ONE_INDEX);
        }
        // SAFETY: `try_reserve` made room for `count` more descriptors, and the loop has written all of them.
        unsafe { pending.set_len(pending.len() + count) };
        let op = &mut outcomes.ops[slot as usize];
        (op.descriptors, op.bytes) = (op.operations, bytes as u64);
        true
    }

    /// Passes the operations to the planner. The caller must put the operands into a transfer before any
    /// other code can run.
    #[inline]
    pub(crate) fn commit(self) {
        let mut admission = ManuallyDrop::new(self);
        let slot = admission.slot as usize;
        let operations = u64::from(admission.planner.outcomes.ops[slot].operations);
        admission.planner.inline.allow(false);
        admission.planner.alone = BUSY;
        admission.planner.outcomes.counters.submitted += operations;
    }
}

impl Drop for Admission<'_> {
    #[cold]
    fn drop(&mut self) {
        let planner = &mut *self.planner;
        planner.backlog.pending.truncate(self.pending);
        planner.backlog.deferred.truncate(self.deferred);
        planner.backlog.fence = self.fence;
        planner.outcomes.ops[self.slot as usize] = OpState::IDLE;
    }
}
