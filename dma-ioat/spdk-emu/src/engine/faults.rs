//! Injected faults, by descriptor.

use std::time::Instant;

use dma_sim::model::{Fault, FaultPlan, FaultRule, Time};

/// A fault plan and its progress.
pub(super) struct Faults {
    rules: Vec<FaultRule>,
    /// Rules for a point in time that have applied.
    fired: Vec<bool>,
    started: Instant,
    descriptors: u64,
    /// State of a xorshift generator.
    chance: u64,
}

impl Faults {
    pub(super) fn new(plan: &FaultPlan, seed: u64, channel: u32) -> Self {
        let mine = |rule: &&FaultRule| rule.channel.is_none_or(|only| only == channel);
        let rules: Vec<_> = plan.rules.iter().filter(mine).copied().collect();
        let chance = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(channel) << 32 | 1;
        Self { fired: vec![false; rules.len()], rules, started: Instant::now(), descriptors: 0, chance }
    }

    fn chance(&mut self) -> f64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The faults of the next descriptor.
    pub(super) fn next(&mut self) -> Vec<Fault> {
        self.descriptors += 1;
        let mut struck = Vec::new();
        for i in 0..self.rules.len() {
            let rule = self.rules[i];
            let (now, fired) = (Time::from(self.started.elapsed()), &mut self.fired[i]);
            let is_due = |at| at <= now && !std::mem::replace(fired, true);
            if rule.when.means(self.descriptors, is_due)
                && (rule.chance >= 1.0 || self.chance() < rule.chance)
            {
                struck.push(rule.fault);
            }
        }
        struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of the first 10 descriptors of a channel have a fault.
    fn struck(plan: &str, channel: u32) -> Vec<u64> {
        let mut faults = Faults::new(&plan.parse().unwrap(), 1, channel);
        (1..=10).filter(|_| !faults.next().is_empty()).collect()
    }

    #[test]
    fn rules_apply_to_their_descriptors_and_channel() {
        assert_eq!(struck("fail@3", 0), [3]);
        assert_eq!(struck("fail@2-4", 0), [2, 3, 4]);
        assert_eq!(struck("fail@every=4", 0), [4, 8]);
        assert_eq!(struck("fail@3:ch=1", 0), []);
        assert_eq!(struck("fail@3:ch=1", 1), [3]);
        assert_eq!(struck("fail@t=0s", 0), [1], "once");
        assert_eq!(struck("fail:p=1", 0).len(), 10);
        assert_eq!(struck("fail:p=0", 0), []);
    }
}
