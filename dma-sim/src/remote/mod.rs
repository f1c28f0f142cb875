//! Memory shared between processes of one machine: what a DMA device reaches over PCI, a peer reaches here.
//!
//! One process [exports](Export) a range of its [`SharedMemory`], or of [memory of any
//! kind](Export::of_process_memory), and passes the export's descriptor on by any channel; another
//! [imports](Import) it and copies from and to it. So host and DPU can be two processes on a laptop. Importing in
//! the exporting process works too, and so does importing twice.
//!
//! A `SharedMemory` is mapped by its importers, and fast. Memory of any other kind is copied by system calls, some
//! 500 ns each and 5 GB/s, for programs that export what `malloc` gave them.
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! use std::time::Duration;
//! use dma_core::Access;
//! use dma_sim::remote::{Export, Import, Pages, RemoteError, SharedMemory};
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
//! # }
//! # Ok::<(), dma_sim::remote::RemoteError>(())
//! ```
//!
//! # What holds
//!
//! - **A descriptor grants its range and rights, no more.** Both are in the exporter's table, not in the
//!   descriptor. The kernel enforces that a read-only grant cannot be written through what the importer is given.
//!   The range is enforced to the byte by [`Import`]; the kernel hands out whole memories, or address spaces.
//! - **After [`Export::revoke`] returned, no importer touches the bytes.** Every access happens under a
//!   [`Lease`]; revoking refuses new ones and waits for those there are.
//! - **The end of a process is an error of the other, nothing worse.** When the exporter dies, leases are refused
//!   with [`RemoteError::PeerGone`] as soon as the kernel has reported it (a moment later, not at once); the
//!   bytes stay mapped as they were. When an importer dies, its leases end.
//! - **Nothing faults.** Shared memory is there from the start, and is sealed so that no peer can take it away. Other
//!   memory is copied by the kernel, which answers with an error where there is none.
//! - **Nobody gets another process's bytes**, even if the exporter ended and its process id is in use again: an import
//!   holds the memory or the address space itself, not a name of it.
//!
//! # What does not
//!
//! - Peers are trusted to be of this library. A process of the same user that was granted write access and
//!   ignores leases can write the whole memory, at any time; a device would be stopped by its MMU.
//! - `fork` is not supported: a child has the parent's exports and imports but not the thread that serves them.
//!   Dropping them in the child does nothing; until the child ends or executes another program, the peers of
//!   its parent think that the parent lives. What the child exports and imports itself works.
//! - Exporter and importer must share a network namespace (containers do not, by default), as that is where the
//!   socket's name lives.
//! - Only Linux has it. On other systems all of this compiles, and answers [`RemoteError::Unsupported`].
//!
//! # How
//!
//! The memory is a sealed memfd, or the exporter's `/proc/self/mem`, opened by itself with the mode that the rights
//! need: a peer needs no right to trace it, and neither Yama nor a container's seccomp filter is in the way. A process that exports listens on a Unix socket with a random name in the
//! abstract namespace, and gives who presents an export's 128-bit token the file, and a page with one atomic
//! word in it: the number of leases, and whether more may be had. The connection stays open, so that its end
//! tells each of the end of the other. One thread per process does all that, and sleeps otherwise.

mod error;
mod far;

#[cfg(target_os = "linux")]
mod blob;
#[cfg(target_os = "linux")]
mod export;
#[cfg(target_os = "linux")]
mod import;
#[cfg(target_os = "linux")]
mod lease;
#[cfg(target_os = "linux")]
mod mapping;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod peercred;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod service;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(not(target_os = "linux"))]
mod unsupported;

use dma_core::Access;
pub use error::RemoteError;

#[cfg(not(target_os = "linux"))]
pub use unsupported::{Export, Import, Lease, OwnedLease, SharedMemory};
#[cfg(target_os = "linux")]
pub use {
    export::Export,
    import::{Import, Lease, OwnedLease},
    memory::SharedMemory,
};

/// Length of an export's descriptor in bytes.
pub const BLOB_LEN: usize = 56;

/// Most imports that one export can have at a time.
pub const MAX_IMPORTS: u32 = 256;

/// Most leases that one import can have at a time.
pub const MAX_LEASES: u32 = 1 << 24;

/// A range of the exporter's memory, and what the importer may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Address of the first byte in the exporting process; a name to agree on, not a pointer for the importer.
    pub address: u64,
    /// Number of bytes; never 0.
    pub len: u64,
    /// What the importer may do; never nothing.
    pub rights: Access,
}

/// The pages that memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pages {
    /// Of the processor's smallest size.
    #[default]
    Normal,
    /// Of the system's default huge page size, which makes large memory faster to map and to reach. The system
    /// must have reserved some (`vm.nr_hugepages`).
    Huge,
    /// Huge if the memory is at least one huge page long and the system has enough of them, else normal.
    PreferHuge,
}
