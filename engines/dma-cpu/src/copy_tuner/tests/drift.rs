//! Shifts of the speed, when the working set enters or leaves the cache.

use super::*;

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
