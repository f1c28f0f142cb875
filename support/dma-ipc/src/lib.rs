//! Memory shared between processes of one machine: what a DMA device reaches over PCI, a peer reaches here.
//!
//! One process [exports](Export) a range of its [`SharedMemory`], or of [memory of any
//! kind](Export::of_process_memory), and passes the export's descriptor on by any channel; another
//! [imports](Import) it and copies from and to it. So host and DPU can be two processes on a laptop. A
//! process may import its own exports, and import one twice.
//!
//! A `SharedMemory` is mapped by its importers, and fast. Memory of any other kind is copied by system calls,
//! some 500 ns each and 5 GB/s, for programs that export what `malloc` gave them.
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
//! // In the other process, which got the bytes of `export.blob()`:
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
//! - **A descriptor grants its range and rights, no more.** Both are in the exporter's table, not in the
//!   descriptor, and [`Import`] enforces both to the byte.
//! - **After [`Export::revoke`] returned, no importer touches the bytes.** Every access happens under a
//!   [`Lease`]. Revoking refuses new leases and waits for existing ones.
//! - **The end of a process is only an error in the other.** When the exporter dies, leases are refused with
//!   [`RemoteError::PeerGone`] once the kernel has reported it, and the bytes stay mapped. When an importer
//!   dies, its leases end.
//! - **Nothing faults.** Shared memory is resident from the start, and sealed against shrinking. The kernel
//!   copies other memory, and returns an error where none is mapped.
//! - **No process gets the bytes of an unrelated one**, even if the exporter ended and its process id is in
//!   use again: an import holds the memory or the address space itself, not a name of it.
//!
//! # Limits
//!
//! - Linux only. Exporter and importer must share a network namespace (containers do not, by default),
//!   because the socket's name is in it.
//! - `fork` is not supported. A child has the parent's exports and imports but not the thread that serves
//!   them; dropping them there does nothing. Until the child ends or executes another program, its parent's
//!   peers take the parent for alive. The child's own exports and imports work.
//!
//! # Abilities of a peer of the same user
//!
//! Peers are trusted to use this library; a device would be stopped by its MMU. A peer receives a file
//! descriptor. With it, without [`Import`], and for as long as it keeps it, it can:
//!
//! - With a range of a [`SharedMemory`] that was [allocated for](SharedMemory::allocate_for) readers: read
//!   the whole `SharedMemory`. The kernel refuses every write, and [`Export::new`] refuses to grant writes.
//! - With a range of any other `SharedMemory`: read and write the whole of it. If granted for reading only,
//!   it writes by opening `/proc/self/fd/N` again.
//! - With [memory of any other kind](Export::of_process_memory): read or write this process's whole address
//!   space, as granted; and do both if it may trace this process (ptrace(2)).
//!
//! Leases and [`Export::revoke`] do not stop it. It cannot change the length of a `SharedMemory`
//! (`F_SEAL_SHRINK`, `F_SEAL_GROW`). Other users get no descriptor: the exporter asks the kernel for the
//! peer's user. So give a peer that is not trusted with more a `SharedMemory` of its own, allocated for no
//! more than the peer's rights, and free it after revocation rather than use it again.
//!
//! # Implementation
//!
//! The memory is a sealed memfd, or the exporter's `/proc/self/mem`. The exporter opens the latter itself,
//! with the mode that the rights need, so a peer needs no permission to trace the exporter. An exporting
//! process listens on a Unix socket with a random name in the abstract namespace. It answers an export's
//! 128-bit token with the file, and with a page that has one atomic word: the number of leases, and a flag
//! that closes them. The connection stays open, so that each side notices the end of the other. One thread
//! per process does this work, and sleeps otherwise.

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
pub use memory::{SharedMemory, available_memory};
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
    /// Address of the first byte in the exporting process. It serves as a common name, and is not a pointer
    /// for the importer.
    pub address: u64,
    /// Number of bytes; never 0.
    pub len: u64,
    /// Rights of the importer; never empty.
    pub rights: Access,
}

/// Page size of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pages {
    /// The processor's smallest size.
    #[default]
    Normal,
    /// The system's default huge page size, which makes large memory faster to map and to reach. The system
    /// must have reserved some (`vm.nr_hugepages`).
    Huge,
    /// Huge if the memory is at least one huge page long and the system has enough of them, else normal.
    PreferHuge,
}
