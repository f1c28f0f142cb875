//! `dma.files.DeviceFiles`: files into and from a device's own memory.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use dma::ErrorKind;
use dma::files::{DeviceFiles as Files, DeviceTransfer, FileError, FilePiece, FileQueueOptions, Finished};
use pyo3::prelude::*;

use crate::buffer::view_of;
use crate::core::{AnyQueue, Core};
use crate::device_queue::DeviceQueue;
use crate::error::{invalid, raise};
use crate::files::{File, in_flight, method_of};
use crate::interpreter::detached;
use crate::notifier::Notifier;
use crate::operand::claim;
use crate::operation::{Ended, Operation, Outcome};
use crate::pool::Pool;
use crate::queue::SharedQueue;
use crate::submission::Opened;
use crate::transfer::{InFlight, PyTransfer};

/// Reads ranges of files into memory that the processor may not reach, such as a GPU's, and writes files from
/// there. The bytes go through the buffers of a pool: while the disk fills some of them, the device empties
/// others. An operation uses no other memory for the bytes.
///
/// A piece is a pair of an offset in the file, in bytes, and a Window or Buffer of the pool's engine. Give
/// pieces in the order of the file: those that follow each other share blocks. A transfer goes on while it is
/// awaited, waited for or asked for done. If it is dropped, it is cancelled. After an error, the contents of
/// the pieces, or of the file's ranges, are undefined.
///
/// Args:
///     queue: a shared queue of the engine.
///     pool: a pool of the engine. Its buffers of the greatest size are used, one for each block in flight.
///     method, threads: as for Queue.
///
/// Raises:
///     dma.OutOfRange (a ValueError): the pool has more than 4095 buffers of its greatest size.
///     dma.InvalidArgument (a ValueError): the pool has no buffers, or an option is wrong.
///     dma.Unsupported, dma.PermissionDenied: the system forbids "io_uring".
#[pyclass(name = "DeviceFiles", module = "dma.files", frozen, weakref)]
pub(crate) struct DeviceFiles {
    opened: Opened,
    /// Is closed when its object ends.
    _queue: Py<SharedQueue>,
}

#[pymethods]
impl DeviceFiles {
    #[new]
    #[pyo3(signature = (queue, pool, *, method=None, threads=8))]
    fn new(
        py: Python<'_>,
        queue: Py<SharedQueue>,
        pool: &Bound<'_, Pool>,
        method: Option<&str>,
        threads: usize,
    ) -> PyResult<Self> {
        let options = FileQueueOptions::new().with_method(method_of(py, method)?).with_threads(threads);
        let (shared, pool) = (queue.get().shared(), &pool.get().0);
        let files = detached(py, || Files::new(shared, pool, &options)).map_err(|e| raise(py, &e))?;
        let opened = Opened { core: Core::device_files(DeviceQueue::new(files)) };
        Ok(Self { opened, _queue: queue })
    }

    /// The maximum length of a block in bytes.
    #[getter]
    fn block_size(&self) -> usize {
        self.files().block_len()
    }

    /// Reads the file into the pieces. The transfer's result is the number of bytes. Does not block.
    ///
    /// Raises:
    ///     dma.OutOfRange, dma.Overlap, dma.WrongEngine, dma.InvalidArgument (ValueErrors): a piece ends
    ///     behind the end of the file, overlaps another one or belongs to another engine; the file is a pipe.
    ///     dma.AccessDenied, dma.InUse (BufferErrors): a piece is read-only or has a view.
    fn read(
        slf: &Bound<'_, Self>,
        file: &Bound<'_, File>,
        pieces: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyTransfer>> {
        let file = &file.get().0;
        Self::start(slf, pieces, true, |files, pieces| files.read(file, pieces))
    }

    /// Writes the pieces to the file, and extends it if needed. Neither truncates nor syncs it. The
    /// transfer's result is the number of bytes. Does not block.
    ///
    /// Raises:
    ///     The errors of read(), without the one for the end of the file. dma.OutOfResources beyond the limit
    ///     of file sizes.
    fn write(
        slf: &Bound<'_, Self>,
        file: &Bound<'_, File>,
        pieces: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyTransfer>> {
        let file = &file.get().0;
        Self::start(slf, pieces, false, |files, pieces| files.write(file, pieces))
    }

    /// Writes the pieces to a new file, which gets the name `path` when all its bytes are on the disk. Until
    /// then, a file that has this name keeps its content. If the transfer fails or is dropped, no file is
    /// made. Bytes between the pieces are zeros. The transfer's result is the number of bytes. Blocks while
    /// the file system makes the file and reserves its space.
    ///
    /// Raises:
    ///     The errors of write(). dma.OutOfResources: the disk has no space. dma.NotFound (a
    ///     FileNotFoundError), dma.PermissionDenied (a PermissionError), dma.OsError (an OSError).
    fn save(slf: &Bound<'_, Self>, path: PathBuf, pieces: &Bound<'_, PyAny>) -> PyResult<Py<PyTransfer>> {
        Self::start(slf, pieces, false, |files, pieces| files.save(&path, pieces))
    }

    /// Makes completed writes of the file durable (fsync). Does not wait for writes in flight.
    fn sync(slf: &Bound<'_, Self>, file: &Bound<'_, File>) -> PyResult<Py<PyTransfer>> {
        let this = slf.get();
        in_flight(slf.as_any(), &this.opened.core, Vec::new(), || {
            this.files().file_queue().sync(&file.get().0)
        })
    }

    /// Makes what an event loop needs. Internal.
    fn _notifier(&self, py: Python<'_>) -> PyResult<Notifier> {
        Notifier::new(py, Arc::clone(&self.opened.core))
    }

    fn __repr__(&self) -> String {
        format!("<dma.files.DeviceFiles, blocks of {} bytes>", self.block_size())
    }
}

impl DeviceFiles {
    fn queue(&self) -> &DeviceQueue {
        let AnyQueue::Device(queue) = &self.opened.core.queue else {
            unreachable!("the queue of `DeviceFiles`")
        };
        queue
    }

    fn files(&self) -> &Files {
        &self.queue().files
    }

    fn start(
        slf: &Bound<'_, Self>,
        pieces: &Bound<'_, PyAny>,
        reads: bool,
        submit: impl FnOnce(&Files, Vec<FilePiece>) -> Result<DeviceTransfer, FileError<Vec<FilePiece>>> + Send,
    ) -> PyResult<Py<PyTransfer>> {
        let (py, this) = (slf.py(), slf.get());
        let (mut claims, mut list) = (Vec::new(), Vec::new());
        for piece in pieces.try_iter()? {
            let (offset, memory): (u64, Bound<'_, PyAny>) = piece?.extract()?;
            let window = claim(py, view_of(&memory)?, reads, &mut claims)?;
            let Some(end) = offset.checked_add(window.len() as u64) else {
                let error = invalid(format!("the offset {offset}"), "give an offset within a file");
                return Err(raise(py, &error));
            };
            list.push(FilePiece::new(offset..end, window));
        }
        this.opened.core.reap(py);
        let operation = InFlight::new(py, Arc::clone(&this.opened.core), claims)?;
        match detached(py, || submit(this.files(), list)) {
            Ok(transfer) => operation.start(Err(Box::new(Pending::new(transfer)))),
            Err(e) => {
                operation.release(py);
                return Err(raise(py, e.error()));
            }
        }
        this.queue().run(Arc::<InFlight>::downgrade(&operation));
        operation.into_transfer(py, slf.as_any())
    }
}

/// A transfer, and its output if a poll has returned it.
struct Pending {
    transfer: Option<DeviceTransfer>,
    output: Option<Finished<Vec<FilePiece>>>,
    /// The waker of the event loop that awaits the transfer. Other polls must not replace it.
    waker: Option<Waker>,
}

impl Pending {
    const fn new(transfer: DeviceTransfer) -> Self {
        Self { transfer: Some(transfer), output: None, waker: None }
    }
}

impl Operation for Pending {
    fn is_done(&mut self) -> bool {
        if let Some(transfer) = &mut self.transfer {
            let waker = self.waker.as_ref().unwrap_or(Waker::noop());
            if let Poll::Ready(output) = Pin::new(transfer).poll(&mut Context::from_waker(waker)) {
                (self.transfer, self.output) = (None, Some(output));
            }
        }
        self.transfer.is_none()
    }

    fn wait_until(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        // After a wait that has not ended it, the transfer wakes the event loop again.
        self.transfer.as_mut().is_none_or(|transfer| transfer.wait_timeout(left)) || self.is_done()
    }

    fn watch(&mut self, waker: &Waker) -> bool {
        self.waker = Some(waker.clone());
        self.is_done()
    }

    fn cancel(&mut self) {
        if let Some(transfer) = &mut self.transfer {
            transfer.cancel();
        }
    }

    fn end(mut self: Box<Self>) -> Ended {
        let output = self.output.take();
        let output = output.or_else(|| self.transfer.take().map(DeviceTransfer::wait));
        match output.expect("an operation ends once") {
            Ok((_, bytes)) => Ended { result: Ok(Outcome::Number(bytes as u64)), is_kept: false },
            Err(e) => {
                let (error, pieces) = e.into_parts();
                // A device that has stalled or was lost may still use the memory.
                let may_run =
                    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::DeviceLost | ErrorKind::Closed);
                Ended { result: Err((error, Vec::new())), is_kept: may_run || pieces.is_none() }
            }
        }
    }
}
