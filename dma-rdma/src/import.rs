//! Memory of another host: asks its exporter, and connects to it.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dma_core::{
    Access, DeviceAddr, Error, ErrorKind, ExportDescriptor, RawExport, RawRegion, RegionInfo, RegionKey,
    Result,
};

use crate::error::{BACKEND, error};
use crate::shared::Inner;
use crate::wire::{End, Foreign, Grant, REPLY, Reply, Request, Token, decode_blob};

/// Time that an exporter has to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// An import: where its exporter answers, and what it granted.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) id: u32,
    /// The first address for descriptors.
    pub(crate) addr: u64,
    pub(crate) grant: Grant,
    service: SocketAddr,
    token: Token,
    /// The region is gone, and so is the use of connections for it.
    dropped: AtomicBool,
}

/// A connection that the exporter agreed to: it lasts as long as the stream.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) stream: TcpStream,
    pub(crate) end: End,
}

/// A connection that is being agreed on, by a thread of its own that ends in bounded time.
#[derive(Debug)]
pub(crate) struct Connecting(Receiver<Result<Agreed>>);

impl Connecting {
    /// Returns the outcome once there is one. Never blocks.
    pub(crate) fn outcome(&self) -> Option<Result<Agreed>> {
        match self.0.try_recv() {
            Err(std::sync::mpsc::TryRecvError::Empty) => None,
            Err(_) => Some(Err(error(ErrorKind::Os, "the thread that connects has panicked"))),
            Ok(outcome) => Some(outcome),
        }
    }
}

impl Import {
    /// Returns whether the region is gone.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Begins to connect a queue pair to one of the exporter.
    pub(crate) fn connect(self: &Arc<Self>, end: End) -> Result<Connecting> {
        let (tell, outcome) = channel();
        let import = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("dma-rdma-connect".into()).spawn(move || {
            let agreed = ask(import.service, &Request { token: import.token, end: Some(end) });
            let agreed = agreed.and_then(|(stream, grant, end)| match end {
                Some(end) if grant == import.grant => Ok(Agreed { stream, end }),
                _ => Err(foreign(import.service)),
            });
            // Nobody waits any more if the queue was closed.
            let _ = tell.send(agreed);
        });
        match spawned {
            Ok(_) => Ok(Connecting(outcome)),
            Err(source) => Err(error(ErrorKind::OutOfResources, "no thread to connect to an exporter")
                .with_source(source)
                .with_hint("raise the limit of threads with `ulimit -u`")),
        }
    }
}

fn foreign(service: SocketAddr) -> Error {
    error(ErrorKind::Malformed, format!("{service} answers as no exporter does"))
        .with_hint("check that the descriptor is that of the export, and which program listens there")
}

fn revoked(what: String) -> Error {
    error(ErrorKind::Revoked, what).with_hint("have the exporter export the memory again, and import that")
}

/// The error of a service that cannot be reached, or does not answer.
fn unreachable(service: SocketAddr, source: std::io::Error) -> Error {
    if matches!(source.kind(), std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::ConnectionReset) {
        return revoked(format!("no exporter answers at {service} any more")).with_source(source);
    }
    error(ErrorKind::DeviceFault, format!("the exporter at {service} cannot be reached"))
        .with_source(source)
        .with_hint("check the route to that host (`ping`), its firewall, and the exporter's option `listen`")
}

/// Sends a request, and returns the connection and the answer. Blocks for [`ANSWER`] at most.
fn ask(service: SocketAddr, request: &Request) -> Result<(TcpStream, Grant, Option<End>)> {
    let deadline = Instant::now() + ANSWER;
    let mut reply = [0; REPLY];
    let mut exchanged = || -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&service, ANSWER)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(ANSWER))?;
        stream.write_all(&request.encode())?;
        let mut got = 0;
        while got < REPLY {
            let left = deadline.saturating_duration_since(Instant::now());
            // A time of 0 would be none.
            stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match stream.read(&mut reply[got..]) {
                Ok(0) => return Err(std::io::ErrorKind::ConnectionReset.into()),
                Ok(n) => got += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if got < REPLY && Instant::now() >= deadline {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
        }
        Ok(stream)
    };
    let stream = exchanged().map_err(|source| unreachable(service, source))?;
    let other_version = || {
        error(ErrorKind::VersionMismatch, format!("the exporter at {service} speaks another version"))
            .with_hint("use the same release of this library on both sides")
    };
    match Reply::decode(&reply) {
        Ok(Reply::Granted(grant, end)) => Ok((stream, grant, end)),
        Ok(Reply::Unknown) => Err(revoked(format!("the exporter at {service} revoked the export"))),
        Ok(Reply::Exhausted) => {
            Err(error(ErrorKind::OutOfResources, format!("the exporter at {service} has no queue pair left"))
                .with_hint("close some queues that copy from or to its memory"))
        }
        Ok(Reply::OtherVersion) | Err(Foreign::Version) => Err(other_version()),
        Err(Foreign::Bytes) => Err(foreign(service)),
    }
}

/// The number of imported memory, or 0 for memory of this process.
pub(crate) const fn id_of(key: RegionKey) -> u32 {
    // Devices give no local key of 0, see `RdmaRegion`.
    if key.0 as u32 == 0 { (key.0 as u64 >> 32) as u32 } else { 0 }
}

/// Imported memory.
#[derive(Debug)]
pub(crate) struct Imported {
    inner: Arc<Inner>,
    import: Arc<Import>,
    info: RegionInfo,
}

impl Imported {
    pub(crate) fn new(inner: &Arc<Inner>, descriptor: &ExportDescriptor) -> Result<Self> {
        if descriptor.backend() != BACKEND {
            let message = format!("a descriptor of the backend {:?}", descriptor.backend());
            return Err(error(ErrorKind::Unsupported, message)
                .with_hint(format!("this engine imports descriptors of the backend {BACKEND:?}")));
        }
        let (service, token) = decode_blob(descriptor.native())?;
        let (_, grant, _) = ask(service, &Request { token, end: None })?;
        let (len, rights) = (descriptor.len(), descriptor.rights());
        if (grant.len, grant.rights) != (len, rights) {
            let message = format!(
                "the descriptor states {len} bytes to {rights}, and the exporter grants {} to {}",
                grant.len, grant.rights
            );
            return Err(error(ErrorKind::Malformed, message)
                .with_hint("pass on the bytes of an export of this backend unchanged"));
        }
        let import = inner.add(len, |id, addr| Import {
            id,
            addr,
            grant,
            service,
            token,
            dropped: AtomicBool::new(false),
        })?;
        let key = RegionKey((u64::from(import.id) << 32) as usize);
        let size = usize::try_from(len).map_err(|_| ErrorKind::OutOfRange)?;
        let info = RegionInfo::remote(inner.id, key, DeviceAddr(import.addr), size, rights);
        Ok(Self { inner: Arc::clone(inner), import, info })
    }
}

// SAFETY: the description never changes, and the CPU does not reach the memory. Its addresses are below the
// end of the address space, by `Inner::add`.
unsafe impl RawRegion for Imported {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(error(ErrorKind::Unsupported, "imported memory cannot be exported")
            .with_hint("pass on the descriptor that it was imported with"))
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        self.import.dropped.store(true, Ordering::Release);
        self.inner.remove(self.import.id);
    }
}
