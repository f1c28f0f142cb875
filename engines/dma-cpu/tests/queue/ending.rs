//! Stopped and dropped queues, and revoked memory, end all accesses.

use super::*;

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
