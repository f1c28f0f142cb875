//! Whether memory is there.

use dma_sim::mappings::{Mapped, mapped};

use crate::door::{INVALID, Outcome, c};

/// A device finds out when memory is registered whether all of it is mapped, and writable if it is to be written.
///
/// # Errors
///
/// `INVALID_VALUE` if some of it is not mapped, `NOT_PERMITTED` if some of it is not to be read, or to be written.
pub(super) fn check(addr: usize, len: usize, writable: bool) -> Outcome {
    match mapped(addr as u64, len as u64, writable) {
        // Where it cannot be told, the program's word is taken.
        Ok(Mapped::Whole) | Err(_) => Ok(()),
        Ok(Mapped::Missing) => Err(INVALID),
        Ok(Mapped::Denied) => Err(c::DOCA_ERROR_NOT_PERMITTED),
    }
}
