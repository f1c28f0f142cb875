//! Compares the profiles with measurements of real devices. To see the tables:
//! `cargo test -p dma-sim --test model_published -- --nocapture`

use dma_sim::model::published::{self, ClosedLoop};
use dma_sim::model::{Direction, Profile};

fn check(profile: &str, rows: usize) {
    let table = published::compare(profile).unwrap();
    for row in &table {
        println!("{row}");
    }
    assert_eq!(table.len(), rows);
    let missed: Vec<_> = table.iter().filter(|row| !row.holds()).map(ToString::to_string).collect();
    assert!(missed.is_empty(), "out of tolerance:\n{}", missed.join("\n"));
}

#[test]
fn bluefield3_is_as_published() {
    check("bluefield3", 31);
}

#[test]
fn bluefield2_is_as_published() {
    check("bluefield2", 15);
}

#[test]
fn ioat_is_as_published() {
    check("ioat", 2);
}

#[test]
fn dsa_is_as_published() {
    check("dsa", 33);
}

#[test]
fn ideal_has_nothing_to_compare_with() {
    check("ideal", 0);
    assert!(published::compare("bluefield9").is_err());
}

/// The figures do not depend on the seed.
#[test]
fn knees_hold_for_other_seeds() {
    let profile = Profile::bluefield3();
    for seed in [2, 3, 1_000_003] {
        let rate = |direction, size, window| {
            published::run(&profile, ClosedLoop::new(direction, size, window), seed).unwrap().tasks
        };
        for (direction, size, knee) in [
            (Direction::Push, 64, 32),
            (Direction::Push, 4 << 10, 32),
            (Direction::Push, 16 << 10, 8),
            (Direction::Push, 64 << 10, 8),
            (Direction::Pull, 64, 16),
            (Direction::Pull, 4 << 10, 16),
            (Direction::Pull, 64 << 10, 16),
        ] {
            let best =
                [16, 32, 64].map(|window| rate(direction, size, window)).into_iter().fold(0.0, f64::max);
            let at = |window| rate(direction, size, window) / best;
            assert!(at(knee) >= 0.95, "{direction:?} {size} B, seed {seed}: {}", at(knee));
            assert!(at(knee / 2) < 0.95, "{direction:?} {size} B, seed {seed}: {}", at(knee / 2));
        }
    }
}

#[test]
fn loads_that_cannot_be_are_refused() {
    let dsa = Profile { max_task: 1_024, ..Profile::dsa() };
    let refused = |load| published::run(&dsa, load, 1).unwrap_err().to_string();
    let load = ClosedLoop::new(Direction::Local, 64, 1);
    assert!(refused(ClosedLoop { window: 0, ..load }).contains("must not be 0"));
    assert!(refused(ClosedLoop { window: 129, ..load }).contains("1 to 128"));
    assert!(refused(ClosedLoop { channels: 9, ..load }).contains("all 8 channels"));
    assert!(refused(ClosedLoop { size: 1_025, ..load }).contains("TooLong"));
}
