//! Exports of memory, and their descriptors.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | mark |
//! | 8..10 | version |
//! | 10..12 | kind: 1 over PCI, 2 over a network |
//! | 12..16 | length of the whole |
//! | 16..24 | first address |
//! | 24..32 | length of the range |
//! | 32..36 | access rights |
//! | 36..40 | length of the card's serial number |
//! | 40.. | that, and over PCI what `dma_ipc` needs |
//! | last 4 | checksum of all before |
//!
//! All numbers are little-endian.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use dma_core::Access;
use dma_ipc::{Export, RemoteError};

use crate::c_abi::{Outcome, c};
use crate::dev::Dev;
use crate::log::sdk_log;

const MARK: [u8; 8] = *b"DOCAEMUX";
const VERSION: u16 = 1;
/// The longest descriptor.
const MAX: usize = 4096;
/// Time limit for importers' copies when a map stops.
const REVOKE_WAITS: Duration = Duration::from_secs(5);

/// Transport of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Way {
    Pci = 1,
    Rdma = 2,
}

/// Contents of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) way: Way,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) access: u32,
    pub(super) serial: String,
    /// For `dma_ipc`.
    pub(super) remote: Vec<u8>,
}

impl Descriptor {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MARK);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.way as u16).to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.addr.to_le_bytes());
        out.extend(self.len.to_le_bytes());
        out.extend(self.access.to_le_bytes());
        out.extend((self.serial.len() as u32).to_le_bytes());
        out.extend(self.serial.as_bytes());
        out.extend(&self.remote);
        let whole = out.len() as u32 + 4;
        out[12..16].copy_from_slice(&whole.to_le_bytes());
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// `None` if the bytes are no whole descriptor.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX || !bytes.starts_with(&MARK) {
            return None;
        }
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        let u16_at = |at: usize| Some(u16::from_le_bytes(body.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
        let sound = u32::from_le_bytes(*sum) == crc32fast::hash(body)
            && u16_at(8)? == VERSION
            && u32_at(12)? as usize == bytes.len();
        let way = match u16_at(10)? {
            1 => Way::Pci,
            2 => Way::Rdma,
            _ => return None,
        };
        let rest = body.get(40..)?;
        let (serial, remote) = rest.split_at_checked(u32_at(36)? as usize)?;
        let serial = String::from_utf8(serial.to_vec()).ok()?;
        let (addr, len, access) = (u64_at(16)?, u64_at(24)?, u32_at(32)?);
        sound.then(|| Self { way, addr, len, access, serial, remote: remote.to_vec() })
    }
}

/// A map that was exported with a device.
pub(super) struct Exported {
    pub(super) dev: Arc<Dev>,
    pub(super) way: Way,
    /// The descriptor, which C may read until the map is stopped.
    pub(super) bytes: Box<[u8]>,
    export: Option<Export>,
}

impl Exported {
    /// Exports `len` bytes, which are `here` and have the address `addr` in the descriptor.
    pub(super) fn new(
        dev: Arc<Dev>,
        way: Way,
        (addr, len): (usize, usize),
        here: NonNull<u8>,
        access: u32,
    ) -> Outcome<Self> {
        let export = match way {
            Way::Rdma => None,
            Way::Pci => {
                let writable = access & c::DOCA_ACCESS_FLAG_PCI_READ_WRITE != 0;
                let rights = if writable { Access::READ | Access::WRITE } else { Access::READ };
                // SAFETY: the program promises, by exporting the map, that the memory is there until it is
                // stopped, which revokes the export first; and whoever it passes the descriptor to may touch
                // it.
                let export = unsafe { Export::of_process_memory(here, len, rights) };
                Some(export.map_err(|error| {
                    sdk_log!(ERROR, "memory cannot be exported: {error}");
                    match error {
                        RemoteError::NotMapped { .. } => c::DOCA_ERROR_NOT_PERMITTED,
                        RemoteError::OutOfMemory { .. } => c::DOCA_ERROR_NO_MEMORY,
                        _ => c::DOCA_ERROR_DRIVER,
                    }
                })?)
            }
        };
        let descriptor = Descriptor {
            way,
            addr: addr as u64,
            len: len as u64,
            access,
            serial: dev.card().config.serial.clone(),
            remote: export.as_ref().map(|export| export.blob().to_vec()).unwrap_or_default(),
        };
        Ok(Self { dev, way, bytes: descriptor.encode().into(), export })
    }

    /// Revokes the export. On return no importer accesses the memory.
    pub(super) fn revoke(&self) -> Outcome {
        let Some(export) = &self.export else { return Ok(()) };
        match export.revoke(REVOKE_WAITS) {
            Ok(()) => Ok(()),
            // An export of the parent process, which revokes it.
            Err(RemoteError::Unsupported { .. }) => Ok(()),
            Err(_) => Err(c::DOCA_ERROR_NOT_PERMITTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        let (serial, remote) = ("SER1".to_owned(), vec![7; 56]);
        Descriptor { way: Way::Pci, addr: 0x7f00_0000_1000, len: 99, access: 0x21, serial, remote }
    }

    #[test]
    fn an_encoded_value_parses_to_itself() {
        assert_eq!(Descriptor::parse(&descriptor().encode()), Some(descriptor()));
        let rdma = Descriptor { way: Way::Rdma, remote: Vec::new(), ..descriptor() };
        assert_eq!(Descriptor::parse(&rdma.encode()), Some(rdma));
    }

    #[test]
    fn cut_extended_or_altered_is_none() {
        let whole = descriptor().encode();
        for len in 0..whole.len() {
            assert_eq!(Descriptor::parse(&whole[..len]), None, "{len}");
        }
        assert_eq!(Descriptor::parse(&[&whole[..], &[0]].concat()), None);
        for at in 0..whole.len() {
            let mut altered = whole.clone();
            altered[at] ^= 1;
            assert_eq!(Descriptor::parse(&altered), None, "{at}");
        }
    }
}
