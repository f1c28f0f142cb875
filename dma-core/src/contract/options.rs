//! Queue options.

use std::time::Duration;

use crate::Limits;

/// Queue options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueOptions {
    /// Operations in flight at most; 0 (the default) for the engine's [`Limits::default_queue_depth`].
    pub depth: usize,
    /// Cache hint. Default [`CacheHint::Auto`].
    pub hint: CacheHint,
    /// Time that the device may have work on this queue, or lane, and complete none of it before it counts as
    /// hanging. Default 30 s, of the computer's clock, also on devices with a clock of their own.
    ///
    /// Then a blocking wait without a deadline of its own ends with `TimedOut`. A submission that finds the
    /// queue full is refused with `TimedOut` rather than `QueueFull`, if the queue was polled all the time:
    /// by the threads of a [`SharedQueue`](crate::SharedQueue), or by the owner of a [`Queue`](crate::Queue).
    /// [`SharedQueue::stalled`](crate::SharedQueue::stalled) reports it, too.
    ///
    /// It ends no operation: one that is awaited, or whose transfer was dropped, goes on until the device
    /// completes it or the queue is closed.
    pub stall_timeout: Duration,
    /// Time that dropping the queue waits for operations in flight. Default 5 s. The rest is aborted then,
    /// which takes up to a second more.
    pub drop_timeout: Duration,
    /// Longest time that an awaited operation waits for others, so that they share a doorbell. Default 50 us;
    /// 0 rings one for each. At most half of `stall_timeout` counts.
    ///
    /// An operation that is the only one of its queue does not wait; transfers that have ended count as long
    /// as they are held. Others are handed over together as soon as every task that can run has submitted its
    /// own, as many wait as are in flight, or 32 wait. Threads that block in a wait ring at once, and so do
    /// [`Queue::flush`](crate::Queue::flush) and tasks of a queue with a [`Driver`](crate::Driver). On an
    /// engine whose doorbell costs nothing ([`CPU_COPIES`](crate::Capabilities::CPU_COPIES)), none waits.
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
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    crate::contract::setters::setters! {
        /// Sets the most operations in flight; 0 for the engine's default.
        with_depth(depth: usize);
    }

    /// Returns the depth on an engine with these limits: [`Limits::default_queue_depth`] for 0.
    #[must_use]
    pub const fn depth_on(&self, limits: &Limits) -> usize {
        if self.depth == 0 { limits.default_queue_depth } else { self.depth }
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

/// A hint whether a queue's data is in the CPU's caches. Engines that bypass them ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheHint {
    /// Unknown: the engine finds out from its own timings.
    #[default]
    Auto,
    /// Read or written shortly before, or to be read soon: keep it in the caches.
    Hot,
    /// Used once: keep it out of the caches.
    Cold,
}
