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

use std::collections::VecDeque;
use std::convert::Infallible;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dma::{BufferMut, CacheHint, DmaEngine, DmaEngineExt, Queue, QueueOptions, Retry, Transfer};
use indicatif::ProgressBar;
use twox_hash::XxHash3_128;

use crate::digest;
use crate::failure::{Failure, check_interrupt, failure};
use crate::files::Target;
use crate::options::Options;
use crate::pieces::{Piece, Pieces};
use apps_shared::command::{self, tries_after};
use apps_shared::disk::Source;
use apps_shared::hold;
use dma::process::count;

/// Number of workers. One worker reads while the other worker writes. More workers would not help, because
/// the kernel serializes writes to one file.
const WORKERS: usize = 2;
/// Number of attempts to take the writing lock before a worker sleeps. All attempts together take longer than
/// writing a chunk, so a worker rarely sleeps.
const SPINS: u32 = 4000;
/// Time after which a device that has work and completes nothing counts as stalled.
pub(crate) const STALL: Duration = Duration::from_secs(10);
/// Maximum time between two checks for an interrupt.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
            queue: self.engine.open_queue(&options)?,
            sources: buffers(self.engine, pairs, self.chunk)?,
            destinations: buffers(self.engine, pairs, self.chunk)?,
            in_flight: VecDeque::with_capacity(pairs),
        };
        drop(opened);
        let mut reading = true;
        while reading || !worker.in_flight.is_empty() {
            check_interrupt()?;
            if self.failed.get().is_some() {
                return Ok(());
            }
            if reading && !worker.sources.is_empty() {
                reading = worker.read()?;
            } else {
                worker.wait_for_device()?;
            }
            while worker.is_done() {
                worker.write()?;
            }
        }
        Ok(())
    }
}

/// A worker: a queue, and buffers that are either free or in flight.
struct Worker<'a, 'f> {
    job: &'a Job<'f>,
    queue: Queue,
    sources: Vec<BufferMut>,
    destinations: Vec<BufferMut>,
    in_flight: VecDeque<InFlight>,
}

struct InFlight {
    transfer: Transfer<(BufferMut, BufferMut)>,
    offset: u64,
    /// The unused rests of the buffers, if the chunk is shorter than a buffer.
    rests: (BufferMut, BufferMut),
    tries: u32,
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
        self.submit(src, dst, offset, rests, 0)?;
        Ok(true)
    }

    fn submit(
        &mut self,
        src: BufferMut,
        dst: BufferMut,
        offset: u64,
        rests: (BufferMut, BufferMut),
        tries: u32,
    ) -> Result<(), Failure> {
        // `QueueFull` cannot occur, because the queue's depth is the number of buffer pairs.
        let transfer = self.queue.copy(src, dst).map_err(|e| at(offset, e.into()))?;
        self.queue.flush();
        self.in_flight.push_back(InFlight { transfer, offset, rests, tries });
        Ok(())
    }

    /// Returns whether the oldest copy is done. A software engine copies during this call.
    fn is_done(&self) -> bool {
        self.in_flight.front().is_some_and(|oldest| oldest.transfer.is_done())
    }

    /// Writes the oldest copy, which is done, or resubmits it if it failed.
    fn write(&mut self) -> Result<(), Failure> {
        let Some(InFlight { transfer, offset, rests, tries }) = self.in_flight.pop_front() else {
            return Ok(());
        };
        match transfer.wait() {
            Ok((mut src, mut dst)) => {
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
                Ok(())
            }
            Err(e) => match e.into_parts() {
                (error, Some((src, dst))) if tries < tries_after(&error) => {
                    if error.retry() == Retry::Later {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    self.job.retries.fetch_add(1, Ordering::Relaxed);
                    self.submit(src, dst, offset, rests, tries + 1)
                }
                (error, _) => Err(at(offset, error)),
            },
        }
    }

    /// Waits for the oldest copy. Fails if the device has completed nothing for [`STALL`].
    fn wait_for_device(&mut self) -> Result<(), Failure> {
        let stall = hold::timeout("device", STALL);
        let mut progress = (self.queue.counters().completed, Instant::now());
        while let Some(oldest) = self.in_flight.front_mut()
            && oldest.transfer.wait_for(POLL_INTERVAL).is_err()
        {
            check_interrupt()?;
            let completed = self.queue.counters().completed;
            if completed != progress.0 {
                progress = (completed, Instant::now());
            } else if progress.1.elapsed() > stall {
                return Err(failure!(
                    "{} has completed nothing for {stall:?} and has {} to do; reset the device, or copy with --engine cpu",
                    self.job.engine.info().backend,
                    count(self.queue.counters().in_flight, "copy", "copies")
                ));
            }
        }
        Ok(())
    }
}

/// Adds the offset in SRC to the error.
pub(crate) fn at(offset: u64, error: dma::Error) -> Failure {
    failure!("cannot copy the bytes of SRC at offset {offset}: {error}")
}
