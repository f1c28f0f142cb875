//! Engines that must not be called again: they panicked, lost their device, or belong to the parent process.
//! Their memory is leaked, because the device may still write to it.

use super::device::CollectsLog;
use super::{BUSY, LogEvent, Planner, error};
use crate::{Error, guarded};

impl Planner {
    /// Returns the error for a submission, if the queue is closed, its engine has panicked, or it belongs to
    /// the parent of this process.
    pub(crate) fn refusal(&self) -> Option<Error> {
        let refuses = self.is_poisoned() || self.is_closed();
        refuses.then(|| self.why_abandoned().unwrap_or_else(error::closed))
    }

    /// Returns whether the engine has panicked, its device is lost, or it belongs to the parent of this
    /// process. If so, the layer above must [`abandon`](Self::abandon) the engine.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.device.guard.is_poisoned()
    }

    /// Returns the error of a forked process or of a lost device.
    pub(crate) fn why_abandoned(&self) -> Option<Error> {
        if self.is_parents() { Some(error::forked()) } else { self.lost() }
    }

    /// Returns whether the device is lost. The layer above must [`abandon`](Self::abandon) its engine.
    pub(crate) const fn is_lost(&self) -> bool {
        self.device.lost.is_some()
    }

    /// Asks the engine whether its device is lost. Call this after a poll that reported nothing.
    pub(crate) fn check_lost(&mut self) {
        if !self.is_poisoned() {
            self.device.check_lost(&mut self.outcomes.log_events);
        }
    }

    /// Returns the error of a lost device.
    pub(crate) fn lost(&self) -> Option<Error> {
        self.device.lost.as_ref().map(error::lost)
    }

    /// Abandons the device. Operations that have not ended will never end, and their holders leak the
    /// operands.
    pub(crate) fn abandon(&mut self) {
        self.inline.end();
        self.alone = BUSY;
        self.outcomes.counters.abandoned += self.open_operations();
        if self.is_closed() {
            return;
        }
        if !self.device.is_idle() {
            // The device may still write to this memory. Leak it first, because the engine may panic.
            std::mem::forget(self.bounce.take());
            if !self.is_parents() {
                self.outcomes.log_events.push(LogEvent::Abandoned { descriptors: self.device.in_flight });
            }
        }
        self.device.abandon(&mut self.outcomes.log_events);
    }

    /// Abandons the device as [`abandon`](Self::abandon) does, and catches and logs a panic of the engine.
    pub(crate) fn abandon_guarded(&mut self) {
        let mut events = Vec::new();
        let logs = CollectsLog::begin(&mut events);
        guarded("the engine", || self.abandon());
        drop(logs);
        self.outcomes.log_events.append(&mut events);
    }

    /// Adds a log event for the panic or the fork, once. The layer above logs it. For a lost device, the poll
    /// that detected it has added the event.
    #[cold]
    pub(super) fn report_poisoned(&mut self) {
        if self.is_parents() {
            if !self.is_closed() {
                self.outcomes.log_events.push(LogEvent::Forked);
            }
        } else if self.device.lost.is_none()
            && !self.outcomes.log_events.iter().any(|event| matches!(event, LogEvent::Panicked))
        {
            self.outcomes.log_events.push(LogEvent::Panicked);
        }
    }
}
