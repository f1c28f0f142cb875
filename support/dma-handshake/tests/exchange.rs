//! Tests the exchange with a man in the middle, and messages that are changed, dropped, repeated or
//! reordered.

use std::fs::Permissions;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::Instant;

use dma_handshake::{
    Answering, Keys, MAX_PENDING, PENDING_TIMEOUT, Protocol, Receiving, Secret, Sending, Step, answer, call,
    request,
};
use proptest::prelude::*;

const PROTOCOL: Protocol =
    Protocol { name: *b"dmatest", version: b'2', request_len: 0, reply_len: 0, program: "test" };
/// Lengths of the caller's and the listener's messages in bytes, in the order of sending: name, version, id,
/// public key and tag; name, version, status, public key and tag; a tag; status and tag.
const MESSAGES: [usize; 4] = [8 + 16 + 48, 8 + 1 + 48, 16, 1 + 16];
/// Sum of these lengths.
const ALL: usize = 72 + 57 + 16 + 17;
/// Length by which encryption extends a message of one piece: the length and two tags.
const OVERHEAD: usize = 4 + 16 + 16;

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

/// Opening a pipe without a writer would block.
#[test]
fn a_pipe_is_no_secret_file() {
    let path = std::env::temp_dir().join(format!("dma-handshake-{}-pipe", std::process::id()));
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    let read = Secret::read(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(read.unwrap_err().contains("is not a regular file"));
}

#[test]
fn keys_are_not_printed() {
    let secret = Secret::new([3; 16], [171; 32]);
    assert!(format!("{secret:?}").contains("id"));
    let (ours, theirs) = session();
    for shown in [format!("{secret:?}"), format!("{ours:?}{theirs:?}")] {
        assert!(!shown.contains("171") && !shown.to_lowercase().contains("ab"), "{shown}");
        assert!(shown.len() < 100, "{shown}");
    }
}

/// The results of the listener and the caller.
type Results = (Result<(Keys, Keys), ErrorKind>, Result<(Keys, Keys), ErrorKind>);

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
            admitted.map(|(_, keys)| keys).ok_or_else(|| rejected.lock().unwrap().unwrap())
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
            let mut message = Vec::new();
            // A refusal is shorter, and ends the exchange.
            from.take(len).read_to_end(&mut message)?;
            message.iter_mut().zip(&mut changes).for_each(|(byte, change)| *byte ^= change);
            to.write_all(&message)?;
            if message.len() as u64 == len { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
        };
        for (number, len) in MESSAGES.into_iter().enumerate() {
            let len = len as u64;
            let passed: io::Result<()> = match number % 2 {
                0 => pass(&mut caller, &mut listener, len),
                _ => pass(&mut listener, &mut caller, len),
            };
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
    keys: (Option<Keys>, Option<Keys>),
    messages: &[Vec<u8>],
    tamper: impl FnOnce(&mut Vec<Vec<u8>>),
) -> Result<Vec<Vec<u8>>, ErrorKind> {
    let mut frames = Vec::new();
    let mut bytes = Vec::new();
    let mut sending = Sending::new(&mut bytes, keys.0);
    messages.iter().for_each(|message| sending.send(message).unwrap());
    let mut rest = &bytes[..];
    for message in messages {
        let frame;
        (frame, rest) = rest.split_at(OVERHEAD + message.len());
        frames.push(frame.to_vec());
    }
    assert!(rest.is_empty());
    tamper(&mut frames);
    let count = frames.len();
    let stream = frames.concat();
    let mut receiving = Receiving::new(&stream[..], keys.1, 64);
    let mut message = Vec::new();
    (0..count)
        .map(|_| receiving.receive(&mut message).map(|()| message.clone()).map_err(|e| e.kind()))
        .collect()
}

/// Returns both sides' keys of the messages from the listener to the caller.
fn session() -> (Option<Keys>, Option<Keys>) {
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
    let unknown = Secret::new([1; 16], [2; 32]);
    let refused = [Err(ErrorKind::NotFound); 2];
    assert_eq!(kinds(exchange([&secrets[0], &unknown], [&PROTOCOL; 2], changing(&[]))), refused);
    let foreign = Protocol { name: *b"no name", ..PROTOCOL };
    let [listener, caller] = kinds(exchange([&secrets[0]; 2], [&PROTOCOL, &foreign], changing(&[])));
    assert_eq!(listener, Err(ErrorKind::InvalidData));
    assert!(caller.is_err());
}

/// Both sides name both versions, also if the caller's first message is shorter than in this version.
#[test]
fn another_version_is_named() {
    let secret = secret("sixteen or more bytes");
    let older = Protocol { version: b'1', ..PROTOCOL };
    let between = |mut caller: TcpStream, mut listener: TcpStream| {
        let mut hello = [0; 40];
        caller.read_exact(&mut hello).unwrap();
        listener.write_all(&hello).unwrap();
        let mut header = [0; 8];
        listener.read_exact(&mut header).unwrap();
        caller.write_all(&header).unwrap();
        assert_eq!(listener.read(&mut [0]).unwrap_or(0), 0, "the listener closes the connection");
    };
    assert_eq!(kinds(exchange([&secret; 2], [&PROTOCOL, &older], between)), [Err(ErrorKind::Unsupported); 2]);
    let mut stream = stranger_that_sends(b"dmatest1");
    let text = call(&mut stream, &secret, &PROTOCOL, || false).unwrap_err().to_string();
    assert!(
        text.contains("version 1") && text.contains("version 2") && text.contains("same release"),
        "{text}"
    );
}

/// Returns a connection to a program that sends these bytes.
fn stranger_that_sends(bytes: &[u8]) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    listener.accept().unwrap().0.write_all(bytes).unwrap();
    stream
}

/// Forwards the messages, and returns all bytes that the caller sent.
fn recorded(secret: &Secret) -> Vec<u8> {
    let recorded = Mutex::new(Vec::new());
    let (listener, _) = exchange([secret; 2], [&PROTOCOL; 2], |mut caller, mut listener| {
        for (number, len) in MESSAGES.into_iter().enumerate() {
            let mut message = vec![0; len];
            let (from, to) =
                if number % 2 == 0 { (&mut caller, &mut listener) } else { (&mut listener, &mut caller) };
            from.read_exact(&mut message).unwrap();
            to.write_all(&message).unwrap();
            if number % 2 == 0 {
                recorded.lock().unwrap().extend_from_slice(&message);
            }
        }
    });
    listener.unwrap();
    recorded.into_inner().unwrap()
}

#[test]
fn a_recorded_caller_is_refused() {
    let secret = secret("sixteen or more bytes");
    let recorded = recorded(&secret);
    let (listener, _) = exchange([&secret; 2], [&PROTOCOL; 2], |caller, mut listener| {
        drop(caller);
        listener.write_all(&recorded).unwrap();
        // Wait until the listener has closed the connection.
        let _ = listener.read_to_end(&mut Vec::new());
    });
    assert_eq!(listener.map(drop), Err(ErrorKind::PermissionDenied));
}

/// A listener of another protocol with the same secret does not accept a recorded first message.
#[test]
fn a_first_message_is_of_one_protocol() {
    let secret = secret("sixteen or more bytes");
    let other = Protocol { name: *b"another", ..PROTOCOL };
    let mut hello = recorded(&secret);
    hello.truncate(MESSAGES[0]);
    hello[..7].copy_from_slice(&other.name);
    let (listener, _) = exchange([&secret; 2], [&other, &PROTOCOL], |caller, mut listener| {
        drop(caller);
        listener.write_all(&hello).unwrap();
        let _ = listener.read_to_end(&mut Vec::new());
    });
    assert_eq!(listener.map(drop), Err(ErrorKind::PermissionDenied));
}

#[test]
fn a_reflected_exchange_proves_nothing() {
    let secret = secret("sixteen or more bytes");
    // The caller receives its own public key and tag, and the listener receives no messages.
    let (_, caller) = exchange([&secret; 2], [&PROTOCOL; 2], |mut caller, listener| {
        drop(listener);
        let mut hello = [0; MESSAGES[0]];
        caller.read_exact(&mut hello).unwrap();
        caller.write_all(&[&hello[..8], &[0], &hello[24..]].concat()).unwrap();
        let _ = caller.read_to_end(&mut Vec::new());
    });
    assert_eq!(caller.map(drop), Err(ErrorKind::PermissionDenied));
}

/// Request and reply arrive, and neither they nor later messages are readable in between.
#[test]
fn nothing_that_is_sent_is_readable_on_the_way() {
    const REQUEST: &[u8] = b"the request is not readable";
    const REPLY: &[u8] = b"neither is the reply, which is longer";
    const LATER: &[u8] = b"nor is any later message";
    let secret = Secret::new([3; 16], [4; 32]);
    let of = Protocol { request_len: REQUEST.len(), reply_len: REPLY.len(), ..PROTOCOL };
    let [front, back] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let to_front = front.local_addr().unwrap();
    let tapped = thread::scope(|scope| {
        let tapping = scope.spawn(|| {
            let caller = front.accept().unwrap().0;
            let listener = TcpStream::connect(back.local_addr().unwrap()).unwrap();
            let pass = |mut from: TcpStream, mut to: TcpStream| {
                let (mut all, mut bytes) = (Vec::new(), [0; 64]);
                while let Ok(len @ 1..) = from.read(&mut bytes) {
                    all.extend_from_slice(&bytes[..len]);
                    to.write_all(&bytes[..len]).unwrap();
                }
                to.shutdown(Shutdown::Write).unwrap();
                all
            };
            thread::scope(|scope| {
                let [from, to] = [&caller, &listener].map(|stream| stream.try_clone().unwrap());
                let sent = scope.spawn(|| pass(from, to));
                [pass(listener, caller), sent.join().unwrap()].concat()
            })
        });
        scope.spawn(|| {
            let stream = back.accept().unwrap().0;
            let step = Answering::new(stream).step(&of, |id| (id == secret.id()).then_some(secret)).unwrap();
            // The stream blocks, so the whole exchange is one step.
            let Step::Requested(requested) = step else { panic!("{step:?}") };
            assert_eq!(requested.request, REQUEST);
            let (stream, (keys, _)) = requested.reply(REPLY).unwrap();
            Sending::new(stream, Some(keys)).send(LATER).unwrap();
        });
        let mut stream = TcpStream::connect(to_front).unwrap();
        let (reply, (_, keys)) = request(&mut stream, &secret, &of, REQUEST, || false).unwrap();
        assert_eq!(reply, REPLY);
        let mut later = Vec::new();
        stream.set_read_timeout(None).unwrap();
        Receiving::new(&stream, Some(keys), 64).receive(&mut later).unwrap();
        assert_eq!(later, LATER);
        stream.shutdown(Shutdown::Write).unwrap();
        tapping.join().unwrap()
    });
    assert!(tapped.len() > ALL + REQUEST.len() + REPLY.len() + LATER.len());
    for text in [REQUEST, REPLY, LATER, secret.key()] {
        for part in text.windows(8) {
            assert!(!tapped.windows(8).any(|bytes| bytes == part), "{part:?} is readable");
        }
    }
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
    fn a_changed_bit_admits_nobody(at in 0..ALL, bit in 0..8) {
        let secret = secret("sixteen or more bytes");
        let mut changes = [0; ALL];
        changes[at] = 1_u8 << bit;
        let [listener, caller] = kinds(exchange([&secret; 2], [&PROTOCOL; 2], changing(&changes)));
        // The last message is the listener's, so only the caller can detect its change.
        prop_assert_eq!(listener.is_ok(), at >= ALL - MESSAGES[3]);
        prop_assert!(caller.is_err());
        // Another program and another version are reported differently from a wrong secret.
        match at {
            0..7 => prop_assert_eq!(listener, Err(ErrorKind::InvalidData)),
            7 => prop_assert_eq!(listener, Err(ErrorKind::Unsupported)),
            24..72 => prop_assert_eq!(listener, Err(ErrorKind::PermissionDenied)),
            72..79 => prop_assert_eq!(caller, Err(ErrorKind::InvalidData)),
            79 => prop_assert_eq!(caller, Err(ErrorKind::Unsupported)),
            _ => {}
        }
    }

    #[test]
    fn messages_of_any_length_arrive(lens in prop::collection::vec(1..150_000_usize, 1..3), fill: u8) {
        let messages: Vec<_> = lens.iter().map(|len| vec![fill; *len]).collect();
        let keys = session();
        let mut bytes = Vec::new();
        let mut sending = Sending::new(&mut bytes, keys.0);
        messages.iter().for_each(|message| sending.send(message).unwrap());
        let mut receiving = Receiving::new(&bytes[..], keys.1, 150_000);
        for message in messages {
            let mut received = Vec::new();
            receiving.receive(&mut received).unwrap();
            prop_assert!(received == message);
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
                // The following frames move up, so they are decrypted with other numbers.
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

/// Returns the value of `attempt`. Repeats an attempt that failed if it took so long that the listener may
/// have closed its connection because of its age.
fn unless_expired<T>(attempt: impl Fn() -> io::Result<T>) -> T {
    for _ in 0..10 {
        let begun = Instant::now();
        match attempt() {
            Err(e) if begun.elapsed() < PENDING_TIMEOUT => panic!("{e}"),
            Err(_) => {}
            Ok(value) => return value,
        }
    }
    panic!("each of ten attempts failed after this time");
}

/// A connection that is closed for newer connections of its host receives the busy response, and the
/// next caller is served.
#[test]
fn a_full_listener_says_that_it_is_busy_and_serves_newcomers() {
    test_support::descriptor_limit::raise_to(1024);
    let secret = secret("sixteen or more bytes");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // If an attempt fails, the listener ends when the sender is dropped.
    let (running, over) = channel::<()>();
    std::thread::scope(|scope| {
        let _running = running;
        let listening = scope.spawn(|| {
            let is_over = move || Ok(over.try_recv() == Err(TryRecvError::Disconnected));
            answer(&listener, &secret, &PROTOCOL, is_over, |e: io::Error| e, |_| ())
        });
        let strangers = unless_expired(|| {
            let mut first = TcpStream::connect(address).unwrap();
            let strangers: Vec<_> =
                (0..2 * MAX_PENDING).map(|_| TcpStream::connect(address).unwrap()).collect();
            // The response arrives before any message of this caller, which would be answered if it were
            // there before the listener has accepted the strangers.
            let _ = first.peek(&mut [0])?;
            match call(&mut first, &secret, &PROTOCOL, || false) {
                Err(refused) if refused.kind() == ErrorKind::ResourceBusy => Ok(strangers),
                Err(other) => Err(other),
                Ok(_) => panic!("the first caller is admitted"),
            }
        });
        unless_expired(|| {
            let mut newcomer = TcpStream::connect(address).unwrap();
            call(&mut newcomer, &secret, &PROTOCOL, || false)
        });
        assert!(listening.join().unwrap().unwrap().is_some());
        drop(strangers);
    });
}
