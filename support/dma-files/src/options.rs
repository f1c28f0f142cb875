//! Options of file queues.

use dma_core::{Error, ErrorKind, Result};

/// Maximum value of [`FileQueueOptions::depth`].
pub(crate) const MAX_DEPTH: usize = 4096;

/// The method by which files are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// io_uring: the kernel reads and writes asynchronously.
    IoUring,
    /// Threads of this process, by blocking calls.
    Threads,
}

/// Options of a [`FileQueue`](crate::FileQueue).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileQueueOptions {
    /// Maximum number of operations in flight: 1 to 4096. Default: 64.
    pub depth: usize,
    /// The method. Default: `None`, which means io_uring, or threads if the system forbids io_uring or is
    /// older than Linux 5.6.
    pub method: Option<Method>,
    /// Maximum number of threads that read and write at the same time, for [`Method::Threads`]; at
    /// least 1. Default: 8. An operation that waits for a pipe, socket or terminal occupies a thread.
    pub threads: usize,
}

impl Default for FileQueueOptions {
    fn default() -> Self {
        Self { depth: 64, method: None, threads: 8 }
    }
}

impl FileQueueOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    dma_core::setters! {
        with_depth(depth: usize);
        with_method(method: Option<Method>);
        with_threads(threads: usize);
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            return Err(Error::new(ErrorKind::OutOfRange, format!("a file queue of depth {}", self.depth))
                .with_numbers(self.depth as u64, MAX_DEPTH as u64)
                .with_hint("give a depth from 1 to 4096"));
        }
        if self.threads == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "a file queue of 0 threads")
                .with_hint("give at least 1 thread"));
        }
        Ok(())
    }
}
