//! [`Proof`]: shows that a side knows a secret.

use crate::mac::{self, MAC_LEN, Mac};

/// Length of a proof in bytes.
pub const PROOF_LEN: usize = MAC_LEN;

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that connects to the listener.
    Caller,
    /// The side that accepts the connection.
    Listener,
}

/// A proof that a side knows a secret, which does not reveal the secret. Comparisons take constant time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof(Mac);

impl Proof {
    /// Computes the proof of `side` over `parts`, which must have fixed lengths. The proof is the
    /// HMAC-SHA-256 of the side's number followed by the parts. Its key is derived from `secret` and
    /// `context`. The context must be unique to the protocol, so that a proof is not valid in another
    /// protocol.
    ///
    /// The parts must contain random bytes of both sides that are new for each exchange, and all earlier
    /// messages. Otherwise a proof could be replayed.
    #[must_use]
    pub fn new(context: &str, secret: &[u8], side: Side, parts: &[&[u8]]) -> Self {
        let key = mac::derive_key(context, secret, &[]);
        let side = [side as u8];
        Self(Mac::new(&key, [&side[..]].iter().chain(parts)))
    }

    /// Returns the bytes of the proof, to send them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; PROOF_LEN] {
        self.0.as_bytes()
    }
}

impl PartialEq<[u8]> for Proof {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == *other
    }
}

impl PartialEq<[u8; PROOF_LEN]> for Proof {
    fn eq(&self, other: &[u8; PROOF_LEN]) -> bool {
        self.0 == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_context_side_secret_and_all_bytes() {
        let (secret, parts) = ([2; 32], [&b"challenge"[..], b"request"]);
        let proof = Proof::new("test", &secret, Side::Caller, &parts);
        assert_eq!(proof, Proof::new("test", &secret, Side::Caller, &parts));
        for other in [
            Proof::new("tests", &secret, Side::Caller, &parts),
            Proof::new("test", &[3; 32], Side::Caller, &parts),
            Proof::new("test", &secret, Side::Listener, &parts),
            Proof::new("test", &secret, Side::Caller, &[b"challenge", b"requesu"]),
        ] {
            assert_ne!(proof, other);
        }
        for at in 0..PROOF_LEN {
            let mut changed = *proof.as_bytes();
            changed[at] ^= 1;
            assert!(proof != changed, "byte {at}");
        }
    }
}
