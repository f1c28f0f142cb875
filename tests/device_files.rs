//! Files that are read into device memory and written from it, on the CPU, the simulated device and the GPU
//! stand-in: random ranges, pools, queues and faults against an oracle in ordinary memory, and each error.

#[path = "state_machine/standin_gpu.rs"]
mod standin_gpu;

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dma::files::{DeviceFiles, DmaFile, FileError, FilePiece, FileQueueOptions, Method, OpenFile};
use dma::prelude::*;
use dma::{Access, Backend, EngineName, HostMemory, MemoryRequest, Place};
use proptest::prelude::*;

/// A time that no test reaches.
const LONG: Duration = Duration::from_secs(300);

/// Opens an engine by its name; `standin-gpu:N` is a GPU of the stand-in driver.
fn open(name: &str) -> Arc<dyn DmaEngine> {
    match name.parse::<EngineName>() {
        Ok(name) if name.backend() == "standin-gpu" => standin_gpu::StandinGpu.open(&name).expect("it opens"),
        _ => dma::open(name).expect("it opens"),
    }
}

/// Makes a window in the engine's device memory, or in host memory if the engine has no other.
fn window(engine: &Arc<dyn DmaEngine>, len: usize) -> Window {
    let has_device = engine.info().places().any(|place| place == Place::Device);
    let place = if has_device { Place::Device } else { Place::Host };
    engine.allocate_window(&MemoryRequest::new(len.max(1)).with_place(place)).expect("memory").slice(..len)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed) as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}

/// Copies bytes between a window and host memory. Repeats copies that fail.
fn upload(engine: &Arc<dyn DmaEngine>, window: &Window, bytes: &[u8]) {
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    loop {
        let mut host = engine.allocate(bytes.len()).expect("memory");
        host.copy_from_slice(bytes);
        if queue.copy(host, window.clone()).expect("room").wait().is_ok() {
            return;
        }
    }
}

fn download(engine: &Arc<dyn DmaEngine>, window: &Window) -> Vec<u8> {
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    loop {
        let host = engine.allocate(window.len()).expect("memory");
        if let Ok((_, host)) = queue.copy(window.clone(), host).expect("room").wait() {
            return host.to_vec();
        }
    }
}

struct Setup {
    engine: Arc<dyn DmaEngine>,
    pool: BufferPool,
    files: DeviceFiles,
}

impl Setup {
    fn new(name: &str, (len, count): (usize, usize), depth: usize, method: Option<Method>) -> Option<Self> {
        let engine = open(name);
        let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(len, count)).expect("a pool");
        let depth = depth.min(engine.info().limits.max_queue_depth);
        let options = SharedQueueOptions::new().with_queue(QueueOptions::new().with_depth(depth));
        let queue = engine.open_shared_queue(&options).expect("a queue");
        match DeviceFiles::new(&queue, &pool, &FileQueueOptions::new().with_depth(1).with_method(method)) {
            Ok(files) => Some(Self { engine, pool, files }),
            Err(e) => {
                assert_eq!(method, Some(Method::IoUring), "{e}");
                eprintln!("left out: {e}");
                None
            }
        }
    }

    fn simple(name: &str) -> Self {
        Self::new(name, (16 << 10, 4), 64, None).expect("a method")
    }

    /// Waits until all buffers are back in the pool.
    fn settle(&self) {
        let class = self.pool.classes().next().expect("a class");
        let all: Vec<_> =
            (0..class.count).map(|_| self.pool.get_timeout(class.len, LONG).expect("it returns")).collect();
        drop(all);
        assert_eq!(self.files.file_queue().in_flight(), 0);
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Opens a file, directly where the file system supports this.
fn open_file(path: &Path, options: &OpenFile) -> DmaFile {
    let direct = options.clone().with_direct(true).open(path);
    direct.or_else(|_| options.open(path)).expect("it opens")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect()
}

fn failed<T>(e: FileError<T>) -> (dma::Error, T) {
    let (error, pieces) = e.into_parts();
    assert!(!error.hint().is_empty(), "no remedy: {error}");
    (error, pieces.expect("the process was not forked"))
}

/// Number of times that a file is read or saved on a device that fails.
const TRIES: usize = 20;

/// Engines, some of which fail.
const ENGINES: [&str; 8] = [
    "cpu",
    "cpu:threads=0",
    "sim:device_memory=8M",
    "sim:device_memory=8M,max_transfer=5000,depth=3",
    "sim:device_memory=8M,faults=fail:p=0.01+reset:p=0.005+refuse:p=0.02",
    "standin-gpu:0",
    "standin-gpu:1",
    "standin-gpu:2",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    /// Reads random ranges, saves them as another file, and compares all bytes. After an error, nothing has
    /// the final name, and the next try may succeed.
    #[test]
    fn files_and_windows_have_the_same_bytes(
        name in proptest::sample::select(ENGINES.to_vec()),
        shapes in proptest::collection::vec((prop_oneof![Just(0_usize), 0..9000_usize], 0..20_000_usize), 0..40),
        backwards in any::<bool>(),
        buffer in prop_oneof![1..5000_usize, Just(4096_usize), Just(8192), Just(16 << 10)],
        (count, depth) in (1..6_usize, 1..40_usize),
        direct in any::<bool>(),
        method in proptest::sample::select(vec![None, Some(Method::IoUring), Some(Method::Threads)]),
        together in any::<bool>(),
    ) {
        let Some(setup) = Setup::new(name, (buffer, count), depth, method) else { return Ok(()) };
        let mut end = 0;
        let mut ranges: Vec<_> = shapes
            .iter()
            .map(|(gap, len)| {
                let start = end + gap;
                end = start + len;
                start..end
            })
            .collect();
        if backwards {
            ranges.reverse();
        }
        let content = bytes(end, 3);
        let folder = folder();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, &content).expect("written");
        std::fs::write(&to, "before").expect("written");
        let options = OpenFile::new();
        let file = if direct { open_file(&from, &options) } else { options.open(&from).expect("it opens") };
        // All windows in one region, or one region for each.
        let whole = window(&setup.engine, end);
        let mut pieces: Vec<_> = ranges
            .iter()
            .map(|range| {
                let part = whole.slice(range.clone());
                let own = if together { part } else { window(&setup.engine, range.len()) };
                FilePiece::new(range.start as u64..range.end as u64, own)
            })
            .collect();
        let sum = pieces.iter().map(|piece| piece.window.len()).sum::<usize>();
        let mut tries = 0;
        loop {
            tries += 1;
            if tries > TRIES {
                return Ok(());
            }
            let transfer = setup.files.read(&file, pieces).map_err(|e| failed(e).0).expect("valid");
            prop_assert_eq!(transfer.total(), sum as u64);
            match futures(transfer) {
                Ok((same, read)) => {
                    prop_assert_eq!(read, sum);
                    pieces = same;
                    break;
                }
                Err(e) => {
                    let (e, same) = failed(e);
                    prop_assert!(may_fail(name) && e.retry() != dma::Retry::Never, "{}: {}", name, e);
                    prop_assert!(e.operation().contains("/from into device memory"), "{}", e);
                    pieces = same;
                }
            }
        }
        for (piece, range) in pieces.iter().zip(&ranges) {
            if !range.is_empty() {
                prop_assert!(download(&setup.engine, &piece.window) == content[range.clone()], "{:?}", range);
            }
        }
        let mut expected = vec![0; pieces.iter().map(|piece| piece.range.end).max().unwrap_or(0) as usize];
        for range in &ranges {
            expected[range.clone()].copy_from_slice(&content[range.clone()]);
        }
        // An empty piece does not extend a file.
        let last = ranges.iter().filter(|range| !range.is_empty()).map(|range| range.end).max().unwrap_or(0);
        expected.truncate(last);
        for tries in 0.. {
            if tries == TRIES {
                break;
            }
            let mut transfer = setup.files.save(&to, pieces).map_err(|e| failed(e).0).expect("valid");
            while !transfer.wait_timeout(Duration::from_millis(1)) {
                prop_assert!(transfer.moved() <= transfer.total());
            }
            match transfer.wait() {
                Ok((_, written)) => {
                    prop_assert_eq!(written, sum);
                    prop_assert!(std::fs::read(&to).expect("readable") == expected);
                    break;
                }
                Err(e) => {
                    let (e, same) = failed(e);
                    prop_assert!(may_fail(name) && e.retry() != dma::Retry::Never, "{}: {}", name, e);
                    prop_assert!(e.operation().contains("/to from device memory"), "{}", e);
                    prop_assert_eq!(std::fs::read(&to).expect("readable"), b"before");
                    pieces = same;
                }
            }
            prop_assert_eq!(names(folder.path()).len(), 2);
        }
        prop_assert_eq!(names(folder.path()).len(), 2);
        setup.settle();
    }
}

fn may_fail(name: &str) -> bool {
    name.contains("faults") || name == "standin-gpu:2"
}

fn futures<F: Future + Unpin>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

#[test]
fn many_small_pieces_share_blocks() {
    for name in ["cpu", "sim:device_memory=8M", "standin-gpu:0"] {
        let setup = Setup::simple(name);
        let content = bytes(100_000, 5);
        let folder = folder();
        let path = folder.path().join("file");
        std::fs::write(&path, &content).expect("written");
        // Single bytes, of which every tenth is left out, in the reverse order of the file's bytes.
        let whole = window(&setup.engine, content.len());
        let ats: Vec<_> = (0..content.len()).filter(|at| at % 10 != 7).collect();
        let pieces = ats
            .iter()
            .map(|&at| {
                FilePiece::new(at as u64..at as u64 + 1, whole.slice(content.len() - 1 - at..).slice(..1))
            })
            .collect();
        let (pieces, read) = setup
            .files
            .read(&DmaFile::open(&path).expect("it opens"), pieces)
            .expect("valid")
            .wait()
            .expect("read");
        assert_eq!(read, ats.len());
        let there = download(&setup.engine, &whole);
        assert!(ats.iter().all(|&at| there[content.len() - 1 - at] == content[at]));
        let to = folder.path().join("to");
        setup.files.save(&to, pieces).expect("valid").wait().expect("saved");
        let saved = std::fs::read(&to).expect("readable");
        assert!((0..saved.len()).all(|at| saved[at] == if at % 10 == 7 { 0 } else { content[at] }));
    }
}

#[test]
fn wrong_pieces_are_refused_before_anything_is_read_or_written() {
    let (setup, other) = (Setup::simple("sim:device_memory=8M"), Setup::simple("sim:device_memory=8M"));
    let folder = folder();
    let (path, to) = (folder.path().join("file"), folder.path().join("to"));
    std::fs::write(&path, bytes(10_000, 0)).expect("written");
    let file = OpenFile::new().with_write(true).open(&path).expect("it opens");
    let on_device = window(&setup.engine, 20_000);
    let read_only = setup
        .engine
        .register_window(
            HostMemory::from_owner(vec![1; 100]),
            &MemoryRequest::new(0).with_access(Access::READ),
        )
        .expect("registered");
    let piece = |range, window: &Window| FilePiece::new(range, window.clone());
    let good = piece(0..10, &on_device.slice(..10));
    let backwards = std::ops::Range { start: 9, end: 4 };
    let both = [
        (piece(0..100, &on_device.slice(..99)), ErrorKind::LengthMismatch, Some((100, 99))),
        (piece(0..100, &on_device.slice(..101)), ErrorKind::LengthMismatch, Some((100, 101))),
        (piece(backwards, &on_device.slice(..5)), ErrorKind::InvalidArgument, None),
        (
            piece(u64::MAX - 5..u64::MAX, &on_device.slice(..5)),
            ErrorKind::OutOfRange,
            Some((u64::MAX, i64::MAX as u64)),
        ),
        (piece(20..30, &window(&other.engine, 10)), ErrorKind::WrongEngine, None),
    ];
    let reads = [
        (piece(9_990..10_001, &on_device.slice(100..111)), ErrorKind::OutOfRange, Some((10_001, 10_000))),
        (piece(20..30, &on_device.slice(9..19)), ErrorKind::Overlap, None),
        (piece(20..120, &read_only), ErrorKind::AccessDenied, None),
    ];
    let writes = [(piece(9..19, &on_device.slice(100..110)), ErrorKind::Overlap, None)];
    type Case = (FilePiece, ErrorKind, Option<(u64, u64)>);
    let check =
        |what: &str, cases: &[Case], operation: &dyn Fn(Vec<FilePiece>) -> FileError<Vec<FilePiece>>| {
            for (bad, kind, numbers) in cases {
                let (e, pieces) = failed(operation(vec![good.clone(), bad.clone()]));
                assert_eq!((e.kind(), pieces.len()), (*kind, 2), "{what}: {e}");
                assert_eq!(e.requested().zip(e.limit()), *numbers, "{what}: {e}");
                assert!(e.operation().contains(what), "{what}: {e}");
            }
        };
    let read = |pieces| setup.files.read(&file, pieces).expect_err("refused");
    let write = |pieces| setup.files.write(&file, pieces).expect_err("refused");
    let save = |pieces| setup.files.save(&to, pieces).expect_err("refused");
    check("file", &both, &read);
    check("file", &reads, &read);
    check("file", &both, &write);
    check("file", &writes, &write);
    check("to", &both, &save);
    check("to", &writes, &save);
    assert_eq!(names(folder.path()), ["file"]);
    assert_eq!(std::fs::read(&path).expect("readable"), bytes(10_000, 0));

    // Zero pieces, and empty ones.
    assert_eq!(setup.files.read(&file, vec![]).expect("valid").wait().expect("read").1, 0);
    let empty = vec![piece(5..5, &on_device.slice(..0)), piece(90_000..90_000, &on_device.slice(..0))];
    let (empty, read) = setup.files.read(&file, empty).expect("valid").wait().expect("read");
    assert_eq!((empty.len(), read), (2, 0));
    setup.files.save(&to, empty).expect("valid").wait().expect("saved");
    assert_eq!(std::fs::read(&to).expect("readable"), b"");

    // Files without ranges, and files that ignore them.
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    let pipe = DmaFile::from(std::fs::File::from(pipe));
    let (e, _) = failed(setup.files.read(&pipe, vec![good.clone()]).expect_err("a pipe"));
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    let appended = std::fs::OpenOptions::new().append(true).open(&path).expect("it opens");
    let (e, _) =
        failed(setup.files.write(&DmaFile::from(appended), vec![good.clone()]).expect_err("appends"));
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    let (e, _) = failed(setup.files.save("/dev/null", vec![good.clone()]).expect_err("a device"));
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    let (e, _) = failed(setup.files.save(folder.path().join("no/file"), vec![good]).expect_err("no folder"));
    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");

    // Queue and pool of different engines.
    let queue = other.engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    let mixed = DeviceFiles::new(&queue, &setup.pool, &FileQueueOptions::new()).expect("it opens");
    let pieces = vec![piece(0..10, &on_device.slice(..10))];
    let (e, _) = failed(mixed.read(&file, pieces).expect("valid").wait().expect_err("two engines"));
    assert_eq!(e.kind(), ErrorKind::WrongEngine, "{e}");
}

#[test]
fn errors_of_the_file_name_its_bytes() {
    for method in [Method::IoUring, Method::Threads] {
        let Some(setup) = Setup::new("standin-gpu:0", (8192, 3), 64, Some(method)) else { continue };
        let on_device = window(&setup.engine, 100_000);
        let folder = folder();
        let path = folder.path().join("file");
        // The file becomes shorter between the check and the reads.
        std::fs::write(&path, bytes(100_000, 0)).expect("written");
        let file = OpenFile::new().with_write(true).open(&path).expect("it opens");
        let pieces = vec![FilePiece::new(0..100_000, on_device.clone())];
        let read = setup.files.read(&file, pieces).expect("valid");
        std::fs::File::options().write(true).open(&path).expect("it opens").set_len(50_001).expect("shorter");
        let (e, pieces) = failed(read.wait().expect_err("too short"));
        assert_eq!((e.kind(), e.limit(), pieces.len()), (ErrorKind::OutOfRange, Some(50_001), 1), "{e}");
        assert!(
            e.operation().contains("bytes 49152 to 57344 of /") && e.operation().contains("/file into"),
            "{e}"
        );
        setup.settle();
        // A file that was opened for reading only, and a full disk.
        let e = setup.files.write(&DmaFile::open(&path).expect("it opens"), pieces).expect("valid").wait();
        let (e, pieces) = failed(e.expect_err("read-only"));
        assert!(e.kind() == ErrorKind::Os && e.operation().starts_with("write bytes "), "{e}");
        let full = OpenFile::new().with_write(true).open("/dev/full").expect("Linux has it");
        let (e, _) = failed(setup.files.write(&full, pieces).expect("valid").wait().expect_err("full"));
        assert_eq!(e.kind(), ErrorKind::OutOfResources, "{e}");
        assert!(e.operation().contains("of /dev/full from device memory"), "{e}");
        setup.settle();
    }
}

#[test]
fn device_faults_and_stalls_leave_no_file() {
    for (faults, kind) in [
        ("fail@5", ErrorKind::DeviceFault),
        ("reset@5", ErrorKind::DeviceFault),
        ("gone@5", ErrorKind::DeviceLost),
        ("stick@5", ErrorKind::TimedOut),
    ] {
        let engine = open(&format!("sim:device_memory=8M,faults={faults}"));
        let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(8192, 2)).expect("a pool");
        // Only a device that never answers is waited for in vain, so that the others have all the time.
        let options = match kind {
            ErrorKind::TimedOut => QueueOptions::new()
                .with_stall_timeout(Duration::from_millis(50))
                .with_drop_timeout(Duration::from_millis(50)),
            _ => QueueOptions::new(),
        };
        let queue =
            engine.open_shared_queue(&SharedQueueOptions::new().with_queue(options)).expect("a queue");
        let files = DeviceFiles::new(&queue, &pool, &FileQueueOptions::new()).expect("it opens");
        let folder = folder();
        let to = folder.path().join("to");
        let pieces = vec![FilePiece::new(0..100_000, window(&engine, 100_000))];
        let e = files.save(&to, pieces).expect("valid").wait().expect_err(faults);
        let (e, pieces) = failed(e);
        assert!(e.kind() == kind || (faults == "reset@5" && e.kind() == ErrorKind::Aborted), "{faults}: {e}");
        assert!(e.operation().contains("/to from device memory") && e.operation().contains("bytes "), "{e}");
        assert_eq!(e.backend(), "sim", "{e}");
        assert!(names(folder.path()).is_empty(), "{faults}");
        if kind == ErrorKind::DeviceFault {
            files.save(&to, pieces).expect("valid").wait().expect("the device works again");
            assert_eq!(std::fs::read(&to).expect("readable"), vec![0; 100_000]);
        }
    }
}

/// A failure that ends a GPU's context leaves neither a file nor a wait without an end.
#[test]
fn a_lost_gpu_leaves_no_file() {
    let engine = open("standin-gpu:3");
    // The engine never reports operations of a lost context, so their waits end as if the device had stalled.
    let options = QueueOptions::new()
        .with_stall_timeout(Duration::from_millis(50))
        .with_drop_timeout(Duration::from_millis(50));
    let options = SharedQueueOptions::new().with_queue(options);
    let folder = folder();
    let to = folder.path().join("to");
    std::fs::write(&to, "before").expect("written");
    let is_lost = || engine.allocate(64).is_err_and(|e| e.kind() == ErrorKind::DeviceLost);
    // On a slow machine, the queue may report a stall before the device fails.
    for _attempt in 0..100 {
        let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(8192, 2)).expect("a pool");
        let queue = engine.open_shared_queue(&options).expect("a queue");
        let files = DeviceFiles::new(&queue, &pool, &FileQueueOptions::new()).expect("it opens");
        let pieces = vec![FilePiece::new(0..100_000, window(&engine, 100_000))];
        let (e, _) = failed(files.save(&to, pieces).expect("valid").wait().expect_err("the device fails"));
        assert!(matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::TimedOut), "{e}");
        assert!(e.operation().contains("/to from device memory") && e.backend() == "cuda", "{e}");
        assert_eq!(std::fs::read(&to).expect("readable"), b"before");
        assert_eq!(names(folder.path()), ["to"]);
        if is_lost() {
            return;
        }
    }
    panic!("the context was not lost");
}

const FULL_DISK: &str = "DMA_TEST_FULL_DISK";
/// Size of the file system that becomes full.
const DISK_LEN: u64 = 256 << 10;

/// Runs as the child process of the test below, with a small file system.
#[test]
#[ignore = "the next test runs this in a separate process"]
fn full_disk_child() {
    let Some(disk) = std::env::var_os(FULL_DISK) else { return };
    let disk = Path::new(&disk);
    let to = disk.join("to");
    for name in ["cpu", "sim:device_memory=8M", "standin-gpu:1"] {
        for method in [Method::IoUring, Method::Threads] {
            let Some(setup) = Setup::new(name, (16 << 10, 3), 64, Some(method)) else { continue };
            std::fs::write(&to, "before").expect("written");
            let whole = window(&setup.engine, 600_000);
            let is_unchanged = || {
                setup.settle();
                assert_eq!(names(disk), ["to"], "{name}");
                assert_eq!(std::fs::read(&to).expect("readable"), b"before", "{name}");
            };
            // Without and with a hole.
            for gap in [0, 5000] {
                let pieces = vec![
                    FilePiece::new(0..1, whole.slice(..1)),
                    FilePiece::new(1 + gap..600_000 + gap, whole.slice(1..)),
                ];
                let mut save = setup.files.save(&to, pieces).expect("valid");
                assert!(save.wait_timeout(LONG));
                // The failure may be reported before the first bytes.
                assert!(save.moved() < DISK_LEN, "{name}: {} bytes", save.moved());
                let (e, pieces) = failed(save.wait().expect_err("no space"));
                assert_eq!((e.kind(), pieces.len()), (ErrorKind::OutOfResources, 2), "{name}: {e}");
                let operation = e.operation();
                assert!(
                    operation.contains("/to from device memory") && operation.contains("bytes "),
                    "{operation}"
                );
                is_unchanged();
            }
            // All space is free again, as soon as the kernel has released the last operation's file.
            let begin = Instant::now();
            loop {
                let pieces = vec![FilePiece::new(0..100_000, whole.slice(..100_000))];
                match setup.files.save(&to, pieces).expect("valid").wait() {
                    Ok(_) => break,
                    Err(e) => assert!(begin.elapsed() < LONG, "{name}: {}", e.error()),
                }
            }
            assert_eq!(std::fs::read(&to).expect("readable").len(), 100_000);
            println!("full: {name} {method:?}");
        }
    }
}

#[test]
fn a_disk_that_becomes_full_leaves_the_old_file() {
    let folder = folder();
    let mount = format!("mount -t tmpfs -o size={DISK_LEN} none \"$0\" && exec \"$@\"");
    let inside = |program: &Path| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &mount]).arg(folder.path()).arg(program);
        command
    };
    let probe = inside("true".as_ref()).stderr(std::process::Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: this user may not mount a file system");
        return;
    }
    let mut child = inside(&std::env::current_exe().expect("this program"));
    child.args(["--exact", "full_disk_child", "--ignored", "--nocapture", "--test-threads=1"]);
    let output = child.env(FULL_DISK, folder.path()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("full: standin-gpu:1 Threads"), "{text}{error}");
}

#[test]
fn cancelled_and_dropped_transfers_leave_neither_file_nor_buffers() {
    for name in ["cpu", "sim:device_memory=8M", "standin-gpu:1"] {
        let setup = Setup::simple(name);
        let folder = folder();
        let (path, to) = (folder.path().join("file"), folder.path().join("to"));
        let content = bytes(300_000, 1);
        std::fs::write(&path, &content).expect("written");
        let file = open_file(&path, &OpenFile::new());
        let mut pieces = vec![FilePiece::new(0..300_000, window(&setup.engine, 300_000))];
        for polls in 0..40 {
            for saves in [false, true] {
                let start = |pieces| match saves {
                    false => setup.files.read(&file, pieces).expect("valid"),
                    true => setup.files.save(&to, pieces).expect("valid"),
                };
                // Cancelled.
                let mut transfer = start(pieces);
                let ended = end_within(polls, &mut transfer);
                transfer.cancel();
                match ended.unwrap_or_else(|| transfer.wait()) {
                    Ok((same, _)) => pieces = same,
                    Err(e) => {
                        let (e, same) = e.into_parts();
                        assert_eq!(e.kind(), ErrorKind::Aborted, "{e}");
                        assert!(!to.exists());
                        pieces = same.expect("no fork");
                    }
                }
                // Dropped.
                let mut transfer = start(pieces.clone());
                _ = end_within(polls, &mut transfer);
                drop(transfer);
                assert!(names(folder.path()).iter().all(|name| name == "file" || name == "to"));
                setup.settle();
                _ = std::fs::remove_file(&to);
            }
        }
        let (pieces, _) = setup.files.read(&file, pieces).expect("valid").wait().expect("read");
        assert!(download(&setup.engine, &pieces[0].window) == content);
    }
}

/// Polls a future so many times, or until it has ended, and returns its result then.
fn end_within<F: Future + Unpin>(polls: u32, future: &mut F) -> Option<F::Output> {
    (0..polls).find_map(|_| match poll(future) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    })
}

/// Polls a future once.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn transfers_share_one_pool_and_one_queue() {
    let setup = Setup::new("standin-gpu:1", (8192, 3), 2, None).expect("a method");
    let folder = folder();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let (files, engine) = (setup.files.clone(), Arc::clone(&setup.engine));
            let (path, to) =
                (folder.path().join(format!("{number}")), folder.path().join(format!("to{number}")));
            runtime.spawn(async move {
                let content = bytes(100_000 + number, number);
                std::fs::write(&path, &content).expect("written");
                let piece = FilePiece::new(0..content.len() as u64, window(&engine, content.len()));
                let file = open_file(&path, &OpenFile::new());
                let (pieces, _) = files.read(&file, vec![piece]).expect("valid").await.expect("read");
                files.save(&to, pieces).expect("valid").await.expect("saved");
                assert!(std::fs::read(&to).expect("readable") == content);
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    setup.settle();
}

#[test]
fn a_saved_file_replaces_another_one_with_its_rights() {
    use std::os::unix::fs::PermissionsExt;
    let setup = Setup::simple("sim:device_memory=8M");
    let folder = folder();
    let to = folder.path().join("to");
    std::fs::write(&to, "before").expect("written");
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o640)).expect("set");
    let on_device = window(&setup.engine, 50_000);
    upload(&setup.engine, &on_device, &bytes(50_000, 9));
    // A header in host memory, a hole, and a tensor.
    let mut header = setup.engine.allocate(8).expect("memory");
    header.copy_from_slice(b"a header");
    let pieces = vec![FilePiece::new(0..8, header.share()), FilePiece::new(5000..55_000, on_device)];
    let save = setup.files.save(&to, pieces).expect("valid");
    assert_eq!(std::fs::read(&to).expect("readable"), b"before");
    assert_eq!(save.wait().expect("saved").1, 50_008);
    let saved = std::fs::read(&to).expect("readable");
    assert!(saved[..8] == *b"a header" && saved[8..5000] == [0; 4992] && saved[5000..] == bytes(50_000, 9));
    assert_eq!(std::fs::metadata(&to).expect("it exists").permissions().mode() & 0o777, 0o640);
}
