//! `doca_mmap.h`: memory that devices may touch.
#![expect(unsafe_code, reason = "functions that C calls by name, and the memory that it registers")]

#[cfg(not(workq))]
mod calls;
#[cfg(workq)]
mod chunk;
mod dmabuf;
mod export;
mod import;
mod lent;
mod mapped;
mod registered;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dma_sim::model::{RegionSpec, Rights};

use crate::c_abi::{Handle, INVALID, Mark, Outcome, c, object, require};
use crate::dev::Dev;
use dmabuf::DmaBuf;
use export::{Descriptor, Exported, Way};
pub(crate) use lent::Lent;
use registered::Place;
pub(crate) use registered::Registered;

/// Default limit of the devices of a map.
const DEVICES: u32 = 8;

/// All bits of `doca_access_flag`.
const ACCESS: u32 = (c::DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING << 1) - 1;
const PCI: u32 = c::DOCA_ACCESS_FLAG_PCI_READ_ONLY | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE;
const RDMA: u32 =
    c::DOCA_ACCESS_FLAG_RDMA_READ | c::DOCA_ACCESS_FLAG_RDMA_WRITE | c::DOCA_ACCESS_FLAG_RDMA_ATOMIC;

/// Rights that include local writing, as on the hardware. Programs rely on that.
const WRITE: u32 = c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
    | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE
    | c::DOCA_ACCESS_FLAG_RDMA_WRITE
    | c::DOCA_ACCESS_FLAG_RDMA_ATOMIC;

/// A memory map: `struct doca_mmap`. Other threads than its owner make and release buffers in it.
pub(crate) struct Mmap {
    mark: Mark,
    /// Buffers in it.
    bufs: Arc<AtomicU32>,
    /// Several threads use buffers, which are not counted.
    thread_safe: AtomicBool,
    setup: Mutex<Setup>,
}

object!(Mmap, 0x3a_90_00_01);

/// Everything that is set up before a start, and what a start makes of it.
struct Setup {
    range: Option<Range>,
    devs: Vec<Arc<Dev>>,
    max_devs: u32,
    access: u32,
    user_data: u64,
    free: Option<Free>,
    was_started: bool,
    imported: bool,
    exports: Vec<Exported>,
    registered: Option<Arc<Registered>>,
}

/// The memory that a map is of.
struct Range {
    addr: usize,
    len: usize,
    dmabuf: Option<DmaBuf>,
}

impl Range {
    /// The first byte in this process.
    fn first(&self) -> Outcome<NonNull<u8>> {
        match &self.dmabuf {
            Some(dmabuf) => Ok(dmabuf.first()),
            None => NonNull::new(std::ptr::with_exposed_provenance_mut(self.addr)).ok_or(INVALID),
        }
    }
}

/// The function that frees the memory when the map is destroyed.
#[derive(Clone, Copy)]
struct Free {
    call: unsafe extern "C" fn(*mut c_void, usize, *mut c_void),
    cookie: usize,
    /// The map was started since it was set.
    started: bool,
}

impl Setup {
    fn new() -> Self {
        Self {
            range: None,
            devs: Vec::new(),
            max_devs: DEVICES,
            // NVIDIA's local copy samples set none and rely on these.
            access: c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE,
            user_data: 0,
            free: None,
            was_started: false,
            imported: false,
            exports: Vec::new(),
            registered: None,
        }
    }

    /// For calls that configure: `BAD_STATE` if started, `NOT_PERMITTED` if imported.
    fn require_settable(&self) -> Outcome {
        require(!self.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(self.registered.is_none(), c::DOCA_ERROR_BAD_STATE)
    }

    /// For calls that set the memory: `NOT_PERMITTED` if it is set already.
    fn require_no_range(&self) -> Outcome {
        self.require_settable()?;
        require(self.range.is_none(), c::DOCA_ERROR_NOT_PERMITTED)
    }

    /// # Safety
    ///
    /// Without a DMA buffer, `len` bytes at `addr` may be read, and written if the permissions say so, from
    /// the start of the map until its stop.
    unsafe fn set_range(&mut self, addr: *mut c_void, len: usize, dmabuf: Option<DmaBuf>) -> Outcome {
        self.require_no_range()?;
        require(!addr.is_null() && len > 0 && isize::try_from(len).is_ok(), INVALID)?;
        require(addr.addr().checked_add(len).is_some(), INVALID)?;
        self.range = Some(Range { addr: addr.expose_provenance(), len, dmabuf });
        Ok(())
    }

    fn add_dev(&mut self, dev: Arc<Dev>) -> Outcome {
        require(!self.imported && self.registered.is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(!self.devs.iter().any(|other| Arc::ptr_eq(other, &dev)), c::DOCA_ERROR_ALREADY_EXIST)?;
        require((self.devs.len() as u64) < u64::from(self.max_devs), c::DOCA_ERROR_NO_MEMORY)?;
        self.devs.push(dev);
        Ok(())
    }

    fn rm_dev(&mut self, dev: &Dev) -> Outcome {
        require(!self.imported && self.registered.is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let place = self.place(dev)?;
        self.devs.remove(place);
        Ok(())
    }

    /// Index of a device of the map; `NOT_FOUND` if it is none.
    fn place(&self, dev: &Dev) -> Outcome<usize> {
        let place = self.devs.iter().position(|other| std::ptr::eq(&**other, dev));
        place.ok_or(c::DOCA_ERROR_NOT_FOUND)
    }

    fn start(&mut self, bufs: Option<Arc<AtomicU32>>) -> Outcome {
        require(!self.imported && self.exports.is_empty(), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(self.registered.is_none(), c::DOCA_ERROR_BAD_STATE)?;
        let range = self.range.as_ref().ok_or(INVALID)?;
        let first = self.devs.first().ok_or(INVALID)?;
        let here = range.first()?;
        let writable = self.access & WRITE != 0;
        if range.dmabuf.is_none() {
            mapped::check(range.addr, range.len, writable)?;
        }
        let rights = if writable { Rights::LOCAL_READ | Rights::LOCAL_WRITE } else { Rights::LOCAL_READ };
        let mut spec = RegionSpec::local(here, range.len as u64, rights);
        spec.addr = range.addr as u64;
        first.card().lock_memory(range.len as u64)?;
        let mut registered = Registered {
            addr: range.addr,
            len: range.len,
            rights,
            keys: Vec::new(),
            locked: range.len as u64,
            is_local: range.dmabuf.is_none(),
            at: Place::Here(here.as_ptr().expose_provenance()),
            lent: AtomicU32::new(0),
            live: AtomicBool::new(true),
            bufs,
        };
        for dev in &self.devs {
            // SAFETY: `set_range` was promised that the memory is there until the map is stopped; tasks in
            // flight keep it from being stopped. A DMA buffer is mapped as long as the map has it.
            match unsafe { dev.card().engine().register(spec.clone()) } {
                Ok(key) => registered.keys.push((Arc::clone(dev), key)),
                Err(_) => {
                    // Not in use yet, so this succeeds.
                    let _ = registered.unregister();
                    return Err(INVALID);
                }
            }
        }
        self.registered = Some(Arc::new(registered));
        self.was_started = true;
        if let Some(free) = &mut self.free {
            free.started = true;
        }
        Ok(())
    }

    /// The descriptor for `dev`, which is made at the first call.
    fn export(&mut self, dev: &Dev, way: Way) -> Outcome<&[u8]> {
        let wanted = if way == Way::Pci { PCI } else { RDMA };
        require(!self.imported && self.registered.is_some(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let dev = Arc::clone(&self.devs[self.place(dev)?]);
        require(way == Way::Rdma || dev.function().export, c::DOCA_ERROR_NOT_SUPPORTED)?;
        require(self.access & wanted != 0, c::DOCA_ERROR_NOT_PERMITTED)?;
        let made = self.exports.iter().position(|made| Arc::ptr_eq(&made.dev, &dev) && made.way == way);
        let place = made.unwrap_or(self.exports.len());
        if made.is_none() {
            let range = self.range.as_ref().ok_or(c::DOCA_ERROR_NOT_PERMITTED)?;
            let (here, range) = (range.first()?, (range.addr, range.len));
            self.exports.push(Exported::new(dev, way, range, here, self.access)?);
        }
        Ok(&self.exports[place].bytes)
    }

    /// Stops the map and revokes its exports.
    fn stop(&mut self) -> Outcome {
        let registered = self.registered.as_ref().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        registered.unregister()?;
        // Peers lose access before the exports are forgotten.
        self.exports.iter().try_for_each(Exported::revoke)?;
        self.exports.clear();
        self.registered = None;
        Ok(())
    }
}

impl Mmap {
    fn new(setup: Setup) -> Self {
        Self {
            mark: Mark::of::<Self>(),
            bufs: Arc::default(),
            thread_safe: AtomicBool::new(false),
            setup: Mutex::new(setup),
        }
    }

    /// The started map of a descriptor.
    fn import(bytes: &[u8], dev: Arc<Dev>, user_data: u64) -> Outcome<Self> {
        let descriptor = Descriptor::parse(bytes).ok_or(INVALID)?;
        let bufs = Arc::default();
        let registered = import::import(&descriptor, &dev, &bufs)?;
        let setup = Setup {
            range: Some(Range { addr: registered.addr, len: registered.len, dmabuf: None }),
            devs: vec![dev],
            access: descriptor.access,
            user_data,
            was_started: true,
            imported: true,
            registered: Some(Arc::new(registered)),
            ..Setup::new()
        };
        Ok(Self { bufs, ..Self::new(setup) })
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The started map, for a buffer to be made in it.
    pub(crate) fn registered(&self) -> Option<Arc<Registered>> {
        self.setup().registered.clone()
    }

    /// `NOT_PERMITTED` while there are buffers.
    fn require_unused(&self) -> Outcome {
        require(self.bufs.load(Ordering::Acquire) == 0, c::DOCA_ERROR_NOT_PERMITTED)
    }

    fn start(&self) -> Outcome {
        let counted = !self.thread_safe.load(Ordering::Relaxed);
        self.setup().start(counted.then(|| Arc::clone(&self.bufs)))
    }

    fn stop(&self) -> Outcome {
        let mut setup = self.setup();
        require(!setup.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(setup.registered.is_some(), c::DOCA_ERROR_BAD_STATE)?;
        self.require_unused()?;
        setup.stop()
    }

    fn destroy(handle: Handle<Self>) -> Outcome {
        let map = handle.get()?;
        map.require_unused()?;
        let free = {
            let mut setup = map.setup();
            if setup.registered.is_some() {
                setup.stop()?;
            }
            setup
                .free
                .filter(|free| free.started)
                .zip(setup.range.as_ref().map(|range| (range.addr, range.len)))
        };
        drop(handle.take_arc()?);
        if let Some((free, (addr, len))) = free {
            let (addr, cookie) = (std::ptr::with_exposed_provenance_mut(addr), free.cookie);
            // SAFETY: the program gave the function to be called with these.
            unsafe { (free.call)(addr, len, std::ptr::with_exposed_provenance_mut(cookie)) }
        }
        Ok(())
    }
}
