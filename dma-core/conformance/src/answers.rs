//! Cases: operations with a result, and copies to two destinations, with and without device support.

use super::expect::{ACCEPTS, COMPLETES, repeats};
use super::{allocate, filled, queue, queued_len, sample};
use dma_core::{
    Access, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, OpError, SharedQueueOptions,
};

/// Computes CRC-32C bit by bit, by its definition. This is the oracle.
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(!seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    }) ^ u32::MAX
}

/// Repeats a submission until the queue accepts it. Other threads may have filled the queue.
fn until_accepted<T, R>(mut operands: T, submit: impl Fn(T) -> Result<R, OpError<T>>) -> R {
    loop {
        match submit(operands) {
            Ok(transfer) => return transfer,
            Err(e) if e.kind() == ErrorKind::QueueFull => {
                operands = e.into_operands().expect("a refusal returns the operands");
                std::thread::yield_now();
            }
            Err(e) => panic!("{ACCEPTS}: {e}"),
        }
    }
}

/// Lengths of zero bytes, of one chunk, and of several chunks on engines with tight limits.
const LENS: [usize; 9] = [0, 1, 7, 64, 99, 101, 1000, 4097, 70_001];

/// A copy to two destinations writes the source's bytes to both, and writes no other bytes.
pub fn copies_go_to_both_destinations(engine: &dyn DmaEngine) {
    let q = queue(engine);
    for len in LENS {
        let src = filled(engine, len as u64, len + 3).freeze();
        let [dst, also] = [allocate(engine, len + 2), allocate(engine, len + 2)];
        let part = |mut buffer: dma_core::BufferMut| {
            let head = buffer.split_to(1);
            let tail = buffer.split_off(len);
            (head, buffer, tail)
        };
        let ((head, dst, tail), (also_head, also, also_tail)) = (part(dst), part(also));
        let transfer = q.copy_to_both(src.slice(2..2 + len), dst, also).expect(ACCEPTS);
        let (_, dst, also) = transfer.wait().expect(COMPLETES);
        assert!(
            dst[..] == src[2..2 + len] && also[..] == dst[..],
            "both destinations of a copy hold its {len} bytes"
        );
        let around = [head, tail, also_head, also_tail];
        assert!(
            around.iter().all(|side| repeats(side, &[0])),
            "a copy of {len} bytes does not change the bytes around its destinations"
        );
    }
    let request = MemoryRequest::new(100);
    let window = engine.allocate_window(&request).expect("memory is allocated");
    let refused = q.copy_to_both(allocate(engine, 60), window.slice(0..60), window.slice(40..100));
    assert_eq!(refused.expect_err("the destinations overlap").kind(), ErrorKind::Overlap);
    let refused = q.copy_to_both(allocate(engine, 60), window.slice(0..60), allocate(engine, 59));
    assert_eq!(refused.expect_err("one is shorter").kind(), ErrorKind::LengthMismatch);
}

/// A comparison returns the position of the first byte that differs, and nothing if all bytes are equal.
pub fn the_first_difference_is_found(engine: &dyn DmaEngine) {
    let q = queue(engine);
    for len in LENS {
        let bytes = sample(len as u64, len);
        let mut a = allocate(engine, len + 1).split_off(1);
        a.copy_from_slice(&bytes);
        let mut b = allocate(engine, len.max(1)).split_to(len);
        b.copy_from_slice(&bytes);
        let places = [None, Some(0), Some(len / 3), Some(98), Some(100), Some(4096), len.checked_sub(1)];
        for at in places.into_iter().filter(|at| at.is_none_or(|at| at < len)) {
            if let Some(at) = at {
                b[at..].iter_mut().for_each(|byte| *byte ^= 0x10);
            }
            let transfer = q.compare(a, b).expect(ACCEPTS);
            let ((same, other), found) = transfer.wait().expect(COMPLETES);
            assert_eq!(found, at, "the position of the first difference in {len} bytes");
            (a, b) = (same, other);
            b.copy_from_slice(&bytes);
        }
    }
    // Compares lists that are split at different places, and bytes with themselves.
    let bytes = sample(1, 1000);
    let mut whole = allocate(engine, 1000);
    whole.copy_from_slice(&bytes);
    let mut cut = allocate(engine, 1000);
    cut.copy_from_slice(&bytes);
    cut[777] ^= 1;
    let (whole, cut) = (whole.freeze(), cut.freeze());
    let a = vec![whole.slice(..333), whole.slice(333..333), whole.slice(333..)];
    let b = vec![cut.slice(..500), cut.slice(500..600), cut.slice(600..)];
    assert_eq!(q.compare(a, b).expect(ACCEPTS).wait().expect(COMPLETES).1, Some(777));
    assert_eq!(q.compare(whole.clone(), whole.clone()).expect(ACCEPTS).wait().expect(COMPLETES).1, None);
    let refused = q.compare(whole.clone(), whole.slice(1..)).expect_err("the lengths differ");
    assert_eq!(refused.kind(), ErrorKind::LengthMismatch);
}

/// A CRC covers all bytes in order, and can continue a previous CRC.
pub fn crcs_are_of_all_bytes(engine: &dyn DmaEngine) {
    assert_eq!(crc32c(0, b"123456789"), 0xe306_9283, "the CRC-32C check value, as computed by the oracle");
    let q = queue(engine);
    for len in LENS {
        let src = filled(engine, len as u64, len + 5).freeze();
        let part = src.slice(5..);
        for seed in [0, 1, 0xdead_beef, u32::MAX] {
            let expected = crc32c(seed, &part);
            let (_, crc) = q.crc32c(part.clone(), seed).expect(ACCEPTS).wait().expect(COMPLETES);
            assert_eq!(crc, expected, "the CRC-32C of {len} bytes with seed {seed:#x}");
            let dst = allocate(engine, len.max(1)).split_to(len);
            let transfer = q.copy_crc32c(part.clone(), dst, seed).expect(ACCEPTS);
            let ((_, dst), crc) = transfer.wait().expect(COMPLETES);
            assert_eq!(crc, expected, "the CRC-32C of a copy of {len} bytes with seed {seed:#x}");
            assert!(dst[..] == part[..], "a copy with a CRC copies its {len} bytes");
        }
        let at = len / 2;
        let lists = vec![part.slice(at..at), part.slice(..at), part.slice(at..)];
        let (_, crc) = q.crc32c(lists, 7).expect(ACCEPTS).wait().expect(COMPLETES);
        assert_eq!(crc, crc32c(7, &part), "the CRC-32C of a list");
    }
    // Several threads compute CRCs through a shared queue, which returns each result to its submitter.
    let shared =
        engine.open_shared_queue(&SharedQueueOptions::new()).expect("an engine opens a shared queue");
    let src = filled(engine, 9, 5000).freeze();
    std::thread::scope(|scope| {
        for thread in 0..3_u32 {
            let (shared, src) = (shared.clone(), src.clone());
            scope.spawn(move || {
                let part = src.slice(thread as usize..);
                let transfer = until_accepted(part, |part| shared.crc32c(part, thread));
                let (part, crc) = transfer.wait().expect(COMPLETES);
                assert_eq!(crc, crc32c(thread, &part));
                let sides = (part.slice(1..), src.slice(..part.len() - 1));
                let transfer = until_accepted(sides, |(a, b)| shared.compare(a, b));
                let ((a, b), found) = transfer.wait().expect(COMPLETES);
                assert_eq!(found, a.iter().zip(&b[..]).position(|(a, b)| a != b));
            });
        }
    });
    let dst = allocate(engine, 5000);
    let ((_, dst), crc) = shared.copy_crc32c(src.clone(), dst, 3).expect(ACCEPTS).wait().expect(COMPLETES);
    assert_eq!((crc, &dst[..]), (crc32c(3, &src), &src[..]));
    let transfer = shared.copy_to_both(src.clone(), dst, allocate(engine, 5000)).expect(ACCEPTS);
    let (_, dst, also) = transfer.wait().expect(COMPLETES);
    assert!(dst[..] == src[..] && also[..] == src[..]);
}

/// Operations with results are ordered by fences before and after them.
pub fn answers_keep_fences(engine: &dyn DmaEngine) {
    // `queued_len` makes the operations long enough to be in flight after their submission.
    let (q, len) = (queue(engine), queued_len(engine, 10_000));
    let request = MemoryRequest::new(len);
    let [src, other] = [1, 2].map(|seed| filled(engine, seed, len).freeze());
    let window = engine.allocate_window(&request).expect("memory is allocated");
    for _ in 0..20 {
        // The queue may have a depth of 2, so these steps have at most two operations in flight.
        let first = q.copy(src.clone(), window.clone()).expect(ACCEPTS);
        q.fence();
        let crc = q.crc32c(window.clone(), 0).expect(ACCEPTS);
        let (_, crc) = crc.wait().expect(COMPLETES);
        assert_eq!(
            crc,
            crc32c(0, &src),
            "a CRC behind a fence covers the bytes that were copied before the fence"
        );
        first.wait().expect(COMPLETES);
        let found = q.compare(src.clone(), window.clone()).expect(ACCEPTS);
        q.fence();
        let last = q.copy(other.clone(), window.clone()).expect(ACCEPTS);
        last.wait().expect(COMPLETES);
        assert_eq!(
            found.wait().expect(COMPLETES).1,
            None,
            "an operation behind a fence writes nothing before earlier operations have ended"
        );
        if q.depth() < 3 {
            continue;
        }
        // A copy is between the fence and the operation with a result.
        let first = q.copy(src.clone(), window.clone()).expect(ACCEPTS);
        q.fence();
        let second = q.copy(other.clone(), allocate(engine, len)).expect(ACCEPTS);
        let crc = q.crc32c(window.clone(), 0).expect(ACCEPTS);
        let (_, crc) = crc.wait().expect(COMPLETES);
        assert_eq!(crc, crc32c(0, &src), "a CRC that is submitted second after a fence");
        first.wait().expect(COMPLETES);
        second.wait().expect(COMPLETES);
    }
}

/// Several operations with results are in flight at the same time. Each returns the result of its own
/// operands, and a copy behind a fence waits for all of them.
pub fn answers_are_in_flight_together(engine: &dyn DmaEngine) {
    let (q, len) = (queue(engine), queued_len(engine, 3000));
    if q.depth() < 2 {
        return;
    }
    for round in 0..5 {
        let windows: Vec<_> =
            (0..6.min(q.depth() as u64 - 1)).map(|i| filled(engine, 10 * round + i, len).share()).collect();
        let crcs: Vec<_> = windows.iter().map(|window| q.crc32c(window.clone(), 1).expect(ACCEPTS)).collect();
        q.fence();
        let mut other = allocate(engine, len);
        other.fill(0xEE);
        let last = q.copy(other, windows[0].clone()).expect(ACCEPTS);
        for (i, crc) in (0..).zip(crcs) {
            let (_, crc) = crc.wait().expect(COMPLETES);
            assert_eq!(crc, crc32c(1, &sample(10 * round + i, len)), "CRC {i} of round {round}");
        }
        last.wait().expect(COMPLETES);
    }
}

/// Comparisons and CRCs work on imported memory, which the CPU cannot reach.
pub fn imported_memory_is_answered_for(engine: &dyn DmaEngine) {
    const LEN: usize = 100_000;
    if !engine.info().capabilities.contains(Capabilities::EXPORT | Capabilities::IMPORT) {
        return;
    }
    let window = engine.allocate_window(&MemoryRequest::new(LEN).exportable(Access::all())).expect("memory");
    let bytes = sample(3, LEN);
    window.write_at(0, &bytes).expect("local memory can be written");
    let export = window.export(Access::all()).expect("exportable memory is exported");
    let far = engine.import(export.descriptor()).expect("an export can be imported");
    let q = queue(engine);
    let (far, crc) = q.crc32c(far, 5).expect(ACCEPTS).wait().expect(COMPLETES);
    assert_eq!(crc, crc32c(5, &bytes));
    let mut near = allocate(engine, LEN);
    near.copy_from_slice(&bytes);
    near[LEN - 7] ^= 1;
    let ((far, near), found) = q.compare(far, near).expect(ACCEPTS).wait().expect(COMPLETES);
    assert_eq!(found, Some(LEN - 7));
    let ((near, far), crc) = q.copy_crc32c(near, far, 1).expect(ACCEPTS).wait().expect(COMPLETES);
    assert_eq!(crc, crc32c(1, &near));
    let (parts, crc) =
        q.copy_crc32c(far.slice(..LEN / 2), far.slice(LEN / 2..), 2).expect(ACCEPTS).wait().expect(COMPLETES);
    assert_eq!(crc, crc32c(2, &near[..LEN / 2]), "the CRC of memory that only the device reaches");
    assert_eq!(q.compare(parts.0, parts.1).expect(ACCEPTS).wait().expect(COMPLETES).1, None);
}
