//! [`Buffer`] and [`Window`]: what Python programs have of registered memory.
#![expect(unsafe_code, reason = "the buffer protocol, and copies from and to registered memory")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use dma::contract::racy_copy;
use dma::process::count;
use dma::{Error, ErrorKind};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice};

use crate::arguments::Bytes;
use crate::dlpack;
use crate::error::{in_use, raise};
use crate::export::PyExport;
use crate::interpreter::{LOCKED_MAX, detached};
use crate::memory::{Memory, ViewGuard};
use crate::view::{View, read_only};

/// Returns the view of a `Buffer` or a `Window`.
#[inline]
pub(crate) fn view_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a View> {
    if let Ok(buffer) = object.cast_exact::<Buffer>() {
        return Ok(&buffer.get().0);
    }
    if let Ok(window) = object.cast_exact::<Window>() {
        return Ok(&window.get().0);
    }
    Err(not_memory(object))
}

#[cold]
fn not_memory(object: &Bound<'_, PyAny>) -> PyErr {
    let name = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!(
        "memory of an engine is needed, not '{name}'; allocate it (engine.allocate(n)) or register the object \
         (engine.register(object))"
    ))
}

/// Registered memory that Python can view: memoryview(buffer), numpy.frombuffer(buffer),
/// file.readinto(buffer), socket.recv_into(buffer) use its bytes without a copy.
///
/// While an operation that writes the buffer is in flight, a view of it raises BufferError, as does one that
/// can write while an operation reads it. While a view exists, an operation that writes the buffer raises
/// BufferError, as does one that reads it while a view can write. So no program sees bytes that a device is
/// writing.
///
/// buffer[a:b] is a buffer of the same bytes, without a copy. The memory is freed when its last buffer, view
/// and operation has ended.
#[pyclass(name = "Buffer", module = "dma", frozen, weakref)]
pub(crate) struct Buffer(pub(crate) View);

/// The owner of a `Py_buffer`'s bytes.
struct Exported(#[expect(dead_code, reason = "ends the view when it is dropped")] ViewGuard);

#[pymethods]
impl Buffer {
    /// # Safety
    ///
    /// `view` is valid for writes, as the protocol says.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (py, this) = (slf.py(), &slf.get().0);
        if view.is_null() {
            return Err(raise(py, &in_use("a view without a place", "pass a Py_buffer")));
        }
        // SAFETY: the caller passes a place for the result. On failure, the protocol wants the object to be
        // null.
        unsafe { (*view).obj = ptr::null_mut() };
        let memory = this.memory(py)?;
        let at = first_byte(&memory).wrapping_add(this.start);
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && this.read_only {
            return Err(read_only(py));
        }
        let guard = ViewGuard::new(py, memory, this.range(), !this.read_only)?;
        let (len, is_read_only) = (this.len as ffi::Py_ssize_t, c_int::from(this.read_only));
        // SAFETY: the range lies in the memory, which `internal` below keeps until `__releasebuffer__`.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), at.cast::<c_void>(), len, is_read_only, flags)
        };
        if filled != 0 {
            return Err(PyErr::fetch(py));
        }
        let exported = Box::into_raw(Box::new(Exported(guard)));
        // SAFETY: the place is valid for writes, and the field is for the exporter.
        unsafe { (*view).internal = exported.cast() };
        Ok(())
    }

    /// # Safety
    ///
    /// `view` is one that `__getbuffer__` has filled, as the protocol says.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the caller passes a view that `__getbuffer__` has filled.
        let exported = unsafe { std::mem::replace(&mut (*view).internal, ptr::null_mut()) };
        if !exported.is_null() {
            // SAFETY: `__getbuffer__` made the pointer from a box, and it is taken only once.
            drop(unsafe { Box::from_raw(exported.cast::<Exported>()) });
        }
    }

    fn __len__(&self) -> usize {
        self.0.len
    }

    /// The number of bytes.
    #[getter]
    const fn nbytes(&self) -> usize {
        self.0.len
    }

    /// True if the memory cannot be the destination of an operation, and its views cannot write.
    #[getter]
    const fn readonly(&self) -> bool {
        self.0.read_only
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Ok(slice) = key.cast::<PySlice>() {
            return Ok(Py::new(py, Self(self.0.slice(py, slice)?))?.into_any());
        }
        let at = index(key, self.0.len)?;
        let (guard, start) = self.guarded(py, at, 1, false)?;
        let mut byte = 0;
        // SAFETY: the index was checked, and `guard` keeps the memory, and operations from writing it.
        // Another thread may write the byte through a view.
        unsafe { racy_copy::copy(&raw mut byte, start.wrapping_add(at), 1) };
        drop(guard);
        Ok(byte.into_pyobject(py)?.into_any().unbind())
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.0.read_only {
            return Err(read_only(py));
        }
        if let Ok(slice) = key.cast::<PySlice>() {
            let part = self.0.slice(py, slice)?;
            let (start, end) = part.range();
            let memory = part.memory(py)?;
            // Take the value's bytes first: if it is a part of this buffer, the view is refused by no
            // operation.
            let bytes = Bytes::new(value, false)?;
            if bytes.len() != part.len {
                let error =
                    Error::new(ErrorKind::LengthMismatch, format!("{} bytes for {}", bytes.len(), part.len))
                        .with_numbers(bytes.len() as u64, part.len as u64)
                        .with_hint("assign as many bytes as the slice has");
                return Err(raise(py, &error));
            }
            let guard = ViewGuard::new(py, Arc::clone(&memory), (start, end), true)?;
            let (from, to, len) = (bytes.as_ptr(), first_byte(&memory).wrapping_add(start), part.len);
            let mut copied = Vec::new();
            let is_apart = from.addr().abs_diff(to.addr()) >= len;
            let from = if is_apart {
                from.cast_const()
            } else {
                // Assigns one part of a buffer to another one that overlaps it.
                copied.resize(len, 0);
                // SAFETY: the value has `len` bytes, which it keeps. The vector has as many, of its own.
                unsafe { racy_copy::copy(copied.as_mut_ptr(), from, len) };
                copied.as_ptr()
            };
            // SAFETY: the slice of `len` bytes lies in the memory, which `guard` keeps, and the source has as
            // many bytes, which `bytes` or `copied` keeps. Another thread may use both through views.
            unsafe { move_bytes(py, to, from, len) };
            drop(guard);
            return Ok(());
        }
        let at = index(key, self.0.len)?;
        let byte: u8 = value.extract()?;
        let (guard, start) = self.guarded(py, at, 1, true)?;
        // SAFETY: the index was checked, and `guard` keeps the memory, and operations from using it. Another
        // thread may use the byte through a view.
        unsafe { racy_copy::set(start.wrapping_add(at), byte, 1) };
        drop(guard);
        Ok(())
    }

    /// Returns a read-only buffer of the same bytes, without a copy. Views of it cannot write, so it may be
    /// viewed while operations read it.
    fn toreadonly(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self(View::new(self.0.memory(py)?, self.0.start, self.0.len, true)))
    }

    /// Returns the bytes as a bytes object, which is a copy.
    fn tobytes<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyBytes>> {
        let py = slf.py();
        let this = slf.get();
        let (guard, start) = this.guarded(py, 0, this.0.len, false)?;
        let copied = PyBytes::new_with(py, this.0.len, |to| {
            // SAFETY: the range lies in the memory. `guard` keeps the memory, and operations from writing it.
            // Another thread may write the bytes through a view. The object is not known to others yet.
            unsafe { move_bytes(py, to.as_mut_ptr(), start, to.len()) };
            Ok(())
        });
        drop(guard);
        copied
    }

    /// Gives the memory up early. Later uses of this buffer raise ValueError. Other buffers of the same
    /// memory stay.
    ///
    /// Raises:
    ///     dma.InUse (a BufferError): a view or an operation in flight uses the bytes.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.0.release(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.release(py)
    }

    /// DLPack, for numpy.from_dlpack, torch.from_dlpack and others: one dimension of uint8 on the host. The
    /// tensor is a view, which operations respect until its consumer drops it.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        slf: Bound<'_, Self>,
        stream: Option<Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = &slf.get().0;
        if stream.is_some() {
            return Err(raise(py, &crate::error::invalid("a stream for host memory", "pass stream=None")));
        }
        dlpack::check_request(dlpack::HOST, dl_device, copy)?;
        let memory = this.memory(py)?;
        let at = first_byte(&memory).wrapping_add(this.start);
        let guard = ViewGuard::new(py, memory, this.range(), !this.read_only)?;
        let (data, device) = (at.cast(), dlpack::HOST);
        let tensor = dlpack::Source { data, len: this.len, read_only: this.read_only, device };
        dlpack::export(py, &tensor, max_version, Box::new(guard))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::HOST
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        self.0.describe(py, "Buffer")
    }
}

impl Buffer {
    pub(crate) fn whole(memory: Arc<Memory>) -> Self {
        Self(View::whole(memory))
    }

    /// Begins a view of `len` bytes at `at`, and returns it with the address of the buffer's first byte.
    fn guarded(&self, py: Python<'_>, at: usize, len: usize, writes: bool) -> PyResult<(ViewGuard, *mut u8)> {
        let memory = self.0.memory(py)?;
        let start = first_byte(&memory).wrapping_add(self.0.start);
        let first = self.0.start + at;
        let guard = ViewGuard::new(py, memory, (first, first + len), writes)?;
        Ok((guard, start))
    }
}

/// Returns the address of the memory's first byte, which the CPU reaches.
fn first_byte(memory: &Memory) -> *mut u8 {
    memory.start().expect("buffers are memory that the CPU reaches").0.as_ptr()
}

/// The ends of a copy.
struct Ends {
    to: *mut u8,
    from: *const u8,
}

// SAFETY: this type only stores addresses. The access states why it is sound.
unsafe impl Send for Ends {}

/// Copies `len` bytes. Releases Python's lock during a long copy.
///
/// # Safety
///
/// Both ranges are valid during the call, whatever Python's other threads do, and do not overlap. Other
/// threads may read and write them.
unsafe fn move_bytes(py: Python<'_>, to: *mut u8, from: *const u8, len: usize) {
    let ends = Ends { to, from };
    let copy = move || {
        let Ends { to, from } = { ends };
        // SAFETY: the caller promises this.
        unsafe { racy_copy::copy(to, from, len) };
    };
    if len > LOCKED_MAX { detached(py, copy) } else { copy() }
}

/// Returns the index that `key` means in `len` items.
fn index(key: &Bound<'_, PyAny>, len: usize) -> PyResult<usize> {
    let at: isize = key.extract()?;
    let at = if at < 0 { at.checked_add_unsigned(len).unwrap_or(-1) } else { at };
    usize::try_from(at).ok().filter(|at| *at < len).ok_or_else(|| {
        PyIndexError::new_err(format!("index out of range of {}", count(len, "byte", "bytes")))
    })
}

/// Registered memory that a peer, a device or other code may write at any time: memory to export, imported
/// memory, and a device's own memory. It has no views: read() and write() copy its bytes, and operations move
/// them.
///
/// window[a:b] is a window of the same bytes, without a copy.
#[pyclass(name = "Window", module = "dma", frozen, weakref)]
pub(crate) struct Window(pub(crate) View);

impl Window {
    pub(crate) fn whole(memory: Arc<Memory>) -> Self {
        Self(View::whole(memory))
    }

    fn of_range(&self, py: Python<'_>) -> PyResult<dma::Window> {
        self.0.with(py, |memory| memory.window.slice(self.0.start..self.0.start + self.0.len))
    }
}

#[pymethods]
impl Window {
    fn __len__(&self) -> usize {
        self.0.len
    }

    /// The number of bytes.
    #[getter]
    const fn nbytes(&self) -> usize {
        self.0.len
    }

    /// True if the memory cannot be the destination of an operation.
    #[getter]
    const fn readonly(&self) -> bool {
        self.0.read_only
    }

    /// True if the processor can reach the bytes, by read() and write().
    #[getter]
    fn host(&self, py: Python<'_>) -> PyResult<bool> {
        self.0.with(py, |memory| memory.window.region().is_cpu_visible())
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PySlice>) -> PyResult<Self> {
        self.0.slice(py, key).map(Self)
    }

    /// Returns a copy of `length` bytes that begin at `offset`, or of all bytes from there on. Bytes that
    /// other code writes at the same time may be old or new.
    ///
    /// Raises:
    ///     dma.Unsupported: the processor cannot reach the memory; copy it to a buffer by a queue.
    ///     dma.OutOfRange (a ValueError): the bytes lie outside of the window.
    #[pyo3(signature = (offset=0, length=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: usize,
        length: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let window = self.of_range(py)?;
        let length = length.unwrap_or_else(|| window.len().saturating_sub(offset));
        if offset.checked_add(length).is_none_or(|end| end > window.len()) {
            // The check comes before the allocation of the result.
            let error = Error::new(
                ErrorKind::OutOfRange,
                format!("{length} bytes at {offset} of a window of {}", window.len()),
            )
            .with_numbers(length as u64, window.len().saturating_sub(offset) as u64)
            .with_hint("read bytes that lie inside of the window");
            return Err(raise(py, &error));
        }
        PyBytes::new_with(py, length, |to| {
            let read = if length > LOCKED_MAX {
                detached(py, || window.read_at(offset, to))
            } else {
                window.read_at(offset, to)
            };
            read.map_err(|e| raise(py, &e))
        })
    }

    /// Copies the bytes of `data` (bytes, bytearray, memoryview, numpy, ...) to the bytes that begin at
    /// `offset`.
    ///
    /// Raises:
    ///     dma.AccessDenied (a BufferError): the window is read-only. The errors of read().
    #[pyo3(signature = (data, offset=0))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: usize) -> PyResult<()> {
        let window = self.of_range(py)?;
        let bytes = Bytes::new(data, false)?;
        // Checks the range and the rights.
        window.write_at(offset, &[]).map_err(|e| raise(py, &e))?;
        let region = window.region().as_raw().info();
        let (Some(start), Some(end)) = (region.cpu, offset.checked_add(bytes.len())) else {
            return window.write_at(offset, &[]).map_err(|e| raise(py, &e));
        };
        if end > window.len() {
            let error = Error::new(
                ErrorKind::OutOfRange,
                format!("{} bytes at {offset} of a window of {}", bytes.len(), window.len()),
            )
            .with_numbers(bytes.len() as u64, window.len().saturating_sub(offset) as u64)
            .with_hint("write bytes that lie inside of the window");
            return Err(raise(py, &error));
        }
        let to = start.as_ptr().wrapping_add(window.offset() + offset);
        // SAFETY: the range was checked, and `window` keeps the memory. `write_at` with 0 bytes has checked
        // the right to write. The source, which `bytes` keeps, may be other memory that Python code of
        // another thread writes, so no slice is made of it.
        unsafe { move_bytes(py, to, bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Grants a peer access to these bytes, until the export is revoked or dropped. The memory must be
    /// allocated by engine.allocate_window(n, export="rw").
    ///
    /// Args:
    ///     rights: "r", "w" or "rw": what the peer may do.
    ///
    /// Raises:
    ///     dma.Unsupported: the engine cannot export this memory.
    ///     dma.AccessDenied (a BufferError): the memory was not allocated for an export with these rights.
    ///     dma.OutOfResources: the engine has no resources for another export.
    #[pyo3(signature = (rights="rw"))]
    fn export(&self, py: Python<'_>, rights: &str) -> PyResult<PyExport> {
        let rights = crate::arguments::rights(py, rights)?;
        let window = self.of_range(py)?;
        let exported = detached(py, || window.export(rights));
        exported.map(PyExport::new).map_err(|e| raise(py, &e))
    }

    /// Gives the memory up early. Later uses of this window raise ValueError. Other windows of the same
    /// memory stay.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.0.release(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.release(py)
    }

    /// CUDA's array interface, for cupy, numba, torch: the window as one dimension of uint8. Only for a GPU's
    /// memory.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
        let memory = self.cuda_memory(py)?;
        let at = self.device_address(&memory);
        let description = pyo3::types::PyDict::new(py);
        description.set_item("shape", (self.0.len,))?;
        description.set_item("typestr", "|u1")?;
        description.set_item("data", (at, self.0.read_only))?;
        description.set_item("strides", py.None())?;
        description.set_item("version", 3)?;
        Ok(description)
    }

    /// DLPack, for torch.from_dlpack and others: one dimension of uint8 on the GPU. Only for a GPU's memory.
    /// Operations that were waited for have ended on the GPU, so no stream is synchronised. Wait for the
    /// other library's stream before the next operation.
    ///
    /// Raises:
    ///     BufferError: the window is not memory of a GPU, or another device or a copy is asked for.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let _ = stream;
        let device = self.__dlpack_device__(py)?;
        dlpack::check_request(device, dl_device, copy)?;
        let memory = self.0.memory(py)?;
        let data = ptr::without_provenance_mut(self.device_address(&memory) as usize);
        let tensor = dlpack::Source { data, len: self.0.len, read_only: self.0.read_only, device };
        dlpack::export(py, &tensor, max_version, Box::new(memory))
    }

    /// The device of DLPack: kDLCUDA and CUDA's number of the GPU.
    ///
    /// Raises:
    ///     BufferError: the window is not memory of a GPU.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        match self.0.with(py, |memory| memory.cuda)? {
            Some(number) => Ok((dlpack::CUDA, number)),
            None => Err(PyBufferError::new_err(
                "the window is not memory of a GPU: copy it to a buffer by a queue, and pass the buffer",
            )),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        self.0.describe(py, "Window")
    }
}

impl Window {
    fn device_address(&self, memory: &Memory) -> u64 {
        memory.window.region().as_raw().info().addr.0 + (memory.window.offset() + self.0.start) as u64
    }

    /// Returns the memory if it is a GPU's.
    fn cuda_memory(&self, py: Python<'_>) -> PyResult<Arc<Memory>> {
        let memory = self.0.memory(py)?;
        let region = memory.window.region();
        if region.backend() == "cuda" && !region.is_cpu_visible() {
            return Ok(memory);
        }
        // Libraries ask by `hasattr` whether an object has the interface.
        Err(pyo3::exceptions::PyAttributeError::new_err("the window is not memory of a GPU"))
    }
}
