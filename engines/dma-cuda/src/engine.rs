//! [`CudaEngine`]: a CUDA device as an engine.
#![expect(unsafe_code, reason = "implements `DmaEngine`")]

use std::sync::{Arc, Mutex, PoisonError};

use dma_core::{
    Capabilities, DeviceMemory, Discovered, DmaEngine, DmaEngineExt, EngineId, EngineInfo, EngineName, Error,
    ErrorKind, ExportDescriptor, HostMemory, IdleMemory, Limits, MemoryRequest, Queue, QueueOptions,
    RawQueue, RawRegion, Result,
};
use dma_process::lock;

use crate::Driver;
use crate::device::{self, Device};
use crate::error::{NAME, error};
use crate::options::{CudaDevice, CudaOptions, Pieces};
use crate::pending::LIST_MAX;
use crate::pieces::Ways;
use crate::queue::CudaQueue;
use crate::region::{CudaRegion, no_export};
use crate::stream::CudaStream;

/// Smallest alignment at which copies run at full speed.
const BEST_ALIGNMENT: usize = 128;

/// The copy engines of a CUDA device. The README describes the set-up.
///
/// ```
/// use dma_cuda::{CudaEngine, CudaOptions};
///
/// // Without driver or device, the error names the remedy.
/// match CudaEngine::open(&CudaOptions::new()) {
///     Ok(engine) => println!("{engine:?}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Debug)]
pub struct CudaEngine {
    id: EngineId,
    device: Arc<Device>,
    ways: Arc<Ways>,
    info: EngineInfo,
    /// Pinned host memory. Device memory is not kept, because only the device could clear it.
    idle_memory: IdleMemory,
}

impl CudaEngine {
    /// Opens the given device, or the first one. Loads `libcuda.so.1` (which reads files) if it is not loaded
    /// yet. Creates the device's primary context, which takes a fraction of a second and some 100 MiB of
    /// device memory.
    ///
    /// # Errors
    ///
    /// `Unsupported`: the options demand the kernel, and the driver cannot run it. `MissingSdk`: the library
    /// cannot be loaded, or the driver is older than CUDA 11.4 or than its kernel
    /// module. `NotFound`: there is no device, or the given one does not exist. `OutOfMemory`: the device has
    /// no memory left. `OutOfRange`: a depth beyond [`CudaOptions::DEPTH_MAX`]. `DeviceLost`: the process was
    /// forked after CUDA was initialized, or a failure has ended the device's context. Each error names the
    /// remedy.
    pub fn open(options: &CudaOptions) -> Result<Self> {
        let opened = device::load(options).and_then(|driver| Self::open_device(&driver, options));
        opened.map_err(|e| e.with_operation("open engine"))
    }

    /// Opens a device as [`open`](Self::open) does, but with the calls of a table instead of the library's.
    /// Ignores [`CudaOptions::lib_dir`].
    ///
    /// Safe code cannot pass a table:
    ///
    /// ```compile_fail,E0133
    /// # fn demo(driver: dma_cuda::Driver, options: dma_cuda::CudaOptions) {
    /// let engine = dma_cuda::CudaEngine::open_with(&driver, &options);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// Each function of the table must behave as CUDA's documentation says about the function of its name,
    /// and must stay loaded as long as the engine and its queues and memory exist.
    pub unsafe fn open_with(driver: &Driver, options: &CudaOptions) -> Result<Self> {
        Self::open_device(driver, options)
    }

    /// Opens a device by calls that can be trusted.
    fn open_device(driver: &Driver, options: &CudaOptions) -> Result<Self> {
        let depth = options.depth.unwrap_or(CudaOptions::DEPTH_DEFAULT);
        check_depth(depth)?;
        let device = Device::open(driver, options)?;
        let ways = Arc::new(Ways::new(&device, options));
        if options.pieces == Pieces::Kernel {
            ways.kernel().map_err(|error| error.to_error(driver))?;
        }
        let mut capabilities = Capabilities::ALLOCATE
            | Capabilities::ALLOCATE_DEVICE
            | Capabilities::REGISTER_DEVICE
            | Capabilities::FILL
            | Capabilities::FENCE
            | Capabilities::IN_ORDER;
        capabilities.set(Capabilities::REGISTER, device.registers);
        let limits = Limits::default()
            .with_max_segments(LIST_MAX)
            .with_queue_depth(CudaOptions::DEPTH_MAX, depth)
            .with_alignment(1, BEST_ALIGNMENT);
        let place = match device.pci {
            Some(address) => format!("{} at {address}", device.name),
            None => device.name.clone(),
        };
        let version = format!("CUDA driver {}", device::version_text(device.version));
        let node = device.sysfs().and_then(|dir| dma_vendor::host::numa_node(&dir));
        let mut info = EngineInfo::new(NAME, place, version)
            .with_numa_node(node)
            .with_capabilities(capabilities)
            .with_limits(limits);
        if let Some(model) = &device.model {
            info = info.with_model(format!("stand-in driver: {model}"));
        }
        Ok(Self { id: EngineId::unique(), device, ways, info, idle_memory: IdleMemory::new() })
    }

    /// Opens a queue, and returns it together with its stream, which can order transfers with other work on
    /// the device.
    ///
    /// ```
    /// # use dma_core::{DmaEngineExt, QueueOptions};
    /// # use std::ffi::c_void;
    /// # type Engine = dma_cuda::CudaEngine;
    /// # fn demo(engine: &Engine, written: *mut c_void, reader: *mut c_void) -> dma_core::Result<()> {
    /// let (queue, stream) = engine.open_queue_with_stream(&QueueOptions::new())?;
    /// let weights = engine.allocate_device(1 << 20)?;
    /// // `written` is an event that is recorded after a kernel that writes `weights`.
    /// // SAFETY: the event and the stream exist.
    /// unsafe { stream.wait_for_event(written)? };
    /// let transfer = queue.copy(weights, engine.allocate(1 << 20)?)?;
    /// queue.flush();
    /// // Kernels that are launched on `reader` from now on see the bytes.
    /// // SAFETY: the stream exists.
    /// unsafe { stream.hold_stream(reader)? };
    /// transfer.wait()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`DmaEngineExt::open_queue`].
    pub fn open_queue_with_stream(&self, options: &QueueOptions) -> Result<(Queue, CudaStream)> {
        let lender = Lender { engine: self, stream: Mutex::new(None) };
        let queue = lender.open_queue(options)?;
        let stream = lender.stream.into_inner().unwrap_or_else(PoisonError::into_inner);
        let stream = stream.ok_or_else(|| error(ErrorKind::Unsupported, "the queue has no stream"))?;
        Ok((queue, stream))
    }

    /// Returns the driver's calls, for programs that also call the driver directly. The engine trusts these
    /// calls, so they can be read and copied, but not replaced:
    ///
    /// ```compile_fail,E0594
    /// # fn demo(engine: &dma_cuda::CudaEngine, other: &dma_cuda::Driver) {
    /// engine.driver().cuEventQuery = other.cuEventQuery;
    /// # }
    /// ```
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.device.driver
    }

    fn open_cuda_queue(&self, options: &QueueOptions) -> Result<CudaQueue> {
        let depth = options.depth_on(&self.info.limits)?;
        CudaQueue::open(&self.ways, self.id, depth)
    }
}

/// An engine that remembers the stream of the queue that it opens.
#[derive(Debug)]
struct Lender<'a> {
    engine: &'a CudaEngine,
    stream: Mutex<Option<CudaStream>>,
}

fn check_depth(depth: usize) -> Result<()> {
    let most = CudaOptions::DEPTH_MAX;
    if (1..=most).contains(&depth) {
        return Ok(());
    }
    Err(error(ErrorKind::OutOfRange, format!("a depth of {depth}"))
        .with_numbers(depth as u64, most as u64)
        .with_hint("ask for a depth of at least 1 and at most the limit, or open several queues"))
}

fn check_export(request: &MemoryRequest) -> Result<()> {
    if request.export.is_empty() { Ok(()) } else { Err(no_export()) }
}

fn no_import() -> Error {
    error(ErrorKind::Unsupported, "CUDA devices cannot import memory of peers")
        .with_hint("register device memory of this process by `register_device`")
}

// SAFETY: `info` holds the properties that the device and the driver report, and they hold for all queues.
unsafe impl DmaEngine for CudaEngine {
    fn id(&self) -> EngineId {
        self.id
    }

    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn idle_memory(&self) -> Option<&IdleMemory> {
        Some(&self.idle_memory)
    }

    fn explain(&self) -> Option<String> {
        self.ways.explain()
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        check_export(request)?;
        request.validate()?;
        Ok(Box::new(CudaRegion::allocate(&self.device, self.id, request)?))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        check_export(request)?;
        // SAFETY: the caller keeps the memory mapped, and leaves it to the region, until the region is
        // dropped.
        let region = unsafe { CudaRegion::register(&self.device, self.id, memory, request) }?;
        Ok(Box::new(region))
    }

    unsafe fn register_device_raw(
        &self,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        check_export(request)?;
        if memory.has_dmabuf() {
            return Err(error(
                ErrorKind::Unsupported,
                "CUDA devices cannot register dma-bufs of other devices",
            )
            .with_hint("copy it through host memory that both devices reach"));
        }
        Ok(Box::new(CudaRegion::register_device(&self.device, self.id, memory, request)?))
    }

    fn import_raw(&self, _: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Err(no_import())
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        Ok(Box::new(self.open_cuda_queue(options)?))
    }
}

// SAFETY: all methods here forward to the engine, which keeps the promises. The default of
// `register_device_raw` refuses.
unsafe impl DmaEngine for Lender<'_> {
    fn id(&self) -> EngineId {
        self.engine.id()
    }

    fn info(&self) -> &EngineInfo {
        self.engine.info()
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.engine.allocate_raw(request)
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: the caller keeps the memory mapped, and leaves it to the region, until the region is
        // dropped.
        unsafe { self.engine.register_raw(memory, request) }
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        self.engine.import_raw(descriptor)
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let queue = self.engine.open_cuda_queue(options)?;
        let stream = CudaStream(Arc::clone(queue.stream()));
        *lock(&self.stream) = Some(stream);
        Ok(Box::new(queue))
    }
}

/// Lists the CUDA devices of this machine, by their PCI addresses. A device that cannot be used, and a
/// missing driver, are listed with the error and its remedy. Opens each device briefly.
#[must_use]
pub fn discover(options: &CudaOptions) -> Vec<Discovered> {
    match device::load(options) {
        Ok(driver) => devices(&driver, options),
        Err(error) => {
            vec![Discovered::new(
                EngineName::of(CudaOptions::NAME_FORMAT),
                Err(error.with_operation("open engine")),
            )]
        }
    }
}

/// Lists devices as [`discover`] does, but with the calls of a table instead of the library's. Safe code
/// cannot pass a table:
///
/// ```compile_fail,E0133
/// # fn demo(driver: dma_cuda::Driver, options: dma_cuda::CudaOptions) {
/// let found = dma_cuda::discover_with(&driver, &options);
/// # }
/// ```
///
/// # Safety
///
/// See [`CudaEngine::open_with`].
#[must_use]
pub unsafe fn discover_with(driver: &Driver, options: &CudaOptions) -> Vec<Discovered> {
    devices(driver, options)
}

fn devices(driver: &Driver, options: &CudaOptions) -> Vec<Discovered> {
    let plain = EngineName::of(CudaOptions::NAME_FORMAT);
    let number = match device::initialize(driver) {
        Ok((_, number)) => number,
        Err(error) => return vec![Discovered::new(plain, Err(error.with_operation("open engine")))],
    };
    let discovered = (0..number).map(|ordinal| {
        let device = match device::pci_address(driver, ordinal) {
            Some(address) => CudaDevice::Pci(address),
            None => CudaDevice::Ordinal(ordinal.unsigned_abs()),
        };
        let name = plain.clone().with_device(device.to_string()).unwrap_or_else(|_| plain.clone());
        let options = options.clone().with_device(CudaDevice::Ordinal(ordinal.unsigned_abs()));
        Discovered::opened(name, CudaEngine::open_device(driver, &options))
    });
    discovered.collect()
}
