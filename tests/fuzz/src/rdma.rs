//! Fuzzes the messages between an importer and an exporter of RDMA memory, and the export descriptor.

#[path = "../../../engines/dma-rdma/src/wire.rs"]
mod wire;

use wire::{BLOB, ForeignBlob, PROTOCOL, Reply, Request, VERSION, decode_blob, encode_blob};

/// Decodes a request, a reply and the backend's part of a descriptor, which must encode to the same bytes.
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
    if let Some(bytes) = input.first_chunk::<{ PROTOCOL.request_len }>()
        && let Some(request) = Request::decode(bytes)
    {
        assert_eq!(request.encode(), *bytes, "decoding and encoding changed the bytes");
    }
    if let Some(bytes) = input.first_chunk::<{ PROTOCOL.reply_len }>()
        && let Some(reply) = Reply::decode(bytes)
    {
        assert_eq!(reply.encode(), *bytes, "decoding and encoding changed the bytes");
    }
}
