//! `--direct`: SRC and DST without the page cache, by io_uring.
//!
//! One thread moves each chunk through three steps: it submits a read to the file queue, then a copy of those
//! bytes to the engine, then a write to the file queue. Up to `--depth` chunks are in the first two steps,
//! and up to `--depth` in the last two.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use dma::files::{DmaFile, FileQueue, FileQueueOptions, FileTransfer};
use dma::{BufferMut, BufferPool, DmaEngine, PoolOptions, QueueOptions};
use indicatif::ProgressBar;
use rustix::fs::{FallocateFlags, Mode};
use rustix::io::Errno;
use twox_hash::XxHash3_128;

use crate::copies::{Copies, Done};
use crate::digest;
use crate::failure::{Failure, check_interrupt, failure};
use crate::files::Target;
use crate::options::Options;
use crate::pieces::{Piece, Pieces};
use crate::pipeline::{Copied, check_memory};
use apps_shared::disk::Source;

/// Maximum time to wait for the oldest read or write. It is short, because another operation may end earlier.
const MAX_WAIT: Duration = Duration::from_micros(100);
/// Limit on `--depth`. The depth of the file queue is at most twice this number.
const MAX_DEPTH: u32 = 2048;

pub(crate) fn copy(
    engine: &dyn DmaEngine,
    source: &Source,
    target: &Target,
    options: &Options,
    bar: &ProgressBar,
) -> Result<Copied, Failure> {
    let chunks = source.len().div_ceil(options.chunk as u64);
    let depth = chunks.clamp(1, u64::from(options.depth.min(MAX_DEPTH))) as usize;
    check_memory(2 * depth as u64 * options.chunk as u64)?;
    // Sets the length before the first write, because writes that extend the file are slower.
    target.file().set_len(source.len()).map_err(|e| target.explain(&e))?;
    if !source.is_sparse() && source.len() > 0 {
        reserve(target, source.len())?;
    }
    let pool = BufferPool::new(engine, &PoolOptions::new().with_class(options.chunk, 2 * depth))?;
    let queue = QueueOptions::new().with_depth(depth).with_drop_timeout(Duration::from_secs(1));
    let direct = |file: &std::fs::File, name: &str| {
        let file = file.try_clone().map_err(dma::Error::from).map(DmaFile::from);
        file.and_then(DmaFile::with_direct).map_err(|e| failure!("{name}: {e}; copy without --direct"))
    };
    // DST is opened again, which its permissions must allow. They may be those of a read-only SRC.
    let set = |mode| {
        rustix::fs::fchmod(target.file(), Mode::from_raw_mode(mode)).map_err(|e| target.explain(&e.into()))
    };
    let mode = target.file().metadata().map_err(|e| target.explain(&e))?.mode() & 0o7777;
    let is_closed = mode & 0o600 != 0o600;
    if is_closed {
        set(mode | 0o600)?;
    }
    let dst = direct(target.file(), "DST")?;
    if is_closed {
        set(mode)?;
    }
    // At most `depth` reads and `depth` writes are in flight.
    let file_queue = FileQueueOptions::new().with_depth(2 * depth);
    let mut copying = Copying {
        src: direct(&source.file, "SRC")?,
        dst,
        files: FileQueue::with_pools(&file_queue, &[&pool])?,
        pool,
        depth,
        source,
        target,
        bar,
        pieces: Pieces::new(&source.file, source.len(), source.is_sparse(), options.chunk),
        hasher: options.verify.then(XxHash3_128::new),
        reads: VecDeque::new(),
        copies: Copies::open(engine, &queue)?,
        writes: VecDeque::new(),
        data: 0,
    };
    copying.run()?;
    let digest = copying.hasher.map(|hasher| hasher.finish_128());
    Ok(Copied { data: copying.data, retries: copying.copies.retries, digest })
}

/// Allocates the disk blocks of DST, so that a full disk is detected before the copy and writes need not
/// allocate.
fn reserve(target: &Target, len: u64) -> Result<(), Failure> {
    match rustix::fs::fallocate(target.file(), FallocateFlags::empty(), 0, len) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => Ok(()),
        Err(e) => Err(target.explain(&e.into())),
    }
}

/// The chunks in flight. Each chunk is read, then copied, then written, in the order of the file.
struct Copying<'a> {
    files: FileQueue,
    src: DmaFile,
    dst: DmaFile,
    pool: BufferPool,
    depth: usize,
    source: &'a Source,
    target: &'a Target,
    bar: &'a ProgressBar,
    pieces: Pieces<'a>,
    hasher: Option<XxHash3_128>,
    reads: VecDeque<(u64, FileTransfer<BufferMut>)>,
    copies: Copies<()>,
    writes: VecDeque<FileTransfer<BufferMut>>,
    /// Number of bytes that were written.
    data: u64,
}

impl Copying<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let mut reading = true;
        loop {
            check_interrupt()?;
            // A read holds one buffer, a copy two, and a write one. `depth` of the pool's buffers are
            // sources, and `depth` are destinations.
            while reading && self.reads.len() + self.copies.len() < self.depth {
                reading = self.read()?;
            }
            let moved = self.finish_write(false)? | self.finish_copy()? | self.finish_read(false)?;
            if moved {
                continue;
            }
            // Wait for the chunks nearest to completion: writes first, then copies, then reads.
            if !self.writes.is_empty() {
                self.finish_write(true)?;
            } else if self.copies.len() > 0 {
                self.copies.wait()?;
            } else if !self.reads.is_empty() {
                self.finish_read(true)?;
            } else if !reading {
                return Ok(());
            }
        }
    }

    /// Starts reading the next chunk. Returns false at the end of SRC.
    fn read(&mut self) -> Result<bool, Failure> {
        match self.pieces.next().map_err(|e| failure!("cannot look for holes in SRC: {e}"))? {
            None => return Ok(false),
            Some(Piece::Hole { len }) => {
                // The digest needs the bytes in order, so the earlier reads must end first.
                while self.hasher.is_some() && !self.reads.is_empty() {
                    if !self.finish_read(true)? {
                        // The oldest read can only end after a buffer for its copy is free.
                        self.finish_copy()?;
                        if !self.writes.is_empty() {
                            self.finish_write(true)?;
                        }
                    }
                }
                if let Some(hasher) = &mut self.hasher {
                    digest::add_zeros(hasher, len)?;
                }
                self.bar.inc(len);
            }
            Some(Piece::Data { offset, len }) => {
                let buffer = self.pool.try_get(len)?;
                let read = self.files.read_at(&self.src, offset, buffer).map_err(dma::Error::from)?;
                self.reads.push_back((offset, read));
            }
        }
        Ok(true)
    }

    /// If the oldest read is done and a buffer for its copy is free, submits the copy. With `wait`, waits up
    /// to [`MAX_WAIT`] for the read. Returns whether the read was done.
    fn finish_read(&mut self, wait: bool) -> Result<bool, Failure> {
        if self.copies.len() + self.writes.len() == self.depth {
            return Ok(false);
        }
        let Some((offset, read)) = pop_if(&mut self.reads, |(_, read)| is_done(read, wait)) else {
            return check_interrupt().map(|()| false);
        };
        let (src, len) = read.wait().map_err(|e| failure!("cannot read SRC at byte {offset}: {e}"))?;
        if len < src.len() {
            let short = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Failure::from(self.source.explain(offset, &short)));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.write(&src);
        }
        let dst = self.pool.try_get(len)?;
        self.copies.submit((src, dst), offset, ())?;
        Ok(true)
    }

    /// If the oldest copy is done, starts writing it. Returns whether it was done.
    fn finish_copy(&mut self) -> Result<bool, Failure> {
        let Some(Done { dst, offset, .. }) = self.copies.next_done()? else { return Ok(false) };
        self.writes.push_back(self.files.write_at(&self.dst, offset, dst).map_err(dma::Error::from)?);
        Ok(true)
    }

    /// Removes the oldest write if it is done. With `wait`, waits up to [`MAX_WAIT`] for it. Returns whether
    /// it was done.
    fn finish_write(&mut self, wait: bool) -> Result<bool, Failure> {
        let Some(write) = pop_if(&mut self.writes, |write| is_done(write, wait)) else {
            return check_interrupt().map(|()| false);
        };
        let (dst, _) = write.wait().map_err(|e| {
            let (error, _) = e.into_parts();
            match std::error::Error::source(&error).and_then(|e| e.downcast_ref::<std::io::Error>()) {
                Some(e) => self.target.explain(e),
                None => failure!("cannot write DST: {error}"),
            }
        })?;
        self.data += dst.len() as u64;
        self.bar.inc(dst.len() as u64);
        Ok(true)
    }
}

/// Returns whether an operation has ended. With `wait`, waits up to [`MAX_WAIT`] for its end.
fn is_done(transfer: &FileTransfer<BufferMut>, wait: bool) -> bool {
    if wait { transfer.wait_timeout(MAX_WAIT) } else { transfer.is_done() }
}

/// Removes and returns the oldest entry if `done` is true for it.
fn pop_if<T>(queue: &mut VecDeque<T>, done: impl FnOnce(&T) -> bool) -> Option<T> {
    if queue.front().is_some_and(done) { queue.pop_front() } else { None }
}
