//! [`Ring`]: executes operations by io_uring.
//!
//! Submitters push to the submission queue under a lock. One thread reaps the completions, continues short
//! reads and writes, and ends operations. The user data of a read, write or sync is a raw pointer to its job.
//! This pointer owns a reference to the job.
#![expect(
    unsafe_code,
    reason = "shares a ring with the kernel, which reads and writes the memory of operations"
)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dma_core::{Error, ErrorKind, Result, spawn_thread};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{EnterFlags, IoUring, opcode, squeue};
use rustix::io::Errno;

use crate::job::{InFlight, Job, JobKind, Part, Step};

/// User data of requests whose completions are ignored: cancellations, and requests that wake the thread.
const IGNORED: u64 = 0;

#[derive(Debug)]
pub(crate) struct Ring {
    shared: Arc<SharedRing>,
}

struct SharedRing {
    ring: IoUring,
    /// Held while a thread writes to the submission queue.
    submission: Mutex<()>,
    in_flight: Arc<InFlight>,
    closed: AtomicBool,
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
    /// `Unsupported` or `PermissionDenied` if the system forbids io_uring; `OutOfResources`; `Os`.
    pub(crate) fn new(
        depth: usize,
        in_flight: Arc<InFlight>,
        buffers: &[(usize, usize)],
    ) -> Result<(Self, bool)> {
        // One more entry, for a request that cancels an operation or wakes the thread.
        let entries = u32::try_from(depth + 1).unwrap_or(u32::MAX).next_power_of_two();
        let ring = IoUring::builder().build(entries).map_err(refused)?;
        let registered = !buffers.is_empty() && register(&ring, buffers);
        let shared = Arc::new(SharedRing {
            ring,
            submission: Mutex::new(()),
            in_flight,
            closed: AtomicBool::new(false),
        });
        let reaping = Arc::clone(&shared);
        spawn_thread("dma-files".to_owned(), move || reaping.reap())?;
        Ok((Self { shared }, registered))
    }

    /// Submits an operation.
    pub(crate) fn submit(&self, job: Arc<Job>) {
        self.shared.submit(job);
    }

    /// Asks the kernel to cancel an operation.
    pub(crate) fn cancel(&self, job: &Arc<Job>) {
        let target = Arc::as_ptr(job).expose_provenance() as u64;
        self.shared.push(&opcode::AsyncCancel::new(target).build().user_data(IGNORED));
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The thread exits after the last operation, and frees the ring.
        self.shared.closed.store(true, Ordering::Release);
        self.shared.push(&opcode::Nop::new().build().user_data(IGNORED));
    }
}

impl SharedRing {
    /// Submits the next part of an operation.
    fn submit(&self, job: Arc<Job>) {
        let Part { descriptor, offset, begin, len } = job.part();
        let (fd, len) = (Fd(descriptor), len as u32);
        let entry = match (job.kind, job.fixed) {
            (JobKind::Read, Some(index)) => {
                opcode::ReadFixed::new(fd, begin, len, index).offset(offset).build()
            }
            (JobKind::Read, None) => opcode::Read::new(fd, begin, len).offset(offset).build(),
            (JobKind::Write, Some(index)) => {
                opcode::WriteFixed::new(fd, begin, len, index).offset(offset).build()
            }
            (JobKind::Write, None) => opcode::Write::new(fd, begin, len).offset(offset).build(),
            (JobKind::Sync, _) => opcode::Fsync::new(fd).flags(FsyncFlags::empty()).build(),
        };
        let reference = Arc::into_raw(job).expose_provenance() as u64;
        self.push(&entry.user_data(reference));
    }

    /// Pushes one request and submits it.
    fn push(&self, entry: &squeue::Entry) {
        loop {
            {
                let _turn = self.submission.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: all submission queues are created under this lock and dropped before it is
                // released, so no other submission queue exists.
                let mut queue = unsafe { self.ring.submission_shared() };
                // SAFETY: a read or write accesses the buffer of its job. The buffer stays valid until the
                // job ends, because the transfer owns it, or the job after the transfer is dropped. The
                // request's user data owns a reference to the job, which also keeps the file open, until the
                // completion. Other requests have no buffer.
                if unsafe { queue.push(entry) }.is_ok() {
                    break;
                }
            }
            // The queue is full of requests that the kernel has not consumed yet.
            self.enter();
        }
        self.enter();
    }

    /// Submits all requests to the kernel.
    fn enter(&self) {
        loop {
            match self.ring.submit() {
                Ok(_) => return,
                Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INTR)) => {}
                Err(e)
                    if matches!(
                        Errno::from_io_error(&e),
                        Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM)
                    ) =>
                {
                    // The kernel lacks memory, or the thread must reap completions first.
                    std::thread::yield_now();
                }
                Err(error) => {
                    // The request stays in the queue, and the next call submits it.
                    tracing::error!(%error, "io_uring accepts no requests");
                    return;
                }
            }
        }
    }

    /// Reaps completions until the queue is dropped and no operation is in flight.
    fn reap(&self) {
        loop {
            // SAFETY: only this thread reaps completions, and it drops the completion queue at the end of
            // this statement, so no other completion queue exists.
            let completions: Vec<_> = unsafe { self.ring.completion_shared() }.collect();
            for completion in &completions {
                if completion.user_data() != IGNORED {
                    self.complete(completion.user_data(), completion.result());
                }
            }
            if completions.is_empty() {
                if self.closed.load(Ordering::Acquire) && self.in_flight.count() == 0 {
                    return;
                }
                // SAFETY: the call waits for one completion, and passes no pointer.
                let waited = unsafe {
                    self.ring.submitter().enter::<libc::sigset_t>(0, 1, EnterFlags::GETEVENTS.bits(), None)
                };
                if let Err(error) = waited
                    && Errno::from_io_error(&error) != Some(Errno::INTR)
                {
                    tracing::debug!(%error, "io_uring cannot wait for completions");
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Records the result of a request. `reference` is its user data. Submits the next part of the operation,
    /// if any.
    fn complete(&self, reference: u64, result: i32) {
        let job = std::ptr::with_exposed_provenance::<Job>(reference as usize);
        // SAFETY: `submit` made this pointer by `Arc::into_raw`, and the kernel completes each request once,
        // so this call is the only one that takes over the request's reference.
        let job = unsafe { Arc::from_raw(job) };
        let result = match u32::try_from(result) {
            Ok(bytes) => Ok(bytes as usize),
            Err(_) => Err(Errno::from_raw_os_error(-result)),
        };
        if job.advance(result) == Step::Continue {
            self.submit(job);
        }
    }
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
        tracing::debug!(%error, "io_uring refused to register buffers, so each operation looks up its pages");
    }
    registered.is_ok()
}

/// Converts an error of creating a ring.
fn refused(e: io::Error) -> Error {
    let kind = match Errno::from_io_error(&e) {
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
