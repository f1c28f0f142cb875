//! [`Memory`]: registered memory, and the rule that protects it from use by two sides.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use dma::Window;
use pyo3::prelude::*;

use crate::error::{in_use, raise};
use crate::interpreter::{State, detached};
use crate::operation::Tracked;

/// A use of a range of memory that is not over.
struct Use {
    id: u64,
    start: usize,
    end: usize,
    writes: bool,
    /// The operation that uses the range; `None` for a view.
    operation: Option<Weak<dyn Tracked>>,
}

impl Use {
    const fn overlaps(&self, start: usize, end: usize) -> bool {
        // No bytes overlap nothing.
        start < end && self.start < self.end && self.start < end && start < self.end
    }
}

/// The uses of one memory. Views are Python's: of `memoryview`, numpy or another user of the buffer protocol.
#[derive(Default)]
struct Uses {
    next: u64,
    views: Vec<Use>,
    operations: Vec<Use>,
}

/// A region of registered memory. The rule for memory that Python can view:
///
/// - While an operation writes a range, no view of it exists. While an operation reads it, no view that can
///   write exists.
/// - So a view is refused while such an operation is in flight, and an operation while such a view exists.
///
/// Windows have no views, and so no rule. Two operations may use the same range, as fences order them.
///
/// A use is checked and begun under one lock, so that of a view and an operation in two threads only one
/// begins.
pub(crate) struct Memory {
    pub(crate) window: Window,
    /// Address at which the CPU reaches the first byte; `None` for windows.
    cpu: Option<Start>,
    pub(crate) read_only: bool,
    /// CUDA's number of the device, for a GPU's memory whose device is known.
    pub(crate) cuda: Option<i32>,
    uses: State<Uses>,
}

/// The address of the first byte.
#[derive(Clone, Copy)]
pub(crate) struct Start(pub(crate) NonNull<u8>);

#[expect(unsafe_code, reason = "an address")]
// SAFETY: this type only stores the address. Each access states why it is sound.
unsafe impl Send for Start {}
#[expect(unsafe_code, reason = "an address")]
// SAFETY: a shared reference gives only the address.
unsafe impl Sync for Start {}

impl Memory {
    /// Makes memory under the rule. The CPU must reach the bytes.
    pub(crate) fn ruled(window: Window, read_only: bool) -> Arc<Self> {
        let cpu = window.region().as_raw().info().cpu.map(|start| {
            let at = start.as_ptr().wrapping_add(window.offset());
            Start(NonNull::new(at).unwrap_or(start))
        });
        let cpu = Some(cpu.unwrap_or(Start(NonNull::dangling())));
        Arc::new(Self { window, cpu, read_only, cuda: None, uses: State::new(Uses::default()) })
    }

    /// Makes memory without the rule and without views. `cuda` is CUDA's number of the engine's device.
    pub(crate) fn unruled(window: Window, cuda: Option<i32>) -> Arc<Self> {
        let read_only = !window.region().access().contains(dma::Access::WRITE);
        let cuda = cuda.filter(|_| !window.region().is_cpu_visible());
        Arc::new(Self { window, cpu: None, read_only, cuda, uses: State::new(Uses::default()) })
    }

    pub(crate) const fn start(&self) -> Option<Start> {
        self.cpu
    }

    /// Calls `f` if Python views none of the memory, and lets no view begin during the call. Returns `None`
    /// otherwise. `f` must not call Python.
    #[cfg(not(Py_GIL_DISABLED))]
    #[inline]
    pub(crate) fn without_views<'a, R>(
        py: Python<'_>,
        memory: impl IntoIterator<Item = &'a Arc<Self>>,
        f: impl FnOnce() -> R,
    ) -> Option<R> {
        // The thread keeps the global lock.
        memory.into_iter().all(|memory| memory.uses.read(py).views.is_empty()).then(f)
    }

    /// Calls `f` if Python views none of the memory, and lets no view begin during the call. Returns `None`
    /// otherwise. `f` must not call Python.
    #[cfg(Py_GIL_DISABLED)]
    pub(crate) fn without_views<'a, R>(
        py: Python<'_>,
        memory: impl IntoIterator<Item = &'a Arc<Self>>,
        f: impl FnOnce() -> R,
    ) -> Option<R> {
        // All threads lock memory in the order of its address, so that none waits for another in a circle.
        let mut memory: Vec<_> = memory.into_iter().collect();
        memory.sort_unstable_by_key(|memory| Arc::as_ptr(memory));
        memory.dedup_by_key(|memory| Arc::as_ptr(memory));
        let uses: Vec<_> = memory.into_iter().map(|memory| memory.uses.read(py)).collect();
        uses.iter().all(|uses| uses.views.is_empty()).then(f)
    }

    /// Begins a view of a range, and returns its id.
    ///
    /// # Errors
    ///
    /// `InUse`, a `BufferError`, while an operation in flight uses the range.
    pub(crate) fn begin_view(&self, py: Python<'_>, start: usize, end: usize, writes: bool) -> PyResult<u64> {
        let begin = || {
            let mut uses = self.uses.write(py);
            let is_hit = |it: &&Use| it.overlaps(start, end) && (writes || it.writes);
            let hits: Vec<_> = uses.operations.iter().filter(is_hit).map(|it| it.operation.clone()).collect();
            if hits.is_empty() { Ok(uses.add(None, start, end, writes)) } else { Err(hits) }
        };
        let hits = match begin() {
            Ok(id) => return Ok(id),
            Err(hits) => hits,
        };
        // Their operations may have ended since the last poll.
        for operation in hits.into_iter().flatten().filter_map(|it| it.upgrade()) {
            operation.poll_for_view(py);
        }
        begin().map_err(|_| {
            raise(
                py,
                &in_use(
                    "an operation in flight uses these bytes",
                    "wait for its transfer, or poll the queue until it is done",
                ),
            )
        })
    }

    /// Ends a view.
    pub(crate) fn end_view(&self, py: Python<'_>, id: u64) {
        let views = &mut self.uses.write(py).views;
        if let Some(at) = views.iter().rposition(|it| it.id == id) {
            views.swap_remove(at);
        }
    }

    /// Begins the use of a range by an operation, and returns its id.
    ///
    /// # Errors
    ///
    /// `InUse`, a `BufferError`, while a view of the range exists, or one that can write for an operation
    /// that only reads.
    pub(crate) fn begin_operation(
        &self,
        py: Python<'_>,
        operation: Weak<dyn Tracked>,
        (start, end): (usize, usize),
        writes: bool,
    ) -> PyResult<u64> {
        let begin = || {
            let mut uses = self.uses.write(py);
            (!uses.are_views(start, end, writes)).then(|| uses.add(Some(operation), start, end, writes))
        };
        begin().ok_or_else(|| viewed(py))
    }

    /// Ends the use of a range by an operation.
    pub(crate) fn end_operation(&self, py: Python<'_>, id: u64) {
        let operations = &mut self.uses.write(py).operations;
        if let Some(at) = operations.iter().position(|it| it.id == id) {
            operations.swap_remove(at);
        }
    }

    /// Checks that neither a view nor an operation uses a range.
    ///
    /// # Errors
    ///
    /// `InUse`, a `BufferError`.
    pub(crate) fn check_unused(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        if self.uses.read(py).are_views(start, end, true) {
            return Err(viewed(py));
        }
        let id = self.begin_view(py, start, end, true)?;
        self.end_view(py, id);
        Ok(())
    }
}

impl Uses {
    /// Returns whether a view prevents the use of a range by an operation.
    fn are_views(&self, start: usize, end: usize, writes: bool) -> bool {
        self.views.iter().any(|it| it.overlaps(start, end) && (writes || it.writes))
    }

    fn add(&mut self, operation: Option<Weak<dyn Tracked>>, start: usize, end: usize, writes: bool) -> u64 {
        let id = self.next;
        self.next += 1;
        let list = if operation.is_some() { &mut self.operations } else { &mut self.views };
        list.push(Use { id, start, end, writes, operation });
        id
    }
}

/// Makes the error of an operation on memory of which a view exists.
fn viewed(py: Python<'_>) -> PyErr {
    raise(
        py,
        &in_use(
            "a view of these bytes exists, such as a memoryview or a numpy array",
            "release the view (memoryview.release(), del array), or register the array itself",
        ),
    )
}

/// A view of a range, which ends when this value is dropped.
pub(crate) struct ViewGuard {
    memory: Arc<Memory>,
    id: u64,
}

impl ViewGuard {
    /// Begins a view.
    ///
    /// # Errors
    ///
    /// See [`Memory::begin_view`].
    pub(crate) fn new(
        py: Python<'_>,
        memory: Arc<Memory>,
        (start, end): (usize, usize),
        writes: bool,
    ) -> PyResult<Self> {
        let id = memory.begin_view(py, start, end, writes)?;
        Ok(Self { memory, id })
    }
}

impl Drop for ViewGuard {
    fn drop(&mut self) {
        // After the interpreter's end, nobody asks for the rule any more.
        let _ = Python::try_attach(|py| self.memory.end_view(py, self.id));
    }
}

/// Frees memory, which may block while the system unmaps it, and may attach to Python to release its
/// owner.
pub(crate) fn free(py: Python<'_>, memory: Arc<Memory>) {
    if Arc::strong_count(&memory) == 1 {
        detached(py, || drop(memory));
    }
}
