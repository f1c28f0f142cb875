//! TCP. Both sides prove that they know a secret before any message.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use super::admission::{Verdict, admit};
use super::mac::{self, MAC_LEN, Macs, Nonce, Secret};
use super::{Channel, RETRY, connect, nobody, stream};
use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::Role;
use crate::{Deadline, POLL_INTERVAL, check_interrupt};

/// The first bytes that each side sends.
const MAGIC: [u8; 8] = *b"DCPYTCP1";
/// The DPU's answer to a wrong proof. A MAC is zero with probability 2^-256.
const REFUSED: [u8; MAC_LEN] = [0; MAC_LEN];
/// Length of a side's first message in bytes: the magic and a nonce.
const HELLO_LEN: usize = MAGIC.len() + size_of::<Nonce>();

/// An authenticated connection, and the MACs of the messages sent and received.
type Authenticated = (TcpStream, (Macs, Macs));

pub(super) fn open(address: &str, options: &Options, deadline: Deadline) -> Result<Channel, Failure> {
    let Some(path) = &options.secret_file else {
        return Err(failure!(Starting, "a tcp channel needs --secret-file"));
    };
    let secret = Secret::read(path)?;
    let (stream, macs) = match options.role() {
        Role::Dpu => listen(address, &secret, deadline)?,
        Role::Host => connect_to_dpu(address, &secret, path, deadline)?,
    };
    let set_up = || {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(options.timeout))?;
        stream.try_clone()
    };
    let clone =
        set_up().map_err(|e| failure!(Connecting, "cannot set up the connection to {address}: {e}"))?;
    Ok(stream::channel(stream, clone, Some(macs)))
}

fn try_connect(address: &str, deadline: Deadline) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for at in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&at, deadline.left().max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Connects and authenticates. Tries until the DPU admits this host, refuses its proof, or the deadline has
/// passed.
///
/// A connection that is closed without an answer is no refusal: the DPU closes slow connections while others
/// wait.
fn connect_to_dpu(
    address: &str,
    secret: &Secret,
    path: &Path,
    deadline: Deadline,
) -> Result<Authenticated, Failure> {
    let mut hung_up = 0;
    loop {
        let stream = connect(address, deadline, || try_connect(address, deadline))?;
        let e = match prove_as_host(stream, secret, deadline) {
            Ok(authenticated) => return Ok(authenticated),
            Err(e) => e,
        };
        check_interrupt()?;
        match e.kind() {
            io::ErrorKind::ConnectionRefused => {
                return Err(failure!(
                    Connecting,
                    "{address} turned this host away: its secret is not that of {}; use the same --secret-file on both sides",
                    path.display()
                ));
            }
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
                if !deadline.is_over() =>
            {
                hung_up += 1;
                tracing::info!("{address} hung up before it answered; trying again");
                std::thread::sleep(RETRY.min(deadline.left()));
            }
            _ if deadline.is_over() => {
                return Err(failure!(
                    Connecting,
                    "{address} answered no proof within {} and hung up {hung_up} times; see there whether a dma-copy listens and who else connects to it, or give a longer --timeout",
                    deadline.shown()
                ));
            }
            _ => {
                return Err(failure!(
                    Connecting,
                    "{address} did not prove to be the DPU: {e}; use the same --secret-file on both sides"
                ));
            }
        }
    }
}

/// Waits for a host that knows the secret. Other connections are rejected and delay nobody.
fn listen(address: &str, secret: &Secret, deadline: Deadline) -> Result<Authenticated, Failure> {
    let explain = |e: io::Error| match e.kind() {
        io::ErrorKind::AddrInUse => {
            failure!(Connecting, "another program listens on {address}; choose another port for --channel")
        }
        _ => failure!(Connecting, "cannot listen on {address}: {e}; check --channel"),
    };
    let listener = TcpListener::bind(address).map_err(explain)?;
    listener.set_nonblocking(true).map_err(explain)?;
    let mut wrong_secrets = 0;
    let accept = || match listener.accept() {
        Ok((stream, _)) => match stream.set_nonblocking(true) {
            Ok(()) => Ok(Some(Candidate { stream, bytes: Vec::with_capacity(HELLO_LEN), nonces: None })),
            Err(e) => {
                tracing::warn!("cannot set up a connection: {e}");
                Ok(None)
            }
        },
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        // The error of that connection, or a lack of descriptors, which is not worth spinning on.
        Err(e) => {
            tracing::warn!("cannot accept a connection: {e}");
            std::thread::sleep(POLL_INTERVAL);
            Ok(None)
        }
    };
    let read = |candidate: &mut Candidate| match candidate.authenticate(secret) {
        Ok(Some(macs)) => Verdict::Admitted(macs),
        Ok(None) => Verdict::Pending,
        Err(e) => {
            wrong_secrets += u32::from(e.kind() == io::ErrorKind::PermissionDenied);
            tracing::warn!("turned away a peer: {e}");
            Verdict::Rejected
        }
    };
    match admit(&listener, deadline, accept, read)? {
        Some((candidate, macs)) => Ok((candidate.stream, macs)),
        None if wrong_secrets > 0 => {
            let more = format!("; turned away for not knowing the secret: {wrong_secrets}");
            Err(nobody(address, deadline, &more))
        }
        None => Err(nobody(address, deadline, "")),
    }
}

/// A connection to the DPU that has not authenticated yet.
struct Candidate {
    stream: TcpStream,
    /// The received part of its next message.
    bytes: Vec<u8>,
    /// The nonces of the host and the DPU, once the host's has arrived.
    nonces: Option<(Nonce, Nonce)>,
}

impl Candidate {
    /// Reads the available bytes and answers. Returns the MACs of the messages sent and received once the
    /// host has authenticated. An error rejects it.
    fn authenticate(&mut self, secret: &Secret) -> io::Result<Option<(Macs, Macs)>> {
        loop {
            let due = if self.nonces.is_none() { HELLO_LEN } else { MAC_LEN };
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
            let Some((host, dpu)) = self.nonces else {
                let (host, dpu) = (parse_nonce(&message)?, mac::nonce()?);
                // Never blocks: the answer fits the empty socket buffer.
                self.stream.write_all(&[&MAGIC[..], &dpu[..]].concat())?;
                self.nonces = Some((host, dpu));
                continue;
            };
            if !secret.proves(&message, Role::Host, &host, &dpu) {
                self.stream.write_all(&REFUSED)?;
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it does not know the secret"));
            }
            self.stream.write_all(secret.proof(Role::Dpu, &host, &dpu).as_bytes())?;
            return Ok(Some((secret.macs(Role::Dpu, &host, &dpu), secret.macs(Role::Host, &host, &dpu))));
        }
    }
}

impl AsFd for Candidate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The host's part of authentication. Fails with `ConnectionRefused` if the DPU refused the proof.
fn prove_as_host(mut stream: TcpStream, secret: &Secret, by: Deadline) -> io::Result<Authenticated> {
    let host = mac::nonce()?;
    stream.write_all(&[&MAGIC[..], &host[..]].concat())?;
    let mut hello = [0; HELLO_LEN];
    read(&mut stream, &mut hello, by)?;
    let dpu = parse_nonce(&hello)?;
    stream.write_all(secret.proof(Role::Host, &host, &dpu).as_bytes())?;
    let mut proof = [0; MAC_LEN];
    read(&mut stream, &mut proof, by)?;
    if proof == REFUSED {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    if !secret.proves(&proof, Role::Dpu, &host, &dpu) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it does not know the secret"));
    }
    Ok((stream, (secret.macs(Role::Host, &host, &dpu), secret.macs(Role::Dpu, &host, &dpu))))
}

fn parse_nonce(bytes: &[u8]) -> io::Result<Nonce> {
    match bytes.strip_prefix(&MAGIC).map(Nonce::try_from) {
        Some(Ok(nonce)) => Ok(nonce),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is no dma-copy that speaks there")),
    }
}

/// Fills `bytes`. Fails with `TimedOut` at the deadline or when interrupted.
fn read(stream: &mut TcpStream, mut bytes: &mut [u8], by: Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        if by.is_over() || check_interrupt().is_err() {
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
