//! [`View`]: a range of registered memory, which [`Buffer`](crate::buffer::Buffer) and
//! [`Window`](crate::buffer::Window) have.

use std::sync::Arc;

use dma::process::count;
use dma::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PySlice;

use crate::error::raise;
use crate::interpreter::State;
use crate::memory::{Memory, free};

/// A range of registered memory.
pub(crate) struct View {
    /// `None` after `release`.
    memory: State<Option<Arc<Memory>>>,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) read_only: bool,
}

impl View {
    pub(crate) fn new(memory: Arc<Memory>, start: usize, len: usize, read_only: bool) -> Self {
        let read_only = read_only || memory.read_only;
        Self { memory: State::new(Some(memory)), start, len, read_only }
    }

    pub(crate) fn whole(memory: Arc<Memory>) -> Self {
        let len = memory.window.len();
        Self::new(memory, 0, len, false)
    }

    /// Returns the memory.
    ///
    /// # Errors
    ///
    /// `Closed`, a `ValueError`, after `release`.
    #[inline]
    pub(crate) fn memory(&self, py: Python<'_>) -> PyResult<Arc<Memory>> {
        self.with(py, Arc::clone)
    }

    /// Calls `f` with the memory. `f` must not call Python.
    ///
    /// # Errors
    ///
    /// `Closed`, a `ValueError`, after `release`.
    #[inline]
    pub(crate) fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&Arc<Memory>) -> R) -> PyResult<R> {
        if let Some(memory) = &*self.memory.read(py) {
            return Ok(f(memory));
        }
        Err(released(py))
    }

    /// Calls `f` with the memory of two views. `f` must not call Python.
    ///
    /// # Errors
    ///
    /// `Closed`, a `ValueError`, after `release`.
    #[inline]
    pub(crate) fn with_both<R>(
        py: Python<'_>,
        [a, b]: [&Self; 2],
        f: impl FnOnce(&Arc<Memory>, &Arc<Memory>) -> R,
    ) -> PyResult<R> {
        if cfg!(Py_GIL_DISABLED) {
            // Two locks at once could be taken in either order.
            return Ok(f(&a.memory(py)?, &b.memory(py)?));
        }
        a.with(py, |a| b.with(py, |b| f(a, b)))?
    }

    pub(crate) const fn range(&self) -> (usize, usize) {
        (self.start, self.start + self.len)
    }

    pub(crate) fn release(&self, py: Python<'_>) -> PyResult<()> {
        let Some(memory) = self.memory.read(py).clone() else { return Ok(()) };
        let (start, end) = self.range();
        memory.check_unused(py, start, end)?;
        let taken = self.memory.write(py).take();
        drop(taken);
        free(py, memory);
        Ok(())
    }

    /// Returns the representation of an object of `class` that has this range.
    pub(crate) fn describe(&self, py: Python<'_>, class: &str) -> String {
        let backend = self.with(py, |memory| memory.window.region().backend());
        backend.map_or_else(
            |_| format!("<dma.{class}, released>"),
            |backend| format!("<dma.{class} of {} of {backend}>", count(self.len, "byte", "bytes")),
        )
    }

    /// Returns the sub-range of a slice.
    pub(crate) fn slice(&self, py: Python<'_>, slice: &Bound<'_, PySlice>) -> PyResult<Self> {
        let indices = slice.indices(self.len as isize)?;
        if indices.step != 1 {
            let error = crate::error::invalid(
                format!("a slice with the step {}", indices.step),
                "leave the step out: devices copy adjacent bytes; use dma.Rows for parts of a table",
            );
            return Err(raise(py, &error));
        }
        let memory = self.memory(py)?;
        Ok(Self::new(memory, self.start + indices.start as usize, indices.slicelength, self.read_only))
    }
}

#[cold]
fn released(py: Python<'_>) -> PyErr {
    let error =
        Error::new(ErrorKind::Closed, "the memory was released").with_hint("allocate or register it again");
    raise(py, &error)
}

#[cold]
pub(crate) fn read_only(py: Python<'_>) -> PyErr {
    let error = Error::new(ErrorKind::AccessDenied, "the memory is read-only")
        .with_hint("register a writable object, such as a bytearray");
    raise(py, &error)
}
