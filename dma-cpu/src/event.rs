//! The file descriptor on which a queue's owner can sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dma_core::{Error, ErrorKind, Result};
use rustix::io::Errno;

/// Readable from [`signal`](Self::signal) until [`clear`](Self::clear).
#[derive(Debug)]
pub(super) struct Event {
    read: OwnedFd,
    /// Linux has one descriptor for both ends.
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

impl Event {
    pub(super) fn new() -> Result<Self> {
        Self::open().map_err(|errno| {
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

    #[cfg(target_os = "linux")]
    fn open() -> Result<Self, Errno> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self { read: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    #[cfg(not(target_os = "linux"))]
    fn open() -> Result<Self, Errno> {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
        use rustix::io::{FdFlags, fcntl_setfd};
        let (read, write) = rustix::pipe::pipe()?;
        for end in [&read, &write] {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
            fcntl_setfd(end, FdFlags::CLOEXEC)?;
        }
        Ok(Self { read, write })
    }

    /// Makes it readable.
    pub(super) fn signal(&self) {
        #[cfg(target_os = "linux")]
        let write = &self.read;
        #[cfg(not(target_os = "linux"))]
        let write = &self.write;
        // If it can take no more, it is readable.
        let _ = rustix::io::write(write, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub(super) fn clear(&self) {
        let mut count = [0; 8];
        // One read empties an eventfd; a pipe may hold several.
        while rustix::io::read(&self.read, &mut count).is_ok() && cfg!(not(target_os = "linux")) {}
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}
