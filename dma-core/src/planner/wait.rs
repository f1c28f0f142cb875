//! Back-off for waiting loops. A loop spins first, then yields the CPU, then reads the clock.

use std::time::{Duration, Instant};

use crate::STOP_GRACE;

pub(crate) use crate::memory::sync::deadline;

/// [`STOP_GRACE`], and less in this crate's tests, many of which close a queue whose device hangs.
pub(crate) const GRACE: Duration = if cfg!(test) { Duration::from_millis(200) } else { STOP_GRACE };

/// Maximum part of [`GRACE`] that passes between two polls. If the thread did not run for longer, the
/// engine's other threads, which may have to stop the device, probably did not run either.
const LONGEST_GAP: Duration = Duration::from_millis(10);

/// Waits before the next poll of a queue that is being closed, after a poll without progress. `polls` is the
/// number of such polls. Sleeps after many polls, because the engine's threads may need the CPU.
pub(crate) fn rest(polls: &mut u32) {
    *polls = polls.saturating_add(1);
    if *polls < 1000 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Waits until a stopped device has reported its descriptors. `poll` polls the device once, and returns the
/// number of reports and whether nothing is left. Returns false if the device has reported nothing since
/// [`GRACE`] has passed, without times in which this thread did not run.
pub(crate) fn until_stopped(mut poll: impl FnMut() -> (usize, bool)) -> bool {
    let (mut left, mut last, mut polls) = (GRACE, Instant::now(), 0);
    loop {
        // Read the clock before the poll. This thread may not have run for some time, during which the device
        // may have reported.
        let now = Instant::now();
        left = left.saturating_sub((now - last).min(LONGEST_GAP));
        last = now;
        let (reported, over) = poll();
        if over {
            return true;
        }
        if reported == 0 {
            if left.is_zero() {
                return false;
            }
            rest(&mut polls);
        }
    }
}

/// The back-off of a loop that polls a device.
pub(crate) struct Backoff {
    idle: u32,
    polls: u32,
}

impl Backoff {
    /// Number of idle polls before yielding.
    const SPIN_POLLS: u32 = 64;
    /// Number of polls between readings of the clock.
    const CLOCK_EVERY: u32 = 16;
    /// Number of idle polls after which a wait may sleep and reads the clock at each poll.
    const SLEEP_AFTER: u32 = 2_000;

    pub(crate) const fn new() -> Self {
        Self { idle: 0, polls: 0 }
    }

    /// Returns whether the caller may sleep until the next poll.
    pub(crate) const fn may_sleep(&self) -> bool {
        self.idle > Self::SLEEP_AFTER
    }

    /// Backs off after a poll that reported `progress` descriptors. Returns whether the deadline has passed.
    /// The deadline is checked only at some polls.
    pub(crate) fn idle(&mut self, progress: usize, deadline: impl FnOnce() -> Instant) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if progress > 0 {
            self.idle = 0;
            // Check the deadline even during progress, because a long operation or the operations of other
            // tasks may continue for a long time.
            return self.polls.is_multiple_of(Self::CLOCK_EVERY) && Instant::now() >= deadline();
        }
        self.pause();
        if self.idle < Self::SPIN_POLLS {
            return false;
        }
        (self.may_sleep() || self.idle.is_multiple_of(Self::CLOCK_EVERY)) && Instant::now() >= deadline()
    }

    /// Backs off after an idle poll.
    pub(crate) fn pause(&mut self) {
        self.idle = self.idle.saturating_add(1);
        if self.idle < Self::SPIN_POLLS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
