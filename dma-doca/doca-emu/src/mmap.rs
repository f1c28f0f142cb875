//! `doca_mmap.h`: memory that devices may touch.
#![expect(unsafe_code, reason = "functions that C calls by name, and the memory that it registers")]

mod calls;
mod dmabuf;
mod export;
mod import;
mod mapped;
mod reach;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dma_sim::model::{RegionKey, RegionSpec, Rights};

use crate::dev::Dev;
use crate::door::{Handle, INVALID, Mark, Object, Outcome, c, require};
use dmabuf::DmaBuf;
use export::Exported;
use import::Imported;
pub(crate) use reach::Lent;

/// Devices that a map can have unless it is told otherwise.
const DEVICES: u32 = 8;

/// All bits of `doca_access_flag`.
const ACCESS: u32 = (c::DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING << 1) - 1;
const PCI: u32 = c::DOCA_ACCESS_FLAG_PCI_READ_ONLY | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE;
const RDMA: u32 =
    c::DOCA_ACCESS_FLAG_RDMA_READ | c::DOCA_ACCESS_FLAG_RDMA_WRITE | c::DOCA_ACCESS_FLAG_RDMA_ATOMIC;

/// Who may write from afar may write here: to the hardware, local writing is part of it, and programs rely on that.
const WRITE: u32 = c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
    | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE
    | c::DOCA_ACCESS_FLAG_RDMA_WRITE
    | c::DOCA_ACCESS_FLAG_RDMA_ATOMIC;

/// A memory map: `struct doca_mmap`. Buffers in it are made and released by other threads than the one that sets it up.
pub(crate) struct Mmap {
    mark: Mark,
    /// Buffers in it.
    bufs: Arc<AtomicU32>,
    /// Buffers are not counted.
    thread_safe: AtomicBool,
    setup: Mutex<Setup>,
}

impl Object for Mmap {
    const MARK: u32 = 0x3a_90_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

/// Everything that is set up before a start, and what a start makes of it.
struct Setup {
    range: Option<Range>,
    devs: Vec<Arc<Dev>>,
    max_devs: u32,
    access: u32,
    user_data: u64,
    free: Option<Free>,
    was_started: bool,
    imported: Option<Imported>,
    exports: Vec<Exported>,
    registered: Option<Arc<Registered>>,
}

/// The memory that a map is of.
struct Range {
    addr: usize,
    len: usize,
    dmabuf: Option<DmaBuf>,
}

/// The function that frees the memory when the map is destroyed.
#[derive(Clone, Copy)]
struct Free {
    call: unsafe extern "C" fn(*mut c_void, usize, *mut c_void),
    cookie: usize,
    /// The map was started since it was set.
    started: bool,
}

/// A started map: its range, and the name that each device has it under. Buffers hold on to it.
pub(crate) struct Registered {
    addr: usize,
    len: usize,
    rights: Rights,
    keys: Vec<(Arc<Dev>, RegionKey)>,
    /// Bytes that count as locked.
    locked: u64,
    /// The addresses are the program's own.
    pub(crate) is_local: bool,
    /// Where the bytes are.
    at: reach::Place,
    /// Consumers that let peers write here: the memory cannot be taken away meanwhile.
    lent: AtomicU32,
    live: AtomicBool,
    /// Where buffers are counted, if they are.
    bufs: Option<Arc<AtomicU32>>,
}

impl Registered {
    pub(crate) fn contains(&self, addr: usize, len: usize) -> bool {
        addr >= self.addr && addr - self.addr <= self.len && len <= self.len - (addr - self.addr)
    }

    /// The window is of this memory, and the data within the window.
    pub(crate) fn check_window(&self, addr: usize, len: usize, data: usize, data_len: usize) -> Outcome {
        require(self.contains(addr, len), INVALID)?;
        require(data >= addr && data - addr <= len && data_len <= len - (data - addr), INVALID)
    }

    /// Its first address and its length.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.addr, self.len)
    }

    /// The name that `dev` has it under, if the map was given that device.
    pub(crate) fn key(&self, dev: &Arc<Dev>) -> Option<RegionKey> {
        self.keys.iter().find(|(of, _)| Arc::ptr_eq(of, dev)).map(|(_, key)| *key)
    }

    /// A device may read it.
    pub(crate) fn may_read(&self) -> bool {
        self.rights.intersects(Rights::LOCAL_READ | Rights::REMOTE_READ)
    }

    /// A device may write it.
    pub(crate) fn may_write(&self) -> bool {
        self.rights.intersects(Rights::LOCAL_WRITE | Rights::REMOTE_WRITE)
    }

    pub(crate) fn is_started(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }

    /// A buffer came, or went.
    pub(crate) fn count_buf(&self, came: bool) {
        match &self.bufs {
            Some(bufs) if came => _ = bufs.fetch_add(1, Ordering::Relaxed),
            Some(bufs) => _ = bufs.fetch_sub(1, Ordering::Release),
            None => {}
        }
    }

    /// Takes the memory away from the devices.
    ///
    /// # Errors
    ///
    /// Tasks in flight name it, and it stays registered with those devices; or a consumer has it.
    fn unregister(&self) -> Outcome {
        require(self.lent.load(Ordering::Acquire) == 0, c::DOCA_ERROR_NOT_PERMITTED)?;
        let mut busy = false;
        for (dev, key) in &self.keys {
            // A key that is not there was taken away by an earlier attempt.
            busy |= matches!(
                dev.card().engine().unregister(*key),
                Err(dma_sim::model::RegionError::InUse { .. })
            );
        }
        require(!busy, c::DOCA_ERROR_NOT_PERMITTED)?;
        if self.live.swap(false, Ordering::Relaxed)
            && let Some((dev, _)) = self.keys.first()
        {
            dev.card().unlock_memory(self.locked);
        }
        Ok(())
    }
}

impl Setup {
    fn new() -> Self {
        Self {
            range: None,
            devs: Vec::new(),
            max_devs: DEVICES,
            // What NVIDIA's local copy samples rely on, which set none.
            access: c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE,
            user_data: 0,
            free: None,
            was_started: false,
            imported: None,
            exports: Vec::new(),
            registered: None,
        }
    }

    /// Calls that set something up: `BAD_STATE` when started, `NOT_PERMITTED` of an imported map.
    fn require_settable(&self) -> Outcome {
        require(self.imported.is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(self.registered.is_none(), c::DOCA_ERROR_BAD_STATE)
    }

    fn set_range(&mut self, addr: *mut c_void, len: usize, dmabuf: Option<DmaBuf>) -> Outcome {
        self.require_settable()?;
        require(self.range.is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(!addr.is_null() && len > 0 && isize::try_from(len).is_ok(), INVALID)?;
        require(addr.addr().checked_add(len).is_some(), INVALID)?;
        self.range = Some(Range { addr: addr.expose_provenance(), len, dmabuf });
        Ok(())
    }

    fn add_dev(&mut self, dev: Arc<Dev>) -> Outcome {
        require(self.imported.is_none() && self.registered.is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(!self.devs.iter().any(|other| Arc::ptr_eq(other, &dev)), c::DOCA_ERROR_ALREADY_EXIST)?;
        require((self.devs.len() as u64) < u64::from(self.max_devs), c::DOCA_ERROR_NO_MEMORY)?;
        self.devs.push(dev);
        Ok(())
    }

    fn rm_dev(&mut self, dev: &Dev) -> Outcome {
        require(self.imported.is_none() && self.registered.is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let place = self.devs.iter().position(|other| std::ptr::eq(&**other, dev));
        self.devs.remove(place.ok_or(c::DOCA_ERROR_NOT_FOUND)?);
        Ok(())
    }

    fn start(&mut self, bufs: Option<Arc<AtomicU32>>) -> Outcome {
        require(self.imported.is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(self.registered.is_none(), c::DOCA_ERROR_BAD_STATE)?;
        let range = self.range.as_ref().ok_or(INVALID)?;
        let first = self.devs.first().ok_or(INVALID)?;
        let here = match &range.dmabuf {
            Some(dmabuf) => dmabuf.first(),
            None => NonNull::new(std::ptr::with_exposed_provenance_mut(range.addr)).ok_or(INVALID)?,
        };
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
            at: reach::Place::Here(here.as_ptr().expose_provenance()),
            lent: AtomicU32::new(0),
            live: AtomicBool::new(true),
            bufs,
        };
        for dev in &self.devs {
            // SAFETY: the program promises, by starting the map, that the memory is there until it is stopped; tasks in flight keep the
            // map from being stopped. A DMA buffer is mapped as long as the map has it.
            match unsafe { dev.card().engine().register(spec.clone()) } {
                Ok(key) => registered.keys.push((Arc::clone(dev), key)),
                Err(_) => {
                    // Nothing uses it yet, so nothing keeps it.
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

    /// Stops; importers of it are cut off.
    fn stop(&mut self) -> Outcome {
        let registered = self.registered.as_ref().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        registered.unregister()?;
        // First out of the reach of peers, then forgotten.
        self.exports.iter().try_for_each(Exported::revoke)?;
        self.exports.clear();
        self.registered = None;
        Ok(())
    }
}

impl Mmap {
    fn new(setup: Setup) -> Self {
        Self {
            mark: Mark::new(Self::MARK),
            bufs: Arc::default(),
            thread_safe: AtomicBool::new(false),
            setup: Mutex::new(setup),
        }
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
        require(setup.imported.is_none(), c::DOCA_ERROR_NOT_PERMITTED)?;
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
