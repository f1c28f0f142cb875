//! The choice of a kernel by probes.

use super::*;

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
