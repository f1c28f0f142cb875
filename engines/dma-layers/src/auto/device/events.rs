//! The device's events, and the timer of the check for a stall.

use std::time::Duration;

use dma_core::{QueueEvents, Result};

use super::{DeviceQueue, STALL_CHECKS};
use crate::auto::event::Events;

impl DeviceQueue {
    pub(in crate::auto) const fn events(&self) -> Option<&Events> {
        self.events.as_ref()
    }

    fn own_events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.queue.as_mut().and_then(|queue| queue.events())
    }

    pub(super) fn set_timer(&mut self, after: Duration) {
        if let Some(events) = &self.events {
            events.set_timer(after);
            self.timer_set = !after.is_zero();
        }
    }

    /// Arms the device's events, and the timer for the next check for a stall. Returns false if the device
    /// has completions to poll, or cannot signal them.
    pub(in crate::auto) fn arm(&mut self) -> Result<bool> {
        // A queue that is over and idle reports nothing. The queue that replaces it wakes the owner.
        let is_silent = self.is_over && self.in_flight() == 0;
        if !is_silent
            && let Some(own) = self.own_events()
            && !own.arm()?
        {
            return Ok(false);
        }
        if self.in_flight() > 0 {
            self.set_timer(self.shared.options.stall_timeout / STALL_CHECKS);
        }
        Ok(true)
    }

    pub(in crate::auto) fn disarm(&mut self) {
        if let Some(own) = self.own_events() {
            own.disarm();
        }
        if self.timer_set {
            self.set_timer(Duration::ZERO);
        }
    }
}
