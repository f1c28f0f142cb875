//! Cases: queues shared by threads, and memory shared with peers.

use std::time::{Duration, Instant};

use super::expect::repeats;
use super::{
    ACCEPTS, COMPLETES, allocate, expect_all_completed, expect_arrived, expect_kind, filled, patience, queue,
    queue_options, sample,
};
use dma_core::{
    Access, Batch, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, ExportDescriptor, MemoryRequest,
    SharedQueue, SharedQueueOptions,
};

fn shared(engine: &dyn DmaEngine, depth: usize) -> SharedQueue {
    let depth = depth.min(engine.info().limits.max_queue_depth);
    let options = SharedQueueOptions::new().with_queue(queue_options(depth));
    engine.open_shared_queue(&options).expect("an engine opens a shared queue")
}

/// Several threads use one shared queue, and wait for, await and drop transfers.
pub fn shared_queues_serve_threads(engine: &dyn DmaEngine) {
    let q = shared(engine, 32);
    const PER_THREAD: u64 = 100;
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let q = q.clone();
            move || {
                for i in 0..PER_THREAD {
                    let len = 1 + (i as usize * 131) % 9000;
                    let (mut src, mut dst) = (filled(engine, thread * 1000 + i, len), allocate(engine, len));
                    let begun = Instant::now();
                    let transfer = loop {
                        match q.copy(src, dst) {
                            Ok(transfer) => break transfer,
                            Err(e) => {
                                assert_eq!(
                                    e.kind(),
                                    ErrorKind::QueueFull,
                                    "{ACCEPTS}; without room it returns `QueueFull`, not: {e}"
                                );
                                (src, dst) = e.into_operands().expect("a refusal returns the operands");
                                assert!(
                                    begun.elapsed() < patience(),
                                    "{COMPLETES}: the case has timed out, because the queue stayed full"
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
            // Resumes the thread's panic, because the scope's own message would only say that a thread
            // panicked.
            thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        }
    });
    let batch: Batch<_, _> = (0..10).map(|_| (allocate(engine, 64), allocate(engine, 64))).collect();
    q.submit(batch).expect(ACCEPTS).wait().expect(COMPLETES);
    let filled = q.fill(vec![allocate(engine, 5), allocate(engine, 50)], [7; 8]).expect(ACCEPTS);
    for part in filled.wait().expect(COMPLETES) {
        expect_arrived(&[7; 50][..part.len()], &part, "a fill of a list");
    }
    expect_all_completed(
        q.close(patience()),
        4 * PER_THREAD + 11,
        "after the close of a queue without operations in flight",
    );
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
            std::task::Poll::Pending => std::thread::park_timeout(patience()),
        }
        // An await has no timeout, so this loop checks the time.
        assert!(begun.elapsed() < patience(), "{COMPLETES}: an awaited operation has timed out");
    }
}

/// Closing a shared queue waits for its operations, refuses later operations, and closes the queue for all
/// clones.
pub fn shared_queues_close_cleanly(engine: &dyn DmaEngine) {
    let q = shared(engine, 16);
    let held: Vec<_> =
        (0..8).filter_map(|_| q.copy(allocate(engine, 20_000), allocate(engine, 20_000)).ok()).collect();
    let n = held.len() as u64;
    let clone = q.clone();
    let counters = clone.close(patience());
    expect_all_completed(counters, n, "after a close within the time limit");
    let refused = q.copy(allocate(engine, 8), allocate(engine, 8)).expect_err("the queue is closed");
    expect_kind(&refused, ErrorKind::Closed, "a queue that one handle closed is closed for all handles");
    assert!(refused.into_operands().is_some(), "a refusal returns the operands");
    for transfer in held {
        transfer.wait().expect(COMPLETES);
    }
    assert_eq!(q.close(patience()).completed, n, "closing again returns the same counters");
    // Dropping a queue with transfers in flight also waits for them.
    let q = shared(engine, 16);
    let transfer = q.copy(allocate(engine, 1000), allocate(engine, 1000)).expect(ACCEPTS);
    drop(q);
    transfer.wait().expect("dropping the last handle waits for operations in flight");
}

/// Exported memory is imported, copied in both directions, and revoked.
pub fn exports_are_imported_and_revoked(engine: &dyn DmaEngine) {
    let capabilities = engine.info().capabilities;
    let request = MemoryRequest::new(10_000).exportable(Access::READ | Access::WRITE);
    if !capabilities.contains(Capabilities::EXPORT) {
        let e = engine
            .allocate_window(&request)
            .and_then(|w| w.export(Access::READ))
            .expect_err("the engine cannot export");
        expect_kind(&e, ErrorKind::Unsupported, "without `EXPORT`, exporting fails with `Unsupported`");
        return;
    }
    let local = engine.allocate_window(&request).expect("exportable memory is allocated");
    local.write_at(0, &sample(1, 10_000)).expect("local memory can be written");
    let export = local.export(Access::READ | Access::WRITE).expect("exportable memory can be exported");
    let descriptor = ExportDescriptor::from_bytes(&export.descriptor().to_bytes())
        .expect("an export descriptor can be converted to bytes and back");
    assert_eq!(descriptor.len(), 10_000, "an export descriptor contains the length of the export");
    if !capabilities.contains(Capabilities::IMPORT) {
        let e = engine.import(&descriptor).expect_err("the engine cannot import");
        expect_kind(&e, ErrorKind::Unsupported, "without `IMPORT`, importing fails with `Unsupported`");
        return;
    }
    let remote = engine.import(&descriptor).expect("an export can be imported");
    assert_eq!(remote.len(), 10_000, "an import has the length of the export");
    let q = queue(engine);
    let (_, got) = q.copy(remote.clone(), allocate(engine, 10_000)).expect(ACCEPTS).wait().expect(COMPLETES);
    assert!(got[..] == sample(1, 10_000)[..], "a copy from the import reads the exported memory");
    let mut new = allocate(engine, 100);
    new.fill(0xcd);
    q.copy(new, remote.slice(50..150)).expect(ACCEPTS).wait().expect(COMPLETES);
    let mut bytes = vec![0; 200];
    local.read_at(0, &mut bytes).expect("local memory can be read");
    assert!(repeats(&bytes[50..150], &[0xcd]), "a copy to the import writes the exported memory");
    assert!(
        bytes[..50] == sample(1, 50)[..] && bytes[150..] == sample(1, 200)[150..],
        "a copy to the import changes no other bytes"
    );
    assert!(remote.read_at(0, &mut bytes).is_err(), "only DMA reaches imported memory, not the CPU");
    export.revoke(Duration::from_secs(60)).expect("an export that no copy uses is revoked");
    let late = q
        .copy(remote, allocate(engine, 10_000))
        .expect("a submission succeeds, because the queue does not know of the revocation")
        .wait();
    let late = late.expect_err("the export was revoked");
    expect_kind(&late, ErrorKind::Revoked, "a copy from revoked memory fails with `Revoked`");
    assert!(late.into_operands().is_some(), "a reported failure returns the operands");
    let e = engine.import(&descriptor).expect_err("the export was revoked");
    expect_kind(&e, ErrorKind::Revoked, "importing revoked memory fails with `Revoked`");
    // The failed copy has no effect on the queue.
    q.copy(allocate(engine, 8), allocate(engine, 8)).expect(ACCEPTS).wait().expect(COMPLETES);
}

/// A copy between memory and an import of this memory is refused if, and only if, the ranges overlap,
/// whatever the addresses are. A copy between two imports of one export is refused under the same condition.
pub fn imports_of_own_memory_overlap_it(engine: &dyn DmaEngine) {
    if !engine.info().capabilities.contains(Capabilities::EXPORT | Capabilities::IMPORT) {
        return;
    }
    let request = MemoryRequest::new(10_000).exportable(Access::READ | Access::WRITE);
    let local = engine.allocate_window(&request).expect("exportable memory is allocated");
    let exported = local.slice(1000..9000);
    let export = exported.export(Access::READ | Access::WRITE).expect("exportable memory can be exported");
    let import = || engine.import(export.descriptor()).expect("an export can be imported");
    let (remote, again) = (import(), import());
    let q = queue(engine);
    for (src, dst) in [
        (remote.slice(0..100), exported.slice(99..199)),
        (exported.slice(50..150), remote.slice(0..100)),
        (remote.slice(0..100), again.slice(50..150)),
        (remote.slice(0..100), remote.slice(50..150)),
    ] {
        let refused = q.copy(src.clone(), dst.clone()).expect_err("source and destination overlap");
        expect_kind(&refused, ErrorKind::Overlap, "memory and its import overlap");
        let refused = q.copy(vec![src], vec![dst]).expect_err("source and destination overlap");
        expect_kind(&refused, ErrorKind::Overlap, "memory and its import overlap");
    }
    local.write_at(0, &sample(7, 10_000)).expect("local memory can be written");
    // Equal offsets in the import and in the whole memory are different bytes.
    for (src, dst) in [
        (remote.slice(0..100), exported.slice(100..200)),
        (local.slice(0..100), remote.slice(0..100)),
        (remote.slice(0..100), again.slice(300..400)),
        (exported.slice(500..600), remote.slice(400..500)),
    ] {
        let (src, dst) = (vec![src.slice(0..50), src.slice(50..100)], dst);
        q.copy(src, dst).expect("source and destination do not overlap").wait().expect(COMPLETES);
    }
    let mut bytes = vec![0; 200];
    local.read_at(1000, &mut bytes).expect("local memory can be read");
    let all = sample(7, 10_000);
    assert!(
        bytes[..100] == all[..100] && bytes[100..] == all[1000..1100],
        "the copies arrive at their offsets in the exported memory"
    );
    // A revoked import no longer reaches the exported memory, so it does not overlap the memory at these
    // addresses.
    drop(export);
    let refused = match q.copy(remote.slice(0..100), exported.slice(50..150)) {
        Err(refused) => refused.error().kind(),
        Ok(transfer) => transfer.wait().expect_err("the import is revoked").error().kind(),
    };
    assert_ne!(refused, ErrorKind::Overlap, "memory and a revoked import do not overlap");
}

/// An export grants only its own range and rights, not the range and rights of the whole memory.
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
    // Some devices cannot grant the right to read without the right to write.
    let (rights, export) = match local.slice(100..200).export(Access::READ) {
        Err(e) if e.kind() == ErrorKind::Unsupported => {
            let rights = Access::READ | Access::WRITE;
            let request = MemoryRequest::new(8192).exportable(rights);
            let local = engine.allocate_window(&request).expect("exportable memory is allocated");
            (
                rights,
                local.slice(100..200).export(rights).expect("a part of exportable memory can be exported"),
            )
        }
        export => (Access::READ, export.expect("a part of exportable memory can be exported")),
    };
    let remote = engine.import(export.descriptor()).expect("an export can be imported");
    let granted = (remote.len(), remote.region().access());
    assert_eq!(granted, (100, rights), "an import has the range and the rights of the export");
    let q = queue(engine);
    if rights == Access::READ {
        let refused =
            q.copy(allocate(engine, 100), remote.clone()).expect_err("the import cannot be written");
        expect_kind(
            &refused,
            ErrorKind::AccessDenied,
            "memory exported with `Access::READ` cannot be a destination",
        );
    }
    // The import of a descriptor that was altered to grant more fails, or grants only the rights and range of
    // the export.
    let d = export.descriptor();
    let wider = ExportDescriptor::new(d.backend(), Access::all(), 8092, d.native()).expect("well formed");
    if let Ok(window) = engine.import(&wider) {
        assert!(window.len() <= 100, "an altered length grants no further bytes");
        assert_eq!(window.region().access(), rights, "altered rights grant no further rights");
    }
    let garbage = ExportDescriptor::new(d.backend(), Access::READ, 100, b"garbage").expect("well formed");
    let e = engine.import(&garbage).expect_err("not a native descriptor");
    assert!(matches!(e.kind(), ErrorKind::Malformed | ErrorKind::NotFound | ErrorKind::Revoked), "{e}");
    let foreign = ExportDescriptor::new("other-vendor", Access::READ, 100, b"x").expect("well formed");
    assert_eq!(engine.import(&foreign).expect_err("another backend's").kind(), ErrorKind::Unsupported);
    let plain = engine.allocate_window(&MemoryRequest::new(64)).expect("memory is allocated");
    let e = plain
        .export(Access::READ)
        .expect_err("memory that was not allocated as exportable cannot be exported");
    assert!(matches!(e.kind(), ErrorKind::AccessDenied | ErrorKind::Unsupported), "{e}");
}
