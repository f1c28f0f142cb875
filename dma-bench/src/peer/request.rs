//! Requests for memory of another process, as messages.

use dma::ErrorKind;

/// The version of the requests. Sides of different versions refuse each other.
pub(super) const VERSION: u16 = 1;
/// Maximum number of bytes of a message. It is sufficient for an export descriptor and for one read
/// or write.
pub(super) const MAX_MESSAGE: usize = 128 << 10;
/// Maximum number of bytes of a read or write.
pub(super) const MAX_PIECE: usize = 64 << 10;
/// The kinds of errors that an answer can contain, indexed by their number. All other kinds are
/// sent as `Os`.
pub(super) const ERROR_KINDS: [ErrorKind; 6] = [
    ErrorKind::Os,
    ErrorKind::OutOfResources,
    ErrorKind::Unsupported,
    ErrorKind::VersionMismatch,
    ErrorKind::OutOfRange,
    ErrorKind::PermissionDenied,
];

/// A request to the process that exports the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Open { version: u16, len: u64 },
    Read { at: u64, len: u32 },
    Write { at: u64, bytes: &'a [u8] },
}

impl<'a> Request<'a> {
    pub(super) fn encode(self) -> Vec<u8> {
        match self {
            Self::Open { version, len } => [&b"o"[..], &version.to_le_bytes(), &len.to_le_bytes()].concat(),
            Self::Read { at, len } => [&b"r"[..], &at.to_le_bytes(), &len.to_le_bytes()].concat(),
            Self::Write { at, bytes } => [&b"w"[..], &at.to_le_bytes(), bytes].concat(),
        }
    }

    /// Decodes a message of [`encode`](Self::encode); returns `None` for all other bytes.
    pub(super) fn decode(message: &'a [u8]) -> Option<Self> {
        let (kind, fields) = message.split_first()?;
        Some(match kind {
            b'o' => {
                let (version, len) = fields.split_first_chunk()?;
                let len = u64::from_le_bytes(len.try_into().ok()?);
                Self::Open { version: u16::from_le_bytes(*version), len }
            }
            b'r' => {
                let (at, len) = fields.split_first_chunk()?;
                let len = u32::from_le_bytes(len.try_into().ok()?);
                Self::Read { at: u64::from_le_bytes(*at), len }
            }
            b'w' => {
                let (at, bytes) = fields.split_first_chunk()?;
                Self::Write { at: u64::from_le_bytes(*at), bytes }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_message_is_a_request_or_none(message in proptest::collection::vec(any::<u8>(), 0..40), kind in 0..3_usize) {
            for message in [&message[..], &[&[b"orw"[kind]], &message[..]].concat()] {
                if let Some(request) = Request::decode(message) {
                    prop_assert_eq!(request.encode(), message);
                }
            }
        }
    }
}
