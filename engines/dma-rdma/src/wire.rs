//! Messages between an importer and the exporter's service, and this backend's part of an export descriptor.
//! All messages have a fixed length; numbers are little-endian. Bytes are accepted only if encoding the
//! decoded message gives the same bytes.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use dma_core::Access;
use dma_handshake::{PROOF_LEN, Side};

use super::secret::{Id, Nonce, Secret};

/// The version of the messages and of the descriptor.
pub(crate) const VERSION: u16 = 3;
const MAGIC: [u8; 4] = *b"DMAR";
const HEADER: usize = 8;
const END: usize = 28;
const GRANT: usize = 36;
/// The length of a request before its proof, in bytes.
const ASKED: usize = HEADER + 16 + 32 + END;
/// The length of a reply before its proof, in bytes.
const ANSWERED: usize = HEADER + GRANT + END;
/// The length of a challenge in bytes.
pub(crate) const CHALLENGE: usize = HEADER + 32;
/// The length of a request in bytes.
pub(crate) const REQUEST: usize = ASKED + PROOF_LEN;
/// The length of a reply in bytes.
pub(crate) const REPLY: usize = ANSWERED + PROOF_LEN;
/// The length of the backend's part of a descriptor in bytes.
pub(crate) const BLOB: usize = 2 + 2 + 16 + 16 + 32;
/// Maximum length in bytes of an export that an import accepts. No processor has a larger address space.
const LONGEST: u64 = 1 << 57;

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

/// The exporter's first message, which all proofs cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Challenge(pub(crate) Nonce);

/// The message of an importer. The message requests the grant and, if `end` is set, a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) id: Id,
    pub(crate) nonce: Nonce,
    pub(crate) end: Option<End>,
}

/// The answer to a request. A grant has a proof. A refusal has none, because the two sides may not share a
/// secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted(Grant, Option<End>),
    /// The service speaks another version.
    OtherVersion,
    /// The export does not exist, or no longer exists.
    Unknown,
    /// The exporter has no queue pair left.
    Exhausted,
    /// The request does not prove that its sender knows the secret.
    Unproven,
    /// The service closes this connection because too many are open.
    Busy,
}

/// The reason why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Bytes,
    Version,
    /// The sender of the grant does not know the secret.
    Proof,
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

impl Challenge {
    pub(crate) fn encode(&self) -> [u8; CHALLENGE] {
        padded(&[&header(0), &self.0])
    }

    pub(crate) fn decode(bytes: &[u8; CHALLENGE]) -> Result<Self, Foreign> {
        let rest = &mut &bytes[..];
        let _code = read_header(rest)?;
        let challenge = Self(take(rest).ok_or(Foreign::Bytes)?);
        if challenge.encode() == *bytes { Ok(challenge) } else { Err(Foreign::Bytes) }
    }
}

impl Request {
    fn asked(&self) -> [u8; ASKED] {
        let end = self.end.map_or([0; END], |end| end.encode());
        padded(&[&header(u16::from(self.end.is_some())), &self.id, &self.nonce, &end])
    }

    /// Encodes the request, with the proof that its sender knows the secret.
    pub(crate) fn encode(&self, secret: &Secret, challenge: &Challenge) -> [u8; REQUEST] {
        let asked = self.asked();
        padded(&[&asked, secret.proof(Side::Caller, &[&challenge.0, &asked]).as_bytes()])
    }

    /// Reads a request and its proof. Does not check the proof: see [`Request::is_proven`].
    pub(crate) fn decode(bytes: &[u8; REQUEST]) -> Result<(Self, [u8; PROOF_LEN]), Foreign> {
        let rest = &mut &bytes[..];
        let code = read_header(rest)?;
        let (id, nonce) = (take(rest).ok_or(Foreign::Bytes)?, take(rest).ok_or(Foreign::Bytes)?);
        let end = if code == 0 { None } else { Some(End::decode(rest).ok_or(Foreign::Bytes)?) };
        let request = Self { id, nonce, end };
        let proof = bytes.last_chunk().ok_or(Foreign::Bytes)?;
        if bytes.starts_with(&request.asked()) { Ok((request, *proof)) } else { Err(Foreign::Bytes) }
    }

    /// Returns true if the proof shows that the sender knows the secret.
    pub(crate) fn is_proven(&self, secret: &Secret, challenge: &Challenge, proof: &[u8; PROOF_LEN]) -> bool {
        secret.proof(Side::Caller, &[&challenge.0, &self.asked()]) == *proof
    }
}

impl Reply {
    fn answered(&self) -> [u8; ANSWERED] {
        match self {
            Self::Granted(grant, end) => {
                let code = u16::from(end.is_some());
                padded(&[&header(code), &grant.encode(), &end.map_or([0; END], |end| end.encode())])
            }
            Self::OtherVersion => padded(&[&header(2)]),
            Self::Unknown => padded(&[&header(3)]),
            Self::Exhausted => padded(&[&header(4)]),
            Self::Unproven => padded(&[&header(5)]),
            Self::Busy => padded(&[&header(6)]),
        }
    }

    /// Encodes a refusal, which has no proof.
    pub(crate) fn encode_refusal(&self) -> [u8; REPLY] {
        padded(&[&self.answered()])
    }

    /// Encodes the answer to a request, with the proof that its sender knows the secret.
    pub(crate) fn encode(&self, secret: &Secret, challenge: &Challenge, request: &Request) -> [u8; REPLY] {
        let answered = self.answered();
        let proof = secret.proof(Side::Listener, &[&challenge.0, &request.asked(), &answered]);
        padded(&[&answered, proof.as_bytes()])
    }

    /// Reads the answer to a request. A grant must be proven.
    pub(crate) fn decode(
        bytes: &[u8; REPLY],
        secret: &Secret,
        challenge: &Challenge,
        request: &Request,
    ) -> Result<Self, Foreign> {
        let rest = &mut &bytes[..];
        let reply = match read_header(rest)? {
            code @ (0 | 1) => {
                let grant = Grant::decode(rest).ok_or(Foreign::Bytes)?;
                let end = if code == 1 { Some(End::decode(rest).ok_or(Foreign::Bytes)?) } else { None };
                Self::Granted(grant, end)
            }
            2 => Self::OtherVersion,
            3 => Self::Unknown,
            4 => Self::Exhausted,
            5 => Self::Unproven,
            6 => Self::Busy,
            _ => return Err(Foreign::Bytes),
        };
        let answered = reply.answered();
        if !bytes.starts_with(&answered) {
            return Err(Foreign::Bytes);
        }
        let Self::Granted(..) = reply else { return Ok(reply) };
        let proof: &[u8; PROOF_LEN] = bytes.last_chunk().ok_or(Foreign::Bytes)?;
        if secret.proof(Side::Listener, &[&challenge.0, &request.asked(), &answered]) == *proof {
            Ok(reply)
        } else {
            Err(Foreign::Proof)
        }
    }
}

/// Makes the backend's part of an export descriptor.
pub(crate) fn encode_blob(service: SocketAddr, secret: &Secret) -> [u8; BLOB] {
    let ip = match service.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    padded(&[&VERSION.to_le_bytes(), &service.port().to_le_bytes(), &ip.octets(), &secret.id, &secret.key])
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
    Ok((service, Secret { id, key }))
}
