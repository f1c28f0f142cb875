//! The loop itself: as many operations as go, or at a rate, until the repetition is over or the user stops
//! it.

use std::time::{Duration, Instant};

use super::{Mark, Pace, Trouble, Worker};
use crate::{cpu_clock, interrupt};

/// Time limit for operations in flight when the user asked to stop.
const DRAIN: Duration = Duration::from_millis(200);

impl Worker {
    /// Goes on for up to `polls` polls; whether the repetition is over.
    ///
    /// # Errors
    ///
    /// The engine refused or failed an operation, or completes nothing any more.
    #[inline]
    pub fn burst(&mut self, polls: u32) -> Result<bool, Trouble> {
        let total = self.extent.warm + self.extent.ops;
        let batch = u64::from(self.cell.batch);
        let simple = self.is_simple();
        let mut left = polls;
        while left > 0 {
            if simple && self.pending.is_empty() {
                left -= self.fast_path(left - 1)?;
            }
            left -= 1;
            while self.pending.is_empty() {
                let want = batch.min(total - self.submitted);
                if want == 0 || u64::from(self.free.len()) < want {
                    break;
                }
                self.submit(want as u32, simple, 0)?;
            }
            if !self.pending.is_empty() {
                self.submit_pending()?;
            }
            if self.poll()? {
                self.end();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether an operation is one descriptor that is always the same but for its addresses.
    fn is_simple(&self) -> bool {
        self.pieces == 1 && !self.cell.op.has_lists() && self.cell.segments == 1 && !self.checking
    }

    /// Stops the clock.
    fn end(&mut self) {
        (self.ended, self.timed) = (self.clock.now(), self.completed);
    }

    /// Ends a repetition that the user stopped: what has completed counts. Operations in flight are waited
    /// for a little, since only then what was spoilt can be compared.
    pub(crate) fn cut(&mut self) -> Result<(), Trouble> {
        self.end();
        self.cut = true;
        let (polls, until) = (self.polls, Instant::now() + DRAIN);
        while self.completed < self.submitted && Instant::now() < until {
            if !self.pending.is_empty() {
                self.submit_pending()?;
            }
            self.poll()?;
        }
        self.polls = polls;
        Ok(())
    }

    /// Goes on to the end of a repetition that was started, or until the user asks to stop.
    ///
    /// # Errors
    ///
    /// As [`burst`](Self::burst).
    pub fn go(&mut self, pace: Option<Pace>) -> Result<(), Trouble> {
        if let Some(pace) = pace {
            return self.go_at(pace);
        }
        while !self.burst(self.polls_at_once)? {
            if interrupt::stopped() {
                return self.cut();
            }
        }
        Ok(())
    }

    /// Goes on at a rate: each operation is due at its time whether or not the one before has ended, and its
    /// latency counts from when it was due. The last repetition is over when an operation after it would be
    /// due: so many operations take so many gaps.
    fn go_at(&mut self, pace: Pace) -> Result<(), Trouble> {
        let simple = self.is_simple();
        let (started, gap) = (self.started, 1e9 / pace.rate);
        let due = |number: u64| started + (number as f64 * gap) as u64;
        let mut over = pace.each.min(self.extent.ops);
        for turn in 1_u64.. {
            let more = self.submitted < self.extent.ops && self.pending.is_empty() && self.free.len() > 0;
            if more && self.clock.now() >= due(self.submitted) {
                self.submit(1, simple, due(self.submitted).max(1))?;
            }
            if !self.pending.is_empty() {
                self.submit_pending()?;
            }
            if self.completed < self.submitted {
                self.poll()?;
            }
            while self.completed >= over && self.clock.now() >= due(over) {
                self.marks.push(Mark { time: self.clock.now(), cpu: cpu_clock::of_process([]) });
                if over == self.extent.ops {
                    self.end();
                    return Ok(());
                }
                over = (over + pace.each).min(self.extent.ops);
            }
            if turn.is_multiple_of(64) && interrupt::stopped() {
                return self.cut();
            }
        }
        Ok(())
    }
}
