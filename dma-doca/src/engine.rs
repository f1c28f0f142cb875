//! [`DocaEngine`]: a BlueField as an engine.
#![expect(unsafe_code, reason = "implements an unsafe function of `DmaEngine`")]

use std::path::Path;
use std::sync::Arc;

use dma_core::{
    Capabilities, DeviceMemory, DmaEngine, EngineId, EngineInfo, ErrorKind, ExportDescriptor, HostMemory,
    IdleMemory, Limits, MemoryRequest, PciAddress, QueueOptions, RawQueue, RawRegion, Result,
};
use doca_sys::bindings::DOCA_SUCCESS;

use crate::device::{Device, List, pick};
use crate::engine_state::EngineState;
use crate::error::{NAME, error};
use crate::ffi::{Sdk, creation};
use crate::options::{DocaOptions, Fabric};
use crate::queue::DocaQueue;
use crate::region::DocaRegion;

/// The default depth of a queue.
const DEPTH: usize = 256;
/// The maximum number of tasks of a queue, if the library does not report it.
const MOST: u32 = 2048;

/// An opened BlueField device.
///
/// Memory and queues of an engine keep its device open. Each queue has a DMA context and a progress engine of
/// its own. All queues of all functions of a card share the card's DMA hardware.
///
/// ```no_run
/// use dma_core::{DmaEngineExt, QueueOptions};
/// use dma_doca::{DocaEngine, DocaOptions};
///
/// # fn main() -> dma_core::Result<()> {
/// let engine = DocaEngine::open(&DocaOptions::new().with_address("03:00.0".parse()?))?;
/// let queue = engine.open_queue(&QueueOptions::new())?;
/// let (mut src, dst) = (engine.allocate(4096)?, engine.allocate(4096)?);
/// src.fill(7);
/// let (src, dst) = queue.copy(src, dst)?.wait()?;
/// assert_eq!(src[..], dst[..]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DocaEngine {
    inner: Arc<EngineState>,
    idle_memory: IdleMemory,
}

impl DocaEngine {
    /// Loads the SDK, and opens the device that `options` name. The SDK stays loaded.
    ///
    /// Blocks for some milliseconds, while libraries are read and the device is opened.
    ///
    /// # Errors
    ///
    /// `MissingSdk` if no usable SDK is installed; `InvalidArgument` if several devices have the address;
    /// `NotFound` if no device has it; `Unsupported` for a device without DMA; `PermissionDenied`; other
    /// errors of the SDK. Each error names the remedy.
    pub fn open(options: &DocaOptions) -> Result<Self> {
        Self::open_device(options).map_err(|e| e.with_operation("open engine").with_backend(NAME))
    }

    fn open_device(options: &DocaOptions) -> Result<Self> {
        let sdk = Sdk::new(options.load()?);
        crate::log::forward(&sdk, options.log);
        let list = List::new(&sdk)?;
        let device = Arc::new(pick(&list, options, |item| item.problem(&item.capabilities()))?.open()?);
        drop(list);
        let info = describe(&device, options)?;
        let inner = EngineState {
            table: Arc::default(),
            id: EngineId::unique(),
            fabric: options.export,
            info,
            device,
        };
        Ok(Self { inner: Arc::new(inner), idle_memory: IdleMemory::pinned() })
    }
}

/// Describes an opened device.
fn describe(device: &Arc<Device>, options: &DocaOptions) -> Result<EngineInfo> {
    let (sdk, can) = (&device.sdk, &device.capabilities);
    let common = &sdk.common;
    let mut capabilities = Capabilities::ALLOCATE | Capabilities::REGISTER;
    capabilities.set(Capabilities::REGISTER_DMABUF, common.doca_mmap_set_dmabuf_memrange.is_some());
    let exports = match options.export {
        Fabric::Pci => can.export_pci,
        Fabric::Rdma => common.doca_mmap_export_rdma.is_some(),
    };
    capabilities.set(Capabilities::EXPORT, exports);
    capabilities.set(Capabilities::IMPORT, can.import_pci);
    let most = max_tasks(device)? as usize;
    let default = options.depth.unwrap_or(DEPTH.min(most));
    if default == 0 || default > most {
        return Err(error(ErrorKind::OutOfRange, format!("a depth of {default}"))
            .with_numbers(default as u64, most as u64)
            .with_hint("choose a depth from 1 to the device's limit"));
    }
    let lists = common.doca_buf_chain_list.is_some();
    let limits = Limits::default()
        .with_max_transfer(can.max_buf_size)
        .with_max_segments(if lists { can.max_list_len as usize } else { 1 })
        .with_queue_depth(most, default)
        .with_alignment(1, 64);
    let info = EngineInfo::new(NAME, device.address.clone(), format!("DOCA {}", sdk.version))
        .with_capabilities(capabilities)
        .with_limits(limits);
    Ok(match device.model() {
        Some(model) => info.with_model(model),
        None => info.with_numa_node(numa_node(&device.address)),
    })
}

/// Returns the NUMA node that the kernel reports for the device's address.
fn numa_node(address: &str) -> Option<u32> {
    let address: PciAddress = address.parse().ok()?;
    dma_vendor::host::numa_node(&Path::new(dma_vendor::host::pci::SYSFS).join(address.to_string()))
}

/// Returns the maximum number of tasks of a context. Only a context can report this number, so this function
/// creates one.
fn max_tasks(device: &Arc<Device>) -> Result<u32> {
    let dma_calls = &device.sdk.dma;
    let Some(ask) = dma_calls.doca_dma_cap_get_max_num_tasks else { return Ok(MOST) };
    let _serial = creation();
    let mut dma = std::ptr::null_mut();
    // SAFETY: the device is open, and the pointer can be written.
    let code = unsafe { (dma_calls.doca_dma_create)(device.raw(), &raw mut dma) };
    crate::error::check(&device.sdk, "doca_dma_create", code)?;
    let mut most = 0;
    // SAFETY: the context was created above, and `most` can be written.
    let code = unsafe { ask(dma, &raw mut most) };
    // SAFETY: the context was created above and never started, and is not used again.
    unsafe { (dma_calls.doca_dma_destroy)(dma) };
    Ok(if code == DOCA_SUCCESS && most > 0 { most } else { MOST })
}

// SAFETY: `info` holds the limits that the device and its library report, and queues use the same device.
unsafe impl DmaEngine for DocaEngine {
    fn info(&self) -> &EngineInfo {
        &self.inner.info
    }

    fn id(&self) -> EngineId {
        self.inner.id
    }

    fn idle_memory(&self) -> Option<&IdleMemory> {
        Some(&self.idle_memory)
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        request.validate_for_host().map_err(|e| e.with_backend(NAME))?;
        Ok(Box::new(DocaRegion::allocate(&self.inner, request)?))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        if memory.is_empty() {
            return Err(error(ErrorKind::InvalidArgument, "no bytes to register"));
        }
        Ok(Box::new(DocaRegion::register(&self.inner, memory, request)?))
    }

    unsafe fn register_device_raw(
        &self,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        Ok(Box::new(DocaRegion::register_device(&self.inner, memory, request)?))
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        if !self.inner.info.capabilities.contains(Capabilities::IMPORT) {
            let message = format!("device {} does not import memory", self.inner.device.address);
            return Err(
                error(ErrorKind::Unsupported, message).with_hint("import on the DPU's side of the card")
            );
        }
        Ok(Box::new(DocaRegion::import(&self.inner, descriptor)?))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let limits = &self.inner.info.limits;
        let depth = options.depth_on(limits)?;
        Ok(Box::new(DocaQueue::open(&self.inner, &options.clone().with_depth(depth))?))
    }
}
