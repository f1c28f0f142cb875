//! [`Pool`]: registered buffers that are reused.

use std::time::{Duration, Instant};

use dma::process::count;
use dma::{BufferPool, ErrorKind, PoolOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{Size, wait_limit};
use crate::buffer::Buffer;
use crate::error::raise;
use crate::interpreter::detached;
use crate::memory::Memory;

/// Time of one wait without Python's lock.
const SLICE: Duration = Duration::from_millis(50);

/// Reads the sizes of a pool. Returns its options, and whether it may grow.
pub(crate) fn pool_options(
    sizes: &Bound<'_, PyDict>,
    max: Option<&Bound<'_, PyDict>>,
) -> PyResult<(PoolOptions, bool)> {
    let mut limits = Vec::new();
    for (size, count) in max.into_iter().flatten() {
        limits.push((size.extract::<Size>()?.0, count.extract::<usize>()?));
    }
    let grows = !limits.is_empty();
    let mut options = PoolOptions::new();
    for (size, count) in sizes {
        let (size, count) = (size.extract::<Size>()?.0, count.extract::<usize>()?);
        let limit = limits.iter().find(|(of, _)| *of == size);
        options = match limit {
            Some((_, max)) => options.with_growing_class(size, count, *max),
            None => options.with_class(size, count),
        };
    }
    Ok((options, grows))
}

/// Registered buffers that are reused: taking one costs less than a microsecond. Make it by engine.pool().
///
/// A buffer returns to the pool when its last view and operation has ended, or by release(). It contains the
/// bytes of its last user. Any thread may use a pool. Tasks that hold buffers while they wait for more can
/// deadlock: use a timeout.
#[pyclass(module = "dma", frozen, weakref)]
pub(crate) struct Pool(pub(crate) BufferPool);

fn buffer(taken: dma::BufferMut) -> Buffer {
    Buffer::whole(Memory::ruled(taken.share(), false))
}

#[pymethods]
impl Pool {
    /// Takes a buffer of `size` bytes (or a text such as "64K"), of the smallest size of the pool that fits.
    ///
    /// Args:
    ///     timeout: seconds to wait for a free buffer; 0 does not wait, None waits without a limit.
    ///
    /// Other threads run during the wait, and Ctrl-C ends it.
    ///
    /// Raises:
    ///     dma.TimedOut (a TimeoutError): no buffer became free in time.
    ///     dma.OutOfResources: no buffer is free, for a timeout of 0.
    ///     dma.OutOfRange (a ValueError): the pool has no buffers of this size.
    #[pyo3(signature = (size, *, timeout=None))]
    fn get(&self, py: Python<'_>, size: Size, timeout: Option<f64>) -> PyResult<Buffer> {
        let timeout = wait_limit(py, timeout)?;
        match self.0.try_get(size.0) {
            Ok(taken) => return Ok(buffer(taken)),
            Err(e) if e.kind() != ErrorKind::OutOfResources || timeout.is_zero() => {
                return Err(raise(py, &e));
            }
            Err(_) => {}
        }
        let until = Instant::now().checked_add(timeout);
        loop {
            let left =
                until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
            match detached(py, || self.0.get_timeout(size.0, left)) {
                Ok(taken) => return Ok(buffer(taken)),
                Err(e) if e.kind() != ErrorKind::TimedOut => return Err(raise(py, &e)),
                Err(e) => {
                    py.check_signals()?;
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return Err(raise(py, &e));
                    }
                }
            }
        }
    }

    /// The number of buffers in use.
    #[getter]
    fn in_use(&self) -> usize {
        self.0.classes().map(|class| class.in_use).sum()
    }

    /// Returns a text about the buffers in use, and the tasks that wait.
    fn explain(&self) -> String {
        self.0.explain()
    }

    fn __repr__(&self) -> String {
        format!("<dma.Pool, {} in use>", count(self.in_use(), "buffer", "buffers"))
    }
}
