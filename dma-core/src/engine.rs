//! [`DmaEngine`]: an opened device, and what it says of itself.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bitflags::bitflags;

use crate::{Error, ErrorKind, ExportDescriptor, RawQueue, RawRegion, Result};

/// An opened DMA device.
///
/// # Contract
///
/// This trait is the agreement between those who *implement* an engine and this crate; it holds only what an
/// implementer must provide, and nothing has a default. What users call is `DmaEngineExt`, which
/// every engine has and none can override.
///
/// - An engine is a handle: regions and queues made from it keep working after the handle is dropped.
/// - All of it may be called from several threads at once. Where a vendor's library cannot create objects in parallel,
///   the engine serializes.
/// - Every [`RawRegion`] and [`RawQueue`] reports the same [`EngineId`] exactly if the region's keys may be used on the queue.
/// - [`Capabilities`] and [`Limits`] are asked of the device, never assumed; what is not declared answers
///   [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
///
/// # Safety
///
/// The safe API makes descriptors on the word of [`info`](Self::info), so an implementer promises that its capabilities and limits are
/// those of every queue that [`open_queue_raw`](Self::open_queue_raw) returns, and that these take the regions of the same
/// [`EngineId`]. An engine that passes on to another one passes on what it says of itself, too.
#[expect(unsafe_code, reason = "the safe API hands descriptors to devices on an engine's word")]
pub unsafe trait DmaEngine: fmt::Debug + Send + Sync {
    /// What the engine is and can do. Constant for the life of the engine; costs nothing.
    fn info(&self) -> &EngineInfo;

    /// Allocates memory that the device can reach, zeroed, and registers it.
    ///
    /// May block for as long as the system takes to map and pin the memory.
    ///
    /// # Errors
    ///
    /// `Unsupported` without [`Capabilities::ALLOCATE`], or if `request.export` is not empty without [`Capabilities::EXPORT`];
    /// `InvalidArgument` as [`MemoryRequest::check`] says; `OutOfMemory`; `PermissionDenied` where
    /// pinning is refused (memlock).
    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>>;

    /// Registers memory that exists already.
    ///
    /// May block for as long as the system takes to pin the memory. Never copies.
    ///
    /// # Safety
    ///
    /// Until the returned region is dropped, `memory` must stay mapped and initialized, and nobody may access it other than
    /// through that region's views (see [`RawRegion`]).
    ///
    /// # Errors
    ///
    /// `Unsupported` without [`Capabilities::REGISTER`]; `InvalidArgument` for memory that the device cannot take (alignment:
    /// the hint names it); `InUse` if it is registered already and the device allows that only once; `PermissionDenied` where
    /// pinning is refused.
    unsafe fn register_raw(&self, memory: &HostMemory, request: &MemoryRequest)
    -> Result<Box<dyn RawRegion>>;

    /// Makes a peer's exported memory reachable.
    ///
    /// May block for a bounded time while the peer answers.
    ///
    /// # Errors
    ///
    /// `Unsupported` without [`Capabilities::IMPORT`] or for a descriptor of another backend; `Revoked` if the peer took the
    /// export back or is gone; `Malformed` if the backend's part of the descriptor is damaged; `PermissionDenied`.
    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>>;

    /// Opens a queue of at least one descriptor, and of as many as [`QueueOptions::depth_on`] says.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for a depth beyond [`Limits::max_queue_depth`]; `OutOfResources` when the device has no channel left;
    /// `DeviceLost`.
    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>>;
}

/// Forwards [`DmaEngine`] to the engine behind a pointer; a method added to the trait and forgotten here does not compile.
macro_rules! forward_engine {
    ($($pointer:ty),+) => {$(
        #[deny(clippy::missing_trait_methods)]
        #[expect(unsafe_code, reason = "forwards a trait whose implementers promise something")]
        // SAFETY: all of it is the inner engine's.
        unsafe impl<E: DmaEngine + ?Sized> DmaEngine for $pointer {
            fn info(&self) -> &EngineInfo {
                (**self).info()
            }
            fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
                (**self).allocate_raw(request)
            }
            unsafe fn register_raw(&self, memory: &HostMemory, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
                // SAFETY: the caller's promise is the one that the inner engine asks for.
                unsafe { (**self).register_raw(memory, request) }
            }
            fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
                (**self).import_raw(descriptor)
            }
            fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
                (**self).open_queue_raw(options)
            }
        }
    )+};
}
forward_engine!(&E, Box<E>, std::sync::Arc<E>);

/// Tells the regions and queues of one opened engine from those of all others in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EngineId(u64);

impl EngineId {
    /// An id that no engine in this process has had.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The id together with rights, in one number: what every copy compares.
    pub(crate) const fn tag(self, access: Access) -> u64 {
        // No process opens 2^60 engines. A bit that is no right would make it another engine's.
        self.0 << 4 | (access.bits() & Access::all().bits()) as u64
    }
}

/// What an engine is and can do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineInfo {
    /// The backend's short name, as in engine names: `cpu`, `sim`, `doca`, `ioat`.
    pub backend: &'static str,
    /// The device: a PCI address, or words for a software device.
    pub device: String,
    /// The version of the library or driver behind it.
    pub version: String,
    /// For a modelled device: the profile's name and source, and what of it is otherwise here. `None` if the engine moves bytes as fast as it can.
    pub model: Option<String>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// How much of it.
    pub limits: Limits,
}

impl EngineInfo {
    /// The description of an engine with no capability but to copy and with default [`Limits`].
    #[must_use]
    pub fn new(backend: &'static str, device: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            backend,
            device: device.into(),
            version: version.into(),
            model: None,
            capabilities: Capabilities::empty(),
            limits: Limits::default(),
        }
    }

    /// Sets the capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Says that the device is a model, and of what.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }
}

bitflags! {
    /// What an engine can do natively. Copying is not listed: every engine copies.
    ///
    /// What is missing among `FILL`, `FENCE` and lists (see [`Limits::max_segments`]) the safe API supplies from copies,
    /// waiting and cutting; the rest answers `Unsupported`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Capabilities: u32 {
        /// Fills memory with a pattern of 8 bytes.
        const FILL = 1 << 0;
        /// Keeps the fence of a descriptor by itself.
        const FENCE = 1 << 1;
        /// Allocates memory.
        const ALLOCATE = 1 << 2;
        /// Registers the caller's memory.
        const REGISTER = 1 << 3;
        /// Exports memory to a peer.
        const EXPORT = 1 << 4;
        /// Imports a peer's memory.
        const IMPORT = 1 << 5;
        /// A queue has a file descriptor to sleep on.
        const EVENT_FD = 1 << 6;
        /// The CPU can read and write the engine's allocated memory (a GPU's it may not).
        const CPU_VISIBLE = 1 << 7;
        /// Completions of one queue are reported in the order of submission. Nothing in the safe API relies on it, which takes completions in any order;
        /// the conformance suite holds an engine to the claim, and whoever uses [`RawQueue`] by themselves may build on it. It says
        /// nothing about when bytes move: that takes a fence.
        const IN_ORDER = 1 << 8;
    }
}

/// The numbers that bound an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest descriptor, in bytes; at least 64. Longer operations are cut up by the safe API.
    pub max_transfer: u64,
    /// The most segments on either side of one descriptor; at least 1, which means no scatter-gather.
    pub max_segments: usize,
    /// The most descriptors in flight on one queue; at least 1.
    pub max_queue_depth: usize,
    /// The depth that a queue gets if the caller does not choose.
    pub default_queue_depth: usize,
    /// How many queues can be open at once; `None` if only memory bounds it.
    pub max_queues: Option<usize>,
    /// The alignment in bytes, a power of two, that registered memory must have (address and length); 1 for none.
    pub register_alignment: usize,
    /// The alignment in bytes, a power of two, from which copies run at full speed; 1 if it makes no difference.
    pub preferred_alignment: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_transfer: u64::MAX,
            max_segments: 1,
            max_queue_depth: 65_536,
            default_queue_depth: 256,
            max_queues: None,
            register_alignment: 1,
            preferred_alignment: 1,
        }
    }
}

impl Limits {
    /// Sets [`max_transfer`](Self::max_transfer), in bytes.
    #[must_use]
    pub const fn with_max_transfer(mut self, bytes: u64) -> Self {
        self.max_transfer = bytes;
        self
    }

    /// Sets [`max_segments`](Self::max_segments).
    #[must_use]
    pub const fn with_max_segments(mut self, segments: usize) -> Self {
        self.max_segments = segments;
        self
    }

    /// Sets [`max_queue_depth`](Self::max_queue_depth) and [`default_queue_depth`](Self::default_queue_depth), in descriptors.
    #[must_use]
    pub const fn with_queue_depth(mut self, max: usize, default: usize) -> Self {
        self.max_queue_depth = max;
        self.default_queue_depth = default;
        self
    }

    /// Sets [`max_queues`](Self::max_queues).
    #[must_use]
    pub const fn with_max_queues(mut self, queues: Option<usize>) -> Self {
        self.max_queues = queues;
        self
    }

    /// Sets [`register_alignment`](Self::register_alignment) and [`preferred_alignment`](Self::preferred_alignment), in bytes.
    #[must_use]
    pub const fn with_alignment(mut self, register: usize, preferred: usize) -> Self {
        self.register_alignment = register;
        self.preferred_alignment = preferred;
        self
    }
}

bitflags! {
    /// What may be done to memory: by the local device for a region, by the peer for an export.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// It may be read: be the source of a copy.
        const READ = 1 << 0;
        /// It may be written: be the destination of a copy or a fill.
        const WRITE = 1 << 1;
    }
}

/// Up to this alignment, in bytes, a failure is hardly the alignment's doing.
const HUGE_PAGE: usize = 2 << 20;

/// What memory to allocate or how to register it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryRequest {
    /// Length in bytes, at least 1. Ignored when registering.
    pub len: usize,
    /// Alignment of the first byte, a power of two. Default 4096. Ignored when registering.
    pub align: usize,
    /// What the local device may do with it; empty only for memory that is exported. Default: read and write.
    pub access: Access,
    /// The most that may later be granted to a peer by an export; empty (the default) for memory that is not exported.
    pub export: Access,
    /// Whether to ask for huge pages; a wish, not a demand. Default no.
    pub huge_pages: bool,
}

impl MemoryRequest {
    /// `len` bytes, page-aligned, readable and writable by the device, not exportable.
    #[must_use]
    pub const fn new(len: usize) -> Self {
        Self { len, align: 4096, access: Access::all(), export: Access::empty(), huge_pages: false }
    }

    /// Sets the alignment of the first byte, in bytes; a power of two.
    #[must_use]
    pub const fn with_align(mut self, align: usize) -> Self {
        self.align = align;
        self
    }

    /// Sets what the local device may do with the memory.
    #[must_use]
    pub const fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Allows the memory to be exported with at most these rights.
    #[must_use]
    pub const fn exportable(mut self, rights: Access) -> Self {
        self.export = rights;
        self
    }

    /// Asks for huge pages.
    #[must_use]
    pub const fn with_huge_pages(mut self, huge: bool) -> Self {
        self.huge_pages = huge;
        self
    }

    /// Whether memory of this length and alignment can exist: what [`DmaEngine::allocate_raw`] asks first, since anybody may call it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a length of 0 or beyond `isize::MAX`, an alignment that is no power of two, or no rights, neither for the device nor for a peer.
    pub fn check(&self) -> Result<()> {
        let bad = |what: String| Error::new(ErrorKind::InvalidArgument, what);
        if self.len == 0 {
            return Err(bad("0 bytes".to_owned()).with_hint("ask for at least 1 byte"));
        }
        if isize::try_from(self.len).is_err() {
            return Err(bad(format!("{} bytes", self.len))
                .with_numbers(self.len as u64, isize::MAX as u64)
                .with_hint("no address space holds that: ask for less"));
        }
        if !self.align.is_power_of_two() {
            return Err(bad(format!("alignment {}", self.align)).with_hint("an alignment is a power of two"));
        }
        self.check_rights()
    }

    /// Whether anybody may use the memory. A peer's rights alone will do.
    pub(crate) fn check_rights(&self) -> Result<()> {
        if self.access.is_empty() && self.export.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "no rights: no device could read or write the memory",
            )
            .with_hint("ask for `Access::READ`, `Access::WRITE` or both"));
        }
        Ok(())
    }

    /// The error for memory that the system does not have: `OutOfMemory`, with the length and the alignment, and which of them to lower. A backend that knows better
    /// sets another hint.
    #[must_use]
    pub fn out_of_memory(&self) -> Error {
        let hint = if self.align > self.len.max(HUGE_PAGE) {
            "ask for a smaller alignment"
        } else {
            "ask for less, or free some memory"
        };
        Error::new(ErrorKind::OutOfMemory, format!("{} bytes aligned to {}", self.len, self.align))
            .with_hint(hint)
    }
}

/// Memory of the caller's that is to be registered, with whatever keeps it alive.
///
/// `HostMemory` owns `owner`; the region made from it keeps that until it is deregistered, and gives it back then.
pub struct HostMemory {
    ptr: NonNull<u8>,
    len: usize,
    fd: Option<(std::os::fd::OwnedFd, u64)>,
    owner: Owner,
}

/// A boxed value behind a raw pointer: moving a `Box` would assert that nobody else points into it, which `HostMemory` does.
struct Owner(NonNull<dyn Any + Send + Sync>);

impl Owner {
    fn new<M: Any + Send + Sync>(owner: M) -> Self {
        let owner: Box<dyn Any + Send + Sync> = Box::new(owner);
        Self(NonNull::from(Box::leak(owner)))
    }

    fn into_box(self) -> Box<dyn Any + Send + Sync> {
        let owner = std::mem::ManuallyDrop::new(self);
        #[expect(unsafe_code, reason = "takes back the box that `new` leaked")]
        // SAFETY: the pointer came from a box, and this value, which will not be dropped, was its only owner.
        unsafe {
            Box::from_raw(owner.0.as_ptr())
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "takes back the box that `new` leaked")]
        // SAFETY: the pointer came from a box, and this value was its only owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl HostMemory {
    /// The bytes of `owner`, a `Vec<u8>`, `Box<[u8]>`, `&'static mut [u8]` or anything else that has exclusive bytes.
    ///
    /// `as_mut` is called once; `owner` is not touched again until the memory is deregistered.
    #[must_use]
    pub fn from_owner<M: AsMut<[u8]> + Send + Sync + 'static>(owner: M) -> Self {
        // Boxed first, so that bytes inside the owner itself do not move afterwards.
        let owner = Owner::new(owner);
        #[expect(unsafe_code, reason = "reaches into the owner without moving it")]
        // SAFETY: the box holds an `M`, and nobody else has a reference to it.
        let bytes = unsafe { owner.0.cast::<M>().as_mut() }.as_mut();
        let len = bytes.len();
        let ptr = NonNull::from(bytes).cast();
        Self { ptr, len, fd: None, owner }
    }

    /// `len` bytes at `ptr`, kept alive by `owner` (which may be `()` for memory that lives for ever).
    ///
    /// # Safety
    ///
    /// The bytes must be mapped, initialized, valid for reads and writes, and accessed by nobody else while `owner` lives and this
    /// value or a region made from it exists.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller vouches for a raw pointer")]
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize, owner: impl Send + Sync + 'static) -> Self {
        Self { ptr, len, fd: None, owner: Owner::new(owner) }
    }

    /// Says that the bytes are a mapping of `fd` from byte `offset` on: a dma-buf or memfd, which some engines register by
    /// descriptor.
    #[must_use]
    pub fn with_fd(mut self, fd: std::os::fd::OwnedFd, offset: u64) -> Self {
        self.fd = Some((fd, offset));
        self
    }

    /// The first byte.
    #[must_use]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// The length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file descriptor and offset that the bytes map, if known.
    #[must_use]
    pub fn fd(&self) -> Option<(std::os::fd::BorrowedFd<'_>, u64)> {
        use std::os::fd::AsFd;
        self.fd.as_ref().map(|(fd, offset)| (fd.as_fd(), *offset))
    }

    /// Gives the owner back, if it is an `M`.
    ///
    /// # Errors
    ///
    /// This value, unchanged, if the owner is of another type.
    pub fn into_owner<M: Any>(self) -> Result<M, Self> {
        let Self { ptr, len, fd, owner } = self;
        match owner.into_box().downcast::<M>() {
            Ok(owner) => Ok(*owner),
            Err(owner) => Err(Self { ptr, len, fd, owner: Owner(NonNull::from(Box::leak(owner))) }),
        }
    }
}

#[expect(unsafe_code, reason = "a raw pointer with its owner")]
// SAFETY: the bytes belong to `owner`, which is Send, and are reached by nobody else.
unsafe impl Send for HostMemory {}
#[expect(unsafe_code, reason = "a raw pointer with its owner")]
// SAFETY: a shared reference gives out the pointer and the length only, and `owner` is Sync.
unsafe impl Sync for HostMemory {}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory")
            .field("ptr", &self.ptr)
            .field("len", &self.len)
            .field("fd", &self.fd)
            .finish()
    }
}

/// How a queue is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueOptions {
    /// Operations in flight at most; 0 (the default) for the engine's [`Limits::default_queue_depth`].
    pub depth: usize,
    /// Whether the data is expected to be in the CPU's caches. Default [`CacheHint::Auto`].
    pub hint: CacheHint,
    /// How long the device may have work on this queue, or lane, and complete none of it before it counts as hanging. Default 30 s.
    ///
    /// Then a blocking wait without a deadline of its own ends with `TimedOut`. A submission that finds the queue full is refused with `TimedOut` rather than
    /// `QueueFull`, if the queue was looked at all the time, which a [`SharedQueue`](crate::SharedQueue)'s threads do, and who polls a
    /// [`Queue`](crate::Queue). [`SharedQueue::stalled`](crate::SharedQueue::stalled) tells it, too.
    ///
    /// It ends no operation: one that is awaited, or whose transfer was dropped, goes on until the device completes it or the queue is closed. The time is
    /// that of a clock on the wall, on devices with a time of their own, too.
    pub stall_timeout: Duration,
    /// How long dropping the queue waits for what is in flight. Default 5 s. What is left is aborted then, for which the device has up to a second more.
    pub drop_timeout: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            depth: 0,
            hint: CacheHint::Auto,
            stall_timeout: Duration::from_secs(30),
            drop_timeout: Duration::from_secs(5),
        }
    }
}

impl QueueOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the most operations in flight; 0 for the engine's default.
    #[must_use]
    pub const fn with_depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// The depth that is meant on an engine with these limits: [`Limits::default_queue_depth`] for 0.
    #[must_use]
    pub const fn depth_on(&self, limits: &Limits) -> usize {
        if self.depth == 0 { limits.default_queue_depth } else { self.depth }
    }

    /// Sets the cache hint.
    #[must_use]
    pub const fn with_hint(mut self, hint: CacheHint) -> Self {
        self.hint = hint;
        self
    }

    /// Sets how long the device may complete nothing of what it has before it counts as hanging: see
    /// [`stall_timeout`](Self::stall_timeout).
    #[must_use]
    pub const fn with_stall_timeout(mut self, timeout: Duration) -> Self {
        self.stall_timeout = timeout;
        self
    }

    /// Sets how long dropping the queue waits for what is in flight.
    #[must_use]
    pub const fn with_drop_timeout(mut self, timeout: Duration) -> Self {
        self.drop_timeout = timeout;
        self
    }
}

/// Whether a queue's data is expected in the CPU's caches. Engines that bypass them ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheHint {
    /// Unknown: the engine finds out from its own timings.
    #[default]
    Auto,
    /// Read or written shortly before, or to be read soon: keep it in the caches.
    Hot,
    /// Used once: keep it out of the caches.
    Cold,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_memory_for_says_what_to_lower() {
        let error = MemoryRequest::new(10).with_align(1 << 40).out_of_memory();
        assert_eq!(
            error.to_string(),
            "out of memory: 10 bytes aligned to 1099511627776; ask for a smaller alignment"
        );
        let error = MemoryRequest::new(1 << 50).out_of_memory();
        assert_eq!(error.hint(), "ask for less, or free some memory");
    }

    #[test]
    fn host_memory_gives_its_owner_back() {
        let memory = HostMemory::from_owner(vec![7_u8; 3]);
        assert_eq!(memory.len(), 3);
        let memory = memory.into_owner::<String>().unwrap_err();
        assert_eq!(memory.into_owner::<Vec<u8>>().unwrap(), [7, 7, 7]);
    }

    #[test]
    fn host_memory_inside_its_owner_does_not_move() {
        let memory = HostMemory::from_owner([1_u8, 2, 3]);
        let before = memory.as_ptr();
        let moved = Box::new(memory);
        assert_eq!(moved.as_ptr(), before);
        assert_eq!(moved.into_owner::<[u8; 3]>().unwrap(), [1, 2, 3]);
    }
}
