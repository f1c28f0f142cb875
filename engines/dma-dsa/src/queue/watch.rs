//! Detects that a work queue was disabled, and that it is enabled again.

use std::time::{Duration, Instant};

use dma_core::{ErrorKind, Result};

use crate::error;
use crate::opened::Opened;

/// After this number of polls without a completion, the state of the work queue is read, unless it was read
/// within the last [`READ_EVERY`].
const IDLE_POLLS: u32 = 256;
/// Minimum time between two readings of the state.
const READ_EVERY: Duration = Duration::from_millis(10);

pub(super) const DISABLED: &str = "the work queue was disabled";
pub(super) const FORKED: &str = "the work queue belongs to the parent process";

/// The state of a queue's work queue: usable or lost.
#[derive(Debug)]
pub(super) struct Watch {
    generation: u64,
    /// The reason why the work queue is lost. `None` while it is usable.
    lost: Option<&'static str>,
    /// Number of consecutive polls without a completion.
    idle: u32,
    /// Time of the last reading of the work queue's state.
    read: Option<Instant>,
    resets: u64,
}

impl Watch {
    pub(super) const fn new(generation: u64) -> Self {
        Self { generation, lost: None, idle: 0, read: None, resets: 0 }
    }

    /// Returns the generation of the work queue that the queue uses.
    #[inline]
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the reason why the work queue is lost, or `None` if it is usable.
    #[inline]
    pub(super) const fn lost(&self) -> Option<&'static str> {
        self.lost
    }

    /// Returns the number of times that the work queue was lost and used again.
    pub(super) const fn resets(&self) -> u64 {
        self.resets
    }

    pub(super) const fn lose(&mut self, why: &'static str) {
        self.lost = Some(why);
        self.read = None;
    }

    /// Counts a poll. Returns true if it is time to call [`check`](Self::check).
    #[inline]
    pub(super) const fn count_poll(&mut self, has_completions: bool) -> bool {
        self.idle = if has_completions { 0 } else { self.idle.wrapping_add(1) };
        !has_completions && self.idle.is_multiple_of(IDLE_POLLS)
    }

    fn was_read_lately(&self) -> bool {
        self.read.is_some_and(|at| at.elapsed() < READ_EVERY)
    }

    /// Returns the reason if the descriptors in flight will not end: the kernel has disabled the work queue,
    /// or this process is a child of the process that opened it.
    #[cold]
    pub(super) fn check(&mut self, opened: &Opened) -> Option<&'static str> {
        if self.was_read_lately() {
            return None;
        }
        self.read = Some(Instant::now());
        if opened.fork.is_child() {
            return Some(FORKED);
        }
        opened.was_disabled(self.generation).then_some(DISABLED)
    }

    /// Uses a work queue again that was lost because of `why`, if it is enabled again.
    ///
    /// # Errors
    ///
    /// `DeviceLost` if the work queue is not enabled again, or if earlier descriptors are not reported yet
    /// (`has_unreported`).
    #[cold]
    pub(super) fn recover(&mut self, why: &'static str, has_unreported: bool, opened: &Opened) -> Result<()> {
        if why == FORKED || has_unreported || self.was_read_lately() {
            return Err(error::lost(why));
        }
        self.read = Some(Instant::now());
        self.generation = opened.reopen(self.generation).map_err(|error| match error.kind() {
            ErrorKind::DeviceLost => error,
            _ => error::lost(why).with_source(error),
        })?;
        self.lost = None;
        self.resets += 1;
        Ok(())
    }
}
