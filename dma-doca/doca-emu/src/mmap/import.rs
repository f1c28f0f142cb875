//! Maps of memory that a peer exported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use dma_core::Access;
use dma_sim::model::{RegionSpec, Rights};
use dma_sim::remote::{Import, RemoteError};

use super::export::{Descriptor, Way};
use super::reach::Place;
use super::{Mmap, Range, Registered, Setup};
use crate::dev::Dev;
use crate::door::{INVALID, Outcome, c, require};
use crate::log::sdk_log;

/// That a map is imported.
pub(super) struct Imported;

impl Mmap {
    /// The started map that a descriptor stands for.
    pub(super) fn import(bytes: &[u8], dev: Arc<Dev>, user_data: u64) -> Outcome<Self> {
        let descriptor = Descriptor::parse(bytes).ok_or(INVALID)?;
        let (addr, len) = (descriptor.addr as usize, descriptor.len as usize);
        let bufs: Arc<AtomicU32> = Arc::default();
        let mut registered = Registered {
            addr,
            len,
            rights: Rights::empty(),
            keys: Vec::new(),
            locked: 0,
            is_local: false,
            at: Place::Nowhere,
            lent: AtomicU32::new(0),
            live: AtomicBool::new(true),
            bufs: Some(Arc::clone(&bufs)),
        };
        match descriptor.way {
            // Another machine's, as far as this one can tell: no device here has it under a name.
            Way::Rdma => {}
            Way::Pci => {
                require(dev.function().import, c::DOCA_ERROR_NOT_SUPPORTED)?;
                // Only a function of the same card reaches the memory.
                require(dev.card().config.serial == descriptor.serial, INVALID)?;
                let import = Arc::new(Import::open(&descriptor.remote).map_err(native)?);
                let grant = import.grant();
                require(grant.len == descriptor.len, INVALID)?;
                let rights = if grant.rights.contains(Access::WRITE) {
                    Rights::REMOTE_READ | Rights::REMOTE_WRITE
                } else {
                    Rights::REMOTE_READ
                };
                registered.rights = rights;
                let memory = Arc::clone(&import) as Arc<dyn dma_sim::model::FarMemory>;
                let spec = RegionSpec::far(descriptor.addr, descriptor.len, rights, memory);
                // SAFETY: the region has no memory of this process.
                let key = unsafe { dev.card().engine().register(spec) }.map_err(|_| INVALID)?;
                registered.keys.push((Arc::clone(&dev), key));
                registered.at = Place::Far(import);
            }
        }
        let setup = Setup {
            range: Some(Range { addr, len, dmabuf: None }),
            devs: vec![dev],
            access: descriptor.access,
            user_data,
            was_started: true,
            imported: Some(Imported),
            registered: Some(Arc::new(registered)),
            ..Setup::new()
        };
        Ok(Self { bufs, ..Self::new(setup) })
    }
}

/// What an import fails with.
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
