//! [`BufferPool`]: registered buffers that are reused.
#![expect(unsafe_code, reason = "hands out blocks of one registration, and takes them back")]

mod fork;
mod free_set;
mod get;
#[cfg(all(test, not(loom)))]
mod tests;
mod windows;

use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use crate::contract::HUGE_PAGE;
use crate::memory::no_bytes;
use crate::memory::region::{Range, Region, RegionHandle, RegionInner};
use crate::{
    Access, BufferMut, DmaEngine, DmaEngineExt, EngineId, Error, ErrorKind, MemoryRequest, Place, RawExport,
    RawRegion, RegionInfo, Result,
};
use free_set::{FreeSet, Released};
pub use get::PoolGet;
use get::Take;
pub use windows::WindowPool;

/// Maximum number of buffers of one size.
const MAX_COUNT: usize = 1 << 24;
/// Buffers start at multiples of a cache line, so that two buffers never share one.
const LINE: usize = 64;
/// The sizes of a pool, and the rights of its memory.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub(crate) classes: Vec<(usize, usize)>,
    pub(crate) export: Access,
    pub(crate) node: Option<u32>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl PoolOptions {
    /// Makes options without sizes.
    #[must_use]
    pub const fn new() -> Self {
        Self { classes: Vec::new(), export: Access::empty(), node: None }
    }

    crate::contract::setters::setters! {
        /// Allows the buffers to be exported with at most these rights, by
        /// [`BufferMut::share`](crate::BufferMut::share) and [`Window::export`](crate::Window::export). A
        /// buffer returns to the pool after its export. Default: no rights.
        exportable(export: Access);
        /// Takes the memory from a NUMA node, such as the engine's
        /// [`EngineInfo::numa_node`](crate::EngineInfo::numa_node). By default, and with `None`, the system
        /// chooses.
        with_node(node: Option<u32>);
    }

    /// Adds `count` buffers of up to `len` bytes, both at least 1. Adding a size again increases its number
    /// of buffers.
    #[must_use]
    pub fn with_class(mut self, len: usize, count: usize) -> Self {
        self.classes.push((len, count));
        self
    }
}

/// Registered buffers that are reused. Allocation and registration, which take microseconds for each buffer,
/// happen once.
///
/// A pool has a fixed number of buffers of each size of its [`PoolOptions`]. They are ordinary [`BufferMut`]s
/// of the engine: they split, freeze and move into operations. A buffer returns to the pool when its last
/// view is dropped, on any thread, even if that is a [`bytes::Bytes`]. A request takes a buffer of the
/// smallest size that fits, and never one of a larger size.
///
/// - A reused buffer holds the bytes that its last user left; new buffers are zeroed.
/// - Taking and returning a buffer take no lock and allocate nothing, unless a task waits.
/// - Memory of an abandoned operation, or of an export that a peer does not release, never returns and stays
///   [in use](PoolClass::in_use).
/// - Clones share the buffers. When the last clone is dropped, free buffers are freed at once, and others
///   when they return. The memory of one size is deregistered when all buffers of that size have been freed.
/// - A forked process cannot take buffers from the pool, and leaks those that it has.
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
/// drop(bytes); // the last buffer goes back
/// assert_eq!(pool.classes().map(|class| class.in_use).sum::<usize>(), 0);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct BufferPool(Arc<PoolInner>);

struct PoolInner {
    /// Sorted by length.
    classes: Vec<Arc<SizeClass>>,
    backend: &'static str,
}

/// The buffers of one size.
struct SizeClass {
    /// The length of each buffer, in bytes.
    len: usize,
    count: usize,
    /// The engine that they are registered with.
    engine: EngineId,
    place: Place,
    /// The process that made the pool.
    process: fork::Generation,
    free: FreeSet,
    /// Pointers of the handles of all blocks that have not been freed, by number.
    blocks: Box<[AtomicPtr<RegionInner>]>,
    exhausted: AtomicU64,
}

/// A block's place in its pool.
pub(crate) struct PoolSlot {
    class: Arc<SizeClass>,
    block: u32,
}

impl PoolSlot {
    /// Returns a block to its pool. `last` is its last handle.
    #[inline]
    pub(crate) fn give_back(last: RegionHandle) {
        let ptr = last.into_ptr();
        // `FreeSet::give` gets no reference to the block or its class, because both may be freed as soon as
        // the block is free.
        // SAFETY: the last handle kept the block alive, and the block has not been
        // released yet.
        let Some(pool_slot) = &unsafe { ptr.as_ref() }.pool_slot else { unreachable!("a block of a pool") };
        if pool_slot.class.process.is_over() {
            // Leak the block, because a lock may be held by a thread that this forked process does not have.
            return;
        }
        let (word, bit) = pool_slot.class.free.place(pool_slot.block);
        if !free_set::give(word, bit) {
            SizeClass::give_with_lock(&Arc::clone(&pool_slot.class), pool_slot.block, ptr);
        }
    }
}

impl SizeClass {
    #[cold]
    fn give_with_lock(&self, block: u32, ptr: NonNull<RegionInner>) {
        match self.free.give_with_lock(block) {
            Released::Kept(waker) => waker.into_iter().for_each(std::task::Waker::wake),
            Released::Closed => {
                // SAFETY: `last` was converted to this pointer, and the closed set did not take the block, so
                // it is converted back once.
                let last = unsafe { RegionHandle::from_ptr(ptr) };
                // SAFETY: the handle of a block outside the free set that was just converted back is the only
                // one.
                unsafe { last.free() };
            }
        }
    }

    /// Returns the handle of a block that the caller took from the free set.
    #[inline]
    fn handle(&self, block: u32) -> RegionHandle {
        let ptr = self.blocks[block as usize].load(Ordering::Relaxed);
        let ptr = NonNull::new(ptr).expect("a block that is free has been made");
        // SAFETY: the handle was converted to this pointer when the block was made or returned, and the free
        // set gives each block to one caller.
        unsafe { RegionHandle::from_ptr(ptr) }
    }

    /// Returns the first `len` bytes of a block that was taken from the free set.
    #[inline]
    fn range(&self, block: u32, len: usize) -> Range {
        let mut range = Range::whole(Region(self.handle(block)));
        range.len = len;
        range
    }

    /// Makes a range of 0 bytes, which uses no block.
    #[cold]
    fn no_bytes(&self, backend: &'static str) -> Range {
        let (id, addr) = ((self.engine, backend), NonNull::<u128>::dangling().cast());
        Range::whole(no_bytes::region(id, addr, Access::all(), self.place == Place::Host, None))
    }

    fn exhausted(&self, backend: &'static str) -> Error {
        self.exhausted.fetch_add(1, Ordering::Relaxed);
        fail(
            ErrorKind::OutOfResources,
            format!("all {} buffers of {} bytes are in use", self.count, self.len),
            backend,
        )
        .with_hint("drop buffers, await `get`, or give the pool more of this size")
    }

    /// Allocates the memory of one size and makes its buffers.
    fn new<E: DmaEngine + ?Sized>(
        engine: &E,
        len: usize,
        count: usize,
        options: &PoolOptions,
        place: Place,
    ) -> Result<Arc<Self>> {
        let info = engine.info();
        let align = info.limits.preferred_alignment.max(LINE);
        let too_much = || {
            fail(ErrorKind::InvalidArgument, format!("{count} buffers of {len} bytes"), info.backend)
                .with_hint("ask for fewer or shorter buffers, at most 2^24 of one size")
        };
        let stride = len.checked_next_multiple_of(align).ok_or_else(too_much)?;
        let total = stride.checked_mul(count).filter(|_| count <= MAX_COUNT).ok_or_else(too_much)?;
        let mut request = MemoryRequest::new(total)
            .with_huge_pages(total >= HUGE_PAGE)
            .exportable(options.export)
            .with_node(options.node)
            .with_place(place);
        request.align = request.align.max(align);
        let slab = match place {
            Place::Host => engine.allocate_with(&request)?.share(),
            Place::Device => engine.allocate_window(&request)?,
        };
        crate::check_headroom(count.saturating_mul(2 * size_of::<RegionInner>()))?;

        let (free, numbers) = FreeSet::new(count);
        let class = Arc::new(Self {
            len,
            count,
            engine: slab.region().engine_id(),
            place,
            process: fork::Generation::current(),
            blocks: (0..free.numbers()).map(|_| AtomicPtr::default()).collect(),
            free,
            exhausted: AtomicU64::new(0),
        });
        for (i, number) in numbers.enumerate() {
            let block = PoolBlock::new(slab.region().clone(), i * stride, len);
            let pool_slot = PoolSlot { class: Arc::clone(&class), block: number };
            let region = Region::of_pool(Box::new(block), info.backend, pool_slot);
            let ptr = region.0.into_ptr();
            class.blocks[number as usize].store(ptr.as_ptr(), Ordering::Relaxed);
            // SAFETY: the handle was converted to this pointer just above, and is converted back once.
            PoolSlot::give_back(unsafe { RegionHandle::from_ptr(ptr) });
        }
        Ok(class)
    }
}

/// The raw region of a block: a part of the region of its size.
struct PoolBlock {
    slab: Region,
    offset: usize,
    info: RegionInfo,
}

impl PoolBlock {
    fn new(slab: Region, offset: usize, len: usize) -> Self {
        let mut info = slab.0.info;
        let segment = info.segment(offset, len);
        (info.addr, info.len) = (segment.addr, segment.len);
        info.cpu = info.cpu.and_then(|_| NonNull::new(segment.addr.as_ptr()));
        Self { slab, offset, info }
    }
}

// SAFETY: the block is a part of a region of the engine and keeps that region alive. `segment` has checked
// that the part lies inside it.
unsafe impl RawRegion for PoolBlock {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        // SAFETY: the offset selects the same bytes in the larger region, for which the caller meets the
        // requirements.
        unsafe { self.slab.as_raw().export(self.offset + offset, len, rights) }
    }

    fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        let (fd, offset) = self.slab.as_raw().dmabuf()?;
        Ok((fd, offset + self.offset as u64))
    }
}

impl fmt::Debug for PoolBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBlock")
            .field("offset", &self.offset)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

fn fail(kind: ErrorKind, message: String, backend: &'static str) -> Error {
    Error::new(kind, message).with_operation("pool").with_backend(backend)
}

/// The state of the buffers of one size, from [`BufferPool::classes`]. While other threads use the pool, the
/// numbers are not of exactly the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PoolClass {
    /// The length of each buffer, in bytes.
    pub len: usize,
    /// The number of buffers.
    pub count: usize,
    /// Buffers that are in use.
    pub in_use: usize,
    /// Tasks that wait for a buffer.
    pub waiting: usize,
    /// Calls of [`try_get`](BufferPool::try_get) that found no buffer, so far.
    pub exhausted: u64,
}

impl BufferPool {
    /// Allocates the pool's memory from `engine`: one region for each size, in huge pages if the system has
    /// them. May block while the system maps and pins it.
    ///
    /// # Errors
    ///
    /// See [`DmaEngineExt::allocate_with`]; also `InvalidArgument` for no sizes, a size of 0 bytes, 0 buffers
    /// of a size, or more than 2^24 of them.
    pub fn new<E: DmaEngine + ?Sized>(engine: &E, options: &PoolOptions) -> Result<Self> {
        Self::in_place(engine, options, Place::Host)
    }

    fn in_place<E: DmaEngine + ?Sized>(engine: &E, options: &PoolOptions, place: Place) -> Result<Self> {
        let backend = engine.info().backend;
        let bad =
            |message: String, hint| Err(fail(ErrorKind::InvalidArgument, message, backend).with_hint(hint));
        let mut sizes = std::collections::BTreeMap::<usize, usize>::new();
        for &(len, count) in &options.classes {
            if len == 0 || count == 0 {
                return bad(format!("{count} buffers of {len} bytes"), "ask for at least 1 buffer of 1 byte");
            }
            let sum = sizes.entry(len).or_default();
            *sum = sum.saturating_add(count);
        }
        if sizes.is_empty() {
            return bad("no buffers".to_owned(), "name a size by `PoolOptions::with_class`");
        }
        let mut pool = PoolInner { classes: Vec::new(), backend };
        for (len, count) in sizes {
            pool.classes.push(SizeClass::new(engine, len, count, options, place)?);
        }
        Ok(Self(Arc::new(pool)))
    }

    /// Takes a buffer of `len` bytes, if one of the smallest size that holds them is free. Never blocks. A
    /// buffer of 0 bytes is always free.
    ///
    /// # Errors
    ///
    /// `OutOfResources` if all buffers of the size are in use; `OutOfRange` if no size holds `len` bytes;
    /// `Unsupported` in a process that was forked after the pool was made.
    #[inline]
    pub fn try_get(&self, len: usize) -> Result<BufferMut> {
        self.try_take(len).map(BufferMut)
    }

    #[inline]
    fn try_take(&self, len: usize) -> Result<Range> {
        let class = self.class(len)?;
        if len == 0 {
            return Ok(class.no_bytes(self.0.backend));
        }
        match class.free.take() {
            Some(block) => Ok(class.range(block, len)),
            None => Err(class.exhausted(self.0.backend)),
        }
    }

    /// Takes a buffer of `len` bytes as [`try_get`](Self::try_get) does, and waits until one is free. Tasks
    /// that wait for a size are served in FIFO order.
    ///
    /// Waiting polls no queue. Operations complete, and their buffers return, only if another task or thread
    /// waits for them.
    ///
    /// # Errors
    ///
    /// The future fails as [`try_get`](Self::try_get), but never with `OutOfResources`.
    pub fn get(&self, len: usize) -> PoolGet {
        PoolGet(Take::new(self.clone(), len))
    }

    /// Waits up to `timeout` for a buffer of `len` bytes, in one wait list with the tasks of
    /// [`get`](Self::get). Blocks the calling thread, which polls no queue during that time.
    ///
    /// # Errors
    ///
    /// See [`try_get`](Self::try_get); `TimedOut` takes the place of `OutOfResources`.
    pub fn get_timeout(&self, len: usize, timeout: Duration) -> Result<BufferMut> {
        self.take_timeout(len, timeout).map(BufferMut)
    }

    fn take_timeout(&self, len: usize, timeout: Duration) -> Result<Range> {
        let class = self.class(len)?;
        if len == 0 {
            return Ok(class.no_bytes(self.0.backend));
        }
        if let Some(block) = class.free.take() {
            return Ok(class.range(block, len));
        }
        Take::new(self.clone(), len).wait(timeout).unwrap_or_else(|| {
            let message =
                format!("all {} buffers of {} bytes were in use for {timeout:?}", class.count, class.len);
            Err(fail(ErrorKind::TimedOut, message, self.0.backend).with_hint(
                "drop buffers, poll the queues that have some, or give the pool more of this size",
            ))
        })
    }

    /// Returns the length of the longest buffers, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.0.classes.last().map_or(0, |class| class.len)
    }

    /// Returns the engine that the buffers are registered with.
    pub(crate) fn engine(&self) -> Option<EngineId> {
        self.0.classes.first().map(|class| class.engine)
    }

    /// Returns the state of the buffers of each size, in the order of the sizes.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = PoolClass> {
        self.0.classes.iter().map(|class| PoolClass {
            len: class.len,
            count: class.count,
            in_use: class.count.saturating_sub(class.free.free()),
            waiting: if class.process.is_over() { 0 } else { class.free.waiting() },
            exhausted: class.exhausted.load(Ordering::Relaxed),
        })
    }

    /// Returns the smallest size that holds `len` bytes.
    #[inline]
    fn class(&self, len: usize) -> Result<&Arc<SizeClass>> {
        match self.0.classes.iter().find(|class| len <= class.len) {
            Some(class) if !class.process.is_over() => Ok(class),
            _ => Err(self.refusal(len)),
        }
    }

    #[cold]
    fn refusal(&self, len: usize) -> Error {
        let backend = self.0.backend;
        let longest = self.longest();
        if len > longest {
            fail(ErrorKind::OutOfRange, format!("a buffer of {len} bytes"), backend)
                .with_numbers(len as u64, longest as u64)
                .with_hint("give the pool a larger size, or allocate the buffer from the engine")
        } else {
            fail(ErrorKind::Unsupported, "the pool is of the process before the fork".to_owned(), backend)
                .with_hint("open the engine and make the pool after the fork")
        }
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        for class in self.classes.iter().filter(|class| !class.process.is_over()) {
            for block in class.free.close() {
                // SAFETY: `close` returns each free block once, and the handle of a free block is the only
                // one.
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
