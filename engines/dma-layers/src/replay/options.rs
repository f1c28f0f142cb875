//! [`ReplayOptions`]: the options of a replay.

use std::time::Duration;

/// The options of a [`replay`](super::replay).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayOptions {
    /// Number of timed runs, at least 1. The result is the run with the median time. Default: 3.
    pub repetitions: u32,
    /// Maximum memory to allocate, in bytes. Default: only the system limits it.
    pub memory: u64,
    /// An engine that has work and completes nothing for this time counts as hanging. Default: 10 s.
    pub stall: Duration,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { repetitions: 3, memory: u64::MAX, stall: Duration::from_secs(10) }
    }
}

impl ReplayOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    dma_core::setters! {
        with_repetitions(repetitions: u32);
        with_memory(memory: u64);
        with_stall(stall: Duration);
    }
}
