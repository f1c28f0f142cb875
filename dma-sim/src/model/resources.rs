//! [`Resources`]: the state of a device that timed and instant channels use.

use std::fmt;

use super::memory::MemoryTable;
use super::profile::Profile;
use super::remote_memory::BounceBuffer;
use super::time::Time;
use super::trace::Trace;

/// The state that channels of both kinds use.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) profile: Profile,
    pub(super) now: Time,
    pub(super) memory: MemoryTable,
    pub(super) bounce: BounceBuffer,
    pub(super) trace: Trace,
}

impl Resources {
    /// Records the event that `what` writes, for a channel or for the device.
    #[inline]
    pub(super) fn record(&mut self, channel: Option<u32>, what: impl FnOnce(&mut String) -> fmt::Result) {
        self.trace.record(self.now, channel, what);
    }
}
