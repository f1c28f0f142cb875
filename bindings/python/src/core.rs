//! [`Core`]: the queue behind a queue's object, with the operations whose transfers were dropped.
#![expect(unsafe_code, reason = "moves a queue between threads, under its lock")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use dma::files::FileQueue;
use dma::{Counters, Driver, Error, ErrorKind, Queue, QueueOptions, SharedQueue};
use dma_process::ForkMark;
use pyo3::prelude::*;

use crate::device_queue::DeviceQueue;
use crate::error::{in_use, raise};
use crate::interpreter::{detached, interpreter_ends};
use crate::operation::Tracked;

/// Time that the end of a queue of files waits for the operations of dropped transfers. A read of a pipe may
/// never end; its memory then stays in use.
const FILES_DROP: Duration = Duration::from_secs(1);
/// Time that the end of `DeviceFiles`, or of the interpreter, waits for blocks of a file in flight.
const DEVICE_FILES_DROP: Duration = Duration::from_secs(5);

/// A queue for one thread at a time.
pub(crate) struct Local {
    /// Dropped before the queue.
    pub(crate) driver: Option<Driver>,
    /// `None` after the queue was closed.
    queue: Option<Queue>,
    counters: Counters,
}

/// See [`Local`].
pub(crate) struct OneThread(Local);

// SAFETY: values that share the queue's state are in this value (the driver) or in an operation of the queue
// (`transfer::Confined`). All are accessed only while the lock around this value is held, and no part of the
// state depends on a thread.
unsafe impl Send for OneThread {}

pub(crate) enum AnyQueue {
    Local(Mutex<Box<OneThread>>),
    Shared(SharedQueue),
    Files(FileQueue),
    Device(DeviceQueue),
}

pub(crate) struct Core {
    pub(crate) queue: AnyQueue,
    /// Operations whose transfers were dropped before they ended.
    orphans: Mutex<Vec<Arc<dyn Tracked>>>,
    /// The thread that has used a queue for one thread last: a [`this_thread`].
    user: AtomicUsize,
    /// Detects a forked child of the process that opened the queue.
    process: ForkMark,
    drop_timeout: Duration,
}

/// The queues of this process that may be open, which the interpreter's end closes.
static OPEN: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

/// Closes all queues, so that no device uses memory of Python's objects after them. Called by `atexit`.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) {
    interpreter_ends();
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    for core in open.iter().filter_map(Weak::upgrade) {
        core.close(py, None);
    }
}

impl Core {
    fn new(queue: AnyQueue, drop_timeout: Duration) -> Arc<Self> {
        let (orphans, user) = (Mutex::default(), AtomicUsize::new(this_thread()));
        let process = ForkMark::new();
        let this = Arc::new(Self { queue, orphans, user, process, drop_timeout });
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|core| core.strong_count() > 0);
        open.push(Arc::downgrade(&this));
        drop(open);
        this
    }

    pub(crate) fn local(queue: Queue, options: &QueueOptions) -> Arc<Self> {
        let local = OneThread(Local { driver: None, queue: Some(queue), counters: Counters::default() });
        let queue = AnyQueue::Local(Mutex::new(Box::new(local)));
        Self::new(queue, options.drop_timeout)
    }

    pub(crate) fn shared(queue: SharedQueue, options: &QueueOptions) -> Arc<Self> {
        Self::new(AnyQueue::Shared(queue), options.drop_timeout)
    }

    pub(crate) fn files(queue: FileQueue) -> Arc<Self> {
        Self::new(AnyQueue::Files(queue), FILES_DROP)
    }

    pub(crate) fn device_files(queue: DeviceQueue) -> Arc<Self> {
        Self::new(AnyQueue::Device(queue), DEVICE_FILES_DROP)
    }

    /// Notes that the calling thread uses the queue.
    pub(crate) fn note_user(&self) {
        self.user.store(this_thread(), Ordering::Relaxed);
    }

    /// Returns whether the calling thread can poll the queue without disturbing another thread that uses it.
    pub(crate) fn is_user(&self) -> bool {
        !matches!(self.queue, AnyQueue::Local(_)) || self.user.load(Ordering::Relaxed) == this_thread()
    }

    /// Calls `f` with the queue of one thread. Does not block.
    ///
    /// # Errors
    ///
    /// `InUse` if another thread uses the queue; `Closed`.
    #[inline]
    pub(crate) fn with_local<R>(
        lock: &Mutex<Box<OneThread>>,
        f: impl FnOnce(&Queue, &mut Option<Driver>) -> R,
    ) -> Result<R, Error> {
        let mut local = match lock.try_lock() {
            Ok(local) => local,
            Err(TryLockError::Poisoned(local)) => local.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(busy()),
        };
        let Local { driver, queue, .. } = &mut local.0;
        match queue {
            Some(queue) => Ok(f(queue, driver)),
            None => Err(closed()),
        }
    }

    /// Calls `f` while no other thread uses the queue. Returns `None` if another thread does.
    pub(crate) fn locked<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let AnyQueue::Local(lock) = &self.queue else { return Some(f()) };
        let _guard = match lock.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(f())
    }

    /// Passes pending operations to the device, if no other thread uses the queue. Call it without Python's
    /// lock: the processor may make the copies.
    pub(crate) fn flush(&self) {
        if let AnyQueue::Local(lock) = &self.queue {
            // A queue that is closed has nothing to flush.
            let _ = Self::with_local(lock, |queue, _| queue.flush());
        }
    }

    /// Keeps an operation whose transfer was dropped, until it has ended.
    pub(crate) fn adopt(&self, operation: Arc<dyn Tracked>) {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    }

    /// Frees operations of dropped transfers that have ended. Returns whether it has freed one.
    pub(crate) fn reap(&self, py: Python<'_>) -> bool {
        let orphans = || self.orphans.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = std::mem::take(&mut *orphans());
        if list.is_empty() {
            return false;
        }
        let before = list.len();
        list.retain(|operation| !operation.poll(py));
        let has_ended = list.len() < before;
        orphans().append(&mut list);
        has_ended
    }

    /// Fails if the device has stalled.
    ///
    /// # Errors
    ///
    /// `TimedOut`.
    pub(crate) fn check_stalled(&self, py: Python<'_>) -> PyResult<()> {
        let stalled = match &self.queue {
            AnyQueue::Local(lock) => Self::with_local(lock, |queue, _| queue.stalled()).unwrap_or_default(),
            AnyQueue::Shared(queue) => queue.stalled(),
            // Transfers of device files detect stalls themselves.
            AnyQueue::Files(_) | AnyQueue::Device(_) => None,
        };
        let Some(time) = stalled else { return Ok(()) };
        let error =
            Error::new(ErrorKind::TimedOut, format!("the device has completed nothing for {time:.1?}"))
                .with_hint("the operation is still in flight: wait again, or close the queue to give it up");
        Err(raise(py, &error))
    }

    /// Returns the counters.
    ///
    /// # Errors
    ///
    /// `InUse` if another thread uses the queue.
    pub(crate) fn counters(&self) -> Result<Counters, Error> {
        match &self.queue {
            AnyQueue::Local(lock) => match Self::with_local(lock, |queue, _| queue.counters()) {
                Err(e) if e.kind() == ErrorKind::Closed => {
                    Ok(lock.lock().unwrap_or_else(PoisonError::into_inner).0.counters)
                }
                counters => counters,
            },
            AnyQueue::Shared(queue) => Ok(queue.counters()),
            AnyQueue::Files(_) | AnyQueue::Device(_) => Ok(Counters::default()),
        }
    }

    /// Closes the queue, without Python's lock: waits up to `timeout` for operations in flight, and aborts
    /// the others. Waits for another thread that uses the queue first.
    pub(crate) fn close(&self, py: Python<'_>, timeout: Option<Duration>) -> Counters {
        if self.process.is_child() {
            // A thread of the parent may have held the lock when this child was forked.
            return Counters::default();
        }
        let timeout = timeout.unwrap_or(self.drop_timeout);
        let counters = detached(py, || match &self.queue {
            AnyQueue::Local(lock) => {
                let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
                let local = &mut guard.0;
                // The driver's loop must not be called any more.
                local.driver = None;
                if let Some(queue) = local.queue.take() {
                    local.counters = queue.close(timeout);
                }
                local.counters
            }
            AnyQueue::Shared(queue) => queue.close(timeout),
            AnyQueue::Files(_) => {
                let deadline = Instant::now().checked_add(timeout);
                let orphans = self.orphans.lock().unwrap_or_else(PoisonError::into_inner).clone();
                orphans.iter().for_each(|operation| operation.end_until(deadline));
                Counters::default()
            }
            AnyQueue::Device(queue) => {
                queue.close(Instant::now().checked_add(timeout));
                Counters::default()
            }
        });
        self.reap(py);
        counters
    }
}

/// Returns a number that no other running thread has.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

/// Makes the error of a queue that another thread uses.
fn busy() -> Error {
    in_use(
        "another thread uses this queue, which serves one thread at a time",
        "open a queue for each thread, or use engine.shared_queue()",
    )
}

/// Makes the error of a closed queue.
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the queue is closed").with_hint("open another queue")
}
