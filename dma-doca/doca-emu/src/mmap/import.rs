//! Maps of memory that a peer exported.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use dma_core::Access;
use dma_ipc::{Import, RemoteError};
use dma_sim::model::{RegionSpec, Rights};

use super::registered::{Place, Registered};
use crate::c_abi::{INVALID, Outcome, c, require};
use crate::descriptor::{Descriptor, Kind};
use crate::dev::Dev;
use crate::log::sdk_log;

/// The started map of a descriptor, whose buffers are counted in `bufs`.
pub(super) fn import(descriptor: &Descriptor, dev: &Arc<Dev>, bufs: &Arc<AtomicU32>) -> Outcome<Registered> {
    let (addr, len) = (descriptor.addr as usize, descriptor.len as usize);
    let mut registered = Registered::new(addr, len, Rights::empty(), Place::Nowhere, Some(Arc::clone(bufs)));
    // Memory of another machine: no device here has a key for it.
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
    let memory = Arc::clone(&import) as Arc<dyn dma_sim::model::FarMemory>;
    let spec = RegionSpec::far(descriptor.addr, descriptor.len, registered.rights, memory);
    // SAFETY: the region has no memory of this process.
    let key = unsafe { dev.card().engine().register(spec) }.map_err(|_| INVALID)?;
    registered.keys.push((Arc::clone(dev), key));
    registered.at = Place::Far(import);
    Ok(registered)
}

/// Result code of a failed import.
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
