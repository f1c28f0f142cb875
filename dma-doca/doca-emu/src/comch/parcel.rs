//! Parcels of the fast path's socket: consumers that come and go, posted buffers, messages.

use serde::{Deserialize, Serialize};

/// Bytes of immediate data at most.
pub(super) const IMMEDIATE: usize = 32;
/// Buffers in a list at most.
pub(super) const PIECES: usize = 64;
/// Bytes of a parcel at most, in JSON.
pub(super) const PARCEL: usize = 512 + PIECES * 44;

/// Name of a consumer from a start to the next stop. Later ones of the same number have other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Name {
    pub(super) id: u32,
    pub(super) start: u32,
}

/// A piece of a peer's memory: address and length.
pub(super) type Piece = (u64, u64);

/// Immediate data of a message. The program gets its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub(super) struct Immediate {
    pub(super) bytes: [u8; IMMEDIATE],
    pub(super) len: u32,
}

impl Immediate {
    /// `None` if that is too long.
    pub(super) fn new(from: &[u8]) -> Option<Self> {
        let mut immediate = Self { len: from.len() as u32, ..Self::default() };
        immediate.bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(immediate)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Parcel {
    /// A consumer came, with the descriptor of its memory.
    Came { name: Name, immediate: u32, addr: u64, len: u64, descriptor: Vec<u8> },
    /// Answer to `Came`.
    Welcome { name: Name },
    /// A buffer waits for a message.
    Posted { name: Name, slot: u32, room: Vec<Piece> },
    /// A message lies in a buffer.
    Filled { name: Name, slot: u32, producer: u32, len: u64, immediate: Immediate },
    /// A consumer went.
    Went { name: Name },
}

impl Parcel {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `None` if the bytes are no parcel.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let parcel = serde_json::from_slice(bytes).ok()?;
        match parcel {
            Self::Filled { immediate, .. } if immediate.len > IMMEDIATE as u32 => None,
            parcel => Some(parcel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_come_back_as_they_were() {
        let name = Name { id: 3, start: 9 };
        let immediate = Immediate::new(b"now").unwrap();
        let room = vec![(u64::MAX, u64::MAX); PIECES];
        for parcel in [
            Parcel::Came { name, immediate: 32, addr: 1 << 40, len: 4096, descriptor: vec![7; 56] },
            Parcel::Welcome { name },
            Parcel::Posted { name, slot: 5, room: Vec::new() },
            Parcel::Posted { name, slot: 5, room },
            Parcel::Filled { name, slot: 5, producer: 2, len: 1 << 33, immediate },
            Parcel::Went { name },
        ] {
            let bytes = parcel.to_bytes();
            assert!(bytes.len() <= PARCEL, "{parcel:?}");
            assert_eq!(Parcel::parse(&bytes), Some(parcel.clone()));
            for end in 0..bytes.len() {
                assert_eq!(Parcel::parse(&bytes[..end]), None, "{parcel:?} cut to {end}");
            }
        }
        let long = [&Parcel::Welcome { name }.to_bytes()[..], &[0]].concat();
        assert_eq!(Parcel::parse(&long), None);
        let slot = Immediate { bytes: [0; IMMEDIATE], len: IMMEDIATE as u32 + 1 };
        let filled = Parcel::Filled { name, slot: 5, producer: 2, len: 1, immediate: slot };
        assert_eq!(Parcel::parse(&filled.to_bytes()), None);
        assert_eq!(Immediate::new(&[0; IMMEDIATE + 1]), None);
    }
}
