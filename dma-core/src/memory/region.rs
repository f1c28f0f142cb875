//! [`Region`]: registered memory that its users keep alive.
#![expect(
    unsafe_code,
    reason = "counts the handles of a region, so that the last handle returns a pool's memory to the pool"
)]

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::RefUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::location::Location;
use crate::{
    Access, DeviceAddr, DeviceMemory, EngineId, Error, ErrorKind, ExportDescriptor, HostMemory, RawRegion,
    RegionInfo,
};
use dma_process::ForkMark;

/// Memory that is registered with an engine: memory that the engine allocated, existing memory, or memory
/// imported from a peer.
///
/// A region is a handle. Programs access its bytes through views: [`BufferMut`](crate::BufferMut),
/// [`Buffer`](crate::Buffer) and [`Window`](crate::Window). Views, transfers in flight and exports keep the
/// region registered. Therefore memory is neither freed nor deregistered while a device may access it, in
/// whatever order a program drops its values.
#[derive(Clone)]
pub struct Region(pub(crate) RegionHandle);

/// The part of a region that all views share. This struct contains a copy of the raw region's constants,
/// because every copy operation reads them.
#[repr(C)]
pub(crate) struct RegionInner {
    /// The engine, the rights, and whether the CPU can reach the bytes: [`EngineId::tag`].
    pub(crate) tag: u64,
    pub(super) location: Location,
    pub(crate) info: RegionInfo,
    // This field is dropped first, so that the memory is deregistered before it is returned to its owner.
    raw: Box<dyn RawRegion>,
    memory: Option<Registered>,
    pub(crate) backend: &'static str,
    /// The process that made the region.
    process: ForkMark,
    /// The number of handles. The number is 1 while the region is free in a pool.
    users: AtomicUsize,
    /// The keeper that the region returns to, such as a pool.
    home: Option<Home>,
}

/// Reuses regions: the last handle of a region goes to the region's keeper.
pub(crate) trait Keeper: Any + Send + Sync {
    /// True if the memory is a part of the keeper's memory, so that a program cannot deregister it.
    const OWNS_MEMORY: bool;

    /// Takes back the region with this number. `last` is its last handle.
    ///
    /// The region keeps its keeper alive. `keeper` is the pointer of an `Arc`. It is not a reference, because
    /// another thread may free the keeper as soon as the region is free.
    ///
    /// # Safety
    ///
    /// `last` belongs to a region that was made with this keeper and number.
    unsafe fn take_back(keeper: NonNull<Self>, number: u32, last: RegionHandle);
}

/// A region's keeper, and the number that the keeper knows the region by.
pub(crate) struct Home {
    /// The pointer of `_keeper`, without its type.
    keeper: NonNull<()>,
    _keeper: Arc<dyn Any + Send + Sync>,
    number: u32,
    /// Calls [`Keeper::take_back`] of the keeper's type.
    take_back: unsafe fn(NonNull<()>, u32, RegionHandle),
    /// [`Keeper::OWNS_MEMORY`].
    owns_memory: bool,
}

// SAFETY: the pointer is that of a keeper, which is `Send` and `Sync`.
unsafe impl Send for Home {}
// SAFETY: the pointer is that of a keeper, which is `Send` and `Sync`.
unsafe impl Sync for Home {}

impl Home {
    pub(crate) fn new<K: Keeper>(keeper: Arc<K>, number: u32) -> Self {
        unsafe fn take_back<K: Keeper>(keeper: NonNull<()>, number: u32, last: RegionHandle) {
            // SAFETY: `new` stored this function together with a keeper of type `K`. The caller of this
            // function meets the requirements.
            unsafe { K::take_back(keeper.cast(), number, last) }
        }
        // SAFETY: the pointer of an `Arc` is not null.
        let at = unsafe { NonNull::new_unchecked(Arc::as_ptr(&keeper).cast_mut()) }.cast();
        Self { keeper: at, _keeper: keeper, number, take_back: take_back::<K>, owns_memory: K::OWNS_MEMORY }
    }
}

/// Existing memory that a region keeps alive.
#[derive(Debug)]
pub(crate) enum Registered {
    Host(HostMemory),
    Device(DeviceMemory),
}

/// A counted reference to a region, like `Arc`. When the last handle of a pool's region is dropped, the
/// region returns to the pool.
///
/// The pointer is never null, but its type is not [`NonNull`]. With `NonNull`, an `Option` of operands would
/// store its tag in the pointer, and moving operands would access this word separately from the next word
/// (see [`Range`]).
pub(crate) struct RegionHandle(*mut RegionInner);

// SAFETY: the handle is a shared reference to a `RegionInner`, which is `Send` and `Sync`, and the count of
// handles is atomic.
unsafe impl Send for RegionHandle {}
// SAFETY: the handle is a shared reference to a `RegionInner`, which is `Send` and `Sync`, and the count of
// handles is atomic.
unsafe impl Sync for RegionHandle {}

impl RegionHandle {
    fn new(inner: RegionInner) -> Self {
        Self(Box::into_raw(Box::new(inner)))
    }

    /// Converts the handle to a pointer without changing the count, for [`from_ptr`](Self::from_ptr).
    pub(crate) fn into_ptr(self) -> NonNull<RegionInner> {
        // SAFETY: the pointer came from a box or from another handle, so it is not null.
        unsafe { NonNull::new_unchecked(ManuallyDrop::new(self).0) }
    }

    /// Converts a pointer from [`into_ptr`](Self::into_ptr) back to the handle.
    ///
    /// # Safety
    ///
    /// [`into_ptr`](Self::into_ptr) returned the pointer, and the caller converts it back only once.
    #[inline]
    pub(crate) const unsafe fn from_ptr(inner: NonNull<RegionInner>) -> Self {
        Self(inner.as_ptr())
    }

    /// Returns true if this is the only handle. In that case no other thread can make a handle, and all uses
    /// of former handles happened before this call.
    #[inline]
    fn is_sole(&self) -> bool {
        self.users.load(Ordering::Acquire) == 1
    }

    /// Returns the number of handles.
    pub(crate) fn users(&self) -> usize {
        self.users.load(Ordering::Relaxed)
    }

    /// Returns the region's parts. This handle must be the region's only handle.
    ///
    /// # Safety
    ///
    /// [`is_sole`](Self::is_sole) has returned true.
    unsafe fn into_inner(self) -> RegionInner {
        // SAFETY: `new` made the pointer from a box, and no other handle exists.
        *unsafe { Box::from_raw(self.into_ptr().as_ptr()) }
    }

    /// Frees the region, even if it belongs to a pool. This handle must be the region's only handle.
    ///
    /// # Safety
    ///
    /// See [`into_inner`](Self::into_inner).
    pub(crate) unsafe fn free(self) {
        if self.process.is_child() {
            // The engine is the parent's: its locks may be held, and it must not deregister the memory.
            std::mem::forget(self);
            return;
        }
        // SAFETY: the caller ensures that `is_sole` has returned true.
        drop(unsafe { self.into_inner() });
    }
}

impl Deref for RegionHandle {
    type Target = RegionInner;

    #[inline]
    fn deref(&self) -> &RegionInner {
        // SAFETY: only the last handle frees the region, and `self` is a handle.
        unsafe { &*self.0 }
    }
}

impl Clone for RegionHandle {
    #[inline]
    fn clone(&self) -> Self {
        // Like `Arc`, abort before forgotten handles can make the count overflow.
        if self.users.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            std::process::abort();
        }
        Self(self.0)
    }
}

impl Drop for RegionHandle {
    // The handle is passed by value. If its address were passed, the compiler would keep every buffer that a
    // panic may drop in memory.
    #[inline(always)]
    fn drop(&mut self) {
        release(ManuallyDrop::new(Self(self.0)));
    }
}

/// Drops a handle. This function is not inlined, so all drops of views share it.
#[inline(never)]
fn release(handle: ManuallyDrop<RegionHandle>) {
    if !handle.is_sole() {
        if handle.users.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Use an acquire load, because ThreadSanitizer does not support fences.
        handle.users.load(Ordering::Acquire);
        handle.users.store(1, Ordering::Relaxed);
    }
    let last = RegionHandle(handle.0);
    match &handle.home {
        // SAFETY: the count has reached 0, so this is the last handle.
        None => unsafe { last.free() },
        Some(home) => {
            // SAFETY: `home` has the region's keeper and number, and the count has reached 0.
            unsafe { (home.take_back)(home.keeper, home.number, last) }
        }
    }
}

/// A shared region never changes, so a panic cannot leave it in an inconsistent state. The bytes of a window
/// may be inconsistent at any time.
impl RefUnwindSafe for RegionInner {}

impl Region {
    /// Makes the region of memory that was allocated or registered with these rights. An engine that reports
    /// more rights does not get them.
    pub(crate) fn new(
        raw: Box<dyn RawRegion>,
        memory: Option<Registered>,
        rights: Access,
        backend: &'static str,
    ) -> Self {
        Self::with_home(raw, memory, rights, backend, None)
    }

    /// Makes the region of memory that was allocated with all rights. Dropping its last handle returns it to
    /// `home`.
    pub(crate) fn of_store(raw: Box<dyn RawRegion>, backend: &'static str, home: Home) -> Self {
        Self::with_home(raw, None, Access::all(), backend, Some(home))
    }

    fn with_home(
        raw: Box<dyn RawRegion>,
        memory: Option<Registered>,
        rights: Access,
        backend: &'static str,
        home: Option<Home>,
    ) -> Self {
        let mut info = *raw.info();
        info.access &= rights & Access::all();
        if let Some(base) = info.cpu {
            // Expose the pointer's provenance, because views convert addresses back to pointers.
            info.addr = DeviceAddr::of(base);
        }
        Self::of(info, Location::HERE, raw, memory, backend, home)
    }

    /// Makes the region of memory that was imported with `descriptor`.
    pub(crate) fn of_import(
        raw: Box<dyn RawRegion>,
        descriptor: &ExportDescriptor,
        backend: &'static str,
    ) -> Self {
        let mut info = *raw.info();
        info.access &= Access::all();
        let location = Location::of_import(descriptor, info.addr);
        Self::of(info, location, raw, None, backend, None)
    }

    /// Makes the region of a pool's block. Dropping its last handle returns it to `home`.
    pub(crate) fn of_pool(raw: Box<dyn RawRegion>, backend: &'static str, home: Home) -> Self {
        Self::of(*raw.info(), Location::HERE, raw, None, backend, Some(home))
    }

    fn of(
        info: RegionInfo,
        location: Location,
        raw: Box<dyn RawRegion>,
        memory: Option<Registered>,
        backend: &'static str,
        home: Option<Home>,
    ) -> Self {
        let tag = info.engine.tag(info.access, info.cpu.is_some());
        let (process, users) = (ForkMark::new(), AtomicUsize::new(1));
        Self(RegionHandle::new(RegionInner {
            tag,
            location,
            info,
            raw,
            memory,
            backend,
            process,
            users,
            home,
        }))
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.info.len
    }

    /// Returns whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.info.len == 0
    }

    /// Returns the rights of the local device.
    #[must_use]
    pub fn access(&self) -> Access {
        self.0.info.access
    }

    /// Returns the id of the engine whose queues accept the region.
    #[must_use]
    pub fn engine_id(&self) -> EngineId {
        self.0.info.engine
    }

    /// Returns the backend's short name.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.0.backend
    }

    /// Returns whether the CPU can reach the bytes.
    #[must_use]
    pub fn is_cpu_visible(&self) -> bool {
        self.0.info.cpu.is_some()
    }

    /// Returns whether a view may borrow the bytes if it is their only view.
    pub(crate) fn can_be_buffer(&self) -> bool {
        self.is_cpu_visible()
            && match &self.0.memory {
                Some(Registered::Device(_)) => false,
                Some(Registered::Host(memory)) => !memory.is_shared(),
                None => true,
            }
    }

    /// Returns whether both are handles of one region.
    #[inline]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0.0 == other.0.0
    }

    /// Returns whether this is the only handle. If it is, no other thread can make another handle.
    pub(crate) fn is_sole(&self) -> bool {
        self.0.is_sole()
    }

    /// Returns whether the bytes are read-only for both the device and the CPU.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(&self.0.memory, Some(Registered::Host(memory)) if memory.is_read_only())
    }

    /// Checks that this process has made the region. In a forked child, a thread that does not exist there
    /// may hold the locks of the region's engine, and the device's registration is the parent's.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the region belongs to the parent of this forked process.
    pub(crate) fn check_process(&self) -> crate::Result<()> {
        if !self.0.process.is_child() {
            return Ok(());
        }
        let message = "the memory was registered by the parent of this forked process";
        Err(Error::new(ErrorKind::Unsupported, message)
            .with_hint("open the engine and register memory in the forked process"))
    }

    /// Deregisters the region and returns the owner of its memory, if the owner's type is `M` and this is the
    /// only handle.
    pub(crate) fn into_owner<M: std::any::Any>(self) -> Result<M, Self> {
        let is_owner = match &self.0.memory {
            Some(Registered::Host(memory)) => memory.is_owned_by::<M>(),
            Some(Registered::Device(memory)) => memory.is_owned_by::<M>(),
            None => false,
        };
        if !(is_owner && self.is_sole()) {
            return Err(self);
        }
        let owner = match self.take_apart().map_err(|(region, _)| region)? {
            Some(Registered::Host(memory)) => memory.into_owner().ok(),
            Some(Registered::Device(memory)) => memory.into_owner().ok(),
            None => None,
        };
        Ok(owner.expect("the region has memory whose owner's type is `M`"))
    }

    /// Returns the raw region, for features of a specific backend; see [`RawRegion`]. For a block of a
    /// [`BufferPool`](crate::BufferPool), the raw region describes the block.
    #[must_use]
    pub fn as_raw(&self) -> &dyn RawRegion {
        &*self.0.raw
    }

    /// Deregisters the region. Returns its host memory if the region was made by registering existing host
    /// memory. Returns `None` for memory that the engine allocated or imported, for [`DeviceMemory`] (whose
    /// owner is dropped: see [`Window::into_owner`](crate::Window::into_owner)), and for a pool's memory
    /// (which returns to the pool).
    ///
    /// # Errors
    ///
    /// `InUse`, with the region, while a view, a transfer in flight or an export still uses the region;
    /// `Unsupported`, with the region, in a process that was forked after the memory was registered.
    pub fn deregister(self) -> Result<Option<HostMemory>, (Self, Error)> {
        Ok(match self.take_apart()? {
            Some(Registered::Host(memory)) => Some(memory),
            Some(Registered::Device(_)) | None => None,
        })
    }

    /// Deregisters the region and returns the memory that was registered.
    fn take_apart(self) -> Result<Option<Registered>, (Self, Error)> {
        if let Err(error) = self.check_process() {
            let error = error.with_operation("deregister").with_backend(self.0.backend);
            return Err((self, error));
        }
        if self.is_sole() {
            if self.0.home.as_ref().is_some_and(|home| home.owns_memory) {
                return Ok(None);
            }
            // SAFETY: `is_sole` has just returned true. If the region has a keeper, the keeper does not get
            // it.
            let RegionInner { raw, memory, .. } = unsafe { self.0.into_inner() };
            drop(raw);
            return Ok(memory);
        }
        let users = self.0.users() - 1;
        let error =
            Error::new(ErrorKind::InUse, format!("{users} views, transfers or exports use the region"))
                .with_operation("deregister")
                .with_backend(self.0.backend)
                .with_hint("wait for the transfers and drop the views and exports first");
        Err((self, error))
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("backend", &self.0.backend)
            .field("len", &self.0.info.len)
            .field("access", &self.0.info.access)
            .field("raw", &self.0.raw)
            .finish_non_exhaustive()
    }
}
