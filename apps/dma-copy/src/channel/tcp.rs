//! TCP. The DPU listens, and the host connects. Before the first message, both sides prove that they know a
//! secret, as `dma-handshake` describes. All messages are encrypted, with `--engine stream` also the file's
//! bytes.

use std::cell::Cell;
use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use dma::process::count;
use dma_handshake::{Authenticated, Protocol, Secret};

use super::{Channel, RETRY, connect, no_host_connected, stream};
use crate::deadline::{Deadline, POLL_INTERVAL, check_interrupt, hold_at};
use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::Role;

const PROTOCOL: Protocol =
    Protocol { name: *b"DCPYTCP", version: b'2', request_len: 0, reply_len: 0, program: "dma-copy" };

pub(super) fn open(address: &str, options: &Options, deadline: Deadline) -> Result<Channel, Failure> {
    let Some(path) = &options.secret_file else {
        return Err(failure!(Starting, "a tcp channel needs --secret-file"));
    };
    let secret = Secret::read(path).map_err(|message| failure!(Starting, "{message}"))?;
    let (stream, keys) = match options.role() {
        Role::Dpu => listen(address, &secret, deadline)?,
        Role::Host => connect_to_dpu(address, &secret, path, deadline)?,
    };
    let set_up = || {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(POLL_INTERVAL))?;
        stream.try_clone()
    };
    let clone =
        set_up().map_err(|e| failure!(Connecting, "cannot set up the connection to {address}: {e}"))?;
    Ok(stream::channel(stream, clone, Some(keys), options.timeout))
}

/// Tries to connect to each address of the name `address`. Returns the last error if all attempts fail.
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

/// Connects and authenticates. Repeats this until the DPU accepts or refuses this host's proof, or the
/// deadline has passed.
///
/// A connection that is closed without a response is not a refusal, because the DPU closes slow connections
/// while others wait.
fn connect_to_dpu(
    address: &str,
    secret: &Secret,
    path: &Path,
    deadline: Deadline,
) -> Result<Authenticated, Failure> {
    let mut hung_up = 0;
    loop {
        let mut stream = connect(address, deadline, || try_connect(address, deadline))?;
        let is_over = || deadline.is_over() || check_interrupt().is_err();
        let e = match dma_handshake::call(&mut stream, secret, &PROTOCOL, is_over) {
            Ok(keys) => return Ok((stream, keys)),
            Err(e) => e,
        };
        check_interrupt()?;
        let has_hung_up = matches!(
            e.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ResourceBusy
        );
        if has_hung_up {
            hung_up += 1;
            tracing::info!("{address} closed the connection before it responded ({e})");
            hold_at("hung up");
            std::thread::sleep(RETRY.min(deadline.left()));
        }
        match e.kind() {
            io::ErrorKind::ConnectionRefused => {
                return Err(failure!(
                    Connecting,
                    "{address} refused this host, because its secret differs from that in {}; use the same --secret-file on both sides",
                    path.display()
                ));
            }
            _ if deadline.is_over() => {
                return Err(failure!(
                    Connecting,
                    "{address} did not respond to the proof within {} and closed the connection {}; check there whether dma-copy of the same release listens and which programs connect to it, or give a longer --timeout",
                    deadline.shown(),
                    count(hung_up, "time", "times")
                ));
            }
            // The loop tries again.
            _ if has_hung_up => {}
            io::ErrorKind::Unsupported => {
                return Err(failure!(Connecting, "cannot talk to {address}: {e}"));
            }
            _ => {
                return Err(failure!(
                    Connecting,
                    "{address} did not prove that it is the DPU: {e}; use the same --secret-file on both sides"
                ));
            }
        }
    }
}

/// Waits for a host that knows the secret. Rejects other connections, which cause no delay.
fn listen(address: &str, secret: &Secret, deadline: Deadline) -> Result<Authenticated, Failure> {
    let explain = |e: io::Error| match e.kind() {
        io::ErrorKind::AddrInUse => {
            failure!(Connecting, "another program listens on {address}; choose another port for --channel")
        }
        _ => {
            let remedy = dma::process::open_files_remedy(&e).unwrap_or("check --channel");
            failure!(Connecting, "cannot listen on {address}: {e}; {remedy}")
        }
    };
    let listener = TcpListener::bind(address).map_err(explain)?;
    let [wrong_secrets, other_versions] = [(); 2].map(|()| Cell::new(0_u32));
    let rejected = |e: &io::Error| {
        match e.kind() {
            io::ErrorKind::PermissionDenied => wrong_secrets.update(|count| count + 1),
            io::ErrorKind::Unsupported => other_versions.update(|count| count + 1),
            _ => {}
        }
        tracing::warn!("rejected a peer: {e}");
        hold_at("rejected");
    };
    let is_over = || deadline.is_over_or_interrupted();
    dma_handshake::answer(&listener, secret, &PROTOCOL, is_over, explain, rejected)?.ok_or_else(|| {
        let mut more = String::new();
        if let count @ 1.. = wrong_secrets.get() {
            more += &format!(
                "; peers that were rejected because of a wrong secret: {count}; use the same --secret-file on both sides"
            );
        }
        if let count @ 1.. = other_versions.get() {
            more += &format!("; peers of another release: {count}; use the same release on both sides");
        }
        no_host_connected(address, deadline, &more)
    })
}
