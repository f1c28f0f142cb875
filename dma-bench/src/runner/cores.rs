//! [`Cores`]: the cores that take part, and what others do on them: whether it is worth waiting until these have ended, or moved.

use std::time::{Duration, Instant};

use crate::interrupt;
use crate::nearness::Nearness;
use crate::pairs::Seen;
use crate::sibling::Sibling;

/// A visit waits so long at most for the core to be its own,
const QUIET: Duration = Duration::from_millis(10);
/// and all visits together for this part of the time.
const QUIET_SHARE: f64 = 0.125;

/// The core of this thread, with its other hardware thread, and the core of another thread that takes part.
#[derive(Default)]
pub(super) struct Cores {
    sibling: Sibling,
    pub(super) nearness: Nearness,
    /// How long it has waited for the core to be its own.
    waited: Duration,
}

impl Cores {
    /// How long a visit may wait for the core to be its own: not at all where that hardly ever helps. `elapsed` is how long the
    /// run has taken so far.
    fn patience(&self, elapsed: Duration) -> Duration {
        if self.sibling.is_mostly_busy() {
            return Duration::ZERO;
        }
        elapsed.mul_f64(QUIET_SHARE).saturating_sub(self.waited).min(QUIET)
    }

    /// Waits until the core's other hardware thread is not busy, while there is time for it; whether it is busy.
    pub(super) fn quiet(&mut self, elapsed: Duration) -> bool {
        let begun = Instant::now();
        let most = self.patience(elapsed);
        loop {
            let busy = self.sibling.is_busy();
            if !busy || begun.elapsed() >= most || interrupt::stopped() {
                self.waited += begun.elapsed();
                return busy;
            }
            std::thread::yield_now();
        }
    }

    /// Whether the core that took part last is elsewhere than usual now.
    pub(super) fn elsewhere(&mut self) -> bool {
        let seen = self.nearness.look_again(&mut self.sibling);
        seen.is_some_and(|seen| self.nearness.is_unusual(seen))
    }

    /// Whether the core's other hardware thread was busy before a slice or is now, after it. `busy` is whether it was, and becomes whether it is.
    pub(super) fn was_shared(&mut self, busy: &mut bool) -> bool {
        let before = std::mem::replace(busy, self.sibling.is_busy_after());
        before || *busy
    }

    /// Where the other core was in a slice: that of `cpu`, or, if no other thread took part, the one on which one mostly does in a cell `in_company`.
    pub(super) fn beside(&mut self, cpu: Option<usize>, in_company: bool) -> Option<Seen> {
        if let Some(cpu) = cpu {
            let seen = self.nearness.look(cpu, &mut self.sibling);
            seen.into_iter().for_each(|seen| self.nearness.learn(seen));
            seen
        } else if in_company {
            self.nearness.missed(&mut self.sibling)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_shared_is_waited_for_within_bounds() {
        let (mut cores, second) = (Cores::default(), Duration::from_secs(1));
        assert!(!cores.quiet(Duration::ZERO), "the first look has nothing to compare with");
        cores.sibling = Sibling::always_busy();
        cores.waited = Duration::from_secs(3600);
        assert_eq!(cores.patience(second), Duration::ZERO, "no time is left for it");
        assert!(cores.quiet(second));
        cores.waited = Duration::ZERO;
        assert_eq!(cores.patience(second), QUIET);
        assert!(cores.quiet(second));
        assert!(cores.waited >= QUIET);
    }
}
