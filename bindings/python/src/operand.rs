//! [`Operand`]: memory that an operation reads or writes: a view, a list of views, or rows of a view.

use dma::{Error, ErrorKind, Window};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::buffer::view_of;
use crate::error::raise;
use crate::transfer::Claim;
use crate::view::View;

/// Parts of one view: the source of a gather, or the destination of a scatter.
///
/// Args:
///     view: a Buffer or a Window.
///     rows: pairs of an offset in the view and a length, both in bytes. Rows of a source may repeat.
///
/// Raises:
///     dma.OutOfRange (a ValueError): a row lies outside of the view.
#[pyclass(name = "Rows", module = "dma", frozen)]
pub(crate) struct Rows {
    view: Py<PyAny>,
    rows: Vec<(usize, usize)>,
}

#[pymethods]
impl Rows {
    #[new]
    fn new(view: &Bound<'_, PyAny>, rows: Vec<(usize, usize)>) -> PyResult<Self> {
        let py = view.py();
        let whole = view_of(view)?;
        whole.memory(py)?;
        for (index, (at, len)) in rows.iter().enumerate() {
            if at.checked_add(*len).is_none_or(|end| end > whole.len) {
                let error = Error::new(
                    ErrorKind::OutOfRange,
                    format!(
                        "row {index} of {len} bytes at offset {at} is not inside the view of {} bytes",
                        whole.len
                    ),
                )
                .with_operation("rows")
                .with_numbers((*at as u64).saturating_add(*len as u64), whole.len as u64)
                .with_hint("give offsets and lengths in bytes; offsets begin at the start of the view");
                return Err(raise(py, &error));
            }
        }
        Ok(Self { view: view.clone().unbind(), rows })
    }

    /// The sum of the lengths in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.rows.iter().fold(0, |sum, (_, len)| sum.saturating_add(*len))
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }
}

/// See the module.
pub(crate) enum Operand {
    One(Window),
    List(Vec<Window>),
    Rows(Window, Vec<(usize, usize)>),
}

impl Operand {
    /// Returns the memory of an argument, and adds the ranges that the operation uses to `claims`.
    ///
    /// # Errors
    ///
    /// `TypeError` for another object; `Closed`, `AccessDenied` as in [`claim`].
    pub(crate) fn new(object: &Bound<'_, PyAny>, writes: bool, claims: &mut Vec<Claim>) -> PyResult<Self> {
        let py = object.py();
        if let Ok(rows) = object.cast_exact::<Rows>() {
            let view = view_of(rows.get().view.bind(py))?;
            let window = claim(py, view, writes, claims)?;
            return Ok(Self::Rows(window, rows.get().rows.clone()));
        }
        if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
            let mut windows = Vec::new();
            for part in object.try_iter()? {
                windows.push(claim(py, view_of(&part?)?, writes, claims)?);
            }
            return Ok(Self::List(windows));
        }
        claim(py, view_of(object)?, writes, claims).map(Self::One)
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::One(window) => window.len(),
            Self::List(list) => list.iter().fold(0, |sum, window| sum.saturating_add(window.len())),
            Self::Rows(_, rows) => rows.iter().fold(0, |sum, (_, len)| sum.saturating_add(*len)),
        }
    }

    /// Returns the views in order.
    pub(crate) fn into_list(self) -> Vec<Window> {
        match self {
            Self::One(window) => vec![window],
            Self::List(list) => list,
            Self::Rows(window, rows) => rows.iter().map(|(at, len)| window.slice(*at..at + len)).collect(),
        }
    }
}

/// Adds the range of a view to `claims`. The submission checks that Python does not view the range.
///
/// # Errors
///
/// `Closed` for released memory; `AccessDenied` for a read-only destination.
pub(crate) fn claim(py: Python<'_>, view: &View, writes: bool, claims: &mut Vec<Claim>) -> PyResult<Window> {
    if writes && view.read_only {
        return Err(denied(py));
    }
    let memory = view.memory(py)?;
    let (start, end) = view.range();
    let window = memory.window.slice(start..end);
    claims.push(Claim { memory, start, end, writes });
    Ok(window)
}

#[cold]
fn denied(py: Python<'_>) -> PyErr {
    let error = Error::new(ErrorKind::AccessDenied, "the destination is read-only")
        .with_hint("use a destination that is writable: allocate it, or register a writable object");
    raise(py, &error)
}
