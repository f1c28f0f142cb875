//! Descriptors of memory and events that are exported to the card's other side.

use std::time::Duration;

use dma_ipc::{Export, RemoteError};

use crate::c_abi::{Outcome, c};
use crate::config::Side;
use crate::dev::Dev;

/// First bytes of a descriptor. The numbers follow in little-endian order. Then come the serial number and
/// the bytes for `dma_ipc`, each preceded by its length in one byte. The last 4 bytes are a checksum of all
/// earlier bytes.
const MARK: [u8; 4] = *b"EMX1";
/// Maximum length of a descriptor in bytes. Programs read descriptors of the real library into buffers of
/// 256 bytes.
const MAX: usize = 150;
/// Time limit for importers' copies when an export is revoked.
const REVOKE_WAITS: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pci,
    Rdma,
    Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) kind: Kind,
    /// Side of the card that made the export.
    pub(crate) side: Side,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) access: u32,
    /// Serial number of the card that made the export.
    pub(crate) serial: String,
    /// Bytes that `dma_ipc` uses to import the memory.
    pub(crate) remote: Vec<u8>,
}

impl Descriptor {
    fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Pci => 0,
            Kind::Rdma => 1,
            Kind::Event => 2,
        };
        let mut out = MARK.to_vec();
        out.extend([kind, (self.side == Side::Dpu).into()]);
        out.extend(self.addr.to_le_bytes());
        out.extend(self.len.to_le_bytes());
        out.extend(self.access.to_le_bytes());
        for bytes in [self.serial.as_bytes(), &self.remote] {
            // One byte is enough: the configuration limits the serial number, and `dma_ipc` limits its bytes.
            out.push(bytes.len() as u8);
            out.extend(bytes);
        }
        out.extend(crc32fast::hash(&out).to_le_bytes());
        debug_assert!(out.len() <= MAX, "{} bytes", out.len());
        out
    }

    /// Parses a descriptor; `None` if it is incomplete or damaged.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        let sound = bytes.len() <= MAX && u32::from_le_bytes(*sum) == crc32fast::hash(body);
        let rest = body.strip_prefix(&MARK).filter(|_| sound)?;
        let (&[kind, dpu], rest) = rest.split_first_chunk()?;
        let kind = match kind {
            0 => Kind::Pci,
            1 => Kind::Rdma,
            2 => Kind::Event,
            _ => return None,
        };
        let side = match dpu {
            0 => Side::Host,
            1 => Side::Dpu,
            _ => return None,
        };
        let (addr, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (access, rest) = rest.split_first_chunk()?;
        let (serial, rest) = with_length(rest)?;
        let (remote, rest) = with_length(rest)?;
        rest.is_empty().then_some(())?;
        Some(Self {
            kind,
            side,
            addr: u64::from_le_bytes(*addr),
            len: u64::from_le_bytes(*len),
            access: u32::from_le_bytes(*access),
            serial: String::from_utf8(serial.to_vec()).ok()?,
            remote: remote.to_vec(),
        })
    }
}

/// Splits off a field that begins with its length in one byte.
fn with_length(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

pub(crate) struct Exported {
    pub(crate) kind: Kind,
    pub(crate) side: Side,
    pub(crate) serial: String,
    /// The bytes of the descriptor, which C may read until the export is revoked.
    pub(crate) bytes: Box<[u8]>,
    export: Option<Export>,
}

impl Exported {
    /// Describes `len` bytes at `addr` for the card of `dev`. `export` gives the other side access to them.
    pub(crate) fn new(
        kind: Kind,
        dev: &Dev,
        (addr, len): (usize, usize),
        access: u32,
        export: Option<Export>,
    ) -> Self {
        let remote = export.as_ref().map(|export| export.blob().to_vec()).unwrap_or_default();
        let (addr, len, side) = (addr as u64, len as u64, dev.function().side);
        let serial = dev.card().config.serial.clone();
        let descriptor = Descriptor { kind, side, addr, len, access, serial: serial.clone(), remote };
        Self { kind, side, serial, bytes: descriptor.encode().into(), export }
    }

    /// Returns true if this is the export of this kind for the card and the side of `dev`.
    pub(crate) fn is_for(&self, kind: Kind, dev: &Dev) -> bool {
        self.kind == kind && self.side == dev.function().side && self.serial == dev.card().config.serial
    }

    /// Revokes the export. After a success, no importer accesses the memory.
    pub(crate) fn revoke(&self) -> Outcome {
        match self.export.as_ref().map(|export| export.revoke(REVOKE_WAITS)) {
            // A forked process cannot revoke the export of its parent, which revokes the export itself.
            None | Some(Ok(()) | Err(RemoteError::Unsupported { .. })) => Ok(()),
            Some(Err(_)) => Err(c::DOCA_ERROR_NOT_PERMITTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_SERIAL;

    fn descriptor() -> Descriptor {
        let (serial, remote) = ("SER1".to_owned(), vec![7; 56]);
        let (kind, side, addr) = (Kind::Pci, Side::Host, 0x7f00_0000_1000);
        Descriptor { kind, side, addr, len: 99, access: 0x21, serial, remote }
    }

    #[test]
    fn the_longest_is_as_short_as_real_ones() {
        let longest = Descriptor { serial: "S".repeat(MAX_SERIAL), ..descriptor() };
        assert!(longest.encode().len() <= 150);
        assert_eq!(Descriptor::parse(&longest.encode()), Some(longest));
    }

    #[test]
    fn an_encoded_value_parses_to_itself() {
        for kind in [Kind::Pci, Kind::Rdma, Kind::Event] {
            for side in [Side::Host, Side::Dpu] {
                let descriptor = Descriptor { kind, side, ..descriptor() };
                assert_eq!(Descriptor::parse(&descriptor.encode()), Some(descriptor));
            }
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
