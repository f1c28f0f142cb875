//! The exporting side.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dma_core::Access;

use super::blob::{Blob, Token};
use super::import::started;
use super::service::{Link, Service, random};
use super::wire::Granted;
use super::{BLOB_LEN, Grant, RemoteError, SharedMemory};

/// How long dropping an export waits for importers to finish their copies.
const DROP_WAITS: Duration = Duration::from_secs(1);

/// A range of this process's memory that other processes can import, until it is revoked or dropped.
///
/// Whoever has its [`blob`](Self::blob) and runs as the same user, or as root, can [import](super::Import) it, up to
/// [`MAX_IMPORTS`](super::MAX_IMPORTS) times at once. Keeps the memory alive. Dropping it revokes it, which waits
/// up to a second for copies to end; if they don't, the memory is never freed, and a `tracing` warning says so.
pub struct Export {
    memory: SharedMemory,
    grant: Grant,
    blob: [u8; BLOB_LEN],
    token: Token,
    /// None until revoked; then the importers that may still hold leases.
    revoked: Mutex<Option<Vec<Arc<Link>>>>,
    service: Arc<Service>,
}

impl Export {
    /// Exports the bytes `range` of `memory` with `rights`. Does not block.
    ///
    /// A peer cannot get more than that from this library, and from the kernel no write access unless `rights`
    /// include it. The kernel hands out whole memories, though, so exports that must not trust their importer's
    /// code with the neighbouring bytes should each have a [`SharedMemory`] of their own.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Empty`] for no bytes or no rights, [`RemoteError::OutOfRange`], and [`RemoteError::Os`] when
    /// there are no descriptors or threads left, or `/proc` is not mounted.
    pub fn new(memory: &SharedMemory, range: Range<usize>, rights: Access) -> Result<Self, RemoteError> {
        let available = memory.len() as u64;
        let len = range.end.checked_sub(range.start).ok_or(RemoteError::OutOfRange {
            offset: range.start as u64,
            len: 0,
            available,
        })?;
        memory.check(range.start, len)?;
        if len == 0 {
            return Err(RemoteError::Empty { what: "the range of an export" });
        }
        let rights = rights & Access::all();
        if rights.is_empty() {
            return Err(RemoteError::Empty { what: "the rights of an export" });
        }
        let file = if rights.contains(Access::WRITE) { memory.file()? } else { memory.read_only_file()? };
        let grant =
            Grant { address: memory.ptr().addr().get() as u64 + range.start as u64, len: len as u64, rights };
        let service = Service::get()?;
        let token = Token(random()?);
        let granted = Granted { grant, offset: range.start as u64, page_size: memory.page_size() as u64 };
        service.offer(token, granted, file)?;
        let pid = service.pid();
        let blob = Blob {
            pid,
            uid: rustix::process::geteuid().as_raw(),
            started: started(pid).unwrap_or(0),
            socket: service.socket(),
            token,
        };
        let (memory, blob) = (memory.clone(), blob.encode());
        Ok(Self { memory, grant, blob, token, revoked: Mutex::new(None), service })
    }

    /// The descriptor to pass on to the importer, by any channel: [`BLOB_LEN`] bytes.
    ///
    /// It is a secret: it lets every process of the same user on this machine import. It means nothing after the
    /// export is revoked or the process ends.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// What importers are granted.
    #[must_use]
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// The memory that is exported.
    #[must_use]
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Withdraws the grant at once, and waits up to `within` until no importer copies any more: until each has
    /// given back its leases, or is gone.
    ///
    /// After success no importer touches the bytes, and what importers wrote is visible to the caller. May be
    /// called again, by any thread; then it waits for what is still to be waited for.
    ///
    /// A lease of an import in this very process counts like any other: a thread that holds one and waits here
    /// waits in vain.
    ///
    /// # Errors
    ///
    /// [`RemoteError::StillInUse`] when importers still copy after `within`; the memory must not be reused then.
    /// [`RemoteError::Unsupported`] in a forked child, for an export of its parent.
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
            self.memory.leak();
            tracing::warn!(%error, len = self.memory.len(), "the memory of a dropped export is never freed");
        }
    }
}
