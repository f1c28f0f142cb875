//! Exports: memory in its own protection domain, so that the device confines a peer to it.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{Access, ErrorKind, RawExport, Result};
use dma_handshake::{Id, Secret};

use crate::device::Device;
use crate::error::error;
use crate::granted::{Domain, Granted};
use crate::handle::Handle;
use crate::queue_pair::random;
use crate::registration::{self, Bytes};
use crate::service::Service;
use crate::verbs::*;
use crate::wire::{BLOB, Grant, encode_blob};

/// Maximum time that the drop of an export waits for the device.
const DROP_WAITS: Duration = Duration::from_secs(1);

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
        let flags = registration::rights(rights, access::REMOTE_WRITE | access::LOCAL_WRITE);
        // SAFETY: the caller keeps the bytes mapped until `revoke` has deregistered them.
        let region = unsafe { device.register(domain.pd.handle(), bytes, len, flags) }
            .map_err(|errno| registration::refused(len, errno))?;
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
            let device = self.device.name.clone();
            dma_core::deferred_log!(error, device, "an export cannot be revoked");
        }
    }
}
