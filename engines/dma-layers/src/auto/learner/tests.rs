//! Tests of the [`Learner`].

use super::*;

/// Runs `copies` copies on engines with these costs. Returns the number of copies that each engine got.
fn run(learner: &mut Learner, class: Class, costs: [f32; 2], copies: u32) -> [u32; 2] {
    let mut had = [0; 2];
    for _ in 0..copies {
        let (engine, _) = learner.choose(class);
        had[engine as usize] += 1;
        learner.record(class, engine, costs[engine as usize]);
    }
    had
}

#[test]
fn the_faster_engine_has_nearly_all() {
    for in_flight in [1, 4, 32] {
        for (costs, faster) in
            [([20.0, 3000.0], 0), ([90_000.0, 30_000.0], 1), ([100.0, 150.0], 0), ([150.0, 100.0], 1)]
        {
            let (mut learner, class) = (Learner::new(), Class::new(in_flight, 64));
            run(&mut learner, class, costs, 192);
            let had = run(&mut learner, class, costs, 600_000);
            let spent = had[0] as f32 * costs[0] + had[1] as f32 * costs[1];
            let best = 600_000.0 * costs[faster];
            assert!(spent < 1.05 * best, "{costs:?} at {in_flight}: {had:?}, {}", spent / best);
            assert!(had[1 - faster] > 0, "the other engine is tried again");
        }
    }
}

#[test]
fn an_engine_that_stays_slower_has_a_short_run() {
    for (len, costs, part) in [(2 << 20, [130e3, 236e3], 1), (8 << 10, [190.0, 350.0], 2)] {
        let (mut learner, class) = (Learner::new(), Class::new(32, len));
        run(&mut learner, class, costs, 100_000);
        // Each engine had two or three runs.
        let had = run(&mut learner, class, costs, 45_000);
        assert!((1..=3).contains(&(had[1] / (part * RUN_PART_LEN[2]))), "{len} B: {had:?}");
    }
}

#[test]
fn an_engine_that_becomes_slower_is_tried_less_often() {
    let (mut learner, class) = (Learner::new(), Class::new(32, 1 << 10));
    run(&mut learner, class, [150.0, 100.0], 100_000);
    run(&mut learner, class, [1000.0, 100.0], 100_000);
    let had = run(&mut learner, class, [1000.0, 100.0], 300_000);
    assert!(had[0] <= 3 * RUN_PART_LEN[2] * RUN_PARTS as u32, "{had:?}");
}

#[test]
fn a_first_run_that_was_disturbed_is_repeated_soon() {
    for in_flight in [1, 32] {
        let (mut learner, class) = (Learner::new(), Class::new(in_flight, 8 << 10));
        run(&mut learner, class, [190.0, 9000.0], 200);
        let had = run(&mut learner, class, [1100.0, 270.0], 40_000);
        assert!(had[1] > 20_000, "the device is faster: {had:?}");
    }
}

#[test]
fn costs_that_change_are_seen() {
    let (mut learner, class) = (Learner::new(), Class::new(1, 1 << 20));
    run(&mut learner, class, [100.0, 50.0], 100);
    let had = run(&mut learner, class, [100.0, 1000.0], 10_000);
    assert!(had[1] < 200, "a device that became slow is no longer used: {had:?}");
    let had = run(&mut learner, class, [100.0, 50.0], 600_000);
    assert!(had[1] > 300_000, "a device that became fast is used again: {had:?}");
}

#[test]
fn a_cpu_that_becomes_dear_is_seen_soon() {
    for (len, soon) in [(64, 2 * SAMPLE_EVERY), (64 << 10, 4000)] {
        for in_flight in [1, 32] {
            let (mut learner, class) = (Learner::new(), Class::new(in_flight, len));
            let costs = |cpu, device| [cpu, device];
            let mut copies = |costs: [f32; 2], n: u32| {
                let mut on_device = 0;
                for _ in 0..n {
                    let (engine, timed) = learner.choose(class);
                    on_device += u32::from(engine == Engine::Device);
                    if timed || engine == Engine::Device {
                        learner.record(class, engine, costs[engine as usize]);
                    }
                }
                on_device
            };
            copies(costs(100.0, 1000.0), 192);
            let on_device = copies(costs(100.0, 1000.0), soon);
            assert!(on_device <= soon / 10, "the CPU is faster: {on_device}");
            copies(costs(5000.0, 1000.0), soon);
            let on_device = copies(costs(5000.0, 1000.0), 1000);
            assert!(on_device > 900, "{len} B, {in_flight} in flight: {on_device}");
        }
    }
}

#[test]
fn long_copies_of_the_cpu_are_timed_now_and_then() {
    for (len, most) in [(16 << 10, 100), (64 << 10, 300), (512 << 10, 2200), (1 << 20, 4000)] {
        let (mut learner, class) = (Learner::new(), Class::new(1, len));
        run(&mut learner, class, [1000.0, 500_000.0], 1000);
        let mut timed = 0;
        for _ in 0..4000 {
            let (engine, is_timed) = learner.choose(class);
            if is_timed {
                timed += 1;
                learner.record(class, engine, 1000.0);
            }
        }
        assert!((1..=most).contains(&timed), "{len} B: {timed}");
    }
}

#[test]
fn a_cpu_that_tries_other_ways_keeps_its_copies() {
    for in_flight in [1, 4, 32] {
        let (mut learner, class) = (Learner::new(), Class::new(in_flight, 64 << 10));
        let slow = 20 * in_flight as u32;
        let (mut on_cpu, mut on_device) = (0_u32, 0_u32);
        for _ in 0..100_000 {
            let (engine, _) = learner.choose(class);
            // The CPU tunes itself soon after its first copies, and later occasionally.
            let tries = on_cpu % 20_000 >= in_flight as u32 && on_cpu % 20_000 < slow;
            let cost = if tries { 4200.0 } else { 1300.0 };
            *if engine == Engine::Cpu { &mut on_cpu } else { &mut on_device } += 1;
            learner.record(class, engine, if engine == Engine::Cpu { cost } else { 2100.0 });
        }
        assert!(on_device < 2000, "{in_flight} in flight: {on_device}");
    }
}

#[test]
fn a_disturbance_has_no_say() {
    let (mut learner, class) = (Learner::new(), Class::new(1, 64));
    for n in 0..24 {
        let (engine, _) = learner.choose(class);
        let disturbed = if n % 12 < 8 { 1e9 } else { 0.0 };
        learner.record(class, engine, [20.0, 3000.0][engine as usize] + disturbed);
    }
    assert_eq!(learner.choose(class), (Engine::Cpu, false));
}

#[test]
fn classes_are_powers_of_two() {
    assert_eq!(Class::new(1, 64), Class::new(0, 127));
    assert_ne!(Class::new(1, 64), Class::new(2, 64));
    assert_ne!(Class::new(1, 64), Class::new(1, 128));
    let all = [0, 1, 63, 4096, usize::MAX].map(|len| Class::new(1000, len).index());
    assert!(all.iter().all(|index| *index < DEPTHS * LENGTHS), "{all:?}");
}
