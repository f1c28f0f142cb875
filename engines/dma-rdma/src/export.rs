//! Exports: memory in its own protection domain, so that the device confines a peer to it.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{Access, ErrorKind, MemoryRequest, PageMemory, RawExport, Result};
use dma_handshake::{Id, Secret};

use crate::device::{Device, Handle, Owned};
use crate::error::error;
use crate::queue_pair::{QueuePair, random};
use crate::queue_pairs::Completions;
use crate::region::{self, Bytes, Registered};
use crate::service::Service;
use crate::verbs::*;
use crate::wire::{BLOB, End, Grant, encode_blob};

/// Maximum time that the drop of an export waits for the device.
const DROP_WAITS: Duration = Duration::from_secs(1);
/// The length of the proof word, in bytes.
const WORD: usize = 8;

/// A protection domain with a word that peers read after their writes. When the read returns, the writes have
/// arrived in memory, because a read does not overtake a write on PCI Express. The queue pairs that serve
/// peers keep this value alive.
#[derive(Debug)]
struct Domain {
    device: Arc<Device>,
    proof: Registered,
    completions: Completions,
    pd: Owned<ibv_pd>,
}

impl Domain {
    fn new(device: &Arc<Device>) -> Result<Self> {
        let verbs = &device.verbs;
        // SAFETY: the device is open.
        let pd = unsafe { (verbs.ibv_alloc_pd)(device.context.as_ptr()) };
        // SAFETY: the domain was just made. `proof` and queue pairs, which use it, are dropped before it.
        let pd = unsafe {
            Owned::new(
                device,
                pd,
                verbs.ibv_dealloc_pd,
                "the device has no protection domain left for an export",
            )
        }?;
        // One entry suffices, because requests of peers make no completions on this side.
        let completions = Completions::new(device, 1, None)?;
        let word = PageMemory::new(&MemoryRequest::new(WORD))?;
        // SAFETY: the bytes are all of `word`, which is passed along, and the domain is dropped later.
        let proof = unsafe {
            let bytes = Bytes::Mapped(word.as_ptr());
            Registered::new(device, pd.handle(), (&bytes, WORD), access::REMOTE_READ, Some(word))
        }?;
        Ok(Self { device: Arc::clone(device), proof, completions, pd })
    }
}

/// A granted range, as the service sees it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) secret: Secret,
    domain: Arc<Domain>,
    pub(crate) grant: Grant,
}

impl Granted {
    /// Makes a queue pair and connects it to the peer's queue pair. Returns the new queue pair and its end.
    pub(crate) fn serve(&self, peer: &End) -> Result<(QueuePair, End)> {
        let domain = Arc::clone(&self.domain);
        let (device, pd, cq) = (&self.domain.device, domain.pd.handle(), domain.completions.cq.handle());
        // SAFETY: the completion queue belongs to this device and domain, which the queue pair keeps alive.
        let mut pair = unsafe { QueuePair::new(device, pd, cq, 1, domain) }?;
        let rights = access::REMOTE_READ | region::rights(self.grant.rights, access::REMOTE_WRITE);
        let mine = pair.end(u32::from_le_bytes(random()?))?;
        pair.connect(&mine, peer, rights)?;
        Ok((pair, mine))
    }
}

/// Memory granted to a peer. Dropping this value revokes the grant.
#[derive(Debug)]
pub(crate) struct RdmaExport {
    device: Arc<Device>,
    service: Arc<Service>,
    id: Id,
    /// `None` once the region is deregistered.
    region: Option<Handle<ibv_mr>>,
    /// The domain of the region. The device keeps a domain while it contains a region.
    _domain: Arc<Domain>,
    blob: [u8; BLOB],
}

impl RdmaExport {
    /// Grants the first `len` bytes.
    ///
    /// # Safety
    ///
    /// The memory stays mapped, or the dma-buf's memory allocated, until the grant is revoked.
    pub(crate) unsafe fn new(
        device: &Arc<Device>,
        service: Arc<Service>,
        bytes: &Bytes,
        len: usize,
        rights: Access,
    ) -> Result<Self> {
        let secret = Secret::new(random()?, random()?);
        let blob = encode_blob(service.addr(), &secret);
        let domain = Arc::new(Domain::new(device)?);
        // For remote writes, the library requires the local and the remote right to write.
        let flags = region::rights(rights, access::REMOTE_WRITE | access::LOCAL_WRITE);
        // SAFETY: the caller keeps the bytes mapped until `revoke` has deregistered them.
        let region = unsafe { device.register(domain.pd.handle(), bytes, len, flags) }
            .map_err(|errno| region::refused(len, errno))?;
        // SAFETY: the library made the region, whose keys never change.
        let rkey = unsafe { (*region.as_ptr()).rkey };
        // SAFETY: the domain's region exists as long as the domain, and the library does not change it.
        let &ibv_mr { addr: proof_addr, rkey: proof_rkey, .. } = unsafe { &*domain.proof.handle.as_ptr() };
        let proof_addr = proof_addr.addr() as u64;
        let grant = Grant { addr: bytes.addr(), len: len as u64, rkey, rights, proof_addr, proof_rkey };
        service.offer(Granted { secret, domain: Arc::clone(&domain), grant });
        let (device, region) = (Arc::clone(device), Some(region));
        Ok(Self { device, service, id: *secret.id(), region, _domain: domain, blob })
    }
}

// SAFETY: `revoke` returns `Ok` after the device has deregistered the exported range. From then on, the
// device refuses peers.
unsafe impl RawExport for RdmaExport {
    fn native(&self) -> &[u8] {
        &self.blob
    }

    fn revoke(&mut self, timeout: Duration) -> Result<()> {
        self.service.withdraw(&self.id);
        let deadline = Instant::now().checked_add(timeout);
        while let Some(region) = self.region {
            // From then on the device refuses peers. The peers' queue pairs stay, so that their copies fail
            // with an error.
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
            dma_core::guarded_log!(error, device = self.device.name, "an export cannot be revoked");
        }
    }
}
