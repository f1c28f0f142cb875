//! Cases: all bytes arrive, whatever the size, the shape and the number of operations.

use super::expect::repeats;
use super::{
    ACCEPTS, COMPLETES, allocate, expect_all_completed, expect_arrived, expect_kind, filled, patience, queue,
    queue_of, sample,
};
use dma_core::{
    Access, Batch, Buffer, BufferPool, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, ExportDescriptor,
    HostMemory, MemoryRequest, PoolOptions, Rows,
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

/// Allocated memory is zeroed, even if it was used before, has the requested alignment, and is writable.
pub fn allocation_is_zeroed_and_aligned(engine: &dyn DmaEngine) {
    for (len, align) in [(1, 1), (64, 64), (4096, 4096), (70_001, 4096), (100, 16_384)] {
        let request = MemoryRequest::new(len).with_align(align);
        for request in [request.clone(), request.clone().with_zeroed(false), request] {
            let mut buffer = engine.allocate_with(&request).expect("memory is allocated");
            assert_eq!(buffer.len(), len, "a buffer has the requested length");
            assert_eq!(buffer.as_ptr().addr() % align, 0, "{len} bytes aligned to {align}");
            assert!(!request.zeroed || repeats(&buffer, &[0]), "allocated memory is zeroed");
            buffer.fill(0xff);
        }
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
        let (src, dst) = (filled(engine, len as u64, len), allocate(engine, len));
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
            let src = filled(engine, 1, src_offset + len).split_off(src_offset);
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
                repeats(&dst, &[0x5a]) && repeats(&after, &[0x5a]),
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
    let longest = 2 * max + 7;
    // All copies share one sample, because making it takes longer than the copies.
    let whole = filled(engine, 3, longest).freeze();
    for len in [max, max + 1, 2 * max, longest] {
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
        assert!(repeats(&middle, &pattern), "a fill writes {len} bytes of its pattern");
        assert!(
            repeats(&dst, &[0xee]) && repeats(&after, &[0xee]),
            "a fill writes no bytes outside its destination"
        );
    }
    // Fills with several patterns are in flight at once.
    let fills: Vec<_> = (0..20.min(q.depth()))
        .map(|i| (i, q.fill(allocate(engine, 5000), patterns[i % 3]).expect(ACCEPTS)))
        .collect();
    for (i, fill) in fills {
        let dst = fill.wait().expect(COMPLETES);
        let filled = repeats(&dst, &patterns[i % 3]);
        assert!(
            filled,
            "fill {i} of several in flight was reported as done, but its destination does not hold the pattern"
        );
    }
    let scattered = vec![allocate(engine, 13), allocate(engine, 1), allocate(engine, 50)];
    let scattered = q.fill(scattered, patterns[2]).expect(ACCEPTS).wait().expect(COMPLETES);
    let written = scattered.iter().map(|part| &part[..]).collect::<Vec<_>>().concat();
    assert!(
        repeats(&written, &patterns[2]),
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
        let got = dst.iter().map(|part| &part[..]).collect::<Vec<_>>().concat();
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
        let table = filled(engine, 11, end);
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
                let src = filled(engine, (round * depth + i) as u64, len);
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
