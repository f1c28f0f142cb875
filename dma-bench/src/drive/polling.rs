//! Polling: checks, times, compares and counts what the queue has completed, and frees the places of these
//! operations.

use std::ops::Range;
use std::time::Instant;

use dma::{Completion, ErrorKind, Outcome};
use hdrhistogram::Histogram;

use super::completions::{keep_answers, row};
use super::{Trouble, Worker, closed};

impl Worker {
    /// Polls the queue once. Returns true when all operations of the repetition have completed.
    pub(super) fn poll(&mut self) -> Result<bool, Trouble> {
        let Some(queue) = &mut self.queue else { return Err(closed()) };
        let n = queue.poll(&mut self.completions);
        self.settle(n)
    }

    /// Processes the first `n` entries of `completions`. Returns true when all operations of the repetition
    /// have completed.
    pub(super) fn settle(&mut self, n: usize) -> Result<bool, Trouble> {
        self.polls += 1;
        self.out = self.out.saturating_sub(n as u64);
        if n == 0 {
            return self.nothing();
        }
        (self.idle, self.refusals) = (0, 0);
        keep_answers(&mut self.answers, &self.completions[..n]);
        match row(&self.completions[..n], self.cell.depth) {
            Some(row)
                if self.pieces == 1
                    && !self.checking
                    && self.flying[row.start as usize..row.end as usize].iter().all(|flying| *flying)
                    && self.timed_together(&row) =>
            {
                self.flying[row.start as usize..row.end as usize].fill(false);
                self.free.put(row);
                self.completed += n as u64;
            }
            _ => {
                let completions = std::mem::take(&mut self.completions);
                let ended = self.ended(&completions[..n]);
                self.completions = completions;
                ended?;
            }
        }
        if self.completed > self.submitted {
            return Err(Trouble::Failed("more completions than operations".to_owned()));
        }
        if self.from.is_none() && self.completed >= self.extent.warm {
            self.from = Some((self.clock.now(), self.completed));
        }
        Ok(self.completed >= self.extent.warm + self.extent.ops)
    }

    /// Records one latency for a row of operations that were submitted together and completed together.
    /// Returns true if the row needs no other timing: it is recorded, or none of its operations is timed.
    fn timed_together(&mut self, row: &Range<u32>) -> bool {
        if self.sampling == 0 {
            return true;
        }
        let stamps = &mut self.stamps[row.start as usize..row.end as usize];
        let stamp = stamps[0];
        if self.completed < self.extent.warm || stamps.iter().any(|&other| other != stamp) {
            return false;
        }
        if stamp != 0 {
            stamps.fill(0);
            self.sampling -= row.end - row.start;
            record(
                &mut self.histogram,
                self.clock.now().saturating_sub(stamp),
                u64::from(row.end - row.start),
            );
        }
        true
    }

    /// Handles completions in any order: each may be timed, one piece of several, or due for comparison.
    fn ended(&mut self, completions: &[Completion]) -> Result<(), Trouble> {
        let now = if self.sampling > 0 { self.clock.now() } else { 0 };
        for completion in completions {
            if completion.outcome != Outcome::Done {
                return Err(self.failure(completion));
            }
            let at = completion.token as usize;
            let Some(place) = self.places.get_mut(at) else {
                return Err(Trouble::Failed(format!(
                    "a completion with the unknown token {}",
                    completion.token
                )));
            };
            if !self.flying[at] {
                return Err(Trouble::Failed(format!(
                    "a completion with the token {}, which no operation in flight has",
                    completion.token
                )));
            }
            if self.pieces > 1 {
                place.left = place.left.saturating_sub(1);
                if place.left > 0 {
                    continue;
                }
            }
            let stamp = std::mem::take(&mut self.stamps[at]);
            if stamp != 0 {
                self.sampling -= 1;
                if self.completed >= self.extent.warm {
                    record(&mut self.histogram, now.saturating_sub(stamp), 1);
                }
            }
            if self.checking {
                let index = place.index;
                self.compare(index, completion.result)?;
            }
            self.flying[at] = false;
            let number = completion.token as u32;
            self.free.put(number..number + 1);
            self.completed += 1;
        }
        Ok(())
    }

    /// Handles a poll without completions. Fails when the queue has completed nothing for the stall limit.
    fn nothing(&mut self) -> Result<bool, Trouble> {
        std::hint::spin_loop();
        if self.idle == 0 {
            self.progress = Instant::now();
        }
        self.idle = self.idle.saturating_add(1);
        if self.idle.is_multiple_of(1024) {
            let since = self.progress.elapsed();
            // A million idle polls advance a virtual clock far beyond any operation: the device is stuck.
            if since > self.stall || (self.clock.is_virtual() && self.idle > 1 << 20) {
                let missing = self.submitted - self.completed;
                return Err(Trouble::Failed(format!(
                    "{missing} operations in flight, and none completed for {since:.1?}; lost, or the device is stuck"
                )));
            }
        }
        Ok(false)
    }

    #[cold]
    fn failure(&self, completion: &Completion) -> Trouble {
        let native = self.queue.as_ref().map(|q| q.explain(completion.native));
        let native = native.filter(|_| completion.native != 0).map(|n| format!(" ({n})")).unwrap_or_default();
        let what = match completion.outcome {
            Outcome::Failed(kind) => kind.as_str(),
            _ => ErrorKind::Aborted.as_str(),
        };
        Trouble::Failed(format!("an operation failed: {what}{native}, after {} on this queue", self.done()))
    }
}

/// Records `count` latencies of `time` nanoseconds each.
fn record(histogram: &mut Histogram<u64>, time: u64, count: u64) {
    // A histogram without bounds takes every value.
    let _ = histogram.record_n(time.max(1), count);
}
