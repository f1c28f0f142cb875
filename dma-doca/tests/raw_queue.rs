//! Tests those parts of the raw queue's contract that the safe API does not use.
#![expect(unsafe_code, reason = "submits to the queue as the safe API does")]

#[path = "support/calls.rs"]
mod calls;

use std::time::Instant;

use calls::engine;
use dma_core::{
    Access, Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, Outcome, QueueOptions,
    RawQueue, RawRegion, Segment,
};
use dma_doca::{DocaEngine, DocaOptions};

const LEN: usize = 64;

/// Makes a region: a source with a pattern, followed by room for a copy.
fn region(engine: &DocaEngine) -> Box<dyn RawRegion> {
    let region = engine.allocate_raw(&MemoryRequest::new(2 * LEN)).unwrap();
    // SAFETY: the memory is mapped and has `2 * LEN` bytes, and only this test uses it.
    unsafe { region.info().addr.as_ptr().write_bytes(7, LEN) };
    region
}

fn halves(region: &dyn RawRegion) -> (Segment, Segment) {
    (region.info().segment(0, LEN), region.info().segment(LEN, LEN))
}

fn open(engine: &DocaEngine) -> Box<dyn RawQueue> {
    engine.open_queue_raw(&QueueOptions::new().with_depth(16)).unwrap()
}

/// Submits copies with these tokens and without a doorbell, and asserts that all are accepted.
fn submit(queue: &mut dyn RawQueue, region: &dyn RawRegion, tokens: std::ops::Range<u64>) {
    let (src, dst) = halves(region);
    let batch: Vec<_> = tokens.map(|token| Descriptor::copy(token, src, dst)).collect();
    // SAFETY: the region outlives the copies in flight, and no reference to its bytes exists. Concurrent
    // copies write the same values to the same bytes.
    assert_eq!(unsafe { queue.submit(&batch) }.unwrap(), batch.len());
}

/// Polls, up to `room` completions at a time, until `count` have arrived, and then until 50 polls in
/// a row return none.
fn reports(queue: &mut dyn RawQueue, count: usize, room: usize) -> Vec<Completion> {
    let (mut all, mut out) = (Vec::new(), vec![Completion::done(u64::MAX); room]);
    let mut idle = 0;
    while all.len() < count || idle < 50 {
        assert!(idle < 100_000_000, "{all:?}");
        let n = queue.poll(&mut out);
        all.extend_from_slice(&out[..n]);
        idle = if n > 0 { 0 } else { idle + 1 };
    }
    let mut tokens: Vec<_> = all.iter().map(|completion| completion.token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!((tokens.len(), all.len()), (count, count), "each descriptor is reported once: {all:?}");
    all
}

#[test]
fn reports_for_which_there_is_no_room_wait_for_the_next_poll() {
    for config in ["", "faults = \"fail@1\"\norder = \"submitted\"\n"] {
        let engine = engine(config);
        let region = region(&engine);
        let mut queue = open(&engine);
        submit(&mut *queue, &*region, 0..10);
        queue.flush();
        let ends = reports(&mut *queue, 10, 3);
        let ok = |end: &Completion| end.outcome == Outcome::Done;
        assert_eq!(ends.iter().filter(|end| ok(end)).count(), if config.is_empty() { 10 } else { 0 });
    }
}

#[test]
fn stopping_the_context_aborts_held_back_operations() {
    let engine = engine("faults = \"fail@1\"\norder = \"submitted\"\n");
    let region = region(&engine);
    let mut queue = open(&engine);
    submit(&mut *queue, &*region, 0..1);
    queue.flush();
    submit(&mut *queue, &*region, 1..2);
    let ends = reports(&mut *queue, 2, 16);
    let of = |token| ends.iter().find(|end| end.token == token).unwrap().outcome;
    assert_eq!((of(0), of(1)), (Outcome::Failed(ErrorKind::DeviceFault), Outcome::Aborted));
    submit(&mut *queue, &*region, 2..5);
    queue.flush();
    assert!(reports(&mut *queue, 3, 16).iter().all(|end| end.outcome == Outcome::Done));
}

#[test]
fn a_stop_aborts_what_is_held_back_and_is_for_good() {
    let engine = engine("");
    let region = region(&engine);
    let mut queue = open(&engine);
    submit(&mut *queue, &*region, 0..5);
    queue.stop();
    let ends = reports(&mut *queue, 5, 16);
    assert!(ends.iter().all(|end| end.outcome == Outcome::Aborted), "{ends:?}");
    let (src, dst) = halves(&*region);
    // SAFETY: the queue is closed and accepts no descriptor.
    let e = unsafe { queue.submit(&[Descriptor::copy(9, src, dst)]) }.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
    assert_eq!(queue.stats().resets, 0);
}

/// Tasks that fail because of a stop are aborted, even after a reset without a faulty task.
#[test]
fn a_stop_blames_nobody() {
    let engine =
        engine("faults = \"reset@t=1us+stick@t=1ms:ch=0\"\nprofile = \"bluefield3\"\nclock = \"virtual\"\n");
    let region = region(&engine);
    let mut queue = open(&engine);
    submit(&mut *queue, &*region, 0..3);
    queue.flush();
    assert!(reports(&mut *queue, 3, 16).iter().all(|end| end.outcome == Outcome::Aborted));
    assert_eq!(queue.stats().resets, 1);
    submit(&mut *queue, &*region, 3..9);
    queue.flush();
    queue.stop();
    let ends = reports(&mut *queue, 6, 16);
    assert!(!ends.iter().any(|end| matches!(end.outcome, Outcome::Failed(_))), "{ends:?}");
}

#[test]
fn a_queue_with_something_held_back_goes_at_once() {
    let engine = engine("max_contexts = 1\n");
    let region = region(&engine);
    let drops_soon = |_| {
        let begin = Instant::now();
        let mut queue = open(&engine);
        submit(&mut *queue, &*region, 0..1);
        drop(queue);
        begin.elapsed().as_secs() < 5
    };
    // If a context did not become idle, each drop would take 5 seconds, and the next queue could not
    // be opened.
    assert!((0..20).any(drops_soon));
}

/// After `arm` has returned true, only completions that end later signal the event.
#[test]
fn nobody_is_told_to_sleep_while_reports_wait() {
    let engine = engine("");
    let region = region(&engine);
    let mut queue = open(&engine);
    assert!(queue.events().unwrap().arm().unwrap(), "nothing is in flight");
    queue.events().unwrap().disarm();
    submit(&mut *queue, &*region, 0..2);
    queue.flush();
    for _ in 0..3 {
        assert!(!queue.events().unwrap().arm().unwrap());
    }
    reports(&mut *queue, 2, 16);
    assert!(queue.events().unwrap().arm().unwrap());
    queue.events().unwrap().disarm();
}

#[test]
fn a_revoked_region_is_named_wherever_it_stands_and_whoever_finds_out() {
    doca_emu::use_config(Some("")).unwrap();
    let open_at = |address: &str| {
        DocaEngine::open(
            &DocaOptions::new().with_address(address.parse().unwrap()).with_library(calls::library()),
        )
        .unwrap()
    };
    let (host, dpu) = (open_at("3b:00.0"), open_at("03:00.0"));
    let request = MemoryRequest::new(LEN).exportable(Access::all());
    let window = host.allocate_window(&request).unwrap();
    let export = window.export(Access::all()).unwrap();
    let far = dpu.import_raw(export.descriptor()).unwrap();
    let far = far.info().segment(0, LEN);
    let region = region(&dpu);
    let (src, dst) = halves(&*region);
    let mut queue = open(&dpu);
    drop(export);
    let (from, to) = ([far], [dst]);
    let (head, tail) = (Segment { len: LEN / 2, ..src }, Segment { len: LEN / 2, ..dst });
    let (halves, whole) = ([head, tail], [far]);
    for (token, descriptor) in [
        Descriptor::copy(0, far, dst),
        Descriptor::copy(1, src, far),
        Descriptor::copy_lists(2, &from, &to),
        Descriptor::copy_lists(3, &halves, &whole),
    ]
    .into_iter()
    .enumerate()
    {
        for armed in [false, true] {
            // SAFETY: the regions outlive the copies in flight, and the test does not access their bytes
            // meanwhile.
            assert_eq!(unsafe { queue.submit(&[descriptor]) }.unwrap(), 1);
            queue.flush();
            if armed {
                assert!(!queue.events().unwrap().arm().unwrap());
            }
            let end = reports(&mut *queue, 1, 16)[0];
            assert_eq!(end.outcome, Outcome::Failed(ErrorKind::Revoked), "{token} {armed}");
        }
    }
}

#[test]
fn keys_are_used_again() {
    let engine = engine("");
    let first = region(&engine).info().key;
    for _ in 0..10 {
        assert_eq!(region(&engine).info().key, first);
    }
}

#[test]
fn an_export_lies_within_its_region() {
    let engine = DocaEngine::open(&{
        doca_emu::use_config(Some("")).unwrap();
        DocaOptions::new().with_address("3b:00.0".parse().unwrap()).with_library(calls::library())
    })
    .unwrap();
    let region = engine.allocate_raw(&MemoryRequest::new(100).exportable(Access::READ)).unwrap();
    // SAFETY: nothing in this process has a reference to the region's bytes, and no peer copies them.
    let export = |offset, len| unsafe { region.export(offset, len, Access::READ) };
    for (offset, len) in [(0, 101), (100, 1), (usize::MAX, 2)] {
        assert_eq!(export(offset, len).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
    export(99, 1).unwrap();
}
