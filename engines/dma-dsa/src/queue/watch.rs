//! The end of a work queue that was disabled, and its return.

use std::time::{Duration, Instant};

use dma_core::{ErrorKind, Result};

use crate::error;
use crate::opened::Opened;

/// Polls without a completion after which the state of the work queue is read again, if the last reading is
/// at least [`READ_EVERY`] old.
const IDLE_POLLS: u32 = 256;
/// Minimum time between two readings of the state.
const READ_EVERY: Duration = Duration::from_millis(10);

pub(super) const DISABLED: &str = "the work queue was disabled";
pub(super) const FORKED: &str = "the work queue belongs to the parent process";

/// The state of a queue's work queue: in use, or lost.
#[derive(Debug)]
pub(super) struct Watch {
    generation: u64,
    /// The reason why it does not.
    lost: Option<&'static str>,
    /// Polls in a row without a completion.
    idle: u32,
    /// The last time that the state of the work queue was read.
    read: Option<Instant>,
    resets: u64,
}

impl Watch {
    pub(super) const fn new(generation: u64) -> Self {
        Self { generation, lost: None, idle: 0, read: None, resets: 0 }
    }

    /// The generation of the work queue that the queue uses.
    #[inline]
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The reason why the work queue is lost, if it is.
    #[inline]
    pub(super) const fn lost(&self) -> Option<&'static str> {
        self.lost
    }

    /// The number of times that the work queue was lost and used again.
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
    /// or this process is a child of the one that opened it.
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

    /// Uses a work queue again that was lost for the reason `why`, if it is enabled again.
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
