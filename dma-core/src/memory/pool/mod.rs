//! [`BufferPool`]: registered buffers that are reused.
#![expect(unsafe_code, reason = "frees blocks that no buffer uses")]

mod free_set;
mod get;
mod growth;
mod holders;
mod options;
mod report;
mod size_class;
mod slab;
#[cfg(all(test, not(loom)))]
mod tests;
mod thread_cache;
mod wait_watch;
mod windows;

use std::fmt;
use std::sync::Arc;

use crate::memory::range::Range;
use crate::memory::region::Region;
use crate::slow_path::slow_path;
use crate::{Access, BufferMut, Capabilities, DmaEngine, EngineId, Error, ErrorKind, Place, Result};
use dma_process::lock;
pub use get::PoolGet;
pub(crate) use options::ClassOptions;
pub use options::PoolOptions;
pub use report::{PoolClass, PoolReport, pools};
use size_class::{SizeClass, fail};
pub use windows::WindowPool;

/// Maximum length of the memory that a pool keeps for `copy_bytes`, in bytes.
const MAX_RESERVE: usize = 64 << 10;

/// Registered buffers that are reused. Allocation and registration take microseconds for each buffer, and
/// happen only once.
///
/// A pool has a fixed number of buffers of each size of its [`PoolOptions`], unless
/// [`growing`](Self::growing) made it. The buffers are ordinary [`BufferMut`]s of the engine: they can be
/// split, frozen and moved into operations. A buffer returns to the pool when its last view is dropped, on
/// any thread, even if this view is a [`bytes::Bytes`]. A request takes a buffer of the smallest size that
/// fits, and never a larger buffer.
///
/// - A reused buffer contains the bytes of its last user. New buffers are zeroed.
/// - Taking and returning a buffer need no lock and no allocation, unless a task waits, or a thread takes a
///   buffer while only the caches of other threads have free buffers.
/// - Up to 64 threads have a cache of up to 28 buffers of each size, if the system has `membarrier`. No
///   request fails, and no task waits, while a cache has a buffer: the request then takes the buffers of all
///   caches, which makes each running thread of the process execute a memory barrier. If a sandbox forbids
///   `membarrier` after the pool was made, only its own thread can take what a cache has then.
/// - Memory of an abandoned operation, or of an export that a peer does not release, never returns to the
///   pool and stays [in use](PoolClass::in_use).
/// - Clones share the buffers. When the last clone is dropped, free buffers are freed immediately, and each
///   buffer in use is freed when it is dropped. The memory of one size is deregistered when all buffers of
///   that size have been freed.
/// - A forked process cannot take buffers from the pool, and leaks the buffers that it has.
/// - To find out why a pool is exhausted, read [`classes`](Self::classes) or [`pools`](crate::pools): they
///   return the number of buffers in use, the number of waiting tasks, and the durations of their waits.
///   [`explain`](Self::explain) lists the holders of the buffers. Tasks that hold buffers while they wait for
///   more can deadlock. To avoid this, take all buffers that a task needs before it works, or give the pool
///   one buffer more than there are tasks.
///
/// ```
/// use dma_core::{BufferPool, DmaEngineExt, PoolOptions, QueueOptions};
/// # fn demo(engine: &dyn dma_core::DmaEngine) -> dma_core::Result<()> {
///
/// let pool = BufferPool::new(engine, &PoolOptions::new().with_class(4096, 8).with_class(1 << 16, 2))?;
/// let queue = engine.open_queue(&QueueOptions::new())?;
/// let mut src = pool.try_get(1000)?;
/// src.fill(7);
/// let (_, dst) = queue.copy(src, pool.try_get(1000)?)?.wait()?;
/// let bytes: bytes::Bytes = dst.freeze().into();
/// assert_eq!(bytes[..], [7; 1000]);
/// drop(bytes); // the last buffer returns to the pool
/// assert_eq!(pool.classes().map(|class| class.in_use).sum::<usize>(), 0);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct BufferPool {
    inner: Arc<PoolInner>,
    /// The holder of the buffers that are taken by this handle; 0 for no holder.
    holder: u32,
}

struct PoolInner {
    /// Sorted by length.
    classes: Vec<Arc<SizeClass>>,
    /// One block for `copy_bytes`, if its engine needs blocks. No program ever holds it, so the block becomes
    /// free by itself.
    reserve: Option<Arc<SizeClass>>,
    backend: &'static str,
    /// The pool's number in this process.
    number: u64,
    label: String,
    holders: holders::Names,
    watch: wait_watch::WaitWatch,
}

impl BufferPool {
    /// Makes a pool, and allocates its memory from `engine`: one region for each size, in huge pages if the
    /// system has huge pages. May block while the system maps and pins the memory. On an engine that does not
    /// copy by CPU, the pool also allocates up to 64 KiB for [`copy_bytes`](crate::Queue::copy_bytes).
    ///
    /// # Errors
    ///
    /// The errors of [`DmaEngineExt::allocate_with`](crate::DmaEngineExt::allocate_with), and
    /// `InvalidArgument` for options without a size, a size of 0 bytes, 0 buffers of a size, or more than
    /// 2^24 buffers of a size.
    pub fn new<E: DmaEngine + ?Sized>(engine: &E, options: &PoolOptions) -> Result<Self> {
        Self::in_place(engine, options, Place::Host, None)
    }

    /// Makes a pool as [`new`](Self::new) does, but with [classes that
    /// grow](PoolOptions::with_growing_class). The pool keeps the engine open.
    ///
    /// A request that finds no free buffer allocates and registers more buffers, and may block like `new`. If
    /// that fails, a warning is logged, and the pool continues with its existing buffers. A later request
    /// tries again, at the earliest after 1 s. A pool does not shrink.
    ///
    /// # Errors
    ///
    /// The errors of `new`, and `InvalidArgument` for a maximum of more than 2^24 buffers of a size.
    pub fn growing(engine: impl DmaEngine + 'static, options: &PoolOptions) -> Result<Self> {
        let engine: Arc<dyn DmaEngine> = Arc::new(engine);
        Self::in_place(&engine, options, Place::Host, Some(&engine))
    }

    /// Returns another handle of this pool, with a name. [`explain`](Self::explain) reports under this name
    /// how many buffers this handle has taken, and for how long the oldest of them has been in use. In a
    /// process that was forked after the pool was made, the handle has no name.
    #[must_use]
    pub fn held_by(&self, name: &str) -> Self {
        Self { inner: Arc::clone(&self.inner), holder: self.inner.holders.number(name) }
    }

    fn in_place<E: DmaEngine + ?Sized>(
        engine: &E,
        options: &PoolOptions,
        place: Place,
        growing: Option<&Arc<dyn DmaEngine>>,
    ) -> Result<Self> {
        let backend = engine.info().backend;
        let bad =
            |message: String, hint| Err(fail(ErrorKind::InvalidArgument, message, backend).with_hint(hint));
        let mut sizes = std::collections::BTreeMap::<usize, ClassOptions>::new();
        for &ClassOptions { len, count, max } in &options.classes {
            if len == 0 || count == 0 {
                return bad(format!("{count} buffers of {len} bytes"), "ask for at least 1 buffer of 1 byte");
            }
            let max = if max == 0 { count } else { max };
            if max < count {
                return bad(
                    format!("{count} buffers of {len} bytes that grow to {max}"),
                    "let the pool grow to at least its initial number of buffers",
                );
            }
            if max > count && growing.is_none() {
                return bad(
                    format!("{count} buffers of {len} bytes that grow to {max}"),
                    "make the pool with `growing`, which keeps the engine open",
                );
            }
            let sum = sizes.entry(len).or_insert(ClassOptions { len, count: 0, max: 0 });
            sum.count = sum.count.saturating_add(count);
            sum.max = sum.max.saturating_add(max);
        }
        if sizes.is_empty() {
            return bad("no buffers".to_owned(), "add a size with `PoolOptions::with_class`");
        }
        let mut classes = Vec::new();
        let longest = sizes.last_key_value().map_or(0, |(len, _)| *len);
        for class in sizes.into_values() {
            classes.push(SizeClass::new(engine, class, options, place, growing)?);
        }
        let copies_through_pools = !engine.info().capabilities.contains(Capabilities::CPU_COPIES);
        let reserve = if copies_through_pools && place == Place::Host && longest > 1 {
            let class = ClassOptions { len: longest.min(MAX_RESERVE), count: 1, max: 1 };
            let options = options.clone().exportable(Access::empty());
            Some(SizeClass::new(engine, class, &options, place, None)?)
        } else {
            None
        };
        let number = report::next_number();
        let label = if options.label.is_empty() { number.to_string() } else { options.label.clone() };
        let watch = wait_watch::WaitWatch::new(options.wait_warning);
        let inner =
            PoolInner { classes, reserve, backend, number, label, holders: holders::Names::default(), watch };
        let inner = Arc::new(inner);
        report::add(&inner);
        Ok(Self { inner, holder: 0 })
    }

    /// Takes a buffer of `len` bytes, if a buffer of the smallest size that fits is free. Does not wait for a
    /// buffer. A buffer of 0 bytes is always free.
    ///
    /// # Errors
    ///
    /// `OutOfResources` if all buffers of the size are in use; `OutOfRange` if `len` is longer than every
    /// size; `Unsupported` in a process that was forked after the pool was made.
    #[inline]
    pub fn try_get(&self, len: usize) -> Result<BufferMut> {
        self.try_take(len).map(BufferMut)
    }

    #[inline]
    fn try_take(&self, len: usize) -> Result<Range> {
        match self.take_cached(len) {
            Some(range) => Ok(range),
            None => slow_path(len, |len| self.try_take_uncached(len)),
        }
    }

    /// Takes a buffer from the calling thread's cache. Returns `None` for everything that takes longer.
    #[inline]
    fn take_cached(&self, len: usize) -> Option<Range> {
        let class = self.inner.classes.iter().find(|class| len <= class.len)?;
        if len == 0 || class.process.is_child() || class.holders.notes(self.holder) {
            return None;
        }
        class.free.take_cached().map(|block| class.range(block, len))
    }

    fn try_take_uncached(&self, len: usize) -> Result<Range> {
        let class = self.class(len)?;
        if len == 0 {
            return Ok(class.no_bytes(self.inner.backend));
        }
        match class.free.take().or_else(|| class.grown()) {
            Some(block) => Ok(class.range_for(block, len, self.holder)),
            None => Err(class.refuse(self.inner.backend)),
        }
    }

    /// Returns the regions that contain the buffers: one for each size, and the regions that growth added.
    /// Returns no regions in a process that was forked after the pool was made.
    #[must_use]
    pub fn regions(&self) -> Vec<Region> {
        let classes = self.inner.classes.iter().filter(|class| !class.process.is_child());
        classes.flat_map(|class| lock(&class.slabs).clone()).collect()
    }

    /// Takes the first `len` bytes of the block for `copy_bytes`, or all if it has fewer. Returns `None`
    /// while another copy has the block.
    pub(crate) fn take_reserve(&self, len: usize) -> Option<BufferMut> {
        let class = self.inner.reserve.as_ref().filter(|class| !class.process.is_child())?;
        class.free.take().map(|block| BufferMut(class.range(block, len.min(class.len))))
    }

    /// Returns the length of the pool's longest buffers, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.inner.classes.last().map_or(0, |class| class.len)
    }

    /// Returns the engine that the buffers are registered with.
    pub(crate) fn engine(&self) -> Option<EngineId> {
        self.inner.classes.first().map(|class| class.engine)
    }

    /// Returns the smallest size class whose buffers have at least `len` bytes.
    #[inline]
    fn class(&self, len: usize) -> Result<&Arc<SizeClass>> {
        match self.inner.classes.iter().find(|class| len <= class.len) {
            Some(class) if !class.process.is_child() => Ok(class),
            _ => Err(self.refusal(len)),
        }
    }

    #[cold]
    fn refusal(&self, len: usize) -> Error {
        let backend = self.inner.backend;
        let longest = self.longest();
        if len > longest {
            fail(ErrorKind::OutOfRange, format!("a buffer of {len} bytes"), backend)
                .with_numbers(len as u64, longest as u64)
                .with_hint("give the pool a larger size, or allocate the buffer from the engine")
        } else {
            fail(
                ErrorKind::Unsupported,
                "the pool was made before this process was forked".to_owned(),
                backend,
            )
            .with_hint("open the engine and make the pool in the forked process")
        }
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        let classes = self.classes.iter().chain(&self.reserve);
        for class in classes.filter(|class| !class.process.is_child()) {
            for block in class.free.close() {
                // SAFETY: `close` returns each free block once, and a free block has only one handle.
                unsafe { class.handle(block).free() };
            }
        }
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.classes()).finish()
    }
}
