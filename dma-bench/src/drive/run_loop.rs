//! The loop itself, as fast as possible or at a rate, until the repetition is over or the user stops it.

use std::time::{Duration, Instant};

use super::{Mark, Pace, Trouble, Worker};
use crate::{cpu_time, interrupt};

/// Time limit for operations in flight after an interrupt.
const DRAIN: Duration = Duration::from_millis(200);

impl Worker {
    /// Submits and polls, up to `polls` times. Returns true when the repetition is over.
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

    /// Returns true if an operation is one descriptor of which only the addresses change.
    fn is_simple(&self) -> bool {
        self.pieces == 1 && !self.cell.op.has_lists() && self.cell.segments == 1 && !self.checking
    }

    /// Stops the clock.
    fn end(&mut self) {
        (self.ended, self.timed) = (self.clock.now(), self.completed);
    }

    /// Ends a repetition that the user stopped. Completed operations count. Waits for those in flight for up
    /// to [`DRAIN`], because only then the spoilt buffers can be compared.
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

    /// Continues a repetition until its end or an interrupt.
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

    /// Runs at a rate: each operation is due at its time, whether or not the one before has completed, and
    /// its latency counts from then. The last repetition ends when one more operation would be due, so that n
    /// operations take n gaps.
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
                self.marks.push(Mark { time: self.clock.now(), cpu: cpu_time::of_process(&[]) });
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
