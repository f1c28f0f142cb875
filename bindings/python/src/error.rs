//! Errors of the library as Python's exceptions.

use dma::{Error, ErrorKind, Retry};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

/// The class `dma.Error` and its subclasses are Python's: `python/dma/_errors.py`.
static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

const fn retry_name(retry: Retry) -> &'static str {
    match retry {
        Retry::Now => "now",
        Retry::FewTimes => "few times",
        Retry::AfterProgress => "after progress",
        Retry::Later => "later",
        _ => "never",
    }
}

/// Makes the exception of an error.
#[cold]
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    raise_with(py, error, &[])
}

/// Makes the exception of an error of a batch, with the numbers of the copies that failed.
#[cold]
pub(crate) fn raise_with(py: Python<'_>, error: &Error, failed: &[usize]) -> PyErr {
    match exception(py, error, failed) {
        Ok(exception) => PyErr::from_value(exception),
        Err(e) => e,
    }
}

fn exception<'py>(py: Python<'py>, error: &Error, failed: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let make = MAKE.get_or_try_init(py, || py.import("dma._errors")?.getattr("make").map(Bound::unbind))?;
    let details = PyDict::new(py);
    details.set_item("kind", format!("{:?}", error.kind()))?;
    details.set_item("retry", retry_name(error.retry()))?;
    details.set_item("hint", error.hint())?;
    details.set_item("operation", error.operation())?;
    details.set_item("backend", error.backend())?;
    details.set_item("requested", error.requested())?;
    details.set_item("limit", error.limit())?;
    let native =
        error.native().map(|native| (native.code, native.name.to_string(), native.description.to_string()));
    details.set_item("native", native)?;
    details.set_item("failed", PyTuple::new(py, failed)?)?;
    let source = std::error::Error::source(error).and_then(|e| e.downcast_ref::<std::io::Error>());
    details.set_item("errno", source.and_then(std::io::Error::raw_os_error))?;
    make.bind(py).call1((error.to_string(), details))
}

/// Makes the error of memory or a queue that is in use.
#[cold]
pub(crate) fn in_use(message: &'static str, hint: &'static str) -> Error {
    Error::new(ErrorKind::InUse, message).with_hint(hint)
}

/// Makes the error of an argument that is invalid by itself.
#[cold]
pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message.into()).with_hint(hint.into())
}
