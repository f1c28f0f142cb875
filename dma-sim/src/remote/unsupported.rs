//! The same names where there is no such memory. None of these values can exist, so that nothing but the answer
//! of the functions that would make one is left to write.

#![expect(unsafe_code, reason = "declares what is unsafe to call on Linux")]

use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use dma_core::Access;

use super::{Grant, Pages, RemoteError};

const fn unsupported() -> RemoteError {
    RemoteError::Unsupported {
        what: "memory shared between processes",
        remedy: "run both sides in one process, or on Linux",
    }
}

/// Memory that can be exported: on Linux only.
#[derive(Clone, Debug)]
pub struct SharedMemory(Infallible);

impl SharedMemory {
    /// Allocates on Linux only.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Unsupported`], always.
    pub fn allocate(_len: usize, _pages: Pages) -> Result<Self, RemoteError> {
        Err(unsupported())
    }

    /// Allocates on Linux only.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Unsupported`], always.
    pub fn allocate_aligned(_len: usize, _align: usize, _pages: Pages) -> Result<Self, RemoteError> {
        Err(unsupported())
    }

    /// The first byte.
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        match self.0 {}
    }

    /// Length in bytes; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        match self.0 {}
    }

    /// Copies out.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn read_at(&self, _offset: usize, _to: &mut [u8]) -> Result<(), RemoteError> {
        match self.0 {}
    }

    /// Copies in.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn write_at(&self, _offset: usize, _from: &[u8]) -> Result<(), RemoteError> {
        match self.0 {}
    }
}

/// An exported range: on Linux only.
#[derive(Debug)]
pub struct Export(Infallible);

impl Export {
    /// Exports on Linux only.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn new(memory: &SharedMemory, _range: Range<usize>, _rights: Access) -> Result<Self, RemoteError> {
        match memory.0 {}
    }

    /// Exports on Linux only.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Unsupported`], always.
    ///
    /// # Safety
    ///
    /// As on Linux.
    pub unsafe fn of_process_memory(
        _ptr: NonNull<u8>,
        _len: usize,
        _rights: Access,
    ) -> Result<Self, RemoteError> {
        Err(unsupported())
    }

    /// The descriptor.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        match self.0 {}
    }

    /// What importers are granted.
    #[must_use]
    pub fn grant(&self) -> Grant {
        match self.0 {}
    }

    /// The memory that is exported, if it is a [`SharedMemory`].
    #[must_use]
    pub fn memory(&self) -> Option<&SharedMemory> {
        match self.0 {}
    }

    /// Withdraws the grant.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn revoke(&self, _within: Duration) -> Result<(), RemoteError> {
        match self.0 {}
    }
}

/// An imported range: on Linux only.
#[derive(Debug)]
pub struct Import(Infallible);

impl Import {
    /// Imports on Linux only.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Unsupported`], always.
    pub fn open(_blob: &[u8]) -> Result<Self, RemoteError> {
        Err(unsupported())
    }

    /// Imports on Linux only.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Unsupported`], always.
    pub fn open_within(_blob: &[u8], _within: Duration) -> Result<Self, RemoteError> {
        Err(unsupported())
    }

    /// What the exporter granted.
    #[must_use]
    pub fn grant(&self) -> Grant {
        match self.0 {}
    }

    /// The exporting process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match self.0 {}
    }

    /// The first granted byte, if it is mapped.
    #[must_use]
    pub fn ptr(&self) -> Option<NonNull<u8>> {
        match self.0 {}
    }

    /// Number of bytes granted.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        match self.0 {}
    }

    /// The byte at `offset` of the grant.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn span(&self, _offset: u64, _len: u64, _needs: Access) -> Result<NonNull<u8>, RemoteError> {
        match self.0 {}
    }

    /// Takes the right to touch the bytes.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn lease(&self) -> Result<Lease<'_>, RemoteError> {
        match self.0 {}
    }

    /// Takes the right to touch the bytes, and keeps the import alive.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn lease_owned(self: &Arc<Self>) -> Result<OwnedLease, RemoteError> {
        match self.0 {}
    }

    /// Whether leases are still to be had.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn check(&self) -> Result<(), RemoteError> {
        match self.0 {}
    }

    /// Copies out.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn read_at(&self, _offset: u64, _to: &mut [u8]) -> Result<(), RemoteError> {
        match self.0 {}
    }

    /// Copies in.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn write_at(&self, _offset: u64, _from: &[u8]) -> Result<(), RemoteError> {
        match self.0 {}
    }
}

/// The right to touch the bytes of an [`Import`]: on Linux only.
#[derive(Debug)]
pub struct Lease<'a>(Infallible, PhantomData<&'a Import>);

/// A [`Lease`] that keeps its [`Import`] alive: on Linux only.
#[derive(Debug)]
pub struct OwnedLease(Infallible);

impl OwnedLease {
    /// The import that it is a lease of.
    #[must_use]
    pub fn import(&self) -> &Arc<Import> {
        match self.0 {}
    }
}
