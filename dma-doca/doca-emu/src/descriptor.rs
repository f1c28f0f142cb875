//! Descriptors of memory and events that are exported to the card's other side.

use std::time::Duration;

use dma_ipc::{Export, RemoteError};
use serde::{Deserialize, Serialize};

use crate::c_abi::{Outcome, c};

/// First bytes of a descriptor. JSON follows, and a checksum of all before, in 4 bytes.
const MARK: [u8; 8] = *b"DOCAEMUX";
const MAX: usize = 4096;
/// Time limit for importers' copies when an export is revoked.
const REVOKE_WAITS: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Pci,
    Rdma,
    Event,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descriptor {
    pub(crate) kind: Kind,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) access: u32,
    /// The card that it was exported through.
    pub(crate) serial: String,
    /// For `dma_ipc`.
    pub(crate) remote: Vec<u8>,
}

impl Descriptor {
    fn encode(&self) -> Vec<u8> {
        let mut out = MARK.to_vec();
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut out, self);
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// `None` if the bytes are not a whole descriptor.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        let sound = bytes.len() <= MAX && u32::from_le_bytes(*sum) == crc32fast::hash(body);
        serde_json::from_slice(body.strip_prefix(&MARK).filter(|_| sound)?).ok()
    }
}

pub(crate) struct Exported {
    pub(crate) kind: Kind,
    pub(crate) serial: String,
    /// The descriptor, which C may read until the export is revoked.
    pub(crate) bytes: Box<[u8]>,
    export: Option<Export>,
}

impl Exported {
    /// Describes `len` bytes that have the address `addr`, which `export` lets the other side reach.
    pub(crate) fn new(
        kind: Kind,
        serial: &str,
        (addr, len): (usize, usize),
        access: u32,
        export: Option<Export>,
    ) -> Self {
        let remote = export.as_ref().map(|export| export.blob().to_vec()).unwrap_or_default();
        let (addr, len, serial) = (addr as u64, len as u64, serial.to_owned());
        let descriptor = Descriptor { kind, addr, len, access, serial: serial.clone(), remote };
        Self { kind, serial, bytes: descriptor.encode().into(), export }
    }

    /// Revokes the export. On return no importer accesses the memory.
    pub(crate) fn revoke(&self) -> Outcome {
        match self.export.as_ref().map(|export| export.revoke(REVOKE_WAITS)) {
            // An export of the parent process, which revokes it, is not supported.
            None | Some(Ok(()) | Err(RemoteError::Unsupported { .. })) => Ok(()),
            Some(Err(_)) => Err(c::DOCA_ERROR_NOT_PERMITTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        let (serial, remote) = ("SER1".to_owned(), vec![7; 56]);
        Descriptor { kind: Kind::Pci, addr: 0x7f00_0000_1000, len: 99, access: 0x21, serial, remote }
    }

    #[test]
    fn an_encoded_value_parses_to_itself() {
        for kind in [Kind::Pci, Kind::Rdma, Kind::Event] {
            let descriptor = Descriptor { kind, ..descriptor() };
            assert_eq!(Descriptor::parse(&descriptor.encode()), Some(descriptor));
        }
    }

    #[test]
    fn cut_extended_or_altered_is_none() {
        let whole = descriptor().encode();
        for len in 0..whole.len() {
            assert_eq!(Descriptor::parse(&whole[..len]), None, "{len}");
        }
        assert_eq!(Descriptor::parse(&[&whole[..], &[0]].concat()), None);
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut altered = whole.clone();
                altered[at] ^= 1 << bit;
                assert_eq!(Descriptor::parse(&altered), None, "bit {bit} of byte {at}");
            }
        }
    }
}
