//! [`LengthClass`]: the state of one class of lengths, and its steps from probe to probe.

use super::core_cache::{MAYBE_ALONE_MAX, is_hot};
use super::drift::{DriftAlarm, Shift};
use super::estimate::Estimate;
use super::probe::{Probe, STREAM_FIRST, is_hopeless, memcpy_copies, streaming_copies};
use super::schedule::{BACKOFF_MAX_MEMCPY, BACKOFF_MAX_STREAMING, FIRST_PROBE_AFTER, Schedule, distance};
use super::sharing::{Sharing, TRIAL_SHARED};
use super::{Pick, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The current kernel is used. The next probe begins after the picks that the [`Schedule`] has left.
    Settled,
    /// A probe or trial runs, and has these picks left.
    Probing,
    /// All copies of the probe are picked, but some are not recorded yet. After the picks that are left, the
    /// missing ones are abandoned.
    Awaiting,
}

/// State of one class of lengths, a power of two. Costs are in ticks per byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct LengthClass {
    pub(super) phase: Phase,
    pub(super) streaming: bool,
    /// True if `memcpy` is in use, at about the speed of a core's own cache.
    pub(super) hot: bool,
    pub(super) estimate: Estimate,
    drift: DriftAlarm,
    pub(super) schedule: Schedule,
    pub(super) probe: Probe,
    pub(super) sharing: Sharing,
}

impl LengthClass {
    pub(super) fn new(index: usize, alone_max: usize) -> Self {
        Self {
            phase: Phase::Settled,
            streaming: index >= STREAM_FIRST,
            hot: false,
            estimate: Estimate::default(),
            drift: DriftAlarm::default(),
            schedule: Schedule::new(),
            probe: Probe::new(false),
            sharing: Sharing::new(alone_max),
        }
    }

    #[inline]
    pub(super) fn pick(&mut self, index: usize, len: usize, in_flight: u32) -> Pick {
        if self.schedule.left == 0 {
            self.advance(index, in_flight);
        }
        if len > self.sharing.alone_max && self.is_trial() {
            // The copy is too long for one core's cache, so it cannot be part of the trial.
            self.settle(index);
        }
        self.schedule.left -= 1;
        let left = self.schedule.left;
        let probing = self.phase == Phase::Probing;
        let trial = self.is_trial();
        let shared = if trial { TRIAL_SHARED * self.memcpy_burst(index) } else { 0 };
        let role = if probing {
            // The first copies of each kind warm the cache.
            let left = if trial && left >= shared { left - shared } else { left };
            if left < self.judged(index) { Role::Probe } else { Role::Untimed }
        } else if trial {
            Role::Untimed
        } else if left & self.skip(index) == 0 && !self.is_new() {
            Role::Sample
        } else {
            Role::Untimed
        };
        let streaming = if probing { self.probe.streaming } else { self.streaming };
        let share_is_faster = self.sharing.share_is_faster;
        let unknown = !self.streaming && !share_is_faster && !self.estimate.is_settled();
        let (sure, maybe) = if trial {
            // The trial's shared copies are still running.
            (probing && left >= shared, false)
        } else {
            ((self.hot && !share_is_faster) || (probing && !streaming), probing || unknown)
        };
        let alone = (sure && len <= self.sharing.alone_max) || (maybe && len <= MAYBE_ALONE_MAX);
        Pick { streaming, alone, trial, role, class: index as u8 }
    }

    /// Skips picks that would not be timed. Returns their number, which is even, and true if these copies are
    /// streamed.
    pub(super) fn skip_untimed(&mut self, index: usize) -> (u32, bool) {
        let skipped = match self.phase {
            Phase::Settled => self.schedule.left & self.skip(index) & !1,
            Phase::Probing | Phase::Awaiting => 0,
        };
        self.schedule.left -= skipped;
        (skipped, self.streaming)
    }

    /// Returns true while a trial runs.
    #[inline]
    pub(super) fn is_trial(&self) -> bool {
        self.phase != Phase::Settled && !self.streaming && !self.probe.streaming
    }

    /// Returns true for the very first pick, which may fault pages in.
    fn is_new(&self) -> bool {
        !self.estimate.is_known() && self.schedule.left == FIRST_PROBE_AFTER - 1
    }

    /// Enters the next phase. Called when no picks are left.
    #[cold]
    fn advance(&mut self, index: usize, in_flight: u32) {
        match self.phase {
            Phase::Settled => {
                self.phase = Phase::Probing;
                self.probe = Probe::new(!self.streaming && !self.is_trial_next(index));
                self.schedule.left = self.burst(index);
                self.sharing.begin_trial();
            }
            Phase::Probing => {
                self.phase = Phase::Awaiting;
                // The queue's depth is added, because all earlier submissions complete before the last copy
                // of the probe.
                self.schedule.left = distance(self.burst(index), 0).saturating_add(in_flight);
            }
            Phase::Awaiting if self.is_trial() => self.settle(index),
            Phase::Awaiting => self.decide(index, 0.0),
        }
    }

    /// Returns true if the next probe is a trial.
    fn is_trial_next(&self, index: usize) -> bool {
        !self.streaming && self.schedule.is_trial_next(self.hot) && self.sharing.may_be_alone(index)
    }

    /// Makes the next probe a trial and schedules it soon, if the class has trials. `memcpy` must be in use.
    fn schedule_trial_soon(&mut self, index: usize) {
        if self.sharing.may_be_alone(index) {
            self.schedule.make_trial_next(self.hot);
            self.schedule.bring_forward(self.rest(index));
        }
    }

    #[inline]
    pub(super) fn record(&mut self, pick: Pick, cost: f32, index: usize, hot_cost: f32) {
        match pick.role {
            Role::Sample if pick.streaming == self.streaming => self.sample(cost, index, hot_cost),
            Role::Probe if pick.trial && pick.alone && self.is_trial() => {
                self.sharing.trial.add_alone(cost, self.judged(index));
                self.try_to_judge(index, hot_cost);
            }
            Role::Probe if pick.trial || self.is_trial() => {} // belongs to another probe
            Role::Probe if pick.streaming == self.probe.streaming && self.phase != Phase::Settled => {
                self.probe.add(cost);
                let judged = self.judged(index);
                // A `memcpy` probe of long copies continues until a copy is not much faster than the previous
                // one.
                let in_pairs = self.streaming && judged == 2;
                if in_pairs && self.probe.warms(cost) {
                    (self.phase, self.schedule.left) = (Phase::Probing, judged);
                    self.probe = Probe::new(self.probe.streaming);
                    return;
                }
                let hopeless = is_hopeless(cost, self.estimate.cost) && !in_pairs;
                if self.probe.seen == judged || hopeless {
                    self.decide(index, hot_cost);
                }
            }
            _ => {} // belongs to a choice that was abandoned since
        }
    }

    pub(super) fn record_shared(&mut self, busy: f32, work: f32, index: usize, hot_cost: f32) {
        if self.is_trial() {
            self.sharing.trial.add_shared(busy, work, self.judged(index));
            self.try_to_judge(index, hot_cost);
        }
    }

    /// Ends a complete trial, and decides about sharing.
    fn try_to_judge(&mut self, index: usize, hot_cost: f32) {
        if !self.sharing.trial.is_complete(self.judged(index)) {
            return;
        }
        let were_alone = self.hot && !self.sharing.share_is_faster;
        let Some(result) = self.sharing.judge(were_alone) else {
            let rest = distance(self.trial_burst(index), 0);
            self.settle(index);
            self.schedule_trial_soon(index);
            self.schedule.bring_forward(rest);
            return;
        };
        let alone = is_hot(result.alone, hot_cost) && !result.share;
        self.hot = alone || (result.share && is_hot(result.work, hot_cost));
        let owed = self.sharing.owed(&result, alone, self.memcpy_burst(index));
        if alone != were_alone {
            self.estimate.restart(if alone { result.alone } else { result.work });
            self.schedule.expect_change();
        }
        self.settle(index);
        self.schedule.set(self.schedule.left, owed);
    }

    /// Postpones the last pick, because no helper could share it.
    pub(super) fn postpone_trial(&mut self, index: usize, first: bool, sleeps: bool) {
        if self.phase != Phase::Probing || !self.is_trial() {
            return;
        }
        if self.sharing.postpone(first, sleeps, self.memcpy_burst(index)) {
            self.schedule.left += 1;
            return;
        }
        let owed = self.sharing.end_without_helpers();
        self.settle(index);
        self.schedule.set(self.schedule.left, owed);
    }

    /// Ends the trial.
    fn settle(&mut self, index: usize) {
        self.phase = Phase::Settled;
        self.drift.restart();
        self.schedule.back_off(BACKOFF_MAX_MEMCPY);
        self.schedule.set(self.rest(index), 0);
    }

    /// Records that one core made a copy at `now`. Schedules another trial once the last trial is old and
    /// paid back.
    pub(super) fn schedule_retry(&mut self, index: usize, now: u64, retry_after: u64) {
        let is_left_alone = self.hot && !self.sharing.share_is_faster && self.phase == Phase::Settled;
        if is_left_alone && self.sharing.may_be_alone(index) {
            self.schedule.retry(now, retry_after);
        }
    }

    fn sample(&mut self, cost: f32, index: usize, hot_cost: f32) {
        let reference = self.estimate.add(cost);
        let hot = !self.streaming && is_hot(self.estimate.cost, hot_cost);
        if std::mem::replace(&mut self.hot, hot) != hot && self.phase == Phase::Settled {
            if hot && !self.sharing.share_is_faster {
                self.schedule_trial_soon(index);
            } else if !hot {
                // While the data was cached, the next probe was scheduled far ahead. Now it has to come
                // sooner.
                self.schedule.bring_forward(self.rest(index));
            }
        }
        let Some(shift) = reference.and_then(|reference| self.drift.add(cost, reference)) else { return };
        if self.phase != Phase::Settled {
            return;
        }
        // This sample is used, because the smoothed cost lags behind.
        self.hot = !self.streaming && is_hot(cost, hot_cost);
        self.estimate.restart(cost);
        self.drift.restart();
        // If `memcpy` became faster or is cached, there is no reason to probe streaming.
        if !self.streaming && (shift == Shift::Faster || self.hot) {
            // The data may be in another cache now.
            if self.sharing.may_be_alone(index) {
                self.schedule.expect_change();
            }
            self.schedule_trial_soon(index);
        } else {
            let since_probe = self.rest(index).saturating_sub(self.schedule.left);
            // Probes the other kernel first, and at once if shifts are rare here.
            self.schedule.restart_cycle(self.drift.cause_probe());
            self.schedule.left = self.rest(index).saturating_sub(since_probe);
        }
    }

    /// Compares the probe with the current kernel, and keeps the better one.
    #[cold]
    fn decide(&mut self, index: usize, hot_cost: f32) {
        let known = self.probe.seen > 0 && self.estimate.is_known();
        let better = known && self.probe.wins(self.estimate.cost);
        let mut owed = 0;
        if better {
            let cost = self.probe.cost();
            self.streaming = self.probe.streaming;
            self.hot = !self.streaming && is_hot(cost, hot_cost);
            self.sharing.share_is_faster = false;
            self.estimate.restart(cost);
            self.schedule.restart_cycle(0);
        } else if known {
            let max = if self.streaming { BACKOFF_MAX_STREAMING } else { BACKOFF_MAX_MEMCPY };
            self.schedule.back_off(max);
            owed = self.probe.owed(self.estimate.cost, index);
        }
        self.phase = Phase::Settled;
        self.drift.end_probe(known.then_some(better));
        // A probe without a result is repeated soon.
        self.schedule.set(if known { self.rest(index) } else { FIRST_PROBE_AFTER }, owed);
    }

    /// Returns the number of copies in a probe.
    fn burst(&self, index: usize) -> u32 {
        match (self.probe.streaming, self.streaming) {
            (true, _) => streaming_copies(index) + 1,
            (false, true) => self.memcpy_burst(index),
            (false, false) => self.trial_burst(index),
        }
    }

    fn trial_burst(&self, index: usize) -> u32 {
        (1 + TRIAL_SHARED) * self.memcpy_burst(index)
    }

    fn memcpy_burst(&self, index: usize) -> u32 {
        memcpy_copies(index, self.streaming, self.schedule.backoff)
    }

    /// Returns the number of copies whose times count. The first half of a `memcpy` burst warms the cache.
    fn judged(&self, index: usize) -> u32 {
        if self.probe.streaming { streaming_copies(index) } else { self.memcpy_burst(index).div_ceil(2) }
    }

    /// Returns the number of copies until the next probe.
    pub(super) fn rest(&self, index: usize) -> u32 {
        let backoff = self.schedule.backoff;
        if self.is_trial_next(index) {
            distance(self.trial_burst(index), self.schedule.trial_backoff())
        } else if self.streaming {
            distance(self.memcpy_burst(index), backoff)
        } else {
            distance(streaming_copies(index), if self.hot { BACKOFF_MAX_MEMCPY } else { backoff })
        }
    }

    /// Returns a mask: a pick is a sample if these bits of the picks that are left are 0. Short copies are
    /// sampled rarely, because a sample takes 150 ns (Zen 4), as long as a copy of 16 KiB in the level-1
    /// cache. Samples are not rarer, so that the tuner soon notices that the data has left the cache. After a
    /// decision, every copy is sampled at first.
    fn skip(&self, index: usize) -> u32 {
        match index {
            _ if !self.estimate.is_settled() && self.schedule.backoff < 2 => 0,
            0 => 31,
            1 => 15,
            2 | 3 => 7,
            _ => 0,
        }
    }
}
