//! [`PoolOptions`]: the size classes of a pool, and its other options.

use std::time::Duration;

use crate::Access;

/// Pool options: the size classes, and the export rights, NUMA node, name and warnings.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub(crate) classes: Vec<ClassOptions>,
    pub(crate) export: Access,
    pub(crate) node: Option<u32>,
    pub(crate) label: String,
    pub(crate) wait_warning: Duration,
}

/// The buffers of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassOptions {
    /// The length of each buffer, in bytes.
    pub(crate) len: usize,
    /// The initial number of buffers.
    pub(crate) count: usize,
    /// The number of buffers that the pool may grow to; 0 means `count`.
    pub(crate) max: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl PoolOptions {
    /// Makes options without size classes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            classes: Vec::new(),
            export: Access::empty(),
            node: None,
            label: String::new(),
            wait_warning: Duration::from_secs(5),
        }
    }

    crate::contract::setters::setters! {
        /// Allows exports of the buffers with at most these rights, by
        /// [`BufferMut::share`](crate::BufferMut::share) and [`Window::export`](crate::Window::export). A
        /// buffer returns to the pool after its export. Default: no rights.
        exportable(export: Access);
        /// Allocates the memory on a NUMA node, such as the engine's
        /// [`EngineInfo::numa_node`](crate::EngineInfo::numa_node). By default, and with `None`, the system
        /// chooses.
        with_node(node: Option<u32>);
        /// Sets the pool's name in metrics, warnings and [`pools`](crate::pools). Default: its number in the
        /// process.
        with_label(label: impl Into<String>);
        /// Sets the time after which a task that waits for a buffer causes a warning, which is logged with
        /// `tracing`. Default: 5 s. 0: no warning. A thread that exists only while tasks wait logs the
        /// warning.
        with_wait_warning(wait_warning: Duration);
    }

    /// Adds `count` buffers of up to `len` bytes; both must be at least 1. Adding the same size again
    /// increases its number of buffers. The pool makes all buffers at once, and needs about 400 bytes of
    /// memory for each buffer besides its bytes: for millions of short ranges, divide fewer buffers.
    #[must_use]
    pub fn with_class(mut self, len: usize, count: usize) -> Self {
        self.classes.push(ClassOptions { len, count, max: 0 });
        self
    }

    /// Adds `count` buffers of up to `len` bytes, as [`with_class`](Self::with_class) does. When all of them
    /// are in use, the pool adds up to `count` more at a time, up to `max` in total. Only for
    /// [`BufferPool::growing`](crate::BufferPool::growing).
    #[must_use]
    pub fn with_growing_class(mut self, len: usize, count: usize, max: usize) -> Self {
        self.classes.push(ClassOptions { len, count, max });
        self
    }
}
