//! Imported memory as the device model reaches it.

use super::{Import, RemoteError};
use crate::model::{FarMemory, PeerError};

impl From<RemoteError> for PeerError {
    /// What a copy in the model fails with. Why exactly is in the log.
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::PeerGone { .. } => Self::Gone,
            RemoteError::Revoked { .. } => Self::Revoked,
            error => {
                tracing::warn!(%error, "imported memory cannot be reached");
                Self::Revoked
            }
        }
    }
}

/// Of either kind of memory. Where it is mapped here, registering its address is faster.
impl FarMemory for Import {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), PeerError> {
        Ok(Self::read_at(self, offset, to)?)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), PeerError> {
        Ok(Self::write_at(self, offset, from)?)
    }
}
