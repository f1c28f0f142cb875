//! [`Clock`]: the recorded program's own time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// In pauses longer than this, the thread sleeps, except for this time at the end.
const SLEEP: Duration = Duration::from_millis(2);
/// Maximum time of a sleep. After each sleep, the thread checks if another queue has failed.
pub(super) const NAP: Duration = Duration::from_millis(50);

/// The end of the last call, and the delay of the replay compared with the program.
#[derive(Debug)]
pub(super) struct Clock {
    now: Instant,
    owed: Duration,
    pauses: bool,
}

impl Clock {
    /// Makes a clock with or without pauses.
    pub(super) fn new(pauses: bool) -> Self {
        Self { now: Instant::now(), owed: Duration::ZERO, pauses }
    }

    /// Returns the end of the last call or pause.
    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time since the last call, which is over now.
    pub(super) fn pass(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.now, now)
    }

    /// Waits for as long as the recorded program worked between two calls, measured from the end of the last
    /// call. A pause that took too long shortens the next ones. Returns early if `stop` is set.
    pub(super) fn pause(&mut self, time: Duration, stop: &AtomicBool) {
        if !self.pauses {
            return;
        }
        let due = self.now + time.saturating_sub(self.owed);
        self.owed = self.owed.saturating_sub(time);
        loop {
            self.now = Instant::now();
            let left = due.saturating_duration_since(self.now);
            if left.is_zero() || stop.load(Ordering::Relaxed) {
                break;
            }
            if left > SLEEP {
                std::thread::sleep((left - SLEEP / 2).min(NAP));
            } else {
                std::hint::spin_loop();
            }
        }
        self.owed += self.now.saturating_duration_since(due);
    }
}
