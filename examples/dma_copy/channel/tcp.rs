//! TCP, where both sides prove that they know a secret before anything else is answered.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::mac::{self, MAC_LEN, Macs, Nonce, Secret};
use super::stream::{StreamReceiver, StreamSender};
use super::{Channel, connect, left, nobody, wait_for};
use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::{MAX_MESSAGE, Role};
use crate::{Deadline, check_interrupt};

/// The first bytes of each side.
const MAGIC: [u8; 8] = *b"DCPYTCP1";
/// How long a stranger may take to prove itself.
const PROOF_TIME: Duration = Duration::from_secs(5);
/// How many strangers may try at a time.
const STRANGERS: usize = 16;

/// Who was let in: the stream, and the MACs of what is sent and received.
type Friend = (TcpStream, Macs, Macs);

pub(super) fn open(address: &str, options: &Options, deadline: Deadline) -> Result<Channel, Failure> {
    let Some(path) = &options.secret_file else {
        return Err(failure!(Starting, "a tcp channel needs --secret-file"));
    };
    let secret = Secret::read(path)?;
    let (stream, send, receive) = match options.role() {
        Role::Dpu => listen(address, secret, deadline)?,
        Role::Host => {
            let stream = connect(address, deadline, || try_connect(address, deadline))?;
            let by = Instant::now() + PROOF_TIME.min(deadline.left());
            prove_as_host(stream, &secret, by).map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => failure!(
                    Connecting,
                    "{address} turned this host away: its secret is not that of {}; use the same --secret-file on both sides",
                    path.display()
                ),
                _ => failure!(Connecting, "{address} did not prove to be the DPU: {e}; use the same --secret-file on both sides"),
            })?
        }
    };
    let set_up = || {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(options.timeout))?;
        stream.try_clone()
    };
    let clone =
        set_up().map_err(|e| failure!(Connecting, "cannot set up the connection to {address}: {e}"))?;
    Ok(Channel {
        sender: Box::new(StreamSender::new(clone, Some(send))),
        receiver: Box::new(StreamReceiver::new(stream, Some(receive))),
        max_message: MAX_MESSAGE,
    })
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

/// Waits for a host that knows the secret. Others are turned away, and none of them holds up the rest.
fn listen(address: &str, secret: Secret, deadline: Deadline) -> Result<Friend, Failure> {
    let explain = |e: io::Error| match e.kind() {
        io::ErrorKind::AddrInUse => {
            failure!(Connecting, "another program listens on {address}; choose another port for --channel")
        }
        _ => failure!(Connecting, "cannot listen on {address}: {e}; check --channel"),
    };
    let listener = TcpListener::bind(address).map_err(explain)?;
    listener.set_nonblocking(true).map_err(explain)?;
    let secret = Arc::new(secret);
    let (sender, proved) = mpsc::channel();
    let (mut trying, mut turned_away) = (0, 0);
    loop {
        check_interrupt()?;
        wait_for(&listener, Duration::from_millis(if trying > 0 { 2 } else { 50 }));
        while let Ok(result) = proved.try_recv() {
            trying -= 1;
            match result {
                Ok(friend) => return Ok(friend),
                Err(e) => {
                    turned_away += 1;
                    let e: io::Error = e;
                    tracing::warn!("turned away a peer that does not know the secret: {e}");
                }
            }
        }
        if deadline.is_over() {
            let Failure::Here { step, message } = nobody(address, deadline) else {
                unreachable!("made here")
            };
            let more = format!("; turned away for not knowing the secret: {turned_away}");
            return Err(Failure::new(step, message + if turned_away > 0 { &more } else { "" }));
        }
        match listener.accept() {
            Ok((stream, _)) if trying < STRANGERS => {
                trying += 1;
                let (secret, sender) = (Arc::clone(&secret), sender.clone());
                let by = Instant::now() + PROOF_TIME;
                std::thread::spawn(move || {
                    let _ = sender.send(prove_as_dpu(stream, &secret, by));
                });
            }
            // Too many: dropped, and so closed. A host tries again.
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // Of that one connection.
            Err(e) => tracing::warn!("cannot accept a connection: {e}"),
        }
    }
}

fn prove_as_host(mut stream: TcpStream, secret: &Secret, by: Instant) -> io::Result<Friend> {
    let host = mac::nonce()?;
    write(&mut stream, &[&MAGIC[..], &host[..]].concat(), by)?;
    let dpu = read_nonce(&mut stream, by)?;
    write(&mut stream, secret.proof(Role::Host, &host, &dpu).as_bytes(), by)?;
    check_proof(&mut stream, secret, Role::Dpu, &host, &dpu, by)?;
    Ok((stream, secret.macs(Role::Host, &host, &dpu), secret.macs(Role::Dpu, &host, &dpu)))
}

fn prove_as_dpu(mut stream: TcpStream, secret: &Secret, by: Instant) -> io::Result<Friend> {
    stream.set_nonblocking(false)?;
    let host = read_nonce(&mut stream, by)?;
    let dpu = mac::nonce()?;
    write(&mut stream, &[&MAGIC[..], &dpu[..]].concat(), by)?;
    check_proof(&mut stream, secret, Role::Host, &host, &dpu, by)?;
    write(&mut stream, secret.proof(Role::Dpu, &host, &dpu).as_bytes(), by)?;
    Ok((stream, secret.macs(Role::Dpu, &host, &dpu), secret.macs(Role::Host, &host, &dpu)))
}

fn check_proof(
    stream: &mut TcpStream,
    secret: &Secret,
    of: Role,
    host: &Nonce,
    dpu: &Nonce,
    by: Instant,
) -> io::Result<()> {
    let mut proof = [0; MAC_LEN];
    read(stream, &mut proof, by)?;
    // Compared in constant time.
    if secret.proof(of, host, dpu) == proof {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "it does not know the secret"))
}

fn read_nonce(stream: &mut TcpStream, by: Instant) -> io::Result<Nonce> {
    let mut bytes = [0; MAGIC.len() + size_of::<Nonce>()];
    read(stream, &mut bytes, by)?;
    let (magic, nonce) = bytes.split_at(MAGIC.len());
    match nonce.try_into() {
        Ok(nonce) if magic == MAGIC => Ok(nonce),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is no dma_copy that speaks there")),
    }
}

/// Reads all of `bytes`, by `by` altogether.
fn read(stream: &mut TcpStream, mut bytes: &mut [u8], by: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        if Instant::now() >= by {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left(by)))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => bytes = &mut bytes[n..],
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn write(stream: &mut TcpStream, bytes: &[u8], by: Instant) -> io::Result<()> {
    stream.set_write_timeout(Some(left(by)))?;
    stream.write_all(bytes)
}
