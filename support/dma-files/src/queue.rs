//! [`FileQueue`]: submits operations.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::{BufferPool, Error, ErrorKind, Result};
use dma_process::{check_file_size, count};

use crate::backend::{Backend, By, forked};
use crate::error::FileError;
use crate::file::DmaFile;
use crate::job::{Job, JobBuffer, JobKind, Jobs};
use crate::operand::{FileDestination, FileSource, memory};
use crate::options::{FileQueueOptions, Method};
use crate::transfer::FileTransfer;

/// Reads and writes files. Clones share one queue, and any thread may use them.
///
/// Dropping the last clone does not block: operations in flight continue until they end.
#[derive(Clone)]
pub struct FileQueue(Arc<Inner>);

struct Inner {
    depth: usize,
    in_flight: Arc<Jobs>,
    backend: Arc<Backend>,
    /// Addresses and lengths of the buffers that are registered with io_uring, sorted.
    fixed: Vec<(usize, usize)>,
    /// The pools that own the registered buffers.
    _pools: Vec<BufferPool>,
}

impl FileQueue {
    /// Opens a queue.
    ///
    /// # Errors
    ///
    /// `OutOfRange` or `InvalidArgument` for invalid options; `Unsupported`, `PermissionDenied` or `Os` if
    /// the options require io_uring and the system forbids it; `OutOfMemory` or `OutOfResources` for a lack
    /// of memory, threads or other resources.
    pub fn new(options: &FileQueueOptions) -> Result<Self> {
        Self::with_pools(options, &[])
    }

    /// Opens a queue, and registers the current memory of these pools with io_uring (fixed buffers), so that
    /// the kernel looks up the pages only once.
    ///
    /// Operations can also use other memory. The queue keeps the pools alive.
    ///
    /// If the kernel refuses the registration, for example beyond the limit of locked memory, the queue works
    /// without it: see [`has_fixed_buffers`](Self::has_fixed_buffers).
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new).
    pub fn with_pools(options: &FileQueueOptions, pools: &[&BufferPool]) -> Result<Self> {
        let in_flight = Arc::default();
        let opened = options
            .validate()
            .and_then(|()| By::open(options, &in_flight, pools))
            .map_err(|e| e.with_operation("open file queue"));
        let (by, fixed) = opened?;
        let backend = Arc::new(Backend::new(by));
        let pools = pools.iter().map(|pool| (*pool).clone()).collect();
        Ok(Self(Arc::new(Inner { depth: options.depth, in_flight, backend, fixed, _pools: pools })))
    }

    /// Returns the method that the queue uses.
    #[must_use]
    pub fn method(&self) -> Method {
        match &*self.0.backend.by {
            By::Ring(_) => Method::IoUring,
            By::Workers(_) => Method::Threads,
        }
    }

    /// Returns whether the memory of the queue's pools is registered with io_uring.
    #[must_use]
    pub fn has_fixed_buffers(&self) -> bool {
        !self.0.fixed.is_empty()
    }

    /// Returns the number of operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.count()
    }

    /// Reads the file from byte `offset` on until the buffer is full or the file ends.
    ///
    /// # Errors
    ///
    /// `QueueFull`; `Unsupported` for memory that the CPU cannot access, and in a forked process;
    /// `AccessDenied` for memory that is registered as read-only; `OutOfRange` for the offset. Each error
    /// contains the buffer. The [`FileTransfer`] returns errors of the file.
    pub fn read_at<D: FileDestination>(
        &self,
        file: &DmaFile,
        offset: u64,
        buffer: D,
    ) -> Result<FileTransfer<D>, FileError<D>> {
        match buffer.check_writable().and_then(|()| memory(&buffer)) {
            Ok(bytes) => self.submit(JobKind::Read, (file, offset), bytes, buffer),
            Err(e) => Err(FileError::new(e.with_operation("read a file"), buffer)),
        }
    }

    /// Writes the buffer to the file from byte `offset` on. Extends the file if needed.
    ///
    /// # Errors
    ///
    /// The errors of [`read_at`](Self::read_at), except `AccessDenied`; `OutOfResources` beyond the process's
    /// limit on the size of files (`ulimit -f`); `InvalidArgument` for a file that is open for appending
    /// (`O_APPEND`), because the system ignores the offset there.
    pub fn write_at<S: FileSource>(
        &self,
        file: &DmaFile,
        offset: u64,
        buffer: S,
    ) -> Result<FileTransfer<S>, FileError<S>> {
        let bytes = file.check_write_offsets().and_then(|()| {
            let (begin, len) = memory(&buffer)?;
            check_file_size(file, offset.saturating_add(len as u64))?;
            Ok((begin, len))
        });
        match bytes {
            Ok(bytes) => self.submit(JobKind::Write, (file, offset), bytes, buffer),
            Err(e) => Err(FileError::new(e.with_operation("write a file"), buffer)),
        }
    }

    /// Makes the file's completed writes durable on its disk (`fsync`). Does not wait for writes in flight.
    ///
    /// # Errors
    ///
    /// `QueueFull`, or `Unsupported` in a forked process.
    pub fn sync(&self, file: &DmaFile) -> Result<FileTransfer<()>, FileError<()>> {
        self.sync_with(file, ())
    }

    /// Makes the file's completed writes durable, as [`sync`](Self::sync) does, and keeps `held` until then.
    pub(crate) fn sync_with<T: Send + 'static>(
        &self,
        file: &DmaFile,
        held: T,
    ) -> Result<FileTransfer<T>, FileError<T>> {
        self.submit(JobKind::Sync, (file, 0), (NonNull::dangling(), 0), held)
    }

    /// Returns whether the queue belongs to the parent of this forked process.
    pub(crate) fn is_parents(&self) -> bool {
        !self.0.backend.is_of_this_process()
    }

    fn submit<T: Send + 'static>(
        &self,
        kind: JobKind,
        (file, offset): (&DmaFile, u64),
        (begin, len): (NonNull<u8>, usize),
        buffer: T,
    ) -> Result<FileTransfer<T>, FileError<T>> {
        let inner = &*self.0;
        if let Err(e) = inner.admit(offset, len) {
            return Err(FileError::new(e.with_operation("submit to a file queue"), buffer));
        }
        let (target, memory) = ((file.clone(), offset), JobBuffer { begin, len });
        let job = Job::new(kind, target, memory, inner.fixed(begin.addr().get(), len), &inner.in_flight);
        // From now on, the transfer keeps the buffer until the operation ends.
        let transfer = FileTransfer::new(Arc::clone(&job), Arc::clone(&inner.backend), buffer);
        match &*inner.backend.by {
            By::Ring(ring) => ring.submit(job),
            By::Workers(workers) => workers.submit(job),
        }
        Ok(transfer)
    }
}

impl Inner {
    /// Checks an operation, and adds it to the operations in flight.
    fn admit(&self, offset: u64, len: usize) -> Result<()> {
        if !self.backend.is_of_this_process() {
            return Err(forked());
        }
        // The kernel adds offset and length, so the sum must fit an `i64`.
        if offset.checked_add(len as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Error::new(ErrorKind::OutOfRange, format!("{len} bytes at byte {offset} of a file"))
                .with_numbers(offset, i64::MAX as u64)
                .with_hint("files end before byte 2^63"));
        }
        if !self.in_flight.try_add(self.depth) {
            return Err(Error::new(
                ErrorKind::QueueFull,
                format!("{} in flight", count(self.depth, "operation is", "operations are")),
            )
            .with_hint("wait for an operation, or open the queue with a larger depth"));
        }
        Ok(())
    }

    /// Returns the index of the registered buffer that contains these bytes, if any.
    fn fixed(&self, begin: usize, len: usize) -> Option<u16> {
        let after = self.fixed.partition_point(|(first, _)| *first <= begin);
        let at = after.checked_sub(1)?;
        let (first, fixed_len) = self.fixed[at];
        let fits = len > 0 && begin - first + len <= fixed_len;
        u16::try_from(at).ok().filter(|_| fits)
    }
}

impl fmt::Debug for FileQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileQueue")
            .field("method", &self.method())
            .field("depth", &self.0.depth)
            .field("in_flight", &self.in_flight())
            .field("fixed_buffers", &self.0.fixed.len())
            .finish()
    }
}
