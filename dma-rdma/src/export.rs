//! Exports: memory in a protection domain of its own, so that the device confines a peer to it.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{Access, ErrorKind, RawExport, Result};

use crate::device::{Device, Handle};
use crate::error::{error, failed};
use crate::qp::{QueuePair, random};
use crate::secret::{Id, Secret};
use crate::service::Service;
use crate::verbs::*;
use crate::wire::{BLOB, End, Grant, encode_blob};

/// Time that a dropped export waits for the device.
const DROP_WAITS: Duration = Duration::from_secs(1);

/// A protection domain with a word that peers read behind their writes. The bytes that such a read returns
/// left the memory after the writes arrived there, because a read does not overtake a write on PCI Express.
#[derive(Debug)]
struct Domain {
    device: Arc<Device>,
    pd: Handle<ibv_pd>,
    cq: Handle<ibv_cq>,
    proof: Handle<ibv_mr>,
    /// Freed after `proof` is deregistered, or never.
    word: NonNull<u64>,
}

// SAFETY: the word is only ever read, by the device.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    fn new(device: &Arc<Device>) -> Result<Self> {
        let verbs = &device.verbs;
        let context = device.context.as_ptr();
        // SAFETY: an open device.
        let pd = Handle::new(unsafe { (verbs.ibv_alloc_pd)(context) })
            .map_err(|errno| failed("no protection domain for an export", errno))?;
        let undo_pd = || {
            // SAFETY: just made, and nothing uses it.
            unsafe { (verbs.ibv_dealloc_pd)(pd.as_ptr()) };
        };
        // Requests of peers make no completions here.
        // SAFETY: an open device.
        let cq = unsafe { (verbs.ibv_create_cq)(context, 1, ptr::null_mut(), ptr::null_mut(), 0) };
        let cq = Handle::new(cq)
            .map_err(|errno| failed("no completion queue for an export", errno))
            .inspect_err(|_| undo_pd())?;
        let word = NonNull::from(Box::leak(Box::new(0_u64)));
        // SAFETY: the word stays until the domain is dropped.
        let proof = unsafe { device.register_in(pd, word.cast(), size_of::<u64>(), access::REMOTE_READ) };
        let proof =
            proof.map_err(|errno| failed("no memory region for an export", errno)).inspect_err(|_| {
                // SAFETY: leaked above, and not registered.
                drop(unsafe { Box::from_raw(word.as_ptr()) });
                // SAFETY: just made, and nothing uses it.
                unsafe { (verbs.ibv_destroy_cq)(cq.as_ptr()) };
                undo_pd();
            })?;
        Ok(Self { device: Arc::clone(device), pd, cq, proof, word })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.device.deregister(self.proof) {
            // SAFETY: leaked by `new`, and the device reaches it no more.
            drop(unsafe { Box::from_raw(self.word.as_ptr()) });
        }
        // SAFETY: the queue pairs, which hold this value, are gone; if not, the library refuses.
        unsafe { (self.device.verbs.ibv_destroy_cq)(self.cq.as_ptr()) };
        // SAFETY: as above.
        unsafe { (self.device.verbs.ibv_dealloc_pd)(self.pd.as_ptr()) };
    }
}

/// A granted range, as the service sees it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) secret: Secret,
    domain: Arc<Domain>,
    pub(crate) grant: Grant,
}

/// A queue pair that serves a peer.
#[derive(Debug)]
pub(crate) struct Served {
    _pair: QueuePair,
    // Behind the queue pair, which uses it.
    _domain: Arc<Domain>,
}

impl Granted {
    /// Makes a queue pair for a peer, connected to the peer's. Returns it and its end.
    pub(crate) fn serve(&self, peer: &End) -> Result<(Served, End)> {
        let domain = &self.domain;
        // SAFETY: of this device; `Served` keeps them as long as the queue pair.
        let mut pair = unsafe { QueuePair::new(&domain.device, domain.pd, domain.cq, 1) }?;
        let mut rights = access::REMOTE_READ;
        if self.grant.rights.contains(Access::WRITE) {
            rights |= access::REMOTE_WRITE;
        }
        let mine = pair.end(u32::from_le_bytes(random()?))?;
        pair.connect(&mine, peer, rights)?;
        Ok((Served { _pair: pair, _domain: Arc::clone(domain) }, mine))
    }
}

/// Memory granted to a peer. Dropping it revokes.
#[derive(Debug)]
pub(crate) struct RdmaExport {
    device: Arc<Device>,
    service: Arc<Service>,
    id: Id,
    /// `None` once it is deregistered.
    region: Option<Handle<ibv_mr>>,
    blob: [u8; BLOB],
}

impl RdmaExport {
    /// Grants `len` bytes from `base` on.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until it is revoked.
    pub(crate) unsafe fn new(
        device: &Arc<Device>,
        service: Arc<Service>,
        base: NonNull<u8>,
        len: usize,
        rights: Access,
    ) -> Result<Self> {
        let secret = Secret { id: random()?, key: random()? };
        let blob = encode_blob(service.addr(), &secret);
        let domain = Arc::new(Domain::new(device)?);
        let mut flags = 0;
        if rights.contains(Access::READ) {
            flags |= access::REMOTE_READ;
        }
        if rights.contains(Access::WRITE) {
            // The library wants both.
            flags |= access::REMOTE_WRITE | access::LOCAL_WRITE;
        }
        // SAFETY: mapped by the caller's promise, and deregistered by `revoke`.
        let region = unsafe { device.register_in(domain.pd, base, len, flags) }
            .map_err(|errno| crate::region::refused(len, errno))?;
        // SAFETY: a region of the library, whose keys are constant.
        let rkey = unsafe { (*region.as_ptr()).rkey };
        // SAFETY: as above.
        let proof_rkey = unsafe { (*domain.proof.as_ptr()).rkey };
        let proof_addr = domain.word.addr().get() as u64;
        let addr = base.addr().get() as u64;
        let grant = Grant { addr, len: len as u64, rkey, rights, proof_addr, proof_rkey };
        service.offer(Granted { secret, domain, grant });
        Ok(Self { device: Arc::clone(device), service, id: secret.id, region: Some(region), blob })
    }
}

impl RawExport for RdmaExport {
    fn native(&self) -> &[u8] {
        &self.blob
    }

    fn revoke(&mut self, timeout: Duration) -> Result<()> {
        self.service.withdraw(&self.id);
        let deadline = Instant::now().checked_add(timeout);
        while let Some(region) = self.region {
            // The device refuses peers from then on. Their queue pairs stay, so that they are told.
            if self.device.deregister(region) {
                self.region = None;
            } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(error(ErrorKind::TimedOut, "the device does not deregister exported memory")
                    .with_hint("do not reuse the memory; see `dmesg`"));
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

impl Drop for RdmaExport {
    fn drop(&mut self) {
        if self.revoke(DROP_WAITS).is_err() {
            tracing::error!(device = self.device.name, "an export cannot be revoked");
        }
    }
}
