//! [`DsaEngine`]: a DSA work queue as an engine.

use std::sync::{Arc, RwLock};

use dma_core::{
    Capabilities, Discovered, DmaEngine, EngineId, EngineInfo, EngineName, Error, ErrorKind,
    ExportDescriptor, HostMemory, IdleMemory, Limits, MemoryRequest, QueueOptions, RawQueue, RawRegion,
    Result,
};
use dma_process::ForkMark;

use crate::DsaOptions;
use crate::device::{self, WorkQueue};
use crate::error::{NAME, error};
use crate::opened::{Live, Opened};
use crate::portal::{Entries, Portal};
use crate::queue::DsaQueue;
use crate::region::DsaRegion;
use dsa_sys::op;

/// The default depth of a queue.
const DEFAULT_DEPTH: usize = 256;

/// A work queue of Intel DSA. The README describes the set-up.
///
/// All queues of the engine share the work queue's entries.
///
/// ```
/// use dma_dsa::{DsaEngine, DsaOptions};
///
/// // Without driver or device, the error names the remedy.
/// match DsaEngine::open(&DsaOptions::new()) {
///     Ok(engine) => println!("{engine:?}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Debug)]
pub struct DsaEngine {
    opened: Arc<Opened>,
    id: EngineId,
    info: EngineInfo,
    idle_memory: IdleMemory,
}

impl DsaEngine {
    /// Opens the given work queue, or the first one that can be used. Does not block.
    ///
    /// # Errors
    ///
    /// `NotFound`: there is no driver, no device, or no such work queue that is enabled. `InUse`: the kernel
    /// uses the work queue, or it is dedicated and already open. `PermissionDenied`: the process may not open
    /// the work queue's file. `Malformed`: the kernel's description is not complete. `Unsupported`: the
    /// processor is not x86-64, there is no PASID, or the work queue does not copy. `OutOfResources`: the
    /// work queue has 0 entries. `OutOfRange`: the depth exceeds the device's limit. Each error names the
    /// remedy.
    pub fn open(options: &DsaOptions) -> Result<Self> {
        Self::open_unnamed(options).map_err(|e| e.with_operation("open engine"))
    }

    fn open_unnamed(options: &DsaOptions) -> Result<Self> {
        check_processor()?;
        if let Some(name) = &options.queue {
            return Self::open_queue_named(options, name);
        }
        let mut first_error: Option<Error> = None;
        for name in device::names(options)? {
            match Self::open_queue_named(options, &name) {
                Ok(engine) => return Ok(engine),
                Err(e) => first_error = first_error.or(Some(e)),
            }
        }
        Err(first_error.unwrap_or_else(|| error(ErrorKind::NotFound, "there is no work queue")))
    }

    fn open_queue_named(options: &DsaOptions, name: &str) -> Result<Self> {
        let wq = WorkQueue::read(options, name)?;
        let portal = wq.open(options)?;
        Self::on(wq, portal, options)
    }

    /// Makes an engine from a work queue and the portal that submits to it.
    pub(crate) fn on(wq: WorkQueue, portal: Box<dyn Portal>, options: &DsaOptions) -> Result<Self> {
        let batches = portal.takes_batches() && wq.has(op::BATCH) && wq.max_batch >= 2;
        let batch = if batches { wq.max_batch } else { 1 } as usize;
        let most = (wq.size as usize).saturating_mul(batch).min(DsaOptions::DEPTH_MAX);
        let depth = options.depth.unwrap_or(DEFAULT_DEPTH.min(most));
        check_depth(depth, most)?;
        let mut capabilities = Capabilities::ALLOCATE | Capabilities::REGISTER;
        // The device executes fences within a batch.
        capabilities.set(Capabilities::FENCE, batch > 1);
        for (opcode, capability) in [
            (op::FILL, Capabilities::FILL),
            (op::COMPARE, Capabilities::COMPARE),
            (op::CRC, Capabilities::CRC32C),
            (op::COPY_CRC, Capabilities::COPY_CRC32C),
            (op::DUALCAST, Capabilities::COPY_TO_BOTH),
        ] {
            capabilities.set(capability, wq.has(opcode));
        }
        let limits = Limits::default()
            .with_max_transfer(wq.max_transfer)
            .with_max_segments(1)
            .with_queue_depth(most, depth)
            .with_alignment(1, 64);
        let version = format!("DSA {}, idxd, {}", wq.version, portal.name());
        let mut info = EngineInfo::new(NAME, wq.name.clone(), version)
            .with_numa_node(wq.numa_node)
            .with_capabilities(capabilities)
            .with_limits(limits);
        if let Some(stand_in) = &wq.stand_in {
            info = info.with_model(stand_in.clone());
        }
        let entries = (!wq.shared).then(|| Entries::new(wq.size));
        let fork = ForkMark::new();
        let live = RwLock::new(Live { portal: Some(portal), generation: 0 });
        let opened = Opened { wq, options: options.clone(), live, entries, fork, batch };
        let idle_memory = IdleMemory::new();
        Ok(Self { opened: Arc::new(opened), id: EngineId::unique(), info, idle_memory })
    }

    /// Returns the opened work queue.
    #[cfg(test)]
    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }
}

fn check_depth(depth: usize, most: usize) -> Result<()> {
    if (1..=most).contains(&depth) {
        return Ok(());
    }
    Err(error(ErrorKind::OutOfRange, format!("a depth of {depth}"))
        .with_numbers(depth as u64, most as u64)
        .with_hint(
            "the work queue's entries times its longest batch limit the depth: lower the depth, or raise --wq-size",
        ))
}

#[expect(unsafe_code, reason = "the safe API relies on the description of an engine")]
// SAFETY: `info` holds the properties that the kernel reports for the work queue, and they hold for all
// queues of the engine.
unsafe impl DmaEngine for DsaEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.id
    }

    fn idle_memory(&self) -> Option<&IdleMemory> {
        Some(&self.idle_memory)
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        if !request.export.is_empty() {
            return Err(error(
                ErrorKind::Unsupported,
                "DSA copies within one process, so it cannot export memory",
            ));
        }
        request.validate_for_host()?;
        Ok(Box::new(DsaRegion::allocate(self.id, request)?))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        Ok(Box::new(DsaRegion::register(self.id, memory, request.access)?))
    }

    fn import_raw(&self, _: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Err(error(ErrorKind::Unsupported, "DSA copies within one process, so it cannot import memory"))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let depth = options.depth_on(&self.info.limits)?;
        Ok(Box::new(DsaQueue::open(&self.opened, self.id, depth, options.hint)))
    }
}

/// Refuses processors that have no DSA, whatever their drivers.
fn check_processor() -> Result<()> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(error(ErrorKind::Unsupported, "DSA is a device of Intel's processors")
            .with_hint("name another engine, such as cpu"));
    }
    Ok(())
}

/// Lists the work queues of this machine. A work queue that cannot be used, and a missing driver, are
/// listed with the error and its remedy. Opens each usable work queue briefly.
#[must_use]
pub fn discover(options: &DsaOptions) -> Vec<Discovered> {
    let plain = EngineName::of(DsaOptions::NAME_FORMAT);
    let names = match check_processor().and_then(|()| device::names(options)) {
        Ok(names) => names,
        Err(error) => return vec![Discovered::new(plain, Err(error.with_operation("open engine")))],
    };
    let discovered = names.into_iter().map(|queue| {
        let name = plain.clone().with_device(queue.clone()).unwrap_or_else(|_| plain.clone());
        Discovered::opened(name, DsaEngine::open(&options.clone().with_queue(queue)))
    });
    discovered.collect()
}
