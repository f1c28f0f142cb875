//! Parcels of the fast path's socket: consumers that come and go, posted buffers, messages.

/// Bytes of immediate data at most.
pub(super) const IMMEDIATE: usize = 32;
/// Buffers in a list at most.
pub(super) const PIECES: usize = 64;
/// Bytes of a parcel at most.
pub(super) const PARCEL: usize = 64 + PIECES * 16;

/// Name of a consumer from a start to the next stop. Later ones of the same number have other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) id: u32,
    pub(super) start: u32,
}

/// A piece of a peer's memory: address and length.
pub(super) type Piece = (u64, u64);

/// Immediate data of a message. The program gets its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Reads numbers from a parcel.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn name(&mut self) -> Option<Name> {
        Some(Name { id: self.u32()?, start: self.u32()? })
    }
}

impl Parcel {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        let mut begin = |kind: u32, name: &Name| {
            for number in [kind, name.id, name.start] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        };
        match self {
            Self::Came { name, immediate, addr, len, descriptor } => {
                begin(1, name);
                bytes.extend_from_slice(&immediate.to_le_bytes());
                bytes.extend_from_slice(&addr.to_le_bytes());
                bytes.extend_from_slice(&len.to_le_bytes());
                bytes.extend_from_slice(descriptor);
            }
            Self::Welcome { name } => begin(2, name),
            Self::Posted { name, slot, room } => {
                begin(3, name);
                bytes.extend_from_slice(&slot.to_le_bytes());
                for (addr, len) in room {
                    bytes.extend_from_slice(&addr.to_le_bytes());
                    bytes.extend_from_slice(&len.to_le_bytes());
                }
            }
            Self::Filled { name, slot, producer, len, immediate } => {
                begin(4, name);
                bytes.extend_from_slice(&slot.to_le_bytes());
                bytes.extend_from_slice(&producer.to_le_bytes());
                bytes.extend_from_slice(&len.to_le_bytes());
                bytes.extend_from_slice(&immediate.bytes[..immediate.len as usize]);
            }
            Self::Went { name } => begin(5, name),
        }
        bytes
    }

    /// `None` if the bytes are no parcel.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let (kind, name) = (from.u32()?, from.name()?);
        let parcel = match kind {
            1 => {
                let (immediate, addr, len) = (from.u32()?, from.u64()?, from.u64()?);
                let descriptor = std::mem::take(&mut from.0).to_vec();
                Self::Came { name, immediate, addr, len, descriptor }
            }
            2 => Self::Welcome { name },
            3 => {
                let slot = from.u32()?;
                let mut room = Vec::with_capacity(from.0.len() / 16);
                while !from.0.is_empty() {
                    room.push((from.u64()?, from.u64()?));
                }
                Self::Posted { name, slot, room }
            }
            4 => {
                let (slot, producer, len) = (from.u32()?, from.u32()?, from.u64()?);
                let immediate = Immediate::new(std::mem::take(&mut from.0))?;
                Self::Filled { name, slot, producer, len, immediate }
            }
            5 => Self::Went { name },
            _ => return None,
        };
        from.0.is_empty().then_some(parcel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_come_back_as_they_were() {
        let name = Name { id: 3, start: 9 };
        let immediate = Immediate::new(b"now").unwrap();
        let room = vec![(0x7f00_0000_1000, 64); PIECES];
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
            for end in 0..12 {
                assert_eq!(Parcel::parse(&bytes[..end]), None, "{parcel:?} cut to {end}");
            }
        }
        assert_eq!(Parcel::parse(&[0; 12]), None);
        let long = [&Parcel::Welcome { name }.to_bytes()[..], &[0]].concat();
        assert_eq!(Parcel::parse(&long), None);
        assert_eq!(Immediate::new(&[0; IMMEDIATE + 1]), None);
    }
}
