//! Granted memory, as the service sees it, in its own protection domain.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::sync::Arc;

use dma_core::{MemoryRequest, PageMemory, Result};
use dma_handshake::Secret;

use crate::device::{Device, Owned};
use crate::queue_pair::{QueuePair, random};
use crate::queue_pairs::Completions;
use crate::registration::{Bytes, Registered, rights};
use crate::verbs::*;
use crate::wire::{End, Grant};

/// The length of the proof word, in bytes.
const WORD: usize = 8;

/// A protection domain with a word that peers read after their writes. When the read returns, the writes have
/// arrived in memory, because a read does not overtake a write on PCI Express. The queue pairs that serve
/// peers keep this value alive.
#[derive(Debug)]
pub(crate) struct Domain {
    device: Arc<Device>,
    pub(crate) proof: Registered,
    completions: Completions,
    pub(crate) pd: Owned<ibv_pd>,
}

impl Domain {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
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
    pub(crate) domain: Arc<Domain>,
    pub(crate) grant: Grant,
}

impl Granted {
    /// Makes a queue pair and connects it to the peer's queue pair. Returns the new queue pair and its end.
    pub(crate) fn serve(&self, peer: &End) -> Result<(QueuePair, End)> {
        let domain = Arc::clone(&self.domain);
        let (device, pd, cq) = (&self.domain.device, domain.pd.handle(), domain.completions.cq.handle());
        // SAFETY: the completion queue belongs to this device and domain, which the queue pair keeps alive.
        let mut pair = unsafe { QueuePair::new(device, pd, cq, 1, domain) }?;
        let rights = access::REMOTE_READ | rights(self.grant.rights, access::REMOTE_WRITE);
        let mine = pair.end(u32::from_le_bytes(random()?))?;
        pair.connect(&mine, peer, rights)?;
        Ok((pair, mine))
    }
}
