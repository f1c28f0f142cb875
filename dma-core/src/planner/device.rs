//! [`Device`]: the raw queue, with a guard against panics of the engine and against forks.
#![expect(unsafe_code, reason = "submits descriptors to the raw queue")]

use std::fmt;
use std::mem::ManuallyDrop;

use super::LogEvent;
use crate::deferred_log::{self, OuterCall};
use crate::{Completion, Descriptor, Error, NativeError, QueueEvents, QueueStats, RawQueue, Result};
use dma_process::ForkMark;

/// Maximum number of completions of one engine call.
pub(super) const MAX_COMPLETIONS: usize = 128;

/// The raw queue, with the counts of its descriptors. The methods that call the engine may panic if the
/// engine does. Before each of them, the planner checks [`EngineGuard::is_poisoned`].
pub(super) struct Device {
    /// The raw queue; `None` after the close.
    raw: Option<Box<dyn RawQueue>>,
    pub(super) guard: EngineGuard,
    backend: &'static str,
    /// True after the device was stopped, because the queue is closing.
    pub(super) stopped: bool,
    /// Number of descriptors in flight.
    pub(super) in_flight: usize,
    /// Number of descriptors that were accepted since the last doorbell.
    unrung: usize,
    /// True if a fence was submitted, and descriptors have been in flight at all times since then.
    pub(super) fence_in_flight: bool,
    /// Number of descriptors that the engine has accepted.
    pub(super) descriptors: u64,
    /// Number of polls.
    pub(super) polls: u64,
    /// The error of a lost device. The engine is then not called again, except to abandon it.
    pub(super) lost: Option<Error>,
    /// The engine's own counts when the queue was closed.
    last_stats: QueueStats,
    pub(super) reports: Box<[Completion; MAX_COMPLETIONS]>,
}

/// The result of [`Device::run_one`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The device has no room, or the queue is closed.
    Full,
    /// The device has accepted the descriptor, and has not reported it.
    Accepted,
    /// The device has accepted and reported the descriptor.
    Reported,
}

/// Detects that the engine must not be called: it has panicked, its device is lost, or it belongs to the
/// parent of this process.
pub(super) struct EngineGuard {
    /// The process that opened the queue.
    process: ForkMark,
    /// True during a call into the engine. If it is true before another call, the engine has panicked or its
    /// device is lost. After a panic the engine's state is unknown, so it is not called again.
    in_call: bool,
}

impl EngineGuard {
    /// Returns whether the queue belongs to the parent of this forked process.
    #[inline]
    pub(super) fn is_parents(&self) -> bool {
        self.process.is_child()
    }

    /// Returns whether the engine has panicked, its device is lost, or it belongs to the parent of this
    /// process.
    #[inline]
    pub(super) fn is_poisoned(&self) -> bool {
        self.in_call || self.is_parents()
    }

    /// Calls the engine, and appends the log events of its queue to `log`. If the engine panics, it is
    /// poisoned.
    #[inline]
    fn call<R>(&mut self, log: &mut Vec<LogEvent>, engine: impl FnOnce() -> R) -> R {
        let logs = CollectsLog::begin(log);
        let result = self.call_executor(engine);
        drop(logs);
        result
    }

    /// Calls the engine's [`InlineExecutor`](crate::InlineExecutor), which does not log. If it panics, the
    /// engine is poisoned.
    #[inline]
    pub(super) fn call_executor<R>(&mut self, executor: impl FnOnce() -> R) -> R {
        self.in_call = true;
        let result = executor();
        self.in_call = false;
        result
    }
}

/// A call of the engine, in which events are deferred. The drop appends them to the list, also if the engine
/// has panicked.
pub(super) struct CollectsLog<'a> {
    log: &'a mut Vec<LogEvent>,
    outer: OuterCall,
}

impl<'a> CollectsLog<'a> {
    #[inline]
    pub(super) fn begin(log: &'a mut Vec<LogEvent>) -> Self {
        Self { log, outer: deferred_log::begin() }
    }
}

impl Drop for CollectsLog<'_> {
    #[inline]
    fn drop(&mut self) {
        if deferred_log::end(&self.outer) {
            self.log.extend(deferred_log::take_events().into_iter().map(LogEvent::Engine));
        }
    }
}

impl Device {
    pub(super) fn new(raw: Box<dyn RawQueue>, backend: &'static str) -> Self {
        Self {
            raw: Some(raw),
            guard: EngineGuard { process: ForkMark::new(), in_call: false },
            backend,
            stopped: false,
            in_flight: 0,
            unrung: 0,
            fence_in_flight: false,
            descriptors: 0,
            polls: 0,
            lost: None,
            last_stats: QueueStats::default(),
            reports: Box::new([Completion::done(0); MAX_COMPLETIONS]),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.raw.is_none()
    }

    /// Returns whether the device can no longer access memory of operations.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && !self.guard.is_poisoned()
    }

    /// Returns whether the device has accepted descriptors since the last doorbell.
    pub(super) const fn doorbell_pending(&self) -> bool {
        self.unrung > 0
    }

    /// Returns whether descriptors are in flight whose doorbell has rung. May return false while a device
    /// that needs no doorbell reports later descriptors.
    pub(super) const fn has_work(&self) -> bool {
        self.in_flight > self.unrung
    }

    /// Submits descriptors, without a doorbell. Returns the number of accepted descriptors, which is 0 if the
    /// device has no room or the queue is closed.
    ///
    /// # Errors
    ///
    /// The engine's reason to refuse the first descriptor.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`RawQueue::submit`].
    #[inline]
    pub(super) unsafe fn submit(
        &mut self,
        descriptors: &[Descriptor<'_>],
        log: &mut Vec<LogEvent>,
    ) -> Result<usize> {
        let Some(raw) = &mut self.raw else { return Ok(0) };
        // SAFETY: this method and the engine's method have the same requirements, and the caller meets them.
        let accepted = self.guard.call(log, || unsafe { raw.submit(descriptors) })?;
        self.in_flight += accepted;
        self.descriptors += accepted as u64;
        self.unrung += accepted;
        Ok(accepted)
    }

    /// Submits one descriptor to an idle device, rings the doorbell, and polls once. The completion is then
    /// the first of `reports`.
    ///
    /// # Errors
    ///
    /// The engine's reason to refuse the descriptor.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`RawQueue::submit`].
    #[inline]
    pub(super) unsafe fn run_one(
        &mut self,
        descriptor: &[Descriptor<'_>],
        log: &mut Vec<LogEvent>,
    ) -> Result<Progress> {
        let Some(raw) = &mut self.raw else { return Ok(Progress::Full) };
        // Without `EngineGuard::call`, no result of the calls passes through memory.
        let logs = CollectsLog::begin(log);
        self.guard.in_call = true;
        // SAFETY: this method and the engine's method have the same requirements, and the caller meets them.
        match unsafe { raw.submit(descriptor) } {
            Ok(1..) => {}
            Ok(0) => {
                self.guard.in_call = false;
                return Ok(Progress::Full);
            }
            Err(error) => {
                self.guard.in_call = false;
                return Err(error);
            }
        }
        // If the engine panics from here on, the device may have the descriptor.
        self.in_flight = 1;
        self.descriptors += 1;
        raw.flush();
        // There is room for two, so that an engine which reports the descriptor twice is found out.
        let reported = raw.poll(&mut self.reports[..2]);
        self.guard.in_call = false;
        drop(logs);
        self.polls += 1;
        match reported {
            1 => {
                self.in_flight = 0;
                Ok(Progress::Reported)
            }
            0 => Ok(Progress::Accepted),
            _ => self.miscounted(format_args!("more completions than the 1 descriptor in flight")),
        }
    }

    /// Submits one descriptor, and records its fence. Returns whether the device has accepted it.
    ///
    /// # Errors
    ///
    /// The engine's reason to refuse the descriptor.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`RawQueue::submit`].
    pub(super) unsafe fn submit_one(
        &mut self,
        descriptor: Descriptor<'_>,
        log: &mut Vec<LogEvent>,
    ) -> Result<bool> {
        // SAFETY: this method and the other method have the same requirements, and the caller meets them.
        let accepted = unsafe { self.submit(&[descriptor], log) }? > 0;
        self.fence_in_flight |= accepted && descriptor.fence();
        Ok(accepted)
    }

    /// Rings the doorbell if the device has descriptors without a doorbell.
    #[inline]
    pub(super) fn ring(&mut self, log: &mut Vec<LogEvent>) {
        if self.unrung > 0
            && let Some(raw) = &mut self.raw
        {
            self.guard.call(log, || raw.flush());
            self.unrung = 0;
        }
    }

    /// Polls the device once. Returns the number of completions, which are at the beginning of `reports`.
    #[inline]
    pub(super) fn poll(&mut self, log: &mut Vec<LogEvent>) -> usize {
        let Some(raw) = &mut self.raw else { return 0 };
        let n = self.guard.call(log, || raw.poll(&mut self.reports[..]));
        self.polls += 1;
        if n > self.in_flight.min(MAX_COMPLETIONS) {
            let has = self.in_flight;
            self.miscounted(format_args!("{n} completions, but only {has} descriptors are in flight"));
        }
        self.in_flight -= n;
        n
    }

    /// After a poll that reported nothing, asks the engine whether its device is lost. If so, poisons the
    /// engine, and appends an event to `log`.
    #[inline(never)]
    pub(super) fn check_lost(&mut self, log: &mut Vec<LogEvent>) {
        let Some(raw) = &self.raw else { return };
        if let Some(error) = self.guard.call_executor(|| raw.lost()) {
            log.push(LogEvent::Lost { error: error.to_string() });
            self.lost = Some(error);
            self.guard.in_call = true;
        }
    }

    /// Stops the device, which then reports its descriptors as aborted.
    pub(super) fn stop(&mut self, log: &mut Vec<LogEvent>) {
        self.stopped = true;
        if let Some(raw) = &mut self.raw {
            self.guard.call(log, || raw.stop());
        }
    }

    pub(super) fn explain(&self, native: i32) -> NativeError {
        match &self.raw {
            Some(raw) => raw.explain(native),
            None => NativeError { code: native, name: "".into(), description: "".into() },
        }
    }

    /// Returns the engine's own counts.
    pub(super) fn stats(&self) -> QueueStats {
        self.raw.as_ref().map_or(self.last_stats, |raw| raw.stats())
    }

    /// Calls `act` with the queue's events, if the engine has events and the queue is open.
    pub(super) fn events<R>(
        &mut self,
        log: &mut Vec<LogEvent>,
        act: impl FnOnce(&mut dyn QueueEvents) -> R,
    ) -> Option<R> {
        // A forked child shares the event with its parent, which it must not disarm.
        if self.guard.is_parents() {
            return None;
        }
        let raw = self.raw.as_mut()?;
        let _logs = CollectsLog::begin(log);
        raw.events().map(act)
    }

    /// Panics, because the engine reported a descriptor twice or a descriptor that is not in flight. The
    /// engine is not called again. Not all such reports are detected, because the slot may already belong to
    /// another operation. Therefore `RawQueue` is unsafe to implement.
    #[cold]
    pub(super) fn miscounted(&mut self, what: fmt::Arguments<'_>) -> ! {
        let backend = self.backend;
        self.guard.call_executor(|| {
            panic!(
                "engine `{backend}` breaks the contract of `RawQueue`, to report every descriptor once: it reports {what}; its queue is abandoned"
            )
        })
    }

    /// Closes the queue. Drops the raw queue if the device is idle; otherwise leaks it.
    pub(super) fn abandon(&mut self, log: &mut Vec<LogEvent>) {
        let is_idle = self.is_idle();
        let Some(raw) = self.raw.take() else { return };
        // If the engine panics below, the raw queue must not be dropped.
        let mut raw = ManuallyDrop::new(raw);
        if self.guard.is_parents() {
            // The device is the parent's.
            return;
        }
        self.guard.in_call = false;
        let _logs = CollectsLog::begin(log);
        self.last_stats = raw.stats();
        if is_idle {
            drop(ManuallyDrop::into_inner(raw));
        } else {
            raw.abandoned();
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("raw", &self.raw).finish_non_exhaustive()
    }
}
