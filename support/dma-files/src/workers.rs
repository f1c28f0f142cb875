//! [`Workers`]: executes operations on threads by blocking calls, if the system forbids io_uring.
#![expect(unsafe_code, reason = "system calls read and write the memory of operations")]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use dma_core::Result;
use dma_process::{lock, spawn_thread};
use rustix::io::Errno;

use crate::job::{Job, JobKind, NO_OFFSET, Part, run};

/// Threads that read and write. The first thread starts with the queue, and other threads when they are
/// needed. They exit after the queue is dropped and all operations have ended.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<SharedJobs>,
    most: usize,
}

#[derive(Debug, Default)]
struct SharedJobs {
    state: Mutex<WorkersState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WorkersState {
    jobs: VecDeque<Arc<Job>>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Workers {
    /// Allows up to `most` threads, and starts the first thread.
    ///
    /// # Errors
    ///
    /// The errors of [`spawn_thread`].
    pub(crate) fn new(most: usize) -> Result<Self> {
        let workers = Self { shared: Arc::default(), most };
        lock(&workers.shared.state).threads = 1;
        workers.start()?;
        Ok(workers)
    }

    /// Starts a thread, which is already counted in `threads`.
    fn start(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        spawn_thread("dma-files".to_owned(), move || shared.work())?;
        Ok(())
    }

    /// Submits an operation.
    pub(crate) fn submit(&self, job: Arc<Job>) {
        let mut state = lock(&self.shared.state);
        state.jobs.push_back(job);
        let start = state.jobs.len() > state.idle && state.threads < self.most;
        state.threads += usize::from(start);
        drop(state);
        self.shared.changed.notify_one();
        if start && let Err(error) = self.start() {
            lock(&self.shared.state).threads -= 1;
            dma_core::guarded_log!(debug, %error, "the file queue could not start another thread");
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.shared.state).closed = true;
        self.shared.changed.notify_all();
    }
}

impl SharedJobs {
    /// Executes jobs until the queue is dropped and no job is left.
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                run(&job, once);
                job.release();
                state = lock(&self.state);
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

/// Executes one part of a job by one system call.
pub(crate) fn once(job: &Job) -> std::result::Result<usize, Errno> {
    let part = job.part();
    let Part { descriptor, offset, begin, len } = part;
    if offset == NO_OFFSET && job.kind != JobKind::Sync {
        return stream(job.kind, part);
    }
    // `FileQueue` has checked on submission that the offset fits.
    let at = offset.cast_signed();
    let moved = match job.kind {
        // SAFETY: the part lies within the operation's buffer, which may be written. The transfer, or the job
        // after the transfer is dropped, owns the buffer until the operation ends, and gives out no reference
        // to its bytes until then. The job keeps the file descriptor open.
        JobKind::Read => unsafe { libc::pread(descriptor, begin.cast(), len, at) },
        // SAFETY: the part lies within the operation's buffer. The transfer, or the job after the transfer is
        // dropped, owns the buffer until the operation ends. The call only reads the bytes, and the job keeps
        // the file descriptor open.
        JobKind::Write => unsafe { libc::pwrite(descriptor, begin.cast_const().cast(), len, at) },
        // SAFETY: the only argument is a file descriptor, which the job keeps open.
        JobKind::Sync => unsafe { libc::fsync(descriptor) as isize },
    };
    result_of(moved)
}

/// Executes one part of a job on a file without offsets. Fails with `AGAIN` if the file is not ready: a call
/// that blocks could not be cancelled. Musl has no functions for these system calls before its version 1.2.5.
fn stream(kind: JobKind, Part { descriptor, begin, len, .. }: Part) -> std::result::Result<usize, Errno> {
    let bytes = libc::iovec { iov_base: begin.cast(), iov_len: len };
    let number = if kind == JobKind::Read { libc::SYS_preadv2 } else { libc::SYS_pwritev2 };
    // The position is in two halves, as the kernel's ABI has it. -1 stands for the file's own position.
    // SAFETY: the part lies within the operation's buffer, which stays valid until the operation ends, and
    // may be written if this reads. The local variable `bytes` lives longer than the call.
    let moved = unsafe {
        libc::syscall(number, descriptor, &raw const bytes, 1_usize, -1_isize, -1_isize, libc::RWF_NOWAIT)
    };
    let result = result_of(moved as isize);
    if !matches!(result, Err(Errno::OPNOTSUPP | Errno::NOSYS)) {
        return result;
    }
    // The kernel has no calls for this file that never block. After the poll, this call blocks only if
    // another reader or writer of the file is faster.
    let mut ready = libc::pollfd { fd: descriptor, events: 0, revents: 0 };
    ready.events = if kind == JobKind::Read { libc::POLLIN } else { libc::POLLOUT };
    // SAFETY: the pointer to the local variable `ready` is valid during the call.
    match unsafe { libc::poll(&raw mut ready, 1, 0) } {
        0 => Err(Errno::AGAIN),
        // SAFETY: the part lies within the operation's buffer, which may be written and stays valid until the
        // operation ends.
        1 if kind == JobKind::Read => result_of(unsafe { libc::read(descriptor, begin.cast(), len) }),
        // SAFETY: the part lies within the operation's buffer, which stays valid until the operation ends. A
        // pipe that is ready takes 4096 bytes without waiting.
        1 => result_of(unsafe { libc::write(descriptor, begin.cast_const().cast(), len.min(4096)) }),
        _ => result_of(-1),
    }
}

/// Returns the result of a system call of libc.
fn result_of(moved: isize) -> std::result::Result<usize, Errno> {
    usize::try_from(moved).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}
