//! [`PyBatch`]: prepared copies that are submitted together.

use std::sync::{Arc, Mutex, PoisonError};

use dma::process::count;
use dma::{Batch, Window};
use pyo3::prelude::*;

use crate::buffer::view_of;
use crate::error::{in_use, raise};
use crate::memory::Memory;
use crate::operand::claim;
use crate::transfer::Claim;

/// Copies of one view each.
pub(crate) type Pairs = Batch<Window, Window>;

/// Copies that are submitted together, as often as you like: one check, one doorbell and one transfer.
///
/// Args:
///     copies: pairs of a source and a destination, each a Buffer or a Window.
///
/// Raises:
///     TypeError: an entry is not a pair of memory.
///     dma.AccessDenied (a BufferError): a destination is read-only.
#[pyclass(name = "Batch", module = "dma", frozen, weakref)]
pub(crate) struct PyBatch {
    /// `None` while the batch is in flight.
    pub(crate) pairs: Arc<Mutex<Option<Pairs>>>,
    uses: Vec<Range>,
    /// The memory of all copies, once each.
    memory: Vec<Arc<Memory>>,
    len: usize,
    bytes: usize,
}

/// A range that a copy uses.
struct Range {
    memory: usize,
    start: usize,
    end: usize,
    writes: bool,
}

#[pymethods]
impl PyBatch {
    #[new]
    fn new(copies: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = copies.py();
        let mut pairs = Pairs::new();
        let (mut uses, mut memory, mut bytes) = (Vec::new(), Vec::<Arc<Memory>>::new(), 0_usize);
        for pair in copies.try_iter()? {
            let (src, dst): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            // Views are checked by each submission.
            let mut claims = Vec::new();
            let src = claim(py, view_of(&src)?, false, &mut claims)?;
            let dst = claim(py, view_of(&dst)?, true, &mut claims)?;
            bytes = bytes.saturating_add(src.len());
            pairs.push(src, dst);
            for Claim { memory: of, start, end, writes } in claims {
                let known = memory.iter().rposition(|known| Arc::ptr_eq(known, &of));
                let index = known.unwrap_or_else(|| {
                    memory.push(of);
                    memory.len() - 1
                });
                uses.push(Range { memory: index, start, end, writes });
            }
        }
        let len = pairs.len();
        Ok(Self { pairs: Arc::new(Mutex::new(Some(pairs))), uses, memory, len, bytes })
    }

    /// The number of copies.
    fn __len__(&self) -> usize {
        self.len
    }

    /// The sum of the lengths in bytes.
    #[getter]
    const fn nbytes(&self) -> usize {
        self.bytes
    }

    fn __repr__(&self) -> String {
        format!("<dma.Batch of {}>", count(self.len, "copy", "copies"))
    }
}

impl PyBatch {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Calls `f` with the copies if the batch is not in flight and Python views none of the memory. `f` must
    /// not call Python.
    #[inline]
    pub(crate) fn now<R>(&self, py: Python<'_>, f: impl FnOnce(&mut Pairs) -> R) -> Option<R> {
        let mut pairs = self.pairs.try_lock().ok()?;
        let pairs = pairs.as_mut()?;
        Memory::without_views(py, &self.memory, || f(pairs))
    }

    pub(crate) fn claims(&self) -> Vec<Claim> {
        let of = |range: &Range| Claim {
            memory: Arc::clone(&self.memory[range.memory]),
            start: range.start,
            end: range.end,
            writes: range.writes,
        };
        self.uses.iter().map(of).collect()
    }

    /// Takes the copies for a submission.
    ///
    /// # Errors
    ///
    /// `InUse` while the batch is in flight.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Pairs> {
        let taken = self.pairs.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| {
            raise(py, &in_use("the batch is in flight", "wait for its transfer, or prepare another batch"))
        })
    }
}
