//! Tests, on a fake SPDK, those parts of the raw queue's contract that the safe API does not use.
#![expect(unsafe_code, reason = "submits to the queue as the safe API does")]

mod fake;

use std::time::Instant;

use dma_core::{
    Access, Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, Outcome, QueueOptions,
    RawQueue, RawRegion, Segment,
};
use dma_ioat::{IoatEngine, IoatOptions};
use fake::{RING, library, machine};

const LEN: usize = 64;

fn options<const N: usize>(functions: u8) -> IoatOptions {
    IoatOptions::new().with_library(library::<N>(functions))
}

fn open<const N: usize>(functions: u8) -> IoatEngine {
    IoatEngine::open(&options::<N>(functions)).expect("it opens")
}

fn queue(engine: &IoatEngine) -> Box<dyn RawQueue> {
    engine.open_queue_raw(&QueueOptions::new().with_depth(8)).unwrap()
}

fn part(region: &dyn RawRegion, offset: usize, len: usize) -> Segment {
    region.info().segment(offset, len)
}

/// Returns a copy for each token, from the beginning of a region to different places of it.
fn copies(region: &dyn RawRegion, tokens: std::ops::Range<u64>) -> Vec<Descriptor<'static>> {
    let copy = |token: u64| {
        Descriptor::copy(token, part(region, 0, LEN), part(region, LEN * (1 + token as usize % 32), LEN))
    };
    tokens.map(copy).collect()
}

fn region(engine: &IoatEngine) -> Box<dyn RawRegion> {
    let region = engine.allocate_raw(&MemoryRequest::new(LEN * 40)).unwrap();
    // SAFETY: the bytes are within the region, which only this test uses.
    unsafe { region.info().addr.as_ptr().write_bytes(7, LEN) };
    region
}

fn byte(region: &dyn RawRegion, offset: usize) -> u8 {
    let at = region.info().addr.offset(offset).as_ptr();
    // SAFETY: the byte is within the region, and no device writes it now.
    unsafe { at.read() }
}

/// Submits a batch, and returns the number of accepted descriptors.
fn submit(queue: &mut dyn RawQueue, batch: &[Descriptor<'_>]) -> dma_core::Result<usize> {
    // SAFETY: the tests' regions outlive the descriptors in flight, and tests access their bytes only while
    // none is in flight.
    unsafe { queue.submit(batch) }
}

/// Polls until `count` completions have arrived, up to `room` at a time, and returns their tokens.
fn tokens(queue: &mut dyn RawQueue, count: usize, room: usize) -> Vec<u64> {
    let (mut all, mut out) = (Vec::new(), vec![Completion::done(u64::MAX); room]);
    for _ in 0..1000 {
        let n = queue.poll(&mut out);
        assert!(out[..n].iter().all(|end| end.outcome == Outcome::Done));
        all.extend(out[..n].iter().map(|end| end.token));
    }
    assert_eq!(all.len(), count, "{all:?}");
    all
}

#[test]
fn unreported_completions_take_room() {
    let engine = open::<0>(1);
    let region = region(&engine);
    let mut queue = queue(&engine);
    assert_eq!(submit(&mut *queue, &copies(&*region, 0..9)).unwrap(), 8);
    queue.flush();
    let mut out = [Completion::done(0); 3];
    assert_eq!(queue.poll(&mut out), 3);
    assert_eq!(submit(&mut *queue, &copies(&*region, 8..16)).unwrap(), 3);
    queue.flush();
    assert_eq!(tokens(&mut *queue, 8, 3), [3, 4, 5, 6, 7, 8, 9, 10]);
}

/// SPDK translates a range piece by piece. It would execute the pieces that it has built before a failed
/// translation.
#[test]
fn a_partly_reachable_range_is_refused_whole() {
    let engine = open::<1>(1);
    let mut queue = queue(&engine);
    let (page, len) = (4096, 4 * 4096);
    let make = || engine.allocate_raw(&MemoryRequest::new(len).with_align(page)).unwrap();
    let (whole, cut) = (make(), make());
    // SAFETY: these are the bytes of the whole region, which only this test uses.
    unsafe { whole.info().addr.as_ptr().write_bytes(7, len) };
    machine::<1>().cut(cut.info().addr.0 as usize, 3 * page);
    let pattern = [9; 8];
    let fills = [part(&*cut, 0, len)];
    for bad in [
        Descriptor::copy(1, part(&*whole, 0, len), part(&*cut, 0, len)),
        Descriptor::copy(2, part(&*whole, 100, 4100), part(&*cut, 2 * page + 100, 4100)),
        Descriptor::fill(3, pattern, &fills),
        // The device cannot reach the end of the source.
        Descriptor::copy(4, part(&*cut, page, len - page), part(&*whole, page, len - page)),
    ] {
        let e = submit(&mut *queue, &[bad]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutOfRange, "{e}");
        assert!(e.message().contains("translation for byte"), "{e}");
    }
    // No piece of the refused descriptors is in the ring.
    assert_eq!(
        submit(&mut *queue, &[Descriptor::copy(5, part(&*whole, 0, 9), part(&*cut, page, 9))]).unwrap(),
        1
    );
    queue.flush();
    assert_eq!(tokens(&mut *queue, 1, 8), [5]);
    assert_eq!((byte(&*cut, 0), byte(&*cut, page), byte(&*cut, page + 9)), (0, 7, 0));
    assert_eq!((byte(&*cut, 2 * page + 100), byte(&*whole, page)), (0, 7));
}

#[test]
fn an_empty_channel_that_takes_nothing_is_an_error() {
    let engine = open::<2>(1);
    let region = region(&engine);
    let mut queue = queue(&engine);
    machine::<2>().full = true;
    let e = submit(&mut *queue, &copies(&*region, 0..1)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::OutOfResources, "{e}");
    machine::<2>().full = false;
    assert_eq!(submit(&mut *queue, &copies(&*region, 0..1)).unwrap(), 1);
    // While a descriptor is in flight, the caller can wait, so this is not an error.
    machine::<2>().full = true;
    assert_eq!(submit(&mut *queue, &copies(&*region, 1..2)).unwrap(), 0);
    queue.flush();
    assert_eq!(tokens(&mut *queue, 1, 8), [0]);
    machine::<2>().full = false;
}

#[test]
fn a_stop_lets_what_was_taken_finish_and_takes_no_more() {
    let engine = open::<3>(1);
    let region = region(&engine);
    let mut queue = queue(&engine);
    assert_eq!(submit(&mut *queue, &copies(&*region, 0..3)).unwrap(), 3);
    queue.stop();
    assert_eq!(submit(&mut *queue, &copies(&*region, 3..4)).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(tokens(&mut *queue, 3, 8), [0, 1, 2]);
    assert_eq!((byte(&*region, 3 * LEN), byte(&*region, 4 * LEN)), (7, 0));
}

#[test]
fn dropping_a_queue_finishes_what_was_taken_and_gives_the_channel_back() {
    let engine = open::<4>(1);
    let region = region(&engine);
    let drops_soon = |_| {
        let begin = Instant::now();
        let mut queue = queue(&engine);
        assert_eq!(submit(&mut *queue, &copies(&*region, 0..3)).unwrap(), 3);
        drop(queue);
        assert_eq!(byte(&*region, 3 * LEN), 7);
        begin.elapsed().as_secs() < 1
    };
    // If a drop waited for its time limit, each would take a second.
    assert!((0..100).any(drops_soon));
    // A channel that completes nothing is abandoned.
    let mut queue = queue(&engine);
    machine::<4>().stuck = true;
    assert_eq!(submit(&mut *queue, &copies(&*region, 0..3)).unwrap(), 3);
    queue.flush();
    drop(queue);
    let e = engine.open_queue_raw(&QueueOptions::new().with_depth(8)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DeviceLost, "{e}");
    assert!(e.to_string().contains("do not answer"), "{e}");
    // When the channel completes descriptors again, it becomes free.
    machine::<4>().stuck = false;
    drop(engine.open_queue_raw(&QueueOptions::new().with_depth(8)).unwrap());
}

#[test]
fn an_impossible_request_is_refused_and_takes_no_room() {
    let engine = open::<5>(1);
    let too_deep = engine.open_queue_raw(&QueueOptions::new().with_depth(RING)).unwrap_err();
    assert_eq!(too_deep.kind(), ErrorKind::OutOfRange);
    assert_eq!((too_deep.requested(), too_deep.limit()), (Some(RING as u64), Some(RING as u64 - 1)));
    drop(
        engine
            .open_queue_raw(&QueueOptions::new().with_depth(RING - 1))
            .expect("the machine's channel is free"),
    );
    let e = engine.allocate_raw(&MemoryRequest::new(LEN).exportable(Access::READ)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
}

#[test]
fn an_engine_with_an_address_takes_that_channel_and_no_other() {
    let one = IoatEngine::open(&options::<6>(3).with_address("00:04.1".parse().unwrap())).unwrap();
    let _first = one.open_queue(&QueueOptions::new()).unwrap();
    let taken = one.open_queue(&QueueOptions::new()).expect_err("the engine has one channel");
    assert!(taken.to_string().contains("0000:00:04.1 is taken by another queue of this process"), "{taken}");
    let all = open::<6>(3);
    let _others =
        [(); 2].map(|()| all.open_queue(&QueueOptions::new()).expect("the other two channels are free"));
    assert_eq!(all.open_queue(&QueueOptions::new()).unwrap_err().kind(), ErrorKind::OutOfResources);
}

/// A channel that is being recovered for a queue is not given to another queue.
#[test]
fn a_channel_that_is_restarting_is_its_queues() {
    let engine = open::<7>(1);
    let region = region(&engine);
    let mut queue = queue(&engine);
    machine::<7>().gone = true;
    machine::<7>().comes_back = true;
    machine::<7>().halt_in = Some(0);
    assert_eq!(submit(&mut *queue, &copies(&*region, 0..1)).unwrap(), 1);
    queue.flush();
    let mut out = [Completion::done(0); 8];
    while queue.poll(&mut out) == 0 {}
    assert_eq!(out[0].outcome, Outcome::Failed(ErrorKind::DeviceFault));
    while machine::<7>().detached == 0 {
        std::thread::yield_now();
    }
    let e = engine.open_queue_raw(&QueueOptions::new().with_depth(8)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::OutOfResources, "{e}");
    while submit(&mut *queue, &copies(&*region, 1..2)).unwrap() == 0 {
        std::thread::yield_now();
    }
    queue.flush();
    assert_eq!(tokens(&mut *queue, 1, 8), [1]);
    assert_eq!(queue.stats().resets, 1);
}
