//! Tests the exchange with a man in the middle, and messages that are changed, dropped, repeated or
//! reordered.

use std::fs::Permissions;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use dma_handshake::{MAX_PENDING, Macs, Protocol, Receiving, Secret, Sending, answer, call};
use proptest::prelude::*;

const PROTOCOL: Protocol = Protocol {
    magic: *b"dma test",
    proof: "dma-handshake test 2026 proof",
    to_listener: "dma-handshake test 2026 to the listener",
    to_caller: "dma-handshake test 2026 to the caller",
    program: "test",
};
/// Lengths of a side's two messages in bytes: magic with nonce, and proof.
const MESSAGES: [usize; 2] = [8 + 32, 32];

fn secret(text: &str) -> Secret {
    read_secret(text, 0o600).unwrap()
}

/// Reads a secret from a file with this content and mode.
fn read_secret(text: &str, mode: u32) -> Result<Secret, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("dma-handshake-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let mut file = std::fs::File::create_new(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_permissions(Permissions::from_mode(mode)).unwrap();
    let secret = Secret::read(&path);
    std::fs::remove_file(&path).unwrap();
    secret
}

/// The results of the listener and the caller.
type Results = (Result<(Macs, Macs), ErrorKind>, Result<(Macs, Macs), ErrorKind>);

/// Connects a caller and a listener through `between`, which receives the caller's and the listener's
/// streams.
fn exchange(
    [listeners, callers]: [&Secret; 2],
    protocols: [&Protocol; 2],
    between: impl FnOnce(TcpStream, TcpStream) + Send,
) -> Results {
    let [front, back] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = |of: &TcpListener| of.local_addr().unwrap();
    let (to_front, to_back) = (address(&front), address(&back));
    thread::scope(|scope| {
        scope.spawn(move || {
            let caller = front.accept().unwrap().0;
            between(caller, TcpStream::connect(to_back).unwrap());
        });
        let listening = scope.spawn(move || {
            let rejected = Mutex::new(None);
            let is_over = || Ok::<_, io::Error>(rejected.lock().unwrap().is_some());
            let reject = |e: &io::Error| *rejected.lock().unwrap() = Some(e.kind());
            let admitted = answer(&back, listeners, protocols[0], is_over, |e| e, reject).unwrap();
            admitted.map(|(_, macs)| macs).ok_or_else(|| rejected.lock().unwrap().unwrap())
        });
        let mut stream = TcpStream::connect(to_front).unwrap();
        let called = call(&mut stream, callers, protocols[1], || false).map_err(|e| e.kind());
        drop(stream);
        (listening.join().unwrap(), called)
    })
}

/// Forwards the four messages. Combines each byte with an element of `changes` by exclusive or, in the
/// order of sending.
fn changing(changes: &[u8]) -> impl FnOnce(TcpStream, TcpStream) {
    move |mut caller, mut listener| {
        let mut changes = changes.iter();
        let mut pass = |from: &mut TcpStream, to: &mut TcpStream, len| {
            let mut message = vec![0; len];
            from.read_exact(&mut message)?;
            message.iter_mut().zip(&mut changes).for_each(|(byte, change)| *byte ^= change);
            to.write_all(&message)
        };
        for len in MESSAGES {
            let passed =
                pass(&mut caller, &mut listener, len).and_then(|()| pass(&mut listener, &mut caller, len));
            if passed.is_err() {
                break;
            }
        }
        for stream in [caller, listener] {
            // The other side may have closed the connection.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn kinds((listener, caller): Results) -> [Result<(), ErrorKind>; 2] {
    [listener.map(drop), caller.map(drop)]
}

/// Sends messages from one side to the other through `tamper`, which changes the stream of frames.
fn sent(
    macs: (Option<Macs>, Option<Macs>),
    messages: &[Vec<u8>],
    tamper: impl FnOnce(&mut Vec<Vec<u8>>),
) -> Result<Vec<Vec<u8>>, ErrorKind> {
    let mut frames = Vec::new();
    let mut bytes = Vec::new();
    let mut sending = Sending::new(&mut bytes, macs.0);
    messages.iter().for_each(|message| sending.send(message).unwrap());
    let mut rest = &bytes[..];
    for message in messages {
        let frame;
        (frame, rest) = rest.split_at(4 + message.len() + 32);
        frames.push(frame.to_vec());
    }
    assert!(rest.is_empty());
    tamper(&mut frames);
    let count = frames.len();
    let stream = frames.concat();
    let mut receiving = Receiving::new(&stream[..], macs.1, 64);
    let mut message = Vec::new();
    (0..count)
        .map(|_| receiving.receive(&mut message).map(|()| message.clone()).map_err(|e| e.kind()))
        .collect()
}

/// Returns both sides' MACs of the messages from the listener to the caller.
fn session() -> (Option<Macs>, Option<Macs>) {
    let secret = secret("sixteen or more bytes");
    let (listener, caller) = exchange([&secret; 2], [&PROTOCOL; 2], changing(&[]));
    (Some(listener.unwrap().0), Some(caller.unwrap().1))
}

#[test]
fn those_who_know_the_secret_are_admitted_and_understand_each_other() {
    let secret = secret("sixteen or more bytes");
    let (listener, caller) = exchange([&secret; 2], [&PROTOCOL; 2], changing(&[]));
    let ((to_caller, from_caller), (to_listener, from_listener)) = (listener.unwrap(), caller.unwrap());
    let messages = [b"first".to_vec(), vec![0; 64], b"third".to_vec()];
    assert_eq!(sent((Some(to_caller), Some(from_listener)), &messages, |_| {}), Ok(messages.to_vec()));
    assert_eq!(sent((Some(to_listener), Some(from_caller)), &messages, |_| {}), Ok(messages.to_vec()));
}

#[test]
fn messages_of_another_session_or_direction_are_refused() {
    let secret = secret("sixteen or more bytes");
    let session = || {
        let (listener, caller) = exchange([&secret; 2], [&PROTOCOL; 2], changing(&[]));
        (listener.unwrap(), caller.unwrap())
    };
    let ((to_caller, _), _) = session();
    let (_, (_, from_listener)) = session();
    let messages = [b"first".to_vec()];
    let refused = Err(ErrorKind::InvalidData);
    assert_eq!(sent((Some(to_caller), Some(from_listener)), &messages, |_| {}), refused);
    let ((to_caller, from_caller), _) = session();
    assert_eq!(sent((Some(to_caller), Some(from_caller)), &messages, |_| {}), refused);
}

#[test]
fn another_secret_or_protocol_is_refused() {
    let secrets = [secret("sixteen or more bytes"), secret("sixteen or more bytez")];
    let refused = [Err(ErrorKind::PermissionDenied), Err(ErrorKind::ConnectionRefused)];
    assert_eq!(kinds(exchange([&secrets[0], &secrets[1]], [&PROTOCOL; 2], changing(&[]))), refused);
    let other = Protocol { proof: "dma-handshake test 2026 other proof", ..PROTOCOL };
    assert_eq!(kinds(exchange([&secrets[0]; 2], [&PROTOCOL, &other], changing(&[]))), refused);
    let foreign = Protocol { magic: *b"no magic", ..PROTOCOL };
    let [listener, caller] = kinds(exchange([&secrets[0]; 2], [&PROTOCOL, &foreign], changing(&[])));
    assert_eq!(listener, Err(ErrorKind::InvalidData));
    assert!(caller.is_err());
}

#[test]
fn a_recorded_caller_is_refused() {
    let secret = secret("sixteen or more bytes");
    let recorded = Mutex::new(Vec::new());
    let (listener, _) = exchange([&secret; 2], [&PROTOCOL; 2], |mut caller, mut listener| {
        for len in MESSAGES {
            let mut message = vec![0; len];
            caller.read_exact(&mut message).unwrap();
            listener.write_all(&message).unwrap();
            recorded.lock().unwrap().extend_from_slice(&message);
            listener.read_exact(&mut message).unwrap();
            caller.write_all(&message).unwrap();
        }
    });
    listener.unwrap();
    let (listener, _) = exchange([&secret; 2], [&PROTOCOL; 2], |caller, mut listener| {
        drop(caller);
        listener.write_all(&recorded.lock().unwrap()).unwrap();
        // Wait until the listener has closed the connection.
        let _ = listener.read_to_end(&mut Vec::new());
    });
    assert_eq!(listener.map(drop), Err(ErrorKind::PermissionDenied));
}

#[test]
fn a_reflected_exchange_proves_nothing() {
    let secret = secret("sixteen or more bytes");
    // The caller receives its own messages, and the listener receives no messages.
    let (_, caller) = exchange([&secret; 2], [&PROTOCOL; 2], |mut caller, listener| {
        drop(listener);
        for len in MESSAGES {
            let mut message = vec![0; len];
            caller.read_exact(&mut message).unwrap();
            caller.write_all(&message).unwrap();
        }
    });
    assert_eq!(caller.map(drop), Err(ErrorKind::PermissionDenied));
}

#[test]
fn a_secret_that_is_short_or_that_others_may_read_is_refused() {
    let others = read_secret("sixteen or more bytes", 0o640).unwrap_err();
    assert!(others.contains("; chmod 600 /"), "{others}");
    let short = read_secret("fifteen letters", 0o600).unwrap_err();
    assert!(short.contains("has 15 bytes, and a secret has 16 to 65536"), "{short}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_bit_admits_nobody(at in 0..2 * (40 + 32_usize), bit in 0..8) {
        let secret = secret("sixteen or more bytes");
        let mut changes = [0; 2 * (40 + 32)];
        changes[at] = 1_u8 << bit;
        let [listener, caller] = kinds(exchange([&secret; 2], [&PROTOCOL; 2], changing(&changes)));
        // The last message is the listener's proof, so only the caller can detect its change.
        prop_assert_eq!(listener.is_ok(), at >= 40 + 40 + 32);
        prop_assert!(caller.is_err());
        // A wrong magic number is reported differently from a wrong secret.
        if at < 8 {
            prop_assert_eq!(listener, Err(ErrorKind::InvalidData));
        }
        if (40..48).contains(&at) {
            prop_assert_eq!(caller, Err(ErrorKind::InvalidData));
        }
    }

    #[test]
    fn tampered_messages_are_refused(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..=64), 1..6),
        tampering in 0..4,
        first in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
    ) {
        let (a, b) = (first.index(messages.len()), second.index(messages.len()));
        let mut unchanged = false;
        let received = sent(session(), &messages, |frames| {
            let before = frames.concat();
            match tampering {
                0 => frames.swap(a, b),
                // The following frames move up, so their MACs are those of other sequence numbers.
                1 => drop(frames.remove(a)),
                2 => frames.insert(b, frames[a].clone()),
                _ => {
                    let at = second.index(frames[a].len());
                    frames[a][at] ^= 1;
                }
            }
            // The receiver accepts a prefix of the original stream, because that is a connection that ended
            // early. The user of the connection must detect this end.
            unchanged = before.starts_with(&frames.concat());
        });
        prop_assert_eq!(received.is_ok(), unchanged, "{:?}", received);
    }
}

/// A connection that is closed for newer connections of its host receives the busy response, and the
/// next caller is served.
#[test]
fn a_full_listener_says_that_it_is_busy_and_serves_newcomers() {
    let secret = secret("sixteen or more bytes");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let listening =
            scope.spawn(|| answer(&listener, &secret, &PROTOCOL, || Ok(false), |e: io::Error| e, |_| ()));
        let mut first = TcpStream::connect(address).unwrap();
        let strangers: Vec<_> = (0..2 * MAX_PENDING).map(|_| TcpStream::connect(address).unwrap()).collect();
        let refused = call(&mut first, &secret, &PROTOCOL, || false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
        let mut newcomer = TcpStream::connect(address).unwrap();
        call(&mut newcomer, &secret, &PROTOCOL, || false).unwrap();
        assert!(listening.join().unwrap().unwrap().is_some());
        drop(strangers);
    });
}
