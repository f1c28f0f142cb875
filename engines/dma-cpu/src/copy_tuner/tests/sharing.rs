//! The choice between one core and all cores.

use super::*;

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
                tuner.classes[class_of(len)].sharing.share_is_faster
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
        shown |= tuner.classes[class_of(LEN)].sharing.share_is_faster;
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
            assert!(!class.hot && class.schedule.left <= class.rest(index), "{class:?}");
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
