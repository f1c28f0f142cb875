//! [`Counters`]: counts of a queue's work.

/// Counts of a queue's operations so far. Every accepted operation is in exactly one of `completed`,
/// `failed`, `aborted`, `abandoned` and `in_flight`; operations of a batch count one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Operations accepted.
    pub submitted: u64,
    /// Operations done.
    pub completed: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Operations that a device reset or a close ended; safe to submit again.
    pub aborted: u64,
    /// Operations that had not ended when the queue was closed. The device may still access their memory,
    /// which is never reused.
    pub abandoned: u64,
    /// Operations in flight.
    pub in_flight: u64,
    /// Bytes written by operations and batches that completed without a failure, at most [`u64::MAX`].
    pub bytes: u64,
    /// Operations handed back because the queue was full.
    pub full: u64,
    /// Descriptors handed to the device: more than operations if they were cut, none for those of zero
    /// length.
    pub descriptors: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// Polls of the device.
    pub polls: u64,
    /// Device resets that the queue recovered from.
    pub resets: u64,
}

impl Counters {
    /// Adds two queues' counters, up to [`u64::MAX`].
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            submitted: self.submitted.saturating_add(other.submitted),
            completed: self.completed.saturating_add(other.completed),
            failed: self.failed.saturating_add(other.failed),
            aborted: self.aborted.saturating_add(other.aborted),
            abandoned: self.abandoned.saturating_add(other.abandoned),
            in_flight: self.in_flight.saturating_add(other.in_flight),
            bytes: self.bytes.saturating_add(other.bytes),
            full: self.full.saturating_add(other.full),
            descriptors: self.descriptors.saturating_add(other.descriptors),
            doorbells: self.doorbells.saturating_add(other.doorbells),
            polls: self.polls.saturating_add(other.polls),
            resets: self.resets.saturating_add(other.resets),
        }
    }
}
