//! [`AutoOptions`]: the options of an engine.

use std::time::Duration;

/// Consecutive failures after which a queue stops using its device for a time.
pub const FAILURES: u32 = 4;

/// The way to choose between the engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prefer {
    /// The engine that is faster by measured times.
    #[default]
    Measured,
    /// The device, for every copy that it can execute.
    Device,
}

/// The options of an [`AutoEngine`](super::AutoEngine).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AutoOptions {
    /// The way to choose between the engines. Default [`Prefer::Measured`].
    pub prefer: Prefer,
    /// If a device with work of a queue completes nothing for this time, the queue stops using the device.
    /// Only time in which the queue is polled counts. Default: 400 ms.
    pub stall_timeout: Duration,
}

impl Default for AutoOptions {
    fn default() -> Self {
        Self { prefer: Prefer::Measured, stall_timeout: Duration::from_millis(400) }
    }
}

impl AutoOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    dma_core::setters! {
        with_prefer(prefer: Prefer);
        with_stall_timeout(stall_timeout: Duration);
    }
}
