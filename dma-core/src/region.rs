//! [`Region`]: registered memory, kept alive by everything that uses it.

use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::Arc;

use crate::{Access, DeviceAddr, EngineId, Error, ErrorKind, HostMemory, RawRegion, RegionInfo, Segment};

/// Registered memory: allocated, the caller's own, or imported from a peer.
///
/// A region is a handle; its bytes are reached through views: [`BufferMut`](crate::BufferMut),
/// [`Buffer`](crate::Buffer) and [`Window`](crate::Window). Views, transfers in flight and exports keep it
/// registered, so that memory is neither freed nor deregistered while a device may access it, whatever the
/// order of drops.
#[derive(Clone)]
pub struct Region(pub(crate) Arc<RegionInner>);

/// The shared part of all views of a region, with a copy of the raw region's constants, which every copy
/// reads.
#[repr(C)]
pub(crate) struct RegionInner {
    /// The engine and the rights: [`EngineId::tag`].
    pub(crate) tag: u64,
    pub(crate) info: RegionInfo,
    // Dropped first: deregistered before the memory is given back.
    raw: Box<dyn RawRegion>,
    memory: Option<HostMemory>,
    pub(crate) backend: &'static str,
}

/// Nothing in it changes while it is shared, so a panic leaves no partial update. Windows may be half written
/// in any case.
impl RefUnwindSafe for RegionInner {}

impl Region {
    pub(crate) fn new(raw: Box<dyn RawRegion>, memory: Option<HostMemory>, backend: &'static str) -> Self {
        let mut info = *raw.info();
        info.access &= Access::all();
        if let Some(base) = info.cpu {
            // Views convert addresses back to pointers.
            info.addr = DeviceAddr::of(base);
        }
        Self(Arc::new(RegionInner { tag: info.engine.tag(info.access), info, raw, memory, backend }))
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

    /// Returns whether this is the only handle, so that nobody else can make another one.
    pub(crate) fn is_sole(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && {
            // Pairs with the release of the handles dropped elsewhere: their owners' accesses happened
            // before.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            true
        }
    }

    /// Returns the engine's own region, for features of one backend; see [`RawRegion`].
    #[must_use]
    pub fn as_raw(&self) -> &dyn RawRegion {
        &*self.0.raw
    }

    /// Deregisters, and gives back the caller's memory. `None` for memory that the engine allocated or
    /// imported.
    ///
    /// # Errors
    ///
    /// `InUse`, with the region, while a view, a transfer in flight or an export still names it.
    pub fn deregister(self) -> Result<Option<HostMemory>, (Self, Error)> {
        match Arc::try_unwrap(self.0) {
            Ok(RegionInner { raw, memory, .. }) => {
                drop(raw);
                Ok(memory)
            }
            Err(inner) => {
                let users = Arc::strong_count(&inner) - 1;
                let error = Error::new(
                    ErrorKind::InUse,
                    format!("{users} views, transfers or exports use the region"),
                )
                .with_operation("deregister")
                .with_backend(inner.backend)
                .with_hint("wait for the transfers and drop the views and exports first");
                Err((Self(inner), error))
            }
        }
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
        $(crate::region::view_methods!(@$more $view);)*
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
        Arc::ptr_eq(&self.region.0, &next.region.0) && self.after(self.len) == next.addr
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
