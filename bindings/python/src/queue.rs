//! [`Queue`] and [`SharedQueue`]: the classes, whose operations `submission.rs` submits.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::batch::{Pairs, PyBatch};
use crate::buffer::view_of;
use crate::core::{AnyQueue, Core};
use crate::error::raise;
use crate::interpreter::{LOCKED_MAX, detached};
use crate::memory::Memory;
use crate::notifier::Notifier;
use crate::submission::Opened;
use crate::transfer::PyTransfer;
use crate::view::View;

/// Tries to copy one view to another one within this call, by `copy`, which gets the windows with the offsets
/// of the copy in them, and its length. Returns whether it has: a copy that is refused here is also refused
/// by the submission, with the reason.
///
/// # Errors
///
/// `Closed`, a `ValueError`, for memory that was released.
#[inline]
fn at_once(
    py: Python<'_>,
    src: &Bound<'_, PyAny>,
    dst: &Bound<'_, PyAny>,
    copy: impl FnOnce((&dma::Window, usize), (&dma::Window, usize), usize) -> bool,
) -> PyResult<bool> {
    let (Ok(from), Ok(to)) = (view_of(src), view_of(dst)) else { return Ok(false) };
    if from.len != to.len || from.len > LOCKED_MAX || to.read_only {
        return Ok(false);
    }
    View::with_both(py, [from, to], |src, dst| {
        let copy = || copy((&src.window, from.start), (&dst.window, to.start), from.len);
        Memory::without_views(py, [src, dst], copy).unwrap_or(false)
    })
}

/// Defines the methods that both kinds of queue have.
macro_rules! queue {
    ($(#[$doc:meta])* $name:ident, [$($copy:tt)*], [$($submit:tt)*], { $($more:tt)* }) => {
        $(#[$doc])*
        #[pyclass(module = "dma", frozen, weakref)]
        pub(crate) struct $name(Opened);

        impl $name {
            pub(crate) fn new(core: Arc<Core>) -> Self {
                Self(Opened { core })
            }
        }

        #[pymethods]
        impl $name {
            $($copy)*
            $($submit)*

            /// Fills `dst` with a byte (a number below 256) or with repetitions of 8 bytes. Does not block.
            ///
            /// Raises: the errors of copy().
            fn fill(slf: &Bound<'_, Self>, dst: &Bound<'_, PyAny>, pattern: &Bound<'_, PyAny>) -> PyResult<Py<PyTransfer>> {
                slf.get().0.fill(slf.as_any(), dst, pattern)
            }

            /// Copies `src` to `dst` and to `also`, all of the same length. Does not block.
            ///
            /// Raises: the errors of copy().
            fn copy_to_both(
                slf: &Bound<'_, Self>,
                src: &Bound<'_, PyAny>,
                dst: &Bound<'_, PyAny>,
                also: &Bound<'_, PyAny>,
            ) -> PyResult<Py<PyTransfer>> {
                slf.get().0.copy_to_both(slf.as_any(), [src, dst, also])
            }

            /// Compares `a` with `b`, of the same length. The transfer's result is the offset of the first
            /// byte that differs, or None. Does not block.
            ///
            /// Raises: the errors of copy(); dma.Unsupported if neither the device nor the processor can
            /// compare.
            fn compare(slf: &Bound<'_, Self>, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<Py<PyTransfer>> {
                slf.get().0.compare(slf.as_any(), a, b)
            }

            /// Computes the CRC-32C of `src`, as defined for iSCSI and NVMe: the transfer's result. `seed` is
            /// the CRC-32C of the bytes before, or 0. Does not block.
            ///
            /// Raises: the errors of compare().
            #[pyo3(signature = (src, seed=0))]
            fn crc32c(slf: &Bound<'_, Self>, src: &Bound<'_, PyAny>, seed: u32) -> PyResult<Py<PyTransfer>> {
                slf.get().0.crc32c(slf.as_any(), src, seed)
            }

            /// Copies `src` to `dst`, and computes the CRC-32C of the bytes: the transfer's result. Does not
            /// block.
            ///
            /// Raises: the errors of compare().
            #[pyo3(signature = (src, dst, seed=0))]
            fn copy_crc32c(
                slf: &Bound<'_, Self>,
                src: &Bound<'_, PyAny>,
                dst: &Bound<'_, PyAny>,
                seed: u32,
            ) -> PyResult<Py<PyTransfer>> {
                slf.get().0.copy_crc32c(slf.as_any(), src, dst, seed)
            }

            /// Waits until the queue has room for an operation. Other threads run during the wait, and Ctrl-C
            /// ends it.
            ///
            /// Raises:
            ///     dma.TimedOut (a TimeoutError): `timeout` seconds have passed, or the device has stalled.
            ///     dma.QueueFull: all operations have ended, but the program keeps their transfers.
            #[pyo3(signature = (timeout=None))]
            fn wait_for_room(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
                self.0.wait_for_room(py, timeout)
            }

            /// The counts of operations so far, as a named tuple (dma.Counters).
            #[getter]
            fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.0.counters(py)
            }

            /// Waits up to `timeout` seconds for operations in flight (default: drop_timeout), aborts the
            /// others, and closes the queue. Returns the final counters. Memory of operations that the device
            /// does not end within a second after that is never used again (counters.abandoned).
            #[pyo3(signature = (timeout=None))]
            fn close<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
                self.0.close(py, timeout)
            }

            fn __enter__(slf: Py<Self>) -> Py<Self> {
                slf
            }

            #[pyo3(signature = (*_error))]
            fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
                self.0.close(py, None).map(drop)
            }

            /// Makes what an event loop needs. Internal.
            fn _notifier(&self, py: Python<'_>) -> PyResult<Notifier> {
                Notifier::new(py, Arc::clone(&self.0.core))
            }

            $($more)*
        }
    };
}

queue! {
    /// A queue of an engine, for one thread at a time. A call while another thread uses the queue raises
    /// InUse.
    ///
    /// Operations do not block. They are collected until a wait, an await, flush() or done, which ring one
    /// doorbell for all. A full queue raises QueueFull. Devices execute operations in any order: use fence().
    Queue,
    [
        /// Copies `src` to `dst`, of the same length. Does not block, except that the processor may make a
        /// short copy within the call.
        ///
        /// Args:
        ///     src: a Buffer, a Window, a list of them (a gather), or Rows.
        ///     dst: the same (with a list or Rows: a scatter).
        ///
        /// Raises:
        ///     dma.LengthMismatch, dma.Overlap, dma.WrongEngine (ValueErrors).
        ///     dma.AccessDenied (a BufferError): the destination is read-only.
        ///     dma.InUse (a BufferError): a view of the memory exists, or another thread uses the queue.
        ///     dma.QueueFull: wait for a transfer, or call wait_for_room().
        ///     dma.TimedOut (a TimeoutError): the queue is full, and its device has stalled.
        ///     dma.Closed (a ValueError): the queue is closed, or the memory was released. TypeError: an
        ///     argument is not memory of an engine.
        fn copy(slf: &Bound<'_, Self>, src: &Bound<'_, PyAny>, dst: &Bound<'_, PyAny>) -> PyResult<Py<PyTransfer>> {
            let (py, this) = (slf.py(), &slf.get().0);
            if let AnyQueue::Local(lock) = &this.core.queue
                && at_once(py, src, dst, |src, dst, len| {
                    Core::with_local(lock, |queue, _| queue.copy_at_once(src, dst, len)).unwrap_or(false)
                })?
            {
                return PyTransfer::done(py);
            }
            this.copy(slf.as_any(), src, dst)
        }
    ],
    [
        /// Submits all copies of a batch. It counts as one operation of the depth, and ends when all copies
        /// have ended.
        ///
        /// Raises:
        ///     dma.InUse (a BufferError): the batch is in flight. The errors of copy().
        fn submit(slf: &Bound<'_, Self>, batch: &Bound<'_, PyBatch>) -> PyResult<Py<PyTransfer>> {
            let (py, this, batch) = (slf.py(), &slf.get().0, batch.get());
            if batch.bytes() <= LOCKED_MAX
                && let AnyQueue::Local(lock) = &this.core.queue
            {
                let submit = |pairs: &mut Pairs| {
                    Core::with_local(lock, |queue, _| queue.submit_at_once(pairs)).unwrap_or(false)
                };
                // Batches that are refused here are also refused below, with the reason.
                if batch.now(py, submit).unwrap_or(false) {
                    return PyTransfer::done(py);
                }
            }
            this.submit_batch(slf.as_any(), batch)
        }
    ],
    {
        /// Delays operations that are submitted after this call until all earlier ones have ended.
        fn fence(&self, py: Python<'_>) -> PyResult<()> {
            self.local(py, |queue| queue.fence())
        }

        /// Passes all operations to the device and rings its doorbell once. Other threads run during the
        /// call.
        fn flush(&self, py: Python<'_>) -> PyResult<()> {
            self.local(py, |queue| queue.flush())
        }

        /// Polls the device without blocking, and frees the memory of dropped transfers that have ended.
        /// Returns the number of reports.
        fn poll(&self, py: Python<'_>) -> PyResult<usize> {
            let reports = self.local(py, |queue| queue.poll());
            self.0.core.reap(py);
            reports
        }

        /// The maximum number of operations in flight.
        #[getter]
        fn depth(&self, py: Python<'_>) -> PyResult<usize> {
            self.local(py, |queue| queue.depth())
        }

        /// The number of operations that can be submitted before the queue is full. An operation counts until
        /// its transfer was waited for, or was dropped and has ended.
        #[getter]
        fn available(&self, py: Python<'_>) -> PyResult<usize> {
            self.local(py, |queue| queue.available())
        }

        /// The seconds for which the device has completed nothing, if they exceed stall_timeout, or None.
        #[getter]
        fn stalled(&self, py: Python<'_>) -> PyResult<Option<f64>> {
            self.local(py, |queue| queue.stalled().map(|time| time.as_secs_f64()))
        }

        fn __repr__(&self) -> &'static str {
            "<dma.Queue>"
        }
    }
}

impl Queue {
    /// Calls `f` without Python's lock.
    fn local<R: Send>(&self, py: Python<'_>, f: impl FnOnce(&dma::Queue) -> R + Send) -> PyResult<R> {
        let AnyQueue::Local(lock) = &self.0.core.queue else { unreachable!("the queue of a `Queue`") };
        self.0.core.note_user();
        detached(py, || Core::with_local(lock, |queue, _| f(queue))).map_err(|e| raise(py, &e))
    }
}

queue! {
    /// A queue of an engine, for any number of threads and tasks at the same time. It has no fences: wait for
    /// an operation before you submit one that depends on it.
    SharedQueue,
    [
        /// Copies `src` to `dst`, of the same length. Does not block, except that the processor may make a
        /// short copy within the call. See Queue.copy() for arguments and errors.
        fn copy(slf: &Bound<'_, Self>, src: &Bound<'_, PyAny>, dst: &Bound<'_, PyAny>) -> PyResult<Py<PyTransfer>> {
            let (py, this) = (slf.py(), slf.get());
            if at_once(py, src, dst, |src, dst, len| this.shared().copy_at_once(src, dst, len))? {
                return PyTransfer::done(py);
            }
            this.0.copy(slf.as_any(), src, dst)
        }
    ],
    [
        /// Submits all copies of a batch. See Queue.submit().
        fn submit(slf: &Bound<'_, Self>, batch: &Bound<'_, PyBatch>) -> PyResult<Py<PyTransfer>> {
            let (py, this, batch) = (slf.py(), slf.get(), batch.get());
            let submit = |pairs: &mut Pairs| this.shared().submit_at_once(pairs);
            if batch.bytes() <= LOCKED_MAX && batch.now(py, submit).unwrap_or(false) {
                return PyTransfer::done(py);
            }
            this.0.submit_batch(slf.as_any(), batch)
        }
    ],
    {
        /// The maximum number of operations in flight, on all lanes together.
        #[getter]
        fn depth(&self) -> usize {
            self.shared().depth()
        }

        /// The number of operations that can be submitted before all lanes are full.
        #[getter]
        fn available(&self) -> usize {
            self.shared().available()
        }

        /// The seconds for which the device has completed nothing, if they exceed stall_timeout, or None.
        #[getter]
        fn stalled(&self) -> Option<f64> {
            self.shared().stalled().map(|time| time.as_secs_f64())
        }

        fn __repr__(&self) -> &'static str {
            "<dma.SharedQueue>"
        }
    }
}

impl SharedQueue {
    pub(crate) fn shared(&self) -> &dma::SharedQueue {
        let AnyQueue::Shared(queue) = &self.0.core.queue else {
            unreachable!("the queue of a `SharedQueue`")
        };
        queue
    }
}
