//! Tests of the jobs that the queue executes itself, its wake-ups, and its signals to a sleeping owner.

use std::ptr::NonNull;
use std::time::Duration;

use dma_core::{DeviceAddr, RegionKey, Segment};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags};
use test_support::patience::until;

use super::*;
use crate::execute::MAX_TRANSFER;

#[test]
fn a_copy_is_shared_evenly() {
    for (len, cores, least, expected) in [
        (40 << 10, 2, CHUNK_MIN_IDLE, 20 << 10),
        (64 << 10, 2, CHUNK_MIN_IDLE, 32 << 10),
        (64 << 10, 2, CHUNK_MIN, 64 << 10),
        (64 << 10, 16, CHUNK_MIN_IDLE, 16 << 10),
        (512 << 10, 2, CHUNK_MIN, 256 << 10),
        (768 << 10, 2, CHUNK_MIN, 192 << 10),
        (768 << 10, 1, CHUNK_MIN, 256 << 10),
        (1 << 20, 3, CHUNK_MIN, 172 << 10),
    ] {
        assert_eq!(chunk(len, cores, least), expected, "{len} on {cores}");
    }
}

/// Makes a queue whose helper thread sleeps and is never woken.
fn left_to_the_owner() -> CpuQueue {
    let pool = Arc::new(Pool::new(1));
    let options = QueueOptions::new().with_depth(64);
    let queue = CpuQueue::open(EngineId::unique(), &options, 32 << 10, CacheHint::Cold, &pool).unwrap();
    until("the thread sleeps", || pool.helpers().all_wait());
    pool.helpers().never_wake();
    queue
}

fn copy(token: u64, src: &[u8], dst: &mut [u8]) -> Descriptor<'static> {
    let segment = |addr: *const u8, len| Segment {
        key: RegionKey(1),
        addr: DeviceAddr::of(NonNull::new(addr.cast_mut()).unwrap()),
        len,
    };
    Descriptor::copy(token, segment(src.as_ptr(), src.len()), segment(dst.as_ptr(), dst.len()))
}

fn readable(queue: &CpuQueue) -> bool {
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let fd = queue.fd().unwrap();
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap() == 1
}

/// Returns the number of copies at the beginning of a batch of these lengths that are executed together.
fn together(queue: &mut CpuQueue, lens: &[usize], fence_at: Option<usize>) -> usize {
    let src: Vec<Vec<u8>> = lens.iter().zip(1..).map(|(len, byte)| vec![byte; *len]).collect();
    let mut dst: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
    let batch: Vec<_> = src
        .iter()
        .zip(&mut dst)
        .zip(0..)
        .map(|((src, dst), token)| copy(token, src, dst).with_fence(fence_at == Some(token as usize)))
        .collect();
    // SAFETY: the buffers outlive the copies, and the test does not access them before they are done.
    let taken = unsafe { queue.copy_together(&batch) }.unwrap_or(0);
    // SAFETY: the buffers outlive the copies, and the test does not access them before they are done.
    assert_eq!(unsafe { queue.submit(&batch[taken..]) }.expect("room"), batch.len() - taken);
    let mut completions = [Completion::done(0); 64];
    let mut tokens = Vec::new();
    while tokens.len() < batch.len() {
        let n = queue.poll(&mut completions);
        assert!(completions[..n].iter().all(|completion| completion.outcome == Outcome::Done));
        tokens.extend(completions[..n].iter().map(|completion| completion.token));
    }
    tokens.sort_unstable();
    assert!(tokens.iter().copied().eq(0..batch.len() as u64), "each token is reported once: {tokens:?}");
    assert_eq!(dst, src);
    taken
}

#[test]
#[cfg_attr(miri, ignore = "copies megabytes")]
fn copies_are_executed_together_if_they_are_short_and_long_enough() {
    let pool = Arc::new(Pool::new(0));
    let options = QueueOptions::new().with_depth(64);
    for hint in [CacheHint::Auto, CacheHint::Hot, CacheHint::Cold] {
        let mut queue = CpuQueue::open(EngineId::unique(), &options, 32 << 10, hint, &pool).unwrap();
        let mut taken = |lens: &[usize], fence_at| together(&mut queue, lens, fence_at);
        assert_eq!(taken(&[STREAM_MIN; 40], None), 32);
        assert_eq!(taken(&[STREAM_MIN; 8], None), 8);
        assert_eq!(taken(&[STREAM_MIN; 7], None), 0);
        assert_eq!(taken(&[STREAM_MIN - 1; 40], None), 0);
        assert_eq!(taken(&[[STREAM_MIN; 9].as_slice(), &[5, 32 << 10, 70_000]].concat(), None), 9);
        assert_eq!(taken(&[[32 << 10; 10].as_slice(), &[(32 << 10) + 1; 10]].concat(), None), 10);
        assert_eq!(
            taken(&[STREAM_MIN; 20], Some(12)),
            12,
            "only copies before the fence are executed together"
        );
        assert_eq!(taken(&[STREAM_MIN; 20], Some(3)), 0);
        // Repeated, so that the tuner probes both kernels.
        for _ in 0..200 {
            assert_eq!(taken(&[STREAM_MIN; 16], None), 16);
        }
    }
}

/// Operations with a result are executed during submission up to twice the limit of other operations.
#[test]
fn an_operation_with_a_result_is_a_job_beyond_twice_the_limit() {
    let (src, mut dst) = (vec![7; (64 << 10) + 1], vec![0; 64 << 10]);
    let mut queue = left_to_the_owner();
    let crc = |len: usize| {
        let src = Segment {
            key: RegionKey(1),
            addr: DeviceAddr::of(NonNull::new(src.as_ptr().cast_mut()).unwrap()),
            len,
        };
        Descriptor::crc32c(1, src, 0)
    };
    let cases = [(crc(64 << 10), 0), (crc(src.len()), 1), (copy(2, &src[1..], &mut dst), 1)];
    let mut completions = [Completion::done(0); 4];
    for (descriptor, jobs) in cases {
        // SAFETY: both buffers outlive the operation, and the test does not access them during it.
        assert_eq!(unsafe { queue.submit(&[descriptor]) }.unwrap(), 1);
        assert_eq!(queue.jobs.outstanding(), jobs, "{} bytes", descriptor.len());
        queue.flush();
        while queue.poll(&mut completions) == 0 {}
    }
}

/// The doorbell wakes the thread, which executes the whole copy, because the test does not poll.
#[test]
fn a_long_copy_wakes_a_thread() {
    const LEN: usize = 1 << 20;
    let (src, mut dst) = (vec![7; LEN], vec![0; LEN]);
    let mut queue = left_to_the_owner();
    queue.pool.helpers().wake_for(1);
    // SAFETY: both buffers outlive the operation, and the test does not access them during it.
    assert_eq!(unsafe { queue.submit(&[copy(1, &src, &mut dst)]) }.unwrap(), 1);
    queue.flush();
    until("the helper has finished the job", || queue.jobs.all_finished());
    assert_eq!(queue.poll(&mut [Completion::done(0); 4]), 1);
    assert!(src == dst);
}

/// A trial's time counts from submission, and only while its copies are in flight.
#[test]
fn a_sleeping_helper_is_not_on_trial() {
    const LEN: usize = 256 << 10;
    let (src, mut dst) = (vec![7; LEN], vec![0; LEN]);
    let mut queue = left_to_the_owner();
    queue.hint = CacheHint::Auto;
    for awake in [false, true] {
        until("the helper is woken", || queue.pool.helpers().any_awake() == awake);
        let before = ticks();
        queue.copies.begin_trial(LEN);
        // SAFETY: both buffers outlive the operation, and the test does not access them during it.
        unsafe { queue.take(&copy(1, &src, &mut dst)) };
        // After half of the copy is executed, the thread is woken for the other half.
        while queue.job_queue.work(queue.pool.helpers(), &mut queue.busy_period).is_some() {}
        let mut seen = None;
        while queue
            .jobs
            .retire(|job| {
                let pick = job.pick;
                seen = Some((pick.is_shared_trial(), pick.is_timed(), job.busy(0, None).0));
            })
            .is_none()
        {}
        let (trial, timed, busy) = seen.unwrap();
        assert_eq!((trial, timed), (true, awake));
        assert!((1..=ticks() - before).contains(&busy), "{busy} ticks");
    }
}

/// Only doorbells wake threads, and a batch has only one doorbell.
#[test]
fn a_long_batch_ends_no_trial() {
    const LEN: usize = 256 << 10;
    let (src, mut dst) = (vec![7; LEN], vec![0; 60 * LEN]);
    let mut queue = left_to_the_owner();
    queue.hint = CacheHint::Auto;
    queue.copies.begin_trial(LEN);
    for dst in dst.chunks_mut(LEN) {
        // SAFETY: both buffers outlive the operations, and the test does not access them during these.
        unsafe { queue.take(&copy(1, &src, dst)) };
    }
    for _ in 0..60 {
        while queue.job_queue.work(queue.pool.helpers(), &mut queue.busy_period).is_some() {}
        let mut postpone_trial = false;
        let is_postponed = |pick: Pick| pick.is_shared_trial() && !pick.is_timed();
        while queue.jobs.retire(|job| postpone_trial = is_postponed(job.pick)).is_none() {}
        assert!(postpone_trial);
    }
}

/// In a trial, the time until the caller sees another core's completion counts, if the caller waits for
/// nothing else.
#[test]
fn a_trial_ends_when_its_owner_sees_it() {
    const LEN: usize = 256 << 10;
    let (src, mut first, mut last) = (vec![7; LEN], vec![0; LEN], vec![0; LEN]);
    let mut queue = left_to_the_owner();
    queue.hint = CacheHint::Auto;
    for _ in 0..20 {
        let ended = [&mut first, &mut last].map(|dst| {
            queue.copies.begin_trial(LEN);
            // SAFETY: all buffers outlive the operations, and the test does not access them during these.
            unsafe { queue.take(&copy(1, &src, dst)) };
            while queue.job_queue.work(queue.pool.helpers(), &mut queue.busy_period).is_some() {}
            while !queue.jobs.all_finished() {}
            ticks()
        });
        std::thread::sleep(Duration::from_millis(1));
        let mut completion = [Completion::done(0)];
        assert_eq!(queue.poll(&mut completion), 1);
        assert!(queue.busy_until <= ended[0], "another job follows");
        assert_eq!(queue.poll(&mut completion), 1);
        assert!(queue.busy_until > ended[1], "the end was noticed only by this poll");
    }
}

/// An owner that sleeps on the event is woken between any two chunks, whether it submits before or after it
/// arms the event.
#[test]
fn a_short_copy_is_done_by_polls() {
    const LEN: usize = 1 << 20;
    let (src, mut dst) = (vec![7; LEN], vec![0; LEN]);
    let mut queue = left_to_the_owner();
    let mut completions = [Completion::done(0); 4];
    for armed_before in [false, true] {
        dst.fill(0);
        assert!(!armed_before || queue.arm().unwrap());
        // SAFETY: both buffers outlive the operation, and the test does not access them during it.
        assert_eq!(unsafe { queue.submit(&[copy(1, &src, &mut dst)]) }.unwrap(), 1);
        queue.flush();
        assert!(queue.pool.helpers().all_asleep(), "no thread was woken");
        assert_eq!(readable(&queue), armed_before);
        let mut polls = 0;
        while queue.poll(&mut completions) == 0 {
            polls += 1;
            queue.disarm();
            assert!(!readable(&queue));
            assert!(!queue.arm().unwrap() || readable(&queue), "no signal for a sleeping owner");
            assert!(polls < LEN / CHUNK_MIN, "{polls} polls");
        }
        queue.disarm();
        assert!(queue.pool.helpers().all_asleep());
        assert!(src == dst, "all of it");
        assert!(queue.arm().unwrap() && !readable(&queue), "no work is left");
        queue.disarm();
    }
}

/// The only thread sleeps. Short copies, which give every poll something to report, do not delay a long one.
#[test]
fn threads_that_sleep_do_not_get_on() {
    const LEN: usize = 1 << 20;
    let (src, mut dst, mut short) = (vec![3; LEN], vec![0; LEN], [0; 64]);
    let mut queue = left_to_the_owner();
    // SAFETY: all buffers outlive the operations, and the test does not access them during these.
    assert_eq!(unsafe { queue.submit(&[copy(0, &src, &mut dst)]) }.unwrap(), 1);
    let short = copy(1, &src[..64], &mut short);
    let mut completion = [Completion::done(1)];
    let mut polls = 0;
    while completion[0].token != 0 {
        // SAFETY: all buffers outlive the operations, and the test does not access them during these. Each
        // copy writes the same bytes.
        while unsafe { queue.submit(&[short]) }.unwrap() == 1 {}
        queue.flush();
        assert_eq!(queue.poll(&mut completion), 1);
        polls += 1;
        assert!(polls < JOBS_TURN as usize * LEN / CHUNK_MIN, "{polls} polls");
    }
    assert!(queue.pool.helpers().all_asleep() && src == dst);
}

proptest! {
    #[test]
    fn chunks_are_neither_too_long_nor_too_many(len in 1..=MAX_TRANSFER, cores in 1..1026_usize, idle: bool) {
        let least = if idle { CHUNK_MIN_IDLE } else { CHUNK_MIN };
        let chunk = chunk(len, cores, least);
        prop_assert!((least..=CHUNK).contains(&chunk) && chunk.is_multiple_of(PAGE));
        let chunks = len.div_ceil(chunk);
        prop_assert!(chunks <= super::super::ring::MAX_CHUNKS as usize);
        // The numbers of chunks of two cores differ by at most one, except for rounding to pages.
        prop_assert!(chunks <= len.div_ceil(CHUNK * cores) * cores || chunk == least);
    }
}
