//! Read, move by DMA, write: all three at once.
//!
//! A few lanes work side by side, each a thread with a queue and buffers of its own. A lane reads the next chunk of SRC
//! into a free buffer, submits its copy, and writes the copies that are done. So while one lane reads another one
//! writes, and meanwhile the device has up to `--depth` copies of all lanes. There are as many pairs of buffers as
//! that: memory is bounded, and a slow disk or device holds the others up.
//!
//! A lane reads, moves and writes a chunk on one core, and takes the buffer that it used last: with a software engine
//! the chunk never leaves that core's cache. Handing chunks from a reading to a writing thread was a sixth slower.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blake3::{Hash, Hasher};
use dma::{BufferMut, CacheHint, DmaEngine, DmaEngineExt, Queue, QueueOptions, Retry, Transfer};
use indicatif::ProgressBar;

use crate::files::{Source, Target};
use crate::options::Options;
use crate::pieces::{Piece, Pieces};
use crate::{Failure, check_interrupt, digest, failure};

/// How many lanes: one can read while the other writes. Writes to one file exclude each other.
const LANES: usize = 2;
/// How often a lane looks whether it may write before it sleeps: for longer than the writing of a chunk takes.
const SPINS: u32 = 4000;
/// How long the device may complete nothing while it has work.
const STALL: Duration = Duration::from_secs(10);
/// How often one copy is submitted again where the error says that this can help: after a device reset, mostly.
const TRIES: u32 = 100;
/// How often one copy is submitted again after the device failed it: that may be a fault of the moment.
const FAULTS: u32 = 3;
/// The longest that anything waits without a look at whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// What was copied.
#[derive(Debug)]
pub(crate) struct Copied {
    /// Bytes moved: all but the holes.
    pub(crate) data: u64,
    /// Copies that were submitted again, mostly because the device had been reset.
    pub(crate) retries: u64,
    /// Of all bytes read, holes as zeros, if it was asked for.
    pub(crate) digest: Option<Hash>,
}

/// Copies all of `source` into `target`.
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
        // What is never written stays a hole.
        target.file().set_len(source.len()).map_err(|e| target.explain(&e))?;
    }
    let lanes = pairs.min(LANES).min(engine.info().limits.max_queues.unwrap_or(LANES));
    let pieces = Pieces::new(&source.file, source.len(), source.is_sparse(), options.chunk);
    let job = Job {
        engine,
        source,
        target,
        chunk: options.chunk,
        bar,
        reading: Mutex::new(Reading { pieces, hasher: options.verify.then(Hasher::new) }),
        writing: Mutex::new(()),
        data: AtomicU64::new(0),
        retries: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let job = &job;
        let lanes: Vec<_> = (0..lanes)
            .map(|i| scope.spawn(move || job.lane(pairs / lanes + usize::from(i < pairs % lanes))))
            .collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })?;
    let reading = job.reading.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Copied {
        data: job.data.into_inner(),
        retries: job.retries.into_inner(),
        digest: reading.hasher.map(|hasher| hasher.finalize()),
    })
}

/// Refuses what would drive the machine out of memory.
fn check_memory(needed: u64) -> Result<(), Failure> {
    let system = rustix::system::sysinfo();
    let memory = system.totalram.saturating_mul(u64::from(system.mem_unit));
    if needed > memory {
        return Err(failure!(
            "--chunk and --depth ask for {needed} bytes of memory and this machine has {memory}; lower one of them"
        ));
    }
    Ok(())
}

/// `count` buffers of `chunk` bytes, registered as one region.
fn buffers(engine: &dyn DmaEngine, count: usize, chunk: usize) -> Result<Vec<BufferMut>, Failure> {
    let mut all = engine.allocate(count * chunk)?;
    Ok((0..count).map(|_| all.split_to(chunk)).collect())
}

/// What the lanes share.
struct Job<'a> {
    engine: &'a dyn DmaEngine,
    source: &'a Source,
    target: &'a Target,
    chunk: usize,
    bar: &'a ProgressBar,
    reading: Mutex<Reading<'a>>,
    /// Held by the lane that writes: the kernel would let one write at a time too, and take longer to pass the turn on.
    writing: Mutex<()>,
    data: AtomicU64,
    retries: AtomicU64,
    /// A lane failed: the others give up too.
    failed: AtomicBool,
}

/// Where in SRC the next lane goes on.
struct Reading<'a> {
    pieces: Pieces<'a>,
    hasher: Option<Hasher>,
}

impl Job<'_> {
    /// One lane, with this many pairs of buffers, until there is nothing left to copy.
    fn lane(&self, pairs: usize) -> Result<(), Failure> {
        let copied = self.try_lane(pairs);
        if copied.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        copied
    }

    /// Waits for the turn to write: briefly by looking, since a turn is short and waking up is not, then asleep.
    fn turn_to_write(&self) -> MutexGuard<'_, ()> {
        for _ in 0..SPINS {
            match self.writing.try_lock() {
                Ok(turn) => return turn,
                Err(_) => std::hint::spin_loop(),
            }
        }
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lane(&self, pairs: usize) -> Result<(), Failure> {
        let options = QueueOptions::new()
            .with_depth(pairs)
            // Read just before, written just after: the bytes are in the caches.
            .with_hint(CacheHint::Hot)
            .with_drop_timeout(Duration::from_secs(1));
        let mut lane = Lane {
            job: self,
            queue: self.engine.open_queue(&options)?,
            sources: buffers(self.engine, pairs, self.chunk)?,
            destinations: buffers(self.engine, pairs, self.chunk)?,
            in_flight: VecDeque::with_capacity(pairs),
        };
        let mut reading = true;
        while reading || !lane.in_flight.is_empty() {
            check_interrupt()?;
            if self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            if reading && !lane.sources.is_empty() {
                reading = lane.read()?;
            } else {
                lane.wait_for_device()?;
            }
            while lane.is_done() {
                lane.write()?;
            }
        }
        Ok(())
    }
}

/// A lane: a queue, and buffers that are either free or in flight.
struct Lane<'a, 'f> {
    job: &'a Job<'f>,
    queue: Queue,
    sources: Vec<BufferMut>,
    destinations: Vec<BufferMut>,
    in_flight: VecDeque<InFlight>,
}

/// A copy that the device has.
struct InFlight {
    transfer: Transfer<(BufferMut, BufferMut)>,
    offset: u64,
    /// The parts of the buffers that are not needed.
    rests: (BufferMut, BufferMut),
    tries: u32,
}

impl Lane<'_, '_> {
    /// Reads the next piece of SRC and submits its copy. Returns whether there was one.
    fn read(&mut self) -> Result<bool, Failure> {
        let source = self.job.source;
        let mut reading = self.job.reading.lock().unwrap_or_else(PoisonError::into_inner);
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
        // A digest needs the bytes in order: then lanes read one after the other.
        let mut in_order = reading.hasher.is_some().then_some(reading);
        let (Some(mut src), Some(mut dst)) = (self.sources.pop(), self.destinations.pop()) else {
            return Err(failure!("no free buffer"));
        };
        let rests = (src.split_off(len), dst.split_off(len));
        source.file.read_exact_at(&mut src, offset).map_err(|e| source.explain(offset, &e))?;
        if let Some(hasher) = in_order.as_mut().and_then(|reading| reading.hasher.as_mut()) {
            hasher.update(&src);
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
        // There is always room: as many places in the queue as buffers.
        let transfer = self.queue.copy(src, dst).map_err(|e| at(offset, e.into()))?;
        self.queue.flush();
        self.in_flight.push_back(InFlight { transfer, offset, rests, tries });
        Ok(())
    }

    /// Whether the oldest copy is done. A software engine moves bytes while it is asked.
    fn is_done(&self) -> bool {
        self.in_flight.front().is_some_and(|oldest| oldest.transfer.is_done())
    }

    /// Writes the oldest copy, which is done, or submits it again.
    fn write(&mut self) -> Result<(), Failure> {
        let Some(InFlight { transfer, offset, rests, tries }) = self.in_flight.pop_front() else {
            return Ok(());
        };
        match transfer.wait() {
            Ok((mut src, mut dst)) => {
                let target = self.job.target;
                let turn = self.job.turn_to_write();
                target.file().write_all_at(&dst, offset).map_err(|e| target.explain(&e))?;
                drop(turn);
                let len = dst.len() as u64;
                self.job.data.fetch_add(len, Ordering::Relaxed);
                self.job.bar.inc(len);
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

    /// Waits until the oldest copy is done.
    fn wait_for_device(&mut self) -> Result<(), Failure> {
        let mut progress = (self.queue.counters().completed, Instant::now());
        while let Some(oldest) = self.in_flight.front_mut()
            && oldest.transfer.wait_for(LOOK).is_err()
        {
            check_interrupt()?;
            let completed = self.queue.counters().completed;
            if completed != progress.0 {
                progress = (completed, Instant::now());
            } else if progress.1.elapsed() > STALL {
                return Err(failure!(
                    "{} has completed nothing for {STALL:?} and has {} copies to do; reset the device, or copy with --engine cpu",
                    self.job.engine.info().backend,
                    self.in_flight.len()
                ));
            }
        }
        Ok(())
    }
}

/// How often to try again after `error`.
fn tries_after(error: &dma::Error) -> u32 {
    match error.retry() {
        Retry::Never => 0,
        Retry::FewTimes => FAULTS,
        _ => TRIES,
    }
}

/// Says which bytes an error is about.
fn at(offset: u64, error: dma::Error) -> Failure {
    failure!("cannot move the bytes of SRC at {offset}: {error}")
}
