//! Repeated exports and imports leak no resources. This test is alone in its process, because it
//! counts the process's resources.

#![cfg(target_os = "linux")]

use std::fs;
use std::time::{Duration, Instant};

use dma_core::Access;
use dma_ipc::{Export, Import, Pages, SharedMemory};

const LONG: Duration = Duration::from_secs(300);

/// Returns the numbers of file descriptors, threads and mappings of this process.
fn holdings() -> [usize; 3] {
    let entries = |path| fs::read_dir(path).unwrap().count();
    let mappings = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = mappings.lines().filter(|line| line.contains("dma-shared")).count();
    [entries("/proc/self/fd"), entries("/proc/self/task"), shared]
}

/// Waits until no number is above `before`: dropped imports and ended threads are cleaned up asynchronously.
/// So `before`, too, may count some that had ended.
fn must_fall_to(before: [usize; 3]) {
    let begun = Instant::now();
    while holdings().iter().zip(before).any(|(now, before)| *now > before) {
        assert!(begun.elapsed() < LONG, "descriptors, threads, mappings: {:?}, not {before:?}", holdings());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thousand_exports_and_imports_leave_nothing_behind() {
    let memory = SharedMemory::allocate(10_000, Pages::Normal).unwrap();
    let cycle = |number: usize| {
        let rights = [Access::READ, Access::WRITE, Access::all()][number % 3];
        let export = Export::new(&memory, 5000..9000, rights).unwrap();
        let imports = [Import::open(export.blob()).unwrap(), Import::open(export.blob()).unwrap()];
        match number % 4 {
            0 => export.revoke(LONG).unwrap(),
            1 => drop(imports),
            2 => drop(export),
            _ => assert!(Import::open(&export.blob()[1..]).is_err()),
        }
    };

    // Each cycle starts and ends the service thread.
    cycle(0);
    let before = holdings();
    for number in 0..1000 {
        cycle(number);
    }
    must_fall_to(before);

    // The export keeps the service thread running.
    let kept = Export::new(&memory, 0..10, Access::READ).unwrap();
    let before = holdings();
    for number in 0..1000 {
        cycle(number);
    }
    must_fall_to(before);
    Import::open(kept.blob()).unwrap().check().unwrap();
}
