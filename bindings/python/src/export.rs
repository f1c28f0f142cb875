//! [`PyExport`]: a grant of memory to a peer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dma::Export;
use dma::process::count;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{rights_name, seconds_of};
use crate::error::raise;
use crate::interpreter::detached;

/// A grant of a window's bytes to a peer. Dropping it revokes it, and waits up to 2 s for a peer that is
/// still copying.
#[pyclass(name = "Export", module = "dma", frozen, weakref)]
pub(crate) struct PyExport {
    /// `None` after it was revoked.
    export: Mutex<Option<Export>>,
    descriptor: Vec<u8>,
    rights: &'static str,
    len: u64,
}

impl PyExport {
    pub(crate) fn new(export: Export) -> Self {
        let descriptor = export.descriptor();
        let (rights, len) = (rights_name(descriptor.rights()), descriptor.len());
        Self { descriptor: descriptor.to_bytes(), rights, len, export: Mutex::new(Some(export)) }
    }

    fn take(&self) -> Option<Export> {
        self.export.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl PyExport {
    /// The bytes that the peer passes to engine.import_window(). Send them by any means.
    #[getter]
    fn descriptor<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.descriptor)
    }

    /// The rights of the peer: "r", "w" or "rw".
    #[getter]
    const fn rights(&self) -> &'static str {
        self.rights
    }

    /// The number of bytes.
    #[getter]
    const fn nbytes(&self) -> u64 {
        self.len
    }

    /// Revokes the grant. Afterwards no peer accesses the memory, and copies of peers fail with dma.Revoked.
    ///
    /// Args:
    ///     timeout: seconds to wait for copies of peers.
    ///
    /// Raises:
    ///     dma.TimedOut (a TimeoutError): a peer is still copying. Call it again.
    #[pyo3(signature = (timeout=1.0))]
    fn revoke(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = seconds_of(py, timeout)?;
        let Some(export) = self.take() else { return Ok(()) };
        match detached(py, || export.revoke(timeout)) {
            Ok(()) => Ok(()),
            Err((export, error)) => {
                *self.export.lock().unwrap_or_else(PoisonError::into_inner) = Some(export);
                Err(raise(py, &error))
            }
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.take().map(|export| detached(py, || export.revoke(Duration::from_secs(1)))) {
            Some(Err((export, error))) => {
                *self.export.lock().unwrap_or_else(PoisonError::into_inner) = Some(export);
                Err(raise(py, &error))
            }
            _ => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<dma.Export of {}, {:?}>", count(self.len, "byte", "bytes"), self.rights)
    }
}

impl Drop for PyExport {
    fn drop(&mut self) {
        if let Some(export) = self.take() {
            // The wait for a peer must not stop other threads.
            let mut export = Some(export);
            let _ = Python::try_attach(|py| {
                let export = export.take();
                detached(py, || drop(export));
            });
        }
    }
}
