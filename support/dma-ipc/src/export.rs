//! The exporting side.

#![expect(unsafe_code, reason = "exporting memory of any kind is a promise of the caller's")]

use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dma_core::Access;

use super::blob::{Blob, Token};
use super::import::started;
use super::process::{check_mapped, own_address_space};
use super::service::{Link, Service, random};
use super::wire::{FileKind, Granted};
use super::{BLOB_LEN, Grant, RemoteError, SharedMemory};

/// Longest wait of a dropped export for importers to finish their copies.
const DROP_WAITS: Duration = Duration::from_secs(1);

/// A range of this process's memory that other processes can import, until it is revoked or dropped.
///
/// Any process with its [`blob`](Self::blob) that runs as the same user, or as root, can
/// [import](super::Import) it, up to [`MAX_IMPORTS`](super::MAX_IMPORTS) times at once. Keeps a
/// [`SharedMemory`] alive. Dropping it revokes it, which waits up to a second for copies to end. If they do
/// not end, such memory is never freed, and a `tracing` warning says so.
pub struct Export {
    /// None: memory of another owner.
    memory: Option<SharedMemory>,
    grant: Grant,
    blob: [u8; BLOB_LEN],
    token: Token,
    /// `None` until the export is revoked, and then the importers that may still hold leases.
    revoked: Mutex<Option<Vec<Arc<Link>>>>,
    service: Arc<Service>,
}

impl Export {
    /// Exports the bytes `range` of `memory` with `rights`. Does not block.
    ///
    /// A peer cannot get more than that from this library. See [the
    /// abilities of a peer of the same user](super#abilities-of-a-peer-of-the-same-user).
    ///
    /// # Errors
    ///
    /// [`RemoteError::Permission`] for rights that the memory was not [allocated
    /// for](SharedMemory::allocate_for), [`RemoteError::Empty`] for no bytes or no rights,
    /// [`RemoteError::OutOfRange`], and [`RemoteError::Os`] when there are no descriptors or threads left, or
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

    /// Exports `len` bytes from `ptr` of this process's memory, of any kind, with `rights`. Does not block.
    ///
    /// Importers have no pointer to such memory: they copy it by [`Import::read_at`](super::Import::read_at)
    /// and [`Import::write_at`](super::Import::write_at), each a system call. They need no right to trace
    /// this process, and no special permissions.
    ///
    /// A peer cannot get more than that from this library. But it receives the whole address space, with
    /// these rights: trust it with all of that. See [the
    /// abilities of a peer of the same user](super#abilities-of-a-peer-of-the-same-user).
    ///
    /// # Errors
    ///
    /// [`RemoteError::Empty`] for no bytes or no rights; [`RemoteError::NotMapped`] when the memory is not
    /// mapped, or is read-only and `rights` include writing; [`RemoteError::Os`] when there are no
    /// descriptors or threads left, `/proc` is not mounted, or the process cannot be dumped
    /// (proc_pid_mem(5)).
    ///
    /// # Safety
    ///
    /// From now until [`revoke`](Self::revoke) returns `Ok`, peers may read the bytes, and write them if
    /// `rights` include that, at any time and not atomically. Meanwhile, use no Rust references to them,
    /// except shared ones if peers only read, and do not free or reuse the memory. If the revocation fails,
    /// also when the export is dropped, this holds until the importers are gone.
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

    /// The descriptor to pass on to the importer, by any channel: [`BLOB_LEN`] bytes.
    ///
    /// It is a secret: it lets every process of the same user on this machine import. It is invalid after the
    /// export is revoked or the process ends.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Returns the grant of importers.
    #[must_use]
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// Returns the exported memory, if it is a [`SharedMemory`].
    #[must_use]
    pub fn memory(&self) -> Option<&SharedMemory> {
        self.memory.as_ref()
    }

    /// Withdraws the grant at once, and waits up to `within` until each importer has released its leases,
    /// or is gone.
    ///
    /// After success no importer touches the bytes, and the importers' writes are visible to the caller. May
    /// be called again, by any thread, to wait for the rest.
    ///
    /// A lease in this process counts as well: do not wait here on a thread that holds one.
    ///
    /// # Errors
    ///
    /// [`RemoteError::StillInUse`] when importers still copy after `within`; the memory must not be reused
    /// then. [`RemoteError::Unsupported`] in a forked child, for an export of its parent.
    pub fn revoke(&self, within: Duration) -> Result<(), RemoteError> {
        if !self.service.is_ours() {
            return Err(RemoteError::Unsupported {
                what: "revoking an export of the parent process after a fork",
                remedy: "revoke it in the process that made it",
            });
        }
        let begun = Instant::now();
        let deadline = begun.checked_add(within);
        let links = self.revoked().get_or_insert_with(|| self.service.withdraw(self.token)).clone();
        let (idle, busy): (Vec<_>, Vec<_>) =
            links.into_iter().partition(|link| link.wait_until_idle(deadline));
        for link in &idle {
            self.service.hang_up(link);
        }
        if let Some(links) = self.revoked().as_mut() {
            links.retain(|link| !idle.iter().any(|idle| Arc::ptr_eq(idle, link)));
        }
        if busy.is_empty() {
            return Ok(());
        }
        let pids = busy.iter().map(|link| link.pid).collect();
        Err(RemoteError::StillInUse { pids, waited: begun.elapsed() })
    }

    fn revoked(&self) -> MutexGuard<'_, Option<Vec<Arc<Link>>>> {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the known rights among `rights`, unless nothing is granted.
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

// Without the descriptor, which is a secret.
impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, grant, .. } = self;
        f.debug_struct("Export").field("memory", memory).field("grant", grant).finish_non_exhaustive()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // In a forked child the export is the parent's.
        if !self.service.is_ours() {
            return;
        }
        if let Err(error) = self.revoke(DROP_WAITS) {
            match &self.memory {
                Some(memory) => {
                    memory.leak();
                    tracing::warn!(%error, len = memory.len(), "the memory of a dropped export is never freed");
                }
                None => tracing::error!(
                    %error,
                    address = self.grant.address,
                    len = self.grant.len,
                    "a dropped export is still in use: its memory must not be freed or used"
                ),
            }
        }
    }
}
