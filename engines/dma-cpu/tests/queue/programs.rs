//! Random programs, compared with an oracle in ordinary memory.

use super::*;

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
                    let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
                    let ready = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&minute)).expect("poll works");
                    prop_assert_eq!(ready, 1, "no wake-up although {} operations are in flight", flying);
                }
                prop_assert!(started.elapsed() < Duration::from_secs(60));
            }
        }
    }
}
