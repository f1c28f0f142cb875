//! Messages between an importer and the exporter's service, and the part of an export descriptor that is this
//! backend's. All have a fixed length; numbers are little-endian.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use dma_core::{Access, ErrorKind, Result};

use crate::error::error;
use crate::verbs::ibv_gid;

/// The version of the messages and of the descriptor.
const VERSION: u16 = 1;
const MAGIC: [u8; 4] = *b"DMAR";
const HEADER: usize = 8;
const END: usize = 28;
const GRANT: usize = 36;
/// The length of a request in bytes.
pub(crate) const REQUEST: usize = HEADER + 16 + END;
/// The length of a reply in bytes.
pub(crate) const REPLY: usize = HEADER + GRANT + END;
const BLOB: usize = 2 + 2 + 16 + 16;
/// The longest range, in bytes, that an import believes: no processor has longer addresses.
const LONGEST: u64 = 1 << 57;

/// The secret of an export.
pub(crate) type Token = [u8; 16];

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The number of the queue pair, and its first packet's.
    pub(crate) number: u32,
    pub(crate) psn: u32,
    pub(crate) lid: u16,
    /// The code of the MTU.
    pub(crate) mtu: u8,
    /// Reads that it answers at once.
    pub(crate) reads: u8,
    /// All 0 for none.
    pub(crate) gid: ibv_gid,
}

/// The range and rights of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) rkey: u32,
    pub(crate) rights: Access,
    /// A word of the exporter to be read behind writes, and its key.
    pub(crate) proof_addr: u64,
    pub(crate) proof_rkey: u32,
}

/// A message of an importer: asks for the grant, and for a queue pair if it has one itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) token: Token,
    pub(crate) end: Option<End>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted(Grant, Option<End>),
    /// The service speaks another version.
    OtherVersion,
    /// There is no such export, or not any more.
    Unknown,
    /// The exporter has no queue pair left.
    Exhausted,
}

/// Bytes that are no message of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Bytes,
    Version,
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

/// A copy of the bytes with zeros behind, up to `N`.
fn padded<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
    out
}

fn header(code: u16) -> [u8; HEADER] {
    padded(&[&MAGIC, &VERSION.to_le_bytes(), &code.to_le_bytes()])
}

/// Reads the header, and returns its code.
fn read_header(rest: &mut &[u8]) -> Result<u16, Foreign> {
    if take(rest) != Some(MAGIC) {
        return Err(Foreign::Bytes);
    }
    let version = take(rest).ok_or(Foreign::Bytes)?;
    let code = take(rest).ok_or(Foreign::Bytes)?;
    if u16::from_le_bytes(version) != VERSION { Err(Foreign::Version) } else { Ok(u16::from_le_bytes(code)) }
}

impl End {
    fn encode(&self) -> [u8; END] {
        let Self { number, psn, lid, mtu, reads, gid } = self;
        padded(&[&number.to_le_bytes(), &psn.to_le_bytes(), &lid.to_le_bytes(), &[*mtu, *reads], &gid.raw])
    }

    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let number = u32::from_le_bytes(take(rest)?);
        let psn = u32::from_le_bytes(take(rest)?);
        let lid = u16::from_le_bytes(take(rest)?);
        let [mtu, reads] = take(rest)?;
        let gid = ibv_gid { raw: take(rest)? };
        let valid = number >> 24 == 0 && psn >> 24 == 0 && (1..=5).contains(&mtu) && reads > 0;
        valid.then_some(Self { number, psn, lid, mtu, reads, gid })
    }
}

impl Grant {
    fn encode(&self) -> [u8; GRANT] {
        let Self { addr, len, rkey, rights, proof_addr, proof_rkey } = self;
        padded(&[
            &addr.to_le_bytes(),
            &len.to_le_bytes(),
            &rkey.to_le_bytes(),
            &rights.bits().to_le_bytes(),
            &proof_addr.to_le_bytes(),
            &proof_rkey.to_le_bytes(),
        ])
    }

    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let addr = u64::from_le_bytes(take(rest)?);
        let len = u64::from_le_bytes(take(rest)?);
        let rkey = u32::from_le_bytes(take(rest)?);
        let rights = Access::from_bits(u32::from_le_bytes(take(rest)?))?;
        let proof_addr = u64::from_le_bytes(take(rest)?);
        let proof_rkey = u32::from_le_bytes(take(rest)?);
        let valid = (1..=LONGEST).contains(&len) && addr.checked_add(len).is_some() && !rights.is_empty();
        valid.then_some(Self { addr, len, rkey, rights, proof_addr, proof_rkey })
    }
}

impl Request {
    pub(crate) fn encode(&self) -> [u8; REQUEST] {
        let end = self.end.map_or([0; END], |end| end.encode());
        padded(&[&header(u16::from(self.end.is_some())), &self.token, &end])
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, Foreign> {
        let rest = &mut bytes;
        let code = read_header(rest)?;
        let token = take(rest).ok_or(Foreign::Bytes)?;
        let end = match code {
            0 => None,
            1 => Some(End::decode(rest).ok_or(Foreign::Bytes)?),
            _ => return Err(Foreign::Bytes),
        };
        Ok(Self { token, end })
    }
}

impl Reply {
    pub(crate) fn encode(&self) -> [u8; REPLY] {
        match self {
            Self::Granted(grant, end) => {
                let code = u16::from(end.is_some());
                padded(&[&header(code), &grant.encode(), &end.map_or([0; END], |end| end.encode())])
            }
            Self::OtherVersion => padded(&[&header(2)]),
            Self::Unknown => padded(&[&header(3)]),
            Self::Exhausted => padded(&[&header(4)]),
        }
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, Foreign> {
        let rest = &mut bytes;
        let code = read_header(rest)?;
        match code {
            0 | 1 => {
                let grant = Grant::decode(rest).ok_or(Foreign::Bytes)?;
                let end = if code == 1 { Some(End::decode(rest).ok_or(Foreign::Bytes)?) } else { None };
                Ok(Self::Granted(grant, end))
            }
            2 => Ok(Self::OtherVersion),
            3 => Ok(Self::Unknown),
            4 => Ok(Self::Exhausted),
            _ => Err(Foreign::Bytes),
        }
    }
}

/// Makes the backend's part of an export descriptor.
pub(crate) fn encode_blob(service: SocketAddr, token: &Token) -> Vec<u8> {
    let ip = match service.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    [&VERSION.to_le_bytes()[..], &service.port().to_le_bytes(), &ip.octets(), token].concat()
}

/// Reads the backend's part of an export descriptor: the address of the exporter's service, and the secret.
///
/// # Errors
///
/// `VersionMismatch`; `Malformed`.
pub(crate) fn decode_blob(bytes: &[u8]) -> Result<(SocketAddr, Token)> {
    let malformed = |what: String| {
        error(ErrorKind::Malformed, what)
            .with_hint("pass on the bytes of an export of this backend unchanged")
    };
    let mut rest = bytes;
    let parts = (bytes.len() == BLOB)
        .then(|| Some((take(&mut rest)?, take(&mut rest)?, take(&mut rest)?, take(&mut rest)?)));
    let Some(Some((version, port, ip, token))) = parts else {
        return Err(malformed(format!("{} bytes, where an RDMA export has {BLOB}", bytes.len())));
    };
    let version = u16::from_le_bytes(version);
    if version != VERSION {
        return Err(error(ErrorKind::VersionMismatch, format!("an RDMA export of version {version}"))
            .with_numbers(version.into(), VERSION.into())
            .with_hint("use the same release of this library on both sides"));
    }
    let (port, ip) = (u16::from_le_bytes(port), Ipv6Addr::from(ip).to_canonical());
    if port == 0 || ip.is_unspecified() || ip.is_multicast() {
        return Err(malformed(format!("{ip} port {port} is no address of a service")));
    }
    Ok((SocketAddr::new(ip, port), token))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends() -> impl Strategy<Value = End> {
        (0..1_u32 << 24, 0..1_u32 << 24, any::<u16>(), 1..=5_u8, 1..=255_u8, any::<[u8; 16]>()).prop_map(
            |(number, psn, lid, mtu, reads, raw)| End { number, psn, lid, mtu, reads, gid: ibv_gid { raw } },
        )
    }

    proptest! {
        #[test]
        fn messages_round_trip(token: Token, end in prop::option::of(ends()), addr in 0..1_u64 << 60,
            len in 1..=LONGEST, keys: (u32, u32), rights in 1..4_u32, proof_addr: u64) {
            let request = Request { token, end };
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
            let rights = Access::from_bits(rights).unwrap();
            let grant = Grant { addr, len, rkey: keys.0, rights, proof_addr, proof_rkey: keys.1 };
            for reply in [Reply::Granted(grant, end), Reply::OtherVersion, Reply::Unknown, Reply::Exhausted] {
                prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
            }
        }

        /// Bytes are refused, or are the encoding of what is read of them.
        #[test]
        fn foreign_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..100), code in 0..6_u16) {
            prop_assert_eq!(Request::decode(&bytes), Err(Foreign::Bytes));
            prop_assert_eq!(Reply::decode(&bytes), Err(Foreign::Bytes));
            let ours = [&header(code)[..], &bytes].concat();
            if let Ok(request) = Request::decode(&ours) {
                let used = HEADER + 16 + if request.end.is_some() { END } else { 0 };
                prop_assert_eq!(&request.encode()[..used], &ours[..used]);
            }
            if let Ok(Reply::Granted(grant, end)) = Reply::decode(&ours) {
                let used = HEADER + GRANT + if end.is_some() { END } else { 0 };
                prop_assert_eq!(&Reply::Granted(grant, end).encode()[..used], &ours[..used]);
            }
        }

        #[test]
        fn descriptors_round_trip_and_random_ones_are_refused(v6: bool, host in 1..200_u8, port in 1_u16..,
            token: Token, bytes in prop::collection::vec(any::<u8>(), 0..BLOB)) {
            let ip = if v6 { Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()).into() } else { IpAddr::from([10, 0, 0, host]) };
            let service = SocketAddr::new(ip, port);
            prop_assert_eq!(decode_blob(&encode_blob(service, &token)).unwrap(), (service, token));
            prop_assert_eq!(decode_blob(&bytes).unwrap_err().kind(), ErrorKind::Malformed);
        }
    }

    #[test]
    fn other_versions_are_told() {
        let mut request = Request { token: [1; 16], end: None }.encode();
        request[4] = 9;
        assert_eq!(Request::decode(&request), Err(Foreign::Version));
        let mut blob = encode_blob("10.0.0.1:5".parse().unwrap(), &[1; 16]);
        blob[0] = 9;
        assert_eq!(decode_blob(&blob).unwrap_err().kind(), ErrorKind::VersionMismatch);
        for (nowhere, why) in
            [("10.0.0.1:0", "no port"), ("0.0.0.0:5", "no host"), ("224.0.0.1:5", "no single host")]
        {
            let blob = encode_blob(nowhere.parse().unwrap(), &[1; 16]);
            assert_eq!(decode_blob(&blob).unwrap_err().kind(), ErrorKind::Malformed, "{why}");
        }
    }
}
