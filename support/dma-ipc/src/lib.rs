//! Memory shared between processes of one machine. A DMA device would access a peer's memory over PCI; this
//! crate accesses it through the kernel.
//!
//! One process [exports](Export) a range of its [`SharedMemory`], or of [memory of any
//! kind](Export::of_process_memory), and passes the export's descriptor on by any channel. Another process
//! [imports](Import) the memory, and copies from and to it. So host and DPU can be two processes on a laptop.
//! A process may import its own exports, and import an export twice.
//!
//! Importers map a `SharedMemory`, so access is fast. They copy memory of any other kind, such as memory from
//! `malloc`, by system calls, about 500 ns each and 5 GB/s.
//!
//! ```
//! use std::time::Duration;
//! use dma_core::Access;
//! use dma_ipc::{Export, Import, Pages, RemoteError, SharedMemory};
//!
//! let memory = SharedMemory::allocate(8192, Pages::Normal)?;
//! memory.write_at(100, b"hello")?;
//! let export = Export::new(&memory, 100..200, Access::READ)?;
//!
//! // In the other process, which has received the bytes of `export.blob()`:
//! let import = Import::open(export.blob())?;
//! let mut hello = [0; 5];
//! import.read_at(0, &mut hello)?;
//! assert_eq!(&hello, b"hello");
//! assert!(matches!(import.write_at(0, b"jello"), Err(RemoteError::Permission { .. })));
//!
//! export.revoke(Duration::from_secs(1))?;
//! assert!(matches!(import.read_at(0, &mut hello), Err(RemoteError::Revoked { .. })));
//! # Ok::<(), dma_ipc::RemoteError>(())
//! ```
//!
//! # Guarantees
//!
//! - **A descriptor grants only its range and rights.** Both are in the exporter's table, not in the
//!   descriptor, and [`Import`] enforces both to the byte.
//! - **After [`Export::revoke`] has succeeded, no importer accesses the bytes.** Every access needs a
//!   [`Lease`]. Revoking refuses new leases and waits for existing leases.
//! - **The end of the exporter or an importer causes only errors in the other process.** After the kernel has
//!   reported the end of the exporter, leases are refused with [`RemoteError::PeerGone`], and the bytes stay
//!   mapped. When an importer ends, its leases end.
//! - **Copies never fault.** Shared memory is resident from the start, and sealed against shrinking. The
//!   kernel copies other memory, and returns an error for unmapped addresses.
//! - **No process accesses bytes of an unrelated process**, even if the exporter has ended and its process id
//!   is in use again: an import refers to the memory or the address space itself, not to its name.
//!
//! # Limits
//!
//! - Linux only. Exporter and importer must share a network namespace (containers do not, by default),
//!   because the socket's name is in it.
//! - `fork` is not supported. A child has the parent's exports and imports, but not the thread that serves
//!   them; dropping them in the child has no effect. Until the child ends or executes another program, the
//!   parent's peers cannot detect the parent's end. The child's own exports and imports work.
//!
//! # Abilities of a peer of the same user
//!
//! This crate trusts peers to use this library, whereas an IOMMU would stop a device. A peer receives a file
//! descriptor. A peer that uses this descriptor without [`Import`] can do the following, as long as it keeps
//! the descriptor open:
//!
//! - With a range of a [`SharedMemory`] that was [allocated for](SharedMemory::allocate_for) readers: it can
//!   read the whole `SharedMemory`. The kernel refuses every write, and [`Export::new`] refuses to grant
//!   writes.
//! - With a range of any other `SharedMemory`: it can read and write the whole `SharedMemory`. If only
//!   reading was granted, it can write after it has opened `/proc/self/fd/N` again.
//! - With [memory of any other kind](Export::of_process_memory): it can read or write this process's whole
//!   address space, as granted; it can do both if it may trace this process (ptrace(2)).
//!
//! Leases and [`Export::revoke`] do not stop such a peer. It cannot change the length of a `SharedMemory`
//! (`F_SEAL_SHRINK`, `F_SEAL_GROW`). Other users get no descriptor, because the exporter asks the kernel for
//! the peer's user. So for a peer that you do not trust, allocate a separate `SharedMemory` with only the
//! peer's rights, and free it after the revocation instead of reusing it.
//!
//! # Implementation
//!
//! The memory is a sealed memfd, or the exporter's `/proc/self/mem`. The exporter opens the latter file
//! itself, with the mode that the rights need, so a peer needs no permission to trace the exporter. An
//! exporting process listens on a Unix socket with a random name in the abstract namespace. If it receives an
//! export's 128-bit token, it sends the file of the memory, and a page with one atomic word: the number of
//! leases, and flags that refuse new leases. The connection stays open, so that the exporter detects the end
//! of the importer and the importer the end of the exporter. One thread per process does this work, and
//! otherwise sleeps.

mod blob;
mod error;
mod export;
mod import;
mod lease;
mod mapping;
mod memory;
mod peercred;
pub mod proc_maps;
mod process;
mod region;
mod service;
mod wire;

use dma_core::Access;
pub use error::RemoteError;
pub use export::Export;
pub use import::{Import, Lease, OwnedLease};
pub use memory::SharedMemory;
pub use region::Unexportable;

/// Length of an export's descriptor in bytes.
pub const BLOB_LEN: usize = 56;

/// Maximum number of imports of one export at a time.
pub const MAX_IMPORTS: u32 = 256;

/// Maximum number of leases of one import at a time.
pub const MAX_LEASES: u32 = 1 << 24;

/// A range of the exporter's memory and the importer's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Address of the first byte in the exporting process. It identifies the memory on both sides, but the
    /// importer cannot use it as a pointer.
    pub address: u64,
    /// Number of bytes; never 0.
    pub len: u64,
    /// Rights of the importer; never empty.
    pub rights: Access,
}

/// Page size of shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pages {
    /// The processor's smallest page size.
    #[default]
    Normal,
    /// The system's default huge page size, with which large memory is faster to map and to access. The
    /// system must have reserved huge pages (`vm.nr_hugepages`).
    Huge,
    /// Huge pages if the memory is at least one huge page long and the system has enough huge pages;
    /// otherwise normal pages.
    PreferHuge,
}
