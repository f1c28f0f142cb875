//! Many copies by every way on the stand-in driver: random pieces against an oracle, mutants of the kernel
//! that the oracle must catch, faults of launches, drivers without kernels, order, bad input, and the learned
//! choice.
#![expect(unsafe_code, reason = "replaces calls of the driver")]

mod faults;
mod random;
#[path = "../support/mod.rs"]
mod support;

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dma_core::{
    DeviceMemory, DmaEngine, DmaEngineExt, Error, ErrorKind, HostMemory, MemoryRequest, Place, Queue,
    QueueOptions, Rows, Transfer, Window,
};
use dma_cuda::{CUmemcpyAttributes, CudaEngine, CudaOptions, Driver, Pieces};
use proptest::prelude::*;

/// Number of GPUs that mutants may end, from `MUTANTS` on. A failure ends the context of its GPU for the
/// whole process.
const MUTANT_GPUS: usize = 64;
/// GPUs with faults, from `FAULTY` on.
const FAULTS: [&str; 6] = ["refuse@2", "fail@2", "reset@2", "gone@2", "stick@2", "fail@1"];
const FAULTY: u32 = 4;
const MUTANTS: u32 = FAULTY + FAULTS.len() as u32;
/// The GPU that refuses some loads and is slow with others.
const REFUSING: u32 = MUTANTS + MUTANT_GPUS as u32;

/// Two ideal GPUs, one whose copies take longer, one with published times, GPUs with faults, and others.
fn config() -> String {
    let mut text =
        "memory = '64M'\n[[gpu]]\n[[gpu]]\n[[gpu]]\ndelay = '20us'\n[[gpu]]\nprofile = 'hopper'\n".to_owned();
    for faults in FAULTS {
        text += &format!("[[gpu]]\nfaults = '{faults}'\n");
    }
    text += &"[[gpu]]\n".repeat(MUTANT_GPUS);
    text + "[[gpu]]\nfaults = 'refuse:p=0.05+slow:p=0.02:for=5us'\n"
}

fn driver() -> Driver {
    support::driver(&config())
}

fn options(ordinal: u32, pieces: Pieces) -> CudaOptions {
    support::options(ordinal).with_pieces(pieces)
}

fn open(ordinal: u32, pieces: Pieces) -> CudaEngine {
    support::open_with(&driver(), &options(ordinal, pieces)).expect("it opens")
}

/// A piece: the offsets of its bytes in both windows, and its length.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: usize,
    to: usize,
    len: usize,
}

/// Waits for a transfer. A transfer of a lost device never ends, so the device is asked meanwhile.
fn end<T>(engine: &CudaEngine, queue: &Queue, transfer: Transfer<T>) -> Result<T, Error> {
    queue.flush();
    while !transfer.is_done() {
        queue.poll();
        engine.allocate(16)?;
    }
    Ok(transfer.wait()?)
}

/// Copies pieces from a window to another one, by a copy for each piece or by rows. Returns all bytes of the
/// second window.
fn copy(
    engine: &CudaEngine,
    queue: &Queue,
    [src, dst]: [&Window; 2],
    pieces: &[Piece],
    by_rows: bool,
) -> Result<Vec<u8>, Error> {
    if by_rows {
        let rows =
            |at: fn(&Piece) -> usize| pieces.iter().map(|piece| (at(piece), piece.len)).collect::<Vec<_>>();
        let from = Rows::new(src.clone(), rows(|piece| piece.from))?;
        let to = Rows::new(dst.clone(), rows(|piece| piece.to))?;
        end(engine, queue, queue.copy(from, to)?)?;
    } else {
        let transfers = pieces.iter().map(|piece| {
            let (from, to) = (piece.from..piece.from + piece.len, piece.to..piece.to + piece.len);
            queue.copy(src.slice(from), dst.slice(to)).map_err(Error::from)
        });
        let transfers = transfers.collect::<Result<Vec<_>, _>>()?;
        for transfer in transfers {
            end(engine, queue, transfer)?;
        }
    }
    let host = engine.allocate(dst.len())?;
    let (_, host) = end(engine, queue, queue.copy(dst.clone(), host)?)?;
    Ok(host.to_vec())
}

/// Returns bytes that differ from their neighbours.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i ^ (i >> 8)) * 31 + seed * 97) as u8).collect()
}

/// A window of a place with these bytes.
fn window(engine: &CudaEngine, queue: &Queue, place: Place, bytes: &[u8]) -> Result<Window, Error> {
    let window = engine.allocate_window(&MemoryRequest::new(bytes.len()).with_place(place))?;
    let mut host = engine.allocate(bytes.len())?;
    host.copy_from_slice(bytes);
    Ok(end(engine, queue, queue.copy(host, window)?)?.1)
}

/// The bytes of the second window after the copies.
fn oracle(src: &[u8], dst: &[u8], pieces: &[Piece]) -> Vec<u8> {
    let mut expected = dst.to_vec();
    for Piece { from, to, len } in pieces {
        expected[*to..to + len].copy_from_slice(&src[*from..from + len]);
    }
    expected
}

/// Lays out pieces with these gaps and lengths: first the gaps before both sides, then the length.
fn layout(shapes: &[(usize, usize, usize)]) -> (Vec<Piece>, usize) {
    let (mut from, mut to) = (0, 0);
    let pieces = shapes.iter().map(|(before, behind, len)| {
        let piece = Piece { from: from + before, to: to + behind, len: *len };
        (from, to) = (piece.from + len, piece.to + len);
        piece
    });
    let pieces: Vec<_> = pieces.collect();
    (pieces, from.max(to) + 64)
}

/// Copies the pieces between all places, and compares all bytes.
fn check(
    engine: &CudaEngine,
    queue: &Queue,
    pieces: &[Piece],
    len: usize,
    by_rows: bool,
) -> Result<(), String> {
    for (number, [from, to]) in
        [[Place::Host, Place::Device], [Place::Device, Place::Host], [Place::Device; 2], [Place::Host; 2]]
            .into_iter()
            .enumerate()
    {
        let (src, dst) = (pattern(len, number), pattern(len, number + 50));
        let copied = window(engine, queue, from, &src).and_then(|from| {
            let to = window(engine, queue, to, &dst)?;
            copy(engine, queue, [&from, &to], pieces, by_rows)
        });
        let copied = copied.map_err(|error| error.to_string())?;
        let expected = oracle(&src, &dst, pieces);
        if let Some(at) = copied.iter().zip(&expected).position(|(a, b)| a != b) {
            return Err(format!("{from} to {to}: byte {at} of {len} is wrong"));
        }
    }
    Ok(())
}

/// The text of the kernel, and the text that the driver compiles instead of it.
const KERNEL: &str = include_str!("../../src/pieces/pieces.ptx");
static MUTANT: Mutex<Option<CString>> = Mutex::new(None);

unsafe extern "C" fn load_mutant(
    module: *mut usize,
    text: *const c_void,
    count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
) -> c_int {
    let mutant = MUTANT.lock().expect("no panic");
    let text = mutant.as_ref().map_or(text, |mutant| mutant.as_ptr().cast());
    // SAFETY: only the text is not the caller's, and it ends in NUL.
    unsafe { driver().cuModuleLoadDataEx.expect("the stand-in has it")(module, text, count, options, values) }
}

/// Pieces at all alignments, at the ends of loops, and long ones: more than the warps of one block.
fn all_shapes() -> Vec<(usize, usize, usize)> {
    let mut shapes = Vec::new();
    for skew in [0, 1, 2, 4, 8, 12] {
        for len in [1, 3, 15, 16, 17, 31, 33, 130, 255, 257, 512, 530, 1100, 2048, 2049, 4096 + 512, 4099] {
            shapes.push((3, 3 + skew, len));
            shapes.push((0, skew, len));
        }
    }
    shapes.push((16, 0, 150_000));
    shapes
}

/// Runs the oracle's pieces with a text. Returns the oracle's objection.
fn judge(text: &str, ordinal: u32) -> Result<(), String> {
    let mut replaced = driver();
    replaced.cuModuleLoadDataEx = Some(load_mutant);
    *MUTANT.lock().expect("no panic") = Some(CString::new(text).expect("no NUL"));
    let engine = support::open_with(&replaced, &options(ordinal, Pieces::Kernel).with_multiprocessors(3));
    let engine = engine.map_err(|error| error.to_string())?;
    let options = QueueOptions::new().with_depth(1024).with_drop_timeout(Duration::from_millis(1));
    let queue = engine.open_queue(&options).map_err(|error| error.to_string())?;
    let (pieces, len) = layout(&all_shapes());
    check(&engine, &queue, &pieces, len, false)
}

#[test]
fn mutants_of_the_kernel_are_caught() {
    judge(KERNEL, MUTANTS).expect("the kernel itself is right");
    // A text to replace, its occurrence, and the replacement.
    let mutants = [
        // Lengths that are off by one.
        ("setp.ge.u64 %p, %at, %len;", 0, "setp.gt.u64 %p, %at, %len;"),
        ("setp.ge.u64 %p, %lane64, %head;", 0, "setp.gt.u64 %p, %lane64, %head;"),
        ("setp.ge.u64 %p, %word, %end;", 0, "setp.gt.u64 %p, %word, %end;"),
        ("setp.ge.u64 %p, %from, %end;", 0, "setp.gt.u64 %p, %from, %end;"),
        ("setp.ge.u64 %p, %from, %end;", 1, "setp.gt.u64 %p, %from, %end;"),
        ("setp.ge.u64 %p, %from, %end;", 2, "setp.gt.u64 %p, %from, %end;"),
        ("setp.ge.u64 %p, %from, %end;", 3, "setp.gt.u64 %p, %from, %end;"),
        ("sub.u64 %body, %len, %head;", 0, "mov.u64 %body, %len;"),
        ("min.u64 %head, %head, %len;", 0, ""),
        ("add.u64 %word, %from, 1536;", 0, "add.u64 %word, %from, 1024;"),
        // Alignment.
        ("and.b64 %word, %skew, 15;", 0, "and.b64 %word, %skew, 7;"),
        ("and.b64 %word, %skew, 7;", 0, "and.b64 %word, %skew, 3;"),
        ("and.b64 %word, %skew, 3;", 0, "and.b64 %word, %skew, 1;"),
        ("neg.s64 %head, %src;", 0, "neg.s64 %head, %dst2;"),
        ("neg.s64 %head, %src;", 0, "mov.u64 %head, 0;"),
        ("sub.u64 %word, %unit, 1;", 0, "sub.u64 %word, %unit, 2;"),
        // Strides, which lose or repeat units.
        ("add.u64 %from, %from, 2048;", 0, "add.u64 %from, %from, 1024;"),
        ("add.u64 %to, %to, 2048;", 0, "add.u64 %to, %to, 2032;"),
        ("add.u64 %from, %from, 512;", 0, "add.u64 %from, %from, 1024;"),
        ("add.u64 %to, %to, 256;", 0, "add.u64 %to, %to, 512;"),
        ("add.u64 %from, %from, 128;", 0, "add.u64 %from, %from, 132;"),
        ("add.u64 %to, %to, 32;", 0, "add.u64 %to, %to, 33;"),
        ("[%to+1536], {%x12", 0, "[%to+1536], {%x8"),
        ("[%from+1024];", 0, "[%from+1040];"),
        ("mad.lo.u64 %at, %lane64, %unit, %head;", 0, "mul.lo.u64 %at, %lane64, %unit;"),
        // Lost blocks, warps and pieces.
        ("mov.u32 %block, %ctaid.x;", 0, "mov.u32 %block, 0;"),
        ("mad.lo.u32 %warp, %block, %threads, %thread;", 0, "mov.u32 %warp, %thread;"),
        ("shr.u32 %step, %step, 5;", 0, "shr.u32 %step, %step, 4;"),
        ("and.b32 %lane, %thread, 31;", 0, "and.b32 %lane, %thread, 15;"),
        ("@%last bra done;", 0, "bra done;"),
        ("add.u32 %next, %warp, %step;", 0, "add.u32 %next, %warp, 1000;"),
        ("mov.u32 %warp, %next;", 0, "add.u32 %warp, %next, %step;"),
        // The table.
        ("setp.ge.u32 %p, %warp, %count;", 0, "setp.gt.u32 %p, %warp, %count;"),
        ("setp.ge.u32 %last, %next, %count;", 0, "setp.gt.u32 %last, %next, %count;"),
        ("mad.wide.u32 %entry, %warp, 24, %table;", 0, "mad.wide.u32 %entry, %warp, 16, %table;"),
        ("mad.wide.u32 %entry, %next, 24, %table;", 0, "mad.wide.u32 %entry, %next, 32, %table;"),
        ("ld.global.u64 %dst2, [%entry+8];", 0, "ld.global.u64 %dst2, [%entry];"),
        ("mov.u64 %len, %len2;", 0, ""),
        ("mov.u64 %src, %src2;", 0, ""),
    ];
    assert!(mutants.len() < MUTANT_GPUS);
    let mut survivors = Vec::new();
    for ((from, occurrence, to), ordinal) in mutants.iter().zip(MUTANTS + 1..) {
        let (at, _) = KERNEL.match_indices(from).nth(*occurrence).unwrap_or_else(|| panic!("no `{from}`"));
        let mutant = format!("{}{to}{}", &KERNEL[..at], &KERNEL[at + from.len()..]);
        if judge(&mutant, ordinal).is_ok() {
            survivors.push((from, occurrence, to));
        }
    }
    assert!(survivors.is_empty(), "the oracle does not object to {survivors:#?}");
}

/// Number of launches.
static LAUNCHES: AtomicUsize = AtomicUsize::new(0);

type Pointers = *mut *mut c_void;

unsafe extern "C" fn counting(
    function: usize,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    threads_x: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared: c_uint,
    stream: usize,
    parameters: Pointers,
    extra: Pointers,
) -> c_int {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let launch = driver().cuLaunchKernel.expect("the stand-in has it");
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { launch(function, x, y, z, threads_x, threads_y, threads_z, shared, stream, parameters, extra) }
}

#[test]
fn rows_are_few_launches_without_a_descriptor_for_each() {
    let mut counted = driver();
    counted.cuLaunchKernel = Some(counting);
    let engine = support::open_with(&counted, &options(1, Pieces::Kernel)).unwrap();
    let queue = engine.open_queue(&QueueOptions::new().with_depth(32)).unwrap();
    // 80 layers of 256 blocks, in the reverse order of the source.
    let (rows, row) = (80 * 256, 64);
    let pieces: Vec<_> =
        (0..rows).map(|i| Piece { from: (rows - 1 - i) * row, to: i * row, len: row }).collect();
    let (src, dst) = (pattern(rows * row, 1), pattern(rows * row, 2));
    let from = window(&engine, &queue, Place::Host, &src).unwrap();
    let to = window(&engine, &queue, Place::Device, &dst).unwrap();
    let before = LAUNCHES.load(Ordering::Relaxed);
    let copied = copy(&engine, &queue, [&from, &to], &pieces, true).unwrap();
    assert!(copied == oracle(&src, &dst, &pieces));
    let launches = LAUNCHES.load(Ordering::Relaxed) - before;
    assert!((5..=12).contains(&launches), "{launches} launches");
    assert!(queue.counters().submitted < 32, "{:?}", queue.counters());
}

#[test]
fn odd_input_is_refused_or_right() {
    for pieces in [Pieces::Auto, Pieces::Kernel, Pieces::Batch, Pieces::Loop] {
        let engine = open(0, pieces);
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let host = engine.allocate_window(&MemoryRequest::new(1 << 16)).unwrap();
        let device = engine.allocate_device(1 << 16).unwrap();
        let rows = |window: &Window, rows: Vec<(usize, usize)>| Rows::new(window.clone(), rows).unwrap();
        // No pieces, and empty pieces.
        queue.copy(rows(&host, vec![]), rows(&device, vec![])).unwrap().wait().unwrap();
        queue.copy(rows(&host, vec![(5, 0); 9]), rows(&device, vec![(7, 0); 3])).unwrap().wait().unwrap();
        queue.copy(host.slice(3..3), device.slice(4..4)).unwrap().wait().unwrap();
        // Pieces that overlap in the destination, or both sides of one piece.
        let error = queue
            .copy(rows(&host, vec![(0, 100), (100, 100)]), rows(&device, vec![(0, 100), (99, 100)]))
            .unwrap_err();
        assert_eq!(error.error().kind(), ErrorKind::Overlap, "{error}");
        let error = queue.copy(device.slice(0..100), device.slice(50..150)).unwrap_err();
        assert_eq!(error.error().kind(), ErrorKind::Overlap, "{error}");
        // Rows beyond the window, and sides of different lengths.
        let error = Rows::new(device.clone(), vec![(0, 10), (65_530, 10)]).unwrap_err();
        assert_eq!(
            (error.error().kind(), error.error().limit()),
            (ErrorKind::OutOfRange, Some(65_536)),
            "{error}"
        );
        let error = queue.copy(rows(&host, vec![(0, 10)]), rows(&device, vec![(0, 11)])).unwrap_err();
        assert_eq!(error.error().kind(), ErrorKind::LengthMismatch, "{error}");
        // Memory of an engine that this queue does not know.
        let other = open(1, pieces);
        let foreign = other.allocate_device(64).unwrap();
        let error = queue.copy(host.slice(0..64), foreign).unwrap_err();
        assert_eq!(error.error().kind(), ErrorKind::WrongEngine, "{error}");
        // A window is freed only after its pieces have ended, even if the program has dropped it.
        let whole = engine.allocate_device(1 << 16).unwrap();
        let copies: Vec<_> = (0..64)
            .map(|i| {
                queue
                    .copy(host.slice(i * 1000..i * 1000 + 999), whole.slice(i * 1000..i * 1000 + 999))
                    .unwrap()
            })
            .collect();
        let (whole, error) = whole.deregister().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
        assert!(!error.hint().is_empty(), "{error}");
        drop(whole);
        drop(copies);
        queue.fence();
        faults::transfer_outcome(&engine, &queue).unwrap();
    }
}

#[test]
fn a_million_pieces_are_right() {
    let engine = open(1, Pieces::Auto);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let len = 1_000_000;
    let bytes = pattern(len, 8);
    let from = window(&engine, &queue, Place::Host, &bytes).unwrap();
    let to = engine.allocate_device(len).unwrap();
    // Single bytes, in the reverse order.
    let rows = Rows::new(from, (0..len).rev().map(|at| (at, 1)).collect()).unwrap();
    let (_, to) = queue.copy(rows, to).unwrap().wait().unwrap();
    let (_, host) = queue.copy(to, engine.allocate(len).unwrap()).unwrap().wait().unwrap();
    assert!(host.iter().eq(bytes.iter().rev()));
}

/// The way of the last load: 1 for a batch, 2 for a kernel, 3 for single copies.
static LAST: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn timed_batch(
    dsts: *const u64,
    srcs: *const u64,
    lens: *const usize,
    number: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    kinds: usize,
    stream: usize,
) -> c_int {
    LAST.store(1, Ordering::Relaxed);
    let batch = driver().cuMemcpyBatchAsync_v2.expect("the stand-in has it");
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { batch(dsts, srcs, lens, number, attributes, indices, kinds, stream) }
}

unsafe extern "C" fn timed_launch(
    function: usize,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    threads_x: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared: c_uint,
    stream: usize,
    parameters: Pointers,
    extra: Pointers,
) -> c_int {
    LAST.store(2, Ordering::Relaxed);
    let launch = driver().cuLaunchKernel.expect("the stand-in has it");
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { launch(function, x, y, z, threads_x, threads_y, threads_z, shared, stream, parameters, extra) }
}

unsafe extern "C" fn timed_copy(dst: u64, src: u64, len: usize, stream: usize) -> c_int {
    LAST.store(3, Ordering::Relaxed);
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (driver().cuMemcpyAsync)(dst, src, len, stream) }
}

/// Returns the time of a load by its way alone, so that no other load of the machine affects the choice.
unsafe extern "C" fn timed(milliseconds: *mut f32, before: usize, after: usize) -> c_int {
    let elapsed = driver().cuEventElapsedTime.expect("the stand-in has it");
    // SAFETY: the arguments are the caller's, unchanged.
    let code = unsafe { elapsed(milliseconds, before, after) };
    if code == 0 {
        // SAFETY: the caller passes a pointer that is valid for the write.
        unsafe { *milliseconds = [0.0, 0.128, 0.016, 0.256][LAST.load(Ordering::Relaxed)] };
    }
    code
}

#[test]
fn the_fastest_way_is_learned_and_explained() {
    let mut replaced = driver();
    replaced.cuMemcpyBatchAsync_v2 = Some(timed_batch);
    replaced.cuLaunchKernel = Some(timed_launch);
    replaced.cuMemcpyAsync = timed_copy;
    replaced.cuEventElapsedTime = Some(timed);
    let engine = support::open_with(&replaced, &options(1, Pieces::Auto)).unwrap();
    let explained = engine.explain().unwrap();
    assert!(explained.contains("pieces=auto") && explained.contains("no queue was opened"), "{explained}");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let host = engine.allocate_window(&MemoryRequest::new(64 * 256)).unwrap();
    let device = engine.allocate_device(64 * 256).unwrap();
    let mut ways = [0; 4];
    for _ in 0..1000 {
        let batch: Vec<_> = (0..64)
            .map(|i| {
                queue.copy(host.slice(i * 256..i * 256 + 256), device.slice(i * 256..i * 256 + 256)).unwrap()
            })
            .collect();
        queue.flush();
        batch.into_iter().for_each(|transfer| drop(transfer.wait().unwrap()));
        ways[LAST.load(Ordering::Relaxed)] += 1;
    }
    let explained = engine.explain().unwrap();
    let line = "host to device, 64 to 127 copies of 256 to 511 bytes: kernel, because a copy takes batch 2000.0 ns, \
                kernel 250.0 ns, loop 4000.0 ns; 1000 loads";
    assert!(explained.contains(line), "{explained}");
    assert!(explained.contains("at most 16 multiprocessors"), "an eighth of 132: {explained}");
    // The first trials, until the kernel is known, and then at most 3 %.
    assert!(ways[2] > 850 && ways[3] > 0, "{ways:?}");
}

#[test]
fn kernels_start_after_an_event_and_streams_wait_for_them() {
    let engine = open(2, Pieces::Kernel);
    let (queue, stream) = engine.open_queue_with_stream(&QueueOptions::new()).unwrap();
    let (mut context, driver) = (0, driver());
    // SAFETY: the call writes the context of an existing device to a local variable.
    assert_eq!(unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut context, 2) }, 0);
    // SAFETY: the context was retained just before, and is never released.
    assert_eq!(unsafe { (driver.cuCtxPushCurrent_v2)(context) }, 0);
    let (mut work, mut written) = (0, 0);
    // SAFETY: the call writes the stream to a local variable.
    assert_eq!(unsafe { (driver.cuStreamCreate)(&raw mut work, 1) }, 0);
    // SAFETY: the call writes the event to a local variable.
    assert_eq!(unsafe { (driver.cuEventCreate)(&raw mut written, 2) }, 0);
    let source = engine.allocate_device(4096).unwrap();
    let addr = source.region().as_raw().info().addr.0;
    for round in 1..50 {
        // Each fill takes 20 us longer than the launch.
        // SAFETY: the memory is allocated, and only this test uses it.
        assert_eq!(unsafe { (driver.cuMemsetD8Async)(addr, round, 4096, work) }, 0);
        // SAFETY: this test made the event and the stream, and destroys neither.
        assert_eq!(unsafe { (driver.cuEventRecord)(written, work) }, 0);
        // SAFETY: this test made the event, and does not destroy it.
        unsafe { stream.wait_for_event(std::ptr::without_provenance_mut(written)) }.unwrap();
        let transfer = queue.copy(source.clone(), engine.allocate(4096).unwrap()).unwrap();
        queue.flush();
        // The next fill must not overtake the copy.
        // SAFETY: this test made the stream, and does not destroy it.
        unsafe { stream.hold_stream(std::ptr::without_provenance_mut(work)) }.unwrap();
        let (_, host) = transfer.wait().unwrap();
        assert_eq!(host[..], [round; 4096]);
    }
}

#[test]
fn fences_order_launches() {
    let engine = open(0, Pieces::Kernel);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    for round in 0..50 {
        let bytes = pattern(3000, round);
        let from = window(&engine, &queue, Place::Host, &bytes).unwrap();
        let [a, b] = [(); 2].map(|()| engine.allocate_device(3000).unwrap());
        let rows = |window: &Window| Rows::new(window.clone(), vec![(0, 1000), (1000, 2000)]).unwrap();
        let first = queue.copy(from, rows(&a)).unwrap();
        queue.fence();
        let second = queue.copy(rows(&a), b).unwrap();
        queue.flush();
        first.wait().unwrap();
        let (_, b) = second.wait().unwrap();
        let (_, host) = queue.copy(b, engine.allocate(3000).unwrap()).unwrap().wait().unwrap();
        assert_eq!(host[..], bytes[..]);
    }
}
