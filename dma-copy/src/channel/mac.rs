//! The shared secret of a TCP channel. It authenticates both sides, and messages against change, forgery,
//! loss and replay. Messages are not encrypted: anyone on the network can read the file's length and digests,
//! and its bytes with `--engine stream`.
//!
//! The host sends first. The DPU reveals nothing but a nonce before the host has authenticated:
//!
//! ```text
//! host -> DPU   "DCPYTCP1", 32 random bytes h
//! DPU -> host   "DCPYTCP1", 32 random bytes d
//! host -> DPU   MAC("host", h, d)
//! DPU -> host   MAC("DPU", h, d), or 32 zeros if the host's MAC is wrong
//! ```
//!
//! The DPU closes slow connections without an answer while others wait. A host tries again.
//!
//! MAC is keyed BLAKE3. Keys are derived from the secret by BLAKE3's key derivation. After authentication
//! each direction has a key for this connection, and the MAC of a message covers its sequence number.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use blake3::{Hash, Hasher};

use crate::failure::{Failure, failure};
use crate::protocol::Role;

/// Length of a MAC in bytes.
pub(super) const MAC_LEN: usize = blake3::OUT_LEN;
pub(super) type Nonce = [u8; 32];

const PROOF: &str = "dma_copy 2026-11 tcp proof of the shared secret";
const TO_DPU: &str = "dma_copy 2026-11 tcp messages of the host";
const TO_HOST: &str = "dma_copy 2026-11 tcp messages of the DPU";

pub(super) struct Secret(Vec<u8>);

impl Secret {
    /// Minimum length in bytes.
    const MIN: u64 = 16;
    /// Maximum length in bytes.
    const MAX: u64 = 64 << 10;

    /// Reads the secret of `--secret-file`.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let file =
            File::open(path).map_err(|e| failure!(Starting, "cannot open --secret-file {shown}: {e}"))?;
        let metadata =
            file.metadata().map_err(|e| failure!(Starting, "cannot stat --secret-file {shown}: {e}"))?;
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

    /// The proof that `role` knows the secret.
    pub(super) fn proof(&self, role: Role, host: &Nonce, dpu: &Nonce) -> Hash {
        let key = blake3::derive_key(PROOF, &self.0);
        Hasher::new_keyed(&key).update(&[role as u8]).update(host).update(dpu).finalize()
    }

    /// True if `proof` proves that `role` knows the secret. Compares in constant time.
    pub(super) fn proves(&self, proof: &[u8], role: Role, host: &Nonce, dpu: &Nonce) -> bool {
        self.proof(role, host, dpu) == *proof
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

pub(super) struct Macs {
    key: [u8; 32],
    number: u64,
}

impl Macs {
    pub(super) fn next(&mut self, message: &[u8]) -> Hash {
        let mac = Hasher::new_keyed(&self.key).update(&self.number.to_le_bytes()).update(message).finalize();
        self.number += 1;
        mac
    }
}

/// An unpredictable number.
pub(super) fn nonce() -> io::Result<Nonce> {
    let mut nonce = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}
