//! The pipeline, which reads, copies by DMA and writes at the same time.
//!
//! Each worker is a thread with a queue and buffers. A worker reads the next chunk of SRC into a free
//! buffer, submits its copy, and writes copies that are done. While one worker reads, another one writes,
//! and up to `--depth` copies are in flight. Each copy in flight has one pair of buffers, so memory is
//! bounded, and a slow disk or device causes back-pressure.
//!
//! A worker reads, copies and writes a chunk on one core, and reuses the last buffer. So with a software
//! engine, the chunk stays in that core's cache. A version that passed chunks from a reading to a writing
//! thread was 17 % slower.

use std::convert::Infallible;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dma::{BufferMut, CacheHint, DmaEngine, DmaEngineExt, QueueOptions};
use indicatif::ProgressBar;
use twox_hash::XxHash3_128;

use crate::copies::{Copies, Done};
use crate::digest;
use crate::failure::{Failure, check_interrupt, failure};
use crate::files::Target;
use crate::options::Options;
use crate::pieces::{Piece, Pieces};
use apps_shared::command;
use apps_shared::disk::Source;
use apps_shared::hold;

/// Number of workers. One worker reads while the other worker writes. More workers would not help, because
/// the kernel serializes writes to one file.
const WORKERS: usize = 2;
/// Number of attempts to take the writing lock before a worker sleeps. All attempts together take longer than
/// writing a chunk, so a worker rarely sleeps.
const SPINS: u32 = 4000;

#[derive(Debug)]
pub(crate) struct Copied {
    /// Number of bytes copied, without holes.
    pub(crate) data: u64,
    /// Number of copies that were submitted again, mostly after a device reset.
    pub(crate) retries: u64,
    /// The digest of all bytes read, in which holes count as zeros. Only with `--verify`.
    pub(crate) digest: Option<u128>,
}

pub(crate) fn copy(
    engine: &dyn DmaEngine,
    source: &Source,
    target: &Target,
    options: &Options,
    bar: &ProgressBar,
) -> Result<Copied, Failure> {
    let chunks = source.len().div_ceil(options.chunk as u64);
    let pairs = chunks.clamp(1, u64::from(options.depth)) as usize;
    check_memory(2 * pairs as u64 * options.chunk as u64)?;
    if source.is_sparse() {
        // Sets the length, because a hole at the end is never written.
        target.file().set_len(source.len()).map_err(|e| target.explain(&e))?;
    }
    let workers = pairs.min(WORKERS).min(engine.info().limits.max_queues.unwrap_or(WORKERS));
    let pieces = Pieces::new(&source.file, source.len(), source.is_sparse(), options.chunk);
    let job = Job {
        engine,
        source,
        target,
        chunk: options.chunk,
        bar,
        reading: Mutex::new(Reading { pieces, hasher: options.verify.then(XxHash3_128::new) }),
        writing: Mutex::new(()),
        data: AtomicU64::new(0),
        retries: AtomicU64::new(0),
        failed: OnceLock::new(),
    };
    std::thread::scope(|scope| {
        let job = &job;
        // No worker reads before all of them have opened their queues. Otherwise a device that is lost by the
        // first copy would make opening a queue fail, and hide the reason.
        let reading = job.reading();
        let (opened, all_opened) = mpsc::channel();
        let start = |i| {
            let opened = opened.clone();
            let pairs = pairs / workers + usize::from(i < pairs % workers);
            let started = std::thread::Builder::new().spawn_scoped(scope, move || job.work(pairs, opened));
            if let Err(e) = started {
                job.fail(failure!(
                    "the system cannot start a thread: {e}; raise the limits on threads (ulimit -u, pids.max) and on address space (ulimit -v)"
                ));
            }
        };
        (0..workers).for_each(start);
        drop(opened);
        // Fails as soon as every worker has dropped its end of the channel.
        _ = all_opened.recv();
        drop(reading);
        // The scope joins the threads.
    });
    if let Some(failure) = job.failed.into_inner() {
        return Err(failure);
    }
    let reading = job.reading.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Copied {
        data: job.data.into_inner(),
        retries: job.retries.into_inner(),
        digest: reading.hasher.map(|hasher| hasher.finish_128()),
    })
}

/// Refuses buffers larger than the memory that the machine and the control groups leave to this process.
pub(crate) fn check_memory(needed: u64) -> Result<(), Failure> {
    match dma::process::available_memory().filter(|available| needed > *available) {
        Some(available) => Err(failure!(
            "--chunk and --depth need {needed} bytes of memory, and {available} are available; lower --chunk or --depth"
        )),
        None => Ok(()),
    }
}

/// Allocates `count` buffers of `chunk` bytes in one region.
fn buffers(engine: &dyn DmaEngine, count: usize, chunk: usize) -> Result<Vec<BufferMut>, Failure> {
    let mut all = engine.allocate(count * chunk)?;
    Ok((0..count).map(|_| all.split_to(chunk)).collect())
}

/// The state shared by the workers.
struct Job<'a> {
    engine: &'a dyn DmaEngine,
    source: &'a Source,
    target: &'a Target,
    chunk: usize,
    bar: &'a ProgressBar,
    reading: Mutex<Reading<'a>>,
    /// Held by the worker that writes. The kernel also serializes writes to one file, but the kernel's lock
    /// takes longer to pass to the next writer.
    writing: Mutex<()>,
    data: AtomicU64,
    retries: AtomicU64,
    /// The first failure of a worker, after which the other workers stop. They may fail, too, because a lost
    /// device fails everything that follows.
    failed: OnceLock<Failure>,
}

/// The position in SRC.
struct Reading<'a> {
    pieces: Pieces<'a>,
    hasher: Option<XxHash3_128>,
}

impl<'f> Job<'f> {
    /// Runs one worker with `pairs` pairs of buffers until everything is copied. Drops `opened` when its
    /// queue is open.
    fn work(&self, pairs: usize, opened: Sender<Infallible>) {
        if let Err(failure) = self.try_work(pairs, opened) {
            self.fail(failure);
        }
    }

    /// Records a failure, unless another worker has failed before.
    fn fail(&self, failure: Failure) {
        _ = self.failed.set(failure);
    }

    /// Takes the writing lock. Spins first, because a write takes less time than waking a thread.
    fn lock_writing(&self) -> MutexGuard<'_, ()> {
        for _ in 0..SPINS {
            match self.writing.try_lock() {
                Ok(turn) => return turn,
                Err(_) => std::hint::spin_loop(),
            }
        }
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self) -> MutexGuard<'_, Reading<'f>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work of [`work`](Self::work), without the report of a failure to other workers.
    fn try_work(&self, pairs: usize, opened: Sender<Infallible>) -> Result<(), Failure> {
        let options = QueueOptions::new()
            .with_depth(pairs)
            // Tells the engine that the bytes are in the caches, because they were just read.
            .with_hint(CacheHint::Hot)
            .with_drop_timeout(Duration::from_secs(1));
        let mut worker = Worker {
            job: self,
            copies: Copies::open(self.engine, &options)?,
            sources: buffers(self.engine, pairs, self.chunk)?,
            destinations: buffers(self.engine, pairs, self.chunk)?,
        };
        drop(opened);
        let mut reading = true;
        while reading || worker.copies.len() > 0 {
            check_interrupt()?;
            if self.failed.get().is_some() {
                return Ok(());
            }
            if reading && !worker.sources.is_empty() {
                reading = worker.read()?;
            } else {
                worker.copies.wait()?;
            }
            while worker.write()? {}
        }
        self.retries.fetch_add(worker.copies.retries, Ordering::Relaxed);
        Ok(())
    }
}

/// A worker: a queue, and buffers that are either free or in flight.
struct Worker<'a, 'f> {
    job: &'a Job<'f>,
    /// Keeps the unused rests of both buffers, if the chunk is shorter than a buffer.
    copies: Copies<(BufferMut, BufferMut)>,
    sources: Vec<BufferMut>,
    destinations: Vec<BufferMut>,
}

impl Worker<'_, '_> {
    /// Reads the next piece of SRC and submits its copy. Returns false at the end of SRC.
    fn read(&mut self) -> Result<bool, Failure> {
        let source = self.job.source;
        let mut reading = self.job.reading();
        let piece = reading.pieces.next().map_err(|e| failure!("cannot look for holes in SRC: {e}"))?;
        let (offset, len) = match piece {
            None => return Ok(false),
            Some(Piece::Hole { len }) => {
                if let Some(hasher) = &mut reading.hasher {
                    digest::add_zeros(hasher, len)?;
                }
                self.job.bar.inc(len);
                return Ok(true);
            }
            Some(Piece::Data { offset, len }) => (offset, len),
        };
        // The digest needs the bytes in order, so a worker holds the lock while it reads.
        let mut in_order = reading.hasher.is_some().then_some(reading);
        let (Some(mut src), Some(mut dst)) = (self.sources.pop(), self.destinations.pop()) else {
            return Err(failure!("no free buffer"));
        };
        let rests = (src.split_off(len), dst.split_off(len));
        source.file.read_exact_at(&mut src, offset).map_err(|e| Failure::from(source.explain(offset, &e)))?;
        if let Some(hasher) = in_order.as_mut().and_then(|reading| reading.hasher.as_mut()) {
            hasher.write(&src);
        }
        drop(in_order);
        self.copies.submit((src, dst), offset, rests)?;
        Ok(true)
    }

    /// Writes the oldest copy if it is done. Returns whether it was.
    fn write(&mut self) -> Result<bool, Failure> {
        let Some(Done { mut src, mut dst, offset, kept: rests }) = self.copies.next_done()? else {
            return Ok(false);
        };
        let target = self.job.target;
        let turn = self.job.lock_writing();
        target.file().write_all_at(&dst, offset).map_err(|e| target.explain(&e))?;
        drop(turn);
        let len = dst.len() as u64;
        self.job.data.fetch_add(len, Ordering::Relaxed);
        self.job.bar.inc(len);
        hold::reached("chunk", command::interrupted);
        src.unsplit(rests.0).expect("they were one buffer");
        dst.unsplit(rests.1).expect("they were one buffer");
        self.sources.push(src);
        self.destinations.push(dst);
        Ok(true)
    }
}
