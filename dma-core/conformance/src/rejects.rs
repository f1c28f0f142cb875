//! Cases: invalid requests are refused before they reach the device. The error contains the reason and the
//! operands.

use super::{COMPLETES, ReferenceEngine, ReferenceOptions, allocate, expect_kind, queue};
use dma_core::{
    Access, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, HostMemory, MemoryRequest, QueueOptions,
};

/// Source and destination of different lengths are refused.
pub fn lengths_must_match(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let refused = q.copy(allocate(engine, 10), allocate(engine, 11)).expect_err("lengths differ");
    expect_kind(&refused, ErrorKind::LengthMismatch, "source and destination must have the same length");
    assert!(refused.to_string().contains("10") && refused.to_string().contains("11"), "{refused}");
    let (src, dst) = refused.into_operands().expect("a refusal returns the operands");
    assert_eq!((src.len(), dst.len()), (10, 11), "a refusal returns the operands unchanged");
    let refused = q.copy(vec![src], vec![dst]).expect_err("lengths differ");
    expect_kind(&refused, ErrorKind::LengthMismatch, "source and destination must have the same length");
    assert_eq!(q.counters().submitted, 0, "nothing was accepted");
}

/// An operation with overlapping windows is refused. Windows that are adjacent are accepted.
pub fn overlap_is_rejected(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let window = allocate(engine, 100).share();
    let part = |range: std::ops::Range<usize>| window.slice(range);
    for (src, dst) in [(0..50, 49..99), (49..99, 0..50), (0..50, 0..50), (10..20, 15..25)] {
        let refused = q.copy(part(src.clone()), part(dst.clone())).expect_err("they overlap");
        assert_eq!(refused.kind(), ErrorKind::Overlap, "{src:?} and {dst:?}");
        let refused = q.copy(vec![part(src)], vec![part(dst)]).expect_err("they overlap");
        expect_kind(
            &refused,
            ErrorKind::Overlap,
            "no other operand contains a byte that the operation writes",
        );
    }
    let refused = q.copy(allocate(engine, 20), vec![part(0..10), part(5..15)]).expect_err("written twice");
    expect_kind(&refused, ErrorKind::Overlap, "no other operand contains a byte that the operation writes");
    let refused = q.fill(vec![part(0..10), part(9..12)], [0; 8]).expect_err("written twice");
    expect_kind(&refused, ErrorKind::Overlap, "no other operand contains a byte that the operation writes");
    assert_eq!(q.counters().submitted, 0, "nothing was accepted");
    q.copy(part(0..50), part(50..100)).expect("adjacent ranges do not overlap").wait().expect(COMPLETES);
    q.copy(vec![part(0..10), part(0..10)], part(50..70))
        .expect("an operation may read a range twice")
        .wait()
        .expect(COMPLETES);
}

/// Memory of another engine is refused on either side.
pub fn foreign_memory_is_rejected(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let other = ReferenceEngine::new(ReferenceOptions::default());
    let refused = q.copy(allocate(&other, 8), allocate(engine, 8)).expect_err("another engine's source");
    expect_kind(&refused, ErrorKind::WrongEngine, "queues refuse memory of another engine");
    let refused = q.copy(allocate(engine, 8), allocate(&other, 8)).expect_err("another engine's destination");
    expect_kind(&refused, ErrorKind::WrongEngine, "queues refuse memory of another engine");
    assert_eq!(
        q.fill(allocate(&other, 8), [0; 8]).expect_err("another engine's").kind(),
        ErrorKind::WrongEngine
    );
    assert_eq!(q.counters().submitted, 0, "nothing was accepted");
}

/// An engine made of engines has its own id. The outer engine's queues refuse memory of an inner engine as
/// source and as destination, and the inner engine's queues refuse memory of the outer engine. This case is
/// not in [`CASES`](super::CASES), because only the caller knows the inner engine.
///
/// # Panics
///
/// If `engine` accepts memory of `inner`, or the reverse.
pub fn inner_memory_is_rejected(engine: &dyn DmaEngine, inner: &dyn DmaEngine) {
    assert_ne!(engine.id(), inner.id(), "an engine made of engines has its own id");
    for (queue_of, other) in [(engine, inner), (inner, engine)] {
        let q = queue(queue_of);
        let refused = q.copy(allocate(other, 8), allocate(queue_of, 8)).expect_err("another engine's source");
        expect_kind(&refused, ErrorKind::WrongEngine, "queues refuse memory of another engine");
        let refused =
            q.copy(allocate(queue_of, 8), allocate(other, 8)).expect_err("another engine's destination");
        expect_kind(&refused, ErrorKind::WrongEngine, "queues refuse memory of another engine");
        let takes_any_bytes = |engine: &dyn DmaEngine| {
            let info = engine.info();
            info.capabilities.contains(Capabilities::REGISTER) && info.limits.register_alignment == 1
        };
        if takes_any_bytes(queue_of) && takes_any_bytes(other) {
            // Both engines register the same bytes, so only the region tells which engine owns an operand.
            let bytes = bytes::Bytes::from(vec![7; 4096]);
            let register = |engine: &dyn DmaEngine| {
                engine
                    .register_read_only(bytes.clone())
                    .expect("an engine without an alignment requirement registers any bytes")
            };
            let (_own, theirs) = (register(queue_of), register(other));
            let refused = q.copy(theirs, allocate(queue_of, 4096)).expect_err("another engine's region");
            expect_kind(&refused, ErrorKind::WrongEngine, "queues refuse memory of another engine");
        }
        assert_eq!(q.counters().submitted, 0, "nothing was accepted");
    }
}

/// A region's rights are enforced: no write without WRITE, no read without READ.
pub fn missing_rights_are_rejected(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let with = |access| engine.allocate_with(&MemoryRequest::new(64).with_access(access));
    if let Ok(read_only) = with(Access::READ) {
        let refused = q.copy(allocate(engine, 64), read_only).expect_err("the region cannot be written");
        expect_kind(&refused, ErrorKind::AccessDenied, "an operation that needs a missing right is refused");
        let (src, read_only) = refused.into_operands().expect("a refusal returns the operands");
        q.copy(read_only, src).expect("memory with `Access::READ` is a source").wait().expect(COMPLETES);
    }
    if let Ok(write_only) = with(Access::WRITE) {
        let refused = q.copy(write_only, allocate(engine, 64)).expect_err("the region cannot be read");
        expect_kind(&refused, ErrorKind::AccessDenied, "an operation that needs a missing right is refused");
    }
}

/// Requests that are invalid or exceed the limits fail with the correct error kind and numbers.
pub fn bad_requests_are_rejected(engine: &dyn DmaEngine) {
    let limits = &engine.info().limits;
    let request = MemoryRequest::new(64).with_align(3);
    assert_eq!(
        engine.allocate_with(&request).expect_err("a strange alignment").kind(),
        ErrorKind::InvalidArgument
    );
    let e = engine.allocate(usize::MAX).expect_err("too much");
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    assert!(e.hint().contains("less"), "the hint names a remedy: {e}");
    // Programs may call the raw traits directly, so the raw methods must check their arguments too.
    for request in [
        MemoryRequest::new(0),
        MemoryRequest::new(64).with_align(3),
        MemoryRequest::new(usize::MAX),
        MemoryRequest::new(64).with_access(Access::empty()),
    ] {
        let e = engine.allocate_raw(&request).expect_err("the memory request is invalid");
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "`allocate_raw` of {request:?}: {e}");
    }
    let q = engine.open_queue_raw(&QueueOptions::new()).expect("an engine opens a queue");
    assert!(
        q.depth() >= limits.default_queue_depth,
        "`open_queue_raw` with depth 0 must open a queue of at least the default depth {}, but its depth is {}",
        limits.default_queue_depth,
        q.depth()
    );
    drop(q);
    let enormous = engine.allocate(1 << 60).expect_err("the request is for more memory than the machine has");
    assert!(matches!(enormous.kind(), ErrorKind::OutOfMemory | ErrorKind::OutOfResources), "{enormous}");
    if let Some(depth) = limits.max_queue_depth.checked_add(1) {
        let e = engine.open_queue(&QueueOptions::new().with_depth(depth)).expect_err("too deep");
        expect_kind(&e, ErrorKind::OutOfRange, "a depth beyond the limit is refused");
        assert_eq!((e.requested(), e.limit()), (Some(depth as u64), Some(limits.max_queue_depth as u64)));
        assert!(!e.hint().is_empty(), "the hint names a remedy");
    }
    let none = MemoryRequest::new(0).with_access(Access::empty());
    let e = engine.register_with(HostMemory::from_owner(vec![0; 4096]), &none).expect_err("no rights");
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    let e = engine
        .allocate_with(&MemoryRequest::new(10).with_align(1 << 62))
        .expect_err("no address space has room for this alignment");
    assert!(
        e.to_string().contains("aligned to") && !e.hint().is_empty(),
        "the error names the alignment and has a hint: {e}"
    );
    if !engine.info().capabilities.contains(Capabilities::REGISTER) {
        let e = engine.register(HostMemory::from_owner(vec![0; 4096])).expect_err("it cannot register");
        expect_kind(&e, ErrorKind::Unsupported, "without `REGISTER`, registering fails with `Unsupported`");
    }
}
