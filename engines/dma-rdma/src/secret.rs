//! The secret of an export, and the proofs by which both sides show that they know the secret.
//!
//! ```text
//! exporter -> importer   32 random bytes
//! importer -> exporter   the export's id, 32 random bytes, its queue pair; proof "importer"
//! exporter -> importer   the grant, its queue pair; proof "exporter"
//! ```
//!
//! A proof ([`Proof`]) covers the side, the exporter's random bytes, and all messages up to and including its
//! own. Messages have a version and fixed lengths. So a proof is invalid in another exchange, for another
//! export, or with another queue pair or grant. The secret itself is never sent.

use std::fmt;

use dma_handshake::{Proof, Side};

/// The public name of an export.
pub(crate) type Id = [u8; 16];
/// Random bytes, new for each exchange.
pub(crate) type Nonce = [u8; 32];

/// The name of an export, and its secret.
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
    /// Returns the proof of a side over parts of fixed lengths. The importer is the connecting side, and the
    /// exporter the listening side.
    pub(crate) fn proof(&self, side: Side, parts: &[&[u8]]) -> Proof {
        Proof::new("dma-rdma 2026-11-26 proof of an export's secret", &self.key, side, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_not_printed() {
        let secret = Secret { id: [1; 16], key: [2; 32] };
        assert!(!format!("{secret:?}").contains("2, 2"));
    }
}
