//! [`Schedule`]: the number of copies between probes and trials.

use std::time::Duration;

/// Number of picks of a new class before its first probe.
pub(super) const FIRST_PROBE_AFTER: u32 = 5;
/// Number of ordinary copies between probes, as a multiple of the probe's length. Each step of `backoff`
/// doubles this number.
const PROBE_SPACING: u32 = 8;
/// Maximum `backoff` while `memcpy` is used and probes try streaming. A probe has 2 to 17 copies. Between two
/// probes there are at most 33,000 copies of 16 KiB, or 6,000 copies longer than 64 KiB.
pub(super) const BACKOFF_MAX_MEMCPY: u8 = 8;
/// Maximum `backoff` while streaming is used and probes try `memcpy`. A probe copies at most 16 MiB. Between
/// two probes, at most 8 GiB are copied.
pub(super) const BACKOFF_MAX_STREAMING: u8 = 6;
/// Backoff limit after the speed of cached copies has shifted.
const BACKOFF_SHIFTED: u8 = PROBES_PER_TRIAL + 2;
/// Number of probes for each trial, because trials are long. With cached data, the roles are swapped: number
/// of trials for each probe, because streaming almost never wins there.
const PROBES_PER_TRIAL: u8 = 4;
/// Age at which the result of a trial is checked again. The result may be outdated by then, because the
/// hypervisor migrates vCPUs several times a second, to sibling threads or behind other caches.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(100);
/// The extra time of a probe or trial is at most 1/`PAID_BACK` of the time until the next one. Streaming
/// cached data takes up to 45 times as long as `memcpy` (16 KiB on a Zen 3,
/// `cargo bench -p dma-cpu --bench copy`).
pub(super) const PAID_BACK: f32 = 32.0;
/// Maximum plausible cost ratio. A larger one may be caused by an interrupt.
pub(super) const BELIEVED: f32 = 16.0;

/// The time of the next probe or trial, counted in picks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Schedule {
    /// Number of picks that the current [`Phase`](super::length_class::Phase) has left.
    pub(super) left: u32,
    /// Part of `left` that only keeps a distance between probes, and does not pay back the last one. This
    /// part is dropped once the last trial is older than [`RETRY_AFTER`].
    pub(super) droppable: u32,
    /// Start of the first copy after the last trial, in ticks. 0 if there was no copy yet.
    since: u64,
    /// Number of consecutive probes that changed nothing, up to a limit.
    pub(super) backoff: u8,
    /// Position of the next probe in the cycle of probes and trials, up to `PROBES_PER_TRIAL`.
    cycle_pos: u8,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Self { left: FIRST_PROBE_AFTER, ..Self::default() }
    }

    /// Schedules the next probe after `copies` copies, or after `owed` copies if that is more, to pay back
    /// the last probe.
    pub(super) fn set(&mut self, copies: u32, owed: u32) {
        self.left = copies.max(owed);
        (self.droppable, self.since) = (self.left - owed, 0);
    }

    /// Schedules the next probe after at most `copies` copies.
    pub(super) fn bring_forward(&mut self, copies: u32) {
        self.left = self.left.min(copies);
    }

    /// Records a probe or trial that changed nothing.
    pub(super) fn back_off(&mut self, max: u8) {
        self.backoff = (self.backoff + 1).min(max);
        self.cycle_pos = if self.cycle_pos == PROBES_PER_TRIAL { 0 } else { self.cycle_pos + 1 };
    }

    /// Begins a new cycle, with a back-off of at most `backoff`.
    pub(super) fn restart_cycle(&mut self, backoff: u8) {
        (self.backoff, self.cycle_pos) = (self.backoff.min(backoff), 0);
    }

    /// Limits the back-off, because another change is likely after a change.
    pub(super) fn expect_change(&mut self) {
        self.backoff = self.backoff.min(BACKOFF_SHIFTED);
    }

    /// Returns true if a trial is next in the cycle. With cached data most probes are trials, otherwise few.
    pub(super) fn is_trial_next(&self, hot: bool) -> bool {
        (self.cycle_pos == PROBES_PER_TRIAL) != hot
    }

    /// Makes a trial the next in the cycle.
    pub(super) fn make_trial_next(&mut self, hot: bool) {
        self.cycle_pos = if hot { 0 } else { PROBES_PER_TRIAL };
    }

    /// Returns the back-off of a trial. It is shorter by the other probes of the cycle, because those have
    /// already delayed the trial.
    pub(super) fn trial_backoff(&self) -> u8 {
        self.backoff.saturating_sub(PROBES_PER_TRIAL)
    }

    /// Records a copy at `now`. Schedules another trial once the last trial is old and paid back.
    pub(super) fn retry(&mut self, now: u64, retry_after: u64) {
        if self.since == 0 {
            self.since = now;
        } else if self.droppable > 0 && now.saturating_sub(self.since) > retry_after {
            self.left = self.left.saturating_sub(self.droppable);
            // A short trial suffices: if it contradicts the choice, the next trial follows soon.
            (self.droppable, self.backoff) = (0, self.backoff.min(PROBES_PER_TRIAL));
        }
    }
}

/// Returns the number of ordinary copies before a probe or trial of `burst` copies.
pub(super) fn distance(burst: u32, backoff: u8) -> u32 {
    (PROBE_SPACING * burst) << backoff
}

/// Returns the number of normal copies after which the extra time of `copies` copies, each `slower` times as
/// long, is paid back.
pub(super) fn paid_back(slower: f32, copies: u32) -> u32 {
    ((slower.min(BELIEVED) - 1.0) * copies as f32 * PAID_BACK) as u32
}
