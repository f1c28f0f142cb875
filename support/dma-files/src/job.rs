//! [`Job`]: one operation, from its submission to its end.
#![expect(unsafe_code, reason = "operations hold addresses of buffers that their transfers own")]

use std::any::Any;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use dma_core::guarded;
use dma_process::{above_stdio, lock};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::file::DmaFile;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    Read,
    Write,
    Sync,
}

/// Maximum number of ended jobs whose memory a queue keeps: that of the greatest depth.
const MAX_ENDED: usize = 4096;

/// The bytes of an operation's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobBuffer {
    pub(crate) begin: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: only the system calls that read and write the bytes dereference the address. Until the operation
// ends, the transfer owns the buffer, or the job after the transfer is dropped, so the bytes stay valid for
// these calls on any thread.
unsafe impl Send for JobBuffer {}
// SAFETY: a shared reference gives only the address and the length.
unsafe impl Sync for JobBuffer {}

/// One operation.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    /// `None` between two operations.
    file: Option<DmaFile>,
    pub(crate) offset: u64,
    pub(crate) memory: JobBuffer,
    /// Index of the registered buffer that contains the memory, if any.
    pub(crate) fixed: Option<u16>,
    /// Counter of the queue's operations in flight. `None` between two operations.
    in_flight: Option<Arc<Jobs>>,
    /// Number of bytes that were read or written.
    done: AtomicUsize,
    /// The file has no offsets: it is a pipe, socket or terminal.
    is_stream: AtomicBool,
    /// The ring's request in flight is a poll. Only the ring's thread uses this.
    pub(crate) polls: AtomicBool,
    /// The ring's own thread has submitted the request in flight. Only this thread uses this.
    pub(crate) by_reaper: AtomicBool,
    is_refused: AtomicBool,
    state: Mutex<JobState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct JobState {
    result: Option<Result<usize, Errno>>,
    waker: Option<Waker>,
    /// The buffer, after its owner has dropped the transfer.
    kept: Option<Kept>,
    cancelled: bool,
    /// Wakes the worker that waits until the file is ready.
    interrupt: Option<Arc<OwnedFd>>,
}

struct Kept(Box<dyn Any + Send>);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kept")
    }
}

/// The offset -1, which stands for the file's own position in system calls.
pub(crate) const NO_OFFSET: u64 = u64::MAX;

/// The next part of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) descriptor: RawFd,
    /// [`NO_OFFSET`] for a file without offsets.
    pub(crate) offset: u64,
    pub(crate) begin: *mut u8,
    pub(crate) len: usize,
}

/// The result of a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The rest of the operation must be submitted.
    Continue,
    /// As above, as soon as the file is ready.
    WaitReady,
    Ended,
}

impl Job {
    /// Makes a job, in the memory of an ended one if there is one.
    pub(crate) fn new(
        kind: JobKind,
        (file, offset): (DmaFile, u64),
        memory: JobBuffer,
        fixed: Option<u16>,
        in_flight: &Arc<Jobs>,
    ) -> Arc<Self> {
        let file = Some(file);
        let in_flight_of_job = Some(Arc::clone(in_flight));
        let new = Self { kind, file, offset, memory, fixed, in_flight: in_flight_of_job, ..Self::idle() };
        let Some(mut job) = lock(&in_flight.ended).pop() else { return Arc::new(new) };
        match Arc::get_mut(&mut job) {
            Some(ended) => *ended = new,
            None => return Arc::new(new),
        }
        job
    }

    /// A job between two operations.
    fn idle() -> Self {
        Self {
            kind: JobKind::Sync,
            file: None,
            offset: 0,
            memory: JobBuffer { begin: NonNull::dangling(), len: 0 },
            fixed: None,
            in_flight: None,
            done: AtomicUsize::new(0),
            is_stream: AtomicBool::new(false),
            polls: AtomicBool::new(false),
            by_reaper: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Drops a reference to a job. The last reference, which is that of an ended job, makes the job's memory
    /// available to the queue's next operations. If two threads drop the last two references at the same
    /// time, the memory is freed.
    pub(crate) fn release(mut self: Arc<Self>) {
        let Some(job) = Arc::get_mut(&mut self) else { return };
        let ended = std::mem::replace(job, Self::idle());
        if let Some(in_flight) = &ended.in_flight {
            let mut list = lock(&in_flight.ended);
            if list.len() < MAX_ENDED {
                list.push(self);
            }
        }
    }

    /// Returns the next part, at most 1 GiB, because the system reads and writes at most 2 GiB at a time.
    pub(crate) fn part(&self) -> Part {
        let done = self.done.load(Ordering::Relaxed);
        let begin = self.memory.begin.as_ptr().wrapping_add(done);
        let (offset, len) = (self.offset + done as u64, (self.memory.len - done).min(1 << 30));
        let file = self.file.as_ref().expect("the job has not ended");
        let descriptor = file.descriptor(begin.addr(), offset, len);
        let offset = if self.is_stream.load(Ordering::Relaxed) { NO_OFFSET } else { offset };
        Part { descriptor, offset, begin, len }
    }

    /// Records the result of a part: the number of bytes, or an error. Only one thread at a time may call
    /// this for a job: the thread that reaps completions, or the worker that executes the job.
    pub(crate) fn advance(&self, result: Result<usize, Errno>) -> Step {
        let end = match result {
            Err(Errno::INTR | Errno::AGAIN) if self.is_cancelled() => Err(Errno::CANCELED),
            Err(Errno::INTR) => return Step::Continue,
            Err(Errno::AGAIN) => return Step::WaitReady,
            Err(Errno::SPIPE) if !self.is_stream.swap(true, Ordering::Relaxed) => return Step::Continue,
            Err(e) => Err(e),
            Ok(_) if self.kind == JobKind::Sync => Ok(0),
            Ok(bytes) => {
                let done = self.done.load(Ordering::Relaxed) + bytes;
                self.done.store(done, Ordering::Relaxed);
                if done < self.memory.len && bytes > 0 {
                    return if self.is_cancelled() { self.end(Err(Errno::CANCELED)) } else { Step::Continue };
                }
                match self.kind {
                    // The system call wrote no bytes and reported no error.
                    JobKind::Write if done < self.memory.len => Err(Errno::IO),
                    _ => Ok(done),
                }
            }
        };
        self.end(end)
    }

    /// Ends an operation that io_uring refuses with `errno`, before the kernel has taken it.
    pub(crate) fn refuse(&self, errno: Errno) {
        self.is_refused.store(true, Ordering::Relaxed);
        self.end(Err(errno));
    }

    /// Returns true if io_uring has refused the operation.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Ends the operation with `result`: wakes the waiters, and frees a kept buffer.
    fn end(&self, result: Result<usize, Errno>) -> Step {
        // Free the operation's place in the queue first, so that a caller that observes the end can submit
        // the next operation.
        self.in_flight.as_ref().expect("the job has not ended").remove();
        let mut state = lock(&self.state);
        state.result = Some(result);
        let (waker, kept) = (state.waker.take(), state.kept.take());
        drop(state);
        self.ended.notify_all();
        // Run wakers and destructors without the lock. Their panics must not end this thread, which also
        // executes other operations.
        kept.map(|kept| guarded("the drop of a transfer's buffer", || drop(kept.0)));
        waker.map(|waker| guarded("a task's waker", || waker.wake()));
        Step::Ended
    }

    /// Returns true if the operation reads, writes or syncs a file on a disk, so that the system call blocks
    /// only while the disk works.
    pub(crate) fn is_on_disk(&self) -> bool {
        // SAFETY: the job keeps the file open.
        let file = unsafe { BorrowedFd::borrow_raw(self.part().descriptor) };
        let mode = rustix::fs::fstat(file).map(|stat| FileType::from_raw_mode(stat.st_mode));
        matches!(mode, Ok(FileType::RegularFile | FileType::BlockDevice))
    }

    /// Returns the number of bytes that were read or written so far.
    pub(crate) fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Requests the operation's cancellation. Returns true if the method must also be asked: in the first
    /// call, if the operation has not ended yet.
    pub(crate) fn cancel(&self) -> bool {
        let mut state = lock(&self.state);
        if let Some(interrupt) = &state.interrupt {
            // The counter is far from full, so that this does not block.
            let _ = rustix::io::write(interrupt, &1_u64.to_ne_bytes());
        }
        !std::mem::replace(&mut state.cancelled, true) && state.result.is_none()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        lock(&self.state).cancelled
    }

    /// Returns the result, or stores the waker.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<Result<usize, Errno>> {
        let waker = waker.clone();
        let mut state = lock(&self.state);
        if state.result.is_some() {
            return state.result;
        }
        let old = state.waker.replace(waker);
        drop(state);
        // It may belong to another task than the caller.
        guarded("the drop of a task's waker", || drop(old));
        None
    }

    /// Returns the events of poll(2) for which the next part waits.
    pub(crate) const fn ready_events(&self) -> PollFlags {
        match self.kind {
            JobKind::Read => PollFlags::IN,
            JobKind::Write | JobKind::Sync => PollFlags::OUT,
        }
    }

    /// Blocks until the file is ready for the next part, or the operation's cancellation is requested.
    pub(crate) fn wait_ready(&self) -> Result<(), Errno> {
        let interrupt = Arc::new(above_stdio(eventfd(0, EventfdFlags::CLOEXEC)?));
        let mut state = lock(&self.state);
        if state.cancelled {
            return Ok(());
        }
        state.interrupt = Some(Arc::clone(&interrupt));
        drop(state);
        // SAFETY: the job keeps the file open.
        let file = unsafe { BorrowedFd::borrow_raw(self.part().descriptor) };
        let mut files = [PollFd::new(&file, self.ready_events()), PollFd::new(&*interrupt, PollFlags::IN)];
        let waited = poll(&mut files, None);
        lock(&self.state).interrupt = None;
        waited.map(drop)
    }

    pub(crate) fn result(&self) -> Option<Result<usize, Errno>> {
        lock(&self.state).result
    }

    /// Blocks until the operation has ended.
    pub(crate) fn wait(&self) -> Result<usize, Errno> {
        let mut state = lock(&self.state);
        loop {
            match state.result {
                Some(result) => return result,
                None => state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Blocks until the operation has ended, for at most `timeout`. Returns whether it has ended.
    pub(crate) fn wait_timeout(&self, timeout: Duration) -> bool {
        let waits = |state: &mut JobState| state.result.is_none();
        let waited = self.ended.wait_timeout_while(lock(&self.state), timeout, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.result.is_some()
    }

    /// Keeps the operation's buffer until the operation has ended, because the transfer was dropped.
    pub(crate) fn keep(&self, buffer: impl Any + Send) {
        let buffer = Kept(Box::new(buffer));
        let mut state = lock(&self.state);
        if state.result.is_none() {
            state.kept = Some(buffer);
        } else {
            drop(state);
            drop(buffer);
        }
    }
}

/// Number of jobs in flight of one queue, and the memory of ended ones.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    count: AtomicUsize,
    /// Ended jobs, without file and queue.
    ended: Mutex<Vec<Arc<Job>>>,
}

impl Jobs {
    /// Adds an operation, unless `depth` operations are in flight.
    pub(crate) fn try_add(&self, depth: usize) -> bool {
        let add = |n: usize| (n < depth).then_some(n + 1);
        self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn remove(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Executes a job by calling `once` for each part until the job ends.
pub(crate) fn run(job: &Job, once: impl Fn(&Job) -> Result<usize, Errno>) {
    let mut result = Ok(());
    loop {
        let part = if job.is_cancelled() { Err(Errno::CANCELED) } else { result.and_then(|()| once(job)) };
        result = match job.advance(part) {
            Step::Continue => Ok(()),
            Step::WaitReady => job.wait_ready(),
            Step::Ended => return,
        };
    }
}
