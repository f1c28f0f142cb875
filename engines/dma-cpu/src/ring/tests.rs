//! Tests of the ring alone: order, fences, and many threads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::*;

#[derive(Default)]
struct Job {
    number: u64,
    done: AtomicU64,
}

fn publish(owner: &mut Owner<Job>, chunks: u32, fenced: bool) -> u64 {
    let mut number = 0;
    let published = owner.publish(chunks, fenced, |job| {
        job.number += 1_000;
        number = job.number;
        *job.done.get_mut() = 0;
    });
    assert!(number > 0);
    published
}

#[test]
fn chunks_are_taken_in_order_and_jobs_retired_in_order() {
    let mut owner = Owner::<Job>::new(4);
    let ring = Arc::clone(owner.ring());
    assert!(ring.claim().is_none() && !ring.has_work());
    assert_eq!((publish(&mut owner, 2, false), publish(&mut owner, 1, false)), (0, 1));
    let (a, b, c) = (ring.claim().unwrap(), ring.claim().unwrap(), ring.claim().unwrap());
    assert!(ring.claim().is_none() && !ring.has_work());
    assert_eq!((a.chunk(), b.chunk(), c.chunk()), (0, 1, 0));
    assert_eq!(c.finish(), Finished { job: true, signal: false });
    assert!(!owner.can_retire(), "the oldest job is not finished");
    assert_eq!(b.finish(), Finished::default());
    assert!(!owner.can_retire());
    assert_eq!(a.finish(), Finished { job: true, signal: false });
    assert!(owner.all_finished());
    assert_eq!(owner.outstanding(), 2);
    assert!(
        owner.retire(|_| ()).is_some() && owner.retire(|_| ()).is_some() && owner.retire(|_| ()).is_none()
    );
}

#[test]
fn fences_hold_until_all_before_is_finished() {
    let mut owner = Owner::<Job>::new(8);
    let ring = Arc::clone(owner.ring());
    publish(&mut owner, 1, false);
    publish(&mut owner, 1, false);
    let fenced = publish(&mut owner, 2, true);
    publish(&mut owner, 1, false);
    let (a, b) = (ring.claim().unwrap(), ring.claim().unwrap());
    assert!(ring.claim().is_none() && !ring.has_work(), "fenced");
    let _ = b.finish();
    assert!(ring.claim().is_none() && !owner.finished_before(fenced), "an earlier job has not finished");
    let _ = a.finish();
    assert!(owner.finished_before(fenced));
    let both = [ring.claim().unwrap(), ring.claim().unwrap()];
    let behind = ring.claim().expect("the next job may start together with the fenced one");
    both.into_iter().chain([behind]).for_each(|claim| assert!(!claim.finish().signal));
    assert!(owner.all_finished());
}

#[test]
fn armed_owners_are_told_of_the_oldest_job_once() {
    let mut owner = Owner::<Job>::new(8);
    let ring = Arc::clone(owner.ring());
    publish(&mut owner, 1, false);
    publish(&mut owner, 1, false);
    let (a, b) = (ring.claim().unwrap(), ring.claim().unwrap());
    assert!(owner.arm());
    assert!(!b.finish().signal, "not the oldest");
    assert!(a.finish().signal);
    assert!(!owner.arm(), "a finished job can be retired");
    publish(&mut owner, 1, false);
    let c = ring.claim().unwrap();
    while owner.retire(|_| ()).is_some() {}
    assert!(owner.arm());
    owner.disarm();
    assert!(!c.finish().signal);
}

#[test]
#[should_panic(expected = "full")]
fn more_than_the_capacity_is_refused() {
    let mut owner = Owner::<Job>::new(2);
    for _ in 0..3 {
        publish(&mut owner, 1, false);
    }
}

/// Helpers and the owner use the ring many times over. Every chunk is executed once, and fenced jobs wait.
#[test]
fn every_chunk_is_done_once() {
    const JOBS: u64 = if cfg!(miri) { 100 } else { 30_000 };
    let mut owner = Owner::<Job>::new(8);
    let ring = Arc::clone(owner.ring());
    let (quit, finished) = (std::sync::atomic::AtomicBool::new(false), AtomicUsize::new(0));
    let work = |ring: &JobRing<Job>| match ring.claim() {
        Some(claim) => {
            claim.with(|job| job.done.fetch_add(1 << (8 * claim.chunk()), Ordering::Relaxed));
            if claim.finish().job {
                finished.fetch_add(1, Ordering::Relaxed);
            }
            true
        }
        None => false,
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !quit.load(Ordering::Relaxed) {
                    if !work(&ring) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let (mut published, mut retired) = (0, 0);
        while retired < JOBS {
            if published < JOBS && owner.outstanding() < 8 {
                let chunks = 1 + (published * 7 % 5) as u32;
                owner.publish(chunks, published % 11 == 3, |job| {
                    job.number = published;
                    *job.done.get_mut() = 0;
                });
                published += 1;
            } else if let Some((number, done)) = owner.retire(|job| (job.number, *job.done.get_mut())) {
                assert_eq!(number, retired, "in order");
                let chunks = 1 + retired * 7 % 5;
                assert_eq!(done, 0x01_0101_0101 & ((1 << (8 * chunks)) - 1), "each chunk once");
                retired += 1;
            } else if !work(&ring) {
                std::thread::yield_now();
            }
        }
        quit.store(true, Ordering::Relaxed);
    });
    assert_eq!(finished.into_inner() as u64, JOBS);
}
