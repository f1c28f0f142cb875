//! Exchanges the messages after which both sides have keys.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use snow::{Builder, HandshakeState};

use crate::admit::POLL_INTERVAL;
use crate::crypto::Functions;
use crate::keys::{Keys, TAG_LEN};
use crate::secret::{Id, Protocol, Secret};

/// Length of name and version in bytes.
const HEADER: usize = 8;
/// Length of each of the two messages of the handshake in bytes: a public key and a tag.
const NOISE: usize = 32 + TAG_LEN;
/// Length of the caller's first message in bytes.
const HELLO: usize = HEADER + size_of::<Id>() + NOISE;

/// The listener's status, which is not encrypted.
const ACCEPTED: u8 = 0;
const WRONG_SECRET: u8 = 1;
const UNKNOWN_ID: u8 = 2;
/// Too many connections are pending.
const BUSY: u8 = 3;

impl Protocol {
    fn header(&self) -> [u8; HEADER] {
        let mut header = [self.version; HEADER];
        header[..self.name.len()].copy_from_slice(&self.name);
        header
    }

    /// Checks the other side's name and version.
    fn check(&self, [name @ .., version]: [u8; HEADER]) -> io::Result<()> {
        let program = self.program;
        if name != self.name {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the program there is not {program}"),
            ));
        }
        if version != self.version {
            let [theirs, ours] = [version, self.version].map(u8::escape_ascii);
            let text = format!(
                "the {program} there uses version {theirs} of the protocol, and this side version {ours}; use the same release on both sides"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(())
    }

    /// Returns the state of the handshake before its first message.
    fn begin(&self, secret: &Secret, is_caller: bool) -> io::Result<HandshakeState> {
        let pattern = "Noise_NNpsk0_25519_ChaChaPoly_SHA256".parse().map_err(io::Error::other)?;
        let prologue = [&self.header()[..], secret.id()].concat();
        let builder = Builder::with_resolver(pattern, Box::new(Functions));
        let builder = builder.psk(0, secret.key()).and_then(|builder| builder.prologue(&prologue));
        builder
            .and_then(|b| if is_caller { b.build_initiator() } else { b.build_responder() })
            .map_err(io::Error::other)
    }
}

/// Returns the next message of a handshake.
fn written(handshake: &mut HandshakeState) -> io::Result<[u8; NOISE]> {
    let mut message = [0; NOISE];
    handshake.write_message(&[], &mut message).map_err(io::Error::other)?;
    Ok(message)
}

fn transport(handshake: HandshakeState) -> io::Result<(Keys, Keys)> {
    handshake.into_stateless_transport_mode().map(Keys::of).map_err(io::Error::other)
}

/// A connection to the listener that has not authenticated yet.
#[derive(Debug)]
pub struct Answering {
    stream: TcpStream,
    /// The received part of the caller's next message.
    bytes: Vec<u8>,
    /// The secret's id and the keys of the messages sent and received, after the caller's first message has
    /// arrived.
    session: Option<(Id, (Keys, Keys))>,
}

/// The state of an exchange after the available bytes have been read.
#[derive(Debug)]
pub enum Step {
    /// More bytes are needed.
    Pending(Answering),
    /// The caller has authenticated.
    Requested(Requested),
}

/// A connection of a caller that has authenticated, and waits for the reply.
#[derive(Debug)]
pub struct Requested {
    /// The id of the secret that the caller knows.
    pub id: Id,
    /// The request, of the protocol's length.
    pub request: Vec<u8>,
    stream: TcpStream,
    keys: (Keys, Keys),
}

impl Answering {
    /// Starts the exchange on an accepted, non-blocking connection.
    #[must_use]
    pub const fn new(stream: TcpStream) -> Self {
        Self { stream, bytes: Vec::new(), session: None }
    }

    /// Reads the available bytes, and responds. `secret_of` returns the secret with an id.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if the caller does not know the secret, or repeats a message of another caller;
    /// `NotFound` if no secret has the id; `Unsupported` if the caller uses another version; `InvalidData` if
    /// it uses another protocol; all errors of the stream. The connection is closed.
    pub fn step(mut self, of: &Protocol, secret_of: impl FnOnce(&Id) -> Option<Secret>) -> io::Result<Step> {
        let (id, mut keys) = match self.session.take() {
            Some(session) => session,
            None => {
                let is_complete = self.fill(HELLO);
                if let Some(header) = self.bytes.first_chunk() {
                    // The caller of another version learns this side's version.
                    of.check(*header).inspect_err(|e| {
                        if e.kind() == io::ErrorKind::Unsupported {
                            self.send(&of.header());
                        }
                    })?;
                }
                if !is_complete? {
                    return Ok(Step::Pending(self));
                }
                self.accept(of, secret_of)?
            }
        };
        if !self.fill(of.request_len + TAG_LEN)? {
            self.session = Some((id, keys));
            return Ok(Step::Pending(self));
        }
        let mut request = vec![0; of.request_len];
        keys.1.open(&self.bytes, &mut request).map_err(|_| {
            let text = "it repeats a message of another program, or a message was changed in transit";
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        })?;
        Ok(Step::Requested(Requested { id, request, stream: self.stream, keys }))
    }

    /// Reads up to `len` bytes of the caller's next message. Returns false if more bytes are needed.
    fn fill(&mut self, len: usize) -> io::Result<bool> {
        while self.bytes.len() < len {
            let mut bytes = [0; HELLO];
            // Read only up to the end of this message, because the next bytes belong to the next message.
            let due = (len - self.bytes.len()).min(HELLO);
            match self.stream.read(&mut bytes[..due]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.bytes.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Answers the caller's first message. Returns the secret's id and the keys of the messages sent and
    /// received.
    fn accept(
        &mut self,
        of: &Protocol,
        secret_of: impl FnOnce(&Id) -> Option<Secret>,
    ) -> io::Result<(Id, (Keys, Keys))> {
        let hello = std::mem::take(&mut self.bytes);
        let (id, message) = hello[HEADER..].split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        let refuse = |this: &mut Self, status, kind, text| {
            this.send(&[&of.header()[..], &[status]].concat());
            Err(io::Error::new(kind, text))
        };
        let Some(secret) = secret_of(id) else {
            return refuse(self, UNKNOWN_ID, io::ErrorKind::NotFound, "it asks for an unknown secret");
        };
        let mut handshake = of.begin(&secret, false)?;
        if handshake.read_message(message, &mut []).is_err() {
            let (kind, text) = (io::ErrorKind::PermissionDenied, "it does not know the secret");
            return refuse(self, WRONG_SECRET, kind, text);
        }
        let answer = written(&mut handshake)?;
        // This does not block, because the answer fits the empty socket buffer.
        self.stream.write_all(&[&of.header()[..], &[ACCEPTED], &answer].concat())?;
        Ok((*id, transport(handshake)?))
    }

    /// Sends the last bytes to a caller. This does not block, because they fit the socket buffer. An error is
    /// ignored, because then the caller has closed the connection.
    fn send(&self, bytes: &[u8]) {
        let _ = (&self.stream).write_all(bytes);
    }

    /// Tells the caller that too many connections are pending, and closes this connection.
    pub fn refuse_as_busy(self, of: &Protocol) {
        let header = of.header();
        self.send(&[if self.session.is_none() { &header[..] } else { &[] }, &[BUSY]].concat());
    }
}

impl Requested {
    /// Admits the caller, and sends the reply of the protocol's length. Returns the connection, which is
    /// non-blocking, and the keys of the messages sent and received.
    ///
    /// # Errors
    ///
    /// The errors of the stream.
    pub fn reply(self, reply: &[u8]) -> io::Result<(TcpStream, (Keys, Keys))> {
        let Self { mut stream, mut keys, .. } = self;
        let mut bytes = vec![ACCEPTED];
        keys.0.seal(reply, &mut bytes);
        // This does not block, because the reply fits the socket buffer.
        stream.write_all(&bytes)?;
        Ok((stream, keys))
    }
}

impl AsFd for Answering {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Authenticates as the caller of a protocol without request and reply. Returns the keys of the messages sent
/// and received. See [`request`].
///
/// # Errors
///
/// The errors of [`request`].
pub fn call(
    stream: &mut TcpStream,
    secret: &Secret,
    of: &Protocol,
    is_over: impl Fn() -> bool,
) -> io::Result<(Keys, Keys)> {
    request(stream, secret, of, &[], is_over).map(|(_, keys)| keys)
}

/// Authenticates as the caller, and sends a request of the protocol's length. Returns the reply, and the keys
/// of the messages sent and received. Blocks until the exchange is complete or `is_over`, which it calls
/// every 50 ms, returns true. Changes the stream's read timeout.
///
/// # Errors
///
/// `ConnectionRefused` if the listener has another secret; `NotFound` if it has no secret with this id;
/// `PermissionDenied` if it does not know the secret; `ResourceBusy` if it has too many pending connections,
/// so that another attempt may succeed; `Unsupported` if it uses another version; `InvalidData` if it uses
/// another protocol; `TimedOut` after `is_over` has returned true; otherwise the errors of the stream.
pub fn request(
    stream: &mut TcpStream,
    secret: &Secret,
    of: &Protocol,
    request: &[u8],
    is_over: impl Fn() -> bool,
) -> io::Result<(Vec<u8>, (Keys, Keys))> {
    let mut handshake = of.begin(secret, true)?;
    let hello = written(&mut handshake)?;
    // An error of a write is reported only if no response arrives: if the listener closed the connection, its
    // response says why.
    let sent = stream.write_all(&[&of.header()[..], secret.id(), &hello].concat());
    let mut header = [0; HEADER];
    read(stream, &mut header, &is_over).map_err(|e| sent.err().unwrap_or(e))?;
    of.check(header)?;
    read_status(stream, &is_over)?;
    let mut answer = [0; NOISE];
    read(stream, &mut answer, &is_over)?;
    handshake.read_message(&answer, &mut []).map_err(|_| no_proof())?;
    let (mut sends, mut receives) = transport(handshake)?;
    let mut sealed = Vec::new();
    sends.seal(request, &mut sealed);
    let sent = stream.write_all(&sealed);
    read_status(stream, &is_over).map_err(|e| sent.err().unwrap_or(e))?;
    sealed.resize(of.reply_len + TAG_LEN, 0);
    read(stream, &mut sealed, &is_over)?;
    let mut reply = vec![0; of.reply_len];
    receives.open(&sealed, &mut reply).map_err(|_| no_proof())?;
    Ok((reply, (sends, receives)))
}

fn no_proof() -> io::Error {
    let text = "it does not know the secret, or a message was changed in transit";
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Reads the listener's status. Fails unless the listener accepts.
fn read_status(stream: &mut TcpStream, is_over: impl Fn() -> bool) -> io::Result<()> {
    let mut status = [0];
    read(stream, &mut status, is_over)?;
    let (kind, text) = match status {
        [ACCEPTED] => return Ok(()),
        [WRONG_SECRET] => (io::ErrorKind::ConnectionRefused, "it has another secret"),
        [UNKNOWN_ID] => (io::ErrorKind::NotFound, "it has no such secret"),
        [BUSY] => {
            let text = "it is busy with connections of programs that do not authenticate";
            (io::ErrorKind::ResourceBusy, text)
        }
        _ => (io::ErrorKind::InvalidData, "its status is unknown"),
    };
    Err(io::Error::new(kind, text))
}

/// Fills `bytes`. Fails with `TimedOut` after `is_over` has returned true.
fn read(stream: &mut TcpStream, mut bytes: &mut [u8], is_over: impl Fn() -> bool) -> io::Result<()> {
    stream.set_read_timeout(Some(POLL_INTERVAL))?;
    while !bytes.is_empty() {
        if is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => bytes = &mut bytes[n..],
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
