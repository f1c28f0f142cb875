//! Learns whether a CRC of bytes that are not cached is faster with prefetches or without them.
//!
//! That depends on the CPU: an EPYC (Zen 4) takes 3.5 us for the CRC of 64 KiB with prefetches, and 2.0 us
//! without them. For cached bytes there is no difference. So some ranges in a row are processed and timed in
//! one way, and some in the other. The way of a short range also changes the time of the next one, so that
//! one range alone would not show the difference. Copies with a CRC have votes of their own, because they
//! also prefetch the destination.

use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::cell::Cell;
use std::sync::atomic::{AtomicI8, Ordering};

/// Minimum length, in bytes, of ranges that are timed.
pub(super) const TRIAL_FROM: usize = 4 << 10;
/// Number of ranges in a row that a trial processes in the same way.
const RUN: u16 = 8;
/// The ways of a trial's runs: true is with prefetches. A run often takes longer than the next one, because
/// it warms up the CPU's own prefetcher. Therefore, each way is once the first and once the last of a pair.
const RUNS: [bool; 4] = [true, false, false, true];
/// Number of ranges in a trial.
const TRIAL: u16 = RUN * RUNS.len() as u16;
/// A thread begins a trial with its first range, and then with one in this number. The clock takes some 30 ns
/// for each range of a trial.
const ONE_TRIAL_IN: u16 = 2048;
/// Minimum ratio of the times of a pair's runs that counts as a difference. A smaller one may be noise.
const DIFFERENCE: f64 = 1.06;
/// Maximum number of votes for one way.
const MAX_VOTES: i8 = 4;

/// The trials of all operations with one destination.
pub(super) struct Trials {
    /// The destination: the `TO` of the operations.
    to: u8,
    /// Above 0, the votes for processing without prefetches; otherwise, minus those for prefetches.
    votes: AtomicI8,
}

/// Number of destinations.
const DESTINATIONS: usize = 3;

thread_local! {
    /// For each destination, the number of ranges since the last trial began.
    static SINCE_TRIAL: [Cell<u16>; DESTINATIONS] = const { [const { Cell::new(0) }; DESTINATIONS] };
    /// For each destination, the times of the trial's runs: sums of the ticks per byte of their ranges.
    static TIMES: [Cell<[f64; RUNS.len()]>; DESTINATIONS] =
        const { [const { Cell::new([0.0; RUNS.len()]) }; DESTINATIONS] };
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

    /// Returns the place in a trial of the calling thread's next range, of at least [`TRIAL_FROM`] bytes, if
    /// a trial is due.
    #[inline]
    pub(super) fn due(&self) -> Option<Place> {
        let since = SINCE_TRIAL.with(|counts| {
            let count = &counts[usize::from(self.to)];
            count.replace((count.get() + 1) % ONE_TRIAL_IN)
        });
        (since < TRIAL).then_some(Place(since))
    }

    /// Processes a range of `len` bytes at this place of a trial, and returns the result. `process` does so
    /// with prefetches if the flag is true.
    #[cold]
    pub(super) fn time<T>(&self, place: Place, len: usize, process: impl FnOnce(bool) -> T) -> T {
        self.time_by(ticks, place, len, process)
    }

    /// Does the work of [`time`](Self::time) with this clock.
    fn time_by<T>(
        &self,
        ticks: impl Fn() -> u64,
        Place(at): Place,
        len: usize,
        process: impl FnOnce(bool) -> T,
    ) -> T {
        let run = usize::from(at / RUN);
        let start = ticks();
        let result = process(RUNS[run]);
        let time = ticks().saturating_sub(start).max(1) as f64 / len as f64;
        let times = TIMES.with(|times| {
            let cell = &times[usize::from(self.to)];
            let mut times = if at == 0 { [0.0; RUNS.len()] } else { cell.get() };
            times[run] += time;
            cell.set(times);
            times
        });
        if at + 1 == TRIAL {
            // Another thread's vote may be lost; later votes decide.
            let votes = after_vote(self.votes.load(Ordering::Relaxed), vote(times));
            self.votes.store(votes, Ordering::Relaxed);
        }
        result
    }
}

/// A range's place in a trial: the number of ranges of the trial before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u16);

/// Returns the number of ticks since some time, after all loads before this call.
fn ticks() -> u64 {
    // Without this fence, the clock would be read before the loads have ended. Stores may continue: most of
    // them end within the same run.
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe { _mm_lfence() };
    // SAFETY: every x86-64 CPU has a time stamp counter.
    unsafe { _rdtsc() }
}

/// Returns the vote of a trial whose runs took these times: 1 against prefetches, -1 for them. Both pairs
/// must agree, so that one interrupt or one slow run makes no vote.
fn vote([with, without, next_without, next_with]: [f64; RUNS.len()]) -> i8 {
    let slower = |time: f64, other: f64| time > other * DIFFERENCE;
    i8::from(slower(with, without) && slower(next_with, next_without))
        - i8::from(slower(without, with) && slower(next_without, next_with))
}

/// Returns the votes after this vote. A vote that changes the way counts as the maximum for the new way, so
/// that votes in turns do not change it again and again.
fn after_vote(votes: i8, vote: i8) -> i8 {
    let sum = votes + vote;
    if (sum > 0) == (votes > 0) { sum.clamp(-MAX_VOTES, MAX_VOTES) } else { vote * MAX_VOTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a trial whose ranges take the time that `time` returns for a place and a way. Returns the number
    /// of ranges in each way.
    fn trial(trials: &Trials, len: impl Fn(u16) -> usize, time: impl Fn(u16, bool) -> u64) -> [u16; 2] {
        let (now, mut ways) = (Cell::new(0), [0; 2]);
        for at in 0..TRIAL {
            trials.time_by(
                || now.get(),
                Place(at),
                len(at),
                |prefetch| {
                    ways[usize::from(prefetch)] += 1;
                    now.set(now.get() + time(at, prefetch));
                },
            );
        }
        ways
    }

    #[test]
    fn the_faster_way_gets_the_votes() {
        for (with, without, prefetches) in [(115, 100, false), (100, 115, true), (200, 100, false)] {
            let trials = Trials::new(0);
            for _ in 0..20 {
                let ways =
                    trial(&trials, |_| TRIAL_FROM, |_, prefetch| if prefetch { with } else { without });
                assert_eq!(ways, [TRIAL / 2; 2]);
                assert_eq!(trials.prefetches(), prefetches, "{with} and {without} ticks");
            }
        }
    }

    #[test]
    fn ranges_of_different_lengths_are_compared_by_the_byte() {
        let trials = Trials::new(0);
        let len = |at: u16| TRIAL_FROM << (at / RUN);
        trial(&trials, len, |at, prefetch| len(at) as u64 * if prefetch { 3 } else { 2 });
        assert!(!trials.prefetches());
    }

    #[test]
    fn noise_makes_no_vote() {
        let noisy: [&dyn Fn(u16, bool) -> u64; 4] = [
            // A small difference.
            &|_, prefetch| if prefetch { 105 } else { 100 },
            // Each run is faster than the one before it.
            &|at, _| 1000 - 200 * u64::from(at / RUN),
            // An interrupt of a range with prefetches, or of one without them.
            &|at, _| if at == 3 { 10_000 } else { 100 },
            &|at, _| if at == TRIAL / 2 { 10_000 } else { 100 },
        ];
        for time in noisy {
            let trials = Trials::new(0);
            trial(&trials, |_| TRIAL_FROM, time);
            assert_eq!(trials.votes.into_inner(), 0);
        }
    }

    #[test]
    fn a_new_way_stays_until_as_many_votes_are_against_it() {
        assert_eq!([after_vote(0, -1), after_vote(0, 0), after_vote(0, 1)], [-1, 0, MAX_VOTES]);
        for way in [-1, 1] {
            assert_eq!(after_vote(way * MAX_VOTES, way), way * MAX_VOTES);
        }
        let mut votes = MAX_VOTES;
        for left in (1..MAX_VOTES).rev() {
            votes = after_vote(votes, -1);
            assert_eq!(votes, left);
        }
        assert_eq!(after_vote(votes, -1), -MAX_VOTES);
        // Votes in turns change the way once.
        votes = 0;
        for vote in [1, -1].repeat(100) {
            votes = after_vote(votes, vote);
            assert!(votes > 0);
        }
    }

    #[test]
    fn a_thread_times_its_first_ranges_and_then_few() {
        let due = || {
            let (one, other) = (Trials::new(0), Trials::new(1));
            assert_eq!(other.due(), Some(Place(0)));
            (0..2 * ONE_TRIAL_IN).map(|_| one.due()).collect::<Vec<_>>()
        };
        let due = std::thread::spawn(due).join().expect("no panic");
        let places: Vec<_> = (0..TRIAL).map(|at| Some(Place(at))).collect();
        for ranges in due.chunks(usize::from(ONE_TRIAL_IN)) {
            assert_eq!(ranges[..places.len()], places);
            assert!(ranges[places.len()..].iter().all(Option::is_none));
        }
    }
}
