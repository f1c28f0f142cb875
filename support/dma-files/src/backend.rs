//! The backend of a queue: io_uring or threads.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use dma_core::{Error, ErrorKind};
use dma_process::ForkMark;

use crate::job::Job;
use crate::ring::Ring;
use crate::workers::Workers;

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
