//! Times of loads, by pairs of events that record times.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::VecDeque;
use std::ffi::c_int;

use crate::device::Device;
use crate::driver::Handle;
use crate::error;
use crate::pieces::{Trial, Ways};
use crate::stream;

/// Maximum number of loads in flight that are timed.
const RUNNING_MAX: usize = 4;

/// The events before and after a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventPair {
    pub(crate) before: Handle,
    pub(crate) after: Handle,
}

/// The timed loads of a queue, in the order of their events.
#[derive(Debug)]
pub(crate) struct Timings {
    unused: Vec<EventPair>,
    running: VecDeque<(EventPair, Trial)>,
}

impl Timings {
    pub(crate) fn new() -> Self {
        Self { unused: Vec::with_capacity(RUNNING_MAX), running: VecDeque::with_capacity(RUNNING_MAX) }
    }

    /// Returns events for a load. `None` if too many loads are timed, or the driver makes no event.
    pub(crate) fn begin(&mut self, device: &Device) -> Option<EventPair> {
        if self.running.len() == RUNNING_MAX {
            return None;
        }
        if let Some(pair) = self.unused.pop() {
            return Some(pair);
        }
        let before = stream::timing_event(device).ok()?;
        match stream::timing_event(device) {
            Ok(after) => Some(EventPair { before, after }),
            Err(_) => {
                stream::destroy(device, before);
                None
            }
        }
    }

    /// Adds a load whose events were recorded.
    pub(crate) fn run(&mut self, pair: EventPair, trial: Trial) {
        self.running.push_back((pair, trial));
    }

    /// Takes back events that were not recorded.
    pub(crate) fn cancel(&mut self, pair: EventPair) {
        self.unused.push(pair);
    }

    /// Reports the times of loads that have ended.
    #[inline]
    pub(crate) fn report(&mut self, ways: &Ways) {
        while let Some((pair, trial)) = self.running.front() {
            let time = elapsed(&ways.device, *pair);
            if time == Err(error::NOT_READY) {
                return;
            }
            // A load always takes time, also if the events have the same one.
            ways.learn(*trial, time.map_or(0, |nanoseconds| nanoseconds.max(1)));
            self.unused.push(*pair);
            self.running.pop_front();
        }
    }

    /// Ends the loads that are timed without a time. Leaks their events.
    pub(crate) fn abandon(&mut self, ways: &Ways) {
        for (_, trial) in self.running.drain(..) {
            ways.learn(trial, 0);
        }
    }

    /// Destroys all events. No load is in flight.
    pub(crate) fn close(&mut self, ways: &Ways) {
        self.report(ways);
        self.abandon(ways);
        for EventPair { before, after } in self.unused.drain(..) {
            stream::destroy(&ways.device, before);
            stream::destroy(&ways.device, after);
        }
    }
}

/// Returns the nanoseconds between two events.
fn elapsed(device: &Device, pair: EventPair) -> Result<u64, c_int> {
    let Some(call) = device.driver.cuEventElapsedTime else { return Err(error::NOT_SUPPORTED) };
    let mut milliseconds = 0.0;
    // SAFETY: the events exist, and the call writes the time to a local variable.
    device.call(|_| unsafe { call(&raw mut milliseconds, pair.before, pair.after) })?;
    Ok((f64::from(milliseconds) * 1e6) as u64)
}
