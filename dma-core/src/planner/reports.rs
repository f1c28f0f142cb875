//! Polls the device, and processes its reports and its refusals: updates the states of operations.

use std::collections::btree_map::Entry;

use super::Planner;
use super::backlog::Backlog;
use super::device::MAX_COMPLETIONS;
use super::error::Failure;
use super::outcomes::{LogEvent, index_of, slot_of};
use crate::{Completion, Error, NativeError, Outcome};

/// Maximum number of engine calls of one poll.
const MAX_ROUNDS: usize = 8;

impl Planner {
    /// Polls the device. Returns the number of reported descriptors and of chunks that the CPU executed.
    /// Appends the slots that have ended and have a waiter to `ended`.
    pub(crate) fn poll(&mut self, ended: &mut Vec<u32>) -> usize {
        if self.is_poisoned() {
            self.report_poisoned();
            return 0;
        }
        let cpu_chunks = self.cpu_chunks;
        if self.push {
            self.pump(ended);
            self.device.ring(&mut self.outcomes.log_events);
        }
        let mut total = 0;
        for _ in 0..MAX_ROUNDS {
            let n = self.poll_once(ended);
            total += n;
            if n < MAX_COMPLETIONS {
                break;
            }
        }
        if total > 0 && self.push {
            self.pump(ended);
            self.device.ring(&mut self.outcomes.log_events);
        }
        if total == 0 && self.device.in_flight > 0 {
            self.device.check_lost(&mut self.outcomes.log_events);
        }
        self.resume_if_idle();
        total + (self.cpu_chunks - cpu_chunks) as usize
    }

    /// Polls the device with one call, and processes its reports. Returns their number.
    #[inline]
    fn poll_once(&mut self, ended: &mut Vec<u32>) -> usize {
        let n = self.device.poll(&mut self.outcomes.log_events);
        self.take_reports(n, ended);
        n
    }

    /// Flushes, and polls until the operation in `slot` has ended, but at most `polls` times. A wait for one
    /// operation takes far fewer instructions with this method than with [`flush`](Self::flush) and
    /// [`poll`](Self::poll), which are called only if operations are deferred.
    pub(crate) fn drive(&mut self, slot: u32, polls: u32, ended: &mut Vec<u32>) {
        let Backlog { deferred, queries, .. } = &self.backlog;
        let is_plain = deferred.is_empty() && queries.is_empty() && !self.push && !self.is_poisoned();
        if !(is_plain && self.submit_while_room(ended)) {
            self.flush(ended);
            for _ in 0..polls {
                if self.outcomes.ops[slot as usize].has_ended() {
                    break;
                }
                self.poll(ended);
            }
            return;
        }
        self.delayed_since = None;
        self.device.ring(&mut self.outcomes.log_events);
        for _ in 0..polls {
            if self.outcomes.ops[slot as usize].has_ended() {
                break;
            }
            self.poll_once(ended);
        }
        self.resume_if_idle();
    }

    /// Processes the first `n` reports, which the engine has just written.
    #[inline]
    pub(super) fn take_reports(&mut self, n: usize, ended: &mut Vec<u32>) {
        let mut at = 0;
        loop {
            at += self.outcomes.complete_singles(&self.device.reports[at..n], ended);
            if at >= n {
                break;
            }
            let Completion { token, result, native, outcome } = self.device.reports[at];
            let slot = slot_of(token);
            let mut run = 1;
            if outcome == Outcome::Done {
                // Count the consecutive completions of one batch, so that its state is updated only once.
                let same = |c: &&Completion| slot_of(c.token) == slot && c.outcome == Outcome::Done;
                run = self.device.reports[at..n].iter().take_while(same).count();
            }
            at += run;
            if self.outcomes.ops.get(slot as usize).is_none_or(|op| (op.descriptors as usize) < run) {
                self.device.miscounted(format_args!("token {token:#x}, which is not in flight"));
            }
            if outcome != Outcome::Done {
                let native = (native != 0).then(|| self.device.explain(native));
                self.record_failed(token, outcome, native);
            }
            let op = &mut self.outcomes.ops[slot as usize];
            op.descriptors -= run as u32;
            op.result = result;
            if op.descriptors == 0 {
                self.end_if_over(slot, ended);
            }
        }
    }

    /// Records that the engine refused a descriptor with this token.
    #[cold]
    pub(super) fn refused(&mut self, token: u64, error: Error) {
        let (outcome, native) = (Outcome::Failed(error.kind()), error.native().cloned());
        let (index, closing) = (index_of(token), self.device.stopped);
        self.record_failure(token, Failure { index, outcome, native, refusal: Some(error), closing });
    }

    /// Records that the engine reported a descriptor with this token as failed or aborted.
    #[cold]
    pub(super) fn record_failed(&mut self, token: u64, outcome: Outcome, native: Option<NativeError>) {
        let (index, closing) = (index_of(token), self.device.stopped);
        self.record_failure(token, Failure { index, outcome, native, refusal: None, closing });
    }

    /// Records a failed part of an operation, and drops its parts that have not been submitted.
    fn record_failure(&mut self, token: u64, failure: Failure) {
        let slot = slot_of(token);
        let Failure { index, outcome, .. } = failure;
        self.outcomes.log_events.push(LogEvent::Failed { slot, outcome, native: failure.native.clone() });
        let op = &mut self.outcomes.ops[slot as usize];
        op.outcome = worse(op.outcome, outcome);
        match self.outcomes.failures.entry((slot, index)) {
            Entry::Occupied(mut known) => {
                if worse(known.get().outcome, outcome) != known.get().outcome {
                    known.insert(failure);
                }
            }
            Entry::Vacant(place) => {
                place.insert(failure);
            }
        }
        if op.deferred > 0 {
            if let Some(at) = self.backlog.deferred.iter().position(|s| s.token == token) {
                op.deferred -= 1;
                self.drop_deferred(at);
            } else if let Some(at) = self.backlog.queries.iter().position(|s| s.token == token) {
                op.deferred -= 1;
                self.drop_query(at);
            }
        }
    }

    /// Ends the operation as [`Outcomes::end_if_over`] does, and allows inline operations again if it was the
    /// last one.
    #[inline]
    pub(super) fn end_if_over(&mut self, slot: u32, ended: &mut Vec<u32>) {
        if self.outcomes.end_if_over(slot, ended) {
            self.resume_if_idle();
        }
    }
}

/// Returns the worse of two outcomes, where failed is worse than aborted, and aborted worse than done.
fn worse(a: Outcome, b: Outcome) -> Outcome {
    let rank = |o| match o {
        Outcome::Done => 0,
        Outcome::Aborted => 1,
        Outcome::Failed(_) => 2,
    };
    if rank(b) > rank(a) { b } else { a }
}
