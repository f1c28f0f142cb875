//! Learns whether a CRC of bytes that are not cached is faster with prefetches or without them.
//!
//! That depends on the CPU: an EPYC (Zen 4) takes 3.9 us for 64 KiB with prefetches, and 2.5 us without
//! them. For cached bytes there is no difference. So the CRC of some ranges is computed one half with
//! prefetches and one half without them, and the times are compared.

use std::arch::x86_64::_rdtsc;
use std::cell::Cell;
use std::sync::atomic::{AtomicI8, Ordering};

/// Minimum length, in bytes, of ranges that are divided.
pub(super) const TRIAL_FROM: usize = 8 << 10;
/// A thread divides its first such range, and then one in this number.
const ONE_IN: u8 = 64;
/// Maximum difference between the votes of both sides.
const MAX_VOTES: i8 = 8;

/// The trials that were faster without prefetches, minus those that were faster with them.
static VOTES: AtomicI8 = AtomicI8::new(0);

thread_local! {
    /// Number of ranges until the next trial.
    static UNTIL_TRIAL: Cell<u8> = const { Cell::new(0) };
    /// True if the next trial has prefetches in its second half. They alternate, because the first half warms
    /// up the CPU's own prefetcher.
    static SECOND: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if prefetches are the faster way, as far as is known.
#[inline]
pub(super) fn prefetches() -> bool {
    VOTES.load(Ordering::Relaxed) <= 0
}

/// Returns true if the calling thread should divide a range of at least [`TRIAL_FROM`] bytes.
#[inline]
pub(super) fn is_due() -> bool {
    UNTIL_TRIAL.with(|until| {
        let left = until.get();
        until.set(if left == 0 { ONE_IN - 1 } else { left - 1 });
        left == 0
    })
}

/// Divides a range of `len` bytes. `run` processes the part that begins at the first number, of the length of
/// the second number, with prefetches if the flag is true; it is called for both parts in order.
#[cold]
pub(super) fn divide(len: usize, mut run: impl FnMut(usize, usize, bool)) {
    let half = (len / 2) & !63;
    let second = SECOND.replace(!SECOND.get());
    let mut timed = |at, len, prefetch| {
        // SAFETY: every x86-64 CPU has a time stamp counter.
        let start = unsafe { _rdtsc() };
        run(at, len, prefetch);
        // SAFETY: every x86-64 CPU has a time stamp counter.
        unsafe { _rdtsc() }.saturating_sub(start)
    };
    let (first, last) = (timed(0, half, !second), timed(half, half, second));
    if 2 * half < len {
        run(2 * half, len - 2 * half, true);
    }
    let (with, without) = if second { (last, first) } else { (first, last) };
    // Another thread's vote may be lost; later votes decide.
    VOTES.store(after_trial(VOTES.load(Ordering::Relaxed), with, without), Ordering::Relaxed);
}

/// Returns the votes after a trial that took these times.
fn after_trial(votes: i8, with: u64, without: u64) -> i8 {
    // A small difference may be noise.
    let vote = i8::from(without * 10 < with * 9) - i8::from(with * 10 < without * 9);
    (votes + vote).clamp(-MAX_VOTES, MAX_VOTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_divided_into_parts_that_cover_it() {
        for len in (TRIAL_FROM..TRIAL_FROM + 200).chain([1 << 20, (1 << 20) + 77]) {
            let mut parts = Vec::new();
            divide(len, |at, len, prefetch| parts.push((at, len, prefetch)));
            let end = parts.iter().fold(0, |end, (at, len, _)| {
                assert_eq!(*at, end);
                at + len
            });
            assert_eq!(end, len);
            assert!(parts[0].2 != parts[1].2 && parts[0].1 == parts[1].1, "{parts:?}");
        }
    }

    #[test]
    fn the_faster_way_gets_votes_unless_the_difference_is_small() {
        assert_eq!(
            [(100, 89), (89, 100), (100, 95), (0, 0)].map(|(with, without)| after_trial(0, with, without)),
            [1, -1, 0, 0]
        );
        assert_eq!(
            [after_trial(MAX_VOTES, 100, 50), after_trial(-MAX_VOTES, 50, 100)],
            [MAX_VOTES, -MAX_VOTES]
        );
    }

    #[test]
    fn a_thread_divides_its_first_range_and_then_few() {
        let due = std::thread::spawn(|| (0..2 * u32::from(ONE_IN)).filter(|_| is_due()).count() as u32);
        assert_eq!(due.join().expect("no panic"), 2);
        std::thread::spawn(|| assert!(is_due())).join().expect("the first range is divided");
    }
}
