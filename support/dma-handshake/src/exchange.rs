//! Exchanges nonces and proofs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::proof::{PROOF_LEN, Side};
use crate::secret::{Macs, Nonce, Protocol, Secret, nonce};

/// The listener's response to a wrong proof. A correct proof has this value with probability 2^-256.
const REFUSED: [u8; PROOF_LEN] = [0; PROOF_LEN];
/// The listener sends this instead of a nonce or proof if it closes the connection because too many are
/// pending.
const BUSY: [u8; PROOF_LEN] = [0xff; PROOF_LEN];
/// Length of a side's first message in bytes: the magic and a nonce.
const HELLO_LEN: usize = 8 + size_of::<Nonce>();
/// Maximum time between two calls of `is_over`.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A connection to the listener that has not authenticated yet.
#[derive(Debug)]
pub(crate) struct Answering {
    stream: TcpStream,
    /// The received part of the caller's next message.
    bytes: Vec<u8>,
    /// The nonces of the caller and the listener, after the caller's nonce has arrived.
    nonces: Option<(Nonce, Nonce)>,
}

impl Answering {
    /// Starts the exchange on an accepted, non-blocking connection.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, bytes: Vec::with_capacity(HELLO_LEN), nonces: None }
    }

    /// Reads the available bytes, and responds. Returns the MACs of the messages sent and received if the
    /// caller has authenticated, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if the caller does not know the secret; `InvalidData` if the caller uses another
    /// protocol; all errors of the stream. Close the connection after an error.
    pub(crate) fn step(&mut self, secret: &Secret, of: &Protocol) -> io::Result<Option<(Macs, Macs)>> {
        loop {
            let due = if self.nonces.is_none() { HELLO_LEN } else { PROOF_LEN };
            let mut bytes = [0; HELLO_LEN];
            // Read only up to the end of this message, because the next bytes belong to the first message
            // of the session.
            match self.stream.read(&mut bytes[..due - self.bytes.len()]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.bytes.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            if self.bytes.len() < due {
                continue;
            }
            let message = std::mem::take(&mut self.bytes);
            let Some((caller, listener)) = self.nonces else {
                let (caller, listener) = (parse_nonce(&message, of)?, nonce()?);
                // This does not block, because the response fits the empty socket buffer.
                self.stream.write_all(&[&of.magic[..], &listener[..]].concat())?;
                self.nonces = Some((caller, listener));
                continue;
            };
            let proof = |side| secret.proof(of, side, &caller, &listener);
            // This comparison takes constant time.
            if proof(Side::Caller) != message[..] {
                self.stream.write_all(&REFUSED)?;
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it does not know the secret"));
            }
            self.stream.write_all(proof(Side::Listener).as_bytes())?;
            let macs = |side| secret.macs(of, side, &caller, &listener);
            return Ok(Some((macs(Side::Listener), macs(Side::Caller))));
        }
    }

    /// Tells the caller that too many connections are pending, and closes this connection.
    pub(crate) fn refuse_as_busy(mut self, of: &Protocol) {
        let magic = if self.nonces.is_none() { &of.magic[..] } else { &[] };
        // This does not block, because the bytes fit the socket buffer. An error is ignored, because then
        // the caller has closed the connection.
        let _ = self.stream.write_all(&[magic, &BUSY].concat());
    }

    /// Returns the connection.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

impl AsFd for Answering {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Authenticates as the caller. Returns the MACs of the messages sent and received. Blocks until the
/// exchange is complete or `is_over`, which it calls every 50 ms, returns true. Changes the stream's read
/// timeout.
///
/// # Errors
///
/// `ConnectionRefused` if the listener refused the caller's proof; `PermissionDenied` if the listener does
/// not know the secret; `ResourceBusy` if the listener has too many pending connections, so that another
/// attempt may succeed; `InvalidData` if the listener uses another protocol; `TimedOut` after `is_over`
/// has returned true; otherwise the errors of the stream.
pub fn call(
    stream: &mut TcpStream,
    secret: &Secret,
    of: &Protocol,
    is_over: impl Fn() -> bool,
) -> io::Result<(Macs, Macs)> {
    let caller = nonce()?;
    stream.write_all(&[&of.magic[..], &caller[..]].concat())?;
    let mut hello = [0; HELLO_LEN];
    read(stream, &mut hello, &is_over)?;
    let listener = parse_nonce(&hello, of)?;
    check_busy(&listener)?;
    let proof = |side| secret.proof(of, side, &caller, &listener);
    // An error of this write is reported only if no response arrives: if the listener closed the
    // connection, its response says why.
    let sent = stream.write_all(proof(Side::Caller).as_bytes());
    let mut theirs = [0; PROOF_LEN];
    read(stream, &mut theirs, &is_over).map_err(|e| sent.err().unwrap_or(e))?;
    check_busy(&theirs)?;
    if theirs == REFUSED {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    if proof(Side::Listener) != theirs {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it does not know the secret"));
    }
    let macs = |side| secret.macs(of, side, &caller, &listener);
    Ok((macs(Side::Caller), macs(Side::Listener)))
}

fn check_busy(answer: &[u8; PROOF_LEN]) -> io::Result<()> {
    if *answer == BUSY {
        let text = "it is busy with connections of programs that do not authenticate";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    Ok(())
}

fn parse_nonce(bytes: &[u8], of: &Protocol) -> io::Result<Nonce> {
    match bytes.strip_prefix(&of.magic).map(Nonce::try_from) {
        Some(Ok(nonce)) => Ok(nonce),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the program there is not {}", of.program),
        )),
    }
}

/// Fills `bytes`. Fails with `TimedOut` after `is_over` has returned true.
fn read(stream: &mut TcpStream, mut bytes: &mut [u8], is_over: impl Fn() -> bool) -> io::Result<()> {
    while !bytes.is_empty() {
        if is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => bytes = &mut bytes[n..],
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
