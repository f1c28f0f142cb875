//! Behaviour on the stand-in driver: places and directions, batches, fills, order with other work, memory of
//! others, and bad input.
#![expect(unsafe_code, reason = "calls the stand-in driver as a program would")]

mod support;

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dma_core::{
    Access, DeviceAddr, DeviceMemory, DmaEngine, DmaEngineExt, ErrorKind, HostMemory, MemoryRequest,
    PageMemory, Place, QueueOptions, Window,
};
use dma_cuda::{CUmemcpyAttributes, CudaDevice, CudaEngine, CudaOptions, Pieces};
use proptest::prelude::*;
use support::{HEALTHY, driver, open, open_with, options};
use test_support::patience::until;

/// Returns bytes that differ from their neighbours.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed) * 31 % 251) as u8).collect()
}

fn request(len: usize) -> MemoryRequest {
    MemoryRequest::new(len).with_place(Place::Device)
}

/// Reads the bytes of a window by a copy to host memory.
fn read(engine: &CudaEngine, window: &Window) -> Vec<u8> {
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let host = engine.allocate(window.len()).unwrap();
    let (_, host) = queue.copy(window.clone(), host).unwrap().wait().unwrap();
    host.to_vec()
}

#[test]
fn allocations_use_pinned_memory_again() {
    static PINNED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn host_alloc(addr: *mut *mut c_void, len: usize, flags: c_uint) -> c_int {
        PINNED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the arguments are the caller's, unchanged.
        unsafe { (driver(HEALTHY).cuMemHostAlloc)(addr, len, flags) }
    }
    unsafe extern "C" fn host_free(addr: *mut c_void) -> c_int {
        PINNED.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the arguments are the caller's, unchanged.
        unsafe { (driver(HEALTHY).cuMemFreeHost)(addr) }
    }
    let mut counting = driver(HEALTHY);
    (counting.cuMemHostAlloc, counting.cuMemFreeHost) = (host_alloc, host_free);
    let engine = open_with(&counting, &options(0)).unwrap();
    let pinned = || PINNED.load(Ordering::Relaxed);
    let idle = engine.idle_memory().unwrap();
    let before = pinned();
    loop {
        let released = idle.report().released;
        // Another test, whose allocation failed, may have released the memory of all engines.
        let undisturbed = || idle.report().released == released;
        let buffer = engine.allocate(5000).unwrap();
        let address = buffer.as_ptr();
        drop(buffer);
        let kept = pinned();
        let [first, second] = [0, 0].map(|_| engine.allocate(5000).unwrap());
        if undisturbed() {
            assert_eq!(kept, before + 1, "the memory stays pinned");
            assert_eq!((first.as_ptr(), pinned()), (address, before + 2));
            drop(second);
            let freed = idle.release();
            assert!(freed >= 5000 || freed == 0, "{freed}");
            // Another test may have released this memory, and not freed it yet.
            until("released memory is freed", || pinned() == before + 1);
            // Device memory is freed at once.
            drop(engine.allocate_device(5000).unwrap());
            assert_eq!(idle.report().regions, 0);
            break;
        }
    }
    drop(engine);
    until("the engine frees idle memory", || pinned() == 0);
}

#[test]
fn bytes_go_in_all_four_directions() {
    for ordinal in [0, 2, 3] {
        let engine = open(HEALTHY, ordinal);
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let bytes = pattern(100_003, 1);
        let mut first = engine.allocate(bytes.len()).unwrap();
        first.copy_from_slice(&bytes);
        let host = engine.allocate(bytes.len()).unwrap();
        let [a, b] = [(); 2].map(|()| engine.allocate_device(bytes.len()).unwrap());
        let (first, host) = queue.copy(first, host).unwrap().wait().unwrap();
        assert_eq!(host[..], bytes[..]);
        let (_, a) = queue.copy(first, a).unwrap().wait().unwrap();
        let (_, b) = queue.copy(a, b).unwrap().wait().unwrap();
        assert_eq!(read(&engine, &b), bytes);
    }
}

#[test]
fn device_memory_is_zeroed_aligned_and_out_of_the_cpus_reach() {
    let engine = open(HEALTHY, 0);
    for align in [1, 512, 4096, 1 << 20] {
        let window = engine.allocate_window(&request(1000).with_align(align)).unwrap();
        assert_eq!(read(&engine, &window), vec![0; 1000]);
        assert!(!window.region().is_cpu_visible());
        assert!(window.read_at(0, &mut [0; 4]).is_err());
        assert!(window.region().as_raw().info().addr.0.is_multiple_of(align as u64));
    }
}

/// Number of batch calls, and of the copies in the last one.
static BATCHES: AtomicUsize = AtomicUsize::new(0);
static PIECES: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn counting(
    dsts: *const u64,
    srcs: *const u64,
    lens: *const usize,
    number: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    kinds: usize,
    stream: usize,
) -> c_int {
    BATCHES.fetch_add(1, Ordering::Relaxed);
    PIECES.store(number, Ordering::Relaxed);
    let batch = driver(HEALTHY).cuMemcpyBatchAsync_v2.unwrap();
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { batch(dsts, srcs, lens, number, attributes, indices, kinds, stream) }
}

#[test]
fn a_batch_of_256_copies_is_one_call() {
    let mut counted = driver(HEALTHY);
    counted.cuMemcpyBatchAsync_v2 = Some(counting);
    let engine = support::open_with(&counted, &options(0).with_pieces(Pieces::Batch)).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let bytes = pattern(64 * 1024, 3);
    let mut source = engine.allocate(bytes.len()).unwrap();
    source.copy_from_slice(&bytes);
    let source = source.freeze();
    let target = engine.allocate_device(bytes.len()).unwrap();
    let transfers: Vec<_> = (0..1024)
        .map(|i| queue.copy(source.slice(i * 64..i * 64 + 64), target.slice(i * 64..i * 64 + 64)).unwrap())
        .collect();
    queue.flush();
    transfers.into_iter().for_each(|transfer| drop(transfer.wait().unwrap()));
    assert_eq!((BATCHES.load(Ordering::Relaxed), PIECES.load(Ordering::Relaxed)), (4, 256));
    assert_eq!(read(&engine, &target), bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fills_are_those_of_an_oracle(
        offset in 0_usize..16,
        len in 1_usize..100,
        unit in prop::sample::select(vec![1_usize, 2, 4, 8]),
        seed in any::<[u8; 8]>(),
        place in prop::sample::select(vec![Place::Host, Place::Device]),
    ) {
        let engine = open(HEALTHY, 0);
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let mut repeated = [0; 8];
        repeated.iter_mut().enumerate().for_each(|(i, byte)| *byte = seed[i % unit]);
        let window = engine.allocate_window(&MemoryRequest::new(128).with_place(place)).unwrap();
        queue.fill(window.slice(offset..offset + len), repeated).unwrap().wait().unwrap();
        let mut expected = vec![0; 128];
        (0..len).for_each(|i| expected[offset + i] = repeated[i % 8]);
        prop_assert_eq!(read(&engine, &window), expected);
    }
}

#[test]
fn long_fills_and_lists_keep_their_pattern() {
    let engine = open(HEALTHY, 0);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let window = engine.allocate_device(300_001).unwrap();
    queue.fill(window.clone(), *b"pattern!").unwrap().wait().unwrap();
    let expected: Vec<u8> = b"pattern!".iter().copied().cycle().take(300_001).collect();
    assert_eq!(read(&engine, &window), expected);
}

#[test]
fn host_memory_is_aligned_beyond_a_page() {
    let engine = open(HEALTHY, 0);
    let buffer = engine.allocate_with(&MemoryRequest::new(100).with_align(1 << 21)).unwrap();
    assert!(buffer.as_ptr().addr().is_multiple_of(1 << 21));
    assert_eq!(buffer[..], [0; 100]);
}

/// The stand-in as a program calls it, with the first device's context current.
struct Program {
    driver: dma_cuda::Driver,
}

impl Program {
    fn new() -> Self {
        let driver = driver(HEALTHY);
        let mut context = 0;
        // SAFETY: the call writes the context of an existing device to a local variable.
        assert_eq!(unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut context, 0) }, 0);
        // SAFETY: the context was retained just before, and is never released.
        assert_eq!(unsafe { (driver.cuCtxPushCurrent_v2)(context) }, 0);
        Self { driver }
    }

    fn allocate(&self, len: usize) -> u64 {
        let mut addr = 0;
        // SAFETY: the call writes the address to a local variable.
        assert_eq!(unsafe { (self.driver.cuMemAlloc_v2)(&raw mut addr, len) }, 0);
        addr
    }

    fn stream(&self) -> usize {
        let mut stream = 0;
        // SAFETY: the call writes the stream to a local variable.
        assert_eq!(unsafe { (self.driver.cuStreamCreate)(&raw mut stream, 1) }, 0);
        stream
    }

    fn event(&self) -> usize {
        let mut event = 0;
        // SAFETY: the call writes the event to a local variable.
        assert_eq!(unsafe { (self.driver.cuEventCreate)(&raw mut event, 2) }, 0);
        event
    }
}

/// A host function that blocks its stream until the `AtomicUsize` is not 0.
unsafe extern "C" fn hold(gate: *mut c_void) {
    // SAFETY: the test passes a gate that it leaks.
    let gate = unsafe { &*gate.cast::<AtomicUsize>() };
    while gate.load(Ordering::Acquire) == 0 {
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn transfers_start_after_an_event_and_streams_wait_for_transfers() {
    let engine = open(HEALTHY, 0);
    let program = Program::new();
    let (queue, stream) = engine.open_queue_with_stream(&QueueOptions::new()).unwrap();
    let gate: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let (kernels, after) = (program.stream(), program.stream());
    let (written, read_by_then) = (program.event(), program.event());
    let source = program.allocate(4096);
    let launch = program.driver.cuLaunchHostFunc.unwrap();
    let data = std::ptr::from_ref(gate).cast_mut().cast();
    // A "kernel" that writes the source once the gate opens.
    // SAFETY: the test does not destroy the stream, and the gate is never freed.
    assert_eq!(unsafe { launch(kernels, hold, data) }, 0);
    // SAFETY: this test made the memory and the stream, and frees neither.
    assert_eq!(unsafe { (program.driver.cuMemsetD8Async)(source, 7, 4096, kernels) }, 0);
    // SAFETY: this test made the event and the stream, and destroys neither.
    assert_eq!(unsafe { (program.driver.cuEventRecord)(written, kernels) }, 0);
    // SAFETY: the test allocated these 4096 bytes of device memory, and never frees them.
    let memory = unsafe { DeviceMemory::from_raw(DeviceAddr(source), 4096, ()) };
    let source = engine.register_device(memory).unwrap();
    // SAFETY: this test made the event, and does not destroy it.
    unsafe { stream.wait_for_event(std::ptr::without_provenance_mut(written)) }.unwrap();
    let mut transfer = queue.copy(source, engine.allocate(4096).unwrap()).unwrap();
    queue.flush();
    // SAFETY: this test made the stream, and does not destroy it.
    unsafe { stream.hold_stream(std::ptr::without_provenance_mut(after)) }.unwrap();
    // SAFETY: this test made the event and the stream, and destroys neither.
    assert_eq!(unsafe { (program.driver.cuEventRecord)(read_by_then, after) }, 0);
    assert!(transfer.wait_for(Duration::from_millis(20)).is_err());
    // SAFETY: this test made the event, and does not destroy it.
    let queried = unsafe { (program.driver.cuEventQuery)(read_by_then) };
    assert_eq!(queried, 600, "the stream waits for the transfer");
    gate.store(1, Ordering::Release);
    let (_, host) = transfer.wait().unwrap();
    assert_eq!(host[..], [7; 4096]);
    // SAFETY: this test made the stream, and does not destroy it.
    assert_eq!(unsafe { (program.driver.cuStreamSynchronize)(after) }, 0);
    // SAFETY: this test made the event, and does not destroy it.
    assert_eq!(unsafe { (program.driver.cuEventQuery)(read_by_then) }, 0);
    // SAFETY: the stand-in looks handles up in a table, and refuses this one.
    let error = unsafe { stream.wait_for_event(std::ptr::without_provenance_mut(0x7777)) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn memory_of_others_is_checked_against_the_driver() {
    let engine = open(HEALTHY, 0);
    let program = Program::new();
    let len = 64 << 20;
    let addr = program.allocate(len);
    // SAFETY: registering a range that is not allocated is refused, and the allocation is freed only after
    // its window was dropped.
    let register =
        |addr, len| engine.register_device(unsafe { DeviceMemory::from_raw(DeviceAddr(addr), len, ()) });
    let window = register(addr + 512, 1024).unwrap();
    assert_eq!(window.len(), 1024);
    drop(window);
    let refused = |addr, len| {
        let error = register(addr, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.hint().contains("cudaMalloc"), "{error}");
        error.to_string()
    };
    assert!(refused(addr + 512, len).contains("beyond the allocation"));
    let host = engine.allocate(4096).unwrap();
    assert!(refused(host.as_ptr().addr() as u64, 4096).contains("host memory"));
    assert!(refused(0xdead_0000, 64).contains("has no memory"));
    // SAFETY: no window of the memory is left.
    assert_eq!(unsafe { (program.driver.cuMemFree_v2)(addr) }, 0);
    // Other tests can be given the first bytes of the freed memory, but do not use as much of it.
    assert!(refused(addr + len as u64 - 64, 64).contains("has no memory"), "it was freed");
}

#[test]
fn memory_of_another_device_is_copied_by_peer() {
    let (first, second) = (open(HEALTHY, 0), open(HEALTHY, 1));
    let bytes = pattern(70_000, 9);
    let there = first.allocate_device(bytes.len()).unwrap();
    let queue = first.open_queue(&QueueOptions::new()).unwrap();
    let mut host = first.allocate(bytes.len()).unwrap();
    host.copy_from_slice(&bytes);
    let (_, there) = queue.copy(host, there).unwrap().wait().unwrap();
    let (addr, len) = (there.region().as_raw().info().addr, there.len());
    // SAFETY: the window owns the memory, and is passed as its owner.
    let peer = second.register_device(unsafe { DeviceMemory::from_raw(addr, len, there) }).unwrap();
    let here = second.allocate_device(len).unwrap();
    let queue = second.open_queue(&QueueOptions::new()).unwrap();
    let (_, here) = queue.copy(peer, here).unwrap().wait().unwrap();
    assert_eq!(read(&second, &here), bytes);
}

#[test]
fn registration_says_what_is_wrong() {
    let engine = open(HEALTHY, 0);
    // Two regions may share a page.
    let [first, second] = [(); 2].map(|()| engine.register(HostMemory::from_owner(vec![0; 100])).unwrap());
    drop((first, second));

    let mut memory = HostMemory::aligned(8192, &engine.info().limits).unwrap();
    let start = memory.as_ptr();
    let twice = |start| {
        // SAFETY: the registration is refused before anything uses the memory, which is never freed.
        engine.register(unsafe { HostMemory::from_raw(start, 4096, ()) })
    };
    let registered = engine.register(memory).unwrap();
    let error = twice(start).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    assert!(error.hint().contains("RegistrationCache"), "{error}");
    let region = registered.region().clone();
    drop(registered);
    memory = region.deregister().expect("nothing else uses the region").expect("it was registered");
    let again = engine.register(memory).unwrap();
    drop(again);

    // No memory is mapped at this address.
    let nowhere = std::ptr::NonNull::new(std::ptr::without_provenance_mut::<u8>(0x10_0000)).unwrap();
    let error = twice(nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.hint().contains("mapped"), "{error}");
}

/// A page that the CPU may not write.
struct ReadOnlyPage(*mut c_void);

// SAFETY: the page is never written or unmapped, so any thread may read it.
unsafe impl Send for ReadOnlyPage {}
// SAFETY: the page is never written or unmapped, so several threads may read it at a time.
unsafe impl Sync for ReadOnlyPage {}

impl AsRef<[u8]> for ReadOnlyPage {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the page is mapped, and is never unmapped.
        unsafe { std::slice::from_raw_parts(self.0.cast(), 4096) }
    }
}

impl ReadOnlyPage {
    fn new() -> Self {
        // SAFETY: the kernel chooses unused addresses for the new mapping.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        Self(page)
    }
}

#[test]
fn read_only_pages_are_sources() {
    let engine = open(HEALTHY, 0);
    let source = engine.register_read_only(ReadOnlyPage::new()).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let target = engine.allocate_device(4096).unwrap();
    queue.fill(target.clone(), [9; 8]).unwrap().wait().unwrap();
    let (_, target) = queue.copy(source, target).unwrap().wait().unwrap();
    assert_eq!(read(&engine, &target), vec![0; 4096]);
}

#[test]
fn a_device_without_read_only_registration_says_so() {
    /// Returns the stand-in's values, except for one attribute.
    unsafe extern "C" fn without(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
        if attribute == 113 {
            // SAFETY: the caller passes a pointer that is valid for the write.
            unsafe { *value = 0 };
            return 0;
        }
        // SAFETY: the arguments are the caller's, unchanged.
        unsafe { (driver(HEALTHY).cuDeviceGetAttribute)(value, attribute, device) }
    }
    let mut lacking = driver(HEALTHY);
    lacking.cuDeviceGetAttribute = without;
    let engine = support::open_with(&lacking, &options(0)).unwrap();
    let error = engine.register_read_only(ReadOnlyPage::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.hint().contains("may not write"), "{error}");
    // Writable pages are registered without the flag.
    let page = PageMemory::new(&MemoryRequest::new(4096)).unwrap();
    let source = engine.register_read_only_memory(HostMemory::from_owner(page)).unwrap();
    assert_eq!(source.region().as_raw().info().access, Access::READ);
}

#[test]
fn too_much_memory_is_refused_with_the_number() {
    let engine = open(HEALTHY, 0);
    for place in [Place::Host, Place::Device] {
        let request = MemoryRequest::new(1 << 50).with_place(place);
        let error = engine.allocate_window(&request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(
            error.to_string().contains(&(1_u64 << 50).to_string()) && !error.hint().is_empty(),
            "{error}"
        );
    }
    // The refused requests did not take any memory: large ones still succeed.
    let all = engine.allocate_device(128 << 20).unwrap();
    drop(all);
    drop(engine.allocate_device(128 << 20).unwrap());
}

#[test]
fn exports_and_imports_are_refused_with_the_way_out() {
    let engine = open(HEALTHY, 0);
    let error = engine.allocate_window(&request(64).exportable(Access::READ)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let window = engine.allocate_device(64).unwrap();
    assert!(window.dmabuf().unwrap().has_dmabuf());
    let older = support::driver_without(HEALTHY, &["cuMemGetHandleForAddressRange"]);
    let older = support::open_with(&older, &support::options(0)).unwrap();
    for without in [engine.allocate(64).unwrap().share(), older.allocate_device(64).unwrap()] {
        let error = without.dmabuf().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.hint().contains("host memory"), "{error}");
    }
}

#[test]
fn devices_are_found_by_number_and_address() {
    let driver = driver(HEALTHY);
    // SAFETY: the stand-in behaves as the driver.
    let found = unsafe { dma_cuda::discover_with(&driver, &CudaOptions::new()) };
    let names: Vec<_> = found.iter().map(|found| found.name.to_string()).collect();
    assert_eq!(names, ["cuda:0000:17:00.0", "cuda:0000:18:00.0", "cuda:0000:19:00.0", "cuda:0000:1a:00.0"]);
    let info = found[3].info.as_ref().unwrap();
    assert!(
        info.model.as_ref().is_some_and(|model| model.contains("hopper")),
        "the engine reports the stand-in: {info:?}"
    );
    let by_address = CudaDevice::Pci("0000:18:00.0".parse().unwrap());
    let engine = support::open_with(&driver, &CudaOptions::new().with_device(by_address)).unwrap();
    assert!(engine.info().device.contains("0000:18:00.0"));
    for missing in [CudaDevice::Ordinal(9), CudaDevice::Pci("0000:99:00.0".parse().unwrap())] {
        let error = support::open_with(&driver, &CudaOptions::new().with_device(missing)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.hint().contains("0 (0000:17:00.0), 1 (0000:18:00.0)"), "{error}");
    }
    let deep = support::open_with(&driver, &options(0).with_depth(1 << 20)).unwrap_err();
    assert_eq!(deep.kind(), ErrorKind::OutOfRange, "{deep}");
}

#[test]
fn drivers_that_cannot_be_used_say_why() {
    unsafe extern "C" fn old(version: *mut c_int) -> c_int {
        // SAFETY: the caller passes a pointer that is valid for the write.
        unsafe { *version = 11_030 };
        0
    }
    unsafe extern "C" fn no_device(_: std::ffi::c_uint) -> c_int {
        100
    }
    unsafe extern "C" fn mismatch(_: std::ffi::c_uint) -> c_int {
        803
    }
    unsafe extern "C" fn forked(_: std::ffi::c_uint) -> c_int {
        3
    }
    let mut odd = driver(HEALTHY);
    odd.cuDriverGetVersion = old;
    let error = support::open_with(&odd, &options(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingSdk, "{error}");
    assert!(error.to_string().contains("CUDA 11.3") && error.hint().contains("470"), "{error}");
    let init: [(unsafe extern "C" fn(std::ffi::c_uint) -> c_int, _, _); 3] = [
        (no_device, ErrorKind::NotFound, "--gpus all"),
        (mismatch, ErrorKind::MissingSdk, "different versions"),
        (forked, ErrorKind::DeviceLost, "fork"),
    ];
    for (init, kind, hint) in init {
        let mut odd = driver(HEALTHY);
        odd.cuInit = init;
        let error = support::open_with(&odd, &options(0)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.hint().contains(hint), "{error}");
        // SAFETY: each call forwards to the stand-in, or fails.
        let found = unsafe { dma_cuda::discover_with(&odd, &options(0)) };
        assert!(found[0].info.is_err());
    }
}

#[test]
fn opposite_directions_take_two_queues_at_once() {
    let engine = open(HEALTHY, 2);
    let [up, down] = [(); 2].map(|()| engine.open_queue(&QueueOptions::new()).unwrap());
    let device = [(); 2].map(|()| engine.allocate_device(4096).unwrap());
    let mut source = engine.allocate(4096).unwrap();
    source.fill(5);
    let there = up.copy(source, device[0].clone()).unwrap();
    let back = down.copy(device[1].clone(), engine.allocate(4096).unwrap()).unwrap();
    assert_eq!(back.wait().unwrap().1[..], [0; 4096]);
    assert_eq!(read(&engine, &there.wait().unwrap().1), vec![5; 4096]);
}
