//! Started maps, and CPU access to their bytes for producers and consumers of the comm channel.
#![expect(unsafe_code, reason = "memory that the program registered is read here")]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dma_core::Access;
use dma_ipc::proc_maps::{Mapped, mapped};
use dma_ipc::{Import, RemoteError};
use dma_sim::model::{FarMemory, PeerError, RegionError, RegionKey, RegionSpec, Rights};

use crate::c_abi::{INVALID, Outcome, c, require};
use crate::descriptor::{Descriptor, Kind};
use crate::dev::Dev;
use crate::log::sdk_log;

/// Size of the chunks in which a peer's memory is copied.
const CHUNK: usize = 64 << 10;

pub(super) enum Place {
    /// Memory of this process, at this address.
    Here(usize),
    /// Memory of another process of this machine.
    Far(Arc<Import>),
    /// Memory of another machine, which cannot be accessed.
    Nowhere,
}

/// The memory of a started map: its range, and its key on each device. Buffers keep this value alive.
pub(crate) struct Registered {
    pub(super) addr: usize,
    pub(super) len: usize,
    pub(super) rights: Rights,
    pub(super) keys: Vec<(Arc<Dev>, RegionKey)>,
    /// Amount of locked memory, in bytes.
    pub(super) locked: u64,
    /// Set if `addr` is an address in this process.
    pub(crate) is_local: bool,
    pub(super) at: Place,
    /// Number of consumers that export this memory to peers. Until it is 0, the memory cannot be
    /// unregistered.
    pub(super) export_count: AtomicU32,
    pub(super) live: AtomicBool,
    /// Counter of the map's buffers. `None` if the buffers are not counted.
    pub(super) bufs: Option<Arc<AtomicU32>>,
}

impl Registered {
    /// Makes a value that is not registered with any device yet. `bufs` counts the map's buffers.
    pub(super) fn new(
        addr: usize,
        len: usize,
        rights: Rights,
        at: Place,
        bufs: Option<Arc<AtomicU32>>,
    ) -> Self {
        let (export_count, live) = (AtomicU32::new(0), AtomicBool::new(true));
        Self { addr, len, rights, keys: Vec::new(), locked: 0, is_local: false, at, export_count, live, bufs }
    }

    pub(crate) fn contains(&self, addr: usize, len: usize) -> bool {
        addr >= self.addr && addr - self.addr <= self.len && len <= self.len - (addr - self.addr)
    }

    /// Checks that the window is within this memory, and the data within the window.
    pub(crate) fn check_window(&self, addr: usize, len: usize, data: usize, data_len: usize) -> Outcome {
        require(self.contains(addr, len), INVALID)?;
        require(data >= addr && data - addr <= len && data_len <= len - (data - addr), INVALID)
    }

    pub(crate) fn range(&self) -> (usize, usize) {
        (self.addr, self.len)
    }

    /// Returns the memory's key on `dev`, if the map has that device.
    pub(crate) fn key(&self, dev: &Arc<Dev>) -> Option<RegionKey> {
        self.keys.iter().find(|(of, _)| Arc::ptr_eq(of, dev)).map(|(_, key)| *key)
    }

    pub(crate) fn may_read(&self) -> bool {
        self.rights.intersects(Rights::LOCAL_READ | Rights::REMOTE_READ)
    }

    pub(crate) fn may_write(&self) -> bool {
        self.rights.intersects(Rights::LOCAL_WRITE | Rights::REMOTE_WRITE)
    }

    pub(crate) fn is_started(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn count_buf(&self, came: bool) {
        match &self.bufs {
            Some(bufs) if came => _ = bufs.fetch_add(1, Ordering::Relaxed),
            Some(bufs) => _ = bufs.fetch_sub(1, Ordering::Release),
            None => {}
        }
    }

    /// Unregisters the memory from the devices.
    /// Fails if a consumer exports the memory, or if tasks in flight use it. In the second case, the memory
    /// stays registered with the devices of these tasks.
    pub(super) fn unregister(&self) -> Outcome {
        require(self.export_count.load(Ordering::Acquire) == 0, c::DOCA_ERROR_NOT_PERMITTED)?;
        let mut busy = false;
        for (dev, key) in &self.keys {
            // An earlier attempt may have removed the key.
            busy |= matches!(dev.card().engine().unregister(*key), Err(RegionError::InUse { .. }));
        }
        require(!busy, c::DOCA_ERROR_NOT_PERMITTED)?;
        if self.live.swap(false, Ordering::Relaxed)
            && let Some((dev, _)) = self.keys.first()
        {
            dev.card().unlock_memory(self.locked);
        }
        Ok(())
    }

    /// Passes the `len` bytes at `addr` to `write` in pieces, each with its offset.
    /// Errors: `INVALID_VALUE` if the map is not started or the bytes are not within it, `IO_FAILED` if the
    /// peer has revoked it, or an error of `write`.
    pub(crate) fn read(
        &self,
        addr: usize,
        len: usize,
        mut write: impl FnMut(usize, &[u8]) -> Outcome,
    ) -> Outcome {
        require(self.is_started() && self.contains(addr, len), INVALID)?;
        let skip = addr - self.addr;
        match &self.at {
            Place::Here(first) => {
                let from = ptr::with_exposed_provenance::<u8>(first + skip);
                // SAFETY: by starting the map, the program promises that the memory stays until the map is
                // stopped. By sending the buffer, the program promises that no code writes it until the task
                // ends.
                write(0, unsafe { std::slice::from_raw_parts(from, len) })
            }
            Place::Far(import) => {
                let mut carried = vec![0; len.min(CHUNK)];
                for done in (0..len).step_by(CHUNK) {
                    let piece = &mut carried[..CHUNK.min(len - done)];
                    import.read_at((skip + done) as u64, piece).map_err(|_| c::DOCA_ERROR_IO_FAILED)?;
                    write(done, piece)?;
                }
                Ok(())
            }
            Place::Nowhere => Err(c::DOCA_ERROR_NOT_SUPPORTED),
        }
    }
}

/// Checks that all of the memory is mapped, and writable if required, as devices do at registration.
/// Errors: `INVALID_VALUE` if some of the memory is not mapped, `NOT_PERMITTED` if some of it lacks a
/// required right.
pub(super) fn check(addr: usize, len: usize, writable: bool) -> Outcome {
    match mapped(addr as u64, len as u64, writable) {
        // If the system cannot answer, trust the program.
        Ok(Mapped::Whole) | Err(_) => Ok(()),
        Ok(Mapped::Missing) => Err(INVALID),
        Ok(Mapped::Denied) => Err(c::DOCA_ERROR_NOT_PERMITTED),
    }
}

/// Imports the memory that a descriptor names. `bufs` counts the buffers of the imported map.
pub(super) fn import(descriptor: &Descriptor, dev: &Arc<Dev>, bufs: &Arc<AtomicU32>) -> Outcome<Registered> {
    let (addr, len) = (descriptor.addr as usize, descriptor.len as usize);
    let mut registered = Registered::new(addr, len, Rights::empty(), Place::Nowhere, Some(Arc::clone(bufs)));
    // This is memory of another machine, so it gets no key on any device.
    if descriptor.kind == Kind::Rdma {
        return Ok(registered);
    }
    require(dev.function().import, c::DOCA_ERROR_NOT_SUPPORTED)?;
    // The device must be of the same card.
    require(dev.card().config.serial == descriptor.serial, INVALID)?;
    let import = Arc::new(Import::open(&descriptor.remote).map_err(native)?);
    let grant = import.grant();
    require(grant.len == descriptor.len, INVALID)?;
    registered.rights = if grant.rights.contains(Access::WRITE) {
        Rights::REMOTE_READ | Rights::REMOTE_WRITE
    } else {
        Rights::REMOTE_READ
    };
    let reachable = dev.card().limits.self_import || descriptor.side != dev.function().side;
    let memory = if reachable { Arc::clone(&import) as Arc<dyn FarMemory> } else { Arc::new(OwnSide) };
    let spec = RegionSpec::far(descriptor.addr, descriptor.len, registered.rights, memory);
    // SAFETY: the region has no memory of this process, so no memory has to stay valid. The device accesses
    // it through `memory`.
    let key = unsafe { dev.card().engine().register(spec) }.map_err(|_| INVALID)?;
    registered.keys.push((Arc::clone(dev), key));
    registered.at = Place::Far(import);
    Ok(registered)
}

/// Memory that the importer's own side exported, on a card that reaches only memory of the other side.
#[derive(Debug)]
struct OwnSide;

impl FarMemory for OwnSide {
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), PeerError> {
        Err(PeerError::Gone)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), PeerError> {
        Err(PeerError::Gone)
    }
}

fn native(error: RemoteError) -> c::doca_error_t {
    sdk_log!(ERROR, "memory cannot be imported: {error}");
    match error {
        RemoteError::MalformedBlob { .. } | RemoteError::VersionMismatch { .. } => INVALID,
        RemoteError::UnknownExport { .. } | RemoteError::Revoked { .. } | RemoteError::PeerGone { .. } => {
            INVALID
        }
        RemoteError::ForeignUser { .. } | RemoteError::Permission { .. } => c::DOCA_ERROR_NOT_PERMITTED,
        RemoteError::TooManyImports { .. } | RemoteError::OutOfMemory { .. } => c::DOCA_ERROR_NO_MEMORY,
        _ => c::DOCA_ERROR_DRIVER,
    }
}
