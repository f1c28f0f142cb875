//! The file descriptor on which a queue's owner can sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dma_core::{Error, ErrorKind, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Readable from [`signal`](Self::signal) until [`clear`](Self::clear).
#[derive(Debug)]
pub(super) struct Event(OwnedFd);

impl Event {
    pub(super) fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        event.map(Self).map_err(|errno| {
            let kind = match errno {
                Errno::MFILE | Errno::NFILE => ErrorKind::OutOfResources,
                Errno::NOMEM => ErrorKind::OutOfMemory,
                _ => ErrorKind::Os,
            };
            Error::new(kind, "no file descriptor for a queue's completions")
                .with_source(std::io::Error::from(errno))
                .with_hint("each queue needs one: raise the limit with `ulimit -n`, or open fewer queues")
        })
    }

    /// Makes it readable.
    pub(super) fn signal(&self) {
        // If it can take no more, it is readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub(super) fn clear(&self) {
        // It fails if there is nothing to read.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
