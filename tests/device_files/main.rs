//! Files that are read into device memory and written from it, on the CPU, the simulated device and the GPU
//! stand-in: random ranges, pools, queues and faults against an oracle in ordinary memory, and each error.

mod cancel;
mod errors;
mod faults;
mod full_disk;
#[path = "../state_machine/standin_gpu.rs"]
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
