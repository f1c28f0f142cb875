//! [`Cell`]: learns the fastest method for one operation and one range of lengths.
//!
//! A cell is shared by all threads and signal handlers of the program without a lock. An update that is lost
//! delays a decision, and harms nothing else.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The methods to execute a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Method {
    /// The C library's function.
    Library,
    /// A loop that writes past the cache.
    Stream,
    /// A work queue of Intel DSA.
    Device,
}

impl Method {
    pub(crate) const ALL: [Self; 3] = [Self::Library, Self::Stream, Self::Device];

    fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Library,
            1 => Self::Stream,
            _ => Self::Device,
        }
    }
}

/// A set of methods: one bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Methods(u8);

impl Methods {
    /// The C library, which is always available.
    pub(crate) const LIBRARY: Self = Self(1);

    pub(crate) const fn with(self, method: Method) -> Self {
        Self(self.0 | 1 << method as u8)
    }

    pub(crate) fn has(self, method: Method) -> bool {
        self.0 & 1 << method as u8 != 0
    }

    fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns method `number` of the set, in the order of [`Method::ALL`].
    fn get(self, number: u32) -> Method {
        let available = Method::ALL.into_iter().filter(|method| self.has(*method));
        available.into_iter().nth(number as usize).unwrap_or(Method::Library)
    }
}

/// Number of calls by each method before the first decision.
pub(crate) const FIRST_TRIALS: u32 = 3;
/// Number of calls after a decision until the first trial of another method. The number doubles with each
/// trial.
const FIRST_BETWEEN: u32 = 16;
/// Maximum number of calls between two trials while the C library is chosen.
const MAX_BETWEEN: u32 = 1024;
/// The same while another method is chosen. The C library is tried more often, because it becomes faster as
/// soon as the program works on data in the cache.
const MAX_BETWEEN_LIBRARY: u32 = 32;
/// While the C library is chosen, trials may take 1/100 of the time.
const MAX_TRIAL_SHARE: f32 = 100.0;
/// The device must be this much faster.
const DEVICE_MARGIN: f32 = 1.1;

/// State of one operation and one range of lengths.
pub(crate) struct Cell {
    /// Number of calls.
    calls: AtomicU32,
    /// Number of the call that is the next trial.
    next_trial: AtomicU32,
    between_trials: AtomicU32,
    chosen: AtomicU8,
    /// Smoothed ticks per byte of each method, as bits of an `f32`. 0 while unknown.
    costs: [AtomicU32; 3],
    /// Number of calls of each method, and their bytes.
    done: [[AtomicU64; 2]; 3],
}

impl Cell {
    pub(crate) const fn new() -> Self {
        Self {
            calls: AtomicU32::new(0),
            next_trial: AtomicU32::new(0),
            between_trials: AtomicU32::new(FIRST_BETWEEN),
            chosen: AtomicU8::new(Method::Library as u8),
            costs: [const { AtomicU32::new(0) }; 3],
            done: [const { [const { AtomicU64::new(0) }; 2] }; 3],
        }
    }

    /// Chooses the method of the next call.
    pub(crate) fn pick(&self, methods: Methods) -> Method {
        let count = methods.count();
        if count == 1 {
            return Method::Library;
        }
        let call = self.calls.fetch_add(1, Relaxed);
        if call < FIRST_TRIALS * count {
            // Every second round has the reverse order, so that no method always follows the same other one.
            let (round, place) = (call / count, call % count);
            return methods.get(if round.is_multiple_of(2) { place } else { count - 1 - place });
        }
        let chosen = self.chosen();
        if (call.wrapping_sub(self.next_trial.load(Relaxed)) as i32) < 0 {
            return if methods.has(chosen) { chosen } else { Method::Library };
        }
        let between = self.between_trials.load(Relaxed);
        // The other methods take turns.
        let turn = (between.trailing_zeros() + call / MAX_BETWEEN) % (count - 1);
        let mut others = Method::ALL.into_iter().filter(|other| methods.has(*other) && *other != chosen);
        let other = others.nth(turn as usize).unwrap_or(Method::Library);
        let pause = between.max(self.pause(chosen, other));
        self.next_trial.store(call.wrapping_add(pause), Relaxed);
        let max = if chosen == Method::Library { MAX_BETWEEN } else { MAX_BETWEEN_LIBRARY };
        self.between_trials.store((2 * between).min(max), Relaxed);
        other
    }

    /// Returns the number of calls that pay for a trial of a method that is slower than the C library.
    fn pause(&self, chosen: Method, other: Method) -> u32 {
        match (self.cost(Method::Library), self.cost(other)) {
            (Some(library), Some(other)) if chosen == Method::Library => {
                ((other / library - 1.0).clamp(0.0, 100.0) * MAX_TRIAL_SHARE) as u32
            }
            _ => 0,
        }
    }

    /// Records that a call of `len` bytes by `method` took `ticks`, and decides again. Streaming must be
    /// `margin` times as fast as the C library.
    pub(crate) fn record(&self, method: Method, ticks: u64, len: usize, margin: f32) {
        let cost = &self.costs[method as usize];
        let (old, new) = (f32::from_bits(cost.load(Relaxed)), ticks as f32 / len as f32);
        // The cost falls fast and rises slowly, so that an interrupted call has little effect. In a program
        // that copies data both inside and outside the cache, this favours the C library.
        let next = if old == 0.0 {
            new
        } else if new < old {
            old - (old - new) / 2.0
        } else {
            old + (new.min(4.0 * old) - old) / 8.0
        };
        cost.store(next.max(f32::MIN_POSITIVE).to_bits(), Relaxed);
        let chosen = self.decide(margin);
        if self.chosen.swap(chosen as u8, Relaxed) != chosen as u8 {
            self.between_trials.store(FIRST_BETWEEN, Relaxed);
        }
    }

    /// Counts a call.
    pub(crate) fn count(&self, method: Method, len: usize) {
        let [calls, bytes] = &self.done[method as usize];
        calls.fetch_add(1, Relaxed);
        bytes.fetch_add(len as u64, Relaxed);
    }

    fn decide(&self, margin: f32) -> Method {
        let [library, stream, device] = Method::ALL.map(|method| self.cost(method));
        let Some(mut best) = library else {
            return Method::Library;
        };
        let mut chosen = Method::Library;
        if let Some(stream) = stream.filter(|stream| best >= margin * stream) {
            (chosen, best) = (Method::Stream, stream);
        }
        if device.is_some_and(|device| best >= DEVICE_MARGIN * device) {
            chosen = Method::Device;
        }
        chosen
    }

    /// Returns the current choice.
    pub(crate) fn chosen(&self) -> Method {
        Method::from_number(self.chosen.load(Relaxed))
    }

    /// Returns the smoothed ticks per byte of a method, or `None` if it has not been tried.
    pub(crate) fn cost(&self, method: Method) -> Option<f32> {
        Some(f32::from_bits(self.costs[method as usize].load(Relaxed))).filter(|cost| *cost > 0.0)
    }

    /// Returns the number of calls of a method so far, and their bytes.
    pub(crate) fn done(&self, method: Method) -> (u64, u64) {
        let [calls, bytes] = &self.done[method as usize];
        (calls.load(Relaxed), bytes.load(Relaxed))
    }
}

/// Returns how many times as fast as the C library streaming must be, for calls of `len` bytes.
///
/// Streaming leaves the destination in memory. Reading it back once must not cost more than streaming has
/// saved. The C library leaves the whole destination in a core's own cache of `own_cache` bytes if it fits,
/// and a part of a longer one. A fill saves less than a copy, because it reads nothing from memory.
pub(crate) fn margin(fills: bool, len: usize, own_cache: usize) -> f32 {
    match (fills, len <= own_cache) {
        (false, true) => 1.4,
        (false, false) => 1.3,
        (true, true) => 2.2,
        (true, false) => 1.6,
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const TWO: Methods = Methods::LIBRARY.with(Method::Stream);
    const THREE: Methods = TWO.with(Method::Device);

    /// Makes calls that take the given ticks with each method. Returns the number of calls of each.
    fn calls(cell: &Cell, methods: Methods, number: u32, ticks: [u64; 3]) -> [u32; 3] {
        let mut made = [0; 3];
        for _ in 0..number {
            let method = cell.pick(methods);
            made[method as usize] += 1;
            cell.record(method, ticks[method as usize], 1000, 1.25);
        }
        made
    }

    #[test]
    fn the_first_calls_try_each_method_equally() {
        let cell = Cell::new();
        assert_eq!(calls(&cell, THREE, 3 * FIRST_TRIALS, [100; 3]), [FIRST_TRIALS; 3]);
        let order: Vec<_> = (0..4).map(|_| Cell::new()).map(|cell| cell.pick(TWO)).collect();
        assert_eq!(order, [Method::Library; 4]);
    }

    #[test]
    fn the_fastest_method_gets_the_calls() {
        for (ticks, fastest) in [
            ([100, 200, 300], Method::Library),
            ([100, 90, 100], Method::Library), // within the margin
            ([100, 50, 60], Method::Stream),
            ([100, 80, 70], Method::Device),
            ([100, 120, 90], Method::Device),
            ([100, 120, 95], Method::Library), // within the margin
        ] {
            let cell = Cell::new();
            calls(&cell, THREE, 3 * FIRST_TRIALS, ticks);
            assert_eq!(cell.chosen(), fastest, "{ticks:?}");
            let made = calls(&cell, THREE, 100_000, ticks);
            let least = if fastest == Method::Library { 99_700 } else { 96_500 };
            assert!(made[fastest as usize] > least, "{ticks:?}: {made:?}");
            assert!(made.iter().all(|calls| *calls > 20), "all are tried again: {made:?}");
        }
    }

    #[test]
    fn a_method_that_is_not_available_is_never_chosen() {
        let cell = Cell::new();
        assert_eq!(calls(&cell, TWO, 10_000, [100, 80, 1])[2], 0);
        assert_eq!(calls(&cell, Methods::LIBRARY, 100, [100, 1, 1]), [100, 0, 0]);
        let lost = Cell::new();
        calls(&lost, THREE, 100, [100, 90, 10]);
        assert_eq!(lost.chosen(), Method::Device);
        assert_eq!(calls(&lost, TWO, 1000, [100, 90, 10])[2], 0, "the device is gone");
    }

    #[test]
    fn a_change_is_noticed() {
        let cell = Cell::new();
        calls(&cell, TWO, 100_000, [100, 200, 0]);
        calls(&cell, TWO, 20_000, [100, 50, 0]);
        assert_eq!(cell.chosen(), Method::Stream);
        calls(&cell, TWO, 4 * MAX_BETWEEN_LIBRARY, [50, 60, 0]);
        assert_eq!(cell.chosen(), Method::Library, "data in the cache is noticed soon");
    }

    #[test]
    fn trials_cost_a_small_part_of_the_time() {
        for slower in [1.0, 2.0, 8.0, 50.0] {
            let cell = Cell::new();
            let stream = (1000.0 * slower) as u64;
            calls(&cell, TWO, 100, [1000, stream, 0]);
            let made = calls(&cell, TWO, 50_000, [1000, stream, 0]);
            let lost = f64::from(made[1]) * (slower - 1.0) / 50_000.0;
            assert!(lost < 0.011, "{slower} times as slow: {made:?}");
        }
    }

    #[test]
    fn an_interrupted_call_decides_nothing() {
        let cell = Cell::new();
        calls(&cell, TWO, 100, [100, 95, 0]);
        cell.record(Method::Library, 10_000_000, 1000, 1.5);
        assert_eq!(cell.chosen(), Method::Library);
        let faster = Cell::new();
        calls(&faster, TWO, 100, [100, 50, 0]);
        faster.record(Method::Stream, 10_000_000, 1000, 1.25);
        assert_eq!(faster.chosen(), Method::Stream);
    }

    #[test]
    fn numbers_of_calls_wrap() {
        let cell = Cell::new();
        calls(&cell, TWO, 100, [100, 50, 0]);
        cell.calls.store(u32::MAX - 50, Relaxed);
        cell.next_trial.store(u32::MAX - 10, Relaxed);
        let made = calls(&cell, TWO, 10_000, [100, 50, 0]);
        assert!((100..500).contains(&made[0]), "{made:?}");
    }

    #[test]
    fn calls_are_counted() {
        let cell = Cell::new();
        cell.count(Method::Stream, 10);
        cell.count(Method::Stream, 20);
        assert_eq!(Method::ALL.map(|method| cell.done(method)), [(0, 0), (2, 30), (0, 0)]);
    }
}
