//! Waiting: spin a little, then let others run, then look at the clock.

use std::time::{Duration, Instant};

/// When `timeout` from now is over; in decades, if that is longer than the clock counts.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const DECADES: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + DECADES)
}

/// How a loop that polls a device passes the time while nothing happens.
pub(crate) struct Backoff {
    idle: u32,
    polls: u32,
}

impl Backoff {
    /// Polls in vain before other threads are let in, and polls between looks at the clock.
    const SPINS: u32 = 64;
    const CLOCK: u32 = 16;
    /// Polls in vain after which a wait may sleep between polls, and looks at the clock after each.
    const SLEEP_AFTER: u32 = 2_000;

    pub(crate) const fn new() -> Self {
        Self { idle: 0, polls: 0 }
    }

    /// Whether it is time to sleep until the next poll.
    pub(crate) const fn may_sleep(&self) -> bool {
        self.idle > Self::SLEEP_AFTER
    }

    /// Passes the time after a poll that reported `progress` descriptors. Returns whether the deadline, asked for now and then, has passed.
    pub(crate) fn idle(&mut self, progress: usize, deadline: impl FnOnce() -> Instant) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if progress > 0 {
            self.idle = 0;
            // There may be progress for long: the rest of a long operation, or what others have in flight.
            return self.polls.is_multiple_of(Self::CLOCK) && Instant::now() >= deadline();
        }
        self.pause();
        if self.idle < Self::SPINS {
            return false;
        }
        (self.may_sleep() || self.idle.is_multiple_of(Self::CLOCK)) && Instant::now() >= deadline()
    }

    /// Passes the time after a poll that reported nothing.
    pub(crate) fn pause(&mut self) {
        self.idle = self.idle.saturating_add(1);
        if self.idle < Self::SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
