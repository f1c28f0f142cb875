//! Tests the exchange between an importer and the exporter's service, also with peers that are not importers
//! or exporters.

use std::io::{ErrorKind as IoKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use dma_core::{Access, DmaEngineExt, Error, ErrorKind, Export, ExportDescriptor, Window};
use dma_handshake::{Answering, MAX_PENDING, Secret, Step};
use proptest::prelude::*;

use super::remote::{SOON, exported};
use crate::RdmaEngine;
use rdma_emu::Nic;

use crate::import::ask;
use crate::tests::open::Open as _;
use crate::wire::*;

/// An exporter: an engine with an export of 64 bytes.
pub(super) struct Exporter {
    pub(super) engine: RdmaEngine,
    _window: Window,
    pub(super) export: Export,
    pub(super) service: SocketAddr,
    pub(super) secret: Secret,
}

impl Exporter {
    pub(super) fn open() -> Self {
        let engine = Nic::default().open();
        let (window, export) = exported(&engine, 64, Access::READ);
        let (service, secret) = decode_blob(export.descriptor().native()).unwrap();
        Self { engine, _window: window, export, service, secret }
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.service).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Requests the grant, without a queue pair.
    pub(super) fn request(&self, stream: &mut TcpStream) -> Result<Reply, IoKind> {
        let request = Request(None).encode();
        let reply = dma_handshake::request(stream, &self.secret, &PROTOCOL, &request, || false);
        let (reply, _) = reply.map_err(|e| e.kind())?;
        Ok(Reply::decode(reply.first_chunk().unwrap()).unwrap())
    }

    pub(super) fn assert_serves(&self) {
        let reply = self.request(&mut self.connect());
        assert!(matches!(reply, Ok(Reply::Granted(_, None))), "{reply:?}");
    }

    /// Sends bytes, and then ends its side. Returns the answer.
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }
}

fn import(engine: &RdmaEngine, blob: &[u8]) -> Error {
    let descriptor = ExportDescriptor::new("rdma", Access::READ, 64, blob).unwrap();
    let error = engine.import(&descriptor).unwrap_err();
    assert!(!error.hint().is_empty(), "{error}");
    error
}

#[test]
fn a_wrong_secret_is_refused_by_its_kind() {
    let exporter = Exporter::open();
    let (id, key) = (*exporter.secret.id(), *exporter.secret.key());
    let differing = |mut bytes: [u8; 32]| {
        bytes[31] ^= 1;
        bytes
    };
    let wrong = Secret::new(id, differing(key));
    let error = import(&exporter.engine, &encode_blob(exporter.service, &wrong));
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let unknown = Secret::new([9; 16], key);
    let error = import(&exporter.engine, &encode_blob(exporter.service, &unknown));
    assert_eq!(error.kind(), ErrorKind::Revoked, "{error}");
    exporter.assert_serves();
}

/// All bytes that the exporter sent, and all bytes that the importer sent.
type Tapped = (Vec<u8>, Vec<u8>);

fn tap(service: SocketAddr) -> (SocketAddr, JoinHandle<Tapped>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (address, std::thread::spawn(move || pass_on(listener.accept().unwrap().0, service)))
}

/// Forwards all bytes of an exchange, and returns them.
pub(super) fn pass_on(importer: TcpStream, service: SocketAddr) -> Tapped {
    let exporter = TcpStream::connect(service).unwrap();
    let pass = |mut from: &TcpStream, mut to: &TcpStream| {
        let (mut all, mut bytes) = (Vec::new(), [0; 256]);
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            all.extend_from_slice(&bytes[..len]);
            // The other side may have closed the connection.
            let _ = to.write_all(&bytes[..len]);
        }
        let _ = to.shutdown(Shutdown::Write);
        all
    };
    std::thread::scope(|scope| {
        let of_importer = scope.spawn(|| pass(&importer, &exporter));
        (pass(&exporter, &importer), of_importer.join().unwrap())
    })
}

#[test]
fn an_exchange_is_not_readable_and_not_valid_again() {
    let exporter = Exporter::open();
    let (between, tapping) = tap(exporter.service);
    let (stream, grant, _) = ask(between, &exporter.secret, None, SOON).unwrap();
    drop(stream);
    let (of_exporter, of_importer) = tapping.join().unwrap();
    let grant = Reply::Granted(grant, None).encode();
    for sent in [&of_exporter, &of_importer] {
        // The key of the memory, its address, and the export's secret.
        for hidden in [&grant[..29], exporter.secret.key()] {
            assert!(
                !sent.windows(8).any(|part| hidden.windows(8).any(|hidden| part == hidden)),
                "{hidden:?} is readable"
            );
        }
    }
    // The exporter answers the first message, which is valid again, with a new key. The request is then
    // wrong.
    let answer = exporter.answer(&of_importer);
    assert_eq!(answer.len(), 8 + 1 + 32 + 16, "the exporter granted a recorded request");
    // An importer has a new key, so an exporter's recorded answers are not valid in another exchange.
    let error = import(&exporter.engine, &encode_blob(imposter(of_exporter), &exporter.secret));
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    exporter.assert_serves();
}

/// A program that knows the secret sends a request that no importer sends.
#[test]
fn requests_that_are_not_an_importers_get_no_grant() {
    let exporter = Exporter::open();
    for request in [[2; REQUEST], [0xff; REQUEST]] {
        let (mut stream, secret) = (exporter.connect(), &exporter.secret);
        let refused = dma_handshake::request(&mut stream, secret, &PROTOCOL, &request, || false);
        assert!(refused.is_err(), "{refused:?}");
    }
    exporter.assert_serves();
}

#[test]
fn other_versions_are_refused_by_their_kind() {
    let exporter = Exporter::open();
    // The exporter answers with its own version.
    let mut hello = [&b"DMARDMA9"[..], exporter.secret.id()].concat();
    hello.resize(100, 0);
    assert_eq!(exporter.answer(&hello), b"DMARDMA4");
    let error = import(&exporter.engine, &encode_blob(imposter(b"DMARDMA9".to_vec()), &exporter.secret));
    assert_eq!(error.kind(), ErrorKind::VersionMismatch, "{error}");
    let mut blob = encode_blob(exporter.service, &exporter.secret);
    blob[0] = 9;
    assert_eq!(import(&exporter.engine, &blob).kind(), ErrorKind::VersionMismatch);
}

#[test]
fn truncated_and_oversized_requests_get_no_queue_pair() {
    let nic = Nic::default();
    let engine = nic.open();
    let (_window, export) = exported(&engine, 64, Access::READ);
    let (service, secret) = decode_blob(export.descriptor().native()).unwrap();
    let exporter = Exporter { engine, _window, export, service, secret };
    let objects = nic.state().objects;
    for len in [0, 1, 7, 8, 24, 71] {
        let hello = [&b"DMARDMA4"[..], secret.id(), &[0; 48]].concat();
        assert!(exporter.answer(&hello[..len]).is_empty(), "the exporter answered {len} bytes");
    }
    // Additional bytes after a request for a queue pair make the exporter destroy the queue pair.
    let pair = crate::queue_pairs::QueuePairs::open(&exporter.engine.inner.device, 1).unwrap();
    let own = nic.state().objects;
    let end = End {
        number: 1,
        psn: 1,
        lid: 5,
        mtu: 3,
        reads: 1,
        gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1],
    };
    let mut stream = exporter.connect();
    let request = Request(Some(end)).encode();
    let (reply, _) = dma_handshake::request(&mut stream, &secret, &PROTOCOL, &request, || false).unwrap();
    let reply = Reply::decode(reply.first_chunk().unwrap());
    assert!(matches!(reply, Some(Reply::Granted(_, Some(_)))), "{reply:?}");
    assert!(nic.state().objects > own, "the exporter has made a queue pair");
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(&[0]).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    while nic.state().objects > own {
        std::thread::yield_now();
    }
    drop(pair);
    assert_eq!(nic.state().objects, objects);
    exporter.assert_serves();
}

#[test]
fn a_silent_peer_is_left() {
    let exporter = Exporter::open();
    let silent = || {
        let mut peer = exporter.connect();
        peer.write_all(b"DMAR").unwrap();
        peer
    };
    // Fewer silent peers are kept.
    let mut silent: Vec<_> = (0..=MAX_PENDING / 2).map(|_| silent()).collect();
    exporter.assert_serves();
    // This ends only when the exporter closes the connection, after it has said that it is busy.
    let mut said = Vec::new();
    let _ = silent[0].read_to_end(&mut said);
    assert!(!said.is_empty(), "the oldest peer is told");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = ask(listener.local_addr().unwrap(), &exporter.secret, None, Duration::from_millis(50));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
    assert!(!error.hint().is_empty(), "{error}");
}

/// Runs a fake exporter that sends these bytes.
fn imposter(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Read the importer's first message, so that closing the connection does not reset it.
        let _ = stream.read_exact(&mut [0; 72]);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    address
}

#[test]
fn answers_of_imposters_are_errors() {
    let secret = Secret::new([3; 16], [4; 32]);
    let answer = |rest: &[u8]| [b"DMARDMA4", rest].concat();
    for (bytes, kind) in [
        (vec![7; 100], ErrorKind::Malformed),
        (vec![7; 3], ErrorKind::Revoked),
        (answer(&[]), ErrorKind::Revoked),
        (answer(&[0; 3]), ErrorKind::Revoked),
        (answer(&[1]), ErrorKind::PermissionDenied),
        (answer(&[2]), ErrorKind::Revoked),
        (answer(&[4]), ErrorKind::Malformed),
        (answer(&[0; 49]), ErrorKind::PermissionDenied),
        (b"DMARDMA9".to_vec(), ErrorKind::VersionMismatch),
    ] {
        let service = imposter(bytes.clone());
        let error = ask(service, &secret, None, SOON).unwrap_err();
        assert_eq!(error.kind(), kind, "{bytes:?}: {error}");
        assert!(!error.hint().is_empty(), "{error}");
    }
}

#[test]
fn an_exporter_without_queue_pairs_is_told() {
    let secret = Secret::new([3; 16], [4; 32]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = listener.local_addr().unwrap();
    let exporter = std::thread::spawn(move || {
        let mut caller = Answering::new(listener.accept().unwrap().0);
        loop {
            match caller.step(&PROTOCOL, |_| Some(secret)).unwrap() {
                Step::Pending(more) => caller = more,
                Step::Requested(requested) => {
                    return drop(requested.reply(&Reply::Exhausted.encode()).unwrap());
                }
            }
        }
    });
    let error = ask(service, &secret, None, SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfResources, "{error}");
    assert!(error.hint().contains("close") && error.is_by_peer(), "{error}");
    exporter.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Foreign bytes get no grant, and the service continues.
    #[test]
    fn foreign_bytes_at_the_service_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), starts: bool) {
        let exporter = Exporter::open();
        let start = if starts { [&b"DMARDMA4"[..], exporter.secret.id()].concat() } else { Vec::new() };
        let answer = exporter.answer(&[start, bytes].concat());
        prop_assert!(answer.is_empty() || (starts && answer == b"DMARDMA4\x01"), "{answer:?}");
        exporter.assert_serves();
    }

    /// Importing random blobs of the right length, with the right address, fails.
    #[test]
    fn random_descriptors_are_refused(id: [u8; 16], key: [u8; 32], bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let exporter = Exporter::open();
        let random = encode_blob(exporter.service, &Secret::new(id, key));
        prop_assert_eq!(import(&exporter.engine, &random).kind(), ErrorKind::Revoked);
        if bytes.len() != BLOB {
            prop_assert_eq!(import(&exporter.engine, &bytes).kind(), ErrorKind::Malformed);
        }
    }
}
