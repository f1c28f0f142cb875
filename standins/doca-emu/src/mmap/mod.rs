//! `doca_mmap.h`: memory that devices may access.
#![expect(unsafe_code, reason = "functions that C calls by name, and the memory that it registers")]

mod calls;
#[cfg(workq)]
mod chunks;
mod dmabuf;
mod exported_map;
mod registered;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dma_core::Access;
use dma_ipc::{Export, RemoteError};
use dma_process::lock;
use dma_sim::model::{RegionSpec, Rights};

use crate::c_abi::{Handle, INVALID, Mark, Outcome, c, object, require};
use crate::descriptor::{Descriptor, Exported, Kind};
use crate::dev::Dev;
use crate::log::sdk_log;
use dmabuf::DmaBuf;
pub(crate) use exported_map::ExportedMap;
use registered::Place;
pub(crate) use registered::Registered;

/// True for DOCA 1.5, where memory and devices are added to started maps.
const GROWS: bool = cfg!(feature = "generation-1-5");

/// Default maximum numbers of devices and chunks of a map.
const DEVICES: u32 = 8;
const CHUNKS: u32 = 64;

/// All bits of `doca_access_flag`. DOCA 2.2 lacks the last one.
const ACCESS: u32 = if cfg!(workq) {
    (c::DOCA_ACCESS_FLAG_PCI_READ_WRITE << 1) - 1
} else {
    (c::DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING << 1) - 1
};
const PCI: u32 = c::DOCA_ACCESS_FLAG_PCI_READ_ONLY | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE;
const RDMA: u32 =
    c::DOCA_ACCESS_FLAG_RDMA_READ | c::DOCA_ACCESS_FLAG_RDMA_WRITE | c::DOCA_ACCESS_FLAG_RDMA_ATOMIC;

/// Rights that include local writing, as on the hardware, because programs rely on that.
const WRITE: u32 = c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
    | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE
    | c::DOCA_ACCESS_FLAG_RDMA_WRITE
    | c::DOCA_ACCESS_FLAG_RDMA_ATOMIC;

/// A memory map: `struct doca_mmap`. Any thread may make and release buffers of the map.
pub(crate) struct Mmap {
    mark: Mark,
    setup: Mutex<Setup>,
}

object!(Mmap, 0x3a_90_00_01);

/// The map's configuration, and what a start makes from it.
#[derive(Default)]
struct Setup {
    /// The ranges of memory. Only with DOCA 1.5, there may be more than one.
    chunks: Vec<Chunk>,
    max_chunks: u32,
    devs: Vec<Arc<Dev>>,
    max_devs: u32,
    access: u32,
    user_data: u64,
    /// The function that frees the chunks that have no function of their own.
    free: Option<Free>,
    started: bool,
    was_started: bool,
    imported: bool,
    exports: Vec<Exported>,
    bufs: Arc<AtomicU32>,
    /// If set, several threads may use buffers, and the buffers are not counted.
    thread_safe: bool,
    /// A number of the map, from which its memory keys are made.
    number: u32,
}

/// Number of maps so far.
static MAPS: AtomicU32 = AtomicU32::new(0);

struct Chunk {
    addr: usize,
    len: usize,
    dmabuf: Option<DmaBuf>,
    free: Option<Free>,
    /// Made at the start. With DOCA 1.5, made at the first use.
    registered: Option<Arc<Registered>>,
}

impl Chunk {
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
    /// Set if the map was started after the function was set.
    started: bool,
}

impl Setup {
    fn new() -> Self {
        Self {
            max_chunks: CHUNKS,
            max_devs: DEVICES,
            // NVIDIA's local copy samples set no rights, and rely on this default. DOCA 1.5 has no other
            // rights.
            access: c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
                | if GROWS { c::DOCA_ACCESS_FLAG_PCI_READ_WRITE } else { 0 },
            number: MAPS.fetch_add(1, Ordering::Relaxed) + 1,
            ..Self::default()
        }
    }

    /// Checks the map for calls that change devices and memory. Returns `NOT_PERMITTED` if the map is
    /// imported, exported or started. With DOCA 1.5, the map must be started.
    fn require_changeable(&self) -> Outcome {
        let changeable = self.started == GROWS && !self.imported && self.exports.is_empty();
        require(changeable, c::DOCA_ERROR_NOT_PERMITTED)
    }

    /// Checks the map for calls that configure it. Returns `NOT_PERMITTED` if it is imported, `BAD_STATE` if
    /// it is started.
    fn require_settable(&self) -> Outcome {
        if cfg!(workq) {
            return self.require_changeable();
        }
        require(!self.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(!self.started, c::DOCA_ERROR_BAD_STATE)
    }

    /// Checks the map for calls that set its memory. Returns `NOT_PERMITTED` if the memory is set already.
    fn require_no_range(&self) -> Outcome {
        self.require_settable()?;
        require(self.chunks.is_empty(), c::DOCA_ERROR_NOT_PERMITTED)
    }

    /// Checks the map for calls that are allowed only before its first start. Returns `NOT_PERMITTED`
    /// afterwards.
    fn require_new(&self) -> Outcome {
        require(!self.was_started, c::DOCA_ERROR_NOT_PERMITTED)
    }

    /// # Safety
    ///
    /// Without a dma-buf, `len` bytes at `addr` can be read, and written if the permissions allow that, from
    /// the start of the map until its stop.
    unsafe fn add_memory(
        &mut self,
        addr: *mut c_void,
        len: usize,
        dmabuf: Option<DmaBuf>,
        free: Option<Free>,
    ) -> Outcome {
        require(!addr.is_null() && len > 0 && isize::try_from(len).is_ok(), INVALID)?;
        let end = addr.addr().checked_add(len).ok_or(INVALID)?;
        let apart = |chunk: &Chunk| end <= chunk.addr || chunk.addr + chunk.len <= addr.addr();
        require(self.chunks.iter().all(apart), c::DOCA_ERROR_NOT_PERMITTED)?;
        require((self.chunks.len() as u64) < u64::from(self.max_chunks), c::DOCA_ERROR_NO_MEMORY)?;
        self.chunks.push(Chunk { addr: addr.expose_provenance(), len, dmabuf, free, registered: None });
        Ok(())
    }

    fn add_dev(&mut self, dev: Arc<Dev>) -> Outcome {
        self.require_changeable()?;
        let exists = if cfg!(workq) { c::DOCA_ERROR_IN_USE } else { c::DOCA_ERROR_ALREADY_EXIST };
        require(!self.devs.iter().any(|other| Arc::ptr_eq(other, &dev)), exists)?;
        require((self.devs.len() as u64) < u64::from(self.max_devs), c::DOCA_ERROR_NO_MEMORY)?;
        // With DOCA 1.5, chunks are registered again, with all devices, at the next use.
        self.release()?;
        self.devs.push(dev);
        Ok(())
    }

    fn rm_dev(&mut self, dev: &Dev) -> Outcome {
        self.require_changeable()?;
        let place = self.place(dev)?;
        self.release()?;
        self.devs.remove(place);
        Ok(())
    }

    /// Returns the index of a device in the map. Returns `NOT_FOUND` if the map does not have the device.
    fn place(&self, dev: &Dev) -> Outcome<usize> {
        let place = self.devs.iter().position(|other| std::ptr::eq(&**other, dev));
        place.ok_or(if GROWS { INVALID } else { c::DOCA_ERROR_NOT_FOUND })
    }

    /// Returns the memory key of a started map on one of its devices. It differs from those of other maps and
    /// devices. Its lowest byte is 0, as that of keys which the kernel's driver makes.
    fn mkey(&self, dev: &Dev) -> Outcome<u32> {
        require(self.started, c::DOCA_ERROR_NOT_PERMITTED)?;
        let place = self.place(dev)? as u32;
        Ok(self.number << 16 | place << 8)
    }

    fn start(&mut self) -> Outcome {
        require(!self.imported && self.exports.is_empty(), c::DOCA_ERROR_NOT_PERMITTED)?;
        if !GROWS {
            require(!self.started, c::DOCA_ERROR_BAD_STATE)?;
            require(!self.chunks.is_empty() && (cfg!(workq) || !self.devs.is_empty()), INVALID)?;
            self.register(0)?;
        }
        self.started = true;
        self.was_started = true;
        if let Some(free) = &mut self.free {
            free.started = true;
        }
        Ok(())
    }

    /// Registers the memory of a chunk with the map's devices. A map without devices can only be used for
    /// buffers.
    fn register(&mut self, place: usize) -> Outcome<Arc<Registered>> {
        let chunk = &mut self.chunks[place];
        if let Some(registered) = &chunk.registered {
            return Ok(Arc::clone(registered));
        }
        let start = chunk.first()?;
        let (addr, len) = (chunk.addr, chunk.len);
        let writable = self.access & WRITE != 0;
        let rights = if writable { Rights::LOCAL_READ | Rights::LOCAL_WRITE } else { Rights::LOCAL_READ };
        let mut spec = RegionSpec::local(start, len as u64, rights);
        spec.addr = addr as u64;
        let bufs = (!self.thread_safe).then(|| Arc::clone(&self.bufs));
        let at = Place::Here(start.as_ptr().expose_provenance());
        let mut registered = Registered::new(addr, len, rights, at, bufs);
        registered.is_local = chunk.dmabuf.is_none();
        if let Some(first) = self.devs.first() {
            if registered.is_local {
                registered::check(addr, len, writable)?;
            }
            first.card().lock_memory(len as u64)?;
            registered.locked = len as u64;
        }
        for dev in &self.devs {
            // SAFETY: the caller of `add_memory` promised that the memory stays until the map is stopped, and
            // the map cannot be stopped while tasks are in flight. A dma-buf is mapped as long as the map has
            // it.
            match unsafe { dev.card().engine().register(spec.clone()) } {
                Ok(key) => registered.keys.push((Arc::clone(dev), key)),
                Err(_) => {
                    // No task uses the map yet, so this succeeds.
                    let _ = registered.unregister();
                    return Err(INVALID);
                }
            }
        }
        Ok(Arc::clone(chunk.registered.insert(Arc::new(registered))))
    }

    /// Returns the descriptor for the card of `dev`. The first call makes the descriptor.
    fn export(&mut self, dev: &Dev, kind: Kind) -> Outcome<&[u8]> {
        let wanted = if kind == Kind::Pci { PCI } else { RDMA };
        require(!self.imported && self.started, c::DOCA_ERROR_NOT_PERMITTED)?;
        self.place(dev)?;
        require(kind == Kind::Rdma || dev.function().export, c::DOCA_ERROR_NOT_SUPPORTED)?;
        require(self.chunks.len() == 1 && self.access & wanted != 0, c::DOCA_ERROR_NOT_PERMITTED)?;
        self.register(0)?;
        let made = self.exports.iter().position(|made| made.is_for(kind, dev));
        let place = made.unwrap_or(self.exports.len());
        if made.is_none() {
            let chunk = &self.chunks[0];
            let export = if kind == Kind::Pci { Some(self.export_chunk(chunk)?) } else { None };
            let made = Exported::new(kind, dev, (chunk.addr, chunk.len), self.access, export);
            self.exports.push(made);
        }
        Ok(&self.exports[place].bytes)
    }

    fn export_chunk(&self, chunk: &Chunk) -> Outcome<Export> {
        let writable = self.access & c::DOCA_ACCESS_FLAG_PCI_READ_WRITE != 0;
        let rights = if writable { Access::READ | Access::WRITE } else { Access::READ };
        // SAFETY: by exporting the map, the program promises that the memory stays until the map is stopped,
        // which revokes the export first, and that the peer that receives the descriptor may access it.
        let export = unsafe { Export::of_process_memory(chunk.first()?, chunk.len, rights) };
        export.map_err(|error| {
            sdk_log!(ERROR, "memory cannot be exported: {error}");
            match error {
                RemoteError::NotMapped { .. } => c::DOCA_ERROR_NOT_PERMITTED,
                RemoteError::OutOfMemory { .. } => c::DOCA_ERROR_NO_MEMORY,
                _ => c::DOCA_ERROR_DRIVER,
            }
        })
    }

    fn require_unused(&self) -> Outcome {
        require(self.bufs.load(Ordering::Acquire) == 0, c::DOCA_ERROR_NOT_PERMITTED)
    }

    fn stop(&mut self) -> Outcome {
        require(!self.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(self.started, if cfg!(workq) { INVALID } else { c::DOCA_ERROR_BAD_STATE })?;
        self.release()?;
        self.started = false;
        Ok(())
    }

    /// Unregisters the memory and revokes its exports.
    fn release(&mut self) -> Outcome {
        self.require_unused()?;
        self.chunks
            .iter()
            .filter_map(|chunk| chunk.registered.as_ref())
            .try_for_each(|it| it.unregister())?;
        // Revoke the peers' access before the exports are dropped.
        self.exports.iter().try_for_each(Exported::revoke)?;
        self.exports.clear();
        self.chunks.iter_mut().for_each(|chunk| chunk.registered = None);
        Ok(())
    }
}

impl Mmap {
    fn give(setup: Setup) -> Handle<Self> {
        Handle::give_arc(Arc::new(Self { mark: Mark::of::<Self>(), setup: Mutex::new(setup) }))
    }

    fn import(bytes: &[u8], dev: Arc<Dev>, user_data: u64) -> Outcome<Handle<Self>> {
        let descriptor = Descriptor::parse(bytes).filter(|descriptor| descriptor.kind != Kind::Event);
        let descriptor = descriptor.ok_or(INVALID)?;
        let mut setup = Setup { access: descriptor.access, user_data, ..Setup::new() };
        let registered = registered::import(&descriptor, &dev, &setup.bufs)?;
        (setup.started, setup.was_started, setup.imported) = (true, true, true);
        setup.devs.push(dev);
        let (addr, len) = registered.range();
        setup.chunks.push(Chunk {
            addr,
            len,
            dmabuf: None,
            free: None,
            registered: Some(Arc::new(registered)),
        });
        Ok(Self::give(setup))
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        lock(&self.setup)
    }

    /// Returns the memory of a started map. Returns `BAD_STATE` if the map is not started.
    pub(crate) fn registered(&self) -> Outcome<Arc<Registered>> {
        let registered = self.setup().chunks.first().and_then(|chunk| chunk.registered.clone());
        registered.ok_or(c::DOCA_ERROR_BAD_STATE)
    }

    /// Returns the memory of a started map, so that a buffer of these bytes can be made.
    /// Errors: `BAD_STATE` if the map is not started, `INVALID_VALUE` if the bytes are outside of the map.
    pub(crate) fn memory_at(&self, addr: usize, len: usize) -> Outcome<Arc<Registered>> {
        let mut setup = self.setup();
        require(setup.started, c::DOCA_ERROR_BAD_STATE)?;
        let within =
            |chunk: &Chunk| addr >= chunk.addr && len <= chunk.len && addr - chunk.addr <= chunk.len - len;
        let place = setup.chunks.iter().position(within).ok_or(INVALID)?;
        setup.register(place)
    }

    fn destroy(handle: Handle<Self>) -> Outcome {
        let (chunks, free) = {
            let mut setup = handle.get()?.setup();
            setup.release()?;
            (std::mem::take(&mut setup.chunks), setup.free)
        };
        drop(handle.take_arc()?);
        for chunk in chunks {
            if let Some(free) = chunk.free.or(free).filter(|free| free.started) {
                let addr = std::ptr::with_exposed_provenance_mut(chunk.addr);
                let cookie = std::ptr::with_exposed_provenance_mut(free.cookie);
                // SAFETY: the program registered the function for this memory and this argument, and the
                // memory is not registered with any device any more.
                unsafe { (free.call)(addr, chunk.len, cookie) }
            }
        }
        Ok(())
    }
}
