//! Tests of the CPU engine's raw queue, against an oracle in ordinary memory, and of the rules of the
//! contract.
#![expect(unsafe_code, reason = "drives the raw queue")]

use std::collections::HashSet;
use std::time::{Duration, Instant};

use dma_core::{
    Access, CacheHint, Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, Outcome,
    QueueOptions, RawQueue, RawRegion, Segment,
};
use dma_cpu::{CpuEngine, CpuOptions};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Number of slots of a region. Each slot can be the source or destination of operations.
const SLOTS: usize = 6;
const SLOT: usize = 700_000;

fn open(options: &CpuOptions) -> CpuEngine {
    CpuEngine::open(options).expect("options in range")
}

fn region(engine: &CpuEngine, len: usize) -> Box<dyn RawRegion> {
    engine.allocate_raw(&MemoryRequest::new(len)).expect("memory")
}

fn queue(engine: &CpuEngine, depth: usize) -> Box<dyn RawQueue> {
    engine.open_queue_raw(&QueueOptions::new().with_depth(depth)).expect("a queue")
}

fn segment(region: &dyn RawRegion, offset: usize, len: usize) -> Segment {
    region.info().segment(offset, len)
}

/// Returns the region's bytes. No operation may be in flight.
fn bytes(region: &dyn RawRegion) -> Vec<u8> {
    assert!(region.info().cpu.is_some());
    // SAFETY: the region is mapped and initialized, and no operation is in flight.
    unsafe { std::slice::from_raw_parts(region.info().addr.as_ptr(), region.info().len) }.to_vec()
}

fn store(region: &dyn RawRegion, bytes: &[u8]) {
    assert!(region.info().cpu.is_some() && bytes.len() <= region.info().len);
    // SAFETY: the region is mapped, and no operation is in flight.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), region.info().addr.as_ptr(), bytes.len()) };
}

fn submit(queue: &mut dyn RawQueue, descriptor: Descriptor<'_>) -> bool {
    // SAFETY: tests name memory of regions that outlive the queue, and access it only when no operation is in
    // flight.
    unsafe { queue.submit(&[descriptor]) }.expect("the queue is open") == 1
}

/// Sleeps until a poll has work.
fn sleep_until_told(queue: &mut dyn RawQueue) {
    let events = queue.events().expect("there are events");
    if events.arm().expect("it can be armed") {
        let fd = events.fd().unwrap();
        let soon = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&soon));
        assert_eq!(ready.expect("poll works"), 1, "asleep for ever");
        events.disarm();
    }
}

fn drain(queue: &mut dyn RawQueue, count: usize) -> Vec<Completion> {
    let mut all = Vec::new();
    let mut completions = [Completion::done(0); 7];
    let started = Instant::now();
    while all.len() < count {
        let n = queue.poll(&mut completions);
        all.extend_from_slice(&completions[..n]);
        if n == 0 {
            std::thread::yield_now();
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{} of {count} completed", all.len());
    }
    assert_eq!(queue.poll(&mut completions), 0, "no completion beyond the submitted operations");
    all
}

#[derive(Clone, Debug)]
struct Op {
    /// The source slot; `None` for a fill.
    from: Option<(usize, usize)>,
    to: (usize, usize),
    len: usize,
    pattern: [u8; 8],
    /// If set, an operation with a result replaces the plain one, and this is its seed: a copy with CRC-32C
    /// instead of a copy, a comparison instead of lists, or a CRC-32C of the destination instead of a fill.
    answer: Option<u32>,
    /// Offsets at which the lists are split. Empty for flat operations.
    cuts: Option<(Vec<usize>, Vec<usize>)>,
    /// True if the operation has a fence even where it needs none.
    fence: bool,
    /// True if the program waits for an earlier operation by polling instead of a fence.
    wait: bool,
    polls: usize,
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![
        1..200_usize,
        (0..40_usize).prop_map(|n| (32 << 10) - 20 + n),
        (1..5_usize, 0..40_usize).prop_map(|(n, more)| n * (64 << 10) - 20 + more),
        1..SLOT / 2,
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let cuts = prop::collection::vec(0..SLOT, 0..20);
    let place = (0..SLOTS, 0..SLOT);
    (
        proptest::option::weighted(0.8, place.clone()),
        place,
        len(),
        any::<[u8; 8]>(),
        proptest::option::weighted(0.3, any::<u32>()),
        proptest::option::weighted(0.4, (cuts.clone(), cuts)),
        prop::bool::weighted(0.1),
        any::<bool>(),
        0..3_usize,
    )
        .prop_map(|(from, to, len, pattern, answer, cuts, fence, wait, polls)| {
            let fit = |(slot, offset): (usize, usize)| (slot, offset.min(SLOT - len));
            // A copy does not overlap itself.
            let to = match from {
                Some((slot, _)) if slot == to.0 => ((to.0 + 1) % SLOTS, to.1),
                _ => to,
            };
            Op { from: from.map(fit), to: fit(to), len, pattern, answer, cuts, fence, wait, polls }
        })
}

/// Returns the segment, split at `cuts` modulo its length.
fn cut(segment: Segment, cuts: &[usize]) -> Vec<Segment> {
    let mut at: Vec<_> = cuts.iter().map(|cut| cut % segment.len).filter(|cut| *cut > 0).collect();
    at.push(segment.len);
    at.sort_unstable();
    at.dedup();
    let mut start = 0;
    at.iter()
        .map(|&end| {
            let piece = Segment { addr: segment.addr.offset(start), len: end - start, ..segment };
            start = end;
            piece
        })
        .collect()
}

fn options() -> impl Strategy<Value = CpuOptions> {
    let hint = prop_oneof![Just(CacheHint::Auto), Just(CacheHint::Hot), Just(CacheHint::Cold)];
    let limit = prop_oneof![Just(0), Just(100), Just(32 << 10), Just(1 << 20)];
    (0..4_usize, limit, hint).prop_map(|(threads, limit, hint)| {
        CpuOptions::new().with_threads(threads).with_inline_limit(limit).with_hint(hint)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..Default::default() })]

    /// Dependent operations wait by fences or by polling; others run in any order. All bytes equal the
    /// oracle's, and every descriptor is reported once.
    #[test]
    fn operations_match_the_oracle(
        options in options(), depth in 1..20_usize, ops in prop::collection::vec(op(), 1..60), seed: u64,
    ) {
        let engine = open(&options);
        let memory = region(&engine, SLOTS * SLOT);
        let mut oracle: Vec<u8> = (0..SLOTS * SLOT).map(|at| (at as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[5]).collect();
        store(&*memory, &oracle);
        let mut queue = queue(&engine, depth);
        let mut completions = vec![Completion::done(0); 5];
        // Tokens and expected results.
        let mut flying: Vec<(u64, u64)> = Vec::new();
        // Slots that unreported operations since the last fence read and write.
        let (mut reads, mut writes) = (HashSet::new(), HashSet::new());
        let mut report = |queue: &mut dyn RawQueue, flying: &mut Vec<(u64, u64)>| {
            let n = queue.poll(&mut completions);
            for completion in &completions[..n] {
                assert_eq!(completion.outcome, Outcome::Done);
                let at = flying.iter().position(|(token, _)| *token == completion.token).expect("in flight, and reported once");
                assert_eq!(flying.swap_remove(at).1, completion.result);
            }
        };
        for (token, op) in (0_u64..).zip(&ops) {
            let hazard = writes.contains(&op.to.0)
                || reads.contains(&op.to.0)
                || op.from.is_some_and(|from| writes.contains(&from.0));
            if hazard && op.wait {
                queue.flush();
                while !flying.is_empty() {
                    report(&mut *queue, &mut flying);
                }
            }
            let fence = op.fence || (hazard && !op.wait);
            if hazard || fence {
                reads.clear();
                writes.clear();
            }
            reads.extend(op.from.map(|from| from.0));
            writes.insert(op.to.0);

            let to = segment(&*memory, op.to.0 * SLOT + op.to.1, op.len);
            let from = op.from.map(|(slot, offset)| (slot * SLOT + offset, segment(&*memory, slot * SLOT + offset, op.len)));
            let (no_cuts, with_cuts) = ((vec![], vec![]), op.cuts.is_some());
            let cuts = op.cuts.as_ref().unwrap_or(&no_cuts);
            let dst = cut(to, &cuts.1);
            let src = from.map(|from| cut(from.1, &cuts.0)).unwrap_or_default();
            let at = op.to.0 * SLOT + op.to.1;
            let descriptor = match (from, op.answer) {
                (Some((_, from)), Some(_)) if with_cuts => Descriptor::compare(token, from, to),
                (Some((_, from)), Some(seed)) => Descriptor::copy_crc32c(token, from, to, seed),
                (Some((_, from)), None) if !with_cuts => Descriptor::copy(token, from, to),
                (Some(_), None) => Descriptor::copy_lists(token, &src, &dst),
                (None, Some(seed)) => Descriptor::crc32c(token, to, seed),
                (None, None) => Descriptor::fill(token, op.pattern, &dst),
            };
            let crc = |at: usize| op.answer.map_or(0, |seed| crc32c::crc32c_append(seed, &oracle[at..at + op.len])).into();
            let result = match from {
                Some((from, _)) if op.answer.is_some() && with_cuts => {
                    let differs = oracle[from..from + op.len].iter().zip(&oracle[at..]).position(|(a, b)| a != b);
                    differs.map_or(Completion::EQUAL, |differs| differs as u64)
                }
                Some((from, _)) => crc(from),
                None => crc(at),
            };
            while !submit(&mut *queue, descriptor.with_fence(fence)) {
                prop_assert_eq!(flying.len(), depth, "the queue refused although it has room");
                queue.flush();
                report(&mut *queue, &mut flying);
            }
            prop_assert!(flying.len() < depth);
            flying.push((token, result));

            match from {
                Some(_) if op.answer.is_some() && with_cuts => {}
                Some((from, _)) => oracle.copy_within(from..from + op.len, at),
                None if op.answer.is_some() => {}
                None => oracle[at..at + op.len].iter_mut().zip(op.pattern.iter().cycle()).for_each(|(byte, new)| *byte = *new),
            }
            for _ in 0..op.polls {
                report(&mut *queue, &mut flying);
            }
        }
        queue.flush();
        let started = Instant::now();
        while !flying.is_empty() {
            report(&mut *queue, &mut flying);
            prop_assert!(started.elapsed() < Duration::from_secs(60), "{flying:?} never complete");
        }
        prop_assert!(bytes(&*memory) == oracle, "bytes differ");
    }

}

proptest! {
    // Few shrink steps, because a failing case takes long: it waits in vain.
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 4, ..ProptestConfig::default() })]

    /// Tests that an owner that sleeps on the file descriptor after arming is woken, whichever thread copies.
    #[test]
    fn sleepers_are_woken(options in options(), lens in prop::collection::vec((len(), any::<bool>()), 1..40)) {
        let engine = open(&options);
        let (src, dst) = (region(&engine, SLOT), region(&engine, SLOT));
        let mut queue = queue(&engine, 64);
        let mut completions = [Completion::done(0); 16];
        let mut flying = 0;
        for (len, sleep) in lens.iter().copied().chain([(1, true)]) {
            // The copies are fenced, because all write the same bytes.
            prop_assert!(submit(&mut *queue, Descriptor::copy(7, segment(&*src, 0, len), segment(&*dst, 0, len)).with_fence(true)));
            flying += 1;
            queue.flush();
            let started = Instant::now();
            while sleep && flying > 0 {
                queue.events().expect("there are events").disarm();
                loop {
                    let n = queue.poll(&mut completions);
                    flying -= n;
                    if n == 0 {
                        break;
                    }
                }
                if flying > 0 && queue.events().expect("there are events").arm().expect("it can be armed") {
                    let events = queue.events().expect("there are events");
                    let fd = events.fd().unwrap();
                    let second = Timespec { tv_sec: 10, tv_nsec: 0 };
                    let ready = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&second)).expect("poll works");
                    prop_assert_eq!(ready, 1, "no wake-up although {} operations are in flight", flying);
                }
                prop_assert!(started.elapsed() < Duration::from_secs(60));
            }
        }
    }
}

/// The owner arms the event while nothing is in flight, and the next submission wakes it.
#[test]
fn arming_comes_before_submitting() {
    for threads in [0, 1] {
        let engine = open(&CpuOptions::new().with_threads(threads));
        let (src, dst) = (region(&engine, 1 << 20), region(&engine, 1 << 20));
        for len in [64, 1 << 20] {
            let mut queue = queue(&engine, 8);
            let readable = |queue: &mut dyn RawQueue, wait| {
                let events = queue.events().expect("there are events");
                let fd = events.fd().unwrap();
                rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&wait)).expect("poll works")
                    == 1
            };
            let (now, soon) = (Timespec { tv_sec: 0, tv_nsec: 0 }, Timespec { tv_sec: 10, tv_nsec: 0 });
            assert!(queue.events().expect("there are events").arm().expect("it can be armed"));
            assert!(!readable(&mut *queue, now), "nothing has happened");
            assert!(submit(&mut *queue, Descriptor::copy(1, segment(&*src, 0, len), segment(&*dst, 0, len))));
            queue.flush();
            assert!(readable(&mut *queue, soon), "{len} bytes, {threads} threads");
            drain(&mut *queue, 1);
            queue.events().expect("there are events").disarm();
            assert!(!readable(&mut *queue, now));
        }
    }
}

/// Every descriptor is reported once, as done or aborted, and nothing is written afterwards.
#[test]
fn stopping_aborts_what_was_not_done() {
    const COUNT: usize = 20;
    const LEN: usize = 4 << 20;
    for threads in [0, 2] {
        let engine = open(&CpuOptions::new().with_threads(threads));
        let (src, dst) = (region(&engine, LEN), region(&engine, LEN * COUNT));
        store(&*src, &[7; LEN]);
        let mut queue = queue(&engine, COUNT + 1);
        assert!(submit(&mut *queue, Descriptor::copy(99, segment(&*src, 0, 8), segment(&*dst, 0, 8))));
        for at in 0..COUNT {
            let descriptor =
                Descriptor::copy(at as u64, segment(&*src, 0, LEN), segment(&*dst, at * LEN, LEN));
            assert!(submit(&mut *queue, descriptor));
        }
        queue.flush();
        queue.stop();
        queue.stop();
        let refused = refusal(&mut *queue);
        assert_eq!(refused, ErrorKind::Closed);
        let all = drain(&mut *queue, COUNT + 1);
        let tokens: HashSet<_> = all.iter().map(|completion| completion.token).collect();
        assert_eq!(tokens.len(), COUNT + 1);
        assert!(all.iter().all(|c| c.native == 0 && matches!(c.outcome, Outcome::Done | Outcome::Aborted)));
        assert_eq!(all.iter().find(|c| c.token == 99).map(|c| c.outcome), Some(Outcome::Done));
        assert!(threads > 0 || all.iter().filter(|c| c.outcome == Outcome::Aborted).count() == COUNT);
        let after = bytes(&*dst);
        for completion in all.iter().filter(|c| c.outcome == Outcome::Done && c.token != 99) {
            let at = completion.token as usize * LEN;
            assert!(after[at..at + LEN].iter().all(|byte| *byte == 7), "done is done");
        }
        store(&*dst, &vec![1; LEN * COUNT]);
        std::thread::sleep(Duration::from_millis(5));
        assert!(bytes(&*dst).iter().all(|byte| *byte == 1), "written after it was reported");
    }
}

fn refusal(queue: &mut dyn RawQueue) -> ErrorKind {
    // SAFETY: the batch is empty.
    unsafe { queue.submit(&[]) }.expect_err("it is stopped").kind()
}

/// A queue that is dropped with work in flight no longer accesses the memory.
#[test]
fn dropping_ends_all_access() {
    const LEN: usize = 8 << 20;
    let engine = open(&CpuOptions::new().with_threads(3));
    for round in 0..20 {
        let (src, dst) = (region(&engine, LEN), region(&engine, LEN));
        let mut queue = queue(&engine, 8);
        for (token, half) in [(0, 0), (1, LEN / 2)] {
            let descriptor =
                Descriptor::copy(token, segment(&*src, half, LEN / 2), segment(&*dst, half, LEN / 2));
            assert!(submit(&mut *queue, descriptor.with_fence(token == 1)));
        }
        queue.flush();
        if round % 2 == 0 {
            let mut completions = [Completion::done(0); 4];
            queue.poll(&mut completions);
        }
        drop(queue);
        store(&*dst, &vec![9; LEN]);
        std::thread::sleep(Duration::from_millis(1));
        assert!(bytes(&*dst).iter().all(|byte| *byte == 9), "written after the queue was gone");
        // The memory is unmapped here, so a thread that still accessed it would fault.
        drop((src, dst));
    }
}

#[test]
fn a_full_queue_takes_what_fits() {
    for limit in [0, 1 << 20] {
        let engine = open(&CpuOptions::new().with_inline_limit(limit));
        let memory = region(&engine, 1000);
        let mut queue = queue(&engine, 5);
        let descriptors: Vec<_> = (0..8_u64)
            .map(|token| {
                let at = token as usize * 100;
                Descriptor::copy(token, segment(&*memory, at, 50), segment(&*memory, at + 50, 50))
            })
            .collect();
        // SAFETY: the ranges are disjoint and lie in a region that outlives the queue.
        assert_eq!(unsafe { queue.submit(&descriptors) }.expect("open"), 5);
        // SAFETY: the ranges are disjoint and lie in a region that outlives the queue.
        assert_eq!(unsafe { queue.submit(&descriptors[5..]) }.expect("a full queue is not an error"), 0);
        queue.flush();
        let first = drain(&mut *queue, 5);
        // SAFETY: the ranges are disjoint and lie in a region that outlives the queue.
        assert_eq!(unsafe { queue.submit(&descriptors[5..]) }.expect("open"), 3);
        queue.flush();
        let tokens: HashSet<_> = first.iter().chain(&drain(&mut *queue, 3)).map(|c| c.token).collect();
        assert_eq!(tokens.len(), 8);
        assert_eq!(queue.stats().doorbells, 2);
        queue.flush();
        assert_eq!(queue.stats().doorbells, 2, "nothing was submitted");
    }
}

/// An owner that sleeps on the event after flushing is woken once a poll has work: to report a copy by a
/// helper, or to execute one that is too short to wake a helper for.
#[test]
fn flushed_copies_need_no_polling_in_vain() {
    let engine = open(&CpuOptions::new().with_threads(1));
    for len in [64 << 10, 256 << 10, 3 << 20] {
        let (src, dst) = (region(&engine, len), region(&engine, len));
        let mut queue = queue(&engine, 8);
        // The helper thread goes to sleep between the two copies.
        for turn in 1..=20 {
            store(&*src, &vec![turn; len]);
            assert!(submit(&mut *queue, Descriptor::copy(1, segment(&*src, 0, len), segment(&*dst, 0, len))));
            queue.flush();
            let mut completions = [Completion::done(0); 4];
            let mut polls = 0;
            loop {
                sleep_until_told(&mut *queue);
                polls += 1;
                if queue.poll(&mut completions) == 1 {
                    break;
                }
                assert!(polls < 100, "{len} bytes: each wake-up found nothing to report");
            }
            assert!(bytes(&*dst).iter().all(|byte| *byte == turn));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Short copies are executed during submission, so that every poll fills its buffer with reports. A long copy
/// still makes progress and is reported, although only the polling thread works.
#[test]
fn short_copies_do_not_hold_up_long_ones() {
    const LEN: usize = 4 << 20;
    for threads in [0, 1] {
        let engine = open(&CpuOptions::new().with_threads(threads).with_hint(CacheHint::Cold));
        let (src, dst) = (region(&engine, LEN + 64), region(&engine, LEN + 64));
        store(&*src, &[3; LEN + 64]);
        let mut queue = queue(&engine, 8);
        assert!(submit(&mut *queue, Descriptor::copy(0, segment(&*src, 0, LEN), segment(&*dst, 0, LEN))));
        queue.flush();
        if threads > 0 {
            sleep_until_told(&mut *queue);
        }
        let short = Descriptor::copy(1, segment(&*src, LEN, 64), segment(&*dst, LEN, 64));
        let mut completion = [Completion::done(1)];
        let (started, mut polls) = (Instant::now(), 0);
        while completion[0].token != 0 {
            while submit(&mut *queue, short) {}
            queue.flush();
            assert_eq!(queue.poll(&mut completion), 1);
            polls += 1;
            // A thread may hold the last chunk, however often the owner polls.
            assert!(threads > 0 || polls <= 200, "not done after {polls} polls");
            assert!(started.elapsed() < Duration::from_secs(60), "not done after {polls} polls");
        }
        assert!(bytes(&*dst)[..LEN].iter().all(|byte| *byte == 3));
        // The long copy does not delay the short ones.
        assert!(threads > 0 || polls > 16, "{polls} polls for 16 chunks");
        drain(&mut *queue, 7);
    }
}

/// A long copy is reported chunk by chunk, so that its waiter neither considers the engine stalled nor sleeps
/// while the copy needs its polls.
#[test]
fn a_long_copy_shows_that_it_gets_on() {
    const LEN: usize = (40 << 20) + 5;
    for threads in [0, 2] {
        let engine = open(&CpuOptions::new().with_threads(threads));
        let max = engine.info().limits.max_transfer;
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let mut src = engine.allocate(LEN).expect("memory");
        for (at, word) in src.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&at.to_ne_bytes());
        }
        let transfer = queue.copy(src, engine.allocate(LEN).expect("memory")).expect("accepted");
        queue.flush();
        let (started, mut reported, mut in_vain) = (Instant::now(), 0, 0);
        while queue.counters().in_flight > 0 {
            match queue.poll() {
                0 => in_vain += 1,
                n => (reported, in_vain) = (reported + n as u64, 0),
            }
            // A thread may still be copying the last chunk, however often the owner polls.
            assert!(threads > 0 || in_vain <= 100, "nothing was reported by {in_vain} polls");
            assert!(started.elapsed() < Duration::from_secs(60), "{reported} reported");
        }
        assert_eq!(queue.counters().descriptors, reported);
        assert!(reported > 1 && reported == (LEN as u64).div_ceil(max), "{reported} pieces of up to {max}");
        let (src, dst) = transfer.wait().expect("done");
        assert!(src[..] == dst[..], "it arrives whole");
    }
}

/// Skipping chunks of a stopped queue also takes time, so no poll skips all of them.
#[test]
fn a_poll_is_bounded_after_stopping() {
    const LEN: usize = 1 << 20;
    let engine = open(&CpuOptions::new().with_threads(0));
    let dst = region(&engine, LEN);
    let mut queue = queue(&engine, 2);
    // The queue has 4096 chunks, none of which has started.
    let list = [segment(&*dst, 0, LEN); 1024];
    assert!(submit(&mut *queue, Descriptor::fill(1, [1; 8], &list)));
    queue.flush();
    queue.stop();
    let mut completions = [Completion::done(0); 2];
    let polls = (1..).find(|_| queue.poll(&mut completions) > 0).expect("it ends");
    assert_eq!(completions[0].outcome, Outcome::Aborted);
    assert!((9..=1024).contains(&polls), "{polls} polls for 4096 chunks");
    assert!(bytes(&*dst).iter().all(|byte| *byte == 0), "nothing was begun");
}

/// The polling thread finishes the operation before a fence, and sleeps. The helper thread, which may have
/// gone to sleep at the fence, executes the rest.
#[test]
fn fences_open_while_everybody_sleeps() {
    const LEN: usize = 256 << 10;
    let engine = open(&CpuOptions::new().with_threads(1).with_inline_limit(0));
    let (src, dst) = (region(&engine, LEN), region(&engine, LEN));
    let mut queue = queue(&engine, 8);
    let mut completions = [Completion::done(0); 4];
    for _ in 0..300 {
        for fence in [false, true] {
            let descriptor = Descriptor::copy(1, segment(&*src, 0, LEN), segment(&*dst, 0, LEN));
            assert!(submit(&mut *queue, descriptor.with_fence(fence)));
        }
        queue.flush();
        let mut done = 0;
        while done == 0 {
            done += queue.poll(&mut completions);
        }
        if done == 1 && queue.events().expect("there are events").arm().expect("it can be armed") {
            let events = queue.events().expect("there are events");
            let fd = events.fd().unwrap();
            let soon = Timespec { tv_sec: 10, tv_nsec: 0 };
            let ready = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&soon));
            assert_eq!(ready.expect("poll works"), 1, "no wake-up after a fence opened");
        }
        queue.events().expect("there are events").disarm();
        while done < 2 {
            done += queue.poll(&mut completions);
        }
    }
}

#[test]
fn options_out_of_range_are_refused() {
    for (options, asked, allowed) in [
        (CpuOptions::new().with_threads(5000), 5000, CpuOptions::THREADS_MAX),
        (CpuOptions::new().with_inline_limit(2 << 20), 2 << 20, CpuOptions::INLINE_MAX),
    ] {
        let error = CpuEngine::open(&options).expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert_eq!((error.requested(), error.limit()), (Some(asked), Some(allowed as u64)));
        assert!(!error.hint().is_empty() && error.to_string().contains(&asked.to_string()), "{error}");
    }
}

/// Copies to a peer's memory while the peer revokes it. Each copy is done or fails as revoked, and none
/// writes afterwards.
#[cfg(target_os = "linux")]
#[test]
fn revoking_during_copies_is_an_error_and_final() {
    const LEN: usize = 6 << 20;
    for (threads, len) in [(0, LEN), (2, LEN), (1, 20_000)] {
        let engine = open(&CpuOptions::new().with_threads(threads));
        let window = engine
            .allocate_window(&MemoryRequest::new(LEN).exportable(Access::READ | Access::WRITE))
            .expect("exportable memory");
        for round in 0..6 {
            let export = window.export(Access::all()).expect("exported");
            let remote = engine.import(export.descriptor()).expect("imported");
            let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
            let mut source = engine.allocate(len).expect("memory");
            source.fill(3);
            let source = source.freeze();
            let copies: Vec<_> =
                (0..8).map(|_| queue.copy(source.clone(), remote.slice(..len)).expect("accepted")).collect();
            queue.flush();
            for _ in 0..round {
                queue.poll();
            }
            // Another thread revokes the export, as the peer would. This thread holds no lease while it
            // waits.
            std::thread::scope(|scope| {
                let revoked = scope.spawn(move || export.revoke(Duration::from_secs(60)));
                revoked.join().expect("no panic").expect("copies end");
            });
            window.write_at(0, &vec![round as u8; LEN]).expect("local memory");
            let mut revoked = 0;
            for copy in copies {
                if let Err(e) = copy.wait() {
                    assert_eq!(e.kind(), ErrorKind::Revoked, "{e}");
                    assert!(e.to_string().contains("REVOKED"), "{e}");
                    revoked += 1;
                }
            }
            assert!(revoked > 0 || len < LEN || round > 0 || threads > 0);
            let mut bytes = vec![0; LEN];
            window.read_at(0, &mut bytes).expect("local memory");
            assert!(bytes.iter().all(|byte| *byte == round as u8), "written after it was revoked");
        }
    }
}
