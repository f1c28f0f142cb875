//! Exports and imports of regions, for engines whose memory other processes can access.

use std::time::Duration;

use dma_core::{Access, Error, ErrorKind, ExportDescriptor, MemoryRequest, RawExport, Result};

use crate::{Export, Import, Pages, SharedMemory};

impl SharedMemory {
    /// Allocates memory for a request that includes rights to export.
    ///
    /// # Errors
    ///
    /// See [`allocate_for`](Self::allocate_for).
    pub fn allocate_requested(request: &MemoryRequest) -> Result<Self> {
        let pages = if request.huge_pages { Pages::PreferHuge } else { Pages::Normal };
        Ok(Self::allocate_for(request.export, request.len, request.align, pages)?)
    }

    /// Exports `len` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// `AccessDenied` if `rights` exceed the rights for which the memory was allocated; `OutOfRange`;
    /// the errors of [`Export::new`].
    pub fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        let end = offset.checked_add(len).ok_or(ErrorKind::OutOfRange)?;
        Ok(Box::new(Export::new(self, offset..end, rights)?))
    }
}

/// The reason why memory of an engine cannot be exported. It converts into an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unexportable {
    /// The memory was allocated without rights to export.
    Private,
    /// The memory belongs to the caller, and the engine registered it.
    Registered,
    /// The memory belongs to a peer.
    Imported,
}

impl From<Unexportable> for Error {
    fn from(memory: Unexportable) -> Self {
        let (kind, message, hint) = match memory {
            Unexportable::Private => (
                ErrorKind::AccessDenied,
                "the memory was not allocated to be exported",
                "allocate it with `MemoryRequest::exportable` and these rights",
            ),
            Unexportable::Registered => (
                ErrorKind::Unsupported,
                "registered memory cannot be exported",
                "allocate memory with `MemoryRequest::exportable`",
            ),
            Unexportable::Imported => (
                ErrorKind::Unsupported,
                "a peer's memory cannot be passed on",
                "pass on the descriptor that it was imported with",
            ),
        };
        Self::new(kind, message).with_hint(hint)
    }
}

impl Import {
    /// Imports memory that an engine of `backend` exported.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a descriptor of another backend; the errors of
    /// [`open_expecting`](Self::open_expecting).
    pub fn of(descriptor: &ExportDescriptor, backend: &str) -> Result<Self> {
        if descriptor.backend() != backend {
            let message = format!("a descriptor of the backend {:?}", descriptor.backend());
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint(format!("this engine imports only exports of the backend {backend:?}")));
        }
        Ok(Self::open_expecting(descriptor.native(), descriptor.len())?)
    }
}

#[expect(unsafe_code, reason = "implements an unsafe trait")]
// SAFETY: importers access the memory only while they hold a lease. `revoke` returns `Ok` after the last
// lease has ended, and none is granted from then on.
unsafe impl RawExport for Export {
    fn native(&self) -> &[u8] {
        self.blob()
    }

    fn revoke(&mut self, timeout: Duration) -> Result<()> {
        Ok(Self::revoke(self, timeout)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_and_ranges_beyond_the_memory_are_refused() {
        let request = MemoryRequest::new(4096).exportable(Access::READ);
        let memory = SharedMemory::allocate_requested(&request).unwrap();
        let refusal = |offset, len, rights| memory.export(offset, len, rights).unwrap_err().kind();
        assert_eq!(refusal(0, 4096, Access::READ | Access::WRITE), ErrorKind::AccessDenied);
        assert_eq!(refusal(1, 4096, Access::READ), ErrorKind::OutOfRange);
        assert_eq!(refusal(1, usize::MAX, Access::READ), ErrorKind::OutOfRange);
        let mut export = memory.export(96, 4000, Access::READ).unwrap();
        let descriptor = ExportDescriptor::new("own", Access::READ, 4000, export.native()).unwrap();
        assert_eq!(Import::of(&descriptor, "other").unwrap_err().kind(), ErrorKind::Unsupported);
        let import = Import::of(&descriptor, "own").unwrap();
        assert_eq!((import.len(), import.grant().rights), (4000, Access::READ));
        export.revoke(Duration::from_secs(60)).unwrap();
    }
}
