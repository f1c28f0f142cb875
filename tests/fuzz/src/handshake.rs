//! Fuzzes the handshake: a program without the secret connects to, or listens for, a program with the secret.

use std::cell::Cell;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::LazyLock;

use dma_handshake::{Protocol, Secret, answer, call};

const PROTOCOL: Protocol = Protocol {
    magic: *b"dma fuzz",
    proof: "dma-fuzz 2026 proof",
    to_listener: "dma-fuzz 2026 to the listener",
    to_caller: "dma-fuzz 2026 to the caller",
    program: "fuzzer",
};
/// Length of the first message in bytes: the magic and a nonce.
const HELLO: usize = 8 + 32;
/// Length of a proof in bytes.
const PROOF: usize = 32;

static SECRET: LazyLock<Secret> = LazyLock::new(|| {
    let file = tempfile::NamedTempFile::new().expect("a file that only its owner can read");
    std::fs::write(file.path(), [7; 32]).expect("it can be written");
    Secret::read(file.path()).expect("a secret")
});

/// Sends the input to a listener in pieces, and to a caller in one write, both of which must refuse it.
///
/// The input is sent as it is, and with the magic before it. The reason of the refusal follows from the
/// length and the magic of the bytes.
///
/// # Panics
///
/// If the listener or the caller accepts the bytes as a peer's, or refuses them for another reason.
pub fn handshake(input: &[u8]) {
    for bytes in [input, &[&PROTOCOL.magic, input].concat()] {
        let refusal = match bytes.len() {
            0..HELLO => Some(ErrorKind::UnexpectedEof),
            _ if !bytes.starts_with(&PROTOCOL.magic) => Some(ErrorKind::InvalidData),
            len if len < HELLO + PROOF => Some(ErrorKind::UnexpectedEof),
            _ => None,
        };
        assert_eq!(listener(bytes), refusal.unwrap_or(ErrorKind::PermissionDenied), "the listener");
        let is_refused = bytes.get(HELLO..HELLO + PROOF).is_some_and(|proof| proof == [0; PROOF]);
        let no_proof = if is_refused { ErrorKind::ConnectionRefused } else { ErrorKind::PermissionDenied };
        assert_eq!(caller(bytes), refusal.unwrap_or(no_proof), "the caller");
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
