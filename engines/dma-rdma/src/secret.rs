//! The secret of an export, and the proofs by which both sides show that they know it.
//!
//! ```text
//! exporter -> importer   32 random bytes
//! importer -> exporter   the export's id, 32 random bytes, its queue pair; proof "importer"
//! exporter -> importer   the grant, its queue pair; proof "exporter"
//! ```
//!
//! A proof is HMAC-SHA256, keyed with the secret, of the role, the exporter's random bytes, and all messages
//! since, this one included. These have a version and fixed lengths. So a proof is worth nothing in another
//! exchange, for another export, or with another queue pair or grant. The secret itself is never sent.

use std::fmt;

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The public name of an export.
pub(crate) type Id = [u8; 16];
/// Random bytes, new for each exchange.
pub(crate) type Nonce = [u8; 32];
/// The length of a proof in bytes.
pub(crate) const PROOF: usize = 32;

/// The sender of a message that has a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Importer,
    Exporter,
}

/// The name of an export, and the secret of those who may reach it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret {
    pub(crate) id: Id,
    pub(crate) key: [u8; 32],
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Secret {
    fn mac(&self, role: Role, parts: &[&[u8]]) -> Hmac<Sha256> {
        // HMAC pads keys with zeros to the length of a block.
        let mut block = [0; 64];
        block[..self.key.len()].copy_from_slice(&self.key);
        let mut mac = Hmac::new(&block.into());
        mac.update(match role {
            Role::Importer => b"dma-rdma importer",
            Role::Exporter => b"dma-rdma exporter",
        });
        for part in parts {
            mac.update(part);
        }
        mac
    }

    /// Returns the proof of a role over parts of fixed lengths.
    pub(crate) fn prove(&self, role: Role, parts: &[&[u8]]) -> [u8; PROOF] {
        self.mac(role, parts).finalize().into_bytes().into()
    }

    /// Returns whether `proof` is that of the role over these parts. Compares in constant time.
    pub(crate) fn proves(&self, role: Role, parts: &[&[u8]], proof: &[u8; PROOF]) -> bool {
        self.mac(role, parts).verify(&(*proof).into()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2: HMAC-SHA256, whose key "Jefe" is padded as ours are.
    #[test]
    fn proofs_are_hmac_sha256() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let expected = Hmac::<Sha256>::new_from_slice(b"Jefe")
            .unwrap()
            .chain_update(b"dma-rdma importerwhat do ya want for nothing?")
            .finalize()
            .into_bytes();
        let secret = Secret { id: [0; 16], key };
        assert_eq!(secret.prove(Role::Importer, &[b"what do ya want ", b"for nothing?"])[..], expected[..]);
    }

    #[test]
    fn a_proof_is_of_one_role_one_key_and_all_bytes() {
        let secret = Secret { id: [1; 16], key: [2; 32] };
        let parts: [&[u8]; 2] = [b"challenge", b"request"];
        let proof = secret.prove(Role::Importer, &parts);
        assert!(secret.proves(Role::Importer, &parts, &proof));
        assert!(!secret.proves(Role::Exporter, &parts, &proof));
        assert!(!secret.proves(Role::Importer, &[b"challenge", b"requesu"], &proof));
        assert!(!Secret { key: [3; 32], ..secret }.proves(Role::Importer, &parts, &proof));
        for at in 0..PROOF {
            let mut changed = proof;
            changed[at] ^= 1;
            assert!(!secret.proves(Role::Importer, &parts, &changed), "byte {at}");
        }
        assert!(!format!("{secret:?}").contains("2, 2"), "the key is printed");
    }
}
