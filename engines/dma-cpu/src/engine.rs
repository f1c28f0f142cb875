//! [`CpuEngine`]: the CPU as a DMA device.

use std::fmt;
use std::sync::Arc;

use dma_core::{
    CacheHint, Capabilities, DmaEngine, EngineId, EngineInfo, ExportDescriptor, HostMemory, IdleMemory,
    Limits, MemoryRequest, QueueOptions, RawQueue, RawRegion, Result,
};

use super::execute::MAX_TRANSFER;
use super::pool::Pool;
use super::queue::CpuQueue;
use super::region::CpuRegion;
use super::{CpuOptions, Kernel, NAME};

/// The CPU as a DMA device. This engine runs on every machine, at the speed of the machine's fastest copies.
///
/// ```
/// use dma_core::{DmaEngineExt, QueueOptions};
/// use dma_cpu::{CpuEngine, CpuOptions};
///
/// let engine = CpuEngine::open(&CpuOptions::new())?;
/// let queue = engine.open_queue(&QueueOptions::new())?;
/// let mut src = engine.allocate(1 << 20)?;
/// src.fill(7);
/// let (src, dst) = queue.copy(src, engine.allocate(1 << 20)?)?.wait()?;
/// assert_eq!(src[..], dst[..]);
/// # Ok::<(), dma_core::Error>(())
/// ```
///
/// # Behavior
///
/// - Operations of up to 16 KiB (or [`CpuOptions::inline_limit`], if that is less) are executed in the call
///   that submits them ([`InlineExecutor`](dma_core::InlineExecutor)). Other short operations are executed
///   when they are passed to the queue. Long operations are split into chunks of up to 256 KiB, which the
///   engine's threads and polling threads copy: see [`CpuOptions`]. A poll copies at most about one chunk.
/// - Batches of copies of 4 KiB or more are executed four copies side by side if that is faster, which is the
///   case for data that is not in the cache.
/// - A descriptor has at most 16 MiB, so that long copies show progress. The safe API splits longer copies.
/// - Operations of one queue complete in any order, except across fences.
/// - The engine executes comparisons, CRC-32C and copies with CRC-32C; several threads share long ones. A
///   copy with CRC-32C reads the source once.
/// - Memory from [`allocate`](dma_core::DmaEngineExt::allocate) is resident from the start. Memory made
///   [exportable](MemoryRequest::exportable) can be imported by another process of the same machine, on
///   Linux: see [`dma_ipc`]. After the peer has revoked its export or exited, copies to and from its memory
///   fail with [`Revoked`](dma_core::ErrorKind::Revoked).
/// - The length, the [`CacheHint`] and measured times select the kernel: see [`CopyTuner`](super::CopyTuner).
pub struct CpuEngine {
    id: EngineId,
    info: EngineInfo,
    inline_limit: usize,
    hint: CacheHint,
    pool: Arc<Pool>,
    idle_memory: IdleMemory,
}

impl CpuEngine {
    /// Opens an engine. The engine's threads start with the first queue.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if a number in `options` is out of range. The error names the allowed range.
    pub fn open(options: &CpuOptions) -> Result<Self> {
        let threads = options.check()?;
        let capabilities = Capabilities::CPU_COPIES
            | Capabilities::FILL
            | Capabilities::FENCE
            | Capabilities::COMPARE
            | Capabilities::CRC32C
            | Capabilities::COPY_CRC32C
            | Capabilities::COPY_TO_BOTH
            | Capabilities::ALLOCATE
            | Capabilities::REGISTER
            | Capabilities::EXPORT
            | Capabilities::IMPORT;
        let limits = Limits::default()
            .with_max_transfer(MAX_TRANSFER as u64)
            .with_max_segments(1024)
            .with_queue_depth(65_536, 256)
            .with_alignment(1, 64);
        let streaming = Kernel::streaming().map_or("no streaming kernel", |kernel| kernel.name());
        let device = match threads {
            0 => format!("the caller's thread, memcpy and {streaming}"),
            1 => format!("the caller's thread and 1 more, memcpy and {streaming}"),
            n => format!("the caller's thread and {n} more, memcpy and {streaming}"),
        };
        let info = EngineInfo::new(NAME, device, env!("CARGO_PKG_VERSION"))
            .with_capabilities(capabilities)
            .with_limits(limits);
        Ok(Self {
            id: EngineId::unique(),
            info,
            inline_limit: options.inline_limit,
            hint: options.hint,
            pool: Arc::new(Pool::new(threads)),
            idle_memory: IdleMemory::new(),
        })
    }
}

impl fmt::Debug for CpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuEngine")
            .field("device", &self.info.device)
            .field("threads", &self.pool.size())
            .field("inline_limit", &self.inline_limit)
            .field("hint", &self.hint)
            .finish_non_exhaustive()
    }
}

#[expect(unsafe_code, reason = "the safe API relies on the description of an engine")]
// SAFETY: queues accept lists of any length and descriptors of up to the length in `info`, and implement
// every capability in `info`.
unsafe impl DmaEngine for CpuEngine {
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
        request.validate_for_host()?;
        Ok(Box::new(CpuRegion::allocate(self.id, request)?))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        Ok(Box::new(CpuRegion::register(self.id, memory, request.access)))
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Ok(Box::new(CpuRegion::import(self.id, descriptor)?))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let hint = if options.hint == CacheHint::Auto { self.hint } else { options.hint };
        let options = options.clone().with_depth(options.depth_on(&self.info.limits)?);
        Ok(Box::new(CpuQueue::open(self.id, &options, self.inline_limit, hint, &self.pool)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_debug_view_is_what_it_was_opened_with() {
        let mut options = CpuOptions::new();
        (options.threads, options.hint) = (Some(2), CacheHint::Cold);
        let engine = CpuEngine::open(&options).expect("it opens");
        let shown = format!("{engine:?}");
        assert!(shown.contains("threads: 2, inline_limit: 32768, hint: Cold"), "{shown}");
        assert!(shown.len() < 300, "{shown}");
    }
}
