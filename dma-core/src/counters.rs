//! [`Counters`]: what a queue has done so far.

/// What a queue has done so far, and has in flight now. Every accepted operation is in exactly one of `completed`, `failed`,
/// `aborted`, `abandoned` and `in_flight`; an operation of a batch counts by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Operations accepted.
    pub submitted: u64,
    /// Operations done.
    pub completed: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Operations that a device reset, or closing the queue, ended; safe to submit again, to another queue if this one is closed.
    pub aborted: u64,
    /// Operations that had not ended when the queue was closed: the device may still be at them, so their memory is never reused.
    pub abandoned: u64,
    /// Operations in flight.
    pub in_flight: u64,
    /// Bytes written by operations and batches that completed without a failure.
    pub bytes: u64,
    /// How often an operation was handed back because the queue was full.
    pub full: u64,
    /// Descriptors handed to the device: more than operations where they were cut, none for those of zero length.
    pub descriptors: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// Polls of the device.
    pub polls: u64,
    /// Device resets that the queue recovered from.
    pub resets: u64,
}

impl Counters {
    /// The sum of two queues' counters.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            submitted: self.submitted + other.submitted,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            aborted: self.aborted + other.aborted,
            abandoned: self.abandoned + other.abandoned,
            in_flight: self.in_flight + other.in_flight,
            bytes: self.bytes + other.bytes,
            full: self.full + other.full,
            descriptors: self.descriptors + other.descriptors,
            doorbells: self.doorbells + other.doorbells,
            polls: self.polls + other.polls,
            resets: self.resets + other.resets,
        }
    }
}
