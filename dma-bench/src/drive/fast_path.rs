//! The fast path of the loop, for whole queues of short copies. It is kept to few instructions, because for
//! short copies the loop itself is part of what is measured.
#![expect(unsafe_code, reason = "submits to the raw queue")]

use super::completions::{all_ended, keep_answers};
use super::submit::taken;
use super::{POLL, Trouble, Worker, closed};

impl Worker {
    /// Does what [`burst`](Self::burst) does while every doorbell is for all places, none is timed, and one
    /// poll returns all of them as done. Returns the number of polls; the general loop handles everything
    /// else.
    pub(super) fn fast_path(&mut self, polls: u32) -> Result<u32, Trouble> {
        let Some(queue) = self.queue.as_deref_mut() else { return Err(closed()) };
        let all = self.ready.len();
        let waits = self.completed < self.submitted || self.from.is_none();
        if waits || self.cell.batch as usize != all || all > POLL || self.layout.turns() {
            return Ok(0);
        }
        // The last doorbell is left to the general loop, which ends the repetition.
        let left = (self.extent.warm + self.extent.ops - self.submitted) / all as u64;
        let most = u64::from(polls).min(self.untimed).min(left.saturating_sub(1));
        let (mut whole, mut odd) = (0, None);
        while whole < most {
            // SAFETY: as in `submit_pending`.
            let taken = taken(unsafe { queue.submit(&self.ready) }, &mut self.refusals);
            queue.flush();
            if !matches!(taken, Ok(n) if n == all) {
                odd = Some((taken, None));
                break;
            }
            let n = queue.poll(&mut self.completions);
            if n != all || !all_ended(&self.completions[..n]) {
                odd = Some((taken, Some(n)));
                break;
            }
            keep_answers(&mut self.answers, &self.completions[..n]);
            whole += 1;
        }
        let ops = whole * all as u64;
        (self.submitted, self.completed) = (self.submitted + ops, self.completed + ops);
        (self.polls, self.untimed) = (self.polls + whole, self.untimed - whole);
        let Some((taken, polled)) = odd else { return Ok(whole as u32) };
        let taken = taken?;
        self.out += taken as u64;
        self.pending.extend_from_slice(&self.ready[taken..]);
        self.free.take_all();
        self.flying.fill(true);
        (self.submitted, self.untimed) = (self.submitted + all as u64, self.untimed - 1);
        match polled {
            Some(n) => self.settle(n).map(|_| whole as u32 + 1),
            None => Ok(whole as u32),
        }
    }
}
