//! Cases: memory outlives the device's accesses, in whatever order a program drops its values.
#![expect(unsafe_code, reason = "accesses registered memory as C code does")]

use std::time::Duration;

use super::{
    ACCEPTS, COMPLETES, allocate, expect_all_completed, expect_arrived, expect_kind, filled, patience, queue,
    sample,
};
use dma_core::{Access, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, HostMemory, MemoryRequest};

/// The operation of a dropped transfer continues. When it has ended, its slot and its memory become free.
pub fn dropped_transfers_finish(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let source = allocate(engine, 1000).freeze();
    for _ in 0..3 {
        for _ in 0..q.depth() {
            drop(q.copy(source.clone(), allocate(engine, 1000)).expect(ACCEPTS));
        }
        q.flush();
        let (mut left, mut since) = (q.depth(), std::time::Instant::now());
        while left > 0 {
            q.poll();
            let before = std::mem::replace(&mut left, q.depth() - q.available());
            if left < before {
                since = std::time::Instant::now();
            }
            assert!(
                since.elapsed() < patience(),
                "{COMPLETES}, with or without a waiter: none of {left} copies was reported in time"
            );
        }
    }
    expect_all_completed(q.counters(), 3 * q.depth() as u64, "after all copies have ended");
    let region = source.region().clone();
    drop(source);
    region.deregister().expect("memory that nothing uses is deregistered");
}

/// A forgotten transfer leaks only its memory.
pub fn forgotten_transfers_are_harmless(engine: &dyn DmaEngine) {
    let q = queue(engine);
    std::mem::forget(q.copy(allocate(engine, 5000), allocate(engine, 5000)).expect(ACCEPTS));
    let counters = q.close(patience());
    expect_all_completed(counters, 1, "after the close");
}

/// Closing a queue waits for its operations, and counts each of them in exactly one counter.
pub fn closing_accounts_for_everything(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let held: Vec<_> = (0..8.min(q.depth() / 2 + 1))
        .map(|i| {
            let src = filled(engine, i as u64, 3000);
            q.copy(src, allocate(engine, 3000)).expect(ACCEPTS)
        })
        .collect();
    let n = held.len() as u64;
    let counters = q.close(patience());
    expect_all_completed(counters, n, "after a close within the time limit");
    for transfer in held {
        let (src, dst) = transfer.wait().expect(COMPLETES);
        expect_arrived(&src, &dst, "a copy that the close completed");
    }
}

/// Dropping a queue waits until its transfers have completed.
pub fn dropping_a_queue_completes_its_transfers(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let mut src = allocate(engine, 3000);
    src.fill(3);
    let transfer = q.copy(src, allocate(engine, 3000)).expect(ACCEPTS);
    let unheld = q.copy(allocate(engine, 3000), allocate(engine, 3000));
    drop(unheld);
    drop(q);
    let (_, dst) = transfer.wait().expect("dropping a queue waits for its operations in flight");
    expect_arrived(&[3; 3000], &dst, "a copy that the drop of its queue completed");
}

/// Views stay valid after the other handles of their region are dropped, and after the queue is dropped.
pub fn engines_may_go_before_their_memory(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let mut src = allocate(engine, 64);
    let tail = src.split_off(32);
    let region = tail.region().clone();
    drop(src);
    let dst = allocate(engine, 32);
    let transfer = q.copy(tail, dst).expect(ACCEPTS);
    drop(region);
    let (tail, dst) = transfer.wait().expect(COMPLETES);
    drop(q);
    expect_arrived(&tail, &dst, "a copy");
}

/// A region that is in use cannot be deregistered. When it is no longer in use, it can.
pub fn deregistration_refuses_while_in_use(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let src = allocate(engine, 4096);
    let region = src.region().clone();
    let transfer = q.copy(src, allocate(engine, 4096)).expect(ACCEPTS);
    let (region, e) = region.deregister().expect_err("a transfer uses the region");
    expect_kind(&e, ErrorKind::InUse, "a region that a transfer uses cannot be deregistered");
    let (src, _) = transfer.wait().expect(COMPLETES);
    let (region, _) = region.deregister().expect_err("a view of the region exists");
    drop(src);
    assert!(
        region.deregister().expect("a region without views is deregistered").is_none(),
        "deregistering memory that the engine allocated frees it"
    );
}

/// Registered memory is used in place as source and destination, and is returned to its owner.
pub fn registered_memory_comes_back(engine: &dyn DmaEngine) {
    if !engine.info().capabilities.contains(Capabilities::REGISTER) {
        return;
    }
    let q = queue(engine);
    // The engine may require an alignment, which a long vector often has by chance.
    let align = engine.info().limits.register_alignment.max(1);
    let len = 4 * align.max(1024);
    let vector = sample(5, len);
    if !vector.as_ptr().addr().is_multiple_of(align) {
        // This vector does not have the alignment that the engine requires, so skip the case.
        return;
    }
    let src = engine.register(HostMemory::from_owner(vector)).expect("a vector can be registered");
    let address = src.as_ptr().addr();
    let (src, dst) = q.copy(src, allocate(engine, len)).expect(ACCEPTS).wait().expect(COMPLETES);
    expect_arrived(&src, &dst, "a copy from registered memory");
    // The memory is also a destination.
    let (dst, src) = q.copy(dst, src).expect(ACCEPTS).wait().expect(COMPLETES);
    drop(dst);
    let src = src.into_owner::<String>().expect_err("the owner is a vector, not a string");
    let region = src.region().clone();
    let src = src.into_owner::<Vec<u8>>().expect_err("the region has another handle");
    drop(src);
    let memory = region
        .deregister()
        .expect("a region without views is deregistered")
        .expect("registered memory is returned");
    let src = engine.register(memory).expect("returned memory can be registered again");
    let vector: Vec<u8> = src.into_owner().expect("the last view returns the vector");
    assert_eq!(vector.as_ptr().addr(), address, "registered memory is not moved");
    expect_arrived(&sample(5, len), &vector, "a copy to registered memory");
}

/// Memory that its owner continues to use becomes a window, never a buffer. The last view returns it.
pub fn memory_of_others_becomes_a_window(engine: &dyn DmaEngine) {
    let limits = &engine.info().limits;
    let align = limits.register_alignment.max(1);
    let len = 4 * align.max(1024);
    let ours = HostMemory::aligned(len, limits).expect("memory");
    let base = ours.as_ptr();
    // SAFETY: `ours` keeps the bytes allocated until the end of this function, and they are accessed through
    // pointers only.
    let shared = || unsafe { HostMemory::from_shared(base, len, ()) };
    let read_only = MemoryRequest::new(0).with_access(Access::READ);
    if !engine.info().capabilities.contains(Capabilities::REGISTER) {
        let e = engine.register_window(shared(), &read_only).expect_err("it registers nothing");
        return expect_kind(
            &e,
            ErrorKind::Unsupported,
            "without `REGISTER`, registering fails with `Unsupported`",
        );
    }
    let e = engine.register(shared()).expect_err("shared memory must not be borrowed");
    expect_kind(&e, ErrorKind::InvalidArgument, "shared memory cannot become a buffer");
    let e = engine.register_read_only_memory(shared()).expect_err("shared memory must not be borrowed");
    expect_kind(&e, ErrorKind::InvalidArgument, "shared memory cannot become a buffer");

    let q = queue(engine);
    let window = match engine.register_window(shared(), &MemoryRequest::new(0)) {
        // A device that requires more than 4096 bytes of alignment may reach only huge pages, so it may
        // refuse this memory.
        Err(e) if align > 4096 => {
            return expect_kind(
                &e,
                ErrorKind::AccessDenied,
                "memory that the device cannot reach is refused",
            );
        }
        registered => registered.expect("heap memory can be registered"),
    };
    let window = window.try_into_mut().expect_err("shared memory must not be borrowed");
    let src = filled(engine, 9, len);
    // A window cannot be deregistered while a copy writes it.
    let transfer = q.copy(src, window.clone()).expect(ACCEPTS);
    let (window, e) = window.deregister().expect_err("a transfer uses the region");
    expect_kind(&e, ErrorKind::InUse, "a region that a transfer uses cannot be deregistered");
    let (src, view) = transfer.wait().expect(COMPLETES);
    let mut bytes = vec![0; len];
    // SAFETY: `ours` keeps the `len` bytes mapped, `bytes` has the same length, and no operation is in
    // flight.
    unsafe { base.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
    expect_arrived(&src, &bytes, "a copy to shared memory");
    // SAFETY: `ours` keeps the `len` bytes mapped, and no operation is in flight.
    unsafe { base.write_bytes(0x5a, len) };
    let (_, dst) = q.copy(view, src).expect(ACCEPTS).wait().expect(COMPLETES);
    expect_arrived(&vec![0x5a; len], &dst, "a copy from shared memory that its owner has just written");
    window.write_at(3, &[1; 5]).expect("a window with `Access::WRITE` is writable");
    let memory = window
        .deregister()
        .expect("a window without transfers is deregistered")
        .expect("registered memory is returned");
    assert!(
        memory.is_shared() && memory.as_ptr() == base,
        "deregistering returns the memory that was registered"
    );

    if let Ok(window) = engine.register_window(memory, &read_only) {
        let e = window.write_at(0, &[1]).expect_err("the window is read-only");
        expect_kind(
            &e,
            ErrorKind::AccessDenied,
            "the CPU cannot write memory that is registered with `Access::READ`",
        );
        let e = q.copy(allocate(engine, len), window).expect_err("the window is read-only");
        expect_kind(
            &e,
            ErrorKind::AccessDenied,
            "memory that is registered with `Access::READ` cannot be a destination",
        );
    }
    if let Ok(window) = engine.register_window(shared(), &read_only) {
        let memory = window
            .deregister()
            .expect("a window without transfers is deregistered")
            .expect("registered memory is returned");
        let e = engine
            .register_window(memory, &MemoryRequest::new(0))
            .expect_err("memory that was registered with `Access::READ` stays read-only");
        expect_kind(
            &e,
            ErrorKind::InvalidArgument,
            "read-only memory cannot be registered with `Access::WRITE`",
        );
    }
    let _ = q.close(patience());
}

/// Registered read-only memory is read in place, is never a destination, and is returned to its owner.
pub fn read_only_memory_is_read_in_place(engine: &dyn DmaEngine) {
    if !engine.info().capabilities.contains(Capabilities::REGISTER) {
        let e = engine.register_read_only([1; 64]).expect_err("it registers nothing");
        return expect_kind(
            &e,
            ErrorKind::Unsupported,
            "without `REGISTER`, registering fails with `Unsupported`",
        );
    }
    let align = engine.info().limits.register_alignment.max(1);
    let len = 2 * align.max(4096);
    // The engine may require an alignment. The vector is long enough to contain `len` bytes at such an
    // address.
    let mut vector = vec![0; len + align];
    let skip = vector.as_ptr().addr().next_multiple_of(align) - vector.as_ptr().addr();
    vector[skip..skip + len].copy_from_slice(&sample(6, len));
    let shared = bytes::Bytes::from(vector).slice(skip..skip + len);
    let e = engine
        .register(HostMemory::from_read_only(shared.clone()))
        .expect_err("a buffer from `register` would be writable");
    expect_kind(&e, ErrorKind::InvalidArgument, "read-only memory cannot become a writable buffer");
    let src = match engine.register_read_only(shared.clone()) {
        // A device that requires more than 4096 bytes of alignment may reach only huge pages, so it may
        // refuse this memory.
        Err(e) if align > 4096 => {
            return expect_kind(
                &e,
                ErrorKind::AccessDenied,
                "memory that the device cannot reach is refused",
            );
        }
        registered => registered.expect("heap memory can be registered as read-only"),
    };
    assert_eq!(src.region().access(), Access::READ, "the device has only the right to read");
    read_in_place(engine, src.clone(), &shared);
    let src = src.try_into_mut().expect_err("registered read-only memory never becomes writable");
    let again = src.clone();
    let src = src.into_owner::<bytes::Bytes>().expect_err("another view exists");
    drop(again);
    let owner: bytes::Bytes = src.into_owner().expect("the last view returns the owner");
    assert_eq!(owner.as_ptr(), shared.as_ptr(), "registered memory is not moved");

    let window = |access| {
        let memory = HostMemory::from_read_only(shared.clone());
        engine.register_window(memory, &MemoryRequest::new(0).with_access(access))
    };
    let e = window(Access::READ | Access::WRITE).expect_err("the device could write the window");
    expect_kind(&e, ErrorKind::InvalidArgument, "read-only memory cannot become a writable window");
    if let Ok(window) = window(Access::READ) {
        window.try_into_mut().expect_err("a window of read-only memory never becomes a writable buffer");
    }

    // A constant of the program is in read-only pages, which the kernel may refuse to pin.
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    static CONSTANT: Page = Page([0x5c; 4096]);
    let constant: &'static [u8] = &CONSTANT.0;
    if let Ok(src) = engine.register_read_only(constant) {
        read_in_place(engine, src, constant);
    }
}

/// Uses `src` as the source of every type of operation. `others` is another reference to the same bytes.
fn read_in_place(engine: &dyn DmaEngine, src: dma_core::Buffer, others: &[u8]) {
    assert_eq!(src.as_ptr(), others.as_ptr(), "read-only memory is registered in place");
    let (q, len, sum) = (queue(engine), src.len(), crc32c::crc32c(others));
    let copy = q.copy(src.clone(), allocate(engine, len)).expect(ACCEPTS);
    q.flush();
    expect_arrived(&src, others, "the source");
    let (_, dst) = copy.wait().expect(COMPLETES);
    expect_arrived(others, &dst, "a copy from read-only memory");
    let ((_, dst), found) = q.copy_crc32c(src.clone(), dst, 0).expect(ACCEPTS).wait().expect(COMPLETES);
    assert_eq!(found, sum, "the CRC-32C of read-only memory");
    let ((_, dst), differs) = q.compare(src.clone(), dst).expect(ACCEPTS).wait().expect(COMPLETES);
    assert_eq!(differs, None, "read-only memory is equal to its copy");
    drop(dst);
    let (parts, to) = ((src.slice(1..), src.slice(..1)), (allocate(engine, 5), allocate(engine, len - 5)));
    let (_, (head, tail)) = q.copy(parts, to).expect(ACCEPTS).wait().expect(COMPLETES);
    expect_arrived(
        &[&others[1..], &others[..1]].concat(),
        &[&head[..], &tail[..]].concat(),
        "a gather from read-only memory",
    );
    expect_arrived(&src, others, "the source, which no operation writes,");
    let _ = q.close(patience());
}

/// Frozen buffers become `bytes::Bytes` without a copy. The `Bytes` keep the memory registered.
pub fn frozen_buffers_become_bytes(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let mut src = allocate(engine, 100);
    src.fill(8);
    let (src, dst) = q.copy(src, allocate(engine, 100)).expect(ACCEPTS).wait().expect(COMPLETES);
    let address = dst.as_ptr();
    let dst = dst.freeze();
    let half = dst.slice(50..);
    let bytes = bytes::Bytes::from(dst);
    assert_eq!(bytes.as_ptr(), address, "the conversion to `Bytes` does not copy");
    let region = half.region().clone();
    drop((src, half));
    assert!(region.deregister().is_err(), "`Bytes` keep their memory registered");
    expect_arrived(&[8; 100], &bytes, "a copy to a buffer that was frozen");
    // Frozen memory becomes writable again once no other view exists.
    let (one, other) = {
        let buffer = allocate(engine, 10).freeze();
        (buffer.clone(), buffer)
    };
    let one = one.try_into_mut().expect_err("another view exists");
    drop(other);
    let mut one = one.try_into_mut().expect("the last view of frozen memory becomes writable");
    one.fill(1);
    let _ = q.close(Duration::from_secs(5));
}
