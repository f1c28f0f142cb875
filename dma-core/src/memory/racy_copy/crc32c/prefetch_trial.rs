//! Learns whether a CRC of bytes that are not cached is faster with prefetches or without them.
//!
//! That depends on the CPU: an EPYC (Zen 4) takes 3.9 us for the CRC of 64 KiB with prefetches, and 2.5 us
//! without them. For cached bytes there is no difference. So the CRC of some ranges is computed one half with
//! prefetches and one half without them, and the times are compared. Copies with a CRC have votes of their
//! own, because they also prefetch the destination.

use std::arch::x86_64::{_mm_lfence, _mm_mfence, _rdtsc};
use std::cell::Cell;
use std::sync::atomic::{AtomicI8, Ordering};

/// Minimum length, in bytes, of ranges that are divided.
pub(super) const TRIAL_FROM: usize = 4 << 10;
/// A thread divides its first two ranges, and then two in this number. A trial takes some 300 ns longer than
/// a range that is not divided.
const ONE_PAIR_IN: u16 = 1024;
/// Maximum difference between the votes of both sides.
const MAX_VOTES: i8 = 8;

/// The trials of all operations with one destination.
pub(super) struct Trials {
    /// The destination: the `TO` of the operations.
    to: u8,
    /// The pairs of trials that were faster without prefetches, minus those that were faster with them.
    votes: AtomicI8,
}

/// Number of destinations.
const DESTINATIONS: usize = 3;

thread_local! {
    /// For each destination, the number of ranges since the last pair of trials began.
    static SINCE_PAIR: [Cell<u16>; DESTINATIONS] = const { [const { Cell::new(0) }; DESTINATIONS] };
    /// For each destination, the time with prefetches divided by the time without them, in the first trial of
    /// a pair.
    static FIRST_RATIO: [Cell<f64>; DESTINATIONS] = const { [const { Cell::new(1.0) }; DESTINATIONS] };
}

impl Trials {
    pub(super) const fn new(to: u8) -> Self {
        Self { to, votes: AtomicI8::new(0) }
    }

    /// Returns true if prefetches are the faster way, as far as is known.
    #[inline]
    pub(super) fn prefetches(&self) -> bool {
        self.votes.load(Ordering::Relaxed) <= 0
    }

    /// Returns the trial for which the calling thread should divide a range of at least [`TRIAL_FROM`] bytes,
    /// if any.
    #[inline]
    pub(super) fn due(&self) -> Option<Trial> {
        let since = SINCE_PAIR.with(|counts| {
            let count = &counts[usize::from(self.to)];
            count.replace((count.get() + 1) % ONE_PAIR_IN)
        });
        match since {
            0 => Some(Trial::First),
            1 => Some(Trial::Second),
            _ => None,
        }
    }

    /// Divides a range of `len` bytes for a trial. `run` processes the part that begins at the first number,
    /// of the length of the second number, with prefetches if the flag is true; it is called for the parts in
    /// order.
    #[cold]
    pub(super) fn divide(&self, trial: Trial, len: usize, run: impl FnMut(usize, usize, bool)) {
        self.divide_by(ticks, trial, len, run);
    }

    /// Does the work of [`divide`](Self::divide) with this clock.
    fn divide_by(
        &self,
        ticks: impl Fn() -> u64,
        trial: Trial,
        len: usize,
        mut run: impl FnMut(usize, usize, bool),
    ) {
        let half = (len / 2) & !63;
        let prefetches_first = trial == Trial::First;
        let start = ticks();
        run(0, half, prefetches_first);
        let middle = ticks();
        run(half, half, !prefetches_first);
        let end = ticks();
        if 2 * half < len {
            run(2 * half, len - 2 * half, true);
        }
        let (first, last) = (middle.saturating_sub(start), end.saturating_sub(middle));
        let ratio = first.max(1) as f64 / last.max(1) as f64;
        let first_ratio = FIRST_RATIO.with(|ratios| ratios[usize::from(self.to)].replace(ratio));
        if !prefetches_first {
            // Another thread's vote may be lost; later votes decide.
            let votes = after_pair(self.votes.load(Ordering::Relaxed), first_ratio, 1.0 / ratio);
            self.votes.store(votes, Ordering::Relaxed);
        }
    }
}

/// A trial of a pair. The first half of a range often takes longer than the second half, because it warms up
/// the CPU's own prefetcher. Therefore, each half of the two ranges has prefetches once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// The first half has prefetches.
    First,
    /// The second half has prefetches.
    Second,
}

/// Returns the number of ticks since some time, after all accesses before this call.
fn ticks() -> u64 {
    // Stores continue after the instructions that made them. Without this fence, the second half would pay
    // for those of the first half.
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe { _mm_mfence() };
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe { _mm_lfence() };
    // SAFETY: every x86-64 CPU has a time stamp counter.
    unsafe { _rdtsc() }
}

/// Returns the votes after a pair of trials with these ratios of the time with prefetches to the time without
/// them.
fn after_pair(votes: i8, first: f64, second: f64) -> i8 {
    // The product contains the difference between the halves once in each direction. A small difference may
    // be noise.
    let ratio = first * second;
    let vote = i8::from(ratio > 1.0 / 0.81) - i8::from(ratio < 0.81);
    (votes + vote).clamp(-MAX_VOTES, MAX_VOTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_divided_into_parts_that_cover_it() {
        for len in (TRIAL_FROM..TRIAL_FROM + 200).chain([1 << 20, (1 << 20) + 77]) {
            for trial in [Trial::First, Trial::Second] {
                let mut parts = Vec::new();
                Trials::new(0).divide(trial, len, |at, len, prefetch| parts.push((at, len, prefetch)));
                let end = parts.iter().fold(0, |end, (at, len, _)| {
                    assert_eq!(*at, end);
                    at + len
                });
                assert_eq!(end, len);
                assert_eq!([parts[0].2, parts[1].2], [trial == Trial::First, trial == Trial::Second]);
                assert_eq!(parts[0].1, parts[1].1, "{parts:?}");
            }
        }
    }

    #[test]
    fn the_faster_way_gets_votes_unless_the_difference_is_small() {
        // In the last two pairs, the first half takes twice as long as the second one.
        let pairs = [(1.0, 1.3), (0.9, 0.8), (1.0, 1.1), (0.9, 1.0), (2.0, 0.5), (2.6, 0.65)];
        assert_eq!(pairs.map(|(first, second)| after_pair(0, first, second)), [1, -1, 0, 0, 0, 1]);
        assert_eq!(
            [after_pair(MAX_VOTES, 2.0, 2.0), after_pair(-MAX_VOTES, 0.5, 0.5)],
            [MAX_VOTES, -MAX_VOTES]
        );
    }

    #[test]
    fn a_pair_of_trials_votes_for_the_faster_way() {
        for (with, without) in [(100, 60), (60, 100)] {
            let (trials, now) = (Trials::new(0), Cell::new(0));
            for trial in [Trial::First, Trial::Second] {
                trials.divide_by(
                    || now.get(),
                    trial,
                    TRIAL_FROM,
                    |at, _, prefetch| {
                        // The first half takes twice as long.
                        let time = if prefetch { with } else { without };
                        now.set(now.get() + if at == 0 { 2 * time } else { time });
                    },
                );
            }
            assert_eq!(trials.votes.into_inner(), if with > without { 1 } else { -1 });
        }
    }

    #[test]
    fn a_thread_divides_its_first_two_ranges_and_then_few() {
        let due = || {
            let (one, other) = (Trials::new(0), Trials::new(1));
            assert_eq!(other.due(), Some(Trial::First));
            (0..2 * ONE_PAIR_IN).map(|_| one.due()).collect::<Vec<_>>()
        };
        let due = std::thread::spawn(due).join().expect("no panic");
        assert_eq!(due[..3], [Some(Trial::First), Some(Trial::Second), None]);
        assert_eq!(due.iter().flatten().count(), 4);
    }
}
