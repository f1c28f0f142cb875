//! The memory that holds an event's number.
#![expect(unsafe_code, reason = "memory that is shared with another process, or the program's own")]

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use dma_core::Access;
use dma_ipc::{Export, Import, Pages, SharedMemory};

use crate::c_abi::{INVALID, Outcome, c};

const LEN: usize = size_of::<u64>();

pub(super) enum Value {
    /// In memory that belongs to the event. Other processes can map this memory.
    Own(SharedMemory),
    /// In memory of the process that exported the event.
    Imported(Import, UserNumber),
    /// At an address that the program gave.
    User(UserNumber),
}

/// The address of a number outside of memory that belongs to the event.
pub(super) struct UserNumber(NonNull<u64>);

impl UserNumber {
    /// # Safety
    ///
    /// The address is aligned. The number stays there as long as the event, and is only accessed atomically.
    pub(super) unsafe fn new(address: NonNull<u64>) -> Self {
        Self(address)
    }
}

// SAFETY: the number is only accessed atomically, so any thread may access it.
unsafe impl Send for UserNumber {}
// SAFETY: the number is only accessed atomically, so threads may share it.
unsafe impl Sync for UserNumber {}

impl Value {
    pub(super) fn new() -> Outcome<Self> {
        let memory = SharedMemory::allocate(LEN, Pages::Normal);
        memory.map(Self::Own).map_err(|_| c::DOCA_ERROR_OPERATING_SYSTEM)
    }

    pub(super) fn export(memory: &SharedMemory) -> Outcome<Export> {
        Export::new(memory, 0..LEN, Access::READ | Access::WRITE).map_err(|_| c::DOCA_ERROR_OPERATING_SYSTEM)
    }

    /// Maps the memory of an event that another process exported.
    /// Errors: `INVALID_VALUE` if the memory no longer exists, or is not that of an event.
    pub(super) fn import(remote: &[u8]) -> Outcome<Self> {
        let import = Import::open_expecting(remote, LEN as u64).map_err(|_| INVALID)?;
        let number = import.span(0, LEN as u64, Access::READ | Access::WRITE).map_err(|_| INVALID)?;
        let number = Some(number.cast()).filter(|number| number.is_aligned()).ok_or(INVALID)?;
        Ok(Self::Imported(import, UserNumber(number)))
    }

    pub(super) fn number(&self) -> &AtomicU64 {
        let address = match self {
            Self::Own(memory) => memory.ptr().cast(),
            Self::Imported(_, number) | Self::User(number) => number.0,
        };
        // SAFETY: the number is mapped as long as this value; the caller of `new` promised that for a number
        // of the program. Both sides access the number only atomically. The exporter does not reuse the
        // memory after it revoked an import.
        unsafe { AtomicU64::from_ptr(address.as_ptr()) }
    }

    /// Returns `IO_FAILED` if the number is in another process, and that process has ended or has
    /// destroyed the event.
    pub(super) fn check(&self) -> Outcome {
        match self {
            Self::Imported(import, _) => import.check().map_err(|_| c::DOCA_ERROR_IO_FAILED),
            Self::Own(_) | Self::User(_) => Ok(()),
        }
    }
}
