//! Fuzzes the messages between an importer and an exporter of RDMA memory, and the export descriptor.

#[path = "../../../engines/dma-rdma/src/secret.rs"]
mod secret;
#[path = "../../../engines/dma-rdma/src/wire.rs"]
mod wire;

use dma_core::Access;
use dma_handshake::PROOF_LEN;

use secret::Secret;
use wire::{
    BLOB, Challenge, End, ForeignBlob, Grant, REPLY, REQUEST, Reply, Request, VERSION, decode_blob,
    encode_blob,
};

const SECRET: Secret = Secret { id: [1; 16], key: [2; 32] };
const CHALLENGE: Challenge = Challenge([3; 32]);
const END: End = End { number: 17, psn: 9, lid: 0, mtu: 3, reads: 16, gid: [4; 16] };
const REQUESTED: Request = Request { id: SECRET.id, nonce: [5; 32], end: Some(END) };

/// Decodes a message of either side and the backend's part of a descriptor, which must encode to the same
/// bytes.
///
/// Only a message made with the secret may be accepted as proven: neither the input, nor a valid message in
/// which the bits of the input are flipped, may be accepted.
///
/// # Panics
///
/// If a decoder violates its documentation.
pub fn rdma_exchange(input: &[u8]) {
    match decode_blob(input) {
        Ok((service, secret)) => {
            assert_eq!(encode_blob(service, &secret)[..], *input, "decoding and encoding changed the bytes");
            assert!(
                service.port() != 0 && !service.ip().is_unspecified(),
                "{service} is not a valid address"
            );
        }
        Err(ForeignBlob::Length) => {
            assert!(input.len() != BLOB, "a descriptor of the right length was refused for its length")
        }
        Err(ForeignBlob::Version(version)) => assert!(version != VERSION, "this version"),
        Err(ForeignBlob::Address(service)) => assert!(service.port() == 0 || !service.ip().is_loopback()),
    }
    if let Some(bytes) = input.first_chunk()
        && let Ok(challenge) = Challenge::decode(bytes)
    {
        assert_eq!(challenge.encode(), *bytes, "decoding and encoding changed the bytes");
    }
    if let Some(bytes) = input.first_chunk() {
        request(bytes, false);
    }
    if let Some(bytes) = input.first_chunk() {
        reply(bytes, false);
    }
    let grant =
        Grant { addr: 1 << 20, len: 4096, rkey: 6, rights: Access::READ, proof_addr: 7, proof_rkey: 8 };
    request(&differing(REQUESTED.encode(&SECRET, &CHALLENGE), input), is_same::<REQUEST>(input));
    let granted = Reply::Granted(grant, Some(END)).encode(&SECRET, &CHALLENGE, &REQUESTED);
    reply(&differing(granted, input), is_same::<REPLY>(input));
    reply(&differing(Reply::Unproven.encode_refusal(), input), false);
}

/// Returns the message with the bits of `by` flipped.
fn differing<const N: usize>(mut message: [u8; N], by: &[u8]) -> [u8; N] {
    message.iter_mut().zip(by).for_each(|(byte, change)| *byte ^= change);
    message
}

/// Returns true if `by` flips no bit of a message.
fn is_same<const N: usize>(by: &[u8]) -> bool {
    by.iter().take(N).all(|byte| *byte == 0)
}

/// Decodes a request, which must be accepted as proven if and only if `right`.
fn request(bytes: &[u8; REQUEST], right: bool) {
    let decoded = Request::decode(bytes);
    if let Ok((request, proof)) = &decoded {
        let again = request.encode(&SECRET, &CHALLENGE);
        assert!(bytes.starts_with(&again[..REQUEST - PROOF_LEN]), "decoding and encoding changed the bytes");
        assert_eq!(request.is_proven(&SECRET, &CHALLENGE, proof), right, "{request:?}");
    }
    assert!(decoded.is_ok() || !right, "{decoded:?}");
}

/// Decodes a reply, which must be accepted as a grant if and only if `right`.
fn reply(bytes: &[u8; REPLY], right: bool) {
    let decoded = Reply::decode(bytes, &SECRET, &CHALLENGE, &REQUESTED);
    assert_eq!(matches!(decoded, Ok(Reply::Granted(..))), right, "{decoded:?}");
}
