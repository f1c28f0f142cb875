//! [`Patience`]: tells a device that hangs from one that nobody looks at.

use std::time::{Duration, Instant};

/// How long a device that has work has been seen to complete none of it.
///
/// Only time in which somebody looked counts. A program that was stopped for an hour, or did other things, has no device to blame; and what works for
/// a software device may have been kept from running just as long, or waits to be polled.
#[derive(Debug)]
pub(crate) struct Patience {
    limit: Duration,
    wait: Option<Wait>,
}

#[derive(Debug)]
struct Wait {
    /// What the device had completed.
    completed: u64,
    /// Looks before the wait began, and until it was last asked.
    first: u64,
    looks: u64,
    last: Instant,
    watched: Duration,
}

impl Patience {
    /// Over which number of looks at least the limit is spread.
    const LOOKS: u32 = 64;

    pub(crate) const fn new(limit: Duration) -> Self {
        Self { limit, wait: None }
    }

    /// To be asked while the device has work: `completed` and `looks` are how often it has completed something and was looked at so far. Returns for
    /// how long it has completed nothing, once that is longer than the limit.
    pub(crate) fn ask(&mut self, completed: u64, looks: u64, now: Instant) -> Option<Duration> {
        let Some(wait) = self.wait.as_mut().filter(|wait| wait.completed == completed) else {
            self.wait = Some(Wait { completed, first: looks, looks, last: now, watched: Duration::ZERO });
            return None;
        };
        let looked = u32::try_from(looks - wait.looks).unwrap_or(u32::MAX);
        let passed = now.saturating_duration_since(wait.last);
        wait.watched += passed.min((self.limit / Self::LOOKS).saturating_mul(looked));
        (wait.looks, wait.last) = (looks, now);
        let enough = wait.watched >= self.limit && looks - wait.first >= Self::LOOKS.into();
        enough.then_some(wait.watched)
    }

    /// The device has no work.
    pub(crate) fn rest(&mut self) {
        self.wait = None;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(640);
    const MS: Duration = Duration::from_millis(1);

    struct Rig {
        patience: Patience,
        now: Instant,
        looks: u64,
    }

    impl Rig {
        fn new(limit: Duration) -> Self {
            Self { patience: Patience::new(limit), now: Instant::now(), looks: 0 }
        }

        /// Asks after `time`, in which there were `looks`.
        fn ask(&mut self, completed: u64, time: Duration, looks: u64) -> Option<Duration> {
            self.now += time;
            self.looks += looks;
            self.patience.ask(completed, self.looks, self.now)
        }
    }

    #[test]
    fn a_device_that_completes_nothing_is_told() {
        let mut rig = Rig::new(LIMIT);
        let told = (0..1_000).map(|_| rig.ask(3, MS, 1)).position(|told| told.is_some());
        assert_eq!(told, Some(640));
        assert_eq!(rig.ask(3, MS, 1), Some(LIMIT + MS), "and again, for longer");
    }

    #[test]
    fn a_completion_is_a_new_beginning() {
        let mut rig = Rig::new(LIMIT);
        (0..639).for_each(|_| assert_eq!(rig.ask(3, MS, 1), None));
        (0..640).for_each(|_| assert_eq!(rig.ask(4, MS, 1), None));
        assert!(rig.ask(4, MS, 1).is_some());
        assert_eq!(rig.ask(5, MS, 1), None);
        rig.patience.rest();
        (0..640).for_each(|_| assert_eq!(rig.ask(5, MS, 1), None));
    }

    #[test]
    fn time_in_which_nobody_looked_does_not_count() {
        let mut rig = Rig::new(LIMIT);
        for _ in 0..10 {
            assert_eq!(rig.ask(0, 3600 * 1000 * MS, 0), None);
            // A program that was stopped, and its devices that are programs, too.
            assert_eq!(rig.ask(0, 3600 * 1000 * MS, 1), None);
        }
    }

    #[test]
    fn limits_of_any_length() {
        let mut rig = Rig::new(Duration::ZERO);
        (0..64).for_each(|_| assert_eq!(rig.ask(0, MS, 1), None, "it is looked at a few times"));
        assert!(rig.ask(0, MS, 1).is_some());
        let mut rig = Rig::new(Duration::MAX);
        (0..1_000).for_each(|_| assert_eq!(rig.ask(0, 3600 * 1000 * MS, u64::from(u32::MAX)), None));
    }
}
