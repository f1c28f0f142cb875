//! Access of the device model to imported memory.

use super::{FarMemory, PeerError};
use dma_ipc::{Import, RemoteError};

impl From<RemoteError> for PeerError {
    /// Logs an error, and converts it to the error of a copy in the model.
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::PeerGone { .. } => Self::Gone,
            RemoteError::Revoked { .. } => Self::Revoked,
            error => {
                dma_core::deferred_log!(warn, %error, "imported memory cannot be reached");
                Self::Revoked
            }
        }
    }
}

/// Access through the import, whether or not its memory is mapped here. If it is mapped, registering its
/// address as [`RegionMemory::Shared`](super::RegionMemory::Shared) is faster.
impl FarMemory for Import {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), PeerError> {
        Ok(Self::read_at(self, offset, to)?)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), PeerError> {
        Ok(Self::write_at(self, offset, from)?)
    }
}
