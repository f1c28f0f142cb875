//! Tests the messages between an importer and an exporter.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use dma_core::Access;
use dma_handshake::PROOF_LEN;
use proptest::prelude::*;

use crate::secret::{Nonce, Secret};
use crate::wire::*;

/// The length of a request before its proof, in bytes.
const ASKED: usize = REQUEST - PROOF_LEN;

fn ends() -> impl Strategy<Value = End> {
    (0..1_u32 << 24, 0..1_u32 << 24, any::<u16>(), 1..=5_u8, 1..=255_u8, any::<[u8; 16]>())
        .prop_map(|(number, psn, lid, mtu, reads, gid)| End { number, psn, lid, mtu, reads, gid })
}

fn secrets() -> impl Strategy<Value = Secret> {
    any::<([u8; 16], [u8; 32])>().prop_map(|(id, key)| Secret { id, key })
}

fn exchanges() -> impl Strategy<Value = (Secret, Challenge, Request)> {
    (secrets(), any::<(Nonce, Nonce)>(), prop::option::of(ends())).prop_map(
        |(secret, (theirs, nonce), end)| (secret, Challenge(theirs), Request { id: secret.id, nonce, end }),
    )
}

fn replies() -> impl Strategy<Value = Reply> {
    let grant =
        (0..1_u64 << 60, 1..=1_u64 << 57, any::<(u32, u32, u64)>(), 1..4_u32, prop::option::of(ends()))
            .prop_map(|(addr, len, (rkey, proof_rkey, proof_addr), rights, end)| {
                let rights = Access::from_bits(rights).unwrap();
                Reply::Granted(Grant { addr, len, rkey, rights, proof_addr, proof_rkey }, end)
            });
    let refusals = [Reply::OtherVersion, Reply::Unknown, Reply::Exhausted, Reply::Unproven, Reply::Busy];
    prop_oneof![3 => grant, 1 => prop::sample::select(refusals.to_vec())]
}

proptest! {
    #[test]
    fn messages_round_trip((secret, challenge, request) in exchanges(), reply in replies()) {
        prop_assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
        let (read, proof) = Request::decode(&request.encode(&secret, &challenge)).unwrap();
        prop_assert_eq!(read, request);
        prop_assert!(read.is_proven(&secret, &challenge, &proof));
        let bytes = reply.encode(&secret, &challenge, &request);
        prop_assert_eq!(Reply::decode(&bytes, &secret, &challenge, &request), Ok(reply));
    }

    /// Messages with a changed bit, and proofs of other exchanges and secrets, are refused.
    #[test]
    fn a_changed_message_is_refused((secret, challenge, request) in exchanges(), reply in replies(),
        other in exchanges(), at in 0..8 * REQUEST) {
        let mut bytes = request.encode(&secret, &challenge);
        bytes[at / 8] ^= 1 << (at % 8);
        if let Ok((changed, proof)) = Request::decode(&bytes) {
            prop_assert!(!changed.is_proven(&secret, &challenge, &proof));
        }
        let (_, proof) = Request::decode(&request.encode(&secret, &challenge)).unwrap();
        prop_assert!(!request.is_proven(&other.0, &challenge, &proof));
        prop_assert!(!request.is_proven(&secret, &other.1, &proof));

        let sent = reply.encode(&secret, &challenge, &request);
        let at = at % (8 * REPLY);
        let mut bytes = sent;
        bytes[at / 8] ^= 1 << (at % 8);
        let changed = Reply::decode(&bytes, &secret, &challenge, &request);
        prop_assert!(!matches!(changed, Ok(Reply::Granted(..))), "{changed:?}");
        if let Reply::Granted(..) = reply {
            for (secret, challenge, request) in
                [(other.0, challenge, request), (secret, other.1, request), (secret, challenge, other.2)]
            {
                let decoded = Reply::decode(&sent, &secret, &challenge, &request);
                prop_assert_eq!(decoded, Err(Foreign::Proof));
            }
            prop_assert_eq!(
                Reply::decode(&reply.encode_refusal(), &secret, &challenge, &request),
                Err(Foreign::Proof)
            );
        }
    }

    /// Bytes are refused, unless encoding the decoded message gives the same bytes.
    #[test]
    fn foreign_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), REQUEST), code in 0..8_u8,
        (secret, challenge, request) in exchanges()) {
        let mut ours: [u8; REQUEST] = bytes.try_into().unwrap();
        prop_assert_eq!(Request::decode(&ours), Err(Foreign::Bytes));
        ours[..8].copy_from_slice(&challenge.encode()[..8]);
        ours[6] = code;
        if let Ok((request, _)) = Request::decode(&ours) {
            prop_assert!(ours.starts_with(&request.encode(&secret, &challenge)[..ASKED]));
        }
        let decoded = Reply::decode(ours.first_chunk().unwrap(), &secret, &challenge, &request);
        prop_assert!(!matches!(decoded, Ok(Reply::Granted(..))));
        let decoded = Challenge::decode(ours.first_chunk().unwrap());
        prop_assert_eq!(decoded.is_ok(), code == 0);
    }

    #[test]
    fn descriptors_round_trip_and_random_ones_are_refused(v6: bool, host in 1..200_u8, port in 1_u16..,
        secret in secrets(), bytes in prop::collection::vec(any::<u8>(), 0..BLOB)) {
        let ip = if v6 { Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()).into() } else { IpAddr::from([10, 0, 0, host]) };
        let service = SocketAddr::new(ip, port);
        prop_assert_eq!(decode_blob(&encode_blob(service, &secret)), Ok((service, secret)));
        prop_assert_eq!(decode_blob(&bytes), Err(ForeignBlob::Length));
        prop_assert_eq!(decode_blob(&[&encode_blob(service, &secret)[..], &[0]].concat()), Err(ForeignBlob::Length));
    }
}

#[test]
fn other_versions_are_told() {
    let secret = Secret { id: [1; 16], key: [2; 32] };
    let (challenge, request) = (Challenge([3; 32]), Request { id: secret.id, nonce: [4; 32], end: None });
    for version in [0, VERSION as u8 - 1, VERSION as u8 + 1, 255] {
        let mut bytes = challenge.encode();
        bytes[4] = version;
        assert_eq!(Challenge::decode(&bytes), Err(Foreign::Version));
        let mut bytes = request.encode(&secret, &challenge);
        bytes[4] = version;
        assert_eq!(Request::decode(&bytes), Err(Foreign::Version));
        let mut bytes = Reply::Unknown.encode_refusal();
        bytes[4] = version;
        assert_eq!(Reply::decode(&bytes, &secret, &challenge, &request), Err(Foreign::Version));
        let mut blob = encode_blob("10.0.0.1:5".parse().unwrap(), &secret);
        blob[0] = version;
        assert_eq!(decode_blob(&blob), Err(ForeignBlob::Version(version.into())));
    }
    for (nowhere, why) in
        [("10.0.0.1:0", "no port"), ("0.0.0.0:5", "no host"), ("224.0.0.1:5", "no single host")]
    {
        let nowhere = nowhere.parse().unwrap();
        assert_eq!(decode_blob(&encode_blob(nowhere, &secret)), Err(ForeignBlob::Address(nowhere)), "{why}");
    }
}
