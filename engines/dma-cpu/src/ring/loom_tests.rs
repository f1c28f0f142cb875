//! Tests that run every interleaving of an owner and its helpers.
//!
//! Command: `RUSTFLAGS="--cfg loom" cargo test -p dma-cpu --release --lib ring`.

use loom::cell::UnsafeCell as Cell;
use loom::thread;

use super::*;

/// Memory that jobs write. Loom fails a test in which two threads access it at the same time.
#[derive(Default)]
struct Job {
    memory: Option<Arc<Cell<u32>>>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Send for Job {}
// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Job {}

fn memory() -> Arc<Cell<u32>> {
    Arc::new(Cell::new(0))
}

fn publish(owner: &mut Owner<Job>, fenced: bool, memory: &Arc<Cell<u32>>) {
    let memory = Arc::clone(memory);
    owner.publish(1, fenced, |job| job.memory = Some(memory));
}

fn work(ring: &JobRing<Job>) -> Option<Finished> {
    let claim = ring.claim()?;
    claim.with(|job| {
        // SAFETY: loom checks that no other thread accesses the cell at the same time.
        job.memory.as_ref().expect("set").with_mut(|memory| unsafe { *memory += 1 })
    });
    Some(claim.finish())
}

fn read(memory: &Cell<u32>) -> u32 {
    // SAFETY: loom checks that no other thread writes the cell at the same time.
    memory.with(|memory| unsafe { *memory })
}

/// The owner works until all jobs are retired, because helpers may leave before a job is published.
fn retire_all(owner: &mut Owner<Job>) {
    while owner.outstanding() > 0 {
        work(owner.ring());
        if owner.retire(|job| job.memory = None).is_none() {
            thread::yield_now();
        }
    }
}

#[test]
fn writes_of_helpers_are_seen_at_retirement() {
    loom::model(|| {
        let mut owner = Owner::new(2);
        let memories = [memory(), memory()];
        publish(&mut owner, false, &memories[0]);
        publish(&mut owner, false, &memories[1]);
        let ring = Arc::clone(owner.ring());
        let helper = thread::spawn(move || {
            work(&ring);
            work(&ring);
        });
        retire_all(&mut owner);
        assert_eq!(memories.map(|memory| read(&memory)), [1, 1]);
        helper.join().unwrap();
    });
}

#[test]
fn a_fenced_copy_follows_those_before_it() {
    loom::model(|| {
        let mut owner = Owner::new(2);
        let memory = memory();
        publish(&mut owner, false, &memory);
        publish(&mut owner, true, &memory);
        let ring = Arc::clone(owner.ring());
        let helper = thread::spawn(move || while work(&ring).is_some() {});
        retire_all(&mut owner);
        assert_eq!(read(&memory), 2);
        helper.join().unwrap();
    });
}

/// The entry is reused while a helper may still read it.
#[test]
fn entries_are_used_again() {
    loom::model(|| {
        let mut owner = Owner::new(1);
        let (first, second) = (memory(), memory());
        publish(&mut owner, false, &first);
        let ring = Arc::clone(owner.ring());
        let helper = thread::spawn(move || {
            work(&ring);
        });
        retire_all(&mut owner);
        publish(&mut owner, true, &second);
        retire_all(&mut owner);
        assert_eq!((read(&first), read(&second)), (1, 1));
        helper.join().unwrap();
    });
}

#[test]
fn an_armed_owner_is_told() {
    loom::model(|| {
        let mut owner = Owner::new(2);
        publish(&mut owner, false, &memory());
        publish(&mut owner, false, &memory());
        let signalled = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let helpers: Vec<_> = (0..2)
            .map(|_| {
                let (ring, signalled) = (Arc::clone(owner.ring()), Arc::clone(&signalled));
                thread::spawn(move || {
                    if work(&ring).is_some_and(|finished| finished.signal) {
                        assert!(!signalled.swap(true, Ordering::Relaxed), "signalled twice");
                    }
                })
            })
            .collect();
        let sleeps = owner.arm();
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
        assert!(!sleeps || signalled.load(Ordering::Relaxed), "no signal for a sleeping owner");
        assert!(owner.can_retire());
    });
}

/// A helper finishes the job before a fence while the fenced job is published. Either the helper or the owner
/// sees that the fence is open, and wakes the sleeper.
#[test]
fn an_open_fence_is_found() {
    loom::model(|| {
        let mut owner = Owner::new(2);
        let memory = memory();
        publish(&mut owner, false, &memory);
        let ring = Arc::clone(owner.ring());
        let helper =
            thread::spawn(move || work(&ring).is_some_and(|finished| finished.job && ring.has_work()));
        publish(&mut owner, true, &memory);
        let found = owner.needs_waking(|| true);
        assert!(helper.join().unwrap() || found, "no signal for a sleeping owner");
    });
}
