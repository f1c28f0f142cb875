//! [`Patience`]: a limit against a hang of a test that polls until a condition holds.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Maximum time between two calls that counts. If more time passes, the thread sleeps, or the thread, the
/// process or the whole machine was stopped or had no CPU. A quota stops a process for up to 100 ms at a
/// time.
const LONGEST_GAP: Duration = Duration::from_millis(1);

/// A limit of one minute in which the test looked. Time in which it could not look does not count, and of a
/// pause between two looks only a millisecond counts.
#[derive(Debug)]
pub struct Patience {
    left: Duration,
    last: Instant,
}

impl Patience {
    /// Begins the minute.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a limit begins at a time")]
    pub fn new() -> Self {
        Self { left: Duration::from_secs(60), last: Instant::now() }
    }

    /// Fails the test if the minute is over. Call it each time that the test has looked.
    #[track_caller]
    pub fn check(&mut self, never: impl Display) {
        let now = Instant::now();
        self.count(now - self.last);
        self.last = now;
        assert!(!self.left.is_zero(), "not within a minute of looking: {never}");
    }

    fn count(&mut self, gap: Duration) {
        self.left = self.left.saturating_sub(gap.min(LONGEST_GAP));
    }
}

/// Yields the CPU until `done` returns true. Fails the test after a minute.
#[track_caller]
pub fn until(what: impl Display, mut done: impl FnMut() -> bool) {
    let mut patience = Patience::new();
    while !done() {
        patience.check(&what);
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_of_the_machine_counts_as_a_short_gap() {
        let mut patience = Patience::new();
        patience.count(Duration::from_secs(3600));
        assert_eq!(patience.left, Duration::from_secs(60) - LONGEST_GAP);
        patience.check("an hour's stop ends no test");
        (0..60_000).for_each(|_| patience.count(LONGEST_GAP));
        assert_eq!(patience.left, Duration::ZERO);
        let checked = std::panic::catch_unwind(move || patience.check("the end"));
        assert!(checked.is_err(), "it is over");
    }
}
