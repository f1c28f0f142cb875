//! Fuzzes the handshake: a program without the secret connects to, or listens for, a program with the secret.

use std::cell::Cell;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::LazyLock;

use dma_handshake::{Protocol, Secret, answer, call};

const PROTOCOL: Protocol =
    Protocol { name: *b"dmafuzz", version: b'2', request_len: 0, reply_len: 0, program: "fuzzer" };
/// Length of name and version in bytes.
const HEADER: usize = 8;
/// Length of the caller's first message in bytes: name, version, id, public key and tag.
const HELLO: usize = HEADER + 16 + 48;
/// Length of the listener's first message in bytes: name, version, status, public key and tag.
const ANSWER: usize = HEADER + 1 + 48;

static SECRET: LazyLock<Secret> = LazyLock::new(|| {
    let file = tempfile::NamedTempFile::new().expect("a file that only its owner can read");
    std::fs::write(file.path(), [7; 32]).expect("it can be written");
    Secret::read(file.path()).expect("a secret")
});

/// Sends the input to a listener in pieces, and to a caller in one write, both of which must refuse it.
///
/// The input is sent as it is, and with name and version before it. The reason of the refusal follows from
/// the length of the bytes, and from those that are not encrypted.
///
/// # Panics
///
/// If the listener or the caller accepts the bytes as a peer's, or refuses them for another reason.
pub fn handshake(input: &[u8]) {
    for bytes in [input, &[&PROTOCOL.name[..], &[PROTOCOL.version], input].concat()] {
        let foreign = match bytes.first_chunk::<HEADER>() {
            None => Some(ErrorKind::UnexpectedEof),
            Some([name @ .., _]) if *name != PROTOCOL.name => Some(ErrorKind::InvalidData),
            Some([.., version]) if *version != PROTOCOL.version => Some(ErrorKind::Unsupported),
            Some(_) => None,
        };
        let refusal = foreign.unwrap_or(match bytes.get(HEADER..HELLO) {
            None => ErrorKind::UnexpectedEof,
            Some(rest) if rest[..16] != [0; 16] => ErrorKind::NotFound,
            Some(_) => ErrorKind::PermissionDenied,
        });
        assert_eq!(listener(bytes), refusal, "the listener");
        let refusal = foreign.unwrap_or(match bytes.get(HEADER) {
            Some(0) if bytes.len() >= ANSWER => ErrorKind::PermissionDenied,
            None | Some(0) => ErrorKind::UnexpectedEof,
            Some(1) => ErrorKind::ConnectionRefused,
            Some(2) => ErrorKind::NotFound,
            Some(3) => ErrorKind::ResourceBusy,
            Some(_) => ErrorKind::InvalidData,
        });
        assert_eq!(caller(bytes), refusal, "the caller");
    }
}

/// Returns the reason why a listener refuses a peer that sends these bytes.
fn listener(bytes: &[u8]) -> ErrorKind {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut stranger = TcpStream::connect(listener.local_addr().expect("its port")).expect("a listener");
    let mut pieces = bytes.chunks(1 + usize::from(bytes.first().copied().unwrap_or_default() % 64));
    let refusal = Cell::new(None);
    let is_over = || {
        match pieces.next() {
            // The listener may have closed the connection already.
            Some(piece) => drop(stranger.write_all(piece)),
            None => drop(stranger.shutdown(Shutdown::Write)),
        }
        Ok::<_, io::Error>(refusal.get().is_some())
    };
    let rejected = |e: &io::Error| refusal.set(Some(e.kind()));
    let admitted = answer(&listener, &SECRET, &PROTOCOL, is_over, |e| e, rejected).expect("it listens");
    assert!(admitted.is_none(), "a stranger was admitted");
    refusal.get().expect("it is over")
}

/// Returns the reason why a caller refuses a peer that sends these bytes.
fn caller(bytes: &[u8]) -> ErrorKind {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut stream = TcpStream::connect(listener.local_addr().expect("its port")).expect("a listener");
    let mut stranger = listener.accept().expect("a caller").0;
    stranger.write_all(bytes).expect("an open connection with an empty buffer");
    stranger.shutdown(Shutdown::Write).expect("an open connection");
    call(&mut stream, &SECRET, &PROTOCOL, || false)
        .expect_err("a program without the secret was accepted")
        .kind()
}
