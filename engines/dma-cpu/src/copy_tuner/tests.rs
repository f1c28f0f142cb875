//! Tests of the tuner with a model of a cache. No test reads a clock, so none depends on timing.

use proptest::prelude::*;

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
        (class.alone_max, class.streaming, class.probe_streaming) = (len, false, false);
        (class.phase, class.left, class.postponed) = (Phase::Probing, 1, 0);
    }
}

const LENGTHS: [usize; 6] = [16 << 10, 64 << 10, 100_000, 256 << 10, 1 << 20, 64 << 20];

#[test]
fn hot_settles_for_memcpy() {
    for (len, pairs) in
        [(16 << 10, 1), (16 << 10, 30), (64 << 10, 1), (64 << 10, 8), (256 << 10, 2), (512 << 10, 1)]
    {
        for noisy in [false, true] {
            let (mut tuner, mut model) = (tuner(), Model { noisy, ..Model::new(len, pairs, true) });
            model.run(&mut tuner, 2_000);
            let cost = model.run(&mut tuner, 10_000) / model.best(10_000);
            assert!(cost < 1.05, "{len} x {pairs}, noisy {noisy}: {cost:.3} times the best");
        }
    }
}

/// Long copies are streamed at first. Streaming keeps the destination out of the cache, so `memcpy` is faster
/// only after it has written the whole destination once.
#[test]
fn long_hot_copies_settle_for_memcpy_soon() {
    for (len, pairs) in [(2 << 20, 4), (4 << 20, 1), (4 << 20, 2), (8 << 20, 1)] {
        let (mut tuner, mut model) = (tuner(), Model::new(len, pairs, true));
        model.run(&mut tuner, 400);
        let cost = model.run(&mut tuner, 1_000) / model.best(1_000);
        assert!(cost < 1.08, "{len} x {pairs}: {cost:.3} times the best");
    }
}

/// After streaming, several copies are needed to warm the third level cache again.
#[test]
fn a_probe_waits_for_the_cache_to_be_warm() {
    const COLD: [f64; 6] = [0.17, 0.165, 0.14, 0.13, 0.115, 0.105];
    let (len, mut tuner) = (16 << 20, tuner());
    let (mut copied, mut total) = (0, 0.0);
    for n in 0..1_400 {
        let pick = tuner.pick(len, CacheHint::Auto);
        let per_byte = if pick.streaming { 0.106 } else { *COLD.get(copied).unwrap_or(&0.1) };
        copied = if pick.streaming { 0 } else { copied + 1 };
        tuner.record(pick, (per_byte * len as f64) as u64, len);
        total += if n < 400 { 0.0 } else { per_byte };
    }
    let cost = total / (0.1 * 1_000.0);
    assert!(cost < 1.03, "{cost:.3} times the best");
}

/// A probe evicts the data from the first level cache. The slower copies after it must not cause another
/// probe.
#[test]
fn a_probe_does_not_call_for_another() {
    let (len, mut tuner) = (16 << 10, tuner());
    let (mut probes, mut since) = (0, 0);
    for _ in 0..200_000 {
        let pick = tuner.pick(len, CacheHint::Auto);
        since = if pick.streaming { 0 } else { since + 1 };
        probes += usize::from(pick.streaming);
        let per_byte = match since {
            0 => 0.25,
            1..30 => 0.035,
            _ => 0.0125,
        };
        tuner.record(pick, (per_byte * len as f64) as u64, len);
    }
    assert!(probes < 40, "{probes} copies were slow because of useless probes");
}

/// Cached data is copied by one core, although other cores could help with long copies.
#[test]
fn hot_settles_for_being_left_alone() {
    for (len, pairs) in
        [(64 << 10, 1), (64 << 10, 8), (200_000, 2), (256 << 10, 1), (512 << 10, 1), (1 << 20, 1)]
    {
        for first_cold in [0, 100, 5_000] {
            let (mut tuner, mut model) =
                (tuner().for_cores(2), Model { helped: true, ..Model::new(len, pairs, false) });
            model.run(&mut tuner, first_cold);
            model.hot = true;
            model.run(&mut tuner, 3_000);
            let cost = model.run(&mut tuner, 10_000) / model.best(10_000);
            assert!(cost < 1.06, "{len} x {pairs} after {first_cold} cold: {cost:.3} times the best");
            assert!(!tuner.pick(2 * ALONE_MAX, CacheHint::Auto).alone, "all cores share longer copies");
        }
    }
}

/// One core is almost as fast in a shared cache as in its own, but two cores are faster.
#[test]
fn memory_in_a_shared_cache_is_shared() {
    for (len, pairs) in [(64 << 10, 31), (128 << 10, 9), (256 << 10, 5), (1 << 20, 3)] {
        for noisy in [false, true] {
            let new = Model { helped: true, far: true, noisy, ..Model::new(len, pairs, true) };
            let (mut tuner, mut model) = (tuner().for_cores(2), new);
            let found = (0..20_000).any(|_| {
                model.run(&mut tuner, 1);
                tuner.classes[class_of(len)].share_is_faster
            });
            assert!(found, "{len} x {pairs}, noisy {noisy}: no trial has found sharing faster");
            let before = model.alone;
            model.run(&mut tuner, 20);
            assert_eq!(model.alone, before, "one core copies alone although a trial found sharing faster");
            model.run(&mut tuner, 10_000);
            let alone = model.alone - before;
            assert!(
                alone < 500,
                "{len} x {pairs}, noisy {noisy}: one core made {alone} of 10000 copies alone"
            );
            // The working set shrinks and fits into the core's own cache.
            (model.far, model.cached, model.next) = (false, vec![false], 0);
            model.run(&mut tuner, 20_000);
            let cost = model.run(&mut tuner, 10_000) / model.best(10_000);
            assert!(cost < 1.08, "{len} x {pairs}, noisy {noisy}: {cost:.3} times the best");
        }
    }
}

/// Models a host that migrates virtual CPUs, and a program that makes a few copies at a time.
#[test]
fn an_old_result_is_tried_again_soon() {
    const LEN: usize = 256 << 10;
    let index = class_of(LEN);
    for few in [50, 200, 1_000] {
        let (mut tuner, mut model) =
            (tuner().for_cores(2), Model { helped: true, ..Model::new(LEN, 1, true) });
        model.run(&mut tuner, 100_000);
        assert!(tuner.classes[index].hot && !tuner.classes[index].share_is_faster, "one core copies alone");
        model.far = true;
        let found = (1..100_000 / few).find(|_| {
            model.now += 2 * SOME_TIME;
            model.run(&mut tuner, few);
            tuner.classes[index].share_is_faster
        });
        assert!(found.is_some_and(|times| times * few <= 3_000), "{found:?} times {few}");
    }
}

/// An expensive trial delays the next one, regardless of its age, so that trials cost at most 1/[`PAID_BACK`]
/// of the time.
#[test]
fn a_repeated_trial_is_paid_back() {
    for (len, pause) in [(64 << 10, 0), (256 << 10, 0), (64 << 10, SOME_TIME), (256 << 10, SOME_TIME)] {
        let (mut tuner, mut model) =
            (tuner().for_cores(2), Model { helped: true, ..Model::new(len, 1, true) });
        model.run(&mut tuner, 50_000);
        let (mut cost, mut trials, mut trial) = (0.0, 0, false);
        const ALL: usize = 400_000;
        for at in 0..ALL {
            model.now += if at % 100 == 0 { pause } else { 0 };
            cost += model.run(&mut tuner, 1);
            let is = tuner.classes[class_of(len)].is_trial();
            trials += usize::from(is && !std::mem::replace(&mut trial, is));
            trial = is;
        }
        let over = cost / model.best(ALL) - 1.0;
        assert!(over < 1.2 / f64::from(PAID_BACK), "{len}, pauses of {pause}: {over:.4} over the best");
        let often = if pause > 0 { ALL / 40_000 } else { 1 };
        assert!(trials > often, "{len}, pauses of {pause}: {trials} trials");
    }
}

/// Numbers of copies outside of trials and probes.
#[derive(Default)]
struct Outside {
    /// Copies by one core although a trial had shown that sharing is faster.
    alone: usize,
    /// Shared copies after the first trial.
    shared: usize,
    /// For each trial, the number of copies before its end.
    over: Vec<usize>,
}

/// Makes copies of 64 KiB until 20 trials are over. Until trial number `trial` ends, one core takes
/// `slower(trial)` times its best time, and two cores take `shared(trial)` times as long as one.
fn outside(slower: impl Fn(usize) -> f64, shared: impl Fn(usize) -> f64) -> Outside {
    const LEN: usize = 64 << 10;
    let (mut tuner, mut trial, mut shown) = (tuner().for_cores(2), false, false);
    let mut came = Outside::default();
    for copies in 0_usize.. {
        let now = came.over.len();
        let ticks = |per_byte: f64| (per_byte * slower(now) * LEN as f64) as u64;
        let pick = tuner.pick(LEN, CacheHint::Auto);
        shown |= tuner.classes[class_of(LEN)].share_is_faster;
        if !pick.trial && !pick.streaming {
            came.alone += usize::from(shown && pick.alone);
            came.shared += usize::from(now > 0 && !pick.alone);
        }
        if pick.is_shared_trial() {
            tuner.record_shared(pick, ticks(0.07 * shared(now)), ticks(0.07), LEN);
        } else {
            tuner.record(pick, ticks(if pick.streaming { 0.3 } else { 0.07 }), LEN);
        }
        let under_way = tuner.classes[class_of(LEN)].is_trial();
        if std::mem::replace(&mut trial, under_way) && !under_way {
            came.over.push(copies);
        }
        if came.over.len() == 20 {
            break;
        }
    }
    came
}

/// Models other processes that use the cache for some time. Sharing resumes afterwards.
#[test]
fn a_shared_size_stays_shared_after_a_slow_while() {
    for slower in [1.2, 1.5, 1.9] {
        let came = outside(|trial| if trial % 4 == 3 { slower } else { 1.0 }, |_| 0.65);
        assert!(
            came.alone == 0 && came.shared > 1000,
            "with times {slower} times as long in some trials: {}",
            came.alone
        );
    }
}

/// Models other processes that use a core for some time.
#[test]
fn one_trial_that_misleads_changes_nothing() {
    for (right, wrong) in [(0.65, 1.0), (2.0, 0.6)] {
        let changed = |came: &Outside| if right < 1.0 { came.alone } else { came.shared };
        let came = outside(|_| 1.0, |trial| if trial % 3 == 2 { wrong } else { right });
        assert_eq!(changed(&came), 0, "{right} times as long, and {wrong} times in some trials");
        let came = outside(|_| 1.0, |trial| if trial < 10 { right } else { wrong });
        assert!(changed(&came) > 1000, "two consecutive trials change the choice");
        let [.., before, first, second] = came.over[..12] else { unreachable!("there were 20") };
        assert!(second - first < (first - before) / 4, "the second trial follows soon: {:?}", came.over);
    }
}

/// Data outside the caches is shared, whatever trials find, so trials have nothing to pay back.
#[test]
fn an_unchanged_choice_costs_nothing() {
    let (len, mut tuner) = (64 << 10, tuner().for_cores(2));
    let index = class_of(len);
    let (mut ended, mut trial) = (0, false);
    for _ in 0..200_000 {
        let pick = tuner.pick(len, CacheHint::Auto);
        let per_byte = if pick.streaming { 0.25 } else { 0.2 };
        let ticks = (per_byte * len as f64) as u64;
        if pick.is_shared_trial() {
            tuner.record_shared(pick, 3 * ticks, 2 * ticks, len);
        } else {
            tuner.record(pick, ticks, len);
        }
        let class = &tuner.classes[index];
        if std::mem::replace(&mut trial, class.is_trial()) && !trial {
            ended += 1;
            assert!(!class.hot && class.left <= class.rest(index), "{class:?}");
        }
    }
    assert!(ended > 0);
}

/// Copies that are too long for one core's cache are not part of trials, but shorter copies of the same class
/// are.
#[test]
fn a_copy_too_long_for_one_core_is_not_tried() {
    let classes = std::array::from_fn(|index| LengthClass::new(index, 256 << 10));
    for (len, tried) in [(256 << 10, true), ((256 << 10) + 1, false), (500 << 10, false)] {
        let new = Model { helped: true, far: true, ..Model::new(len, 5, true) };
        let (mut tuner, mut model) = (CopyTuner { classes, ..tuner() }.for_cores(2), new);
        let trials = (0..10_000).filter(|_| {
            let pick = tuner.pick(len, CacheHint::Auto);
            let ticks = model.copy(pick.streaming, pick.alone) as u64;
            tuner.record(pick, ticks, len);
            pick.trial
        });
        assert_eq!(trials.count() > 0, tried, "{len}");
    }
}

/// All cores share the copies of cold data. One core copies cold data alone only in probes.
#[test]
fn cold_is_rarely_left_alone() {
    for len in [64 << 10, 256 << 10, 1 << 20] {
        let (mut tuner, mut model) =
            (tuner().for_cores(2), Model { helped: true, ..Model::new(len, 1000, false) });
        model.run(&mut tuner, 5_000);
        let alone = (0..10_000)
            .filter(|_| {
                let pick = tuner.pick(len, CacheHint::Auto);
                let ticks = model.copy(pick.streaming, pick.alone);
                tuner.record(pick, ticks as u64, len);
                pick.alone
            })
            .count();
        assert!(alone < 300, "{len}: {alone} of 10000");
    }
}

#[test]
fn cold_settles_for_streaming() {
    for len in LENGTHS {
        for noisy in [false, true] {
            let (mut tuner, mut model) = (tuner(), Model { noisy, ..Model::new(len, 1000, false) });
            model.run(&mut tuner, 2_000);
            let cost = model.run(&mut tuner, 10_000) / model.best(10_000);
            assert!(cost < 1.04, "{len}, noisy {noisy}: {cost:.3} times the best");
        }
    }
}

#[test]
fn cold_is_learned_within_a_few_copies() {
    for len in LENGTHS {
        let (mut tuner, mut model) = (tuner(), Model::new(len, 1000, false));
        model.run(&mut tuner, 10);
        let cost = model.run(&mut tuner, 1_000) / model.best(1_000);
        assert!(cost < 1.10, "{len}: {cost:.3} times the best");
    }
}

/// A deep queue reports the time of a copy only after all earlier copies have ended.
#[test]
fn cold_is_learned_however_deep_the_queue() {
    for len in [512 << 10, 1 << 20, 2 << 20] {
        for depth in [1, 16, 32, 64, 500, 4096] {
            let (mut tuner, mut model) = (tuner().for_depth(depth), Model::new(len, 64, false));
            let mut flying = std::collections::VecDeque::new();
            let mut slow = 0;
            for _ in 0..(20 * depth).max(1000) {
                if flying.len() == depth {
                    let (pick, ticks): (Pick, f64) = flying.pop_front().unwrap();
                    tuner.record(pick, ticks as u64, len);
                }
                let pick = tuner.pick(len, CacheHint::Auto);
                slow += usize::from(!pick.streaming);
                flying.push_back((pick, model.copy(pick.streaming, pick.alone)));
            }
            // The limit covers the copies in flight during the first probes, and later `memcpy` probes.
            assert!(slow < 60 + 2 * depth, "{len} x {depth}: {slow} copies by the slower kernel");
        }
    }
}

/// The first copies of a program may write memory that it has just written, so their times may be unlike
/// those of later copies.
#[test]
fn a_wrong_first_impression_is_soon_corrected() {
    for len in LENGTHS {
        for written in [5, 10, 20, 40, 80, 150] {
            let (mut tuner, mut model) =
                (tuner().for_cores(2), Model { helped: true, written, ..Model::new(len, 1000, false) });
            model.run(&mut tuner, 100 + 4 * written);
            let cost = model.run(&mut tuner, 500) / model.best(500);
            assert!(cost < 1.15, "{len} after {written} misleading copies: {cost:.3} times the best");
        }
    }
}

/// The working set leaves the cache and returns, long after the tuner has settled.
#[test]
fn a_shift_is_followed_soon() {
    for (len, pairs) in [(16 << 10, 30), (64 << 10, 1), (64 << 10, 8), (256 << 10, 2), (1 << 20, 1)] {
        let (mut tuner, mut model) = (tuner(), Model::new(len, pairs, true));
        for cycle_pos in 0..6 {
            model.run(&mut tuner, 20_000);
            model.hot = !model.hot;
            let learning = (16 << 20) / len + 250;
            model.run(&mut tuner, learning);
            let cost = model.run(&mut tuner, 2_000) / model.best(2_000);
            assert!(
                cost < 1.15,
                "{len} x {pairs}, turn {cycle_pos}: {cost:.3} times the best after {learning} copies"
            );
        }
    }
}

/// Returns the number of picks of `len` bytes from the time when the working set leaves the cache, after
/// `hot_picks` picks, until streaming is selected. In the cache a copy costs `hot` per byte; outside it costs
/// 4 with `memcpy` and 2 with streaming.
fn picks_until_streaming(tuner: &mut CopyTuner, len: usize, hot: f32, hot_picks: usize) -> usize {
    const USED: usize = 20;
    let mut copy = |memcpy: f32| {
        let pick = tuner.pick(len, CacheHint::Auto);
        let per_byte = if pick.streaming { 2.0 } else { memcpy };
        tuner.record(pick, (per_byte * len as f32) as u64, len);
        pick.streaming
    };
    for _ in 0..hot_picks {
        copy(hot);
    }
    let mut in_a_row = 0;
    (0..10_000)
        .take_while(|_| {
            in_a_row = if copy(4.0) { in_a_row + 1 } else { 0 };
            in_a_row < USED
        })
        .count()
}

/// The first level cache is faster than the tuner's reference for cached data. The tuner must still notice
/// that the data has left this cache.
#[test]
fn leaving_the_cache_is_noticed_however_fast_it_was() {
    for len in [16 << 10, 32 << 10, 64 << 10, 128 << 10] {
        for tenths in [3, 5, 6, 7, 8, 10, 12] {
            for hot_picks in (3_000..20_000).step_by(517) {
                let mut tuner = CopyTuner { hot_cost: 1.0, ..tuner() };
                let hot = tenths as f32 / 10.0;
                let picks = picks_until_streaming(&mut tuner, len, hot, hot_picks);
                assert!(picks < 500, "{len}, hot {hot} for {hot_picks} picks: {picks} more picks");
            }
        }
    }
}

/// On a Zen 3, streaming cached data takes 10 to 45 times as long as `memcpy`.
#[test]
fn a_dear_trial_is_paid_back_before_the_next() {
    for len in [64 << 10, 256 << 10, 1 << 20] {
        for dear in [4, 10, 16] {
            // This length exceeds a core's own cache, so the tuner keeps probing.
            let (mut tuner, mut spent) = (tuner(), 0);
            let copies = 1000;
            for _ in 0..copies {
                let pick = tuner.pick(len, CacheHint::Auto);
                let per_byte = if pick.streaming { dear } else { 1 };
                spent += per_byte;
                tuner.record(pick, per_byte * len as u64, len);
            }
            let more = spent as f64 / f64::from(copies) - 1.0;
            // The last trial may have just ended.
            let most = 1.0 / 32.0 + 2.0 * dear as f64 / f64::from(copies);
            assert!(more > 0.0 && more <= most, "{len}, {dear} times: {more:.3} more, at most {most:.3}");
        }
    }
}

/// Other users of the core or cache temporarily slow copies down. The tuner must not try streaming each time,
/// because it is slow for cached data. When the working set leaves the cache, however, the tuner must try
/// streaming soon.
#[test]
fn shifts_that_mean_nothing_are_soon_ignored() {
    for len in [64 << 10, 1 << 20, 4 << 20] {
        let (mut tuner, mut spent, mut least) = (tuner(), 0.0, 0.0);
        for at in 0..10_000 {
            let pick = tuner.pick(len, CacheHint::Auto);
            let memcpy = if at / 50 % 2 == 0 { 0.2 } else { 0.35 };
            let per_byte = if pick.streaming { 2.0 } else { memcpy };
            tuner.record(pick, (per_byte * len as f64) as u64, len);
            (spent, least) = (spent + per_byte, least + memcpy);
        }
        assert!(spent < 1.05 * least, "{len}: {:.3} times the best", spent / least);
        let slow = (0..5_000)
            .filter(|_| {
                let pick = tuner.pick(len, CacheHint::Auto);
                let per_byte = if pick.streaming { 0.5 } else { 1.0 };
                tuner.record(pick, (per_byte * len as f64) as u64, len);
                !pick.streaming
            })
            .count();
        assert!(slow < 2_000, "{len}: the tuner noticed the change after {slow} copies");
    }
}

#[test]
fn a_copy_beyond_a_cores_cache_is_not_left_to_one_core() {
    for (cache, longest) in [
        (None, ALONE_MAX),
        (Some(512 << 10), 256 << 10),
        (Some(2 << 20), 1 << 20),
        (Some(64 << 20), ALONE_MAX),
        (Some(0), 0),
    ] {
        assert_eq!(alone_max(cache), longest, "{cache:?}");
        let classes = std::array::from_fn(|index| LengthClass::new(index, longest));
        for len in [64 << 10, 256 << 10, 512 << 10, 1 << 20] {
            let mut tuner = CopyTuner { classes, ..tuner() };
            let mut alone = 0;
            for _ in 0..2000 {
                let pick = tuner.pick(len, CacheHint::Auto);
                alone += u32::from(pick.alone);
                // The copies are always as fast as the cache.
                let per_byte = if pick.streaming { 0.3 } else { 0.05 };
                tuner.record(pick, (per_byte * len as f64) as u64, len);
            }
            assert_eq!(alone > 1000, len <= longest, "{len} in {cache:?}: {alone} of 2000");
        }
    }
}

/// Models failing copies: the copies of probes are never recorded, and all samples are slower than before
/// while the tuner waits for them.
#[test]
fn a_shift_may_last_as_long_as_probes_are_awaited() {
    for len in [16 << 10, 64 << 10] {
        let mut tuner = tuner();
        for at in 0..200_000 {
            let pick = tuner.pick(len, CacheHint::Auto);
            let lost = at >= 100_000;
            let awaiting = lost && tuner.classes[class_of(len)].phase == Phase::Awaiting;
            let per_byte = if !pick.streaming || awaiting { 20 } else { 2 };
            if !lost || pick.role != Role::Probe {
                tuner.record(pick, per_byte * len as u64, len);
            }
        }
        assert!(tuner.pick(len, CacheHint::Auto).streaming, "{len}: the tuner never selected another kernel");
    }
}

/// Copies of one size are randomly hot or cold. The result must not be worse than either kernel alone.
#[test]
fn a_mixture_costs_no_more_than_one_kernel_alone() {
    let len = 64 << 10;
    let mut totals = [0.0; 3];
    for (way, total) in totals.iter_mut().enumerate() {
        let mut tuner = tuner();
        let (mut hot, mut cold) = (Model::new(len, 8, true), Model::new(len, 1000, false));
        let mut random = 88_172_645_463_325_252_u64;
        for _ in 0..50_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let model = if random % 100 < 50 { &mut hot } else { &mut cold };
            *total += match way {
                0 => model.run(&mut tuner, 1),
                _ => model.copy(way == 1, true),
            };
        }
    }
    let [chosen, streaming, memcpy] = totals;
    assert!(
        chosen < 1.05 * streaming.max(memcpy),
        "{chosen:.3e}, streaming {streaming:.3e}, memcpy {memcpy:.3e}"
    );
}

/// Copies that fail are never recorded. The tuner must learn from the other copies.
#[test]
fn lost_records_do_not_stop_learning() {
    for lost in [3, 6, 8, 20, 300] {
        let (mut tuner, mut model) = (tuner(), Model::new(64 << 10, 1000, false));
        for _ in 0..lost {
            let _ = tuner.pick(model.len, CacheHint::Auto);
        }
        model.run(&mut tuner, 200);
        let cost = model.run(&mut tuner, 1_000) / model.best(1_000);
        assert!(
            cost < 1.15,
            "{lost} samples were lost: a copy takes {cost:.3} times as long as with the best kernel"
        );
    }
}

/// Trials have no result if no copy can be executed at once, for example after fences, or if no time is
/// recorded. The tuner must still follow the working set.
#[test]
fn trials_that_come_to_nothing_stop_nothing() {
    let len = 64 << 10;
    for lost in [false, true] {
        let mut tuner = tuner().for_cores(2);
        let mut trials = 0;
        for at in 0..400_000 {
            let pick = tuner.pick(len, CacheHint::Auto).shared();
            let per_byte = match (at < 200_000, pick.streaming) {
                (true, false) => 0.06,
                (true, true) => 0.3,
                (false, false) => 0.28,
                (false, true) => 0.16,
            };
            let ticks = (per_byte * len as f64) as u64;
            trials += usize::from(pick.is_shared_trial());
            assert!(!(pick.trial && pick.alone), "the copy was not executed by one core alone");
            if !pick.is_shared_trial() {
                tuner.record(pick, ticks, len);
            } else if !lost {
                tuner.record_shared(pick, ticks, ticks, len);
            }
        }
        assert!((1..40_000).contains(&trials), "{trials} copies in trials");
        assert!(
            tuner.pick(len, CacheHint::Auto).streaming,
            "the data left the cache, but the tuner did not select streaming"
        );
    }
}

/// Cached copies of 256 KiB in bursts, with pauses in which the other core goes to sleep.
struct Bursts {
    burst: usize,
    /// Number of copies of a burst before the helper is awake.
    postponed: usize,
    /// Number of copies with one doorbell.
    batch: usize,
    /// The first copy for which the helper is useful.
    from: usize,
    /// From this copy on, the helper does not wake up.
    to: usize,
    /// Length of the pauses, in ticks.
    pause: u64,
}

impl Bursts {
    /// Returns the number of shared copies in the last quarter, and the number of wake-ups for trials in all
    /// copies.
    fn run(&self, tuner: &mut CopyTuner, copies: usize) -> (usize, usize) {
        let len = 256 << 10;
        let (mut shared, mut woken, mut trial, mut now) = (0, 0, false, 1);
        for at in 0..copies {
            now += if at % self.burst == 0 { self.pause } else { 0 };
            let mut pick = tuner.pick(len, CacheHint::Auto);
            let no_helper = at % self.burst < self.postponed || at >= self.to;
            let sleeps = at % self.burst == 0;
            if at % self.batch == 0 {
                trial = false;
            }
            shared += usize::from(!pick.alone && !pick.streaming && at >= copies / 4 * 3);
            if pick.is_shared_trial() {
                woken += usize::from(no_helper && sleeps && !trial);
                if no_helper {
                    pick = tuner.postpone_trial(pick, !trial, sleeps);
                }
                trial = true;
            }
            let (busy, work) = match (pick.alone, pick.streaming, no_helper) {
                (true, ..) => (0.06, 0.06),
                (_, true, _) => (0.3, 0.3),
                // The caller spends time on the wake-up, and then copies alone.
                (.., true) => (0.15, 0.06),
                (.., false) if at < self.from => (0.06, 0.11),
                (.., false) => (0.036, 0.065),
            };
            let [busy, work] = [busy, work].map(|per_byte| (per_byte * len as f64) as u64);
            if pick.is_shared_trial() {
                tuner.record_shared(pick, busy, work, len);
            } else {
                tuner.record(pick, work, len);
            }
            if pick.is_timed() {
                tuner.schedule_retry(pick, now);
            }
            now += busy;
        }
        (shared, woken)
    }
}

const COPIES: usize = 400_000;

#[test]
fn a_late_helper_may_still_pay() {
    for (burst, postponed, batch) in [(190, 20, 1), (53, 20, 1), (2048, 512, 512), (1024, 256, 256)] {
        let bursts = Bursts { burst, postponed, batch, from: COPIES / 2, to: COPIES, pause: 0 };
        let (shared, _) = bursts.run(&mut tuner().for_cores(2), COPIES);
        assert!(shared > COPIES / 4 * 95 / 100, "{shared} shared, in bursts of {burst}");
    }
}

#[test]
fn a_helper_that_never_comes_is_not_waited_for() {
    let bursts = Bursts { burst: 1, postponed: 1, batch: 1, from: 0, to: 0, pause: 0 };
    let (shared, woken) = bursts.run(&mut tuner().for_cores(2), COPIES);
    assert!(shared < COPIES / 400 && (1..COPIES / 200).contains(&woken), "{shared} shared, {woken} woken");
}

/// Each trial repeatedly wakes a helper for copies that take less time than the wake-up.
#[test]
fn a_helper_woken_for_nothing_is_rarely_woken() {
    for (burst, postponed) in [(20, 3), (40, 10), (8, 7)] {
        let bursts = Bursts { burst, postponed, batch: 1, from: COPIES, to: COPIES, pause: SOME_TIME / 20 };
        let (shared, woken) = bursts.run(&mut tuner().for_cores(2), COPIES);
        assert!(shared < COPIES / 4 * 8 / 100, "{shared} shared, in bursts of {burst}");
        assert!((1..COPIES / 400).contains(&woken), "{woken} woken, in bursts of {burst}");
    }
}

#[test]
fn a_helper_that_stopped_coming_is_forgotten() {
    let bursts = Bursts { burst: 1, postponed: 0, batch: 1, from: 0, to: COPIES / 4, pause: 0 };
    let mut tuner = tuner().for_cores(2);
    assert!(bursts.run(&mut tuner, COPIES / 4).0 > COPIES / 16 * 95 / 100, "shared at first");
    let bursts = Bursts { to: 0, ..bursts };
    let (shared, woken) = bursts.run(&mut tuner, COPIES);
    assert!(shared < COPIES / 400 && woken < COPIES / 200, "{shared} shared, {woken} woken");
}

/// A core is unavailable for some time. A helper that was called once without success has cost little, so it
/// must be called again soon.
#[test]
fn a_helper_called_in_vain_is_soon_called_again() {
    let (len, index) = (256 << 10, 4);
    let rest = |wake_ups: usize| {
        let mut tuner = tuner().for_cores(2);
        tuner.begin_trial(len);
        let mut pick = tuner.pick(len, CacheHint::Auto);
        for at in 0.. {
            tuner.postpone_trial(pick, true, at < wake_ups);
            if !tuner.classes[index].is_trial() {
                break;
            }
            pick = tuner.pick(len, CacheHint::Auto);
        }
        let class = &tuner.classes[index];
        class.left - class.droppable
    };
    assert!((100..1_000).contains(&rest(1)), "{}", rest(1));
    assert!(rest(usize::MAX) > 10_000, "each time: {}", rest(usize::MAX));
}

#[test]
fn an_awaited_copy_is_not_postponed() {
    let mut tuner = tuner().for_cores(2);
    let (len, index) = (256 << 10, 4);
    tuner.begin_trial(len);
    assert!(tuner.pick(len, CacheHint::Auto).is_timed(), "the last copy that counts is timed");
    let pick = tuner.pick(len, CacheHint::Auto);
    assert!(pick.is_shared_trial() && !pick.is_timed());
    let left = tuner.classes[index].left;
    for _ in 0..100 {
        tuner.postpone_trial(pick, true, true);
    }
    let class = &tuner.classes[index];
    assert_eq!((class.phase, class.left, class.postponed), (Phase::Awaiting, left, 0));
}

#[test]
fn hints_and_short_copies_are_never_timed() {
    let mut tuner = tuner();
    for _ in 0..1_000 {
        for (len, hint, streaming) in [
            (0, CacheHint::Auto, false),
            (1, CacheHint::Cold, false),
            (4095, CacheHint::Cold, false),
            (4096, CacheHint::Cold, true),
            (1 << 30, CacheHint::Cold, true),
            (1 << 30, CacheHint::Hot, false),
            (MAYBE_ALONE_MAX, CacheHint::Hot, false),
            (16383, CacheHint::Auto, false),
        ] {
            let pick = tuner.pick(len, hint);
            assert!(!pick.is_timed() && pick.streaming == streaming, "{len} {hint:?}: {pick:?}");
            assert_eq!(
                pick.alone,
                hint == CacheHint::Hot && len <= MAYBE_ALONE_MAX,
                "{len} {hint:?}: {pick:?}"
            );
        }
    }
}

/// A failed copy has moved few of its bytes, so its time would look fast.
#[test]
fn nothing_is_learned_from_failures() {
    const LEN: usize = 64 << 10;
    let mut tuner = tuner();
    let mut run = |count, result: Result<(), ()>| {
        let mut timed = 0;
        for _ in 0..count {
            let pick = tuner.pick(LEN, CacheHint::Auto);
            timed += usize::from(pick.is_timed());
            assert_eq!(tuner.run(pick, LEN, |_| result), result);
        }
        let class = &tuner.classes[class_of(LEN)];
        (timed, class.age, class.probe_seen)
    };
    let (timed, age, seen) = run(1_000, Err(()));
    assert!(timed > 10, "only {timed} of the copies were timed");
    assert_eq!((age, seen), (0, 0), "nothing was recorded");
    let (_, age, _) = run(100, Ok(()));
    assert!(age > 0, "the time of a successful copy is recorded");
}

#[test]
fn without_a_streaming_kernel_everything_is_memcpy() {
    let mut tuner = CopyTuner::with_streaming(None);
    for hint in [CacheHint::Auto, CacheHint::Hot, CacheHint::Cold] {
        for _ in 0..100 {
            let pick = tuner.pick(1 << 20, hint);
            assert!(!pick.is_timed());
            assert_eq!(tuner.kernel(pick).name(), "memcpy");
        }
    }
}

proptest! {
    /// Times may be recorded late, in any order, or never, with any costs. The tuner must still choose, and
    /// probes must stay rare.
    #[test]
    fn any_order_of_records(steps in prop::collection::vec((any::<u64>(), 0..4_u8, 0..40_usize), 1..2_000)) {
        let mut tuner = tuner().for_cores(4);
        let mut open: Vec<Pick> = Vec::new();
        for (value, action, len) in steps {
            let len = 1_usize << len;
            match action {
                0 if !open.is_empty() => {
                    let pick = open.swap_remove(value as usize % open.len());
                    if pick.is_shared_trial() {
                        tuner.record_shared(pick, value, value / 2, len);
                    } else {
                        tuner.record(pick, value, len);
                    }
                }
                1 => open.clear(),
                _ => {
                    let pick = tuner.pick(len, CacheHint::Auto);
                    let no_helper = pick.is_shared_trial() && value.is_multiple_of(2);
                    open.push(if no_helper { tuner.postpone_trial(pick, value.is_multiple_of(4), value.is_multiple_of(3)) } else { pick });
                }
            }
        }
        let probes = (0..10_000).filter(|_| tuner.pick(1 << 20, CacheHint::Auto).role == Role::Probe).count();
        prop_assert!(probes < 2_000, "{probes} probes in 10000 picks without a recorded time");
    }

    #[test]
    fn copies_and_fills_arrive(len in 0..200_000_usize, pattern: [u8; 8], times in 1..12_usize) {
        let mut tuner = CopyTuner::new();
        let src: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
        for hint in [CacheHint::Auto, CacheHint::Hot, CacheHint::Cold] {
            for _ in 0..times {
                let mut dst = vec![0_u8; len];
                // SAFETY: both vectors have `len` bytes and do not overlap.
                unsafe { tuner.copy(dst.as_mut_ptr(), src.as_ptr(), len, hint) };
                prop_assert!(dst == src);
                // SAFETY: the vector has `len` bytes.
                unsafe { tuner.fill(dst.as_mut_ptr(), pattern, len, hint) };
                prop_assert!(dst.iter().zip(pattern.iter().cycle()).all(|(byte, expected)| byte == expected));
            }
        }
    }
}

/// Copies that skip picks lead to the same choice, and only a few of them call the tuner.
#[test]
fn skipped_picks_count() {
    const LEN: usize = 16 << 10;
    for hot in [false, true] {
        let (mut model, mut tuner) = (Model::new(LEN, 1 + 200_000 * usize::from(!hot), hot), tuner());
        let (mut asked, mut streamed) = (0, 0);
        let copies = 300_000;
        let mut at = 0;
        while at < copies {
            model.run(&mut tuner, 1);
            (asked, at) = (asked + 1, at + 1);
            let (skipped, streaming) = tuner.skip_untimed(LEN);
            assert_eq!(skipped % 2, 0);
            for _ in 0..skipped {
                model.copy(streaming, true);
                streamed += usize::from(streaming);
            }
            at += skipped as usize;
        }
        assert_eq!(streamed > copies / 2, !hot, "{streamed} of {copies}");
        assert!(asked < copies / 8, "{asked} of {copies} copies call the tuner");
    }
}
