//! The descriptor by which another process finds an event.

/// First bytes of a descriptor.
const MARK: [u8; 8] = *b"DOCAEMUE";
const VERSION: u16 = 1;
/// The length without the card's serial number: mark, version, process, descriptor, nonce, length of the
/// serial, checksum.
const FIXED: usize = 8 + 2 + 4 + 4 + 16 + 2 + 4;

/// Contents of a descriptor. All numbers are little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// The process that has the memory, and under which number.
    pub(super) pid: u32,
    pub(super) fd: u32,
    /// Copy of the nonce in the memory, which detects reused process and descriptor numbers.
    pub(super) nonce: [u8; 16],
    /// The card that it was exported through.
    pub(super) serial: String,
}

impl Descriptor {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED + self.serial.len());
        out.extend(MARK);
        out.extend(VERSION.to_le_bytes());
        out.extend(self.pid.to_le_bytes());
        out.extend(self.fd.to_le_bytes());
        out.extend(self.nonce);
        out.extend((self.serial.len() as u16).to_le_bytes());
        out.extend(self.serial.as_bytes());
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// `None` if the bytes are no whole descriptor.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        let sound = u32::from_le_bytes(*sum) == crc32fast::hash(body);
        let rest = body.strip_prefix(&MARK)?;
        let (version, rest) = rest.split_first_chunk()?;
        let (pid, rest) = rest.split_first_chunk()?;
        let (fd, rest) = rest.split_first_chunk()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (length, serial) = rest.split_first_chunk()?;
        let sound = sound
            && u16::from_le_bytes(*version) == VERSION
            && usize::from(u16::from_le_bytes(*length)) == serial.len();
        let serial = str::from_utf8(serial).ok()?.to_owned();
        let (pid, fd) = (u32::from_le_bytes(*pid), u32::from_le_bytes(*fd));
        sound.then_some(Self { pid, fd, nonce: *nonce, serial })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_descriptor_is_noticed() {
        let descriptor =
            Descriptor { pid: 4711, fd: 9, nonce: *b"0123456789abcdef", serial: "MT123".to_owned() };
        let bytes = descriptor.encode();
        assert_eq!(bytes.len(), FIXED + 5);
        assert_eq!(Descriptor::parse(&bytes), Some(descriptor));
        for at in 0..bytes.len() {
            assert_eq!(Descriptor::parse(&bytes[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut altered = bytes.clone();
                altered[at] ^= 1 << bit;
                assert_eq!(Descriptor::parse(&altered), None, "bit {bit} of byte {at}");
            }
        }
        let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(Descriptor::parse(&longer), None);
    }
}
