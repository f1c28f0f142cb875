//! Tests of a copy that is waited for while no other operation is open.

use super::*;

/// Returns the counters without those that depend on the number of polls and doorbells.
fn counts(rig: &Rig) -> [u64; 7] {
    let c = rig.queue.counters();
    [c.submitted, c.completed, c.failed, c.aborted, c.in_flight, c.bytes, c.descriptors]
}

/// Waits for a copy of this length, beside another operation or alone, and returns the result.
fn end_of(rig: &Rig, len: usize, is_alone: bool) -> Option<ErrorKind> {
    let transfer = rig.copy(len);
    if !is_alone {
        // The flush passes the copy to the device, so the wait only polls.
        rig.queue.flush();
    }
    match transfer.wait() {
        Ok((src, dst)) => {
            assert_eq!(src[..], dst[..]);
            None
        }
        Err(error) => Some(error.kind()),
    }
}

#[test]
fn a_copy_alone_ends_and_counts_as_one_that_was_flushed() {
    let fault = (Outcome::Failed(ErrorKind::DeviceFault), 7);
    let aborted = (Outcome::Aborted, 5);
    let ends = [true, false].map(|is_alone| {
        let rig = Rig::new();
        lock(&rig.script).fail = HashMap::from([(21, fault), (23, aborted)]);
        let mut ends = Vec::new();
        for len in 20..26 {
            if len == 22 {
                rig.refuse(22);
            }
            if len == 24 {
                let polls = lock(&rig.script).polls;
                lock(&rig.script).silent = Some(polls + 30);
            }
            ends.push((len, end_of(&rig, len, is_alone), counts(&rig), rig.queue.available()));
        }
        assert_eq!(rig.queue.counters().doorbells, 5, "one for each copy that the device accepted");
        ends
    });
    let [alone, flushed] = ends;
    assert_eq!(alone, flushed);
    let kinds: Vec<_> = alone.iter().map(|(_, kind, ..)| *kind).collect();
    let [fault, refused, aborted] = [ErrorKind::DeviceFault, ErrorKind::OutOfRange, ErrorKind::Aborted];
    assert_eq!(kinds, [None, Some(fault), Some(refused), Some(aborted), None, None]);
    assert!(alone.iter().all(|(.., available)| *available == 64));
}

/// A call between the submission and the wait of a copy.
type Call = fn(&Rig, &Pair);

/// Any call between the submission and the wait leaves the copy in its place, and the next copy is complete.
#[test]
fn other_calls_before_the_wait_lose_nothing() {
    let calls: [(&str, Call); 7] = [
        ("flush", |rig, _| rig.queue.flush()),
        ("poll", |rig, _| _ = rig.queue.poll()),
        ("flush and poll", |rig, _| {
            rig.queue.flush();
            rig.queue.poll();
        }),
        ("fence", |rig, _| rig.queue.fence()),
        ("token", |rig, transfer| rig.queue.set_token(transfer, 9)),
        ("another copy", |rig, _| drop(rig.copy(50).wait().expect("done"))),
        ("a batch", |rig, _| {
            let batch: Batch<_, _> = [51, 52].map(|len| rig.pair(len)).into_iter().collect();
            drop(rig.queue.submit(batch).expect("room").wait().expect("done"));
        }),
    ];
    for (name, call) in calls {
        let rig = Rig::new();
        for len in [10, 11] {
            let transfer = rig.copy(len);
            call(&rig, &transfer);
            let (src, dst) = transfer.wait().expect(name);
            assert_eq!(src[..], dst[..], "{name}");
        }
        assert_eq!(end_of(&rig, 12, true), None, "{name}");
        let taken = lock(&rig.script).taken.clone();
        let own: Vec<_> = taken.iter().filter(|(len, _)| *len < 20).copied().collect();
        let fence = name == "fence";
        assert_eq!(own, [(10, false), (11, fence), (12, fence)], "{name}");
        let mut tokens = Vec::new();
        rig.queue.take_tokens(&mut tokens);
        assert_eq!(tokens, if name == "token" { vec![9, 9] } else { vec![] }, "{name}");
        let counters = rig.queue.counters();
        assert_eq!((counters.in_flight, counters.completed), (0, counters.submitted), "{name}");
        assert_eq!((counters.descriptors, rig.queue.available()), (counters.submitted, 64), "{name}");
    }
}

/// A transfer that is dropped before the wait is not forgotten.
#[test]
fn a_copy_alone_that_is_dropped_completes() {
    let rig = Rig::new();
    let (transfer, given_back) = rig.copy_to_owned(44);
    drop(transfer);
    assert_eq!(count(&given_back), 0);
    assert_eq!(end_of(&rig, 45, true), None);
    while count(&given_back) == 0 {
        rig.queue.poll();
    }
    assert_eq!((rig.queue.counters().completed, rig.queue.available()), (2, 64));
}
