//! Tests of the tuner with a model of a cache. No test reads a clock, so none depends on timing.

mod drift;
mod estimate;
mod helpers;
mod pick;
mod probe;
mod schedule;
mod sharing;

use super::core_cache::ALONE_MAX;
use super::length_class::Phase;
use super::probe::Probe;
use super::*;

/// [`RETRY_AFTER`], in ticks of the model.
const SOME_TIME: u64 = 250_000_000;
/// CPU time of two cores for data in a cache that they share, in ticks per byte.
const FAR_WORK: f64 = 0.09;

/// A model of copies of pairs of buffers in turn. The cost of each kernel is as measured on a Sapphire Rapids
/// class Xeon.
struct Model {
    len: usize,
    /// For each pair, true if its destination is in the cache. Used if the working set fits.
    cached: Vec<bool>,
    /// True if the working set fits the cache.
    hot: bool,
    next: usize,
    /// True if other cores help with shared copies.
    helped: bool,
    /// True if cached data is in a cache that cores share. Two cores copy it in two thirds of the time.
    far: bool,
    /// Number of copies by one core.
    alone: usize,
    /// Number of copies to lines that were just written, where streaming gains nothing.
    written: usize,
    noise: u64,
    noisy: bool,
    /// Ticks of all copies so far.
    now: u64,
}

impl Model {
    fn new(len: usize, pairs: usize, hot: bool) -> Self {
        Self {
            len,
            cached: vec![false; pairs],
            hot,
            next: 0,
            helped: false,
            far: false,
            alone: 0,
            written: 0,
            noise: 0x9e37_79b9_7f4a_7c15,
            noisy: false,
            now: 1,
        }
    }

    /// Returns the ticks of the next copy without noise. The kernel determines whether the destination is
    /// cached afterwards.
    fn copy(&mut self, streaming: bool, alone: bool) -> f64 {
        let away = self.helped && !alone;
        self.alone += usize::from(!away);
        let written = self.written > 0;
        self.written = self.written.saturating_sub(1);
        let cached = std::mem::replace(&mut self.cached[self.next], !streaming && !away);
        self.next = (self.next + 1) % self.cached.len();
        if self.far && self.hot && !streaming {
            // The elapsed time grows in steps, as if both cores ended at the same time.
            let share_is_faster = if self.next.is_multiple_of(2) { 0.0 } else { FAR_WORK };
            return if away { share_is_faster } else { 0.07 } * self.len as f64;
        }
        if away && self.hot && !streaming {
            return 0.14 * self.len as f64; // another core fetches the data from this core's cache
        }
        let per_byte = match (self.hot, streaming, cached) {
            (true, false, true) => 0.05,
            (true, false, false) => 0.14,
            (true, true, true) => 0.32, // dirty lines are written to memory first
            (true, true, false) => 0.12,
            (false, false, _) => 0.28,
            (false, true, _) if written => 0.28,
            (false, true, _) => 0.16,
        };
        per_byte * self.len as f64
    }

    /// Returns measurement noise: up to 10 % in either direction, and an occasional preemption.
    fn disturbance(&mut self) -> f64 {
        if !self.noisy {
            return 1.0;
        }
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        match self.noise % 1000 {
            0..10 => 40.0,
            other => 0.9 + other as f64 / 5000.0,
        }
    }

    /// Makes `count` copies with the kernels that the tuner selects. Returns their ticks without noise.
    fn run(&mut self, tuner: &mut CopyTuner, count: usize) -> f64 {
        let mut total = 0.0;
        for _ in 0..count {
            let pick = tuner.pick(self.len, CacheHint::Auto);
            let ticks = self.copy(pick.streaming, pick.alone);
            total += ticks;
            let off = self.disturbance();
            let work = if self.far && self.hot && !pick.alone && !pick.streaming {
                FAR_WORK * self.len as f64
            } else {
                ticks
            };
            let (ticks, work) = ((ticks * off) as u64, (work * off) as u64);
            let begun = self.now;
            self.now += ticks;
            if pick.is_shared_trial() {
                tuner.record_shared(pick, ticks, work, self.len);
            } else {
                tuner.record(pick, work, self.len);
            }
            if pick.is_timed() {
                tuner.schedule_retry(pick, begun);
            }
        }
        total
    }

    /// Returns the cost of `count` copies with the better kernel, as if it were known from the start.
    fn best(&self, count: usize) -> f64 {
        (if self.hot { 0.05 } else { 0.16 }) * (self.len * count) as f64
    }
}

fn tuner() -> CopyTuner {
    // Any kernel suffices, because the model determines its cost.
    let classes = std::array::from_fn(|index| LengthClass::new(index, ALONE_MAX));
    CopyTuner {
        hot_cost: 0.05,
        retry_after: SOME_TIME,
        classes,
        ..CopyTuner::with_streaming(Some(Kernel::memcpy()))
    }
}

impl CopyTuner {
    /// Makes the next copy of `len` bytes a shared copy of a trial whose time counts.
    pub(crate) fn begin_trial(&mut self, len: usize) {
        let index = class_of(len);
        let class = &mut self.classes[index];
        (class.sharing.alone_max, class.streaming, class.probe) = (len, false, Probe::new(false));
        (class.phase, class.schedule.left, class.sharing.postponed) = (Phase::Probing, 1, 0);
    }
}

const LENGTHS: [usize; 6] = [16 << 10, 64 << 10, 100_000, 256 << 10, 1 << 20, 64 << 20];
