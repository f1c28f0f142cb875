//! Started maps that consumers export to a peer.
#![expect(unsafe_code, reason = "memory is exported")]

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dma_core::Access;
use dma_ipc::{Export, RemoteError};

use super::registered::{Place, Registered};
use crate::c_abi::{INVALID, Outcome, c, require};
use crate::log::sdk_log;

/// Time limit for a peer's copies when the export is revoked.
const WAITS: Duration = Duration::from_secs(5);

/// A started map that a peer may write until this value is dropped.
pub(crate) struct ExportedMap {
    memory: Arc<Registered>,
    export: Export,
}

impl ExportedMap {
    /// Exports the memory of a started map.
    /// Errors: `BAD_STATE` if the map is not started, `NOT_SUPPORTED` if it was imported; the error of
    /// [`check`](super::registered::check) if its memory is not writable.
    pub(crate) fn new(memory: &Arc<Registered>) -> Outcome<Self> {
        require(memory.is_started(), c::DOCA_ERROR_BAD_STATE)?;
        let Place::Here(first) = memory.at else { return Err(c::DOCA_ERROR_NOT_SUPPORTED) };
        super::registered::check(first, memory.len, true)?;
        let start = NonNull::new(ptr::with_exposed_provenance_mut(first)).ok_or(INVALID)?;
        // SAFETY: `export_count` keeps the map started until this value is dropped, and the program keeps the
        // memory until the map is stopped. The drop revokes the export.
        let export = unsafe { Export::of_process_memory(start, memory.len, Access::READ | Access::WRITE) };
        let export = export.map_err(|error| {
            sdk_log!(ERROR, "comch consumer: its memory cannot be exported: {error}");
            match error {
                RemoteError::OutOfMemory { .. } => c::DOCA_ERROR_NO_MEMORY,
                _ => c::DOCA_ERROR_DRIVER,
            }
        })?;
        memory.export_count.fetch_add(1, Ordering::AcqRel);
        Ok(Self { memory: Arc::clone(memory), export })
    }

    /// Returns the descriptor for the peer, and the address and length of the memory that it covers.
    pub(crate) fn descriptor(&self) -> (&[u8], u64, u64) {
        (self.export.blob(), self.memory.addr as u64, self.memory.len as u64)
    }

    pub(crate) fn contains(&self, addr: usize, len: usize) -> bool {
        self.memory.contains(addr, len)
    }
}

impl Drop for ExportedMap {
    fn drop(&mut self) {
        match self.export.revoke(WAITS) {
            // In a forked process, the export is the parent's, and the parent revokes it.
            Ok(()) | Err(RemoteError::Unsupported { .. }) => {
                self.memory.export_count.fetch_sub(1, Ordering::AcqRel);
            }
            // A peer hangs in the middle of a copy, so the memory stays exported.
            Err(error) => sdk_log!(ERROR, "comch consumer: its export cannot be revoked: {error}"),
        }
    }
}
