//! Failure messages of cases. Each states the contract's requirement and the engine's behaviour.

use std::fmt::Display;

use dma_core::{Counters, Error, ErrorKind};

/// The requirement on an operation that is submitted to a queue with room.
pub(super) const ACCEPTS: &str = "a queue with room accepts a valid operation";

/// The requirement on an operation that was accepted.
pub(super) const COMPLETES: &str = "a device without faults reports every accepted descriptor as done, once";

/// Panics unless `dst` holds the bytes of `src`, because a copy that is reported as done must be complete.
#[track_caller]
pub(super) fn expect_arrived(src: &[u8], dst: &[u8], what: impl Display) {
    if src == dst {
        return;
    }
    let wrong = || src.iter().zip(dst).enumerate().filter(|(_, (s, d))| s != d);
    let first = wrong().next().map_or(src.len().min(dst.len()), |(at, _)| at);
    panic!(
        "{what} was reported as done, so all its bytes must be in place, but of {} bytes {} are wrong, the first at {first} ({:?} instead of {:?})",
        src.len(),
        wrong().count(),
        dst.get(first),
        src.get(first),
    );
}

/// Returns whether `bytes` repeat `pattern`. In an unoptimised build, comparing slices is much faster than
/// iterating over bytes.
pub(super) fn repeats(bytes: &[u8], pattern: &[u8]) -> bool {
    let first = bytes.len().min(pattern.len());
    bytes[..first] == pattern[..first] && bytes[first..] == bytes[..bytes.len() - first]
}

/// Panics unless `operations` operations were accepted and all are done.
#[track_caller]
pub(super) fn expect_all_completed(counters: Counters, operations: u64, when: impl Display) {
    let Counters { submitted, completed, failed, aborted, abandoned, in_flight, .. } = counters;
    assert!(
        (submitted, completed, in_flight) == (operations, operations, 0),
        "{when}, all of {operations} operations must be completed, each counted once: {submitted} were submitted, {completed} completed, \
         {failed} failed, {aborted} were aborted, {abandoned} abandoned, {in_flight} are in flight; the missing operations were never reported, or not as done",
    );
}

/// Panics unless `error`, an [`Error`] or [`OpError`](dma_core::OpError), is of `kind`.
#[track_caller]
pub(super) fn expect_kind(error: &(dyn std::error::Error + 'static), kind: ErrorKind, why: &str) {
    let found = std::iter::successors(Some(error), |e| e.source()).find_map(|e| e.downcast_ref::<Error>());
    assert_eq!(found.map(Error::kind), Some(kind), "{why}: {error}");
}
