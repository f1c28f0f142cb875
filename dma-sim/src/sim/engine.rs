//! [`SimEngine`]: a modelled device as an engine.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use dma_core::{
    Capabilities, DmaEngine, EngineId, EngineInfo, Error, ErrorKind, ExportDescriptor, HostMemory,
    IdleMemory, Limits, MemoryRequest, Place, QueueOptions, RawQueue, RawRegion, Result,
};

use super::device_memory::DeviceMemory;
use super::options::invalid;
use super::queue::SimQueue;
use super::region::SimRegion;
use super::shared_device::{DeviceState, SharedDevice};
use super::{Clock, NAME, SimOptions};
use crate::model::{Device, DeviceError, Time, TraceEvent};

/// A simulated DMA device. See the [module](super).
///
/// ```
/// use dma_core::{DmaEngineExt, QueueOptions};
/// use dma_sim::model::{Profile, Time};
/// use dma_sim::sim::{SimEngine, SimOptions};
///
/// let engine = SimEngine::open(&SimOptions::new().with_profile(Profile::bluefield3()).with_seed(7))?;
/// let queue = engine.open_queue(&QueueOptions::new())?;
/// let mut src = engine.allocate(4096)?;
/// src.fill(7);
/// let (src, dst) = queue.copy(src, engine.allocate(4096)?)?.wait()?;
/// assert_eq!(src[..], dst[..]);
/// // On the device it took some microseconds; here, next to nothing.
/// assert!(engine.now() > Time::from_us(1));
/// # Ok::<(), dma_core::Error>(())
/// ```
pub struct SimEngine {
    shared: Arc<SharedDevice>,
    info: EngineInfo,
    wakes: bool,
    memory: Option<Arc<DeviceMemory>>,
    idle_memory: IdleMemory,
}

/// Default depth of queues. It is sufficient to keep each of the modelled devices busy.
const DEFAULT_DEPTH: usize = 64;

impl SimEngine {
    /// Opens a new simulated device.
    ///
    /// # Errors
    ///
    /// `OutOfRange` or `InvalidArgument` for invalid options; `OutOfMemory` for too much device memory.
    pub fn open(options: &SimOptions) -> Result<Self> {
        let (config, claimed) = options.device()?;
        let profile = config.profile.clone();
        let wrong = |e: DeviceError| invalid(ErrorKind::InvalidArgument, e.to_string()).with_source(e);
        let device = Device::new(config).map_err(wrong)?;
        let wakes = profile.wakes && cfg!(target_os = "linux");
        let mut capabilities = Capabilities::ALLOCATE | Capabilities::REGISTER;
        capabilities.set(Capabilities::FILL, profile.fill);
        capabilities.set(Capabilities::FENCE, profile.fence);
        let results = Capabilities::COMPARE | Capabilities::CRC32C | Capabilities::COPY_CRC32C;
        capabilities.set(results | Capabilities::COPY_TO_BOTH, profile.results);
        capabilities.set(Capabilities::IN_ORDER, profile.in_order);
        let memory = options.device_memory.map(DeviceMemory::new).transpose()?.map(Arc::new);
        let device_memory = Capabilities::ALLOCATE_DEVICE | Capabilities::REGISTER_DEVICE;
        capabilities.set(device_memory, memory.is_some());
        capabilities.set(Capabilities::EXPORT | Capabilities::IMPORT, cfg!(target_os = "linux"));
        let depth = profile.depth as usize;
        let limits = Limits::default()
            .with_max_transfer(claimed)
            .with_max_segments(profile.max_segments as usize)
            .with_queue_depth(depth, depth.min(DEFAULT_DEPTH))
            .with_max_queues(Some(profile.channels as usize))
            .with_alignment(1, 64);
        let clock = match options.clock {
            Clock::Virtual => "virtual",
            Clock::Real => "real",
            Clock::Manual => "manual",
        };
        let name = format!("{}, seed {}, {clock} clock", profile.name, options.seed);
        let info = EngineInfo::new(NAME, name, env!("CARGO_PKG_VERSION"))
            .with_capabilities(capabilities)
            .with_limits(limits)
            .with_model(options.model());
        let shared = Arc::new(SharedDevice::new(device, options.clock));
        Ok(Self { shared, info, wakes, memory, idle_memory: IdleMemory::new() })
    }

    /// Returns the clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Returns the device's time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.lock_now().device.now()
    }

    /// Advances the device's time by `by`, except on the real clock. Returns the new time.
    pub fn advance(&self, by: Duration) -> Time {
        let mut state = self.shared.lock_now();
        if self.shared.clock != Clock::Real {
            let to = state.device.now() + Time::from(by);
            state.advance(to);
        }
        state.device.now()
    }

    /// Advances time until the device is idle. Does nothing on the real clock. Returns the new time.
    pub fn settle(&self) -> Time {
        let mut state = self.shared.lock_now();
        if self.shared.clock != Clock::Real {
            while let Some(at) = state.device.next_event() {
                state.advance(at);
            }
        }
        state.device.now()
    }

    /// Returns the modelled device, to inspect its trace, its channels and its profile. The device stays
    /// locked until the value is dropped, so drop it before you use the engine's queues on the same thread.
    #[must_use]
    pub fn device(&self) -> DeviceView<'_> {
        DeviceView(self.shared.lock_now())
    }

    /// Removes and returns the recorded events, if every event is [recorded](SimOptions::trace). The digest
    /// still covers them: see [`Trace::digest`](crate::model::Trace::digest) of the
    /// [`device`](Self::device)'s trace.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TraceEvent> {
        self.shared.lock_now().device.take_trace()
    }
}

impl fmt::Debug for SimEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimEngine").field("info", &self.info).finish_non_exhaustive()
    }
}

/// A locked view of a [`SimEngine`]'s device, returned by [`SimEngine::device`].
// It gives only shared access. With mutable access, the caller could submit tasks that write to memory to
// which other code has references.
#[derive(Debug)]
pub struct DeviceView<'a>(MutexGuard<'a, DeviceState>);

impl Deref for DeviceView<'_> {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.0.device
    }
}

#[expect(unsafe_code, reason = "the safe API relies on the description of an engine")]
// SAFETY: `info` follows from the profile of the device, which accepts the regions of this engine. The device
// checks each descriptor itself, so that even one that exceeds its limits accesses only its own segments.
unsafe impl DmaEngine for SimEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.shared.id
    }

    fn idle_memory(&self) -> Option<&IdleMemory> {
        Some(&self.idle_memory)
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        let Some(memory) = self.memory.as_ref().filter(|_| request.place == Place::Device) else {
            request.validate_for_host()?;
            return Ok(Box::new(SimRegion::allocate(&self.shared, request)?));
        };
        request.validate()?;
        if !request.export.is_empty() {
            return Err(Error::new(ErrorKind::Unsupported, "device memory cannot be exported")
                .with_hint("export host memory, and copy to or from it"));
        }
        Ok(Box::new(SimRegion::allocate_device(&self.shared, memory, request)?))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: the caller promises that the memory stays mapped, and is accessed only through the region's
        // views, until the returned region is dropped.
        Ok(Box::new(unsafe { SimRegion::register(&self.shared, memory, request.access) }?))
    }

    unsafe fn register_device_raw(
        &self,
        memory: &dma_core::DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        let Some(own) = &self.memory else {
            return Err(Error::new(ErrorKind::Unsupported, "the device has no own memory")
                .with_hint("open it with `device_memory=64M`"));
        };
        // SAFETY: the caller of this function promises that the memory stays allocated until the region is
        // dropped.
        let region = unsafe { SimRegion::register_device(&self.shared, own, memory, request.access) }?;
        Ok(Box::new(region))
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Ok(Box::new(SimRegion::import(&self.shared, descriptor)?))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let options = options.clone().with_depth(options.depth_on(&self.info.limits)?);
        Ok(Box::new(SimQueue::open(&self.shared, &options, self.wakes)?))
    }
}
