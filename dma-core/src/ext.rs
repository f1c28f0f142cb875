//! [`DmaEngineExt`]: the methods that programs call on an engine.

use crate::memory;
use crate::memory::range::Range;
use crate::memory::region::Region;
use crate::{
    Buffer, BufferMut, Capabilities, DeviceMemory, DmaEngine, Error, ExportDescriptor, HostMemory,
    MemoryRequest, Place, Queue, QueueOptions, Result, SharedQueue, SharedQueueOptions, Window,
};

/// The methods that programs call on a [`DmaEngine`]. Every engine and trait object has these methods, and no
/// engine can override them.
///
/// In a forked child, the methods that register, allocate or import memory, and those that open queues,
/// return `Unsupported` for an engine of the parent: its locks may be held for ever.
pub trait DmaEngineExt: DmaEngine {
    /// Allocates `len` zeroed bytes of host memory that the device can reach. May block while the system maps
    /// and pins them.
    ///
    /// An engine with [idle memory](DmaEngine::idle_memory) keeps the memory after its last view is dropped,
    /// and takes it for a later allocation. The region of such memory may be longer than the buffer.
    ///
    /// # Errors
    ///
    /// See [`DmaEngine::allocate_raw`].
    fn allocate(&self, len: usize) -> Result<BufferMut> {
        self.allocate_with(&MemoryRequest::new(len))
    }

    /// Allocates `len` bytes as [`allocate`](Self::allocate) does, but does not clear memory that was in use
    /// before: the bytes are 0 or those of an earlier buffer of this engine. Use this for memory that an
    /// operation overwrites.
    ///
    /// # Errors
    ///
    /// See [`DmaEngine::allocate_raw`].
    fn allocate_for_overwrite(&self, len: usize) -> Result<BufferMut> {
        self.allocate_with(&MemoryRequest::new(len).with_zeroed(false))
    }

    /// Allocates host memory for `request`. May block while the system maps and pins it.
    ///
    /// For a NUMA [node](MemoryRequest::node), this registers [`PageMemory`](crate::PageMemory) on that node.
    /// Exception: exportable memory is allocated by the engine. During that call, the thread's memory policy
    /// makes the kernel take pages from the node.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](Self::allocate), and `InvalidArgument` for a [place](Place) other than the
    /// host. For a node: `NotFound` if the node does not exist, `OutOfMemory` if it has too little memory,
    /// `InvalidArgument` if the process may not use its memory, `PermissionDenied` if a sandbox forbids
    /// memory policies, and `Unsupported` without [`Capabilities::REGISTER`].
    fn allocate_with(&self, request: &MemoryRequest) -> Result<BufferMut> {
        memory::allocate_buffer(self, request)
    }

    /// Allocates memory as a window: host memory to export, or device memory ([`MemoryRequest::with_place`]).
    /// A window's bytes are accessed only by DMA and by copying, and never borrowed.
    ///
    /// # Errors
    ///
    /// See [`DmaEngine::allocate_raw`].
    fn allocate_window(&self, request: &MemoryRequest) -> Result<Window> {
        Ok(Window::new(memory::allocate(self, request)?))
    }

    /// Allocates `len` zeroed bytes of the device's own memory. May block while the device clears them.
    ///
    /// ```
    /// # use dma_core::{DmaEngineExt, QueueOptions};
    /// # fn demo(engine: &dyn dma_core::DmaEngine) -> dma_core::Result<()> {
    /// let queue = engine.open_queue(&QueueOptions::new())?;
    /// let mut there = engine.allocate(4096)?;
    /// there.fill(7);
    /// let (there, vram) = queue.copy(there, engine.allocate_device(4096)?)?.wait()?;
    /// let (_, back) = queue.copy(vram, engine.allocate(4096)?)?.wait()?;
    /// assert_eq!(back[..], there[..]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`DmaEngine::allocate_raw`]: `Unsupported` without [`Capabilities::ALLOCATE_DEVICE`].
    fn allocate_device(&self, len: usize) -> Result<Window> {
        self.allocate_window(&MemoryRequest::new(len).with_place(Place::Device))
    }

    /// Registers existing memory, such as a `Vec<u8>`, a `Box<[u8]>` or a mapping
    /// ([`HostMemory::from_owner`]). [`Region::deregister`] returns the memory. Never copies. May block while
    /// the system pins the memory.
    ///
    /// # Errors
    ///
    /// See [`DmaEngine::register_raw`]. The memory is dropped.
    fn register(&self, memory: HostMemory) -> Result<BufferMut> {
        self.register_with(memory, &MemoryRequest::new(0))
    }

    /// Registers existing memory as [`register`](Self::register) does, with the rights of `request` (its
    /// length and alignment are ignored).
    ///
    /// # Errors
    ///
    /// The errors of [`DmaEngine::register_raw`], and `InvalidArgument` if `request` has no rights, or if the
    /// memory is read-only or [shared](HostMemory::from_shared). The memory is dropped.
    fn register_with(&self, memory: HostMemory, request: &MemoryRequest) -> Result<BufferMut> {
        memory::register_buffer(self, memory, request)
    }

    /// Registers existing memory as a window, with the rights of `request` (its length and alignment are
    /// ignored). Use this for memory that other code accesses at the same time ([`HostMemory::from_shared`]).
    /// If `request` does not grant writing, the bytes are read-only: neither the device nor
    /// [`Window::write_at`] writes them. Never copies. May block while the system pins the memory.
    ///
    /// ```
    /// # use dma_core::{DmaEngineExt, HostMemory, MemoryRequest};
    /// # use std::ptr::NonNull;
    /// # fn demo(engine: &dyn dma_core::DmaEngine, array: NonNull<u8>, len: usize) -> dma_core::Result<()> {
    /// // SAFETY: the caller's array of `len` bytes stays mapped until `deregister` has succeeded.
    /// let memory = unsafe { HostMemory::from_shared(array, len, ()) };
    /// let window = engine.register_window(memory, &MemoryRequest::new(0))?;
    /// // Copy from and to the window, or slices of the window.
    /// window.deregister().map_err(|(_, e)| e)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`DmaEngine::register_raw`], and `InvalidArgument` if `request` has no rights, or if it
    /// grants writing and the memory [is read-only](HostMemory::is_read_only). The memory is dropped.
    fn register_window(&self, memory: HostMemory, request: &MemoryRequest) -> Result<Window> {
        Ok(Window::new(memory::register_window(self, memory, request)?))
    }

    /// Registers read-only memory, such as [`bytes::Bytes`], `Arc<[u8]>` or a mapping without the right to
    /// write. The buffer can only be a source. Clones of `owner` may be read at the same time.
    /// [`Buffer::into_owner`] returns the owner. Never copies. May block while the system pins the memory.
    ///
    /// ```
    /// # use dma_core::{Buffer, DmaEngineExt};
    /// # fn demo(engine: &dyn dma_core::DmaEngine) -> dma_core::Result<()> {
    /// let message = bytes::Bytes::from_static(b"hello");
    /// let source: Buffer = engine.register_read_only(message.clone())?;
    /// let owner: bytes::Bytes = source.into_owner().expect("the last view");
    /// assert_eq!(owner.as_ptr(), message.as_ptr());
    /// # Ok(()) }
    /// # demo(&dma_conformance::doc_engine()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// See [`register_read_only_memory`](Self::register_read_only_memory).
    fn register_read_only<M: AsRef<[u8]> + Send + Sync + 'static>(&self, owner: M) -> Result<Buffer> {
        self.register_read_only_memory(HostMemory::from_read_only(owner))
    }

    /// Registers memory as [`register_read_only`](Self::register_read_only) does. The device may only read
    /// it, even if it is [writable](HostMemory::from_owner).
    ///
    /// # Errors
    ///
    /// The errors of [`DmaEngine::register_raw`], and `InvalidArgument` if the device always maps memory for
    /// writing and the system refuses that. The memory is dropped.
    fn register_read_only_memory(&self, memory: HostMemory) -> Result<Buffer> {
        memory::register_read_only(self, memory)
    }

    /// Registers device memory that another library has allocated, by its address
    /// ([`DeviceMemory::from_raw`]) or by its dma-buf ([`Window::dmabuf`], [`DeviceMemory::from_dmabuf`]).
    /// Never copies. May block. [`Window::into_owner`] returns the owner.
    ///
    /// # Errors
    ///
    /// See [`DmaEngine::register_device_raw`]. The memory is dropped.
    fn register_device(&self, memory: DeviceMemory) -> Result<Window> {
        self.register_device_with(memory, &MemoryRequest::new(0))
    }

    /// Registers device memory as [`register_device`](Self::register_device) does, with the rights of
    /// `request` (its other fields are ignored).
    ///
    /// # Errors
    ///
    /// The errors of [`register_device`](Self::register_device), and `InvalidArgument` if `request` has no
    /// rights.
    fn register_device_with(&self, memory: DeviceMemory, request: &MemoryRequest) -> Result<Window> {
        Ok(Window::new(Range::whole(memory::register_device(self, memory, request)?)))
    }

    /// Imports a peer's exported memory, so that operations of this engine's queues can read and write it.
    /// May block for a bounded time while the peer responds.
    ///
    /// # Errors
    ///
    /// See [`DmaEngine::import_raw`].
    fn import(&self, descriptor: &ExportDescriptor) -> Result<Window> {
        let (info, backend) = (self.info(), self.info().backend);
        let fail = |e: Error| e.with_operation("import").with_backend(backend);
        info.check_process().map_err(fail)?;
        if descriptor.is_empty() && descriptor.backend() == backend {
            return memory::import_no_bytes(self, descriptor.rights()).map(Window::new).map_err(fail);
        }
        let raw = memory::import_with_idle_memory_released(|| self.import_raw(descriptor)).map_err(fail)?;
        Ok(Window::new(Range::whole(Region::of_import(raw, descriptor, backend))))
    }

    /// Opens a queue for the calling thread.
    ///
    /// # Errors
    ///
    /// The errors of [`DmaEngine::open_queue_raw`]; `InvalidArgument` if [`QueueOptions::stall_timeout`] is
    /// 0; `Unsupported` in a forked child, if the engine was opened in the parent.
    fn open_queue(&self, options: &QueueOptions) -> Result<Queue> {
        let (raw, bounce) = open(self, options)?;
        Ok(Queue::new(raw, self.info(), options, bounce))
    }

    /// Opens a queue that any number of threads and tasks can use. The queue has one or more lanes. Each lane
    /// is a device queue with its own thread.
    ///
    /// # Errors
    ///
    /// The errors of [`open_queue`](Self::open_queue); `InvalidArgument` for 0 lanes, or for cores on which
    /// the process may not run; `OutOfRange` for more than 65,535 lanes; `OutOfResources` if a thread cannot
    /// be started.
    fn open_shared_queue(&self, options: &SharedQueueOptions) -> Result<SharedQueue> {
        options.check().map_err(|e| e.with_backend(self.info().backend))?;
        let mut lanes = Vec::new();
        for _ in 0..options.lanes {
            lanes.push(open(self, &options.queue)?);
        }
        SharedQueue::new(lanes, self.info(), options)
    }
}

impl<E: DmaEngine + ?Sized> DmaEngineExt for E {}

/// A raw queue, and a bounce buffer to emulate operations that the device lacks.
type Opened = (Box<dyn crate::RawQueue>, Option<BufferMut>);

fn open<E: DmaEngine + ?Sized>(engine: &E, options: &QueueOptions) -> Result<Opened> {
    /// Length of the bounce buffer in bytes. With this length, emulated operations need few descriptors.
    const BOUNCE_BUFFER_LEN: usize = 64 * 1024;

    let info = engine.info();
    let fail = |e: Error| e.with_operation("open queue").with_backend(info.backend);
    info.check_process().map_err(fail)?;
    options.check().map_err(fail)?;
    let options = options.clone().with_depth(options.depth_on(&info.limits).map_err(fail)?);
    dma_process::check_headroom(
        options.depth.saturating_mul(crate::queue::SLOT_BYTES.max(crate::shared::SLOT_BYTES)),
    )
    .map_err(|e| fail(e.into()))?;
    let raw = memory::open_with_idle_memory_released(|| engine.open_queue_raw(&options)).map_err(fail)?;
    let has = |capabilities| info.capabilities.contains(capabilities);
    let answers = Capabilities::COMPARE | Capabilities::CRC32C | Capabilities::COPY_CRC32C;
    // The CPU may be unable to reach imported memory and device memory. To compute a result that the device
    // cannot compute, the CPU then needs a copy of the bytes in the bounce buffer.
    let unreachable = Capabilities::IMPORT
        | Capabilities::ALLOCATE_DEVICE
        | Capabilities::REGISTER_DEVICE
        | Capabilities::REGISTER_DMABUF;
    let lacks = !has(Capabilities::FILL) || (info.capabilities.intersects(unreachable) && !has(answers));
    let by_copy = lacks && has(Capabilities::ALLOCATE);
    let bounce = if by_copy { Some(engine.allocate(BOUNCE_BUFFER_LEN)?) } else { None };
    Ok((raw, bounce))
}
