//! Launches and kernels that fail, and drivers, devices and memory without the kernel.

use super::*;

pub(crate) fn transfer_outcome(engine: &CudaEngine, queue: &Queue) -> Result<Vec<u8>, ErrorKind> {
    let pieces = [Piece { from: 0, to: 5, len: 50 }, Piece { from: 60, to: 90, len: 70 }];
    let src = engine.allocate_window(&MemoryRequest::new(200)).map_err(|error| error.kind())?;
    let dst = engine.allocate_window(&MemoryRequest::new(200)).map_err(|error| error.kind())?;
    src.write_at(0, &pattern(200, 3)).expect("it is host memory");
    let batch = pieces.map(|piece| {
        let (from, to) = (piece.from..piece.from + piece.len, piece.to..piece.to + piece.len);
        queue.copy(src.slice(from), dst.slice(to))
    });
    queue.flush();
    for transfer in batch {
        let ended = transfer.and_then(|transfer| transfer.wait());
        ended.map_err(|error| error.error().kind())?;
    }
    let mut bytes = vec![0; 200];
    dst.read_at(0, &mut bytes).expect("it is host memory");
    assert_eq!(bytes, oracle(&pattern(200, 3), &[0; 200], &pieces));
    Ok(bytes)
}

/// Returns a queue that soon gives up operations which do not end.
fn impatient(engine: &CudaEngine) -> Queue {
    let options = QueueOptions::new()
        .with_stall_timeout(Duration::from_millis(200))
        .with_drop_timeout(Duration::from_millis(50));
    engine.open_queue(&options).unwrap()
}

#[test]
fn a_launch_that_the_driver_refuses_fails_and_the_queue_goes_on() {
    let engine = open(FAULTY, Pieces::Kernel);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    transfer_outcome(&engine, &queue).unwrap();
    assert_eq!(transfer_outcome(&engine, &queue).unwrap_err(), ErrorKind::OutOfMemory);
    transfer_outcome(&engine, &queue).unwrap();
    let counters = queue.close(Duration::from_secs(60));
    assert_eq!((counters.completed, counters.failed, counters.abandoned), (4, 2, 0), "{counters:?}");
}

#[test]
fn a_kernel_that_fails_ends_the_context_and_its_memory_is_abandoned() {
    for (ordinal, kind) in [
        (FAULTY + 1, ErrorKind::DeviceLost),
        (FAULTY + 2, ErrorKind::DeviceLost),
        (FAULTY + 3, ErrorKind::DeviceLost),
        (FAULTY + 4, ErrorKind::TimedOut),
    ] {
        // The healthy copy can also seem to be stalled, if the machine stands still. Then another queue
        // begins.
        let healthy = (0..60).find_map(|_| {
            let engine = open(ordinal, Pieces::Kernel);
            let queue = impatient(&engine);
            match transfer_outcome(&engine, &queue) {
                Err(kind) => assert_eq!(kind, ErrorKind::TimedOut),
                Ok(_) => return Some((engine, queue)),
            }
            None
        });
        let (engine, queue) = healthy.expect("a healthy copy ends");
        let first = transfer_outcome(&engine, &queue).unwrap_err();
        // A lost device is found by the next operation, if the transfer itself is never reported.
        assert!(first == kind || first == ErrorKind::TimedOut, "{first:?}");
        let counters = queue.close(Duration::from_millis(10));
        assert_eq!((counters.completed, counters.abandoned), (2, 2), "{counters:?}");
        if kind == ErrorKind::DeviceLost {
            assert_eq!(engine.allocate(64).unwrap_err().kind(), ErrorKind::DeviceLost);
        }
    }
}

#[test]
fn drivers_and_devices_without_the_kernel_say_why() {
    unsafe extern "C" fn no_compiler(
        _: *mut usize,
        _: *const c_void,
        _: c_uint,
        _: *mut c_int,
        values: *mut *mut c_void,
    ) -> c_int {
        let line = c"\n  ptxas fatal: no such target\nmore";
        // SAFETY: the caller passes two values.
        let log = unsafe { values.read() };
        // SAFETY: the first value is a buffer of 1024 bytes.
        unsafe { log.cast::<u8>().copy_from(line.as_ptr().cast(), line.count_bytes() + 1) };
        218
    }
    unsafe extern "C" fn old_device(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
        if attribute == 75 {
            // SAFETY: the caller passes a pointer that is valid for the write.
            unsafe { *value = 6 };
            return 0;
        }
        // SAFETY: the arguments are the caller's, unchanged.
        unsafe { (driver().cuDeviceGetAttribute)(value, attribute, device) }
    }
    unsafe extern "C" fn other_addresses(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
        if attribute == 91 {
            // SAFETY: the caller passes a pointer that is valid for the write.
            unsafe { *value = 0 };
            return 0;
        }
        // SAFETY: the arguments are the caller's, unchanged.
        unsafe { (driver().cuDeviceGetAttribute)(value, attribute, device) }
    }
    type Lack = fn(&mut Driver);
    let lacking: [(Lack, &str); 6] = [
        (|driver| driver.cuLaunchKernel = None, "lacks calls"),
        (|driver| driver.cuModuleLoadDataEx = None, "lacks calls"),
        (|driver| driver.cuModuleGetFunction = None, "lacks calls"),
        (|driver| driver.cuModuleLoadDataEx = Some(no_compiler), "ptxas fatal: no such target"),
        (|driver| driver.cuDeviceGetAttribute = old_device, "compute capability 6"),
        (|driver| driver.cuDeviceGetAttribute = other_addresses, "the CPU's addresses"),
    ];
    for (lack, says) in lacking {
        let mut lacking = driver();
        lack(&mut lacking);
        let error = support::open_with(&lacking, &options(0, Pieces::Kernel)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(says) && error.hint().contains("pieces"), "{error}");
        let engine = support::open_with(&lacking, &options(0, Pieces::Auto)).unwrap();
        transfer_outcome(&engine, &engine.open_queue(&QueueOptions::new()).unwrap()).unwrap();
        let explained = engine.explain().unwrap();
        assert!(explained.contains("kernel: off") && explained.contains(says), "{explained}");
    }
}

#[test]
fn without_memory_for_tables_the_driver_copies() {
    static REFUSES: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn host_alloc(addr: *mut *mut c_void, len: usize, flags: c_uint) -> c_int {
        if REFUSES.load(Ordering::Relaxed) > 0 && len > 300_000 {
            return 2;
        }
        // SAFETY: the arguments are the caller's, unchanged.
        unsafe { (driver().cuMemHostAlloc)(addr, len, flags) }
    }
    let mut full = driver();
    full.cuMemHostAlloc = host_alloc;
    let engine = support::open_with(&full, &options(0, Pieces::Kernel)).unwrap();
    REFUSES.store(1, Ordering::Relaxed);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    REFUSES.store(0, Ordering::Relaxed);
    transfer_outcome(&engine, &queue).unwrap();
    // A table that is full: more entries than the ring has.
    let engine = open(1, Pieces::Kernel);
    let queue = engine.open_queue(&QueueOptions::new().with_depth(8192)).unwrap();
    let host = engine.allocate_window(&MemoryRequest::new(1 << 20)).unwrap();
    let device = engine.allocate_device(1 << 20).unwrap();
    for _ in 0..10 {
        let batch: Vec<_> = (0..8000)
            .map(|i| {
                queue.copy(host.slice(i * 100..i * 100 + 100), device.slice(i * 100..i * 100 + 100)).unwrap()
            })
            .collect();
        queue.flush();
        batch.into_iter().for_each(|transfer| drop(transfer.wait().unwrap()));
    }
}

#[test]
fn memory_of_another_device_takes_the_copy_engines() {
    let (first, second) = (open(0, Pieces::Kernel), open(1, Pieces::Kernel));
    let queue = first.open_queue(&QueueOptions::new()).unwrap();
    let bytes = pattern(1000, 5);
    let there = window(&first, &queue, Place::Device, &bytes).unwrap();
    let (addr, len) = (there.region().as_raw().info().addr, there.len());
    // SAFETY: the window owns the memory, and is passed as its owner.
    let memory = unsafe { DeviceMemory::from_raw(addr, len, there) };
    let peer = second.register_device(memory).unwrap();
    let queue = second.open_queue(&QueueOptions::new()).unwrap();
    let own = second.allocate_device(len).unwrap();
    let pieces: Vec<_> = (0..10).map(|i| Piece { from: i * 100, to: (9 - i) * 100, len: 100 }).collect();
    let copied = copy(&second, &queue, [&peer, &own], &pieces, false).unwrap();
    assert_eq!(copied, oracle(&bytes, &[0; 1000], &pieces));
    // A kernel would have ended the context.
    let copied = copy(&second, &queue, [&own, &peer], &pieces, true).unwrap();
    assert_eq!(copied, oracle(&oracle(&bytes, &[0; 1000], &pieces), &bytes, &pieces));
}

#[test]
fn registered_memory_is_copied_by_the_kernel_and_unmapped_memory_is_refused() {
    let engine = open(1, Pieces::Kernel);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let bytes = pattern(5000, 4);
    let source = engine.register_read_only(bytes.clone()).unwrap();
    let target = engine.register(HostMemory::from_owner(vec![0_u8; 5000])).unwrap();
    let (_, target) = queue.copy(source, target).unwrap().wait().unwrap();
    assert_eq!(target[..], bytes[..]);
    // Pageable memory does not become an operand: it is registered, or refused.
    let nowhere = std::ptr::NonNull::new(std::ptr::without_provenance_mut::<u8>(0x20_0000)).unwrap();
    // SAFETY: the registration is refused before anything uses the memory.
    let refused = engine.register(unsafe { HostMemory::from_raw(nowhere, 4096, ()) }).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
}
