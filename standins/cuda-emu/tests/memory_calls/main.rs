//! Tests of memory pools, copies and fills of rows, managed memory, and the list of refused calls.
#![expect(unsafe_code, reason = "calls the stand-in as C does")]
#![expect(clippy::too_many_arguments, reason = "as C's")]

#[macro_use]
#[path = "../declare/mod.rs"]
mod declare;
mod dmabufs;
mod managed;
mod pools;
mod values;

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Location {
    kind: c_int,
    id: c_int,
}

static DEVICE: Location = Location { kind: 1, id: 0 };

/// `CUmemPoolProps`.
#[derive(Clone, Copy)]
#[repr(C)]
struct PoolProperties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    security: usize,
    max: usize,
    rest: [u64; 7],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: Location,
    flags: c_uint,
}

/// One side of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Side {
    x: usize,
    y: usize,
    memory: c_int,
    host: usize,
    device: u64,
    array: usize,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct RowsCopy {
    src: Side,
    dst: Side,
    width: usize,
    height: usize,
}

/// `CUmemcpyAttributes`.
#[repr(C)]
struct CopyAttributes {
    order: c_int,
    places: [Location; 2],
    flags: c_uint,
}

/// `CUstreamBatchMemOpParams`.
#[derive(Clone, Copy)]
#[repr(C)]
struct ValueOperation {
    kind: c_int,
    barrier: c_uint,
    addr: u64,
    value: u64,
    flags: c_uint,
    rest: [u64; 2],
}

/// `CUmemPoolPtrExportData`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct PointerHandle([u64; 8]);

declare! {
    fn cuInit(flags: c_uint);
    fn cuGetProcAddress_v2(name: *const c_char, call: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int);
    fn cuCtxCreate_v2(context: *mut usize, flags: c_uint, device: c_int);
    fn cuCtxSetCurrent(context: usize);
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int);
    fn cuDevicePrimaryCtxRelease_v2(device: c_int);
    fn cuStreamCreate(stream: *mut usize, flags: c_uint);
    fn cuStreamSynchronize(stream: usize);
    fn cuStreamQuery(stream: usize);
    fn cuMemHostAlloc(addr: *mut u64, len: usize, flags: c_uint);
    fn cuMemFreeHost(addr: u64);
    fn cuMemAlloc_v2(addr: *mut u64, len: usize);
    fn cuMemFree_v2(addr: u64);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemcpy(dst: u64, src: u64, len: usize);
    fn cuMemsetD8_v2(dst: u64, value: u8, number: usize);
    fn cuMemsetD8Async(dst: u64, value: u8, number: usize, stream: usize);
    fn cuPointerGetAttribute(to: *mut c_void, attribute: c_int, addr: u64);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    fn cuMemAllocAsync(addr: *mut u64, len: usize, stream: usize);
    fn cuMemAllocFromPoolAsync(addr: *mut u64, len: usize, pool: u64, stream: usize);
    fn cuMemFreeAsync(addr: u64, stream: usize);
    fn cuDeviceGetDefaultMemPool(pool: *mut u64, device: c_int);
    fn cuDeviceGetMemPool(pool: *mut u64, device: c_int);
    fn cuDeviceSetMemPool(device: c_int, pool: u64);
    fn cuMemGetDefaultMemPool(pool: *mut u64, location: *const Location, kind: c_int);
    fn cuMemPoolCreate(pool: *mut u64, properties: *const PoolProperties);
    fn cuMemPoolDestroy(pool: u64);
    fn cuMemPoolTrimTo(pool: u64, kept: usize);
    fn cuMemPoolSetAttribute(pool: u64, attribute: c_int, value: *const c_void);
    fn cuMemPoolGetAttribute(pool: u64, attribute: c_int, value: *mut c_void);
    fn cuMemPoolSetAccess(pool: u64, rights: *const Access, count: usize);
    fn cuMemPoolGetAccess(flags: *mut c_uint, pool: u64, location: *const Location);
    fn cuMemcpy2D_v2(copy: *const RowsCopy);
    fn cuMemcpy2DAsync_v2(copy: *const RowsCopy, stream: usize);
    fn cuMemsetD2D8_v2(dst: u64, pitch: usize, value: u8, width: usize, height: usize);
    fn cuMemsetD2D16Async(dst: u64, pitch: usize, value: u16, width: usize, height: usize, stream: usize);
    fn cuMemsetD2D32_v2(dst: u64, pitch: usize, value: u32, width: usize, height: usize);
    fn cuMemAllocManaged(addr: *mut u64, len: usize, flags: c_uint);
    fn cuMemPrefetchAsync_v2(addr: u64, len: usize, to: Location, flags: c_uint, stream: usize);
    fn cuMemAdvise_v2(addr: u64, len: usize, advice: c_int, location: Location);
    fn cuStreamWriteValue32_v2(stream: usize, addr: u64, value: u32, flags: c_uint);
    fn cuStreamWriteValue64_v2(stream: usize, addr: u64, value: u64, flags: c_uint);
    fn cuStreamWaitValue32_v2(stream: usize, addr: u64, value: u32, flags: c_uint);
    fn cuStreamWaitValue64_v2(stream: usize, addr: u64, value: u64, flags: c_uint);
    fn cuStreamBatchMemOp_v2(stream: usize, count: c_uint, operations: *const ValueOperation, flags: c_uint);
    fn cuMemGetMemPool(pool: *mut u64, location: *const Location, kind: c_int);
    fn cuMemSetMemPool(location: *const Location, kind: c_int, pool: u64);
    fn cuMemPoolExportToShareableHandle(handle: *mut c_void, pool: u64, kind: c_int, flags: u64);
    fn cuMemPoolImportFromShareableHandle(pool: *mut u64, handle: usize, kind: c_int, flags: u64);
    fn cuMemPoolExportPointer(handle: *mut PointerHandle, addr: u64);
    fn cuMemPoolImportPointer(addr: *mut u64, pool: u64, handle: *const PointerHandle);
    fn cuMemGetHandleForAddressRange(handle: *mut c_void, addr: u64, len: usize, kind: c_int, flags: u64);
    fn cuIpcCloseMemHandle(addr: u64);
    fn cuMemPrefetchBatchAsync(
        addrs: *const u64,
        lens: *const usize,
        count: usize,
        places: *const Location,
        indices: *const usize,
        number: usize,
        flags: u64,
        stream: usize,
    );
    fn cuMemDiscardBatchAsync(addrs: *const u64, lens: *const usize, count: usize, flags: u64, stream: usize);
    fn cuMemDiscardAndPrefetchBatchAsync(
        addrs: *const u64,
        lens: *const usize,
        count: usize,
        places: *const Location,
        indices: *const usize,
        number: usize,
        flags: u64,
        stream: usize,
    );
    fn cuMemRangeGetAttribute(to: *mut c_int, room: usize, attribute: c_int, addr: u64, len: usize);
    fn cuMemRangeGetAttributes(
        to: *const *mut c_int,
        rooms: *const usize,
        attributes: *const c_int,
        number: usize,
        addr: u64,
        len: usize,
    );
    fn cuMemcpyWithAttributesAsync(
        dst: u64,
        src: u64,
        len: usize,
        attributes: *const CopyAttributes,
        stream: usize,
    );
}

const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const INVALID_DEVICE: c_int = 101;
const INVALID_HANDLE: c_int = 400;
const NOT_READY: c_int = 600;
const NOT_SUPPORTED: c_int = 801;

/// A handle and an address that the driver does not know.
const UNKNOWN: u64 = 0x8;

/// Makes a context of its own for each test, because `cuMemFree` waits for all streams of the context.
fn start() {
    declare::take_turn();
    let mut context = 0;
    assert_eq!(cuInit(0), 0);
    assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
}

fn stream() -> usize {
    let mut stream = 0;
    assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
    stream
}

/// Returns what a call writes, and checks that it succeeds.
fn made(call: impl FnOnce(*mut u64) -> c_int) -> u64 {
    let mut value = 0;
    assert_eq!(call(&raw mut value), 0);
    value
}

fn address<T>(value: *const T) -> u64 {
    value.expose_provenance() as u64
}

/// Copies bytes from an address to host memory.
fn read(addr: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; len];
    assert_eq!(cuMemcpy(address(bytes.as_mut_ptr()), addr, len), 0);
    bytes
}

/// A word of pinned host memory, for which streams wait. It is never freed, because a free would wait for the
/// streams.
struct Gate(u64);

impl Gate {
    fn new() -> Self {
        let gate = Self(made(|addr| cuMemHostAlloc(addr, 8, 0)));
        gate.set(0);
        gate
    }

    fn word(&self) -> &std::sync::atomic::AtomicU64 {
        // SAFETY: the memory is aligned to 512 bytes, only accessed atomically, and never freed.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(self.0 as usize)) }
    }

    fn set(&self, value: u64) {
        self.word().store(value, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn memory_of_a_pool_is_allocated_and_freed_in_the_order_of_a_stream() {
    start();
    let (first, second, gate) = (stream(), stream(), Gate::new());
    assert_eq!(cuStreamWaitValue32_v2(first, gate.0, 1, 1), 0);
    // The stream stands still, so these calls only queue steps.
    let old = made(|addr| cuMemAllocAsync(addr, 10_000, first));
    assert_eq!(cuMemsetD8Async(old, 1, 10_000, first), 0);
    assert_eq!(cuMemFreeAsync(old, first), 0);
    // The program cannot name the memory any more, although the stream has not freed it yet.
    assert_eq!(cuMemFreeAsync(old, first), INVALID_VALUE);
    assert_eq!(cuMemsetD8Async(old, 1, 10_000, second), INVALID_VALUE);
    let elsewhere = made(|addr| cuMemAllocAsync(addr, 10_000, second));
    assert_ne!(elsewhere, old, "the first stream still uses this memory");
    let again = made(|addr| cuMemAllocAsync(addr, 10_000, first));
    assert_eq!(again, old, "a later step of the same stream can use this memory");
    assert_eq!(cuMemsetD8Async(again, 2, 10_000, first), 0);
    assert_eq!(cuMemsetD8Async(elsewhere, 3, 10_000, second), 0);
    assert_eq!(cuStreamSynchronize(second), 0);
    assert_eq!(cuStreamQuery(first), NOT_READY);
    gate.set(1);
    assert_eq!(cuStreamSynchronize(first), 0);
    assert_eq!(read(again, 10_000), [2; 10_000], "the end of the old allocation did not free the new one");
    assert_eq!(read(elsewhere, 10_000), [3; 10_000]);
    // Both ways to free apply to memory of both kinds.
    assert_eq!(cuMemFree_v2(again), 0);
    assert_eq!(cuMemFreeAsync(elsewhere, second), 0);
    let plain = made(|addr| cuMemAlloc_v2(addr, 100));
    assert_eq!(cuMemFreeAsync(plain, second), 0);
    assert_eq!(cuMemFreeAsync(plain, second), INVALID_VALUE);
    assert_eq!(cuMemFree_v2(UNKNOWN), INVALID_VALUE);
}

#[test]
fn pools_count_their_memory_and_keep_to_their_limit() {
    start();
    let stream = stream();
    let properties = PoolProperties {
        kind: 1,
        handle_types: 0,
        location: DEVICE,
        security: 0,
        max: 1 << 20,
        rest: [0; 7],
    };
    let pool = made(|pool| cuMemPoolCreate(pool, &raw const properties));
    let get = |attribute| made(|value| cuMemPoolGetAttribute(pool, attribute, value.cast()));
    let addr = made(|addr| cuMemAllocFromPoolAsync(addr, 1 << 19, pool, stream));
    let mut more = 0;
    assert_eq!(cuMemAllocFromPoolAsync(&raw mut more, (1 << 19) + 1, pool, stream), OUT_OF_MEMORY);
    assert_eq!((get(7), get(8), get(13)), (1 << 19, 1 << 19, 1 << 20), "used, highest use, limit");
    let (mut owner, mut context, mut shareable) = (0_u64, 1_u64, 1_u32);
    assert_eq!(cuPointerGetAttribute((&raw mut owner).cast(), 17, addr), 0);
    assert_eq!(cuPointerGetAttribute((&raw mut context).cast(), 1, addr), 0);
    assert_eq!(cuPointerGetAttribute((&raw mut shareable).cast(), 10, addr), 0);
    assert_eq!((owner, context, shareable), (pool, 0, 0));
    assert_eq!(cuMemFreeAsync(addr, stream), 0);
    assert_eq!((get(7), get(8)), (0, 1 << 19));
    // The highest use can be reset, but nothing else can be set to it.
    let (zero, one, threshold) = (0_u64, 1_u64, u64::MAX);
    assert_eq!(cuMemPoolSetAttribute(pool, 8, (&raw const one).cast()), INVALID_VALUE);
    assert_eq!(cuMemPoolSetAttribute(pool, 8, (&raw const zero).cast()), 0);
    assert_eq!(cuMemPoolSetAttribute(pool, 4, (&raw const threshold).cast()), 0);
    assert_eq!((get(8), get(4)), (0, u64::MAX));
    assert_eq!(cuMemPoolSetAttribute(pool, 7, (&raw const zero).cast()), INVALID_VALUE);
    assert_eq!(cuMemPoolSetAttribute(pool, 4, ptr::null()), INVALID_VALUE);
    assert_eq!(cuMemPoolGetAttribute(pool, 4, ptr::null_mut()), INVALID_VALUE);
    assert_eq!(cuMemPoolGetAttribute(pool, 99, (&raw mut owner).cast()), INVALID_VALUE);
    // The pool's own device keeps its access.
    let mut flags = 0;
    assert_eq!(cuMemPoolGetAccess(&raw mut flags, pool, &raw const DEVICE), 0);
    assert_eq!(flags, 3);
    let [revoke, keep] = [0, 3].map(|flags| Access { location: DEVICE, flags });
    assert_eq!(cuMemPoolSetAccess(pool, &raw const revoke, 1), INVALID_VALUE);
    assert_eq!(cuMemPoolSetAccess(pool, &raw const keep, 1), 0);
    let other = Access { location: Location { kind: 1, id: 9 }, flags: 3 };
    assert_eq!(cuMemPoolSetAccess(pool, &raw const other, 1), INVALID_DEVICE);
    assert_eq!(cuMemPoolSetAccess(pool, ptr::null(), 1), INVALID_VALUE);
    // A destroyed pool is no longer the current one. Its allocations stay valid.
    assert_eq!(cuDeviceSetMemPool(0, pool), 0);
    assert_eq!(made(|current| cuDeviceGetMemPool(current, 0)), pool);
    let addr = made(|addr| cuMemAllocAsync(addr, 64, stream));
    assert_eq!(cuMemPoolTrimTo(pool, 0), 0);
    assert_eq!(cuMemPoolDestroy(pool), 0);
    let default = made(|default| cuDeviceGetDefaultMemPool(default, 0));
    assert_eq!(made(|current| cuDeviceGetMemPool(current, 0)), default);
    assert_eq!(made(|found| cuMemGetDefaultMemPool(found, &raw const DEVICE, 1)), default);
    assert_eq!(cuMemsetD8Async(addr, 1, 64, stream), 0);
    assert_eq!(cuMemFreeAsync(addr, stream), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    // Refused handles, pointers and values.
    let mut out = 0;
    for pool in [pool, 0, UNKNOWN] {
        assert_eq!(cuMemPoolDestroy(pool), INVALID_VALUE);
        assert_eq!(cuMemPoolTrimTo(pool, 0), INVALID_VALUE);
        assert_eq!(cuDeviceSetMemPool(0, pool), INVALID_VALUE);
        assert_eq!(cuMemPoolGetAttribute(pool, 4, (&raw mut out).cast()), INVALID_VALUE);
        assert_eq!(cuMemPoolGetAccess(&raw mut flags, pool, &raw const DEVICE), INVALID_VALUE);
        assert_eq!(cuMemAllocFromPoolAsync(&raw mut out, 64, pool, stream), INVALID_VALUE);
    }
    assert_eq!(cuMemPoolDestroy(default), INVALID_VALUE);
    assert_eq!(cuMemAllocAsync(&raw mut out, 0, stream), INVALID_VALUE);
    assert_eq!(cuMemAllocAsync(ptr::null_mut(), 64, stream), INVALID_VALUE);
    assert_eq!(cuMemAllocAsync(&raw mut out, 64, UNKNOWN as usize), INVALID_HANDLE);
    assert_eq!(cuMemFreeAsync(default, stream), INVALID_VALUE);
    assert_eq!(cuDeviceGetDefaultMemPool(&raw mut out, 9), INVALID_DEVICE);
    assert_eq!(cuDeviceGetDefaultMemPool(ptr::null_mut(), 0), INVALID_VALUE);
    assert_eq!(cuMemPoolCreate(&raw mut out, ptr::null()), INVALID_VALUE);
    assert_eq!(cuMemPoolCreate(ptr::null_mut(), &raw const properties), INVALID_VALUE);
    let exported = PoolProperties { handle_types: 2, ..properties };
    assert_eq!(cuMemPoolCreate(&raw mut out, &raw const exported), NOT_SUPPORTED);
    let nowhere = PoolProperties { location: Location { kind: 1, id: 9 }, ..properties };
    assert_eq!(cuMemPoolCreate(&raw mut out, &raw const nowhere), INVALID_VALUE);
}

#[test]
fn an_allocation_waits_for_memory_that_its_stream_frees() {
    start();
    let stream = stream();
    let (mut free, mut total) = (0, 0);
    assert_eq!(cuMemGetInfo_v2(&raw mut free, &raw mut total), 0);
    // More than half of the device, in two sizes.
    let large = made(|addr| cuMemAllocAsync(addr, total / 8 * 5, stream));
    let gate = Gate::new();
    assert_eq!(cuStreamWriteValue32_v2(stream, gate.0, 7, 0), 0);
    assert_eq!(cuMemFreeAsync(large, stream), 0);
    let larger = made(|addr| cuMemAllocAsync(addr, total / 8 * 6, stream));
    assert_eq!(gate.word().load(std::sync::atomic::Ordering::SeqCst), 7);
    let mut out = 0;
    assert_eq!(cuMemAllocAsync(&raw mut out, total / 2, stream), OUT_OF_MEMORY);
    assert_eq!(cuMemFreeAsync(larger, stream), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
}

#[test]
fn rows_are_copied_and_filled() {
    start();
    let stream = stream();
    let host: Vec<u8> = (0..100).collect();
    let device = made(|addr| cuMemAlloc_v2(addr, 20 * 16));
    assert_eq!(cuMemsetD8_v2(device, 0xee, 20 * 16), 0);
    // Copies the middle of rows 1 to 4, each of 10 bytes, to the same place in rows of 16 bytes.
    let here =
        Side { x: 2, y: 1, memory: 1, host: address(host.as_ptr()) as usize, pitch: 10, ..Side::default() };
    let there = Side { x: 3, y: 2, memory: 2, device, pitch: 16, ..Side::default() };
    let copy = RowsCopy { src: here, dst: there, width: 5, height: 4 };
    assert_eq!(cuMemcpy2D_v2(&raw const copy), 0);
    let mut expected = vec![0xee; 20 * 16];
    for row in 0..4 {
        let from = (1 + row) * 10 + 2;
        expected[(2 + row) * 16 + 3..][..5].copy_from_slice(&host[from..from + 5]);
    }
    assert_eq!(read(device, 20 * 16), expected);
    // And back, by addresses of any kind.
    let back = vec![0_u8; 100];
    let target = Side { memory: 4, device: address(back.as_ptr()), host: 0, ..here };
    let copy_back = RowsCopy { src: Side { memory: 4, ..there }, dst: target, ..copy };
    assert_eq!(cuMemcpy2DAsync_v2(&raw const copy_back, stream), 0);
    let same = |row: usize| back[row * 10 + 2..][..5] == host[row * 10 + 2..][..5];
    assert!((1..5).all(same) && back[..12] == [0; 12] && back[17..22] == [0; 5], "{back:?}");
    // Fills of 1, 2 and 4 bytes.
    assert_eq!(cuMemsetD2D8_v2(device + 1, 16, 7, 3, 2), 0);
    assert_eq!(cuMemsetD2D16Async(device + 4, 16, 0x0102, 3, 2, stream), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(cuMemsetD2D32_v2(device + 12, 16, 0x0403_0201, 1, 2), 0);
    for row in [0, 1] {
        let found = read(device + row * 16, 16);
        assert_eq!(found, [0xee, 7, 7, 7, 2, 1, 2, 1, 2, 1, 0xee, 0xee, 1, 2, 3, 4], "row {row}");
    }
    let changed = |change: fn(&mut RowsCopy)| {
        let mut copy = copy;
        change(&mut copy);
        cuMemcpy2D_v2(&raw const copy)
    };
    // Nothing to do.
    assert_eq!(changed(|copy| copy.height = 0), 0);
    assert_eq!(cuMemsetD2D8_v2(device, 16, 1, 0, 1), 0);
    assert_eq!(cuMemsetD2D8_v2(device, 16, 1, 1, 0), 0);
    assert_eq!(cuMemcpy2D_v2(ptr::null()), INVALID_VALUE);
    assert_eq!(changed(|copy| copy.src.pitch = 6), INVALID_VALUE, "rows overlap");
    assert_eq!(changed(|copy| copy.dst.pitch = 1 << 31), INVALID_VALUE, "MAX_PITCH");
    assert_eq!(changed(|copy| copy.height = 19), INVALID_VALUE, "beyond the allocation");
    assert_eq!(changed(|copy| copy.height = usize::MAX), INVALID_VALUE);
    assert_eq!(changed(|copy| copy.width = usize::MAX), INVALID_VALUE);
    assert_eq!(changed(|copy| copy.src.memory = 0), INVALID_VALUE);
    assert_eq!(changed(|copy| copy.src.memory = 3), NOT_SUPPORTED, "an array");
    assert_eq!(changed(|copy| copy.dst.device = 0x8), INVALID_VALUE);
    assert_eq!(changed(|copy| copy.src.host = copy.dst.device as usize), INVALID_VALUE);
    assert_eq!(cuMemsetD2D8_v2(device, 2, 1, 3, 2), INVALID_VALUE, "rows overlap");
    assert_eq!(cuMemsetD2D16Async(device + 1, 16, 1, 3, 2, stream), INVALID_VALUE, "not aligned");
    assert_eq!(cuMemsetD2D32_v2(device, 16, 1, 2, 21), INVALID_VALUE, "beyond the allocation");
    assert_eq!(cuMemsetD2D8_v2(UNKNOWN, 16, 1, 2, 2), INVALID_VALUE);
    assert_eq!(cuMemcpy2DAsync_v2(&raw const copy, UNKNOWN as usize), INVALID_HANDLE);
    assert_eq!(cuMemFree_v2(device), 0);
}

#[test]
fn managed_memory_belongs_to_the_cpu_and_the_devices() {
    start();
    let stream = stream();
    let addr = made(|addr| cuMemAllocManaged(addr, 5000, 1));
    assert_eq!(cuMemsetD8_v2(addr, 5, 5000), 0);
    // SAFETY: the memory is 5,000 bytes, which no stream uses any more.
    let bytes =
        unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(addr as usize), 5000) };
    assert_eq!(bytes, [5; 5000]);
    let (mut managed, mut kind) = (0_u32, 0_u32);
    assert_eq!(cuPointerGetAttribute((&raw mut managed).cast(), 8, addr), 0);
    assert_eq!(cuPointerGetAttribute((&raw mut kind).cast(), 2, addr), 0);
    assert_eq!((managed, kind), (1, 2));
    let cpu = Location { kind: 2, id: 0 };
    for location in [DEVICE, cpu] {
        assert_eq!(cuMemPrefetchAsync_v2(addr, 5000, location, 0, stream), 0);
        assert_eq!(cuMemAdvise_v2(addr, 5000, 3, location), 0);
    }
    let nowhere = Location { kind: 1, id: 9 };
    assert_eq!(cuMemPrefetchAsync_v2(addr, 5000, nowhere, 0, stream), INVALID_DEVICE);
    assert_eq!(cuMemPrefetchAsync_v2(addr, 5001, DEVICE, 0, stream), INVALID_VALUE);
    assert_eq!(cuMemPrefetchAsync_v2(UNKNOWN, 1, DEVICE, 0, stream), INVALID_VALUE);
    assert_eq!(cuMemAdvise_v2(addr, 5000, 7, DEVICE), INVALID_VALUE);
    assert_eq!(cuMemAdvise_v2(addr, 0, 3, DEVICE), INVALID_VALUE);
    let mut out = 0;
    assert_eq!(cuMemAllocManaged(ptr::null_mut(), 64, 1), INVALID_VALUE);
    assert_eq!(cuMemAllocManaged(&raw mut out, 0, 1), INVALID_VALUE);
    assert_eq!(cuMemAllocManaged(&raw mut out, 64, 0), INVALID_VALUE);
    assert_eq!(cuMemFreeHost(addr), INVALID_VALUE);
    assert_eq!(cuMemFree_v2(addr), 0);
    assert_eq!(cuMemFree_v2(addr), INVALID_VALUE);
}

#[test]
fn one_copy_has_attributes() {
    start();
    let stream = stream();
    let device = made(|addr| cuMemAlloc_v2(addr, 64));
    let (source, place) = ([3_u8; 64], Location { kind: 0, id: 0 });
    let [good, bad] = [1, 0].map(|order| CopyAttributes { order, places: [place; 2], flags: 0 });
    let copy = |attributes: *const CopyAttributes| {
        cuMemcpyWithAttributesAsync(device, address(&raw const source), 64, attributes, stream)
    };
    assert_eq!(copy(&raw const good), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(read(device, 64), source);
    assert_eq!(copy(&raw const bad), INVALID_VALUE);
    assert_eq!(copy(ptr::null()), INVALID_VALUE);
    assert_eq!(cuMemFree_v2(device), 0);
}

#[test]
fn devices_have_the_attributes_of_these_calls() {
    start();
    for (attribute, expected) in
        [(11, c_int::MAX), (83, 1), (89, 1), (115, 1), (119, 1), (122, 1), (123, 1), (142, 1), (144, 1)]
    {
        let mut value = -1;
        assert_eq!(cuDeviceGetAttribute(&raw mut value, attribute, 0), 0);
        assert_eq!(value, expected, "attribute {attribute}");
    }
}

#[test]
fn the_list_of_refused_calls_has_no_call_of_the_stand_in() {
    let refused: Vec<_> = include_str!("../../refused.txt").lines().collect();
    let sorted: BTreeSet<_> = refused.iter().copied().collect();
    assert!(refused.iter().copied().eq(sorted), "the names are not sorted, or one occurs twice");
    for name in refused {
        assert!(name.starts_with("cu"), "{name}");
        let symbol = std::ffi::CString::new(name).expect("no NUL");
        assert!(cuda_emu::symbol(&symbol).is_none(), "{name} is not refused");
    }
}

#[test]
fn a_plain_name_means_the_variant_of_the_programs_version() {
    start();
    for (name, version, variant) in [
        (c"cuCtxCreate", 3020, c"cuCtxCreate_v2"),
        (c"cuCtxCreate", 12_000, c"cuCtxCreate_v3"),
        (c"cuCtxCreate", 13_000, c"cuCtxCreate_v4"),
        (c"cuCtxSynchronize", 2000, c"cuCtxSynchronize"),
        (c"cuCtxSynchronize", 13_000, c"cuCtxSynchronize_v2"),
        (c"cuMemAdvise", 12_010, c"cuMemAdvise"),
        (c"cuMemAdvise", 12_020, c"cuMemAdvise_v2"),
        (c"cuMemcpyBatchAsync", 12_080, c"cuMemcpyBatchAsync"),
        (c"cuMemcpyBatchAsync", 13_000, c"cuMemcpyBatchAsync_v2"),
        (c"cuMemAlloc", 13_000, c"cuMemAlloc_v2"),
        (c"cuStreamCreate", 13_000, c"cuStreamCreate"),
    ] {
        let mut found = ptr::null_mut();
        assert_eq!(cuGetProcAddress_v2(name.as_ptr(), &raw mut found, version, 0, ptr::null_mut()), 0);
        let expected = cuda_emu::symbol(variant).expect("the stand-in has it");
        assert_eq!(found, expected.as_ptr(), "{name:?} of CUDA {version}");
    }
}

#[test]
fn a_primary_context_survives_if_it_is_retained_during_its_last_release() {
    start();
    let gate = Gate::new();
    let retain = || {
        let mut context = 0;
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
    };
    retain();
    for round in 1..100 {
        assert_eq!(cuStreamWaitValue32_v2(stream(), gate.0, round, 1), 0);
        // The release waits for the stream.
        let release = std::thread::spawn(|| cuDevicePrimaryCtxRelease_v2(0));
        (0..round).for_each(|_| std::thread::yield_now());
        retain();
        gate.set(round.into());
        assert_eq!(release.join().expect("no panic"), 0);
        let _in_the_retained_context = stream();
    }
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 0);
}
