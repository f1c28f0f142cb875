//! The division of lengths into classes, and the index of a class.

/// From this length, copies are timed.
pub(crate) const LEARN_MIN: usize = 1 << LEARN_MIN_LOG2;
pub(super) const LEARN_MIN_LOG2: u32 = 14;
/// One class per power of two: 16 KiB to 64 MiB. The last class also holds longer copies.
pub(super) const LENGTH_CLASSES: usize = 13;

/// Returns the index of the class of a length.
#[inline]
pub(crate) fn class_of(len: usize) -> usize {
    (len.ilog2().saturating_sub(LEARN_MIN_LOG2) as usize).min(LENGTH_CLASSES - 1)
}
