//! [`Region`]: registered memory, kept alive by everything that uses it.
#![expect(unsafe_code, reason = "asserts that a region's pointer may cross threads")]

use std::fmt;
use std::panic::RefUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{Access, EngineId, Error, ErrorKind, HostMemory, RawRegion, RegionKey, Segment};

/// Registered memory: allocated, the caller's own, or imported from a peer.
///
/// A region is a handle; its bytes are reached through views: [`BufferMut`](crate::BufferMut), [`Buffer`](crate::Buffer) and
/// [`Window`](crate::Window). Views, transfers in flight and exports keep it registered, so memory can be neither freed nor
/// deregistered while a device may touch it, whatever the order in which things are dropped.
#[derive(Clone)]
pub struct Region(pub(crate) Arc<RegionInner>);

/// What every view of a region points to. The answers of the raw region are kept here, those first that every copy asks for.
#[repr(C)]
pub(crate) struct RegionInner {
    /// The engine and the rights: [`EngineId::tag`].
    pub(crate) tag: u64,
    pub(crate) key: RegionKey,
    // Dropped first: deregistered before the memory is given back.
    raw: Box<dyn RawRegion>,
    memory: Option<HostMemory>,
    pub(crate) engine: EngineId,
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
    pub(crate) access: Access,
    pub(crate) cpu_visible: bool,
    pub(crate) backend: &'static str,
}

// SAFETY: `base` is an address; using it is up to the views, each of which says what makes that sound.
unsafe impl Send for RegionInner {}
// SAFETY: as above; all else is Sync.
unsafe impl Sync for RegionInner {}

/// Nothing in here changes while it is shared, and the owner of the caller's memory is not touched until it is given back: a panic leaves no half of it behind.
/// A window's bytes may be half written, with or without a panic; that is what a window is.
impl RefUnwindSafe for RegionInner {}

impl Region {
    pub(crate) fn new(raw: Box<dyn RawRegion>, memory: Option<HostMemory>, backend: &'static str) -> Self {
        Self(Arc::new(RegionInner {
            tag: raw.engine_id().tag(raw.access()),
            engine: raw.engine_id(),
            key: raw.key(),
            base: raw.base(),
            len: raw.len(),
            access: raw.access() & Access::all(),
            cpu_visible: raw.cpu_visible(),
            raw,
            memory,
            backend,
        }))
    }

    /// The length in bytes, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// What the device may do with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.0.access
    }

    /// The engine whose queues take it.
    #[must_use]
    pub fn engine_id(&self) -> EngineId {
        self.0.engine
    }

    /// The backend's short name.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.0.backend
    }

    /// Whether the CPU can reach the bytes.
    #[must_use]
    pub fn is_cpu_visible(&self) -> bool {
        self.0.cpu_visible
    }

    /// The engine's own region, for what only one backend can do. The address is that of the first byte in the device's
    /// terms; see [`RawRegion`] for who may use it.
    #[must_use]
    pub fn as_raw(&self) -> &dyn RawRegion {
        &*self.0.raw
    }

    /// Deregisters now, and gives back the caller's memory if it was that. `None` for memory that the engine allocated or imported,
    /// which is freed.
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
            .field("len", &self.0.len)
            .field("access", &self.0.access)
            .field("raw", &self.0.raw)
            .finish_non_exhaustive()
    }
}

/// A range of a region, as the views hold it: the part that they share.
///
/// Aligned, so that wherever it is moved to, alone or inside of a tuple, the compiler copies it in the same two halves: a load that
/// spans two recent stores costs a dozen cycles, and operands move several times per operation.
#[derive(Clone)]
#[repr(align(16))]
pub(crate) struct Range {
    pub(crate) region: Region,
    pub(crate) ptr: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: `ptr` points into the region, which the range keeps alive; the views decide who may use it.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

impl Range {
    /// The whole region.
    pub(crate) fn whole(region: Region) -> Self {
        let (ptr, len) = (region.0.base, region.0.len);
        Self { region, ptr, len }
    }

    /// Where the range begins in its region, in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.ptr.as_ptr().addr() - self.region.0.base.as_ptr().addr()
    }

    /// The range without its first `at` bytes. The caller checked that there are that many.
    fn after(&self, at: usize) -> NonNull<u8> {
        debug_assert!(at <= self.len);
        // Not `add`: the address may be a device's, which Rust knows nothing of.
        self.ptr.map_addr(|addr| addr.saturating_add(at))
    }

    /// Splits off and returns the first `at` bytes.
    pub(crate) fn split_to(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split_to out of bounds: {at} of {} bytes", self.len);
        let front = Self { region: self.region.clone(), ptr: self.ptr, len: at };
        self.ptr = self.after(at);
        self.len -= at;
        front
    }

    /// Splits off and returns the bytes from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split_off out of bounds: {at} of {} bytes", self.len);
        let back = Self { region: self.region.clone(), ptr: self.after(at), len: self.len - at };
        self.len = at;
        back
    }

    /// Whether `next` begins where this ends.
    pub(crate) fn touches(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self.region.0, &next.region.0) && self.after(self.len) == next.ptr
    }

    pub(crate) fn segment(&self) -> Segment {
        Segment { key: self.region.0.key, addr: self.ptr, len: self.len }
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
        Self { region: self.region.clone(), ptr: self.after(begin), len: end - begin }
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
