//! [`CoreDistance`]: the distance between this core and the one on which a helping thread runs.
//!
//! The speed of two cores together depends on what they share. Two hardware threads of one core copy no
//! faster than one. Cores behind one cache exchange its lines. Cores behind different caches take four times
//! as long for a line. In a virtual machine the distance changes several times a second, because the
//! hypervisor migrates vCPUs. Only the time of a round trip shows that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use crate::pairs::Seen;
use crate::sibling::{self, Sibling};

/// Distances that were measured, and the usual one among them.
#[derive(Debug, Default)]
pub(crate) struct CoreDistance {
    /// Distances sorted by round trip. At most [`MOST`].
    seen: Vec<Seen>,
    /// The number of leading entries of `seen` that are judged to be on the same core.
    same_core: usize,
    /// The number of times that every other entry was dropped.
    halved: u32,
    /// Distances that were reported, dropped ones included.
    looks: u64,
    last: Option<(usize, Instant, Seen)>,
    /// The thread of the last measurement, and the CPU that it is pinned to.
    other: Option<(usize, JoinHandle<()>)>,
}

/// Round trips of a cache line in each round.
const TRIPS: u32 = 30;
/// Rounds of each measurement. The fastest counts, because an interrupt makes one longer.
const ROUNDS: u32 = 3;
/// A distance is usual if it is at most this many times the nearest ones. On a Zen 3, a line takes 60 to 70
/// ns to the same core, 75 to 130 ns behind the same cache, and 400 to 470 ns behind another cache.
const FARTHER: f64 = 1.6;
/// The most distances that are kept.
const MOST: usize = 4096;
/// Round trips on the same core take less than this part of the round trips to most other cores.
const NEARER: f64 = 0.9;
/// Longest time for which a hypervisor keeps an idle core busy with polling: 0.2 ms (Linux,
/// Documentation/virt/kvm/halt-polling.rst, and `KVM_HALT_POLL_NS_DEFAULT` on x86), and some more.
const IDLE: Duration = Duration::from_micros(300);
/// Distances that make up less than this part of all may be chance.
const LEAST: f64 = 0.1;
/// Time for which a measurement is used again.
const FRESH: Duration = Duration::from_millis(2);
/// Longest wait for the other thread to begin, answer or end.
const PATIENCE: Duration = Duration::from_millis(1);

impl CoreDistance {
    /// Measures the distance to `cpu`. Takes about 0.1 ms; 4 ms if it may be the same core; [`PATIENCE`] if
    /// nobody answers, because the hypervisor has taken the core away or it is busy: then the distance is
    /// [`Seen::AWAY`]. Returns `None` if this thread runs on `cpu` itself or may not use it, or if the thread
    /// of the last measurement still waits for another CPU.
    pub(crate) fn look(&mut self, cpu: usize, sibling: &mut Sibling) -> Option<Seen> {
        if let Some((_, _, seen)) = self.last.filter(|(at, when, _)| *at == cpu && when.elapsed() < FRESH) {
            return Some(seen);
        }
        if sched_getcpu() == cpu {
            return None;
        }
        let seen = match &self.other {
            Some((still, _)) if !self.is_over() => (*still == cpu).then_some(Seen::AWAY)?,
            _ => self.look_now(cpu, sibling)?,
        };
        self.last = Some((cpu, Instant::now(), seen));
        Some(seen)
    }

    fn look_now(&mut self, cpu: usize, sibling: &mut Sibling) -> Option<Seen> {
        let ball = Arc::new(Ball(AtomicU32::new(0)));
        let other = Arc::clone(&ball);
        let name = "dma-bench-near".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || other.answer_on(cpu));
        self.other = Some((cpu, thread.ok()?));
        let trip = ball.trips();
        let busy = trip.is_some_and(|trip| self.is_near(trip)) && sibling.is_busy();
        let refused = ball.0.swap(END, Ordering::AcqRel) == REFUSED;
        if trip.is_some() {
            self.is_over();
        }
        // The other thread may share the core by chance: it is the same core only if the core is free once
        // that thread has ended.
        let same_core = busy && {
            spin(IDLE, || false);
            !sibling.is_busy()
        };
        (!refused).then_some(trip.map_or(Seen::AWAY, |trip| Seen { trip, same_core }))
    }

    /// Waits up to [`PATIENCE`] for the other thread to end. Returns true if it has ended.
    fn is_over(&self) -> bool {
        self.other.as_ref().is_none_or(|(_, other)| spin(PATIENCE, || other.is_finished()))
    }

    /// Judges a slice without a helping thread, in a cell that mostly has one. Returns [`Seen::AWAY`] if the
    /// last helping core still does not answer.
    pub(crate) fn missed(&mut self, sibling: &mut Sibling) -> Option<Seen> {
        let (cpu, _, _) = self.last?;
        self.look(cpu, sibling).filter(|seen| *seen == Seen::AWAY)
    }

    /// Returns true if the round trip is short enough for the same core.
    fn is_near(&self, trip: f64) -> bool {
        let (first, most) =
            (self.seen.first(), self.seen.get(((1.0 - LEAST) * self.seen.len() as f64) as usize));
        first.zip(most).is_none_or(|(first, most)| trip < most.trip.min(first.trip * FARTHER) * NEARER)
    }

    /// Adds a distance that was measured after a slice.
    pub(crate) fn learn(&mut self, seen: Seen) {
        if seen == Seen::AWAY {
            return;
        }
        self.looks += 1;
        if !self.looks.is_multiple_of(1 << self.halved) {
            return;
        }
        if self.seen.len() == MOST {
            // Every other entry is dropped, and every other new one too, so that all parts of the run weigh
            // alike.
            self.halved += 1;
            let mut keep = false;
            self.seen.retain(|_| {
                keep = !keep;
                keep
            });
        }
        let at = self.seen.partition_point(|s| s.trip < seen.trip);
        self.seen.insert(at, seen);
        // The same core is nearest. The limit between it and the others is the one that agrees best with what
        // each measurement seemed to be.
        let (mut agree, mut best) = (0_i64, 0);
        self.same_core = 0;
        for (at, seen) in self.seen.iter().enumerate() {
            agree += if seen.same_core { 1 } else { -1 };
            if agree > best {
                (best, self.same_core) = (agree, at + 1);
            }
        }
    }

    /// Returns true if a distance is not the usual one. The nearest separate core is usual, unless that makes
    /// up less than [`LEAST`] of all; then the other hardware thread of the same core is.
    pub(crate) fn is_unusual(&self, seen: Seen) -> bool {
        if seen == Seen::AWAY {
            // A machine on which no core ever answers has no usual distance.
            return !self.seen.is_empty();
        }
        let (same, others) = self.seen.split_at(self.same_core);
        let same_core = same.last().is_some_and(|s| seen.trip <= s.trip);
        let least = LEAST * self.seen.len() as f64;
        match others.get((LEAST * others.len() as f64) as usize) {
            Some(nearest) if others.len() as f64 >= least => same_core || seen.trip > nearest.trip * FARTHER,
            _ => !same_core && !same.is_empty(),
        }
    }
}

/// The first message: the other thread is ready. Each answer is the message plus 1.
const READY: u32 = 1;
const END: u32 = u32::MAX;
/// The other thread may not use that CPU.
const REFUSED: u32 = END - 1;

/// Spins until the condition holds, for at most this time. Returns true if it holds.
fn spin(most: Duration, mut is: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if is() {
            return true;
        }
        if begun.elapsed() >= most {
            return false;
        }
        std::hint::spin_loop();
    }
}

/// A cache line that two cores pass to and fro.
#[repr(align(128))]
struct Ball(AtomicU32);

impl Ball {
    /// Returns the time of a round trip in nanoseconds; `None` if the other thread does not answer.
    fn trips(&self) -> Option<f64> {
        let until = Instant::now() + PATIENCE;
        self.wait(READY, until)?;
        let mut best = Duration::MAX;
        for round in 0..ROUNDS {
            let begun = Instant::now();
            for trip in 1..=TRIPS {
                let ball = 2 * (round * TRIPS + trip);
                self.0.store(ball, Ordering::Release);
                self.wait(ball + 1, until)?;
            }
            best = best.min(begun.elapsed());
        }
        Some(best.as_secs_f64() * 1e9 / f64::from(TRIPS))
    }

    /// Waits until the other thread has written `ball`.
    fn wait(&self, ball: u32, until: Instant) -> Option<()> {
        for spins in 1_u32.. {
            match self.0.load(Ordering::Acquire) {
                now if now == ball => return Some(()),
                END | REFUSED => return None,
                _ if spins.is_multiple_of(1024) && Instant::now() > until => return None,
                _ => {}
            }
        }
        None
    }

    /// Runs the other thread, pinned to `cpu`.
    fn answer_on(&self, cpu: usize) {
        let mut only = CpuSet::new();
        let moved = cpu < CpuSet::MAX_CPU && {
            only.set(cpu);
            sched_setaffinity(None, &only).is_ok()
        };
        if moved {
            self.answer();
        } else {
            self.0.store(REFUSED, Ordering::Release);
        }
    }

    /// Answers all trips, and then keeps the core busy until told to end.
    fn answer(&self) {
        let until = Instant::now() + PATIENCE;
        // The measuring thread may have ended the exchange.
        let answer = |to| self.0.compare_exchange(to, to + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !answer(READY - 1) {
            return;
        }
        for trip in 1..=ROUNDS * TRIPS {
            if self.wait(2 * trip, until).is_none() || !answer(2 * trip) {
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

    /// Time limit for tests that need another core.
    const LONG: Duration = Duration::from_secs(60);
    const SAME_CORE: Seen = Seen { trip: 60.0, same_core: true };

    fn unusual(seen: &[(usize, Seen)]) -> [bool; 4] {
        let mut distance = CoreDistance::default();
        seen.iter().for_each(|(times, seen)| (0..*times).for_each(|_| distance.learn(*seen)));
        [SAME_CORE, near(85.0), near(110.0), near(430.0)].map(|seen| distance.is_unusual(seen))
    }

    #[test]
    fn the_usual_place_is_the_nearest_core_of_its_own() {
        // No measurement seemed to be on the same core so far.
        assert_eq!(unusual(&[(10, near(90.0))]), [false, false, false, true]);
        assert_eq!(unusual(&[(5, SAME_CORE), (3, near(90.0)), (5, near(430.0))]), [true, false, false, true]);
        assert_eq!(unusual(&[(5, near(430.0)), (5, SAME_CORE), (3, near(90.0))]), [true, false, false, true]);
        // A separate core that is hardly ever seen is not the usual place.
        assert_eq!(unusual(&[(1, near(90.0)), (30, near(430.0))]), [false; 4]);
        assert_eq!(unusual(&[(1, near(90.0)), (30, SAME_CORE)]), [false, true, true, true]);
        assert_eq!(unusual(&[(1, SAME_CORE)]), [false, true, true, true]);
    }

    #[test]
    fn one_look_may_be_wrong_about_the_same_core() {
        // Another process may have shared the core; the round trips still tell the two cases apart.
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
        // No measurement is on the same core.
        assert_eq!(
            unusual(&[(3, same(110.0)), (20, near(90.0)), (20, near(112.0))]),
            [false, false, false, true]
        );
    }

    #[test]
    fn a_core_that_was_away_is_not_where_it_usually_is() {
        assert!(!CoreDistance::default().is_unusual(Seen::AWAY), "nobody ever answered");
        for usual in [near(90.0), near(430.0), SAME_CORE] {
            assert_eq!(
                unusual(&[(3, usual), (90, Seen::AWAY)]),
                unusual(&[(3, usual)]),
                "it says nothing of others"
            );
            let mut distance = CoreDistance::default();
            distance.learn(usual);
            assert!(distance.is_unusual(Seen::AWAY) && !distance.is_unusual(usual));
        }
        // A core that was not missed is not measured.
        let (mut distance, mut sibling) = (CoreDistance::default(), Sibling::default());
        assert_eq!(distance.missed(&mut sibling), None);
        distance.last = Some((0, Instant::now() + Duration::from_secs(3600), near(90.0)));
        assert_eq!(distance.missed(&mut sibling), None);
        distance.last = Some((0, Instant::now() + Duration::from_secs(3600), Seen::AWAY));
        assert_eq!(distance.missed(&mut sibling), Some(Seen::AWAY));
    }

    #[test]
    fn memory_of_distances_is_bounded() {
        let many = 10 * MOST;
        assert_eq!(
            unusual(&[(many, near(90.0)), (many / 4, SAME_CORE), (many, near(430.0))]),
            [true, false, false, true]
        );
        let mut distance = CoreDistance::default();
        (0..many).for_each(|_| distance.learn(SAME_CORE));
        assert!((MOST / 2..=MOST).contains(&distance.seen.len()));
    }

    #[test]
    fn a_pair_that_may_share_a_core_is_measured_more_closely() {
        let near = |seen: &[(usize, f64)]| {
            let mut distance = CoreDistance::default();
            seen.iter().for_each(|(times, trip)| (0..*times).for_each(|_| distance.learn(near(*trip))));
            [60.0, 70.0, 90.0, 110.0].map(|trip| distance.is_near(trip))
        };
        assert_eq!(near(&[]), [true; 4]);
        // Rare, then frequent, beside distant ones.
        assert_eq!(near(&[(1, 60.0), (9, 90.0)]), [true, true, false, false]);
        assert_eq!(near(&[(8, 60.0), (2, 90.0)]), [true, true, false, false]);
        assert_eq!(near(&[(2, 60.0), (2, 90.0), (6, 430.0)]), [true, true, false, false]);
    }

    #[test]
    fn two_threads_play_ball() {
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        // If both threads run on one CPU, a trip takes longer than the time limit.
        let mut seen = None;
        let plays = allowed > 1
            && spin(LONG, || {
                let ball = Ball(AtomicU32::new(0));
                seen = std::thread::scope(|scope| {
                    scope.spawn(|| ball.answer());
                    let trip = ball.trips();
                    ball.0.store(END, Ordering::Release);
                    trip
                });
                seen.is_some()
            });
        assert_eq!(plays, allowed > 1);
        assert!(seen.is_none_or(|trip| trip.is_finite() && trip > 0.0), "{seen:?}");
        // A thread that is told to end ends, and nobody waits for one that does not come.
        for ball in [END, REFUSED, 0, READY] {
            assert_eq!(Ball(AtomicU32::new(ball)).trips(), None);
        }
        Ball(AtomicU32::new(END)).answer();
    }

    #[test]
    fn a_core_is_looked_at() {
        let (mut distance, mut sibling) = (CoreDistance::default(), Sibling::default());
        let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        // The answer may come too late.
        assert!(
            spin(LONG, || distance.look(CpuSet::MAX_CPU, &mut sibling).is_none()),
            "there is no such CPU"
        );
        assert!(spin(LONG, || distance.is_over()));
        if let [only] = cpus[..] {
            assert_eq!(distance.look(only, &mut sibling), None, "there is no other core");
        }
        let mut looks = cpus.iter().take(2).cycle();
        let mut seen = None;
        // Another process may keep the other core busy for a while.
        let sees = cpus.len() > 1
            && spin(LONG, || {
                seen = looks.next().and_then(|cpu| distance.look(*cpu, &mut sibling));
                seen.is_some_and(|s| s != Seen::AWAY)
            });
        assert_eq!(sees, cpus.len() > 1, "one of two CPUs is not this one");
        assert!(seen.is_none_or(|s| s.trip.is_finite() && s.trip > 0.0), "{seen:?}");
        assert!(distance.seen.is_empty(), "only what was seen after slices counts");
    }
}
