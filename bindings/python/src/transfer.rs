//! [`PyTransfer`]: the handle of an operation, and [`InFlight`], the operation itself.
#![expect(unsafe_code, reason = "moves operations of a queue between threads, under the queue's lock")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use dma::{Error, ErrorKind};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::arguments::seconds_of;
use crate::core::{AnyQueue, Core};
use crate::error::{in_use, raise, raise_with};
use crate::interpreter::{State, detached};
use crate::memory::Memory;
use crate::operation::{Ended, Operation, Outcome, Tracked};

/// Time of one wait without Python's lock. After it, a wait lets Python handle signals such as Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);
/// Time after which a wait looks again, if another thread polls or waits for the same operation.
const SHARED_RETRY: Duration = Duration::from_millis(1);

/// Time that the drop of a file's transfer waits for its blocks in flight.
const CANCEL_WAIT: Duration = Duration::from_secs(1);

/// A use of memory by an operation.
pub(crate) struct Claim {
    pub(crate) memory: Arc<Memory>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) writes: bool,
}

/// A boxed operation.
struct Confined(Box<dyn Operation>);

// SAFETY: an operation of a `dma::Queue` shares the state of its queue with the queue. `InFlight::with` is
// the only access to it, and holds the lock of that queue, as each access to the queue does. No part of the
// state depends on a thread. Operations of other queues are `Send`.
unsafe impl Send for Confined {}

/// An operation in flight, or one that has ended but whose result was not taken.
pub(crate) struct InFlight {
    core: Arc<Core>,
    /// `None` before the operation was submitted, and after it has ended.
    operation: Mutex<Option<Confined>>,
    ended: OnceLock<Ended>,
    /// The memory that the operation uses, with the ids of the uses.
    claims: State<Vec<(Claim, u64)>>,
    /// The operation's number in this process, by which event loops know it.
    token: u64,
}

impl InFlight {
    /// Makes an entry for an operation, and begins its uses of memory. The operation follows.
    ///
    /// # Errors
    ///
    /// `InUse`, a `BufferError`, if Python views the memory.
    pub(crate) fn new(py: Python<'_>, core: Arc<Core>, claims: Vec<Claim>) -> PyResult<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let token = NEXT.fetch_add(1, Ordering::Relaxed);
        let (operation, ended) = (Mutex::default(), OnceLock::new());
        let this = Arc::new(Self { core, operation, ended, claims: State::new(Vec::new()), token });
        let begun_by: Weak<dyn Tracked> = Arc::<Self>::downgrade(&this);
        let mut begun = Vec::with_capacity(claims.len());
        for claim in claims {
            let range = (claim.start, claim.end);
            match claim.memory.begin_operation(py, begun_by.clone(), range, claim.writes) {
                Ok(id) => begun.push((claim, id)),
                Err(e) => {
                    *this.claims.write(py) = begun;
                    this.release(py);
                    return Err(e);
                }
            }
        }
        *this.claims.write(py) = begun;
        Ok(this)
    }

    /// Sets the operation, or its end. The caller holds the lock of the queue, if it has one.
    pub(crate) fn start(&self, started: Result<Ended, Box<dyn Operation>>) {
        match started {
            Ok(ended) => self.set_ended(ended),
            Err(operation) => {
                *self.operation.lock().unwrap_or_else(PoisonError::into_inner) = Some(Confined(operation));
            }
        }
    }

    /// Makes the transfer of an operation that was submitted to the queue of `owner`.
    pub(crate) fn into_transfer(
        self: Arc<Self>,
        py: Python<'_>,
        owner: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyTransfer>> {
        match self.ended.get() {
            Some(Ended { result: Ok(outcome), is_kept: false }) => {
                self.release(py);
                PyTransfer::ended(py, *outcome)
            }
            _ => PyTransfer::in_flight(py, self, owner.clone().unbind()),
        }
    }

    /// Ends the uses of memory of an operation that was refused or has ended.
    pub(crate) fn release(&self, py: Python<'_>) {
        let claims = std::mem::take(&mut *self.claims.write(py));
        for (claim, id) in &claims {
            claim.memory.end_operation(py, *id);
        }
        // Memory of a buffer that the program has dropped is freed here.
        drop(claims);
    }

    /// Sets the end of the operation.
    fn set_ended(&self, ended: Ended) {
        // An operation ends once.
        let _ = self.ended.set(ended);
    }

    /// Calls `f` with the operation, which returns whether it has ended. Returns whether it has; `None` if
    /// another thread uses the operation or its queue. Does not block.
    fn advance(&self, f: impl FnOnce(&mut dyn Operation) -> bool) -> Option<bool> {
        if self.ended.get().is_some() {
            return Some(true);
        }
        self.core.locked(|| {
            let mut place = match self.operation.try_lock() {
                Ok(place) => place,
                Err(TryLockError::Poisoned(place)) => place.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            if let Some(mut operation) = place.take() {
                if f(&mut *operation.0) {
                    self.set_ended(operation.0.end());
                } else {
                    *place = Some(operation);
                }
            }
            Some(self.ended.get().is_some())
        })?
    }

    /// Ends the uses of memory if the operation has ended.
    fn settle(&self, py: Python<'_>) -> bool {
        match self.ended.get() {
            Some(Ended { is_kept: false, .. }) => self.release(py),
            // A device may still write the memory, so its uses never end.
            Some(Ended { is_kept: true, .. }) => {}
            None => return false,
        }
        true
    }

    /// Polls with a waker. Returns whether the operation has ended.
    fn watch(&self, py: Python<'_>, waker: &Waker) -> PyResult<bool> {
        self.core.note_user();
        let advanced = detached(py, || self.advance(|operation| operation.watch(waker)));
        if advanced.is_none() {
            return Err(raise(py, &busy()));
        }
        Ok(self.settle(py))
    }

    /// Waits until the operation has ended or `timeout` has passed.
    fn wait(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<()> {
        self.core.note_user();
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let slice = Instant::now() + SLICE;
            let slice = until.map_or(slice, |until| until.min(slice));
            let advanced = detached(py, || self.advance(|operation| operation.wait_until(slice)));
            if self.settle(py) {
                return Ok(());
            }
            if advanced.is_none() {
                if matches!(self.core.queue, AnyQueue::Local(_)) {
                    return Err(raise(py, &busy()));
                }
                // Another thread polls or waits for the same operation.
                detached(py, || std::thread::sleep(SHARED_RETRY.min(slice - Instant::now())));
            }
            py.check_signals()?;
            if until.is_some_and(|until| Instant::now() >= until) {
                let error = Error::new(ErrorKind::TimedOut, "the time of the wait has passed").with_hint(
                    "the operation is still in flight: wait again, or close the queue to give it up",
                );
                return Err(raise(py, &error));
            }
            if timeout.is_none() {
                self.core.check_stalled(py)?;
            }
        }
    }

    /// Returns the result of an operation that has ended. Each call returns the same.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Some(ended) = self.ended.get() else {
            return Err(raise(py, &busy()));
        };
        match &ended.result {
            Ok(outcome) => outcome.to_python(py),
            Err((error, failed)) => Err(raise_with(py, error, failed)),
        }
    }
}

impl Tracked for InFlight {
    fn poll(&self, py: Python<'_>) -> bool {
        self.core.note_user();
        detached(py, || {
            self.core.flush();
            self.advance(|operation| operation.is_done())
        });
        self.settle(py)
    }

    fn poll_for_view(&self, py: Python<'_>) {
        if self.core.is_user() {
            self.poll(py);
        }
    }

    fn cancel(&self) {
        self.advance(|operation| {
            operation.cancel();
            false
        });
    }

    fn end_until(&self, deadline: Option<Instant>) {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + SLICE);
        self.advance(|operation| operation.wait_until(deadline));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // The queue was not closed, as at the end of a forked child. A device may still use the operands.
            std::mem::forget(operation);
        }
    }
}

/// Makes the error of a queue or transfer that another thread uses.
fn busy() -> Error {
    in_use(
        "another thread waits on this queue, which serves one thread at a time",
        "use a queue for each thread, or engine.shared_queue()",
    )
}

/// The handle of an operation.
///
/// Wait for it by wait(), await it on asyncio, or ask done. If a transfer is dropped, the operation
/// continues, and its memory stays in use until it ends.
#[pyclass(name = "Transfer", module = "dma", frozen, weakref, generic)]
pub(crate) struct PyTransfer {
    inner: Inner,
}

enum Inner {
    Done(Outcome),
    /// The operation, and its queue's object, which is not closed before.
    InFlight(Arc<InFlight>, Py<PyAny>),
}

/// The transfer of every operation without a result that was done within its call.
static DONE: PyOnceLock<Py<PyTransfer>> = PyOnceLock::new();

impl PyTransfer {
    /// Returns the transfer of an operation without a result that is done.
    #[inline]
    pub(crate) fn done(py: Python<'_>) -> PyResult<Py<Self>> {
        let inner = || Inner::Done(Outcome::Nothing);
        Ok(DONE.get_or_try_init(py, || Py::new(py, Self { inner: inner() }))?.clone_ref(py))
    }

    fn ended(py: Python<'_>, outcome: Outcome) -> PyResult<Py<Self>> {
        match outcome {
            Outcome::Nothing => Self::done(py),
            outcome => Py::new(py, Self { inner: Inner::Done(outcome) }),
        }
    }

    /// Polls with the waker that `waker_of` makes for the operation's token. Returns whether the operation
    /// has ended.
    pub(crate) fn watch(&self, py: Python<'_>, waker_of: impl FnOnce(u64) -> Waker) -> PyResult<bool> {
        match &self.inner {
            Inner::Done(_) => Ok(true),
            Inner::InFlight(operation, _) => operation.watch(py, &waker_of(operation.token)),
        }
    }

    pub(crate) fn in_flight(
        py: Python<'_>,
        operation: Arc<InFlight>,
        queue: Py<PyAny>,
    ) -> PyResult<Py<Self>> {
        Py::new(py, Self { inner: Inner::InFlight(operation, queue) })
    }
}

impl Drop for PyTransfer {
    fn drop(&mut self) {
        if let Inner::InFlight(operation, _) = &self.inner {
            let has_ended = Python::try_attach(|py| {
                if matches!(operation.core.queue, AnyQueue::Device(_)) {
                    // It would go on only while it is polled. Its end frees the pool's buffers and removes a
                    // partial file.
                    detached(py, || {
                        operation.cancel();
                        operation.end_until(Some(Instant::now() + CANCEL_WAIT));
                    });
                }
                operation.settle(py)
            });
            if has_ended != Some(true) {
                operation.core.adopt(Arc::<InFlight>::clone(operation));
            }
        }
    }
}

#[pymethods]
impl PyTransfer {
    /// Waits until the operation has ended, and returns its result: None, a CRC-32C, the offset of the first
    /// byte that differs, or a number of bytes.
    ///
    /// Args:
    ///     timeout: seconds; None waits until the operation ends or the device stalls (stall_timeout of the
    ///     queue).
    ///
    /// During the wait, other threads run Python, and Ctrl-C ends the wait within 100 ms. The operation is
    /// then still in flight, and can be waited for again, as after a TimeoutError.
    ///
    /// Raises:
    ///     dma.TimedOut (a TimeoutError): the time has passed, or the device has stalled.
    ///     dma.DeviceFault, dma.Aborted, dma.DeviceLost, dma.Closed or another dma.Error: the operation has
    ///     failed.
    ///     dma.InUse (a BufferError): another thread waits on the same queue. ValueError: the timeout is
    ///     negative or not a number.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        match &self.inner {
            Inner::Done(outcome) => outcome.to_python(py),
            Inner::InFlight(operation, _) => {
                let timeout = timeout.map(|seconds| seconds_of(py, seconds)).transpose()?;
                operation.wait(py, timeout)?;
                operation.result(py)
            }
        }
    }

    /// True if the operation has ended. Submits what is pending, and polls the device once. Does not block.
    #[getter(done)]
    fn is_done(&self, py: Python<'_>) -> bool {
        match &self.inner {
            Inner::Done(_) => true,
            Inner::InFlight(operation, _) => operation.poll(py),
        }
    }

    /// Awaits the operation on asyncio. Returns and raises as wait() without a timeout does. If the task is
    /// cancelled, the operation continues, and can be awaited again.
    fn __await__(slf: Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        static PENDING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        let this = slf.get();
        match &this.inner {
            Inner::Done(outcome) => {
                let value = outcome.to_python(py)?;
                Ok(Py::new(py, Ready { value })?.into_any())
            }
            Inner::InFlight(operation, queue) => {
                let pending = PENDING
                    .get_or_try_init(py, || py.import("dma._aio")?.getattr("pending").map(Bound::unbind))?;
                let arguments = (&slf, queue.bind(py), operation.token);
                Ok(pending.bind(py).call1(arguments)?.unbind())
            }
        }
    }

    fn __repr__(&self) -> String {
        match &self.inner {
            Inner::Done(_) => "<dma.Transfer done>".to_owned(),
            Inner::InFlight(operation, _) if operation.ended.get().is_some() => {
                "<dma.Transfer ended>".to_owned()
            }
            Inner::InFlight(..) => "<dma.Transfer in flight>".to_owned(),
        }
    }
}

/// The iterator of an awaited transfer that is done. Its first step returns the result.
#[pyclass(frozen)]
struct Ready {
    value: Py<PyAny>,
}

#[pymethods]
impl Ready {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<()> {
        Err(PyStopIteration::new_err((self.value.clone_ref(py),)))
    }
}
