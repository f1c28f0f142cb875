//! [`FileTransfer`]: a submitted operation.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dma_core::{Error, ErrorKind};
use dma_process::count;
use rustix::io::Errno;

use crate::backend::{Backend, forked};
use crate::error::FileError;
use crate::job::{Job, JobKind};

/// The result of an operation: its buffer with the number of bytes that were read or written, or the error,
/// which contains the buffer.
pub type Finished<T> = Result<(T, usize), FileError<T>>;

/// A submitted operation on a file: await it, or wait for it. If the transfer is dropped, the operation
/// continues, and the buffer is freed when the operation ends.
#[must_use = "the operation continues, but its result is lost"]
pub struct FileTransfer<T: Any + Send> {
    /// `None` only while the transfer is dropped.
    job: Option<Arc<Job>>,
    backend: Arc<Backend>,
    buffer: Option<T>,
}

impl<T: Any + Send> FileTransfer<T> {
    pub(crate) const fn new(job: Arc<Job>, backend: Arc<Backend>, buffer: T) -> Self {
        Self { job: Some(job), backend, buffer: Some(buffer) }
    }

    fn job(&self) -> &Arc<Job> {
        self.job.as_ref().expect("the transfer exists")
    }

    /// Returns whether the transfer was made before this process was forked. A thread of the parent may have
    /// held the lock of the job at the fork, so the job is not used.
    fn is_parents(&self) -> bool {
        !self.backend.is_of_this_process()
    }

    /// Returns the error of a transfer of the parent process. Its buffer is leaked.
    fn forked(&mut self) -> FileError<T> {
        std::mem::forget(self.buffer.take());
        FileError::without_buffer(forked().with_operation("wait for an operation on a file"))
    }

    /// Returns whether the operation has ended. In a forked child, every operation of the parent has.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_parents() || self.job().result().is_some()
    }

    /// Blocks until the operation has ended, for at most `timeout`. Returns whether it has ended.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.is_parents() || self.job().wait_timeout(timeout)
    }

    /// Blocks until the operation has ended. Returns the buffer, and the number of bytes that were read or
    /// written. A read returns fewer bytes than the buffer's length only at the end of the file.
    ///
    /// # Errors
    ///
    /// `Unsupported`, without the buffer, if the process was forked after the submission; `OutOfResources` if
    /// the disk or the quota is full; `Aborted` if the operation was cancelled; `Closed` if io_uring takes no
    /// more operations, because the program has closed its descriptor or a sandbox forbids it; `Os` for other
    /// errors of the system, with the source. Each error names the operation, its length, and the number of
    /// bytes that were read or written before the error.
    pub fn wait(mut self) -> Finished<T> {
        if self.is_parents() {
            return Err(self.forked());
        }
        let result = self.job().wait();
        self.finish(result)
    }

    /// Asks the system to cancel the operation, which then ends as `Aborted`, unless it has ended before.
    ///
    /// Await the operation, or wait for it, to get the buffer. Reads and writes of regular files cannot be
    /// cancelled after the kernel has started them. Those of pipes, sockets and terminals can, while they
    /// wait, unless io_uring takes no more operations of this queue (see [`wait`](Self::wait)): then they end
    /// when the file is ready.
    pub fn cancel(&self) {
        if !self.is_parents() && self.job().cancel() {
            self.backend.cancel(self.job());
        }
    }

    fn finish(&mut self, result: Result<usize, Errno>) -> Finished<T> {
        let buffer = self.buffer.take().expect("a transfer ends once");
        match result {
            Ok(bytes) => Ok((buffer, bytes)),
            Err(errno) => Err(FileError::new(explain(self.job(), errno), buffer)),
        }
    }
}

/// The error of a full disk or quota.
pub(crate) fn no_space(errno: Errno) -> Error {
    Error::new(ErrorKind::OutOfResources, "no space is left for the file")
        .with_hint("free some space, or raise the quota")
        .with_source(std::io::Error::from(errno))
}

/// Converts the error of an ended operation.
fn explain(job: &Job, errno: Errno) -> Error {
    let bytes = count(job.memory.len as u64, "byte", "bytes");
    let mut operation = match job.kind {
        JobKind::Read => format!("read {bytes} of a file at {}", job.offset),
        JobKind::Write => format!("write {bytes} of a file at {}", job.offset),
        JobKind::Sync => "sync a file".to_owned(),
    };
    if job.done() > 0 {
        operation += &format!(", after the first {}", job.done());
    }
    let error = match errno {
        errno if job.is_refused() => {
            Error::new(ErrorKind::Closed, "io_uring takes no more operations of this queue")
                .with_hint(
                    "open another queue, and close no descriptors of the library; in a sandbox that forbids \
                     io_uring, use threads (`FileQueueOptions::with_method`)",
                )
                .with_source(std::io::Error::from(errno))
        }
        Errno::CANCELED if job.is_cancelled() => {
            Error::new(ErrorKind::Aborted, "the program cancelled the operation")
        }
        Errno::CANCELED => Error::new(ErrorKind::Aborted, "the kernel cancelled the operation").with_hint(
            "submit the operation again; if this repeats, raise the limits on threads (ulimit -u)",
        ),
        Errno::NOSPC | Errno::DQUOT => no_space(errno),
        errno => std::io::Error::from(errno).into(),
    };
    error.with_operation(operation)
}

impl<T: Any + Send + Unpin> Future for FileTransfer<T> {
    type Output = Finished<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_parents() {
            return Poll::Ready(Err(self.forked()));
        }
        match self.job().poll(context.waker()) {
            Some(result) => Poll::Ready(self.finish(result)),
            None => Poll::Pending,
        }
    }
}

impl<T: Any + Send> Drop for FileTransfer<T> {
    fn drop(&mut self) {
        let (job, buffer) = (self.job.take(), self.buffer.take());
        if self.is_parents() {
            return std::mem::forget((job, buffer));
        }
        let Some(job) = job else { return };
        if let Some(buffer) = buffer {
            job.keep(buffer);
        }
        job.release();
    }
}

impl<T: Any + Send> fmt::Debug for FileTransfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTransfer")
            .field("kind", &self.job().kind)
            .field("is_done", &self.is_done())
            .finish()
    }
}
