//! [`RdmaEngine`]: an RDMA device as an engine.

use std::path::Path;
use std::sync::Arc;

use dma_core::{
    Capabilities, DeviceMemory, Discovered, DmaEngine, EngineId, EngineInfo, EngineName, ErrorKind,
    ExportDescriptor, HostMemory, IdleMemory, Limits, MemoryRequest, QueueOptions, RawQueue, RawRegion,
    Result,
};

use crate::RdmaOptions;
use crate::device::{self, Device};
use crate::engine_state::EngineState;
use crate::error::{NAME, error};
use crate::imported::Imported;
use crate::queue::RdmaQueue;
use crate::region::RdmaRegion;
use crate::service;
use crate::verbs::Verbs;

/// Linux's directory of RDMA devices.
const SYSFS: &str = "/sys/class/infiniband";
/// The default depth of a queue.
const DEFAULT_DEPTH: usize = 256;
/// The vendor of Soft-RoCE: `RXE_VENDOR_ID` of Linux.
const SOFT_ROCE: u32 = 0xff_ffff;
/// Maximum length of a descriptor. RDMA messages have at most 2 GiB, and some devices report no limit.
const MAX_TRANSFER: u64 = 1 << 30;

/// A port of an RDMA device. The README describes the set-up.
///
/// ```
/// use dma_rdma::{RdmaEngine, RdmaOptions};
///
/// // Without library or device, the error names the remedy.
/// match RdmaEngine::open(&RdmaOptions::new()) {
///     Ok(engine) => println!("{engine:?}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Debug)]
pub struct RdmaEngine {
    pub(crate) inner: Arc<EngineState>,
    info: EngineInfo,
    idle_memory: IdleMemory,
}

impl RdmaEngine {
    /// Opens the given device, or the first one with an active port. Loads `libibverbs.so.1` (which reads
    /// files) unless an earlier call has loaded it.
    ///
    /// # Errors
    ///
    /// `MissingSdk`: the library cannot be loaded. `NotFound`: there is no RDMA device, no device of this
    /// name, no such port, or no GID. `DeviceFault`: the port is not active. `PermissionDenied`: the process
    /// may not open `/dev/infiniband`. `OutOfRange`, `InvalidArgument`: an option exceeds the device's
    /// limits. `Unsupported`: the processor has no 64-bit addresses. `OutOfResources`, `DeviceLost`, `Os`:
    /// the library fails. Each error names the remedy.
    pub fn open(options: &RdmaOptions) -> Result<Self> {
        let opened = options.validate().and_then(|_| device::load(options.lib_dir.as_deref()));
        opened.and_then(|verbs| Self::with(&verbs, options)).map_err(|e| e.with_operation("open engine"))
    }

    /// Opens a device with the calls of a table.
    pub(crate) fn with(verbs: &Verbs, options: &RdmaOptions) -> Result<Self> {
        if cfg!(not(target_pointer_width = "64")) {
            return Err(error(ErrorKind::Unsupported, "the RDMA engine needs 64-bit addresses")
                .with_hint("name another engine, such as cpu"));
        }
        let device = Device::open(verbs, options)?;
        let most = device.attr.max_qp_wr.min(device.attr.max_cqe.saturating_sub(1));
        let most = usize::try_from(most).unwrap_or(0).clamp(1, RdmaOptions::DEPTH_MAX);
        let depth = options.depth.unwrap_or(DEFAULT_DEPTH.min(most));
        check_depth(depth, most)?;
        // A copy is an RDMA read, because its completion means that the bytes are in place.
        let mut capabilities =
            Capabilities::ALLOCATE | Capabilities::REGISTER | Capabilities::IN_ORDER | Capabilities::IMPORT;
        // Soft-RoCE repeats a fenced read only when no read is in flight, but it counts this read as well, so
        // the read never ends: `rxe_wqe_is_fenced` in Linux's rxe_req.c.
        if device.attr.vendor_id != SOFT_ROCE {
            capabilities |= Capabilities::FENCE;
        }
        capabilities.set(Capabilities::REGISTER_DMABUF, device.takes_dmabufs());
        if service::place(&device).is_some() {
            capabilities |= Capabilities::EXPORT;
        }
        let longest = match u64::from(device.port.attr.max_msg_sz) {
            0 => MAX_TRANSFER,
            longest => longest.min(MAX_TRANSFER),
        };
        let limits = Limits::default()
            .with_max_transfer(longest)
            .with_max_segments(1)
            .with_queue_depth(most, depth)
            .with_max_queues(usize::try_from(device.attr.max_qp).ok().filter(|most| *most > 0))
            .with_alignment(1, 64);
        let firmware: Vec<u8> =
            device.attr.fw_ver.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
        let version = format!("libibverbs, firmware {}", String::from_utf8_lossy(&firmware));
        let port = format!("{} port {}", device.name, device.port.number);
        let node = dma_vendor::host::numa_node(&Path::new(SYSFS).join(&device.name).join("device"));
        let info = EngineInfo::new(NAME, port, version)
            .with_numa_node(node)
            .with_capabilities(capabilities)
            .with_limits(limits);
        let info = match device.verbs.rdma_emu_model {
            Some(_) => info.with_model("rdma-emu"),
            None => info,
        };
        Ok(Self { inner: Arc::new(EngineState::new(device)), info, idle_memory: IdleMemory::pinned() })
    }

    fn check_export(&self, request: &MemoryRequest) -> Result<()> {
        let exports = self.info.capabilities.contains(Capabilities::EXPORT);
        if request.export.is_empty() || exports { Ok(()) } else { Err(service::no_address()) }
    }
}

fn check_depth(depth: usize, most: usize) -> Result<()> {
    if (1..=most).contains(&depth) {
        return Ok(());
    }
    Err(error(ErrorKind::OutOfRange, format!("a depth of {depth}"))
        .with_numbers(depth as u64, most as u64)
        .with_hint("the device's max_qp_wr and max_cqe limit the depth (`ibv_devinfo -v`): lower the depth"))
}

#[expect(unsafe_code, reason = "the safe API relies on the description of an engine")]
// SAFETY: `info` holds the properties that the device reports, and they hold for all queues.
unsafe impl DmaEngine for RdmaEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.inner.id
    }

    fn idle_memory(&self) -> Option<&IdleMemory> {
        Some(&self.idle_memory)
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.check_export(request)?;
        request.validate_for_host()?;
        Ok(Box::new(RdmaRegion::allocate(&self.inner, request)?))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        self.check_export(request)?;
        // SAFETY: the caller keeps the memory mapped as long as the region exists.
        let region = unsafe { RdmaRegion::register(&self.inner, memory, request) }?;
        Ok(Box::new(region))
    }

    unsafe fn register_device_raw(
        &self,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        self.check_export(request)?;
        // SAFETY: this function's caller promises that the memory stays allocated.
        let region = unsafe { RdmaRegion::register_device(&self.inner, memory, request) }?;
        Ok(Box::new(region))
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Ok(Box::new(Imported::new(&self.inner, descriptor)?))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let depth = options.depth_on(&self.info.limits)?;
        Ok(Box::new(RdmaQueue::open(&self.inner, depth)?))
    }
}

/// Lists the RDMA devices of this machine. Devices that cannot be used, and a missing library, are listed
/// with the error and its remedy. Opens each device briefly.
#[must_use]
pub fn discover(options: &RdmaOptions) -> Vec<Discovered> {
    match device::load(options.lib_dir.as_deref()) {
        Ok(verbs) => discover_with(&verbs, options),
        Err(error) => {
            vec![Discovered::new(
                EngineName::of(RdmaOptions::NAME_FORMAT),
                Err(error.with_operation("open engine")),
            )]
        }
    }
}

pub(crate) fn discover_with(verbs: &Verbs, options: &RdmaOptions) -> Vec<Discovered> {
    let plain = EngineName::of(RdmaOptions::NAME_FORMAT);
    let names = match device::names(verbs) {
        Ok(names) if !names.is_empty() => names,
        // The error names the missing requirement.
        _ => {
            return vec![Discovered::opened(plain, RdmaEngine::with(verbs, options))];
        }
    };
    let discovered = names.into_iter().map(|device| {
        let name = plain.clone().with_device(device.clone()).unwrap_or_else(|_| plain.clone());
        Discovered::opened(name, RdmaEngine::with(verbs, &options.clone().with_device(device)))
    });
    discovered.collect()
}
