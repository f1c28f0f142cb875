//! [`AutoEngine`] sends each copy to the faster of the CPU and a device.
//!
//! With several devices, the engine made of the CPU and the first device acts as the CPU for the second
//! device, and so on ([`AutoEngine::with_devices`]).
//!
//! - A queue measures both engines for each class of copies. A class is a range of lengths (powers of two)
//!   and of descriptors in flight (1; 2 to 7; 8 and more). The faster engine gets the copies of the class
//!   until the next measurement. A queue has one cache hint, so its measurements are for that hint.
//! - The device gets copies of one segment. Lists and fills go to the CPU.
//! - Only the device accesses its own memory: it allocates and registers that memory, and gets all copies and
//!   fills with an operand in it. Such operations are not repeated by the CPU: the caller sees the device's
//!   failures, and [`ErrorKind::DeviceLost`] while the queue does not use the device. If several devices have
//!   memory of their own, that of the first one is used. Such an engine splits lists, and cannot import
//!   memory, because the device could not reach imported memory.
//! - The CPU repeats any other copy that the device refuses, fails or aborts. Repeating is safe, because the
//!   source does not change and the destination is not read before the copy ends. So the caller does not see
//!   the device's failures.
//! - A queue stops using a device that is lost, fails [4](FAILURES) times in a row, or completes nothing for
//!   [`AutoOptions::stall_timeout`]. The queue tries the device again after 100 ms. After each failed try the
//!   queue waits twice as long, up to 10 s.
//! - If the device stalls or is lost, the queue stops the device's queue, and the CPU repeats the copies that
//!   the device then reports as aborted. A copy that the device never reports is not reported by this queue
//!   either, because the device may still write its memory. This queue uses the device again only after the
//!   device has reported all copies.
//! - Host memory is registered with both engines, once. Only the CPU copies memory that the device refuses,
//!   imported memory, and exportable memory unless the device has memory of its own. Copies between device
//!   memory and host memory that the device refuses fail with [`ErrorKind::Unsupported`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use dma_core::{DmaEngine, DmaEngineExt, QueueOptions};
//! use dma_layers::auto::{AutoEngine, AutoOptions};
//!
//! let cpu: Arc<dyn DmaEngine> = Arc::new(dma_cpu::CpuEngine::open(&dma_cpu::CpuOptions::new())?);
//! let device: Arc<dyn DmaEngine> = Arc::new(dma_sim::sim::SimEngine::open(&Default::default())?);
//! let engine = AutoEngine::new(cpu, device, &AutoOptions::new())?;
//! let queue = engine.open_queue(&QueueOptions::new())?;
//! let mut src = engine.allocate(1 << 20)?;
//! src.fill(7);
//! let (src, dst) = queue.copy(src, engine.allocate(1 << 20)?)?.wait()?;
//! assert_eq!(src[..], dst[..]);
//! println!("{}", engine.explain().unwrap_or_default());
//! # Ok::<(), dma_core::Error>(())
//! ```
#![expect(unsafe_code, reason = "implements `DmaEngine`")]

mod cpu_streak;
mod cpu_times;
mod device;
mod event;
mod learner;
mod options;
mod queue;
mod region;
mod report;
mod shared;

use std::fmt;
use std::sync::Arc;

use dma_core::{
    Capabilities, DeviceMemory, DmaEngine, EngineId, EngineInfo, Error, ErrorKind, ExportDescriptor,
    HostMemory, IdleMemory, MemoryRequest, Place, QueueOptions, RawQueue, RawRegion, RegionInfo, Result,
};

use device::DeviceQueue;
pub use options::{AutoOptions, FAILURES, Prefer};
use queue::AutoQueue;
use region::{AutoRegion, no_export};
use report::Ledger;
pub use report::{AutoCost, AutoReport};
use shared::AutoShared;

/// The CPU and a device as one engine: see the [module](self).
///
/// The CPU engine allocates the memory, makes exports and imports, and determines the backend name. Regions
/// belong to this engine only: its queues refuse regions of the CPU engine and of the device, like those of
/// any other engine.
pub struct AutoEngine {
    cpu: Arc<dyn DmaEngine>,
    info: EngineInfo,
    shared: Arc<AutoShared>,
    /// `None` if the CPU's engine does not recycle memory.
    idle_memory: Option<IdleMemory>,
}

impl AutoEngine {
    /// Makes one engine of `cpu` and `device`. The engine has the memory and the operations of `cpu`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if `device` cannot register memory, or if `cpu` allocates no host memory.
    pub fn new(cpu: Arc<dyn DmaEngine>, device: Arc<dyn DmaEngine>, options: &AutoOptions) -> Result<Self> {
        Self::beside(cpu, "the CPU", device, options)
    }

    /// Makes one engine as [`new`](Self::new) does. In reports, `cpu` has the name `first`.
    fn beside(
        cpu: Arc<dyn DmaEngine>,
        first: &str,
        device: Arc<dyn DmaEngine>,
        options: &AutoOptions,
    ) -> Result<Self> {
        let (own, other) = (cpu.info(), device.info());
        if !other.capabilities.contains(Capabilities::REGISTER) {
            let message = format!("{} {} cannot register existing memory", other.backend, other.device);
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("choose another device, or open this one without `auto`"));
        }
        if !own.capabilities.contains(Capabilities::ALLOCATE) {
            let message = format!("{} cannot allocate host memory", own.backend);
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("pass the engine `cpu` as the first one"));
        }
        let engines = [first.to_owned(), format!("{} {}", other.backend, other.device)];
        let mut info = own.clone();
        info.device = format!("{}; or, if that is cheaper, {} {}", own.device, other.backend, other.device);
        info.model = info.model.or_else(|| other.model.clone());
        // The planner keeps fences, so that they hold between the two engines.
        info.capabilities &= Capabilities::FILL
            | Capabilities::ALLOCATE
            | Capabilities::REGISTER
            | Capabilities::EXPORT
            | Capabilities::IMPORT;
        let may_have =
            Capabilities::ALLOCATE_DEVICE | Capabilities::REGISTER_DEVICE | Capabilities::REGISTER_DMABUF;
        let of_first = own.capabilities & may_have;
        // Fills must work in all memory, so the memory of a device without fills is not offered.
        let of_device = if other.capabilities.contains(Capabilities::FILL) {
            other.capabilities & may_have
        } else {
            Capabilities::empty()
        };
        let gives_memory = of_first.is_empty() && !of_device.is_empty();
        info.capabilities |= if gives_memory { of_device } else { of_first };
        if gives_memory {
            info.capabilities -= Capabilities::IMPORT;
            info.limits.max_segments = 1;
            info.limits.max_queue_depth = own.limits.max_queue_depth.min(other.limits.max_queue_depth);
            info.limits.default_queue_depth = own.limits.default_queue_depth.min(info.limits.max_queue_depth);
        }
        info.limits.max_transfer = own.limits.max_transfer.min(other.limits.max_transfer);
        info.limits.preferred_alignment =
            own.limits.preferred_alignment.max(other.limits.preferred_alignment);
        let shared = AutoShared {
            id: EngineId::unique(),
            device,
            options: options.clone(),
            gives_memory,
            keys: Arc::default(),
            ledger: Ledger::new(engines),
        };
        let idle_memory = cpu.idle_memory().map(|_| IdleMemory::new());
        Ok(Self { cpu, info, shared: Arc::new(shared), idle_memory })
    }

    /// Makes one engine of `cpu` and all `devices`. Without devices, returns `cpu` itself.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use dma_core::DmaEngine;
    /// use dma_layers::auto::{AutoEngine, AutoOptions};
    ///
    /// let cpu = Arc::new(dma_cpu::CpuEngine::open(&dma_cpu::CpuOptions::new())?);
    /// let device = || dma_sim::sim::SimEngine::open(&Default::default());
    /// let devices: [Arc<dyn DmaEngine>; 2] = [Arc::new(device()?), Arc::new(device()?)];
    /// let engine = AutoEngine::with_devices(cpu, devices, &AutoOptions::new())?;
    /// assert!(engine.explain().is_some());
    /// # Ok::<(), dma_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new).
    pub fn with_devices(
        cpu: Arc<dyn DmaEngine>,
        devices: impl IntoIterator<Item = Arc<dyn DmaEngine>>,
        options: &AutoOptions,
    ) -> Result<Arc<dyn DmaEngine>> {
        devices.into_iter().enumerate().try_fold(cpu, |engine, (i, device)| {
            let first = if i == 0 { "the CPU" } else { "the others" };
            Ok(Arc::new(Self::beside(engine, first, device, options)?) as Arc<dyn DmaEngine>)
        })
    }

    /// Returns the work of each engine so far, and the measured times. [`explain`](DmaEngine::explain)
    /// returns both as text, for all devices. In a forked child, the report of the parent's engine is empty.
    #[must_use]
    pub fn report(&self) -> AutoReport {
        self.shared.ledger.report().unwrap_or_default()
    }

    /// Makes a region of device memory, which `open` obtains from the device's engine.
    fn on_device(
        &self,
        open: impl FnOnce(&dyn DmaEngine) -> Result<Box<dyn RawRegion>>,
    ) -> Result<Box<dyn RawRegion>> {
        let AutoShared { id, device, keys, gives_memory, .. } = &*self.shared;
        if *gives_memory {
            let region = open(&**device)?;
            let key = self.cpu.allocate_raw(&MemoryRequest::new(1))?;
            return Ok(Box::new(AutoRegion::on_device(key, region, *id, keys)));
        }
        let region = open(&*self.cpu)?;
        let info = RegionInfo { engine: *id, ..*region.info() };
        Ok(Box::new(AutoRegion::new(region, None, info, keys)))
    }

    /// Registers the memory of the region `info` with the device. Returns `None` if the device refuses.
    ///
    /// # Safety
    ///
    /// See [`DmaEngine::register_raw`]: `memory` stays valid until the returned region is dropped, and is
    /// accessed through regions only.
    unsafe fn register_with_device(
        &self,
        memory: &HostMemory,
        info: &RegionInfo,
    ) -> Option<Box<dyn RawRegion>> {
        let align = self.shared.device.info().limits.register_alignment as u64;
        if !info.addr.0.is_multiple_of(align) || !(memory.len() as u64).is_multiple_of(align) {
            return None;
        }
        let request = MemoryRequest::new(memory.len()).with_access(info.access);
        // SAFETY: the caller promises that `memory` stays valid until the returned region is dropped.
        let registered = unsafe { self.shared.device.register_raw(memory, &request) };
        registered
            .inspect_err(|error| {
                let (error, len) = (error.to_string(), memory.len());
                dma_core::deferred_log!(warn, error, len, "the device refuses memory: the CPU copies it");
            })
            .ok()
    }
}

impl fmt::Debug for AutoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AutoEngine")
            .field("device", &self.info.device)
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}

// SAFETY: `info` is the CPU's `info` with fewer capabilities and lower limits, so the CPU's queues accept all
// descriptors. The device gets only copies of one segment within its own limits. Regions and queues have the
// id of this engine.
unsafe impl DmaEngine for AutoEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.shared.id
    }

    fn explain(&self) -> Option<String> {
        let own = self.shared.ledger.report()?;
        let others = self.cpu.explain().unwrap_or_default();
        Some(format!("{own}{others}"))
    }

    fn idle_memory(&self) -> Option<&IdleMemory> {
        self.idle_memory.as_ref()
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        request.validate()?;
        if request.place != Place::Host {
            if !self.info.places().any(|place| place == request.place) {
                request.validate_for_host()?;
            }
            if !request.export.is_empty() {
                return Err(no_export());
            }
            return self.on_device(|engine| engine.allocate_raw(request));
        }
        let align = self.shared.device.info().limits.register_alignment;
        let padded = request.len.checked_next_multiple_of(align).ok_or_else(|| request.out_of_memory())?;
        let mut larger = request.clone().with_align(request.align.max(align));
        larger.len = padded;
        let cpu = self.cpu.allocate_raw(&larger)?;
        let mut info = *cpu.info();
        (info.engine, info.len) = (self.shared.id, request.len);
        let shared_with_peers = !request.export.is_empty() && !self.shared.gives_memory;
        let base = info.cpu.filter(|_| !shared_with_peers && !request.access.is_empty());
        let device = base.and_then(|base| {
            // SAFETY: the CPU's region owns these bytes and is dropped after the device's region. Only
            // descriptors and views of the region that is returned here access them.
            let memory = unsafe { HostMemory::from_raw(base, padded, ()) };
            // SAFETY: `AutoRegion` drops the device's region before the CPU's region, which owns the memory.
            unsafe { self.register_with_device(&memory, &info) }
        });
        Ok(Box::new(AutoRegion::new(cpu, device, info, &self.shared.keys)))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: the caller promises that the memory stays valid until the returned region, and with it the
        // CPU's region, is dropped.
        let cpu = unsafe { self.cpu.register_raw(memory, request) }?;
        let info = RegionInfo { engine: self.shared.id, ..*cpu.info() };
        // SAFETY: the returned region also owns the device's region, so the caller's promise for `memory`
        // covers it.
        let device = unsafe { self.register_with_device(memory, &info) };
        Ok(Box::new(AutoRegion::new(cpu, device, info, &self.shared.keys)))
    }

    unsafe fn register_device_raw(
        &self,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: the caller promises that the memory stays allocated until the returned region is dropped,
        // and with it the inner region.
        self.on_device(|engine| unsafe { engine.register_device_raw(memory, request) })
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        if self.shared.gives_memory {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "imports together with a device that has memory of its own",
            )
            .with_hint("import with the engine `cpu`, or leave the device out: `auto:device=none`"));
        }
        let cpu = self.cpu.import_raw(descriptor)?;
        let info = RegionInfo { engine: self.shared.id, ..*cpu.info() };
        Ok(Box::new(AutoRegion::new(cpu, None, info, &self.shared.keys)))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let options = options.clone().with_depth(options.depth_on(&self.info.limits)?);
        let mut cpu = self.cpu.open_queue_raw(&options)?;
        let device = DeviceQueue::open(&self.shared, &options, cpu.events().map(|events| &*events))?;
        Ok(Box::new(AutoQueue::new(&self.shared, cpu, device)))
    }
}
