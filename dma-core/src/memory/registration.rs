//! Allocation and registration of memory on an engine.

use std::num::NonZero;
use std::ptr::NonNull;

use super::empty_region;
use super::idle;
use super::numa::{self, NumaNodes};
use super::range::Range;
use super::region::{Region, Registered};
use super::{Buffer, BufferMut, PageMemory};
use crate::{
    Access, Capabilities, DeviceMemory, DmaEngine, Error, ErrorKind, HostMemory, MemoryRequest, Place,
    RegionInfo, Result,
};

/// Registers memory as a buffer that the device may only read.
pub(crate) fn register_read_only<E: DmaEngine + ?Sized>(engine: &E, memory: HostMemory) -> Result<Buffer> {
    refuse_shared(engine, &memory)?;
    let region = register(engine, memory, &MemoryRequest::new(0).with_access(Access::READ))?;
    Ok(Buffer(Range::whole(region)))
}

/// Registers memory as a buffer.
pub(crate) fn register_buffer<E: DmaEngine + ?Sized>(
    engine: &E,
    memory: HostMemory,
    request: &MemoryRequest,
) -> Result<BufferMut> {
    refuse_shared(engine, &memory)?;
    if memory.is_read_only() {
        return Err(Error::new(ErrorKind::InvalidArgument, "read-only memory cannot be a writable buffer")
            .with_operation("register")
            .with_backend(engine.info().backend)
            .with_hint("register it with `register_read_only_memory`"));
    }
    Ok(BufferMut::sole(register(engine, memory, request)?))
}

/// Registers memory as a window.
pub(crate) fn register_window<E: DmaEngine + ?Sized>(
    engine: &E,
    mut memory: HostMemory,
    request: &MemoryRequest,
) -> Result<Range> {
    if !(request.access | request.export).contains(Access::WRITE) {
        memory.set_read_only();
    } else if memory.is_read_only() {
        return Err(Error::new(ErrorKind::InvalidArgument, "read-only memory cannot be a writable window")
            .with_operation("register")
            .with_backend(engine.info().backend)
            .with_hint("register it with `Access::READ` only"));
    }
    register(engine, memory, request).map(Range::whole)
}

/// Refuses memory whose bytes must not be borrowed.
fn refuse_shared<E: DmaEngine + ?Sized>(engine: &E, memory: &HostMemory) -> Result<()> {
    if !memory.is_shared() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidArgument, "memory that other code accesses cannot be a buffer")
        .with_operation("register")
        .with_backend(engine.info().backend)
        .with_hint("register it with `register_window`"))
}

/// Registers memory with the rights of `request`.
pub(crate) fn register<E: DmaEngine + ?Sized>(
    engine: &E,
    memory: HostMemory,
    request: &MemoryRequest,
) -> Result<Region> {
    let info = engine.info();
    let fail = |e: Error| e.with_operation("register").with_backend(info.backend);
    info.check_process().map_err(fail)?;
    request.check_rights().map_err(fail)?;
    if memory.is_empty() {
        require(engine, Capabilities::REGISTER, "the engine cannot register memory").map_err(fail)?;
        let id = (engine.id(), info.backend);
        let (addr, memory) = (memory.as_ptr(), Some(Registered::Host(memory)));
        return Ok(empty_region::region(id, addr, request.access, true, memory));
    }
    #[expect(unsafe_code, reason = "registers memory that the region keeps alive")]
    // SAFETY: the bytes of a `HostMemory` are mapped and initialized while it lives, and the region keeps it
    // until the raw region has been dropped. The bytes are exclusive, or they are read-only and registered as
    // read-only, or shared and never borrowed.
    let raw =
        idle::with_idle_memory_released(|| unsafe { engine.register_raw(&memory, request) }).map_err(fail)?;
    check_registered(raw.info(), memory.as_ptr(), memory.len());
    let region = Region::new(raw, Some(Registered::Host(memory)), request.access, info.backend);
    if !region.is_cpu_visible() {
        return Err(fail(Error::new(
            ErrorKind::Unsupported,
            "the engine hides registered memory from the CPU",
        )));
    }
    Ok(region)
}

/// Registers device memory with the rights of `request`.
pub(crate) fn register_device<E: DmaEngine + ?Sized>(
    engine: &E,
    memory: DeviceMemory,
    request: &MemoryRequest,
) -> Result<Region> {
    let info = engine.info();
    let fail = |e: Error| e.with_operation("register device memory").with_backend(info.backend);
    info.check_process().map_err(fail)?;
    if memory.addr().0.checked_add(memory.len() as u64).is_none() {
        let message = format!("{} bytes at {:?}", memory.len(), memory.addr());
        return Err(fail(
            Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("the end of the memory must be below 2^64"),
        ));
    }
    request.check_rights().map_err(fail)?;
    if memory.has_dmabuf() {
        let any = Capabilities::REGISTER_DMABUF;
        require(engine, any, "the engine cannot register dma-bufs").map_err(fail)?;
    }
    if memory.is_empty() {
        let any = Capabilities::REGISTER_DEVICE | Capabilities::REGISTER_DMABUF;
        require(engine, any, "the engine cannot register device memory").map_err(fail)?;
        let (id, addr) = ((engine.id(), info.backend), aligned_address(1));
        let memory = Some(Registered::Device(memory));
        return Ok(empty_region::region(id, addr, request.access, false, memory));
    }
    #[expect(unsafe_code, reason = "registers memory that the region keeps alive")]
    // SAFETY: while a `DeviceMemory` exists, its bytes are allocated and no reference to them exists. The
    // region keeps the `DeviceMemory` until the raw region has been dropped. Views of the region are windows,
    // which make no references.
    let raw = idle::with_idle_memory_released(|| unsafe { engine.register_device_raw(&memory, request) })
        .map_err(fail)?;
    debug_assert_eq!(
        (raw.info().addr, raw.info().len),
        (memory.addr(), memory.len()),
        "`register_device_raw` returns a region with the address and the length of the memory"
    );
    Ok(Region::new(raw, Some(Registered::Device(memory)), request.access, info.backend))
}

/// Checks in debug builds that an engine has registered the `len` bytes at `start`.
fn check_registered(info: &RegionInfo, start: NonNull<u8>, len: usize) {
    debug_assert_eq!(info.len, len, "`register_raw` returns a region with the length of the memory");
    debug_assert!(
        info.cpu.is_none_or(|cpu| cpu == start),
        "`register_raw` returns a region whose `cpu` is the address of the memory"
    );
}

/// Allocates host memory for `request` as a buffer.
pub(crate) fn allocate_buffer<E: DmaEngine + ?Sized>(
    engine: &E,
    request: &MemoryRequest,
) -> Result<BufferMut> {
    let fail = |e: Error| e.with_operation("allocate").with_backend(engine.info().backend);
    if request.place != Place::Host {
        return Err(fail(
            Error::new(ErrorKind::InvalidArgument, format!("{} memory as a buffer", request.place))
                .with_hint("use `allocate_window`, and access the memory by DMA"),
        ));
    }
    engine.info().check_process().map_err(fail)?;
    if request.len > 0
        && let Some(buffer) = idle::allocate(engine, request)
    {
        return Ok(buffer);
    }
    let range = allocate(engine, request)?;
    if !range.region.is_cpu_visible() {
        return Err(fail(Error::new(ErrorKind::Unsupported, "the engine hides host memory from the CPU")));
    }
    Ok(BufferMut(range))
}

/// Allocates memory for `request`.
pub(crate) fn allocate<E: DmaEngine + ?Sized>(engine: &E, request: &MemoryRequest) -> Result<Range> {
    let info = engine.info();
    let fail = |e: Error| e.with_operation("allocate").with_backend(info.backend);
    info.check_process().map_err(fail)?;
    if request.len == 0 {
        return allocate_no_bytes(engine, request).map(Range::whole).map_err(fail);
    }
    request.validate().map_err(fail)?;
    if !info.capabilities.contains(Capabilities::allocate_in(request.place)) && request.place != Place::Host {
        let message = format!("the engine cannot allocate {} memory", request.place);
        return Err(fail(Error::new(ErrorKind::Unsupported, message).with_hint("ask for `Place::Host`")));
    }
    let Some(node) = request.node else {
        let raw = idle::with_idle_memory_released(|| engine.allocate_raw(request)).map_err(fail)?;
        return Ok(Range::whole(Region::new(raw, None, request.access, info.backend)));
    };
    if !request.export.is_empty() {
        // Only the engine can allocate memory that peers can import.
        let nodes = NumaNodes::of_system();
        nodes.check_room(node, request.len).map_err(fail)?;
        let allocate = || numa::with_policy(&nodes, node, || engine.allocate_raw(request));
        let raw = idle::with_idle_memory_released(allocate).map_err(fail)?;
        return Ok(Range::whole(Region::new(raw, None, request.access, info.backend)));
    }
    if !info.capabilities.contains(Capabilities::REGISTER) {
        let message = "the engine cannot register memory, so it cannot use memory of a NUMA node";
        return Err(fail(Error::new(ErrorKind::Unsupported, message).with_hint("leave the node out")));
    }
    // Place the memory on the node before the device pins it.
    let alignment = info.limits.register_alignment.max(1);
    let mut placed = request.clone().with_align(request.align.max(alignment));
    // If the length is too great, `PageMemory` refuses it.
    placed.len = request.len.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
    let memory = idle::with_idle_memory_released(|| PageMemory::new(&placed)).map_err(fail)?;
    let memory = HostMemory::from_owner(memory);
    let mut range = Range::whole(register(engine, memory, request)?);
    // The region has the length that the engine reports, which may be shorter.
    range.len = range.len.min(request.len);
    Ok(range)
}

/// Makes memory of 0 bytes, without calling the engine.
fn allocate_no_bytes<E: DmaEngine + ?Sized>(engine: &E, request: &MemoryRequest) -> Result<Region> {
    let mut one = request.clone();
    one.len = 1;
    one.validate()?;
    let place = Capabilities::allocate_in(request.place);
    require(engine, place, format!("the engine cannot allocate {} memory", request.place))?;
    if !request.export.is_empty() {
        require(engine, Capabilities::EXPORT, "the engine cannot export memory")?;
    }
    if let Some(node) = request.node {
        NumaNodes::of_system().check_room(node, 0)?;
    }
    let (id, addr) = ((engine.id(), engine.info().backend), aligned_address(request.align));
    Ok(empty_region::region(id, addr, request.access, request.place == Place::Host, None))
}

/// Makes an import of 0 bytes, without calling the engine.
pub(crate) fn import_no_bytes<E: DmaEngine + ?Sized>(engine: &E, rights: Access) -> Result<Range> {
    require(engine, Capabilities::IMPORT, "the engine cannot import memory")?;
    let id = (engine.id(), engine.info().backend);
    Ok(Range::whole(empty_region::region(id, aligned_address(1), rights, false, None)))
}

/// Returns an `Unsupported` error with `message` if the engine has none of the capabilities `any`.
fn require<E: DmaEngine + ?Sized>(
    engine: &E,
    any: Capabilities,
    message: impl Into<std::borrow::Cow<'static, str>>,
) -> Result<()> {
    let has = engine.info().capabilities.intersects(any);
    if has {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Unsupported, message).with_hint("use another engine"))
    }
}

/// Returns an address with this alignment, for memory of 0 bytes. The alignment must be a power of two.
fn aligned_address(align: usize) -> NonNull<u8> {
    NonNull::without_provenance(NonZero::new(align).expect("an alignment is not 0"))
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "an engine whose regions differ from their memory")]

    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::reference::{ReferenceEngine, doc_engine};
    use crate::{
        DmaEngineExt, EngineId, EngineInfo, ExportDescriptor, QueueOptions, RawExport, RawQueue, RawRegion,
        RegionInfo,
    };

    /// The reference engine, with regions that `change` makes wrong.
    #[derive(Debug)]
    struct Wrong {
        inner: ReferenceEngine,
        change: fn(&mut RegionInfo),
    }

    impl Wrong {
        fn new(change: fn(&mut RegionInfo)) -> Self {
            Self { inner: doc_engine(), change }
        }

        fn region(&self, inner: Box<dyn RawRegion>) -> Box<dyn RawRegion> {
            let mut info = *inner.info();
            (self.change)(&mut info);
            Box::new(WrongRegion { info, _inner: inner })
        }
    }

    #[derive(Debug)]
    struct WrongRegion {
        info: RegionInfo,
        _inner: Box<dyn RawRegion>,
    }

    // SAFETY: this breaks the contract on purpose. The tests submit no operation on the memory.
    unsafe impl RawRegion for WrongRegion {
        fn info(&self) -> &RegionInfo {
            &self.info
        }
        unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
            Err(Error::bare(ErrorKind::Unsupported))
        }
    }

    // SAFETY: this breaks the contract on purpose. The tests submit no operation on the memory.
    unsafe impl DmaEngine for Wrong {
        fn info(&self) -> &EngineInfo {
            self.inner.info()
        }
        fn id(&self) -> EngineId {
            self.inner.id()
        }
        fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
            self.inner.allocate_raw(request).map(|raw| self.region(raw))
        }
        unsafe fn register_raw(
            &self,
            memory: &HostMemory,
            request: &MemoryRequest,
        ) -> Result<Box<dyn RawRegion>> {
            // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
            unsafe { self.inner.register_raw(memory, request) }.map(|raw| self.region(raw))
        }
        fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
            self.inner.import_raw(descriptor)
        }
        fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
            self.inner.open_queue_raw(options)
        }
    }

    #[test]
    fn an_engine_cannot_grant_more_rights_than_were_requested() {
        let engine = Wrong::new(|info| info.access = Access::all());
        let read_only = MemoryRequest::new(64).with_access(Access::READ);
        let buffer = engine.register_read_only([0; 64]).expect("registered");
        assert_eq!(buffer.region().access(), Access::READ);
        assert_eq!(engine.allocate_with(&read_only).expect("memory").region().access(), Access::READ);
        let memory = HostMemory::from_owner(vec![0; 64]);
        let buffer = engine.register_with(memory, &read_only).expect("registered");
        assert_eq!(buffer.region().access(), Access::READ);
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "only debug builds check this")]
    fn debug_builds_check_that_a_region_is_its_memory() {
        let shorter: fn(&mut RegionInfo) = |info| info.len -= 1;
        let elsewhere: fn(&mut RegionInfo) =
            |info| info.cpu = info.cpu.map(|cpu| cpu.map_addr(|a| a.saturating_add(8)));
        for change in [shorter, elsewhere] {
            let engine = Wrong::new(change);
            let memory = HostMemory::from_owner(vec![0_u8; 64]);
            assert!(catch_unwind(AssertUnwindSafe(|| engine.register(memory).map(drop))).is_err());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "places memory on a NUMA node")]
    fn memory_of_a_node_is_not_longer_than_its_region() {
        let engine = Wrong::new(|info| info.len -= 1);
        let node = NumaNodes::of_system().numbers().next();
        let request = MemoryRequest::new(4096).with_node(node);
        let allocated = catch_unwind(AssertUnwindSafe(|| engine.allocate_with(&request).map(|b| b.len())));
        assert!(!matches!(allocated, Ok(Ok(4096))), "{allocated:?}");
    }
}
