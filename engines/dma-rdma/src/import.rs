//! Memory of another host: requests a grant from its exporter, and connects to it.

use std::io::ErrorKind as IoKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dma_core::{Error, ErrorKind, RegionKey, Result};
use dma_handshake::Secret;
use dma_process::{above_stdio, with_signals_blocked};

use crate::error::error;
use crate::wire::{End, Grant, PROTOCOL, Reply, Request};

/// Maximum time of the whole exchange with an exporter. An exporter that is stopped for a shorter time fails
/// no copy.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// Pause before the importer connects again to an exporter that closed the connection.
const RETRY: Duration = Duration::from_millis(20);

/// An import: the address of the exporter's service, and the grant.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) id: u32,
    /// The first address of the memory in descriptors.
    pub(crate) addr: u64,
    pub(crate) grant: Grant,
    service: SocketAddr,
    secret: Secret,
    /// True if the region was dropped, so that connections for it are no longer needed.
    dropped: AtomicBool,
}

/// A connection that the exporter has accepted. The connection lasts as long as the stream.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) stream: TcpStream,
    pub(crate) end: End,
}

/// A connection attempt, made by a separate thread, which ends in bounded time.
#[derive(Debug)]
pub(crate) struct Connecting(Option<JoinHandle<Result<Agreed>>>);

impl Connecting {
    /// Returns the outcome if the attempt has ended. Does not wait.
    pub(crate) fn outcome(&mut self) -> Option<Result<Agreed>> {
        let ended = self.0.take_if(|thread| thread.is_finished())?.join();
        Some(ended.unwrap_or_else(|_| Err(error(ErrorKind::Os, "the thread that connects has panicked"))))
    }
}

impl Import {
    pub(crate) const fn new(id: u32, addr: u64, grant: Grant, service: SocketAddr, secret: Secret) -> Self {
        Self { id, addr, grant, service, secret, dropped: AtomicBool::new(false) }
    }

    /// Records that the region was dropped.
    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Returns true if the region was dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Begins to connect a queue pair to a queue pair of the exporter.
    pub(crate) fn connect(self: &Arc<Self>, end: End) -> Result<Connecting> {
        let import = Arc::clone(self);
        let connect = move || match ask(import.service, &import.secret, Some(end), ANSWER)? {
            (stream, grant, Some(end)) if grant == import.grant => Ok(Agreed { stream, end }),
            _ => Err(foreign_bytes(import.service)),
        };
        let thread = std::thread::Builder::new().name("dma-rdma-connect".into());
        with_signals_blocked(|| thread.spawn(connect)).map(|thread| Connecting(Some(thread))).map_err(
            |source| {
                error(ErrorKind::OutOfResources, "no thread to connect to an exporter")
                    .with_source(source)
                    .with_hint("raise the limit of threads with `ulimit -u`")
            },
        )
    }
}

fn foreign_bytes(service: SocketAddr) -> Error {
    error(ErrorKind::Malformed, format!("the answer of {service} does not come from an exporter")).with_hint(
        "check that the descriptor belongs to the export, and which program listens at this address",
    )
}

fn revoked(what: String) -> Error {
    error(ErrorKind::Revoked, what)
        .with_hint("let the exporter export the memory again, and import the new descriptor")
}

/// Returns the error of a service that cannot be reached, or does not answer.
fn unreachable(service: SocketAddr, source: std::io::Error) -> Error {
    if matches!(source.kind(), IoKind::ConnectionRefused | IoKind::ConnectionReset | IoKind::UnexpectedEof) {
        return revoked(format!("the exporter at {service} no longer answers")).with_source(source);
    }
    error(ErrorKind::DeviceFault, format!("the exporter at {service} cannot be reached"))
        .with_source(source)
        .with_hint("check the route to that host (`ping`), its firewall, and the exporter's option `listen`")
}

/// Requests a grant from an exporter, and a queue pair to connect with `end`. Both sides prove that they know
/// the secret. Returns the connection and the answer. Blocks for at most about `limit`. Tries again if the
/// exporter is busy, or closes the connection without an answer.
pub(crate) fn ask(
    service: SocketAddr,
    secret: &Secret,
    end: Option<End>,
    limit: Duration,
) -> Result<(TcpStream, Grant, Option<End>)> {
    let deadline = Instant::now() + limit;
    let mut turned_away = None;
    loop {
        let mut is_busy = false;
        match ask_once(service, secret, end, deadline, &mut is_busy) {
            Err(e) if is_busy => turned_away = Some(e),
            // There is too little time left for another attempt.
            Err(e) if Instant::now() >= deadline => return Err(turned_away.unwrap_or(e)),
            answer => return answer,
        }
        if Instant::now() + RETRY < deadline {
            std::thread::sleep(RETRY);
        } else if let Some(e) = turned_away {
            return Err(e);
        }
    }
}

/// Makes one attempt of [`ask`]. Sets `is_busy` if the exporter reports that it is busy, or closes the
/// connection without an answer.
fn ask_once(
    service: SocketAddr,
    secret: &Secret,
    end: Option<End>,
    deadline: Instant,
    is_busy: &mut bool,
) -> Result<(TcpStream, Grant, Option<End>)> {
    let mut note = |e: std::io::Error| {
        *is_busy = matches!(
            e.kind(),
            IoKind::ResourceBusy | IoKind::ConnectionReset | IoKind::BrokenPipe | IoKind::UnexpectedEof
        );
        e
    };
    let limit = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut stream = TcpStream::connect_timeout(&service, limit)
        .map(above_stdio)
        .and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(limit))?;
            Ok(stream)
        })
        .map_err(&mut note)
        .map_err(|e| unreachable(service, e))?;
    let is_over = || Instant::now() >= deadline;
    let request = Request(end).encode();
    let (reply, _) = dma_handshake::request(&mut stream, secret, &PROTOCOL, &request, is_over)
        .map_err(&mut note)
        .map_err(|e| refused(service, e))?;
    match reply.first_chunk().and_then(Reply::decode) {
        Some(Reply::Granted(grant, end)) => Ok((stream, grant, end)),
        Some(Reply::Exhausted) => {
            Err(error(ErrorKind::OutOfResources, format!("the exporter at {service} has no queue pair left"))
                .with_hint("close some queues that copy from or to its memory")
                .by_peer())
        }
        None => Err(foreign_bytes(service)),
    }
}

/// Returns the error of an exchange that failed.
fn refused(service: SocketAddr, source: std::io::Error) -> Error {
    match source.kind() {
        IoKind::NotFound => revoked(format!("the exporter at {service} revoked the export")),
        IoKind::ConnectionRefused => {
            unproven(format!("{service} does not accept the secret of the descriptor"))
        }
        IoKind::PermissionDenied => {
            unproven(format!("{service} does not prove that it knows the export's secret"))
        }
        IoKind::Unsupported => {
            error(ErrorKind::VersionMismatch, format!("the exporter at {service} speaks another version"))
                .with_hint("use the same release of this library on both sides")
        }
        IoKind::InvalidData => foreign_bytes(service),
        IoKind::ResourceBusy => {
            let message =
                format!("the exporter at {service} is busy: too many of its connections send no request");
            error(ErrorKind::OutOfResources, message)
                .with_hint("find these connections on that host (`ss -tn`), and try again")
                .by_peer()
        }
        _ => unreachable(service, source),
    }
}

fn unproven(what: String) -> Error {
    error(ErrorKind::PermissionDenied, what).with_hint(
        "pass on the bytes of the export unchanged; if they are unchanged, another program answers instead of the exporter",
    )
}

/// Returns the number of imported memory, or 0 for memory of this process.
pub(crate) const fn id_of(key: RegionKey) -> u32 {
    // A local key of 0 marks imported memory, because devices do not use it: see `RdmaRegion`.
    if key.0 as u32 == 0 { (key.0 as u64 >> 32) as u32 } else { 0 }
}
