//! The export descriptor: the name of the exporter's socket, and the secret token that identifies the export.
//!
//! A descriptor has a fixed size and is little-endian. Range and rights of the export are only in the
//! exporter's table, so a peer gains no rights by altering a descriptor.

use std::fmt;

use super::{BLOB_LEN, RemoteError};

const MAGIC: [u8; 4] = *b"DMRX";
const VERSION: u16 = 1;

/// Identifies one export of one process. A process that knows the token may import the memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Token(pub(super) [u8; 16]);

// Hides the token, because secrets must not appear in logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The parsed descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    /// The exporting process's id, in its own PID namespace.
    pub(super) pid: u32,
    /// The exporting process's effective user id, in its own user namespace.
    pub(super) uid: u32,
    /// The exporting process's start in clock ticks since boot, which distinguishes the process from a later
    /// process with the same id; 0 if unknown.
    pub(super) started: u64,
    /// Name of the exporting process's socket.
    pub(super) socket: [u8; 16],
    /// The token of the export.
    pub(super) token: Token,
}

impl Blob {
    pub(super) fn encode(&self) -> [u8; BLOB_LEN] {
        let mut out = [0; BLOB_LEN];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[6..8].copy_from_slice(&(BLOB_LEN as u16).to_le_bytes());
        out[8..12].copy_from_slice(&self.pid.to_le_bytes());
        out[12..16].copy_from_slice(&self.uid.to_le_bytes());
        out[16..24].copy_from_slice(&self.started.to_le_bytes());
        out[24..40].copy_from_slice(&self.socket);
        out[40..56].copy_from_slice(&self.token.0);
        out
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, RemoteError> {
        let malformed = |what| RemoteError::MalformedBlob { what };
        if !bytes.starts_with(&MAGIC) {
            return Err(malformed("it does not start with a descriptor's magic number"));
        }
        let version = bytes.get(4..6).ok_or(malformed("it is truncated"))?;
        let found = u16::from_le_bytes(take(version, 0));
        if found != VERSION {
            return Err(RemoteError::VersionMismatch { found, spoken: VERSION });
        }
        let bytes: &[u8; BLOB_LEN] = bytes.try_into().map_err(|_| malformed("its length is wrong"))?;
        if take::<2>(bytes, 6) != (BLOB_LEN as u16).to_le_bytes() {
            return Err(malformed("its length field is wrong"));
        }
        let pid = u32::from_le_bytes(take(bytes, 8));
        if pid == 0 {
            return Err(malformed("its process id is 0"));
        }
        Ok(Self {
            pid,
            uid: u32::from_le_bytes(take(bytes, 12)),
            started: u64::from_le_bytes(take(bytes, 16)),
            socket: take(bytes, 24),
            token: Token(take(bytes, 40)),
        })
    }
}

/// Returns `N` bytes from offset `at`. The callers have checked the length.
pub(super) fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(bytes: &[u8]) -> bool {
        matches!(Blob::parse(bytes), Err(RemoteError::MalformedBlob { .. }))
    }

    prop_compose! {
        fn blobs()(pid in 1u32.., uid: u32, started: u64, socket: [u8; 16], token: [u8; 16]) -> Blob {
            Blob { pid, uid, started, socket, token: Token(token) }
        }
    }

    proptest! {
        #[test]
        fn an_encoded_value_parses_to_itself(blob in blobs()) {
            prop_assert_eq!(Blob::parse(&blob.encode()).unwrap(), blob);
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..2 * BLOB_LEN)) {
            prop_assert!(refused(&bytes));
        }

        #[test]
        fn cut_or_extended_is_refused(blob in blobs(), len in 0..3 * BLOB_LEN) {
            prop_assume!(len != BLOB_LEN);
            let mut bytes = blob.encode().to_vec();
            bytes.resize(len, 0);
            prop_assert!(refused(&bytes));
        }

        #[test]
        fn altered_header_is_refused(blob in blobs(), at in 0usize..8, flip in 1u8..) {
            let mut bytes = blob.encode();
            bytes[at] ^= flip;
            let other_version = matches!(Blob::parse(&bytes), Err(RemoteError::VersionMismatch { spoken: 1, .. }));
            let expected = matches!(at, 4 | 5);
            prop_assert_eq!((other_version, refused(&bytes)), (expected, !expected));
        }
    }

    #[test]
    fn no_process_is_refused() {
        let blob = Blob { pid: 0, uid: 0, started: 0, socket: [0; 16], token: Token([0; 16]) };
        assert!(refused(&blob.encode()));
    }

    #[test]
    fn tokens_stay_out_of_logs() {
        let blob = Blob { pid: 1, uid: 2, started: 3, socket: [4; 16], token: Token([99; 16]) };
        assert!(!format!("{blob:?}").contains("99"));
    }
}
