//! [`Sharing`]: decides if cores share a copy of data in a cache.

use super::class_index::class_of;
use super::schedule::{BELIEVED, paid_back};
use super::trial::{Trial, TrialResult};

/// The first class with trials, 64 KiB. Most shorter copies are executed during submission anyway.
const ALONE_FIRST: usize = 2;
/// Number of shared bursts per trial, after one burst by one core. More than one, because the helpers have to
/// fetch the data first.
pub(super) const TRIAL_SHARED: u32 = 3;
/// Cost ratio of a copy that is published but executed by its owner alone, without waking a helper.
const PUBLISHED: f32 = 1.25;

/// The choice between one core and all cores, and the trial that checks it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sharing {
    /// Maximum length of a copy that fits a core's own cache.
    pub(super) alone_max: usize,
    /// Number of cores that share a copy.
    pub(super) cores: u32,
    /// True if the last trial showed that sharing is faster.
    pub(super) share_is_faster: bool,
    /// True if the last trial contradicted the current choice for the first time. The next trial decides.
    contradicted: bool,
    pub(super) trial: Trial,
    /// Number of doorbells in this trial before which picks were postponed.
    pub(super) postponed: u32,
    /// Number of doorbells in this trial that woke a helper.
    wake_ups: u32,
}

impl Sharing {
    pub(super) fn new(alone_max: usize) -> Self {
        Self { alone_max, cores: 1, ..Self::default() }
    }

    /// Returns true for lengths at which helper threads may or may not make a copy faster, depending on the
    /// cache.
    pub(super) fn may_be_alone(&self, index: usize) -> bool {
        self.cores > 1 && (ALONE_FIRST..=class_of(self.alone_max)).contains(&index)
    }

    pub(super) fn begin_trial(&mut self) {
        (self.trial, self.postponed, self.wake_ups) = (Trial::default(), 0, 0);
    }

    /// Decides by a complete trial. Returns `None` if the trial contradicts the current choice for the first
    /// time, because other users of a core may have caused this result temporarily.
    pub(super) fn judge(&mut self, were_alone: bool) -> Option<TrialResult> {
        let result = self.trial.verdict(!were_alone, self.cores);
        let changes = if were_alone { result.share } else { self.share_is_faster && !result.share };
        self.contradicted = changes && !self.contradicted;
        if self.contradicted {
            return None;
        }
        self.share_is_faster = result.share;
        Some(result)
    }

    /// Returns the number of copies that pay back a trial with bursts of `burst` copies. `alone` is true if
    /// one core makes the copies from now on.
    pub(super) fn owed(&self, result: &TrialResult, alone: bool, burst: u32) -> u32 {
        // Cost ratio of the rejected choice, its number of bursts, and the wake-ups that it needed.
        let (slower, bursts, wake_ups) = if alone {
            (result.shared / result.alone, TRIAL_SHARED, self.wake_ups)
        } else {
            (result.alone / result.shared, 1, 0)
        };
        paid_back(slower, bursts * burst) + paid_back(BELIEVED, wake_ups)
    }

    /// Counts a postponed pick of a trial with bursts of `burst` copies. Returns false if no more picks may
    /// be postponed: the number of doorbells with postponed picks is limited to the trial's number of shared
    /// copies.
    pub(super) fn postpone(&mut self, first: bool, sleeps: bool, burst: u32) -> bool {
        self.postponed += u32::from(first);
        self.wake_ups += u32::from(first && sleeps);
        self.postponed <= TRIAL_SHARED * burst
    }

    /// Ends a trial because helpers stay asleep. Returns the number of copies that pay back the trial.
    pub(super) fn end_without_helpers(&mut self) -> u32 {
        // Helpers that sleep this often do not help. Other users of a core may have caused this, so the
        // choice changes only the second time.
        let contradicted = self.share_is_faster && !self.contradicted;
        (self.share_is_faster, self.contradicted) = (contradicted, contradicted);
        paid_back(BELIEVED, self.wake_ups) + paid_back(PUBLISHED, self.postponed)
    }
}
