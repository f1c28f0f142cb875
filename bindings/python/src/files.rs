//! `dma.files`: files into and from registered memory.

use std::fs::File as StdFile;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use dma::files::{DmaFile, FileError, FileQueue as Files, FileQueueOptions, FileTransfer, Method, OpenFile};
use dma::{Error, Window};
use pyo3::prelude::*;

use crate::buffer::view_of;
use crate::core::{AnyQueue, Core};
use crate::error::{invalid, raise};
use crate::interpreter::detached;
use crate::notifier::Notifier;
use crate::operand::claim;
use crate::operation::FileOperand;
use crate::pool::Pool;
use crate::submission::Opened;
use crate::transfer::{Claim, InFlight, PyTransfer};

/// A file that file queues read and write. dma.files.open() opens one.
///
/// Args:
///     path: the path.
///     write: opens the file for writing as well.
///     create: creates the file, or makes it empty.
///     direct: bypasses the page cache for aligned parts (O_DIRECT).
///
/// Raises:
///     dma.NotFound (a FileNotFoundError), dma.PermissionDenied (a PermissionError), dma.OsError (an
///     OSError).
///     dma.Unsupported: the file system has no direct access.
#[pyclass(module = "dma.files", frozen)]
pub(crate) struct File(pub(crate) DmaFile);

#[pymethods]
impl File {
    #[new]
    #[pyo3(signature = (path, *, write=false, create=false, direct=false))]
    fn new(py: Python<'_>, path: PathBuf, write: bool, create: bool, direct: bool) -> PyResult<Self> {
        let options = OpenFile::new().with_write(write).with_create(create).with_direct(direct);
        detached(py, || options.open(&path)).map(Self).map_err(|e| raise(py, &e))
    }

    /// Uses a file that is open: an object with fileno(), such as that of open(). Its position neither
    /// matters nor moves.
    #[staticmethod]
    fn from_file(py: Python<'_>, file: &Bound<'_, PyAny>) -> PyResult<Self> {
        let fd: i32 = file.call_method0("fileno")?.extract()?;
        if fd < 0 {
            return Err(raise(py, &invalid(format!("the descriptor {fd}"), "pass an open file")));
        }
        duplicate(fd)
            .map(|file| Self(DmaFile::from(file)))
            .map_err(|e| raise(py, &Error::of_system_call("dup", e)))
    }

    /// True if aligned parts bypass the page cache.
    #[getter]
    fn direct(&self) -> bool {
        self.0.is_direct()
    }
}

/// Reads the method of a file queue: "io_uring", "threads", or `None` for the best that works.
pub(crate) fn method_of(py: Python<'_>, method: Option<&str>) -> PyResult<Option<Method>> {
    match method {
        None => Ok(None),
        Some("io_uring") => Ok(Some(Method::IoUring)),
        Some("threads") => Ok(Some(Method::Threads)),
        Some(other) => {
            let error = invalid(format!("the method {other:?}"), "give \"io_uring\", \"threads\" or None");
            Err(raise(py, &error))
        }
    }
}

#[expect(unsafe_code, reason = "a descriptor that Python's object owns")]
fn duplicate(fd: i32) -> std::io::Result<StdFile> {
    // SAFETY: the descriptor is only duplicated. Python's object owns it during the call; if it is closed,
    // the call fails or duplicates another file, as Python's own functions of descriptors would.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?.into())
}

/// Reads files into registered memory and writes them from it, by io_uring, or by threads where the system
/// forbids that.
///
/// Args:
///     depth: the maximum number of operations in flight, 1 to 4096.
///     method: "io_uring", "threads", or None for the best that works.
///     threads: the number of threads for "threads".
///     pools: pools whose memory is registered with io_uring once.
///
/// Raises:
///     dma.OutOfRange, dma.InvalidArgument (ValueErrors): an option.
///     dma.Unsupported, dma.PermissionDenied: the system forbids "io_uring".
#[pyclass(name = "Queue", module = "dma.files", frozen, weakref)]
pub(crate) struct FileQueue(Opened);

#[pymethods]
impl FileQueue {
    #[new]
    #[pyo3(signature = (*, depth=64, method=None, threads=8, pools=Vec::new()))]
    fn new(
        py: Python<'_>,
        depth: usize,
        method: Option<&str>,
        threads: usize,
        pools: Vec<PyRef<'_, Pool>>,
    ) -> PyResult<Self> {
        let method = method_of(py, method)?;
        let options = FileQueueOptions::new().with_depth(depth).with_method(method).with_threads(threads);
        let pools: Vec<_> = pools.iter().map(|pool| &pool.0).collect();
        let queue = Files::with_pools(&options, &pools).map_err(|e| raise(py, &e))?;
        Ok(Self(Opened { core: Core::files(queue) }))
    }

    /// The method in use: "io_uring" or "threads".
    #[getter]
    fn method(&self) -> &'static str {
        match self.files().method() {
            Method::IoUring => "io_uring",
            _ => "threads",
        }
    }

    /// Reads the file from byte `offset` on until the buffer is full or the file ends. The transfer's result
    /// is the number of bytes.
    ///
    /// Raises:
    ///     dma.QueueFull: wait for a transfer. dma.InUse (a BufferError): the buffer has a view.
    ///     dma.Unsupported: the processor cannot reach the memory. dma.AccessDenied (a BufferError): it is
    ///     read-only.
    fn read(
        slf: &Bound<'_, Self>,
        file: &Bound<'_, File>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyTransfer>> {
        Self::start(slf, buffer, true, |files, window| files.read_at(&file.get().0, offset, window))
    }

    /// Writes the buffer to the file from byte `offset` on. The transfer's result is the number of bytes.
    ///
    /// Raises:
    ///     The errors of read(); dma.OutOfResources beyond the limit of file sizes.
    fn write(
        slf: &Bound<'_, Self>,
        file: &Bound<'_, File>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyTransfer>> {
        Self::start(slf, buffer, false, |files, window| files.write_at(&file.get().0, offset, window))
    }

    /// Makes completed writes of the file durable (fsync). Does not wait for writes in flight.
    fn sync(slf: &Bound<'_, Self>, file: &Bound<'_, File>) -> PyResult<Py<PyTransfer>> {
        let this = slf.get();
        in_flight(slf.as_any(), &this.0.core, Vec::new(), || this.files().sync(&file.get().0))
    }

    /// Makes what an event loop needs. Internal.
    fn _notifier(&self, py: Python<'_>) -> PyResult<Notifier> {
        Notifier::new(py, Arc::clone(&self.0.core))
    }

    fn __repr__(&self) -> String {
        format!("<dma.files.Queue, {}>", self.method())
    }
}

impl FileQueue {
    /// Starts a read or a write of the buffer by `submit`.
    fn start(
        slf: &Bound<'_, Self>,
        buffer: &Bound<'_, PyAny>,
        reads: bool,
        submit: impl FnOnce(&Files, Window) -> Result<FileTransfer<Window>, FileError<Window>>,
    ) -> PyResult<Py<PyTransfer>> {
        let (py, this) = (slf.py(), slf.get());
        let mut claims = Vec::new();
        let window = claim(py, view_of(buffer)?, reads, &mut claims)?;
        this.0.core.reap(py);
        in_flight(slf.as_any(), &this.0.core, claims, || submit(this.files(), window))
    }

    fn files(&self) -> &Files {
        let AnyQueue::Files(queue) = &self.0.core.queue else { unreachable!("the queue of a `FileQueue`") };
        queue
    }
}

/// Starts an operation of a file queue, which uses the memory of `claims`, by `submit`.
pub(crate) fn in_flight<T: FileOperand>(
    owner: &Bound<'_, PyAny>,
    core: &Arc<Core>,
    claims: Vec<Claim>,
    submit: impl FnOnce() -> Result<FileTransfer<T>, FileError<T>>,
) -> PyResult<Py<PyTransfer>> {
    let py = owner.py();
    let operation = InFlight::new(py, Arc::clone(core), claims)?;
    match submit() {
        Ok(transfer) => operation.start(Err(T::pending(transfer))),
        Err(e) => {
            operation.release(py);
            return Err(raise(py, e.error()));
        }
    }
    operation.into_transfer(py, owner)
}
