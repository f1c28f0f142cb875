//! The exchange of nonces and proofs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::proof::{PROOF_LEN, Side};
use crate::secret::{Macs, Nonce, Protocol, Secret, nonce};

/// The listener's answer to a wrong proof. A proof has this value with probability 2^-256.
const REFUSED: [u8; PROOF_LEN] = [0; PROOF_LEN];
/// In the place of a nonce or a proof: the listener closes this connection because too many are pending.
const BUSY: [u8; PROOF_LEN] = [0xff; PROOF_LEN];
/// Length of a side's first message in bytes: the magic and a nonce.
const HELLO_LEN: usize = 8 + size_of::<Nonce>();
/// Longest wait between two checks for the end.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A connection to the listener that has not authenticated yet.
#[derive(Debug)]
pub(crate) struct Answering {
    stream: TcpStream,
    /// The received part of its next message.
    bytes: Vec<u8>,
    /// The nonces of the caller and the listener, once the caller's has arrived.
    nonces: Option<(Nonce, Nonce)>,
}

impl Answering {
    /// Begins with a non-blocking connection that was accepted.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, bytes: Vec::with_capacity(HELLO_LEN), nonces: None }
    }

    /// Reads the available bytes and answers. Returns the MACs of the messages sent and received once
    /// the caller has authenticated, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if the caller does not know the secret, `InvalidData` if it does not speak the
    /// protocol, and all errors of the stream. The connection must then be closed.
    pub(crate) fn step(&mut self, secret: &Secret, of: &Protocol) -> io::Result<Option<(Macs, Macs)>> {
        loop {
            let due = if self.nonces.is_none() { HELLO_LEN } else { PROOF_LEN };
            let mut bytes = [0; HELLO_LEN];
            // Not beyond this message, because the next bytes belong to the first message of the session.
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
                // Never blocks: the answer fits the empty socket buffer.
                self.stream.write_all(&[&of.magic[..], &listener[..]].concat())?;
                self.nonces = Some((caller, listener));
                continue;
            };
            let proof = |side| secret.proof(of, side, &caller, &listener);
            // Compares in constant time.
            if proof(Side::Caller) != message[..] {
                self.stream.write_all(&REFUSED)?;
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it does not know the secret"));
            }
            self.stream.write_all(proof(Side::Listener).as_bytes())?;
            let macs = |side| secret.macs(of, side, &caller, &listener);
            return Ok(Some((macs(Side::Listener), macs(Side::Caller))));
        }
    }

    /// Tells the caller that too many connections are pending, and closes this one.
    pub(crate) fn refuse_as_busy(mut self, of: &Protocol) {
        let magic = if self.nonces.is_none() { &of.magic[..] } else { &[] };
        // Never blocks: it fits the socket buffer. A caller that is gone needs no answer.
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

/// The caller's part. Returns the MACs of the messages sent and received. Blocks until it is done, or
/// `is_over` returns true, which is asked every 50 ms. Changes the stream's read timeout.
///
/// # Errors
///
/// `ConnectionRefused` if the listener refused the proof, `PermissionDenied` if it does not know the secret
/// itself, `ResourceBusy` if it has too many pending connections, so that calling again may help,
/// `InvalidData` if it does not speak the protocol, `TimedOut` once `is_over`; else those of the stream.
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
    // If the listener closed the connection, its answer says why.
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

/// Fills `bytes`. Fails with `TimedOut` once `is_over`.
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
