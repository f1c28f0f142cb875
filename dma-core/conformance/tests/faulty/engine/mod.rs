//! An engine that breaks the contract in one way. It forwards all calls to an engine that conforms.
#![expect(unsafe_code, reason = "implements the raw traits")]

mod queue;

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dma_core::{
    Access, Capabilities, DeviceAddr, DeviceMemory, DmaEngine, EngineId, EngineInfo, Error, ErrorKind,
    ExportDescriptor, HostMemory, IdleMemory, Limits, MemoryRequest, Place, QueueOptions, RawExport,
    RawQueue, RawRegion, RegionInfo, RegionKey, Result,
};
use queue::FaultyQueue;

/// A breach of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,

    // The description of the engine.
    DeviceWithoutName,
    TinyTransfers,
    NoSegments,
    NoDefaultDepth,
    OddAlignment,

    // Regions.
    NotZeroed,
    Misaligned,
    MoreRightsThanRequested,
    OtherEnginesId,
    OneKeyForAll,
    ZeroBytesAllocated,
    NoRightsAllocated,
    DevicePlaceIgnored,
    ExportableUndeclared,
    AllocatesUndeclared,
    ExportsUndeclared,
    ImportsUndeclared,
    RegistersUndeclared,
    RegistersNothing,
    RegistersReadOnlyForWriting,
    RegistersACopy,
    RegistersOneByteLess,
    RegistersAnyDeviceAddress,
    IdleMemoryChanges,

    // Exports.
    ExportsWholeRegion,
    ExportsForWriting,
    ExportsBeyondRequest,
    RevokesNothing,
    ImportsForTheCpu,
    ImportsOneByteLess,
    ImportsGarbage,
    ImportsOfOthers,
    ImportsNothing,

    // Queues.
    QueueOfOtherEngine,
    ShallowQueue,
    DeeperThanTheLimit,
    AcceptsBeyondDepth,
    AcceptsLessThanDepth,
    FullIsAnError,
    ClaimsOrder,
    FencesIgnored,
    CodeDropped,
    EventsComeAndGo,

    // Reports. "Third" means the third copy of each queue.
    ThirdIsLost,
    ThirdFails,
    ThirdIsReportedTwice,
    TokensAreCutOff,
    ReportsWithoutDescriptor,
    ReportsBeyondTheArray,

    // Bytes.
    NothingIsCopied,
    ThirdIsWrong,
    LongCopiesAreShort,
    ByteAfterIsWritten,
    LastPartOfListIsWrong,
    PatternIsReversed,
    PatternRestartsInLists,
    SecondDestinationIsWrong,

    // Results.
    AllCompareEqual,
    DifferenceIsOff,
    CrcWithoutSeed,
    CrcOfCopyIsWrong,
    CopyWithCrcIsWrong,

    // The end of a queue.
    StoppedAccepts,
    StoppedRefusesWrongly,
    StoppedTwiceStarts,
    StopFails,
    StopIsDone,
    StopWritesLater,
    StopReportsNothing,

    // The inline executor.
    ExecutorCopiesLess,
    ExecutorChangesResults,

    // The event.
    ArmDoesNothing,
    EventStaysReadable,
}

/// An engine with a fault.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn DmaEngine>,
    info: EngineInfo,
    fault: Fault,
    had_events: Arc<AtomicBool>,
    idle_memory: [IdleMemory; 2],
    /// Number of calls of `idle_memory`.
    idle_calls: AtomicUsize,
}

impl Faulty {
    pub(crate) fn new(inner: impl DmaEngine + 'static, fault: Fault) -> Self {
        let mut info = inner.info().clone();
        let Limits { max_transfer, max_segments, max_queue_depth, default_queue_depth, .. } =
            &mut info.limits;
        match fault {
            Fault::DeviceWithoutName => info.device.clear(),
            Fault::TinyTransfers => *max_transfer = 32,
            Fault::NoSegments => *max_segments = 0,
            Fault::NoDefaultDepth => *default_queue_depth = 0,
            Fault::OddAlignment => info.limits.preferred_alignment = 48,
            Fault::AcceptsBeyondDepth => (*max_queue_depth, *default_queue_depth) = (4, 4),
            Fault::ClaimsOrder => info.capabilities |= Capabilities::IN_ORDER,
            Fault::AllocatesUndeclared => info.capabilities -= Capabilities::ALLOCATE,
            Fault::ExportsUndeclared => info.capabilities -= Capabilities::EXPORT,
            Fault::ImportsUndeclared => info.capabilities -= Capabilities::IMPORT,
            Fault::RegistersUndeclared => info.capabilities -= Capabilities::REGISTER,
            _ => {}
        }
        Self {
            inner: Arc::new(inner),
            info,
            fault,
            had_events: Arc::default(),
            idle_memory: Default::default(),
            idle_calls: AtomicUsize::new(0),
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Wraps a region, whose description is `change`d.
    fn region(&self, inner: Box<dyn RawRegion>, change: impl FnOnce(&mut RegionInfo)) -> Box<dyn RawRegion> {
        let mut info = *inner.info();
        change(&mut info);
        Box::new(FaultyRegion { inner, info, fault: self.fault })
    }
}

// SAFETY: the inner engine conforms. Each fault is one that a conformance case must detect, and the tests run
// a fault with these cases alone. The comments at the faults that access memory say why the accesses are
// sound.
unsafe impl DmaEngine for Faulty {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.inner.id()
    }

    fn idle_memory(&self) -> Option<&IdleMemory> {
        match self.fault {
            Fault::None => Some(&self.idle_memory[0]),
            Fault::IdleMemoryChanges => {
                Some(&self.idle_memory[self.idle_calls.fetch_add(1, Ordering::Relaxed) % 2])
            }
            _ => None,
        }
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        let mut request = request.clone();
        match self.fault {
            Fault::ZeroBytesAllocated => request.len = request.len.max(1),
            Fault::NoRightsAllocated if request.access.is_empty() => request.access = Access::READ,
            Fault::DevicePlaceIgnored => request.place = Place::Host,
            Fault::ExportableUndeclared => request.export = Access::empty(),
            Fault::ExportsBeyondRequest | Fault::ExportsForWriting if !request.export.is_empty() => {
                request.export = Access::all();
            }
            Fault::Misaligned => request.len += 1,
            _ => {}
        }
        let region = self.inner.allocate_raw(&request)?;
        Ok(self.region(region, |info| match self.fault {
            // SAFETY: the region is new and has `len` bytes, which the CPU may write.
            Fault::NotZeroed => unsafe { info.addr.offset(info.len - 1).as_ptr().write(1) },
            Fault::Misaligned => {
                (info.addr, info.len) = (info.addr.offset(1), info.len - 1);
                info.cpu = NonNull::new(info.addr.as_ptr());
            }
            Fault::MoreRightsThanRequested => info.access = Access::all(),
            Fault::OtherEnginesId => info.engine = EngineId::unique(),
            Fault::OneKeyForAll => info.key = RegionKey(1),
            _ => {}
        }))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        if self.is(Fault::RegistersNothing) {
            return Err(Error::new(ErrorKind::Unsupported, "this engine cannot register memory"));
        }
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        let region = unsafe { self.inner.register_raw(memory, request) }?;
        if self.is(Fault::RegistersACopy) {
            let request = MemoryRequest::new(memory.len()).with_access(request.access);
            let copy = self.inner.allocate_raw(&request)?;
            let to = copy.info().addr.as_ptr();
            // SAFETY: both have this length, and the copy is new.
            unsafe { to.copy_from_nonoverlapping(memory.as_ptr().as_ptr(), memory.len()) };
            return Ok(copy);
        }
        Ok(self.region(region, |info| match self.fault {
            Fault::RegistersReadOnlyForWriting => info.access = Access::all(),
            Fault::RegistersOneByteLess => info.len -= 1,
            _ => {}
        }))
    }

    unsafe fn register_device_raw(
        &self,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        if self.is(Fault::RegistersAnyDeviceAddress) {
            let region = self.inner.allocate_raw(&MemoryRequest::new(memory.len()))?;
            return Ok(self.region(region, |info| (info.addr, info.cpu) = (memory.addr(), None)));
        }
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        unsafe { self.inner.register_device_raw(memory, request) }
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        let garbage = matches!(descriptor.native(), b"garbage" | b"64 bytes");
        match self.fault {
            Fault::ImportsNothing => {
                return Err(Error::new(ErrorKind::Unsupported, "this engine cannot import memory"));
            }
            Fault::ImportsGarbage | Fault::ImportsUndeclared if garbage => {
                return self.inner.allocate_raw(&MemoryRequest::new(64));
            }
            Fault::ImportsOfOthers if descriptor.backend() != self.info.backend => {
                return self.inner.allocate_raw(&MemoryRequest::new(64));
            }
            _ => {}
        }
        let region = self.inner.import_raw(descriptor)?;
        Ok(self.region(region, |info| match self.fault {
            // The bytes are never freed.
            Fault::ImportsForTheCpu => {
                let bytes = NonNull::from(Vec::leak(vec![0; info.len])).cast();
                (info.addr, info.cpu) = (DeviceAddr::of(bytes), Some(bytes));
            }
            Fault::ImportsOneByteLess => info.len -= 1,
            _ => {}
        }))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let mut options = options.clone();
        let limits = &self.info.limits;
        match self.fault {
            Fault::DeeperThanTheLimit => options.depth = options.depth.min(limits.max_queue_depth),
            Fault::AcceptsBeyondDepth => options.depth = options.depth_on(limits)? + 1,
            _ => {}
        }
        let inner = self.inner.open_queue_raw(&options)?;
        Ok(Box::new(FaultyQueue::new(inner, self.fault, Arc::clone(&self.had_events))))
    }
}

#[derive(Debug)]
struct FaultyRegion {
    inner: Box<dyn RawRegion>,
    info: RegionInfo,
    fault: Fault,
}

// SAFETY: the inner region conforms, and lives as long as this value.
unsafe impl RawRegion for FaultyRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        let (mut offset, mut len, mut granted) = (offset, len, rights);
        match self.fault {
            Fault::ExportsWholeRegion => (offset, len) = (0, self.info.len),
            Fault::ExportsForWriting if rights == Access::READ => granted = Access::all(),
            Fault::ExportsForWriting => return Err(Error::bare(ErrorKind::AccessDenied)),
            _ => {}
        }
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them. The
        // bytes and rights that a fault adds belong to memory that the case uses by copies alone.
        let export = match unsafe { self.inner.export(offset, len, granted) } {
            Err(_) if self.fault == Fault::ExportsUndeclared => return Ok(Box::new(NoExport)),
            export => export?,
        };
        Ok(if self.fault == Fault::RevokesNothing {
            Box::new(Unrevoked(ManuallyDrop::new(export)))
        } else {
            export
        })
    }
}

/// An export of nothing.
#[derive(Debug)]
struct NoExport;

// SAFETY: no peer can import it.
unsafe impl RawExport for NoExport {
    fn native(&self) -> &[u8] {
        b"nothing"
    }

    fn revoke(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct Unrevoked(ManuallyDrop<Box<dyn RawExport>>);

// SAFETY: the inner export conforms. The case that runs with this fault keeps the memory and accesses it by
// copies alone, so that a peer that still reaches it does no harm.
unsafe impl RawExport for Unrevoked {
    fn native(&self) -> &[u8] {
        self.0.native()
    }

    fn revoke(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }
}
