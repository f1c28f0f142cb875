//! The same names on other systems, which have no such memory. No value of these types exists, so only
//! constructors have something to answer.

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

/// Declares constructors that fail.
macro_rules! refuse {
    ($($name:ident($($argument:ty),*);)*) => {$(
        /// Works on Linux only.
        ///
        /// # Errors
        ///
        /// [`RemoteError::Unsupported`], always.
        pub fn $name($(_: $argument),*) -> Result<Self, RemoteError> {
            Err(unsupported())
        }
    )*};
}

/// Declares methods that no value can be called on.
macro_rules! never {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {$(
        /// As on Linux.
        ///
        /// # Errors
        ///
        /// As on Linux.
        pub fn $name(&self $(, _: $argument)*) -> $result {
            match self.0 {}
        }
    )*};
}

/// Bytes that the system reports as available: on Linux only.
#[must_use]
pub fn available_memory() -> Option<u64> {
    None
}

/// Memory that can be exported: on Linux only.
#[derive(Clone, Debug)]
pub struct SharedMemory(Infallible);

#[expect(clippy::len_without_is_empty, reason = "it is never empty")]
impl SharedMemory {
    refuse! {
        allocate(usize, Pages);
        allocate_aligned(usize, usize, Pages);
        allocate_for(Access, usize, usize, Pages);
    }
    never! {
        peers() -> Access;
        ptr() -> NonNull<u8>;
        len() -> usize;
        read_at(usize, &mut [u8]) -> Result<(), RemoteError>;
        write_at(usize, &[u8]) -> Result<(), RemoteError>;
    }
}

/// An exported range: on Linux only.
#[derive(Debug)]
pub struct Export(Infallible);

impl Export {
    refuse! {
        new(&SharedMemory, Range<usize>, Access);
    }
    never! {
        blob() -> &[u8];
        grant() -> Grant;
        memory() -> Option<&SharedMemory>;
        revoke(Duration) -> Result<(), RemoteError>;
    }

    /// Works on Linux only.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Unsupported`], always.
    ///
    /// # Safety
    ///
    /// As on Linux.
    pub unsafe fn of_process_memory(_: NonNull<u8>, _: usize, _: Access) -> Result<Self, RemoteError> {
        Err(unsupported())
    }
}

/// An imported range: on Linux only.
#[derive(Debug)]
pub struct Import(Infallible);

#[expect(clippy::len_without_is_empty, reason = "it is never empty")]
impl Import {
    refuse! {
        open(&[u8]);
        open_expecting(&[u8], u64);
        open_within(&[u8], Duration);
    }
    never! {
        grant() -> Grant;
        pid() -> u32;
        ptr() -> Option<NonNull<u8>>;
        len() -> usize;
        span(u64, u64, Access) -> Result<NonNull<u8>, RemoteError>;
        lease() -> Result<Lease<'_>, RemoteError>;
        check() -> Result<(), RemoteError>;
        read_at(u64, &mut [u8]) -> Result<(), RemoteError>;
        write_at(u64, &[u8]) -> Result<(), RemoteError>;
    }

    /// As on Linux.
    ///
    /// # Errors
    ///
    /// As on Linux.
    pub fn lease_owned(self: &Arc<Self>) -> Result<OwnedLease, RemoteError> {
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
    never! {
        import() -> &Arc<Import>;
    }
}
