//! Cases: memory in the host and on the device.
#![expect(unsafe_code, reason = "registers device memory by address, and calls the raw traits")]

use std::sync::Arc;

use super::expect::repeats;
use super::{ACCEPTS, COMPLETES, allocate, expect_arrived, expect_kind, queue, sample};
use dma_core::{
    Access, BufferMut, Capabilities, DeviceAddr, DeviceMemory, DmaEngine, DmaEngineExt, ErrorKind,
    MemoryRequest, Place, Queue, Window,
};

fn has_device_memory(engine: &dyn DmaEngine) -> bool {
    engine.info().places().any(|place| place == Place::Device)
}

fn on_device(engine: &dyn DmaEngine, len: usize) -> Window {
    engine.allocate_device(len).expect("an engine with device memory allocates it")
}

/// Makes a window in `place` with these bytes.
fn window_of(engine: &dyn DmaEngine, q: &Queue, place: Place, bytes: &[u8]) -> Window {
    let mut staging = allocate(engine, bytes.len());
    staging.copy_from_slice(bytes);
    if place == Place::Host {
        return staging.share();
    }
    q.copy(staging, on_device(engine, bytes.len())).expect(ACCEPTS).wait().expect(COMPLETES).1
}

/// Reads a window by a copy to host memory.
fn bytes_of(engine: &dyn DmaEngine, q: &Queue, window: &Window) -> BufferMut {
    q.copy(window.clone(), allocate(engine, window.len())).expect(ACCEPTS).wait().expect(COMPLETES).1
}

/// The engine allocates memory in the places that it declares, and refuses other places.
pub fn places_are_what_the_engine_says(engine: &dyn DmaEngine) {
    let request = MemoryRequest::new(4096).with_place(Place::Device);
    let as_buffer = engine.allocate_with(&request).expect_err("device memory cannot be a buffer");
    expect_kind(&as_buffer, ErrorKind::InvalidArgument, "device memory is a window, not a buffer");
    let on_node = engine.allocate_window(&request.clone().with_node(Some(0))).expect_err("no such memory");
    expect_kind(&on_node, ErrorKind::InvalidArgument, "device memory cannot be on a NUMA node");
    if has_device_memory(engine) {
        let window = engine.allocate_window(&request).expect("device memory is allocated");
        assert_eq!(window.len(), 4096, "device memory has the requested length");
        if !window.region().is_cpu_visible() {
            let read = window.read_at(0, &mut [0; 8]).expect_err("the CPU cannot reach this device memory");
            expect_kind(&read, ErrorKind::Unsupported, "a CPU access to memory that it cannot reach");
            window.try_into_mut().expect_err("memory that the CPU cannot reach cannot become a buffer");
        }
    } else {
        let refused = engine.allocate_window(&request).expect_err("the engine has no device memory");
        expect_kind(&refused, ErrorKind::Unsupported, "without `ALLOCATE_DEVICE`");
        let refused = engine.allocate_raw(&request).expect_err("the engine has no device memory");
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "`allocate_raw` of device memory: {refused}");
    }
}

/// Allocated device memory is zeroed, even if it was used before, and has the requested alignment.
pub fn device_memory_is_zeroed_and_aligned(engine: &dyn DmaEngine) {
    if !has_device_memory(engine) {
        return;
    }
    let q = queue(engine);
    for (len, align) in [(1, 1), (64, 64), (4096, 4096), (70_001, 4096), (100, 16_384), (70_001, 4096)] {
        let request = MemoryRequest::new(len).with_align(align).with_place(Place::Device);
        let window = engine.allocate_window(&request).expect("device memory is allocated");
        let addr = window.region().as_raw().info().addr;
        assert!(addr.0.is_multiple_of(align as u64), "{len} bytes aligned to {align} at {addr:?}");
        let bytes = bytes_of(engine, &q, &window);
        assert!(repeats(&bytes, &[0]), "allocated device memory is zeroed");
        let mut used = bytes;
        used.fill(0xff);
        q.copy(used, window).expect(ACCEPTS).wait().expect(COMPLETES);
    }
}

/// Copies, lists and batches work between all places, and write only to their destinations.
pub fn bytes_pass_between_all_places(engine: &dyn DmaEngine) {
    let q = queue(engine);
    let places: Vec<_> = engine.info().places().collect();
    for (from, to) in places.iter().flat_map(|from| places.iter().map(move |to| (*from, *to))) {
        for (offset, len) in [(0, 1), (1, 63), (64, 4096), (63, 8191), (4095, 2), (13, 100_000)] {
            let src = window_of(engine, &q, from, &sample(len as u64, len + 3)).slice(3..);
            let whole = window_of(engine, &q, to, &vec![0x5a; offset + len + 100]);
            let dst = whole.slice(offset..offset + len);
            q.copy(src, dst).expect(ACCEPTS).wait().expect(COMPLETES);
            let got = bytes_of(engine, &q, &whole);
            let what = format!("a copy of {len} bytes from {from} to {to} memory");
            expect_arrived(&sample(len as u64, len + 3)[3..], &got[offset..offset + len], &what);
            assert!(
                repeats(&got[..offset], &[0x5a]) && repeats(&got[offset + len..], &[0x5a]),
                "{what} does not change the bytes around its destination"
            );
        }
        let batch = (0..20)
            .map(|i| (window_of(engine, &q, from, &sample(i, 500)), window_of(engine, &q, to, &[0; 500])));
        let batch = q.submit(batch.collect()).expect(ACCEPTS).wait().expect(COMPLETES);
        for (i, (_, dst)) in (0..).zip(batch.iter()) {
            let what = format_args!("copy {i} of a batch from {from} to {to} memory");
            expect_arrived(&sample(i, 500), &bytes_of(engine, &q, dst), what);
        }
    }
    // One list has segments in both places.
    let whole = sample(7, 5000);
    let place_of = |i: usize| places[i % places.len()];
    let cut = |cuts: &[usize], shift: usize| -> Vec<Window> {
        let ends = cuts.iter().skip(1).chain([&5000]);
        let parts = cuts.iter().zip(ends).enumerate();
        parts.map(|(i, (from, to))| window_of(engine, &q, place_of(i + shift), &whole[*from..*to])).collect()
    };
    for shift in 0..2 {
        let dst = cut(&[0, 1, 70, 2000, 4999], shift);
        q.fill(dst.clone(), [0; 8]).expect(ACCEPTS).wait().expect(COMPLETES);
        q.copy(cut(&[0, 100, 2500, 2501], 0), dst.clone()).expect(ACCEPTS).wait().expect(COMPLETES);
        let got: Vec<u8> = dst.iter().flat_map(|part| bytes_of(engine, &q, part).to_vec()).collect();
        expect_arrived(&whole, &got, "a copy of lists with segments in all places");
    }
}

/// Fills, comparisons and CRCs are correct in all places. Either the device executes them, or the CPU
/// executes them on copies of the bytes in host memory.
pub fn answers_are_given_in_all_places(engine: &dyn DmaEngine) {
    const LEN: usize = 200_003;
    let q = queue(engine);
    let places: Vec<_> = engine.info().places().collect();
    let mut bytes = sample(11, LEN);
    for (a, b) in places.iter().flat_map(|a| places.iter().map(move |b| (*a, *b))) {
        let left = window_of(engine, &q, a, &bytes);
        let right = window_of(engine, &q, b, &bytes);
        let compare = |left: &Window, right: &Window| {
            q.compare(left.clone(), right.clone()).expect(ACCEPTS).wait().expect(COMPLETES).1
        };
        assert_eq!(compare(&left, &right), None, "equal bytes in {a} and {b} memory");
        bytes[LEN - 2] ^= 1;
        let other = window_of(engine, &q, b, &bytes);
        assert_eq!(compare(&left, &other), Some(LEN - 2), "bytes that differ in {a} and {b} memory");
        bytes[LEN - 2] ^= 1;
        let sum = crc32c::crc32c(&bytes);
        let (_, crc) = q.crc32c(left.clone(), 0).expect(ACCEPTS).wait().expect(COMPLETES);
        assert_eq!(crc, sum, "the CRC of {LEN} bytes in {a} memory");
        let dst = window_of(engine, &q, b, &vec![0; LEN]);
        let ((_, dst), crc) = q.copy_crc32c(left, dst, 0).expect(ACCEPTS).wait().expect(COMPLETES);
        assert_eq!(crc, sum, "the CRC of a copy from {a} to {b} memory");
        let what = format!("a copy with a CRC from {a} to {b} memory");
        expect_arrived(&bytes, &bytes_of(engine, &q, &dst), &what);
        let middle = dst.slice(5..LEN - 5);
        q.fill(middle, *b"12345678").expect(ACCEPTS).wait().expect(COMPLETES);
        let got = bytes_of(engine, &q, &dst);
        let filled = repeats(&got[5..LEN - 5], b"12345678");
        let beside = got[..5] == bytes[..5] && got[LEN - 5..] == bytes[LEN - 5..];
        assert!(filled && beside, "a fill in {b} memory");
    }
}

/// Device memory that another owner allocated is used in place, and the owner is kept alive. Addresses
/// outside the device's memory are refused.
pub fn device_memory_of_others_is_registered(engine: &dyn DmaEngine) {
    const LEN: usize = 64 << 10;
    let register = |addr, len, owner: Arc<Window>| {
        // SAFETY: if the range is memory of the device, the owner keeps it allocated, and no reference to it
        // exists. An engine refuses any other range, so no operation accesses it.
        engine.register_device(unsafe { DeviceMemory::from_raw(addr, len, owner) })
    };
    let capabilities = engine.info().capabilities;
    let host = allocate(engine, LEN).share();
    let host_addr = host.region().as_raw().info().addr;
    let foreign = register(host_addr, LEN, Arc::new(host));
    let foreign = foreign.expect_err("host memory is not device memory");
    if !capabilities.contains(Capabilities::REGISTER_DEVICE) {
        return expect_kind(&foreign, ErrorKind::Unsupported, "without `REGISTER_DEVICE`");
    }
    expect_kind(&foreign, ErrorKind::InvalidArgument, "an address outside the device's memory is refused");
    let (owner, q) = (Arc::new(on_device(engine, LEN)), queue(engine));
    let addr = owner.region().as_raw().info().addr;
    for (at, len) in [(addr.offset(1), LEN + (1 << 30)), (DeviceAddr(8), 8)] {
        let refused =
            register(at, len, Arc::clone(&owner)).expect_err("a part of the range is not allocated");
        expect_kind(
            &refused,
            ErrorKind::InvalidArgument,
            "a range that is partly outside the device's memory is refused",
        );
    }
    let window = register(addr.offset(64), LEN - 64, Arc::clone(&owner))
        .expect("a range in the device's memory is registered");
    assert_eq!((window.len(), Arc::strong_count(&owner)), (LEN - 64, 2), "the region keeps the owner");
    let src = window_of(engine, &q, Place::Host, &sample(3, LEN - 64));
    q.copy(src, window.clone()).expect(ACCEPTS).wait().expect(COMPLETES);
    let got = bytes_of(engine, &q, &owner);
    expect_arrived(&sample(3, LEN - 64), &got[64..], "a copy to registered device memory");
    // The transfer is dropped early. Its operation keeps the owner alive until the operation has ended.
    drop(q.copy(window.slice(..100), allocate(engine, 100)).expect(ACCEPTS));
    let returned = window.into_owner::<Arc<Window>>();
    drop(q);
    let returned = returned.map(drop).map_err(drop);
    assert!(
        Arc::strong_count(&owner) == 1,
        "the owner is dropped when the operation has ended: {returned:?}"
    );
    // SAFETY: the owner keeps the memory allocated, and no reference to it exists.
    let memory = unsafe { DeviceMemory::from_raw(addr, LEN, Arc::clone(&owner)) };
    let none = MemoryRequest::new(0).with_access(Access::empty());
    let refused = engine.register_device_with(memory, &none).expect_err("no rights");
    expect_kind(&refused, ErrorKind::InvalidArgument, "registering memory without any rights is refused");
}
