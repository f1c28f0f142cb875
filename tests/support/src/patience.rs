//! [`Patience`]: a limit against a hang of a test that polls until a condition holds.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Maximum time between two calls that counts. If more time passes, the thread, the process or the whole
/// machine was stopped, or the thread had no CPU.
const LONGEST_GAP: Duration = Duration::from_millis(100);

/// A limit of one minute. Time in which the test could not look does not count.
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
        assert!(!self.left.is_zero(), "not within a minute: {never}");
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
        (0..600).for_each(|_| patience.count(LONGEST_GAP));
        assert_eq!(patience.left, Duration::ZERO);
        let checked = std::panic::catch_unwind(move || patience.check("the end"));
        assert!(checked.is_err(), "it is over");
    }
}
