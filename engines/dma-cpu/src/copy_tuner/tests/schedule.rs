//! The number of copies between probes and trials.

use super::*;
use crate::copy_tuner::schedule::PAID_BACK;

/// Models a host that migrates virtual CPUs, and a program that makes a few copies at a time.
#[test]
fn an_old_result_is_tried_again_soon() {
    const LEN: usize = 256 << 10;
    let index = class_of(LEN);
    for few in [50, 200, 1_000] {
        let (mut tuner, mut model) =
            (tuner().for_cores(2), Model { helped: true, ..Model::new(LEN, 1, true) });
        model.run(&mut tuner, 100_000);
        assert!(
            tuner.classes[index].hot && !tuner.classes[index].sharing.share_is_faster,
            "one core copies alone"
        );
        model.far = true;
        let found = (1..100_000 / few).find(|_| {
            model.now += 2 * SOME_TIME;
            model.run(&mut tuner, few);
            tuner.classes[index].sharing.share_is_faster
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
