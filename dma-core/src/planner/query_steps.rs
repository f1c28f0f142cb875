//! Begins queries, and submits or executes their steps.
#![expect(
    unsafe_code,
    reason = "submits checked descriptors, and reads the operands of an operation in progress"
)]

use super::Planner;
use super::bounce::ScratchUse;
use super::outcomes::slot_of;
use super::query::Step;
use super::split::{DeferredOp, Fence};

/// The result of advancing a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// The query waits for its descriptors, or for the CPU to compute its result.
    Waits,
    /// The device has no room for the query's next descriptor.
    NoRoom,
    /// The query has ended, and was removed.
    Ended,
}

impl Planner {
    /// Begins the query at the front of the deferred operations. Returns false if the query must wait for its
    /// fence, for the bounce buffer, or for room in the device.
    #[cold]
    pub(super) fn begin_query(&mut self, cpu_chunk: &mut bool, ended: &mut Vec<u32>) -> bool {
        let Some(front) = self.backlog.deferred.front_mut() else { return false };
        let (fence, slot, needs_bounce) = (front.fence, slot_of(front.token), front.needs_bounce());
        let Some(query) = front.as_query() else { return false };
        // A query that the CPU executes must wait for its own fence, and for an earlier fence that the device
        // has not passed yet.
        self.device.fence_in_flight &= self.device.in_flight > 0;
        if !query.is_native()
            && (fence == Fence::Device || self.device.fence_in_flight)
            && self.device.in_flight > 0
        {
            return false;
        }
        if needs_bounce && let Some(bounce) = &mut self.bounce {
            if self.device.in_flight > 0 || self.backlog.queries.iter_mut().any(DeferredOp::needs_bounce) {
                return false;
            }
            bounce.used_for = ScratchUse::Operands(slot);
        }
        let Some(query) = self.backlog.deferred.pop_front() else { return false };
        let at = self.backlog.queries.len();
        self.backlog.queries.push(query);
        let advance = self.advance_query(at, cpu_chunk, ended);
        if advance == Advance::NoRoom
            && let Some(query) = self.backlog.queries.pop()
        {
            self.backlog.deferred.push_front(query);
        }
        advance != Advance::NoRoom
    }

    /// Advances the query with index `at`, which has begun, as far as possible. `cpu_chunk` is true if the
    /// CPU may still execute a chunk in this call. One chunk in each poll bounds the poll's time.
    #[cold]
    pub(super) fn advance_query(&mut self, at: usize, cpu_chunk: &mut bool, ended: &mut Vec<u32>) -> Advance {
        loop {
            let Self { backlog, outcomes, bounce, device, max_transfer, cpu_chunks, .. } = &mut *self;
            let deferred = &mut backlog.queries[at];
            let (token, fence) = (deferred.token, deferred.fence);
            let slot = slot_of(token);
            let op = &mut outcomes.ops[slot as usize];
            let needs_bounce = deferred.needs_bounce();
            let Some(query) = deferred.as_query() else { return Advance::Ended };
            let block = bounce.as_ref().filter(|_| needs_bounce).map(|bounce| bounce.buffer.0.segment());
            match query.next(token, *max_transfer, block) {
                Step::Submit(descriptor) => {
                    let fenced = fence == Fence::Device && query.is_native();
                    // SAFETY: the chunk lies within a checked operation and within the device's limits, and a
                    // transfer owns the operands. Only this operation uses the bounce buffer.
                    match unsafe {
                        device.submit_one(descriptor.with_fence(fenced), &mut outcomes.log_events)
                    } {
                        Ok(false) => return Advance::NoRoom,
                        Ok(true) => {
                            query.record_submitted();
                            deferred.fence = Fence::Clear;
                            op.descriptors += 1;
                        }
                        Err(error) => {
                            // `refused` drops the query.
                            self.refused(token, error);
                            self.backlog.pass_on_fence(fenced);
                            self.end_if_over(slot, ended);
                            return Advance::Ended;
                        }
                    }
                }
                Step::Settle if op.descriptors > 0 => return Advance::Waits,
                Step::Settle => {
                    let by_cpu = !query.is_native();
                    if by_cpu && !std::mem::take(cpu_chunk) {
                        return Advance::Waits;
                    }
                    // SAFETY: no descriptor of the operation is in flight. A transfer owns the operands, so
                    // no exclusive reference to their bytes exists. `settle` reads only operands that the CPU
                    // can reach, and the bounce buffer, which no other operation uses now.
                    unsafe { query.settle(op.result, *max_transfer, block) };
                    let over = query.is_over();
                    op.result = query.result;
                    deferred.fence = Fence::Clear;
                    *cpu_chunks += u64::from(by_cpu);
                    if over {
                        op.deferred -= 1;
                        self.drop_query(at);
                        self.end_if_over(slot, ended);
                        return Advance::Ended;
                    }
                }
            }
        }
    }
}
