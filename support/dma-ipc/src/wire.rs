//! The protocol: one message in each direction, of fixed size, little-endian.

use dma_core::Access;

use super::Grant;
use super::blob::{Token, take};

pub(super) const HELLO_LEN: usize = 24;
pub(super) const REPLY_LEN: usize = 48;

const HELLO: [u8; 8] = *b"DMRXhel1";
const REPLY: [u8; 8] = *b"DMRXrep1";

/// Encodes the importer's request.
pub(super) fn encode_hello(token: Token) -> [u8; HELLO_LEN] {
    let mut out = [0; HELLO_LEN];
    out[..8].copy_from_slice(&HELLO);
    out[8..].copy_from_slice(&token.0);
    out
}

pub(super) fn parse_hello(bytes: &[u8]) -> Option<Token> {
    let bytes: &[u8; HELLO_LEN] = bytes.try_into().ok()?;
    (take(bytes, 0) == HELLO).then(|| Token(take(bytes, 8)))
}

/// The exporter's answer. Two file descriptors accompany `Granted`: the memory or the process's
/// address space, and the page with the lease word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Granted(Granted),
    /// The export does not exist.
    Unknown,
    /// The export has the maximum number of imports.
    Full,
    /// The importer runs as another user.
    ForeignUser,
    /// The importer's message was not understood.
    BadHello,
    /// The exporter closes this connection because too many connections have sent no request.
    Busy,
    /// A system call of the exporter failed, with this errno.
    Os(i32),
}

/// A grant, and the properties of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) grant: Grant,
    /// Start of the grant in the file.
    pub(super) offset: u64,
    /// Page size of the file in bytes.
    pub(super) page_size: u64,
    pub(super) kind: FileKind,
}

/// The kind of a grant's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// A file that cannot shrink, for mapping.
    Shared,
    /// The exporter's address space, which is read and written by address.
    Process,
}

impl Reply {
    pub(super) fn encode(self) -> [u8; REPLY_LEN] {
        let mut out = [0; REPLY_LEN];
        out[..8].copy_from_slice(&REPLY);
        let (status, detail) = match self {
            Self::Granted(Granted { grant, kind, .. }) => {
                let status = if kind == FileKind::Shared { 0 } else { 6 };
                (status, grant.rights.bits().cast_signed())
            }
            Self::Unknown => (1, 0),
            Self::Full => (2, 0),
            Self::ForeignUser => (3, 0),
            Self::BadHello => (4, 0),
            Self::Os(errno) => (5, errno),
            Self::Busy => (7, 0),
        };
        out[8..12].copy_from_slice(&u32::to_le_bytes(status));
        out[12..16].copy_from_slice(&detail.to_le_bytes());
        if let Self::Granted(Granted { grant, offset, page_size, .. }) = self {
            out[16..24].copy_from_slice(&grant.address.to_le_bytes());
            out[24..32].copy_from_slice(&grant.len.to_le_bytes());
            out[32..40].copy_from_slice(&offset.to_le_bytes());
            out[40..48].copy_from_slice(&page_size.to_le_bytes());
        }
        out
    }

    /// Parses an answer. Returns `None` if the bytes are not a valid answer. A parsed grant has at
    /// least one byte and one right, and computing its end does not overflow.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REPLY_LEN] = bytes.try_into().ok()?;
        if take(bytes, 0) != REPLY {
            return None;
        }
        let detail = i32::from_le_bytes(take(bytes, 12));
        Some(match u32::from_le_bytes(take(bytes, 8)) {
            status @ (0 | 6) => {
                let rights = Access::from_bits(detail.cast_unsigned())?;
                let [address, len, offset, page_size] =
                    [16, 24, 32, 40].map(|at| u64::from_le_bytes(take(bytes, at)));
                let end = offset.checked_add(len)?.checked_next_multiple_of(page_size.max(1))?;
                let usable = len > 0 && !rights.is_empty() && page_size.is_power_of_two();
                if !usable || end > isize::MAX as u64 {
                    return None;
                }
                let kind = if status == 0 { FileKind::Shared } else { FileKind::Process };
                Self::Granted(Granted { grant: Grant { address, len, rights }, offset, page_size, kind })
            }
            1 => Self::Unknown,
            2 => Self::Full,
            3 => Self::ForeignUser,
            4 => Self::BadHello,
            5 => Self::Os(detail),
            7 => Self::Busy,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn grants()(
            address: u64, len in 1..1u64 << 40, offset in 0..1u64 << 40, rights in 1u32..4, shift in 0u32..31,
            process: bool,
        ) -> Granted {
            let rights = Access::from_bits_truncate(rights);
            let kind = if process { FileKind::Process } else { FileKind::Shared };
            Granted { grant: Grant { address, len, rights }, offset, page_size: 1 << shift, kind }
        }
    }

    proptest! {
        #[test]
        fn an_encoded_value_parses_to_itself(granted in grants(), errno: i32, token: [u8; 16]) {
            for reply in [Reply::Granted(granted), Reply::Unknown, Reply::Full, Reply::ForeignUser,
                Reply::BadHello, Reply::Busy, Reply::Os(errno)] {
                prop_assert_eq!(Reply::parse(&reply.encode()), Some(reply));
            }
            prop_assert_eq!(parse_hello(&encode_hello(Token(token))), Some(Token(token)));
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(Reply::parse(&bytes), None);
            prop_assert_eq!(parse_hello(&bytes), None);
        }

        #[test]
        fn every_parsed_message_is_usable(mut bytes in any::<[u8; 32]>(), rights: u8) {
            let mut reply = Reply::Unknown.encode();
            reply[8] = if rights >= 128 { 6 } else { 0 };
            reply[12] = rights % 8;
            bytes[24..].rotate_left(usize::from(rights % 8));
            reply[16..].copy_from_slice(&bytes);
            if let Some(Reply::Granted(Granted { grant, offset, page_size, .. })) = Reply::parse(&reply) {
                prop_assert!(grant.len > 0 && !grant.rights.is_empty() && page_size.is_power_of_two());
                prop_assert!(offset + grant.len <= isize::MAX as u64);
            }
        }
    }

    #[test]
    fn unusable_grants_are_refused() {
        let grant = Grant { address: 1, len: 2, rights: Access::READ };
        let good = Granted { grant, offset: 3, page_size: 4096, kind: FileKind::Shared };
        let refused = |granted| Reply::parse(&Reply::Granted(granted).encode()).is_none();
        assert!(!refused(good));
        assert!(refused(Granted { grant: Grant { len: 0, ..good.grant }, ..good }));
        assert!(refused(Granted { grant: Grant { len: u64::MAX, ..good.grant }, ..good }));
        assert!(refused(Granted { grant: Grant { rights: Access::empty(), ..good.grant }, ..good }));
        assert!(refused(Granted { offset: u64::MAX - 1, ..good }));
        assert!(refused(Granted { page_size: 0, ..good }));
        assert!(refused(Granted { page_size: 4095, ..good }));
    }
}
