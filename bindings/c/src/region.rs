//! Regions.
#![expect(unsafe_code, reason = "functions that C calls, and memory of C programs")]

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr::NonNull;

use dma::contract::{DeviceAddr, racy_copy};
use dma::prelude::*;
use dma::process::count;
use dma::{DeviceMemory, Error, Place, Result};

use crate::arguments::{Out, OutStruct, check_reserved, invalid, options, slice};
use crate::error::guard;
use crate::handles::{Pin, Table, mark};
use crate::header::*;
use crate::{engine, header};

/// A region of the program.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) window: Window,
    /// True if the program passed a release function for the memory.
    owned: bool,
}

static REGIONS: Table<Region> = Table::new("region", mark::REGION);

/// Returns the region of a handle.
#[inline]
pub(crate) fn get(region: dma_region) -> Result<Pin<'static, Region>> {
    REGIONS.get(region.id)
}

/// Returns the window of a range.
#[inline(always)]
pub(crate) fn window(range: &dma_range) -> Result<Window> {
    get(range.region)?.window_of(range)
}

impl Region {
    /// Returns the window of a range within this region.
    #[inline]
    pub(crate) fn window_of(&self, range: &dma_range) -> Result<Window> {
        if fits(range, self.window.len()) {
            Ok(self.window.slice(range.offset..range.offset + range.len))
        } else {
            Err(out_of_range(range, self.window.len()))
        }
    }
}

/// The region of the previous range, because consecutive copies often use the same region.
#[derive(Default)]
pub(crate) struct LastRegion(Option<(u64, Pin<'static, Region>)>);

impl LastRegion {
    /// Returns the region of a range.
    #[inline(always)]
    pub(crate) fn get(&mut self, range: &dma_range) -> Result<&Region> {
        let id = range.region.id;
        if self.0.as_ref().is_none_or(|(last, _)| *last != id) {
            self.0 = Some((id, get(range.region)?));
        }
        self.0.as_ref().map(|(_, region)| &**region).ok_or_else(|| invalid("no region"))
    }
}

#[inline]
fn fits(range: &dma_range, len: usize) -> bool {
    range.offset.checked_add(range.len).is_some_and(|end| end <= len)
}

/// Returns the address of the first byte, if the CPU can reach it.
fn cpu_address(window: &Window) -> Option<NonNull<u8>> {
    window.region().as_raw().info().cpu
}

/// Returns the address of a range that the CPU can reach.
fn reachable(window: &Window, offset: usize, len: usize) -> Result<*mut u8> {
    // Returns the error for memory that the CPU cannot reach.
    window.read_at(offset.min(window.len()), &mut [])?;
    let range = dma_range { region: dma_region { id: 0 }, offset, len };
    match cpu_address(window) {
        Some(start) if fits(&range, window.len()) => Ok(start.as_ptr().wrapping_add(offset)),
        _ => Err(out_of_range(&range, window.len())),
    }
}

#[cold]
fn out_of_range(range: &dma_range, len: usize) -> Error {
    let bytes = count(range.len, "byte", "bytes");
    let message = format!("{bytes} at {} of a region of {len}", range.offset);
    Error::new(ErrorKind::OutOfRange, message)
        .with_numbers(range.len as u64, len.saturating_sub(range.offset) as u64)
        .with_hint("name bytes within the region")
}

fn insert(window: Window, owned: bool) -> Result<dma_region> {
    REGIONS.insert(Region { window, owned }).map(|id| dma_region { id })
}

/// Converts rights, which may be empty.
pub(crate) fn access(rights: u32) -> Result<Access> {
    Access::from_bits(rights)
        .ok_or_else(|| invalid(format!("rights {rights:#x}")).with_hint("use DMA_READ, DMA_WRITE or both"))
}

/// Converts the rights of a registration, among them those of exports.
fn registration(rights: u32) -> Result<MemoryRequest> {
    let exports = rights & (DMA_EXPORT_READ | DMA_EXPORT_WRITE);
    let request = MemoryRequest::new(0).with_access(access(rights & !exports)?);
    // The bits of export rights are the bits of rights, shifted by two.
    Ok(request.exportable(access(exports / DMA_EXPORT_READ)?))
}

/// Checks the length of memory to be registered.
fn check_len(len: usize) -> Result<()> {
    if isize::try_from(len).is_ok() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("{len} bytes, more than an address space holds"))
        .with_numbers(len as u64, isize::MAX as u64))
}

/// The program's release function for memory, and its argument.
struct Release {
    function: unsafe extern "C" fn(context: *mut c_void),
    context: *mut c_void,
}

/// The owner of registered memory. Dropping it calls the release function.
struct Owner(Release);

// SAFETY: the header allows any thread to call the function with this pointer.
unsafe impl Send for Owner {}
// SAFETY: a shared reference to an owner gives no access to its contents.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the program passed the function and this pointer for one call when the memory is no longer
        // used. The memory's region drops the owner at that time.
        unsafe { (self.0.function)(self.0.context) };
    }
}

/// Registers memory of the program.
///
/// # Safety
///
/// The memory meets the requirements of the header for `dma_region_register` or `dma_region_register_owned`.
unsafe fn register(
    engine: dma_engine,
    memory: *mut c_void,
    len: usize,
    rights: u32,
    release: Option<Release>,
) -> Result<dma_region> {
    let start = NonNull::new(memory.cast::<u8>()).ok_or_else(|| invalid("memory is NULL"))?;
    check_len(len)?;
    let request = registration(rights)?;
    let engine = engine::get(engine)?;
    // The memory gets its owner only after the registration has succeeded, so that a failure does not release
    // the memory.
    let owner_slot = OwnerSlot::default();
    // SAFETY: the program promises that the memory stays mapped until the region is closed or the release
    // function is called. Rust code has no references to it.
    let memory = unsafe { HostMemory::from_shared(start, len, owner_slot.clone()) };
    let window = engine.engine.register_window(memory, &request)?;
    let region = insert(window, release.is_some())?;
    // No failure is possible from here on, so the memory gets its owner.
    owner_slot.set(release.map(Owner));
    Ok(region)
}

/// A slot for the owner. The registered memory contains the slot from the beginning, and the owner is set
/// later.
#[derive(Clone, Default)]
struct OwnerSlot(std::sync::Arc<std::sync::OnceLock<Owner>>);

impl OwnerSlot {
    /// Sets the owner, which is then dropped together with the memory.
    fn set(self, owner: Option<Owner>) {
        if let Some(owner) = owner {
            // The slot is empty, because only this call fills it.
            let _ = self.0.set(owner);
        }
    }
}

fn request(len: usize, options: &dma_memory_options) -> Result<MemoryRequest> {
    check_reserved("dma_memory_options", options.reserved)?;
    if options.flags & !(DMA_HUGE_PAGES | DMA_ON_NODE) != 0 {
        let hint = "use DMA_HUGE_PAGES, DMA_ON_NODE, both or 0";
        return Err(invalid(format!("flags {:#x} of dma_memory_options", options.flags)).with_hint(hint));
    }
    let place = match options.place {
        header::DMA_PLACE_HOST => Place::Host,
        header::DMA_PLACE_DEVICE => Place::Device,
        place => {
            let hint = "use DMA_PLACE_HOST or DMA_PLACE_DEVICE";
            return Err(invalid(format!("place {place} of dma_memory_options")).with_hint(hint));
        }
    };
    let rights = if options.rights == 0 { Access::all() } else { access(options.rights)? };
    let align = if options.align == 0 { 4096 } else { options.align };
    let request = MemoryRequest::new(len).with_align(align).with_access(rights).with_place(place);
    Ok(request
        .exportable(access(options.export_rights)?)
        .with_huge_pages(options.flags & DMA_HUGE_PAGES != 0)
        .with_node((options.flags & DMA_ON_NODE != 0).then_some(options.node)))
}

/// Says in this interface's terms what uses a region.
fn in_use(error: Error) -> Error {
    if error.kind() != ErrorKind::InUse {
        return error;
    }
    Error::new(ErrorKind::InUse, "operations, batches or exports use the region")
        .with_operation("close a region")
        .with_backend(error.backend().to_owned())
        .with_hint(
            "receive the completions of the operations, close the batches, and revoke the exports first; memory that a lost or stopped device may still access stays in use",
        )
}

fn close(region: dma_region) -> Result<()> {
    let Some(region) = REGIONS.to_close(region.id)? else { return Ok(()) };
    if region.owned {
        drop(region.remove());
        return Ok(());
    }
    let ended = region.remove_if(|Region { window, owned }| match window.deregister() {
        Ok(_memory) => Ok(()),
        Err((window, e)) if e.kind() == ErrorKind::Unsupported => {
            // The region is that of the parent of this forked process.
            std::mem::forget(window);
            Ok(())
        }
        Err((window, e)) => Err((Region { window, owned }, in_use(e))),
    });
    ended.map(drop)
}

#[rustfmt::skip]
pub(crate) mod calls {
    use super::*;
    use crate::header::c_calls;

    c_calls! {
        fn dma_region_allocate(engine: dma_engine, len: usize, options: *const dma_memory_options, region: *mut dma_region) {
            // SAFETY: the header requires that `region` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("region", region) }?;
            // SAFETY: the header requires that `options` is NULL or leads to a struct that begins with
            // its size and does not change during the call.
            let options = unsafe { super::options("options", options) }?;
            let window = engine::get(engine)?.engine.allocate_window(&request(len, &options)?)?;
            out.write(insert(window, false)?);
            Ok(())
        }

        fn dma_region_register(engine: dma_engine, memory: *mut c_void, len: usize, rights: u32, region: *mut dma_region) {
            // SAFETY: the header requires that `region` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("region", region) }?;
            // SAFETY: the caller meets the requirements of the header for this memory.
            out.write(unsafe { register(engine, memory, len, rights, None) }?);
            Ok(())
        }

        fn dma_region_register_owned(engine: dma_engine, memory: *mut c_void, len: usize, rights: u32, release: dma_release, context: *mut c_void, region: *mut dma_region) {
            // SAFETY: the header requires that `region` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("region", region) }?;
            let function = release.ok_or_else(|| invalid("release is NULL"))?;
            let release = Some(Release { function, context });
            // SAFETY: the caller meets the requirements of the header for this memory.
            out.write(unsafe { register(engine, memory, len, rights, release) }?);
            Ok(())
        }

        fn dma_region_register_device(engine: dma_engine, address: u64, len: usize, rights: u32, region: *mut dma_region) {
            // SAFETY: the header requires that `region` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("region", region) }?;
            check_len(len)?;
            let request = MemoryRequest::new(0).with_access(access(rights)?);
            // SAFETY: the program promises that the memory stays allocated until the region is closed.
            // Rust code has no references to it.
            let memory = unsafe { DeviceMemory::from_raw(DeviceAddr(address), len, ()) };
            let window = engine::get(engine)?.engine.register_device_with(memory, &request)?;
            out.write(insert(window, false)?);
            Ok(())
        }

        fn dma_region_register_dmabuf(engine: dma_engine, fd: c_int, offset: u64, len: usize, rights: u32, region: *mut dma_region) {
            // SAFETY: the header requires that `region` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("region", region) }?;
            check_len(len)?;
            let request = registration(rights)?;
            if fd < 0 {
                return Err(invalid(format!("file descriptor {fd}")));
            }
            // SAFETY: the program keeps the file open during the call. If it is not open, the duplication
            // fails.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
            let fd = fd.map_err(|e| invalid("fd is not an open file").with_source(e))?;
            // SAFETY: the duplicated descriptor keeps the bytes allocated. Rust code has no references to
            // them.
            let memory = unsafe { DeviceMemory::from_dmabuf(fd, offset, len, ()) }?;
            let window = engine::get(engine)?.engine.register_device_with(memory, &request)?;
            out.write(insert(window, false)?);
            Ok(())
        }

        fn dma_region_dmabuf(region: dma_region, fd: *mut c_int, offset: *mut u64) {
            // SAFETY: the header requires that `fd` is NULL or leads to a place that this call may write.
            let to_fd = unsafe { Out::new("fd", fd) }?;
            // SAFETY: the header requires that `offset` is NULL or leads to a place that this call may
            // write.
            let to_offset = unsafe { Out::new("offset", offset) }?;
            let memory = get(region)?.window.dmabuf()?;
            // SAFETY: the header requires that the other device's region is closed before this one. Rust
            // code has no references to a window's bytes.
            let Some((fd, offset)) = (unsafe { memory.dmabuf() }) else {
                return Err(Error::new(ErrorKind::Unsupported, "the memory has no dma-buf"));
            };
            to_fd.write(fd.try_clone_to_owned()?.into_raw_fd());
            to_offset.write(offset);
            Ok(())
        }

        fn dma_region_describe(region: dma_region, info: *mut dma_region_info) {
            // SAFETY: the header requires that `info` is NULL or leads to a struct that begins with its
            // size and that this call may write.
            let out = unsafe { OutStruct::new("info", info) }?;
            let region = get(region)?;
            let window = &region.window;
            out.write(dma_region_info {
                size: size_of::<dma_region_info>(),
                len: window.len(),
                memory: cpu_address(window).map_or(std::ptr::null_mut(), |start| start.as_ptr().cast()),
                rights: window.region().access().bits(),
                reserved: 0,
            });
            Ok(())
        }

        fn dma_region_read(region: dma_region, offset: usize, to: *mut c_void, len: usize) {
            let region = get(region)?;
            let window = &region.window;
            if to.is_null() && len > 0 {
                return Err(invalid("to is NULL"));
            }
            let start = reachable(window, offset, len)?;
            // SAFETY: the range is inside the region, which stays mapped while its handle is pinned. The
            // program provides `len` bytes at `to`. Rust code has no references to either range.
            unsafe { racy_copy::copy(to.cast(), start, len) };
            Ok(())
        }

        fn dma_region_write(region: dma_region, offset: usize, from: *const c_void, len: usize) {
            let region = get(region)?;
            let window = &region.window;
            if from.is_null() && len > 0 {
                return Err(invalid("from is NULL"));
            }
            let start = reachable(window, offset, len)?;
            // This checks that the memory may be written.
            window.write_at(offset, &[])?;
            // SAFETY: the range is inside the region, which stays mapped while its handle is pinned, and
            // may be written. The program provides `len` bytes at `from`. Rust code has no references to
            // either range, and a racy copy allows that a device writes them at the same time.
            unsafe { racy_copy::copy(start, from.cast(), len) };
            Ok(())
        }

        fn dma_region_import(engine: dma_engine, bytes: *const c_void, len: usize, region: *mut dma_region) {
            // SAFETY: the header requires that `region` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("region", region) }?;
            if bytes.is_null() {
                return Err(invalid("bytes is NULL"));
            }
            // SAFETY: the header requires that `bytes` is NULL or leads to `len` values that do not
            // change during the call.
            let descriptor = ExportDescriptor::from_bytes(unsafe { slice("bytes", bytes.cast::<u8>(), len) }?)?;
            let window = engine::get(engine)?.engine.import(&descriptor)?;
            out.write(insert(window, false)?);
            Ok(())
        }

        fn dma_region_close(region: dma_region) {
            close(region)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_that_fails_does_not_release_the_memory() {
        static BYTES: [u8; 64] = [0; 64];
        extern "C" fn fail(_context: *mut c_void) {
            panic!("a failed registration must not release the memory");
        }
        let mut engine = dma_engine { id: 0 };
        // SAFETY: the pointers lead to a string and to a handle.
        assert_eq!(unsafe { crate::dma_open_abi(DMA_ABI_VERSION, c"cpu".as_ptr(), 0, &raw mut engine) }, 0);
        let memory = BYTES.as_ptr().cast_mut().cast::<c_void>();
        let mut regions = Vec::new();
        let full = loop {
            let mut region = dma_region { id: 0 };
            // SAFETY: the memory is static, and the device only reads it.
            match unsafe { crate::dma_region_register(engine, memory, 64, DMA_READ, &raw mut region) } {
                crate::error::OK => regions.push(region),
                status => break status,
            }
        };
        assert_eq!(full, DMA_OUT_OF_RESOURCES as dma_status);
        let mut region = dma_region { id: 0 };
        let (release, place): (dma_release, _) = (Some(fail), &raw mut region);
        // SAFETY: the memory is static, the device only reads it, and the function is static.
        let status =
            unsafe { crate::dma_region_register_owned(engine, memory, 64, DMA_READ, release, memory, place) };
        assert_eq!(status, full);
        for region in regions {
            close(region).unwrap();
        }
    }
}
