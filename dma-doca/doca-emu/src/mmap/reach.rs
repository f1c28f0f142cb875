//! Getting at a started map's bytes without a device: what the comm channel's producers send and its consumers lend.
#![expect(unsafe_code, reason = "memory that the program registered is read here")]

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dma_core::Access;
use dma_sim::remote::{Export, Import, RemoteError};

use super::{Registered, mapped};
use crate::door::{INVALID, Outcome, c, require};
use crate::log::sdk_log;

/// Bytes of a peer's memory that are carried at a time.
const CHUNK: usize = 64 << 10;
/// How long taking lent memory back waits for a peer to end its copy.
const WAITS: Duration = Duration::from_secs(5);

/// Where a map's bytes are.
pub(super) enum Place {
    /// In this process, from this address on.
    Here(usize),
    /// With a peer on this machine.
    Far(Arc<Import>),
    /// Over a network.
    Nowhere,
}

impl Registered {
    /// Hands the bytes from `addr` on to `write` in pieces, with how far each is from the first.
    ///
    /// # Errors
    ///
    /// They are not of this map, which must be started; the peer took them away; or what `write` returns.
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
                // SAFETY: the program promises, by starting the map, that the memory is there until it is stopped, and by sending it
                // that nothing writes it until the task ends.
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

/// A started map that a peer may write, until this is dropped.
pub(crate) struct Lent {
    memory: Arc<Registered>,
    export: Export,
}

impl Lent {
    /// # Errors
    ///
    /// The map is not started (`BAD_STATE`), not of this process (`NOT_SUPPORTED`), or its memory is not writable.
    pub(crate) fn new(memory: &Arc<Registered>) -> Outcome<Self> {
        require(memory.is_started(), c::DOCA_ERROR_BAD_STATE)?;
        let Place::Here(first) = memory.at else { return Err(c::DOCA_ERROR_NOT_SUPPORTED) };
        mapped::check(first, memory.len, true)?;
        let here = NonNull::new(ptr::with_exposed_provenance_mut(first)).ok_or(INVALID)?;
        // SAFETY: the map stays started, and so its memory there, as long as it is lent, after which the export is revoked.
        let export = unsafe { Export::of_process_memory(here, memory.len, Access::READ | Access::WRITE) };
        let export = export.map_err(|error| {
            sdk_log!(ERROR, "comch consumer: its memory cannot be lent: {error}");
            match error {
                RemoteError::OutOfMemory { .. } => c::DOCA_ERROR_NO_MEMORY,
                _ => c::DOCA_ERROR_DRIVER,
            }
        })?;
        memory.lent.fetch_add(1, Ordering::AcqRel);
        Ok(Self { memory: Arc::clone(memory), export })
    }

    /// What the peer opens it by, and the address and length that it covers.
    pub(crate) fn descriptor(&self) -> (&[u8], u64, u64) {
        (self.export.blob(), self.memory.addr as u64, self.memory.len as u64)
    }

    /// The map has these bytes.
    pub(crate) fn contains(&self, addr: usize, len: usize) -> bool {
        self.memory.contains(addr, len)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        match self.export.revoke(WAITS) {
            // Of a parent process: it is the parent's to take back.
            Ok(()) | Err(RemoteError::Unsupported { .. }) => {
                self.memory.lent.fetch_sub(1, Ordering::AcqRel);
            }
            // A peer that hangs in the middle of a copy: the memory stays where it is.
            Err(error) => sdk_log!(ERROR, "comch consumer: its memory cannot be taken back: {error}"),
        }
    }
}
