//! The traits that an engine implements, and the types that these traits use, in reading order.
//!
//! A [`DmaEngine`] allocates or registers memory ([`RawRegion`]) and opens queues ([`RawQueue`]). A queue
//! accepts [`Descriptor`]s. Each descriptor contains an [`Operation`] on [`Segment`]s of regions, and the
//! queue reports its end by a [`Completion`]. `examples/08_write_a_backend.rs` is a complete engine.
#![expect(unsafe_code, reason = "declares the traits whose implementers the safe API trusts with memory")]

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Access, Completion, Descriptor, DeviceAddr, DeviceMemory, EngineId, EngineInfo, Error, ErrorKind,
    ExportDescriptor, HostMemory, IdleMemory, MemoryRequest, NativeError, Operation, QueueOptions, RegionKey,
    Result, Segment,
};

/// An opened DMA device. Programs use it through `DmaEngineExt`.
///
/// - Regions and queues continue to work after the engine is dropped.
/// - All methods may be called from several threads at once. If the vendor's library cannot create objects in
///   parallel, the engine serializes the calls.
/// - A queue accepts a region's key if, and only if, both have the same [`EngineId`], which is the engine's.
/// - The engine reads capabilities and limits from the device, and never assumes them. An operation that the
///   engine does not declare fails with [`ErrorKind::Unsupported`].
///
/// # Safety
///
/// The safe API trusts [`info`](Self::info) when it makes descriptors. An implementer ensures that every
/// queue from [`open_queue_raw`](Self::open_queue_raw) supports these capabilities and limits, and accepts
/// the regions with the engine's [`EngineId`]. An engine that forwards to another engine also forwards the
/// other engine's `info`.
pub unsafe trait DmaEngine: fmt::Debug + Send + Sync {
    /// Describes the engine. The description never changes, and the call is cheap.
    fn info(&self) -> &EngineInfo;

    /// Returns the id that all regions and queues of this engine have. The id is constant, and the call is
    /// cheap.
    ///
    /// No other engine has this id, except a pointer to this engine. An engine made of engines has its own
    /// id, so that its queues refuse memory of an inner engine.
    fn id(&self) -> EngineId;

    /// Returns a text that describes the engine's decisions so far and the reasons for them. Returns `None`
    /// if the engine has nothing to add to the queues' [`Counters`](crate::Counters), and for an engine of
    /// the parent of a forked process.
    fn explain(&self) -> Option<String> {
        None
    }

    /// Returns the store of this engine's own idle memory, from which
    /// [`DmaEngineExt::allocate`](crate::DmaEngineExt::allocate) takes memory. The result is always the same
    /// store. With `None`, every allocation calls [`allocate_raw`](Self::allocate_raw).
    ///
    /// The engine's regions must not keep the store alive, because the store keeps idle regions.
    fn idle_memory(&self) -> Option<&IdleMemory> {
        None
    }

    /// Allocates and registers zeroed memory that the device can reach, in the requested
    /// [place](crate::Place). May block while the system maps and pins it.
    ///
    /// Regions in host memory have [`RegionInfo::cpu`]. Copies work between all places that the engine has,
    /// and all other capabilities apply to each place.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine lacks the capability for the place
    /// ([`Capabilities::allocate_in`](crate::Capabilities::allocate_in)), or if `request.export` is not empty
    /// without [`Capabilities::EXPORT`](crate::Capabilities::EXPORT); `InvalidArgument` for the reasons of
    /// [`MemoryRequest::validate`]; `OutOfMemory`; `PermissionDenied` if pinning is refused (memlock).
    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>>;

    /// Registers existing memory without copying it. May block while the system pins it.
    ///
    /// The region's length is that of `memory`. [`RegionInfo::cpu`] is the address of `memory`, and
    /// [`RegionInfo::access`] has at most the rights of `request`.
    ///
    /// # Safety
    ///
    /// Until the returned region is dropped, `memory` must stay mapped and initialized, and it must be
    /// accessed only through that region's views (see [`RawRegion`]). [Shared](HostMemory::is_shared) memory
    /// may be accessed by others at any time.
    ///
    /// [Read-only](HostMemory::is_read_only) memory may also be read by others. For such memory,
    /// `request.access` grants only reading, neither the views nor the engine write, and the pages may be
    /// write-protected.
    ///
    /// # Errors
    ///
    /// `Unsupported` without [`Capabilities::REGISTER`](crate::Capabilities::REGISTER); `InvalidArgument` for
    /// memory that the device cannot register (the hint names the alignment); `InUse` if the memory is
    /// registered already and the device registers memory only once; `PermissionDenied` if pinning is
    /// refused.
    unsafe fn register_raw(&self, memory: &HostMemory, request: &MemoryRequest)
    -> Result<Box<dyn RawRegion>>;

    /// Registers existing device memory without copying it: memory of the engine's own device by its address,
    /// or memory of another device by its dma-buf. The region has the address and the length of `memory`, and
    /// no right that `request.access` lacks.
    ///
    /// # Safety
    ///
    /// Until the returned region is dropped, `memory` must stay allocated, and no reference to its bytes may
    /// exist in this process.
    ///
    /// # Errors
    ///
    /// `Unsupported` without the capability
    /// ([`Capabilities::REGISTER_DEVICE`](crate::Capabilities::REGISTER_DEVICE),
    /// [`Capabilities::REGISTER_DMABUF`](crate::Capabilities::REGISTER_DMABUF)), or for memory without a
    /// dma-buf if the engine registers memory by dma-buf only; `InvalidArgument` for memory that does not
    /// belong to the device, as far as the driver knows; `PermissionDenied`; `OutOfResources`.
    unsafe fn register_device_raw(
        &self,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        let _ = (memory, request);
        Err(Error::new(ErrorKind::Unsupported, "the engine cannot register device memory")
            .with_hint("copy through host memory, or use the engine of that device"))
    }

    /// Imports memory that a peer exported. May block for a bounded time while the peer responds.
    ///
    /// # Errors
    ///
    /// `Unsupported` without [`Capabilities::IMPORT`](crate::Capabilities::IMPORT) or for a descriptor of
    /// another backend; `Revoked` if the peer revoked the export or has exited; `Malformed` if the backend's
    /// part of the descriptor is damaged; `PermissionDenied`.
    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>>;

    /// Opens a queue whose depth is [`QueueOptions::depth_on`] for the engine's limits. The depth is at least
    /// 1.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for a depth beyond [`Limits::max_queue_depth`](crate::Limits::max_queue_depth);
    /// `OutOfResources` if the device has no channel left; `DeviceLost`.
    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>>;
}

/// The constants of a [`RawRegion`].
#[derive(Clone, Copy, Debug)]
pub struct RegionInfo {
    /// The engine whose queues accept this region's key.
    pub engine: EngineId,
    /// The region's key in descriptors. No other region of the engine has the same key while this region
    /// exists.
    pub key: RegionKey,
    /// The address of the first byte in descriptors.
    pub addr: DeviceAddr,
    /// The length in bytes, at least 1.
    pub len: usize,
    /// Rights of the device.
    pub access: Access,
    /// The CPU's pointer to the first byte, whose address is `addr`. `None` for memory that the CPU cannot
    /// reach: all imported memory, and device memory unless the CPU has a mapping of it.
    pub cpu: Option<NonNull<u8>>,
}

// SAFETY: this type only stores the pointer. Access through it is unsafe, and `RawRegion` states when it is
// sound.
unsafe impl Send for RegionInfo {}
// SAFETY: this type only stores the pointer. Access through it is unsafe, and `RawRegion` states when it is
// sound.
unsafe impl Sync for RegionInfo {}

impl RegionInfo {
    /// Makes the constants of memory whose device address equals its CPU address.
    #[must_use]
    pub fn local(engine: EngineId, key: RegionKey, base: NonNull<u8>, len: usize, access: Access) -> Self {
        Self { engine, key, addr: DeviceAddr::of(base), len, access, cpu: Some(base) }
    }

    /// Makes the constants of memory that the CPU cannot reach.
    #[must_use]
    pub const fn remote(
        engine: EngineId,
        key: RegionKey,
        addr: DeviceAddr,
        len: usize,
        access: Access,
    ) -> Self {
        Self { engine, key, addr, len, access, cpu: None }
    }

    /// Returns the segment of `len` bytes that begins at byte `offset`.
    ///
    /// # Panics
    ///
    /// If the segment is not inside the region.
    #[must_use]
    pub fn segment(&self, offset: usize, len: usize) -> Segment {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at offset {offset} are not inside a region of {} bytes", self.len);
        Segment { key: self.key, addr: self.addr.offset(offset), len }
    }
}

/// Memory that an engine's device can reach: allocated, registered, or imported from a peer.
///
/// # Safety
///
/// The safe API relies on this trait when it makes slices and frees memory, so an implementer ensures:
/// - `info` never changes. `addr + len` is at most [`u64::MAX`].
/// - Two regions with the same engine id never have the same `key`, even if they contain the same bytes.
///   Engines made of engines look up their data of a region by its key. [`RegionKey::unique`] makes a key for
///   devices that need none.
/// - `cpu`, if given, points to `len` bytes that are mapped, initialized and valid for reads and writes by
///   the CPU until this value is dropped. Registered memory that is read-only need only be valid for reads.
///   The engine accesses the bytes only as submitted descriptors require.
/// - A peer reaches the memory only through an export, only the exported range, and only with the granted
///   rights. A dma-buf contains the region's bytes at the returned offset. If it is a file that could become
///   shorter, it is sealed.
/// - Dropping deregisters the memory. The safe API drops a region only while no descriptor that names it is
///   in flight; otherwise it leaks the region.
///
/// A `Box` of a region is a region. An `Arc` is not, because its clones would be several regions with one
/// key:
///
/// ```compile_fail,E0277
/// use std::sync::Arc;
/// fn region(_: impl dma_core::RawRegion) {}
/// fn demo(shared: Arc<dyn dma_core::RawRegion>) {
///     region(shared);
/// }
/// ```
pub unsafe trait RawRegion: fmt::Debug + Send + Sync {
    /// Returns the region's constants.
    fn info(&self) -> &RegionInfo;

    /// Exports the `len` bytes that begin at byte `offset`, with `rights`.
    ///
    /// # Safety
    ///
    /// The peer may read these bytes, and with [`Access::WRITE`] write them, at any time until the export is
    /// revoked (or permanently, if revoking fails). During that time, no reference to the bytes may exist in
    /// this process. If `rights` grant only reading, shared references may exist.
    /// [`Window::export`](crate::Window::export) ensures this.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine or this memory cannot be exported; `AccessDenied` if `rights` exceed the
    /// export rights of the allocation; `OutOfRange`; `OutOfResources`.
    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>>;

    /// Returns a dma-buf of the memory, and the offset of the region's first byte in the dma-buf. With it,
    /// the engine of another device can register the memory without a CPU mapping. The dma-buf keeps the
    /// memory allocated.
    ///
    /// # Safety
    ///
    /// The caller passes the dma-buf, or a copy of its descriptor, only to devices that access it while the
    /// region exists, and while no reference to the bytes exists in this process. It does not make the file
    /// shorter.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine, its driver or this memory has no dma-buf.
    unsafe fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        Err(Error::new(ErrorKind::Unsupported, "the memory has no dma-buf")
            .with_hint("copy it through host memory that both devices reach"))
    }
}

/// Memory granted to a peer. Dropping this value revokes the grant, with a timeout that the engine chooses.
///
/// # Safety
///
/// The safe API reuses the memory after [`revoke`](Self::revoke) has returned `Ok`, so an implementer ensures
/// that no peer accesses the memory from then on. Until then, or if this value is dropped while a peer still
/// copies, peers access only the exported range, with the granted rights.
pub unsafe trait RawExport: fmt::Debug + Send + Sync {
    /// Returns the backend's own blob, at most 64 KiB. The blob contains everything that the backend's
    /// `import_raw` needs, and becomes a part of an [`ExportDescriptor`].
    fn native(&self) -> &[u8];

    /// Revokes the grant: after this returns `Ok`, no peer accesses the memory. Waits at most `timeout` for
    /// peers' copies in progress. Idempotent.
    ///
    /// # Errors
    ///
    /// `TimedOut` if a peer is still copying; the memory must then not be reused.
    fn revoke(&mut self, timeout: Duration) -> Result<()>;
}

/// A device's submission and completion path, used by one thread at a time.
///
/// No method blocks. After the first operations, no method allocates.
///
/// The caller holds a lock or a borrow during each call, and during the drop, so a queue logs with
/// [`deferred_log`](crate::deferred_log), whose events are emitted after it. The methods that take `&self` do
/// not log.
///
/// # Safety
///
/// The safe API relies on this trait when it returns memory to its owner, so an implementer ensures:
/// - `poll` reports every accepted descriptor exactly once. Exceptions are a lost completion and a dead
///   device: then it never reports the descriptor, and [`lost`](Self::lost) returns the reason if the queue
///   can detect it.
/// - The device accesses the memory of an accepted descriptor only until the descriptor is reported. If the
///   outcome is `Done`, all bytes are visible to the thread that polled.
/// - The device writes no bytes outside the destination.
/// - A descriptor may start at any time after `submit`. After `flush`, a working device must start it without
///   further calls, as soon as fences permit. A software device may instead wait for a `poll`, if the queue's
///   event signals that it waits.
/// - Dropping a queue with descriptors in flight either ensures that the device no longer accesses their
///   memory, or leaks the queue. The safe API never drops such a queue.
pub unsafe trait RawQueue: fmt::Debug + Send {
    /// Returns the id of the engine whose regions this queue accepts.
    fn engine_id(&self) -> EngineId;

    /// Returns the maximum number of descriptors in flight, which is at least the requested depth.
    fn depth(&self) -> usize;

    /// Submits descriptors to the device, in order, and returns the number of accepted descriptors. A number
    /// below `batch.len()` means that the queue is full, or that the next descriptor is invalid: submitting
    /// that descriptor again, as the first of a batch, returns its error. The queue reads a descriptor's
    /// lists before this returns.
    ///
    /// # Safety
    ///
    /// For every descriptor: its regions belong to this queue's engine and grant the access; its segments lie
    /// inside the regions; it respects the engine's capabilities and limits; no byte that it writes is in
    /// another of its operands. Until its completion (or permanently, if there is no completion), the regions
    /// stay registered, the source is not written, and the destination is neither read nor written. The bytes
    /// of a [`Window`](crate::Window) are an exception: peers, other queues and other threads may access them
    /// at the same time, and their values are undefined then. Therefore an engine that copies by CPU uses
    /// [`racy_copy`](crate::racy_copy).
    ///
    /// # Errors
    ///
    /// Fails only if the first descriptor is refused, so no descriptor of the batch was accepted:
    /// `DeviceLost`, `Closed`, and the device's own errors. A full queue is *not* an error: this returns 0.
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize>;

    /// Rings the doorbell for all submitted descriptors. Completions report failures.
    fn flush(&mut self);

    /// Writes new completions to the front of `completions`, and returns their number. Never blocks. A
    /// software device may do a bounded part of its work in this call.
    fn poll(&mut self, completions: &mut [Completion]) -> usize;

    /// Returns the name and description of a completion's `native` code.
    fn explain(&self, native: i32) -> NativeError;

    /// Makes the device abort unfinished descriptors, which later polls report as `Aborted`. Does not wait
    /// for them. Afterwards `submit` returns `Closed`. Idempotent.
    fn stop(&mut self);

    /// Returns the device counters.
    fn stats(&self) -> QueueStats;

    /// Returns the queue's event, whose file descriptor becomes readable when a poll has something to report.
    /// Returns `None` for a queue that can only be polled. The result is the same for the life of the queue.
    fn events(&mut self) -> Option<&mut dyn QueueEvents>;

    /// Returns the executor of the queue's short operations. The default is `None`, for a queue that must see
    /// every operation: queues of devices, queues of engines that choose between a device and the CPU by
    /// measured times, and queues that record the calls of the program. An engine that counts the operations
    /// of another engine returns an executor that does so and calls the other engine's.
    ///
    /// The safe API calls this once, when it opens the queue. It may then pass short operations to the
    /// executor instead of [`submit`](Self::submit), so this queue never sees them.
    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        None
    }

    /// Returns the error of a lost device, if the device will never report the descriptors in flight and
    /// cannot recover. The default is `None`, for a queue that always reports its descriptors or cannot
    /// detect the loss.
    ///
    /// The safe API calls this after a poll that reported nothing while descriptors are in flight, or whose
    /// queue could not be [armed](QueueEvents::arm). After `Some`, it calls [`abandoned`](Self::abandoned)
    /// and no other method: the operations in flight end with this error as [`ErrorKind::DeviceLost`], their
    /// memory is leaked, and submissions fail. Without this method, waits for these operations last for the
    /// [`stall_timeout`](crate::QueueOptions::stall_timeout). An engine made of engines passes the call on,
    /// unless another engine can go on: then it may [`stop`](Self::stop) and poll the lost device's queue.
    fn lost(&self) -> Option<Error> {
        None
    }

    /// Tells the queue that it will be leaked, because the device has not reported all descriptors. No other
    /// call and no drop follows. An engine made of engines passes the call on, and ends its counts and
    /// records of the queue. Must not free memory that the device may still access. The default does nothing.
    fn abandoned(&mut self) {}
}

/// Executes short operations in the thread that submits them. These operations are never in flight: they have
/// no descriptor, no doorbell and no completion.
///
/// The safe API calls an executor as follows:
/// - Only for operations of 1 to [`max_len`](Self::max_len) bytes on memory that the CPU can reach
///   ([`RegionInfo::cpu`]). A batch of copies, or an operation of lists, may have up to 16 times `max_len`
///   bytes in total, and one side of a copy of lists may have longer segments. These limits bound the
///   duration of a submission.
/// - A [`Queue`](crate::Queue) calls it only while nothing is in flight, so fences have no effect on the
///   operation. A [`SharedQueue`](crate::SharedQueue), whose operations have no order, may call it at any
///   time, and from several threads at once.
/// - No call begins after the queue was closed, after [`RawQueue::stop`], or after the engine has panicked. A
///   call by another thread of a [`SharedQueue`](crate::SharedQueue) may still be in progress then, so an
///   executor must not depend on its queue.
///
/// # Safety
///
/// The safe API returns memory to its owner as soon as [`execute`](Self::execute) returns, so an implementer
/// ensures:
/// - The executor accesses memory only as the operation requires, and only until the call returns. After the
///   call, all bytes of the destination are visible to the calling thread.
/// - The executor executes every type of [`Operation`] with any number of segments, whatever the engine's
///   capabilities and limits are.
/// - If [`plain_copy_len`](Self::plain_copy_len) or [`plain_read_len`](Self::plain_read_len) is not 0, the
///   device addresses of memory that the CPU can reach are the CPU's pointers to it.
pub unsafe trait InlineExecutor: fmt::Debug + Send + Sync {
    /// Returns the length of the longest operation, in bytes. The value never changes.
    fn max_len(&self) -> usize;

    /// Returns the maximum length, in bytes, of copies for which [`copy`](Self::copy) only calls
    /// [`racy_copy::copy`](crate::racy_copy::copy), with the device addresses as pointers. The safe API calls
    /// that function itself for copies of up to this length, also for those of a batch and for rows, which
    /// saves a call. The same holds for fills with one byte value and [`racy_copy::set`], and for copies with
    /// a CRC and [`racy_copy::copy_crc32c`]. An executor that [selects copies](Self::selects_copies) executes
    /// all of them. The value never changes. The default is 0: the executor executes all copies.
    ///
    /// [`racy_copy::set`]: crate::racy_copy::set
    /// [`racy_copy::copy_crc32c`]: crate::racy_copy::copy_crc32c
    fn plain_copy_len(&self) -> usize {
        0
    }

    /// Returns the maximum length, in bytes, of comparisons and CRCs for which [`execute`](Self::execute)
    /// only calls [`racy_copy::first_difference`](crate::racy_copy::first_difference) or
    /// [`racy_copy::crc32c`](crate::racy_copy::crc32c()), with the device addresses as pointers. The safe API
    /// calls these functions itself for operations of up to this length. The value never changes. The default
    /// is 0: the executor executes all comparisons and CRCs.
    fn plain_read_len(&self) -> usize {
        0
    }

    /// Returns true if the executor selects copies by [`admits_copies`](Self::admits_copies). The value never
    /// changes. The default is false: the executor executes all copies.
    fn selects_copies(&self) -> bool {
        false
    }

    /// Returns whether the executor executes `count` copies of `bytes` in total, which the safe API passes to
    /// it at once after this call. Otherwise the safe API submits them to the queue. A copy to two
    /// destinations counts once, with the length of its source.
    ///
    /// The safe API calls this before copies of any type, but not before other operations, and only if
    /// [`selects_copies`](Self::selects_copies) returns true. An executor selects copies if the queue must
    /// see some of them, such as those that it checks.
    fn admits_copies(&self, count: u64, bytes: usize) -> bool {
        let _ = (count, bytes);
        true
    }

    /// Executes an operation, and returns its result, or 0 if it has none.
    ///
    /// # Safety
    ///
    /// The segments lie inside regions of the queue's engine that grant the access and that the CPU can
    /// reach. No byte that the operation writes is in another of its operands. During the call, the regions
    /// stay registered, the source is not written, and the destination is neither read nor written. The bytes
    /// of a [`Window`](crate::Window) are an exception, as in [`RawQueue::submit`].
    unsafe fn execute(&self, operation: &Operation<'_>) -> u64;

    /// Copies `len` bytes, at least 1, as [`execute`](Self::execute) does for [`Operation::Copy`].
    ///
    /// # Safety
    ///
    /// See [`execute`](Self::execute).
    unsafe fn copy(&self, src: DeviceAddr, dst: DeviceAddr, len: usize);

    /// Returns true if batches of short copies are also passed to [`copy_all`](Self::copy_all). The value
    /// never changes. The default is false, because separate calls take less time for short copies.
    fn batches_short_copies(&self) -> bool {
        false
    }

    /// Executes copies of one batch, in any order. The default calls [`copy`](Self::copy) for each. The safe
    /// API passes up to 32 copies in a call, if the copies of the batch have 4 KiB or more on average, or if
    /// [`batches_short_copies`](Self::batches_short_copies) returns true. An executor may overlap the copies'
    /// memory accesses; the default does not.
    ///
    /// # Safety
    ///
    /// The requirements of [`execute`](Self::execute) hold for each copy. Different copies may overlap in
    /// bytes of windows.
    unsafe fn copy_all(&self, copies: &[InlineCopy]) {
        for copy in copies {
            // SAFETY: the caller meets the requirements of `execute` for each copy.
            unsafe { self.copy(copy.src, copy.dst, copy.len) };
        }
    }

    /// Copies bytes that belong to no region, for `copy_bytes` of an engine that copies by CPU
    /// ([`CPU_COPIES`](crate::Capabilities::CPU_COPIES)). The slices have the same length. An executor may
    /// share the copy with other threads, which access the slices only until the call returns. The default
    /// copies in the calling thread.
    fn copy_slice(&self, src: &[u8], dst: &mut [u8]) {
        dst.copy_from_slice(src);
    }
}

/// One copy of a batch, for [`InlineExecutor::copy_all`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineCopy {
    /// The first byte of the source.
    pub src: DeviceAddr,
    /// The first byte of the destination.
    pub dst: DeviceAddr,
    /// The length in bytes, at least 1.
    pub len: usize,
}

/// The event of a queue, which can wake the queue's owner.
pub trait QueueEvents {
    /// Returns the event's file descriptor. The descriptor becomes readable when a completion arrives after
    /// [`arm`](Self::arm), or when a software device needs a [`RawQueue::poll`]. In the second case the poll
    /// may report nothing.
    ///
    /// # Errors
    ///
    /// `OutOfResources`, `PermissionDenied` or `Os` if the system refused the descriptor when the queue was
    /// opened. Such a queue can only be polled, and [`arm`](Self::arm) also fails.
    fn fd(&self) -> Result<BorrowedFd<'_>>;

    /// Makes the next completion signal the file descriptor. Returns `false` if completions may already be
    /// waiting, or if the device cannot signal them; then poll instead of sleeping. A completion between the
    /// last poll and this call is never missed.
    ///
    /// # Errors
    ///
    /// Errors of [`fd`](Self::fd); `Os` if the system refuses.
    fn arm(&mut self) -> Result<bool>;

    /// Makes the file descriptor unreadable again, after a wake-up or when an `arm` is no longer needed.
    fn disarm(&mut self);
}

/// Device counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Doorbells rung.
    pub doorbells: u64,
    /// Device resets that the queue has recovered from.
    pub resets: u64,
}

impl QueueStats {
    /// Makes device counters from these values.
    #[must_use]
    #[inline]
    pub const fn new(doorbells: u64, resets: u64) -> Self {
        Self { doorbells, resets }
    }
}
