//! [`Ring`]: executes operations by io_uring.
//!
//! Submitters push to the submission queue and enter the kernel. One thread reaps the completions, continues
//! short reads and writes, and ends operations. The kernel cancels or fails the operations that a thread
//! submitted when that thread exits, so the reaping thread submits such operations again. If the kernel still
//! cancels one, it has no thread for it, and the reaping thread executes it. The user data of a
//! read, write, sync or poll is a raw pointer to its job. This pointer owns a reference to the job.
#![expect(
    unsafe_code,
    reason = "shares a ring with the kernel, which reads and writes the memory of operations"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use dma_core::{Error, ErrorKind, Result, deferred_log, guarded_log, with_deferred_log};
use dma_process::{WakePipe, lock, spawn_thread};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{EnterFlags, IoUring, Probe, opcode, squeue};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;

use crate::job::{Job, JobKind, Jobs, Part, Step};
use crate::workers::once;

/// User data of requests whose completions are ignored: cancellations, and requests that wake the thread.
const IGNORED: u64 = 0;
/// User data of the poll of the pipe that wakes the thread. It is not the address of a job.
const WAKE: u64 = 1;

/// The operations that the ring uses. Linux 5.6 has all of them.
const OPERATIONS: [u8; 8] = [
    opcode::Read::CODE,
    opcode::ReadFixed::CODE,
    opcode::Write::CODE,
    opcode::WriteFixed::CODE,
    opcode::Fsync::CODE,
    opcode::PollAdd::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Nop::CODE,
];

#[derive(Debug)]
pub(crate) struct Ring {
    shared: Arc<SharedRing>,
}

struct SharedRing {
    ring: IoUring,
    /// Number of requests pushed so far. Locked while a thread writes to the submission queue.
    submission: Mutex<u64>,
    /// Held from the push of a request to its submission, and exclusively by the reaping thread, so that no
    /// other thread submits its requests.
    turns: RwLock<()>,
    /// The error with which the kernel has refused to take requests. No thread submits any more then.
    refused: OnceLock<Errno>,
    in_flight: Arc<Jobs>,
    closed: AtomicBool,
    /// Wakes the reaping thread if the kernel takes no requests.
    wake: WakePipe,
}

/// The thread that submits a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submitter {
    /// A thread that may exit before the request completes.
    Caller,
    /// The thread that reaps completions, which exits after the last operation.
    Reaper,
}

impl std::fmt::Debug for SharedRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedRing").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

impl Ring {
    /// Creates a ring, and tries to register buffers with it. Returns the ring, and whether the buffers are
    /// registered.
    ///
    /// # Errors
    ///
    /// `Unsupported` or `PermissionDenied` if the system forbids io_uring or lacks its operations;
    /// `OutOfResources`; `Os`.
    pub(crate) fn new(
        depth: usize,
        in_flight: Arc<Jobs>,
        buffers: &[(usize, usize)],
    ) -> Result<(Self, bool)> {
        if cfg!(dma_thread_sanitizer) {
            // io_uring orders the thread that submits a request before the thread that reaps its completion.
            // ThreadSanitizer does not see this, and would report races.
            return Err(refused(Errno::NOSYS.into()));
        }
        // Each operation has at most one request and one cancellation, and two more requests wake the thread.
        let entries = u32::try_from(2 * depth + 2).unwrap_or(u32::MAX).next_power_of_two();
        let mut ring = IoUring::builder().build(entries).map_err(refused)?;
        // As `above_stdio`. The ring cannot change its number, so low numbers are occupied in the meantime.
        let mut low = Vec::new();
        while ring.as_raw_fd() < 3 {
            low.push(ring);
            ring = IoUring::builder().build(entries).map_err(refused)?;
        }
        drop(low);
        probe(&ring)?;
        try_read(&mut ring)?;
        let registered = !buffers.is_empty() && register(&ring, buffers);
        let shared = Arc::new(SharedRing {
            ring,
            submission: Mutex::new(0),
            turns: RwLock::new(()),
            refused: OnceLock::new(),
            in_flight,
            closed: AtomicBool::new(false),
            wake: WakePipe::new().map_err(|e| refused(e.into()))?,
        });
        let reaping = Arc::clone(&shared);
        spawn_thread("dma-files".to_owned(), move || reaping.reap())?;
        Ok((Self { shared }, registered))
    }

    /// Submits an operation.
    pub(crate) fn submit(&self, job: Arc<Job>) {
        let part = self.shared.part(&job);
        self.shared.push_for(job, part, Submitter::Caller);
    }

    /// Asks the kernel to cancel an operation.
    pub(crate) fn cancel(&self, job: &Arc<Job>) {
        self.shared.cancel(job, Submitter::Caller);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The thread exits after the last operation, and frees the ring.
        self.shared.closed.store(true, Ordering::Release);
        let nop = opcode::Nop::new().build().user_data(IGNORED);
        if self.shared.push(&nop, Submitter::Caller).is_err() {
            // If the program has closed the pipe, too, the thread is awake.
            let _ = self.shared.wake.wake();
        }
    }
}

impl SharedRing {
    /// Returns the request for the next part of an operation.
    fn part(&self, job: &Job) -> squeue::Entry {
        let Part { descriptor, offset, begin, len } = job.part();
        let (fd, len) = (Fd(descriptor), len as u32);
        match (job.kind, job.fixed) {
            (JobKind::Read, Some(index)) => {
                opcode::ReadFixed::new(fd, begin, len, index).offset(offset).build()
            }
            (JobKind::Read, None) => opcode::Read::new(fd, begin, len).offset(offset).build(),
            (JobKind::Write, Some(index)) => {
                opcode::WriteFixed::new(fd, begin, len, index).offset(offset).build()
            }
            (JobKind::Write, None) => opcode::Write::new(fd, begin, len).offset(offset).build(),
            (JobKind::Sync, _) => opcode::Fsync::new(fd).flags(FsyncFlags::empty()).build(),
        }
    }

    /// Submits a request of an operation. Its completion takes over the reference to the job. Returns whether
    /// this thread submitted it. Ends the operation with an error if the kernel takes no requests.
    fn push_for(&self, job: Arc<Job>, entry: squeue::Entry, submitter: Submitter) -> bool {
        let job = Arc::into_raw(job);
        let pushed = self.push(&entry.user_data(job.expose_provenance() as u64), submitter);
        pushed.unwrap_or_else(|errno| {
            // SAFETY: the pointer is from `Arc::into_raw`. The kernel has not taken the request and never
            // does, so no completion takes over the reference.
            let job = unsafe { Arc::from_raw(job) };
            job.refuse(errno);
            job.release();
            false
        })
    }

    fn cancel(&self, job: &Arc<Job>, submitter: Submitter) {
        let target = Arc::as_ptr(job).expose_provenance() as u64;
        // If the kernel takes no requests, the operation cannot be cancelled.
        let _ = self.push(&opcode::AsyncCancel::new(target).build().user_data(IGNORED), submitter);
    }

    /// Pushes one request and submits it. Returns whether this thread submitted it: otherwise another thread
    /// may have done so. Fails if the kernel has not taken the request, and never will.
    fn push(&self, entry: &squeue::Entry, submitter: Submitter) -> Result<bool, Errno> {
        // A log subscriber may use the queue, so it runs after the locks are released.
        with_deferred_log(|| self.push_in_turn(entry, submitter))
    }

    fn push_in_turn(&self, entry: &squeue::Entry, submitter: Submitter) -> Result<bool, Errno> {
        let mut number = None;
        let mut push = || {
            while number.is_none() {
                // SAFETY: a read or write accesses the buffer of its job. The buffer stays valid until the
                // job ends, because the transfer owns it, or the job after the transfer is dropped. The
                // request's user data owns a reference to the job, which also keeps the file open, until
                // the completion. Other requests have no memory.
                number = unsafe { self.try_push(entry) };
                if number.is_none() {
                    // The queue is full of requests that the kernel has not consumed yet.
                    self.enter()?;
                }
            }
            self.submit_pushed(number)
        };
        let mut entered = match submitter {
            Submitter::Caller => {
                let _turn = self.turns.read().unwrap_or_else(PoisonError::into_inner);
                push()
            }
            Submitter::Reaper => {
                let _turn = self.turns.write().unwrap_or_else(PoisonError::into_inner);
                push()
            }
        };
        let submitted = entered == Ok(true);
        while entered == Ok(false) {
            // The kernel lacks memory, or the thread must reap completions first.
            std::thread::yield_now();
            let _turn = self.turns.read().unwrap_or_else(PoisonError::into_inner);
            entered = self.submit_pushed(number);
        }
        match entered {
            Ok(_) => Ok(submitted),
            Err(errno) => self.refuse(number, errno),
        }
    }

    /// Ends all submissions, because the kernel takes no requests. Fails unless another thread has submitted
    /// the request with this `number`.
    fn refuse(&self, number: Option<u64>, errno: Errno) -> Result<bool, Errno> {
        // No thread is between a push and its submission now, and no thread submits later, so the requests
        // that are left in the queue stay there.
        let _turn = self.turns.write().unwrap_or_else(PoisonError::into_inner);
        let errno = *self.refused.get_or_init(|| {
            deferred_log!(error, %errno, "io_uring accepts no requests");
            errno
        });
        if number.is_none() || self.is_left(number) { Err(errno) } else { Ok(false) }
    }

    /// Returns whether the kernel has not taken the request with this `number`.
    fn is_left(&self, number: Option<u64>) -> bool {
        let pushed = lock(&self.submission);
        // SAFETY: all submission queues are created under this lock and dropped before it is released, so no
        // other submission queue exists.
        let left = unsafe { self.ring.submission_shared() }.len() as u64;
        number.is_some_and(|number| number + left >= *pushed)
    }

    /// Pushes one request. Returns its number, or `None` if the submission queue is full.
    ///
    /// # Safety
    ///
    /// The request's memory must stay valid until its completion.
    unsafe fn try_push(&self, entry: &squeue::Entry) -> Option<u64> {
        let mut pushed = lock(&self.submission);
        // SAFETY: all submission queues are created under this lock and dropped before it is released, so no
        // other submission queue exists.
        let mut queue = unsafe { self.ring.submission_shared() };
        // SAFETY: the caller keeps the request's memory valid.
        unsafe { queue.push(entry) }.ok()?;
        *pushed += 1;
        Some(*pushed - 1)
    }

    /// Submits all requests, also the one with this `number`. Returns false if the caller must try again.
    /// Fails if the kernel takes no requests.
    fn submit_pushed(&self, number: Option<u64>) -> Result<bool, Errno> {
        match self.enter()? {
            // The program has closed the descriptor, and the ring of another queue has its number now.
            Some(0) if self.is_left(number) => Err(Errno::BADF),
            Some(_) => Ok(!self.is_left(number)),
            None => Ok(false),
        }
    }

    /// Submits all requests to the kernel. Returns the number that it took, or `None` if the caller must try
    /// again. Fails if the kernel takes no requests, because the program has closed the ring's descriptor, or
    /// a sandbox forbids the call.
    fn enter(&self) -> Result<Option<usize>, Errno> {
        loop {
            if let Some(errno) = self.refused.get() {
                return Err(*errno);
            }
            let error = match self.ring.submit() {
                Ok(taken) => return Ok(Some(taken)),
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => return Ok(None),
                errno => return Err(errno.unwrap_or(Errno::IO)),
            }
        }
    }

    /// Reaps completions until the queue is dropped and no operation is in flight.
    fn reap(&self) {
        let (mut completions, mut is_logged) = (Vec::new(), false);
        self.watch_pipe();
        loop {
            completions.clear();
            // SAFETY: only this thread reaps completions, and it drops the completion queue at the end of
            // this statement, so no other completion queue exists.
            completions.extend(unsafe { self.ring.completion_shared() });
            for completion in &completions {
                match completion.user_data() {
                    IGNORED => {}
                    WAKE => self.woken(completion.result()),
                    reference => self.complete(reference, completion.result()),
                }
            }
            if completions.is_empty() {
                if self.closed.load(Ordering::Acquire) && self.in_flight.count() == 0 {
                    return;
                }
                if self.refused.get().is_some() {
                    // The number of the ring may belong to another file, in which the thread must not wait.
                    // Completions of earlier requests still arrive in the shared memory.
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                // SAFETY: the call waits for one completion, and passes no pointer.
                let waited = unsafe {
                    self.ring.submitter().enter::<libc::sigset_t>(0, 1, EnterFlags::GETEVENTS.bits(), None)
                };
                if let Err(error) = waited
                    && Errno::from_io_error(&error) != Some(Errno::INTR)
                {
                    // The error may repeat until the queue is dropped.
                    if !std::mem::replace(&mut is_logged, true) {
                        guarded_log!(warn, %error, "io_uring cannot wait for completions");
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// Makes the kernel report when the pipe is written to, or when its writing end is closed.
    fn watch_pipe(&self) {
        let pipe = Fd(self.wake.as_fd().as_raw_fd());
        let poll = opcode::PollAdd::new(pipe, PollFlags::IN.bits().into()).build().user_data(WAKE);
        // A ring that takes no requests does not wait in the kernel.
        let _ = self.push(&poll, Submitter::Reaper);
    }

    /// Records that the poll of the pipe has ended with `events`.
    fn woken(&self, events: i32) {
        if events & i32::from(PollFlags::HUP.bits()) != 0 {
            // The program has closed the descriptors of the library, and also that of the ring.
            self.refused.get_or_init(|| Errno::BADF);
        } else if self.refused.get().is_none() {
            // The kernel has cancelled the poll. Nothing is written to the pipe of a ring that takes
            // requests.
            self.watch_pipe();
        }
    }

    /// Records the result of a request. `reference` is its user data. Submits the next request of the
    /// operation, if any.
    fn complete(&self, reference: u64, result: i32) {
        let job = std::ptr::with_exposed_provenance::<Job>(reference as usize);
        // SAFETY: `push_for` made this pointer by `Arc::into_raw`, and the kernel completes each request
        // once, so this call is the only one that takes over the request's reference.
        let job = unsafe { Arc::from_raw(job) };
        let result = match u32::try_from(result) {
            Ok(bytes) => Ok(bytes as usize),
            Err(_) => Err(Errno::from_raw_os_error(-result)),
        };
        let polled = job.polls.swap(false, Ordering::Relaxed);
        let by_reaper = job.by_reaper.swap(false, Ordering::Relaxed);
        // `INTR` submits the part again, unless the program has cancelled the operation.
        let result = match result {
            // The result of a poll is a set of events, and no part of the operation was executed.
            Ok(_) if polled => Err(Errno::INTR),
            // The thread that submitted the request may have exited. The kernel then cancels the request, or
            // finds the memory of the thread's process gone.
            Err(Errno::CANCELED | Errno::FAULT) if !by_reaper => Err(Errno::INTR),
            // The kernel could not start a thread for the request, because of the limits on threads.
            Err(Errno::CANCELED) if !job.is_cancelled() && job.is_on_disk() => once(&job),
            result => result,
        };
        let entry = match job.advance(result) {
            Step::Continue => self.part(&job),
            Step::WaitReady => {
                job.polls.store(true, Ordering::Relaxed);
                let events = job.ready_events().bits() as u32;
                opcode::PollAdd::new(Fd(job.part().descriptor), events).build()
            }
            Step::Ended => return job.release(),
        };
        let by_reaper = self.push_for(Arc::clone(&job), entry, Submitter::Reaper);
        job.by_reaper.store(by_reaper, Ordering::Relaxed);
        // A cancellation between the two requests has found neither.
        if job.is_cancelled() {
            self.cancel(&job, Submitter::Reaper);
        }
    }
}

/// Reads 8 bytes. Fails if the kernel does not execute reads, whatever the probe says.
fn try_read(ring: &mut IoUring) -> Result<()> {
    let file = eventfd(1, EventfdFlags::CLOEXEC).map_err(|e| refused(e.into()))?;
    // Memory that stays valid if the kernel never completes the read.
    let bytes = Box::into_raw(Box::new([0_u8; 8]));
    let read = opcode::Read::new(Fd(file.as_raw_fd()), bytes.cast(), 8).build();
    // SAFETY: the memory is freed only after the completion of the read.
    unsafe { ring.submission().push(&read) }.map_err(|e| refused(io::Error::other(e)))?;
    loop {
        let entered = ring.submit_and_wait(1);
        if let Some(completion) = ring.completion().next() {
            // SAFETY: the memory is that of the box above, and the read has ended.
            drop(unsafe { Box::from_raw(bytes) });
            return match completion.result() {
                8 => Ok(()),
                result => Err(refused(io::Error::from_raw_os_error(-result))),
            };
        }
        match entered {
            Err(e) if Errno::from_io_error(&e) != Some(Errno::INTR) => return Err(refused(e)),
            _ => {}
        }
    }
}

/// Fails if the kernel lacks an operation. Linux 5.1 to 5.5 have io_uring, but neither all operations nor
/// this probe.
fn probe(ring: &IoUring) -> Result<()> {
    let mut probe = Probe::new();
    let probed = ring.submitter().register_probe(&mut probe);
    if probed.is_ok() && has_operations(&probe) { Ok(()) } else { Err(too_old()) }
}

/// Returns true if the kernel has all operations that the ring uses.
fn has_operations(probe: &Probe) -> bool {
    OPERATIONS.iter().all(|code| probe.is_supported(*code))
}

fn too_old() -> Error {
    Error::new(ErrorKind::Unsupported, "io_uring of this kernel lacks the operations read and write")
        .with_hint("use Linux 5.6 or later, or use threads")
}

/// Registers buffers, so that the kernel does not look up their pages for each operation. Returns whether the
/// kernel registered them.
fn register(ring: &IoUring, buffers: &[(usize, usize)]) -> bool {
    let iovecs: Vec<_> = buffers
        .iter()
        .map(|&(begin, len)| libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(begin),
            iov_len: len,
        })
        .collect();
    // SAFETY: the queue keeps the pools, so their memory stays mapped. The kernel pins the registered pages
    // until the ring is freed: even if the memory were unmapped, the kernel would not write to other memory.
    let registered = unsafe { ring.submitter().register_buffers(&iovecs) };
    if let Err(error) = &registered {
        guarded_log!(debug, %error, "io_uring refused to register buffers, so each operation looks up its pages");
    }
    registered.is_ok()
}

/// Converts an error of creating a ring.
fn refused(e: io::Error) -> Error {
    let kind = match Errno::from_io_error(&e) {
        // The operation of a completion is not known to the kernel.
        Some(Errno::INVAL) => return too_old(),
        Some(Errno::NOSYS) => ErrorKind::Unsupported,
        Some(Errno::PERM | Errno::ACCESS) => ErrorKind::PermissionDenied,
        Some(Errno::NOMEM | Errno::MFILE | Errno::NFILE) => ErrorKind::OutOfResources,
        _ => ErrorKind::Os,
    };
    let hint = match kind {
        ErrorKind::OutOfResources => "raise the limits of open files and of locked memory",
        _ => "allow io_uring in the sandbox or by the sysctl kernel.io_uring_disabled, or use threads",
    };
    Error::new(kind, format!("io_uring is not available: {e}")).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use io_uring::register::Restriction;

    use super::*;
    use crate::file::DmaFile;
    use crate::job::JobBuffer;

    /// Returns a ring, or `None` if the system forbids io_uring.
    fn ring(restrictions: &mut [Restriction]) -> Option<IoUring> {
        let mut builder = IoUring::builder();
        if !restrictions.is_empty() {
            builder.setup_r_disabled();
        }
        let ring = match builder.build(4) {
            Ok(ring) => ring,
            Err(e) => {
                eprintln!("left out: {}", refused(e));
                return None;
            }
        };
        if !restrictions.is_empty() {
            ring.submitter().register_restrictions(restrictions).expect("Linux 5.10 has restrictions");
            ring.submitter().register_enable_rings().expect("enabled");
        }
        Some(ring)
    }

    #[test]
    fn a_kernel_without_the_operations_is_too_old() {
        assert!(!has_operations(&Probe::new()));
        let e = too_old();
        assert_eq!((e.kind(), e.hint()), (ErrorKind::Unsupported, "use Linux 5.6 or later, or use threads"));
        // An operation that a kernel does not know ends with this error number.
        assert_eq!(refused(Errno::INVAL.into()).kind(), ErrorKind::Unsupported);
    }

    /// The probe of a ring succeeds here, but the kernel executes no reads on the second ring.
    #[test]
    fn a_ring_is_used_only_if_it_executes_a_read() {
        let Some(mut free) = ring(&mut []) else { return };
        if let Err(e) = probe(&free) {
            eprintln!("left out: {e}");
            return;
        }
        try_read(&mut free).expect("it reads");
        let mut nops =
            [Restriction::sqe_op(opcode::Nop::CODE), Restriction::register_op(/* IORING_REGISTER_PROBE */ 8)];
        let Some(mut restricted) = ring(&mut nops) else { return };
        probe(&restricted).expect("the probe asks the kernel, not the ring");
        assert_eq!(try_read(&mut restricted).expect_err("restricted").kind(), ErrorKind::PermissionDenied);
    }

    /// A program that closes all descriptors, as a daemon does, also closes the ring's. Its number then leads
    /// to another file.
    #[test]
    fn a_ring_without_its_descriptor_refuses_operations() {
        let null = std::fs::File::open("/dev/null").expect("it opens");
        refuses_as(null.as_raw_fd(), Errno::OPNOTSUPP);
        let Some(other) = ring(&mut []) else { return };
        refuses_as(other.as_raw_fd(), Errno::BADF);
    }

    /// Checks that a ring whose number leads to `other` ends its operations with `errno`.
    fn refuses_as(other: i32, errno: Errno) {
        let in_flight = Arc::new(Jobs::default());
        let Ok((ring, _)) = Ring::new(4, Arc::clone(&in_flight), &[]) else { return };
        let mut bytes = [1_u8; 8];
        let memory = JobBuffer { begin: NonNull::from(&mut bytes).cast(), len: 8 };
        let read = |file: &std::fs::File| {
            assert!(in_flight.try_add(4));
            let file = DmaFile::from(file.try_clone().expect("a descriptor"));
            let job = Job::new(JobKind::Read, (file, 0), memory, None, &in_flight);
            ring.submit(Arc::clone(&job));
            job
        };
        let zero = std::fs::File::open("/dev/zero").expect("it opens");
        assert_eq!(read(&zero).wait(), Ok(8));
        let waits = format!("426 {:#x} ", ring.shared.ring.as_raw_fd());
        test_support::patience::until("the ring's thread waits in io_uring_enter", || {
            let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
            let call = |task: io::Result<std::fs::DirEntry>| {
                std::fs::read_to_string(task.ok()?.path().join("syscall")).ok()
            };
            tasks.filter_map(call).any(|call| call.starts_with(&waits))
        });
        // SAFETY: the number is that of the ring, which this test owns.
        let number = unsafe { libc::dup2(other, ring.shared.ring.as_raw_fd()) };
        assert_eq!(number, ring.shared.ring.as_raw_fd());
        for _ in 0..3 {
            let job = read(&zero);
            assert_eq!((job.wait(), job.is_refused()), (Err(errno), true));
        }
        assert_eq!(in_flight.count(), 0);
        let shared = Arc::downgrade(&ring.shared);
        drop(ring);
        // The thread exits, and frees the ring, although the kernel takes no request that wakes it.
        test_support::patience::until("the thread exits", || shared.strong_count() == 0);
    }
}
