//! [`StallRecord`]: the hung device that a lane's thread has detected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time since which a lane's device has had work and completed none of it, if that is too long. The
/// lane's thread writes it, and others read it.
///
/// It is bound to a count of reports, so that the next completion invalidates it.
#[derive(Debug)]
pub(super) struct StallRecord {
    /// The lane's count of reports that the record belongs to, or `NONE`.
    reports: AtomicU64,
    since: Mutex<Option<Instant>>,
}

impl StallRecord {
    const NONE: u64 = u64::MAX;

    pub(super) const fn new() -> Self {
        Self { reports: AtomicU64::new(Self::NONE), since: Mutex::new(None) }
    }

    /// Records that nothing has been reported beyond `reports` since `since`. Returns whether that is new.
    pub(super) fn begin(&self, reports: u64, since: Option<Instant>) -> bool {
        if self.reports.load(Ordering::Relaxed) == reports {
            return false;
        }
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = since;
        self.reports.store(reports, Ordering::Relaxed);
        true
    }

    /// Clears the record: nothing is in flight.
    pub(super) fn end(&self) {
        self.reports.store(Self::NONE, Ordering::Relaxed);
    }

    /// Returns the duration of the stall, if the lane still counts `reports`.
    pub(super) fn lasts(&self, reports: u64) -> Option<Duration> {
        if self.reports.load(Ordering::Relaxed) != reports {
            return None;
        }
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| since.elapsed())
    }
}
