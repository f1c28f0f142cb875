//! The file descriptor on which a queue's owner can sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dma_core::{Error, Result};
use dma_process::above_stdio;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// A file descriptor that is readable from [`signal`](Self::signal) until [`clear`](Self::clear). If the
/// system refuses the descriptor, the event stores the error number, and its queue can only be polled.
#[derive(Debug)]
pub(super) struct Event(std::result::Result<OwnedFd, Errno>);

impl Event {
    pub(super) fn new() -> Self {
        Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(above_stdio))
    }

    /// Makes the descriptor readable.
    pub(super) fn signal(&self) {
        if let Ok(fd) = &self.0 {
            // The write fails only if the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the descriptor unreadable.
    pub(super) fn clear(&self) {
        if let Ok(fd) = &self.0 {
            // The read fails only if the counter is 0, and then the descriptor is not readable.
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
    }

    /// Returns the descriptor.
    /// Fails if the system refused the descriptor.
    pub(super) fn fd(&self) -> Result<BorrowedFd<'_>> {
        match &self.0 {
            Ok(fd) => Ok(fd.as_fd()),
            Err(errno) => Err(Error::of_system_call("eventfd2", (*errno).into())),
        }
    }
}
