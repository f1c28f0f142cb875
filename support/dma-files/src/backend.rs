//! The backend of a queue: io_uring or threads.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use dma_core::{BufferPool, Error, ErrorKind, Result};
use dma_process::ForkMark;

use crate::job::{Job, Jobs};
use crate::options::{FileQueueOptions, Method};
use crate::ring::Ring;
use crate::workers::Workers;

/// Maximum length of a buffer that io_uring registers, in bytes.
const MAX_FIXED: usize = 1 << 30;

/// The queue's method, and the process that opened the queue.
#[derive(Debug)]
pub(crate) struct Backend {
    process: ForkMark,
    pub(crate) by: ManuallyDrop<By>,
}

/// The method of a queue.
#[derive(Debug)]
pub(crate) enum By {
    Ring(Ring),
    Workers(Workers),
}

impl By {
    /// Opens io_uring or threads. Returns the method, and the buffers that are registered.
    pub(crate) fn open(
        options: &FileQueueOptions,
        in_flight: &Arc<Jobs>,
        pools: &[&BufferPool],
    ) -> Result<(Self, Vec<(usize, usize)>)> {
        let workers = || Ok((Self::Workers(Workers::new(options.threads)?), Vec::new()));
        if options.method == Some(Method::Threads) {
            return workers();
        }
        let fixed = fixed_buffers(pools);
        match Ring::new(options.depth, Arc::clone(in_flight), &fixed) {
            Ok((ring, true)) => Ok((Self::Ring(ring), fixed)),
            Ok((ring, false)) => Ok((Self::Ring(ring), Vec::new())),
            Err(e) if options.method.is_some() => Err(e),
            Err(error) => {
                dma_core::guarded_log!(info, %error, "threads read and write files");
                workers()
            }
        }
    }
}

/// Returns the addresses and lengths of the pools' memory, in parts that io_uring can register.
fn fixed_buffers(pools: &[&BufferPool]) -> Vec<(usize, usize)> {
    let mut buffers = Vec::new();
    for region in pools.iter().flat_map(|pool| pool.regions()) {
        let info = region.as_raw().info();
        let Some(begin) = info.cpu else { continue };
        let begin = begin.as_ptr().expose_provenance();
        for offset in (0..info.len).step_by(MAX_FIXED) {
            buffers.push((begin + offset, (info.len - offset).min(MAX_FIXED)));
        }
    }
    buffers.sort_unstable();
    buffers.dedup();
    // io_uring registers at most this number of buffers.
    buffers.truncate(1 << 14);
    buffers
}

/// The error of operations on a queue of the parent process.
pub(crate) fn forked() -> Error {
    Error::new(ErrorKind::Unsupported, "the file queue belongs to the parent of this forked process")
        .with_hint("open the file queue after the fork")
}

impl Backend {
    pub(crate) fn new(by: By) -> Self {
        Self { process: ForkMark::new(), by: ManuallyDrop::new(by) }
    }

    pub(crate) fn is_of_this_process(&self) -> bool {
        !self.process.is_child()
    }

    /// Requests the cancellation of a job that is marked as cancelled.
    pub(crate) fn cancel(&self, job: &Arc<Job>) {
        match &*self.by {
            By::Ring(ring) if self.is_of_this_process() => ring.cancel(job),
            // Worker threads need no request, because they check for a cancellation before each part.
            _ => {}
        }
    }
}

impl Drop for Backend {
    #[expect(unsafe_code, reason = "a forked process must not drop the parent's ring or threads")]
    fn drop(&mut self) {
        // A forked process does not drop the ring and the locks, because they belong to the parent process.
        if self.is_of_this_process() {
            // SAFETY: `by` is dropped only here, and it is not used after this drop.
            unsafe { ManuallyDrop::drop(&mut self.by) };
        }
    }
}
