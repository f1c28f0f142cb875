//! Trials whose helpers sleep.

use super::*;

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
        class.schedule.left - class.schedule.droppable
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
    let left = tuner.classes[index].schedule.left;
    for _ in 0..100 {
        tuner.postpone_trial(pick, true, true);
    }
    let class = &tuner.classes[index];
    assert_eq!((class.phase, class.schedule.left, class.sharing.postponed), (Phase::Awaiting, left, 0));
}
