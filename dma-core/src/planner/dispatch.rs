//! Dispatch: the planner passes pending descriptors and deferred operations to the device, and rings the
//! doorbell.
#![expect(unsafe_code, reason = "submits checked descriptors to the raw queue")]

use std::time::{Duration, Instant};

use super::Planner;
use super::bounce::ScratchUse;
use super::outcomes::slot_of;
use super::plain::BUSY;
use super::query_steps::Advance;
use super::split::{DeferredOp, Fence};
use crate::{Capabilities, Error, QueueOptions};

impl Planner {
    /// Submits pending descriptors while the device has room.
    pub(crate) fn submit_pending(&mut self, ended: &mut Vec<u32>) {
        if self.is_poisoned() {
            return self.report_poisoned();
        }
        self.submit_while_room(ended);
    }

    /// Submits pending descriptors while the device has room. Returns whether none are left. The engine must
    /// not be poisoned.
    #[inline]
    pub(super) fn submit_while_room(&mut self, ended: &mut Vec<u32>) -> bool {
        while self.backlog.waiting() > 0 {
            self.alone = BUSY;
            let Self { device, backlog, outcomes, .. } = self;
            // SAFETY: every pending descriptor was checked for this engine, its limits, its regions' bounds
            // and rights, and overlap. A transfer owns the operands. Until the completion, the transfer keeps
            // the operands registered and inaccessible to the program; if the device does not respond, the
            // transfer leaks them.
            let accepted =
                unsafe { device.submit(&backlog.pending[backlog.submitted..], &mut outcomes.log_events) };
            match accepted {
                Ok(0) => {
                    self.backlog.compact();
                    return false;
                }
                Ok(n) => self.backlog.submitted += n,
                Err(error) => self.refuse_first(error, ended),
            }
        }
        self.backlog.pending.clear();
        self.backlog.submitted = 0;
        true
    }

    /// Ends the first pending descriptor that has not been submitted, which the engine has refused.
    #[cold]
    pub(super) fn refuse_first(&mut self, error: Error, ended: &mut Vec<u32>) {
        let first = &self.backlog.pending[self.backlog.submitted];
        let (token, fence) = (first.token(), first.fence());
        self.backlog.submitted += 1;
        self.backlog.pass_on_fence(fence);
        self.outcomes.ops[slot_of(token) as usize].descriptors -= 1;
        self.refused(token, error);
        self.end_if_over(slot_of(token), ended);
    }

    /// Submits all accepted operations and rings the doorbell. If the device has no room for all of them,
    /// later polls submit the rest.
    #[inline]
    pub(crate) fn flush(&mut self, ended: &mut Vec<u32>) {
        if self.is_poisoned() {
            return self.report_poisoned();
        }
        self.delayed_since = None;
        if self.backlog.waiting() > 0 || !self.backlog.deferred.is_empty() {
            self.push = true;
            self.pump(ended);
        }
        self.device.ring(&mut self.outcomes.log_events);
    }

    /// Returns the longest time for which awaited operations may wait to share a doorbell.
    pub(crate) fn doorbell_delay(&self, options: &QueueOptions) -> Duration {
        if self.capabilities.contains(Capabilities::CPU_COPIES) {
            return Duration::ZERO;
        }
        // If operations waited longer for a doorbell, the device would count as stalled.
        options.doorbell_delay.min(options.stall_timeout / 2)
    }

    /// Flushes if the number of waiting descriptors and deferred operations is at least the number of
    /// descriptors in flight, if a full batch was submitted without a doorbell, or if one of them has waited
    /// for `limit`. If no descriptor is in flight, `idle` decides.
    #[inline]
    pub(crate) fn flush_delayed(
        &mut self,
        idle: impl FnOnce() -> bool,
        limit: Duration,
        ended: &mut Vec<u32>,
    ) {
        let gathered = self.backlog.waiting() + self.backlog.deferred.len();
        if gathered == 0 && !self.device.doorbell_pending() {
            return;
        }
        let enough = if self.device.in_flight == 0 { idle() } else { gathered >= self.device.in_flight };
        // If a doorbell is pending, a full batch was submitted already. If `push` is set, polls already
        // submit operations without waiting.
        let due = enough || self.device.doorbell_pending() || self.push || limit.is_zero();
        self.alone = BUSY;
        if due || self.delayed_since.get_or_insert_with(Instant::now).elapsed() >= limit {
            self.flush(ended);
        }
    }

    /// Submits pending and deferred work while the device has room and fences allow it.
    pub(super) fn pump(&mut self, ended: &mut Vec<u32>) {
        if self.is_closed() {
            // The bounce buffer may have been leaked.
            return;
        }
        self.submit_pending(ended);
        let mut cpu_chunk = true;
        let mut at = 0;
        while at < self.backlog.queries.len() {
            if self.advance_query(at, &mut cpu_chunk, ended) != Advance::Ended {
                at += 1;
            }
        }
        while self.backlog.pending.is_empty() {
            let Some(front) = self.backlog.deferred.front_mut() else { break };
            if front.fence != Fence::Clear && !self.backlog.queries.is_empty() {
                // Some chunks of earlier operations have not been submitted.
                break;
            }
            if front.fence == Fence::Drain && self.device.in_flight > 0 {
                break;
            }
            if front.as_query().is_some() {
                if self.begin_query(&mut cpu_chunk, ended) {
                    continue;
                }
                break;
            }
            if let (Some(pattern), Some(block)) = (front.block_pattern(), &mut self.bounce)
                && block.used_for != ScratchUse::Pattern(pattern)
            {
                if self.device.in_flight > 0 || self.backlog.queries.iter_mut().any(DeferredOp::needs_bounce)
                {
                    // A fill with another pattern may still be reading the bounce buffer, or a query uses the
                    // buffer.
                    break;
                }
                block.repeat(pattern);
            }
            front.next_chunk(self.max_transfer, self.max_segments, &mut self.chunk);
            let token = front.token;
            let descriptor = self.chunk.descriptor(token).with_fence(front.fence == Fence::Device);
            // SAFETY: the chunk lies within a checked operation and within the device's limits, and a
            // transfer owns the operands. The bounce buffer that fills read belongs to this planner, and is
            // written only while nothing is in flight.
            match unsafe { self.device.submit_one(descriptor, &mut self.outcomes.log_events) } {
                Ok(false) => break,
                Ok(true) => {
                    let op = &mut self.outcomes.ops[slot_of(token) as usize];
                    op.descriptors += 1;
                    front.advance(&self.chunk);
                    if front.is_exhausted() {
                        op.deferred -= 1;
                        self.drop_deferred(0);
                    }
                }
                Err(error) => {
                    self.refused(token, error);
                    self.end_if_over(slot_of(token), ended);
                }
            }
        }
        if self.backlog.pending.is_empty()
            && self.backlog.deferred.is_empty()
            && self.backlog.queries.is_empty()
        {
            self.push = false;
        }
    }

    /// Removes the query with index `at` in [`Backlog::queries`], and keeps its lists for reuse.
    pub(super) fn drop_query(&mut self, at: usize) {
        let query = self.backlog.queries.swap_remove(at);
        query.into_lists().into_iter().for_each(|list| self.lists.keep(list));
    }

    /// Removes the deferred operation with index `at`, and keeps its lists for reuse.
    pub(super) fn drop_deferred(&mut self, at: usize) {
        self.backlog.remove_deferred(at).into_iter().flatten().for_each(|list| self.lists.keep(list));
    }
}
