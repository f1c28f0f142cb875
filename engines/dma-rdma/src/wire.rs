//! Messages between an importer and the exporter's service, and this backend's part of an export descriptor.
//! All messages have a fixed length; numbers are little-endian. Bytes are accepted only if encoding the
//! decoded message gives the same bytes.
//!
//! The messages are the request and the reply of `dma-handshake`, which encrypts them with the export's
//! secret.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use dma_core::Access;
use dma_handshake::{Protocol, Secret};

/// The version of the descriptor. The version of the messages is [`PROTOCOL`]'s.
pub(crate) const VERSION: u16 = 4;
const END: usize = 28;
const GRANT: usize = 36;
/// The length of a request in bytes.
pub(crate) const REQUEST: usize = 1 + END;
/// The length of a reply in bytes.
pub(crate) const REPLY: usize = 1 + GRANT + END;
/// The length of the backend's part of a descriptor in bytes.
pub(crate) const BLOB: usize = 2 + 2 + 16 + 16 + 32;
/// Maximum length in bytes of an export that an import accepts. No processor has a larger address space.
const LONGEST: u64 = 1 << 57;

pub(crate) const PROTOCOL: Protocol = Protocol {
    name: *b"DMARDMA",
    version: b'4',
    request_len: REQUEST,
    reply_len: REPLY,
    program: "an exporter or importer of dma-rdma",
};

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The number of the queue pair (`number`), and the number of the first packet that it sends (`psn`).
    pub(crate) number: u32,
    pub(crate) psn: u32,
    pub(crate) lid: u16,
    /// The code of the MTU.
    pub(crate) mtu: u8,
    /// Maximum number of concurrent reads that this end answers.
    pub(crate) reads: u8,
    /// The port's GID; all bytes are 0 if it has none.
    pub(crate) gid: [u8; 16],
}

/// The range and rights of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) rkey: u32,
    pub(crate) rights: Access,
    /// Address and key of the exporter's proof word, which is read after writes.
    pub(crate) proof_addr: u64,
    pub(crate) proof_rkey: u32,
}

/// The message of an importer. The message requests the grant and, if it contains an end, a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request(pub(crate) Option<End>);

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted(Grant, Option<End>),
    /// The exporter has no queue pair left.
    Exhausted,
}

/// The reason why bytes are not a valid descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignBlob {
    Length,
    Version(u16),
    /// The blob contains this address, on which no service can listen.
    Address(SocketAddr),
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

/// Concatenates the parts, and appends zeros up to `N` bytes.
fn padded<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
    out
}

impl End {
    fn encode(&self) -> [u8; END] {
        let Self { number, psn, lid, mtu, reads, gid } = self;
        padded(&[&number.to_le_bytes(), &psn.to_le_bytes(), &lid.to_le_bytes(), &[*mtu, *reads], gid])
    }

    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let number = u32::from_le_bytes(take(rest)?);
        let psn = u32::from_le_bytes(take(rest)?);
        let lid = u16::from_le_bytes(take(rest)?);
        let [mtu, reads] = take(rest)?;
        let gid = take(rest)?;
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
        padded(&[&[self.0.is_some().into()], &self.0.map_or([0; END], |end| end.encode())])
    }

    pub(crate) fn decode(bytes: &[u8; REQUEST]) -> Option<Self> {
        let rest = &mut &bytes[..];
        let request = match take(rest)? {
            [0] => Self(None),
            _ => Self(Some(End::decode(rest)?)),
        };
        (request.encode() == *bytes).then_some(request)
    }
}

impl Reply {
    pub(crate) fn encode(&self) -> [u8; REPLY] {
        match self {
            Self::Granted(grant, end) => {
                let end_bytes = end.map_or([0; END], |end| end.encode());
                padded(&[&[end.is_some().into()], &grant.encode(), &end_bytes])
            }
            Self::Exhausted => padded(&[&[2]]),
        }
    }

    pub(crate) fn decode(bytes: &[u8; REPLY]) -> Option<Self> {
        let rest = &mut &bytes[..];
        let reply = match take(rest)? {
            [0] => Self::Granted(Grant::decode(rest)?, None),
            [1] => Self::Granted(Grant::decode(rest)?, Some(End::decode(rest)?)),
            _ => Self::Exhausted,
        };
        (reply.encode() == *bytes).then_some(reply)
    }
}

/// Makes the backend's part of an export descriptor.
pub(crate) fn encode_blob(service: SocketAddr, secret: &Secret) -> [u8; BLOB] {
    let ip = match service.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    padded(&[&VERSION.to_le_bytes(), &service.port().to_le_bytes(), &ip.octets(), secret.id(), secret.key()])
}

/// Reads the backend's part of an export descriptor: the address of the exporter's service, and the secret.
pub(crate) fn decode_blob(bytes: &[u8]) -> Result<(SocketAddr, Secret), ForeignBlob> {
    let bytes: &[u8; BLOB] = bytes.try_into().map_err(|_| ForeignBlob::Length)?;
    let mut next = &bytes[..];
    let rest = &mut next;
    let parts = || Some((take(rest)?, take(rest)?, take(rest)?, take(rest)?, take(rest)?));
    let (version, port, ip, id, key) = { parts }().ok_or(ForeignBlob::Length)?;
    let version = u16::from_le_bytes(version);
    if version != VERSION {
        return Err(ForeignBlob::Version(version));
    }
    let ip = Ipv6Addr::from(ip).to_canonical();
    let service = SocketAddr::new(ip, u16::from_le_bytes(port));
    if service.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
        return Err(ForeignBlob::Address(service));
    }
    Ok((service, Secret::new(id, key)))
}
