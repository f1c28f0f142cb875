//! Deadlines of waits, and checks for an interrupt.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use apps_shared::{command, hold};

/// Maximum time between two checks for an interrupt.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Fails after a signal has arrived. Long-running work and long waits call this function repeatedly.
pub(crate) fn check_interrupt() -> Result<(), Failure> {
    if command::interrupted() { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The begin of a wait, and the length of the wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    since: Instant,
    whole: Duration,
}

impl Deadline {
    pub(crate) fn after(whole: Duration) -> Self {
        Self { since: Instant::now(), whole }
    }

    pub(crate) fn left(&self) -> Duration {
        self.whole().saturating_sub(self.since.elapsed())
    }

    fn whole(&self) -> Duration {
        hold::timeout("deadline", self.whole)
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
        seconds(self.whole())
    }
}

/// Holds at `point` if a test asks for it.
pub(crate) fn hold_at(point: &str) {
    hold::reached(point, command::interrupted);
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
