//! [`Nearness`]: how near the core is on which another thread ran beside this one.
//!
//! What two cores copy together depends on what they share. Two hardware threads of one core copy no faster than one does; cores behind one cache hand each
//! other what is in it; cores behind different ones fetch it from each other, which takes four times as long. In a virtual machine that changes
//! while it runs, some times a second: the host moves the virtual CPUs, and nothing in the machine shows it but the time that it takes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use crate::pairs::Seen;
use crate::sibling::{self, Sibling};

/// What was seen so far, and so what is usual here.
#[derive(Debug, Default)]
pub(crate) struct Nearness {
    /// Sorted by the time there and back.
    seen: Vec<Seen>,
    /// So many of these are on the same core, going by what was seen of all: the nearest.
    same_core: usize,
    /// How often every other one was forgotten,
    halved: u32,
    /// and how many there were.
    looks: u64,
    last: Option<(usize, Instant, Seen)>,
}

/// So often a line goes there and back; the best of
const TRIPS: u32 = 30;
/// so many rounds counts: an interrupt makes one longer.
const ROUNDS: u32 = 3;
/// A core is where it usually is if a line takes up to so many times as long as to the nearest ones. On a Zen 3, it takes 60 to 70 ns to the same
/// core, 75 to 130 to one behind the same cache, and 400 to 470 to one behind another.
const FARTHER: f64 = 1.6;
/// So much that was seen is remembered at most.
const MOST: usize = 4096;
/// A line to the same core takes less than this part of what it takes to most others.
const NEARER: f64 = 0.9;
/// A host may look for work for a virtual CPU that has none for so long, which keeps the core busy: for 0.2 ms at most (Linux,
/// Documentation/virt/kvm/halt-polling.rst, and KVM_HALT_POLL_NS_DEFAULT of x86).
const IDLE: Duration = Duration::from_micros(300);
/// What is nearer than this part of all that was seen may be chance.
const LEAST: f64 = 0.1;
/// What was seen is true for so long.
const FRESH: Duration = Duration::from_millis(2);
/// Longer than this is not waited for a thread to begin, or for its answer.
const PATIENCE: Duration = Duration::from_millis(1);

impl Nearness {
    /// Looks how near `cpu` is, which takes about a tenth of a millisecond, or four where it may be the same core; none if that cannot be seen: this thread is on it itself, may not use it, or it is
    /// busy.
    pub(crate) fn look(&mut self, cpu: usize, sibling: &mut Sibling) -> Option<Seen> {
        if let Some((_, _, seen)) = self.last.filter(|(at, when, _)| *at == cpu && when.elapsed() < FRESH) {
            return Some(seen);
        }
        if sched_getcpu() == cpu {
            return None;
        }
        let (trip, busy) = look(cpu, sibling)?;
        // If so, is it still the case once that core has nothing to do?
        let same_core = busy && self.is_near(trip) && {
            let since = Instant::now();
            while since.elapsed() < IDLE {
                std::hint::spin_loop();
            }
            !sibling.is_busy()
        };
        let seen = Seen { trip, same_core };
        self.learn(seen);
        self.last = Some((cpu, Instant::now(), seen));
        Some(seen)
    }

    /// Looks at the same core as the last time.
    pub(crate) fn look_again(&mut self, sibling: &mut Sibling) -> Option<Seen> {
        self.last.and_then(|(cpu, _, _)| self.look(cpu, sibling))
    }

    /// Where the other core is always elsewhere than usual, though it was seen there seldom.
    #[cfg(test)]
    pub(crate) fn always_elsewhere() -> Self {
        let mut nearness = Self::default();
        let (near, far) = (Seen { trip: 90.0, same_core: false }, Seen { trip: 430.0, same_core: false });
        [near, near, far].into_iter().for_each(|seen| nearness.learn(seen));
        nearness.last = Some((0, Instant::now() + Duration::from_secs(3600), far));
        nearness
    }

    /// Whether it is nearer than most, so that it may be the same core.
    fn is_near(&self, trip: f64) -> bool {
        let most = self.seen.get(self.seen.len() * 3 / 4);
        most.is_none_or(|most| trip < most.trip * NEARER)
    }

    fn learn(&mut self, seen: Seen) {
        self.looks += 1;
        if !self.looks.is_multiple_of(1 << self.halved) {
            return;
        }
        if self.seen.len() == MOST {
            // Every other one goes, and of those to come as well: all the time counts alike.
            self.halved += 1;
            let mut keep = false;
            self.seen.retain(|_| {
                keep = !keep;
                keep
            });
        }
        let at = self.seen.partition_point(|s| s.trip < seen.trip);
        self.seen.insert(at, seen);
        // Nothing is nearer than the same core: the trips that are shorter than some length, which agrees best with what each seemed to be.
        let (mut agree, mut best) = (0_i64, 0);
        self.same_core = 0;
        for (at, seen) in self.seen.iter().enumerate() {
            agree += if seen.same_core { 1 } else { -1 };
            if agree > best {
                (best, self.same_core) = (agree, at + 1);
            }
        }
    }

    /// Whether a core was elsewhere than usual. The nearest that is a core of its own is usual, however seldom others are seen; only where there hardly is
    /// one, the other hardware thread of the same core.
    pub(crate) fn is_unusual(&self, seen: Seen) -> bool {
        let (same, others) = self.seen.split_at(self.same_core);
        let same_core = same.last().is_some_and(|s| seen.trip <= s.trip);
        let least = LEAST * self.seen.len() as f64;
        match others.get((LEAST * others.len() as f64) as usize) {
            Some(nearest) if others.len() as f64 >= least => same_core || seen.trip > nearest.trip * FARTHER,
            _ => !same_core && !same.is_empty(),
        }
    }
}

/// The answer to a trip is one more.
const READY: u32 = 1;
const END: u32 = u32::MAX;

/// How long a line takes there and back, and whether this core has fewer units for it while all of that one are kept busy.
fn look(cpu: usize, sibling: &mut Sibling) -> Option<(f64, bool)> {
    let ball = Ball(AtomicU32::new(0));
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().name("dma-bench-near".to_owned());
        other.spawn_scoped(scope, || ball.answer(cpu)).ok()?;
        let trip = ball.trips();
        let busy = trip.is_some() && sibling.is_busy();
        ball.0.store(END, Ordering::Release);
        Some((trip?, busy))
    })
}

/// A cache line of its own that two cores take from each other.
#[repr(align(128))]
struct Ball(AtomicU32);

impl Ball {
    /// Nanoseconds there and back.
    fn trips(&self) -> Option<f64> {
        self.wait(READY)?;
        let mut best = Duration::MAX;
        for round in 0..ROUNDS {
            let begun = Instant::now();
            for trip in 1..=TRIPS {
                let ball = 2 * (round * TRIPS + trip);
                self.0.store(ball, Ordering::Release);
                self.wait(ball + 1)?;
            }
            best = best.min(begun.elapsed());
        }
        Some(best.as_secs_f64() * 1e9 / f64::from(TRIPS))
    }

    /// Waits for the other side.
    fn wait(&self, ball: u32) -> Option<()> {
        let mut begun = None;
        let mut spins = 0_u32;
        loop {
            match self.0.load(Ordering::Acquire) {
                now if now == ball => return Some(()),
                END => return None,
                _ => spins += 1,
            }
            if spins.is_multiple_of(1024) && begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return None;
            }
        }
    }

    /// The other side: answers on `cpu`, and then keeps that busy until the end.
    fn answer(&self, cpu: usize) {
        let mut only = CpuSet::new();
        let moved = cpu < CpuSet::MAX_CPU && {
            only.set(cpu);
            sched_setaffinity(None, &only).is_ok()
        };
        if !moved {
            return self.0.store(END, Ordering::Release);
        }
        // Who asks may have ended it by now.
        let answer = |to| self.0.compare_exchange(to, to + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !answer(READY - 1) {
            return;
        }
        for trip in 1..=ROUNDS * TRIPS {
            if self.wait(2 * trip).is_none() || !answer(2 * trip) {
                return;
            }
        }
        while self.0.load(Ordering::Acquire) != END {
            sibling::work();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(trip: f64) -> Seen {
        Seen { trip, same_core: false }
    }

    fn same(trip: f64) -> Seen {
        Seen { trip, same_core: true }
    }

    const SAME_CORE: Seen = Seen { trip: 60.0, same_core: true };

    fn unusual(seen: &[(usize, Seen)]) -> [bool; 4] {
        let mut nearness = Nearness::default();
        seen.iter().for_each(|(times, seen)| (0..*times).for_each(|_| nearness.learn(*seen)));
        [SAME_CORE, near(85.0), near(110.0), near(430.0)].map(|seen| nearness.is_unusual(seen))
    }

    #[test]
    fn what_is_usual_is_the_nearest_core_of_its_own() {
        // Nothing seemed to be on the same core so far.
        assert_eq!(unusual(&[(10, near(90.0))]), [false, false, false, true]);
        assert_eq!(unusual(&[(5, SAME_CORE), (3, near(90.0)), (5, near(430.0))]), [true, false, false, true]);
        assert_eq!(unusual(&[(5, near(430.0)), (5, SAME_CORE), (3, near(90.0))]), [true, false, false, true]);
        // Where it hardly ever is, another place is the usual one.
        assert_eq!(unusual(&[(1, near(90.0)), (30, near(430.0))]), [false; 4]);
        assert_eq!(unusual(&[(1, near(90.0)), (30, SAME_CORE)]), [false, true, true, true]);
        assert_eq!(unusual(&[(1, SAME_CORE)]), [false, true, true, true]);
    }

    #[test]
    fn one_look_may_be_wrong_about_the_same_core() {
        // Somebody else came to this core or had been there before; trips tell the two apart all the same.
        let seen = [
            (8, SAME_CORE),
            (3, near(61.0)),
            (4, same(64.0)),
            (2, same(105.0)),
            (20, near(90.0)),
            (20, near(110.0)),
        ];
        assert_eq!(unusual(&seen), [true, false, false, true]);
        let mut other_way = seen;
        other_way.reverse();
        assert_eq!(unusual(&other_way), unusual(&seen));
        // No core is the same one here.
        assert_eq!(
            unusual(&[(3, same(110.0)), (20, near(90.0)), (20, near(112.0))]),
            [false, false, false, true]
        );
    }

    #[test]
    fn what_is_remembered_has_bounds() {
        let many = 10 * MOST;
        assert_eq!(
            unusual(&[(many, near(90.0)), (many / 4, SAME_CORE), (many, near(430.0))]),
            [true, false, false, true]
        );
        let mut nearness = Nearness::default();
        (0..many).for_each(|_| nearness.learn(SAME_CORE));
        assert!((MOST / 2..=MOST).contains(&nearness.seen.len()));
    }

    #[test]
    fn a_core_is_looked_at() {
        let (mut nearness, mut sibling) = (Nearness::default(), Sibling::default());
        let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        assert_eq!(nearness.look(CpuSet::MAX_CPU, &mut sibling), None, "no such CPU");
        assert!(nearness.seen.is_empty());
        let looks = cpus.iter().take(2).cycle().take(200);
        let seen: Vec<Seen> = looks.filter_map(|cpu| nearness.look(*cpu, &mut sibling)).collect();
        assert!(seen.iter().all(|s| s.trip.is_finite() && s.trip > 0.0), "{seen:?}");
        assert!(cpus.len() > 1 || seen.is_empty(), "there is no other core: {seen:?}");
    }
}
