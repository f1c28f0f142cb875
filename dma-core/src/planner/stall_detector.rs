//! [`StallDetector`]: detects stalled devices, outside the copy path.

use std::time::{Duration, Instant};

/// Measures the time during which a device has had operations and completed none of them.
///
/// Only time during which the device was polled counts. Otherwise the detector would report a stall if the
/// program paused, if a software device could not run, or if a device waited for a poll.
#[derive(Debug)]
pub(crate) struct StallDetector {
    limit: Duration,
    wait: Option<Wait>,
    /// See [`steps`](Self::steps).
    steps: u32,
    /// Time since the last step.
    since_step: Duration,
}

#[derive(Debug)]
struct Wait {
    /// Number of completions when the wait began.
    completed: u64,
    /// Number of polls when the wait began.
    first: u64,
    /// Number of polls at the last observation.
    polls: u64,
    /// Time of the last observation.
    last: Instant,
    /// Time without a completion that counts so far.
    watched: Duration,
}

impl StallDetector {
    /// Minimum number of polls before a stall is reported. Each poll counts for at most `limit / MIN_POLLS`.
    const MIN_POLLS: u32 = 64;

    /// Number of steps in the limit.
    pub(crate) const STEPS: u32 = 8;

    pub(crate) fn new(limit: Duration) -> Self {
        // Each poll must count for some time.
        let limit = limit.max(Duration::from_nanos(Self::MIN_POLLS.into()));
        Self { limit, wait: None, steps: 0, since_step: Duration::ZERO }
    }

    /// Returns the time without completions in all waits so far, in units of `limit / STEPS`. The number
    /// wraps.
    ///
    /// An awaited operation compares this number with that of its first poll. In this way, the operation
    /// measures its own wait without a clock.
    pub(crate) const fn steps(&self) -> u32 {
        self.steps
    }

    /// Returns the time after which a device that a program only polls at intervals must be polled again.
    /// With longer intervals, the detector would take longer than its limit.
    pub(crate) fn poll_interval(&self) -> Duration {
        (self.limit / Self::MIN_POLLS).clamp(Duration::from_micros(100), Duration::from_secs(60))
    }

    /// Records the numbers of completions and polls so far, while the device has operations. If the time
    /// without a completion exceeds the limit, returns it.
    pub(crate) fn observe(&mut self, completed: u64, polls: u64, now: Instant) -> Option<Duration> {
        let Some(wait) = self.wait.as_mut().filter(|wait| wait.completed == completed) else {
            self.wait = Some(Wait { completed, first: polls, polls, last: now, watched: Duration::ZERO });
            return None;
        };
        let polled = u32::try_from(polls - wait.polls).unwrap_or(u32::MAX);
        let passed = now.saturating_duration_since(wait.last);
        let counted = passed.min((self.limit / Self::MIN_POLLS).saturating_mul(polled));
        wait.watched += counted;
        self.since_step += counted;
        let (step, since) = ((self.limit / Self::STEPS).as_nanos(), self.since_step.as_nanos());
        self.steps = self.steps.wrapping_add((since / step) as u32);
        self.since_step = Duration::from_nanos((since % step) as u64);
        (wait.polls, wait.last) = (polls, now);
        let enough = wait.watched >= self.limit && polls - wait.first >= Self::MIN_POLLS.into();
        enough.then_some(wait.watched)
    }

    /// Ends the measurement, because the device has no operations.
    pub(crate) fn reset(&mut self) {
        self.wait = None;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(640);
    const MS: Duration = Duration::from_millis(1);

    struct Rig {
        detector: StallDetector,
        now: Instant,
        polls: u64,
    }

    impl Rig {
        fn new(limit: Duration) -> Self {
            Self { detector: StallDetector::new(limit), now: Instant::now(), polls: 0 }
        }

        /// Advances the clock by `time` and the number of polls by `polls`, and calls `observe`.
        fn ask(&mut self, completed: u64, time: Duration, polls: u64) -> Option<Duration> {
            self.now += time;
            self.polls += polls;
            self.detector.observe(completed, self.polls, self.now)
        }
    }

    #[test]
    fn a_device_that_completes_nothing_is_told() {
        let mut rig = Rig::new(LIMIT);
        let told = (0..1_000).map(|_| rig.ask(3, MS, 1)).position(|told| told.is_some());
        assert_eq!(told, Some(640));
        assert_eq!(rig.ask(3, MS, 1), Some(LIMIT + MS), "the second stall is longer");
    }

    #[test]
    fn a_completion_is_a_new_beginning() {
        let mut rig = Rig::new(LIMIT);
        (0..639).for_each(|_| assert_eq!(rig.ask(3, MS, 1), None));
        (0..640).for_each(|_| assert_eq!(rig.ask(4, MS, 1), None));
        assert!(rig.ask(4, MS, 1).is_some());
        assert_eq!(rig.ask(5, MS, 1), None);
        rig.detector.reset();
        (0..640).for_each(|_| assert_eq!(rig.ask(5, MS, 1), None));
    }

    #[test]
    fn time_in_which_nobody_looked_does_not_count() {
        let mut rig = Rig::new(LIMIT);
        for _ in 0..10 {
            assert_eq!(rig.ask(0, 3600 * 1000 * MS, 0), None);
            // The program did not run for some time, and neither did software devices.
            assert_eq!(rig.ask(0, 3600 * 1000 * MS, 1), None);
        }
    }

    #[test]
    fn steps_count_the_time_of_all_waits() {
        let mut rig = Rig::new(LIMIT);
        for completed in 0..3 {
            (0..321).for_each(|_| assert_eq!(rig.ask(completed, MS, 1), None));
        }
        assert_eq!(rig.detector.steps(), 12, "each step is 80 ms");
        (0..1_000).for_each(|_| _ = rig.ask(2, 3600 * 1000 * MS, 0));
        assert_eq!(rig.detector.steps(), 12, "time without a poll does not count");
    }

    #[test]
    fn limits_of_any_length() {
        let mut rig = Rig::new(Duration::ZERO);
        (0..64).for_each(|_| assert_eq!(rig.ask(0, MS, 1), None, "a few polls are not enough for a stall"));
        assert!(rig.ask(0, MS, 1).is_some());
        let mut rig = Rig::new(Duration::MAX);
        (0..1_000).for_each(|_| assert_eq!(rig.ask(0, 3600 * 1000 * MS, u64::from(u32::MAX)), None));
    }
}
