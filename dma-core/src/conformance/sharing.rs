//! Cases: several threads, and memory shared with peers.

use std::time::{Duration, Instant};

use super::{
    ACCEPTS, COMPLETES, SOON, allocate, expect_all_completed, expect_arrived, expect_kind, queue,
    queue_options, sample,
};
use crate::{
    Access, Batch, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, ExportDescriptor, MemoryRequest,
    SharedQueue, SharedQueueOptions,
};

fn shared(engine: &dyn DmaEngine, depth: usize) -> SharedQueue {
    let depth = depth.min(engine.info().limits.max_queue_depth);
    let options = SharedQueueOptions::new().with_queue(queue_options(depth));
    engine.open_shared_queue(&options).expect("an engine opens a shared queue")
}

/// Threads wait for, await and drop transfers, all on one shared queue.
pub fn shared_queues_serve_threads(engine: &dyn DmaEngine) {
    let q = shared(engine, 32);
    const PER_THREAD: u64 = 100;
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let q = q.clone();
            move || {
                for i in 0..PER_THREAD {
                    let len = 1 + (i as usize * 131) % 9000;
                    let mut src = allocate(engine, len);
                    src.copy_from_slice(&sample(thread * 1000 + i, len));
                    let (mut src, mut dst) = (src, allocate(engine, len));
                    let begun = Instant::now();
                    let transfer = loop {
                        match q.copy(src, dst) {
                            Ok(transfer) => break transfer,
                            Err(e) => {
                                assert_eq!(
                                    e.kind(),
                                    ErrorKind::QueueFull,
                                    "{ACCEPTS}, and is full without: {e}"
                                );
                                (src, dst) = e.into_operands().expect("a refusal gives the operands back");
                                assert!(
                                    begun.elapsed() < SOON,
                                    "{COMPLETES}: the queue has timed out, full for {SOON:?}"
                                );
                                std::thread::yield_now();
                            }
                        }
                    };
                    let (src, dst) = match (thread + i) % 3 {
                        0 => transfer.wait().expect(COMPLETES),
                        1 => block_on(transfer).expect(COMPLETES),
                        _ => {
                            drop(transfer);
                            continue;
                        }
                    };
                    expect_arrived(&src, &dst, format_args!("copy {i} of thread {thread}, of {len} bytes,"));
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
        for thread in threads {
            // Otherwise the message would only say that a thread panicked.
            thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        }
    });
    let batch: Batch<_, _> = (0..10).map(|_| (allocate(engine, 64), allocate(engine, 64))).collect();
    q.submit(batch).expect(ACCEPTS).wait().expect(COMPLETES);
    let filled = q.fill(vec![allocate(engine, 5), allocate(engine, 50)], [7; 8]).expect(ACCEPTS);
    for part in filled.wait().expect(COMPLETES) {
        expect_arrived(&[7; 50][..part.len()], &part, "a fill of a list");
    }
    expect_all_completed(q.close(SOON), 4 * PER_THREAD + 11, "after a close that came after everything else");
}

/// Runs a future on this thread.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let begun = Instant::now();
    loop {
        match std::pin::Pin::new(&mut future).poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park_timeout(SOON),
        }
        // Awaiting has no timeout of its own.
        assert!(begun.elapsed() < SOON, "{COMPLETES}: one that was awaited has timed out after {SOON:?}");
    }
}

/// Closing a shared queue drains it, refuses later operations, and closes it for all clones.
pub fn shared_queues_close_cleanly(engine: &dyn DmaEngine) {
    let q = shared(engine, 16);
    let held: Vec<_> =
        (0..8).filter_map(|_| q.copy(allocate(engine, 20_000), allocate(engine, 20_000)).ok()).collect();
    let n = held.len() as u64;
    let clone = q.clone();
    let counters = clone.close(SOON);
    expect_all_completed(counters, n, format_args!("after a close that had {SOON:?} for it"));
    let refused = q.copy(allocate(engine, 8), allocate(engine, 8)).expect_err("it is closed");
    expect_kind(&refused, ErrorKind::Closed, "what is closed by one handle is closed for all");
    assert!(refused.into_operands().is_some(), "a refusal gives the operands back");
    for transfer in held {
        transfer.wait().expect(COMPLETES);
    }
    assert_eq!(q.close(SOON).completed, n, "closing again says the same");
    // A queue that is dropped with transfers in flight also drains.
    let q = shared(engine, 16);
    let transfer = q.copy(allocate(engine, 1000), allocate(engine, 1000)).expect(ACCEPTS);
    drop(q);
    transfer.wait().expect("dropping the last handle waits for what is in flight");
}

/// Exported memory is imported, copied both ways, and revoked.
pub fn exports_are_imported_and_revoked(engine: &dyn DmaEngine) {
    let capabilities = engine.info().capabilities;
    let request = MemoryRequest::new(10_000).exportable(Access::READ | Access::WRITE);
    if !capabilities.contains(Capabilities::EXPORT) {
        let e = engine
            .allocate_window(&request)
            .and_then(|w| w.export(Access::READ))
            .expect_err("it cannot export");
        expect_kind(&e, ErrorKind::Unsupported, "without `EXPORT`, exporting fails with `Unsupported`");
        return;
    }
    let local = engine.allocate_window(&request).expect("exportable memory is allocated");
    local.write_at(0, &sample(1, 10_000)).expect("local memory can be written");
    let export = local.export(Access::READ | Access::WRITE).expect("it can be exported");
    let descriptor =
        ExportDescriptor::from_bytes(&export.descriptor().to_bytes()).expect("it survives the wire");
    assert_eq!(descriptor.len(), 10_000, "a descriptor says how much was exported");
    if !capabilities.contains(Capabilities::IMPORT) {
        let e = engine.import(&descriptor).expect_err("it cannot import");
        expect_kind(&e, ErrorKind::Unsupported, "without `IMPORT`, importing fails with `Unsupported`");
        return;
    }
    let remote = engine.import(&descriptor).expect("it can be imported");
    assert_eq!(remote.len(), 10_000, "what is imported is as long as what was exported");
    let q = queue(engine);
    let (_, got) = q.copy(remote.clone(), allocate(engine, 10_000)).expect(ACCEPTS).wait().expect(COMPLETES);
    assert!(got[..] == sample(1, 10_000)[..], "the peer's bytes");
    let mut new = allocate(engine, 100);
    new.fill(0xcd);
    q.copy(new, remote.slice(50..150)).expect(ACCEPTS).wait().expect(COMPLETES);
    let mut bytes = vec![0; 200];
    local.read_at(0, &mut bytes).expect("local memory can be read");
    assert!(bytes[50..150].iter().all(|b| *b == 0xcd), "written by the peer");
    assert!(bytes[..50] == sample(1, 50)[..] && bytes[150..] == sample(1, 200)[150..], "nothing beside it");
    assert!(remote.read_at(0, &mut bytes).is_err(), "imported memory is reached by DMA alone");
    export.revoke(Duration::from_secs(5)).expect("no copy is in flight");
    let late = q.copy(remote, allocate(engine, 10_000)).expect("the queue cannot know").wait();
    let late = late.expect_err("the memory was taken back");
    expect_kind(&late, ErrorKind::Revoked, "a copy from memory that was taken back fails as `Revoked`");
    assert!(late.into_operands().is_some(), "a failure that was reported gives the operands back");
    let e = engine.import(&descriptor).expect_err("it is revoked");
    expect_kind(&e, ErrorKind::Revoked, "importing revoked memory fails with `Revoked`");
    // The queue still works.
    q.copy(allocate(engine, 8), allocate(engine, 8)).expect(ACCEPTS).wait().expect(COMPLETES);
}

/// A copy between memory and its import into the same process is refused exactly if the ranges overlap,
/// regardless of their addresses. The same holds for two imports of one export.
pub fn imports_of_own_memory_overlap_it(engine: &dyn DmaEngine) {
    if !engine.info().capabilities.contains(Capabilities::EXPORT | Capabilities::IMPORT) {
        return;
    }
    let request = MemoryRequest::new(10_000).exportable(Access::READ | Access::WRITE);
    let local = engine.allocate_window(&request).expect("exportable memory is allocated");
    let exported = local.slice(1000..9000);
    let export = exported.export(Access::READ | Access::WRITE).expect("it can be exported");
    let import = || engine.import(export.descriptor()).expect("it can be imported");
    let (remote, again) = (import(), import());
    let q = queue(engine);
    for (src, dst) in [
        (remote.slice(0..100), exported.slice(99..199)),
        (exported.slice(50..150), remote.slice(0..100)),
        (remote.slice(0..100), again.slice(50..150)),
        (remote.slice(0..100), remote.slice(50..150)),
    ] {
        let refused = q.copy(src.clone(), dst.clone()).expect_err("both name a byte");
        expect_kind(&refused, ErrorKind::Overlap, "memory and its import overlap");
        let refused = q.copy(vec![src], vec![dst]).expect_err("both name a byte");
        expect_kind(&refused, ErrorKind::Overlap, "memory and its import overlap");
    }
    local.write_at(0, &sample(7, 10_000)).expect("local memory can be written");
    // Equal offsets in the import and in the whole memory name different bytes.
    for (src, dst) in [
        (remote.slice(0..100), exported.slice(100..200)),
        (local.slice(0..100), remote.slice(0..100)),
        (remote.slice(0..100), again.slice(300..400)),
        (exported.slice(500..600), remote.slice(400..500)),
    ] {
        let (src, dst) = (vec![src.slice(0..50), src.slice(50..100)], dst);
        q.copy(src, dst).expect("no byte is named twice").wait().expect(COMPLETES);
    }
    let mut bytes = vec![0; 200];
    local.read_at(1000, &mut bytes).expect("local memory can be read");
    let all = sample(7, 10_000);
    assert!(bytes[..100] == all[..100] && bytes[100..] == all[1000..1100], "the copies' bytes");
    // A revoked import no longer reaches the memory, whose addresses other memory may have by then.
    drop(export);
    let refused = match q.copy(remote.slice(0..100), exported.slice(50..150)) {
        Err(refused) => refused.error().kind(),
        Ok(transfer) => transfer.wait().expect_err("the import is revoked").error().kind(),
    };
    assert_ne!(refused, ErrorKind::Overlap, "memory and a revoked import do not overlap");
}

/// An export grants only its range and rights, not those of the whole memory.
pub fn exports_grant_only_what_they_say(engine: &dyn DmaEngine) {
    let capabilities = engine.info().capabilities;
    if !capabilities.contains(Capabilities::EXPORT | Capabilities::IMPORT) {
        return;
    }
    let request = MemoryRequest::new(8192).exportable(Access::READ);
    let local = engine.allocate_window(&request).expect("exportable memory is allocated");
    assert_eq!(
        local.export(Access::WRITE).expect_err("the memory is not exportable for writing").kind(),
        ErrorKind::AccessDenied
    );
    // Some devices cannot grant reading only.
    let (rights, export) = match local.slice(100..200).export(Access::READ) {
        Err(e) if e.kind() == ErrorKind::Unsupported => {
            let rights = Access::READ | Access::WRITE;
            let request = MemoryRequest::new(8192).exportable(rights);
            let local = engine.allocate_window(&request).expect("exportable memory is allocated");
            (rights, local.slice(100..200).export(rights).expect("a part can be exported"))
        }
        export => (Access::READ, export.expect("a part can be exported")),
    };
    let remote = engine.import(export.descriptor()).expect("it can be imported");
    let granted = (remote.len(), remote.region().access());
    assert_eq!(granted, (100, rights), "an import has the range and the rights of the export");
    let q = queue(engine);
    if rights == Access::READ {
        let refused = q.copy(allocate(engine, 100), remote.clone()).expect_err("it cannot be written");
        expect_kind(&refused, ErrorKind::AccessDenied, "memory exported for reading is not written");
    }
    // A descriptor that was altered to grant more fails, or grants no more than before.
    let d = export.descriptor();
    let wider = ExportDescriptor::new(d.backend(), Access::all(), 8092, d.native()).expect("well formed");
    if let Ok(window) = engine.import(&wider) {
        assert!(window.len() <= 100, "an altered length grants nothing");
        assert_eq!(window.region().access(), rights, "altered rights grant nothing");
    }
    let garbage = ExportDescriptor::new(d.backend(), Access::READ, 100, b"garbage").expect("well formed");
    let e = engine.import(&garbage).expect_err("not a native descriptor");
    assert!(matches!(e.kind(), ErrorKind::Malformed | ErrorKind::NotFound | ErrorKind::Revoked), "{e}");
    let foreign = ExportDescriptor::new("other-vendor", Access::READ, 100, b"x").expect("well formed");
    assert_eq!(engine.import(&foreign).expect_err("another backend's").kind(), ErrorKind::Unsupported);
    let plain = engine.allocate_window(&MemoryRequest::new(64)).expect("memory is allocated");
    let e = plain.export(Access::READ).expect_err("it was not allocated as exportable");
    assert!(matches!(e.kind(), ErrorKind::AccessDenied | ErrorKind::Unsupported), "{e}");
}
