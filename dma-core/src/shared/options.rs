//! [`SharedQueueOptions`].

use crate::{Error, ErrorKind, QueueOptions, Result};

/// Options of a shared queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedQueueOptions {
    /// Number of lanes, from 1 (the default) to 65,535. Each lane is a device queue with its own thread.
    /// Opening the queue fails if the device has fewer channels.
    pub lanes: usize,
    /// Options of each device queue. `depth` is the depth of one lane.
    pub queue: QueueOptions,
    /// The cores that the lanes' threads may run on. Empty, the default, means all cores.
    pub cores: Vec<usize>,
}

impl Default for SharedQueueOptions {
    fn default() -> Self {
        Self { lanes: 1, queue: QueueOptions::default(), cores: Vec::new() }
    }
}

impl SharedQueueOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    crate::contract::setters::setters! {
        /// Sets the number of lanes. Each lane is a device queue with its own thread.
        with_lanes(lanes: usize);
        /// Sets the options of each device queue.
        with_queue(queue: QueueOptions);
    }

    /// Checks the number of lanes.
    pub(crate) fn check(&self) -> Result<()> {
        let error = match self.lanes {
            0 => Error::new(ErrorKind::InvalidArgument, "0 lanes").with_hint("ask for at least 1 lane"),
            lanes if u16::try_from(lanes).is_err() => {
                Error::new(ErrorKind::OutOfRange, format!("{lanes} lanes"))
                    .with_numbers(lanes as u64, u16::MAX.into())
                    .with_hint("ask for fewer lanes: each lane has a device queue and a thread")
            }
            _ => return Ok(()),
        };
        Err(error.with_operation("open shared queue"))
    }

    /// Sets the cores that the lanes' threads may run on, such as the cores of the device's
    /// [node](crate::NumaNodes::cores). Cores that the process may not use are ignored. Opening the queue
    /// fails if no other cores remain.
    #[must_use]
    pub fn with_cores(mut self, cores: impl Into<Vec<usize>>) -> Self {
        self.cores = cores.into();
        self
    }
}
