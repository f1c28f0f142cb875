//! The streaming kernel of this process: the one of two orders of lines that its own copies found faster.
//!
//! Which order is faster depends on the processor. On a Sapphire Rapids class Xeon, pages side by side are
//! 1.3 to 2.2 times as fast as lines in order; on the first generation of AMD EPYC, lines in order are 1.3
//! times as fast. No property that a processor reports tells this.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use dma_core::InlineCopy;

use super::Kernel;
use super::x86_64::orders;
use crate::clock::ticks;

/// The process's race. Its outcome holds for copies and batches of all lengths.
static RACE: Race = Race::new();

/// Returns a kernel that uses the faster of two orders of lines, and measures which one this is.
pub(super) fn kernel() -> Option<Kernel> {
    let (name, [pages, _]) = orders()?;
    Some(Kernel { name, streaming: true, copy, copy_all, fill: pages.fill })
}

/// Returns the kernel to use now.
fn current() -> Option<Kernel> {
    orders().map(|(_, kernels)| kernels[RACE.leader()])
}

/// # Safety
///
/// See [`Kernel::copy`].
unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let Some((_, kernels)) = orders() else { return };
    let mut done = 0;
    if len >= Race::LEN_MIN
        && let Some(trial) = RACE.trial()
    {
        done = len.min(Race::LEN_MAX);
        let start = ticks();
        // SAFETY: these are the first `done` bytes of both ranges, and the CPU has the instructions.
        unsafe { kernels[trial.contender].copy(dst, src, done) };
        RACE.record(trial, ticks().wrapping_sub(start), done);
    }
    if done < len {
        // SAFETY: these are the remaining bytes of both ranges, and the CPU has the instructions.
        unsafe { kernels[RACE.leader()].copy(dst.wrapping_add(done), src.wrapping_add(done), len - done) };
    }
}

/// # Safety
///
/// See [`Kernel::copy_all`].
unsafe fn copy_all(copies: &[InlineCopy]) {
    if let Some(kernel) = current() {
        // SAFETY: the caller meets the requirements, and the CPU has the instructions.
        unsafe { kernel.copy_all(copies) };
    }
}

/// A race of two contenders. They take turns, so that both meet the same conditions. Losers cost little,
/// because a turn is short: with [`LEN_MAX`](Self::LEN_MAX) bytes in each of its turns, the slower one of two
/// copies 512 KiB.
#[derive(Debug)]
struct Race {
    /// Number of turns that were given out.
    turns: AtomicU32,
    /// The cost of each turn; 0 until it is known.
    costs: [[AtomicU32; Self::ROUNDS]; 2],
    leader: AtomicU8,
}

/// A turn of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trial {
    contender: usize,
    round: usize,
}

impl Race {
    /// Turns of each contender.
    const ROUNDS: usize = 8;
    /// Copies from this length on take part.
    const LEN_MIN: usize = 16 << 10;
    /// Maximum number of bytes that are copied in a turn.
    const LEN_MAX: usize = 64 << 10;

    const fn new() -> Self {
        Self {
            turns: AtomicU32::new(0),
            costs: [const { [const { AtomicU32::new(0) }; Self::ROUNDS] }; 2],
            leader: AtomicU8::new(0),
        }
    }

    /// Returns the index of the contender that is used outside of turns: the first one, until the second one
    /// has won.
    #[inline]
    fn leader(&self) -> usize {
        usize::from(self.leader.load(Ordering::Relaxed))
    }

    /// Returns the next turn, or `None` if all were given out.
    #[inline]
    fn trial(&self) -> Option<Trial> {
        // The load keeps the cache line shared by all cores after the race.
        let has_turns = (self.turns.load(Ordering::Relaxed) as usize) < 2 * Self::ROUNDS;
        let turn = if has_turns { self.turns.fetch_add(1, Ordering::Relaxed) as usize } else { usize::MAX };
        (turn < 2 * Self::ROUNDS).then_some(Trial { contender: turn % 2, round: turn / 2 })
    }

    /// Records the time of a turn. If it was the last one, decides the race.
    fn record(&self, trial: Trial, ticks: u64, len: usize) {
        let cost = (ticks.saturating_mul(1024) / len as u64).clamp(1, u32::MAX.into()) as u32;
        self.costs[trial.contender][trial.round].store(cost, Ordering::Relaxed);
        let medians = self.costs.each_ref().map(|costs| {
            let mut costs = costs.each_ref().map(|cost| cost.load(Ordering::Relaxed));
            costs.sort_unstable();
            // Unknown costs come first.
            (costs[0] > 0).then_some(costs[Self::ROUNDS / 2])
        });
        if let [Some(first), Some(second)] = medians {
            // If the difference is small, the first one stays.
            let second_wins = u64::from(second) * 20 < u64::from(first) * 19;
            self.leader.store(second_wins.into(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a race in which turns of the contenders have these costs. Returns the winner.
    fn run(cost: impl Fn(Trial) -> u64) -> usize {
        let race = Race::new();
        for turn in 0..2 * Race::ROUNDS {
            assert_eq!(race.leader(), 0, "nothing is decided");
            let trial = race.trial().expect("a turn");
            assert_eq!(trial, Trial { contender: turn % 2, round: turn / 2 });
            race.record(trial, cost(trial), Race::LEN_MAX);
        }
        assert_eq!(race.trial(), None, "the race is over");
        race.leader()
    }

    #[test]
    fn the_faster_contender_wins() {
        assert_eq!(run(|trial| [2_000_000, 1_000_000][trial.contender]), 1);
        assert_eq!(run(|trial| [1_000_000, 2_000_000][trial.contender]), 0);
        assert_eq!(run(|trial| [1_000_000, 960_000][trial.contender]), 0, "the difference is small");
        assert_eq!(run(|_| 0), 0, "the clock stands still");
        assert_eq!(run(|_| u64::MAX), 0);
    }

    #[test]
    fn preempted_turns_do_not_decide() {
        let preempted = |trial: Trial| if trial.round % 3 == 1 { 1 << 40 } else { 0 };
        assert_eq!(run(|trial| [2_000_000, 1_000_000 + preempted(trial)][trial.contender]), 1);
        assert_eq!(run(|trial| [1_000_000 + preempted(trial), 2_000_000][trial.contender]), 0);
    }

    #[test]
    fn turns_that_end_late_or_never_leave_the_first() {
        let race = Race::new();
        let trials: Vec<_> = std::iter::from_fn(|| race.trial()).collect();
        assert_eq!(trials.len(), 2 * Race::ROUNDS);
        let (last, others) = trials.split_last().expect("turns");
        let cost = |trial: &Trial| [2_000_000, 1_000_000][trial.contender];
        others.iter().rev().for_each(|trial| race.record(*trial, cost(trial), Race::LEN_MAX));
        assert_eq!(race.leader(), 0, "a turn has not ended");
        race.record(*last, cost(last), Race::LEN_MAX);
        assert_eq!(race.leader(), 1);
    }
}
