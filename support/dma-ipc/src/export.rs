//! The exporter's side.

#![expect(unsafe_code, reason = "the caller of `of_process_memory` makes promises about the memory")]

use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dma_core::Access;
use dma_process::lock;

use super::blob::{Blob, Token};
use super::import::started;
use super::process::{check_mapped, own_address_space};
use super::service::{Link, Service, random};
use super::wire::{FileKind, Granted};
use super::{BLOB_LEN, Grant, RemoteError, SharedMemory};

/// Maximum time that a dropped export waits until importers have finished their copies.
const DROP_WAITS: Duration = Duration::from_secs(1);

/// A range of this process's memory that other processes can import, until it is revoked or dropped.
///
/// Any process that has the export's [`blob`](Self::blob), and runs as the same user or as root, can
/// [import](super::Import) it, up to [`MAX_IMPORTS`](super::MAX_IMPORTS) times at once. An export of a
/// [`SharedMemory`] keeps the memory alive. Dropping the export revokes it, and waits up to a second for the
/// importers' copies to end. If they do not end, the `SharedMemory` is never freed, and a `tracing` warning
/// says so.
pub struct Export {
    /// `None` for memory of another owner.
    memory: Option<SharedMemory>,
    grant: Grant,
    blob: [u8; BLOB_LEN],
    token: Token,
    /// `None` until the export is revoked; afterwards the importers that may still hold leases.
    revoked: Mutex<Option<Vec<Arc<Link>>>>,
    service: Arc<Service>,
}

impl Export {
    /// Exports the bytes `range` of `memory` with `rights`. Does not block.
    ///
    /// Through this library, a peer cannot access other bytes or get other rights. See [the abilities of a
    /// peer of the same user](super#abilities-of-a-peer-of-the-same-user).
    ///
    /// # Errors
    ///
    /// [`RemoteError::Permission`] for rights that the memory was not [allocated
    /// for](SharedMemory::allocate_for), [`RemoteError::Empty`] for no bytes or no rights,
    /// [`RemoteError::OutOfRange`], and [`RemoteError::Os`] if no file descriptors or threads are left, or
    /// `/proc` is not mounted.
    pub fn new(memory: &SharedMemory, range: Range<usize>, rights: Access) -> Result<Self, RemoteError> {
        let available = memory.len() as u64;
        let len = range.end.checked_sub(range.start).ok_or(RemoteError::OutOfRange {
            offset: range.start as u64,
            len: 0,
            available,
        })?;
        memory.check(range.start, len)?;
        let rights = checked(len, rights)?;
        if !memory.peers().contains(rights) {
            return Err(RemoteError::Permission { requested: rights, granted: memory.peers() });
        }
        let file = if rights.contains(Access::WRITE) { memory.file()? } else { memory.read_only_file()? };
        let address = memory.ptr().addr().get() as u64 + range.start as u64;
        let granted = Granted {
            grant: Grant { address, len: len as u64, rights },
            offset: range.start as u64,
            page_size: memory.page_size() as u64,
            kind: FileKind::Shared,
        };
        Self::offer(granted, file, Some(memory.clone()))
    }

    /// Exports `len` bytes at `ptr` with `rights`. The memory of this process may be of any kind. Does not
    /// block.
    ///
    /// Importers have no pointer to such memory. They copy it by [`Import::read_at`](super::Import::read_at)
    /// and [`Import::write_at`](super::Import::write_at), which make system calls. They need no special
    /// permissions, such as the right to trace this process.
    ///
    /// Through this library, a peer cannot access other bytes or get other rights. However, the peer receives
    /// a file descriptor for the whole address space with these rights, so export only to peers that you
    /// trust with the address space. See [the abilities of a peer of the same
    /// user](super#abilities-of-a-peer-of-the-same-user).
    ///
    /// # Errors
    ///
    /// [`RemoteError::Empty`] for no bytes or no rights; [`RemoteError::NotMapped`] if the memory is not
    /// mapped, or is read-only and `rights` include writing; [`RemoteError::Os`] if no file descriptors or
    /// threads are left, `/proc` is not mounted, or the process is not dumpable (proc_pid_mem(5)).
    ///
    /// # Safety
    ///
    /// Until [`revoke`](Self::revoke) returns `Ok`, peers may read the bytes at any time, not atomically, and
    /// write them if `rights` include writing. During this time, do not free or reuse the memory, and use no
    /// Rust references to the bytes, except shared references if peers only read. If a revocation fails, even
    /// the one that dropping the export causes, these conditions hold until the importers have ended.
    pub unsafe fn of_process_memory(
        ptr: NonNull<u8>,
        len: usize,
        rights: Access,
    ) -> Result<Self, RemoteError> {
        let rights = checked(len, rights)?;
        let (address, len) = (ptr.addr().get() as u64, len as u64);
        check_mapped(address, len, rights)?;
        let grant = Grant { address, len, rights };
        let granted = Granted { grant, offset: address, page_size: 1, kind: FileKind::Process };
        Self::offer(granted, own_address_space(rights)?, None)
    }

    /// Offers `granted`, a range of `file`, to importers, and makes the descriptor.
    fn offer(granted: Granted, file: OwnedFd, memory: Option<SharedMemory>) -> Result<Self, RemoteError> {
        let grant = granted.grant;
        let service = Service::get()?;
        let token = Token(random()?);
        service.offer(token, granted, file)?;
        let pid = service.pid();
        let blob = Blob {
            pid,
            uid: rustix::process::geteuid().as_raw(),
            started: started(pid).unwrap_or(0),
            socket: service.socket(),
            token,
        };
        Ok(Self { memory, grant, blob: blob.encode(), token, revoked: Mutex::new(None), service })
    }

    /// Returns the descriptor, [`BLOB_LEN`] bytes. Pass it to the importer by any channel.
    ///
    /// The descriptor is a secret: every process of the same user on this machine that has it can import. It
    /// is invalid after the export is revoked or the process ends.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Returns the range and rights that importers get.
    #[must_use]
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// Returns the exported memory, if it is a [`SharedMemory`].
    #[must_use]
    pub fn memory(&self) -> Option<&SharedMemory> {
        self.memory.as_ref()
    }

    /// Withdraws the grant at once, and waits up to `within` until each importer has released its leases or
    /// has ended.
    ///
    /// After success, no importer accesses the bytes, and the importers' writes are visible to the caller.
    /// After an error, any thread may call this again to wait for the remaining importers.
    ///
    /// Leases of this process also count, so do not call this on a thread that holds a lease.
    ///
    /// # Errors
    ///
    /// [`RemoteError::StillInUse`] if importers still copy after `within`: then the memory must not be
    /// reused. [`RemoteError::Unsupported`] in a forked child, for an export of its parent.
    pub fn revoke(&self, within: Duration) -> Result<(), RemoteError> {
        if !self.service.is_ours() {
            return Err(RemoteError::Unsupported {
                what: "revoking an export of the parent process after a fork",
                remedy: "revoke the export in the process that made it",
            });
        }
        let begun = Instant::now();
        let deadline = begun.checked_add(within);
        let links = lock(&self.revoked).get_or_insert_with(|| self.service.withdraw(self.token)).clone();
        let (idle, busy): (Vec<_>, Vec<_>) =
            links.into_iter().partition(|link| link.wait_until_idle(deadline));
        for link in &idle {
            self.service.hang_up(link);
        }
        if let Some(links) = lock(&self.revoked).as_mut() {
            links.retain(|link| !idle.iter().any(|idle| Arc::ptr_eq(idle, link)));
        }
        if busy.is_empty() {
            return Ok(());
        }
        let pids = busy.iter().map(|link| link.pid).collect();
        Err(RemoteError::StillInUse { pids, waited: begun.elapsed() })
    }
}

/// Returns the known rights among `rights`. Fails if no bytes or no rights would be granted.
fn checked(len: usize, rights: Access) -> Result<Access, RemoteError> {
    let rights = rights & Access::all();
    if len == 0 {
        return Err(RemoteError::Empty { what: "the range of an export" });
    }
    if rights.is_empty() {
        return Err(RemoteError::Empty { what: "the rights of an export" });
    }
    Ok(rights)
}

// Omits the descriptor, because it is a secret.
impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, grant, .. } = self;
        f.debug_struct("Export").field("memory", memory).field("grant", grant).finish_non_exhaustive()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // In a forked child, the export belongs to the parent.
        if !self.service.is_ours() {
            return;
        }
        if let Err(error) = self.revoke(DROP_WAITS) {
            match &self.memory {
                Some(memory) => {
                    memory.leak();
                    let len = memory.len();
                    dma_core::deferred_log!(warn, %error, len, "the memory of a dropped export is never freed");
                }
                None => {
                    let (address, len) = (self.grant.address, self.grant.len);
                    dma_core::deferred_log!(error, %error, address, len, "a dropped export is still in use: its memory must not be freed or used");
                }
            }
        }
    }
}
