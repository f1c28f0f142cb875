//! Arguments from Python: bytes, rights, sizes, times.
#![expect(unsafe_code, reason = "the buffer protocol")]

use std::mem::MaybeUninit;
use std::time::Duration;

use dma::Access;
use dma::contract::parse_size;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::{invalid, raise};

/// The adjacent bytes of an object with the buffer protocol, which the object keeps while this value exists.
pub(crate) struct Bytes(Box<ffi::Py_buffer>);

// SAFETY: a `Py_buffer` may be used and released by any thread, the latter attached to Python.
unsafe impl Send for Bytes {}
// SAFETY: a shared reference gives only the address, the length and the rights.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// Takes the bytes of `object`.
    ///
    /// # Errors
    ///
    /// `TypeError` for an object without the protocol; `BufferError` if it refuses, such as a strided array
    /// or read-only memory for `writable`.
    pub(crate) fn new(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let flags = if writable { ffi::PyBUF_WRITABLE } else { ffi::PyBUF_SIMPLE };
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::uninit());
        // SAFETY: the place is valid for writes, and the object is alive. The flags ask for adjacent bytes.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: the call has succeeded, so it has filled the view.
        Ok(Self(unsafe { view.assume_init() }))
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.0.buf.cast()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len.unsigned_abs()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.0.readonly != 0
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // After the interpreter's end, its objects are not released any more.
        let _ = Python::try_attach(|_| {
            // SAFETY: `new` has filled the view, and this is its only release, attached to Python.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
        });
    }
}

/// Reads rights: "r", "w" or "rw".
pub(crate) fn rights(py: Python<'_>, text: &str) -> PyResult<Access> {
    match text {
        "r" => Ok(Access::READ),
        "w" => Ok(Access::WRITE),
        "rw" | "wr" => Ok(Access::READ | Access::WRITE),
        _ => Err(raise(py, &invalid(format!("the rights {text:?}"), "give \"r\", \"w\" or \"rw\""))),
    }
}

/// Returns the rights of an export or of memory, in the notation of this package.
pub(crate) const fn rights_name(rights: Access) -> &'static str {
    match (rights.contains(Access::READ), rights.contains(Access::WRITE)) {
        (true, true) => "rw",
        (true, false) => "r",
        (false, true) => "w",
        (false, false) => "",
    }
}

/// A size in bytes: a number, or a text as in engine names, such as "64K".
pub(crate) struct Size(pub(crate) usize);

impl<'a, 'py> FromPyObject<'a, 'py> for Size {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Ok(text) = object.extract::<String>() {
            let size = parse_size(&text).and_then(|size| usize::try_from(size).ok());
            return size.map(Self).ok_or_else(|| {
                raise(
                    py,
                    &invalid(
                        format!("the size {text:?}"),
                        "give a number of bytes, or such as 64K, 2M or 1G",
                    ),
                )
            });
        }
        if let Ok(n) = object.extract::<i128>() {
            return usize::try_from(n).map(Self).map_err(|_| {
                raise(
                    py,
                    &invalid(format!("a size of {n} bytes"), "give a number of bytes that is not negative"),
                )
            });
        }
        // Accepts numbers of numpy, and refuses fractions.
        object
            .extract::<usize>()
            .map(Self)
            .map_err(|_| PyTypeError::new_err("a size is a whole number of bytes, or a text such as \"64K\""))
    }
}

/// Converts a number of seconds.
pub(crate) fn seconds_of(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    if seconds == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        raise(
            py,
            &invalid(format!("a time of {seconds} seconds"), "give a number of seconds that is not negative"),
        )
    })
}

/// Converts a time for a wait: `None` has no limit.
pub(crate) fn wait_limit(py: Python<'_>, timeout: Option<f64>) -> PyResult<Duration> {
    timeout.map_or(Ok(Duration::MAX), |seconds| seconds_of(py, seconds))
}
