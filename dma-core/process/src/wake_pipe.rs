//! Wakes a thread of the library that waits for descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::above_stdio;

/// A pipe that wakes the thread which waits for its reading end.
///
/// A pipe, not an event, because each pipe has an inode of its own. So [`wake`](Self::wake) notices that the
/// program has closed the descriptor, also if its number belongs to another pipe now.
#[derive(Debug)]
pub struct WakePipe {
    reader: OwnedFd,
    writer: OwnedFd,
    inode: u64,
}

impl WakePipe {
    /// Makes a pipe. Both ends do not block, and are closed by `exec`.
    ///
    /// # Errors
    ///
    /// Those of `pipe2` and `fstat`: the process or the system has too many open files, or a sandbox forbids
    /// the call.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (reader, writer) = (above_stdio(reader), above_stdio(writer));
        let inode = rustix::fs::fstat(&writer)?.st_ino;
        Ok(Self { reader, writer, inode })
    }

    /// Wakes the thread. Returns false if the program has closed the descriptor, as a daemon closes all: then
    /// the thread cannot be woken, and the number may belong to another file of the program, which must not
    /// be written. Do not join the thread then, but leak it, with its descriptors.
    #[must_use = "the thread may not wake"]
    pub fn wake(&self) -> bool {
        // The write fails only if the pipe is full, and then the thread wakes anyway.
        rustix::fs::fstat(&self.writer).is_ok_and(|found| found.st_ino == self.inode)
            && matches!(io::write(&self.writer, &[0]), Ok(_) | Err(io::Errno::AGAIN))
    }
}

/// The end for which the thread waits.
impl AsFd for WakePipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_ready(pipe: &WakePipe) -> bool {
        poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&Timespec::default())).expect("it polls") == 1
    }

    #[test]
    fn only_the_own_pipe_is_written() {
        let mut pipe = WakePipe::new().expect("a pipe");
        assert!(!is_ready(&pipe));
        assert!(pipe.wake());
        assert!(is_ready(&pipe));

        // The program has closed the descriptor, and its number belongs to another pipe.
        let other = WakePipe::new().expect("a pipe");
        pipe.writer = other.writer.try_clone().expect("a descriptor");
        assert!(!pipe.wake());
        assert!(!is_ready(&other));
    }
}
