//! [`Learner`] chooses the faster engine for each class of copies from measured times.

#[cfg(test)]
mod tests;

/// The two engines of an [`AutoEngine`](super::AutoEngine).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Cpu = 0,
    Device = 1,
}

/// Number of classes of lengths, which are powers of two up to the longest descriptor.
pub(super) const LENGTHS: usize = 40;
/// Number of classes of descriptors in flight: 1; 2 to 7; 8 and more.
pub(super) const DEPTHS: usize = 3;
/// Number of descriptors in a part of a run, for each class of descriptors in flight. The number grows with
/// the depth, because deeper queues take longer to fill.
const RUN_PART_LEN: [u32; DEPTHS] = [4, 8, 32];
/// Number of parts of a run. The shortest part determines the cost, because a disturbance only makes a part
/// longer.
const RUN_PARTS: usize = 3;
/// Maximum growth of a cost by one run, because a disturbance may last longer than a run. A higher cost is
/// accepted if copies before the run took as long.
const MAX_COST_GROWTH: f32 = 1.25;
/// Number of parts of a long run, which also ends after [`LONG_RUN_NS`]. The first run on the CPU is long,
/// and a new trial begins only after this many slow parts. Long runs are used for lengths at which the CPU's
/// engine tunes itself: at first, and occasionally later, it tries other copy methods, which makes hundreds
/// of its copies slow.
const LONG_RUN_PARTS: usize = 48;
/// Nanoseconds after which a long run ends.
const LONG_RUN_NS: f32 = 20e6;
/// If an engine's cost exceeds the other engine's by this ratio, its run ends early: before the last part, or
/// after [`CLEARLY_SLOWER_NS`].
const CLEARLY_SLOWER: f32 = 1.25;
/// Nanoseconds after which the run of a clearly slower engine ends.
const CLEARLY_SLOWER_NS: f32 = 4e6;
/// Maximum number of descriptors between two trials, which are runs on both engines.
const MAX_BETWEEN_TRIALS: u32 = 250_000;
/// Binary logarithm of the shortest length for which the CPU's engine tunes itself.
const TUNED_LEN_LOG2: u8 = 14;
/// Number of copies of the CPU from the start of one timed sample to the next, for shorter lengths.
const SAMPLE_EVERY: u32 = 16_384;
/// Binary logarithm of the shortest length for which each copy of the CPU is timed. In some virtual machines,
/// reading the clock twice takes 60 ns, and a copy of 64 KiB takes 570 ns.
const ALWAYS_TIMED_LEN_LOG2: u8 = 20;
/// Maximum share of the time that trials of the slower engine may cost.
const MAX_TRIAL_SHARE: f32 = 1.0 / 200.0;
/// Number of trials at the beginning that may cost more. The last of them may cost four times
/// [`MAX_TRIAL_SHARE`], and each earlier trial four times the cost of the next one.
const EARLY_TRIALS: u32 = 3;

/// A class of copies: a range of descriptors in flight, and a range of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    depth: u8,
    len: u8,
}

impl Class {
    #[inline]
    pub(super) const fn new(in_flight: usize, len: usize) -> Self {
        let depth = match in_flight {
            0..=1 => 0,
            2..=7 => 1,
            _ => 2,
        };
        let log = usize::BITS - 1 - (len | 1).leading_zeros();
        Self { depth, len: if log < LENGTHS as u32 { log as u8 } else { LENGTHS as u8 - 1 } }
    }

    /// Returns the minimum and maximum number of descriptors in flight of the class.
    pub(super) const fn in_flight(self) -> (usize, usize) {
        match self.depth {
            0 => (0, 1),
            1 => (2, 7),
            _ => (8, usize::MAX),
        }
    }

    /// Returns the minimum length of the class in bytes. All its lengths are less than twice this length.
    pub(super) const fn least(self) -> usize {
        1 << self.len
    }

    /// Returns the number of copies of the CPU from the start of one sample to the next, and the number of
    /// copies in a sample.
    fn sampling(self) -> (u32, u32) {
        let sample = RUN_PART_LEN[self.depth as usize] * RUN_PARTS as u32;
        match self.len {
            ..TUNED_LEN_LOG2 => (SAMPLE_EVERY, sample),
            len => (sample << ALWAYS_TIMED_LEN_LOG2.saturating_sub(len), sample),
        }
    }

    /// Returns the index of the class in a table of all classes.
    pub(super) const fn index(self) -> usize {
        self.depth as usize * LENGTHS + self.len as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialPhase {
    /// A run: all copies of the class go to this engine and are timed.
    Run(Engine),
    /// Between trials: the copies go to this engine, because it is the faster one.
    Settled(Engine),
}

#[derive(Clone, Copy, Debug)]
struct ClassState {
    phase: TrialPhase,
    /// Number of descriptors until the next trial.
    left: u32,
    /// Number of trials since a change of the costs was noticed.
    trials: u32,
    /// Number of descriptors of the CPU since the start of the last sample.
    since_sample: u32,
    /// Number of descriptors that the current sample still needs.
    sample_left: u32,
    /// Nanoseconds per descriptor on each engine. 0 until measured.
    cost: [f32; 2],
    /// A cost that was observed between trials and led to a new trial; otherwise 0.
    seen: [f32; 2],
    /// Nanoseconds and number of descriptors of the run's current part.
    part: (f32, u32),
    /// Number of the run's ended parts.
    done: usize,
    /// Nanoseconds of all ended parts.
    time: f32,
    /// Nanoseconds per descriptor in the shortest ended part.
    shortest: f32,
}

/// Chooses the engine for each copy. In a trial, all copies of a class run first on one engine and then on
/// the other. Until the next trial the faster engine gets the copies.
#[derive(Debug)]
pub(super) struct Learner {
    states: Box<[ClassState]>,
}

impl Learner {
    pub(super) fn new() -> Self {
        let state = ClassState {
            phase: TrialPhase::Run(Engine::Cpu),
            left: 0,
            trials: 0,
            since_sample: 0,
            sample_left: 0,
            cost: [0.0; 2],
            seen: [0.0; 2],
            part: (0.0, 0),
            done: 0,
            time: 0.0,
            shortest: f32::INFINITY,
        };
        Self { states: vec![state; DEPTHS * LENGTHS].into_boxed_slice() }
    }

    /// Returns the engine for a copy, and true if a copy of the CPU has to be timed. All copies of the device
    /// are timed.
    #[inline]
    pub(super) fn choose(&mut self, class: Class) -> (Engine, bool) {
        let state = &mut self.states[class.index()];
        match state.phase {
            TrialPhase::Settled(engine) if state.left > 0 => {
                state.left -= 1;
                (engine, engine == Engine::Cpu && state.samples(class))
            }
            TrialPhase::Settled(_) => {
                state.begin(Engine::Cpu);
                (Engine::Cpu, true)
            }
            TrialPhase::Run(engine) => (engine, true),
        }
    }

    /// Reserves up to `most` next copies for the CPU, without further calls of [`choose`](Self::choose).
    /// Returns the number of reserved copies.
    #[inline]
    pub(super) fn reserve_streak(&mut self, class: Class, most: u32) -> u32 {
        let state = &mut self.states[class.index()];
        if state.phase != TrialPhase::Settled(Engine::Cpu) || state.sample_left > 0 || state.slows_down(class)
        {
            return 0;
        }
        let remaining = state.left.min(most).min(class.sampling().0.saturating_sub(state.since_sample + 1));
        state.left -= remaining;
        state.since_sample = state.since_sample.saturating_add(remaining);
        remaining
    }

    /// Takes back the copies of a streak that were not made.
    pub(super) fn return_streak(&mut self, class: Class, remaining: u32) {
        let state = &mut self.states[class.index()];
        state.left = state.left.saturating_add(remaining).min(MAX_BETWEEN_TRIALS);
    }

    /// Returns the total nanoseconds that the current run has recorded.
    #[cfg(test)]
    pub(super) fn timed(&self, class: Class) -> f32 {
        let state = &self.states[class.index()];
        state.time + state.part.0
    }

    /// Records that one copy took `nanos`. Returns the costs of both engines if this ended a trial.
    pub(super) fn record(&mut self, class: Class, engine: Engine, nanos: f32) -> Option<[f32; 2]> {
        let state = &mut self.states[class.index()];
        let (TrialPhase::Run(timed) | TrialPhase::Settled(timed)) = state.phase;
        if timed != engine {
            return None;
        }
        state.part.0 += nanos;
        state.part.1 += 1;
        let length = RUN_PART_LEN[class.depth as usize];
        if state.part.1 < length {
            return None;
        }
        let took = state.part.0 / length as f32;
        (state.shortest, state.done) = (state.shortest.min(took), state.done + 1);
        state.time += std::mem::take(&mut state.part).0;
        match state.phase {
            TrialPhase::Run(engine) => state.end_part(class, engine),
            TrialPhase::Settled(engine) => {
                state.watch(class, engine, took);
                None
            }
        }
    }

    /// Forgets the measured costs of the device.
    pub(super) fn forget_device(&mut self) {
        for state in &mut self.states {
            (state.cost[Engine::Device as usize], state.trials) = (0.0, 0);
            state.begin(Engine::Cpu);
        }
    }
}

impl ClassState {
    /// Returns true if a copy has to be timed while the CPU gets all copies of the class, because the CPU's
    /// cost can change, for example when the memory is no longer cached.
    fn samples(&mut self, class: Class) -> bool {
        let (every, sample) = class.sampling();
        self.since_sample += 1;
        if self.since_sample >= every {
            (self.since_sample, self.sample_left) = (0, sample);
        }
        let sampled = self.sample_left > 0;
        self.sample_left -= u32::from(sampled);
        sampled || self.slows_down(class)
    }

    /// Returns true if the last part took longer than expected. Then each copy is timed until a part is fast
    /// again.
    fn slows_down(&self, class: Class) -> bool {
        class.len >= TUNED_LEN_LOG2 && self.done > 0
    }

    fn begin(&mut self, engine: Engine) {
        self.phase = TrialPhase::Run(engine);
        self.restart();
    }

    /// Starts again with the first part of a run.
    fn restart(&mut self) {
        (self.part, self.done, self.time, self.shortest) = ((0.0, 0), 0, 0.0, f32::INFINITY);
    }

    /// Returns true if the run has all its parts. `long`: a long run is needed.
    fn is_complete(&self, class: Class, long: bool) -> bool {
        let is_long = self.done >= LONG_RUN_PARTS || self.time >= LONG_RUN_NS;
        self.done >= RUN_PARTS && (!long || class.len < TUNED_LEN_LOG2 || is_long)
    }

    /// Ends a part of a run. Returns both costs if this ended a trial.
    fn end_part(&mut self, class: Class, engine: Engine) -> Option<[f32; 2]> {
        let (own, rival) = (self.cost[engine as usize], 1 - engine as usize);
        let other = self.cost[rival].max(self.seen[rival]);
        // The engine was slower before, and the parts so far took far longer, so further parts cannot change
        // the choice.
        let enough = self.done == RUN_PARTS - 1 || self.time >= CLEARLY_SLOWER_NS;
        let clearly_slower = enough && own > other && other > 0.0 && self.shortest > CLEARLY_SLOWER * other;
        let first = own == 0.0;
        if !clearly_slower && !self.is_complete(class, first && engine == Engine::Cpu) {
            return None;
        }
        let seen = std::mem::take(&mut self.seen[engine as usize]);
        let most = if first { f32::INFINITY } else { (own * MAX_COST_GROWTH).max(seen) };
        self.cost[engine as usize] = self.shortest.min(most);
        if engine == Engine::Cpu && !clearly_slower {
            self.begin(Engine::Device);
            return None;
        }
        Some(self.settle(class))
    }

    /// Begins a trial if the engine that gets all copies has become slower than the other engine was.
    fn watch(&mut self, class: Class, engine: Engine, took: f32) {
        if took <= 1.1 * self.cost[0].max(self.cost[1]) {
            self.restart();
        } else if self.is_complete(class, true) {
            (self.seen[engine as usize], self.trials) = (self.shortest, 0);
            self.begin(Engine::Cpu);
        }
    }

    fn settle(&mut self, class: Class) -> [f32; 2] {
        let [cpu, device] = self.cost;
        let choice = if device < cpu { Engine::Device } else { Engine::Cpu };
        let (faster, slower) = (cpu.min(device).max(1.0), cpu.max(device).max(1.0));
        let run = RUN_PART_LEN[class.depth as usize] * RUN_PARTS as u32;
        let apart = run as f32 * (slower / faster - 1.0) / MAX_TRIAL_SHARE;
        // A run may have been disturbed, so the first trials follow each other soon.
        let part = 4_f32.powi(self.trials.min(EARLY_TRIALS) as i32 - EARLY_TRIALS as i32);
        self.left = (apart * part).min(MAX_BETWEEN_TRIALS as f32).max((16 * run) as f32) as u32;
        self.trials += 1;
        self.begin(choice);
        (self.phase, self.seen) = (TrialPhase::Settled(choice), [0.0; 2]);
        self.cost
    }
}
