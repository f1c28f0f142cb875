//! Allocation and registration of memory on an engine.

use super::numa::{self, NumaNodes};
use super::region::{Range, Region, Registered};
use super::{Buffer, PageMemory};
use crate::{
    Access, Capabilities, DeviceMemory, DmaEngine, Error, ErrorKind, HostMemory, MemoryRequest, Place, Result,
};

/// Registers memory that the device may only read.
pub(crate) fn register_read_only<E: DmaEngine + ?Sized>(engine: &E, memory: HostMemory) -> Result<Buffer> {
    let region = register(engine, memory, &MemoryRequest::new(0).with_access(Access::READ))?;
    Ok(Buffer(Range::whole(region)))
}

/// Registers memory with the rights of `request`.
pub(crate) fn register<E: DmaEngine + ?Sized>(
    engine: &E,
    memory: HostMemory,
    request: &MemoryRequest,
) -> Result<Region> {
    let info = engine.info();
    let fail = |e: Error| e.with_operation("register").with_backend(info.backend);
    if memory.is_empty() {
        return Err(fail(
            Error::new(ErrorKind::InvalidArgument, "no bytes to register")
                .with_hint("register memory of at least 1 byte: a `Vec` by its length, not its capacity"),
        ));
    }
    request.check_rights().map_err(fail)?;
    #[expect(unsafe_code, reason = "registers memory that it keeps alive")]
    // SAFETY: `HostMemory` promises mapped, initialized bytes while it lives, and the region keeps it until
    // the raw region has been dropped. The bytes are exclusive, or read-only and registered to be read.
    let raw = unsafe { engine.register_raw(&memory, request) }.map_err(fail)?;
    let region = Region::new(raw, Some(Registered::Host(memory)), info.backend);
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
    if memory.is_empty() || memory.addr().0.checked_add(memory.len() as u64).is_none() {
        let message = format!("{} bytes at {:?}", memory.len(), memory.addr());
        return Err(fail(
            Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("register at least 1 byte, within 64 bits of addresses"),
        ));
    }
    request.check_rights().map_err(fail)?;
    #[expect(unsafe_code, reason = "registers memory that it keeps alive")]
    // SAFETY: `DeviceMemory` promises allocated bytes without references while it lives, and the region keeps
    // it until the raw region has been dropped. Views of the region are windows, which make no references.
    let raw = unsafe { engine.register_device_raw(&memory, request) }.map_err(fail)?;
    Ok(Region::new(raw, Some(Registered::Device(memory)), info.backend))
}

/// Allocates memory as `request` says.
pub(crate) fn allocate<E: DmaEngine + ?Sized>(engine: &E, request: &MemoryRequest) -> Result<Range> {
    let info = engine.info();
    let fail = |e: Error| e.with_operation("allocate").with_backend(info.backend);
    request.validate().map_err(fail)?;
    if !info.capabilities.contains(Capabilities::allocate_in(request.place)) && request.place != Place::Host {
        let message = format!("the engine allocates no {} memory", request.place);
        return Err(fail(Error::new(ErrorKind::Unsupported, message).with_hint("ask for `Place::Host`")));
    }
    let Some(node) = request.node else {
        let raw = engine.allocate_raw(request).map_err(fail)?;
        return Ok(Range::whole(Region::new(raw, None, info.backend)));
    };
    if !request.export.is_empty() {
        // Only the engine can allocate memory that peers can import.
        let nodes = NumaNodes::of_system();
        nodes.check_room(node, request.len).map_err(fail)?;
        let raw = numa::with_policy(&nodes, node, || engine.allocate_raw(request)).map_err(fail)?;
        return Ok(Range::whole(Region::new(raw, None, info.backend)));
    }
    if !info.capabilities.contains(Capabilities::REGISTER) {
        let message = "the engine takes no memory that was placed on a NUMA node";
        return Err(fail(Error::new(ErrorKind::Unsupported, message).with_hint("name no node")));
    }
    // Place the memory before the device pins it.
    let alignment = info.limits.register_alignment.max(1);
    let mut placed = request.clone().with_align(request.align.max(alignment));
    // `PageMemory` refuses a length that is too great.
    placed.len = request.len.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
    let memory = HostMemory::from_owner(PageMemory::new(&placed).map_err(fail)?);
    let mut range = Range::whole(register(engine, memory, request)?);
    range.len = request.len;
    Ok(range)
}
