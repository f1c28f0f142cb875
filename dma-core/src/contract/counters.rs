//! [`Counters`]: counters of a queue's operations.

use std::fmt;
use std::ops::Sub;

/// Counters of a queue's operations so far. Every accepted operation is counted in exactly one of
/// `completed`, `failed`, `aborted`, `abandoned` and `in_flight`. Each operation of a batch is counted
/// separately.
///
/// `Display` writes the counters that are not 0, with their names. Subtract an earlier reading from a later
/// one to get the counts of the time between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Counters {
    /// Operations accepted.
    pub submitted: u64,
    /// Operations done.
    pub completed: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Operations that a device reset or a close ended. Submitting them again is safe.
    pub aborted: u64,
    /// Operations that had not ended when the queue was closed. The memory of these operations is never
    /// reused, because the device may still access it.
    pub abandoned: u64,
    /// Operations in flight.
    pub in_flight: u64,
    /// Bytes written by operations and batches that completed without a failure, at most [`u64::MAX`].
    pub bytes: u64,
    /// Operations handed back because the queue was full.
    pub full: u64,
    /// Descriptors submitted to the device. An operation that is split counts several times, an operation of
    /// zero length not at all.
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
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }
}

macro_rules! each_field {
    ($($field:ident),+) => {
        impl Counters {
            fn with(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
                Self { $($field: f(self.$field, other.$field)),+ }
            }

            fn named(&self) -> impl IntoIterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field)),+]
            }
        }
    };
}
each_field!(
    submitted,
    completed,
    failed,
    aborted,
    abandoned,
    in_flight,
    bytes,
    full,
    descriptors,
    doorbells,
    polls,
    resets
);

impl Sub for Counters {
    type Output = Self;

    /// Returns the counts since `earlier`, which is an earlier reading of the same counters. `in_flight` is
    /// not a count of events, so the result contains the value of `self`. A difference below 0 becomes 0.
    fn sub(self, earlier: Self) -> Self {
        Self { in_flight: self.in_flight, ..self.with(earlier, u64::saturating_sub) }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (name, count) in self.named().into_iter().filter(|(_, count)| *count > 0) {
            let (comma, name) = (if first { "" } else { ", " }, name.replace('_', " "));
            write!(f, "{comma}{count} {name}")?;
            first = false;
        }
        if first { f.write_str("nothing submitted") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_and_compared() {
        let earlier = Counters { submitted: 3, completed: 1, in_flight: 2, ..Counters::default() };
        let later = Counters { submitted: 8, completed: 7, in_flight: 1, bytes: 64, ..Counters::default() };
        assert_eq!(later.to_string(), "8 submitted, 7 completed, 1 in flight, 64 bytes");
        assert_eq!((later - earlier).to_string(), "5 submitted, 6 completed, 1 in flight, 64 bytes");
        assert_eq!(Counters::default().to_string(), "nothing submitted");
        assert_eq!(earlier.plus(later) - later, Counters { in_flight: 3, ..earlier });
    }
}
