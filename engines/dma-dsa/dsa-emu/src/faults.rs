//! Injected faults. A seed and a number decide each, so that any thread may ask.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dma_sim::model::{Fault, FaultPlan, FaultRule, Time};

/// The faults of one descriptor or submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strike {
    pub(crate) refuse: bool,
    pub(crate) fail: bool,
    pub(crate) reset: bool,
    pub(crate) lose: bool,
    pub(crate) stick: bool,
    pub(crate) gone: bool,
    pub(crate) corrupt: bool,
    pub(crate) slow: Duration,
}

/// The plan of a work queue.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Each with whether it has struck, for those that strike once.
    rules: Vec<(FaultRule, AtomicBool)>,
    seed: u64,
    start: Instant,
}

impl Faults {
    pub(crate) fn new(plan: &FaultPlan, seed: u64) -> Self {
        let rules = plan.rules.iter().map(|rule| (*rule, AtomicBool::new(false))).collect();
        Self { rules, seed, start: Instant::now() }
    }

    /// The faults of number `number`, counted from 1.
    pub(crate) fn strike(&self, number: u64) -> Strike {
        let mut strike = Strike::default();
        for ((rule, struck), salt) in self.rules.iter().zip(1..) {
            let is_due =
                |time| self.start.elapsed() >= duration(time) && !struck.swap(true, Ordering::Relaxed);
            if !rule.when.means(number, is_due) || !self.chance(rule.chance, number, salt) {
                continue;
            }
            match rule.fault {
                Fault::Refuse => strike.refuse = true,
                Fault::Fail => strike.fail = true,
                Fault::Reset => strike.reset = true,
                Fault::Lose => strike.lose = true,
                Fault::Stick => strike.stick = true,
                Fault::Gone => strike.gone = true,
                Fault::Corrupt => strike.corrupt = true,
                Fault::Slow(by) => strike.slow += duration(by),
                _ => {}
            }
        }
        strike
    }

    /// Decides with probability `chance`. Numbers with different `salt` are independent.
    pub(crate) fn chance(&self, chance: f64, number: u64, salt: u64) -> bool {
        chance >= 1.0 || (self.random(number, salt) >> 11) as f64 * f64::EPSILON / 2.0 < chance
    }

    /// A random number.
    pub(crate) const fn random(&self, number: u64, salt: u64) -> u64 {
        // SplitMix64, by Steele, Lea and Flood.
        let mut x = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ salt.rotate_left(48);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

const fn duration(time: Time) -> Duration {
    Duration::from_nanos(time.as_ps() / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_meet_their_numbers() {
        let faults = Faults::new(&"fail@2-3+lose@every=4+slow@3:for=2us+gone@t=0ns".parse().unwrap(), 7);
        assert_eq!(faults.strike(1), Strike { gone: true, ..Strike::default() }, "a time strikes once");
        let strikes: Vec<_> = (2..=4).map(|number| faults.strike(number)).collect();
        assert_eq!(strikes.iter().map(|strike| strike.fail).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(strikes[1].slow, Duration::from_micros(2));
        assert!(strikes[2].lose && !strikes.iter().any(|strike| strike.gone));
    }

    #[test]
    fn chances_are_as_often_as_they_say() {
        let faults = Faults::new(&"fail:p=0.25".parse().unwrap(), 3);
        let struck = (0..10_000).filter(|number| faults.strike(*number).fail).count();
        assert!((2_200..2_800).contains(&struck), "{struck}");
        assert!(!faults.chance(0.0, 1, 1) && faults.chance(1.0, 1, 1));
    }
}
