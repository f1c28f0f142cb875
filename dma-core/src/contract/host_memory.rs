//! Memory that engines allocate and register.

use std::any::{Any, TypeId};
use std::fmt;
use std::ptr::NonNull;

use crate::{Access, Error, ErrorKind, Place, Result};

/// Alignment for huge pages, in bytes: the size of a huge page on x86-64, and on aarch64 with 4 KiB pages.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Before memory of at least this length is allocated, the available memory is checked.
const CHECK_MIN: usize = 1 << 20;

/// A request for memory to allocate or register.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryRequest {
    /// Length in bytes. The safe API makes memory of 0 bytes without the engine, so engines get a length of
    /// at least 1. Ignored when registering.
    pub len: usize,
    /// Alignment of the first byte, a power of two. Default 4096. Ignored when registering.
    pub align: usize,
    /// Rights of the local device. May be empty only for memory that is exported. Default: read and write.
    pub access: Access,
    /// The maximum rights that an export may grant. The default is empty: the memory cannot be exported.
    pub export: Access,
    /// Prefers huge pages. Default false. Memory of 2 MiB or more that [idle memory](crate::IdleMemory)
    /// could serve is always allocated so.
    pub huge_pages: bool,
    /// Clears memory that was in use before. Default true. Memory from
    /// [`allocate_raw`](crate::DmaEngine::allocate_raw) is always zeroed, so engines ignore this.
    pub zeroed: bool,
    /// The number of the NUMA node to allocate on. `None`, the default, lets the system choose. Ignored when
    /// registering. Engines ignore it too, because [`DmaEngineExt`](crate::DmaEngineExt) places the memory.
    pub node: Option<u32>,
    /// The place to allocate in. Default: the host. Ignored when registering.
    pub place: Place,
}

impl MemoryRequest {
    /// Requests `len` bytes that are page-aligned, that the device can read and write, and that cannot be
    /// exported.
    #[must_use]
    pub const fn new(len: usize) -> Self {
        let (access, export) = (Access::all(), Access::empty());
        let (huge_pages, zeroed) = (false, true);
        Self { len, align: 4096, access, export, huge_pages, zeroed, node: None, place: Place::Host }
    }

    crate::contract::setters::setters! {
        /// Sets the alignment of the first byte, in bytes; a power of two.
        with_align(align: usize);
        /// Sets the rights of the local device.
        with_access(access: Access);
        /// Allows the memory to be exported with at most these rights.
        exportable(export: Access);
        /// Requests huge pages.
        with_huge_pages(huge_pages: bool);
        /// Sets whether memory is cleared that was in use before. With `false`, the bytes are 0 or those of
        /// an earlier buffer of the engine.
        with_zeroed(zeroed: bool);
        /// Allocates the memory on a NUMA node, such as the engine's
        /// [`EngineInfo::numa_node`](crate::EngineInfo::numa_node).
        with_node(node: Option<u32>);
        /// Sets the place to allocate in. For [`Place::Device`], see
        /// [`allocate_window`](crate::DmaEngineExt::allocate_window).
        with_place(place: Place);
    }

    /// Returns whether memory of the length `class_len` with the default properties can serve this request.
    pub(crate) fn is_usual(&self, class_len: usize) -> bool {
        self.access == Access::all()
            && self.export.is_empty()
            && self.node.is_none()
            && self.place == Place::Host
            && self.align <= Self::new(0).align
            && self.align.is_power_of_two()
            && !(self.huge_pages && class_len < HUGE_PAGE)
    }

    /// Checks that the request is valid. [`DmaEngine::allocate_raw`](crate::DmaEngine::allocate_raw) begins
    /// with this check.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a length of 0 or beyond `isize::MAX`, an alignment that is not a power of two,
    /// memory without rights for the device or a peer, or a NUMA node for device memory.
    pub fn validate(&self) -> Result<()> {
        let bad = |what: String| Error::new(ErrorKind::InvalidArgument, what);
        if self.len == 0 {
            return Err(bad("0 bytes".to_owned()).with_hint("ask for at least 1 byte"));
        }
        if isize::try_from(self.len).is_err() {
            return Err(bad(format!("{} bytes", self.len))
                .with_numbers(self.len as u64, isize::MAX as u64)
                .with_hint("this exceeds the address space: ask for less"));
        }
        if !self.align.is_power_of_two() {
            return Err(
                bad(format!("alignment {}", self.align)).with_hint("the alignment must be a power of two")
            );
        }
        if let (Place::Device, Some(node)) = (self.place, self.node) {
            return Err(bad(format!("device memory on NUMA node {node}"))
                .with_hint("leave the node out: only host memory is on NUMA nodes"));
        }
        self.check_rights()
    }

    /// Checks the request as [`validate`](Self::validate) does, and refuses any place other than the host.
    ///
    /// # Errors
    ///
    /// The errors of [`validate`](Self::validate), and `Unsupported` for device memory.
    pub fn validate_for_host(&self) -> Result<()> {
        self.validate()?;
        if self.place != Place::Host {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} memory: the engine allocates only host memory", self.place),
            )
            .with_hint("ask for `Place::Host`"));
        }
        Ok(())
    }

    /// Checks that the device or a peer may use the memory.
    pub(crate) fn check_rights(&self) -> Result<()> {
        if self.access.is_empty() && self.export.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "no rights: neither the device nor a peer could access the memory",
            )
            .with_hint("ask for `Access::READ`, `Access::WRITE` or both"));
        }
        Ok(())
    }

    /// Checks that the memory is available. Short requests always pass.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` with the available bytes.
    pub(crate) fn check_available(&self) -> Result<()> {
        let len = self.len as u64;
        let checked = if self.len >= CHECK_MIN { dma_process::check_available(len) } else { Ok(()) };
        checked.map_err(|available| self.out_of_memory().with_numbers(len, available))
    }

    /// Makes an `OutOfMemory` error with the length and the alignment, and a hint to reduce one of them. A
    /// backend may replace the hint.
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

/// Existing memory to register, with its owner.
///
/// The region made from this value keeps the owner alive. Deregistering the region returns the owner.
pub struct HostMemory {
    ptr: NonNull<u8>,
    len: usize,
    /// Neither the CPU nor a device may write the bytes. Other code may read them at the same time.
    read_only: bool,
    /// Other code may read and write the bytes at any time.
    shared: bool,
    fd: Option<(std::os::fd::OwnedFd, u64)>,
    owner: Owner,
}

/// A raw pointer to a boxed value, and the value's type. A `Box` cannot be stored here, because moving a
/// `Box` asserts that no other pointer into the value exists, and `HostMemory` has such a pointer.
pub(crate) struct Owner(NonNull<dyn Any + Send + Sync>, TypeId);

#[expect(unsafe_code, reason = "a raw pointer to an owned value")]
// SAFETY: the value is Send, and this pointer is the value's only owner.
unsafe impl Send for Owner {}
#[expect(unsafe_code, reason = "a raw pointer to an owned value")]
// SAFETY: the value is Sync, and a shared reference to this type returns only the value's type.
unsafe impl Sync for Owner {}

impl Owner {
    pub(crate) fn new<M: Any + Send + Sync>(owner: M) -> Self {
        let owner: Box<dyn Any + Send + Sync> = Box::new(owner);
        Self(NonNull::from(Box::leak(owner)), TypeId::of::<M>())
    }

    /// Returns whether the value's type is `M`.
    pub(crate) fn is<M: Any>(&self) -> bool {
        self.1 == TypeId::of::<M>()
    }

    pub(crate) fn into_box(self) -> Box<dyn Any + Send + Sync> {
        let owner = std::mem::ManuallyDrop::new(self);
        #[expect(unsafe_code, reason = "takes back the box that `new` leaked")]
        // SAFETY: the pointer came from a box, and this value was its only owner. This value is not dropped,
        // so the box is freed only once.
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

/// Memory from the global allocator.
struct Aligned {
    start: NonNull<u8>,
    layout: std::alloc::Layout,
}

impl Aligned {
    /// Returns `None` if there is not enough memory. The layout must not be empty.
    fn new(layout: std::alloc::Layout) -> Option<Self> {
        #[expect(unsafe_code, reason = "allocates with an alignment that is known at run time")]
        // SAFETY: the caller passes a layout that is not empty.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        NonNull::new(start).map(|start| Self { start, layout })
    }
}

#[expect(unsafe_code, reason = "memory that this value owns")]
// SAFETY: this value owns the memory, and any thread may free memory from the global allocator.
unsafe impl Send for Aligned {}

#[expect(unsafe_code, reason = "memory that this value owns")]
// SAFETY: a shared reference gives no access to the bytes. Only `&mut` does.
unsafe impl Sync for Aligned {}

impl AsMut<[u8]> for Aligned {
    fn as_mut(&mut self) -> &mut [u8] {
        #[expect(unsafe_code, reason = "makes a slice of allocated memory")]
        // SAFETY: the memory was allocated zeroed with this length, and `&mut self` borrows it exclusively.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size())
        }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "frees allocated memory")]
        // SAFETY: `alloc_zeroed` returned the memory for this layout, and only this drop frees it.
        unsafe {
            std::alloc::dealloc(self.start.as_ptr(), self.layout);
        }
    }
}

impl HostMemory {
    /// Makes memory from the bytes of `owner`: a `Vec<u8>`, `Box<[u8]>`, `&'static mut [u8]` or another type
    /// that owns its bytes exclusively.
    ///
    /// This function calls `as_mut` once, and does not use `owner` again until the memory is deregistered.
    #[must_use]
    pub fn from_owner<M: AsMut<[u8]> + Send + Sync + 'static>(owner: M) -> Self {
        // Box the owner first, because bytes inside the owner itself must not move afterwards.
        let owner = Owner::new(owner);
        #[expect(unsafe_code, reason = "reaches into the owner without moving it")]
        // SAFETY: the box was made from an `M` just above, so this is the only reference to it.
        let bytes = unsafe { owner.0.cast::<M>().as_mut() }.as_mut();
        let len = bytes.len();
        let ptr = NonNull::from(bytes).cast();
        Self { ptr, len, read_only: false, shared: false, fd: None, owner }
    }

    /// Makes read-only memory from the bytes of `owner`: [`bytes::Bytes`], `Arc<[u8]>`, a mapping without the
    /// right to write, or another type with shared bytes. Clones of `owner` may be read at the same time.
    ///
    /// [`DmaEngineExt::register_read_only`](crate::DmaEngineExt::register_read_only) registers the memory.
    /// This function calls `as_ref` once, and does not use `owner` again until the memory is deregistered.
    #[must_use]
    pub fn from_read_only<M: AsRef<[u8]> + Send + Sync + 'static>(owner: M) -> Self {
        let owner = Owner::new(owner);
        #[expect(unsafe_code, reason = "reaches into the owner without moving it")]
        // SAFETY: the box was made from an `M` just above, so no unique reference to it exists.
        let bytes = unsafe { owner.0.cast::<M>().as_ref() }.as_ref();
        let len = bytes.len();
        let ptr = NonNull::from(bytes).cast();
        Self { ptr, len, read_only: true, shared: false, fd: None, owner }
    }

    /// Allocates zeroed memory that an engine with these limits can register. The length is `len`, at least
    /// 1, rounded up to a multiple of [`Limits::register_alignment`](crate::Limits::register_alignment). The
    /// address has the same alignment. The allocation may write every page, and so make it resident.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the alignment is not a power of two or `len` is too long; `OutOfMemory`.
    pub fn aligned(len: usize, limits: &crate::Limits) -> Result<Self> {
        let alignment = limits.register_alignment.max(1);
        let layout = len
            .max(1)
            .checked_next_multiple_of(alignment)
            .and_then(|len| std::alloc::Layout::from_size_align(len, alignment).ok())
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("cannot allocate {len} bytes with an alignment of {alignment} bytes"),
                )
                .with_hint("ask for less; the alignment must be a power of two")
            })?;
        let owner = Aligned::new(layout).ok_or_else(|| MemoryRequest::new(len).out_of_memory())?;
        Ok(Self::from_owner(owner))
    }

    /// Allocates zeroed memory with the length and alignment of `request`, for an engine's
    /// [`allocate_raw`](crate::DmaEngine::allocate_raw). Ignores the other fields. The allocation may write
    /// every page, and so make it resident.
    ///
    /// # Errors
    ///
    /// The errors of [`MemoryRequest::validate_for_host`], and `OutOfMemory`.
    pub fn allocate_requested(request: &MemoryRequest) -> Result<Self> {
        request.validate_for_host()?;
        request.check_available()?;
        let layout = std::alloc::Layout::from_size_align(request.len, request.align).ok();
        let owner = layout.and_then(Aligned::new).ok_or_else(|| request.out_of_memory())?;
        Ok(Self::from_owner(owner))
    }

    /// Makes memory from the `len` bytes at `ptr`. `owner` keeps them alive; use `()` for memory that is
    /// never freed.
    ///
    /// # Safety
    ///
    /// The bytes must be mapped, initialized, valid for reads and writes, and not accessed by anything else
    /// while `owner` lives and this value or a region made from it exists.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller guarantees that the pointer is valid")]
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize, owner: impl Send + Sync + 'static) -> Self {
        Self { ptr, len, read_only: false, shared: false, fd: None, owner: Owner::new(owner) }
    }

    /// Makes memory from the `len` bytes at `ptr`, which other code, such as C code, may read and write at
    /// any time. `owner` keeps them alive; use `()` for memory that is never freed.
    ///
    /// [`DmaEngineExt::register_window`](crate::DmaEngineExt::register_window) registers the memory. Such
    /// memory can only become a [`Window`](crate::Window), whose bytes are never borrowed.
    ///
    /// # Safety
    ///
    /// While `owner` lives and this value or a region made from it exists, the bytes must be mapped,
    /// initialized and valid for reads. The bytes must also be valid for writes, unless the first
    /// registration is read-only; the memory then stays [read-only](Self::is_read_only). No reference to them
    /// may exist in Rust code during that time.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller guarantees that the pointer is valid")]
    pub unsafe fn from_shared(ptr: NonNull<u8>, len: usize, owner: impl Send + Sync + 'static) -> Self {
        Self { ptr, len, read_only: false, shared: true, fd: None, owner: Owner::new(owner) }
    }

    /// Marks the bytes as read-only.
    pub(crate) const fn set_read_only(&mut self) {
        self.read_only = true;
    }

    /// Declares that the bytes are a mapping of `fd` that begins at byte `offset`. Some engines register a
    /// dma-buf or memfd by this file descriptor. The devices of such engines access the file, not the bytes
    /// by address.
    ///
    /// # Safety
    ///
    /// The bytes are a shared mapping (`MAP_SHARED`) of `fd` that begins at byte `offset`. The mapping exists
    /// as long as this value or a region made from it exists. The file is not made shorter. No other mapping
    /// or call accesses this part of the file, because a write to the file is a write to these bytes. This
    /// value lends the descriptor only to callers of [`fd`](Self::fd), which make the same promise.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller guarantees that a device may access the bytes")]
    pub unsafe fn with_fd(mut self, fd: std::os::fd::OwnedFd, offset: u64) -> Self {
        self.fd = Some((fd, offset));
        self
    }

    /// Returns a pointer to the first byte.
    #[must_use]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true for memory from [`from_read_only`](Self::from_read_only), and for memory that was once
    /// registered as a read-only window, even after it is deregistered. Neither the CPU nor a device may
    /// write such memory.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns true for memory from [`from_shared`](Self::from_shared), which other code may access at any
    /// time.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// Returns whether the owner's type is `M`.
    pub(crate) fn is_owned_by<M: Any>(&self) -> bool {
        self.owner.is::<M>()
    }

    /// Returns the descriptor of the file that the bytes map, and the offset of the first byte in that file.
    /// Returns `None` if the file is unknown.
    ///
    /// Safe code cannot get the descriptor:
    ///
    /// ```compile_fail,E0133
    /// # fn demo(memory: &dma_core::HostMemory) {
    /// let (fd, offset) = memory.fd().unwrap();
    /// # }
    /// ```
    ///
    /// # Safety
    ///
    /// The file's bytes are the bytes of this memory. The caller, and whatever it passes the descriptor or a
    /// copy of it to, accesses them only as [`DmaEngine::register_raw`](crate::DmaEngine::register_raw)
    /// permits, and does not make the file shorter.
    #[must_use]
    #[expect(unsafe_code, reason = "a write to the file is a write to the bytes")]
    pub unsafe fn fd(&self) -> Option<(std::os::fd::BorrowedFd<'_>, u64)> {
        use std::os::fd::AsFd;
        self.fd.as_ref().map(|(fd, offset)| (fd.as_fd(), *offset))
    }

    /// Returns the owner if its type is `M`.
    ///
    /// # Errors
    ///
    /// This value, unchanged, if the owner is of another type.
    pub fn into_owner<M: Any>(self) -> Result<M, Self> {
        if !self.is_owned_by::<M>() {
            return Err(self);
        }
        self.owner.into_box().downcast().map(|owner| *owner).map_err(|_| unreachable!("it is an `M`"))
    }
}

#[expect(unsafe_code, reason = "a raw pointer with its owner")]
// SAFETY: the bytes belong to `owner`, which is Send and Sync. Other code writes them only if they are
// shared, and shared bytes are never borrowed.
unsafe impl Send for HostMemory {}
#[expect(unsafe_code, reason = "a raw pointer with its owner")]
// SAFETY: a shared reference returns only the pointer, the length, the flags and a borrowed file descriptor,
// and `owner` is Sync.
unsafe impl Sync for HostMemory {}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory")
            .field("ptr", &self.ptr)
            .field("len", &self.len)
            .field("read_only", &self.read_only)
            .field("shared", &self.shared)
            .field("fd", &self.fd)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_memory_is_as_its_engine_asks() {
        for (len, alignment) in [(0, 1), (1, 4096), (5000, 4096), (1, 2 << 20), (64, 64)] {
            let limits = crate::Limits::default().with_alignment(alignment, 1);
            let memory = HostMemory::aligned(len, &limits).unwrap();
            assert!(memory.as_ptr().addr().get().is_multiple_of(alignment));
            assert!(memory.len() >= len && memory.len().is_multiple_of(alignment));
        }
        let limits = crate::Limits::default().with_alignment(3, 1);
        assert_eq!(HostMemory::aligned(1, &limits).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let limits = crate::Limits::default();
        assert_eq!(HostMemory::aligned(usize::MAX, &limits).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn requested_memory_is_as_long_as_its_request() {
        for (len, align) in [(1, 1), (1, 4096), (5000, 4096), (64, 2 << 20)] {
            let memory = HostMemory::allocate_requested(&MemoryRequest::new(len).with_align(align)).unwrap();
            assert!(memory.as_ptr().addr().get().is_multiple_of(align));
            assert_eq!(memory.len(), len, "aligned to {align}");
        }
        let kind = |request| HostMemory::allocate_requested(&request).unwrap_err().kind();
        assert_eq!(kind(MemoryRequest::new(0)), ErrorKind::InvalidArgument);
        assert_eq!(kind(MemoryRequest::new(isize::MAX as usize)), ErrorKind::OutOfMemory);
    }

    #[test]
    fn out_of_memory_says_what_to_lower() {
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
    fn read_only_memory_gives_its_owner_back() {
        let bytes: std::sync::Arc<[u8]> = [1, 2, 3].into();
        let memory = HostMemory::from_read_only(std::sync::Arc::clone(&bytes));
        assert_eq!(memory.as_ptr().as_ptr().cast_const(), bytes.as_ptr());
        assert!(memory.is_read_only() && !HostMemory::from_owner(vec![0]).is_read_only());
        let memory = memory.into_owner::<Vec<u8>>().unwrap_err();
        assert!(memory.is_read_only());
        assert_eq!(memory.into_owner::<std::sync::Arc<[u8]>>().unwrap(), bytes);
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
