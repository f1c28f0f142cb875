//! The file descriptor on which a queue's owner can sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dma_core::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Readable from [`signal`](Self::signal) until [`clear`](Self::clear). If the system refuses the descriptor,
/// the event keeps the error number, and its queue can only be polled.
#[derive(Debug)]
pub(super) struct Event(std::result::Result<OwnedFd, Errno>);

impl Event {
    pub(super) fn new() -> Self {
        Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
    }

    /// Makes it readable.
    pub(super) fn signal(&self) {
        if let Ok(fd) = &self.0 {
            // Fails only for a full counter, which is readable.
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
    }

    /// Makes it unreadable.
    pub(super) fn clear(&self) {
        if let Ok(fd) = &self.0 {
            // Fails only for a counter of 0, which is not readable.
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
    }

    /// Returns the descriptor.
    /// Errors: the system refused it.
    pub(super) fn fd(&self) -> Result<BorrowedFd<'_>> {
        match &self.0 {
            Ok(fd) => Ok(fd.as_fd()),
            Err(errno) => Err(Error::of_system_call("eventfd2", (*errno).into())),
        }
    }
}
