//! Tests the engine on a GPU: the suite, copies and fills in both places, properties of the driver that the
//! engine relies on, and rates compared with a plain loop of the driver's calls.
#![expect(unsafe_code, reason = "measures calls of the driver")]

use std::time::{Duration, Instant};

use dma_core::{
    DmaEngine, DmaEngineExt, HostMemory, MemoryRequest, Place, Queue, QueueOptions, Rows, Window,
};
use dma_cuda::{CUmemcpyAttributes, CudaEngine, CudaOptions, Pieces};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use test_support::script;

/// Opens the first device. Fails if there is none.
fn open() -> CudaEngine {
    open_with(Pieces::Auto)
}

/// Opens the first device with a way for many copies.
fn open_with(pieces: Pieces) -> CudaEngine {
    match CudaEngine::open(&CudaOptions::new().with_pieces(pieces)) {
        Ok(engine) => engine,
        Err(error) => panic!("no CUDA device to test: {error}"),
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo test -p dma-cuda --test hardware -- --ignored"]
fn conforms_on_the_hardware() {
    let engine = open();
    println!("{:#?}", engine.info());
    let mut failed = Vec::new();
    for (name, case) in dma_conformance::CASES {
        let began = Instant::now();
        let run = std::panic::AssertUnwindSafe(|| case(&engine));
        let outcome = std::panic::catch_unwind(run);
        println!("{} {name} {:.1?}", if outcome.is_ok() { "ok    " } else { "FAILED" }, began.elapsed());
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo test -p dma-cuda --test hardware -- --ignored"]
fn random_programs_keep_all_bytes() {
    let engine = open();
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&(script::programs(false), 1..40_usize), |(program, depth)| {
            script::run(&engine, depth, true, &program, |_| ());
            Ok(())
        })
        .unwrap();
}

/// Returns bytes that differ from their neighbours.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed) * 31 % 251) as u8).collect()
}

fn read(engine: &CudaEngine, queue: &Queue, window: &Window) -> Vec<u8> {
    let host = engine.allocate(window.len()).expect("memory");
    let (_, host) = queue.copy(window.clone(), host).expect("a copy").wait().expect("its end");
    host.to_vec()
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo test -p dma-cuda --test hardware -- --ignored"]
fn both_places_keep_their_bytes() {
    let engine = open();
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    // All four directions, at lengths around the limits where drivers change their method.
    for len in [1, 63, 4096, 65_535, 65_536, 1_000_003, 64 << 20] {
        let bytes = pattern(len, len);
        let mut source = engine.allocate(len).expect("memory");
        source.copy_from_slice(&bytes);
        let (source, copy) =
            queue.copy(source, engine.allocate(len).expect("memory")).unwrap().wait().unwrap();
        assert_eq!(copy[..], bytes[..], "a copy of {len} bytes within the host");
        let [a, b] = [(); 2].map(|()| engine.allocate_device(len).expect("device memory"));
        assert_eq!(read(&engine, &queue, &a), vec![0; len], "new device memory");
        let (_, a) = queue.copy(source, a).unwrap().wait().unwrap();
        let (_, b) = queue.copy(a, b).unwrap().wait().unwrap();
        assert!(read(&engine, &queue, &b) == bytes, "a copy of {len} bytes within the device");
    }
    // Fills of every unit, at every offset.
    for place in [Place::Host, Place::Device] {
        let window = engine.allocate_window(&MemoryRequest::new(4096).with_place(place)).expect("memory");
        for unit in [1, 2, 4, 8] {
            for offset in 0..9 {
                for len in [1, 7, 8, 9, 100, 1000] {
                    let pattern: [u8; 8] = std::array::from_fn(|i| (i % unit * 37 + offset) as u8 ^ 0xc3);
                    queue.fill(window.clone(), [0; 8]).unwrap().wait().unwrap();
                    queue.fill(window.slice(offset..offset + len), pattern).unwrap().wait().unwrap();
                    let mut expected = vec![0; 4096];
                    (0..len).for_each(|i| expected[offset + i] = pattern[i % 8]);
                    assert!(read(&engine, &queue, &window) == expected, "{place}, {unit}, {offset}, {len}");
                }
            }
        }
    }
    // A fence within one doorbell: the second copy reads the bytes that the first one wrote.
    for round in 0..200 {
        let bytes = pattern(70_000, round);
        let mut source = engine.allocate(bytes.len()).expect("memory");
        source.copy_from_slice(&bytes);
        let [a, b] = [(); 2].map(|()| engine.allocate_device(bytes.len()).expect("device memory"));
        let first = queue.copy(source, a.clone()).unwrap();
        queue.fence();
        let second = queue.copy(a, b).unwrap();
        queue.flush();
        first.wait().unwrap();
        let (_, b) = second.wait().unwrap();
        assert!(read(&engine, &queue, &b) == bytes, "round {round}");
    }
    // A dma-buf, if the device makes one.
    let window = engine.allocate_device(1 << 20).expect("device memory");
    match window.dmabuf() {
        Ok(memory) => println!("dma-buf: {memory:?}"),
        Err(error) => println!("no dma-buf: {error}"),
    }
    // Sleeping on the queue's file descriptor.
    println!("sleeping: {}", queue.driver().is_ok());
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo test -p dma-cuda --test hardware -- --ignored"]
fn random_pieces_keep_all_bytes_in_every_way() {
    const LEN: usize = 1 << 18;
    for pieces in [Pieces::Kernel, Pieces::Batch, Pieces::Loop, Pieces::Auto] {
        let engine = open_with(pieces);
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
        let shape = (0..40_usize, 0..40_usize, prop_oneof![0..40_usize, 0..700_usize, Just(4096_usize)]);
        let cases = (prop::collection::vec(shape, 1..50), 0..3_usize, 0..(100_usize << 10));
        TestRunner::new(config)
            .run(&cases, |(mut shapes, direction, last)| {
                shapes.push((1, 2, last));
                let [from, to] =
                    [[Place::Host, Place::Device], [Place::Device, Place::Host], [Place::Device; 2]]
                        [direction];
                let place = |place, seed| {
                    let request = MemoryRequest::new(LEN).with_place(place);
                    let window = engine.allocate_window(&request).expect("memory");
                    let bytes = pattern(LEN, seed);
                    let mut host = engine.allocate(LEN).expect("memory");
                    host.copy_from_slice(&bytes);
                    (queue.copy(host, window).expect("a copy").wait().expect("its end").1, bytes)
                };
                let ((src, from), (dst, mut expected)) = (place(from, 1), place(to, 2));
                let (mut read, mut written, mut rows) = (0, 0, (Vec::new(), Vec::new()));
                for (before, behind, len) in shapes {
                    let (at, target) = (read + before, written + behind);
                    rows.0.push((at, len));
                    rows.1.push((target, len));
                    expected[target..target + len].copy_from_slice(&from[at..at + len]);
                    (read, written) = (at + len, target + len);
                }
                let (from, to) =
                    (Rows::new(src, rows.0).expect("inside"), Rows::new(dst, rows.1).expect("inside"));
                let (_, to) = queue.copy(from, to).expect("a copy").wait().expect("its end");
                prop_assert!(self::read(&engine, &queue, to.view()) == expected, "{pieces:?}");
                Ok(())
            })
            .unwrap();
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo test -p dma-cuda --test hardware -- --ignored"]
fn the_driver_is_as_the_engine_takes_it_to_be() {
    let engine = open();
    let driver = engine.driver();
    println!("calls that the driver lacks: {:?}", driver.absent());
    let mut context = 0;
    // SAFETY: the call writes the context of an existing device to a local variable.
    assert_eq!(unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut context, 0) }, 0);
    // SAFETY: the context was retained just before.
    assert_eq!(unsafe { (driver.cuCtxPushCurrent_v2)(context) }, 0);
    let pages = HostMemory::aligned(16 << 10, &engine.info().limits).expect("memory");
    let start = pages.as_ptr().as_ptr();
    let register = |offset: usize, len: usize| {
        // SAFETY: the range is within `pages`, which are freed only after they are unregistered.
        unsafe { (driver.cuMemHostRegister_v2)(start.wrapping_add(offset).cast(), len, 1) }
    };
    let unregister = |offset: usize| {
        // SAFETY: the range was registered above.
        unsafe { (driver.cuMemHostUnregister)(start.wrapping_add(offset).cast()) }
    };
    println!("registering 100 bytes at 64: {}", register(64, 100));
    println!("100 more of the same page: {}", register(1024, 100));
    println!("the next page: {}", register(4096, 4096));
    println!("the same page again: {}", register(4096, 4096));
    println!("unregistering them: {} {} {}", unregister(64), unregister(1024), unregister(4096));
    // Prints the alignment of allocations.
    for len in [1, 100, 512, 4096, 10_000, 1 << 16, 1 << 20, 3 << 20] {
        let (mut host, mut device) = (std::ptr::null_mut(), 0);
        // SAFETY: the call writes the address to a local variable.
        assert_eq!(unsafe { (driver.cuMemHostAlloc)(&raw mut host, len, 1) }, 0);
        // SAFETY: the call writes the address to a local variable.
        assert_eq!(unsafe { (driver.cuMemAlloc_v2)(&raw mut device, len) }, 0);
        println!("{len} bytes: host {host:p}, device {device:#x}");
        // SAFETY: this memory was allocated just now, and is freed once.
        assert_eq!(unsafe { (driver.cuMemFreeHost)(host) }, 0);
        // SAFETY: this memory was allocated just now, and is freed once.
        assert_eq!(unsafe { (driver.cuMemFree_v2)(device) }, 0);
    }
    // Two registrations side by side, and a copy across them.
    let codes = [register(0, 4096), register(4096, 4096)];
    let mut there = 0;
    // SAFETY: the call writes the address to a local variable.
    assert_eq!(unsafe { (driver.cuMemAlloc_v2)(&raw mut there, 8192) }, 0);
    // SAFETY: the source was registered, and the destination allocated, above.
    let across = unsafe { (driver.cuMemcpyAsync)(there, start.addr() as u64, 8192, 0) };
    // SAFETY: the default stream always exists.
    let synchronized = unsafe { (driver.cuStreamSynchronize)(0) };
    println!("a copy across two registrations {codes:?}: {across}, then {synchronized}");
    println!("unregistering them: {} {}", unregister(0), unregister(4096));
    // SAFETY: the memory was allocated above.
    assert_eq!(unsafe { (driver.cuMemFree_v2)(there) }, 0);
    let mut kind = 0_u32;
    // SAFETY: the call writes an `unsigned int` to a local variable, if the driver still knows the freed
    // address.
    let known = unsafe { (driver.cuPointerGetAttribute)((&raw mut kind).cast(), 2, there) };
    println!("an attribute of freed memory: {known}");
    for attribute in [40, 41, 99, 113, 116, 124, 134] {
        let mut value = 0;
        // SAFETY: the call writes the value to a local variable.
        let code = unsafe { (driver.cuDeviceGetAttribute)(&raw mut value, attribute, 0) };
        println!("attribute {attribute}: {value} ({code})");
    }
    let mut popped = 0;
    // SAFETY: the context was pushed above, and the call writes it to a local variable.
    assert_eq!(unsafe { (driver.cuCtxPopCurrent_v2)(&raw mut popped) }, 0);
    // SAFETY: the context was retained above.
    assert_eq!(unsafe { (driver.cuDevicePrimaryCtxRelease_v2)(0) }, 0);
}

/// One direction of copies, with its memory.
struct Way {
    name: &'static str,
    src: Window,
    dst: Window,
}

impl Way {
    fn all(engine: &CudaEngine, len: usize) -> Vec<Self> {
        (0..DIRECTIONS).map(|direction| Self::new(engine, len, direction)).collect()
    }

    fn new(engine: &CudaEngine, len: usize, direction: usize) -> Self {
        let window = |place| {
            let window = engine.allocate_window(&MemoryRequest::new(len).with_place(place));
            window.expect("memory")
        };
        let (name, from, to) = [
            ("host to device", Place::Host, Place::Device),
            ("device to host", Place::Device, Place::Host),
            ("device to device", Place::Device, Place::Device),
        ][direction];
        Self { name, src: window(from), dst: window(to) }
    }
}

/// Number of directions that [`Way::new`] knows.
const DIRECTIONS: usize = 3;

/// Returns the seconds that `pieces` copies of `piece` bytes take on the queue. With `polls` this function
/// spins, as the loop's synchronization does; otherwise it calls `wait`, which sleeps after a while.
fn by_engine(queue: &Queue, way: &Way, piece: usize, pieces: usize, polls: bool) -> f64 {
    let began = Instant::now();
    let transfers: Vec<_> = (0..pieces)
        .map(|i| {
            let range = i * piece..(i + 1) * piece;
            queue.copy(way.src.slice(range.clone()), way.dst.slice(range)).expect("room in the queue")
        })
        .collect();
    queue.flush();
    while polls && transfers.last().is_some_and(|last| !last.is_done()) {
        queue.poll();
    }
    for transfer in transfers {
        transfer.wait().expect("a copy");
    }
    began.elapsed().as_secs_f64()
}

/// Returns the seconds that the same copies take in a loop of `cuMemcpyAsync` with one synchronization.
fn by_loop(engine: &CudaEngine, stream: usize, way: &Way, piece: usize, pieces: usize) -> f64 {
    let driver = engine.driver();
    let addr = |window: &Window| window.region().as_raw().info().addr.0 + window.offset() as u64;
    let (src, dst) = (addr(&way.src), addr(&way.dst));
    let began = Instant::now();
    for i in 0..pieces as u64 {
        let at = i * piece as u64;
        // SAFETY: the ranges lie within windows that only this function uses, and the caller made the context
        // current.
        assert_eq!(unsafe { (driver.cuMemcpyAsync)(dst + at, src + at, piece, stream) }, 0);
    }
    // SAFETY: the stream exists.
    assert_eq!(unsafe { (driver.cuStreamSynchronize)(stream) }, 0);
    began.elapsed().as_secs_f64()
}

/// Returns the seconds that the same copies take in batch calls of `chunk` entries each, which alternate
/// between the streams.
fn by_batches(
    engine: &CudaEngine,
    streams: &[usize],
    way: &Way,
    (piece, pieces): (usize, usize),
    chunk: usize,
    mut attributes: CUmemcpyAttributes,
) -> f64 {
    let driver = engine.driver();
    let addr = |window: &Window| window.region().as_raw().info().addr.0 + window.offset() as u64;
    let entries = |from: u64| (0..pieces as u64).map(|i| from + i * piece as u64).collect::<Vec<_>>();
    let (srcs, dsts, lens) = (entries(addr(&way.src)), entries(addr(&way.dst)), vec![piece; pieces]);
    let batch = driver.cuMemcpyBatchAsync_v2.expect("a driver of CUDA 13");
    let began = Instant::now();
    for (i, at) in (0..pieces).step_by(chunk).enumerate() {
        let (dsts, srcs, lens) = (&dsts[at..at + chunk], &srcs[at..at + chunk], &lens[at..at + chunk]);
        let (mut first, stream) = (0, streams[i % streams.len()]);
        let (dst, src, len) = (dsts.as_ptr(), srcs.as_ptr(), lens.as_ptr());
        // SAFETY: the arrays have `chunk` entries, whose ranges lie within windows that only this function
        // uses. The caller made the context current.
        let code = unsafe { batch(dst, src, len, chunk, &raw mut attributes, &raw mut first, 1, stream) };
        if code != 0 {
            println!("the driver answers {code}");
            return f64::NAN;
        }
    }
    for stream in streams {
        // SAFETY: the stream exists.
        assert_eq!(unsafe { (driver.cuStreamSynchronize)(*stream) }, 0);
    }
    began.elapsed().as_secs_f64()
}

#[test]
#[ignore = "needs an NVIDIA GPU without other users: cargo test --release -p dma-cuda --test hardware -- --ignored --nocapture"]
fn rates_of_batch_calls_by_their_attributes() {
    let engine = open();
    let driver = engine.driver();
    if driver.cuMemcpyBatchAsync_v2.is_none() {
        println!("the driver is older than CUDA 13");
        return;
    }
    let mut context = 0;
    // SAFETY: the call writes the context of an existing device to a local variable.
    assert_eq!(unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut context, 0) }, 0);
    // SAFETY: the context was retained just before.
    assert_eq!(unsafe { (driver.cuCtxPushCurrent_v2)(context) }, 0);
    let mut streams = [0; 4];
    for stream in &mut streams {
        // SAFETY: the call writes the stream to a local variable.
        assert_eq!(unsafe { (driver.cuStreamCreate)(stream, 1) }, 0);
    }
    let none = CUmemcpyAttributes { order: 1, src: [0; 2], dst: [0; 2], flags: 0 };
    let (host, device) = ([2, 0], [1, 0]);
    for way in &Way::all(&engine, 64 << 20) {
        for (piece, pieces) in
            [(1 << 10, 4096), (4 << 10, 4096), (8 << 10, 64), (8 << 10, 4096), (16 << 10, 4096)]
        {
            let hints = match way.name {
                "host to device" => (host, device),
                "device to host" => (device, host),
                _ => (device, device),
            };
            let hinted = |order| CUmemcpyAttributes { order, src: hints.0, dst: hints.1, flags: 0 };
            let any = CUmemcpyAttributes { order: 3, ..none };
            let rows = [
                ("one call", none, pieces, 1),
                ("1024", none, pieces.min(1024), 1),
                ("512", none, pieces.min(512), 1),
                ("256", none, pieces.min(256), 1),
                ("128", none, pieces.min(128), 1),
                ("64", none, pieces.min(64), 1),
                ("16", none, pieces.min(16), 1),
                ("any, 256", any, pieces.min(256), 1),
                ("any, hints, 256", hinted(3), pieces.min(256), 1),
                ("256, 2 streams", none, pieces.min(256), 2),
            ];
            let rate = |seconds: f64| (piece * pieces) as f64 / seconds / 1e9;
            let times = (0..7).map(|_| by_loop(&engine, streams[0], way, piece, pieces)).collect();
            print!("{:16} {piece:6} x {pieces:4}: loop {:.2}", way.name, rate(median(times)));
            for (name, attributes, chunk, used) in rows {
                let time = || by_batches(&engine, &streams[..used], way, (piece, pieces), chunk, attributes);
                print!("; {name} {:.2}", rate(median((0..7).map(|_| time()).collect())));
            }
            println!(" GB/s");
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
#[ignore = "needs an NVIDIA GPU without other users: cargo test --release -p dma-cuda --test hardware -- --ignored --nocapture"]
fn rates_are_those_of_a_bare_loop_and_small_pieces_beat_it() {
    let engine = open();
    let driver = engine.driver();
    let queue = engine.open_queue(&QueueOptions::new().with_depth(8192)).expect("a queue");
    let mut context = 0;
    // SAFETY: the call writes the context of an existing device to a local variable.
    assert_eq!(unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut context, 0) }, 0);
    // SAFETY: the context was retained just before.
    assert_eq!(unsafe { (driver.cuCtxPushCurrent_v2)(context) }, 0);
    let mut stream = 0;
    // SAFETY: the call writes the stream to a local variable.
    assert_eq!(unsafe { (driver.cuStreamCreate)(&raw mut stream, 1) }, 0);
    let ways = Way::all(&engine, 256 << 20);
    let mut slow = Vec::new();
    println!("{:18}      bytes  pieces  engine GB/s   waited GB/s    loop GB/s   ratio", "");
    for way in &ways {
        for (piece, pieces) in [
            (8 << 10, 1),
            (8 << 10, 64),
            (8 << 10, 1024),
            (8 << 10, 4096),
            (64 << 10, 1024),
            (1 << 20, 1),
            (1 << 20, 64),
            (256 << 20, 1),
        ] {
            let (mut ours, mut waited, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
            let began = Instant::now();
            // The engine and the loop alternate, so that a disturbance affects both.
            while ours.len() < 5 || (ours.len() < 201 && began.elapsed() < Duration::from_millis(700)) {
                ours.push(by_engine(&queue, way, piece, pieces, true));
                waited.push(by_engine(&queue, way, piece, pieces, false));
                theirs.push(by_loop(&engine, stream, way, piece, pieces));
            }
            let (ours, waited, theirs) = (median(ours), median(waited), median(theirs));
            let rate = |seconds: f64| (piece * pieces) as f64 / seconds / 1e9;
            let ratio = theirs / ours;
            println!(
                "{:18} {piece:10} {pieces:7} {:12.2} {:12.2} {:12.2} {ratio:7.2}",
                way.name,
                rate(ours),
                rate(waited),
                rate(theirs)
            );
            let wanted = match (way.name, piece, pieces) {
                ("host to device" | "device to host", 8192, 4096) => 1.5,
                (_, piece, _) if piece * pieces >= 64 << 20 => 0.95,
                _ => continue,
            };
            if ratio < wanted {
                slow.push(format!(
                    "{}, {pieces} of {piece}: {ratio:.2} of the loop's rate, wanted {wanted}",
                    way.name
                ));
            }
        }
    }
    // SAFETY: no work is queued on the stream.
    assert_eq!(unsafe { (driver.cuStreamDestroy_v2)(stream) }, 0);
    assert!(slow.is_empty(), "{slow:#?}");
}

/// One cell of the grid: the rates of the ways in GB/s, and the rate of what the engine has learned.
struct Cell {
    way: &'static str,
    piece: usize,
    pieces: usize,
    rates: [f64; 3],
    learned: f64,
}

impl Cell {
    fn best(&self) -> f64 {
        self.rates.into_iter().fold(0.0, f64::max)
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU without other users: ci/card.sh cuda"]
fn rates_of_pieces_by_every_way_and_by_the_learned_one() {
    /// Time for each way of a cell, and for learning.
    const TIME: Duration = Duration::from_millis(120);
    const LEARNING: Duration = Duration::from_millis(600);
    const LARGE: usize = 256 << 20;
    let [batch, kernel, single, learned] =
        [Pieces::Batch, Pieces::Kernel, Pieces::Loop, Pieces::Auto].map(open_with);
    let queue =
        |engine: &CudaEngine| engine.open_queue(&QueueOptions::new().with_depth(8192)).expect("a queue");
    println!("{}, {}", learned.info().device, learned.info().version);
    if let Some(model) = &learned.info().model {
        println!("a model, whose rates say nothing about a card: {model}");
    }
    let time = |engine: &CudaEngine, way: &Way, piece: usize, pieces: usize, time: Duration| {
        let queue = queue(engine);
        let (began, mut times) = (Instant::now(), Vec::new());
        while times.len() < 5 || began.elapsed() < time {
            times.push(by_engine(&queue, way, piece, pieces, true));
        }
        // The last half, because the engine learns in the first one.
        (piece * pieces) as f64 / median(times.split_off(times.len() / 2)) / 1e9
    };
    let (mut cells, mut large) = (Vec::new(), Vec::new());
    for direction in 0..DIRECTIONS {
        // Each engine has its own memory, because the other engines do not accept it.
        let ways = [&batch, &kernel, &single, &learned].map(|engine| Way::new(engine, LARGE, direction));
        let [batch_way, kernel_way, single_way, learned_way] = &ways;
        let name = batch_way.name;
        let reference = time(&batch, batch_way, LARGE, 1, TIME);
        println!("{name}: one copy of 256 MiB {reference:.2} GB/s");
        println!(
            "{:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>13} {:>13}",
            "bytes", "pieces", "batch", "kernel", "loop", "learned", "learned/best", "learned/large"
        );
        large.push((name, reference));
        for piece in [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10] {
            for pieces in [4, 16, 64, 256, 1024, 4096] {
                let rates = [(&batch, batch_way), (&kernel, kernel_way), (&single, single_way)]
                    .map(|(engine, way)| time(engine, way, piece, pieces, TIME));
                let learned = time(&learned, learned_way, piece, pieces, LEARNING);
                let cell = Cell { way: name, piece, pieces, rates, learned };
                println!(
                    "{piece:8} {pieces:7} {:9.3} {:9.3} {:9.3} {learned:9.3} {:13.2} {:13.2}",
                    rates[0],
                    rates[1],
                    rates[2],
                    learned / cell.best(),
                    learned / reference
                );
                cells.push(cell);
            }
        }
    }
    println!("{}", learned.explain().unwrap_or_default());
    // The limits that the engine aims at. The table is the result, so a missed limit is printed and does not
    // fail.
    let good = cells.iter().filter(|cell| cell.learned >= 0.95 * cell.best()).count();
    let share = 100.0 * good as f64 / cells.len() as f64;
    println!("within 5 % of the best way: {good} of {} cells ({share:.0} %), wanted 95 %", cells.len());
    let cell = |way: &str, piece: usize| {
        let found = cells.iter().find(|cell| cell.way == way && cell.piece == piece && cell.pieces == 4096);
        found.expect("the grid has the cell")
    };
    let reference = |way: &str| large.iter().find(|(name, _)| *name == way).expect("each way has one").1;
    for (way, wanted) in [("host to device", 0.85), ("device to host", 0.8)] {
        let share = cell(way, 4096).learned / reference(way);
        println!("{way}, 4096 of 4096 bytes: {share:.2} of one large copy, wanted {wanted}");
    }
    let short = cell("host to device", 512);
    println!(
        "host to device, 4096 of 512 bytes: {:.1} times the batch, wanted 5",
        short.learned / short.rates[0]
    );
}
