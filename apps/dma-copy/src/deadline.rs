//! Deadlines of waits, and checks for an interrupt.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use apps_shared::command;

/// Maximum time between two checks for an interrupt.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Fails after a signal has arrived. Long-running work and long waits call this function repeatedly.
pub(crate) fn check_interrupt() -> Result<(), Failure> {
    if command::interrupted() { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The end of a wait, and the length of the wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    whole: Duration,
}

impl Deadline {
    pub(crate) fn after(whole: Duration) -> Self {
        Self { at: Instant::now() + whole, whole }
    }

    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Fails after a signal has arrived.
    pub(crate) fn is_over_or_interrupted(&self) -> Result<bool, Failure> {
        check_interrupt().map(|()| self.is_over())
    }

    /// The length of the wait, for messages.
    pub(crate) fn shown(&self) -> String {
        seconds(self.whole)
    }
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
