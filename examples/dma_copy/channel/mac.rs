//! The shared secret of a TCP channel: how each side proves that it knows it, and how messages are kept from being changed, made up,
//! left out or sent again on the way. They can be read on the way: run it over a network that you trust with the file's digests.
//!
//! The host speaks first, and the DPU tells nothing but a random number before the host has proved itself:
//!
//! ```text
//! host -> DPU   "DCPYTCP1", 32 random bytes h
//! DPU -> host   "DCPYTCP1", 32 random bytes d
//! host -> DPU   MAC("host", h, d)
//! DPU -> host   MAC("DPU", h, d)
//! ```
//!
//! MAC is keyed BLAKE3; keys come from the secret by BLAKE3's key derivation. From there on each direction has a key of its own, made for this
//! connection, and the MAC behind a message covers its number too.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use blake3::{Hash, Hasher};

use crate::failure::{Failure, failure};
use crate::protocol::Role;

/// Bytes of a MAC.
pub(super) const MAC_LEN: usize = blake3::OUT_LEN;
/// A random number that is used once.
pub(super) type Nonce = [u8; 32];

const PROOF: &str = "dma_copy 2026-11 tcp proof of the shared secret";
const TO_DPU: &str = "dma_copy 2026-11 tcp messages of the host";
const TO_HOST: &str = "dma_copy 2026-11 tcp messages of the DPU";

/// What both sides know and nobody else.
pub(super) struct Secret(Vec<u8>);

impl Secret {
    /// A secret has at least so many bytes,
    const MIN: u64 = 16;
    /// and at most so many.
    const MAX: u64 = 64 << 10;

    /// Reads it.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let file =
            File::open(path).map_err(|e| failure!(Starting, "cannot open --secret-file {shown}: {e}"))?;
        let metadata =
            file.metadata().map_err(|e| failure!(Starting, "cannot look at --secret-file {shown}: {e}"))?;
        if !metadata.is_file() {
            return Err(failure!(Starting, "--secret-file {shown} is no regular file"));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(failure!(
                Starting,
                "--secret-file {shown} can be read by others than its owner, so it is no secret; chmod 600 {shown}"
            ));
        }
        let mut secret = Vec::new();
        file.take(Self::MAX + 1)
            .read_to_end(&mut secret)
            .map_err(|e| failure!(Starting, "cannot read --secret-file {shown}: {e}"))?;
        if !(Self::MIN..=Self::MAX).contains(&(secret.len() as u64)) {
            return Err(failure!(
                Starting,
                "--secret-file {shown} has {} bytes, and a secret has {} to {}; make one with: head -c 32 /dev/urandom > {shown}",
                secret.len(),
                Self::MIN,
                Self::MAX
            ));
        }
        Ok(Self(secret))
    }

    /// What proves that `role` knows the secret.
    pub(super) fn proof(&self, role: Role, host: &Nonce, dpu: &Nonce) -> Hash {
        let key = blake3::derive_key(PROOF, &self.0);
        Hasher::new_keyed(&key).update(&[role as u8]).update(host).update(dpu).finalize()
    }

    /// The MACs of the messages that `role` sends.
    pub(super) fn macs(&self, role: Role, host: &Nonce, dpu: &Nonce) -> Macs {
        let context = match role {
            Role::Host => TO_DPU,
            Role::Dpu => TO_HOST,
        };
        let key =
            *Hasher::new_derive_key(context).update(&self.0).update(host).update(dpu).finalize().as_bytes();
        Macs { key, number: 0 }
    }
}

/// The MACs of messages in one direction.
pub(super) struct Macs {
    key: [u8; 32],
    number: u64,
}

impl Macs {
    /// That of the next message.
    pub(super) fn next(&mut self, message: &[u8]) -> Hash {
        let mac = Hasher::new_keyed(&self.key).update(&self.number.to_le_bytes()).update(message).finalize();
        self.number += 1;
        mac
    }
}

/// A number that nobody can guess and that does not come again.
pub(super) fn nonce() -> io::Result<Nonce> {
    let mut nonce = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}
