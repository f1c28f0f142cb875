//! Cases: all bytes arrive, whatever the size, the shape and the number of operations.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::{
    ACCEPTS, COMPLETES, allocate, expect_all_completed, expect_arrived, expect_kind, inline_limit, patience,
    queue, queue_of, queued_len, sample,
};
use dma_core::{
    Access, Batch, Buffer, BufferPool, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, ExportDescriptor,
    HostMemory, MemoryRequest, PoolOptions, QueueOptions, Rows,
};

/// The engine's limits are usable, and queues follow them.
pub fn info_is_consistent(engine: &dyn DmaEngine) {
    let info = engine.info();
    let limits = &info.limits;
    assert!(!info.backend.is_empty() && !info.device.is_empty(), "an engine has a name and a device");
    assert!(limits.max_transfer >= 64, "`max_transfer` is at least 64 bytes");
    assert!(
        limits.max_segments >= 1,
        "`max_segments` is 0, but a descriptor has at least one segment on each side"
    );
    assert!(
        limits.max_queue_depth >= 1,
        "`max_queue_depth` is 0, but a queue accepts at least one descriptor"
    );
    assert!(
        (1..=limits.max_queue_depth).contains(&limits.default_queue_depth),
        "`default_queue_depth` must be from 1 to `max_queue_depth`: {limits:?}"
    );
    assert!(
        limits.register_alignment.is_power_of_two() && limits.preferred_alignment.is_power_of_two(),
        "alignments must be powers of two: {limits:?}"
    );
    let q = queue(engine);
    assert_eq!(q.depth(), limits.default_queue_depth, "a queue opened with depth 0 has the default depth");
    expect_all_completed(q.counters(), 0, "before the first operation");
    let deep = queue_of(engine, limits.max_queue_depth);
    assert!(
        deep.depth() >= limits.max_queue_depth,
        "a queue opened with the maximum depth has at least that depth"
    );
}

/// Allocated memory is zeroed, has the requested alignment, and is writable.
pub fn allocation_is_zeroed_and_aligned(engine: &dyn DmaEngine) {
    for (len, align) in [(1, 1), (64, 64), (4096, 4096), (70_001, 4096), (100, 16_384)] {
        let request = MemoryRequest::new(len).with_align(align);
        let mut buffer = engine.allocate_with(&request).expect("memory is allocated");
        assert_eq!(buffer.len(), len, "a region has the requested length");
        assert_eq!(buffer.as_ptr().addr() % align, 0, "{len} bytes aligned to {align}");
        assert!(buffer.iter().all(|b| *b == 0), "allocated memory is zeroed");
        buffer.fill(0xff);
        drop(buffer);
    }
}

/// Copies of many sizes arrive complete.
pub fn copies_of_every_size_arrive(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let sizes = (1..=130).chain([
        255,
        256,
        257,
        511,
        1000,
        4095,
        4096,
        4097,
        65_535,
        65_536,
        65_537,
        300_000,
        1 << 20,
    ]);
    for len in sizes {
        let mut src = allocate(engine, len);
        src.copy_from_slice(&sample(len as u64, len));
        let dst = allocate(engine, len);
        let (src, dst) = q.copy(src, dst).expect(ACCEPTS).wait().expect(COMPLETES);
        expect_arrived(&src, &dst, format_args!("a copy of {len} bytes"));
        assert!(src[..] == sample(len as u64, len)[..], "the source is unchanged");
    }
}

/// Copies at any alignment write no bytes outside the destination.
pub fn copies_leave_their_neighbours_alone(engine: &dyn DmaEngine) {
    let q = queue(engine);
    for (offset, len) in [(0, 1), (1, 63), (3, 64), (7, 65), (64, 4096), (63, 8191), (4095, 2), (13, 100_000)]
    {
        for src_offset in [0, 1, 5, 64] {
            let whole = offset + len + 100;
            let mut src = allocate(engine, src_offset + len);
            src.copy_from_slice(&sample(1, src_offset + len));
            let src = src.split_off(src_offset);
            let mut dst = allocate(engine, whole);
            dst.fill(0x5a);
            let mut middle = dst.split_off(offset);
            let after = middle.split_off(len);
            let (src, middle) = q.copy(src, middle).expect(ACCEPTS).wait().expect(COMPLETES);
            expect_arrived(
                &src,
                &middle,
                format_args!("a copy of {len} bytes from offset {src_offset} to offset {offset} of a region"),
            );
            assert!(
                dst.iter().chain(&after[..]).all(|b| *b == 0x5a),
                "a copy of {len} bytes to offset {offset} does not change the bytes around them"
            );
        }
    }
}

/// Copies longer than the device's limit are split internally, and each is reported as one completion.
pub fn long_copies_are_split(engine: &dyn DmaEngine) {
    let max = engine.info().limits.max_transfer;
    let Some(max) = usize::try_from(max).ok().filter(|max| *max <= 32 << 20) else {
        // A copy that exceeds the device's limit would take too long, so skip the case.
        return;
    };
    let q = queue(engine);
    let longest = 3 * max + 7;
    // All copies share one sample, because making it takes longer than the copies.
    let mut src = allocate(engine, longest);
    src.copy_from_slice(&sample(3, longest));
    let whole = src.freeze();
    for len in [max - 1, max, max + 1, 2 * max, longest] {
        let before = q.counters();
        let (src, dst) =
            q.copy(whole.slice(..len), allocate(engine, len)).expect(ACCEPTS).wait().expect(COMPLETES);
        expect_arrived(&src, &dst, format_args!("a copy of {len} bytes, over a limit of {max},"));
        let after = q.counters();
        assert_eq!(after.completed - before.completed, 1, "a split copy is reported as one completion");
        assert!(
            after.descriptors - before.descriptors >= len.div_ceil(max) as u64,
            "no descriptor of a split copy is longer than the limit"
        );
        assert_eq!(
            after.bytes - before.bytes,
            len as u64,
            "`bytes` counts the {len} bytes of a split copy once"
        );
    }
}

/// A fill writes its pattern from the first byte on, even if it is split or scattered.
pub fn fills_keep_their_pattern(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let patterns = [[0; 8], [0xab; 8], *b"12345678"];
    let max = usize::try_from(engine.info().limits.max_transfer).unwrap_or(usize::MAX).min(1 << 22);
    for (i, len) in [1, 7, 8, 9, 64, 1000, 4096, 200_001, max, max + 13].into_iter().enumerate() {
        let pattern = patterns[i % 3];
        let mut dst = allocate(engine, len + 16);
        dst.fill(0xee);
        let mut middle = dst.split_off(5);
        let after = middle.split_off(len);
        let middle = q.fill(middle, pattern).expect(ACCEPTS).wait().expect(COMPLETES);
        assert!(
            middle.iter().zip(pattern.iter().cycle()).all(|(a, b)| a == b),
            "a fill writes {len} bytes of its pattern"
        );
        assert!(
            dst.iter().chain(&after[..]).all(|b| *b == 0xee),
            "a fill writes no bytes outside its destination"
        );
    }
    // Fills with several patterns are in flight at once.
    let fills: Vec<_> = (0..20.min(q.depth()))
        .map(|i| (i, q.fill(allocate(engine, 5000), patterns[i % 3]).expect(ACCEPTS)))
        .collect();
    for (i, fill) in fills {
        let dst = fill.wait().expect(COMPLETES);
        let filled = dst.iter().zip(patterns[i % 3].iter().cycle()).all(|(a, b)| a == b);
        assert!(
            filled,
            "fill {i} of several in flight was reported as done, but its destination does not hold the pattern"
        );
    }
    let scattered = vec![allocate(engine, 13), allocate(engine, 1), allocate(engine, 50)];
    let scattered = q.fill(scattered, patterns[2]).expect(ACCEPTS).wait().expect(COMPLETES);
    let written: Vec<u8> = scattered.iter().flat_map(|b| b.iter().copied()).collect();
    assert!(
        written.iter().zip(patterns[2].iter().cycle()).all(|(a, b)| a == b),
        "the pattern of a scattered fill continues from one segment to the next"
    );
}

/// Lists as source or destination give the same result as one contiguous range. The lists are longer than the
/// device's limit, and have segments of many sizes.
pub fn lists_are_gathered_and_scattered(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let shapes: [(&[usize], &[usize]); 6] = [
        (&[100], &[40, 60]),
        (&[40, 60], &[100]),
        (&[1, 2, 3, 4, 5, 6, 7], &[7, 6, 5, 4, 3, 2, 1]),
        (&[0, 10, 0, 10], &[20, 0]),
        (&[5000, 1, 5000], &[1, 9999, 1]),
        (&[3; 100], &[100, 100, 100]),
    ];
    for (from, to) in shapes {
        let total: usize = from.iter().sum();
        let expected = sample(7, total);
        let mut at = 0;
        let src: Vec<_> = from
            .iter()
            .map(|&len| {
                let mut part = allocate(engine, len + 8).split_off(3).split_to(len);
                part.copy_from_slice(&expected[at..at + len]);
                at += len;
                part
            })
            .collect();
        let dst: Vec<_> = to.iter().map(|&len| allocate(engine, len + 8).split_to(len)).collect();
        let (_, dst) = q.copy(src, dst).expect(ACCEPTS).wait().expect(COMPLETES);
        let got: Vec<u8> = dst.iter().flat_map(|part| part.iter().copied()).collect();
        assert!(got == expected, "{from:?} to {to:?}");
    }
    // One list contains views of different types.
    let mut header = allocate(engine, 4);
    header.copy_from_slice(b"head");
    let mut payload = allocate(engine, 7);
    payload.copy_from_slice(b"payload");
    let (_, dst) =
        q.copy((header, payload.freeze()), allocate(engine, 11)).expect(ACCEPTS).wait().expect(COMPLETES);
    assert_eq!(&dst[..], b"headpayload");
}

/// Rows of one view are gathered and scattered. The cases have more rows than the device's limit, long rows,
/// empty rows, repeated rows, and rows in no order. No bytes outside the rows are written.
pub fn rows_are_gathered_and_scattered(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let shapes: [&[(usize, usize)]; 6] = [
        &[(0, 300)],
        &[(10, 20), (50, 1), (51, 30), (200, 0), (200, 100)],
        &[(250, 40), (7, 3), (100, 64)],
        &[(3, 64); 50],
        &[(0, 50_000), (60_000, 1), (70_000, 20_000)],
        &[],
    ];
    for rows in shapes {
        let end = rows.iter().map(|&(at, len)| at + len).max().unwrap_or(0) + 5;
        let total = rows.iter().map(|row| row.1).sum();
        let mut table = allocate(engine, end);
        table.copy_from_slice(&sample(11, end));
        let gathered: Vec<u8> = rows.iter().flat_map(|&(at, len)| table[at..at + len].to_vec()).collect();
        let from = Rows::new(table.freeze(), rows.to_vec()).expect("rows inside the view are accepted");
        let (from, dst) = q.copy(from, allocate(engine, total)).expect(ACCEPTS).wait().expect(COMPLETES);
        expect_arrived(&gathered, &dst, format_args!("a gather of {} rows", rows.len()));
        assert_eq!(from.into_parts().1, rows, "the rows are returned");

        let mut expected = sample(12, end);
        let mut table = allocate(engine, end);
        table.copy_from_slice(&expected);
        let to = Rows::new(table, rows.to_vec()).expect("rows inside the view are accepted");
        let repeats = rows.len() > 1 && rows[0] == rows[1];
        let scattered = match q.copy(dst, to) {
            Err(e) if repeats => {
                expect_kind(&e, ErrorKind::Overlap, "rows that are written twice are refused");
                continue;
            }
            scattered => scattered.expect(ACCEPTS).wait().expect(COMPLETES),
        };
        assert!(!repeats, "rows that are written twice are refused");
        let mut at = 0;
        for &(row, len) in rows {
            expected[row..row + len].copy_from_slice(&gathered[at..at + len]);
            at += len;
        }
        let (table, _) = scattered.1.into_parts();
        expect_arrived(&expected, &table, format_args!("a scatter of {} rows", rows.len()));
    }
}

/// Operations of zero bytes complete and are counted, whatever their type.
pub fn empty_operations_complete(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let empty = || allocate(engine, 1).split_to(0);
    q.copy(empty(), empty()).expect(ACCEPTS).wait().expect(COMPLETES);
    q.fill(empty(), [1; 8]).expect(ACCEPTS).wait().expect(COMPLETES);
    q.copy(Vec::<dma_core::BufferMut>::new(), empty()).expect(ACCEPTS).wait().expect(COMPLETES);
    q.submit(Batch::<dma_core::BufferMut, dma_core::BufferMut>::new())
        .expect(ACCEPTS)
        .wait()
        .expect(COMPLETES);
    let counters = q.counters();
    expect_all_completed(counters, 3, "after three operations of zero bytes and an empty batch");
    assert_eq!(counters.bytes, 0, "operations of zero bytes do not count as moved bytes");
}

/// A queue that is full completes all its operations, several times in a row.
pub fn many_in_flight(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let depth = q.depth().min(1000);
    for round in 0..3 {
        let transfers: Vec<_> = (0..depth)
            .map(|i| {
                let len = 1 + (i * 37) % 3000;
                let mut src = allocate(engine, len);
                src.copy_from_slice(&sample((round * depth + i) as u64, len));
                q.copy(src, allocate(engine, len)).expect("a queue accepts operations up to its depth")
            })
            .collect();
        // The transfers are waited for in the reverse order of submission.
        for transfer in transfers.into_iter().rev() {
            let (src, dst) = transfer.wait().expect(COMPLETES);
            expect_arrived(
                &src,
                &dst,
                format_args!("a copy of {} bytes, {depth} of them in flight,", src.len()),
            );
        }
    }
    expect_all_completed(q.counters(), 3 * depth as u64, "after all transfers were waited for");
}

/// Memory of 0 bytes is allocated, registered, taken from pools, copied, exported and imported like any other
/// memory.
pub fn memory_of_no_bytes_is_legal(engine: &dyn DmaEngine) {
    let capabilities = engine.info().capabilities;
    let q = queue(engine);
    let mut sources: Vec<Buffer> = Vec::new();
    let mut destinations = Vec::new();
    let request = MemoryRequest::new(0).with_align(1 << 16);
    if capabilities.contains(Capabilities::ALLOCATE) {
        let aligned = engine.allocate_with(&request).expect("0 bytes are allocated");
        assert!(aligned.as_ptr().addr().is_multiple_of(1 << 16), "0 bytes have the requested alignment");
        destinations.extend([engine.allocate(0).expect("0 bytes are allocated"), aligned]);
        let pool = BufferPool::new(engine, &PoolOptions::new().with_class(64, 1)).expect("a pool");
        let _all = pool.try_get(64).expect("a buffer is free");
        destinations.push(pool.try_get(0).expect("0 bytes need no buffer of the pool"));
        destinations.push(pool.get_timeout(0, patience()).expect("0 bytes need no buffer of the pool"));
        sources.push(engine.allocate(0).expect("0 bytes are allocated").freeze());
    } else {
        let e = engine.allocate(0).expect_err("it allocates nothing");
        expect_kind(&e, ErrorKind::Unsupported, "without `ALLOCATE`, allocating fails with `Unsupported`");
    }
    if capabilities.contains(Capabilities::REGISTER) {
        let memory = engine.register(HostMemory::from_owner(Vec::new())).expect("0 bytes are registered");
        assert_eq!(memory.into_owner::<Vec<u8>>().expect("the owner is returned"), [0; 0]);
        destinations
            .push(engine.register(HostMemory::from_owner(Vec::new())).expect("0 bytes are registered"));
        sources.push(engine.register_read_only(bytes::Bytes::new()).expect("0 bytes are registered"));
    } else {
        let e = engine.register(HostMemory::from_owner(Vec::new())).expect_err("it registers nothing");
        expect_kind(&e, ErrorKind::Unsupported, "without `REGISTER`, registering fails with `Unsupported`");
    }
    for source in &sources {
        for destination in &mut destinations {
            let empty = std::mem::replace(destination, allocate(engine, 1));
            assert!(
                empty.is_empty() && empty.region().is_empty(),
                "memory of 0 bytes is an empty view of an empty region"
            );
            let (_, empty) = q.copy(source.clone(), empty).expect(ACCEPTS).wait().expect(COMPLETES);
            *destination = q.fill(empty, [7; 8]).expect(ACCEPTS).wait().expect(COMPLETES);
        }
    }
    // This list contains empty views and one that is not empty.
    let mut full = allocate(engine, 10);
    full.fill(7);
    let list = (allocate(engine, 0), full, allocate(engine, 0));
    let (_, arrived) = q.copy(list, allocate(engine, 10)).expect(ACCEPTS).wait().expect(COMPLETES);
    expect_arrived(&[7; 10], &arrived, "a list with two parts of 0 bytes");
    let other = super::ReferenceEngine::new(super::ReferenceOptions::default());
    let refused = q.copy(allocate(&other, 0), allocate(engine, 0)).expect_err("another engine's");
    expect_kind(&refused, ErrorKind::WrongEngine, "queues refuse memory of another engine");
    if capabilities.contains(Capabilities::EXPORT | Capabilities::IMPORT) {
        let request = MemoryRequest::new(0).exportable(Access::READ);
        let window = engine.allocate_window(&request).expect("0 bytes are allocated");
        let export = window.export(Access::READ).expect("0 bytes are exported");
        let bytes = export.descriptor().to_bytes();
        let descriptor = ExportDescriptor::from_bytes(&bytes)
            .expect("an export descriptor can be converted to bytes and back");
        let remote = engine.import(&descriptor).expect("0 bytes are imported");
        assert_eq!(
            (remote.len(), remote.region().access()),
            (0, Access::READ),
            "an import of 0 bytes has the length and rights of the export"
        );
        q.copy(remote, allocate(engine, 0)).expect(ACCEPTS).wait().expect(COMPLETES);
        export.revoke(patience()).expect("an export that no copy uses is revoked");
    }
}

/// A full queue returns the operands, and accepts them when there is room again.
pub fn full_queues_hand_back(engine: &dyn DmaEngine) {
    let (q, len) = (queue_of(engine, 4), queued_len(engine, 64));
    let mut transfers = Vec::new();
    let depth = q.depth();
    for _ in 0..depth {
        transfers.push(q.copy(allocate(engine, len), allocate(engine, len)).expect(ACCEPTS));
    }
    assert_eq!(q.available(), 0, "a queue of depth {depth} with {depth} operations in flight has no room");
    let mut src = allocate(engine, len);
    src.fill(9);
    let refused = q.copy(src, allocate(engine, len)).expect_err("a full queue refuses");
    expect_kind(&refused, ErrorKind::QueueFull, "a full queue refuses operations with `QueueFull`");
    let (src, dst) = refused.into_operands().expect("a refusal returns the operands");
    assert_eq!(q.counters().full, 1, "`full` counts the operations that were handed back");
    transfers.pop().expect("there is one").wait().expect(COMPLETES);
    let (_, dst) = q.copy(src, dst).expect(ACCEPTS).wait().expect(COMPLETES);
    expect_arrived(&vec![9; len], &dst, "a copy that was refused at first");
}

/// Operations that are short enough for the [inline executor](dma_core::InlineExecutor) are done when they
/// have been submitted. Such operations are counted, take no place in the queue, and obey fences. Longer
/// operations are in flight. The case is skipped on an engine without an executor.
pub fn short_operations_take_no_place(engine: &dyn DmaEngine) {
    let limit = inline_limit(engine);
    if limit == 0 {
        return;
    }
    let q = queue_of(engine, 4);
    let hold = |len: usize, seed| {
        let mut src = allocate(engine, len);
        src.copy_from_slice(&sample(seed, len));
        q.copy(src, allocate(engine, len)).expect(ACCEPTS)
    };
    let room = q.available();
    let held: Vec<_> = (0..2 * q.depth() as u64).map(|seed| hold(limit, seed)).collect();
    let counters = q.counters();
    assert_eq!(
        (q.available(), counters.in_flight),
        (room, 0),
        "an operation that is done takes no place in the queue"
    );
    let n = held.len() as u64;
    assert_eq!(
        (counters.completed, counters.descriptors),
        (n, 0),
        "`completed` counts every short operation, and `descriptors` none"
    );
    assert_eq!(counters.bytes, n * limit as u64, "`bytes` counts the bytes of short operations");
    for transfer in held {
        assert!(transfer.is_done(), "a short operation is done when it has been submitted");
        let (src, dst) = transfer.wait().expect(COMPLETES);
        expect_arrived(&src, &dst, "a short copy");
    }
    // While an operation is in flight, a short operation behind a fence waits for it.
    let window = allocate(engine, limit + 1).share();
    let mut src = allocate(engine, limit + 1);
    src.copy_from_slice(&sample(7, limit + 1));
    let long = q.copy(src, window.clone()).expect(ACCEPTS);
    assert_eq!(q.counters().in_flight, 1, "a longer operation is in flight until a poll reports it");
    q.fence();
    let short = q.copy(window.slice(..limit), allocate(engine, limit)).expect(ACCEPTS);
    let (_, dst) = short.wait().expect(COMPLETES);
    expect_arrived(&sample(7, limit + 1)[..limit], &dst, "a short copy behind a fence");
    long.wait().expect(COMPLETES);
    let again = hold(limit, 3);
    assert_eq!(q.counters().in_flight, 0, "nothing is in flight, so the short operation is done immediately");
    expect_all_completed(q.close(patience()), n + 3, "after the close");
    assert!(again.is_done(), "a transfer that is done stays done after its queue is closed");
    again.wait().expect(COMPLETES);
}

/// A batch completes when all its copies have completed. The batch returns its operands in order, and can be
/// reused.
pub fn batches_complete_as_a_whole(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let mut batch: Batch<_, _> = (0..50_u8)
        .map(|i| {
            let mut src = allocate(engine, 100);
            src.fill(i);
            (src, allocate(engine, 100))
        })
        .collect();
    for round in 0..3 {
        for (src, _) in batch.iter_mut() {
            src[0] = round;
        }
        let before = q.counters();
        batch = q.submit(batch).expect(ACCEPTS).wait().expect(COMPLETES);
        let after = q.counters();
        assert_eq!(after.completed - before.completed, 50, "`completed` counts every copy of a batch");
        for (i, (src, dst)) in (0_u8..).zip(batch.iter()) {
            assert!(src[..] == dst[..] && dst[0] == round && dst[99] == i, "copy {i} of round {round}");
        }
    }
    // If one copy of a batch is invalid, no copy of the batch is submitted.
    batch.push(allocate(engine, 1), allocate(engine, 2));
    let refused = q.submit(batch).expect_err("lengths differ");
    expect_kind(&refused, ErrorKind::LengthMismatch, "source and destination must have the same length");
    assert!(refused.to_string().contains("copy 50"), "{refused}");
    assert_eq!(refused.into_operands().expect("a refusal returns the batch").len(), 51);
    assert_eq!(q.counters().submitted, 150, "no copy of a refused batch is submitted");
}

/// An operation behind a fence sees the bytes that were written by operations before the fence.
pub fn fences_keep_order(engine: &dyn DmaEngine) {
    let q = queue(engine);
    // Each copy reads the destination of the previous copy. Each destination is a window of its own, so only
    // the fences prevent the copies from running at the same time.
    let window = |byte: u8| {
        let mut buffer = allocate(engine, 70_000);
        buffer.fill(byte);
        buffer.share()
    };
    for _ in 0..5 {
        let links: Vec<_> = (0..=q.depth().min(7) as u8).map(window).collect();
        let mut transfers = Vec::new();
        for pair in links.windows(2) {
            q.fence();
            transfers.push(q.copy(pair[0].clone(), pair[1].clone()).expect(ACCEPTS));
        }
        q.flush();
        for transfer in transfers {
            let (_, dst) = transfer.wait().expect(COMPLETES);
            let mut bytes = vec![1; dst.len()];
            dst.read_at(0, &mut bytes).expect("local memory can be read");
            assert!(bytes.iter().all(|b| *b == 0), "a copy behind a fence saw old bytes");
        }
    }
}

/// A wait with a deadline returns at the deadline, and the transfer can be waited for again.
pub fn waits_have_deadlines(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let mut transfer = q.copy(allocate(engine, 1 << 20), allocate(engine, 1 << 20)).expect(ACCEPTS);
    // The operation may or may not have ended by then; both are correct.
    if let Err(e) = transfer.wait_until(Instant::now()) {
        expect_kind(&e, ErrorKind::TimedOut, "a wait that reaches its deadline fails with `TimedOut`");
    }
    transfer.wait_for(patience()).expect(COMPLETES);
    assert!(transfer.is_done(), "a transfer is done after a wait for it");
    transfer.wait().expect(COMPLETES);
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Count(std::sync::atomic::AtomicUsize);

impl Wake for Count {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Transfers are futures. A transfer that is polled completes without a runtime. If the queue has no driver,
/// a pending transfer wakes its task, so that the task polls the transfer again.
pub fn futures_resolve_anywhere(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let count = std::sync::Arc::new(Count::default());
    let waker = Waker::from(std::sync::Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut transfers: Vec<_> = (0..10.min(q.depth()))
        .map(|i| {
            let mut src = allocate(engine, 10_000);
            src.fill(i as u8 + 1);
            q.copy(src, allocate(engine, 10_000)).expect(ACCEPTS)
        })
        .collect();
    let started = Instant::now();
    while !transfers.is_empty() {
        transfers.retain_mut(|transfer| {
            let woken = count.0.load(std::sync::atomic::Ordering::SeqCst);
            match Pin::new(transfer).poll(&mut context) {
                Poll::Ready(result) => {
                    let (src, dst) = result.expect(COMPLETES);
                    expect_arrived(&src, &dst, "a copy that was awaited");
                    false
                }
                Poll::Pending => {
                    assert!(
                        count.0.load(std::sync::atomic::Ordering::SeqCst) > woken,
                        "without a driver, a pending transfer wakes its task"
                    );
                    true
                }
            }
        });
        let left = transfers.len();
        assert!(
            started.elapsed() < patience(),
            "{COMPLETES}: {left} copies are not done after the time limit"
        );
    }
}

/// With a driver, waiting tasks are woken when the file descriptor is readable. A thread that sleeps on the
/// descriptor misses no completion.
pub fn drivers_wake_from_a_file_descriptor(engine: &dyn DmaEngine) {
    use rustix::event::{PollFd, PollFlags, Timespec};

    let mut raw = engine.open_queue_raw(&QueueOptions::new()).expect("an engine opens a queue");
    let has_events = raw.events().is_some();
    drop(raw);
    let q = queue(engine);
    let driver = match q.driver() {
        Ok(driver) => driver,
        Err(e) => {
            assert!(!has_events, "a queue with events has a driver: {e}");
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
            return;
        }
    };
    let count = std::sync::Arc::new(Count::default());
    let waker = Waker::from(std::sync::Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    for round in 0..20 {
        let len = [64, 4096, 1 << 20][round % 3];
        let mut transfer = q.copy(allocate(engine, len), allocate(engine, len)).expect(ACCEPTS);
        let started = Instant::now();
        while Pin::new(&mut transfer).poll(&mut context).is_pending() {
            let woken = count.0.load(std::sync::atomic::Ordering::SeqCst);
            driver.run().expect("a driver can arm its file descriptor");
            if count.0.load(std::sync::atomic::Ordering::SeqCst) == woken {
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                // The task was not woken, so the descriptor must become readable.
                rustix::event::poll(&mut [PollFd::new(&driver, PollFlags::IN)], Some(&second))
                    .expect("`poll` on a driver's file descriptor works");
            }
            assert!(
                started.elapsed() < patience(),
                "a completion makes the event fd of an armed queue readable, but within the time limit the fd was not readable or the copy was not reported"
            );
        }
        std::mem::forget(transfer);
    }
    let _ = q.close(Duration::from_secs(5));
}

/// Every token is reported once, after its operation has ended. Tokens of dropped transfers are not reported.
pub fn tokens_are_reported_once(engine: &dyn DmaEngine) {
    let (q, len) = (queue(engine), queued_len(engine, 3000));
    let mut tokens = Vec::new();
    assert_eq!(
        q.wait_tokens(&mut tokens, Instant::now())
            .expect("waiting for tokens returns at once if no token is in flight"),
        0
    );
    let count = 10.min(q.depth());
    let mut first = 0;
    for wait in [true, false] {
        let mut transfers: Vec<_> = (0..count)
            .map(|i| {
                let mut src = allocate(engine, len);
                src.fill(i as u8 + 1);
                let transfer = q.copy(src, allocate(engine, len)).expect(ACCEPTS);
                q.set_token(&transfer, u64::MAX);
                q.set_token(&transfer, (first + i) as u64);
                Some(transfer)
            })
            .collect();
        // The operation completes, but the token of a dropped transfer is not reported.
        drop(transfers[0].take());
        q.flush();
        let begun = Instant::now();
        while transfers.iter().any(Option::is_some) {
            if wait {
                let reported = q.wait_tokens(&mut tokens, begun + patience()).expect(COMPLETES);
                assert!(reported > 0, "a wait for tokens in flight reports at least one");
            } else {
                q.poll_tokens(&mut tokens);
            }
            for token in tokens.drain(..) {
                let transfer = transfers.get_mut((token as usize).wrapping_sub(first)).and_then(Option::take);
                let transfer =
                    transfer.unwrap_or_else(|| panic!("token {token} is reported, but is not in flight"));
                assert!(transfer.is_done(), "a token is reported when its operation has ended");
                let (src, dst) = transfer.wait().expect(COMPLETES);
                expect_arrived(&src, &dst, format_args!("the copy with token {token}"));
            }
            assert!(begun.elapsed() < patience(), "{COMPLETES}: some tokens were not reported in time");
        }
        first += count;
    }
    let transfer = q.copy(allocate(engine, len), allocate(engine, len)).expect(ACCEPTS);
    q.flush();
    let begun = Instant::now();
    while !transfer.is_done() {
        assert!(begun.elapsed() < patience(), "{COMPLETES}");
    }
    q.set_token(&transfer, 7);
    assert_eq!(
        (q.poll_tokens(&mut tokens), &tokens[..]),
        (1, &[7][..]),
        "a token that is set after its operation has ended is reported"
    );
    transfer.wait().expect(COMPLETES);
    assert_eq!(q.poll_tokens(&mut tokens), 0, "each token is reported once");
}
