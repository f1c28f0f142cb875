//! Tests the messages between an importer and an exporter.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use dma_core::Access;
use dma_handshake::Secret;
use proptest::prelude::*;

use crate::wire::*;

fn ends() -> impl Strategy<Value = End> {
    (0..1_u32 << 24, 0..1_u32 << 24, any::<u16>(), 1..=5_u8, 1..=255_u8, any::<[u8; 16]>())
        .prop_map(|(number, psn, lid, mtu, reads, gid)| End { number, psn, lid, mtu, reads, gid })
}

fn secrets() -> impl Strategy<Value = Secret> {
    any::<([u8; 16], [u8; 32])>().prop_map(|(id, key)| Secret::new(id, key))
}

fn replies() -> impl Strategy<Value = Reply> {
    let grant =
        (0..1_u64 << 60, 1..=1_u64 << 57, any::<(u32, u32, u64)>(), 1..4_u32, prop::option::of(ends()))
            .prop_map(|(addr, len, (rkey, proof_rkey, proof_addr), rights, end)| {
                let rights = Access::from_bits(rights).unwrap();
                Reply::Granted(Grant { addr, len, rkey, rights, proof_addr, proof_rkey }, end)
            });
    prop_oneof![3 => grant, 1 => Just(Reply::Exhausted)]
}

proptest! {
    #[test]
    fn messages_round_trip(end in prop::option::of(ends()), reply in replies()) {
        prop_assert_eq!(Request::decode(&Request(end).encode()), Some(Request(end)));
        prop_assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }

    /// Bytes are refused, unless encoding the decoded message gives the same bytes.
    #[test]
    fn foreign_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), REPLY), code in 0..8_u8) {
        let mut bytes: [u8; REPLY] = bytes.try_into().unwrap();
        bytes[0] = code;
        if let Some(reply) = Reply::decode(&bytes) {
            prop_assert!(code < 2);
            prop_assert_eq!(reply.encode(), bytes);
        }
        let request = bytes.first_chunk().unwrap();
        if let Some(decoded) = Request::decode(request) {
            prop_assert_eq!(code, 1);
            prop_assert_eq!(decoded.encode(), *request);
        }
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
fn descriptors_of_other_versions_and_without_an_address_are_refused() {
    let secret = Secret::new([1; 16], [2; 32]);
    for version in [0, VERSION as u8 - 1, VERSION as u8 + 1, 255] {
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
