//! [`BufferPool`]: registered buffers that are reused.
#![expect(unsafe_code, reason = "converts handles of blocks to pointers and back")]

mod free_set;
mod get;
mod growth;
mod holders;
mod report;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait_watch;
mod windows;

use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::contract::HUGE_PAGE;
use crate::memory::empty_region;
use crate::memory::region::{Range, Region, RegionHandle, RegionInner};
use crate::memory::registration::{allocate, allocate_buffer};
use crate::{
    Access, BufferMut, DmaEngine, EngineId, Error, ErrorKind, MemoryRequest, Place, RawExport, RawRegion,
    RegionInfo, Result, Window, guarded,
};
use dma_process::ForkMark;
use free_set::{FreeSet, Released};
pub use get::PoolGet;
use get::Take;
use growth::Growth;
use holders::Holders;
pub use report::{PoolClass, PoolReport, pools};
pub use windows::WindowPool;

/// Maximum number of buffers of one size.
const MAX_COUNT: usize = 1 << 24;
/// Buffers start at multiples of a cache line, so that two buffers never share a cache line.
const LINE: usize = 64;

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
    /// increases its number of buffers.
    #[must_use]
    pub fn with_class(mut self, len: usize, count: usize) -> Self {
        self.classes.push(ClassOptions { len, count, max: 0 });
        self
    }

    /// Adds `count` buffers of up to `len` bytes, as [`with_class`](Self::with_class) does. When all of them
    /// are in use, the pool adds up to `count` more at a time, up to `max` in total. Only for
    /// [`BufferPool::growing`].
    #[must_use]
    pub fn with_growing_class(mut self, len: usize, count: usize, max: usize) -> Self {
        self.classes.push(ClassOptions { len, count, max });
        self
    }
}

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
/// - Taking and returning a buffer need no lock and no allocation, unless a task waits.
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
    backend: &'static str,
    /// The pool's number in this process.
    number: u64,
    label: String,
    holders: holders::Names,
    watch: wait_watch::WaitWatch,
}

/// The buffers of one size.
struct SizeClass {
    /// The length of each buffer, in bytes.
    len: usize,
    /// The maximum number of buffers.
    max: usize,
    /// The number of buffers that have been made.
    made: AtomicUsize,
    /// The initial number of buffers.
    began_with: usize,
    /// The engine that the buffers are registered with.
    engine: EngineId,
    place: Place,
    /// The process that made the pool.
    process: ForkMark,
    free: FreeSet,
    /// Pointers of the handles of all blocks that have not been freed, by number.
    blocks: Box<[AtomicPtr<RegionInner>]>,
    holders: Holders,
    /// The regions that the buffers are parts of.
    slabs: Mutex<Vec<Region>>,
    growth: Option<Growth>,
    /// Requests that found no free buffer.
    exhausted: AtomicU64,
}

/// The position of a block in its pool.
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
        // SAFETY: the handle kept the block alive, and the block is released only below.
        let Some(pool_slot) = &unsafe { ptr.as_ref() }.pool_slot else { unreachable!("a block of a pool") };
        if pool_slot.class.process.is_child() {
            // Leak the block. A lock of the pool may be held by a thread that does not exist in this forked
            // process.
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
            Released::Kept(waker) => {
                // The waker belongs to another task than the buffer.
                waker.map(|waker| guarded("a task's waker", || waker.wake()));
            }
            Released::Closed => {
                // SAFETY: the last handle was converted to this pointer, and only this line converts it back,
                // because the closed set did not accept the block.
                let last = unsafe { RegionHandle::from_ptr(ptr) };
                // SAFETY: the block is not in the free set, so `last` is its only handle.
                unsafe { last.free() };
            }
        }
    }

    /// Returns the handle of a block that the caller took from the free set.
    #[inline]
    fn handle(&self, block: u32) -> RegionHandle {
        let ptr = self.blocks[block as usize].load(Ordering::Relaxed);
        let ptr = NonNull::new(ptr).expect("a free block has a handle");
        // SAFETY: the handle was converted to this pointer when the block was made or returned. The free set
        // returns a block to only one caller, so the pointer is converted back only once.
        unsafe { RegionHandle::from_ptr(ptr) }
    }

    /// Returns the first `len` bytes of a block that was taken from the free set.
    #[inline]
    fn range(&self, block: u32, len: usize, holder: u32) -> Range {
        self.holders.set(block, holder);
        let mut range = Range::whole(Region(self.handle(block)));
        range.len = len;
        range
    }

    /// Makes a range of 0 bytes, which uses no block.
    #[cold]
    fn no_bytes(&self, backend: &'static str) -> Range {
        let (id, addr) = ((self.engine, backend), NonNull::<u128>::dangling().cast());
        Range::whole(empty_region::region(id, addr, Access::all(), self.place == Place::Host, None))
    }

    /// Counts a request that found no free block. If the class grows, returns a block for the request.
    #[cold]
    fn grown(self: &Arc<Self>) -> Option<u32> {
        self.exhausted.fetch_add(1, Ordering::Relaxed);
        self.growth.as_ref()?.grow(self)
    }

    fn refuse(&self, backend: &'static str) -> Error {
        fail(
            ErrorKind::OutOfResources,
            format!("all {} buffers of {} bytes are in use", self.made(), self.len),
            backend,
        )
        .with_hint("drop buffers, await `get`, or give the pool more buffers of this size")
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Returns the distance between the starts of two blocks, in bytes.
    fn stride<E: DmaEngine + ?Sized>(engine: &E, len: usize) -> Option<usize> {
        len.checked_next_multiple_of(engine.info().limits.preferred_alignment.max(LINE))
    }

    /// Allocates the memory of `count` blocks.
    fn slab<E: DmaEngine + ?Sized>(
        engine: &E,
        (len, count): (usize, usize),
        options: &PoolOptions,
        place: Place,
    ) -> Result<Window> {
        let info = engine.info();
        let too_much = || {
            fail(ErrorKind::InvalidArgument, format!("{count} buffers of {len} bytes"), info.backend)
                .with_hint("ask for fewer or shorter buffers, at most 2^24 of one size")
        };
        let stride = Self::stride(engine, len).ok_or_else(too_much)?;
        let total = stride.checked_mul(count).filter(|_| count <= MAX_COUNT).ok_or_else(too_much)?;
        let mut request = MemoryRequest::new(total)
            .with_huge_pages(total >= HUGE_PAGE)
            .exportable(options.export)
            .with_node(options.node)
            .with_place(place);
        request.align = request.align.max(info.limits.preferred_alignment.max(LINE));
        let slab = match place {
            Place::Host => allocate_buffer(engine, &request)?.share(),
            Place::Device => Window::new(allocate(engine, &request)?),
        };
        dma_process::check_headroom(count.saturating_mul(2 * size_of::<RegionInner>()))?;
        Ok(slab)
    }

    /// Makes the buffers of one size.
    fn new<E: DmaEngine + ?Sized>(
        engine: &E,
        class: ClassOptions,
        options: &PoolOptions,
        place: Place,
        growing: Option<&Arc<dyn DmaEngine>>,
    ) -> Result<Arc<Self>> {
        let ClassOptions { len, count, max } = class;
        let backend = engine.info().backend;
        if max > MAX_COUNT {
            return Err(fail(ErrorKind::InvalidArgument, format!("{max} buffers of {len} bytes"), backend)
                .with_hint("let the pool grow to at most 2^24 buffers of one size"));
        }
        let slab = Self::slab(engine, (len, count), options, place)?;
        let free = FreeSet::new(max);
        let class = Arc::new(Self {
            len,
            max,
            made: AtomicUsize::new(0),
            began_with: count,
            engine: slab.region().engine_id(),
            place,
            process: ForkMark::new(),
            blocks: (0..free.numbers()).map(|_| AtomicPtr::default()).collect(),
            holders: Holders::new(free.numbers()),
            slabs: Mutex::new(vec![slab.region().clone()]),
            growth: growing.filter(|_| max > count).map(|engine| Growth::new(engine, count, options)),
            free,
            exhausted: AtomicU64::new(0),
        });
        let stride = Self::stride(engine, len).expect("the memory was allocated");
        for index in 0..count {
            drop(class.block(&slab, index, index * stride, backend));
        }
        class.made.store(count, Ordering::Relaxed);
        Ok(class)
    }

    /// Makes the block with this index from the memory at `offset` of `slab`. Dropping the handle makes the
    /// block free.
    fn block(
        self: &Arc<Self>,
        slab: &Window,
        index: usize,
        offset: usize,
        backend: &'static str,
    ) -> RegionHandle {
        let number = self.free.number(index);
        let block = PoolBlock::new(slab.region().clone(), offset, self.len);
        let pool_slot = PoolSlot { class: Arc::clone(self), block: number };
        let region = Region::of_pool(Box::new(block), backend, pool_slot);
        let ptr = region.0.into_ptr();
        self.blocks[number as usize].store(ptr.as_ptr(), Ordering::Relaxed);
        // SAFETY: the handle was converted to this pointer just above, and only this line converts it back.
        unsafe { RegionHandle::from_ptr(ptr) }
    }
}

/// The raw region of a block: a part of the region of its size class.
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
// that the part lies inside the region. The block has the region's key, because descriptors must name the
// region that the engine knows. Dropping the block deregisters nothing.
unsafe impl RawRegion for PoolBlock {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        // SAFETY: the offset selects the same bytes in the larger region. The caller meets the requirements
        // for these bytes.
        unsafe { self.slab.as_raw().export(self.offset + offset, len, rights) }
    }

    unsafe fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        // SAFETY: the caller meets the requirements for the block's bytes, which the returned offset selects.
        let (fd, offset) = unsafe { self.slab.as_raw().dmabuf() }?;
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

impl BufferPool {
    /// Makes a pool, and allocates its memory from `engine`: one region for each size, in huge pages if the
    /// system has huge pages. May block while the system maps and pins the memory.
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
    /// how many buffers this handle has taken, and for how long the oldest of them has been in use.
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
        for class in sizes.into_values() {
            classes.push(SizeClass::new(engine, class, options, place, growing)?);
        }
        let number = report::next_number();
        let label = if options.label.is_empty() { number.to_string() } else { options.label.clone() };
        let watch = wait_watch::WaitWatch::new(options.wait_warning);
        let inner = PoolInner { classes, backend, number, label, holders: holders::Names::default(), watch };
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
        let class = self.class(len)?;
        if len == 0 {
            return Ok(class.no_bytes(self.inner.backend));
        }
        match class.free.take().or_else(|| class.grown()) {
            Some(block) => Ok(class.range(block, len, self.holder)),
            None => Err(class.refuse(self.inner.backend)),
        }
    }

    /// Takes a buffer of `len` bytes as [`try_get`](Self::try_get) does, but waits until a buffer is free.
    /// Tasks that wait for a size are served in FIFO order.
    ///
    /// This wait polls no queue. Operations complete, and their buffers return, only if another task or
    /// thread waits for the operations.
    ///
    /// # Errors
    ///
    /// The future fails with the errors of [`try_get`](Self::try_get), but never with `OutOfResources`.
    pub fn get(&self, len: usize) -> PoolGet {
        PoolGet(Take::new(self.clone(), len))
    }

    /// Takes a buffer of `len` bytes, and waits up to `timeout` for it, in the same wait list as the tasks of
    /// [`get`](Self::get). Blocks the calling thread, which polls no queue during that time.
    ///
    /// # Errors
    ///
    /// The errors of [`try_get`](Self::try_get), with `TimedOut` instead of `OutOfResources`.
    pub fn get_timeout(&self, len: usize, timeout: Duration) -> Result<BufferMut> {
        self.take_timeout(len, timeout).map(BufferMut)
    }

    fn take_timeout(&self, len: usize, timeout: Duration) -> Result<Range> {
        let class = self.class(len)?;
        if len == 0 {
            return Ok(class.no_bytes(self.inner.backend));
        }
        if let Some(block) = class.free.take() {
            return Ok(class.range(block, len, self.holder));
        }
        Take::new(self.clone(), len).wait(timeout).unwrap_or_else(|| {
            let message =
                format!("all {} buffers of {} bytes were in use for {timeout:?}", class.made(), class.len);
            Err(fail(ErrorKind::TimedOut, message, self.inner.backend).with_hint(
                "drop buffers, poll the queues that use buffers, or give the pool more buffers of this size",
            ))
        })
    }

    /// Returns the regions that contain the buffers: one for each size, and the regions that growth added.
    /// Returns no regions in a process that was forked after the pool was made.
    #[must_use]
    pub fn regions(&self) -> Vec<Region> {
        let classes = self.inner.classes.iter().filter(|class| !class.process.is_child());
        classes.flat_map(|class| class.slabs.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect()
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
        for class in self.classes.iter().filter(|class| !class.process.is_child()) {
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
