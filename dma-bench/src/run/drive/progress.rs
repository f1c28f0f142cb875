//! [`Progress`]: the operation counts, the start and the end of the current sample.

use std::time::{Duration, Instant};

use super::{CellError, Extent, SampleEnd};

/// Counts of the current sample. Times are in nanoseconds on the contender's clock.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) extent: Extent,
    pub(super) submitted: u64,
    pub(super) completed: u64,
    /// Operations that completed on this queue in earlier samples.
    completed_before: u64,
    pub(super) polls: u64,
    pub(super) started: u64,
    /// Time at which the timed operations began, and the number of operations completed at that time.
    pub(super) first_timed: Option<(u64, u64)>,
    pub(super) ended: u64,
    /// Number of operations that had completed when the clock stopped.
    pub(super) completed_at_end: u64,
    /// True if the user stopped the sample before its end.
    pub(super) interrupted: bool,
    /// The ends of samples at a rate.
    pub(super) sample_ends: Vec<SampleEnd>,
    /// Number of consecutive polls without a completion.
    idle_polls: u32,
    /// Time of the first of these polls.
    idle_since: Instant,
    /// Time limit for a queue that completes no operation.
    stall: Duration,
}

/// Idle polls after which a virtual clock has advanced far beyond the time of any operation.
const MAX_VIRTUAL_IDLE_POLLS: u32 = 1 << 20;

impl Progress {
    pub(super) fn new(stall: Duration) -> Self {
        Self {
            extent: Extent { warm: 0, ops: 1, timed_every: 1, compare: 0, compare_each: false },
            submitted: 0,
            completed: 0,
            completed_before: 0,
            polls: 0,
            started: 0,
            first_timed: None,
            ended: 0,
            completed_at_end: 0,
            interrupted: false,
            sample_ends: Vec::new(),
            idle_polls: 0,
            idle_since: Instant::now(),
            stall,
        }
    }

    /// Begins a sample.
    pub(super) fn begin_sample(&mut self, extent: Extent) {
        self.extent = extent;
        self.completed_before += self.completed;
        (self.submitted, self.completed, self.polls) = (0, 0, 0);
        (self.first_timed, self.completed_at_end, self.interrupted) = (None, 0, false);
        self.sample_ends.clear();
        self.idle_polls = 0;
    }

    /// Starts the clock of the sample.
    pub(super) fn start(&mut self, now: u64) {
        (self.started, self.idle_since) = (now, Instant::now());
        if self.extent.warm == 0 {
            self.first_timed = Some((now, 0));
        }
    }

    /// Stops the clock of the sample.
    pub(super) fn end(&mut self, now: u64) {
        (self.ended, self.completed_at_end) = (now, self.completed);
    }

    /// Returns the number of operations that have completed since the timed operations began.
    pub(super) fn counted(&self) -> u64 {
        self.first_timed.map_or(0, |(_, before)| self.completed - before)
    }

    /// Returns the number of operations of the whole sample.
    #[inline]
    pub(super) fn total(&self) -> u64 {
        self.extent.warm + self.extent.ops
    }

    /// Returns the number of operations that are not submitted yet.
    #[inline]
    pub(super) fn left(&self) -> u64 {
        self.total() - self.submitted
    }

    #[inline]
    pub(super) fn in_flight(&self) -> u64 {
        self.submitted - self.completed
    }

    /// Returns true once the operations before the clock starts have completed.
    #[inline]
    pub(super) fn is_warm(&self) -> bool {
        self.completed >= self.extent.warm
    }

    /// Returns the number of operations that have completed on this queue.
    pub(super) fn all_completed(&self) -> u64 {
        self.completed_before + self.completed
    }

    #[inline]
    pub(super) fn count_poll(&mut self, completions: usize) {
        self.polls += 1;
        if completions > 0 {
            self.idle_polls = 0;
        }
    }

    /// Handles a poll without completions. Fails when no operation has completed on the queue for the
    /// stall limit.
    pub(super) fn check_stall(&mut self, is_virtual: bool) -> Result<(), CellError> {
        std::hint::spin_loop();
        if self.idle_polls == 0 {
            self.idle_since = Instant::now();
        }
        self.idle_polls = self.idle_polls.saturating_add(1);
        if self.idle_polls.is_multiple_of(1024) {
            let since = self.idle_since.elapsed();
            if since > self.stall || (is_virtual && self.idle_polls > MAX_VIRTUAL_IDLE_POLLS) {
                return Err(CellError::Failed(format!(
                    "{} operations in flight, and none completed for {since:.1?}: completions are lost, or the device is stuck",
                    self.in_flight()
                )));
            }
        }
        Ok(())
    }
}
