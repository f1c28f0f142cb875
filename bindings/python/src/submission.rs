//! Submission of operations, for both kinds of queue.
#![expect(clippy::result_large_err, reason = "errors return the operands")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dma::{Counters, Error, ErrorKind, OpError, SharedResult, SubmitResult};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{seconds_of, wait_limit};
use crate::batch::{Pairs, PyBatch};
use crate::core::{AnyQueue, Core};
use crate::error::{invalid, raise};
use crate::interpreter::{LOCKED_MAX, detached};
use crate::operand::Operand;
use crate::operation::{Ended, IntoOutcome, Operation, Receiver, of_queue, of_shared_queue};
use crate::transfer::{Claim, InFlight, PyTransfer};

/// A queue's object, whose end closes the queue.
pub(crate) struct Opened {
    pub(crate) core: Arc<Core>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // At the interpreter's end, `close_all` has closed it.
        let _ = Python::try_attach(|py| self.core.close(py, None));
    }
}

/// Memory that an operation uses, and the number of bytes that it moves.
struct Request {
    claims: Vec<Claim>,
    bytes: usize,
}

/// Starts an operation: returns its end, or the operation in flight.
type Started<T> = Result<Result<Ended, Box<dyn Operation>>, Refusal<T>>;

/// Submits operands by a call that both kinds of queue have.
macro_rules! submit {
    ($this:ident, $owner:ident, $request:ident, $operands:expr, |$queue:ident, $pattern:pat_param| $call:expr) => {
        $this.submit($owner, $request, $operands, |$queue, $pattern| $call, |$queue, $pattern| $call, None)
    };
}

/// The pattern of one operand, or of a tuple of several.
macro_rules! operands {
    ($operand:ident) => {
        $operand
    };
    ($($operand:ident),+) => {
        ($($operand),+)
    };
}

/// Submits operands by a call that both kinds of queue have: as views if each operand is one, otherwise as
/// lists.
macro_rules! submit_views {
    ($this:ident, $owner:ident, $request:ident, |$queue:ident, $($operand:ident),+| $call:expr) => {
        match ($($operand,)+) {
            ($(Operand::One($operand),)+) => {
                submit!($this, $owner, $request, ($($operand),+), |$queue, operands!($($operand),+)| $call)
            }
            ($($operand,)+) => {
                let lists = ($($operand.into_list()),+);
                submit!($this, $owner, $request, lists, |$queue, operands!($($operand),+)| $call)
            }
        }
    };
}

/// A refused operation.
enum Refusal<T> {
    /// The queue refused the operation, and has returned the operands.
    Operation(OpError<T>),
    /// Another thread uses the queue, or it is closed. With the operands, unless the queue keeps them.
    Queue(Error, Option<T>),
}

impl Opened {
    /// Submits an operation: `local` and `shared` do on the two kinds of queue.
    fn submit<T: Send + 'static, R: IntoOutcome>(
        &self,
        owner: &Bound<'_, PyAny>,
        request: Request,
        operands: T,
        local: impl Fn(&dma::Queue, T) -> SubmitResult<T, R> + Sync,
        shared: impl Fn(&dma::SharedQueue, T) -> SharedResult<T, R> + Sync,
        receiver: Option<Receiver<T>>,
    ) -> PyResult<Py<PyTransfer>> {
        let py = owner.py();
        // The operation's uses of memory begin before the operation.
        let operation = match InFlight::new(py, Arc::clone(&self.core), request.claims) {
            Ok(operation) => operation,
            Err(e) => {
                if let Some(receive) = receiver {
                    receive(operands);
                }
                return Err(e);
            }
        };
        self.core.note_user();
        let receiver = Mutex::new(receiver);
        let take_receiver = || receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The lock of the queue is held until the operation is in its place.
        let start = |operands: T| -> Result<(), Refusal<T>> {
            let started: Started<T> = match &self.core.queue {
                AnyQueue::Local(lock) => {
                    let mut operands = Some(operands);
                    let submitted = Core::with_local(lock, |queue, _| {
                        let operands = operands.take().expect("this is called once");
                        let started = match local(queue, operands) {
                            Ok(transfer) => of_queue(transfer, take_receiver()),
                            Err(e) => return Err(Refusal::Operation(e)),
                        };
                        operation.start(started);
                        Ok(())
                    });
                    return submitted.unwrap_or_else(|e| Err(Refusal::Queue(e, operands)));
                }
                AnyQueue::Shared(queue) => match shared(queue, operands) {
                    Ok(transfer) => Ok(of_shared_queue(transfer, take_receiver())),
                    Err(e) => Err(Refusal::Operation(e)),
                },
                AnyQueue::Files(_) | AnyQueue::Device(_) => {
                    unreachable!("a file queue has its own operations")
                }
            };
            operation.start(started?);
            Ok(())
        };
        let start = |operands: T| {
            if request.bytes > LOCKED_MAX { detached(py, || start(operands)) } else { start(operands) }
        };
        let mut result = start(operands);
        // Operations whose transfers were dropped use slots until they are polled.
        if let Err(Refusal::Operation(e)) = result {
            result = if e.kind() == ErrorKind::QueueFull && self.core.reap(py) {
                match e.into_parts() {
                    (_, Some(operands)) => start(operands),
                    (error, None) => Err(Refusal::Queue(error, None)),
                }
            } else {
                Err(Refusal::Operation(e))
            };
        }
        match result {
            Ok(()) => operation.into_transfer(py, owner),
            Err(refusal) => {
                operation.release(py);
                let (error, operands) = match refusal {
                    Refusal::Queue(error, operands) => (error, operands),
                    Refusal::Operation(e) => e.into_parts(),
                };
                if let (Some(operands), Some(receive)) = (operands, take_receiver()) {
                    receive(operands);
                }
                Err(raise(py, &error))
            }
        }
    }

    pub(crate) fn copy(
        &self,
        owner: &Bound<'_, PyAny>,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyTransfer>> {
        let mut claims = Vec::new();
        let src = Operand::new(src, false, &mut claims)?;
        let dst = Operand::new(dst, true, &mut claims)?;
        let request = Request { claims, bytes: dst.bytes() };
        macro_rules! copy {
            ($operands:expr) => {
                submit!(self, owner, request, $operands, |q, (s, d)| q.copy(s, d))
            };
        }
        match (src, dst) {
            (Operand::One(src), Operand::One(dst)) => copy!((src, dst)),
            (Operand::Rows(src, rows), Operand::One(dst)) => copy!((rows_of(owner.py(), src, rows)?, dst)),
            (Operand::One(src), Operand::Rows(dst, rows)) => copy!((src, rows_of(owner.py(), dst, rows)?)),
            (Operand::Rows(src, from), Operand::Rows(dst, to)) => {
                copy!((rows_of(owner.py(), src, from)?, rows_of(owner.py(), dst, to)?))
            }
            (src, dst) => copy!((src.into_list(), dst.into_list())),
        }
    }

    pub(crate) fn fill(
        &self,
        owner: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        pattern: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyTransfer>> {
        let pattern = pattern_of(pattern)?;
        let mut claims = Vec::new();
        let dst = Operand::new(dst, true, &mut claims)?;
        let request = Request { claims, bytes: dst.bytes() };
        submit_views!(self, owner, request, |queue, dst| queue.fill(dst, pattern))
    }

    pub(crate) fn copy_to_both(
        &self,
        owner: &Bound<'_, PyAny>,
        [src, dst, also]: [&Bound<'_, PyAny>; 3],
    ) -> PyResult<Py<PyTransfer>> {
        let mut claims = Vec::new();
        let src = Operand::new(src, false, &mut claims)?;
        let dst = Operand::new(dst, true, &mut claims)?;
        let also = Operand::new(also, true, &mut claims)?;
        let request = Request { claims, bytes: dst.bytes().saturating_mul(2) };
        submit_views!(self, owner, request, |queue, src, dst, also| queue.copy_to_both(src, dst, also))
    }

    pub(crate) fn compare(
        &self,
        owner: &Bound<'_, PyAny>,
        a: &Bound<'_, PyAny>,
        b: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyTransfer>> {
        let mut claims = Vec::new();
        let a = Operand::new(a, false, &mut claims)?;
        let b = Operand::new(b, false, &mut claims)?;
        let request = Request { claims, bytes: a.bytes() };
        submit_views!(self, owner, request, |queue, a, b| queue.compare(a, b))
    }

    pub(crate) fn crc32c(
        &self,
        owner: &Bound<'_, PyAny>,
        src: &Bound<'_, PyAny>,
        seed: u32,
    ) -> PyResult<Py<PyTransfer>> {
        let mut claims = Vec::new();
        let src = Operand::new(src, false, &mut claims)?;
        let request = Request { claims, bytes: src.bytes() };
        submit_views!(self, owner, request, |queue, src| queue.crc32c(src, seed))
    }

    pub(crate) fn copy_crc32c(
        &self,
        owner: &Bound<'_, PyAny>,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        seed: u32,
    ) -> PyResult<Py<PyTransfer>> {
        let mut claims = Vec::new();
        let src = Operand::new(src, false, &mut claims)?;
        let dst = Operand::new(dst, true, &mut claims)?;
        let request = Request { claims, bytes: dst.bytes() };
        submit_views!(self, owner, request, |queue, src, dst| queue.copy_crc32c(src, dst, seed))
    }

    pub(crate) fn submit_batch(&self, owner: &Bound<'_, PyAny>, batch: &PyBatch) -> PyResult<Py<PyTransfer>> {
        let py = owner.py();
        let request = Request { claims: batch.claims(), bytes: batch.bytes() };
        let pairs = batch.take(py)?;
        let home = Arc::clone(&batch.pairs);
        let put_back = move |pairs: Pairs| *home.lock().unwrap_or_else(PoisonError::into_inner) = Some(pairs);
        self.submit(owner, request, pairs, |q, b| q.submit(b), |q, b| q.submit(b), Some(Box::new(put_back)))
    }

    /// Waits until the queue has room for an operation.
    pub(crate) fn wait_for_room(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = wait_limit(py, timeout)?;
        let until = Instant::now().checked_add(timeout);
        loop {
            self.core.reap(py);
            let slice = Duration::from_millis(20);
            let has_room = detached(py, || match &self.core.queue {
                AnyQueue::Local(lock) => Core::with_local(lock, |queue, _| {
                    let end = Instant::now() + slice;
                    queue.flush();
                    while queue.available() == 0 && Instant::now() < end {
                        if queue.poll() == 0 {
                            std::thread::yield_now();
                        }
                        // Only ended operations whose transfers are waited for, or dropped, make room.
                        if queue.counters().in_flight == 0 {
                            break;
                        }
                    }
                    Ok((queue.available() > 0, queue.counters().in_flight == 0))
                })?,
                AnyQueue::Shared(queue) => match queue.ready().wait_until(Instant::now() + slice) {
                    Ok(()) => Ok((true, false)),
                    Err(e) if e.kind() == ErrorKind::TimedOut && queue.stalled().is_none() => {
                        Ok((false, queue.counters().in_flight == 0))
                    }
                    Err(e) => Err(e),
                },
                AnyQueue::Files(_) | AnyQueue::Device(_) => Ok((true, false)),
            });
            let (has_room, is_idle) = has_room.map_err(|e: Error| raise(py, &e))?;
            if has_room {
                return Ok(());
            }
            if is_idle && !self.core.reap(py) {
                let error = Error::new(
                    ErrorKind::QueueFull,
                    "all operations have ended, but their transfers have slots",
                )
                .with_hint("wait for the transfers that you keep, or drop them");
                return Err(raise(py, &error));
            }
            py.check_signals()?;
            if until.is_some_and(|until| Instant::now() >= until) {
                let error = Error::new(ErrorKind::TimedOut, "the queue has no room");
                return Err(raise(py, &error.with_hint("wait longer, or close the queue")));
            }
            self.core.check_stalled(py)?;
        }
    }

    pub(crate) fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let counters = self.core.counters().map_err(|e| raise(py, &e))?;
        counters_of(py, &counters)
    }

    pub(crate) fn close<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let timeout = timeout.map(|seconds| seconds_of(py, seconds)).transpose()?;
        let counters = self.core.close(py, timeout);
        counters_of(py, &counters)
    }
}

/// Makes rows, which `Rows.__new__` has checked.
fn rows_of(
    py: Python<'_>,
    window: dma::Window,
    rows: Vec<(usize, usize)>,
) -> PyResult<dma::Rows<dma::Window>> {
    dma::Rows::new(window, rows).map_err(|e| raise(py, e.error()))
}

/// Reads a pattern: a number below 256, or 8 bytes.
fn pattern_of(pattern: &Bound<'_, PyAny>) -> PyResult<[u8; 8]> {
    const REMEDY: &str = "give 8 bytes, or a number below 256";
    if let Ok(bytes) = pattern.extract::<&[u8]>() {
        if let Ok(bytes) = bytes.try_into() {
            return Ok(bytes);
        }
        return Err(raise(pattern.py(), &invalid(format!("a pattern of {} bytes", bytes.len()), REMEDY)));
    }
    let byte: u8 = pattern.extract().map_err(|e: PyErr| {
        if e.is_instance_of::<PyOverflowError>(pattern.py()) {
            return raise(pattern.py(), &invalid(format!("a pattern of {pattern}"), REMEDY));
        }
        if e.is_instance_of::<PyTypeError>(pattern.py()) {
            return PyTypeError::new_err(format!("{}; {REMEDY}", e.value(pattern.py())));
        }
        e
    })?;
    Ok([byte; 8])
}

/// Makes the named tuple of counters.
fn counters_of<'py>(py: Python<'py>, counters: &Counters) -> PyResult<Bound<'py, PyAny>> {
    let values = PyDict::new(py);
    macro_rules! set {
        ($($field:ident),+) => { $(values.set_item(stringify!($field), counters.$field)?;)+ };
    }
    set!(
        submitted,
        completed,
        failed,
        aborted,
        abandoned,
        in_flight,
        bytes,
        full,
        descriptors,
        doorbells,
        polls,
        resets
    );
    py.import("dma._types")?.getattr("Counters")?.call((), Some(&values))
}
