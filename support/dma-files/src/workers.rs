//! [`Workers`]: executes operations on threads by blocking calls, if the system forbids io_uring.
#![expect(unsafe_code, reason = "system calls read and write the memory of operations")]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use dma_core::{Result, spawn_thread};
use rustix::io::Errno;

use crate::job::{Job, JobKind, Part, run};

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
        workers.shared.state().threads = 1;
        workers.start()?;
        Ok(workers)
    }

    /// Starts a thread, which is already counted in `threads`.
    fn start(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        spawn_thread("dma-files".to_owned(), move || shared.work()).map(drop)
    }

    /// Submits an operation.
    pub(crate) fn submit(&self, job: Arc<Job>) {
        let mut state = self.shared.state();
        state.jobs.push_back(job);
        let start = state.jobs.len() > state.idle && state.threads < self.most;
        state.threads += usize::from(start);
        drop(state);
        self.shared.changed.notify_one();
        if start && let Err(error) = self.start() {
            self.shared.state().threads -= 1;
            tracing::debug!(%error, "the file queue could not start another thread");
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
    }
}

impl SharedJobs {
    fn state(&self) -> MutexGuard<'_, WorkersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes jobs until the queue is dropped and no job is left.
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                run(&job, once);
                drop(job);
                state = self.state();
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
fn once(job: &Job) -> std::result::Result<usize, Errno> {
    let Part { descriptor, offset, begin, len } = job.part();
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
    usize::try_from(moved).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}
