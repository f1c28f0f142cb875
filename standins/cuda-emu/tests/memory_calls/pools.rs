//! Tests of pools of host and managed memory, and of pools that other processes import.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::*;

const LEN: usize = 5000;
const PINNED: c_int = 1;
const MANAGED: c_int = 2;
static NOWHERE: Location = Location { kind: 0, id: 0 };
static HOST: Location = Location { kind: 2, id: 0 };
static NODE: Location = Location { kind: 3, id: 0 };

fn properties(kind: c_int, location: Location) -> PoolProperties {
    PoolProperties { kind, handle_types: 0, location, security: 0, max: 0, rest: [0; 7] }
}

fn create(properties: PoolProperties) -> u64 {
    made(|pool| cuMemPoolCreate(pool, &raw const properties))
}

fn refused(properties: PoolProperties) -> c_int {
    let mut pool = 0;
    cuMemPoolCreate(&raw mut pool, &raw const properties)
}

/// Returns memory that the CPU can access, and no stream uses now.
fn bytes<'a>(addr: u64) -> &'a mut [u8] {
    // SAFETY: the tests pass the address of `LEN` bytes of host or managed memory, which no stream uses and
    // no other reference names.
    unsafe { std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(addr as usize), LEN) }
}

#[test]
fn pools_of_the_host_have_memory_of_the_cpu_and_the_devices() {
    start();
    let stream = stream();
    let device = made(|addr| cuMemAlloc_v2(addr, LEN));
    for (kind, location, is_managed, memory_type) in [
        (PINNED, HOST, 0, 1),
        (PINNED, NODE, 0, 1),
        (MANAGED, NOWHERE, 1, 2),
        (MANAGED, DEVICE, 1, 2),
        (MANAGED, HOST, 1, 2),
        (MANAGED, NODE, 1, 2),
    ] {
        let pool = create(PoolProperties { max: 16 << 10, ..properties(kind, location) });
        let get = |attribute| made(|value| cuMemPoolGetAttribute(pool, attribute, value.cast()));
        let low = |attribute| get(attribute) as u32 as c_int;
        assert_eq!((low(9), low(11), low(12)), (kind, location.id, location.kind));
        let [first, second] = [(); 2].map(|()| made(|a| cuMemAllocFromPoolAsync(a, LEN, pool, stream)));
        let mut more = 0;
        assert_eq!(cuMemAllocFromPoolAsync(&raw mut more, 8 << 10, pool, stream), OUT_OF_MEMORY);
        assert_eq!(get(7), 2 * 5120);
        bytes(first).fill(3);
        assert_eq!(cuMemcpy(device, first, LEN), 0);
        assert_eq!(cuMemcpy(second, device, LEN), 0);
        assert_eq!(bytes(second), [3; LEN]);
        let (mut managed, mut found, mut owner) = (9_u32, 0_u32, 0_u64);
        assert_eq!(cuPointerGetAttribute((&raw mut managed).cast(), 8, first), 0);
        assert_eq!(cuPointerGetAttribute((&raw mut found).cast(), 2, first), 0);
        assert_eq!(cuPointerGetAttribute((&raw mut owner).cast(), 17, first), 0);
        assert_eq!((managed, found, owner), (is_managed, memory_type, pool));
        assert_eq!(cuMemFreeHost(first), INVALID_VALUE, "the memory is a pool's");
        // Memory whose end is queued is allocated again on the same stream only.
        let gate = Gate::new();
        assert_eq!(cuStreamWaitValue32_v2(stream, gate.0, 1, 1), 0);
        assert_eq!(cuMemFreeAsync(first, stream), 0);
        assert_eq!(cuMemFreeAsync(first, stream), INVALID_VALUE);
        assert_eq!(made(|addr| cuMemAllocFromPoolAsync(addr, LEN - 1, pool, stream)), first);
        gate.set(1);
        assert_eq!(cuStreamSynchronize(stream), 0);
        bytes(first).fill(4);
        assert_eq!(cuMemFree_v2(first), 0);
        // The CPU keeps its access; the rights of a device can change.
        let mut flags = 9;
        assert_eq!(cuMemPoolGetAccess(&raw mut flags, pool, &raw const HOST), 0);
        assert_eq!(flags, 3);
        for (location, flags, expected) in
            [(HOST, 3, 0), (HOST, 0, INVALID_VALUE), (DEVICE, 3, 0), (NOWHERE, 3, INVALID_VALUE)]
        {
            let access = Access { location, flags };
            assert_eq!(cuMemPoolSetAccess(pool, &raw const access, 1), expected);
        }
        assert_eq!(cuMemPoolGetAccess(&raw mut flags, pool, &raw const DEVICE), 0);
        assert_eq!(flags, 3);
        // A destroyed pool ends when its last allocation is freed.
        assert_eq!(cuMemPoolDestroy(pool), 0);
        bytes(second).fill(5);
        assert_eq!(cuMemFreeAsync(second, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(cuMemFreeAsync(second, stream), INVALID_VALUE);
    }
    assert_eq!(cuMemFree_v2(device), 0);
    for (kind, location) in [
        (PINNED, NOWHERE),
        (PINNED, Location { kind: 4, id: 0 }),
        (PINNED, Location { kind: 3, id: 100_000 }),
        (PINNED, Location { kind: 3, id: -1 }),
        (MANAGED, Location { kind: 1, id: 9 }),
        (MANAGED, Location { kind: 4, id: 0 }),
        (0, DEVICE),
        (3, HOST),
    ] {
        assert_eq!(refused(properties(kind, location)), INVALID_VALUE, "{kind}, {}", location.kind);
    }
}

#[test]
fn each_kind_and_location_has_a_default_pool_and_a_current_pool() {
    start();
    let mut seen = BTreeSet::new();
    for (kind, location) in [
        (PINNED, DEVICE),
        (PINNED, HOST),
        (PINNED, NODE),
        (MANAGED, DEVICE),
        (MANAGED, HOST),
        (MANAGED, NOWHERE),
    ] {
        let default = made(|pool| cuMemGetDefaultMemPool(pool, &raw const location, kind));
        assert!(seen.insert(default), "two kinds share a pool");
        assert_eq!(made(|pool| cuMemGetDefaultMemPool(pool, &raw const location, kind)), default);
        if (kind, location.kind) == (PINNED, 1) {
            // Other tests make other pools the current one of the device.
            continue;
        }
        let current = || made(|pool| cuMemGetMemPool(pool, &raw const location, kind));
        assert_eq!(current(), default);
        let own = create(properties(kind, location));
        assert_eq!(cuMemSetMemPool(&raw const location, kind, own), 0);
        assert_eq!(current(), own);
        let elsewhere = if kind == PINNED { properties(MANAGED, HOST) } else { properties(PINNED, HOST) };
        let other = create(elsewhere);
        assert_eq!(cuMemSetMemPool(&raw const location, kind, other), INVALID_VALUE);
        assert_eq!(cuMemPoolDestroy(own), 0);
        assert_eq!(current(), default);
        assert_eq!(cuMemPoolDestroy(default), INVALID_VALUE);
        assert_eq!(cuMemPoolDestroy(other), 0);
    }
}

/// Exports a pool, and imports it into this process.
fn import(pool: u64) -> u64 {
    let mut file = -1;
    assert_eq!(cuMemPoolExportToShareableHandle((&raw mut file).cast(), pool, 1, 0), 0);
    // SAFETY: the call has opened this descriptor for the caller.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    made(|pool| cuMemPoolImportFromShareableHandle(pool, file.as_raw_fd() as usize, 1, 0))
}

#[test]
fn an_imported_pool_has_the_memory_of_its_owner() {
    start();
    let stream = stream();
    let mut handles = Vec::new();
    for location in [DEVICE, NODE] {
        let pool = create(PoolProperties { handle_types: 1, ..properties(PINNED, location) });
        // The imported memory is not the first of its file.
        let before = made(|addr| cuMemAllocFromPoolAsync(addr, LEN, pool, stream));
        let addr = made(|addr| cuMemAllocFromPoolAsync(addr, LEN, pool, stream));
        assert_eq!(cuMemsetD8_v2(before, 1, LEN), 0);
        assert_eq!(cuMemsetD8_v2(addr, 2, LEN), 0);
        let imported = import(pool);
        let mut handle = PointerHandle([0; 8]);
        assert_eq!(cuMemPoolExportPointer(&raw mut handle, addr), 0);
        let there = made(|addr| cuMemPoolImportPointer(addr, imported, &raw const handle));
        assert_ne!(there, addr);
        assert_eq!(read(there, LEN), [2; LEN]);
        assert_eq!(made(|addr| cuMemPoolImportPointer(addr, imported, &raw const handle)), there);
        assert_eq!(cuMemsetD8Async(there, 3, LEN, stream), 0);
        assert_eq!(cuIpcCloseMemHandle(there), INVALID_VALUE, "the memory is a pool's");
        assert_eq!(cuMemFreeAsync(there, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(cuMemsetD8_v2(there, 3, LEN), INVALID_VALUE);
        assert_eq!(read(addr, LEN), [3; LEN]);
        assert_eq!(read(before, LEN), [1; LEN]);
        // The owner of an imported pool is another process.
        let mut out = 0;
        assert_eq!(cuMemAllocFromPoolAsync(&raw mut out, LEN, imported, stream), INVALID_VALUE);
        assert_eq!(cuMemSetMemPool(&raw const location, PINNED, imported), INVALID_VALUE);
        let mut file = -1;
        assert_eq!(cuMemPoolExportToShareableHandle((&raw mut file).cast(), imported, 1, 0), INVALID_VALUE);
        // Pointers are exported by their first byte, and imported by the pool that they belong to.
        assert_eq!(cuMemPoolExportPointer(&raw mut handle, addr + 1), INVALID_VALUE);
        assert_eq!(cuMemPoolImportPointer(&raw mut out, pool, &raw const handle), INVALID_VALUE);
        assert_eq!(cuMemPoolImportPointer(&raw mut out, imported, ptr::null()), INVALID_VALUE);
        let forged = PointerHandle([5; 8]);
        assert_eq!(cuMemPoolImportPointer(&raw mut out, imported, &raw const forged), INVALID_VALUE);
        for (place, value) in [(2, u64::MAX), (3, u64::MAX), (3, 0), (3, 1 << 50)] {
            let mut beyond = handle;
            beyond.0[place] = value;
            assert_ne!(cuMemPoolImportPointer(&raw mut out, imported, &raw const beyond), 0);
        }
        handles.push((imported, handle));
        assert_eq!(cuMemFree_v2(before), 0);
        assert_eq!(cuMemFree_v2(addr), 0);
        assert_eq!(cuMemPoolDestroy(pool), 0);
    }
    let [(device, device_handle), (host, host_handle)] = handles[..] else { unreachable!("two pools") };
    let mut out = 0;
    assert_eq!(cuMemPoolImportPointer(&raw mut out, device, &raw const host_handle), INVALID_VALUE);
    assert_eq!(cuMemPoolImportPointer(&raw mut out, host, &raw const device_handle), INVALID_VALUE);
    // Pools that cannot be exported, and handles that are no pools.
    let mut file = -1;
    let private = create(properties(PINNED, DEVICE));
    assert_eq!(cuMemPoolExportToShareableHandle((&raw mut file).cast(), private, 1, 0), INVALID_VALUE);
    let inside = made(|addr| cuMemAllocFromPoolAsync(addr, LEN, private, stream));
    let plain = made(|addr| cuMemAlloc_v2(addr, LEN));
    let mut handle = PointerHandle([0; 8]);
    for addr in [inside, plain, UNKNOWN] {
        assert_eq!(cuMemPoolExportPointer(&raw mut handle, addr), INVALID_VALUE);
    }
    for (kind, location) in [(PINNED, HOST), (MANAGED, DEVICE)] {
        assert_eq!(refused(PoolProperties { handle_types: 1, ..properties(kind, location) }), INVALID_VALUE);
    }
    let other = std::fs::File::open("/dev/null").expect("every system has it");
    for (handle, kind, flags) in
        [(other.as_raw_fd() as usize, 1, 0), (usize::MAX, 1, 0), (0, 2, 0), (0, 1, 1)]
    {
        assert_eq!(cuMemPoolImportFromShareableHandle(&raw mut out, handle, kind, flags), INVALID_VALUE);
    }
    assert_eq!(cuMemFree_v2(inside), 0);
    assert_eq!(cuMemFree_v2(plain), 0);
}
