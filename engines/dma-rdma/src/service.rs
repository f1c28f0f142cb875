//! The exporter's thread: answers importers, and makes and keeps the queue pairs that serve them.

use std::collections::HashMap;
use std::io::{ErrorKind as IoKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dma_core::{Error, ErrorKind, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt;

use crate::device::Device;
use crate::error::error;
use crate::export::Granted;
use crate::qp::{QueuePair, random};
use crate::secret::{Id, PROOF};
use crate::shared::lock;
use crate::wire::{Challenge, Foreign, REPLY, REQUEST, Reply, Request};

/// Time that a peer has to send its whole request.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);
/// Most connections without a request. One more, and the oldest is closed, once it had [`OWN_TIME`]. Further
/// ones wait in the kernel's FIFO backlog.
pub(crate) const MAX_SILENT: usize = 64;
/// Time that each peer has even if others wait. It needs one round trip.
pub(crate) const OWN_TIME: Duration = Duration::from_millis(500);
/// Most connections that are served.
const MAX_SERVED: usize = 4096;
/// Pause when this process has no descriptor for another peer.
const PAUSE: Duration = Duration::from_millis(100);
/// A peer that is silent for so long is asked whether it is there, so often, so many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// An engine's service. Its thread ends when this is dropped, and the queue pairs of peers with it.
#[derive(Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
    addr: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    exports: Mutex<HashMap<Id, Arc<Granted>>>,
    wake: OwnedFd,
    stop: AtomicBool,
}

/// A peer's connection.
struct Connection {
    stream: TcpStream,
    challenge: Challenge,
    request: [u8; REQUEST],
    got: usize,
    until: Instant,
    served: Option<QueuePair>,
}

/// The address of the port's GID, if it is one that can be listened on.
fn address_of(device: &Device) -> Option<IpAddr> {
    let (_, gid) = device.port.gid?;
    let ip = Ipv6Addr::from(gid.raw);
    let usable = !ip.is_unicast_link_local() && !ip.is_unspecified() && device.port.is_ethernet();
    usable.then(|| ip.to_canonical())
}

/// Returns where the service of a device listens, and the address that peers connect to. `None` if neither
/// the options nor the port's GID say.
pub(crate) fn place(device: &Device) -> Option<(SocketAddr, IpAddr)> {
    let of_port = address_of(device);
    match device.options.listen {
        Some(listen) if listen.ip().is_unspecified() => Some((listen, of_port?)),
        Some(listen) => Some((listen, listen.ip())),
        None => of_port.map(|ip| (SocketAddr::new(ip, 0), ip)),
    }
}

impl Service {
    /// Starts to listen.
    ///
    /// # Errors
    ///
    /// `Unsupported`: there is no address. `Os`, `PermissionDenied`, `InUse`: the system refuses it.
    pub(crate) fn start(device: &Device) -> Result<Self> {
        let (listen, reached) = place(device).ok_or_else(no_address)?;
        let failed = |source: std::io::Error| {
            Error::from(source)
                .with_message(format!("importers cannot be listened for at {listen}"))
                .with_backend(crate::error::BACKEND)
                .with_hint("choose a free port and an address of this host by the option `listen`")
        };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let addr = SocketAddr::new(reached, listener.local_addr().map_err(failed)?.port());
        let wake =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
        let shared = Arc::new(Shared { exports: Mutex::default(), wake, stop: AtomicBool::new(false) });
        let thread = std::thread::Builder::new().name("dma-rdma-service".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.serve(&listener)
        });
        Ok(Self { shared, addr, thread: Some(thread.map_err(failed)?) })
    }

    /// Returns the address that peers connect to.
    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Grants memory to those who know its secret.
    pub(crate) fn offer(&self, granted: Granted) {
        lock(&self.shared.exports).insert(granted.secret.id, Arc::new(granted));
    }

    /// Grants it no more.
    pub(crate) fn withdraw(&self, id: &Id) {
        lock(&self.shared.exports).remove(id);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Fails only when the counter is full, and then the thread wakes anyway.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that serves importers had panicked");
        }
    }
}

/// The error of an engine without an address to listen at.
pub(crate) fn no_address() -> Error {
    error(ErrorKind::Unsupported, "the port's GID is no address at which importers could reach this host")
        .with_hint("name one by the option `listen`, such as rdma:mlx5_0,listen=10.0.0.1:0")
}

impl Shared {
    fn serve(&self, listener: &TcpListener) {
        let mut connections: Vec<Connection> = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let full_until = full_until(&connections);
            let silent = connections.iter().filter(|c| c.is_silent()).map(|c| c.until);
            let timeout = silent.chain(full_until).min().map(|until| {
                // A millisecond more, as the kernel rounds down.
                timespec(until.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
            });
            let accepts = if full_until.is_some() { PollFlags::empty() } else { PollFlags::IN };
            let mut files = vec![
                PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(listener.as_fd(), accepts),
            ];
            let streams = connections.iter();
            files.extend(streams.map(|c| PollFd::from_borrowed_fd(c.stream.as_fd(), PollFlags::IN)));
            if let Err(errno) = poll(&mut files, timeout.as_ref())
                && errno != rustix::io::Errno::INTR
            {
                tracing::error!(%errno, "cannot wait for importers");
                // Avoids spinning, because retrying is the only option.
                std::thread::sleep(PAUSE);
            }
            let ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
            let now = Instant::now();
            let mut at = 0;
            connections.retain_mut(|connection| {
                at += 1;
                (!ready[at + 1] || self.advance(connection))
                    && (!connection.is_silent() || connection.until > now)
            });
            if ready[1] {
                accept(listener, &mut connections);
            }
        }
    }

    /// Reads from a connection, and answers a whole request. Returns false if it is to be closed.
    fn advance(&self, connection: &mut Connection) -> bool {
        while connection.got < REQUEST {
            match connection.stream.read(&mut connection.request[connection.got..]) {
                Ok(0) => return false,
                Ok(n) => connection.got += n,
                Err(e) if e.kind() == IoKind::WouldBlock => return true,
                Err(e) if e.kind() == IoKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if connection.served.is_some() {
            // A peer has nothing more to say: it is gone, or no peer.
            let more = connection.stream.read(&mut [0]);
            return more.is_err_and(|e| matches!(e.kind(), IoKind::WouldBlock | IoKind::Interrupted));
        }
        let reply = match Request::decode(&connection.request) {
            Err(Foreign::Version) => Reply::OtherVersion.encode_refusal(),
            Err(Foreign::Bytes | Foreign::Proof) => {
                tracing::debug!("a peer sent foreign bytes; closing");
                return false;
            }
            Ok((request, proof)) => {
                self.answer(&request, &proof, &connection.challenge, &mut connection.served)
            }
        };
        // A new connection has room for it.
        connection.stream.write_all(&reply).is_ok() && connection.served.is_some()
    }

    /// Returns the answer to a request, and makes the queue pair that it asks for.
    fn answer(
        &self,
        request: &Request,
        proof: &[u8; PROOF],
        challenge: &Challenge,
        served: &mut Option<QueuePair>,
    ) -> [u8; REPLY] {
        let Some(granted) = lock(&self.exports).get(&request.id).map(Arc::clone) else {
            return Reply::Unknown.encode_refusal();
        };
        let secret = &granted.secret;
        if !request.is_proven(secret, challenge, proof) {
            tracing::warn!("an importer does not know the secret of the export that it names");
            return Reply::Unproven.encode_refusal();
        }
        let reply = match request.end.as_ref().map(|peer| granted.serve(peer)) {
            None => Reply::Granted(granted.grant, None),
            Some(Ok((pair, end))) => {
                *served = Some(pair);
                Reply::Granted(granted.grant, Some(end))
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "an importer cannot be served");
                return Reply::Exhausted.encode_refusal();
            }
        };
        reply.encode(secret, challenge, request)
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}

impl Connection {
    /// Returns whether it has no request yet.
    const fn is_silent(&self) -> bool {
        self.served.is_none()
    }
}

/// Returns the time until which no connection may be closed for another one, if no other one has room.
fn full_until(connections: &[Connection]) -> Option<Instant> {
    let mut silent = connections.iter().filter(|c| c.is_silent());
    // They are in the order of their arrival.
    let own = silent.next()?.until - (REQUEST_WITHIN - OWN_TIME);
    (silent.count() + 1 >= MAX_SILENT && own > Instant::now()).then_some(own)
}

/// Accepts the connections that wait, while there is room.
fn accept(listener: &TcpListener, connections: &mut Vec<Connection>) {
    while full_until(connections).is_none() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == IoKind::WouldBlock => return,
            Err(e) if matches!(e.kind(), IoKind::Interrupted | IoKind::ConnectionAborted) => continue,
            Err(error) => {
                tracing::warn!(%error, "cannot answer an importer now; raise `ulimit -n`?");
                std::thread::sleep(PAUSE);
                return;
            }
        };
        if connections.iter().filter(|c| c.is_silent()).count() >= MAX_SILENT
            && let Some(oldest) = connections.iter().position(Connection::is_silent)
        {
            connections.remove(oldest);
        }
        if connections.len() < MAX_SERVED
            && let Ok(connection) =
                challenged(stream).inspect_err(|error| tracing::debug!(%error, "a peer is turned away"))
        {
            connections.push(connection);
        }
    }
}

/// Sends a peer its challenge, with which the exchange begins.
fn challenged(mut stream: TcpStream) -> Result<Connection> {
    let (idle, interval, count) = KEEPALIVE;
    let challenge = Challenge(random()?);
    stream
        .set_nonblocking(true)
        .and_then(|()| sockopt::set_socket_keepalive(&stream, true).map_err(Into::into))
        .and_then(|()| sockopt::set_tcp_keepidle(&stream, idle).map_err(Into::into))
        .and_then(|()| sockopt::set_tcp_keepintvl(&stream, interval).map_err(Into::into))
        .and_then(|()| sockopt::set_tcp_keepcnt(&stream, count).map_err(Into::into))?;
    // A new connection has room for it.
    stream.write_all(&challenge.encode())?;
    let until = Instant::now() + REQUEST_WITHIN;
    Ok(Connection { stream, challenge, request: [0; REQUEST], got: 0, until, served: None })
}
