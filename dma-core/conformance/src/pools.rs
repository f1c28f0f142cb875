//! Cases: memory of pools, idle memory, and plain bytes that are copied through pool buffers.

use super::expect::repeats;
use super::{
    ACCEPTS, COMPLETES, allocate, expect_arrived, expect_kind, patience, queue, queue_options, queued_len,
    sample,
};
use dma_core::{
    Access, BufferPool, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, IdleMemory, MemoryRequest,
    NumaNodes, PoolOptions, SharedQueueOptions, WindowPool,
};

/// Buffers of a pool are used in copies like other buffers. A buffer returns to the pool when it is dropped
/// and the device no longer uses it.
pub fn pools_get_their_buffers_back(engine: &dyn DmaEngine) {
    let options = PoolOptions::new().with_class(5000, 2).with_class(100, 3);
    let pool = match BufferPool::new(engine, &options) {
        Err(e) if !engine.info().capabilities.contains(Capabilities::ALLOCATE) => {
            return expect_kind(&e, ErrorKind::Unsupported, "without `ALLOCATE`, there is no pool");
        }
        pool => pool.expect("an engine that allocates has pools"),
    };
    let in_use = || pool.classes().map(|class| class.in_use).sum::<usize>();
    let q = queue(engine);
    for len in [1, 100, 101, 5000] {
        let mut src = pool.try_get(len).expect("a buffer is free");
        src.copy_from_slice(&sample(len as u64, len));
        let dst = pool.try_get(len).expect("a buffer is free");
        let (src, dst) = q.copy(src, dst).expect(ACCEPTS).wait().expect(COMPLETES);
        expect_arrived(&src, &dst, format_args!("a copy of {len} bytes between buffers of a pool"));
        drop((src, dst));
        assert_eq!(in_use(), 0, "all buffers have returned to the pool");
    }
    // A dropped transfer returns its buffers when it ends.
    drop(q.copy(pool.try_get(5000).expect("free"), pool.try_get(5000).expect("free")).expect(ACCEPTS));
    let _ = q.close(patience());
    assert_eq!(in_use(), 0, "all buffers have returned to the pool after the close");
    assert_eq!(pool.get_timeout(5000, patience()).expect("a buffer is free").len(), 5000);

    let options = PoolOptions::new().with_class(5000, 2).exportable(Access::READ | Access::WRITE);
    let pool = match BufferPool::new(engine, &options) {
        Err(e) if !engine.info().capabilities.contains(Capabilities::EXPORT) => {
            return expect_kind(
                &e,
                ErrorKind::Unsupported,
                "without `EXPORT`, there are no exportable pools",
            );
        }
        pool => pool.expect("an engine that exports has exportable pools"),
    };
    let window = pool.try_get(5000).expect("a buffer is free").share();
    let export =
        window.export(Access::READ | Access::WRITE).expect("a window of an exportable pool can be exported");
    drop(window);
    assert_eq!(
        pool.classes().map(|class| class.in_use).sum::<usize>(),
        1,
        "an export keeps its buffer in use"
    );
    export.revoke(patience()).expect("an export that no copy uses is revoked");
    assert_eq!(
        pool.classes().map(|class| class.in_use).sum::<usize>(),
        0,
        "the buffer returns to the pool after the export is revoked"
    );
}

/// An engine with [idle memory](DmaEngine::idle_memory) takes memory for a later allocation after its last
/// view was dropped and its last operation has ended. It does not take memory that was exported, or that has
/// fewer rights.
pub fn idle_memory_is_used_again(engine: &dyn DmaEngine) {
    let Some(idle) = engine.idle_memory() else { return };
    // A failed allocation elsewhere in the process releases the memory, so that nothing can be checked.
    for _attempt in 0..100 {
        idle.release();
        if use_idle_memory(engine, idle) {
            break;
        }
    }
}

/// Returns false if the process has released idle memory meanwhile.
fn use_idle_memory(engine: &dyn DmaEngine, idle: &IdleMemory) -> bool {
    let len = queued_len(engine, 5000);
    // A queue may allocate memory for itself when it is opened.
    let q = queue(engine);
    let last = (allocate(engine, 64), allocate(engine, 64));
    let start = idle.report();
    // Panics if the counts since the start are others and no memory was released.
    let expect = |regions: usize, reused: u64, what: &str| {
        let now = idle.report();
        let undisturbed = now.released == start.released;
        if undisturbed {
            assert_eq!((now.regions, now.reused - start.reused), (regions, reused), "{what}");
        }
        undisturbed
    };
    let (mut src, dst) = (allocate(engine, len), allocate(engine, len));
    if src.region().len() == len {
        // The limit of the idle memory is less than this.
        return true;
    }
    src.copy_from_slice(&sample(3, len));
    let mut addresses = [src.as_ptr(), dst.as_ptr()];
    drop(q.copy(src, dst).expect(ACCEPTS));
    if q.counters().in_flight > 0 && !expect(0, 0, "memory of an operation in flight is not idle") {
        return false;
    }
    q.fence();
    let _last = q.copy(last.0, last.1).expect(ACCEPTS).wait().expect(COMPLETES);
    if !expect(2, 0, "memory is idle when its operation has ended") {
        return false;
    }

    let (mut src, dst) = (allocate(engine, len), allocate(engine, len));
    if !expect(0, 2, "an allocation takes idle memory of its length") {
        return false;
    }
    let mut again = [src.as_ptr(), dst.as_ptr()];
    addresses.sort();
    again.sort();
    assert_eq!(addresses, again, "an allocation takes the memory that was idle, each region once");
    assert!(repeats(&src, &[0]) && repeats(&dst, &[0]), "`allocate` clears idle memory");
    src.copy_from_slice(&sample(4, len));
    let (src, dst) = q.copy(src, dst).expect(ACCEPTS).wait().expect(COMPLETES);
    expect_arrived(&src, &dst, "a copy between buffers of recycled memory");
    drop((src, dst));
    let mut dst = engine.allocate_for_overwrite(len).expect("an engine allocates memory");
    let mut src = engine.allocate_for_overwrite(len).expect("an engine allocates memory");
    src.copy_from_slice(&sample(5, len));
    dst.fill(0x5a);
    let (src, dst) = q.copy(src, dst).expect(ACCEPTS).wait().expect(COMPLETES);
    expect_arrived(&src, &dst, "a copy between buffers of recycled memory that was not cleared");
    if !expect(0, 4, "an allocation to be overwritten takes idle memory of its length") {
        return false;
    }

    let request = MemoryRequest::new(len);
    drop(engine.allocate_with(&request.clone().with_access(Access::READ)).expect("memory to read"));
    if engine.info().capabilities.contains(Capabilities::EXPORT) {
        let window = engine.allocate_window(&request.exportable(Access::all())).expect("exportable memory");
        let export = window.export(Access::all()).expect("exportable memory can be exported");
        drop(window);
        export.revoke(patience()).expect("an export that no copy uses is revoked");
    }
    if !expect(0, 4, "memory that was exported, or that has fewer rights, is not recycled") {
        return false;
    }
    drop((src, dst));
    let undisturbed = expect(2, 4, "memory is idle when its last view was dropped");
    idle.release();
    assert_eq!(idle.report().regions, 0, "released memory is not idle");
    undisturbed
}

/// Windows of a pool of device memory are used in copies like other windows, and return to the pool.
pub fn pools_of_device_memory_get_their_windows_back(engine: &dyn DmaEngine) {
    let options = PoolOptions::new().with_class(5000, 2).with_class(100, 3);
    let pool = match WindowPool::new(engine, &options) {
        Err(e) if !engine.info().capabilities.contains(Capabilities::ALLOCATE_DEVICE) => {
            return expect_kind(
                &e,
                ErrorKind::Unsupported,
                "without `ALLOCATE_DEVICE`, there is no pool of device memory",
            );
        }
        pool => pool.expect("an engine with device memory has pools of device memory"),
    };
    let in_use = || pool.classes().map(|class| class.in_use).sum::<usize>();
    let q = queue(engine);
    for len in [1, 100, 101, 5000] {
        let mut src = engine.allocate(len).expect("host memory");
        src.copy_from_slice(&sample(len as u64, len));
        let windows =
            [pool.try_get(len), pool.get_timeout(len, patience())].map(|window| window.expect("free"));
        let [first, second] = windows;
        let (src, first) = q.copy(src, first).expect(ACCEPTS).wait().expect(COMPLETES);
        let (_, second) = q.copy(first, second).expect(ACCEPTS).wait().expect(COMPLETES);
        assert_eq!(in_use(), 1, "the first window has returned to the pool, and the second is in use");
        let (second, back) = q
            .copy(second, engine.allocate(len).expect("host memory"))
            .expect(ACCEPTS)
            .wait()
            .expect(COMPLETES);
        expect_arrived(&src, &back, format_args!("a copy of {len} bytes through windows of a pool"));
        drop(second);
        assert_eq!(in_use(), 0, "all windows have returned to the pool");
    }
    let taken = (pool.try_get(5000).expect("free"), pool.try_get(5000).expect("free"));
    let refused = pool.try_get(5000).expect_err("all windows are in use");
    expect_kind(
        &refused,
        ErrorKind::OutOfResources,
        "a pool without a free window refuses with `OutOfResources`",
    );
    // A dropped transfer returns its windows when it ends.
    drop(q.copy(taken.0, taken.1).expect(ACCEPTS));
    let _ = q.close(patience());
    assert_eq!(in_use(), 0, "all windows have returned to the pool after the close");
}

/// Plain bytes are copied through pool buffers of any size.
pub fn plain_bytes_are_copied(engine: &dyn DmaEngine) {
    if !engine.info().capabilities.contains(Capabilities::ALLOCATE) {
        return;
    }
    let queue = queue(engine);
    let options = SharedQueueOptions::new().with_queue(queue_options(16));
    let shared = engine.open_shared_queue(&options);
    for class in [(7, 3), (4096, 40)] {
        let pool = BufferPool::new(engine, &PoolOptions::new().with_class(class.0, class.1))
            .expect("an engine that allocates has pools");
        // An engine that copies by CPU executes long copies in another way. Other engines copy at most 250
        // pieces, because a device may take long for each.
        let cpu_copies = engine.info().capabilities.contains(Capabilities::CPU_COPIES);
        let longest = if cpu_copies { 300_000 } else { 20_000.min(250 * class.0) };
        for len in [0, 1, 3, 1000, longest] {
            let (src, mut dst) = (sample(len as u64, len), vec![0x5a; len + 1]);
            queue.copy_bytes(&pool, &src, &mut dst[..len]).expect(COMPLETES);
            expect_arrived(&src, &dst[..len], format_args!("a copy of {len} plain bytes"));
            assert_eq!(dst[len], 0x5a, "a copy writes no bytes outside its destination");
            dst.fill(0);
            if let Ok(shared) = &shared {
                shared.copy_bytes(&pool, &src, &mut dst[..len]).expect(COMPLETES);
                expect_arrived(&src, &dst[..len], format_args!("a copy of {len} plain bytes"));
            }
        }
        let in_use = pool.classes().map(|class| class.in_use).sum::<usize>();
        assert_eq!(in_use, 0, "all buffers have returned to the pool");
    }
}

/// Memory on a NUMA node behaves like other memory. A node that does not exist is refused.
pub fn memory_is_taken_from_a_node(engine: &dyn DmaEngine) {
    let has = |capabilities| engine.info().capabilities.contains(capabilities);
    if !has(Capabilities::ALLOCATE | Capabilities::REGISTER) {
        return;
    }
    let node = NumaNodes::of_system().numbers().next();
    let request = MemoryRequest::new(5000).with_align(8192).with_node(node);
    let pool = PoolOptions::new().with_class(5000, 2).with_node(node);
    let (mut src, dst) = match (engine.allocate_with(&request), BufferPool::new(engine, &pool)) {
        // A container may forbid memory policies, so skip the case.
        (Err(e), _) if e.kind() == ErrorKind::PermissionDenied => return,
        (src, pool) => {
            let pool = pool.expect("a pool on a node");
            (src.expect("memory on a node"), pool.try_get(5000).expect("a buffer is free"))
        }
    };
    assert!(src.as_ptr().addr().is_multiple_of(8192), "memory on a node has the requested alignment");
    assert_eq!(src[..], [0; 5000], "memory on a node has the requested length and is zeroed");
    src.copy_from_slice(&sample(1, 5000));
    let (src, dst) = queue(engine).copy(src, dst).expect(ACCEPTS).wait().expect(COMPLETES);
    expect_arrived(&src, &dst, format_args!("a copy between buffers on a NUMA node"));

    let mut requests = vec![request.clone()];
    if has(Capabilities::EXPORT) {
        // Request both rights, because some devices cannot grant only one of them.
        let exported = request.exportable(Access::all());
        engine
            .allocate_window(&exported)
            .expect("exportable memory on a node")
            .export(Access::all())
            .expect("exported");
        requests.push(exported);
    }
    for request in requests {
        let error = engine.allocate_window(&request.with_node(Some(u32::MAX))).expect_err("no such node");
        expect_kind(&error, ErrorKind::NotFound, "a NUMA node that does not exist is refused");
    }
}
