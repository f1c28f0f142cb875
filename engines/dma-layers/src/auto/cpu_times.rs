//! [`CpuTimes`]: measures the CPU's copies.

use std::time::Instant;

use dma_core::Completion;

use super::device::weight;
use super::learner::{Class, Engine, Learner};

/// Maximum number of copies that are watched at once.
const WATCHED: usize = 64;

/// Copies on the CPU's queue, of which some are timed. The others are watched because they share the measured
/// time. Tokens need not be unique: a wrong match only leads to a wrong time.
#[derive(Debug)]
pub(super) struct CpuTimes {
    watched: Vec<Watched>,
    /// The number of copies that are timed.
    timed: usize,
    /// The time of the CPU's last completion while copies were watched.
    last: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    token: u64,
    weight: usize,
    /// The class and the time of submission, if the copy is timed.
    timed: Option<(Class, Instant)>,
}

impl CpuTimes {
    pub(super) fn new() -> Self {
        Self { watched: Vec::with_capacity(WATCHED), timed: 0, last: Instant::now() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Watches a copy, if there is room.
    pub(super) fn push(&mut self, token: u64, len: usize, timed: Option<(Class, Instant)>) {
        if self.watched.len() < WATCHED {
            self.timed += usize::from(timed.is_some());
            self.watched.push(Watched { token, weight: weight(len), timed });
        }
    }

    #[cold]
    pub(super) fn clear(&mut self) {
        self.watched.clear();
        self.timed = 0;
    }

    /// Forgets all copies if none is timed.
    pub(super) fn forget_unless_timed(&mut self) {
        if self.timed == 0 {
            self.watched.clear();
        }
    }

    /// Records copies that completed. The copies share the time since the last completion, or since their
    /// submission if that was later, by their lengths.
    pub(super) fn take(&mut self, completions: &[Completion], learner: &mut Learner) {
        let now = Instant::now();
        let (mut known, mut total, mut since) = (0, 0, now);
        for completion in completions {
            let rest = &mut self.watched[known..];
            // Copies usually complete in order, so this copy is usually the first.
            let Some(at) = rest.iter().position(|watched| watched.token == completion.token) else {
                total += weight(0);
                continue;
            };
            rest[..=at].rotate_right(1);
            total += rest[0].weight;
            since = rest[0].timed.map_or(since, |(_, at)| since.min(at));
            known += 1;
        }
        let took = now.duration_since(self.last.max(since)).as_nanos() as f32;
        self.last = now;
        for Watched { weight, timed, .. } in self.watched.drain(..known) {
            if let Some((class, _)) = timed {
                self.timed -= 1;
                // No costs are returned here, because a trial ends with the device's run, which follows the
                // CPU's.
                let _ = learner.record(class, Engine::Cpu, took * weight as f32 / total as f32);
            }
        }
        self.forget_unless_timed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shared_by_lengths() {
        let (short, long) = (Class::new(32, 1 << 10), Class::new(32, 2 << 20));
        let (mut times, mut learner) = (CpuTimes::new(), Learner::new());
        for token in 0..8_u64 {
            let now = Instant::now();
            times.push(2 * token, 1 << 10, Some((short, now)));
            times.push(2 * token + 1, 2 << 20, Some((long, now)));
            std::thread::sleep(std::time::Duration::from_millis(1));
            // Copies may complete in any order.
            times.take(&[2 * token + 1, 2 * token].map(Completion::done), &mut learner);
        }
        let [short, long] = [short, long].map(|class| learner.timed(class));
        assert!(long > 1000.0 * short && long >= 8e6, "{short} ns and {long} ns");
        assert!(times.is_empty());
    }

    #[test]
    fn copies_that_are_not_timed_are_forgotten() {
        let (mut times, mut learner) = (CpuTimes::new(), Learner::new());
        times.push(1, 64, None);
        times.forget_unless_timed();
        assert!(times.is_empty());
        times.push(1, 64, None);
        times.push(2, 64, Some((Class::new(2, 64), Instant::now())));
        times.forget_unless_timed();
        times.take(&[Completion::done(2)], &mut learner);
        assert!(times.is_empty(), "an untimed copy is forgotten when no timed copy is left");
        (0..2 * WATCHED as u64)
            .for_each(|token| times.push(token, 64, Some((Class::new(2, 64), Instant::now()))));
        assert_eq!(times.timed, WATCHED);
        times.clear();
        assert!(times.is_empty() && times.timed == 0);
    }
}
