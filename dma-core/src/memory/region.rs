//! [`Region`]: registered memory, kept alive by everything that uses it.
#![expect(unsafe_code, reason = "counts its own users, so that a pool's memory goes back to it")]

use std::fmt;
use std::ops::Deref;
use std::panic::RefUnwindSafe;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::pool::PoolSlot;
use crate::{
    Access, DeviceAddr, DeviceMemory, EngineId, Error, ErrorKind, HostMemory, RawRegion, RegionInfo, Segment,
};

/// Registered memory: allocated, the caller's own, or imported from a peer.
///
/// A region is a handle; its bytes are reached through views: [`BufferMut`](crate::BufferMut),
/// [`Buffer`](crate::Buffer) and [`Window`](crate::Window). Views, transfers in flight and exports keep it
/// registered, so that memory is neither freed nor deregistered while a device may access it, whatever the
/// order of drops.
#[derive(Clone)]
pub struct Region(pub(crate) RegionHandle);

/// The shared part of all views of a region, with a copy of the raw region's constants, which every copy
/// reads.
#[repr(C)]
pub(crate) struct RegionInner {
    /// The engine and the rights: [`EngineId::tag`].
    pub(crate) tag: u64,
    pub(crate) info: RegionInfo,
    // Dropped first: deregistered before the memory is given back.
    raw: Box<dyn RawRegion>,
    memory: Option<Registered>,
    pub(crate) backend: &'static str,
    /// The number of handles; 1 while the region lies idle in a pool.
    users: AtomicUsize,
    /// The pool that it goes back to.
    pub(crate) pool_slot: Option<PoolSlot>,
}

/// Memory of the caller's that a region keeps.
#[derive(Debug)]
pub(crate) enum Registered {
    Host(HostMemory),
    Device(DeviceMemory),
}

/// A counted reference to a region, as `Arc` has them. The last one gives a pool's region back to the pool.
///
/// Never null, but not a [`NonNull`]: an `Option` of operands would keep its tag there, and moving them would
/// touch this word apart from its neighbour (see [`Range`]).
pub(crate) struct RegionHandle(*mut RegionInner);

// SAFETY: a shared reference to what is `Send` and `Sync`, with an atomic count of its users.
unsafe impl Send for RegionHandle {}
// SAFETY: as above.
unsafe impl Sync for RegionHandle {}

impl RegionHandle {
    fn new(inner: RegionInner) -> Self {
        Self(Box::into_raw(Box::new(inner)))
    }

    /// Gives the handle up without counting, for [`from_ptr`](Self::from_ptr).
    pub(crate) fn into_ptr(self) -> NonNull<RegionInner> {
        // SAFETY: made from a box, or from another handle.
        unsafe { NonNull::new_unchecked(std::mem::ManuallyDrop::new(self).0) }
    }

    /// Takes a handle back.
    ///
    /// # Safety
    ///
    /// The pointer is that of a handle which was given up by [`into_ptr`](Self::into_ptr),
    /// and nobody else takes it back.
    #[inline]
    pub(crate) const unsafe fn from_ptr(inner: NonNull<RegionInner>) -> Self {
        Self(inner.as_ptr())
    }

    /// Returns true if this is the only handle, so that nobody else can make another one. Everything
    /// that other handles did happened before.
    #[inline]
    fn is_sole(&self) -> bool {
        self.users.load(Ordering::Acquire) == 1
    }

    /// Returns the number of handles.
    pub(crate) fn users(&self) -> usize {
        self.users.load(Ordering::Relaxed)
    }

    /// Takes the region apart, of which this is the only handle.
    ///
    /// # Safety
    ///
    /// [`is_sole`](Self::is_sole) has said so.
    unsafe fn into_inner(self) -> RegionInner {
        // SAFETY: `new` made the pointer of a box, and nobody else has it.
        *unsafe { Box::from_raw(self.into_ptr().as_ptr()) }
    }

    /// Frees a region of which this is the only handle, also if it belongs to a pool.
    ///
    /// # Safety
    ///
    /// As for [`into_inner`](Self::into_inner).
    pub(crate) unsafe fn free(self) {
        // SAFETY: as the caller promises.
        drop(unsafe { self.into_inner() });
    }
}

impl Deref for RegionHandle {
    type Target = RegionInner;

    #[inline]
    fn deref(&self) -> &RegionInner {
        // SAFETY: lives while there is a handle.
        unsafe { &*self.0 }
    }
}

impl Clone for RegionHandle {
    #[inline]
    fn clone(&self) -> Self {
        // As `Arc` does: forgotten handles must not make the count wrap.
        if self.users.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            std::process::abort();
        }
        Self(self.0)
    }
}

impl Drop for RegionHandle {
    #[inline]
    fn drop(&mut self) {
        if !self.is_sole() {
            if self.users.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // Not a fence, which ThreadSanitizer does not know.
            self.users.load(Ordering::Acquire);
            self.users.store(1, Ordering::Relaxed);
        }
        let last = Self(self.0);
        match &self.pool_slot {
            // SAFETY: the count says so.
            None => unsafe { last.free() },
            Some(_) => PoolSlot::give_back(last),
        }
    }
}

/// Nothing in it changes while it is shared, so a panic leaves no partial update. Windows may be half written
/// in any case.
impl RefUnwindSafe for RegionInner {}

impl Region {
    pub(crate) fn new(raw: Box<dyn RawRegion>, memory: Option<Registered>, backend: &'static str) -> Self {
        let mut info = *raw.info();
        info.access &= Access::all();
        if let Some(base) = info.cpu {
            // Views convert addresses back to pointers.
            info.addr = DeviceAddr::of(base);
        }
        Self::of(info, raw, memory, backend, None)
    }

    /// Makes the region of a block of a pool, which the last handle goes back to.
    pub(crate) fn of_pool(raw: Box<dyn RawRegion>, backend: &'static str, pool_slot: PoolSlot) -> Self {
        Self::of(*raw.info(), raw, None, backend, Some(pool_slot))
    }

    fn of(
        info: RegionInfo,
        raw: Box<dyn RawRegion>,
        memory: Option<Registered>,
        backend: &'static str,
        pool_slot: Option<PoolSlot>,
    ) -> Self {
        let tag = info.engine.tag(info.access);
        Self(RegionHandle::new(RegionInner {
            tag,
            info,
            raw,
            memory,
            backend,
            users: AtomicUsize::new(1),
            pool_slot,
        }))
    }

    /// The length in bytes, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.0.info.len
    }

    /// Returns the rights of the local device.
    #[must_use]
    pub fn access(&self) -> Access {
        self.0.info.access
    }

    /// Returns the engine whose queues take it.
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

    /// Returns whether references to the bytes are allowed while there is one view of them.
    pub(crate) fn can_be_buffer(&self) -> bool {
        self.is_cpu_visible() && !matches!(self.0.memory, Some(Registered::Device(_)))
    }

    /// Returns whether this is the only handle, so that nobody else can make another one.
    pub(crate) fn is_sole(&self) -> bool {
        self.0.is_sole()
    }

    /// Returns whether nobody may write the bytes, not even the CPU.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(&self.0.memory, Some(Registered::Host(memory)) if memory.is_read_only())
    }

    /// Deregisters, and gives back the caller's memory if its owner is an `M` and this is the only handle.
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
        Ok(owner.expect("a region with memory of an `M`"))
    }

    /// Returns the engine's own region, for features of one backend; see [`RawRegion`]. For a block of a
    /// [`BufferPool`](crate::BufferPool), it is one that stands for the block.
    #[must_use]
    pub fn as_raw(&self) -> &dyn RawRegion {
        &*self.0.raw
    }

    /// Deregisters, and gives back the caller's host memory. `None` for memory that the engine allocated or
    /// imported, for [`DeviceMemory`], whose owner is dropped (see
    /// [`Window::into_owner`](crate::Window::into_owner)), and for a pool's, which goes back to the pool.
    ///
    /// # Errors
    ///
    /// `InUse`, with the region, while a view, a transfer in flight or an export still names it.
    pub fn deregister(self) -> Result<Option<HostMemory>, (Self, Error)> {
        Ok(match self.take_apart()? {
            Some(Registered::Host(memory)) => Some(memory),
            Some(Registered::Device(_)) | None => None,
        })
    }

    /// Deregisters, and returns the caller's memory.
    fn take_apart(self) -> Result<Option<Registered>, (Self, Error)> {
        if self.is_sole() {
            if self.0.pool_slot.is_some() {
                return Ok(None);
            }
            // SAFETY: just asked, and no pool takes it back.
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

/// Defines the methods that views of a region share.
macro_rules! view_methods {
    ($view:ident: $($more:ident)*) => {
        impl $view {
            /// Returns the length in bytes.
            #[must_use]
            pub fn len(&self) -> usize {
                self.0.len
            }

            /// Returns whether there are no bytes.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.len == 0
            }

            /// Returns the region that it views.
            #[must_use]
            pub fn region(&self) -> &Region {
                &self.0.region
            }

            /// Returns the offset of its first byte in its region, in bytes.
            #[must_use]
            pub fn offset(&self) -> usize {
                self.0.offset()
            }
        }
        impl std::fmt::Debug for $view {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($view)).field(&self.0).finish()
            }
        }
        $(crate::memory::region::view_methods!(@$more $view);)*
    };
    (@slice $view:ident) => {
        impl $view {
            /// Returns the bytes that `range` names as a view of their own. No copy.
            ///
            /// # Panics
            ///
            /// If the range is not inside of this view.
            #[must_use]
            pub fn slice(&self, range: impl std::ops::RangeBounds<usize>) -> Self {
                Self(self.0.slice(range))
            }
        }
    };
    (@split $view:ident) => {
        impl $view {
            /// Splits off the first `at` bytes; `self` keeps the rest. No copy.
            ///
            /// # Panics
            ///
            /// If there are fewer than `at` bytes.
            #[must_use = "the bytes split off are freed with their region if dropped"]
            pub fn split_to(&mut self, at: usize) -> Self {
                Self(self.0.split_to(at))
            }

            /// Splits off the bytes from `at` on; `self` keeps the first `at`. No copy.
            ///
            /// # Panics
            ///
            /// If there are fewer than `at` bytes.
            #[must_use = "the bytes split off are freed with their region if dropped"]
            pub fn split_off(&mut self, at: usize) -> Self {
                Self(self.0.split_off(at))
            }
        }
    };
}
pub(crate) use view_methods;

/// A range of a region, shared by all views.
///
/// Aligned, so that the compiler always moves it in the same two halves: a load that spans two recent stores
/// costs a dozen cycles, and operands move several times per operation.
#[derive(Clone)]
#[repr(align(16))]
pub(crate) struct Range {
    pub(crate) region: Region,
    pub(crate) addr: DeviceAddr,
    pub(crate) len: usize,
}

impl Range {
    /// The whole region.
    pub(crate) fn whole(region: Region) -> Self {
        let (addr, len) = (region.0.info.addr, region.0.info.len);
        Self { region, addr, len }
    }

    /// Returns the offset in its region, in bytes.
    pub(crate) fn offset(&self) -> usize {
        (self.addr.0 - self.region.0.info.addr.0) as usize
    }

    /// Returns the address of byte `at`, which the caller checked.
    fn after(&self, at: usize) -> DeviceAddr {
        debug_assert!(at <= self.len);
        self.addr.offset(at)
    }

    /// Splits off and returns the first `at` bytes.
    pub(crate) fn split_to(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split_to out of bounds: {at} of {} bytes", self.len);
        let front = Self { region: self.region.clone(), addr: self.addr, len: at };
        self.addr = self.after(at);
        self.len -= at;
        front
    }

    /// Splits off and returns the bytes from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split_off out of bounds: {at} of {} bytes", self.len);
        let back = Self { region: self.region.clone(), addr: self.after(at), len: self.len - at };
        self.len = at;
        back
    }

    /// Returns whether `next` begins at the end of this range.
    pub(crate) fn touches(&self, next: &Self) -> bool {
        self.region.0.0 == next.region.0.0 && self.after(self.len) == next.addr
    }

    pub(crate) fn segment(&self) -> Segment {
        Segment { key: self.region.0.info.key, addr: self.addr, len: self.len }
    }

    /// The sub-range that `bounds` names.
    pub(crate) fn slice(&self, bounds: impl std::ops::RangeBounds<usize>) -> Self {
        use std::ops::Bound;
        let begin = match bounds.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n.checked_add(1).expect("slice start overflows"),
            Bound::Unbounded => 0,
        };
        let end = match bounds.end_bound() {
            Bound::Included(&n) => n.checked_add(1).expect("slice end overflows"),
            Bound::Excluded(&n) => n,
            Bound::Unbounded => self.len,
        };
        assert!(begin <= end && end <= self.len, "slice {begin}..{end} out of bounds of {} bytes", self.len);
        Self { region: self.region.clone(), addr: self.after(begin), len: end - begin }
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range")
            .field("backend", &self.region.0.backend)
            .field("offset", &self.offset())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
