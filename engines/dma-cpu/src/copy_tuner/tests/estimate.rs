//! The estimate of a kernel's cost: first, late and lost samples.

use super::*;

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
        (timed, class.estimate.age, class.probe.seen)
    };
    let (timed, age, seen) = run(1_000, Err(()));
    assert!(timed > 10, "only {timed} of the copies were timed");
    assert_eq!((age, seen), (0, 0), "nothing was recorded");
    let (_, age, _) = run(100, Ok(()));
    assert!(age > 0, "the time of a successful copy is recorded");
}
