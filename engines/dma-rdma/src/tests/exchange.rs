//! Tests the exchange between an importer and the exporter's service, also with peers that are not importers
//! or exporters.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use dma_core::{Access, DmaEngineExt, Error, ErrorKind, Export, ExportDescriptor, Window};
use proptest::prelude::*;

use super::remote::{SOON, exported};
use crate::RdmaEngine;
use rdma_emu::Nic;

use crate::import::ask;
use crate::secret::Secret;
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

    pub(super) fn request(&self) -> Request {
        Request { id: self.secret.id, nonce: [7; 32], end: None }
    }

    /// Connects, and returns the challenge.
    pub(super) fn connect(&self) -> (TcpStream, Challenge) {
        let mut stream = TcpStream::connect(self.service).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut challenge = [0; CHALLENGE];
        stream.read_exact(&mut challenge).unwrap();
        (stream, Challenge::decode(&challenge).unwrap())
    }

    /// Sends bytes that depend on the challenge, and then ends its side. Returns the challenge and the
    /// answer.
    fn answer(&self, bytes: impl FnOnce(&Challenge) -> Vec<u8>) -> (Challenge, Vec<u8>) {
        let (mut stream, challenge) = self.connect();
        let _ = stream.write_all(&bytes(&challenge));
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        (challenge, answer)
    }

    fn assert_serves(&self) {
        let (challenge, answer) = self.answer(|challenge| self.valid(challenge));
        let reply = Reply::decode(&answer.try_into().unwrap(), &self.secret, &challenge, &self.request());
        assert!(matches!(reply, Ok(Reply::Granted(_, None))), "{reply:?}");
    }

    pub(super) fn valid(&self, challenge: &Challenge) -> Vec<u8> {
        self.request().encode(&self.secret, challenge).to_vec()
    }

    fn refusal(&self, bytes: impl FnOnce(&Challenge) -> Vec<u8>) -> Reply {
        let (challenge, answer) = self.answer(bytes);
        Reply::decode(&answer.try_into().unwrap(), &self.secret, &challenge, &self.request()).unwrap()
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
    let mut wrong = exporter.secret;
    wrong.key[31] ^= 1;
    let error = import(&exporter.engine, &encode_blob(exporter.service, &wrong));
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let mut unknown = exporter.secret;
    unknown.id[0] ^= 1;
    let error = import(&exporter.engine, &encode_blob(exporter.service, &unknown));
    assert_eq!(error.kind(), ErrorKind::Revoked, "{error}");
    let proven_for_another = |challenge: &Challenge| {
        let request = Request { id: unknown.id, ..exporter.request() };
        let mut bytes = request.encode(&unknown, challenge);
        bytes[8..24].copy_from_slice(&exporter.secret.id);
        bytes.to_vec()
    };
    assert_eq!(exporter.refusal(proven_for_another), Reply::Unproven);
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
pub(super) fn pass_on(mut importer: TcpStream, service: SocketAddr) -> Tapped {
    let mut exporter = TcpStream::connect(service).unwrap();
    let (mut challenge, mut request, mut reply) = ([0; CHALLENGE], [0; REQUEST], [0; REPLY]);
    exporter.read_exact(&mut challenge).unwrap();
    importer.write_all(&challenge).unwrap();
    importer.read_exact(&mut request).unwrap();
    exporter.write_all(&request).unwrap();
    exporter.read_exact(&mut reply).unwrap();
    importer.write_all(&reply).unwrap();
    ([&challenge[..], &reply].concat(), request.to_vec())
}

#[test]
fn a_replayed_exchange_is_refused() {
    let exporter = Exporter::open();
    let (between, tapping) = tap(exporter.service);
    ask(between, &exporter.secret, None, SOON).unwrap();
    let (of_exporter, of_importer) = tapping.join().unwrap();
    let key = exporter.secret.key;
    for sent in [&of_exporter, &of_importer] {
        assert!(
            !sent.windows(8).any(|part| key.windows(8).any(|secret| part == secret)),
            "the secret must not be sent"
        );
    }
    assert_eq!(exporter.refusal(|_| of_importer.clone()), Reply::Unproven);
    // An importer sends its own random bytes, so an exporter's recorded answers are not valid in another
    // exchange.
    let (challenge, reply) = of_exporter.split_at(CHALLENGE);
    let error = import(
        &exporter.engine,
        &encode_blob(imposter(challenge.to_vec(), reply.to_vec()), &exporter.secret),
    );
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    exporter.assert_serves();
}

#[test]
fn other_versions_are_refused_by_their_kind() {
    let exporter = Exporter::open();
    let other = |challenge: &Challenge| {
        let mut bytes = exporter.valid(challenge);
        bytes[4] = 9;
        bytes
    };
    assert_eq!(exporter.refusal(other), Reply::OtherVersion);
    let mut newer = Challenge([1; 32]).encode();
    newer[4] = 9;
    let error = import(&exporter.engine, &encode_blob(imposter(newer.to_vec(), vec![]), &exporter.secret));
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
    for len in [0, 1, 7, 8, REQUEST - 1] {
        let (_, answer) = exporter.answer(|challenge| exporter.valid(challenge)[..len].to_vec());
        assert!(answer.is_empty(), "the exporter answered {len} bytes");
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
    let (mut stream, challenge) = exporter.connect();
    let request = Request { end: Some(end), ..exporter.request() };
    stream.write_all(&request.encode(&secret, &challenge)).unwrap();
    let mut reply = [0; REPLY];
    stream.read_exact(&mut reply).unwrap();
    let reply = Reply::decode(&reply, &secret, &challenge, &request);
    assert!(matches!(reply, Ok(Reply::Granted(_, Some(_)))), "{reply:?}");
    assert!(nic.state().objects > own, "the exporter has made a queue pair");
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
    let (mut silent, _) = exporter.connect();
    silent.write_all(b"DMAR").unwrap();
    exporter.assert_serves();
    // This ends only when the exporter closes the connection.
    assert_eq!(silent.read_to_end(&mut Vec::new()).unwrap_or(0), 0);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = ask(listener.local_addr().unwrap(), &exporter.secret, None, Duration::from_millis(50));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
    assert!(!error.hint().is_empty(), "{error}");
}

/// Runs a fake exporter that answers with these bytes, before and after a request.
fn imposter(before: Vec<u8>, after: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&before);
        let _ = stream.read_exact(&mut [0; REQUEST]);
        let _ = stream.write_all(&after);
    });
    address
}

#[test]
fn answers_of_imposters_are_errors() {
    let engine = Nic::default().open();
    let secret = Secret { id: [3; 16], key: [4; 32] };
    let challenge = Challenge([1; 32]).encode().to_vec();
    let (mut newer, mut grant) = (Reply::Unknown.encode_refusal(), [0; REPLY]);
    newer[4] = 9;
    grant[..8].copy_from_slice(&challenge[..8]);
    // The grant covers 64 bytes, for reading.
    (grant[16], grant[28]) = (64, 1);
    for (before, after, kind) in [
        (vec![7; CHALLENGE], vec![], ErrorKind::Malformed),
        (vec![7; 3], vec![], ErrorKind::DeviceFault),
        (challenge.clone(), vec![7; REPLY], ErrorKind::Malformed),
        (challenge.clone(), vec![7; 3], ErrorKind::Revoked),
        (challenge.clone(), newer.to_vec(), ErrorKind::VersionMismatch),
        (challenge.clone(), Reply::OtherVersion.encode_refusal().to_vec(), ErrorKind::VersionMismatch),
        (challenge.clone(), Reply::Exhausted.encode_refusal().to_vec(), ErrorKind::OutOfResources),
        (challenge.clone(), Reply::Unproven.encode_refusal().to_vec(), ErrorKind::PermissionDenied),
        (challenge.clone(), grant.to_vec(), ErrorKind::PermissionDenied),
    ] {
        let error = import(&engine, &encode_blob(imposter(before, after.clone()), &secret));
        assert_eq!(error.kind(), kind, "{after:?}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Foreign bytes get no answer, and the service continues.
    #[test]
    fn foreign_bytes_at_the_service_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), proven: bool) {
        let exporter = Exporter::open();
        let (_, answer) = exporter.answer(|challenge| {
            // A request that is valid except for the queue pair, whose bytes are random.
            let start = if proven { exporter.valid(challenge)[..56].to_vec() } else { Vec::new() };
            [start, bytes].concat()
        });
        let refusal = answer.get(6).copied();
        prop_assert!(refusal.is_none() || (proven && refusal == Some(5)), "{answer:?}");
        exporter.assert_serves();
    }

    /// Importing random blobs of the right length, with the right address, fails.
    #[test]
    fn random_descriptors_are_refused(id: [u8; 16], key: [u8; 32], bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let exporter = Exporter::open();
        let random = encode_blob(exporter.service, &Secret { id, key });
        prop_assert_eq!(import(&exporter.engine, &random).kind(), ErrorKind::Revoked);
        if bytes.len() != BLOB {
            prop_assert_eq!(import(&exporter.engine, &bytes).kind(), ErrorKind::Malformed);
        }
    }
}
