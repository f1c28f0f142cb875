//! Queue options.

use std::time::Duration;

use crate::{Error, ErrorKind, Limits, Result};

/// Time that a stopped device has to report its descriptors: 1 s, which is enough for software devices on a
/// busy machine. The time begins when [`RawQueue::stop`](crate::RawQueue::stop) returns, and is extended
/// while the device reports descriptors. Memory of descriptors that the device has not reported by then is
/// leaked, because the device may still write to it. Time in which the waiting thread does not run does not
/// count, because the engine's threads may not run either.
///
/// [`Queue`](crate::Queue) and [`SharedQueue`](crate::SharedQueue) wait this long after they have aborted
/// their operations. Engines wait equally long for a device when a queue is dropped.
pub const STOP_GRACE: Duration = Duration::from_secs(1);

/// Queue options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueOptions {
    /// Maximum number of operations in flight. 0, the default, means the engine's
    /// [`Limits::default_queue_depth`].
    pub depth: usize,
    /// Cache hint. Default [`CacheHint::Auto`].
    pub hint: CacheHint,
    /// Time after which a device that completes none of its work on this queue, or lane, counts as stalled.
    /// Default 30 s. The time is measured by the host's clock, even for a simulated device with its own
    /// clock.
    ///
    /// When a device has stalled, a blocking wait without a deadline and an await fail with `TimedOut`, and
    /// [`Queue::stalled`](crate::Queue::stalled) and [`SharedQueue::stalled`](crate::SharedQueue::stalled)
    /// report the stall. A submission to a full queue fails with `TimedOut` instead of `QueueFull`. All of
    /// these, except the blocking wait, count only time during which the queue was polled. The threads of a
    /// [`SharedQueue`](crate::SharedQueue) poll it. A [`Queue`](crate::Queue) is polled by its awaited
    /// transfers, by [`Driver::run`](crate::Driver::run), and by its owner.
    ///
    /// With 0, opening the queue fails with `InvalidArgument`. For no timeout, set `Duration::MAX`.
    ///
    /// If the engine detects that its device is lost, the operations in flight end at once, with
    /// `DeviceLost`, and their memory is leaked.
    ///
    /// The timeout does not end operations. An operation whose wait or await has failed, or whose transfer
    /// was dropped, keeps its memory and its slot until the device completes it or the queue is closed.
    pub stall_timeout: Duration,
    /// Maximum time that dropping the queue waits for operations in flight. Default 5 s. Operations that have
    /// not ended by then are aborted, which takes up to [`STOP_GRACE`] more.
    pub drop_timeout: Duration,
    /// Maximum time that an awaited operation waits for other operations, to share a doorbell with them.
    /// Default: 50 us. With 0, every operation rings its own doorbell. The delay is at most half of
    /// `stall_timeout`.
    ///
    /// An operation that is the only one of its queue does not wait. (An operation counts until its transfer
    /// returns the operands or is dropped.) Waiting operations are submitted together when one of these
    /// conditions is met: every runnable task has submitted its operation, the number of waiting operations
    /// equals the number in flight, or 32 operations wait. The doorbell is not delayed for threads that block
    /// in a wait, for [`Queue::flush`](crate::Queue::flush) or for tasks of a queue with a
    /// [`Driver`](crate::Driver). On an engine whose doorbell is free
    /// ([`CPU_COPIES`](crate::Capabilities::CPU_COPIES)), no operation waits.
    pub doorbell_delay: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            depth: 0,
            hint: CacheHint::Auto,
            stall_timeout: Duration::from_secs(30),
            drop_timeout: Duration::from_secs(5),
            doorbell_delay: Duration::from_micros(50),
        }
    }
}

impl QueueOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    crate::contract::setters::setters! {
        /// Sets the maximum number of operations in flight; 0 for the engine's default.
        with_depth(depth: usize);
    }

    /// Returns the queue depth on an engine with these limits. For a depth of 0, this is
    /// [`Limits::default_queue_depth`].
    ///
    /// # Errors
    ///
    /// `OutOfRange` for a depth beyond [`Limits::max_queue_depth`].
    pub fn depth_on(&self, limits: &Limits) -> Result<usize> {
        if self.depth > limits.max_queue_depth {
            return Err(Error::new(ErrorKind::OutOfRange, format!("a depth of {}", self.depth))
                .with_numbers(self.depth as u64, limits.max_queue_depth as u64)
                .with_hint("open a queue with at most the allowed depth, or open several queues"));
        }
        Ok(if self.depth == 0 { limits.default_queue_depth } else { self.depth })
    }

    /// Checks the options that do not depend on the engine.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stall_timeout.is_zero() {
            return Err(Error::new(ErrorKind::InvalidArgument, "`stall_timeout` is 0")
                .with_hint("set the time after which a device that completes nothing counts as stalled, such as 30 s; `Duration::MAX` for no timeout"));
        }
        Ok(())
    }

    crate::contract::setters::setters! {
        /// Sets the cache hint.
        with_hint(hint: CacheHint);
        /// Sets [`stall_timeout`](Self::stall_timeout).
        with_stall_timeout(stall_timeout: Duration);
        /// Sets [`drop_timeout`](Self::drop_timeout).
        with_drop_timeout(drop_timeout: Duration);
        /// Sets [`doorbell_delay`](Self::doorbell_delay).
        with_doorbell_delay(doorbell_delay: Duration);
    }
}

/// A hint to the engine: whether a queue's data is in the CPU's caches. Engines that bypass the caches ignore
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheHint {
    /// Unknown: the engine decides by its own measurements.
    #[default]
    Auto,
    /// The data was used recently or will be read soon: keep the data in the caches.
    Hot,
    /// The data is used once: bypass the caches.
    Cold,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DmaEngineExt, SharedQueueOptions, reference::doc_engine};

    #[test]
    fn a_stall_timeout_of_zero_is_refused() {
        let (engine, options) = (doc_engine(), QueueOptions::new().with_stall_timeout(Duration::ZERO));
        let shared = SharedQueueOptions::new().with_queue(options.clone());
        for error in [
            engine.open_queue(&options).expect_err("refused"),
            engine.open_shared_queue(&shared).expect_err("refused"),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains("`stall_timeout` is 0; set the time"), "{error}");
        }
    }
}
