//! [`WindowPool`]: windows of device memory that are reused.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::get::Take;
use super::{BufferPool, PoolClass, PoolOptions};
use crate::{DmaEngine, Place, Result, Window};

/// Windows of the device's own memory that are reused, like the buffers of a [`BufferPool`]. Device memory is
/// allocated only once, because an allocation waits for the device.
///
/// A window returns to the pool when its last view is dropped and no operation uses it. A reused window
/// contains the bytes of its last user. New windows are zeroed.
///
/// ```
/// use dma_core::{DmaEngineExt, PoolOptions, QueueOptions, WindowPool};
/// # fn demo(engine: &dyn dma_core::DmaEngine) -> dma_core::Result<()> {
///
/// let pool = WindowPool::new(engine, &PoolOptions::new().with_class(1 << 20, 4))?;
/// let queue = engine.open_queue(&QueueOptions::new())?;
/// let (_, vram) = queue.copy(engine.allocate(1000)?, pool.try_get(1000)?)?.wait()?;
/// drop(vram); // returns to the pool
/// assert_eq!(pool.classes().map(|class| class.in_use).sum::<usize>(), 0);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct WindowPool(BufferPool);

impl WindowPool {
    /// Makes a pool, and allocates its memory from `engine`, one region for each size. May block while the
    /// device clears the memory.
    ///
    /// # Errors
    ///
    /// The errors of [`BufferPool::new`], `Unsupported` if the engine has no device memory, and
    /// `InvalidArgument` if the options name a NUMA node.
    pub fn new<E: DmaEngine + ?Sized>(engine: &E, options: &PoolOptions) -> Result<Self> {
        BufferPool::in_place(engine, options, Place::Device, None).map(Self)
    }

    /// Makes a pool as [`new`](Self::new) does, but with classes that grow as in [`BufferPool::growing`].
    ///
    /// # Errors
    ///
    /// The errors of `new` and of `BufferPool::growing`.
    pub fn growing(engine: impl DmaEngine + 'static, options: &PoolOptions) -> Result<Self> {
        let engine: Arc<dyn DmaEngine> = Arc::new(engine);
        BufferPool::in_place(&engine, options, Place::Device, Some(&engine)).map(Self)
    }

    /// Returns another handle of this pool, with a name, as [`BufferPool::held_by`] does.
    #[must_use]
    pub fn held_by(&self, name: &str) -> Self {
        Self(self.0.held_by(name))
    }

    /// Returns a text that lists the holders of the windows, as [`BufferPool::explain`] does.
    #[must_use]
    pub fn explain(&self) -> String {
        self.0.explain()
    }

    /// Takes a window of `len` bytes, if one is free, as [`BufferPool::try_get`] does.
    ///
    /// # Errors
    ///
    /// See [`BufferPool::try_get`].
    pub fn try_get(&self, len: usize) -> Result<Window> {
        self.0.try_take(len).map(Window::new)
    }

    /// Takes a window of `len` bytes, and waits until one is free, as [`BufferPool::get`] does.
    ///
    /// # Errors
    ///
    /// The future fails with the errors of [`BufferPool::get`].
    pub fn get(&self, len: usize) -> impl Future<Output = Result<Window>> + Send + use<> {
        let take = Take::new(self.0.clone(), len);
        async { take.await.map(Window::new) }
    }

    /// Takes a window of `len` bytes, and waits up to `timeout` for it, as [`BufferPool::get_timeout`] does.
    ///
    /// # Errors
    ///
    /// See [`BufferPool::get_timeout`].
    pub fn get_timeout(&self, len: usize, timeout: Duration) -> Result<Window> {
        self.0.take_timeout(len, timeout).map(Window::new)
    }

    /// Returns the state of the windows of each size, in the order of the sizes.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = PoolClass> {
        self.0.classes()
    }
}

impl fmt::Debug for WindowPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
