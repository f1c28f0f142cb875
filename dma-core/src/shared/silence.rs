//! [`Silence`]: what a lane's thread has found out about a device that completes nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Since when a lane's device has had work and completed none of it, if that is too long. Kept by the lane's thread, which looks at the device all the
/// time; others only read it.
///
/// It names the count of reports that it is about, so that a device which reports again ends it without a word.
#[derive(Debug)]
pub(super) struct Silence {
    /// The lane's count of reports at which it stays, or `NONE`.
    reports: AtomicU64,
    since: Mutex<Option<Instant>>,
}

impl Silence {
    const NONE: u64 = u64::MAX;

    pub(super) const fn new() -> Self {
        Self { reports: AtomicU64::new(Self::NONE), since: Mutex::new(None) }
    }

    /// Notes that nothing has been reported beyond `reports` since `since`. Returns whether that is news.
    pub(super) fn begin(&self, reports: u64, since: Option<Instant>) -> bool {
        if self.reports.load(Ordering::Relaxed) == reports {
            return false;
        }
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = since;
        self.reports.store(reports, Ordering::Relaxed);
        true
    }

    /// Nothing is in flight any more.
    pub(super) fn end(&self) {
        self.reports.store(Self::NONE, Ordering::Relaxed);
    }

    /// For how long it has lasted, if the lane still counts `reports`.
    pub(super) fn lasts(&self, reports: u64) -> Option<Duration> {
        if self.reports.load(Ordering::Relaxed) != reports {
            return None;
        }
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| since.elapsed())
    }
}
