//! Checks that memory is mapped.

use dma_ipc::mappings::{Mapped, mapped};

use crate::c_abi::{INVALID, Outcome, c};

/// Checks, as devices do at registration, that all memory is mapped, and writable if required.
///
/// # Errors
///
/// `INVALID_VALUE` if some of it is not mapped, `NOT_PERMITTED` if some of it lacks a required right.
pub(super) fn check(addr: usize, len: usize, writable: bool) -> Outcome {
    match mapped(addr as u64, len as u64, writable) {
        // Trusts the program where the system gives no answer.
        Ok(Mapped::Whole) | Err(_) => Ok(()),
        Ok(Mapped::Missing) => Err(INVALID),
        Ok(Mapped::Denied) => Err(c::DOCA_ERROR_NOT_PERMITTED),
    }
}
