//! Reads a file into device memory and saves it, on a GPU stand-in whose copies take no time of their own,
//! against the disk alone and against loops that handle one block after the other.
//!
//! `cargo bench -p dma-cuda --bench device_files [-- --fio PROGRAM] [FOLDER]` prints, for each length and
//! number of buffers, the rates and their ratios. All ways run in turns, in the reverse order in every other
//! round, because a disk that others share has bursts. Each way begins after a pause, because a disk with a
//! limit on its rate saves up credit while it is idle, as while `fio` starts. A figure is the median over the
//! rounds, and a ratio is the median of the ratios within the rounds. `fio` reads the same file with the same
//! block length and depth. Without it, a file queue that only reads stands for the disk. No reader is faster
//! than the disk, so `disk/loop` is the limit of `read/loop`.
#![expect(unsafe_code, reason = "passes the stand-in's functions to the engine")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dma_core::{BufferPool, DmaEngineExt, PoolOptions, Queue, QueueOptions, SharedQueueOptions, Window};
use dma_cuda::{CudaDevice, CudaEngine, CudaOptions, Driver};
use dma_files::{DeviceFiles, DmaFile, FilePiece, FileQueue, FileQueueOptions, OpenFile};

/// Idle time before each way.
const PAUSE: Duration = Duration::from_millis(300);

const GPU: &str = "memory = '600M'\n[[gpu]]\n";

struct Bench {
    path: PathBuf,
    len: usize,
    engine: CudaEngine,
    window: Window,
    fio: Option<PathBuf>,
}

/// A block length and a number of buffers, with all that the ways need.
struct Ways<'a> {
    bench: &'a Bench,
    file: DmaFile,
    block: usize,
    depth: usize,
    files: DeviceFiles,
    disk: FileQueue,
    pool: BufferPool,
    queue: Queue,
}

impl<'a> Ways<'a> {
    fn new(bench: &'a Bench, block: usize, depth: usize) -> Self {
        let engine = &bench.engine;
        let pool = BufferPool::new(engine, &PoolOptions::new().with_class(block, depth)).expect("a pool");
        let shared = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
        let open = OpenFile::new();
        let direct = open.clone().with_direct(true).open(&bench.path);
        if let Err(e) = &direct {
            println!("not direct: {e}");
        }
        Self {
            bench,
            file: direct.or_else(|_| open.open(&bench.path)).expect("it opens"),
            block,
            depth,
            files: DeviceFiles::new(&shared, &pool, &FileQueueOptions::new()).expect("it opens"),
            disk: FileQueue::with_pools(&FileQueueOptions::new(), &[&pool]).expect("it opens"),
            queue: engine.open_queue(&QueueOptions::new()).expect("a queue"),
            pool,
        }
    }

    /// Returns the rate of the disk alone in bytes per second, by fio or by a file queue.
    fn disk(&self) -> f64 {
        let Bench { path, len, fio, .. } = self.bench;
        if let Some(fio) = fio {
            let output = Command::new(fio)
                .args(["--name=disk", "--rw=read", "--direct=1", "--ioengine=io_uring", "--minimal"])
                .arg(format!("--filename={}", path.display()))
                .arg(format!("--bs={}", self.block))
                .arg(format!("--iodepth={}", self.depth))
                .output()
                .expect("fio starts");
            let text = String::from_utf8_lossy(&output.stdout);
            // The seventh field is the rate of reads in KiB/s.
            let rate = text.split(';').nth(6).and_then(|field| field.parse::<f64>().ok());
            return 1024.0 * rate.unwrap_or_else(|| panic!("fio: {text}"));
        }
        let begin = Instant::now();
        let mut reads = std::collections::VecDeque::new();
        for offset in (0..*len).step_by(self.block) {
            if reads.len() == self.depth {
                let read: dma_files::FileTransfer<_> = reads.pop_front().expect("a read");
                drop(read.wait().expect("read"));
            }
            let buffer = self.pool.try_get(self.block).expect("free");
            reads.push_back(self.disk.read_at(&self.file, offset as u64, buffer).expect("room"));
        }
        reads.into_iter().for_each(|read| drop(read.wait().expect("read")));
        self.rate(begin)
    }

    /// The file into device memory.
    fn read(&self) -> f64 {
        let begin = Instant::now();
        let piece = FilePiece::new(0..self.bench.len as u64, self.bench.window.clone());
        self.files.read(&self.file, vec![piece]).expect("valid").wait().expect("read");
        self.rate(begin)
    }

    /// A loop that reads a block and then copies it.
    fn read_loop(&self) -> f64 {
        let begin = Instant::now();
        let mut buffer = self.pool.try_get(self.block).expect("free");
        for offset in (0..self.bench.len).step_by(self.block) {
            buffer =
                self.disk.read_at(&self.file, offset as u64, buffer).expect("room").wait().expect("read").0;
            let window = self.bench.window.slice(offset..offset + self.block);
            buffer = self.queue.copy(buffer, window).expect("room").wait().expect("copied").0;
        }
        self.rate(begin)
    }

    /// Device memory into a file, on the disk and with its name.
    fn save(&self, to: &Path) -> f64 {
        let begin = Instant::now();
        let piece = FilePiece::new(0..self.bench.len as u64, self.bench.window.clone());
        self.files.save(to, vec![piece]).expect("valid").wait().expect("saved");
        self.rate(begin)
    }

    /// A loop that copies a block and then writes it, and syncs the file at the end.
    fn save_loop(&self, to: &Path) -> f64 {
        let begin = Instant::now();
        let open = OpenFile::new().with_create(true);
        let file = open.clone().with_direct(true).open(to).or_else(|_| open.open(to)).expect("it opens");
        let mut buffer = self.pool.try_get(self.block).expect("free");
        for offset in (0..self.bench.len).step_by(self.block) {
            let window = self.bench.window.slice(offset..offset + self.block);
            buffer = self.queue.copy(window, buffer).expect("room").wait().expect("copied").1;
            buffer =
                self.disk.write_at(&file, offset as u64, buffer).expect("room").wait().expect("written").0;
        }
        self.disk.sync(&file).expect("room").wait().expect("synced");
        self.rate(begin)
    }

    fn rate(&self, begin: Instant) -> f64 {
        self.bench.len as f64 / begin.elapsed().as_secs_f64()
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let mut args: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let test = args.iter().position(|arg| arg == "--test").map(|at| args.remove(at)).is_some();
    let fio = args
        .iter()
        .position(|arg| arg == "--fio")
        .map(|at| PathBuf::from(args.drain(at..at + 2).nth(1).unwrap()));
    let folder = args.pop().unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").to_owned());
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    let (len, rounds) = if test { (4 << 20, 1) } else { (256 << 20, 9) };

    cuda_emu::use_config(GPU).expect("a valid configuration");
    // SAFETY: the stand-in's functions have the declared signatures, and are never unloaded.
    let driver = unsafe { Driver::load(cuda_emu::symbol) }.expect("the stand-in has all functions");
    let options = CudaOptions::new().with_device(CudaDevice::Ordinal(0));
    // SAFETY: the stand-in's functions behave as CUDA's, and are never unloaded.
    let engine = unsafe { CudaEngine::open_with(&driver, &options) }.expect("it opens");
    let window = engine.allocate_device(len).expect("memory");
    let path = folder.path().join("file");
    let content: Vec<u8> = (0..len as u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    std::fs::write(&path, &content).expect("written");
    std::fs::File::open(&path).and_then(|file| file.sync_all()).expect("synced");
    let bench = Bench { path, len, engine, window, fio };
    let to = folder.path().join("to");

    let disk = if bench.fio.is_some() { "fio" } else { "a file queue" };
    println!("{} MiB, {rounds} rounds; GB/s of {disk}, `read`, a loop, `save`, a loop; ratios", len >> 20);
    println!(
        "{:>8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}  {:>9} {:>9} {:>9} {:>9}",
        "block",
        "depth",
        "disk",
        "read",
        "loop",
        "save",
        "loop",
        "read/disk",
        "read/loop",
        "disk/loop",
        "save/loop"
    );
    for (block, depth) in [(1 << 20, 16), (1 << 20, 4), (256 << 10, 32), (64 << 10, 64)] {
        let ways = Ways::new(&bench, block, depth);
        ways.read();
        let mut figures = Vec::new();
        for round in 0..rounds {
            let mut rates = [0.0; 5];
            for turn in 0..rates.len() {
                let way = if round % 2 == 0 { turn } else { rates.len() - 1 - turn };
                if !test {
                    std::thread::sleep(PAUSE);
                }
                rates[way] = match way {
                    0 => ways.disk(),
                    1 => ways.read(),
                    2 => ways.read_loop(),
                    3 => ways.save(&to),
                    _ => ways.save_loop(&to),
                };
            }
            figures.push(rates);
        }
        assert!(std::fs::read(&to).expect("readable") == content, "the bytes went to the device and back");
        let of = |way: usize| median(figures.iter().map(|figures| figures[way])) / 1e9;
        let ratio = |way: usize, to: usize| median(figures.iter().map(|figures| figures[way] / figures[to]));
        println!(
            "{block:8} {depth:6} {:6.2} {:6.2} {:6.2} {:6.2} {:6.2}  {:9.2} {:9.2} {:9.2} {:9.2}",
            of(0),
            of(1),
            of(2),
            of(3),
            of(4),
            ratio(1, 0),
            ratio(1, 2),
            ratio(0, 2),
            ratio(3, 4)
        );
    }
}
